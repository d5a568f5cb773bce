//! `run --journal`, `resume` and `--replay`, from the outside: suspended, killed, out of room, damaged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod approval;
mod attended;
mod elsewhere;
mod foreign;
mod kill;
mod replay;
mod trouble;
mod v1;

use std::fs;
use std::path::PathBuf;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, SeenRequest};
use serde_json::{Value, json};
use session::Run;
use support::Sandbox;

const JOURNAL: &str = "run.journal";

/// An agent that writes a file, which asks, and then says what became of it.
fn writer() -> (Sandbox, FakeLlm) {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", &worker("main", "toolsets: [filesystem_cwd]"));
    let fake = FakeLlm::start(FakeScript::new().answer(|seen| Some(writes(seen))).accept_foreign_history());
    (sandbox, fake)
}

fn writes(seen: &SeenRequest) -> FakeReply {
    match seen.last_result() {
        None => FakeReply::calls([FakeCall::new("write_file", json!({"path": "a.txt", "content": "new\n"}))]),
        Some(result) => FakeReply::text(&format!("Result: {result}")),
    }
}

fn worker(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\nmodel: anthropic:m\n{keys}\n---\nYou are {name}.\n")
}

/// `llm-do run . hi --journal …`
fn begin<'a>(sandbox: &'a Sandbox, fake: &FakeLlm, flags: &[&'a str]) -> Run<'a> {
    Run::new(sandbox, &[&[".", "hi", "--journal", JOURNAL], flags].concat()).asking(fake)
}

fn resume<'a>(sandbox: &'a Sandbox, fake: &FakeLlm, flags: &[&'a str]) -> Run<'a> {
    Run::of(sandbox, &[&["resume", JOURNAL], flags].concat()).asking(fake)
}

fn journal(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join(JOURNAL)
}

/// The lines of the journal.
fn records(sandbox: &Sandbox) -> Vec<Value> {
    let text = fs::read_to_string(journal(sandbox)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The id of the one call that waits.
fn waiting_id(sandbox: &Sandbox, fake: &FakeLlm) -> String {
    let shown = resume(sandbox, fake, &["--show"]).answer();
    let start = shown.find("waiting for approval (").expect(&shown) + "waiting for approval (".len();
    shown[start..].split(')').next().unwrap().to_owned()
}
