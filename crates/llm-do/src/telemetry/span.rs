//! Spans out of events. Pure: what happened, of which step, and when.
//!
//! A span has the id of its place in the call tree, so that the process that goes on with a run closes the spans that the
//! one before it had to leave open. What is told again was done before: it is sent unless a collector has it already.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::content::{self, MessageTail};
use super::context::{SpanId, TraceParent};
use super::name;
use crate::event::{
    ANSWER_NEEDED, APPROVAL_NEEDED, ApprovalResult, CallEnd, CallKind, Event, EventKind, LoggedMessage, ToolReturn,
};
use crate::journal::record::{JournalContents, StepProgress};
use crate::message::{Finish, Message, RawJson, Usage};
use crate::redact::Redactor;

/// A name and its value.
pub(super) type Attribute = (&'static str, AttributeValue);

/// What an attribute can be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    /// One of a few texts.
    Word(&'static str),
    Number(u64),
    Amount(f64),
    Words(Vec<&'static str>),
}

/// Whether a span is about somebody else at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceSpanKind {
    Internal,
    Client,
}

/// Something that has ended. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TraceSpan {
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: String,
    pub(super) kind: TraceSpanKind,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<Attribute>,
    pub(super) events: Vec<SpanEvent>,
    pub(super) links: Vec<TraceParent>,
    /// Set if it failed; the words may be empty.
    pub(super) error: Option<String>,
}

/// Something that happened within a span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpanEvent {
    pub(super) at: u64,
    pub(super) name: &'static str,
    pub(super) attributes: Vec<Attribute>,
}

impl TraceSpan {
    fn begun(
        id: SpanId,
        parent: Option<SpanId>,
        kind: TraceSpanKind,
        operation: &'static str,
        of: &str,
        start: u64,
    ) -> Self {
        let name = format!("{operation} {of}");
        let attributes = vec![(name::OPERATION, AttributeValue::Word(operation))];
        let (events, links) = (Vec::new(), Vec::new());
        Self { id, parent, name, kind, start, end: start, attributes, events, links, error: None }
    }

    fn set(&mut self, name: &'static str, value: AttributeValue) {
        match self.attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.attributes.push((name, value)),
        }
    }

    fn text(&mut self, name: &'static str, text: &str) {
        self.set(name, AttributeValue::Text(text.to_owned()));
    }

    fn fail(&mut self, kind: &str, words: Option<&str>) {
        const LONGEST: usize = 500;
        self.text(name::ERROR_TYPE, kind);
        self.error = Some(words.unwrap_or_default().chars().take(LONGEST).collect());
    }
}

/// What earlier processes did in a run.
#[derive(Clone, Debug, Default)]
pub struct TracePrior {
    begun_at: u64,
    /// When each step was done, in milliseconds since 1970.
    done: BTreeMap<String, u64>,
    /// When steps were begun, or something of them was recorded.
    seen: BTreeMap<String, u64>,
    delivered: HashSet<String>,
}

impl From<&JournalContents> for TracePrior {
    fn from(contents: &JournalContents) -> Self {
        let seen = contents.records().map(|(key, record)| (key.to_owned(), record.at)).collect();
        let done = contents.records().filter(|(_, record)| matches!(record.known, StepProgress::Done(_)));
        let done = done.map(|(key, record)| (key.to_owned(), record.at)).collect();
        Self { begun_at: contents.begun_at, done, seen, delivered: contents.delivered().iter().cloned().collect() }
    }
}

impl TracePrior {
    /// The first that is known of a place and what stands beneath it.
    fn first(&self, key: &str) -> Option<u64> {
        let beneath = format!("{key}/");
        let own = self.seen.get(key);
        let inner = self.seen.range(beneath.clone()..).take_while(|(key, _)| key.starts_with(&beneath));
        inner.map(|(_, at)| at).chain(own).min().copied()
    }
}

/// How a run is traced.
#[derive(Clone, Debug, Default)]
pub(super) struct BookSettings {
    pub(super) run: String,
    /// What the run as a whole stands beneath.
    pub(super) parent: Option<TraceParent>,
    /// On whose behalf it goes on.
    pub(super) link: Option<TraceParent>,
    /// Whether what was said is sent.
    pub(super) has_content: bool,
    /// Whether a run that waits is gone on with later.
    pub(super) is_recorded: bool,
    pub(super) redactor: Redactor,
    pub(super) prior: Option<TracePrior>,
}

/// The open spans of a run, and those that have ended since somebody asked.
#[derive(Debug, Default)]
pub(super) struct SpanBook {
    settings: BookSettings,
    used: HashMap<String, u32>,
    calls: HashMap<u64, OpenCallSpan>,
    tools: HashMap<(u64, String), OpenToolSpan>,
    ended: Vec<TraceSpan>,
}

#[derive(Debug)]
struct OpenCallSpan {
    span: TraceSpan,
    key: String,
    is_again: bool,
    /// Tools that code calls are named by their call ids.
    is_code: bool,
    request: Option<OpenSpan>,
    /// A request that has ended, until its reply is known.
    answered: Option<OpenSpan>,
    said: MessageTail,
    /// Why it may fail.
    error: Option<String>,
}

#[derive(Debug)]
struct OpenToolSpan {
    span: OpenSpan,
    calls_as: Option<u64>,
}

#[derive(Debug)]
struct OpenSpan {
    span: TraceSpan,
    is_again: bool,
}

/// When something happened, and whether it is told again.
#[derive(Clone, Copy)]
struct Moment {
    at: u64,
    is_again: bool,
}

impl Moment {
    /// When it began that took so long. What is told again has only its end.
    fn start(self, begun: u64, milliseconds: u64) -> u64 {
        if self.is_again { self.at.saturating_sub(milliseconds.saturating_mul(NANOS)) } else { begun }
    }
}

/// In a millisecond.
const NANOS: u64 = 1_000_000;

impl SpanBook {
    /// An empty one.
    pub(super) fn new(settings: BookSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The spans that have ended since this was asked.
    pub(super) fn take_ended(&mut self) -> Vec<TraceSpan> {
        std::mem::take(&mut self.ended)
    }

    /// The span of an open call, or of a tool that it has called.
    pub(super) fn open(&self, call: u64, tool_call: Option<&str>) -> Option<SpanId> {
        let tool = tool_call.and_then(|id| self.tools.get(&(call, id.to_owned())));
        let of_call = || self.calls.get(&call).map(|open| open.span.id);
        tool.map(|tool| tool.span.span.id).or_else(of_call)
    }

    /// A tool that is called is one of an MCP server, which speaks this version if that is known.
    pub(super) fn note_mcp(&mut self, call: u64, tool_call: &str, version: Option<&str>) {
        // A call in rounds is one of code, under the same id.
        let is_meant = |(caller, id): &(u64, String), tool: &OpenToolSpan| {
            id == tool_call && (*caller == call || tool.calls_as == Some(call))
        };
        if let Some((_, OpenToolSpan { span, .. })) = self.tools.iter_mut().find(|(key, tool)| is_meant(key, tool)) {
            span.span.set(name::MCP_METHOD, AttributeValue::Word("tools/call"));
            if let Some(version) = version {
                span.span.text(name::MCP_VERSION, version);
            }
        }
    }

    /// Hears what happened now, or in the step whose record tells of it. Says whether it is told again.
    pub(super) fn hear(&mut self, event: &Event, step: Option<&str>, now: u64) -> bool {
        let done = self.settings.prior.as_ref().and_then(|prior| prior.done.get(step?));
        let moment = Moment { at: done.map_or(now, |at| at.saturating_mul(NANOS)), is_again: done.is_some() };
        let call = event.call;
        match &event.kind {
            EventKind::CallStarted { name, kind, input, parent } => {
                self.call_started(call, (name, *kind, input), *parent, step, moment);
            }
            EventKind::CallFinished { ended, duration_ms, usage, .. } => {
                self.call_finished(call, ended, *duration_ms, usage, moment);
            }
            EventKind::RequestStarted { model, .. } => self.request_started(call, &event.agent, model, step, moment),
            EventKind::RequestFinished { duration_ms, usage, finish, .. } => {
                self.request_ended(call, *duration_ms, usage, Ok(*finish), moment);
            }
            EventKind::RequestFailed { duration_ms, usage, error, .. } => {
                self.request_ended(call, *duration_ms, usage, Err(error), moment);
            }
            EventKind::ToolCalled { id, tool, arguments, calls_as } => {
                let mut span = self.tool_span(call, &event.agent, (id, tool), step, moment);
                self.show(&mut span.span, name::TOOL_ARGUMENTS, arguments.get());
                if let Some(code) = *calls_as {
                    let key = self.tool_key(call, id, step);
                    let (open, is_again) = (span.span.clone(), span.is_again);
                    self.calls.insert(code, OpenCallSpan { is_code: true, ..OpenCallSpan::of(open, key, is_again) });
                }
                self.tools.insert((call, id.clone()), OpenToolSpan { span, calls_as: *calls_as });
            }
            EventKind::ToolReturned { id, returned, duration_ms, .. } => {
                self.tool_returned(call, id, returned, *duration_ms, moment);
            }
            EventKind::ToolRefused { id, tool, arguments, arguments_text, reason, judged, .. } => {
                let mut span = self.tool_span(call, &event.agent, (id, tool), step, moment);
                let arguments = arguments.as_ref().map(RawJson::get).or(arguments_text.as_deref());
                self.show(&mut span.span, name::TOOL_ARGUMENTS, arguments.unwrap_or_default());
                let kind = if *judged { name::REFUSED } else { name::NOT_CALLED };
                span.span.fail(kind, self.words(reason).as_deref());
                self.end(span, moment.at);
            }
            EventKind::ServerToolUsed { tool, input, output } => {
                self.server_tool_used(call, &event.agent, tool, (input.as_ref(), output.as_ref()), step, moment);
            }
            EventKind::ApprovalAsked { tool, reason, .. } => self.asked(call, tool, reason, moment.at),
            EventKind::ApprovalAnswered { tool, answer, .. } => self.was_answered(call, tool, *answer, moment.at),
            EventKind::LimitReached { .. } => {
                if let Some(open) = self.calls.get_mut(&call) {
                    open.error = Some(name::LIMIT.to_owned());
                }
            }
            EventKind::UserMessage { .. }
            | EventKind::TextDelta { .. }
            | EventKind::TextComplete { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::CacheHit { .. }
            | EventKind::RetryScheduled { .. }
            | EventKind::ModelSwitched { .. }
            | EventKind::LimitApproached { .. }
            | EventKind::ToolProgressed { .. }
            | EventKind::ToolsetStarted { .. }
            | EventKind::ToolsetReady { .. }
            | EventKind::ToolsetFailed { .. }
            | EventKind::ToolsetCloseFailed { .. }
            | EventKind::ProcessOutput { .. }
            | EventKind::Notice { .. }
            | EventKind::RunFailed { .. } => {}
        }
        moment.is_again
    }

    /// Hears what was said, if that is sent.
    pub(super) fn hear_message(&mut self, logged: &LoggedMessage<'_>) {
        if !self.settings.has_content {
            return;
        }
        let text = content::logged(logged, &self.settings.redactor);
        let Some(open) = self.calls.get_mut(&logged.call) else { return };
        let answered = match logged.message {
            Message::Assistant(_) => open.answered.take(),
            Message::User(_) | Message::Tool(_) => None,
        };
        open.said.add(text.clone());
        if let Some(mut span) = answered {
            span.span.set(name::OUTPUT_MESSAGES, AttributeValue::Text(content::list(&[text])));
            self.send(span);
        }
    }

    fn call_started(
        &mut self,
        call: u64,
        (name, kind, input): (&str, CallKind, &RawJson),
        parent: Option<u64>,
        step: Option<&str>,
        moment: Moment,
    ) {
        let above = parent.and_then(|parent| self.calls.get(&parent)).map(|open| open.span.id);
        let is_root = above.is_none();
        let key = match (step, is_root) {
            (Some(step), false) => step.to_owned(),
            (_, true) => name.to_owned(),
            (None, false) => format!("call {call}"),
        };
        let first = self.id(&key);
        let is_known = !moment.is_again && self.is_delivered(first);
        let id = self.new_id(&key, moment.is_again);
        // What was sent as ended is gone on with beneath it.
        let above = if is_root && is_known { Some(first) } else { above.or(self.settings.parent.map(|it| it.span)) };
        let start = if moment.is_again || is_known { moment.at } else { self.begun(&key, is_root, moment.at) };
        let mut span = TraceSpan::begun(id, above, TraceSpanKind::Internal, name::INVOKE_AGENT, name, start);
        span.text(name::AGENT, name);
        span.text(name::CONVERSATION, &self.settings.run.clone());
        if self.settings.has_content {
            let said = content::spoken("user", input, &self.settings.redactor);
            span.set(name::INPUT_MESSAGES, AttributeValue::Text(said));
        }
        if is_root {
            span.links.extend(self.settings.link);
        }
        let is_code = kind == CallKind::Function;
        self.calls.insert(call, OpenCallSpan { is_code, ..OpenCallSpan::of(span, key, moment.is_again) });
    }

    /// When a call began that an earlier process may have begun already.
    fn begun(&self, key: &str, is_root: bool, now: u64) -> u64 {
        let Some(prior) = &self.settings.prior else { return now };
        let first = if is_root { Some(prior.begun_at) } else { prior.first(key) };
        first.map_or(now, |first| first.saturating_mul(NANOS).min(now))
    }

    fn call_finished(&mut self, call: u64, ended: &CallEnd, duration_ms: u64, usage: &Usage, moment: Moment) {
        let Some(open) = self.calls.remove(&call) else { return };
        let OpenCallSpan { mut span, is_again, answered, error, .. } = open;
        if let Some(answered) = answered {
            self.send(answered);
        }
        let waits = matches!(ended, CallEnd::Error(error) if is_waiting(error));
        let left: Vec<(u64, String)> = self.tools.keys().filter(|(caller, _)| *caller == call).cloned().collect();
        let left: Vec<OpenToolSpan> = left.into_iter().filter_map(|key| self.tools.remove(&key)).collect();
        // Whoever answers goes on with it: it has not ended.
        if waits && self.settings.is_recorded {
            return;
        }
        for OpenToolSpan { mut span, .. } in left {
            span.span.fail(name::CANCELLED, None);
            self.end(span, moment.at);
        }
        span.start = Moment { is_again, ..moment }.start(span.start, duration_ms);
        if let Some(cost) = usage.cost_usd.filter(|_| usage.requests > 0) {
            span.set(name::COST, AttributeValue::Amount(cost));
        }
        match ended {
            CallEnd::Output(output) if self.settings.has_content => {
                let said = content::answered(output, &self.settings.redactor);
                span.set(name::OUTPUT_MESSAGES, AttributeValue::Text(said));
            }
            CallEnd::Output(_) => {}
            CallEnd::Error(_) if waits => span.fail(name::WAITING, None),
            CallEnd::Error(words) if words == name::CANCELLED => span.fail(name::CANCELLED, None),
            CallEnd::Error(words) => {
                span.fail(error.as_deref().unwrap_or(name::OTHER_ERROR), self.words(words).as_deref());
            }
        }
        self.end(OpenSpan { span, is_again }, moment.at);
    }

    fn request_started(&mut self, call: u64, agent: &str, model: &str, step: Option<&str>, moment: Moment) {
        let key = step.map_or_else(|| format!("call {call}/request"), str::to_owned);
        let id = self.new_id(&key, moment.is_again);
        let parent = self.open(call, None).or(self.settings.parent.map(|parent| parent.span));
        let (provider, model) = split(model);
        let mut span = TraceSpan::begun(id, parent, TraceSpanKind::Client, name::CHAT, model, moment.at);
        let common =
            [(name::PROVIDER, provider), (name::REQUEST_MODEL, model)].map(|(name, text)| (name, text.to_owned()));
        for (name, text) in &common {
            span.text(name, text);
        }
        span.text(name::AGENT, agent);
        span.text(name::CONVERSATION, &self.settings.run.clone());
        let Some(open) = self.calls.get_mut(&call) else { return };
        // Who answers is known of an agent with its first request.
        for (name, text) in common.into_iter().filter(|(name, _)| !open.has(name)).collect::<Vec<_>>() {
            open.span.set(name, AttributeValue::Text(text));
        }
        if let Some(said) = open.said.shown().filter(|_| self.settings.has_content) {
            span.set(name::INPUT_MESSAGES, AttributeValue::Text(said));
        }
        let answered = open.answered.take();
        open.request = Some(OpenSpan { span, is_again: moment.is_again });
        if let Some(answered) = answered {
            self.send(answered);
        }
    }

    fn request_ended(
        &mut self,
        call: u64,
        duration_ms: u64,
        usage: &Usage,
        ended: Result<Finish, &String>,
        moment: Moment,
    ) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        let Some(OpenSpan { mut span, is_again }) = open.request.take() else { return };
        span.start = moment.start(span.start, duration_ms);
        span.end = moment.at.max(span.start);
        let tokens = [
            (name::INPUT_TOKENS, usage.input_tokens, true),
            (name::OUTPUT_TOKENS, usage.output_tokens, true),
            (name::CACHE_READ, usage.cache_read_tokens, false),
            (name::CACHE_CREATION, usage.cache_write_tokens, false),
            (name::REASONING, usage.reasoning_tokens, false),
        ];
        for (name, tokens, _) in tokens.into_iter().filter(|(_, tokens, is_usual)| *is_usual || *tokens > 0) {
            span.set(name, AttributeValue::Number(tokens));
        }
        if let Some(cost) = usage.cost_usd {
            span.set(name::COST, AttributeValue::Amount(cost));
        }
        match ended {
            Ok(finish) => {
                let model = span.attributes.iter().find(|(name, _)| *name == name::REQUEST_MODEL);
                if let Some((_, model)) = model.cloned() {
                    span.set(name::RESPONSE_MODEL, model);
                }
                span.set(name::FINISH_REASONS, AttributeValue::Words(vec![finish_reason(finish)]));
                open.error = None;
            }
            Err(error) => {
                let kind = error_type(error);
                span.fail(&kind, Some(error));
                open.error = Some(kind);
            }
        }
        let span = OpenSpan { span, is_again };
        // Its reply is told a moment later; that of a request that was recorded was told before.
        if self.settings.has_content && ended.is_ok() && !moment.is_again {
            open.answered = Some(span);
        } else {
            self.send(span);
        }
    }

    /// Tools of a reply are named by their steps. What code calls may be told of in the record of the code.
    fn tool_key(&self, call: u64, id: &str, step: Option<&str>) -> String {
        match (self.calls.get(&call), step) {
            (Some(caller), _) if caller.is_code => format!("{}/{id}", caller.key),
            (_, Some(step)) => step.to_owned(),
            (_, None) => format!("call {call}/{id}"),
        }
    }

    fn tool_span(
        &mut self,
        call: u64,
        agent: &str,
        (id, tool): (&str, &str),
        step: Option<&str>,
        moment: Moment,
    ) -> OpenSpan {
        let key = self.tool_key(call, id, step);
        let parent = self.open(call, None).or(self.settings.parent.map(|parent| parent.span));
        let new = self.new_id(&key, moment.is_again);
        let mut span = TraceSpan::begun(new, parent, TraceSpanKind::Internal, name::EXECUTE_TOOL, tool, moment.at);
        span.text(name::TOOL, tool);
        span.text(name::TOOL_CALL_ID, id);
        span.set(name::TOOL_TYPE, AttributeValue::Word(name::FUNCTION));
        span.text(name::AGENT, agent);
        OpenSpan { span, is_again: moment.is_again }
    }

    fn tool_returned(&mut self, call: u64, id: &str, returned: &ToolReturn, duration_ms: u64, moment: Moment) {
        let Some(OpenToolSpan { mut span, calls_as }) = self.tools.remove(&(call, id.to_owned())) else { return };
        if let Some(code) = calls_as.and_then(|code| self.calls.remove(&code)) {
            // Questions are told of whoever asks.
            span.span.events = code.span.events;
        }
        match returned {
            ToolReturn::Error(error) if is_waiting(error) && self.settings.is_recorded => return,
            ToolReturn::Error(error) if is_waiting(error) => span.span.fail(name::WAITING, None),
            ToolReturn::Error(error) => span.span.fail(name::TOOL_ERROR, self.words(error).as_deref()),
            ToolReturn::Result(result) => self.show(&mut span.span, name::TOOL_RESULT, result),
        }
        let is_again = span.is_again;
        span.span.start = Moment { is_again, ..moment }.start(span.span.start, duration_ms);
        self.end(span, moment.at);
    }

    fn server_tool_used(
        &mut self,
        call: u64,
        agent: &str,
        tool: &str,
        (input, output): (Option<&RawJson>, Option<&RawJson>),
        step: Option<&str>,
        moment: Moment,
    ) {
        let key = step.map_or_else(|| format!("call {call}/server"), |step| format!("{step}/server"));
        let parent = self.open(call, None);
        let id = self.new_id(&key, moment.is_again);
        let mut span = TraceSpan::begun(id, parent, TraceSpanKind::Internal, name::EXECUTE_TOOL, tool, moment.at);
        span.text(name::TOOL, tool);
        span.set(name::TOOL_TYPE, AttributeValue::Word(name::EXTENSION));
        span.text(name::AGENT, agent);
        self.show(&mut span, name::TOOL_ARGUMENTS, input.map_or("", RawJson::get));
        self.show(&mut span, name::TOOL_RESULT, output.map_or("", RawJson::get));
        self.end(OpenSpan { span, is_again: moment.is_again }, moment.at);
    }

    fn asked(&mut self, call: u64, tool: &str, reason: &str, at: u64) {
        let mut attributes = vec![(name::TOOL, AttributeValue::Text(tool.to_owned()))];
        attributes.extend(self.words(reason).map(|reason| (name::QUESTION_REASON, AttributeValue::Text(reason))));
        self.note(call, SpanEvent { at, name: name::QUESTION, attributes });
    }

    fn was_answered(&mut self, call: u64, tool: &str, answer: ApprovalResult, at: u64) {
        let kind = AttributeValue::Word(answer_kind(answer));
        let attributes = vec![(name::TOOL, AttributeValue::Text(tool.to_owned())), (name::ANSWER_KIND, kind)];
        self.note(call, SpanEvent { at, name: name::ANSWER, attributes });
    }

    fn note(&mut self, call: u64, event: SpanEvent) {
        const MOST: usize = 128;
        if let Some(open) = self.calls.get_mut(&call).filter(|open| open.span.events.len() < MOST) {
            open.span.events.push(event);
        }
    }

    /// Words that may hold what was said are sent only where that is.
    fn words(&self, words: &str) -> Option<String> {
        self.settings.has_content.then(|| content::cut(words, &self.settings.redactor))
    }

    fn show(&self, span: &mut TraceSpan, name: &'static str, text: &str) {
        if let Some(text) = self.words(text).filter(|text| !text.is_empty()) {
            span.set(name, AttributeValue::Text(text));
        }
    }

    fn end(&mut self, mut span: OpenSpan, at: u64) {
        span.span.end = at.max(span.span.start);
        self.send(span);
    }

    fn send(&mut self, OpenSpan { span, is_again }: OpenSpan) {
        if !(is_again && self.is_delivered(span.id)) {
            self.ended.push(span);
        }
    }

    fn id(&self, key: &str) -> SpanId {
        SpanId::of(&self.settings.run, key)
    }

    fn is_delivered(&self, id: SpanId) -> bool {
        let prior = self.settings.prior.as_ref();
        prior.is_some_and(|prior| !prior.delivered.is_empty() && prior.delivered.contains(&id.to_string()))
    }

    /// The id of a place; each further time that something happens there it is another one. So it is of what happens now
    /// where something else was told to have ended.
    fn new_id(&mut self, key: &str, is_again: bool) -> SpanId {
        let count = self.used.entry(key.to_owned()).or_default();
        *count += 1;
        let name = if *count == 1 { key.to_owned() } else { format!("{key}#{count}") };
        let mut id = self.id(&name);
        let mut time = 2_u32;
        while !is_again && self.is_delivered(id) {
            id = self.id(&format!("{name}~{time}"));
            time += 1;
        }
        id
    }
}

impl OpenCallSpan {
    fn of(span: TraceSpan, key: String, is_again: bool) -> Self {
        let (request, answered, said, error) = (None, None, MessageTail::default(), None);
        Self { span, key, is_again, is_code: false, request, answered, said, error }
    }

    fn has(&self, name: &str) -> bool {
        self.span.attributes.iter().any(|(known, _)| *known == name)
    }
}

/// A model's provider, as the conventions name it, and its own name.
pub(super) fn split(model: &str) -> (&str, &str) {
    let (provider, model) = model.split_once(':').unwrap_or(("", model));
    (name::provider(provider), model)
}

/// Whether a call has not ended but waits for a person.
fn is_waiting(error: &str) -> bool {
    error.starts_with(APPROVAL_NEEDED) || error.starts_with(ANSWER_NEEDED)
}

/// The status of a provider's answer if there was one, else one of a few words.
pub(super) fn error_type(error: &str) -> String {
    let status = error.split("status ").skip(1).find_map(|rest| {
        let digits = rest.get(..3)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.to_owned())
    });
    status.unwrap_or_else(|| {
        let is_late = error.contains("did not answer in time") || error.contains("timed out");
        let word = match error {
            name::CANCELLED => name::CANCELLED,
            _ if is_late => name::TIMEOUT,
            _ => name::OTHER_ERROR,
        };
        word.to_owned()
    })
}

fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ContextWindow => "context_window",
        Finish::ToolCalls => "tool_calls",
        Finish::ContentFilter => "content_filter",
        Finish::Error => "error",
        Finish::Pause => "pause",
    }
}

fn answer_kind(answer: ApprovalResult) -> &'static str {
    match answer {
        ApprovalResult::Once => "once",
        ApprovalResult::CallForSession => "call_for_session",
        ApprovalResult::ToolForSession => "tool_for_session",
        ApprovalResult::Edited => "edited",
        ApprovalResult::Values => "values",
        ApprovalResult::Refused => "refused",
        ApprovalResult::Rule => "rule",
        ApprovalResult::Policy => "policy",
        ApprovalResult::Remembered => "remembered",
    }
}

#[cfg(test)]
mod tests;
