//! Rules and what was recorded: explained, tried, suggested.

use std::fs;

use serde_json::Value;

use crate::{approve, put_rules, rules_file, write, writer};

#[test]
fn what_was_always_approved_is_suggested_and_then_passes() {
    let sandbox = writer();
    fs::create_dir(sandbox.path().join("drafts")).unwrap();
    for file in ["drafts/a.md", "drafts/b.md"] {
        assert_eq!(write(&sandbox, file).code, Some(4));
        assert_eq!(approve(&sandbox).code, Some(0));
    }
    let nothing = sandbox.run(&["policy", "suggest"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""), "two are too few");
    assert_eq!(write(&sandbox, "drafts/c.md").code, Some(4));
    assert_eq!(approve(&sandbox).code, Some(0));
    let suggested = sandbox.run(&["policy", "suggest"]);
    assert!(suggested.stdout.contains(r#"path = "drafts/*.md""#), "{}", suggested.stdout);
    assert!(suggested.stdout.contains("approved 3 times in 3 runs, never refused"), "{}", suggested.stdout);
    assert!(!rules_file(&sandbox).exists(), "nothing is added without a yes");
    assert_eq!(sandbox.run(&["policy", "suggest", "--yes"]).code, Some(0));
    assert_eq!(write(&sandbox, "drafts/d.md").code, Some(0));
    assert_eq!(write(&sandbox, "elsewhere.md").code, Some(4));
    let listed = sandbox.run(&["policy", "--json"]);
    let row: Value = serde_json::from_str(listed.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((row["source"].as_str(), row["decided"].as_u64()), (Some("yours"), Some(4)), "{row}");
}

#[test]
fn what_was_refused_once_is_not_suggested_and_replay_says_so() {
    let sandbox = writer();
    fs::create_dir(sandbox.path().join("drafts")).unwrap();
    for file in ["drafts/a.md", "drafts/b.md", "drafts/c.md"] {
        assert_eq!(write(&sandbox, file).code, Some(4));
        assert_eq!(approve(&sandbox).code, Some(0));
    }
    assert_eq!(write(&sandbox, "drafts/secret.md").code, Some(4));
    let open = sandbox.run(&["inbox", "--json"]);
    let line: Value = serde_json::from_str(open.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(sandbox.run(&["inbox", "refuse", line["digest"].as_str().unwrap(), "--go"]).code, Some(0));
    let suggested = sandbox.run(&["policy", "suggest", "--yes"]);
    assert!(suggested.stdout.is_empty() && !rules_file(&sandbox).exists(), "{suggested:?}");
    sandbox.file("new.toml", "[[rule]]\nallow = \"write_file\"\n");
    let replay = sandbox.run(&["policy", "replay", "--rules", "new.toml"]);
    assert_eq!(replay.code, Some(1), "{replay:?}");
    assert!(replay.stdout.starts_with("4 run unasked, 0 are asked, 0 are blocked\n"), "{}", replay.stdout);
    assert!(replay.stdout.contains("a person refused or changed these") && replay.stdout.contains("drafts/secret.md"));
    sandbox.file("new.toml", "[[rule]]\nallow = \"write_file\"\npath = \"drafts/?.md\"\n");
    let replay = sandbox.run(&["policy", "replay", "--rules", "new.toml", "--json"]);
    let found: Value = serde_json::from_str(&replay.stdout).unwrap();
    assert_eq!((replay.code, &found["run"], &found["asked"]), (Some(0), &Value::from(3), &Value::from(1)), "{found}");
}

#[test]
fn a_decision_is_explained_step_by_step() {
    let sandbox = writer();
    let explain = |words: &[&str]| sandbox.run(&[&["policy", "explain"], words].concat());
    let call = &["write_file", r#"{"path": "a.md", "content": "x"}"#, "-m", "scripted:script.yaml"];
    let asked = explain(call);
    assert_eq!(asked.code, Some(0), "{asked:?}");
    assert!(asked.stdout.contains("→ answer") && asked.stdout.contains("It is asked."), "{}", asked.stdout);
    put_rules(&sandbox, "[[rule]]\nallow = \"write_file\"\n\n[[rule]]\nblock = \"write_file\"\npath = \"b.md\"\n");
    assert!(explain(call).stdout.contains("your rule allows it (rules.toml:1)"), "{}", explain(call).stdout);
    let blocked = explain(&["write_file", r#"{"path": "b.md", "content": "x"}"#, "-m", "scripted:script.yaml"]);
    assert!(blocked.stdout.contains("→ verdict") && blocked.stdout.contains("your rule says block (rules.toml:4)"));
    let secret = explain(&["read_file", r#"{"path": ".env"}"#, "-m", "scripted:script.yaml"]);
    assert_eq!(secret.code, Some(0), "{secret:?}");
    fs::remove_file(rules_file(&sandbox)).unwrap();
    assert_eq!(write(&sandbox, "c.md").code, Some(4));
    let open = sandbox.run(&["inbox", "--json"]);
    let line: Value = serde_json::from_str(open.stdout.lines().last().unwrap()).unwrap();
    let place = format!("{}/{}", line["run"].as_str().unwrap(), line["question"].as_str().unwrap());
    let question = explain(&[&place]);
    assert!(question.stdout.contains("It is asked."), "{question:?}");
    let unknown = explain(&[&format!("{}/000000000000", line["run"].as_str().unwrap())]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let tool = explain(&["nothing", "-m", "scripted:script.yaml"]);
    assert_eq!(tool.code, Some(2), "{tool:?}");
    assert!(tool.stderr.contains("there is no tool `nothing`"), "{}", tool.stderr);
}
