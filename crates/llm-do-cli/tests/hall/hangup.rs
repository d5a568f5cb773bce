//! A terminal that goes away while questions stand open: what is not kept is refused, what is kept waits.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::session::{Run, of_type};
use crate::support::{Sandbox, wait_for_end};

/// Far more than anything here takes.
const DEADLINE: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

const JOURNAL: &str = "run.journal";

/// A program, and the only holder of the other side of its terminal: dropped, the line is dead.
struct Line {
    child: Child,
    terminal: File,
}

impl Line {
    fn start(mut command: Command, stdout: File) -> Self {
        command.env("TERM", "xterm-256color");
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(pty_process::Size::new(100, 100)).unwrap();
        let stdin = std::os::fd::AsFd::as_fd(&pts).try_clone_to_owned().unwrap();
        let command = pty_process::blocking::Command::from(command).stdin(stdin).stdout(stdout);
        let child = command.spawn(pts).unwrap();
        Self { child, terminal: File::from(OwnedFd::from(pty)) }
    }

    /// Reads until a question takes keys.
    #[track_caller]
    fn expect_question(&mut self) -> String {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        while !seen.ends_with(b"Allow? ") {
            let is_ready = poll(&mut [PollFd::new(&self.terminal, PollFlags::IN)], Some(&DEADLINE)).unwrap() == 1;
            let count = if is_ready { self.terminal.read(&mut buffer).unwrap_or(0) } else { 0 };
            assert!(count > 0, "no question comes: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    }

    /// Hangs up, and waits for the end of the program.
    #[track_caller]
    fn hang_up(self) -> Option<i32> {
        let Self { mut child, terminal } = self;
        drop(terminal);
        wait_for_end(&mut child)
    }
}

/// An agent that would write two files at once, each of which asks.
fn writer() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\nmodel: scripted:s.yaml\ntoolsets: [filesystem_cwd]\n---\nWrite.\n");
    let script = "\
- { round: 1, call: [{ write_file: { path: a.txt, content: x } }, { write_file: { path: b.txt, content: x } }] }
- { say: 'Done: {{ result }}' }
";
    sandbox.file("s.yaml", script);
    sandbox
}

fn written(sandbox: &Sandbox) -> [bool; 2] {
    ["a.txt", "b.txt"].map(|file| sandbox.path().join(file).exists())
}

/// A run whose line dies at its first question: its events and its result.
#[track_caller]
fn cut_off(sandbox: &Sandbox, flags: &[&str]) -> (Vec<Value>, Value) {
    let words = [&["run", "main.worker", "hi", "--json"], flags].concat();
    let path = sandbox.path().join("stdout");
    let mut line = Line::start(sandbox.command(&words, &[]), File::create(&path).unwrap());
    let seen = line.expect_question();
    assert!(seen.contains("1 of 2") || seen.contains("1/2"), "{seen}");
    let code = line.hang_up();
    let stdout = std::fs::read_to_string(&path).unwrap();
    let mut events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = events.pop().unwrap();
    assert_eq!((result["type"].as_str(), code), (Some("result"), Some(143)), "{result}");
    assert_eq!(result["exit_code"], 143);
    assert_eq!(written(sandbox), [false; 2]);
    (events, result)
}

#[test]
fn what_is_open_is_refused_if_the_run_is_not_kept() {
    let sandbox = writer();
    let (events, result) = cut_off(&sandbox, &["--ephemeral"]);
    assert_eq!(of_type(&events, "approval_asked").len(), 2);
    assert_eq!(of_type(&events, "tool_called").len(), 0, "{events:?}");
    assert_eq!(of_type(&events, "request_started").len(), 1, "no model hears of it");
    assert_eq!((&result["output"], &result["error"]["message"]), (&Value::Null, &"terminated".into()));
    let mut left: Vec<_> = std::fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".local", "main.worker", "s.yaml", "stdout"]);
    assert_eq!(sandbox.runs(), Vec::<String>::new(), "only what it cost is written down");
}

#[test]
fn what_is_open_waits_if_the_run_is_kept() {
    for flags in [&["--journal", JOURNAL][..], &[]] {
        let sandbox = writer();
        let (events, result) = cut_off(&sandbox, flags);
        assert_eq!(of_type(&events, "tool_called").len(), 0, "{events:?}");
        let stored = sandbox.runs().pop();
        let run = stored.as_deref().unwrap_or(JOURNAL);
        let hint = format!("`llm-do resume {run}` goes on where it stopped");
        assert_eq!((stored.is_none(), &result["error"]["hint"]), (flags.len() == 2, &hint.into()));
        let shown = Run::of(&sandbox, &["resume", run, "--show"]).answer();
        let ids: Vec<&str> =
            shown.split("waiting for approval (").skip(1).map(|rest| rest.split_once(')').unwrap().0).collect();
        assert_eq!(ids.len(), 2, "{shown}");
        let resumed = Run::of(&sandbox, &["resume", run, "--approve", ids[0], "--refuse", ids[1]]).ended();
        assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
        assert_eq!(written(&sandbox), [true, false], "{}", resumed.stderr);
    }
}

#[test]
fn a_run_whose_line_died_asks_again_on_another() {
    let sandbox = writer();
    cut_off(&sandbox, &["--journal", JOURNAL]);
    let mut line =
        Line::start(sandbox.command(&["resume", JOURNAL], &[]), File::create(sandbox.path().join("stdout")).unwrap());
    line.expect_question();
    assert_eq!(line.hang_up(), Some(143));
    assert_eq!(written(&sandbox), [false; 2]);
    let answer = Run::of(&sandbox, &["resume", JOURNAL, "--approve-all"]).ended();
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    assert_eq!(written(&sandbox), [true; 2]);
}
