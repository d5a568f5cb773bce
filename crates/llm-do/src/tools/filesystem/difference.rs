//! What a write changes, line by line, for the approver.

use std::collections::HashMap;
use std::ops::Range;

use crate::escape::visible;

/// Lines that stay, shown around those that change.
const SHOWN_AROUND: usize = 2;

/// The lines that go and come, each in full and made visible, with a little of what stays.
pub(crate) fn difference(old: &str, new: &str) -> String {
    let (old, new) = (lines(old), lines(new));
    let changes = changes(&old, &new);
    let Some(first) = changes.first() else { return "(nothing changes)".to_owned() };
    let mut shown = Vec::new();
    let mut kept = first.old.start.saturating_sub(SHOWN_AROUND);
    for (index, change) in changes.iter().enumerate() {
        shown.extend(old[kept..change.old.start].iter().map(|line| shown_line("  ", line)));
        shown.extend(old[change.old.clone()].iter().map(|line| shown_line("- ", line)));
        shown.extend(new[change.new.clone()].iter().map(|line| shown_line("+ ", line)));
        let next = changes.get(index + 1).map_or(old.len() + SHOWN_AROUND, |next| next.old.start);
        kept = change.old.end;
        if next - kept > 2 * SHOWN_AROUND || index + 1 == changes.len() {
            let end = (kept + SHOWN_AROUND).min(old.len());
            shown.extend(old[kept..end].iter().map(|line| shown_line("  ", line)));
            kept = next.saturating_sub(SHOWN_AROUND);
            if index + 1 < changes.len() {
                shown.push("…".to_owned());
            }
        }
    }
    shown.join("\n")
}

/// The lines of a text with their ends, so that a change of those is a change.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn shown_line(mark: &str, line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => format!("{mark}{}", visible(line)),
        None => format!("{mark}{} (no line break at the end)", visible(line)),
    }
}

/// Lines that go, and those that come in their place.
#[derive(Debug, PartialEq)]
struct LineChange {
    old: Range<usize>,
    new: Range<usize>,
}

/// The changes between two texts, in time that grows with the texts, whatever they are: lines that occur once in both
/// are taken for the same, as far as they are in the same order, and what is equal around them stays.
fn changes(old: &[&str], new: &[&str]) -> Vec<LineChange> {
    let start = equal(old.iter().zip(new));
    let end = equal(old[start..].iter().rev().zip(new[start..].iter().rev()));
    let (old_end, new_end) = (old.len() - end, new.len() - end);
    let mut anchors = anchors(&old[start..old_end], &new[start..new_end]);
    anchors.push((old_end - start, new_end - start));
    let mut changes = Vec::new();
    let (mut at_old, mut at_new) = (start, start);
    for (anchor_old, anchor_new) in anchors {
        let (anchor_old, anchor_new) = (start + anchor_old, start + anchor_new);
        if anchor_old < at_old || anchor_new < at_new {
            continue; // it lies in lines that were already found to be equal
        }
        let forward = equal(old[at_old..anchor_old].iter().zip(&new[at_new..anchor_new]));
        (at_old, at_new) = (at_old + forward, at_new + forward);
        let back = equal(old[at_old..anchor_old].iter().rev().zip(new[at_new..anchor_new].iter().rev()));
        let change = LineChange { old: at_old..anchor_old - back, new: at_new..anchor_new - back };
        if !change.old.is_empty() || !change.new.is_empty() {
            changes.push(change);
        }
        (at_old, at_new) = (anchor_old, anchor_new);
    }
    changes
}

fn equal<'a>(pairs: impl Iterator<Item = (&'a &'a str, &'a &'a str)>) -> usize {
    pairs.take_while(|(one, other)| one == other).count()
}

/// Pairs of lines that occur once in both, the longest series of them in the same order.
fn anchors(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let (in_old, in_new) = (once(old), once(new));
    let mut pairs: Vec<(usize, usize)> =
        in_old.iter().filter_map(|(line, &at)| Some((at?, (*in_new.get(line)?)?))).collect();
    pairs.sort_unstable();
    // The shortest ends of series of each length, and what came before each pair.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; pairs.len()];
    for (index, &(_, at_new)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|&end| pairs[end].1 < at_new);
        before[index] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() { ends.push(index) } else { ends[length] = index }
    }
    let series = std::iter::successors(ends.last().copied(), |&index| before[index]);
    let mut series: Vec<_> = series.map(|index| pairs[index]).collect();
    series.reverse();
    series
}

/// Where each line is, `None` if in several places.
fn once<'a>(lines: &[&'a str]) -> HashMap<&'a str, Option<usize>> {
    let mut places = HashMap::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        places.entry(*line).and_modify(|place| *place = None).or_insert(Some(at));
    }
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_difference_shows_what_goes_and_what_comes() {
        for (old, new, shown) in [
            ("a\nb\nc\nd\n", "a\nb\nX\nd\n", "  a\n  b\n- c\n+ X\n  d"),
            ("", "new\n", "+ new"),
            ("same", "same", "(nothing changes)"),
            ("a\na\n", "a\n", "  a\n- a"),
            ("a\n", "a", "- a\n+ a (no line break at the end)"),
            ("a\n", "a\r\n", "- a\n+ a\\r"),
            ("a\n", "\u{202e}a\u{1b}[2K\n", "- a\n+ \\u{202e}a\\u{1b}[2K"),
            (
                "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
                "1\n2\nX\n4\n5\n6\n7\n8\nY\n",
                "  1\n  2\n- 3\n+ X\n  4\n  5\n…\n  7\n  8\n- 9\n+ Y",
            ),
            ("1\n2\n3\n4\n", "0\n1\n2\n3\n4\n5\n", "+ 0\n  1\n  2\n  3\n  4\n+ 5"),
        ] {
            assert_eq!(difference(old, new), shown, "{old:?} {new:?}");
        }
    }

    #[test]
    fn hostile_texts_are_compared_in_linear_time() {
        let old: String = (0..200_000).map(|line| ["a\n", "b\n", "c\n", "d\n", "e\n"][line % 5]).collect();
        let new: String = (0..200_000).map(|line| ["b\n", "c\n", "f\n"][line % 3]).collect();
        assert!(difference(&old, &new).len() > 400_000);
    }

    proptest! {
        #[test]
        fn the_changes_make_the_new_of_the_old(old in "[abcd\n]{0,40}", new in "[abcd\n]{0,40}") {
            let (old, new) = (lines(&old), lines(&new));
            let mut made = Vec::new();
            let mut at = 0;
            for LineChange { old: gone, new: come } in changes(&old, &new) {
                prop_assert!(gone.start >= at);
                made.extend_from_slice(&old[at..gone.start]);
                made.extend_from_slice(&new[come]);
                at = gone.end;
            }
            made.extend_from_slice(&old[at..]);
            prop_assert_eq!(made, new.clone());
            difference(&old.concat(), &new.concat());
        }
    }
}
