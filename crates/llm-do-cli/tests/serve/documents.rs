//! The documents and the example, as their readers would run them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::client::Client;
use crate::program;
use crate::support::{Sandbox, wait_for_all};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A copy of the examples, without what somebody's own runs have written there.
pub fn workplace() -> Sandbox {
    let sandbox = Sandbox::new();
    let mut waiting = vec![PathBuf::from("examples")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(repository().join(&directory)).unwrap() {
            let name = entry.unwrap().file_name();
            let path = directory.join(&name);
            match repository().join(&path) {
                source if source.is_dir() && name != "drafts" => waiting.push(path),
                source if source.is_file() => {
                    let target = sandbox.path().join(&path);
                    fs::create_dir_all(target.parent().unwrap()).unwrap();
                    fs::copy(source, target).unwrap();
                }
                _ => {}
            }
        }
    }
    sandbox
}

/// The blocks of a document in one language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join("docs").join(document)).unwrap();
    let opening = format!("```{language}\n");
    let blocks = text.split(opening.as_str()).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Whether a line is what is shown, where `…` stands for anything.
fn is_shown(line: &str, shown: &str) -> bool {
    let pieces: Vec<&str> = shown.split('…').collect();
    let mut rest = line;
    for (index, piece) in pieces.iter().enumerate() {
        match rest.find(piece) {
            Some(at) if index > 0 || at == 0 => rest = &rest[at + piece.len()..],
            _ => return false,
        }
    }
    pieces.len() > 1 && pieces.last().is_some_and(|last| last.is_empty()) || rest.is_empty()
}

#[test]
fn the_session_of_the_protocol_goes_as_it_is_written() {
    let sandbox = workplace();
    let mut client = Client::start(&sandbox);
    let sessions = blocks("serve.md", "jsonrpc");
    assert_eq!(sessions.len(), 1);
    let mut lines = 0;
    for line in sessions[0].lines() {
        lines += 1;
        match line.split_once(' ') {
            Some(("→", message)) => client.line(message),
            Some(("←", shown)) => {
                let said = client.next_line();
                assert!(is_shown(&said, shown), "{shown}\n{said}");
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(lines, 12);
    client.ends_well();
}

#[test]
fn what_is_cut_is_known_by_its_ends() {
    assert!(is_shown("abc", "abc") && is_shown("abc", "a…c") && is_shown("abc", "a…"));
    assert!(!is_shown("abc", "ab") && !is_shown("abc", "b…") && !is_shown("abc", "a…b"));
}

#[test]
fn the_programs_of_the_python_document_print_what_it_says() {
    let mut ran = 0;
    for source in blocks("python-api.md", "python") {
        let expected: Vec<&str> = source.lines().filter_map(|line| line.strip_prefix("# ")).collect();
        if expected == ["tools.py"] {
            continue; // a file of a project: the tests of programs have such a one
        }
        assert!(!expected.is_empty(), "{source}");
        let printed = program::printed(&workplace(), &source);
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected, "{source}");
        ran += 1;
    }
    assert_eq!(ran, 6);
}

#[test]
fn every_parameter_method_and_kind_is_in_the_document() {
    let document = fs::read_to_string(repository().join("docs/serve.md")).unwrap();
    let sandbox = Sandbox::new();
    let mut client = Client::start(&sandbox);
    let methods = client.error("what", &Value::Null)["message"].as_str().unwrap().to_owned();
    let methods = methods.split("there are: ").nth(1).unwrap().split(", ").map(str::to_owned);
    let fields = client.error("open", &serde_json::json!({"?": 1}))["message"].as_str().unwrap().to_owned();
    let fields = fields.split('`').skip(5).step_by(2).map(str::to_owned);
    let kinds = ["failed", "usage", "project", "provider", "approval", "limit", "output", "cancelled", "terminated"];
    let mut count = 0;
    for word in methods.chain(fields).chain(kinds.map(str::to_owned)) {
        count += 1;
        assert!(document.contains(&format!("`{word}`")), "{word} is not described");
    }
    assert!(count > 25, "{count}");
    client.ends_well();
}

#[test]
fn the_steward_answers_for_its_worker() {
    let sandbox = workplace();
    let readme = fs::read_to_string(repository().join("examples/steward/README.md")).unwrap();
    let shown = readme.split("$ python3 examples/steward/steward.py \"Take the minutes\"\n").nth(1).unwrap();
    let expected = shown.split("```").next().unwrap();
    let words = ["-W", "error", "examples/steward/steward.py", "Take the minutes"];
    let ended = wait_for_all(&mut program::python(&sandbox, &words));
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), expected, ""));
    assert!(sandbox.path().join("examples/steward/drafts/minutes.md").exists());
    assert!(!sandbox.path().join("examples/steward/minutes.md").exists());
}

/// Every name that a module of the package offers, by the module.
const NAMES: &str = r#"
import importlib, pkgutil, llm_do
found = [module.name for module in pkgutil.walk_packages(llm_do.__path__, "llm_do.")]
for name in ["llm_do", *(name for name in found if not any(part.startswith("_") for part in name.split(".")))]:
    module = importlib.import_module(name)
    for public in module.__all__:
        getattr(module, public)
        print(name, public)
"#;

#[test]
fn every_public_name_of_the_package_is_described() {
    let read = |name: &str| fs::read_to_string(repository().join("docs").join(name)).unwrap();
    let document = read("python.md") + &read("python-api.md");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let quoted = document.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let words: std::collections::BTreeSet<&str> = quoted.flat_map(|text| text.split(|c| !is_part(c))).collect();
    let printed = program::printed_with_library(&Sandbox::new(), NAMES);
    let missing: Vec<&str> = printed.lines().filter(|line| !words.contains(line.rsplit(' ').next().unwrap())).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert!(printed.lines().count() > 100, "{printed}");
}
