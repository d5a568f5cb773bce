//! The keys of a file format as its description has them, row by row, checked against what the readers do: each value
//! that a key takes is taken, and each wrong one is refused at its exact place.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::syntax::diagnostic::{Diagnostics, FileId, Report, Sources};
use crate::syntax::table::{Shape, Table};

/// A mapping of the format: the text around it, and what must stand in it besides the key in question.
pub(crate) struct Mapping {
    /// What errors call it.
    pub what: &'static str,
    pub open: &'static str,
    pub others: &'static [(&'static str, &'static str)],
    pub close: &'static str,
    pub style: Style,
}

#[derive(Clone, Copy)]
pub(crate) enum Style {
    /// `"key": value,` inside braces that the surrounding text opens and closes.
    Json,
    /// `key: value`, a line each.
    Yaml,
}

/// A key, values that it takes, and groups of values that it refuses. A `§` stands before the culprit inside a value.
pub(crate) type Row = (&'static Mapping, &'static str, &'static [&'static str], &'static [Wrong]);
pub(crate) type Wrong = &'static [&'static str];

pub(crate) const NOT_TEXT: Wrong = &["1", "1.5", "true", "null", "[\"x\"]", "{\"x\": \"y\"}"];
pub(crate) const BLANK: Wrong = &["\"\"", "\" \\t\""];
pub(crate) const NOT_NAME: Wrong = &["\"a b\"", "\"a.b\"", "\"ä\"", "\"../x\"", TOO_LONG];
pub(crate) const NOT_VARIABLE: Wrong = &["\"1A\"", "\"A B\"", "\"A=B\"", "\"\""];
pub(crate) const NOT_BOOL: Wrong = &["0", "1", "\"true\"", "\"yes\"", "null", "[true]", "{\"x\": true}"];
pub(crate) const NOT_INTEGER: Wrong = &["1.5", "\"1\"", "true", "null", "[1]", "{\"x\": 1}"];
pub(crate) const NOT_NUMBER: Wrong = &["\"1\"", "true", "null", "[1]", "{\"x\": 1}"];
pub(crate) const NOT_POSITIVE: Wrong = &["0", "-1"];
pub(crate) const NEGATIVE: Wrong = &["-1"];
pub(crate) const NOT_LIST: Wrong = &["\"x\"", "1", "true", "null", "{\"x\": \"y\"}"];
pub(crate) const NOT_LIST_OF_TEXT: Wrong =
    &["[§1]", "[\"x\", §true]", "[§null]", "[§[\"x\"]]", "[§{\"x\": 1}]", "[§\" \"]"];
pub(crate) const TWICE: Wrong = &["[\"x\", §\"x\"]"];
pub(crate) const EMPTY_LIST: Wrong = &["[]"];
pub(crate) const NOT_MAP: Wrong = &["\"x\"", "1", "true", "null", "[\"x\"]"];
pub(crate) const NOT_RULES: Wrong = &["{\"x\": §\"never\"}", "{\"x\": §true}", "{\"x\": §null}", "{\"x\": §[\"ask\"]}"];

const TOO_LONG: &str = "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"";

impl Mapping {
    /// The text with one more key, and where its value starts.
    fn with(&self, spelling: &str, name: &str, value: &str) -> (String, usize) {
        let mut text = self.open.to_owned();
        for (key, value) in self.others.iter().filter(|(key, _)| *key != name) {
            text += &match self.style {
                Style::Json => format!("\"{key}\": {value},\n"),
                Style::Yaml => format!("{key}: {value}\n"),
            };
        }
        text += &match self.style {
            Style::Json => format!("\"{spelling}\":  "),
            Style::Yaml => format!("{spelling}:  "),
        };
        let culprit = text.len() + value.find('§').unwrap_or(0);
        text += &value.replace('§', "");
        (text + "\n" + self.close, culprit)
    }
}

/// Reads a text and returns what was wrong with it, each as `line:column`, with the first one's words.
pub(crate) type Reader = fn(FileId, &str, &mut Diagnostics);

pub(crate) fn places(text: &str, reader: Reader) -> Vec<(usize, usize, String)> {
    let mut sources = Sources::default();
    let file = sources.add("file".into(), text.to_owned());
    let mut problems = Diagnostics::default();
    reader(file, text, &mut problems);
    let report = Report::new(Arc::new(sources), problems);
    let json = serde_json::to_value(report.json()).unwrap();
    let number = |value: &serde_json::Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let place = |it: &serde_json::Value| (number(&it["line"]), number(&it["column"]), it["message"].to_string());
    json.as_array().unwrap().iter().map(place).collect()
}

/// Counted apart from the code under test.
pub(crate) fn line_and_column(text: &str, position: usize) -> (usize, usize) {
    let before = &text[..position];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Every good value is taken and every wrong one refused where it stands, under each spelling of its key.
pub(crate) fn check_rows(rows: &[Row], aliases: &[(&str, &[&str])], reader: Reader) {
    for (mapping, name, good, wrong) in rows {
        for spelling in spellings(mapping.what, name, aliases) {
            for value in *good {
                let (text, _) = mapping.with(spelling, name, value);
                assert_eq!(places(&text, reader), [], "`{spelling}` refuses {value} in\n{text}");
            }
            for value in wrong.iter().copied().flatten() {
                let (text, culprit) = mapping.with(spelling, name, value);
                let (line, column) = line_and_column(&text, culprit);
                let found = places(&text, reader);
                let first = found.first().unwrap_or_else(|| panic!("`{spelling}` takes {value} in\n{text}"));
                assert_eq!((first.0, first.1), (line, column), "`{spelling}`: {value} in\n{text}\n{found:?}");
            }
        }
    }
}

/// `name` itself and its aliases; an alias is listed as `what.name`.
fn spellings<'a>(what: &str, name: &'a str, aliases: &[(&str, &[&'a str])]) -> Vec<&'a str> {
    let full = format!("{what}.{name}");
    let others = aliases.iter().find(|(key, _)| *key == full).map_or(&[][..], |(_, others)| others);
    std::iter::once(name).chain(others.iter().copied()).collect()
}

/// The rows and the tables have the same keys: neither a key of the description nor one of the reader is forgotten.
pub(crate) fn check_completeness(rows: &[Row], aliases: &[(&str, &[&str])], tables: &[&'static Table]) {
    let described: BTreeSet<(String, String)> = rows
        .iter()
        .flat_map(|(mapping, name, ..)| {
            spellings(mapping.what, name, aliases).into_iter().map(|it| (mapping.what.to_owned(), it.to_owned()))
        })
        .collect();
    let mut read = BTreeSet::new();
    let mut waiting: Vec<&Table> = tables.to_vec();
    while let Some(table) = waiting.pop() {
        for key in table.keys {
            let names = std::iter::once(&key.name).chain(key.aliases);
            let new = names.filter(|name| read.insert((table.what.to_owned(), (**name).to_owned()))).count();
            if new > 0 {
                tables_in(&key.shape, &mut waiting);
            }
        }
    }
    let differences: Vec<_> = described.symmetric_difference(&read).collect();
    assert!(differences.is_empty(), "only described, or only read: {differences:?}");
}

fn tables_in(shape: &Shape, tables: &mut Vec<&'static Table>) {
    match shape {
        Shape::Object(table) => tables.push(table),
        Shape::Map { of } | Shape::List { of, .. } => tables_in(of, tables),
        Shape::AnyOf(shapes) => shapes.iter().for_each(|shape| tables_in(shape, tables)),
        Shape::Text
        | Shape::AnyText
        | Shape::Name
        | Shape::Variable
        | Shape::Bool
        | Shape::Constant(_)
        | Shape::Integer { .. }
        | Shape::Count { .. }
        | Shape::Number { .. }
        | Shape::OneOf(_)
        | Shape::OneOfBut { .. }
        | Shape::JsonObject
        | Shape::Any => {}
    }
}

/// Both spellings of one key together are a mistake, at the second one.
pub(crate) fn check_doubled(rows: &[Row], aliases: &[(&str, &[&str])], reader: Reader) {
    for (mapping, name, good, _) in rows {
        let spellings = spellings(mapping.what, name, aliases);
        for pair in spellings.windows(2) {
            let value = match mapping.style {
                Style::Json => format!("{},\n§\"{}\": {}", good[0], pair[1], good[0]),
                Style::Yaml => format!("{}\n§{}: {}", good[0], pair[1], good[0]),
            };
            let (text, second) = mapping.with(pair[0], name, &value);
            let (line, column) = line_and_column(&text, second);
            let words = format!("\"`{}` and `{}` are two spellings of one key\"", pair[0], pair[1]);
            assert!(places(&text, reader).contains(&(line, column, words)), "{text}\n{:?}", places(&text, reader));
        }
    }
}

/// A misspelled key is refused in every mapping, with the right one suggested, which is not missing besides.
pub(crate) fn check_misspelled(rows: &[Row], reader: Reader) {
    for (mapping, name, good, _) in rows {
        let misspelled = format!("{name}x");
        let (text, _) = mapping.with(&misspelled, name, good[0]);
        let mut sources = Sources::default();
        let file = sources.add("file".into(), text.clone());
        let mut problems = Diagnostics::default();
        reader(file, &text, &mut problems);
        let fact = format!("unknown key `{misspelled}` in {}", mapping.what);
        let problem = problems.iter().find(|it| it.fact == fact).unwrap_or_else(|| panic!("{fact}: {problems:?}"));
        let suggested = format!("did you mean `{name}`?");
        assert!(
            problem.hint.as_ref().is_some_and(|hint| hint.to_string().starts_with(&suggested)),
            "{text}: {problem:?}"
        );
        assert_eq!(problems.iter().count(), 1, "{text}\n{problems:?}");
    }
}
