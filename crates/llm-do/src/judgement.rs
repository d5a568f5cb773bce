//! Judging what others wrote: how large it may be, and where the work is done. The size is looked at first. Small
//! work is done in place; larger work gets a thread of its own and a time limit, so that the executor goes on
//! listening whatever was sent. A thread that is overdue cannot be ended and is not waited for, so only a few of them
//! are allowed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

/// A larger value is not judged at all.
pub(crate) const LARGEST_VALUE: usize = 16 * 1024 * 1024;
/// A larger value is not judged in place.
pub(crate) const SMALL_VALUE: usize = 64 * 1024;
/// Larger texts are not compared in place.
pub(crate) const SMALL_TEXT: usize = 1024 * 1024;

/// How long a thread may take, the wait for it included.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_THREADS: usize = 4;
/// Schemas and values that lie in each other are walked by recursion. Only what is used of it is taken.
const STACK: usize = 64 * 1024 * 1024;

/// Why there is no judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JudgementError {
    #[error("it takes more than {} seconds", .0.as_secs())]
    Overdue(Duration),
    #[error("{MOST_THREADS} other judgements take all their time")]
    Busy,
    #[error("no thread can be started for it")]
    Unstarted,
    #[error("it failed")]
    Panicked,
}

/// Does larger work on a thread of its own. Threads are the process's, so their number is one for all runs in it.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JudgementError> {
    static THREADS: Threads = Threads::new(PATIENCE);
    THREADS.run(work).await
}

struct Threads {
    free: Semaphore,
    /// Threads that still run though their callers have given up waiting.
    overdue: AtomicUsize,
    patience: Duration,
}

/// The states of a thread.
const RUNS: usize = 0;
const IS_OVERDUE: usize = 1;
const HAS_ENDED: usize = 2;

impl Threads {
    const fn new(patience: Duration) -> Self {
        Self { free: Semaphore::const_new(MOST_THREADS), overdue: AtomicUsize::new(0), patience }
    }

    /// Waits for a free thread; if all threads are overdue none will be free soon, and it fails at once.
    async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JudgementError> {
        if self.overdue.load(Ordering::SeqCst) >= MOST_THREADS {
            return Err(JudgementError::Busy);
        }
        let deadline = tokio::time::Instant::now() + self.patience;
        let Ok(Ok(permit)) = tokio::time::timeout_at(deadline, self.free.acquire()).await else {
            return Err(JudgementError::Busy);
        };
        let waited = JudgementWait { threads: self, state: Arc::new(AtomicUsize::new(RUNS)) };
        let (done, result) = oneshot::channel();
        let ended = JudgementSlot { threads: self, state: Arc::clone(&waited.state), _permit: permit };
        let thread = std::thread::Builder::new().name("judgement".to_owned()).stack_size(STACK);
        let started = thread.spawn(move || {
            let judged = work();
            drop(ended);
            let _ = done.send(judged);
        });
        if started.is_err() {
            return Err(JudgementError::Unstarted);
        }
        match tokio::time::timeout_at(deadline, result).await {
            Ok(judged) => judged.map_err(|_| JudgementError::Panicked),
            Err(_) => Err(JudgementError::Overdue(self.patience)),
        }
    }
}

/// Held by the caller that waits. If it is dropped before the end, the thread counts as overdue.
struct JudgementWait {
    threads: &'static Threads,
    state: Arc<AtomicUsize>,
}

impl Drop for JudgementWait {
    fn drop(&mut self) {
        // Counted first, so that a thread that ends meanwhile takes back what was counted.
        self.threads.overdue.fetch_add(1, Ordering::SeqCst);
        if self.state.compare_exchange(RUNS, IS_OVERDUE, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.threads.overdue.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Held by the thread, and dropped also when it panics.
struct JudgementSlot {
    threads: &'static Threads,
    state: Arc<AtomicUsize>,
    _permit: tokio::sync::SemaphorePermit<'static>,
}

impl Drop for JudgementSlot {
    fn drop(&mut self) {
        if self.state.swap(HAS_ENDED, Ordering::SeqCst) == IS_OVERDUE {
            self.threads.overdue.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Threads of a test's own.
    fn threads(patience: Duration) -> &'static Threads {
        Box::leak(Box::new(Threads::new(patience)))
    }

    #[tokio::test]
    async fn work_is_done_elsewhere_and_takes_its_turn() {
        let threads = threads(Duration::from_mins(1));
        let here = std::thread::current().id();
        let work = (0..40).map(|number| threads.run(move || (number, std::thread::current().id() != here)));
        for (expected, done) in futures_util::future::join_all(work).await.into_iter().enumerate() {
            assert_eq!(done, Ok((expected, true)));
        }
        assert_eq!(threads.overdue.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn four_that_do_not_end_are_the_most_and_hold_nobody() {
        let threads = threads(Duration::from_millis(50));
        let (ends, mut waits) = (0..4).map(|_| mpsc::channel::<()>()).collect::<(Vec<_>, Vec<_>)>();
        for _ in 0..4 {
            let wait = waits.pop().unwrap();
            assert_eq!(threads.run(move || wait.recv().is_ok()).await, Err(JudgementError::Overdue(threads.patience)));
        }
        assert_eq!(threads.run(|| ()).await, Err(JudgementError::Busy));
        // One that ends after all makes room.
        drop(ends);
        while threads.overdue.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(threads.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_panics_is_told_and_makes_room() {
        let threads = threads(Duration::from_mins(1));
        for _ in 0..9 {
            let panicked: Result<(), _> = threads.run(|| std::panic::resume_unwind(Box::new("no"))).await;
            assert_eq!(panicked, Err(JudgementError::Panicked));
        }
    }
}
