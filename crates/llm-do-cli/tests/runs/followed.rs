//! A run in another process: followed, cancelled, left alone.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use fake_llm::{FakeScript, InjectedFault, On, StallGate};
use rustix::process::{Pid, Signal, kill_process};

use crate::session::KEY;
use crate::support::wait_for_end;
use crate::{Desk, writes};

/// A run whose second request is not answered before the gate opens; edits need no answer.
fn stalled() -> (Desk, StallGate) {
    let gate = StallGate::new();
    let script = FakeScript::new().answer(|seen| Some(writes(seen))).accept_foreign_history();
    let desk = Desk::answering(script.fault(On::Request(2), InjectedFault::StallBeforeHead(gate.clone())));
    (desk, gate)
}

impl Desk {
    fn command(&self, arguments: &[&str]) -> Command {
        let url = self.fake.anthropic_url();
        self.sandbox.command(arguments, &[("ANTHROPIC_BASE_URL", &url), ("ANTHROPIC_API_KEY", KEY)])
    }

    /// A run that waits for the gate; its id.
    fn started(&self, gate: &StallGate) -> (Child, String) {
        let mut command = self.command(&["run", "desk", "write", "-p", "--approve-all"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        gate.wait_until_reached(1);
        (child, self.last())
    }

    fn follow(&self, id: &str) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut command = self.command(&["runs", "follow", id]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out)
    }
}

fn line(out: &mut BufReader<std::process::ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_run_is_followed_until_it_ends_and_its_exit_code_is_ours() {
    let (desk, gate) = stalled();
    let (mut run, id) = desk.started(&gate);
    assert_eq!(desk.states(), ["running"]);
    let refused = desk.refuses(&["runs", "rm", &id]);
    assert!(refused.starts_with("error: the run `RUN` is running\n"), "{refused}");
    let (mut follower, mut out) = desk.follow(&id);
    let told = line(&mut out);
    assert!(
        told.starts_with("main › write_file {\"content\":\"new\\n\"") && told.ends_with(": by a flag, done\n"),
        "{told}"
    );
    gate.release();
    assert!(line(&mut out).starts_with("Result: "));
    assert_eq!((wait_for_end(&mut follower), wait_for_end(&mut run)), (Some(0), Some(0)));
    let again = desk.says(&["runs", "follow", &id]);
    assert!(again.contains("write_file") && again.contains("Result: "), "a run that is over is told at once: {again}");
}

#[test]
fn ctrl_c_leaves_a_run_that_is_followed_alone() {
    let (desk, gate) = stalled();
    let (mut run, id) = desk.started(&gate);
    let (mut follower, mut out) = desk.follow(&id);
    line(&mut out);
    kill_process(Pid::from_child(&follower), Signal::INT).unwrap();
    assert_eq!(wait_for_end(&mut follower), Some(130));
    assert_eq!(desk.states(), ["running"]);
    gate.release();
    assert_eq!(wait_for_end(&mut run), Some(0));
}

#[test]
fn a_run_is_cancelled_from_elsewhere() {
    let (desk, gate) = stalled();
    let (mut run, id) = desk.started(&gate);
    let (mut follower, mut out) = desk.follow(&id);
    line(&mut out);
    let said = desk.says(&["runs", "cancel", &id]);
    assert_eq!(said, format!("the process that runs {id} was asked to end its turn\n"));
    assert_eq!((wait_for_end(&mut run), wait_for_end(&mut follower)), (Some(130), Some(130)));
    assert_eq!(desk.states(), ["stopped"]);
    let said = desk.says(&["runs", "cancel", &id]);
    assert_eq!(said, format!("{id} is stopped already, and no process runs it\n"));
}

/// Nobody waits for the next look: the step that follows is not taken.
#[test]
fn a_run_that_was_cancelled_takes_no_further_step() {
    for _ in 0..3 {
        let gate = StallGate::new();
        let script = FakeScript::new().answer(|seen| Some(writes(seen))).accept_foreign_history();
        let desk = Desk::answering(script.fault(On::Request(1), InjectedFault::StallBeforeHead(gate.clone())));
        let (mut run, id) = desk.started(&gate);
        desk.says(&["runs", "cancel", &id]);
        gate.release();
        assert_eq!(wait_for_end(&mut run), Some(130));
        assert_eq!(desk.fake.requests().len(), 1);
        assert!(!desk.sandbox.path().join("a.txt").exists());
        assert_eq!(desk.states(), ["stopped"]);
    }
}

#[test]
fn a_run_that_was_killed_died_and_following_it_says_so() {
    let (desk, gate) = stalled();
    let (mut run, id) = desk.started(&gate);
    let (mut follower, mut out) = desk.follow(&id);
    line(&mut out);
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(wait_for_end(&mut follower), Some(1));
    assert_eq!(desk.states(), ["died"]);
}

#[test]
fn a_run_that_nobody_runs_is_marked_as_stopped_and_can_go_on() {
    let desk = Desk::new();
    let run = desk.waiting();
    let ended = desk.llm_do(&["runs", "follow", &run]).ended();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stdout.starts_with("waiting for approval ("), "{ended:?}");
    let said = desk.says(&["runs", "cancel", &run]);
    assert!(said.starts_with(&format!("no process runs {run}: it is marked as stopped")), "{said}");
    assert_eq!(desk.states(), ["stopped"]);
    std::fs::remove_file(desk.sandbox.state().join("runs/index")).unwrap();
    assert_eq!(desk.states(), ["stopped"], "its record says it too");
    let answer = desk.llm_do(&["resume", &run, "-p", "--approve-all"]).ended();
    assert!(answer.stdout.starts_with("Result: "), "{answer:?}");
    let done = desk.refuses(&["runs", "cancel", &run]);
    assert!(done.starts_with("error: the run `RUN` is done\n"), "{done}");
}
