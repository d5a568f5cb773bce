//! How far a run over many items has come, in one line. Pure.

use std::time::Duration;

use llm_do::messages::Usage;

use crate::terminal::summary;

/// The items so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCounts {
    pub total: u64,
    /// Answered in this process.
    pub answered: u64,
    /// Of these, those of which no model was asked.
    pub cached: u64,
    /// Answered by an earlier process.
    pub known: u64,
    pub failed: u64,
    pub waiting: u64,
}

impl ItemCounts {
    /// How many need nothing more in this process.
    pub fn done(&self) -> u64 {
        self.answered + self.known + self.failed + self.waiting
    }

    fn words(&self) -> Vec<String> {
        let named = [
            (self.failed, "failed"),
            (self.waiting, "waiting"),
            (self.cached, "from the cache"),
            (self.known, "from the record"),
        ];
        named
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", grouped(count)))
            .collect()
    }

    /// The line while it goes on.
    pub fn line(&self, usage: &Usage, limit: Option<f64>, elapsed: Duration) -> String {
        let mut parts = vec![format!("{} of {}", grouped(self.done()), grouped(self.total))];
        parts.extend(self.words());
        parts.extend(spent(usage, limit));
        parts.extend(self.left(elapsed));
        format!("  {}", parts.join(" · "))
    }

    /// The line at the end.
    pub fn summary(&self) -> String {
        let answered = self.answered + self.known;
        let items = if self.total == 1 { "item" } else { "items" };
        let mut parts = vec![format!("{} of {} {items} answered", grouped(answered), grouped(self.total))];
        parts.extend(self.words());
        let open = self.total.saturating_sub(self.done());
        parts.extend((open > 0).then(|| format!("{} not begun or not finished", grouped(open))));
        parts.join(" · ")
    }

    /// As long as the rest takes if it goes on like this.
    fn left(&self, elapsed: Duration) -> Option<String> {
        let (done, open) = (self.done() - self.known, self.total.saturating_sub(self.done()));
        if done == 0 || open == 0 {
            return None;
        }
        let seconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).saturating_mul(open) / done / 1000;
        Some(match seconds {
            0..60 => format!("{seconds} s left"),
            60..7200 => format!("{} min left", seconds.div_ceil(60)),
            _ => format!("{} h left", seconds.div_ceil(3600)),
        })
    }
}

fn spent(usage: &Usage, limit: Option<f64>) -> Option<String> {
    let spent = summary::cost(usage);
    match limit {
        Some(limit) => Some(format!("{spent} of ${limit:.2}")),
        None => (usage.requests > 0).then_some(spent),
    }
}

/// A number as people read it: `1 000`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (count, expected) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")] {
            assert_eq!(grouped(count), expected);
        }
    }

    #[test]
    fn a_line_says_how_far_it_is_what_it_cost_and_what_is_left() {
        let usage = |usd| Usage { requests: 700, cost_usd: Some(usd), ..Usage::default() };
        let counts = ItemCounts { total: 1000, answered: 621, cached: 20, known: 118, failed: 3, waiting: 0 };
        let line = counts.line(&usage(0.61), Some(2.0), Duration::from_mins(10));
        assert_eq!(
            line,
            "  742 of 1 000 · 3 failed · 20 from the cache · 118 from the record · $0.61 of $2.00 · 5 min left"
        );
        let begun = ItemCounts { total: 10_000, ..ItemCounts::default() };
        assert_eq!(begun.line(&Usage::default(), None, Duration::ZERO), "  0 of 10 000");
        let slow = ItemCounts { answered: 1, ..begun };
        assert_eq!(slow.line(&usage(0.01), None, Duration::from_secs(10)), "  1 of 10 000 · $0.0100 · 28 h left");
        let late = ItemCounts { total: 10, answered: 9, ..ItemCounts::default() };
        assert_eq!(late.line(&usage(0.0), None, Duration::from_secs(90)), "  9 of 10 · $0 · 10 s left");
        let ended = ItemCounts { total: 10, answered: 5, waiting: 2, ..ItemCounts::default() };
        assert_eq!(ended.summary(), "5 of 10 items answered · 2 waiting · 3 not begun or not finished");
        assert_eq!(ItemCounts { total: 1, answered: 1, ..ItemCounts::default() }.summary(), "1 of 1 item answered");
    }
}
