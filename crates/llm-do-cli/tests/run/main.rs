//! `llm-do run` with one agent, from the outside: a real process that asks a real server on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;

mod failures;
mod flags;
mod input;
mod model;
mod output;
mod protocol;
mod typed;
mod unfinished;

/// An agent that names no model and no tools.
const MAIN: &str = "---\nname: main\n---\nAnswer.\n";
