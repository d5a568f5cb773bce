//! What is said to a run: one input or a chat, out of words, files and stdin.

use std::path::PathBuf;

use llm_do::messages::{Attachment, AttachmentError};
use llm_do::{Content, Input, Program, RawJson, messages};
use llm_do_launch::text as files;
use serde_json::Value;

use crate::failure::Failure;
use crate::plan::{InputPlan, JsonSource, Stdin, TalkPlan};
use crate::terminal::chat::Chat;
use crate::text;

/// One turn, or many.
pub enum Talk {
    Once(Input),
    /// Nothing is said: the turn goes on that an earlier process did not finish.
    Finish,
    Chat(Box<Chat>),
}

/// What is needed to read the input: values only, so that another thread can do it.
pub struct InputReader {
    talk: TalkPlan,
    files: Vec<PathBuf>,
    /// Whether the project takes an input from the command line.
    is_wanted: bool,
    /// The input that the manifest gives.
    default: Option<RawJson>,
}

impl InputReader {
    pub fn new(talk: TalkPlan, files: Vec<PathBuf>, program: &Program) -> Self {
        Self { talk, files, is_wanted: program.allow_cli_input, default: program.default_input.clone() }
    }

    /// The same of a project that is elsewhere: whether it takes this is found out there.
    #[cfg(feature = "restate")]
    pub fn unseen(talk: TalkPlan, files: Vec<PathBuf>) -> Self {
        Self { talk, files, is_wanted: true, default: None }
    }

    pub fn talk(self) -> Result<Talk, Failure> {
        match &self.talk {
            TalkPlan::Once(input) => self.input(input).map(Talk::Once),
            TalkPlan::Chat { .. } if !self.is_wanted => Err(no_input_wanted()),
            TalkPlan::Chat { first, lines } => {
                let first = first.as_ref().map(|first| self.input(first)).transpose()?;
                let files = if first.is_some() { Vec::new() } else { self.files()? };
                Ok(Talk::Chat(Box::new(Chat::new(first, files, lines.clone()))))
            }
        }
    }

    /// The files of `-f`.
    fn files(&self) -> Result<Vec<Attachment>, Failure> {
        let wrong = |error: AttachmentError| Failure::usage(error.to_string());
        self.files.iter().map(|path| messages::read_named(path).map_err(wrong)).collect()
    }

    fn input(&self, input: &InputPlan) -> Result<Input, Failure> {
        let attachments = self.files()?;
        let spoken = match input {
            InputPlan::Json(source) => Some(read_json(source)?),
            InputPlan::Prompt { text, stdin } => {
                let piped = read_stdin(*stdin)?;
                Some(Value::String(match piped {
                    Some(piped) => format!("{text}\n\n<stdin>\n{}\n</stdin>", piped.trim_end_matches(['\r', '\n'])),
                    None => text.clone(),
                }))
            }
            InputPlan::PromptOnStdin => Some(Value::String(without_last_newline(text::stdin()?))),
            InputPlan::Unspoken { stdin } => read_stdin(*stdin)?.map(without_last_newline).map(Value::String),
        };
        if spoken.is_some() && !self.is_wanted {
            return Err(no_input_wanted());
        }
        match (spoken, &self.default) {
            (Some(value), _) => Ok(Input::Object { value, attachments }),
            (None, Some(default)) => Ok(Input::Object { value: default.to().unwrap_or_default(), attachments }),
            (None, None) if attachments.is_empty() => {
                Err(Failure::usage("no input").hint("give a prompt, `--input-json`, or something on stdin"))
            }
            (None, None) => Ok(Input::Parts(attachments.into_iter().map(Content::Attachment).collect())),
        }
    }
}

fn no_input_wanted() -> Failure {
    Failure::usage("this project takes no input from the command line")
        .hint("`allow_cli_input` in its manifest says so; leave out the prompt, or give `--no-stdin`")
}

/// Removes the newline that programs put at the end of their output, since it is not part of what was to be said.
fn without_last_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        text.truncate(text.len() - usize::from(text.ends_with('\r')));
    }
    text
}

fn read_stdin(plan: Stdin) -> Result<Option<String>, Failure> {
    match plan {
        Stdin::LeaveAlone => Ok(None),
        Stdin::Read => Ok(Some(text::stdin()?).filter(|text| !text.trim().is_empty())),
    }
}

fn read_json(source: &JsonSource) -> Result<Value, Failure> {
    let (name, text) = match source {
        JsonSource::Text(text) => ("`--input-json`".to_owned(), text.clone()),
        JsonSource::Stdin => ("stdin".to_owned(), text::stdin()?),
        JsonSource::File(path) => {
            let name = path.display().to_string();
            let text = files::file(&name, path)?;
            (name, text)
        }
    };
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name} is not JSON: {error}")))
}
