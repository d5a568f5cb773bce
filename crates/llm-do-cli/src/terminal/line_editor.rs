//! Lines of a person, with history and editing. The editor blocks, so it has a thread of its own.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Cmd, Config, Context, Editor, Helper, KeyCode, KeyEvent, Modifiers};
use tokio::sync::oneshot;

use crate::terminal::{self, Lease};

/// What came of a prompt.
#[derive(Debug, PartialEq, Eq)]
pub enum PromptOutcome {
    Text(String),
    /// Ctrl-C: the line is given up.
    Interrupted,
    /// Something that is no text, such as a key of a keyboard for another encoding.
    Unreadable,
    /// Ctrl-D, or the terminal is gone.
    End,
}

pub struct LineEditor {
    _lease: Option<Lease>,
    prompts: mpsc::Sender<Prompt>,
}

struct Prompt {
    /// What stands in the line already.
    draft: String,
    typed: oneshot::Sender<PromptOutcome>,
}

const PROMPT: &str = "> ";
const LONGEST_HISTORY: usize = 1000;

impl LineEditor {
    /// `commands` are completed with Tab. The history is a private file beneath `home`.
    pub fn start(commands: Vec<&'static str>, home: Option<PathBuf>) -> Result<Self, String> {
        let config = Config::builder().behavior(Behavior::PreferTerm).max_history_size(LONGEST_HISTORY);
        let config = config.map_err(|error| error.to_string())?.bracketed_paste(true).build();
        let mut editor = Editor::with_config(config).map_err(|error| error.to_string())?;
        editor.set_helper(Some(Habits { commands }));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = home.and_then(|home| private_file(&home));
        if let Some(history) = &history {
            // If it cannot be loaded there is no history yet.
            let _ = editor.load_history(history);
        }
        // Where nothing controls the process the editor has nothing to change.
        let lease = Lease::of_editor().ok();
        let (prompts, asked) = mpsc::channel();
        std::thread::spawn(move || serve(&mut editor, history.as_deref(), &asked));
        Ok(Self { _lease: lease, prompts })
    }

    pub async fn read(&self, draft: String) -> PromptOutcome {
        let (sender, typed) = oneshot::channel();
        let _ = self.prompts.send(Prompt { draft, typed: sender });
        typed.await.unwrap_or(PromptOutcome::End)
    }
}

fn serve(editor: &mut Editor<Habits, FileHistory>, history: Option<&Path>, asked: &mpsc::Receiver<Prompt>) {
    while let Ok(Prompt { draft, typed: answer }) = asked.recv() {
        terminal::edits(true);
        let read = editor.readline_with_initial(PROMPT, (&draft, ""));
        terminal::edits(false);
        let typed = match read {
            Ok(line) => {
                let _ = editor.add_history_entry(line.as_str());
                if let Some(history) = history {
                    let _ = editor.append_history(history);
                }
                PromptOutcome::Text(joined(&line))
            }
            Err(ReadlineError::Interrupted) => PromptOutcome::Interrupted,
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => PromptOutcome::Unreadable,
            Err(_) => PromptOutcome::End,
        };
        let _ = answer.send(typed);
    }
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
    fn a_continued_line_is_one_text() {
        assert_eq!(joined("a\\\nb\nc \\ d"), "a\nb\nc \\ d");
    }
}
