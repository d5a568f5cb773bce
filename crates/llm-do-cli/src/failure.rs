//! Why the program ends without doing what was asked, printed in one place.

use std::time::Duration;

use llm_do::diagnostics::Colour;
use llm_do::escape::visible_lines;
use llm_do::{Report, RunError};
use llm_do_launch::error::{FailureKind, LaunchError};
use llm_do_launch::keep::EndReason;

use crate::{console, remedy};

#[derive(Debug)]
pub enum Failure {
    /// clap's own words for help, version and usage errors.
    Usage(clap::Error),
    /// Mistakes in a project's files.
    Project { report: Report, colour: Colour },
    /// A fact, and what to do about it; `debug` is what `--debug` shows to a reader who looks for the reason.
    Failed { message: String, hint: Option<String>, code: u8, debug: Option<String> },
    /// The command has said itself what is wrong, on stdout.
    Said { code: u8 },
}

/// Usage or project error.
pub const USAGE: u8 = 2;
/// Agent, model-content or tool failure.
pub const FAILED: u8 = 1;
/// Provider error after retries.
const PROVIDER: u8 = 3;
/// Approval needed or refused.
const APPROVAL: u8 = 4;
/// Limit reached.
const LIMIT: u8 = 5;
/// The output violates its schema.
const SCHEMA: u8 = 6;
/// `--timeout`, as of `timeout(1)`.
const TIMEOUT: u8 = 124;
/// 128 and the number of the signal, as shells count.
pub const INTERRUPTED: u8 = 130;
/// Stdout has no reader any more: the signal would be SIGPIPE.
const UNREAD: u8 = 141;
pub const TERMINATED: u8 = 143;

impl Failure {
    pub fn failed(message: impl Into<String>) -> Self {
        Self::with_code(FAILED, message)
    }

    pub fn provider(message: impl Into<String>) -> Self {
        Self::with_code(PROVIDER, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::with_code(USAGE, message)
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self::with_code(APPROVAL, message)
    }

    pub fn limit(message: impl Into<String>) -> Self {
        Self::with_code(LIMIT, message)
    }

    pub fn interrupted() -> Self {
        Self::with_code(INTERRUPTED, "interrupted")
    }

    pub fn cancelled() -> Self {
        Self::with_code(INTERRUPTED, "cancelled by another process")
    }

    /// Of a run in another process, which ended for this reason.
    pub fn of_end(reason: EndReason, run: &str) -> Self {
        let why = match reason {
            EndReason::Answered => "was given up",
            EndReason::Asked => "waits for an answer",
            EndReason::Refused => "ended at a call that was refused",
            EndReason::Limit => "reached a limit",
            EndReason::Interrupted => "was interrupted",
            EndReason::Cancelled => "was cancelled",
            EndReason::Terminated => "was terminated",
            EndReason::TimedOut => "had no time left",
            EndReason::Unread => "lost the reader of its output",
            EndReason::Usage => "could not do what was asked for",
            EndReason::Provider => "failed at its provider",
            EndReason::Schema => "gave an answer that violates its schema",
            EndReason::Failed => "failed",
        };
        Self::with_code(code_of(reason), format!("the run {run} {why}"))
    }

    pub fn terminated() -> Self {
        Self::with_code(TERMINATED, "terminated")
    }

    /// The reader of stdout has gone.
    pub fn unread() -> Self {
        Self::with_code(UNREAD, "nobody reads stdout any more")
    }

    pub fn timed_out(limit: Duration) -> Self {
        Self::with_code(TIMEOUT, format!("timed out after {} s", limit.as_secs_f64())).hint("`--timeout` allows more")
    }

    fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), hint: None, code, debug: None }
    }

    #[must_use]
    pub fn hint(self, text: impl Into<String>) -> Self {
        match self {
            Self::Failed { message, code, debug, .. } => Self::Failed { message, hint: Some(text.into()), code, debug },
            other => other,
        }
    }

    /// The same failure, to be shown with or without colours.
    #[must_use]
    pub fn coloured(self, colour: Colour) -> Self {
        match self {
            Self::Project { report, .. } => Self::Project { report, colour },
            other => other,
        }
    }

    /// The same failure without what only `--debug` shows.
    #[must_use]
    pub fn plain(self) -> Self {
        match self {
            Self::Failed { message, hint, code, .. } => Self::Failed { message, hint, code, debug: None },
            other => other,
        }
    }

    /// The exit code it ends with.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(error) if !error.use_stderr() => 0,
            Self::Usage(_) | Self::Project { .. } => USAGE,
            Self::Failed { code, .. } | Self::Said { code } => *code,
        }
    }

    /// The exit code in a word, for programs.
    pub fn kind(&self) -> &'static str {
        match (self, self.code()) {
            (Self::Project { .. }, _) => "project",
            (_, USAGE) => "usage",
            (_, PROVIDER) => "provider",
            (_, APPROVAL) => "approval",
            (_, LIMIT) => "limit",
            (_, SCHEMA) => "output",
            (_, TIMEOUT) => "timeout",
            (_, INTERRUPTED) => "cancelled",
            (_, UNREAD) => "unread",
            (_, TERMINATED) => "terminated",
            _ => "failed",
        }
    }

    /// Whether a signal, the clock, a lost reader, a limit or a missing approval ended what was going well.
    pub fn cuts_short(&self) -> bool {
        self.is_stop() || matches!(self.code(), APPROVAL | LIMIT)
    }

    /// Whether the process is to end because of a signal, the clock or a lost reader.
    pub fn is_stop(&self) -> bool {
        matches!(self.code(), TIMEOUT | INTERRUPTED | UNREAD | TERMINATED)
    }

    /// The failure as one text and a hint, for JSON.
    pub fn words(&self) -> (String, Option<String>) {
        match self {
            Self::Usage(error) => {
                let said = error.to_string();
                (said.strip_prefix("error: ").unwrap_or(&said).trim_end().to_owned(), None)
            }
            Self::Project { report, .. } => (report.to_string(), None),
            Self::Failed { message, hint, .. } => (message.clone(), hint.clone()),
            Self::Said { .. } => (String::new(), None),
        }
    }

    /// Prints it, in one place for all commands.
    pub fn print(&self) {
        match self {
            Self::Usage(error) => {
                // Help and version come this way too; they go to stdout and are a success.
                let _ = error.print();
            }
            Self::Project { report, colour } => {
                console::complain(&report.render(*colour));
                console::complain(&count_line(report.error_count()));
            }
            Self::Failed { message, hint, debug, .. } => {
                let hint = hint.as_ref().map(|hint| format!("hint: {}\n", marked(hint))).unwrap_or_default();
                let debug = debug.as_ref().map(|debug| format!("debug: {}\n", marked(debug))).unwrap_or_default();
                console::complain(&format!("error: {}\n{hint}{debug}", marked(message)));
            }
            Self::Said { .. } => {}
        }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        match error {
            // The caller that shows it on a terminal adds colours with [`Failure::coloured`].
            LaunchError::Project(report) => {
                Self::Project { report: report.worded(remedy::WORDING), colour: Colour::Plain }
            }
            LaunchError::Untrusted(_) => Self::refused(error.fact()),
            LaunchError::Taken(_) => Self::usage(error.fact()),
            LaunchError::Failed { fact, remedy, kind } => {
                let code = match kind {
                    FailureKind::Usage => USAGE,
                    FailureKind::Failed => FAILED,
                    FailureKind::Provider => PROVIDER,
                    FailureKind::Approval => APPROVAL,
                };
                Self::Failed { message: fact, hint: remedy.as_ref().map(remedy::words), code, debug: None }
            }
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let hint = error.remedy().as_ref().map(remedy::words);
        let (message, debug) = (error.to_string(), Some(format!("{error:?}")));
        Self::Failed { message, hint, code: code_of(EndReason::of(&error)), debug }
    }
}

/// The exit code of a run that ended for this reason.
fn code_of(reason: EndReason) -> u8 {
    match reason {
        EndReason::Asked | EndReason::Refused => APPROVAL,
        EndReason::Limit => LIMIT,
        EndReason::Interrupted | EndReason::Cancelled => INTERRUPTED,
        EndReason::Terminated => TERMINATED,
        EndReason::TimedOut => TIMEOUT,
        EndReason::Unread => UNREAD,
        EndReason::Usage => USAGE,
        EndReason::Provider => PROVIDER,
        EndReason::Schema => SCHEMA,
        EndReason::Answered | EndReason::Failed => FAILED,
    }
}

/// Lines after the first one are marked: whatever a provider puts there, it is no hint of ours.
pub fn marked(text: &str) -> String {
    visible_lines(text).replace('\n', "\n  | ")
}

fn count_line(errors: usize) -> String {
    let noun = if errors == 1 { "error" } else { "errors" };
    format!("{errors} {noun}\n")
}
