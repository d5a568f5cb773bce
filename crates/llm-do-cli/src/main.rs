//! The program `llm-do`.

mod args;
mod check;
mod config;
mod console;
mod environment;
mod failure;
mod journal;
mod json;
mod key_command;
mod models;
mod new;
mod plan;
mod providers;
mod resume;
mod run;
mod stdin;

use std::process::ExitCode;

fn main() -> ExitCode {
    run::run(std::env::args_os()).unwrap_or_else(failure::Failure::report)
}
