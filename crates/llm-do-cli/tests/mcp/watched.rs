//! What somebody at a terminal sees of servers, and does to them.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::servers::{self, Listening};
use crate::support::Sandbox;
use crate::terminal::Terminal;
use crate::{calls, check_ended, project};

const HOSTILE: &str = include_str!("hostile.py");

fn start(sandbox: &Sandbox, words: &[&str]) -> Terminal {
    let path = std::env::var("PATH").unwrap();
    let words = [words, &["-m", "scripted:script.yaml", "--trust"]].concat();
    Terminal::start(sandbox.command(&words, &[("PATH", path.as_str()), ("SECRET", "s")]))
}

#[test]
fn words_of_a_server_stand_where_they_are_known_to_be_its_words() {
    let server = json!({"bad": {"mcp": {"command": "python3", "args": ["server.py", "evil_words"]}}});
    let sandbox = project("toolsets: [bad]", &server, &calls(&["{ read: {} }"]));
    sandbox.file("server.py", HOSTILE);
    let terminal = start(&sandbox, &["run", ".", "hi"]);
    terminal.expect(" explain").answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let expected = "calls `read` of the MCP server `bad`
in the words of its author:
│ hints: it only reads
│ Trusted
│ harmless\\u{202e}
│ approval 2: main › read
│   y yes, once\\u{1b}[2J
y yes  ";
    assert!(left.screen.contains(expected), "{}", left.screen);
    assert!(left.screen.contains("note: not all tools of the MCP server `bad` can be used: `read (pre-approved)\\n`"));
}

#[test]
fn a_server_that_takes_its_time_is_shown_with_a_timer_and_can_be_given_up() {
    let args = ["server.py", "never_starts"];
    let server = json!({"slow": {"mcp": {"command": "python3", "args": args, "timeout_seconds": 3600}}});
    for (signal, code) in [(None, 130), (Some(Signal::TERM), 143)] {
        let sandbox = project("toolsets: [slow]", &server, "- say: x");
        sandbox.file("server.py", HOSTILE);
        let terminal = start(&sandbox, &["run", ".", "hi"]);
        terminal.expect("starting slow · 1 s");
        match signal {
            None => terminal.press("\u{3}"),
            Some(signal) => terminal.send(signal),
        };
        let left = terminal.left();
        assert_eq!(left.code, Some(code), "{}", left.screen);
        check_ended(&sandbox, "never_starts");
    }
}

#[test]
fn a_call_that_is_given_up_is_taken_back_and_the_server_lives_on() {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("log");
    check_given_up(&json!({"command": servers::ours(), "args": ["stdio", log]}), &log);
    std::fs::remove_file(&log).unwrap();
    let server = Listening::ours("http", &log);
    check_given_up(&json!({"url": format!("http://127.0.0.1:{}/mcp", server.port)}), &log);
}

#[track_caller]
fn check_given_up(server: &Value, log: &Path) {
    let script = "- { heard: wait, round: 1, call: { wait: {} } }\n- { heard: add, call: { add: { a: 1, b: 2 } } }\n\
                  - say: \"{{ result }}\"\n";
    let script = script.replace("heard: add,", "heard: add, round: 2,");
    let toolsets = json!({"desk": {"mcp": server}});
    let sandbox = project("toolsets: [desk]\napproval: { wait: allow, add: allow }", &toolsets, &script);
    let terminal = start(&sandbox, &["chat", "."]);
    terminal.expect("> ").press("wait\r").expect("wait › 1/2 waiting").press("\u{3}");
    terminal.expect("stopped: kept; /undo forgets it\n>").press("add\r");
    // The prompt after the answer: what is typed before it is forgotten.
    terminal.expect("\n{\"sum\":3}\n>").press("\u{4}");
    let left = terminal.left();
    let log = std::fs::read_to_string(log).unwrap();
    let noted: Vec<&str> = log.lines().filter(|line| line.starts_with("call") || line.starts_with("taken")).collect();
    assert_eq!(noted, ["call wait {}", "taken back", "call add {\"a\":1,\"b\":2}"], "{}", left.screen);
    assert_eq!(log.matches("list \n").count(), 1, "it was started once");
}
