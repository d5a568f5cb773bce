//! The program on a real terminal: signals, questions, the status line, chats.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod approval;
mod chat;
mod choice;
mod commands;
mod display;
mod files;
mod moments;
mod results;
mod shell;
mod signals;
mod trust;
mod typing;

use std::process::Command;

use fake_llm::FakeLlm;
use session::KEY;
use support::Sandbox;
use terminal::Terminal;

/// An agent that names no model and no tools.
const MAIN: &str = "---\nname: main\n---\nAnswer.\n";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", MAIN);
    sandbox
}

/// `llm-do …` with every provider played by `fake`.
fn command(sandbox: &Sandbox, fake: &FakeLlm, arguments: &[&str]) -> Command {
    let url = fake.anthropic_url();
    sandbox.command(arguments, &[("ANTHROPIC_BASE_URL", &url), ("ANTHROPIC_API_KEY", KEY)])
}

/// `llm-do run main.worker hi …` on a terminal.
fn run(sandbox: &Sandbox, fake: &FakeLlm, flags: &[&str]) -> Terminal {
    let arguments = [&["run", "main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"], flags].concat();
    Terminal::start(command(sandbox, fake, &arguments))
}
