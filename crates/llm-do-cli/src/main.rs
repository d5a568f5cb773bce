//! The program `llm-do`.

mod answer_file;
mod args;
mod attend;
mod commands;
mod complete;
mod console;
mod countdown;
mod draft;
#[cfg(feature = "restate")]
mod engine;
mod environment;
mod executor;
mod failure;
mod first_model;
mod foreign_flags;
mod harden;
mod hardening;
mod json;
mod map;
mod plan;
mod remedy;
mod report;
mod serve;
mod signals;
mod talk;
mod terminal;
mod test;
mod text;

use std::process::ExitCode;

fn main() -> ExitCode {
    // What a parent left open is for none of our children.
    close_fds::set_fds_cloexec(3, &[]);
    // Before anything else: a keeper has one thread, and nothing of a run.
    if let Some(ended) = llm_do::fence::kept(std::env::args_os()) {
        return ended;
    }
    hardening::harden();
    let ended = commands::run(std::env::args_os());
    #[cfg(feature = "restate")]
    let ended = engine::finished(ended);
    console::leave(ended)
}
