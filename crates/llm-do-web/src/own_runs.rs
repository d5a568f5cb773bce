//! The runs of this process: each is a session of the hall, and what is told of it is kept until it has ended, so that any
//! number of browsers can hear all of it from any point.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llm_do::questions::QuestionBroker;
use llm_do::records::RunKind;
use llm_do::runs::RestoredTurns;
use llm_do::store::layout::RunId;
use llm_do::{ApprovalRequest, CancellationToken, Event, Input, ModelName, Output, RunError, Runtime};
use llm_do_launch::keep::{EndReason, RunKeeper};
use llm_do_launch::open_run::is_chat;
use llm_do_launch::session::{ChangedConversation, ConversationChange, Session, SessionUpdates, TurnResult, Update};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use crate::error::ApiError;

/// So many of them may go on at once.
pub const MOST_RUNS: usize = 32;
/// So many things are told again to somebody who comes late.
const MOST_TOLD: usize = 50_000;

/// The runs of this process that go on.
#[derive(Default)]
pub struct OwnRuns(Mutex<BTreeMap<RunId, Arc<OwnRun>>>);

impl OwnRuns {
    pub fn get(&self, id: &RunId) -> Option<Arc<OwnRun>> {
        self.all().get(id).cloned()
    }

    pub fn is_full(&self) -> bool {
        self.all().len() >= MOST_RUNS
    }

    pub fn ids(&self) -> Vec<RunId> {
        self.all().keys().copied().collect()
    }

    /// Leaves all of them: what waits for a person waits in its record, anything else is stopped.
    pub async fn leave(&self) {
        let all: Vec<Arc<OwnRun>> = self.all().values().cloned().collect();
        for run in &all {
            run.leave();
        }
        for run in all {
            let mut told = run.told.subscribe();
            let _ = told.wait_for(|told| told.is_over).await;
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<OwnRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run of this process.
pub struct OwnRun {
    pub id: RunId,
    pub kind: RunKind,
    pub questions: QuestionBroker,
    keeper: Option<Arc<RunKeeper>>,
    live: Mutex<LiveRun>,
    log: Mutex<RunLog>,
    told: watch::Sender<ToldCount>,
}

/// What can be done with it now.
struct LiveRun {
    /// Gone once it takes no more turns.
    session: Option<Session>,
    turn: Option<CancellationToken>,
    /// Those who wait for the end of the turn that goes on.
    waits: Vec<oneshot::Sender<TurnEnd>>,
    changes: Vec<oneshot::Sender<Result<Value, String>>>,
    opened: Vec<oneshot::Sender<Result<RestoredTurns, String>>>,
}

/// How a turn ended.
#[derive(Clone, Debug)]
pub enum TurnEnd {
    Answered(Output),
    /// Questions wait: their whole digests.
    Waits(Vec<String>),
    Failed {
        reason: EndReason,
        words: String,
    },
}

/// How much there is to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldCount {
    pub count: u64,
    pub is_over: bool,
}

#[derive(Default)]
struct RunLog {
    /// The number of the first line.
    first: u64,
    lines: Vec<Arc<ToldLine>>,
}

/// One thing that is told, as a browser gets it.
#[derive(Debug)]
pub struct ToldLine {
    pub number: u64,
    pub name: &'static str,
    pub data: String,
    /// Text of the entry, for whoever wants that alone.
    pub text: Option<String>,
}

impl OwnRun {
    /// Begins to attend to a session.
    pub fn attend(house: &OwnRuns, id: RunId, kind: RunKind, session: Session) -> Arc<Self> {
        let (questions, keeper) = (session.questions.clone(), session.keeper.clone());
        let live =
            LiveRun { session: Some(session), turn: None, waits: Vec::new(), changes: Vec::new(), opened: Vec::new() };
        let run = Arc::new(Self {
            id,
            kind,
            questions,
            keeper,
            live: Mutex::new(live),
            log: Mutex::default(),
            told: watch::Sender::default(),
        });
        house.all().insert(id, Arc::clone(&run));
        run.tell("began", &json!({"run": id, "kind": kind}), None);
        run
    }

    /// Says what is heard of it, to its end.
    pub async fn follow(self: Arc<Self>, house: &OwnRuns, mut updates: SessionUpdates) {
        let mut said = EntryText::default();
        while let Some(update) = updates.next().await {
            match update {
                Update::Events(events) => events.for_each(|event| {
                    let text = said.piece(&event);
                    self.tell("event", &event, text);
                }),
                Update::Question(question) => self.tell("question", &json!({"question": question.id()}), None),
                Update::Answered(id, by, answer) => {
                    let is_approved = answer.as_ref().map(is_approval);
                    self.tell("answered", &json!({"question": id, "by": by, "approved": is_approved}), None);
                }
                Update::Note(note) => self.tell("note", &json!({"text": note}), None),
                Update::Opened(opened) => self.opened(opened.map(|opened| opened.restored)),
                Update::TurnEnded(turn) => {
                    said = EntryText::default();
                    self.turn_ended(turn);
                }
                Update::Changed(changed) => self.changed(changed),
                Update::Closed(_) => {}
            }
        }
        house.all().remove(&self.id);
        self.tell("end", &json!({"run": self.id}), None);
        self.live().session = None;
        self.told.send_modify(|told| told.is_over = true);
    }

    /// Begins a turn, of one at a time; its end comes to the receiver.
    pub fn turn(&self, input: Option<Input>) -> Result<oneshot::Receiver<TurnEnd>, ApiError> {
        let mut live = self.live();
        if live.turn.is_some() {
            return Err(ApiError::conflict("busy", "a turn of this run goes on").hint("wait for its end, or stop it"));
        }
        let session = live.session.as_ref().ok_or_else(|| ApiError::conflict("over", "the run has ended"))?;
        let cancelled = match input {
            Some(input) => session.turn(input),
            None => session.finish_turn(),
        };
        let (end, ended) = oneshot::channel();
        live.turn = Some(cancelled);
        live.waits.push(end);
        Ok(ended)
    }

    /// Opens the call: what an earlier process had finished is taken over.
    pub fn open(&self) -> oneshot::Receiver<Result<RestoredTurns, String>> {
        let (opened, is_open) = oneshot::channel();
        let mut live = self.live();
        if let Some(session) = &live.session {
            session.open();
            live.opened.push(opened);
        }
        is_open
    }

    /// Changes the conversation between two turns.
    pub fn change(&self, wanted: ConversationChange) -> Result<oneshot::Receiver<Result<Value, String>>, ApiError> {
        let mut live = self.live();
        if live.turn.is_some() {
            return Err(ApiError::conflict("busy", "a turn of this chat goes on").hint("wait for its end, or stop it"));
        }
        let session = live.session.as_ref().ok_or_else(|| ApiError::conflict("over", "the chat has ended"))?;
        session.change(wanted);
        let (changed, hears) = oneshot::channel();
        live.changes.push(changed);
        Ok(hears)
    }

    /// Ends the turn that goes on, as a person does who presses Ctrl-C; gives whether there was one.
    pub fn stop(&self) -> bool {
        let live = self.live();
        live.turn.as_ref().inspect(|turn| turn.cancel()).is_some()
    }

    /// No more turns.
    pub fn close(&self) {
        self.live().session = None;
    }

    fn leave(&self) {
        let mut live = self.live();
        if let (Some(session), Some(turn)) = (&live.session, &live.turn) {
            if let Some(keeper) = &self.keeper {
                keeper.ends_by(EndReason::Terminated);
            }
            session.leave(turn);
        }
        live.session = None;
    }

    /// What was told, from this number on; the number says where to go on if something before it is not kept any more.
    pub fn told_from(&self, from: u64) -> Vec<Arc<ToldLine>> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = usize::try_from(from.saturating_sub(log.first)).unwrap_or(usize::MAX);
        log.lines.iter().skip(skipped).cloned().collect()
    }

    /// Wakes when there is more.
    pub fn hears(&self) -> watch::Receiver<ToldCount> {
        self.told.subscribe()
    }

    /// The question with this digest, as long as it is open.
    pub fn question(&self, id: &str) -> Option<Arc<ApprovalRequest>> {
        self.questions.open().into_iter().find(|open| open.id() == id).map(|open| open.request)
    }

    /// What it runs with, until it takes no more turns.
    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        self.live().session.as_ref().map(|session| Arc::clone(&session.runtime))
    }

    pub fn is_busy(&self) -> bool {
        self.live().turn.is_some()
    }

    fn tell(&self, name: &'static str, data: &impl Serialize, text: Option<String>) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let number = log.first + log.lines.len() as u64;
        let data = serde_json::to_string(data).unwrap_or_default();
        log.lines.push(Arc::new(ToldLine { number, name, data, text }));
        if log.lines.len() > MOST_TOLD {
            // The record has all of it: only pieces of old texts are lost.
            let gone = log.lines.len() / 2;
            log.lines.drain(..gone);
            log.first += gone as u64;
        }
        let count = log.first + log.lines.len() as u64;
        drop(log);
        self.told.send_modify(|told| told.count = count);
    }

    fn opened(&self, opened: Result<RestoredTurns, RunError>) {
        let opened = opened.map_err(|error| error.to_string());
        let mut live = self.live();
        if opened.is_err() {
            live.session = None;
        }
        for waits in live.opened.drain(..) {
            let _ = waits.send(opened.clone());
        }
        drop(live);
        if let Err(words) = opened {
            self.tell("failed", &json!({"reason": EndReason::Failed.name(), "message": words}), None);
        }
    }

    fn turn_ended(&self, turn: TurnResult) {
        let end = match turn.answer {
            Ok(output) => TurnEnd::Answered(output),
            Err(RunError::Ended(llm_do::toolsets::Ending::NeedsApproval(pending))) => {
                TurnEnd::Waits(pending.into_iter().map(|pending| pending.id).collect())
            }
            Err(error) => TurnEnd::Failed { reason: EndReason::of(&error), words: error.to_string() },
        };
        match &end {
            TurnEnd::Answered(output) => self.tell("answer", &json!({"output": output.to_json()}), None),
            TurnEnd::Waits(questions) => self.tell("waits", &json!({"questions": questions}), None),
            TurnEnd::Failed { reason, words } => {
                self.tell("failed", &json!({"reason": reason.name(), "message": words}), None);
            }
        }
        let mut live = self.live();
        live.turn = None;
        // A chat goes on; anything else has had its turn.
        if !is_chat(self.kind) {
            live.session = None;
        }
        for waits in live.waits.drain(..) {
            let _ = waits.send(end.clone());
        }
    }

    fn changed(&self, changed: Result<ChangedConversation, RunError>) {
        let is_seen = matches!(changed, Ok(ChangedConversation::Seen(..)));
        let told = changed.map_err(|error| error.to_string()).map(|changed| match changed {
            ChangedConversation::Seen(messages, model) => {
                json!({"messages": messages, "model": model.as_ref().map(ModelName::to_string)})
            }
            ChangedConversation::Undone(turn) => json!({"undone": turn.is_some()}),
            ChangedConversation::Model(model) => json!({"model": model.to_string()}),
            ChangedConversation::Compacted(sizes) => {
                json!({"compacted": sizes.map(|(before, after)| json!({"before": before, "after": after}))})
            }
        });
        // Whoever looks changes nothing.
        if !is_seen {
            self.tell("changed", &told.as_ref().map_or_else(|error| json!({"error": error}), |_| json!({})), None);
        }
        for waits in self.live().changes.drain(..) {
            let _ = waits.send(told.clone());
        }
    }

    fn live(&self) -> MutexGuard<'_, LiveRun> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_approval(answer: &llm_do::Answer) -> bool {
    use llm_do::Answer::{CallForSession, Edited, EndRun, Later, Once, Refuse, ToolForSession, Values};
    match answer {
        Once | CallForSession | ToolForSession | Edited(_) | Values(_) => true,
        Refuse { .. } | EndRun | Later => false,
    }
}

/// The text that the entry says, as one text: what it says after a call stands apart from what it said before.
#[derive(Default)]
struct EntryText {
    has_said: bool,
    is_apart: bool,
}

impl EntryText {
    fn piece(&mut self, event: &Event) -> Option<String> {
        use llm_do::EventKind;
        // Another agent was called in between.
        if event.depth != 0 {
            self.is_apart = true;
            return None;
        }
        match &event.kind {
            EventKind::TextDelta { text } => {
                let gap = if self.has_said && std::mem::take(&mut self.is_apart) { "\n\n" } else { "" };
                self.has_said = true;
                Some(format!("{gap}{text}"))
            }
            EventKind::ToolCalled { .. } | EventKind::ToolRefused { .. } => {
                self.is_apart = true;
                None
            }
            _ => None,
        }
    }
}
