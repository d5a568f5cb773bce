//! The limit: hyper's pooled client, one thread, and the least work that still gives the text of a reply, and in a loop
//! does what the model asks for.
//!
//! No retries, no time limits, no events, no usage, no approvals, no bounds on what a server may send.

mod body;
mod reader;

use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Instant;

use bench::{Mode, PIECE, PIECES, SLOWNESS, Task, Tool, Wire, notes, question, tell_percentile};
use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use body::Body;
use reader::{Call, Reader, Reply};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<ExitCode, Failure> {
    let Some(task) = Task::parse(std::env::args().skip(1)) else { return Ok(ExitCode::from(2)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // In a task of its own, as the program does it.
    let held = runtime.block_on(async { tokio::spawn(hold(task.clone())).await })?;
    Ok(task.verdict(held?))
}

async fn hold(task: Task) -> Result<usize, Failure> {
    let line = Line::new(&task)?;
    match &task.mode {
        Mode::One | Mode::Stream(_) => {
            Ok(line.exchange(Body::text(task.wire, &question(&task.mode)).lend()).await?.text.len())
        }
        Mode::History(turns) => line.hold_history(*turns, &question(&task.mode)).await,
        Mode::Items(items) => {
            let mut text_length = 0;
            for _ in 0..*items {
                text_length += line.exchange(Body::text(task.wire, &question(&task.mode)).lend()).await?.text.len();
            }
            Ok(text_length)
        }
        Mode::Documents(_) => Err("the bare client reads streams".into()),
        Mode::Nested { second, third } => {
            let levels = [line.clone(), line.elsewhere(second)?, line.elsewhere(third)?];
            Ok(hold_nested(&levels).await?.len())
        }
        Mode::Loop { conversations: 1, calls, tool } => line.hold_loop(*calls, tool.clone()).await,
        Mode::Loop { conversations, calls, tool } => {
            let mut running = JoinSet::new();
            for _ in 0..*conversations {
                let (line, calls, tool) = (line.clone(), *calls, tool.clone());
                let started = Instant::now();
                running.spawn(async move { Ok::<_, Failure>((line.hold_loop(calls, tool).await?, started.elapsed())) });
            }
            let (mut text_length, mut times) = (0, Vec::new());
            while let Some(held) = running.join_next().await {
                let (length, time) = held??;
                text_length += length;
                times.push(time);
            }
            tell_percentile(&mut times)?;
            Ok(text_length)
        }
    }
}

/// Where requests go.
#[derive(Clone)]
struct Line {
    client: Client<HttpConnector, Full<Bytes>>,
    wire: Wire,
    url: Uri,
}

impl Line {
    fn new(task: &Task) -> Result<Self, Failure> {
        let path = match task.wire {
            Wire::Anthropic => "/v1/messages",
            Wire::Chat => "/chat/completions",
        };
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, wire: task.wire, url: format!("{}{path}", task.base_url).parse()? })
    }

    fn elsewhere(&self, base_url: &str) -> Result<Self, Failure> {
        Ok(Self { url: format!("{base_url}/v1/messages").parse()?, ..self.clone() })
    }

    async fn hold_history(&self, turns: usize, question: &str) -> Result<usize, Failure> {
        let mut body = Body::text(self.wire, question);
        let turn = body::said_again(self.wire, &PIECE.repeat(PIECES), question);
        let mut text_length = 0;
        for _ in 0..turns {
            text_length += self.exchange(body.lend()).await?.text.len();
            body.append(|bytes| bytes.extend_from_slice(turn.as_bytes()));
        }
        Ok(text_length)
    }

    async fn hold_loop(&self, calls: usize, tool: Tool) -> Result<usize, Failure> {
        if self.wire != Wire::Anthropic {
            return Err("the bare client calls tools over the Messages API only".into());
        }
        let mut body = Body::with_tool(&question(&Mode::Loop { conversations: 1, calls, tool: tool.clone() }));
        let mut text_length = 0;
        loop {
            let reply = self.exchange(body.lend()).await?;
            text_length += reply.text.len();
            if reply.calls.is_empty() {
                return Ok(text_length);
            }
            let results = self.run_all(&reply.calls, &tool).await?;
            body.append(|bytes| body::write_calls(bytes, &reply, &results))?;
        }
    }

    async fn run_all(&self, calls: &[Call], tool: &Tool) -> Result<Vec<String>, Failure> {
        if *tool == Tool::Slow {
            // All at once: when the last one has begun, it is the last to end.
            let running = calls.iter().map(|_| tokio::time::sleep(SLOWNESS));
            join_all(running).await;
        }
        calls.iter().map(|call| run(&call.input, tool)).collect()
    }

    async fn exchange(&self, body: Bytes) -> Result<Reply, Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut answer = self.client.request(request).await?.into_body();
        let mut reader = Reader::new(self.wire);
        while let Some(frame) = answer.frame().await {
            if let Ok(chunk) = frame?.into_data() {
                reader.push(&chunk)?;
            }
        }
        Ok(reader.reply)
    }
}

/// Calls of the first level are conversations of the next.
fn hold_nested(levels: &[Line]) -> Pin<Box<dyn Future<Output = Result<String, Failure>> + Send + '_>> {
    Box::pin(async move {
        let Some((line, below)) = levels.split_first() else { return Err("nobody is left to call".into()) };
        let mut body = Body::with_tool("Hello");
        loop {
            let reply = line.exchange(body.lend()).await?;
            if reply.calls.is_empty() {
                return Ok(reply.text);
            }
            let mut results = Vec::new();
            for _ in &reply.calls {
                results.push(hold_nested(below).await?);
            }
            body.append(|bytes| body::write_calls(bytes, &reply, &results))?;
        }
    })
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
}

/// A part of a file, as the library tells it to a model.
#[derive(Serialize)]
struct Part<'a> {
    content: &'a str,
    truncated: bool,
    total_chars: usize,
    offset: usize,
    chars_read: usize,
}

fn run(input: &str, tool: &Tool) -> Result<String, Failure> {
    let Arguments { path } = serde_json::from_str(input)?;
    match tool {
        Tool::Memory | Tool::Slow => Ok(notes()),
        Tool::File(directory) => read(directory, &path),
    }
}

fn read(directory: &Path, path: &str) -> Result<String, Failure> {
    let content = std::fs::read_to_string(directory.join(path))?;
    let chars = content.chars().count();
    let part = Part { content: &content, truncated: false, total_chars: chars, offset: 0, chars_read: chars };
    Ok(serde_json::to_string(&part)?)
}
