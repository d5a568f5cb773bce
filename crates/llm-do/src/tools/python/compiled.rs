//! Compiled code between two runs: signed, and read only by us.
//!
//! Python would run whatever lies where it keeps compiled files, and others can write to a cache. So it reads none of
//! these: we do, hold the whole of one against the state's key, and hand over what we have read.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use crate::beneath::{self, FileAccess};
use crate::journal::mac::{SigningPurpose, StateKey};

/// The largest file that is read: far more than compiled code takes.
const LARGEST: u64 = 17 << 20;
/// A mac in hex digits.
const MAC_DIGITS: usize = 32;
/// A file that is older than this is removed, and made again by the next process that needs it.
const OLDEST: Duration = Duration::from_hours(90 * 24);

/// Where compiled code is kept, and the key that tells ours from what others put there.
#[derive(Clone, Debug)]
pub struct CompiledStore {
    /// Where it lies.
    pub directory: PathBuf,
    /// What signs it.
    pub key: StateKey,
}

impl CompiledStore {
    /// What was kept for this, if it is ours to the last byte.
    pub(super) fn read(&self, identity: &str) -> Option<Vec<u8>> {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).ok()?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.file(identity)).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || found.len() > LARGEST {
            return None;
        }
        let mut whole = Vec::with_capacity(usize::try_from(found.len()).ok()?);
        file.take(LARGEST).read_to_end(&mut whole).ok()?;
        let (mac, _) = whole.split_at_checked(MAC_DIGITS)?;
        if mac != self.mac(identity, &whole[MAC_DIGITS..]).as_bytes() {
            return None;
        }
        whole.drain(..MAC_DIGITS);
        Some(whole)
    }

    /// Whether something can be kept at all.
    pub(super) fn is_writable(&self) -> bool {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.is_ok_and(|()| rustix::fs::access(&self.directory, rustix::fs::Access::WRITE_OK).is_ok())
    }

    /// Writes it whole under another name first: several processes may do so at once, and one that is killed leaves
    /// nothing that counts.
    pub(super) fn write(&self, identity: &str, content: &[u8]) -> io::Result<()> {
        self.remove_old();
        let whole = [self.mac(identity, content).as_bytes(), content].concat();
        beneath::replace_path(&self.file(identity), &whole, FileAccess::Private)
    }

    /// Removes what no version of anything has used for long.
    fn remove_old(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let written = entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|found| found.modified().ok());
            if written.and_then(|written| written.elapsed().ok()).is_some_and(|age| age > OLDEST) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The file for an identity. Keys do not share files: each would take that of the other for a stranger's.
    fn file(&self, identity: &str) -> PathBuf {
        let name = self.key.mac(SigningPurpose::Compiled, [&b"name"[..], identity.as_bytes()]);
        self.directory.join(name.to_string())
    }

    fn mac(&self, identity: &str, content: &[u8]) -> String {
        self.key.mac(SigningPurpose::Compiled, [&b"content"[..], identity.as_bytes(), content]).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(directory: &std::path::Path, key: u8) -> CompiledStore {
        CompiledStore { directory: directory.join("a/compiled"), key: StateKey::from_bytes([key; 32]) }
    }

    #[test]
    fn what_was_kept_is_read_and_nothing_else_is() {
        let cache = tempfile::tempdir().unwrap();
        let ours = store(cache.path(), 1);
        assert!(ours.read("python").is_none() && ours.is_writable());
        ours.write("python", b"code").unwrap();
        assert_eq!(ours.read("python").as_deref(), Some(&b"code"[..]));
        assert!(ours.read("other").is_none(), "it is for one interpreter");
        assert!(store(cache.path(), 2).read("python").is_none(), "another key");
        let file = ours.file("python");
        let whole = fs::read(&file).unwrap();
        fs::write(ours.file("other"), &whole).unwrap();
        assert!(ours.read("other").is_none(), "moved");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&file, &changed).unwrap();
            assert!(ours.read("python").is_none(), "byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert!(ours.read("python").is_none(), "cut at {at}");
        }
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(ours.read("python").is_none(), "a link");
        ours.write("python", b"again").unwrap();
        assert_eq!(ours.read("python").as_deref(), Some(&b"again"[..]));
        assert_eq!(fs::read_dir(&ours.directory).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn many_may_write_at_once_and_all_read_what_is_whole() {
        let cache = tempfile::tempdir().unwrap();
        let ours = store(cache.path(), 1);
        assert!(ours.is_writable());
        let content = vec![7; 1 << 16];
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..16 {
                        ours.write("python", &content).unwrap();
                        assert!(ours.read("python").is_some_and(|read| read == content));
                    }
                });
            }
        });
    }

    #[test]
    fn what_is_old_goes() {
        let cache = tempfile::tempdir().unwrap();
        let ours = store(cache.path(), 1);
        assert!(ours.is_writable());
        let old = ours.directory.join(".1-left");
        let long_ago = std::time::SystemTime::now() - OLDEST - OLDEST;
        fs::File::create(&old).unwrap().set_modified(long_ago).unwrap();
        ours.write("python", b"code").unwrap();
        assert!(!old.exists() && ours.read("python").is_some());
    }
}
