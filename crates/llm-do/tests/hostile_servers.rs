//! Messages that a hostile MCP server could send: whatever they are, what is made of them is bounded and shows nothing
//! that deceives. The function that is driven here the fuzzer drives too.

use llm_do::tools::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Words that mean something to whoever reads them.
const KEYS: &[&str] = &[
    "protocolVersion",
    "capabilities",
    "tools",
    "nextCursor",
    "name",
    "title",
    "description",
    "inputSchema",
    "type",
    "properties",
    "annotations",
    "readOnlyHint",
    "content",
    "structuredContent",
    "isError",
    "text",
    "data",
    "blob",
    "mimeType",
    "uri",
    "resource",
    "level",
    "progressToken",
    "progress",
    "total",
    "message",
];
const TEXTS: &[&str] = &[
    "",
    "2025-06-18",
    "object",
    "text",
    "image",
    "audio",
    "resource",
    "resource_link",
    "iVBORw0KGgo=",
    "/9j/4AAQ",
    "%PDF",
    "read (pre-approved)\n",
    "a.b/c:d",
    "\u{202e}evil",
    "\u{1b}[2J",
    "\u{e0041}",
    "x",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(TEXTS).prop_map(str::to_owned),
        2 => any::<String>(),
        1 => (select(TEXTS), 0..2_000_usize).prop_map(|(text, times)| text.repeat(times)),
    ]
}

/// Any JSON, with keys that are looked for more often than chance would have it.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let key = prop_oneof![9 => select(KEYS).prop_map(str::to_owned), 1 => any::<String>()];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((key, inner), 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Tools that are nearly right.
fn tool() -> impl Strategy<Value = Value> {
    let schema = prop_oneof![3 => Just(json!({"type": "object"})), 1 => value()];
    (text(), text(), schema, value()).prop_map(|(name, description, schema, annotations)| {
        json!({"name": name, "description": description, "inputSchema": schema, "annotations": annotations})
    })
}

/// Parts of results that are nearly right.
fn part() -> impl Strategy<Value = Value> {
    let kind = select(vec!["text", "image", "audio", "resource", "resource_link", "other"]);
    (kind, text(), text(), value()).prop_map(|(kind, text, data, resource)| {
        json!({"type": kind, "text": text, "data": data, "uri": text, "blob": data, "resource": resource})
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_read_within_bounds(value in value()) {
        fuzz::server(value.to_string().as_bytes());
    }

    #[test]
    fn any_list_of_tools_is_read_within_bounds(tools in vec(tool(), 0..20)) {
        fuzz::server(json!({"tools": tools}).to_string().as_bytes());
    }

    #[test]
    fn any_result_is_read_within_bounds(parts in vec(part(), 0..20), structured in value()) {
        fuzz::server(json!({"content": parts, "structuredContent": structured}).to_string().as_bytes());
    }
}

#[test]
fn long_lists_are_read_within_bounds() {
    let (zeros, empty) = (format!("[{}0]", "0,".repeat(2_000_000)), format!("[{}{{}}]", "{},".repeat(2_000_000)));
    for list in [zeros, empty] {
        for key in ["tools", "content"] {
            fuzz::server(format!("{{\"{key}\":{list}}}").as_bytes());
        }
    }
}
