//! MCP on stdin and stdout: one message per line, both ways. A connection has a handshake or not, as its client likes: each
//! request of the newest revision says so itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llm_do::rpc::{Connection, IncomingMessage, RpcError, code};
use llm_do::{BoxFuture, RawJson};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::answered;
use super::call::{Calls, ClientWire, McpCaller};
use super::protocol::{self, McpClient, invalid};
use crate::console::{LAST_WORDS, StdoutReader};
use crate::failure::Failure;
use crate::signals::{Signals, StopReason};

/// How long requests may take to be answered once every run is left.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

struct StdioDesk {
    calls: Arc<Calls>,
    client: Connection,
    /// Who shook hands.
    introduced: Mutex<Option<McpClient>>,
}

impl ClientWire for StdioDesk {
    fn tell(&self, method: &str, params: Value) {
        self.client.notify(method, &RawJson::of(&params));
    }

    fn ask<'a>(&'a self, method: &'a str, params: Value) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move {
            let answer = self.client.request(method, &RawJson::of(&params)).await.map_err(|error| error.to_string())?;
            answer.to().map_err(|error| error.to_string())
        })
    }
}

impl StdioDesk {
    async fn answer(&self, method: &str, params: RawJson) -> Result<RawJson, RpcError> {
        let params: Value = params.to().map_err(|error| invalid(error.to_string()))?;
        let of_request = McpClient::of_request(&params)?;
        if of_request.is_none() && method == "initialize" {
            let client = McpClient::introduced(&params);
            *self.introduced.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
            return Ok(RawJson::of(&protocol::initialized(&params)));
        }
        if of_request.is_none() && method == "server/discover" {
            return Err(invalid(format!("`_meta` lacks `{}`", protocol::VERSION_KEY)));
        }
        let introduced = || self.introduced.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let client = of_request.or_else(introduced).unwrap_or_else(McpClient::silent);
        let principal = format!("stdio {}", self.calls.runs.host.user);
        let caller = McpCaller { client, principal, may_answer: true, wire: self };
        answered(&self.calls, method, &params, &caller).await.map(|result| RawJson::of(&result))
    }

    fn hear(self: &Arc<Self>, message: IncomingMessage, tasks: &mut JoinSet<()>) {
        match message {
            IncomingMessage::Request(request) => {
                let desk = Arc::clone(self);
                tasks.spawn(async move {
                    // Boxed: what works on a call is a large future.
                    request.serve(|method, params| async move { Box::pin(desk.answer(&method, params)).await }).await;
                });
            }
            IncomingMessage::Notification { .. } => {}
            IncomingMessage::Noise(line) => {
                let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok();
                self.client.complain(if is_json {
                    RpcError::told(
                        code::INVALID_REQUEST,
                        "this is no request, notification or answer; batches are not taken",
                    )
                } else {
                    RpcError::told(code::PARSE, "this line is not JSON")
                });
            }
        }
    }
}

/// Serves until the client leaves or a signal comes; then every run is left.
pub async fn serve(calls: Arc<Calls>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let (heard, mut incoming) = mpsc::unbounded_channel();
    let (present, mut gone) = oneshot::channel::<()>();
    let (answers, mut said) = tokio::io::duplex(64 * 1024);
    let writing = tokio::spawn(async move { tokio::io::copy(&mut said, &mut tokio::io::stdout()).await });
    let left = async move {
        drop(present);
        "the client left".to_owned()
    };
    let take_back = |id: u64| ("notifications/cancelled", RawJson::of(&json!({"requestId": id})));
    let hear = move |message| drop(heard.send(message));
    let client = Connection::open(tokio::io::stdin(), answers, take_back, hear, left);
    let desk = Arc::new(StdioDesk { calls: Arc::clone(&calls), client, introduced: Mutex::default() });
    let mut tasks = JoinSet::new();
    let reader = StdoutReader::of_stdout();
    let stopped = loop {
        tokio::select! {
            biased;
            signal = signals.next() => break Some(signal.stops()),
            () = reader.gone() => break Some(StopReason::Unread),
            Some(message) = incoming.recv() => desk.hear(message, &mut tasks),
            _ = &mut gone => break None,
            Some(_) = tasks.join_next() => {}
        }
    };
    let ending = async {
        calls.runs.leave().await;
        // The answers of calls that ended now.
        let _ = tokio::time::timeout(LAST_ANSWERS, async { while tasks.join_next().await.is_some() {} }).await;
        tasks.shutdown().await;
        drop(desk);
        // A client that does not read must not keep this process from ending.
        let _ = tokio::time::timeout(LAST_WORDS, writing).await;
    };
    tokio::select! {
        () = ending => {}
        _ = signals.next() => {}
    }
    match stopped {
        Some(stopped) => Err(stopped.failure()),
        None if reader.has_gone() => Err(StopReason::Unread.failure()),
        None => Ok(()),
    }
}
