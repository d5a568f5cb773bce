//! The driver of every wire format: encode → send → frames → decode, and again where trying again may help.

mod told;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Uri};
use tokio::sync::OnceCell;

use super::meter::{Meter, Taken};
use super::protocol::{DecodeError, Decoder, Encoder, Protocol, Quirks};
use super::{Conversation, Fault, Head, Model, ModelError};
use crate::BoxFuture;
use crate::event::{EventKind, Events};
use crate::http::frames::{EventStream, FRAME_LIMIT};
use crate::http::{Body, Departure, HttpClient, HttpError, Request, Response};
use crate::message::{Message, Reply, ReplyPart, TextPart};
use told::Told;

/// Where a model is asked, and as whom.
#[derive(Clone)]
pub struct Endpoint {
    /// Also the name before the colon of a model's name.
    pub provider: String,
    pub protocol: &'static dyn Protocol,
    pub quirks: Quirks,
    /// The protocol's path goes behind it.
    pub base_url: String,
    pub key: Key,
}

impl Endpoint {
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
    Secret(Secret),
    /// Obtained when it is first needed.
    Later(LaterKey),
    /// Nothing is sent; the error names the variables that could hold it.
    Missing {
        variables: Vec<String>,
    },
}

/// A key. It is sent to its provider and shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Where a key comes from that is not at hand: somebody's store of passwords. It may take its time, and it says itself
/// when it has waited long enough.
pub trait KeySource: Send + Sync {
    /// The key, or why there is none; the reason is shown, so nothing of the key belongs into it.
    fn obtain(&self) -> BoxFuture<'_, Result<Secret, String>>;
}

/// A key that is obtained once, by the first request that needs it. Clones share it. A source that failed is asked
/// again by the next request: its owner may have unlocked it meanwhile.
#[derive(Clone)]
pub struct LaterKey(Arc<(OnceCell<Secret>, Box<dyn KeySource>)>);

impl LaterKey {
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
    pub longest_wait: Duration,
    /// A provider that asks for more is not waited for.
    pub longest_asked_wait: Duration,
}

impl Retries {
    pub const STANDARD: Self = Self {
        attempts: 4,
        first_wait: Duration::from_millis(500),
        longest_wait: Duration::from_secs(30),
        longest_asked_wait: Duration::from_mins(2),
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
    pub endpoint: Arc<Endpoint>,
    pub http: HttpClient,
    pub retries: Retries,
}

impl Model for Exchange {
    fn open(&self, mut head: Head) -> Box<dyn Conversation> {
        let encoder = self.endpoint.protocol.encoder(&head, &self.endpoint.quirks);
        let url = self.endpoint.url(&head);
        // The encoder has them.
        (head.instructions, head.tools) = (String::new(), Vec::new());
        Box::new(Talk { line: Line { exchange: self.clone(), head, url }, encoder, headers: Vec::new() })
    }
}

struct Talk {
    line: Line,
    encoder: Box<dyn Encoder>,
    /// The same for every request; none until the key is there.
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Everything of a conversation but its words.
struct Line {
    exchange: Exchange,
    head: Head,
    /// One that cannot be used is told by the first request.
    url: Result<Uri, ModelError>,
}

impl Conversation for Talk {
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
        let fault = Fault { message: error.to_string(), ..Fault::default() };
        if error.is_worth_a_retry() {
            return Self::Wait(fault);
        }
        match error {
            HttpError::InvalidRequest { .. } | HttpError::InvalidSetting { .. } => Self::FixRequest(fault),
            HttpError::TooLarge { .. } | HttpError::Malformed { .. } => Self::GiveUp(fault),
            // It will be the same in a minute: a certificate, a proxy that does not want to.
            HttpError::Resolve { .. }
            | HttpError::Connect { .. }
            | HttpError::ConnectTimeout { .. }
            | HttpError::Tls { .. }
            | HttpError::ProxyRefused { .. }
            | HttpError::FirstByteTimeout { .. }
            | HttpError::IdleTimeout { .. }
            | HttpError::Cut { .. } => Self::Unreachable(fault),
        }
    }
}

impl Talk {
    async fn ask(&mut self, history: &[Message], meter: &mut dyn Meter, events: &Events) -> Result<Reply, ModelError> {
        if self.headers.is_empty() {
            self.headers = self.line.headers().await?;
        }
        self.encode(history);
        let (mut told, mut garbled) = (Told::new(events), 0);
        for attempt in 0.. {
            let body = self.encoder.body(meter.longest_answer());
            let error = match self.line.attempt(&self.headers, body, history.len(), &mut told, meter).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let before = Before { attempts: attempt, garbled };
            garbled += u32::from(matches!(error, ModelError::Garbled(_)));
            let wait = self.line.wait_after(error.clone(), before)?;
            if meter.failed(&error).is_err() {
                return Err(error);
            }
            events.send(|| EventKind::RetryScheduled {
                model: self.line.head.model.to_string(),
                attempt: attempt + 1,
                wait_ms: u64::try_from(wait.length.as_millis()).unwrap_or(u64::MAX),
                reason: wait.reason,
            });
            tokio::time::sleep(wait.length).await;
            if meter.again().await.is_err() {
                return Err(error);
            }
            told.start_again();
        }
        unreachable!("the last attempt returns")
    }

    /// What the encoder has of this history stays.
    fn encode(&mut self, history: &[Message]) {
        for message in history.iter().skip(self.encoder.messages()) {
            self.encoder.push(message);
        }
    }
}

impl Line {
    /// Whether to try again, and when; else the error.
    fn wait_after(&self, error: ModelError, before: Before) -> Result<Wait, ModelError> {
        let Retries { attempts, longest_asked_wait, .. } = self.exchange.retries;
        let fault = match error {
            ModelError::Wait(fault) if before.attempts < attempts => fault,
            // Of chance, not of the provider's state: there is nothing to wait for, and nothing to hope for twice.
            ModelError::Garbled(fault) if before.attempts < attempts && before.garbled == 0 => {
                return Ok(Wait { length: Duration::ZERO, reason: fault.to_string() });
            }
            ModelError::FixRequest(_)
            | ModelError::Authenticate(_)
            | ModelError::Wait(_)
            | ModelError::Unreachable(_)
            | ModelError::ContextTooLong(_)
            | ModelError::Garbled(_)
            | ModelError::GiveUp(_) => return Err(error),
        };
        match fault.retry_after {
            Some(asked) if asked > longest_asked_wait => {
                let message = format!("{} (it asks to wait {} seconds)", fault.message, asked.as_secs());
                Err(ModelError::Wait(Fault { message, ..fault }))
            }
            Some(asked) => Ok(Wait { length: asked, reason: fault.to_string() }),
            None => Ok(Wait { length: self.exchange.retries.wait(before.attempts), reason: fault.to_string() }),
        }
    }

    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ModelError> {
        let endpoint = &self.exchange.endpoint;
        let key = match &endpoint.key {
            Key::Unneeded => None,
            Key::Secret(secret) => Some(secret.0.as_str()),
            Key::Later(later) => Some(later.obtain().await?.0.as_str()),
            Key::Missing { variables } => {
                let message = format!("no key for `{}`: set {}", endpoint.provider, variables.join(" or "));
                return Err(ModelError::Authenticate(Fault { message, ..Fault::default() }));
            }
        };
        let accepted = if self.head.stream { "text/event-stream" } else { "application/json" };
        let always = [(CONTENT_TYPE, "application/json"), (ACCEPT, accepted)];
        let mut headers = Vec::from(always.map(|(name, value)| (name, HeaderValue::from_static(value))));
        for (name, value) in endpoint.protocol.headers(&self.head, key) {
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
        told: &mut Told<'_>,
        meter: &mut dyn Meter,
    ) -> Result<Reply, ModelError> {
        // Pinned here, so that there is one of it in memory and not one for each of the arms.
        let exchange = pin!(self.exchange(headers, body, turn, told, meter));
        let attempted = match self.head.settings.timeout {
            None => exchange.await,
            Some(limit) => Box::pin(tokio::time::timeout(limit, exchange)).await.unwrap_or_else(|_| {
                let message = format!("no complete answer within {} seconds", limit.as_secs_f64());
                Err(ModelError::Wait(Fault { message, ..Fault::default() }))
            }),
        };
        attempted.map_err(|error| self.without_key(error))
    }

    /// There are servers that repeat a key to complain about it.
    fn without_key(&self, error: ModelError) -> ModelError {
        let key = match &self.exchange.endpoint.key {
            Key::Secret(Secret(key)) => key,
            Key::Later(LaterKey(later)) => match later.0.get() {
                Some(Secret(key)) => key,
                None => return error,
            },
            Key::Unneeded | Key::Missing { .. } => return error,
        };
        let hide = |text: String| if key.is_empty() { text } else { text.replace(key.as_str(), "[the key]") };
        error.map_fault(|fault| Fault { message: hide(fault.message), kind: fault.kind.map(hide), ..fault })
    }

    async fn exchange(
        &self,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
        turn: usize,
        told: &mut Told<'_>,
        meter: &mut dyn Meter,
    ) -> Result<Reply, ModelError> {
        let headers = headers.iter().cloned().collect();
        let request = Request { method: Method::POST, url: self.url.clone()?, headers, body };
        let (sending, departure) = self.exchange.http.watched(request);
        let mut sent = Sent { meter, departure, taken: None };
        let response = sending.await?;
        let request_id = request_id(&response.headers);
        // Boxed is what a stream, the usual answer, has no use for while it is read.
        let read = match Answer::of(&response, self.head.stream) {
            Answer::Refusal => {
                sent.taken = Some(Taken::Refused);
                return Err(Box::pin(self.refused(response, request_id)).await);
            }
            // Without the headers, which would hold on to the first bytes that came until the last ones are there.
            Answer::Stream => self.stream(&mut response.into_body(), turn, told, &mut sent).await,
            Answer::Document => Box::pin(self.document(response.into_body(), turn, told, &mut sent)).await,
            Answer::Foreign(content_type) => Err(Box::pin(foreign(response, &content_type)).await),
        };
        read.map_err(|error| identified(error, request_id))
    }

    async fn stream(
        &self,
        body: &mut Body,
        turn: usize,
        told: &mut Told<'_>,
        sent: &mut Sent<'_>,
    ) -> Result<Reply, ModelError> {
        let mut reading = self.reading(turn, told, sent);
        let mut frames = EventStream::new(FRAME_LIMIT);
        while let Some(chunk) = body.chunk().await? {
            let Reading { decoder: Some(decoder), told, .. } = &mut reading else { break };
            let read = frames.push(&chunk, |frame| decoder.frame(frame, &mut |delta| told.tell(delta)));
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
        }
        reading.finish()
    }

    async fn document(
        &self,
        body: Body,
        turn: usize,
        told: &mut Told<'_>,
        sent: &mut Sent<'_>,
    ) -> Result<Reply, ModelError> {
        let body = body.collect(u64::MAX).await?;
        // As a stream without events: asking again may help.
        if body.trim_ascii().is_empty() {
            return Err(DecodeError::Cut.into());
        }
        let mut reading = self.reading(turn, told, sent);
        if let Reading { decoder: Some(decoder), told, .. } = &mut reading {
            if let Err(error) = decoder.document(&body, &mut |delta| told.tell(delta)) {
                return Err(reading.broken(error));
            }
            check_calls(decoder.as_ref())?;
        }
        reading.finish()
    }

    fn reading<'a, 't, 's>(&self, turn: usize, told: &'a mut Told<'t>, sent: &'a mut Sent<'s>) -> Reading<'a, 't, 's> {
        let Endpoint { protocol, quirks, .. } = &*self.exchange.endpoint;
        Reading { decoder: Some(protocol.decoder(&self.head, quirks, turn)), told, sent }
    }

    async fn refused(&self, response: Response, request_id: Option<Box<str>>) -> ModelError {
        let status = response.status.as_u16();
        let retry_after = retry_after(&response.headers, SystemTime::now());
        // A refusal that breaks off is judged by its status.
        let body = response.body.collect(LONGEST_REFUSAL).await.unwrap_or_default();
        let error = self.exchange.endpoint.protocol.fault(status, &body);
        let error = error.map_fault(|fault| Fault { retry_after: retry_after.or(fault.retry_after), ..fault });
        identified(error, request_id)
    }
}

/// A request on its way. However it ends, also by being dropped, the meter hears how far it came.
struct Sent<'a> {
    meter: &'a mut dyn Meter,
    departure: Departure,
    /// Known once there is an answer of any kind.
    taken: Option<Taken>,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let unanswered = || if self.departure.has_begun() { Taken::Sent } else { Taken::Nothing };
        self.meter.note(self.taken.unwrap_or_else(unanswered));
    }
}

/// An answer that is being read. However that ends, what the provider has said of its cost is kept.
struct Reading<'a, 't, 's> {
    /// There until it is finished.
    decoder: Option<Box<dyn Decoder>>,
    told: &'a mut Told<'t>,
    sent: &'a mut Sent<'s>,
}

impl Reading<'_, '_, '_> {
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
            self.sent.taken = Some(Taken::Refused);
        }
        error.into()
    }

    fn note(&mut self) {
        if let Some(decoder) = &self.decoder {
            self.sent.taken = Some(Taken::Answer { reported: decoder.usage(), text: self.told.bytes });
        }
    }
}

impl Drop for Reading<'_, '_, '_> {
    fn drop(&mut self) {
        self.note();
    }
}

/// What went before a failed attempt.
#[derive(Clone, Copy)]
struct Before {
    attempts: u32,
    /// Those that gave what the provider itself could not read.
    garbled: u32,
}

struct Wait {
    length: Duration,
    reason: String,
}

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const LONGEST_REFUSAL: u64 = 1024 * 1024;
/// Far more than anybody can look at; an answer with more is a model that repeats itself.
const MOST_CALLS: usize = 128;
/// After the last event nothing of use comes: this long its end is waited for.
const LONGEST_DRAIN: Duration = Duration::from_millis(250);

/// What an answer is, by its status and content type.
enum Answer {
    Refusal,
    Stream,
    Document,
    /// Neither JSON nor an event stream: a page of some proxy.
    Foreign(String),
}

impl Answer {
    fn of(response: &Response, asked_for_stream: bool) -> Self {
        if !response.status.is_success() {
            return Self::Refusal;
        }
        let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        match content_type.split(';').next().unwrap_or_default().trim() {
            "" if asked_for_stream => Self::Stream,
            "" => Self::Document,
            "text/event-stream" => Self::Stream,
            media if media.ends_with("json") => Self::Document,
            media => Self::Foreign(media.to_owned()),
        }
    }
}

async fn foreign(response: Response, content_type: &str) -> ModelError {
    const SHOWN: usize = 200;
    let status = response.status.as_u16();
    let body = response.body.collect(LONGEST_REFUSAL).await.unwrap_or_default();
    let start = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN)]).trim().to_owned();
    let start = crate::escape::visible_start(&start, SHOWN).into_owned();
    let message = format!("expected JSON or an event stream, got {content_type}: {start}");
    ModelError::GiveUp(Fault { message, status: Some(status), ..Fault::default() })
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
