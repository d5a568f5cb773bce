//! `llm-do` with projects whose tools come from MCP servers: one of ours on the official Rust library, those that others
//! write with the official libraries for Python and Node.js, and hostile ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/python.rs"]
mod python;
#[path = "../support/servers.rs"]
mod servers;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod connect;
mod example;
mod honest;
mod hostile;
mod journal;
mod libraries;
mod modern;
mod oauth;
mod watched;

use serde_json::{Value, json};
use session::Run;
use support::Sandbox;

/// A project with one agent `main`, whose file has these keys besides, and these toolsets in its manifest.
fn project(keys: &str, toolsets: &Value, script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", &format!("---\nname: main\n{keys}\n---\nYou use tools.\n"));
    let manifest = json!({
        "version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "env": ["MINE"], "toolsets": toolsets,
    });
    sandbox.file("project.json", &manifest.to_string()).file("script.yaml", script);
    sandbox
}

/// A run of it, with a path on which interpreters are found.
fn run<'a>(sandbox: &'a Sandbox, flags: &[&'a str]) -> Run<'a> {
    command(sandbox, "run", &[&["hi", "-m", "scripted:script.yaml"], flags].concat())
}

fn command<'a>(sandbox: &'a Sandbox, name: &'a str, words: &[&'a str]) -> Run<'a> {
    let path = std::env::var("PATH").unwrap();
    Run::of(sandbox, &[&[name, ".", "--trust"], words].concat()).with("PATH", path)
}

/// Waits until the process is gone whose number a server has written into this file of the project: whoever was killed a
/// moment ago takes another moment to be gone, and these would stay for an hour.
#[track_caller]
fn check_ended(sandbox: &Sandbox, file: &str) {
    let process = std::fs::read_to_string(sandbox.path().join(file)).unwrap();
    let began = std::time::Instant::now();
    let is_there = || {
        let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Nobody may be there to take note of its end.
        !state.is_empty() && !state.contains(") Z ")
    };
    while is_there() {
        assert!(began.elapsed().as_secs() < 60, "{file} is still there");
        std::thread::yield_now();
    }
}

/// A script in which `main` makes these calls, one for each of its requests, and then says the results of the last.
fn calls(calls: &[&str]) -> String {
    let round = |(index, call): (usize, &&str)| format!("- {{ agent: main, round: {}, call: {call} }}\n", index + 1);
    let rounds: String = calls.iter().enumerate().map(round).collect();
    format!("{rounds}- say: \"{{{{ result }}}}\"\n")
}
