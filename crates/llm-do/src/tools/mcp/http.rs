//! A service that is asked over HTTP: each message is a request of its own, and answers come as JSON or as a stream.
//!
//! Both sides of the conversation are lines, so that the client that speaks does not know that there is no pipe
//! between.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, WriteHalf, duplex, split};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};

use super::protocol::LONGEST_MESSAGE;
use crate::escape::visible_start;
use crate::http::frames::{EventStream, FrameTooLong};
use crate::http::{HttpClient, HttpError, Request, Response};

/// The code of a failure that is not the server's word.
pub(crate) const UNREACHED: i64 = -32003;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// How long a server may take to hear that it is over, or that it may begin.
const COURTESY: Duration = Duration::from_secs(2);
/// Answers to a server that are on their way at once.
const MOST_ANSWERS: usize = 64;
/// What is read of an answer that says why there is none.
const LONGEST_REASON: u64 = 64 * 1024;

/// What all requests to a server have in common.
pub(crate) struct McpSession {
    http: HttpClient,
    url: Uri,
    headers: HeaderMap,
    id: OnceLock<HeaderValue>,
    version: OnceLock<HeaderValue>,
}

/// Lines that are written here are sent, and what comes back is read here.
pub(crate) fn open(http: HttpClient, url: Uri, headers: HeaderMap) -> (DuplexStream, Arc<McpSession>) {
    let session = Arc::new(McpSession { http, url, headers, id: OnceLock::new(), version: OnceLock::new() });
    let (ours, theirs) = duplex(64 * 1024);
    tokio::spawn(pump(theirs, Arc::clone(&session)));
    (ours, session)
}

/// What has to be known of a message to send it.
#[derive(Deserialize)]
struct McpMessageHead<'a> {
    #[serde(borrow)]
    id: Option<&'a serde_json::value::RawValue>,
    method: Option<String>,
    params: Option<McpCancellation>,
}

#[derive(Deserialize)]
struct McpCancellation {
    #[serde(rename = "requestId")]
    request: Option<u64>,
}

/// Where answers are written, as lines, for the client that waits for them.
type Answers = Arc<Mutex<WriteHalf<DuplexStream>>>;

async fn pump(stream: DuplexStream, session: Arc<McpSession>) {
    let (reader, writer) = split(stream);
    let (mut reader, answers): (_, Answers) = (BufReader::new(reader), Arc::new(Mutex::new(writer)));
    // Both are dropped with this, when the client does not speak any more.
    let (mut exchanges, mut answering) = (JoinSet::new(), JoinSet::new());
    let mut under_way: HashMap<u64, AbortHandle> = HashMap::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        while exchanges.try_join_next().is_some() || answering.try_join_next().is_some() {}
        under_way.retain(|_, exchange| !exchange.is_finished());
        let Ok(head) = serde_json::from_slice::<McpMessageHead<'_>>(&line) else { break };
        let id = head.id.and_then(|id| id.get().parse::<u64>().ok()).filter(|_| head.method.is_some());
        let posting = post(Arc::clone(&session), Bytes::copy_from_slice(&line), id, Arc::clone(&answers));
        match head.method.as_deref() {
            // The messages that follow rely on it, so it is sent before them.
            Some("notifications/initialized") => {
                let _ = tokio::time::timeout(COURTESY, posting).await;
                exchanges.spawn(listen(Arc::clone(&session), Arc::clone(&answers)));
            }
            Some("notifications/cancelled") => {
                let request = head.params.and_then(|params| params.request);
                if let Some(exchange) = request.and_then(|request| under_way.remove(&request)) {
                    exchange.abort();
                }
                exchanges.spawn(posting);
            }
            Some(_) => {
                let exchange = exchanges.spawn(posting);
                under_way.extend(id.map(|id| (id, exchange)));
            }
            // A server that asks faster than it listens gets no answer.
            None if answering.len() < MOST_ANSWERS => drop(answering.spawn(posting)),
            None => {}
        }
        line.clear();
    }
}

/// Sends a message. If it is a request, it is answered, if only with why there is no answer.
async fn post(session: Arc<McpSession>, message: Bytes, id: Option<u64>, answers: Answers) {
    let outcome = async {
        let response = session.send(Method::POST, message).await.map_err(|error| error.to_string())?;
        let response = session.accepted(response).await?;
        passed_on(response, &answers).await
    };
    let outcome = outcome.await;
    if let Some(id) = id {
        let reason = outcome.err().unwrap_or_else(|| "its answer ended before the result".to_owned());
        let fault = json!({"jsonrpc": "2.0", "id": id, "error": {"code": UNREACHED, "message": reason}});
        // If there was an answer, the client does not wait for this one, and ignores it.
        write_line(&answers, fault.to_string().as_bytes()).await;
    }
}

/// What the server says on its own account, if it wants to.
async fn listen(session: Arc<McpSession>, answers: Answers) {
    if let Ok(response) = session.send(Method::GET, Bytes::new()).await
        && response.status == StatusCode::OK
        && is(&response, "text/event-stream")
    {
        let _ = passed_on(response, &answers).await;
    }
}

/// Hands over every message of an answer.
async fn passed_on(response: Response, answers: &Answers) -> Result<(), String> {
    let words = |error: HttpError| error.to_string();
    if is(&response, "application/json") {
        let document = response.into_body().collect(LONGEST_MESSAGE as u64).await.map_err(words)?;
        write_line(answers, &document).await;
    } else if is(&response, "text/event-stream") {
        let mut body = response.into_body();
        let mut stream = EventStream::new(LONGEST_MESSAGE);
        while let Some(chunk) = body.chunk().await.map_err(words)? {
            let mut messages = Vec::new();
            let read = stream.push::<FrameTooLong>(&chunk, |frame| {
                messages.push(frame.data.to_vec());
                Ok(())
            });
            for message in messages {
                write_line(answers, &message).await;
            }
            read.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Writes a message as one line. It may come as many lines: in JSON their ends stand only between tokens.
async fn write_line(answers: &Answers, message: &[u8]) {
    let mut line: Vec<u8> =
        message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
    line.push(b'\n');
    let _ = answers.lock().await.write_all(&line).await;
}

fn is(response: &Response, media_type: &str) -> bool {
    let found = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    found.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(media_type)
}

impl McpSession {
    /// From now on every request says which revision was agreed on.
    pub(crate) fn agreed(&self, version: &'static str) {
        let _ = self.version.set(HeaderValue::from_static(version));
    }

    /// Tells the server that the client does not come back to the session.
    pub(crate) async fn end(&self) {
        if self.id.get().is_some() {
            let _ = tokio::time::timeout(COURTESY, self.send(Method::DELETE, Bytes::new())).await;
        }
    }

    async fn send(&self, method: Method, body: Bytes) -> Result<Response, HttpError> {
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in [(SESSION, self.id.get()), (VERSION, self.version.get())] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        self.http.send(Request { method, url: self.url.clone(), headers, body }).await
    }

    /// Remembers the session that an answer begins; a refusal is a reason in words.
    async fn accepted(&self, response: Response) -> Result<Response, String> {
        if response.status.is_success() {
            if let Some(id) = response.headers.get(SESSION) {
                let _ = self.id.set(id.clone());
            }
            return Ok(response);
        }
        let status = response.status;
        if status == StatusCode::NOT_FOUND && self.id.get().is_some() {
            return Err("it has forgotten the session".to_owned());
        }
        if let Some(place) = response.headers.get(LOCATION).filter(|_| status.is_redirection()) {
            let place = String::from_utf8_lossy(place.as_bytes());
            return Err(format!("it has moved to {}: write that address", visible_start(&place, 500)));
        }
        let said = response.into_body().collect(LONGEST_REASON).await.unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let said = visible_start(said.trim(), 300);
        let colon = if said.is_empty() { "" } else { ": " };
        Err(format!("it answered with status {}{colon}{said}", status.as_u16()))
    }
}
