//! What has happened in a run between two looks at its record, as lines. Pure.

use std::time::Duration;

use llm_do::escape::{visible, visible_lines};
use llm_do::records::{JournalContents, RecordedCall};
use llm_do_launch::growing::{GrowingRun, RunNews};
use llm_do_launch::question;

use super::tree;
use crate::report;
use crate::terminal::style::fit;
use crate::terminal::summary;

/// A call of one line.
const WIDEST: usize = 100;

/// What is new in the record of a run.
pub fn news(told: &mut GrowingRun, contents: &JournalContents, run: &str) -> String {
    let mut text = String::new();
    told.news(contents, run, &mut |news| match news {
        RunNews::Began { call, path } => text.push_str(&line(call, path, "begins")),
        RunNews::Ended { call, path } => text.push_str(&line(call, path, &ended(call))),
        RunNews::Answered { output, .. } => text.push_str(&visible_lines(&report::answer(&output))),
        RunNews::Asked(pending) => text.push_str(&question::pending(pending)),
    });
    text
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
