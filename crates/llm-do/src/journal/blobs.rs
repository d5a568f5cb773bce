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
    pub fn keep(&self, digest: &str, bytes: &[u8], durability: Durability) -> io::Result<()> {
        let place = self.place(digest)?;
        if place.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == bytes.len() as u64) {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
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

    fn place(&self, digest: &str) -> io::Result<PathBuf> {
        if is_digest(digest) {
            return Ok(self.directory.join(digest));
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it names a value by what is no digest"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
