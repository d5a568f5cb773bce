//! The commands of a chat, typed at a terminal, and turns that are stopped.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use fake_llm::{At, FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, InjectedFault, On, StallGate};
use serde_json::json;

use crate::support::Sandbox;
use crate::terminal::Terminal;
use crate::{command, sandbox};

const ARGUMENTS: [&str; 4] = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];

/// A chat whose agent writes files.
fn writing(fake: &FakeLlm) -> (Sandbox, Terminal) {
    let sandbox = sandbox();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nx\n");
    let chat = Terminal::start(command(&sandbox, fake, &ARGUMENTS));
    (sandbox, chat)
}

fn poem() -> FakeReply {
    FakeReply::calls([FakeCall::new("write_file", json!({"path": "haiku.txt", "content": "Rain\n"}))])
}

/// Answers `Once upon a time 1.`, and counts on: no answer looks like another one.
fn counting() -> FakeScript {
    let count = AtomicUsize::new(0);
    FakeScript::new().accept_foreign_history().answer(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        Some(FakeReply::text(&format!("Once upon a time {number}.")).in_deltas(4))
    })
}

fn last(fake: &FakeLlm) -> String {
    let requests = fake.requests();
    format!("{:?}", requests.last().unwrap().seen.as_ref().unwrap().messages)
}

#[test]
fn a_stopped_turn_is_kept_with_what_it_did_and_the_model_is_told() {
    let gate = StallGate::new();
    let script = FakeScript::new()
        .answer(|seen| (seen.last_user_text() == "write a haiku" && seen.last_result().is_none()).then(poem))
        .answer(|seen| Some(FakeReply::text(&format!("Once upon: {}.", seen.last_user_text())).in_deltas(4)))
        .fault(On::Request(2), InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() });
    let fake = FakeLlm::start(script);
    let (sandbox, chat) = writing(&fake);
    chat.expect("> ").press("write a haiku\r").expect(" explain").answer("y").expect("Once").press("\u{3}");
    chat.expect("stopped: kept, 1 call done (write_file haiku.txt); /undo forgets it\n>");
    chat.press("what did you do?\r").expect("what did you do?.\n>");
    let asked = last(&fake);
    for part in ["write a haiku", "write_file", "haiku.txt", "Once", "the user stopped it", "what did you do?"] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    chat.press("/undo\r").expect("forgotten: what did you do?\n>");
    chat.press("/undo\r").expect("forgotten: write a haiku; stays changed: haiku.txt\n>");
    chat.press("/undo\r").expect("there is no turn to forget\n>");
    chat.press("hello\r").expect("Once upon: hello.\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
    assert!(!last(&fake).contains("haiku"), "{}", last(&fake));
    assert_eq!(fs::read_to_string(sandbox.path().join("haiku.txt")).unwrap(), "Rain\n");
    assert_eq!(fake.violations(), []);
}

#[test]
fn a_chat_that_goes_on_finds_what_was_stopped_and_what_was_undone() {
    let gate = StallGate::new();
    let stall = InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    let fake = FakeLlm::start(counting().fault(On::Request(3), stall));
    let sandbox = sandbox();
    let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
    chat.expect("> ").press("first\r").expect("time 1.\n>").press("second\r").expect("time 2.\n>");
    chat.press("/undo\r").expect("forgotten: second\n>").press("third\r").expect("> third\nOnce").press("\u{3}");
    chat.expect("stopped: kept; /undo forgets it\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
    let again = Terminal::start(command(&sandbox, &fake, &["chat", "main.worker", "--continue"]));
    again.expect("(2 turns so far; the last one:)\n> third\nOnce").expect("(stopped: the user stopped it)\n>");
    again.press("fourth\r").expect("time 4.\n>").press("\u{4}");
    assert_eq!(again.left().code, Some(0));
    let asked = last(&fake);
    assert!(asked.contains("first") && asked.contains("third") && !asked.contains("second"), "{asked}");
    assert!(asked.contains("the user stopped it"), "{asked}");
    assert_eq!(fake.violations(), []);
}

#[test]
fn a_request_that_was_cancelled_is_counted_for_what_its_stream_had_told() {
    let gate = StallGate::new();
    let usage = FakeUsage::new(612, 40);
    let script = FakeScript::new()
        .otherwise(FakeReply::text("Once upon a time").in_deltas(4).with_usage(usage))
        .fault(On::Request(1), InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() });
    let fake = FakeLlm::start(script);
    let sandbox = sandbox();
    let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
    chat.expect("> ").press("tell\r").expect("Once").press("\u{3}").expect("/undo forgets it\n>");
    chat.press("/cost\r").expect("in all: 612 tokens in").expect("about $0.0006\n>").press("\u{4}");
    let left = chat.left();
    assert!(left.screen.contains("1 request cancelled · at least $0.0006"), "{}", left.screen);
}

#[test]
fn the_last_turn_is_said_again_also_by_another_model() {
    let fake = FakeLlm::start(counting());
    let sandbox = sandbox();
    let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
    chat.expect("> ").press("/retry\r").expect("there is no turn to forget\n>");
    chat.press("one\r").expect("time 1.\n>").press("two\r").expect("time 2.\n>");
    chat.press("/model acme:rocket\r").expect("no model provider `acme`").expect("there is no such provider\n>");
    chat.press("/model openai:gpt-4o\r").expect("its key is missing (OPENAI_API_KEY)\n>");
    chat.press("/retry anthropic:claude-sonnet-4-5\r").expect("forgotten: two\nOnce upon a time 3.\n>");
    chat.press("/model\r").expect("anthropic:claude-sonnet-4-5\nwith a key: anthropic").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
    let requests = fake.requests();
    let seen: Vec<_> = requests.iter().map(|request| request.seen.as_ref().unwrap()).collect();
    assert_eq!(seen.len(), 3);
    assert_eq!((seen[2].model.as_str(), seen[2].last_user_text().as_str()), ("claude-sonnet-4-5", "two"));
    assert_eq!(seen[2].messages, seen[1].messages, "as if it had not been said before");
    assert_eq!(fake.violations(), []);
}

#[test]
fn what_was_allowed_is_listed_shown_with_the_tools_and_forgotten() {
    let script = FakeScript::new().answer(|seen| {
        let goes_on = seen.last_result().is_none();
        Some(if goes_on { poem() } else { FakeReply::text(&format!("Done: {}.", seen.last_user_text())) })
    });
    let fake = FakeLlm::start(script);
    let (sandbox, chat) = writing(&fake);
    chat.expect("> ")
        .press("/approvals\r")
        .expect("nothing was allowed for this session\nno lasting rule allows a call here\n>");
    chat.press("one\r").expect(" explain").answer_twice("t").expect("Done: one.\n>");
    chat.press("/approvals\r")
        .expect("1  main › write_file with any arguments, until you leave\nno lasting rule allows a call here\n>");
    chat.press("/tools\r").expect("write_file    allowed in this session\n").expect("\n>");
    chat.press("two\r").expect("Done: two.\n>");
    chat.press("/approvals forget 2\r").expect("there is no approval 2").expect("\n>");
    chat.press("/approvals forget 1\r").expect("asked about again: main › write_file with any arguments\n>");
    chat.press("/show 1\r").expect("1 write_file haiku.txt\nwrote 5 characters to haiku.txt\n>");
    chat.press("/show 9\r").expect("there is no result 9: 1 to 2\n>");
    chat.press("three\r").expect("approval 2 · ").answer_twice("a").expect("Done: three.\n>");
    chat.press("four\r")
        .expect("✓ write_file was approved: the rule that you added allows it\n")
        .expect("Done: four.\n>");
    chat.press("/approvals\r")
        .expect("lasting rules, which `llm-do policy edit` changes:\nrules.toml:3  allow = \"write_file\"");
    chat.expect_prompt_below("lasting rules");
    chat.press("/save chat.md\r").expect("saved chat.md\n>");
    chat.press("/save chat.md\r").expect("chat.md is there already, and stays as it is: choose another name\n>");
    chat.press("/runs\r").expect("ID ").expect("running").expect("\n>").press("exit\r");
    assert_eq!(chat.left().code, Some(0));
    let saved = fs::read_to_string(sandbox.path().join("chat.md")).unwrap();
    assert!(saved.starts_with("## User\n\none\n\n## main\n\ncalls `write_file`"), "{saved}");
}

#[test]
fn a_path_is_text_and_a_mistaken_command_is_not_sent() {
    let fake = FakeLlm::start(counting());
    let sandbox = sandbox();
    let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
    chat.expect("> ").press("/etc/passwd is what?\r").expect("time 1.\n>");
    chat.press("/hepl\r")
        .expect("there is no command /hepl; did you mean")
        .expect("a leading space sends it as it\nis\n>");
    chat.press(" /hepl\r").expect("time 2.\n>").press("/show x\r").expect("it is `/show N`").expect("\n>");
    chat.press("/help\r").expect("/approvals [forget N|all]").expect("\n>").press("/quit\r");
    assert_eq!(chat.left().code, Some(0));
    let said: Vec<String> =
        fake.requests().iter().map(|request| request.seen.as_ref().unwrap().last_user_text()).collect();
    assert_eq!(said, ["/etc/passwd is what?", "/hepl"]);
}

#[test]
fn old_turns_are_summarised_when_a_person_wants_it() {
    let fake = FakeLlm::start(counting());
    let sandbox = sandbox();
    let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
    chat.expect("> ").press("/compact\r").expect("there is nothing to summarise yet: the last turn stays as it is\n>");
    chat.press("first\r").expect("time 1.\n>").press("second\r").expect("time 2.\n>");
    chat.press("/compact the crane\r").expect("old messages summarised").expect("compacted: about ").expect("\n>");
    chat.press("third\r").expect("time 4.\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
    let asked = last(&fake);
    assert!(asked.contains("[Summary of ") && asked.contains("Once upon a time 3."), "{asked}");
    assert!(asked.contains("third"), "{asked}");
    assert_eq!(fake.violations(), []);
}

#[test]
fn what_a_model_thinks_is_shown_when_a_person_wants_it() {
    let script = FakeScript::new().otherwise(FakeReply::thinking("The crane is blue.", "sig").and_text("Blue."));
    let fake = FakeLlm::start(script);
    let sandbox = sandbox();
    sandbox.file("main.worker", "---\nname: main\nmodel_settings: { thinking: true }\n---\nx\n");
    let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
    chat.expect("> ").press("which colour?\r").expect("Blue.\n>");
    chat.press("/think\r").expect("what the model thinks is shown, if its provider tells it\n>");
    chat.press("once more\r").expect("main thinks: The crane is blue.\nBlue.\n>");
    chat.press("/think\r").expect("what the model thinks is not shown any more\n>").press("\u{4}");
    let left = chat.left();
    assert_eq!(left.screen.matches("The crane is blue.").count(), 1, "{}", left.screen);

    sandbox.file(".config/llm-do/config.toml", "[terminal]\nthinking = true\n");
    let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
    chat.expect("> ").press("which colour?\r").expect("main thinks: The crane is blue.\nBlue.\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}
