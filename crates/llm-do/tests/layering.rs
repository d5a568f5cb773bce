//! Modules of the library, crates, and front ends of the program depend on each other in one direction only. This reads the
//! sources and fails on an edge that points up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each module of the crate and those that it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("system", &[]),
    ("beneath", &["system"]),
    ("descriptors", &["system"]),
    ("dormant", &[]),
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
    ("journal", &["beneath", "escape", "message", "event", "system"]),
    ("http", &["descriptors", "escape", "message", "event", "journal"]),
    ("telemetry", &["escape", "message", "redact", "event", "journal", "http"]),
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
            "telemetry",
            "event",
            "journal",
            "http",
            "system",
        ],
    ),
    (
        "testing",
        &["beneath", "escape", "glob", "message", "json_schema", "syntax", "event", "journal", "tools", "system"],
    ),
    (
        "project",
        &[
            "testing",
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
    ("spending", &["message", "model", "project"]),
    ("replies", &["message", "journal"]),
    (
        "store",
        // Not `runtime`, and `runtime` not this: the hall puts the two together.
        &[
            "beneath",
            "escape",
            "message",
            "syntax",
            "event",
            "journal",
            "model",
            "tools",
            "questions",
            "spending",
            "replies",
        ],
    ),
    (
        "runtime",
        &[
            "beneath",
            "dormant",
            "escape",
            "redact",
            "remedy",
            "stack",
            "judgement",
            "message",
            "json_schema",
            "syntax",
            "telemetry",
            "event",
            "journal",
            "http",
            "model",
            "tools",
            "project",
            "spending",
            "replies",
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

/// Every file of a crate with the module at its root that it belongs to.
fn modules_of(root: &Path) -> Vec<(String, String)> {
    let mut paths = Vec::new();
    rust_files(root, &mut paths);
    let mut files = Vec::new();
    for path in &paths {
        let beneath = path.strip_prefix(root).unwrap();
        let top = beneath.components().next().unwrap().as_os_str().to_str().unwrap();
        // The root of a crate lists everything; programs stand outside of it.
        if beneath != Path::new("lib.rs") && beneath != Path::new("main.rs") && top != "bin" {
            files.push((top.trim_end_matches(".rs").to_owned(), fs::read_to_string(path).unwrap()));
        }
    }
    files
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
    let files = modules_of(&root);
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
        ("store", "use crate::runtime::record::outcome;"),
        ("runtime", "use crate::store::run::RunStore;"),
        ("surprise", ""),
    ];
    let expected = [
        "event → runtime",
        "message → model",
        "model → project",
        "model → tools",
        "runtime → store",
        "store → runtime",
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

/// The front ends of the program, each in its module: none of them knows another.
const FRONT_ENDS: &[&str] = &["serve", "terminal"];

/// Edges between front ends, as `serve → terminal`.
fn edges_between_front_ends(files: &[Source<'_>]) -> BTreeSet<String> {
    let edges = files.iter().flat_map(|(module, text)| used_modules(text).into_iter().map(move |used| (*module, used)));
    let is_wrong = |(module, used): &(&str, String)| {
        module != used && FRONT_ENDS.contains(module) && FRONT_ENDS.contains(&used.as_str())
    };
    edges.filter(is_wrong).map(|(module, used)| format!("{module} → {used}")).collect()
}

#[test]
fn no_front_end_knows_another() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm-do-cli/src");
    let files = modules_of(&root);
    for front_end in FRONT_ENDS {
        assert!(files.iter().any(|(module, _)| module == front_end), "there is no front end `{front_end}`");
    }
    let files: Vec<Source<'_>> = files.iter().map(|(module, text)| (module.as_str(), text.as_str())).collect();
    assert_eq!(edges_between_front_ends(&files), BTreeSet::new());
    let wrong = [("serve", "use crate::{failure, terminal::Terminal};"), ("terminal", "use crate::terminal::chat;")];
    assert_eq!(edges_between_front_ends(&wrong), BTreeSet::from(["serve → terminal".to_owned()]));
}

/// Which of our crates each crate may be built from. Those for tests stand apart: a test may use what it likes.
const CRATES: &[(&str, &[&str])] = &[
    ("embedding", &[]),
    ("fake-llm", &[]),
    ("llm-do", &[]),
    ("llm-do-cli", &["llm-do", "llm-do-launch", "llm-do-restate", "llm-do-web"]),
    ("llm-do-launch", &["llm-do"]),
    ("llm-do-restate", &["llm-do", "llm-do-launch"]),
    ("llm-do-web", &["llm-do", "llm-do-launch"]),
    ("parts", &[]),
    ("price-table", &["llm-do"]),
];

/// What one front end uses of another crate of a front end: the guard that every server stands behind.
const SHARED_WITH_WEB: (&str, &str) = ("serve", "llm_do_web::guard");

#[test]
fn of_the_page_the_protocols_use_its_guard_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm-do-cli/src");
    let (module, shared) = SHARED_WITH_WEB;
    let files = modules_of(&root);
    let uses = |text: &str| text.matches("llm_do_web::").count();
    assert!(
        files.iter().any(|(name, text)| name == module && text.contains(shared)),
        "nothing uses the guard any more"
    );
    for (name, text) in files.iter().filter(|(name, _)| FRONT_ENDS.contains(&name.as_str())) {
        assert_eq!(
            uses(text),
            text.matches(&format!("{shared}::")).count(),
            "{name} knows more of the page than its guard"
        );
    }
}

#[test]
fn no_crate_is_built_from_one_above_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names: Vec<String> =
        fs::read_dir(&crates).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| crates.join(name).join("Cargo.toml").exists());
    names.sort();
    assert!(names.iter().eq(CRATES.iter().map(|(name, _)| name)), "a crate has no place in the picture: {names:?}");
    for (name, allowed) in CRATES {
        let manifest = fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
        let sections = manifest.split("\n[").filter(|section| {
            let heading = section.lines().next().unwrap_or_default();
            heading.ends_with("dependencies]") && !heading.contains("dev-")
        });
        let used = sections.flat_map(str::lines).filter_map(|line| line.split(['.', ' ', '=']).next());
        let wrong: Vec<&str> =
            used.filter(|used| names.iter().any(|name| name == used) && !allowed.contains(used)).collect();
        assert!(wrong.is_empty(), "{name} is built from {wrong:?}");
    }
}

/// What changes the whole process: runs that share it work each in its own directory, which is a value.
const OF_THE_PROCESS: &str = "set_current_dir";

#[test]
fn nothing_moves_the_process_to_another_directory() {
    for name in ["llm-do", "llm-do-launch", "llm-do-web", "llm-do-cli"] {
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
