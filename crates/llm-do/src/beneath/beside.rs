//! A file beside its place, put there when it is whole: a reader sees the old or the new, never a half. What a process left
//! that was killed meanwhile has a name by which the next one knows it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};

/// Dropped before it was put in its place, it is gone.
#[derive(Debug)]
pub struct Beside {
    directory: Dir,
    /// Where it is meant to be.
    name: OsString,
    /// Where it is.
    temporary: OsString,
    file: File,
    is_placed: bool,
}

/// How the names end.
const ENDING: &str = ".llm-do-tmp";
/// Nobody takes so long to write a file.
const OLD: Duration = Duration::from_hours(1);
/// Of a directory with more entries nobody looks at all of them for the sake of one write.
const MOST_ENTRIES: usize = 10_000;
/// So much of a name is kept, so that the whole fits into a name.
const LONGEST_NAME: usize = 160;

impl Beside {
    /// A new file for this name in a directory; what others left there long ago is removed. The mode is that of any new
    /// file, or narrower.
    pub fn of(directory: Dir, name: &OsStr, mode: u32) -> io::Result<Self> {
        const MOST_ATTEMPTS: usize = 100;
        remove_left(&directory);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        let mut attempts = (0..MOST_ATTEMPTS).map(|_| {
            let temporary = temporary(name);
            directory.open_with(&temporary, &options).map(|file| (temporary, file.into_std()))
        });
        let is_taken =
            |made: &io::Result<_>| matches!(made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
        let made = attempts.find(|made| !is_taken(made)).unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()));
        let (temporary, file) = made?;
        Ok(Self { directory, name: name.to_owned(), temporary, file, is_placed: false })
    }

    /// The same for a path of the user's.
    pub fn of_path(path: &Path, mode: u32) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::of(Dir::open_ambient_dir(directory, ambient_authority())?, name, mode)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Puts it in its place. A link that is there is replaced, not followed.
    pub fn replace(mut self) -> io::Result<File> {
        self.directory.rename(&self.temporary, &self.directory, &self.name)?;
        self.is_placed = true;
        self.file.try_clone()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = self.directory.remove_file(&self.temporary);
        }
    }
}

/// `.NAME.<pid>-<random>.llm-do-tmp`: no two writers share one.
fn temporary(name: &OsStr) -> OsString {
    let name = name.to_string_lossy();
    let kept = &name[..name.floor_char_boundary(LONGEST_NAME)];
    format!(".{kept}.{}-{:016x}{ENDING}", std::process::id(), fastrand::u64(..)).into()
}

fn is_temporary(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(ENDING)?.rsplit_once('.'));
    number.and_then(|(_, number)| number.split_once('-')).is_some_and(|(pid, random)| {
        pid.parse::<u32>().is_ok() && random.len() == 16 && random.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// What was left by processes that ended in the middle of a write.
fn remove_left(directory: &Dir) {
    let Ok(entries) = directory.entries() else { return };
    for entry in entries.take(MOST_ENTRIES).flatten().filter(|entry| is_temporary(&entry.file_name())) {
        let found = entry.metadata().ok().filter(cap_std::fs::Metadata::is_file);
        let age = found.and_then(|found| SystemTime::now().duration_since(found.modified().ok()?.into_std()).ok());
        if age.is_some_and(|age| age > OLD) {
            let _ = entry.remove_file();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        let beside = Beside::of_path(&path, 0o666).unwrap();
        beside.file().write_all(b"half").unwrap();
        let [name] = <[String; 1]>::try_from(names(directory.path())).unwrap();
        let number = name.strip_prefix(".a.txt.").unwrap().strip_suffix(".llm-do-tmp").unwrap();
        assert!(number.starts_with(&format!("{}-", std::process::id())), "{name}");
        drop(beside);
        assert!(names(directory.path()).is_empty());
        let beside = Beside::of_path(&path, 0o666).unwrap();
        beside.file().write_all(b"whole").unwrap();
        beside.replace().unwrap();
        assert_eq!((names(directory.path()), fs::read(&path).unwrap()), (vec!["a.txt".to_owned()], b"whole".to_vec()));
    }

    #[test]
    fn two_writers_of_one_file_share_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        let [one, two] = [(); 2].map(|()| Beside::of_path(&path, 0o666).unwrap());
        assert_eq!(names(directory.path()).len(), 2);
        one.file().write_all(b"one").unwrap();
        two.file().write_all(b"two").unwrap();
        two.replace().unwrap();
        one.replace().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn what_was_left_is_removed_after_an_hour_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - OLD - OLD;
        let left = ".a.txt.17-0123456789abcdef.llm-do-tmp";
        let others = [
            ".a.txt.17-0123456789abcdef.llm-do-tmp.txt",
            ".mine.llm-do-tmp",
            "a.txt.17-0123456789abcdef.llm-do-tmp",
            ".a.txt.x-0123456789abcdef.llm-do-tmp",
        ];
        for name in others.iter().chain([&left]) {
            File::create(directory.path().join(name)).unwrap().set_modified(long_ago).unwrap();
        }
        let young = ".b.txt.18-0123456789abcdef.llm-do-tmp";
        File::create(directory.path().join(young)).unwrap();
        Beside::of_path(&directory.path().join("new"), 0o666).unwrap().replace().unwrap();
        let mut kept: Vec<String> = others.iter().chain([&young, &"new"]).map(|name| (*name).to_owned()).collect();
        kept.sort();
        assert_eq!(names(directory.path()), kept);
    }

    #[test]
    fn a_name_may_be_as_long_as_any() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["n".repeat(255), "ü".repeat(127)] {
            Beside::of_path(&directory.path().join(&name), 0o666).unwrap().replace().unwrap();
        }
        assert_eq!(names(directory.path()).len(), 2);
    }
}
