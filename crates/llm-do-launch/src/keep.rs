//! Runs that are kept: from the directory that is made for one to the lines about its end. The store keeps files; here it is
//! decided which run has some, and what is said where it cannot.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llm_do::events::AgentSpending;
use llm_do::messages::Usage;
use llm_do::program::Entry;
use llm_do::providers::ModelError;
use llm_do::records::{
    Blobs, Durability, EndState, JournalSettings, NewRun, PriorSpending, RecordedRequest, RunIdentity, RunKind,
    SharedParts, WriteFailure,
};
use llm_do::remedy::Remedy;
use llm_do::store::costs::CostLine;
use llm_do::store::desk::RunAnswers;
use llm_do::store::index::{IndexLine, RunState};
use llm_do::store::layout::{RunId, StoreLayout};
use llm_do::store::period::{CalendarDay, LocalZone};
use llm_do::store::retention::{self, LONGEST_SWEEP, RetentionRule};
use llm_do::store::run::{OnceClaim, Removal, RunStore};
use llm_do::toolsets::Ending;
use llm_do::{CancellationToken, FileJournal, Program, RunError, Runtime, process};

use crate::error::LaunchError;
use crate::record::{RunHeader, RunRecord, TracedRecord};
use crate::settings::{Notes, RecordsElsewhere, Settings};

/// How a run is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepPlan {
    pub kind: RunKind,
    /// What the user calls it.
    pub label: Option<String>,
    pub durability: Durability,
    pub need: KeepNeed,
    /// Only one run of the project has this key.
    pub once: Option<String>,
    /// What it is called, if somebody was told of it before there was a run.
    pub id: Option<RunId>,
}

impl KeepPlan {
    /// A run cannot be kept for this reason: it goes on all the same and that is said, or it does not begin.
    pub fn unkept(&self, why: &LaunchError, notes: &Notes) -> Result<(), LaunchError> {
        if self.need == KeepNeed::Wanted {
            notes(&format!("note: this run is not kept: {}\n", why.fact()));
            return Ok(());
        }
        let failure = LaunchError::usage(format!("the run cannot be kept: {}", why.fact()));
        match why.remedy() {
            Some(remedy) => Err(failure.hint(remedy.clone())),
            None => Err(failure),
        }
    }
}

/// What becomes of a run that cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepNeed {
    /// It runs all the same, and that is said.
    Wanted,
    /// It does not begin.
    Required,
}

/// How the records of the items of a run are written.
pub struct WrittenItems {
    settings: Arc<Settings>,
    durability: Durability,
    need: KeepNeed,
}

impl WrittenItems {
    /// As the run itself is.
    pub fn of(settings: &Arc<Settings>, durability: Durability, need: KeepNeed) -> Self {
        Self { settings: Arc::clone(settings), durability, need }
    }

    /// Large values are kept where those of the run are, and what requests are made of stands in its journal.
    pub(crate) fn settings(&self, store: &RunStore, id: &RunId, whole: Option<&Arc<FileJournal>>) -> JournalSettings {
        let settings = journal_settings(&self.settings, store, id, self.durability, self.need);
        JournalSettings { parts_in: whole.cloned().map(SharedParts), ..settings }
    }
}

/// Why a run ended, as its record and its line in the list say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It has its answer, or its conversation was closed.
    Answered,
    /// A question is open.
    Asked,
    /// A limit was reached.
    Limit,
    /// A person pressed Ctrl-C.
    Interrupted,
    /// Another process asked it to end.
    Cancelled,
    /// The system ended it.
    Terminated,
    /// Its time was over.
    TimedOut,
    /// What it printed was not read any more.
    Unread,
    /// A call was refused, and that ended it.
    Refused,
    /// What was asked for cannot be done: the input or the project is wrong.
    Usage,
    /// The provider of a model refused, or could not be reached.
    Provider,
    /// An answer violated its schema.
    Schema,
    /// A model, a tool or the program failed.
    Failed,
}

impl EndReason {
    const ALL: [Self; 13] = [
        Self::Answered,
        Self::Asked,
        Self::Limit,
        Self::Interrupted,
        Self::Cancelled,
        Self::Terminated,
        Self::TimedOut,
        Self::Unread,
        Self::Refused,
        Self::Usage,
        Self::Provider,
        Self::Schema,
        Self::Failed,
    ];

    /// Of a turn that came to nothing.
    pub fn of(error: &RunError) -> Self {
        match error {
            RunError::Input(_)
            | RunError::NoAgent { .. }
            | RunError::NoProvider { .. }
            | RunError::Incompatible { .. }
            | RunError::Toolset { .. }
            | RunError::IdleRule { .. }
            | RunError::UnknownPrice { .. }
            | RunError::UnboundedTool { .. }
            | RunError::Ended(Ending::BudgetUnkept { .. })
            | RunError::NotStarted => Self::Usage,
            RunError::Cancelled { .. } => Self::Interrupted,
            RunError::Ended(Ending::NeedsApproval(_) | Ending::NeedsLogin { .. }) => Self::Asked,
            RunError::Ended(Ending::Refused { .. } | Ending::EndedByPerson) => Self::Refused,
            RunError::Ended(Ending::Unauthenticated { .. }) | RunError::NotAskedAgain { .. } => Self::Provider,
            RunError::Ended(Ending::Limit { .. } | Ending::Budget { .. })
            | RunError::Limit { .. }
            | RunError::ContextFull { .. } => Self::Limit,
            RunError::Model { error, .. } => match error {
                ModelError::Authenticate(_)
                | ModelError::FixRequest(_)
                | ModelError::Unreachable(_)
                | ModelError::TimedOut(_)
                | ModelError::Wait(_) => Self::Provider,
                ModelError::ContextTooLong(_) => Self::Limit,
                ModelError::Garbled(_) | ModelError::GiveUp(_) => Self::Failed,
            },
            RunError::Output { .. } => Self::Schema,
            RunError::Ended(Ending::Journal(_))
            | RunError::Unfinished { .. }
            | RunError::Empty { .. }
            | RunError::TooDeep { .. }
            | RunError::TooManyCalls(_)
            | RunError::RepeatedFailure { .. }
            | RunError::Panicked { .. }
            | RunError::Code { .. }
            | RunError::Function { .. } => Self::Failed,
        }
    }

    /// As it is written down.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Asked => "asked",
            Self::Limit => "limit",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
            Self::TimedOut => "timed_out",
            Self::Unread => "unread",
            Self::Refused => "refused",
            Self::Usage => "usage",
            Self::Provider => "provider",
            Self::Schema => "schema",
            Self::Failed => "failed",
        }
    }

    /// Reads what was written down; what a newer program wrote is a failure for us.
    pub fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|reason| reason.name() == name).unwrap_or(Self::Failed)
    }

    /// The state that a run is in after such an end.
    pub fn state(self) -> RunState {
        match self {
            Self::Answered => RunState::Done,
            Self::Asked => RunState::Waits,
            Self::Limit
            | Self::Interrupted
            | Self::Cancelled
            | Self::Terminated
            | Self::TimedOut
            | Self::Unread
            | Self::Refused
            | Self::Usage
            | Self::Provider
            | Self::Schema
            | Self::Failed => RunState::Stopped,
        }
    }
}

/// What a run is about, as lists name it.
#[derive(Clone, Debug)]
pub struct RunSubject {
    /// The canonical root of the project.
    pub project: PathBuf,
    /// The agent or function that it begins with.
    pub entry: String,
}

impl RunSubject {
    pub fn of(program: &Program) -> Self {
        let entry = match &program.entry {
            Entry::Agent(name) => name.clone(),
            Entry::Function(function) => function.to_string(),
            Entry::Open => String::new(),
        };
        let root = if program.root.as_os_str().is_empty() { Path::new(".") } else { &program.root };
        Self { project: root.canonicalize().unwrap_or_else(|_| root.to_owned()), entry }
    }
}

/// Sees to what stays of a run when its process is gone: its lines in the list of runs and in the costs.
pub struct RunKeeper {
    store: RunStore,
    id: RunId,
    subject: RunSubject,
    /// Without one the run itself is not kept, only what it cost.
    kept: Option<KeptJournal>,
    /// What the run cost on other days: what it has spent in all is known, and the rest belongs to today.
    earlier: Vec<CostLine>,
    /// What a fork took over from another run, which has paid for it.
    inherited: Usage,
    /// Why it ends, if a front end knows it better than the error of the turn.
    reason: Arc<Mutex<Option<EndReason>>>,
    /// Whoever looks whether another process wants the turn to end.
    ear: Arc<CancelEar>,
    has_ended: AtomicBool,
    /// Nothing was said in it, and nobody wants to find it later.
    is_forgotten: AtomicBool,
    /// How many items have their answer.
    answered: AtomicU64,
    notes: Notes,
}

/// The journal of a kept run, and how it is listed.
struct KeptJournal {
    journal: Arc<FileJournal>,
    kind: RunKind,
    label: Option<String>,
    rule: RetentionRule,
}

impl RunKeeper {
    /// The id of the run.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The store that the run is in; `None` if only its costs are.
    pub fn store(&self) -> Option<&RunStore> {
        self.kept.as_ref().map(|_| &self.store)
    }

    /// Where files are kept that it brings, if the run is.
    pub fn files(&self) -> Option<PathBuf> {
        self.store().map(|store| store.layout().run(&self.id).join("files"))
    }

    /// Where the answers to its questions are kept, if the run is.
    pub fn answers(&self) -> Option<RunAnswers> {
        self.store().map(|store| RunAnswers::of(store.clone(), self.id))
    }

    /// Begins the record of a new run. `None` if it cannot be kept and need not be, which is said.
    pub fn begin(
        settings: &Settings,
        plan: &KeepPlan,
        subject: RunSubject,
        header: RunHeader,
    ) -> Result<Option<RunRecord>, LaunchError> {
        let unkept = |reason: String| {
            let failure = LaunchError::usage(reason);
            let failure = failure.hint(Remedy::from("name a directory that can be written as the place of the state"));
            plan.unkept(&failure, &settings.notes).map(|()| None)
        };
        // A record is held open as long as the run: many of them must not take what each run needs for a moment.
        if !process::has_room_to_spare() {
            let failure = LaunchError::usage("too many files are open already");
            return plan.unkept(&failure, &settings.notes).map(|()| None);
        }
        let store = match settings.state.runs()? {
            Ok(store) => store,
            Err(reason) => return unkept(reason),
        };
        match Self::begun(settings, store, plan, subject, header) {
            Ok(record) => Ok(Some(record)),
            Err(KeepError::Taken(id)) => Err(LaunchError::Taken(id)),
            Err(KeepError::Unkept(reason)) => unkept(reason),
        }
    }

    /// The same of a run that has its id already, in a store that has no such run.
    pub fn begin_as(
        id: RunId,
        settings: &Settings,
        store: RunStore,
        plan: &KeepPlan,
        subject: RunSubject,
        header: RunHeader,
    ) -> Result<RunRecord, LaunchError> {
        let unmade = |error| LaunchError::failed(format!("{}: {error}", store.layout().runs().display()));
        // Its store is this run's alone.
        let directory = store.layout().run(&id);
        DirBuilder::new().mode(0o700).recursive(true).create(directory).map_err(unmade)?;
        Self::begun_as(id, settings, store, plan, subject, header).map_err(|error| match error {
            KeepError::Taken(id) => LaunchError::Taken(id),
            KeepError::Unkept(reason) => LaunchError::failed(reason),
        })
    }

    fn begun(
        settings: &Settings,
        store: RunStore,
        plan: &KeepPlan,
        subject: RunSubject,
        header: RunHeader,
    ) -> Result<RunRecord, KeepError> {
        let unmade = |error| KeepError::Unkept(format!("{}: {error}", store.layout().runs().display()));
        let made = store.create().map_err(unmade)?;
        let id = plan.id.unwrap_or(made);
        if id != made {
            // A directory in which there is a run is not replaced by another one.
            let renamed = std::fs::rename(store.layout().run(&made), store.layout().run(&id));
            renamed.inspect_err(|_| drop(std::fs::remove_dir(store.layout().run(&made)))).map_err(unmade)?;
        }
        Self::begun_as(id, settings, store, plan, subject, header)
    }

    fn begun_as(
        id: RunId,
        settings: &Settings,
        store: RunStore,
        plan: &KeepPlan,
        subject: RunSubject,
        mut header: RunHeader,
    ) -> Result<RunRecord, KeepError> {
        let unmade = |error| KeepError::Unkept(format!("{}: {error}", store.layout().runs().display()));
        header.run = id.to_string();
        header.flags.durable = plan.durability == Durability::Synced;
        let identity =
            RunIdentity { id: Some(id.to_string()), label: plan.label.clone(), kind: plan.kind, forked: None };
        let journal = FileJournal::begin(
            &store.layout().journal(&id),
            NewRun::of(identity, &header),
            journal_settings(settings, &store, &id, plan.durability, plan.need),
        );
        let journal = match journal {
            Ok(journal) => Arc::new(journal),
            Err(error) => {
                // What was made of it is of no use.
                let _ = std::fs::remove_dir_all(store.layout().run(&id));
                return Err(KeepError::Unkept(error.to_string()));
            }
        };
        if let Some(key) = &plan.once
            && let OnceClaim::Lost(first) = store.claim_once(&subject.project, key, &id).map_err(unmade)?
        {
            drop(journal);
            let _ = store.remove(&id, Removal::Forced);
            return Err(KeepError::Taken(first));
        }
        let keeper =
            Self::of_journal(settings, store, id, subject, Arc::clone(&journal), plan.kind, plan.label.clone());
        keeper.list(RunState::Running, None, Usage::default());
        let (run, file) = (id.to_string(), keeper.store.layout().journal(&id));
        let (resumed, keeper) = (PriorSpending::default(), Some(Arc::new(keeper)));
        let traced = Box::new(TracedRecord::begun(&journal));
        Ok(RunRecord { engine: journal, resumed, run, file: Some(file), keeper, restores: false, traced })
    }

    /// The keeper of a run whose journal is open.
    pub fn of_journal(
        settings: &Settings,
        store: RunStore,
        id: RunId,
        subject: RunSubject,
        journal: Arc<FileJournal>,
        kind: RunKind,
        label: Option<String>,
    ) -> Self {
        let rule = settings.config.runs.retention();
        let kept = Some(KeptJournal { journal, kind, label, rule });
        let keeper = Self::new(store, id, subject, kept, Arc::clone(&settings.notes));
        if let Some(KeptJournal { journal, .. }) = &keeper.kept {
            let ear = Arc::clone(&keeper.ear);
            journal.before_each_effect(move || ear.look());
        }
        keeper
    }

    /// Its record, if it is kept.
    pub(crate) fn journal(&self) -> Option<&Arc<FileJournal>> {
        self.kept.as_ref().map(|kept| &kept.journal)
    }

    /// Of a run that is not kept in the store: what it costs is counted all the same, if there is a place for that.
    pub fn of_costs(settings: &Settings, run: &str, subject: RunSubject) -> Option<Self> {
        let (directory, id) = (settings.state.directory()?, RunId::parse(run)?);
        let store = RunStore::new(StoreLayout::new(directory), None);
        Some(Self::new(store, id, subject, None, Arc::clone(&settings.notes)))
    }

    fn new(store: RunStore, id: RunId, subject: RunSubject, kept: Option<KeptJournal>, notes: Notes) -> Self {
        let (reason, answered) = (Arc::default(), AtomicU64::new(0));
        let [has_ended, is_forgotten] = [(); 2].map(|()| AtomicBool::new(false));
        let ear = Arc::new(CancelEar {
            is_requested: Box::new(store.cancel_request(&id)),
            store: store.clone(),
            id,
            reason: Arc::clone(&reason),
            turn: Mutex::default(),
        });
        let (earlier, inherited) = (Vec::new(), Usage::default());
        Self { store, id, subject, kept, earlier, inherited, reason, ear, has_ended, is_forgotten, answered, notes }
    }

    /// Of a run that goes on: it is listed as running, and what it cost on other days stays counted there.
    #[must_use]
    pub fn continued(mut self, inherited: &[RecordedRequest]) -> Self {
        let today = today();
        let lines = self.store.costs().read(None).unwrap_or_default();
        self.earlier = lines.into_iter().filter(|line| line.run == self.id && line.day != today).collect();
        // What a fork began with was paid by another run.
        for request in inherited {
            self.inherited = self.inherited.plus(&request.usage);
            self.earlier.push(inherited_line(request, today, self.id, &self.subject));
        }
        let before = self.store.index().read().ok();
        let before = before.as_ref().and_then(|text| text.line_of(&self.id));
        let usage = before.map(|line| Usage { cost_usd: line.cost, requests: line.requests, ..Usage::default() });
        self.list(RunState::Running, None, usage.unwrap_or_default());
        self
    }

    /// Of a run over items, so many have their answer: each counts as a turn.
    pub fn has_answered(&self, items: u64) {
        self.answered.store(items, Ordering::SeqCst);
    }

    /// A front end says why the run ends, where the error of a turn could not.
    pub fn ends_by(&self, reason: EndReason) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// Nothing came of it, so nothing stays of it when it ends.
    pub fn forget(&self) {
        self.is_forgotten.store(true, Ordering::SeqCst);
    }

    /// Writes down how the run ended and what it cost. Only the first time counts.
    pub async fn end(&self, runtime: &Runtime, last: Option<&RunError>) {
        if self.has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.is_forgotten.load(Ordering::SeqCst) && last.is_none() && self.store().is_some() {
            // If it cannot be removed, it is listed as what it is.
            if self.store.remove(&self.id, Removal::Forced).is_ok() {
                return;
            }
        }
        let said = *self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = match last {
            None => said.unwrap_or(EndReason::Answered),
            // A question that is open is open, whoever ended the process.
            Some(error) => match EndReason::of(error) {
                EndReason::Asked => EndReason::Asked,
                reason => said.unwrap_or(reason),
            },
        };
        if let Some(kept) = &self.kept {
            let state = match reason.state() {
                RunState::Done => EndState::Done,
                RunState::Waits => EndState::Waits,
                RunState::Stopped | RunState::Died | RunState::Running | RunState::Damaged => EndState::Stopped,
            };
            let _ = kept.journal.end(state, reason.name()).await;
        }
        let waits = last.and_then(waits_for);
        self.list(reason.state(), waits, self.own(runtime.usage().total));
        self.count(runtime);
        if let Some(kept) = &self.kept {
            let _ = retention::sweep(&self.store, kept.rule, now(), LONGEST_SWEEP);
        }
    }

    /// What the run itself took of what is counted in it.
    fn own(&self, usage: Usage) -> Usage {
        let cost = |usd: f64| (usd - self.inherited.cost_usd.unwrap_or(0.0)).max(0.0);
        let requests = usage.requests.saturating_sub(self.inherited.requests);
        Usage { requests, cost_usd: usage.cost_usd.map(cost), ..usage }
    }

    /// A line in the list of runs. It is a cache, so one that cannot be written is made up for later.
    fn list(&self, state: RunState, waits: Option<String>, usage: Usage) {
        let Some(KeptJournal { journal, kind, label, .. }) = &self.kept else { return };
        let line = IndexLine {
            id: self.id,
            at: now(),
            kind: *kind,
            project: self.subject.project.to_string_lossy(),
            entry: self.subject.entry.as_str().into(),
            label: label.as_deref().map(Into::into),
            state,
            waits: waits.map(Into::into),
            cost: usage.cost_usd,
            requests: usage.requests,
            turns: journal.turns() + self.answered.load(Ordering::SeqCst),
        };
        let _ = self.store.index().append(&line);
    }

    /// The lines of what the run cost today: all that it cost without what it cost on other days.
    fn count(&self, runtime: &Runtime) {
        let lines = cost_lines(today(), self.id, &self.subject, &runtime.spending(), &self.earlier);
        if let Err(error) = self.store.costs().append(&lines) {
            let is_unkept = self.kept.is_none();
            if !is_unkept {
                (self.notes)(&format!("note: what this run cost cannot be written down: {error}\n"));
            }
        }
    }

    /// The turn that goes on is this one: another process may ask it to end. Looked for before each of its steps, and by a
    /// task of its own, which is not polled whenever the turn is, until what this gives is dropped.
    pub fn listens_for(&self, turn: &CancellationToken) -> Option<CancelWatch> {
        const LOOK: Duration = Duration::from_secs(1);
        self.kept.as_ref()?;
        *self.ear.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn.clone());
        let ear = Arc::clone(&self.ear);
        Some(CancelWatch(tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                if ear.look() {
                    return;
                }
            }
        })))
    }

    /// Whether another process has asked it to end.
    pub fn is_cancelled(&self) -> bool {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) == Some(EndReason::Cancelled)
    }
}

/// A task that looks whether another process wants a turn to end, as long as this is there.
pub struct CancelWatch(tokio::task::JoinHandle<()>);

impl Drop for CancelWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whoever looks whether another process wants a turn to end.
struct CancelEar {
    store: RunStore,
    id: RunId,
    /// Asked before each step.
    is_requested: Box<dyn Fn() -> bool + Send + Sync>,
    reason: Arc<Mutex<Option<EndReason>>>,
    turn: Mutex<Option<CancellationToken>>,
}

impl CancelEar {
    /// Whether the turn was asked to end, which it then does.
    fn look(&self) -> bool {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(turn) = turn else { return false };
        // Of steps at the same time the first one has looked for all of them.
        if turn.is_cancelled() || !(self.is_requested)() {
            return turn.is_cancelled();
        }
        let _ = self.store.clear_cancel(&self.id);
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(EndReason::Cancelled);
        turn.cancel();
        true
    }
}

/// Why a run has no record.
enum KeepError {
    /// For this reason it cannot be kept.
    Unkept(String),
    /// Another run has its key.
    Taken(RunId),
}

/// How the journal of a kept run is written.
pub fn journal_settings(
    settings: &Settings,
    store: &RunStore,
    id: &RunId,
    durability: Durability,
    need: KeepNeed,
) -> JournalSettings {
    let notes = Arc::clone(&settings.notes);
    JournalSettings {
        by: Some(settings.variables.user()),
        key: store.key().cloned(),
        durability,
        blobs: match &settings.elsewhere {
            None => Some(Blobs::at(store.layout().blobs(id))),
            Some(RecordsElsewhere { blobs, .. }) => blobs.as_ref().map(|place| Blobs::at(place.join(id.as_str()))),
        },
        replica: settings.elsewhere.as_ref().map(|elsewhere| Arc::clone(&elsewhere.replica)),
        parts_in: None,
        failure: match need {
            KeepNeed::Required => WriteFailure::EndsRun,
            KeepNeed::Wanted => WriteFailure::Told(Arc::new(move |reason| {
                notes(&format!("note: this run is not kept any more, and cannot be resumed: {reason}\n"));
            })),
        },
    }
}

/// What a fork took over, as if it had been spent on another day.
fn inherited_line(request: &RecordedRequest, day: CalendarDay, run: RunId, subject: &RunSubject) -> CostLine {
    let RecordedRequest { agent, model, usage, .. } = request;
    CostLine {
        day,
        run,
        project: subject.project.to_string_lossy().into_owned(),
        entry: subject.entry.clone(),
        agent: if agent.is_empty() { subject.entry.clone() } else { agent.to_string() },
        model: model.clone(),
        input: usage.input_tokens,
        output: usage.output_tokens,
        usd: usage.cost_usd,
    }
}

/// The lines of one day: what was spent in all, without what was spent on other days. Pure.
fn cost_lines(
    day: CalendarDay,
    run: RunId,
    subject: &RunSubject,
    spending: &[AgentSpending],
    earlier: &[CostLine],
) -> Vec<CostLine> {
    let line = |spent: &AgentSpending| {
        let agent = if spent.agent.is_empty() { subject.entry.clone() } else { spent.agent.to_string() };
        let before = || earlier.iter().filter(|line| line.agent == agent && line.model == spent.model);
        let (input, output) = (spent.usage.input_tokens, spent.usage.output_tokens);
        let usd = spent.usage.cost_usd.map(|usd| before().fold(usd, |rest, line| rest - line.usd.unwrap_or(0.0)));
        CostLine {
            day,
            run,
            project: subject.project.to_string_lossy().into_owned(),
            entry: subject.entry.clone(),
            model: spent.model.clone(),
            input: before().fold(input, |rest, line| rest.saturating_sub(line.input)),
            output: before().fold(output, |rest, line| rest.saturating_sub(line.output)),
            usd: usd.map(|usd| usd.max(0.0)),
            agent,
        }
    };
    spending.iter().map(line).collect()
}

/// The tool that an open question is about.
fn waits_for(error: &RunError) -> Option<String> {
    match error {
        RunError::Ended(Ending::NeedsApproval(pending)) => pending.first().map(|first| first.tool.clone()),
        _ => None,
    }
}

fn today() -> CalendarDay {
    CalendarDay::of(now(), &LocalZone::of_process())
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
