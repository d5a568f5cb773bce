//! What a client is asked inside a call of ours, and what it asks back from there: each of its requests is served with
//! the context of the call that it names, and ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llm_do::{CallContext, Content, Message, RawJson, ToolError, rpc};
use llm_do::rpc::{CallView, Connection, RpcError, RpcRequest, Sight, code};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::order::EventBarrier;

/// The calls that a client works on, by their ids.
#[derive(Debug, Default)]
pub struct ClientCalls {
    open: Mutex<HashMap<String, mpsc::UnboundedSender<RpcRequest>>>,
    next: AtomicU64,
}

impl ClientCalls {
    /// Passes a request on to the call that it names.
    pub fn route(&self, request: RpcRequest) {
        #[derive(Deserialize)]
        struct ClientCallReference {
            call: String,
        }
        let Ok(ClientCallReference { call }) = request.params.to() else {
            let words = format!("`{}` needs the `call` that it belongs to", request.method);
            return request.refuse(RpcError::told(code::INVALID_PARAMS, words));
        };
        let sender = self.open().get(&call).cloned();
        match sender {
            Some(sender) => drop(sender.send(request)),
            None => request.refuse(RpcError::told(code::FAILED, "the call is over: nothing can be called from it")),
        }
    }

    fn begin(self: &Arc<Self>) -> (OpenClientCall, mpsc::UnboundedReceiver<RpcRequest>) {
        let id = format!("c{}", self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, requests) = mpsc::unbounded_channel();
        self.open().insert(id.clone(), sender);
        (OpenClientCall { calls: Arc::clone(self), id }, requests)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, mpsc::UnboundedSender<RpcRequest>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OpenClientCall {
    calls: Arc<ClientCalls>,
    id: String,
}

impl Drop for OpenClientCall {
    fn drop(&mut self) {
        self.calls.open().remove(&self.id);
    }
}

/// The way to the code of one client, for one scope.
#[derive(Clone)]
pub struct ClientCaller {
    pub scope: u64,
    pub client: Connection,
    pub calls: Arc<ClientCalls>,
    pub order: EventBarrier,
}

#[derive(Serialize)]
struct ClientQuery<'a, T> {
    scope: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a str>,
    #[serde(flatten)]
    asked: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<CallView<'a, &'a [Message]>>,
}

impl ClientCaller {
    /// Asks for something that belongs to no call.
    pub async fn ask(&self, method: &str, asked: impl Serialize) -> Result<RawJson, RpcError> {
        self.order.told().await;
        let params = RawJson::of(&ClientQuery { scope: self.scope, call: None, asked, context: None });
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
        let (begun, requests) = self.calls.begin();
        self.order.told().await;
        let context = Some(CallView::of(sight, cx, |messages| messages));
        let params = RawJson::of(&ClientQuery { scope: self.scope, call: Some(&begun.id), asked, context });
        let answer = self.client.request(method, &params);
        let given = |content: &[Content], _: Option<&str>| rpc::value_of(content);
        let answer = rpc::while_serving(answer, requests, cx, given).await;
        answer.map_err(|fault| ToolError::Failed(fault.to_string()))
    }
}
