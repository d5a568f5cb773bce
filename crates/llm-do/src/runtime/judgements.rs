//! How the calls of a recorded run were judged, from its journal alone: for people, and for whoever tries other rules on
//! them. Nothing that runs looks at it. Pure.

use std::collections::BTreeMap;

use crate::journal::StepRecord;
use crate::journal::call::{CallOutcome, CallRecord, is_of_reply, reply_at};
use crate::journal::record::{JournalContents, JournalEntry, StepProgress};
use crate::message::{Arguments, RawJson, ToolCall};
use crate::tools::approval::JudgementRecord;
use crate::tools::plane::InDoubt;

/// A call of a recorded run, as it was asked for and judged.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedCall {
    /// Where in the call tree it stands.
    pub key: String,
    /// The agents and the code from the entry down.
    pub path: Vec<String>,
    /// The tool that was called.
    pub tool: String,
    /// What it was called with, before a person changed it; `None` if that was too long to be written down.
    pub arguments: Option<RawJson>,
    /// How it was judged.
    pub judgement: JudgementRecord,
    /// What became of it.
    pub fate: CallFate,
}

/// What became of a call, as far as rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFate {
    /// It ran, whatever it gave.
    Ran,
    /// A rule, a mode or a person refused it.
    Refused,
    /// It was about to run, and nobody knows whether it did.
    InDoubt,
}

/// Every call that was judged, in the order of the keys. What could not be judged, such as a call of a tool that is not
/// there, is not among them.
pub fn judged_calls(contents: &JournalContents) -> impl Iterator<Item = JudgedCall> {
    let mut replies = RepliesRead::default();
    contents.records().filter_map(move |(key, record)| judged_call(contents, key, record, &mut replies))
}

/// The calls of replies that were read last, by the keys of their requests: a reply with many calls is read once.
#[derive(Default)]
struct RepliesRead(BTreeMap<String, Vec<ToolCall>>);

impl RepliesRead {
    /// More than that many agents deep, a reply may be read again.
    const MOST: usize = 16;

    fn call(&mut self, key: &str, contents: &JournalContents) -> Option<ToolCall> {
        let (request, place) = key.rsplit_once('/')?;
        let position: usize = place.strip_prefix('c')?.split('.').next()?.parse().ok()?;
        if let Some(calls) = self.0.get(request) {
            return calls.get(position).cloned();
        }
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        let calls: Vec<ToolCall> = reply_at(request, contents).ok()?.tool_calls().cloned().collect();
        let call = calls.get(position).cloned();
        self.0.insert(request.to_owned(), calls);
        call
    }
}

fn judged_call(
    contents: &JournalContents,
    key: &str,
    record: &JournalEntry,
    replies: &mut RepliesRead,
) -> Option<JudgedCall> {
    let judgement: JudgementRecord = record.judged.as_ref().filter(|_| record.kind.is_call())?.to().ok()?;
    let fate = match &record.known {
        StepProgress::Started(_) => CallFate::InDoubt,
        StepProgress::Asked(_) => return None,
        StepProgress::Done(result) => match result.to::<StepRecord<CallRecord>>().ok()?.value.gave {
            CallOutcome::Refused(_) => CallFate::Refused,
            CallOutcome::Content(_) | CallOutcome::Failed(_) | CallOutcome::Changed | CallOutcome::Said(_) => {
                CallFate::Ran
            }
        },
    };
    let shown: Option<InDoubt> = record.shown.as_ref().and_then(|shown| shown.to().ok());
    let unshown = judgement.call.clone().unwrap_or_default();
    let (tool, arguments) = if is_of_reply(key) {
        let call = replies.call(key, contents)?;
        let Arguments::Object(arguments) = call.arguments else { return None };
        (call.tool, Some(arguments))
    } else {
        match (unshown.tool, &shown) {
            (Some(tool), _) => (tool, unshown.arguments),
            (None, Some(shown)) => (shown.tool.clone(), Some(shown.arguments.clone())),
            (None, None) => return None,
        }
    };
    let entry = || key.split('/').take(1).map(str::to_owned).collect();
    let path = match shown {
        Some(shown) => shown.path,
        None if unshown.path.is_empty() => entry(),
        None => unshown.path,
    };
    Some(JudgedCall { key: key.to_owned(), path, tool, arguments, judgement, fate })
}
