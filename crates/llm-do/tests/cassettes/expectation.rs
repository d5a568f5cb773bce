//! What an independent parser understood of a recorded response, compared with what we did.

use llm_do::message::{Arguments, Finish, RawJson, Reply, ReplyPart, TextPart, Usage};
use llm_do::model::ModelError;
use llm_do::model::provider::ProtocolKind;
use serde_json::Value;

use crate::cassette::Recorded;

/// What the deltas add up to.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    pub text: String,
    pub thinking: String,
    pub server_tools: usize,
}

impl Recorded<'_> {
    /// `turn` is the number of messages that the request had.
    pub fn check(&self, outcome: &Result<Reply, ModelError>, told: &Told, turn: usize) {
        match outcome {
            Ok(reply) => {
                assert_eq!(self.expect["error"], Value::Null, "{}", self.place());
                self.check_reply(reply, told, turn);
            }
            Err(error) => {
                self.check_consequence(error);
                self.check_words(error);
            }
        }
    }

    fn check_reply(&self, reply: &Reply, told: &Told, turn: usize) {
        let (expect, place) = (self.expect, self.place());
        self.check_words_of(reply);
        assert_eq!(told.text, reply.text(), "{place}");
        assert_eq!(told.thinking, thinking(reply), "{place}");
        self.check_private(reply);
        self.check_calls(reply, turn);
        self.check_usage(&reply.usage);
        assert_eq!(serde_json::to_value(reply.finish).unwrap(), expect["finish"], "{place}");
        let refusals = reply.parts.iter().filter_map(|part| match part {
            ReplyPart::Refusal(part) => Some(part.text.as_str()),
            _ => None,
        });
        assert_eq!(refusals.collect::<String>(), expect["refusal"].as_str().unwrap_or_default(), "{place}");
        self.check_server_tools(reply, told);
    }

    fn check_words_of(&self, reply: &Reply) {
        let (expect, place) = (self.expect, self.place());
        let (text, thought) = (reply.text(), thinking(reply));
        let expected = expect["text"].as_str().unwrap();
        if expect["inline_think"] == true && text != expected {
            // Providers of open models have their thinking told apart from the text.
            let untagged = expected.replace("<think>", "").replace("</think>", "");
            assert_eq!(without_space(&format!("{thought}{text}")), without_space(&untagged), "{place}");
            assert!(!text.contains("<think>"), "{place}");
            return;
        }
        assert_eq!(text, expected, "{place}");
        assert_eq!(thought, expect["thinking"]["text"].as_str().unwrap(), "{place}");
    }

    /// Signatures and redacted thinking have to be kept; Gemini signs parts of any kind.
    fn check_private(&self, reply: &Reply) {
        let may_be_signed =
            |part: &&ReplyPart| matches!(part, ReplyPart::Thinking(_)) || self.kind == ProtocolKind::Gemini;
        let kept = reply.parts.iter().filter(may_be_signed).filter_map(private_of);
        let kept: Vec<Value> = kept.map(|raw| raw.to().unwrap()).collect();
        let expected = &self.expect["thinking"];
        assert_eq!(kept.iter().any(is_signed), expected["signature"] == true, "{}", self.place());
        assert_eq!(kept.iter().any(is_redacted), expected["redacted"] == true, "{}", self.place());
    }

    fn check_calls(&self, reply: &Reply, turn: usize) {
        let place = self.place();
        let expected = self.expect["tool_calls"].as_array().unwrap();
        assert_eq!(reply.tool_calls().count(), expected.len(), "{place}");
        for (call, expected) in reply.tool_calls().zip(expected) {
            match expected["id"].as_str().filter(|id| !id.is_empty()) {
                Some(id) => assert_eq!(call.id, id, "{place}"),
                None => assert!(call.id.starts_with(&format!("call_{turn}_")), "{place}: {}", call.id),
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

    fn check_usage(&self, usage: &Usage) {
        let count = |name: &str| self.expect["usage"][name].as_u64().unwrap_or(0);
        let expected = Usage {
            requests: 1,
            input_tokens: count("input_total"),
            output_tokens: count("output"),
            cache_read_tokens: count("cache_read"),
            cache_write_tokens: count("cache_write"),
            reasoning_tokens: count("reasoning"),
            cost_usd: self.reported_cost(),
            ..Usage::default()
        };
        assert!(self.is_without_usage || *usage == expected, "{}: {usage:?} {expected:?}", self.place());
    }

    /// What the response says it cost, read as text: nobody in the recordings has a key of one's own behind the router.
    fn reported_cost(&self) -> Option<f64> {
        let cost = match self.response["sse"].as_str() {
            Some(sse) => {
                let (_, cost) = sse.rsplit_once("\"cost\":").unwrap_or_default();
                cost.split([',', '}']).next().unwrap_or_default().to_owned()
            }
            None => self.response["body"]["usage"]["cost"].to_string(),
        };
        cost.parse().ok().filter(|_| self.provider.name == "openrouter")
    }

    fn check_server_tools(&self, reply: &Reply, told: &Told) {
        let (expect, place) = (self.expect, self.place());
        let kinds = expect["server_tools"].as_array().unwrap().iter().map(|tool| tool["type"].as_str().unwrap());
        let kinds: Vec<&str> = kinds.filter(|kind| *kind != "usage").collect();
        let shown = reply.parts.iter().filter(|part| matches!(part, ReplyPart::ServerTool(_))).count();
        assert_eq!((shown, told.server_tools), (kinds.len(), uses(&kinds, reply.finish)), "{place}");
        let cited = reply.parts.iter().any(|part| matches!(part, ReplyPart::Text(text) if self.cites(text)));
        assert_eq!(cited, expect["citations"] == true, "{place}");
    }

    fn cites(&self, text: &TextPart) -> bool {
        let Some(private) = text.private.as_ref().map(|raw| raw.to::<Value>().unwrap()) else { return false };
        match self.kind {
            // The rest of a text's message is kept in any case.
            ProtocolKind::OpenAiResponses => {
                private["part"]["annotations"].as_array().is_some_and(|citations| !citations.is_empty())
            }
            // A text may be signed without citing anything.
            ProtocolKind::Gemini => private.as_object().is_none_or(|all| all.keys().any(|it| it != "thoughtSignature")),
            ProtocolKind::Anthropic | ProtocolKind::OpenAiChat | ProtocolKind::Scripted => true,
        }
    }

    /// What there is to do about an error.
    pub fn check_consequence(&self, error: &ModelError) {
        let (expected, place) = (&self.expect["error"], self.place());
        assert!(!expected.is_null(), "{place}: {error}");
        let classes: &[&str] = match error {
            ModelError::Unreachable(_) | ModelError::TimedOut(_) => &[],
            ModelError::Wait(_) => &["rate_limit", "server", "overloaded", "timeout", "conflict"],
            ModelError::Authenticate(_) => &["authentication", "permission", "billing"],
            ModelError::FixRequest(_) => &["invalid_request", "not_found"],
            ModelError::ContextTooLong(_) => &["too_large", "invalid_request"],
            ModelError::Garbled(fault) if fault.kind.as_deref() == Some("tool_use_failed") => &["invalid_request"],
            ModelError::Garbled(_) | ModelError::GiveUp(_) => &["model_output"],
        };
        assert!(classes.contains(&expected["class"].as_str().unwrap()), "{place}: {error:?} {expected}");
        if let Some(status) = expected["status"].as_u64().filter(|status| *status >= 400) {
            assert_eq!(error.fault().status.map(u64::from), Some(status), "{place}");
        }
    }

    fn check_words(&self, error: &ModelError) {
        let said = self.expect["error"]["message"].as_str().unwrap_or_default();
        assert!(error.to_string().contains(said), "{}: {error}", self.place());
    }
}

/// How often tools were used. A use and its result are one, and so is what the metadata repeats; what was interrupted is
/// told with its result, in the next answer.
fn uses(kinds: &[&str], finish: Finish) -> usize {
    let is_result = |kind: &str| ["_result", "Result", "Response"].iter().any(|end| kind.ends_with(end));
    let is_shown = kinds.contains(&"toolCall");
    let repeats = |kind: &str| is_shown && matches!(kind, "google_search" | "grounding" | "url_context");
    let results = kinds.iter().filter(|kind| is_result(kind)).count();
    let uses = kinds.iter().filter(|kind| !is_result(kind) && !repeats(kind)).count();
    if finish == Finish::Pause { results } else { uses.max(results) }
}

fn thinking(reply: &Reply) -> String {
    let thoughts = reply.parts.iter().filter_map(|part| match part {
        ReplyPart::Thinking(part) => Some(part.text.as_str()),
        _ => None,
    });
    thoughts.collect()
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// What only the provider understands of a part.
pub fn private_of(part: &ReplyPart) -> Option<&RawJson> {
    match part {
        ReplyPart::Text(part) | ReplyPart::Refusal(part) => part.private.as_ref(),
        ReplyPart::Thinking(part) => part.private.as_ref(),
        ReplyPart::ServerTool(part) => part.private.as_ref(),
        ReplyPart::ToolCall(call) => call.private.as_ref(),
    }
}

fn is_signed(private: &Value) -> bool {
    const NAMES: [&str; 4] = ["signature", "encrypted_content", "thoughtSignature", "thought_signature"];
    match private {
        Value::String(signature) => !signature.is_empty(),
        Value::Object(fields) => {
            fields.get("type").is_some_and(|kind| kind == "reasoning.encrypted")
                || NAMES.iter().any(|name| fields.get(*name).is_some_and(is_signed))
                || fields.values().any(|value| !value.is_string() && is_signed(value))
        }
        Value::Array(values) => values.iter().any(|value| !value.is_string() && is_signed(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_redacted(private: &Value) -> bool {
    match private {
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str);
            matches!(kind, Some("redacted_thinking" | "reasoning.encrypted")) || fields.values().any(is_redacted)
        }
        Value::Array(values) => values.iter().any(is_redacted),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
