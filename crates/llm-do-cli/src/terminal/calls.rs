//! Calls and their results as a person reads them: the argument that matters, and a few lines of what came back. Pure.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use llm_do::RawJson;
use llm_do::escape::{visible, visible_lines, visible_start};
use serde_json::Value;

/// How a call that is told can be looked at later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallNumbering {
    /// Nobody asks afterwards.
    None,
    /// Each has a number, and Ctrl-O shows the last result that was cut.
    Keys,
    /// Each has a number that `/show` takes.
    Command,
}

/// What was told of the calls so far.
#[derive(Debug)]
pub struct ToldCalls {
    pub numbering: CallNumbering,
    /// Calls that are open, by the agent's call and their id.
    open: HashMap<(u64, String), CallInWords>,
    /// The one whose line was written last.
    last: Option<(u64, String)>,
    /// How many calls were told.
    count: usize,
    /// Results that can be asked for, the oldest first.
    results: VecDeque<ToldResult>,
    /// How much text these have.
    kept: usize,
}

#[derive(Debug)]
struct CallInWords {
    number: usize,
    /// Its tool and what it is about.
    words: String,
}

#[derive(Debug)]
struct ToldResult {
    number: usize,
    words: String,
    text: String,
    is_cut: bool,
}

/// A result in lines: how it is headed, unless it stands below its call, and what is shown of it.
#[derive(Debug, PartialEq, Eq)]
pub struct ResultLines {
    pub heading: Option<String>,
    pub lines: Vec<String>,
}

/// So many lines of a result are shown.
const SHOWN: usize = 5;
/// So much text of results is kept for those who ask.
const MOST_KEPT: usize = 16 * 1024 * 1024;
/// The most that is shown of an argument.
pub const LONGEST_SUBJECT: usize = 60;
const LONGEST_LINE: usize = 400;
const LONGEST_HEADING: usize = 40;
/// A text that is JSON is only taken apart if it is no longer.
const LONGEST_JSON: usize = 1024 * 1024;

impl Default for ToldCalls {
    fn default() -> Self {
        let (open, results) = (HashMap::new(), VecDeque::new());
        Self { numbering: CallNumbering::None, open, last: None, count: 0, results, kept: 0 }
    }
}

impl ToldCalls {
    /// A call begins: the words of its line. With `all`, every argument is named.
    pub fn begin(&mut self, call: u64, id: &str, tool: &str, arguments: &RawJson, all: bool) -> String {
        self.count += 1;
        // The line itself is cut where the terminal ends.
        let shown =
            if all { format!("{} {}", visible(tool), arguments.get()) } else { told(tool, arguments, LONGEST_LINE) };
        let words = words(tool, arguments);
        let line = format!("→ {}{shown}", self.number(self.count));
        let key = (call, id.to_owned());
        self.open.insert(key.clone(), CallInWords { number: self.count, words });
        self.last = Some(key);
        line
    }

    /// Something else was written.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// A call is over. `took` is said if a person may have waited for it.
    pub fn end(&mut self, call: u64, id: &str, tool: &str, result: &str, took: &str) -> ResultLines {
        let key = (call, id.to_owned());
        let is_below = self.last.take().is_some_and(|last| last == key) && took.is_empty();
        let CallInWords { number, words } = self.closed(&key, tool);
        // What it was about stands further up.
        let name = if words.chars().count() > LONGEST_HEADING { visible(tool).into_owned() } else { words.clone() };
        let heading = (!is_below).then(|| format!("← {}{name}{took}", self.number(number)));
        let readable = Readable::of(result);
        let (lines, hidden) = readable.cut();
        let is_cut = hidden.is_some();
        let mut lines: Vec<String> = lines.map(|line| format!("  │ {}", line.replace('\t', "    "))).collect();
        if let Some(hidden) = hidden {
            let how = match self.numbering {
                CallNumbering::None => String::new(),
                CallNumbering::Keys => ", Ctrl-O shows them".to_owned(),
                CallNumbering::Command => format!(", /show {number} shows them"),
            };
            lines.push(format!("  {hidden}{how}"));
        }
        self.keep(ToldResult { number, words, text: readable.text.into_owned(), is_cut });
        ResultLines { heading, lines }
    }

    /// A call failed: the words of its line.
    pub fn fail(&mut self, call: u64, id: &str, tool: &str, error: &str) -> String {
        let CallInWords { number, words } = self.closed(&(call, id.to_owned()), tool);
        self.last = None;
        let line = format!("✗ {}{words}: {error}", self.number(number));
        self.keep(ToldResult { number, words, text: format!("error: {error}"), is_cut: false });
        line
    }

    fn closed(&mut self, key: &(u64, String), tool: &str) -> CallInWords {
        self.open.remove(key).unwrap_or_else(|| {
            self.count += 1;
            CallInWords { number: self.count, words: visible(tool).into_owned() }
        })
    }

    fn number(&self, number: usize) -> String {
        match self.numbering {
            CallNumbering::None => String::new(),
            CallNumbering::Keys | CallNumbering::Command => format!("{number} "),
        }
    }

    fn keep(&mut self, result: ToldResult) {
        if self.numbering == CallNumbering::None {
            return;
        }
        self.kept += result.text.len();
        self.results.push_back(result);
        while self.kept > MOST_KEPT && self.results.len() > 1 {
            self.kept -= self.results.pop_front().map_or(0, |oldest| oldest.text.len());
        }
    }

    /// The result with this number, whole, or why it cannot be shown.
    pub fn whole(&self, number: usize) -> String {
        match self.results.iter().find(|result| result.number == number) {
            Some(result) => result.shown(),
            None if self.results.is_empty() => "no call was made yet\n".to_owned(),
            None => {
                let numbers = || self.results.iter().map(|result| result.number);
                let (first, last) = (numbers().min().unwrap_or_default(), numbers().max().unwrap_or_default());
                format!("there is no result {number}: {first} to {last}\n")
            }
        }
    }

    /// The last result that was not shown whole.
    pub fn last_cut(&self) -> Option<String> {
        self.results.iter().rev().find(|result| result.is_cut).map(ToldResult::shown)
    }
}

impl ToldResult {
    fn shown(&self) -> String {
        format!("{} {}\n{}\n", self.number, self.words, visible_lines(self.text.trim_end()))
    }
}

/// A call in a few words: its tool, and what it is about.
pub fn words(tool: &str, arguments: &RawJson) -> String {
    told(tool, arguments, LONGEST_SUBJECT)
}

fn told(tool: &str, arguments: &RawJson, limit: usize) -> String {
    match subject(arguments) {
        Some(subject) => format!("{} {}", visible(tool), visible_start(&subject, limit)),
        None => visible(tool).into_owned(),
    }
}

/// The argument that says what a call is about.
pub fn subject(arguments: &RawJson) -> Option<String> {
    const SUBJECTS: &[&str] = &["path", "command", "url", "query", "pattern", "question", "name", "input"];
    let arguments = arguments.to::<Value>().ok()?;
    let object = match &arguments {
        Value::String(text) => return Some(text.clone()),
        Value::Object(object) if !object.is_empty() => object,
        _ => return None,
    };
    let text = |name: &&str| object.get(*name).and_then(Value::as_str).map(str::to_owned);
    let only = || match object.values().collect::<Vec<_>>().as_slice() {
        [Value::String(text)] => Some(text.clone()),
        _ => None,
    };
    SUBJECTS.iter().find_map(text).or_else(only).or_else(|| Some(arguments.to_string()))
}

/// A result as a person reads it.
struct Readable<'a> {
    text: Cow<'a, str>,
    /// Whether it was read from a file: who wants to see it would rather open that.
    is_file: bool,
}

impl<'a> Readable<'a> {
    fn of(result: &'a str) -> Self {
        let plain = Self { text: Cow::Borrowed(result), is_file: false };
        if result.len() > LONGEST_JSON || !result.starts_with('{') {
            return plain;
        }
        let Ok(Value::Object(object)) = serde_json::from_str::<Value>(result) else { return plain };
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        let number = |name: &str| object.get(name).and_then(Value::as_i64);
        let is_cut = object.get("truncated").and_then(Value::as_bool).unwrap_or(false);
        match (text("content"), number("total_chars"), text("stdout"), text("stderr")) {
            (Some(content), Some(all), _, _) => {
                let cut =
                    if is_cut { format!("\n({} of {all} characters)", content.chars().count()) } else { String::new() };
                Self { text: Cow::Owned(format!("{}{cut}", content.trim_end_matches('\n'))), is_file: true }
            }
            (_, _, Some(stdout), Some(stderr)) => {
                let code = number("exit_code").filter(|code| *code != 0).map(|code| format!("exit code {code}"));
                let cut = is_cut.then(|| "(the rest was cut)".to_owned());
                let parts = [Some(stdout.trim_end().to_owned()), Some(stderr.trim_end().to_owned()), code, cut];
                let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
                Self { text: Cow::Owned(parts.join("\n")), is_file: false }
            }
            _ => plain,
        }
    }

    /// What is shown of it, and how much more there is.
    fn cut(&self) -> (impl Iterator<Item = &str>, Option<String>) {
        let text = self.text.trim_end();
        let all = if text.is_empty() { 0 } else { text.split('\n').count() };
        let (shown, hidden) = match all {
            0 => (0, None),
            all if self.is_file && all > SHOWN => (0, Some(format!("{all} lines"))),
            // A line that says that there is one more takes as much room as that.
            all if all <= SHOWN + 1 => (all, None),
            all => (SHOWN, Some(format!("… {} more lines", all - SHOWN))),
        };
        let empty = (all == 0).then_some("(empty)");
        (text.split('\n').map(|line| line.trim_end_matches('\r')).take(shown).chain(empty), hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> RawJson {
        RawJson::parse(text).unwrap()
    }

    #[test]
    fn a_call_is_told_by_the_argument_that_matters() {
        for (arguments, expected) in [
            (r#"{"content":"x","path":"a.md"}"#, "t a.md"),
            (r#"{"command":"ls -l notes"}"#, "t ls -l notes"),
            (r#"{"change":"Moved the build."}"#, "t Moved the build."),
            (r#"{"a":1,"b":"x"}"#, r#"t {"a":1,"b":"x"}"#),
            (r#""go""#, "t go"),
            ("{}", "t"),
            (r#"{"path":"a\u001bb"}"#, "t a\\u{1b}b"),
        ] {
            assert_eq!(words("t", &json(arguments)), expected, "{arguments}");
        }
    }

    fn lines_of(numbering: CallNumbering, result: &str) -> (Vec<String>, ToldCalls) {
        let mut calls = ToldCalls { numbering, ..ToldCalls::default() };
        let first = calls.begin(1, "a", "t", &json(r#"{"path":"x"}"#), false);
        let ResultLines { heading, lines } = calls.end(1, "a", "t", result, "");
        (std::iter::once(first).chain(heading).chain(lines).collect(), calls)
    }

    #[test]
    fn results_are_shown_as_what_they_are() {
        let lines = |count: usize| (1..=count).map(|number| format!("l{number}\n")).collect::<Vec<_>>().concat();
        let shell = |stdout: &str, code: i32| {
            serde_json::json!({"stdout": stdout, "stderr": "", "exit_code": code, "truncated": false}).to_string()
        };
        let file =
            |content: &str| serde_json::json!({"content": content, "truncated": false, "total_chars": 3}).to_string();
        for (result, expected) in [
            ("done".to_owned(), vec!["  │ done"]),
            (String::new(), vec!["  │ (empty)"]),
            (lines(6), vec!["  │ l1", "  │ l2", "  │ l3", "  │ l4", "  │ l5", "  │ l6"]),
            (lines(8), vec!["  │ l1", "  │ l2", "  │ l3", "  │ l4", "  │ l5", "  … 3 more lines"]),
            (shell("total 8\n", 0), vec!["  │ total 8"]),
            (shell("no\n", 2), vec!["  │ no", "  │ exit code 2"]),
            (file("one\ntwo\n"), vec!["  │ one", "  │ two"]),
            (file(&lines(12)), vec!["  12 lines"]),
            (r#"{"kind":"new"}"#.to_owned(), vec![r#"  │ {"kind":"new"}"#]),
        ] {
            assert_eq!(lines_of(CallNumbering::None, &result).0[1..], expected, "{result}");
        }
    }

    #[test]
    fn what_was_cut_can_be_asked_for() {
        let all = (1..=9).map(|number| format!("l{number}")).collect::<Vec<_>>().join("\n");
        let (lines, mut calls) = lines_of(CallNumbering::Keys, &all);
        assert_eq!((lines[0].as_str(), lines[6].as_str()), ("→ 1 t x", "  … 4 more lines, Ctrl-O shows them"));
        assert_eq!(calls.last_cut(), Some(format!("1 t x\n{all}\n")));
        assert_eq!(calls.whole(1), format!("1 t x\n{all}\n"));
        assert_eq!(calls.whole(2), "there is no result 2: 1 to 1\n");
        assert_eq!(lines_of(CallNumbering::Command, &all).0[6], "  … 4 more lines, /show 1 shows them");
        // Of two calls at once it is said which one has ended, and of one that took long how long.
        calls.begin(1, "b", "t", &json(r#"{"path":"y"}"#), false);
        calls.begin(1, "c", "t", &json(r#"{"path":"z"}"#), false);
        assert_eq!(calls.end(1, "b", "t", "ok", "").heading.as_deref(), Some("← 2 t y"));
        assert_eq!(calls.end(1, "c", "t", "ok", " (2.1 s)").heading.as_deref(), Some("← 3 t z (2.1 s)"));
        assert_eq!(calls.fail(1, "d", "t", "no"), "✗ 4 t: no");
    }
}
