//! The limit: hyper's pooled client, one thread, and the least work that still gives the text of a reply.
//!
//! No retries, no time limits, no events, no usage, no tool calls, no bounds on what a server may send; requests are
//! prepared bytes.

use std::borrow::Cow;
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use bench::{MODEL, Mode, PIECE, PIECES, Task, Wire, question};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use memchr::memchr;
use serde::de::{self, SeqAccess};
use serde::{Deserialize, Deserializer};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<ExitCode, Failure> {
    let Some(task) = Task::parse(std::env::args().skip(1)) else { return Ok(ExitCode::from(2)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // In a task of its own, as the program does it.
    let held = runtime.block_on(async { tokio::spawn(hold(task.clone())).await })?;
    Ok(task.verdict(held?))
}

async fn hold(task: Task) -> Result<usize, Failure> {
    let path = match task.wire {
        Wire::Anthropic => "/v1/messages",
        Wire::Chat => "/chat/completions",
    };
    let url: Uri = format!("{}{path}", task.base_url).parse()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let mut body = Body::new(&task);
    let mut text_length = 0;
    for _ in 0..task.exchanges() {
        text_length += exchange(&client, task.wire, url.clone(), body.lend()).await?.len();
        body.grow();
    }
    Ok(text_length)
}

async fn exchange(
    client: &Client<HttpConnector, Full<Bytes>>,
    wire: Wire,
    url: Uri,
    body: Bytes,
) -> Result<String, Failure> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut answer = client.request(request).await?.into_body();
    let mut reader = Reader { wire, unfinished: Vec::new(), carries_text: wire == Wire::Chat, text: String::new() };
    while let Some(frame) = answer.frame().await {
        if let Ok(chunk) = frame?.into_data() {
            reader.push(&chunk)?;
        }
    }
    Ok(reader.text)
}

/// The least of an event stream: lines that end with LF, and JSON in one line of `data`.
struct Reader {
    wire: Wire,
    /// A line whose end has not come yet.
    unfinished: Vec<u8>,
    /// Whether the current event has text in it.
    carries_text: bool,
    text: String,
}

impl Reader {
    fn push(&mut self, chunk: &[u8]) -> Result<(), Failure> {
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
                self.carries_text = name == b"content_block_delta";
            }
            (_, [b'd', b'a', b't', b'a', b':', b' ', json @ ..]) if self.carries_text && json != b"[DONE]" => {
                self.add(str::from_utf8(json)?)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, json: &str) -> Result<(), Failure> {
        match self.wire {
            Wire::Anthropic => {
                let BlockDelta { delta: TextDelta { text } } = serde_json::from_str(json)?;
                self.text.push_str(&text);
            }
            Wire::Chat => {
                let Chunk { choices: First(choice) } = serde_json::from_str(json)?;
                self.text.push_str(&choice.delta.content);
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(borrow)]
    delta: TextDelta<'a>,
}

#[derive(Deserialize)]
struct TextDelta<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
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

/// The bytes of a conversation, as the library sends them: opening, messages, tail.
struct Body {
    bytes: Arc<Vec<u8>>,
    turn: String,
    tail: &'static str,
}

impl Body {
    fn new(task: &Task) -> Self {
        let question = match task.mode {
            Mode::One | Mode::Stream(_) => "Hello".to_owned(),
            Mode::History(_) => question(),
        };
        let answer = PIECE.repeat(PIECES);
        let (opening, said, tail) = match task.wire {
            Wire::Anthropic => (
                format!(r#"{{"model":"{MODEL}","max_tokens":32000,"stream":true,"messages":["#),
                (|role, text| format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}"#))
                    as fn(&str, &str) -> String,
                r#"],"cache_control":{"type":"ephemeral"}}"#,
            ),
            Wire::Chat => (
                format!(r#"{{"model":"{MODEL}","stream":true,"stream_options":{{"include_usage":true}},"messages":["#),
                (|role, text| format!(r#"{{"role":"{role}","content":"{text}"}}"#)) as fn(&str, &str) -> String,
                "]}",
            ),
        };
        let asked = said("user", &question);
        let turn = format!(",{},{asked}", said("assistant", &answer));
        Self { bytes: Arc::new(format!("{opening}{asked}{tail}").into_bytes()), turn, tail }
    }

    fn lend(&self) -> Bytes {
        struct Lent(Arc<Vec<u8>>);
        impl AsRef<[u8]> for Lent {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(Lent(Arc::clone(&self.bytes)))
    }

    fn grow(&mut self) {
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.truncate(bytes.len() - self.tail.len());
        bytes.extend_from_slice(self.turn.as_bytes());
        bytes.extend_from_slice(self.tail.as_bytes());
    }
}
