//! `llm-do run` with projects that have Python files, from the outside, with the real interpreter and libraries.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/python.rs"]
mod python;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;

mod agents;
mod example;
mod faults;
mod forms;
mod inputs;
mod isolation;
mod models;
mod nesting;
mod plain;
mod renewal;
mod secrets;
mod start;
mod toolsets;
mod trust;
mod typed;

use std::path::Path;

use fake_llm::FakeLlm;
use session::Run;
use support::Sandbox;

/// A project: worker files by name and keys, Python files by path and text, and the script that all agents follow.
fn project(workers: &[(&str, &str)], files: &[(&str, &str)], script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    for (name, keys) in workers {
        sandbox.file(&format!("{name}.worker"), &format!("---\nname: {name}\n{keys}\n---\nYou are {name}.\n"));
    }
    for (path, text) in files {
        sandbox.file(path, text);
    }
    let quoted = |names: Vec<String>| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let workers = quoted(workers.iter().map(|(name, _)| format!("{name}.worker")).collect());
    let python = quoted(
        files
            .iter()
            .map(|(path, _)| (*path).to_owned())
            .filter(|path| Path::new(path).extension().is_some_and(|extension| extension == "py"))
            .collect(),
    );
    let manifest = format!(
        r#"{{"version": 1, "entry": {{}}, "worker_files": [{workers}], "python_files": [{python}], "env": ["MINE"]}}"#
    );
    sandbox.file("project.json", &manifest).file("script.yaml", script);
    sandbox
}

/// A run with an interpreter that has no library.
fn run<'a>(sandbox: &'a Sandbox, flags: &[&'a str]) -> Run<'a> {
    let cache = python::cache().to_str().unwrap().to_owned();
    Run::new(sandbox, &[&[".", "hi", "--trust", "-m", "scripted:script.yaml"], flags].concat())
        .with("XDG_CACHE_HOME", cache)
        .with("LLM_DO_STATE_KEY", python::KEY.repeat(32))
}

/// A run whose model is a provider.
fn ask<'a>(sandbox: &'a Sandbox, fake: &FakeLlm, flags: &[&'a str]) -> Run<'a> {
    let cache = python::cache().to_str().unwrap().to_owned();
    Run::new(sandbox, &[&[".", "hi", "-q", "--trust", "-m", "anthropic:m"], flags].concat())
        .asking(fake)
        .with("XDG_CACHE_HOME", cache)
        .with("LLM_DO_STATE_KEY", python::KEY.repeat(32))
}

/// A run with an interpreter that has the libraries.
fn run_pydantic<'a>(sandbox: &'a Sandbox, flags: &[&'a str]) -> Run<'a> {
    run(sandbox, &[&["--python", python::with_pydantic_ai()], flags].concat())
}

/// A script in which `main` makes these calls, one for each of its requests, and then says the results of the last.
fn calls(calls: &[&str]) -> String {
    let round = |(index, call): (usize, &&str)| format!("- {{ agent: main, round: {}, call: {call} }}\n", index + 1);
    let rounds: String = calls.iter().enumerate().map(round).collect();
    format!("{rounds}- say: \"{{{{ result }}}}\"\n")
}
