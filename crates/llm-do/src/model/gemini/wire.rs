//! What answers look like. A document is a stream of one chunk.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::message::{RawJson, Usage};
use crate::model::protocol::{BorrowedText, leniently, tokens};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chunk<'a> {
    #[serde(borrow)]
    pub candidates: Option<Vec<Candidate<'a>>>,
    pub prompt_feedback: Option<PromptFeedback>,
    #[serde(default, deserialize_with = "leniently")]
    pub usage_metadata: Option<WireUsage>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Candidate<'a> {
    pub index: Option<u64>,
    #[serde(borrow)]
    pub content: Option<Content<'a>>,
    pub finish_reason: Option<String>,
    pub finish_message: Option<String>,
    #[serde(borrow)]
    pub grounding_metadata: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(borrow)]
    pub url_context_metadata: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(borrow)]
    pub citation_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PromptFeedback {
    pub block_reason: Option<String>,
    pub block_reason_message: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct FunctionCall<'a> {
    pub id: Option<String>,
    pub name: Option<String>,
    #[serde(borrow)]
    pub args: Option<&'a RawValue>,
}

/// A use of a tool that the provider runs itself, or its result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolInvocation<'a> {
    pub tool_type: Option<String>,
    #[serde(borrow)]
    pub args: Option<&'a RawValue>,
    #[serde(borrow)]
    pub response: Option<&'a RawValue>,
}

/// The field that may accompany any part.
pub(crate) const SIGNATURE: &str = "thoughtSignature";

/// Almost every part is a text and nothing else, so only what is beside it is collected.
pub(crate) struct Part<'a> {
    pub text: Option<Cow<'a, str>>,
    pub thought: bool,
    pub beside: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Part<'a> {
    /// The value of a field beside the text; `None` if the part has no such field.
    pub(crate) fn field(&self, name: &str) -> Option<&'a RawValue> {
        self.beside.iter().find(|(field, _)| field == name).map(|(_, value)| *value)
    }

    /// Whether the part has any field beside its text that is not the signature of a thought.
    pub(crate) fn holds_more_than_a_signature(&self) -> bool {
        self.beside.iter().any(|(name, _)| name != SIGNATURE)
    }

    /// What is beside the text, in alphabetical order.
    pub(crate) fn fields(&self) -> BTreeMap<String, RawJson> {
        self.beside.iter().map(|(name, value)| (name.clone().into_owned(), compact(value))).collect()
    }

    /// The whole part, as it goes back.
    pub(crate) fn raw(&self) -> RawJson {
        let mut fields = self.fields();
        if let Some(text) = &self.text {
            fields.insert("text".to_owned(), RawJson::of(text));
        }
        if self.thought {
            fields.insert("thought".to_owned(), RawJson::of(&true));
        }
        RawJson::of(&fields)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Part<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut part = Part { text: None, thought: false, beside: Vec::new() };
                while let Some(BorrowedText(name)) = fields.next_key()? {
                    match name.as_ref() {
                        "text" => {
                            part.text =
                                fields.next_value::<Option<BorrowedText<'de>>>()?.map(|BorrowedText(text)| text);
                        }
                        "thought" => part.thought = fields.next_value::<Option<bool>>()?.unwrap_or(false),
                        _ => part.beside.push((name, fields.next_value()?)),
                    }
                }
                Ok(part)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// The same JSON without the white space that documents are laid out with, and streams are not.
pub(crate) fn compact(raw: &RawValue) -> RawJson {
    let mut text = String::with_capacity(raw.get().len());
    let (mut in_string, mut escaped) = (false, false);
    for character in raw.get().chars() {
        if in_string {
            (in_string, escaped) = (escaped || character != '"', character == '\\' && !escaped);
        } else if character.is_ascii_whitespace() {
            continue;
        } else {
            in_string = character == '"';
        }
        text.push(character);
    }
    RawJson::from_valid(text)
}

#[derive(Deserialize)]
pub(crate) struct WireUsage {
    #[serde(rename = "promptTokenCount", default, deserialize_with = "tokens")]
    prompt: Option<u64>,
    #[serde(rename = "toolUsePromptTokenCount", default, deserialize_with = "tokens")]
    tool_use_prompt: Option<u64>,
    #[serde(rename = "candidatesTokenCount", default, deserialize_with = "tokens")]
    candidates: Option<u64>,
    #[serde(rename = "thoughtsTokenCount", default, deserialize_with = "tokens")]
    thoughts: Option<u64>,
    #[serde(rename = "cachedContentTokenCount", default, deserialize_with = "tokens")]
    cached_content: Option<u64>,
}

impl WireUsage {
    /// What the provider's own tools read is billed as input, and thoughts as output.
    pub(crate) fn total(&self) -> Usage {
        let count = |count: Option<u64>| count.unwrap_or(0);
        let reasoning_tokens = count(self.thoughts);
        Usage {
            requests: 1,
            input_tokens: count(self.prompt).saturating_add(count(self.tool_use_prompt)),
            output_tokens: count(self.candidates).saturating_add(reasoning_tokens),
            cache_read_tokens: count(self.cached_content),
            cache_write_tokens: 0,
            reasoning_tokens,
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_layout_is_lost() {
        let cases = [
            ("{ \"b\" : [ 1 ,\n 2 ] , \"a\" : null }", r#"{"b":[1,2],"a":null}"#),
            (r#"{"a b" : "c \" d \\" , "e" : " é "}"#, r#"{"a b":"c \" d \\","e":" é "}"#),
            (r#""\\\" x""#, r#""\\\" x""#),
        ];
        for (laid_out, expected) in cases {
            assert_eq!(compact(serde_json::from_str(laid_out).unwrap()).get(), expected);
        }
    }
}
