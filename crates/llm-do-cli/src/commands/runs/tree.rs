//! The calls of a run as a tree. Pure.

use std::time::Duration;

use llm_do::approval::DecidedBy;
use llm_do::escape::visible;
use llm_do::events::CallKind;
use llm_do::messages::Usage;
use llm_do::records::{CallAnswer, CallState, RecordedCall};

use crate::terminal::style::{fit, width};
use crate::terminal::summary;

/// A call and its input take so many columns at most.
const WIDEST_CALL: usize = 44;
/// Whatever the depth is, so much of a call is shown.
const LEAST_CALL: usize = 16;
const DEEPEST: usize = 12;

/// A line for each call, beneath the one that made it: what became of it, its time, what it took, its key.
pub fn tree(calls: &[RecordedCall]) -> String {
    let mut rows = Vec::new();
    push_rows(calls, 0, &mut rows);
    let mut widths = [0; 4];
    for row in &rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = (*most).max(width(cell));
        }
    }
    let line = |row: &[String; 5]| {
        let [call, became, time, took, key] = row;
        let cells = [call, became, time, took].into_iter().zip(widths).filter(|(_, most)| *most > 0);
        let cells = cells.map(|(cell, most)| format!("{cell}{}  ", " ".repeat(most - width(cell))));
        format!("{}{key}\n", cells.collect::<String>())
    };
    rows.iter().map(line).collect()
}

fn push_rows(calls: &[RecordedCall], depth: usize, rows: &mut Vec<[String; 5]>) {
    for call in calls {
        let indent = 2 * depth.min(DEEPEST);
        let columns = WIDEST_CALL.saturating_sub(indent).max(LEAST_CALL);
        let time = call.duration_ms.map(|time| summary::seconds(Duration::from_millis(time))).unwrap_or_default();
        let shown = format!("{}{}", " ".repeat(indent), fit(&called(call), columns));
        rows.push([shown, became(call), time, took(&call.usage), visible(&call.key).into_owned()]);
        push_rows(&call.calls, depth + 1, rows);
    }
}

/// `read_file {"path":"notes.txt"}`. It is cut by whoever shows it, and made visible there.
pub fn called(call: &RecordedCall) -> String {
    // Nothing is copied that would be cut off again: an argument may be megabytes.
    let input = call.input.as_ref().map(|input| input.get().chars().take(WIDEST_CALL).collect::<String>());
    format!("{} {}", call.name, input.unwrap_or_default()).trim_end().to_owned()
}

/// What was answered about it, and how far it has come.
pub fn became(call: &RecordedCall) -> String {
    let answered = call.answer.as_ref().map(|CallAnswer { is_approved, by }| {
        let word = if *is_approved { "approved" } else { "refused" };
        by.as_ref().map_or_else(|| word.to_owned(), |by| format!("{word} by {}", fit(by, 20)))
    });
    let decided = || call.judged.as_ref().and_then(|judged| decision(judged.by?)).map(str::to_owned);
    let answered = answered.or_else(decided);
    let state = match (call.state, call.kind) {
        (CallState::Done, _) => "done",
        (CallState::Failed, _) => "failed",
        (CallState::Refused, _) if call.answer.is_some() => return answered.unwrap_or_default(),
        (CallState::Refused, _) => "refused",
        (CallState::Waits, _) => "waits",
        (CallState::InDoubt, _) => "in doubt",
        (CallState::Open, CallKind::Agent | CallKind::Function) => "not finished",
        (CallState::Open, CallKind::Tool | CallKind::ServerTool) => "not begun",
    };
    answered.map_or_else(|| state.to_owned(), |answered| format!("{answered}, {state}"))
}

/// Who decided, unless that was the toolset itself.
fn decision(by: DecidedBy) -> Option<&'static str> {
    match by {
        DecidedBy::Toolset => None,
        DecidedBy::Variant
        | DecidedBy::Worker
        | DecidedBy::Manifest
        | DecidedBy::Yours
        | DecidedBy::Organisation
        | DecidedBy::Rule => Some("by a rule"),
        DecidedBy::RejectAll | DecidedBy::ApproveAll => Some("by a flag"),
        DecidedBy::Session => Some("by an earlier answer"),
        DecidedBy::Known | DecidedBy::Person => Some("by a person"),
        DecidedBy::Nobody => Some("nobody was there"),
    }
}

fn took(usage: &Usage) -> String {
    if usage.requests == 0 {
        return String::new();
    }
    format!("{}, {}", summary::tokens(usage), summary::cost(usage))
}
