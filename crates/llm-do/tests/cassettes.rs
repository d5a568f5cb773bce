//! Recorded provider traffic, decoded offline: what comes out must be what an independent parser understood, however
//! the bytes are split and whatever their line ends are.
//!
//! The recordings are not part of the repository: they are looked for where `LLM_DO_CASSETTES` points, else beside the
//! workspace.

#![allow(clippy::unwrap_used, reason = "the whole file is a test, its helpers included")]
#![allow(clippy::print_stderr, reason = "it has to say when there was nothing to test against")]

use std::path::PathBuf;

use llm_do::message::{Arguments, Finish, Message, Reply, ReplyPart, ToolResult, Usage};
use llm_do::model::frames::{EventStream, FRAME_LIMIT};
use llm_do::model::name::ModelName;
use llm_do::model::protocol::{DecodeError, Decoder, Delta, Protocol, Quirks};
use llm_do::model::provider::{PROVIDERS, ProtocolKind, Provider};
use llm_do::model::{Head, ModelError, ModelSettings};
use serde_json::Value;

struct Cassette {
    name: String,
    content: Value,
}

/// One recorded response with what is expected of it.
struct Recorded<'a> {
    cassette: &'a str,
    provider: &'static Provider,
    protocol: &'static dyn Protocol,
    head: Head,
    response: &'a Value,
    expect: &'a Value,
}

fn cassettes() -> Vec<Cassette> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cassettes");
    let folder = std::env::var_os("LLM_DO_CASSETTES").map_or_else(beside, PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("NOTICE: no recorded traffic at {}: nothing is checked against it", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let read = |path: PathBuf| {
        let content = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        Cassette { name: path.file_stem().unwrap().to_string_lossy().into_owned(), content }
    };
    paths.into_iter().map(read).collect()
}

/// The responses of a cassette whose protocol is translated here.
fn recorded(cassette: &Cassette) -> Vec<Recorded<'_>> {
    let responses = cassette.content["expect"]["responses"].as_array().unwrap();
    responses.iter().filter_map(|expect| one(cassette, expect)).collect()
}

fn one<'a>(cassette: &'a Cassette, expect: &'a Value) -> Option<Recorded<'a>> {
    let kind = match expect["protocol"].as_str().unwrap() {
        "anthropic" => ProtocolKind::Anthropic,
        "chat" => ProtocolKind::OpenAiChat,
        "responses" => ProtocolKind::OpenAiResponses,
        "gemini" => ProtocolKind::Gemini,
        unknown => panic!("unknown protocol {unknown}"),
    };
    let protocol = kind.protocol()?;
    let index = usize::try_from(expect["exchange"].as_u64().unwrap()).unwrap();
    let exchange = &cassette.content["exchanges"][index];
    let host = exchange["request"]["host"].as_str().unwrap();
    let rows = || PROVIDERS.iter().filter(|row| row.protocol == kind);
    let provider = rows().find(|row| row.base_url.contains(host)).or_else(|| rows().next()).unwrap();
    let body = &exchange["request"]["body"];
    let head = Head {
        agent: "test".into(),
        model: ModelName { provider: provider.name.into(), model: body["model"].as_str().unwrap_or("m").into() },
        instructions: String::new(),
        tools: Vec::new(),
        server_tools: Vec::new(),
        settings: ModelSettings::default(),
        output: None,
        stream: expect["stream"] == true,
    };
    Some(Recorded { cassette: &cassette.name, provider, protocol, head, response: &exchange["response"], expect })
}

impl Recorded<'_> {
    /// What the recordings' expectations leave in the text stays there.
    fn quirks(&self) -> Quirks {
        Quirks { inline_thinking: Quirks::NONE.inline_thinking, ..self.provider.quirks }
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        self.protocol.decoder(&self.head, &self.quirks(), 7)
    }

    fn stream(&self, bytes: &[u8], chunk: impl FnMut() -> usize) -> (Result<Reply, DecodeError>, Told) {
        let (mut decoder, mut told, mut chunk) = (self.decoder(), Told::default(), chunk);
        let mut frames = EventStream::new(FRAME_LIMIT);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(chunk().clamp(1, rest.len()));
            rest = after;
            if let Err(error) = frames.push(piece, |frame| decoder.frame(frame, &mut |delta| told.note(delta))) {
                return (Err(error), told);
            }
        }
        (decoder.finish(), told)
    }

    fn document(&self, body: &[u8]) -> (Result<Reply, DecodeError>, Told) {
        let (mut decoder, mut told) = (self.decoder(), Told::default());
        let read = decoder.document(body, &mut |delta| told.note(delta));
        (read.and_then(|()| decoder.finish()), told)
    }

    fn decode(&self) -> (Result<Reply, ModelError>, Told) {
        let status = u16::try_from(self.response["status"].as_u64().unwrap()).unwrap();
        let body = match (&self.response["body"], self.response["text"].as_str()) {
            (Value::Null, Some(text)) => text.as_bytes().to_vec(),
            (body, _) => serde_json::to_vec(body).unwrap(),
        };
        if status >= 400 {
            return (Err(self.protocol.fault(status, &body)), Told::default());
        }
        let (reply, told) = match self.response["sse"].as_str() {
            Some(sse) => self.stream(sse.as_bytes(), || usize::MAX),
            None => self.document(&body),
        };
        (reply.map_err(ModelError::from), told)
    }
}

/// What the deltas add up to.
#[derive(Debug, Default, PartialEq)]
struct Told {
    text: String,
    thinking: String,
    server_tools: usize,
}

impl Told {
    fn note(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Text(text) => self.text.push_str(text),
            Delta::Thinking(text) => self.thinking.push_str(text),
            Delta::ServerTool(_) => self.server_tools += 1,
        }
    }
}

#[test]
fn every_recorded_response_is_understood_as_expected() {
    let cassettes = cassettes();
    let mut checked = 0;
    for cassette in &cassettes {
        for recorded in recorded(cassette) {
            checked += 1;
            let place = format!("{} {}", recorded.cassette, recorded.expect["exchange"]);
            let (outcome, told) = recorded.decode();
            match outcome {
                Ok(reply) => {
                    assert_eq!(recorded.expect["error"], Value::Null, "{place}");
                    check_reply(&reply, &told, recorded.expect, &place);
                }
                Err(error) => check_error(&error, &recorded.expect["error"], &place),
            }
        }
    }
    eprintln!("{checked} recorded responses of {} cassettes", cassettes.len());
    assert!(checked > 0 || cassettes.is_empty(), "no recording is of a protocol that is translated here");
}

fn check_reply(reply: &Reply, told: &Told, expect: &Value, place: &str) {
    assert_eq!(reply.text(), expect["text"].as_str().unwrap(), "{place}");
    assert_eq!(told.text, reply.text(), "{place}");
    let thoughts = reply.parts.iter().filter_map(|part| match part {
        ReplyPart::Thinking(part) => Some(part),
        _ => None,
    });
    let thinking: String = thoughts.clone().map(|part| part.text.as_str()).collect();
    assert_eq!(thinking, expect["thinking"]["text"].as_str().unwrap(), "{place}");
    assert_eq!(told.thinking, thinking, "{place}");
    let mut private = Vec::new();
    thoughts.filter_map(|part| part.private.as_ref()).for_each(|raw| private_blocks(&raw.to().unwrap(), &mut private));
    let has = |name: &str| private.iter().any(|block| block[name].as_str().is_some_and(|text| !text.is_empty()));
    let redacted =
        private.iter().any(|block| block["type"] == "redacted_thinking" || block["type"] == "reasoning.encrypted");
    let signed = has("signature") || private.iter().any(|block| block["type"] == "reasoning.encrypted");
    assert_eq!(signed, expect["thinking"]["signature"] == true, "{place}");
    assert_eq!(redacted, expect["thinking"]["redacted"] == true, "{place}");
    check_calls(reply, &expect["tool_calls"], place);
    check_usage(&reply.usage, &expect["usage"], place);
    let finish: Value = serde_json::to_value(reply.finish).unwrap();
    assert_eq!(finish, expect["finish"], "{place}");
    let refusals = reply.parts.iter().filter_map(|part| match part {
        ReplyPart::Refusal(part) => Some(part.text.as_str()),
        _ => None,
    });
    assert_eq!(refusals.collect::<String>(), expect["refusal"].as_str().unwrap_or_default(), "{place}");
    let used = expect["server_tools"].as_array().unwrap().iter().filter(|tool| tool["type"] != "usage").count();
    let shown = reply.parts.iter().filter(|part| matches!(part, ReplyPart::ServerTool(_))).count();
    assert_eq!((shown, told.server_tools), (used, used), "{place}");
    let kept = reply.parts.iter().any(|part| matches!(part, ReplyPart::Text(text) if text.private.is_some()));
    assert_eq!(kept, expect["citations"] == true, "{place}");
}

fn check_calls(reply: &Reply, expected: &Value, place: &str) {
    let expected = expected.as_array().unwrap();
    assert_eq!(reply.tool_calls().count(), expected.len(), "{place}");
    for (call, expected) in reply.tool_calls().zip(expected) {
        match expected["id"].as_str().filter(|id| !id.is_empty()) {
            Some(id) => assert_eq!(call.id, id, "{place}"),
            None => assert!(call.id.starts_with("call_7_"), "{place}: {}", call.id),
        }
        assert_eq!(call.tool, expected["name"].as_str().unwrap(), "{place}");
        match &call.arguments {
            Arguments::Object(object) => assert_eq!(object.to::<Value>().unwrap(), expected["args"], "{place}"),
            Arguments::Malformed(text) => {
                assert_eq!(expected["malformed"], true, "{place}: {text}");
                assert_eq!(text, expected["args_raw"].as_str().unwrap(), "{place}");
            }
        }
    }
}

fn check_usage(usage: &Usage, expected: &Value, place: &str) {
    let count = |name: &str| expected[name].as_u64().unwrap_or(0);
    let expected = Usage {
        requests: 1,
        input_tokens: count("input_total"),
        output_tokens: count("output"),
        cache_read_tokens: count("cache_read"),
        cache_write_tokens: count("cache_write"),
        reasoning_tokens: count("reasoning"),
        cost_usd: None,
    };
    assert_eq!(*usage, expected, "{place}");
}

fn check_error(error: &ModelError, expected: &Value, place: &str) {
    let said = expected["message"].as_str().unwrap_or_else(|| panic!("{place}: {error}"));
    assert!(error.to_string().contains(said), "{place}: {error}");
    let consequence = match error {
        ModelError::Wait(_) => ["rate_limit", "server", "overloaded", "timeout"].as_slice(),
        ModelError::Authenticate(_) => &["authentication", "permission", "billing"],
        ModelError::FixRequest(_) => &["invalid_request", "not_found"],
        ModelError::ContextTooLong(_) => &["too_large", "invalid_request"],
        ModelError::GiveUp(fault) => {
            assert_eq!(fault.kind.as_deref(), Some("tool_use_failed"), "{place}");
            &["invalid_request"]
        }
    };
    assert!(consequence.contains(&expected["class"].as_str().unwrap()), "{place}: {error:?} {expected}");
    assert_eq!(matches!(error, ModelError::Wait(_)), expected["retryable"] == true, "{place}");
}

#[test]
fn splitting_and_line_ends_change_nothing() {
    let mut random = 1_u64;
    let mut chunk = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 58).unwrap()
    };
    for cassette in cassettes() {
        for recorded in recorded(&cassette) {
            let Some(sse) = recorded.response["sse"].as_str() else { continue };
            let whole = recorded.stream(sse.as_bytes(), || usize::MAX);
            let plain = sse.replace("\r\n", "\n");
            for end in ["\n", "\r\n", "\r"] {
                let text = format!("\u{FEFF}: comment{end}{}", plain.replace('\n', end));
                assert_eq!(recorded.stream(text.as_bytes(), &mut chunk), whole, "{} {end:?}", recorded.cassette);
                assert_eq!(recorded.stream(text.as_bytes(), || 1), whole, "{} {end:?}", recorded.cassette);
            }
        }
    }
}

#[test]
fn a_stream_that_is_cut_is_never_a_reply() {
    for cassette in cassettes() {
        for recorded in recorded(&cassette) {
            let Some(sse) = recorded.response["sse"].as_str() else { continue };
            let (Ok(whole), _) = recorded.stream(sse.as_bytes(), || usize::MAX) else { continue };
            for (end, _) in sse.match_indices('\n') {
                let (outcome, _) = recorded.stream(&sse.as_bytes()[..end], || usize::MAX);
                let complete = outcome == Ok(whole.clone());
                assert!(complete || outcome == Err(DecodeError::Cut), "{} at {end}: {outcome:?}", recorded.cassette);
            }
        }
    }
}

/// Objects anywhere in a value that a provider signed or made itself.
fn private_blocks(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
            let is_private = ["thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use"].contains(&kind)
                || (kind.ends_with("_tool_result") && fields.contains_key("tool_use_id"))
                || kind.starts_with("reasoning.");
            if is_private {
                found.push(value.clone());
            } else {
                fields.values().for_each(|value| private_blocks(value, found));
            }
        }
        Value::Array(values) => values.iter().for_each(|value| private_blocks(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The private blocks of a reply as a document would have carried them.
fn expected_blocks(reply: &Reply) -> Vec<Value> {
    let private = reply.parts.iter().filter_map(|part| match part {
        ReplyPart::Thinking(part) => part.private.as_ref(),
        ReplyPart::ServerTool(part) => part.private.as_ref(),
        ReplyPart::Text(_) | ReplyPart::ToolCall(_) | ReplyPart::Refusal(_) => None,
    });
    let mut found = Vec::new();
    private.for_each(|raw| private_blocks(&raw.to().unwrap(), &mut found));
    found
}

#[test]
fn private_blocks_go_back_to_their_provider_as_they_came_and_to_no_other() {
    for cassette in cassettes() {
        for recorded in recorded(&cassette) {
            let (Ok(reply), _) = recorded.decode() else { continue };
            let mut expected = expected_blocks(&reply);
            if recorded.response["sse"].is_null() {
                let mut came = Vec::new();
                private_blocks(&recorded.response["body"], &mut came);
                assert_eq!(expected, came, "{}", recorded.cassette);
            }
            let sent = encoded(&recorded, &reply);
            let mut returned = Vec::new();
            private_blocks(&sent["messages"], &mut returned);
            if reply.text().is_empty() && reply.tool_calls().next().is_none() && returned.is_empty() {
                expected.clear(); // a message that says nothing else is not sent at all by Chat Completions
            }
            assert_eq!(returned, expected, "{}", recorded.cassette);

            let foreign = Reply { model: "elsewhere:m".into(), ..reply.clone() };
            let sent = encoded(&recorded, &foreign);
            returned.clear();
            private_blocks(&sent["messages"], &mut returned);
            assert_eq!(returned, Vec::<Value>::new(), "{}", recorded.cassette);
            let kept = sent["messages"].to_string();
            let texts = reply.parts.iter().filter_map(|part| match part {
                ReplyPart::Text(part) if !part.text.trim().is_empty() => Some(&part.text),
                _ => None,
            });
            texts.for_each(|text| assert!(kept.contains(Value::from(text.as_str()).to_string().trim_matches('"'))));
            reply.tool_calls().for_each(|call| assert!(kept.contains(&call.tool)));
        }
    }
}

/// Signed thinking anywhere in a value, as (signature, text).
fn signed_thinking(value: &Value) -> Vec<(Value, Value)> {
    let mut blocks = Vec::new();
    private_blocks(value, &mut blocks);
    blocks.retain(|block| block["type"] == "thinking");
    blocks.into_iter().map(|block| (block["signature"].clone(), block["thinking"].clone())).collect()
}

#[test]
fn signed_thinking_that_the_recorded_client_returned_is_returned_here_too() {
    for cassette in cassettes() {
        let mut ours = Vec::new();
        for recorded in recorded(&cassette) {
            let index = usize::try_from(recorded.expect["exchange"].as_u64().unwrap()).unwrap();
            for theirs in signed_thinking(&cassette.content["exchanges"][index]["request"]["body"]) {
                assert!(ours.contains(&theirs), "{} {index}: {theirs:?}", recorded.cassette);
            }
            if let (Ok(reply), _) = recorded.decode() {
                ours.extend(signed_thinking(&encoded(&recorded, &reply)));
            }
        }
    }
}

fn encoded(recorded: &Recorded<'_>, reply: &Reply) -> Value {
    let mut encoder = recorded.protocol.encoder(&recorded.head, &recorded.quirks());
    encoder.push(&Message::user("question"));
    encoder.push(&Message::Assistant(reply.clone()));
    let answer = |call: &llm_do::message::ToolCall| ToolResult {
        id: call.id.clone(),
        tool: call.tool.clone(),
        outcome: Err("no".to_owned()),
    };
    let answers: Vec<ToolResult> = reply.tool_calls().map(answer).collect();
    if !answers.is_empty() {
        encoder.push(&Message::tool_results(answers));
    } else if reply.finish != Finish::Pause {
        encoder.push(&Message::user("and again"));
    }
    serde_json::from_slice(&encoder.body()).unwrap()
}
