//! A kept run that becomes a case: what was said to it, the files that it read, what it called, and its record.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use llm_do::escape::visible;
use llm_do::records::{JournalContents, RecordedCall, calls, input_text};
use llm_do::tests::{Answering, ApprovedTools, CaseOutcome, Fixture, TestCase, TestFile, ToolAnswers};
use llm_do::{Input, Project, files};
use llm_do_launch::record::RunHeader;
use serde_json::{Value, json};

use super::case::{CaseAnswers, CaseVerdict};
use super::{TestSuite, launch, names_of, record};
use crate::commands::runs::NamedRun;
use crate::console;
use crate::failure::Failure;

/// A file that a case brings with it is no larger.
const LARGEST_FILE: u64 = 256 * 1024;

/// Writes the case and its record, and tells where.
pub async fn add(suite: &TestSuite<'_>, typed: &str, name: Option<&str>) -> Result<(), Failure> {
    let named = NamedRun::find(typed, &suite.bench.settings)?;
    let (id, contents) = (named.id().to_string(), named.contents()?);
    let run = RunToAdd::of(&id, &contents, suite.root())?;
    let file = suite.file_of(&run.agent)?;
    let fixture = Fixture::of_run(&contents, &run.directories).map_err(|why| refused(&id, &why))?;
    let name = name.map_or_else(|| run.name(&names_of(suite.files)), str::to_owned);
    let case = run.case(name);
    // What looks like a secret is not written into a file that others read.
    if let Some(found) = secret_in(&format!("{} {}", fixture.text(), json!([case.input, case.files]))) {
        return Err(refused(&id, &format!("it has a value that looks like a secret: {found}"))
            .hint("take the secret out of what the run reads, run it again, and add that run"));
    }
    let models = launch::only_looked_at(suite.bench.launch.clone()).models;
    let answers = |answering, fixture| CaseAnswers { answering, fixture, models: models.clone() };
    let made = suite.bench.run(&file, &case, answers(Answering::RecordToAnything, fixture)).await?;
    if let Some(error) = &made.outcome.error {
        return Err(refused(&id, &format!("the project of today ends it otherwise: {error}")));
    }
    let asked = ApprovedTools::Tools(made.outcome.asked.iter().map(|(tool, _)| tool.clone()).collect());
    let mut case = case;
    (case.approve, case.tools) = (asked, ToolAnswers::Real);
    let with_tools = suite.bench.run(&file, &case, answers(Answering::Record, made.fixture.clone())).await?;
    if with_tools.verdict != CaseVerdict::Passed {
        case.tools = ToolAnswers::Recorded;
    }
    let text = yaml(&case, &made.outcome, &id);
    let path = suite.root().join(&file.path);
    let before = std::fs::read_to_string(&path).ok();
    record::write_text(&path, &with_case(before.as_deref(), &text))?;
    if !is_read(suite, &file.path, &case.name) {
        match &before {
            Some(before) => record::write_text(&path, before)?,
            None => drop(std::fs::remove_file(&path)),
        }
        console::print(&text)?;
        return Err(Failure::usage(format!("{} cannot be added to by a program", file.path.display()))
            .hint("`cases` must be its last key; the case is printed above, and can be pasted into it"));
    }
    record::write(&record::path(suite.root(), &file, &case), &made.fixture)?;
    console::print(&format!("{}   {}\n", visible(&file.path.display().to_string()), visible(&case.name)))
}

fn refused(id: &str, why: &str) -> Failure {
    Failure::usage(format!("the run {id} cannot become a case: {why}"))
}

/// Whether the file is as it should be.
fn is_read(suite: &TestSuite<'_>, path: &Path, name: &str) -> bool {
    let launch = &suite.bench.launch;
    let Ok(project) = Project::load_from(&launch.project, &launch.directory) else { return false };
    let project = project.with_tests();
    let is_there = project.tests().iter().any(|file| file.path == path && file.cases.iter().any(|it| it.name == name));
    is_there && project.survey(&launch::only_looked_at(launch.clone()).models, None).is_ok()
}

impl TestSuite<'_> {
    /// The file with the cases of an agent, which may have to be written.
    fn file_of(&self, agent: &str) -> Result<TestFile, Failure> {
        if let Some(file) = self.files.iter().find(|file| file.agent == agent) {
            return Ok(file.clone());
        }
        let launch = launch::only_looked_at(self.bench.launch.clone());
        let project = Project::load_from(&launch.project, &launch.directory).map_err(super::wrong)?;
        let linked = project.survey(&launch.models, None).map_err(super::wrong)?;
        let Some(spec) = linked.program.agents.get(agent) else {
            return Err(Failure::usage(format!("the project has no agent `{agent}`")));
        };
        // Beside its worker file, where it is found.
        let directory = spec.file.parent().unwrap_or(Path::new(""));
        Ok(TestFile::empty(directory.join(format!("{agent}.test.yaml")), agent))
    }
}

/// What is known of a run that becomes a case.
struct RunToAdd {
    agent: String,
    input: Option<Value>,
    files: BTreeMap<String, String>,
    /// Places of this machine, which no record names.
    directories: Vec<String>,
    id: String,
}

impl RunToAdd {
    fn of(id: &str, contents: &JournalContents, root: &Path) -> Result<Self, Failure> {
        let header: RunHeader = contents.header.to().map_err(|_| refused(id, "nobody knows how it was started"))?;
        let turns = contents.turns();
        let [(turn, true)] = turns.as_slice() else {
            let why = if turns.len() > 1 { "it has several turns, and a case has one" } else { "it is not finished" };
            return Err(refused(id, why));
        };
        let agent = contents.entry().unwrap_or_default().to_owned();
        let input = match &header.input {
            Some(Input::Text(text)) => Some(Value::from(text.as_str())),
            Some(Input::Object { value, attachments }) if attachments.is_empty() => Some(value.clone()),
            Some(Input::Parts(_) | Input::Object { .. }) => return Err(refused(id, "files were given to it")),
            None => input_text(contents, &format!("{agent}/t{turn}/input")).map(Value::from),
        };
        let mut places = vec![header.directory.join(&header.project), header.directory.clone(), root.to_owned()];
        places.retain(|place| place.components().count() > 2);
        let mut directories: Vec<String> = places
            .iter()
            .filter_map(|place| place.canonicalize().ok())
            .chain(places.iter().cloned())
            .map(|place| place.display().to_string())
            .collect();
        // The longest first: one may lie in another.
        directories.sort_by_key(|place| std::cmp::Reverse(place.len()));
        directories.dedup();
        let files = read_files(&calls(contents), root, &[header.directory.join(&header.project), header.directory]);
        Ok(Self { agent, input, files, directories, id: id.to_owned() })
    }

    /// The beginning of what was said, if no case is called so.
    fn name(&self, taken: &std::collections::BTreeSet<&str>) -> String {
        let said = match &self.input {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let words: Vec<&str> = said.split_whitespace().take(6).collect();
        let name: String = words.join(" ").chars().take(60).collect();
        if name.is_empty() || taken.contains(name.as_str()) { format!("run {}", self.id) } else { name }
    }

    fn case(&self, name: String) -> TestCase {
        let mut case = TestCase::named(name);
        case.input.clone_from(&self.input);
        case.files.clone_from(&self.files);
        case.tools = ToolAnswers::Recorded;
        case.approve = ApprovedTools::All;
        case
    }
}

/// Files that were read where the run worked, and that the project does not have as they were.
fn read_files(calls: &[RecordedCall], root: &Path, places: &[PathBuf]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting: Vec<&RecordedCall> = calls.iter().collect();
    while let Some(call) = waiting.pop() {
        waiting.extend(&call.calls);
        let path = call.input.as_ref().and_then(|input| input.to::<Value>().ok());
        let Some(path) = path.and_then(|input| input["path"].as_str().map(str::to_owned)) else { continue };
        let is_plain = Path::new(&path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !call.name.ends_with("read_file") || !is_plain || root.join(&path).exists() {
            continue;
        }
        let read = places.iter().find_map(|place| files::read_regular(&place.join(&path), LARGEST_FILE).ok());
        if let Some(text) = read.and_then(|bytes| String::from_utf8(bytes).ok()) {
            found.insert(path, text);
        }
    }
    found
}

/// The case as it stands in a file. JSON is YAML.
fn yaml(case: &TestCase, outcome: &CaseOutcome, id: &str) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut text = format!("  - name: {}\n    from: {}\n", quoted(&case.name), quoted(id));
    if let Some(input) = &case.input {
        let _ = writeln!(text, "    input: {input}");
    }
    if case.tools == ToolAnswers::Recorded {
        text.push_str("    tools: recorded\n");
    }
    if let ApprovedTools::Tools(tools) = &case.approve
        && !tools.is_empty()
    {
        let _ = writeln!(text, "    approve: {}", json!(tools));
    }
    if !case.files.is_empty() {
        text.push_str("    files:\n");
        for (path, content) in &case.files {
            let _ = writeln!(text, "      {}: {}", quoted(path), quoted(content));
        }
    }
    let mut expect = String::new();
    if outcome.fits_schema {
        expect.push_str("      output: { schema: ok }\n");
    }
    if !outcome.calls.is_empty() {
        expect.push_str("      calls:\n");
        for call in &outcome.calls {
            let _ = writeln!(expect, "        - {{ {}: {} }}", quoted(&call.tool), call.arguments);
        }
    }
    if !expect.is_empty() {
        let _ = write!(text, "    expect:\n{expect}");
    }
    text
}

/// A file with one case more.
fn with_case(before: Option<&str>, case: &str) -> String {
    match before {
        None => format!("cases:\n{case}"),
        Some(before) => {
            let item = before.lines().find(|line| line.trim_start().starts_with("- name:"));
            let indent = item.map_or(2, |line| line.len() - line.trim_start().len());
            let end = if before.ends_with('\n') { "" } else { "\n" };
            let mut text = format!("{before}{end}");
            for line in case.lines() {
                let _ = writeln!(text, "{}{}", " ".repeat(indent), line.strip_prefix("  ").unwrap_or(line));
            }
            text
        }
    }
}

/// How secrets begin that services give out.
const SECRET_BEGINNINGS: &[&str] = &[
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "hf_",
    "npm_",
    "pypi-",
    "eyJhbGci",
];
/// Words before a value that is one.
const SECRET_NAMES: &[&str] = &["password", "passwd", "secret", "api_key", "apikey", "access_token", "auth_token"];

/// A value that looks like a secret, or its beginning.
pub(super) fn secret_in(text: &str) -> Option<String> {
    if text.contains("-----BEGIN") && text.contains("PRIVATE KEY-----") {
        return Some("a private key".to_owned());
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+');
    let beginning = |word: &str| format!("`{}…`", word.chars().take(8).collect::<String>());
    let mut named = false;
    for word in text.split(|c: char| !is_part(c)).filter(|word| !word.is_empty()) {
        let is_mixed =
            |word: &str| word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic());
        let is_given_out =
            SECRET_BEGINNINGS.iter().any(|start| word.starts_with(start) && word.len() >= start.len() + 12);
        if (is_given_out && is_mixed(word)) || (named && word.len() >= 12 && is_mixed(word)) {
            return Some(beginning(word));
        }
        named = SECRET_NAMES.contains(&word.to_ascii_lowercase().as_str());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_like_secrets_are_found_and_others_are_not() {
        for text in [
            &format!("the key is {}", ["sk-ant-", "api03-", "Zx81kQ92mVb7"].concat()),
            &format!(r#"{{"aws": "{}"}}"#, ["AKIA", "IOSFODNN7EXAMPLE"].concat()),
            "password: hunter2hunter2",
            "\\\"api_key\\\": \\\"0123456789abcdef\\\"",
            "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Bl",
        ] {
            assert!(secret_in(text).is_some(), "{text}");
        }
        for text in [
            "the password is in the safe, as always",
            "0123456789abcdef0123456789abcdef",
            "ask sk-something about the secret garden",
            r#"{"said":"f00dfeedf00dfeed","k":"main/t0/m0"}"#,
        ] {
            assert_eq!(secret_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_case_is_added_as_the_others_are_written() {
        let case = "  - name: \"new\"\n    input: \"x\"\n";
        assert_eq!(with_case(None, case), format!("cases:\n{case}"));
        let before = "cases:\n- name: old\n  input: a";
        assert_eq!(with_case(Some(before), case), "cases:\n- name: old\n  input: a\n- name: \"new\"\n  input: \"x\"\n");
        let before = "cases:\n  - name: old\n";
        assert_eq!(with_case(Some(before), case), format!("{before}{case}"));
    }
}
