//! With what every Unix has. What Linux can do beyond that is left out here, and said so where it makes a difference.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
#[cfg(feature = "front-end")]
use std::path::PathBuf;

use rustix::fs::{Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, setrlimit, test_kill_process_group};

#[cfg(feature = "front-end")]
use super::ProcessPlace;

/// To search a directory, it has to be opened for listing.
pub(crate) const SEARCH: OFlags = OFlags::RDONLY;

/// The device and the number of a file.
#[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "the type differs by system; the bits identify")]
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino)
}

/// The nine bits of who may read, write and run a file.
#[allow(clippy::useless_conversion, reason = "the type differs by system")]
pub(crate) fn permissions(stat: &Stat) -> u32 {
    u32::from(stat.st_mode & 0o777)
}

/// Tells of the names in a directory that was just opened.
pub(crate) fn list(
    directory: BorrowedFd<'_>,
    _: &mut Vec<u8>,
    mut met: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if met(entry.file_name(), entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}

/// Whether a directory shows processes: what its names lead to changes with who looks.
pub(crate) fn shows_processes(directory: &Path) -> bool {
    directory.starts_with("/proc")
}

/// Bytes that nobody can guess.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// Sets a limit of this process. Those of others cannot be set: what is started takes its limits before it becomes the
/// program that is wanted.
pub(crate) fn set_limit(process: Option<Pid>, resource: Resource, limit: Rlimit) -> io::Result<()> {
    if process.is_some() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    setrlimit(resource, limit)?;
    Ok(())
}

/// No descriptor tells of the end of a process: it has to be looked for.
#[expect(clippy::unnecessary_wraps, reason = "in the shape that Linux gives it")]
pub(crate) fn end_of(_: Pid) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Whether the process group is there, if only as a process that has ended. Of such a one some systems say that it must not
/// be sent a signal.
pub(crate) fn is_group(group: Pid) -> bool {
    matches!(test_kill_process_group(group), Ok(()) | Err(Errno::PERM))
}

/// There are no namespaces, so that nobody is the first process of one: all others are the user's.
pub(crate) fn kill_all_others() {}

/// How many processes there are: no call says it.
pub(crate) fn processes() -> Option<u64> {
    None
}

/// The processes that were started with this variable: nobody can ask for the environment of another one.
pub(crate) fn processes_with(_: &[u8]) -> Vec<Pid> {
    Vec::new()
}

/// How many files this process has open.
#[cfg(feature = "front-end")]
pub(crate) fn open_files() -> u64 {
    std::fs::read_dir("/dev/fd").map_or(0, |open| open.count() as u64)
}

/// Nothing lets a new file have the content of another one: it is copied.
#[cfg(feature = "front-end")]
pub(crate) fn share_content(_: BorrowedFd<'_>, _: BorrowedFd<'_>) -> bool {
    false
}

/// The program that runs, where it was found when it was started.
#[cfg(feature = "front-end")]
pub(crate) fn own_program() -> Option<PathBuf> {
    std::env::current_exe().ok()
}

/// Nothing hides a process from others that run with the same rights.
#[cfg(feature = "front-end")]
pub(crate) fn conceal() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The terminal that controls this process, by its own name where one of the three streams is one: macOS cannot wait for
/// what is typed at `/dev/tty`.
#[cfg(feature = "front-end")]
pub(crate) fn terminal() -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let named = [rustix::stdio::stdin(), rustix::stdio::stderr(), rustix::stdio::stdout()]
        .into_iter()
        .find_map(|stream| rustix::termios::ttyname(stream, Vec::new()).ok());
    named.map_or_else(|| "/dev/tty".into(), |name| std::ffi::OsString::from_vec(name.into_bytes()).into())
}

/// The group and the session of a process. There are no namespaces, so that neither lies outside.
#[cfg(feature = "front-end")]
#[expect(clippy::disallowed_methods, reason = "neither is 0 where there are no namespaces")]
pub(crate) fn place_of(process: Option<Pid>) -> Option<ProcessPlace> {
    use rustix::process::{getpgid, getsid};
    let number = |pid: Pid| pid.as_raw_nonzero().get();
    Some(ProcessPlace { group: number(getpgid(process).ok()?), session: number(getsid(process).ok()?) })
}
