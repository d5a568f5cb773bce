//! What `cargo install` and `cargo binstall` read: the packages of the crates, and where the archives are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use parts::{is_wanted, printed, repository};

use crate::{package, static_target, version};

/// The crates that are handed out; the others are for development.
const SHIPPED: [&str; 4] = ["llm-do", "llm-do-launch", "llm-do-web", "llm-do-cli"];

/// The files of a crate's package, relative to the crate.
fn packaged(name: &str) -> BTreeSet<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["package", "--list", "--allow-dirty", "-p", name]).current_dir(repository());
    printed(&mut cargo).lines().map(PathBuf::from).collect()
}

/// What the code of a file takes in at compile time, without its tests: the texts within `include_str!("…")` and its like.
fn taken_in(text: &str) -> impl Iterator<Item = &str> {
    let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
    let calls = ["include_str!(\"", "include_bytes!(\"", "include!(\""];
    calls.into_iter().flat_map(move |call| shipped.split(call).skip(1)).filter_map(|rest| rest.split('"').next())
}

/// `a/b/../c` → `a/c`; `None` if it leaves the directory that it starts in.
fn tidied(path: &Path) -> Option<PathBuf> {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(tidied.pop().then_some(())?),
            other => tidied.push(other),
        }
    }
    Some(tidied)
}

#[test]
fn a_package_has_all_that_its_code_takes_in() {
    if !is_wanted("packages") {
        return;
    }
    let mut seen = 0;
    for name in SHIPPED {
        let files = packaged(name);
        assert!(files.contains(Path::new("README.md")) && files.contains(Path::new("Cargo.lock")), "{name}: {files:?}");
        assert!(!files.iter().any(|file| file.starts_with("tests")), "{name}");
        let crate_directory = repository().join("crates").join(name);
        for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
            let text = fs::read_to_string(crate_directory.join(file)).unwrap();
            for path in taken_in(&text) {
                let found = tidied(&file.parent().unwrap().join(path));
                assert!(
                    found.is_some_and(|found| files.contains(&found)),
                    "{name}: {} takes in {path}",
                    file.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn binstall_finds_the_archives_under_the_names_that_they_have() {
    if !is_wanted("packages") {
        return;
    }
    let manifest = fs::read_to_string(repository().join("crates/llm-do-cli/Cargo.toml")).unwrap();
    let said = |key: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")));
        let filled = line.unwrap().trim_end_matches('"').replace("{ version }", &version());
        filled.replace("{ target }", &static_target()).replace("{ bin }", "llm-do")
    };
    let archive = package("llm-do-", &format!("-{}.tar.gz", static_target()));
    assert_eq!(said("pkg-url").rsplit('/').next(), archive.file_name().and_then(|name| name.to_str()));
    let listed = printed(Command::new("tar").arg("-tzf").arg(&archive));
    assert!(listed.lines().any(|line| line == said("bin-dir")), "{}", said("bin-dir"));
    for (target, triple) in [("x86_64", "x86_64-unknown-linux-gnu"), ("aarch64", "aarch64-unknown-linux-gnu")] {
        let block = manifest.split(&format!("[package.metadata.binstall.overrides.{triple}]")).nth(1).unwrap();
        let block = block.split("\n[").next().unwrap();
        assert_eq!(block.matches(&format!("{target}-unknown-linux-musl")).count(), 2, "{block}");
    }
}
