//! What comes back from calls, in a chat: a few lines, and the whole when it is asked for; files and editors for what is said.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fake_llm::{At, FakeCall, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use serde_json::json;

use crate::support::Sandbox;
use crate::terminal::Terminal;
use crate::{command, sandbox};

const ARGUMENTS: [&str; 4] = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];

/// A chat of an agent that reads, in a directory with ten notes.
fn chat(fake: &FakeLlm) -> (Sandbox, Terminal) {
    let sandbox = sandbox();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd_ro]\n---\nx\n");
    for number in 1..=10 {
        sandbox.file(&format!("notes/{number:02}.md"), "One.\nTwo.\n");
    }
    let chat = Terminal::start(command(&sandbox, fake, &ARGUMENTS));
    chat.expect("> ");
    (sandbox, chat)
}

const FIVE: &str = "\
→ 1 list_files notes
  │ notes/01.md
  │ notes/02.md
  │ notes/03.md
  │ notes/04.md
  │ notes/05.md
  … 5 more lines, Ctrl-O shows them
";

#[test]
fn results_are_a_few_lines_and_whole_with_a_key() {
    let gate = StallGate::new();
    let look = || FakeReply::calls([FakeCall::new("list_files", json!({"path": "notes"}))]);
    let read = |seen: &fake_llm::SeenRequest| {
        let is_listed = seen.last_result().is_some_and(|result| result.contains("10.md"));
        is_listed.then(|| FakeReply::calls([FakeCall::new("read_file", json!({"path": "notes/01.md"}))]))
    };
    let script = FakeScript::new()
        .answer(move |seen| seen.last_result().is_none().then(look))
        .answer(read)
        .answer(|_| Some(FakeReply::text("All of them were read.").in_deltas(4)))
        .fault(On::Request(3), InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() });
    let fake = FakeLlm::start(script);
    let (_sandbox, chat) = chat(&fake);
    chat.press("look\r").expect(&format!("> look\n{FIVE}→ 2 read_file notes/01.md\n  │ One.\n  │ Two.\n"));
    // While the answer comes, and at the prompt with a line that stays.
    gate.wait_until_reached(1);
    chat.press("\u{f}").expect("\n1 list_files notes\nnotes/01.md\n").expect("notes/10.md\n");
    gate.release();
    chat.expect("were read.\n>").press("and\u{f}").expect_written("1 list_files notes", 3).expect("notes/10.md\n> and");
    chat.press("\u{15}/show 2\r").expect("2 read_file notes/01.md\nOne.\nTwo.\n>").press("\u{4}");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert_eq!(fake.violations(), []);
}

#[test]
fn a_file_is_named_with_its_path_behind_a_sign() {
    let fake = FakeLlm::start(
        FakeScript::new().answer(|seen| Some(FakeReply::text(&format!("Heard: {}.", seen.last_user_text().len())))),
    );
    let (_sandbox, chat) = chat(&fake);
    chat.press("What is in @no\t").expect("@notes/").press("01\t").expect("@notes/01.md").press("?\r");
    chat.expect("Heard: ").expect("\n>").press("and @none.md\r").expect("`none.md` does not exist: sent as text\n");
    chat.expect_written("Heard: ", 2).expect("\n>").press("\u{4}");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let requests = fake.requests();
    let said = |number: usize| requests[number].seen.as_ref().unwrap().last_user_text();
    assert!(said(0).contains("What is in @notes/01.md?") && said(0).contains("One.\nTwo."), "{}", said(0));
    assert!(said(1).contains("and @none.md"), "{}", said(1));
}

/// A program that edits the file it is given.
fn editor(directory: &Path, script: &str) -> String {
    let editor = directory.join("editor.sh");
    fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    editor.display().to_string()
}

#[test]
fn a_line_can_be_written_in_an_editor_and_is_a_draft_until_it_is_sent() {
    let fake = FakeLlm::start(
        FakeScript::new().answer(|seen| Some(FakeReply::text(&format!("Heard {}.", seen.last_user_text())))),
    );
    let sandbox = sandbox();
    let mut command = command(&sandbox, &fake, &ARGUMENTS);
    command.env("EDITOR", editor(sandbox.path(), "printf 'and a rhyme' >> \"$1\""));
    let chat = Terminal::start(command);
    chat.expect("> ").press("a haiku \u{18}\u{5}").expect("> a haiku and a rhyme");
    assert_eq!(fake.requests().len(), 0, "nothing is sent by saving");
    chat.press("\r").expect("Heard a haiku and a rhyme.\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

#[test]
fn the_prompt_has_the_keys_that_the_configuration_or_other_programs_have() {
    for (path, text) in
        [(".config/llm-do/config.toml", "[terminal]\nkeys = \"vi\"\n"), (".inputrc", "set editing-mode vi\n")]
    {
        let fake = FakeLlm::start(
            FakeScript::new().answer(|seen| Some(FakeReply::text(&format!("Heard {}.", seen.last_user_text())))),
        );
        let sandbox = sandbox();
        sandbox.file(path, text);
        let chat = Terminal::start(command(&sandbox, &fake, &ARGUMENTS));
        // To the beginning of the line, a word away, and a new one: `0dwiz`.
        chat.expect("> ")
            .press("one two")
            .expect("> one two")
            .press("\u{1b}0dwizwei ")
            .expect("> zwei two")
            .press("\r");
        chat.expect("Heard zwei two.").expect("\n>").press("\u{4}");
        let left = chat.left();
        assert_eq!(left.code, Some(0), "{}", left.screen);
    }
}
