//! Where programs behind a fence put what nobody else reads.

use std::os::unix::fs::DirBuilderExt as _;
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
            Some(path) => std::fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display())),
            None => Ok(()),
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
