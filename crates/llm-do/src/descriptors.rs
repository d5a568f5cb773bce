//! How many files and connections may be open at once: as many as the system lets a process have, and for the programs that
//! it starts no more than before.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The limit as the process was started with it, if it was raised since.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of this process to the highest that it may have. Only a program decides that about itself.
pub fn raise() {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return;
    }
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = BEFORE.set(before);
    }
}

/// How many could be open at first, if it is more now. Only here does it matter to those that are started.
pub(crate) fn before() -> Option<u64> {
    BEFORE.get().filter(|_| cfg!(target_os = "linux"))?.current
}

/// Gives a program that was just started the limit that we were started with: some use as many as there are, and older
/// ones know no more than 1024.
pub fn give_back(started: Option<Pid>) {
    #[cfg(target_os = "linux")]
    if let (Some(before), Some(started)) = (BEFORE.get(), started) {
        // One that has ended needs none.
        let _ = rustix::process::prlimit(Some(started), Resource::Nofile, *before);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = started;
}

/// Whether some files can still be opened: what follows may not say so itself.
pub fn room() -> std::io::Result<()> {
    const SOME: usize = 12;
    let open = |_| rustix::fs::open("/dev/null", rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty());
    (0..SOME).map(open).collect::<rustix::io::Result<Vec<_>>>().map(drop).map_err(Into::into)
}

/// Leave to open a connection, for as long as it is used: whoever finds none left waits for another to end.
pub(crate) async fn connection() -> Option<SemaphorePermit<'static>> {
    static CONNECTIONS: OnceLock<Semaphore> = OnceLock::new();
    CONNECTIONS.get_or_init(|| Semaphore::new(most_connections())).acquire().await.ok()
}

/// Whether there are so few that no connection is kept for later: it would be in the way of others.
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
