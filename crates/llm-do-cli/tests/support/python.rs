//! A real Python with the real libraries: made once, beside the build, and used by every test that needs it.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What the tests are written against.
const PYDANTIC_AI: &str = "pydantic-ai-slim==2.66.0";
/// The resolver refuses it beside the above, so it is installed without its dependencies, which are there.
const BLOCKING_APPROVAL: &str = "pydantic-ai-blocking-approval==0.9.0";

const MCP: &str = "mcp==2.3.0";

/// One of the 32 bytes of a key that tests share, so that one of them knows what another one compiled.
pub const KEY: &str = "5c";

/// Where what was compiled is kept, so that each test does not compile everything again.
pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-cache")
}

/// An interpreter with the libraries.
pub fn with_pydantic_ai() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| environment("python-2.66.0-0.9.0", &[&[PYDANTIC_AI], &["--no-deps", BLOCKING_APPROVAL]]))
}

/// An interpreter with the library for MCP servers.
pub fn with_mcp() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| environment("python-mcp-2.3.0", &[&[MCP]]))
}

/// An environment of its own, with what these installations give.
fn environment(name: &str, installations: &[&[&str]]) -> String {
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let program = environment.join("bin").join("python");
    once(&environment, || {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        for words in installations {
            run(Command::new(&program)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(*words));
        }
    });
    program.to_str().unwrap().to_owned()
}

/// Makes a directory once; other test programs may want it at the same moment.
pub fn once(directory: &Path, make: impl FnOnce()) {
    let lock = File::create(directory.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let complete = directory.join("complete");
    if !complete.exists() {
        let _ = fs::remove_dir_all(directory);
        make();
        File::create(complete).unwrap();
    }
}

#[track_caller]
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "these tests need this from the package registry once, and there is neither a kept copy nor a network:\n\
         {command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
