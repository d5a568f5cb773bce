//! Where programs behind a fence put what nobody else reads.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A directory for the commands of one shell alone, or for one program, made when one first needs it, gone with it.
#[derive(Debug, Default)]
pub struct PrivateDirectory(Mutex<Option<PathBuf>>);

impl PrivateDirectory {
    pub fn path(&self) -> Result<PathBuf, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &*made {
            return Ok(path.clone());
        }
        let path = Path::new("/tmp").join(format!("llm-do-{:016x}", fastrand::u64(..)));
        let built = std::fs::DirBuilder::new().mode(0o700).create(&path);
        built.map_err(|error| format!("no private directory: {error}"))?;
        *made = Some(path.clone());
        Ok(path)
    }

    pub fn remove(&self) -> Result<(), String> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match made {
            Some(path) => remove(&path).map_err(|error| format!("{}: {error}", path.display())),
            None => Ok(()),
        }
    }
}

/// Programs close directories of theirs, as some do with what they keep for later: those are opened first.
fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_dir_all(path).or_else(|_| {
        open_all(path);
        std::fs::remove_dir_all(path)
    })
}

fn open_all(path: &Path) {
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        // Why it could not be opened is why it cannot be removed.
        let _ = std::fs::set_permissions(&directory, Permissions::from_mode(0o700));
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        waiting.extend(entries.filter(is_directory).map(|entry| entry.path()));
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
