//! Where programs behind a fence put what no other program reads. A process that is killed leaves its directories
//! behind; the next one that makes some knows them by their names, and by the locks that no process holds any more.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};

/// Where there is always a place for temporary files.
const COMMON: &str = "/tmp";
/// How the names begin; sixteen digits follow.
const BEGINNING: &str = "llm-do-private-";
/// A younger directory may just have been made and not be locked yet.
const OLD: Duration = Duration::from_hours(1);
/// How many entries of a directory are looked at in search of what was left behind.
const MOST_ENTRIES: usize = 10_000;

/// Where the private directories of a session are made.
#[derive(Debug)]
pub struct TemporaryPlace {
    directory: PathBuf,
    swept: Once,
}

impl TemporaryPlace {
    /// The user's own place for temporary files, if there is one.
    pub fn new(own: Option<&Path>) -> Self {
        let own = own.filter(|own| own.is_absolute());
        Self { directory: own.unwrap_or(Path::new(COMMON)).to_owned(), swept: Once::new() }
    }

    /// A new directory that no other user may enter. It is never inside of the project, whose tools would read and
    /// write it.
    fn make(&self, project: &Path) -> Result<LockedDirectory, String> {
        let failed = |error: io::Error| format!("no private directory beneath `{}`: {error}", self.directory.display());
        let mut place = self.directory.canonicalize().map_err(failed)?;
        if project.canonicalize().is_ok_and(|project| place.starts_with(project)) {
            place = Path::new(COMMON).canonicalize().map_err(failed)?;
        }
        self.swept.call_once(|| remove_left(&place));
        let path = place.join(format!("{BEGINNING}{:016x}", fastrand::u64(..)));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let held = open(&path).map_err(failed)?;
        // Where there are no locks, a process that cleans up gets none either, and it removes only what it could lock.
        let _ = held.try_lock();
        Ok(LockedDirectory { path, held })
    }
}

/// A directory whose lock is held as long as it is used. The lock is on the directory itself, because a file in it
/// could be taken away.
#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    held: File,
}

/// A directory for the commands of one shell alone, or for one program, made when one first needs it, gone with it.
#[derive(Debug, Default)]
pub struct PrivateDirectory(Mutex<Option<LockedDirectory>>);

impl PrivateDirectory {
    /// The path of the directory, which is made when it is first needed. It lies outside of the project, whose tools
    /// must not meet it.
    pub fn path(&self, place: &TemporaryPlace, project: &Path) -> Result<PathBuf, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made {
            return Ok(made.path.clone());
        }
        Ok(made.insert(place.make(project)?).path.clone())
    }

    /// Removes the directory with all that is in it, if one was made; the next use makes a new one.
    pub(crate) fn remove(&self) -> Result<(), String> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match made {
            Some(made) => made.remove().map_err(|error| format!("{}: {error}", made.path.display())),
            None => Ok(()),
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

impl LockedDirectory {
    /// Removes the directory. Programs take permissions from directories of theirs, as some do with what they keep for
    /// later: those are opened first.
    fn remove(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.path).or_else(|_| {
            // If it cannot be opened, removing it fails for the same reason.
            let _ = self.held.set_permissions(Permissions::from_mode(0o700));
            open_beneath(&self.path);
            std::fs::remove_dir_all(&self.path)
        })
    }
}

fn open_beneath(path: &Path) {
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        for inner in entries.filter(is_directory).map(|entry| entry.path()) {
            let _ = std::fs::set_permissions(&inner, Permissions::from_mode(0o700));
            waiting.push(inner);
        }
    }
}

/// A directory itself, never what a link leads to.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn is_private(name: &str) -> bool {
    let digits = name.strip_prefix(BEGINNING);
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Removes what processes of the same user left behind when they were killed.
fn remove_left(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().take(MOST_ENTRIES).flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_private)) {
        let path = entry.path();
        let Ok(held) = open(&path) else { continue };
        let Ok(metadata) = held.metadata() else { continue };
        let age = metadata.modified().ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
        let is_old = age.is_some_and(|age| age > OLD);
        if is_old && metadata.uid() == rustix::process::geteuid().as_raw() && held.try_lock().is_ok() {
            let _ = LockedDirectory { path, held }.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ELSEWHERE: &str = "/nonexistent";

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn age(path: &Path) {
        File::open(path).unwrap().set_modified(SystemTime::now() - OLD - OLD).unwrap();
    }

    #[test]
    fn a_private_directory_lies_where_the_user_wants_it_and_is_gone_afterwards() {
        let own = tempfile::tempdir().unwrap();
        let place = TemporaryPlace::new(Some(own.path()));
        let private = PrivateDirectory::default();
        let path = private.path(&place, Path::new(ELSEWHERE)).unwrap();
        assert_eq!(path.parent(), Some(own.path().canonicalize().unwrap().as_path()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(private.path(&place, Path::new(ELSEWHERE)).unwrap(), path, "there is one");
        drop(private);
        assert!(names(own.path()).is_empty());
        let missing = TemporaryPlace::new(Some(Path::new("/nonexistent/t")));
        let words = PrivateDirectory::default().path(&missing, Path::new(ELSEWHERE)).unwrap_err();
        assert!(words.starts_with("no private directory beneath `/nonexistent/t`: "), "{words}");
        assert_eq!(TemporaryPlace::new(Some(Path::new("relative"))).directory, Path::new(COMMON));
    }

    #[test]
    fn tools_of_a_project_do_not_meet_it() {
        let project = tempfile::tempdir().unwrap();
        let own = project.path().join("t");
        fs::create_dir(&own).unwrap();
        let private = PrivateDirectory::default();
        let path = private.path(&TemporaryPlace::new(Some(&own)), project.path()).unwrap();
        assert!(!path.starts_with(project.path().canonicalize().unwrap()), "{}", path.display());
    }

    #[test]
    fn what_the_killed_left_is_removed_and_nothing_else_is() {
        let own = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = own.path().join(name);
            fs::create_dir_all(path.join("a/b")).unwrap();
            fs::set_permissions(path.join("a"), Permissions::from_mode(0o000)).unwrap();
            path
        };
        age(&make("llm-do-private-0123456789abcdef"));
        make("llm-do-private-0000000000000001");
        let others = ["llm-do-0123456789abcdef", "llm-do-private-0123", "mine-llm-do-private-0123456789abcdef"];
        for name in others {
            age(&make(name));
        }
        let target = make("target");
        age(&target);
        let link = "llm-do-private-0000000000000002";
        std::os::unix::fs::symlink(&target, own.path().join(link)).unwrap();
        let file = "llm-do-private-0000000000000003";
        fs::write(own.path().join(file), "").unwrap();
        age(&own.path().join(file));
        let used = PrivateDirectory::default();
        let path = used.path(&TemporaryPlace::new(Some(own.path())), Path::new(ELSEWHERE)).unwrap();
        let in_use = path.file_name().unwrap().to_str().unwrap();
        age(&path);
        // A process that begins now looks again.
        let next = PrivateDirectory::default();
        next.path(&TemporaryPlace::new(Some(own.path())), Path::new(ELSEWHERE)).unwrap();
        drop(next);
        let kept = ["llm-do-private-0000000000000001", "target", link, file, in_use];
        let mut kept: Vec<&str> = others.into_iter().chain(kept).collect();
        kept.sort_unstable();
        assert_eq!(names(own.path()), kept);
        for name in kept {
            let _ = fs::set_permissions(own.path().join(name).join("a"), Permissions::from_mode(0o700));
        }
    }
}
