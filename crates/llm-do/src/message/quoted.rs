//! Texts as JSON has them. Nearly every byte of a conversation is one of a long text, and nearly none of these is escaped: eight
//! are looked at in one step.

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

/// A shorter text is written sooner than it is made ready.
const SHORTEST: usize = 64;

/// Writes a text as [`serde`] does, to a format that is JSON.
pub(crate) fn quoted<S: Serializer>(text: &impl AsRef<str>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = text.as_ref();
    if text.len() < SHORTEST {
        return serializer.serialize_str(text);
    }
    let mut json = Vec::with_capacity(text.len() + text.len() / 16 + 8);
    push_quoted(&mut json, text);
    WrittenJson(&json).serialize(serializer)
}

/// Bytes that are JSON by construction: they are written as they are, and not read again before that, as those of a
/// [`RawValue`](serde_json::value::RawValue) are that is made of a text.
pub(crate) struct WrittenJson<'a>(pub &'a [u8]);

/// What `serde_json` calls its own raw values. The tests here notice if that ever changes.
const RAW: &str = "$serde_json::private::RawValue";

impl Serialize for WrittenJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = str::from_utf8(self.0).expect("JSON is text");
        let mut raw = serializer.serialize_struct(RAW, 1)?;
        raw.serialize_field(RAW, json)?;
        raw.end()
    }
}

/// The JSON of a text, byte for byte as `serde_json` writes it.
pub(crate) fn json_of(text: &str) -> String {
    let mut json = Vec::with_capacity(text.len() + text.len() / 16 + 8);
    push_quoted(&mut json, text);
    String::from_utf8(json).expect("a quoted text is text")
}

/// Appends the JSON of a text, byte for byte as `serde_json` writes it.
pub(crate) fn push_quoted(json: &mut Vec<u8>, text: &str) {
    json.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = next_escaped(rest) {
        json.extend_from_slice(&rest[..at]);
        let short = match rest[at] {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            8 => b"\\b",
            12 => b"\\f",
            other => {
                json.extend_from_slice(format!("\\u{other:04x}").as_bytes());
                rest = &rest[at + 1..];
                continue;
            }
        };
        json.extend_from_slice(short);
        rest = &rest[at + 1..];
    }
    json.extend_from_slice(rest);
    json.push(b'"');
}

/// Appends the JSON of a plain value.
pub(crate) fn push_json(json: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(json, value).expect("plain values serialise");
}

/// Appends a number as JSON has it.
pub(crate) fn push_number(json: &mut Vec<u8>, number: u64) {
    let (mut digits, mut first, mut rest) = ([0; 20], 20, number);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    json.extend_from_slice(&digits[first..]);
}

/// Where the first byte is that cannot stand in JSON as it is.
fn next_escaped(bytes: &[u8]) -> Option<usize> {
    let is_escaped = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    let mut from = 0;
    // All of a block at once, which the processor has instructions for.
    for block in bytes.as_chunks::<32>().0 {
        if block.iter().fold(false, |found, byte| found | is_escaped(byte)) {
            break;
        }
        from += block.len();
    }
    let (words, rest) = bytes[from..].as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = escaped_in(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(from + 8 * index + found.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(is_escaped).map(|at| from + 8 * words.len() + at)
}

/// The highest bit of each byte that is escaped. What is said of bytes above the first of them may be wrong.
fn escaped_in(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, least: u64| word.wrapping_sub(ONES * least) & !word & HIGH;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    below(word, 0x20) | is(b'"') | is(b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A text that is written in this way.
    #[derive(Serialize)]
    struct Line<'a>(#[serde(serialize_with = "quoted")] &'a str);

    #[test]
    fn every_byte_is_written_as_ever_wherever_it_stands() {
        for character in (0..=0x17f).filter_map(char::from_u32).chain(['\u{2028}', '😀']) {
            for at in 0..20 {
                let text = format!("{}{character}{}", "a".repeat(at), "é".repeat(40));
                assert_eq!(serde_json::to_string(&Line(&text)).unwrap(), serde_json::to_string(&text).unwrap());
                assert_eq!(serde_json::to_value(Line(&text)).unwrap(), serde_json::to_value(&text).unwrap());
            }
        }
    }

    #[test]
    fn what_is_written_already_stays_as_it_is() {
        let json = r#"{"b":[1,"x"],"a":null}"#;
        let written = WrittenJson(json.as_bytes());
        assert_eq!(serde_json::to_string(&[&written]).unwrap(), format!("[{json}]"));
        assert_eq!(serde_json::value::to_raw_value(&written).unwrap().get(), json);
        let mut numbers = Vec::new();
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            push_number(&mut numbers, number);
            numbers.push(b' ');
        }
        assert_eq!(numbers, format!("0 7 10 1234567890 {} ", u64::MAX).into_bytes());
    }

    proptest! {
        #[test]
        fn any_text_is_written_as_ever(text in "(?s)[ -~\\n\"\\\\]{0,200}|.{0,100}|[\\x00-\\x7f]{60,200}") {
            prop_assert_eq!(serde_json::to_string(&Line(&text)).unwrap(), serde_json::to_string(&text).unwrap());
        }
    }
}
