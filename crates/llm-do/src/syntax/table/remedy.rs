//! What to write instead of a value that a key cannot have, in the language of the file, so that it can be pasted.

use super::{FormatKey, Reading, Shape, number};
use crate::escape::{visible, visible_start};
use crate::syntax::names;
use crate::syntax::tree::{Language, Node, NodeKind};

impl FormatKey {
    /// What to write where the key is missing.
    pub(super) fn missing(&self, reading: Reading<'_>) -> String {
        let pair = reading.language.pair(self.name, &self.shape.example(reading));
        match (&self.shape, reading.language) {
            (Shape::Constant(_), Language::Json) => format!("write `{pair},` as the first line"),
            _ => format!("write `{pair}`"),
        }
    }
}

impl Shape {
    /// What to write instead of a value of the wrong kind, or out of bounds.
    pub(super) fn remedy(&self, node: &Node, reading: Reading<'_>) -> String {
        let language = reading.language;
        let write = |value: &str| format!("write `{value}`");
        match (self, &node.kind) {
            (Self::Bool, NodeKind::Text(text)) => match text.to_ascii_lowercase().as_str() {
                "yes" | "on" | "true" => write("true"),
                "no" | "off" | "false" => write("false"),
                _ => "write `true` or `false`".to_owned(),
            },
            (Self::List { of, .. }, NodeKind::Text(text)) if of.is_for(&node.kind) => {
                let text = visible_start(text, 40);
                // A word that is plain in a line of its own is plain in a list.
                let item = if language == Language::Yaml { text.into_owned() } else { language.quoted(&text) };
                write(&format!("[{item}]"))
            }
            (Self::Map { of: Self::OneOf(words) }, NodeKind::List(items)) if texts(items).next().is_some() => {
                let word = words.iter().find(|word| **word == "ask").or(words.first()).copied().unwrap_or_default();
                let pairs = texts(items).map(|name| language.pair(&visible_start(name, 40), &language.quoted(word)));
                let pairs: Vec<String> = pairs.take(3).collect();
                write(&language.pair(reading.key, &format!("{{ {} }}", pairs.join(", "))))
            }
            (Self::Object(table), kind) => match table.keys.iter().find(|key| key.shape.is_for(kind)) {
                Some(key) if is_scalar(kind) => {
                    let inside = language.pair(key.name, &written(node, language));
                    write(&whole(reading, &format!("{{ {inside} }}")))
                }
                _ => names::there_are("keys", table.keys.iter().map(|key| key.name)),
            },
            (
                Self::Text | Self::AnyText | Self::Name,
                NodeKind::Integer(_) | NodeKind::Number(..) | NodeKind::Bool(_),
            ) => {
                format!("put it in quotes: `\"{}\"`", node.to_json())
            }
            (Self::Integer { .. } | Self::Count { .. } | Self::Number { .. }, NodeKind::Text(text)) => {
                match text.trim().parse::<f64>() {
                    Ok(_) => format!("write `{}`, without quotes", visible(text.trim())),
                    Err(_) => format!("write a number, such as `{}`", self.example(reading)),
                }
            }
            (Self::Number { max, .. }, NodeKind::Integer(_) | NodeKind::Number(..)) if number(node) > *max => {
                format!("write `{max}`, or less")
            }
            (Self::Count { max }, NodeKind::Integer(value)) if value > max => format!("write `{max}`, or less"),
            (
                Self::Integer { .. } | Self::Count { .. } | Self::Number { .. },
                NodeKind::Integer(_) | NodeKind::Number(..),
            ) => write(&self.example(reading)),
            _ => write(&whole(reading, &self.example(reading))),
        }
    }

    /// A value of this shape.
    fn example(&self, reading: Reading<'_>) -> String {
        let language = reading.language;
        match self {
            Self::Text | Self::AnyText | Self::Any => "\"…\"".to_owned(),
            Self::Name => language.quoted(reading.stem),
            Self::Variable => language.quoted("NAME"),
            Self::Bool => "true".to_owned(),
            Self::Constant(constant) => constant.to_string(),
            Self::Integer { min } => (*min).max(10).to_string(),
            Self::Count { max } => (*max).min(10).to_string(),
            Self::Number { max, .. } if *max < 10.0 => "1".to_owned(),
            Self::Number { .. } => "10".to_owned(),
            Self::OneOf(words) | Self::OneOfBut { words, .. } => {
                language.quoted(words.first().copied().unwrap_or_default())
            }
            Self::List { of, .. } => format!("[{}]", of.example(reading)),
            Self::Map { of } => format!("{{ {} }}", language.pair("name", &of.example(reading))),
            Self::Object(table) => match table.keys.first() {
                Some(key) => format!("{{ {} }}", language.pair(key.name, &key.shape.example(reading))),
                None => "{}".to_owned(),
            },
            Self::AnyOf(shapes) => shapes.first().map(|shape| shape.example(reading)).unwrap_or_default(),
            Self::JsonObject => "{}".to_owned(),
        }
    }
}

/// The value with its key, where it has one.
fn whole(reading: Reading<'_>, value: &str) -> String {
    if reading.key.is_empty() {
        value.to_owned()
    } else {
        reading.language.pair(&visible_start(reading.key, 40), value)
    }
}

fn is_scalar(kind: &NodeKind) -> bool {
    !matches!(kind, NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_))
}

fn written(node: &Node, language: Language) -> String {
    match &node.kind {
        NodeKind::Text(text) => language.quoted(&visible_start(text, 40)),
        _ => node.to_json(),
    }
}

fn texts(items: &[Node]) -> impl Iterator<Item = &str> {
    items.iter().filter_map(|item| match &item.kind {
        NodeKind::Text(text) => Some(text.as_str()),
        _ => None,
    })
}
