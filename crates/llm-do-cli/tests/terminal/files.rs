//! Questions about files that ask whatever a rule allows.

use std::os::unix::fs::symlink;

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

const ASKED: &str = "no, and end the run";

#[test]
fn a_secret_is_shown_with_the_path_it_has_and_may_be_allowed_for_the_session() {
    let sandbox = calling("{ read_file: { path: notes.txt } }");
    let terminal = start(&sandbox);
    terminal.expect(ASKED).answer("s");
    let left = terminal.left();
    let real = sandbox.path().canonicalize().unwrap().join(".env");
    let question = format!("reads `{}`, which looks like a secret", real.display());
    // A path may be longer than a line of the terminal.
    assert!(left.screen.replace('\n', "").contains(&question), "{}", left.screen);
    assert!(left.screen.contains("s yes, and this exact call") && !left.screen.contains("t yes"), "{}", left.screen);
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
    assert!(!left.screen.contains("s yes") && !left.screen.contains("t yes"), "{}", left.screen);
    let kept = std::fs::read_to_string(sandbox.path().join("main.worker")).unwrap();
    assert!(kept.starts_with("---\nname: main\n"), "{kept}");
}
