//! The model requests that a journal tells of, and what each of them took.

use std::sync::Arc;

use serde::de::IgnoredAny;

use super::record::{JournalContents, JournalEntry, StepProgress};
use super::{StepKind, StepRecord, telling};
use crate::event::{Event, EventKind, EventLog};
use crate::message::Usage;

/// A model request that a journal tells of, once for each time that it was sent and counts.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRequest {
    /// The key of its step.
    pub key: String,
    /// When that was recorded, in milliseconds since 1970.
    pub at: u64,
    /// Who asked.
    pub agent: Arc<str>,
    /// Who was asked.
    pub model: String,
    /// What it took.
    pub usage: Usage,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// The model requests that a journal tells of, in the order of their keys; those that gave no reply are the last.
pub fn requests(contents: &JournalContents) -> Vec<RecordedRequest> {
    let models = contents.records().filter(|(_, record)| record.kind == StepKind::Model);
    let answered = models.map(|(key, record)| (key, record.at, told_at(key, record, contents)));
    let lost = contents.lost().iter().filter_map(|lost| Some((lost.key.as_str(), lost.at, lost.told.to().ok()?)));
    let sent = |(key, at, log): (&str, u64, EventLog)| {
        let key = key.to_owned();
        log.events.into_iter().filter_map(move |Event { agent, kind, .. }| match kind {
            EventKind::RequestFinished { model, usage, duration_ms, .. }
            | EventKind::RequestFailed { model, usage, duration_ms, .. } => {
                Some(RecordedRequest { key: key.clone(), at, agent, model, usage, duration_ms })
            }
            _ => None,
        })
    };
    answered.chain(lost).flat_map(sent).collect()
}

/// All that was told during a step that is done.
pub(crate) fn told_at(key: &str, record: &JournalEntry, contents: &JournalContents) -> EventLog {
    let StepProgress::Done(result) = &record.known else { return EventLog::default() };
    let recorded = result.to::<StepRecord<IgnoredAny>>().ok();
    recorded.and_then(|recorded| telling::told(key, &recorded.told, contents).ok()).unwrap_or_default()
}
