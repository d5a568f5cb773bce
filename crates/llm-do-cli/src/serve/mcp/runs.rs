//! The runs of calls: those that this process runs, how each is followed, and how one goes on whoever ran it before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use llm_do::approval::PendingQuestion;
use llm_do::escape::visible;
use llm_do::questions::QuestionBroker;
use llm_do::records::outcome;
use llm_do::store::layout::RunId;
use llm_do::toolsets::Ending;
use llm_do::{CancellationToken, EventKind, Input, Listen, Output, RunError};
use llm_do_launch::keep::{EndReason, RunKeeper};
use llm_do_launch::launch::{ListenPlan, ReadyRun};
use llm_do_launch::session::{Session, SessionLength, SessionUpdates, TurnReport, TurnResult, Update};
use llm_do_launch::stored_runs::{StoredRun, waiting};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::console;
use crate::failure::Failure;
use crate::remedy;
use crate::serve::host::{BegunCall, Host, HostedRun, NewCall};

/// So many runs may go on at once.
const MOST_RUNS: usize = 16;
/// More words about how far a run has come are not kept.
const MOST_SAID: usize = 10_000;

/// All runs that calls began or go on with here.
pub struct CallRuns {
    pub host: Host,
    /// A question that nobody answers for so long is left to others: the run is suspended with it.
    patience: Duration,
    own: Mutex<BTreeMap<RunId, Arc<CallRun>>>,
    /// Of several that want to go on with a run the first one does.
    resuming: tokio::sync::Mutex<()>,
    /// Nothing begins any more.
    is_leaving: AtomicBool,
}

/// A run of this process.
pub struct CallRun {
    pub id: RunId,
    pub questions: QuestionBroker,
    keeper: Option<Arc<RunKeeper>>,
    live: Mutex<Option<(Session, CancellationToken)>>,
    said: Mutex<Vec<Arc<str>>>,
    state: watch::Sender<ToolRunState>,
    /// Who waits for its end.
    followers: AtomicUsize,
    /// It goes on whoever waits for it.
    is_task: AtomicBool,
}

/// What is known of a run that goes on.
#[derive(Clone, Debug, Default)]
pub struct ToolRunState {
    /// Grows with everything that happens.
    moment: u64,
    pub end: Option<ToolRunEnd>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum ToolRunEnd {
    Answered(Output),
    /// Questions wait in its record.
    Waits(Vec<PendingQuestion>),
    Cancelled,
    Failed(String),
}

/// A run as whoever follows it finds it.
pub enum FoundRun {
    Own(Arc<CallRun>),
    /// Another process runs it.
    Elsewhere(RunId),
    Ended(RunId, ToolRunEnd),
}

impl CallRuns {
    pub fn of(host: Host, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            host,
            patience,
            own: Mutex::default(),
            resuming: tokio::sync::Mutex::default(),
            is_leaving: AtomicBool::new(false),
        })
    }

    /// Begins a run, or finds the one that has its key.
    pub async fn begin(self: &Arc<Self>, call: NewCall) -> Result<FoundRun, Failure> {
        self.check_room()?;
        let input = call.input.clone();
        match self.host.begin(call).await? {
            BegunCall::Ready(ready) => Ok(FoundRun::Own(self.start(*ready, input)?)),
            BegunCall::Known(id) => self.found(&id).await,
        }
    }

    fn check_room(&self) -> Result<(), Failure> {
        if self.is_leaving.load(Ordering::SeqCst) {
            return Err(Failure::failed("the server is ending"));
        }
        if self.own().len() < MOST_RUNS {
            return Ok(());
        }
        Err(Failure::failed(format!("{MOST_RUNS} runs go on here at once")).hint("call it again when one has ended"))
    }

    /// A run, wherever it is: one that stopped in the middle goes on here.
    pub async fn found(self: &Arc<Self>, id: &RunId) -> Result<FoundRun, Failure> {
        let _alone = self.resuming.lock().await;
        if let Some(run) = self.get(id) {
            return Ok(FoundRun::Own(run));
        }
        if let Some(found) = self.left(id)? {
            return Ok(found);
        }
        self.check_room()?;
        let HostedRun { ready, input } = match self.host.resume(id).await {
            // Another process was first.
            Err(_) if self.host.store.is_running(id).unwrap_or(false) => return Ok(FoundRun::Elsewhere(*id)),
            resumed => resumed?,
        };
        Ok(FoundRun::Own(self.start(ready, input)?))
    }

    /// What became of a run that does not go on here; nothing if it can go on.
    pub fn left(&self, id: &RunId) -> Result<Option<FoundRun>, Failure> {
        let unread = |error: String| Failure::failed(format!("the run `{id}` cannot be read: {error}"));
        if self.host.store.is_running(id).map_err(|error| unread(error.to_string()))? {
            return Ok(Some(FoundRun::Elsewhere(*id)));
        }
        let contents = self.host.store.read_journal(id).map_err(|error| unread(error.to_string()))?;
        if let Some(outcome) = outcome(&contents) {
            return Ok(Some(FoundRun::Ended(*id, ToolRunEnd::Answered(outcome.output))));
        }
        let reason = contents.ended().map(|end| EndReason::parse(&end.reason));
        let end = match reason {
            Some(EndReason::Cancelled) => ToolRunEnd::Cancelled,
            // It was left in the middle, or a question waits.
            None | Some(EndReason::Asked | EndReason::Interrupted | EndReason::Terminated | EndReason::Unread) => {
                return Ok(None);
            }
            Some(reason) => ToolRunEnd::Failed(format!(
                "the run ended: {}; `llm-do runs show {id}` tells more, `llm-do resume {id}` goes on with it",
                reason.name()
            )),
        };
        Ok(Some(FoundRun::Ended(*id, end)))
    }

    /// The questions that a run has open which nobody runs here.
    pub fn waiting(&self, id: &RunId) -> Vec<PendingQuestion> {
        let contents = self.host.store.read_journal(id);
        contents.map(|contents| waiting(&contents, id.as_str())).unwrap_or_default()
    }

    pub fn get(&self, id: &RunId) -> Option<Arc<CallRun>> {
        self.own().get(id).cloned()
    }

    /// Ends a run, whichever process runs it.
    pub fn cancel(&self, id: &RunId) {
        if let Ok(run) = StoredRun::find(id.as_str(), &self.host.settings) {
            // One that is done has nothing to end.
            let _ = run.cancel(&self.host.settings);
        }
    }

    /// Leaves all of them: what waits for a person waits in its record, anything else is stopped there.
    pub async fn leave(&self) {
        self.is_leaving.store(true, Ordering::SeqCst);
        let all: Vec<Arc<CallRun>> = self.own().values().cloned().collect();
        for run in &all {
            run.leave();
        }
        for run in all {
            let _ = run.state.subscribe().wait_for(|state| state.end.is_some()).await;
        }
    }

    fn start(self: &Arc<Self>, ready: ReadyRun, input: Option<Input>) -> Result<Arc<CallRun>, Failure> {
        let input = input.ok_or_else(|| Failure::usage("the record of the run does not say what was said to it"))?;
        let (session, updates) = ready.start(ListenPlan {
            hearing: Some(Listen::Facts),
            report: TurnReport::Answer,
            length: SessionLength::OneTurn,
            answering: Some(remedy::answering),
            ..ListenPlan::default()
        });
        let id = RunId::parse(session.runtime.run_id()).ok_or_else(|| Failure::failed("the run has no id"))?;
        let (questions, keeper) = (session.questions.clone(), session.keeper.clone());
        let turn = session.turn(input);
        let run = Arc::new(CallRun {
            id,
            questions,
            keeper,
            live: Mutex::new(Some((session, turn))),
            said: Mutex::default(),
            state: watch::Sender::default(),
            followers: AtomicUsize::new(0),
            is_task: AtomicBool::new(false),
        });
        self.own().insert(id, Arc::clone(&run));
        let (runs, attended) = (Arc::clone(self), Arc::clone(&run));
        tokio::spawn(async move {
            let end = attended.attend(updates, runs.patience).await;
            // Whoever asks from now on reads its record.
            runs.own().remove(&id);
            attended.state.send_modify(|state| state.end = Some(end));
        });
        Ok(run)
    }

    fn own(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<CallRun>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallRun {
    /// Hears of it to its end, which is told when its record is closed.
    async fn attend(&self, mut updates: SessionUpdates, patience: Duration) -> ToolRunEnd {
        let mut end = ToolRunEnd::Failed("the run ended without a word".to_owned());
        let mut asked_at = Instant::now();
        loop {
            let update = tokio::select! {
                update = updates.next() => update,
                () = sleep_until(asked_at + patience), if !self.questions.open().is_empty() => {
                    self.leave();
                    asked_at = Instant::now();
                    continue;
                }
            };
            match update {
                None => return end,
                Some(Update::Events(events)) => events.for_each(|event| {
                    if let Some(words) = progress(&event.agent, &event.kind) {
                        self.say(words);
                    }
                }),
                Some(Update::Question(_) | Update::Answered(..)) => {
                    asked_at = Instant::now();
                    self.wake();
                }
                Some(Update::Note(note)) => console::complain(&format!("note: {}\n", visible(&note))),
                Some(Update::Opened(_) | Update::Changed(_) | Update::Closed(_)) => {}
                Some(Update::TurnEnded(turn)) => {
                    end = ended(turn);
                    // It takes no more turns, so it is closed.
                    *self.live() = None;
                }
            }
        }
    }

    /// Leaves it: with open questions it is suspended, else its turn is stopped; both can go on.
    pub fn leave(&self) {
        let mut live = self.live();
        if let Some((session, turn)) = &*live {
            if let Some(keeper) = &self.keeper {
                keeper.ends_by(EndReason::Terminated);
            }
            session.leave(turn);
        }
        *live = None;
    }

    /// From now on it goes on by itself.
    pub fn becomes_task(&self) {
        self.is_task.store(true, Ordering::SeqCst);
    }

    /// Follows it; whoever goes away last leaves it.
    pub fn followed(self: &Arc<Self>) -> RunFollower {
        self.followers.fetch_add(1, Ordering::SeqCst);
        RunFollower { state: self.state.subscribe(), run: Arc::clone(self), heard: 0, is_done: false }
    }

    fn say(&self, words: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < MOST_SAID {
            said.push(words.into());
        }
        drop(said);
        self.wake();
    }

    fn wake(&self) {
        self.state.send_modify(|state| state.moment += 1);
    }

    fn live(&self) -> MutexGuard<'_, Option<(Session, CancellationToken)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever waits for a run.
pub struct RunFollower {
    pub run: Arc<CallRun>,
    state: watch::Receiver<ToolRunState>,
    heard: usize,
    is_done: bool,
}

impl RunFollower {
    /// What was said since the last time, each with its number.
    pub fn news(&mut self) -> Vec<(usize, Arc<str>)> {
        let said = self.run.said.lock().unwrap_or_else(PoisonError::into_inner);
        let news = said.iter().enumerate().skip(self.heard).map(|(at, words)| (at + 1, Arc::clone(words))).collect();
        self.heard = said.len();
        news
    }

    pub fn end(&mut self) -> Option<ToolRunEnd> {
        self.state.borrow_and_update().end.clone()
    }

    /// Returns when something has happened.
    pub async fn changed(&mut self) {
        let _ = self.state.changed().await;
    }

    /// It has been answered: what becomes of the run does not depend on it any more.
    pub fn is_answered(&mut self) {
        self.is_done = true;
    }
}

impl Drop for RunFollower {
    fn drop(&mut self) {
        let is_last = self.run.followers.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && !self.is_done && !self.run.is_task.load(Ordering::SeqCst) {
            self.run.leave();
        }
    }
}

/// How far a run has come, in words: one for each request of a model and each tool.
fn progress(agent: &str, kind: &EventKind) -> Option<String> {
    match kind {
        EventKind::RequestStarted { model, .. } => Some(format!("{} asks {}", visible(agent), visible(model))),
        EventKind::ToolCalled { tool, .. } => Some(format!("{} calls {}", visible(agent), visible(tool))),
        _ => None,
    }
}

fn ended(turn: TurnResult) -> ToolRunEnd {
    match turn.answer {
        Ok(output) => ToolRunEnd::Answered(output),
        Err(_) if turn.is_cancelled => ToolRunEnd::Cancelled,
        Err(RunError::Ended(Ending::NeedsApproval(pending))) => ToolRunEnd::Waits(pending),
        Err(error) => {
            let (fact, hint) = Failure::from(error).words();
            ToolRunEnd::Failed(hint.map_or(fact.clone(), |hint| format!("{fact}\nhint: {hint}")))
        }
    }
}
