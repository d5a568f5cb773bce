//! TOML → the same tree of values with their places that YAML and JSON become, so that all files have the same mistakes told
//! in the same words.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Diagnostics, Located, Span};
use super::tree::{DEEPEST_NESTING, LARGEST_FILE, MappingEntry, Node, NodeKind, Text};

/// Reads a TOML document. Dates are texts.
pub(crate) fn parse_toml(source: Text<'_>, problems: &mut Diagnostics) -> Option<Node> {
    if source.text.len() > LARGEST_FILE {
        problems.push(Diagnostic::error(source.span(0, 0), format!("the file is larger than {LARGEST_FILE} bytes")));
        return None;
    }
    match DeTable::parse(source.text) {
        Ok(table) => {
            let span = source.span(0, source.text.len());
            Some(Node { span, kind: mapping(table.into_inner(), source, 0, problems)? })
        }
        Err(error) => {
            let span = error.span().unwrap_or_default();
            let fact = format!("not valid TOML: {}", error.message().replace('\n', "; "));
            problems.push(Diagnostic::error(source.span(span.start, span.end), fact));
            None
        }
    }
}

fn mapping(table: DeTable<'_>, source: Text<'_>, depth: usize, problems: &mut Diagnostics) -> Option<NodeKind> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let span = place(&key, source);
        let value = node(value, source, depth + 1, problems)?;
        entries.push(MappingEntry { key: Located { span, value: key.into_inner().into_owned() }, value });
    }
    entries.sort_by_key(|entry| entry.key.span.start);
    Some(NodeKind::Map(entries))
}

// Recursion is bounded by `DEEPEST_NESTING`.
fn node(value: Spanned<DeValue<'_>>, source: Text<'_>, depth: usize, problems: &mut Diagnostics) -> Option<Node> {
    let span = place(&value, source);
    if depth > DEEPEST_NESTING {
        problems.push(Diagnostic::error(span, format!("nested more than {DEEPEST_NESTING} deep")));
        return None;
    }
    let kind = match value.into_inner() {
        DeValue::String(text) => NodeKind::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => NodeKind::Integer(number),
            Err(_) => {
                problems.push(Diagnostic::error(span, "the number is too large"));
                return None;
            }
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => NodeKind::Number(number, number.to_string()),
            Ok(_) | Err(_) => {
                problems.push(Diagnostic::error(span, "the number is too large, or none"));
                return None;
            }
        },
        DeValue::Boolean(value) => NodeKind::Bool(value),
        DeValue::Datetime(date) => NodeKind::Text(date.to_string()),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| node(item, source, depth + 1, problems));
            NodeKind::List(items.collect::<Option<_>>()?)
        }
        DeValue::Table(table) => mapping(table, source, depth, problems)?,
    };
    Some(Node { span, kind })
}

fn place<T>(value: &Spanned<T>, source: Text<'_>) -> Span {
    let span = value.span();
    source.span(span.start, span.end)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::syntax::diagnostic::Sources;

    fn read(text: &str) -> Result<String, String> {
        let mut sources = Sources::default();
        let file = sources.add(PathBuf::from("x.toml"), text.to_owned());
        let mut problems = Diagnostics::default();
        let node = parse_toml(Text::whole(file, text), &mut problems);
        node.map(|node| node.to_json()).ok_or_else(|| problems.iter().map(|problem| problem.fact.clone()).collect())
    }

    #[test]
    fn values_become_the_same_tree() {
        let cases = [
            ("b = 1\na = 'x'\n", Ok(r#"{"b":1,"a":"x"}"#)),
            ("[[rule]]\nallow = 'f'\nexpires = 2026-12-16\n[[rule]]\nn = 0x10\n", {
                Ok(r#"{"rule":[{"allow":"f","expires":"2026-12-16"},{"n":16}]}"#)
            }),
            ("a = [1.5, true, { b = [] }]", Ok(r#"{"a":[1.5,true,{"b":[]}]}"#)),
            ("a = 99999999999999999999", Err("the number is too large")),
            ("a = inf", Err("the number is too large, or none")),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert!(read("a = 1\na = 2").unwrap_err().starts_with("not valid TOML: "), "{:?}", read("a = 1\na = 2"));
    }

    #[test]
    fn what_is_nested_without_end_is_refused() {
        let deep = format!("a = {}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(read(&deep).is_err());
    }
}
