//! The driver of every wire format: encode → send → frames → decode, and again where trying again may help.

mod delta_filter;
mod given_ids;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Uri};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::meter::{Meter, RequestProgress};
use super::protocol::{DecodeError, Decoder, Delta, ENDED_EARLY, Encoder, Protocol, Quirks};
use super::provider::Provider;
use super::thinking::thinks;
use super::{Conversation, Fault, Head, Model, ModelError};
use crate::BoxFuture;
use crate::escape::whole_characters;
use crate::event::{EventKind, Events};
use crate::http::frames::{EventStream, FRAME_LIMIT, Frame};
use crate::http::{Body, Departure, ExchangeStage, HttpClient, HttpError, Pace, Request, Response};
use crate::message::{Message, Reply, ReplyPart, TextPart};
use delta_filter::DeltaFilter;
use given_ids::GivenIds;

/// Where a model is asked, and as whom.
#[derive(Clone)]
pub struct Endpoint {
    /// Also the name before the colon of a model's name.
    pub provider: String,
    /// The wire format.
    pub protocol: &'static dyn Protocol,
    /// How the provider differs from it.
    pub quirks: Quirks,
    /// The protocol's path goes behind it.
    pub base_url: String,
    /// What authenticates the requests.
    pub key: Key,
}

impl Endpoint {
    /// A provider of the table, at the address where it usually is; `None` if it has none, or cannot be asked.
    pub fn of(row: &Provider, key: Key) -> Option<Self> {
        let protocol = row.protocol.protocol()?;
        let base_url = Some(row.base_url.to_owned()).filter(|address| !address.is_empty())?;
        Some(Self { provider: row.name.to_owned(), protocol, quirks: row.quirks, base_url, key })
    }

    fn url(&self, head: &Head) -> Result<Uri, ModelError> {
        let url = format!("{}{}", self.base_url.trim_end_matches('/'), self.protocol.path(head, &self.quirks));
        url.parse().map_err(|error| {
            let message = format!("the base URL of `{}` is not an address: {error}", self.provider);
            ModelError::FixRequest(Fault { message, ..Fault::default() })
        })
    }
}

/// What authenticates us.
#[derive(Clone)]
pub enum Key {
    /// The provider asks for none.
    Unneeded,
    /// It is at hand.
    Secret(Secret),
    /// It is at hand, in a variable: a provider that refuses it is reported with its name.
    OfVariable {
        /// The name of the variable.
        variable: String,
        /// What is in it.
        secret: Secret,
    },
    /// Obtained when it is first needed.
    Later(LaterKey),
    /// Nothing is sent; the error names the variables that could hold it.
    Missing {
        /// The variables that such a key is usually kept in.
        variables: Vec<String>,
    },
}

impl From<Secret> for Key {
    fn from(secret: Secret) -> Self {
        Self::Secret(secret)
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Secret(Secret::new(text))
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::Secret(Secret::new(text))
    }
}

/// A key. It is sent to its provider and shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a key, which cannot be read again from outside and is not shown by `Debug`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Where a key comes from that is not at hand, such as the user's password store. It may take its time, and it
/// decides itself when it has waited long enough.
pub trait KeySource: Send + Sync {
    /// The key, or why there is none; the reason is shown, so nothing of the key belongs into it.
    fn obtain(&self) -> BoxFuture<'_, Result<Secret, String>>;
}

/// A key that is obtained once, by the first request that needs it. Clones share it. A source that failed is asked
/// again by the next request: its owner may have unlocked it meanwhile.
#[derive(Clone)]
pub struct LaterKey(Arc<(OnceCell<Secret>, Box<dyn KeySource>)>);

impl LaterKey {
    /// A key that is not there yet; the source is first asked when a request needs it.
    pub fn new(source: impl KeySource + 'static) -> Self {
        Self(Arc::new((OnceCell::new(), Box::new(source))))
    }

    async fn obtain(&self) -> Result<&Secret, ModelError> {
        let (cell, source) = &*self.0;
        let unobtained = |message| ModelError::Authenticate(Fault { message, ..Fault::default() });
        cell.get_or_try_init(|| source.obtain()).await.map_err(unobtained)
    }
}

/// When to ask again, and how long to wait before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retries {
    /// After the first try.
    pub attempts: u32,
    /// Doubled each time, with jitter.
    pub first_wait: Duration,
    /// The longest pause before a request is sent again.
    pub longest_wait: Duration,
    /// A provider that asks for more is not waited for.
    pub longest_asked_wait: Duration,
    /// Whether an answer of which listeners have heard text is asked for again, when it breaks off.
    pub after_output: bool,
}

impl Retries {
    /// Four more tries, half a second to thirty seconds apart; a provider may ask for two minutes.
    pub const STANDARD: Self = Self {
        attempts: 4,
        first_wait: Duration::from_millis(500),
        longest_wait: Duration::from_secs(30),
        longest_asked_wait: Duration::from_mins(2),
        after_output: true,
    };

    /// Between half and all of a doubling wait, so that many clients do not come back together.
    fn wait(&self, attempt: u32) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << attempt.min(16)).min(self.longest_wait);
        doubled.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// A model behind a wire.
#[derive(Clone)]
pub struct Exchange {
    /// Where the model is asked.
    pub endpoint: Arc<Endpoint>,
    /// The connections.
    pub http: HttpClient,
    /// How often, and after which pauses, a request is sent again.
    pub retries: Retries,
}

impl Model for Exchange {
    fn open(&self, mut head: Head) -> Box<dyn Conversation> {
        let encoder = self.endpoint.protocol.encoder(&head, &self.endpoint.quirks);
        let url = self.endpoint.url(&head);
        // The encoder has them.
        (head.instructions, head.tools) = (String::new(), Vec::new());
        let pace = pace(&head);
        let line = ModelConnection { exchange: self.clone(), head, url, pace };
        Box::new(HttpConversation { line, encoder, given_ids: GivenIds::default(), headers: Vec::new() })
    }
}

struct HttpConversation {
    line: ModelConnection,
    encoder: Box<dyn Encoder>,
    given_ids: GivenIds,
    /// The same for every request; none until the key is there.
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Everything of a conversation but its words.
struct ModelConnection {
    exchange: Exchange,
    head: Head,
    /// One that cannot be used is told by the first request.
    url: Result<Uri, ModelError>,
    /// How long an answer may be silent.
    pace: Pace,
}

impl Conversation for HttpConversation {
    fn reply<'a>(
        &'a mut self,
        history: &'a [Message],
        meter: &'a mut dyn Meter,
        events: &'a Events,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.ask(history, meter, events))
    }

    fn rewind(&mut self, messages: usize) {
        self.encoder.truncate(messages.min(self.encoder.messages()));
        self.given_ids.forget();
    }

    fn longest_wait(&self) -> Option<Duration> {
        Some(self.line.exchange.http.first_byte_timeout(self.line.pace))
    }

    fn goes_on_with(&self, cut: &Reply) -> bool {
        let Exchange { endpoint, .. } = &self.line.exchange;
        // Anything but plain text, such as thoughts or citations, must be whole to go back.
        let is_plain = |part: &ReplyPart| matches!(part, ReplyPart::Text(TextPart { private: None, .. }));
        endpoint.protocol.continues_answers(&self.line.head, &endpoint.quirks) && cut.parts.iter().all(is_plain)
    }
}

impl From<HttpError> for ModelError {
    fn from(error: HttpError) -> Self {
        let message = match &error {
            HttpError::Cut { stage: ExchangeStage::InAnswer, at, reason } => format!("{ENDED_EARLY}: {at}: {reason}"),
            error => error.to_string(),
        };
        let fault = Fault { message, ..Fault::default() };
        let is_passing = error.is_worth_a_retry();
        match error {
            // It has the request, and perhaps works on it.
            HttpError::FirstByteTimeout { .. } | HttpError::IdleTimeout { .. } => Self::TimedOut(fault),
            _ if is_passing => Self::Wait(fault),
            HttpError::InvalidRequest { .. } | HttpError::InvalidSetting { .. } => Self::FixRequest(fault),
            HttpError::TooLarge { .. } => Self::GiveUp(fault),
            HttpError::Malformed { .. } => Self::Garbled(fault),
            // It will be the same in a minute: a certificate, a proxy that does not want to.
            HttpError::Resolve { .. }
            | HttpError::Connect { .. }
            | HttpError::ConnectTimeout { .. }
            | HttpError::Tls { .. }
            | HttpError::ProxyRefused { .. }
            | HttpError::SendTimeout { .. }
            | HttpError::Cut { .. } => Self::Unreachable(fault),
        }
    }
}

/// Says how often an answer was asked for that never came whole.
fn asked_in_vain(error: ModelError, times: u32) -> ModelError {
    error.map_fault(|fault| match fault.message.strip_prefix(ENDED_EARLY) {
        Some(rest) => {
            let asked = if times == 1 { "asked once".to_owned() } else { format!("asked {times} times") };
            Fault { message: format!("{ENDED_EARLY}, {asked}{rest}"), ..fault }
        }
        None => fault,
    })
}

impl HttpConversation {
    async fn ask(&mut self, history: &[Message], meter: &mut dyn Meter, events: &Events) -> Result<Reply, ModelError> {
        if self.headers.is_empty() {
            self.headers = self.line.headers().await?;
        }
        self.encode(history);
        self.given_ids.read(history);
        let (mut told, mut before) = (DeltaFilter::new(events), AttemptHistory::default());
        loop {
            self.line.wait_for_others().await;
            let body = self.encoder.body(meter.longest_answer());
            let error = match self.line.attempt(&self.headers, body, history.len(), &mut told, meter).await {
                Ok(mut reply) => {
                    self.given_ids.make_unique(&mut reply);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            if !self.line.exchange.retries.after_output && told.has_told_text() {
                return Err(asked_in_vain(error, before.attempts + 1));
            }
            let wait = match self.line.wait_after(error.clone(), &mut before) {
                Ok(wait) => wait,
                Err(error) => return Err(asked_in_vain(error, before.attempts + 1)),
            };
            if meter.failed(&error).is_err() {
                return Err(error);
            }
            if error.fault().status == Some(TOO_MANY_REQUESTS) {
                self.line.exchange.http.hold_back(&self.line.exchange.endpoint.provider, wait.length);
            }
            events.send(|| EventKind::RetryScheduled {
                model: self.line.head.model.to_string(),
                attempt: before.attempts,
                wait_ms: u64::try_from(wait.length.as_millis()).unwrap_or(u64::MAX),
                reason: wait.reason,
            });
            tokio::time::sleep(wait.length).await;
            if meter.again().await.is_err() {
                return Err(error);
            }
            told.start_again();
        }
    }

    /// What the encoder has of this history stays.
    fn encode(&mut self, history: &[Message]) {
        for message in history.iter().skip(self.encoder.messages()) {
            self.encoder.push(message);
        }
    }
}

/// It says to all of a user's requests that there are too many.
const TOO_MANY_REQUESTS: u16 = 429;

impl ModelConnection {
    /// A provider that has told one request to wait is asked by no other before.
    async fn wait_for_others(&self) {
        while let Some(until) = self.exchange.http.held_back_until(&self.exchange.endpoint.provider) {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Whether to try again, and when; else the error.
    fn wait_after(&self, error: ModelError, before: &mut AttemptHistory) -> Result<Wait, ModelError> {
        let retries = self.exchange.retries;
        if before.attempts >= retries.attempts {
            return Err(error);
        }
        let usual = retries.wait(before.attempts);
        let wait = match error {
            ModelError::Wait(fault) if fault.retry_after > Some(retries.longest_asked_wait) => {
                let asked = fault.retry_after.unwrap_or_default().as_secs();
                let message = format!("{} (it asks to wait {asked} seconds)", fault.message);
                return Err(ModelError::Wait(Fault { message, ..fault }));
            }
            // A server that asks for no wait at all is asked no sooner than any other.
            ModelError::Wait(fault) => {
                Wait { length: usual.max(fault.retry_after.unwrap_or_default()), reason: fault.to_string() }
            }
            // It happens by chance, whatever the provider's state: waiting does not help, and a second repetition is
            // not likely to.
            ModelError::Garbled(fault) if !before.garbled => {
                before.garbled = true;
                Wait { length: Duration::ZERO, reason: fault.to_string() }
            }
            ModelError::TimedOut(fault) if !before.timed_out => {
                before.timed_out = true;
                Wait { length: usual, reason: format!("{fault}; what was asked may have to be paid") }
            }
            ModelError::FixRequest(_)
            | ModelError::Authenticate(_)
            | ModelError::TimedOut(_)
            | ModelError::Unreachable(_)
            | ModelError::ContextTooLong(_)
            | ModelError::Garbled(_)
            | ModelError::GiveUp(_) => return Err(error),
        };
        before.attempts += 1;
        Ok(wait)
    }

    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ModelError> {
        let endpoint = &self.exchange.endpoint;
        let key = match &endpoint.key {
            Key::Unneeded => None,
            Key::Secret(secret) | Key::OfVariable { secret, .. } => Some(secret.0.as_str()),
            Key::Later(later) => Some(later.obtain().await?.0.as_str()),
            Key::Missing { variables } => {
                let message = format!("no key for `{}`: set {}", endpoint.provider, variables.join(" or "));
                return Err(ModelError::Authenticate(Fault { message, ..Fault::default() }));
            }
        };
        let accepted = if self.head.stream { "text/event-stream" } else { "application/json" };
        let always = [(CONTENT_TYPE, "application/json"), (ACCEPT, accepted)];
        let mut headers = Vec::from(always.map(|(name, value)| (name, HeaderValue::from_static(value))));
        for (name, value) in endpoint.protocol.headers(&self.head, &endpoint.quirks, key) {
            let value = HeaderValue::try_from(value).map_err(|_| unusable_key(&endpoint.provider))?;
            headers.push((HeaderName::from_static(name), value));
        }
        Ok(headers)
    }

    async fn attempt(
        &self,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
        turn: usize,
        told: &mut DeltaFilter<'_>,
        meter: &mut dyn Meter,
    ) -> Result<Reply, ModelError> {
        // Pinned here, so that there is one of it in memory and not one for each of the arms.
        let exchange = pin!(self.exchange(headers, body, turn, told, meter));
        let attempted = match self.head.settings.timeout {
            None => exchange.await,
            Some(limit) => Box::pin(tokio::time::timeout(limit, exchange)).await.unwrap_or_else(|_| {
                let message = format!("no complete answer within {} seconds", limit.as_secs_f64());
                Err(ModelError::TimedOut(Fault { message, ..Fault::default() }))
            }),
        };
        attempted.map_err(|error| self.without_key(error))
    }

    /// There are servers that repeat a key to complain about it.
    fn without_key(&self, error: ModelError) -> ModelError {
        let key = match &self.exchange.endpoint.key {
            Key::Secret(Secret(key)) | Key::OfVariable { secret: Secret(key), .. } => key,
            Key::Later(LaterKey(later)) => match later.0.get() {
                Some(Secret(key)) => key,
                None => return error,
            },
            Key::Unneeded | Key::Missing { .. } => return error,
        };
        let hide = |text: String| if key.is_empty() { text } else { text.replace(key.as_str(), "[the key]") };
        let error =
            error.map_fault(|fault| Fault { message: hide(fault.message), kind: fault.kind.map(hide), ..fault });
        match (&self.exchange.endpoint.key, error) {
            (Key::OfVariable { variable, .. }, ModelError::Authenticate(fault)) => {
                let message = format!("with the key of {variable}: {}", fault.message);
                ModelError::Authenticate(Fault { message, ..fault })
            }
            (_, error) => error,
        }
    }

    async fn exchange(
        &self,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
        turn: usize,
        told: &mut DeltaFilter<'_>,
        meter: &mut dyn Meter,
    ) -> Result<Reply, ModelError> {
        let headers = headers.iter().cloned().collect();
        let request = Request { method: Method::POST, url: self.url.clone()?, headers, body };
        let first_byte = self.exchange.http.first_byte_timeout(self.pace);
        let _waited_for = told.silence().map(|silence| silence.open(first_byte));
        let (sending, departure) = self.exchange.http.watched(request, self.pace);
        let mut sent = SentRequest { meter, departure, taken: None };
        let response = sending.await?;
        let request_id = request_id(&response.headers);
        if !response.status.is_success() {
            sent.taken = Some(RequestProgress::Refused);
            return Err(Box::pin(self.refused(response, request_id)).await);
        }
        let label = Label::of(&response.headers);
        // Without the headers, which would hold on to the first bytes that came until the last ones are there.
        let mut body = response.into_body();
        self.read(&mut body, label, turn, told, &mut sent).await.map_err(|error| identified(error, request_id))
    }

    /// Reads the answer by what it is: a wrong content type is no reason to ask again.
    async fn read(
        &self,
        body: &mut Body,
        label: Label,
        turn: usize,
        told: &mut DeltaFilter<'_>,
        sent: &mut SentRequest<'_>,
    ) -> Result<Reply, ModelError> {
        let patience = self.exchange.http.content_timeout();
        let Some(start) = beginning(body, patience).await? else { return Err(DecodeError::Cut.into()) };
        // Only the stream, the usual answer, is not boxed: what the others need takes no room while it is read.
        match ResponseForm::of(&start, &label) {
            ResponseForm::Stream => self.stream(start, body, self.reading(turn, told, sent)).await,
            ResponseForm::Document => Box::pin(self.document(start, body, turn, told, sent)).await,
            ResponseForm::Foreign => Err(foreign(&start, &label)),
        }
    }

    async fn stream(
        &self,
        start: Bytes,
        body: &mut Body,
        mut reading: ReplyReader<'_, '_, '_>,
    ) -> Result<Reply, ModelError> {
        let mut frames = EventStream::new(FRAME_LIMIT);
        let mut growth = Growth { limit: self.exchange.http.content_timeout(), ..Growth::default() };
        let (silence, patience) = (reading.told.silence(), self.exchange.http.idle_timeout(self.pace));
        let mut next = Some(start);
        while let Some(chunk) = next {
            if let Some(silence) = silence {
                silence.heard(patience);
            }
            let ReplyReader { decoder: Some(decoder), told, sent } = &mut reading else { break };
            let read = frames.push(&chunk, |Frame { event, data }| {
                let data = &*whole_characters(data);
                decoder.frame(Frame { event, data }, &mut |delta| {
                    if let Delta::Text(text) = delta {
                        sent.meter.hear(text);
                    }
                    told.tell(delta);
                })
            });
            // While it is held the connection has to read on into a second buffer.
            drop(chunk);
            if let Err(error) = read {
                return Err(reading.broken(error));
            }
            check_calls(decoder.as_ref())?;
            // What comes after the end would only be waited for; but a body read to its end leaves the connection
            // and the lent request to the next request, so what is there already is taken.
            if decoder.ended() {
                drain(body).await;
                break;
            }
            growth.note(decoder.progress())?;
            next = match body.chunk().await {
                Ok(chunk) => chunk,
                Err(_) if decoder.is_complete() => None,
                Err(error) => return Err(error.into()),
            };
        }
        reading.finish()
    }

    async fn document(
        &self,
        start: Bytes,
        body: &mut Body,
        turn: usize,
        told: &mut DeltaFilter<'_>,
        sent: &mut SentRequest<'_>,
    ) -> Result<Reply, ModelError> {
        let patience = self.exchange.http.content_timeout();
        let (began, mut whole) = (Instant::now(), BytesMut::from(start));
        while let Some(chunk) = body.chunk().await? {
            whole.extend_from_slice(&chunk);
            if began.elapsed() > patience {
                return Err(without_content(patience));
            }
        }
        let mut reading = self.reading(turn, told, sent);
        if let ReplyReader { decoder: Some(decoder), told, .. } = &mut reading {
            if let Err(error) = decoder.document(&whole_characters(&whole), &mut |delta| told.tell(delta)) {
                return Err(reading.broken(error));
            }
            check_calls(decoder.as_ref())?;
        }
        reading.finish()
    }

    fn reading<'a, 't, 's>(
        &self,
        turn: usize,
        told: &'a mut DeltaFilter<'t>,
        sent: &'a mut SentRequest<'s>,
    ) -> ReplyReader<'a, 't, 's> {
        let Endpoint { protocol, quirks, .. } = &*self.exchange.endpoint;
        ReplyReader { decoder: Some(protocol.decoder(&self.head, quirks, turn)), told, sent }
    }

    async fn refused(&self, response: Response, request_id: Option<Box<str>>) -> ModelError {
        let status = response.status.as_u16();
        let retry_after = retry_after(&response.headers, SystemTime::now());
        // A refusal that breaks off, or does not end, is judged by its status.
        let body = tokio::time::timeout(REFUSAL_PATIENCE, response.body.collect(LONGEST_REFUSAL)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let error = self.exchange.endpoint.protocol.fault(status, &body);
        let error = error.map_fault(|fault| Fault { retry_after: retry_after.or(fault.retry_after), ..fault });
        identified(error, request_id)
    }
}

/// How long an answer may be silent: a document comes when all of it is written, and a model that thinks is silent
/// meanwhile.
fn pace(head: &Head) -> Pace {
    match (head.stream, thinks(head)) {
        (false, _) => Pace::Late,
        (true, true) => Pace::Slow,
        (true, false) => Pace::Usual,
    }
}

/// A request on its way. However it ends, also by being dropped, the meter hears how far it came.
struct SentRequest<'a> {
    meter: &'a mut dyn Meter,
    departure: Departure,
    /// Known once there is an answer of any kind.
    taken: Option<RequestProgress>,
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        let unanswered = || if self.departure.has_begun() { RequestProgress::Sent } else { RequestProgress::Nothing };
        self.meter.note(self.taken.unwrap_or_else(unanswered));
    }
}

/// An answer that is being read. However that ends, what the provider has said of its cost is kept.
struct ReplyReader<'a, 't, 's> {
    /// There until it is finished.
    decoder: Option<Box<dyn Decoder>>,
    told: &'a mut DeltaFilter<'t>,
    sent: &'a mut SentRequest<'s>,
}

impl ReplyReader<'_, '_, '_> {
    fn finish(mut self) -> Result<Reply, ModelError> {
        self.note();
        let decoder = self.decoder.take().ok_or(DecodeError::Cut)?;
        Ok(decoder.finish()?)
    }

    /// What cannot be read on. An error instead of any content is a refusal, only said later than others.
    fn broken(mut self, error: DecodeError) -> ModelError {
        self.note();
        let is_told =
            self.told.bytes > 0 || self.decoder.take().is_some_and(|decoder| decoder.usage().input_tokens > 0);
        if matches!(error, DecodeError::Reported(_)) && !is_told {
            self.sent.taken = Some(RequestProgress::Refused);
        }
        error.into()
    }

    fn note(&mut self) {
        if let Some(decoder) = &self.decoder {
            self.sent.taken = Some(RequestProgress::Answer { reported: decoder.usage(), text: self.told.bytes });
        }
    }
}

impl Drop for ReplyReader<'_, '_, '_> {
    fn drop(&mut self) {
        self.note();
    }
}

/// What went before a failed attempt.
#[derive(Default)]
struct AttemptHistory {
    attempts: u32,
    /// One gave what could not be read.
    garbled: bool,
    /// One took the request and gave no answer in time.
    timed_out: bool,
}

/// Whether an answer grows.
#[derive(Default)]
struct Growth {
    limit: Duration,
    grown: usize,
    /// Since when it does not.
    since: Option<Instant>,
}

impl Growth {
    /// Looked at when something has come: pure silence is the connection's to notice.
    fn note(&mut self, progress: usize) -> Result<(), ModelError> {
        if progress > self.grown {
            (self.grown, self.since) = (progress, None);
            return Ok(());
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.limit { Err(without_content(self.limit)) } else { Ok(()) }
    }
}

fn without_content(patience: Duration) -> ModelError {
    let message = format!("bytes came for {patience:?}, but nothing of the answer");
    ModelError::TimedOut(Fault { message, ..Fault::default() })
}

struct Wait {
    length: Duration,
    reason: String,
}

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const LONGEST_REFUSAL: u64 = 1024 * 1024;
const REFUSAL_PATIENCE: Duration = Duration::from_secs(30);
/// Far more calls than a person can look at; an answer with more is a model that repeats itself.
pub(crate) const MOST_CALLS: usize = 128;
/// After the last event nothing of use comes: this long its end is waited for.
const LONGEST_DRAIN: Duration = Duration::from_millis(250);

/// What an answer says that it is.
enum Label {
    None,
    Json,
    Events,
    Other(Box<str>),
}

impl Label {
    fn of(headers: &HeaderMap) -> Self {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media.as_str() {
            "" => Self::None,
            "text/event-stream" => Self::Events,
            media if media.ends_with("json") => Self::Json,
            media => Self::Other(media.into()),
        }
    }
}

/// What an answer is.
#[derive(Debug, PartialEq)]
enum ResponseForm {
    Stream,
    Document,
    /// Neither JSON nor an event stream: a page of some proxy.
    Foreign,
}

/// So much of an answer tells what it is.
const TELLING: usize = 8;

impl ResponseForm {
    fn of(start: &[u8], label: &Label) -> Self {
        const FIELDS: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];
        let start = without_blanks(start);
        if start.starts_with(b"{") || start.starts_with(b"[") {
            return Self::Document;
        }
        if FIELDS.iter().any(|field| start.starts_with(field)) {
            return Self::Stream;
        }
        match label {
            Label::Events => Self::Stream,
            Label::Json => Self::Document,
            Label::None | Label::Other(_) => Self::Foreign,
        }
    }
}

fn without_blanks(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start()
}

/// The first bytes of an answer, enough to tell what it is; `None` if there is nothing but blanks.
async fn beginning(body: &mut Body, patience: Duration) -> Result<Option<Bytes>, ModelError> {
    let Some(first) = body.chunk().await? else { return Ok(None) };
    if without_blanks(&first).len() >= TELLING {
        return Ok(Some(first));
    }
    let (began, mut start) = (Instant::now(), BytesMut::from(first));
    while without_blanks(&start).len() < TELLING {
        let Some(chunk) = body.chunk().await? else { break };
        start.extend_from_slice(&chunk);
        if began.elapsed() > patience {
            return Err(without_content(patience));
        }
    }
    Ok(Some(start.freeze()).filter(|start| !without_blanks(start).is_empty()))
}

fn foreign(start: &[u8], label: &Label) -> ModelError {
    const SHOWN: usize = 200;
    let start = String::from_utf8_lossy(&start[..start.len().min(4 * SHOWN)]).trim().to_owned();
    let start = crate::escape::visible_start(&start, SHOWN).into_owned();
    let label = match label {
        Label::None => "something else",
        Label::Json => "application/json",
        Label::Events => "text/event-stream",
        Label::Other(media) => media,
    };
    let message = format!("expected JSON or an event stream, got {label}: {start}");
    ModelError::GiveUp(Fault { message, status: Some(200), ..Fault::default() })
}

/// A model that has lost its way is not listened to any further. Asked again, it may find it.
fn check_calls(decoder: &dyn Decoder) -> Result<(), ModelError> {
    if decoder.calls() <= MOST_CALLS {
        return Ok(());
    }
    let message = format!("the answer has more than {MOST_CALLS} tool calls");
    Err(ModelError::Garbled(Fault { message, ..Fault::default() }))
}

async fn drain(body: &mut Body) {
    let rest = async { while let Ok(Some(_)) = body.chunk().await {} };
    let _ = tokio::time::timeout(LONGEST_DRAIN, rest).await;
}

fn unusable_key(provider: &str) -> ModelError {
    let message = format!("the key for `{provider}` has characters that cannot be sent");
    ModelError::Authenticate(Fault { message, ..Fault::default() })
}

fn request_id(headers: &HeaderMap) -> Option<Box<str>> {
    let header = ["request-id", "x-request-id"].iter().find_map(|name| headers.get(*name));
    header.and_then(|value| value.to_str().ok()).map(Box::from)
}

fn identified(error: ModelError, request_id: Option<Box<str>>) -> ModelError {
    error.map_fault(|fault| Fault { request_id: fault.request_id.clone().or(request_id), ..fault })
}

/// Seconds, or a date. Some say it in milliseconds besides, which is more exact.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let milliseconds = text(RETRY_AFTER_MS).and_then(|text| text.parse::<f64>().ok());
    if let Some(wait) = milliseconds.and_then(|count| Duration::try_from_secs_f64(count / 1000.0).ok()) {
        return Some(wait);
    }
    let text = text(RETRY_AFTER)?;
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_may_ask_for_a_wait_in_seconds_or_by_date() {
        let now = httpdate::parse_http_date("Sun, 15 Nov 2026 12:00:00 GMT").unwrap();
        let cases = [
            ("7", Some(7.0)),
            ("0.5", Some(0.5)),
            ("Sun, 15 Nov 2026 12:00:09 GMT", Some(9.0)),
            ("Sun, 15 Nov 2026 11:00:00 GMT", Some(0.0)),
            ("-1", None),
            ("soon", None),
            ("1e300", None),
        ];
        for (text, seconds) in cases {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs_f64), "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn milliseconds_are_more_exact_than_seconds() {
        let cases = [("250", 0.25), ("0", 0.0), ("-1", 7.0), ("soon", 7.0)];
        for (milliseconds, seconds) in cases {
            let headers = [(RETRY_AFTER, "7"), (RETRY_AFTER_MS, milliseconds)];
            let headers = headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value)));
            let wait = retry_after(&headers.collect(), SystemTime::UNIX_EPOCH);
            assert_eq!(wait, Some(Duration::from_secs_f64(seconds)), "{milliseconds}");
        }
    }

    #[test]
    fn an_answer_is_what_it_begins_with_and_else_what_it_says() {
        let page = || Label::Other("text/html".into());
        let cases = [
            (r#"{"a":1}"#, page(), ResponseForm::Document),
            ("\r\n  [{}]", Label::Events, ResponseForm::Document),
            ("data: {}", Label::Json, ResponseForm::Stream),
            ("\u{feff}event: x", page(), ResponseForm::Stream),
            (": comment", Label::None, ResponseForm::Stream),
            ("<html>", page(), ResponseForm::Foreign),
            ("denied", Label::None, ResponseForm::Foreign),
            ("field: x", Label::Events, ResponseForm::Stream),
            ("oops", Label::Json, ResponseForm::Document),
        ];
        for (start, label, expected) in cases {
            assert_eq!(ResponseForm::of(start.as_bytes(), &label), expected, "{start}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_grow_is_given_up_and_one_that_does_is_not() {
        let second = Duration::from_secs(1);
        let mut growth = Growth { limit: Duration::from_secs(10), ..Growth::default() };
        for progress in 1..100 {
            growth.note(progress).unwrap();
            tokio::time::advance(9 * second).await;
            growth.note(progress).unwrap();
        }
        for _ in 0..10 {
            growth.note(99).unwrap();
            tokio::time::advance(second).await;
        }
        tokio::time::advance(second).await;
        let error = growth.note(99).unwrap_err();
        assert_eq!(error.fault().message, "bytes came for 10s, but nothing of the answer");
    }

    #[test]
    fn waits_double_up_to_a_bound() {
        let retries = Retries { attempts: 9, ..Retries::STANDARD };
        for (attempt, longest) in [(0, 0.5), (1, 1.0), (3, 4.0), (6, 30.0), (60, 30.0)] {
            let wait = retries.wait(attempt).as_secs_f64();
            assert!((longest / 2.0..=longest).contains(&wait), "{attempt}: {wait}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new("sk-123")), "Secret");
    }
}
