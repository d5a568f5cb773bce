//! The seam between conversations and wire formats: a protocol is a pure translation in both directions. Its caller
//! owns the connection, the retries and the clock.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::plain::Plain;
use super::{Fault, Head, ModelError};
use crate::http::frames::{Frame, FrameTooLong};
use crate::message::{Message, Reply, ServerToolPart, Usage};

/// One wire format.
pub trait Protocol: Sync {
    /// Opens the request body of a conversation.
    fn encoder(&self, head: &Head, quirks: &Quirks) -> Box<dyn Encoder>;

    /// Reads one answer. `turn` is the number of messages the request had: call ids that the provider leaves out are
    /// made from it, so they are unique in the conversation and the same when it is replayed.
    fn decoder(&self, head: &Head, quirks: &Quirks, turn: usize) -> Box<dyn Decoder>;

    /// Where the request goes: the path (and query) to put behind the provider's base URL.
    fn path(&self, head: &Head, quirks: &Quirks) -> String;

    /// Headers of its own, the key among them; the content type is always JSON and not listed.
    fn headers(&self, head: &Head, quirks: &Quirks, key: Option<&str>) -> Vec<(&'static str, String)>;

    /// Whether a request that ends with the beginning of an answer is answered with the rest of it.
    fn continues_answers(&self, head: &Head, quirks: &Quirks) -> bool;

    /// What an answer with an error status says.
    fn fault(&self, status: u16, body: &[u8]) -> ModelError;
}

/// The growing request body of one conversation.
pub trait Encoder: Send {
    /// Appends a message; it is encoded this once.
    fn push(&mut self, message: &Message);

    /// How many messages have been pushed.
    fn messages(&self) -> usize;

    /// Forgets all messages but the first ones.
    fn truncate(&mut self, messages: usize);

    /// Lends the body: with this bound of the answer, in tokens, or with the one that was set. Appending is free of copies
    /// once it was dropped.
    fn body(&mut self, longest_answer: Option<u64>) -> Bytes;
}

/// The reader of one answer: frames of a stream or one document, then `finish`. Both ways give equal replies.
pub trait Decoder: Send {
    /// Reads a frame and tells what it adds.
    fn frame(&mut self, frame: Frame<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError>;

    /// Reads a whole answer and tells what is in it.
    fn document(&mut self, body: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError>;

    /// Whether the terminal event has come, so nothing is left to wait for.
    fn ended(&self) -> bool;

    /// Whether nothing of the answer can be missing, though its terminal event may be.
    fn is_complete(&self) -> bool;

    /// How many calls of tools the answer has so far.
    fn calls(&self) -> usize;

    /// How much of the answer has come: it grows with every piece of content, and with nothing else.
    fn progress(&self) -> usize;

    /// What the answer took, as far as the provider has said.
    fn usage(&self) -> Usage;

    /// The reply; an error if the answer is not complete.
    fn finish(self: Box<Self>) -> Result<Reply, DecodeError>;
}

/// What a frame adds to the reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delta<'a> {
    Text(&'a str),
    Thinking(&'a str),
    /// A use of a tool that the provider runs itself, with its result if there is one: told once.
    ServerTool(&'a ServerToolPart),
}

/// A string of a frame, copied only if it has escapes. (Inside of an `Option` a bare `Cow` would always be copied.)
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// Reads JSON. UTF-8 is checked for all of it at once, which is cheaper than string by string.
pub(crate) fn read_json<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, DecodeError> {
    let text = str::from_utf8(json).map_err(|error| DecodeError::Malformed(error.to_string()))?;
    Ok(serde_json::from_str(text)?)
}

/// The same, for what mostly is so plain that it needs no parser.
pub(crate) fn read_plain<'a, T: Deserialize<'a>>(
    json: &'a [u8],
    plain: impl FnOnce(&mut Plain<'a>) -> Option<T>,
) -> Result<T, DecodeError> {
    let text = str::from_utf8(json).map_err(|error| DecodeError::Malformed(error.to_string()))?;
    Plain::read(text, plain).map_or_else(|| Ok(serde_json::from_str(text)?), Ok)
}

/// Reads a field that is not needed. A value of another form counts as absent, so that an answer is not lost because
/// of a field beside it.
pub(crate) fn leniently<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

/// A count of tokens. Some servers give it as `7.0`, as `7.5` or in quotes: it is rounded up.
pub(crate) fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| count(raw.get().trim_matches('"'))))
}

fn count(text: &str) -> Option<u64> {
    const MOST: f64 = 1e15;
    let rounded = || text.parse::<f64>().ok().map(f64::ceil).filter(|count| (0.0..=MOST).contains(count));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number between these bounds")]
    text.parse().ok().or_else(|| rounded().map(|count| count as u64))
}

/// Why an answer cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The stream ended before its terminal event: asking again may help.
    #[error("the answer ended before it was complete")]
    Cut,
    #[error("the answer is not what the protocol says: {0}")]
    Malformed(String),
    /// The provider reported an error inside of an answer that began well.
    #[error(transparent)]
    Reported(ModelError),
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<FrameTooLong> for DecodeError {
    fn from(error: FrameTooLong) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// How the words about an answer begin that was not whole: by them it is told from a provider that gave none.
pub(crate) const ENDED_EARLY: &str = "the connection ended early";

impl From<DecodeError> for ModelError {
    fn from(error: DecodeError) -> Self {
        let fault = |message: String| Fault { message, ..Fault::default() };
        match error {
            DecodeError::Cut => Self::Wait(fault(ENDED_EARLY.to_owned())),
            DecodeError::Malformed(reason) => Self::Garbled(fault(reason)),
            DecodeError::Reported(error) => error,
        }
    }
}

/// Where providers of the same protocol differ. Plain data: a provider is a row, not a fork of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Behind the base URL.
    pub chat_path: &'static str,
    /// Between the base URL of Google's models and their names.
    pub gemini_path: &'static str,
    /// In which header the key travels.
    pub key_form: KeyForm,
    /// How the limit of an answer's length is called.
    pub max_tokens_field: &'static str,
    /// How the seed is called.
    pub seed_field: &'static str,
    /// Whether a stream is asked to tell its usage.
    pub stream_usage: StreamUsage,
    /// How thinking is turned on.
    pub thinking_setting: ThinkingSetting,
    /// Whether reasoning is sent back.
    pub reasoning_return: ReasoningReturn,
    /// Whether thinking stands within the text.
    pub inline_thinking: InlineThinking,
    /// How a typed answer is asked for.
    pub output_format: OutputFormat,
    /// Whether prompt caching is asked for.
    pub prompt_caching: PromptCaching,
    /// Which ids of calls are accepted.
    pub call_ids: CallIdForm,
    /// Whether the provider says what a request cost.
    pub reported_cost: ReportedCost,
    /// Whether an answer is continued whose beginning ends the request.
    pub prefill: Prefill,
}

impl Quirks {
    /// As `OpenAI` does it.
    pub const NONE: Self = Self {
        chat_path: "/chat/completions",
        gemini_path: "/v1beta",
        key_form: KeyForm::Own,
        max_tokens_field: "max_completion_tokens",
        seed_field: "seed",
        stream_usage: StreamUsage::Asked,
        thinking_setting: ThinkingSetting::Effort,
        reasoning_return: ReasoningReturn::Never,
        inline_thinking: InlineThinking::Text,
        output_format: OutputFormat::Schema,
        prompt_caching: PromptCaching::Automatic,
        call_ids: CallIdForm::Any,
        reported_cost: ReportedCost::None,
        prefill: Prefill::None,
    };

    /// The usual case among the compatible ones: the older name of the limit.
    pub const COMPATIBLE: Self = Self { max_tokens_field: "max_tokens", ..Self::NONE };
}

/// How a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// As the protocol does it.
    Own,
    /// The key is a token that is valid for a while, and is sent as one.
    Bearer,
}

/// Whether a stream carries usage only when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamUsage {
    Asked,
    /// It always comes, and the question would be an unknown parameter.
    Unasked,
}

/// How thinking is turned on, off and bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingSetting {
    /// `reasoning_effort`, where `none` turns it off.
    Effort,
    /// `reasoning_effort`, and `thinking: {type}` to turn it on and off.
    ThinkingType,
    /// `reasoning: {effort, max_tokens, enabled}`.
    Reasoning,
}

/// What of its reasoning the provider wants to see again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningReturn {
    Never,
    /// This field, in messages that call tools; required there even if empty.
    WithToolCalls(ReasoningField),
    /// `reasoning_details` as they came.
    Details,
}

/// In which field of a message reasoning goes back: `reasoning` or `reasoning_content`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningField {
    Reasoning,
    ReasoningContent,
}

/// What a leading `<think>…</think>` in the text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineThinking {
    Text,
    Thinking,
}

/// What the provider knows of an output schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    Schema,
    /// Only that the answer is JSON; the instructions carry the schema.
    JsonObject,
}

/// Whether prompt caching has to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptCaching {
    Automatic,
    /// By a `cache_control` on the request: up to the last block that can be cached.
    Marked,
}

/// Which call ids the provider accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallIdForm {
    Any,
    /// Letters, digits, `_` and `-`, at most 64 of them.
    Word,
    NineAlphanumeric,
}

/// Whether the usage says what the request cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedCost {
    None,
    /// `usage.cost` in US dollars. With a key of one's own at the provider behind it, that one's price comes on top.
    Dollars,
}

/// Whether the provider goes on with an answer whose beginning is the last message of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefill {
    /// It begins another answer, or refuses.
    None,
    Plain,
    /// If the message says `prefix: true`.
    Marked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_is_worth_more_tries_than_a_broken_one() {
        let reported = ModelError::FixRequest(Fault::default());
        assert!(matches!(ModelError::from(DecodeError::Cut), ModelError::Wait(_)));
        assert!(matches!(ModelError::from(DecodeError::Malformed("x".into())), ModelError::Garbled(_)));
        assert_eq!(ModelError::from(DecodeError::Reported(reported.clone())), reported);
    }

    #[test]
    fn counts_are_read_however_they_are_written() {
        #[derive(Debug, Deserialize)]
        struct Usage {
            #[serde(default, deserialize_with = "tokens")]
            input: Option<u64>,
            #[serde(default, deserialize_with = "leniently")]
            details: Option<Vec<u64>>,
        }
        let cases = [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("7.5", Some(8)),
            ("\"7\"", Some(7)),
            ("null", None),
            ("-7", None),
            ("1e300", None),
            ("\"many\"", None),
            ("[7]", None),
            ("{}", None),
            ("true", None),
        ];
        for (json, expected) in cases {
            let json = format!(r#"{{"input":{json},"details":{json}}}"#);
            let usage: Usage = read_json(json.as_bytes()).unwrap();
            assert_eq!(usage.input, expected, "{json}");
            assert_eq!(usage.details, (json.contains("[7]")).then(|| vec![7]), "{json}");
        }
        assert_eq!(read_json::<Usage>(b"{}").unwrap().input, None);
    }

    #[test]
    fn text_that_is_not_utf8_is_malformed() {
        assert_eq!(read_json::<Vec<String>>(b"[\"a\"]"), Ok(vec!["a".to_owned()]));
        assert!(matches!(read_json::<Vec<String>>(b"[\"\xff\"]"), Err(DecodeError::Malformed(_))));
    }
}
