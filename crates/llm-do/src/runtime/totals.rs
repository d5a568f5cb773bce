//! What a session adds up: usage and trace, as folds over its events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::{
    AgentSpending, CallEnd, CallKind, CallOutput, Event, EventKind, Recorder, Refusal, ToolReturn, TraceCall,
    UsageReport,
};
use crate::message::{RawJson, Usage};

/// Records events; cheap to share.
#[derive(Debug, Default)]
pub(crate) struct RunTotals(Mutex<TotalsState>);

#[derive(Debug, Default)]
struct TotalsState {
    usage: UsageReport,
    /// The same, by the agents that asked. There are few of them.
    spending: Vec<AgentSpending>,
    refused: Vec<Refusal>,
    /// Calls that are still open, by their ids. Boxed, as rising keys leave half of every node empty.
    open: BTreeMap<u64, Box<OpenTrace>>,
    /// Tools that are still running, by call and id.
    tools: BTreeMap<(u64, String), ToolTrace>,
    /// Calls without a caller, by their ids, in the order of their ends.
    finished: Vec<(u64, Arc<TraceCall>)>,
}

#[derive(Debug)]
struct OpenTrace {
    /// The call that made it.
    parent: Option<u64>,
    rank: u64,
    call: TraceCall,
    /// Of the calls that it made.
    ranks: Vec<u64>,
}

#[derive(Debug)]
enum ToolTrace {
    Tool(Box<TraceCall>, u64),
    /// Code is an open call.
    Code(u64),
}

impl RunTotals {
    pub(crate) fn usage(&self) -> UsageReport {
        self.state().usage.clone()
    }

    /// Of that, the sum, and the sum of what was not asked again.
    #[cfg(feature = "front-end")]
    pub(crate) fn sums(&self) -> (Usage, Usage) {
        let state = self.state();
        (state.usage.total, state.usage.saved)
    }

    /// What each agent used of each model so far.
    pub(crate) fn spending(&self) -> Vec<AgentSpending> {
        self.state().spending.clone()
    }

    /// Adds what another run took, without what of it was counted here before.
    #[cfg(feature = "front-end")]
    pub(crate) fn add(&self, spending: &[AgentSpending], counted: &[AgentSpending]) {
        let mut state = self.state();
        for AgentSpending { agent, model, usage } in spending {
            let before = counted.iter().find(|before| before.agent == *agent && before.model == *model);
            let usage = before.map_or(*usage, |before| usage.minus(&before.usage));
            // What takes no request takes nothing.
            if usage.requests > 0 {
                state.add_usage(NO_CALL, agent, model, &usage);
            }
        }
    }

    /// Adds what another run did not ask again.
    #[cfg(feature = "front-end")]
    pub(crate) fn save(&self, saved: &Usage) {
        if !saved.is_nothing() {
            let mut state = self.state();
            state.usage.saved = state.usage.saved.plus(saved);
        }
    }

    /// Adds calls that were refused in another run.
    #[cfg(feature = "front-end")]
    pub(crate) fn refuse(&self, refused: Vec<Refusal>) {
        if !refused.is_empty() {
            self.state().refused.extend(refused);
        }
    }

    /// The calls that were refused so far, in order.
    pub(crate) fn refused(&self) -> Vec<Refusal> {
        self.state().refused.clone()
    }

    /// What one open call has used so far, nested calls included.
    pub(crate) fn usage_of(&self, call: u64) -> Usage {
        self.state().open.get(&call).map(|open| open.call.usage).unwrap_or_default()
    }

    /// What an open call has called so far, from this one on.
    pub(crate) fn calls_from(&self, call: u64, first: usize) -> Vec<TraceCall> {
        let state = self.state();
        state.open.get(&call).map(|open| open.call.calls.iter().skip(first).cloned().collect()).unwrap_or_default()
    }

    /// Finished calls, then open ones as far as they are.
    pub(crate) fn trace(&self) -> Vec<Arc<TraceCall>> {
        let state = self.state();
        let open = state.open.values().map(|open| Arc::new(open.call.clone()));
        state.finished.iter().map(|(_, call)| Arc::clone(call)).chain(open).collect()
    }

    /// One finished call without a caller.
    pub(crate) fn trace_of(&self, call: u64) -> Option<Arc<TraceCall>> {
        let state = self.state();
        state.finished.iter().rfind(|(id, _)| *id == call).map(|(_, call)| Arc::clone(call))
    }

    // A panic elsewhere does not make the sums wrong.
    fn state(&self) -> MutexGuard<'_, TotalsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of what no call of this run took.
#[cfg(feature = "front-end")]
const NO_CALL: u64 = u64::MAX;

impl Recorder for RunTotals {
    fn record(&self, event: Event, _: Option<&str>) {
        let Event { agent, depth, call: id, kind, rank } = event;
        let mut state = self.state();
        match kind {
            EventKind::CallStarted { name, kind, input, parent } => {
                let call = started(name, kind, depth, Some(input));
                state.open.insert(id, OpenTrace::of(parent, rank, call));
            }
            EventKind::CallFinished { ended, duration_ms, .. } => {
                if let Some(OpenTrace { parent, rank, mut call, .. }) = state.open.remove(&id).map(|open| *open) {
                    call.duration_ms = duration_ms;
                    match ended {
                        CallEnd::Output(output) => call.output = Some(output),
                        CallEnd::Error(error) => call.error = Some(error),
                    }
                    state.finish(id, parent, call, rank);
                }
            }
            EventKind::RequestFailed { usage, .. } if usage.requests == 0 => {}
            EventKind::RequestFinished { model, usage, .. } | EventKind::RequestFailed { model, usage, .. } => {
                state.add_usage(id, &agent, &model, &usage);
            }
            EventKind::CacheHit { saved, .. } => state.usage.saved = state.usage.saved.plus(&saved),
            EventKind::ToolCalled { id: tool_call, tool, arguments, calls_as } => {
                let call = started(tool, CallKind::Tool, depth, Some(arguments));
                let running = match calls_as {
                    Some(code) => {
                        state.open.insert(code, OpenTrace::of(Some(id), rank, call));
                        ToolTrace::Code(code)
                    }
                    None => ToolTrace::Tool(Box::new(call), rank),
                };
                state.tools.insert((id, tool_call), running);
            }
            EventKind::ToolReturned { id: tool_call, returned, duration_ms, .. } => {
                if let Some((mut call, rank)) = state.returned(id, tool_call) {
                    call.duration_ms = duration_ms;
                    match returned {
                        ToolReturn::Result(output) => call.output = Some(CallOutput::Text(output)),
                        ToolReturn::Error(error) => call.error = Some(error),
                    }
                    state.add_call(id, call, Some(rank));
                }
            }
            EventKind::ToolRefused { tool, arguments, arguments_text, reason, path, judged, .. } => {
                if judged {
                    state.refused.push(Refusal { path, tool: tool.clone(), reason: reason.clone() });
                }
                let input = arguments.or_else(|| arguments_text.map(|text| RawJson::of(&text)));
                let call = started(tool, CallKind::Tool, depth, input);
                state.add_call(id, TraceCall { error: Some(reason), ..call }, Some(rank));
            }
            EventKind::ServerToolUsed { tool, input, output } => {
                let call = started(tool, CallKind::ServerTool, depth, input);
                state.add_call(id, TraceCall { output: output.map(CallOutput::Json), ..call }, None);
            }
            EventKind::UserMessage { .. }
            | EventKind::TextDelta { .. }
            | EventKind::TextComplete { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::ApprovalAsked { .. }
            | EventKind::ApprovalAnswered { .. }
            | EventKind::RequestStarted { .. }
            | EventKind::RetryScheduled { .. }
            | EventKind::ModelSwitched { .. }
            | EventKind::LimitApproached { .. }
            | EventKind::LimitReached { .. }
            | EventKind::ToolProgressed { .. }
            | EventKind::ToolsetStarted { .. }
            | EventKind::ToolsetReady { .. }
            | EventKind::ToolsetFailed { .. }
            | EventKind::ToolsetCloseFailed { .. }
            | EventKind::ProcessOutput { .. }
            | EventKind::Notice { .. }
            | EventKind::RunFailed { .. } => {}
        }
    }
}

impl TotalsState {
    fn add_usage(&mut self, call: u64, agent: &Arc<str>, model: &str, usage: &Usage) {
        self.usage.total = self.usage.total.plus(usage);
        match self.spending.iter_mut().find(|known| known.agent == *agent && known.model == model) {
            Some(known) => known.usage = known.usage.plus(usage),
            None => {
                self.spending.push(AgentSpending { agent: Arc::clone(agent), model: model.to_owned(), usage: *usage });
            }
        }
        match self.usage.by_model.get_mut(model) {
            Some(known) => *known = known.plus(usage),
            None => {
                self.usage.by_model.insert(model.to_owned(), *usage);
            }
        }
        if let Some(OpenTrace { call, .. }) = self.open.get_mut(&call).map(AsMut::as_mut) {
            call.usage = call.usage.plus(usage);
        }
    }

    fn finish(&mut self, id: u64, parent: Option<u64>, call: TraceCall, rank: u64) {
        match parent.and_then(|parent| self.open.get_mut(&parent)) {
            None => self.finished.push((id, Arc::new(call))),
            Some(caller) => caller.add(call, Some(rank)),
        }
    }

    /// A tool that runs no longer, with what its code called.
    fn returned(&mut self, caller: u64, tool_call: String) -> Option<(TraceCall, u64)> {
        match self.tools.remove(&(caller, tool_call))? {
            ToolTrace::Tool(call, rank) => Some((*call, rank)),
            ToolTrace::Code(code) => self.open.remove(&code).map(|open| (open.call, open.rank)),
        }
    }

    fn add_call(&mut self, caller: u64, call: TraceCall, rank: Option<u64>) {
        if let Some(caller) = self.open.get_mut(&caller) {
            caller.add(call, rank);
        }
    }
}

impl OpenTrace {
    fn of(parent: Option<u64>, rank: u64, call: TraceCall) -> Box<Self> {
        Box::new(Self { parent, rank, call, ranks: Vec::new() })
    }

    /// A call's usage is also its caller's. One without a rank stands behind those before it.
    fn add(&mut self, call: TraceCall, rank: Option<u64>) {
        if call.usage.requests > 0 {
            self.call.usage = self.call.usage.plus(&call.usage);
        }
        let rank = rank.unwrap_or_else(|| self.ranks.last().copied().unwrap_or_default());
        let place = self.ranks.partition_point(|other| *other <= rank);
        self.ranks.insert(place, rank);
        self.call.calls.insert(place, call);
    }
}

fn started(name: String, kind: CallKind, depth: usize, input: Option<RawJson>) -> TraceCall {
    TraceCall {
        name,
        kind,
        depth,
        input,
        output: None,
        error: None,
        duration_ms: 0,
        usage: Usage::default(),
        calls: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::Finish;

    fn note(session: &RunTotals, call: u64, kind: EventKind) {
        session.record(Event { agent: Arc::from("main"), depth: 0, call, kind, rank: 0 }, None);
    }

    fn request(session: &RunTotals, model: &str, input_tokens: u64, cost_usd: Option<f64>) {
        let usage = Usage { requests: 1, input_tokens, cost_usd, ..Usage::default() };
        let finish = Finish::Stop;
        note(session, 1, EventKind::RequestFinished { model: model.into(), duration_ms: 1, usage, finish });
    }

    #[test]
    fn usage_adds_up_by_model_and_an_unknown_price_stays_unknown() {
        let session = RunTotals::default();
        request(&session, "a:x", 10, Some(0.5));
        request(&session, "a:x", 20, Some(0.25));
        let usage = session.usage();
        assert_eq!((usage.total.requests, usage.total.input_tokens, usage.total.cost_usd), (2, 30, Some(0.75)));
        request(&session, "b:y", 1, None);
        request(&session, "b:y", 1, Some(1.0));
        let usage = session.usage();
        assert_eq!((usage.total.input_tokens, usage.total.cost_usd), (32, None));
        assert_eq!(usage.by_model["a:x"].cost_usd, Some(0.75));
        assert_eq!(usage.by_model["b:y"].cost_usd, None);
    }

    #[test]
    fn the_trace_is_a_tree_with_every_call_once() {
        let session = RunTotals::default();
        let json = |text: &str| RawJson::parse(text).unwrap();
        note(
            &session,
            1,
            EventKind::CallStarted { name: "main".into(), kind: CallKind::Agent, input: json("\"hi\""), parent: None },
        );
        let called =
            EventKind::ToolCalled { id: "c".into(), tool: "add".into(), arguments: json("{}"), calls_as: None };
        note(&session, 1, called);
        let returned = ToolReturn::Result("3".to_owned());
        note(&session, 1, EventKind::ToolReturned { id: "c".into(), tool: "add".into(), returned, duration_ms: 2 });
        request(&session, "a:x", 10, None);
        assert_eq!(session.trace()[0].output, None);
        let (ended, usage) = (CallEnd::Output(CallOutput::Json(json("\"done\""))), Usage::default());
        let finished =
            EventKind::CallFinished { name: "main".into(), kind: CallKind::Agent, ended, duration_ms: 9, usage };
        note(&session, 1, finished);
        let trace = session.trace();
        assert_eq!((trace.len(), trace[0].calls.len(), trace[0].usage.input_tokens), (1, 1, 10));
        assert_eq!(trace[0].calls[0].output, Some(CallOutput::Text("3".to_owned())));
        assert_eq!(trace[0].output, Some(CallOutput::Json(json("\"done\""))));
    }
}
