//! What a person types while a turn goes on: a line, and lines that wait for the end of the turn. Pure.

use std::collections::VecDeque;

use crate::draft::{self, DraftLine, DraftStep, LineKey};
use crate::terminal::style::{Style, Styles, fit, width};

/// What was typed and not said yet.
#[derive(Debug, Default)]
pub struct TypedAhead {
    line: DraftLine,
    /// Lines that are said when the turn is over, each as a turn of its own.
    waiting: VecDeque<WaitingLine>,
    /// Said to the turn that goes on, which has not heard it yet.
    told: Vec<String>,
    /// The beginning of a character.
    bytes: Vec<u8>,
}

/// What comes when the turn is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingLine {
    Text(String),
    /// Ctrl-D.
    End,
}

/// What a person wants of the turn that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnWish {
    /// That the model hears this before its next request.
    Say(String),
    /// To see the whole of what was cut.
    More,
}

/// Rows below all others on the terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypingRows {
    pub rows: Vec<String>,
    /// Where the cursor stands in the last one.
    pub cursor: usize,
}

const PROMPT: &str = "> ";
const HINT: &str = "Enter: after this turn · Tab: now · Ctrl-C: stop";
/// So much room a line has before the hint moves.
const USUAL: usize = 27;
/// So many lines that wait are shown.
const SHOWN: usize = 3;

impl TypedAhead {
    /// Takes keys that came together. Several lines at once were pasted: each waits for its turn.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<TurnWish> {
        self.bytes.extend_from_slice(bytes);
        let keys = draft::keys(&mut self.bytes);
        let (mut wishes, last) = (Vec::new(), keys.len().saturating_sub(1));
        for (number, key) in keys.into_iter().enumerate() {
            match key {
                // Within a paste it is a blank.
                LineKey::Tab if number == last => {
                    let text = self.take_line();
                    if !text.is_empty() {
                        self.told.push(text.clone());
                        wishes.push(TurnWish::Say(text));
                    }
                }
                LineKey::More => wishes.push(TurnWish::More),
                // A person who presses it wants nothing that a draft could give.
                LineKey::Escape => {}
                key => match self.line.press(key) {
                    DraftStep::Goes => {}
                    DraftStep::Done => {
                        let text = self.take_line();
                        if !text.is_empty() {
                            self.waiting.push_back(WaitingLine::Text(text));
                        }
                    }
                    DraftStep::Left => self.waiting.push_back(WaitingLine::End),
                },
            }
        }
        wishes
    }

    fn take_line(&mut self) -> String {
        std::mem::take(&mut self.line).text().trim().to_owned()
    }

    /// Text that was typed for the line elsewhere.
    pub fn insert(&mut self, text: &str) {
        self.line.insert(text);
    }

    /// The turn has heard this, which may be several texts in one.
    pub fn heard(&mut self, text: &str) {
        let mut rest = text;
        while let Some(first) = self.told.first() {
            let Some(behind) = rest.strip_prefix(first.as_str()) else { return };
            rest = behind.strip_prefix('\n').unwrap_or(behind);
            self.told.remove(0);
        }
    }

    /// The turn is over and came to its answer. What it has not heard is said before all else.
    pub fn go_on(&mut self, unheard: Vec<String>) {
        self.told.clear();
        unheard.into_iter().rev().for_each(|text| self.waiting.push_front(WaitingLine::Text(text)));
    }

    /// The turn is over and came to nothing: a person looks first at what they wanted to be said next.
    pub fn stand_still(&mut self, said: Option<String>, unheard: Vec<String>) {
        self.told.clear();
        let waiting = std::mem::take(&mut self.waiting).into_iter().filter_map(|line| match line {
            WaitingLine::Text(text) => Some(text),
            WaitingLine::End => None,
        });
        let said = said.filter(|said| !said.is_empty());
        let texts: Vec<String> = said.into_iter().chain(unheard).chain(waiting).collect();
        if !texts.is_empty() {
            let line = std::mem::take(&mut self.line).text();
            let texts = texts.into_iter().chain((!line.is_empty()).then_some(line));
            self.line.insert(&texts.collect::<Vec<_>>().join("\n"));
        }
    }

    /// What is said next, if that was typed already.
    pub fn next(&mut self) -> Option<WaitingLine> {
        self.waiting.pop_front()
    }

    /// What the next prompt begins with, before and behind its cursor.
    pub fn take_draft(&mut self) -> (String, String) {
        std::mem::take(&mut self.line).halves()
    }

    /// As it is seen, in at most this many columns; nothing if nothing was typed.
    pub fn rows(&self, columns: usize, styles: Styles) -> TypingRows {
        let told = self.told.iter().map(|text| (text.as_str(), "now"));
        let waiting = self.waiting.iter().map(|line| match line {
            WaitingLine::Text(text) => (text.as_str(), "after this turn"),
            WaitingLine::End => ("Ctrl-D", "after this turn"),
        });
        let said: Vec<(&str, &str)> = told.chain(waiting).collect();
        let hidden = said.len().saturating_sub(SHOWN);
        let mut rows: Vec<String> = said[..said.len() - hidden]
            .iter()
            .map(|(text, when)| {
                let room = columns.saturating_sub(width(when) + 5).max(8);
                styles.paint(Style::Dim, &fit(&format!("> {} · {when}", fit(text, room)), columns))
            })
            .collect();
        if hidden > 0 {
            rows.push(styles.paint(Style::Dim, &format!("  … {hidden} more")));
        }
        if self.line.is_empty() {
            // The cursor stands behind what waits.
            let cursor = rows.last().map_or(0, |_| columns.saturating_sub(1));
            return TypingRows { rows, cursor };
        }
        let (text, column) = self.line.shown(columns.saturating_sub(width(PROMPT)));
        let typed = format!("{PROMPT}{text}");
        let gap = USUAL.saturating_sub(width(&typed)).max(2);
        let has_room = width(&typed) + gap + width(HINT) <= columns;
        let hint = if has_room { " ".repeat(gap) + &styles.paint(Style::Dim, HINT) } else { String::new() };
        rows.push(typed + &hint);
        TypingRows { rows, cursor: width(PROMPT) + column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Styles = Styles { coloured: false };

    fn typed(reads: &[&str]) -> (TypedAhead, Vec<TurnWish>) {
        let mut ahead = TypedAhead::default();
        let wishes = reads.iter().flat_map(|bytes| ahead.read(bytes.as_bytes())).collect();
        (ahead, wishes)
    }

    fn waiting(ahead: &mut TypedAhead) -> Vec<String> {
        std::iter::from_fn(|| ahead.next())
            .map(|line| match line {
                WaitingLine::Text(text) => text,
                WaitingLine::End => "^D".to_owned(),
            })
            .collect()
    }

    #[test]
    fn lines_wait_and_an_unfinished_one_is_the_next_draft() {
        for reads in [&["second\rthird\rfour"][..], &["sec", "ond\r", "third", "\r", "fo", "ur"]] {
            let (mut ahead, wishes) = typed(reads);
            assert_eq!((wishes, waiting(&mut ahead)), (vec![], vec!["second".to_owned(), "third".to_owned()]));
            assert_eq!(ahead.take_draft(), ("four".to_owned(), String::new()));
        }
        let (mut ahead, _) = typed(&["\r  \r", "\u{4}"]);
        assert_eq!(waiting(&mut ahead), ["^D"]);
        assert_eq!(typed(&["ab\u{1b}[D"]).0.take_draft(), ("a".to_owned(), "b".to_owned()));
    }

    #[test]
    fn tab_says_the_line_now_and_is_a_blank_within_a_paste() {
        let say = |text: &str| TurnWish::Say(text.to_owned());
        assert_eq!(typed(&["be brief\t"]).1, [say("be brief")]);
        assert_eq!(typed(&["be brief", "\t"]).1, [say("be brief")]);
        assert_eq!(typed(&["\t"]).1, []);
        let (mut ahead, wishes) = typed(&["a\tb\rc"]);
        assert_eq!((wishes, waiting(&mut ahead)), (vec![], vec!["a b".to_owned()]));
        assert_eq!(typed(&["\u{f}"]).1, [TurnWish::More]);
    }

    #[test]
    fn what_was_not_heard_is_said_first_and_after_a_stop_nothing_by_itself() {
        let mut ahead = typed(&["later\r", "now\t", "dra"]).0;
        ahead.go_on(vec!["now".to_owned()]);
        assert_eq!(waiting(&mut ahead), ["now", "later"]);
        let mut ahead = typed(&["later\r", "now\t", "dra"]).0;
        ahead.stand_still(Some("said".to_owned()), vec!["now".to_owned()]);
        assert_eq!(ahead.next(), None);
        assert_eq!(ahead.take_draft().0, "said\nnow\nlater\ndra");
    }

    #[test]
    fn what_is_typed_is_seen_below_what_waits() {
        let ahead = typed(&["and who wrote it?"]).0;
        let rows = ahead.rows(79, PLAIN);
        assert_eq!(rows.rows, ["> and who wrote it?        Enter: after this turn · Tab: now · Ctrl-C: stop"]);
        assert_eq!(rows.cursor, 19);
        assert_eq!(ahead.rows(40, PLAIN).rows, ["> and who wrote it?"]);
        let mut ahead = typed(&["1\r2\r3\r4\r", "5\t"]).0;
        let rows = ahead.rows(79, PLAIN).rows;
        assert_eq!(rows, ["> 5 · now", "> 1 · after this turn", "> 2 · after this turn", "  … 2 more"]);
        ahead.heard("5");
        assert_eq!(ahead.rows(79, PLAIN).rows[0], "> 1 · after this turn");
        assert_eq!(typed(&[]).0.rows(79, PLAIN), TypingRows::default());
    }

    proptest::proptest! {
        #[test]
        fn no_row_is_too_wide(reads in proptest::collection::vec("[a-z日\\r\\t ]{0,40}", 0..6), columns in 20..90usize) {
            let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
            let shown = typed(&reads).0.rows(columns, PLAIN);
            proptest::prop_assert!(shown.rows.iter().all(|row| width(row) <= columns), "{shown:?}");
            proptest::prop_assert!(shown.cursor < columns);
        }
    }
}
