//! A proxy on loopback: opens tunnels and passes plain requests on, or fails to as told.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::TcpStream;

use crate::fault::On;
use crate::gate::StallGate;
use crate::http1::{RawRequest, read_head, read_request};
use crate::request::Headers;
use crate::server::RunningServer;

/// A running proxy. It stops when it is dropped.
pub struct FakeProxy {
    shared: Arc<FakeProxyState>,
    running: RunningServer,
}

/// How a proxy behaves.
#[derive(Debug, Clone)]
pub struct ProxyScript {
    /// The value of `proxy-authorization` that is demanded.
    credentials: Option<String>,
    faults: Vec<(On, ProxyFault)>,
}

/// One thing that goes wrong, with the requests that the proxy is sent, `CONNECT` among them.
#[derive(Debug, Clone)]
pub enum ProxyFault {
    /// An answer with this status and a page.
    Refuse { status: u16 },
    /// Nothing is said until the gate opens.
    Stall(StallGate),
    /// The connection is closed without an answer.
    HangUp,
    /// The connection is closed after this many bytes of what comes back.
    Break { after: u64 },
}

/// A request as the proxy saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProxiedRequest {
    method: String,
    target: String,
    headers: Headers,
}

struct FakeProxyState {
    script: ProxyScript,
    asked: Mutex<Vec<ProxiedRequest>>,
}

impl ProxyScript {
    #[expect(clippy::new_without_default, reason = "as with the other script, it is only a beginning")]
    pub fn new() -> Self {
        Self { credentials: None, faults: Vec::new() }
    }

    /// Refuses clients that do not send `proxy-authorization: VALUE`.
    #[must_use]
    pub fn demand(mut self, value: &str) -> Self {
        self.credentials = Some(value.to_owned());
        self
    }

    #[must_use]
    pub fn fault(mut self, on: On, fault: ProxyFault) -> Self {
        self.faults.push((on, fault));
        self
    }
}

impl FakeProxy {
    /// Passes everything on.
    pub fn start() -> Self {
        Self::start_with(ProxyScript::new())
    }

    pub fn start_with(script: ProxyScript) -> Self {
        let shared = Arc::new(FakeProxyState { script, asked: Mutex::default() });
        let serving = Arc::clone(&shared);
        // How a connection ends is known to its client and its server, so it is not reported here.
        let serve = move |client| {
            let shared = Arc::clone(&serving);
            async move { drop(shared.serve(client).await) }
        };
        let running = RunningServer::start("fake-proxy", serve).expect("loopback has a free port, and there is room");
        Self { shared, running }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        self.running.address.to_string()
    }

    /// How often clients asked for a tunnel, with or without success.
    pub fn tunnels(&self) -> usize {
        self.shared.asked().iter().filter(|asked| asked.is_tunnel()).count()
    }

    /// How many plain requests came to be passed on.
    pub fn requests(&self) -> usize {
        self.shared.asked().iter().filter(|asked| !asked.is_tunnel()).count()
    }

    /// What tunnels and requests were asked for: `host:port`, or a whole address.
    pub fn targets(&self) -> Vec<String> {
        self.shared.asked().iter().map(|asked| asked.target.clone()).collect()
    }

    /// The headers of everything that was asked for.
    pub fn headers(&self) -> Vec<Headers> {
        self.shared.asked().iter().map(|asked| asked.headers.clone()).collect()
    }
}

impl ProxiedRequest {
    fn of(request: &RawRequest) -> Self {
        let headers = request.headers().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Self {
            method: request.method().to_owned(),
            target: request.target().to_owned(),
            headers: Headers(headers.collect()),
        }
    }

    fn is_tunnel(&self) -> bool {
        self.method == "CONNECT"
    }
}

impl FakeProxyState {
    fn asked(&self) -> MutexGuard<'_, Vec<ProxiedRequest>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a request, from 1.
    fn note(&self, asked: ProxiedRequest) -> usize {
        let mut all = self.asked();
        all.push(asked);
        all.len()
    }

    /// Serves one request for each connection, which is closed after the answer.
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut inbound = BytesMut::new();
        let Some(request) = read_request(&mut client, &mut inbound).await? else { return Ok(()) };
        let number = self.note(ProxiedRequest::of(&request));
        let mut limit = u64::MAX;
        for (_, fault) in self.script.faults.iter().filter(|(on, _)| on.includes(number)) {
            match fault {
                ProxyFault::Refuse { status } => return refuse(&mut client, *status).await,
                ProxyFault::Stall(gate) => stand_at(gate.clone(), &mut client).await?,
                ProxyFault::HangUp => return Ok(()),
                ProxyFault::Break { after } => limit = *after,
            }
        }
        let shown = request.header("proxy-authorization");
        if self.script.credentials.as_deref().is_some_and(|demanded| shown != Some(demanded)) {
            return refuse(&mut client, 407).await;
        }
        if request.method() == "CONNECT" {
            tunnel(&mut client, request.target(), limit).await
        } else {
            pass_on(&mut client, &request, limit).await
        }
    }
}

async fn stand_at(gate: StallGate, client: &mut TcpStream) -> io::Result<()> {
    tokio::select! {
        () = gate.pass() => Ok(()),
        // The client does not speak before it has the answer, so whatever is read here is the end of the connection.
        _ = client.read_u8() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn refuse(client: &mut TcpStream, status: u16) -> io::Result<()> {
    let page = "<html>no</html>";
    let answer = format!(
        "HTTP/1.1 {status} Refused\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}

async fn tunnel(client: &mut TcpStream, target: &str, limit: u64) -> io::Result<()> {
    let Ok(mut server) = TcpStream::connect(target).await else { return refuse(client, 502).await };
    server.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    if limit == u64::MAX {
        return copy_bidirectional(client, &mut server).await.map(drop);
    }
    let (mut from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let mut from_server = from_server.take(limit);
    tokio::select! {
        ended = copy(&mut from_server, &mut to_client) => ended.map(drop),
        ended = copy(&mut from_client, &mut to_server) => ended.map(drop),
    }
}

/// Passes a request on as a proxy has to: with the path alone, and without what was said to the proxy itself.
async fn pass_on(client: &mut TcpStream, request: &RawRequest, limit: u64) -> io::Result<()> {
    let Some((authority, path)) = split_address(request.target()) else { return refuse(client, 400).await };
    let Ok(mut server) = TcpStream::connect(authority).await else { return refuse(client, 502).await };
    let mut sent = format!("{} {path} HTTP/1.1\r\nconnection: close\r\n", request.method());
    let ours = ["proxy-authorization", "connection", "proxy-connection", "transfer-encoding", "content-length"];
    for (name, value) in request.headers().filter(|(name, _)| !ours.contains(&name.to_ascii_lowercase().as_str())) {
        sent.push_str(&format!("{name}: {value}\r\n"));
    }
    sent.push_str(&format!("content-length: {}\r\n\r\n", request.body.len()));
    server.write_all(sent.as_bytes()).await?;
    server.write_all(&request.body).await?;
    let mut inbound = BytesMut::new();
    let Some(head) = read_head(&mut server, &mut inbound).await? else { return refuse(client, 502).await };
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let mut answer = head.as_bytes().chain(&inbound[..]).chain(server).take(limit);
    copy(&mut answer, client).await?;
    client.shutdown().await
}

/// `http://host:port/path?query` → `host:port`, `/path?query`
fn split_address(target: &str) -> Option<(&str, &str)> {
    let rest = target.strip_prefix("http://")?;
    let start = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(start);
    Some((authority, if path.is_empty() { "/" } else { path }))
}
