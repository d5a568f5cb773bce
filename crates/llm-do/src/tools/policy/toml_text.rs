//! Values as TOML writes them. Pure.

use std::fmt::Write as _;

use crate::syntax::tree::{Node, NodeKind};

/// A text as TOML writes it.
pub(super) fn toml_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            character if character.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// A value as TOML writes it; one that TOML has no word for, as JSON.
pub(super) fn toml_value(node: &Node) -> String {
    match &node.kind {
        NodeKind::Text(text) => toml_text(text),
        NodeKind::List(items) => format!("[{}]", items.iter().map(toml_value).collect::<Vec<_>>().join(", ")),
        NodeKind::Map(entries) => {
            let entries = entries.iter().map(|entry| format!("{} = {}", entry.key.value, toml_value(&entry.value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        NodeKind::Null | NodeKind::Bool(_) | NodeKind::Integer(_) | NodeKind::Number(..) => node.to_json(),
    }
}
