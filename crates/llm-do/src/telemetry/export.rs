//! What has ended, on its way to a collector: a queue with a bound, and one thread that empties it. A run never waits for it
//! but at its end, and then not for long.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use super::context::TraceId;
use super::metric::MetricBook;
use super::span::TraceSpan;
use super::wire::{self, Resource};
use super::{Destination, TelemetryConfig, TelemetryNotes};
use crate::escape::visible;
use crate::http::{HttpClient, HttpSettings};
use crate::journal::file::FileJournal;

/// More spans are not kept while a collector is slow or gone; the newest are left out.
const LONGEST_QUEUE: usize = 2048;
/// Spans of one request.
const BATCH: usize = 512;
/// How often metrics are sent while a process goes on.
const METRICS_PAUSE: Duration = Duration::from_mins(1);
/// How often a request is sent again that a collector had no time for.
const MOST_ATTEMPTS: u32 = 5;
/// The first wait before that; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A span that has ended.
pub(super) struct QueuedSpan {
    pub(super) trace: TraceId,
    pub(super) span: TraceSpan,
    /// Whoever writes down that a collector has it.
    pub(super) journal: Option<Weak<FileJournal>>,
}

/// The queue, as runs and the thread share it.
pub(super) struct Exporter {
    state: Mutex<ExportState>,
    wake: Notify,
    traces: Option<Destination>,
    metrics: Option<Destination>,
    resource: Resource,
    pause: Duration,
    notes: TelemetryNotes,
    since: u64,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct ExportState {
    spans: VecDeque<QueuedSpan>,
    /// Spans for which there was no room, or which nobody took.
    lost: u64,
    metrics: MetricBook,
    has_new_metrics: bool,
    /// How many spans have left the queue and not arrived, while something is on its way.
    sending: Option<u64>,
    /// Whoever waits until all is sent.
    waiting: Vec<oneshot::Sender<Result<(), String>>>,
    /// The last request was not taken: nobody waits for the next one.
    is_failing: bool,
    has_told: bool,
    is_closed: bool,
}

impl Exporter {
    /// Starts the thread, which ends when [`Exporter::close`] is called and all is sent.
    pub(super) fn start(config: TelemetryConfig, notes: TelemetryNotes) -> std::io::Result<Arc<Self>> {
        let TelemetryConfig { traces, metrics, resource, http, pause, .. } = config;
        let (state, wake, since) = (Mutex::default(), Notify::new(), now());
        let exporter =
            Arc::new(Self { state, wake, traces, metrics, resource: Resource(resource), pause, notes, since });
        let worker = Arc::clone(&exporter);
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || worker.work(http))?;
        Ok(exporter)
    }

    /// A span that has ended waits for its collector.
    pub(super) fn queue(&self, spans: impl Iterator<Item = QueuedSpan>) {
        if self.traces.is_none() {
            return;
        }
        let mut state = self.state();
        for span in spans {
            if state.spans.len() < LONGEST_QUEUE {
                state.spans.push_back(span);
            } else {
                state.lost += 1;
            }
        }
        if state.spans.len() >= BATCH {
            self.wake.notify_one();
        }
    }

    /// Counts something.
    pub(super) fn count(&self, count: impl FnOnce(&mut MetricBook)) {
        if self.metrics.is_some() {
            let mut state = self.state();
            count(&mut state.metrics);
            state.has_new_metrics = true;
        }
    }

    /// Waits until all is sent, or for so long. What could not be sent is said once.
    pub(super) async fn flush(&self, limit: Duration) {
        let (sent, waiting) = oneshot::channel();
        {
            let mut state = self.state();
            let is_done = state.spans.is_empty() && !state.has_new_metrics && state.sending.is_none();
            if is_done || (state.is_failing && state.has_told) {
                return;
            }
            state.waiting.push(sent);
        }
        self.wake.notify_one();
        match tokio::time::timeout(limit, waiting).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(reason))) => self.tell(&reason),
            Ok(Err(_)) => self.tell("whoever sends them has ended"),
            Err(_) => {
                let at = self.traces.as_ref().or(self.metrics.as_ref()).map_or("", Destination::shown);
                self.tell(&format!("{at} took longer than {} seconds", limit.as_secs()));
            }
        }
    }

    /// Nothing more is queued.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.wake.notify_one();
    }

    fn tell(&self, reason: &str) {
        let lost = {
            let mut state = self.state();
            state.is_failing = true;
            if std::mem::replace(&mut state.has_told, true) {
                return;
            }
            state.lost + state.sending.unwrap_or_default() + state.spans.len() as u64
        };
        let spans = match lost {
            0 => "not all spans and metrics were delivered".to_owned(),
            1 => "a span was not delivered".to_owned(),
            lost => format!("{lost} spans were not delivered"),
        };
        (self.notes)(&format!("note: {spans}: {}\n", visible(reason)));
    }

    // A panic elsewhere leaves the queue as it was.
    fn state(&self) -> MutexGuard<'_, ExportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On a runtime of its own: a run that computes does not delay what is sent, nor the other way round.
    fn work(&self, http: HttpSettings) {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let client = HttpClient::new(http).map_err(|error| error.to_string());
        match (built, client) {
            (Ok(runtime), Ok(client)) => runtime.block_on(self.send_all(&client)),
            (Err(error), _) => self.tell(&error.to_string()),
            (_, Err(error)) => self.tell(&error),
        }
        self.state().waiting.clear();
    }

    async fn send_all(&self, client: &HttpClient) {
        let mut metrics_sent = Instant::now();
        loop {
            let pause = tokio::time::timeout(self.pause, self.wake.notified());
            let _ = pause.await;
            let (waiting, is_closed) = {
                let mut state = self.state();
                state.sending = Some(0);
                (std::mem::take(&mut state.waiting), state.is_closed)
            };
            let is_awaited = is_closed || !waiting.is_empty();
            let mut failed = self.send_spans(client, is_awaited).await.err();
            if is_awaited || metrics_sent.elapsed() >= METRICS_PAUSE {
                failed = failed.or(self.send_metrics(client, is_awaited).await.err());
                metrics_sent = Instant::now();
            }
            self.state().sending = None;
            for waiting in waiting {
                // Whoever waited may have left.
                let _ = waiting.send(failed.clone().map_or(Ok(()), Err));
            }
            if is_closed {
                return;
            }
        }
    }

    async fn send_spans(&self, client: &HttpClient, is_awaited: bool) -> Result<(), String> {
        let Some(destination) = &self.traces else { return Ok(()) };
        let mut failure = None;
        loop {
            let batch: Vec<QueuedSpan> = {
                let mut state = self.state();
                let count = state.spans.len().min(BATCH);
                state.sending = Some(count as u64);
                state.spans.drain(..count).collect()
            };
            if batch.is_empty() {
                return failure.map_or(Ok(()), Err);
            }
            let body = wire::traces(&self.resource, batch.iter().map(|queued| (queued.trace, &queued.span)));
            match self.send(client, destination, body, is_awaited).await {
                Ok(()) => note_delivered(&batch),
                Err(error) => {
                    self.state().lost += batch.len() as u64;
                    failure = Some(error);
                }
            }
        }
    }

    async fn send_metrics(&self, client: &HttpClient, is_awaited: bool) -> Result<(), String> {
        let Some(destination) = &self.metrics else { return Ok(()) };
        let body = {
            let mut state = self.state();
            if !std::mem::take(&mut state.has_new_metrics) || state.metrics.is_empty() {
                return Ok(());
            }
            wire::metrics(&self.resource, &state.metrics, self.since, now())
        };
        self.send(client, destination, body, is_awaited).await
    }

    async fn send(
        &self,
        client: &HttpClient,
        destination: &Destination,
        body: Vec<u8>,
        is_awaited: bool,
    ) -> Result<(), String> {
        let sent = Self::sent(client, destination, Bytes::from(body), is_awaited).await;
        let mut state = self.state();
        state.is_failing = sent.is_err();
        // The next trouble is another one.
        state.has_told &= state.is_failing;
        sent
    }

    /// Nobody waits for a collector that is not there.
    async fn sent(client: &HttpClient, destination: &Destination, body: Bytes, is_awaited: bool) -> Result<(), String> {
        let Destination { url, headers, timeout } = destination;
        let at = destination.shown();
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let posted = client.post(url, headers, "application/x-protobuf", body.clone());
            let answered = tokio::time::timeout(*timeout, posted).await;
            let asked = match answered {
                Ok(Ok((200..300, _))) => return Ok(()),
                // It has no time now, or whoever stands before it.
                Ok(Ok((429 | 502..=504, asked))) if attempt < MOST_ATTEMPTS => asked,
                Ok(Ok((status, _))) => return Err(format!("{at} answered with status {status}")),
                Ok(Err(_)) if attempt < MOST_ATTEMPTS && !is_awaited => None,
                Ok(Err(error)) => return Err(format!("{at}: {error}")),
                Err(_) => return Err(format!("{at} took longer than {} milliseconds", timeout.as_millis())),
            };
            // So that many do not come back at the same moment.
            let spread = wait.mul_f64(0.75 + fastrand::f64() / 2.0);
            tokio::time::sleep(asked.unwrap_or(spread).min(LONGEST_WAIT)).await;
            wait *= 2;
        }
        unreachable!("the last attempt returns")
    }
}

/// Each run writes down its own.
fn note_delivered(batch: &[QueuedSpan]) {
    let mut left: Vec<&QueuedSpan> = batch.iter().filter(|queued| queued.journal.is_some()).collect();
    while let Some(first) = left.first().copied() {
        let Some(journal) = &first.journal else { return };
        let is_same = |other: &&QueuedSpan| other.journal.as_ref().is_some_and(|other| Weak::ptr_eq(other, journal));
        let (own, others): (Vec<&QueuedSpan>, Vec<&QueuedSpan>) = left.iter().partition(|queued| is_same(queued));
        // A run that is closed in this process has waited for this before.
        if let Some(journal) = journal.upgrade() {
            journal.note_delivered(&own.iter().map(|queued| queued.span.id.to_string()).collect::<Vec<_>>());
        }
        left = others;
    }
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
