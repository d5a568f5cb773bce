//! One call of a run as its record tells of it: when it began and ended, what it gave, and the requests that were made in it,
//! each with the parts that it was made of. Pure.

use std::collections::BTreeMap;

use llm_do::RawJson;
use llm_do::events::CallKind;
use llm_do::messages::Usage;
use llm_do::records::{JournalContents, RecordedCall, RecordedRequest, StepKind, StepProgress, calls, requests};
use serde::{Deserialize, Serialize};

/// When a call, a request or a question began and ended, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedCall {
    pub key: String,
    pub name: String,
    pub depth: usize,
    pub kind: TimedKind,
    pub began: u64,
    pub ended: u64,
    /// What a request took.
    pub usage: Option<Usage>,
}

/// What took the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimedKind {
    Agent,
    Tool,
    Request,
    /// A person was waited for.
    Person,
}

/// Every call of a run with its times, in the order of the tree and beneath a call in the order of time.
pub fn timed(contents: &JournalContents, calls: &[RecordedCall]) -> Vec<TimedCall> {
    let requests = requests(contents);
    let asked = contents.records().filter(|(_, entry)| entry.kind == StepKind::Ask);
    let clock = Clock {
        contents,
        requests: requests.iter().map(|request| (request.key.as_str(), request)).collect(),
        of_calls: requests_of_calls(contents),
        asked: asked
            .filter_map(|(key, entry)| {
                let is_answered = matches!(entry.known, StepProgress::Done(_));
                Some((key.rsplit_once('/')?.0, (entry.at, is_answered)))
            })
            .collect(),
        last: contents.records().map(|(_, entry)| entry.at).max().unwrap_or(contents.begun_at),
    };
    calls.iter().flat_map(|turn| clock.rows(turn, 0)).collect()
}

/// What tells when something was.
struct Clock<'a> {
    contents: &'a JournalContents,
    requests: BTreeMap<&'a str, &'a RecordedRequest>,
    of_calls: BTreeMap<&'a str, Vec<(&'a str, u64)>>,
    /// When the last question about each call was last recorded, and whether that was its answer.
    asked: BTreeMap<&'a str, (u64, bool)>,
    /// When something was last recorded.
    last: u64,
}

impl Clock<'_> {
    /// A call, and beneath it what it did.
    fn rows(&self, call: &RecordedCall, depth: usize) -> Vec<TimedCall> {
        let own = self.own_requests(call);
        let kind = if call.kind == CallKind::Agent || !own.is_empty() { TimedKind::Agent } else { TimedKind::Tool };
        let mut beneath: Vec<Vec<TimedCall>> =
            own.iter().map(|request| vec![Self::request(request, depth + 1)]).collect();
        beneath.extend(self.person(call, depth + 1).map(|row| vec![row]));
        beneath.extend(call.calls.iter().map(|call| self.rows(call, depth + 1)));
        // A request, then the calls of its reply in the order of time, then the next request: clocks do not tell them apart.
        beneath.sort_by_key(|rows| rows.first().map(|row| (request_number(&call.key, &row.key), row.began)));
        let (first, last) =
            (beneath.iter().flatten().map(|row| row.began).min(), beneath.iter().flatten().map(|row| row.ended).max());
        let done = self.contents.record(&call.key).filter(|entry| matches!(entry.known, StepProgress::Done(_)));
        let ended = done.map(|entry| entry.at).or(last).unwrap_or(self.last);
        let ran = call.duration_ms.map(|took| ended.saturating_sub(took));
        let asked_by = || self.asked_by(&call.key).map(|request| request.at);
        let began = [ran, first].into_iter().flatten().min().or_else(asked_by).unwrap_or(ended);
        let row = TimedCall {
            key: call.key.clone(),
            name: call.name.clone(),
            depth,
            kind,
            began,
            ended: ended.max(began),
            usage: None,
        };
        [row].into_iter().chain(beneath.into_iter().flatten()).collect()
    }

    fn request(request: &RecordedRequest, depth: usize) -> TimedCall {
        let began = request.at.saturating_sub(request.duration_ms);
        let (key, name) = (request.key.clone(), request.model.clone());
        TimedCall { key, name, depth, kind: TimedKind::Request, began, ended: request.at, usage: Some(request.usage) }
    }

    /// The requests of a call itself.
    fn own_requests(&self, call: &RecordedCall) -> Vec<&RecordedRequest> {
        let own = self.of_calls.get(call.key.as_str()).into_iter().flatten();
        own.filter_map(|(key, _)| self.requests.get(key).copied()).collect()
    }

    /// The request whose reply asked for a call.
    fn asked_by(&self, key: &str) -> Option<&RecordedRequest> {
        self.requests.get(key.rsplit_once('/')?.0).copied()
    }

    /// The time in which a person was waited for: the question is asked when the reply is there.
    fn person(&self, call: &RecordedCall, depth: usize) -> Option<TimedCall> {
        let (at, is_answered) = *self.asked.get(call.key.as_str())?;
        let began = self.asked_by(&call.key).map_or(self.contents.begun_at, |request| request.at);
        let ended = if is_answered { at } else { self.last };
        let (key, name) = (call.key.clone(), "waits for a person".to_owned());
        Some(TimedCall { key, name, depth, kind: TimedKind::Person, began, ended: ended.max(began), usage: None })
    }
}

/// The number of the request of a call that something beneath it is, or that asked for it.
fn request_number(call: &str, beneath: &str) -> Option<u64> {
    let parts = beneath.strip_prefix(call)?.split('/');
    parts.filter_map(|part| part.strip_prefix('m')).find_map(|number| number.parse().ok())
}

/// The keys of the requests of each call itself, in order, with the times of their replies. A turn is a call, and what an agent is
/// asked by a call stands in the first turn beneath it.
fn requests_of_calls(contents: &JournalContents) -> BTreeMap<&str, Vec<(&str, u64)>> {
    let number = |key: &str| key.rsplit_once("/m").and_then(|(_, number)| number.parse::<u64>().ok());
    let mut found: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for (key, entry) in contents.records().filter(|(_, entry)| entry.kind == StepKind::Model) {
        let Some((turn, _)) = key.rsplit_once("/m").filter(|_| number(key).is_some()) else { continue };
        for call in [Some(turn), turn.strip_suffix("/t0")].into_iter().flatten() {
            found.entry(call).or_default().push((key, entry.at));
        }
    }
    for requests in found.values_mut() {
        requests.sort_by_key(|(key, _)| number(key));
    }
    found
}

/// All that is recorded of one call.
#[derive(Debug, Serialize)]
pub struct ToldCall {
    pub call: RecordedCall,
    /// What it gave, as it is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RawJson>,
    /// The requests that were made in it, in order.
    pub requests: Vec<ToldRequest>,
    /// The parts that requests were made of, by name.
    pub parts: BTreeMap<String, RawJson>,
}

/// A request to a model, and its reply.
#[derive(Debug, Serialize)]
pub struct ToldRequest {
    pub key: String,
    /// When it ended, in milliseconds since 1970.
    pub at: u64,
    /// How many messages it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The names of its parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<RawJson>,
    /// The reply, as it is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<RawJson>,
    /// What the calls of the reply gave, by their keys.
    pub results: BTreeMap<String, RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl ToldCall {
    /// Nothing if the run has no such call.
    pub fn of(contents: &JournalContents, key: &str) -> Option<Self> {
        let mut all = calls(contents);
        let call = take(&mut all, key)?;
        let usage: BTreeMap<String, Usage> =
            requests(contents).into_iter().map(|request| (request.key, request.usage)).collect();
        let keys = requests_of_calls(contents).remove(call.key.as_str()).unwrap_or_default();
        let told: Vec<ToldRequest> =
            keys.into_iter().map(|(key, at)| ToldRequest::of(contents, key.to_owned(), at, &usage)).collect();
        let parts = told.iter().filter_map(|request| request.parts.as_ref()).flat_map(|names| named(contents, names));
        let parts = parts.collect();
        Some(Self { record: done(contents, key), requests: told, parts, call })
    }
}

impl ToldRequest {
    fn of(contents: &JournalContents, key: String, at: u64, usage: &BTreeMap<String, Usage>) -> Self {
        let entry = contents.record(&key);
        let name = entry.and_then(|entry| entry.parts.clone());
        let parts = name.and_then(|name| contents.parts.get(&name).cloned());
        let prefix = format!("{key}/c");
        let is_call = |key: &str| {
            key.strip_prefix(&prefix)
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let results = contents.records().filter(|(key, _)| is_call(key));
        let results = results.filter_map(|(key, _)| Some((key.to_owned(), done(contents, key)?))).collect();
        let (sent, reply) = (entry.and_then(|entry| entry.sent), done(contents, &key));
        let usage = usage.get(&key).copied();
        Self { key, at, sent, parts, reply, results, usage }
    }
}

fn take(calls: &mut Vec<RecordedCall>, key: &str) -> Option<RecordedCall> {
    if let Some(at) = calls.iter().position(|call| call.key == key) {
        return Some(calls.swap_remove(at));
    }
    calls
        .iter_mut()
        .filter(|call| key.starts_with(&format!("{}/", call.key)))
        .find_map(|call| take(&mut call.calls, key))
}

/// The parts that a list of names means.
fn named(contents: &JournalContents, names: &RawJson) -> Vec<(String, RawJson)> {
    #[derive(Deserialize)]
    struct PartList {
        instructions: String,
        tools: String,
        #[serde(default)]
        output: Option<String>,
        settings: String,
    }
    let Ok(PartList { instructions, tools, output, settings }) = names.to::<PartList>() else { return Vec::new() };
    let all = [Some(instructions), Some(tools), output, Some(settings)].into_iter().flatten();
    all.filter_map(|name| Some((name.clone(), contents.parts.get(&name)?.clone()))).collect()
}

fn done(contents: &JournalContents, key: &str) -> Option<RawJson> {
    match &contents.record(key)?.known {
        StepProgress::Done(record) => Some(record.clone()),
        StepProgress::Started(_) | StepProgress::Asked(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_stands_behind_the_request_that_asked_for_it() {
        for (call, beneath, expected) in [
            ("main/t0", "main/t0/m0", Some(0)),
            ("main/t0", "main/t0/m12/c3", Some(12)),
            ("main/t0/m0/c0", "main/t0/m0/c0/t0/m3/c1", Some(3)),
            ("main/t0/m0/c0", "main/t0/m0/c0", None),
            ("main/t0", "other/t0/m1", None),
        ] {
            assert_eq!(request_number(call, beneath), expected, "{beneath}");
        }
    }
}
