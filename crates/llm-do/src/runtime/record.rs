//! What a journal knows of a run: what was spent, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::ledger::Cost;
use super::totals::RunTotals;
use super::{Outcome, Output, finish_of};
use crate::event::{CallEnd, CallKind, Event, EventKind, EventLog, Events, Recorder as _};
use crate::journal::record::{JournalContents, JournalEntry, StepProgress};
use crate::journal::{StepKind, StepRecord};
use crate::message::{Message, RawJson, Reply};

/// A finished turn of the entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TurnRecord {
    /// As events show it.
    pub input: RawJson,
    pub output: Output,
    pub messages: Vec<Message>,
}

/// What earlier processes spent in a run. Steps that are answered from the record neither reserve nor settle: parallel
/// agents would overshoot while others are still catching up.
#[derive(Clone, Debug, Default)]
pub struct PriorSpending {
    /// By the keys of model requests.
    spent: BTreeMap<String, Cost>,
    /// Requests within code that was interrupted, and those that gave no reply: nothing in the resumed run tells of them.
    lost: Vec<EventKind>,
}

impl PriorSpending {
    /// Adds up what the journal of the run tells of finished requests, and of those that gave no reply.
    pub fn from(contents: &JournalContents) -> Self {
        let spent = contents.records().filter_map(|(key, record)| match (&record.known, record.kind) {
            (StepProgress::Done(result), StepKind::Model) => {
                let StepRecord { value: reply, told } = result.to::<StepRecord<Reply>>().ok()?;
                // Calls are counted together, when the first of them begins.
                let has_begun = contents.beneath(key).next().is_some();
                let tool_calls = if has_begun { reply.tool_calls().count() as u64 } else { 0 };
                let took = told.events.iter().filter_map(|event| event.kind.usage());
                let cost = took.fold(Cost::default(), |sum, usage| sum.plus(Cost::of(usage)));
                Some((key.to_owned(), Cost { tool_calls, ..cost }))
            }
            (
                StepProgress::Done(_) | StepProgress::Started(_) | StepProgress::Asked(_),
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide | StepKind::Call,
            ) => None,
        });
        let mut spent: BTreeMap<String, Cost> = spent.collect();
        let interrupted: Vec<&str> = contents.records().filter_map(interrupted).collect();
        let beneath = interrupted.into_iter().flat_map(|code| contents.beneath(code));
        let mut lost: Vec<EventKind> = beneath.flat_map(|(_, record)| requests_of(record)).collect();
        for (key, told) in contents.lost() {
            let Ok(EventLog { events, .. }) = told.to() else { continue };
            for kind in events.into_iter().map(|event| event.kind) {
                let cost = kind.usage().map(Cost::of).unwrap_or_default();
                let sum = spent.entry(key.to_owned()).or_default();
                *sum = sum.plus(cost);
                if !is_told(contents, key, &kind) {
                    lost.push(kind);
                }
            }
        }
        Self { spent, lost }
    }

    /// Tells whoever adds up of what nobody else will tell.
    pub(super) fn account_to(&self, session: &RunTotals) {
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
fn interrupted<'a>((key, record): (&'a str, &JournalEntry)) -> Option<&'a str> {
    let has_told =
        |result: &RawJson| result.to::<StepRecord<IgnoredAny>>().is_ok_and(|recorded| !recorded.told.is_empty());
    let is_lost = match &record.known {
        StepProgress::Started(_) => true,
        StepProgress::Done(result) => !has_told(result),
        StepProgress::Asked(_) => false,
    };
    Some(key).filter(|_| is_lost && record.kind == StepKind::Code)
}

/// What was told of the sendings of a request.
fn requests_of(record: &JournalEntry) -> Vec<EventKind> {
    let StepProgress::Done(result) = &record.known else { return Vec::new() };
    let told = (record.kind == StepKind::Model).then(|| result.to::<StepRecord<IgnoredAny>>());
    let events = told.and_then(Result::ok).map(|recorded| recorded.told.events).unwrap_or_default();
    events.into_iter().map(|event| event.kind).filter(|kind| kind.usage().is_some()).collect()
}

/// Whether a call above, which came to its end in the same process, tells of it.
fn is_told(contents: &JournalContents, key: &str, kind: &EventKind) -> bool {
    let tells = |record: &JournalEntry| match &record.known {
        StepProgress::Done(result) => result
            .to::<StepRecord<IgnoredAny>>()
            .is_ok_and(|recorded| recorded.told.events.iter().any(|event| event.kind == *kind)),
        StepProgress::Started(_) | StepProgress::Asked(_) => false,
    };
    contents.above(key).any(tells)
}

/// What a finished run gave, from its journal alone.
pub fn outcome(contents: &JournalContents) -> Option<Outcome> {
    let (key, result) = contents.records().find_map(|(key, record)| match (&record.known, record.kind) {
        (StepProgress::Done(result), StepKind::Call) if key.matches('/').count() == 1 => Some((key, result)),
        (
            StepProgress::Done(_) | StepProgress::Started(_) | StepProgress::Asked(_),
            StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide | StepKind::Call,
        ) => None,
    })?;
    let StepRecord { value: TurnRecord { input, output, messages }, told } = result.to().ok()?;
    let session = Arc::new(RunTotals::default());
    PriorSpending::from(contents).account_to(&session);
    let events = Events::unheard().recorded_by(Arc::clone(&session) as Arc<_>);
    let name = key.split('/').next().unwrap_or_default();
    let entry = events.for_call(&Arc::from(name), 0, events.new_call());
    let kind = if messages.is_empty() { CallKind::Function } else { CallKind::Agent };
    entry.send(|| EventKind::CallStarted { name: name.to_owned(), kind, input, parent: None });
    entry.replay(told);
    let (ended, usage) = (CallEnd::Output(output.told()), session.usage());
    entry.send(|| EventKind::CallFinished { name: name.to_owned(), kind, ended, duration_ms: 0, usage: usage.total });
    let trace = session.trace();
    let refused = session.refused();
    Some(Outcome { refused, output, finish: finish_of(&messages), messages, usage, trace })
}
