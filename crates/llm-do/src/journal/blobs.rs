//! Values that are too large for a line of a journal: each in a file of its own, named by what it holds.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::OFlags;

use super::digest::{is_digest, of_bytes};
use super::file::Durability;
use crate::beneath::Beside;

/// A value with more bytes of JSON than this is kept outside of its line, if there is a place for it.
pub const LARGEST_INLINE: usize = 64 * 1024;
/// No value is larger: a file that says so is not ours.
const LARGEST_VALUE: u64 = 1 << 31;

/// A directory of values, each under the SHA-256 of its bytes.
#[derive(Clone, Debug)]
pub struct Blobs {
    directory: PathBuf,
}

impl Blobs {
    /// The values in this directory, which is made with the first of them.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps a value: when this returns it is there whole, and on the disk if it must be. One that is there already stays.
    pub(crate) fn keep(&self, digest: &str, bytes: &[u8], durability: Durability) -> io::Result<()> {
        let place = self.place(digest)?;
        if place.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == bytes.len() as u64) {
            return Ok(());
        }
        // Only the directory itself: a run that was removed meanwhile stays removed.
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let beside = Beside::of_path(&place, 0o600)?;
        beside.file().write_all(bytes)?;
        if durability == Durability::Synced {
            beside.file().sync_all()?;
        }
        beside.replace()?;
        if durability == Durability::Synced { File::open(&self.directory)?.sync_all() } else { Ok(()) }
    }

    /// The value with this digest, which is compared.
    pub fn get(&self, digest: &str) -> io::Result<Vec<u8>> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the value {digest} {what}"));
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
        let file = File::options().read(true).custom_flags(flags).open(self.place(digest)?)?;
        let mut bytes = Vec::new();
        file.take(LARGEST_VALUE).read_to_end(&mut bytes)?;
        if of_bytes(&bytes) == digest { Ok(bytes) } else { Err(wrong("has changed")) }
    }

    /// The digests of all values that are there, in order.
    #[cfg(feature = "front-end")]
    pub(crate) fn digests(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut digests: Vec<String> = names.filter(|name| is_digest(name)).collect();
        digests.sort();
        Ok(digests)
    }

    fn place(&self, digest: &str) -> io::Result<PathBuf> {
        if is_digest(digest) {
            return Ok(self.directory.join(digest));
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it names a value by what is no digest"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_removed_run_gets_no_values_and_what_lies_in_the_place_of_one_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let digest = of_bytes(b"value");
        let gone = home.path().join("gone");
        assert!(Blobs::at(gone.join("blobs")).keep(&digest, b"value", Durability::Written).is_err() && !gone.exists());
        let blobs = Blobs::at(home.path().join("blobs"));
        blobs.keep(&digest, b"value", Durability::Written).unwrap();
        let place = home.path().join("blobs").join(&digest);
        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&home.path().join("blobs")), mode(&place)), (0o700, 0o600));
        for short in ["", "valu", "values"] {
            std::fs::write(&place, short).unwrap();
            assert!(blobs.get(&digest).is_err(), "{short}");
            blobs.keep(&digest, b"value", Durability::Written).unwrap();
            assert_eq!(blobs.get(&digest).unwrap(), b"value", "{short}");
        }
        std::fs::remove_file(&place).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &place, 0o600.into()).unwrap();
        assert!(blobs.get(&digest).is_err(), "a FIFO is not waited for");
        blobs.keep(&digest, b"value", Durability::Written).unwrap();
        assert_eq!(blobs.get(&digest).unwrap(), b"value");
    }

    #[test]
    fn many_may_keep_one_value_at_once() {
        let home = tempfile::tempdir().unwrap();
        let blobs = Blobs::at(home.path().join("blobs"));
        let value = vec![7; 1 << 17];
        let digest = of_bytes(&value);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    blobs.keep(&digest, &value, Durability::Written).unwrap();
                    assert_eq!(blobs.get(&digest).unwrap(), value);
                });
            }
        });
        assert_eq!(std::fs::read_dir(home.path().join("blobs")).unwrap().count(), 1);
    }

    #[test]
    fn a_value_is_found_by_what_it_holds_and_not_if_it_has_changed() {
        let home = tempfile::tempdir().unwrap();
        let blobs = Blobs::at(home.path().join("blobs"));
        let digest = of_bytes(b"value");
        assert!(blobs.get(&digest).is_err());
        for durability in [Durability::Written, Durability::Synced] {
            blobs.keep(&digest, b"value", durability).unwrap();
        }
        assert_eq!(blobs.get(&digest).unwrap(), b"value");
        assert_eq!(std::fs::read_dir(home.path().join("blobs")).unwrap().count(), 1, "no other file is left");
        for bit in 0..8 * b"value".len() {
            let mut turned = b"value".to_vec();
            turned[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(home.path().join("blobs").join(&digest), turned).unwrap();
            assert!(blobs.get(&digest).unwrap_err().to_string().contains("has changed"), "bit {bit}");
        }
        std::fs::write(home.path().join("blobs").join(&digest), "other").unwrap();
        assert!(blobs.get(&digest).unwrap_err().to_string().contains("has changed"));
        for wrong in ["", "../key", &digest[1..], &digest.to_uppercase()] {
            assert!(blobs.get(wrong).is_err() && blobs.keep(wrong, b"", Durability::Written).is_err(), "{wrong}");
        }
    }
}
