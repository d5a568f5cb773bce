//! The two documents that lead a newcomer through the sources are true: every path that `ARCHITECTURE.md` and
//! `CONTRIBUTING.md` name is there, every name of code that they name stands in the sources, and every source file is found on
//! the map.
//!
//! The map is the tree in `ARCHITECTURE.md`. An entry is a line with a branch; the lines without one go on with it. All names
//! of files in an entry are looked up beside the entry and in the directory of its module. A file that is on the map stands
//! for the files of its module, unless some of them are named: then all of them have to be. Files of tests are found beside
//! what they test, and need no entry.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Files beneath a directory, from the root of the repository on, without what is built or hidden.
fn files_beneath(directory: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            match entry.file_type().unwrap().is_dir() {
                _ if name.starts_with('.') || name == "target" || name == "__pycache__" => {}
                true => open.push(path),
                false => found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found
}

/// One entry of the map: its path, and all its words.
#[derive(Debug, PartialEq)]
struct MapEntry {
    path: String,
    words: String,
}

impl MapEntry {
    fn read(map: &str) -> Vec<Self> {
        let mut entries: Vec<Self> = Vec::new();
        let mut parents: Vec<(usize, String)> = Vec::new();
        for line in map.lines().filter(|line| !line.trim().is_empty()) {
            let bare = line.trim_start_matches(['│', '├', '└', '─', ' ']);
            let at = line.chars().count() - bare.chars().count();
            let is_entry = line.contains("── ") || at == 0;
            if !is_entry {
                let last = &mut entries.last_mut().expect("a map begins with an entry").words;
                last.push(' ');
                last.push_str(bare);
                continue;
            }
            parents.retain(|(depth, _)| *depth < at);
            let above = parents.last().map_or("", |(_, path)| path.as_str());
            let name = bare.split_whitespace().next().unwrap();
            let path = format!("{above}{name}");
            if name.ends_with('/') {
                parents.push((at, path.clone()));
            }
            entries.push(Self { path, words: bare.to_owned() });
        }
        entries
    }

    /// Where a name may stand that this entry tells of: beside it, in its module, in a directory that it names there.
    fn places(&self) -> Vec<String> {
        let beside =
            self.path.trim_end_matches('/').rsplit_once('/').map_or(String::new(), |(above, _)| format!("{above}/"));
        let own = format!("{}/", self.path.trim_end_matches('/').trim_end_matches(".rs"));
        let named = self.names().filter(|name| name.ends_with('/'));
        let inner: Vec<String> = named.flat_map(|name| [format!("{beside}{name}"), format!("{own}{name}")]).collect();
        [vec![beside.clone(), own.clone(), format!("{own}src/")], inner].concat()
    }

    /// Names of files and directories among the words.
    fn names(&self) -> impl Iterator<Item = &str> {
        let words = self.words.split([' ', '(', ')', ',', ';', ':', '`']);
        words.filter(|word| is_source(word) || word.ends_with('/') && word.len() > 1)
    }
}

/// What the map names, and what it names that is not there.
fn mapped(entries: &[MapEntry], exists: impl Fn(&str) -> bool) -> (BTreeSet<String>, Vec<String>) {
    let (mut found, mut missing) = (BTreeSet::new(), Vec::new());
    for entry in entries {
        if !exists(&entry.path) {
            missing.push(entry.path.clone());
        }
        found.insert(entry.path.clone());
        for name in entry.names() {
            let here: Vec<String> =
                entry.places().into_iter().map(|place| format!("{place}{name}")).filter(|path| exists(path)).collect();
            if here.is_empty() {
                missing.push(format!("{name}, in the entry of {}", entry.path));
            }
            found.extend(here);
        }
    }
    (found, missing)
}

/// Whether a source file is on the map: itself, or the nearest module above it that is, if that names none of its files.
fn is_covered(file: &str, mapped: &BTreeSet<String>) -> bool {
    let stem = |path: &str| path.trim_end_matches('/').trim_end_matches(".rs").to_owned();
    if mapped.contains(file) {
        return true;
    }
    let mut path = file;
    while let Some((above, _)) = path.rsplit_once('/') {
        path = above;
        if mapped.iter().any(|named| stem(named) == path) {
            // The roots of modules and crates belong to the directory itself.
            let is_root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|root| file == format!("{path}/{root}"));
            let names_inner = mapped.iter().any(|named| stem(named).starts_with(&format!("{path}/")));
            return is_root || !names_inner;
        }
    }
    false
}

fn is_test(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

#[test]
fn a_map_is_read_as_it_is_drawn() {
    let map = "a/\n├── b/     the library\n│   ├── c.rs  d.rs: more (c/: e.rs)\n│   │         f.rs\n│   └── g/\n└── h/";
    let entries = MapEntry::read(map);
    let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["a/", "a/b/", "a/b/c.rs", "a/b/g/", "a/h/"]);
    let there = ["a/", "a/b/", "a/b/c.rs", "a/b/d.rs", "a/b/c/e.rs", "a/b/c/", "a/b/g/", "a/h/"];
    let (mapped, missing) = mapped(&entries, |path| there.contains(&path));
    assert_eq!(missing, ["f.rs, in the entry of a/b/c.rs"]);
    for (file, covered) in [
        ("a/b/d.rs", true),
        ("a/b/d/x.rs", true),
        ("a/b/c/e.rs", true),
        ("a/b/c/x.rs", false),
        ("a/b/g/deep/x.rs", true),
    ] {
        assert_eq!(is_covered(file, &mapped), covered, "{file}");
    }
    assert!(!is_covered("a/b/new.rs", &mapped) && is_covered("a/b/mod.rs", &mapped));
}

#[test]
fn the_map_names_every_source_file_and_no_other() {
    let text = document("ARCHITECTURE.md");
    let map = text.split("## Map").nth(1).unwrap().split("```").nth(1).unwrap();
    let entries = MapEntry::read(map.trim_start_matches('\n'));
    assert!(entries.len() > 100, "the map is where it was");
    let (mapped, mut wrong) = mapped(&entries, |path| root().join(path).exists());
    for name in &mut wrong {
        name.push_str(" is on the map and not there");
    }
    let sources = files_beneath("crates").into_iter();
    let mut sources: Vec<String> =
        sources.filter(|file| is_source(file) && file.contains("/src/") && !is_test(file)).collect();
    sources.sort();
    let lost = sources.iter().filter(|file| !is_covered(file, &mapped));
    wrong.extend(lost.map(|file| format!("{file} is not on the map")));
    assert!(wrong.is_empty(), "ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

/// What stands between backticks outside of fences, and the targets of links to files.
fn quoted(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    outside.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

/// `a/{b,c}.rs` is two names.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let Some((inner, after)) = rest.split_once('}') else { return vec![name.to_owned()] };
    inner.split(',').map(|word| format!("{before}{word}{after}")).collect()
}

fn is_path(word: &str) -> bool {
    let is_file = [".rs", ".md", ".txt", ".jsonl", ".sh"]
        .iter()
        .any(|end| word.strip_suffix(end).is_some_and(|stem| !stem.is_empty()));
    let is_plain = word.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-/".contains(letter));
    let is_made = word.starts_with("target/") || word.contains("NAME");
    is_plain && (is_file || word.contains('/')) && !word.starts_with('/') && !is_made && word.len() > 2
}

/// A name of code: with a capital, of several words, or with a path. A word in small letters is a command, a key or English.
fn is_symbol(word: &str) -> bool {
    let is_plain = word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':');
    let is_name = word.contains("::") || word.contains('_') || is_type(word);
    is_plain && is_name && word.len() > 1 && !word.contains("NAME")
}

#[test]
fn what_the_documents_name_is_there() {
    // The documents shorten paths: they leave out the directory that a reader is in already.
    let all: Vec<String> = ["crates", "docs", "examples", "packaging", "bench", "fuzz", ".ci"]
        .iter()
        .flat_map(|directory| files_beneath(directory))
        .chain(["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "CHANGELOG.md"].map(str::to_owned))
        .collect();
    let is_there = |path: &str| {
        let (path, inside) = (path.trim_end_matches('/'), format!("/{}/", path.trim_end_matches('/')));
        let end = format!("/{path}");
        all.iter().any(|file| file == path || file.ends_with(&end) || format!("/{file}").contains(&inside))
    };
    let code = |file: &&String| [".rs", ".py", ".toml", ".sh", "/run"].iter().any(|end| file.ends_with(end));
    let own = "crates/llm-do/tests/maps.rs";
    let sources = all.iter().filter(code).filter(|file| *file != own);
    let sources: Vec<(&str, String)> = sources.map(|file| (stem(file), document(file))).collect();
    // A member stands in the file of its module, or in one that knows its type.
    let is_known = |owner: Option<&str>, name: &str| {
        sources.iter().any(|(stem, text)| {
            let is_owned = owner.is_none_or(|owner| *stem == owner || is_type(owner) && has_word(text, owner));
            is_owned && has_word(text, name)
        })
    };
    let mut wrong = Vec::new();
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = document(name);
        let mut counted = 0;
        for word in quoted(&text).into_iter().flat_map(expanded) {
            if is_path(&word) {
                counted += 1;
                // The modules of the path tables are written without their ending: `project/load`.
                if !is_there(&word) && !is_there(&format!("{word}.rs")) {
                    wrong.push(format!("{name}: there is no file `{word}`"));
                }
            } else if is_symbol(&word) {
                counted += 1;
                let parts: Vec<&str> = word.split("::").filter(|part| !part.is_empty()).collect();
                let owners = [None].into_iter().chain(parts.iter().copied().map(Some));
                let lost = owners.zip(&parts).filter(|(owner, part)| !is_known(*owner, part));
                wrong.extend(lost.map(|(_, part)| format!("{name}: no source knows `{part}` of `{word}`")));
            }
        }
        assert!(counted > 50, "{name} names paths and code: {counted}");
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What a module is called that a file holds.
fn stem(file: &str) -> &str {
    let file = file.trim_end_matches("/mod.rs");
    let name = file.rsplit('/').next().unwrap();
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}

fn has_word(text: &str, word: &str) -> bool {
    let is_letter = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word)
        .any(|(at, _)| !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + word.len()..].chars().next()))
}

fn is_source(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "rs")
}
