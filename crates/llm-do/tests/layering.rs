//! The library's modules depend on each other in one direction only. This reads the sources and fails on an edge that
//! points up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each module of the crate and those that it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("beneath", &[]),
    ("descriptors", &[]),
    ("escape", &[]),
    ("glob", &[]),
    ("redact", &[]),
    ("remedy", &[]),
    ("stack", &[]),
    ("underway", &[]),
    ("message", &["escape"]),
    ("judgement", &[]),
    ("json_schema", &["escape", "judgement", "message"]),
    ("syntax", &["escape", "message", "remedy"]),
    ("event", &["escape", "message", "redact"]),
    ("journal", &["beneath", "escape", "message", "event"]),
    ("http", &["descriptors", "escape", "message", "event", "journal"]),
    ("model", &["escape", "glob", "message", "json_schema", "syntax", "event", "journal", "http"]),
    (
        "tools",
        &[
            "beneath",
            "descriptors",
            "escape",
            "glob",
            "redact",
            "remedy",
            "stack",
            "underway",
            "judgement",
            "message",
            "json_schema",
            "syntax",
            "event",
            "journal",
            "http",
        ],
    ),
    (
        "project",
        &[
            "beneath",
            "escape",
            "remedy",
            "message",
            "json_schema",
            "syntax",
            "event",
            "journal",
            "http",
            "model",
            "tools",
        ],
    ),
    ("questions", &["message", "tools"]),
    ("store", &["beneath", "escape", "message", "syntax", "event", "journal", "tools", "questions"]),
    (
        "runtime",
        &[
            "beneath",
            "escape",
            "redact",
            "remedy",
            "stack",
            "judgement",
            "message",
            "json_schema",
            "syntax",
            "event",
            "journal",
            "http",
            "model",
            "tools",
            "project",
        ],
    ),
];

/// A module and the text of one of its files.
type Source<'a> = (&'a str, &'a str);

/// Every edge that the picture does not have, as `project → runtime`.
fn violations(files: &[Source<'_>]) -> BTreeSet<String> {
    let allowed: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let mut found = BTreeSet::new();
    for (module, text) in files {
        let Some(lower) = allowed.get(module) else {
            found.insert(format!("{module} has no place in the picture"));
            continue;
        };
        for used in used_modules(text) {
            let is_module = allowed.contains_key(used.as_str());
            if is_module && used != *module && !lower.contains(&used.as_str()) {
                found.insert(format!("{module} → {used}"));
            }
        }
    }
    found
}

/// The first names behind `crate::` in code: `crate::a::b`, `use crate::{a, b::c}`.
fn used_modules(text: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut modules = BTreeSet::new();
    for (start, _) in code.match_indices("crate::") {
        let is_word = code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &code[start + "crate::".len()..];
        match rest.strip_prefix('{') {
            _ if is_word => {}
            Some(group) => modules.extend(group_heads(group)),
            None => drop(modules.insert(identifier(rest))),
        }
    }
    modules
}

/// The first name of each item of a `{…}` group.
fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut heads, mut at_head) = (1, Vec::new(), true);
    for (position, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_head = true,
            c if at_head && !c.is_whitespace() => {
                heads.push(identifier(&group[position..]));
                at_head = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn no_module_uses_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    rust_files(&root, &mut paths);
    let mut files = Vec::new();
    for path in &paths {
        let beneath = path.strip_prefix(&root).unwrap();
        let top = beneath.components().next().unwrap().as_os_str().to_str().unwrap();
        // The root of the crate lists everything; programs stand outside of it.
        if beneath != Path::new("lib.rs") && top != "bin" {
            files.push((top.trim_end_matches(".rs").to_owned(), fs::read_to_string(path).unwrap()));
        }
    }
    assert!(files.len() > 10, "the sources are where they were");
    let files: Vec<Source<'_>> = files.iter().map(|(module, text)| (module.as_str(), text.as_str())).collect();
    assert_eq!(violations(&files), BTreeSet::new());
}

#[test]
fn an_edge_that_points_up_is_found_however_it_is_written() {
    let files = [
        ("message", "use crate::model::Reply;"),
        ("event", "fn f() { let x = crate::runtime::Runtime::new(); }"),
        ("model", "use crate::{escape::visible, message::{self, Message},\n    project::Program};"),
        ("tools", "    pub(crate) use crate::model;"),
        ("model", "use crate::tools::Tool;"),
        ("surprise", ""),
    ];
    let expected = [
        "event → runtime",
        "message → model",
        "model → project",
        "model → tools",
        "surprise has no place in the picture",
        "tools → model",
    ];
    assert_eq!(violations(&files), expected.iter().map(|edge| (*edge).to_owned()).collect());
}

#[test]
fn what_points_down_or_is_no_code_is_fine() {
    let files = [
        ("runtime", "use crate::{project, tools::source, model};"),
        ("project", "//! See [`crate::runtime`].\nuse crate::project::link;\nuse crate::BoxFuture; // crate::runtime"),
        ("model", "use other_crate::runtime; pub(crate) fn f() {}"),
    ];
    assert_eq!(violations(&files), BTreeSet::new());
}

/// What is of a front end, and has no business in the hall that all of them come through.
const OF_FRONT_ENDS: &[&str] =
    &["clap", "rustyline", "signal_hook", "std::env::", "io::stdin", "io::stdout", "Listener"];

#[test]
fn the_hall_knows_no_front_end() {
    let hall = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm-do-launch/src");
    let mut files = Vec::new();
    collect(&hall, &mut files);
    assert!(files.iter().any(|file| file.ends_with("launch.rs")), "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let found: Vec<&&str> = OF_FRONT_ENDS.iter().filter(|word| text.contains(**word)).collect();
        assert!(found.is_empty(), "{} has {found:?}", file.display());
    }
}

/// What changes the whole process: runs that share it work each in its own directory, which is a value.
const OF_THE_PROCESS: &str = "set_current_dir";

#[test]
fn nothing_moves_the_process_to_another_directory() {
    for name in ["llm-do", "llm-do-launch", "llm-do-cli"] {
        let mut files = Vec::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), &mut files);
        assert!(files.iter().any(|file| file.ends_with("main.rs") || file.ends_with("lib.rs")), "{files:?}");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains(OF_THE_PROCESS), "{} has `{OF_THE_PROCESS}`", file.display());
        }
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
