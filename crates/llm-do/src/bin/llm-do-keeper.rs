//! A keeper and nothing else, for programs that embed the library: the full fence needs a program that it can start.

use std::process::ExitCode;

fn main() -> ExitCode {
    llm_do::fence::kept(std::env::args_os()).unwrap_or(ExitCode::FAILURE)
}
