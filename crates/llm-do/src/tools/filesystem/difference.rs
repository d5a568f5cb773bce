//! What a write changes, line by line, for the approver. The file as it is and the lines that are shown give the exact bytes that
//! would be written: nothing is left out, and no two texts look the same.

use std::collections::HashMap;
use std::ops::Range;

use crate::escape::deceives;

/// Lines that stay, shown around those that change.
const SHOWN_AROUND: usize = 2;

/// What changes in a text.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    /// The lines that go and come, each in full, with a little of what stays. Every line begins with its number: of the text as it is
    /// for a line that goes, else of the text as it would be. Behind it is a `\` if the line has characters that cannot be seen: then
    /// these are escapes, and `\` is `\\`. Then its sign.
    pub shown: String,
    pub added: usize,
    pub removed: usize,
}

impl Difference {
    /// What goes from the old text and comes with the new one.
    pub(crate) fn between(old: &str, new: &str) -> Self {
        let (old, new) = (lines(old), lines(new));
        let changes = changes(&old, &new);
        let digits = old.len().max(new.len()).to_string().len().max(4);
        let (mut shown, mut added, mut removed) = (String::new(), 0, 0);
        let show = |shown: &mut String, sign: char, at: usize, line: &str| show_line(shown, digits, sign, at, line);
        let mut kept = changes.first().map_or(0, |first| first.old.start.saturating_sub(SHOWN_AROUND));
        // How far a line that stays has moved.
        let mut moved = 0_isize;
        for (index, change) in changes.iter().enumerate() {
            let stays = |at: usize| at.saturating_add_signed(moved);
            (kept..change.old.start).for_each(|at| show(&mut shown, ' ', stays(at), old[at]));
            change.old.clone().for_each(|at| show(&mut shown, '-', at, old[at]));
            change.new.clone().for_each(|at| show(&mut shown, '+', at, new[at]));
            (added, removed) = (added + change.new.len(), removed + change.old.len());
            moved = change.new.end.cast_signed() - change.old.end.cast_signed();
            let is_last = index + 1 == changes.len();
            let next = changes.get(index + 1).map_or(old.len() + SHOWN_AROUND, |next| next.old.start);
            kept = change.old.end;
            if next - kept > 2 * SHOWN_AROUND || is_last {
                let end = (kept + SHOWN_AROUND).min(old.len());
                (kept..end).for_each(|at| show(&mut shown, ' ', at.saturating_add_signed(moved), old[at]));
                kept = next.saturating_sub(SHOWN_AROUND);
            }
            if next - change.old.end > 2 * SHOWN_AROUND && !is_last {
                shown.push_str(&format!("{:>digits$}\n", "…"));
            }
        }
        // The end of the last line: no line is empty, since each has its number.
        shown.pop();
        Self { shown, added, removed }
    }

    /// How much comes and goes.
    pub(crate) fn amount(&self) -> String {
        let lines = |count: usize| if count == 1 { "1 line".to_owned() } else { format!("{count} lines") };
        match (self.added, self.removed) {
            (0, 0) => "it stays as it is".to_owned(),
            (added, 0) => format!("{} added", lines(added)),
            (0, removed) => format!("{} removed", lines(removed)),
            (added, removed) => format!("{} added, {removed} removed", lines(added)),
        }
    }
}

/// The lines of a text with their ends, so that a change of those is a change.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn show_line(shown: &mut String, digits: usize, sign: char, at: usize, line: &str) {
    let text = line.strip_suffix('\n').unwrap_or(line);
    let number = at + 1;
    if text.chars().any(deceives) {
        shown.push_str(&format!("{number:>digits$}\\{sign} "));
        let escape = |c: char| deceives(c) || c == '\\';
        text.chars().for_each(|c| if escape(c) { shown.extend(c.escape_default()) } else { shown.push(c) });
    } else {
        shown.push_str(&format!("{number:>digits$} {sign} {text}"));
    }
    shown.push('\n');
    if !line.ends_with('\n') {
        shown.push_str(&format!("{:digits$}   (no line break at the end)\n", ""));
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

    fn difference(old: &str, new: &str) -> String {
        Difference::between(old, new).shown
    }

    #[test]
    fn a_difference_shows_what_goes_and_what_comes() {
        for (old, new, shown, amount) in [
            (
                "a\nb\nc\nd\n",
                "a\nb\nX\nd\n",
                "   1   a\n   2   b\n   3 - c\n   3 + X\n   4   d",
                "1 line added, 1 removed",
            ),
            ("", "new\n", "   1 + new", "1 line added"),
            ("same", "same", "", "it stays as it is"),
            ("a\na\n", "a\n", "   1   a\n   2 - a", "1 line removed"),
            ("a\n", "a", "   1 - a\n   1 + a\n       (no line break at the end)", "1 line added, 1 removed"),
            ("a\n", "a\r\n", "   1 - a\n   1\\+ a\\r", "1 line added, 1 removed"),
            (
                "a\n",
                "\u{202e}a\\n\u{1b}[2K\n\\n\n日本\n",
                "   1 - a\n   1\\+ \\u{202e}a\\\\n\\u{1b}[2K\n   2 + \\n\n   3 + 日本",
                "3 lines added, 1 removed",
            ),
            (
                "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
                "1\n2\nX\nY\n4\n5\n6\n7\n8\nZ\n",
                "   1   1\n   2   2\n   3 - 3\n   3 + X\n   4 + Y\n   5   4\n   6   5\n   …\n   8   7\n   9   8\n   9 - 9\n  10 + Z",
                "3 lines added, 2 removed",
            ),
            (
                "1\n2\n3\n4\n",
                "0\n1\n2\n3\n4\n5\n",
                "   1 + 0\n   2   1\n   3   2\n   4   3\n   5   4\n   6 + 5",
                "2 lines added",
            ),
        ] {
            let difference = Difference::between(old, new);
            assert_eq!(difference.shown, shown, "{old:?} {new:?}");
            assert_eq!(difference.amount(), amount, "{old:?} {new:?}");
        }
    }

    /// What could be taken for something else: ends of lines, escapes, numbers, signs and our own words.
    const PIECES: [&str; 16] = [
        "\n",
        "\n",
        "\n",
        "a\n",
        "a",
        "b",
        "\\",
        "\\n",
        "\\u{202e}",
        "\t",
        "\r",
        "\u{202e}",
        "   1 + ",
        "7",
        "日本",
        "       (no line break at the end)",
    ];

    /// What a person who has the file and the shown lines knows of the new content.
    fn written_again(old: &str, shown: &str) -> String {
        let old = lines(old);
        let (mut written, mut at_old, mut was_removed): (Vec<String>, usize, bool) = (Vec::new(), 0, false);
        for line in shown.lines() {
            let number = line.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap();
            let Ok(number) = number.parse::<usize>() else {
                if line.trim() == "(no line break at the end)" && !was_removed {
                    written.last_mut().unwrap().pop();
                }
                continue;
            };
            let rest = &line[line.find(|c: char| c.is_ascii_digit()).unwrap() + number.to_string().len()..];
            let (mark, sign, text) = (&rest[..1], &rest[1..2], &rest[3..]);
            was_removed = sign == "-";
            let unshown = number - 1 - if was_removed { at_old } else { written.len() };
            written.extend(old[at_old..at_old + unshown].iter().map(|line| (*line).to_owned()));
            at_old += unshown + usize::from(sign != "+");
            if !was_removed {
                let text = if mark == "\\" { unescaped(text) } else { text.to_owned() };
                written.push(format!("{text}\n"));
            }
        }
        written.extend(old[at_old..].iter().map(|line| (*line).to_owned()));
        written.concat()
    }

    /// The characters that were escaped.
    fn unescaped(text: &str) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('\\') {
            out.push_str(&rest[..at]);
            let (escape, length) = match &rest[at + 1..at + 2] {
                "u" => {
                    let end = rest[at..].find('}').unwrap();
                    (char::from_u32(u32::from_str_radix(&rest[at + 3..at + end], 16).unwrap()).unwrap(), end + 1)
                }
                "n" => ('\n', 2),
                "r" => ('\r', 2),
                "t" => ('\t', 2),
                other => (other.chars().next().unwrap(), 2),
            };
            out.push(escape);
            rest = &rest[at + length..];
        }
        out + rest
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

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]
        #[test]
        fn the_file_and_the_shown_lines_give_the_bytes_to_be_written(
            old in proptest::collection::vec(0..PIECES.len(), 0..24),
            new in proptest::collection::vec(0..PIECES.len(), 0..24),
        ) {
            let [old, new] = [old, new].map(|text| text.into_iter().map(|piece| PIECES[piece]).collect::<String>());
            prop_assert_eq!(written_again(&old, &difference(&old, &new)), new);
        }
    }
}
