//! Regular files beneath a directory, opened by descriptor: no path, link or race leads outside, and nothing that would
//! block or never end is opened.

mod beside;
mod place;

use std::io::{self, Read as _};
use std::path::Path;

use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt as _};

pub(crate) use beside::Beside;
#[cfg(feature = "front-end")]
pub use beside::check_path;
pub(crate) use beside::replace;
pub use beside::{FileAccess, create_path, replace_path};
pub(crate) use place::{FileKind, Identity, Place, resolve};

/// Why a file was not opened.
#[derive(Debug, thiserror::Error)]
pub enum FileOpenError {
    #[error("no such file")]
    Missing,
    #[error("leads outside the root")]
    Outside,
    #[error("not a regular file")]
    NotRegular,
    #[error("cannot be read: {0}")]
    Io(io::Error),
}

impl From<io::Error> for FileOpenError {
    fn from(error: io::Error) -> Self {
        // What `openat2` says of a path that leaves its directory, and what its replacement says.
        let escaped = error.raw_os_error() == Some(rustix::io::Errno::XDEV.raw_os_error())
            || (error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none());
        match error.kind() {
            _ if escaped => Self::Outside,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            _ => Self::Io(error),
        }
    }
}

/// Reads a regular file, or as many bytes of its start.
pub fn read(directory: &Dir, path: &Path, most: u64) -> Result<Vec<u8>, FileOpenError> {
    let (file, metadata) = open(directory, path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(most)).unwrap_or(0));
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file at a path of which others decide what is there: never a device, a FIFO, which would wait for its
/// writer, or a directory.
pub(crate) fn open_regular(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::File::options().read(true).custom_flags(non_blocking()).open(path)?;
    let is_regular = file.metadata()?.is_file();
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    if is_regular { Ok(file) } else { Err(refused()) }
}

/// Reads such a file, or as many bytes of its start.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opening a FIFO would wait for its writer.
fn non_blocking() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}

/// Opens a regular file for reading: never a device, a FIFO or a directory.
fn open(directory: &Dir, path: &Path) -> Result<(File, Metadata), FileOpenError> {
    let file = directory.open_with(path, OpenOptions::new().read(true).custom_flags(non_blocking()))?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(FileOpenError::NotRegular) }
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn only_regular_files_beneath_the_directory_are_opened() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(inside.path().join("a"), "x").unwrap();
        std::fs::write(outside.path().join("b"), "x").unwrap();
        std::fs::create_dir(inside.path().join("d")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("b"), inside.path().join("out")).unwrap();
        std::os::unix::fs::symlink("a", inside.path().join("in")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, inside.path().join("fifo"), 0o600.into()).unwrap();
        let directory = Dir::open_ambient_dir(inside.path(), ambient_authority()).unwrap();
        let opened = |path: &str| open(&directory, Path::new(path)).map(drop);
        assert!(opened("a").is_ok() && opened("in").is_ok());
        assert!(matches!(opened("nothing"), Err(FileOpenError::Missing)));
        assert!(matches!(opened("a/b"), Err(FileOpenError::Missing)));
        for path in ["d", "fifo"] {
            assert!(matches!(opened(path), Err(FileOpenError::NotRegular)), "{path}");
        }
        for path in ["d", "fifo", "nothing"] {
            assert!(read_regular(&inside.path().join(path), 9).is_err(), "{path}");
        }
        assert!(read_regular(Path::new("/dev/zero"), 9).is_err());
        assert_eq!(read_regular(&inside.path().join("a"), 9).unwrap(), b"x");
        for path in ["out", "../b", "/etc/passwd"] {
            assert!(matches!(opened(path), Err(FileOpenError::Outside)), "{path}");
        }
    }
}
