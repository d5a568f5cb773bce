//! Words in rows: a row ends before the word that would not fit into it. Pure.

use llm_do::escape::is_deceptive;
use unicode_width::UnicodeWidthChar as _;

use super::look::Appearance;

/// Writes one line after the other, each in as many rows as it needs. A word is written when it has ended, or as far as it has come
/// when nothing follows for a while; then it is taken back if its row turns out to be too short for it.
#[derive(Debug)]
pub struct Flow {
    columns: usize,
    /// Columns of the present row that are taken.
    used: usize,
    /// What further rows of the line begin with, and its width.
    margin: (String, usize),
    /// Blanks before the word, which no row ends with.
    gap: usize,
    word: String,
    word_width: usize,
    /// As much of the word as is written, if it is before its end.
    early: Option<EarlyWord>,
    /// The look at the end of the word, and where it begins.
    look: Appearance,
    look_before: Appearance,
    previous: Option<char>,
}

/// The beginning of a word that was written before its end.
#[derive(Clone, Copy, Debug)]
struct EarlyWord {
    bytes: usize,
    /// The look behind it.
    look: Appearance,
}

impl Flow {
    pub fn new(columns: usize) -> Self {
        Self {
            columns: columns.max(1),
            used: 0,
            margin: (String::new(), 0),
            gap: 0,
            word: String::new(),
            word_width: 0,
            early: None,
            look: Appearance::PLAIN,
            look_before: Appearance::PLAIN,
            previous: None,
        }
    }

    /// Rows that begin from now on are this wide.
    pub fn set_columns(&mut self, columns: usize) {
        self.columns = columns.max(1);
    }

    /// Whether something stands on the present row.
    pub fn is_within_row(&self) -> bool {
        self.used > 0 || self.early.is_some()
    }

    /// Nothing follows for a while: the word is shown as far as it has come.
    pub fn show_early(&mut self, out: &mut String) {
        if self.word_width == 0 || self.used + self.gap + self.word_width > self.columns {
            return;
        }
        if self.early.is_none() {
            out.extend(std::iter::repeat_n(' ', self.gap));
        }
        let written = self.early.map_or(0, |early| early.bytes);
        out.push_str(&self.word[written..]);
        self.early = Some(EarlyWord { bytes: self.word.len(), look: self.look });
    }

    /// What comes from now on looks like this.
    pub fn set_look(&mut self, look: Appearance) {
        self.look.change(look, &mut self.word);
        self.look = look;
    }

    /// Begins a line: what its first row and the others begin with, each with its width.
    pub fn begin(&mut self, first: (&str, usize), further: (String, usize), out: &mut String) {
        out.push_str(first.0);
        self.used = first.1;
        // On a narrow terminal the words are worth more than the margin.
        self.margin = if further.1 * 2 > self.columns { (String::new(), 0) } else { further };
    }

    /// Letters and signs of ASCII that mean nothing here and have no blanks among them.
    pub fn put_plain(&mut self, text: &str, out: &mut String) {
        let Some(last) = text.bytes().next_back() else { return };
        self.part_from_wide(out);
        self.word.push_str(text);
        self.word_width += text.len();
        self.previous = Some(char::from(last));
        self.spill(out);
    }

    pub fn put(&mut self, c: char, out: &mut String) {
        match c {
            ' ' => self.blank(1, out),
            '\t' => self.blank(4, out),
            // These belong to an emoji: they change how the sign before them looks, and not where anything stands.
            '\u{fe0f}' | '\u{200d}' if self.previous.is_some_and(|before| !before.is_ascii_alphanumeric()) => {
                self.word.push(c);
                self.previous = Some(c);
            }
            '!'..='~' => self.put_plain(c.encode_utf8(&mut [0; 4]), out),
            c if is_deceptive(c) => {
                self.part_from_wide(out);
                let before = self.word.len();
                self.word.extend(c.escape_default());
                self.word_width += self.word.len() - before;
                self.previous = Some(c);
                self.spill(out);
            }
            c => self.letter(c, out),
        }
    }

    fn letter(&mut self, c: char, out: &mut String) {
        let width = c.width().unwrap_or(0);
        if is_wide(c) && !ends_a_clause(c) && self.previous != Some('\u{200d}') {
            self.end_word(out);
        } else if width > 0 && !ends_a_clause(c) {
            self.part_from_wide(out);
        }
        self.word.push(c);
        self.word_width += width;
        if width > 0 {
            self.previous = Some(c);
        }
        self.spill(out);
    }

    /// Scripts without blanks may be parted behind every letter, but not before the sign that ends a clause.
    fn part_from_wide(&mut self, out: &mut String) {
        if self.previous.is_some_and(is_wide) {
            self.end_word(out);
        }
    }

    fn blank(&mut self, count: usize, out: &mut String) {
        self.end_word(out);
        self.gap += count;
        self.previous = Some(' ');
    }

    /// A word that is wider than a row is written as it comes: the terminal parts it, and it can still be copied whole.
    fn spill(&mut self, out: &mut String) {
        if self.word_width > self.columns {
            self.end_word(out);
            self.look_before = self.look;
        }
    }

    /// Writes the word, on a new row if it does not fit into this one.
    fn end_word(&mut self, out: &mut String) {
        let mut early = self.early.take();
        if self.word_width > 0 {
            if self.used + self.gap + self.word_width <= self.columns {
                let gap = if early.is_some() { 0 } else { self.gap };
                out.extend(std::iter::repeat_n(' ', gap));
                self.used += self.gap + self.word_width;
            } else {
                // A piece of a word that was too wide goes on where the piece before it ended.
                if self.used > self.margin.1 && !self.goes_on() {
                    self.take_back(early.take(), out);
                    self.new_row(out);
                } else if self.gap > 0 {
                    self.take_back(early.take(), out);
                }
                self.used += self.word_width;
            }
            self.gap = 0;
        }
        out.push_str(&self.word[early.map_or(0, |early| early.bytes)..]);
        self.word.clear();
        self.word_width = 0;
        self.look_before = self.look;
    }

    /// What was written of a word is taken away again.
    fn take_back(&self, early: Option<EarlyWord>, out: &mut String) {
        const CLEAR_REST: &str = "\u{1b}[K";
        let Some(early) = early else { return };
        early.look.change(Appearance::PLAIN, out);
        out.push('\r');
        if self.used > 0 {
            out.push_str(&format!("\u{1b}[{}C", self.used));
        }
        out.push_str(CLEAR_REST);
        Appearance::PLAIN.change(self.look_before, out);
    }

    fn goes_on(&self) -> bool {
        self.used > self.columns && self.gap == 0
    }

    fn new_row(&mut self, out: &mut String) {
        self.look_before.change(Appearance::PLAIN, out);
        out.push('\n');
        out.push_str(&self.margin.0);
        Appearance::PLAIN.change(self.look_before, out);
        self.used = self.margin.1;
    }

    /// Ends the line; no look runs on into the next one.
    pub fn end_line(&mut self, out: &mut String) {
        self.set_look(Appearance::PLAIN);
        self.end_word(out);
        out.push('\n');
        (self.used, self.gap, self.previous) = (0, 0, None);
    }
}

/// Whether words of its script stand side by side without blanks.
fn is_wide(c: char) -> bool {
    !c.is_ascii() && c.width() == Some(2)
}

fn ends_a_clause(c: char) -> bool {
    "、。，．！？：；」』）】》〉〕ー".contains(c)
}
