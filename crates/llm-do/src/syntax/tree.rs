//! YAML and JSON → a tree of values with their places. Safe YAML only: no tags, no duplicate keys, bounded size, depth
//! and aliases; linear in the size of its input and not recursive.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde::de::IgnoredAny;

use super::diagnostic::{Diagnostic, Diagnostics, FileId, Located, Span};
use super::yaml_mistake;
use crate::escape::visible_start;

/// A worker file or manifest larger than this is not read.
pub const LARGEST_FILE: usize = 1024 * 1024;
pub(super) const DEEPEST_NESTING: usize = 64;
/// Values in one file after its aliases are expanded, and the text in them.
const MOST_VALUES: usize = 100_000;
const MOST_TEXT: usize = 4 * LARGEST_FILE;

/// What a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Yaml,
    Json,
    Toml,
}

impl Language {
    /// What it calls names with values.
    pub(crate) fn mapping(self) -> &'static str {
        match self {
            Self::Yaml => "a mapping",
            Self::Json => "an object",
            Self::Toml => "a table",
        }
    }

    /// A text as it is written in it.
    pub(crate) fn quoted(self, text: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_plain);
        match self {
            Self::Yaml if is_word && !matches!(text, "true" | "false" | "null") => text.to_owned(),
            Self::Yaml | Self::Json | Self::Toml => serde_json::to_string(text).expect("text serialises"),
        }
    }

    /// A key with its value, which is written in it already.
    pub(crate) fn pair(self, key: &str, value: &str) -> String {
        match self {
            Self::Yaml => format!("{key}: {value}"),
            Self::Json => format!("\"{key}\": {value}"),
            Self::Toml => format!("{key} = {value}"),
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    pub span: Span,
    pub kind: NodeKind,
}

/// What a value is, for YAML and JSON alike.
#[derive(Clone, Debug)]
pub enum NodeKind {
    Null,
    Bool(bool),
    Integer(i64),
    /// With its JSON form.
    Number(f64, String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<MappingEntry>),
}

/// A key of a mapping and its value; mappings keep the order in which they are written.
#[derive(Clone, Debug)]
pub struct MappingEntry {
    pub key: Located<String>,
    pub value: Node,
}

impl Node {
    /// In the words of a person, for "expected …, found …".
    pub(crate) fn describe(&self, language: Language) -> String {
        match &self.kind {
            NodeKind::Null => "nothing".to_owned(),
            NodeKind::Bool(value) => format!("`{value}`"),
            NodeKind::Integer(value) => format!("the number `{value}`"),
            NodeKind::Number(_, text) => format!("the number `{text}`"),
            NodeKind::Text(text) => format!("the text `{}`", visible_start(text, 40)),
            NodeKind::List(_) => "a list".to_owned(),
            NodeKind::Map(_) => language.mapping().to_owned(),
        }
    }

    /// What a JSON pointer leads to; the nearest value above it where it leads nowhere.
    pub(crate) fn at(&self, pointer: &str) -> &Self {
        let mut node = self;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let inside = match &node.kind {
                NodeKind::Map(entries) => {
                    entries.iter().find(|entry| entry.key.value == part).map(|entry| &entry.value)
                }
                NodeKind::List(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => None,
            };
            match inside {
                Some(inside) => node = inside,
                None => return node,
            }
        }
        node
    }

    /// The value that stands exactly there, this one or one within it.
    pub(crate) fn within(&self, span: Span) -> Option<&Self> {
        if self.span == span {
            return Some(self);
        }
        match &self.kind {
            NodeKind::Map(entries) => entries.iter().find_map(|entry| entry.value.within(span)),
            NodeKind::List(items) => items.iter().find_map(|item| item.within(span)),
            _ => None,
        }
    }

    /// As JSON text, keys in the order of the file.
    pub fn to_json(&self) -> String {
        let mut json = String::new();
        self.write_json(&mut json);
        json
    }

    // Recursion is bounded by `DEEPEST_NESTING`, aliases included.
    fn write_json(&self, json: &mut String) {
        let quoted = |text: &str| serde_json::to_string(text).expect("text serialises");
        match &self.kind {
            NodeKind::Null => json.push_str("null"),
            NodeKind::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
            NodeKind::Integer(value) => json.push_str(&value.to_string()),
            NodeKind::Number(_, text) => json.push_str(text),
            NodeKind::Text(text) => json.push_str(&quoted(text)),
            NodeKind::List(items) => {
                json.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        json.push(',');
                    }
                    item.write_json(json);
                }
                json.push(']');
            }
            NodeKind::Map(entries) => {
                json.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    if index > 0 {
                        json.push(',');
                    }
                    json.push_str(&quoted(&entry.key.value));
                    json.push(':');
                    entry.value.write_json(json);
                }
                json.push('}');
            }
        }
    }
}

/// A part of a source file: front matter starts after its first line.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names, reason = "a part of a text is one")]
pub struct Text<'a> {
    pub file: FileId,
    pub text: &'a str,
    /// Where the text starts in its file.
    pub offset: usize,
}

impl<'a> Text<'a> {
    /// A whole file; a byte order mark at its start is not part of the text.
    pub fn whole(file: FileId, text: &'a str) -> Self {
        let stripped = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { file, text: stripped, offset: text.len() - stripped.len() }
    }

    /// Inside the text and between characters, whatever a parser says.
    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        let start = self.text.floor_char_boundary(start);
        let end = self.text.ceil_char_boundary(end).max(start);
        Span { file: self.file, start: self.offset + start, end: self.offset + end }
    }
}

/// Strict JSON: YAML would accept comments and trailing commas, so the syntax is judged first.
pub fn parse_json(source: Text<'_>, problems: &mut Diagnostics) -> Option<Node> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(source.text) {
        let start = offset_of(source.text, error.line(), error.column());
        let message = error.to_string();
        let fact = message.split(" at line ").next().unwrap_or(&message);
        let problem = Diagnostic::error(source.span(start, start + 1), format!("not valid JSON: {fact}"));
        problems.push(problem.maybe_hint(json_hint(source.text, start)));
        return None;
    }
    parse_tree(source, Language::Json, problems)
}

/// A hint for writers who know a JSON with more freedom.
fn json_hint(text: &str, position: usize) -> Option<String> {
    let (before, after) = text.split_at(text.floor_char_boundary(position));
    let hint = match after.chars().next()? {
        '}' | ']' if before.trim_end().ends_with(',') => "remove the comma before it",
        '/' | '#' => "JSON has no comments",
        '\'' => "JSON has double quotes only",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The byte at a line and a column as `serde_json` counts them: from 1, columns in bytes.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let line_start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    line_start + column.saturating_sub(1)
}

/// `None` if the text has no tree; the reason is among the problems, or the text is empty.
pub fn parse_yaml(source: Text<'_>, problems: &mut Diagnostics) -> Option<Node> {
    parse_tree(source, Language::Yaml, problems)
}

/// What a person wrote as YAML, as JSON; or what is wrong with it, and in which line.
#[cfg(feature = "front-end")]
pub fn json_of_yaml(text: &str) -> Result<crate::message::RawJson, String> {
    let (mut sources, mut problems) = (super::diagnostic::Sources::default(), Diagnostics::default());
    let file = sources.add("arguments".into(), text.to_owned());
    let node = parse_yaml(Text::whole(file, text), &mut problems);
    let report = super::diagnostic::Report::new(std::sync::Arc::new(sources), problems);
    let reason = report.diagnostics().next().map(|problem| {
        let place = report.place(problem);
        format!("line {}: {}", place.trim_start_matches("arguments:"), problem.fact)
    });
    match (node, reason) {
        (_, Some(reason)) => Err(reason),
        (None, None) => Err("there is nothing in it".to_owned()),
        (Some(node), None) => crate::message::RawJson::parse(&node.to_json()).map_err(|error| error.to_string()),
    }
}

/// `language` is what the writer of the text meant to write.
fn parse_tree(source: Text<'_>, language: Language, problems: &mut Diagnostics) -> Option<Node> {
    let options = granit_parser::options! {
        disallow_directives: true,
        flow_nesting_limit: DEEPEST_NESTING,
        block_nesting_limit: DEEPEST_NESTING,
    };
    let mut builder = TreeBuilder::new(source);
    for event in Parser::new_from_str_with_options(source.text, options) {
        let step = match event {
            Ok((event, span)) => {
                let start = span.start.byte_offset().unwrap_or(0);
                let end = span.end.byte_offset().unwrap_or(start);
                builder.event(event, source.span(start, end), problems)
            }
            Err(error) => {
                let start = error.marker().byte_offset().unwrap_or(source.text.len());
                Err(unreadable(source, language, start, &error.info()).into())
            }
        };
        if let Err(problem) = step {
            problems.push(*problem);
            return None;
        }
    }
    builder.root
}

/// What the parser says, or what was meant if that can be told.
fn unreadable(source: Text<'_>, language: Language, start: usize, reason: &str) -> Diagnostic {
    let said = |name: &str| {
        let fact = format!("not valid {name}: {}", visible_start(reason, 200));
        Diagnostic::error(source.span(start, start + 1), fact)
    };
    match language {
        Language::Json | Language::Toml => said("JSON"),
        Language::Yaml => match yaml_mistake::find(source.text, start, reason) {
            Some(mistake) => {
                let span = source.span(mistake.range.start, mistake.range.end);
                let problem = mistake.fact.map_or_else(|| said("YAML"), |fact| Diagnostic::error(span, fact));
                problem.hint(mistake.hint)
            }
            None => said("YAML"),
        },
    }
}

/// Builds the tree from events with a stack of its own.
struct TreeBuilder<'a> {
    source: Text<'a>,
    root: Option<Node>,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, AnchoredNode>,
    size: TreeSize,
    /// What the anchors hold besides the tree itself.
    anchored: TreeSize,
    documents: usize,
}

/// How large a tree is once its aliases are expanded.
#[derive(Clone, Copy, Default)]
struct TreeSize {
    values: usize,
    text: usize,
}

impl TreeSize {
    fn and(self, other: Self) -> Self {
        Self { values: self.values + other.values, text: self.text + other.text }
    }
}

/// A value that aliases may repeat.
struct AnchoredNode {
    node: Node,
    size: TreeSize,
    height: usize,
}

struct OpenCollection {
    span: Span,
    anchor: usize,
    /// The size of the whole when it was opened, to know its own.
    before: TreeSize,
    /// How many levels are below it so far.
    height: usize,
    content: Collection,
}

enum Collection {
    List(Vec<Node>),
    Map { entries: Vec<MappingEntry>, keys: HashMap<String, Span>, pending: Option<PendingKey> },
}

enum PendingKey {
    Good(Located<String>),
    /// Seen before: reported, its value is dropped.
    Duplicate,
}

impl<'a> TreeBuilder<'a> {
    fn new(source: Text<'a>) -> Self {
        let (size, anchored) = (TreeSize::default(), TreeSize::default());
        Self { source, root: None, open: Vec::new(), anchors: HashMap::new(), size, anchored, documents: 0 }
    }

    fn event(&mut self, event: Event<'_>, span: Span, problems: &mut Diagnostics) -> Result<(), Box<Diagnostic>> {
        if let Some(tag) = event.tag() {
            let fact = format!("the tag `{}` is not allowed", visible_start(&tag.original(), 40));
            return Err(Diagnostic::error(span, fact).hint("write plain values; tags are never evaluated").into());
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let size = TreeSize { values: 1, text: text.len() };
                self.count(size, span)?;
                let node = Node { span, kind: scalar(&text, style) };
                self.remember(anchor, &node, size, 0)?;
                self.place(node, 0, problems)
            }
            Event::SequenceStart(_, anchor, _) => self.open(span, anchor, Collection::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let content = Collection::Map { entries: Vec::new(), keys: HashMap::new(), pending: None };
                self.open(span, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span, problems),
            Event::Alias(id) => {
                let (size, height) = self.anchors.get(&id).map(|it| (it.size, it.height)).ok_or_else(|| {
                    Diagnostic::error(span, "an alias inside the value that it stands for").hint("write the value out")
                })?;
                // Counted before anything is cloned, so that an alias bomb costs nothing.
                self.count(size, span)?;
                if self.open.len() + height > DEEPEST_NESTING {
                    return Err(too_deep(span));
                }
                let node = Node { span, kind: self.anchors[&id].node.kind.clone() };
                self.place(node, height, problems)
            }
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let problem = Diagnostic::error(span, "a second YAML document in one file");
                    return Err(problem.hint("remove the line `---`, or split the file").into());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, size: TreeSize, span: Span) -> Result<(), Box<Diagnostic>> {
        self.size = self.size.and(size);
        if self.size.values > MOST_VALUES {
            return Err(Diagnostic::error(span, format!("more than {MOST_VALUES} values in one file")).into());
        }
        if self.size.text > MOST_TEXT {
            return Err(
                Diagnostic::error(span, format!("more than {MOST_TEXT} bytes of text, aliases expanded")).into()
            );
        }
        Ok(())
    }

    fn open(&mut self, span: Span, anchor: usize, content: Collection) -> Result<(), Box<Diagnostic>> {
        let before = self.size;
        self.count(TreeSize { values: 1, text: 0 }, span)?;
        if self.open.len() >= DEEPEST_NESTING {
            return Err(too_deep(span));
        }
        self.open.push(OpenCollection { span, anchor, before, height: 0, content });
        Ok(())
    }

    fn close(&mut self, end: Span, problems: &mut Diagnostics) -> Result<(), Box<Diagnostic>> {
        let open = self.open.pop().expect("the parser closes what it opened");
        let kind = match open.content {
            Collection::List(items) => NodeKind::List(items),
            Collection::Map { entries, .. } => NodeKind::Map(entries),
        };
        let node = Node { span: Span { end: end.end.max(open.span.start), ..open.span }, kind };
        let size = TreeSize { values: self.size.values - open.before.values, text: self.size.text - open.before.text };
        let height = open.height + 1;
        self.remember(open.anchor, &node, size, height)?;
        self.place(node, height, problems)
    }

    /// A copy is kept for the aliases; anchors inside anchors copy again and again, so the copies are counted too.
    fn remember(&mut self, anchor: usize, node: &Node, size: TreeSize, height: usize) -> Result<(), Box<Diagnostic>> {
        if anchor == 0 {
            return Ok(());
        }
        self.anchored = self.anchored.and(size);
        if self.anchored.values > MOST_VALUES || self.anchored.text > MOST_TEXT {
            let fact = format!("anchors inside anchors hold more than {MOST_VALUES} values or {MOST_TEXT} bytes");
            return Err(Diagnostic::error(node.span, fact).into());
        }
        self.anchors.insert(anchor, AnchoredNode { node: node.clone(), size, height });
        Ok(())
    }

    /// `height` is the number of levels in the node.
    fn place(&mut self, node: Node, height: usize, problems: &mut Diagnostics) -> Result<(), Box<Diagnostic>> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.height = open.height.max(height);
        match &mut open.content {
            Collection::List(items) => items.push(node),
            Collection::Map { entries, keys, pending } => match pending.take() {
                Some(PendingKey::Good(key)) => entries.push(MappingEntry { key, value: node }),
                Some(PendingKey::Duplicate) => {}
                None => {
                    let Some(text) = key_text(&node.kind, self.source, node.span) else {
                        return Err(Diagnostic::error(node.span, "a key must be plain text").into());
                    };
                    *pending = Some(match keys.get(&text) {
                        None => {
                            keys.insert(text.clone(), node.span);
                            PendingKey::Good(Located { value: text, span: node.span })
                        }
                        Some(first) => {
                            let fact = format!("the key `{}` appears twice", visible_start(&text, 40));
                            let problem = Diagnostic::error(node.span, fact).hint("remove one of the two");
                            problems.push(problem.related(*first, "the first one"));
                            PendingKey::Duplicate
                        }
                    });
                }
            },
        }
        Ok(())
    }
}

fn too_deep(span: Span) -> Box<Diagnostic> {
    Diagnostic::error(span, format!("nested more than {DEEPEST_NESTING} levels deep")).into()
}

fn key_text(kind: &NodeKind, source: Text<'_>, span: Span) -> Option<String> {
    match kind {
        NodeKind::Text(text) => Some(text.clone()),
        // `1:` or `true:` as written, not as a value of another type.
        NodeKind::Null | NodeKind::Bool(_) | NodeKind::Integer(_) | NodeKind::Number(..) => {
            let (start, end) = (span.start - source.offset, span.end - source.offset);
            source.text.get(start..end).map(str::to_owned)
        }
        NodeKind::List(_) | NodeKind::Map(_) => None,
    }
}

/// The core schema of YAML 1.2: `yes` and `on` are text, `0o17` and `0x1f` are numbers.
fn scalar(text: &str, style: ScalarStyle) -> NodeKind {
    if style != ScalarStyle::Plain {
        return NodeKind::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return NodeKind::Null,
        "true" | "True" | "TRUE" => return NodeKind::Bool(true),
        "false" | "False" | "FALSE" => return NodeKind::Bool(false),
        _ => {}
    }
    let radix = |prefix: &str, radix| text.strip_prefix(prefix).map(|digits| i64::from_str_radix(digits, radix));
    if let Some(Ok(value)) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return NodeKind::Integer(value);
    }
    let looks_numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.contains(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E'));
    if looks_numeric {
        if let Ok(value) = text.parse::<i64>() {
            return NodeKind::Integer(value);
        }
        if let Some(value) = text.parse::<f64>().ok().filter(|value| value.is_finite()) {
            // Text that is JSON already stays as it was written.
            let json =
                serde_json::from_str::<serde_json::Number>(text).map_or_else(|_| value.to_string(), |_| text.into());
            return NodeKind::Number(value, json);
        }
    }
    NodeKind::Text(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Sources;
    use super::*;

    fn parse(text: &str, parser: fn(Text<'_>, &mut Diagnostics) -> Option<Node>) -> Result<String, String> {
        let file = Sources::default().add("file".into(), String::new());
        let mut problems = Diagnostics::default();
        let node = parser(Text { file, text, offset: 0 }, &mut problems);
        match problems.iter().next() {
            Some(problem) => Err(problem.fact.clone()),
            None => Ok(node.map_or("empty".into(), |node| node.to_json())),
        }
    }

    #[test]
    fn yaml_values_have_the_types_of_the_core_schema() {
        let cases = [
            ("a: 1", r#"{"a":1}"#),
            ("{b: true, a: [~, null, 1.50, 1e3]}", r#"{"b":true,"a":[null,null,1.50,1e3]}"#),
            ("a: yes", r#"{"a":"yes"}"#),
            ("a: '1'", r#"{"a":"1"}"#),
            ("a: 0x1f", r#"{"a":31}"#),
            ("a: -7", r#"{"a":-7}"#),
            ("a: +7.5", r#"{"a":7.5}"#),
            ("a: .5", r#"{"a":0.5}"#),
            ("a: 1-2", r#"{"a":"1-2"}"#),
            ("a: 2026-01-01", r#"{"a":"2026-01-01"}"#),
            ("a: .inf", r#"{"a":".inf"}"#),
            ("1: x", r#"{"1":"x"}"#),
            ("a: &x [1]\nb: *x", r#"{"a":[1],"b":[1]}"#),
            ("a: |\n  two\n  lines\n", r#"{"a":"two\nlines\n"}"#),
            ("", "empty"),
            ("# only a comment", "empty"),
        ];
        for (yaml, json) in cases {
            assert_eq!(parse(yaml, parse_yaml).as_deref(), Ok(json), "{yaml}");
        }
    }

    #[test]
    fn what_is_not_safe_is_refused() {
        let cases = [
            ("a: !!python/object:os.system x", "the tag `!!python/object:os.system` is not allowed"),
            ("a: 1\na: 2", "the key `a` appears twice"),
            ("a: 1\n---\nb: 2", "a second YAML document in one file"),
            ("? [a]\n: 1", "a key must be plain text"),
            ("a: &x [*x]", "an alias inside the value that it stands for"),
        ];
        for (yaml, fact) in cases {
            assert_eq!(parse(yaml, parse_yaml), Err(fact.to_owned()), "{yaml}");
        }
        for yaml in ["%YAML 1.2\n---\na: 1", "a: [", "a: \"", "a: b: c"] {
            let error = parse(yaml, parse_yaml).expect_err(yaml);
            assert!(error.starts_with("not valid YAML: "), "{yaml}: {error}");
        }
    }

    #[test]
    fn bombs_are_refused_without_being_built() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..40 {
            let previous = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [previous.as_str(); 10].join(",")));
        }
        assert_eq!(parse(&bomb, parse_yaml), Err("more than 100000 values in one file".into()));
        let long = format!("a: &x \"{}\"\nb: [{}]", "x".repeat(500_000), "*x,".repeat(90_000));
        assert_eq!(parse(&long, parse_yaml), Err("more than 4194304 bytes of text, aliases expanded".into()));
        let wide = format!("{}[{}]{}", "&a [".repeat(50), "x,".repeat(50_000), "]".repeat(50));
        assert!(parse(&wide, parse_yaml).unwrap_err().starts_with("anchors inside anchors hold more than"));
        let deep = (1..30).fold("a0: &a0 [x]\n".to_owned(), |deep, level| {
            format!("{deep}a{level}: &a{level} [[[*a{}]]]\n", level - 1)
        });
        assert_eq!(parse(&deep, parse_yaml), Err("nested more than 64 levels deep".into()));
        for open in ["[", "{a: ", "? ", "- "] {
            assert!(parse(&open.repeat(100_000), parse_yaml).is_err(), "{open}");
        }
        assert!(parse(&"[".repeat(100_000), parse_json).is_err());
    }

    #[test]
    fn a_colon_in_a_plain_text_has_a_hint() {
        let file = Sources::default().add("file".into(), String::new());
        let mut problems = Diagnostics::default();
        parse_yaml(Text { file, text: "description: Note: read this", offset: 0 }, &mut problems);
        let hint = problems.iter().next().unwrap().hint.as_ref().map(ToString::to_string);
        assert_eq!(hint.as_deref(), Some("put a text that holds `: ` in quotes: `\"Note: read this\"`"));
    }

    #[test]
    fn common_mistakes_in_json_are_located_and_have_a_hint() {
        let cases = [
            ("{\"a\": 1,\n  }", (11, "remove the comma before it")),
            ("{\"a\": [1,\n  ]}", (12, "remove the comma before it")),
            ("{ // x\n}", (2, "JSON has no comments")),
            ("{'a': 1}", (1, "JSON has double quotes only")),
        ];
        for (json, (start, hint)) in cases {
            let file = Sources::default().add("file".into(), String::new());
            let mut problems = Diagnostics::default();
            parse_json(Text { file, text: json, offset: 0 }, &mut problems);
            let problem = problems.iter().next().unwrap();
            let place = super::super::diagnostic::DiagnosticPlace::At(Span { file, start, end: start + 1 });
            assert_eq!((&problem.place, &problem.hint), (&place, &Some(hint.into())), "{json}");
        }
    }

    #[test]
    fn json_is_strict() {
        assert_eq!(parse(r#"{"b": "😀", "a":	1}"#, parse_json).as_deref(), Ok(r#"{"b":"😀","a":1}"#));
        for json in [r#"{"a": 1,}"#, "{a: 1}", "// x\n{}", "{'a': 1}", r#"{"a": 01}"#, "{} {}", ""] {
            assert!(parse(json, parse_json).unwrap_err().starts_with("not valid JSON: "), "{json}");
        }
        assert_eq!(parse(r#"{"a": 1, "a": 2}"#, parse_json), Err("the key `a` appears twice".into()));
    }
}
