//! What `packaging/release.sh` builds, as somebody gets it who has no compiler and no repository. `LLM_DO_PARTS=packages` builds
//! the packages of this machine's kind, with the quick profile unless `LLM_DO_PROFILE` says otherwise; `LLM_DO_DIST` names
//! packages that are there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod archive;
mod crates;
mod documents;
mod npm;
mod wheel;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use parts::{printed, repository, target};
use tempfile::TempDir;

/// The target whose programs run here, statically linked.
fn static_target() -> String {
    format!("{}-unknown-linux-musl", env::consts::ARCH)
}

fn version() -> String {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).unwrap().to_owned()
}

/// Where the packages are, built if none were named.
fn dist() -> &'static Path {
    static DIST: OnceLock<PathBuf> = OnceLock::new();
    DIST.get_or_init(|| {
        if let Some(dist) = env::var_os("LLM_DO_DIST") {
            return repository().join(dist);
        }
        let dist = target().join("dist-of-tests");
        let mut release = Command::new(repository().join("packaging/release.sh"));
        release.arg(static_target()).env("CARGO_TARGET_DIR", target()).env("LLM_DO_DIST", &dist).stdin(Stdio::null());
        release.env("LLM_DO_PROFILE", env::var("LLM_DO_PROFILE").unwrap_or_else(|_| "rehearsal".to_owned()));
        printed(&mut release);
        dist
    })
}

/// The only file whose name begins and ends so.
fn package(begins: &str, ends: &str) -> PathBuf {
    let is_it = |name: &str| name.starts_with(begins) && name.ends_with(ends);
    let names = fs::read_dir(dist()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: Vec<String> = names.filter(|name| is_it(name)).collect();
    assert_eq!(found.len(), 1, "{begins}…{ends}: {found:?}");
    dist().join(&found[0])
}

/// A program with nothing on its path but these directories, at home in this place.
fn without_compiler(program: impl AsRef<std::ffi::OsStr>, path: &str, place: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", path).env("HOME", place).current_dir(place).stdin(Stdio::null());
    command
}

/// A directory that holds only these programs of the system.
fn programs_of_the_system(place: &Path, names: &[&str]) -> String {
    let directory = place.join("system");
    fs::create_dir(&directory).unwrap();
    for name in names {
        let path =
            env::split_paths(&env::var_os("PATH").unwrap()).map(|path| path.join(name)).find(|path| path.exists());
        let path = path.unwrap_or_else(|| panic!("needs {name}"));
        std::os::unix::fs::symlink(path, directory.join(name)).unwrap();
    }
    directory.display().to_string()
}

/// The tour, with an installed program: its answer.
fn tour(mut command: Command, place: &TempDir) {
    let examples = place.path().join("examples/tour");
    assert!(examples.exists());
    command.args(["examples/tour", "-m", "scripted:examples/tour/script.yaml", "--approve-all"]);
    let said = printed(command.arg("What about the harbour?"));
    assert!(said.contains("The article is in drafts/harbour.md."), "{said}");
}
