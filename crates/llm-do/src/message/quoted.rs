//! Texts as JSON has them. Nearly every byte of a conversation is one of a long text, and nearly none of these is escaped: eight
//! are looked at in one step.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A shorter text is written sooner than it is made ready.
const SHORTEST: usize = 64;

/// Writes a text as [`serde`] does, to a format that is JSON.
pub(crate) fn quoted<S: Serializer>(text: &impl AsRef<str>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = text.as_ref();
    if text.len() < SHORTEST {
        return serializer.serialize_str(text);
    }
    RawValue::from_string(json_of(text)).expect("a quoted text is JSON").serialize(serializer)
}

/// The JSON of a text, byte for byte as `serde_json` writes it.
pub(crate) fn json_of(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + text.len() / 16 + 8);
    json.push('"');
    let mut rest = text;
    while let Some(at) = next_escaped(rest.as_bytes()) {
        let (plain, escaped) = rest.split_at(at);
        json.push_str(plain);
        match escaped.as_bytes()[0] {
            b'"' => json.push_str("\\\""),
            b'\\' => json.push_str("\\\\"),
            b'\n' => json.push_str("\\n"),
            b'\r' => json.push_str("\\r"),
            b'\t' => json.push_str("\\t"),
            8 => json.push_str("\\b"),
            12 => json.push_str("\\f"),
            other => json.push_str(&format!("\\u{other:04x}")),
        }
        rest = &escaped[1..];
    }
    json.push_str(rest);
    json.push('"');
    json
}

/// Where the first byte is that cannot stand in JSON as it is.
fn next_escaped(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = escaped_in(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(8 * index + found.trailing_zeros() as usize / 8);
        }
    }
    let is_escaped = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    rest.iter().position(is_escaped).map(|at| 8 * words.len() + at)
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

    proptest! {
        #[test]
        fn any_text_is_written_as_ever(text in "(?s)[ -~\\n\"\\\\]{0,200}|.{0,100}|[\\x00-\\x7f]{60,200}") {
            prop_assert_eq!(serde_json::to_string(&Line(&text)).unwrap(), serde_json::to_string(&text).unwrap());
        }
    }
}
