//! What must come of a case, held against what came. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::json_schema;

/// What a case expects.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// The answer.
    pub output: Option<TextExpectation>,
    /// What the agent calls.
    pub calls: CallsExpectation,
    /// Tools that nobody may call.
    pub never: Vec<String>,
    /// Tools that must ask.
    pub asks: Vec<String>,
    /// Files of the scratch project afterwards.
    pub files: BTreeMap<String, TextExpectation>,
    /// What it may take.
    pub max: MostSpent,
}

/// What a text must be.
#[derive(Clone, Debug, Default)]
pub struct TextExpectation {
    pub contains: Vec<String>,
    pub equals: Option<Value>,
    /// A pattern, which is one.
    pub matches: Option<String>,
    /// At least and at most so many.
    pub lines: Option<(u64, u64)>,
    /// Members with their values.
    pub json: Option<serde_json::Map<String, Value>>,
    /// It has fitted the schema of its agent.
    pub fits_schema: bool,
}

/// Which calls are expected.
#[derive(Clone, Debug, Default)]
pub enum CallsExpectation {
    #[default]
    Any,
    /// These, with others between them.
    InOrder(Vec<ExpectedCall>),
    /// These and no others.
    Only(Vec<ExpectedCall>),
}

/// A call that must be made.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedCall {
    pub tool: String,
    /// If they are given they must be equal.
    pub arguments: Option<Value>,
}

/// What a case may take at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct MostSpent {
    pub cost_usd: Option<f64>,
    pub requests: Option<u64>,
    /// Only where models are asked.
    pub seconds: Option<f64>,
}

/// What came of a case.
#[derive(Clone, Debug, Default)]
pub struct CaseOutcome {
    /// The answer; text as text.
    pub output: Option<Value>,
    /// Whether the agent has a schema that the answer fits.
    pub fits_schema: bool,
    /// Why there is no answer.
    pub error: Option<String>,
    /// What the agent itself called, in order.
    pub calls: Vec<CallMade>,
    /// What anybody called.
    pub called: Vec<String>,
    /// What was asked about, and whether it was answered with yes.
    pub asked: Vec<(String, bool)>,
    /// The files that are expected, as they are now.
    pub files: BTreeMap<String, Option<String>>,
    /// Requests to models.
    pub requests: u64,
    /// What they cost, if that is known.
    pub cost_usd: Option<f64>,
    /// How long it took, where models were asked.
    pub seconds: Option<f64>,
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct CallMade {
    /// What was called.
    pub tool: String,
    /// What it was called with.
    pub arguments: Value,
}

/// Something that is not as it was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Of what: `output`, `calls`.
    pub of: String,
    /// In a few words.
    pub expected: String,
    /// In a few words.
    pub came: String,
    /// Whether the two are whole texts, of which the difference says more.
    pub are_texts: bool,
}

impl Miss {
    fn new(of: impl Into<String>, expected: impl Into<String>, came: impl Into<String>) -> Self {
        Self { of: of.into(), expected: expected.into(), came: came.into(), are_texts: false }
    }
}

impl Expectation {
    /// Everything that is not as it was expected.
    pub fn misses(&self, outcome: &CaseOutcome) -> Vec<Miss> {
        let mut misses = Vec::new();
        if let Some(error) = &outcome.error {
            misses.push(Miss::new("run", "an answer", error));
        }
        match (&self.output, &outcome.output) {
            (Some(expected), Some(output)) => expected.judge("output", output, outcome.fits_schema, &mut misses),
            (Some(_), None) if outcome.error.is_none() => misses.push(Miss::new("output", "an answer", "none")),
            (Some(_) | None, _) => {}
        }
        misses.extend(self.calls.miss(&outcome.calls));
        for tool in &self.never {
            let count = outcome.called.iter().filter(|called| *called == tool).count();
            if count > 0 {
                misses.push(Miss::new("never", format!("no call of {tool}"), times(count)));
            }
        }
        self.judge_questions(&outcome.asked, &mut misses);
        for (path, expected) in &self.files {
            match outcome.files.get(path).and_then(Option::as_ref) {
                Some(content) => {
                    expected.judge(&format!("file {path}"), &Value::from(content.as_str()), false, &mut misses);
                }
                None => misses.push(Miss::new(format!("file {path}"), "a file", "there is none")),
            }
        }
        self.max.judge(outcome, &mut misses);
        misses
    }

    /// Whoever approves a question expects it.
    fn judge_questions(&self, asked: &[(String, bool)], misses: &mut Vec<Miss>) {
        for tool in self.asks.iter().filter(|tool| !asked.iter().any(|(asked, _)| asked == *tool)) {
            misses.push(Miss::new("asks", format!("a question about {tool}"), "none"));
        }
        let mut seen: Vec<&str> = Vec::new();
        for (tool, is_approved) in asked {
            if !is_approved && !self.asks.contains(tool) && !seen.contains(&tool.as_str()) {
                seen.push(tool);
                misses.push(Miss::new("asks", format!("no question about {tool}"), "it asked, and was refused"));
            }
        }
    }
}

impl TextExpectation {
    fn judge(&self, of: &str, value: &Value, fits_schema: bool, misses: &mut Vec<Miss>) {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        for part in self.contains.iter().filter(|part| !text.contains(part.as_str())) {
            misses.push(Miss::new(of, format!("contains {}", quoted(part)), brief(&text)));
        }
        if let Some(expected) = &self.equals {
            let are_equal = match (expected, value) {
                // Editors end files with a newline, and people end block texts with one.
                (Value::String(expected), Value::String(text)) => expected.trim_end() == text.trim_end(),
                (expected, Value::String(text)) => serde_json::from_str::<Value>(text).is_ok_and(|it| it == *expected),
                (expected, value) => expected == value,
            };
            if !are_equal {
                let came = pretty(value);
                misses.push(Miss { are_texts: true, ..Miss::new(of, pretty(expected), came) });
            }
        }
        if let Some(pattern) = &self.matches
            && !json_schema::finds(pattern, &text).unwrap_or(false)
        {
            misses.push(Miss::new(of, format!("matches {}", quoted(pattern)), brief(&text)));
        }
        if let Some((min, max)) = self.lines {
            let count = text.trim_end_matches('\n').lines().count() as u64;
            if !(min..=max).contains(&count) {
                let most = if max == u64::MAX { String::new() } else { format!("at most {max} lines") };
                let least = if min == 0 { String::new() } else { format!("at least {min} lines") };
                let words: Vec<String> = [least, most].into_iter().filter(|words| !words.is_empty()).collect();
                misses.push(Miss::new(of, words.join(", "), format!("{count} lines")));
            }
        }
        self.judge_members(of, value, misses);
        if self.fits_schema && !fits_schema {
            misses.push(Miss::new(of, "fits its schema", "the agent has no schema, or it does not fit"));
        }
    }

    fn judge_members(&self, of: &str, value: &Value, misses: &mut Vec<Miss>) {
        let Some(members) = &self.json else { return };
        let parsed = match value {
            Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
            other => other.clone(),
        };
        let Value::Object(found) = parsed else {
            misses.push(Miss::new(of, "a JSON object", brief(&value.to_string())));
            return;
        };
        for (name, expected) in members {
            match found.get(name) {
                Some(came) if came == expected => {}
                came => {
                    let came = came.map_or_else(|| "nothing".to_owned(), Value::to_string);
                    misses.push(Miss::new(of, format!("{name}: {expected}"), brief(&came)));
                }
            }
        }
    }
}

impl CallsExpectation {
    fn miss(&self, made: &[CallMade]) -> Option<Miss> {
        let fits = |expected: &ExpectedCall, call: &CallMade| {
            let are_equal = |arguments: &Value| *arguments == call.arguments;
            expected.tool == call.tool && expected.arguments.as_ref().is_none_or(are_equal)
        };
        let expected = match self {
            Self::Any => return None,
            Self::InOrder(expected) => {
                let mut rest = made.iter();
                let first_missing = expected.iter().find(|expected| !rest.any(|call| fits(expected, call)));
                first_missing?;
                expected
            }
            Self::Only(expected) => {
                let is_same = expected.len() == made.len()
                    && expected.iter().zip(made).all(|(expected, call)| fits(expected, call));
                if is_same {
                    return None;
                }
                expected
            }
        };
        let expected: Vec<String> = expected.iter().map(|it| shown(&it.tool, it.arguments.as_ref())).collect();
        let made: Vec<String> = made.iter().map(|call| shown(&call.tool, Some(&call.arguments))).collect();
        let lines = |calls: Vec<String>| if calls.is_empty() { "no call\n".to_owned() } else { calls.concat() };
        Some(Miss { are_texts: true, ..Miss::new("calls", lines(expected), lines(made)) })
    }
}

impl MostSpent {
    fn judge(&self, outcome: &CaseOutcome, misses: &mut Vec<Miss>) {
        if let Some(most) = self.requests.filter(|most| outcome.requests > *most) {
            misses.push(Miss::new("max", format!("{most} requests"), outcome.requests.to_string()));
        }
        match (self.cost_usd, outcome.cost_usd) {
            (Some(most), Some(cost)) if cost > most => {
                misses.push(Miss::new("max", format!("${most}"), format!("${cost:.6}")));
            }
            (Some(most), None) => misses.push(Miss::new("max", format!("${most}"), "nobody knows what it cost")),
            (Some(_) | None, _) => {}
        }
        if let (Some(most), Some(seconds)) = (self.seconds, outcome.seconds)
            && seconds > most
        {
            misses.push(Miss::new("max", format!("{most} s"), format!("{seconds:.1} s")));
        }
    }
}

fn shown(tool: &str, arguments: Option<&Value>) -> String {
    let mut line = tool.to_owned();
    if let Some(arguments) = arguments {
        let _ = write!(line, " {arguments}");
    }
    line.push('\n');
    line
}

fn times(count: usize) -> String {
    if count == 1 { "it was called".to_owned() } else { format!("it was called {count} times") }
}

fn quoted(text: &str) -> String {
    format!("`{}`", brief(text))
}

/// What a line of a report has room for.
const BRIEF: usize = 300;

fn brief(text: &str) -> String {
    match text.char_indices().nth(BRIEF) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{}\n", text.trim_end()),
        other => serde_json::to_string_pretty(other).map(|json| format!("{json}\n")).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn misses(expect: &Expectation, outcome: &CaseOutcome) -> Vec<String> {
        expect.misses(outcome).into_iter().map(|miss| miss.of).collect()
    }

    fn text(expected: TextExpectation, output: Value) -> usize {
        let expect = Expectation { output: Some(expected), ..Expectation::default() };
        misses(&expect, &CaseOutcome { output: Some(output), ..CaseOutcome::default() }).len()
    }

    #[test]
    fn texts_are_judged_in_each_form() {
        let contains = |part: &str| TextExpectation { contains: vec![part.into()], ..TextExpectation::default() };
        assert_eq!((text(contains("b"), json!("abc")), text(contains("d"), json!("abc"))), (0, 1));
        let equals = |value: Value| TextExpectation { equals: Some(value), ..TextExpectation::default() };
        assert_eq!((text(equals(json!("a\n")), json!("a")), text(equals(json!("a")), json!("b"))), (0, 1));
        assert_eq!((text(equals(json!({"a": 1})), json!({"a": 1})), text(equals(json!(1)), json!("1"))), (0, 0));
        let matches = |pattern: &str| TextExpectation { matches: Some(pattern.into()), ..TextExpectation::default() };
        assert_eq!((text(matches("^a.c$"), json!("abc")), text(matches("^b"), json!("abc"))), (0, 1));
        let lines = |min, max| TextExpectation { lines: Some((min, max)), ..TextExpectation::default() };
        assert_eq!((text(lines(2, 2), json!("a\nb\n")), text(lines(0, 1), json!("a\nb"))), (0, 1));
        let members = json!({"a": 1});
        let has = TextExpectation { json: members.as_object().cloned(), ..TextExpectation::default() };
        assert_eq!((text(has.clone(), json!({"a": 1, "b": 2})), text(has.clone(), json!("{\"a\": 1}"))), (0, 0));
        assert_eq!((text(has.clone(), json!({"a": 2})), text(has, json!("no JSON"))), (1, 1));
        let fits = TextExpectation { fits_schema: true, ..TextExpectation::default() };
        assert_eq!(text(fits, json!("a")), 1);
    }

    #[test]
    fn calls_are_judged_in_order_or_exactly() {
        let made = |tools: &[&str]| {
            let call = |tool: &&str| CallMade { tool: (*tool).into(), arguments: json!({"path": "a"}) };
            CaseOutcome { calls: tools.iter().map(call).collect(), ..CaseOutcome::default() }
        };
        let expected = |tools: &[&str], arguments: Option<Value>| {
            let call = |tool: &&str| ExpectedCall { tool: (*tool).into(), arguments: arguments.clone() };
            tools.iter().map(call).collect::<Vec<_>>()
        };
        let in_order = |tools: &[&str]| Expectation {
            calls: CallsExpectation::InOrder(expected(tools, None)),
            ..Expectation::default()
        };
        assert_eq!(misses(&in_order(&["a", "c"]), &made(&["a", "b", "c"])), Vec::<String>::new());
        assert_eq!(misses(&in_order(&["c", "a"]), &made(&["a", "b", "c"])), ["calls"]);
        let only = |tools: &[&str], arguments| Expectation {
            calls: CallsExpectation::Only(expected(tools, arguments)),
            ..Expectation::default()
        };
        assert_eq!(misses(&only(&["a"], None), &made(&["a"])), Vec::<String>::new());
        assert_eq!(misses(&only(&[], None), &made(&["a"])), ["calls"]);
        assert_eq!(misses(&only(&["a"], Some(json!({"path": "b"}))), &made(&["a"])), ["calls"]);
    }

    #[test]
    fn questions_tools_files_and_limits_are_judged() {
        let expect = Expectation {
            never: vec!["shell".into()],
            asks: vec!["write_file".into()],
            files: [("a".to_owned(), TextExpectation::default())].into(),
            max: MostSpent { cost_usd: Some(0.1), requests: Some(1), seconds: Some(1.0) },
            ..Expectation::default()
        };
        let good = CaseOutcome {
            asked: vec![("write_file".into(), false)],
            files: [("a".to_owned(), Some(String::new()))].into(),
            requests: 1,
            cost_usd: Some(0.05),
            ..CaseOutcome::default()
        };
        assert_eq!(misses(&expect, &good), Vec::<String>::new());
        let bad = CaseOutcome {
            called: vec!["shell".into()],
            asked: vec![("edit_file".into(), false), ("edit_file".into(), false)],
            requests: 2,
            cost_usd: None,
            seconds: Some(2.0),
            error: Some("e".into()),
            ..CaseOutcome::default()
        };
        assert_eq!(misses(&expect, &bad), ["run", "never", "asks", "asks", "file a", "max", "max", "max"]);
    }
}
