//! A call that a program holds open, on a task of its own: turns go in, answers come out, and what happens meanwhile is
//! told in order, before the answer that it led to.

use std::future::Future;
use std::sync::Arc;

use llm_do::event::{Event, TraceCall, UsageReport};
use llm_do::message::{Message, RawJson};
use llm_do::project::Entry;
use llm_do::runtime::input::Input;
use llm_do::runtime::{CallScope, Output, OutsideCaller, RunError, Runtime, finish_of};
use llm_do::tools::Ending;
use llm_do::tools::rpc::{Connection, Fault};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::order::Waiting;
use super::protocol::{Closed, ErrorData, Told, Turned, Wanted};
use super::questions::Trouble;
use crate::failure::Failure;
use crate::report;
use crate::watch::Stopped;

/// What a call needs to be opened.
pub struct Prepared {
    pub runtime: Runtime,
    pub events: UnboundedReceiver<Event>,
    /// Who asks the client something after these.
    pub waiting: Waiting,
    pub wanted: Wanted,
    pub caller: Option<OutsideCaller>,
    pub trouble: Trouble,
}

/// The handle of an open call. Dropped, the call closes.
pub struct Scope {
    orders: UnboundedSender<Order>,
    /// The manifest's.
    default_input: Option<RawJson>,
    /// The turn that goes on, if one does.
    under_way: Option<oneshot::Sender<Option<Stopped>>>,
    task: JoinHandle<()>,
}

enum Order {
    Turn { input: Input, cancelled: oneshot::Receiver<Option<Stopped>>, answer: oneshot::Sender<Result<Turned, Fault>> },
    Close { answer: oneshot::Sender<Closed> },
}

impl Scope {
    /// Opens the call: its toolsets are made before this returns.
    pub async fn open(number: u64, prepared: Prepared, client: Connection) -> Result<Self, Fault> {
        let (orders, received) = mpsc::unbounded_channel();
        let (opened, is_open) = oneshot::channel();
        let default_input = prepared.runtime.program().default_input.clone();
        let task = tokio::spawn(live(number, prepared, client, received, opened));
        match is_open.await {
            Ok(Ok(())) => Ok(Self { orders, default_input, under_way: None, task }),
            Ok(Err(error)) => Err(Failure::from(error).into()),
            Err(_) => Err(Failure::failed("the call ended while it was opened").into()),
        }
    }

    pub fn default_input(&self) -> Option<&RawJson> {
        self.default_input.as_ref()
    }

    /// Begins a turn; whoever waits for its answer gets it. One at a time.
    pub fn turn(&mut self, input: Input) -> Result<oneshot::Receiver<Result<Turned, Fault>>, Failure> {
        if self.under_way.as_ref().is_some_and(|turn| !turn.is_closed()) {
            return Err(Failure::usage("a turn of this scope is under way")
                .hint("wait for its answer, or `cancel` it; other scopes run at the same time"));
        }
        let (cancel, cancelled) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let _ = self.orders.send(Order::Turn { input, cancelled, answer });
        self.under_way = Some(cancel);
        Ok(answered)
    }

    /// Ends the turn that goes on; whether there was one.
    pub fn cancel(&mut self, by: Option<Stopped>) -> bool {
        self.under_way.take().is_some_and(|turn| turn.send(by).is_ok())
    }

    /// Ends the turn that goes on and closes the call.
    pub async fn close(mut self, by: Option<Stopped>) -> Option<Closed> {
        self.cancel(by);
        let (answer, closed) = oneshot::channel();
        let _ = self.orders.send(Order::Close { answer });
        let closed = closed.await.ok();
        let _ = self.task.await;
        closed
    }
}

/// What is heard of the call, passed on to the client.
struct Ear {
    number: u64,
    events: UnboundedReceiver<Event>,
    waiting: Waiting,
    wanted: Wanted,
    client: Connection,
}

impl Ear {
    /// Works, and tells meanwhile; what led to the end is told before it.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let done = loop {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.tell(&event),
                Some(waiting) = self.waiting.recv() => {
                    self.tell_all();
                    let _ = waiting.send(());
                }
                done = &mut work => break done,
            }
        };
        self.tell_all();
        done
    }

    fn tell_all(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.tell(&event);
        }
    }

    fn tell(&self, event: &Event) {
        match self.wanted {
            Wanted::All | Wanted::Facts => {
                self.client.notify("event", &RawJson::of(&Told { scope: self.number, event }));
            }
            Wanted::None => {}
        }
    }
}

/// Where turns go: an agent keeps its history, a function has none.
enum Place<'r> {
    Agent(Box<CallScope<'r>>),
    Function,
}

async fn live(
    number: u64,
    prepared: Prepared,
    client: Connection,
    mut orders: UnboundedReceiver<Order>,
    opened: oneshot::Sender<Result<(), RunError>>,
) {
    let Prepared { runtime, events, waiting, wanted, caller, trouble } = prepared;
    let mut ear = Ear { number, events, waiting, wanted, client };
    let mut place = match ear.during(open(&runtime, caller.as_ref())).await {
        Ok(place) => place,
        Err(error) => return drop(opened.send(Err(error))),
    };
    // Whoever asked for it may have given up: then it closes at once.
    let mut is_wanted = opened.send(Ok(())).is_ok();
    let (mut closing, mut calls) = (None, 0);
    while is_wanted {
        match ear.during(orders.recv()).await {
            Some(Order::Turn { input, cancelled, mut answer }) => {
                let mut stopped = None;
                let cancellation = async {
                    tokio::select! {
                        Ok(by) = cancelled => stopped = by,
                        // The request was taken back.
                        () = answer.closed() => {}
                    }
                };
                let (output, messages) = ear.during(turn(&runtime, &mut place, input, cancellation)).await;
                let (usage, trace) = (runtime.usage(), calls_since(&runtime, &place, &mut calls));
                let _ = answer.send(match output {
                    Ok(output) => {
                        let (output, finish) = (output.to_json(), finish_of(&messages));
                        Ok(Turned { output, finish, messages, usage, trace, refused: runtime.refused() })
                    }
                    Err(error) => Err(failed(error, stopped, usage, &trouble)),
                });
            }
            Some(Order::Close { answer }) => {
                closing = Some(answer);
                is_wanted = false;
            }
            None => is_wanted = false,
        }
    }
    if let Place::Agent(scope) = place {
        ear.during(scope.close()).await;
    }
    ear.during(runtime.close()).await;
    if let Some(answer) = closing {
        let _ = answer.send(Closed { usage: runtime.usage(), trace: runtime.trace() });
    }
}

async fn open<'r>(runtime: &'r Runtime, caller: Option<&OutsideCaller>) -> Result<Place<'r>, RunError> {
    let scope = match (&runtime.program().entry, caller) {
        (Entry::Agent(agent), None) => runtime.open(agent).await?,
        (Entry::Agent(agent), Some(caller)) => runtime.open_for_outside(agent, caller).await?,
        (Entry::Function(_), _) => return Ok(Place::Function),
        (Entry::Open, _) => return Err(RunError::NotStarted),
    };
    Ok(Place::Agent(Box::new(scope)))
}

/// The answer, and what was said on the way to it.
async fn turn(
    runtime: &Runtime,
    place: &mut Place<'_>,
    input: Input,
    cancelled: impl Future<Output = ()>,
) -> (Result<Output, RunError>, Vec<Message>) {
    match place {
        Place::Agent(scope) => {
            let start = scope.frame().history.len();
            let answer = scope.turn_until(input, cancelled).await;
            (answer, scope.frame().history[start..].to_vec())
        }
        Place::Function => (enter(runtime, input, cancelled).await, Vec::new()),
    }
}

async fn enter(runtime: &Runtime, input: Input, cancelled: impl Future<Output = ()>) -> Result<Output, RunError> {
    let Entry::Function(function) = &runtime.program().entry else { return Err(RunError::NotStarted) };
    tokio::select! {
        answer = runtime.enter_function(function, input) => answer,
        () = cancelled => Err(RunError::Cancelled { partial: String::new() }),
    }
}

/// The calls that were not told yet, which are counted as told.
fn calls_since(runtime: &Runtime, place: &Place<'_>, told: &mut usize) -> Vec<TraceCall> {
    let calls = match place {
        Place::Agent(scope) => scope.calls_from(*told),
        Place::Function => runtime.trace().into_iter().skip(*told).map(Arc::unwrap_or_clone).collect(),
    };
    *told += calls.len();
    calls
}

/// What a program is told of a turn that came to nothing.
fn failed(error: RunError, stopped: Option<Stopped>, usage: UsageReport, trouble: &Trouble) -> Fault {
    let (partial, finish) = (error.partial().map(str::to_owned), error.finish());
    let pending = match &error {
        RunError::Ended(Ending::NeedsApproval(pending)) => pending.clone(),
        _ => Vec::new(),
    };
    let failure = match trouble.take() {
        Some(words) => Failure::refused(words),
        None => report::failure(error, stopped, None).plain(),
    };
    ErrorData { partial, finish, pending, usage: Some(usage), ..ErrorData::of(&failure) }.fault(&failure)
}
