//! The words of a question, so that every front end says the same before a tool runs. Pure: a request in, lines out. All that a call
//! would do is shown once, nothing of it is cut; what comes from elsewhere is marked line by line and never stands in a heading.

use std::fmt;

use llm_do::approval::{FieldType, Form, FormField, Memory, PendingQuestion, Question, short_id};
use llm_do::escape::{is_deceptive, visible, visible_json, visible_lines, visible_name};
use llm_do::{ApprovalRequest, RawJson};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Longer words of others are cut.
const LONGEST_FOREIGN: usize = 2000;

/// A line of a question, and what it is. How that looks is the front end's decision.
#[derive(Debug, PartialEq, Eq)]
pub struct QuestionLine {
    pub role: LineRole,
    pub text: String,
}

/// What a line of a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRole {
    /// Which call it is about.
    Heading,
    /// Our own words, and the arguments.
    Plain,
    /// What the call would add to a file, or take away from it.
    Added,
    Removed,
    /// Words of the author of the tool.
    Quoted,
}

/// A key that the person may press, and what it does in few words.
#[derive(Debug, PartialEq, Eq)]
pub struct AnswerKey {
    pub key: char,
    pub words: &'static str,
}

/// Which question of a run it is, of those that are known so far.
#[derive(Clone, Copy, Debug)]
pub struct QuestionNumber {
    pub number: usize,
    /// The number of the last one, if several stand open together.
    pub of: Option<usize>,
}

/// What may be answered beside yes and no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerOffer {
    /// What is remembered for the session.
    pub memory: Memory,
    /// Whether a rule can be added.
    pub lasts: bool,
    /// It is about a limit: a yes raises it, and another figure can be named.
    pub raises: bool,
    /// It has a form: what is filled in is the answer, and no key is.
    pub fills: bool,
}

/// The question without its keys.
pub fn lines(request: &ApprovalRequest, number: QuestionNumber) -> Vec<QuestionLine> {
    edited_lines(request, &request.arguments, &request.question, number)
}

/// The same about other arguments for the call, of which this would be asked.
pub fn edited_lines(
    request: &ApprovalRequest,
    arguments: &RawJson,
    question: &Question,
    QuestionNumber { number, of }: QuestionNumber,
) -> Vec<QuestionLine> {
    let Question { reason, preview, shows, rule, foreign, form, .. } = question;
    let words = QuestionWords {
        reason,
        arguments,
        preview: preview.as_deref(),
        shows,
        rule: rule.as_deref(),
        foreign: foreign.as_deref(),
        form: form.as_ref(),
    };
    let what = words.what();
    let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
    words.lines(&heading(&format!("{what} {number}{of}"), &request.path, &request.tool, short_id(&request.id)))
}

/// The same of a question that another process asks, under a name by which it can be answered.
pub fn waiting_lines(pending: &PendingQuestion, name: &str) -> Vec<QuestionLine> {
    let words = QuestionWords::of(pending);
    words.lines(&heading(words.what(), &pending.path, &pending.tool, name))
}

/// A question that waits to be answered elsewhere or later, in the same words.
pub fn pending(pending: &PendingQuestion) -> String {
    let PendingQuestion { id, path, tool, .. } = pending;
    let path = visible_name(&path.join(" › ")).into_owned();
    let words = QuestionWords::of(pending);
    let what = if words.form.is_some() { "an answer" } else { "approval" };
    let heading = format!("waiting for {what} ({}): {path} › {}", short_id(id), visible_name(tool));
    let lines = words.lines(&heading);
    joined(&lines)
}

/// A call, all of it, under a heading that ends with what was called.
pub fn call(heading: &str, path: &[String], tool: &str, arguments: &RawJson) -> String {
    let lines = joined(&argument_lines(arguments, &[]));
    format!("{heading}: {} › {}\n{lines}", visible_name(&path.join(" › ")), visible_name(tool))
}

fn joined(lines: &[QuestionLine]) -> String {
    lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect()
}

fn heading(what: &str, path: &[String], tool: &str, name: &str) -> String {
    let path: Vec<&str> = path.iter().map(String::as_str).chain([tool]).collect();
    format!("{what} · {} · {name}", visible_name(&path.join(" › ")))
}

/// What a person reads of a question, whoever asks it.
struct QuestionWords<'a> {
    reason: &'a str,
    arguments: &'a RawJson,
    preview: Option<&'a str>,
    shows: &'a [String],
    rule: Option<&'a str>,
    foreign: Option<&'a str>,
    form: Option<&'a Form>,
}

impl<'a> QuestionWords<'a> {
    fn of(pending: &'a PendingQuestion) -> Self {
        let PendingQuestion { arguments, reason, preview, shows, rule, foreign, form, .. } = pending;
        let (preview, rule, foreign) = (preview.as_deref(), rule.as_deref(), foreign.as_deref());
        Self { reason, arguments, preview, shows, rule, foreign, form: form.as_ref() }
    }

    /// What a person is asked for.
    fn what(&self) -> &'static str {
        if self.form.is_some() { "question" } else { "approval" }
    }

    /// Everything once: what the preview holds in full is not shown again as an argument.
    fn lines(&self, heading: &str) -> Vec<QuestionLine> {
        let mut lines = vec![QuestionLine { role: LineRole::Heading, text: heading.to_owned() }];
        if self.rule != Some(self.reason) {
            lines.push(plain(visible_name(self.reason)));
        }
        lines.extend(self.form.into_iter().flat_map(form_lines));
        let arguments = argument_lines(self.arguments, self.shows);
        let of_preview = |line: &str| QuestionLine { role: role_in_difference(line), text: visible(line).into_owned() };
        let preview = self.preview.into_iter().flat_map(str::lines).map(of_preview);
        if self.shows.is_empty() {
            lines.extend(arguments);
            lines.extend(preview);
        } else {
            lines.extend(preview);
            lines.extend(arguments);
        }
        if let Some(foreign) = self.foreign {
            let quoted = |line: &str| QuestionLine { role: LineRole::Quoted, text: format!("│ {}", visible(line)) };
            lines.push(plain("in the words of its author:"));
            lines.extend(bounded(foreign).lines().map(quoted));
        }
        lines.extend(self.rule.map(|rule| plain(format!("because {}", visible_name(rule)))));
        lines
    }
}

/// A form: what is asked, and what there is to fill in. All of it is words of whoever asks.
fn form_lines(form: &Form) -> Vec<QuestionLine> {
    let quoted =
        |text: String| QuestionLine { role: LineRole::Quoted, text: format!("│ {text}").trim_end().to_owned() };
    let widest = form.fields.iter().map(|field| field.name.chars().count()).max().unwrap_or_default().min(20);
    let mut lines: Vec<String> = form.question.lines().map(|line| visible(line).into_owned()).collect();
    lines.push(String::new());
    for field in &form.fields {
        let [first, rest @ ..] = &field_words(field)[..] else { continue };
        let name = visible_name(&field.name);
        lines.push(format!("{name:<widest$}  {first}"));
        lines.extend(rest.iter().map(|option| format!("{:<widest$}  {option}", "")));
    }
    lines.into_iter().map(quoted).collect()
}

/// What a field takes. Options that would be hard to read in a row stand one below the other.
fn field_words(field: &FormField) -> Vec<String> {
    const ROW: usize = 56;
    let optional = if field.required { "" } else { ", may be left out" };
    let wanted = visible_name(&field.wanted()).into_owned();
    let is_row = wanted.chars().count() <= ROW && !field.options.iter().any(|option| option.contains(','));
    if field.kind != FieldType::Choice || is_row {
        return vec![format!("{wanted}{optional}")];
    }
    let numbered = field.options.iter().enumerate();
    let options = numbered.map(|(index, option)| format!("{:>2}  {}", index + 1, visible_name(option)));
    std::iter::once(format!("one of these{optional}:")).chain(options).collect()
}

fn plain(text: impl Into<String>) -> QuestionLine {
    QuestionLine { role: LineRole::Plain, text: text.into() }
}

/// The members of an object, in the order in which they were written.
struct Members(Vec<(String, RawJson)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Arguments as `name  value`: texts line by line behind `│`, the rest as JSON. What cannot be seen is escaped in a text only
/// where a `\` stands before its `│`, and there `\` is `\\`: no two texts look the same.
fn argument_lines(arguments: &RawJson, shows: &[String]) -> Vec<QuestionLine> {
    let Ok(Members(members)) = arguments.to::<Members>() else {
        return visible_lines(&arguments.indented()).lines().map(plain).collect();
    };
    let members: Vec<_> = members.into_iter().filter(|(name, _)| !shows.contains(name)).collect();
    let widest = members.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default().min(20);
    let mut lines = Vec::new();
    for (name, value) in members {
        let name = visible_name(&name).into_owned();
        match value.to::<String>() {
            Ok(text) => {
                let mut name = name.as_str();
                for line in text.split('\n') {
                    let (mark, line) = escaped_text(line);
                    let gap = if line.is_empty() { "" } else { " " };
                    lines.push(plain(format!("{name:<widest$} {mark}│{gap}{line}")));
                    name = "";
                }
            }
            Err(_) => lines.push(plain(format!("{name:<widest$}  {}", readable_json(value.get())))),
        }
    }
    lines
}

/// A line of a text, and whether characters of it are escapes.
fn escaped_text(line: &str) -> (char, String) {
    if !line.chars().any(is_deceptive) {
        return (' ', line.to_owned());
    }
    let mut shown = String::new();
    for c in line.chars() {
        if is_deceptive(c) || c == '\\' { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    ('\\', shown)
}

/// JSON in one line with letters as letters, and escapes only for what deceives.
fn readable_json(json: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(start) = rest.find('"') {
        shown.extend(rest[..start].chars().filter(|c| !c.is_ascii_whitespace()));
        let mut is_escaped = false;
        let inside = rest[start + 1..].find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let end = inside.map_or(rest.len(), |end| start + end + 2);
        let literal = &rest[start..end];
        let text = serde_json::from_str::<String>(literal).ok();
        shown.push_str(&text.and_then(|text| serde_json::to_string(&text).ok()).unwrap_or_else(|| literal.to_owned()));
        rest = &rest[end..];
    }
    shown.extend(rest.chars().filter(|c| !c.is_ascii_whitespace()));
    visible_json(&shown).into_owned()
}

/// A line of a difference: its number, a mark if characters of it are escapes, and its sign.
fn role_in_difference(line: &str) -> LineRole {
    let behind = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    let has_number = behind.len() < line.trim_start().len();
    match behind.as_bytes() {
        [b' ' | b'\\', b'+', b' ', ..] if has_number => LineRole::Added,
        [b' ' | b'\\', b'-', b' ', ..] if has_number => LineRole::Removed,
        _ => LineRole::Plain,
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(LONGEST_FOREIGN) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}

/// The keys for a question, in few words.
pub fn keys(offer: AnswerOffer) -> Vec<AnswerKey> {
    if offer.fills {
        return Vec::new();
    }
    let keys = [
        ('y', if offer.raises { "yes, raise it" } else { "yes" }, true),
        ('s', "this call", offer.memory != Memory::Nothing),
        ('t', "this tool", offer.memory == Memory::CallOrTool),
        ('a', "always", offer.lasts),
        ('e', if offer.raises { "another figure" } else { "edit" }, true),
        ('n', if offer.raises { "no: stop here" } else { "no" }, true),
        ('q', "stop", true),
        ('?', "explain", true),
    ];
    keys.into_iter().filter(|(.., is_offered)| *is_offered).map(|(key, words, _)| AnswerKey { key, words }).collect()
}

/// What an answer for the session covers, in words: this call, or the tool.
pub fn coverage(request: &ApprovalRequest, of_tool: bool) -> String {
    let covers = request.question.covers.as_ref();
    match (covers, of_tool) {
        (Some(covers), false) => visible_name(&covers.call).into_owned(),
        (Some(covers), true) => visible_name(&covers.tool).into_owned(),
        (None, false) => "this exact call".to_owned(),
        (None, true) => format!("`{}` with any arguments", visible(&request.tool)),
    }
}

/// What each key does, in full.
pub fn explanation(request: &ApprovalRequest, offer: AnswerOffer) -> Vec<String> {
    let agent = visible(&request.caller);
    let for_session = |of_tool| format!("{} for the agent {agent}, until you leave", coverage(request, of_tool));
    let words = |key: char| match key {
        'y' if offer.raises => "yes, raise it to what is proposed".to_owned(),
        'e' if offer.raises => "raise it to another figure, which you type".to_owned(),
        'n' if offer.raises => "no: the run stops at the limit".to_owned(),
        'y' => "yes, once".to_owned(),
        's' => format!("yes, and {}", for_session(false)),
        't' => format!("yes, and {}", for_session(true)),
        'a' => "a rule that lasts: it is shown first, and you choose how wide it is".to_owned(),
        'e' => "change it in your editor; the result is shown and asked about".to_owned(),
        'n' => "no; you may say why, and the model reads it".to_owned(),
        'q' => "no, and stop here".to_owned(),
        _ => "this".to_owned(),
    };
    let mut lines: Vec<String> =
        keys(offer).iter().map(|AnswerKey { key, .. }| format!("{key}  {}", words(*key))).collect();
    lines.push("a \\ before a sign: what cannot be seen is written as \\t or \\u{202e}".to_owned());
    lines
}

#[cfg(test)]
mod tests;
