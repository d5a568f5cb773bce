//! `llm-do run` with agents that call each other and touch files, from the outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;

mod agents;
mod approval;
mod clones;
mod created;
mod fence;
mod files;
mod founding;
mod matrix;
mod programs;
mod residents;
mod secrets;
mod shell;
mod trace;
mod walls;

use session::Run;
use support::Sandbox;

/// The worker files of a directory, and the script that all of them follow.
fn project(workers: &[(&str, &str)], script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    for (name, keys) in workers {
        sandbox.file(&format!("{name}.worker"), &format!("---\nname: {name}\n{keys}\n---\nYou are {name}.\n"));
    }
    sandbox.file("script.yaml", script);
    sandbox
}

fn run<'a>(sandbox: &'a Sandbox, flags: &[&'a str]) -> Run<'a> {
    Run::new(sandbox, &[&[".", "hi", "-m", "scripted:script.yaml"], flags].concat())
}

/// A manifest with these settings of its `runtime`.
fn manifest(workers: &str, runtime: &str) -> String {
    format!(r#"{{"version": 1, "entry": {{"agent": "main"}}, "worker_files": [{workers}], "runtime": {{{runtime}}}}}"#)
}
