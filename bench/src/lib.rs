//! What the bare client and the driver of the library have in common: their command line and the conversations that
//! both hold, so that the same bytes go over the wire.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One reply, however long.
    One,
    /// One reply of this many pieces of [`PIECE`].
    Stream(usize),
    /// This many exchanges; each one sends everything before it once more.
    History(usize),
    /// This many exchanges, one after the other, of which each knows nothing of the others.
    Items(usize),
    /// Conversations at the same time, in each of which the model calls [`TOOL`] before it answers: `calls` times, as
    /// often at once as the provider is told to.
    Loop { conversations: usize, calls: usize, tool: Tool },
    /// Conversations at the same time, of one answer each, which comes as one document instead of a stream.
    Documents(usize),
    /// An agent that calls an agent that calls an agent; the second and the third are served elsewhere.
    Nested { second: String, third: String },
}

/// What is behind [`TOOL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    /// A function that has its answer in memory.
    Memory,
    /// A function that reads a file beneath this directory.
    File(PathBuf),
    /// A function that takes [`SLOWNESS`] before it gives its answer.
    Slow,
}

/// As long as a request to something nearby.
pub const SLOWNESS: Duration = Duration::from_millis(20);

pub const MODEL: &str = "claude-haiku-4-5";
pub const INSTRUCTIONS: &str = "You are a friendly assistant. Answer briefly.";
/// A piece of a reply, as the provider of the benchmarks is told to send them.
pub const PIECE: &str = "and so the story goes further ";
/// Pieces of each reply of a history or a loop.
pub const PIECES: usize = 20;
/// What the user says in each turn of a history.
pub const QUESTION_REPEATS: usize = 20;
/// What the provider of the benchmarks is told to call, with the path of a file.
pub const TOOL: &str = "read_file";
pub const TOOL_DESCRIPTION: &str = "Reads a text file";
/// What the tool finds, line by line.
pub const LINE: &str = "a line of notes as people take them\n";
pub const LINES: usize = 16;

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
            ["nested", second, third] => Mode::Nested { second: (*second).to_owned(), third: (*third).to_owned() },
            ["documents", conversations] => Mode::Documents(conversations.parse().ok()?),
            ["history", turns] => Mode::History(turns.parse().ok()?),
            ["items", items] => Mode::Items(items.parse().ok()?),
            ["loop", conversations, calls, tool @ ..] => Mode::Loop {
                conversations: conversations.parse().ok()?,
                calls: calls.parse().ok()?,
                tool: match tool {
                    [] => Tool::Memory,
                    ["slow"] => Tool::Slow,
                    [directory] => Tool::File(PathBuf::from(directory)),
                    _ => return None,
                },
            },
            _ => return None,
        };
        Some(Self { wire, base_url: (*base_url).to_owned(), mode })
    }

    /// Whether the program read as much text as it was meant to read. If it did not, its time means nothing.
    pub fn verdict(&self, text_length: usize) -> ExitCode {
        let as_meant = match self.mode {
            Mode::One => text_length > 0,
            Mode::Stream(pieces) => text_length == pieces * PIECE.len(),
            Mode::History(turns) => text_length == turns * PIECES * PIECE.len(),
            Mode::Items(items) => text_length == items * PIECES * PIECE.len(),
            // Only the answer of the first agent is counted.
            Mode::Nested { .. } => text_length == PIECES * PIECE.len(),
            Mode::Documents(conversations) => text_length == conversations * PIECES * PIECE.len(),
            Mode::Loop { conversations, calls, .. } => {
                text_length == conversations * (calls + 1) * PIECES * PIECE.len()
            }
        };
        if as_meant { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Tells how long the slowest but one in a hundred took, in microseconds.
pub fn tell_percentile(times: &mut [Duration]) -> std::io::Result<()> {
    times.sort_unstable();
    let Some(slow) = times.get(times.len() * 99 / 100).or(times.last()) else { return Ok(()) };
    writeln!(std::io::stdout(), "p99 {}", slow.as_micros())
}

/// What the user says in a mode.
pub fn question(mode: &Mode) -> String {
    match mode {
        Mode::One | Mode::Stream(_) | Mode::Items(_) | Mode::Documents(_) | Mode::Loop { .. } | Mode::Nested { .. } => {
            "Hello".to_owned()
        }
        Mode::History(_) => PIECE.repeat(QUESTION_REPEATS),
    }
}

/// What is in the file that the tool reads, and what the tool without a file knows.
pub fn notes() -> String {
    LINE.repeat(LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_read_from_words() {
        let task = |line: &str| Task::parse(line.split(' ').map(str::to_owned));
        let expected = Task { wire: Wire::Chat, base_url: "http://h:1".into(), mode: Mode::History(50) };
        assert_eq!(task("chat http://h:1 history 50"), Some(expected));
        let mode = Mode::Loop { conversations: 1, calls: 50, tool: Tool::File("/tmp".into()) };
        assert_eq!(task("anthropic http://h:1 loop 1 50 /tmp").map(|task| task.mode), Some(mode));
        for wrong in [
            "",
            "chat http://h:1",
            "tls http://h:1 one",
            "chat http://h:1 stream",
            "chat http://h:1 stream x",
            "anthropic http://h:1 loop 50",
        ] {
            assert_eq!(task(wrong), None, "{wrong}");
        }
    }
}
