//! What a full fence keeps inside of directories that commands may write and read: which files stay as they are, which
//! cannot be looked at, and which names must not come to be.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::Shelter;
use crate::beneath::Identity;
use crate::tools::protected::{Covers, Protected};
use crate::tools::secret::looks_secret;

/// More mounts than a command should wait for.
pub const MOST_MOUNTS: usize = 1024;
/// Larger trees are not searched to their end.
pub const MOST_ENTRIES: usize = 200_000;

/// Where commands are, and what must be kept from them there.
pub struct Search<'a> {
    /// Absolute, without links.
    pub written: &'a [PathBuf],
    pub read: &'a [PathBuf],
    pub protected: &'a Protected,
    /// Never seen, wherever it is.
    pub hidden: &'a [PathBuf],
    pub repositories: Repositories,
}

/// What may be done with the directories of `git`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repositories {
    ReadOnly,
    /// But for what `git` takes as settings or runs.
    Written,
}

/// What was found, as it was then.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub read_only: BTreeSet<PathBuf>,
    pub hidden: BTreeSet<PathBuf>,
    /// Everything was looked at.
    pub is_whole: bool,
    /// What did not exist and must not be made.
    guarded: BTreeSet<PathBuf>,
    /// Directories of which new names are told, with those that were there.
    watched: Vec<Watched>,
    /// Each path that is kept, and which file it was: another one is not kept.
    identities: Vec<(PathBuf, Option<Identity>)>,
    seen: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Watched {
    directory: PathBuf,
    /// Python imports from it.
    is_imported: bool,
    names: BTreeSet<OsString>,
}

/// What a command did that nobody may do unseen.
#[derive(Debug, PartialEq, Eq)]
pub enum Trace {
    /// It is there, and somebody should look at it.
    Made(PathBuf),
    /// It was made, and is gone again.
    Removed(PathBuf),
}

/// Directories that other programs run or take instructions from, wherever they are.
const DIRECTORIES: &[&str] = &[".llm-do", ".venv", ".vscode", ".idea", ".husky", ".devcontainer", ".cursor", ".claude"];
/// Files of this kind.
const FILES: &[&str] = &[
    "project.json",
    "agents.md",
    "claude.md",
    "gemini.md",
    ".mcp.json",
    ".cursorrules",
    ".pre-commit-config.yaml",
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".gitconfig",
];
const AGENT_ENDINGS: &[&str] = &[".worker", ".agent"];
const MODULE_ENDINGS: &[&str] = &[".py", ".pyc", ".so", ".pth"];
const GIT: &str = ".git";
const CACHE: &str = "__pycache__";

/// What `git` takes as settings or runs, in each of its directories.
const GIT_SETTINGS: &[&str] =
    &["config", "config.worktree", "hooks", "info/attributes", "objects/info/alternates", "commondir"];

impl Search<'_> {
    pub fn run(&self) -> Found {
        let mut found = Found { is_whole: true, ..Found::default() };
        for root in self.written {
            self.walk(root, Access::Written, &mut found);
            self.watch(root, false, &mut found);
        }
        let is_new = |root: &&PathBuf| !self.written.iter().any(|written| root.starts_with(written));
        for root in self.read.iter().filter(is_new) {
            self.walk(root, Access::Read, &mut found);
        }
        for (path, covers) in self.protected.entries() {
            // One that cannot be resolved is not there.
            let Ok(path) = path.canonicalize() else { continue };
            match covers {
                Covers::Private => self.hide(path, &mut found),
                Covers::Modules => self.keep_modules(&path, &mut found),
                // A directory that is written as a whole: the walk has found the files.
                Covers::Agents if self.written.iter().any(|root| root.starts_with(&path)) => {}
                // A word of a command that happens to name a directory.
                Covers::File if path.is_dir() => {}
                Covers::Agents | Covers::Tree | Covers::File => self.keep(path, &mut found),
            }
        }
        for path in self.hidden.iter().filter_map(|path| path.canonicalize().ok()) {
            self.hide(path, &mut found);
        }
        found.identities = found.identified();
        found
    }

    fn walk(&self, root: &Path, access: Access, found: &mut Found) {
        let mut waiting = vec![root.to_owned()];
        while let Some(directory) = waiting.pop() {
            // What cannot be listed cannot be read either.
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                found.seen += 1;
                if found.seen > MOST_ENTRIES {
                    found.is_whole = false;
                    return;
                }
                let Ok(kind) = entry.file_type() else { continue };
                if self.meet(&entry.path(), kind, access, found) == Then::GoOn && kind.is_dir() {
                    waiting.push(entry.path());
                }
            }
        }
    }

    fn meet(&self, path: &Path, kind: fs::FileType, access: Access, found: &mut Found) -> Then {
        let Some(name) = path.file_name() else { return Then::GoOn };
        let lower = name.to_string_lossy().to_lowercase();
        if lower == GIT {
            if access == Access::Written {
                self.keep_repository(path, found);
            }
            return Then::Stop;
        }
        if is_secret(path, kind) {
            // A link leads to what is secret.
            found.hidden.extend(path.canonicalize().ok());
            return Then::Stop;
        }
        let is_agent = self.protected.is_agent(path);
        if access == Access::Written && (is_protected_name(&lower, kind.is_dir()) || is_agent) {
            found.read_only.extend(path.canonicalize().ok());
            return if DIRECTORIES.contains(&lower.as_str()) { Then::Stop } else { Then::GoOn };
        }
        Then::GoOn
    }

    fn keep(&self, path: PathBuf, found: &mut Found) {
        let is_reached = |root: &PathBuf| path.starts_with(root) || root.starts_with(&path);
        if self.written.iter().any(is_reached) {
            found.read_only.insert(path);
        }
    }

    fn hide(&self, path: PathBuf, found: &mut Found) {
        let is_reached = |root: &PathBuf| path.starts_with(root) || root.starts_with(&path);
        if self.written.iter().chain(self.read).any(is_reached) {
            found.hidden.insert(path);
        }
    }

    /// A directory of `git`, or a file or link that leads to one.
    fn keep_repository(&self, path: &Path, found: &mut Found) {
        let Ok(real) = path.canonicalize() else { return };
        if real.is_file() {
            found.read_only.insert(real.clone());
        }
        let own = if real.is_dir() { Some(real) } else { pointed_to(&real, "gitdir: ") };
        let common = own.as_ref().and_then(|own| pointed_to(&own.join("commondir"), ""));
        for directory in own.into_iter().chain(common) {
            let is_written = self.written.iter().any(|root| directory.starts_with(root));
            match self.repositories {
                _ if !is_written => {}
                Repositories::ReadOnly => drop(found.read_only.insert(directory)),
                Repositories::Written => keep_settings(&directory, found),
            }
        }
    }

    /// What Python imports from a directory: its modules and packages. It is also one that is built in.
    fn keep_modules(&self, directory: &Path, found: &mut Found) {
        if !self.written.iter().any(|root| directory.starts_with(root)) {
            return self.keep(directory.to_owned(), found);
        }
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name() == CACHE {
                found.hidden.insert(path);
            } else if is_importable(&path) {
                found.read_only.extend(path.canonicalize().ok());
            }
        }
        self.watch(directory, true, found);
    }

    fn watch(&self, directory: &Path, is_imported: bool, found: &mut Found) {
        let mut watched = Watched { directory: directory.to_owned(), is_imported, names: BTreeSet::new() };
        watched.names = watched.present(self.protected);
        found.watched.push(watched);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Written,
}

#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Stop,
}

impl Found {
    /// Whether what is kept is still what is there.
    pub fn is_current(&self, protected: &Protected) -> bool {
        self.identities.iter().all(|(path, identity)| Identity::of_path(path).ok() == *identity)
            && self.watched.iter().all(|watched| watched.present(protected) == watched.names)
    }

    fn identified(&self) -> Vec<(PathBuf, Option<Identity>)> {
        let kept = self.read_only.iter().chain(&self.hidden).chain(&self.guarded);
        kept.map(|path| (path.clone(), Identity::of_path(path).ok())).collect()
    }

    /// How many mounts it takes.
    pub fn mounts(&self, written: &[PathBuf]) -> usize {
        let kept: BTreeSet<&Path> = self.read_only.iter().chain(&self.hidden).map(PathBuf::as_path).collect();
        let mut held = kept.clone();
        for path in kept {
            if let Some(root) = written.iter().find(|root| path.starts_with(root)) {
                held.extend(path.ancestors().skip(1).take_while(|above| above != root));
            }
        }
        held.len()
    }

    /// For a command to which somebody agreed although it names some of these files.
    pub fn shelter(&self, approved: &[PathBuf], private: Option<PathBuf>) -> Shelter {
        let concerns = |path: &PathBuf| approved.iter().any(|one| path.starts_with(one) || one.starts_with(path));
        let kept = |paths: &BTreeSet<PathBuf>| paths.iter().filter(|path| !concerns(path)).cloned().collect();
        Shelter { read_only: kept(&self.read_only), hidden: kept(&self.hidden), private }
    }

    /// What a command has made that others would run, import or take as instructions; what no command may make is removed.
    pub fn traces(&self, protected: &Protected, approved: &[PathBuf]) -> Vec<Trace> {
        let is_approved = |path: &Path| approved.iter().any(|one| path.starts_with(one));
        let mut traces = Vec::new();
        for watched in &self.watched {
            for name in watched.present(protected).difference(&watched.names) {
                let path = watched.directory.join(name);
                if is_approved(&path) || traces.contains(&Trace::Removed(path.clone())) {
                    continue;
                }
                let is_removed = watched.is_imported && is_imported_name(&path) && remove(&path);
                traces.retain(|trace| *trace != Trace::Made(path.clone()));
                traces.push(if is_removed { Trace::Removed(path) } else { Trace::Made(path) });
            }
        }
        for path in self.guarded.iter().filter(|path| !is_approved(path) && path.symlink_metadata().is_ok()) {
            traces.push(if remove(path) { Trace::Removed(path.clone()) } else { Trace::Made(path.clone()) });
        }
        traces
    }
}

impl Watched {
    /// The names that are there now and that somebody should know of.
    fn present(&self, protected: &Protected) -> BTreeSet<OsString> {
        let is_told = |entry: &fs::DirEntry| {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_lowercase());
            name == GIT
                || is_protected_name(&name, entry.file_type().is_ok_and(|kind| kind.is_dir()))
                || protected.is_agent(&path)
                || (self.is_imported && is_imported_name(&path))
        };
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter(is_told).map(|entry| entry.file_name()).collect()
    }
}

/// Keeps what is there; what is not there must not be made.
fn keep_settings(directory: &Path, found: &mut Found) {
    let mut keep = |path: PathBuf| {
        let set = if path.symlink_metadata().is_ok() { &mut found.read_only } else { &mut found.guarded };
        set.insert(path);
    };
    for name in GIT_SETTINGS {
        keep(directory.join(name));
    }
    for worktree in children(&directory.join("worktrees")) {
        for name in ["config.worktree", "commondir", "gitdir"] {
            keep(worktree.join(name));
        }
    }
    // Modules have slashes in their names, and modules of their own.
    let mut waiting: Vec<(PathBuf, usize)> = vec![(directory.join("modules"), 0)];
    while let Some((path, depth)) = waiting.pop() {
        if path.join("HEAD").exists() {
            keep_settings(&path, found);
        } else if depth < 8 {
            waiting.extend(children(&path).into_iter().map(|child| (child, depth + 1)));
        }
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    const MOST: usize = 10_000;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MOST);
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// The directory that a file of `git` names, relative to the file's own.
fn pointed_to(file: &Path, prefix: &str) -> Option<PathBuf> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(file).ok()?.take(4096).read_to_string(&mut text).ok()?;
    file.parent()?.join(text.strip_prefix(prefix)?.trim_end()).canonicalize().ok()
}

fn is_protected_name(lower: &str, is_directory: bool) -> bool {
    DIRECTORIES.contains(&lower)
        || (!is_directory && (FILES.contains(&lower) || AGENT_ENDINGS.iter().any(|ending| lower.ends_with(ending))))
}

/// By the last two parts: those above were looked at before.
fn is_secret(path: &Path, kind: fs::FileType) -> bool {
    let name = path.file_name().unwrap_or_default();
    let above = path.parent().and_then(Path::file_name).unwrap_or_default();
    let tail = Path::new(above).join(name);
    if kind.is_dir() { looks_secret(&tail.join("x")) } else { looks_secret(&tail) }
}

fn is_importable(path: &Path) -> bool {
    path.file_name().is_some_and(has_module_ending) || path.join("__init__.py").exists()
}

fn is_imported_name(path: &Path) -> bool {
    path.file_name() == Some(OsStr::new(CACHE)) || is_importable(path)
}

fn has_module_ending(name: &OsStr) -> bool {
    let lower = name.to_string_lossy().to_lowercase();
    MODULE_ENDINGS.iter().any(|ending| lower.ends_with(ending))
}

fn remove(path: &Path) -> bool {
    let is_directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    if is_directory { fs::remove_dir_all(path).is_ok() } else { fs::remove_file(path).is_ok() }
}
