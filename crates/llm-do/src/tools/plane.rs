//! Every tool that one call of an agent can reach, behind one gate. The only way to a tool.

mod decision;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::agent::AgentTool;
use super::approval::{
    Approvals, Candidate, FormAnswer, Gate, GateOutcome, JudgementRecord, MOST_OPEN_QUESTIONS, PendingQuestion,
    Permission, Question, RulePlaces, Rules, Ruling, UnshownCall, canonical, digest,
};
use super::source::{AgentToolNames, SEARCH_FILES, ToolsetSource};
use super::{CallContext, Ending, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset, ToolsetIdentity};
use crate::BoxFuture;
use crate::event::{Derivation, EventKind, Events, LogPart, Renaming, StepOrigin, ToolReturn};
use crate::journal::call::{
    CallOutcome, CallRecord, GivenResult, SaidBeneath, called, cut_text, is_of_reply, request_of, returned,
};
use crate::journal::{StepDescription, StepKind, StepRecord, Steps, Suspension};
use crate::message::{Arguments, Attachment, Content, RawJson, ToolCall, ToolResult};
use crate::redact::Redactor;
use crate::stack;
use decision::{DecisionOutcome, Deliberation};

pub(crate) use decision::CallPosition;

pub use crate::journal::call::LONGEST_RESULT;

/// A live toolset as one agent uses it.
pub struct OpenToolset {
    pub name: String,
    /// How it is defined: approvals are for this and no other.
    pub definition: Arc<dyn ToolsetIdentity>,
    pub toolset: Box<dyn Toolset>,
    pub rules: Rules,
    /// Where these rules stand.
    pub(crate) places: RulePlaces,
    pub(crate) precedence: Precedence,
}

/// What becomes of tools whose name another toolset has as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precedence {
    /// That is a mistake.
    Equal,
    /// Its `search_files` is there unless the project has one of its own.
    SearchGivesWay,
}

impl OpenToolset {
    /// Its tools, without the one that gives way to another toolset.
    fn specs(&self, others: &[Self]) -> Vec<ToolSpec> {
        let mut specs = self.toolset.specs();
        if self.precedence == Precedence::SearchGivesWay {
            let firm = || others.iter().filter(|other| other.precedence == Precedence::Equal);
            let is_taken = |name: &str| firm().any(|other| other.toolset.specs().iter().any(|spec| spec.name == name));
            specs.retain(|spec| !spec.name.ends_with(SEARCH_FILES) || !is_taken(&spec.name));
        }
        specs
    }
}

/// All tools of one call.
pub struct ToolPlane {
    open: Vec<OpenToolset>,
    /// Where each tool is, by name.
    index: Vec<(String, Slot)>,
    gate: Arc<Gate>,
    refusals: Refusals,
    /// What code met that ends the run: it cannot be caught and forgotten.
    raised: Mutex<Option<Ending>>,
    /// Calls that code has started.
    named: AtomicU64,
    /// How far the calls of the present reply have come, for whoever stops the turn.
    underway: CallsUnderWay,
}

/// How far calls have come that were asked for together.
#[derive(Debug, Default)]
struct CallsUnderWay(Mutex<Vec<CallProgress>>);

impl CallsUnderWay {
    fn all(&self) -> MutexGuard<'_, Vec<CallProgress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, count: usize) {
        let mut all = self.all();
        all.clear();
        all.resize_with(count, CallProgress::default);
    }

    fn note(&self, position: usize, progress: CallProgress) {
        if let Some(place) = self.all().get_mut(position) {
            *place = progress;
        }
    }

    /// Whatever has come of them.
    fn take(&self, count: usize) -> Vec<CallProgress> {
        let mut taken = std::mem::take(&mut *self.all());
        taken.resize_with(count, CallProgress::default);
        taken
    }
}

/// How far a call has come.
#[derive(Debug, Default)]
enum CallProgress {
    /// Nothing of it was done.
    #[default]
    Waiting,
    /// It may have happened.
    Begun,
    Ended(GivenResult),
}

/// What a model reads of a call that was stopped.
const STOPPED_DURING: &str = "interrupted: it may have happened";
const STOPPED_BEFORE: &str = "interrupted: it did not happen";

#[derive(Clone)]
struct Slot {
    toolset: usize,
    kind: ToolKind,
    order: Order,
    repeat: Repeat,
}

/// What a refusal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusals {
    /// The model reads it and may go on.
    Return,
    /// It ends the run, unless a person gave it.
    EndRun,
}

/// How often a call is asked again because its target changed while it waited.
pub const MOST_QUESTIONS: usize = 3;

impl ToolPlane {
    /// Two tools of one name are an error that names both toolsets, and all of them are closed again.
    pub async fn open(
        open: Vec<OpenToolset>,
        gate: Arc<Gate>,
        refusals: Refusals,
        events: &Events,
    ) -> Result<Self, String> {
        match indexed(&open) {
            Ok(index) => Ok(Self {
                open,
                index,
                gate,
                refusals,
                raised: Mutex::default(),
                named: AtomicU64::new(0),
                underway: CallsUnderWay::default(),
            }),
            Err(reason) => {
                Box::pin(close(open, events)).await;
                Err(reason)
            }
        }
    }

    /// One more toolset, which is there from now on.
    pub fn add(&mut self, toolset: OpenToolset) -> Result<(), String> {
        self.open.push(toolset);
        self.index = indexed(&self.open).inspect_err(|_| drop(self.open.pop()))?;
        Ok(())
    }

    /// No tools at all, and no approver.
    pub(super) fn empty() -> Self {
        let gate = Arc::new(Gate::new(String::new(), Approvals::unattended()));
        let (refusals, raised, named) = (Refusals::Return, Mutex::default(), AtomicU64::new(0));
        Self { open: Vec::new(), index: Vec::new(), gate, refusals, raised, named, underway: CallsUnderWay::default() }
    }

    /// In the order of the agent's file.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.open.iter().flat_map(|opened| opened.specs(&self.open)).collect()
    }

    /// Code that ran into something that ends the run does not go on, whatever it makes of the error.
    pub fn raise(&self, error: &ToolError) {
        if let ToolError::Ends(ending) = error {
            self.raised().get_or_insert_with(|| ending.clone());
        }
    }

    fn raised(&self) -> MutexGuard<'_, Option<Ending>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, tool: &str) -> Option<&Slot> {
        let found = self.index.binary_search_by(|(name, _)| name.as_str().cmp(tool)).ok()?;
        Some(&self.index[found].1)
    }

    /// Whether lasting rules are in force.
    pub(super) fn has_rules(&self) -> bool {
        !self.gate.rules().is_empty()
    }

    /// Whether a name stands for an agent among the tools.
    pub fn has_agent(&self, tool: &str) -> bool {
        self.slot(tool).is_some_and(|slot| slot.kind == ToolKind::Agent)
    }

    /// Whether there is a tool of this name, an agent or another.
    pub fn has(&self, tool: &str) -> bool {
        self.slot(tool).is_some()
    }

    /// A call that code starts. Its place in the call tree is what it asks for, since code may start calls in any order.
    pub async fn call_by_name(
        &self,
        tool: &str,
        arguments: &RawJson,
        cx: &CallContext<'_>,
    ) -> Result<Vec<Content>, ToolError> {
        let other_name = AgentToolNames::other_name(tool).filter(|other| self.has(other));
        let tool = other_name.filter(|_| !self.has(tool)).unwrap_or(tool);
        let nesting = cx.nesting.deeper(cx.caller(), tool).map_err(ToolError::Failed)?;
        let steps = cx.steps.nth(|| format!("x{}", &digest([tool, &canonical(arguments)])[..12]));
        let arguments = Arguments::Object(arguments.clone());
        let id = format!("x{}", self.named.fetch_add(1, Ordering::Relaxed));
        let call = ToolCall { id, tool: tool.to_owned(), arguments, private: None };
        let inner = CallContext { nesting, steps, ..*cx };
        // A tool may call a tool that calls a tool.
        let (calls, underway) = ([&call], CallsUnderWay::default());
        stack::on_enough(self.outcomes(&calls, &underway, &inner)).await.map_err(ToolError::Ends)?;
        match underway.take(1).pop() {
            Some(CallProgress::Ended(outcome)) => outcome.given.map_err(ToolError::Failed),
            Some(CallProgress::Waiting | CallProgress::Begun) | None => {
                Err(ToolError::failed("the call gave no result"))
            }
        }
    }

    /// A call of an agent that code starts by name: through the gate, whether or not it is a tool of the caller.
    pub async fn call_agent(
        &self,
        tool: AgentTool,
        input: &RawJson,
        cx: &CallContext<'_>,
    ) -> Result<Vec<Content>, ToolError> {
        let name = tool.name.clone();
        if self.has_agent(&name) {
            return self.call_by_name(&name, input, cx).await;
        }
        let definition = Arc::new(ToolsetSource::Agent(name.clone()));
        let alone = OpenToolset {
            name: name.clone(),
            definition,
            toolset: Box::new(tool),
            rules: Rules::new(),
            places: RulePlaces::default(),
            precedence: Precedence::Equal,
        };
        let (gate, refusals) = (Arc::clone(&self.gate), self.refusals);
        let plane = Self::open(vec![alone], gate, refusals, cx.events).await.map_err(ToolError::Failed)?;
        plane.call_by_name(&name, input, cx).await
    }

    /// What a person makes of a form that comes up while a call runs; `None` if nobody is there, and nobody could come back to
    /// the call. The question is a step beneath this place.
    pub(super) async fn fill_in(
        &self,
        call: &InDoubt,
        question: Question,
        steps: &Steps,
        cx: &CallContext<'_>,
    ) -> Result<Option<FormAnswer>, Ending> {
        let InDoubt { path, tool, arguments } = call;
        let key = || steps.path().to_owned();
        let candidate = Candidate { tool, arguments, toolset: &"", agent: cx.agent, path, key: &key };
        // Its arguments are those of a call that runs already.
        let judge = |_| async { Err("it runs already".to_owned()) };
        let ruling = Ruling::for_a_person(question);
        match self.gate.pass(candidate, ruling, judge, steps, cx.events).await?.outcome {
            GateOutcome::Permitted(permission) => Ok(permission.into_form_answer()),
            GateOutcome::Waits(pending) if steps.suspension() == Suspension::Possible => {
                Err(Ending::NeedsApproval(vec![pending]))
            }
            GateOutcome::Waits(_) | GateOutcome::Refused { .. } => Ok(None),
            GateOutcome::EndRun => Err(Ending::EndedByPerson),
        }
    }

    /// What code met that ends the run, if it did.
    pub fn ending(&self) -> Option<Ending> {
        self.raised().take()
    }

    /// Runs the calls of one reply, and gives what its model reads of them.
    pub async fn run(&self, calls: &[&ToolCall], cx: &CallContext<'_>) -> Result<Vec<ToolResult>, Ending> {
        self.outcomes(calls, &self.underway, cx).await?;
        Ok(self.results(calls))
    }

    /// What the model reads of the calls of the present reply, as far as they have come. Of one that was not begun or has
    /// not ended it reads that.
    pub fn results(&self, calls: &[&ToolCall]) -> Vec<ToolResult> {
        let read = |(call, progress): (&&ToolCall, CallProgress)| ToolResult {
            id: call.id.clone(),
            tool: call.tool.clone(),
            outcome: match progress {
                CallProgress::Ended(given) => given.read(),
                CallProgress::Begun => Err(STOPPED_DURING.to_owned()),
                CallProgress::Waiting => Err(STOPPED_BEFORE.to_owned()),
            },
        };
        calls.iter().zip(self.underway.take(calls.len())).map(read).collect()
    }

    /// What becomes of calls. Boxed: most runs wait for a model most of the time, and then have no use for it; and its code
    /// is made here, once, and not by every crate that waits for a run.
    #[inline(never)]
    fn outcomes<'a>(
        &'a self,
        calls: &'a [&'a ToolCall],
        underway: &'a CallsUnderWay,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<(), Ending>> {
        Box::pin(self.run_all(calls, underway, cx))
    }

    /// All are decided first, in order; then the permitted ones run at the same time. Each result stands in its place as
    /// soon as it is there. If one must wait for an approval that cannot be given now, none runs.
    async fn run_all(&self, calls: &[&ToolCall], underway: &CallsUnderWay, cx: &CallContext<'_>) -> Result<(), Ending> {
        underway.begin(calls.len());
        // Readers of the trace find the calls of a reply in its order, whichever ends first.
        let first = cx.events.ranks(calls.len());
        let mut decided = self.decide_all(calls, first, cx).await?;
        // Most replies have one call, which needs no room for others.
        if let ([call], 1) = (calls, decided.len()) {
            return self.outcome((0, first), call, decided.remove(0), underway, cx).await;
        }
        let running =
            calls.iter().zip(decided).enumerate().map(|(position, (call, decided))| (position, *call, decided));
        let (sequential, concurrent): (Vec<_>, Vec<_>) = running.partition(|(_, call, decided)| {
            let slot = self.slot(&call.tool).filter(|_| matches!(decided, DecisionOutcome::Run(..)));
            slot.is_some_and(|slot| slot.order == Order::Sequential)
        });
        let in_order = async {
            let mut results = Vec::with_capacity(sequential.len());
            for (position, call, decided) in sequential {
                results.push((position, self.outcome((position, first), call, decided, underway, cx).await));
            }
            results
        };
        // Boxed: what waits for many moves each of them several times.
        let at_once = join_all(concurrent.into_iter().map(|(position, call, decided)| {
            Box::pin(async move { (position, self.outcome((position, first), call, decided, underway, cx).await) })
        }));
        let (mut results, more) = tokio::join!(at_once, in_order);
        results.extend(more);
        results.sort_by_key(|(position, _)| *position);
        together(results.into_iter().map(|(_, result)| result))
    }

    /// A write whose target changed since it was shown is decided again.
    async fn outcome(
        &self,
        (position, first): (usize, u64),
        call: &ToolCall,
        mut decided: DecisionOutcome,
        underway: &CallsUnderWay,
        cx: &CallContext<'_>,
    ) -> Result<(), Ending> {
        let events = cx.events.ranked(first + position as u64);
        let cx = &CallContext { events: &events, steps: cx.steps.clone(), ..*cx };
        for attempt in 0..MOST_QUESTIONS {
            let steps = cx.steps.at(format_args!("{}", CallPosition { position, attempt }));
            let inner = CallContext { steps, ..*cx };
            let ran = match decided {
                DecisionOutcome::Run(permission, told) => {
                    underway.note(position, CallProgress::Begun);
                    self.call(call, permission, told, inner).await?
                }
                // Boxed is what most calls have no use for.
                DecisionOutcome::Not(reason, told) => Box::pin(self.refuse(call, reason, told, inner)).await?,
                DecisionOutcome::Recorded => Box::pin(self.recall(call, inner)).await?,
            };
            if let Some(given) = ran.given() {
                underway.note(position, CallProgress::Ended(given));
                return Ok(());
            }
            underway.note(position, CallProgress::Waiting);
            let place = CallPosition { position, attempt: attempt + 1 };
            decided = Box::pin(self.decide_again(call, place, cx)).await?;
        }
        underway.note(position, CallProgress::Ended(GivenResult::keeps_changing()));
        Ok(())
    }

    /// Runs one permitted call as a step, and tells of it.
    async fn call(
        &self,
        call: &ToolCall,
        mut permission: Permission,
        decided: Deliberation,
        cx: CallContext<'_>,
    ) -> Result<CallRecord, Ending> {
        let Arguments::Object(arguments) = &call.arguments else {
            return Ok(CallRecord::refused(self.unknown(&call.tool), decided.log));
        };
        let slot = self.slot(&call.tool).unwrap_or(&Slot::GONE);
        let (id, tool, edited) = (&call.id, &call.tool, permission.edited().cloned());
        let failure = permission.take_failure();
        let permitted = permission.call(id, tool, arguments);
        let arguments = permitted.arguments().clone();
        let node = slot.node(tool, &cx);
        let telling = cx.steps.telling(node.as_ref().map_or(cx.events, |node| &node.events));
        let origin = telling.origin().filter(|_| is_of_reply(cx.steps.path())).cloned();
        slot.tell_called(call, &arguments, node.as_ref(), (telling.origin(), origin.as_ref()), cx.events);
        let steps = if slot.is_once() { cx.steps.clone().within_once() } else { cx.steps.clone() };
        let (cx, node, events) = (&cx, node.as_ref(), &telling);
        let (judged, is_shown) = (decided.judged.as_deref(), slot.is_once() && edited.is_none());
        let described = || {
            // What a person is shown of a call that must not run twice are the arguments that count.
            let unshown = || if is_shown { None } else { unshown(call, cx) };
            slot.described(call, &arguments, cx.path).judged(judged.map(|judged| placed(judged, unshown())).as_ref())
        };
        let given = origin.as_ref().map(|_| arguments.clone());
        let log = decided.log;
        let effect = async move {
            let (path, call) = node.map_or((cx.path, cx.call), |node| (&node.path, node.call));
            let inner = CallContext { events, steps, path, call, timeout: None, ..*cx };
            let started = Instant::now();
            let outcome = match (failure, self.open.get(slot.toolset)) {
                (Some(reason), _) => Err(ToolError::Failed(reason)),
                (None, Some(open)) => guarded(open.toolset.call(permitted, &inner)).await,
                (None, None) => Err(ToolError::Failed(self.unknown(tool))),
            };
            if let Some(ending) = self.ending() {
                return Err(ending);
            }
            let record = made(outcome, started, cx.events.redactor())?;
            Ok(CallRecord { edited, decided: log, said: said(&record, events), given, ..record })
        };
        let ran = cx.steps.run(described, &telling, effect).await;
        if let (Ok(_), Some(origin)) = (&ran, &decided.origin) {
            origin.settle(Renaming::default());
        }
        slot.tell_returned(call, ran.as_ref(), (telling.origin(), origin.as_ref()), cx.events);
        ran
    }

    /// A refusal is a result: it stays one when the run goes on later.
    async fn refuse(
        &self,
        call: &ToolCall,
        reason: String,
        decided: Deliberation,
        cx: CallContext<'_>,
    ) -> Result<CallRecord, Ending> {
        let slot = self.slot(&call.tool).unwrap_or(&Slot::GONE);
        let judged = decided.judged.as_deref();
        let described = || {
            let judged = judged.map(|judged| placed(judged, unshown(call, &cx)));
            StepDescription::new(slot.step_kind(), &request_of(call)).judged(judged.as_ref()).of_refusal()
        };
        let refused = CallRecord::refused(reason, decided.log);
        let refused = cx.steps.here(cx.events).step(described, |_| async move { Ok::<_, Ending>(refused) }).await?;
        if let Some(origin) = &decided.origin {
            origin.settle(Renaming::default());
        }
        Ok(refused)
    }

    /// The result of a call that ran in another process, told again.
    async fn recall(&self, call: &ToolCall, cx: CallContext<'_>) -> Result<CallRecord, Ending> {
        let slot = self.slot(&call.tool).unwrap_or(&Slot::GONE);
        let arguments = match &call.arguments {
            Arguments::Object(arguments) => arguments.clone(),
            Arguments::Malformed(text) => RawJson::of(text),
        };
        let described = slot.described(call, &arguments, cx.path);
        let StepRecord { value: ran, told } = cx.steps.recalled(described).await?;
        retell(&ran, &cx.steps, cx.events)?;
        if let CallOutcome::Refused(_) = ran.gave {
            return Ok(ran);
        }
        let node = slot.node(&call.tool, &cx);
        let telling = cx.steps.telling(node.as_ref().map_or(cx.events, |node| &node.events));
        let origin = telling.origin().filter(|_| is_of_reply(cx.steps.path()));
        let told_of = (telling.origin(), origin);
        slot.tell_called(call, ran.edited.as_ref().unwrap_or(&arguments), node.as_ref(), told_of, cx.events);
        telling.settle(telling.replay(cx.steps.told(&told)?));
        slot.tell_returned(call, Ok(&ran), (telling.origin(), origin), cx.events);
        Ok(ran)
    }

    /// Closes every toolset, the last one first; errors are told as events.
    pub async fn close(self, events: &Events) {
        close(self.open, events).await;
    }
}

/// A call of code, as a caller of its own: what it calls stands beneath it, in the trace and in questions.
struct CodeCaller {
    call: u64,
    path: Vec<String>,
    events: Events,
}

impl CodeCaller {
    fn of(tool: &str, cx: &CallContext<'_>) -> Self {
        let call = cx.events.new_call();
        let path = cx.path.iter().cloned().chain([tool.to_owned()]).collect();
        Self { call, path, events: cx.events.for_call(&Arc::from(tool), cx.events.depth() + 1, call) }
    }
}

/// Closes every toolset, the last one first. An error while closing is told and is the result of no call.
pub async fn close(open: Vec<OpenToolset>, events: &Events) {
    for OpenToolset { name, toolset, .. } in open.into_iter().rev() {
        let closed = guarded(async { toolset.close().await.map_err(ToolError::Failed) }).await;
        if let Err(ToolError::Failed(error)) = closed {
            events.send(|| EventKind::ToolsetCloseFailed { toolset: name, error });
        }
    }
}

/// Every tool's name and place, in the order of the names.
fn indexed(open: &[OpenToolset]) -> Result<Vec<(String, Slot)>, String> {
    let mut index = Vec::new();
    for (toolset, opened) in open.iter().enumerate() {
        let specs = opened.specs(open);
        index.reserve_exact(specs.len());
        for ToolSpec { name, kind, order, repeat, .. } in specs {
            index.push((name, Slot { toolset, kind, order, repeat }));
        }
    }
    // Stable: of two that share a name the first one in the agent's file stays first.
    index.sort_by(|(one, _), (other, _)| one.cmp(other));
    let twice = index.windows(2).find(|pair| pair[0].0 == pair[1].0);
    if let Some([(name, first), (_, second)]) = twice {
        let (first, second) = (&open[first.toolset].name, &open[second.toolset].name);
        return Err(format!("`{first}` and `{second}` both have a tool `{name}`"));
    }
    Ok(index)
}

/// Whether all have ended, or what ends the run. Children that ran at the same time may each wait for approvals: all are
/// named.
fn together(results: impl Iterator<Item = Result<(), Ending>>) -> Result<(), Ending> {
    let mut waiting = Vec::new();
    for result in results {
        match result {
            Ok(()) => {}
            Err(Ending::NeedsApproval(pending)) => waiting.extend(pending),
            Err(ending) => return Err(ending),
        }
    }
    all_waiting(waiting)
}

/// What the run waits for, if it waits for anything. Of very many questions the others are asked when these are answered and
/// the run goes on.
pub(super) fn all_waiting(mut questions: Vec<PendingQuestion>) -> Result<(), Ending> {
    questions.truncate(MOST_OPEN_QUESTIONS);
    if questions.is_empty() { Ok(()) } else { Err(Ending::NeedsApproval(questions)) }
}

impl Slot {
    /// Of a tool that was there when the call was decided, as a record says: its result may be recorded too.
    const GONE: Self =
        Self { toolset: usize::MAX, kind: ToolKind::Leaf, order: Order::Concurrent, repeat: Repeat::Once };

    /// Whether a call that may have happened must not happen again. A call of an agent is what its steps are.
    fn is_once(&self) -> bool {
        self.kind != ToolKind::Agent && self.repeat == Repeat::Once
    }

    fn step_kind(&self) -> StepKind {
        match self.kind {
            ToolKind::Leaf => StepKind::Tool,
            ToolKind::Code => StepKind::Code,
            ToolKind::Agent => StepKind::Call,
        }
    }

    /// `arguments` are those that count, which a person may have changed.
    fn described(&self, call: &ToolCall, arguments: &RawJson, path: &[String]) -> StepDescription<CallRecord> {
        let described = StepDescription::new(self.step_kind(), &request_of(call));
        if !self.is_once() {
            return described;
        }
        let shown = InDoubt { path: path.to_vec(), tool: call.tool.clone(), arguments: arguments.clone() };
        described.once(CallRecord::interrupted()).shown(&shown)
    }

    /// A call of an agent tells of itself. What a reply asked for follows from it, and from the record of the call.
    fn tell_called(
        &self,
        call: &ToolCall,
        arguments: &RawJson,
        node: Option<&CodeCaller>,
        (step, origin): (Option<&Arc<StepOrigin>>, Option<&Arc<StepOrigin>>),
        events: &Events,
    ) {
        if self.kind == ToolKind::Agent {
            return;
        }
        let calls_as = node.map(|node| node.call);
        match origin {
            Some(_) => events.send_of(origin, || Derivation::Called(calls_as), || called(call, arguments, calls_as)),
            None => events.send_at(step, || called(call, arguments, calls_as)),
        }
    }

    /// Code is a caller of its own.
    fn node(&self, tool: &str, cx: &CallContext<'_>) -> Option<CodeCaller> {
        (self.kind == ToolKind::Code).then(|| CodeCaller::of(tool, cx))
    }

    fn tell_returned(
        &self,
        call: &ToolCall,
        ran: Result<&CallRecord, &Ending>,
        (step, origin): (Option<&Arc<StepOrigin>>, Option<&Arc<StepOrigin>>),
        events: &Events,
    ) {
        match ran {
            _ if self.kind == ToolKind::Agent => {}
            Ok(ran) if origin.is_some() => {
                events.send_of(origin, || Derivation::Returned, || returned(call, ran));
            }
            Ok(ran) => events.send_at(step, || returned(call, ran)),
            Err(ending) => events.send(|| {
                let (id, tool, returned) = (call.id.clone(), call.tool.clone(), ToolReturn::Error(ending.to_string()));
                EventKind::ToolReturned { id, tool, returned, duration_ms: 0 }
            }),
        }
    }
}

/// Tells again what was told until a call was decided.
fn retell(ran: &CallRecord, steps: &Steps, events: &Events) -> Result<(), Ending> {
    if !ran.decided.is_empty() {
        let telling = steps.telling_part(events, LogPart::Decided);
        telling.settle(telling.replay(steps.told(&ran.decided)?));
    }
    Ok(())
}

/// How a call was judged, with who called what.
fn placed(judged: &JudgementRecord, call: Option<UnshownCall>) -> JudgementRecord {
    JudgementRecord { call, ..judged.clone() }
}

/// What of a call is nowhere in the record: a model's stands in its reply, and that of the entry is known by its key.
fn unshown(call: &ToolCall, cx: &CallContext<'_>) -> Option<UnshownCall> {
    match &call.arguments {
        Arguments::Object(arguments) if !is_of_reply(cx.steps.path()) => {
            Some(UnshownCall::of_code(cx.path, &call.tool, arguments))
        }
        Arguments::Object(_) | Arguments::Malformed(_) => UnshownCall::of_model(cx.path),
    }
}

/// Where what an agent gave to its caller is recorded already.
fn said(record: &CallRecord, events: &Events) -> Option<SaidBeneath> {
    let CallOutcome::Content(content) = &record.gave else { return None };
    events.last_text(|key, text| SaidBeneath::of(content, key, text)).flatten()
}

/// A call of which it is unknown whether it happened, as a journal keeps it for a person who finds out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InDoubt {
    /// The agents from the entry down.
    pub path: Vec<String>,
    /// The tool that was called.
    pub tool: String,
    /// What it was called with.
    pub arguments: RawJson,
}

/// The one door from a tool to the conversation, the events and the journal: no key passes it.
fn made(outcome: Result<Vec<Content>, ToolError>, started: Instant, redactor: &Redactor) -> Result<CallRecord, Ending> {
    let gave = match outcome {
        Ok(content) => CallOutcome::Content(cut(without_keys(content, redactor))),
        Err(ToolError::Failed(reason)) => CallOutcome::Failed(cut_text(redactor.redacted(reason))),
        Err(ToolError::Changed) => CallOutcome::Changed,
        Err(ToolError::Ends(ending)) => return Err(ending),
    };
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(CallRecord { duration_ms, ..CallRecord::at_once(gave) })
}

/// A tool that panics fails its call, not the program.
async fn guarded<T>(future: impl Future<Output = Result<T, ToolError>>) -> Result<T, ToolError> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            Poll::Ready(Err(ToolError::Failed(format!("the tool panicked: {}", words_of(&*panic)))))
        })
    })
    .await
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

/// Texts without keys, and files that are text as well.
fn without_keys(content: Vec<Content>, redactor: &Redactor) -> Vec<Content> {
    let part = |part| match part {
        Content::Text { text } => Content::Text { text: redactor.redacted(text) },
        // A key that was not JSON text leaves no JSON behind.
        Content::Value { json } if redactor.finds(json.as_bytes()) => {
            let text = redactor.redacted(json);
            if RawJson::parse(&text).is_ok() { Content::Value { json: text } } else { Content::Text { text } }
        }
        Content::Attachment(file) if redactor.finds(&file.data) => {
            let text = redactor.redacted(String::from_utf8_lossy(&file.data).into_owned());
            Content::Attachment(Attachment { data: Arc::from(text.into_bytes()), ..file })
        }
        whole @ (Content::Value { .. } | Content::Attachment(_)) => whole,
    };
    content.into_iter().map(part).collect()
}

/// Long texts are cut, with a mark that says so.
fn cut(content: Vec<Content>) -> Vec<Content> {
    let cut_part = |part| match part {
        Content::Text { text } => Content::Text { text: cut_text(text) },
        // Half a value is none.
        whole @ (Content::Value { .. } | Content::Attachment(_)) => whole,
    };
    content.into_iter().map(cut_part).collect()
}
