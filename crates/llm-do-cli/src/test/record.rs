//! Records of cases on the disk, beside the file with the cases.

use std::io;
use std::path::{Path, PathBuf};

use llm_do::files::{self, FileAccess};
use llm_do::tests::{Fixture, TestCase, TestFile, records_of};

use crate::failure::Failure;

/// A record is no larger.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Where the record of a case is.
pub fn path(root: &Path, file: &TestFile, case: &TestCase) -> PathBuf {
    root.join(records_of(&file.path)).join(format!("{}.jsonl", case.file_stem()))
}

/// The record of a case; nothing if there is none.
pub fn read(path: &Path) -> Result<Option<Fixture>, Failure> {
    let unreadable = |why: String| {
        Failure::usage(format!("the record {}: {why}", path.display()))
            .hint("with `--record` models are asked, and it is written anew")
    };
    let bytes = match files::read_regular(path, LARGEST + 1) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
    Fixture::parse(&text).map(Some).map_err(unreadable)
}

/// Writes the record of a case, whole or not at all.
pub fn write(path: &Path, fixture: &Fixture) -> Result<(), Failure> {
    write_text(path, &fixture.text())
}

/// Writes a file beside the cases.
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{} cannot be written: {error}", path.display()));
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    files::replace_path(path, text.as_bytes(), FileAccess::Usual).map_err(failed)
}
