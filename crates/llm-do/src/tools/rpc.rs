//! JSON-RPC 2.0, both ways, one message per line: what other processes that offer tools speak, and what other programs
//! speak to us.
//!
//! Either side may have many requests under way. A request whose future is dropped is taken back with a notification. A
//! peer that goes away fails everything that waits for it, and everything later, with one and the same reason.

pub mod child;
pub(crate) mod output;

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::escape::visible_json;
use crate::message::RawJson;

/// The longest line that is read: twice the largest value that is meant to pass, in base64 or escaped.
const LONGEST_LINE: u64 = 256 * 1024 * 1024;
/// Requests of the other side that may be under way at once; more are refused, so that a flood takes no memory.
const MOST_REQUESTS: usize = 4096;
/// Bytes that wait for the other side to read them. With more, it asks without listening, and gets no more answers.
const MOST_UNREAD: usize = 16 * 1024 * 1024;

/// The standard's codes, and ours.
pub mod code {
    /// A line that is not JSON.
    #[cfg(feature = "front-end")]
    pub const PARSE: i64 = -32700;
    /// JSON that is no message.
    #[cfg(feature = "front-end")]
    pub const INVALID_REQUEST: i64 = -32600;
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters do not fit the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something went wrong on the side that was asked, through no fault of the request.
    pub(crate) const INTERNAL: i64 = -32603;
    /// Too much at once.
    pub const BUSY: i64 = -32000;
    /// What was asked for failed.
    pub const FAILED: i64 = -32001;
    /// The whole run ends.
    pub(crate) const ENDS: i64 = -32002;
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RpcError {
    /// The other side says so.
    #[error("{message}")]
    Told {
        /// The number of the error.
        code: i64,
        /// What went wrong, in words.
        message: String,
        /// More about it.
        data: Option<RawJson>,
    },
    /// There is no other side any more.
    #[error("{0}")]
    Gone(String),
}

impl RpcError {
    /// An error with this code and message, and no further data.
    pub fn told(code: i64, message: impl Into<String>) -> Self {
        Self::Told { code, message: message.into(), data: None }
    }
}

/// What the other side sends without being asked.
#[derive(Debug)]
pub enum IncomingMessage {
    /// It waits for an answer.
    Request(RpcRequest),
    /// It waits for none.
    Notification {
        /// What it is about.
        method: String,
        /// What it says.
        params: RawJson,
    },
    /// A line that is no message, such as what a server prints to its stdout by mistake.
    Noise(String),
}

/// The notification that takes a request back: protocols have their own.
pub(crate) type TakeBack = fn(u64) -> (&'static str, RawJson);

/// A live connection; clones share it. It ends when the last one is dropped.
#[derive(Clone)]
pub struct Connection(Arc<RpcState>);

struct RpcState {
    /// Unbounded: a caller that asks waits for the answer, so what is queued is what is under way; answers are counted.
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes that are queued.
    unread: Arc<AtomicUsize>,
    waiting: Mutex<RpcWaiters>,
    /// Requests of the other side that are not answered yet; what works on one is cancelled when it leaves this list.
    incoming: Mutex<HashMap<String, DropGuard>>,
    next: AtomicU64,
    take_back: TakeBack,
    reader: OnceLock<AbortHandle>,
}

enum RpcWaiters {
    Open(HashMap<u64, oneshot::Sender<Result<RawJson, RpcError>>>),
    Closed(String),
}

#[derive(Serialize)]
struct Outgoing<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a RawJson,
}

#[derive(Serialize)]
struct RpcReply<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(flatten)]
    outcome: RpcOutcome<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RpcOutcome<'a> {
    Result(&'a RawJson),
    Error(SentRpcError<'a>),
}

#[derive(Serialize)]
struct SentRpcError<'a> {
    code: i64,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawJson>,
}

/// Any message of the other side: which kind it is shows in which fields it has.
#[derive(Deserialize)]
struct RpcMessage<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<ReceivedRpcError<'a>>,
}

#[derive(Deserialize)]
struct ReceivedRpcError<'a> {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl Connection {
    /// Starts to speak. `heard` is called for everything that was not asked for, in order, and must not block;
    /// `why_ended` is awaited when the other side stops speaking, and is what every caller that waits is told.
    pub fn open(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        take_back: TakeBack,
        heard: impl FnMut(IncomingMessage) + Send + 'static,
        why_ended: impl Future<Output = String> + Send + 'static,
    ) -> Self {
        Self::open_within(LONGEST_LINE, reader, writer, take_back, heard, why_ended)
    }

    /// Numbers the requests from here on. It is said before the first.
    pub(crate) fn number_from(&self, first: u64) {
        self.0.next.store(first, Ordering::Relaxed);
    }

    /// Starts to speak with a peer whose messages are no longer than this.
    pub(crate) fn open_within(
        longest_line: u64,
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        take_back: TakeBack,
        heard: impl FnMut(IncomingMessage) + Send + 'static,
        why_ended: impl Future<Output = String> + Send + 'static,
    ) -> Self {
        let (outgoing, lines) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let shared = Arc::new(RpcState {
            outgoing,
            unread: Arc::clone(&unread),
            waiting: Mutex::new(RpcWaiters::Open(HashMap::new())),
            incoming: Mutex::default(),
            next: AtomicU64::new(1),
            take_back,
            reader: OnceLock::new(),
        });
        tokio::spawn(write(writer, lines, unread));
        let reading = tokio::spawn(read(longest_line, reader, Arc::downgrade(&shared), heard, why_ended));
        let _ = shared.reader.set(reading.abort_handle());
        Self(shared)
    }

    /// Asks, and waits for the answer. Dropping the future takes the request back.
    pub async fn request(&self, method: &str, params: &RawJson) -> Result<RawJson, RpcError> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match &mut *self.0.waiting() {
            RpcWaiters::Open(waiting) => drop(waiting.insert(id, sender)),
            RpcWaiters::Closed(reason) => return Err(RpcError::Gone(reason.clone())),
        }
        let mut asked = PendingRpcRequest { shared: &self.0, id, answered: false };
        self.0.send(&Outgoing { jsonrpc: "2.0", id: Some(id), method, params });
        let answer = answer.await.unwrap_or_else(|_| Err(RpcError::Gone("the connection ended".to_owned())));
        asked.answered = true;
        answer
    }

    /// Whether the other side is gone. What it asked for is given up only after that.
    #[cfg(feature = "front-end")]
    pub fn is_over(&self) -> bool {
        matches!(*self.0.waiting(), RpcWaiters::Closed(_))
    }

    /// Tells the other side something that it does not answer; if it is gone, nothing happens.
    pub fn notify(&self, method: &str, params: &RawJson) {
        self.0.send(&Outgoing { jsonrpc: "2.0", id: None, method, params });
    }

    /// An error about something that was no request, so that it has no id.
    #[cfg(feature = "front-end")]
    pub fn complain(&self, fault: RpcError) {
        self.0.answer(RawValue::NULL, &Err(fault));
    }

    /// Why nothing can be asked any more, if so.
    pub(crate) fn ended(&self) -> Option<String> {
        match &*self.0.waiting() {
            RpcWaiters::Open(_) => None,
            RpcWaiters::Closed(reason) => Some(reason.clone()),
        }
    }
}

/// A request that waits for its answer.
struct PendingRpcRequest<'a> {
    shared: &'a RpcState,
    id: u64,
    answered: bool,
}

impl Drop for PendingRpcRequest<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        if let RpcWaiters::Open(waiting) = &mut *self.shared.waiting() {
            waiting.remove(&self.id);
        }
        let (method, params) = (self.shared.take_back)(self.id);
        self.shared.send(&Outgoing { jsonrpc: "2.0", id: None, method, params: &params });
    }
}

impl RpcState {
    fn waiting(&self) -> MutexGuard<'_, RpcWaiters> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn incoming(&self) -> MutexGuard<'_, HashMap<String, DropGuard>> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &impl Serialize) {
        let line = serde_json::to_string(message).expect("plain values serialise");
        // The program that drives us may show it to a person as it is.
        let mut line = match visible_json(&line) {
            Cow::Borrowed(_) => line.into_bytes(),
            Cow::Owned(shown) => shown.into_bytes(),
        };
        line.push(b'\n');
        self.unread.fetch_add(line.len(), Ordering::Relaxed);
        // If the peer does not read any more, the reader of its messages tells so to every caller that waits.
        let _ = self.outgoing.send(line);
    }

    fn answer(&self, id: &RawValue, outcome: &Result<RawJson, RpcError>) {
        let outcome = match outcome {
            Ok(result) => RpcOutcome::Result(result),
            Err(RpcError::Told { code, message, data }) => {
                RpcOutcome::Error(SentRpcError { code: *code, message, data: data.as_ref() })
            }
            Err(RpcError::Gone(reason)) => {
                RpcOutcome::Error(SentRpcError { code: code::INTERNAL, message: reason, data: None })
            }
        };
        self.send(&RpcReply { jsonrpc: "2.0", id, outcome });
    }

    /// Every caller that waits is told why, and so is every caller that asks later.
    fn close(&self, reason: &str) {
        let mut waiting = self.waiting();
        if let RpcWaiters::Open(open) = std::mem::replace(&mut *waiting, RpcWaiters::Closed(reason.to_owned())) {
            for sender in open.into_values() {
                let _ = sender.send(Err(RpcError::Gone(reason.to_owned())));
            }
        }
        drop(waiting);
        self.incoming().clear();
    }

    fn hear(self: &Arc<Self>, line: &[u8], heard: &mut impl FnMut(IncomingMessage)) {
        let line = line.trim_ascii();
        let noise = || IncomingMessage::Noise(String::from_utf8_lossy(&line[..line.len().min(1000)]).into_owned());
        // A list would be read as the fields of a message in order.
        let message = if line.starts_with(b"{") { serde_json::from_slice::<RpcMessage<'_>>(line).ok() } else { None };
        let Some(message) = message else {
            if !line.is_empty() {
                heard(noise());
            }
            return;
        };
        let owned = |raw: Option<&RawValue>| RawJson::from_valid(raw.map_or("null", RawValue::get).to_owned());
        match (message.method, message.id) {
            (Some(method), Some(id)) => {
                if let Some(request) = self.asked(id.to_owned(), method.into_owned(), owned(message.params)) {
                    heard(IncomingMessage::Request(request));
                }
            }
            (Some(method), None) => {
                let params = owned(message.params);
                if !self.taken_back(&method, &params) {
                    heard(IncomingMessage::Notification { method: method.into_owned(), params });
                }
            }
            (None, Some(id)) => {
                let outcome = match message.error {
                    Some(error) => Err(RpcError::Told {
                        code: error.code,
                        message: error.message,
                        data: error.data.map(|data| RawJson::from_valid(data.get().to_owned())),
                    }),
                    None => Ok(owned(message.result)),
                };
                self.answered(id, outcome);
            }
            (None, None) => heard(noise()),
        }
    }

    fn answered(&self, id: &RawValue, outcome: Result<RawJson, RpcError>) {
        // An answer to a question that was taken back, or never asked, has no caller that waits for it.
        let Ok(id) = id.get().parse::<u64>() else { return };
        if let RpcWaiters::Open(waiting) = &mut *self.waiting()
            && let Some(sender) = waiting.remove(&id)
        {
            let _ = sender.send(outcome);
        }
    }

    fn asked(self: &Arc<Self>, id: Box<RawValue>, method: String, params: RawJson) -> Option<RpcRequest> {
        if self.unread.load(Ordering::Relaxed) > MOST_UNREAD {
            return None;
        }
        let cancelled = CancellationToken::new();
        let mut incoming = self.incoming();
        if incoming.len() >= MOST_REQUESTS || incoming.contains_key(id.get()) {
            drop(incoming);
            let reason = format!("more than {MOST_REQUESTS} requests at once, or the same id twice");
            self.answer(&id, &Err(RpcError::told(code::BUSY, reason)));
            return None;
        }
        incoming.insert(id.get().to_owned(), cancelled.clone().drop_guard());
        Some(RpcRequest {
            method,
            params,
            cancelled,
            reply: RpcResponder { shared: Arc::downgrade(self), id, answered: false },
        })
    }

    /// Whether a notification takes back a request of the other side, in the words of either protocol.
    fn taken_back(&self, method: &str, params: &RawJson) -> bool {
        #[derive(Deserialize)]
        struct RpcCancellation {
            #[serde(alias = "requestId")]
            id: Box<RawValue>,
        }
        if method != "$/cancelRequest" && method != "notifications/cancelled" {
            return false;
        }
        if let Ok(RpcCancellation { id }) = params.to() {
            self.incoming().remove(id.get());
        }
        true
    }
}

impl Drop for RpcState {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.get() {
            reader.abort();
        }
    }
}

/// A request of the other side. Dropped without an answer, it is answered with an error.
#[derive(Debug)]
pub struct RpcRequest {
    /// What it asks for.
    pub method: String,
    /// With which parameters.
    pub params: RawJson,
    cancelled: CancellationToken,
    reply: RpcResponder,
}

impl RpcRequest {
    /// Works on it and answers, unless the other side takes it back before.
    pub async fn serve<Working: Future<Output = Result<RawJson, RpcError>>>(
        self,
        work: impl FnOnce(String, RawJson) -> Working,
    ) {
        let Self { method, params, cancelled, reply } = self;
        tokio::select! {
            // What needs no waiting is answered, also to a peer that has just stopped speaking.
            biased;
            outcome = work(method, params) => reply.send(&outcome),
            () = cancelled.cancelled() => {}
        }
    }

    /// Answers it at once.
    pub(crate) fn answer(self, result: RawJson) {
        self.reply.send(&Ok(result));
    }

    /// Answers it with an error at once.
    pub fn refuse(self, fault: RpcError) {
        self.reply.send(&Err(fault));
    }
}

#[derive(Debug)]
struct RpcResponder {
    shared: Weak<RpcState>,
    id: Box<RawValue>,
    answered: bool,
}

impl RpcResponder {
    fn send(mut self, outcome: &Result<RawJson, RpcError>) {
        self.answered = true;
        if let Some(shared) = self.shared.upgrade() {
            shared.incoming().remove(self.id.get());
            shared.answer(&self.id, outcome);
        }
    }
}

impl Drop for RpcResponder {
    fn drop(&mut self) {
        if let (false, Some(shared)) = (self.answered, self.shared.upgrade()) {
            shared.incoming().remove(self.id.get());
            shared.answer(&self.id, &Err(RpcError::told(code::INTERNAL, "nobody waits for this any more")));
        }
    }
}

impl std::fmt::Debug for RpcState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut lines: mpsc::UnboundedReceiver<Vec<u8>>,
    unread: Arc<AtomicUsize>,
) {
    const MOST_AT_ONCE: usize = 64;
    let mut batch = Vec::new();
    while lines.recv_many(&mut batch, MOST_AT_ONCE).await > 0 {
        // What has come together is written together.
        let together = if batch.len() == 1 { batch.remove(0) } else { batch.concat() };
        batch.clear();
        if writer.write_all(&together).await.is_err() || writer.flush().await.is_err() {
            return;
        }
        unread.fetch_sub(together.len(), Ordering::Relaxed);
    }
}

async fn read(
    longest_line: u64,
    reader: impl AsyncRead + Unpin,
    shared: Weak<RpcState>,
    mut heard: impl FnMut(IncomingMessage),
    why_ended: impl Future<Output = String>,
) {
    const CAPACITY: usize = 64 * 1024;
    let mut reader = BufReader::with_capacity(CAPACITY, reader);
    let mut line = Vec::new();
    let reason = loop {
        line.clear();
        line.shrink_to(CAPACITY);
        match (&mut reader).take(longest_line).read_until(b'\n', &mut line).await {
            Ok(_) if line.ends_with(b"\n") => match shared.upgrade() {
                Some(shared) => shared.hear(&line, &mut heard),
                None => return,
            },
            Ok(read) if read as u64 == longest_line => {
                break format!("it sent a message of more than {} MiB", longest_line / 1024 / 1024);
            }
            // A line that the end of the stream cuts short is no message.
            Ok(_) | Err(_) => break why_ended.await,
        }
    };
    if let Some(shared) = shared.upgrade() {
        shared.close(&reason);
    }
}

#[cfg(test)]
mod tests;
