//! `llm-do test` from the outside: records, what makes them stale, live tests, runs that become cases, and hostile ones.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, its helpers too, and tells its counts"
)]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;

mod adding;
mod hostile;
mod live;
mod mutations;
mod replay;

use support::{Ended, Sandbox};

/// An agent that reads a note and writes a draft.
const NOTES: &str = "---
name: notes
toolsets: [filesystem_project]
---
Write release notes from the changes.
";

const SCRIPT: &str = "- { round: 1, call: { read_file: { path: changes/101.md } } }
- { round: 2, call: { write_file: { path: drafts/notes.md, content: \"search over ingredients\\n\" } } }
- say: \"search: users find a recipe by what is in it\"
";

const CASES: &str = "cases:
  - name: finds what users notice
    input: Notes for 2.0
    files: { changes/101.md: \"Index over ingredients\" }
    approve: [write_file]
    expect:
      output: { contains: search, lines: { max: 12 } }
      calls: [ { read_file: { path: changes/101.md } }, write_file ]
      asks: [ write_file ]
      never: [ shell ]
      files: { drafts/notes.md: { contains: ingredients } }
      max: { cost_usd: 0.01, requests: 3 }
";

const RECORD: &str = "notes.test.records/finds-what-users-notice.jsonl";

/// A project with one case and its record.
fn recorded() -> Sandbox {
    let sandbox = project();
    let ended = sandbox.run(&["test", "notes.worker", "--record", "-m", "scripted:script.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    sandbox
}

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("notes.worker", NOTES).file("script.yaml", SCRIPT).file("notes.test.yaml", CASES);
    sandbox
}

fn test(sandbox: &Sandbox, more: &[&str]) -> Ended {
    sandbox.run(&[&["test", "notes.worker"][..], more].concat())
}
