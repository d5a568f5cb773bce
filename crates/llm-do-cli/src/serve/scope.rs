//! A session that a program holds: turns go in, answers come out, and what happens meanwhile is told in order, before the
//! answer that it led to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use llm_do::escape::visible;
use llm_do::events::UsageReport;
use llm_do::questions::{OpenQuestion, QuestionBroker};
use llm_do::rpc::{Connection, RpcError};
use llm_do::runs::{Steering, finish_of};
use llm_do::toolsets::Ending;
use llm_do::{Answer, Event, Input, RawJson, RunError, Runtime};
use llm_do_launch::launch::{ListenPlan, ReadyRun};
use llm_do_launch::session::{OpenedCall, Session, SessionUpdates, TurnResult, Update};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::keeping::PriorScope;
use super::order::EventBarrierRequests;
use super::protocol::{
    ContinuedScope, ErrorData, EventNotification, EventSelection, ScopeCloseResult, ScopeTurnResult,
};
use super::questions::{ClientApprover, Trouble};
use crate::failure::Failure;
use crate::signals::StopReason;
use crate::{console, report};

/// How long the rest of a turn may take whose questions wait for somebody else.
const LEAVING: Duration = Duration::from_secs(10);

/// Where the answer of a turn comes to.
type TurnAnswer = oneshot::Receiver<Result<ScopeTurnResult, RpcError>>;

/// Who answers the questions of a scope.
const CLIENT: &str = "the client";

/// What a scope needs to be opened.
pub struct PreparedScope {
    pub ready: ReadyRun,
    pub listen: ListenPlan,
    /// Requests of those who ask the client something only after the events that led to it.
    pub waiting: EventBarrierRequests,
    pub wanted: EventSelection,
    pub asking: ClientApprover,
    pub trouble: Trouble,
    /// What is known of it, if it goes on.
    pub prior: Option<PriorScope>,
}

/// Which turn comes next.
enum NextTurn {
    /// Any; the one that was cut off is given up, if there is one.
    Any,
    /// Any, or the one that was cut off.
    CutOff,
    /// Any but the one that was cut off, since the project has changed.
    CutOffElsewhere,
    /// Only this one: it is a run, and no conversation.
    Only(Input),
    /// The same, with a project that has changed.
    OnlyElsewhere,
    /// A run has had its turn.
    None,
}

/// The handle of an open scope. Dropped, the session closes.
pub struct Scope {
    session: Session,
    /// The input that the manifest gives.
    default_input: Option<RawJson>,
    turns: UnboundedSender<PendingTurn>,
    /// The turn that goes on, if one does.
    under_way: Option<TurnUnderWay>,
    next: NextTurn,
    /// How many questions the client has heard and not answered, of a scope whose questions others may answer.
    asks: Option<Arc<AtomicUsize>>,
    closed: oneshot::Receiver<ScopeCloseResult>,
    task: JoinHandle<()>,
}

/// How a turn is cancelled, and what cancelled it.
#[derive(Clone)]
struct TurnUnderWay {
    cancelled: CancellationToken,
    by: Arc<OnceLock<StopReason>>,
    /// Has no strong reference any more once the turn has ended.
    ended: std::sync::Weak<()>,
}

impl TurnUnderWay {
    /// One that was cancelled is about to end, and the next one waits for that.
    fn goes_on(&self) -> bool {
        self.ended.strong_count() > 0 && !self.cancelled.is_cancelled()
    }
}

/// A turn, as the task that tells the client about it knows it.
struct PendingTurn {
    answer: oneshot::Sender<Result<ScopeTurnResult, RpcError>>,
    cancelled: CancellationToken,
    by: Arc<OnceLock<StopReason>>,
    /// Held as long as the turn goes on.
    goes_on: Arc<()>,
    /// Nobody waits for its answer any more.
    is_taken_back: bool,
}

impl Scope {
    /// Opens the call: its toolsets are made before this returns.
    pub async fn open(
        number: u64,
        prepared: PreparedScope,
        client: Connection,
    ) -> Result<(Self, Option<ContinuedScope>), RpcError> {
        let PreparedScope { ready, listen, waiting, wanted, asking, trouble, prior } = prepared;
        let default_input = ready.program().default_input.clone();
        let (session, updates) = ready.start(listen);
        let (turns, received) = mpsc::unbounded_channel();
        let (opened, is_open) = oneshot::channel();
        let (closing, closed) = oneshot::channel();
        let asks = asking.is_kept.then(|| Arc::clone(&asking.open));
        let run = asking.is_kept.then(|| session.runtime.run_id().to_owned());
        let attendant = Attendant {
            number,
            wanted,
            client,
            runtime: Arc::clone(&session.runtime),
            questions: session.questions.clone(),
            steering: session.steering(),
            asking: Arc::new(asking),
            asked: JoinSet::new(),
            asks: BTreeMap::new(),
            trouble,
            run,
        };
        let task = tokio::spawn(attendant.attend(updates, waiting, received, opened, closing));
        session.open();
        match is_open.await {
            Ok(Ok(opened)) => {
                let (next, continued) = continued(opened, prior);
                Ok((Self { session, default_input, turns, under_way: None, next, asks, closed, task }, continued))
            }
            Ok(Err(error)) => Err(Failure::from(error).into()),
            Err(_) => Err(Failure::failed("the call ended while it was opened").into()),
        }
    }

    /// The id of its run.
    pub fn run_id(&self) -> &str {
        self.session.runtime.run_id()
    }

    pub fn default_input(&self) -> Option<&RawJson> {
        self.default_input.as_ref()
    }

    /// Begins a turn; its answer comes to the receiver. Only one turn goes on at a time.
    pub fn turn(&mut self, input: Input) -> Result<TurnAnswer, Failure> {
        self.free()?;
        match self.next {
            NextTurn::Any | NextTurn::CutOff | NextTurn::CutOffElsewhere => self.next = NextTurn::Any,
            NextTurn::Only(_) | NextTurn::OnlyElsewhere | NextTurn::None => {
                return Err(Failure::usage("this is a run, which has one turn")
                    .hint("`finish: true` goes on with it, or gives its answer"));
            }
        }
        Ok(self.begun(self.session.turn(input)))
    }

    /// Says something to the turn that goes on.
    pub fn say(&self, text: String) -> Result<(), Failure> {
        if !self.under_way.as_ref().is_some_and(TurnUnderWay::goes_on) {
            return Err(Failure::usage("no turn of this scope is under way").hint("`turn` says it"));
        }
        self.session.say(text);
        Ok(())
    }

    /// Goes on with the turn that was cut off.
    pub fn finish(&mut self) -> Result<TurnAnswer, Failure> {
        self.free()?;
        let cancelled = match std::mem::replace(&mut self.next, NextTurn::Any) {
            NextTurn::CutOff => self.session.finish_turn(),
            NextTurn::Only(input) => {
                self.next = NextTurn::None;
                self.session.turn(input)
            }
            next @ (NextTurn::CutOffElsewhere | NextTurn::OnlyElsewhere) => {
                self.next = next;
                return Err(Failure::usage("the project has changed since the turn was cut off")
                    .hint("`force: true` beside `continue` goes on with the project as it is now"));
            }
            next @ (NextTurn::Any | NextTurn::None) => {
                self.next = next;
                return Err(Failure::usage("there is no turn to finish")
                    .hint("`open` says with `unfinished` whether there is one"));
            }
        };
        Ok(self.begun(cancelled))
    }

    fn free(&self) -> Result<(), Failure> {
        if self.under_way.as_ref().is_some_and(TurnUnderWay::goes_on) {
            return Err(Failure::usage("a turn of this scope is under way")
                .hint("wait for its answer, or `cancel` it; other scopes run at the same time"));
        }
        Ok(())
    }

    fn begun(&mut self, cancelled: CancellationToken) -> TurnAnswer {
        let (answer, answered) = oneshot::channel();
        let (goes_on, by) = (Arc::new(()), Arc::new(OnceLock::new()));
        let ended = Arc::downgrade(&goes_on);
        let _ = self.turns.send(PendingTurn {
            answer,
            cancelled: cancelled.clone(),
            by: Arc::clone(&by),
            goes_on,
            is_taken_back: false,
        });
        self.under_way = Some(TurnUnderWay { cancelled, by, ended });
        answered
    }

    /// Ends the turn that goes on; gives whether there was one.
    pub fn cancel(&mut self, by: Option<StopReason>) -> bool {
        let Some(turn) = self.under_way.take().filter(|turn| turn.ended.strong_count() > 0) else { return false };
        if let Some(by) = by {
            let _ = turn.by.set(by);
        }
        turn.cancelled.cancel();
        true
    }

    /// Ends the turn that goes on and closes the call.
    pub async fn close(mut self) -> Option<ScopeCloseResult> {
        self.cancel(None);
        self.session.close();
        let closed = self.closed.await.ok();
        let _ = self.task.await;
        closed
    }
}

impl Scope {
    /// Nobody is there any more who hears of it. What a kept scope asks waits for somebody else; any other turn ends.
    pub async fn abandon(mut self, by: Option<StopReason>) {
        self.session.leave_turns_open();
        if let (Some(keeper), Some(by)) = (&self.session.keeper, by) {
            keeper.ends_by(by.end_reason());
        }
        let is_asking = self
            .asks
            .as_ref()
            .is_some_and(|asks| asks.load(Ordering::SeqCst) > 0 || !self.session.questions.open().is_empty());
        if !is_asking {
            self.cancel(by);
        }
        self.session.questions.leave();
        let Self { session, under_way, mut closed, task, turns: _turns, .. } = self;
        session.close();
        tokio::select! {
            biased;
            _ = &mut closed => {}
            () = tokio::time::sleep(LEAVING) => {
                if let Some(turn) = under_way {
                    turn.cancelled.cancel();
                }
                let _ = closed.await;
            }
        }
        let _ = task.await;
    }
}

/// What is told of a call that is open, if it went on, and which turn may come next.
fn continued(opened: OpenedCall, prior: Option<PriorScope>) -> (NextTurn, Option<ContinuedScope>) {
    let OpenedCall { restored, messages } = opened;
    let Some(PriorScope { changed, pending, in_doubt, may_finish, only_input }) = prior else {
        return (NextTurn::Any, None);
    };
    let (next, unfinished) = match (only_input, restored.unfinished) {
        (Some(input), _) => {
            let said = Some(input.to_json());
            (if may_finish { NextTurn::Only(input) } else { NextTurn::OnlyElsewhere }, said)
        }
        (None, Some(parts)) => {
            (if may_finish { NextTurn::CutOff } else { NextTurn::CutOffElsewhere }, Some(RawJson::of(&parts)))
        }
        (None, None) => (NextTurn::Any, None),
    };
    let turns = restored.finished;
    (next, Some(ContinuedScope { turns, messages, unfinished, pending, in_doubt, changed }))
}

/// Passes on to the client what is heard of a session.
struct Attendant {
    number: u64,
    wanted: EventSelection,
    client: Connection,
    runtime: Arc<Runtime>,
    questions: QuestionBroker,
    steering: Arc<Steering>,
    asking: Arc<ClientApprover>,
    asked: JoinSet<(String, Answer)>,
    /// The questions that the client is asked now.
    asks: BTreeMap<String, AbortHandle>,
    trouble: Trouble,
    /// Its id, if it is kept.
    run: Option<String>,
}

impl Attendant {
    async fn attend(
        mut self,
        mut updates: SessionUpdates,
        mut waiting: EventBarrierRequests,
        mut turns: UnboundedReceiver<PendingTurn>,
        opened: oneshot::Sender<Result<OpenedCall, RunError>>,
        closing: oneshot::Sender<ScopeCloseResult>,
    ) {
        let (mut opened, mut turn) = (Some(opened), None::<PendingTurn>);
        loop {
            let (mut waits, mut is_taken_back) = (None, false);
            tokio::select! {
                biased;
                update = updates.next() => match update {
                    Some(Update::Events(events)) => events.for_each(|event| self.tell(&event)),
                    Some(Update::Question(question)) => self.ask(question),
                    Some(Update::Answered(id, ..)) => {
                        if let Some(ask) = self.asks.remove(&id) {
                            ask.abort();
                        }
                    }
                    Some(Update::Note(note)) => console::complain(&format!("note: {}\n", visible(&note))),
                    Some(Update::Changed(_)) => {}
                    Some(Update::Opened(result)) => {
                        if let Some(opened) = opened.take() {
                            let _ = opened.send(result);
                        }
                    }
                    Some(Update::TurnEnded(result)) => {
                        if let Some(turn) = turn.take().or_else(|| turns.try_recv().ok()) {
                            let PendingTurn { answer, by, goes_on, .. } = turn;
                            let turned = self.turned(result, by.get().copied());
                            // This comes before the answer, because a client that reads the answer may begin the next
                            // turn at once.
                            drop(goes_on);
                            let _ = answer.send(turned);
                        }
                    }
                    Some(Update::Closed(_)) => {
                        let _ = closing.send(ScopeCloseResult { usage: self.runtime.usage(), trace: self.runtime.trace() });
                        return;
                    }
                    None => return,
                },
                Some(waiting) = waiting.recv() => waits = Some(waiting),
                Some(answered) = self.asked.join_next() => {
                    if let Ok((id, answer)) = answered {
                        self.asks.remove(&id);
                        // The question may be settled already, and then the answer is not needed.
                        let _ = self.questions.answer(&id, answer, CLIENT);
                    }
                }
                Some(next) = turns.recv(), if turn.is_none() => turn = Some(next),
                () = taken_back(&mut turn) => is_taken_back = true,
            }
            if let Some(waits) = waits {
                updates.events_so_far().for_each(|event| self.tell(&event));
                let _ = waits.send(());
            }
            if let Some(turn) = turn.as_mut().filter(|_| is_taken_back) {
                turn.is_taken_back = true;
                // Of a client that is gone nobody took it back: what becomes of the turn is decided for the whole scope.
                if !self.client.is_over() {
                    turn.cancelled.cancel();
                }
            }
        }
    }

    fn tell(&self, event: &Event) {
        match self.wanted {
            EventSelection::All | EventSelection::Facts => {
                self.client.notify("event", &RawJson::of(&EventNotification { scope: self.number, event }));
            }
            EventSelection::None => {}
        }
    }

    fn ask(&mut self, question: OpenQuestion) {
        let (asking, id) = (Arc::clone(&self.asking), question.id().clone());
        let ask = self.asked.spawn(async move {
            let answer = asking.ask(&question.request).await;
            (question.id().clone(), answer)
        });
        self.asks.insert(id, ask);
    }

    fn turned(&self, result: TurnResult, stopped: Option<StopReason>) -> Result<ScopeTurnResult, RpcError> {
        let TurnResult { answer, messages, calls: trace, is_cancelled, kept, files } = result;
        let stopped = stopped.or(is_cancelled.then_some(StopReason::Cancelled));
        let (usage, unheard) = (self.runtime.usage(), self.steering.take_unheard());
        match answer {
            Ok(output) => {
                let (output, finish) = (output.to_json(), finish_of(&messages));
                let (refused, files) = (self.runtime.refused(), files.saved);
                Ok(ScopeTurnResult { output, finish, messages, unheard, usage, trace, refused, files })
            }
            Err(error) => Err(self.failed(error, stopped, kept.is_some(), (usage, unheard))),
        }
    }
}

impl Attendant {
    /// What a program is told of a turn that came to nothing.
    fn failed(
        &self,
        error: RunError,
        stopped: Option<StopReason>,
        kept: bool,
        (usage, unheard): (UsageReport, Vec<String>),
    ) -> RpcError {
        let (partial, finish) = (error.partial().map(str::to_owned), error.finish());
        let pending = match &error {
            RunError::Ended(Ending::NeedsApproval(pending)) => pending.clone(),
            _ => Vec::new(),
        };
        let failure = match self.trouble.take() {
            Some(words) => Failure::refused(words),
            None => report::failure(error, stopped, None).plain(),
        };
        let (usage, run) = (Some(usage), self.run.clone());
        ErrorData { partial, kept, unheard, finish, pending, usage, run, ..ErrorData::of(&failure) }.fault(&failure)
    }
}

/// Returns when the request of a turn was taken back.
async fn taken_back(turn: &mut Option<PendingTurn>) {
    match turn {
        Some(turn) if !turn.is_taken_back => turn.answer.closed().await,
        Some(_) | None => std::future::pending().await,
    }
}
