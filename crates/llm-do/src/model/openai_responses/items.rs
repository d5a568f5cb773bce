//! What an item becomes, and how it becomes the same item again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use memchr::memchr2;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The fields of an item. Sorted, because a stream and a document may order them differently.
pub(crate) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// What belongs to a text besides its words, as `private` keeps it: the rest of its message and of its content part.
/// The words are not in it, so that they are held once.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Wrapping<'a> {
    #[serde(borrow)]
    pub item: Fields<'a>,
    #[serde(borrow)]
    pub part: Fields<'a>,
}

/// The fields of a provider's tool that are shown as its input and output. They are moved there, not copied: one of
/// them may be an image.
pub(crate) fn shown_fields(kind: &str) -> (Option<&'static str>, Option<&'static str>) {
    match kind {
        "web_search_call" => (Some("action"), None),
        "file_search_call" => (Some("queries"), Some("results")),
        "code_interpreter_call" => (Some("code"), Some("outputs")),
        "image_generation_call" => (Some("revised_prompt"), Some("result")),
        "mcp_call" => (Some("arguments"), Some("output")),
        "mcp_list_tools" => (None, Some("tools")),
        _ => (None, None),
    }
}

/// JSON without the spaces between its tokens: documents come indented and streams do not, and both must give the
/// same reply.
pub(crate) fn compact(json: &str) -> Cow<'_, str> {
    let Some(first) = space_between_tokens(json) else { return Cow::Borrowed(json) };
    let mut kept = String::with_capacity(json.len());
    let (mut rest, mut space) = (json, first);
    loop {
        kept.push_str(&rest[..space]);
        rest = rest[space..].trim_ascii_start();
        match space_between_tokens(rest) {
            Some(next) => space = next,
            None => break,
        }
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

fn space_between_tokens(json: &str) -> Option<usize> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at + 1),
            byte if byte.is_ascii_whitespace() => return Some(at),
            _ => at += 1,
        }
    }
    None
}

/// The place behind the closing quote of a string whose content begins at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        match bytes[at] {
            b'"' => return at + 1,
            _ => at += 2,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_between_tokens_go_and_those_in_strings_stay() {
        let cases = [
            (r#"{"a":[1,2]}"#, r#"{"a":[1,2]}"#),
            ("{\n  \"a b\": [ 1,\t2 ],\r\n \"c\\\" d\" : \" e \\\\\" }", r#"{"a b":[1,2],"c\" d":" e \\"}"#),
            ("\" é \"", "\" é \""),
            ("[ ]", "[]"),
            ("\"open \\", "\"open \\"),
            ("", ""),
        ];
        for (json, expected) in cases {
            assert_eq!(compact(json), expected);
        }
        assert!(matches!(compact(r#"{"a b":1}"#), Cow::Borrowed(_)), "what is compact already is not copied");
    }
}
