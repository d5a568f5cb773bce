//! Runs that are recorded: a server is started where it is called, and not where everything is known already.

use llm_do::journal::mac::{self, LineMac, SigningPurpose, StateKey};
use serde_json::{Value, json};

use crate::servers;
use crate::session::Run;
use crate::support::Sandbox;
use crate::{calls, project, run};

fn desk(script: &str) -> Sandbox {
    project("toolsets: [desk]", &json!({"desk": servers::ours_on_stdio()}), script)
}

fn log(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path().join("log")).unwrap_or_default()
}

fn forget(sandbox: &Sandbox) {
    let _ = std::fs::remove_file(sandbox.path().join("log"));
}

#[test]
fn a_replay_starts_no_server_and_calls_nothing() {
    let sandbox = desk(&calls(&["{ add: { a: 2, b: 40 } }"]));
    let answer = run(&sandbox, &["--approve-all", "--journal", "run.journal"]).with("SECRET", "s").answer();
    assert_eq!(answer, "{\"sum\":42}\n");
    forget(&sandbox);
    // Not even its variable is there.
    let (events, result) = run(&sandbox, &["--replay", "run.journal", "--approve-all", "--json"]).events();
    assert_eq!(result["output"], "{\"sum\":42}");
    assert!(events.iter().all(|event| event["toolset"].is_null()), "nothing was started");
    assert_eq!(log(&sandbox), "");
}

#[test]
fn a_run_that_goes_on_calls_what_was_approved_and_nothing_twice() {
    let script = "- { agent: main, round: 1, call: { add: { a: 1, b: 2 } } }\n\
                  - { agent: main, round: 2, call: { fail: {} } }\n- say: \"{{ result }}\"\n";
    let sandbox = desk(script);
    let manifest = std::fs::read_to_string(sandbox.path().join("main.worker")).unwrap();
    sandbox.file("main.worker", &manifest.replace("toolsets: [desk]", "toolsets: [desk]\napproval: { add: allow }"));
    let (_, result) = run(&sandbox, &["--json", "--journal", "run.journal"]).with("SECRET", "s").events();
    assert_eq!(result["exit_code"], 4);
    let id = result["pending"][0]["id"].as_str().unwrap();
    assert_eq!(log(&sandbox).matches("call add").count(), 1);
    forget(&sandbox);
    let path = std::env::var("PATH").unwrap();
    let resumed = Run::of(&sandbox, &["resume", "run.journal", "--approve", id, "--json", "--trust"]);
    let (events, result) = resumed.with("SECRET", "s").with("PATH", path).events();
    assert_eq!((&result["exit_code"], &result["output"]), (&json!(0), &json!("error: it did not work")));
    let log = log(&sandbox);
    assert!(!log.contains("call add") && log.contains("call fail"), "{log}");
    let order: Vec<&Value> = events
        .iter()
        .filter(|event| ["tool_called", "toolset_started"].contains(&event["type"].as_str().unwrap()))
        .map(|event| &event["type"])
        .collect();
    assert_eq!(order, ["tool_called", "tool_called", "toolset_started"], "it is started where it is called");
}

#[test]
fn a_server_that_offers_something_else_when_a_run_goes_on_is_not_called() {
    let sandbox = desk(&calls(&["{ fail: {} }"]));
    let key = "5c".repeat(32);
    let begun = run(&sandbox, &["--json", "--journal", "run.journal"]).with("SECRET", "s");
    let (_, result) = begun.with("LLM_DO_STATE_KEY", &key).events();
    assert_eq!(result["exit_code"], 4);
    let journal = std::fs::read_to_string(sandbox.path().join("run.journal")).unwrap();
    // As if the server had said something else then, and llm-do had written it down.
    let said = journal.replace("\"description\":\"Fails\"", "\"description\":\"Reads\"");
    assert_ne!(said, journal);
    sandbox.file("run.journal", &signed_anew(&said, &StateKey::from_hex(&key).unwrap()));
    let path = std::env::var("PATH").unwrap();
    let resumed = Run::of(&sandbox, &["resume", "run.journal", "--approve-all", "--json", "--trust"]);
    let (_, result) = resumed.with("SECRET", "s").with("PATH", path).with("LLM_DO_STATE_KEY", &key).events();
    let said = result["output"].as_str().unwrap();
    assert!(said.contains("`desk` has changed what the tool `fail` is"), "{said}");
    assert!(!log(&sandbox).contains("call fail"));
}

/// The lines of a journal, as whoever has the key would have written them.
fn signed_anew(journal: &str, key: &StateKey) -> String {
    let mut previous = LineMac::default();
    let line = |line: &str| {
        let (signed, _) = mac::split(line.as_bytes()).unwrap();
        previous = key.next(SigningPurpose::Journal, previous, signed);
        let mut line = format!("{}}}", std::str::from_utf8(signed).unwrap());
        mac::sign(&mut line, previous);
        line + "\n"
    };
    journal.lines().map(line).collect()
}
