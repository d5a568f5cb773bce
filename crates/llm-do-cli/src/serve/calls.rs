//! What a client is asked inside a call of ours, and what it asks back from there: each of its requests is served with
//! the context of the call that it names, and ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use llm_do::message::{Content, Message, RawJson};
use llm_do::tools::rpc::{Connection, Fault, Request, code};
use llm_do::tools::{CallContext, ToolError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::order::Order;

/// The methods that belong to a call that is under way.
pub const WITHIN: [&str; 5] = ["call", "call_agent", "tools", "usage", "trace"];

/// The calls that a client works on, by their ids.
#[derive(Debug, Default)]
pub struct Calls {
    open: Mutex<HashMap<String, mpsc::UnboundedSender<Request>>>,
    next: AtomicU64,
}

impl Calls {
    /// Passes a request on to the call that it names.
    pub fn route(&self, request: Request) {
        #[derive(Deserialize)]
        struct Routed {
            call: String,
        }
        let Ok(Routed { call }) = request.params.to() else {
            let words = format!("`{}` needs the `call` that it belongs to", request.method);
            return request.refuse(Fault::told(code::INVALID_PARAMS, words));
        };
        let sender = self.open().get(&call).cloned();
        match sender {
            Some(sender) => drop(sender.send(request)),
            None => request.refuse(Fault::told(code::FAILED, "the call is over: nothing can be called from it")),
        }
    }

    fn begin(self: &Arc<Self>) -> (Begun, mpsc::UnboundedReceiver<Request>) {
        let id = format!("c{}", self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, requests) = mpsc::unbounded_channel();
        self.open().insert(id.clone(), sender);
        (Begun { calls: Arc::clone(self), id }, requests)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, mpsc::UnboundedSender<Request>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Begun {
    calls: Arc<Calls>,
    id: String,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.calls.open().remove(&self.id);
    }
}

/// How much of a call the client's code may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Where it is, not what was said.
    Place,
    Full,
}

/// The way to the code of one client, for one scope.
#[derive(Clone)]
pub struct Caller {
    pub scope: u64,
    pub client: Connection,
    pub calls: Arc<Calls>,
    pub order: Order,
}

#[derive(Serialize)]
struct Question<'a, T> {
    scope: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a str>,
    #[serde(flatten)]
    asked: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Seen<'a>>,
}

/// A call as code sees it.
#[derive(Serialize)]
struct Seen<'a> {
    agent: &'a str,
    depth: usize,
    path: &'a [String],
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [Message]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Value>,
}

impl<'a> Seen<'a> {
    fn of(sight: Sight, cx: &'a CallContext<'a>) -> Self {
        let full = sight == Sight::Full;
        let file = |file: &llm_do::message::Attachment| json!({"name": file.name, "media_type": file.media_type});
        Self {
            agent: cx.agent,
            depth: cx.depth,
            path: cx.path,
            model: cx.model,
            prompt: full.then(|| Content::shown(cx.input)),
            messages: full.then_some(cx.messages),
            attachments: if full { cx.attachments().map(file).collect() } else { Vec::new() },
        }
    }
}

impl Caller {
    /// Asks for something that belongs to no call.
    pub async fn ask(&self, method: &str, asked: impl Serialize) -> Result<RawJson, Fault> {
        self.order.told().await;
        let params = RawJson::of(&Question { scope: self.scope, call: None, asked, context: None });
        self.client.request(method, &params).await
    }

    /// Asks for something inside a call of ours: whatever the client's code calls from there comes through the call's
    /// context. Dropped, the request is taken back.
    pub async fn within(
        &self,
        method: &str,
        asked: impl Serialize,
        sight: Sight,
        cx: &CallContext<'_>,
    ) -> Result<RawJson, ToolError> {
        let (begun, mut requests) = self.calls.begin();
        self.order.told().await;
        let context = Some(Seen::of(sight, cx));
        let params = RawJson::of(&Question { scope: self.scope, call: Some(&begun.id), asked, context });
        let mut answer = std::pin::pin!(self.client.request(method, &params));
        let mut served = FuturesUnordered::new();
        loop {
            tokio::select! {
                answer = &mut answer => return answer.map_err(|fault| ToolError::Failed(fault.to_string())),
                Some(request) = requests.recv() => served.push(serve(request, cx)),
                Some(()) = served.next(), if !served.is_empty() => {}
            }
        }
    }
}

async fn serve(request: Request, cx: &CallContext<'_>) {
    request.serve(|method, params| async move { answer(&method, &params, cx).await }).await;
}

/// What the client's code asks from inside a call.
async fn answer(method: &str, params: &RawJson, cx: &CallContext<'_>) -> Result<RawJson, Fault> {
    #[derive(Deserialize)]
    struct ByName {
        #[serde(alias = "agent", default)]
        name: String,
        #[serde(default)]
        input: Option<RawJson>,
    }
    let malformed = |error: serde_json::Error| Fault::told(code::INVALID_PARAMS, error.to_string());
    let ByName { name, input } = params.to().map_err(malformed)?;
    let input = input.unwrap_or_else(|| RawJson::of(&json!({})));
    let called = match method {
        "call" => cx.call(&name, &input).await,
        "call_agent" => cx.call_agent(&name, &input).await,
        "tools" => return Ok(RawJson::of(&json!({"value": cx.tools()}))),
        "usage" => return Ok(RawJson::of(&json!({"value": cx.usage()}))),
        "trace" => return Ok(RawJson::of(&json!({"value": cx.trace()}))),
        unknown => return Err(Fault::told(code::METHOD_NOT_FOUND, format!("there is no `{unknown}`"))),
    };
    called.map(|content| value_of(&content)).map_err(|error| match error {
        ToolError::Ends(ending) => Fault::told(code::ENDS, ending.to_string()),
        error @ (ToolError::Failed(_) | ToolError::Changed) => Fault::told(code::FAILED, error.to_string()),
    })
}

/// A result as code gets it: text is text, a value a value.
fn value_of(content: &[Content]) -> RawJson {
    let value = match content {
        [Content::Value { json }] => serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.clone())),
        content => Value::String(Content::shown(content)),
    };
    RawJson::of(&json!({"value": value}))
}
