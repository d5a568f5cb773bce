//! The time of a run and of its turns, which leaves out waiting for a person. Pure.

use std::time::{Duration, Instant};

/// What a run worked.
#[derive(Debug)]
pub struct WorkClock {
    began: Instant,
    /// How long it waited for a person, so far.
    waited: Duration,
    /// Since when it waits for one.
    waits_since: Option<Instant>,
    /// What it had worked before its turn began.
    before_turn: Duration,
}

impl WorkClock {
    pub fn from(now: Instant) -> Self {
        Self { began: now, waited: Duration::ZERO, waits_since: None, before_turn: Duration::ZERO }
    }

    /// From now on a person is waited for.
    pub fn wait(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// The person has done something.
    pub fn go_on(&mut self, now: Instant) {
        let waited = self.waits_since.take().map(|since| now.saturating_duration_since(since));
        self.waited += waited.unwrap_or_default();
    }

    pub fn begin_turn(&mut self, now: Instant) {
        self.before_turn = self.of_run(now);
    }

    pub fn of_run(&self, now: Instant) -> Duration {
        let until = self.waits_since.unwrap_or(now);
        until.saturating_duration_since(self.began).saturating_sub(self.waited)
    }

    pub fn of_turn(&self, now: Instant) -> Duration {
        self.of_run(now).saturating_sub(self.before_turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_person_is_left_out_of_the_run_and_of_its_turns() {
        type Step = fn(&mut WorkClock, Instant);
        let nothing: Step = |_, _| {};
        let began = Instant::now();
        let mut clock = WorkClock::from(began);
        for (second, step, run, turn) in [
            (3, nothing, 3, 3),
            (4, WorkClock::wait as Step, 4, 4),
            (60, nothing, 4, 4),
            (70, WorkClock::wait, 4, 4),
            (100, WorkClock::go_on, 4, 4),
            (102, nothing, 6, 6),
            (103, WorkClock::go_on, 7, 7),
            (104, WorkClock::wait, 8, 8),
            (200, WorkClock::go_on, 8, 8),
            (200, WorkClock::begin_turn, 8, 0),
            (205, nothing, 13, 5),
        ] {
            let now = began + Duration::from_secs(second);
            step(&mut clock, now);
            let shown = (clock.of_run(now).as_secs(), clock.of_turn(now).as_secs());
            assert_eq!(shown, (run, turn), "after {second} s");
        }
    }
}
