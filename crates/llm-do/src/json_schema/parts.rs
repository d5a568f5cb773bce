//! How large a schema is once its references are put in their places, and how much work it is to hold a value against
//! it. Counted part by part and each part once, so that a page of references to references costs no more than it is
//! long. Pure.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::SchemaError;

/// More than any schema that people or programs write unfolds to.
pub(crate) const MOST_PARTS: u64 = 100_000;
/// How deep parts may lie in each other that look at one and the same part of a value. With the depth of a value it
/// bounds how deep a judgement goes.
const DEEPEST: u32 = 128;
pub(crate) const LONGEST_PATTERN: usize = 4 * 1024;
/// Parts of a schema held against parts of a value, one by one: some seconds' worth.
const MOST_STEPS: u64 = 1_000_000_000;
/// How many pairs of them are looked at to count the steps, and how many are kept in mind.
const MOST_PAIRS: u64 = 4_000_000;
const MOST_KNOWN: usize = 1_000_000;

/// How many parts a schema has with its references in their places. A reference back to where it stands is one part.
pub(crate) fn count(schema: &Value) -> Result<u64, SchemaError> {
    check_patterns(schema)?;
    check_bases(schema, true)?;
    let mut unfolding = Unfolding { parts: Parts::of(schema), whole: HashMap::new(), in_place: HashMap::new() };
    unfolding.whole(schema)
}

/// By the place of a part in memory: nothing moves while it is counted.
type Address = *const Value;

struct Unfolding<'a> {
    parts: Parts<'a>,
    /// `None` while it is being counted.
    whole: HashMap<Address, Option<u64>>,
    in_place: HashMap<Address, Option<Stack>>,
}

/// Parts that look at one and the same part of a value: how many, and how deep in each other.
#[derive(Clone, Copy)]
struct Stack {
    parts: u64,
    depth: u32,
}

impl<'a> Unfolding<'a> {
    fn whole(&mut self, schema: &'a Value) -> Result<u64, SchemaError> {
        let Value::Object(keywords) = schema else { return Ok(1) };
        match self.whole.get(&std::ptr::from_ref(schema)) {
            Some(known) => return Ok(known.unwrap_or(1)),
            None => self.whole.insert(schema, None),
        };
        self.in_place(schema, 1)?;
        let mut parts = 1 + words(keywords);
        for (_, inner) in self.parts.inside(schema, keywords)?.iter() {
            let inner = deeper(|| self.whole(inner))?;
            parts = parts.saturating_add(inner);
        }
        self.whole.insert(schema, Some(parts));
        if parts > MOST_PARTS { Err(SchemaError::TooLarge) } else { Ok(parts) }
    }

    fn in_place(&mut self, schema: &'a Value, depth: u32) -> Result<Stack, SchemaError> {
        let Value::Object(keywords) = schema else { return Ok(Stack { parts: 1, depth: 1 }) };
        match self.in_place.get(&std::ptr::from_ref(schema)) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Err(SchemaError::Circular),
            None => self.in_place.insert(schema, None),
        };
        let mut stack = Stack { parts: 1, depth: 1 };
        for (_, inner) in self.parts.inside(schema, keywords)?.iter().filter(|(step, _)| *step == SchemaStep::InPlace) {
            if depth >= DEEPEST {
                return Err(SchemaError::TooDeep);
            }
            let inner = self.in_place(inner, depth + 1)?;
            stack.parts = stack.parts.saturating_add(inner.parts);
            stack.depth = stack.depth.max(inner.depth + 1);
        }
        stack.parts = stack.parts.saturating_mul(repeats(keywords));
        if stack.parts > MOST_PARTS {
            return Err(SchemaError::TooLarge);
        }
        if stack.depth > DEEPEST {
            return Err(SchemaError::TooDeep);
        }
        self.in_place.insert(schema, Some(stack));
        Ok(stack)
    }
}

/// Definitions may refer to each other as often as the text allows.
fn deeper<T>(work: impl FnOnce() -> T) -> T {
    const ROOM: usize = 64 * 1024;
    const MORE: usize = 1024 * 1024;
    stacker::maybe_grow(ROOM, MORE, work)
}

/// Values that are compared one by one.
fn words(keywords: &Map<String, Value>) -> u64 {
    let length = |keyword: &str| keywords.get(keyword).and_then(Value::as_array).map_or(0, Vec::len) as u64;
    length("enum") + length("required")
}

/// How often the neighbours of a keyword are held against the value: what is left over is found by doing it again.
fn repeats(keywords: &Map<String, Value>) -> u64 {
    if keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems") { 3 } else { 1 }
}

/// Whether a value can be held against a schema that [`count`] took, in a time that is worth waiting for.
pub(crate) fn is_feasible(schema: &Value, value: &Value) -> bool {
    let mut weighing = Weighing { parts: Parts::of(schema), known: HashMap::new(), pairs: 0 };
    weighing.steps(schema, value).is_some_and(|steps| steps <= MOST_STEPS)
}

struct Weighing<'a> {
    parts: Parts<'a>,
    /// What a definition comes to, held against a part of the value: only those are met more than once.
    known: HashMap<(Address, Address), u64>,
    pairs: u64,
}

impl<'a> Weighing<'a> {
    /// At most so many; `None` if there are too many to count.
    fn steps(&mut self, schema: &'a Value, value: &'a Value) -> Option<u64> {
        let Value::Object(keywords) = schema else { return Some(1) };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&pair) {
            return Some(*known);
        }
        let (mut in_place, mut within) = (1 + words(keywords), 0_u64);
        for (step, inner) in self.parts.inside(schema, keywords).ok()?.iter() {
            let sum = if *step == SchemaStep::InPlace { &mut in_place } else { &mut within };
            self.pairs += 1;
            if let Some(each) = self.parts.alone(inner).ok()? {
                *sum = sum.saturating_add(each.saturating_mul(most_reached(*step, value)));
                continue;
            }
            for value in reached(*step, value) {
                *sum = sum.saturating_add(self.steps(inner, value)?);
                self.pairs += 1;
                if *sum > MOST_STEPS || self.pairs > MOST_PAIRS {
                    return None;
                }
            }
        }
        let steps = in_place.saturating_mul(repeats(keywords)).saturating_add(within);
        if steps > MOST_STEPS || self.pairs > MOST_PAIRS {
            return None;
        }
        if self.parts.referred.contains(&pair.0) {
            self.known.insert(pair, steps);
        }
        (self.known.len() <= MOST_KNOWN).then_some(steps)
    }
}

/// Where a part of a schema goes from where it stands in a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SchemaStep<'a> {
    InPlace,
    Member(&'a str),
    /// Those that `properties` does not name.
    OtherMembers(Option<&'a Map<String, Value>>),
    Members,
    Item(usize),
    ItemsFrom(usize),
    /// The names of members, which are texts.
    Names,
}

fn reached<'a>(step: SchemaStep<'a>, value: &'a Value) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    static NAME: Value = Value::Null;
    match (step, value) {
        (SchemaStep::InPlace, value) => Box::new(std::iter::once(value)),
        (SchemaStep::Member(name), Value::Object(members)) => Box::new(members.get(name).into_iter()),
        (SchemaStep::OtherMembers(named), Value::Object(members)) => {
            let is_other = move |name: &str| named.is_none_or(|named| !named.contains_key(name));
            Box::new(members.iter().filter(move |(name, _)| is_other(name)).map(|(_, value)| value))
        }
        (SchemaStep::Members, Value::Object(members)) => Box::new(members.values()),
        (SchemaStep::Names, Value::Object(members)) => Box::new(std::iter::repeat_n(&NAME, members.len())),
        (SchemaStep::Item(index), Value::Array(items)) => Box::new(items.get(index).into_iter()),
        (SchemaStep::ItemsFrom(first), Value::Array(items)) => Box::new(items.iter().skip(first)),
        (
            SchemaStep::Member(_)
            | SchemaStep::OtherMembers(_)
            | SchemaStep::Members
            | SchemaStep::Names
            | SchemaStep::Item(_)
            | SchemaStep::ItemsFrom(_),
            _,
        ) => Box::new(std::iter::empty()),
    }
}

/// How many of them there are at most, without looking at each.
fn most_reached(step: SchemaStep<'_>, value: &Value) -> u64 {
    let count = match (step, value) {
        (SchemaStep::InPlace | SchemaStep::Member(_) | SchemaStep::Item(_), _) => 1,
        (SchemaStep::OtherMembers(_) | SchemaStep::Members | SchemaStep::Names, Value::Object(members)) => {
            members.len()
        }
        (SchemaStep::ItemsFrom(first), Value::Array(items)) => items.len().saturating_sub(first),
        (SchemaStep::OtherMembers(_) | SchemaStep::Members | SchemaStep::Names | SchemaStep::ItemsFrom(_), _) => 0,
    };
    count as u64
}

type Inside<'a> = Rc<[(SchemaStep<'a>, &'a Value)]>;

/// The parts that schemas consist of, references followed; each is looked at once.
struct Parts<'a> {
    root: &'a Value,
    inside: HashMap<Address, Inside<'a>>,
    /// Names that references may use instead of a pointer, and every part that has one.
    named: HashMap<&'a str, Vec<&'a Value>>,
    referred: HashSet<Address>,
}

impl<'a> Parts<'a> {
    fn of(root: &'a Value) -> Self {
        let mut named = HashMap::new();
        gather_named(root, &mut named);
        Self { root, inside: HashMap::new(), named, referred: HashSet::new() }
    }

    fn inside(&mut self, schema: &'a Value, keywords: &'a Map<String, Value>) -> Result<Inside<'a>, SchemaError> {
        if let Some(known) = self.inside.get(&std::ptr::from_ref(schema)) {
            return Ok(Rc::clone(known));
        }
        let mut parts = Vec::new();
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    for target in self.targets(reference)? {
                        self.referred.insert(target);
                        parts.push((SchemaStep::InPlace, target));
                    }
                }
                (keyword, value) => add_parts(keyword, value, keywords, &mut parts),
            }
        }
        let parts: Inside<'a> = parts.into();
        self.inside.insert(schema, Rc::clone(&parts));
        Ok(parts)
    }

    /// What a schema without parts comes to, whatever the value is.
    fn alone(&mut self, schema: &'a Value) -> Result<Option<u64>, SchemaError> {
        let Value::Object(keywords) = schema else { return Ok(Some(1)) };
        let is_alone = self.inside(schema, keywords)?.is_empty();
        Ok(is_alone.then(|| 1 + words(keywords)))
    }

    /// Where a reference may lead: a pointer to one place, a name to every place that has it.
    fn targets(&self, reference: &str) -> Result<Vec<&'a Value>, SchemaError> {
        let nowhere = || SchemaError::Nowhere(reference.to_owned());
        let fragment = reference.strip_prefix('#').ok_or_else(|| SchemaError::Remote(reference.to_owned()))?;
        let fragment = decoded(fragment).ok_or_else(nowhere)?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return Ok(vec![self.root.pointer(&fragment).ok_or_else(nowhere)?]);
        }
        self.named.get(fragment.as_str()).cloned().ok_or_else(nowhere)
    }
}

/// Those of one keyword that is no reference. Definitions count where they are referred to.
fn add_parts<'a>(
    keyword: &str,
    value: &'a Value,
    neighbours: &'a Map<String, Value>,
    parts: &mut Vec<(SchemaStep<'a>, &'a Value)>,
) {
    let named = || neighbours.get("properties").and_then(Value::as_object);
    let first = || neighbours.get("prefixItems").or_else(|| neighbours.get("items")).and_then(Value::as_array);
    match (keyword, value) {
        ("allOf" | "anyOf" | "oneOf", Value::Array(inner)) => {
            parts.extend(inner.iter().map(|inner| (SchemaStep::InPlace, inner)));
        }
        ("dependentSchemas" | "dependencies", Value::Object(inner)) => {
            parts.extend(inner.values().map(|inner| (SchemaStep::InPlace, inner)));
        }
        ("not" | "if" | "then" | "else", inner) => parts.push((SchemaStep::InPlace, inner)),
        ("properties", Value::Object(inner)) => {
            parts.extend(inner.iter().map(|(name, inner)| (SchemaStep::Member(name), inner)));
        }
        ("patternProperties", Value::Object(inner)) => {
            parts.extend(inner.values().map(|inner| (SchemaStep::Members, inner)));
        }
        ("additionalProperties" | "unevaluatedProperties", inner) => {
            parts.push((SchemaStep::OtherMembers(named()), inner));
        }
        ("propertyNames", inner) => parts.push((SchemaStep::Names, inner)),
        ("items" | "prefixItems", Value::Array(inner)) => {
            parts.extend(inner.iter().enumerate().map(|(index, inner)| (SchemaStep::Item(index), inner)));
        }
        ("items" | "additionalItems" | "unevaluatedItems", inner) => {
            parts.push((SchemaStep::ItemsFrom(first().map_or(0, Vec::len)), inner));
        }
        ("contains", inner) => parts.push((SchemaStep::ItemsFrom(0), inner)),
        _ => {}
    }
}

fn gather_named<'a>(value: &'a Value, named: &mut HashMap<&'a str, Vec<&'a Value>>) {
    match value {
        Value::Object(fields) => {
            let text = |key: &str| fields.get(key).and_then(Value::as_str);
            let older = |key: &str| text(key).and_then(|id| id.strip_prefix('#'));
            let names = [text("$anchor"), text("$dynamicAnchor"), older("$id"), older("id")];
            names.into_iter().flatten().for_each(|name| named.entry(name).or_default().push(value));
            fields.values().for_each(|value| gather_named(value, named));
        }
        Value::Array(items) => items.iter().for_each(|value| gather_named(value, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `%41` as `A`; `None` if it is not text.
fn decoded(fragment: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), fragment.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// A part with an address of its own is the root of all references in it: they would lead elsewhere than they seem to.
fn check_bases(value: &Value, is_root: bool) -> Result<(), SchemaError> {
    match value {
        Value::Object(fields) => {
            let own = ["$id", "id"].iter().find_map(|key| fields.get(*key)?.as_str());
            if own.is_some_and(|own| !is_root && !own.starts_with('#')) && refers(fields) {
                return Err(SchemaError::Rebased);
            }
            fields.values().try_for_each(|value| check_bases(value, false))
        }
        Value::Array(items) => items.iter().try_for_each(|value| check_bases(value, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn refers(fields: &Map<String, Value>) -> bool {
    let is_reference = |key: &str| fields.get(key).is_some_and(Value::is_string);
    ["$ref", "$dynamicRef", "$recursiveRef"].into_iter().any(is_reference) || fields.values().any(refers_within)
}

fn refers_within(value: &Value) -> bool {
    match value {
        Value::Object(fields) => refers(fields),
        Value::Array(items) => items.iter().any(refers_within),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn check_patterns(value: &Value) -> Result<(), SchemaError> {
    let is_short = |pattern: &str| if pattern.len() > LONGEST_PATTERN { Err(SchemaError::LongPattern) } else { Ok(()) };
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(pattern)) = fields.get("pattern") {
                is_short(pattern)?;
            }
            if let Some(Value::Object(named)) = fields.get("patternProperties") {
                named.keys().try_for_each(|pattern| is_short(pattern))?;
            }
            fields.values().try_for_each(check_patterns)
        }
        Value::Array(items) => items.iter().try_for_each(check_patterns),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions n0…, each made of the one before it.
    fn tower(height: usize, floor: impl Fn(&str) -> Value) -> Value {
        let mut schema = json!({"type": "object", "$defs": {"n0": {"type": "object"}}});
        for storey in 1..height {
            schema["$defs"][format!("n{storey}")] = floor(&format!("#/$defs/n{}", storey - 1));
        }
        schema["$ref"] = format!("#/$defs/n{}", height - 1).into();
        schema
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn what_unfolds_to_too_much_is_found_without_unfolding_it() {
        let twice =
            |keyword: &'static str| tower(40, move |below| json!({keyword: [{"$ref": below}, {"$ref": below}]}));
        let mut hidden = twice("allOf");
        for storey in 0..39 {
            hidden["$defs"][format!("n{storey}")]["properties"] =
                json!({"x": {"$ref": format!("#/$defs/n{}", storey + 1)}});
        }
        let mut round = twice("allOf");
        round["$defs"]["n0"] = json!({"properties": {"a": {"$ref": "#"}}});
        let named = json!({
            "$ref": "#a39",
            "$defs": (0..40).map(|storey: usize| {
                let below = format!("#a{}", storey.saturating_sub(1));
                let parts = if storey == 0 { json!([true]) } else { json!([{"$ref": below}, {"$dynamicRef": below}]) };
                json!({"$anchor": format!("a{storey}"), "allOf": parts})
            }).collect::<Vec<_>>(),
        });
        let left_over = (0..40).fold(json!({}), |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}));
        let large = [
            twice("allOf"),
            twice("anyOf"),
            twice("oneOf"),
            tower(
                40,
                |below| json!({"if": {"$ref": below}, "then": {"$ref": below}, "else": {"not": {"$ref": below}}}),
            ),
            tower(40, |below| json!({"properties": {"a": {"$ref": below}, "b": {"$ref": below}}})),
            tower(40, |below| json!({"dependentSchemas": {"a": {"$ref": below}, "b": {"$ref": below}}})),
            hidden,
            round,
            named,
            left_over,
            json!({"enum": vec![1; 100_001]}),
        ];
        for schema in large {
            assert_eq!(count(&schema), Err(SchemaError::TooLarge), "{schema:#}");
        }
    }

    #[test]
    fn honest_schemas_are_counted() {
        let tree = json!({"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {
            "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}, "also": {"$ref": "#/%24defs/tree"},
        }}}});
        let cases = [
            (json!(true), 1),
            (json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}), 3),
            (json!({"anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}], "$defs": {"x": {"items": true}}}), 7),
            (json!({"items": {"$ref": "#"}}), 3),
            (json!({"$id": "https://example.com/s", "items": {"$ref": "#"}}), 3),
            (json!({"properties": {"id": {"type": "string"}, "next": {"$ref": "#"}}}), 4),
            (tree, 8),
        ];
        for (schema, expected) in cases {
            assert_eq!(count(&schema), Ok(expected), "{schema:#}");
        }
    }

    #[test]
    fn what_leads_nowhere_in_circles_or_elsewhere_is_no_schema() {
        let cases = [
            (json!({"$ref": "#"}), SchemaError::Circular),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"anyOf": [{"$ref": "#/$defs/b"}]}}}),
                SchemaError::Circular,
            ),
            (json!({"items": {"$ref": "#/$defs/x"}}), SchemaError::Nowhere("#/$defs/x".to_owned())),
            (json!({"items": {"$ref": "#x"}}), SchemaError::Nowhere("#x".to_owned())),
            (json!({"items": {"$id": "x", "$ref": "#/$defs/n"}, "$defs": {"n": true}}), SchemaError::Rebased),
            (tower(140, |below| json!({"$ref": below})), SchemaError::TooDeep),
            (json!({"pattern": "x".repeat(4_097)}), SchemaError::LongPattern),
            (json!({"items": {"patternProperties": {"x".repeat(4_097): true}}}), SchemaError::LongPattern),
        ];
        for (schema, expected) in cases {
            assert_eq!(count(&schema), Err(expected), "{schema:#}");
        }
        assert_eq!(count(&json!({"pattern": "x".repeat(4_096)})), Ok(1));
    }

    #[test]
    fn a_long_chain_of_definitions_is_counted_without_running_out_of_stack() {
        let schema = tower(30_000, |below| json!({"properties": {"a": {"$ref": below}}}));
        assert_eq!(count(&schema), Ok(60_000));
    }

    #[test]
    fn the_work_of_a_judgement_is_known_before_it_begins() {
        let forked = json!({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert!(count(&forked).is_ok());
        assert!(is_feasible(&forked, &nested(10)));
        assert!(!is_feasible(&forked, &nested(100)));
        let plain = json!({"properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}});
        assert!(is_feasible(&plain, &nested(120)));
        let many = json!({"allOf": vec![json!({"items": {"type": "integer"}}); 20_000]});
        assert!(!is_feasible(&many, &json!(vec![0; 100_000])));
        assert!(is_feasible(&many, &json!(vec![0; 100])));
        assert!(is_feasible(&json!({"items": {"type": "integer"}}), &json!(vec![0; 1_000_000])));
    }
}
