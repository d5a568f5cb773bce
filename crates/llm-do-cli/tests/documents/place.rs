//! Where a document is typed: a directory with the examples in it, a shell on a terminal, and no network.

use std::fs;
use std::path::Path;
use std::process::Command;

use fake_llm::FakeLlm;

use crate::repository;
use crate::session::KEY;
use crate::support::Sandbox;
use crate::terminal::{Elsewhere, Terminal};

/// Rows enough that nothing leaves the screen.
const ROWS: u16 = 300;

/// What documents show instead of the directory of a test.
const SHOWN_DIRECTORY: &str = "/home/ann/work";
/// And instead of it where it is a home.
const SHOWN_HOME: &str = "/home/ann";

pub struct Place<'a> {
    pub sandbox: Sandbox,
    /// Whoever answers for every provider; without one there is no key either.
    provider: Option<&'a FakeLlm>,
}

/// Who reads a document.
#[derive(Clone, Copy)]
pub enum Reader {
    /// Somebody who runs something for the first time, and is told where runs are kept.
    Newcomer,
    User,
}

/// What was seen of a command, and how it ended.
pub struct Seen {
    pub screen: String,
    pub code: i32,
}

impl<'a> Place<'a> {
    pub fn new(provider: Option<&'a FakeLlm>, reader: Reader) -> Self {
        let sandbox = match reader {
            Reader::Newcomer => Sandbox::new(),
            Reader::User => Sandbox::new().told(),
        };
        copy(&repository().join("examples"), &sandbox.path().join("examples"));
        Self { sandbox, provider }
    }

    /// Types a command, then each of the keys when the text before it is on the screen. `$?` is `before`.
    pub fn types(&self, command: &str, keys: &[(&str, &str)], before: i32) -> Seen {
        let program = Path::new(env!("CARGO_BIN_EXE_llm-do")).parent().unwrap();
        let mut shell = Command::new("/bin/sh");
        let meant = match command {
            asks if asks.contains("$?") => format!("(exit {before}); {asks}"),
            // The shell becomes the program, so that Ctrl-C reaches nobody else.
            alone if alone.starts_with("llm-do ") && !alone.contains('|') => format!("exec {alone}"),
            other => other.to_owned(),
        };
        shell.args(["-c", &meant]).current_dir(self.sandbox.path()).env_clear();
        shell.env("HOME", self.sandbox.path()).env("USER", "ann").env("XDG_CACHE_HOME", crate::python::cache());
        shell.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
        if let Some(fake) = self.provider {
            shell.env("ANTHROPIC_BASE_URL", fake.anthropic_url()).env("ANTHROPIC_API_KEY", KEY);
        }
        let terminal = Terminal::start_with(shell, ROWS, Elsewhere::default());
        for (text, keys) in keys {
            // A letter alone answers a question, which takes it after a pause only.
            match keys.as_bytes() {
                [letter] if letter.is_ascii_alphabetic() => terminal.expect(text).answer(keys),
                _ => terminal.expect(text).press(keys),
            };
        }
        let left = terminal.left();
        assert!(!left.written.contains(KEY), "a key is shown: {}", left.screen);
        let directory = fs::canonicalize(self.sandbox.path()).unwrap();
        let (directory, home) = (directory.to_str().unwrap(), format!("{SHOWN_HOME}/.local"));
        let screen = left.screen.replace(&format!("{directory}/.local"), &home).replace(directory, SHOWN_DIRECTORY);
        // Some kernels have no fence, which is said.
        let is_kept = |line: &&str| !line.starts_with("note: commands run without a fence");
        let lines: String =
            screen.trim_end().lines().filter(is_kept).map(|line| line.trim_end().to_owned() + "\n").collect();
        Seen { screen: lines, code: left.code.unwrap() }
    }
}

/// Without what somebody's own runs have written there.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let ignored = fs::read_to_string(from.join(".gitignore")).unwrap_or_default();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let target = to.join(&name);
        match entry.file_type().unwrap().is_dir() {
            true if ignored.lines().any(|line| line.trim_end_matches('/') == name) => {}
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
