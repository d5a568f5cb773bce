//! JSON of the plainest kind, read in one pass: objects whose fields are texts without escapes, counts, and such objects. That
//! is what nearly all of the ten thousand frames of a stream are. Whatever is not as plain, or not as it should be, is `None`
//! here, and for the whole parser to read or to complain about.

use crate::escape::escaped_in_json;

/// What is left to read.
pub(crate) struct Plain<'a> {
    text: &'a str,
    at: usize,
}

/// How many bytes at the start of a text stand for themselves in JSON and do not end it; `None` if all do.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = escaped_in_json(*word);
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    rest.iter().position(|byte| !is_plain(byte)).map(|found| words.len() * 8 + found)
}

/// A count with more digits is read by the parser, which knows how many fit.
const MOST_DIGITS: usize = 18;

impl<'a> Plain<'a> {
    /// Reads one value, with nothing but white space around it.
    pub(crate) fn read<T>(text: &'a str, value: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut plain = Self { text, at: 0 };
        let value = value(&mut plain)?;
        plain.next().is_none().then_some(value)
    }

    /// Reads an object. Of each field the name is given, and its value must be read.
    pub(crate) fn object(&mut self, mut field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.next() == Some(b'}') {
            return self.take(b'}');
        }
        loop {
            let name = self.text()?;
            self.take(b':')?;
            field(self, name)?;
            match self.next()? {
                b',' => self.at += 1,
                b'}' => return self.take(b'}'),
                _ => return None,
            }
        }
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let rest = &self.text.as_bytes()[self.at..];
        let length = plain_length(rest)?;
        if rest[length] != b'"' {
            return None;
        }
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length + 1;
        Some(text)
    }

    pub(crate) fn count(&mut self) -> Option<u64> {
        self.next()?;
        let rest = &self.text.as_bytes()[self.at..];
        let digits = rest.iter().take(MOST_DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
        let is_padded = digits > 1 && rest[0] == b'0';
        if digits == 0 || is_padded {
            return None;
        }
        self.at += digits;
        Some(rest[..digits].iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0')))
    }

    /// What was spelled in a certain way; if it was not, nothing of it is read.
    pub(crate) fn spelled<T>(&mut self, value: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = self.at;
        let value = value(self);
        if value.is_none() {
            self.at = start;
        }
        value
    }

    /// Takes exactly these characters.
    pub(crate) fn exactly(&mut self, characters: &str) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        rest.starts_with(characters.as_bytes()).then(|| self.at += characters.len())
    }

    /// Sets what was not set: a field that comes twice is a mistake, and the parser says so.
    pub(crate) fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
        place.replace(value).is_none().then_some(())
    }

    /// Behind white space.
    fn next(&mut self) -> Option<u8> {
        match self.text.as_bytes().get(self.at)? {
            byte if *byte > b' ' => Some(*byte),
            _ => self.after_blanks(),
        }
    }

    #[cold]
    fn after_blanks(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    /// Takes this character, behind white space.
    pub(crate) fn take(&mut self, expected: u8) -> Option<()> {
        (self.next()? == expected).then(|| self.at += 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// What is plain, as the parser would read it.
    fn value(plain: &mut Plain<'_>) -> Option<Value> {
        match plain.next()? {
            b'"' => plain.text().map(Value::from),
            b'{' => {
                let mut fields = serde_json::Map::new();
                plain.object(|plain, name| {
                    fields.insert(name.to_owned(), value(plain)?);
                    Some(())
                })?;
                Some(Value::Object(fields))
            }
            _ => plain.count().map(Value::from),
        }
    }

    #[test]
    fn what_is_plain_is_read_and_all_else_is_left() {
        for text in ["{}", r#" { "a" : 1 , "b" : { "c" : "ü x" } } "#, r#""""#, "0", "123456789012345678", "{\n}"] {
            assert_eq!(Plain::read(text, value), Some(serde_json::from_str::<Value>(text).unwrap()), "{text}");
        }
        for text in [
            "",
            " ",
            "{",
            "}",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            "{a:1}",
            r#""\n""#,
            "\"\n\"",
            "\"",
            "01",
            "-1",
            "1.5",
            "1e3",
            "1234567890123456789",
            "null",
            "[]",
            "true",
            "1 1",
            r#""a" x"#,
        ] {
            assert_eq!(Plain::read(text, value), None, "{text}");
        }
        let mut place = None;
        assert_eq!((Plain::once(&mut place, 1), Plain::once(&mut place, 2)), (Some(()), None));
    }

    proptest! {
        #[test]
        fn many_bytes_are_as_plain_as_each_of_them(text in "([a-z!#\\[\\]\u{7f}üé€]|[ -~]|.|\u{1f}|\u{0}){0,40}") {
            let is_plain = |byte: &u8| !byte.is_ascii_control() && *byte != b'"' && *byte != b'\\' || *byte == 0x7f;
            prop_assert_eq!(plain_length(text.as_bytes()), text.as_bytes().iter().position(|byte| !is_plain(byte)));
        }

        /// Text that is nearly JSON, and often is.
        #[test]
        fn whatever_it_reads_the_parser_reads_as_well(text in r#"([{}:, "a1ü\\]|"a"|"b":|\{"a":){0,12}"#) {
            if let Some(read) = Plain::read(&text, value) {
                prop_assert_eq!(Some(read), serde_json::from_str::<Value>(&text).ok());
            }
        }
    }
}
