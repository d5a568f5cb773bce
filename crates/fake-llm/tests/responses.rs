//! What only Responses refuse.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use client::{RESPONSES, ask, body, say};
use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

#[track_caller]
fn refused(fake: &FakeLlm, request: &Value, reason: &str) {
    let response = ask(fake, RESPONSES, request);
    assert_eq!(response.status, 400, "{reason}: {response:?}");
    let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(reason), "{message:?} does not contain {reason:?}");
}

#[track_caller]
fn accepted(fake: &FakeLlm, request: &Value) {
    let response = ask(fake, RESPONSES, request);
    assert_eq!(response.status, 200, "{}", response.text());
    fake.assert_finished();
}

fn with(key: &str, value: Value) -> Value {
    let mut request = body(RESPONSES, "hi", false);
    request[key] = value;
    request
}

/// The user's first words and then these items.
fn after_hi(items: &[Value]) -> Value {
    let first = json!({"role": "user", "content": "hi"});
    with("input", [first].iter().chain(items).cloned().collect())
}

fn format(schema: &Value) -> Value {
    with("text", json!({"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}}))
}

#[test]
fn the_request_has_only_what_there_is() {
    let fake = FakeLlm::start(FakeScript::new());
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
    let strict_tool = json!({"type": "function", "name": "t", "strict": true, "parameters": open});
    for (request, reason) in [
        (with("messages", json!([])), "unknown parameter: \"messages\""),
        (with("stop", json!(["x"])), "unknown parameter: \"stop\""),
        (with("input", json!([])), "input: a list with at least one element"),
        (with("input", json!(7)), "input: a list with at least one element"),
        (with("tools", json!([{"type": "poem"}])), "tools[0].type: unknown tool type \"poem\""),
        (with("tools", json!([{"type": "code_interpreter"}])), "tools[0].container: field required"),
        (with("tools", json!([strict_tool])), "tools[0].parameters: every object must be closed"),
        (with("text", json!({"format": {"type": "poem"}})), "text.format.type: unknown format"),
        (format(&json!({"type": "array"})), "text.format.schema: must be of type object"),
        (format(&open), "text.format.schema: every object must be closed"),
    ] {
        refused(&fake, &request, reason);
    }
    let closed = json!({
        "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false,
    });
    accepted(&FakeLlm::start(FakeScript::new().reply(FakeReply::text("x"))), &format(&closed));
}

#[test]
fn items_have_their_shape() {
    let fake = FakeLlm::start(FakeScript::new());
    let said = |role: &str, content: Value| json!({"role": role, "content": content});
    let call = |field: &str, value: Value| {
        let mut call = json!({"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"});
        call[field] = value;
        call
    };
    let output = |output: Value| json!({"type": "function_call_output", "call_id": "c", "output": output});
    for (item, reason) in [
        (json!({"type": "poem"}), "input[1].type: unknown item type \"poem\""),
        (said("bird", json!("x")), "input[1].role: must be"),
        (said("user", json!([])), "input[1].content: a text or a list"),
        (said("user", json!([{"type": "output_text", "text": "x"}])), "\"output_text\" is not allowed here"),
        (said("assistant", json!([{"type": "input_text", "text": "x"}])), "\"input_text\" is not allowed here"),
        (said("user", json!([{"type": "input_image"}])), "input[1].content[0].the content is missing"),
        (said("user", json!([{"type": "input_file", "filename": "f"}])), "the content is missing"),
        (json!({"type": "message", "role": "assistant", "id": "x", "content": "x"}), "begins with \"msg\""),
        (call("id", json!("call_1")), "input[1].id: expected an id that begins with \"fc\""),
        (call("arguments", json!({})), "input[1].arguments: a text is required"),
        (call("call_id", json!("c".repeat(65))), "a maximum length of 64"),
        (output(json!(7)), "input[1].output: a text or a list"),
        (output(json!([{"type": "poem"}])), "input[1].output[0].type: \"poem\" is not allowed here"),
    ] {
        refused(&fake, &after_hi(&[item]), reason);
    }
}

#[test]
fn reasoning_comes_back_unmodified_while_the_tool_loop_is_open() {
    let reasoning = |text: &str, encrypted: &str| {
        let summary = json!([{"type": "summary_text", "text": text}]);
        json!({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": encrypted})
    };
    let silent = json!({"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "enc"});
    let call = json!({"type": "function_call", "call_id": "a", "name": "t", "arguments": "{}"});
    let result = json!({"type": "function_call_output", "call_id": "a", "output": "r"});
    let fake = || {
        let calls = [FakeCall::new("t", json!({})).with_id("a")];
        let reply = FakeReply::thinking("hm", "sig").and_redacted_thinking("enc").and_calls(calls);
        let fake = FakeLlm::start(FakeScript::new().reply(reply).otherwise(FakeReply::text("x")));
        say(&fake, RESPONSES, "hi");
        fake
    };
    let sent = |items: &[&Value]| after_hi(&items.iter().copied().cloned().collect::<Vec<_>>());
    let (thought, changed, unknown) = (reasoning("hm", "sig"), reasoning("HM", "sig"), reasoning("hm", "gis"));
    let mut bare = thought.clone();
    bare["encrypted_content"] = Value::Null;
    for (items, reason) in [
        (vec![&call, &result], "must be returned while the tool loop is open"),
        (vec![&thought, &call, &result], "must be returned while the tool loop is open"),
        (vec![&changed, &silent, &call, &result], "cannot be modified"),
        (vec![&unknown, &silent, &call, &result], "invalid signature"),
        (vec![&bare, &silent, &call, &result], "not persisted when store is false"),
        (vec![&call, &result, &thought], "without its required following item"),
        (vec![&thought, &silent, &result], "without its required following item"),
    ] {
        refused(&fake(), &sent(&items), reason);
    }
    accepted(&fake(), &sent(&[&thought, &silent, &call, &result]));
    let (said, next) = (json!({"role": "assistant", "content": "x"}), json!({"role": "user", "content": "next"}));
    accepted(&fake(), &sent(&[&call, &result, &said, &next]));
}

#[test]
fn items_of_the_providers_own_tools_come_back_unmodified() {
    let item = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}});
    let fake = || {
        let reply = FakeReply::empty().and_native(item.clone()).and_text("found");
        let fake = FakeLlm::start(FakeScript::new().reply(reply).otherwise(FakeReply::text("x")));
        assert_eq!(say(&fake, RESPONSES, "hi").json()["output"][0], item);
        fake
    };
    let mut changed = item.clone();
    changed["action"] = json!({});
    accepted(&fake(), &after_hi(std::slice::from_ref(&item)));
    refused(&fake(), &after_hi(&[changed]), "modified or never served");
}
