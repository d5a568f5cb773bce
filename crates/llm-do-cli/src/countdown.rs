//! Time that something may take. What the process was stopped for (Ctrl-Z, a signal) does not count.

use std::time::Duration;

use tokio::time::Instant;

/// What is left of a time.
#[derive(Debug)]
pub struct Countdown {
    /// Nothing: it takes as long as it takes.
    left: Option<Duration>,
    looked: Instant,
}

/// How often it is looked at, so that a process that stood still is told from one that worked.
const LOOK: Duration = Duration::from_millis(250);

impl Countdown {
    pub fn of(limit: Option<Duration>) -> Self {
        Self { left: limit, looked: Instant::now() }
    }

    /// Returns when the time is over. Cancel-safe.
    pub async fn over(&mut self) {
        loop {
            let Some(left) = self.left else { return std::future::pending().await };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep_until(self.looked + left.min(LOOK)).await;
            self.pass(Instant::now());
        }
    }

    /// What passed since the last look counts, as far as the process can have worked.
    fn pass(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.looked).min(2 * LOOK);
        self.looked = now;
        self.left = self.left.map(|left| left.saturating_sub(passed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_time_is_over_when_it_has_passed() {
        let (begun, limit) = (Instant::now(), Duration::from_millis(300));
        Countdown::of(Some(limit)).over().await;
        assert!(begun.elapsed() >= limit);
    }

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let mut now = Instant::now();
        let mut countdown = Countdown { left: Some(Duration::from_mins(1)), looked: now };
        for _ in 0..40 {
            now += LOOK;
            countdown.pass(now);
        }
        assert_eq!(countdown.left, Some(Duration::from_secs(50)));
        countdown.pass(now + Duration::from_hours(1));
        assert_eq!(countdown.left, Some(Duration::from_millis(49_500)), "stopped for an hour");
    }

    #[tokio::test]
    async fn whoever_is_interrupted_while_waiting_has_waited() {
        let (begun, limit) = (Instant::now(), Duration::from_millis(600));
        let mut countdown = Countdown::of(Some(limit));
        loop {
            tokio::select! {
                () = countdown.over() => break,
                () = tokio::time::sleep(Duration::from_millis(70)) => {}
            }
        }
        assert!(begun.elapsed() >= limit);
    }
}
