//! Questions that a terminal asks at the same time.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use llm_do::store::index::RunState;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::Sandbox;
use crate::terminal::Terminal;
use crate::{RUN, inbox, questions, short, state, store, suspend, writer};

const ASKED: &str = " explain";

/// The questions of a run that asks now. They are shown a moment before their lines are in its record.
fn asked(sandbox: &Sandbox, count: usize) -> Vec<Value> {
    let mut looks = std::iter::repeat_with(|| questions(sandbox)).take(500);
    looks.find(|open| open.len() == count).unwrap()
}

#[test]
fn another_process_answers_while_the_terminal_asks() {
    let sandbox = writer(&["a.txt"]);
    let terminal = Terminal::start(sandbox.command(&RUN, &[]));
    terminal.expect(ASKED);
    let open = asked(&sandbox, 1);
    let approved = inbox(&sandbox, &["approve", short(&open[0]), "--go"]);
    assert_eq!((approved.code, approved.stdout.as_str()), (Some(0), ""), "{approved:?}");
    assert!(approved.stderr.ends_with("note: the run goes on in the process that asked\n"), "{}", approved.stderr);
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(left.screen.contains("approval 1 was answered by bob in inbox: yes\n"), "{}", left.screen);
    assert_eq!(fs::read_to_string(sandbox.path().join("a.txt")).unwrap(), "new\n");
    assert!(questions(&sandbox).is_empty());
}

#[test]
fn what_the_terminal_answers_is_known_elsewhere() {
    let sandbox = writer(&["a.txt", "b.txt"]);
    let terminal = Terminal::start(sandbox.command(&RUN, &[]));
    terminal.expect("approval 1 of 2").expect(ASKED);
    let open = asked(&sandbox, 2);
    terminal.answer("y").expect("approval 2 of 2");
    let late = inbox(&sandbox, &["refuse", short(&open[0])]);
    assert_eq!(late.code, Some(2), "{late:?}");
    assert!(late.stderr.contains("answered already, by the person at the terminal, "), "{}", late.stderr);
    assert_eq!(inbox(&sandbox, &["refuse", short(&open[1])]).code, Some(0));
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert_eq!(["a.txt", "b.txt"].map(|file| sandbox.path().join(file).exists()), [true, false]);
}

#[test]
fn a_forged_answer_is_set_aside_while_the_terminal_asks_and_the_person_decides() {
    let sandbox = writer(&["a.txt"]);
    let terminal = Terminal::start(sandbox.command(&RUN, &[]));
    terminal.expect(ASKED).expect_listening();
    let open = asked(&sandbox, 1);
    let answers = state(&sandbox).join("runs").join(open[0]["run"].as_str().unwrap()).join("answers");
    fs::create_dir_all(&answers).unwrap();
    fs::write(answers.join(format!("{}.json", open[0]["digest"].as_str().unwrap())), "{\"answer\":\"approve\"}")
        .unwrap();
    terminal.expect("was set aside").press("n").expect("why?").press("\n");
    let left = terminal.left();
    assert_eq!((left.code, sandbox.path().join("a.txt").exists()), (Some(0), false), "{}", left.screen);
    assert_eq!(left.written.matches("was set aside").count(), 1, "{}", left.screen);
}

#[test]
fn a_terminal_that_is_gone_leaves_its_questions_to_others() {
    let sandbox = writer(&["a.txt", "b.txt"]);
    let terminal = Terminal::start(sandbox.command(&RUN, &[]));
    terminal.expect(ASKED).send(Signal::HUP);
    let left = terminal.left();
    assert_ne!(left.code, Some(0), "{}", left.screen);
    let open = questions(&sandbox);
    assert_eq!(open.len(), 2);
    let text = store(&sandbox).index().read().unwrap();
    assert_eq!(text.newest().map(|line| line.state).collect::<Vec<_>>(), [RunState::Waits]);
    let ended = inbox(&sandbox, &["approve", short(&open[0]), short(&open[1]), "--go"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.path().join("b.txt").exists());
}

#[test]
fn whoever_ends_the_run_at_a_question_is_asked_again_when_it_goes_on() {
    let sandbox = writer(&["a.txt"]);
    let terminal = Terminal::start(sandbox.command(&RUN, &[]));
    terminal.expect(ASKED);
    let run = asked(&sandbox, 1)[0]["run"].as_str().unwrap().to_owned();
    terminal.answer("q");
    assert_eq!(terminal.left().code, Some(4));
    let terminal = Terminal::start(sandbox.command(&["resume", &run], &[]));
    terminal.expect(ASKED).answer("y");
    assert_eq!(terminal.left().code, Some(0));
    assert!(sandbox.path().join("a.txt").exists());
}

#[test]
fn other_arguments_are_edited_checked_and_run() {
    let sandbox = writer(&["a.txt"]);
    suspend(&sandbox);
    let id = short(&questions(&sandbox)[0]).to_owned();
    let edit = |script: &str, words: &[&str]| {
        sandbox.file("edit.sh", &format!("#!/bin/sh\n{script}\n"));
        let editor = format!("sh {}", sandbox.path().join("edit.sh").display());
        let words = [&["inbox", "approve", &id, "--edit"], words].concat();
        Terminal::start(sandbox.command(&words, &[("EDITOR", &editor), ("USER", "bob")])).left()
    };
    for (script, expected) in [
        ("true", "not edited: nothing was changed"),
        ("exit 3", "not edited: "),
        ("head -c 2200000 /dev/zero > \"$1\"", "not edited: the file is larger than 2 MiB"),
    ] {
        let left = edit(script, &[]);
        assert_eq!(left.code, Some(2), "{script}: {}", left.screen);
        assert!(left.screen.contains(expected) && left.screen.contains("nothing was answered"), "{}", left.screen);
        assert_eq!(questions(&sandbox).len(), 1, "{script}");
    }
    let left = edit("echo other > \"$1\"", &["--go"]);
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert_eq!(fs::read_to_string(sandbox.path().join("a.txt")).unwrap(), "other\n");
}

#[test]
fn a_list_that_is_watched_tells_of_new_questions() {
    let sandbox = writer(&["a.txt"]);
    let first = suspend(&sandbox);
    let mut watch = sandbox.command(&["inbox", "--watch", "--json"], &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut run_of_next = || {
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["run"].as_str().unwrap().to_owned()
    };
    assert_eq!(run_of_next(), first);
    let second = suspend(&sandbox);
    assert_eq!(run_of_next(), second);
    rustix::process::kill_process(rustix::process::Pid::from_child(&watch), Signal::TERM).unwrap();
    watch.wait().unwrap();
}
