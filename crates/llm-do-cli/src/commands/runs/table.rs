//! Runs as a table that fits a terminal, and as JSON. Pure.

use std::borrow::Cow;

use llm_do::escape::visible_json;
use llm_do::store::index::{IndexLine, RunKind, RunState};
use llm_do::store::period::{CalendarDay, LocalZone};

use crate::terminal::style::{fit, width};
use crate::terminal::summary;

/// What a terminal has at least.
pub const NARROW: usize = 80;

const COLUMNS: usize = 7;
const PROJECT: usize = 2;
const ENTRY: usize = 3;
const STATE: usize = 4;
const HEADINGS: [&str; COLUMNS] = ["ID", "WHEN", "PROJECT", "ENTRY", "STATE", "COST", "REQ"];
const GAP: usize = 2;

/// The table of these runs, as seen at a moment.
pub fn table(lines: &[IndexLine<'_>], now: u64, columns: usize) -> String {
    let rows: Vec<[Cow<'_, str>; COLUMNS]> = lines.iter().map(|line| cells(line, now)).collect();
    let mut widths = HEADINGS.map(str::len);
    for row in &rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = (*most).max(width(cell));
        }
    }
    narrow(&mut widths, columns);
    let mut text = String::with_capacity((rows.len() + 1) * columns);
    push_row(&mut text, &HEADINGS.map(Cow::from), &widths);
    for row in &rows {
        push_row(&mut text, row, &widths);
    }
    text
}

/// What people named gives way first, and to the same part; the states last.
fn narrow(widths: &mut [usize; COLUMNS], columns: usize) {
    let over = |widths: &[usize; COLUMNS]| (widths.iter().sum::<usize>() + GAP * (COLUMNS - 1)).saturating_sub(columns);
    for (group, least) in [(&[PROJECT, ENTRY][..], 7), (&[STATE][..], 12)] {
        while over(widths) > 0 {
            let widest =
                group.iter().copied().max_by_key(|column| widths[*column]).filter(|column| widths[*column] > least);
            let Some(column) = widest else { break };
            widths[column] -= 1;
        }
    }
}

fn push_row(text: &mut String, row: &[Cow<'_, str>; COLUMNS], widths: &[usize; COLUMNS]) {
    let start = text.len();
    for (column, (cell, most)) in row.iter().zip(widths).enumerate() {
        let cell = if width(cell) > *most { Cow::Owned(fit(cell, *most)) } else { Cow::Borrowed(cell.as_ref()) };
        let room = most - width(&cell).min(*most);
        let is_number = column > STATE;
        if column > 0 {
            text.push_str("  ");
        }
        if is_number {
            text.extend(std::iter::repeat_n(' ', room));
        }
        text.push_str(&cell);
        if !is_number {
            text.extend(std::iter::repeat_n(' ', room));
        }
    }
    text.truncate(start + text[start..].trim_end().len());
    text.push('\n');
}

fn cells<'a>(line: &'a IndexLine<'_>, now: u64) -> [Cow<'a, str>; COLUMNS] {
    let project = line.project.rsplit('/').find(|part| !part.is_empty()).unwrap_or(&line.project);
    // What a process has spent so far stands nowhere but in its record.
    let is_known = !matches!(line.state, RunState::Running | RunState::Damaged);
    let number = |text: String| if is_known { text } else { String::new() };
    [
        Cow::Borrowed(line.id.as_str()),
        when(line.at, now).into(),
        llm_do::escape::visible(project),
        llm_do::escape::visible(&line.entry),
        state(line),
        number(cost(line.cost, line.requests)).into(),
        number(line.requests.to_string()).into(),
    ]
}

/// The state of a run in words.
pub fn state<'a>(line: &'a IndexLine<'_>) -> Cow<'a, str> {
    match (line.state, &line.waits) {
        (RunState::Waits, Some(tool)) => format!("waits: {}", llm_do::escape::visible(tool)).into(),
        (RunState::Done, _) if line.kind == RunKind::Chat => match line.turns {
            1 => "chat, 1 turn".into(),
            turns => format!("chat, {turns} turns").into(),
        },
        (RunState::Waits, None) => "waits".into(),
        (RunState::Running, _) => "running".into(),
        (RunState::Stopped, _) => "stopped".into(),
        (RunState::Died, _) => "died".into(),
        (RunState::Done, _) => "done".into(),
        (RunState::Damaged, _) => "damaged".into(),
    }
}

fn cost(usd: Option<f64>, requests: u64) -> String {
    match usd {
        None if requests == 0 => "$0".to_owned(),
        None => "unknown".to_owned(),
        Some(usd) => summary::money(usd),
    }
}

/// How long ago something was, in few words.
pub fn when(at: u64, now: u64) -> String {
    let seconds = now.saturating_sub(at) / 1000;
    match seconds {
        0..5 => "just now".to_owned(),
        5..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        86_400..2_592_000 => format!("{} d ago", seconds / 86_400),
        _ => CalendarDay::of(at, &LocalZone::of_process()).to_string(),
    }
}

/// A run as one line of JSON.
pub fn json(line: &IndexLine<'_>) -> String {
    let mut json = serde_json::to_string(line).expect("plain values serialise");
    if let Cow::Owned(shown) = visible_json(&json) {
        json = shown;
    }
    json.push('\n');
    json
}

#[cfg(test)]
mod tests {
    use llm_do::store::layout::RunId;

    use super::*;

    const NOW: u64 = 1_794_873_600_000;

    fn line(number: u64, ago: u64, project: &str, entry: &str, state: RunState) -> IndexLine<'static> {
        IndexLine {
            id: RunId::new(number, 7),
            at: NOW - ago * 1000,
            kind: RunKind::Run,
            project: project.to_owned().into(),
            entry: entry.to_owned().into(),
            label: None,
            state,
            waits: None,
            cost: Some(0.0041),
            requests: 3,
            turns: 0,
        }
    }

    #[test]
    fn the_table_is_the_one_that_is_documented() {
        let waits = IndexLine {
            waits: Some("write_file".into()),
            ..line(1, 120, "/home/me/refund", "support", RunState::Waits)
        };
        let chat = IndexLine {
            kind: RunKind::Chat,
            turns: 14,
            requests: 31,
            cost: Some(0.221),
            ..line(2, 900, "/home/me/desk", "main", RunState::Done)
        };
        let lines = [
            waits,
            line(3, 3, "release/", "notes", RunState::Running),
            line(4, 7200, "/", "", RunState::Damaged),
            IndexLine { cost: None, ..line(5, 86_400 * 3, "/a/release", "notes", RunState::Died) },
            chat,
        ];
        let expected = "\
ID                WHEN        PROJECT  ENTRY    STATE                 COST  REQ
0000000004000007  2 min ago   refund   support  waits: write_file  $0.0041    3
0000000008000007  just now    release  notes    running
000000000g000007  2 h ago     /                 damaged
000000000m000007  3 d ago     release  notes    died               unknown    3
0000000008000007  15 min ago  desk     main     chat, 14 turns     $0.2210   31
";
        let shown = table(&lines, NOW, NARROW);
        assert_eq!(shown.lines().count(), expected.lines().count());
        for (shown, expected) in shown.lines().zip(expected.lines()) {
            assert_eq!(&shown[16..], &expected[16..]);
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_wider_than_a_terminal_or_deceives(
            project in "\\PC{0,60}", entry in "\\PC{0,60}", tool in "\\PC{0,60}", cost in proptest::option::of(0.0..1e6_f64),
            requests in 0..100_000_u64, ago in 0..100_000_000_u64,
        ) {
            let line = IndexLine {
                waits: Some(tool.into()),
                cost,
                requests,
                ..line(1, ago, &project, &entry, RunState::Waits)
            };
            let shown = table(&[line], NOW, NARROW);
            for row in shown.lines() {
                proptest::prop_assert!(width(row) <= NARROW, "{row}");
            }
            proptest::prop_assert_eq!(shown.lines().count(), 2);
            proptest::prop_assert!(!shown.chars().any(|c| c != '\n' && llm_do::escape::is_deceptive(c)));
        }
    }
}
