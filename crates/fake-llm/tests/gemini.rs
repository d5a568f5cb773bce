//! What Gemini says in its own way, and what it alone refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use client::{GEMINI, ask, connect, exchange, request_with, say, stream};
use fake_llm::{Constant, FakeCall, FakeFinish, FakeLlm, FakeReply, FakeScript, FakeUsage};
use serde_json::{Value, json};

const THIRD: &str = "/v1beta/models/gemini-3-flash:generateContent";

fn rich() -> FakeReply {
    FakeReply::thinking("héhé", "sig")
        .and_text("hello")
        .and_thinking("", "on the call")
        .and_calls([FakeCall::new("a", json!({"x": 1})).with_id("c1"), FakeCall::malformed("b", "{\"y").with_id("c2")])
        .with_usage(FakeUsage { cache_read: 3, cache_write: 4, reasoning: 2, ..FakeUsage::new(7, 9) })
}

fn served(reply: FakeReply) -> Value {
    say(&FakeLlm::start(FakeScript::new().reply(reply)), GEMINI, "hi").json()
}

#[track_caller]
fn refused(path: &str, request: &Value, reason: &str) {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("x")).accept_foreign_history());
    check_refusal(&fake, path, request, reason);
}

#[track_caller]
fn check_refusal(fake: &FakeLlm, path: &str, request: &Value, reason: &str) {
    let response = ask(fake, path, request);
    assert_eq!(response.status, 400, "{reason}: {request}");
    let error = &response.json()["error"];
    assert!(error["message"].as_str().unwrap().contains(reason), "{error} does not contain {reason:?}");
    assert_eq!((&error["code"], &error["status"]), (&json!(400), &json!("INVALID_ARGUMENT")));
}

#[track_caller]
fn accepted(path: &str, request: &Value) {
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("x")).accept_foreign_history());
    let response = ask(&fake, path, request);
    assert_eq!(response.status, 200, "{}", response.text());
    fake.assert_finished();
}

fn user(parts: impl Into<Value>) -> Value {
    json!({"role": "user", "parts": parts.into()})
}

fn model(parts: impl Into<Value>) -> Value {
    json!({"role": "model", "parts": parts.into()})
}

fn hi() -> Value {
    user(json!([{"text": "hi"}]))
}

fn call(id: &str, name: &str) -> Value {
    json!({"functionCall": {"id": id, "name": name, "args": {}}})
}

fn response(id: &str, name: &str) -> Value {
    json!({"functionResponse": {"id": id, "name": name, "response": {"output": "r"}}})
}

fn declared(mut declaration: Value) -> Value {
    declaration["name"] = "t".into();
    json!({"contents": [hi()], "tools": [{"functionDeclarations": [declaration]}]})
}

#[test]
fn a_document_has_every_part_in_order() {
    assert_eq!(
        served(rich()),
        json!({
            "candidates": [{
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "héhé", "thought": true, "thoughtSignature": "sig"},
                        {"text": "hello"},
                        {"functionCall": {"id": "c1", "name": "a", "args": {"x": 1}}, "thoughtSignature": "on the call"},
                        {"functionCall": {"id": "c2", "name": "b", "args": "{\"y"}},
                    ],
                },
                "index": 0, "finishReason": "STOP",
            }],
            "usageMetadata": {
                "promptTokenCount": 14, "candidatesTokenCount": 7, "totalTokenCount": 23, "cachedContentTokenCount": 3,
                "thoughtsTokenCount": 2,
            },
            "modelVersion": "m", "responseId": "fake00000001",
        })
    );
    let parts = &served(FakeReply::text("a").and_thinking("", "s"))["candidates"][0]["content"]["parts"];
    assert_eq!(*parts, json!([{"text": "a"}, {"text": "", "thoughtSignature": "s"}]));
}

#[test]
fn a_stream_cuts_texts_and_keeps_calls_whole() {
    let fake = FakeLlm::start(FakeScript::new().reply(rich().in_deltas(2)));
    let events = stream(&fake, GEMINI, "hi").events();
    let parts: Vec<Value> = events.iter().map(|event| event["candidates"][0]["content"]["parts"][0].clone()).collect();
    let expected = [
        json!({"text": "héhé", "thought": true, "thoughtSignature": "sig"}),
        json!({"text": "he"}),
        json!({"text": "llo"}),
        json!({"functionCall": {"id": "c1", "name": "a", "args": {"x": 1}}, "thoughtSignature": "on the call"}),
        json!({"functionCall": {"id": "c2", "name": "b", "args": "{\"y"}}),
        json!({"text": ""}),
    ];
    assert_eq!(parts, expected);
    let reasons: Vec<bool> = events.iter().map(|event| event["candidates"][0]["finishReason"] == "STOP").collect();
    assert_eq!(reasons, [false, false, false, false, false, true]);
}

#[test]
fn each_finish_has_its_word() {
    for (reply, reason) in [
        (FakeReply::text("a").finishing(FakeFinish::Length), "MAX_TOKENS"),
        (FakeReply::refusal("no"), "SAFETY"),
        (FakeReply::paused("a"), "STOP"),
        (FakeReply::text("a").finishing(FakeFinish::Unheard("MOON".to_owned())), "MOON"),
    ] {
        assert_eq!(served(reply)["candidates"][0]["finishReason"], reason);
    }
    assert_eq!(served(FakeReply::refusal("no"))["candidates"][0]["finishMessage"], "no");
}

#[test]
fn a_constant_server_streams_by_the_path() {
    let fake = FakeLlm::start(Constant::tool_loop(
        1,
        FakeReply::calls([FakeCall::new("noop", json!({}))]),
        FakeReply::text("done"),
    ));
    assert_eq!(say(&fake, GEMINI, "hi").json()["candidates"][0]["content"]["parts"][0]["functionCall"]["name"], "noop");
    assert!(stream(&fake, GEMINI, "call_loop_00000000").text().starts_with("data: "));
    assert!(say(&fake, GEMINI, "call_loop_00000000").text().contains("\"done\""));
}

#[test]
fn the_key_and_the_form_of_a_stream_are_required() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("x")));
    let body = json!({"contents": [hi()]}).to_string();
    let keyless = request_with(GEMINI, "content-type: application/json", &body, true);
    let response = exchange(&mut connect(&fake), &keyless);
    assert_eq!((response.status, &response.json()["error"]["status"]), (401, &json!("UNAUTHENTICATED")));
    let path = GEMINI.replace(":generate", ":streamGenerate");
    check_refusal(&fake, &path, &json!({"contents": [hi()]}), "only alt=sse");
}

#[test]
fn contents_have_roles_in_turn_and_parts_that_are_one_thing() {
    let of = |contents: Value| json!({"contents": contents});
    for (request, reason) in [
        (json!({}), "contents: a list with at least one element"),
        (of(json!([])), "contents: a list with at least one element"),
        (of(json!([user(json!([]))])), "contents[0].parts: a list with at least one element"),
        (of(json!([user(json!([{}]))])), "required oneof field 'data'"),
        (of(json!([user(json!([{"text": "a", "inlineData": {}}]))])), "required oneof field 'data'"),
        (of(json!([user(json!([{"text": "a", "type": "text"}]))])), "Unknown name \"type\""),
        (of(json!([{"role": "system", "parts": [{"text": "a"}]}])), "role: must be user or model"),
        (of(json!([hi(), hi()])), "roles must alternate"),
        (of(json!([model(json!([{"text": "a"}])), hi()])), "must begin and end with the user role"),
        (of(json!([hi(), model(json!([{"text": "a"}]))])), "must begin and end with the user role"),
        (of(json!([user(json!([call("a", "t")]))])), "a user cannot call"),
        (of(json!([hi(), model(json!([response("a", "t")])), hi()])), "a model cannot answer"),
        (json!({"contents": [hi()], "model": "m"}), "Unknown name \"model\""),
        (json!({"contents": [hi()], "systemInstruction": {"parts": []}}), "system_instruction.parts"),
    ] {
        refused(GEMINI, &request, reason);
    }
}

#[test]
fn every_call_is_answered_once_right_after_it() {
    let history = |calls: Value, results: Value| json!({"contents": [hi(), model(calls), user(results)]});
    let nameless = |mut part: Value| {
        part.as_object_mut()
            .unwrap()
            .values_mut()
            .for_each(|fields| drop(fields.as_object_mut().unwrap().remove("id")));
        part
    };
    let two = json!([call("a", "t"), call("b", "u")]);
    for (calls, results, reason) in [
        (two.clone(), json!([response("a", "t")]), "tool call \"b\" has no result"),
        (two.clone(), json!([{"text": "later"}]), "tool call \"a\" has no result"),
        (two.clone(), json!([response("a", "t"), response("a", "t"), response("b", "u")]), "given twice"),
        (two.clone(), json!([response("a", "t"), response("c", "u")]), "which no call before it has"),
        (two.clone(), json!([response("a", "u"), response("b", "u")]), "\"u\" answers a call of \"t\""),
        (json!([nameless(call("", "t"))]), json!([nameless(response("", "v"))]), "which no call before it has"),
        (
            json!([call("a", "t")]),
            json!([{"functionResponse": {"id": "a", "name": "t", "response": "r"}}]),
            "response: an object",
        ),
    ] {
        refused(GEMINI, &history(calls, results), reason);
    }
    accepted(GEMINI, &history(two, json!([response("b", "u"), response("a", "t"), {"text": "and"}])));
    let twins = json!([nameless(call("", "t")), nameless(call("", "t"))]);
    accepted(GEMINI, &history(twins, json!([nameless(response("", "t")), nameless(response("", "t"))])));
}

#[test]
fn signatures_come_back_on_their_part_while_the_tool_loop_is_open() {
    let fake = || {
        let calls = [FakeCall::new("t", json!({})).with_id("a"), FakeCall::new("t", json!({})).with_id("b")];
        let reply = FakeReply::thinking("hm", "sig").and_thinking("", "on the call").and_calls(calls);
        let fake = FakeLlm::start(FakeScript::new().reply(reply).otherwise(FakeReply::text("x")));
        say(&fake, THIRD, "hi");
        fake
    };
    let signed = |mut part: Value, signature: &str| {
        part["thoughtSignature"] = signature.into();
        part
    };
    let thought = |text: &str, signature: &str| signed(json!({"text": text, "thought": true}), signature);
    let history = |parts: Value| {
        let results = json!([response("a", "t"), response("b", "t")]);
        json!({"contents": [hi(), model(parts), user(results)]})
    };
    let (first, second) = (call("a", "t"), call("b", "t"));
    let whole = json!([thought("hm", "sig"), signed(first.clone(), "on the call"), second]);
    let answered = ask(&fake(), THIRD, &history(whole));
    assert_eq!(answered.status, 200, "{}", answered.text());
    let owed = "must be returned while the tool loop is open";
    for (parts, reason) in [
        (json!([signed(first.clone(), "on the call"), second]), owed),
        (json!([thought("hm", "sig"), signed(first.clone(), "skip_thought_signature_validator"), second]), owed),
        (json!([thought("hm", "sig"), first, second]), "missing a thought_signature"),
        (json!([thought("hm", "sig"), first, signed(second.clone(), "on the call")]), "thinking must come before"),
        (json!([thought("HM", "sig"), signed(first.clone(), "on the call"), second]), "cannot be modified"),
        (json!([thought("hm", "sig"), signed(first.clone(), "forged"), second]), "invalid signature"),
    ] {
        check_refusal(&fake(), THIRD, &history(parts), reason);
    }
}

#[test]
fn parts_of_the_providers_own_tools_come_back_unmodified() {
    let code = json!({"executableCode": {"code": "1"}, "thoughtSignature": "s"});
    let start = || {
        let fake = FakeLlm::start(
            FakeScript::new()
                .reply(FakeReply::empty().and_native(code.clone()).and_text("x"))
                .otherwise(FakeReply::text("y")),
        );
        say(&fake, GEMINI, "hi");
        fake
    };
    let history = |part: &Value| json!({"contents": [hi(), model(json!([part, {"text": "x"}])), hi()]});
    assert_eq!(ask(&start(), GEMINI, &history(&code)).status, 200);
    let mut changed = code.clone();
    changed["thoughtSignature"] = "t".into();
    check_refusal(&start(), GEMINI, &history(&changed), "modified or never served");
}

#[test]
fn schemas_are_refused_for_what_their_kind_does_not_know() {
    let object = |property: Value| json!({"type": "object", "properties": {"p": property}});
    for (property, reason) in [
        (json!({"type": "integer", "exclusiveMinimum": 0}), "Unknown name \"exclusiveMinimum\""),
        (json!({"const": "a"}), "Unknown name \"const\""),
        (json!({"$ref": "#/$defs/A"}), "Unknown name \"$ref\""),
        (json!({"type": ["string", "null"]}), "Proto field is not repeating"),
        (json!({"type": "array", "items": {"enum": [1]}}), "Invalid value (TYPE_STRING)"),
    ] {
        refused(GEMINI, &declared(json!({"parameters": object(property)})), reason);
    }
    for (property, reason) in [
        (json!({"$ref": "#/$defs/A"}), "reference to undefined schema"),
        (json!({"$ref": "#/properties/p", "type": "string"}), "was set alongside unsupported fields"),
    ] {
        refused(GEMINI, &declared(json!({"parametersJsonSchema": object(property)})), reason);
    }
    refused(GEMINI, &declared(json!({"parameters": {}, "parametersJsonSchema": {}})), "mutually exclusive");
    refused(GEMINI, &declared(json!({"parametersJsonSchema": {"type": "string"}})), "must be of type object");
    accepted(GEMINI, &declared(json!({"parameters": {"type": "OBJECT", "any_of": [{"type": "STRING"}]}})));
    let known = json!({"type": ["integer", "null"], "exclusiveMinimum": 0, "const": 1});
    accepted(GEMINI, &declared(json!({"parameters_json_schema": object(known)})));
}

#[test]
fn generations_differ_in_what_they_can_do_at_once() {
    let json_wanted = json!({"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}});
    let with = |mut request: Value, field: &str, value: &Value| {
        request[field] = value.clone();
        request
    };
    let plain = || json!({"contents": [hi()]});
    let tool = json!({"functionDeclarations": [{"name": "t"}]});
    let mixed = with(plain(), "tools", &json!([tool, {"googleSearch": {}}]));
    let asked = with(with(plain(), "tools", &json!([tool])), "generationConfig", &json_wanted);
    refused(GEMINI, &asked, "response mime type");
    accepted(THIRD, &asked);
    accepted(GEMINI, &with(plain(), "generationConfig", &json_wanted));
    refused(THIRD, &mixed, "include_server_side_tool_invocations");
    accepted(THIRD, &with(mixed.clone(), "toolConfig", &json!({"includeServerSideToolInvocations": true})));
    refused(GEMINI, &with(mixed, "toolConfig", &json!({"includeServerSideToolInvocations": true})), "Built-in tools");
    let thinking = |config: Value| with(plain(), "generationConfig", &json!({"thinkingConfig": config}));
    refused(GEMINI, &thinking(json!({"thinkingLevel": "low"})), "Thinking level is not supported");
    refused(THIRD, &thinking(json!({"thinkingLevel": "low", "thinkingBudget": 1})), "only one of");
    accepted(THIRD, &thinking(json!({"thinkingLevel": "low", "includeThoughts": true})));
    let mut file = response("a", "t");
    file["functionResponse"]["parts"] = json!([{"inlineData": {"mimeType": "image/png", "data": "AQ=="}}]);
    let mut signed = call("a", "t");
    signed["thoughtSignature"] = "s".into();
    let history = json!({"contents": [hi(), model(json!([signed])), user(json!([file]))]});
    refused(GEMINI, &history, "function_response.parts is not supported");
    accepted(THIRD, &history);
}

#[test]
fn what_was_said_can_be_asked_for() {
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("x")).accept_foreign_history());
    let request = json!({
        "systemInstruction": {"parts": [{"text": "be"}]},
        "tools": [{"functionDeclarations": [{"name": "t", "description": "d"}]}],
        "contents": [hi(), model(json!([call("c", "t")])), user(json!([response("c", "t")]))],
    });
    assert_eq!(ask(&fake, &client::streaming(GEMINI), &request).status, 200);
    let seen = fake.requests()[0].seen.clone().unwrap();
    assert_eq!((seen.model.as_str(), seen.system.as_str(), seen.last_user_text().as_str()), ("m", "be", "hi"));
    assert_eq!(seen.messages[1].calls().next(), Some(("c", "t", &json!({}))));
    assert_eq!((seen.last_result(), seen.offers("t"), seen.offers("u")), (Some("r"), true, false));
}
