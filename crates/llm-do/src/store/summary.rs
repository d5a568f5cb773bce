//! What a run has come to, from its journal alone: for the list where that is missing or late, and for runs whose process
//! died before it could say anything.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;

use serde::Deserialize;

use super::costs::CostLine;
use super::index::{IndexLine, IndexText, RunKind, RunState};
use super::items::ItemTally;
use super::layout::{RunId, now};
use super::period::{CalendarDay, LocalZone};
use super::run::RunStore;
use crate::journal::file::{JournalError, JournalSettings, OpenJournal, read_with};
use crate::journal::record::{EndState, JournalContents};
use crate::journal::requests::{RecordedRequest, requests};
use crate::message::Usage;

/// What a run has come to. What comes from foreign text is to be escaped where it is shown.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunSummary {
    /// How far it has come.
    pub state: RunState,
    /// The tool that its first open question is about, if it waits.
    pub waits: Option<String>,
    /// When something was last recorded of it, in milliseconds since 1970.
    pub at: u64,
    /// What was begun.
    pub kind: RunKind,
    /// What the user calls it.
    pub label: Option<String>,
    /// The agent or function that it began with; empty before its first step.
    pub entry: String,
    /// How many turns were finished.
    pub turns: u64,
    /// What it took in all; of a fork without what it began with.
    pub usage: Usage,
    /// What it took of each model, each time that it asked one.
    pub requests: Vec<RecordedRequest>,
}

/// Whether a process holds the lock of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalUse {
    /// Nobody does.
    Free,
    /// A process runs it.
    Locked,
}

impl RunSummary {
    /// Of what a journal says, while it is used like this.
    pub fn of(contents: &JournalContents, journal_use: JournalUse) -> Self {
        let turns = contents.turns();
        let finished = turns.iter().filter(|(_, is_finished)| *is_finished).count() as u64;
        let requests: Vec<RecordedRequest> =
            requests(contents).into_iter().filter(|request| !is_inherited(contents, request)).collect();
        let usage = requests.iter().fold(Usage::default(), |sum, request| sum.plus(&request.usage));
        let state = match journal_use {
            JournalUse::Locked => RunState::Running,
            JournalUse::Free => left(contents, &turns),
        };
        Self {
            state,
            waits: waits(contents).filter(|_| state == RunState::Waits),
            at: contents.last_at(),
            kind: contents.identity.kind,
            label: contents.identity.label.clone(),
            entry: contents.entry().unwrap_or_default().to_owned(),
            turns: finished,
            usage,
            requests,
        }
    }

    /// The same of a run that has items: what they took is what it took, and each answer counts as a turn.
    #[must_use]
    pub fn with_items(self, tally: &ItemTally) -> Self {
        let requests = tally.requests.clone();
        let usage = requests.iter().fold(Usage::default(), |sum, request| sum.plus(&request.usage));
        let entry = tally.agent.clone().unwrap_or_default();
        Self { at: self.at.max(tally.at), entry, turns: tally.answered, usage, requests, ..self }
    }

    /// Its line in the list.
    pub(crate) fn line(&self, id: RunId, project: &str) -> IndexLine<'static> {
        IndexLine {
            id,
            at: self.at,
            kind: self.kind,
            project: project.to_owned().into(),
            entry: self.entry.clone().into(),
            label: self.label.clone().map(Into::into),
            state: self.state,
            waits: self.waits.clone().map(Into::into),
            cost: self.usage.cost_usd,
            requests: self.usage.requests,
            turns: self.turns,
        }
    }

    /// Its lines in the costs: one for each day, agent and model.
    pub fn costs(&self, run: RunId, project: &str) -> Vec<CostLine> {
        let mut sums: BTreeMap<(CalendarDay, &str, &str), Usage> = BTreeMap::new();
        let zone = LocalZone::of_process();
        for RecordedRequest { at, agent, model, usage, .. } in &self.requests {
            let agent = if agent.is_empty() { self.entry.as_str() } else { agent };
            let sum = sums.entry((CalendarDay::of(*at, &zone), agent, model)).or_default();
            *sum = sum.plus(usage);
        }
        let line = |((day, agent, model), usage): ((CalendarDay, &str, &str), Usage)| CostLine {
            day,
            run,
            project: project.to_owned(),
            entry: self.entry.clone(),
            agent: agent.to_owned(),
            model: model.to_owned(),
            input: usage.input_tokens,
            output: usage.output_tokens,
            usd: usage.cost_usd,
        };
        sums.into_iter().map(line).collect()
    }
}

/// The requests that a fork has taken over from another run, which has paid for them.
pub fn inherited(contents: &JournalContents) -> Vec<RecordedRequest> {
    requests(contents).into_iter().filter(|request| is_inherited(contents, request)).collect()
}

/// What was recorded before the run began was recorded by another one.
fn is_inherited(contents: &JournalContents, request: &RecordedRequest) -> bool {
    contents.identity.forked.is_some() && request.at < contents.begun_at
}

/// The state of a run that no process runs.
fn left(contents: &JournalContents, turns: &[(u64, bool)]) -> RunState {
    // An answer that is recorded is one, also if the process was killed before it could say that it is done.
    let is_answered =
        contents.identity.kind.has_one_turn() && turns.last().is_some_and(|(_, is_finished)| *is_finished);
    match contents.ended().map(|end| end.state) {
        Some(EndState::Done) => RunState::Done,
        Some(EndState::Waits) => RunState::Waits,
        Some(EndState::Stopped) => RunState::Stopped,
        None if contents.waiting().next().is_some() => RunState::Waits,
        None if is_answered => RunState::Done,
        None => RunState::Died,
    }
}

/// The tool of the first open question.
fn waits(contents: &JournalContents) -> Option<String> {
    #[derive(Deserialize)]
    struct AskedTool {
        tool: String,
    }
    let (_, asked) = contents.waiting().next()?;
    asked.to::<AskedTool>().ok().map(|asked| asked.tool)
}

/// Finds the root of the project that a run is of: whoever writes the headers of journals can read them.
pub type ProjectLookup<'a> = &'a dyn Fn(&JournalContents) -> String;

/// A directory is made before its journal: one without any is younger than this, or was left by a process that was killed.
const BEGINNING: u64 = 10_000;

impl RunStore {
    /// What the journal of a run says. Another process may be writing it.
    pub fn read_journal(&self, id: &RunId) -> Result<JournalContents, JournalError> {
        read_with(&self.layout().journal(id), self.key(), Some(&self.blobs(id)))
    }

    /// What a run has come to, whose journal says this, with its items if it has some.
    pub fn summary(&self, id: &RunId, contents: &JournalContents, journal_use: JournalUse) -> RunSummary {
        let summary = RunSummary::of(contents, journal_use);
        match summary.kind {
            RunKind::Map => summary.with_items(&self.tally(id).unwrap_or_default()),
            RunKind::Run
            | RunKind::Chat
            | RunKind::Scope
            | RunKind::V1
            | RunKind::Mcp
            | RunKind::Acp
            | RunKind::Other => summary,
        }
    }

    /// The list of runs as it is now. One that is missing or late is made anew from the journals; what cannot be written
    /// is made up for by the next one who looks.
    pub fn listed(&self, project_of: ProjectLookup<'_>) -> io::Result<IndexText> {
        let text = self.index().read()?;
        if !text.is_behind() {
            return Ok(text);
        }
        let missing = text.missing(self.ids()?);
        let lines: Vec<Option<IndexLine<'_>>> =
            missing.iter().map(|id| self.line_from_journal(id, project_of)).collect();
        let is_whole = lines.iter().all(Option::is_some);
        let lines: Vec<IndexLine<'_>> = lines.into_iter().flatten().collect();
        // One that is only being made is looked for again next time.
        if is_whole && self.index().rebuild(lines.iter().cloned()).is_ok() {
            return self.index().read();
        }
        text.with(lines, |id| self.has(id))
    }

    /// The line of a run that the list does not have. Nothing of one that is only being made.
    fn line_from_journal(&self, id: &RunId, project_of: ProjectLookup<'_>) -> Option<IndexLine<'static>> {
        let is_young = now().saturating_sub(id.milliseconds()) < BEGINNING;
        let journal_use = if self.is_running(id).unwrap_or(false) { JournalUse::Locked } else { JournalUse::Free };
        match self.read_journal(id) {
            Ok(contents) => {
                let (summary, project) = (self.summary(id, &contents, journal_use), project_of(&contents));
                // A process that died could not say what it had cost; saying it twice does no harm.
                if summary.state == RunState::Died {
                    let _ = self.costs().append(&summary.costs(*id, &project));
                }
                Some(summary.line(*id, &project))
            }
            Err(JournalError::Missing(_) | JournalError::NotAJournal(_)) if is_young => None,
            Err(_) => Some(damaged(id)),
        }
    }

    /// What is true of a run now, where the list cannot know it: one that it calls running may have died, which is then
    /// written down with what it cost; one that could not be read may be whole again.
    pub fn looked_at<'a>(&self, line: IndexLine<'a>, project_of: ProjectLookup<'_>) -> IndexLine<'a> {
        match line.state {
            RunState::Running if !self.is_running(&line.id).unwrap_or(false) => {
                self.settled(&line.id, project_of).unwrap_or(IndexLine { state: RunState::Died, ..line })
            }
            RunState::Damaged => match self.read_journal(&line.id) {
                Ok(_) => self.settled(&line.id, project_of).unwrap_or(line),
                Err(_) => line,
            },
            RunState::Running | RunState::Waits | RunState::Stopped | RunState::Died | RunState::Done => line,
        }
    }

    /// Writes down what became of a run whose process could not. Nothing if somebody goes on with it now.
    fn settled(&self, id: &RunId, project_of: ProjectLookup<'_>) -> Option<IndexLine<'static>> {
        let lock = self.lock_journal(id).ok()?;
        let line = match self.read_journal(id) {
            Ok(contents) => {
                let (summary, project) = (self.summary(id, &contents, JournalUse::Free), project_of(&contents));
                // Both are written again by whoever looks next, if they cannot be written now.
                let _ = self.costs().append(&summary.costs(*id, &project));
                summary.line(*id, &project)
            }
            Err(_) => damaged(id),
        };
        let _ = self.index().append(&line);
        let _ = lock.unlock();
        Some(line)
    }

    /// Marks a run that no process runs as one that somebody has given up, in its journal and in the list. One that a
    /// process runs is an error.
    pub fn mark_stopped(
        &self,
        id: &RunId,
        reason: &str,
        by: Option<String>,
        project_of: ProjectLookup<'_>,
    ) -> Result<(), JournalError> {
        let blobs = Some(self.blobs(id));
        let settings = JournalSettings { by, key: self.key().cloned(), blobs, ..JournalSettings::default() };
        let path = self.layout().journal(id);
        let open = OpenJournal::open_with(&path, settings)?;
        let line = self.summary(id, open.contents(), JournalUse::Free).line(*id, &project_of(open.contents()));
        open.leave(EndState::Stopped, reason)?;
        let line = IndexLine { state: RunState::Stopped, waits: None, at: now(), ..line };
        self.index().append(&line).map_err(|error| JournalError::Io { path, error })
    }

    /// Nobody goes on with a run while its journal is locked.
    fn lock_journal(&self, id: &RunId) -> io::Result<File> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the run `{id}` has no journal"));
        let journal = self.open_journal(id)?.ok_or_else(missing)?;
        match journal.try_lock() {
            Ok(()) => Ok(journal),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The line of a run of which nothing can be read.
fn damaged(id: &RunId) -> IndexLine<'static> {
    let (project, entry, label, waits) = ("".into(), "".into(), None, None);
    let (at, kind, cost, requests, turns) = (id.milliseconds(), RunKind::Run, None, 0, 0);
    IndexLine { id: *id, at, kind, project, entry, label, state: RunState::Damaged, waits, cost, requests, turns }
}
