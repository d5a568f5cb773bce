//! What a person says while a turn goes on. It waits until the entry asks its model next, and stands before that request as a
//! message of its own; it is a step, so that whoever goes on with the run later finds it there.

use std::collections::VecDeque;
#[cfg(feature = "front-end")]
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::CallScope;
use crate::event::Derivation;
use crate::journal::call::of_input;
use crate::journal::{Prior, StepDescription, StepKind, Steps};
use crate::message::{Content, Message, RawJson, UserMessage};
use crate::runtime::RunError;
use crate::runtime::record::TurnMessage;

/// Where a front end puts what is said while a turn goes on, for the turn to hear before its next model request.
#[derive(Debug, Default)]
pub struct Steering(Mutex<VecDeque<String>>);

/// What identifies the step: what is said follows from nothing that the record has.
const REQUEST: &str = "heard";

impl Steering {
    /// Says something to the turn that goes on.
    #[cfg(feature = "front-end")]
    pub fn say(&self, text: impl Into<String>) {
        self.waiting().push_back(text.into());
    }

    /// What no turn has heard, in the order in which it was said. To be asked between two turns: then nobody hears it any more.
    #[cfg(feature = "front-end")]
    pub fn take_unheard(&self) -> Vec<String> {
        self.waiting().drain(..).collect()
    }

    // A panic elsewhere leaves the texts whole.
    fn waiting(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn texts(&self) -> Vec<String> {
        self.waiting().iter().cloned().collect()
    }

    fn forget(&self, count: usize) {
        let mut waiting = self.waiting();
        let count = count.min(waiting.len());
        waiting.drain(..count);
    }

    /// The turn that had heard it is taken back.
    fn take_back(&self, texts: Vec<String>) {
        let mut waiting = self.waiting();
        texts.into_iter().rev().for_each(|text| waiting.push_front(text));
    }
}

impl CallScope<'_> {
    /// From now on its turns hear what is said there.
    #[cfg(feature = "front-end")]
    pub(in crate::runtime) fn hear_from(&mut self, steering: Arc<Steering>) {
        self.steering = Some(steering);
    }

    /// Whether a request comes next, and something may have been said before it. What is recorded counts without anybody who listens.
    pub(super) fn may_hear(&self) -> bool {
        // A model that has paused is asked to go on with what it was saying.
        let is_asked_anew = !matches!(self.frame.history.last(), Some(Message::Assistant(_)));
        let is_said = || self.steering.as_ref().is_some_and(|steering| !steering.waiting().is_empty());
        self.is_entry() && is_asked_anew && (self.steps.has_past() || is_said())
    }

    /// Takes what was said until now as a message, unless the record has the next request without it.
    pub(super) async fn hear(&mut self) -> Result<(), RunError> {
        let request = self.turn_steps().at(format_args!("m{}", self.requests));
        let place = request.at(format_args!("heard"));
        let is_recorded = has_result(&place, StepKind::Decide);
        let steering = self.steering.clone();
        let said = steering.as_ref().map(|steering| steering.texts()).unwrap_or_default();
        if !is_recorded && (said.is_empty() || has_result(&request, StepKind::Model)) {
            return Ok(());
        }
        let events = self.events.clone();
        let telling = place.telling(&events);
        let effect = async { Ok::<_, RunError>(said.iter().map(Content::text).collect::<Vec<_>>()) };
        let parts = place.run(|| StepDescription::new(StepKind::Decide, &REQUEST), &telling, effect).await?;
        events.send_of(telling.origin(), || Derivation::Heard, || of_input(&parts));
        if let (false, Some(steering)) = (is_recorded, &steering) {
            // Only now: a turn that was stopped in between has not heard it.
            steering.forget(said.len());
            if let Some(turn) = &mut self.turn {
                turn.heard.extend(said);
            }
        }
        self.push(Message::User(UserMessage { parts }), TurnMessage::Heard(self.requests));
        Ok(())
    }

    /// What a turn had heard that leaves no trace is unheard again.
    pub(super) fn unhear(&self, heard: Vec<String>) {
        if let Some(steering) = self.steering.as_ref().filter(|_| !heard.is_empty()) {
            steering.take_back(heard);
        }
    }
}

/// Whether the record has the result of a step. A record that runs nothing has all that there is.
fn has_result(place: &Steps, kind: StepKind) -> bool {
    match place.prior(kind, || RawJson::of(&REQUEST)) {
        Prior::Done => true,
        Prior::Replayed(result) => result.is_some() || kind == StepKind::Model,
        Prior::Nothing | Prior::Asked(_) | Prior::Begun => false,
    }
}
