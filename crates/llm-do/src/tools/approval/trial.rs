//! Arguments that a person considers for a call: what would be asked about them is known before they are an answer.

use std::fmt;

use tokio::sync::{mpsc, oneshot};

use super::{ApprovalRequest, Question, Ruling, Verdict};
use crate::message::RawJson;

/// The way from an open question to whoever judges its call. It leads nowhere once the question is answered.
#[derive(Clone, Default)]
pub struct Trials(
    #[cfg_attr(not(feature = "front-end"), expect(dead_code, reason = "only a front end considers other arguments"))]
    Option<mpsc::UnboundedSender<Trial>>,
);

/// Arguments that wait to be judged.
pub(super) struct Trial {
    pub arguments: RawJson,
    judged: oneshot::Sender<Result<Question, String>>,
}

impl Trials {
    pub(super) fn open() -> (Self, mpsc::UnboundedReceiver<Trial>) {
        let (sender, trials) = mpsc::unbounded_channel();
        (Self(Some(sender)), trials)
    }
}

impl Trial {
    /// Tells how the arguments were judged.
    pub(super) fn settle(self, ruling: Result<Ruling, String>) {
        let judged = match ruling.map(|ruling| ruling.verdict) {
            Err(reason) | Ok(Verdict::Block(reason) | Verdict::Fail(reason)) => Err(reason),
            Ok(Verdict::Allow) => Ok(Question::because("nothing else asks about it")),
            Ok(Verdict::Ask(question) | Verdict::AskAnyway(question) | Verdict::AlwaysAsk(question)) => Ok(question),
        };
        // Whoever wanted to know may have gone.
        let _ = self.judged.send(judged);
    }
}

impl ApprovalRequest {
    /// What would be asked about this call with other arguments, or why it could not be made. Nothing is answered by it.
    #[cfg(feature = "front-end")]
    pub async fn with_arguments(&self, arguments: RawJson) -> Result<Question, String> {
        const CLOSED: &str = "the question is not open any more";
        let (judged, answer) = oneshot::channel();
        let sender = self.trials.0.as_ref().ok_or(CLOSED)?;
        sender.send(Trial { arguments, judged }).map_err(|_| CLOSED)?;
        answer.await.unwrap_or_else(|_| Err(CLOSED.to_owned()))
    }
}

/// A way is no part of what is asked.
impl PartialEq for Trials {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trials")
    }
}
