//! Why the program ends without doing what was asked, printed in one place.

use std::process::ExitCode;

use llm_do::syntax::diagnostic::{Colour, Report};

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

impl Failure {
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), hint: None, code: FAILED }
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
                console::complain(&format!("error: {message}\n{hint}"));
                ExitCode::from(code)
            }
            Self::Said { code } => ExitCode::from(code),
        }
    }
}

fn count_line(errors: usize) -> String {
    let noun = if errors == 1 { "error" } else { "errors" };
    format!("{errors} {noun}\n")
}
