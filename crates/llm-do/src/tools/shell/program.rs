//! Names of programs → files that may run: by name in directories that only the system's owner can write and in those
//! that the user chose, by absolute path where no other user could have put them. A program planted in a project, in
//! the working directory, in a temporary one or in the environment's `PATH` is never found.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::way::{self, PathTrail};
use crate::beneath::Identity;
use crate::escape::visible;
use crate::journal::digest::of_content;
use crate::system;

/// Where programs are looked for, in this order. Children find theirs here too.
pub(crate) const DIRECTORIES: &[&str] =
    &["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin"];

/// Where a program lies, and so who has to agree that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramPlace {
    /// Only root can change it: as good as a name.
    System,
    /// Only the user and root can change it: what it is now can be agreed to.
    Own {
        /// Without links.
        path: PathBuf,
        /// Of its content.
        digest: String,
    },
    /// Nothing is there that could run.
    Missing,
    /// Others could change it, or a run could. Completes "the program …".
    Refused(String),
}

/// A program that was found, as it was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellProgram {
    /// The path by which it is started.
    pub path: PathBuf,
    /// The file that this leads to.
    pub file: PathBuf,
    version: Version,
}

/// Which file it is, and when it last changed in any way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    identity: Identity,
    changed: (i64, i64),
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        let identity = Identity::of_file_metadata(metadata);
        Self { identity, changed: (metadata.ctime(), metadata.ctime_nsec()) }
    }
}

impl ShellProgram {
    /// What is at a path now, if it can be run at all; whether it may is another question.
    pub(crate) fn at(path: PathBuf) -> Option<Self> {
        let metadata = path.metadata().ok().filter(is_executable)?;
        let file = path.canonicalize().ok()?;
        Some(Self { path, file, version: Version::of(&metadata) })
    }

    /// Whether its path still leads to the same file, and that file has not changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.path.metadata().is_ok_and(|metadata| Version::of(&metadata) == self.version)
    }
}

/// Directories that a run, or what it reads, can write: no program is started from beneath them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grounds(Vec<(Identity, String)>);

impl Grounds {
    pub(crate) fn new<'a>(project_root: &Path, working: &Path, written: impl IntoIterator<Item = &'a Path>) -> Self {
        let temporary = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).into_iter().chain([std::env::temp_dir()]);
        let named = |path: &Path, what: String| Some((Identity::of_path(path).ok()?, what));
        let shown = |path: &Path| visible(&path.display().to_string()).into_owned();
        let mut grounds = Vec::new();
        grounds.extend(named(project_root, "the project".to_owned()));
        grounds.extend(named(working, "the working directory".to_owned()));
        grounds.extend(written.into_iter().filter_map(|path| {
            let what = format!("`{}`, which commands or tools may write", shown(path));
            named(path, what)
        }));
        let temporary = temporary.filter_map(|path| named(&path, "a temporary directory".to_owned()));
        grounds.extend(temporary);
        Self(grounds)
    }

    /// Where the program at an absolute path lies.
    pub(crate) fn place(&self, path: &Path) -> ProgramPlace {
        let way = match way::to(path) {
            Ok(way) => way,
            Err(error) => return ProgramPlace::Refused(format!("cannot be looked at: {error}")),
        };
        if let Some(reason) = self.objection(&way) {
            return ProgramPlace::Refused(reason);
        }
        let Some((file, metadata)) = way.arrived.as_ref().filter(|(_, metadata)| is_executable(metadata)) else {
            return ProgramPlace::Missing;
        };
        let owners = way.directories.iter().map(|(_, metadata)| metadata.uid()).chain([metadata.uid()]);
        if owners.max() == Some(0) {
            return ProgramPlace::System;
        }
        match File::open(file).and_then(of_content) {
            Ok(digest) => ProgramPlace::Own { path: file.clone(), digest },
            Err(error) => ProgramPlace::Refused(format!("cannot be read: {error}")),
        }
    }

    /// Why nothing at the end of a way may be run, if so.
    fn objection(&self, way: &PathTrail) -> Option<String> {
        let on_the_way = way.directories.iter().find_map(|(directory, metadata)| {
            let ground = self.0.iter().find(|(identity, _)| *identity == Identity::of_file_metadata(metadata));
            match ground {
                Some((_, what)) => Some(format!("leads into {what}")),
                None if system::shows_processes(directory) => Some("leads through files of processes".to_owned()),
                None => {
                    others_may_write(directory, metadata).map(|who| format!("leads through a directory that {who}"))
                }
            }
        });
        let at_its_end = || {
            let (file, metadata) = way.arrived.as_ref()?;
            others_may_write(file, metadata).map(|who| format!("is a file that {who}"))
        };
        on_the_way.or_else(at_its_end)
    }

    /// Of directories in which the user wants programs to be found, those that may be used, and why the others may not.
    pub(crate) fn own_directories(&self, wanted: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
        let (mut own, mut left_out) = (Vec::new(), Vec::new());
        for path in wanted {
            let judged = match way::to(path) {
                Ok(way) => self.objection(&way.entered()).map_or(Ok(()), Err),
                Err(error) => Err(format!("cannot be looked at: {error}")),
            };
            let shown = path.display().to_string();
            match judged {
                Ok(()) if path.is_absolute() && path.is_dir() => own.push(path.clone()),
                Ok(()) => left_out.push(format!("`{}` is no directory", visible(&shown))),
                Err(reason) => left_out.push(format!("`{}` {reason}", visible(&shown))),
            }
        }
        (own, left_out)
    }
}

/// Who besides the user and root can change a file or a directory, if others can.
fn others_may_write(path: &Path, metadata: &Metadata) -> Option<String> {
    let user = rustix::process::geteuid().as_raw();
    let shown = path.display().to_string();
    if ![0, user].contains(&metadata.uid()) {
        return Some(format!("belongs to somebody else (`{}`)", visible(&shown)));
    }
    (metadata.mode() & 0o022 != 0).then(|| format!("others may write (`{}`)", visible(&shown)))
}

/// What was found, once for each name: what a command means does not change during a run.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    grounds: Grounds,
    /// The user's own, besides the system's.
    directories: Vec<PathBuf>,
    found: Mutex<HashMap<String, Result<ShellProgram, String>>>,
}

impl Programs {
    /// What was found before counts: nothing is looked for again.
    pub(crate) fn new(grounds: Grounds, directories: Vec<PathBuf>, found: &BTreeMap<String, ShellProgram>) -> Self {
        let found = found.iter().map(|(name, program)| (name.clone(), Ok(program.clone()))).collect();
        Self { grounds, directories, found: Mutex::new(found) }
    }

    /// The program, or why there is none.
    pub(crate) fn find(&self, name: &str) -> Result<ShellProgram, String> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(name.to_owned()).or_insert_with(|| self.resolve(name)).clone()
    }

    fn resolve(&self, name: &str) -> Result<ShellProgram, String> {
        let shown = visible(name);
        // A rule may name a program by its path; then only that one is meant.
        if Path::new(name).is_absolute() {
            return match self.grounds.place(Path::new(name)) {
                ProgramPlace::System | ProgramPlace::Own { .. } => {
                    ShellProgram::at(PathBuf::from(name)).ok_or_else(|| format!("`{shown}` is no program"))
                }
                ProgramPlace::Missing => Err(format!("`{shown}` is no program")),
                ProgramPlace::Refused(reason) => Err(format!("`{shown}` {reason}")),
            };
        }
        let directories: Vec<&Path> = self.directories().collect();
        let is_name = !name.is_empty() && !name.contains('/');
        let found = directories.iter().filter(|_| is_name).find_map(|directory| ShellProgram::at(directory.join(name)));
        found.ok_or_else(|| {
            let directories: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
            format!("`{shown}` is not in {}", directories.join(", "))
        })
    }

    /// Where programs are looked for by name.
    fn directories(&self) -> impl Iterator<Item = &Path> + '_ {
        let own = self.directories.iter().map(PathBuf::as_path);
        system_directories().map(|directory| -> &Path { directory }).chain(own)
    }

    /// The value of `PATH` for children.
    pub(crate) fn search_path(&self) -> String {
        self.directories().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(":")
    }

    /// What a fence must let be run besides the system: the user's directories, and a program in them or elsewhere.
    pub(crate) fn run_from(&self, program: &ShellProgram) -> Vec<PathBuf> {
        let is_system = |path: &Path| system_directories().any(|directory| path.starts_with(directory));
        let own = [&program.path, &program.file].into_iter().filter(|path| !is_system(path)).cloned();
        let libraries = self.directories.iter().flat_map(|directory| libraries(directory));
        self.directories.iter().cloned().chain(libraries).chain(own).collect()
    }

    /// Where programs that only start others find them, and the variable that says so to them: a directory in the
    /// user's home.
    pub(crate) fn homes(&self, program: &ShellProgram, home: Option<&Path>) -> Vec<(&'static str, PathBuf)> {
        let is_used = |file: &str| {
            program.file.file_name().is_some_and(|name| name == file)
                || self.directories.iter().any(|directory| directory.join(file).is_file())
        };
        let known = HOMES.iter().filter(|(file, _, _)| is_used(file));
        // A fence shows directories where they are, and no links to them.
        let found = |directory: &str| home?.join(directory).canonicalize().ok().filter(|path| path.is_dir());
        known.filter_map(|(_, directory, variable)| Some((*variable, found(directory)?))).collect()
    }
}

/// The file of such a program, its directory in a home, and the variable that names the directory.
const HOMES: &[(&str, &str, &str)] = &[("rustup", ".rustup", "RUSTUP_HOME")];

/// What lies beside the programs of an installation, and is loaded by them.
fn libraries(directory: &Path) -> Vec<PathBuf> {
    let above = directory.parent().filter(|_| directory.file_name().is_some_and(|name| name == "bin"));
    let beside = above.into_iter().flat_map(|above| ["lib", "lib64", "libexec"].map(|name| above.join(name)));
    beside.filter(|path| path.is_dir()).collect()
}

fn system_directories() -> impl Iterator<Item = &'static Path> {
    DIRECTORIES.iter().map(Path::new).filter(|directory| is_trusted(directory))
}

fn is_executable(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

/// Whether a directory is owned by root, and writable by no other user.
fn is_trusted(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|metadata| metadata.uid() == 0 && metadata.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests;
