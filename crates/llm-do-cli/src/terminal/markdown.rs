//! Markdown on a terminal, piece by piece as the text arrives: marks become style, words stay. What is written is a function
//! of the whole text, however it is cut into pieces; what could deceive is escaped. Pure.

mod code;
mod flow;
mod inline;
mod line;
mod look;
mod table;
#[cfg(test)]
mod tests;

use llm_do::escape::is_deceptive;

use self::code::{CodeLanguage, Painter};
use self::flow::Flow;
use self::inline::InlineReader;
use self::line::{LineStart, Opening};
use self::look::Appearance;

/// What becomes of the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkdownForm {
    /// They become style.
    Styled,
    /// They stay, and nothing has a style.
    Source,
}

/// Where in a text we are.
#[derive(Debug)]
pub enum Markdown {
    Styled(Box<MarkdownPage>),
    /// Whether a line is open, and what stands before.
    Source(Option<char>),
}

impl Markdown {
    pub fn new(form: MarkdownForm, columns: usize) -> Self {
        match form {
            MarkdownForm::Styled => Self::Styled(Box::new(MarkdownPage::new(columns))),
            MarkdownForm::Source => Self::Source(None),
        }
    }

    /// How wide the terminal is now.
    pub fn set_columns(&mut self, columns: usize) {
        if let Self::Styled(page) = self {
            page.columns = columns.max(1);
            page.flow.set_columns(columns);
        }
    }

    /// Whether something stands on a line that has no end yet.
    pub fn is_within_line(&self) -> bool {
        match self {
            Self::Styled(page) => page.flow.is_within_row(),
            Self::Source(previous) => previous.is_some_and(|c| c != '\n'),
        }
    }

    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 16);
        match self {
            Self::Styled(page) => page.push(text, &mut out),
            Self::Source(previous) => *previous = plain_text(text, *previous, &mut out),
        }
        out
    }

    /// Nothing follows for a while: a word that has no end yet is shown as far as it has come.
    pub fn show_early(&mut self) -> String {
        let mut out = String::new();
        if let Self::Styled(page) = self
            && let PageState::Text = page.state
        {
            page.flow.show_early(&mut out);
        }
        out
    }

    /// Something else is to be written: what was held is, and the last line gets its end. The text goes on later.
    pub fn pause(&mut self) -> String {
        match self {
            Self::Source(_) => self.finish(),
            Self::Styled(page) => {
                let mut out = String::new();
                page.finish(&mut out);
                out
            }
        }
    }

    /// The text is over: what was held is written, and the last line gets its end.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        match self {
            Self::Styled(page) => {
                page.finish(&mut out);
                **page = MarkdownPage::new(page.columns);
            }
            Self::Source(previous) => {
                if previous.take().is_some_and(|c| c != '\n') {
                    out.push('\n');
                }
            }
        }
        out
    }
}

/// A sign as it is, unless it deceives.
fn plain(c: char, previous: Option<char>, out: &mut String) {
    match c {
        '\n' => out.push('\n'),
        '\t' => out.push_str("    "),
        // These belong to an emoji: they change how the sign before them looks, and not where anything stands.
        '\u{fe0f}' | '\u{200d}' if previous.is_some_and(|before| !before.is_ascii_alphanumeric()) => out.push(c),
        c if is_deceptive(c) => out.extend(c.escape_default()),
        c => out.push(c),
    }
}

/// A text whose marks become style.
#[derive(Debug)]
pub struct MarkdownPage {
    columns: usize,
    flow: Flow,
    inline: InlineReader,
    state: PageState,
    /// Lines of what may be a table.
    table: Vec<String>,
}

#[derive(Debug)]
enum PageState {
    /// It is not known yet what the line is.
    Start(String),
    /// Words that are shown as they come.
    Text,
    /// A row of a table, so far.
    Row(String),
    /// Code, and the present line of it.
    Code { fence: CodeFence, line: String },
}

/// What encloses code.
#[derive(Debug)]
struct CodeFence {
    mark: char,
    count: usize,
    painter: Option<Painter>,
}

/// A table is no longer than this, nor is a line of code or of a table.
const MOST_ROWS: usize = 500;
const LONGEST_LINE: usize = 8_000;

impl MarkdownPage {
    fn new(columns: usize) -> Self {
        let columns = columns.max(1);
        Self {
            columns,
            flow: Flow::new(columns),
            inline: InlineReader::default(),
            state: PageState::Start(String::new()),
            table: Vec::new(),
        }
    }

    fn push(&mut self, mut text: &str, out: &mut String) {
        while let Some(c) = text.chars().next() {
            let taken = self.take_many(text, out);
            if taken > 0 {
                text = text.get(taken..).unwrap_or_default();
                continue;
            }
            self.take(c, out);
            text = text.get(c.len_utf8()..).unwrap_or_default();
        }
    }

    /// Takes what the text begins with and needs no look at every character; gives how many bytes that is.
    fn take_many(&mut self, text: &str, out: &mut String) -> usize {
        match &mut self.state {
            PageState::Text => self.inline.take_plain(text, &mut self.flow, out),
            PageState::Row(line) | PageState::Code { line, .. } => {
                let part = text.find('\n').map_or(text, |end| &text[..end]);
                if line.len() + part.len() > LONGEST_LINE {
                    return 0;
                }
                line.push_str(part);
                part.len()
            }
            PageState::Start(_) => 0,
        }
    }

    fn take(&mut self, c: char, out: &mut String) {
        match &mut self.state {
            PageState::Text if c == '\n' => {
                self.inline.end(&mut self.flow, out);
                self.flow.end_line(out);
                self.state = PageState::Start(String::new());
            }
            PageState::Text => self.inline.take(c, &mut self.flow, out),
            PageState::Start(start) => {
                let opening = if c == '\n' {
                    Some(line::at_end(start))
                } else {
                    start.push(c);
                    line::so_far(start)
                };
                if let Some(opening) = opening {
                    let start = std::mem::take(start);
                    self.open(opening, &start, out);
                    if c == '\n' {
                        self.end_opened(out);
                    }
                }
            }
            PageState::Row(row) => {
                if c == '\n' || row.len() >= LONGEST_LINE {
                    let row = std::mem::take(row);
                    self.state = PageState::Start(String::new());
                    self.end_row(row, out);
                    // A row that is too long goes on as a line of its own.
                    if c != '\n' {
                        self.take(c, out);
                    }
                } else {
                    row.push(c);
                }
            }
            PageState::Code { fence, line } => {
                if c != '\n' && line.len() < LONGEST_LINE {
                    line.push(c);
                    return;
                }
                let code = std::mem::take(line);
                if c == '\n' && fence.is_closed_by(&code) {
                    dim(&format!("{}──\n", indent(&code)), out);
                    self.state = PageState::Start(String::new());
                    return;
                }
                fence.write(&code, out);
                out.push('\n');
                if c != '\n' {
                    line.push(c);
                }
            }
        }
    }

    /// What the line is has been found out; what it begins with is written.
    fn open(&mut self, opening: Opening, start: &str, out: &mut String) {
        if !matches!(opening, Opening::Row) {
            self.end_table(out);
        }
        match opening {
            Opening::Row => self.state = PageState::Row(start.to_owned()),
            Opening::Empty => self.state = PageState::Text,
            Opening::Rule => {
                dim(&"─".repeat(self.columns.min(60)), out);
                self.state = PageState::Text;
            }
            Opening::Fence { mark, count, info } => {
                let label = if info.is_empty() { String::new() } else { format!(" {}", harmless(&info)) };
                dim(&format!("{}──{label}\n", indent(start)), out);
                let painter = CodeLanguage::named(&info).map(Painter::new);
                self.state = PageState::Code { fence: CodeFence { mark, count, painter }, line: String::new() };
            }
            Opening::Words(line) => self.begin_words(&line, out),
        }
    }

    fn begin_words(&mut self, line: &LineStart, out: &mut String) {
        let look = match line.heading {
            None => Appearance::PLAIN,
            Some(1) => Appearance::BOLD.with(Appearance::UNDERLINED),
            Some(_) => Appearance::BOLD,
        };
        let (first, further) = (line.margin(true), line.margin(false));
        self.flow.begin((&first.0, first.1), further, out);
        self.flow.set_look(look);
        self.inline = InlineReader::new(look);
        self.state = PageState::Text;
        line.rest.chars().for_each(|c| self.inline.take(c, &mut self.flow, out));
    }

    /// The line that was opened is over at once.
    fn end_opened(&mut self, out: &mut String) {
        match self.state {
            PageState::Text | PageState::Row(_) => self.take('\n', out),
            PageState::Start(_) | PageState::Code { .. } => {}
        }
    }

    fn end_row(&mut self, row: String, out: &mut String) {
        match self.table.len() {
            // It was none.
            1 if !table::is_delimiter(&row) => {
                self.end_table(out);
                self.table.push(row);
            }
            _ => self.table.push(row),
        }
        if self.table.len() >= MOST_ROWS {
            self.end_table(out);
        }
    }

    /// The table that was held is drawn; what was none is text.
    fn end_table(&mut self, out: &mut String) {
        let lines = std::mem::take(&mut self.table);
        if lines.len() > 1 {
            table::draw(&lines, self.columns, out);
            return;
        }
        for text in lines {
            self.begin_words(&line::words(&text), out);
            self.inline.end(&mut self.flow, out);
            self.flow.end_line(out);
        }
    }

    fn finish(&mut self, out: &mut String) {
        let is_open = match &self.state {
            PageState::Text | PageState::Row(_) => true,
            PageState::Start(start) => !start.is_empty(),
            PageState::Code { line, .. } => !line.is_empty(),
        };
        if is_open {
            self.take('\n', out);
        }
        self.end_table(out);
    }
}

impl CodeFence {
    fn is_closed_by(&self, line: &str) -> bool {
        let marks = line.trim();
        marks.len() >= self.count && marks.chars().all(|c| c == self.mark)
    }

    fn write(&mut self, code: &str, out: &mut String) {
        let pieces =
            self.painter.as_mut().map_or_else(|| vec![(code, Appearance::PLAIN)], |painter| painter.paint(code));
        let mut previous = None;
        for (piece, look) in pieces {
            Appearance::PLAIN.change(look, out);
            previous = plain_text(piece, previous, out);
            look.change(Appearance::PLAIN, out);
        }
    }
}

/// The same for a text; gives its last sign.
fn plain_text(text: &str, mut previous: Option<char>, out: &mut String) -> Option<char> {
    // Nearly all that comes is plain.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        out.push_str(text);
        return text.chars().next_back().or(previous);
    }
    for c in text.chars() {
        plain(c, previous, out);
        previous = Some(c);
    }
    previous
}

fn dim(text: &str, out: &mut String) {
    Appearance::PLAIN.change(Appearance::DIM, out);
    out.push_str(text.trim_end_matches('\n'));
    Appearance::DIM.change(Appearance::PLAIN, out);
    out.push_str(if text.ends_with('\n') { "\n" } else { "" });
}

/// The blanks that a line begins with.
fn indent(line: &str) -> String {
    line.chars().take_while(|c| *c == ' ').collect()
}

fn harmless(text: &str) -> String {
    let mut out = String::new();
    plain_text(text, None, &mut out);
    out
}
