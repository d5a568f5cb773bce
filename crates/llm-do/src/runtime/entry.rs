//! The entry of a program, open for turns: an agent keeps its history between them, a function has none.

use tokio_util::sync::CancellationToken;

use super::function::FunctionTurns;
use super::input::{Input, InputError};
use super::scope::{CallScope, OutsideCaller, RestoredTurns};
#[cfg(feature = "front-end")]
use super::scope::{Steering, TurnKeeping, UndoneTurn};
use super::{Output, RunError, Runtime};
use crate::BoxFuture;
use crate::dormant::dormant;
use crate::event::TraceCall;
use crate::message::{Content, Message};
#[cfg(feature = "front-end")]
use crate::model::name::ModelName;
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
    /// The message of a turn that another process did not finish.
    unfinished: Option<Vec<Content>>,
}

/// Where turns go.
enum Callee<'r> {
    Agent(Box<CallScope<'r>>),
    Function(&'r EntryFunction, FunctionTurns),
}

impl Runtime {
    /// Opens the entry: the toolsets of an agent are made here.
    pub async fn open_entry(&self) -> Result<EntryCall<'_>, RunError> {
        self.open_entry_for(None).await
    }

    /// The same with a conversation that began elsewhere, such as one that a program kept. Every tool call in it must have
    /// its result. A recorded run keeps it as its beginning. A function has no conversation, and takes none.
    pub async fn open_entry_with(&self, history: Vec<Message>) -> Result<EntryCall<'_>, RunError> {
        let mut entry = self.open_entry().await?;
        entry.begin_with(history).await?;
        Ok(entry)
    }

    /// The same on behalf of an agent that runs elsewhere: one level deeper than it, and named after it.
    pub async fn open_entry_for(&self, caller: Option<&OutsideCaller>) -> Result<EntryCall<'_>, RunError> {
        let callee = match (&self.program.entry, caller) {
            (Entry::Agent(agent), None) => Callee::Agent(Box::new(self.open(agent).await?)),
            (Entry::Agent(agent), Some(caller)) => Callee::Agent(Box::new(self.open_for_outside(agent, caller).await?)),
            (Entry::Function(function), _) => {
                self.check_prices()?;
                Callee::Function(function, FunctionTurns::default())
            }
            (Entry::Open, _) => return Err(RunError::NotStarted),
        };
        Ok(EntryCall { runtime: self, callee, told: 0, turn_start: 0, unfinished: None })
    }
}

impl EntryCall<'_> {
    /// Begins the conversation with what was said elsewhere, before the first turn, as [`Runtime::open_entry_with`] does.
    pub async fn begin_with(&mut self, history: Vec<Message>) -> Result<(), RunError> {
        match &mut self.callee {
            Callee::Agent(scope) => scope.begin_with(history).await?,
            Callee::Function(..) if history.is_empty() => {}
            Callee::Function(..) => return Err(InputError::NoHistory.into()),
        }
        self.turn_start = self.history().len();
        Ok(())
    }

    /// Takes over the turns that the record of the run has, before the first turn here: those that were finished are in
    /// the history as they were, their events are told again, and the next turn has the next number. Nothing is asked again,
    /// and nothing is compared with the project of today. A function remembers nothing, so nothing of it is taken over; its next
    /// turn has the next number, and one that was cut off is not finished.
    pub fn restore(&mut self) -> Result<RestoredTurns, RunError> {
        let scope = match &mut self.callee {
            Callee::Agent(scope) => scope,
            Callee::Function(_, turns) => {
                turns.restores = true;
                return Ok(RestoredTurns::default());
            }
        };
        let restored = scope.restore()?;
        self.unfinished.clone_from(&restored.unfinished);
        self.turn_start = scope.frame().history.len();
        Ok(restored)
    }

    /// Goes on with the turn that [`EntryCall::restore`] found unfinished; `None` if there is none, or another turn was
    /// taken since. What it had done is answered from the record, and compared with what would be done now.
    pub async fn finish_turn(&mut self, cancelled: &CancellationToken) -> Option<Result<Output, RunError>> {
        let message = self.unfinished.take()?;
        let Callee::Agent(scope) = &mut self.callee else { return None };
        self.turn_start = scope.frame().history.len();
        Some(scope.finish_turn_until(message, cancelled.cancelled()).await)
    }

    /// Whether turns that come to no answer stay in the conversation: as long as `keeps` says so. One that does not stay is
    /// left open in the record of the run, where it can be finished.
    #[cfg(feature = "front-end")]
    pub fn keep_turns_while(&mut self, keeps: std::sync::Arc<std::sync::atomic::AtomicBool>) {
        if let Callee::Agent(scope) = &mut self.callee {
            scope.keep_turns(TurnKeeping::While(keeps));
        }
    }

    /// From now on a turn hears what is said there while it goes on, before its next model request. A function hears nothing.
    #[cfg(feature = "front-end")]
    pub fn hear_from(&mut self, steering: std::sync::Arc<Steering>) {
        if let Callee::Agent(scope) = &mut self.callee {
            scope.hear_from(steering);
        }
    }

    /// Whether the last turn came to no answer and stays in the conversation all the same.
    #[cfg(feature = "front-end")]
    pub fn is_interrupted(&self) -> bool {
        match &self.callee {
            Callee::Agent(scope) => scope.is_interrupted(),
            Callee::Function(..) => false,
        }
    }

    /// One input → one answer. Of a turn that is cancelled, or fails after the model has replied, what was said and done stays
    /// in the history: every call has a result, and the next message tells the model. Any other turn that fails leaves the
    /// history as it was, and so does one whose future is dropped.
    pub async fn turn(&mut self, input: impl Into<Input>) -> Result<Output, RunError> {
        self.turn_start = self.history().len();
        self.unfinished = None;
        match &mut self.callee {
            Callee::Agent(scope) => scope.turn(input).await,
            Callee::Function(function, turns) => self.runtime.enter_function(function, input.into(), turns).await,
        }
    }

    /// A turn that ends with [`RunError::Cancelled`] if the token is cancelled before its answer.
    pub async fn turn_until(
        &mut self,
        input: impl Into<Input>,
        cancelled: &CancellationToken,
    ) -> Result<Output, RunError> {
        self.cancellable_turn(input.into(), cancelled).await
    }

    /// Boxed, so that its code is made here and not by every crate that takes turns: it is gone through whenever a piece
    /// of an answer has come.
    #[inline(never)]
    fn cancellable_turn<'a>(
        &'a mut self,
        input: Input,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Output, RunError>> {
        self.turn_start = self.history().len();
        self.unfinished = None;
        let runtime = self.runtime;
        match &mut self.callee {
            Callee::Agent(scope) => Box::pin(scope.turn_until(input, cancelled.cancelled())),
            Callee::Function(function, turns) => Box::pin(async move {
                tokio::select! {
                    biased;
                    answer = runtime.enter_function(function, input, turns) => answer,
                    () = dormant(tokio::task::coop::unconstrained(cancelled.cancelled())) => {
                        Err(RunError::Cancelled { partial: String::new() })
                    }
                }
            }),
        }
    }

    /// Forgets the last turn: the conversation is as it was before it, and what its calls have done stays done. `None` if there
    /// is no turn, or a function was called. A recorded run remembers it.
    #[cfg(feature = "front-end")]
    pub async fn undo(&mut self) -> Result<Option<UndoneTurn>, RunError> {
        self.unfinished = None;
        let Callee::Agent(scope) = &mut self.callee else { return Ok(None) };
        let undone = scope.undo().await?;
        self.turn_start = scope.frame().history.len();
        Ok(undone)
    }

    /// Leaves old turns out of later requests: a summary of them stands for them, in which what is about `focus` is kept above
    /// all. `None` if there is nothing to leave out; else how many tokens the next request had and has now, about.
    #[cfg(feature = "front-end")]
    pub async fn compact(&mut self, focus: Option<String>) -> Result<Option<(u64, u64)>, RunError> {
        match &mut self.callee {
            Callee::Agent(scope) => scope.compact(focus).await,
            Callee::Function(..) => Err(RunError::NoAgent { reason: "a function has no conversation".to_owned() }),
        }
    }

    /// The next turns ask another model, which a recorded run remembers. A function has none.
    #[cfg(feature = "front-end")]
    pub async fn change_model(&mut self, model: ModelName) -> Result<(), RunError> {
        match &mut self.callee {
            Callee::Agent(scope) => scope.change_model(model).await,
            Callee::Function(..) => Err(RunError::NoAgent { reason: "a function asks no model".to_owned() }),
        }
    }

    /// The model that the next turn asks; of a function, none.
    #[cfg(feature = "front-end")]
    pub fn model(&self) -> Option<&ModelName> {
        match &self.callee {
            Callee::Agent(scope) => Some(scope.model()),
            Callee::Function(..) => None,
        }
    }

    /// What was said so far; of a function, nothing.
    pub fn history(&self) -> &[Message] {
        match &self.callee {
            Callee::Agent(scope) => &scope.frame().history,
            Callee::Function(..) => &[],
        }
    }

    /// What the last turn added to the history: nothing, if it was taken back.
    #[cfg(feature = "front-end")]
    pub fn last_turn(&self) -> &[Message] {
        self.history().get(self.turn_start..).unwrap_or_default()
    }

    /// The calls that have ended since this was asked last.
    pub fn new_calls(&mut self) -> Vec<TraceCall> {
        let calls: Vec<TraceCall> = match &self.callee {
            Callee::Agent(scope) => scope.calls_from(self.told),
            Callee::Function(..) => {
                let trace = self.runtime.trace().into_iter().skip(self.told);
                trace.map(std::sync::Arc::unwrap_or_clone).collect()
            }
        };
        self.told += calls.len();
        calls
    }

    /// Closes it, and gives all that was said, with what a last turn had come to that was taken back.
    pub async fn close(self) -> Vec<Message> {
        match self.callee {
            Callee::Agent(scope) => scope.finish().await,
            Callee::Function(..) => Vec::new(),
        }
    }
}
