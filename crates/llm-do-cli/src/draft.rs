//! A line that is being typed: text, a cursor, and the keys that change them. Pure; whoever reads the keys draws it.

use unicode_width::UnicodeWidthChar as _;

/// A key of a line, decoded from what a terminal sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKey {
    Character(char),
    Enter,
    Escape,
    Backspace,
    Delete,
    Left,
    Right,
    Home,
    End,
    /// What stands before the cursor goes: all of it, or the last word.
    KillBefore,
    KillWord,
    /// What stands behind it goes.
    KillBehind,
    /// Ctrl-D.
    EndOfInput,
    /// A blank in most lines.
    Tab,
    /// Ctrl-O.
    More,
    /// Anything else.
    Other,
}

/// A line and where the next character goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftLine {
    text: Vec<char>,
    /// Before the character of this number.
    cursor: usize,
}

/// What a key made of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftStep {
    Goes,
    Done,
    /// The person does not want it any more.
    Left,
}

/// A longer line is not typed by a person.
const LONGEST: usize = 64 * 1024;

impl DraftLine {
    pub fn text(&self) -> String {
        self.text.iter().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// What stands before the cursor, and what behind it.
    pub fn halves(&self) -> (String, String) {
        let (before, behind) = self.text.split_at(self.cursor);
        (before.iter().collect(), behind.iter().collect())
    }

    /// Puts a text where the cursor stands. It may have line ends, which are shown as signs.
    pub fn insert(&mut self, text: &str) {
        let room = LONGEST.saturating_sub(self.text.len());
        let inserted: Vec<char> = text.chars().take(room).collect();
        let end = self.cursor + inserted.len();
        self.text.splice(self.cursor..self.cursor, inserted);
        self.cursor = end;
    }

    pub fn press(&mut self, key: LineKey) -> DraftStep {
        match key {
            LineKey::Character(c) if self.text.len() < LONGEST => {
                self.text.insert(self.cursor, c);
                self.cursor += 1;
            }
            LineKey::Tab => return self.press(LineKey::Character(' ')),
            LineKey::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.cursor);
            }
            LineKey::Delete | LineKey::EndOfInput if self.cursor < self.text.len() => {
                self.text.remove(self.cursor);
            }

            LineKey::Left => self.cursor = self.cursor.saturating_sub(1),
            LineKey::Right => self.cursor = (self.cursor + 1).min(self.text.len()),
            LineKey::Home => self.cursor = 0,
            LineKey::End => self.cursor = self.text.len(),
            LineKey::KillBefore => self.kill(0),
            LineKey::KillWord => {
                let before = &self.text[..self.cursor];
                let word = before.iter().rposition(|c| !c.is_whitespace()).map_or(0, |end| {
                    before[..end].iter().rposition(|c| c.is_whitespace()).map_or(0, |blank| blank + 1)
                });
                self.kill(word);
            }
            LineKey::KillBehind => self.text.truncate(self.cursor),
            LineKey::Enter => return DraftStep::Done,
            LineKey::Escape => return DraftStep::Left,
            LineKey::EndOfInput if self.text.is_empty() => return DraftStep::Left,
            LineKey::Character(_)
            | LineKey::Backspace
            | LineKey::Delete
            | LineKey::EndOfInput
            | LineKey::More
            | LineKey::Other => {}
        }
        DraftStep::Goes
    }

    fn kill(&mut self, from: usize) {
        self.text.drain(from..self.cursor);
        self.cursor = from;
    }

    /// As much of it as fits into so many columns, around the cursor, and in which column that stands.
    pub fn shown(&self, columns: usize) -> (String, usize) {
        let columns = columns.max(2);
        let sign = |c: char| if c == '\n' { '⏎' } else { c };
        let width = |c: &char| sign(*c).width().unwrap_or(0);
        let mut from = 0;
        let used = |from: usize| self.text[from..self.cursor].iter().map(width).sum::<usize>();
        while used(from) >= columns {
            from += 1;
        }
        let (mut shown, mut room) = (String::new(), columns);
        for c in &self.text[from..] {
            match room.checked_sub(width(c)) {
                Some(left) if left > 0 => room = left,
                _ => break,
            }
            shown.push(sign(*c));
        }
        (shown, used(from))
    }
}

/// The keys in bytes that a terminal sent together. Bytes of a character that is not whole yet are left for the next ones.
pub fn keys(bytes: &mut Vec<u8>) -> Vec<LineKey> {
    let (text, used) = match str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), bytes.len()),
        Err(error) if error.error_len().is_none() => {
            let whole = error.valid_up_to();
            (String::from_utf8_lossy(&bytes[..whole]).into_owned(), whole)
        }
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), bytes.len()),
    };
    bytes.drain(..used);
    let (mut keys, mut rest) = (Vec::new(), text.as_str());
    while let Some(c) = rest.chars().next() {
        let (key, length) = if c == '\u{1b}' { sequence(rest) } else { (plain(c), c.len_utf8()) };
        keys.push(key);
        rest = &rest[length..];
    }
    keys
}

fn plain(c: char) -> LineKey {
    match c {
        '\r' | '\n' => LineKey::Enter,
        '\u{7f}' | '\u{8}' => LineKey::Backspace,
        '\u{1}' => LineKey::Home,
        '\u{5}' => LineKey::End,
        '\u{2}' => LineKey::Left,
        '\u{6}' => LineKey::Right,
        '\u{4}' => LineKey::EndOfInput,
        '\u{b}' => LineKey::KillBehind,
        '\u{15}' => LineKey::KillBefore,
        '\u{17}' => LineKey::KillWord,
        '\t' => LineKey::Tab,
        '\u{f}' => LineKey::More,
        c if llm_do::escape::is_deceptive(c) || c == char::REPLACEMENT_CHARACTER => LineKey::Other,
        c => LineKey::Character(c),
    }
}

/// A key that comes as several characters, and how many bytes these are. Escape alone is itself.
fn sequence(text: &str) -> (LineKey, usize) {
    let Some(inside) = text.strip_prefix("\u{1b}[").or_else(|| text.strip_prefix("\u{1b}O")) else {
        // Together with another character it is a key of its own, such as Alt-b.
        let behind = text[1..].chars().next();
        return behind.map_or((LineKey::Escape, 1), |c| (LineKey::Other, 1 + c.len_utf8()));
    };
    let Some(last) = inside.find(|c| ('@'..='~').contains(&c)) else { return (LineKey::Other, text.len()) };
    let key = match &inside[..=last] {
        "D" => LineKey::Left,
        "C" => LineKey::Right,
        "H" | "1~" | "7~" => LineKey::Home,
        "F" | "4~" | "8~" => LineKey::End,
        "3~" => LineKey::Delete,
        _ => LineKey::Other,
    };
    (key, 2 + last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &str) -> (DraftLine, Vec<DraftStep>) {
        let mut line = DraftLine::default();
        let steps = keys(&mut bytes.as_bytes().to_vec()).into_iter().map(|key| line.press(key)).collect();
        (line, steps)
    }

    #[test]
    fn a_line_is_edited_where_the_cursor_stands() {
        for (bytes, expected) in [
            ("no\u{1b}[D\u{1b}[Dplease ", "please no"),
            ("smörx\u{7f}", "smör"),
            ("abc\u{1b}OH\u{1b}[3~", "bc"),
            ("one two\u{17}", "one "),
            ("one two  \u{17}three", "one three"),
            ("ab\u{1b}[D\u{b}c", "ac"),
            ("ab\u{1b}[D\u{15}", "b"),
            ("a\u{1}b\u{5}c", "bac"),
            ("a\u{1b}bc", "ac"),
            ("\u{1b}[D\u{1b}[C\u{7f}\u{4}x\u{1b}[A\u{1b}[200~y", "xy"),
            ("日本\u{1b}[D語", "日語本"),
        ] {
            assert_eq!(typed(bytes).0.text(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn enter_ends_it_and_escape_leaves_it() {
        assert_eq!(typed("a\r").1, [DraftStep::Goes, DraftStep::Done]);
        assert_eq!(typed("a\u{1b}").1, [DraftStep::Goes, DraftStep::Left]);
        assert_eq!(typed("\u{4}").1, [DraftStep::Left]);
        assert_eq!(typed("a\u{4}").1, [DraftStep::Goes, DraftStep::Goes]);
    }

    #[test]
    fn half_a_character_waits_for_its_rest() {
        let mut bytes = "aö".as_bytes()[..2].to_vec();
        assert_eq!((keys(&mut bytes), bytes.len()), (vec![LineKey::Character('a')], 1));
        bytes.extend(&"ö".as_bytes()[1..]);
        assert_eq!((keys(&mut bytes), bytes.len()), (vec![LineKey::Character('ö')], 0));
        let mut wrong = vec![0xff, b'a'];
        assert_eq!((keys(&mut wrong), wrong.len()), (vec![LineKey::Other, LineKey::Character('a')], 0));
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_fits_and_holds_the_cursor(text in "[a-z日本 \\x1bD\\[C]{0,60}", columns in 2..30usize) {
            let (line, _) = typed(&text);
            let (shown, column) = line.shown(columns);
            let width: usize = shown.chars().map(|c| c.width().unwrap_or(0)).sum();
            proptest::prop_assert!(width < columns.max(2) && column < columns, "{shown:?} {column}");
        }
    }
}
