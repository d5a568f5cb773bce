//! JSON Schema → the part of it that Gemini takes.
//!
//! Requests carry schemas in the fields for JSON Schema (`parametersJsonSchema`, `responseJsonSchema`), which still
//! have limits: a `$ref` may have no neighbours and no cycle in what is required, and only some keywords count. So
//! local references are put in place, what can be said with the known keywords is, and the rest is left out:
//! arguments are checked against the whole schema anyway before a tool runs. The order of keys is kept, because it
//! changes what models write.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Number, Value};

use crate::message::RawJson;

/// References that are put in place at most; beyond that anything is allowed in their place. With the depth it bounds
/// what a schema of references to references can grow to.
const MOST_REFERENCES: usize = 500;

/// How deep schemas may lie in each other.
const DEEPEST: usize = 40;

/// How often a definition may lie within itself: once shows the model what a recursion looks like.
const MOST_RECURSIONS: usize = 2;

/// Keywords whose values are no schemas.
const PLAIN: &[&str] = &[
    "type",
    "format",
    "title",
    "description",
    "default",
    "required",
    "propertyOrdering",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
];

/// The parameters of a tool: an object always.
pub(crate) fn parameters_schema(schema: &RawJson) -> RawJson {
    let mut fields = converted(schema);
    if get(&fields, "type").is_none() {
        fields.insert(0, ("type".to_owned(), Node::text("object")));
    }
    RawJson::of(&Node::Object(fields))
}

/// The schema of an answer.
pub(crate) fn output_schema(schema: &RawJson) -> RawJson {
    RawJson::of(&Node::Object(converted(schema)))
}

/// The schema as Gemini takes it; an empty one if it nests too deep to be read.
fn converted(schema: &RawJson) -> Fields {
    let root = schema.to().unwrap_or_else(|_| Node::Object(Vec::new()));
    Conversion { root: &root, active: Vec::new(), references_left: MOST_REFERENCES }.schema(&root, 0)
}

type Fields = Vec<(String, Node)>;

/// JSON with its keys in order.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Object(Fields),
    Array(Vec<Node>),
    Scalar(Value),
}

impl Node {
    fn text(text: &str) -> Self {
        Self::Scalar(text.into())
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Scalar(value) => value.as_str(),
            Self::Object(_) | Self::Array(_) => None,
        }
    }
}

fn get<'a>(fields: &'a [(String, Node)], name: &str) -> Option<&'a Node> {
    fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
}

fn set(fields: &mut Fields, name: &str, value: Node) {
    match fields.iter_mut().find(|(field, _)| field == name) {
        Some((_, known)) => *known = value,
        None => fields.push((name.to_owned(), value)),
    }
}

struct Conversion<'a> {
    root: &'a Node,
    /// The references that are being put in place.
    active: Vec<&'a str>,
    references_left: usize,
}

impl<'a> Conversion<'a> {
    fn schema(&mut self, schema: &'a Node, depth: usize) -> Fields {
        let Node::Object(fields) = schema else { return Vec::new() }; // `true`: anything
        if depth >= DEEPEST {
            return Vec::new();
        }
        let mut converted = match get(fields, "$ref").and_then(Node::as_text) {
            Some(reference) => self.referenced(reference, depth),
            None => Vec::new(),
        };
        let whole = get(fields, "type").and_then(Node::as_text) == Some("integer");
        for (keyword, value) in fields {
            match (keyword.as_str(), value) {
                ("exclusiveMinimum", Node::Scalar(Value::Number(bound))) => {
                    set_bound(&mut converted, "minimum", bound, whole.then_some(1));
                }
                ("exclusiveMaximum", Node::Scalar(Value::Number(bound))) => {
                    set_bound(&mut converted, "maximum", bound, whole.then_some(-1));
                }
                _ => self.keyword(keyword, value, depth, &mut converted),
            }
        }
        infer_type(&mut converted);
        converted
    }

    fn keyword(&mut self, keyword: &str, value: &'a Node, depth: usize, converted: &mut Fields) {
        match (keyword, value) {
            ("properties", Node::Object(properties)) => {
                let properties = properties.iter().map(|(name, schema)| (name.clone(), self.node(schema, depth)));
                let properties = properties.collect();
                merge(converted, vec![("properties".to_owned(), Node::Object(properties))]);
            }
            ("items", Node::Object(_)) => {
                let items = self.node(value, depth);
                set(converted, "items", items);
            }
            ("prefixItems" | "items", Node::Array(schemas)) => {
                let schemas = self.nodes(schemas, depth);
                set(converted, "prefixItems", schemas);
            }
            ("anyOf" | "oneOf", Node::Array(schemas)) => {
                let schemas = self.nodes(schemas, depth);
                set(converted, "anyOf", schemas);
            }
            ("allOf", Node::Array(schemas)) => {
                for schema in schemas {
                    let part = self.schema(schema, depth + 1);
                    merge(converted, part);
                }
            }
            ("additionalProperties", Node::Scalar(Value::Bool(_))) => set(converted, keyword, value.clone()),
            ("additionalProperties", Node::Object(_)) => {
                let others = self.node(value, depth);
                set(converted, keyword, others);
            }
            ("const", value) => set_choices(converted, std::slice::from_ref(value)),
            ("enum", Node::Array(values)) => set_choices(converted, values),
            ("required", Node::Array(_)) => merge(converted, vec![(keyword.to_owned(), value.clone())]),
            (plain, value) if PLAIN.contains(&plain) => set(converted, plain, value.clone()),
            _ => {} // definitions, conditions, and whatever else is not known there
        }
    }

    fn node(&mut self, schema: &'a Node, depth: usize) -> Node {
        Node::Object(self.schema(schema, depth + 1))
    }

    fn nodes(&mut self, schemas: &'a [Node], depth: usize) -> Node {
        Node::Array(schemas.iter().map(|schema| self.node(schema, depth)).collect())
    }

    fn referenced(&mut self, reference: &'a str, depth: usize) -> Fields {
        let Some(target) = resolve(self.root, reference) else { return Vec::new() };
        let recursions = self.active.iter().filter(|active| **active == reference).count();
        if self.references_left == 0 || recursions >= MOST_RECURSIONS {
            return outline(target);
        }
        self.references_left -= 1;
        self.active.push(reference);
        let fields = self.schema(target, depth + 1);
        self.active.pop();
        fields
    }
}

/// What is left of a definition where it would lie too often in itself.
fn outline(target: &Node) -> Fields {
    let Node::Object(fields) = target else { return Vec::new() };
    fields.iter().filter(|(name, _)| ["type", "title", "description"].contains(&name.as_str())).cloned().collect()
}

/// Follows a pointer into the same document; nothing is ever fetched.
fn resolve<'a>(root: &'a Node, reference: &str) -> Option<&'a Node> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    let mut node = root;
    for token in pointer.strip_prefix('/')?.split('/') {
        let token = token.replace("%24", "$").replace("%25", "%").replace("~1", "/").replace("~0", "~");
        node = match node {
            Node::Object(fields) => get(fields, &token)?,
            Node::Array(nodes) => nodes.get(token.parse::<usize>().ok()?)?,
            Node::Scalar(_) => return None,
        };
    }
    Some(node)
}

/// Adds what `more` demands. Properties and required names are united; of everything else the first word counts.
fn merge(fields: &mut Fields, more: Fields) {
    for (name, value) in more {
        match (fields.iter_mut().find(|(known, _)| *known == name), value) {
            (Some((_, Node::Object(known))), Node::Object(more)) if name == "properties" => unite(known, more),
            (Some((_, Node::Array(known))), Node::Array(more)) if name == "required" => {
                let names: HashSet<String> = known.iter().filter_map(Node::as_text).map(str::to_owned).collect();
                known.extend(more.into_iter().filter(|name| name.as_text().is_some_and(|name| !names.contains(name))));
            }
            (Some(_), _) => {}
            (None, value) => fields.push((name, value)),
        }
    }
}

fn unite(known: &mut Fields, more: Fields) {
    let places: HashMap<String, usize> =
        known.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
    for (name, value) in more {
        match places.get(&name) {
            Some(place) => known[*place].1 = value,
            None => known.push((name, value)),
        }
    }
}

/// Choices are strings and numbers there. A choice of null makes the type nullable; other choices are left open.
fn set_choices(fields: &mut Fields, values: &[Node]) {
    let counts = |value: &&Node| matches!(value, Node::Scalar(Value::String(_) | Value::Number(_)));
    let choices: Vec<Node> = values.iter().filter(counts).cloned().collect();
    if get(fields, "type").is_none()
        && let Some(kind) = common_type(values)
    {
        fields.push(("type".to_owned(), kind));
    }
    let rest_is_null = values.iter().all(|value| counts(&value) || *value == Node::Scalar(Value::Null));
    if !choices.is_empty() && rest_is_null {
        set(fields, "enum", Node::Array(choices));
    }
}

/// The type of all these values, and null if that is one of them.
fn common_type(values: &[Node]) -> Option<Node> {
    let mut kinds: Vec<&str> = Vec::new();
    for value in values {
        let kind = match value {
            Node::Scalar(Value::String(_)) => "string",
            Node::Scalar(Value::Number(number)) if number.is_f64() => "number",
            Node::Scalar(Value::Number(_)) => "integer",
            Node::Scalar(Value::Bool(_)) => "boolean",
            Node::Scalar(_) => "null",
            Node::Array(_) => "array",
            Node::Object(_) => "object",
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    match kinds.as_slice() {
        [] => None,
        [kind] => Some(Node::text(kind)),
        kinds => Some(Node::Array(kinds.iter().map(|kind| Node::text(kind)).collect())),
    }
}

/// An exclusive bound as an inclusive one: exact for whole numbers, else a little too generous.
fn set_bound(fields: &mut Fields, name: &str, bound: &Number, step: Option<i64>) {
    let next = step.and_then(|step| bound.as_i64()?.checked_add(step));
    let bound = next.map_or_else(|| bound.clone(), Number::from);
    if get(fields, name).is_none() {
        fields.push((name.to_owned(), Node::Scalar(Value::Number(bound))));
    }
}

/// Objects and arrays must say that they are.
fn infer_type(fields: &mut Fields) {
    if get(fields, "type").is_some() {
        return;
    }
    let kind = if get(fields, "properties").is_some() {
        "object"
    } else if get(fields, "items").is_some() || get(fields, "prefixItems").is_some() {
        "array"
    } else {
        return;
    };
    fields.insert(0, ("type".to_owned(), Node::text(kind)));
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
            Self::Array(nodes) => nodes.serialize(serializer),
            Self::Scalar(value) => value.serialize(serializer),
        }
    }
}

// The depth is bounded: the JSON parser refuses deeper nesting than 128.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNode;
        impl<'de> Visitor<'de> for AnyNode {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
                let mut all = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    all.push(field);
                }
                Ok(Node::Object(all))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<Node, A::Error> {
                let mut all = Vec::new();
                while let Some(node) = nodes.next_element()? {
                    all.push(node);
                }
                Ok(Node::Array(all))
            }

            fn visit_str<E>(self, text: &str) -> Result<Node, E> {
                Ok(Node::text(text))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
                Ok(Node::Scalar(number.into()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
                Ok(Node::Scalar(number.into()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
                Ok(Node::Scalar(number.into()))
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }
        }
        deserializer.deserialize_any(AnyNode)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn converted(schema: &str) -> String {
        output_schema(&RawJson::parse(schema).unwrap()).get().to_owned()
    }

    #[track_caller]
    fn check(cases: &[(&str, &str)]) {
        for (schema, expected) in cases {
            assert_eq!(converted(schema), *expected, "{schema}");
        }
    }

    #[test]
    fn what_is_known_there_stays_in_its_order() {
        let schema = r#"{"type":"object","title":"T","properties":{"z":{"type":["string","null"],"format":"date","pattern":"^a","default":"a"},"a":{"type":"array","items":{"type":"integer","minimum":1,"maximum":1.5},"minItems":1},"b":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"d"}},"required":["z"],"additionalProperties":false}"#;
        check(&[(schema, schema)]);
    }

    #[test]
    fn what_is_not_known_there_is_left_out_or_said_otherwise() {
        check(&[
            (r#"{"$schema":"s","$id":"i","$comment":"c","examples":[1],"discriminator":{},"not":{}}"#, "{}"),
            (r#"{"oneOf":[{"type":"string"},true]}"#, r#"{"anyOf":[{"type":"string"},{}]}"#),
            (r#"{"const":"a"}"#, r#"{"type":"string","enum":["a"]}"#),
            (r#"{"const":1,"type":"integer"}"#, r#"{"type":"integer","enum":[1]}"#),
            (r#"{"const":true}"#, r#"{"type":"boolean"}"#),
            (r#"{"const":null}"#, r#"{"type":"null"}"#),
            (r#"{"enum":["a",null]}"#, r#"{"type":["string","null"],"enum":["a"]}"#),
            (r#"{"enum":["a",[1]],"type":["string","array"]}"#, r#"{"type":["string","array"]}"#),
            (
                r#"{"exclusiveMinimum":0,"exclusiveMaximum":9,"type":"integer"}"#,
                r#"{"minimum":1,"maximum":8,"type":"integer"}"#,
            ),
            (r#"{"type":"number","exclusiveMinimum":0.5}"#, r#"{"type":"number","minimum":0.5}"#),
            (r#"{"type":"number","exclusiveMinimum":true,"minimum":0}"#, r#"{"type":"number","minimum":0}"#),
            (r#"{"properties":{"a":true}}"#, r#"{"type":"object","properties":{"a":{}}}"#),
            (r#"{"items":[{"type":"string"}]}"#, r#"{"type":"array","prefixItems":[{"type":"string"}]}"#),
            (r#"{"additionalProperties":{"const":2}}"#, r#"{"additionalProperties":{"type":"integer","enum":[2]}}"#),
            ("true", "{}"),
        ]);
    }

    #[test]
    fn all_of_becomes_one() {
        check(&[
            (
                r#"{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b","a"]}],"description":"d"}"#,
                r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"null"}},"required":["a","b"],"description":"d"}"#,
            ),
            (
                r##"{"allOf":[{"$ref":"#/$defs/E"}],"default":"x","$defs":{"E":{"enum":["x","y"]}}}"##,
                r#"{"type":"string","enum":["x","y"],"default":"x"}"#,
            ),
        ]);
    }

    #[test]
    fn references_are_put_in_place_with_their_neighbours() {
        check(&[
            (
                r##"{"type":"object","properties":{"p":{"$ref":"#/$defs/P","description":"own"},"q":{"type":"array","items":{"$ref":"#/definitions/Q%24~1"}}},"$defs":{"P":{"type":"string","description":"theirs","minLength":1}},"definitions":{"Q$/":{"$ref":"#/properties/p"}}}"##,
                r#"{"type":"object","properties":{"p":{"type":"string","description":"own","minLength":1},"q":{"type":"array","items":{"type":"string","description":"own","minLength":1}}}}"#,
            ),
            (
                r##"{"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{}}}}"##,
                r#"{"type":"object","properties":{}}"#,
            ),
            (r#"{"$ref":"https://example.org/s","type":"string"}"#, r#"{"type":"string"}"#),
            (r##"{"$ref":"#/nowhere"}"##, "{}"),
            (r##"{"$ref":"#anchor"}"##, "{}"),
        ]);
    }

    #[test]
    fn a_recursion_is_shown_once_and_outlined_then() {
        let node =
            r##"{"type":"object","description":"n","properties":{"next":{"$ref":"#/$defs/N"}},"required":["next"]}"##;
        let schema = format!(r##"{{"$ref":"#/$defs/N","$defs":{{"N":{node}}}}}"##);
        let level = |next: &str| {
            format!(r#"{{"type":"object","description":"n","properties":{{"next":{next}}},"required":["next"]}}"#)
        };
        assert_eq!(converted(&schema), level(&level(r#"{"type":"object","description":"n"}"#)));
        check(&[
            (r##"{"$ref":"#"}"##, "{}"),
            (r##"{"$ref":"#/$defs/A","$defs":{"A":{"$ref":"#/$defs/B"},"B":{"$ref":"#/$defs/A"}}}"##, "{}"),
        ]);
    }

    #[test]
    fn parameters_are_always_an_object() {
        for (schema, expected) in [
            ("{}", r#"{"type":"object"}"#),
            ("7", r#"{"type":"object"}"#),
            (r#"{"anyOf":[{"type":"object"}]}"#, r#"{"type":"object","anyOf":[{"type":"object"}]}"#),
            (r#"{"properties":{}}"#, r#"{"type":"object","properties":{}}"#),
        ] {
            assert_eq!(parameters_schema(&RawJson::parse(schema).unwrap()).get(), expected);
        }
    }

    #[test]
    fn a_bomb_of_references_stays_small() {
        let definitions = (0..30).map(|n| {
            let next = n + 1;
            format!(r##""d{n}":{{"anyOf":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}}"##)
        });
        let definitions: Vec<String> = definitions.chain([r#""d30":{"type":"string"}"#.to_owned()]).collect();
        let schema = format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{}}}}}"##, definitions.join(","));
        assert!(converted(&schema).len() < 100_000);
        let deep = r#"{"items":"#.repeat(10_000) + "{}" + &"}".repeat(10_000);
        assert_eq!(converted(&deep), "{}");
    }

    proptest! {
        #[test]
        fn any_schema_is_converted_and_has_no_references_left(words in schema_words()) {
            if let Ok(schema) = RawJson::parse(&words) {
                prop_assert!(!converted(schema.get()).contains("$ref\":"));
            }
        }
    }

    /// Schemas that refer to themselves and each other.
    fn schema_words() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(&[
            r##"{"$ref":"#"}"##,
            r##"{"$ref":"#/properties/a"}"##,
            r##"{"$ref":"#/anyOf/0","description":"d"}"##,
            r#"{"const":1}"#,
            r#"{"enum":[null,"a",{}]}"#,
            "false",
            "1e300",
        ]);
        leaf.prop_map(str::to_owned).prop_recursive(4, 40, 3, |inner| {
            let two = (inner.clone(), inner.clone());
            prop_oneof![
                two.clone().prop_map(|(a, b)| format!(r#"{{"properties":{{"a":{a},"b":{b}}},"required":["a"]}}"#)),
                two.clone().prop_map(|(a, b)| format!(r#"{{"anyOf":[{a},{b}]}}"#)),
                two.clone().prop_map(|(a, b)| format!(r#"{{"allOf":[{a},{b}]}}"#)),
                two.prop_map(|(a, b)| format!(r#"{{"items":{a},"additionalProperties":{b}}}"#)),
            ]
        })
    }
}
