//! The process's environment as a value: read once, here and nowhere else.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::ops::Deref;
use std::sync::Arc;

use llm_do::trust::TrustDigest;
use llm_do_launch::settings::{Notes, Settings, Variables};
use llm_do_launch::trust::Consent;

use crate::args::{ConductArgs, EngineArgs};
#[cfg(feature = "restate")]
use crate::engine;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::{console, plan};

const TRUST: &str = "LLM_DO_TRUST";
/// The address of the engine whose runs are meant, as `--on` takes it.
const ENGINE: &str = "LLM_DO_ENGINE";
/// What is said where a digest of a trust list was expected.
pub const DIGEST_FORM: &str = "a digest of a trust list has 32 hex digits";

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts about the process, each of its own")]
pub struct Environment {
    pub variables: Variables,
    pub stdin_is_terminal: bool,
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    /// Whether a person can be asked: stderr is a terminal, and so is what controls the process.
    pub can_ask: bool,
    /// Whether stdin is a pipe or a file; a terminal or a device is never read.
    pub stdin_is_readable: bool,
    /// The durable engine whose runs are meant, instead of those that are kept here.
    pub engine: Option<String>,
    /// The one run of it that is meant, by the beginning of its id.
    pub engine_run: Option<String>,
}

impl Environment {
    pub fn read() -> Self {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let stderr_is_terminal = std::io::stderr().is_terminal();
        Self {
            variables: Variables::new(std::env::vars_os().filter_map(text).collect()),
            stdin_is_terminal: std::io::stdin().is_terminal(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal,
            can_ask: stderr_is_terminal && Terminal::is_there(),
            stdin_is_readable: stdin_is_readable(),
            engine: None,
            engine_run: None,
        }
    }

    /// The same for a command that may speak to the runs of a durable engine: of this one, or of the one that a variable names.
    #[must_use]
    pub fn on(self, engine: &EngineArgs) -> Self {
        let named = engine.url.clone().or_else(|| self.get(ENGINE).map(str::to_owned));
        Self { engine: named, ..self }
    }

    /// Whether a command speaks to the runs of a durable engine. Nothing else is read for that: hardly anybody has one.
    #[cfg(feature = "restate")]
    pub fn has_engine(engine: &EngineArgs) -> bool {
        engine.url.is_some() || std::env::var(ENGINE).is_ok_and(|url| !url.trim().is_empty())
    }

    /// The same for a command that speaks of one run: at an engine no other one is read.
    #[must_use]
    pub fn on_run(self, run: &str) -> Self {
        Self { engine_run: Some(run.to_owned()), ..self }
    }

    /// What holds for every run of the user. With an engine its runs are the runs that are kept.
    pub fn settings(&self) -> Result<Settings, Failure> {
        self.with_runs(self.own_settings()?)
    }

    /// The same, whose runs are those that are kept here.
    pub fn own_settings(&self) -> Result<Settings, Failure> {
        Ok(Settings::load(self.variables.clone(), console::notes())?)
    }

    #[cfg(feature = "restate")]
    fn with_runs(&self, settings: Settings) -> Result<Settings, Failure> {
        match &self.engine {
            Some(url) => engine::mirrored(url, self.engine_run.as_deref(), &settings),
            None => Ok(settings),
        }
    }

    #[cfg(not(feature = "restate"))]
    fn with_runs(&self, settings: Settings) -> Result<Settings, Failure> {
        match &self.engine {
            Some(_) => Err(Failure::usage("this llm-do was built without engines")),
            None => Ok(settings),
        }
    }

    /// The same for a run: whoever wants to hear of errors alone hears no remarks.
    pub fn settings_of_run(&self, conduct: &ConductArgs) -> Result<Settings, Failure> {
        let is_told = conduct.debug || plan::output(conduct, self).view.tells_notes();
        let notes: Notes = if is_told { console::notes() } else { Arc::new(|_| {}) };
        let mut settings = Settings::load(self.variables.clone(), notes)?;
        // What a pipe has taken cannot be taken back.
        settings.config.http.never_after_output = conduct.stream && !self.stdout_is_terminal;
        Ok(settings)
    }

    /// What the user agreed to in advance, with the variable for trust.
    pub fn consent(&self) -> Result<Option<Consent>, Failure> {
        match self.get(TRUST) {
            None => Ok(None),
            Some("1") => Ok(Some(Consent::Everything)),
            Some(text) => match TrustDigest::parse(text) {
                Some(digest) => Ok(Some(Consent::List(digest))),
                None => Err(Failure::usage(format!("{TRUST} is neither `1` nor a digest")).hint(DIGEST_FORM)),
            },
        }
    }

    pub fn colours_stderr(&self) -> bool {
        self.stderr_is_terminal && self.wants_colour()
    }

    pub fn colours_stdout(&self) -> bool {
        self.stdout_is_terminal && self.wants_colour()
    }

    /// Whether colours may be used: not if `NO_COLOR` is set or the terminal is dumb.
    fn wants_colour(&self) -> bool {
        self.get("NO_COLOR").is_none() && !self.is_dumb()
    }

    /// A terminal that knows no control codes, or of which nothing is known.
    pub fn is_dumb(&self) -> bool {
        self.get("TERM").is_none_or(|term| term == "dumb")
    }

    #[cfg(test)]
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { variables: Variables::of(variables), ..Self::default() }
    }
}

impl Deref for Environment {
    type Target = Variables;

    fn deref(&self) -> &Variables {
        &self.variables
    }
}

fn stdin_is_readable() -> bool {
    use rustix::fs::FileType;
    let Ok(stat) = rustix::fs::fstat(std::io::stdin()) else { return false };
    matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Fifo | FileType::Socket)
}
