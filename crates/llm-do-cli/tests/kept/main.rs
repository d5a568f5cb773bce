//! Runs and chats that are kept, from the outside: gone on with by their ids, continued, and what is said where nothing can be
//! kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod chats;
mod cut;
mod kept;
mod named;
mod once;
mod unkept;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use support::Sandbox;

/// An agent that tells which round it is and what it heard, and writes a file when it hears `write`, which asks.
const SCRIPT: &str = "\
- { heard: fail, fail: give_up }
- { heard: write, call: { write_file: { path: out.txt, content: written } } }
- say: \"{{ round }}: {{ heard }}\"
";

fn desk() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nx\n").file("script.yaml", SCRIPT);
    sandbox
}

const MODEL: [&str; 2] = ["-m", "scripted:script.yaml"];

/// A project whose agent writes a file, which asks, and says what became of it.
fn writer() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nx\n");
    let script = "- { round: 1, call: { write_file: { path: out.txt, content: x } } }\n- say: \"{{ result }}\"\n";
    sandbox.file("script.yaml", script);
    sandbox
}

const WRITTEN: &str = "wrote 1 characters to out.txt\n";

/// The id of the only question that waits.
#[track_caller]
fn question(stderr: &str) -> String {
    let (_, rest) = stderr.split_once("waiting for approval (").unwrap_or_else(|| panic!("nothing waits: {stderr}"));
    rest.split_once(')').unwrap().0.to_owned()
}

fn journal(sandbox: &Sandbox, run: &str) -> PathBuf {
    sandbox.state().join("runs").join(run).join("journal")
}

/// What the list says of a run, change by change.
fn listed(sandbox: &Sandbox, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(sandbox.state().join("runs/index")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["id"] == run).collect()
}

/// The lines of what all runs cost.
fn costs(sandbox: &Sandbox) -> Vec<Value> {
    let months = fs::read_dir(sandbox.state().join("costs")).into_iter().flatten();
    let text: String = months.map(|month| fs::read_to_string(month.unwrap().path()).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
