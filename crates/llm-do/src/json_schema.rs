//! Values against JSON Schemas that come from outside. The validator is large: nothing touches it before such a schema
//! is there.

use serde_json::Value;

use crate::escape::visible_start;

/// Where a value breaks its schema: the place, the value and the rule.
pub fn violation(schema: &Value, value: &Value) -> Option<String> {
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(error) => return Some(format!("the schema cannot be used: {error}")),
    };
    let error = validator.iter_errors(value).next()?;
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { "the answer as a whole".to_owned() } else { format!("`{place}`") };
    Some(format!("{place}: {}", visible_start(&error.to_string(), 300)))
}
