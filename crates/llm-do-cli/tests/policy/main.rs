//! Lasting rules from the outside: what they let pass, what they stop, and what `llm-do policy` says about them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod files;
mod history;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use support::{Ended, Sandbox};

/// An agent that writes the file that it is told to, which asks.
fn writer() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nWrite.\n");
    sandbox.file(
        "script.yaml",
        "- { round: 1, call: { write_file: { path: \"{{ heard }}\", content: x } } }\n- say: \"{{ result }}\"\n",
    );
    sandbox
}

fn write(sandbox: &Sandbox, file: &str) -> Ended {
    sandbox.run(&["run", ".", file, "-m", "scripted:script.yaml"])
}

fn rules_file(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join(".local/state/llm-do/rules.toml")
}

fn put_rules(sandbox: &Sandbox, text: &str) {
    let file = rules_file(sandbox);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Approves the only open question, and goes on.
fn approve(sandbox: &Sandbox) -> Ended {
    let open = sandbox.run(&["inbox", "--json"]);
    let line: Value = serde_json::from_str(open.stdout.lines().last().unwrap()).unwrap();
    sandbox.run(&["inbox", "approve", line["digest"].as_str().unwrap(), "--go"])
}

#[test]
fn a_rule_answers_what_it_says_and_the_event_names_it() {
    let sandbox = writer();
    put_rules(&sandbox, "# mine\n[[rule]]\nallow = \"write_file\"\nagent = \"main\"\npath = \"drafts/*.md\"\n");
    fs::create_dir(sandbox.path().join("drafts")).unwrap();
    assert_eq!(write(&sandbox, "drafts/a.md").code, Some(0));
    assert_eq!(write(&sandbox, "other.md").code, Some(4), "of other files it says nothing");
    std::os::unix::fs::symlink("../x.md", sandbox.path().join("drafts/link.md")).unwrap();
    fs::write(sandbox.path().join("x.md"), "").unwrap();
    assert_eq!(write(&sandbox, "drafts/link.md").code, Some(4), "a file is what is opened");
    let told = sandbox.run(&["run", ".", "drafts/b.md", "-m", "scripted:script.yaml", "--json"]);
    let events: Vec<Value> = told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answered = events.iter().find(|event| event["type"] == "approval_answered").unwrap();
    assert_eq!((answered["answer"].as_str(), answered["rule"].as_str()), (Some("rule"), Some("rules.toml:2")));
}

#[test]
fn a_block_of_ones_own_counts_whatever_others_allow() {
    let sandbox = writer();
    sandbox.file(
        "main.worker",
        "---\nname: main\ntoolsets: [filesystem_cwd]\napproval: { write_file: allow }\n---\nWrite.\n",
    );
    put_rules(&sandbox, "[[rule]]\nblock = \"write_file\"\n");
    let ended = sandbox.run(&["run", ".", "a.md", "-m", "scripted:script.yaml", "--approve-all"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("blocked by a rule of the user (rules.toml:1)"), "{}", ended.stderr);
    assert!(!sandbox.path().join("a.md").exists());
}

#[test]
fn a_rule_of_the_manifest_is_trusted_before_it_allows() {
    let sandbox = writer();
    let manifest = |rule: &str| {
        let text = format!(
            "{{\"version\": 1, \"entry\": {{\"agent\": \"main\"}}, \"worker_files\": [\"main.worker\"],\n\"rules\": [{rule}]}}"
        );
        sandbox.file("project.json", &text);
    };
    manifest(r#"{"allow": "write_file", "path": "*.md"}"#);
    let mut command = sandbox.command(&["run", ".", "a.md", "-m", "scripted:script.yaml"], &[]);
    command.env_remove("LLM_DO_TRUST").stdout(Stdio::piped()).stderr(Stdio::piped());
    let untrusted = support::wait(&mut command);
    assert_eq!(untrusted.code, Some(4));
    assert!(untrusted.stderr.contains(r#"allow = "write_file"  path = "*.md""#), "{}", untrusted.stderr);
    let trusted = sandbox.run(&["run", ".", "a.md", "-m", "scripted:script.yaml", "--trust"]);
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    // What only tightens needs no trust.
    manifest(r#"{"block": "write_file"}"#);
    let blocked = write(&sandbox, "b.md");
    assert_eq!(blocked.code, Some(4));
    assert!(blocked.stderr.contains("blocked by a rule of the project (project.json:2)"), "{}", blocked.stderr);
}
