//! When a key counts as an answer. Pure: the clock is a value.
//!
//! A person who types while a question appears has not read it. So a question takes an answer once its last line has
//! been on the screen for a moment and nothing was typed for a moment. Turning pages decides nothing and counts at
//! once, and Ctrl-C is a signal that never comes here.

use std::time::{Duration, Instant};

/// Longer than between two keys of a person who is typing, shorter than a person needs to read the question.
pub const PAUSE: Duration = Duration::from_millis(300);

/// How far a question has been shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionStage {
    /// More of it is to come: keys that turn pages count at once.
    Page,
    /// All of it was shown.
    Answer,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTiming {
    Counts,
    /// It was not meant for the question.
    TooEarly,
}

#[derive(Clone, Copy, Debug)]
pub struct Attention {
    stage: QuestionStage,
    /// When the last line was shown, or the last key after it came.
    disturbed: Instant,
    is_settled: bool,
}

impl Attention {
    /// Attention to a question whose last line was shown now.
    pub fn from(stage: QuestionStage, now: Instant) -> Self {
        Self { stage, disturbed: now, is_settled: false }
    }

    pub fn settles_at(&self) -> Instant {
        self.disturbed + PAUSE
    }

    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Called when no key waits to be read: from here on a key is an answer, if enough time has passed.
    pub fn quiet(&mut self, now: Instant) {
        self.is_settled |= now >= self.settles_at();
    }

    pub fn key(&mut self, key: u8, now: Instant) -> KeyTiming {
        let turns_page = self.stage == QuestionStage::Page && matches!(key, b' ' | b'\n' | b'\r' | b'b' | b'G');
        let counts = self.is_settled || turns_page;
        (self.disturbed, self.is_settled) = (now, false);
        if counts { KeyTiming::Counts } else { KeyTiming::TooEarly }
    }
}

/// A person whose last key is older may be looking elsewhere, and is called.
pub const LOOKS_AWAY: Duration = Duration::from_secs(5);

/// What calls a person: a bell, and where the window has a title, that one. The title that was there is kept.
pub fn call(last_key: Instant, now: Instant, has_title: bool) -> Option<&'static str> {
    let is_away = now.saturating_duration_since(last_key) > LOOKS_AWAY;
    is_away.then_some(if has_title { "\u{7}\u{1b}[22;2t\u{1b}]2;llm-do waits\u{7}" } else { "\u{7}" })
}

/// The title that was there before.
pub const TITLE_BACK: &str = "\u{1b}[23;2t";

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens, in milliseconds after the last line was shown: keys, and looks that find no key to read.
    enum Happens {
        Key(u8, u64, KeyTiming),
        Quiet(u64),
    }
    use Happens::{Key, Quiet};
    use KeyTiming::{Counts, TooEarly};

    #[test]
    fn whoever_has_not_typed_for_a_while_is_called() {
        let (last, title) = (Instant::now(), "\u{7}\u{1b}[22;2t\u{1b}]2;llm-do waits\u{7}");
        for (seconds, has_title, expected) in
            [(0, true, None), (5, true, None), (6, true, Some(title)), (3600, false, Some("\u{7}"))]
        {
            assert_eq!(call(last, last + Duration::from_secs(seconds), has_title), expected, "{seconds}");
        }
    }

    #[test]
    fn a_key_is_an_answer_after_a_pause_without_keys() {
        let cases: &[(&str, QuestionStage, &[Happens])] = &[
            ("at once", QuestionStage::Answer, &[Key(b'y', 3, TooEarly)]),
            ("too early", QuestionStage::Answer, &[Quiet(299), Key(b'y', 299, TooEarly)]),
            ("after the pause", QuestionStage::Answer, &[Quiet(300), Key(b'y', 301, Counts)]),
            ("pressed before, read late", QuestionStage::Answer, &[Key(b'y', 900, TooEarly)]),
            (
                "a key makes it wait again",
                QuestionStage::Answer,
                &[Key(b'y', 200, TooEarly), Quiet(400), Key(b'y', 450, TooEarly), Quiet(750), Key(b'y', 751, Counts)],
            ),
            (
                "so does one that counted",
                QuestionStage::Answer,
                &[Quiet(300), Key(b'x', 310, Counts), Key(b'y', 320, TooEarly), Quiet(619), Key(b'y', 619, TooEarly)],
            ),
            (
                "a page is turned at once",
                QuestionStage::Page,
                &[Key(b' ', 1, Counts), Key(b'\r', 2, Counts), Key(b'b', 3, Counts), Key(b'G', 4, Counts)],
            ),
            (
                "a page is not an answer",
                QuestionStage::Page,
                &[Key(b'n', 1, TooEarly), Quiet(301), Key(b'n', 302, Counts)],
            ),
            ("no page to turn", QuestionStage::Answer, &[Key(b' ', 1, TooEarly), Key(b'\n', 2, TooEarly)]),
        ];
        for (name, stage, happens) in cases {
            let shown = Instant::now();
            let mut attention = Attention::from(*stage, shown);
            for (number, happens) in happens.iter().enumerate() {
                match happens {
                    Quiet(after) => attention.quiet(shown + Duration::from_millis(*after)),
                    Key(key, after, expected) => {
                        let taken = attention.key(*key, shown + Duration::from_millis(*after));
                        assert_eq!(taken, *expected, "{name}, {number}");
                    }
                }
            }
        }
    }
}
