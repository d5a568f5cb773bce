//! Kills at any moment of runs and chats that are kept: nothing that was answered is asked again, no turn is lost, nothing
//! happens twice, and the list of runs says what became of them.
//!
//! `LLM_DO_KILLS` says how many deaths are survived; there are twenty of each without it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, its helpers too, and tells its counts"
)]

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, Role, SeenMessage, SeenRequest};
use serde_json::{Value, json};
use support::Sandbox;

const WORKER: &str =
    "---\nname: main\nmodel: anthropic:m\ntoolsets: [filesystem_cwd]\napproval: { edit_file: allow }\n---\nx\n";
const TURNS: usize = 4;

fn kills() -> usize {
    std::env::var("LLM_DO_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

/// Each turn adds its own line to a file, by an edit that would show if it happened twice, and then says so.
fn reply(seen: &SeenRequest) -> FakeReply {
    let said: Vec<String> =
        seen.messages.iter().filter(|message| message.role == Role::User).map(SeenMessage::text).collect();
    let line = said.iter().rev().find(|text| text.starts_with("turn ")).cloned().unwrap_or_default();
    let calls = seen.messages.iter().flat_map(SeenMessage::calls).count();
    let turns = said.iter().filter(|text| text.starts_with("turn ")).count();
    if calls < turns {
        let call = FakeCall::new("edit_file", json!({"path": "log", "old": "END", "new": format!("{line}\nEND")}));
        return FakeReply::calls([call.with_id(&format!("id_{}", line.replace(' ', "_")))]);
    }
    FakeReply::text(&format!("done with {line}"))
}

struct Desk {
    sandbox: Sandbox,
    fake: FakeLlm,
}

impl Desk {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.file("main.worker", WORKER).file("log", "END");
        let fake = FakeLlm::start(FakeScript::new().answer(|seen| Some(reply(seen))).accept_foreign_history());
        Self { sandbox, fake }
    }

    /// `llm-do …` with these lines on its stdin, killed after a time if one is given.
    fn run(&self, arguments: &[&str], lines: &[String], killed: Option<Duration>) -> Output {
        let variables = [("ANTHROPIC_BASE_URL", self.fake.anthropic_url()), ("ANTHROPIC_API_KEY", "k".to_owned())];
        let mut command = self.sandbox.command(arguments, &[]);
        command.envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let text = if lines.is_empty() { String::new() } else { lines.join("\n") + "\n" };
        let fed = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        if let Some(time) = killed {
            std::thread::sleep(time);
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        // A reader that was killed takes no more.
        let _ = fed.join().unwrap();
        output
    }

    /// The one run that is kept, as `llm-do runs` lists it.
    fn listed(&self) -> Option<Value> {
        let listed = self.sandbox.run(&["runs", "--json"]);
        assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
        let lines: Vec<Value> = listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() <= 1, "there is one run: {lines:?}");
        lines.into_iter().next()
    }

    fn journal(&self) -> String {
        let runs = fs::read_dir(self.sandbox.state().join("runs")).into_iter().flatten().flatten();
        let journals = runs.map(|run| run.path().join("journal")).filter(|path| path.is_file());
        // A process that was killed before its first line left an empty one.
        let bytes = journals.map(|path| fs::read(path).unwrap()).max_by_key(Vec::len).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect()
    }

    fn recorded(&self, kind: &str) -> usize {
        let done = format!("\"kind\":\"{kind}\",\"state\":\"done\"");
        self.journal().lines().filter(|line| line.contains(&done)).count()
    }

    /// How many turns have their input in the record.
    fn turns_begun(&self) -> usize {
        let text = self.journal();
        let begun: BTreeSet<usize> =
            (0..TURNS).filter(|turn| text.contains(&format!("\"main/t{turn}/input\""))).collect();
        begun.len()
    }

    /// Each effect happened once, or at most once where a note says that it is in doubt.
    fn check(&self, turns: usize, notes: &str) {
        let log = fs::read_to_string(self.sandbox.path().join("log")).unwrap();
        for turn in 1..=turns {
            let line = format!("turn {turn}");
            let count = log.lines().filter(|other| **other == line).count();
            let is_in_doubt =
                notes.contains("it may or may not have happened") && notes.contains(&format!("│ {line}\n"));
            assert!(count == 1 || (count == 0 && is_in_doubt), "`{line}` is there {count} times:\n{log}\n{notes}");
        }
        let last = self.fake.requests().into_iter().next_back().and_then(|last| last.seen).unwrap();
        let said: Vec<String> =
            last.messages.iter().filter(|message| message.role == Role::User).map(SeenMessage::text).collect();
        let said: Vec<&String> = said.iter().filter(|text| text.starts_with("turn ")).collect();
        let expected: Vec<String> = (1..=turns).map(|turn| format!("turn {turn}")).collect();
        assert_eq!(said, expected.iter().collect::<Vec<_>>(), "every turn is in the conversation once");
        assert_eq!(self.recorded("model"), 2 * turns, "every request is recorded once");
    }
}

/// Kills a run or a chat several times and goes on with it. Gives how many deaths it survived.
fn survive(is_chat: bool, whole_time: Duration) -> usize {
    let desk = Desk::new();
    let turns = if is_chat { TURNS } else { 1 };
    let lives = fastrand::usize(1..5);
    let (mut deaths, mut notes) = (0, String::new());
    loop {
        let state = desk.listed().map(|line| line["state"].as_str().unwrap().to_owned());
        if deaths > 0 {
            // A process that was killed before it had made its record left nothing.
            assert!(matches!(state.as_deref(), None | Some("died" | "done" | "stopped")), "{state:?}");
        }
        let begun = desk.turns_begun();
        let lines: Vec<String> = (begun + 1..=turns).map(|turn| format!("turn {turn}")).collect();
        let arguments: &[&str] = match (is_chat, state.is_some()) {
            (true, false) => &["chat", "."],
            (true, true) => &["chat", ".", "--continue"],
            (false, false) => &["run", ".", "turn 1", "--no-stdin"],
            (false, true) => &["resume", "--last"],
        };
        let killed = (deaths < lives).then(|| whole_time.mul_f64(fastrand::f64() * 1.2));
        let output = desk.run(arguments, &lines, killed);
        let (asked, recorded) = (desk.fake.requests().len(), desk.recorded("model"));
        // All together: the provider may come to the last request of a process that was killed long after its death.
        let under_way = deaths + usize::from(output.status.code().is_none());
        assert!(
            asked <= recorded + under_way,
            "only what was under way is asked again: {asked} for {recorded}, with {under_way} deaths"
        );
        notes.push_str(&String::from_utf8_lossy(&output.stderr));
        match output.status.code() {
            None => deaths += 1,
            Some(0) if desk.turns_begun() == turns => break,
            Some(0) => {}
            Some(code) => panic!("it ended with {code}: {notes}"),
        }
    }
    assert_eq!(desk.listed().unwrap()["state"], "done");
    desk.check(turns, &notes);
    deaths
}

fn survive_all(is_chat: bool) {
    let whole = Desk::new();
    let turns = if is_chat { TURNS } else { 1 };
    let lines: Vec<String> = (1..=turns).map(|turn| format!("turn {turn}")).collect();
    let started = Instant::now();
    let arguments: &[&str] = if is_chat { &["chat", "."] } else { &["run", ".", "turn 1", "--no-stdin"] };
    let output = whole.run(arguments, &lines, None);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let whole_time = started.elapsed();
    whole.check(turns, "");
    let (mut deaths, mut lives) = (0, 0);
    while deaths < kills() {
        deaths += survive(is_chat, whole_time);
        lives += 1;
    }
    println!("{deaths} kills of {lives} {}", if is_chat { "chats" } else { "runs" });
}

#[test]
fn a_kept_run_that_is_killed_goes_on_and_does_nothing_twice() {
    survive_all(false);
}

#[test]
fn a_kept_chat_that_is_killed_goes_on_with_every_turn() {
    survive_all(true);
}
