//! What the documents say is what the program does: every command of the README, of `docs/` and of the examples is typed
//! again, every file that they show is written, every answer is compared; the references name all there is and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/python.rs"]
mod python;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod document;
mod examples;
mod links;
mod picture;
mod place;
mod references;
mod sessions;
mod statements;

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The Markdown files beneath a directory of the repository, by their paths in it.
fn documents(directory: &str) -> Vec<String> {
    let (mut found, mut waiting) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(repository().join(&directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("{directory}/{name}");
            if repository().join(&path).is_dir() {
                // Where somebody tried an example.
                waiting.extend(Some(path).filter(|_| !name.starts_with('.')));
            } else if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
