//! What is scripted is what comes, in the words of each protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use client::{ANTHROPIC, CHAT, RESPONSES, ask, body, say, stream};
use fake_llm::{FakeCall, FakeFinish, FakeLlm, FakeReply, FakeScript, FakeUsage};
use serde_json::{Value, json};

fn served(path: &str, reply: FakeReply) -> Value {
    say(&FakeLlm::start(FakeScript::new().reply(reply)), path, "hi").json()
}

fn rich() -> FakeReply {
    FakeReply::thinking("héhé", "sig")
        .and_text("hello")
        .and_calls([FakeCall::new("a", json!({"x": 1})).with_id("c1"), FakeCall::malformed("b", "{\"y").with_id("c2")])
        .with_usage(FakeUsage { cache_read: 3, cache_write: 4, reasoning: 2, ..FakeUsage::new(7, 9) })
}

#[test]
fn an_anthropic_document_has_every_block_in_order() {
    assert_eq!(
        served(ANTHROPIC, rich()),
        json!({
            "id": "msg_fake00000001", "type": "message", "role": "assistant", "model": "m",
            "content": [
                {"type": "thinking", "thinking": "héhé", "signature": "sig"},
                {"type": "text", "text": "hello"},
                {"type": "tool_use", "id": "c1", "name": "a", "input": {"x": 1}},
                {"type": "tool_use", "id": "c2", "name": "b", "input": "{\"y"},
            ],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 7, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 3, "output_tokens": 9},
        })
    );
}

#[test]
fn a_chat_document_has_reasoning_text_and_calls() {
    let document = served(CHAT, rich());
    assert_eq!(
        document["choices"][0],
        json!({
            "index": 0, "logprobs": null, "finish_reason": "tool_calls",
            "message": {
                "role": "assistant", "content": "hello", "refusal": null, "reasoning_content": "héhé",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{\"x\":1}"}},
                    {"id": "c2", "type": "function", "function": {"name": "b", "arguments": "{\"y"}},
                ],
            },
        })
    );
    assert_eq!(
        document["usage"],
        json!({
            "prompt_tokens": 14, "completion_tokens": 9, "total_tokens": 23,
            "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2},
        })
    );
}

#[test]
fn a_responses_document_has_every_item_in_order() {
    let native = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let document = served(RESPONSES, rich().and_redacted_thinking("enc").and_native(native.clone()));
    let part = json!({"type": "output_text", "annotations": [], "logprobs": [], "text": "hello"});
    let call = |index: usize, id: &str, name: &str, arguments: &str| {
        json!({
            "type": "function_call", "id": format!("fc_fake00000001_{index}"), "call_id": id, "name": name,
            "arguments": arguments, "status": "completed",
        })
    };
    let reasoning = |index: usize, summary: Value, encrypted: &str| {
        let id = format!("rs_fake00000001_{index}");
        json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted})
    };
    let expected = json!([
        reasoning(0, json!([{"type": "summary_text", "text": "héhé"}]), "sig"),
        {"type": "message", "id": "msg_fake00000001_1", "role": "assistant", "status": "completed", "content": [part]},
        call(2, "c1", "a", "{\"x\":1}"),
        call(3, "c2", "b", "{\"y"),
        reasoning(4, json!([]), "enc"),
        native,
    ]);
    assert_eq!(document["output"], expected);
    let usage = json!({
        "input_tokens": 14, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
        "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 23,
    });
    assert_eq!((&document["usage"], &document["status"]), (&usage, &json!("completed")));
}

#[test]
fn a_responses_stream_opens_fills_and_closes_each_item_and_repeats_them_all() {
    let fake = FakeLlm::start(FakeScript::new().reply(rich().and_redacted_thinking("enc").in_deltas(2)));
    let events = stream(&fake, RESPONSES, "hi").events();
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let told: Vec<String> = events.iter().map(responses_line).collect();
    assert_eq!(
        told,
        [
            "created",
            "in_progress",
            "0 + reasoning",
            "0 hé",
            "0 hé",
            "0 =",
            "0 -",
            "1 + message",
            "1 he",
            "1 llo",
            "1 =",
            "1 -",
            "2 + function_call",
            "2 {\"x",
            "2 \":1}",
            "2 =",
            "2 -",
            "3 + function_call",
            "3 {",
            "3 \"y",
            "3 =",
            "3 -",
            "4 + reasoning",
            "4 -",
            "completed",
        ]
    );
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done").map(|event| &event["item"]);
    assert!(done.eq(events.last().unwrap()["response"]["output"].as_array().unwrap()));
}

fn responses_line(event: &Value) -> String {
    let index = &event["output_index"];
    let name = event["type"].as_str().unwrap().strip_prefix("response.").unwrap();
    match (name, name.rsplit('.').next()) {
        ("output_item.added", _) => format!("{index} + {}", event["item"]["type"].as_str().unwrap()),
        ("output_item.done", _) => format!("{index} -"),
        (_, Some("delta")) => format!("{index} {}", event["delta"].as_str().unwrap()),
        (_, Some("done")) => format!("{index} ="),
        _ => name.to_owned(),
    }
}

#[test]
fn an_anthropic_stream_opens_fills_and_closes_each_block() {
    let fake = FakeLlm::start(FakeScript::new().reply(rich().in_deltas(2)));
    let events = stream(&fake, ANTHROPIC, "hi").events();
    let told: Vec<String> = events.iter().map(anthropic_line).collect();
    assert_eq!(
        told,
        [
            "message_start 1",
            "0 + thinking",
            "0 hé",
            "0 hé",
            "0 sig",
            "0 -",
            "1 + text",
            "1 he",
            "1 llo",
            "1 -",
            "2 + tool_use",
            "2 ",
            "2 {\"x",
            "2 \":1}",
            "2 -",
            "3 + tool_use",
            "3 ",
            "3 {",
            "3 \"y",
            "3 -",
            "message_delta 9 tool_use",
            "message_stop",
        ]
    );
}

fn anthropic_line(event: &Value) -> String {
    let index = &event["index"];
    let delta = &event["delta"];
    match event["type"].as_str().unwrap() {
        "message_start" => format!("message_start {}", event["message"]["usage"]["output_tokens"]),
        "content_block_start" => format!("{index} + {}", event["content_block"]["type"].as_str().unwrap()),
        "content_block_delta" => {
            let fields = ["text", "thinking", "signature", "partial_json"];
            format!("{index} {}", fields.iter().find_map(|field| delta[field].as_str()).unwrap())
        }
        "content_block_stop" => format!("{index} -"),
        "message_delta" => {
            let reason = delta["stop_reason"].as_str().unwrap();
            format!("message_delta {} {reason}", event["usage"]["output_tokens"])
        }
        other => other.to_owned(),
    }
}

#[test]
fn a_chat_stream_has_deltas_a_finish_and_usage_when_asked() {
    for wants_usage in [true, false] {
        let fake = FakeLlm::start(FakeScript::new().reply(rich().in_deltas(2)));
        let mut request = body(CHAT, "hi", true);
        request["stream_options"] = json!({"include_usage": wants_usage});
        let response = ask(&fake, CHAT, &request);
        assert!(response.text().ends_with("data: [DONE]\n\n"));
        let deltas: Vec<Value> = response.events().iter().map(|event| event["choices"][0]["delta"].clone()).collect();
        let mut expected = vec![
            json!({"role": "assistant", "content": "", "refusal": null}),
            json!({"reasoning_content": "hé"}),
            json!({"reasoning_content": "hé"}),
            json!({"content": "he"}),
            json!({"content": "llo"}),
            json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "a", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"x"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "\":1}"}}]}),
            json!({"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "b", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}),
            json!({"tool_calls": [{"index": 1, "function": {"arguments": "\"y"}}]}),
            json!({}),
        ];
        expected.extend(wants_usage.then_some(Value::Null));
        assert_eq!(deltas, expected);
        let usage = response.events().last().unwrap()["usage"]["completion_tokens"].clone();
        assert_eq!(usage, if wants_usage { json!(9) } else { Value::Null });
    }
}

#[test]
fn each_finish_has_its_word_in_each_protocol() {
    let unheard = FakeFinish::Unheard("moon".to_owned());
    for (reply, anthropic, chat, responses) in [
        (FakeReply::text("a"), "end_turn", "stop", "completed"),
        (FakeReply::empty(), "end_turn", "stop", "completed"),
        (FakeReply::calls([FakeCall::new("a", json!({}))]), "tool_use", "tool_calls", "completed"),
        (FakeReply::text("a").finishing(FakeFinish::Length), "max_tokens", "length", "incomplete: max_output_tokens"),
        (FakeReply::refusal("no"), "refusal", "stop", "completed"),
        (
            FakeReply::text("a").finishing(FakeFinish::Refusal),
            "refusal",
            "content_filter",
            "incomplete: content_filter",
        ),
        (FakeReply::paused("a"), "pause_turn", "stop", "in_progress"),
        (FakeReply::text("a").finishing(unheard), "moon", "moon", "moon"),
    ] {
        assert_eq!(served(ANTHROPIC, reply.clone())["stop_reason"], anthropic);
        assert_eq!(served(CHAT, reply.clone())["choices"][0]["finish_reason"], chat);
        let document = served(RESPONSES, reply.clone());
        let reason = document["incomplete_details"]["reason"].as_str().map(|reason| format!(": {reason}"));
        assert_eq!(document["status"].as_str().unwrap().to_owned() + &reason.unwrap_or_default(), responses);
        let events = stream(&FakeLlm::start(FakeScript::new().reply(reply)), RESPONSES, "hi").events();
        assert_eq!(events.last().unwrap()["response"], document);
    }
}

#[test]
fn twenty_thousand_deltas_are_twenty_thousand_chunks() {
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::repeated("word ", 20_000)));
    let response = stream(&fake, ANTHROPIC, "hi");
    assert_eq!(response.pieces.len(), 20_000 + 5);
    fake.assert_finished();
}

#[test]
fn rules_come_before_the_order_and_the_rest_after_it() {
    let fake = FakeLlm::start(
        FakeScript::new()
            .reply(FakeReply::text("first"))
            .when(|seen| seen.last_user_text().contains("weather"), FakeReply::text("rain"))
            .answer(|seen| seen.system.is_empty().then_some(()).and(None))
            .otherwise(FakeReply::text("rest")),
    );
    let told = ["hi", "the weather?", "hi", "hi"].map(|text| say(&fake, CHAT, text).json());
    let texts = told.map(|document| document["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
    assert_eq!(texts, ["first", "rain", "rest", "rest"]);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fake.assert_finished())).unwrap_err();
    assert!(failed.downcast_ref::<String>().unwrap().ends_with("\n  rule 2 never applied"));
}

#[test]
fn a_script_that_ran_out_says_so() {
    let fake = FakeLlm::start(FakeScript::new());
    assert_eq!(say(&fake, ANTHROPIC, "hi").status, 500);
    assert_eq!(fake.violations()[0].reason, "the script has no reply left");
}

#[test]
fn what_was_said_can_be_asked_for() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("x")).accept_foreign_history());
    let tool = json!({"name": "t", "description": "d", "input_schema": {"type": "object"}});
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "done", "is_error": true}]},
    ]);
    let request = json!({"model": "m", "max_tokens": 1, "system": "be", "tools": [tool], "messages": messages});
    ask(&fake, ANTHROPIC, &request);
    let function =
        json!({"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object"}}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "t", "arguments": "{\"a\":1}"}});
    let messages = json!([
        {"role": "system", "content": "be"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]);
    ask(&fake, CHAT, &json!({"model": "m", "tools": [function], "messages": messages}));
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{\"a\":1}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "done"}]},
    ]);
    let function = json!({"type": "function", "name": "t", "description": "d", "parameters": {"type": "object"}});
    ask(&fake, RESPONSES, &json!({"model": "m", "instructions": "be", "tools": [function], "input": input}));
    fake.assert_finished();
    for request in fake.requests() {
        assert_eq!(request.headers.get("content-type"), Some("application/json"));
        let seen = request.seen.unwrap();
        assert_eq!((seen.model.as_str(), seen.system.as_str(), seen.last_user_text().as_str()), ("m", "be", "go"));
        assert_eq!(seen.messages[1].calls().next(), Some(("c", "t", &json!({"a": 1}))));
        assert_eq!((seen.last_result(), seen.offers("t"), seen.offers("u")), (Some("done"), true, false));
    }
}
