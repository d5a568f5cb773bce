//! Who has to agree before a tool runs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::session::Run;
use crate::support::{Ended, Sandbox};
use crate::{manifest, project, run};

const WRITES: &str = "\
- { round: 1, call: { write_file: { path: out.txt, content: written } } }
- say: \"{{ result }}\"
";

fn writer(keys: &str) -> Sandbox {
    project(&[("main", &format!("toolsets: [filesystem_cwd]\n{keys}"))], WRITES)
}

fn with_policy(runtime: &str) -> Sandbox {
    let sandbox = writer("");
    sandbox.file("project.json", &manifest(r#""main.worker""#, runtime));
    sandbox
}

fn is_written(sandbox: &Sandbox) -> bool {
    sandbox.path().join("out.txt").exists()
}

const DONE: &str = "wrote 7 characters to out.txt\n";
const REJECTED: &str = "error: `write_file` of main was refused: every question is answered with no in this run\n\
                        hint: `llm-do resume RUN` judges it again\n";

/// The id of what waits, and all that is said of it.
#[track_caller]
fn waiting(ended: &Ended) -> (String, String) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{}", ended.stderr);
    let rest = ended.stderr.strip_prefix("waiting for approval (").expect("it says what waits");
    let (id, rest) = rest.split_once("): ").expect("it has an id");
    (id.to_owned(), rest.to_owned())
}

#[test]
fn without_anybody_to_ask_the_run_ends_at_the_question() {
    let sandbox = writer("");
    let (id, said) = waiting(&run(&sandbox, &[]).ended());
    let expected = format!(
        "main › write_file\n\
         creates out.txt: 1 line added\n   1 + written\n       (no line break at the end)\n\
         error: approval is needed for `write_file` of main\n\
         hint: `llm-do resume RUN --approve {id}` allows it and goes on; `--refuse {id}` refuses it\n"
    );
    assert_eq!(said, expected);
    for flags in [&["--headless"][..], &["-p"], &["--print"]] {
        let (other, same) = waiting(&run(&sandbox, flags).ended());
        assert_eq!(same.replace(&other, &id), said, "{flags:?}");
        assert_ne!(other, id, "an id is of one run");
    }
    let (_, result) = run(&sandbox, &["--json"]).events();
    assert_eq!(result["exit_code"], 4);
    let arguments = json!({"path": "out.txt", "content": "written"});
    let (reason, preview) = ("creates out.txt: 1 line added", "   1 + written\n       (no line break at the end)");
    let pending = json!([{
        "id": result["pending"][0]["id"], "path": ["main"], "tool": "write_file", "arguments": arguments,
        "reason": reason, "preview": preview, "shows": ["path", "content"], "edits": "content",
    }]);
    assert_eq!(result["pending"], pending);
    assert_eq!(result["error"]["message"], "approval is needed for `write_file` of main");
    assert!(!is_written(&sandbox));
}

#[test]
fn flags_answer_every_question_and_win_over_the_manifest() {
    for (mode, flags, is_allowed) in [
        ("prompt", &["--approve-all"][..], true),
        ("prompt", &["--yolo"], true),
        ("prompt", &["--reject-all"], false),
        ("approve_all", &[], true),
        ("approve_all", &["--reject-all"], false),
        ("reject_all", &[], false),
        ("reject_all", &["--approve-all"], true),
    ] {
        let sandbox = with_policy(&format!(r#""approval_mode": "{mode}""#));
        let flags = &[flags, &["--trust"]].concat();
        if is_allowed {
            assert_eq!(run(&sandbox, flags).answer(), DONE, "{mode} {flags:?}");
        } else {
            assert_eq!(run(&sandbox, flags).failure(4), REJECTED, "{mode} {flags:?}");
        }
        assert_eq!(is_written(&sandbox), is_allowed, "{mode} {flags:?}");
    }
    let said = run(&writer(""), &["--approve-all", "--reject-all"]).failure(2);
    assert!(said.starts_with("error: the argument '--approve-all' cannot be used with '--reject-all'\n"), "{said}");
}

#[test]
fn a_refusal_may_come_back_to_the_model_instead() {
    for (flags, reason) in [
        (&["--reject-all"][..], "every question is answered with no in this run"),
        (&["--ephemeral"], "it needs an approval, and nobody is there to give it"),
    ] {
        let sandbox = with_policy(r#""return_permission_errors": true"#);
        let ended = run(&sandbox, flags).ended();
        assert_eq!((ended.code, ended.stdout), (Some(0), format!("error: refused: {reason}\n")), "{flags:?}");
        assert_eq!(ended.stderr, "1 call was refused: `write_file` of main\n");
        assert!(!is_written(&sandbox));
    }
    // A run that is kept can wait for whoever may say yes.
    let sandbox = with_policy(r#""return_permission_errors": true"#);
    let (id, _) = waiting(&run(&sandbox, &[]).ended());
    let run = sandbox.runs().pop().unwrap();
    let resumed = Run::of(&sandbox, &["resume", &run, "--approve", &id]).ended();
    assert_eq!((resumed.code, resumed.stdout.as_str(), is_written(&sandbox)), (Some(0), DONE, true), "{resumed:?}");
}

#[test]
fn an_agent_adds_rules_and_a_block_beats_everything() {
    let blocked = "error: `write_file` of main was refused: blocked by `write_file: block` in main.worker\n\
                   hint: `llm-do resume RUN` judges it again\n";
    for (rule, flags, expected) in [
        ("approval: { write_file: allow }", &[][..], Ok(DONE)),
        ("approval: { filesystem_cwd.write_file: allow }", &[], Ok(DONE)),
        ("approval: { write_file: allow }", &["--reject-all"], Ok(DONE)),
        ("approval: { write_file: block }", &[], Err(blocked)),
        ("approval: { write_file: block }", &["--approve-all"], Err(blocked)),
        ("approval: { write_file: ask }", &["--reject-all"], Err(REJECTED)),
    ] {
        let sandbox = writer(rule);
        match expected {
            Ok(answer) => assert_eq!(run(&sandbox, flags).answer(), answer, "{rule} {flags:?}"),
            Err(said) => assert_eq!(run(&sandbox, flags).failure(4), said, "{rule} {flags:?}"),
        }
        assert_eq!(is_written(&sandbox), expected.is_ok(), "{rule} {flags:?}");
    }
    let reads = "- { round: 1, call: { read_file: { path: script.yaml } } }\n- say: read\n";
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd]\napproval: { read_file: ask }")], reads);
    let (_, said) = waiting(&run(&sandbox, &[]).ended());
    assert!(said.starts_with("main › read_file\n"), "{said}");
    assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "read\n");
}

#[test]
fn a_question_deep_in_the_tree_ends_the_run_before_anything_of_its_reply() {
    let script = "\
- { agent: main, round: 1, call: { editor: { input: go } } }
- { agent: editor, round: 1, call: [ { write_file: { path: free.txt, content: x } }, { edit_file: { path: notes.md, old: old, new: new } } ] }
- say: \"{{ result }}\"
";
    let editor = "toolsets: [filesystem_cwd]\napproval: { write_file: allow }";
    let sandbox = project(&[("main", "entry: true\ntoolsets: [editor]"), ("editor", editor)], script);
    sandbox.file("notes.md", "old\n");
    let before = sandbox.tree();
    let (_, said) = waiting(&run(&sandbox, &[]).ended());
    assert!(
        said.starts_with(
            "main › editor › edit_file\nchanges notes.md: 1 line added, 1 removed\n   1 - old\n   1 + new\n"
        ),
        "{said}"
    );
    assert!(said.contains("error: approval is needed for `edit_file` of main › editor\n"), "{said}");
    let (_, result) = run(&sandbox, &["--json"]).events();
    assert_eq!(result["pending"][0]["path"], json!(["main", "editor"]));
    let said = run(&sandbox, &["--reject-all"]).failure(4);
    assert!(said.starts_with("error: `edit_file` of main › editor was refused: every question"), "{said}");
    assert_eq!(sandbox.tree(), before, "also the call that was allowed has not run");
    run(&sandbox, &["--approve-all"]).answer();
    assert_eq!(sandbox.tree().len(), before.len() + 1);
}

#[test]
fn everything_that_waits_is_named_at_once() {
    let script = "\
- { agent: main, round: 1, call: [ { a: { input: go } }, { b: { input: go } } ] }
- { round: 1, call: [ { write_file: { path: '{{ agent }}1.txt', content: x } }, { write_file: { path: '{{ agent }}2.txt', content: x } } ] }
- say: done
";
    let writes = "toolsets: [filesystem_cwd]";
    let sandbox = project(&[("main", "entry: true\ntoolsets: [a, b]"), ("a", writes), ("b", writes)], script);
    let (_, result) = run(&sandbox, &["--json"]).events();
    let pending = result["pending"].as_array().unwrap();
    let shown: Vec<Value> =
        pending.iter().map(|pending| json!([pending["path"], pending["arguments"]["path"]])).collect();
    let expected = [("a", "a1.txt"), ("a", "a2.txt"), ("b", "b1.txt"), ("b", "b2.txt")];
    assert_eq!(shown, expected.map(|(agent, path)| json!([["main", agent], path])));
    let ids: BTreeSet<String> = pending.iter().map(|pending| pending["id"].to_string()).collect();
    assert_eq!(ids.len(), 4, "each has an id of its own");
}

#[test]
fn calls_of_agents_ask_where_the_manifest_says_so() {
    let script =
        "- { agent: main, round: 1, call: { child: { input: go } } }\n- say: \"{{ agent }} hears {{ heard }}\"\n";
    let sandbox = project(&[("main", "toolsets: [child]"), ("child", "")], script);
    let workers = r#""main.worker", "child.worker""#;
    let asks = r#""agent_calls_require_approval": true"#;
    sandbox.file("project.json", &manifest(workers, asks));
    let (_, said) = waiting(&run(&sandbox, &[]).ended());
    assert!(said.starts_with("main › child\ncalls the agent `child`\ninput  │ go\n"), "{said}");
    assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "main hears child hears go\n");
    let exception = format!(r#"{asks}, "agent_approval_overrides": {{"child": {{"calls_require_approval": false}}}}"#);
    sandbox.file("project.json", &manifest(workers, &exception));
    assert_eq!(run(&sandbox, &[]).answer(), "main hears child hears go\n");
}

#[test]
fn arguments_of_a_question_cannot_paint_over_it() {
    let script = "- call: { write_file: { path: \"a\\e[2J\\u202e.txt\", content: \"x\\r\\x07y\" } }\n";
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd]")], script);
    let ended = run(&sandbox, &[]).ended();
    assert_eq!(ended.code, Some(4));
    assert!(!ended.stderr.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{:?}", ended.stderr);
    assert!(ended.stderr.contains("u{1b}[2J") && ended.stderr.contains("u{202e}"), "{}", ended.stderr);
}

#[test]
fn what_is_approved_without_a_question_is_told() {
    let sandbox = writer("");
    let (events, _) = run(&sandbox, &["--json", "--approve-all"]).events();
    let told: Vec<&Value> = events.iter().filter(|event| event["type"] == "approval_answered").collect();
    let [told] = told[..] else { panic!("{told:?}") };
    assert_eq!((&told["tool"], &told["answer"]), (&json!("write_file"), &json!("policy")));
    assert_eq!(told["note"], "creates out.txt: 1 line added");
    let said = run(&sandbox, &["-v", "--approve-all"]).ended().stderr;
    assert!(said.contains("\n✓ write_file was approved: --approve-all is on\n→ write_file"), "{said}");
    // What a rule allows was never a question.
    let (events, _) = run(&writer("approval: { write_file: allow }"), &["--json"]).events();
    assert!(events.iter().all(|event| event["type"] != "approval_answered"));
}

#[test]
fn several_that_wait_are_numbered_and_may_be_allowed_together() {
    let calls = "[{ write_file: { path: a.txt, content: x } }, { write_file: { path: b.txt, content: y } }]";
    let script = format!("- {{ round: 1, call: {calls} }}\n- say: done\n");
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd]")], &script);
    let said = run(&sandbox, &["--journal", "run.journal"]).failure(4);
    let ids: Vec<&str> = said.split("waiting for approval (").skip(1).map(|rest| &rest[..12]).collect();
    let [first, second] = ids.as_slice() else { panic!("{said}") };
    assert!(said.starts_with("1. waiting for approval (") && said.contains("\n2. waiting for approval ("), "{said}");
    let hint = format!(
        "hint: `llm-do resume run.journal --approve {first} --approve {second}` allows all and goes on; \
         `--refuse ID` refuses one\n"
    );
    assert!(said.ends_with(&hint), "{said}");
    let resumed = sandbox.run(&["resume", "run.journal", "--approve", first, "--approve", second]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), "done\n"), "{}", resumed.stderr);
    assert!(sandbox.path().join("a.txt").exists() && sandbox.path().join("b.txt").exists());
}
