//! What was said, as spans carry it if the user wants that: messages as the conventions write them, without keys, cut. Pure.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::event::{CallOutput, LoggedMessage};
use crate::message::{Arguments, Content, Message, RawJson, ReplyPart};
use crate::redact::Redactor;

/// In bytes of each text that is sent.
pub(super) const LARGEST: usize = 8 * 1024;

/// A text of at most so many bytes, without keys; a mark says that it was cut.
pub(super) fn cut(text: &str, redactor: &Redactor) -> String {
    shortened(&redactor.redacted(text.to_owned()), LARGEST)
}

fn shortened(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}{MARK}", &text[..text.floor_char_boundary(most.saturating_sub(MARK.len()))])
}

/// What a call was given or gave, as one message.
pub(super) fn spoken(role: &str, said: &RawJson, redactor: &Redactor) -> String {
    let text = said.to::<String>().unwrap_or_else(|_| said.get().to_owned());
    list(&[message(role, vec![Part::text(&text, redactor)])])
}

/// What a call gave.
pub(super) fn answered(output: &CallOutput, redactor: &Redactor) -> String {
    match output {
        CallOutput::Text(text) => list(&[message("assistant", vec![Part::text(text, redactor)])]),
        CallOutput::Json(json) => spoken("assistant", json, redactor),
    }
}

/// The end of a conversation that fits.
#[derive(Debug, Default)]
pub(super) struct MessageTail {
    messages: VecDeque<String>,
    size: usize,
}

impl MessageTail {
    /// One more message.
    pub(super) fn add(&mut self, message: String) {
        self.size += message.len() + 1;
        self.messages.push_back(message);
        while self.size + 1 > LARGEST && self.messages.len() > 1 {
            let first = self.messages.pop_front().map_or(0, |message| message.len() + 1);
            self.size = self.size.saturating_sub(first);
        }
    }

    /// As a list, if anything was said.
    pub(super) fn shown(&self) -> Option<String> {
        let messages: Vec<&str> = self.messages.iter().map(String::as_str).collect();
        (!messages.is_empty()).then(|| format!("[{}]", messages.join(",")))
    }
}

/// A message of a conversation.
pub(super) fn logged(logged: &LoggedMessage<'_>, redactor: &Redactor) -> String {
    match logged.message {
        Message::User(said) => {
            let parts = said.parts.iter().map(|part| Part::content(part, redactor));
            message("user", parts.collect())
        }
        Message::Assistant(reply) => {
            let parts = reply.parts.iter().filter_map(|part| Part::reply(part, redactor));
            message("assistant", parts.collect())
        }
        Message::Tool(results) => {
            let parts = results.parts.iter().map(|result| {
                let text = match &result.outcome {
                    Ok(content) => Content::shown(content),
                    Err(error) => error.clone(),
                };
                Part { id: Some(result.id.clone()), ..Part::of("tool_call_response", "result", &text, redactor) }
            });
            message("tool", parts.collect())
        }
    }
}

/// A list of one message.
pub(super) fn list(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

/// A part of a message: its text is what is cut.
struct Part {
    kind: &'static str,
    field: &'static str,
    text: String,
    id: Option<String>,
    name: Option<String>,
}

impl Part {
    fn of(kind: &'static str, field: &'static str, text: &str, redactor: &Redactor) -> Self {
        Self { kind, field, text: redactor.redacted(text.to_owned()), id: None, name: None }
    }

    fn text(text: &str, redactor: &Redactor) -> Self {
        Self::of("text", "content", text, redactor)
    }

    fn content(content: &Content, redactor: &Redactor) -> Self {
        match content {
            Content::Text { text } => Self::text(text, redactor),
            Content::Value { json } => Self::text(json, redactor),
            // Not the bytes of a picture, only that there was one.
            Content::Attachment(file) => {
                Self { name: Some(file.media_type.clone()), ..Self::of("file", "name", &file.name, redactor) }
            }
        }
    }

    fn reply(part: &ReplyPart, redactor: &Redactor) -> Option<Self> {
        match part {
            ReplyPart::Text(text) | ReplyPart::Refusal(text) => Some(Self::text(&text.text, redactor)),
            ReplyPart::Thinking(thinking) => Some(Self::of("reasoning", "content", &thinking.text, redactor)),
            ReplyPart::ToolCall(call) => {
                let arguments = match &call.arguments {
                    Arguments::Object(json) => json.get(),
                    Arguments::Malformed(text) => text,
                };
                let part = Self::of("tool_call", "arguments", arguments, redactor);
                Some(Self { id: Some(call.id.clone()), name: Some(call.tool.clone()), ..part })
            }
            ReplyPart::ServerTool(_) => None,
        }
    }

    fn json(&self, most: usize) -> Value {
        let text = shortened(&self.text, most);
        // Arguments that were not cut are the object that they are.
        let value = match (self.kind, serde_json::from_str::<Value>(&text)) {
            ("tool_call", Ok(value)) => value,
            _ => Value::String(text),
        };
        let mut part = json!({"type": self.kind, self.field: value});
        if let Some(id) = &self.id {
            part["id"] = json!(shortened(id, 256));
        }
        if let Some(name) = &self.name {
            let field = if self.kind == "file" { "mime_type" } else { "name" };
            part[field] = json!(shortened(name, 256));
        }
        part
    }
}

/// A message whose JSON has at most as many bytes as a text may have: its texts are cut until it has.
fn message(role: &str, mut parts: Vec<Part>) -> String {
    const MOST_PARTS: usize = 16;
    parts.truncate(MOST_PARTS);
    let mut most = LARGEST;
    loop {
        let shown: Vec<Value> = parts.iter().map(|part| part.json(most)).collect();
        let text = json!({"role": role, "parts": shown}).to_string();
        if text.len() + 2 <= LARGEST || most == 0 {
            return text;
        }
        most /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{TextPart, ToolCall, ToolResult};
    use std::sync::Arc;

    fn shown(said: &Message) -> String {
        logged(&LoggedMessage { agent: "main", depth: 0, call: 1, message: said }, &Redactor::of(["sk-0123456789ab"]))
    }

    #[test]
    fn messages_are_written_as_the_conventions_say() {
        let call = ToolCall {
            id: "c1".into(),
            tool: "add".into(),
            arguments: Arguments::Object(RawJson::parse(r#"{"a":1}"#).unwrap()),
            private: None,
        };
        let reply = crate::message::Reply {
            parts: vec![ReplyPart::Text(TextPart { text: "so".into(), private: None }), ReplyPart::ToolCall(call)],
            ..crate::message::Reply::answer(&"m", "")
        };
        let result = ToolResult {
            id: "c1".into(),
            tool: "add".into(),
            outcome: Ok(vec![Content::Text { text: "2 sk-0123456789ab".into() }]),
        };
        for (message, expected) in [
            (Message::user("hi"), r#"{"parts":[{"content":"hi","type":"text"}],"role":"user"}"#),
            (
                Message::Assistant(reply),
                r#"{"parts":[{"content":"so","type":"text"},{"arguments":{"a":1},"id":"c1","name":"add","type":"tool_call"}],"role":"assistant"}"#,
            ),
            (
                Message::tool_results(vec![result]),
                r#"{"parts":[{"id":"c1","result":"2 [redacted]","type":"tool_call_response"}],"role":"tool"}"#,
            ),
        ] {
            let (shown, expected): (Value, Value) =
                (serde_json::from_str(&shown(&message)).unwrap(), serde_json::from_str(expected).unwrap());
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn no_text_is_longer_than_it_may_be_and_every_one_is_json() {
        let hostile: Arc<str> = Arc::from("\u{1}é\"\\".repeat(20_000));
        for text in [&*hostile, &*"x".repeat(9_000), &*"é".repeat(4_096)] {
            let message = shown(&Message::user(text));
            assert!(message.len() <= LARGEST, "{}", message.len());
            assert!(serde_json::from_str::<Value>(&message).is_ok());
            assert!(cut(text, &Redactor::default()).len() <= LARGEST);
        }
        let mut said = MessageTail::default();
        assert_eq!(said.shown(), None);
        for number in 0..3_000 {
            said.add(shown(&Message::user(format!("message {number}"))));
        }
        let list = said.shown().unwrap();
        let messages: Vec<Value> = serde_json::from_str(&list).unwrap();
        assert!(list.len() <= LARGEST && list.contains("message 2999") && messages.len() > 100, "{}", list.len());
    }
}
