//! The answer in a file: whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Before anything is paid for: whether the file could be written.
pub fn check(path: &Path) -> Result<(), Failure> {
    let directory = directory(path);
    if path.is_dir() || path.file_name().is_none() {
        return Err(Failure::usage(format!("`-o`: {} is not a file", path.display())));
    }
    if !directory.is_dir() {
        return Err(Failure::usage(format!("`-o`: there is no directory {}", directory.display())));
    }
    Ok(())
}

/// Written beside its place and then put there, so that a reader sees the old or the new, never a half.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = directory(path).join(format!(".{name}.{}.part", std::process::id()));
    let written = replace(&beside, path, text);
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        Failure::failed(format!("{} cannot be written: {error}", path.display()))
    })
}

fn replace(beside: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(beside)?;
    file.write_all(text.as_bytes())?;
    if let Ok(before) = fs::metadata(path) {
        file.set_permissions(before.permissions())?;
    }
    file.sync_all()?;
    fs::rename(beside, path)
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_stays_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("answer.txt");
        for text in ["first\n", "second\n"] {
            check(&path).unwrap();
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_place_that_is_no_file_is_found_before_the_run() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().to_owned(), directory.path().join("no/where.txt"), PathBuf::from("..")] {
            assert_eq!(check(&path).map_err(|failure| failure.code()), Err(2), "{}", path.display());
        }
        assert!(check(Path::new("answer.txt")).is_ok());
    }
}
