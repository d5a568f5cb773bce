//! The JSON Schema of a table, for editors.

use serde_json::{Map, Value, json};

use super::{Presence, Repeats, Shape, Table};

impl Table {
    /// The JSON Schema of a mapping with these keys, for editors.
    pub(crate) fn schema(&self) -> Value {
        let mut properties = Map::new();
        let mut doubled = Vec::new();
        for key in self.keys {
            let mut schema = key.shape.schema();
            schema.insert("description".into(), key.doc.into());
            properties.insert(key.name.into(), Value::Object(schema.clone()));
            for alias in key.aliases {
                schema.insert("description".into(), format!("another spelling of `{}`", key.name).into());
                properties.insert((*alias).into(), Value::Object(schema.clone()));
            }
            let spellings: Vec<&str> = key.spellings().collect();
            for (index, first) in spellings.iter().enumerate() {
                doubled.extend(spellings[index + 1..].iter().map(|second| json!({"required": [first, second]})));
            }
        }
        let required: Vec<&str> =
            self.keys.iter().filter(|key| key.presence == Presence::Required).map(|key| key.name).collect();
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if !doubled.is_empty() {
            schema["not"] = json!({"anyOf": doubled});
        }
        schema
    }
}

impl Shape {
    fn schema(&self) -> Map<String, Value> {
        let schema = match self {
            Self::Text => json!({"type": "string", "pattern": r"\S"}),
            Self::AnyText => json!({"type": "string"}),
            Self::Name => json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}),
            Self::Variable => json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Constant(constant) => json!({"const": constant}),
            Self::Integer { min } => json!({"type": "integer", "minimum": min}),
            Self::Count { max } => json!({"type": "integer", "minimum": 1, "maximum": max}),
            Self::Number { min, min_included, max } => {
                let bound = if *min_included { "minimum" } else { "exclusiveMinimum" };
                let mut schema = json!({"type": "number", bound: min});
                if max.is_finite() {
                    schema["maximum"] = json!(max);
                }
                schema
            }
            Self::OneOf(words) | Self::OneOfBut { words, .. } => json!({"enum": words}),
            Self::List { of, least, repeats } => {
                let mut schema = json!({"type": "array", "items": of.schema()});
                if *least > 0 {
                    schema["minItems"] = json!(least);
                }
                if *repeats == Repeats::Refused {
                    schema["uniqueItems"] = json!(true);
                }
                schema
            }
            Self::Map { of } => json!({"type": "object", "additionalProperties": of.schema()}),
            Self::Object(table) => table.schema(),
            Self::AnyOf(shapes) => json!({"anyOf": shapes.iter().map(Shape::schema).collect::<Vec<_>>()}),
            Self::JsonObject => json!({"type": "object"}),
            Self::Any => json!({}),
        };
        let Value::Object(schema) = schema else { unreachable!("every schema above is an object") };
        schema
    }
}
