//! Chats that go on: with their memory, with the project of today, from a file, and after a question that waited.

use std::fs;
use std::process::Stdio;

use fake_llm::{FakeLlm, FakeReply, FakeScript, SeenRequest};

use crate::session::Run;
use crate::support::{Ended, Sandbox, wait};
use crate::terminal::Terminal;
use crate::{MODEL, costs, desk, journal, listed, question};

/// `llm-do chat main.worker …`, to which these lines are said.
#[track_caller]
fn chat(sandbox: &Sandbox, flags: &[&str], lines: &str) -> Ended {
    Run::of(sandbox, &[&["chat", "main.worker"], &MODEL[..], flags].concat()).hearing(lines).ended()
}

#[test]
fn a_chat_goes_on_with_all_that_it_remembers() {
    let sandbox = desk();
    let first = chat(&sandbox, &[], "one\ntwo\n");
    assert_eq!((first.code, first.stdout.as_str(), first.stderr.as_str()), (Some(0), "1: one\n2: two\n", ""));
    let [run] = sandbox.runs().try_into().unwrap();
    let again = chat(&sandbox, &["--continue"], "three\n");
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "3: three\n"), "{}", again.stderr);
    assert_eq!(again.stderr, "(2 turns so far; the last one:)\n> two\n2: two\n");
    let flags: [&[&str]; 3] = [&["-c"], &["--continue", &run], &["-c", &run[..12]]];
    for (at, flags) in flags.into_iter().enumerate() {
        let ended = chat(&sandbox, flags, "on\n");
        assert_eq!((ended.code, ended.stdout), (Some(0), format!("{}: on\n", 4 + at)), "{}", ended.stderr);
    }
    assert_eq!(sandbox.runs(), std::slice::from_ref(&run), "it is one run");
    let lines = listed(&sandbox, &run);
    assert_eq!((&lines.last().unwrap()["state"], &lines[0]["kind"]), (&"done".into(), &"chat".into()));
}

/// The words of a run go with it, those that only a beginning can have are refused.
#[test]
fn which_chat_goes_on_is_said_or_is_the_last_of_the_project() {
    let sandbox = desk();
    let none = chat(&sandbox, &["--continue"], "x\n");
    let said = "error: no chat of this project is kept\nhint: `llm-do chat PROJECT` begins one; `llm-do runs --all` lists \
                those of all projects\n";
    assert_eq!((none.code, none.stderr.as_str()), (Some(2), said));
    Run::new(&sandbox, &[&["main.worker", "hello"], &MODEL[..]].concat()).answer();
    assert_eq!(chat(&sandbox, &["--continue"], "x\n").stderr, said, "a run is no chat");
    let run = sandbox.runs().pop().unwrap();
    let wrong = chat(&sandbox, &["--continue", &run], "x\n");
    assert_eq!(wrong.stderr, "error: `RUN` is a run, and no chat\nhint: `llm-do resume RUN` goes on with it\n");
    let wrong = chat(&sandbox, &["-c", "06gy3k9x7wqe4t2m"], "x\n");
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""), "{wrong:?}");
    assert!(wrong.stderr.starts_with("error: there is no run `RUN`\nhint: "), "{}", wrong.stderr);
    chat(&sandbox, &[], "first\n");
    chat(&sandbox, &[], "second\n");
    assert_eq!(chat(&sandbox, &["-c"], "x\n").stderr, "(1 turn so far; the last one:)\n> second\n1: second\n");
    sandbox.file("other/main.worker", "---\nname: main\n---\nx\n");
    let other = Run::of(&sandbox, &["chat", "other", "--continue", MODEL[0], MODEL[1]]).hearing("x\n").failure(2);
    assert_eq!(other, said, "of this project");
    for nothing in ["othr", "none"] {
        let said = Run::of(&sandbox, &["chat", nothing, "--continue", MODEL[0], MODEL[1]]).hearing("x\n").failure(2);
        assert!(said.starts_with(&format!("error: no such project: `{nothing}`\nhint: ")), "{said}");
    }
}

#[test]
fn a_chat_goes_on_with_the_project_of_today() {
    let sandbox = Sandbox::new();
    let worker = |text: &str| format!("---\nname: main\nmodel: anthropic:m\n---\n{text}\n");
    sandbox.file("main.worker", &worker("Be brief."));
    let echo =
        |seen: &SeenRequest| Some(FakeReply::text(&format!("{} | {}", seen.system.trim(), seen.last_user_text())));
    let fake = FakeLlm::start(FakeScript::new().answer(echo));
    let chat = |flags: &[&str], lines: &str| {
        Run::of(&sandbox, &[&["chat", "main.worker"], flags].concat()).asking(&fake).hearing(lines).ended()
    };
    assert_eq!(chat(&[], "one\n").stdout, "Be brief. | one\n");
    sandbox.file("main.worker", &worker("Be long."));
    let again = chat(&["--continue"], "two\n");
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "Be long. | two\n"), "{}", again.stderr);
    let note = "note: the project has changed since the last turn: main.worker has changed\n";
    assert!(again.stderr.starts_with(note), "{}", again.stderr);
    let asked = fake.requests();
    assert_eq!(asked.len(), 2, "what was answered is not asked again");
    let told: Vec<String> = asked[1].seen.as_ref().unwrap().messages.iter().map(fake_llm::SeenMessage::text).collect();
    assert_eq!(told, ["one", "Be brief. | one", "two"]);
    assert_eq!(fake.violations(), []);
}

/// What has changed is what the last turn did not know: it is said once.
#[test]
fn what_has_changed_is_said_once() {
    let sandbox = desk();
    let change = |text: &str| {
        sandbox.file("main.worker", &format!("---\nname: main\ntoolsets: [filesystem_cwd]\n---\n{text}\n"));
    };
    let says = |lines: &str| {
        let ended = chat(&sandbox, &["--continue"], lines);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stderr.contains("note: the project has changed since the last turn: main.worker has changed\n")
    };
    chat(&sandbox, &[], "one\n");
    assert!(!says("two\n"), "nothing has changed");
    change("y");
    assert!(says(""), "nobody has said anything");
    assert!(says("three\n") && !says("four\n"));
    change("x");
    assert!(says("five\n"), "as it was at the beginning, and not as it was in the last turn");
    assert!(!says("six\n"));
}

#[test]
fn a_turn_that_failed_has_left_no_trace_in_a_chat_that_goes_on() {
    let sandbox = desk();
    let first = chat(&sandbox, &[], "one\nfail\ntwo\n");
    assert_eq!((first.code, first.stdout.as_str()), (Some(1), "1: one\n2: two\n"), "{}", first.stderr);
    let again = chat(&sandbox, &["--continue"], "three\n");
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "3: three\n"), "{}", again.stderr);
    assert_eq!(again.stderr, "(2 turns so far; the last one:)\n> two\n2: two\n");
}

/// It may have failed because a provider was away.
#[test]
fn a_last_turn_that_failed_is_tried_once_more() {
    let sandbox = desk();
    let first = chat(&sandbox, &[], "one\nfail\n");
    assert_eq!((first.code, first.stdout.as_str()), (Some(1), "1: one\n"), "{}", first.stderr);
    let run = sandbox.runs().pop().unwrap();
    let said = "error: agent `main`: the provider's answer cannot be used: the script says so\n";
    assert_eq!(Run::of(&sandbox, &["resume", &run]).failure(1), said);
    let again = chat(&sandbox, &["--continue"], "three\n");
    assert_eq!((again.code, again.stdout.as_str()), (Some(1), "2: three\n"), "{}", again.stderr);
    assert_eq!(again.stderr, format!("(1 turn so far; the last one:)\n> one\n1: one\n{said}"));
    assert_eq!(chat(&sandbox, &["--continue"], "four\n").stdout, "3: four\n", "others have followed it");
}

#[test]
fn a_chat_in_a_file_goes_on_from_it() {
    let sandbox = desk();
    let first = chat(&sandbox, &["--journal", "talk.journal"], "one\nwrite\nnever\n");
    assert_eq!((first.code, first.stdout.as_str()), (Some(4), "1: one\n"), "{}", first.stderr);
    let id = question(&first.stderr);
    let hint = format!("hint: `llm-do resume talk.journal --approve {id}` allows it and goes on;");
    assert!(first.stderr.contains(&hint), "{}", first.stderr);
    assert_eq!(sandbox.runs(), Vec::<String>::new());
    let resumed = Run::of(&sandbox, &["resume", "talk.journal", "--approve", &id]).ended();
    assert_eq!((resumed.code, sandbox.path().join("out.txt").exists()), (Some(0), true), "{resumed:?}");
    let again = Run::of(&sandbox, &["resume", "talk.journal"]).answer();
    assert_eq!(again, resumed.stdout, "its last answer is told again");
    let in_store = chat(&sandbox, &["--continue"], "x\n");
    assert_eq!(in_store.code, Some(2), "a file is no part of the store: {in_store:?}");
}

#[test]
fn a_piped_chat_that_must_ask_is_suspended_and_its_turn_is_finished_later() {
    let sandbox = desk();
    let first = chat(&sandbox, &[], "one\nwrite\nnever\n");
    assert_eq!((first.code, first.stdout.as_str()), (Some(4), "1: one\n"), "{}", first.stderr);
    let id = question(&first.stderr);
    let end = format!(
        "error: approval is needed for `write_file` of main\n\
         hint: `llm-do resume RUN --approve {id}` allows it and goes on; `--refuse {id}` refuses it\n"
    );
    assert!(first.stderr.ends_with(&end), "{}", first.stderr);
    let [run] = sandbox.runs().try_into().unwrap();
    assert_eq!(listed(&sandbox, &run).last().unwrap()["state"], "waits");
    assert!(!sandbox.path().join("out.txt").exists());
    let waits = Run::of(&sandbox, &["resume", &run]).failure(4);
    assert!(waits.contains(&format!("waiting for approval ({id})")), "the same question: {waits}");
    let resumed = Run::of(&sandbox, &["resume", &run, "--approve", &id]).ended();
    assert_eq!((resumed.code, sandbox.path().join("out.txt").exists()), (Some(0), true), "{resumed:?}");
    assert_eq!(resumed.stdout, "3: wrote 7 characters to out.txt\n");
    let again = chat(&sandbox, &["--continue"], "on\n");
    assert!(again.code == Some(0) && again.stdout.ends_with(": on\n"), "{again:?}");
    assert!(again.stderr.starts_with("(2 turns so far; the last one:)\n> write\n"), "{}", again.stderr);
    assert!(!fs::read_to_string(journal(&sandbox, &run)).unwrap().contains("never"), "nobody said it");
}

#[test]
fn clearing_a_chat_ends_its_run_and_begins_another() {
    let sandbox = desk().told();
    let arguments = [&["chat", "main.worker"], &MODEL[..]].concat();
    let terminal = Terminal::start(sandbox.command(&arguments, &[]));
    terminal.expect("> ").press("one\r").expect("1: one\n>").press("two\r").expect("2: two\n>");
    terminal.press("/clear\r").expect("conversation cleared\n>");
    let [first] = sandbox.runs().try_into().unwrap_or_else(|runs: Vec<String>| [runs[0].clone()]);
    terminal.press("anew\r").expect("1: anew\n>").press("\u{4}");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let [one, two] = sandbox.runs().try_into().unwrap();
    assert_eq!(one, first);
    assert!(left.screen.trim_end().ends_with(&two), "the last one is named: {}", left.screen);
    for (run, requests) in [(&one, 2), (&two, 1)] {
        let last = listed(&sandbox, run).pop().unwrap();
        assert_eq!((&last["state"], &last["requests"]), (&"done".into(), &requests.into()), "{last}");
    }
    let counted: Vec<String> = costs(&sandbox).iter().map(|line| line["run"].as_str().unwrap().to_owned()).collect();
    assert_eq!(counted, [one.clone(), two]);
    let again = chat(&sandbox, &["--continue"], "on\n");
    assert_eq!(again.stdout, "2: on\n", "the last one goes on: {}", again.stderr);
    assert_eq!(chat(&sandbox, &["--continue", &one], "on\n").stdout, "3: on\n", "what was forgotten is still there");
}

/// A person sees where the conversation stands before anything is typed.
#[test]
fn a_chat_that_goes_on_at_a_terminal_shows_its_last_exchange() {
    let sandbox = desk().told();
    chat(&sandbox, &[], "one\n**two**\n");
    let arguments = [&["chat", "main.worker", "-c"], &MODEL[..]].concat();
    let terminal = Terminal::start(sandbox.command(&arguments, &[]));
    terminal
        .expect("(2 turns so far; the last one:)\n> **two**\n2: two\n> ")
        .press("three\r")
        .expect("3: three\n>")
        .press("\u{4}");
    assert_eq!(terminal.left().code, Some(0));
}

#[test]
fn a_chat_in_which_nothing_was_said_is_not_kept() {
    let sandbox = desk().told();
    chat(&sandbox, &[], "one\n");
    let kept = sandbox.runs();
    let start = |more: &[&str]| {
        let arguments = [&["chat", "main.worker"], more, &MODEL[..]].concat();
        let terminal = Terminal::start(sandbox.command(&arguments, &[]));
        terminal.expect("the chat is kept\n").expect("\n>");
        terminal
    };
    let terminal = start(&[]);
    terminal.press("/tools\r").expect("edit_file     ask\n>").press("\u{4}");
    let left = terminal.left();
    assert_eq!(left.code, Some(0));
    assert!(!left.screen.contains("0 requests"), "{}", left.screen);
    assert_eq!(sandbox.runs(), kept, "nothing is left to be listed");
    // The last one is still the one in which something was said, and it is kept however little is added.
    let terminal = start(&["-c"]);
    terminal.expect("(1 turn so far; the last one:)\n> one\n1: one\n>").press("\u{4}");
    assert_eq!(terminal.left().code, Some(0));
    assert_eq!(sandbox.runs(), kept);
    // What was said before a conversation was cleared stays; in what follows nothing was.
    let terminal = start(&[]);
    terminal.press("x\r").expect("1: x\n>").press("/clear\r").expect("conversation cleared\n>").press("\u{4}");
    assert_eq!(terminal.left().code, Some(0));
    assert_eq!(sandbox.runs().len(), kept.len() + 1);
}

#[test]
fn a_chat_goes_on_from_another_directory_by_its_id() {
    let sandbox = desk();
    chat(&sandbox, &[], "one\n");
    fs::create_dir(sandbox.path().join("elsewhere")).unwrap();
    let run = sandbox.runs().pop().unwrap();
    let mut command = sandbox.command(&["chat", ".", "two", "--continue", &run, "--no-stdin"], &[]);
    let command = command.current_dir(sandbox.path().join("elsewhere")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = wait(command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "2: two\n"), "{}", ended.stderr);
}
