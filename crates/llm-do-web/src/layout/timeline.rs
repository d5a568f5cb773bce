//! The timeline of a run: one row for each call, in the order of the tree; what runs together stands side by side in time.

use llm_do::messages::Usage;
use serde::Serialize;

use crate::told_call::{TimedCall, TimedKind};

/// A timeline in thousandths of its width, so that it may be drawn as wide as there is room.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Milliseconds from the first call to the last end.
    pub span: u64,
    pub rows: Vec<TimelineRow>,
    pub ticks: Vec<Tick>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineRow {
    pub key: String,
    pub name: String,
    pub depth: usize,
    pub kind: TimedKind,
    /// Where it begins and how wide it is.
    pub left: u64,
    pub width: u64,
    /// Milliseconds.
    pub took: u64,
    /// What a request took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A mark of the axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tick {
    pub left: u64,
    pub label: String,
}

/// The whole width.
const WHOLE: u64 = 1000;

impl Timeline {
    pub fn of(calls: &[TimedCall]) -> Self {
        let begun = calls.iter().map(|call| call.began).min().unwrap_or(0);
        let ended = calls.iter().map(|call| call.ended).max().unwrap_or(0);
        let span = ended.saturating_sub(begun);
        let place = |at: u64| at.saturating_sub(begun).saturating_mul(WHOLE).checked_div(span).unwrap_or(0);
        let rows = calls.iter().map(|call| {
            let (left, right) = (place(call.began).min(WHOLE - 2), place(call.ended));
            TimelineRow {
                key: call.key.clone(),
                name: call.name.clone(),
                depth: call.depth,
                kind: call.kind,
                left,
                // What took no time is seen all the same.
                width: right.saturating_sub(left).max(2),
                took: call.ended.saturating_sub(call.began),
                usage: call.usage,
            }
        });
        Self { span, rows: rows.collect(), ticks: ticks(span) }
    }
}

/// At most six marks at round times.
fn ticks(span: u64) -> Vec<Tick> {
    const STEPS: [u64; 15] =
        [1, 5, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 3_600_000];
    let step = STEPS.into_iter().find(|step| span / step <= 5).unwrap_or_else(|| (span / 5).max(1));
    let marks = (0..=span / step).map(|number| number * step);
    let left = |at: u64| at.saturating_mul(WHOLE).checked_div(span).unwrap_or(0);
    marks.take(8).map(|at| Tick { left: left(at), label: shown_time(at) }).collect()
}

/// A time in few letters.
pub fn shown_time(milliseconds: u64) -> String {
    match milliseconds {
        0 => "0".to_owned(),
        1..1000 => format!("{milliseconds} ms"),
        1000..60_000 => {
            let tenths = milliseconds / 100;
            if tenths.is_multiple_of(10) {
                format!("{} s", tenths / 10)
            } else {
                format!("{}.{} s", tenths / 10, tenths % 10)
            }
        }
        60_000..3_600_000 => format!("{} min {} s", milliseconds / 60_000, milliseconds / 1000 % 60),
        _ => format!("{} h {} min", milliseconds / 3_600_000, milliseconds / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_where_their_times_are() {
        let call = |began, ended| TimedCall {
            key: String::new(),
            name: String::new(),
            depth: 0,
            kind: TimedKind::Tool,
            began,
            ended,
            usage: None,
        };
        let places = |calls: &[TimedCall]| -> Vec<(u64, u64)> {
            Timeline::of(calls).rows.iter().map(|row| (row.left, row.width)).collect()
        };
        assert_eq!(places(&[]), []);
        assert_eq!(places(&[call(5, 5)]), [(0, 2)]);
        assert_eq!(places(&[call(100, 300), call(100, 200), call(200, 200)]), [(0, 1000), (0, 500), (500, 2)]);
        assert_eq!(places(&[call(0, u64::MAX), call(u64::MAX, u64::MAX)])[1].1, 2);
    }

    #[test]
    fn times_are_short_and_marks_are_few() {
        for (time, expected) in
            [(0, "0"), (999, "999 ms"), (1000, "1 s"), (1250, "1.2 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min")]
        {
            assert_eq!(shown_time(time), expected);
        }
        for span in [0, 1, 7, 999, 1000, 4999, 123_456, u64::MAX] {
            let ticks = ticks(span);
            assert!((1..=8).contains(&ticks.len()) && ticks.iter().all(|tick| tick.left <= 1000), "{span}: {ticks:?}");
        }
    }
}
