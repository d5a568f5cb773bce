//! One run, looked at.

use std::fs;

use serde_json::Value;

use crate::Desk;

#[test]
fn a_run_is_shown_with_its_calls_and_how_to_go_on() {
    let desk = Desk::new();
    let run = desk.waiting();
    let shown = desk.says(&["runs", "show", &run]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], format!("run {run} · waits: write_file"));
    assert!(shown.contains("\ntook      1 request · 1000 tokens in, 100 out · $0.0015\n"), "{shown}");
    let call = lines.iter().find(|line| line.contains("main/t0/m0/c0")).unwrap();
    assert!(call.starts_with("  write_file {\"content\":\"new\\n\"") && call.contains("waits"), "{shown}");
    assert!(shown.contains("\nwaiting for approval ("), "{shown}");
    let approve = lines.iter().find(|line| line.contains("--approve")).unwrap().trim();
    let words: Vec<&str> = approve.split(' ').skip(1).chain(["-p"]).collect();
    assert!(desk.says(&words).starts_with("Result: "), "the command that is shown goes on");
    let shown = desk.says(&["runs", "show", &run, "--messages"]);
    assert!(shown.contains("done") && shown.contains("## User\n\nwrite\n\n## main\n\ncalls `write_file`"), "{shown}");
    assert!(shown.contains("\ntook      2 requests · 2000 tokens in, 200 out · $0.0030\n"), "{shown}");

    let json: Value = serde_json::from_str(&desk.says(&["runs", "show", &run, "--json", "--messages"])).unwrap();
    assert_eq!((&json["id"], &json["state"]), (&run.clone().into(), &"done".into()));
    assert_eq!(json["calls"][0]["calls"][0]["name"], "write_file");
    assert_eq!(json["calls"][0]["calls"][0]["answer"]["is_approved"], true);
    assert_eq!(json["messages"].as_array().unwrap().len(), 4);
    assert_eq!(json["commands"][0], format!("llm-do resume {run}"));
}

#[test]
fn all_that_is_kept_of_a_run_can_be_printed() {
    let desk = Desk::new();
    let run = desk.waiting();
    let lines = desk.says(&["runs", "export", &run]);
    let journal = fs::read_to_string(desk.journal(&run)).unwrap();
    assert_eq!(lines.lines().count(), journal.lines().count());
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line.get("mac").is_none() && line.get("kind").is_some());
    }
    let markdown = desk.says(&["runs", "export", &run, "--format", "markdown"]);
    assert!(
        markdown.starts_with(&format!("# Run {run}\n\n")) && markdown.contains("\n## User\n\nwrite\n"),
        "{markdown}"
    );
}

#[test]
fn a_new_key_is_one_that_machines_can_share() {
    let desk = Desk::new();
    let keys = [desk.says(&["runs", "key"]), desk.says(&["runs", "key"])];
    assert_ne!(keys[0], keys[1]);
    assert!(keys.iter().all(|key| key.len() == 65 && key.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit())));
    let ended = desk.llm_do(&["run", "desk", "hello", "-p"]).with("LLM_DO_STATE_KEY", keys[0].trim_end()).ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(desk.states(), ["done"], "the list needs no key");
}
