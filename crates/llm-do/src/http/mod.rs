//! The only HTTP of the library: pooled connections, TLS from the first `https` address on, proxies, time limits.
//!
//! No environment variable is read here and no runtime is built: settings are values, and futures run on the caller's
//! tokio runtime (with its I/O and time enabled). Dropping a future or a response ends the exchange: over HTTP/1.1 the
//! connection is closed, over HTTP/2 the stream is reset.

mod connect;
mod error;
pub mod frames;
mod hold;
mod inflate;
mod tls;
mod upload;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderMap, PROXY_AUTHORIZATION};
use hyper::{Method, StatusCode, Uri};
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use connect::{AddressReach, ConnectionHistory, Connector, Proxies};
use error::host_and_port;
use hold::HeldBack;
use inflate::{Encoding, InflateError};
use tls::LazyTls;
use upload::{Upload, UploadProgress};

pub use error::{ExchangeStage, HttpError};

use crate::descriptors;

/// Everything that may be set, each with a usual value: `HttpSettings { idle_timeout, ..HttpSettings::STANDARD }`.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// From the name of a host to a connection that can be used, TLS and proxy included.
    pub connect_timeout: Duration,
    /// From the last part of the request that was taken to the first byte of the answer.
    pub first_byte_timeout: Duration,
    /// The same of an answer that takes its time: a whole document, or that of a model that thinks first.
    pub slow_first_byte_timeout: Duration,
    /// Between two parts of an answer.
    pub idle_timeout: Duration,
    /// Within which an answer must grow: bytes that add nothing to it, such as pings, do not count.
    pub content_timeout: Duration,
    /// In bytes of one answer's body.
    pub maximum_response: u64,
    /// Through which proxies connections go.
    pub proxy: ProxySettings,
    /// PEM: authorities that are trusted besides the compiled-in ones. Empty: none.
    pub extra_certificates: Vec<u8>,
    /// Trust the authorities of the system, too. Loading them takes milliseconds, and the system's own conventions
    /// apply: `SSL_CERT_FILE` and `SSL_CERT_DIR` say where they are.
    pub system_roots: bool,
}

impl HttpSettings {
    /// What suits hosted models: patient with the first byte, no proxy, and answers of at most 64 MiB.
    pub const STANDARD: Self = Self {
        connect_timeout: Duration::from_secs(10),
        first_byte_timeout: Duration::from_mins(2),
        slow_first_byte_timeout: Duration::from_mins(10),
        idle_timeout: Duration::from_mins(1),
        content_timeout: Duration::from_mins(10),
        maximum_response: 64 * 1024 * 1024,
        proxy: ProxySettings::NONE,
        extra_certificates: Vec::new(),
        system_roots: false,
    };
}

/// `http://host:port` for each scheme, credentials as `http://user:password@host:port`.
#[derive(Clone, PartialEq)]
pub struct ProxySettings {
    /// Reads plain requests and passes them on.
    pub http: Option<String>,
    /// Opens tunnels for `https`.
    pub https: Option<String>,
    /// Domains (with all below them), addresses, networks (`10.0.0.0/8`), or `*`.
    pub no_proxy: Vec<String>,
}

impl ProxySettings {
    /// Every address is reached directly.
    pub const NONE: Self = Self { http: None, https: None, no_proxy: Vec::new() };
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |proxy: &Option<String>| if proxy.is_some() { "set" } else { "none" };
        let Self { http, https, no_proxy } = self;
        write!(f, "ProxySettings {{ http: {}, https: {}, no_proxy: {no_proxy:?} }}", set(http), set(https))
    }
}

/// One request, whole: its body is in memory before it is sent.
#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub url: Uri,
    pub headers: HeaderMap,
    /// May be lent with [`Bytes::from_owner`]: it is given back when the answer has been read to its end.
    pub body: Bytes,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, url, headers, body } = self;
        let names: Vec<&str> = headers.keys().map(hyper::header::HeaderName::as_str).collect();
        write!(f, "Request({method} {}{}, {names:?}, {} bytes)", host_and_port(url), url.path(), body.len())
    }
}

/// How soon an answer can be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Usual,
    /// It begins late, and then comes at once.
    Late,
    /// It may be silent for long, before it begins and in between.
    Slow,
}

/// The answer to a request, whatever its status: redirects are not followed, and refusals are not errors here.
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
}

impl Response {
    /// Lets go of all but the body.
    pub(crate) fn into_body(self) -> Body {
        self.body
    }
}

/// Sends requests. It is cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct HttpClient {
    shared: Arc<HttpClientState>,
}

struct HttpClientState {
    client: Client<Connector, Upload>,
    proxies: Proxies,
    first_byte_timeout: Duration,
    slow_first_byte_timeout: Duration,
    idle_timeout: Duration,
    content_timeout: Duration,
    maximum_response: u64,
    held_back: HeldBack,
    #[cfg(test)]
    tls: Arc<LazyTls>,
}

/// A connection may have died unnoticed while its owner slept. HTTP/1.1 closes it with the request that fails; an HTTP/2
/// connection would stay in the pool for the retry, so that it is asked for a sign of life while an answer is awaited.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);

impl HttpClient {
    /// Makes a client, which opens no connection yet. The only error is a proxy setting that names no proxy.
    pub fn new(settings: HttpSettings) -> Result<Self, HttpError> {
        Self::reaching(AddressReach::Everything, settings)
    }

    /// Makes a client that connects to addresses that everybody can reach, and to no other: for addresses that somebody else
    /// chose. It goes through a proxy all the same, which decides for itself.
    pub(crate) fn among_public(settings: HttpSettings) -> Result<Self, HttpError> {
        Self::reaching(AddressReach::Public, settings)
    }

    fn reaching(reach: AddressReach, settings: HttpSettings) -> Result<Self, HttpError> {
        let proxies = Proxies::new(&settings.proxy)?;
        let tls = Arc::new(LazyTls::new(settings.extra_certificates, settings.system_roots));
        let connector = Connector::new(proxies.clone(), Arc::clone(&tls), settings.connect_timeout, reach);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new()) // without it idle connections are never dropped
            .pool_max_idle_per_host(if descriptors::are_few() { 0 } else { usize::MAX })
            .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
            .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT)
            .build(connector);
        let shared = HttpClientState {
            client,
            proxies,
            first_byte_timeout: settings.first_byte_timeout,
            slow_first_byte_timeout: settings.slow_first_byte_timeout.max(settings.first_byte_timeout),
            content_timeout: settings.content_timeout,
            idle_timeout: settings.idle_timeout,
            maximum_response: settings.maximum_response,
            held_back: HeldBack::default(),
            #[cfg(test)]
            tls,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whoever is called this wants to be left alone so long, by all requests of this client.
    pub(crate) fn hold_back(&self, name: &str, wait: Duration) {
        self.shared.held_back.hold(name, wait);
    }

    /// Until when whoever is called this is not asked.
    pub(crate) fn held_back_until(&self, name: &str) -> Option<tokio::time::Instant> {
        self.shared.held_back.until(name)
    }

    /// How long the first byte of an answer is waited for.
    pub(crate) fn first_byte_timeout(&self, pace: Pace) -> Duration {
        match pace {
            Pace::Usual => self.shared.first_byte_timeout,
            Pace::Late | Pace::Slow => self.shared.slow_first_byte_timeout,
        }
    }

    /// How long the next part of an answer is waited for.
    pub(crate) fn idle_timeout(&self, pace: Pace) -> Duration {
        match pace {
            Pace::Usual | Pace::Late => self.shared.idle_timeout,
            Pace::Slow => self.shared.idle_timeout.max(self.shared.slow_first_byte_timeout),
        }
    }

    /// Within which an answer must grow. The code that reads the answer decides what makes it grow.
    pub(crate) fn content_timeout(&self) -> Duration {
        self.shared.content_timeout
    }

    /// Returns with the head of the answer; its body follows as it comes.
    pub fn send(&self, request: Request) -> impl Future<Output = Result<Response, HttpError>> + Send + '_ {
        self.watched(request, Pace::Usual).0
    }

    /// Sends JSON and gives the status of the answer and its body, which has at most `limit` bytes: with 0 none is read. A
    /// redirect is not followed, and what is not encrypted goes to this machine only.
    #[cfg(feature = "front-end")]
    pub async fn post_json(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: String,
        limit: u64,
    ) -> Result<(u16, Vec<u8>), String> {
        check_confidential(url)?;
        let url: Uri = url.parse().map_err(|error| format!("the address is none: {error}"))?;
        let json = [("content-type".to_owned(), "application/json".to_owned())];
        let headers = header_map(json.iter().chain(headers))?;
        let request = Request { method: Method::POST, url, headers, body: Bytes::from(body) };
        let answer = self.send(request).await.map_err(|error| error.to_string())?;
        let status = answer.status.as_u16();
        let body = if limit == 0 { Ok(Bytes::new()) } else { answer.into_body().collect(limit).await };
        Ok((status, body.map_err(|error| error.to_string())?.to_vec()))
    }

    /// Sends a body and gives the status of the answer, of which nothing else is read but how long it asks to be left alone.
    /// A redirect is not followed.
    pub(crate) async fn post(
        &self,
        url: &str,
        headers: &[(String, String)],
        content_type: &str,
        body: Bytes,
    ) -> Result<(u16, Option<Duration>), String> {
        let url: Uri = url.parse().map_err(|error| format!("the address is none: {error}"))?;
        let content_type = [("content-type".to_owned(), content_type.to_owned())];
        let headers = header_map(content_type.iter().chain(headers))?;
        let answer = self.send(Request { method: Method::POST, url, headers, body }).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let asked = answer.headers.get(hyper::header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok((answer.status.as_u16(), asked.map(Duration::from_secs)))
    }

    /// The status and the body of a document, which has at most `limit` bytes. A redirect is not followed, and what is not
    /// encrypted is asked of this machine only.
    #[cfg(feature = "front-end")]
    pub async fn get(&self, url: &str, limit: u64) -> Result<(u16, Vec<u8>), String> {
        check_confidential(url)?;
        let url: Uri = url.parse().map_err(|error| format!("the address is none: {error}"))?;
        let request = Request { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() };
        let answer = self.send(request).await.map_err(|error| error.to_string())?;
        let status = answer.status.as_u16();
        let body = answer.into_body().collect(limit).await.map_err(|error| error.to_string())?;
        Ok((status, body.to_vec()))
    }

    /// The same at a pace, and what tells whether anything of the request has left.
    pub(crate) fn watched(
        &self,
        request: Request,
        pace: Pace,
    ) -> (impl Future<Output = Result<Response, HttpError>> + Send + '_, Departure) {
        let departure = Departure::default();
        let watched = departure.clone();
        // Boxed: the future would otherwise be as large as the request as long as the exchange takes.
        let request = Box::new(request);
        let answered = async move {
            check_address(&request.url)?;
            let permit = descriptors::connection().await;
            let first_byte = self.first_byte_timeout(pace);
            // One timer for all of the exchange: it is only moved.
            let mut timer = Box::pin(sleep_until(later(Instant::now(), first_byte)));
            let answer = self.answer(&request, &mut timer, first_byte, &watched).await?;
            let (head, incoming) = answer.into_parts();
            let first = Some(first_byte.max(self.shared.idle_timeout));
            let silence = Silence { limit: self.idle_timeout(pace), first, timer, since: None };
            let (url, limit) = (request.url, self.shared.maximum_response);
            let encoding = Encoding::Unread;
            let received = Receiving { incoming, url, silence, limit, received: 0, encoding, _permit: permit };
            Ok(Response { status: head.status, headers: head.headers, body: Body(Box::new(received)) })
        };
        (answered, departure)
    }

    /// A kept connection that the server had closed meanwhile has taken no request: another one is used at once.
    async fn answer(
        &self,
        request: &Request,
        timer: &mut Pin<Box<Sleep>>,
        after: Duration,
        departure: &Departure,
    ) -> Result<hyper::Response<Incoming>, HttpError> {
        for stale in 0.. {
            let (answer, progress) = self.ask(request);
            departure.watch(&progress);
            match wait(answer, timer, &progress, &request.url, after).await {
                Ok(answer) => {
                    answer.extensions().get::<ConnectionHistory>().into_iter().for_each(ConnectionHistory::note);
                    return Ok(answer);
                }
                Err(ResponseFailure { was_kept: true, error: HttpError::Cut { .. } }) if stale < MOST_STALE => {}
                Err(ResponseFailure { error, .. }) => return Err(error),
            }
        }
        unreachable!("the last connection returns")
    }

    fn ask(&self, request: &Request) -> (ResponseFuture, UploadProgress) {
        let Request { method, url, mut headers, body } = request.clone();
        // Any of them may be a key, and a value that is marked is not printed by a program that traces hyper.
        headers.values_mut().for_each(|value| value.set_sensitive(true));
        if let Some(credentials) = self.shared.proxies.authorization(&url) {
            headers.insert(PROXY_AUTHORIZATION, credentials);
        }
        let (upload, progress) = Upload::new(body);
        let mut message = hyper::Request::new(upload);
        *message.method_mut() = method;
        *message.uri_mut() = url;
        *message.headers_mut() = headers;
        (self.shared.client.request(message), progress)
    }
}

/// How many kept connections may turn out to be closed before that is reported as an error.
const MOST_STALE: u32 = 3;

/// Why there is no head of an answer.
struct ResponseFailure {
    error: HttpError,
    /// Whether the connection had answered an earlier request.
    was_kept: bool,
}

async fn wait(
    mut answer: ResponseFuture,
    timer: &mut Pin<Box<Sleep>>,
    progress: &UploadProgress,
    url: &Uri,
    after: Duration,
) -> Result<hyper::Response<Incoming>, ResponseFailure> {
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer.map_err(|error| ResponseFailure {
                was_kept: ConnectionHistory::is_noted(&error),
                error: HttpError::of_sending(&error, url),
            }),
            () = timer.as_mut() => {}
        }
        // A long body on a slow line: it is still being taken, and the answer cannot come before its end.
        let deadline = later(progress.last(), after);
        if deadline <= timer.deadline() {
            let (at, was_kept) = (host_and_port(url), false);
            let error = if progress.is_taken() {
                HttpError::FirstByteTimeout { at, after }
            } else {
                HttpError::SendTimeout { at, after }
            };
            return Err(ResponseFailure { error, was_kept });
        }
        timer.as_mut().reset(deadline);
    }
}

/// Whether anything of a request has left: there was a connection that took it.
#[derive(Clone, Default)]
pub(crate) struct Departure(Arc<Mutex<Option<UploadProgress>>>);

impl Departure {
    /// Of the latest connection: one that had been closed has taken nothing.
    fn watch(&self, progress: &UploadProgress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress.clone());
    }

    /// Whether a connection has taken any byte of the request, so that the other side may have acted on it.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(UploadProgress::has_begun)
    }
}

/// Whether what is sent to an address can be read on the way: it is encrypted, or stays on this machine.
pub fn check_confidential(url: &str) -> Result<(), String> {
    let url: Uri = url.parse().map_err(|error| format!("the address is none: {error}"))?;
    check_address(&url).map_err(|error| error.to_string())?;
    let host = url.host().unwrap_or_default();
    let address: Result<std::net::IpAddr, _> = host.trim_matches(['[', ']']).parse();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if url.scheme_str() == Some("https") || is_here {
        return Ok(());
    }
    Err("only https goes to other machines".to_owned())
}

/// Whether an address is that of a machine that not everybody reaches, as far as its name says it.
pub(crate) fn is_private_host(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse() {
        Ok(address) => !connect::is_public(address),
        // Names without a dot, and those that stand for this machine or its network.
        Err(_) => {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            let kinds = [".localhost", ".local", ".internal", ".home.arpa", ".lan"];
            !name.contains('.') || kinds.iter().any(|kind| name.ends_with(kind))
        }
    }
}

/// Whether something could be posted there, with these headers.
pub(crate) fn check_post(url: &str, headers: &[(String, String)]) -> Result<(), String> {
    let url: Uri = url.parse().map_err(|error| format!("the address is none: {error}"))?;
    check_address(&url).map_err(|error| error.to_string())?;
    header_map(headers.iter()).map(drop)
}

/// A header that stands twice is the last one.
fn header_map<'a>(headers: impl Iterator<Item = &'a (String, String)>) -> Result<HeaderMap, String> {
    let mut all = HeaderMap::new();
    for (name, value) in headers {
        // Its value may be a key, and is not shown.
        let wrong = || format!("`{name}` is no header");
        let known: hyper::header::HeaderName = name.parse().map_err(|_| wrong())?;
        all.insert(known, value.parse().map_err(|_| wrong())?);
    }
    Ok(all)
}

fn check_address(url: &Uri) -> Result<(), HttpError> {
    let fault = match url.scheme_str() {
        Some("http" | "https") => authority_fault(url),
        Some(_) => Some("the address is neither http nor https"),
        None => Some("the address has no scheme and host"),
    };
    fault.map_or(Ok(()), |reason| Err(HttpError::InvalidRequest { reason: reason.to_owned() }))
}

/// What is wrong with an authority that hyper would accept silently: it takes the default port where it cannot read
/// one.
fn authority_fault(url: &Uri) -> Option<&'static str> {
    let (Some(authority), Some(host)) = (url.authority(), url.host()) else { return Some("the address has no host") };
    if authority.as_str().contains('@') {
        return Some("credentials do not belong into an address");
    }
    let has_port = authority.as_str().len() > host.len();
    (has_port && url.port_u16().is_none()).then_some("the address has no valid port")
}

/// The body of an answer, as it comes. Boxed: it goes from future to future, each of which has room for it.
pub struct Body(Box<Receiving>);

struct Receiving {
    incoming: Incoming,
    url: Uri,
    silence: Silence,
    /// Of what was received, as it is behind its encoding.
    limit: u64,
    received: u64,
    encoding: Encoding,
    _permit: Option<SemaphorePermit<'static>>,
}

impl Body {
    /// The next bytes, or `None` at the end that the server announced. After an error there is nothing more to read.
    ///
    /// May be dropped while it waits, and called again, without losing bytes.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        poll_fn(|cx| self.0.poll_chunk(cx)).await
    }

    /// The whole body, if it has at most `limit` bytes.
    pub async fn collect(mut self, limit: u64) -> Result<Bytes, HttpError> {
        let receiving = &mut self.0;
        receiving.limit = receiving.limit.min(limit);
        if receiving.incoming.size_hint().lower() > receiving.limit {
            return Err(receiving.too_large());
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.chunk().await? else { return Ok(first) };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }
}

impl Receiving {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, HttpError>> {
        while let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            self.silence.end();
            match frame {
                None if self.encoding.is_whole() => return Poll::Ready(Ok(None)),
                None => {
                    let (at, reason) = (host_and_port(&self.url), "what it compressed is not whole".to_owned());
                    return Poll::Ready(Err(HttpError::Cut { at, stage: ExchangeStage::InAnswer, reason }));
                }
                Some(Err(error)) => {
                    return Poll::Ready(Err(HttpError::of_exchange(&error, &self.url, ExchangeStage::InAnswer)));
                }
                Some(Ok(frame)) => {
                    // Trailers say nothing that is used here.
                    let Ok(chunk) = frame.into_data() else { continue };
                    let chunk = match self.encoding.decode(chunk, self.limit.saturating_sub(self.received)) {
                        Ok(chunk) if chunk.is_empty() => continue,
                        Ok(chunk) => chunk,
                        Err(InflateError::TooLarge) => return Poll::Ready(Err(self.too_large())),
                        Err(InflateError::Malformed) => {
                            let (at, reason) = (host_and_port(&self.url), "it cannot be inflated".to_owned());
                            return Poll::Ready(Err(HttpError::Malformed { at, reason }));
                        }
                    };
                    self.silence.first = None;
                    self.received = self.received.saturating_add(chunk.len() as u64);
                    let within = self.received <= self.limit;
                    return Poll::Ready(if within { Ok(Some(chunk)) } else { Err(self.too_large()) });
                }
            }
        }
        ready!(self.silence.poll_limit(cx));
        let at = host_and_port(&self.url);
        Poll::Ready(Err(match self.silence.first {
            Some(after) => HttpError::FirstByteTimeout { at, after },
            None => HttpError::IdleTimeout { at, after: self.silence.limit },
        }))
    }

    fn too_large(&self) -> HttpError {
        HttpError::TooLarge { at: host_and_port(&self.url), limit: self.limit }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({}, {} bytes received)", host_and_port(&self.0.url), self.0.received)
    }
}

/// How long nothing has come. A stream has thousands of silences, and nearly all are short: the timer is left where an
/// earlier one put it, and moved only when it goes off too early.
struct Silence {
    limit: Duration,
    /// Until the first byte has come.
    first: Option<Duration>,
    timer: Pin<Box<Sleep>>,
    /// Since when a reader waits; `None` while none does.
    since: Option<Instant>,
}

impl Silence {
    fn end(&mut self) {
        self.since = None;
    }

    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.first.unwrap_or(self.limit);
        let end = later(*self.since.get_or_insert_with(Instant::now), limit);
        // At first it is where the wait for the first byte would have ended.
        if self.timer.deadline() > end {
            self.timer.as_mut().reset(end);
        }
        ready!(self.timer.as_mut().poll(cx));
        if self.timer.deadline() == end {
            return Poll::Ready(());
        }
        self.timer.as_mut().reset(end);
        self.timer.as_mut().poll(cx)
    }
}

/// A time so much later. A limit may be set to anything, `Duration::MAX` included: a time that no clock can show is
/// replaced by one a lifetime away.
fn later(start: Instant, by: Duration) -> Instant {
    const LIFETIME: Duration = Duration::from_hours(24 * 365 * 100);
    start.checked_add(by).unwrap_or_else(|| start + LIFETIME)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn post(url: &str) -> Request {
        Request {
            method: Method::POST,
            url: url.parse().unwrap(),
            headers: HeaderMap::from_iter([(hyper::header::AUTHORIZATION, "Bearer sk-secret".parse().unwrap())]),
            body: Bytes::from_static(b"hello"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silences_do_not_add_up_and_the_first_long_one_ends_the_wait() {
        let (limit, longer, shorter) = (Duration::from_secs(10), Duration::from_mins(1), Duration::from_secs(7));
        let timer = Box::pin(tokio::time::sleep(longer));
        let mut silence = Silence { limit, first: None, timer, since: None };
        for _ in 0..5 {
            let waited = tokio::time::timeout(shorter, poll_fn(|cx| silence.poll_limit(cx))).await;
            assert!(waited.is_err(), "a short silence is none too many");
            silence.end();
        }
        let started = Instant::now();
        poll_fn(|cx| silence.poll_limit(cx)).await;
        assert_eq!(started.elapsed(), limit);
    }

    #[tokio::test]
    async fn tls_is_set_up_by_the_first_https_address_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
            }
        });
        let client = HttpClient::new(HttpSettings::STANDARD).unwrap();
        let response = client.send(post(&format!("http://{address}/"))).await.unwrap();
        assert_eq!(response.body.collect(10).await.unwrap(), "hi");
        assert!(!client.shared.tls.is_set_up());

        let error = client.send(post(&format!("https://{address}/"))).await.unwrap_err();
        assert_eq!(error.to_string(), format!("no secure connection to {address}: it does not speak TLS"));
        assert!(client.shared.tls.is_set_up());
    }

    #[tokio::test]
    async fn a_client_among_public_addresses_connects_to_no_other() {
        use futures_util::FutureExt as _;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = HttpClient::among_public(HttpSettings::STANDARD).unwrap();
        for host in
            ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "169.254.169.254", "10.0.0.1"]
        {
            let error = client.send(post(&format!("http://{host}:{port}/"))).await.unwrap_err().to_string();
            assert!(error.contains("a private network") || error.contains("cannot be resolved"), "{host}: {error}");
        }
        assert!(listener.accept().now_or_never().is_none(), "nobody was connected");
        for (url, expected) in [
            ("https://127.0.0.1/mcp", true),
            ("https://localhost/mcp", true),
            ("https://hub/mcp", true),
            ("https://hub.internal/mcp", true),
            ("https://10.1.2.3/mcp", true),
            ("https://mcp.example.com/mcp", false),
            ("https://1.1.1.1/mcp", false),
        ] {
            assert_eq!(is_private_host(url), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn addresses_that_cannot_be_meant_are_refused_without_repeating_them() {
        let client = HttpClient::new(HttpSettings::STANDARD).unwrap();
        let cases = [
            ("http://user:secret@127.0.0.1:1/", "credentials do not belong into an address"),
            ("ftp://127.0.0.1/secret", "the address is neither http nor https"),
            ("http://127.0.0.1:65536/", "the address has no valid port"),
            ("/secret", "the address has no scheme and host"),
            ("127.0.0.1:1", "the address has no scheme and host"),
        ];
        for (url, reason) in cases {
            let error = client.send(post(url)).await.unwrap_err();
            assert_eq!(error.to_string(), format!("the request cannot be sent: {reason}"));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", post("http://127.0.0.1:1/v1/x?key=sk-secret"));
        assert_eq!(shown, r#"Request(POST 127.0.0.1:1/v1/x, ["authorization"], 5 bytes)"#);
        let proxy = ProxySettings { https: Some("http://u:secret@h:1".to_owned()), ..ProxySettings::NONE };
        let shown = format!("{:?}", HttpSettings { proxy, ..HttpSettings::STANDARD });
        assert!(!shown.contains("secret") && shown.contains("https: set"), "{shown}");
    }

    #[test]
    fn futures_can_move_between_threads() {
        fn check<Argument, Output: Send>(_: impl FnOnce(Argument) -> Output) {}
        let client = HttpClient::new(HttpSettings::STANDARD).unwrap();
        check(|request| client.send(request));
        check(|body: Body| body.collect(1));
        check(|mut body: Body| async move { body.chunk().await });
    }
}
