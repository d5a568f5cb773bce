//! Lines of a person, with history and editing. The editor blocks, so it has a thread of its own.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Config, Context, EditMode, Editor, Event, EventContext, EventHandler,
    Helper, KeyCode, KeyEvent, Modifiers, RepeatCount,
};
use tokio::sync::oneshot;

use llm_do_launch::config::KeysConfig;

use crate::signals;
use crate::terminal::{self, Lease, mentions};

/// What came of a prompt.
#[derive(Debug, PartialEq, Eq)]
pub enum PromptOutcome {
    Text(String),
    /// Ctrl-C: the line is given up. When that was, if there was none.
    Interrupted(Option<Instant>),
    /// Ctrl-O: the last result is to be seen whole. The line goes on as it stood, before and behind its cursor.
    More(String, String),
    /// Ctrl-X Ctrl-E: the line is to be written in the person's editor.
    Edit(String),
    /// Something that is no text, such as a key of a keyboard for another encoding.
    Unreadable,
    /// Ctrl-D, or the terminal is gone.
    End,
}

pub struct LineEditor {
    _lease: Option<Lease>,
    orders: mpsc::Sender<EditorOrder>,
}

enum EditorOrder {
    Prompt {
        /// What stands in the line already, before and behind the cursor.
        draft: (String, String),
        typed: oneshot::Sender<PromptOutcome>,
    },
    /// A line that was typed elsewhere goes into the history.
    Remember(String),
}

const PROMPT: &str = "> ";
const LONGEST_HISTORY: usize = 1000;

impl LineEditor {
    /// `commands` and paths behind `@` are completed with Tab. The history is a private file beneath `home`.
    pub fn start(commands: Vec<&'static str>, home: Option<PathBuf>, keys: EditMode) -> Result<Self, String> {
        let config = Config::builder().behavior(Behavior::PreferTerm).max_history_size(LONGEST_HISTORY);
        let config = config.map_err(|error| error.to_string())?.bracketed_paste(true).edit_mode(keys).build();
        let mut editor = Editor::with_config(config).map_err(|error| error.to_string())?;
        editor.set_helper(Some(Habits { commands }));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        editor.bind_sequence(KeyEvent::ctrl('J'), Cmd::Newline);
        let left = Arc::new(Mutex::new(None));
        let one = |key| Event::from(KeyEvent::ctrl(key));
        for (keys, wish) in [
            (one('C'), PromptWish::GiveUp),
            (one('Z'), PromptWish::Stop),
            (one('O'), PromptWish::More),
            (Event::KeySeq(vec![KeyEvent::ctrl('X'), KeyEvent::ctrl('E')]), PromptWish::Edit),
        ] {
            let handler = LeftPrompt { wish, left: Arc::clone(&left) };
            editor.bind_sequence(keys, EventHandler::Conditional(Box::new(handler)));
        }
        let history = home.and_then(|home| private_file(&home));
        if let Some(history) = &history {
            // If it cannot be loaded there is no history yet.
            let _ = editor.load_history(history);
        }
        // Where nothing controls the process the editor has nothing to change.
        let lease = Lease::of_editor().ok();
        let (orders, asked) = mpsc::channel();
        std::thread::spawn(move || PromptThread { editor, history, left }.serve(&asked));
        Ok(Self { _lease: lease, orders })
    }

    /// A line with this in it already, before and behind the cursor.
    pub async fn read(&self, draft: (String, String)) -> PromptOutcome {
        let (sender, typed) = oneshot::channel();
        let _ = self.orders.send(EditorOrder::Prompt { draft, typed: sender });
        typed.await.unwrap_or(PromptOutcome::End)
    }

    /// Puts a line that was typed elsewhere into the history.
    pub fn remember(&self, line: String) {
        let _ = self.orders.send(EditorOrder::Remember(line));
    }
}

/// What a key wants that ends the reading of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptWish {
    /// Ctrl-C.
    GiveUp,
    /// Ctrl-Z.
    Stop,
    /// Ctrl-O.
    More,
    /// Ctrl-X Ctrl-E.
    Edit,
}

/// A line that was left, and where its cursor stood.
struct LeftLine {
    wish: PromptWish,
    line: String,
    cursor: usize,
    at: Instant,
}

/// Takes down what stood in the line when a key left it, which the editor would forget.
struct LeftPrompt {
    wish: PromptWish,
    left: Arc<Mutex<Option<LeftLine>>>,
}

impl ConditionalEventHandler for LeftPrompt {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let (line, cursor) = (context.line().to_owned(), context.pos());
        let left = LeftLine { wish: self.wish, line, cursor, at: Instant::now() };
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        Some(Cmd::Interrupt)
    }
}

struct PromptThread {
    editor: Editor<Habits, FileHistory>,
    history: Option<PathBuf>,
    left: Arc<Mutex<Option<LeftLine>>>,
}

impl PromptThread {
    fn serve(mut self, orders: &mpsc::Receiver<EditorOrder>) {
        while let Ok(order) = orders.recv() {
            match order {
                EditorOrder::Remember(line) => self.remember(&line),
                EditorOrder::Prompt { draft, typed } => drop(typed.send(self.prompted(draft))),
            }
        }
    }

    fn prompted(&mut self, mut draft: (String, String)) -> PromptOutcome {
        loop {
            terminal::edits(true);
            let read = self.editor.readline_with_initial(PROMPT, (&draft.0, &draft.1));
            terminal::edits(false);
            let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).take();
            match (read, left) {
                (Ok(line), _) => {
                    self.remember(&line);
                    return PromptOutcome::Text(joined(&line));
                }
                (Err(ReadlineError::Interrupted), Some(LeftLine { wish: PromptWish::Stop, line, cursor, .. })) => {
                    // Not by the editor: it would take the terminal again before the process is stopped.
                    signals::stop_here();
                    let (before, behind) = line.split_at(cursor);
                    draft = (before.to_owned(), behind.to_owned());
                }
                (Err(ReadlineError::Interrupted), Some(LeftLine { wish: PromptWish::More, line, cursor, .. })) => {
                    let (before, behind) = line.split_at(cursor);
                    return PromptOutcome::More(before.to_owned(), behind.to_owned());
                }
                (Err(ReadlineError::Interrupted), Some(LeftLine { wish: PromptWish::Edit, line, .. })) => {
                    return PromptOutcome::Edit(line);
                }
                (Err(ReadlineError::Interrupted), Some(LeftLine { wish: PromptWish::GiveUp, line, at, .. })) => {
                    if line.trim().is_empty() {
                        return PromptOutcome::Interrupted(Some(at));
                    }
                    self.remember(&line);
                    return PromptOutcome::Interrupted(None);
                }
                (Err(ReadlineError::Interrupted), None) => return PromptOutcome::Interrupted(None),
                (Err(ReadlineError::Io(error)), _) if error.kind() == io::ErrorKind::InvalidData => {
                    return PromptOutcome::Unreadable;
                }
                (Err(_), _) => return PromptOutcome::End,
            }
        }
    }

    fn remember(&mut self, line: &str) {
        let _ = self.editor.add_history_entry(line);
        if let Some(history) = &self.history {
            let _ = self.editor.append_history(history);
        }
    }
}

/// How lines are edited: as the configuration says, else as `~/.inputrc` does for other programs.
pub fn edit_mode(configured: Option<KeysConfig>, home: Option<&Path>) -> EditMode {
    match configured {
        Some(KeysConfig::Vi) => EditMode::Vi,
        Some(KeysConfig::Emacs) => EditMode::Emacs,
        None => {
            let text = home.and_then(|home| std::fs::read_to_string(home.join(".inputrc")).ok()).unwrap_or_default();
            mode_of(&text)
        }
    }
}

/// The last line counts that sets it.
fn mode_of(inputrc: &str) -> EditMode {
    let set = |line: &str| match line.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["set", "editing-mode", "vi"] => Some(EditMode::Vi),
        ["set", "editing-mode", _] => Some(EditMode::Emacs),
        _ => None,
    };
    inputrc.lines().filter_map(set).next_back().unwrap_or(EditMode::Emacs)
}

/// The line without each `\` that only continued it on the next one, which the model is not to read.
fn joined(line: &str) -> String {
    line.replace("\\\n", "\n")
}

/// The path of the history. Its directory is made such that other users of the machine cannot read what was said.
fn private_file(home: &Path) -> Option<PathBuf> {
    if !home.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(home).ok()?;
    }
    // The editor itself makes the file with mode 0600.
    Some(home.join("history"))
}

struct Habits {
    commands: Vec<&'static str>,
}

impl Validator for Habits {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Habits {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..at];
        if let Some(begun) = mentions::begun(typed) {
            return Ok((at - begun.len(), mentions::completed(begun)));
        }
        let fitting = self.commands.iter().filter(|command| typed.starts_with('/') && command.starts_with(typed));
        Ok((0, fitting.map(|command| (*command).to_owned()).collect()))
    }
}

impl Hinter for Habits {
    type Hint = String;
}

impl Highlighter for Habits {}

impl Helper for Habits {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_other_programs_have() {
        for (text, expected) in [
            ("", EditMode::Emacs),
            ("# set editing-mode vi\n", EditMode::Emacs),
            ("$include /etc/inputrc\n  set  editing-mode vi\n", EditMode::Vi),
            ("set editing-mode vi\nset editing-mode emacs\n", EditMode::Emacs),
        ] {
            assert_eq!(mode_of(text), expected, "{text:?}");
        }
        assert_eq!(edit_mode(Some(KeysConfig::Vi), None), EditMode::Vi);
    }

    #[test]
    fn a_continued_line_is_one_text() {
        assert_eq!(joined("a\\\nb\nc \\ d"), "a\nb\nc \\ d");
    }
}
