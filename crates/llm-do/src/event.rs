//! What happened, told once. One closed vocabulary: every front end matches it without a wildcard, so a new variant is
//! a compile error wherever it must be shown. Trace and usage are folds over it.

mod capture;
mod kinds;
mod silence;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::mpsc;

use crate::message::{Message, RawJson, Usage};
use crate::redact::{REDACTED, Redactor};
use capture::EventCapture;

pub use capture::{EventLog, Renaming, StepOrigin};
pub use kinds::EventKind;
#[cfg(test)]
pub use kinds::samples;
#[cfg(feature = "front-end")]
pub use silence::ProviderSilence;
pub(crate) use silence::SilenceClock;
pub use told::{BorrowedEvents, Derivation, LogPart, Teller, ToldItem, ToldLog, WholeKind, brief};

/// A fact, and whose it is. As JSON one flat object with `type`, `agent`, `depth` and `call`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
pub struct Event {
    /// The agent, or the code, whose call it is.
    pub agent: Arc<str>,
    pub depth: usize,
    /// Identifies one call of an agent, or of code, within the run.
    pub call: u64,
    #[serde(flatten)]
    pub kind: EventKind,
    /// Where the call that it tells of stands among those of its caller: in the order of the reply, whichever ends first.
    #[serde(skip)]
    pub rank: u64,
}

impl EventKind {
    /// What a request took, of the events that tell that.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        match self {
            Self::RequestFinished { usage, .. } | Self::RequestFailed { usage, .. } => Some(usage),
            _ => None,
        }
    }
}

/// What kind of thing was called: agents and entry functions have `call_*` events, tools `tool_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
pub enum CallKind {
    Agent,
    Function,
    Tool,
    ServerTool,
}

/// How a call ended: `output` or `error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
pub enum CallEnd {
    Output(CallOutput),
    Error(String),
}

/// What a tool returned: `result` or `error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
pub enum ToolReturn {
    /// As the model reads it.
    Result(String),
    Error(String),
}

/// How a question about a call was answered, and by whom or what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Answered")]
#[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
pub enum ApprovalResult {
    Once,
    CallForSession,
    ToolForSession,
    Edited,
    /// With values for the fields of a form.
    Values,
    Refused,
    /// Nobody was asked: a lasting rule of the user allows it.
    Rule,
    /// Nobody was asked: all questions of this run are approved.
    Policy,
    /// Nobody was asked again: the user allowed it for the session.
    Remembered,
}

/// Which of its two streams a process wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// A call that a rule or a person refused, as a fold over events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Refusal {
    /// The agents and the code from the entry down; the last one called.
    pub path: Vec<String>,
    /// The tool that was called.
    pub tool: String,
    /// Why it was refused.
    pub reason: String,
}

/// Tokens and money, as a fold over events.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageReport {
    /// All of it.
    pub total: Usage,
    /// By `provider:model`.
    pub by_model: BTreeMap<String, Usage>,
    /// What was not asked again, since the reply was known; it is in none of the others.
    #[serde(skip_serializing_if = "Usage::is_nothing")]
    pub saved: Usage,
}

/// What one agent used of one model, as a fold over events.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AgentSpending {
    /// The agent that asked; empty for what an earlier process had lost.
    pub agent: Arc<str>,
    /// The model, as `provider:model`.
    pub model: String,
    /// Tokens and money.
    pub usage: Usage,
}

/// One call of an agent, a function or a tool, with the calls it made, as a fold over events.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TraceCall {
    /// What was called.
    pub name: String,
    /// What kind of thing that is.
    pub kind: CallKind,
    /// How many agents stand above it.
    pub depth: usize,
    /// What it was given.
    pub input: Option<RawJson>,
    /// What it gave, if it has ended well.
    pub output: Option<CallOutput>,
    /// Why it gave nothing.
    pub error: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What its requests took, and those of the calls in it.
    pub usage: Usage,
    /// The calls that it made.
    pub calls: Vec<TraceCall>,
}

/// What a call gave, as JSON: text gets its quotes when it is written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CallOutput {
    /// Text.
    Text(String),
    /// Any other value.
    Json(RawJson),
}

/// What is read again is JSON, whatever it was: its bytes are the same.
impl<'de> Deserialize<'de> for CallOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawJson::deserialize(deserializer).map(Self::Json)
    }
}

/// Any JSON.
impl JsonSchema for CallOutput {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        RawJson::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        RawJson::json_schema(generator)
    }
}

/// The JSON Schema of one line of events.
pub fn schema() -> serde_json::Value {
    let schema = schemars::SchemaGenerator::default().into_root_schema_for::<Event>();
    serde_json::to_value(schema).expect("a schema is JSON")
}

impl EventKind {
    /// Whether it tells of a run that goes well: what was asked, called and answered.
    fn is_routine(&self) -> bool {
        match self {
            Self::CallStarted { .. }
            | Self::CallFinished { .. }
            | Self::UserMessage { .. }
            | Self::TextDelta { .. }
            | Self::TextComplete { .. }
            | Self::ThinkingDelta { .. }
            | Self::ToolCalled { .. }
            | Self::ToolReturned { .. }
            | Self::ToolProgressed { .. }
            | Self::ApprovalAsked { .. }
            | Self::ApprovalAnswered { .. }
            | Self::ServerToolUsed { .. }
            | Self::RequestStarted { .. }
            | Self::RequestFinished { .. }
            | Self::CacheHit { .. }
            | Self::ToolsetStarted { .. }
            | Self::ToolsetReady { .. } => true,
            Self::RequestFailed { .. }
            | Self::ToolRefused { .. }
            | Self::RetryScheduled { .. }
            | Self::ModelSwitched { .. }
            | Self::LimitApproached { .. }
            | Self::LimitReached { .. }
            | Self::ToolsetFailed { .. }
            | Self::ToolsetCloseFailed { .. }
            | Self::ProcessOutput { .. }
            | Self::Notice { .. }
            | Self::RunFailed { .. } => false,
        }
    }
}

/// What a listener wants to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// What is worth a line where no person watches: no calls, no answers. The rest is built only for a recorder.
    Exceptions,
    /// Everything but the pieces of streams: those are not even built.
    Facts,
    /// Everything, also the pieces of streams.
    Everything,
}

/// Folds over every fact of a run: usage and trace. It hears no deltas.
pub trait Recorder: Send + Sync {
    /// Takes one fact, in the order in which facts happen. It is called while the run waits, so it must be quick. `step` is the
    /// key of the step whose record tells of it, if the run is recorded, there is one, and somebody wants to know.
    fn record(&self, event: Event, step: Option<&str>);
}

/// What is said of a run that waits for an approval: who hears that a call ended so knows that it goes on later.
pub const APPROVAL_NEEDED: &str = "approval is needed for ";
/// The same of one that waits for an answer.
pub const ANSWER_NEEDED: &str = "an answer is needed for ";

/// Keeps every message of every call, in the order in which they were said.
pub trait MessageLog: Send + Sync {
    /// Keeps one message. It is called while the run waits, so it must be quick.
    fn log(&self, message: &LoggedMessage<'_>);
}

/// Both keep each message.
struct TwoLogs(Arc<dyn MessageLog>, Arc<dyn MessageLog>);

impl MessageLog for TwoLogs {
    fn log(&self, message: &LoggedMessage<'_>) {
        let Self(first, second) = self;
        first.log(message);
        second.log(message);
    }
}

/// A message, and whose conversation it belongs to. As JSON one flat object.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct LoggedMessage<'a> {
    /// The agent whose conversation it is.
    pub agent: &'a str,
    /// How many agents stand above it.
    pub depth: usize,
    /// The call of the agent, within the run.
    pub call: u64,
    /// The message.
    #[serde(flatten)]
    pub message: &'a Message,
}

/// A cheap handle that knows whose events it sends.
#[derive(Clone)]
pub struct Events {
    recorder: Option<Arc<dyn Recorder>>,
    log: Option<Arc<dyn MessageLog>>,
    // Unbounded: a listener is faster than any model, and a lost delta would corrupt its transcript. That it has
    // gone is not an error.
    sender: Option<mpsc::UnboundedSender<Event>>,
    hearing: Listen,
    /// Who keeps what is told during a step.
    ear: Option<Arc<EventCapture>>,
    redactor: Redactor,
    /// Whether the recorder wants to know which steps tell.
    tells_steps: bool,
    /// How many calls the run has had.
    calls: Arc<AtomicU64>,
    agent: Arc<str>,
    depth: usize,
    call: u64,
    /// How many ranks the run has given.
    ranks: Arc<AtomicU64>,
    rank: u64,
    silence: SilenceClock,
}

impl Events {
    /// A handle for a new run, and the receiver on which the listener gets as much as `hearing` says.
    pub fn new(hearing: Listen) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (sender, listener) = mpsc::unbounded_channel();
        (Self { sender: Some(sender), hearing, ..Self::unheard() }, listener)
    }

    /// Without a listener: nothing is built or sent.
    pub fn unheard() -> Self {
        Self {
            recorder: None,
            log: None,
            sender: None,
            hearing: Listen::Facts,
            ear: None,
            redactor: Redactor::default(),
            tells_steps: false,
            calls: Arc::default(),
            agent: Arc::from(""),
            depth: 0,
            call: 0,
            ranks: Arc::default(),
            rank: 0,
            silence: SilenceClock::default(),
        }
    }

    /// What children print, and what tools say of their calls, is told without these keys.
    #[must_use]
    pub(crate) fn redacted_by(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// The keys that are never told.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The same handle, whose facts this recorder hears too.
    #[must_use]
    pub(crate) fn recorded_by(self, recorder: Arc<dyn Recorder>) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// The same handle, whose recorder hears which steps tell.
    #[must_use]
    pub(crate) fn telling_steps(self) -> Self {
        Self { tells_steps: true, ..self }
    }

    /// The same handle, whose messages this log keeps too.
    #[must_use]
    pub(crate) fn logged_by(mut self, log: Arc<dyn MessageLog>) -> Self {
        let log = match self.log.take() {
            None => log,
            Some(first) => Arc::new(TwoLogs(first, log)),
        };
        Self { log: Some(log), ..self }
    }

    /// Keeps a message, if there is a log.
    pub(crate) fn log(&self, message: &Message) {
        if let Some(log) = &self.log {
            log.log(&LoggedMessage { agent: &self.agent, depth: self.depth, call: self.call, message });
        }
    }

    /// A handle to the same run that sends its events as those of one call of an agent.
    #[must_use]
    pub(crate) fn for_call(&self, agent: &Arc<str>, depth: usize, call: u64) -> Self {
        Self { agent: Arc::clone(agent), depth, call, ..self.clone() }
    }

    /// An id for one more call of an agent, from 1.
    pub(crate) fn new_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The first of so many ranks, for calls in their order.
    pub(crate) fn ranks(&self, count: usize) -> u64 {
        self.ranks.fetch_add(count as u64, Ordering::Relaxed) + 1
    }

    /// The same handle, for a call of this rank.
    #[must_use]
    pub(crate) fn ranked(&self, rank: u64) -> Self {
        Self { rank, ..self.clone() }
    }

    /// The same handle; what is told through it, or through those made from it, is also kept for the record of the step at
    /// this key.
    #[must_use]
    pub(crate) fn overheard(&self, key: &str, part: LogPart) -> Self {
        Self { ear: Some(EventCapture::within(self.ear.clone(), key.to_owned(), part)), ..self.clone() }
    }

    /// The step whose events are kept by this handle.
    pub(crate) fn origin(&self) -> Option<&Arc<StepOrigin>> {
        self.ear.as_ref().map(|ear| ear.origin())
    }

    /// What was kept since [`Events::overheard`], as it stands in the record of the step, whose value says how events follow
    /// from it. What is told through this handle from now on belongs to whatever is around the step.
    pub(crate) fn told(&self, derivation: impl Fn(&Event) -> Option<Derivation>) -> ToldLog {
        let own = Teller(Arc::clone(&self.agent), self.depth, self.call, self.rank);
        self.ear.as_ref().map(|ear| ear.closed(own, derivation)).unwrap_or_default()
    }

    /// The last text of a recorded reply that was kept since [`Events::overheard`], with the key of its request from the
    /// step whose events these are.
    pub(crate) fn last_text<T>(&self, read: impl FnOnce(&str, &str) -> T) -> Option<T> {
        self.ear.as_ref()?.last_text(read)
    }

    /// What was kept since [`Events::overheard`], whole.
    pub(crate) fn heard(&self) -> EventLog {
        EventLog::of(self.call, self.ear.as_ref().map(|ear| ear.events()).unwrap_or_default())
    }

    /// Tells all listeners what was told in another process: this call stands for the one that told it, and the calls
    /// beneath it get ids of this run. Returns how what was recorded became what is told.
    pub(crate) fn replay(&self, told: EventLog) -> Renaming {
        let mut ids = BTreeMap::from([(told.call, self.call)]);
        let recorded_rank = told.events.iter().find(|event| event.call == told.call).map(|event| event.rank);
        let told = told.renamed(Some(self.rank), |id| *ids.entry(id).or_insert_with(|| self.new_call()));
        let EventLog { events, steps, .. } = told;
        let mut steps = steps.into_iter();
        for event in events {
            let step = steps.next();
            self.tell(event, None, step.as_deref());
        }
        let ids = ids.into_iter().filter(|(there, here)| there != here).collect();
        Renaming { ids, rank: Some(self.rank).filter(|rank| recorded_rank.is_none_or(|recorded| recorded != *rank)) }
    }

    /// How long nothing has come of the answers of the run.
    #[cfg(feature = "front-end")]
    pub(crate) fn silence(&self) -> &SilenceClock {
        &self.silence
    }

    /// The same for who reads answers, if somebody watches them.
    pub(crate) fn watched_silence(&self) -> Option<&SilenceClock> {
        Some(&self.silence).filter(|_| self.hearing != Listen::Exceptions && self.is_heard())
    }

    /// How deep the call is whose events these are.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    fn is_heard(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// The listener, if it wants to hear this.
    fn listener(&self, kind: &EventKind) -> Option<&mpsc::UnboundedSender<Event>> {
        let is_wanted = self.hearing != Listen::Exceptions || !kind.is_routine();
        self.sender.as_ref().filter(|sender| is_wanted && !sender.is_closed())
    }

    /// Whether a listener wants to hear pieces of streams.
    pub(crate) fn hears_deltas(&self) -> bool {
        self.hearing == Listen::Everything && self.is_heard()
    }

    /// Tells a fact to all listeners.
    pub fn send(&self, kind: impl FnOnce() -> EventKind) {
        if self.recorder.is_some() || self.ear.is_some() || self.is_heard() {
            let mut kind = kind();
            self.take_keys_out(&mut kind);
            self.tell(self.event(kind), None, None);
        }
    }

    /// Tells a fact that follows from the record of a step: a journal stores no more of it than that. `kind` is what
    /// follows, before any key is taken out of it.
    pub(crate) fn send_of(
        &self,
        origin: Option<&Arc<StepOrigin>>,
        derivation: impl FnOnce() -> Derivation,
        kind: impl FnOnce() -> EventKind,
    ) {
        let Some(origin) = origin.filter(|_| self.ear.is_some()) else { return self.send(kind) };
        let mut kind = kind();
        let derived = (!self.take_keys_out(&mut kind)).then(|| (Arc::clone(origin), derivation()));
        self.tell(self.event(kind), derived, Some(origin.key()));
    }

    /// Tells a fact that is told of a step, though nothing of it follows from the record of that.
    pub(crate) fn send_at(&self, step: Option<&Arc<StepOrigin>>, kind: impl FnOnce() -> EventKind) {
        if self.recorder.is_some() || self.ear.is_some() || self.is_heard() {
            let mut kind = kind();
            self.take_keys_out(&mut kind);
            self.tell(self.event(kind), None, step.map(|step| step.key()));
        }
    }

    /// What we or code of others say, and what is given to tools. What a model or a person said is told as they said it:
    /// those who sent a key there know it. A result was redacted where it was made.
    /// Says whether there was a key in it.
    fn take_keys_out(&self, kind: &mut EventKind) -> bool {
        // All of them, whatever was found in one.
        let clean_each = |texts: &mut dyn Iterator<Item = &mut String>| {
            texts.filter_map(|text| self.clean(text).then_some(())).count() > 0
        };
        match kind {
            EventKind::ProcessOutput { text, .. } | EventKind::Notice { text } => self.clean(text),
            EventKind::ToolProgressed { message, .. } => clean_each(&mut message.iter_mut()),
            EventKind::ToolCalled { arguments, .. } => self.clean_json(arguments),
            EventKind::ToolRefused { arguments, arguments_text, reason, .. } => {
                let had_key = arguments.as_mut().is_some_and(|arguments| self.clean_json(arguments));
                clean_each(&mut arguments_text.iter_mut().chain([reason])) || had_key
            }
            EventKind::ApprovalAsked { arguments, reason, .. } => {
                let had_key = self.clean_json(arguments);
                self.clean(reason) || had_key
            }
            EventKind::ApprovalAnswered { note, .. } => clean_each(&mut note.iter_mut()),
            EventKind::CallStarted { input, .. } => self.clean_json(input),
            EventKind::CallFinished { ended: CallEnd::Error(error), .. }
            | EventKind::ToolReturned { returned: ToolReturn::Error(error), .. }
            | EventKind::ToolsetFailed { error, .. }
            | EventKind::ToolsetCloseFailed { error, .. }
            | EventKind::RunFailed { error }
            | EventKind::RequestFailed { error, .. }
            | EventKind::RetryScheduled { reason: error, .. }
            | EventKind::ModelSwitched { reason: error, .. } => self.clean(error),
            EventKind::CallFinished { ended: CallEnd::Output(_), .. }
            | EventKind::ToolReturned { returned: ToolReturn::Result(_), .. }
            | EventKind::UserMessage { .. }
            | EventKind::TextDelta { .. }
            | EventKind::TextComplete { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::ServerToolUsed { .. }
            | EventKind::RequestStarted { .. }
            | EventKind::RequestFinished { .. }
            | EventKind::CacheHit { .. }
            | EventKind::LimitApproached { .. }
            | EventKind::LimitReached { .. }
            | EventKind::ToolsetStarted { .. }
            | EventKind::ToolsetReady { .. } => false,
        }
    }

    fn clean(&self, text: &mut String) -> bool {
        let has_key = self.redactor.finds(text.as_bytes());
        if has_key {
            *text = self.redactor.redacted(std::mem::take(text));
        }
        has_key
    }

    /// A key that is no text of its own, a number for example, takes all of the value with it.
    fn clean_json(&self, json: &mut RawJson) -> bool {
        let has_key = self.redactor.finds(json.get().as_bytes());
        if has_key {
            let cleaned = self.redactor.redacted(json.get().to_owned());
            *json = RawJson::parse(&cleaned).unwrap_or_else(|_| RawJson::of(&REDACTED));
        }
        has_key
    }

    /// `step` is what it is told of, if that is not the step around it.
    fn tell(&self, event: Event, derived: Option<(Arc<StepOrigin>, Derivation)>, step: Option<&str>) {
        let listener = self.listener(&event.kind);
        let around = || self.ear.as_ref().map(|ear| ear.origin().key());
        let step = if self.tells_steps { step.or_else(around) } else { None };
        match (&self.recorder, listener, &self.ear) {
            (Some(recorder), None, None) => return recorder.record(event, step),
            (Some(recorder), _, _) => recorder.record(event.clone(), step),
            (None, _, _) => {}
        }
        match (listener, &self.ear) {
            (Some(sender), None) => drop(sender.send(event)),
            (Some(sender), Some(ear)) => {
                ear.hear(event.clone(), derived);
                let _ = sender.send(event);
            }
            (None, Some(ear)) => ear.hear(event, derived),
            (None, None) => {}
        }
    }

    /// Tells a piece of a stream, which has tens of thousands of them: it is built only for a listener.
    pub fn send_delta(&self, kind: impl FnOnce() -> EventKind) {
        if let (true, Some(sender)) = (self.hears_deltas(), &self.sender) {
            let _ = sender.send(self.event(kind()));
        }
    }

    fn event(&self, kind: EventKind) -> Event {
        Event { agent: Arc::clone(&self.agent), depth: self.depth, call: self.call, kind, rank: self.rank }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_tells_a_key_that_a_question_or_a_call_of_code_holds() {
        let (events, mut listener) = Events::new(Listen::Everything);
        let events = events.redacted_by(Redactor::of(["sk-0123456789", "123456789012"]));
        let asked = |arguments: &str| EventKind::ApprovalAsked {
            id: "q".into(),
            path: Vec::new(),
            tool: "send".into(),
            arguments: RawJson::parse(arguments).unwrap(),
            reason: "sends sk-0123456789".into(),
        };
        for (arguments, expected) in [
            (r#"{"a":"x sk-0123456789 y"}"#, r#"{"a":"x [redacted] y"}"#),
            (r#"{"a":123456789012}"#, r#""[redacted]""#),
            (r#"{"a": "honest"}"#, r#"{"a": "honest"}"#),
        ] {
            events.send(|| asked(arguments));
            let told = listener.try_recv().unwrap().kind;
            let EventKind::ApprovalAsked { arguments, reason, .. } = told else { panic!("another event: {told:?}") };
            assert_eq!((arguments.get(), reason.as_str()), (expected, "sends [redacted]"));
        }
    }

    #[derive(Default)]
    struct Kept(std::sync::Mutex<Vec<EventKind>>);

    impl Recorder for Kept {
        fn record(&self, event: Event, _: Option<&str>) {
            self.0.lock().unwrap().push(event.kind);
        }
    }

    #[test]
    fn what_nobody_shows_is_recorded_and_not_sent() {
        let (events, mut listener) = Events::new(Listen::Exceptions);
        let kept = Arc::new(Kept::default());
        let events = events.recorded_by(Arc::clone(&kept) as Arc<dyn Recorder>);
        events.send(|| EventKind::TextComplete { text: "well".into() });
        events.send(|| EventKind::Notice { text: "odd".into() });
        events.send_delta(|| panic!("no piece of a stream is built"));
        assert_eq!(listener.try_recv().unwrap().kind, EventKind::Notice { text: "odd".into() });
        assert!(listener.try_recv().is_err());
        assert_eq!(kept.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn an_event_is_one_flat_json_object() {
        let (events, mut listener) = Events::new(Listen::Everything);
        let events = events.for_call(&Arc::from("main"), 0, 7);
        events.send(|| EventKind::ToolReturned {
            id: "c1".into(),
            tool: "add".into(),
            returned: ToolReturn::Error("no".into()),
            duration_ms: 3,
        });
        events.send(|| EventKind::CallFinished {
            name: "main".into(),
            kind: CallKind::Agent,
            ended: CallEnd::Output(CallOutput::Json(RawJson::parse(r#"{"b":1,"a":2}"#).unwrap())),
            duration_ms: 5,
            usage: Usage::default(),
        });
        let mut line = || serde_json::to_string(&listener.try_recv().unwrap()).unwrap();
        assert_eq!(
            line(),
            r#"{"agent":"main","depth":0,"call":7,"type":"tool_returned","id":"c1","tool":"add","error":"no","duration_ms":3}"#
        );
        assert!(line().contains(r#""kind":"agent","output":{"b":1,"a":2},"duration_ms":5"#));
    }

    #[test]
    fn an_absent_listener_costs_nothing_and_fails_nothing() {
        let (events, listener) = Events::new(Listen::Everything);
        drop(listener);
        events.send(|| unreachable!("nobody listens"));
        events.send_delta(|| unreachable!("nobody listens"));
        Events::unheard().send(|| unreachable!("nobody listens"));
    }
}
