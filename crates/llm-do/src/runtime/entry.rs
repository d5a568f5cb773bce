//! The entry of a program, open for turns: an agent keeps its history between them, a function has none.

use tokio_util::sync::CancellationToken;

use super::input::Input;
use super::scope::{CallScope, OutsideCaller};
use super::{Output, RunError, Runtime};
use crate::event::TraceCall;
use crate::message::Message;
use crate::project::{Entry, EntryFunction};

/// A call of the entry, for one turn or many. Close it when it is done: one that is dropped asks its toolsets to close and
/// does not wait for them.
pub struct EntryCall<'r> {
    runtime: &'r Runtime,
    callee: Callee<'r>,
    /// Of the calls in it, so many were told by [`EntryCall::new_calls`].
    told: usize,
    /// How long the history was before the last turn.
    turn_start: usize,
}

/// Where turns go.
enum Callee<'r> {
    Agent(Box<CallScope<'r>>),
    Function(&'r EntryFunction),
}

impl Runtime {
    /// Opens the entry: the toolsets of an agent are made here.
    pub async fn open_entry(&self) -> Result<EntryCall<'_>, RunError> {
        self.open_entry_for(None).await
    }

    /// The same on behalf of an agent that runs elsewhere: one level deeper than it, and named after it.
    pub async fn open_entry_for(&self, caller: Option<&OutsideCaller>) -> Result<EntryCall<'_>, RunError> {
        let callee = match (&self.program.entry, caller) {
            (Entry::Agent(agent), None) => Callee::Agent(Box::new(self.open(agent).await?)),
            (Entry::Agent(agent), Some(caller)) => Callee::Agent(Box::new(self.open_for_outside(agent, caller).await?)),
            (Entry::Function(function), _) => {
                self.check_prices()?;
                Callee::Function(function)
            }
            (Entry::Open, _) => return Err(RunError::NotStarted),
        };
        Ok(EntryCall { runtime: self, callee, told: 0, turn_start: 0 })
    }
}

impl EntryCall<'_> {
    /// One input → one answer. A failed turn leaves the history as it was; so does one whose future is dropped.
    pub async fn turn(&mut self, input: impl Into<Input>) -> Result<Output, RunError> {
        self.turn_start = self.history().len();
        match &mut self.callee {
            Callee::Agent(scope) => scope.turn(input).await,
            Callee::Function(function) => self.runtime.enter_function(function, input.into()).await,
        }
    }

    /// A turn that ends with [`RunError::Cancelled`] if the token is cancelled before its answer.
    pub async fn turn_until(
        &mut self,
        input: impl Into<Input>,
        cancelled: &CancellationToken,
    ) -> Result<Output, RunError> {
        self.turn_start = self.history().len();
        match &mut self.callee {
            Callee::Agent(scope) => scope.turn_until(input, cancelled.cancelled()).await,
            Callee::Function(function) => tokio::select! {
                biased;
                answer = self.runtime.enter_function(function, input.into()) => answer,
                () = tokio::task::coop::unconstrained(cancelled.cancelled()) => {
                    Err(RunError::Cancelled { partial: String::new() })
                }
            },
        }
    }

    /// What was said so far; of a function, nothing.
    pub fn history(&self) -> &[Message] {
        match &self.callee {
            Callee::Agent(scope) => &scope.frame().history,
            Callee::Function(_) => &[],
        }
    }

    /// What the last turn added to the history: nothing, if it failed.
    pub fn last_turn(&self) -> &[Message] {
        self.history().get(self.turn_start..).unwrap_or_default()
    }

    /// The calls that have ended since this was asked last.
    pub fn new_calls(&mut self) -> Vec<TraceCall> {
        let calls: Vec<TraceCall> = match &self.callee {
            Callee::Agent(scope) => scope.calls_from(self.told),
            Callee::Function(_) => {
                let trace = self.runtime.trace().into_iter().skip(self.told);
                trace.map(std::sync::Arc::unwrap_or_clone).collect()
            }
        };
        self.told += calls.len();
        calls
    }

    /// Closes it, and gives all that was said, with what a failed last turn had come to.
    pub async fn close(self) -> Vec<Message> {
        match self.callee {
            Callee::Agent(scope) => scope.finish().await,
            Callee::Function(_) => Vec::new(),
        }
    }
}
