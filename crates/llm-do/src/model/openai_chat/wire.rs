//! What chunks and documents look like. Every field is optional and may be null: compatible servers differ most in what
//! they leave out. What is rare or large is boxed: a chunk is moved several times on its way.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::message::{RawJson, Usage};
use crate::model::protocol::{BorrowedText, ReportedCost, leniently, tokens};

#[derive(Deserialize)]
pub(crate) struct Chunk<'a> {
    #[serde(borrow)]
    pub choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "leniently")]
    pub usage: Option<Box<WireUsage>>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
    pub x_groq: Option<Groq>,
}

#[derive(Deserialize)]
pub(crate) struct Groq {
    #[serde(default, deserialize_with = "leniently")]
    pub usage: Option<Box<WireUsage>>,
}

#[derive(Deserialize)]
pub(crate) struct Choice<'a> {
    pub index: Option<u64>,
    #[serde(borrow)]
    pub delta: Option<Box<MessageDelta<'a>>>,
    #[serde(borrow)]
    pub message: Option<Box<MessageDelta<'a>>>,
    #[serde(borrow)]
    pub finish_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct MessageDelta<'a> {
    #[serde(borrow)]
    pub content: Option<Content<'a>>,
    #[serde(borrow)]
    pub reasoning_content: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub reasoning: Option<BorrowedText<'a>>,
    pub reasoning_details: Option<Vec<ReasoningDetail>>,
    #[serde(borrow)]
    pub refusal: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub tool_calls: Option<Vec<CallDelta<'a>>>,
    pub annotations: Option<Vec<RawJson>>,
    pub executed_tools: Option<Vec<ExecutedTool>>,
}

#[derive(Deserialize)]
pub(crate) struct CallDelta<'a> {
    pub index: Option<u64>,
    #[serde(borrow)]
    pub id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub function: Option<FunctionDelta<'a>>,
    pub extra_content: Option<RawJson>,
}

impl CallDelta<'_> {
    pub(crate) fn tool(&self) -> Option<&str> {
        let BorrowedText(name) = self.function.as_ref()?.name.as_ref()?;
        (!name.is_empty()).then_some(name)
    }
}

#[derive(Deserialize)]
pub(crate) struct FunctionDelta<'a> {
    #[serde(borrow)]
    pub name: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub arguments: Option<ArgumentsText<'a>>,
}

/// A tool that the provider ran.
#[derive(Deserialize)]
pub(crate) struct ExecutedTool {
    pub r#type: Option<String>,
    pub name: Option<String>,
    pub arguments: Option<RawJson>,
    pub output: Option<RawJson>,
}

/// Content is a string, or a list of pieces.
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Pieces(Vec<ContentPiece<'a>>),
}

#[derive(Deserialize)]
pub(crate) struct ContentPiece<'a> {
    #[serde(borrow)]
    pub text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub thinking: Option<Content<'a>>,
}

impl Content<'_> {
    /// Its texts, whatever they are nested in.
    pub(crate) fn texts(&self, tell: &mut dyn FnMut(&str)) {
        match self {
            Self::Text(text) => tell(text),
            Self::Pieces(pieces) => {
                for piece in pieces {
                    piece.text.iter().for_each(|BorrowedText(text)| tell(text));
                    piece.thinking.iter().for_each(|thinking| thinking.texts(tell));
                }
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrPieces;
        impl<'de> Visitor<'de> for StringOrPieces {
            type Value = Content<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of pieces")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Content::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Content::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(piece) = pieces.next_element()? {
                    all.push(piece);
                }
                Ok(Content::Pieces(all))
            }
        }
        deserializer.deserialize_any(StringOrPieces)
    }
}

/// The text of arguments: JSON in a string, or from some servers the object itself.
pub(crate) struct ArgumentsText<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for ArgumentsText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrObject;
        impl<'de> Visitor<'de> for StringOrObject {
            type Value = ArgumentsText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an object")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(ArgumentsText(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ArgumentsText(Cow::Owned(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut text = String::from("{");
                while let Some((name, value)) = fields.next_entry::<String, RawJson>()? {
                    if text.len() > 1 {
                        text.push(',');
                    }
                    text.push_str(RawJson::of(&name).get());
                    text.push(':');
                    text.push_str(value.get());
                }
                text.push('}');
                Ok(ArgumentsText(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_any(StringOrObject)
    }
}

/// One entry of `reasoning_details`, to be returned as it came.
#[derive(Deserialize, Serialize)]
pub(crate) struct ReasoningDetail {
    r#type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

impl ReasoningDetail {
    pub(crate) fn words(&self) -> Option<&str> {
        self.text.as_deref().or(self.summary.as_deref())
    }

    /// Encrypted ones come whole.
    pub(crate) fn is_continued_by(&self, next: &Self) -> bool {
        self.r#type == next.r#type && self.index == next.index && self.data.is_none() && next.data.is_none()
    }

    pub(crate) fn append(&mut self, next: Self) {
        append(&mut self.text, next.text);
        append(&mut self.summary, next.summary);
        self.signature = next.signature.or(self.signature.take());
        self.id = next.id.or(self.id.take());
        self.format = next.format.or(self.format.take());
    }
}

fn append(text: &mut Option<String>, more: Option<String>) {
    match (text, more) {
        (Some(text), Some(more)) => text.push_str(&more),
        (text @ None, more) => *text = more,
        (Some(_), None) => {}
    }
}

#[derive(Deserialize)]
pub(crate) struct WireUsage {
    #[serde(default, deserialize_with = "tokens")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "tokens")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "leniently")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default, deserialize_with = "leniently")]
    completion_tokens_details: Option<CompletionDetails>,
    /// Another name for what the cache served.
    #[serde(default, deserialize_with = "tokens")]
    prompt_cache_hit_tokens: Option<u64>,
    /// Read only for providers that are known to put a price there: others have an object.
    cost: Option<RawJson>,
    is_byok: Option<RawJson>,
    cost_details: Option<RawJson>,
}

#[derive(Default, Deserialize)]
struct CostDetails {
    upstream_inference_cost: Option<f64>,
}

#[derive(Default, Deserialize)]
struct PromptDetails {
    #[serde(default, deserialize_with = "tokens")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "tokens")]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default, deserialize_with = "tokens")]
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    pub(crate) fn total(&self, reported: ReportedCost) -> Usage {
        let cost_usd = match reported {
            ReportedCost::None => None,
            ReportedCost::Dollars => self.dollars(),
        };
        let prompt = self.prompt_tokens_details.as_ref();
        let completion = self.completion_tokens_details.as_ref();
        Usage {
            requests: 1,
            input_tokens: self.prompt_tokens.unwrap_or(0),
            output_tokens: self.completion_tokens.unwrap_or(0),
            cache_read_tokens: prompt
                .and_then(|details| details.cached_tokens)
                .or(self.prompt_cache_hit_tokens)
                .unwrap_or(0),
            cache_write_tokens: prompt.and_then(|details| details.cache_write_tokens).unwrap_or(0),
            reasoning_tokens: completion.and_then(|details| details.reasoning_tokens).unwrap_or(0),
            cost_usd,
            ..Usage::default()
        }
    }

    /// The price that the provider reports; `None` if it is negative or no number.
    fn dollars(&self) -> Option<f64> {
        let cost: f64 = self.cost.as_ref()?.to().ok()?;
        let own_key = self.is_byok.as_ref().is_some_and(|own| own.get() == "true");
        let details = self.cost_details.as_ref().filter(|_| own_key).and_then(|details| details.to().ok());
        let CostDetails { upstream_inference_cost } = details.unwrap_or_default();
        let total = cost + upstream_inference_cost.unwrap_or(0.0);
        (total.is_finite() && total >= 0.0).then_some(total)
    }
}
