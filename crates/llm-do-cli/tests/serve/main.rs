//! `llm-do serve --stdio` and the Python package that speaks it, from the outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/python.rs"]
mod python;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod acp;
mod approval;
mod client;
mod documents;
mod endings;
mod forms;
mod kept;
mod mcp;
mod mistakes;
mod nesting;
mod offers;
mod package;
mod program;
mod protocol;
mod scopes;
mod seeds;
mod trouble;
mod values;

use fake_llm::{At, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};

use support::Sandbox;

/// A project of one worker file in `main.worker`, which follows a script.
fn sandbox(keys: &str, script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let worker = format!("---\nname: main\nmodel: scripted:script.yaml\n{keys}\n---\nYou are main.\n");
    sandbox.file("main.worker", &worker).file("script.yaml", script);
    sandbox
}

/// A provider whose first answer never comes to its end, and a project that asks it.
fn stalled() -> (Sandbox, FakeLlm, StallGate) {
    let gate = StallGate::new();
    let reply = FakeReply::text("Once upon a time, there was").in_deltas(4);
    let fault = InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    let fake = FakeLlm::start(FakeScript::new().otherwise(reply).fault(On::Request(1), fault));
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\nmodel: anthropic:claude-haiku-4-5\n---\nTell stories.\n");
    (sandbox, fake, gate)
}

/// A script that writes a file when it is told to, and says what it hears.
const WRITER: &str = "\
- {tool: write_file, say: 'Result: {{ result }}'}
- {heard: write, call: {write_file: {path: out.txt, content: hi}}}
- {heard: again, call: {write_file: {path: out.txt, content: hi}}}
- {heard: other, call: {write_file: {path: other.txt, content: hi}}}
- {say: 'You said {{ heard }}'}
";
