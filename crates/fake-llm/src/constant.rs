//! Answers for benchmarks: rendered once with their HTTP framing, chosen without parsing the request. What is
//! measured is then the client.

use bytes::Bytes;
use memchr::memmem;
use tokio::sync::Barrier;

use crate::answer::FakeAnswer;
use crate::http1;
use crate::protocol::{Protocol, Serving};
use crate::reply::FakeReply;
use crate::seen::StreamMode;

/// The same answers to whatever is asked. Requests are neither checked nor remembered.
#[derive(Debug, Clone)]
pub struct Constant {
    turns: usize,
    step: FakeReply,
    last: FakeReply,
    together: usize,
}

impl Constant {
    /// This reply to every request.
    pub fn reply(reply: FakeReply) -> Self {
        Self::tool_loop(0, FakeReply::empty(), reply)
    }

    /// In each conversation `step`, which has one call, for `turns` times, then `last`.
    pub fn tool_loop(turns: usize, step: FakeReply, last: FakeReply) -> Self {
        Self { turns, step, last, together: 1 }
    }

    /// Answers when so many requests wait for their answers, all of them at once: conversations of the same length
    /// are then held at the same time whatever the speed of their client.
    #[must_use]
    pub fn together(mut self, requests: usize) -> Self {
        self.together = requests;
        self
    }
}

pub(crate) struct ConstantAnswers {
    turns: usize,
    /// Where requests wait for each other.
    together: Option<Barrier>,
    missing: RenderedAnswer,
    forms: Vec<WireForm>,
}

struct WireForm {
    protocol: Protocol,
    stream: StreamMode,
    step: RenderedAnswer,
    last: RenderedAnswer,
}

/// An answer as both HTTP versions send it.
#[derive(Clone)]
pub(crate) struct RenderedAnswer {
    pub status: u16,
    pub content_type: String,
    pub body: Bytes,
    /// Head and framed body.
    pub http1: Bytes,
}

/// The ids of a loop's calls count its turns, so the last one in a request tells where its conversation is.
const LOOP_ID: &[u8] = b"call_loop_";
const DIGITS: usize = 8;

impl ConstantAnswers {
    pub fn new(constant: &Constant) -> Self {
        let forms = Protocol::ALL.into_iter().flat_map(|protocol| {
            [StreamMode::No, StreamMode::EventsWithUsage].map(|stream| WireForm {
                protocol,
                stream,
                step: render(&constant.step, protocol, stream),
                last: render(&constant.last, protocol, stream),
            })
        });
        let missing = RenderedAnswer::of(FakeAnswer::document(404, r#"{"error":{"message":"there is nothing here"}}"#));
        let together = (constant.together > 1).then(|| Barrier::new(constant.together));
        Self { turns: constant.turns, together, missing, forms: forms.collect() }
    }

    pub async fn answer(&self, path: &str, body: &[u8]) -> RenderedAnswer {
        if let Some(barrier) = &self.together {
            barrier.wait().await;
        }
        self.choose(path, body)
    }

    fn choose(&self, path: &str, body: &[u8]) -> RenderedAnswer {
        let Some(protocol) = Protocol::of_path(path) else { return self.missing.clone() };
        let asked = match protocol {
            Protocol::Gemini => path.contains(":streamGenerateContent"),
            Protocol::Anthropic | Protocol::OpenAiChat | Protocol::OpenAiResponses => asks_for_stream(body),
        };
        let stream = if asked { StreamMode::EventsWithUsage } else { StreamMode::No };
        let form = self.forms.iter().find(|form| (form.protocol, form.stream) == (protocol, stream));
        let form = form.expect("every protocol was rendered both ways");
        match self.turn(body) {
            turn if turn < self.turns => form.step.numbered(turn),
            _ => form.last.clone(),
        }
    }

    /// How many calls this conversation has had. The last id is in the last tool result, so hardly more than that
    /// is searched.
    fn turn(&self, body: &[u8]) -> usize {
        if self.turns == 0 {
            return 0;
        }
        let Some(at) = memmem::rfind(body, LOOP_ID) else { return 0 };
        let digits = body.get(at + LOOP_ID.len()..at + LOOP_ID.len() + DIGITS).unwrap_or_default();
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok());
        number.map_or(0, |number| number + 1)
    }
}

impl RenderedAnswer {
    fn of(answer: FakeAnswer) -> Self {
        let body = answer.body();
        let (status, content_type) = (answer.status, answer.content_type.clone());
        Self { status, content_type, body, http1: http1::rendered(answer.plan()) }
    }

    /// The same with the number `turn` in the ids of its calls.
    fn numbered(&self, turn: usize) -> Self {
        let digits = format!("{turn:0DIGITS$}");
        let number = |template: &Bytes| {
            let mut bytes = template.to_vec();
            for at in memmem::find_iter(template, LOOP_ID) {
                let start = at + LOOP_ID.len();
                bytes[start..start + DIGITS].copy_from_slice(&digits.as_bytes()[..DIGITS]);
            }
            Bytes::from(bytes)
        };
        Self { body: number(&self.body), http1: number(&self.http1), ..self.clone() }
    }
}

fn render(reply: &FakeReply, protocol: Protocol, stream: StreamMode) -> RenderedAnswer {
    let mut reply = reply.clone();
    let mut named = 0;
    reply.name_calls(|| {
        named += 1;
        // Calls of one reply differ in what follows the number of the turn.
        let which = if named == 1 { String::new() } else { format!("_{named}") };
        format!("call_loop_{:0DIGITS$}{which}", 0)
    });
    let chunks = Serving { reply: &reply, number: 1, model: "fake", stream }.chunks(protocol);
    RenderedAnswer::of(match stream {
        StreamMode::No => FakeAnswer::document(200, chunks.concat()),
        StreamMode::Events | StreamMode::EventsWithUsage => FakeAnswer::events(chunks),
    })
}

/// Finds `"stream": true` without parsing. Inside a JSON string the quotes would be escaped, so no text is mistaken
/// for it. It is looked for at the beginning first and then from the end: no client hides it in the middle.
fn asks_for_stream(body: &[u8]) -> bool {
    const KEY: &[u8] = b"\"stream\":";
    const BEGINNING: usize = 4096;
    let literal = |at: usize| {
        let value = body[at + KEY.len()..].trim_ascii_start();
        (value.starts_with(b"true").then_some(true)).or_else(|| value.starts_with(b"false").then_some(false))
    };
    let beginning = &body[..body.len().min(BEGINNING)];
    let early = memmem::find_iter(beginning, KEY).find_map(literal);
    early.or_else(|| memmem::rfind_iter(body, KEY).find_map(literal)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reply::FakeCall;

    #[test]
    fn the_wish_for_a_stream_is_found_without_parsing() {
        let long = "x".repeat(10_000);
        for (body, expected) in [
            (r#"{"stream":true,"messages":[]}"#.to_owned(), true),
            (r#"{"stream": true}"#.to_owned(), true),
            (r#"{"stream":false}"#.to_owned(), false),
            (r#"{"messages":[]}"#.to_owned(), false),
            (String::new(), false),
            (r#"{"messages":"\"stream\":true"}"#.to_owned(), false),
            (format!(r#"{{"messages":"{long}","stream":true}}"#), true),
            (r#"{"properties":{"stream":{}},"stream":true}"#.to_owned(), true),
        ] {
            assert_eq!(asks_for_stream(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_tool_loop_is_counted_by_the_last_id() {
        let step = FakeReply::text("so").and_calls([FakeCall::new("noop", json!({}))]);
        let prepared = ConstantAnswers::new(&Constant::tool_loop(2, step, FakeReply::text("done")));
        for (body, expected) in [
            ("{}", "call_loop_00000000"),
            (r#"{"id":"call_loop_00000000"}"#, "call_loop_00000001"),
            (r#"{"id":"call_loop_00000000","id":"call_loop_00000001"}"#, "done"),
            (r#"{"id":"call_loop_0000"#, "call_loop_00000000"),
        ] {
            let answer = prepared.choose("/v1/messages", body.as_bytes());
            assert!(
                memmem::find(&answer.http1, expected.as_bytes()).is_some(),
                "{body}: {answer}",
                answer = String::from_utf8_lossy(&answer.http1)
            );
            assert!(memmem::find(&answer.body, expected.as_bytes()).is_some(), "{body}");
        }
    }

    #[test]
    fn calls_of_one_reply_have_ids_of_their_own() {
        let step = FakeReply::empty().and_calls(vec![FakeCall::new("noop", json!({})); 3]);
        let prepared = ConstantAnswers::new(&Constant::tool_loop(2, step, FakeReply::text("done")));
        let answer = prepared.choose("/v1/messages", br#"{"id":"call_loop_00000000_3"}"#);
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        for id in ["\"call_loop_00000001\"", "\"call_loop_00000001_2\"", "\"call_loop_00000001_3\""] {
            assert_eq!(body.matches(id).count(), 1, "{id}: {body}");
        }
    }
}
