//! Marks within a line: bold, italics, code, links. A mark is held until its other one has come, and shown as it is if none
//! comes. Pure.

use super::flow::Flow;
use super::look::Appearance;

/// Reads one line.
#[derive(Debug, Default)]
pub struct InlineReader {
    look: Appearance,
    held: Option<HeldSpan>,
    previous: Option<char>,
}

/// A span whose end has not come.
#[derive(Debug)]
struct HeldSpan {
    kind: SpanKind,
    /// As it came, with the marks that began it.
    text: String,
    /// How many characters that is.
    length: usize,
    /// What stands before it.
    before: Option<char>,
    /// How often the mark stands at the end of the text.
    run: usize,
    /// Whether we are within code, in which other marks mean nothing.
    in_code: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanKind {
    /// How many of which mark; until something else comes, they are still counted.
    Emphasis { mark: char, count: usize, is_counted: bool },
    /// An escaped mark, or a backslash.
    Escape,
    /// How many brackets are open.
    LinkText { open: usize },
    /// Behind `](`, at which byte; how many parentheses are open.
    LinkTarget { at: usize, open: usize },
}

/// What one more character does to a span.
enum SpanStep {
    Goes,
    Fails,
    /// It ended before this character.
    EndedBefore,
    EndedWith,
}

/// A span that is longer than this is none: what comes must be seen.
const LONGEST: usize = 400;

/// Whether the character is no more than itself wherever it stands.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b',' | b';' | b':' | b'\'' | b'"' | b'(' | b')' | b'?' | b'/' | b'-' | b'=' | b'+' | b'&' | b'%' | b'$' | b'#' | b'@' | b'<' | b'>' | b'{' | b'}' | b']' | b'|' | b'^' | b'~' | b'!')
}

impl InlineReader {
    pub fn new(look: Appearance) -> Self {
        Self { look, ..Self::default() }
    }

    /// Takes the plain characters and blanks that a text begins with, and gives how many bytes these are.
    pub fn take_plain(&mut self, text: &str, flow: &mut Flow, out: &mut String) -> usize {
        if self.held.is_some() {
            return 0;
        }
        let bytes = text.as_bytes();
        let mut taken = 0;
        loop {
            let length = bytes[taken..].iter().position(|byte| !is_plain(*byte)).unwrap_or(bytes.len() - taken);
            flow.put_plain(&text[taken..taken + length], out);
            taken += length;
            if bytes.get(taken) != Some(&b' ') {
                break;
            }
            flow.put(' ', out);
            taken += 1;
        }
        if let Some(last) = taken.checked_sub(1).and_then(|last| bytes.get(last)) {
            self.previous = Some(char::from(*last));
        }
        taken
    }

    pub fn take(&mut self, c: char, flow: &mut Flow, out: &mut String) {
        let Some(held) = &mut self.held else { return self.begin(c, flow, out) };
        match held.step(c) {
            SpanStep::Goes => held.push(c),
            SpanStep::EndedWith => {
                held.push(c);
                self.end_span(flow, out);
            }
            SpanStep::EndedBefore => {
                self.end_span(flow, out);
                self.take(c, flow, out);
            }
            SpanStep::Fails => {
                self.fail(flow, out);
                self.take(c, flow, out);
            }
        }
    }

    /// The line is over.
    pub fn end(&mut self, flow: &mut Flow, out: &mut String) {
        while let Some(held) = &mut self.held {
            match held.step('\n') {
                SpanStep::EndedBefore => self.end_span(flow, out),
                SpanStep::Goes | SpanStep::Fails | SpanStep::EndedWith => self.fail(flow, out),
            }
        }
    }

    fn begin(&mut self, c: char, flow: &mut Flow, out: &mut String) {
        let kind = match c {
            '*' | '_' | '`' => SpanKind::Emphasis { mark: c, count: 1, is_counted: false },
            '\\' => SpanKind::Escape,
            '[' => SpanKind::LinkText { open: 1 },
            c => {
                flow.put(c, out);
                self.previous = Some(c);
                return;
            }
        };
        self.held = Some(HeldSpan { kind, text: c.into(), length: 1, before: self.previous, run: 0, in_code: false });
    }

    /// What began a span is shown as it is; the rest may begin another one.
    fn fail(&mut self, flow: &mut Flow, out: &mut String) {
        let Some(held) = self.held.take() else { return };
        let marks = match held.kind {
            SpanKind::Emphasis { count, .. } => count,
            SpanKind::Escape | SpanKind::LinkText { .. } | SpanKind::LinkTarget { .. } => 1,
        };
        for (index, c) in held.text.chars().enumerate() {
            if index < marks {
                flow.put(c, out);
                self.previous = Some(c);
            } else {
                self.take(c, flow, out);
            }
        }
    }

    fn end_span(&mut self, flow: &mut Flow, out: &mut String) {
        let Some(HeldSpan { kind, text, .. }) = self.held.take() else { return };
        match kind {
            SpanKind::Escape => text.chars().skip(1).for_each(|c| flow.put(c, out)),
            SpanKind::Emphasis { mark, count, .. } => {
                let inner = text.get(count..text.len() - count).unwrap_or_default();
                if mark == '`' {
                    flow.set_look(self.look.with(Appearance::CODE));
                    let bare = inner.strip_prefix(' ').and_then(|inner| inner.strip_suffix(' '));
                    bare.filter(|bare| !bare.trim().is_empty()).unwrap_or(inner).chars().for_each(|c| flow.put(c, out));
                } else {
                    self.within(inner, emphasis(count), flow, out);
                }
            }
            SpanKind::LinkText { .. } => {}
            SpanKind::LinkTarget { at, .. } => {
                let (words, target) = (&text[1..at - 2], &text[at..text.len() - 1]);
                self.within(words, Appearance::UNDERLINED, flow, out);
                flow.set_look(self.look);
                // An address that is its own text is not said twice.
                if words != target {
                    flow.put(' ', out);
                    flow.set_look(self.look.with(Appearance::DIM));
                    format!("({target})").chars().for_each(|c| flow.put(c, out));
                }
            }
        }
        flow.set_look(self.look);
        self.previous = text.chars().next_back();
    }

    fn within(&self, text: &str, look: Appearance, flow: &mut Flow, out: &mut String) {
        let mut inner = Self::new(self.look.with(look));
        flow.set_look(inner.look);
        text.chars().for_each(|c| inner.take(c, flow, out));
        inner.end(flow, out);
    }
}

fn emphasis(count: usize) -> Appearance {
    match count {
        1 => Appearance::ITALIC,
        2 => Appearance::BOLD,
        _ => Appearance::BOLD.with(Appearance::ITALIC),
    }
}

impl HeldSpan {
    fn push(&mut self, c: char) {
        self.text.push(c);
        self.length += 1;
    }

    fn step(&mut self, c: char) -> SpanStep {
        if self.length >= LONGEST {
            return SpanStep::Fails;
        }
        match self.kind {
            SpanKind::Escape if matches!(c, '*' | '_' | '`' | '#' | '|' | '~') => SpanStep::EndedWith,
            SpanKind::Emphasis { mark, count, is_counted: false } => self.count(mark, count, c),
            SpanKind::Emphasis { mark, count, is_counted: true } => self.within_emphasis(mark, count, c),
            SpanKind::LinkText { open: 0 } if c == '(' => {
                self.kind = SpanKind::LinkTarget { at: self.text.len() + 1, open: 1 };
                SpanStep::Goes
            }
            SpanKind::Escape | SpanKind::LinkText { open: 0 } => SpanStep::Fails,
            SpanKind::LinkText { open } => {
                let open = match c {
                    '[' => open + 1,
                    ']' => open - 1,
                    _ => open,
                };
                self.kind = SpanKind::LinkText { open };
                SpanStep::Goes
            }
            SpanKind::LinkTarget { at, open } => match c {
                '(' => self.target(at, open + 1),
                ')' if open > 1 => self.target(at, open - 1),
                // `[](…)` and `[…]()` are no links.
                ')' if self.text.len() > at && at > "[](".len() => SpanStep::EndedWith,
                ')' | '\n' => SpanStep::Fails,
                _ => SpanStep::Goes,
            },
        }
    }

    fn target(&mut self, at: usize, open: usize) -> SpanStep {
        self.kind = SpanKind::LinkTarget { at, open };
        SpanStep::Goes
    }

    /// How many marks there are decides what they mean, and what stands on both sides of them whether they mean anything.
    fn count(&mut self, mark: char, count: usize, c: char) -> SpanStep {
        if c == mark {
            self.kind = SpanKind::Emphasis { mark, count: count + 1, is_counted: false };
            return SpanStep::Goes;
        }
        let behind_word = self.before.is_some_and(|before| before.is_ascii_alphanumeric());
        let may_begin = match (mark, count) {
            ('`', _) => c != '\n',
            ('*', 2 | 3) => !c.is_whitespace(),
            ('*', 1) | ('_', 1..=3) => !c.is_whitespace() && !behind_word,
            _ => false,
        };
        if !may_begin {
            return SpanStep::Fails;
        }
        self.kind = SpanKind::Emphasis { mark, count, is_counted: true };
        self.in_code = mark != '`' && c == '`';
        SpanStep::Goes
    }

    fn within_emphasis(&mut self, mark: char, count: usize, c: char) -> SpanStep {
        if c == mark && !self.in_code {
            self.run += 1;
            return SpanStep::Goes;
        }
        let run = std::mem::take(&mut self.run);
        if run > 0 && self.is_closed(mark, count, run, c) {
            return SpanStep::EndedBefore;
        }
        self.in_code ^= mark != '`' && c == '`';
        if c == '\n' { SpanStep::Fails } else { SpanStep::Goes }
    }

    fn is_closed(&self, mark: char, count: usize, run: usize, next: char) -> bool {
        if mark == '`' {
            return run == count;
        }
        let content = self.text.get(..self.text.len() - run).and_then(|text| text.chars().next_back());
        let is_apart = (mark == '*' && count > 1) || !next.is_ascii_alphanumeric();
        // A span within the span may end with the same marks.
        let is_enough = run == count || run == 3 && count < 3;
        is_enough && is_apart && content.is_some_and(|content| !content.is_whitespace())
    }
}
