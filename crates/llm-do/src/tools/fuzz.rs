//! What must hold for any arguments that a model writes, as a plain function: the property tests and the fuzzer drive the
//! same one. It panics when something does not hold.

use std::path::Path;

use super::agent::AgentTool;
use super::approval::{Verdict, canonical};
use super::filesystem::Filesystem;
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
