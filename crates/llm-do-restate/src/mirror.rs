//! What an engine keeps, as a store of runs: whoever reads a store reads this one, with the same words. It is brought up to date as
//! long as it is there, and what is written into it, answers and that a run shall end, is told to the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use llm_do::fence::{PrivateDirectory, TemporaryPlace};
use llm_do::records::{JournalError, StateKey};
use llm_do::store::index::IndexLine;
use llm_do::store::layout::{RunId, StoreLayout};
use llm_do::store::run::RunStore;
use llm_do::store::summary::{JournalUse, RunSummary};
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::settings::{Notes, Settings};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::{EngineClient, EngineError};
use crate::words::Mail;
use crate::worker::{EngineRow, RUNNING};

/// So many runs are asked for at once.
const ASKED_AT_ONCE: usize = 16;
/// So often it is brought up to date.
const LOOK: Duration = Duration::from_millis(150);

/// A store that follows an engine.
pub struct Mirror {
    state: PathBuf,
    orders: UnboundedSender<MirrorOrder>,
    thread: Option<JoinHandle<()>>,
    projects: Arc<Mutex<BTreeMap<RunId, String>>>,
    unbegun: Arc<Mutex<BTreeSet<RunId>>>,
    _place: PrivateDirectory,
}

enum MirrorOrder {
    /// Tell the engine what was written here, and come to the end.
    Finish(mpsc::Sender<Result<(), EngineError>>),
    /// This run was just started: it is looked at before the list has it.
    Expect(RunId, String),
}

impl Mirror {
    /// A store that has what the engine has now. If only one run is wanted, by the beginning of
    /// its id, it has no other.
    pub fn open(
        client: EngineClient,
        key: StateKey,
        only: Option<String>,
        settings: &Settings,
    ) -> Result<Self, EngineError> {
        let (by, notes) = (settings.variables.user(), Arc::clone(&settings.notes));
        let own = settings.variables.get("TMPDIR").map(PathBuf::from);
        let unmade = |why: String| EngineError::Garbled(why);
        let place = PrivateDirectory::default();
        let here = PathBuf::from(".");
        let state = place.path(&TemporaryPlace::new(own.as_deref()), &here).map_err(unmade)?;
        let store = RunStore::new(StoreLayout::new(&state), Some(key.clone()));
        let made = DirBuilder::new().mode(0o700).recursive(true).create(store.layout().runs());
        made.map_err(|error| unmade(error.to_string()))?;
        let (orders, received) = unbounded_channel();
        let (first, opened) = mpsc::channel();
        let projects = Arc::default();
        let (runs, told) = (BTreeMap::new(), BTreeSet::new());
        let unbegun = Arc::default();
        let following = Following {
            client,
            key,
            by,
            only,
            store,
            runs,
            projects: Arc::clone(&projects),
            unbegun: Arc::clone(&unbegun),
            notes,
            told,
        };
        let thread = std::thread::Builder::new().name("engine".to_owned());
        let thread = thread.spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match executor {
                Ok(executor) => executor.block_on(following.follow(received, &first)),
                Err(error) => drop(first.send(Err(EngineError::Garbled(error.to_string())))),
            }
        });
        let thread = Some(thread.map_err(|error| unmade(error.to_string()))?);
        let mirror = Self { state, orders, thread, projects, unbegun, _place: place };
        opened.recv().unwrap_or(Err(EngineError::Garbled("nobody follows it".to_owned())))?;
        Ok(mirror)
    }

    /// Where the store is, as a state directory.
    pub fn state(&self) -> PathBuf {
        self.state.clone()
    }

    /// What the project of a run is called at the engine.
    pub fn project(&self, run: &RunId) -> Option<String> {
        self.projects.lock().unwrap_or_else(PoisonError::into_inner).get(run).cloned()
    }

    /// Whether a run whose id begins like this was started, and no worker has written a line of it yet.
    pub fn awaits(&self, beginning: &str) -> bool {
        let unbegun = self.unbegun.lock().unwrap_or_else(PoisonError::into_inner);
        unbegun.iter().any(|id| id.as_str().starts_with(beginning))
    }

    /// A run that was just started.
    pub fn expect(&self, run: RunId, project: String) {
        let _ = self.orders.send(MirrorOrder::Expect(run, project));
    }

    /// What was written here reaches the engine, or why not.
    pub fn finish(mut self) -> Result<(), EngineError> {
        let (told, done) = mpsc::channel();
        let _ = self.orders.send(MirrorOrder::Finish(told));
        let ended = done.recv().unwrap_or(Ok(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        ended
    }
}

struct Following {
    client: EngineClient,
    key: StateKey,
    by: String,
    only: Option<String>,
    store: RunStore,
    runs: BTreeMap<RunId, MirroredRun>,
    /// What the projects of runs are called at the engine.
    projects: Arc<Mutex<BTreeMap<RunId, String>>>,
    /// Runs that were started and of which there is no line yet.
    unbegun: Arc<Mutex<BTreeSet<RunId>>>,
    notes: Notes,
    /// Projects whose workers were said to be gone.
    told: BTreeSet<String>,
}

/// How far a run is known here.
#[derive(Default)]
struct MirroredRun {
    project: String,
    /// The number of the lines that come next.
    next: u64,
    /// How long its record was when it was last written here.
    length: u64,
    /// What the list said when its lines were last read.
    seen: Option<(String, u64)>,
    /// Held as long as a worker runs it, as a process on this machine would.
    lock: Option<File>,
    /// Answers that the engine has.
    told: BTreeSet<String>,
}

impl Following {
    async fn follow(
        mut self,
        mut orders: UnboundedReceiver<MirrorOrder>,
        first: &mpsc::Sender<Result<(), EngineError>>,
    ) {
        let opened = self.refresh().await;
        let is_closed = opened.is_err();
        let _ = first.send(opened);
        if is_closed {
            return;
        }
        loop {
            match tokio::time::timeout(LOOK, orders.recv()).await {
                Ok(None) => return,
                Ok(Some(MirrorOrder::Expect(run, project))) => {
                    self.runs.entry(run).or_default().project = project;
                }
                Ok(Some(MirrorOrder::Finish(told))) => {
                    let _ = told.send(self.push().await);
                    return;
                }
                // What cannot be reached now is looked for again.
                Err(_) => {
                    let _ = self.push().await;
                    let _ = self.refresh().await;
                }
            }
        }
    }

    /// Brings the store up to date.
    async fn refresh(&mut self) -> Result<(), EngineError> {
        let listed = match self.client.list().await {
            // Nobody has ever registered a worker.
            Err(EngineError::Unserved(_)) => return Err(EngineError::Unused),
            listed => listed?,
        };
        let mut wanted: Vec<(RunId, EngineRow)> = Vec::new();
        for row in listed {
            let Some(id) = RunId::parse(&row.run) else { continue };
            if self.only.as_ref().is_some_and(|only| !row.run.starts_with(only.as_str())) {
                continue;
            }
            let known = self.runs.entry(id).or_default();
            known.project.clone_from(&row.project);
            self.projects.lock().unwrap_or_else(PoisonError::into_inner).insert(id, row.project.clone());
            if row.state == RUNNING || known.seen != Some((row.state.clone(), row.at)) {
                wanted.push((id, row));
            }
        }
        let (mut ours, mut others, mut silent) = (0, 0, BTreeSet::new());
        for some in wanted.chunks(ASKED_AT_ONCE) {
            let some: Vec<&(RunId, EngineRow)> =
                some.iter().filter(|(_, row)| !silent.contains(&row.project)).collect();
            let asked = some.iter().map(|(id, _)| {
                let run = self.runs.get(id);
                let (project, next) = run.map(|run| (run.project.clone(), run.next)).unwrap_or_default();
                new_lines(self.client.clone(), project, *id, next)
            });
            let answers = join_all(asked).await;
            for ((id, row), answer) in some.into_iter().zip(answers) {
                self.note_unbegun(*id, row).await;
                match answer {
                    Ok((lines, next)) => self.took(id, &lines, next, row.state == RUNNING)?,
                    // The engine remembers it no more, or its project is served no more.
                    Err(EngineError::Unserved(_)) => continue,
                    // Its workers are gone, and those of others need not be.
                    Err(EngineError::Silent(_)) => {
                        if self.told.insert(row.project.clone()) {
                            let project = &row.project;
                            (self.notes)(&format!(
                                "note: no worker that serves `{project}` answers: its runs are left out\n"
                            ));
                        }
                        silent.insert(row.project.clone());
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                self.runs.entry(*id).or_default().seen = Some((row.state.clone(), row.at));
                match self.store.read_journal(id) {
                    Ok(_) => ours += 1,
                    // It was begun with another key: it is none of ours.
                    Err(JournalError::Foreign { .. }) => {
                        others += 1;
                        let _ = std::fs::remove_dir_all(self.store.layout().run(id));
                    }
                    Err(_) => {}
                }
            }
        }
        if others > 0 && ours == 0 { Err(EngineError::Key) } else { Ok(()) }
    }

    /// Notes whether a run of which nothing is known here is still to begin.
    async fn note_unbegun(&self, id: RunId, row: &EngineRow) {
        let is_unknown = self.runs.get(&id).is_none_or(|run| run.length == 0);
        // One that cannot begin has a result instead.
        let is_unbegun =
            row.state == RUNNING && is_unknown && matches!(self.client.output(&row.project, &row.run).await, Ok(None));
        let mut unbegun = self.unbegun.lock().unwrap_or_else(PoisonError::into_inner);
        if is_unbegun {
            unbegun.insert(id);
        } else {
            unbegun.remove(&id);
        }
    }

    /// Writes down what is new of a run.
    fn took(&mut self, id: &RunId, new: &str, next: u64, is_running: bool) -> Result<(), EngineError> {
        let Some(run) = self.runs.get_mut(id) else { return Ok(()) };
        let failed = |error: std::io::Error| EngineError::Garbled(format!("it cannot be written down: {error}"));
        if new.is_empty() && run.length == 0 {
            return Ok(());
        }
        let file = opened(&self.store, id).map_err(failed)?;
        if is_running && run.lock.is_none() {
            // Before anybody can read of it: it would look as if it had died.
            let _ = file.try_lock();
            run.lock = Some(file.try_clone().map_err(failed)?);
        }
        (&file).write_all(new.as_bytes()).map_err(failed)?;
        run.next = next;
        run.length += new.len() as u64;
        self.unbegun.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if !is_running && let Some(lock) = run.lock.take() {
            lock.unlock().map_err(failed)?;
        }
        self.listed(id, is_running);
        Ok(())
    }

    /// Puts a run onto the list of the store, and what it cost to the costs.
    fn listed(&self, id: &RunId, is_running: bool) {
        let Ok(contents) = self.store.read_journal(id) else { return };
        let journal_use = if is_running { JournalUse::Locked } else { JournalUse::Free };
        let summary = RunSummary::of(&contents, journal_use);
        let project = project_of(&contents);
        let line = IndexLine {
            id: *id,
            at: summary.at,
            kind: summary.kind,
            project: project.as_str().into(),
            entry: summary.entry.as_str().into(),
            label: summary.label.as_deref().map(Into::into),
            state: summary.state,
            waits: summary.waits.as_deref().map(Into::into),
            cost: summary.usage.cost_usd,
            requests: summary.usage.requests,
            turns: summary.turns,
        };
        // What reads the list makes up for a line that could not be written.
        let _ = self.store.index().append(&line);
        if !is_running {
            let _ = self.store.costs().append(&summary.costs(*id, &project));
        }
    }

    /// Tells the engine what was written here.
    async fn push(&mut self) -> Result<(), EngineError> {
        let mut result = Ok(());
        for (id, run) in &mut self.runs {
            let journal = self.store.layout().journal(id);
            let is_longer = std::fs::metadata(&journal).is_ok_and(|found| found.len() > run.length);
            if (self.store.cancel_request(id))() || is_longer {
                let _ = self.store.clear_cancel(id);
                run.length = std::fs::metadata(&journal).map_or(run.length, |found| found.len());
                let word = Mail::Cancel { by: self.by.clone(), at: 0 };
                result = result.and(self.client.say(&run.project, id.as_str(), &word, &self.key).await);
            }
            for (question, file) in answers(&self.store, id) {
                if run.told.insert(question.clone()) {
                    let word = Mail::Answer { question, file };
                    result = result.and(self.client.say(&run.project, id.as_str(), &word, &self.key).await);
                }
            }
        }
        result
    }
}

/// The lines of a run from this number on, and the number that comes after them.
async fn new_lines(
    client: EngineClient,
    project: String,
    id: RunId,
    mut next: u64,
) -> Result<(String, u64), EngineError> {
    let mut new = String::new();
    loop {
        let given = client.lines(&project, id.as_str(), next).await?;
        if given.next == next {
            return Ok((new, next));
        }
        next = given.next;
        new.push_str(&given.lines);
    }
}

/// The answers that were given here.
fn answers(store: &RunStore, id: &RunId) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(store.layout().answers(id)).into_iter().flatten().flatten();
    let answers = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let question = name.strip_suffix(".json")?.to_owned();
        let text = std::fs::read_to_string(entry.path()).ok()?;
        serde_json::from_str::<Value>(&text).ok()?;
        Some((question, text))
    });
    answers.collect()
}

fn opened(store: &RunStore, id: &RunId) -> std::io::Result<File> {
    DirBuilder::new().mode(0o700).recursive(true).create(store.layout().run(id))?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(store.layout().journal(id))
}
