//! With the means of Linux: descriptors of processes, `/proc`, limits of other processes.

use std::ffi::CStr;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
#[cfg(feature = "front-end")]
use std::path::PathBuf;

use rustix::fs::{FileType, OFlags, RawDir, Stat};
#[cfg(feature = "front-end")]
use rustix::process::DumpableBehavior;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};
use rustix::rand::{GetRandomFlags, getrandom};

#[cfg(feature = "front-end")]
use super::ProcessPlace;

/// Searching a directory needs no right to list it.
pub(crate) const SEARCH: OFlags = OFlags::PATH;

/// The device and the number of a file.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The nine bits of who may read, write and run a file.
pub(crate) fn permissions(stat: &Stat) -> u32 {
    stat.st_mode & 0o777
}

/// Tells of the names in a directory that was just opened. What the buffer has room for is read at once.
pub(crate) fn list(
    directory: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    mut met: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut reader = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = reader.next() {
        let entry = entry?;
        if met(entry.file_name(), entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}

/// Whether a directory shows processes: what its names lead to changes with who looks.
pub(crate) fn shows_processes(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|disk| disk.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// Bytes that nobody can guess.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    // So few bytes come whole or not at all.
    getrandom(bytes, GetRandomFlags::empty())?;
    Ok(())
}

/// Sets a limit of another process, or of this one.
pub(crate) fn set_limit(process: Option<Pid>, resource: Resource, limit: Rlimit) -> io::Result<()> {
    rustix::process::prlimit(process, resource, limit)?;
    Ok(())
}

/// A descriptor that is readable once the process has ended.
pub(crate) fn end_of(process: Pid) -> io::Result<Option<OwnedFd>> {
    Ok(Some(rustix::process::pidfd_open(process, PidfdFlags::empty())?))
}

/// Whether the process group is there, if only as a process that has ended.
pub(crate) fn is_group(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group).is_ok()
}

/// Ends every other process of this namespace, which process 1 of it may ask for.
pub(crate) fn kill_all_others() {
    // An error means that no other process is there, which is what was wanted.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), nix::sys::signal::Signal::SIGKILL);
}

/// How many processes there are, if that can be known.
pub(crate) fn processes() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// The processes that were started with this variable, written as `NAME=value`.
pub(crate) fn processes_with(variable: &[u8]) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let has_it = |pid: &Pid| {
        let mut environment = Vec::new();
        let file = std::fs::File::open(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let read = file.and_then(|file| file.take(1 << 20).read_to_end(&mut environment));
        read.is_ok() && environment.split(|byte| *byte == 0).any(|found| found == variable)
    };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(Pid::from_raw).filter(has_it).collect()
}

/// How many files this process has open.
#[cfg(feature = "front-end")]
pub(crate) fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64)
}

/// Lets a new file have the content of another one without a copy, where the disk can: whether it has it.
#[cfg(feature = "front-end")]
pub(crate) fn share_content(to: BorrowedFd<'_>, from: BorrowedFd<'_>) -> bool {
    rustix::fs::ioctl_ficlone(to, from).is_ok()
}

/// The program that runs, whatever has become of its file.
#[cfg(feature = "front-end")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may not be known")]
pub(crate) fn own_program() -> Option<PathBuf> {
    Some(PathBuf::from("/proc/self/exe"))
}

/// Hides memory, environment and files of this process from others that run with the same rights.
#[cfg(feature = "front-end")]
pub(crate) fn conceal() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The terminal that controls this process.
#[cfg(feature = "front-end")]
pub(crate) fn terminal() -> PathBuf {
    PathBuf::from("/dev/tty")
}

/// The group and the session of a process. (What rustix has for it takes 0 for impossible.)
#[cfg(feature = "front-end")]
pub(crate) fn place_of(process: Option<Pid>) -> Option<ProcessPlace> {
    use nix::unistd::{Pid, getpgid, getsid};
    let process = process.map(|pid| Pid::from_raw(pid.as_raw_nonzero().get()));
    Some(ProcessPlace { group: getpgid(process).ok()?.as_raw(), session: getsid(process).ok()?.as_raw() })
}
