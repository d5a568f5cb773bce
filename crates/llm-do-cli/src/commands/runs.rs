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

use std::time::{SystemTime, UNIX_EPOCH};

use llm_do::RawJson;
use llm_do::records::{JournalContents, StateKey};
use llm_do::store::index::{IndexLine, RunState};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do_launch::kept_runs::{ForkChanges, ForkedRun, project_of};
use llm_do_launch::open_run::RunPlace;
use llm_do_launch::settings::Settings;

use crate::args::{ListRunsArgs, NamedRunArgs, RunsArgs, RunsCommand};
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;

pub fn run(args: RunsArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = || environment.settings();
    match args.command {
        None => list::run(&args.listing, &environment, &settings()?),
        Some(RunsCommand::Show(args)) => show::run(&args, &settings()?),
        Some(RunsCommand::Follow(args)) => follow::run(&args, &settings()?),
        Some(RunsCommand::Cancel(args)) => cancel(&args, &settings()?),
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
        let RunPlace::Store(store, id) = RunPlace::in_store(typed, settings)? else {
            return Err(Failure::usage(format!("`{typed}` is no run of the store")));
        };
        let listed = store.listed(&project_of).map_err(|error| unlisted(&error))?;
        let line = listed.line_of(&id).map(|line| store.looked_at(line, &project_of)).map(owned);
        let missing = || Failure::usage(format!("the run `{id}` is only being made")).hint("try again in a moment");
        let line = line.ok_or_else(missing)?;
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
}

/// Independent of the text that it was read from.
fn owned(line: IndexLine<'_>) -> IndexLine<'static> {
    let IndexLine { id, at, kind, project, entry, label, state, waits, cost, requests, turns } = line;
    let (project, entry) = (project.into_owned().into(), entry.into_owned().into());
    let (label, waits) = (label.map(|it| it.into_owned().into()), waits.map(|it| it.into_owned().into()));
    IndexLine { id, at, kind, project, entry, label, state, waits, cost, requests, turns }
}

fn unlisted(error: &std::io::Error) -> Failure {
    Failure::failed(format!("the runs cannot be listed: {error}"))
}

/// Why a record cannot be read, and what can be done about the run.
fn damaged(id: &RunId, reason: &str) -> Failure {
    Failure::usage(format!("the run `{id}` cannot be read: {reason}"))
        .hint(format!("nothing was changed; `llm-do runs rm {id} --force` removes it"))
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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

/// What became of a run that was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The process that runs it was asked to end its turn.
    Asked(RunId),
    /// No process runs it: it is marked as stopped.
    Marked(RunId),
    /// It was stopped before.
    Stopped(RunId),
}

fn cancel(args: &NamedRunArgs, settings: &Settings) -> Result<(), Failure> {
    console::print(&match cancelled(&args.run, settings)? {
        CancelOutcome::Asked(id) => format!("the process that runs {id} was asked to end its turn\n"),
        CancelOutcome::Marked(id) => {
            format!("no process runs {id}: it is marked as stopped, and `llm-do resume {id}` still goes on\n")
        }
        CancelOutcome::Stopped(id) => format!("{id} is stopped already, and no process runs it\n"),
    })
}

/// Ends a run that another process may be running.
pub fn cancelled(typed: &str, settings: &Settings) -> Result<CancelOutcome, Failure> {
    let named = NamedRun::find(typed, settings)?;
    let (store, id) = (&named.store, *named.id());
    let failed = |error: std::io::Error| Failure::failed(format!("the run `{id}` cannot be cancelled: {error}"));
    match named.line.state {
        RunState::Running => {
            store.request_cancel(&id).map_err(failed)?;
            if store.is_running(&id).map_err(failed)? {
                return Ok(CancelOutcome::Asked(id));
            }
            // It ended by itself meanwhile: whoever goes on with it later must not be stopped by this.
            store.clear_cancel(&id).map_err(failed)?;
            let now = NamedRun::find(id.as_str(), settings)?;
            match now.line.state {
                RunState::Running => Err(Failure::failed(format!("the run `{id}` was just resumed")).hint("try again")),
                RunState::Done | RunState::Stopped => ended(&now),
                RunState::Waits | RunState::Died | RunState::Damaged => mark(&now, settings),
            }
        }
        RunState::Done | RunState::Stopped => ended(&named),
        RunState::Waits | RunState::Died | RunState::Damaged => mark(&named, settings),
    }
}

/// There is nothing left to cancel.
fn ended(named: &NamedRun) -> Result<CancelOutcome, Failure> {
    match named.line.state {
        RunState::Stopped => Ok(CancelOutcome::Stopped(*named.id())),
        _ => Err(Failure::usage(format!("the run `{}` is done", named.id())).hint("nothing was changed")),
    }
}

fn mark(named: &NamedRun, settings: &Settings) -> Result<CancelOutcome, Failure> {
    let (id, by) = (named.id(), Some(settings.variables.user()));
    let marked = named.store.mark_stopped(id, llm_do_launch::keep::EndReason::Cancelled.name(), by, &project_of);
    marked.map_err(|error| damaged(id, &error.to_string()))?;
    Ok(CancelOutcome::Marked(*id))
}
