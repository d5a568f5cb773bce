//! One call of one agent, possibly many turns.

mod cached;
mod commands;
mod context;
mod fallback;
mod heard;
mod keep;
mod limits;
mod restore;
mod stand_in;
mod wrap_up;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::continuation::joined;
use super::input::Input;
use super::ledger::{LimitKinds, Reservation};
use super::output;
use super::python;
use super::record::{TurnMessage, TurnRecord};
use super::repeats;
use super::request::{OpeningEstimate, OwnRequests, RequestContext, RequestError, parts_of};
use super::toolsets::{self, CallToolsets, ToolsetOpenError};
use super::{Output, RunError, Runtime, offered_server_tools};
use crate::BoxFuture;
use crate::dormant::dormant;
use crate::event::{CallEnd, CallKind, Derivation, EventKind, Events, Renaming, StepOrigin, TraceCall};
use crate::journal::call::{RecordedReply, of_input};
use crate::journal::digest::Chain;
use crate::journal::{RequestParts, StepDescription, StepKind, StepParts, Steps, Stop};
use crate::message::{
    Arguments, Content, Message, NextAction, RawJson, Reply, ToolCall, ToolResult, UnfinishedReason, UserMessage,
    next_step, write_identity,
};
use crate::model::prices::ModelPrice;
use crate::model::{Conversation, Head, Model, ModelError, ToolDeclaration};
use crate::project::{AgentSpec, Limit, Limits, OnLimit, Typing};
use crate::spending::{Account, BoundedAmount, LimitHit};
use crate::tools::approval::canonical;
use crate::tools::attachment::Reach;
use crate::tools::plane::ToolPlane;
use crate::tools::{CallContext, Ending, Nesting};

use wrap_up::Finishing;

#[cfg(feature = "front-end")]
pub use commands::UndoneTurn;
#[cfg(feature = "front-end")]
pub use heard::Steering;
#[cfg(not(feature = "front-end"))]
use heard::Steering;
pub(super) use keep::TurnKeeping;
pub use restore::RestoredTurns;
#[cfg(feature = "front-end")]
pub use restore::check_history;

#[cfg(feature = "front-end")]
pub(super) use stand_in::given_to_code;

use cached::CallCache;
use context::ContextRoom;
use fallback::{Alternatives, AskedAgent};
use keep::PastTurn;

/// How often an answer that violates its schema is sent back.
const MOST_REPAIRS: usize = 3;
/// The same call that fails so often in a row ends the agent's call.
const MOST_FAILURES: usize = 3;

/// Who opens a call.
#[derive(Clone, Copy)]
pub(super) enum Caller<'a> {
    Nobody,
    /// An agent of another run.
    Outside(&'a OutsideCaller),
    /// A tool, or an entry function.
    Call(&'a CallContext<'a>),
}

/// An agent that runs elsewhere, such as in another process, on whose behalf an agent is called here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideCaller {
    /// The agent that calls.
    pub agent: String,
    /// How many agents stand above it.
    pub depth: usize,
}

impl Caller<'_> {
    pub(super) fn next_depth(self) -> usize {
        match self {
            Self::Nobody => 0,
            Self::Outside(caller) => caller.depth + 1,
            Self::Call(cx) => cx.depth + 1,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Nobody => "the entry",
            Self::Outside(caller) => &caller.agent,
            Self::Call(cx) => cx.caller(),
        }
    }

    /// Of a call within others.
    pub(super) fn nesting(&self) -> Option<Nesting> {
        match self {
            Self::Nobody | Self::Outside(_) => None,
            Self::Call(cx) => Some(cx.nesting),
        }
    }

    /// How deep the call stands in the tree that events tell of.
    fn place(&self) -> usize {
        match self {
            Self::Nobody | Self::Outside(_) => self.next_depth(),
            Self::Call(cx) => cx.events.depth() + 1,
        }
    }
}

/// Comes when whoever began a turn does not want it any more.
type Cancellation<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// The state of one call: what a reset would throw away.
#[derive(Debug)]
pub struct CallFrame {
    pub depth: usize,
    /// The agents from the entry down to this one.
    pub path: Vec<String>,
    pub history: Vec<Message>,
}

/// A call of an agent. Owns its toolsets.
pub struct CallScope<'r> {
    runtime: &'r Runtime,
    agent: Arc<AgentSpec>,
    /// `provider:model`.
    model: String,
    frame: CallFrame,
    conversation: Box<dyn Conversation>,
    /// `None` once it is closed.
    plane: Option<ToolPlane>,
    events: Events,
    steps: Steps,
    nesting: Nesting,
    call: u64,
    parent: Option<u64>,
    account: Account,
    /// What the model costs, if that is known.
    price: Option<Arc<ModelPrice>>,
    opening: OpeningEstimate,
    limited: LimitKinds,
    own: OwnRequests,
    /// The one that is going on.
    turn: Option<Turn>,
    /// What the last turn had come to when it was taken back.
    unfinished: Vec<Message>,
    /// Whether a turn that came to no answer stays.
    keeping: TurnKeeping,
    /// The turns that are in the history, behind what it began with.
    past: Vec<PastTurn>,
    /// Why the last turn came to no answer, until the model is told.
    interrupted: Option<String>,
    /// What is said while a turn goes on.
    steering: Option<Arc<Steering>>,
    /// The text of a reply that is still coming.
    heard: String,
    room: ContextRoom,
    /// The models that it may ask, if there are several.
    alternatives: Option<Box<Alternatives>>,
    /// How many turns were begun; of those that are taken over from a record, the numbers count.
    turns: u64,
    /// What was wanted since the last turn.
    commands: u64,
    /// Whether its beginning was told.
    has_begun: bool,
    /// What its requests are made of, if they are recorded.
    parts: Option<Arc<RequestParts>>,
    /// The replies that count again, if they do.
    cache: Option<Box<CallCache>>,
    /// Of the turn that is going on.
    requests: u64,
    /// How often a person was asked about the calls of the last reply.
    asked_for_calls: usize,
    /// Set where a limit is reached and the model is to finish with what it has.
    finishing: Option<Box<Finishing>>,
    /// The last request, whose record has the last reply.
    answered: Option<Arc<StepOrigin>>,
    /// Identifies what was said so far in a recorded run.
    chain: Option<Chain>,
    started: Instant,
    ended: Option<CallEnd>,
}

impl<'r> CallScope<'r> {
    pub(super) async fn open(
        runtime: &'r Runtime,
        agent: Arc<AgentSpec>,
        model: &dyn Model,
        call: u64,
        nesting: Nesting,
        caller: Caller<'_>,
    ) -> Result<Self, RunError> {
        let wrong = |reason| RunError::Toolset { agent: agent.name.clone(), reason };
        let depth = caller.next_depth();
        let events = match caller {
            Caller::Nobody | Caller::Outside(_) => &runtime.events,
            Caller::Call(cx) => cx.events,
        };
        let events = events.for_call(&Arc::from(agent.name.as_str()), caller.place(), call);
        let (mut path, steps, parent) = match caller {
            Caller::Nobody => (Vec::new(), runtime.steps_of_entry(&agent.name), None),
            Caller::Outside(caller) => (vec![caller.agent.clone()], runtime.steps_of_entry(&agent.name), None),
            Caller::Call(cx) => (cx.path.to_vec(), cx.steps.clone(), Some(cx.call)),
        };
        if parent.is_none() {
            Box::pin(python::renew(&runtime.program, &events)).await;
        }
        let opened = toolsets::open(runtime, &agent, &steps, &events).await;
        let CallToolsets { toolsets, missing } = opened.map_err(|unopened| match unopened {
            ToolsetOpenError::Toolset(reason) => wrong(events.redactor().redacted(reason)),
            ToolsetOpenError::IdleRule { place, tool, instead } => {
                RunError::IdleRule { agent: agent.name.clone(), place, tool, instead }
            }
            ToolsetOpenError::Stopped(stop) => stop.into(),
            ToolsetOpenError::Ended(ending) => ending.into(),
        })?;
        let (gate, refusals) = (Arc::clone(&runtime.gate), runtime.config.refusals);
        let plane = ToolPlane::open(toolsets, gate, refusals, &events).await.map_err(wrong)?;
        path.push(agent.name.clone());
        let payer = match caller {
            Caller::Nobody | Caller::Outside(_) => runtime.account,
            Caller::Call(cx) => Account(cx.account),
        };
        // Its own requests are counted apart: those of the agents it calls are theirs.
        let on_limit = agent.limits.on_limit.or(runtime.config.limits.on_limit);
        let limits = Limits { max_requests: None, on_limit, ..agent.limits.clone() };
        let account = runtime.ledger.open(limits, Some(payer), path.len());
        runtime.ledger.carry_over(account, runtime.resumed.spent_beneath(steps.path()));
        for name in missing {
            let text = format!("the toolset `{name}` of agent `{}` cannot be offered yet", agent.name);
            events.send(|| EventKind::Notice { text });
        }
        let head = head(runtime, &agent, &plane);
        let replies = runtime.config.cache.as_ref().and_then(|caching| caching.for_agent(&agent.name));
        let is_named = steps.is_recorded() || replies.is_some();
        let (opening, parts) = runtime.heads.of(&agent, &head, is_named);
        let limited = runtime.ledger.limited(account);
        let kept = u64::from(on_limit == Some(OnLimit::WrapUp));
        let own = OwnRequests { limit: agent.limits.max_requests, kept, ..OwnRequests::default() };
        let cache = replies.zip(parts.as_ref());
        let cache = cache.map(|(replies, parts)| Box::new(CallCache::new(Arc::clone(replies), parts.names())));
        let parts = parts.filter(|_| steps.is_recorded());
        let conversation = model.open(head);
        let price = runtime.price_of(&agent.model);
        let mut scope = Self {
            runtime,
            model: agent.model.to_string(),
            agent,
            frame: CallFrame { depth, path, history: Vec::with_capacity(2) },
            conversation,
            plane: Some(plane),
            events,
            steps,
            nesting,
            call,
            parent,
            account,
            price,
            opening,
            limited,
            own,
            turn: None,
            unfinished: Vec::new(),
            keeping: TurnKeeping::default(),
            past: Vec::new(),
            interrupted: None,
            steering: None,
            heard: String::new(),
            room: ContextRoom::default(),
            alternatives: None,
            turns: 0,
            commands: 0,
            has_begun: false,
            parts,
            cache,
            requests: 0,
            asked_for_calls: 0,
            finishing: None,
            answered: None,
            chain: None,
            started: Instant::now(),
            ended: None,
        };
        scope.restore_raises();
        Ok(scope)
    }

    /// These models are asked in turn, if there are several.
    pub(super) fn ask_in_turn(&mut self, several: Vec<AskedAgent>) {
        self.alternatives = Alternatives::of(self.runtime, several);
    }

    /// Where the call is and what was said in it.
    pub fn frame(&self) -> &CallFrame {
        &self.frame
    }

    /// The calls that were made in it, from this one on, as far as they have ended.
    pub(super) fn calls_from(&self, first: usize) -> Vec<TraceCall> {
        self.runtime.session.calls_from(self.call, first)
    }

    /// Whether nothing in this run has called it.
    fn is_entry(&self) -> bool {
        self.parent.is_none()
    }

    /// What becomes of turns that come to no answer.
    pub(super) fn keep_turns(&mut self, keeping: TurnKeeping) {
        self.keeping = keeping;
    }

    /// Whether the last turn came to no answer and stays in the history all the same.
    #[cfg(feature = "front-end")]
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }

    /// A turn that ends with [`RunError::Cancelled`] when `cancelled` comes before its answer.
    pub async fn turn_until(
        &mut self,
        input: impl Into<Input>,
        cancelled: impl Future<Output = ()> + Send,
    ) -> Result<Output, RunError> {
        let cancelled = pin!(cancelled);
        self.converse(Turn::of(input.into(), None), Some(cancelled)).await
    }

    /// One input → one answer. Of a turn that fails after the model has replied, what was said and done stays in the history,
    /// and the next message tells the model; any other leaves the history as it was. So does one whose future is dropped.
    pub async fn turn(&mut self, input: impl Into<Input>) -> Result<Output, RunError> {
        self.converse(Turn::of(input.into(), None), None).await
    }

    /// A turn that another call asked for: its caller has already passed the gate.
    pub(super) async fn called(&mut self, input: Input, reach: Reach) -> Result<Output, RunError> {
        self.converse(Turn::of(input, Some(reach)), None).await
    }

    /// A turn. The code of a future is made by every crate that waits for it, as each optimises its own; behind a box it
    /// is made once, here.
    #[inline(never)]
    fn converse<'a>(
        &'a mut self,
        turn: Turn,
        cancelled: Option<Cancellation<'a>>,
    ) -> BoxFuture<'a, Result<Output, RunError>> {
        Box::pin(self.begin_turn(turn, cancelled))
    }

    async fn begin_turn(&mut self, turn: Turn, cancelled: Option<Cancellation<'_>>) -> Result<Output, RunError> {
        self.roll_back();
        self.unfinished.clear();
        if !self.has_begun {
            self.has_begun = true;
            let input = turn.input.as_deref().expect(UNTAKEN).to_json();
            let (name, parent) = (self.agent.name.clone(), self.parent);
            self.events.send(|| EventKind::CallStarted { name, kind: CallKind::Agent, input, parent });
        }
        self.ended = Some(CallEnd::Error("cancelled".to_owned()));
        self.turns += 1;
        (self.commands, self.requests) = (0, 0);
        self.own.earlier = self.own.sent;
        self.turn = Some(Turn { start: self.frame.history.len(), ..turn });
        // A turn of the entry is one step; that of a nested call is its caller's.
        let output = if self.is_entry() && self.steps.is_recorded() {
            Box::pin(self.recorded_turn(cancelled)).await
        } else {
            let output = self.bounded_turn(cancelled).await;
            if let Err(error) = &output
                && self.keep(error)
            {
                self.end_turn();
            }
            output
        };
        self.settle(output)
    }

    /// Until its answer, the end of its time, or the wish of whoever began it.
    async fn bounded_turn(&mut self, cancelled: Option<Cancellation<'_>>) -> Result<Output, RunError> {
        let run_limit = self.runtime.config.limits.timeout_seconds.filter(|_| self.is_entry());
        let output = {
            let timed = pin!(self.timed_turn());
            let turn = pin!(within(run_limit, timed));
            match cancelled {
                None => Some(turn.await),
                Some(cancelled) => {
                    // Heard also after a turn that has used up all that one poll may use.
                    let mut cancelled = pin!(dormant(tokio::task::coop::unconstrained(cancelled)));
                    let mut turn = turn;
                    std::future::poll_fn(|cx| match turn.as_mut().poll(cx) {
                        Poll::Ready(output) => Poll::Ready(Some(output)),
                        Poll::Pending => cancelled.as_mut().poll(cx).map(|()| None),
                    })
                    .await
                }
            }
        };
        match output {
            Some(output) => output.unwrap_or_else(|allowed| Err(self.run_timed_out(allowed))),
            None => Err(RunError::Cancelled { partial: self.partial_text() }),
        }
    }

    /// Within the time that the agent's file allows.
    async fn timed_turn(&mut self) -> Result<Output, RunError> {
        if self.is_entry() {
            Box::pin(python::renew(&self.runtime.program, &self.events)).await;
        }
        let output = within(self.agent.limits.timeout_seconds, pin!(self.live_turn())).await;
        output.unwrap_or_else(|allowed| Err(self.timed_out(allowed)))
    }

    fn run_timed_out(&self, allowed: f64) -> RunError {
        self.tell_limit(Limit::Time.key(), allowed, allowed);
        let (limit, partial) = (Limit::Time.key().to_owned(), self.partial_text());
        Ending::Limit { limit, used: allowed, allowed, needed: None, partial }.into()
    }

    fn settle(&mut self, output: Result<Output, RunError>) -> Result<Output, RunError> {
        self.ended = Some(match &output {
            Ok(output) => CallEnd::Output(output.told()),
            Err(error) => CallEnd::Error(error.to_string()),
        });
        self.keep_replies(output.is_ok());
        match &output {
            Ok(_) => self.end_turn(),
            Err(error) => {
                self.roll_back();
                if self.is_entry() {
                    self.events.send(|| EventKind::RunFailed { error: error.to_string() });
                }
            }
        }
        output
    }

    /// Forgets a turn that did not come to its end.
    fn roll_back(&mut self) {
        if let Some(Turn { start, told, heard, .. }) = self.turn.take() {
            self.unhear(heard);
            self.unfinished = self.frame.history.split_off(start);
            self.rewind(start);
            self.heard.clear();
            // Nobody was told.
            self.interrupted = told.or(self.interrupted.take());
        }
    }

    /// What the agent has said in this turn, for a caller that gets no answer.
    fn partial_text(&self) -> String {
        let start = self.turn.as_ref().map_or(self.frame.history.len(), |turn| turn.start);
        let replies = self.frame.history[start..].iter().filter_map(|message| match message {
            Message::Assistant(reply) => Some(reply.text()),
            Message::User(_) | Message::Tool(_) => None,
        });
        let replies = replies.chain([self.heard.clone()]);
        replies.filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn timed_out(&self, allowed: f64) -> RunError {
        self.tell_limit(Limit::Time.key(), allowed, allowed);
        let (agent, limit) = (self.agent.name.clone(), Limit::Time.key().to_owned());
        RunError::Limit { agent, limit, used: allowed, allowed, needed: None, partial: self.partial_text() }
    }

    /// A limit of the run or of a budget ends the run, one of this call the call.
    fn limited(&self, reached: &LimitHit, partial: String) -> RunError {
        let LimitHit { ref limit, used, allowed, needed } = *reached;
        self.tell_limit(&limit.name(), used, allowed);
        match limit {
            BoundedAmount::Budget { name, per, .. } => {
                let (budget, per) = (name.to_string(), (*per).to_owned());
                Ending::Budget { budget, per, used, allowed, needed, partial }.into()
            }
            BoundedAmount::Account(limit, account) => {
                let needed = needed.filter(|_| *limit == Limit::Cost);
                let (limit, is_of_run) = (limit.key().to_owned(), *account == self.runtime.account);
                if is_of_run {
                    return Ending::Limit { limit, used, allowed, needed, partial }.into();
                }
                RunError::Limit { agent: self.agent.name.clone(), limit, used, allowed, needed, partial }
            }
        }
    }

    fn tell_limit(&self, limit: &str, used: f64, allowed: f64) {
        self.events.send(|| EventKind::LimitReached { limit: limit.to_owned(), used, allowed });
    }

    async fn recorded_turn(&mut self, cancelled: Option<Cancellation<'_>>) -> Result<Output, RunError> {
        let (steps, mut live) = (self.turn_steps(), None);
        let input = self.turn.as_ref().and_then(|turn| turn.input.as_deref()).expect(UNTAKEN);
        let (request, shown) = (RawJson::of(&(&self.agent.name, input)), input.to_json());
        let (events, scope, ran) = (self.events.clone(), &mut *self, &mut live);
        let turn = steps.here(&events).step(
            || StepDescription::new(StepKind::Call, &request),
            |events| async move {
                scope.events = Events::clone(&events);
                let ended = scope.bounded_turn(cancelled).await;
                let record = match &ended {
                    Ok(output) => scope.turn_record(shown, output),
                    Err(error) if scope.keep(error) => scope.kept_record(shown),
                    Err(error) => return Err(error.clone()),
                };
                *ran = Some(ended);
                Ok::<_, RunError>(record)
            },
        );
        let turn = turn.await;
        self.events = events;
        let turn = turn?;
        if let Some(ended) = live {
            self.end_turn();
            return ended;
        }
        let records = steps.records().ok_or(Stop::Failed)?;
        self.frame.history.extend(turn.messages(steps.path(), records).map_err(Stop::Journal)?);
        self.end_turn();
        self.restore_left_out(steps.path(), records).map_err(Stop::Journal)?;
        self.restore_view()?;
        let output = turn.output(steps.path(), records).map_err(Stop::Journal)?;
        self.interrupted = turn.stopped().map(str::to_owned);
        match self.interrupted {
            None => Ok(output),
            Some(_) => Err(RunError::Cancelled { partial: output.into_text() }),
        }
    }

    /// A turn that stays without an answer, likewise.
    fn kept_record(&self, input: RawJson) -> TurnRecord {
        let reason = self.interrupted.clone().unwrap_or_default();
        self.turn_record(input, &Output::Text(self.partial_text())).stopped_by(reason)
    }

    /// The turn that has just ended, in words that name the records beneath it.
    fn turn_record(&self, input: RawJson, output: &Output) -> TurnRecord {
        let Some(turn) = &self.turn else { return TurnRecord::of_function(input, output) };
        TurnRecord::of(input, output, &turn.sources, &self.frame.history[turn.start..])
    }

    /// The user message. Files that the input names are read here, once: what they hold later does not matter.
    async fn build_user_message(&mut self) -> Result<Vec<Content>, RunError> {
        let is_recorded = self.turn.as_ref().is_some_and(|turn| turn.is_recorded);
        let (input, reach) = self.turn.as_mut().and_then(Turn::take_input).expect(UNTAKEN);
        let turn = self.turn_steps();
        let note = self.interruption_note();
        let steps = turn.at(format_args!("input"));
        let (Self { runtime, agent, frame, events, .. }, turn) = (&*self, &turn);
        let request = steps.is_recorded().then(|| RawJson::of(&input));
        let description = || StepDescription::new(StepKind::Decide, &request);
        let telling = steps.telling(events);
        if let (true, Input::Parts(parts)) = (is_recorded, &input) {
            telling.settle(Renaming::default());
            events.send_of(telling.origin(), || Derivation::Heard, || of_input(parts));
            return Ok(parts.clone());
        }
        let effect = async {
            let reach = match reach {
                Some(reach) => reach,
                None => runtime.permitted_reach(&input, &frame.path, turn, &telling).await?,
            };
            let (premises, registry) = (runtime.program.premises(), &runtime.program.registry);
            let mut parts = input.into_message(agent, premises, &reach, registry).await?;
            if let Some(note) = note {
                parts.insert(0, note);
            }
            Ok::<_, RunError>(parts)
        };
        let parts = steps.run(description, &telling, effect).await?;
        events.send_of(telling.origin(), || Derivation::Heard, || of_input(&parts));
        Ok(parts)
    }

    async fn live_turn(&mut self) -> Result<Output, RunError> {
        self.chain = None;
        let given = self.given_to_code();
        let parts = self.build_user_message().await?;
        self.push(Message::User(UserMessage { parts }), TurnMessage::Input);
        let told = self.interrupted.take();
        if let Some(turn) = &mut self.turn {
            turn.told = told;
        }
        // Boxed: few agents have code beside them.
        let Some(given) = given else { return self.talk().await };
        if let Some(output) = Box::pin(self.answered_by_code(&given)).await? {
            return Ok(output);
        }
        let output = self.talk().await?;
        Box::pin(self.shadow(&given, &output)).await?;
        Ok(output)
    }

    /// Asks the model and runs what it calls, until there is an answer.
    async fn talk(&mut self) -> Result<Output, RunError> {
        // Dropped with this future, however the turn ends.
        let cancellation = CancellationToken::new();
        let _turn = cancellation.drop_guard_ref();
        let mut repairs = 0;
        loop {
            // A model that answers at once, a script or a record, waits for nothing: signals and others get their turn.
            tokio::task::coop::consume_budget().await;
            // Boxed: hardly ever is anything said.
            if self.may_hear() {
                Box::pin(self.hear()).await?;
            }
            let (message, source) = match next_step(&self.frame.history) {
                NextAction::AskModel => match self.ask().await {
                    Ok((reply, source)) => (Message::Assistant(reply), source),
                    Err(error) => return self.wrapped_up(error).await,
                },
                NextAction::RunTools(reply) => {
                    let calls: Vec<&ToolCall> = reply.tool_calls().collect();
                    if let Err(reached) = self.spend_calls(calls.len()) {
                        // Boxed: hardly any reply comes so far.
                        match Box::pin(self.admit_calls(reached)).await {
                            Ok(()) => continue,
                            Err(error) => return self.wrapped_up(error).await,
                        }
                    }
                    let results = self.plane().run(&calls, &self.context(&cancellation)).await?;
                    if let Some(turn) = &mut self.turn {
                        turn.failures.note(&self.agent.name, &calls, &results)?;
                    }
                    let (results, is_noted) = self.noted(results);
                    let source = if is_noted { TurnMessage::Made } else { TurnMessage::Results(self.requests - 1) };
                    (Message::tool_results(results), source)
                }
                NextAction::Finish(reply) => {
                    let (answered, events) = (self.answered.as_ref(), &self.events);
                    match answer(self.runtime, &self.agent, reply, answered, events).await {
                        Ok(output) => return Ok(output),
                        Err(RunError::Output { violation, .. }) if repairs < MOST_REPAIRS => {
                            repairs += 1;
                            (Message::user(output::repair_request(&violation)), TurnMessage::Made)
                        }
                        Err(error) => return Err(error),
                    }
                }
                // Half a typed answer can be told from a whole one, so it is sent back like any other that does not fit.
                NextAction::GiveUp(reply, UnfinishedReason::Length)
                    if self.agent.output != Typing::Untyped
                        && reply.tool_calls().next().is_none()
                        && repairs < MOST_REPAIRS =>
                {
                    repairs += 1;
                    (Message::user(output::SHORTEN_REQUEST), TurnMessage::Made)
                }
                NextAction::GiveUp(_, unfinished) => return Err(self.unfinished(unfinished)),
            };
            self.push(message, source);
        }
    }

    fn unfinished(&self, unfinished: UnfinishedReason) -> RunError {
        RunError::Unfinished { agent: self.agent.name.clone(), unfinished, partial: self.partial_text() }
    }

    /// The results of the last reply's calls; who repeats itself is told, and then they are not those that were recorded.
    fn noted(&self, mut results: Vec<ToolResult>) -> (Vec<ToolResult>, bool) {
        let Some((Message::Assistant(reply), before)) = self.frame.history.split_last() else {
            return (results, false);
        };
        let calls: Vec<&ToolCall> = reply.tool_calls().collect();
        let noted = repeats::note(before, &calls, &mut results);
        let is_noted = !noted.is_empty();
        for tool in noted {
            let agent = &self.agent.name;
            let text = format!("agent `{agent}` called `{tool}` three times in a row, with the same result each time");
            self.events.send(|| EventKind::Notice { text });
        }
        (results, is_noted)
    }

    fn push(&mut self, message: Message, source: TurnMessage) {
        self.events.log(&message);
        self.frame.history.push(message);
        self.extend_view();
        if let Some(turn) = self.turn.as_mut().filter(|_| self.steps.is_recorded()) {
            turn.sources.push(source);
        }
    }

    /// What would become of a call, and why.
    #[cfg(feature = "front-end")]
    pub(super) async fn explain(
        &self,
        tool: &str,
        arguments: &RawJson,
        mode: crate::tools::approval::ApprovalMode,
    ) -> Result<crate::tools::policy::Explanation, String> {
        let cancellation = CancellationToken::new();
        self.plane().explain(tool, arguments, mode, &self.context(&cancellation)).await
    }

    fn context<'a>(&'a self, cancellation: &'a CancellationToken) -> CallContext<'a> {
        let input = match self.turn.as_ref().and_then(|turn| self.frame.history.get(turn.start)) {
            Some(Message::User(message)) => message.parts.as_slice(),
            Some(Message::Assistant(_) | Message::Tool(_)) | None => &[],
        };
        CallContext {
            agents: self.runtime,
            agent: &self.agent.name,
            path: &self.frame.path,
            depth: self.frame.depth,
            nesting: self.nesting,
            call: self.call,
            model: Some(&self.model),
            input,
            messages: &self.frame.history,
            events: &self.events,
            project_root: &self.runtime.program.root,
            steps: self.request_steps(),
            account: self.account.0,
            plane: self.plane(),
            cancellation,
            timeout: None,
        }
    }

    /// Asks the model once, and once more if it said nothing at all. A text that was cut is gone on with, once.
    async fn ask(&mut self) -> Result<(Reply, TurnMessage), RunError> {
        for _ in 0..2 {
            let reply = self.request().await?;
            let is_text = reply.unfinished() == Some(UnfinishedReason::Length) && !reply.is_empty();
            if is_text && self.agent.output == Typing::Untyped && self.conversation.goes_on_with(&reply) {
                // Boxed: hardly any answer is cut.
                return Ok((Box::pin(self.go_on_with(reply)).await?, TurnMessage::Made));
            }
            if !reply.is_empty() || reply.unfinished().is_some() {
                return Ok((reply, TurnMessage::Reply(self.requests - 1)));
            }
        }
        Err(RunError::Empty { agent: self.agent.name.clone() })
    }

    /// Asks for the rest of an answer, with its beginning at the end of the history.
    async fn go_on_with(&mut self, begun: Reply) -> Result<Reply, RunError> {
        let start = self.frame.history.len();
        self.frame.history.push(Message::Assistant(begun.clone()));
        self.extend_view();
        let rest = match self.request().await {
            Ok(rest) => Some(rest),
            // A model that does not want it: what was said is not lost with it.
            Err(RunError::Model { error: ModelError::FixRequest(_), .. }) => None,
            Err(error) => {
                self.frame.history.truncate(start);
                self.rewind(start);
                return Err(error);
            }
        };
        self.frame.history.truncate(start);
        self.answered = None;
        self.chain = None;
        self.rewind(start);
        Ok(match rest {
            Some(rest) => joined(begun, rest),
            None => begun,
        })
    }

    async fn request(&mut self) -> Result<Reply, RunError> {
        self.requests += 1;
        self.asked_for_calls = 0;
        let steps = self.request_steps();
        if self.alternatives.is_some() {
            self.choose_model();
        }
        // Boxed, here and below: hardly any conversation fills a window.
        if self.may_need_room(&steps) {
            Box::pin(self.make_room(&steps)).await?;
        }
        // In one function, since it is gone through whenever a piece of an answer has come.
        let mut is_again = false;
        loop {
            self.extend_chain();
            self.own.sent += self.runtime.resumed.requests_at(steps.path());
            // Boxed: mostly a limit is the end.
            let reserved = if self.limited.reacts { Box::pin(self.admitted(&steps)).await? } else { None };
            let reply = self.sent(steps.clone(), reserved, false).await;
            match &reply {
                Err(RunError::Model { error: ModelError::ContextTooLong(_), .. }) => {
                    if is_again || !Box::pin(self.learn_window(&steps)).await? {
                        return reply;
                    }
                    is_again = true;
                }
                Err(RunError::Model { error, .. }) if self.alternatives.is_some() => {
                    if !self.fall_back(error) {
                        return reply.map_err(|error| self.after_all(error));
                    }
                }
                Ok(_) | Err(_) => return reply,
            }
        }
    }

    /// Sends a request for which there is room, as the step at this place.
    async fn sent(
        &mut self,
        steps: Steps,
        reserved: Option<Reservation<'r>>,
        is_last: bool,
    ) -> Result<Reply, RunError> {
        // Boxed: hardly any agent's replies count again.
        let cached = if is_last || self.cache.is_none() { None } else { self.cached_request().map(Box::new) };
        let Self {
            runtime,
            agent,
            model,
            price,
            opening,
            limited,
            account,
            own,
            heard,
            conversation,
            frame,
            chain,
            events,
            parts,
            room,
            alternatives,
            ..
        } = &mut *self;
        let (limited, history) = (*limited, room.sent(&frame.history));
        let description = || {
            let described = StepDescription::new(StepKind::Model, &chain.as_ref().map(Chain::digest));
            let made_of =
                |parts: &Arc<RequestParts>| StepParts { parts: Arc::clone(parts), sent: history.len() as u64 };
            match parts.as_ref().map(made_of) {
                Some(parts) => described.made_of(parts),
                None => described,
            }
        };
        let telling = steps.telling(events);
        let known = AtomicBool::new(false);
        let effect = async {
            if let Some(reply) = cached.as_ref().and_then(|cached| cached.known(&telling)) {
                known.store(true, Ordering::Relaxed);
                return Ok(reply);
            }
            let (price, ledger, run, account) = (price.as_deref(), &runtime.ledger, runtime.account, *account);
            let events = &*telling;
            let prices = match alternatives {
                Some(all) => {
                    if let Some(switched) = all.switched.take() {
                        events.send(|| switched);
                    }
                    all.prices.as_slice()
                }
                None => &[],
            };
            let request = RequestContext {
                agent,
                model,
                price,
                prices,
                opening,
                limited,
                ledger,
                account,
                run,
                own,
                heard,
                events,
                reserved,
                is_last,
            };
            request.ask(conversation.as_mut(), history).await.map(RecordedReply)
        };
        let reply: Result<RecordedReply, RequestError> = steps.run(description, &telling, effect).await;
        let answered = telling.origin().cloned();
        drop(telling);
        self.answered = answered;
        if let Ok(reply) = &reply {
            self.heard.clear();
            if let Some(cached) = cached.filter(|_| !known.into_inner()) {
                self.note_reply(*cached, reply);
            }
        }
        reply.map(|RecordedReply(reply)| reply).map_err(|unanswered| self.unanswered(unanswered, &steps))
    }

    fn unanswered(&mut self, unanswered: RequestError, steps: &Steps) -> RunError {
        match unanswered {
            RequestError::Limit(reached) => self.reached(&reached, steps),
            RequestError::Budget(reason) => Ending::BudgetUnkept { reason }.into(),
            RequestError::CutByMoney { reached, said } => {
                self.heard = said;
                self.reached(&reached, steps)
            }
            RequestError::Model { error, forbidden: None } => RunError::Model { agent: self.agent.name.clone(), error },
            RequestError::Model { error, forbidden: Some(reached) } => {
                let LimitHit { limit, used, allowed, .. } = *reached;
                let limit = limit.name();
                self.tell_limit(&limit, used, allowed);
                RunError::NotAskedAgain { agent: self.agent.name.clone(), error: Box::new(error), limit }
            }
            RequestError::Stopped(stop) => stop.into(),
        }
    }

    /// What identifies the next request, if a journal or a listener wants to know: the agent and all that was said, but neither model
    /// nor settings, so that a run can be resumed with others.
    fn extend_chain(&mut self) {
        if !self.steps.is_recorded() {
            return;
        }
        let chain = self.chain.get_or_insert_with(|| self.runtime.heads.chain(&self.agent));
        // Room for nearly every message.
        let mut identity = Vec::with_capacity(4096);
        for message in &self.frame.history[chain.len()..] {
            identity.clear();
            write_identity(message, &mut identity);
            chain.push(&identity);
        }
    }

    fn turn_steps(&self) -> Steps {
        self.steps.at(format_args!("t{}", self.turns - 1))
    }

    fn request_steps(&self) -> Steps {
        self.steps.at(format_args!("t{}/m{}", self.turns.saturating_sub(1), self.requests.saturating_sub(1)))
    }

    /// Closes the toolsets, the last one first, and tells how the call ended.
    pub async fn close(self) {
        self.finish().await;
    }

    /// Closes it, and gives what was said: the history, and what came of a last turn that failed.
    #[inline(never)]
    pub fn finish(self) -> BoxFuture<'r, Vec<Message>> {
        Box::pin(self.end_all())
    }

    async fn end_all(mut self) -> Vec<Message> {
        let mut said = std::mem::take(&mut self.frame.history);
        said.append(&mut self.unfinished);
        if let Some(plane) = self.plane.take() {
            plane.close(&self.events).await;
        }
        self.end();
        said
    }

    fn plane(&self) -> &ToolPlane {
        self.plane.as_ref().expect("a scope has its toolsets until it is closed")
    }

    /// Settles the account and tells how the call ended.
    fn end(&mut self) {
        self.runtime.ledger.close(self.account);
        let Some(ended) = self.ended.take() else { return };
        let usage = self.runtime.session.usage_of(self.call);
        let duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let name = self.agent.name.clone();
        self.events.send(|| EventKind::CallFinished { name, kind: CallKind::Agent, ended, duration_ms, usage });
    }
}

/// A scope that is dropped, such as that of a child whose caller was cancelled, asks its toolsets to close without
/// waiting for them.
impl Drop for CallScope<'_> {
    fn drop(&mut self) {
        let Some(plane) = self.plane.take() else { return };
        if let Ok(executor) = tokio::runtime::Handle::try_current() {
            let events = self.events.clone();
            executor.spawn(async move { plane.close(&events).await });
        }
        self.end();
    }
}

/// What a future comes to in this many seconds; an error is the limit that it has passed. It is pinned where it stands: a
/// future within another one makes room for it twice.
pub(super) async fn within<F: Future>(limit: Option<f64>, future: Pin<&mut F>) -> Result<F::Output, f64> {
    let Some(limit) = limit else { return Ok(future.await) };
    // A limit may be set to anything.
    let longest = Duration::try_from_secs_f64(limit).unwrap_or(Duration::from_hours(24 * 365));
    Box::pin(tokio::time::timeout(longest, future)).await.map_err(|_| limit)
}

/// The answer that ends a turn, judged. Not a method: what it waits for must not borrow the whole call.
async fn answer(
    runtime: &Runtime,
    agent: &AgentSpec,
    reply: &Reply,
    answered: Option<&Arc<StepOrigin>>,
    events: &Events,
) -> Result<Output, RunError> {
    let text = reply.text();
    let python = runtime.program.registry.python.as_deref();
    let output = output::judge(&agent.output, &text, python)
        .await
        .map_err(|violation| RunError::Output { agent: agent.name.clone(), violation })?;
    events.send_of(answered, || Derivation::Text, || EventKind::TextComplete { text });
    Ok(output)
}

fn head(runtime: &Runtime, agent: &AgentSpec, plane: &ToolPlane) -> Head {
    let tools = plane.specs().into_iter().map(|spec| ToolDeclaration {
        name: spec.name,
        description: spec.description,
        parameters: spec.parameters,
    });
    Head {
        agent: Arc::from(agent.name.as_str()),
        model: agent.model.clone(),
        instructions: agent.instructions.clone(),
        tools: tools.collect(),
        may_call: true,
        server_tools: offered_server_tools(agent, &runtime.config.approvals).to_vec(),
        settings: agent.settings.clone(),
        output: agent.output.schema().cloned(),
        stream: runtime.config.stream,
    }
}

/// One input and all that is done until it is answered. It stays with the call, so that a turn whose future is dropped can
/// be taken back.
struct Turn {
    /// Until the user message is made of it. Boxed, since a call has room for it as long as it is open.
    input: Option<Box<Input>>,
    /// Which files the input may name; `None` if the approver was not asked yet.
    reach: Option<Reach>,
    /// How long the history was before it.
    start: usize,
    /// Where each of its messages is recorded, if the run is.
    sources: Vec<TurnMessage>,
    /// Its message stands in the record, and is not made anew.
    is_recorded: bool,
    /// What its message tells of the turn before.
    told: Option<String>,
    /// What was said to it while it went on.
    heard: Vec<String>,
    failures: Failures,
}

/// Of the input of a turn.
const UNTAKEN: &str = "a turn has its input until its message is made";

impl Turn {
    fn of(input: Input, reach: Option<Reach>) -> Self {
        Self {
            input: Some(Box::new(input)),
            reach,
            start: 0,
            sources: Vec::new(),
            is_recorded: false,
            told: None,
            heard: Vec::new(),
            failures: Failures::default(),
        }
    }

    fn take_input(&mut self) -> Option<(Input, Option<Reach>)> {
        Some((*self.input.take()?, self.reach.take()))
    }
}

/// How often the same call has failed in a row.
#[derive(Default)]
struct Failures {
    last: Option<(String, String)>,
    count: usize,
}

impl Failures {
    fn note(&mut self, agent: &str, calls: &[&ToolCall], results: &[ToolResult]) -> Result<(), RunError> {
        for (call, result) in calls.iter().zip(results) {
            let Err(reason) = &result.outcome else {
                *self = Self::default();
                continue;
            };
            let arguments = match &call.arguments {
                Arguments::Object(arguments) => canonical(arguments),
                Arguments::Malformed(text) => text.clone(),
            };
            let this = Some((call.tool.clone(), arguments));
            self.count = if self.last == this { self.count + 1 } else { 1 };
            self.last = this;
            if self.count >= MOST_FAILURES {
                let (agent, tool, reason) = (agent.to_owned(), call.tool.clone(), reason.clone());
                return Err(RunError::RepeatedFailure { agent, tool, reason });
            }
        }
        Ok(())
    }
}
