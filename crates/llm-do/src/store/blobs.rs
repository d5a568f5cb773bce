//! Large values of a run, each in a file that is named by its digest: written once, however often the journal names it.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::files;
use super::layout::{HexDigest, RunId, StoreLayout};
use crate::beneath::Beside;

/// A value of more bytes than this stands in a file of its own.
pub const LARGEST_INLINE: usize = 64 << 10;
/// No value of a run is larger: what says that it is was not written by us.
const LARGEST: u64 = 1 << 30;

/// When something that was written counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once the system has it: the process may be killed.
    Written,
    /// Once the disk has it: the power may be cut.
    Synced,
}

/// The large values of one run.
#[derive(Clone, Debug)]
pub struct BlobFiles {
    directory: PathBuf,
}

impl BlobFiles {
    /// Those of a run of this store.
    pub fn of(layout: &StoreLayout, id: &RunId) -> Self {
        Self { directory: layout.blobs(id) }
    }

    /// Keeps a value, and says by which digest it is found again. One that is there already is not written again.
    pub fn write(&self, value: &[u8], durability: Durability) -> io::Result<HexDigest> {
        let digest = HexDigest::of(value);
        let path = self.directory.join(digest.as_str());
        let found = fs::symlink_metadata(&path);
        if found.is_ok_and(|found| found.is_file() && found.len() == value.len() as u64) {
            return Ok(digest);
        }
        files::make_inside(&self.directory)?;
        let directory = Dir::open_ambient_dir(&self.directory, ambient_authority())?;
        let beside = Beside::of_clean(directory, OsStr::new(digest.as_str()), 0o600)?;
        let mut file = beside.file();
        file.write_all(value)?;
        if durability == Durability::Synced {
            file.sync_all()?;
        }
        beside.replace()?;
        Ok(digest)
    }

    /// Reads a value. One that is not what its name says is an error.
    pub fn read(&self, digest: &HexDigest) -> io::Result<Vec<u8>> {
        let value = files::read_whole(&self.directory.join(digest.as_str()), LARGEST)?;
        let changed = || io::Error::new(io::ErrorKind::InvalidData, format!("the value {digest} was changed"));
        if HexDigest::of(&value) == *digest { Ok(value) } else { Err(changed()) }
    }

    /// The digests of all values that are there, in order.
    pub fn digests(&self) -> io::Result<Vec<HexDigest>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.flatten().filter_map(|entry| HexDigest::parse(entry.file_name().to_str()?));
        let mut digests: Vec<HexDigest> = names.collect();
        digests.sort();
        Ok(digests)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn blobs(state: &std::path::Path) -> BlobFiles {
        let (layout, id) = (StoreLayout::new(state), RunId::new(1, 1));
        fs::create_dir_all(layout.run(&id)).unwrap();
        BlobFiles::of(&layout, &id)
    }

    #[test]
    fn a_value_is_written_once_and_read_as_it_was() {
        let state = tempfile::tempdir().unwrap();
        let blobs = blobs(state.path());
        assert!(blobs.digests().unwrap().is_empty());
        let gone = BlobFiles::of(&StoreLayout::new(state.path()), &RunId::new(2, 2));
        assert!(
            gone.write(b"", Durability::Written).is_err() && !gone.directory.exists(),
            "a removed run stays removed"
        );
        let value = vec![7; LARGEST_INLINE + 1];
        let digest = blobs.write(&value, Durability::Written).unwrap();
        let path = blobs.directory.join(digest.as_str());
        let written = path.metadata().unwrap();
        assert_eq!(blobs.write(&value, Durability::Synced).unwrap(), digest);
        assert_eq!(path.metadata().unwrap().ino(), written.ino(), "it is kept");
        assert_eq!(written.permissions().mode() & 0o777, 0o600);
        assert_eq!(blobs.directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(blobs.read(&digest).unwrap(), value);
        let empty = blobs.write(b"", Durability::Written).unwrap();
        assert_eq!(blobs.read(&empty).unwrap(), b"");
        assert_eq!(blobs.digests().unwrap().len(), 2);
        assert_eq!(fs::read_dir(&blobs.directory).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn what_is_not_what_its_name_says_is_refused_and_written_anew() {
        let state = tempfile::tempdir().unwrap();
        let blobs = blobs(state.path());
        let digest = blobs.write(b"value", Durability::Written).unwrap();
        let path = blobs.directory.join(digest.as_str());
        assert_eq!(blobs.read(&HexDigest::of(b"other")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "other").unwrap();
        assert_eq!(blobs.read(&digest).unwrap_err().kind(), io::ErrorKind::InvalidData);
        for short in ["", "valu", "values"] {
            fs::write(&path, short).unwrap();
            assert!(blobs.read(&digest).is_err(), "{short}");
            blobs.write(b"value", Durability::Written).unwrap();
            assert_eq!(blobs.read(&digest).unwrap(), b"value", "{short}");
        }
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        assert!(blobs.read(&digest).is_err(), "a FIFO is not waited for");
        blobs.write(b"value", Durability::Written).unwrap();
        assert_eq!(blobs.read(&digest).unwrap(), b"value");
    }

    #[test]
    fn many_may_write_one_value_at_once() {
        let state = tempfile::tempdir().unwrap();
        let blobs = blobs(state.path());
        let value = vec![7; 1 << 17];
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let digest = blobs.write(&value, Durability::Written).unwrap();
                    assert_eq!(blobs.read(&digest).unwrap(), value);
                });
            }
        });
        assert_eq!(fs::read_dir(&blobs.directory).unwrap().count(), 1);
    }
}
