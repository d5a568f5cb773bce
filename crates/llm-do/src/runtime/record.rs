//! What a journal knows of a run: what was spent, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ledger::Cost;
use super::session::Session;
use super::{Outcome, Output};
use crate::event::{CallKind, Ended, EventKind, Events};
use crate::journal::record::{Contents, Known};
use crate::journal::{Recorded, StepKind};
use crate::message::{Message, RawJson, Reply};

/// A finished turn of the entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Turn {
    pub output: Output,
    pub messages: Vec<Message>,
}

/// What earlier processes spent in a run. Steps that are answered from the record neither reserve nor settle: parallel
/// agents would overshoot while others are still catching up.
#[derive(Clone, Debug, Default)]
pub struct Resumed {
    /// By the keys of model requests.
    spent: BTreeMap<String, Cost>,
}

impl Resumed {
    pub fn from(contents: &Contents) -> Self {
        let spent = contents.records().filter_map(|(key, record)| match (&record.known, record.kind) {
            (Known::Done(result), StepKind::Model) => {
                let reply = result.to::<Recorded<Reply>>().ok()?.value;
                // Calls are counted together, when the first of them begins.
                let has_begun = contents.beneath(key).next().is_some();
                let tool_calls = if has_begun { reply.tool_calls().count() as u64 } else { 0 };
                Some((key.to_owned(), Cost { tool_calls, ..Cost::of_reply(&reply.usage) }))
            }
            (
                Known::Done(_) | Known::Started(_) | Known::Asked(_),
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide | StepKind::Call,
            ) => None,
        });
        Self { spent: spent.collect() }
    }

    pub(super) fn total(&self) -> Cost {
        self.spent.values().fold(Cost::default(), |sum, cost| sum.plus(*cost))
    }

    pub(super) fn spent_beneath(&self, key: &str) -> Cost {
        if self.spent.is_empty() {
            return Cost::default();
        }
        let prefix = format!("{key}/");
        let beneath = self.spent.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        beneath.fold(Cost::default(), |sum, (_, cost)| sum.plus(*cost))
    }

    /// Whether calls of the reply to this request had begun.
    pub(super) fn has_begun(&self, request: &str) -> bool {
        self.spent.get(request).is_some_and(|cost| cost.tool_calls > 0)
    }
}

/// What a finished run gave, from its journal alone.
pub fn outcome(contents: &Contents) -> Option<Outcome> {
    let (key, result) = contents.records().find_map(|(key, record)| match (&record.known, record.kind) {
        (Known::Done(result), StepKind::Call) if key.matches('/').count() == 1 => Some((key, result)),
        (
            Known::Done(_) | Known::Started(_) | Known::Asked(_),
            StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide | StepKind::Call,
        ) => None,
    })?;
    let Recorded { value: Turn { output, messages }, told } = result.to().ok()?;
    let session = Arc::new(Session::default());
    let events = Events::unheard().recorded_by(Arc::clone(&session) as Arc<_>);
    let name = key.split('/').next().unwrap_or_default();
    let entry = events.for_call(&Arc::from(name), 0, events.new_call());
    let input = RawJson::of(&told.events.iter().find_map(|event| match &event.kind {
        EventKind::UserMessage { text } => Some(text.clone()),
        _ => None,
    }));
    let kind = if messages.is_empty() { CallKind::Function } else { CallKind::Agent };
    entry.send(|| EventKind::CallStarted { name: name.to_owned(), kind, input, parent: None });
    entry.retell(told);
    let (ended, usage) = (Ended::Output(output.to_json()), session.usage());
    entry.send(|| EventKind::CallFinished { name: name.to_owned(), kind, ended, duration_ms: 0, usage: usage.total });
    let trace = session.trace();
    Some(Outcome { output, messages, usage, trace })
}
