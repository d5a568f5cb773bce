//! Chat Completions: the older protocol of `OpenAI`, which most other providers speak with [quirks](Quirks).
//!
//! `private` of thinking is its `reasoning_details`, of a text its `annotations` (kept, never sent), of a tool call its
//! `extra_content`.

mod decode;
mod encode;
mod wire;

use super::protocol::{Decoder, Encoder, Prefill, Protocol, Quirks};
use super::{Head, ModelError, fault};

/// Chat Completions as a protocol.
pub struct OpenAiChat;

impl Protocol for OpenAiChat {
    fn encoder(&self, head: &Head, quirks: &Quirks) -> Box<dyn Encoder> {
        Box::new(encode::ChatEncoder::new(head, quirks))
    }

    fn decoder(&self, head: &Head, quirks: &Quirks, turn: usize) -> Box<dyn Decoder> {
        Box::new(decode::ChatDecoder::new(head, quirks, turn))
    }

    fn path(&self, _: &Head, quirks: &Quirks) -> String {
        quirks.chat_path.to_owned()
    }

    fn headers(&self, _: &Head, _: &Quirks, key: Option<&str>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {key}"))).into_iter().collect()
    }

    fn continues_answers(&self, _: &Head, quirks: &Quirks) -> bool {
        match quirks.prefill {
            Prefill::None => false,
            Prefill::Plain | Prefill::Marked => true,
        }
    }

    fn fault(&self, status: u16, body: &[u8]) -> ModelError {
        fault::of_answer(status, body)
    }
}
