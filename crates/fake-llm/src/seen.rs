//! What a client said: one request in no provider's words, for scripts that choose by it and for the checks
//! that all providers share.

use serde_json::Value;

use crate::protocol::Protocol;

/// One request as the model would see it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenRequest {
    pub protocol: Protocol,
    pub model: String,
    /// All system texts, joined by newlines.
    pub system: String,
    /// As the model sees them: Anthropic combines consecutive messages of one role.
    pub messages: Vec<SeenMessage>,
    pub tools: Vec<SeenTool>,
    pub stream: StreamMode,
    /// How many tokens the answer may have, if the request says so.
    pub longest_answer: Option<u64>,
}

/// How the client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    /// One JSON document.
    No,
    /// Server-sent events, without figures of usage unless the protocol always has them.
    Events,
    /// Server-sent events with usage.
    EventsWithUsage,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeenMessage {
    pub role: Role,
    pub parts: Vec<SeenPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// The results of calls, where they are not part of a user's message.
    Tool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SeenPart {
    Text(String),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    RedactedThinking {
        payload: String,
    },
    /// `arguments` is the JSON that was meant; text that is no JSON is a string here.
    Call {
        id: String,
        name: String,
        arguments: Value,
    },
    Result {
        id: String,
        text: String,
        is_error: bool,
    },
    /// Anything else (images, server tools), as it was sent.
    Other(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeenTool {
    pub name: String,
    pub description: String,
    /// None for tools that the provider runs itself.
    pub schema: Option<Value>,
}

impl SeenRequest {
    /// The text of the last user's message, without tool results.
    pub fn last_user_text(&self) -> String {
        let last = self.messages.iter().rfind(|message| message.role == Role::User && !message.text().is_empty());
        last.map(SeenMessage::text).unwrap_or_default()
    }

    /// All tool results, the oldest first.
    pub fn results(&self) -> impl Iterator<Item = (&str, &str)> {
        self.messages.iter().flat_map(SeenMessage::results)
    }

    /// The result of the latest call, if results are the last thing that was said.
    pub fn last_result(&self) -> Option<&str> {
        let last = self.messages.last()?;
        last.results().last().map(|(_, text)| text)
    }

    pub fn offers(&self, tool: &str) -> bool {
        self.tools.iter().any(|offered| offered.name == tool)
    }
}

impl SeenMessage {
    /// All text parts, joined without separator.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                SeenPart::Text(text) => Some(text.as_str()),
                SeenPart::Thinking { .. }
                | SeenPart::RedactedThinking { .. }
                | SeenPart::Call { .. }
                | SeenPart::Result { .. }
                | SeenPart::Other(_) => None,
            })
            .collect()
    }

    /// Id, name and arguments of each call.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.parts.iter().filter_map(|part| match part {
            SeenPart::Call { id, name, arguments } => Some((id.as_str(), name.as_str(), arguments)),
            SeenPart::Text(_)
            | SeenPart::Thinking { .. }
            | SeenPart::RedactedThinking { .. }
            | SeenPart::Result { .. }
            | SeenPart::Other(_) => None,
        })
    }

    /// Id and text of each tool result.
    pub fn results(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts.iter().filter_map(|part| match part {
            SeenPart::Result { id, text, .. } => Some((id.as_str(), text.as_str())),
            SeenPart::Text(_)
            | SeenPart::Thinking { .. }
            | SeenPart::RedactedThinking { .. }
            | SeenPart::Call { .. }
            | SeenPart::Other(_) => None,
        })
    }
}
