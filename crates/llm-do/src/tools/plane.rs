//! Every tool that one call of an agent can reach, behind one gate. The only way to a tool.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::agent::AgentTool;
use super::approval::{Candidate, Gate, Passage, Pending, PermittedCall, RefusedBy, Rules, Verdict, canonical, digest};
use super::source::ToolsetSource;
use super::{CallContext, Ending, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
use crate::event::{EventKind, Events, Returned};
use crate::journal::StepKind;
use crate::message::{Arguments, Content, RawJson, ToolCall, ToolResult};

/// A live toolset as one agent uses it.
pub struct OpenToolset {
    pub name: String,
    /// What its definition is: approvals are for this and no other.
    pub definition: String,
    pub toolset: Box<dyn Toolset>,
    pub rules: Rules,
}

/// All tools of one call.
pub struct ToolPlane {
    open: Vec<OpenToolset>,
    index: HashMap<String, Slot>,
    gate: Arc<Gate>,
    refusals: Refusals,
    /// What code met that ends the run: it cannot be caught and forgotten.
    raised: Mutex<Option<Ending>>,
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

/// Results longer than this are cut.
const LONGEST_RESULT: usize = 60_000;
/// How often a call is asked again because its target changed while it waited.
const MOST_QUESTIONS: usize = 3;

/// A call after its decision.
enum Decided<'a> {
    Permitted {
        slot: &'a Slot,
        permitted: PermittedCall,
        edited: bool,
    },
    /// The model reads why not.
    Not(String),
}

impl ToolPlane {
    /// Two tools of one name are an error that names both toolsets, and all of them are closed again.
    pub async fn open(
        open: Vec<OpenToolset>,
        gate: Arc<Gate>,
        refusals: Refusals,
        events: &Events,
    ) -> Result<Self, String> {
        match indexed(&open) {
            Ok(index) => Ok(Self { open, index, gate, refusals, raised: Mutex::default() }),
            Err(reason) => {
                close(open, events).await;
                Err(reason)
            }
        }
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

    pub fn has(&self, tool: &str) -> bool {
        self.index.contains_key(tool)
    }

    /// A call that code starts. Its place in the call tree is what it asks for, since code may start calls in any order.
    pub async fn call_by_name(
        &self,
        tool: &str,
        arguments: &RawJson,
        cx: &CallContext<'_>,
    ) -> Result<Vec<Content>, ToolError> {
        let id = format!("x{}", &digest([tool, &canonical(arguments)])[..12]);
        let arguments = Arguments::Object(arguments.clone());
        let call = ToolCall { id: id.clone(), tool: tool.to_owned(), arguments, private: None };
        let inner = CallContext { steps: cx.steps.at(format_args!("{id}")), ..*cx };
        // Boxed: a tool may call a tool that calls a tool.
        let results = Box::pin(self.run(&[&call], &inner)).await.map_err(ToolError::Ends)?;
        let result = results.into_iter().next().map(|result| result.outcome);
        result.unwrap_or_else(|| Err("the call gave no result".to_owned())).map_err(ToolError::Failed)
    }

    /// A call of an agent that code starts by name: through the gate, whether or not it is a tool of the caller.
    pub async fn call_agent(
        &self,
        tool: AgentTool,
        input: &RawJson,
        cx: &CallContext<'_>,
    ) -> Result<Vec<Content>, ToolError> {
        let name = tool.name.clone();
        if self.index.get(&name).is_some_and(|slot| slot.kind == ToolKind::Agent) {
            return self.call_by_name(&name, input, cx).await;
        }
        let definition = format!("{:?}", ToolsetSource::Agent(name.clone()));
        let alone = OpenToolset { name: name.clone(), definition, toolset: Box::new(tool), rules: Rules::new() };
        let (gate, refusals) = (Arc::clone(&self.gate), self.refusals);
        let plane = Self::open(vec![alone], gate, refusals, cx.events).await.map_err(ToolError::Failed)?;
        plane.call_by_name(&name, input, cx).await
    }

    /// What code met that ends the run, if it did.
    pub fn ending(&self) -> Option<Ending> {
        self.raised().take()
    }

    /// Runs the calls of one reply: all are decided first, in order; then the permitted ones run at the same time.
    /// Results come in call order. If one must wait for an approval that nobody can give, none runs.
    pub async fn run(&self, calls: &[&ToolCall], cx: &CallContext<'_>) -> Result<Vec<ToolResult>, Ending> {
        let mut decided = Vec::with_capacity(calls.len());
        let mut pending = Vec::new();
        for (position, call) in calls.iter().enumerate() {
            match self.decide(call, position, cx).await? {
                Ok(decision) => decided.push(decision),
                Err(waits) => pending.push(waits),
            }
        }
        if !pending.is_empty() {
            return Err(Ending::NeedsApproval(pending));
        }
        let running =
            calls.iter().zip(decided).enumerate().map(|(position, (call, decided))| (position, *call, decided));
        let (sequential, concurrent): (Vec<_>, Vec<_>) = running.partition(|(_, _, decided)| match decided {
            Decided::Permitted { slot, .. } => slot.order == Order::Sequential,
            Decided::Not(_) => false,
        });
        let in_order = async {
            let mut results = Vec::with_capacity(sequential.len());
            for (position, call, decided) in sequential {
                results.push((position, self.result(position, call, decided, cx).await));
            }
            results
        };
        let at_once = join_all(concurrent.into_iter().map(|(position, call, decided)| async move {
            (position, self.result(position, call, decided, cx).await)
        }));
        let (mut results, more) = tokio::join!(at_once, in_order);
        results.extend(more);
        results.sort_by_key(|(position, _)| *position);
        together(results.into_iter().map(|(_, result)| result))
    }

    /// What becomes of one call before anything runs; the inner error is a question that nobody could answer.
    async fn decide<'a>(
        &'a self,
        call: &ToolCall,
        position: usize,
        cx: &CallContext<'_>,
    ) -> Result<Result<Decided<'a>, Pending>, Ending> {
        let arguments = match &call.arguments {
            Arguments::Object(arguments) => arguments,
            Arguments::Malformed(text) => {
                let shown = crate::escape::visible_start(text, 200);
                return Ok(Ok(Decided::Not(format!("the arguments are not a JSON object: {shown}"))));
            }
        };
        let Some((slot, judged)) = self.judge(&call.tool, arguments, cx).await else {
            return Ok(Ok(Decided::Not(self.unknown(&call.tool))));
        };
        let verdict = match judged {
            Ok(verdict) => verdict,
            Err(violation) => return Ok(Ok(Decided::Not(format!("invalid arguments: {violation}")))),
        };
        match self.pass(call, arguments, verdict, position, cx).await {
            Passage::Permitted { call: permitted, edited } => Ok(Ok(Decided::Permitted { slot, permitted, edited })),
            Passage::Waits(pending) => match self.refusals {
                Refusals::EndRun => Ok(Err(pending)),
                Refusals::Return => {
                    let reason = "it needs an approval, and nobody is there to give it".to_owned();
                    Ok(Ok(refused(call, arguments, reason, cx)))
                }
            },
            Passage::EndRun => Err(Ending::EndedByPerson),
            Passage::Refused { reason, by } => {
                let decided = refused(call, arguments, reason.clone(), cx);
                match (by, self.refusals) {
                    (RefusedBy::Person, _) | (RefusedBy::Policy, Refusals::Return) => Ok(Ok(decided)),
                    (RefusedBy::Policy, Refusals::EndRun) => {
                        Err(Ending::Refused { path: cx.path.to_vec(), tool: call.tool.clone(), reason })
                    }
                }
            }
        }
    }

    async fn pass(
        &self,
        call: &ToolCall,
        arguments: &RawJson,
        verdict: Verdict,
        position: usize,
        cx: &CallContext<'_>,
    ) -> Passage {
        let key = format!("{}/c{position}", cx.steps.path());
        let candidate = Candidate {
            tool: &call.tool,
            arguments,
            toolset: self.index.get(&call.tool).map_or("", |slot| &self.open[slot.toolset].definition),
            path: cx.path,
            key: &key,
        };
        let judge = |edited: RawJson| async move {
            match self.judge(&call.tool, &edited, cx).await {
                Some((_, verdict)) => verdict,
                None => Err(self.unknown(&call.tool)),
            }
        };
        self.gate.pass(candidate, verdict, judge, cx.events).await
    }

    /// The toolset's verdict under the agent's rules; `None` if there is no such tool.
    async fn judge<'a>(
        &'a self,
        tool: &str,
        arguments: &RawJson,
        cx: &CallContext<'_>,
    ) -> Option<(&'a Slot, Result<Verdict, String>)> {
        let slot = self.index.get(tool)?;
        let opened = &self.open[slot.toolset];
        let verdict = opened.toolset.judge(tool, arguments, cx).await;
        Some((slot, verdict.map(|verdict| verdict.under(opened.rules.get(tool).copied()))))
    }

    fn unknown(&self, tool: &str) -> String {
        let mut names: Vec<&str> = self.index.keys().map(String::as_str).collect();
        names.sort_unstable();
        let there_are =
            if names.is_empty() { "there are no tools".to_owned() } else { format!("tools: {}", names.join(", ")) };
        format!("there is no tool `{}`; {there_are}", crate::escape::visible_start(tool, 80))
    }

    /// A write whose target changed since it was shown is decided again.
    async fn result<'a>(
        &'a self,
        position: usize,
        call: &ToolCall,
        mut decided: Decided<'a>,
        cx: &CallContext<'_>,
    ) -> Result<ToolResult, Ending> {
        let mut outcome = Err("its target keeps changing".to_owned());
        for attempt in 0..MOST_QUESTIONS {
            let (slot, permitted, edited) = match decided {
                Decided::Permitted { slot, permitted, edited } => (slot, permitted, edited),
                Decided::Not(reason) => {
                    outcome = Err(reason);
                    break;
                }
            };
            let note = edited.then(|| format!("(the user changed the arguments to {})", permitted.arguments().get()));
            let steps = cx.steps.at(format_args!("c{position}.{attempt}"));
            match self.call(call, slot, permitted, CallContext { steps, ..*cx }).await {
                Ok(content) => {
                    outcome = Ok(note.map(Content::text).into_iter().chain(content).collect());
                    break;
                }
                Err(ToolError::Failed(reason)) => {
                    outcome = Err(reason);
                    break;
                }
                Err(ToolError::Ends(ending)) => return Err(ending),
                Err(ToolError::Changed) => {
                    decided =
                        self.decide(call, position, cx).await?.map_err(|waits| Ending::NeedsApproval(vec![waits]))?;
                }
            }
        }
        Ok(ToolResult { id: call.id.clone(), tool: call.tool.clone(), outcome: outcome.map(cut) })
    }

    /// Runs one permitted call as a step, and tells of it.
    async fn call(
        &self,
        call: &ToolCall,
        slot: &Slot,
        permitted: PermittedCall,
        cx: CallContext<'_>,
    ) -> Result<Vec<Content>, ToolError> {
        let (id, tool, arguments) = (&call.id, &call.tool, permitted.arguments().clone());
        let started = Instant::now();
        let step = match slot.kind {
            ToolKind::Agent => StepKind::Call,
            ToolKind::Leaf => {
                let (id, tool, arguments) = (id.clone(), tool.clone(), arguments.clone());
                cx.events.send(|| EventKind::ToolCalled { id, tool, arguments });
                StepKind::Tool
            }
        };
        let interrupted = Recorded::Failed("interrupted: it may have happened".to_owned());
        let interrupted = (slot.repeat == Repeat::Once).then_some(&interrupted);
        let effect = async {
            let outcome = guarded(self.open[slot.toolset].toolset.call(permitted, &cx)).await;
            match self.ending() {
                Some(ending) => Err(ending),
                None => Recorded::of(outcome),
            }
        };
        let outcome = match cx.steps.run(step, &(tool, &arguments), interrupted, effect).await {
            Ok(Recorded::Content(content)) => Ok(content),
            Ok(Recorded::Failed(reason)) => Err(ToolError::Failed(reason)),
            Ok(Recorded::Changed) => Err(ToolError::Changed),
            Err(ending) => Err(ToolError::Ends(ending)),
        };
        if slot.kind == ToolKind::Leaf {
            let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let (id, tool) = (id.clone(), tool.clone());
            cx.events.send(|| EventKind::ToolReturned { id, tool, returned: returned(&outcome), duration_ms });
        }
        outcome
    }

    pub async fn close(self, events: &Events) {
        close(self.open, events).await;
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

/// Where each tool is.
fn indexed(open: &[OpenToolset]) -> Result<HashMap<String, Slot>, String> {
    let mut index: HashMap<String, Slot> = HashMap::new();
    for (toolset, opened) in open.iter().enumerate() {
        for ToolSpec { name, kind, order, repeat, .. } in opened.toolset.specs() {
            if let Some(other) = index.get(&name) {
                let other = &open[other.toolset].name;
                return Err(format!("`{other}` and `{}` both have a tool `{name}`", opened.name));
            }
            index.insert(name, Slot { toolset, kind, order, repeat });
        }
    }
    Ok(index)
}

/// Tells of a refusal; what the model reads of it.
fn refused<'a>(call: &ToolCall, arguments: &RawJson, reason: String, cx: &CallContext<'_>) -> Decided<'a> {
    let decided = Decided::Not(format!("refused: {reason}"));
    let (id, tool, arguments) = (call.id.clone(), call.tool.clone(), arguments.clone());
    cx.events.send(|| EventKind::ToolRefused { id, tool, arguments, reason });
    decided
}

/// All results, or what ends the run. Children that ran at the same time may each wait for approvals: all are named.
fn together(results: impl Iterator<Item = Result<ToolResult, Ending>>) -> Result<Vec<ToolResult>, Ending> {
    let (mut finished, mut waiting) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(result) => finished.push(result),
            Err(Ending::NeedsApproval(pending)) => waiting.extend(pending),
            Err(ending) => return Err(ending),
        }
    }
    if waiting.is_empty() { Ok(finished) } else { Err(Ending::NeedsApproval(waiting)) }
}

/// What is recorded of a call: everything that the loop goes on with.
#[derive(Serialize, Deserialize)]
enum Recorded {
    Content(Vec<Content>),
    Failed(String),
    Changed,
}

impl Recorded {
    fn of(outcome: Result<Vec<Content>, ToolError>) -> Result<Self, Ending> {
        match outcome {
            Ok(content) => Ok(Self::Content(content)),
            Err(ToolError::Failed(reason)) => Ok(Self::Failed(reason)),
            Err(ToolError::Changed) => Ok(Self::Changed),
            Err(ToolError::Ends(ending)) => Err(ending),
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

fn returned(outcome: &Result<Vec<Content>, ToolError>) -> Returned {
    match outcome {
        Ok(content) => Returned::Result(match content.as_slice() {
            [Content::Text { text }] => RawJson::of(text),
            content => RawJson::of(&Content::shown(content)),
        }),
        Err(error) => Returned::Error(error.to_string()),
    }
}

/// Long texts are cut, with a mark that says so.
fn cut(content: Vec<Content>) -> Vec<Content> {
    let cut_part = |part| match part {
        // A character has at least one byte: most texts need not be counted.
        Content::Text { text } if text.len() <= LONGEST_RESULT => Content::Text { text },
        Content::Text { text } => match text.char_indices().nth(LONGEST_RESULT) {
            None => Content::Text { text },
            Some((end, _)) => {
                let left_out = text[end..].chars().count();
                let kept = &text[..end];
                Content::text(format!("{kept}\n[cut: {left_out} more characters; ask for less, or for a part]"))
            }
        },
        attachment @ Content::Attachment(_) => attachment,
    };
    content.into_iter().map(cut_part).collect()
}
