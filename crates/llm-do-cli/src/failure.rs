//! Why the program ends without doing what was asked, printed in one place.

use std::process::ExitCode;

use llm_do::escape::visible_lines;
use llm_do::model::ModelError;
use llm_do::runtime::RunError;
use llm_do::syntax::diagnostic::{Colour, Report};
use llm_do::tools::Ending;

use crate::console;

#[derive(Debug)]
pub enum Failure {
    /// clap's own words for help, version and usage errors.
    Usage(clap::Error),
    /// Mistakes in a project's files.
    Project { report: Report, colour: Colour },
    /// A fact, and what to do about it.
    Failed { message: String, hint: Option<String>, code: u8 },
    /// The command has said itself what is wrong, on stdout.
    Said { code: u8 },
}

/// Usage or project error.
pub const USAGE: u8 = 2;
/// Agent, model-content or tool failure.
const FAILED: u8 = 1;
/// Provider error after retries.
const PROVIDER: u8 = 3;
/// Approval needed or refused.
const APPROVAL: u8 = 4;
/// Limit reached.
const LIMIT: u8 = 5;
/// The output violates its schema.
const SCHEMA: u8 = 6;

impl Failure {
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), hint: None, code: FAILED }
    }

    pub fn provider(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), hint: None, code: PROVIDER }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), hint: None, code: USAGE }
    }

    #[must_use]
    pub fn hint(self, text: impl Into<String>) -> Self {
        match self {
            Self::Failed { message, code, .. } => Self::Failed { message, hint: Some(text.into()), code },
            other => other,
        }
    }

    /// The exit code it ends with.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Project { .. } => USAGE,
            Self::Failed { code, .. } | Self::Said { code } => *code,
        }
    }

    /// The same in one text and a hint, for JSON.
    pub fn words(&self) -> (String, Option<String>) {
        match self {
            Self::Usage(error) => (error.to_string(), None),
            Self::Project { report, .. } => (report.to_string(), None),
            Self::Failed { message, hint, .. } => (message.clone(), hint.clone()),
            Self::Said { .. } => (String::new(), None),
        }
    }

    /// Prints it and turns it into the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Self::Usage(error) => {
                // Help and version come this way too; they go to stdout and are a success.
                let _ = error.print();
                if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
            }
            Self::Project { report, colour } => {
                console::complain(&report.render(colour));
                console::complain(&count_line(report.error_count()));
                ExitCode::from(USAGE)
            }
            Self::Failed { message, hint, code } => {
                let hint = hint.map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
                console::complain(&format!("error: {}\n{hint}", visible_lines(&message)));
                ExitCode::from(code)
            }
            Self::Said { code } => ExitCode::from(code),
        }
    }
}

const OTHER_MODEL: &str = "`-m` chooses another model; `ollama` needs no key";

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let (code, hint) = match &error {
            RunError::Input(_)
            | RunError::NoAgent { .. }
            | RunError::NoProvider { .. }
            | RunError::Toolset { .. }
            | RunError::NotStarted => (USAGE, None),
            RunError::Ended(ending) => match ending {
                Ending::NeedsApproval(_) => (APPROVAL, Some("`--approve-all` answers every question with yes")),
                Ending::Refused { .. } | Ending::EndedByPerson => (APPROVAL, None),
                Ending::Unauthenticated { .. } => (PROVIDER, Some(OTHER_MODEL)),
                Ending::Limit { .. } => (LIMIT, Some("a flag or `runtime.limits` in the manifest allows more")),
                Ending::Journal(_) => (FAILED, None),
            },
            RunError::Model { error, .. } => match error {
                ModelError::Authenticate(_) => (PROVIDER, Some(OTHER_MODEL)),
                ModelError::FixRequest(_) => (PROVIDER, None),
                ModelError::Unreachable(_) => (PROVIDER, Some("`[http]` in config.toml sets `ca_file` and `proxy`")),
                ModelError::Wait(_) => (PROVIDER, Some("try again later, or choose another model with `-m`")),
                ModelError::ContextTooLong(_) => {
                    (LIMIT, Some("give less input, or choose a model with a larger context"))
                }
                ModelError::Garbled(_) | ModelError::GiveUp(_) => (FAILED, None),
            },
            RunError::Empty { .. }
            | RunError::Declined { .. }
            | RunError::TooDeep { .. }
            | RunError::RepeatedFailure { .. }
            | RunError::Function { .. } => (FAILED, None),
            RunError::Limit { .. } => (LIMIT, Some("`limits` in the agent's file allows more")),
            RunError::UnknownPrice { .. } => {
                (USAGE, Some("`[prices]` in config.toml names it, in USD per million tokens"))
            }
            RunError::Output { .. } => (SCHEMA, None),
        };
        Self::Failed { message: error.to_string(), hint: hint.map(str::to_owned), code }
    }
}

fn count_line(errors: usize) -> String {
    let noun = if errors == 1 { "error" } else { "errors" };
    format!("{errors} {noun}\n")
}
