//! The program `llm-do`.

mod args;
mod check;
mod config;
mod console;
mod environment;
mod failure;
mod new;
mod plan;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    run::run(std::env::args_os()).unwrap_or_else(failure::Failure::report)
}
