//! The program `llm-do`.

mod answer_file;
mod args;
mod asking;
mod attend;
mod attention;
mod chat;
mod check;
mod checking;
mod console;
mod display;
mod editor;
mod environment;
mod executor;
mod failure;
mod foreign;
mod habits;
mod hardening;
mod json;
mod line_editor;
mod markdown;
mod models;
mod new;
mod plan;
mod question;
mod render;
mod report;
mod resume;
mod run;
mod serve;
mod signals;
mod status;
mod style;
mod summary;
mod talk;
mod terminal;
mod text;
mod trust;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    // What a parent left open is for nobody whom we start.
    close_fds::set_fds_cloexec(3, &[]);
    // Before anything else: a keeper has one thread, and nothing of a run.
    if let Some(ended) = llm_do::tools::fence::keep::kept(std::env::args_os()) {
        return ended;
    }
    hardening::harden();
    console::leave(run::run(std::env::args_os()))
}
