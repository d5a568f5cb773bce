//! The keys of a rule, and how rules are read from files: a file of rules in TOML, and the manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::pattern::{
    AgentPattern, ArgumentView, ArgumentsPattern, FileNames, TextPattern, ValuePattern, WordsPattern, directory,
};
use super::toml_text::{toml_text, toml_value};
use super::{LastingRule, RuleSource};
use crate::escape::visible_start;
use crate::message::RawJson;
use crate::syntax::claim::Bearing::{Covered, Neutral};
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, Located, Report, Sources, Span};
use crate::syntax::names::nearest;
use crate::syntax::table::Shape::{self, AnyOf, AnyText, JsonObject, List, Object, Text};
use crate::syntax::table::{Fields, Reading, Repeats, Table, optional, required};
use crate::syntax::toml_tree::parse_toml;
use crate::syntax::tree::{self, MappingEntry, Node, NodeKind};
use crate::tools::approval::Rule;
use crate::tools::shell::words;

const EXAMPLES: Shape = List {
    of: &AnyOf(&[AnyText, List { of: &AnyText, least: 1, repeats: Repeats::Allowed }, JsonObject]),
    least: 1,
    repeats: Repeats::Allowed,
};

/// The keys of one rule; every other key is the name of an argument.
const RULE: Table = Table {
    what: "a rule",
    keys: &[
        optional("allow", Text, Covered, "the tool whose calls need no question"),
        optional("ask", Text, Neutral, "the tool whose calls ask"),
        optional("block", Text, Neutral, "the tool whose calls do not run"),
        optional("agent", Text, Covered, "the agent that calls, below those before a `>`"),
        optional("project", Text, Covered, "the project's directory; without it the rule is for all projects"),
        optional("words", WORDS, Covered, "the words of a command"),
        optional("arguments", AnyOf(&[Text, JsonObject]), Covered, "the arguments: all as JSON, or some by name"),
        optional("expires", Text, Covered, "the last day on which it holds"),
        optional("example", EXAMPLES, Neutral, "what it must be about"),
        optional("never", EXAMPLES, Neutral, "what it must not be about"),
    ],
};

const WORDS: Shape = List { of: &AnyOf(&[AnyText, Object(&WORD)]), least: 1, repeats: Repeats::Allowed };

const WORD: Table =
    Table { what: "a word of a command", keys: &[required("glob", Text, Covered, "what the word is like")] };

/// The keys of a file of rules.
const FILE: Table = Table {
    what: "a file of rules",
    keys: &[optional("rule", List { of: &JsonObject, least: 0, repeats: Repeats::Allowed }, Neutral, "the rules")],
};

/// A file of rules, as it was read.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// Where it is.
    pub path: PathBuf,
    /// What the places of its rules are called by: `rules.toml` of `rules.toml:12`.
    pub label: String,
    /// What is in it.
    pub text: String,
    /// Whose rules they are.
    pub source: RuleSource,
}

/// Reads files of rules. One mistake in one of them, and none of them counts: all mistakes are told.
pub fn read_rules(files: &[RuleFile]) -> Result<Vec<Arc<LastingRule>>, Report> {
    let (mut sources, mut problems, mut rules) = (Sources::default(), Diagnostics::default(), Vec::new());
    for RuleFile { path, label, text, source } in files {
        let file = sources.add(path.clone(), text.clone());
        let node = parse_toml(tree::Text::whole(file, text), &mut problems);
        let Some(node) = node.filter(|node| FILE.check(node, Reading::TOML, &mut problems)) else { continue };
        let lines = LineStarts::of(text);
        let place = |span: Span| format!("{label}:{}", lines.line_of(span));
        if let Some(Node { kind: NodeKind::List(nodes), .. }) = FILE.fields(&node).get("rule") {
            rules.extend(nodes.iter().filter_map(|node| read_rule(node, *source, &place, &mut problems)));
        }
    }
    if problems.has_errors() { Err(Report::new(Arc::new(sources), problems)) } else { Ok(rules) }
}

/// The rules of a manifest.
pub(crate) fn read_manifest_rules(
    node: &Node,
    file: &str,
    text: &str,
    problems: &mut Diagnostics,
) -> Vec<Arc<LastingRule>> {
    let NodeKind::List(nodes) = &node.kind else { return Vec::new() };
    let lines = LineStarts::of(text);
    let place = |span: Span| format!("{file}:{}", lines.line_of(span));
    nodes.iter().filter_map(|node| read_rule(node, RuleSource::Manifest, &place, problems)).collect()
}

/// What a rule of the manifest says, and its text: for those who are asked to trust it.
pub(crate) fn manifest_rule(node: &Node) -> Option<(Rule, String)> {
    let rule = read_rule(node, RuleSource::Manifest, &|_| String::new(), &mut Diagnostics::default())?;
    Some((rule.rule, rule.shown.clone()))
}

/// Where the lines of a text end, found once for all of its rules.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn of(text: &str) -> Self {
        Self(memchr::memchr_iter(b'\n', text.as_bytes()).collect())
    }

    /// The line that a place is in, counted from 1.
    fn line_of(&self, span: Span) -> usize {
        1 + self.0.partition_point(|end| *end < span.start)
    }
}

fn read_rule(
    node: &Node,
    source: RuleSource,
    place: &dyn Fn(Span) -> String,
    problems: &mut Diagnostics,
) -> Option<Arc<LastingRule>> {
    let NodeKind::Map(entries) = &node.kind else {
        // It was reported with the list that it stands in.
        return None;
    };
    let is_key = |entry: &&MappingEntry| RULE.keys.iter().any(|key| key.name == entry.key.value);
    let (known, others): (Vec<_>, Vec<_>) = entries.iter().partition(is_key);
    let known = Node { span: node.span, kind: NodeKind::Map(known.into_iter().cloned().collect()) };
    if !RULE.check(&known, source.reading(), problems) {
        return None;
    }
    let fields = RULE.fields(&known);
    let mut reader = RuleReader { source, problems, is_good: true };
    let said = reader.said(&fields, node.span);
    let agent = fields.text("agent").and_then(|agent| reader.agent(&agent));
    let project = fields.text("project").and_then(|project| reader.project(&project));
    let words = fields.get("words").and_then(|words| reader.words(words));
    let arguments = reader.arguments(&others, fields.get("arguments"));
    let expires = fields.text("expires").and_then(|date| reader.date(date));
    let is_good = reader.is_good;
    let (rule, tool) = said.filter(|_| is_good)?;
    let shown = shown(entries);
    let place = Arc::from(place(node.span));
    let rule = LastingRule { source, place, rule, tool, agent, project, arguments, words, expires, shown };
    check_examples(&rule, &fields, problems).then(|| Arc::new(rule))
}

/// A rule in one line, without what only tests it.
fn shown(entries: &[MappingEntry]) -> String {
    let entries = entries.iter().filter(|entry| !["example", "never"].contains(&entry.key.value.as_str()));
    let parts = entries.map(|entry| format!("{} = {}", entry.key.value, toml_value(&entry.value)));
    parts.collect::<Vec<_>>().join("  ")
}

impl RuleSource {
    /// What rules from there are written in.
    fn reading(self) -> Reading<'static> {
        match self {
            Self::Manifest => Reading::JSON,
            Self::Yours | Self::Organisation => Reading::TOML,
        }
    }
}

struct RuleReader<'a> {
    source: RuleSource,
    problems: &'a mut Diagnostics,
    is_good: bool,
}

impl RuleReader<'_> {
    fn wrong(&mut self, span: Span, fact: impl Into<String>, hint: Option<&str>) {
        self.is_good = false;
        self.problems.push(Diagnostic::error(span, fact).maybe_hint(hint.map(str::to_owned)));
    }

    /// What the rule says, and of which tool.
    fn said(&mut self, fields: &Fields<'_>, span: Span) -> Option<(Rule, TextPattern)> {
        let said: Vec<_> = Rule::WORDS
            .iter()
            .filter_map(|word| Some((Rule::parse(word)?, fields.text(word)?, fields.key_span(word)?)))
            .collect();
        match said.as_slice() {
            [(rule, tool, _)] => match TextPattern::parse(&tool.value) {
                Ok(pattern) => Some((*rule, pattern)),
                Err(mistake) => {
                    self.wrong(tool.span, format!("not a name or pattern of tools: {mistake}"), None);
                    None
                }
            },
            [] => {
                let hint = "write `allow`, `ask` or `block` with the name of a tool: `ask = \"write_file\"`";
                self.wrong(span, "the rule does not say what becomes of which tool", Some(hint));
                None
            }
            [_, (_, _, second), ..] => {
                self.wrong(*second, "a rule says one of `allow`, `ask` and `block`", Some("write two rules"));
                None
            }
        }
    }

    fn agent(&mut self, agent: &Located<String>) -> Option<AgentPattern> {
        match AgentPattern::parse(&agent.value) {
            Ok(pattern) => Some(pattern),
            Err(reason) => {
                self.wrong(agent.span, format!("not a path of agents: {reason}"), Some("such as `support > cashier`"));
                None
            }
        }
    }

    fn project(&mut self, project: &Located<String>) -> Option<PathBuf> {
        if self.source == RuleSource::Manifest {
            self.wrong(
                project.span,
                "a rule of a manifest is always about its own project",
                Some("leave `project` out"),
            );
            return None;
        }
        if !project.value.starts_with('/') {
            self.wrong(
                project.span,
                "`project` is not an absolute path",
                Some("write the whole path of its directory"),
            );
            return None;
        }
        directory(&project.value).map(|path| PathBuf::from(path.as_ref()))
    }

    fn words(&mut self, node: &Node) -> Option<WordsPattern> {
        let NodeKind::List(items) = &node.kind else { return None };
        let mut words = Vec::new();
        let mut is_open = false;
        for (index, item) in items.iter().enumerate() {
            match &item.kind {
                NodeKind::Text(text) if text == "..." => {
                    if index + 1 < items.len() {
                        self.wrong(item.span, "`...` stands for the last words only", None);
                    }
                    is_open = true;
                }
                NodeKind::Text(text) => words.push(TextPattern::literal(text)),
                _ => match WORD.fields(item).text("glob").map(|glob| TextPattern::parse(&glob.value)) {
                    Some(Ok(pattern)) => words.push(pattern),
                    Some(Err(mistake)) => self.wrong(item.span, format!("not a pattern: {mistake}"), None),
                    None => self.is_good = false,
                },
            }
        }
        if words.is_empty() {
            self.wrong(node.span, "`words` names no word", Some("leave it out, if the rule is about every command"));
        }
        Some(WordsPattern { words, is_open })
    }

    fn arguments(&mut self, others: &[&MappingEntry], node: Option<&Node>) -> Option<ArgumentsPattern> {
        if let Some(Node { kind: NodeKind::Text(json), span }) = node {
            if let Some(other) = others.first() {
                let fact = "`arguments` says what all arguments are, and this one is named beside it";
                self.wrong(other.key.span, fact, Some("keep one of them"));
            }
            return match serde_json::from_str::<Value>(json) {
                Ok(value @ Value::Object(_)) => Some(ArgumentsPattern::Exactly(value)),
                Ok(_) | Err(_) => {
                    self.wrong(*span, "`arguments` is not a JSON object", Some("such as '{\"to\": \"ann\"}'"));
                    None
                }
            };
        }
        let mut patterns = Vec::new();
        for entry in others {
            // A misspelled key would make a rule that is about nothing.
            if let Some(key) = nearest(&entry.key.value, RULE.keys.iter().map(|key| key.name)) {
                let hint = format!("for an argument of that name write `arguments = {{ {} = … }}`", entry.key.value);
                let fact = format!("`{}` is no key of a rule; is `{key}` meant?", visible_start(&entry.key.value, 60));
                self.wrong(entry.key.span, fact, Some(&hint));
                continue;
            }
            patterns.extend(self.value(entry));
        }
        if let Some(Node { kind: NodeKind::Map(entries), .. }) = node {
            for entry in entries {
                patterns.extend(self.value(entry));
            }
        }
        (!patterns.is_empty()).then_some(ArgumentsPattern::ByName(patterns))
    }

    fn value(&mut self, entry: &MappingEntry) -> Option<(String, ValuePattern)> {
        let node = &entry.value;
        let pattern = match &node.kind {
            NodeKind::Text(text) => self.text(text, node.span)?,
            NodeKind::Map(keys) => match keys.as_slice() {
                [MappingEntry { key, value }] => self.keyed(key, value)?,
                _ => {
                    self.wrong(node.span, "an argument is described by one key", Some(VALUE_HINT));
                    return None;
                }
            },
            _ => ValuePattern::Equals(json(node)),
        };
        Some((entry.key.value.clone(), pattern))
    }

    fn text(&mut self, text: &str, span: Span) -> Option<ValuePattern> {
        match TextPattern::parse(text) {
            Ok(pattern) => Some(ValuePattern::Text(pattern)),
            Err(mistake) => {
                let hint = format!("for exactly this text write {{ equals = {} }}", toml_text(text));
                self.wrong(span, format!("not a pattern: {mistake}"), Some(&hint));
                None
            }
        }
    }

    fn keyed(&mut self, key: &Located<String>, value: &Node) -> Option<ValuePattern> {
        match (key.value.as_str(), &value.kind) {
            ("equals", _) => Some(ValuePattern::Equals(json(value))),
            ("glob", NodeKind::Text(text)) => self.text(text, value.span),
            ("under", NodeKind::Text(text)) => match directory(text) {
                Some(directory) => Some(ValuePattern::Under(directory.into_owned())),
                None => {
                    self.wrong(value.span, "the directory leads out of the project", None);
                    None
                }
            },
            ("max", NodeKind::Integer(_) | NodeKind::Number(..)) => json(value).as_f64().map(ValuePattern::Max),
            ("glob" | "under" | "max", _) => {
                let what = if key.value == "max" { "a number" } else { "a text" };
                self.wrong(
                    value.span,
                    format!("expected {what}, found {}", value.describe(self.source.reading().language)),
                    None,
                );
                None
            }
            _ => {
                let fact = format!("unknown key `{}` of an argument", visible_start(&key.value, 60));
                self.wrong(key.span, fact, Some(VALUE_HINT));
                None
            }
        }
    }

    fn date(&mut self, date: Located<String>) -> Option<String> {
        if is_date(&date.value) {
            return Some(date.value);
        }
        let fact = format!("`{}` is no day", visible_start(&date.value, 40));
        self.wrong(date.span, fact, Some("such as 2026-12-16"));
        None
    }
}

const VALUE_HINT: &str = "write a text with `*` in it, { equals = … }, { under = \"drafts\" } or { max = 100 }";

fn json(node: &Node) -> Value {
    serde_json::from_str(&node.to_json()).unwrap_or(Value::Null)
}

/// Whether a text is a day of the calendar, as `2026-12-16`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let number = |text: &str, length: usize| {
        let is_number = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u32>().ok()).flatten()
    };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Holds a rule against what its author says that it is about.
fn check_examples(rule: &LastingRule, fields: &Fields<'_>, problems: &mut Diagnostics) -> bool {
    let mut is_good = true;
    for (key, expected) in [("example", true), ("never", false)] {
        let Some(Node { kind: NodeKind::List(examples), .. }) = fields.get(key) else { continue };
        for example in examples {
            let problem = match fits_example(rule, example) {
                Ok(fits) if fits == expected => continue,
                Ok(true) => "the rule is about this, which it must never be",
                Ok(false) => "the rule is not about its own example",
                Err(reason) => reason,
            };
            problems.push(Diagnostic::error(example.span, problem));
            is_good = false;
        }
    }
    is_good
}

fn fits_example(rule: &LastingRule, example: &Node) -> Result<bool, &'static str> {
    if let NodeKind::Map(_) = &example.kind {
        let arguments = RawJson::of(&json(example));
        return Ok(rule.fits(&ArgumentView::new(Some(&arguments), None, Path::new("/"))));
    }
    if rule.words.is_some() {
        let words = match &example.kind {
            NodeKind::Text(command) => words::split(command)
                .map_err(|_| "the example is no command")?
                .into_iter()
                .map(|word| word.text)
                .collect(),
            _ => crate::syntax::table::texts_of(example).into_iter().map(|word| word.value).collect::<Vec<_>>(),
        };
        return Ok(rule.fits(&ArgumentView::of_words(&words)));
    }
    let (NodeKind::Text(text), Some(ArgumentsPattern::ByName(patterns))) = (&example.kind, &rule.arguments) else {
        return Err("an example of this rule is a mapping of arguments");
    };
    match patterns.as_slice() {
        [(name, _)] if name == "path" => {
            Ok(FileNames::written(text).is_some_and(|file| rule.fits(&ArgumentView::of_file(file))))
        }
        [(name, _)] => {
            let arguments = RawJson::of(&serde_json::json!({ name: text }));
            Ok(rule.fits(&ArgumentView::new(Some(&arguments), None, Path::new("/"))))
        }
        _ => Err("an example of this rule is a mapping of arguments"),
    }
}
