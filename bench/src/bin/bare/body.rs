//! The bytes of a conversation, as the library sends them: opening, messages, tail.

use std::sync::Arc;

use bench::{INSTRUCTIONS, MODEL, TOOL, TOOL_DESCRIPTION, Wire};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::Failure;
use crate::reader::{Call, Reply};

pub struct Body {
    bytes: Arc<Vec<u8>>,
    tail: &'static str,
}

impl Body {
    pub fn text(wire: Wire, question: &str) -> Self {
        let asked = said(wire, "user", question);
        let opening = match wire {
            Wire::Anthropic => format!(r#"{{"model":"{MODEL}","max_tokens":32000,"stream":true,"messages":[{asked}"#),
            Wire::Chat => format!(
                r#"{{"model":"{MODEL}","stream":true,"stream_options":{{"include_usage":true}},"messages":[{asked}"#
            ),
        };
        Self::new(wire, &opening)
    }

    /// A question to a model that has [`TOOL`].
    pub fn with_tool(question: &str) -> Self {
        let asked = said(Wire::Anthropic, "user", question);
        let schema = include_str!("../../tool.json").trim();
        Self::new(
            Wire::Anthropic,
            &format!(
                r#"{{"model":"{MODEL}","max_tokens":32000,"stream":true,"system":[{{"type":"text","text":"{INSTRUCTIONS}"}}],"tools":[{{"name":"{TOOL}","description":"{TOOL_DESCRIPTION}","input_schema":{schema}}}],"messages":[{asked}"#
            ),
        )
    }

    fn new(wire: Wire, opening: &str) -> Self {
        let tail = match wire {
            Wire::Anthropic => r#"],"cache_control":{"type":"ephemeral"}}"#,
            Wire::Chat => "]}",
        };
        Self { bytes: Arc::new(format!("{opening}{tail}").into_bytes()), tail }
    }

    pub fn lend(&self) -> Bytes {
        struct Lent(Arc<Vec<u8>>);
        impl AsRef<[u8]> for Lent {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(Lent(Arc::clone(&self.bytes)))
    }

    /// Appends messages that the closure writes, and gives what it returns.
    pub fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.truncate(bytes.len() - self.tail.len());
        let written = write(bytes);
        bytes.extend_from_slice(self.tail.as_bytes());
        written
    }
}

/// An answer and the next question.
pub fn said_again(wire: Wire, answer: &str, question: &str) -> String {
    format!(",{},{}", said(wire, "assistant", answer), said(wire, "user", question))
}

/// One message as JSON. The text is put in as it is, since the texts of the benchmarks need no escapes.
fn said(wire: Wire, role: &str, text: &str) -> String {
    match wire {
        Wire::Anthropic => format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}"#),
        Wire::Chat => format!(r#"{{"role":"{role}","content":"{text}"}}"#),
    }
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct Use<'a> {
    r#type: &'static str,
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

#[derive(Serialize)]
struct Found<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: (Text<'a>,),
    is_error: bool,
}

/// Writes a reply with its calls, and behind it the results of these calls.
pub fn write_calls(bytes: &mut Vec<u8>, reply: &Reply, results: &[String]) -> Result<(), Failure> {
    bytes.extend_from_slice(br#",{"role":"assistant","content":["#);
    serde_json::to_writer(&mut *bytes, &Text { r#type: "text", text: &reply.text })?;
    for Call { id, name, input } in &reply.calls {
        bytes.push(b',');
        let called = Use { r#type: "tool_use", id, name, input: serde_json::from_str(input)? };
        serde_json::to_writer(&mut *bytes, &called)?;
    }
    bytes.extend_from_slice(br#"]},{"role":"user","content":["#);
    for (index, (Call { id, .. }, result)) in reply.calls.iter().zip(results).enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        let content = (Text { r#type: "text", text: result },);
        let found = Found { r#type: "tool_result", tool_use_id: id, content, is_error: false };
        serde_json::to_writer(&mut *bytes, &found)?;
    }
    bytes.extend_from_slice(b"]}");
    Ok(())
}
