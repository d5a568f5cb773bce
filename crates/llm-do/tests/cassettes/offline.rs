//! Recordings decoded without a connection: however the bytes are split and whatever their line ends are.

use llm_do::http::frames::{EventStream, FRAME_LIMIT};
use llm_do::message::{Finish, Message, Reply, ReplyPart, ToolResult};
use llm_do::model::name::ModelName;
use llm_do::model::protocol::{DecodeError, Decoder, Delta, Protocol, Quirks};
use llm_do::model::provider::ProtocolKind;
use llm_do::model::{Head, ModelError, ModelSettings};
use serde_json::{Value, json};

use crate::cassette::{Cassette, Recorded, cassettes};
use crate::expectation::{Told, private_of};
use crate::request::Asked;

/// A recorded response whose protocol is translated here.
struct Decodable<'a> {
    recorded: Recorded<'a>,
    protocol: &'static dyn Protocol,
    head: Head,
}

/// As many messages as a request may have had: ids that the provider leaves out are made from it.
const TURN: usize = 7;

fn decodable(cassette: &Cassette) -> impl Iterator<Item = Decodable<'_>> {
    cassette.recorded().filter_map(|recorded| {
        let model = Asked::read(recorded.kind, recorded.request).model;
        let head = Head {
            agent: "test".into(),
            model: ModelName { provider: recorded.provider.name.into(), model },
            instructions: String::new(),
            tools: Vec::new(),
            server_tools: Vec::new(),
            settings: ModelSettings::default(),
            output: None,
            may_call: true,
            stream: recorded.expect["stream"] == true,
        };
        Some(Decodable { protocol: recorded.protocol()?, recorded, head })
    })
}

impl Decodable<'_> {
    /// What the recordings' expectations leave in the text stays there.
    fn quirks(&self) -> Quirks {
        Quirks { inline_thinking: Quirks::NONE.inline_thinking, ..self.recorded.provider.quirks }
    }

    fn sse(&self) -> Option<&str> {
        self.recorded.response["sse"].as_str()
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        self.protocol.decoder(&self.head, &self.quirks(), TURN)
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
        let status = u16::try_from(self.recorded.response["status"].as_u64().unwrap()).unwrap();
        let body = match (&self.recorded.response["body"], self.recorded.response["text"].as_str()) {
            (Value::Null, Some(text)) => text.as_bytes().to_vec(),
            (body, _) => serde_json::to_vec(body).unwrap(),
        };
        if status >= 400 {
            return (Err(self.protocol.fault(status, &body)), Told::default());
        }
        let (reply, told) = match self.recorded.response["sse"].as_str() {
            Some(sse) => self.stream(sse.as_bytes(), || usize::MAX),
            None => self.document(&body),
        };
        (reply.map_err(ModelError::from), told)
    }
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

/// What was recorded in a project of Google Cloud belongs to the row for it, whose requests would go to the same place.
#[test]
fn recordings_of_vertex_are_asked_where_they_were_recorded() {
    let cassettes = cassettes();
    let all = cassettes.iter().flat_map(decodable);
    for one in all.filter(|one| one.recorded.request["host"].as_str().unwrap().ends_with("aiplatform.googleapis.com")) {
        assert_eq!(one.recorded.provider.name, "google-vertex", "{}", one.recorded.place());
        let path = format!("/publishers/google{}", one.protocol.path(&one.head, &one.recorded.provider.quirks));
        let recorded = one.recorded.request["path"].as_str().unwrap();
        assert!(recorded.contains("/locations/") && recorded.ends_with(&path), "{recorded} {path}");
    }
}

#[test]
fn every_recorded_response_is_understood_as_expected() {
    let cassettes = cassettes();
    let mut checked = 0;
    for response in cassettes.iter().flat_map(decodable) {
        let (outcome, told) = response.decode();
        response.recorded.check(&outcome, &told, TURN);
        checked += 1;
    }
    assert!(checked > 0 || cassettes.is_empty(), "no recording is of a protocol that is translated here");
}

#[test]
fn splitting_and_line_ends_change_nothing() {
    let mut random = 1_u64;
    let mut chunk = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 58).unwrap()
    };
    for cassette in cassettes() {
        for response in decodable(&cassette) {
            let Some(sse) = response.sse() else { continue };
            let whole = response.stream(sse.as_bytes(), || usize::MAX);
            let plain = sse.replace("\r\n", "\n");
            for end in ["\n", "\r\n", "\r"] {
                let text = format!("\u{FEFF}: comment{end}{}", plain.replace('\n', end));
                assert_eq!(
                    response.stream(text.as_bytes(), &mut chunk),
                    whole,
                    "{} {end:?}",
                    response.recorded.cassette
                );
                assert_eq!(response.stream(text.as_bytes(), || 1), whole, "{} {end:?}", response.recorded.cassette);
            }
        }
    }
}

#[test]
fn a_stream_that_is_cut_is_a_reply_only_if_nothing_but_its_usage_is_missing() {
    for cassette in cassettes() {
        for response in decodable(&cassette) {
            let Some(sse) = response.sse() else { continue };
            let (Ok(whole), _) = response.stream(sse.as_bytes(), || usize::MAX) else { continue };
            for (end, _) in sse.match_indices('\n') {
                let (outcome, _) = response.stream(&sse.as_bytes()[..end], || usize::MAX);
                let complete =
                    outcome.as_ref().is_ok_and(|reply| *reply == Reply { usage: reply.usage, ..whole.clone() });
                assert!(
                    complete || outcome == Err(DecodeError::Cut),
                    "{} at {end}: {outcome:?}",
                    response.recorded.cassette
                );
            }
        }
    }
}

/// `skip_thought_signature_validator`
const STAND_IN: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// Objects anywhere in a value that a provider signed or made itself. (What Gemini signed is only the signature.)
fn private_blocks(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
            let is_private = ["thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "reasoning"]
                .contains(&kind)
                || (kind.ends_with("_tool_result") && fields.contains_key("tool_use_id"))
                || kind.starts_with("reasoning.");
            let signature = fields.get("thoughtSignature").and_then(Value::as_str);
            let of_its_tools = ["executableCode", "codeExecutionResult"].iter().find_map(|name| fields.get(*name));
            if is_private {
                found.push(value.clone());
            } else if signature == Some(STAND_IN) {
                // for one that was never given
            } else if signature.is_some() || of_its_tools.is_some() {
                found.push(json!({"thoughtSignature": signature, "part": of_its_tools}));
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
    let mut found = Vec::new();
    reply.parts.iter().filter_map(private_of).for_each(|raw| private_blocks(&raw.to().unwrap(), &mut found));
    found
}

#[test]
fn private_blocks_go_back_to_their_provider_as_they_came_and_to_no_other() {
    for cassette in cassettes() {
        for response in decodable(&cassette) {
            let (Ok(reply), _) = response.decode() else { continue };
            let mut expected = expected_blocks(&reply);
            if response.sse().is_none() {
                let mut came = Vec::new();
                private_blocks(&response.recorded.response["body"], &mut came);
                assert_eq!(expected, came, "{}", response.recorded.cassette);
            }
            let sent = encoded(&response, &reply);
            let mut returned = Vec::new();
            private_blocks(conversation(&sent), &mut returned);
            if reply.text().is_empty() && reply.tool_calls().next().is_none() && returned.is_empty() {
                expected.clear(); // a message that says nothing else is not sent at all by Chat Completions
            }
            assert_eq!(returned, expected, "{}", response.recorded.cassette);

            let foreign = Reply { model: "elsewhere:m".into(), ..reply.clone() };
            let sent = encoded(&response, &foreign);
            returned.clear();
            private_blocks(conversation(&sent), &mut returned);
            assert_eq!(returned, Vec::<Value>::new(), "{}", response.recorded.cassette);
            let kept = conversation(&sent).to_string();
            let texts = reply.parts.iter().filter_map(|part| match part {
                ReplyPart::Text(part) if !part.text.trim().is_empty() => Some(&part.text),
                _ => None,
            });
            texts.for_each(|text| assert!(kept.contains(Value::from(text.as_str()).to_string().trim_matches('"'))));
            reply.tool_calls().for_each(|call| assert!(kept.contains(&call.tool)));
        }
    }
}

/// The messages of a request, under the name that they have in its protocol.
fn conversation(sent: &Value) -> &Value {
    ["messages", "input", "contents"].iter().find_map(|name| sent.get(name)).unwrap()
}

/// Signed thinking anywhere in a value, as (signature, text). Google's own client writes signatures in another alphabet
/// of base64 than they came in.
fn signed_thinking(value: &Value) -> Vec<(Value, Value)> {
    let mut blocks = Vec::new();
    private_blocks(value, &mut blocks);
    let plain = |signature: &str| signature.replace('-', "+").replace('_', "/").into();
    let signed = |block: Value| match (block["type"].as_str(), block["thoughtSignature"].as_str()) {
        (Some("thinking"), _) => Some((block["signature"].clone(), block["thinking"].clone())),
        (Some("reasoning"), _) => Some((block["encrypted_content"].clone(), block["summary"].clone())),
        (_, Some(signature)) => Some((plain(signature), block["part"].clone())),
        (_, None) => None,
    };
    blocks.into_iter().filter_map(signed).collect()
}

#[test]
fn signed_thinking_that_the_recorded_client_returned_is_returned_here_too() {
    for cassette in cassettes() {
        let mut ours = Vec::new();
        for response in decodable(&cassette) {
            for theirs in signed_thinking(&response.recorded.request["body"]) {
                assert!(ours.contains(&theirs), "{}: {theirs:?}", response.recorded.place());
            }
            if let (Ok(reply), _) = response.decode() {
                ours.extend(signed_thinking(&encoded(&response, &reply)));
            }
        }
    }
}

/// The items that a recorded answer consists of: as its stream completed them, or as its document lists them.
fn recorded_items(response: &Value) -> Vec<Value> {
    let Some(sse) = response["sse"].as_str() else { return response["body"]["output"].as_array().unwrap().clone() };
    let events = sse.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    events.filter(|event| event["type"] == "response.output_item.done").map(|event| event["item"].clone()).collect()
}

#[test]
fn items_of_responses_go_back_as_they_came() {
    for cassette in cassettes() {
        for response in decodable(&cassette) {
            let (Ok(reply), _) = response.decode() else { continue };
            // What is not whole never goes back.
            if response.recorded.kind != ProtocolKind::OpenAiResponses || reply.unfinished().is_some() {
                continue;
            }
            let mut came = recorded_items(response.recorded.response);
            while came.last().is_some_and(|item| item["type"] == "reasoning") {
                came.pop(); // reasoning that led to nothing would be refused
            }
            let sent = encoded(&response, &reply);
            let returned = &sent["input"].as_array().unwrap()[1..=came.len()];
            assert_eq!(returned, came, "{}", response.recorded.cassette);
        }
    }
}

fn encoded(response: &Decodable<'_>, reply: &Reply) -> Value {
    let mut encoder = response.protocol.encoder(&response.head, &response.quirks());
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
    serde_json::from_slice(&encoder.body(None)).unwrap()
}
