//! What must hold for any arguments that a model writes, as a plain function: the property tests and the fuzzer drive the
//! same one. It panics when something does not hold.

use std::path::Path;

use super::agent::AgentTool;
use super::approval::{Verdict, canonical};
use super::filesystem::Filesystem;
use super::shell::directory::WorkingDirectory;
use super::shell::{grammar, words};
use super::source::{Access, Base, FileRoot, FilesystemConfig, Roots};
use super::{ToolSpec, Toolset};
use crate::message::{Arguments, RawJson};

/// Arguments are judged or refused by every tool, nothing runs, and what is shown and remembered of them is one text.
pub fn arguments(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let arguments = match Arguments::parse(text.clone()) {
        Arguments::Object(arguments) => arguments,
        Arguments::Malformed(kept) => return assert_eq!(kept, text, "the model reads what it wrote"),
    };
    check_canonical(&arguments);
    for (specs, judge) in judges() {
        for spec in specs {
            assert_eq!(judge(&spec.name, &arguments), judge(&spec.name, &arguments), "{}", spec.name);
        }
    }
}

/// A command is split into the words that another reading of the shell's grammar finds in it, or refused; and what it is
/// shown as is the same command.
pub fn command(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(split) = words::split(&text) else { return };
    // Judging looks, and changes nothing.
    if let Ok(directory) = WorkingDirectory::open(Path::new("src")) {
        assert_eq!(grammar::fit(&split, &directory), grammar::fit(&split, &directory), "{text:?}");
    }
    let split: Vec<String> = split.into_iter().map(|word| word.text).collect();
    assert_eq!(shlex::split(&text).as_ref(), Some(&split), "{text:?}");
    assert!(split.iter().all(|word| !word.chars().any(char::is_control)), "{text:?}");
    let shown = shlex::try_join(split.iter().map(String::as_str)).expect("there is no NUL in a word");
    let again = words::split(&shown).map(|words| words.into_iter().map(|word| word.text).collect());
    // What is shown may be longer than what may be said.
    assert!(shown.len() > words::LONGEST_COMMAND || again == Ok(split), "{text:?}");
}

/// Two calls are the same to a remembered approval exactly if their arguments are the same JSON.
fn check_canonical(arguments: &RawJson) {
    let Ok(value) = arguments.to::<serde_json::Value>() else { return };
    let text = canonical(arguments);
    let again = RawJson::parse(&text).expect("canonical JSON is JSON");
    assert_eq!(canonical(&again), text);
    assert_eq!(again.to::<serde_json::Value>().ok(), Some(value));
}

type Judge = Box<dyn Fn(&str, &RawJson) -> Result<Verdict, String>>;

fn judges() -> Vec<(Vec<ToolSpec>, Judge)> {
    let schema = r#"{"type":"object","properties":{"topic":{"type":"string","maxLength":9},"n":{"type":"integer"}},"required":["topic"]}"#;
    let agent = |parameters: Option<&str>| AgentTool {
        project_root: std::path::PathBuf::from("."),
        name: "reader".to_owned(),
        description: String::new(),
        parameters: parameters.map(|schema| RawJson::from_valid(schema.to_owned())),
        calls_ask: false,
        attachments_ask: true,
    };
    let mut judges: Vec<(Vec<ToolSpec>, Judge)> = Vec::new();
    for agent in [agent(None), agent(Some(schema))] {
        judges.push((agent.specs(), Box::new(move |_, arguments| agent.verdict(arguments))));
    }
    // Judging a write looks at what is there, and changes nothing.
    let root = FileRoot {
        base: Base::WorkingDirectory,
        access: Access::ReadWrite,
        suffixes: Vec::new(),
        max_file_bytes: Some(1 << 16),
    };
    if let Ok(files) = Filesystem::open(&FilesystemConfig { roots: Roots::One(root) }, Path::new(".")) {
        judges.push((files.specs(), Box::new(move |tool, arguments| files.verdict(tool, arguments))));
    }
    judges
}
