//! How many files and connections may be open at once: as many as the system lets a process have, and for the programs that
//! it starts no more than before.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::system;

/// The limit as the process was started with it, if it was raised since.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of this process to the highest that it may have. Only a program may decide that for itself, so
/// the library does not call this.
#[cfg(feature = "front-end")]
pub fn raise() {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return;
    }
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    if rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = BEFORE.set(before);
    }
}

/// How many files could be open before the limit was raised, if it was.
pub(crate) fn before() -> Option<u64> {
    BEFORE.get()?.current
}

/// Gives a program that was just started the limit that we were started with: some use as many as there are, and older
/// ones know no more than 1024.
pub fn give_back(started: Option<Pid>) {
    if let (Some(before), Some(started)) = (BEFORE.get(), started) {
        // A program that has ended already needs no limit, and not every system can do this: the error is ignored.
        let _ = system::set_limit(Some(started), Resource::Nofile, *before);
    }
}

/// Whether some files can still be opened. It is asked before code that cannot report a lack of them itself.
#[cfg(feature = "front-end")]
pub fn room() -> std::io::Result<()> {
    const SOME: usize = 12;
    // The root is there even where there is no `/dev`.
    let flags = system::SEARCH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let open = |_| rustix::fs::open("/", flags, rustix::fs::Mode::empty());
    (0..SOME).map(open).collect::<rustix::io::Result<Vec<_>>>().map(drop).map_err(Into::into)
}

/// Whether a file can be held open for long and all that is needed for a moment can still be opened. Where the limit is
/// high this is not looked at.
#[cfg(feature = "front-end")]
pub fn has_room_to_spare() -> bool {
    const HIGH: u64 = 4096;
    const SOME: u64 = 24;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit >= HIGH {
        return true;
    }
    system::open_files() + SOME + most_connections() as u64 <= limit
}

/// Permission to open a connection, held as long as the connection is used: a caller that finds none left waits until
/// another connection ends.
pub(crate) async fn connection() -> Option<SemaphorePermit<'static>> {
    static CONNECTIONS: OnceLock<Semaphore> = OnceLock::new();
    CONNECTIONS.get_or_init(|| Semaphore::new(most_connections())).acquire().await.ok()
}

/// Whether so few connections are possible that none is kept open for later, where it would be in the way of others.
pub(crate) fn are_few() -> bool {
    const FEW: usize = 256;
    most_connections() < FEW
}

/// Half of what is left when files and programs have theirs: those that are kept for later count as well.
fn most_connections() -> usize {
    const KEPT: u64 = 64;
    const ALWAYS: u64 = 4;
    const ENOUGH: u64 = 100_000;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = (limit.saturating_sub(KEPT) / 2).clamp(ALWAYS, ENOUGH);
    usize::try_from(most).unwrap_or(usize::MAX)
}
