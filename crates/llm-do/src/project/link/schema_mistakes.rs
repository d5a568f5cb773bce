//! Every mistake of a JSON Schema, each with its place and what to write instead. Only a schema that cannot be used gets
//! here.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::escape::visible_start;
use crate::json_schema::{SchemaError, TYPES};
use crate::message::RawJson;
use crate::syntax::names::nearest;
use crate::syntax::tree::Language;

/// The types in the order in which people look for them.
const TYPE_WORDS: &str = "object, array, string, number, integer, boolean, null";

/// One mistake of a schema.
pub(super) struct SchemaMistake {
    /// Where in the schema, as a JSON pointer.
    pub pointer: String,
    pub fact: String,
    pub hint: Option<String>,
}

/// All that is wrong with a schema that was refused for this reason, in the order of their places.
pub(super) fn mistakes(schema: &RawJson, error: &SchemaError, language: Language) -> Vec<SchemaMistake> {
    let told = |error: &SchemaError| match error {
        SchemaError::Invalid { reason, pointer } => SchemaMistake {
            pointer: pointer.clone(),
            fact: format!("not a JSON Schema: {}", visible_start(reason, 300)),
            hint: None,
        },
        SchemaError::NotAnObject => SchemaMistake {
            pointer: "/type".to_owned(),
            fact: error.to_string(),
            hint: Some(format!("write `{}`", language.pair("type", &language.quoted("object")))),
        },
        _ => SchemaMistake { pointer: String::new(), fact: error.to_string(), hint: None },
    };
    // Others say how large it is, or where its references lead: it is not looked at any closer.
    if !matches!(error, SchemaError::Invalid { .. } | SchemaError::NotAnObject) {
        return vec![told(error)];
    }
    let Ok(schema) = schema.to::<Value>() else { return vec![told(error)] };
    let Ok(validator) = jsonschema::meta::validator_for(&schema) else { return vec![told(error)] };
    let mut seen = BTreeSet::new();
    let found = validator.iter_errors(&schema).filter_map(|error| {
        let pointer = error.instance_path().to_string();
        seen.insert(pointer.clone()).then(|| mistake(&schema, pointer, &error.to_string(), language))
    });
    let found: Vec<SchemaMistake> = found.collect();
    if found.is_empty() { vec![told(error)] } else { found }
}

fn mistake(schema: &Value, pointer: String, reason: &str, language: Language) -> SchemaMistake {
    let value = schema.pointer(&pointer);
    let word = value.and_then(Value::as_str);
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    let (fact, hint) = match (parts.as_slice(), word) {
        ([.., "type"] | [.., "type", _], Some(word)) => {
            let near = nearest(word, TYPES.iter().copied());
            let hint = near.map_or_else(
                || format!("write `{}`", language.quoted("string")),
                |near| format!("did you mean `{near}`?"),
            );
            (format!("`{}` is no type: {TYPE_WORDS}", visible_start(word, 40)), Some(hint))
        }
        ([.., "properties", property, "required"], _) if value.is_some_and(Value::is_boolean) => {
            let pair = language.pair("required", &format!("[{}]", language.quoted(property)));
            ("`required` is a list beside `properties`".to_owned(), Some(format!("write `{pair}` there")))
        }
        ([.., "required"], Some(word)) => {
            let list = language.pair("required", &format!("[{}]", language.quoted(word)));
            ("`required` is a list".to_owned(), Some(format!("write `{list}`")))
        }
        _ => (format!("not a JSON Schema: {}", visible_start(reason, 300)), None),
    };
    SchemaMistake { pointer, fact, hint }
}
