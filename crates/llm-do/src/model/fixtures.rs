//! What the tests of the protocols share.

use serde_json::Value;

use super::name::ModelName;
use super::protocol::{DecodeError, Delta, Protocol, Quirks};
use super::{Head, ModelSettings};
use crate::http::frames::{EventStream, FRAME_LIMIT};
use crate::message::{Message, RawJson, Reply, ToolCall, Usage};

pub(crate) fn head(model: &str) -> Head {
    Head {
        agent: "test".into(),
        model: ModelName::parse(model).unwrap(),
        instructions: String::new(),
        tools: Vec::new(),
        server_tools: Vec::new(),
        settings: ModelSettings::default(),
        output: None,
        may_call: true,
        stream: true,
    }
}

pub(crate) fn json(text: &str) -> RawJson {
    RawJson::parse(text).unwrap()
}

pub(crate) fn call(id: &str, arguments: &str) -> ToolCall {
    let arguments = crate::message::Arguments::parse(arguments.to_owned());
    ToolCall { id: id.into(), tool: "add".into(), arguments, private: None }
}

pub(crate) fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { requests: 1, input_tokens, output_tokens, ..Usage::default() }
}

/// The reply, and what was told on the way.
pub(crate) fn read_stream(
    protocol: &dyn Protocol,
    head: &Head,
    quirks: &Quirks,
    sse: &str,
) -> (Result<Reply, DecodeError>, Vec<String>) {
    let (mut decoder, mut told) = (protocol.decoder(head, quirks, 3), Vec::new());
    let mut frames = EventStream::new(FRAME_LIMIT);
    let read = frames.push(sse.as_bytes(), |frame| decoder.frame(frame, &mut |delta| told.push(words(delta))));
    (read.and_then(|()| decoder.finish()), told)
}

pub(crate) fn read_document(
    protocol: &dyn Protocol,
    head: &Head,
    quirks: &Quirks,
    body: &str,
) -> (Result<Reply, DecodeError>, Vec<String>) {
    let (mut decoder, mut told) = (protocol.decoder(head, quirks, 3), Vec::new());
    let read = decoder.document(body.as_bytes(), &mut |delta| told.push(words(delta)));
    (read.and_then(|()| decoder.finish()), told)
}

fn words(delta: Delta<'_>) -> String {
    match delta {
        Delta::Text(text) => format!("text {text}"),
        Delta::Thinking(text) => format!("thinking {text}"),
        Delta::ServerTool(part) => format!("server tool {}", part.tool),
    }
}

/// The body of a request with these messages.
pub(crate) fn request(protocol: &dyn Protocol, head: &Head, quirks: &Quirks, messages: &[Message]) -> Value {
    let mut encoder = protocol.encoder(head, quirks);
    for message in messages {
        encoder.push(message);
    }
    assert_eq!(encoder.messages(), messages.len());
    serde_json::from_slice(&encoder.body(None)).unwrap()
}
