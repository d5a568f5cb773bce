//! Questions to the client: each is a request of ours, and its answer the client's decision.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Nobody is there who could answer.
struct ClientGone;

/// One question that the client was asked.
struct AskedClient<'a>(Option<&'a AtomicUsize>);

impl<'a> AskedClient<'a> {
    fn new(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(Some(open))
    }

    /// It waits for somebody else.
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for AskedClient<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0 {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Asks the client.
pub struct ClientApprover {
    pub scope: u64,
    pub connection: Connection,
    /// What the program's rules say of its tools.
    pub descriptions: BTreeMap<String, String>,
    pub trouble: Trouble,
    /// Whether somebody else may answer later.
    pub is_kept: bool,
    /// How many questions the client has heard and not answered.
    pub open: Arc<AtomicUsize>,
}

impl ClientApprover {
    /// A question that is given up is not asked any more; one whose client is gone stays open.
    pub async fn ask(&self, request: &ApprovalRequest) -> Answer {
        let asked = AskedClient::new(&self.open);
        let answer = self.put(request).await;
        if let Err(ClientGone) = answer {
            asked.stays();
        }
        answer.unwrap_or(if self.is_kept { Answer::Later } else { Answer::EndRun })
    }

    async fn put(&self, request: &ApprovalRequest) -> Result<Answer, ClientGone> {
        let description = self.descriptions.get(&request.tool).map(String::as_str);
        let params = RawJson::of(&Approve::of(self.scope, request, description));
        Ok(match self.connection.request("approve", &params).await {
            Ok(decision) => self.decided(&decision, request),
            // A client that does not know the method cannot be asked, so the question stays open.
            Err(RpcError::Told { code: code::METHOD_NOT_FOUND, .. }) => Answer::Later,
            Err(RpcError::Told { message, .. }) => {
                self.trouble.is(format!("the client failed to answer a question: {message}"))
            }
            Err(RpcError::Gone(_)) => return Err(ClientGone),
        })
    }

    fn decided(&self, decision: &RawJson, request: &ApprovalRequest) -> Answer {
        let read = decision.to::<Decision>().map_err(|error| error.to_string());
        let answer = read.and_then(|decision| decision.answer_to(|values| request.answer_by_values(values)));
        answer.unwrap_or_else(|wrong| {
            self.trouble.is(format!("the client's answer to a question cannot be used: {wrong}"))
        })
    }
}
