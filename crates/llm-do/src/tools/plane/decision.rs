//! What becomes of the calls of a reply before any of them runs.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{TryFutureExt, poll_immediate, try_join_all};

use super::{Refusals, Slot, ToolPlane, retell};
use crate::escape::visible_start;
use crate::event::{Derivation, LogPart, StepOrigin, ToldLog};
use crate::journal::call::{self, CallOutcome, CallRecord, REFUSED, is_of_reply, request_of};
use crate::journal::{Prior, StepKind, StepRecord, Steps, Suspension};
use crate::message::{Arguments, RawJson, ToolCall, repeated_key};
use crate::syntax::names;
use crate::tools::approval::{
    Candidate, GateOutcome, GatePassage, JudgementRecord, PendingQuestion, Permission, RefusedBy, Ruling,
};
use crate::tools::policy::RuledCall;
use crate::tools::{CallContext, Ending, ToolKind};

/// What becomes of a call.
pub(super) enum DecisionOutcome {
    /// It runs; with what was told until it was decided.
    Run(Permission, Deliberation),
    /// The model reads why not; with what was told.
    Not(String, Deliberation),
    /// The record has its result, so there is nothing to decide.
    Recorded,
}

/// What was told until a call was decided; it is recorded with the call.
#[derive(Default)]
pub(super) struct Deliberation {
    pub log: ToldLog,
    /// How it was judged, if that is recorded.
    pub judged: Option<Box<JudgementRecord>>,
    /// The place whose record will have it, if there will be one.
    pub origin: Option<Arc<StepOrigin>>,
}

/// What is decided about a call, and what will be written down of how.
type JudgedDecision = (CallDecision, Option<Box<JudgementRecord>>);

/// What the gate says of a call.
enum CallDecision {
    Run(Permission),
    /// The model reads why.
    Refuse(String),
    /// No approver could answer the question, and it can be answered later.
    Wait(PendingQuestion),
}

/// People who have to agree to longer ones do not read them.
const LONGEST_ARGUMENTS: usize = 1024 * 1024;

/// Where a call stands among those of its reply, and how often it was decided.
#[derive(Clone, Copy)]
pub(crate) struct CallPosition {
    pub position: usize,
    pub attempt: usize,
}

impl fmt::Display for CallPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            0 => write!(f, "c{}", self.position),
            attempt => write!(f, "c{}.{attempt}", self.position),
        }
    }
}

impl ToolPlane {
    /// Decides all calls of a reply, and opens all their questions together: none of the calls runs before every one of
    /// them is decided. A call that has a result is not judged again: a toolset looks at the
    /// world, and the call has changed it. All others are, whatever was decided about them in another process.
    pub(super) async fn decide_all(
        &self,
        calls: &[&ToolCall],
        first_rank: u64,
        cx: &CallContext<'_>,
    ) -> Result<Vec<DecisionOutcome>, Ending> {
        let rank = |position: usize| first_rank + position as u64;
        // Most replies have one call, which needs no room for others.
        if let [call] = calls {
            let decision = self.decision_at(0, call, rank(0), cx).await?;
            return decision.map(|decided| vec![decided]).map_err(Ending::NeedsApproval);
        }
        let (mut decisions, mut waiting) = (Vec::with_capacity(calls.len()), Vec::new());
        for (position, call) in calls.iter().enumerate() {
            // Nearly every call is decided at once; what is not is boxed already, and waits beside the others.
            let mut deciding = Box::pin(self.decision_at(position, call, rank(position), cx));
            match poll_immediate(&mut deciding).await {
                Some(decision) => decisions.push((position, decision?)),
                None => waiting.push(deciding.map_ok(move |decision| (position, decision))),
            }
        }
        decisions.extend(try_join_all(waiting).await?);
        decisions.sort_unstable_by_key(|(position, _)| *position);
        let (mut decided, mut pending) = (Vec::with_capacity(calls.len()), Vec::new());
        for (_, decision) in decisions {
            match decision {
                Ok(decision) => decided.push(decision),
                Err(waits) => pending.extend(waits),
            }
        }
        if pending.is_empty() { Ok(decided) } else { Err(Ending::NeedsApproval(pending)) }
    }

    /// Decides one call of a reply, or says what it waits for.
    async fn decision_at(
        &self,
        position: usize,
        call: &ToolCall,
        rank: u64,
        cx: &CallContext<'_>,
    ) -> Result<Result<DecisionOutcome, Vec<PendingQuestion>>, Ending> {
        let events = cx.events.ranked(rank);
        let cx = CallContext { events: &events, steps: cx.steps.clone(), ..*cx };
        match self.decide_again(call, CallPosition { position, attempt: 0 }, &cx).await {
            Ok(decision) => Ok(Ok(decision)),
            Err(Ending::NeedsApproval(waits)) => Ok(Err(waits)),
            Err(ending) => Err(ending),
        }
    }

    /// Decides one call.
    pub(super) async fn decide_again(
        &self,
        call: &ToolCall,
        place: CallPosition,
        cx: &CallContext<'_>,
    ) -> Result<DecisionOutcome, Ending> {
        let slot = self.slot(&call.tool).unwrap_or(&Slot::GONE);
        let steps = cx.steps.at(format_args!("{place}"));
        match steps.prior(StepKind::Tool, || request_of(call)) {
            Prior::Nothing | Prior::Asked(_) => {}
            Prior::Begun if !slot.is_once() => {}
            Prior::Replayed(result) if slot.kind == ToolKind::Agent => return replayed(result, &steps, cx),
            Prior::Begun | Prior::Done | Prior::Replayed(_) => return Ok(DecisionOutcome::Recorded),
        }
        let telling = steps.telling_part(cx.events, LogPart::Decided);
        let inner = CallContext { events: &telling, steps: cx.steps.clone(), ..*cx };
        let (decision, judged) = self.decide_one(call, place, &inner).await?;
        let log = if steps.is_recorded() { telling.told(|_| None) } else { ToldLog::default() };
        let decided = Deliberation { log, judged, origin: telling.origin().cloned() };
        match decision {
            CallDecision::Run(permission) => Ok(DecisionOutcome::Run(permission, decided)),
            CallDecision::Refuse(reason) => Ok(DecisionOutcome::Not(reason, decided)),
            CallDecision::Wait(pending) => Err(Ending::NeedsApproval(vec![pending])),
        }
    }

    /// What becomes of one call before anything runs.
    async fn decide_one(
        &self,
        call: &ToolCall,
        place: CallPosition,
        cx: &CallContext<'_>,
    ) -> Result<JudgedDecision, Ending> {
        let arguments = match &call.arguments {
            Arguments::Object(arguments) => arguments,
            Arguments::Malformed(text) => {
                let reason = match repeated_key(text) {
                    Some(key) => format!("the arguments have the key `{}` twice", visible_start(&key, 80)),
                    None => format!("the arguments are not a JSON object: {}", visible_start(text, 200)),
                };
                return Ok((undispatched(call, &call.arguments, reason, cx), None));
            }
        };
        if arguments.get().len() > LONGEST_ARGUMENTS {
            let reason =
                format!("the arguments are longer than {} MiB; do it in several calls", LONGEST_ARGUMENTS >> 20);
            let beginning = Arguments::Malformed(visible_start(arguments.get(), 200).into_owned());
            return Ok((undispatched(call, &beginning, reason, cx), None));
        }
        let Some(judged) = self.judge(&call.tool, arguments, cx).await else {
            return Ok((undispatched(call, &call.arguments, self.unknown(&call.tool), cx), None));
        };
        let ruling = match judged {
            Ok(ruling) => ruling,
            Err(violation) => {
                let reason = format!("invalid arguments: {violation}");
                return Ok((undispatched(call, &call.arguments, reason, cx), None));
            }
        };
        let GatePassage { outcome, record } = self.pass(call, arguments, ruling, place, cx).await?;
        let decided = match outcome {
            GateOutcome::Permitted(permission) => CallDecision::Run(permission),
            GateOutcome::Waits(pending) => self.unanswered(call, pending, cx)?,
            GateOutcome::EndRun => return Err(Ending::EndedByPerson),
            GateOutcome::Refused { reason, by } => {
                let decided = refused(call, reason.clone(), cx);
                match (by, self.refusals) {
                    (RefusedBy::Person, _) | (RefusedBy::Policy, Refusals::Return) => decided,
                    (RefusedBy::Policy, Refusals::EndRun) => return Err(ended_by(call, reason, cx)),
                }
            }
        };
        Ok((decided, record))
    }

    /// Without an approver: it waits if it can, whatever refusals do; else it is refused.
    fn unanswered(
        &self,
        call: &ToolCall,
        pending: PendingQuestion,
        cx: &CallContext<'_>,
    ) -> Result<CallDecision, Ending> {
        let needs = if pending.form.is_some() { "an answer" } else { "an approval" };
        let reason = match (cx.steps.suspension(), self.refusals) {
            (Suspension::Possible, _) | (Suspension::Unrecorded, Refusals::EndRun) => {
                return Ok(CallDecision::Wait(pending));
            }
            (Suspension::Unrecorded, Refusals::Return) => format!("it needs {needs}, and nobody is there to give it"),
            (Suspension::WithinOnce, _) => format!(
                "it needs {needs}, nobody is there to give it, and the code that asks cannot be continued later"
            ),
        };
        match self.refusals {
            Refusals::Return => Ok(refused(call, reason, cx)),
            Refusals::EndRun => Err(ended_by(call, reason, cx)),
        }
    }

    async fn pass(
        &self,
        call: &ToolCall,
        arguments: &RawJson,
        ruling: Ruling,
        place: CallPosition,
        cx: &CallContext<'_>,
    ) -> Result<GatePassage, Ending> {
        let key = || format!("{}/{place}", cx.steps.path());
        let candidate = Candidate {
            tool: &call.tool,
            arguments,
            toolset: self.slot(&call.tool).map_or(&"", |slot| &*self.open[slot.toolset].definition),
            agent: cx.agent,
            path: cx.path,
            key: &key,
        };
        let judge = |edited: RawJson| async move {
            let judged = self.judge(&call.tool, &edited, cx).await;
            judged.unwrap_or_else(|| Err(self.unknown(&call.tool)))
        };
        let steps = cx.steps.at(format_args!("{place}"));
        Ok(self.gate.pass(candidate, ruling, judge, &steps, cx.events).await?)
    }

    /// The toolset's verdict under all rules; `None` if there is no such tool.
    async fn judge(&self, tool: &str, arguments: &RawJson, cx: &CallContext<'_>) -> Option<Result<Ruling, String>> {
        let opened = &self.open[self.slot(tool)?.toolset];
        let judged = opened.toolset.judge(tool, arguments, cx).await;
        Some(judged.map(|judgement| {
            let mut judgement = judgement.ruled(opened.rules.get(tool).copied());
            let rules = self.gate.rules();
            if !rules.is_empty() {
                let subject = judgement.about.as_ref();
                let call = RuledCall { tool, path: cx.path, arguments: Some(arguments), subject };
                judgement.voices = rules.voices(call, judgement.voices.clone());
            }
            let ruling = if cx.steps.is_recorded() {
                Ruling::recorded(judgement, cx.events.redactor())
            } else {
                Ruling::of(judgement)
            };
            ruling.naming_rule(tool, &opened.places)
        }))
    }

    /// What would become of a call, and why; nothing of it runs.
    #[cfg(feature = "front-end")]
    pub(crate) async fn explain(
        &self,
        tool: &str,
        arguments: &RawJson,
        mode: crate::tools::approval::ApprovalMode,
        cx: &CallContext<'_>,
    ) -> Result<crate::tools::policy::Explanation, String> {
        let ruling = self.judge(tool, arguments, cx).await.unwrap_or_else(|| Err(self.unknown(tool)))?;
        Ok(crate::tools::policy::Explanation::of(ruling.own, &ruling.voices, mode))
    }

    pub(super) fn unknown(&self, tool: &str) -> String {
        let shown = visible_start(tool, 80);
        let instead = names::instead(&shown, "tools", self.index.iter().map(|(name, _)| name.as_str()));
        format!("there is no tool `{shown}`; {instead}")
    }
}

/// A call of an agent in a run that is only replayed: its own steps come from the record, so that nothing runs.
fn replayed(result: Option<RawJson>, steps: &Steps, cx: &CallContext<'_>) -> Result<DecisionOutcome, Ending> {
    let recorded = result.and_then(|result| result.to::<StepRecord<CallRecord>>().ok()).map(|recorded| recorded.value);
    let Some(recorded) = recorded else {
        return Ok(DecisionOutcome::Run(Permission::replayed(None), Deliberation::default()));
    };
    retell(&recorded, steps, cx.events)?;
    Ok(match recorded.gave {
        CallOutcome::Refused(reason) => DecisionOutcome::Not(reason, Deliberation::default()),
        CallOutcome::Content(_) | CallOutcome::Failed(_) | CallOutcome::Changed | CallOutcome::Said(_) => {
            DecisionOutcome::Run(Permission::replayed(recorded.edited), Deliberation::default())
        }
    })
}

/// Tells of a refusal; what the model reads of it.
fn refused(call: &ToolCall, reason: String, cx: &CallContext<'_>) -> CallDecision {
    let read = format!("{REFUSED}{reason}");
    tell_refused(call, &call.arguments, reason, true, cx);
    CallDecision::Refuse(read)
}

/// Tells of a call that reaches no tool: what a model tried is as good to know as what it did.
fn undispatched(call: &ToolCall, arguments: &Arguments, reason: String, cx: &CallContext<'_>) -> CallDecision {
    let decided = CallDecision::Refuse(reason.clone());
    tell_refused(call, arguments, reason, false, cx);
    decided
}

/// `judged`: by a rule or a person.
fn tell_refused(call: &ToolCall, arguments: &Arguments, reason: String, judged: bool, cx: &CallContext<'_>) {
    // Only what was judged as the model wrote it follows from the reply.
    let origin = cx.events.origin().filter(|_| *arguments == call.arguments && is_call_of_reply(cx));
    let path = || cx.path.to_vec();
    cx.events.send_of(
        origin,
        || Derivation::Refused(path(), judged),
        || call::refused(call, arguments, path(), reason, judged),
    );
}

/// Whether a model asked for the calls that are decided here, and not code.
fn is_call_of_reply(cx: &CallContext<'_>) -> bool {
    cx.steps.is_recorded() && is_of_reply(&format!("{}/c0", cx.steps.path()))
}

fn ended_by(call: &ToolCall, reason: String, cx: &CallContext<'_>) -> Ending {
    Ending::Refused { path: cx.path.to_vec(), tool: call.tool.clone(), reason }
}
