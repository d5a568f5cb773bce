//! The driver of every wire format: encode → send → frames → decode, and again where trying again may help.

mod told;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Uri};

use super::frames::{EventStream, FRAME_LIMIT};
use super::protocol::{DecodeError, Encoder, Protocol, Quirks};
use super::{Conversation, Fault, Head, Model, ModelError};
use crate::BoxFuture;
use crate::event::{EventKind, Events};
use crate::http::{HttpClient, HttpError, Request, Response};
use crate::message::{Message, Reply};
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

/// What authenticates us.
#[derive(Clone)]
pub enum Key {
    /// The provider asks for none.
    Unneeded,
    Secret(Secret),
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
    fn open(&self, head: Head) -> Box<dyn Conversation> {
        let encoder = self.endpoint.protocol.encoder(&head, &self.endpoint.quirks);
        Box::new(Talk { line: Line { exchange: self.clone(), head }, encoder })
    }
}

struct Talk {
    line: Line,
    encoder: Box<dyn Encoder>,
}

/// Everything of a conversation but its words.
struct Line {
    exchange: Exchange,
    head: Head,
}

impl Conversation for Talk {
    fn reply<'a>(&'a mut self, history: &'a [Message], events: &'a Events) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.ask(history, events))
    }

    fn rewind(&mut self, messages: usize) {
        self.encoder.truncate(messages.min(self.encoder.messages()));
    }
}

/// Why one attempt gave no reply.
struct Failed {
    error: ModelError,
    /// How long the provider asks us to wait.
    asked_wait: Option<Duration>,
    again: Again,
}

/// Whether asking again may help where waiting may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Maybe,
    /// It will be the same in a minute: a certificate, a proxy that does not want to.
    Useless,
}

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Self {
        Self { error, asked_wait: None, again: Again::Maybe }
    }
}

impl From<HttpError> for Failed {
    fn from(error: HttpError) -> Self {
        let fault = Fault { message: error.to_string(), ..Fault::default() };
        let again = if error.is_worth_a_retry() { Again::Maybe } else { Again::Useless };
        let error = match error {
            HttpError::InvalidRequest { .. } | HttpError::InvalidSetting { .. } => ModelError::FixRequest(fault),
            HttpError::TooLarge { .. } | HttpError::Malformed { .. } => ModelError::GiveUp(fault),
            HttpError::Resolve { .. }
            | HttpError::Connect { .. }
            | HttpError::ConnectTimeout { .. }
            | HttpError::Tls { .. }
            | HttpError::ProxyRefused { .. }
            | HttpError::FirstByteTimeout { .. }
            | HttpError::IdleTimeout { .. }
            | HttpError::Cut { .. } => ModelError::Wait(fault),
        };
        Self { error, asked_wait: None, again }
    }
}

impl Talk {
    async fn ask(&mut self, history: &[Message], events: &Events) -> Result<Reply, ModelError> {
        let headers = self.line.headers()?;
        self.encode(history);
        let mut told = Told::new(events);
        for attempt in 0.. {
            let body = self.encoder.body();
            let failed = match self.line.attempt(headers.clone(), body, history.len(), &mut told).await {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            let wait = self.line.wait_after(failed, attempt)?;
            events.send(|| EventKind::RetryScheduled {
                model: self.line.head.model.to_string(),
                attempt: attempt + 1,
                wait_ms: u64::try_from(wait.length.as_millis()).unwrap_or(u64::MAX),
                reason: wait.reason,
            });
            tokio::time::sleep(wait.length).await;
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
    fn wait_after(&self, failed: Failed, attempt: u32) -> Result<Wait, ModelError> {
        let Retries { attempts, longest_asked_wait, .. } = self.exchange.retries;
        let ModelError::Wait(fault) = failed.error else { return Err(failed.error) };
        if attempt >= attempts || failed.again == Again::Useless {
            return Err(ModelError::Wait(fault));
        }
        match failed.asked_wait {
            Some(asked) if asked > longest_asked_wait => {
                let message = format!("{} (it asks to wait {} seconds)", fault.message, asked.as_secs());
                Err(ModelError::Wait(Fault { message, ..fault }))
            }
            Some(asked) => Ok(Wait { length: asked, reason: fault.to_string() }),
            None => Ok(Wait { length: self.exchange.retries.wait(attempt), reason: fault.to_string() }),
        }
    }

    fn headers(&self) -> Result<HeaderMap, ModelError> {
        let endpoint = &self.exchange.endpoint;
        let key = match &endpoint.key {
            Key::Unneeded => None,
            Key::Secret(secret) => Some(secret.0.as_str()),
            Key::Missing { variables } => {
                let message = format!("no key for `{}`: set {}", endpoint.provider, variables.join(" or "));
                return Err(ModelError::Authenticate(Fault { message, ..Fault::default() }));
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accepted = if self.head.stream { "text/event-stream" } else { "application/json" };
        headers.insert(ACCEPT, HeaderValue::from_static(accepted));
        for (name, value) in endpoint.protocol.headers(&self.head, key) {
            let value = HeaderValue::try_from(value).map_err(|_| unusable_key(&endpoint.provider))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }

    async fn attempt(
        &self,
        headers: HeaderMap,
        body: Bytes,
        turn: usize,
        told: &mut Told<'_>,
    ) -> Result<Reply, Failed> {
        let request = Request { method: Method::POST, url: self.url()?, headers, body };
        let exchange = self.exchange(request, turn, told);
        let attempted = match self.head.settings.timeout {
            None => exchange.await,
            Some(limit) => tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
                let message = format!("no complete answer within {} seconds", limit.as_secs_f64());
                Err(ModelError::Wait(Fault { message, ..Fault::default() }).into())
            }),
        };
        attempted.map_err(|failed| Failed { error: self.without_key(failed.error), ..failed })
    }

    /// There are servers that repeat a key to complain about it.
    fn without_key(&self, error: ModelError) -> ModelError {
        let Key::Secret(Secret(key)) = &self.exchange.endpoint.key else { return error };
        let hide = |text: String| if key.is_empty() { text } else { text.replace(key.as_str(), "[the key]") };
        error.map_fault(|fault| Fault { message: hide(fault.message), kind: fault.kind.map(hide), ..fault })
    }

    fn url(&self) -> Result<Uri, ModelError> {
        let Endpoint { base_url, protocol, quirks, provider, .. } = &*self.exchange.endpoint;
        let url = format!("{}{}", base_url.trim_end_matches('/'), protocol.path(&self.head, quirks));
        url.parse().map_err(|error| {
            let message = format!("the base URL of `{provider}` is not an address: {error}");
            ModelError::FixRequest(Fault { message, ..Fault::default() })
        })
    }

    async fn exchange(&self, request: Request, turn: usize, told: &mut Told<'_>) -> Result<Reply, Failed> {
        let response = self.exchange.http.send(request).await?;
        let request_id = request_id(&response.headers);
        let read = match Answer::of(&response, self.head.stream) {
            Answer::Refusal => return Err(self.refused(response, request_id).await),
            Answer::Stream => self.stream(response, turn, told).await,
            Answer::Document => self.document(response, turn, told).await,
            Answer::Foreign(content_type) => Err(foreign(response, &content_type).await),
        };
        read.map_err(|failed| Failed { error: identified(failed.error, request_id), ..failed })
    }

    async fn stream(&self, mut response: Response, turn: usize, told: &mut Told<'_>) -> Result<Reply, Failed> {
        let Endpoint { protocol, quirks, .. } = &*self.exchange.endpoint;
        let mut decoder = protocol.decoder(&self.head, quirks, turn);
        let mut frames = EventStream::new(FRAME_LIMIT);
        while let Some(chunk) = response.body.chunk().await? {
            let read = frames.push(&chunk, |frame| decoder.frame(frame, &mut |delta| told.tell(delta)));
            read.map_err(ModelError::from)?;
            // What comes after the end would only be waited for; but a body read to its end leaves the connection
            // and the lent request to the next request, so what is there already is taken.
            if decoder.ended() {
                drain(&mut response).await;
                break;
            }
        }
        Ok(decoder.finish().map_err(ModelError::from)?)
    }

    async fn document(&self, response: Response, turn: usize, told: &mut Told<'_>) -> Result<Reply, Failed> {
        let Endpoint { protocol, quirks, .. } = &*self.exchange.endpoint;
        let body = response.body.collect(u64::MAX).await?;
        // As a stream without events: asking again may help.
        if body.trim_ascii().is_empty() {
            return Err(ModelError::from(DecodeError::Cut).into());
        }
        let mut decoder = protocol.decoder(&self.head, quirks, turn);
        decoder.document(&body, &mut |delta| told.tell(delta)).map_err(ModelError::from)?;
        Ok(decoder.finish().map_err(ModelError::from)?)
    }

    async fn refused(&self, response: Response, request_id: Option<String>) -> Failed {
        let status = response.status.as_u16();
        let asked_wait = retry_after(&response.headers, SystemTime::now());
        // A refusal that breaks off is judged by its status.
        let body = response.body.collect(LONGEST_REFUSAL).await.unwrap_or_default();
        let error = identified(self.exchange.endpoint.protocol.fault(status, &body), request_id);
        Failed { error, asked_wait, again: Again::Maybe }
    }
}

struct Wait {
    length: Duration,
    reason: String,
}

const LONGEST_REFUSAL: u64 = 1024 * 1024;
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

async fn foreign(response: Response, content_type: &str) -> Failed {
    const SHOWN: usize = 200;
    let status = response.status.as_u16();
    let body = response.body.collect(LONGEST_REFUSAL).await.unwrap_or_default();
    let start = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN)]).trim().to_owned();
    let start = crate::escape::visible_start(&start, SHOWN).into_owned();
    let message = format!("expected JSON or an event stream, got {content_type}: {start}");
    ModelError::GiveUp(Fault { message, status: Some(status), ..Fault::default() }).into()
}

async fn drain(response: &mut Response) {
    let rest = async { while let Ok(Some(_)) = response.body.chunk().await {} };
    let _ = tokio::time::timeout(LONGEST_DRAIN, rest).await;
}

fn unusable_key(provider: &str) -> ModelError {
    let message = format!("the key for `{provider}` has characters that cannot be sent");
    ModelError::Authenticate(Fault { message, ..Fault::default() })
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let header = ["request-id", "x-request-id"].iter().find_map(|name| headers.get(*name));
    header.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn identified(error: ModelError, request_id: Option<String>) -> ModelError {
    error.map_fault(|fault| Fault { request_id: fault.request_id.clone().or(request_id), ..fault })
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
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
