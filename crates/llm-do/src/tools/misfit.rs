//! Arguments that do not fit a tool: which of them, how, and what would fit. What a model reads of it names the
//! argument and has the schema once, so that it can do better without guessing.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::escape::visible_start;
use crate::message::RawJson;
use crate::syntax::names;

/// Arguments as what a tool takes.
pub(crate) fn parse<T: DeserializeOwned + JsonSchema>(arguments: &RawJson) -> Result<T, String> {
    arguments.to().map_err(|error| {
        let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<T>();
        for name in ["$schema", "title"] {
            schema.remove(name);
        }
        let schema = schema.as_value();
        let found = arguments.to::<Value>().ok().and_then(|value| misfit(schema, schema, &value, &mut Vec::new()));
        let words = found.unwrap_or_else(|| without_place(&error.to_string()).to_owned());
        format!("{words}; the schema is {schema}")
    })
}

/// The words of an error without the place in the text: the arguments are one line that no person wrote, so a place
/// in it does not help the model.
fn without_place(words: &str) -> &str {
    words.split(" at line ").next().unwrap_or(words)
}

/// The first value that is not what its schema says.
fn misfit(root: &Value, schema: &Value, value: &Value, path: &mut Vec<String>) -> Option<String> {
    let target = schema["$ref"].as_str().and_then(|reference| root.pointer(reference.strip_prefix('#')?));
    let schema = target.unwrap_or(schema);
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|expected| is_of(expected, value)) {
        let expected: Vec<&str> = types.iter().map(|kind| words_for(kind)).collect();
        let found = words_for(kind_of(value));
        return Some(format!("{}: expected {}, found {found}", place(path), expected.join(" or ")));
    }
    let too_small = schema["minimum"].as_f64().zip(value.as_f64()).filter(|(least, number)| number < least);
    if let Some((least, _)) = too_small {
        return Some(format!("{}: expected at least {least}, found {value}", place(path)));
    }
    let mut within = |name: String, schema: &Value, value: &Value| {
        path.push(name);
        let found = misfit(root, schema, value, path);
        path.pop();
        found
    };
    match value {
        Value::Object(fields) => {
            let inner = fields.iter().find_map(|(name, value)| {
                let field = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                within(name.clone(), field, value)
            });
            inner.or_else(|| unknown_field(schema, fields, path)).or_else(|| missing_field(schema, fields, path))
        }
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, value)| within(index.to_string(), &schema["items"], value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn unknown_field(schema: &Value, fields: &serde_json::Map<String, Value>, path: &[String]) -> Option<String> {
    let known = schema["properties"].as_object();
    let is_closed = schema["additionalProperties"] == Value::Bool(false);
    let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
    let unknown = fields.keys().find(|name| is_closed && !is_known(name))?;
    let instead = names::instead(unknown, "arguments", known.iter().flat_map(|known| known.keys().map(String::as_str)));
    Some(format!("{} is unknown; {instead}", place_of(path, unknown)))
}

fn missing_field(schema: &Value, fields: &serde_json::Map<String, Value>, path: &[String]) -> Option<String> {
    let mut required = schema["required"].as_array()?.iter().filter_map(Value::as_str);
    let missing = required.find(|name| !fields.contains_key(*name))?;
    Some(format!("{} is missing", place_of(path, missing)))
}

/// As people and models name it.
fn place(path: &[String]) -> String {
    match path {
        [] => "the arguments".to_owned(),
        path => format!("`{}`", visible_start(&path.join("."), 200)),
    }
}

fn place_of(path: &[String], name: &str) -> String {
    let parts: Vec<String> = path.iter().cloned().chain([name.to_owned()]).collect();
    place(&parts)
}

fn is_of(expected: &str, value: &Value) -> bool {
    match expected {
        "integer" => value.is_i64() || value.is_u64(),
        expected => expected == kind_of(value),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn words_for(kind: &str) -> &'static str {
    match kind {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "`true` or `false`",
        "array" => "a list",
        "object" => "an object",
        _ => "nothing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "what is read is not looked at")]
    struct Order {
        path: String,
        #[serde(default)]
        amount: u64,
        note: Option<String>,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "what is read is not looked at")]
    struct Item {
        size: f64,
        wrapped: bool,
    }

    #[test]
    fn the_argument_is_named_and_the_schema_comes_once() {
        for (arguments, expected) in [
            (r#"{"path": ["a"]}"#, "`path`: expected a text, found a list"),
            (r#"{"path": {}}"#, "`path`: expected a text, found an object"),
            (r#"{"path": null}"#, "`path`: expected a text, found nothing"),
            (r#"{"path": "a", "amount": "2"}"#, "`amount`: expected a whole number, found a text"),
            (r#"{"path": "a", "amount": 1.5}"#, "`amount`: expected a whole number, found a number"),
            (r#"{"path": "a", "amount": -1}"#, "`amount`: expected at least 0, found -1"),
            (r#"{"path": "a", "note": 1}"#, "`note`: expected a text or nothing, found a number"),
            (r#"{"path": "a", "items": {}}"#, "`items`: expected a list, found an object"),
            (
                r#"{"path": "a", "items": [{"size": 1, "wrapped": 0}]}"#,
                "`items.0.wrapped`: expected `true` or `false`, found a number",
            ),
            (r#"{"path": "a", "items": [{"size": 1}]}"#, "`items.0.wrapped` is missing"),
            ("{}", "`path` is missing"),
            (r#"{"pth": "a"}"#, "`pth` is unknown; did you mean `path`? arguments: amount, items, note, path"),
            ("[]", "the arguments: expected an object, found a list"),
        ] {
            let words = parse::<Order>(&RawJson::parse(arguments).unwrap()).unwrap_err();
            let (fault, schema) = words.split_once("; the schema is ").unwrap();
            assert_eq!(fault, expected, "{arguments}");
            assert!(serde_json::from_str::<Value>(schema).unwrap()["properties"]["path"].is_object(), "{words}");
        }
    }
}
