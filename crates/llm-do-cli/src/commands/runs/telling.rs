//! What has happened in a run between two looks at its record. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use llm_do::escape::{visible, visible_lines};
use llm_do::records::{CallState, JournalContents, RecordedCall, calls, turn_output};
use llm_do_launch::question;

use super::tree;
use crate::commands::resume::waiting;
use crate::report;
use crate::terminal::style::fit;
use crate::terminal::summary;

/// A call of one line.
const WIDEST: usize = 100;

/// What was told of a run so far.
#[derive(Default)]
pub struct FollowedRun {
    calls: BTreeMap<String, CallState>,
    questions: Vec<String>,
}

impl FollowedRun {
    /// What is new in the record of a run.
    pub fn news(&mut self, contents: &JournalContents, run: &str) -> String {
        let mut told = String::new();
        for (number, turn) in contents.turns().into_iter().zip(calls(contents)) {
            self.tell(&turn.calls, &[turn.name.as_str()], &mut told);
            let is_new = self.calls.insert(turn.key.clone(), turn.state) != Some(turn.state);
            let output = turn_output(contents, number.0).filter(|_| is_new && turn.state == CallState::Done);
            told.extend(output.map(|output| visible_lines(&report::answer(&output))));
        }
        for pending in waiting(contents, run) {
            if !self.questions.contains(&pending.id) {
                told.push_str(&question::pending(&pending));
                self.questions.push(pending.id);
            }
        }
        told
    }

    /// Beneath a call stands what it made: that ended before.
    fn tell(&mut self, calls: &[RecordedCall], path: &[&str], told: &mut String) {
        for call in calls {
            let before = self.calls.insert(call.key.clone(), call.state);
            let below: Vec<&str> = path.iter().copied().chain([call.name.as_str()]).collect();
            let is_new = before != Some(call.state);
            if is_new && call.state == CallState::InDoubt {
                told.push_str(&line(call, path, "begins"));
            }
            self.tell(&call.calls, &below, told);
            if is_new && matches!(call.state, CallState::Done | CallState::Failed | CallState::Refused) {
                told.push_str(&line(call, path, &ended(call)));
            }
        }
    }
}

fn line(call: &RecordedCall, path: &[&str], what: &str) -> String {
    let called = format!("{} › {}", path.join(" › "), tree::called(call));
    format!("{}: {what}\n", fit(&called, WIDEST))
}

fn ended(call: &RecordedCall) -> String {
    let time = call.duration_ms.filter(|time| *time >= 100);
    let time = time.map(|time| format!(", {}", summary::seconds(Duration::from_millis(time)))).unwrap_or_default();
    let reason = call.reason.as_deref().map(|reason| format!(": {}", visible(reason))).unwrap_or_default();
    format!("{}{time}{reason}", tree::became(call))
}
