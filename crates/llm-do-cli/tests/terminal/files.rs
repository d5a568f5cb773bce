//! Questions about files that ask whatever a rule allows.

use std::os::unix::fs::symlink;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::json;

use crate::command;
use crate::support::Sandbox;
use crate::terminal::Terminal;

const ALLOWED: &str = "toolsets: [filesystem_cwd]\napproval: {read_file: allow, write_file: allow}";

/// A project whose agent makes the same call twice.
fn calling(call: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", &format!("---\nname: main\nmodel: scripted:script.yaml\n{ALLOWED}\n---\nx\n"));
    let script =
        format!("- {{ round: 1, call: {call} }}\n- {{ round: 2, call: {call} }}\n- say: \"{{{{ result }}}}\"\n");
    sandbox.file("script.yaml", &script).file(".env", "KEY=canary\n");
    symlink(".env", sandbox.path().join("notes.txt")).unwrap();
    sandbox
}

fn start(sandbox: &Sandbox) -> Terminal {
    Terminal::start(sandbox.command(&["run", ".", "hi"], &[]))
}

const ASKED: &str = " explain";

#[test]
fn a_secret_is_shown_with_the_path_it_has_and_may_be_allowed_for_the_session() {
    let sandbox = calling("{ read_file: { path: notes.txt } }");
    let terminal = start(&sandbox);
    terminal.expect(ASKED).answer_twice("s");
    let left = terminal.left();
    let real = sandbox.path().canonicalize().unwrap().join(".env");
    let question = format!("reads `{}`, which looks like a secret", real.display());
    // A path may be longer than a line of the terminal.
    assert!(left.screen.replace('\n', "").contains(&question), "{}", left.screen);
    assert!(left.screen.contains("s this call") && !left.screen.contains("t this tool"), "{}", left.screen);
    assert!(!left.screen.contains("approval 2"), "the second call is covered: {}", left.screen);
    assert!(left.screen.contains("canary"), "{}", left.screen);
}

#[test]
fn a_protected_file_is_shown_with_what_would_change_and_cannot_be_allowed_for_the_session() {
    let sandbox = calling("{ write_file: { path: main.worker, content: \"planted\\n\" } }");
    let terminal = start(&sandbox);
    terminal.expect(ASKED).answer("q");
    let left = terminal.left();
    let screen = left.screen.replace('\n', "");
    assert!(screen.contains("which is a worker file") && screen.contains("+ planted"), "{}", left.screen);
    assert!(left.screen.contains("\ny yes  e edit  n no"), "{}", left.screen);
    let kept = std::fs::read_to_string(sandbox.path().join("main.worker")).unwrap();
    assert!(kept.starts_with("---\nname: main\n"), "{kept}");
}

const SECRET: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";

/// A person's home with a project in it, a harmless file and a key.
fn home() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("harmless.txt", "the weather is fine").file(".ssh/id_rsa", SECRET);
    sandbox.file("p/main.worker", "---\nname: main\ntoolsets: [child]\n---\nx\n");
    sandbox.file("p/child.worker", "---\nname: child\n---\nx\n");
    let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker", "child.worker"]}"#;
    sandbox.file("p/project.json", manifest);
    sandbox
}

/// What somebody does between the question and the answer to it.
fn swap(sandbox: &Sandbox) {
    let named = sandbox.path().join("harmless.txt");
    std::fs::remove_file(&named).unwrap();
    symlink(".ssh/id_rsa", named).unwrap();
}

fn sent(fake: &FakeLlm) -> String {
    fake.requests().iter().map(|request| String::from_utf8_lossy(&request.bytes).into_owned()).collect()
}

#[test]
fn a_file_that_was_swapped_while_the_question_stood_is_asked_about_again() {
    let attached = json!({"input": "look", "attachments": ["../harmless.txt"]});
    let calls = || FakeScript::new().reply(FakeReply::calls([FakeCall::new("child", attached.clone())]));
    let arguments = ["run", "p", "-m", "anthropic:claude-haiku-4-5"];
    let given = attached.to_string();
    let cases: [(&[&str], FakeScript); 2] = [
        (&["hi"], calls().otherwise(FakeReply::text("done"))),
        (&["--input-json", &given], FakeScript::new().otherwise(FakeReply::text("done"))),
    ];
    for (more, script) in cases {
        let (sandbox, fake) = (home(), FakeLlm::start(script));
        let terminal = Terminal::start(command(&sandbox, &fake, &[&arguments[..], more].concat()));
        terminal.expect("approval 1 · ").expect_written(ASKED, 1);
        swap(&sandbox);
        terminal.answer("y").expect("approval 2 · ").expect_written(ASKED, 2);
        assert!(terminal.screen().replace('\n', "").contains(".ssh/id_rsa"), "{}", terminal.screen());
        terminal.answer("q");
        let left = terminal.left();
        assert_eq!(left.code, Some(4), "{}", left.screen);
        assert!(!sent(&fake).contains("PRIVATE KEY"), "{}", left.screen);
    }
    // What is left alone is sent after one answer.
    let (sandbox, fake) = (home(), FakeLlm::start(calls().otherwise(FakeReply::text("done"))));
    let terminal = Terminal::start(command(&sandbox, &fake, &[&arguments[..], &["hi"]].concat()));
    terminal.expect(ASKED).answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(sent(&fake).contains("the weather is fine"), "{}", left.screen);
}
