//! What a journal knows of a run: what was spent, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::ledger::Cost;
use super::session::Session;
use super::{Outcome, Output, finish_of};
use crate::event::{CallKind, Ended, Event, EventKind, Events, Recorder as _};
use crate::journal::record::{Contents, Known, Record};
use crate::journal::{Recorded, StepKind};
use crate::message::{Message, RawJson, Reply};

/// A finished turn of the entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Turn {
    /// As events show it.
    pub input: RawJson,
    pub output: Output,
    pub messages: Vec<Message>,
}

/// What earlier processes spent in a run. Steps that are answered from the record neither reserve nor settle: parallel
/// agents would overshoot while others are still catching up.
#[derive(Clone, Debug, Default)]
pub struct Resumed {
    /// By the keys of model requests.
    spent: BTreeMap<String, Cost>,
    /// Requests within code that was interrupted: nothing in the resumed run tells of them.
    lost: Vec<EventKind>,
}

impl Resumed {
    pub fn from(contents: &Contents) -> Self {
        let spent = contents.records().filter_map(|(key, record)| match (&record.known, record.kind) {
            (Known::Done(result), StepKind::Model) => {
                let reply = result.to::<Recorded<Reply>>().ok()?.value;
                // Calls are counted together, when the first of them begins.
                let has_begun = contents.beneath(key).next().is_some();
                let tool_calls = if has_begun { reply.tool_calls().count() as u64 } else { 0 };
                Some((key.to_owned(), Cost { tool_calls, ..Cost::of(&reply.usage) }))
            }
            (
                Known::Done(_) | Known::Started(_) | Known::Asked(_),
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide | StepKind::Call,
            ) => None,
        });
        let spent = spent.collect();
        let interrupted: Vec<&str> = contents.records().filter_map(interrupted).collect();
        let beneath = interrupted.into_iter().flat_map(|code| contents.beneath(code));
        Self { spent, lost: beneath.filter_map(|(_, record)| finished_request(record)).collect() }
    }

    /// Tells whoever adds up of what nobody else will tell.
    pub(super) fn account_to(&self, session: &Session) {
        for kind in &self.lost {
            session.record(Event { agent: Arc::from(""), depth: 0, call: 0, kind: kind.clone(), rank: 0 });
        }
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

    /// How often the request of a step was sent.
    pub(super) fn requests_at(&self, key: &str) -> u64 {
        self.spent.get(key).map_or(0, |cost| cost.requests)
    }

    /// Whether calls of the reply to this request had begun.
    pub(super) fn has_begun(&self, request: &str) -> bool {
        self.spent.get(request).is_some_and(|cost| cost.tool_calls > 0)
    }
}

/// The key of code that was interrupted: what it told until then went with it.
fn interrupted<'a>((key, record): (&'a str, &Record)) -> Option<&'a str> {
    let has_told =
        |result: &RawJson| result.to::<Recorded<IgnoredAny>>().is_ok_and(|recorded| !recorded.told.is_empty());
    let is_lost = match &record.known {
        Known::Started(_) => true,
        Known::Done(result) => !has_told(result),
        Known::Asked(_) => false,
    };
    Some(key).filter(|_| is_lost && record.kind == StepKind::Code)
}

fn finished_request(record: &Record) -> Option<EventKind> {
    let Known::Done(result) = record.known.clone() else { return None };
    let told = Some(result).filter(|_| record.kind == StepKind::Model)?.to::<Recorded<IgnoredAny>>().ok()?.told;
    told.events.into_iter().map(|event| event.kind).find(|kind| matches!(kind, EventKind::RequestFinished { .. }))
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
    let Recorded { value: Turn { input, output, messages }, told } = result.to().ok()?;
    let session = Arc::new(Session::default());
    let events = Events::unheard().recorded_by(Arc::clone(&session) as Arc<_>);
    let name = key.split('/').next().unwrap_or_default();
    let entry = events.for_call(&Arc::from(name), 0, events.new_call());
    let kind = if messages.is_empty() { CallKind::Function } else { CallKind::Agent };
    entry.send(|| EventKind::CallStarted { name: name.to_owned(), kind, input, parent: None });
    entry.retell(told);
    let (ended, usage) = (Ended::Output(output.told()), session.usage());
    entry.send(|| EventKind::CallFinished { name: name.to_owned(), kind, ended, duration_ms: 0, usage: usage.total });
    let trace = session.trace();
    Some(Outcome { output, finish: finish_of(&messages), messages, usage, trace })
}
