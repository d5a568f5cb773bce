//! Items that ask: they wait, the others go on, and an answer from anywhere counts.

use fake_llm::{FakeCall, FakeReply, SeenRequest};
use llm_do::RawJson;
use llm_do::records::StateKey;
use llm_do::store::layout::StoreLayout;
use llm_do::store::run::RunStore;
use llm_do_launch::inbox::{Inbox, check_edited};
use serde_json::{Value, json};

use super::{Desk, lines, said};

const ASKS: &str = "---\nname: triage\nmodel: anthropic:m\ntoolsets: [filesystem_project]\n---\nx\n";

/// Writes a file for items that want it.
fn reply(seen: &SeenRequest) -> FakeReply {
    let item = said(seen);
    let has_called = seen.messages.iter().flat_map(fake_llm::SeenMessage::calls).count() > 0;
    if item.starts_with("write") && !has_called {
        let path = item.replace(' ', "_");
        return FakeReply::calls([FakeCall::new("write_file", json!({"path": path, "content": "x"}))]);
    }
    FakeReply::text(&format!("done {item}"))
}

#[test]
fn an_item_that_asks_waits_and_the_others_go_on() {
    let desk = Desk::of(ASKS, reply);
    desk.sandbox.file("items.txt", "a\nwrite one\nb\nwrite two\n");
    let ended = desk.run(&["map", "triage", "--over", "items.txt", "-o", "out.jsonl", "-j", "1"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("2 of 4 items answered · 2 waiting\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("2 items wait for an approval"), "{}", ended.stderr);
    let outputs = |desk: &Desk| -> Vec<Value> {
        lines(&desk.read("out.jsonl")).iter().map(|line| line["item"].clone()).collect()
    };
    assert_eq!(outputs(&desk), [json!(1), json!(3)]);
    let id = desk.id();
    let inbox: Vec<Value> = lines(&desk.sandbox.run_raw(&["inbox", "--json"]).stdout);
    assert_eq!(inbox.len(), 2, "{inbox:?}");
    assert!(inbox.iter().all(|waits| waits["run"] == json!(id) && waits["tool"] == "write_file"), "{inbox:?}");
    let of = |path: &str| {
        let found = inbox.iter().find(|waits| waits["arguments"]["path"] == path).unwrap();
        found["question"].as_str().unwrap().to_owned()
    };
    // What a person changes the arguments to is held against what the tool takes.
    let state = desk.sandbox.state();
    let key = StateKey::of_directory(&state).unwrap();
    let open = Inbox::of(RunStore::new(StoreLayout::new(state), Some(key))).open().unwrap();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for waits in &open {
        let fits = |edited: Value| executor.block_on(check_edited(waits, &RawJson::of(&edited))).is_ok();
        assert!(fits(json!({"path": "x", "content": "y"})) && !fits(json!({"path": 1})), "{waits:?}");
    }
    let shown = desk.sandbox.run(&["runs", "show", &id]);
    assert!(shown.stdout.contains("items     2 answered · 2 waiting\n"), "{}", shown.stdout);
    let approved = desk.sandbox.run(&["inbox", "approve", &of("write_one")]);
    assert_eq!(approved.code, Some(0), "{}", approved.stderr);
    let ended = desk.run(&["resume", &id]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert_eq!(outputs(&desk), [json!(1), json!(2), json!(3)]);
    let ended = desk.run(&["resume", &id, "--refuse", &of("write_two"), "--reason", "no need"]);
    assert!(desk.sandbox.path().join("write_one").exists() && !desk.sandbox.path().join("write_two").exists());
    // The model has read the refusal, and answered.
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(outputs(&desk), [json!(1), json!(2), json!(3), json!(4)]);
    assert!(desk.asked().values().all(|count| *count <= 2), "{:?}", desk.asked());
    let none: Vec<Value> = lines(&desk.sandbox.run_raw(&["inbox", "--json"]).stdout);
    assert_eq!(none, Vec::<Value>::new());
}

/// Asks the person who it is for, then says it.
fn reply_with_a_form(seen: &SeenRequest) -> FakeReply {
    match seen.last_result() {
        None => {
            let fields = json!([{"name": "who", "type": "text", "required": true}]);
            FakeReply::calls([FakeCall::new("ask_user", json!({"question": "For whom?", "fields": fields}))])
        }
        Some(result) => FakeReply::text(result),
    }
}

#[test]
fn what_is_decided_when_it_goes_on_is_judged_as_for_any_run() {
    let desk = Desk::of("---\nname: triage\nmodel: anthropic:m\ntoolsets: [ask_user]\n---\nx\n", reply_with_a_form);
    desk.sandbox.file("items.txt", "a\n");
    let ended = desk.run(&["map", "triage", "--over", "items.txt", "-o", "out.jsonl"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    let inbox: Vec<Value> = lines(&desk.sandbox.run_raw(&["inbox", "--json"]).stdout);
    let (id, question) = (desk.id(), inbox[0]["question"].as_str().unwrap().to_owned());
    let wrong: [(&[&str], &str); 4] = [
        (&["--approve", &question], "asks for values, and takes no yes"),
        (&["--approve", "000000000000"], "no call waits with the id"),
        (&["--answer", &format!("{question}.whom=Ann")], "whom"),
        (&["--refuse", &question, "--reason", "no", "--reason", "never"], "there are more `--reason` than `--refuse`"),
    ];
    for (flags, words) in wrong {
        let ended = desk.run(&[&["resume", &id], flags].concat());
        assert_eq!(ended.code, Some(2), "{flags:?} {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{flags:?} {}", ended.stderr);
    }
    let ended = desk.run(&["resume", &id, "--answer", &format!("{question}.who=Ann")]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(desk.read("out.jsonl").contains("Ann"), "{}", desk.read("out.jsonl"));
}

#[test]
fn the_same_question_of_two_items_is_two_questions() {
    let same = |seen: &SeenRequest| match seen.messages.iter().flat_map(fake_llm::SeenMessage::calls).count() {
        0 => FakeReply::calls([FakeCall::new("write_file", json!({"path": "one", "content": "x"}))]),
        _ => FakeReply::text("done"),
    };
    let desk = Desk::of(ASKS, same);
    desk.sandbox.file("items.txt", "a\nb\n");
    assert_eq!(desk.run(&["map", "triage", "--over", "items.txt"]).code, Some(4));
    let inbox: Vec<Value> = lines(&desk.sandbox.run_raw(&["inbox", "--json"]).stdout);
    assert_eq!(inbox.len(), 2);
    assert_ne!(inbox[0]["digest"], inbox[1]["digest"]);
    let ended = desk.run(&["resume", &desk.id(), "--approve-all"]);
    assert_eq!((ended.code, lines(&ended.stdout).len()), (Some(0), 2), "{}", ended.stderr);
}
