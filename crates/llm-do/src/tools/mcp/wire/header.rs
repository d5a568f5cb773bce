//! Headers that repeat what stands in the body of a request, so that whoever passes it on need not read it. Pure.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::escape::visible_start;

/// The revision of a request.
pub const VERSION: &str = "mcp-protocol-version";
/// Its method.
pub const METHOD: &str = "mcp-method";
/// What it is about: a tool, a task.
pub const NAME: &str = "mcp-name";
/// Before the name of a header that repeats an argument.
pub const PARAMETER: &str = "mcp-param-";

/// The key of a schema that asks for such a header.
const ASKED_BY: &str = "x-mcp-header";
const BEFORE: &str = "=?base64?";
const AFTER: &str = "?=";
/// Whole numbers that every reader of JSON has exactly.
const LARGEST_WHOLE: u64 = (1 << 53) - 1;

/// What `Mcp-Name` says of a request with these parameters, before it is encoded.
pub fn name(method: &str, params: &Value) -> Option<String> {
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    params.get(key)?.as_str().map(str::to_owned)
}

/// A value as a header has it: as it is if every program on the way leaves it alone, else in base64.
pub fn encoded(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    let is_marked = value.starts_with(BEFORE) && value.ends_with(AFTER);
    if is_plain && !is_marked && !value.is_empty() && value.trim() == value {
        return value.to_owned();
    }
    format!("{BEFORE}{}{AFTER}", BASE64.encode(value))
}

/// The value that a header has; `None` if it is not encoded as it says.
pub fn decoded(header: &str) -> Option<String> {
    let within = header.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER));
    match within {
        None => Some(header.to_owned()),
        Some(base64) => String::from_utf8(BASE64.decode(base64).ok()?).ok(),
    }
}

/// An argument that a header repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParameter {
    /// The part of the header's name that is its own.
    pub name: String,
    /// Where the argument stands.
    path: Vec<String>,
}

impl HeaderParameter {
    /// All that a schema of arguments asks for. The error says why a tool with this schema is none.
    pub fn all(schema: &Value) -> Result<Vec<Self>, String> {
        let mut found = Vec::new();
        gather(schema, &mut Vec::new(), true, &mut found)?;
        Ok(found)
    }

    /// What the header says of these arguments, encoded; nothing if they do not have it.
    pub fn of(&self, arguments: &Value) -> Option<String> {
        let value = self.path.iter().try_fold(arguments, |value, key| value.get(key))?;
        match value {
            Value::String(text) => Some(encoded(text)),
            Value::Bool(is) => Some(is.to_string()),
            Value::Number(number) => {
                let is_exact = number.as_i64().is_none_or(|whole| whole.unsigned_abs() <= LARGEST_WHOLE);
                is_exact.then(|| number.to_string())
            }
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Whether a header says what stands in the body.
    pub fn fits(&self, arguments: &Value, header: Option<&str>) -> bool {
        let expected = self.of(arguments).and_then(|value| decoded(&value));
        let Some(expected) = expected else { return true };
        let Some(given) = header.and_then(decoded) else { return false };
        let number = |text: &str| text.parse::<f64>().ok();
        given == expected || number(&given).is_some_and(|given| number(&expected) == Some(given))
    }
}

/// Only what stands beneath `properties` alone is always there to be repeated; anywhere else the mark is a mistake.
fn gather(
    schema: &Value,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<HeaderParameter>,
) -> Result<(), String> {
    let Value::Object(keys) = schema else {
        let Value::Array(parts) = schema else { return Ok(()) };
        return parts.iter().try_for_each(|part| gather(part, path, false, found));
    };
    if let Some(mark) = keys.get(ASKED_BY) {
        let place = || {
            path.iter().fold(String::new(), |mut all, key| {
                let _ = write!(all, "{}{}", if all.is_empty() { "" } else { "." }, visible_start(key, 40));
                all
            })
        };
        if !reachable || path.is_empty() {
            return Err(format!("`{ASKED_BY}` stands where no argument is: `{}`", place()));
        }
        let name = mark.as_str().filter(|name| is_token(name));
        let name = name.ok_or_else(|| format!("`{ASKED_BY}` of `{}` is no name of a header", place()))?;
        if !matches!(keys.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
            return Err(format!("`{ASKED_BY}` of `{}` is for texts, whole numbers, and yes or no", place()));
        }
        if found.iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
            return Err(format!("two arguments have the `{ASKED_BY}` `{name}`"));
        }
        found.push(HeaderParameter { name: name.to_owned(), path: path.clone() });
    }
    for (key, value) in keys {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    path.push(name.clone());
                    gather(property, path, reachable, found)?;
                    path.pop();
                }
            }
            // Values, not schemas.
            ("enum" | "const" | "default" | "examples", _) => {}
            (_, value) => {
                path.push(key.clone());
                gather_unreachable(key, value, path, found)?;
                path.pop();
            }
        }
    }
    Ok(())
}

/// Beneath keys whose values are schemas by names, such as `$defs`, the names are no keys of a schema.
fn gather_unreachable(
    key: &str,
    value: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderParameter>,
) -> Result<(), String> {
    const BY_NAME: &[&str] = &["patternProperties", "dependentSchemas", "$defs", "definitions"];
    match value {
        Value::Object(named) if BY_NAME.contains(&key) => {
            named.values().try_for_each(|schema| gather(schema, path, false, found))
        }
        value => gather(value, path, false, found),
    }
}

/// As RFC 9110 has it.
fn is_token(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.len() <= 100 && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_pass_as_they_are_or_in_base64() {
        let cases = [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("", "=?base64??="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ];
        for (value, header) in cases {
            assert_eq!((encoded(value).as_str(), decoded(header).as_deref()), (header, Some(value)));
        }
        for wrong in ["=?base64?x?=", "=?base64?SGk?=", "=?base64?/w==?="] {
            assert_eq!(decoded(wrong), None);
        }
    }

    #[test]
    fn arguments_are_repeated_where_the_schema_says_so() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "x-mcp-header": {"type": "string"},
        }});
        let found = HeaderParameter::all(&schema).unwrap();
        let headers = |arguments: Value| {
            let mut all: Vec<_> =
                found.iter().filter_map(|one| Some((one.name.clone(), one.of(&arguments)?))).collect();
            all.sort();
            all
        };
        let both = headers(json!({"region": "é", "deep": {"n": 7}}));
        assert_eq!(both, [("N".to_owned(), "7".to_owned()), ("Region".to_owned(), "=?base64?w6k=?=".to_owned())]);
        assert_eq!(headers(json!({"region": null, "deep": {"n": 9_007_199_254_740_993_i64}})), []);
        let region = found.iter().find(|one| one.name == "Region").unwrap();
        assert!(region.fits(&json!({}), None) && !region.fits(&json!({"region": "a"}), Some("b")));
        let n = found.iter().find(|one| one.name == "N").unwrap();
        assert!(n.fits(&json!({"deep": {"n": 42}}), Some("42.0")) && !n.fits(&json!({"deep": {"n": 42}}), None));
    }

    #[test]
    fn marks_that_cannot_be_followed_are_mistakes() {
        let property = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
        let cases = [
            property(json!({"type": "string", "x-mcp-header": ""})),
            property(json!({"type": "string", "x-mcp-header": "a b"})),
            property(json!({"type": "string", "x-mcp-header": "a\r\nb"})),
            property(json!({"type": "string", "x-mcp-header": 7})),
            property(json!({"type": "number", "x-mcp-header": "A"})),
            property(json!({"type": "object", "x-mcp-header": "A"})),
            property(json!({"x-mcp-header": "A"})),
            property(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
            property(json!({"anyOf": [{"type": "string", "x-mcp-header": "A"}]})),
            json!({"type": "object", "x-mcp-header": "A"}),
            json!({"type": "object", "$defs": {"d": {"type": "string", "x-mcp-header": "A"}}}),
            json!({"type": "object", "properties": {
                "a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"},
            }}),
        ];
        for schema in cases {
            assert!(HeaderParameter::all(&schema).is_err(), "{schema}");
        }
        assert_eq!(HeaderParameter::all(&property(json!({"enum": [{"x-mcp-header": "A"}]}))), Ok(vec![]));
    }
}
