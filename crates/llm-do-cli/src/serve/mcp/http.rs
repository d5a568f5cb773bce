//! MCP by HTTP: one address, behind the guard that every server of ours stands behind. A request of the newest revision stands for
//! itself; clients with a handshake have a session, which holds what they said of themselves and what they are being asked.

mod headers;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_util::stream::unfold;
use llm_do::BoxFuture;
use llm_do::records::{StateKey, digest};
use llm_do::rpc::{RpcError, code};
use llm_do_web::guard::{ConnectionBounds, Guard, HEADERS, KeyKind, KeyRequirement, Keys, ServedAddress, accept};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::answered;
use super::call::{Calls, ClientWire, McpCaller};
use super::protocol::{self, MODERN, McpClient, McpEra, invalid};
use crate::console;
use crate::failure::Failure;
use crate::signals::Signals;

/// Arguments and answers, and what stands around them.
const LARGEST_BODY: usize = 8 << 20;
/// More clients are not remembered: the one that was silent longest is forgotten.
const MOST_SESSIONS: usize = 256;
/// Something is written so often while nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const SESSION: &str = "mcp-session-id";

struct HttpDesk {
    calls: Arc<Calls>,
    guard: Guard,
    sessions: Mutex<BTreeMap<String, Arc<HttpSession>>>,
}

/// A client that shook hands.
struct HttpSession {
    client: McpClient,
    principal: String,
    /// What it was asked and has not answered.
    asked: Mutex<HashMap<u64, oneshot::Sender<Result<Value, String>>>>,
    next: AtomicU64,
    heard: Mutex<Instant>,
}

/// Serves until a signal comes; then every run is left.
pub async fn serve(calls: Arc<Calls>, at: SocketAddr) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let listener = TcpListener::bind(at)
        .await
        .map_err(|error| Failure::usage(format!("nobody can listen at {at}: {error}")).hint("name another address"))?;
    let at = listener.local_addr().map_err(|error| Failure::failed(error.to_string()))?;
    let address = ServedAddress::of(at, None, false, false).map_err(|error| {
        Failure::usage(error.to_string()).hint("listen on 127.0.0.1, and put a proxy with a certificate before it")
    })?;
    let settings = &calls.runs.host.settings;
    let directory = settings.state.directory().ok_or_else(|| Failure::usage("there is no home directory"))?;
    let keys = Keys::of(&directory.join("web")).map_err(|error| Failure::usage(format!("the keys: {error}")))?;
    console::print(&format!("{}/mcp\n", address.url()))?;
    console::delivered()?;
    console::complain(&format!(
        "`Authorization: Bearer` with the key in {} (calls, and answers questions) or in {} (calls)\n",
        keys.file(KeyKind::All).display(),
        keys.file(KeyKind::Ask).display()
    ));
    let desk =
        Arc::new(HttpDesk { calls: Arc::clone(&calls), guard: Guard::new(address, keys), sessions: Mutex::default() });
    let routes = Router::new().fallback(heard).with_state(desk);
    let end = CancellationToken::new();
    // A run that nobody speaks of takes no connection; many clients may listen at once.
    let serving = accept(listener, None, ConnectionBounds::default(), routes, end.clone());
    tokio::pin!(serving);
    let stopped = tokio::select! {
        () = &mut serving => return Ok(()),
        signal = signals.next() => signal.stops(),
    };
    end.cancel();
    tokio::select! {
        _ = async { tokio::join!(&mut serving, calls.runs.leave()) } => {}
        _ = signals.next() => {}
    }
    Err(stopped.failure())
}

async fn heard(State(desk): State<Arc<HttpDesk>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = Box::pin(desk.answer(parts, body)).await;
    response.headers_mut().extend(HEADERS);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A message as it stands in a body.
struct HttpMessage {
    id: Option<Value>,
    method: Option<String>,
    params: Value,
    whole: Value,
}

impl HttpMessage {
    fn of(bytes: &[u8]) -> Result<Self, RpcError> {
        let whole: Value =
            serde_json::from_slice(bytes).map_err(|_| RpcError::told(code::PARSE, "this is not JSON"))?;
        if !whole.is_object() {
            return Err(RpcError::told(code::INVALID_REQUEST, "this is no message; batches are not taken"));
        }
        let id = whole.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        let method = whole.get("method").and_then(Value::as_str).map(str::to_owned);
        let params = whole.get("params").cloned().unwrap_or(Value::Null);
        Ok(Self { id, method, params, whole })
    }
}

impl HttpDesk {
    async fn answer(self: Arc<Self>, parts: Parts, body: Body) -> Response {
        let may_answer = match self.entered(&parts) {
            Ok(may_answer) => may_answer,
            Err(refused) => return *refused,
        };
        if parts.uri.path() != "/mcp" {
            return (StatusCode::NOT_FOUND, Json(json!({"error": "there is only /mcp"}))).into_response();
        }
        let principal = format!("http {}", digest([bearer(&parts.headers)]));
        match parts.method.as_str() {
            "POST" => {}
            "DELETE" => return self.forget(&parts.headers, &principal),
            _ => return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST, DELETE")]).into_response(),
        }
        let Ok(bytes) = to_bytes(body, LARGEST_BODY).await else {
            return (StatusCode::PAYLOAD_TOO_LARGE, Json(json!({"error": "the body is too large"}))).into_response();
        };
        let message = match HttpMessage::of(&bytes) {
            Ok(message) => message,
            Err(error) => return told(StatusCode::BAD_REQUEST, &Value::Null, &error),
        };
        let HttpMessage { id, method, params, whole } = message;
        let (Some(method), Some(id)) = (method, id) else { return self.unanswered(&parts.headers, &principal, &whole) };
        let who = match self.client(&parts.headers, &method, &params, &principal) {
            Ok(who) => who,
            Err((status, error)) => return told(status, &id, &error),
        };
        match who {
            HttpCaller::New => self.introduce(&id, &params, principal),
            HttpCaller::Known(client, session) => {
                let asked = HttpRequest { id, method, params, client, session, principal, may_answer };
                if asked.is_streamed() { self.streamed(asked) } else { self.whole(asked).await }
            }
        }
    }

    /// Whether the request comes with a key, and whether that key may answer questions.
    fn entered(&self, parts: &Parts) -> Result<bool, Box<Response>> {
        let now = Instant::now();
        match self.guard.check(parts, KeyRequirement::Ask, now) {
            Ok(()) => Ok(self.guard.check(parts, KeyRequirement::All, now).is_ok()),
            Err(refusal) => {
                let words = json!({"error": refusal.to_string()});
                let mut response = (refusal.status(), Json(words)).into_response();
                if refusal.status() == StatusCode::UNAUTHORIZED {
                    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                }
                Err(Box::new(response))
            }
        }
    }

    /// Who asks: as the request itself says, or as its session does.
    fn client(
        &self,
        headers: &HeaderMap,
        method: &str,
        params: &Value,
        principal: &str,
    ) -> Result<HttpCaller, (StatusCode, RpcError)> {
        let wrong = |error| (StatusCode::BAD_REQUEST, error);
        let version = headers::text(headers, headers::VERSION);
        headers::check_version(headers, params).map_err(wrong)?;
        if let Some(client) = McpClient::of_request(params).map_err(wrong)? {
            headers::check(headers, method, params).map_err(wrong)?;
            return Ok(HttpCaller::Known(client, None));
        }
        match version {
            Some(version) if version == MODERN => {
                return Err(wrong(invalid(format!("`_meta` lacks `{}`", protocol::VERSION_KEY))));
            }
            Some(version) if !protocol::has_handshake(version) => return Err(wrong(protocol::unspoken(version))),
            Some(_) | None => {}
        }
        if method == "initialize" {
            return Ok(HttpCaller::New);
        }
        if method == "server/discover" {
            return Err(wrong(invalid(format!("`_meta` lacks `{}`", protocol::VERSION_KEY))));
        }
        let Some(name) = headers::text(headers, SESSION) else {
            return Ok(HttpCaller::Known(McpClient::silent(), None));
        };
        let session = self.session(name, principal);
        let gone = || (StatusCode::NOT_FOUND, RpcError::told(code::INVALID_REQUEST, "there is no such session"));
        let session = session.ok_or_else(gone)?;
        Ok(HttpCaller::Known(session.client.clone(), Some(session)))
    }

    fn introduce(&self, id: &Value, params: &Value, principal: String) -> Response {
        let Ok(name) = StateKey::new_hex() else {
            let error = RpcError::told(code::FAILED, "no session can be made");
            return told(StatusCode::INTERNAL_SERVER_ERROR, id, &error);
        };
        let session = HttpSession {
            client: McpClient::introduced(params),
            principal,
            asked: Mutex::default(),
            next: AtomicU64::new(1),
            heard: Mutex::new(Instant::now()),
        };
        let mut sessions = self.sessions();
        if sessions.len() >= MOST_SESSIONS {
            let oldest = sessions.iter().min_by_key(|(_, session)| *lock(&session.heard)).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| sessions.remove(&oldest));
        }
        sessions.insert(name.clone(), Arc::new(session));
        drop(sessions);
        let result = json!({"jsonrpc": "2.0", "id": id, "result": protocol::initialized(params)});
        let mut response = Json(result).into_response();
        if let Ok(name) = HeaderValue::from_str(&name) {
            response.headers_mut().insert(SESSION, name);
        }
        response
    }

    /// The session of this client, and of no other.
    fn session(&self, name: &str, principal: &str) -> Option<Arc<HttpSession>> {
        let session = self.sessions().get(name).filter(|session| session.principal == principal).cloned()?;
        *lock(&session.heard) = Instant::now();
        Some(session)
    }

    fn forget(&self, headers: &HeaderMap, principal: &str) -> Response {
        let name = headers::text(headers, SESSION).filter(|name| self.session(name, principal).is_some());
        match name {
            Some(name) => {
                self.sessions().remove(name);
                StatusCode::NO_CONTENT.into_response()
            }
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }

    /// A notification, or what a client answers to what it was asked.
    fn unanswered(&self, headers: &HeaderMap, principal: &str, message: &Value) -> Response {
        let session = headers::text(headers, SESSION).and_then(|name| self.session(name, principal));
        let number = message.get("id").and_then(Value::as_u64);
        if let (Some(session), Some(number), None) = (session, number, message.get("method"))
            && let Some(waits) = lock(&session.asked).remove(&number)
        {
            let answer = match message.get("result") {
                Some(result) => Ok(result.clone()),
                None => Err("the client refused".to_owned()),
            };
            let _ = waits.send(answer);
        }
        StatusCode::ACCEPTED.into_response()
    }

    async fn whole(&self, asked: HttpRequest) -> Response {
        let wire = HttpWire { say: None, session: asked.session.clone() };
        let answer = Box::pin(asked.answered(&self.calls, &wire)).await;
        match answer {
            Ok(result) => Json(json!({"jsonrpc": "2.0", "id": asked.id, "result": result})).into_response(),
            Err(error) => told(status_of(&error, asked.client.era), &asked.id, &error),
        }
    }

    /// What is told while a call goes on comes before its result, in one stream. Whoever stops reading it leaves the call.
    fn streamed(self: Arc<Self>, asked: HttpRequest) -> Response {
        let (say, heard) = mpsc::unbounded_channel();
        let wire = HttpWire { say: Some(say), session: asked.session.clone() };
        let work = async move {
            let answer = Box::pin(asked.answered(&self.calls, &wire)).await;
            match answer {
                Ok(result) => json!({"jsonrpc": "2.0", "id": asked.id, "result": result}),
                Err(error) => error_message(&asked.id, &error),
            }
        };
        let frames = unfold(Frames { work: Some(Box::pin(work)), heard, rest: None }, async |mut frames| {
            let frame = frames.next().await?;
            Some((Ok::<_, Infallible>(frame), frames))
        });
        let mut response = Body::from_stream(frames).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<HttpSession>>> {
        lock(&self.sessions)
    }
}

/// Who asks.
enum HttpCaller {
    /// It introduces itself now.
    New,
    Known(McpClient, Option<Arc<HttpSession>>),
}

/// A request, and who sent it.
struct HttpRequest {
    id: Value,
    method: String,
    params: Value,
    client: McpClient,
    session: Option<Arc<HttpSession>>,
    principal: String,
    may_answer: bool,
}

impl HttpRequest {
    /// Whether something may be told before the result: progress, or what a client with a handshake is asked.
    fn is_streamed(&self) -> bool {
        let wants_progress = self.params.get("_meta").is_some_and(|meta| meta.get("progressToken").is_some());
        self.method == "tools/call" && (wants_progress || (self.session.is_some() && self.client.elicits))
    }

    async fn answered(&self, calls: &Calls, wire: &HttpWire) -> Result<Value, RpcError> {
        let client = self.client.clone();
        let caller = McpCaller { client, principal: self.principal.clone(), may_answer: self.may_answer, wire };
        answered(calls, &self.method, &self.params, &caller).await
    }
}

/// What a client can be told while one request of it goes on.
struct HttpWire {
    say: Option<mpsc::UnboundedSender<Value>>,
    session: Option<Arc<HttpSession>>,
}

impl ClientWire for HttpWire {
    fn tell(&self, method: &str, params: Value) {
        if let Some(say) = &self.say {
            let _ = say.send(json!({"jsonrpc": "2.0", "method": method, "params": params}));
        }
    }

    fn ask<'a>(&'a self, method: &'a str, params: Value) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move {
            let (Some(say), Some(session)) = (&self.say, &self.session) else {
                return Err("this client cannot be asked".to_owned());
            };
            let number = session.next.fetch_add(1, Ordering::Relaxed);
            let (answer, waits) = oneshot::channel();
            lock(&session.asked).insert(number, answer);
            let _taken_back = TakenBack { session, number };
            let _ = say.send(json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}));
            waits.await.unwrap_or_else(|_| Err("the client left".to_owned()))
        })
    }
}

/// Nobody waits for the answer any more.
struct TakenBack<'a> {
    session: &'a HttpSession,
    number: u64,
}

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        lock(&self.session.asked).remove(&self.number);
    }
}

/// A call that is answered in pieces.
struct Frames {
    work: Option<Pin<Box<dyn Future<Output = Value> + Send>>>,
    heard: mpsc::UnboundedReceiver<Value>,
    /// What is left when the work is done.
    rest: Option<Value>,
}

impl Frames {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(work) = &mut self.work {
            tokio::select! {
                biased;
                Some(message) = self.heard.recv() => return Some(frame(&message)),
                result = work => {
                    self.work = None;
                    self.rest = Some(result);
                }
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
        // What was told before the end comes before it.
        match self.heard.try_recv() {
            Ok(message) => Some(frame(&message)),
            Err(_) => self.rest.take().map(|result| frame(&result)),
        }
    }
}

fn frame(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

fn bearer(headers: &HeaderMap) -> &str {
    headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok()).unwrap_or_default().trim()
}

fn error_message(id: &Value, error: &RpcError) -> Value {
    match error {
        RpcError::Told { code, message, data } => {
            let mut error = json!({"code": code, "message": message});
            if let Some(data) = data.as_ref().and_then(|data| data.to::<Value>().ok()) {
                error["data"] = data;
            }
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
        RpcError::Gone(reason) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": reason}}),
    }
}

fn told(status: StatusCode, id: &Value, error: &RpcError) -> Response {
    (status, Json(error_message(id, error))).into_response()
}

/// An error of the request itself is one of HTTP too, in the newest revision.
fn status_of(error: &RpcError, era: McpEra) -> StatusCode {
    match (era, error) {
        (McpEra::Modern, RpcError::Told { code: code::METHOD_NOT_FOUND, .. }) => StatusCode::NOT_FOUND,
        (McpEra::Modern, RpcError::Told { code: protocol::CAPABILITY, .. }) => StatusCode::BAD_REQUEST,
        (McpEra::Modern | McpEra::WithHandshake, _) => StatusCode::OK,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
