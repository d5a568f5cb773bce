//! Whatever a provider would refuse is refused, with the reason, and recorded.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use client::{ANTHROPIC, CHAT, RESPONSES, Response, ask, body, connect, exchange, request_with, say};
use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

/// Sends `request` and expects a refusal with `reason`.
#[track_caller]
fn refused(fake: &FakeLlm, path: &str, request: &Value, reason: &str) {
    let response = ask(fake, path, request);
    check_refusal(fake, &response, 400, reason);
}

#[track_caller]
fn check_refusal(fake: &FakeLlm, response: &Response, status: u16, reason: &str) {
    assert_eq!(response.status, status, "{reason}: {response:?}");
    let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(reason), "{message:?} does not contain {reason:?}");
    let recorded = fake.violations();
    assert!(recorded.iter().any(|violation| violation.reason.contains(reason)), "{recorded:?}");
}

fn with(path: &str, key: &str, value: Value) -> Value {
    let mut request = body(path, "hi", false);
    request[key] = value;
    request
}

fn without(path: &str, key: &str) -> Value {
    let mut request = body(path, "hi", false);
    request.as_object_mut().unwrap().remove(key);
    request
}

/// The user's first words and then `messages`.
fn after_hi(path: &str, messages: Value) -> Value {
    let Value::Array(mut more) = messages else { panic!("a list") };
    more.insert(0, json!({"role": "user", "content": "hi"}));
    with(path, if path == RESPONSES { "input" } else { "messages" }, more.into())
}

fn anthropic_tool(name: &str, schema: &Value) -> Value {
    json!({"name": name, "input_schema": schema})
}

fn responses_tool(name: &str, schema: &Value) -> Value {
    json!({"type": "function", "name": name, "parameters": schema})
}

fn chat_tool(name: &str, schema: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": schema}})
}

#[test]
fn headers_are_required() {
    let fake = FakeLlm::start(FakeScript::new());
    let json = "content-type: application/json";
    for (path, headers, status, reason) in [
        (ANTHROPIC, format!("{json}\r\nanthropic-version: 1"), 401, "an API key is required"),
        (ANTHROPIC, format!("{json}\r\nx-api-key: k"), 400, "anthropic-version: header is required"),
        (ANTHROPIC, "content-type: text/plain\r\nx-api-key: k\r\nanthropic-version: 1".to_owned(), 400, "content-type"),
        (CHAT, json.to_owned(), 401, "an API key is required"),
        (CHAT, format!("{json}\r\nauthorization: Basic k"), 401, "an API key is required"),
        (RESPONSES, json.to_owned(), 401, "an API key is required"),
        ("/v2/else", json.to_owned(), 404, "there is nothing at POST /v2/else"),
    ] {
        let text = body(path, "hi", false).to_string();
        let response = exchange(&mut connect(&fake), &request_with(path, &headers, &text, true));
        check_refusal(&fake, &response, status, reason);
    }
}

#[test]
fn local_servers_need_no_key() {
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("hi")).accept_missing_key());
    let text = body(CHAT, "hi", false).to_string();
    let request = request_with(CHAT, "content-type: application/json", &text, true);
    assert_eq!(exchange(&mut connect(&fake), &request).status, 200);
    fake.assert_finished();
}

#[test]
fn errors_have_the_shape_of_their_provider() {
    let fake = FakeLlm::start(FakeScript::new());
    let anthropic = ask(&fake, ANTHROPIC, &without(ANTHROPIC, "model")).json();
    let message = "model: a text is required";
    let error = json!({"type": "invalid_request_error", "message": message});
    assert_eq!(anthropic, json!({"type": "error", "error": error, "request_id": "req_fake"}));
    let chat = ask(&fake, CHAT, &without(CHAT, "model")).json();
    let error = json!({"message": message, "type": "invalid_request_error", "param": null, "code": null});
    assert_eq!(chat, json!({"error": error}));
    assert_eq!(ask(&fake, RESPONSES, &without(RESPONSES, "model")).json(), chat);
}

#[test]
fn a_body_that_is_no_json_is_refused() {
    let fake = FakeLlm::start(FakeScript::new());
    for path in [ANTHROPIC, CHAT, RESPONSES] {
        for text in ["{", "", "\u{1}"] {
            let response = exchange(&mut connect(&fake), &client::request(path, text, true));
            check_refusal(&fake, &response, 400, "the body is no JSON");
        }
    }
}

#[test]
fn both_protocols_refuse_what_lacks_the_essentials() {
    let fake = FakeLlm::start(FakeScript::new());
    for path in [ANTHROPIC, CHAT] {
        refused(&fake, path, &without(path, "model"), "model: a text is required");
        refused(&fake, path, &without(path, "messages"), "messages: a list with at least one element");
        refused(&fake, path, &with(path, "messages", json!([])), "messages: a list with at least one element");
        refused(&fake, path, &with(path, "messages", json!([{"role": "bird", "content": "x"}])), "role: must be");
        refused(&fake, path, &json!([1]), "model: a text is required");
    }
}

#[test]
fn all_protocols_refuse_bad_tools() {
    let fake = FakeLlm::start(FakeScript::new());
    let object = json!({"type": "object"});
    for path in [ANTHROPIC, CHAT, RESPONSES] {
        let tool = match path {
            ANTHROPIC => anthropic_tool,
            CHAT => chat_tool,
            _ => responses_tool,
        };
        let long = "n".repeat(65);
        for name in ["a b", "a.b", "ä", &long] {
            refused(&fake, path, &with(path, "tools", json!([tool(name, &object)])), "does not match");
        }
        refused(&fake, path, &with(path, "tools", json!([tool("", &object)])), "name: a text is required");
        for schema in [json!({}), json!({"type": "string"}), json!("x"), json!(null)] {
            refused(&fake, path, &with(path, "tools", json!([tool("t", &schema)])), "must be of type object");
        }
        let twins = json!([tool("t", &object), tool("t", &object)]);
        refused(&fake, path, &with(path, "tools", twins), "tool names must be unique");
    }
    let bare = json!([{"name": "t"}]);
    refused(&fake, ANTHROPIC, &with(ANTHROPIC, "tools", bare), "tools.0.input_schema: field required");
}

#[test]
fn anthropic_refuses_its_own_list_of_mistakes() {
    let fake = FakeLlm::start(FakeScript::new());
    let said = |content: Value| with(ANTHROPIC, "messages", json!([{"role": "user", "content": content}]));
    let marked = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    let thinking = json!({"type": "thinking", "thinking": "x", "signature": "s"});
    for (request, reason) in [
        (without(ANTHROPIC, "max_tokens"), "max_tokens: a positive integer is required"),
        (with(ANTHROPIC, "max_tokens", json!(0)), "max_tokens: a positive integer is required"),
        (with(ANTHROPIC, "temprature", json!(1)), "temprature: extra inputs are not permitted"),
        (with(ANTHROPIC, "system", json!([{"type": "text", "text": ""}])), "system.0.text: text content blocks must"),
        (with(ANTHROPIC, "system", json!(1)), "system: a text or a list"),
        (with(ANTHROPIC, "thinking", json!({"type": "enabled", "budget_tokens": 2000})), "thinking.budget_tokens"),
        (said(json!("")), "messages.0: messages must have non-empty content"),
        (said(json!([])), "messages.0: messages must have non-empty content"),
        (said(json!([{"type": "text", "text": " \n"}])), "messages.0.content.0.text: text content blocks must"),
        (said(json!([{"type": "text", "text": "x", "extra": 1}])), "messages.0.content.0.extra: extra inputs"),
        (said(json!([{"type": "poem"}])), "unknown block type \"poem\""),
        (said(json!([thinking])), "a thinking block cannot be in a message of this role"),
        (said(Value::Array(vec![marked; 5])), "at most 4 blocks may have cache_control"),
        (with(ANTHROPIC, "messages", json!([{"role": "assistant", "content": "x"}])), "the first message must use"),
        (with(ANTHROPIC, "messages", json!([{"role": "system", "content": "x"}])), "role: must be user or assistant"),
        (after_hi(ANTHROPIC, json!([{"role": "assistant", "content": "x "}])), "cannot end with trailing whitespace"),
    ] {
        refused(&fake, ANTHROPIC, &request, reason);
    }
}

#[test]
fn chat_refuses_its_own_list_of_mistakes() {
    let fake = FakeLlm::start(FakeScript::new());
    let said = |content: Value| with(CHAT, "messages", json!([{"role": "user", "content": content}]));
    let reply = |reply: Value| after_hi(CHAT, json!([reply]));
    let mut both_limits = with(CHAT, "max_tokens", json!(1));
    both_limits["max_completion_tokens"] = json!(1);
    for (request, reason) in [
        (with(CHAT, "tools", json!([])), "tools: a list with at least one element"),
        (with(CHAT, "tools", json!([{"function": {"name": "t"}}])), "tools[0].type: must be function"),
        (with(CHAT, "tool_choice", json!("auto")), "tool_choice: only allowed when tools are specified"),
        (with(CHAT, "stream_options", json!({"include_usage": true})), "stream_options: only allowed"),
        (both_limits, "not allowed together with max_completion_tokens"),
        (said(json!(null)), "messages[0].content: a text or a list"),
        (said(json!([])), "messages[0].content: a text or a list"),
        (said(json!([{"type": "text", "text": ""}])), "messages[0].content[0].text: a text is required"),
        (said(json!([{"type": "poem"}])), "messages[0].content[0].type: unknown part type"),
        (reply(json!({"role": "assistant"})), "messages[1].content: a text or a list"),
        (reply(json!({"role": "assistant", "tool_calls": []})), "messages[1].tool_calls: a list with at least one"),
        (
            reply(
                json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "t", "arguments": "{}"}}]}),
            ),
            "type: must be function",
        ),
        (
            reply(
                json!({"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "t", "arguments": {}}}]}),
            ),
            "function.arguments: a text is required",
        ),
        (reply(json!({"role": "tool", "content": "x"})), "messages[1].tool_call_id: a text is required"),
    ] {
        refused(&fake, CHAT, &request, reason);
    }
}

/// A conversation after the model called the tools of these ids, written for each protocol.
fn history(path: &str, calls: &[&str], results: &[&str]) -> Value {
    if path == ANTHROPIC {
        let calls: Vec<Value> =
            calls.iter().map(|id| json!({"type": "tool_use", "id": id, "name": "t", "input": {"a": 1}})).collect();
        let results: Vec<Value> =
            results.iter().map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "r"})).collect();
        let answer = if results.is_empty() { json!("and?") } else { results.into() };
        return after_hi(path, json!([{"role": "assistant", "content": calls}, {"role": "user", "content": answer}]));
    }
    if path == RESPONSES {
        let call = |id: &&str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": "{\"a\": 1}"});
        let result = |id: &&str| json!({"type": "function_call_output", "call_id": id, "output": "r"});
        return after_hi(path, calls.iter().map(call).chain(results.iter().map(result)).collect());
    }
    let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{\"a\": 1}"}});
    let calls: Vec<Value> = calls.iter().map(call).collect();
    let mut messages = vec![json!({"role": "assistant", "content": null, "tool_calls": calls})];
    messages.extend(results.iter().map(|id| json!({"role": "tool", "tool_call_id": id, "content": "r"})));
    after_hi(path, messages.into())
}

/// A server that has called `t` twice, with the ids `a` and `b`.
fn after_two_calls(path: &str) -> FakeLlm {
    let call = |id| FakeCall::new("t", json!({"a": 1})).with_id(id);
    let fake = FakeLlm::start(
        FakeScript::new().reply(FakeReply::calls([call("a"), call("b")])).otherwise(FakeReply::text("done")),
    );
    assert_eq!(say(&fake, path, "hi").status, 200);
    fake
}

#[test]
fn a_tool_round_trip_is_accepted() {
    for path in [ANTHROPIC, CHAT, RESPONSES] {
        let fake = after_two_calls(path);
        for results in [["a", "b"], ["b", "a"]] {
            assert_eq!(ask(&fake, path, &history(path, &["a", "b"], &results)).status, 200);
        }
        fake.assert_finished();
    }
}

#[test]
fn calls_and_results_must_belong_together() {
    for path in [ANTHROPIC, CHAT, RESPONSES] {
        for (calls, results, reason) in [
            (&["a", "b"][..], &["a"][..], "tool call \"b\" has no result right after it"),
            (&["a", "b"], &[], "tool call \"a\" has no result right after it"),
            (&["a"], &["a", "a"], "tool result for \"a\" is given twice"),
            (&["a"], &["a", "z"], "tool result for \"z\", which no call before it has"),
            (&["a", "a"], &["a", "a"], "tool call ids must be unique: \"a\""),
            (&["a", "z"], &["a", "z"], "tool call \"z\" in the history was never served"),
        ] {
            refused(&after_two_calls(path), path, &history(path, calls, results), reason);
        }
    }
}

#[test]
fn calls_must_come_back_as_they_were_served() {
    for (path, pointer) in
        [(ANTHROPIC, "/messages/1/content/0"), (CHAT, "/messages/1/tool_calls/0/function"), (RESPONSES, "/input/1")]
    {
        for (anthropic_field, chat_field, value) in
            [("name", "name", json!("u")), ("input", "arguments", json!({"a": 2}))]
        {
            let mut request = history(path, &["a", "b"], &["a", "b"]);
            let (field, value) = match path {
                ANTHROPIC => (anthropic_field, value),
                _ => (chat_field, value.as_str().map_or_else(|| json!(value.to_string()), |text| json!(text))),
            };
            request.pointer_mut(pointer).unwrap()[field] = value;
            refused(&after_two_calls(path), path, &request, "tool call \"a\" in the history is not the one");
        }
    }
}

#[test]
fn a_history_from_elsewhere_is_accepted_when_the_script_says_so() {
    for path in [ANTHROPIC, CHAT, RESPONSES] {
        let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("x")).accept_foreign_history());
        assert_eq!(ask(&fake, path, &history(path, &["q"], &["q"])).status, 200);
        fake.assert_finished();
    }
}

#[test]
fn broken_arguments_may_come_back_repaired() {
    for path in [ANTHROPIC, CHAT, RESPONSES] {
        let broken = FakeReply::calls([FakeCall::malformed("t", "{\"a\": ").with_id("a")]);
        let fake = FakeLlm::start(FakeScript::new().reply(broken).reply(FakeReply::text("x")));
        say(&fake, path, "hi");
        assert_eq!(ask(&fake, path, &history(path, &["a"], &["a"])).status, 200);
        fake.assert_finished();
    }
}

#[test]
fn results_come_before_other_content() {
    let fake = after_two_calls(ANTHROPIC);
    let mut request = history(ANTHROPIC, &["a", "b"], &["a", "b"]);
    let content = request.pointer_mut("/messages/2/content").unwrap().as_array_mut().unwrap();
    content.insert(1, json!({"type": "text", "text": "between"}));
    refused(&fake, ANTHROPIC, &request, "tool_result blocks must come first");
}

/// What a client returns after the model thought, called `t`, and got its result.
fn thoughtful_history(content: &Value, next: &[Value]) -> Value {
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r"}]});
    let mut messages = vec![json!({"role": "assistant", "content": content}), result];
    messages.extend_from_slice(next);
    after_hi(ANTHROPIC, messages.into())
}

#[test]
fn thinking_comes_back_unmodified_while_the_tool_loop_is_open() {
    let thinking = |text: &str, signature: &str| json!({"type": "thinking", "thinking": text, "signature": signature});
    let redacted = |payload: &str| json!({"type": "redacted_thinking", "data": payload});
    let call = json!({"type": "tool_use", "id": "a", "name": "t", "input": {}});
    let fake = || {
        let calls = [FakeCall::new("t", json!({})).with_id("a")];
        let reply = FakeReply::thinking("hm", "sig").and_redacted_thinking("enc").and_calls(calls);
        let fake = FakeLlm::start(FakeScript::new().reply(reply).otherwise(FakeReply::text("x")));
        say(&fake, ANTHROPIC, "hi");
        fake
    };
    let owed = "must be returned while the tool loop is open";
    for (content, reason) in [
        (json!([call]), owed),
        (json!([thinking("hm", "sig"), call]), owed),
        (json!([thinking("HM", "sig"), redacted("enc"), call]), "thinking blocks cannot be modified"),
        (json!([thinking("hm", "gis"), redacted("enc"), call]), "invalid signature in a thinking block"),
        (json!([thinking("hm", "sig"), redacted("cne"), call]), "thinking that was never served"),
        (json!([call, thinking("hm", "sig"), redacted("enc")]), "thinking must come before the tool calls"),
    ] {
        refused(&fake(), ANTHROPIC, &thoughtful_history(&content, &[]), reason);
    }
    let closed = [json!({"role": "assistant", "content": "x"}), json!({"role": "user", "content": "next"})];
    for (content, next) in
        [(json!([thinking("hm", "sig"), redacted("enc"), call]), &[][..]), (json!([call]), &closed[..])]
    {
        let fake = fake();
        assert_eq!(ask(&fake, ANTHROPIC, &thoughtful_history(&content, next)).status, 200);
        fake.assert_finished();
    }
}

#[test]
fn blocks_of_the_providers_own_tools_come_back_unmodified() {
    let block = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}});
    let start = || {
        let reply = FakeReply::empty().and_native(block.clone()).finishing(fake_llm::FakeFinish::Pause);
        let fake = FakeLlm::start(FakeScript::new().reply(reply).otherwise(FakeReply::text("x")));
        assert_eq!(say(&fake, ANTHROPIC, "hi").json()["content"], json!([block]));
        fake
    };
    let mut changed = block.clone();
    changed["input"] = json!({});
    let returned = |block: &Value| after_hi(ANTHROPIC, json!([{"role": "assistant", "content": [block]}]));
    let fake = start();
    assert_eq!(ask(&fake, ANTHROPIC, &returned(&block)).status, 200);
    fake.assert_finished();
    refused(&start(), ANTHROPIC, &returned(&changed), "modified or never served");
}
