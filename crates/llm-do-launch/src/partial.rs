//! A typed answer that is still being written: what of its JSON is there already, as a value. Pure.

use llm_do::RawJson;

/// Longer answers are not looked at while they come.
const LONGEST: usize = 1024 * 1024;
/// As deep as readers of JSON go.
const DEEPEST: usize = 128;

/// The value so far: texts as far as they have come, numbers and words once they are whole, and no name without a value.
/// `None` if nothing of it is there.
pub fn value_so_far(text: &str) -> Option<RawJson> {
    if text.len() > LONGEST {
        return None;
    }
    let mut reader = PartialReader { rest: beginning(text), out: String::new() };
    reader.value(0)?;
    RawJson::parse(&reader.out).ok()
}

/// The JSON in a text that may begin with a line of three backticks.
fn beginning(text: &str) -> &str {
    let text = text.trim_start();
    match text.strip_prefix("```") {
        Some(fenced) => fenced.split_once('\n').map_or("", |(_, rest)| rest.trim_start()),
        None => text,
    }
}

struct PartialReader<'a> {
    rest: &'a str,
    out: String,
}

impl PartialReader<'_> {
    fn next(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    /// Takes this character, if it comes next.
    fn takes(&mut self, c: char) -> bool {
        self.skip_blanks();
        self.rest.strip_prefix(c).inspect(|rest| self.rest = rest).is_some()
    }

    /// Writes the next value, closed where it is not; `None` if there is none yet.
    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_blanks();
        match self.next()? {
            _ if depth == DEEPEST => return None,
            '{' => self.members('}', depth, Self::member),
            '[' => self.members(']', depth, Self::value),
            '"' => {
                self.text();
            }
            _ => self.word()?,
        }
        Some(())
    }

    fn members(&mut self, end: char, depth: usize, member: fn(&mut Self, usize) -> Option<()>) {
        self.out.extend(self.next());
        self.rest = &self.rest[1..];
        let mut is_first = true;
        while !self.takes(end) {
            if !is_first && !self.takes(',') {
                break;
            }
            let before = self.out.len();
            if !is_first {
                self.out.push(',');
            }
            if member(self, depth + 1).is_none() {
                self.out.truncate(before);
                break;
            }
            is_first = false;
        }
        self.out.push(end);
    }

    fn member(&mut self, depth: usize) -> Option<()> {
        self.skip_blanks();
        let is_whole = self.next()? == '"' && self.text();
        if !is_whole || !self.takes(':') {
            return None;
        }
        self.out.push(':');
        self.value(depth)
    }

    /// Writes a text, closed where it is not; gives whether it was whole. An escape that was cut is left out.
    fn text(&mut self) -> bool {
        self.out.push('"');
        self.rest = &self.rest[1..];
        loop {
            let end = self.rest.find(['"', '\\']).unwrap_or(self.rest.len());
            let (plain, rest) = self.rest.split_at(end);
            self.out.push_str(plain);
            self.rest = rest;
            let length = match rest.as_bytes() {
                [] => break,
                [b'"', ..] => {
                    self.rest = &rest[1..];
                    self.out.push('"');
                    return true;
                }
                // Half of a character of two such escapes is none.
                [_, b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..] => 12,
                [_, b'u', ..] => 6,
                _ => 2,
            };
            match rest.get(..length) {
                Some(escape) => self.out.push_str(escape),
                None => {
                    self.rest = "";
                    break;
                }
            }
            self.rest = &rest[length..];
        }
        self.out.push('"');
        false
    }

    /// A number, `true`, `false` or `null`: whole only if something follows.
    fn word(&mut self) -> Option<()> {
        let end = self.rest.find([',', '}', ']', ' ', '\t', '\n', '\r'])?;
        let (word, rest) = self.rest.split_at(end);
        RawJson::parse(word).ok()?;
        self.out.push_str(word);
        self.rest = rest;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        value_so_far(text).map_or_else(|| "nothing".to_owned(), |value| value.get().to_owned())
    }

    #[test]
    fn what_is_there_is_a_value() {
        let cases = [
            ("", "nothing"),
            ("Here it is", "nothing"),
            ("{", "{}"),
            (r#"{"tit"#, "{}"),
            (r#"{"title""#, "{}"),
            (r#"{"title":"#, "{}"),
            (r#"{"title": "The cr"#, r#"{"title":"The cr"}"#),
            (r#"{"title": "a\"#, r#"{"title":"a"}"#),
            (r#"{"title": "a\n\u00"#, r#"{"title":"a\n"}"#),
            (r#"{"title": "a\ud83d\ude"#, r#"{"title":"a"}"#),
            (r#"{"title": "a\ud83d\ude00""#, r#"{"title":"a\ud83d\ude00"}"#),
            (r#"{"n": 12"#, "{}"),
            (r#"{"n": 12, "#, r#"{"n":12}"#),
            (r#"{"n": 12, "ok": tru"#, r#"{"n":12}"#),
            (r#"{"list": [1, {"a": "b"}, [tr"#, r#"{"list":[1,{"a":"b"},[]]}"#),
            ("```json\n{\"a\": \"b", r#"{"a":"b"}"#),
            (r#"{"a": "b"} and more"#, r#"{"a":"b"}"#),
            (r#"["a" "b"]"#, r#"["a"]"#),
            ("{]", "{}"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert_eq!(shown(&"[".repeat(100_000)), "[".repeat(DEEPEST) + &"]".repeat(DEEPEST));
    }

    /// Wherever it is cut, what is there is JSON, and never less than before.
    #[test]
    fn every_beginning_of_an_answer_is_json() {
        let whole = r#"{"verdict": "merge", "remarks": ["fine \u00e4 \\ \"x\"", "two"], "n": -1.5e3, "deep": {"a": [null, true]}}"#;
        let mut longest = 0;
        for end in 1..=whole.len() {
            let Some(value) = whole.get(..end).and_then(value_so_far) else { continue };
            assert!(serde_json::from_str::<serde_json::Value>(value.get()).is_ok(), "{}", value.get());
            longest = longest.max(value.get().len());
            assert!(value.get().len() + 3 >= longest, "{}", value.get());
        }
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown(whole)).unwrap(),
            serde_json::from_str::<serde_json::Value>(whole).unwrap()
        );
    }
}
