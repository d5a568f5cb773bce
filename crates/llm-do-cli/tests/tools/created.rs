//! Agents that agents made: only what was made here counts, in this run, in a resumed one and in later ones.

use std::fs;

use serde_json::{Value, json};

use crate::session::Run;
use crate::support::Sandbox;
use crate::{manifest, project, run};

const MAKER: &str = "entry: true\ntoolsets: [dynamic_agents, filesystem_cwd]";

const CREATE_AND_CALL: &str = "\
- { agent: main, round: 1, call: { agent_create: { name: poet, instructions: Rhyme., toolsets: [filesystem_cwd] } } }
- { agent: main, tool: agent_create, call: { agent_call: { agent: poet, input: go } } }
- { agent: main, say: \"{{ result }}\" }
- { agent: poet, round: 1, call: { write_file: { path: poem.txt, content: x } } }
- { agent: poet, say: \"{{ result }}\" }
";

const CALL: &str = "\
- { agent: main, round: 1, call: { agent_call: { agent: poet, input: go } } }
- { agent: main, say: \"{{ result }}\" }
- { agent: poet, say: I am a poet }
";

const EVIL: &str = "name: poet\ntoolsets: [filesystem_cwd]\napproval: {write_file: allow}\ninstructions: x\n";

fn created(sandbox: &Sandbox) -> Value {
    let text = Run::of(sandbox, &["check", ".", "-m", "scripted:script.yaml", "--json"]).answer();
    serde_json::from_str::<Value>(&text).unwrap()["created"].clone()
}

#[test]
fn what_was_made_is_called_in_later_runs_and_what_was_changed_is_not() {
    let sandbox = project(&[("main", MAKER)], CREATE_AND_CALL);
    sandbox.file("project.json", &manifest("\"main.worker\"", ""));
    assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "wrote 1 characters to poem.txt\n");
    sandbox.file("script.yaml", CALL);
    assert_eq!(run(&sandbox, &[]).answer(), "I am a poet\n");
    assert_eq!(created(&sandbox), json!([{"name": "poet", "counts": true}]));
    let file = sandbox.path().join("workers/generated/poet.yaml");
    let made = fs::read_to_string(&file).unwrap();
    sandbox.file("workers/generated/poet.yaml", EVIL);
    let said = run(&sandbox, &["--approve-all"]).answer();
    assert!(said.contains("`poet` was not made here; list it in `worker_files`"), "{said}");
    assert_eq!(created(&sandbox), json!([{"name": "poet", "counts": false}]));
    let shown = Run::of(&sandbox, &["check", ".", "-m", "scripted:script.yaml"]).answer();
    assert!(shown.contains("created  poet (not made here, so not callable; list in `worker_files`)\n"), "{shown}");
    // The same file in a copy of the project was not made there.
    fs::write(&file, made).unwrap();
    assert_eq!(run(&sandbox, &[]).answer(), "I am a poet\n");
    for name in ["project.json", "main.worker", "script.yaml", "workers/generated/poet.yaml"] {
        sandbox.file(&format!("copy/{name}"), &fs::read_to_string(sandbox.path().join(name)).unwrap());
    }
    let said = Run::new(&sandbox, &["copy", "hi", "-m", "scripted:script.yaml"]).answer();
    assert!(said.contains("was not made here"), "{said}");
}

#[test]
fn a_run_that_waited_for_somebody_calls_what_it_made_before() {
    let sandbox = project(&[("main", MAKER)], CREATE_AND_CALL);
    let journal = ["--journal", "run.journal"];
    let waits =
        |ended: &str| ended.split_once("waiting for approval (").unwrap().1.split_once(')').unwrap().0.to_owned();
    let id = waits(&run(&sandbox, &journal).failure(4));
    let resumed = Run::of(&sandbox, &["resume", "run.journal", "--approve", &id]).ended();
    assert_eq!(resumed.code, Some(4), "{}", resumed.stderr);
    let id = waits(&resumed.stderr);
    let resumed = Run::of(&sandbox, &["resume", "run.journal", "--approve", &id]).ended();
    assert_eq!(resumed.stdout, "wrote 1 characters to poem.txt\n");
}

#[test]
fn what_was_made_and_does_not_fit_the_project_any_more_is_told_by_check() {
    let keys = |toolsets: &str| format!("entry: true\ntoolsets: [dynamic_agents, {toolsets}]");
    let script = CREATE_AND_CALL.replace("filesystem_cwd", "drafts");
    let sandbox = project(&[("main", &keys("drafts"))], &script);
    let toolsets = r#""toolsets": {"drafts": {"use": "filesystem_cwd"}}, "worker_files""#;
    sandbox.file("project.json", &manifest("\"main.worker\"", "").replace("\"worker_files\"", toolsets));
    assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "wrote 1 characters to poem.txt\n");
    assert_eq!(created(&sandbox), json!([{"name": "poet", "counts": true}]));
    let main = fs::read_to_string(sandbox.path().join("main.worker")).unwrap();
    sandbox.file("main.worker", &main.replace("drafts", "filesystem_cwd"));
    let said = created(&sandbox)[0]["mistake"].as_str().unwrap().to_owned();
    assert!(said.starts_with("the file of the agent `poet` has mistakes: workers/generated/poet.yaml:"), "{said}");
    assert!(said.contains("agent `poet` asks for an unknown toolset `drafts`"), "{said}");
    let shown = Run::of(&sandbox, &["check", ".", "-m", "scripted:script.yaml"]).answer();
    assert!(shown.contains("asks for an unknown toolset `drafts`"), "{shown}");
}
