//! What a journal of this program says about a run, and the errors around it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::journal::Journal;
use llm_do::journal::file::{self, FileJournal, JournalError};
use llm_do::journal::mac::StateKey;
use llm_do::journal::record::Contents;
use llm_do::journal::run_id::{is_run_id, run_id};
use llm_do::project::fingerprint::Fingerprint;
use llm_do::runtime::input::Input;
use llm_do::runtime::record::Resumed;
use llm_do::runtime::{RunError, Runtime};
use llm_do::tools::Ending;
use llm_do::tools::approval::short_id;
use serde::{Deserialize, Serialize};

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::plan::Author;
use llm_do_launch::state::State;

/// All that resuming needs to know. Keys of providers are not part of it, and neither is `--approve-all`: a file must not
/// be able to agree to anything.
#[derive(Debug, Serialize, Deserialize)]
pub struct Header {
    pub run: String,
    /// As it was typed, relative to the directory.
    pub project: PathBuf,
    /// Where the run was started.
    pub directory: PathBuf,
    pub flags: Flags,
    pub files: Fingerprint,
    pub input: Input,
}

/// Flags of `run` that a resumed run inherits.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag, as it was given")]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Flags {
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

impl Flags {
    pub fn of(args: &RunArgs) -> Self {
        let conduct = &args.conduct;
        Self {
            models: conduct.models.models.clone(),
            agent: args.agent.clone(),
            no_stream: conduct.no_stream,
            reject_all: conduct.reject_all,
            no_tools: args.no_tools,
            max_requests: conduct.max_requests,
            max_cost_usd: conduct.max_cost_usd,
            allow_unknown_prices: conduct.allow_unknown_prices,
            max_depth: conduct.max_depth,
            python: args.python.clone(),
        }
    }
}

impl Header {
    pub fn of(contents: &Contents, file: &Path) -> Result<Self, Failure> {
        let header: Self = contents.header.to().map_err(|error| {
            Failure::usage(format!("the journal {} was not written by `llm-do run`: {error}", file.display()))
        })?;
        // An id of another form is a stranger's, or of a time before ids were signed.
        let run = if is_run_id(&header.run) { header.run } else { run_id() };
        Ok(Self { run, ..header })
    }
}

/// What a journal says, without going on with it.
pub fn read(file: &Path, author: Author, state: &State) -> Result<Contents, Failure> {
    let contents = match author {
        Author::User => file::read(file, state.key()?),
        Author::Stranger => file::read_foreign(file),
    };
    contents.map_err(unusable)
}

/// The engine of a run, and what is known of it already.
pub struct Recorded {
    pub engine: Arc<dyn Journal>,
    pub resumed: Resumed,
    pub run: String,
    /// The file that the run can be resumed from.
    pub file: Option<PathBuf>,
}

impl Recorded {
    /// A new journal.
    pub fn begin(file: &Path, header: &Header, by: String, key: Option<&StateKey>) -> Result<Self, Failure> {
        let engine = FileJournal::create(file, header, Some(by), key).map_err(unusable)?;
        let (run, resumed) = (header.run.clone(), Resumed::default());
        Ok(Self { engine: Arc::new(engine), resumed, run, file: Some(file.to_owned()) })
    }

    /// Everything from a journal, which stays as it is.
    pub fn replay(contents: Contents, run: String) -> Self {
        Self { engine: Arc::new(FileJournal::replaying(contents)), resumed: Resumed::default(), run, file: None }
    }

    pub fn drive(self, runtime: Runtime) -> Runtime {
        runtime.identified(self.run).recorded_by(self.engine, self.resumed)
    }
}

pub fn unusable(error: JournalError) -> Failure {
    let failure = match &error {
        JournalError::Foreign { .. } => Failure::refused(error.to_string()),
        JournalError::NotEmpty(_)
        | JournalError::InUse(_)
        | JournalError::Damaged { .. }
        | JournalError::Version { .. }
        | JournalError::Missing(_)
        | JournalError::NotAJournal(_)
        | JournalError::NotRegular(_)
        | JournalError::Io { .. } => Failure::usage(error.to_string()),
    };
    match error {
        JournalError::Foreign { .. } => failure.hint("`--foreign` reads it as a stranger's"),
        JournalError::NotEmpty(file) => {
            failure.hint(format!("`llm-do resume {}` continues the run in it; or name another file", file.display()))
        }
        JournalError::InUse(_) => failure.hint("wait until it ends, or look at it with `llm-do resume FILE --show`"),
        JournalError::Damaged { .. } => failure
            .hint("nothing was changed; a journal is only good as a whole, since it says what must not be repeated"),
        JournalError::Version { .. } => failure.hint("resume it with the program that wrote it"),
        JournalError::Missing(_)
        | JournalError::NotAJournal(_)
        | JournalError::NotRegular(_)
        | JournalError::Io { .. } => failure,
    }
}

/// How a run ended, with what can be done about it if it was journaled.
pub fn failure(error: RunError, file: Option<&Path>) -> Failure {
    let Some(file) = file else { return Failure::from(error) };
    let resume = format!("`llm-do resume {}", file.display());
    let hint = match &error {
        RunError::Ended(Ending::NeedsApproval(pending)) => match pending.as_slice() {
            [only] => {
                let id = short_id(&only.id);
                format!("{resume} --approve {id}` allows it and goes on; `--refuse {id}` refuses it")
            }
            several => {
                let flags: Vec<String> =
                    several.iter().map(|waits| format!(" --approve {}", short_id(&waits.id))).collect();
                format!("{resume}{}` allows all and goes on; `--refuse ID` refuses one", flags.concat())
            }
        },
        RunError::Ended(Ending::Limit { limit, .. }) => {
            format!("{resume}` goes on with a higher `--{}`", limit.replace('_', "-"))
        }
        RunError::Ended(Ending::Refused { .. } | Ending::EndedByPerson) => format!("{resume}` asks again"),
        RunError::Ended(Ending::Journal(_)) => return Failure::from(error),
        RunError::Input(_)
        | RunError::Model { .. }
        | RunError::NotAskedAgain { .. }
        | RunError::Empty { .. }
        | RunError::Unfinished { .. }
        | RunError::Limit { .. }
        | RunError::UnknownPrice { .. }
        | RunError::UnboundedTool { .. }
        | RunError::RepeatedFailure { .. }
        | RunError::Output { .. }
        | RunError::NoAgent { .. }
        | RunError::TooDeep { .. }
        | RunError::TooManyCalls(_)
        | RunError::NoProvider { .. }
        | RunError::Toolset { .. }
        | RunError::IdleRule { .. }
        | RunError::Function { .. }
        | RunError::NotStarted
        | RunError::Panicked { .. }
        | RunError::Cancelled { .. }
        | RunError::Ended(Ending::Unauthenticated { .. }) => {
            let failure = Failure::from(error);
            let (_, hint) = failure.words();
            let hint = hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
            return failure.hint(format!("{hint}{resume}` goes on where it stopped"));
        }
    };
    Failure::from(error).hint(hint)
}
