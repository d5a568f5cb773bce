//! Runs of the store as front ends list, name, show and end them.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use llm_do::approval::{AskedQuestion, PendingQuestion, key_of_call};
use llm_do::records::{ForkOrigin, JournalContents, JournalError, RecordedCall, calls, calls_of, conversation};
use llm_do::store::index::{IndexLine, IndexText, RunState};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::store::summary::{JournalUse, RunSummary};
use llm_do::{Message, RawJson};
use serde::Serialize;

use crate::error::LaunchError;
use crate::keep::EndReason;
use crate::kept_runs::project_of;
use crate::open_run::{RunPlace, project_at};
use crate::settings::Settings;

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A run of the store, and what its list says of it now.
#[derive(Clone, Debug)]
pub struct StoredRun {
    pub store: RunStore,
    pub line: IndexLine<'static>,
}

/// Why nothing can be done with a run.
#[derive(Debug)]
pub enum StoredRunError {
    /// No run is meant, or several are.
    NotFound(LaunchError),
    /// It has a directory and no record yet.
    OnlyBeingMade(RunId),
    Unlisted(io::Error),
    /// It has its answer: there is nothing to end.
    Done(RunId),
    Uncancelled(RunId, io::Error),
    /// Another process went on with it at this moment.
    JustResumed(RunId),
    Damaged(RunId, JournalError),
}

impl StoredRun {
    /// What was typed means exactly one run, or nothing is done.
    pub fn find(typed: &str, settings: &Settings) -> Result<Self, StoredRunError> {
        let place = RunPlace::in_store(typed, settings).map_err(StoredRunError::NotFound)?;
        let RunPlace::Store(store, id) = place else {
            let fact = format!("`{typed}` is no run of the store");
            return Err(StoredRunError::NotFound(LaunchError::usage(fact)));
        };
        let listed = store.listed(&project_of).map_err(StoredRunError::Unlisted)?;
        let line = listed.line_of(&id).map(|line| store.looked_at(line, &project_of)).map(owned);
        Ok(Self { line: line.ok_or(StoredRunError::OnlyBeingMade(id))?, store })
    }

    pub fn id(&self) -> &RunId {
        &self.line.id
    }

    /// What its record says.
    pub fn contents(&self) -> Result<JournalContents, StoredRunError> {
        self.store.read_journal(self.id()).map_err(|error| StoredRunError::Damaged(*self.id(), error))
    }

    /// All that is shown of it.
    pub fn shown(self, contents: &JournalContents, with_messages: bool) -> ShownRun {
        ShownRun::of(self.line, contents, with_messages)
    }

    /// Ends it, whichever process may be running it.
    pub fn cancel(&self, settings: &Settings) -> Result<CancelOutcome, StoredRunError> {
        let (store, id) = (&self.store, *self.id());
        let failed = |error: io::Error| StoredRunError::Uncancelled(id, error);
        match self.line.state {
            RunState::Running => {
                store.request_cancel(&id).map_err(failed)?;
                if store.is_running(&id).map_err(failed)? {
                    return Ok(CancelOutcome::Asked(id));
                }
                // It ended by itself meanwhile: whoever goes on with it later must not be stopped by this.
                store.clear_cancel(&id).map_err(failed)?;
                let now = Self::find(id.as_str(), settings)?;
                match now.line.state {
                    RunState::Running => Err(StoredRunError::JustResumed(id)),
                    RunState::Done | RunState::Stopped => now.ended(),
                    RunState::Waits | RunState::Died | RunState::Damaged => now.mark(settings),
                }
            }
            RunState::Done | RunState::Stopped => self.ended(),
            RunState::Waits | RunState::Died | RunState::Damaged => self.mark(settings),
        }
    }

    /// There is nothing left to cancel.
    fn ended(&self) -> Result<CancelOutcome, StoredRunError> {
        match self.line.state {
            RunState::Stopped => Ok(CancelOutcome::Stopped(*self.id())),
            _ => Err(StoredRunError::Done(*self.id())),
        }
    }

    fn mark(&self, settings: &Settings) -> Result<CancelOutcome, StoredRunError> {
        let (id, by) = (*self.id(), Some(settings.variables.user()));
        let marked = self.store.mark_stopped(&id, EndReason::Cancelled.name(), by, &project_of);
        marked.map_err(|error| StoredRunError::Damaged(id, error))?;
        Ok(CancelOutcome::Marked(id))
    }
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

/// A line independent of the text that it was read from.
pub fn owned(line: IndexLine<'_>) -> IndexLine<'static> {
    let IndexLine { id, at, kind, project, entry, label, state, waits, cost, requests, turns } = line;
    let (project, entry) = (project.into_owned().into(), entry.into_owned().into());
    let (label, waits) = (label.map(|it| it.into_owned().into()), waits.map(|it| it.into_owned().into()));
    IndexLine { id, at, kind, project, entry, label, state, waits, cost, requests, turns }
}

/// The questions without an answer. What is read is what has the id.
pub fn waiting(contents: &JournalContents, run: &str) -> Vec<PendingQuestion> {
    let asked = contents.waiting().filter_map(|(key, shown)| Some((key, shown.to::<AskedQuestion>().ok()?)));
    asked.map(|(key, asked)| asked.pending(run, key_of_call(key))).collect()
}

/// Which runs are wanted.
#[derive(Clone, Debug)]
pub struct RunFilter {
    pub project: ProjectFilter,
    pub state: Option<RunState>,
    pub label: Option<String>,
    /// Milliseconds since 1970.
    pub since: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectFilter {
    Any,
    /// The project with this canonical root.
    Root(String),
    /// All whose roots are called so.
    Name(String),
}

impl ProjectFilter {
    /// A path of a project, or a name as lists show it.
    pub fn of(typed: &Path) -> Self {
        let canonical = || typed.canonicalize().ok().map(|path| path.to_string_lossy().into_owned());
        let found = Self::root(typed).or_else(canonical);
        found.map_or_else(|| Self::Name(typed.to_string_lossy().into_owned()), Self::Root)
    }

    /// The project at a place, or all if there is none.
    pub fn at(place: &Path) -> Self {
        Self::root(place).map_or(Self::Any, Self::Root)
    }

    fn root(path: &Path) -> Option<String> {
        project_at(path).map(|root| root.to_string_lossy().into_owned())
    }
}

impl RunFilter {
    /// The newest first, each as it is now.
    pub fn chosen<'a>(
        &'a self,
        text: &'a IndexText,
        store: &'a RunStore,
    ) -> Box<dyn Iterator<Item = IndexLine<'a>> + 'a> {
        let lines: Box<dyn Iterator<Item = IndexLine<'a>>> = match &self.project {
            ProjectFilter::Any => Box::new(text.newest()),
            ProjectFilter::Root(root) => Box::new(text.newest_of(root)),
            ProjectFilter::Name(name) => Box::new(
                text.newest()
                    .filter(move |line| line.project.trim_end_matches('/').rsplit('/').next() == Some(name.as_str())),
            ),
        };
        let wanted = lines.filter(|line| line.at >= self.since && self.fits_label(line) && self.may_be(line.state));
        let looked_at = wanted.map(|line| store.looked_at(line, &project_of));
        Box::new(looked_at.filter(|line| self.state.is_none_or(|state| line.state == state)))
    }

    fn fits_label(&self, line: &IndexLine<'_>) -> bool {
        self.label.is_none() || line.label.as_deref() == self.label.as_deref()
    }

    /// One that is called running, or could not be read, may be in any state by now.
    fn may_be(&self, listed: RunState) -> bool {
        matches!(listed, RunState::Running | RunState::Damaged) || self.state.is_none_or(|state| state == listed)
    }
}

/// All that is shown of a run; as JSON one object.
#[derive(Debug, Serialize)]
pub struct ShownRun {
    #[serde(flatten)]
    pub line: IndexLine<'static>,
    pub begun: u64,
    pub begun_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked: Option<ForkOrigin>,
    pub usage: llm_do::messages::Usage,
    pub calls: Vec<RecordedCall>,
    /// Questions that nobody has answered.
    pub waiting: Vec<PendingQuestion>,
    /// Calls that may or may not have happened.
    pub in_doubt: Vec<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Message>>,
}

impl ShownRun {
    pub fn of(line: IndexLine<'static>, contents: &JournalContents, with_messages: bool) -> Self {
        let journal_use = if line.state == RunState::Running { JournalUse::Locked } else { JournalUse::Free };
        let RunSummary { usage, turns, requests, .. } = RunSummary::of(contents, journal_use);
        let waiting = waiting(contents, line.id.as_str());
        // A list may be a moment behind the record.
        let line = IndexLine { turns, requests: usage.requests, cost: usage.cost_usd, ..line };
        Self {
            begun: contents.begun_at,
            begun_by: contents.begun_by.clone(),
            forked: contents.identity.forked.clone(),
            usage,
            // A fork shows also what it took over, which is not its own.
            calls: if contents.identity.forked.is_some() { calls(contents) } else { calls_of(contents, &requests) },
            in_doubt: contents.in_doubt().map(|(_, shown)| shown.clone()).collect(),
            messages: with_messages.then(|| conversation(contents)),
            waiting,
            line,
        }
    }
}
