//! A service that is asked over HTTP: each message is a request of its own, and answers come as JSON or as a stream.
//!
//! Both sides of the conversation are lines, so that the client that speaks does not know that there is no pipe
//! between. What a message says of itself decides its headers: one of the revision 2026-07-28 has them all, and belongs to no
//! session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, WriteHalf, duplex, split};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};

use super::oauth::{Challenge, Login, LoginError};
use super::protocol::LONGEST_MESSAGE;
use super::wire::{header, meta};
use crate::escape::visible_start;
use crate::http::frames::{EventStream, FrameTooLong};
use crate::http::{HttpClient, HttpError, Request, Response};

/// The code of a failure that is not the server's word. Its data has the status, if there was an answer.
pub(crate) const UNREACHED: i64 = -32003;
/// The code of a request that nobody has logged in for. Its data says where.
pub(crate) const UNAUTHORIZED: i64 = -32004;

const SESSION: &str = "mcp-session-id";
const LAST_EVENT: &str = "last-event-id";
/// How long a server may take to hear that it is over, or that it may begin.
const COURTESY: Duration = Duration::from_secs(2);
/// Answers to a server that are on their way at once.
const MOST_ANSWERS: usize = 64;
/// What is read of an answer that says why there is none.
const LONGEST_REASON: u64 = 64 * 1024;
/// How often a stream that ended before its answer is gone on with.
const MOST_RESUMPTIONS: u32 = 5;
/// How long before that, if the server does not say, and at most.
const RESUMED_AFTER: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What all requests to a server have in common.
pub(crate) struct McpSession {
    http: HttpClient,
    url: Uri,
    headers: HeaderMap,
    login: Option<Arc<Login>>,
    id: OnceLock<HeaderValue>,
    version: OnceLock<HeaderValue>,
    /// Arguments that headers repeat, by the names that the server gives its tools.
    repeated: StdMutex<HashMap<String, Vec<header::HeaderParameter>>>,
}

/// Lines that are written here are sent, and what comes back is read here.
pub(crate) fn open(
    http: HttpClient,
    url: Uri,
    headers: HeaderMap,
    login: Option<Arc<Login>>,
) -> (DuplexStream, Arc<McpSession>) {
    let (id, version, repeated) = (OnceLock::new(), OnceLock::new(), StdMutex::default());
    let session = Arc::new(McpSession { http, url, headers, login, id, version, repeated });
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
    params: Option<Value>,
}

/// A message on its way.
struct McpMessage {
    body: Bytes,
    /// Of a request.
    id: Option<u64>,
    /// What it says of itself, if it is one of the modern revision.
    headers: Option<HeaderMap>,
}

/// A request under way, and whether its server hears of its end by the end of the exchange alone.
struct McpExchange {
    task: AbortHandle,
    is_modern: bool,
}

/// Where answers are written, as lines, for the client that waits for them.
type Answers = Arc<Mutex<WriteHalf<DuplexStream>>>;

async fn pump(stream: DuplexStream, session: Arc<McpSession>) {
    let (reader, writer) = split(stream);
    let (mut reader, answers): (_, Answers) = (BufReader::new(reader), Arc::new(Mutex::new(writer)));
    // Both are dropped with this, when the client does not speak any more.
    let (mut exchanges, mut answering) = (JoinSet::new(), JoinSet::new());
    let mut under_way: HashMap<u64, McpExchange> = HashMap::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        while exchanges.try_join_next().is_some() || answering.try_join_next().is_some() {}
        under_way.retain(|_, exchange| !exchange.task.is_finished());
        let Ok(head) = serde_json::from_slice::<McpMessageHead<'_>>(&line) else { break };
        let id = head.id.and_then(|id| id.get().parse::<u64>().ok()).filter(|_| head.method.is_some());
        let headers = session.modern(&head);
        let is_modern = headers.is_some();
        let message = McpMessage { body: Bytes::copy_from_slice(&line), id, headers };
        let posting = post(Arc::clone(&session), message, Arc::clone(&answers));
        match head.method.as_deref() {
            // The messages that follow rely on it, so it is sent before them.
            Some("notifications/initialized") => {
                let _ = tokio::time::timeout(COURTESY, posting).await;
                exchanges.spawn(listen(Arc::clone(&session), Arc::clone(&answers)));
            }
            Some("notifications/cancelled") => {
                let request = head.params.as_ref().and_then(|params| params.get("requestId")?.as_u64());
                let ended = request.and_then(|request| under_way.remove(&request));
                if let Some(exchange) = &ended {
                    exchange.task.abort();
                }
                if !ended.is_some_and(|exchange| exchange.is_modern) {
                    exchanges.spawn(posting);
                }
            }
            Some(_) => {
                let task = exchanges.spawn(posting);
                under_way.extend(id.map(|id| (id, McpExchange { task, is_modern })));
            }
            // A server that asks faster than it listens gets no answer.
            None if answering.len() < MOST_ANSWERS => drop(answering.spawn(posting)),
            None => {}
        }
        line.clear();
    }
}

/// Sends a message. If it is a request, it is answered, if only with why there is no answer.
async fn post(session: Arc<McpSession>, message: McpMessage, answers: Answers) {
    let id = message.id;
    let outcome = exchanged(&session, message, &answers).await;
    let Some(id) = id else { return };
    let fault = outcome.err().unwrap_or_else(|| HttpRefusal::words("its answer ended before the result"));
    // If there was an answer, the client does not wait for this one, and ignores it.
    let answer = json!({"jsonrpc": "2.0", "id": id, "error": fault.error});
    write_line(&answers, answer.to_string().as_bytes()).await;
}

async fn exchanged(session: &McpSession, message: McpMessage, answers: &Answers) -> Result<(), HttpRefusal> {
    let is_modern = message.headers.is_some();
    let response = session.asked(&message).await?;
    let mut progress = passed_on(response, answers, message.id).await?;
    for _ in 0..MOST_RESUMPTIONS {
        let Some((place, pause)) = progress.taken_up().filter(|_| message.id.is_some() && !is_modern) else { break };
        tokio::time::sleep(pause).await;
        let Ok(response) = session.send(Method::GET, Bytes::new(), None, Some(place)).await else { continue };
        if response.status != StatusCode::OK || !is(&response, "text/event-stream") {
            break;
        }
        progress = passed_on(response, answers, message.id).await?.after(progress);
    }
    Ok(())
}

/// What the server says on its own account, if it wants to.
async fn listen(session: Arc<McpSession>, answers: Answers) {
    if let Ok(response) = session.send(Method::GET, Bytes::new(), None, None).await
        && response.status == StatusCode::OK
        && is(&response, "text/event-stream")
    {
        let _ = passed_on(response, &answers, None).await;
    }
}

/// How far a stream came.
#[derive(Default)]
struct StreamProgress {
    is_answered: bool,
    last_id: Option<HeaderValue>,
    retry: Option<Duration>,
}

impl StreamProgress {
    /// From where it can be gone on with, and after how long, if it ended too early.
    fn taken_up(&self) -> Option<(HeaderValue, Duration)> {
        let place = self.last_id.clone().filter(|_| !self.is_answered)?;
        Some((place, self.retry.unwrap_or(RESUMED_AFTER).min(LONGEST_PAUSE)))
    }

    fn after(self, earlier: Self) -> Self {
        Self { last_id: self.last_id.or(earlier.last_id), retry: self.retry.or(earlier.retry), ..self }
    }
}

/// Hands over every message of an answer.
async fn passed_on(response: Response, answers: &Answers, id: Option<u64>) -> Result<StreamProgress, HttpRefusal> {
    let words = |error: HttpError| HttpRefusal::words(&error.to_string());
    let mut progress = StreamProgress::default();
    if is(&response, "application/json") {
        let document = response.into_body().collect(LONGEST_MESSAGE as u64).await.map_err(words)?;
        write_line(answers, &document).await;
        progress.is_answered = true;
    } else if is(&response, "text/event-stream") {
        let mut body = response.into_body();
        let mut stream = EventStream::new(LONGEST_MESSAGE);
        loop {
            let chunk = match body.chunk().await {
                Ok(Some(chunk)) => chunk,
                // One that can be gone on with may have broken off anywhere.
                Ok(None) | Err(HttpError::Cut { .. }) if stream.last_id().is_some() => break,
                Ok(None) => break,
                Err(error) => return Err(words(error)),
            };
            let mut messages = Vec::new();
            let read = stream.push::<FrameTooLong>(&chunk, |frame| {
                messages.push(frame.data.to_vec());
                Ok(())
            });
            for message in messages {
                progress.is_answered |= id.is_some_and(|id| answers_to(&message, id));
                write_line(answers, &message).await;
            }
            read.map_err(|error| HttpRefusal::words(&error.to_string()))?;
        }
        progress.last_id = stream.last_id().and_then(|id| HeaderValue::from_bytes(id).ok());
        progress.retry = stream.retry().map(Duration::from_millis);
    }
    Ok(progress)
}

fn answers_to(message: &[u8], id: u64) -> bool {
    let head = serde_json::from_slice::<McpMessageHead<'_>>(message).ok();
    head.is_some_and(|head| head.method.is_none() && head.id.is_some_and(|given| given.get() == id.to_string()))
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

/// Why a request has no answer: an error of JSON-RPC, the server's or ours.
struct HttpRefusal {
    error: Value,
}

impl HttpRefusal {
    fn words(message: &str) -> Self {
        Self { error: json!({"code": UNREACHED, "message": message}) }
    }

    fn status(status: StatusCode, message: &str) -> Self {
        Self { error: json!({"code": UNREACHED, "message": message, "data": {"status": status.as_u16()}}) }
    }
}

impl From<LoginError> for HttpRefusal {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Needed { at, project } => {
                Self { error: json!({"code": UNAUTHORIZED, "message": at, "data": project.to_string_lossy()}) }
            }
            LoginError::Failed(reason) => Self::words(&reason),
        }
    }
}

impl McpSession {
    /// From now on every request says which revision was agreed on.
    pub(crate) fn agreed(&self, version: &'static str) {
        let _ = self.version.set(HeaderValue::from_static(version));
    }

    /// From now on these arguments are repeated in headers.
    pub(crate) fn repeats(&self, tools: HashMap<String, Vec<header::HeaderParameter>>) {
        *self.repeated.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }

    /// Tells the server that the client does not come back to the session.
    pub(crate) async fn end(&self) {
        if self.id.get().is_some() {
            let _ = tokio::time::timeout(COURTESY, self.send(Method::DELETE, Bytes::new(), None, None)).await;
        }
    }

    /// The headers of a message of the modern revision: it says in `_meta` that it is one.
    fn modern(&self, head: &McpMessageHead<'_>) -> Option<HeaderMap> {
        let (method, params) = (head.method.as_deref()?, head.params.as_ref()?);
        let version = params.get("_meta")?.get(meta::PROTOCOL_VERSION)?.as_str()?;
        let mut headers = HeaderMap::new();
        let mut put = |name: &str, value: &str| {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        };
        put(header::VERSION, version);
        put(header::METHOD, method);
        if let Some(name) = header::name(method, params) {
            put(header::NAME, &header::encoded(&name));
            let repeated = self.repeated.lock().unwrap_or_else(PoisonError::into_inner);
            let repeated = repeated.get(&name).filter(|_| method == "tools/call");
            for parameter in repeated.into_iter().flatten() {
                if let Some(value) = parameter.of(params.get("arguments").unwrap_or(&Value::Null)) {
                    put(&format!("{}{}", header::PARAMETER, parameter.name), &value);
                }
            }
        }
        Some(headers)
    }

    async fn asked(&self, message: &McpMessage) -> Result<Response, HttpRefusal> {
        let mut renewed = false;
        loop {
            let bearer = match &self.login {
                Some(login) => login.bearer().await?,
                None => None,
            };
            let own = message.headers.clone();
            let response = self.posted(message.body.clone(), own, bearer.clone()).await;
            let response = response.map_err(|error| HttpRefusal::words(&error.to_string()))?;
            let (status, challenge) = (response.status, Challenge::of(&response.headers));
            match &self.login {
                Some(login) if status == StatusCode::UNAUTHORIZED => {
                    login.unauthorized(bearer.as_ref(), &challenge, renewed).await?;
                    renewed = true;
                }
                Some(login) if status == StatusCode::FORBIDDEN && challenge.wants_more() => {
                    return Err(login.insufficient(&challenge).await.into());
                }
                None if status == StatusCode::UNAUTHORIZED && response.headers.contains_key(WWW_AUTHENTICATE) => {
                    let hint = "it wants a login (status 401): write `\"auth\": \"oauth\"`, or give it a header";
                    return Err(HttpRefusal::status(status, hint));
                }
                Some(_) | None => return self.accepted(response).await,
            }
        }
    }

    async fn posted(
        &self,
        body: Bytes,
        own: Option<HeaderMap>,
        bearer: Option<HeaderValue>,
    ) -> Result<Response, HttpError> {
        let is_modern = own.is_some();
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(own.unwrap_or_default());
        if let Some(bearer) = bearer {
            headers.insert(AUTHORIZATION, bearer);
        }
        self.sent(Method::POST, body, headers, is_modern).await
    }

    async fn send(
        &self,
        method: Method,
        body: Bytes,
        own: Option<HeaderMap>,
        last_event: Option<HeaderValue>,
    ) -> Result<Response, HttpError> {
        let mut headers = self.headers.clone();
        headers.extend(own.unwrap_or_default());
        if let Some(last) = last_event {
            headers.insert(LAST_EVENT, last);
        }
        if let Some(login) = &self.login
            && let Ok(Some(bearer)) = login.bearer().await
        {
            headers.insert(AUTHORIZATION, bearer);
        }
        self.sent(method, body, headers, false).await
    }

    async fn sent(
        &self,
        method: Method,
        body: Bytes,
        mut headers: HeaderMap,
        is_modern: bool,
    ) -> Result<Response, HttpError> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if !is_modern {
            for (name, value) in [(SESSION, self.id.get()), (header::VERSION, self.version.get())] {
                headers.extend(value.map(|value| (HeaderName::from_static(name), value.clone())));
            }
        }
        self.http.send(Request { method, url: self.url.clone(), headers, body }).await
    }

    /// Remembers the session that an answer begins; a refusal is the server's error, or a reason in words.
    async fn accepted(&self, response: Response) -> Result<Response, HttpRefusal> {
        if response.status.is_success() {
            if let Some(id) = response.headers.get(SESSION) {
                let _ = self.id.set(id.clone());
            }
            return Ok(response);
        }
        let status = response.status;
        if status == StatusCode::NOT_FOUND && self.id.get().is_some() {
            return Err(HttpRefusal::status(status, "it has forgotten the session"));
        }
        if let Some(place) = response.headers.get(LOCATION).filter(|_| status.is_redirection()) {
            let place = String::from_utf8_lossy(place.as_bytes());
            let words = format!("it has moved to {}: write that address", visible_start(&place, 500));
            return Err(HttpRefusal::status(status, &words));
        }
        let said = response.into_body().collect(LONGEST_REASON).await.unwrap_or_default();
        // A server of the modern revision says with an error what is wrong with a request, beside the status.
        let error =
            serde_json::from_slice::<Value>(&said).ok().and_then(|mut said| said.get_mut("error").map(Value::take));
        if let Some(error) = error.filter(|error| status.is_client_error() && error["code"].is_i64()) {
            return Err(HttpRefusal { error });
        }
        let said = String::from_utf8_lossy(&said);
        let said = visible_start(said.trim(), 300);
        let colon = if said.is_empty() { "" } else { ": " };
        Err(HttpRefusal::status(status, &format!("it answered with status {}{colon}{said}", status.as_u16())))
    }
}
