//! Where a path leads: found part by part and link by link, each directory held by its descriptor.
//!
//! The kernel can open a path beneath a directory, but does not say which file that was. Code that judges a file by
//! its name must know the name behind all links, of exactly the file that is then opened: so the links are followed
//! here. If another process changes something meanwhile, the walk ends elsewhere beneath the start or fails; name and
//! file never differ.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::{Dir, File};
#[cfg(any(test, feature = "internals"))]
use cap_std::fs::{Metadata, MetadataExt as _};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::FileOpenError;
use crate::system;

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// Each directory on the way is held open.
const DEEPEST: usize = 256;

/// Identifies a file, whatever name it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of what a path leads to, anywhere.
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(Self::of(&rustix::fs::stat(path)?))
    }

    /// The identity of a file that is held open; an error is what the kernel says.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }

    /// The identity of the file whose metadata the standard library has read.
    pub(crate) fn of_file_metadata(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// The identity of the file whose metadata was read.
    #[cfg(any(test, feature = "internals"))]
    pub(crate) fn of_metadata(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    fn of(stat: &Stat) -> Self {
        let (device, inode) = system::identity(stat);
        Self { device, inode }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

/// What is at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileDetails {
    pub identity: Identity,
    pub kind: FileKind,
    /// How many names the file has.
    pub names: u64,
    pub bytes: u64,
    /// The nine bits of who may read, write and run it.
    pub mode: u32,
    pub owner: u32,
    pub group: u32,
}

/// What a path leads to; `Other` is neither a file to read nor a directory, such as a socket, a pipe or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Regular,
    Directory,
    Other,
}

impl FileDetails {
    #[expect(clippy::useless_conversion, reason = "how wide the count of names is differs by processor")]
    fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        };
        Self {
            identity: Identity::of(stat),
            kind,
            names: u64::from(stat.st_nlink),
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            mode: system::permissions(stat),
            owner: stat.st_uid,
            group: stat.st_gid,
        }
    }
}

/// A place beneath a directory, whether or not something is there.
#[derive(Debug)]
pub(crate) struct Place {
    /// Beneath the start, without links.
    pub path: PathBuf,
    /// The directories of `path` that exist, the start first.
    pub directories: Vec<Identity>,
    /// `None`: nothing is there.
    pub found: Option<FileDetails>,
    /// The deepest directory that exists, and the names from it on: none if the place is that directory.
    directory: Dir,
    names: Vec<OsString>,
}

/// Finds where a path leads. `..` goes up as far as the start, links are followed as long as they stay beneath it. Parts
/// that do not exist may only be at the end, and none behind a link that leads nowhere.
pub(crate) fn resolve(start: &Dir, path: &Path) -> Result<Place, FileOpenError> {
    let mut walk = PathWalk::from(start)?;
    let mut waiting = VecDeque::new();
    let mut links = 0;
    put_in_front(&mut waiting, path, PathSource::Caller)?;
    while let Some((step, source)) = waiting.pop_front() {
        let name = match step {
            PathPart::Up => {
                walk.up()?;
                continue;
            }
            PathPart::Into(name) => name,
        };
        match walk.look(&name)? {
            PathEntry::Nothing => return walk.missing(name, source, waiting),
            PathEntry::Directory(directory, found) => walk.enter(name, directory, found)?,
            PathEntry::Link(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(FileOpenError::Io(Errno::LOOP.into()));
                }
                put_in_front(&mut waiting, &target, PathSource::Link)?;
            }
            PathEntry::File(found) if waiting.is_empty() => return Ok(walk.file(name, found)),
            PathEntry::File(_) => return Err(FileOpenError::Io(Errno::NOTDIR.into())),
        }
    }
    Ok(walk.arrived())
}

enum PathPart {
    Up,
    Into(OsString),
}

/// Who wrote a part of the path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathSource {
    Caller,
    Link,
}

fn put_in_front(
    waiting: &mut VecDeque<(PathPart, PathSource)>,
    path: &Path,
    source: PathSource,
) -> Result<(), FileOpenError> {
    let steps = path.components().filter_map(|component| match component {
        Component::CurDir => None,
        Component::Normal(name) => Some(Ok(PathPart::Into(name.to_owned()))),
        Component::ParentDir => Some(Ok(PathPart::Up)),
        Component::RootDir | Component::Prefix(_) => Some(Err(FileOpenError::Outside)),
    });
    for step in steps.rev() {
        waiting.push_front((step?, source));
    }
    Ok(())
}

enum PathEntry {
    Nothing,
    Directory(Dir, FileDetails),
    Link(PathBuf),
    File(FileDetails),
}

/// The directories from the start to where the walk is.
struct PathWalk {
    opened: Vec<(Dir, FileDetails)>,
    names: Vec<OsString>,
}

impl PathWalk {
    fn from(start: &Dir) -> Result<Self, FileOpenError> {
        let found = FileDetails::of(&rustix::fs::fstat(start).map_err(io::Error::from)?);
        Ok(Self { opened: vec![(start.try_clone()?, found)], names: Vec::new() })
    }

    fn here(&self) -> &Dir {
        &self.opened.last().expect("the start is never left").0
    }

    fn up(&mut self) -> Result<(), FileOpenError> {
        match self.names.pop() {
            Some(_) => drop(self.opened.pop()),
            None => return Err(FileOpenError::Outside),
        }
        Ok(())
    }

    fn enter(&mut self, name: OsString, directory: Dir, found: FileDetails) -> Result<(), FileOpenError> {
        if self.names.len() >= DEEPEST {
            return Err(FileOpenError::Io(Errno::NAMETOOLONG.into()));
        }
        self.opened.push((directory, found));
        self.names.push(name);
        Ok(())
    }

    fn look(&self, name: &OsStr) -> Result<PathEntry, FileOpenError> {
        let stat = match rustix::fs::statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(PathEntry::Nothing),
            Err(error) => return Err(failed(error)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(self.here(), name, Vec::new()).map_err(failed)?;
                Ok(PathEntry::Link(PathBuf::from(OsString::from_vec(target.into_bytes()))))
            }
            FileType::Directory => {
                let (directory, found) = open_directory(self.here(), name)?;
                Ok(PathEntry::Directory(directory, found))
            }
            _ => Ok(PathEntry::File(FileDetails::of(&stat))),
        }
    }

    fn missing(
        self,
        name: OsString,
        source: PathSource,
        waiting: VecDeque<(PathPart, PathSource)>,
    ) -> Result<Place, FileOpenError> {
        let mut names = vec![name];
        for (step, _) in waiting {
            match step {
                PathPart::Into(name) if source == PathSource::Caller => names.push(name),
                PathPart::Into(_) | PathPart::Up => return Err(FileOpenError::Missing),
            }
        }
        if source == PathSource::Link || self.names.len() + names.len() > DEEPEST {
            return Err(FileOpenError::Missing);
        }
        Ok(self.place(names, None))
    }

    fn file(self, name: OsString, found: FileDetails) -> Place {
        self.place(vec![name], Some(found))
    }

    fn arrived(self) -> Place {
        let found = self.opened.last().map(|(_, found)| found.clone());
        self.place(Vec::new(), found)
    }

    fn place(mut self, names: Vec<OsString>, found: Option<FileDetails>) -> Place {
        let directories = self.opened.iter().map(|(_, found)| found.identity).collect();
        let (directory, _) = self.opened.pop().expect("the start is never left");
        Place { path: self.names.iter().chain(&names).collect(), directories, found, directory, names }
    }
}

/// An error of the kernel. If another process changed something during the walk, it is reported like any other
/// failure.
fn failed(error: Errno) -> FileOpenError {
    FileOpenError::Io(error.into())
}

fn open_directory(parent: &Dir, name: &OsStr) -> Result<(Dir, FileDetails), FileOpenError> {
    let flags = system::SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened: OwnedFd = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(failed)?;
    let found = FileDetails::of(&rustix::fs::fstat(opened.as_fd()).map_err(failed)?);
    Ok((Dir::from(opened), found))
}

impl Place {
    /// Opens the regular file that is there, for reading.
    pub(crate) fn open(&self) -> Result<File, FileOpenError> {
        let name = match (&self.found, self.names.as_slice()) {
            (None, _) => return Err(FileOpenError::Missing),
            (Some(FileDetails { kind: FileKind::Regular, .. }), [name]) => name,
            (Some(_), _) => return Err(FileOpenError::NotRegular),
        };
        // Non-blocking, because what is there now may be a FIFO.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.directory, name, flags, Mode::empty()).map_err(failed)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(FileOpenError::NotRegular) }
    }

    /// Opens the directory that is there, for listing.
    pub(crate) fn open_directory(&self) -> Result<Dir, FileOpenError> {
        match self.found.as_ref().map(|found| found.kind) {
            None => return Err(FileOpenError::Missing),
            Some(FileKind::Directory) => {}
            Some(FileKind::Regular | FileKind::Other) => return Err(FileOpenError::Io(Errno::NOTDIR.into())),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir::from(rustix::fs::openat(&self.directory, ".", flags, Mode::empty()).map_err(failed)?))
    }

    /// Whether the file that is there may be written, by its permissions.
    pub(crate) fn is_writable(&self) -> bool {
        let access = rustix::fs::Access::WRITE_OK;
        let allowed = |name: &OsString| rustix::fs::accessat(&self.directory, name, access, AtFlags::EACCESS).is_ok();
        self.names.first().is_none_or(allowed)
    }

    /// The directory that the place is in, and its name there. Directories that are missing are made; none of them
    /// can be a link that another process put there meanwhile.
    pub(crate) fn make_parent(&self) -> Result<(Dir, &OsStr), FileOpenError> {
        let (name, above) = self.names.split_last().ok_or(FileOpenError::NotRegular)?;
        let mut parent = self.directory.try_clone()?;
        for name in above {
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => parent = open_directory(&parent, name)?.0,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok((parent, name))
    }

    /// Makes the place a directory, with those above it that are missing.
    pub(crate) fn make_directory(&self) -> Result<Dir, FileOpenError> {
        if self.names.is_empty() {
            return Ok(self.directory.try_clone()?);
        }
        let (parent, name) = self.make_parent()?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(open_directory(&parent, name)?.0),
            Err(error) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests;
