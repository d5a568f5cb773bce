//! From an address to a connection: directly or by a proxy, plain or with TLS on top.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::error::{ExchangeStage, HttpError, host_and_port};
use super::tls::LazyTls;
use super::{ProxySettings, authority_fault};
use crate::BoxFuture;

/// Which addresses are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressReach {
    Everything,
    /// Those that everybody can reach.
    Public,
}

#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    proxies: Proxies,
    tls: Arc<LazyTls>,
    timeout: Duration,
    reach: AddressReach,
}

impl Connector {
    pub(super) fn new(proxies: Proxies, tls: Arc<LazyTls>, timeout: Duration, reach: AddressReach) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Shared among the addresses of a host, so that a dead one leaves time for the next.
        tcp.set_connect_timeout(Some(timeout));
        Self { tcp, proxies, tls, timeout, reach }
    }

    async fn connect(&self, url: &Uri) -> Result<HttpStream, HttpError> {
        let proxy = self.proxies.toward(url);
        let mut tcp = match &proxy {
            None if self.reach == AddressReach::Public => self.open_public(url).await?,
            None => self.open(url, host_and_port(url)).await?,
            Some(proxy) => self.open(proxy.uri(), format!("the proxy {}", host_and_port(proxy.uri()))).await?,
        };
        if url.scheme_str() != Some("https") {
            return Ok(HttpStream::Plain { tcp: TokioIo::new(tcp), proxied: proxy.is_some() });
        }
        if let Some(proxy) = &proxy {
            tunnel(&mut tcp, url, proxy).await?;
        }
        let tls = self.tls.handshake(url, tcp).await?;
        Ok(HttpStream::Tls(Box::new(TokioIo::new(tls))))
    }

    /// Each address of the name is judged, and only one that was judged is connected to: a name may have another one a moment
    /// later.
    async fn open_public(&self, url: &Uri) -> Result<TcpStream, HttpError> {
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
        let found = tokio::net::lookup_host((host, port)).await;
        let found = found.map_err(|error| HttpError::Resolve { host: host.to_owned(), reason: error.to_string() })?;
        let addresses: Vec<SocketAddr> = found.collect();
        let refused = |reason: &str| HttpError::Connect { at: host_and_port(url), reason: reason.to_owned() };
        if addresses.iter().any(|address| !is_public(address.ip())) {
            return Err(refused("it is an address of a private network, and a public server names it"));
        }
        let mut last = refused("the name has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    let _ = tcp.set_nodelay(true);
                    return Ok(tcp);
                }
                Err(error) => last = refused(&error.to_string()),
            }
        }
        Err(last)
    }

    async fn open(&self, url: &Uri, at: String) -> Result<TcpStream, HttpError> {
        // The connector is always ready: the system's resolver has no queue of its own.
        let opened = self.tcp.clone().call(url.clone()).await;
        opened.map(TokioIo::into_inner).map_err(|error| HttpError::of_tcp(&error, url, at))
    }
}

/// Whether everybody can reach an address: it is none of this machine, of a private network or of a special use.
pub(super) fn is_public(address: IpAddr) -> bool {
    let v4 = |address: Ipv4Addr| {
        let [a, b, c, _] = address.octets();
        let is_special = address.is_loopback()
            || address.is_private()
            || address.is_link_local()
            || address.is_broadcast()
            || address.is_documentation()
            || address.is_multicast()
            || matches!((a, b, c), (0 | 240..=255, _, _) | (100, 64..=127, _) | (192, 0, 0) | (198, 18 | 19, _));
        !is_special
    };
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => match (address.to_ipv4(), address.segments()) {
            // Addresses of the old kind, in the words of the new one.
            (Some(mapped), _) => v4(mapped),
            (None, [0x64, 0xff9b, _, _, _, _, high, low] | [0x2002, high, low, ..]) => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                v4(Ipv4Addr::new(a, b, c, d))
            }
            (None, [first, second, ..]) => {
                let is_global = (first & 0xe000) == 0x2000;
                is_global && (first, second) != (0x2001, 0x0db8)
            }
        },
    }
}

impl Service<Uri> for Connector {
    type Response = HttpStream;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<HttpStream, HttpError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let connected = tokio::time::timeout(connector.timeout, connector.connect(&url)).await;
            connected.unwrap_or_else(|_| {
                Err(HttpError::ConnectTimeout { at: host_and_port(&url), after: connector.timeout })
            })
        })
    }
}

/// Which addresses are reached by which proxy.
#[derive(Clone)]
pub(super) struct Proxies(Option<Arc<Matcher>>);

impl Proxies {
    pub(super) fn new(settings: &ProxySettings) -> Result<Self, HttpError> {
        let http = checked("http", settings.http.as_deref())?;
        let https = checked("https", settings.https.as_deref())?;
        // The matcher takes the star for names only, not for addresses.
        let none_at_all = settings.no_proxy.iter().any(|exempt| exempt.trim() == "*");
        if none_at_all || (http.is_empty() && https.is_empty()) {
            return Ok(Self(None));
        }
        let matcher = Matcher::builder().http(http).https(https).no(settings.no_proxy.join(",")).build();
        Ok(Self(Some(Arc::new(matcher))))
    }

    /// What a plain request must carry because a proxy reads it. A tunnelled request shows its credentials to the
    /// proxy when the tunnel is opened, and the server at its end must not see them.
    pub(super) fn authorization(&self, url: &Uri) -> Option<HeaderValue> {
        let plain = url.scheme_str() == Some("http");
        self.toward(url).filter(|_| plain).and_then(|proxy| proxy.basic_auth().cloned())
    }

    fn toward(&self, url: &Uri) -> Option<Intercept> {
        self.0.as_ref().and_then(|matcher| matcher.intercept(url))
    }
}

/// The matcher ignores what it does not understand; going around a proxy by mistake must not happen silently. The value
/// may hold a password, so the error does not repeat it.
fn checked<'a>(scheme: &str, proxy: Option<&'a str>) -> Result<&'a str, HttpError> {
    let proxy = proxy.unwrap_or_default().trim();
    let understood = Matcher::builder().all(proxy).build().intercept(&Uri::from_static("http://sample.example/"));
    let supported = understood
        .is_some_and(|proxy| proxy.uri().scheme_str() == Some("http") && authority_fault(proxy.uri()).is_none());
    if proxy.is_empty() || supported {
        return Ok(proxy);
    }
    Err(HttpError::InvalidSetting { reason: format!("the {scheme} proxy is not of the form `http://host:port`") })
}

/// Asks the proxy for a way through to the host of `url`. Written here because the ready-made tunnel does not tell the
/// status of a refusal, which decides whether trying again makes sense.
async fn tunnel(tcp: &mut TcpStream, url: &Uri, proxy: &Intercept) -> Result<(), HttpError> {
    let target = host_and_port(url);
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(credentials) = proxy.basic_auth() {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(credentials.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");

    let proxy = host_and_port(proxy.uri());
    let at_proxy = || format!("the proxy {proxy}");
    let head = exchange_heads(tcp, &request).await;
    let head = head.map_err(|error| HttpError::of_io(&error, at_proxy(), ExchangeStage::BeforeAnswer))?;
    match status_of(&head) {
        Some(200..=299) => Ok(()),
        Some(status) => Err(HttpError::ProxyRefused { proxy, at: target, status }),
        None => Err(HttpError::Malformed { at: at_proxy(), reason: "it has no status".to_owned() }),
    }
}

/// More than any proxy says before it opens a tunnel.
const MAXIMUM_HEAD: usize = 8 * 1024;

/// Nothing but the head can come: behind an open tunnel a TLS server waits for us to speak.
async fn exchange_heads(tcp: &mut TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    tcp.write_all(request).await?;
    let mut head = Vec::with_capacity(512);
    // Searched anew after each read: the head is short, and a refusal is followed by a body.
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if head.len() >= MAXIMUM_HEAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its head is too long"));
        }
        if tcp.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = line.split(|byte| *byte == b' ');
    words.next().filter(|version| version.starts_with(b"HTTP/1."))?;
    std::str::from_utf8(words.next()?).ok()?.parse().ok()
}

pub(super) enum HttpStream {
    /// To the host itself, or to a proxy that reads the request and passes it on.
    Plain { tcp: TokioIo<TcpStream>, proxied: bool },
    /// Boxed: a TLS session is a kilobyte of state, and most connections of a local model have none.
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        match self {
            Self::Plain { proxied, .. } => Connected::new().proxy(*proxied),
            Self::Tls(stream) => match stream.inner().get_ref().1.alpn_protocol() {
                Some(b"h2") => Connected::new().negotiated_h2(),
                _ => Connected::new(),
            },
        }
        .extra(ConnectionHistory::default())
    }
}

/// Whether a connection has answered before: then the server may have closed it while it was not in use.
#[derive(Clone, Default)]
pub(super) struct ConnectionHistory(Arc<AtomicBool>);

impl ConnectionHistory {
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_noted(error: &hyper_util::client::legacy::Error) -> bool {
        let mut known = hyper::http::Extensions::new();
        error.connect_info().into_iter().for_each(|connected| connected.get_extras(&mut known));
        known.get::<Self>().is_some_and(|served| served.0.load(Ordering::Relaxed))
    }
}

impl Read for HttpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain { tcp, .. } => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl Write for HttpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain { tcp, .. } => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain { tcp, .. } => Pin::new(tcp).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain { tcp, .. } => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    // Without vectored writes hyper would copy every request body into its own buffer.
    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain { tcp, .. } => tcp.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain { tcp, .. } => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(http: &str, https: &str, no_proxy: &[&str]) -> Result<Proxies, HttpError> {
        let no_proxy = no_proxy.iter().map(ToString::to_string).collect();
        Proxies::new(&ProxySettings { http: Some(http.to_owned()), https: Some(https.to_owned()), no_proxy })
    }

    #[test]
    fn each_scheme_has_its_proxy_and_some_hosts_have_none() {
        let proxies = proxies("http://one:1", "two:2", &["local.example", "10.0.0.0/8"]).unwrap();
        let cases = [
            ("http://api.example/", Some("one:1")),
            ("https://api.example/", Some("two:2")),
            ("https://local.example/", None),
            ("https://sub.local.example/", None),
            ("https://notlocal.example/", Some("two:2")),
            ("http://10.1.2.3:8080/", None),
            ("http://11.1.2.3:8080/", Some("one:1")),
        ];
        for (url, expected) in cases {
            let proxy = proxies.toward(&Uri::from_static(url)).map(|proxy| host_and_port(proxy.uri()));
            assert_eq!(proxy.as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_proxy_that_is_not_understood_is_an_error_that_hides_it() {
        for proxy in ["socks5://u:secret@h:1", "https://u:secret@h:1", "ftp://u:secret@h", "u:secret", "http://"] {
            let error = proxies("", proxy, &[]).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some("the https proxy is not of the form `http://host:port`"), "{proxy}");
        }
        assert!(proxies("", " ", &[]).unwrap().0.is_none());
    }

    #[test]
    fn a_star_exempts_names_and_addresses() {
        let proxies = proxies("http://one:1", "http://two:2", &["*"]).unwrap();
        for url in ["http://api.example/", "https://127.0.0.1/", "https://[::1]:8080/"] {
            assert!(proxies.toward(&Uri::from_static(url)).is_none(), "{url}");
        }
    }

    #[test]
    fn credentials_of_a_proxy_go_to_the_proxy_only() {
        let proxies = proxies("http://u:p@one:1", "http://u:p@two:2", &["local.example"]).unwrap();
        let authorization = |url| proxies.authorization(&Uri::from_static(url));
        assert_eq!(authorization("http://api.example/").unwrap(), "Basic dTpw");
        assert!(authorization("http://api.example/").unwrap().is_sensitive());
        assert_eq!(authorization("https://api.example/"), None);
        assert_eq!(authorization("http://local.example/"), None);
    }

    #[test]
    fn the_status_of_a_proxy_is_read_from_its_first_line() {
        let cases: [(&[u8], Option<u16>); 6] = [
            (b"HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            (b"HTTP/1.0 407 Proxy Authentication Required\r\nX: 200\r\n\r\n", Some(407)),
            (b"HTTP/1.1 502\r\n\r\n", Some(502)),
            (b"SSH-2.0-OpenSSH 200\r\n\r\n", None),
            (b"HTTP/1.1 \xff\r\n\r\n", None),
            (b"", None),
        ];
        for (head, expected) in cases {
            assert_eq!(status_of(head), expected);
        }
    }

    #[test]
    fn only_addresses_that_everybody_reaches_are_public() {
        for public in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::1.1.1.1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "2001:db8::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }
}
