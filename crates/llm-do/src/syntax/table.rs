//! The keys of a file format as tables. One table yields the check of a file (unknown keys, wrong types, both spellings
//! of one key), the suggestions, and the JSON Schema for editors.

mod remedy;
#[cfg(feature = "front-end")]
mod schema;

use std::collections::BTreeSet;

use super::claim::{Bearing, Claim, WrittenKey};
use super::diagnostic::{Diagnostic, Diagnostics, Located, Span};
use super::names::{self, nearest};
use super::tree::{Language, MappingEntry, Node, NodeKind};
use crate::escape::{visible, visible_start};
use crate::message::RawJson;

/// The keys of one mapping.
pub(crate) struct Table {
    /// What the mapping is, for errors: "a worker file".
    pub what: &'static str,
    pub keys: &'static [FormatKey],
}

/// What a table is held against, for the words of its mistakes.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub language: Language,
    /// What whatever the file describes would be called if it had no name: `main` of `main.worker`.
    pub stem: &'a str,
    /// The key whose value is looked at.
    key: &'a str,
}

impl<'a> Reading<'a> {
    pub(crate) const JSON: Reading<'static> = Reading { language: Language::Json, stem: "main", key: "" };
    pub(crate) const TOML: Reading<'static> = Reading { language: Language::Toml, stem: "main", key: "" };

    pub(crate) const fn yaml(stem: &'a str) -> Self {
        Self { language: Language::Yaml, stem, key: "" }
    }

    fn of(self, key: &'a str) -> Self {
        Self { key, ..self }
    }

    fn expected(self, what: &str, node: &Node) -> Diagnostic {
        Diagnostic::error(node.span, format!("expected {what}, found {}", node.describe(self.language)))
    }
}

/// One key of a file format, with all that is known of it.
pub(crate) struct FormatKey {
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    pub shape: Shape,
    pub presence: Presence,
    /// What the user who runs the file has to agree to.
    pub bearing: Bearing,
    #[cfg_attr(not(feature = "front-end"), allow(dead_code, reason = "only the schemas of the formats say it"))]
    pub doc: &'static str,
}

/// Whether a file without the key is mistaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
}

/// Keys that other programs have for what is called otherwise here: the word, the key, and what to write.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("tool_rules", "approval", "`approval` has the rules: `approval: { write_file: ask, shell: block }`"),
    (
        "sandbox",
        "toolsets",
        "`toolsets` names what the agent may use; a `filesystem` toolset in project.json has the directories",
    ),
    ("output_schema", "schema_out_ref", "`schema_out_ref` names a class or a file, `schema_out` is the schema itself"),
];

/// What a value must look like.
pub(crate) enum Shape {
    /// A text that is not blank.
    Text,
    /// A text that may be empty.
    AnyText,
    /// A name of an agent, a tool or a toolset.
    Name,
    /// A name of an environment variable.
    Variable,
    Bool,
    Constant(i64),
    Integer {
        min: i64,
    },
    /// A whole number from 1 on.
    Count {
        max: i64,
    },
    /// `min` itself only if it is included.
    Number {
        min: f64,
        min_included: bool,
        max: f64,
    },
    OneOf(&'static [&'static str]),
    /// One of these words. Others are for the reader to refuse, which says why: no schema offers them.
    OneOfBut {
        words: &'static [&'static str],
        refused: &'static [&'static str],
    },
    List {
        of: &'static Shape,
        least: usize,
        repeats: Repeats,
    },
    /// Any names as keys.
    Map {
        of: &'static Shape,
    },
    Object(&'static Table),
    AnyOf(&'static [Shape]),
    /// Any mapping, kept as JSON.
    JsonObject,
    /// Any value; of the formats that only front ends read.
    #[cfg_attr(not(feature = "front-end"), expect(dead_code, reason = "cases of tests, which only front ends read"))]
    Any,
}

/// Whether a list may have the same text twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    Allowed,
    Refused,
}

/// Only so many unknown keys, of at most this length, are taken for misspellings: comparing unknown keys with all
/// that are known must stay cheap.
const LONGEST_MISSPELLING: usize = 64;
const MOST_MISSPELLINGS: usize = 8;

/// A table row. `required("name", …)`, `optional("model", …)`.
pub(crate) const fn required(name: &'static str, shape: Shape, bearing: Bearing, doc: &'static str) -> FormatKey {
    FormatKey { name, aliases: &[], shape, presence: Presence::Required, bearing, doc }
}

/// A key that may be left out, without other spellings.
pub(crate) const fn optional(name: &'static str, shape: Shape, bearing: Bearing, doc: &'static str) -> FormatKey {
    FormatKey { name, aliases: &[], shape, presence: Presence::Optional, bearing, doc }
}

impl FormatKey {
    /// The same key, which may also be spelled in these ways, though not in two of them at once.
    #[must_use]
    pub(crate) const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    fn spellings(&self) -> impl Iterator<Item = &'static str> + Clone {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

impl Table {
    fn key(&self, spelling: &str) -> Option<&'static FormatKey> {
        self.keys.iter().find(|key| key.name == spelling || key.aliases.contains(&spelling))
    }

    /// Reports every unknown key, doubled key, missing key and wrong value, at any depth.
    pub(crate) fn check(&'static self, node: &Node, reading: Reading<'_>, problems: &mut Diagnostics) -> bool {
        let NodeKind::Map(entries) = &node.kind else {
            let keys = names::there_are("keys", self.keys.iter().map(|key| key.name));
            problems.push(reading.expected(reading.language.mapping(), node).hint(keys));
            return false;
        };
        let mut good = true;
        let mut seen: Vec<(&'static str, &Located<String>)> = Vec::new();
        let mut unknown: Vec<&str> = Vec::new();
        for entry in entries {
            let Some(key) = self.key(&entry.key.value) else {
                problems.push(self.unknown_key(&entry.key, problems));
                unknown.push(&entry.key.value);
                good = false;
                continue;
            };
            if let Some((_, other)) = seen.iter().find(|(name, _)| *name == key.name) {
                let fact = format!("`{}` and `{}` are two spellings of one key", other.value, entry.key.value);
                problems.push(
                    Diagnostic::error(entry.key.span, fact)
                        .hint("keep one of them")
                        .related(other.span, "the other one"),
                );
                good = false;
            }
            seen.push((key.name, &entry.key));
            good &= key.shape.check(&entry.value, reading.of(&entry.key.value), problems);
        }
        for key in self.keys.iter().filter(|key| key.presence == Presence::Required) {
            if !seen.iter().any(|(name, _)| *name == key.name) && !self.meant(&unknown).any(|name| name == key.name) {
                let start = Span { end: node.span.start, ..node.span };
                let problem = Diagnostic::error(start, format!("`{}` is missing in {}", key.name, self.what));
                problems.push(problem.hint(key.missing(reading)));
                good = false;
            }
        }
        good
    }

    fn unknown_key(&self, key: &Located<String>, problems: &Diagnostics) -> Diagnostic {
        let fact = format!("unknown key `{}` in {}", visible_start(&key.value, 60), self.what);
        let elsewhere = ELSEWHERE.iter().find(|(word, here, _)| *word == key.value && self.key(here).is_some());
        if let Some((_, _, hint)) = elsewhere {
            return Diagnostic::error(key.span, fact).hint(*hint);
        }
        let spellings = self.keys.iter().flat_map(FormatKey::spellings);
        let names = self.keys.iter().map(|key| key.name);
        let instead = || names::instead_among(&key.value, "keys", spellings, names);
        Diagnostic::error(key.span, fact).maybe_hint(problems.is_read().then(instead))
    }

    /// Which keys were meant by unknown ones. They were reported with a suggestion: what it names is not missing too.
    fn meant<'a>(&'static self, unknown: &'a [&'a str]) -> impl Iterator<Item = &'static str> + use<'a> {
        let short = unknown.iter().filter(|key| key.len() <= LONGEST_MISSPELLING).take(MOST_MISSPELLINGS);
        short.filter_map(|key| {
            let near = nearest(key, self.keys.iter().flat_map(FormatKey::spellings))?;
            self.key(near).map(|key| key.name)
        })
    }

    /// The values that conform, by their canonical names. What does not was reported by [`Table::check`].
    pub(crate) fn fields<'a>(&'static self, node: &'a Node) -> Fields<'a> {
        let mut fields = Fields { table: self, span: node.span, written: Vec::new(), values: Vec::new() };
        if let NodeKind::Map(entries) = &node.kind {
            let mut silent = Diagnostics::default();
            let mut unknown: Vec<&str> = Vec::new();
            for entry in entries {
                let Some(key) = self.key(&entry.key.value) else {
                    unknown.push(&entry.key.value);
                    continue;
                };
                fields.written.push(key.name);
                if matches!(key.shape, Shape::Object(_) | Shape::Map { .. } | Shape::List { .. })
                    || key.shape.check(&entry.value, Reading::JSON, &mut silent)
                {
                    fields.values.push((key.name, entry.key.span, &entry.value));
                }
            }
            fields.written.extend(self.meant(&unknown));
        }
        fields
    }

    /// What the keys of a mapping ask of the user who runs the file, at any depth.
    pub(crate) fn claims(&'static self, node: &Node) -> Vec<Located<Claim>> {
        let mut claims = Vec::new();
        self.add_claims(node, &[], &mut claims);
        claims
    }

    fn add_claims(&'static self, node: &Node, names: &[&str], claims: &mut Vec<Located<Claim>>) {
        let fields = self.fields(node);
        for (name, span, value) in &fields.values {
            let Some(key) = self.key(name) else { continue };
            match key.bearing {
                Bearing::Neutral | Bearing::Covered => {}
                Bearing::Inside => key.shape.add_claims(value, names, claims),
                Bearing::Item(claiming) => claiming(&WrittenKey { beside: &fields, span: *span, value, names }, claims),
            }
        }
    }
}

impl Shape {
    fn check(&'static self, node: &Node, reading: Reading<'_>, problems: &mut Diagnostics) -> bool {
        let expected = |what: &str| reading.expected(what, node);
        let wrong = match (self, &node.kind) {
            (Self::Text, NodeKind::Text(text)) => text.trim().is_empty().then(|| expected("a text that is not blank")),
            (Self::Name, NodeKind::Text(text)) => (!is_name(text)).then(|| not_a_name(text, node.span)),
            (Self::Variable, NodeKind::Text(text)) => {
                (!is_variable(text)).then(|| expected("the name of an environment variable"))
            }
            (Self::AnyText, NodeKind::Text(_))
            | (Self::Bool, NodeKind::Bool(_))
            | (Self::JsonObject, NodeKind::Map(_))
            | (Self::Any, _) => None,
            (Self::Constant(constant), NodeKind::Integer(value)) if value == constant => None,
            (Self::Constant(constant), _) => {
                Some(Diagnostic::error(node.span, format!("this program reads {} {constant}", reading.key)))
            }
            (Self::Integer { min }, NodeKind::Integer(value)) if value >= min => None,
            (Self::Count { max }, NodeKind::Integer(value)) if (1..=*max).contains(value) => None,
            (Self::Number { .. }, NodeKind::Integer(_) | NodeKind::Number(..)) if self.holds(number(node)) => None,
            (Self::OneOfBut { refused, .. }, NodeKind::Text(text)) if refused.contains(&text.as_str()) => None,
            (Self::OneOf(words) | Self::OneOfBut { words, .. }, NodeKind::Text(text)) => {
                let known = words.contains(&text.as_str());
                let suggestion = || problems.suggest(text, "values", words.iter().copied());
                (!known).then(|| expected(&self.describe(reading.language)).maybe_hint(suggestion()))
            }
            (Self::List { of, least, repeats }, NodeKind::List(items)) => {
                return check_list(node, items, (of, *least, *repeats), reading, problems);
            }
            (Self::Map { of }, NodeKind::Map(entries)) => {
                let is_wrong = |entry: &&MappingEntry| !of.check(&entry.value, reading.of(&entry.key.value), problems);
                return entries.iter().filter(is_wrong).count() == 0;
            }
            (Self::Object(table), NodeKind::Map(_)) => return table.check(node, reading, problems),
            (Self::AnyOf(shapes), _) => match shapes.iter().find(|shape| shape.is_for(&node.kind)) {
                Some(shape) => return shape.check(node, reading, problems),
                None => Some(expected(&self.describe(reading.language))),
            },
            _ => Some(expected(&self.describe(reading.language))),
        };
        let good = wrong.is_none();
        if let Some(problem) = wrong {
            let has_hint = problem.hint.is_some();
            let hint = (!has_hint && problems.is_read()).then(|| self.remedy(node, reading));
            problems.push(problem.maybe_hint(hint));
        }
        good
    }

    fn add_claims(&'static self, node: &Node, names: &[&str], claims: &mut Vec<Located<Claim>>) {
        match (self, &node.kind) {
            (Self::Object(table), NodeKind::Map(_)) => table.add_claims(node, names, claims),
            (Self::Map { of }, NodeKind::Map(entries)) => {
                for entry in entries {
                    let names: Vec<&str> = names.iter().copied().chain([entry.key.value.as_str()]).collect();
                    of.add_claims(&entry.value, &names, claims);
                }
            }
            (Self::List { of, .. }, NodeKind::List(items)) => {
                for item in items {
                    of.add_claims(item, names, claims);
                }
            }
            (Self::AnyOf(shapes), kind) => {
                if let Some(shape) = shapes.iter().find(|shape| shape.is_for(kind)) {
                    shape.add_claims(node, names, claims);
                }
            }
            // Nothing else has keys.
            _ => {}
        }
    }

    /// Whether a value of this kind is meant for this shape, so that its error speaks of it.
    fn is_for(&self, kind: &NodeKind) -> bool {
        match self {
            Self::Text | Self::AnyText | Self::Name | Self::Variable | Self::OneOf(_) | Self::OneOfBut { .. } => {
                matches!(kind, NodeKind::Text(_))
            }
            Self::Bool => matches!(kind, NodeKind::Bool(_)),
            Self::Constant(_) | Self::Integer { .. } | Self::Count { .. } => matches!(kind, NodeKind::Integer(_)),
            Self::Number { .. } => matches!(kind, NodeKind::Integer(_) | NodeKind::Number(..)),
            Self::List { .. } => matches!(kind, NodeKind::List(_)),
            Self::Map { .. } | Self::Object(_) | Self::JsonObject => matches!(kind, NodeKind::Map(_)),
            Self::AnyOf(shapes) => shapes.iter().any(|shape| shape.is_for(kind)),
            Self::Any => true,
        }
    }

    fn holds(&self, value: f64) -> bool {
        match self {
            Self::Number { min, min_included, max } => {
                (value > *min || (*min_included && value >= *min)) && value <= *max
            }
            _ => false,
        }
    }

    fn describe(&self, language: Language) -> String {
        match self {
            Self::Text | Self::AnyText => "a text".into(),
            Self::Name => "a name".into(),
            Self::Variable => "the name of an environment variable".into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Constant(constant) => format!("`{constant}`"),
            Self::Integer { min } => format!("a whole number of at least {min}"),
            Self::Count { max } => format!("a whole number from 1 to {max}"),
            Self::Number { min, max, .. } if max.is_finite() => format!("a number from {min} to {max}"),
            Self::Number { min, min_included: true, .. } => format!("a number of at least {min}"),
            Self::Number { min, .. } => format!("a number greater than {min}"),
            Self::OneOf(words) | Self::OneOfBut { words, .. } => format!("one of `{}`", words.join("`, `")),
            Self::Any => "a value".into(),
            Self::List { of, .. } => format!("a list ({} each)", of.describe(language)),
            Self::Map { .. } | Self::Object(_) | Self::JsonObject => language.mapping().into(),
            Self::AnyOf(shapes) => shapes.iter().map(|shape| shape.describe(language)).collect::<Vec<_>>().join(" or "),
        }
    }
}

fn check_list(
    node: &Node,
    items: &[Node],
    (of, least, repeats): (&'static Shape, usize, Repeats),
    reading: Reading<'_>,
    problems: &mut Diagnostics,
) -> bool {
    let mut good = true;
    if items.len() < least {
        let hint = format!("give {}", of.describe(reading.language));
        problems.push(Diagnostic::error(node.span, "the list is empty").hint(hint));
        good = false;
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for item in items {
        good &= of.check(item, reading, problems);
        if let (NodeKind::Text(text), Repeats::Refused) = (&item.kind, repeats)
            && !seen.insert(text)
        {
            let fact = format!("`{}` appears twice in the list", visible(text));
            problems.push(Diagnostic::error(item.span, fact).hint("remove one of the two"));
            good = false;
        }
    }
    good
}

/// The mistake of a text that is no name, with one that is nearly it.
pub(crate) fn not_a_name(text: &str, span: Span) -> Diagnostic {
    let fact = format!("`{}` is not a name", visible_start(text, 80));
    let rule = "names have 1 to 64 letters, digits, `_` or `-`";
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|part| !part.is_empty());
    let near: String = parts.collect::<Vec<_>>().join("-").chars().take(64).collect();
    let hint = if is_name(&near) { format!("{rule}: `{near}`") } else { rule.to_owned() };
    Diagnostic::error(span, fact).hint(hint)
}

/// Whether a text can name an agent, a toolset or a tool: 1 to 64 ASCII letters, digits, `_` and `-`.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Whether a text can name an environment variable: ASCII letters, digits and `_`, with no digit first.
pub(crate) fn is_variable(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[expect(clippy::cast_precision_loss, reason = "settings are far below the precision of a double")]
fn number(node: &Node) -> f64 {
    match &node.kind {
        NodeKind::Integer(value) => *value as f64,
        NodeKind::Number(value, _) => *value,
        _ => f64::NAN,
    }
}

/// The values of one mapping that passed its table. Asking for a key that the table lacks is a bug and panics in a debug
/// build.
pub(crate) struct Fields<'a> {
    table: &'static Table,
    pub span: Span,
    /// Every key of the table that is there, whatever its value and however it is spelled.
    written: Vec<&'static str>,
    values: Vec<(&'static str, Span, &'a Node)>,
}

impl<'a> Fields<'a> {
    /// The value of a key, whichever way it is spelled; `None` if it is missing or did not pass.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Node> {
        let is_known = || self.table.keys.iter().any(|key| key.name == name);
        debug_assert!(is_known(), "no key `{name}` in {}", self.table.what);
        self.values.iter().find(|(key, ..)| *key == name).map(|(_, _, node)| *node)
    }

    /// Whether the key is there, be it and its value right or wrong: what is wrong was reported, and is not missing too.
    pub(crate) fn is_written(&self, name: &str) -> bool {
        self.written.contains(&name)
    }

    /// The keys that are there but misspelled, or without a value that can be used.
    pub(crate) fn mistaken(&self) -> Vec<&'static str> {
        let is_read = |name: &str| self.values.iter().any(|(key, ..)| *key == name);
        self.written.iter().copied().filter(|name| !is_read(name)).collect()
    }

    /// Where the key itself stands.
    pub(crate) fn key_span(&self, name: &str) -> Option<Span> {
        self.values.iter().find(|(key, ..)| *key == name).map(|(_, span, _)| *span)
    }

    /// The text of a key with its place; `None` if it is missing or no text.
    pub(crate) fn text(&self, name: &str) -> Option<Located<String>> {
        self.get(name).and_then(located_text)
    }

    /// The texts of a list that passed, each once: what is wrong or repeated was reported.
    pub(crate) fn texts(&self, name: &str) -> Vec<Located<String>> {
        let Some(node) = self.get(name) else { return Vec::new() };
        let Some(FormatKey { shape: Shape::List { of, repeats, .. }, .. }) = self.table.key(name) else {
            return texts_of(node);
        };
        let mut silent = Diagnostics::default();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let wanted = items_of(node).iter().filter(|item| match &item.kind {
            NodeKind::Text(text) => {
                (seen.insert(text) || *repeats == Repeats::Allowed) && of.check(item, Reading::JSON, &mut silent)
            }
            _ => false,
        });
        wanted.filter_map(located_text).collect()
    }

    /// The truth value of a key; `None` if it is missing or no truth value.
    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        self.get(name).and_then(|node| match node.kind {
            NodeKind::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// The integer of a key; `None` if it is missing or no integer.
    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(|node| match node.kind {
            NodeKind::Integer(value) => Some(value),
            _ => None,
        })
    }

    /// A whole number that its table bounds from below.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.integer(name).and_then(|value| u64::try_from(value).ok())
    }

    /// The number of a key, whole or not; `None` if it is missing, no number or not finite.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.get(name).map(number).filter(|value| value.is_finite())
    }

    /// The value of a key as JSON; `None` if it is missing or did not pass.
    pub(crate) fn json(&self, name: &str) -> Option<RawJson> {
        self.get(name).map(|node| RawJson::from_valid(node.to_json()))
    }

    /// The fields of a mapping that has a table of its own; `None` if it is missing or no mapping.
    pub(crate) fn object(&self, name: &str) -> Option<Fields<'a>> {
        let node = self.get(name).filter(|node| matches!(node.kind, NodeKind::Map(_)))?;
        let of_object = |shape: &Shape| match shape {
            Shape::Object(table) => Some(table.fields(node)),
            _ => None,
        };
        match &self.table.key(name)?.shape {
            Shape::AnyOf(shapes) => shapes.iter().find_map(of_object),
            shape => of_object(shape),
        }
    }

    /// The entries of a mapping with free keys.
    pub(crate) fn entries(&self, name: &str) -> impl Iterator<Item = (&'a Located<String>, &'a Node)> + use<'a> {
        let entries = self.get(name).and_then(|node| match &node.kind {
            NodeKind::Map(entries) => Some(entries.as_slice()),
            _ => None,
        });
        entries.unwrap_or_default().iter().map(|entry| (&entry.key, &entry.value))
    }
}

/// Every text of a list, or the one text that stands for a list.
pub(crate) fn texts_of(node: &Node) -> Vec<Located<String>> {
    items_of(node).iter().filter_map(located_text).collect()
}

/// The items of a list, or the one value that stands for a list.
fn items_of(node: &Node) -> &[Node] {
    match &node.kind {
        NodeKind::List(items) => items,
        _ => std::slice::from_ref(node),
    }
}

/// The text of a node with its place; `None` if it is of another kind.
pub(crate) fn located_text(node: &Node) -> Option<Located<String>> {
    match &node.kind {
        NodeKind::Text(text) => Some(Located { value: text.clone(), span: node.span }),
        _ => None,
    }
}
