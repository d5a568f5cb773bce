//! The example with Python files, as its README runs it.

use std::path::Path;

use crate::session::Run;
use crate::support::Sandbox;
use crate::{python, run};

fn library() -> Sandbox {
    let sandbox = Sandbox::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/library");
    for entry in std::fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            sandbox.file(path.file_name().unwrap().to_str().unwrap(), &std::fs::read_to_string(&path).unwrap());
        }
    }
    sandbox
}

#[test]
fn the_library_runs_its_code_and_its_agents() {
    let sandbox = library();
    let cache = python::cache().to_str().unwrap().to_owned();
    let arguments = [".", "--input-json", r#"{"topic": "tides"}"#, "-m", "scripted:script.yaml", "-v"];
    let flags = ["--no-stdin", "--approve-all", "--python", python::with_pydantic_ai()];
    let ended = Run::new(&sandbox, &[&arguments[..], &flags].concat()).with("XDG_CACHE_HOME", cache).ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let answer = "{\n  \"topic\": \"tides\",\n  \"answer\": \"Tides follow the moon.\",\n  \"words\": 4\n}\n";
    assert_eq!(ended.stdout, answer);
    assert!(ended.stderr.contains("  │ 8 of 10: short and true\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("| the shelf is cleared: 1 notes"), "{}", ended.stderr);
}

#[test]
fn the_library_without_its_library_says_what_to_install() {
    let sandbox = library();
    let made = std::process::Command::new("python3")
        .args(["-m", "venv", "--without-pip", ".venv"])
        .current_dir(sandbox.path())
        .status();
    assert!(made.unwrap().success());
    let said = run(&sandbox, &["--no-stdin"]).failure(2);
    assert!(said.contains(".venv/bin/python -m pip install 'pydantic-ai-slim==2.66.*'"), "{said}");
}
