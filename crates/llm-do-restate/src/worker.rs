//! A worker: serves projects to the engine. It keeps nothing: what a run needs comes with each attempt, and any worker with the same
//! program takes it further.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use llm_do::Limits;
use llm_do::fence::{PrivateDirectory, TemporaryPlace};
use llm_do::records::{EndState, RunEnd, StateKey};
use llm_do::store::layout::{HexDigest, RunId, StoreLayout};
use llm_do::store::run::RunStore;
use llm_do_launch::inbox::Inbox;
use llm_do_launch::keep::EndReason;
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::record::LaunchOverrides;
use llm_do_launch::settings::{RecordsElsewhere, Settings};
use llm_do_launch::state::StateDirectory;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::attempt::{
    Append, AttemptNews, AttemptOver, EarlierEntry, EngineAttempt, EngineEntry, EngineReplica, InvocationInput, LIST,
    OVER,
};
use crate::endpoint;
use crate::identity::IdentityKey;
use crate::round::{RoundError, RunRound, waits};
use crate::words::{Mail, SignedWord, Start};

pub use crate::round::DeployedProject;

/// What a worker is started with.
pub struct WorkerPlan {
    pub settings: Arc<Settings>,
    pub overrides: LaunchOverrides,
    pub projects: Vec<DeployedProject>,
    /// Who has it may start runs and answer.
    pub key: StateKey,
    /// Whose requests are served; everybody's, without.
    pub identity: Option<IdentityKey>,
    pub listen: SocketAddr,
    /// How many runs go on at once.
    pub concurrency: usize,
    /// Where values are kept that are too large for a line, if all workers share it.
    pub blobs: Option<PathBuf>,
}

/// A worker that listens.
pub struct EngineWorker {
    listener: tokio::net::TcpListener,
    house: Arc<WorkerHouse>,
}

/// What all invocations share.
pub(crate) struct WorkerHouse {
    pub settings: Arc<Settings>,
    pub overrides: LaunchOverrides,
    pub projects: BTreeMap<String, Arc<DeployedProject>>,
    pub key: StateKey,
    pub identity: Option<IdentityKey>,
    pub is_draining: AtomicBool,
    pub told: TellOnce,
    blobs: Option<PathBuf>,
    scratch: TemporaryPlace,
    rounds: Semaphore,
    present: AtomicUsize,
    has_left: Notify,
}

/// What was said once already.
#[derive(Default)]
pub(crate) struct TellOnce {
    pub unsigned: AtomicBool,
    word: AtomicBool,
    start: AtomicBool,
}

/// An invocation that goes on.
pub(crate) struct Present<'a>(&'a WorkerHouse);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.present.fetch_sub(1, Ordering::SeqCst);
        self.0.has_left.notify_one();
    }
}

impl EngineWorker {
    /// Listens; nobody is told of it yet.
    pub fn open(plan: WorkerPlan) -> std::io::Result<Self> {
        let WorkerPlan { settings, overrides, projects, key, identity, listen, concurrency, blobs } = plan;
        let listener = endpoint::listener(listen)?;
        let own = settings.variables.get("TMPDIR").map(PathBuf::from);
        let projects = projects.into_iter().map(|project| (project.name.clone(), Arc::new(project))).collect();
        let house = WorkerHouse {
            settings,
            overrides,
            projects,
            key,
            identity,
            is_draining: AtomicBool::new(false),
            told: TellOnce::default(),
            blobs,
            scratch: TemporaryPlace::new(own.as_deref()),
            rounds: Semaphore::new(concurrency),
            present: AtomicUsize::new(0),
            has_left: Notify::new(),
        };
        Ok(Self { listener, house: Arc::new(house) })
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is to drain: then nothing begins any more, and what goes on has this long to come to its end.
    pub async fn serve(self, drain: CancellationToken, patience: Duration) {
        let Self { listener, house } = self;
        let end = CancellationToken::new();
        let serving = tokio::spawn(endpoint::serve(listener, Arc::clone(&house), end.clone()));
        drain.cancelled().await;
        house.is_draining.store(true, Ordering::SeqCst);
        let _ = tokio::time::timeout(patience, house.is_empty()).await;
        end.cancel();
        let _ = serving.await;
    }
}

/// A row of the list of runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineRow {
    pub run: String,
    pub project: String,
    pub state: String,
    /// Milliseconds since 1970.
    pub at: u64,
}

/// What the list calls a run that a worker has, or that has just been told something.
pub const RUNNING: &str = "running";

impl EngineRow {
    /// Of a run that was started, and that nobody has taken up yet.
    pub fn started(run: &str, project: &str, at: u64) -> Self {
        Self { run: run.to_owned(), project: project.to_owned(), state: RUNNING.to_owned(), at }
    }

    fn now(run: &str, project: &str, state: &str) -> Self {
        Self { run: run.to_owned(), project: project.to_owned(), state: state.to_owned(), at: now() }
    }
}

/// So many runs are listed at most; the oldest go first.
const MOST_LISTED: usize = 10_000;
/// So many values are asked for together.
const ASKED_AT_ONCE: u64 = 16;
/// So many bytes of lines are given at once.
const MOST_AT_ONCE: usize = 8 << 20;

impl WorkerHouse {
    pub fn note_once(&self, told: &AtomicBool, what: &str) {
        if !told.swap(true, Ordering::SeqCst) {
            (self.settings.notes)(&format!("warning: {what}\n"));
        }
    }

    pub fn present(&self) -> Present<'_> {
        self.present.fetch_add(1, Ordering::SeqCst);
        Present(self)
    }

    async fn is_empty(&self) {
        while self.present.load(Ordering::SeqCst) > 0 {
            self.has_left.notified().await;
        }
    }

    /// One invocation, from its request to its answer.
    pub async fn invoked(
        self: &Arc<Self>,
        service: &str,
        handler: &str,
        attempt: EngineAttempt,
        asked: InvocationInput,
    ) {
        if service == LIST {
            let _ = match handler {
                "put" => put(attempt, &asked.input).await,
                _ => list(attempt).await,
            };
            return;
        }
        let Some(project) = self.projects.get(service).cloned() else {
            return attempt.give_up(404, "this worker does not serve this project").await;
        };
        let _ = match handler {
            "run" => {
                self.taken_up(project, attempt, asked).await;
                Ok(())
            }
            "say" => self.said(&project, attempt, &asked).await,
            "cancel" => self.cancelled(&project, attempt, &asked).await,
            "lines" => lines(attempt, &asked.input).await,
            _ => {
                let about = json!({"program": project.program, "blobs": self.blobs.is_some()});
                attempt.end(Ok(Bytes::from(about.to_string()))).await;
                Ok(())
            }
        };
    }

    /// Somebody says something to a run: it is checked before it counts.
    async fn said(
        &self,
        project: &DeployedProject,
        mut attempt: EngineAttempt,
        asked: &InvocationInput,
    ) -> Result<(), AttemptOver> {
        let signed: Option<SignedWord> = serde_json::from_slice(&asked.input).ok();
        let word = signed.as_ref().and_then(|signed| signed.read::<Mail>(&project.name, &asked.key, &self.key));
        let Some(word) = word else {
            self.note_once(&self.told.word, "something was said to a run without the engine key, and is not heard");
            attempt.end(Err((403, "this was not said with the engine key".to_owned()))).await;
            return Ok(());
        };
        if attempt.state(OVER).await?.is_some() {
            attempt.end(Err((409, "the run is over".to_owned()))).await;
            return Ok(());
        }
        // It goes on from now on; whoever follows it need not know when a worker has it. Told first, so that nothing is told later
        // which was true before.
        let row = EngineRow::now(&asked.key, &project.name, RUNNING);
        attempt.tell_list(serde_json::to_vec(&row).unwrap_or_default())?;
        for number in 0.. {
            if let Some(before) = attempt.word(number).await? {
                if self.answers_same(&project.name, &asked.key, &before, &word) {
                    attempt.end(Err((409, "the question was answered before".to_owned()))).await;
                    return Ok(());
                }
            } else if attempt.say(number, asked.input.clone()).await? {
                break;
            }
        }
        attempt.end(Ok(Bytes::from_static(b"{}"))).await;
        Ok(())
    }

    fn answers_same(&self, project: &str, run: &str, before: &[u8], word: &Mail) -> bool {
        let before: Option<SignedWord> = serde_json::from_slice(before).ok();
        let before = before.and_then(|signed| signed.read::<Mail>(project, run, &self.key));
        matches!((before, word), (Some(Mail::Answer { question: one, .. }), Mail::Answer { question: other, .. }) if one == *other)
    }

    /// Ends a run by the engine's own signal, which also wakes one that sleeps.
    async fn cancelled(
        &self,
        project: &DeployedProject,
        mut attempt: EngineAttempt,
        asked: &InvocationInput,
    ) -> Result<(), AttemptOver> {
        let signed: Option<SignedWord> = serde_json::from_slice(&asked.input).ok();
        let word = signed.and_then(|signed| signed.read::<Mail>(&project.name, &asked.key, &self.key));
        if !matches!(word, Some(Mail::Cancel { .. })) {
            attempt.end(Err((403, "this was not said with the engine key".to_owned()))).await;
            return Ok(());
        }
        match attempt.state(INVOCATION).await?.and_then(|id| String::from_utf8(id.to_vec()).ok()) {
            Some(id) => {
                attempt.cancel(&id)?;
                attempt.end(Ok(Bytes::from_static(b"{}"))).await;
            }
            None => attempt.end(Err((404, "there is no such run".to_owned()))).await,
        }
        Ok(())
    }

    /// An attempt of a run.
    async fn taken_up(self: &Arc<Self>, project: Arc<DeployedProject>, attempt: EngineAttempt, asked: InvocationInput) {
        let signed: Option<SignedWord> = serde_json::from_slice(&asked.input).ok();
        let start = signed.and_then(|signed| signed.read::<Start>(&project.name, &asked.key, &self.key));
        let (Some(start), Some(run)) = (start, RunId::parse(&asked.key)) else {
            if attempt.is_replaying() {
                // Somebody with its key has taken it up before.
                return attempt.give_up(403, "this worker has another engine key than the run began with").await;
            }
            self.note_once(&self.told.start, "a run was started without the engine key, and does not begin");
            return attempt.end(Err((403, "the run was not started with the engine key".to_owned()))).await;
        };
        let place = PrivateDirectory::default();
        let path = match place.path(&self.scratch, &project.path) {
            Ok(path) => path,
            Err(why) => return attempt.give_up(500, &why).await,
        };
        let store = RunStore::new(StoreLayout::new(path), Some(self.key.clone()));
        let life = RunLife {
            house: Arc::clone(self),
            project,
            store,
            place: Arc::new(place),
            run,
            start,
            limits: Limits::default(),
            goes_on: false,
            is_cancelled: false,
            rounds: 0,
            listed: None,
            over: None,
        };
        life.live(attempt, &asked.id).await;
    }
}

/// Under this key the state of a run says which invocation it is.
const INVOCATION: &str = "invocation";

async fn put(mut attempt: EngineAttempt, input: &[u8]) -> Result<(), AttemptOver> {
    let Ok(row) = serde_json::from_slice::<EngineRow>(input) else {
        attempt.end(Err((400, "this is no row".to_owned()))).await;
        return Ok(());
    };
    let before = attempt.state(&row.run).await?;
    let before = before.and_then(|before| serde_json::from_slice::<EngineRow>(&before).ok());
    if before.is_some_and(|before| before.at > row.at) {
        attempt.end(Ok(Bytes::from_static(b"{}"))).await;
        return Ok(());
    }
    attempt.set_state(&row.run, Bytes::copy_from_slice(input))?;
    let mut keys = attempt.state_keys().await?;
    if keys.len() > MOST_LISTED {
        // Names of runs sort by time.
        keys.sort_unstable();
        for key in keys.iter().take(keys.len() - MOST_LISTED) {
            attempt.clear_state(key)?;
        }
    }
    attempt.end(Ok(Bytes::from_static(b"{}"))).await;
    Ok(())
}

async fn list(mut attempt: EngineAttempt) -> Result<(), AttemptOver> {
    let mut rows: Vec<EngineRow> = Vec::new();
    for key in attempt.state_keys().await? {
        let row = attempt.state(&key).await?;
        rows.extend(row.and_then(|row| serde_json::from_slice(&row).ok()));
    }
    let rows = serde_json::to_vec(&rows).unwrap_or_default();
    attempt.end(Ok(Bytes::from(rows))).await;
    Ok(())
}

/// Which lines of a run are wanted.
#[derive(Debug, Serialize, Deserialize)]
pub struct LinesWanted {
    /// From these on: they are numbered as they came together.
    pub from: u64,
}

/// Lines of a run, and the number of those that come after them.
#[derive(Debug, Serialize, Deserialize)]
pub struct LinesGiven {
    pub lines: String,
    pub next: u64,
}

async fn lines(mut attempt: EngineAttempt, input: &[u8]) -> Result<(), AttemptOver> {
    let Ok(LinesWanted { from }) = serde_json::from_slice(input) else {
        attempt.end(Err((400, "which lines?".to_owned()))).await;
        return Ok(());
    };
    let (mut all, mut next) = (Vec::new(), from);
    while all.len() < MOST_AT_ONCE {
        let lines = attempt.lines(next, ASKED_AT_ONCE).await?;
        let count = lines.len() as u64;
        for lines in &lines {
            all.extend_from_slice(lines);
        }
        next += count;
        if count < ASKED_AT_ONCE {
            break;
        }
    }
    let lines = String::from_utf8_lossy(&all).into_owned();
    let given = serde_json::to_vec(&LinesGiven { lines, next }).unwrap_or_default();
    attempt.end(Ok(Bytes::from(given))).await;
    Ok(())
}

/// A run, as far as one attempt knows it.
struct RunLife {
    house: Arc<WorkerHouse>,
    project: Arc<DeployedProject>,
    /// With this run alone, in a directory that goes with the attempt.
    store: RunStore,
    place: Arc<PrivateDirectory>,
    run: RunId,
    start: Start,
    limits: Limits,
    /// Somebody wants it to go on, and it has not yet.
    goes_on: bool,
    is_cancelled: bool,
    /// How many rounds began since somebody last answered.
    rounds: usize,
    /// What the list says of it.
    listed: Option<String>,
    /// With what it ended.
    over: Option<RunResult>,
}

/// What the engine keeps of a run as its result: a status and a reason, if it could not begin.
type RunResult = Result<String, (u16, String)>;

/// A run whose questions are all answered, and which waits all the same, is not taken up more often until somebody answers again.
const MOST_ROUNDS: usize = 3;

impl RunLife {
    async fn live(mut self, mut attempt: EngineAttempt, id: &str) {
        let Ok(end) = self.restored(&mut attempt, id).await else { return };
        let Ok(end) = end else { return attempt.give_up(500, "the engine's record of the run is not ours").await };
        if let Some(result) = self.over.take() {
            return attempt.end(result.map(Bytes::from)).await;
        }
        match self.lived(&mut attempt, end).await {
            Ok(AttemptEnd::End(result)) => attempt.end(result.map(Bytes::from)).await,
            Ok(AttemptEnd::Sleep) => attempt.sleep().await,
            Ok(AttemptEnd::GiveUp(why)) => attempt.give_up(500, &why).await,
            Err(AttemptOver) => {}
        }
    }

    /// Writes down what earlier attempts left. Lines that were not signed with the key are nobody's.
    async fn restored(
        &mut self,
        attempt: &mut EngineAttempt,
        id: &str,
    ) -> Result<Result<Option<RunEnd>, ()>, AttemptOver> {
        attempt.set_state(INVOCATION, Bytes::from(id.to_owned()))?;
        let mut journal = Vec::new();
        for entry in attempt.replayed().await? {
            match entry {
                EarlierEntry::Lines(lines) => {
                    journal.extend_from_slice(&lines);
                    self.goes_on = false;
                }
                EarlierEntry::Said(word) => self.hear(&word),
                EarlierEntry::Over(result) => self.over = serde_json::from_slice(&result).ok(),
                EarlierEntry::Listed(row) => {
                    self.listed = serde_json::from_slice::<EngineRow>(&row).ok().map(|row| row.state);
                }
            }
        }
        if journal.is_empty() {
            return Ok(Ok(None));
        }
        let layout = self.store.layout();
        let written = DirBuilder::new().mode(0o700).recursive(true).create(layout.run(&self.run)).and_then(|()| {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(layout.journal(&self.run))?;
            file.write_all(&journal)
        });
        // Whoever forged it could have forged answers.
        let contents = written.ok().and_then(|()| self.store.read_journal(&self.run).ok());
        Ok(contents.map(|contents| contents.ended().cloned()).ok_or(()))
    }

    /// A word that somebody said: it counts if it was said with the key, and the first answer to a question counts.
    fn hear(&mut self, word: &[u8]) {
        let signed: Option<SignedWord> = serde_json::from_slice(word).ok();
        let mail = signed.and_then(|it| it.read::<Mail>(&self.project.name, self.run.as_str(), &self.house.key));
        match mail {
            None => {
                let told = &self.house.told.word;
                self.house.note_once(told, "something was said to a run without the engine key, and is not heard");
            }
            Some(Mail::GoOn { limits, .. }) => {
                self.goes_on = true;
                self.listed = None;
                self.limits = limits.limits().or(&self.limits);
            }
            Some(Mail::Cancel { .. }) => self.is_cancelled = true,
            Some(Mail::Answer { question, file }) => {
                let Some(question) = HexDigest::parse(&question) else { return };
                self.rounds = 0;
                // The list was told that it goes on.
                self.listed = None;
                let place = self.store.layout().answers(&self.run);
                let made = DirBuilder::new().mode(0o700).recursive(true).create(&place);
                let file_of = place.join(format!("{question}.json"));
                // One that is there was first. One that was not signed for this question is set aside where it is read.
                let _ = made.and_then(|()| {
                    let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file_of)?;
                    written.write_all(file.as_bytes())
                });
            }
        }
    }

    /// Round after round, until the run has an end or waits for somebody.
    async fn lived(&mut self, attempt: &mut EngineAttempt, mut end: Option<RunEnd>) -> Result<AttemptEnd, AttemptOver> {
        loop {
            for happened in attempt.kept().await? {
                self.happened(&happened);
            }
            match &end {
                Some(end) if end.state == EndState::Done => return self.over(attempt, end).await,
                Some(end) if EndReason::parse(&end.reason) == EndReason::Cancelled => {
                    return self.over(attempt, end).await;
                }
                _ if self.is_cancelled => {
                    end = Some(self.given_up(attempt).await?);
                    continue;
                }
                Some(end) if waits(end) && !self.may_go_on(end) => {
                    self.list(attempt, end.state).await?;
                    // It may have been told something this moment.
                    if self.may_go_on(end) || self.is_cancelled {
                        continue;
                    }
                    return Ok(AttemptEnd::Sleep);
                }
                Some(_) | None => {}
            }
            self.say_listed(attempt, RUNNING).await?;
            self.goes_on = false;
            self.rounds += 1;
            end = match self.round(attempt).await? {
                Ok(end) => Some(end),
                Err(RoundError::BrokenOff(why) | RoundError::Program(why)) => {
                    (self.house.settings.notes)(&format!("warning: the run {}: {why}\n", self.run));
                    return Ok(AttemptEnd::GiveUp(why));
                }
                Err(RoundError::Unusable(why)) => {
                    (self.house.settings.notes)(&format!("warning: the run {} cannot begin: {why}\n", self.run));
                    self.say_listed(attempt, "stopped").await?;
                    return self.ended(attempt, Err((422, why))).await;
                }
            };
        }
    }

    fn happened(&mut self, happened: &AttemptNews) {
        match happened {
            AttemptNews::Said(word) => self.hear(word),
            AttemptNews::Cancelled => self.is_cancelled = true,
        }
    }

    /// Whether what it waited for is there.
    fn may_go_on(&self, end: &RunEnd) -> bool {
        let is_answered = || {
            let open = Inbox::of(self.store.clone()).open();
            open.is_ok_and(|open| open.is_empty())
        };
        self.goes_on || (end.state == EndState::Waits && self.rounds < MOST_ROUNDS && is_answered())
    }

    /// The run is over.
    async fn over(&mut self, attempt: &mut EngineAttempt, end: &RunEnd) -> Result<AttemptEnd, AttemptOver> {
        self.list(attempt, end.state).await?;
        let result = json!({"state": end.state, "reason": end.reason});
        self.ended(attempt, Ok(result.to_string())).await
    }

    /// What it ended with is kept before the engine is told: an attempt that comes after this one says the same.
    async fn ended(&mut self, attempt: &mut EngineAttempt, result: RunResult) -> Result<AttemptEnd, AttemptOver> {
        attempt.put(EngineEntry::Over(serde_json::to_vec(&result).unwrap_or_default()));
        attempt.kept().await?;
        Ok(AttemptEnd::End(result))
    }

    async fn list(&mut self, attempt: &mut EngineAttempt, state: EndState) -> Result<(), AttemptOver> {
        let state = match state {
            EndState::Done => "done",
            EndState::Stopped => "stopped",
            EndState::Waits => "waits",
        };
        self.say_listed(attempt, state).await
    }

    async fn say_listed(&mut self, attempt: &mut EngineAttempt, state: &str) -> Result<(), AttemptOver> {
        if self.listed.as_deref() == Some(state) {
            return Ok(());
        }
        self.listed = Some(state.to_owned());
        let row = EngineRow::now(self.run.as_str(), &self.project.name, state);
        attempt.put(EngineEntry::Listed(serde_json::to_vec(&row).unwrap_or_default()));
        for happened in attempt.kept().await? {
            self.happened(&happened);
        }
        Ok(())
    }

    /// Nobody runs it, and it is cancelled: its record says so.
    async fn given_up(&mut self, attempt: &mut EngineAttempt) -> Result<RunEnd, AttemptOver> {
        let journal = self.store.layout().journal(&self.run);
        let end = RunEnd::new(EndState::Stopped, EndReason::Cancelled.name());
        let Ok(before) = std::fs::read(&journal) else { return Ok(end) };
        let reason = EndReason::Cancelled.name();
        if self.store.mark_stopped(&self.run, reason, None, &project_of).is_ok()
            && let Ok(after) = std::fs::read(&journal)
        {
            attempt.put(EngineEntry::Lines(after.get(before.len()..).unwrap_or_default().to_vec()));
            for happened in attempt.kept().await? {
                self.happened(&happened);
            }
        }
        Ok(end)
    }

    /// One round, whose lines are brought to the engine meanwhile.
    async fn round(&mut self, attempt: &mut EngineAttempt) -> Result<Result<RunEnd, RoundError>, AttemptOver> {
        let house = Arc::clone(&self.house);
        let _permit = loop {
            tokio::select! {
                biased;
                happened = attempt.happened() => self.happened(&happened?),
                permit = house.rounds.acquire() => break permit,
            }
        };
        let (lines, mut appends) = unbounded_channel();
        let mut ended = match self.begun(EngineReplica(lines)) {
            Ok(ended) => ended,
            Err(error) => return Ok(Err(RoundError::BrokenOff(error.to_string()))),
        };
        let mut stops = Stops { store: self.store.clone(), run: self.run, is_armed: true };
        let result = loop {
            if self.is_cancelled {
                let _ = self.store.request_cancel(&self.run);
            }
            tokio::select! {
                biased;
                Some(append) = appends.recv() => attempt.append(append),
                result = &mut ended => break result,
                happened = attempt.happened() => self.happened(&happened?),
            }
        };
        stops.is_armed = false;
        self.rest(attempt, &mut appends).await?;
        Ok(result.unwrap_or_else(|_| Err(RoundError::BrokenOff("its thread has panicked".to_owned()))))
    }

    /// What was handed over and not taken yet.
    async fn rest(
        &mut self,
        attempt: &mut EngineAttempt,
        appends: &mut UnboundedReceiver<Append>,
    ) -> Result<(), AttemptOver> {
        while let Ok(append) = appends.try_recv() {
            attempt.append(append);
        }
        for happened in attempt.kept().await? {
            self.happened(&happened);
        }
        Ok(())
    }

    fn begun(&self, replica: EngineReplica) -> std::io::Result<oneshot::Receiver<Result<RunEnd, RoundError>>> {
        let settings = &self.house.settings;
        let (directory, key) = (state_of(self.store.layout()), self.house.key.clone());
        let state = StateDirectory::at(directory, key, &settings.variables, Arc::clone(&settings.notes));
        let elsewhere = RecordsElsewhere { replica: Arc::new(replica), blobs: self.house.blobs.clone() };
        let round = RunRound {
            project: Arc::clone(&self.project),
            settings: Arc::new(settings.with_state(state, Some(elsewhere))),
            overrides: self.house.overrides.clone(),
            store: self.store.clone(),
            run: self.run,
            start: self.start.clone(),
            limits: self.limits.clone(),
        };
        let (end, ended) = oneshot::channel();
        let place = Arc::clone(&self.place);
        let thread = std::thread::Builder::new().name(format!("run {}", self.run));
        thread.spawn(move || {
            // Nobody may wait any more: the engine ended the attempt.
            let _ = end.send(round.run());
            drop(place);
        })?;
        Ok(ended)
    }
}

/// Asks a round to end whose attempt is over: nobody hears of what it does.
struct Stops {
    store: RunStore,
    run: RunId,
    is_armed: bool,
}

impl Drop for Stops {
    fn drop(&mut self) {
        if self.is_armed {
            let _ = self.store.request_cancel(&self.run);
        }
    }
}

/// How an attempt ends.
enum AttemptEnd {
    End(RunResult),
    Sleep,
    GiveUp(String),
}

fn state_of(layout: &StoreLayout) -> PathBuf {
    layout.runs().parent().map(PathBuf::from).unwrap_or_default()
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
