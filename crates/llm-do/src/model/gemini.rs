//! The `generateContent` API of Gemini, both directions, streams and documents.
//!
//! `private` of a text is what its part has beside the text (above all its `thoughtSignature`) and, under their own
//! names, `citationMetadata` and `groundingMetadata`: those are kept, never sent. Of a tool call it is the same, and the
//! `id` if the provider gave one. Of thinking and of the provider's own tools it is the whole part; thinking without a
//! signature has none, because nothing reads it again.

mod decode;
mod encode;
mod generation;
mod opening;
mod schema;
mod wire;

use std::fmt::Write as _;

use super::protocol::{Decoder, Encoder, Protocol, Quirks};
use super::{Head, ModelError, fault};

pub struct Gemini;

impl Protocol for Gemini {
    fn encoder(&self, head: &Head, _: &Quirks) -> Box<dyn Encoder> {
        Box::new(encode::ContentsEncoder::new(head))
    }

    fn decoder(&self, head: &Head, _: &Quirks, turn: usize) -> Box<dyn Decoder> {
        Box::new(decode::ContentDecoder::new(head, turn))
    }

    fn path(&self, head: &Head, _: &Quirks) -> String {
        let method = if head.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("/v1beta/{}:{method}", resource(&head.model.model))
    }

    fn headers(&self, _: &Head, key: Option<&str>) -> Vec<(&'static str, String)> {
        key.map(|key| ("x-goog-api-key", key.to_owned())).into_iter().collect()
    }

    // The API wants the user's words last.
    fn continues_answers(&self, _: &Head, _: &Quirks) -> bool {
        false
    }

    fn fault(&self, status: u16, body: &[u8]) -> ModelError {
        fault::of_answer(status, body)
    }
}

/// The model as a part of the path; one with a slash says itself what kind of model it is (`tunedModels/mine`).
fn resource(model: &str) -> String {
    let mut path = if model.contains('/') { String::new() } else { "models/".to_owned() };
    for byte in model.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => path.push(char::from(byte)),
            other => write!(path, "%{other:02X}").expect("a String takes every text"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::head;

    #[test]
    fn the_path_names_the_model_and_the_form_of_the_answer() {
        let cases = [
            ("google:gemini-2.5-pro", true, "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"),
            ("google:gemini-2.5-pro", false, "/v1beta/models/gemini-2.5-pro:generateContent"),
            ("google:models/gemini-2.5-pro", false, "/v1beta/models/gemini-2.5-pro:generateContent"),
            ("google:tunedModels/mine", false, "/v1beta/tunedModels/mine:generateContent"),
            ("google:a?key=é", false, "/v1beta/models/a%3Fkey%3D%C3%A9:generateContent"),
        ];
        for (model, stream, expected) in cases {
            let head = Head { stream, ..head(model) };
            assert_eq!(Gemini.path(&head, &Quirks::NONE), expected);
        }
    }

    #[test]
    fn the_key_travels_in_a_header() {
        let head = head("google:m");
        assert_eq!(Gemini.headers(&head, Some("k")), [("x-goog-api-key", "k".to_owned())]);
        assert_eq!(Gemini.headers(&head, None), []);
    }
}
