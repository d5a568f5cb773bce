//! Texts that the user names: bounded, whatever they are.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::LaunchError;

/// No prompt is longer.
const LONGEST: u64 = 64 * 1024 * 1024;

/// All of a file, or of a pipe; `name` is what it is called when it cannot be read.
pub fn file(name: &str, path: &Path) -> Result<String, LaunchError> {
    let read = File::open(path).and_then(|mut file| bytes(&mut file));
    text(name, read)
}

/// One more than there may be, so that it is known.
pub fn bytes(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut bytes).map(|_| bytes)
}

/// What was read, as text.
pub fn text(name: &str, read: io::Result<Vec<u8>>) -> Result<String, LaunchError> {
    let bytes = read.map_err(|error| LaunchError::usage(format!("{name} cannot be read: {error}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(LaunchError::usage(format!("{name} has more than 64 MiB")));
    }
    String::from_utf8(bytes).map_err(|_| LaunchError::usage(format!("{name} is not UTF-8 text")))
}
