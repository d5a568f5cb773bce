//! A file beside its place, put there when it is whole: a reader sees the old or the new, never a half. What a process left
//! that was killed meanwhile has a name by which the next one knows it.
//!
//! A caller that has the whole content at hand calls [`replace`] or [`replace_path`], which every such write goes
//! through; a journal keeps its file open and locked, and takes the steps by itself.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{Gid, RenameFlags, Uid};

/// Who may do what with a file that is put in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// As any new file.
    Usual,
    /// Only the user may read and write it.
    Private,
    /// As the file that was there.
    Kept {
        /// The bits of its mode.
        mode: u32,
        /// The user that owns it.
        owner: u32,
        /// The group that owns it.
        group: u32,
    },
}

impl FileAccess {
    /// That of the file at this path; the usual one if there is none.
    #[cfg(feature = "front-end")]
    pub fn of_path(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;

        path.symlink_metadata().ok().filter(std::fs::Metadata::is_file).map_or(Self::Usual, |found| Self::Kept {
            mode: found.mode() & 0o7777,
            owner: found.uid(),
            group: found.gid(),
        })
    }

    fn mode_of_new(self) -> u32 {
        match self {
            Self::Usual | Self::Kept { .. } => 0o666,
            Self::Private => 0o600,
        }
    }
}

/// Puts a file with this content in a place of a directory: all of it, on the disk, or nothing changes. A link that is
/// there is replaced, not followed.
pub(crate) fn replace(directory: Dir, name: &OsStr, content: &[u8], access: FileAccess) -> io::Result<()> {
    let beside = Beside::of(directory, name, access.mode_of_new())?;
    let mut file = beside.file();
    file.write_all(content)?;
    if let FileAccess::Kept { mode, owner, group } = access {
        // Only a process that may give files away can keep another owner, so an error is ignored; the mode is set
        // afterwards, since this clears it.
        let _ = rustix::fs::fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)));
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.sync_all()?;
    beside.replace().map(drop)
}

/// The same for a path of the user's.
pub fn replace_path(path: &Path, content: &[u8], access: FileAccess) -> io::Result<()> {
    let (directory, name) = split(path)?;
    replace(directory, name, content, access)
}

/// Puts a new file with this content at a path of the user's: all of it, on the disk. Of several that do so at once exactly
/// one succeeds; the others are told [`io::ErrorKind::AlreadyExists`], and the file that is there then is whole.
pub fn create_path(path: &Path, content: &[u8], access: FileAccess) -> io::Result<()> {
    let beside = Beside::of_path(path, access.mode_of_new())?;
    let mut file = beside.file();
    file.write_all(content)?;
    file.sync_all()?;
    beside.place_first()
}

/// Whether a file could be put in a place: says why not, and leaves nothing there.
#[cfg(feature = "front-end")]
pub fn check_path(path: &Path) -> io::Result<()> {
    Beside::of_path(path, FileAccess::Usual.mode_of_new()).map(drop)
}

/// The directory that holds a path, and the name in it.
fn split(path: &Path) -> io::Result<(Dir, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((Dir::open_ambient_dir(directory, ambient_authority())?, name))
}

/// A file that is being written beside its place. Dropped before it was put in its place, it is removed.
#[derive(Debug)]
pub(crate) struct Beside {
    directory: Dir,
    /// Where it is meant to be.
    name: OsString,
    /// Where it is.
    temporary: OsString,
    file: File,
    is_placed: bool,
}

/// How the names of such files end.
const ENDING: &str = ".llm-do-tmp";
/// No write of a file takes so long: what is older was left by a process that was killed.
const OLD: Duration = Duration::from_hours(1);
/// A directory with more entries is not searched for what others left, since that would take too long for one write.
const MOST_ENTRIES: usize = 10_000;
/// So much of the file's name is kept, so that the temporary name is not longer than the system allows.
const LONGEST_NAME: usize = 160;

impl Beside {
    /// A new file for this name in a directory; what others left there long ago is removed. The mode is that of any new
    /// file, or narrower.
    pub(crate) fn of(directory: Dir, name: &OsStr, mode: u32) -> io::Result<Self> {
        remove_left(&directory);
        Self::of_clean(directory, name, mode)
    }

    /// The same in a directory that is removed as a whole one day, or that is written to often: it is not searched for what
    /// others left.
    pub(crate) fn of_clean(directory: Dir, name: &OsStr, mode: u32) -> io::Result<Self> {
        const MOST_ATTEMPTS: usize = 100;
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
    pub(crate) fn of_path(path: &Path, mode: u32) -> io::Result<Self> {
        let (directory, name) = split(path)?;
        Self::of(directory, name, mode)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Puts it in its place. A link that is there is replaced, not followed.
    pub(crate) fn replace(mut self) -> io::Result<File> {
        self.directory.rename(&self.temporary, &self.directory, &self.name)?;
        self.is_placed = true;
        self.file.try_clone()
    }

    /// Puts it in its place if nothing is there. Of several that do so at once exactly one succeeds; the others are told
    /// [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn place_first(mut self) -> io::Result<()> {
        // Its other name goes when it is dropped.
        let linked = self.directory.hard_link(&self.temporary, &self.directory, &self.name);
        let Err(error) = linked else { return Ok(()) };
        if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) {
            return Err(error);
        }
        // A disk without links, such as one that is carried about.
        let (from, to) = (&self.temporary, &self.name);
        rustix::fs::renameat_with(&self.directory, from, &self.directory, to, RenameFlags::NOREPLACE)?;
        self.is_placed = true;
        Ok(())
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

/// Removes what was left by processes that ended in the middle of a write.
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

    use std::os::unix::fs::MetadataExt as _;

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
    fn what_replaces_a_file_keeps_who_may_read_it_and_a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mode = |name: &str| fs::symlink_metadata(at(name)).unwrap().mode() & 0o7777;
        fs::write(at("old"), "old").unwrap();
        fs::set_permissions(at("old"), Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("old", at("link")).unwrap();
        assert_eq!(FileAccess::of_path(&at("link")), FileAccess::Usual, "a link says nothing of the file");
        replace_path(&at("link"), b"new", FileAccess::of_path(&at("link"))).unwrap();
        assert_eq!((fs::read(at("old")).unwrap(), fs::read(at("link")).unwrap()), (b"old".to_vec(), b"new".to_vec()));
        replace_path(&at("old"), b"newer", FileAccess::of_path(&at("old"))).unwrap();
        assert_eq!((fs::read(at("old")).unwrap(), mode("old")), (b"newer".to_vec(), 0o640));
        replace_path(&at("key"), b"k", FileAccess::Private).unwrap();
        assert_eq!(mode("key"), 0o600);
        assert!(replace_path(&at("none/x"), b"", FileAccess::Usual).is_err());
        assert_eq!(names(directory.path()), ["key", "link", "old"]);
    }

    #[test]
    fn what_is_there_first_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        for content in [b"one", b"two"] {
            let beside = Beside::of_path(&path, 0o600).unwrap();
            beside.file().write_all(content).unwrap();
            let placed = beside.place_first().map_err(|error| error.kind());
            assert_eq!(placed, if content == b"one" { Ok(()) } else { Err(io::ErrorKind::AlreadyExists) });
        }
        assert_eq!((names(directory.path()), fs::read(&path).unwrap()), (vec!["a.txt".to_owned()], b"one".to_vec()));
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
