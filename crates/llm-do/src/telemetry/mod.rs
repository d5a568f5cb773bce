//! Runs as OpenTelemetry has them: a listener that makes spans and metrics of events, and sends them to a collector.
//!
//! Without a [`Telemetry`] in its configuration a run has no such listener, and nothing here is ever called.

mod content;
mod context;
mod export;
mod metric;
mod name;
mod span;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::event::{Event, EventKind, LoggedMessage, MessageLog, Recorder};
use crate::http::HttpSettings;
use crate::journal::file::FileJournal;
use crate::message::Usage;
use crate::redact::Redactor;
use context::TraceId;
use export::{Exporter, QueuedSpan};
use metric::EndedRequest;
use span::{BookSettings, SpanBook};

pub use context::{Choice, Sampler, TraceParent};
pub use span::TracePrior;

/// So long a run waits at its end until all is sent.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where remarks go.
pub type TelemetryNotes = Arc<dyn Fn(&str) + Send + Sync>;

/// Where spans or metrics are sent, as `http/protobuf`.
#[derive(Clone, PartialEq)]
pub struct Destination {
    url: String,
    headers: Vec<(String, String)>,
    timeout: Duration,
}

impl Destination {
    /// How long a request may take, as the specification has it.
    pub const USUAL_TIMEOUT: Duration = Duration::from_secs(10);

    /// A whole address, what its collector wants to see (which may be a key), and how long a request may take. An error says
    /// what is wrong with one of them.
    pub fn new(url: String, headers: Vec<(String, String)>, timeout: Duration) -> Result<Self, String> {
        crate::http::check_post(&url, &headers)?;
        Ok(Self { url, headers, timeout })
    }

    /// The address without what may be a key.
    fn shown(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or_default()
    }
}

/// Values of headers are not shown.
impl fmt::Debug for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        write!(formatter, "Destination({}, {names:?}, {:?})", self.shown(), self.timeout)
    }
}

/// What a process sends, and where.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// Where spans go, if they are wanted.
    pub traces: Option<Destination>,
    /// Where metrics go, if they are wanted.
    pub metrics: Option<Destination>,
    /// What all of them have in common: `service.name` and whatever else.
    pub resource: Vec<(String, String)>,
    /// Which traces are sent.
    pub sampler: Sampler,
    /// Whether messages, arguments and results are part of spans.
    pub has_content: bool,
    /// How long spans wait for others before they are sent.
    pub pause: Duration,
    /// How the collector is reached.
    pub http: HttpSettings,
}

impl TelemetryConfig {
    /// How long spans wait for others, as the specification has it.
    pub const USUAL_PAUSE: Duration = Duration::from_secs(5);
}

/// The telemetry of a process; its runs share it.
pub struct Telemetry {
    exporter: Arc<Exporter>,
    sampler: Sampler,
    has_content: bool,
}

/// A run as it is traced.
#[derive(Clone, Default)]
pub struct RunTrace {
    /// What the run is called.
    pub run: String,
    /// What it stands beneath, if somebody else began the trace.
    pub parent: Option<TraceParent>,
    /// On whose behalf it goes on, if it does.
    pub link: Option<TraceParent>,
    /// What earlier processes did in it.
    pub prior: Option<TracePrior>,
    /// Its journal, which notes what was delivered.
    pub journal: Option<Weak<FileJournal>>,
    /// Keys that are never sent.
    pub redactor: Redactor,
}

impl Telemetry {
    /// Starts it. Nothing is sent before there is something.
    pub fn start(config: TelemetryConfig, notes: TelemetryNotes) -> std::io::Result<Arc<Self>> {
        let (sampler, has_content) = (config.sampler, config.has_content);
        Ok(Arc::new(Self { exporter: Exporter::start(config, notes)?, sampler, has_content }))
    }

    /// The listener of one run.
    pub fn run(self: &Arc<Self>, run: RunTrace) -> Arc<RunTelemetry> {
        let RunTrace { run, parent, link, prior, journal, redactor } = run;
        let trace = parent.map_or_else(|| TraceId::of_run(&run), |parent| parent.trace);
        let is_sampled = self.sampler.samples(parent, trace);
        let (has_content, is_recorded) = (self.has_content, journal.is_some());
        let settings = BookSettings { run, parent, link, has_content, is_recorded, redactor: redactor.clone(), prior };
        let book = Mutex::new(SpanBook::new(settings));
        let telemetry = Arc::clone(self);
        Arc::new(RunTelemetry { telemetry, book, trace, is_sampled, parent, link, journal, redactor })
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Telemetry")
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.exporter.close();
    }
}

/// The listener of one run.
pub struct RunTelemetry {
    telemetry: Arc<Telemetry>,
    book: Mutex<SpanBook>,
    trace: TraceId,
    is_sampled: bool,
    parent: Option<TraceParent>,
    link: Option<TraceParent>,
    journal: Option<Weak<FileJournal>>,
    redactor: Redactor,
}

impl fmt::Debug for RunTelemetry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RunTelemetry({})", self.trace)
    }
}

impl RunTelemetry {
    /// A further run beside this one, such as that of an item, which has a trace of its own unless both are part of another.
    pub(crate) fn beside(
        &self,
        run: String,
        prior: Option<TracePrior>,
        journal: Option<Weak<FileJournal>>,
    ) -> Arc<Self> {
        let (parent, link, redactor) = (self.parent, self.link, self.redactor.clone());
        self.telemetry.run(RunTrace { run, parent, link, prior, journal, redactor })
    }

    /// Whether messages are sent.
    pub(crate) fn has_content(&self) -> bool {
        self.telemetry.has_content
    }

    /// Hears a fact.
    pub(crate) fn hear(&self, event: &Event, step: Option<&str>) {
        let (ended, is_again) = {
            let mut book = self.book();
            let is_again = book.hear(event, step, export::now());
            (book.take_ended(), is_again)
        };
        self.queue(ended);
        if is_again {
            return;
        }
        if let EventKind::RequestFinished { model, duration_ms, usage, .. } = &event.kind {
            self.count(event, model, *duration_ms, usage, None);
        }
        if let EventKind::RequestFailed { model, duration_ms, usage, error } = &event.kind {
            self.count(event, model, *duration_ms, usage, Some(span::error_type(error)));
        }
    }

    fn count(&self, event: &Event, model: &str, duration_ms: u64, usage: &Usage, error: Option<String>) {
        let ((provider, model), agent) = (span::split(model), &*event.agent);
        let seconds = Duration::from_millis(duration_ms).as_secs_f64();
        let request = EndedRequest { agent, provider, model, seconds, usage, error };
        self.telemetry.exporter.count(|metrics| metrics.count(request));
    }

    fn queue(&self, ended: Vec<span::TraceSpan>) {
        if self.is_sampled && !ended.is_empty() {
            let queued = |span| QueuedSpan { trace: self.trace, span, journal: self.journal.clone() };
            self.telemetry.exporter.queue(ended.into_iter().map(queued));
        }
    }

    /// What is handed on to whoever works for an open call, or for a tool that it called.
    pub(crate) fn handed_on(&self, call: u64, tool_call: Option<&str>) -> Option<TraceParent> {
        let span = self.book().open(call, tool_call)?;
        Some(TraceParent { trace: self.trace, span, is_sampled: self.is_sampled })
    }

    /// The same to an MCP server, of which the span of the tool tells.
    pub(crate) fn handed_to_mcp(&self, call: u64, tool_call: &str, version: Option<&str>) -> Option<TraceParent> {
        self.book().note_mcp(call, tool_call, version);
        self.handed_on(call, Some(tool_call))
    }

    /// The run has come to its end in this process: waits until all is sent, but not for long.
    pub async fn flush(&self) {
        self.telemetry.exporter.flush(PATIENCE).await;
    }

    // A panic elsewhere leaves the spans as they were.
    fn book(&self) -> MutexGuard<'_, SpanBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was said, where it is sent.
impl MessageLog for RunTelemetry {
    fn log(&self, message: &LoggedMessage<'_>) {
        let ended = {
            let mut book = self.book();
            book.hear_message(message);
            book.take_ended()
        };
        self.queue(ended);
    }
}

/// Hears facts before whoever else records them.
pub(crate) struct TracedRecorder {
    pub(crate) telemetry: Arc<RunTelemetry>,
    pub(crate) recorder: Arc<dyn Recorder>,
}

impl Recorder for TracedRecorder {
    fn record(&self, event: Event, step: Option<&str>) {
        self.telemetry.hear(&event, step);
        self.recorder.record(event, step);
    }
}
