//! The Responses API of `OpenAI`, both directions, streams and documents.
//!
//! It is used without state on the provider's side: nothing is stored there, the whole history is sent each time, and
//! reasoning travels encrypted. Both an answer and a history are lists of *items*. `private` of a part is what goes back
//! of its item besides what the part itself shows, with fields in alphabetical order; of thinking it is the whole item.

mod decode;
mod encode;
mod items;
mod opening;
mod strict;

use super::protocol::{Decoder, Encoder, Protocol, Quirks};
use super::{Head, ModelError, fault};

pub(crate) struct OpenAiResponses;

impl Protocol for OpenAiResponses {
    fn encoder(&self, head: &Head, _: &Quirks) -> Box<dyn Encoder> {
        Box::new(encode::ResponsesEncoder::new(head))
    }

    fn decoder(&self, head: &Head, _: &Quirks, turn: usize) -> Box<dyn Decoder> {
        Box::new(decode::ResponsesDecoder::new(head, turn))
    }

    fn path(&self, _: &Head, _: &Quirks) -> String {
        "/responses".to_owned()
    }

    fn headers(&self, _: &Head, _: &Quirks, key: Option<&str>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {key}"))).into_iter().collect()
    }

    // No: what the model said before is a message of its own, and the model would begin another one.
    fn continues_answers(&self, _: &Head, _: &Quirks) -> bool {
        false
    }

    fn fault(&self, status: u16, body: &[u8]) -> ModelError {
        fault::of_answer(status, body)
    }
}
