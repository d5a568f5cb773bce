//! Questions of an agent to the person, from the outside: at a terminal, without one, from elsewhere, and by programs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/session.rs"]
mod session;
#[path = "support/mod.rs"]
mod support;
#[path = "support/terminal.rs"]
mod terminal;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, SeenRequest};
use serde_json::{Value, json};
use session::Run;
use support::{Ended, Sandbox};
use terminal::Terminal;

/// Asks which crane, and says what it was told.
const SCRIPT: &str = "- round: 1
  call:
    ask_user:
      question: \"Which crane shall I book?\\nThe \\e[31mblue one is new.\"
      fields:
        - { name: crane, type: choice, options: [Blue, Old red] }
        - { name: days, type: number }
        - { name: insured, type: yes_no, required: false }
- say: \"{{ result }}\"
";
const SCRIPTED: [&str; 5] = ["run", ".", "hi", "-m", "scripted:script.yaml"];

fn asker(keys: &str) -> Sandbox {
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", &format!("---\nname: main\ntoolsets: [ask_user]\n{keys}\n---\nAsk.\n"));
    sandbox.file("script.yaml", SCRIPT);
    sandbox
}

fn scripted(sandbox: &Sandbox, more: &[&str]) -> Ended {
    sandbox.run(&[&SCRIPTED, more].concat())
}

fn questions(sandbox: &Sandbox) -> Vec<Value> {
    let ended = sandbox.run(&["inbox", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn only(sandbox: &Sandbox) -> String {
    let open = questions(sandbox);
    assert_eq!(open.len(), 1, "{open:?}");
    open[0]["question"].as_str().unwrap().to_owned()
}

const FORM: &str = "`main` asks, in its own words:
│ Which crane shall I book?
│ The \\u{1b}[31mblue one is new.
│
│ crane    one of Blue, Old red
│ days     a number
│ insured  yes or no, may be left out
";

#[test]
fn a_question_waits_for_values_that_fit_and_they_count_once() {
    let sandbox = asker("");
    let ended = scripted(&sandbox, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{ended:?}");
    let id = only(&sandbox);
    let run = sandbox.runs().pop().unwrap();
    let command = format!("`llm-do resume RUN --answer {id}.crane=Blue --answer {id}.days=1` answers with these");
    assert!(ended.stderr.contains(&command), "{ended:?}");
    assert!(ended.stderr.contains("an answer is needed for `ask_user` of main"), "{ended:?}");
    // Everywhere in the same words, and whatever it holds is shown as text.
    for words in [&["inbox", "show", &id][..], &["resume", &run, "--show"], &["runs", "show", &run]] {
        let shown = sandbox.run(words);
        assert!(shown.code == Some(0) && shown.stdout.contains(FORM), "{words:?}: {}", shown.stdout);
    }
    assert_eq!(
        questions(&sandbox)[0]["form"]["fields"][1],
        json!({"name": "days", "type": "number", "required": true})
    );
    // Nothing that is wrong changes anything, and each tells what to type.
    for (words, wrong) in [
        (&["answer", &id, "crane=green", "days=3"][..], "`crane` takes one of Blue, Old red"),
        (&["answer", &id, "crane=Blue"], "still to fill in: `days` (a number)"),
        (&["answer", &id, "crane=Blue", "days=many"], "`days` takes a number"),
        (&["answer", &id, "crane=Blue", "dayz=3"], "there is no field `dayz`; did you mean `days`?"),
        (&["answer", &id, "crane=Blue", "days=3", "days=4"], "`days` is given twice"),
        (&["approve", &id], "asks for values, and takes no yes"),
        (&["approve", &id, "--edit"], "asks for values, and takes no yes"),
    ] {
        let ended = sandbox.run(&[&["inbox"][..], words].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(wrong), "{words:?}: {}", ended.stderr);
        let how = format!("{id} crane=Blue days=1 --go` answers with these values: put in your own");
        assert!(ended.stderr.contains(&how), "{words:?}: {}", ended.stderr);
        assert_eq!(questions(&sandbox).len(), 1, "{words:?}");
    }
    for (flag, wrong) in [("--approve", "takes no yes"), ("--answer", "is no `ID.NAME=VALUE`")] {
        let ended = sandbox.run(&["resume", &run, flag, &id]);
        assert!(ended.code == Some(2) && ended.stderr.contains(wrong), "{ended:?}");
    }
    let done = sandbox.run(&["inbox", "answer", &id, "crane=old red", "days=2.5", "--go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap(), json!({"crane": "Old red", "days": 2.5}));
    let late = sandbox.run(&["inbox", "answer", &id, "crane=Blue", "days=3"]);
    assert!(late.code == Some(2) && late.stderr.contains("was answered already"), "{late:?}");
    let again = sandbox.run(&["resume", &run]);
    assert_eq!((again.code, &again.stdout), (Some(0), &done.stdout), "{again:?}");
}

#[test]
fn what_the_hint_prints_goes_on_and_a_refusal_declines() {
    let sandbox = asker("");
    assert_eq!(scripted(&sandbox, &["--journal", "run.journal"]).code, Some(4));
    let shown = sandbox.run(&["resume", "run.journal", "--show"]).stdout;
    let id = shown.split_once("waiting for an answer (").unwrap().1[..12].to_owned();
    let (crane, days) = (format!("{id}.crane=Blue"), format!("{id}.days=1"));
    let done = sandbox.run(&["resume", "run.journal", "--answer", &crane, "--answer", &days]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "{\"crane\":\"Blue\",\"days\":1}\n"), "{done:?}");
    assert_eq!(scripted(&sandbox, &[]).code, Some(4));
    let refused = sandbox.run(&["inbox", "refuse", &only(&sandbox), "--reason", "no crane", "--go"]);
    let declined = "the person declined to answer: no crane\n";
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(0), declined), "{refused:?}");
}

#[test]
fn no_rule_and_no_approval_of_everything_answers_it() {
    let sandbox = asker("approval: { ask_user: allow }");
    for (more, code) in [(&["--approve-all"][..], 4), (&["--approve-all", "--ephemeral"], 4), (&["--ephemeral"], 4)] {
        assert_eq!(scripted(&sandbox, more).code, Some(code), "{more:?}");
    }
    let rejected = scripted(&sandbox, &["--reject-all"]);
    let words = "the person declined to answer: every question is answered with no in this run\n";
    assert_eq!((rejected.code, rejected.stdout.as_str()), (Some(0), words), "{rejected:?}");
    let checked = sandbox.run(&["check", "."]);
    assert!(checked.code == Some(0) && checked.stdout.contains("ask_user"), "{checked:?}");
}

#[test]
fn a_form_that_nobody_could_fill_in_is_told_to_the_model() {
    let call = |arguments: Value| FakeReply::calls([FakeCall::new("ask_user", arguments)]);
    let script = FakeScript::new()
        .when(|seen: &SeenRequest| seen.messages.len() < 3, call(json!({"question": "a", "fields": [{"name": "x y"}]})))
        .when(
            |seen: &SeenRequest| seen.messages.len() < 5,
            call(json!({"question": "a", "fields": [{"name": "x", "type": "colour"}]})),
        )
        .otherwise(FakeReply::text("given up"));
    let fake = FakeLlm::start(script);
    let sandbox = asker("");
    let run = Run::of(&sandbox, &["run", ".", "hi", "-m", "anthropic:claude-haiku-4-5"]).asking(&fake);
    assert_eq!(run.answer(), "given up\n");
    let seen = format!("{:?}", fake.requests().last().unwrap());
    assert!(seen.contains("a field's name has at most 40 letters"), "{seen}");
    assert!(seen.contains("invalid arguments"), "{seen}");
}

fn started(sandbox: &Sandbox) -> Terminal {
    let terminal = Terminal::start(sandbox.command(&SCRIPTED, &[]));
    terminal.expect("question 1 · main › ask_user").expect("│ crane    one of Blue, Old red").expect("Esc declines");
    terminal
}

#[test]
fn a_person_at_the_terminal_fills_it_in() {
    let sandbox = asker("");
    let terminal = started(&sandbox);
    terminal.expect("crane: ").press("green\r").expect("`crane` takes one of Blue, Old red");
    // The line is still there to be mended.
    terminal.expect_written("\rcrane: green\u{1b}[K", 2).press("\u{15}2\r");
    terminal.expect("days: ").press("\r").expect("`days` is wanted: a number; Esc declines");
    terminal.expect_written("\rdays: \u{1b}[K", 2).press("4\u{1b}[D1\r");
    terminal.expect("insured: ").press("\r");
    terminal.expect_written("changes it) \u{1b}[K", 1).press("days\r");
    terminal.expect_written("\rdays: 14\u{1b}[K", 2).press("\u{15}3\r");
    terminal.expect_written("changes it) \u{1b}[K", 2).press("\r");
    let left = terminal.left();
    assert!(left.code == Some(0) && left.screen.contains("{\"crane\":\"Old red\",\"days\":3}"), "{}", left.screen);
}

#[test]
fn escape_declines_it_and_the_run_goes_on() {
    let sandbox = asker("");
    let terminal = started(&sandbox);
    terminal.expect("crane: ").press("Blue\r").expect("days: ").press("\u{1b}");
    let left = terminal.left();
    assert!(left.code == Some(0) && left.screen.contains("the person declined to answer"), "{}", left.screen);
    assert!(questions(&sandbox).is_empty());
}
