//! Wording that was given up stays given up: in the program, the library, the documents and the examples.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};

/// What is not said any more, and what is said instead.
const GIVEN_UP: &[(&str, &str)] = &[
    ("needed for, and none of it was run or looked at", "not given yet; these were not run or read:"),
    ("defined in Python, which check does not run", "unresolved: … (Python; `check --trust` reads it)"),
    ("in detail:", ""),
    ("approved with other arguments", "approved with your edits"),
    ("loosen the gate", "skip approval questions"),
    ("an earlier answer covers it", "you allowed it for this session"),
    ("every question is answered with yes in this run", "--approve-all is on"),
    ("the run was ended at a question", "stopped: you answered q"),
    ("not done after", "timed out after 2 s"),
    ("everything is forgotten", "conversation cleared"),
    ("it has none (web_search)", "providers with web_search: …"),
    ("comes with a toolset", "did you mean `filesystem_cwd`?"),
    ("no provider and no model has such a name", "nothing matches …"),
    ("a plain text needs exactly one", "this agent takes JSON with `title`, `body`"),
    ("the value as a whole", "`title` is missing (`titel`?)"),
    ("is not the one that was recorded", "the input differs from the recorded one (K)"),
    ("in the project, read-only", "./notes, read-only"),
    ("Errors with all that is known", "Show full error details"),
    ("Link a project without running", "Check a project without running it"),
    ("their keys are at hand", "whether a key is set"),
    ("never animate", "no progress display"),
    ("broke off in the middle", "the connection ended early"),
    ("passes the tests", "runs the tests"),
    ("hardens into code, and back", "becomes code, or a prompt again"),
    ("half more than", "1.5 times"),
    ("fence of the kernel", "a kernel sandbox"),
    ("with what is missed", "misses included"),
    ("was no JSON", "was not JSON"),
    ("is for the manifest to say", "The manifest says where"),
    ("decisions want a form", "a decision should be structured"),
    ("gets its time again", "its timeout restarts"),
    ("One of both lists has a file", "At least one list must name a file"),
    ("80 % of a limit are used", "80 % of a limit is used"),
];

/// What is said now, somewhere in the program or its documents. (Nothing has to be said of what became of `loosen the gate`: the list of
/// trust names each rule.)
const SAID: &[&str] = &[
    "not given yet; these were not run or read:",
    "unresolved",
    "blocked by `",
    "approved with your edits",
    "you allowed it for this session",
    "--approve-all is on",
    "stopped: you answered q",
    "request cancelled",
    "timed out after",
    "conversation cleared",
    "% of the cost limit",
    "providers with",
    "nothing matches",
    "this agent takes JSON with",
    "the input differs from the recorded one",
    "Show full error details",
    "Check a project without running it",
    "whether a key is set",
    "no progress display",
    "the connection ended early",
    "The second runs the tests",
    "becomes code, or a prompt again",
    "1.5 times",
    "a kernel sandbox",
    "misses included",
    "was not JSON",
    "manifest says where",
    "a decision should be structured",
    "its timeout restarts",
    "At least one list must name a file",
    "of a limit is used",
];

/// Directories that hold no words of ours: what was built, and records of older versions.
const SKIPPED: &[&str] = &["target", ".git", "v1", "node_modules", "__pycache__"];
const ENDINGS: &[&str] = &["rs", "md", "py", "1", "toml", "json", "worker", "yaml", "sh", "txt"];

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            found.push(path);
        }
    }
}

#[test]
fn what_was_said_otherwise_is_said_in_the_new_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    files(&root, &mut found);
    assert!(found.len() > 500, "only {} files were found", found.len());
    let (mut told, mut unsaid) = (String::new(), SAID.to_vec());
    for file in found.iter().filter(|file| !file.ends_with("tests/words.rs")) {
        // Lines are wrapped anywhere, and some are indented by a mark of a comment.
        let Ok(text) = fs::read_to_string(file) else { continue };
        let words: Vec<&str> =
            text.split_whitespace().filter(|word| !matches!(*word, "///" | "//" | "//!" | "\\")).collect();
        let text = words.join(" ").to_lowercase();
        if !file.components().any(|part| part.as_os_str() == "tests") && !file.ends_with("CHANGELOG.md") {
            unsaid.retain(|words| !text.contains(&words.to_lowercase()));
        }
        for (old, new) in GIVEN_UP {
            if text.contains(&old.to_lowercase()) {
                told += &format!("{}: `{old}`, which is now `{new}`\n", file.display());
            }
        }
    }
    assert!(told.is_empty(), "{told}");
    assert!(unsaid.is_empty(), "nobody says this any more: {unsaid:?}");
}
