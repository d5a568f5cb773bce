//! The conversation as plain values. Everything else in the crate speaks these.
//!
//! What only one provider understands (thinking signatures, blocks of server-side tools, citations) is carried in
//! `private` as the bytes that came, and goes back unmodified to the same provider and to no other.

mod identity;
mod quoted;
mod repeated_key;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::escape::whole_characters;

pub(crate) use identity::write_identity;
pub(crate) use quoted::{WrittenJson, json_of, push_json, push_number, push_quoted, quoted};
pub(crate) use repeated_key::repeated_key;

/// One entry of a conversation. As JSON: `{"role": …, "parts": […]}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the user, or the caller of an agent, said.
    User(UserMessage),
    /// What the model answered.
    Assistant(Reply),
    /// The results of all tool calls of the reply before, in call order.
    Tool(ToolMessage),
}

/// What the user, or the caller of an agent, says to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    pub parts: Vec<Content>,
}

/// The results of all tool calls of one reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolMessage {
    pub parts: Vec<ToolResult>,
}

impl Message {
    /// A message of the user with one part, this text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(UserMessage { parts: vec![Content::text(text)] })
    }

    /// A message that answers the tool calls of the reply before it, one result for each.
    pub fn tool_results(results: Vec<ToolResult>) -> Self {
        Self::Tool(ToolMessage { parts: results })
    }
}

/// What a user or a tool may hand to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Words.
    Text {
        /// The words.
        #[serde(serialize_with = "quoted")]
        text: String,
    },
    /// What is not text, such as a number or a list: code gets it as it is, a model reads its JSON.
    Value {
        /// The value as JSON.
        json: String,
    },
    /// A file.
    Attachment(Attachment),
}

impl Content {
    /// A part that is this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// A JSON text is text, any other value stays one.
    pub fn value(value: &RawJson) -> Self {
        match value.to::<String>() {
            Ok(text) => Self::Text { text },
            Err(_) => Self::Value { json: value.get().to_owned() },
        }
    }

    /// What a model is told of a turn that came to no answer, before the message that follows it.
    pub(crate) fn of_interruption(reason: &str) -> Self {
        Self::text(format!("{INTERRUPTION}{reason}. What it had said and done until then stands above.]"))
    }

    /// Whether it tells of the turn before.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(self, Self::Text { text } if text.starts_with(INTERRUPTION))
    }

    /// All of it as text, files by their names.
    pub fn shown(parts: &[Self]) -> String {
        if let [Self::Text { text } | Self::Value { json: text }] = parts {
            return text.clone();
        }
        let mut shown = String::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                shown.push('\n');
            }
            match part {
                Self::Text { text } | Self::Value { json: text } => shown.push_str(text),
                Self::Attachment(attachment) => shown.extend(["[", &attachment.name, "]"]),
            }
        }
        shown
    }
}

const INTERRUPTION: &str = "[The turn before this message was interrupted: ";

/// A file that travels with a message. `data` is base64 in JSON.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// What the model and people call it.
    pub name: String,
    /// Where it was read, if it was a file: code may want to read it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its kind, such as `image/png`.
    pub media_type: String,
    /// Its content.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub data: Arc<[u8]>,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attachment({:?}, {}, {} bytes)", self.name, self.media_type, self.data.len())
    }
}

fn to_base64<S: Serializer>(data: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(data))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text).map(Arc::from).map_err(D::Error::custom)
}

/// What a model answered to one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// What it said, in order.
    pub parts: Vec<ReplyPart>,
    /// `provider:model` that wrote it: private parts go back to this provider only.
    pub model: String,
    /// Why it ended.
    pub finish: Finish,
    /// The provider's own word for it, where it did not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// What the request took.
    pub usage: Usage,
}

impl Reply {
    /// An answer in words that is whole, of a model that says nothing of its usage.
    pub fn answer(model: &impl ToString, text: impl Into<String>) -> Self {
        Self {
            parts: vec![ReplyPart::Text(TextPart { text: text.into(), private: None })],
            model: model.to_string(),
            finish: Finish::Stop,
            finish_reason: None,
            usage: Usage::default(),
        }
    }

    /// Whether this provider wrote it, and so gets its private parts back.
    pub(crate) fn is_from(&self, provider: &str) -> bool {
        self.model.split_once(':').is_some_and(|(name, _)| name == provider)
    }

    /// All text parts, joined without a separator.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            ReplyPart::Text(part) => Some(part.text.as_str()),
            ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) | ReplyPart::Refusal(_) => None,
        });
        texts.collect()
    }

    /// Why it is no whole answer; `None` for an answer, for calls to run, and for a pause. A reply that is not whole
    /// is not used as an answer: no call of it runs, and the caller gets an error.
    pub fn unfinished(&self) -> Option<UnfinishedReason> {
        let declined = self.parts.iter().find_map(|part| match part {
            ReplyPart::Refusal(refusal) => Some(refusal.text.clone()),
            ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) => None,
        });
        let word = || self.finish_reason.clone().unwrap_or_else(|| "an unknown reason".to_owned());
        match (self.finish, declined) {
            (_, Some(words)) => Some(UnfinishedReason::Declined { words }),
            (Finish::Stop | Finish::ToolCalls | Finish::Pause, None) => None,
            (Finish::Length, None) => Some(UnfinishedReason::Length),
            (Finish::ContextWindow, None) => Some(UnfinishedReason::ContextWindow),
            (Finish::ContentFilter, None) => {
                Some(UnfinishedReason::Declined { words: format!("the provider filtered the answer ({})", word()) })
            }
            (Finish::Error, None) => Some(UnfinishedReason::Broken { word: word() }),
        }
    }

    /// Nothing that could be an answer or a step towards one.
    pub(crate) fn is_empty(&self) -> bool {
        self.finish != Finish::Pause
            && self.parts.iter().all(|part| match part {
                ReplyPart::Text(part) => part.text.trim().is_empty(),
                ReplyPart::Thinking(_) => true,
                ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) | ReplyPart::Refusal(_) => false,
            })
    }

    /// The calls that the model asks us to make, in the order of the reply; tools of the provider are not among them.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            ReplyPart::ToolCall(call) => Some(call),
            ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::ServerTool(_) | ReplyPart::Refusal(_) => None,
        })
    }
}

/// One part of what a model said, in the order in which it came.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReplyPart {
    /// Words of the answer.
    Text(TextPart),
    /// Reasoning before the answer.
    Thinking(ThinkingPart),
    /// The model asks for a tool.
    ToolCall(ToolCall),
    /// The provider ran a tool of its own.
    ServerTool(ServerToolPart),
    /// The model declined to answer, in its own words; not part of the text.
    Refusal(TextPart),
}

/// Words of the model, and what only their provider understands of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextPart {
    /// The words.
    #[serde(serialize_with = "quoted")]
    pub text: String,
    /// What goes back to the same provider, unmodified.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub private: Option<RawJson>,
}

/// Reasoning that the provider showed; empty text if it came redacted or encrypted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThinkingPart {
    pub text: String,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub private: Option<RawJson>,
}

/// What is there is given, also if it is `null`.
pub(crate) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(deserializer).map(Some)
}

/// A tool that the provider ran itself: shown, never run here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerToolPart {
    pub tool: String,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub input: Option<RawJson>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub output: Option<RawJson>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub private: Option<RawJson>,
}

/// The model asks for a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Unique in its conversation; made up here for providers that send none.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// What the tool is called with.
    pub arguments: Arguments,
    /// What goes back to the same provider, unmodified.
    pub private: Option<RawJson>,
}

/// Arguments as the model wrote them. What is not a JSON object, or has a key twice, is never dispatched. In JSON the object
/// is `arguments`; what is none is `arguments_text`, beside `"arguments": null`.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// A JSON object without repeated keys.
    Object(RawJson),
    /// Anything else, as it was written.
    Malformed(String),
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ToolCallJson<'a> {
            id: &'a str,
            tool: &'a str,
            arguments: Option<&'a RawJson>,
            #[serde(skip_serializing_if = "Option::is_none")]
            arguments_text: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            private: Option<&'a RawJson>,
        }
        let Self { id, tool, arguments, private } = self;
        let (arguments, arguments_text) = arguments.in_json();
        ToolCallJson { id, tool, arguments, arguments_text, private: private.as_ref() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ToolCallFields {
            id: String,
            tool: String,
            arguments: Option<RawJson>,
            arguments_text: Option<String>,
            #[serde(default, deserialize_with = "given")]
            private: Option<RawJson>,
        }
        let ToolCallFields { id, tool, arguments, arguments_text, private } =
            ToolCallFields::deserialize(deserializer)?;
        let arguments = match (arguments, arguments_text) {
            (Some(object), None) => Arguments::Object(object),
            (None, Some(text)) => Arguments::Malformed(text),
            (Some(_), Some(_)) | (None, None) => {
                return Err(D::Error::custom("a call has either `arguments` or `arguments_text`"));
            }
        };
        Ok(Self { id, tool, arguments, private })
    }
}

impl Arguments {
    /// `arguments` and `arguments_text`, one of them.
    pub(crate) fn in_json(&self) -> (Option<&RawJson>, Option<&str>) {
        match self {
            Self::Object(object) => (Some(object), None),
            Self::Malformed(text) => (None, Some(text)),
        }
    }

    /// Judges the raw text of a model: an empty one means no arguments.
    pub fn parse(text: String) -> Self {
        object(&text).map_or(Self::Malformed(text), Self::Object)
    }
}

fn object(text: &str) -> Option<RawJson> {
    let whole = whole_characters(text.as_bytes());
    let trimmed = str::from_utf8(&whole).ok()?.trim();
    if trimmed.is_empty() {
        return Some(RawJson::from_valid("{}".to_owned()));
    }
    let is_object = trimmed.starts_with('{') && repeated_key(trimmed).is_none();
    RawJson::parse(trimmed).ok().filter(|_| is_object)
}

/// What became of one tool call. An error is a result too: the model reads it and may recover.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// What the tool gave, or why it gave nothing.
    pub outcome: Result<Vec<Content>, String>,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
pub enum Finish {
    Stop,
    /// At the longest answer that was allowed.
    Length,
    /// The conversation fills all that the model can see.
    ContextWindow,
    ToolCalls,
    ContentFilter,
    /// The provider wants to be asked again with the same history to go on.
    Pause,
    /// For a reason that is not known here.
    Error,
}

impl Finish {
    /// Whether the model ended by itself.
    pub(crate) fn is_natural(self) -> bool {
        match self {
            Self::Stop | Self::ToolCalls | Self::Pause => true,
            Self::Length | Self::ContextWindow | Self::ContentFilter | Self::Error => false,
        }
    }
}

/// Why a reply is no whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnfinishedReason {
    /// It was cut at the longest answer that was allowed.
    Length,
    /// It was cut where the model's context window was full.
    ContextWindow,
    /// The model refused, or the provider's filter took the answer away; in their words.
    Declined {
        /// The words of the refusal.
        words: String,
    },
    /// It ended in a way that the provider has its own word for.
    Broken {
        /// The provider's word.
        word: String,
    },
}

/// Tokens and requests; `cost_usd` is unknown rather than zero where no price is known. Every request that was sent
/// counts, also if it gave no reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
pub struct Usage {
    pub requests: u64,
    /// All tokens that went in, cached ones included.
    pub input_tokens: u64,
    /// All tokens that came out, reasoning included.
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub reasoning_tokens: u64,
    pub cost_usd: Option<f64>,
    /// Of the requests, those that gave no reply: refused, cut or interrupted.
    #[serde(default)]
    pub unanswered: u64,
    /// Of the requests, those whose provider did not say all that they took: their tokens and costs are estimates.
    #[serde(default)]
    pub estimated: u64,
}

/// A cost is a whole number of these.
const PICODOLLARS: f64 = 1e12;

impl Usage {
    /// Whether it is that of no request at all.
    pub(crate) fn is_nothing(&self) -> bool {
        self.requests == 0
    }

    /// Both together. A sum with an unknown cost has an unknown cost; a sum of nothing has none yet. Costs are added up to the
    /// picodollar, so that ten times ten cents are a dollar.
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        let is_first = self.requests == 0;
        let add = |(one, other): (f64, f64)| ((one + other) * PICODOLLARS).round() / PICODOLLARS;
        Self {
            requests: self.requests + more.requests,
            input_tokens: self.input_tokens + more.input_tokens,
            output_tokens: self.output_tokens + more.output_tokens,
            cache_read_tokens: self.cache_read_tokens + more.cache_read_tokens,
            cache_write_tokens: self.cache_write_tokens + more.cache_write_tokens,
            reasoning_tokens: self.reasoning_tokens + more.reasoning_tokens,
            unanswered: self.unanswered + more.unanswered,
            estimated: self.estimated + more.estimated,
            cost_usd: if is_first { more.cost_usd } else { self.cost_usd.zip(more.cost_usd).map(add) },
        }
    }

    /// What is left of it without a part of it.
    #[cfg(feature = "front-end")]
    pub(crate) fn minus(&self, part: &Self) -> Self {
        if part.requests == 0 {
            return *self;
        }
        let less = |(one, other): (f64, f64)| ((one - other) * PICODOLLARS).round().max(0.0) / PICODOLLARS;
        Self {
            requests: self.requests.saturating_sub(part.requests),
            input_tokens: self.input_tokens.saturating_sub(part.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(part.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_sub(part.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(part.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(part.reasoning_tokens),
            unanswered: self.unanswered.saturating_sub(part.unanswered),
            estimated: self.estimated.saturating_sub(part.estimated),
            cost_usd: self.cost_usd.zip(part.cost_usd).map(less),
        }
    }
}

/// What has to happen next, read off the end of the conversation.
#[derive(Debug, PartialEq)]
pub(crate) enum NextAction<'a> {
    AskModel,
    RunTools(&'a Reply),
    Finish(&'a Reply),
    /// It is neither an answer nor a step towards one.
    GiveUp(&'a Reply, UnfinishedReason),
}

/// The agent loop's only decision. The history is the program counter, so a turn can be inspected, tested or resumed
/// from any prefix of it.
pub(crate) fn next_step(history: &[Message]) -> NextAction<'_> {
    let reply = match history.last() {
        Some(Message::Assistant(reply)) => reply,
        Some(Message::User(_) | Message::Tool(_)) | None => return NextAction::AskModel,
    };
    match reply.unfinished() {
        Some(unfinished) => NextAction::GiveUp(reply, unfinished),
        None if reply.tool_calls().next().is_some() => NextAction::RunTools(reply),
        None if reply.finish == Finish::Pause => NextAction::AskModel,
        None => NextAction::Finish(reply),
    }
}

/// The JSON of a text: models like to put it into a code fence.
pub fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner =
        text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, str::trim)
}

/// JSON kept as the text it came in: the order of keys changes what models write, so it must survive.
#[derive(Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// The same JSON on many lines, each level indented; keys stay in the order in which they came.
    pub fn indented(&self) -> String {
        let mut out = String::new();
        let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
        let mut characters = self.get().chars().filter(|c| !matches!(c, '\n' | '\r')).peekable();
        while let Some(c) = characters.next() {
            if in_text {
                out.push(c);
                (in_text, escaped) = (escaped || c != '"', !escaped && c == '\\');
                continue;
            }
            let new_line = |depth: usize, out: &mut String| {
                out.push('\n');
                out.extend(std::iter::repeat_n("  ", depth));
            };
            match c {
                ' ' | '\t' => {}
                '{' | '[' => {
                    out.push(c);
                    while characters.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
                    if let Some(close) = characters.next_if(|c| matches!(c, '}' | ']')) {
                        out.push(close);
                    } else {
                        depth += 1;
                        new_line(depth, &mut out);
                    }
                }
                '}' | ']' => {
                    depth = depth.saturating_sub(1);
                    new_line(depth, &mut out);
                    out.push(c);
                }
                ',' => {
                    out.push(c);
                    new_line(depth, &mut out);
                }
                ':' => out.push_str(": "),
                c => {
                    in_text = c == '"';
                    out.push(c);
                }
            }
        }
        out
    }

    /// Keeps a text that is one JSON value, byte for byte; an error says where it is not JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// For text that is JSON by construction.
    pub(crate) fn from_valid(text: String) -> Self {
        Self(RawValue::from_string(text).expect("text that is JSON by construction"))
    }

    /// The JSON of a plain value. Panics if the value cannot be serialised, such as a map whose keys are no texts.
    pub fn of(value: &impl Serialize) -> Self {
        Self(serde_json::value::to_raw_value(value).expect("plain values serialise"))
    }

    /// The JSON text, as it came.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The same as `serde_json` has it, to be borrowed in other values.
    pub(crate) fn raw(&self) -> &RawValue {
        &self.0
    }

    /// A copy of what stands in a larger text.
    pub(crate) fn of_raw(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }

    /// The same value without line breaks: in JSON they stand only between tokens.
    #[must_use]
    pub(crate) fn in_one_line(self) -> Self {
        // Each line of a record goes through here, and hardly one has such a byte.
        if memchr::memchr2(b'\n', b'\r', self.get().as_bytes()).is_none() {
            return self;
        }
        Self::from_valid(self.get().replace(['\n', '\r'], " "))
    }

    /// Reads it as a value of another type; an error says what does not fit.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(json: Box<RawValue>) -> Self {
        Self(json)
    }
}

/// Any JSON.
impl JsonSchema for RawJson {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

// The derived `Deserialize` of an internally tagged enum buffers its content, and raw JSON does not survive that
// buffer. So the object is kept raw until its tag is known.

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct RoleTag {
            role: String,
        }
        let raw = RawJson::deserialize(deserializer)?;
        let RoleTag { role } = raw.to().map_err(D::Error::custom)?;
        let message = match role.as_str() {
            "user" => raw.to().map(Self::User),
            "assistant" => raw.to().map(Self::Assistant),
            "tool" => raw.to().map(Self::Tool),
            unknown => return Err(D::Error::custom(format!("unknown role `{unknown}`"))),
        };
        message.map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ReplyPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct TypeTag {
            r#type: String,
        }
        let raw = RawJson::deserialize(deserializer)?;
        let TypeTag { r#type } = raw.to().map_err(D::Error::custom)?;
        let part = match r#type.as_str() {
            "text" => raw.to().map(Self::Text),
            "thinking" => raw.to().map(Self::Thinking),
            "tool_call" => raw.to().map(Self::ToolCall),
            "server_tool" => raw.to().map(Self::ServerTool),
            "refusal" => raw.to().map(Self::Refusal),
            unknown => return Err(D::Error::custom(format!("unknown part `{unknown}`"))),
        };
        part.map_err(D::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct ToolResultFields {
    r#type: String,
    id: String,
    tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Vec<Content>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Serialize for ToolResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (content, error) = match self.outcome.clone() {
            Ok(content) => (Some(content), None),
            Err(error) => (None, Some(error)),
        };
        let (id, tool) = (self.id.clone(), self.tool.clone());
        ToolResultFields { r#type: "tool_result".to_owned(), id, tool, content, error }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = ToolResultFields::deserialize(deserializer)?;
        let outcome = match (fields.content, fields.error) {
            (Some(content), None) => Ok(content),
            (None, Some(error)) => Err(error),
            _ => return Err(D::Error::custom("a tool result has either `content` or `error`")),
        };
        Ok(Self { id: fields.id, tool: fields.tool, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(parts: Vec<ReplyPart>, finish: Finish) -> Message {
        let finish_reason = None;
        Message::Assistant(Reply { parts, model: "anthropic:m".into(), finish, finish_reason, usage: Usage::default() })
    }

    fn text(text: &str) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: None })
    }

    fn call() -> ReplyPart {
        let arguments = Arguments::parse(r#"{"b": 1, "a": 2}"#.into());
        ReplyPart::ToolCall(ToolCall { id: "c1".into(), tool: "t".into(), arguments, private: None })
    }

    #[test]
    fn indenting_keeps_the_order_and_the_texts() {
        let json = RawJson::parse(r#"{"b":[1, {"x" : "a, {\"q\"}: [\\"}],"a":{},"c":[ ]}"#).unwrap();
        let expected = "{\n  \"b\": [\n    1,\n    {\n      \"x\": \"a, {\\\"q\\\"}: [\\\\\"\n    }\n  ],\n  \"a\": {},\n  \"c\": []\n}";
        let shown = json.indented();
        assert_eq!(shown, expected);
        let (before, after): (serde_json::Value, serde_json::Value) =
            (json.to().unwrap(), serde_json::from_str(&shown).unwrap());
        assert_eq!(before, after);
    }

    #[test]
    fn the_next_step_is_read_off_the_last_message() {
        let result = ToolResult { id: "c1".into(), tool: "t".into(), outcome: Err("no".into()) };
        assert_eq!(next_step(&[]), NextAction::AskModel);
        assert_eq!(next_step(&[Message::user("hi")]), NextAction::AskModel);
        assert_eq!(next_step(&[Message::tool_results(vec![result])]), NextAction::AskModel);
        assert_eq!(next_step(&[reply(vec![text("…")], Finish::Pause)]), NextAction::AskModel);
        assert!(matches!(next_step(&[reply(vec![text("done")], Finish::Stop)]), NextAction::Finish(_)));
        assert!(matches!(next_step(&[reply(vec![text("so"), call()], Finish::Stop)]), NextAction::RunTools(_)));
    }

    #[test]
    fn what_is_not_whole_is_no_answer_and_none_of_its_calls_runs() {
        let refusal = ReplyPart::Refusal(TextPart { text: "no".into(), private: None });
        let declined = |words: &str| UnfinishedReason::Declined { words: words.into() };
        let filtered = "the provider filtered the answer (an unknown reason)";
        let broken = UnfinishedReason::Broken { word: "an unknown reason".into() };
        let cases = [
            (vec![text("so")], Finish::Length, UnfinishedReason::Length),
            (vec![text("so"), call()], Finish::Length, UnfinishedReason::Length),
            (vec![call()], Finish::ContextWindow, UnfinishedReason::ContextWindow),
            (vec![text("so"), call()], Finish::ContentFilter, declined(filtered)),
            (vec![text("so"), refusal.clone()], Finish::ContentFilter, declined("no")),
            (vec![refusal, call()], Finish::ToolCalls, declined("no")),
            (vec![text("so"), call()], Finish::Error, broken),
        ];
        for (parts, finish, expected) in cases {
            let history = [reply(parts, finish)];
            let NextAction::GiveUp(_, unfinished) = next_step(&history) else { panic!("{finish:?}") };
            assert_eq!(unfinished, expected, "{finish:?}");
        }
    }

    #[test]
    fn messages_survive_json_with_the_order_of_their_keys() {
        let private = Some(RawJson::parse(r#"{"z":1,"signature":"abc"}"#).unwrap());
        let attachment =
            Attachment { name: "a.png".into(), path: None, media_type: "image/png".into(), data: Arc::from(*b"\x89P") };
        let outcomes = [Ok(vec![Content::text("42"), Content::Attachment(attachment)]), Err("it failed".to_owned())];
        let results = outcomes.map(|outcome| ToolResult { id: "c1".into(), tool: "t".into(), outcome });
        let history = vec![
            Message::user("hi"),
            reply(vec![ReplyPart::Thinking(ThinkingPart { text: "hm".into(), private }), call()], Finish::ToolCalls),
            Message::tool_results(results.into()),
        ];
        let json = serde_json::to_string(&history).unwrap();
        assert!(json.contains(r#"{"b": 1, "a": 2}"#), "{json}");
        assert!(json.contains(r#""role":"tool","parts":[{"type":"tool_result""#), "{json}");
        assert_eq!(serde_json::from_str::<Vec<Message>>(&json).unwrap(), history);
    }

    #[test]
    fn arguments_that_are_not_an_object_are_marked() {
        for text in ["[1]", "7", "\"x\"", "{\"a\":", "{} {}", "null", "oops", r#"{"a":1,"a":2}"#] {
            assert_eq!(Arguments::parse(text.into()), Arguments::Malformed(text.into()));
        }
        for text in ["", "  ", "{}"] {
            assert!(matches!(Arguments::parse(text.into()), Arguments::Object(_)));
        }
        let half = Arguments::parse(r#"{"a":"\ud83d"}"#.into());
        assert_eq!(half, Arguments::Object(RawJson::parse(r#"{"a":"\ufffd"}"#).unwrap()), "half a character");
    }
}
