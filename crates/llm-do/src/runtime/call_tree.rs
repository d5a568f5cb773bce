//! The calls of a run as its journal tells of them, finished or not: who called whom, with which key, what was answered
//! about it, what became of it, and what it took. Pure.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::event::{CallKind, EventKind};
use crate::journal::call::{CallOutcome, CallRecord, call_of, reply_at, value_at};
use crate::journal::record::{JournalContents, JournalEntry, StepProgress, turn_number};
use crate::journal::requests::{RecordedRequest, requests, told_at};
use crate::journal::{StepKind, StepRecord};
use crate::message::{Content, RawJson, Reply, ToolCall, Usage};
use crate::tools::approval::{Answer, JudgementRecord, RecordedAnswer};
use crate::tools::plane::InDoubt;

/// One call of a run, with the calls that it made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecordedCall {
    /// Where it stands in the run.
    pub key: String,
    /// What was called.
    pub name: String,
    /// What kind of thing that is.
    pub kind: CallKind,
    /// What it was called with, if that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<RawJson>,
    /// How it was judged, as far as that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<JudgementRecord>,
    /// What a person answered about it, if one was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<CallAnswer>,
    /// How far it has come.
    pub state: CallState,
    /// Why it failed or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it took, in milliseconds, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What its requests took, and those of the calls in it.
    pub usage: Usage,
    /// The calls that it made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RecordedCall>,
}

/// What was answered to the question about a call, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallAnswer {
    /// Yes or no.
    pub is_approved: bool,
    /// The user, if that is known.
    pub by: Option<String>,
}

/// How far a call has come. As JSON its name in small letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It has its result.
    Done,
    /// Its result is an error.
    Failed,
    /// It reached no tool.
    Refused,
    /// A question about it is open.
    Waits,
    /// It began, must not be repeated, and has no result.
    InDoubt,
    /// It has not ended.
    Open,
}

/// The turns of the entry, each a call, with all that was called in them.
pub fn calls(contents: &JournalContents) -> Vec<RecordedCall> {
    calls_of(contents, &requests(contents))
}

/// The same for whoever has its requests already.
pub fn calls_of(contents: &JournalContents, requests: &[RecordedRequest]) -> Vec<RecordedCall> {
    let Some(entry) = contents.entry() else { return Vec::new() };
    let tree = CallPlaces::of(contents, entry, requests);
    let turns = contents.turns().into_iter().map(|(number, _)| format!("{entry}/t{number}"));
    turns.map(|key| tree.turn(entry, key)).collect()
}

/// Where calls stand, and what was used there.
struct CallPlaces<'a> {
    contents: &'a JournalContents,
    /// The calls that a call made, by its key.
    beneath: BTreeMap<&'a str, Vec<&'a str>>,
    usage: BTreeMap<String, Usage>,
    /// The keys of open questions.
    waiting: BTreeSet<&'a str>,
    /// Replies that were read, by their keys: each is read once for all of its calls.
    replies: RefCell<BTreeMap<String, Option<Reply>>>,
}

impl<'a> CallPlaces<'a> {
    fn of(contents: &'a JournalContents, entry: &str, requests: &[RecordedRequest]) -> Self {
        let mut beneath: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (key, _) in contents.records() {
            let mut caller = None;
            for place in places(entry, key) {
                // Keys come in order, so that one that is known already was the last one.
                let calls = caller.map(|caller| beneath.entry(caller).or_default());
                if let Some(calls) = calls.filter(|calls| calls.last() != Some(&place)) {
                    calls.push(place);
                }
                caller = Some(place);
            }
        }
        for calls in beneath.values_mut() {
            calls.sort_by_cached_key(|key| order(contents, key));
            calls.dedup();
        }
        let mut usage: BTreeMap<String, Usage> = BTreeMap::new();
        for RecordedRequest { key, usage: more, .. } in requests {
            for place in places(entry, key) {
                match usage.get_mut(place) {
                    Some(sum) => *sum = sum.plus(more),
                    None => drop(usage.insert(place.to_owned(), *more)),
                }
            }
        }
        let waiting = contents.waiting().map(|(key, _)| key).collect();
        Self { contents, beneath, usage, waiting, replies: RefCell::default() }
    }

    fn turn(&self, entry: &str, key: String) -> RecordedCall {
        let record = self.contents.record(&key);
        let input: Option<Vec<Content>> = value_at(&format!("{key}/input"), self.contents).ok();
        let is_function = input.is_none() && self.beneath(&key).iter().all(|call| !is_of_request(call));
        let is_done = matches!(record, Some(JournalEntry { known: StepProgress::Done(_), .. }));
        let waits = self.waits(&key);
        RecordedCall {
            name: entry.to_owned(),
            kind: if is_function { CallKind::Function } else { CallKind::Agent },
            input: input.map(|parts| RawJson::of(&Content::shown(&parts))),
            judged: None,
            answer: None,
            state: match (is_done, waits) {
                (true, _) => CallState::Done,
                (false, true) => CallState::Waits,
                (false, false) => CallState::Open,
            },
            reason: None,
            duration_ms: None,
            usage: self.usage_of(&key),
            calls: self.calls_of(&key),
            key,
        }
    }

    fn beneath(&self, key: &str) -> &[&'a str] {
        self.beneath.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    fn calls_of(&self, key: &str) -> Vec<RecordedCall> {
        self.beneath(key).iter().map(|call| self.call(call)).collect()
    }

    fn usage_of(&self, key: &str) -> Usage {
        self.usage.get(key).copied().unwrap_or_default()
    }

    /// Whether a question about a call, or beneath it, is open.
    fn waits(&self, key: &str) -> bool {
        let prefix = format!("{key}/");
        self.waiting.range(prefix.as_str()..).next().is_some_and(|question| question.starts_with(&prefix))
    }

    fn call(&self, key: &str) -> RecordedCall {
        let record = self.contents.record(key);
        let ran: Option<CallRecord> = value_at(key, self.contents).ok();
        let judgement: Option<JudgementRecord> = record.and_then(|record| record.judged.as_ref()?.to().ok());
        let (name, input) = self.name_and_input(key, record, judgement.as_ref());
        let is_agent = record.is_some_and(|record| record.kind == StepKind::Call)
            || self.contents.beneath(&format!("{key}/t0")).next().is_some();
        let (state, reason) = match (&ran, record.map(|record| &record.known)) {
            (Some(ran), _) => match &ran.gave {
                CallOutcome::Content(_) | CallOutcome::Said(_) => (CallState::Done, None),
                CallOutcome::Failed(reason) => (CallState::Failed, Some(reason.clone())),
                CallOutcome::Refused(reason) => (CallState::Refused, Some(reason.clone())),
                CallOutcome::Changed => (CallState::Failed, Some("its target changed".to_owned())),
            },
            (None, _) if self.waits(key) => (CallState::Waits, None),
            (None, Some(StepProgress::Started(_))) => (CallState::InDoubt, None),
            (None, _) => (CallState::Open, None),
        };
        RecordedCall {
            name,
            kind: if is_agent { CallKind::Agent } else { CallKind::Tool },
            input: ran.as_ref().and_then(|ran| ran.edited.clone()).or(input),
            judged: judgement,
            answer: self.answer(key),
            state,
            reason,
            duration_ms: ran.map(|ran| ran.duration_ms),
            usage: self.usage_of(key),
            calls: self.calls_of(key),
            key: key.to_owned(),
        }
    }

    /// A reply names what it calls; what code called stands in how it was judged, or is what a person was shown.
    fn name_and_input(
        &self,
        key: &str,
        record: Option<&JournalEntry>,
        judgement: Option<&JudgementRecord>,
    ) -> (String, Option<RawJson>) {
        if let Some(ToolCall { tool, arguments, .. }) = self.asked_for(key) {
            return (tool, arguments.in_json().0.cloned());
        }
        let call = judgement.and_then(|judgement| judgement.call.clone()).unwrap_or_default();
        if let Some(tool) = call.tool {
            return (tool, call.arguments);
        }
        if let Some(doubt) = record.and_then(|record| record.shown.as_ref()?.to::<InDoubt>().ok()) {
            return (doubt.tool, Some(doubt.arguments));
        }
        let told = record.map(|record| told_at(key, record, self.contents)).unwrap_or_default();
        let begun = told.events.into_iter().find_map(|event| match event.kind {
            EventKind::CallStarted { name, input, .. } => Some((name, Some(input))),
            _ => None,
        });
        begun.unwrap_or_else(|| ("code".to_owned(), None))
    }

    /// The call that a reply asked for.
    fn asked_for(&self, key: &str) -> Option<ToolCall> {
        let (request, _) = key.rsplit_once('/').filter(|_| is_of_request(key))?;
        let mut replies = self.replies.borrow_mut();
        if !replies.contains_key(request) {
            replies.insert(request.to_owned(), reply_at(request, self.contents).ok());
        }
        call_of(key, replies.get(request)?.as_ref()?).ok()
    }

    fn answer(&self, key: &str) -> Option<CallAnswer> {
        let record = self.contents.record(&format!("{key}/ask"))?;
        let StepProgress::Done(result) = &record.known else { return None };
        let StepRecord { value: RecordedAnswer { answer, .. }, .. } = result.to().ok()?;
        let is_approved = match answer {
            Answer::Once | Answer::CallForSession | Answer::ToolForSession | Answer::Edited(_) | Answer::Values(_) => {
                true
            }
            Answer::Refuse { .. } | Answer::EndRun | Answer::Later => false,
        };
        Some(CallAnswer { is_approved, by: record.by.clone() })
    }
}

/// The keys of calls on the way to a key: the turn of the entry first.
fn places<'a>(entry: &str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let is_turn = turn_number(entry, key).is_some();
    let start = entry.len() + 1;
    let ends = memchr::memchr_iter(b'/', key.as_bytes()).chain([key.len()]).filter(move |end| is_turn && *end > start);
    let mut before = start;
    let mut is_first = true;
    ends.filter_map(move |end| {
        let name = &key[before..end];
        before = end + 1;
        let is_call = std::mem::take(&mut is_first) || is_call_name(name);
        is_call.then_some(&key[..end])
    })
}

/// `c0`, `c0.1`, `x4be01c77d2a9.0`; not `m0`, `t0`, `input`, `ask`.
fn is_call_name(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.as_bytes().first() {
        Some(b'c') => name[1..].split('.').all(digits),
        Some(b'x') => name.rsplit_once('.').is_some_and(|(_, number)| digits(number)),
        Some(_) | None => false,
    }
}

/// Whether a reply asked for the call.
fn is_of_request(key: &str) -> bool {
    key.rsplit('/').next().is_some_and(|name| name.starts_with('c'))
}

/// Where a call stands among those of its caller: by turn, request and place in the reply; what code called by its time.
fn order(contents: &JournalContents, key: &str) -> (Vec<u64>, usize) {
    let number = |name: &str| name[1..].split('.').map(|part| part.parse().unwrap_or(u64::MAX)).collect::<Vec<u64>>();
    let names = key.rsplit('/').take(3).collect::<Vec<_>>();
    let line = if is_of_request(key) { 0 } else { first_line(contents, key) };
    let numbers = names.iter().rev().filter(|name| matches!(name.as_bytes().first(), Some(b't' | b'm' | b'c')));
    (numbers.filter(|name| name.len() > 1).flat_map(|name| number(name)).collect(), line)
}

fn first_line(contents: &JournalContents, key: &str) -> usize {
    let own = contents.record(key).map(|record| record.line);
    contents.beneath(key).map(|(_, record)| record.line).chain(own).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_passes_through_calls() {
        for (key, expected) in [
            ("main/t0/m1/c2/t0/m0/c0/ask", vec!["main/t0", "main/t0/m1/c2", "main/t0/m1/c2/t0/m0/c0"]),
            ("main/t12/input", vec!["main/t12"]),
            ("main/t0/m1/c2.1/x4be01c77d2a9.0", vec!["main/t0", "main/t0/m1/c2.1", "main/t0/m1/c2.1/x4be01c77d2a9.0"]),
            ("main/t0", vec!["main/t0"]),
            ("main/history", vec![]),
            ("main/open/x", vec![]),
            ("other/t0/m0", vec![]),
        ] {
            assert_eq!(places("main", key).collect::<Vec<_>>(), expected, "{key}");
        }
    }
}
