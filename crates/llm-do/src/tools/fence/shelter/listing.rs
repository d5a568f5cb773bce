//! What a directory holds, read again only when it has changed: before every command a whole tree is looked at.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::Access;

use crate::beneath::Identity;
use crate::tools::protected::KeptFrom;
use crate::tools::repository;

/// The entries of a directory that the search has to look at.
#[derive(Debug)]
pub(crate) struct DirectoryListing {
    /// How many there are in all.
    pub entries: usize,
    pub directories: Vec<PathBuf>,
    /// The entries whose names mean something, and what they mean.
    pub marked: Vec<(PathBuf, Mark)>,
    /// It is a directory of `git` whatever it is called.
    pub is_repository: bool,
    /// None if it changed just now: a clock that is too coarse would not tell the next change.
    stamp: Option<Stamp>,
}

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Repository,
    Secret,
    Protected(KeptFrom),
}

/// A directory and the time at which the kernel saw it change, which no command can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    identity: Identity,
    changed: (i64, i64),
}

/// Why a directory could not be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryListingError {
    /// It is not there any more.
    Gone,
    /// No process may look into it until its owner changes that, which a command could do.
    Closed,
    /// It cannot be listed for a reason that need not hold for a command that looks from nearer: its path is too long.
    Unknown,
}

impl From<io::Error> for DirectoryListingError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Gone,
            io::ErrorKind::PermissionDenied => Self::Closed,
            _ => Self::Unknown,
        }
    }
}

/// Listings by directory.
#[derive(Debug, Default)]
pub(crate) struct Listings(HashMap<PathBuf, DirectoryListing>);

/// How coarse the clock of a file system may be.
const COARSE: Duration = Duration::from_millis(100);

impl Listings {
    /// What is in a directory now.
    pub(crate) fn of(
        &mut self,
        directory: &Path,
        most: usize,
        meaning: Meaning<'_>,
    ) -> Result<&DirectoryListing, DirectoryListingError> {
        let stamp = Stamp::of(directory)?;
        let is_known = self.0.get(directory).is_some_and(|listing| listing.stamp == Some(stamp));
        if !is_known {
            let listing = DirectoryListing::read(directory, stamp, most, meaning)?;
            self.0.insert(directory.to_owned(), listing);
        }
        self.0.get(directory).ok_or(DirectoryListingError::Unknown)
    }
}

/// What an entry means, by its path and kind, and whether what is in it is looked at.
pub(crate) type Meaning<'a> = &'a dyn Fn(&Path, fs::FileType) -> (Option<Mark>, bool);

impl DirectoryListing {
    fn read(directory: &Path, stamp: Stamp, most: usize, meaning: Meaning<'_>) -> Result<Self, DirectoryListingError> {
        // Names that can be listed are of no use where none of them leads anywhere, so such a directory counts as
        // closed.
        rustix::fs::access(directory, Access::EXEC_OK).map_err(io::Error::from)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let stamp = Some(stamp).filter(|stamp| stamp.since_epoch() + COARSE < now);
        let mut listing = Self { entries: 0, directories: Vec::new(), marked: Vec::new(), is_repository: false, stamp };
        for entry in fs::read_dir(directory)?.flatten().take(most) {
            listing.entries += 1;
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            let (mark, is_entered) = meaning(&path, kind);
            listing.is_repository |= kind.is_dir() && entry.file_name() == repository::MARKS[0];
            if is_entered && kind.is_dir() {
                listing.directories.push(path.clone());
            }
            listing.marked.extend(mark.map(|mark| (path, mark)));
        }
        listing.is_repository = listing.is_repository && repository::is_directory(directory);
        Ok(listing)
    }
}

impl Stamp {
    fn of(directory: &Path) -> Result<Self, DirectoryListingError> {
        let metadata = fs::symlink_metadata(directory)?;
        if !metadata.is_dir() {
            return Err(DirectoryListingError::Gone);
        }
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Self { identity: Identity::of_file_metadata(&metadata), changed })
    }

    fn since_epoch(self) -> Duration {
        let (seconds, nanoseconds) = self.changed;
        Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0))
    }
}
