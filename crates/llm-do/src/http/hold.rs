//! Servers that have asked to wait are left alone by everybody, and not only by the request that was told so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Until when nobody asks, by a name of whoever is asked.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    /// Whether anybody ever asked to wait: hardly anybody does.
    is_any: AtomicBool,
    until: Mutex<BTreeMap<String, Instant>>,
}

impl HeldBack {
    /// Nobody asks for so long. A longer wait that was asked for before stays.
    pub(super) fn hold(&self, name: &str, wait: Duration) {
        let until = Instant::now() + wait;
        let mut all = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let held = all.entry(name.to_owned()).or_insert(until);
        *held = until.max(*held);
        self.is_any.store(true, Ordering::Release);
    }

    /// Until when one has to wait, if that is still to come.
    pub(super) fn until(&self, name: &str) -> Option<Instant> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        let all = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name).copied().filter(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_asks_to_wait_is_left_alone_by_all_for_that_time() {
        let held = HeldBack::default();
        assert_eq!(held.until("a"), None);
        held.hold("a", Duration::from_secs(7));
        held.hold("a", Duration::from_secs(3));
        let until = held.until("a").unwrap();
        assert_eq!(until - Instant::now(), Duration::from_secs(7), "a shorter wait does not end a longer one");
        assert_eq!(held.until("b"), None, "others are asked");
        tokio::time::sleep_until(until).await;
        assert_eq!(held.until("a"), None);
    }
}
