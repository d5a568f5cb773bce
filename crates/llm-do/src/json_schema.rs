//! JSON Schemas that come from outside: judged once, compiled within bounds, and values held against them. The validator
//! is large: nothing touches it before such a schema is there.

mod parts;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::escape::visible_start;
use crate::judgement;
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
    #[error("a JSON Schema with a pattern of more than {} bytes", parts::LONGEST_PATTERN)]
    LongPattern,
    #[error("a JSON Schema that unfolds to more than {} parts", parts::MOST_PARTS)]
    TooLarge,
    #[error("a JSON Schema whose references lie too deep in each other")]
    TooDeep,
    #[error("a JSON Schema that refers to itself without going into the value")]
    Circular,
    #[error("the reference `{0}` leads nowhere")]
    Nowhere(String),
    #[error("a JSON Schema with references inside of a part that has its own `$id`")]
    Rebased,
    #[error("an input schema must describe an object")]
    NotAnObject,
}

fn at(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" (at `{pointer}`)") }
}

/// Whether a schema is for what an agent takes or for what it gives: an input must be an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What an agent is given.
    Input,
    /// What an agent answers.
    Output,
}

/// Looks at a schema so closely that it cannot fail later, in the middle of a run. Its size comes first.
pub(crate) fn judge(schema: &RawJson, direction: Direction) -> Result<Value, SchemaError> {
    let value = sized(schema, direction)?;
    if !is_plain(&value) {
        validator(&value)?;
    }
    Ok(value)
}

/// A schema that is small enough for values to be held against it; it is not looked at any closer.
pub fn sized(schema: &RawJson, direction: Direction) -> Result<Value, SchemaError> {
    let value: Value =
        schema.to().map_err(|error| SchemaError::Invalid { reason: error.to_string(), pointer: String::new() })?;
    if let Some(reference) = remote_reference(&value) {
        return Err(SchemaError::Remote(reference));
    }
    if direction == Direction::Input && !describes_object(&value) {
        return Err(SchemaError::NotAnObject);
    }
    parts::count(&value)?;
    Ok(value)
}

/// Whether a schema is certainly one, because it says only what most of them say, and says it rightly. The validator,
/// which has to make itself one of the schema of all schemas first, is then asked only about values.
fn is_plain(schema: &Value) -> bool {
    let all_plain = |schemas: &Vec<Value>| !schemas.is_empty() && schemas.iter().all(is_plain);
    // What starts with `$` may mean something to the validator, wherever it stands.
    let is_field = |(name, field): (&String, &Value)| !name.starts_with('$') && is_plain(field);
    let says_rightly = |(key, value): (&String, &Value)| match key.as_str() {
        "type" => value.as_str().is_some_and(|word| TYPES.contains(&word)),
        "title" | "description" => value.is_string(),
        "default" | "const" => !value.is_object() && !value.is_array(),
        "enum" => value.as_array().is_some_and(|words| words.iter().all(Value::is_string)),
        "required" => value.as_array().is_some_and(|names| are_distinct_texts(names)),
        "properties" => value.as_object().is_some_and(|fields| fields.iter().all(is_field)),
        "items" | "additionalProperties" => is_plain(value),
        "anyOf" | "oneOf" | "allOf" => value.as_array().is_some_and(all_plain),
        "minimum" | "maximum" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" => value.is_u64(),
        _ => false,
    };
    match schema {
        Value::Bool(_) => true,
        Value::Object(schema) => schema.iter().all(says_rightly),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

pub(crate) const TYPES: &[&str] = &["array", "boolean", "integer", "null", "number", "object", "string"];

fn are_distinct_texts(texts: &[Value]) -> bool {
    let mut seen = BTreeSet::new();
    texts.iter().all(|text| text.as_str().is_some_and(|text| seen.insert(text)))
}

/// More patterns than people write into one schema.
const MOST_PATTERNS: usize = 1_000;
/// What all patterns of a schema may take together when compiled, and one of them at most.
const ALL_PATTERNS_BYTES: usize = 64 * 1024 * 1024;
const ONE_PATTERN_BYTES: usize = 10 * 1024 * 1024;
/// How often a pattern may take back what it tried, each time that it is held against a text.
const MOST_BACKTRACKS: usize = 100_000;

/// Compiles a schema within bounds: a short pattern (`(a{1,90}){1,90}`) can be large, and a schema can have many.
fn validator(schema: &Value) -> Result<jsonschema::Validator, SchemaError> {
    let patterns = count_patterns(schema);
    if patterns > MOST_PATTERNS {
        return Err(SchemaError::TooManyPatterns);
    }
    let largest = (ALL_PATTERNS_BYTES / patterns.max(1)).min(ONE_PATTERN_BYTES);
    let options = jsonschema::PatternOptions::fancy_regex().size_limit(largest).backtrack_limit(MOST_BACKTRACKS);
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

/// Where a value breaks its schema: the place, the value and the rule. What is small is judged here and now.
pub(crate) async fn violation(schema: &Value, value: &Value) -> Option<String> {
    let parts = match parts::count(schema) {
        Ok(parts) => parts,
        Err(error) => return Some(format!("the schema cannot be used: {error}")),
    };
    let size = size(value);
    if size > judgement::LARGEST_VALUE {
        return Some(format!("more than {} MiB are not judged", judgement::LARGEST_VALUE >> 20));
    }
    let work = parts.saturating_mul(size as u64);
    if size < judgement::SMALL_VALUE && work < SMALL_WORK && is_plain(schema) {
        return found(schema, value);
    }
    let (schema, value) = (schema.clone(), value.clone());
    let judged = judgement::apart(move || {
        if parts::is_feasible(&schema, &value) { found(&schema, &value) } else { Some(TOO_MUCH.to_owned()) }
    });
    judged.await.unwrap_or_else(|unjudged| Some(format!("it cannot be judged: {unjudged}")))
}

/// Whether a text has a part that a pattern describes. An error says why the pattern cannot be used.
#[cfg(feature = "front-end")]
pub(crate) fn finds(pattern: &str, text: &str) -> Result<bool, SchemaError> {
    let schema = serde_json::json!({ "pattern": pattern });
    parts::count(&schema)?;
    Ok(validator(&schema)?.is_valid(&Value::from(text)))
}

/// Parts of the schema times bytes of the value: some milliseconds' worth.
const SMALL_WORK: u64 = 16 * 1024 * 1024;
const TOO_MUCH: &str = "its parts would have to be held against the schema too often";

fn found(schema: &Value, value: &Value) -> Option<String> {
    let validator = match validator(schema) {
        Ok(validator) => validator,
        Err(error) => return Some(format!("the schema cannot be used: {error}")),
    };
    let error = validator.iter_errors(value).next()?;
    let place = error.instance_path().to_string();
    let fact = match error.kind() {
        jsonschema::error::ValidationErrorKind::Required { property: Value::String(name) } => {
            let near = value.pointer(&place).and_then(|object| near_field(object, name));
            let near = near.map(|near| format!(" (`{}`?)", visible_start(near, 60))).unwrap_or_default();
            format!("`{}` is missing{near}", visible_start(name, 60))
        }
        _ => visible_start(&error.to_string(), 300).into_owned(),
    };
    Some(if place.is_empty() { fact } else { format!("`{place}`: {fact}") })
}

/// The field of an object that was probably meant by one that is missing.
fn near_field<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let fields = object.as_object()?.keys().map(String::as_str);
    let likeness = |field: &str| strsim::jaro_winkler(&field.to_lowercase(), &name.to_lowercase());
    fields.filter(|field| likeness(field) > 0.8).max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// About as many bytes as it has as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 2,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 2 + fields.iter().map(|(name, value)| name.len() + 4 + size(value)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn what_most_schemas_say_is_known_to_be_right() {
        let plain = [
            "true",
            "{}",
            r#"{"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}"#,
            r#"{"anyOf": [{"type": "array", "items": {"enum": ["a"]}}, {"minimum": 1.5}], "description": "x"}"#,
        ];
        let others = [
            "null",
            r#"{"type": "strng"}"#,
            r#"{"type": ["string"]}"#,
            r#"{"required": ["a", "a"]}"#,
            r#"{"properties": {"a": {"pattern": "("}}}"#,
            r#"{"properties": {"$id": true}}"#,
            r##"{"$ref": "#/$defs/x"}"##,
            r#"{"anyOf": []}"#,
            r#"{"minLength": -1}"#,
            r#"{"default": {"$id": 1}}"#,
        ];
        for (schemas, expected) in [(&plain[..], true), (&others[..], false)] {
            for schema in schemas {
                assert_eq!(is_plain(&serde_json::from_str(schema).unwrap()), expected, "{schema}");
            }
        }
    }

    /// Schemas made of what is judged without the validator, now and then wrongly.
    fn schemas() -> impl Strategy<Value = Value> {
        use prop::collection::{btree_map, vec};
        use prop::sample::select;
        any::<bool>().prop_map(Value::from).prop_recursive(4, 40, 4, |inner| {
            let word = || "[a-c$]{0,2}".prop_map(Value::from);
            let fields = btree_map("[a-c$]{1,2}", inner.clone(), 0..3);
            let fields = fields.prop_map(|fields| Value::Object(fields.into_iter().collect()));
            let numeric = ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"];
            let part = prop_oneof![
                (Just("type"), select(TYPES).prop_map(Value::from)),
                (select(vec!["title", "description", "default", "const"]), word()),
                (select(vec!["required", "enum"]), vec(word(), 0..3).prop_map(Value::from)),
                (Just("properties"), fields),
                (select(vec!["items", "additionalProperties"]), inner.clone()),
                (select(vec!["anyOf", "oneOf", "allOf"]), vec(inner, 0..3).prop_map(Value::from)),
                (select(numeric.to_vec()), (-1_i8..9).prop_map(Value::from)),
            ];
            let object =
                |parts: Vec<(&'static str, Value)>| parts.into_iter().map(|(key, value)| (key.to_owned(), value));
            vec(part, 0..4).prop_map(move |parts| Value::Object(object(parts).collect()))
        })
    }

    proptest! {
        #[test]
        fn the_validator_takes_whatever_is_known_to_be_right(schema in schemas()) {
            prop_assert!(!is_plain(&schema) || validator(&schema).is_ok(), "{}", schema);
        }
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
