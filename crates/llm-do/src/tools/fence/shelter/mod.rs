//! What a full fence keeps inside of directories that commands may write and read: which files stay as they are, which
//! cannot be looked at, and which names must not come to be.

mod listing;
mod made;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::Shelter;
pub(crate) use listing::Listings;
use listing::{DirectoryListingError, Mark};
use made::LeftoverEntry;

use crate::tools::protected::{Covers, KeptFrom, ProtectedFiles, kept_name};
use crate::tools::repository;
use crate::tools::secret::looks_secret;

/// More mounts than a command should wait for.
pub(crate) const MOST_MOUNTS: usize = 1024;
/// Larger trees are not searched to their end.
pub(crate) const MOST_ENTRIES: usize = 200_000;

/// Where commands are, and what must be kept from them there.
pub(crate) struct ShelterSearch<'a> {
    /// Absolute, without links.
    pub written: &'a [PathBuf],
    pub read: &'a [PathBuf],
    pub protected: &'a ProtectedFiles,
    /// Never seen, wherever it is.
    pub hidden: &'a [PathBuf],
    /// Where programs of the user look for what they run and obey, without links.
    pub home: Option<&'a Path>,
    pub repositories: Repositories,
}

/// What may be done with the directories of `git`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Repositories {
    ReadOnly,
    /// They may be written, except for what `git` takes as settings or runs.
    Written,
}

/// What was found, as it was then.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ShelterFindings {
    pub read_only: BTreeSet<PathBuf>,
    pub hidden: BTreeSet<PathBuf>,
    /// Stays where it is, and may be written: it tells what the directory around it is.
    held: BTreeSet<PathBuf>,
    /// Everything was looked at.
    pub is_whole: bool,
    /// What did not exist and must not be made.
    guarded: BTreeSet<PathBuf>,
    /// What did not exist and may be made, by `git` itself for instance, and is told if it is left behind.
    told: BTreeSet<PathBuf>,
    /// Links that stand for protected files, with where they lead: a mount cannot keep a link.
    links: BTreeMap<PathBuf, PathBuf>,
    /// Directories of which new names are told, with those that were there.
    watched: Vec<WatchedDirectory>,
    /// What commands write: what they made lies beneath it.
    written: Vec<PathBuf>,
    seen: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct WatchedDirectory {
    directory: PathBuf,
    /// Python imports from it.
    is_imported: bool,
    is_home: bool,
    names: BTreeSet<OsString>,
}

/// What a command did that must not go unseen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// It is there, and the user should look at it.
    Made(PathBuf),
    /// It was made, and is gone again.
    Removed(PathBuf),
}

const MODULE_ENDINGS: &[&str] = &[".py", ".pyc", ".so", ".pth"];
const ENVIRONMENT: &str = ".venv";
const GIT: &str = ".git";
const CACHE: &str = "__pycache__";

impl ShelterSearch<'_> {
    /// Looks at everything there is, but reads again only what has changed since.
    pub(crate) fn run(&self, listings: &mut Listings) -> ShelterFindings {
        let mut found =
            ShelterFindings { is_whole: true, written: self.written.to_owned(), ..ShelterFindings::default() };
        for root in self.written {
            if root.ancestors().any(|above| above.file_name() == Some(OsStr::new(GIT))) {
                // A repository that lies elsewhere is met from its worktree, and its settings are kept then.
                if self.repositories == Repositories::Written && self.is_linked(root) {
                    continue;
                }
                found.read_only.insert(root.clone());
            }
            self.walk(root, TreeAccess::Written, listings, &mut found);
            self.watch(root, false, &mut found);
        }
        let is_new = |root: &&PathBuf| !self.written.iter().any(|written| root.starts_with(written));
        for root in self.read.iter().filter(is_new) {
            self.walk(root, TreeAccess::Read, listings, &mut found);
        }
        for (path, covers) in self.protected.entries() {
            let Some(path) = real(path) else { continue };
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
        for path in self.hidden.iter().filter_map(|path| real(path)) {
            self.hide(path, &mut found);
        }
        found
    }

    fn is_of_home(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.parent().is_some_and(|above| self.home == Some(above)) && is_home_name(&name)
    }

    fn is_linked(&self, root: &PathBuf) -> bool {
        self.written.iter().any(|worktree| repository::linked(worktree).contains(root))
    }

    fn walk(&self, root: &Path, access: TreeAccess, listings: &mut Listings, found: &mut ShelterFindings) {
        let mut waiting = vec![root.to_owned()];
        while let Some(directory) = waiting.pop() {
            let room = MOST_ENTRIES.saturating_sub(found.seen) + 1;
            let listing = match listings.of(&directory, room, &|path, kind| self.meaning(path, kind)) {
                Ok(listing) => listing,
                Err(DirectoryListingError::Gone) => continue,
                Err(DirectoryListingError::Closed) if directory != root => {
                    found.hidden.insert(directory);
                    continue;
                }
                Err(DirectoryListingError::Closed | DirectoryListingError::Unknown) => {
                    found.is_whole = false;
                    continue;
                }
            };
            found.seen += listing.entries;
            if found.seen > MOST_ENTRIES {
                found.is_whole = false;
                return;
            }
            waiting.extend(listing.directories.iter().cloned());
            for (path, mark) in &listing.marked {
                self.meet(path, *mark, access, found);
            }
            if listing.is_repository && access == TreeAccess::Written {
                self.keep_settings(&directory, &directory, found);
                found.held.extend(repository::MARKS.map(|mark| directory.join(mark)));
            }
        }
    }

    /// What an entry is, and whether what is in it is looked at.
    fn meaning(&self, path: &Path, kind: fs::FileType) -> (Option<Mark>, bool) {
        let lower = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if lower == GIT {
            return (Some(Mark::Repository), false);
        }
        if is_secret(path, kind) {
            return (Some(Mark::Secret), false);
        }
        let is_always = self.is_of_home(path) || self.protected.is_agent(path);
        let kept = if is_always { Some(KeptFrom::All) } else { kept_name(&lower, kind.is_dir()) };
        // What is installed there holds certificates, which look like secrets.
        (kept.map(Mark::Protected), lower != ENVIRONMENT)
    }

    fn meet(&self, path: &Path, mark: Mark, access: TreeAccess, found: &mut ShelterFindings) {
        if access == TreeAccess::Written && mark != Mark::Secret {
            found.links.extend(fs::read_link(path).ok().map(|target| (path.to_owned(), target)));
        }
        match (mark, access) {
            // If this is a link, the secret is what it leads to.
            (Mark::Secret, _) => found.hidden.extend(real(path)),
            (Mark::Repository, TreeAccess::Written) => self.keep_repository(path, found),
            (Mark::Protected(KeptFrom::AllButGit), _) if self.repositories == Repositories::Written => {}
            (Mark::Protected(_), TreeAccess::Written) => found.read_only.extend(real(path)),
            (Mark::Repository | Mark::Protected(_), TreeAccess::Read) => {}
        }
    }

    fn keep(&self, path: PathBuf, found: &mut ShelterFindings) {
        if self.is_written(&path) || self.written.iter().any(|root| root.starts_with(&path)) {
            found.read_only.insert(path);
        }
    }

    fn is_written(&self, path: &Path) -> bool {
        self.written.iter().any(|root| path.starts_with(root))
    }

    fn hide(&self, path: PathBuf, found: &mut ShelterFindings) {
        let is_reached = |root: &PathBuf| path.starts_with(root) || root.starts_with(&path);
        if self.written.iter().chain(self.read).any(is_reached) {
            found.hidden.insert(path);
        }
    }

    /// A directory of `git`, or a file or link that leads to one.
    fn keep_repository(&self, path: &Path, found: &mut ShelterFindings) {
        if let Ok(real) = path.canonicalize()
            && real.is_file()
        {
            found.read_only.insert(real);
        }
        let worktree = path.parent().unwrap_or(path);
        for directory in repository::directories(path) {
            match self.repositories {
                Repositories::ReadOnly if self.is_written(&directory) => {
                    let elsewhere = repository::elsewhere(&directory, worktree);
                    found.read_only.extend(elsewhere.into_iter().filter(|path| self.is_written(path)));
                    found.read_only.insert(directory);
                }
                Repositories::ReadOnly | Repositories::Written => self.keep_settings(&directory, worktree, found),
            }
        }
    }

    /// Keeps what is there; what is not there must not be made.
    fn keep_settings(&self, directory: &Path, worktree: &Path, found: &mut ShelterFindings) {
        for path in repository::settings(directory) {
            match real(&path) {
                Some(real) if self.is_written(&real) => drop(found.read_only.insert(real)),
                Some(_) => {}
                None => found.guarded.extend(without_links(&path).filter(|path| self.is_written(path))),
            }
        }
        let followed = repository::FOLLOWED.map(|name| directory.join(name)).into_iter();
        found.told.extend(followed.filter(|path| self.is_written(path) && path.symlink_metadata().is_err()));
        let named = repository::named(directory, worktree).into_iter();
        found.read_only.extend(named.filter(|path| self.is_written(path)));
    }

    /// Keeps what Python imports from a directory: its modules and packages. Compiled files in it are hidden.
    fn keep_modules(&self, directory: &Path, found: &mut ShelterFindings) {
        if !self.is_written(directory) {
            // Only directories beneath it can be written: one that is part of a package is kept, and the others are not
            // imported.
            let is_package = |root: &&PathBuf| {
                let mut way = root.ancestors().take_while(|path| *path != directory);
                root.starts_with(directory) && way.any(is_importable)
            };
            found.read_only.extend(self.written.iter().filter(is_package).cloned());
            return;
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

    fn watch(&self, directory: &Path, is_imported: bool, found: &mut ShelterFindings) {
        let is_home = self.home == Some(directory);
        let mut watched =
            WatchedDirectory { directory: directory.to_owned(), is_imported, is_home, names: BTreeSet::new() };
        watched.names = watched.present(self.protected);
        found.watched.push(watched);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeAccess {
    Read,
    Written,
}

impl ShelterFindings {
    /// How many mounts it takes.
    pub(crate) fn mounts(&self, written: &[PathBuf]) -> usize {
        let kept = self.read_only.iter().chain(&self.hidden).chain(&self.held);
        let kept: BTreeSet<&Path> = kept.map(PathBuf::as_path).collect();
        let mut held = kept.clone();
        for path in kept {
            if let Some(root) = written.iter().find(|root| path.starts_with(root)) {
                held.extend(path.ancestors().skip(1).take_while(|above| above != root));
            }
        }
        held.len()
    }

    /// The shelter for a command that the approver agreed to although it names some of these files: they are opened,
    /// and nothing beside them.
    pub(crate) fn shelter(&self, approved: &[PathBuf], private: Option<PathBuf>) -> Shelter {
        let is_kept = |path: &Path| self.read_only.iter().chain(&self.hidden).any(|kept| path.starts_with(kept));
        let (there, missing): (Vec<&PathBuf>, Vec<&PathBuf>) = approved.iter().partition(|one| one.exists());
        // What is to be made is made in its directory.
        let above = missing.into_iter().filter_map(|one| one.ancestors().find(|path| path.exists()));
        let above: Vec<&Path> = above.filter(|path| is_kept(path)).collect();
        let kept = |paths: &BTreeSet<PathBuf>| {
            let parts =
                |path: &PathBuf| if above.contains(&path.as_path()) { entries(path) } else { vec![path.clone()] };
            let is_approved = |path: &PathBuf| approved.iter().any(|one| path.starts_with(one));
            paths.iter().flat_map(parts).filter(|path| !is_approved(path)).collect()
        };
        let (read_only, hidden, held): (Vec<_>, Vec<_>, Vec<_>) =
            (kept(&self.read_only), kept(&self.hidden), kept(&self.held));
        let is_inside = |one: &&Path| read_only.iter().chain(&hidden).any(|path| one.starts_with(path));
        let open = there.into_iter().map(PathBuf::as_path).chain(above.iter().copied()).filter(is_inside);
        let open = open.map(Path::to_owned).collect();
        Shelter { read_only, hidden, held, open, private }
    }

    /// What a command has made that others would run, import or take as instructions; what no command may make is
    /// removed.
    pub(crate) fn traces(&self, protected: &ProtectedFiles, approved: &[PathBuf]) -> Vec<Trace> {
        let is_approved = |path: &Path| approved.iter().any(|one| path.starts_with(one));
        let mut traces = Vec::new();
        for watched in &self.watched {
            for name in watched.present(protected).difference(&watched.names) {
                let path = watched.directory.join(name);
                if is_approved(&path) || traces.contains(&Trace::Removed(path.clone())) {
                    continue;
                }
                let is_removed = watched.is_imported
                    && is_imported_name(&path)
                    && self.made(&path).is_some_and(|made| made.remove());
                traces.retain(|trace| *trace != Trace::Made(path.clone()));
                traces.push(if is_removed { Trace::Removed(path) } else { Trace::Made(path) });
            }
        }
        for made in self.guarded.iter().filter(|path| !is_approved(path)).filter_map(|path| self.made(path)) {
            let is_removed = made.remove();
            let trace = if is_removed { Trace::Removed(made.path) } else { Trace::Made(made.path) };
            if !traces.contains(&trace) {
                traces.push(trace);
            }
        }
        let left = self.told.iter().filter(|path| path.symlink_metadata().is_ok());
        let replaced = self.links.iter().filter(|(path, target)| fs::read_link(path).ok().as_ref() != Some(*target));
        let seen = left.chain(replaced.map(|(path, _)| path)).filter(|path| !is_approved(path));
        for trace in seen.map(|path| Trace::Made(path.clone())) {
            if !traces.contains(&trace) {
                traces.push(trace);
            }
        }
        traces
    }

    /// What stands now at a path, or a link that was put on the way to it.
    fn made(&self, path: &Path) -> Option<LeftoverEntry> {
        let root = self.written.iter().find(|root| path.starts_with(root))?;
        LeftoverEntry::at(root, path)
    }
}

impl WatchedDirectory {
    /// The names that are there now and that the user should know of.
    fn present(&self, protected: &ProtectedFiles) -> BTreeSet<OsString> {
        let is_told = |entry: &fs::DirEntry| {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_lowercase());
            name == GIT
                || kept_name(&name, entry.file_type().is_ok_and(|kind| kind.is_dir())).is_some()
                || (self.is_home && is_home_name(&name))
                || protected.is_agent(&path)
                || (self.is_imported && is_imported_name(&path))
        };
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter(is_told).map(|entry| entry.file_name()).collect()
    }
}

/// Where a path leads, if it is there. A directory on the way that no process may look into stands for all that is in
/// it, because its owner can open it again.
fn real(path: &Path) -> Option<PathBuf> {
    let closed = match path.canonicalize() {
        Ok(real) => return Some(real),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    };
    let mut above = path.ancestors().skip(1);
    above.find_map(|above| above.canonicalize().ok()).filter(|_| closed)
}

/// The path of something that is not there, behind the links on the way to it.
fn without_links(path: &Path) -> Option<PathBuf> {
    path.ancestors().skip(1).find_map(|above| {
        let real = above.canonicalize().ok()?;
        Some(real.join(path.strip_prefix(above).ok()?))
    })
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.path().canonicalize().ok()).collect()
}

/// Whether what has this name in the user's home may be run or obeyed. There is no list of all programs that keep
/// settings there, so every hidden name counts.
fn is_home_name(name: &str) -> bool {
    name.starts_with('.') || name == "bin"
}

/// Whether a path looks like a secret by its last two parts: those above were looked at before.
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
