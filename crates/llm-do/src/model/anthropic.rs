//! The Messages API of Anthropic, both directions, streams and documents.
//!
//! `private` of a part is the content block as it goes back, with its fields in alphabetical order: a stream brings
//! them in pieces and a document in any order, and both must give the same reply. Of a tool call it is the `caller`,
//! because the approver may edit the rest of the call.

mod decode;
mod encode;

use super::protocol::{Decoder, Encoder, Protocol, Quirks};
use super::{Head, ModelError, ServerToolKind, Thinking, fault};

pub(crate) use encode::thinking_budget;

pub(crate) struct Anthropic;

impl Protocol for Anthropic {
    fn encoder(&self, head: &Head, _: &Quirks) -> Box<dyn Encoder> {
        Box::new(encode::MessagesEncoder::new(head))
    }

    fn decoder(&self, head: &Head, _: &Quirks, turn: usize) -> Box<dyn Decoder> {
        Box::new(decode::MessagesDecoder::new(head, turn))
    }

    fn path(&self, _: &Head, _: &Quirks) -> String {
        "/v1/messages".to_owned()
    }

    fn headers(&self, head: &Head, _: &Quirks, key: Option<&str>) -> Vec<(&'static str, String)> {
        let mut headers = vec![("anthropic-version", "2023-06-01".to_owned())];
        headers.extend(key.map(|key| ("x-api-key", key.to_owned())));
        let betas: Vec<&str> = head.server_tools.iter().filter_map(|tool| beta(tool.kind)).collect();
        if !betas.is_empty() {
            headers.push(("anthropic-beta", betas.join(",")));
        }
        headers
    }

    /// Whether a request may end with the beginning of an answer: models since 4.6 refuse it, and so does thinking.
    fn continues_answers(&self, head: &Head, _: &Quirks) -> bool {
        encode::takes_prefill(&head.model.model) && matches!(head.settings.thinking, None | Some(Thinking::Off))
    }

    fn fault(&self, status: u16, body: &[u8]) -> ModelError {
        fault::of_answer(status, body)
    }
}

fn beta(tool: ServerToolKind) -> Option<&'static str> {
    match tool {
        ServerToolKind::WebFetch => Some("web-fetch-2025-09-10"),
        ServerToolKind::CodeExecution => Some("code-execution-2025-08-25"),
        ServerToolKind::WebSearch | ServerToolKind::ImageGeneration => None,
    }
}
