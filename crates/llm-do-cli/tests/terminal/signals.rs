//! Signals and the clock: the run ends, says what it took, and leaves nothing behind.

use std::process::Stdio;

use fake_llm::{At, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{is_summary, wait_for_all, without_run_ids};
use crate::terminal::{Elsewhere, Terminal, comparable};
use crate::{command, run, sandbox};

/// Whoever ends a question: a key that the terminal makes a signal of, or another process.
const ENDS: [(Option<&str>, Signal, Option<i32>); 5] = [
    (Some("\u{3}"), Signal::INT, Some(130)),
    (Some("\u{1c}"), Signal::QUIT, None),
    (None, Signal::QUIT, None),
    (None, Signal::TERM, Some(143)),
    (None, Signal::HUP, Some(143)),
];

/// A provider that never comes to the end of its answer.
fn stalled() -> (FakeLlm, StallGate) {
    let gate = StallGate::new();
    let reply = FakeReply::text("Once upon a time, there was").in_deltas(4);
    let fault = InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    (FakeLlm::start(FakeScript::new().otherwise(reply).fault(On::Every, fault)), gate)
}

#[test]
fn ctrl_c_cancels_the_run_and_the_summary_is_still_said() {
    let (sandbox, (fake, gate)) = (sandbox(), stalled());
    let terminal = run(&sandbox, &fake, &[]);
    terminal.expect("Once upon");
    terminal.press("\u{3}");
    gate.wait_until_left(1);
    let left = terminal.left();
    assert_eq!(left.code, Some(130), "{}", left.screen);
    let screen = comparable(left.screen.trim_end());
    let last: Vec<&str> = screen.lines().rev().take(3).collect();
    assert_eq!(last[..2], ["hint: `llm-do resume RUN` goes on where it stopped", "error: interrupted"], "{screen}");
    assert!(is_summary(last[2]), "{screen}");
}

#[test]
fn sigterm_ends_the_run_with_its_own_code() {
    for (signal, code, said) in
        [(Signal::TERM, 143, "terminated"), (Signal::HUP, 143, "terminated"), (Signal::INT, 130, "interrupted")]
    {
        let (sandbox, (fake, gate)) = (sandbox(), stalled());
        let arguments = ["run", "main.worker", "hi", "-m", "anthropic:claude-haiku-4-5", "--json"];
        let mut command = command(&sandbox, &fake, &arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        gate.wait_until_reached(1);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        gate.wait_until_left(1);
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        let last = format!("error: {said}\nhint: `llm-do resume RUN` goes on where it stopped\n");
        assert!(without_run_ids(&stderr).ends_with(&last), "{stderr}");
        let result: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        assert_eq!((&result["type"], &result["exit_code"]), (&Value::from("result"), &Value::from(code)));
        assert_eq!(result["messages"][0]["role"], "user", "what was said so far is there");
        assert_eq!(result["trace"]["error"], "cancelled");
    }
}

#[test]
fn a_timeout_is_its_own_exit_code() {
    let (sandbox, (fake, gate)) = (sandbox(), stalled());
    let arguments = ["run", "main.worker", "hi", "-m", "anthropic:claude-haiku-4-5", "--timeout", "0.2"];
    let mut command = command(&sandbox, &fake, &arguments);
    let ended = wait_for_all(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    gate.wait_until_left(1);
    let stderr = without_run_ids(&ended.stderr);
    let lines: Vec<&str> = stderr.lines().collect();
    // What was said until then is printed, and marked as what it is.
    assert_eq!((ended.code, lines.len()), (Some(124), 3), "{}", ended.stderr);
    assert!(ended.stdout.starts_with("Once") && ended.stdout.ends_with("[unfinished]\n"), "{}", ended.stdout);
    assert!(is_summary(lines[0]), "{}", ended.stderr);
    let hint = "hint: `--timeout` allows more; `llm-do resume RUN` goes on where it stopped";
    assert_eq!(lines[1..], ["error: timed out after 0.2 s", hint]);
}

#[test]
fn the_second_signal_restores_a_terminal_whose_program_waits_for_a_reader() {
    let sandbox = sandbox();
    sandbox.file("script.yaml", &format!("- say: {}\n", "word ".repeat(60_000)));
    let (unread, writer) = std::io::pipe().unwrap();
    let command = sandbox.command(&["chat", "main.worker", "-m", "scripted:script.yaml", "--json"], &[]);
    let streams = Elsewhere { stdout: Some(writer.into()), ..Elsewhere::default() };
    let terminal = Terminal::start_with(command, Terminal::ROWS, streams);
    terminal.expect(">").press("hello\r");
    while rustix::io::ioctl_fionread(&unread).unwrap() < 60_000 {
        std::thread::yield_now();
    }
    assert!(!terminal.is_as_before(), "what is typed ahead is not shown");
    // One that was not taken yet is the same as the next of its kind: it is sent until it was heard.
    while !terminal.is_as_before() {
        terminal.send(Signal::TERM);
        std::thread::yield_now();
    }
    // The first signal may have given it back already: the program then waits for the reader, and for another signal.
    terminal.send(Signal::TERM);
    assert_eq!(terminal.left().code, Some(143));
}

#[test]
fn whatever_ends_a_question_leaves_the_terminal_as_it_was() {
    let writer = "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nWrite.\n";
    let script = "- { round: 1, call: { write_file: { path: out.txt, content: x } } }\n- say: done\n";
    for is_trusted in [true, false] {
        for (key, signal, code) in ENDS {
            let sandbox = sandbox();
            sandbox.file("main.worker", writer).file("script.yaml", script);
            sandbox.file(
                "project.json",
                r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
                "toolsets": {"hub": {"mcp": {"command": "true"}}}}"#,
            );
            let mut command = sandbox.command(&["run", ".", "hi", "-m", "scripted:script.yaml"], &[]);
            if !is_trusted {
                command.env_remove("LLM_DO_TRUST");
            }
            let terminal = Terminal::start(command);
            terminal.expect_listening();
            assert!(!terminal.is_as_before(), "single keys are read");
            match key {
                Some(key) => terminal.press(key),
                None => terminal.send(signal),
            };
            let left = terminal.left();
            assert_eq!((left.code, left.signal.is_some()), (code, code.is_none()), "{signal:?}: {}", left.screen);
        }
    }
}
