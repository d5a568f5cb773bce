//! Readers that do not read, and readers that have gone: neither keeps a run from ending when it is told to, and nobody
//! pays for what nobody can read.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fake_llm::{At, Cut, FakeCall, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::sandbox;
use crate::session::{KEY, Run};
use crate::support::{Sandbox, wait_for_end};

/// A provider that says more than a pipe holds, and never comes to the end of its answer.
fn endless() -> (FakeLlm, StallGate) {
    let gate = StallGate::new();
    let reply = FakeReply::text(&"word ".repeat(100_000)).in_deltas(200);
    let fault = InjectedFault::Stall { at: At::Percent(95), gate: gate.clone() };
    (FakeLlm::start(FakeScript::new().otherwise(reply).fault(On::Every, fault)), gate)
}

fn asking(sandbox: &Sandbox, fake: &FakeLlm, arguments: &[&str]) -> Command {
    let url = fake.anthropic_url();
    sandbox.command(arguments, &[("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)])
}

const RUN: [&str; 5] = ["run", "main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"];

/// Which stream nobody reads, and what it is.
#[derive(Clone, Copy, Debug)]
enum Unread {
    Stdout,
    Stderr,
    /// A terminal whose output somebody has stopped.
    Terminal,
}

impl Unread {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Stdout, "--json"), (Self::Stdout, "-q"), (Self::Stderr, "-vv"), (Self::Terminal, "--headless")];

    /// Starts a program; what is returned holds the other end of what is not read.
    fn start(self, mut command: Command) -> (Child, Vec<File>) {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut held = Vec::new();
        match self {
            Self::Stdout => drop(command.stdout(pipe(&mut held))),
            Self::Stderr => drop(command.stderr(pipe(&mut held))),
            Self::Terminal => {
                let (pty, pts) = pty_process::blocking::open().unwrap();
                let end = || Stdio::from(pts.as_fd().try_clone_to_owned().unwrap());
                command.stdout(end()).stderr(end());
                held.push(File::from(OwnedFd::from(pty)));
            }
        }
        (command.spawn().unwrap(), held)
    }
}

fn pipe(held: &mut Vec<File>) -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    held.push(File::from(OwnedFd::from(reader)));
    Stdio::from(writer)
}

#[test]
fn one_signal_ends_a_run_whose_output_nobody_reads() {
    for (unread, flag) in Unread::ALL {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 143)] {
            let (sandbox, (fake, gate)) = (sandbox("", ""), endless());
            let (mut child, held) = unread.start(asking(&sandbox, &fake, &[&RUN[..], &[flag]].concat()));
            gate.wait_until_reached(1);
            kill_process(Pid::from_child(&child), signal).unwrap();
            gate.wait_until_left(1);
            assert_eq!(wait_for_end(&mut child), Some(code), "{unread:?} {flag} {signal:?}");
            drop(held);
        }
    }
}

#[test]
fn the_clock_ends_a_run_whose_output_nobody_reads() {
    for (unread, flag) in Unread::ALL {
        let (sandbox, (fake, gate)) = (sandbox("", ""), endless());
        let arguments = [&RUN[..], &[flag, "--timeout", "0.5"]].concat();
        let (mut child, held) = unread.start(asking(&sandbox, &fake, &arguments));
        gate.wait_until_left(1);
        assert_eq!(wait_for_end(&mut child), Some(124), "{unread:?} {flag}");
        drop(held);
    }
}

#[test]
fn a_pipe_for_the_answer_that_nobody_opens_holds_neither_signals_nor_the_clock() {
    for (flags, signal, code) in [(&["--timeout", "1"][..], None, 124), (&[], Some(Signal::TERM), 143)] {
        let sandbox = sandbox("", "- say: the answer");
        rustix::fs::mkfifoat(rustix::fs::CWD, sandbox.path().join("pipe"), 0o600.into()).unwrap();
        let run = ["run", "main.worker", "hi", "-m", "scripted:script.yaml", "-o", "pipe", "--json"];
        let mut command = sandbox.command(&[&run[..], flags].concat(), &[]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        lines.find(|line| line.contains("\"call_finished\"")).unwrap();
        if let Some(signal) = signal {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        let result: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!((&result["output"], &result["exit_code"]), (&json!("the answer"), &json!(code)), "it was paid for");
        assert_eq!(wait_for_end(&mut child), Some(code), "{flags:?}");
    }
}

/// A pipe whose reader can be taken away.
fn with_reader(command: &mut Command) -> (Child, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    // The command keeps the other end of the pipe until it is another one.
    command.stdout(Stdio::null());
    (child, reader)
}

/// Waits until so much waits to be read.
#[track_caller]
fn wait_for_bytes(reader: &std::io::PipeReader, count: u64) {
    let began = Instant::now();
    while rustix::io::ioctl_fionread(reader).unwrap() < count {
        assert!(began.elapsed() < Duration::from_mins(1), "it says too little");
        std::thread::yield_now();
    }
}

#[test]
fn a_run_stops_when_its_reader_has_gone_and_can_be_resumed() {
    for format in ["text", "json", "stream-json"] {
        let (sandbox, (fake, gate)) = (sandbox("", ""), endless());
        let flags = ["--output-format", format, "--journal", "run.journal"];
        let mut command = asking(&sandbox, &fake, &[&RUN[..], &flags].concat());
        let (child, reader) = with_reader(&mut command);
        gate.wait_until_reached(1);
        drop(reader);
        gate.wait_until_left(1);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(141), "{format}: {said}");
        assert!(said.contains("error: nobody reads stdout any more\n"), "{format}: {said}");
        assert!(said.contains("hint: `llm-do resume run.journal` goes on where it stopped\n"), "{format}: {said}");
        gate.release();
        let resumed = Run::of(&sandbox, &["resume", "run.journal"]).asking(&fake).ended();
        assert_eq!((resumed.code, resumed.stdout.len()), (Some(0), 500_001), "{}", resumed.stderr);
    }
}

/// Whoever keeps the answer in a file wants it whole, whoever reads along.
#[test]
fn a_run_whose_answer_goes_into_a_file_goes_on_without_a_reader() {
    let sandbox = sandbox("", "- say: the answer");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let arguments = ["run", "main.worker", "hi", "-m", "scripted:script.yaml", "-o", "answer.txt"];
    let output = sandbox.command(&arguments, &[]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(sandbox.path().join("answer.txt")).unwrap(), "the answer\n");
}

/// With `--stream` a pipe gets the words as they come, and what it got is not asked for again.
#[test]
fn an_answer_streams_into_a_pipe_and_is_not_begun_again() {
    let sandbox = sandbox("", "");
    let reply = || FakeReply::text(&"word ".repeat(100)).in_deltas(50);
    let gate = StallGate::new();
    let stall = InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    let fake = FakeLlm::start(FakeScript::new().otherwise(reply()).fault(On::Every, stall));
    let mut command = asking(&sandbox, &fake, &[&RUN[..], &["--stream"]].concat());
    let (child, reader) = with_reader(&mut command);
    wait_for_bytes(&reader, 20);
    gate.wait_until_reached(1);
    drop(reader);
    gate.wait_until_left(1);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(141), "as `| head -c 20` leaves it");
    let cut = InjectedFault::cut(At::Percent(60), Cut::Eof);
    let fake = FakeLlm::start(FakeScript::new().otherwise(reply()).fault(On::Every, cut));
    let mut command = asking(&sandbox, &fake, &[&RUN[..], &["--stream"]].concat());
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let (said, told) = (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert_eq!((output.status.code(), fake.requests().len()), (Some(3), 1), "{said}");
    assert!(told.starts_with("word word word") && said.contains("the connection ended early, asked once"), "{said}");
}

#[test]
fn a_reader_that_left_before_the_run_costs_no_request() {
    let (sandbox, fake) = (sandbox("", ""), FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("Hi."))));
    let mut command = asking(&sandbox, &fake, &RUN);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ended.status.code(), Some(141));
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn a_chat_and_a_server_stop_when_their_reader_has_gone() {
    let (sandbox, (fake, gate)) = (sandbox("", ""), endless());
    let chat = ["chat", "main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"];
    let mut command = asking(&sandbox, &fake, &chat);
    let (child, reader) = with_reader(command.stdin(Stdio::piped()));
    gate.wait_until_reached(1);
    drop(reader);
    gate.wait_until_left(1);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(141));

    let mut command = asking(&sandbox, &fake, &["serve", "--stdio"]);
    let (mut child, reader) = with_reader(command.stdin(Stdio::piped()));
    let open = json!({"id": 1, "method": "open", "params": {"project": "main.worker", "scope": 1,
        "model": "anthropic:claude-haiku-4-5"}});
    let turn = json!({"id": 2, "method": "turn", "params": {"scope": 1, "input": "x"}});
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{open}\n").as_bytes()).unwrap();
    let mut first = String::new();
    let mut reader = std::io::BufReader::new(reader);
    std::io::BufRead::read_line(&mut reader, &mut first).unwrap();
    std::io::Write::write_all(&mut stdin, format!("{turn}\n").as_bytes()).unwrap();
    gate.wait_until_reached(2);
    drop(reader);
    gate.wait_until_left(2);
    assert_eq!(wait_for_end(&mut child), Some(141));
    drop(stdin);
}

#[test]
fn a_reader_of_stderr_that_has_gone_changes_nothing() {
    let sandbox = sandbox("", "- say: the answer");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = sandbox.command(&["run", "main.worker", "hi", "-m", "scripted:script.yaml", "-vv"], &[]);
    let output = command.stdout(Stdio::piped()).stderr(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"the answer\n"[..]));
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_a_reader_that_read_enough_is_none() {
    let sandbox = sandbox("", "- say: the answer");
    for arguments in [&["models"][..], &["run", "main.worker", "hi", "-m", "scripted:script.yaml"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = sandbox.command(arguments, &[]).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("error: the answer could not be written: No space left on device"), "{said}");
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = sandbox.command(&["models"], &[]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// `>&-`, which must not look like `> /dev/null`, with whatever else is closed.
#[test]
fn a_stdout_that_is_closed_takes_no_answer() {
    let sandbox = sandbox("", "- say: the answer");
    for arguments in [&["models"][..], &["run", "main.worker", "hi", "-m", "scripted:script.yaml"]] {
        for (closed, code, is_told) in [
            (">&-", 1, true),
            ("<&- >&-", 1, true),
            (">&- 2>&-", 1, false),
            ("<&- >&- 2>&-", 1, false),
            ("> /dev/null", 0, false),
            ("1<> /dev/null", 0, false),
        ] {
            let program = sandbox.command(arguments, &[]);
            let mut command = sandbox.command(&[], &[]);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("exec \"$@\" {closed}")).arg("sh").arg(program.get_program()).args(arguments);
            shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            shell.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
            command.stdin(Stdio::null());
            let output = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{closed} {arguments:?}: {said}");
            assert_eq!(said.contains("error: the answer could not be written"), is_told, "{closed}: {said}");
        }
    }
}

/// A pipe that its maker left in the mode for event loops.
#[test]
fn a_stream_that_does_not_block_is_written_to_its_end() {
    let sandbox = sandbox("", &format!("- say: {}\n", "word ".repeat(60_000)));
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::WRONLY).unwrap();
    let mut command = sandbox.command(&["run", "main.worker", "hi", "-m", "scripted:script.yaml"], &[]);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    command.stdout(Stdio::null());
    wait_for_bytes(&reader, 60_000);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut reader, &mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.len()), (Some(0), 300_000));
}

/// More than is kept for a reader: the run stands still until somebody reads, and then goes on.
#[test]
fn a_run_waits_for_its_reader_and_loses_nothing() {
    const ROUNDS: usize = 30;
    let sandbox = sandbox("toolsets: [filesystem_cwd]", "");
    let words = "w".repeat(300_000);
    let fake = FakeLlm::start(FakeScript::new().answer(move |seen| {
        let is_last = seen.results().count() == ROUNDS;
        let more = || FakeReply::text(&words).and_calls([FakeCall::new("list_files", json!({}))]);
        Some(if is_last { FakeReply::text("done") } else { more() })
    }));
    let mut command = asking(&sandbox, &fake, &[&RUN[..], &["--json"]].concat());
    let (mut child, reader) = with_reader(&mut command);
    wait_for_bytes(&reader, 60_000);
    let last = BufReader::new(reader).lines().map(Result::unwrap).last().unwrap();
    let result: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&result["output"], wait_for_end(&mut child)), (&json!("done"), Some(0)));
    assert_eq!(result["usage"]["total"]["requests"], ROUNDS + 1);
}

#[test]
fn a_client_that_does_not_read_holds_no_signal() {
    let (sandbox, (fake, gate)) = (sandbox("", ""), endless());
    let mut command = asking(&sandbox, &fake, &["serve", "--stdio"]);
    let (mut child, reader) = with_reader(command.stdin(Stdio::piped()));
    let open = json!({"id": 1, "method": "open", "params": {"project": "main.worker", "scope": 1,
        "model": "anthropic:claude-haiku-4-5"}});
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{open}\n").as_bytes()).unwrap();
    wait_for_bytes(&reader, 1);
    let turn = json!({"id": 2, "method": "turn", "params": {"scope": 1, "input": "x"}});
    std::io::Write::write_all(&mut stdin, format!("{turn}\n").as_bytes()).unwrap();
    gate.wait_until_reached(1);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    gate.wait_until_left(1);
    assert_eq!(wait_for_end(&mut child), Some(143));
    drop((stdin, reader));
}
