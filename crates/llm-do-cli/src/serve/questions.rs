//! Questions to the client: each is a request of ours, and its answer the client's decision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use llm_do::rpc::{Connection, RpcError, code};
use llm_do::{Answer, ApprovalRequest, RawJson};

use super::protocol::{Approve, Decision};

/// Why the client's side of a question ended a run, in words, since the runtime's own error cannot say it.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is(&self, words: String) -> Answer {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
        Answer::EndRun
    }
}

/// Asks the client.
pub struct ClientApprover {
    pub scope: u64,
    pub connection: Connection,
    /// What the program's rules say of its tools.
    pub descriptions: BTreeMap<String, String>,
    pub trouble: Trouble,
}

impl ClientApprover {
    pub async fn ask(&self, request: &ApprovalRequest) -> Answer {
        let description = self.descriptions.get(&request.tool).map(String::as_str);
        let params = RawJson::of(&Approve::of(self.scope, request, description));
        match self.connection.request("approve", &params).await {
            Ok(decision) => self.decided(&decision),
            // A client that does not know the method, or has gone, cannot be asked: the question stays open.
            Err(RpcError::Told { code: code::METHOD_NOT_FOUND, .. } | RpcError::Gone(_)) => Answer::Later,
            Err(RpcError::Told { message, .. }) => {
                self.trouble.is(format!("the client failed to answer a question: {message}"))
            }
        }
    }

    fn decided(&self, decision: &RawJson) -> Answer {
        let read = decision.to::<Decision>().map_err(|error| error.to_string());
        read.and_then(|decision| decision.answer().map_err(str::to_owned)).unwrap_or_else(|wrong| {
            self.trouble.is(format!("the client's answer to a question cannot be used: {wrong}"))
        })
    }
}
