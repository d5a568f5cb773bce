//! `NAME.test.yaml`: the cases that an agent is tested with, read from their tree. Pure: every mistake is collected with its
//! place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::expectation::{CallsExpectation, Expectation, ExpectedCall, MostSpent, TextExpectation};
use crate::escape::visible_start;
use crate::glob::{Glob, Letters, Slash};
use crate::json_schema;
use crate::syntax::claim::Bearing::{Inside, Item, Neutral};
use crate::syntax::claim::{Claim, ClaimClass, WrittenKey};
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, FileId, Located, Span};
use crate::syntax::table::Repeats::{Allowed, Refused};
use crate::syntax::table::Shape::{
    Any, AnyOf, AnyText, Count, Integer, JsonObject, List, Map, Name, Number, Object, OneOf, Text,
};
use crate::syntax::table::{Fields, Reading, Shape, Table, optional, required, texts_of};
use crate::syntax::tree::{self, Node, NodeKind};

/// How files with cases end.
pub(crate) const TEST_ENDING: &str = ".test.yaml";

/// The cases of one agent.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// Beneath the project root.
    pub path: PathBuf,
    /// Who is tested.
    pub agent: String,
    /// Where that is said; nowhere if it follows from the name of the file.
    pub(crate) agent_at: Option<Span>,
    /// The cases, in the order of the file.
    pub cases: Vec<TestCase>,
    /// What its keys ask of whoever tests the project.
    pub(crate) claims: Vec<Located<Claim>>,
}

/// One case: what is said to the agent, and what must come of it.
#[derive(Clone, Debug)]
pub struct TestCase {
    /// Unique in its file.
    pub name: String,
    /// Whether tools run, or answer from the record.
    pub tools: ToolAnswers,
    /// Which questions are answered with yes.
    pub approve: ApprovedTools,
    /// Patterns of what is copied into the scratch project; nothing if all is.
    pub(crate) scratch: Vec<String>,
    /// What is said: a text, or JSON.
    pub input: Option<Value>,
    /// Files over those of the scratch project.
    pub files: BTreeMap<String, String>,
    /// Files of the scratch project that go with the input.
    pub attachments: Vec<String>,
    /// What must come of it.
    pub expect: Expectation,
    /// An agent that judges the answer.
    pub judge: Option<CaseJudge>,
    /// Names in the file that must be agents or tools, for linking.
    pub(crate) names: NamesInCase,
}

/// Names that mean something only in a linked project.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamesInCase {
    pub tools: Vec<Located<String>>,
    pub judge: Option<Located<String>>,
}

/// Where the results of tools come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAnswers {
    /// They run in the scratch project.
    Real,
    /// From the record of the case.
    Recorded,
}

/// Which questions of a case are answered with yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovedTools {
    /// None.
    Nothing,
    /// All.
    All,
    /// Those about these tools.
    Tools(BTreeSet<String>),
}

impl ApprovedTools {
    /// Whether a question about this tool is answered with yes.
    pub fn covers(&self, tool: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Tools(tools) => tools.contains(tool),
        }
    }
}

/// An agent of the project that judges an answer.
#[derive(Clone, Debug)]
pub struct CaseJudge {
    /// Its name.
    pub agent: String,
    /// What it is asked.
    pub question: String,
    /// The lowest score that is good enough.
    pub at_least: f64,
}

impl TestFile {
    /// A file that has yet to be written.
    pub fn empty(path: PathBuf, agent: &str) -> Self {
        Self { path, agent: agent.to_owned(), agent_at: None, cases: Vec::new(), claims: Vec::new() }
    }
}

impl TestCase {
    /// A case that says and expects nothing.
    pub fn named(name: String) -> Self {
        Self {
            name,
            tools: ToolAnswers::Real,
            approve: ApprovedTools::Nothing,
            scratch: Vec::new(),
            input: None,
            files: BTreeMap::new(),
            attachments: Vec::new(),
            expect: Expectation::default(),
            judge: None,
            names: NamesInCase::default(),
        }
    }

    /// The name of the case as that of a file: `finds-what-users-notice`.
    pub fn file_stem(&self) -> String {
        stem_of(&self.name)
    }

    /// Whether a file of the project is copied into its scratch project.
    pub fn copies(&self, path: &Path) -> bool {
        let globs = self.scratch.iter().filter_map(|glob| Glob::parse(glob, Slash::Separates, Letters::Exact).ok());
        let path = path.to_string_lossy();
        self.scratch.is_empty() || globs.into_iter().any(|glob| glob.matches(&path))
    }
}

/// A name as that of a file.
fn stem_of(name: &str) -> String {
    let mut stem = String::new();
    for character in name.chars() {
        match character {
            _ if stem.len() >= LONGEST_STEM => break,
            letter if letter.is_alphanumeric() => stem.extend(letter.to_lowercase()),
            _ if stem.ends_with('-') || stem.is_empty() => {}
            _ => stem.push('-'),
        }
    }
    let stem = stem.trim_end_matches('-');
    if stem.is_empty() { "case".to_owned() } else { stem.to_owned() }
}

/// File systems take names of 255 bytes.
const LONGEST_STEM: usize = 120;

const TEXTS: Shape = List { of: &Text, least: 0, repeats: Refused };
const NAMES: Shape = List { of: &Name, least: 0, repeats: Refused };
const TOOLS: Shape = OneOf(&["real", "recorded"]);
const APPROVE: Shape = AnyOf(&[OneOf(&["none", "all"]), NAMES]);
/// As long as a person waits.
const SECONDS: Shape = Number { min: 0.0, min_included: false, max: 1e9 };

/// The keys of a file with cases.
pub(crate) const TEST_FILE: Table = Table {
    what: "a test file",
    keys: &[
        optional("agent", Name, Neutral, "who is tested; the file's stem if it is not said"),
        optional("tools", TOOLS, Neutral, "`real`: tools run in the scratch project; `recorded`: the record answers"),
        optional("approve", APPROVE, Item(approve), "questions that are answered with yes: `none`, `all`, or tools"),
        optional("scratch", TEXTS, Neutral, "patterns of what is copied into the scratch project"),
        required("cases", List { of: &Object(&CASE), least: 1, repeats: Allowed }, Inside, "the cases"),
    ],
};

const CASE: Table = Table {
    what: "a case",
    keys: &[
        required("name", Text, Neutral, "what the case is called; unique in the file"),
        optional("tools", TOOLS, Neutral, "`real`: tools run in the scratch project; `recorded`: the record answers"),
        optional(
            "approve",
            APPROVE,
            Item(approve_in_case),
            "questions that are answered with yes: `none`, `all`, or tools",
        ),
        optional("scratch", TEXTS, Neutral, "patterns of what is copied into the scratch project"),
        optional("input", Any, Neutral, "what is said: a text, or JSON"),
        optional("files", Map { of: &AnyText }, Neutral, "files over those of the scratch project, by path"),
        optional("attachments", TEXTS, Neutral, "files of the scratch project that go with the input"),
        optional("expect", Object(&EXPECT), Neutral, "what must come of it"),
        optional("judge", Object(&JUDGE), Neutral, "an agent of the project that judges the answer"),
        optional("from", AnyText, Neutral, "the kept run that the case was made of; for people"),
    ],
};

const EXPECT: Table = Table {
    what: "`expect`",
    keys: &[
        optional("output", Object(&OUTPUT), Neutral, "the answer"),
        optional(
            "calls",
            AnyOf(&[List { of: &CALL, least: 1, repeats: Allowed }, Object(&ONLY)]),
            Neutral,
            "calls in this order, others between them allowed",
        ),
        optional("never", NAMES, Neutral, "tools that must not be called"),
        optional("asks", NAMES, Neutral, "tools that must ask"),
        optional("files", Map { of: &Object(&CONTENT) }, Neutral, "files of the scratch project afterwards, by path"),
        optional("max", Object(&MAX), Neutral, "what it may take at most"),
    ],
};

const CALL: Shape = AnyOf(&[Name, Map { of: &JsonObject }]);

const ONLY: Table = Table {
    what: "`calls`",
    keys: &[required("only", List { of: &CALL, least: 0, repeats: Allowed }, Neutral, "exactly these calls, in order")],
};

const PARTS: Shape = AnyOf(&[Text, List { of: &Text, least: 1, repeats: Refused }]);

const OUTPUT: Table = Table {
    what: "`output`",
    keys: &[
        optional("contains", PARTS, Neutral, "texts that are in it"),
        optional("equals", Any, Neutral, "all of it"),
        optional("matches", Text, Neutral, "a pattern that is found in it"),
        optional("lines", Object(&LINES), Neutral, "how many lines it has"),
        optional("json", JsonObject, Neutral, "members that it has, with equal values"),
        optional("schema", OneOf(&["ok"]), Neutral, "`ok`: it fits the agent's schema"),
    ],
};

const CONTENT: Table = Table {
    what: "a file",
    keys: &[
        optional("contains", PARTS, Neutral, "texts that are in it"),
        optional("equals", Any, Neutral, "all of it"),
        optional("matches", Text, Neutral, "a pattern that is found in it"),
        optional("lines", Object(&LINES), Neutral, "how many lines it has"),
        optional("json", JsonObject, Neutral, "members that it has, with equal values"),
    ],
};

const LINES: Table = Table {
    what: "`lines`",
    keys: &[
        optional("min", Integer { min: 0 }, Neutral, "at least so many"),
        optional("max", Integer { min: 0 }, Neutral, "at most so many"),
    ],
};

const MAX: Table = Table {
    what: "`max`",
    keys: &[
        optional("cost_usd", Number { min: 0.0, min_included: true, max: f64::INFINITY }, Neutral, "dollars"),
        optional("requests", Count { max: 1_000_000 }, Neutral, "requests to models"),
        optional("seconds", SECONDS, Neutral, "seconds, where models are asked"),
    ],
};

const JUDGE: Table = Table {
    what: "`judge`",
    keys: &[
        required("agent", Name, Neutral, "the agent; it gets `question`, `input` and `output`"),
        required("question", Text, Neutral, "what it is asked"),
        optional(
            "at_least",
            Number { min: 0.0, min_included: true, max: 1.0 },
            Neutral,
            "the lowest `score` that is good enough; 1 if it is not said",
        ),
    ],
};

/// `approve` other than `none`: questions are answered with yes.
fn approve(written: &WrittenKey<'_>, claims: &mut Vec<Located<Claim>>) {
    approve_for(String::new(), written, claims);
}

fn approve_in_case(written: &WrittenKey<'_>, claims: &mut Vec<Located<Claim>>) {
    let case = written.beside.text("name").map(|name| name.value).unwrap_or_default();
    approve_for(case, written, claims);
}

/// Without the name of a case it is said of all of them.
fn approve_for(case: String, written: &WrittenKey<'_>, claims: &mut Vec<Located<Claim>>) {
    let words = match &written.value.kind {
        NodeKind::Text(word) if word == "none" => return,
        NodeKind::Text(_) => "every question of its tests: it is answered with yes".to_owned(),
        _ => {
            let tools: Vec<String> = texts_of(written.value).into_iter().map(|tool| tool.value).collect();
            if tools.is_empty() {
                return;
            }
            format!("{} in its tests, where it asks", tools.join(", "))
        }
    };
    claims.push(Claim::text(ClaimClass::Allow, words).with([case]).at(written.span));
}

/// Reads a file with cases, whose agent is called `stem` if it does not say another. `None` if nothing of it can be used;
/// other mistakes are reported and their cases left out.
pub(crate) fn parse(
    file: FileId,
    path: PathBuf,
    stem: &str,
    text: &str,
    problems: &mut Diagnostics,
) -> Option<TestFile> {
    if text.trim().is_empty() {
        problems.push(Diagnostic::error(Span { file, start: 0, end: 0 }, "the file is empty: `cases` is missing"));
    }
    let node = tree::parse_yaml(tree::Text::whole(file, text), problems)?;
    TEST_FILE.check(&node, Reading::yaml(stem), problems);
    if !matches!(node.kind, NodeKind::Map(_)) {
        return None;
    }
    let fields = TEST_FILE.fields(&node);
    let usual = UsualOfCases {
        tools: tools(&fields).unwrap_or(ToolAnswers::Real),
        approve: approved(&fields).unwrap_or(ApprovedTools::Nothing),
        scratch: globs(&fields, problems).unwrap_or_default(),
    };
    let listed = match fields.get("cases").map(|node| &node.kind) {
        Some(NodeKind::List(cases)) => cases.as_slice(),
        _ => &[],
    };
    let mut cases: Vec<TestCase> = Vec::new();
    let mut names: BTreeMap<String, (String, Span)> = BTreeMap::new();
    for node in listed.iter().filter(|node| matches!(node.kind, NodeKind::Map(_))) {
        let fields = CASE.fields(node);
        let Some(name) = fields.text("name") else { continue };
        if let Some((other, span)) = names.get(&stem_of(&name.value)) {
            let fact = if *other == name.value {
                format!("a second case with the name `{}`", visible_start(other, 80))
            } else {
                format!("its record would have the name of that of `{}`", visible_start(other, 80))
            };
            let problem = Diagnostic::error(name.span, fact).related(*span, "the first one");
            problems.push(problem.hint("give one of them another name"));
        }
        names.insert(stem_of(&name.value), (name.value.clone(), name.span));
        cases.push(case(name.value, &fields, &usual, problems));
    }
    let agent = fields.text("agent");
    Some(TestFile {
        path,
        agent_at: agent.as_ref().map(|agent| agent.span),
        agent: agent.map_or_else(|| stem.to_owned(), |agent| agent.value),
        cases,
        claims: TEST_FILE.claims(&node),
    })
}

/// What holds for cases that say nothing else.
struct UsualOfCases {
    tools: ToolAnswers,
    approve: ApprovedTools,
    scratch: Vec<String>,
}

fn case(name: String, fields: &Fields<'_>, usual: &UsualOfCases, problems: &mut Diagnostics) -> TestCase {
    let mut names = NamesInCase::default();
    let judge = fields.object("judge").and_then(|judge| {
        names.judge = judge.text("agent");
        Some(CaseJudge {
            agent: judge.text("agent")?.value,
            question: judge.text("question")?.value,
            at_least: judge.number("at_least").unwrap_or(1.0),
        })
    });
    let expect = fields.object("expect");
    let expect = expect.map(|expect| expectation(&expect, &mut names, problems)).unwrap_or_default();
    let mut files = BTreeMap::new();
    for (path, content) in fields.entries("files") {
        match (&content.kind, is_beneath(&path.value)) {
            (NodeKind::Text(text), true) => drop(files.insert(path.value.clone(), text.clone())),
            (NodeKind::Text(_), false) => problems.push(outside(path)),
            _ => {}
        }
    }
    let attachments = fields.texts("attachments");
    attachments.iter().filter(|path| !is_beneath(&path.value)).for_each(|path| problems.push(outside(path)));
    TestCase {
        name,
        tools: tools(fields).unwrap_or(usual.tools),
        approve: approved(fields).unwrap_or_else(|| usual.approve.clone()),
        scratch: globs(fields, problems).unwrap_or_else(|| usual.scratch.clone()),
        input: fields.json("input").and_then(|input| input.to().ok()),
        files,
        attachments: attachments.into_iter().map(|path| path.value).collect(),
        expect,
        judge,
        names,
    }
}

fn outside(path: &Located<String>) -> Diagnostic {
    let fact = format!("`{}` leads out of the scratch project", visible_start(&path.value, 120));
    Diagnostic::error(path.span, fact).hint("write a path beneath the project, such as `notes/a.md`")
}

/// Beneath a root, as words alone can tell.
fn is_beneath(path: &str) -> bool {
    use std::path::Component;
    let is_part = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.contains('\0') && Path::new(path).components().all(is_part) && !path.is_empty()
}

fn tools(fields: &Fields<'_>) -> Option<ToolAnswers> {
    match fields.text("tools")?.value.as_str() {
        "recorded" => Some(ToolAnswers::Recorded),
        _ => Some(ToolAnswers::Real),
    }
}

fn approved(fields: &Fields<'_>) -> Option<ApprovedTools> {
    let node = fields.get("approve")?;
    match &node.kind {
        NodeKind::Text(word) if word == "all" => Some(ApprovedTools::All),
        NodeKind::Text(_) => Some(ApprovedTools::Nothing),
        _ => Some(ApprovedTools::Tools(texts_of(node).into_iter().map(|tool| tool.value).collect())),
    }
}

fn globs(fields: &Fields<'_>, problems: &mut Diagnostics) -> Option<Vec<String>> {
    fields.get("scratch")?;
    let globs = fields.texts("scratch");
    for glob in &globs {
        if let Err(mistake) = Glob::parse(&glob.value, Slash::Separates, Letters::Exact) {
            let fact = format!("`{}` is no pattern: {mistake}", visible_start(&glob.value, 80));
            problems.push(Diagnostic::error(glob.span, fact));
        }
    }
    Some(globs.into_iter().map(|glob| glob.value).collect())
}

fn expectation(fields: &Fields<'_>, names: &mut NamesInCase, problems: &mut Diagnostics) -> Expectation {
    let mut called = |node: &Node| {
        let call = expected_call(node, problems)?;
        names.tools.push(Located { value: call.tool.clone(), span: node.span });
        Some(call)
    };
    let items = |node: &Node| match &node.kind {
        NodeKind::List(items) => items.clone(),
        _ => Vec::new(),
    };
    let calls = match fields.get("calls") {
        None => CallsExpectation::Any,
        Some(node) if matches!(node.kind, NodeKind::List(_)) => {
            CallsExpectation::InOrder(items(node).iter().filter_map(&mut called).collect())
        }
        Some(node) => {
            let only = ONLY.fields(node).get("only").map(items).unwrap_or_default();
            CallsExpectation::Only(only.iter().filter_map(&mut called).collect())
        }
    };
    let mut texts = |key| {
        let tools = fields.texts(key);
        names.tools.extend(tools.iter().cloned());
        tools.into_iter().map(|tool| tool.value).collect()
    };
    let (never, asks) = (texts("never"), texts("asks"));
    let mut files = BTreeMap::new();
    for (path, node) in fields.entries("files") {
        if is_beneath(&path.value) {
            files.insert(path.value.clone(), text_expectation(&CONTENT.fields(node), problems));
        } else {
            problems.push(outside(path));
        }
    }
    let output = fields.object("output").map(|output| TextExpectation {
        fits_schema: output.text("schema").is_some(),
        ..text_expectation(&output, problems)
    });
    let max = fields.object("max").map(|max| MostSpent {
        cost_usd: max.number("cost_usd"),
        requests: max.count("requests"),
        seconds: max.number("seconds"),
    });
    Expectation { output, calls, never, asks, files, max: max.unwrap_or_default() }
}

/// A name, or a name with arguments.
fn expected_call(node: &Node, problems: &mut Diagnostics) -> Option<ExpectedCall> {
    match &node.kind {
        NodeKind::Text(tool) => Some(ExpectedCall { tool: tool.clone(), arguments: None }),
        NodeKind::Map(entries) => match entries.as_slice() {
            [entry] => {
                let arguments = serde_json::from_str(&entry.value.to_json()).ok();
                Some(ExpectedCall { tool: entry.key.value.clone(), arguments })
            }
            _ => {
                let problem = Diagnostic::error(node.span, "one call has one name");
                problems.push(problem.hint("write `- read_file: { path: a.md }`, each call in a line of its own"));
                None
            }
        },
        _ => None,
    }
}

fn text_expectation(fields: &Fields<'_>, problems: &mut Diagnostics) -> TextExpectation {
    let matches = fields.text("matches");
    if let Some(pattern) = &matches
        && let Err(error) = json_schema::finds(&pattern.value, "")
    {
        let fact = format!("`{}` is no pattern: {error}", visible_start(&pattern.value, 80));
        problems.push(Diagnostic::error(pattern.span, fact));
    }
    let lines = fields.object("lines");
    let lines = lines.map(|lines| (lines.count("min").unwrap_or(0), lines.count("max").unwrap_or(u64::MAX)));
    TextExpectation {
        contains: fields.get("contains").map(texts_of).unwrap_or_default().into_iter().map(|text| text.value).collect(),
        equals: fields.json("equals").and_then(|json| json.to().ok()),
        matches: matches.map(|pattern| pattern.value),
        lines,
        json: fields.json("json").and_then(|json| json.to().ok()),
        fits_schema: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::diagnostic::{Severity, Sources};

    fn read(text: &str) -> (Option<TestFile>, Vec<String>) {
        let mut sources = Sources::default();
        let file = sources.add("notes.test.yaml".into(), text.to_owned());
        let mut problems = Diagnostics::default();
        let test = parse(file, "notes.test.yaml".into(), "notes", text, &mut problems);
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
        (test, errors.map(|problem| problem.fact.clone()).collect())
    }

    #[test]
    fn a_file_has_cases_that_say_what_holds_for_all_of_them_once() {
        let text = "tools: recorded\napprove: [write_file]\nscratch: ['*.md']\ncases:\n  - name: Finds what, users!\n    \
                    input: { a: [1] }\n    expect: { calls: { only: [] }, max: { cost_usd: 0 } }\n  - name: two\n    tools: \
                    real\n    approve: none\n    attachments: [a.pdf]\n    judge: { agent: critic, question: Q }\n";
        let (test, errors) = read(text);
        assert_eq!(errors, Vec::<String>::new());
        let test = test.unwrap();
        let [one, two] = test.cases.as_slice() else { panic!("two cases") };
        assert_eq!((test.agent.as_str(), one.file_stem().as_str()), ("notes", "finds-what-users"));
        assert_eq!((one.tools, two.tools), (ToolAnswers::Recorded, ToolAnswers::Real));
        assert_eq!((one.approve.covers("write_file"), two.approve.covers("write_file")), (true, false));
        assert!(one.copies(Path::new("a.md")) && !one.copies(Path::new("a/b.md")) && !one.copies(Path::new("a.rs")));
        assert_eq!(one.input, Some(serde_json::json!({"a": [1]})));
        assert!(two.judge.as_ref().is_some_and(|judge| (judge.at_least - 1.0).abs() < f64::EPSILON));
        assert_eq!(test.claims.len(), 1, "`none` asks for nothing");
    }

    #[test]
    fn what_is_approved_is_an_item_of_trust_by_its_value() {
        let claims = |approve: &str| {
            let (test, errors) = read(&format!("cases: [{{ name: a, approve: {approve} }}]"));
            assert_eq!(errors, Vec::<String>::new());
            test.unwrap().claims.into_iter().map(|claim| claim.value).collect::<Vec<_>>()
        };
        assert_eq!(claims("none"), []);
        assert_eq!(claims("[]"), []);
        assert_eq!(claims("all")[0].class, ClaimClass::Allow);
        assert_ne!(claims("[a]"), claims("[b]"));
    }

    #[test]
    fn every_mistake_is_told() {
        for (text, fact) in [
            ("", "`cases` is missing"),
            ("cases: []", "the list is empty"),
            ("cases: [{ input: x }]", "`name` is missing in a case"),
            ("cases: [{ name: a, files: { ../b: c } }]", "`../b` leads out of the scratch project"),
            ("cases: [{ name: a, attachments: [/b] }]", "`/b` leads out of the scratch project"),
            ("cases: [{ name: a, expect: { files: { ../b: {} } } }]", "`../b` leads out of the scratch project"),
            ("cases: [{ name: a, scratch: ['['] }]", "`[` is no pattern: a `[` is not closed"),
            ("cases: [{ name: a, expect: { calls: [{ b: {}, c: {} }] } }]", "one call has one name"),
            ("cases: [{ name: a, expect: { max: { requests: 0 } } }]", "expected a whole number from 1"),
            ("cases: [{ name: a, tools: fake }]", "expected one of `real`, `recorded`"),
            ("cases: [{ name: a, judge: { agent: b } }]", "`question` is missing in `judge`"),
            ("cases: [{ name: a }, { name: a }]", "a second case with the name `a`"),
            ("cases: [{ name: a b }, { name: A-B }]", "its record would have the name of that of `a b`"),
            ("cases: [{ name: a, expect: { output: { matches: '(' } } }]", "`(` is no pattern"),
            ("cases: [{ name: a, exspect: {} }]", "unknown key `exspect` in a case"),
        ] {
            let (_, errors) = read(text);
            assert!(errors.iter().any(|error| error.contains(fact)), "{text}: {errors:?}");
        }
    }
}
