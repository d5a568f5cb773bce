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

use super::protocol::{Decoder, Encoder, KeyForm, Protocol, Quirks};
use super::{Head, ModelError, fault};

pub(crate) struct Gemini;

impl Protocol for Gemini {
    fn encoder(&self, head: &Head, _: &Quirks) -> Box<dyn Encoder> {
        Box::new(encode::ContentsEncoder::new(head))
    }

    fn decoder(&self, head: &Head, _: &Quirks, turn: usize) -> Box<dyn Decoder> {
        Box::new(decode::ContentDecoder::new(head, turn))
    }

    fn path(&self, head: &Head, quirks: &Quirks) -> String {
        let method = if head.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("{}/{}:{method}", quirks.gemini_path, resource(&head.model.model))
    }

    fn headers(&self, _: &Head, quirks: &Quirks, key: Option<&str>) -> Vec<(&'static str, String)> {
        let header = |key: &str| match quirks.key_form {
            KeyForm::Own => ("x-goog-api-key", key.to_owned()),
            KeyForm::Bearer => ("authorization", format!("Bearer {key}")),
        };
        key.map(header).into_iter().collect()
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
    use crate::model::provider::provider;

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

    /// Its address ends with the publisher of its models; a token is no key.
    #[test]
    fn vertex_has_another_path_and_another_header() {
        let quirks = provider("google-vertex").unwrap().quirks;
        let head = Head { stream: true, ..head("google-vertex:gemini-2.5-pro") };
        assert_eq!(Gemini.path(&head, &quirks), "/models/gemini-2.5-pro:streamGenerateContent?alt=sse");
        assert_eq!(Gemini.headers(&head, &quirks, Some("t")), [("authorization", "Bearer t".to_owned())]);
    }

    #[test]
    fn the_key_travels_in_a_header() {
        let head = head("google:m");
        assert_eq!(Gemini.headers(&head, &Quirks::NONE, Some("k")), [("x-goog-api-key", "k".to_owned())]);
        assert_eq!(Gemini.headers(&head, &Quirks::NONE, None), []);
    }
}
