//! What is refused about schemas.

use serde_json::Value;

use super::camel;
use crate::protocol::Findings;

/// The fields of the older kind of schema. One more, and the whole request is refused.
const OPENAPI_FIELDS: &[&str] = &[
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "propertyOrdering",
    "required",
    "title",
    "type",
];

pub fn check_openapi(schema: &Value, at: &str, findings: &mut Findings) {
    let Some(fields) = schema.as_object() else {
        return findings.refuse(format!("{at}: a schema is required"));
    };
    for (name, value) in fields {
        match (camel(name).as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, schema) in properties {
                    check_openapi(schema, &format!("{at}.properties.{name}"), findings);
                }
            }
            ("items", schema) => check_openapi(schema, &format!("{at}.items"), findings),
            ("anyOf", Value::Array(schemas)) => {
                for schema in schemas {
                    check_openapi(schema, &format!("{at}.any_of"), findings);
                }
            }
            ("enum", Value::Array(values)) if !values.iter().all(Value::is_string) => {
                findings.refuse(format!("{at}.enum: Invalid value (TYPE_STRING)"));
            }
            ("type", value) if !value.is_string() => {
                findings.refuse(format!("{at}.type: Proto field is not repeating"));
            }
            (known, _) if OPENAPI_FIELDS.contains(&known) => {}
            _ => findings.refuse(format!("Unknown name {name:?} at '{at}': Cannot find field.")),
        }
    }
}

/// A reference leads somewhere in the same schema and stands alone.
pub fn check_json_schema(schema: &Value, at: &str, findings: &mut Findings) {
    check_references(schema, schema, at, findings);
}

fn check_references(schema: &Value, root: &Value, at: &str, findings: &mut Findings) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                let found = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                if found.is_none() {
                    findings.refuse(format!("reference to undefined schema at {at}"));
                }
                if fields.keys().any(|name| !name.starts_with('$') && name != "description" && name != "default") {
                    findings.refuse(format!("$ref {reference:?} was set alongside unsupported fields at {at}"));
                }
            }
            for (name, value) in fields {
                check_references(value, root, &format!("{at}.{name}"), findings);
            }
        }
        Value::Array(values) => {
            for value in values {
                check_references(value, root, at, findings);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
