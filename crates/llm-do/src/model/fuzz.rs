//! What must hold for any bytes of a provider or of a script, as plain functions: the property tests and the fuzzer
//! drive the same ones. They panic when something does not hold.

use std::sync::Arc;

use futures_util::FutureExt as _;

use super::meter::UnlimitedMeter;
use super::name::ModelName;
use super::protocol::DecodeError;
use super::provider::{PROVIDERS, ProtocolKind, Provider};
use super::scripted::{Script, ScriptedModel};
use super::{Head, Model as _, ModelSettings};
use crate::escape::deceives;
use crate::event::Events;
use crate::http::frames::{EventStream, Frame, FrameTooLong};
use crate::message::{Message, Reply};
use crate::syntax::diagnostic::Colour;

/// Frames are the same however their bytes were split, and no longer than the limit.
pub fn frames(bytes: &[u8]) {
    const LIMIT: usize = 64;
    let chunks = chunks(bytes);
    assert_eq!(event_stream(&chunks, LIMIT), event_stream(&[bytes], LIMIT));
}

/// Gives the bytes to the decoder of Anthropic's protocol, as a stream and as a document.
pub fn anthropic(bytes: &[u8]) {
    decoder(ProtocolKind::Anthropic, bytes);
}

/// Gives the bytes to the decoder of Responses, as a stream and as a document.
pub fn openai_responses(bytes: &[u8]) {
    decoder(ProtocolKind::OpenAiResponses, bytes);
}

/// Gives the bytes to the decoder of Chat Completions, as a stream and as a document.
pub fn openai_chat(bytes: &[u8]) {
    decoder(ProtocolKind::OpenAiChat, bytes);
}

/// Gives the bytes to the decoder of Gemini's protocol, as a stream and as a document.
pub fn gemini(bytes: &[u8]) {
    decoder(ProtocolKind::Gemini, bytes);
}

/// Any bytes are an answer or an error, as a stream and as a document, and how a stream was split changes nothing.
fn decoder(kind: ProtocolKind, bytes: &[u8]) {
    assert_eq!(read_stream(kind, &chunks(bytes)), read_stream(kind, &[bytes]));
    read_document(kind, bytes);
}

/// A script is read or reported on, and what is read can be played.
pub fn script(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let script = match Script::parse("fuzzed", text) {
        Ok(script) => ScriptedModel(Arc::new(script)),
        Err(report) => {
            let shown = report.render(Colour::Plain);
            assert!(!shown.chars().any(|c| c != '\n' && deceives(c)), "{shown:?}");
            return;
        }
    };
    let mut history = vec![Message::user("What about the harbour?")];
    let mut conversation = script.open(head("scripted"));
    for _ in 0..3 {
        let reply = conversation.reply(&history, &mut UnlimitedMeter, &Events::unheard()).now_or_never();
        let Ok(reply) = reply.expect("a script waits for nothing") else { return };
        history.extend([Message::Assistant(reply), Message::user("And then?")]);
    }
}

/// What each provider of a protocol makes of a stream, and how many pieces it tells of.
pub fn read_stream(kind: ProtocolKind, chunks: &[&[u8]]) -> Vec<(Result<Reply, DecodeError>, usize)> {
    const LIMIT: usize = 1000;
    let read = |row: &Provider| {
        let mut decoder = row.protocol.protocol()?.decoder(&head(row.name), &row.quirks, 0);
        let mut frames = EventStream::new(LIMIT);
        let mut told = 0;
        let pushed =
            chunks.iter().try_for_each(|chunk| frames.push(chunk, |frame| decoder.frame(frame, &mut |_| told += 1)));
        Some((pushed.and_then(|()| decoder.finish()), told))
    };
    speaking(kind).filter_map(read).collect()
}

/// Each provider of a protocol reads a document, as an answer and as an error.
pub fn read_document(kind: ProtocolKind, body: &[u8]) {
    for row in speaking(kind) {
        let Some(protocol) = row.protocol.protocol() else { continue };
        let mut decoder = protocol.decoder(&head(row.name), &row.quirks, 0);
        let read = decoder.document(body, &mut |_| {});
        let _ = read.and_then(|()| decoder.finish());
        let _ = protocol.fault(400, body);
    }
}

/// All of them: each has quirks of its own.
fn speaking(kind: ProtocolKind) -> impl Iterator<Item = &'static Provider> {
    PROVIDERS.iter().filter(move |row| row.protocol == kind)
}

fn head(provider: &str) -> Head {
    Head {
        agent: "fuzzed".into(),
        model: ModelName { provider: provider.into(), model: "m".into() },
        instructions: String::new(),
        tools: Vec::new(),
        server_tools: Vec::new(),
        settings: ModelSettings::default(),
        output: None,
        may_call: true,
        stream: true,
    }
}

/// The bytes in pieces whose lengths are the bytes' own: a fuzzer that changes one tries another split.
fn chunks(bytes: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let (chunk, after) = rest.split_at(usize::from(first % 16 + 1).min(rest.len()));
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

/// The event's name and its data.
type OwnedFrame = (Option<Vec<u8>>, Vec<u8>);

fn event_stream(chunks: &[&[u8]], limit: usize) -> (Vec<OwnedFrame>, Result<(), FrameTooLong>) {
    let mut stream = EventStream::new(limit);
    let mut read = Vec::new();
    let mut keep = |frame: Frame<'_>| {
        read.push(kept(frame, limit));
        Ok(())
    };
    let pushed = chunks.iter().try_for_each(|chunk| stream.push::<FrameTooLong>(chunk, &mut keep));
    (read, pushed)
}

fn kept(frame: Frame<'_>, limit: usize) -> OwnedFrame {
    assert!(frame.data.len() <= limit, "{} bytes", frame.data.len());
    (frame.event.map(<[u8]>::to_vec), frame.data.to_vec())
}
