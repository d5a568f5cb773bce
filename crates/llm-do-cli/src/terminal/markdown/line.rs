//! What a line is, found out from how it begins. Pure.

use super::look::Appearance;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    Empty,
    Words(LineStart),
    /// A line across the page.
    Rule,
    Fence {
        mark: char,
        count: usize,
        info: String,
    },
    /// Of what may be a table.
    Row,
}

/// How a line of words begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineStart {
    /// Blanks, bars of quotes and signs of lists, in their order.
    margin: Vec<MarginPart>,
    /// Which level.
    pub heading: Option<usize>,
    /// What is known of the words.
    pub rest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum MarginPart {
    Blanks(usize),
    Bar,
    Bullet,
    Number(String),
}

impl LineStart {
    /// What a row begins with, and its width: the first one, or any further one.
    pub fn margin(&self, is_first: bool) -> (String, usize) {
        let (mut text, mut width) = (String::new(), 0);
        for part in &self.margin {
            let (columns, shown) = match part {
                MarginPart::Blanks(count) => (*count, None),
                MarginPart::Bar => {
                    Appearance::PLAIN.change(Appearance::DIM, &mut text);
                    text.push('│');
                    Appearance::DIM.change(Appearance::PLAIN, &mut text);
                    text.push(' ');
                    width += 2;
                    continue;
                }
                MarginPart::Bullet => (2, is_first.then_some("• ")),
                MarginPart::Number(number) => (number.len(), is_first.then_some(number.as_str())),
            };
            match shown {
                Some(shown) => text.push_str(shown),
                None => text.extend(std::iter::repeat_n(' ', columns)),
            }
            width += columns;
        }
        (text, width)
    }
}

/// Nobody indents further, and a line of dashes need not be longer to be one.
const LONGEST_START: usize = 160;

/// What the line is, if its beginning says so.
pub fn so_far(start: &str) -> Option<Opening> {
    if start.len() >= LONGEST_START {
        return Some(Opening::Words(words(start)));
    }
    opening(start, false)
}

/// The same where the line is over.
pub fn at_end(start: &str) -> Opening {
    opening(start, true).unwrap_or_else(|| Opening::Words(words(start)))
}

/// The line as words without any sign before them.
pub fn words(line: &str) -> LineStart {
    let rest = line.trim_start_matches(' ');
    let blanks = line.len() - rest.len();
    LineStart { margin: vec![MarginPart::Blanks(blanks)], heading: None, rest: rest.to_owned() }
}

fn opening(start: &str, is_over: bool) -> Option<Opening> {
    let mut line = LineStart::default();
    let mut rest = start;
    loop {
        let bare = rest.trim_start_matches(' ');
        let blanks = rest.len() - bare.len();
        let Some(first) = bare.chars().next() else {
            let is_empty = line.margin.is_empty();
            return is_over.then_some(if is_empty { Opening::Empty } else { Opening::Words(line) });
        };
        let is_within = !line.margin.is_empty();
        let sign = match first {
            '|' if !is_within => return Some(Opening::Row),
            '>' => quote(bare, is_over),
            '#' => heading(bare, is_over),
            '`' | '~' if !is_within => fence(bare, first, is_over),
            '-' | '*' | '+' | '_' => item(bare, first, is_over),
            '0'..='9' => number(bare, is_over),
            _ => Sign::None,
        };
        if blanks > 0 {
            line.margin.push(MarginPart::Blanks(blanks));
        }
        match sign {
            Sign::Open => return None,
            Sign::Opens(opening) => return Some(opening),
            Sign::Margin(part, length) => {
                line.margin.push(part);
                rest = bare.get(length..).unwrap_or_default();
            }
            Sign::Heading(level, length) => {
                line.heading = Some(level);
                bare.get(length..).unwrap_or_default().clone_into(&mut line.rest);
                return Some(Opening::Words(line));
            }
            Sign::None => {
                bare.clone_into(&mut line.rest);
                return Some(Opening::Words(line));
            }
        }
    }
}

/// What a line's first sign is.
enum Sign {
    /// Not known yet.
    Open,
    None,
    Opens(Opening),
    /// A part of the margin, and how long it is in the source.
    Margin(MarginPart, usize),
    Heading(usize, usize),
}

fn quote(bare: &str, is_over: bool) -> Sign {
    match bare.as_bytes().get(1) {
        None if !is_over => Sign::Open,
        Some(b' ') => Sign::Margin(MarginPart::Bar, 2),
        None | Some(_) => Sign::Margin(MarginPart::Bar, 1),
    }
}

fn heading(bare: &str, is_over: bool) -> Sign {
    let level = bare.bytes().take_while(|byte| *byte == b'#').count();
    match bare.as_bytes().get(level) {
        _ if level > 6 => Sign::None,
        None if !is_over => Sign::Open,
        Some(b' ') => Sign::Heading(level, level + 1),
        None | Some(_) => Sign::None,
    }
}

fn fence(bare: &str, mark: char, is_over: bool) -> Sign {
    let count = bare.chars().take_while(|c| *c == mark).count();
    let info = bare.get(count..).unwrap_or_default();
    if count < 3 {
        return if info.is_empty() && !is_over { Sign::Open } else { Sign::None };
    }
    // Then it is code within a sentence.
    if mark == '`' && info.contains('`') {
        return Sign::None;
    }
    if !is_over {
        return Sign::Open;
    }
    Sign::Opens(Opening::Fence { mark, count, info: info.trim().to_owned() })
}

/// A sign of a list, or a line across the page.
fn item(bare: &str, mark: char, is_over: bool) -> Sign {
    if bare.chars().all(|c| c == mark || c == ' ') && mark != '+' {
        if !is_over {
            return Sign::Open;
        }
        if bare.chars().filter(|c| *c == mark).count() >= 3 {
            return Sign::Opens(Opening::Rule);
        }
    }
    match bare.as_bytes().get(1) {
        None if !is_over => Sign::Open,
        None | Some(b' ') if mark != '_' => Sign::Margin(MarginPart::Bullet, 2),
        None | Some(_) => Sign::None,
    }
}

fn number(bare: &str, is_over: bool) -> Sign {
    let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 9 {
        return Sign::None;
    }
    match (bare.as_bytes().get(digits), bare.as_bytes().get(digits + 1)) {
        (None, _) | (Some(b'.' | b')'), None) if !is_over => Sign::Open,
        (Some(b'.' | b')'), Some(b' ')) => {
            let number = bare.get(..digits + 2).unwrap_or_default().to_owned();
            Sign::Margin(MarginPart::Number(number), digits + 2)
        }
        _ => Sign::None,
    }
}
