//! The few ways in which the store's files are opened, read, locked and written: bounded, never through a link, never
//! something that would block or never end.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// So long a process waits for another one that changes the same file.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Opens a regular file.
pub(super) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", path.display()));
    let file = match options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(path) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO)) => {
            return Err(refused());
        }
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

fn flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or(0)
}

/// Reads a regular file of at most so many bytes; a longer one is an error.
pub(super) fn read_whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path, OpenOptions::new().read(true))?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(most)).unwrap_or(0).saturating_add(1));
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, format!("{} is too long", path.display()));
    if bytes.len() as u64 > most { Err(too_long()) } else { Ok(bytes) }
}

/// Makes a directory, and those above it, which are the user's alone. One that belongs to another user is refused: that
/// user could exchange whatever is written there.
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let owner = directory.metadata()?.uid();
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let reason = format!("{} belongs to another user", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

/// Makes a directory that is the user's alone in one that is there: what was removed meanwhile does not come back.
pub(super) fn make_inside(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// A lock on a directory, for as long as the file is open.
pub(super) fn lock_directory(directory: &Path) -> io::Result<File> {
    let flags = flags(OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(directory)?;
    lock(&file, directory)?;
    Ok(file)
}

/// A lock on a file that has no other use, for as long as it is open.
pub(super) fn lock_file(path: &Path) -> io::Result<File> {
    let file = open_regular(path, OpenOptions::new().write(true).create(true).truncate(false).mode(0o600))?;
    lock(&file, path)?;
    Ok(file)
}

/// A process that was stopped while it held the lock must not stop all others.
fn lock(file: &File, path: &Path) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let reason = format!("{} is in use by another process", path.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, reason));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Opens a file to append lines to it; made when there is none.
pub(super) fn open_lines(path: &Path) -> io::Result<File> {
    open_regular(path, OpenOptions::new().read(true).append(true).create(true).mode(0o600))
}

/// Locks a file of lines that is never replaced.
pub(super) fn lock_lines(file: &File, path: &Path) -> io::Result<()> {
    lock(file, path)
}

/// Appends whole lines by one write, all of them or none. The caller holds the lock. What a killed process left at the
/// end is closed first, so that it spoils no line but its own.
pub(super) fn append_lines(mut file: &File, lines: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    let closed = [b"\n", lines].concat();
    let bytes = if last == [b'\n'] { lines } else { &closed };
    let written = loop {
        match file.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(count) if count < bytes.len() => break Err(io::ErrorKind::StorageFull.into()),
            written => break written.map(drop),
        }
    };
    // Half of a line is no use to any reader.
    written.inspect_err(|_| drop(file.set_len(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("file"), "123").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        for name in ["fifo", "directory", "link", "zero"] {
            assert!(read_whole(&at(name), 9).is_err(), "{name}");
            assert!(open_lines(&at(name)).is_err() && lock_file(&at(name)).is_err(), "{name}");
        }
        for name in ["fifo", "file", "none"] {
            assert!(lock_directory(&at(name)).is_err(), "{name}");
        }
        assert_eq!(read_whole(&at("file"), 3).unwrap(), b"123");
        assert_eq!(read_whole(&at("file"), 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(make_private(&at("file/x")).is_err());
    }

    #[test]
    fn a_half_line_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let file = open_lines(&path).unwrap();
        append_lines(&file, b"one\n").unwrap();
        (&file).write_all(b"tw").unwrap();
        append_lines(&file, b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntw\nthree\n");
    }
}
