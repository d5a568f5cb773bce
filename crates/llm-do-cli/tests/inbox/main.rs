//! Questions that are answered from elsewhere: `llm-do inbox`, files, and whoever is notified.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod answers;
mod attended;
mod notify;
mod race;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use llm_do::records::StateKey;
use llm_do::store::layout::StoreLayout;
use llm_do::store::run::RunStore;
use serde_json::Value;
use support::{Ended, Sandbox};

/// An agent that writes files, which asks, and then says what became of the last one.
fn writer(files: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nWrite.\n");
    let calls: Vec<String> =
        files.iter().map(|file| format!("{{ write_file: {{ path: {file}, content: \"new\\n\" }} }}")).collect();
    let script = format!("- {{ round: 1, call: [{}] }}\n- say: \"{{{{ result }}}}\"\n", calls.join(", "));
    sandbox.file("script.yaml", &script);
    sandbox
}

const RUN: [&str; 5] = ["run", ".", "hi", "-m", "scripted:script.yaml"];

/// A run that nobody attends to, and so is suspended. Gives its id.
fn suspend(sandbox: &Sandbox) -> String {
    let ended = sandbox.run_in(&RUN, &[("USER", "ann")]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let open = questions(sandbox);
    open.last().unwrap()["run"].as_str().unwrap().to_owned()
}

/// All that is open, the newest last.
fn questions(sandbox: &Sandbox) -> Vec<Value> {
    let ended = sandbox.run(&["inbox", "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn short(question: &Value) -> &str {
    question["question"].as_str().unwrap()
}

fn state(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join(".local/state/llm-do")
}

fn store(sandbox: &Sandbox) -> RunStore {
    let state = state(sandbox);
    RunStore::new(StoreLayout::new(&state), Some(StateKey::of_directory(&state).unwrap()))
}

/// As Bob.
fn inbox(sandbox: &Sandbox, words: &[&str]) -> Ended {
    sandbox.run_in(&[&["inbox"], words].concat(), &[("USER", "bob")])
}

/// A mistake changes nothing, says what it is, and what to do.
#[track_caller]
fn check_refused(sandbox: &Sandbox, words: &[&str], fact: &str, hint: &str) {
    let before = tree(sandbox.path());
    let ended = inbox(sandbox, words);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.contains(fact) && ended.stderr.contains(hint), "{}", ended.stderr);
    assert!(tree(sandbox.path()) == before, "{words:?} changed something");
}

/// Every file beneath a directory, whatever it holds.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let of_path = |path: PathBuf| {
        if path.is_dir() { tree(&path) } else { BTreeMap::from([(path.clone(), fs::read(path).unwrap())]) }
    };
    paths.flat_map(of_path).collect()
}
