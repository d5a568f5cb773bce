//! The way into a run, from the outside: every door leads to the same run, nothing of a project happens before its time,
//! and a front end that leaves takes nothing with it that could be kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../serve/client.rs"]
#[allow(dead_code, reason = "written for the tests of the protocol; these need a part of it")]
mod client;
#[path = "../support/python.rs"]
mod python;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod conflicts;
mod created;
mod doors;
mod hangup;
mod hostile;
mod phases;
