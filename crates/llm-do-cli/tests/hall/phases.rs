//! SIGKILL in each phase of a launch: before trust nothing has happened, before the run nothing is kept but the trust that
//! was given, and what a journal knows is not asked again.

use std::fs::{File, OpenOptions};
use std::io::{PipeWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fake_llm::{FakeScript, InjectedFault, On, StallGate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::hostile::{HostileProject, JOURNAL};
use crate::support::wait;
use crate::terminal::{Elsewhere, Terminal};

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_mins(2);

/// `llm-do run clone --journal …` at a terminal, with its stdin held open by whoever gets its other end.
fn start(project: &HostileProject) -> (Terminal, PipeWriter) {
    let (stdin, held) = std::io::pipe().unwrap();
    let streams = Elsewhere { stdin: Some(stdin.into()), ..Elsewhere::default() };
    let command = project.command(&["run", "clone", "--journal", JOURNAL]);
    (Terminal::start_with(command, Terminal::ROWS, streams), held)
}

/// What is there now and was not before.
fn new_files(project: &HostileProject, before: &std::collections::BTreeSet<PathBuf>) -> Vec<PathBuf> {
    project.files().difference(before).cloned().collect()
}

fn is_state(path: &PathBuf) -> bool {
    [".local", ".local/state"].iter().any(|directory| *path == PathBuf::from(directory))
        || path.starts_with(".local/state/llm-do")
}

/// Its digest is remembered: nobody is asked a second time.
fn check_trusted(project: &HostileProject) {
    let mut command = project.command(&["check", "clone", "--json"]);
    let checked = wait(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    let checked: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(checked["trust"]["given"], true, "{checked}");
}

#[test]
fn a_launch_that_is_killed_at_the_question_of_trust_has_done_nothing() {
    let project = HostileProject::new();
    let before = project.files();
    let (terminal, mut held) = start(&project);
    held.write_all(b"What was piped").unwrap();
    terminal.expect("n no").expect_listening();
    terminal.kill();
    assert_eq!(new_files(&project, &before), Vec::<PathBuf>::new());
    assert_eq!(project.fake.requests().len(), 0);
}

#[test]
fn a_launch_that_is_killed_while_it_reads_stdin_has_kept_the_trust_that_was_given() {
    let project = HostileProject::new().without_python();
    let before = project.files();
    let (terminal, mut held) = start(&project);
    terminal.expect("n no").answer("y");
    held.write_all(b"The first half of ").unwrap();
    let began = Instant::now();
    while rustix::io::ioctl_fionread(&held).unwrap() > 0 {
        assert!(began.elapsed() < DEADLINE, "nobody reads stdin");
        std::thread::yield_now();
    }
    terminal.kill();
    let made = new_files(&project, &before);
    assert!(made.iter().all(is_state) && made.iter().any(|path| path.ends_with("trust")), "{made:?}");
    assert_eq!((project.markers(), project.fake.requests().len()), ([false; 3], 0));
    check_trusted(&project);
}

/// The end of a pipe that Python reads, as soon as it does.
fn reached_gate(project: &HostileProject) -> File {
    let began = Instant::now();
    loop {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        match options.open(project.path("gate")) {
            Ok(gate) => return gate,
            Err(_) if began.elapsed() < DEADLINE => std::thread::yield_now(),
            Err(error) => panic!("Python never came to the gate: {error}"),
        }
    }
}

#[test]
fn a_launch_that_is_killed_while_python_imports_has_begun_no_run() {
    let project = HostileProject::new();
    mknodat(CWD, project.path("gate"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let before = project.files();
    let (terminal, mut held) = start(&project);
    held.write_all(b"All that is said").unwrap();
    drop(held);
    terminal.expect("n no").answer("y");
    let gate = reached_gate(&project);
    terminal.kill();
    assert!(!project.path(JOURNAL).exists());
    assert_eq!((project.markers(), project.fake.requests().len()), ([true, false, false], 0));
    // What was imported does not outlive who imports it, though it hangs.
    let deadline = Timespec { tv_sec: DEADLINE.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&gate, PollFlags::empty())], Some(&deadline)).unwrap();
    assert_eq!(ended, 1, "Python goes on");
    let is_expected = |path: &PathBuf| is_state(path) || path.starts_with(".cache") || path.ends_with("python-marker");
    let made = new_files(&project, &before);
    assert!(made.iter().all(is_expected) && made.iter().any(|path| path.ends_with("trust")), "{made:?}");
}

#[test]
fn a_run_that_is_killed_while_its_model_is_asked_goes_on_from_its_journal() {
    let gates = [StallGate::new(), StallGate::new()];
    let stall = |gate: &StallGate| InjectedFault::StallBeforeHead(gate.clone());
    let script = FakeScript::new().fault(On::Request(1), stall(&gates[0])).fault(On::Request(3), stall(&gates[1]));
    let project = HostileProject::asking(script);
    let (terminal, mut held) = start(&project);
    held.write_all(b"Go on").unwrap();
    drop(held);
    terminal.expect("n no").answer("y");
    gates[0].wait_until_reached(1);
    terminal.kill();
    gates[0].wait_until_left(1);
    assert_eq!(project.markers(), [true, true, false], "it was trusted, and no model has answered");

    // Once more, behind the first answer.
    let resume = ["resume", JOURNAL, "-p", "--approve-all"];
    let mut resumed = project.command(&resume).spawn().unwrap();
    gates[1].wait_until_reached(1);
    resumed.kill().unwrap();
    resumed.wait().unwrap();
    gates[1].wait_until_left(1);
    assert_eq!(project.markers(), [true; 3]);
    std::fs::remove_file(project.path("shell-marker")).unwrap();

    let mut command = project.command(&resume);
    let ended = wait(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "harmed\n"), "{}", ended.stderr);
    assert_eq!(project.markers(), [true, true, false], "what was done is not done again");
    let asked = project.fake.requests();
    let heard = |index: usize| {
        let seen = asked[index].seen.as_ref().unwrap();
        (seen.messages[0].text(), seen.results().count())
    };
    let heard: Vec<(String, usize)> = (0..asked.len()).map(heard).collect();
    let said = |results| ("Go on".to_owned(), results);
    assert_eq!(heard, [said(0), said(0), said(1), said(1)], "only what was not answered is asked again");
    let again =
        wait(project.command(&resume).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    assert_eq!((again.stdout.as_str(), project.fake.requests().len()), ("harmed\n", 4));
}
