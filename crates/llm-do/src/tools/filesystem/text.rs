//! Text files: read in part, replaced in part, compared line by line.

use std::io::{self, Read};

use serde::Serialize;

/// A part of a file, counted in characters.
#[derive(Debug, PartialEq, Serialize)]
pub struct Part {
    pub content: String,
    pub truncated: bool,
    pub total_chars: u64,
    pub offset: u64,
    pub chars_read: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("is binary, use attachments")]
    Binary,
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// No model reads more at once.
const MOST_CHARS: u64 = 1_000_000;
const CHUNK: usize = 64 * 1024;

/// Streams the file: its size does not matter, only how much is asked for.
pub fn read_part(mut file: impl Read, offset: u64, max_chars: u64) -> Result<Part, ReadError> {
    let wanted = max_chars.min(MOST_CHARS);
    let end = offset.saturating_add(wanted);
    let mut part = Part { content: String::new(), truncated: false, total_chars: 0, offset, chars_read: 0 };
    let mut buffer = Vec::with_capacity(CHUNK);
    let mut at_end = false;
    while !at_end {
        // What is in it already are bytes of a character that the last chunk cut in two.
        let room = CHUNK - buffer.len();
        at_end = file.by_ref().take(room as u64).read_to_end(&mut buffer)? < room;
        let text = match str::from_utf8(&buffer) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() && !at_end => {
                str::from_utf8(&buffer[..error.valid_up_to()]).map_err(|_| ReadError::Binary)?
            }
            Err(_) => return Err(ReadError::Binary),
        };
        part.add(text, end);
        let used = text.len();
        buffer.drain(..used);
    }
    part.truncated = part.total_chars > end;
    Ok(part)
}

impl Part {
    /// The next text of the file, of which what lies between `offset` and `end` is kept.
    fn add(&mut self, text: &str, end: u64) {
        let chars = text.chars().count() as u64;
        let here = |position: u64| position.saturating_sub(self.total_chars).min(chars);
        let (from, to) = (here(self.offset), here(end));
        self.content.push_str(&text[byte_of(text, from, chars)..byte_of(text, to, chars)]);
        self.chars_read += to - from;
        self.total_chars += chars;
    }
}

/// Where the character at `position` begins, in a text of so many; mostly at one of its ends.
fn byte_of(text: &str, position: u64, chars: u64) -> usize {
    let passed = usize::try_from(position).unwrap_or(usize::MAX);
    if position >= chars { text.len() } else { text.char_indices().nth(passed).map_or(text.len(), |(byte, _)| byte) }
}

/// `old` must occur exactly once, unless every occurrence is meant.
pub fn replaced(text: &str, old: &str, new: &str, replace_all: bool) -> Result<String, String> {
    if old.is_empty() {
        return Err("`old` is empty".to_owned());
    }
    match (text.matches(old).count(), replace_all) {
        (0, _) => Err("`old` does not occur in the file; read it again".to_owned()),
        (1, _) | (_, true) => Ok(text.replace(old, new)),
        (count, false) => Err(format!("`old` occurs {count} times; give more of the text around it, or `replace_all`")),
    }
}

/// The lines that go and come, with a little of what stays.
pub fn difference(old: &str, new: &str) -> String {
    const SHOWN_AROUND: usize = 2;
    let (old_lines, new_lines): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old_lines.iter().zip(&new_lines).take_while(|(a, b)| a == b).count();
    let rest = (old_lines.len().min(new_lines.len())) - start;
    let end = old_lines.iter().rev().zip(new_lines.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let mut lines = Vec::new();
    for line in &old_lines[start.saturating_sub(SHOWN_AROUND)..start] {
        lines.push(format!("  {line}"));
    }
    lines.extend(old_lines[start..old_lines.len() - end].iter().map(|line| format!("- {line}")));
    lines.extend(new_lines[start..new_lines.len() - end].iter().map(|line| format!("+ {line}")));
    let after = old_lines.len() - end;
    for line in old_lines[after..].iter().take(SHOWN_AROUND) {
        lines.push(format!("  {line}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives few bytes at a time, so that characters are cut.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(1).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn parts_are_counted_in_characters() {
        let part = |text: &str, offset, max| {
            let part = read_part(Slowly(text.as_bytes()), offset, max).unwrap();
            (part.content, part.truncated, part.total_chars, part.chars_read)
        };
        assert_eq!(part("aßc漢d", 0, 99), ("aßc漢d".into(), false, 5, 5));
        assert_eq!(part("aßc漢d", 1, 3), ("ßc漢".into(), true, 5, 3));
        assert_eq!(part("aßc", 3, 10), (String::new(), false, 3, 0));
        assert_eq!(part(&"漢".repeat(CHUNK), 30_000, 3), ("漢漢漢".into(), true, CHUNK as u64, 3));
        assert_eq!(part("aßc", u64::MAX, u64::MAX), (String::new(), false, 3, 0));
        assert_eq!(part("", 0, 5), (String::new(), false, 0, 0));
    }

    #[test]
    fn what_is_not_text_is_said_to_be_binary() {
        for bytes in [&b"a\xff"[..], b"\xc3", b"ok\xe6\xbc"] {
            assert!(matches!(read_part(bytes, 0, 10), Err(ReadError::Binary)), "{bytes:?}");
        }
    }

    #[test]
    fn a_replacement_is_unambiguous() {
        assert_eq!(replaced("a b a", "b", "c", false).as_deref(), Ok("a c a"));
        assert_eq!(replaced("a b a", "a", "c", true).as_deref(), Ok("c b c"));
        assert!(replaced("a b a", "a", "c", false).unwrap_err().contains("2 times"));
        assert!(replaced("a", "x", "c", true).unwrap_err().contains("does not occur"));
        assert!(replaced("a", "", "c", true).is_err());
    }

    #[test]
    fn a_difference_shows_what_goes_and_what_comes() {
        assert_eq!(difference("a\nb\nc\nd\n", "a\nb\nX\nd\n"), "  a\n  b\n- c\n+ X\n  d");
        assert_eq!(difference("", "new\n"), "+ new");
        assert_eq!(difference("same", "same"), "  same");
        assert_eq!(difference("a\na", "a"), "  a\n- a");
    }
}
