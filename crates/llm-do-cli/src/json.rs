//! Runs as JSON: one event per line, and the result. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use llm_do::{Event, Message, RawJson};
use llm_do::approval::PendingQuestion;
use llm_do::escape::visible_json;
use llm_do::events::{Refusal, TraceCall, UsageReport};
use llm_do::messages::Finish;
use serde::Serialize;

/// The last line of a stream, or the one object.
#[derive(Debug, Serialize)]
pub struct ResultJson {
    pub r#type: &'static str,
    pub output: Option<RawJson>,
    pub finish: Option<Finish>,
    pub exit_code: u8,
    pub error: Option<ErrorJson>,
    pub usage: UsageReport,
    /// The call of the entry; none of a run that never began.
    pub trace: Option<Arc<TraceCall>>,
    pub messages: Vec<Message>,
    pub pending: Vec<PendingQuestion>,
    pub refused: Vec<Refusal>,
    pub run: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct ErrorJson {
    pub message: String,
    pub hint: Option<String>,
}

impl ResultJson {
    /// Of a run that never began.
    pub fn not_begun(exit_code: u8, error: ErrorJson) -> Self {
        Self {
            r#type: "result",
            output: None,
            finish: None,
            exit_code,
            error: Some(error),
            usage: UsageReport::default(),
            trace: None,
            messages: Vec::new(),
            pending: Vec::new(),
            refused: Vec::new(),
            run: None,
        }
    }
}

/// On one line. Whatever the reader is, nothing in it deceives: so is all JSON that is printed.
pub fn line(value: &impl Serialize) -> String {
    printed(serde_json::to_string(value).expect("plain values serialise"))
}

/// On many lines.
pub fn lines(value: &serde_json::Value) -> String {
    printed(format!("{value:#}"))
}

fn printed(json: String) -> String {
    let mut json = match visible_json(&json) {
        Cow::Borrowed(_) => json,
        Cow::Owned(shown) => shown,
    };
    json.push('\n');
    json
}

pub fn event(event: &Event) -> String {
    line(event)
}

/// Indented, keys in the order in which they came.
pub fn indented(json: &RawJson) -> String {
    let mut out = String::new();
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    let mut characters = json.get().chars().filter(|c| !matches!(c, '\n' | '\r')).peekable();
    while let Some(c) = characters.next() {
        if in_text {
            out.push(c);
            (in_text, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        let new_line = |depth: usize, out: &mut String| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        match c {
            ' ' | '\t' => {}
            '{' | '[' => {
                out.push(c);
                while characters.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
                if let Some(close) = characters.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    new_line(depth, &mut out);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(depth, &mut out);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(depth, &mut out);
            }
            ':' => out.push_str(": "),
            c => {
                in_text = c == '"';
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indenting_keeps_the_order_and_the_texts() {
        let json = RawJson::parse(r#"{"b":[1, {"x" : "a, {\"q\"}: [\\"}],"a":{},"c":[ ]}"#).unwrap();
        let expected = "{\n  \"b\": [\n    1,\n    {\n      \"x\": \"a, {\\\"q\\\"}: [\\\\\"\n    }\n  ],\n  \"a\": {},\n  \"c\": []\n}";
        let shown = indented(&json);
        assert_eq!(shown, expected);
        let (before, after): (serde_json::Value, serde_json::Value) =
            (json.to().unwrap(), serde_json::from_str(&shown).unwrap());
        assert_eq!(before, after);
    }
}
