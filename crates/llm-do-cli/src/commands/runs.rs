//! `llm-do runs`: the runs that are kept, and what can be done with them besides going on.

mod export;
pub mod follow;
mod fork;
pub mod list;
mod remove;
mod show;
mod table;
mod telling;
mod transcript;
mod tree;

use llm_do::RawJson;
use llm_do::records::{JournalContents, StateKey};
use llm_do::store::index::IndexLine;
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do_launch::kept_runs::{ForkChanges, ForkedRun};
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::{CancelOutcome, StoredRun, StoredRunError};

use crate::args::{ListRunsArgs, NamedRunArgs, RunsArgs, RunsCommand};
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;

pub fn run(args: RunsArgs) -> Result<(), Failure> {
    let environment = environment(&args)?;
    let settings = || environment.settings();
    match args.command {
        None => list::run(&args.listing, &environment, &settings()?),
        Some(RunsCommand::Show(args)) => show::run(&args, &settings()?),
        Some(RunsCommand::Follow(args)) => follow::run(&args, &settings()?),
        Some(RunsCommand::Cancel(args)) => cancel(&args, &environment, &settings()?),
        Some(RunsCommand::Fork(args)) => fork::run(*args, &environment, &settings()?),
        Some(RunsCommand::Export(args)) => export::run(&args, &settings()?),
        Some(RunsCommand::Rm(args)) => remove::run(&args, &settings()?),
        Some(RunsCommand::Key) => print_key(),
    }
}

/// It needs no settings: a user who asks for a key may have none yet.
fn print_key() -> Result<(), Failure> {
    let key = StateKey::new_hex().map_err(|error| Failure::failed(format!("no key can be made: {error}")))?;
    console::print(&format!("{key}\n"))
}

/// A run that somebody named, and what is known of it now.
pub struct NamedRun {
    store: RunStore,
    line: IndexLine<'static>,
}

impl NamedRun {
    /// What was typed means exactly one run, or nothing is done.
    pub fn find(typed: &str, settings: &Settings) -> Result<Self, Failure> {
        let StoredRun { store, line } = found(typed, settings)?;
        Ok(Self { store, line })
    }

    /// The directory of its project.
    pub fn project(&self) -> &str {
        &self.line.project
    }

    /// What its record says.
    pub fn contents(&self) -> Result<JournalContents, Failure> {
        self.store.read_journal(self.id()).map_err(|error| damaged(self.id(), &error.to_string()))
    }

    pub fn id(&self) -> &RunId {
        &self.line.id
    }

    #[cfg(feature = "restate")]
    pub fn store(&self) -> &RunStore {
        &self.store
    }
}

/// The run that somebody named. At an engine one that was only just started is waited for.
pub fn found(typed: &str, settings: &Settings) -> Result<StoredRun, Failure> {
    let find = || StoredRun::find(typed, settings);
    #[cfg(feature = "restate")]
    let found = crate::engine::once_begun(typed, find);
    #[cfg(not(feature = "restate"))]
    let found = find();
    found.map_err(unusable)
}

/// Why nothing can be done with a run, in words.
pub fn unusable(error: StoredRunError) -> Failure {
    match error {
        StoredRunError::NotFound(error) => error.into(),
        StoredRunError::OnlyBeingMade(id) => {
            Failure::usage(format!("the run `{id}` is only being made")).hint("try again in a moment")
        }
        StoredRunError::Unlisted(error) => unlisted(&error),
        StoredRunError::Done(id) => Failure::usage(format!("the run `{id}` is done")).hint("nothing was changed"),
        StoredRunError::Uncancelled(id, error) => {
            Failure::failed(format!("the run `{id}` cannot be cancelled: {error}"))
        }
        StoredRunError::JustResumed(id) => {
            Failure::failed(format!("the run `{id}` was just resumed")).hint("try again")
        }
        StoredRunError::Damaged(id, error) => damaged(&id, &error.to_string()),
    }
}

fn unlisted(error: &std::io::Error) -> Failure {
    Failure::failed(format!("the runs cannot be listed: {error}"))
}

/// Why a record cannot be read, and what can be done about the run.
fn damaged(id: &RunId, reason: &str) -> Failure {
    Failure::usage(format!("the run `{id}` cannot be read: {reason}"))
        .hint(format!("nothing was changed; `llm-do runs rm {id} --force` removes it"))
}

/// The runs that are wanted, the newest first, each as it is now.
pub fn listed(args: &ListRunsArgs, settings: &Settings) -> Result<Vec<IndexLine<'static>>, Failure> {
    list::listed(args, settings)
}

/// The newest runs of a project, as `llm-do runs` shows them; nothing if there is none.
pub fn of_project(root: &std::path::Path, settings: &Settings) -> Result<String, Failure> {
    list::of_project(root, settings)
}

/// What was said, in Markdown.
pub fn markdown(messages: &[llm_do::Message], agent: &str) -> String {
    transcript::markdown(messages, agent)
}

/// The run that is meant.
pub fn id_of(typed: &str, settings: &Settings) -> Result<RunId, Failure> {
    NamedRun::find(typed, settings).map(|named| *named.id())
}

/// All that is known of a run, as `runs show --json` has it.
pub fn shown(typed: &str, with_messages: bool, settings: &Settings) -> Result<RawJson, Failure> {
    show::shown(typed, with_messages, settings).map(|shown| RawJson::of(&shown))
}

/// A new run that begins as this one did.
pub fn forked(typed: &str, changes: ForkChanges, settings: &Settings) -> Result<ForkedRun, Failure> {
    fork::forked(typed, changes, settings).map(|(_, forked)| forked)
}

/// Whose runs are meant, and which of them.
fn environment(args: &RunsArgs) -> Result<Environment, Failure> {
    let environment = Environment::read().on(&args.engine);
    match &args.command {
        Some(RunsCommand::Fork(_)) if environment.engine.is_some() => Err(not_there("forked")),
        Some(RunsCommand::Rm(_)) if environment.engine.is_some() => Err(not_there("removed")),
        Some(command) => Ok(match command.named() {
            Some(run) => environment.on_run(run),
            None => environment,
        }),
        None => Ok(environment),
    }
}

/// What an engine keeps, it keeps by itself.
fn not_there(what: &str) -> Failure {
    Failure::usage(format!("a run of an engine cannot be {what} from here"))
        .hint("`llm-do runs export RUN --format bundle` brings it here; the engine forgets it by itself")
}

fn cancel(args: &NamedRunArgs, environment: &Environment, settings: &Settings) -> Result<(), Failure> {
    console::print(&match cancelled(&args.run, settings)? {
        CancelOutcome::Asked(id) | CancelOutcome::Marked(id) if environment.engine.is_some() => {
            format!("the engine was asked to end {id}\n")
        }
        CancelOutcome::Asked(id) => format!("the process that runs {id} was asked to end its turn\n"),
        CancelOutcome::Marked(id) => {
            format!("no process runs {id}: it is marked as stopped, and `llm-do resume {id}` still goes on\n")
        }
        CancelOutcome::Stopped(id) => format!("{id} is stopped already, and no process runs it\n"),
    })
}

/// Ends a run that another process may be running.
pub fn cancelled(typed: &str, settings: &Settings) -> Result<CancelOutcome, Failure> {
    found(typed, settings)?.cancel(settings).map_err(unusable)
}
