//! How long no byte of any answer has come, for those who wait: noted for every piece of an answer, so it costs two stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// That nothing comes, though an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(feature = "front-end")]
pub struct ProviderSilence {
    /// For how long.
    pub lasted: Duration,
    /// How long it is put up with.
    pub limit: Duration,
}

/// Shared by all requests of a run.
#[derive(Clone, Debug)]
pub(crate) struct SilenceClock(Arc<LastByte>);

#[derive(Debug)]
struct LastByte {
    begun: Instant,
    /// In milliseconds since then.
    at: AtomicU64,
    limit: AtomicU64,
    /// How many answers are waited for.
    open: AtomicUsize,
}

/// An answer that is waited for.
pub(crate) struct OpenAnswer(SilenceClock);

impl Default for SilenceClock {
    fn default() -> Self {
        let (at, limit, open) = (AtomicU64::new(0), AtomicU64::new(0), AtomicUsize::new(0));
        Self(Arc::new(LastByte { begun: Instant::now(), at, limit, open }))
    }
}

impl SilenceClock {
    /// A request is sent, whose answer may take so long to begin.
    pub(crate) fn open(&self, limit: Duration) -> OpenAnswer {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.heard(limit);
        OpenAnswer(self.clone())
    }

    /// Something came; the next may take so long.
    pub(crate) fn heard(&self, limit: Duration) {
        self.0.at.store(milliseconds(self.0.begun.elapsed()), Ordering::Relaxed);
        self.0.limit.store(milliseconds(limit), Ordering::Relaxed);
    }

    /// What is to be said of it now; nothing where no answer is waited for.
    #[cfg(feature = "front-end")]
    pub(crate) fn now(&self) -> Option<ProviderSilence> {
        let at = Duration::from_millis(self.0.at.load(Ordering::Relaxed));
        let lasted = self.0.begun.elapsed().saturating_sub(at);
        let limit = Duration::from_millis(self.0.limit.load(Ordering::Relaxed));
        (self.0.open.load(Ordering::Relaxed) > 0).then_some(ProviderSilence { lasted, limit })
    }
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "front-end"))]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_while_an_answer_is_waited_for() {
        let (clock, limit) = (SilenceClock::default(), Duration::from_secs(7));
        assert_eq!(clock.now(), None);
        let first = clock.open(Duration::from_secs(9));
        let second = clock.clone().open(limit);
        assert_eq!(clock.now().map(|silence| silence.limit), Some(limit));
        drop(first);
        assert!(clock.now().is_some());
        drop(second);
        assert_eq!(clock.now(), None);
    }
}
