//! The least of an event stream: lines that end with LF, and JSON in one line of `data`.

use std::borrow::Cow;
use std::fmt;

use bench::Wire;
use memchr::memchr;
use serde::de::{self, SeqAccess};
use serde::{Deserialize, Deserializer};

use crate::Failure;

pub struct Reader {
    wire: Wire,
    /// A line whose end has not come yet.
    unfinished: Vec<u8>,
    event: Event,
    block: Block,
    pub reply: Reply,
}

#[derive(Default)]
pub struct Reply {
    pub text: String,
    pub calls: Vec<Call>,
}

pub struct Call {
    pub id: String,
    pub name: String,
    pub input: String,
}

/// What the next data is.
enum Event {
    Beginning,
    Delta,
    Other,
}

/// What the next delta belongs to.
enum Block {
    Text,
    Call,
}

impl Reader {
    pub fn new(wire: Wire) -> Self {
        let event = match wire {
            Wire::Anthropic => Event::Other,
            Wire::Chat => Event::Delta,
        };
        Self { wire, unfinished: Vec::new(), event, block: Block::Text, reply: Reply::default() }
    }

    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        let mut rest = chunk;
        while let Some(end) = memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.unfinished.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.unfinished);
                whole.extend_from_slice(line);
                self.line(&whole)?;
            }
        }
        self.unfinished.extend_from_slice(rest);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Failure> {
        match (self.wire, line) {
            (Wire::Anthropic, [b'e', b'v', b'e', b'n', b't', b':', b' ', name @ ..]) => {
                self.event = match name {
                    b"content_block_delta" => Event::Delta,
                    b"content_block_start" => Event::Beginning,
                    _ => Event::Other,
                };
            }
            (_, [b'd', b'a', b't', b'a', b':', b' ', json @ ..]) if json != b"[DONE]" => match self.event {
                Event::Beginning => self.begin(str::from_utf8(json)?)?,
                Event::Delta => self.add(str::from_utf8(json)?)?,
                Event::Other => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, json: &str) -> Result<(), Failure> {
        let BlockStart { content_block: Started { id, name } } = serde_json::from_str(json)?;
        self.block = match (id, name) {
            (Some(id), Some(name)) => {
                self.reply.calls.push(Call { id, name, input: String::new() });
                Block::Call
            }
            _ => Block::Text,
        };
        Ok(())
    }

    fn add(&mut self, json: &str) -> Result<(), Failure> {
        match (self.wire, &self.block, self.reply.calls.last_mut()) {
            (Wire::Chat, ..) => {
                let Chunk { choices: First(choice) } = serde_json::from_str(json)?;
                self.reply.text.push_str(&choice.delta.content);
            }
            (Wire::Anthropic, Block::Call, Some(call)) => {
                let BlockDelta { delta: InputDelta { partial_json } } = serde_json::from_str(json)?;
                call.input.push_str(&partial_json);
            }
            (Wire::Anthropic, Block::Text | Block::Call, _) => {
                let BlockDelta { delta: TextDelta { text } } = serde_json::from_str(json)?;
                self.reply.text.push_str(&text);
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct BlockStart {
    content_block: Started,
}

/// A content block that begins. Only blocks that call a tool have an id and a name.
#[derive(Deserialize)]
struct Started {
    id: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct BlockDelta<Delta> {
    delta: Delta,
}

#[derive(Deserialize)]
struct TextDelta<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct InputDelta<'a> {
    #[serde(borrow)]
    partial_json: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: First<'a>,
}

/// The one choice of a chunk, without a vector for it; the chunk with the usage has none.
struct First<'a>(Choice<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = First<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("at most one choice")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut choices: A) -> Result<First<'de>, A::Error> {
                Ok(First(choices.next_element()?.unwrap_or_default()))
            }
        }
        deserializer.deserialize_seq(Visitor)
    }
}

#[derive(Default, Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: ContentDelta<'a>,
}

#[derive(Default, Deserialize)]
struct ContentDelta<'a> {
    #[serde(borrow, default)]
    content: Cow<'a, str>,
}
