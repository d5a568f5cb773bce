//! Files that no tool changes without somebody being asked, whatever a rule allows: what linking reads or runs, what other
//! programs run unasked, and what the run itself writes. Compared by file identity; what does not exist yet, by its name
//! in the directory that does.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::secret::looks_secret;
use crate::beneath::{Identity, Place};

/// The protected files of one program and run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Protected(Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    path: PathBuf,
    covers: Covers,
    /// Completes "a file, which …".
    why: &'static str,
}

/// How far the protection of a path goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The file.
    File,
    /// The file, or everything beneath the directory.
    Tree,
    /// Whatever Python could import from beneath the directory.
    Modules,
    /// Whatever would be an agent beneath the directory.
    Agents,
}

impl Protected {
    /// Protects a path: absolute, or relative to the working directory. It need not exist.
    pub fn add(&mut self, path: impl Into<PathBuf>, covers: Covers, why: &'static str) {
        self.0.push(Entry { path: path.into(), covers, why });
    }

    /// What is protected by its place.
    pub fn entries(&self) -> impl Iterator<Item = (&Path, Covers)> {
        self.0.iter().map(|entry| (entry.path.as_path(), entry.covers))
    }

    /// Whether a file, by its absolute path without links, would be an agent.
    pub fn is_agent(&self, path: &Path) -> bool {
        let has_ending = path.file_name().is_some_and(|name| has_ending(name, AGENT_ENDINGS));
        let is_beneath = |entry: &Entry| entry.covers == Covers::Agents && path.starts_with(&entry.path);
        has_ending && self.0.iter().any(is_beneath)
    }

    /// Whether changing, moving or removing what a path leads to changes something protected: itself, or what is in it.
    pub fn is_touched(&self, path: &Path) -> bool {
        let Ok(target) = Target::of_path(path) else { return true };
        let is_in = |entry: &Entry| Target::of_path(&entry.path).is_ok_and(|held| held.path.starts_with(&target.path));
        self.reason(&target).is_some() || self.0.iter().any(is_in)
    }

    /// Why somebody must be asked before the target is written, if so.
    pub fn reason(&self, target: &Target) -> Option<&'static str> {
        by_name(&target.path).or_else(|| self.0.iter().find(|entry| entry.covers(target)).map(|entry| entry.why))
    }
}

/// A file that would be written, whether or not it exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Absolute, without links.
    pub path: PathBuf,
    /// Of `/` and of each further part of the path, as far as they exist.
    lineage: Vec<Identity>,
}

impl Target {
    /// What a path leads to now. The last part may be missing, and those above it.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        let mut existing = std::path::absolute(path)?;
        let mut missing = Vec::new();
        let real = loop {
            match existing.canonicalize() {
                Ok(real) => break real,
                Err(error) if error.kind() == io::ErrorKind::NotFound => match existing.file_name() {
                    Some(name) => {
                        missing.push(name.to_owned());
                        existing.pop();
                    }
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        };
        let mut lineage = Vec::new();
        let mut above: Vec<&Path> = real.ancestors().collect();
        above.reverse();
        for ancestor in above {
            lineage.push(Identity::of_path(ancestor)?);
        }
        Ok(Self { path: real.iter().chain(missing.iter().rev().map(AsRef::as_ref)).collect(), lineage })
    }

    /// A place beneath this directory, which exists.
    #[must_use]
    pub fn beneath(&self, place: &Place) -> Self {
        let lineage = self.lineage.iter().copied().chain(place.directories.iter().skip(1).copied());
        let file = place.found.as_ref().map(|found| found.identity).filter(|file| !place.directories.contains(file));
        Self { path: self.path.join(&place.path), lineage: lineage.chain(file).collect() }
    }
}

impl Entry {
    fn covers(&self, target: &Target) -> bool {
        let Some((known, missing)) = deepest_known(&self.path) else { return false };
        let parts: Vec<&OsStr> = target.path.iter().collect();
        let meets = |(depth, identity): (usize, &Identity)| {
            let below = parts.get(depth + 1..).unwrap_or_default();
            *identity == known
                && below.len() >= missing.len()
                && below.iter().zip(&missing).all(|(part, name)| is_same_name(part, name))
                && self.covers.reaches(&below[missing.len()..])
        };
        target.lineage.iter().enumerate().any(meets)
    }
}

impl Covers {
    /// Whether what lies this far below a path is covered with it.
    fn reaches(self, below: &[&OsStr]) -> bool {
        match self {
            Self::File => below.is_empty(),
            Self::Tree => true,
            Self::Modules => below.last().is_some_and(|name| has_ending(name, MODULE_ENDINGS)),
            Self::Agents => below.last().is_some_and(|name| has_ending(name, AGENT_ENDINGS)),
        }
    }
}

/// The part of a path that exists, and the names below it that do not.
fn deepest_known(path: &Path) -> Option<(Identity, Vec<&OsStr>)> {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(identity) = Identity::of_path(existing) {
            missing.reverse();
            return Some((identity, missing));
        }
        missing.push(existing.file_name()?);
        existing = existing.parent()?;
    }
}

/// A disk may take two spellings for one name. Where it does not, a question too many is asked.
fn is_same_name(one: &OsStr, other: &OsStr) -> bool {
    one == other || one.to_string_lossy().to_lowercase() == other.to_string_lossy().to_lowercase()
}

fn has_ending(name: &OsStr, endings: &[&str]) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    endings.iter().any(|ending| name.ends_with(ending))
}

const MODULE_ENDINGS: &[&str] = &[".py", ".pyc", ".pyo", ".pyi", ".pyw", ".pyd", ".so", ".pth", ".egg", ".zip"];
const AGENT_ENDINGS: &[&str] = &[".worker", ".agent", ".yaml", ".yml"];

/// Wherever they are, as a part of the path.
const DIRECTORIES: &[(&str, &str)] = &[
    (".git", "belongs to git, which runs what is there"),
    (".llm-do", "belongs to llm-do"),
    (".venv", "belongs to a Python environment"),
    (".vscode", "is run by an editor"),
];

/// Wherever they are: what this program or another one takes as code or instructions.
const NAMES: &[(&str, &str)] = &[
    ("project.json", "is the manifest of a project"),
    ("agents.md", "instructs other agents"),
    ("claude.md", "instructs other agents"),
    (".bashrc", "is run by a shell"),
    (".bash_profile", "is run by a shell"),
    (".bash_login", "is run by a shell"),
    (".profile", "is run by a shell"),
    (".zshrc", "is run by a shell"),
    (".zshenv", "is run by a shell"),
    (".zprofile", "is run by a shell"),
    (".gitconfig", "belongs to git, which runs what is there"),
];

fn by_name(path: &Path) -> Option<&'static str> {
    let parts: Vec<String> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_string_lossy().to_lowercase()),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect();
    let of_part = |part: &String| {
        let directory = DIRECTORIES.iter().find(|(name, _)| name == part).map(|(_, why)| *why);
        directory.or_else(|| part.starts_with(".env").then_some("sets the environment of programs"))
    };
    let last = parts.last().map(String::as_str).unwrap_or_default();
    let of_name = || NAMES.iter().find(|(name, _)| *name == last).map(|(_, why)| *why);
    let of_agent = || has_ending(last.as_ref(), &[".worker", ".agent"]).then_some("is a worker file");
    let of_secret = || looks_secret(path).then_some("looks like a secret");
    parts.iter().find_map(of_part).or_else(of_name).or_else(of_agent).or_else(of_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(protected: &Protected, path: &Path) -> Option<&'static str> {
        protected.reason(&Target::of_path(path).unwrap())
    }

    #[test]
    fn a_directory_is_touched_with_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir(root.join("schemas")).unwrap();
        std::fs::write(root.join("schemas/in.json"), "{}").unwrap();
        std::os::unix::fs::symlink("schemas/in.json", root.join("link")).unwrap();
        let mut protected = Protected::default();
        protected.add(root.join("schemas/in.json"), Covers::File, "is read");
        protected.add(root.join("workers/generated"), Covers::Agents, "is an agent");
        for path in ["schemas/in.json", "link", "schemas", "workers", "workers/generated/x.yaml", ".git/config"] {
            assert!(protected.is_touched(&root.join(path)), "{path}");
        }
        for path in ["other.json", "schemas/other.json", "workersx", "notes.md"] {
            assert!(!protected.is_touched(&root.join(path)), "{path}");
        }
    }

    #[test]
    fn some_names_are_protected_wherever_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let nothing = Protected::default();
        for path in [
            ".git/hooks/pre-commit",
            ".git",
            "sub/.git/config",
            ".GIT/config",
            ".env",
            ".env.example",
            ".envrc",
            "sub/.ENV",
            ".llm-do/trust",
            ".venv/bin/python",
            "main.worker",
            "deep/Main.Agent",
            "project.json",
            "AGENTS.md",
            ".vscode/tasks.json",
            ".bashrc",
            ".ssh/authorized_keys",
            "server.pem",
        ] {
            assert!(reason(&nothing, &directory.path().join(path)).is_some(), "{path}");
        }
        for path in ["notes.md", "src/main.py", "git/config", "env", "workers.md", "a.yaml", ".gitignore", "venv.txt"] {
            assert_eq!(reason(&nothing, &directory.path().join(path)), None, "{path}");
        }
    }

    #[test]
    fn what_exists_is_compared_by_identity_and_what_does_not_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("code")).unwrap();
        std::fs::write(root.join("main.txt"), "").unwrap();
        std::fs::hard_link(root.join("main.txt"), root.join("other.txt")).unwrap();
        std::os::unix::fs::symlink("main.txt", root.join("link.txt")).unwrap();
        std::os::unix::fs::symlink("code", root.join("alias")).unwrap();
        let mut protected = Protected::default();
        protected.add(root.join("main.txt"), Covers::File, "is read");
        protected.add(root.join("new/made"), Covers::Tree, "is made");
        protected.add(root.join("code"), Covers::Modules, "is imported");
        protected.add(root.join("workers"), Covers::Agents, "is an agent");
        for (path, expected) in [
            ("main.txt", Some("is read")),
            ("other.txt", Some("is read")),
            ("link.txt", Some("is read")),
            ("main.txt.bak", None),
            ("sub/main.txt", None),
            ("new/made", Some("is made")),
            ("NEW/Made/deep/x", Some("is made")),
            ("new/other", None),
            ("code/a.py", Some("is imported")),
            ("code/package/__init__.PY", Some("is imported")),
            ("alias/a.py", Some("is imported")),
            ("code/notes.md", None),
            ("a.py", None),
            ("workers/a.yaml", Some("is an agent")),
            ("workers/a/worker.yml", Some("is an agent")),
            ("workers/notes.md", None),
        ] {
            assert_eq!(reason(&protected, &root.join(path)), expected, "{path}");
        }
    }
}
