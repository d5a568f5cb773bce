//! A session: the call of a program's entry on a task of its own. Turns go in; events, questions and answers come out, in
//! the order in which they led to each other.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use llm_do::events::TraceCall;
use llm_do::messages::{Reply, ToolCall};
use llm_do::questions::{OpenQuestion, QuestionBroker, QuestionId, QuestionUpdate, QuestionUpdates};
use llm_do::runs::{OutsideCaller, RestoredTurns, Steering, UndoneTurn};
use llm_do::toolsets::Ending;
use llm_do::{Answer, EntryCall, Event, Input, Message, ModelName, Output, RunError, Runtime};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::keep::RunKeeper;
use crate::notify::Notifier;
use crate::saved_files::{self, TurnFiles};

/// The handle of a session. Dropped or closed, it takes no more turns: the call is closed when the last one has ended.
pub struct Session {
    pub runtime: Arc<Runtime>,
    /// What is open, and where answers go.
    pub questions: QuestionBroker,
    /// Whoever writes down how the run ends.
    pub keeper: Option<Arc<RunKeeper>>,
    orders: mpsc::UnboundedSender<SessionCommand>,
    /// Whether a turn that comes to no answer stays in the conversation.
    keeps: Arc<AtomicBool>,
    /// What is said while a turn goes on.
    steering: Arc<Steering>,
}

/// So long the rest of a turn may take whose questions nobody answers any more.
const LEAVING: Duration = Duration::from_secs(1);

enum SessionCommand {
    Open,
    Turn {
        /// Without one the turn goes on that an earlier process did not finish.
        input: Option<Input>,
        cancelled: CancellationToken,
    },
    Change(ConversationChange),
}

/// What may be wanted of a conversation between two turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversationChange {
    /// Nothing but what was said.
    Look,
    /// That its last turn is forgotten.
    Undo,
    /// That another model goes on.
    Model(ModelName),
    /// That old turns are summarised, and above all what is about this.
    Compact(Option<String>),
}

/// What became of a change that was wanted.
#[derive(Debug)]
pub enum ChangedConversation {
    /// All that was said, and the model that answers.
    Seen(Vec<Message>, Option<ModelName>),
    /// The turn that is forgotten; nothing if there was none.
    Undone(Option<UndoneTurn>),
    /// The model that answers from now on.
    Model(ModelName),
    /// How many tokens the next request had and has now, about; nothing if there was nothing to leave out.
    Compacted(Option<(u64, u64)>),
}

/// What a session is made of.
pub struct SessionParts {
    pub runtime: Runtime,
    pub events: mpsc::UnboundedReceiver<Event>,
    pub questions: (QuestionBroker, QuestionUpdates),
    /// On whose behalf the entry is called, if an agent elsewhere does.
    pub caller: Option<OutsideCaller>,
    pub report: TurnReport,
    /// Lets the run stand still while too much of it is unread.
    pub pace: Option<Arc<dyn SessionPace>>,
    /// Whoever writes down how the run ends.
    pub keeper: Option<Arc<RunKeeper>>,
    /// Whoever tells others of questions that wait.
    pub notifier: Option<Arc<Notifier>>,
    /// Whether the turns that the record has are taken over when the call is opened.
    pub restores: bool,
    /// What was said elsewhere, which the conversation begins with.
    pub history: Vec<Message>,
    pub length: SessionLength,
    /// Where files are written that replies and results bring; nowhere without one.
    pub files: Option<PathBuf>,
}

/// How many turns a session may have, which decides what becomes of one that comes to no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionLength {
    /// One. It is left open in its record, where it can be gone on with.
    #[default]
    OneTurn,
    /// Many. What it came to stays in the conversation, which goes on behind it.
    Conversation,
}

/// How much is told of the end of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnReport {
    #[default]
    Answer,
    /// Also its messages and the calls in it.
    Whole,
}

/// Whether a front end has heard so much that was not read yet that the run stands still.
pub trait SessionPace: Send + Sync {
    /// If so, it wakes this waker when there is room again.
    fn holds(&self, waker: &Waker) -> bool;
}

impl Session {
    /// Starts the task that owns the call.
    pub fn start(parts: SessionParts) -> (Self, SessionUpdates) {
        let SessionParts { runtime, events, questions, caller, report, pace, keeper, notifier, .. } = parts;
        let SessionParts { restores, history, length, files, .. } = parts;
        let keeps = Arc::new(AtomicBool::new(length == SessionLength::Conversation));
        let steering = Arc::new(Steering::default());
        let (questions, question_updates) = questions;
        let runtime = Arc::new(runtime);
        let (orders, received) = mpsc::unbounded_channel();
        let (results, heard) = mpsc::unbounded_channel();
        let worker = Worker {
            runtime: Arc::clone(&runtime),
            caller,
            report,
            results,
            keeper: keeper.clone(),
            notifier: notifier.clone(),
            restores,
            history,
            keeps: Arc::clone(&keeps),
            steering: Arc::clone(&steering),
            files,
        };
        // A task of its own: the future that blocks the thread would ask the system for news after each piece of a stream.
        let task = tokio::spawn(paced(pace, worker.live(received)));
        let notifier = notifier.map(|notifier| (notifier, questions.clone()));
        let session = Self { runtime, questions, keeper, orders, keeps, steering };
        let updates = SessionUpdates {
            notifier,
            events,
            are_events_open: true,
            batch: Vec::new(),
            questions: question_updates,
            results: heard,
            next: None,
            task,
        };
        (session, updates)
    }

    /// Opens the call, which the first turn would do otherwise.
    pub fn open(&self) {
        self.order(SessionCommand::Open);
    }

    /// Begins a turn; whoever cancels the token ends it, and in a conversation what it came to stays. One at a time: a turn
    /// that comes while another goes on waits for its end.
    pub fn turn(&self, input: impl Into<Input>) -> CancellationToken {
        let cancelled = CancellationToken::new();
        self.order(SessionCommand::Turn { input: Some(input.into()), cancelled: cancelled.clone() });
        cancelled
    }

    /// Says something to the turn that goes on: a message before its next model request, which events tell of when it is heard.
    pub fn say(&self, text: impl Into<String>) {
        self.steering.say(text);
    }

    /// What was said and came too late for the turn that has just ended. Whoever does not ask leaves it to the next turn.
    pub fn take_unheard(&self) -> Vec<String> {
        self.steering.take_unheard()
    }

    /// Where that is said, for whoever tells how turns end.
    pub fn steering(&self) -> Arc<Steering> {
        Arc::clone(&self.steering)
    }

    /// Goes on with the turn that an earlier process did not finish, as [`Update::Opened`] said. It ends like any other.
    pub fn finish_turn(&self) -> CancellationToken {
        let cancelled = CancellationToken::new();
        self.order(SessionCommand::Turn { input: None, cancelled: cancelled.clone() });
        cancelled
    }

    /// Changes the conversation, behind the turns that were begun before: [`Update::Changed`] tells of it.
    pub fn change(&self, wanted: ConversationChange) {
        self.order(SessionCommand::Change(wanted));
    }

    /// The front end goes while a turn goes on. A run that is kept and has open questions is suspended with them; what else
    /// goes on beside them has a moment to come to its end. Any other turn is cancelled.
    pub fn leave(&self, turn: &CancellationToken) {
        self.leave_turns_open();
        let is_kept = self.keeper.as_ref().is_some_and(|keeper| keeper.store().is_some());
        if !is_kept || self.questions.open().is_empty() {
            return turn.cancel();
        }
        self.questions.leave();
        let turn = turn.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LEAVING).await;
            turn.cancel();
        });
    }

    /// The front end goes: from now on a turn that comes to no answer is left open in its record, so that whoever comes back
    /// can finish it.
    pub fn leave_turns_open(&self) {
        self.keeps.store(false, Ordering::SeqCst);
    }

    /// No more turns: the call is closed, and the last update says so.
    pub fn close(self) {}

    fn order(&self, order: SessionCommand) {
        // A task that is gone has said so: its updates have ended.
        let _ = self.orders.send(order);
    }
}

/// What a front end is told.
#[derive(Debug)]
pub enum Update<'a> {
    /// What happened, in order.
    Events(std::vec::Drain<'a, Event>),
    Question(OpenQuestion),
    /// A question needs no answer any more, and this is who saw to that.
    Answered(QuestionId, String, Option<Answer>),
    /// What a person should know about answers that do not count.
    Note(String),
    /// The call is open, with what was taken over from a record.
    Opened(Result<OpenedCall, RunError>),
    TurnEnded(TurnResult),
    /// What became of a change that was wanted.
    Changed(Result<ChangedConversation, RunError>),
    /// The last one.
    Closed(CloseResult),
}

/// A call that is open.
#[derive(Debug, Default)]
pub struct OpenedCall {
    /// What was taken over from a record.
    pub restored: RestoredTurns,
    /// What was said so far; nothing unless the whole is reported.
    pub messages: Vec<Message>,
}

/// How a turn ended.
#[derive(Debug)]
pub struct TurnResult {
    pub answer: Result<Output, RunError>,
    /// What it added to the conversation; nothing unless the whole is reported.
    pub messages: Vec<Message>,
    /// The calls that have ended in it; nothing unless the whole is reported.
    pub calls: Vec<TraceCall>,
    /// Another process asked the run to end.
    pub is_cancelled: bool,
    /// What stays of a turn that came to no answer; nothing if it was taken back.
    pub kept: Option<KeptTurn>,
    /// Files that replies and results brought, and where they were written.
    pub files: TurnFiles,
}

/// What stays in a conversation of a turn that came to no answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptTurn {
    /// The calls that have given a result, in order.
    pub done: Vec<ToolCall>,
}

impl KeptTurn {
    /// What was done in these messages.
    pub fn of(messages: &[Message]) -> Self {
        let results = messages.iter().filter_map(|message| match message {
            Message::Tool(message) => Some(&message.parts),
            Message::User(_) | Message::Assistant(_) => None,
        });
        let given: HashSet<&str> =
            results.flatten().filter(|result| result.outcome.is_ok()).map(|result| result.id.as_str()).collect();
        let replies = messages.iter().filter_map(|message| match message {
            Message::Assistant(reply) => Some(reply),
            Message::User(_) | Message::Tool(_) => None,
        });
        let done = replies.flat_map(Reply::tool_calls).filter(|call| given.contains(call.id.as_str()));
        Self { done: done.cloned().collect() }
    }
}

impl TurnResult {
    /// Of a turn that came to nothing.
    fn failed(error: RunError) -> Self {
        let (messages, calls, files) = (Vec::new(), Vec::new(), TurnFiles::default());
        Self { answer: Err(error), messages, calls, is_cancelled: false, kept: None, files }
    }
}

/// What is left of a session.
#[derive(Debug)]
pub struct CloseResult {
    /// All that was said, with what a failed last turn had come to.
    pub messages: Vec<Message>,
}

enum WorkerReport {
    Opened(Result<OpenedCall, RunError>),
    TurnEnded(Box<TurnResult>),
    Changed(Result<ChangedConversation, RunError>),
    Closed(CloseResult),
}

/// What happens in a session. Dropped, its questions are left to somebody else.
pub struct SessionUpdates {
    notifier: Option<(Arc<Notifier>, QuestionBroker)>,
    events: mpsc::UnboundedReceiver<Event>,
    are_events_open: bool,
    batch: Vec<Event>,
    questions: QuestionUpdates,
    results: mpsc::UnboundedReceiver<WorkerReport>,
    /// What comes after the events that led to it.
    next: Option<NextUpdate>,
    task: JoinHandle<()>,
}

enum NextUpdate {
    Question(QuestionUpdate),
    Report(WorkerReport),
}

/// What has come together is told together.
const MOST_AT_ONCE: usize = 256;

impl SessionUpdates {
    /// What happens next; `None` after the end. Cancel-safe: what is not returned is returned the next time.
    pub async fn next(&mut self) -> Option<Update<'_>> {
        self.batch.clear();
        while self.next.is_none() && self.batch.is_empty() {
            tokio::select! {
                biased;
                count = self.events.recv_many(&mut self.batch, MOST_AT_ONCE), if self.are_events_open => {
                    self.are_events_open = count > 0;
                }
                Some(update) = self.questions.next() => self.next = Some(NextUpdate::Question(update)),
                report = self.results.recv() => self.next = Some(NextUpdate::Report(report?)),
            }
        }
        if self.next.is_some() {
            self.take_events();
        }
        if !self.batch.is_empty() {
            return Some(Update::Events(self.batch.drain(..)));
        }
        Some(match self.next.take()? {
            NextUpdate::Question(QuestionUpdate::Opened(question)) => {
                if let Some((notifier, questions)) = &self.notifier {
                    notifier.opened(&question, questions);
                }
                Update::Question(question)
            }
            NextUpdate::Question(QuestionUpdate::Answered(id, by, answer)) => Update::Answered(id, by, answer),
            NextUpdate::Question(QuestionUpdate::Note(note)) => Update::Note(note),
            NextUpdate::Report(WorkerReport::Opened(opened)) => Update::Opened(opened),
            NextUpdate::Report(WorkerReport::TurnEnded(turn)) => Update::TurnEnded(*turn),
            NextUpdate::Report(WorkerReport::Changed(changed)) => Update::Changed(changed),
            NextUpdate::Report(WorkerReport::Closed(closed)) => Update::Closed(closed),
        })
    }

    /// What has happened until now and was not told yet.
    pub fn events_so_far(&mut self) -> std::vec::Drain<'_, Event> {
        self.take_events();
        self.batch.drain(..)
    }

    fn take_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.batch.push(event);
        }
    }

    /// Ends the session where it stands, and what it started with it.
    pub fn ending(&self) -> AbortHandle {
        self.task.abort_handle()
    }
}

/// The one who owns the call.
struct Worker {
    runtime: Arc<Runtime>,
    caller: Option<OutsideCaller>,
    report: TurnReport,
    results: mpsc::UnboundedSender<WorkerReport>,
    keeper: Option<Arc<RunKeeper>>,
    notifier: Option<Arc<Notifier>>,
    restores: bool,
    history: Vec<Message>,
    keeps: Arc<AtomicBool>,
    steering: Arc<Steering>,
    files: Option<PathBuf>,
}

impl Worker {
    async fn live(self, mut orders: mpsc::UnboundedReceiver<SessionCommand>) {
        let mut call: Option<EntryCall<'_>> = None;
        // How the last turn ended, which is how the run does.
        let mut last: Result<(), RunError> = Ok(());
        while let Some(order) = orders.recv().await {
            match order {
                SessionCommand::Open => {
                    let opened = match guarded(self.opened(&mut call)).await {
                        Ok(opened) => opened.map(|(call, restored)| {
                            let messages = match self.report {
                                TurnReport::Answer => Vec::new(),
                                TurnReport::Whole => call.history().to_vec(),
                            };
                            OpenedCall { restored, messages }
                        }),
                        Err(error) => Err(error),
                    };
                    last = opened.as_ref().map(drop).map_err(RunError::clone);
                    self.tell(WorkerReport::Opened(opened));
                }
                SessionCommand::Turn { input, cancelled } => {
                    let result = match guarded(self.turn(&mut call, input, &cancelled)).await {
                        Ok(result) => result,
                        Err(error) => {
                            // What a panic left of the call is nobody's.
                            call = None;
                            TurnResult::failed(error)
                        }
                    };
                    last = result.answer.as_ref().map(drop).map_err(RunError::clone);
                    self.tell(WorkerReport::TurnEnded(Box::new(result)));
                }
                SessionCommand::Change(wanted) => {
                    let changed = guarded(self.changed(&mut call, wanted)).await;
                    self.tell(WorkerReport::Changed(changed.unwrap_or_else(Err)));
                }
            }
        }
        let messages = match call {
            Some(call) => call.close().await,
            None => Vec::new(),
        };
        self.runtime.close().await;
        // While its journal is open, which notes what was delivered.
        if let Some(telemetry) = self.runtime.telemetry() {
            telemetry.flush().await;
        }
        if let Some(keeper) = &self.keeper {
            keeper.end(&self.runtime, last.as_ref().err()).await;
        }
        self.tell(WorkerReport::Closed(CloseResult { messages }));
    }

    /// A front end that has left is told nothing.
    fn tell(&self, report: WorkerReport) {
        let _ = self.results.send(report);
    }

    /// The call, opened if it is not yet, with what was taken over from the record then.
    async fn opened<'a, 'r>(
        &'r self,
        call: &'a mut Option<EntryCall<'r>>,
    ) -> Result<(&'a mut EntryCall<'r>, RestoredTurns), RunError> {
        if let Some(call) = call {
            return Ok((call, RestoredTurns::default()));
        }
        let mut opened = self.runtime.open_entry_for(self.caller.as_ref()).await?;
        opened.keep_turns_while(Arc::clone(&self.keeps));
        opened.hear_from(Arc::clone(&self.steering));
        let restored = if self.restores { opened.restore()? } else { RestoredTurns::default() };
        if !self.history.is_empty() {
            opened.begin_with(self.history.clone()).await?;
        }
        Ok((call.insert(opened), restored))
    }

    async fn changed<'r>(
        &'r self,
        call: &mut Option<EntryCall<'r>>,
        wanted: ConversationChange,
    ) -> Result<ChangedConversation, RunError> {
        let (call, _) = self.opened(call).await?;
        match wanted {
            ConversationChange::Look => Ok(ChangedConversation::Seen(call.history().to_vec(), call.model().cloned())),
            ConversationChange::Undo => Ok(ChangedConversation::Undone(call.undo().await?)),
            ConversationChange::Compact(focus) => Ok(ChangedConversation::Compacted(call.compact(focus).await?)),
            ConversationChange::Model(model) => {
                call.change_model(model.clone()).await?;
                Ok(ChangedConversation::Model(model))
            }
        }
    }

    async fn turn<'r>(
        &'r self,
        call: &mut Option<EntryCall<'r>>,
        input: Option<Input>,
        cancelled: &CancellationToken,
    ) -> TurnResult {
        // A server may take its time to start.
        let opened = tokio::select! {
            biased;
            opened = self.opened(call) => opened,
            () = cancelled.cancelled() => Err(RunError::Cancelled { partial: String::new() }),
        };
        let call = match opened {
            Ok((call, _)) => call,
            Err(error) => return TurnResult::failed(error),
        };
        let turn = async {
            match input {
                Some(input) => call.turn_until(input, cancelled).await,
                // There is nothing to finish only if nobody looked.
                None => call.finish_turn(cancelled).await.unwrap_or(Err(RunError::NotStarted)),
            }
        };
        let watch = self.keeper.as_ref().and_then(|keeper| keeper.listens_for(cancelled));
        let answer = turn.await;
        drop(watch);
        if let (Some(notifier), Err(RunError::Ended(Ending::NeedsApproval(pending)))) = (&self.notifier, &answer) {
            notifier.suspended(pending).await;
        }
        let is_cancelled = answer.is_err() && self.keeper.as_ref().is_some_and(|keeper| keeper.is_cancelled());
        let kept = (answer.is_err() && call.is_interrupted()).then(|| KeptTurn::of(call.last_turn()));
        let (messages, calls) = match self.report {
            TurnReport::Answer => (Vec::new(), Vec::new()),
            TurnReport::Whole => (call.last_turn().to_vec(), call.new_calls()),
        };
        let files = self.files.as_deref().map(|directory| saved_files::save(call.last_turn(), directory));
        TurnResult { answer, messages, calls, is_cancelled, kept, files: files.unwrap_or_default() }
    }
}

/// A panic fails what it happened in, not the program.
async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, RunError> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let words = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Poll::Ready(Err(RunError::Panicked { words: words.unwrap_or_else(|| "without words".to_owned()) }))
        }
    })
    .await
}

/// Does some work, which stands still as long as the front end says so.
async fn paced<T>(pace: Option<Arc<dyn SessionPace>>, work: impl Future<Output = T>) -> T {
    let Some(pace) = pace else { return work.await };
    let mut work = pin!(work);
    std::future::poll_fn(|cx| if pace.holds(cx.waker()) { Poll::Pending } else { work.as_mut().poll(cx) }).await
}

/// Questions that wait for their turn where only one can be shown at a time.
#[derive(Debug, Default)]
pub struct QuestionQueue(VecDeque<OpenQuestion>);

impl QuestionQueue {
    pub fn push(&mut self, question: OpenQuestion) {
        self.0.push_back(question);
    }

    pub fn remove(&mut self, id: &str) {
        self.0.retain(|question| question.id() != id);
    }

    pub fn pop(&mut self) -> Option<OpenQuestion> {
        self.0.pop_front()
    }
}
