//! Text files: read in part, replaced in part.

use std::io::{self, Read};

use serde::Serialize;

use super::change;
use crate::escape::escaped_in_json;
use crate::redact::REDACTED;
use crate::tools::plane::LONGEST_RESULT;

/// A part of a file, counted in characters.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct FilePart {
    pub content: String,
    pub truncated: bool,
    pub total_chars: u64,
    pub offset: u64,
    pub chars_read: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("is binary, use attachments")]
    Binary,
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("was not read to its end: nobody waits for it any more")]
    Unwanted,
}

/// As much as a result holds, with room for what is said about it.
const LONGEST_PART: usize = LONGEST_RESULT - 1_000;
const CHUNK: usize = 64 * 1024;

/// Streams the file: its size does not matter, only how much is asked for. A part that would not fit into a result is
/// shorter than asked for, and says so. `is_wanted` is asked now and then, since a file may be larger than patience.
pub(crate) fn read_part(
    mut file: impl Read,
    offset: u64,
    max_chars: u64,
    is_wanted: &dyn Fn() -> bool,
) -> Result<FilePart, ReadError> {
    let mut part = FilePart { content: String::new(), truncated: false, total_chars: 0, offset, chars_read: 0 };
    let mut end = offset.saturating_add(max_chars);
    let mut room = LONGEST_PART;
    let mut buffer = Vec::with_capacity(CHUNK);
    let mut at_end = false;
    while !at_end {
        // What is in it already are bytes of a character that the last chunk cut in two.
        let free = CHUNK - buffer.len();
        at_end = file.by_ref().take(free as u64).read_to_end(&mut buffer)? < free;
        let text = text_in(&buffer, at_end)?;
        let chars = text.chars().count() as u64;
        let taken = part.add(text, chars, end);
        let fits = fitting(taken, &mut room);
        if fits < taken.len() {
            end = offset + part.chars_read + taken[..fits].chars().count() as u64;
        }
        part.take(&taken[..fits], (fits == text.len()).then_some(chars));
        let used = text.len();
        buffer.drain(..used);
        if !is_wanted() {
            return Err(ReadError::Unwanted);
        }
    }
    part.truncated = part.total_chars > end;
    Ok(part)
}

impl FilePart {
    /// Counts the next text of the file, which has so many characters; what of it lies between `offset` and `end`.
    fn add<'a>(&mut self, text: &'a str, chars: u64, end: u64) -> &'a str {
        let here = |position: u64| position.saturating_sub(self.total_chars).min(chars);
        let (from, to) = (byte_of(text, here(self.offset), chars), byte_of(text, here(end), chars));
        self.total_chars += chars;
        &text[from..to.max(from)]
    }

    /// As [`serde_json`] writes it, which looks at each byte of the content: what has to be escaped is mostly the ends
    /// of lines, and those are found faster.
    pub(crate) fn to_json(&self) -> String {
        let Self { content, truncated, total_chars, offset, chars_read } = self;
        let bytes = content.as_bytes();
        if has_rare_escape(bytes) {
            return serde_json::to_string(self).expect("texts and numbers are JSON");
        }
        let mut json = String::with_capacity(bytes.len() + bytes.len() / 8 + 128);
        json.push_str("{\"content\":\"");
        let mut start = 0;
        for at in memchr::memchr3_iter(b'"', b'\\', b'\n', bytes) {
            json.push_str(&content[start..at]);
            json.push_str(match bytes[at] {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                _ => "\\n",
            });
            start = at + 1;
        }
        json.push_str(&content[start..]);
        json += &format!(
            "\",\"truncated\":{truncated},\"total_chars\":{total_chars},\"offset\":{offset},\"chars_read\":{chars_read}}}"
        );
        json
    }

    /// Takes a text, whose characters may have been counted already.
    fn take(&mut self, text: &str, chars: Option<u64>) {
        self.content.push_str(text);
        self.chars_read += chars.unwrap_or_else(|| text.chars().count() as u64);
    }
}

/// Where the character at `position` begins, in a text of so many; mostly at one of its ends.
fn byte_of(text: &str, position: u64, chars: u64) -> usize {
    let passed = usize::try_from(position).unwrap_or(usize::MAX);
    if position >= chars { text.len() } else { text.char_indices().nth(passed).map_or(text.len(), |(byte, _)| byte) }
}

/// How many bytes at the start of a text fit into the room that is left, which becomes less.
fn fitting(text: &str, room: &mut usize) -> usize {
    // Mostly all of it: that is known without looking for the place of a cut.
    let whole = length_in_json(text.as_bytes());
    if let Some(left) = room.checked_sub(whole) {
        *room = left;
        return text.len();
    }
    for (at, byte) in text.bytes().enumerate() {
        match room.checked_sub(length_of_byte(byte)) {
            Some(left) => *room = left,
            // A byte that takes room begins a character.
            None => return at,
        }
    }
    text.len()
}

/// The whole characters at the start of a chunk. What holds a NUL is no text, whatever else it is.
fn text_in(bytes: &[u8], is_last: bool) -> Result<&str, ReadError> {
    if memchr::memchr(0, bytes).is_some() {
        return Err(ReadError::Binary);
    }
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.error_len().is_none() && !is_last => {
            str::from_utf8(&bytes[..error.valid_up_to()]).map_err(|_| ReadError::Binary)
        }
        Err(_) => Err(ReadError::Binary),
    }
}

/// How many characters a text becomes in the JSON of a result.
fn length_in_json(bytes: &[u8]) -> usize {
    let each = |bytes: &[u8]| bytes.iter().copied().map(length_of_byte).sum::<usize>();
    let several = |word: &[u8; 8]| {
        let is_plain = escaped_in_json(*word) == 0 && word.is_ascii();
        if is_plain { word.len() } else { each(word) }
    };
    let (words, rest) = bytes.as_chunks();
    words.iter().map(several).sum::<usize>() + each(rest)
}

/// Whether JSON escapes something in it that is neither the end of a line nor looks like one of its own characters.
fn has_rare_escape(bytes: &[u8]) -> bool {
    let is_rare = |byte: &u8| *byte < b' ' && *byte != b'\n';
    let (words, rest) = bytes.as_chunks();
    words.iter().any(|word| escaped_in_json(*word) != 0 && word.iter().any(is_rare)) || rest.iter().any(is_rare)
}

/// `\u0000`
const LONGEST_ESCAPE: u8 = 6;

/// How many characters a character becomes in the JSON of a result, counted at its first byte.
fn length_of_byte(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x8 | 0xc => 2,
        ..b' ' => usize::from(LONGEST_ESCAPE),
        0x80..0xc0 => 0,
        _ => 1,
    }
}

/// A text in the place of another.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// Occurs exactly once, unless every occurrence is meant.
    pub old: String,
    pub new: String,
    pub replace_all: bool,
}

impl Replacement {
    pub(crate) fn applied(&self, text: &str) -> Result<String, String> {
        let Self { old, new, replace_all } = self;
        if old.is_empty() {
            return Err("`old` is empty".to_owned());
        }
        match (text.matches(old.as_str()).count(), replace_all) {
            (0, _) if old.contains(REDACTED) => Err(format!(
                "`old` holds `{REDACTED}`, which stands for a key that is not shown; give the text around it instead"
            )),
            (0, _) => Err("`old` does not occur in the file; read it again".to_owned()),
            (count @ 1, _) | (count, true) => {
                // A short text replaced by a long one, often enough, is more than there is memory.
                let length = (text.len() - count * old.len()).saturating_add(count.saturating_mul(new.len()));
                if length as u64 > change::LARGEST {
                    return Err(format!("it would become larger than {} bytes", change::LARGEST));
                }
                Ok(text.replace(old.as_str(), new))
            }
            (count, false) => {
                Err(format!("`old` occurs {count} times; give more of the text around it, or `replace_all`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            let part = read_part(Slowly(text.as_bytes()), offset, max, &|| true).unwrap();
            (part.content, part.truncated, part.total_chars, part.chars_read)
        };
        assert_eq!(part("aßc漢d", 0, 99), ("aßc漢d".into(), false, 5, 5));
        assert_eq!(part("aßc漢d", 1, 3), ("ßc漢".into(), true, 5, 3));
        assert_eq!(part("aßc", 3, 10), (String::new(), false, 3, 0));
        assert_eq!(part(&"漢".repeat(CHUNK), 30_000, 3), ("漢漢漢".into(), true, CHUNK as u64, 3));
        assert_eq!(part("aßc", u64::MAX, u64::MAX), (String::new(), false, 3, 0));
        assert_eq!(part("", 0, 5), (String::new(), false, 0, 0));
    }

    proptest! {
        #[test]
        fn a_part_is_written_as_any_other_value(content in r#"([a-z "\\\\ü\n]|\t|\x01|.){0,80}"#, truncated: bool, offset: u64) {
            let part = FilePart { content, truncated, total_chars: 7, offset, chars_read: 3 };
            prop_assert_eq!(part.to_json(), serde_json::to_string(&part).unwrap());
        }

        #[test]
        fn the_length_of_many_bytes_is_that_of_each(text in r#"([a-z "\\\\ü€\n\r\t]|\x00|\x08|\x0c|\x1f|\x7f|.){0,200}"#) {
            let each: usize = text.bytes().map(length_of_byte).sum();
            prop_assert_eq!(length_in_json(text.as_bytes()), each);
        }

        #[test]
        fn parts_are_what_the_characters_say(text in "[aß漢\n😀]{0,60}", offset in 0..70_u32, max in 0..70_u32) {
            let part = read_part(Slowly(text.as_bytes()), offset.into(), max.into(), &|| true).unwrap();
            let chars: Vec<char> = text.chars().collect();
            let expected: String = chars.iter().skip(offset.try_into().unwrap()).take(max.try_into().unwrap()).collect();
            prop_assert_eq!(part.chars_read, expected.chars().count() as u64);
            prop_assert_eq!(part.content, expected);
            prop_assert_eq!(part.total_chars, chars.len() as u64);
            prop_assert_eq!(part.truncated, chars.len() as u64 > u64::from(offset + max));
        }
    }

    #[test]
    fn what_is_not_text_is_said_to_be_binary() {
        for bytes in [&b"a\xff"[..], b"\xc3", b"ok\xe6\xbc", b"\xff\xfea\0", b"a\0b"] {
            assert!(matches!(read_part(bytes, 0, 10, &|| true), Err(ReadError::Binary)), "{bytes:?}");
        }
    }

    #[test]
    fn a_part_always_fits_into_a_result() {
        for (text, room) in [("ü", LONGEST_PART), ("\n", LONGEST_PART / 2), ("\u{1}", LONGEST_PART / 6)] {
            let text = text.repeat(200_000);
            let part = read_part(text.as_bytes(), 7, u64::MAX, &|| true).unwrap();
            assert_eq!((part.chars_read, part.truncated, part.total_chars), (room as u64, true, 200_000));
            assert!(serde_json::to_string(&part).unwrap().chars().count() <= LONGEST_RESULT);
            let rest = read_part(text.as_bytes(), 200_000 - 9, u64::MAX, &|| true).unwrap();
            assert_eq!((rest.chars_read, rest.truncated), (9, false));
        }
    }

    #[test]
    fn reading_ends_when_nobody_waits() {
        let endless = std::io::repeat(b'a');
        assert!(matches!(read_part(endless, 0, 1, &|| false), Err(ReadError::Unwanted)));
    }

    #[test]
    fn a_replacement_is_unambiguous() {
        let replaced = |text: &str, old: &str, new: &str, replace_all| {
            Replacement { old: old.to_owned(), new: new.to_owned(), replace_all }.applied(text)
        };
        assert_eq!(replaced("a b a", "b", "c", false).as_deref(), Ok("a c a"));
        assert_eq!(replaced("a b a", "a", "c", true).as_deref(), Ok("c b c"));
        assert!(replaced("a b a", "a", "c", false).unwrap_err().contains("2 times"));
        assert!(replaced("a", "x", "c", true).unwrap_err().contains("does not occur"));
        assert!(replaced("a", "", "c", true).is_err());
        let bomb = replaced(&"a".repeat(1 << 20), "a", &"b".repeat(1 << 20), true);
        assert!(bomb.unwrap_err().contains("larger than"));
    }
}
