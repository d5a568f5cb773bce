//! Names of programs → absolute paths, in directories that only the system's owner can write: a program planted in a
//! project, in the working directory or in somebody's `PATH` is never found.

use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where programs are looked for, in this order. Children find theirs here too.
pub const DIRECTORIES: &[&str] =
    &["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin"];

/// What was found, once for each name: what a command means does not change during a run.
#[derive(Debug, Default)]
pub struct Programs(Mutex<HashMap<String, Option<PathBuf>>>);

impl Programs {
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(name.to_owned()).or_insert_with(|| resolve(name)).clone()
    }
}

/// The value of `PATH` for children.
pub fn search_path() -> String {
    DIRECTORIES.iter().copied().filter(|directory| is_trusted(Path::new(directory))).collect::<Vec<_>>().join(":")
}

fn resolve(name: &str) -> Option<PathBuf> {
    // A rule may name a program by its path; then only that one is meant.
    if Path::new(name).is_absolute() {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    if name.contains('/') {
        return None;
    }
    let directories = DIRECTORIES.iter().map(Path::new).filter(|directory| is_trusted(directory));
    directories.map(|directory| directory.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Owned by root, and writable by nobody else.
fn is_trusted(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|metadata| metadata.uid() == 0 && metadata.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_in_trusted_directories_only() {
        let programs = Programs::default();
        let cat = programs.find("cat").unwrap();
        assert!(cat.is_absolute() && cat.ends_with("cat"));
        for name in ["./cat", "../bin/cat", "bin/cat", "CAT", "no-such-program", "", "."] {
            assert_eq!(programs.find(name), None, "{name}");
        }
        assert_eq!(programs.find(cat.to_str().unwrap()), Some(cat));
    }

    #[test]
    fn directories_that_others_may_write_are_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_trusted(directory.path()));
        assert!(!is_trusted(Path::new("/tmp")));
        assert!(search_path().split(':').all(|directory| is_trusted(Path::new(directory))));
    }
}
