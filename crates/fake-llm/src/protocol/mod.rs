//! The wire formats. A protocol is a file that implements [`Dialect`] and a row in [`Protocol::ALL`].

mod anthropic;
mod gemini;
mod openai_chat;
mod openai_responses;

use serde_json::Value;

use crate::fault::FakeProviderError;
use crate::reply::FakeReply;
use crate::request::Headers;
use crate::seen::{SeenRequest, StreamMode};

/// A wire format, known by the path of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `POST …/v1/messages`
    Anthropic,
    /// `POST …/chat/completions`
    OpenAiChat,
    /// `POST …/responses`
    OpenAiResponses,
    /// `POST …/models/M:generateContent` and `…/models/M:streamGenerateContent`
    Gemini,
}

/// What one provider reads, refuses and writes. No I/O, no state.
pub(crate) trait Dialect: Sync {
    /// Whether requests to this path (without query) speak this protocol.
    fn serves(&self, path: &str) -> bool;

    /// Notes what a provider would refuse about the headers, credentials apart.
    fn check_headers(&self, headers: &Headers, findings: &mut Findings);

    /// Whether the request carries a key, whichever it is.
    fn has_key(&self, headers: &Headers) -> bool;

    /// Understands as much as there is, and notes what the provider would refuse.
    fn read(&self, path: &str, body: &Value, findings: &mut Findings) -> SeenRequest;

    /// Whether thinking must come back while a tool loop is open.
    fn wants_thinking_back(&self) -> bool;

    /// A reply as one JSON document.
    fn document(&self, serving: &Serving<'_>) -> String;

    /// A reply as the events of a stream, each with its empty line.
    fn events(&self, serving: &Serving<'_>) -> Vec<String>;

    /// The document of an error.
    fn failure(&self, failure: &FakeProviderError) -> String;

    /// The event that reports an error in a stream.
    fn failure_event(&self, failure: &FakeProviderError) -> String;

    /// What is sent in a stream when there is nothing to say.
    fn idle_frames(&self) -> &'static str;
}

/// A reply about to be written. Each of its calls has an id.
pub(crate) struct Serving<'a> {
    pub reply: &'a FakeReply,
    pub number: usize,
    pub model: &'a str,
    pub stream: StreamMode,
}

/// What a provider would refuse about a request.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub Vec<Finding>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub status: u16,
    pub reason: String,
}

impl Protocol {
    pub(crate) const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini];

    pub(crate) fn of_path(path_and_query: &str) -> Option<Self> {
        let path = path_and_query.split('?').next().unwrap_or_default();
        Self::ALL.into_iter().find(|protocol| protocol.dialect().serves(path))
    }

    pub(crate) fn dialect(self) -> &'static dyn Dialect {
        match self {
            Self::Anthropic => &anthropic::Anthropic,
            Self::OpenAiChat => &openai_chat::OpenAiChat,
            Self::OpenAiResponses => &openai_responses::OpenAiResponses,
            Self::Gemini => &gemini::Gemini,
        }
    }
}

impl Serving<'_> {
    /// The reply's chunks as the client asked for them: one document, or one chunk for each event.
    pub fn chunks(&self, protocol: Protocol) -> Vec<bytes::Bytes> {
        match self.stream {
            StreamMode::No => vec![protocol.dialect().document(self).into()],
            StreamMode::Events | StreamMode::EventsWithUsage => {
                protocol.dialect().events(self).into_iter().map(Into::into).collect()
            }
        }
    }
}

impl Findings {
    pub fn refuse(&mut self, reason: impl Into<String>) {
        self.0.push(Finding { status: 400, reason: reason.into() });
    }

    /// The text at `key`, which must be there and not empty.
    fn required_text(&mut self, value: &Value, key: &str, at: &str) -> String {
        match value.get(key).and_then(Value::as_str) {
            Some(text) if !text.is_empty() => text.to_owned(),
            Some(_) | None => {
                self.refuse(format!("{at}{key}: a text is required"));
                String::new()
            }
        }
    }

    /// The elements at `key`, which must be a list that is not empty.
    fn required_list<'a>(&mut self, value: &'a Value, key: &str, at: &str) -> &'a [Value] {
        match value.get(key).and_then(Value::as_array) {
            Some(list) if !list.is_empty() => list,
            Some(_) | None => {
                self.refuse(format!("{at}{key}: a list with at least one element is required"));
                &[]
            }
        }
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
