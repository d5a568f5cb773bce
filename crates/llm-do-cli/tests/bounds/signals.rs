//! Signals are heard whatever the program is busy with: here it waits for a reader that does not read.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Sandbox;
use crate::{SCRIPTED, sandbox};

fn talkative() -> Sandbox {
    sandbox("", &format!("- say: {}\n", "word ".repeat(60_000)))
}

/// Waits until the program fills a pipe that nobody reads.
fn blocked(command: &mut Command) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = child.stdout.as_ref().unwrap();
    let began = Instant::now();
    while rustix::io::ioctl_fionread(stdout).unwrap() < 60_000 {
        assert!(began.elapsed() < Duration::from_mins(1), "it says too little");
        std::thread::yield_now();
    }
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn the_second_signal_ends_a_program_that_nobody_reads() {
    for (first, second, code) in [
        (Signal::TERM, Signal::TERM, 143),
        (Signal::INT, Signal::INT, 130),
        (Signal::HUP, Signal::TERM, 143),
        (Signal::HUP, Signal::HUP, 143),
    ] {
        let sandbox = talkative();
        let mut child = blocked(&mut sandbox.command(&[&["run"], &SCRIPTED[..], &["--json"]].concat(), &[]));
        send(&child, first);
        let began = Instant::now();
        // One that was not taken yet is the same as the next of its kind: it is sent until it was heard.
        let status = loop {
            send(&child, second);
            std::thread::yield_now();
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            // It is a second; the rest is for machines with other things to do.
            assert!(began.elapsed() < Duration::from_mins(1), "{first:?}, {second:?}");
        };
        assert_eq!(status.code(), Some(code), "{status}");
    }
}

#[test]
fn one_signal_leaves_a_reader_the_time_that_it_needs() {
    let sandbox = talkative();
    let mut child = blocked(&mut sandbox.command(&[&["run"], &SCRIPTED[..], &["--json"]].concat(), &[]));
    send(&child, Signal::TERM);
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    let result: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(result["type"], "result", "the result is whole");
}
