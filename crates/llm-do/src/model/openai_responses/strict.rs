//! Output schemas that the provider can enforce. It knows a part of JSON Schema only: every object is closed and all
//! of its properties are required, and of the other keywords only some are known.
//!
//! A schema is rewritten only so that what the provider then lets through has the shape that was asked for: objects
//! are closed, and a property that may be null is required. Constraints that it does not know are told in the
//! description instead; the answer is validated here anyway. What would change its meaning is not done: a schema with
//! optional properties that may not be null is sent as it is, as a hint.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::message::RawJson;

/// The schema in the form that the provider enforces; none if there is no such form.
pub(crate) fn enforceable(schema: &RawJson) -> Option<RawJson> {
    // The parser of plain values refuses deep nesting, which bounds the recursion below.
    schema.to::<Value>().ok()?;
    if !is_object(schema) {
        return None;
    }
    strict(schema)
}

/// Whether the schema says at its root that the answer is an object: the provider takes no other.
pub(crate) fn is_object(schema: &RawJson) -> bool {
    #[derive(Deserialize)]
    struct Root {
        r#type: String,
    }
    schema.to::<Root>().is_ok_and(|root| root.r#type == "object")
}

/// An object with its keys in their order, which the model follows when it writes.
struct Pairs(Vec<(String, RawJson)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = fields.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Pairs {
    fn of(json: &RawJson) -> Option<Self> {
        json.to().ok()
    }

    fn get(&self, name: &str) -> Option<&RawJson> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    fn set(&mut self, name: &str, value: RawJson) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn json(&self) -> RawJson {
        let fields: Vec<String> =
            self.0.iter().map(|(key, value)| format!("{}:{}", RawJson::of(key).get(), value.get())).collect();
        RawJson::from_valid(format!("{{{}}}", fields.join(",")))
    }

    fn try_map(self, change: impl Fn(&RawJson) -> Option<RawJson>) -> Option<RawJson> {
        let changed = self.0.into_iter().map(|(key, value)| Some((key, change(&value)?)));
        Some(Self(changed.collect::<Option<_>>()?).json())
    }
}

fn strict(schema: &RawJson) -> Option<RawJson> {
    let mut kept = Pairs(Vec::new());
    let mut told = Vec::new();
    let keywords = Pairs::of(schema)?;
    for (keyword, value) in &keywords.0 {
        match keyword.as_str() {
            "type" | "enum" | "const" | "$ref" | "description" | "title" | "multipleOf" | "minimum" | "maximum"
            | "exclusiveMinimum" | "exclusiveMaximum" | "minItems" | "maxItems" => kept.set(keyword, value.clone()),
            "properties" | "$defs" | "definitions" => kept.set(keyword, Pairs::of(value)?.try_map(strict)?),
            "items" => kept.set(keyword, strict(value)?),
            "anyOf" | "oneOf" if kept.get("anyOf").is_none() => kept.set("anyOf", all_strict(value)?),
            // Of one alternative, "all" means the same as "any".
            "allOf" if kept.get("anyOf").is_none() && value.to::<Vec<Value>>().is_ok_and(|all| all.len() == 1) => {
                kept.set("anyOf", all_strict(value)?);
            }
            "format" if is_known_format(value) => kept.set(keyword, value.clone()),
            "pattern" if !value.get().contains("(?") => kept.set(keyword, value.clone()),
            "format" | "pattern" | "minLength" | "maxLength" | "uniqueItems" => {
                told.push(format!("{keyword}: {}", value.get()));
            }
            // Notes that say nothing about the answer, and what `close` writes anew.
            "$schema"
            | "$id"
            | "$comment"
            | "default"
            | "examples"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
            | "required"
            | "additionalProperties" => {}
            _ => return None,
        }
    }
    let says_what_it_is = ["type", "anyOf", "$ref"].iter().any(|keyword| kept.get(keyword).is_some());
    if !says_what_it_is {
        return None;
    }
    tell(&told, &mut kept)?;
    close(&keywords, &mut kept)?;
    stand_alone(&mut kept)?;
    Some(kept.json())
}

/// A reference may have no other keyword beside it: then it becomes the only alternative.
fn stand_alone(kept: &mut Pairs) -> Option<()> {
    if kept.0.len() == 1 {
        return Some(());
    }
    let has_alternatives = kept.get("anyOf").is_some();
    let Some((keyword, value)) = kept.0.iter_mut().find(|(keyword, _)| keyword == "$ref") else { return Some(()) };
    if has_alternatives {
        return None;
    }
    "anyOf".clone_into(keyword);
    *value = RawJson::from_valid(format!(r#"[{{"$ref":{}}}]"#, value.get()));
    Some(())
}

fn all_strict(schemas: &RawJson) -> Option<RawJson> {
    let schemas: Vec<RawJson> = schemas.to().ok()?;
    let strict: Option<Vec<RawJson>> = schemas.iter().map(strict).collect();
    Some(RawJson::of(&strict?))
}

fn is_known_format(format: &RawJson) -> bool {
    const KNOWN: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
    format.to::<String>().is_ok_and(|format| KNOWN.contains(&format.as_str()))
}

/// Puts constraints into words.
fn tell(told: &[String], kept: &mut Pairs) -> Option<()> {
    if told.is_empty() {
        return Some(());
    }
    let description: Option<String> = kept.get("description").map(RawJson::to).transpose().ok()?;
    let words = description.into_iter().chain([format!("({})", told.join(", "))]).collect::<Vec<_>>().join(" ");
    kept.set("description", RawJson::of(&words));
    Some(())
}

/// An object takes no other properties, and requires all of its own.
fn close(original: &Pairs, kept: &mut Pairs) -> Option<()> {
    let properties = original.get("properties").map_or(Some(Pairs(Vec::new())), Pairs::of)?;
    let says_object = original.get("type").is_some_and(|kind| names(kind).iter().any(|name| name == "object"));
    if !says_object && properties.0.is_empty() {
        return Some(());
    }
    let closed = match original.get("additionalProperties").map(RawJson::get) {
        Some(value) => value == "false",
        // Without properties it takes anything, and closing it would leave nothing.
        None => !properties.0.is_empty(),
    };
    let required = original.get("required").map_or_else(Vec::new, names);
    let complete =
        properties.0.iter().all(|(name, property)| required.contains(name) || may_be_null(property).unwrap_or(false));
    if !closed || !complete {
        return None;
    }
    let all: Vec<&String> = properties.0.iter().map(|(name, _)| name).collect();
    kept.set("properties", kept.get("properties").cloned().unwrap_or_else(|| RawJson::from_valid("{}".to_owned())));
    kept.set("required", RawJson::of(&all));
    kept.set("additionalProperties", RawJson::from_valid("false".to_owned()));
    Some(())
}

/// One name or a list of names.
fn names(json: &RawJson) -> Vec<String> {
    json.to::<String>().map(|name| vec![name]).or_else(|_| json.to()).unwrap_or_default()
}

fn may_be_null(schema: &RawJson) -> Option<bool> {
    let keywords = Pairs::of(schema)?;
    let says_null = |kind: &RawJson| names(kind).iter().any(|name| name == "null");
    if keywords.get("type").is_some_and(says_null) {
        // A list of values may still exclude it.
        let values: Option<Vec<Value>> = keywords.get("enum").and_then(|values| values.to().ok());
        return Some(values.is_none_or(|values| values.contains(&Value::Null)));
    }
    let alternatives: Vec<RawJson> = keywords.get("anyOf").or_else(|| keywords.get("oneOf"))?.to().ok()?;
    Some(alternatives.iter().any(|alternative| may_be_null(alternative).unwrap_or(false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::content::{RequiredProperties, is_strict};
    use crate::model::fixtures::json;

    #[track_caller]
    fn check(schema: &str, expected: Option<&str>) {
        let strict = enforceable(&json(schema));
        assert_eq!(strict.as_ref().map(RawJson::get), expected, "{schema}");
        assert!(strict.is_none_or(|strict| is_strict(&strict, RequiredProperties::All)), "{schema}");
    }

    /// A schema of one required property.
    fn of(property: &str) -> String {
        format!(r#"{{"type":"object","properties":{{"a":{property}}},"required":["a"],"additionalProperties":false}}"#)
    }

    #[test]
    fn a_schema_that_is_strict_stays_as_it_is() {
        let properties = [
            r#"{"type":"string","description":"d","enum":["y","x"]}"#,
            r##"{"type":"array","items":{"$ref":"#/$defs/b"},"minItems":1}"##,
            r#"{"anyOf":[{"type":"integer","minimum":0},{"type":"null"}]}"#,
            r#"{"type":"string","format":"date","pattern":"^[0-9-]+$"}"#,
        ];
        for property in properties {
            let schema = of(property);
            check(&schema, Some(&schema));
        }
    }

    #[test]
    fn objects_are_closed_and_what_may_be_null_is_required_in_the_order_of_properties() {
        check(
            r##"{"$schema":"s","type":"object","properties":{"z":{"type":"string"},"b":{"type":["string","null"],"default":null},
                "a":{"anyOf":[{"$ref":"#/$defs/c"},{"type":"null"}]}},"required":["z"],
                "$defs":{"c":{"type":"object","properties":{"d":{"type":"number"}},"required":["d"]}}}"##,
            Some(concat!(
                r#"{"type":"object","properties":{"z":{"type":"string"},"b":{"type":["string","null"]},"#,
                r##""a":{"anyOf":[{"$ref":"#/$defs/c"},{"type":"null"}]}},"##,
                r#""$defs":{"c":{"type":"object","properties":{"d":{"type":"number"}},"required":["d"],"additionalProperties":false}},"#,
                r#""required":["z","b","a"],"additionalProperties":false}"#,
            )),
        );
    }

    #[test]
    fn constraints_that_the_provider_does_not_know_are_told_in_words() {
        let cases = [
            (r#"{"type":"string","minLength":1}"#, r#"{"type":"string","description":"(minLength: 1)"}"#),
            (
                r#"{"type":"string","description":"A link.","format":"uri","maxLength":9}"#,
                r#"{"type":"string","description":"A link. (format: \"uri\", maxLength: 9)"}"#,
            ),
            (r#"{"type":"string","pattern":"(?=x)"}"#, r#"{"type":"string","description":"(pattern: \"(?=x)\")"}"#),
            (r#"{"oneOf":[{"type":"string"}]}"#, r#"{"anyOf":[{"type":"string"}]}"#),
            (r##"{"allOf":[{"$ref":"#/$defs/b"}]}"##, r##"{"anyOf":[{"$ref":"#/$defs/b"}]}"##),
            (
                r##"{"$ref":"#/$defs/b","description":"d","default":1}"##,
                r##"{"anyOf":[{"$ref":"#/$defs/b"}],"description":"d"}"##,
            ),
            (
                r#"{"type":"object","additionalProperties":false}"#,
                r#"{"type":"object","properties":{},"required":[],"additionalProperties":false}"#,
            ),
        ];
        for (property, expected) in cases {
            check(&of(property), Some(&of(expected)));
        }
    }

    #[test]
    fn what_would_lose_its_meaning_is_not_rewritten() {
        let properties = [
            "{}",
            "true",
            r#"{"type":"object"}"#,
            r#"{"type":"object","properties":{"b":{"type":"string"}}}"#,
            r#"{"type":"object","properties":{"b":{"type":["string","null"],"enum":["x"]}}}"#,
            r#"{"type":"object","properties":{},"additionalProperties":{"type":"string"}}"#,
            r#"{"type":"object","properties":{"b":{"type":"null"}},"additionalProperties":true}"#,
            r#"{"type":"string","not":{"const":"x"}}"#,
            r#"{"allOf":[{"type":"string"},{"type":"string"}]}"#,
            r#"{"type":"array","prefixItems":[{"type":"string"}]}"#,
        ];
        for property in properties {
            check(&of(property), None);
        }
        for schema in [r#"{"type":"array","items":{"type":"string"}}"#, r#"{"anyOf":[{"type":"null"}]}"#, "7"] {
            check(schema, None);
        }
        let deep = format!("{}{{}}{}", r#"{"type":"object","items":"#.repeat(200), "}".repeat(200));
        check(&deep, None);
    }
}
