//! What a journal of this program says about a run, and the errors around it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::{FileJournal, Input, Journal, records};
use llm_do::?::Remedy;
use llm_do::records::{JournalContents, JournalError, PriorSpending, StateKey, is_run_id, run_id};
use llm_do::trust::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::error::LaunchError;
use crate::state::StateDirectory;

/// All that resuming needs to know. Keys of providers are not part of it, and neither is `--approve-all`: a file must not
/// be able to agree to anything.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunHeader {
    pub run: String,
    /// As it was typed, relative to the directory.
    pub project: PathBuf,
    /// Where the run was started.
    pub directory: PathBuf,
    pub flags: LaunchRecord,
    pub files: Fingerprint,
    pub input: Input,
}

/// Flags of `run` that a resumed run inherits.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag, as it was given")]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaunchRecord {
    #[serde(default)]
    pub models: Vec<String>,
    pub agent: Option<String>,
    #[serde(default)]
    pub no_stream: bool,
    #[serde(default)]
    pub reject_all: bool,
    #[serde(default)]
    pub no_tools: bool,
    pub max_requests: Option<u64>,
    pub max_cost_usd: Option<f64>,
    #[serde(default)]
    pub allow_unknown_prices: bool,
    pub max_depth: Option<u64>,
    pub python: Option<PathBuf>,
}

impl RunHeader {
    pub fn of(contents: &JournalContents, file: &Path) -> Result<Self, LaunchError> {
        let header: Self = contents.header.to().map_err(|error| {
            LaunchError::usage(format!("the journal {} was not written by `llm-do run`: {error}", file.display()))
        })?;
        // An id of another form is a stranger's, or of a time before ids were signed.
        let run = if is_run_id(&header.run) { header.run } else { run_id() };
        Ok(Self { run, ..header })
    }
}

/// Who wrote a journal, as whoever names it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// This user, on this machine or on one that shares its key.
    User,
    Stranger,
}

impl Author {
    /// A stranger, or the user.
    pub fn of(is_foreign: bool) -> Self {
        if is_foreign { Self::Stranger } else { Self::User }
    }
}

/// What a journal says, without going on with it.
pub fn read(file: &Path, author: Author, state: &StateDirectory) -> Result<JournalContents, LaunchError> {
    let contents = match author {
        Author::User => records::read(file, state.key()?),
        Author::Stranger => records::read_foreign(file),
    };
    contents.map_err(unusable)
}

/// The engine of a run, and what is known of it already.
pub struct RunRecord {
    pub engine: Arc<dyn Journal>,
    pub resumed: PriorSpending,
    pub run: String,
    /// The file that the run can be resumed from.
    pub file: Option<PathBuf>,
}

impl RunRecord {
    /// A new journal.
    pub fn begin(file: &Path, header: &RunHeader, by: String, key: Option<&StateKey>) -> Result<Self, LaunchError> {
        let engine = FileJournal::create_by(file, header, Some(by), key).map_err(unusable)?;
        let (run, resumed) = (header.run.clone(), PriorSpending::default());
        Ok(Self { engine: Arc::new(engine), resumed, run, file: Some(file.to_owned()) })
    }

    /// Everything from a journal, which stays as it is.
    pub fn replay(contents: JournalContents, run: String) -> Self {
        Self { engine: Arc::new(FileJournal::replaying(contents)), resumed: PriorSpending::default(), run, file: None }
    }
}

pub fn unusable(error: JournalError) -> LaunchError {
    let failure = match &error {
        JournalError::Foreign { .. } => LaunchError::refused(error.to_string()),
        JournalError::NotEmpty(_)
        | JournalError::InUse(_)
        | JournalError::Damaged { .. }
        | JournalError::Version { .. }
        | JournalError::Missing(_)
        | JournalError::NotAJournal(_)
        | JournalError::NotRegular(_)
        | JournalError::Io { .. } => LaunchError::usage(error.to_string()),
    };
    match error {
        JournalError::Foreign { .. } => failure.hint(Remedy::ReadAsForeign),
        JournalError::NotEmpty(file) => failure.hint(Remedy::ResumeRun { file }),
        JournalError::InUse(_) => failure.hint(Remedy::ShowRun),
        JournalError::Damaged { .. } => failure
            .hint("nothing was changed; a journal is only good as a whole, since it says what must not be repeated"),
        JournalError::Version { .. } => failure.hint("resume it with the program that wrote it"),
        JournalError::Missing(_)
        | JournalError::NotAJournal(_)
        | JournalError::NotRegular(_)
        | JournalError::Io { .. } => failure,
    }
}
