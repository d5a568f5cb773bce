//! JSON Schemas that come from outside: judged once, compiled within bounds, and values held against them. The validator
//! is large: nothing touches it before such a schema is there.

use serde_json::{Map, Value};

use crate::escape::visible_start;
use crate::message::RawJson;

/// Why a JSON Schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("not a JSON Schema: {reason}{}", at(.pointer))]
    Invalid { reason: String, pointer: String },
    #[error("the reference `{0}` leaves the schema")]
    Remote(String),
    #[error("a JSON Schema with more than {MOST_PATTERNS} patterns")]
    TooManyPatterns,
    #[error("an input schema must describe an object")]
    NotAnObject,
}

fn at(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" (at `{pointer}`)") }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Input,
    Output,
}

/// Compiles a schema so that it cannot fail later, in the middle of a run.
pub fn judge(schema: &RawJson, direction: Direction) -> Result<Value, SchemaError> {
    let value: Value =
        schema.to().map_err(|error| SchemaError::Invalid { reason: error.to_string(), pointer: String::new() })?;
    if let Some(reference) = remote_reference(&value) {
        return Err(SchemaError::Remote(reference));
    }
    if direction == Direction::Input && !describes_object(&value) {
        return Err(SchemaError::NotAnObject);
    }
    validator(&value)?;
    Ok(value)
}

/// More patterns than anybody writes into one schema.
const MOST_PATTERNS: usize = 1_000;
/// What all patterns of a schema may take together when compiled, and one of them at most.
const ALL_PATTERNS_BYTES: usize = 64 * 1024 * 1024;
const ONE_PATTERN_BYTES: usize = 10 * 1024 * 1024;

/// Compiles a schema within bounds: a short pattern (`(a{1,90}){1,90}`) can be large, and a schema can have many.
fn validator(schema: &Value) -> Result<jsonschema::Validator, SchemaError> {
    let patterns = count_patterns(schema);
    if patterns > MOST_PATTERNS {
        return Err(SchemaError::TooManyPatterns);
    }
    let largest = (ALL_PATTERNS_BYTES / patterns.max(1)).min(ONE_PATTERN_BYTES);
    let options = jsonschema::PatternOptions::fancy_regex().size_limit(largest);
    jsonschema::options()
        .with_pattern_options(options)
        .build(schema)
        .map_err(|error| SchemaError::Invalid { reason: error.to_string(), pointer: error.instance_path().to_string() })
}

/// At least as many as there are: a property may have one of these names.
fn count_patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => {
            let named = map.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
            usize::from(map.contains_key("pattern")) + named + map.values().map(count_patterns).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(count_patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Tools take objects: a schema that says otherwise could never be satisfied.
fn describes_object(schema: &Value) -> bool {
    match &schema["type"] {
        Value::String(word) => word == "object",
        Value::Null => true,
        _ => false,
    }
}

/// Only references into the schema itself are followed: no file and no network is read for one.
fn remote_reference(schema: &Value) -> Option<String> {
    match schema {
        Value::Object(map) => {
            let own = ["$ref", "$dynamicRef"].iter().find_map(|key| map.get(*key)?.as_str());
            let remote = own.filter(|reference| !reference.starts_with('#')).map(str::to_owned);
            remote.or_else(|| map.values().find_map(remote_reference))
        }
        Value::Array(items) => items.iter().find_map(remote_reference),
        _ => None,
    }
}

/// Where a value breaks its schema: the place, the value and the rule.
pub fn violation(schema: &Value, value: &Value) -> Option<String> {
    let validator = match validator(schema) {
        Ok(validator) => validator,
        Err(error) => return Some(format!("the schema cannot be used: {error}")),
    };
    let error = validator.iter_errors(value).next()?;
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { "the value as a whole".to_owned() } else { format!("`{place}`") };
    Some(format!("{place}: {}", visible_start(&error.to_string(), 300)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(schema: &str, direction: Direction) -> Result<(), String> {
        judge(&RawJson::parse(schema).unwrap(), direction).map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_project_cannot_bring_a_schema_that_fails_later() {
        let good = [r#"{"type": "object"}"#, r##"{"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}"##];
        for schema in good {
            assert_eq!(judged(schema, Direction::Input), Ok(()), "{schema}");
        }
        let bad = [
            (r#"{"type": "objekt"}"#, "an input schema must describe an object"),
            (r#"{"type": "array"}"#, "an input schema must describe an object"),
            (r#"{"$ref": "http://example.com/s"}"#, "the reference `http://example.com/s` leaves the schema"),
            (r#"{"items": {"$ref": "file:///etc/passwd"}}"#, "the reference `file:///etc/passwd` leaves the schema"),
        ];
        for (schema, message) in bad {
            assert_eq!(judged(schema, Direction::Input), Err(message.to_owned()));
        }
        let invalid = [r#"{"properties": {"a": {"type": "strng"}}}"#, r#"{"required": "a"}"#, r#"{"pattern": "("}"#];
        for schema in invalid {
            let error = judged(schema, Direction::Output).unwrap_err();
            assert!(error.starts_with("not a JSON Schema: "), "{error}");
        }
        assert_eq!(judged(r#"{"type": "array"}"#, Direction::Output), Ok(()));
    }

    #[test]
    fn many_and_large_patterns_are_refused() {
        let schema = |count: usize, pattern: &str| {
            let properties: Map<String, Value> =
                (0..count).map(|index| (format!("p{index}"), serde_json::json!({"pattern": pattern}))).collect();
            judged(&serde_json::json!({"properties": properties}).to_string(), Direction::Output)
        };
        assert_eq!(schema(1_000, "^[a-z]{1,9}$"), Ok(()));
        assert_eq!(schema(1_001, "a"), Err("a JSON Schema with more than 1000 patterns".to_owned()));
        assert_eq!(schema(1, "(a{1,90}){1,90}"), Ok(()));
        assert!(schema(500, "(a{1,90}){1,90}").unwrap_err().starts_with("not a JSON Schema: "));
    }
}
