//! What is scripted is what comes, in the words of each protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use client::{ANTHROPIC, CHAT, ask, body, say, stream};
use fake_llm::{Call, FakeLlm, Finish, Reply, Script, Usage};
use serde_json::{Value, json};

fn served(path: &str, reply: Reply) -> Value {
    say(&FakeLlm::start(Script::new().reply(reply)), path, "hi").json()
}

fn rich() -> Reply {
    Reply::thinking("héhé", "sig")
        .and_text("hello")
        .and_calls([Call::new("a", json!({"x": 1})).with_id("c1"), Call::malformed("b", "{\"y").with_id("c2")])
        .with_usage(Usage { cache_read: 3, cache_write: 4, reasoning: 2, ..Usage::new(7, 9) })
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
fn an_anthropic_stream_opens_fills_and_closes_each_block() {
    let fake = FakeLlm::start(Script::new().reply(rich().in_deltas(2)));
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
        let fake = FakeLlm::start(Script::new().reply(rich().in_deltas(2)));
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
    let unheard = Finish::Unheard("moon".to_owned());
    for (reply, anthropic, chat) in [
        (Reply::text("a"), "end_turn", "stop"),
        (Reply::empty(), "end_turn", "stop"),
        (Reply::calls([Call::new("a", json!({}))]), "tool_use", "tool_calls"),
        (Reply::text("a").finishing(Finish::Length), "max_tokens", "length"),
        (Reply::refusal("no"), "refusal", "stop"),
        (Reply::text("a").finishing(Finish::Refusal), "refusal", "content_filter"),
        (Reply::paused("a"), "pause_turn", "stop"),
        (Reply::text("a").finishing(unheard), "moon", "moon"),
    ] {
        assert_eq!(served(ANTHROPIC, reply.clone())["stop_reason"], anthropic);
        assert_eq!(served(CHAT, reply)["choices"][0]["finish_reason"], chat);
    }
}

#[test]
fn twenty_thousand_deltas_are_twenty_thousand_chunks() {
    let fake = FakeLlm::start(Script::new().reply(Reply::repeated("word ", 20_000)));
    let response = stream(&fake, ANTHROPIC, "hi");
    assert_eq!(response.pieces.len(), 20_000 + 5);
    fake.assert_finished();
}

#[test]
fn rules_come_before_the_order_and_the_rest_after_it() {
    let fake = FakeLlm::start(
        Script::new()
            .reply(Reply::text("first"))
            .when(|seen| seen.last_user_text().contains("weather"), Reply::text("rain"))
            .answer(|seen| seen.system.is_empty().then_some(()).and(None))
            .otherwise(Reply::text("rest")),
    );
    let told = ["hi", "the weather?", "hi", "hi"].map(|text| say(&fake, CHAT, text).json());
    let texts = told.map(|document| document["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
    assert_eq!(texts, ["first", "rain", "rest", "rest"]);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fake.assert_finished())).unwrap_err();
    assert!(failed.downcast_ref::<String>().unwrap().ends_with("\n  rule 2 never applied"));
}

#[test]
fn a_script_that_ran_out_says_so() {
    let fake = FakeLlm::start(Script::new());
    assert_eq!(say(&fake, ANTHROPIC, "hi").status, 500);
    assert_eq!(fake.violations()[0].reason, "the script has no reply left");
}

#[test]
fn what_was_said_can_be_asked_for() {
    let fake = FakeLlm::start(Script::new().otherwise(Reply::text("x")).accept_foreign_history());
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
    fake.assert_finished();
    for request in fake.requests() {
        assert_eq!(request.headers.get("content-type"), Some("application/json"));
        let seen = request.seen.unwrap();
        assert_eq!((seen.model.as_str(), seen.system.as_str(), seen.last_user_text().as_str()), ("m", "be", "go"));
        assert_eq!(seen.messages[1].calls().next(), Some(("c", "t", &json!({"a": 1}))));
        assert_eq!((seen.last_result(), seen.offers("t"), seen.offers("u")), (Some("done"), true, false));
    }
}
