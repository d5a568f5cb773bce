//! Trust: asked once at a terminal, remembered outside the project.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::session::Run;
use crate::support::Sandbox;
use crate::terminal::{Terminal, timeless};

fn project(mode: &str) -> String {
    format!(
        r#"{{"version": 1, "entry": {{"agent": "main"}}, "worker_files": ["main.worker"],
        "runtime": {{"approval_mode": "{mode}"}}, "toolsets": {{"etc": {{"filesystem": {{"root": "/etc", "mode": "ro"}}}}}}}}"#
    )
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("p/project.json", &project("approve_all"));
    sandbox.file("p/main.worker", "---\nname: main\n---\nx\n").file("script.yaml", "- say: ran\n");
    sandbox
}

const RUN: [&str; 5] = ["run", "p", "hi", "-m", "scripted:script.yaml"];

fn start(sandbox: &Sandbox) -> Terminal {
    Terminal::start(sandbox.command(&RUN, &[]))
}

#[test]
fn a_person_is_asked_once_and_again_when_the_list_changes() {
    let sandbox = sandbox();
    let terminal = start(&sandbox);
    terminal.expect("n no").answer("y");
    let left = terminal.left();
    let expected = "\
this project can run code, send data out or loosen the gate:
  approval_mode: approve_all: every question is answered with yes
  root: /etc is read by `etc`
trust p? It is asked again if this list changes.
  y yes
  n no
ran
0.0 s · 1 request · 0 tokens in, 0 out · $0";
    assert_eq!((left.code, timeless(left.screen.trim_end()).as_str()), (Some(0), expected));
    let kept = sandbox.path().join(".config/llm-do/trust");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
    let left = start(&sandbox).left();
    assert!(left.screen.starts_with("ran\n"), "{}", left.screen);
    sandbox.file("p/main.worker", "---\nname: main\n---\nother words\n");
    assert!(start(&sandbox).left().screen.starts_with("ran\n"), "other edits do not ask again");
    sandbox.file("p/project.json", &project("prompt"));
    let terminal = start(&sandbox);
    terminal.expect("n no").answer("n");
    let left = terminal.left();
    assert_eq!(left.code, Some(4));
    let refused = "error: the project is not trusted\nhint: `--trust` trusts it without a question";
    assert!(left.screen.trim_end().ends_with(refused), "{}", left.screen);
    let terminal = start(&sandbox);
    terminal.expect("n no").press("\u{3}");
    assert_eq!(terminal.left().code, Some(130));
}

#[test]
fn without_a_person_it_is_said_in_one_line() {
    let sandbox = sandbox();
    let run = |flags: &[&'static str]| Run::of(&sandbox, &[&RUN[..], flags].concat()).ended();
    let ended = run(&[]);
    let note = "note: this project was never trusted: approval_mode, root (`llm-do check` lists what it can do)\n";
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "ran\n", note));
    assert_eq!(run(&["-q"]).stderr, "");
    let checked = || Run::of(&sandbox, &["check", "p", "-m", "scripted:script.yaml", "--json"]).answer();
    let trust = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["trust"].clone();
    assert_eq!(trust(&checked())["given"], false);
    let text = Run::of(&sandbox, &["check", "p", "-m", "scripted:script.yaml"]).answer();
    let shown = "trust    needed for, and none of it was run or looked at here\n         \
                 approval_mode: approve_all: every question is answered with yes\n         root: /etc is read by `etc`\n";
    assert!(text.contains(shown), "{text}");
    assert_eq!(run(&["--trust"]).stderr, "");
    assert_eq!(run(&[]).stderr, "", "it is remembered");
    let items = json!([
        {"key": "approval_mode", "what": "approve_all: every question is answered with yes"},
        {"key": "root", "what": "/etc is read by `etc`"},
    ]);
    assert_eq!(trust(&checked()), json!({"given": true, "items": items}));
}

#[test]
fn trust_that_cannot_be_kept_is_still_given() {
    let sandbox = sandbox();
    sandbox.file("home/trust", "not a directory");
    let ended = Run::of(&sandbox, &[&RUN[..], &["--trust"]].concat()).with("LLM_DO_HOME", "home").ended();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ran\n"), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("note: trust cannot be kept, it will be asked for again: "), "{}", ended.stderr);
}
