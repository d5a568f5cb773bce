//! What the bare client and the driver of the library have in common: their command line and the conversation that
//! both hold, so that the same bytes go over the wire.

use std::process::ExitCode;

/// A program that measures nothing itself: `PROGRAM WIRE BASE_URL MODE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub wire: Wire,
    pub base_url: String,
    pub mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The Messages API.
    Anthropic,
    /// Chat Completions.
    Chat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One reply, however long.
    One,
    /// One reply of this many pieces of [`PIECE`].
    Stream(usize),
    /// This many exchanges; each one sends everything before it once more.
    History(usize),
}

pub const MODEL: &str = "claude-haiku-4-5";
/// A piece of a reply, as the provider of the benchmarks is told to send them.
pub const PIECE: &str = "and so the story goes further ";
/// Pieces of each reply of a history.
pub const PIECES: usize = 20;
/// What the user says in each turn of a history.
pub const QUESTION_REPEATS: usize = 20;

impl Task {
    pub fn parse(words: impl IntoIterator<Item = String>) -> Option<Self> {
        let words: Vec<String> = words.into_iter().collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let [wire, base_url, mode @ ..] = words.as_slice() else { return None };
        let wire = match *wire {
            "anthropic" => Wire::Anthropic,
            "chat" => Wire::Chat,
            _ => return None,
        };
        let mode = match mode {
            ["one"] => Mode::One,
            ["stream", pieces] => Mode::Stream(pieces.parse().ok()?),
            ["history", turns] => Mode::History(turns.parse().ok()?),
            _ => return None,
        };
        Some(Self { wire, base_url: (*base_url).to_owned(), mode })
    }

    pub fn exchanges(&self) -> usize {
        match self.mode {
            Mode::One | Mode::Stream(_) => 1,
            Mode::History(turns) => turns,
        }
    }

    /// A benchmark that read something else than it was meant to read measures nothing.
    pub fn verdict(&self, text_length: usize) -> ExitCode {
        let as_meant = match self.mode {
            Mode::One => text_length > 0,
            Mode::Stream(pieces) => text_length == pieces * PIECE.len(),
            Mode::History(turns) => text_length == turns * PIECES * PIECE.len(),
        };
        if as_meant { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

pub fn question() -> String {
    PIECE.repeat(QUESTION_REPEATS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_read_from_words() {
        let task = |line: &str| Task::parse(line.split(' ').map(str::to_owned));
        let expected = Task { wire: Wire::Chat, base_url: "http://h:1".into(), mode: Mode::History(50) };
        assert_eq!(task("chat http://h:1 history 50"), Some(expected));
        for wrong in ["", "chat http://h:1", "tls http://h:1 one", "chat http://h:1 stream", "chat http://h:1 stream x"]
        {
            assert_eq!(task(wrong), None, "{wrong}");
        }
    }
}
