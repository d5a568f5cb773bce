//! Walks the files beneath a directory: in order, never through links, holding no more descriptors than it is deep, and
//! bounded in number and depth.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::{self, FileOpenError, Identity};
use crate::system;
use crate::tools::secret::looks_secret;

/// A walk stops after this many entries: a longer list would be of no use to a model.
pub(crate) const MOST_VISITED: usize = 500_000;
const DEEPEST: usize = 64;
const LISTING: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a walker makes of what it meets.
pub(crate) trait Visitor {
    /// Whether to go into a directory.
    fn enters(&mut self, path: &Path) -> bool;
    /// Is told of everything that is neither a directory nor a device.
    fn meets(&mut self, path: &Path, kind: WalkEntryKind);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkEntryKind {
    File,
    Link,
}

/// How a walk went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkSummary {
    pub visited: usize,
    /// There was more than a walk goes through.
    pub is_cut: bool,
    /// Directories that could not be listed.
    pub unreadable: usize,
}

/// Everything beneath a directory, in the order of sorted paths. `path` is what the visitor hears before each name.
pub(crate) fn walk(
    directory: &Dir,
    path: &Path,
    visitor: &mut dyn Visitor,
    walked: &mut WalkSummary,
) -> io::Result<()> {
    let mut path = path.as_os_str().as_bytes().to_vec();
    // It may have been opened for searching only, so it is opened again to be listed.
    let start = rustix::fs::openat(directory, c".", LISTING, Mode::empty())?;
    enter(start.as_fd(), &mut path, 0, &mut Vec::with_capacity(AT_ONCE), visitor, walked)
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn enter(
    directory: BorrowedFd<'_>,
    path: &mut Vec<u8>,
    depth: usize,
    buffer: &mut Vec<u8>,
    visitor: &mut dyn Visitor,
    walked: &mut WalkSummary,
) -> io::Result<()> {
    let length = path.len();
    let found = entries(directory, buffer, walked)?;
    for &(start, end, kind) in &found.places {
        let name = &found.names[start..end];
        if path.last().is_some_and(|last| *last != b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        match kind {
            FileType::RegularFile => visitor.meets(as_path(path), WalkEntryKind::File),
            FileType::Symlink => visitor.meets(as_path(path), WalkEntryKind::Link),
            FileType::Directory if !visitor.enters(as_path(path)) => {}
            FileType::Directory if depth == DEEPEST => walked.is_cut = true,
            FileType::Directory => {
                let opened = rustix::fs::openat(directory, name, LISTING, Mode::empty()).map_err(io::Error::from);
                // One directory that cannot be read does not hide the others.
                if opened.and_then(|inner| enter(inner.as_fd(), path, depth + 1, buffer, visitor, walked)).is_err() {
                    walked.unreadable += 1;
                }
            }
            _ => {}
        }
        path.truncate(length);
    }
    Ok(())
}

/// What is in a directory: all names in one piece of memory, and of each its start, its end and what has it.
#[derive(Default)]
struct Entries {
    names: Vec<u8>,
    places: Vec<(usize, usize, FileType)>,
}

/// The names in a directory that was just opened, sorted.
fn entries(directory: BorrowedFd<'_>, buffer: &mut Vec<u8>, walked: &mut WalkSummary) -> io::Result<Entries> {
    let Entries { mut names, mut places } = Entries::default();
    system::list(directory, buffer, |name, kind| {
        if name == c"." || name == c".." {
            return ControlFlow::Continue(());
        }
        walked.visited += 1;
        if walked.visited > MOST_VISITED {
            walked.is_cut = true;
            return ControlFlow::Break(());
        }
        let kind = match kind {
            FileType::Unknown => match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => return ControlFlow::Continue(()),
            },
            kind => kind,
        };
        let start = names.len();
        names.extend_from_slice(name.to_bytes());
        places.push((start, names.len(), kind));
        ControlFlow::Continue(())
    })?;
    let name = |&(start, end, _): &(usize, usize, FileType)| &names[start..end];
    places.sort_unstable_by(|one, other| name(one).cmp(name(other)));
    Ok(Entries { names, places })
}

/// So many bytes of names are read at once. All directories of a walk share them, and they are not filled with zeros
/// first: for a small directory that would cost more than everything else.
const AT_ONCE: usize = 32 * 1024;

/// The name of a file that looks like a secret, if the file of this identity has one beneath the directory.
pub(crate) fn secret_with(root: &Dir, identity: Identity) -> Result<Option<PathBuf>, FileOpenError> {
    let mut search = IdentitySearch { root, identity, found: None };
    let mut walked = WalkSummary::default();
    walk(root, Path::new(""), &mut search, &mut walked)?;
    match search.found {
        None if walked.is_cut => Err(FileOpenError::Io(Errno::OVERFLOW.into())),
        found => Ok(found),
    }
}

/// All files beneath the directory whose names look like secrets. An error if there is too much to look through.
pub(super) fn secrets_beneath(root: &Dir) -> Result<HashSet<Identity>, FileOpenError> {
    let mut search = SecretSearch { root, found: HashSet::new() };
    let mut walked = WalkSummary::default();
    walk(root, Path::new(""), &mut search, &mut walked)?;
    if walked.is_cut { Err(FileOpenError::Io(Errno::OVERFLOW.into())) } else { Ok(search.found) }
}

struct SecretSearch<'a> {
    root: &'a Dir,
    found: HashSet<Identity>,
}

impl Visitor for SecretSearch<'_> {
    fn enters(&mut self, _: &Path) -> bool {
        true
    }

    fn meets(&mut self, path: &Path, kind: WalkEntryKind) {
        if kind == WalkEntryKind::File && looks_secret(path) {
            let place = beneath::resolve(self.root, path).ok();
            self.found.extend(place.and_then(|place| place.found).map(|found| found.identity));
        }
    }
}

struct IdentitySearch<'a> {
    root: &'a Dir,
    identity: Identity,
    found: Option<PathBuf>,
}

impl Visitor for IdentitySearch<'_> {
    fn enters(&mut self, _: &Path) -> bool {
        self.found.is_none()
    }

    fn meets(&mut self, path: &Path, kind: WalkEntryKind) {
        let is_it = || {
            let place = beneath::resolve(self.root, path).ok();
            place.and_then(|place| place.found).is_some_and(|found| found.identity == self.identity)
        };
        if self.found.is_none() && kind == WalkEntryKind::File && looks_secret(path) && is_it() {
            self.found = Some(path.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Everything(Vec<String>);

    impl Visitor for Everything {
        fn enters(&mut self, _: &Path) -> bool {
            true
        }

        fn meets(&mut self, path: &Path, kind: WalkEntryKind) {
            let mark = if kind == WalkEntryKind::Link { "@" } else { "" };
            self.0.push(format!("{}{mark}", path.display()));
        }
    }

    fn walked_from(root: &Path, start: WalkSummary) -> (Vec<String>, WalkSummary) {
        let directory = Dir::open_ambient_dir(root, cap_std::ambient_authority()).unwrap();
        let (mut everything, mut walked) = (Everything::default(), start);
        walk(&directory, Path::new("x"), &mut everything, &mut walked).unwrap();
        (everything.0, walked)
    }

    #[test]
    fn a_walk_is_in_order_and_enters_no_link() {
        let root = tempfile::tempdir().unwrap();
        for path in ["b", "a-b", "a/c", "a/B", "a.txt"] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(".", root.path().join("loop")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
        let (met, walked) = walked_from(root.path(), WalkSummary::default());
        assert_eq!(met, ["x/a/B", "x/a/c", "x/a-b", "x/a.txt", "x/b", "x/loop@"]);
        assert_eq!(walked, WalkSummary { visited: 8, ..WalkSummary::default() });
    }

    #[test]
    fn a_walk_ends_after_so_many_entries_and_so_deep() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..9 {
            std::fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        let (met, walked) =
            walked_from(root.path(), WalkSummary { visited: MOST_VISITED - 4, ..WalkSummary::default() });
        assert_eq!((met.len(), walked.is_cut), (4, true));
        let deep: PathBuf = std::iter::repeat_n("d", 2 * DEEPEST).collect();
        std::fs::create_dir_all(root.path().join(&deep)).unwrap();
        std::fs::write(root.path().join(deep).join("f"), "").unwrap();
        let (met, walked) = walked_from(root.path(), WalkSummary::default());
        assert_eq!((met.len(), walked.is_cut), (9, true));
    }
}
