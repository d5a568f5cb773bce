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
use super::approval::{Approvals, Gate, MOST_OPEN_QUESTIONS, Permission, Rules, canonical, digest};
use super::source::{AgentToolNames, ToolsetSource};
use super::{CallContext, Ending, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset, ToolsetIdentity};
use crate::event::{EventKind, EventLog, Events, ToolReturn};
use crate::journal::{StepDescription, StepKind, StepRecord};
use crate::message::{Arguments, Attachment, Content, RawJson, ToolCall, ToolResult};
use crate::redact::Redactor;
use crate::stack;
use decision::{CallPosition, DecisionOutcome};

/// A live toolset as one agent uses it.
pub struct OpenToolset {
    pub name: String,
    /// How it is defined: approvals are for this and no other.
    pub definition: Arc<dyn ToolsetIdentity>,
    pub toolset: Box<dyn Toolset>,
    pub rules: Rules,
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
}

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

/// Results with more characters than this are cut.
pub const LONGEST_RESULT: usize = 60_000;
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
            Ok(index) => Ok(Self { open, index, gate, refusals, raised: Mutex::default(), named: AtomicU64::new(0) }),
            Err(reason) => {
                Box::pin(close(open, events)).await;
                Err(reason)
            }
        }
    }

    /// No tools at all, and no approver.
    pub(super) fn empty() -> Self {
        let gate = Arc::new(Gate::new(String::new(), Approvals::unattended()));
        let (refusals, raised, named) = (Refusals::Return, Mutex::default(), AtomicU64::new(0));
        Self { open: Vec::new(), index: Vec::new(), gate, refusals, raised, named }
    }

    /// In the order of the agent's file.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.open.iter().flat_map(|opened| opened.toolset.specs()).collect()
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
        let calls = [&call];
        let running = stack::on_enough(Box::pin(self.outcomes(&calls, &inner)));
        let outcomes = running.await.map_err(ToolError::Ends)?;
        let given = outcomes.into_iter().next().map(|outcome| outcome.given);
        given.unwrap_or_else(|| Err("the call gave no result".to_owned())).map_err(ToolError::Failed)
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
        let alone = OpenToolset { name: name.clone(), definition, toolset: Box::new(tool), rules: Rules::new() };
        let (gate, refusals) = (Arc::clone(&self.gate), self.refusals);
        let plane = Self::open(vec![alone], gate, refusals, cx.events).await.map_err(ToolError::Failed)?;
        plane.call_by_name(&name, input, cx).await
    }

    /// What code met that ends the run, if it did.
    pub fn ending(&self) -> Option<Ending> {
        self.raised().take()
    }

    /// Runs the calls of one reply, and gives what its model reads of them.
    pub async fn run(&self, calls: &[&ToolCall], cx: &CallContext<'_>) -> Result<Vec<ToolResult>, Ending> {
        let outcomes = self.outcomes(calls, cx).await?;
        let read = |(call, outcome): (&&ToolCall, CallResult)| ToolResult {
            id: call.id.clone(),
            tool: call.tool.clone(),
            outcome: outcome.read(),
        };
        Ok(calls.iter().zip(outcomes).map(read).collect())
    }

    /// All are decided first, in order; then the permitted ones run at the same time. Results come in call order. If one
    /// must wait for an approval that nobody can give, none runs.
    async fn outcomes(&self, calls: &[&ToolCall], cx: &CallContext<'_>) -> Result<Vec<CallResult>, Ending> {
        // Whoever reads the trace finds the calls of a reply in its order, whichever ends first.
        let first = cx.events.ranks(calls.len());
        let decided = self.decide_all(calls, first, cx).await?;
        let running =
            calls.iter().zip(decided).enumerate().map(|(position, (call, decided))| (position, *call, decided));
        let (sequential, concurrent): (Vec<_>, Vec<_>) = running.partition(|(_, call, decided)| {
            let slot = self.slot(&call.tool).filter(|_| matches!(decided, DecisionOutcome::Run(..)));
            slot.is_some_and(|slot| slot.order == Order::Sequential)
        });
        let in_order = async {
            let mut results = Vec::with_capacity(sequential.len());
            for (position, call, decided) in sequential {
                results.push((position, self.outcome((position, first), call, decided, cx).await));
            }
            results
        };
        // Boxed: what waits for many moves each of them several times.
        let at_once = join_all(concurrent.into_iter().map(|(position, call, decided)| {
            Box::pin(async move { (position, self.outcome((position, first), call, decided, cx).await) })
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
        cx: &CallContext<'_>,
    ) -> Result<CallResult, Ending> {
        let events = cx.events.ranked(first + position as u64);
        let cx = &CallContext { events: &events, steps: cx.steps.clone(), ..*cx };
        for attempt in 0..MOST_QUESTIONS {
            let steps = cx.steps.at(format_args!("{}", CallPosition { position, attempt }));
            let inner = CallContext { steps, ..*cx };
            let ran = match decided {
                DecisionOutcome::Run(permission, told) => self.call(call, permission, told, inner).await?,
                // Boxed is what most calls have no use for.
                DecisionOutcome::Not(reason, told) => {
                    Box::pin(self.refuse(call, CallRecord::refused(reason, told), inner)).await?
                }
                DecisionOutcome::Recorded => Box::pin(self.recall(call, inner)).await?,
            };
            match ran.gave {
                CallOutcome::Content(content) => return Ok(CallResult { edited: ran.edited, given: Ok(content) }),
                CallOutcome::Failed(reason) | CallOutcome::Refused(reason) => {
                    return Ok(CallResult { edited: None, given: Err(reason) });
                }
                CallOutcome::Changed => {
                    let place = CallPosition { position, attempt: attempt + 1 };
                    decided = Box::pin(self.decide_again(call, place, cx)).await?;
                }
            }
        }
        Ok(CallResult { edited: None, given: Err("its target keeps changing".to_owned()) })
    }

    /// Runs one permitted call as a step, and tells of it.
    async fn call(
        &self,
        call: &ToolCall,
        permission: Permission,
        decided: EventLog,
        cx: CallContext<'_>,
    ) -> Result<CallRecord, Ending> {
        let Arguments::Object(arguments) = &call.arguments else {
            return Ok(CallRecord::refused(self.unknown(&call.tool), decided));
        };
        let slot = self.slot(&call.tool).unwrap_or(&Slot::GONE);
        let (id, tool, edited) = (&call.id, &call.tool, permission.edited().cloned());
        let permitted = permission.call(id, tool, arguments);
        let arguments = permitted.arguments().clone();
        let node = slot.node(tool, &cx);
        slot.tell_called(call, &arguments, node.as_ref(), cx.events);
        let here = cx.steps.here(node.as_ref().map_or(cx.events, |node| &node.events));
        let steps = if slot.is_once() { cx.steps.clone().within_once() } else { cx.steps.clone() };
        let (cx, node) = (&cx, node.as_ref());
        let described = || slot.described(call, &arguments, cx.path);
        let ran = here.step(described, |events| async move {
            let (path, call) = node.map_or((cx.path, cx.call), |node| (&node.path, node.call));
            let inner = CallContext { events: &events, steps, path, call, timeout: None, ..*cx };
            let started = Instant::now();
            let outcome = match self.open.get(slot.toolset) {
                Some(open) => guarded(open.toolset.call(permitted, &inner)).await,
                None => Err(ToolError::Failed(self.unknown(tool))),
            };
            match self.ending() {
                Some(ending) => Err(ending),
                None => Ok(CallRecord { edited, decided, ..CallRecord::of(outcome, started, cx.events.redactor())? }),
            }
        });
        let ran = ran.await;
        slot.tell_returned(call, ran.as_ref(), cx.events);
        ran
    }

    /// A refusal is a result: it stays one when the run goes on later.
    async fn refuse(&self, call: &ToolCall, refused: CallRecord, cx: CallContext<'_>) -> Result<CallRecord, Ending> {
        let slot = self.slot(&call.tool).unwrap_or(&Slot::GONE);
        let described = || StepDescription::new(slot.step_kind(), &request_of(call));
        cx.steps.here(cx.events).step(described, |_| async move { Ok(refused) }).await
    }

    /// The result of a call that ran in another process, told again.
    async fn recall(&self, call: &ToolCall, cx: CallContext<'_>) -> Result<CallRecord, Ending> {
        let slot = self.slot(&call.tool).unwrap_or(&Slot::GONE);
        let arguments = match &call.arguments {
            Arguments::Object(arguments) => arguments.clone(),
            Arguments::Malformed(text) => RawJson::of(text),
        };
        let described = slot.described(call, &arguments, cx.path);
        let StepRecord { value: mut ran, told } = cx.steps.recalled(described).await?;
        cx.events.replay(std::mem::take(&mut ran.decided));
        if let CallOutcome::Refused(_) = ran.gave {
            return Ok(ran);
        }
        let node = slot.node(&call.tool, &cx);
        slot.tell_called(call, ran.edited.as_ref().unwrap_or(&arguments), node.as_ref(), cx.events);
        node.as_ref().map_or(cx.events, |node| &node.events).replay(told);
        slot.tell_returned(call, Ok(&ran), cx.events);
        Ok(ran)
    }

    /// Closes every toolset, the last one first; errors are told as events.
    pub async fn close(self, events: &Events) {
        close(self.open, events).await;
    }
}

/// How one call ended.
struct CallResult {
    /// What a person made of its arguments.
    edited: Option<RawJson>,
    given: Result<Vec<Content>, String>,
}

impl CallResult {
    /// Code gets what was given; a model reads it, and is told what it did not ask for.
    fn read(self) -> Result<Vec<Content>, String> {
        let edited = self.edited.map(|edited| format!("(the user changed the arguments to {})", edited.get()));
        Ok(edited.map(Content::text).into_iter().chain(self.given?.into_iter().map(as_read)).collect())
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

/// Closes every toolset, the last one first. An error while closing is told and is nobody's result.
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
        let specs = opened.toolset.specs();
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

/// All results, or what ends the run. Children that ran at the same time may each wait for approvals: all are named.
fn together(results: impl Iterator<Item = Result<CallResult, Ending>>) -> Result<Vec<CallResult>, Ending> {
    let (mut finished, mut waiting) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(result) => finished.push(result),
            Err(Ending::NeedsApproval(pending)) => waiting.extend(pending),
            Err(ending) => return Err(ending),
        }
    }
    // The others are asked when these are answered and the run goes on.
    waiting.truncate(MOST_OPEN_QUESTIONS);
    if waiting.is_empty() { Ok(finished) } else { Err(Ending::NeedsApproval(waiting)) }
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

    /// A call of an agent tells of itself.
    fn tell_called(&self, call: &ToolCall, arguments: &RawJson, node: Option<&CodeCaller>, events: &Events) {
        if self.kind != ToolKind::Agent {
            let (id, tool, calls_as) = (&call.id, &call.tool, node.map(|node| node.call));
            events.send(|| EventKind::ToolCalled {
                id: id.clone(),
                tool: tool.clone(),
                arguments: arguments.clone(),
                calls_as,
            });
        }
    }

    /// Code calls as somebody of its own.
    fn node(&self, tool: &str, cx: &CallContext<'_>) -> Option<CodeCaller> {
        (self.kind == ToolKind::Code).then(|| CodeCaller::of(tool, cx))
    }

    fn tell_returned(&self, call: &ToolCall, ran: Result<&CallRecord, &Ending>, events: &Events) {
        if self.kind != ToolKind::Agent {
            events.send(|| {
                let (returned, duration_ms) = match ran {
                    Ok(ran) => (ran.gave.returned(), ran.duration_ms),
                    Err(ending) => (ToolReturn::Error(ending.to_string()), 0),
                };
                EventKind::ToolReturned { id: call.id.clone(), tool: call.tool.clone(), returned, duration_ms }
            });
        }
    }
}

/// What identifies a call: what the model asked for, whatever a person made of it.
fn request_of(call: &ToolCall) -> RawJson {
    match &call.arguments {
        Arguments::Object(arguments) => RawJson::of(&(&call.tool, arguments)),
        Arguments::Malformed(text) => RawJson::of(&(&call.tool, text)),
    }
}

/// A call of which nobody knows whether it happened, as a journal keeps it for whoever finds out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InDoubt {
    /// The agents from the entry down.
    pub path: Vec<String>,
    /// The tool that was called.
    pub tool: String,
    /// What it was called with.
    pub arguments: RawJson,
}

/// What is recorded of a call.
#[derive(Serialize, Deserialize)]
struct CallRecord {
    gave: CallOutcome,
    duration_ms: u64,
    /// The arguments to which a person changed the call's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edited: Option<RawJson>,
    /// What was told until it was decided.
    #[serde(default, skip_serializing_if = "EventLog::is_empty")]
    decided: EventLog,
}

/// Everything of a call's end that the loop goes on with.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallOutcome {
    Content(Vec<Content>),
    Failed(String),
    /// It reached no tool.
    Refused(String),
    Changed,
}

impl CallRecord {
    /// The one door from a tool to the conversation, the events and the journal: no key passes it.
    fn of(outcome: Result<Vec<Content>, ToolError>, started: Instant, redactor: &Redactor) -> Result<Self, Ending> {
        let gave = match outcome {
            Ok(content) => CallOutcome::Content(cut(without_keys(content, redactor))),
            Err(ToolError::Failed(reason)) => CallOutcome::Failed(cut_text(redactor.redacted(reason))),
            Err(ToolError::Changed) => CallOutcome::Changed,
            Err(ToolError::Ends(ending)) => return Err(ending),
        };
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Self { duration_ms, ..Self::at_once(gave) })
    }

    /// The run ended during the call.
    fn interrupted() -> Self {
        Self::at_once(CallOutcome::Failed("interrupted: it may or may not have happened".to_owned()))
    }

    fn refused(reason: String, decided: EventLog) -> Self {
        Self { decided, ..Self::at_once(CallOutcome::Refused(reason)) }
    }

    fn at_once(gave: CallOutcome) -> Self {
        Self { gave, duration_ms: 0, edited: None, decided: EventLog::default() }
    }
}

impl CallOutcome {
    fn returned(&self) -> ToolReturn {
        match self {
            // Only a value is read in another way than it was given.
            Self::Content(content) if content.iter().any(|part| matches!(part, Content::Value { .. })) => {
                let read: Vec<Content> = content.iter().cloned().map(as_read).collect();
                ToolReturn::Result(Content::shown(&read))
            }
            Self::Content(content) => ToolReturn::Result(Content::shown(content)),
            Self::Failed(reason) | Self::Refused(reason) => ToolReturn::Error(reason.clone()),
            Self::Changed => ToolReturn::Error(ToolError::Changed.to_string()),
        }
    }
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
        // A key that was no JSON text leaves no JSON behind.
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

/// What a model reads.
fn as_read(part: Content) -> Content {
    match part {
        Content::Value { json } => Content::Text { text: cut_text(json) },
        read @ (Content::Text { .. } | Content::Attachment(_)) => read,
    }
}

fn cut_text(text: String) -> String {
    // A character has at least one byte: most texts need not be counted.
    if text.len() <= LONGEST_RESULT {
        return text;
    }
    let Some((end, _)) = text.char_indices().nth(LONGEST_RESULT) else { return text };
    let left_out = text[end..].chars().count();
    format!("{}\n[cut: {left_out} more characters; ask for less, or for a part]", &text[..end])
}
