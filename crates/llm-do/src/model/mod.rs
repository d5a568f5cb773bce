//! The neural side: one request → one reply.
//!
//! A conversation with a model is opened with what stays the same (its [`Head`]) and is then asked again and again with
//! a growing history. A protocol is a pure translation in a file of its own, a provider is a row of a table.

pub(crate) mod anthropic;
pub(crate) mod body;
pub(crate) mod call_ids;
pub(crate) mod content;
pub(crate) mod estimate;
pub mod exchange;
pub mod fallback;
pub(crate) mod fault;
#[cfg(test)]
mod fixtures;
#[doc(hidden)]
#[cfg(any(test, feature = "internals"))]
pub mod fuzz;
pub(crate) mod gemini;
pub mod meter;
pub mod name;
pub mod openai_chat;
pub(crate) mod openai_responses;
mod picture;
mod plain;
pub mod prices;
pub mod protocol;
pub mod provider;
pub(crate) mod scripted;
pub(crate) mod think_tags;
mod thinking;
pub mod windows;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::event::Events;
use crate::message::{Message, RawJson, Reply};
use meter::Meter;
use name::ModelName;

/// Something that can hold conversations.
pub trait Model: Send + Sync {
    /// Opens a conversation, whose head stays the same for all of its requests. Nothing is sent before the first one.
    fn open(&self, head: Head) -> Box<dyn Conversation>;
}

/// One conversation. It remembers what it has encoded already, so a request at turn 400 costs what its bytes cost.
pub trait Conversation: Send {
    /// Asks for the reply to `history`, which has only grown since the last request or [`Conversation::rewind`]. Its
    /// events are the pieces of the reply and the retries; the meter tells that there was a request, and what it cost.
    fn reply<'a>(
        &'a mut self,
        history: &'a [Message],
        meter: &'a mut dyn Meter,
        events: &'a Events,
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// Forgets all messages but the first ones: a failed turn was taken back.
    fn rewind(&mut self, messages: usize);

    /// How long the first byte of an answer is waited for; none if nothing is waited for.
    fn longest_wait(&self) -> Option<Duration>;

    /// Whether a request whose history ends with this reply, which was cut, is answered with the rest of it.
    fn goes_on_with(&self, cut: &Reply) -> bool;
}

/// What stays the same during a conversation.
#[derive(Clone, Debug)]
pub struct Head {
    /// The agent that asks.
    pub agent: Arc<str>,
    /// The model that is asked.
    pub model: ModelName,
    /// The system prompt.
    pub instructions: String,
    /// The tools that the model may call.
    pub tools: Vec<ToolDeclaration>,
    /// Whether it may call them now. They are declared all the same: providers want them beside a history of calls.
    pub may_call: bool,
    /// The tools that the provider may run itself.
    pub server_tools: Vec<ServerTool>,
    /// Settings of the model.
    pub settings: ModelSettings,
    /// The JSON Schema that the answer must satisfy.
    pub output: Option<RawJson>,
    /// Ask for a stream of events, or for one JSON document; both give the same reply.
    pub stream: bool,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDeclaration {
    /// The name that the model calls it by.
    pub name: String,
    /// What the model reads about it.
    pub description: String,
    /// JSON Schema, key order kept.
    pub parameters: RawJson,
}

/// Settings of a worker file's `model_settings`; what is `None` is not sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// How much chance there is in the choice of words.
    pub temperature: Option<f64>,
    /// From how large a part of the likely words is chosen.
    pub top_p: Option<f64>,
    /// The longest answer, in tokens.
    pub max_tokens: Option<u64>,
    /// Words that end an answer.
    pub stop: Vec<String>,
    /// A number that makes answers repeatable where a provider can do that.
    pub seed: Option<i64>,
    /// How hard the model thinks.
    pub effort: Option<Effort>,
    /// Whether the model thinks before it answers.
    pub thinking: Option<Thinking>,
    /// Whether one reply may hold several calls.
    pub parallel_tool_calls: Option<bool>,
    /// For one model request.
    pub timeout: Option<Duration>,
}

/// How hard a model is asked to think, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// Whether a model is asked to think before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    Off,
    On,
    /// With at most this many tokens.
    Budget(u64),
}

/// A tool that the provider runs itself, outside our gate.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTool {
    pub kind: ServerToolKind,
    pub max_uses: Option<u64>,
    pub allowed_domains: Vec<String>,
    pub blocked_domains: Vec<String>,
}

/// What a tool does that the provider runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerToolKind {
    WebSearch,
    WebFetch,
    CodeExecution,
    ImageGeneration,
}

impl ServerToolKind {
    /// Every kind, each once.
    pub const ALL: [Self; 4] = [Self::WebSearch, Self::WebFetch, Self::CodeExecution, Self::ImageGeneration];

    /// Its name in worker files, such as `web_search`.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebSearch => "web_search",
            Self::WebFetch => "web_fetch",
            Self::CodeExecution => "code_execution",
            Self::ImageGeneration => "image_generation",
        }
    }
}

/// Why there is no reply, by what to do about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The request must be another one.
    #[error("the provider refused the request: {0}")]
    FixRequest(Fault),
    /// The key is missing or not accepted.
    #[error("not authenticated: {0}")]
    Authenticate(Fault),
    /// It took the request and gave no whole answer in time. Asked once more already, since it may charge each time.
    #[error("the provider did not answer in time, and may charge for it all the same: {0}")]
    TimedOut(Fault),
    /// Retried here already; what is left is to wait and try again later.
    #[error("the provider is not available: {0}")]
    Wait(Fault),
    /// No connection that could be used, and waiting would not help: a certificate, a proxy.
    #[error("the provider is not available: {0}")]
    Unreachable(Fault),
    /// The history must become shorter, or the model another one.
    #[error("the conversation is too long for the model: {0}")]
    ContextTooLong(Fault),
    /// The answer cannot be read: by us, or what the model wrote, above all a call, by its provider. Chance has a part in
    /// it, so that it was asked once more already, as after an empty reply.
    #[error("the answer cannot be read: {0}")]
    Garbled(Fault),
    /// The reply itself is unusable.
    #[error("the provider's answer cannot be used: {0}")]
    GiveUp(Fault),
}

impl ModelError {
    /// What the provider or the connection said, whatever is to be done about it.
    pub fn fault(&self) -> &Fault {
        match self {
            Self::FixRequest(fault)
            | Self::Authenticate(fault)
            | Self::TimedOut(fault)
            | Self::Wait(fault)
            | Self::Unreachable(fault)
            | Self::ContextTooLong(fault)
            | Self::Garbled(fault)
            | Self::GiveUp(fault) => fault,
        }
    }

    /// The same consequence with more known about it.
    #[must_use]
    pub(crate) fn map_fault(self, change: impl FnOnce(Fault) -> Fault) -> Self {
        match self {
            Self::FixRequest(fault) => Self::FixRequest(change(fault)),
            Self::Authenticate(fault) => Self::Authenticate(change(fault)),
            Self::TimedOut(fault) => Self::TimedOut(change(fault)),
            Self::Wait(fault) => Self::Wait(change(fault)),
            Self::Unreachable(fault) => Self::Unreachable(change(fault)),
            Self::ContextTooLong(fault) => Self::ContextTooLong(change(fault)),
            Self::Garbled(fault) => Self::Garbled(change(fault)),
            Self::GiveUp(fault) => Self::GiveUp(change(fault)),
        }
    }
}

/// What the provider (or the connection to it) said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fault {
    /// In the provider's own words.
    pub message: String,
    /// The status of the HTTP response.
    pub status: Option<u16>,
    /// The provider's error type or code.
    pub kind: Option<String>,
    /// The provider's name for the request, which its support asks for.
    pub request_id: Option<Box<str>>,
    /// How long it asks us to wait.
    pub retry_after: Option<Duration>,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        let status = self.status.map(|status| format!("status {status}"));
        let request_id = self.request_id.as_ref().map(|id| format!("request {id}"));
        let details: Vec<String> = [status, self.kind.clone(), request_id].into_iter().flatten().collect();
        if details.is_empty() { Ok(()) } else { write!(f, " ({})", details.join(", ")) }
    }
}
