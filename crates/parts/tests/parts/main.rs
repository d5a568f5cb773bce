//! The program and its package, with the programs of others beside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod engine;
mod mcp;
mod node;
mod page;
mod python;
mod serve;
mod shells;
mod telemetry;
mod tmux;
