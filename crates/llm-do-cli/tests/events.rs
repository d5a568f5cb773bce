//! What `llm-do run --json` prints satisfies what `llm-do schema events` says.

#![allow(clippy::unwrap_used, reason = "the whole file is a test, its helpers included")]

use std::process::{Command, Stdio};

use serde_json::Value;

fn llm_do(args: &[&str], directory: &std::path::Path) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_llm-do"))
        .args(args)
        .current_dir(directory)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn every_event_satisfies_the_schema() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("main.worker", "---\nname: main\nentry: true\nmodel: scripted:s.yaml\ntoolsets: [child]\n---\nx");
    write("child.worker", "---\nname: child\nmodel: scripted:s.yaml\ntoolsets: [filesystem_project]\n---\nx");
    write(
        "s.yaml",
        "- {agent: child, round: 1, think: hm, call: [{write_file: {path: a.txt, content: x}}, {read_file: {path: b}}]}\n\
         - {agent: main, round: 1, call: {child: {input: go}}}\n- say: done\n",
    );
    let schema: Value = serde_json::from_slice(&llm_do(&["schema", "events"], directory.path())).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let lines = llm_do(&["run", ".", "hi", "--trust", "--json", "--approve-all"], directory.path());
    let lines: Vec<Value> = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let (result, events) = lines.split_last().unwrap();
    assert_eq!(result["type"], "result");
    for event in events {
        let wrong: Vec<String> = validator.iter_errors(event).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{event}: {wrong:?}");
    }
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let expected = [
        "approval_answered",
        "call_finished",
        "call_started",
        "request_finished",
        "request_started",
        "text_complete",
        "text_delta",
        "thinking_delta",
        "tool_called",
        "tool_returned",
        "user_message",
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn the_schema_refuses_what_is_no_event() {
    let directory = tempfile::tempdir().unwrap();
    let schema: Value = serde_json::from_slice(&llm_do(&["schema", "events"], directory.path())).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for event in [r#"{"type":"nothing"}"#, r#"{"type":"text_delta","agent":"a","depth":0,"call":1}"#, "{}"] {
        assert!(!validator.is_valid(&serde_json::from_str(event).unwrap()), "{event}");
    }
}
