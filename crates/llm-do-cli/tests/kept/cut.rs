//! A turn that was cut off by `kill -9`: it is finished first when its chat goes on, unless the project has changed meanwhile.

use std::io::Write as _;
use std::process::Stdio;

use fake_llm::{FakeLlm, FakeReply, FakeScript, InjectedFault, On, SeenMessage, SeenRequest, StallGate};

use crate::session::{KEY, Run};
use crate::support::{Ended, Sandbox};
use crate::terminal::Terminal;
use crate::{journal, listed};

fn worker(text: &str) -> String {
    format!("---\nname: main\nmodel: anthropic:m\n---\n{text}\n")
}

/// A chat that was killed in the middle of its second turn, and the provider that had not answered yet.
struct CutChat {
    sandbox: Sandbox,
    fake: FakeLlm,
    run: String,
}

impl CutChat {
    fn new(flags: &[&str]) -> Self {
        let (sandbox, gate) = (Sandbox::new().told(), StallGate::new());
        sandbox.file("main.worker", &worker("Answer."));
        let answer = |seen: &SeenRequest| Some(FakeReply::text(&format!("heard {}", seen.last_user_text())));
        let fault = InjectedFault::StallBeforeHead(gate.clone());
        let fake = FakeLlm::start(FakeScript::new().answer(answer).fault(On::Request(2), fault));
        let variables = [("ANTHROPIC_BASE_URL", fake.anthropic_url()), ("ANTHROPIC_API_KEY", KEY.to_owned())];
        let mut command = sandbox.command(&[&["chat", "main.worker"], flags].concat(), &[]);
        command.envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.as_ref().unwrap().write_all(b"one\ntwo\n").unwrap();
        gate.wait_until_reached(1);
        child.kill().unwrap();
        child.wait_with_output().unwrap();
        gate.wait_until_left(1);
        let run = sandbox.runs().pop().unwrap_or_default();
        Self { sandbox, fake, run }
    }

    fn go_on(&self, flags: &[&str]) -> Ended {
        let arguments = [&["chat", "main.worker", "--continue"], flags].concat();
        Run::of(&self.sandbox, &arguments).asking(&self.fake).hearing("three\n").ended()
    }

    /// What was told to the model last, oldest first.
    fn told(&self) -> Vec<String> {
        let asked = self.fake.requests();
        assert_eq!(self.fake.violations(), []);
        asked.last().unwrap().seen.as_ref().unwrap().messages.iter().map(SeenMessage::text).collect()
    }
}

const WHOLE: [&str; 5] = ["one", "heard one", "two", "heard two", "three"];
const SHOWN: &str = "(1 turn so far; the last one:)\n> one\nheard one\n";

#[test]
fn a_turn_that_was_cut_off_is_finished_first() {
    let chat = CutChat::new(&[]);
    let ended = chat.go_on(&[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "heard two\nheard three\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr, SHOWN);
    assert_eq!(chat.told(), WHOLE);
    assert_eq!(chat.fake.requests().len(), 4, "what was answered is not asked again");
    assert_eq!(listed(&chat.sandbox, &chat.run).last().unwrap()["state"], "done");
}

#[test]
fn resume_finishes_the_turn_and_nothing_else() {
    let chat = CutChat::new(&[]);
    let resumed = Run::of(&chat.sandbox, &["resume", &chat.run]).asking(&chat.fake).answer();
    assert_eq!(resumed, "heard two\n");
    assert_eq!(chat.go_on(&[]).stdout, "heard three\n");
    assert_eq!(chat.told(), WHOLE);
}

#[test]
fn a_chat_in_a_file_is_finished_from_it() {
    let chat = CutChat::new(&["--journal", "talk.journal"]);
    let resumed = Run::of(&chat.sandbox, &["resume", "talk.journal"]).asking(&chat.fake).answer();
    assert_eq!((resumed.as_str(), chat.fake.requests().len()), ("heard two\n", 3));
}

#[test]
fn with_another_project_it_is_left_out_and_that_is_said() {
    let chat = CutChat::new(&[]);
    chat.sandbox.file("main.worker", &worker("Answer well."));
    let changed = Run::of(&chat.sandbox, &["resume", &chat.run]).asking(&chat.fake).failure(2);
    assert!(changed.starts_with("error: the project has changed since the run began: main.worker"), "{changed}");
    let ended = chat.go_on(&[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "heard three\n"), "{}", ended.stderr);
    let note = "note: the project has changed since the last turn: main.worker has changed\n";
    let left_out = "note: the last turn was not finished, and the project has changed since: it is left out. `--force` \
                    finishes it with the project of today\n";
    assert_eq!(ended.stderr, format!("{note}{SHOWN}{left_out}"));
    assert_eq!(chat.told(), ["one", "heard one", "three"]);
    // It was given up then, and does not come back.
    assert_eq!(chat.go_on(&["--force"]).stdout, "heard three\n");
    assert_eq!(chat.told(), ["one", "heard one", "three", "heard three", "three"]);
}

#[test]
fn with_another_project_it_is_finished_by_force() {
    let chat = CutChat::new(&[]);
    chat.sandbox.file("main.worker", &worker("Answer well."));
    let ended = chat.go_on(&["--force"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "heard two\nheard three\n"), "{}", ended.stderr);
    assert_eq!(chat.told(), WHOLE);
}

#[test]
fn a_person_decides_what_becomes_of_it() {
    for (key, prompts) in [("y", "heard two\n> "), ("n", "leave it out\n> ")] {
        let chat = CutChat::new(&[]);
        let variables = [("ANTHROPIC_BASE_URL", chat.fake.anthropic_url()), ("ANTHROPIC_API_KEY", KEY.to_owned())];
        let mut command = chat.sandbox.command(&["chat", "main.worker", "-c"], &[]);
        command.envs(variables);
        let terminal = Terminal::start(command);
        terminal.expect("the last turn was not finished. Finish it first?").answer(key).expect(prompts);
        terminal.press("three\r").expect("heard three\n>").press("\u{4}");
        assert_eq!(terminal.left().code, Some(0));
        let expected: &[&str] = if key == "y" { &WHOLE } else { &["one", "heard one", "three"] };
        assert_eq!(chat.told(), expected, "{key}");
    }
}

/// The kernel closes what a killed process held: nothing keeps its run from going on.
#[test]
fn the_record_of_a_killed_chat_is_whole() {
    let chat = CutChat::new(&[]);
    assert_eq!(listed(&chat.sandbox, &chat.run).last().unwrap()["state"], "running", "nobody wrote its end");
    let text = std::fs::read_to_string(journal(&chat.sandbox, &chat.run)).unwrap();
    assert!(text.ends_with('\n') && text.contains("main/t1/input"), "{text}");
    let shown = Run::of(&chat.sandbox, &["resume", &chat.run, "--show"]).answer();
    assert!(shown.contains("\nnot finished\n"), "{shown}");
}
