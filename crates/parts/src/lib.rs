//! Development only: tests that need more than Rust and `python3`. `.ci/install` gets what they need into `target/parts`, and
//! `LLM_DO_PARTS=all cargo test -p parts` runs them, or some with `LLM_DO_PARTS=node,tmux`; without the variable each says
//! that it was left out. What is wanted and not there is a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Whether tests of this part are wanted: `LLM_DO_PARTS` is `all`, or names it. Else they say that they were left out.
#[expect(clippy::print_stdout, reason = "whoever runs the tests should know what was not tested")]
pub fn is_wanted(part: &str) -> bool {
    let wanted = env::var("LLM_DO_PARTS").unwrap_or_default();
    let is_wanted = wanted.split(',').map(str::trim).any(|wanted| wanted == "all" || wanted == part);
    if !is_wanted {
        println!("left out: needs {part} (LLM_DO_PARTS)");
    }
    is_wanted
}

/// The repository, without links.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Where cargo builds: this test is in `debug/deps` or the like of it.
pub fn target() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

/// What `.ci/install` has made.
pub fn parts() -> PathBuf {
    let parts = target().join("parts");
    assert!(parts.join("complete").exists(), "run `.ci/install` first: {} is not complete", parts.display());
    parts
}

/// The program, built if it is not.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--locked", "-p", "llm-do-cli", "--target-dir"])
            .arg(target())
            .current_dir(repository())
            .status();
        assert!(built.unwrap().success());
        target().join("debug").join("llm-do")
    })
}

/// A copy of the examples to work in.
pub fn workplace() -> TempDir {
    let place = TempDir::new().unwrap();
    let mut waiting = vec![PathBuf::from("examples")];
    while let Some(directory) = waiting.pop() {
        fs::create_dir_all(place.path().join(&directory)).unwrap();
        for entry in fs::read_dir(repository().join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            if repository().join(&path).is_dir() {
                waiting.push(path);
            } else {
                fs::copy(repository().join(&path), place.path().join(path)).unwrap();
            }
        }
    }
    place
}

/// A program that finds ours and the package, and nothing else of this environment.
pub fn command(program_to_run: &Path, place: &Path) -> Command {
    let mut command = Command::new(program_to_run);
    command.current_dir(place).env_clear().env("PATH", env::var_os("PATH").unwrap()).env("HOME", place);
    command.env("LLM_DO_BIN", program()).env("PYTHONPATH", repository().join("crates/llm-do/python"));
    command.env("PYTHONPYCACHEPREFIX", place.join("compiled")).stdin(Stdio::null());
    command
}

/// What it prints, if it ends well.
#[track_caller]
pub fn printed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout.into_owned()
}
