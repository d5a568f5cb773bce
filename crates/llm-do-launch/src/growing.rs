//! What has happened in a run between two looks at its record, as values: a front end puts them into lines, or draws them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use llm_do::Output;
use llm_do::approval::PendingQuestion;
use llm_do::records::{CallState, JournalContents, RecordedCall, calls, turn_output};

use crate::stored_runs::waiting;

/// What is new in the record of a run.
#[derive(Debug)]
pub enum RunNews<'a> {
    /// A call began that must not run twice.
    Began { call: &'a RecordedCall, path: &'a [&'a str] },
    /// A call has ended; those beneath it were told before.
    Ended { call: &'a RecordedCall, path: &'a [&'a str] },
    /// A turn of the entry has its answer.
    Answered { turn: &'a RecordedCall, output: Output },
    /// Somebody has to answer.
    Asked(&'a PendingQuestion),
}

/// What was told of a run so far.
#[derive(Debug, Default)]
pub struct GrowingRun {
    calls: BTreeMap<String, CallState>,
    questions: BTreeSet<String>,
}

impl GrowingRun {
    /// Tells what is new in the record of a run.
    pub fn news(&mut self, contents: &JournalContents, run: &str, tell: &mut dyn FnMut(RunNews<'_>)) {
        for (number, turn) in contents.turns().into_iter().zip(calls(contents)) {
            self.tell(&turn.calls, &[turn.name.as_str()], tell);
            let is_new = self.calls.insert(turn.key.clone(), turn.state) != Some(turn.state);
            let output = turn_output(contents, number.0).filter(|_| is_new && turn.state == CallState::Done);
            if let Some(output) = output {
                tell(RunNews::Answered { turn: &turn, output });
            }
        }
        for pending in waiting(contents, run) {
            if self.questions.insert(pending.id.clone()) {
                tell(RunNews::Asked(&pending));
            }
        }
    }

    /// Beneath a call stands what it made: that ended before.
    fn tell(&mut self, calls: &[RecordedCall], path: &[&str], tell: &mut dyn FnMut(RunNews<'_>)) {
        for call in calls {
            let before = self.calls.insert(call.key.clone(), call.state);
            let below: Vec<&str> = path.iter().copied().chain([call.name.as_str()]).collect();
            let is_new = before != Some(call.state);
            if is_new && call.state == CallState::InDoubt {
                tell(RunNews::Began { call, path });
            }
            self.tell(&call.calls, &below, tell);
            if is_new && matches!(call.state, CallState::Done | CallState::Failed | CallState::Refused) {
                tell(RunNews::Ended { call, path });
            }
        }
    }
}
