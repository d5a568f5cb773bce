//! Connections: how many there may be, and how long each may be silent.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

/// How many connections there may be, and how long one may take.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    pub most: usize,
    /// For the head of a request, and between two of them.
    pub head: Duration,
    /// For any progress of an answer that is being read.
    pub stalled: Duration,
}

impl Default for ConnectionBounds {
    fn default() -> Self {
        Self { most: 64, head: Duration::from_secs(15), stalled: Duration::from_secs(30) }
    }
}

/// A certificate with its chain, and its key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A certificate that was read, and fits its key.
#[derive(Clone)]
pub struct ServerTls(TlsAcceptor);

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

impl TlsFiles {
    /// Reads both; the error names the file.
    pub fn read(&self) -> Result<ServerTls, String> {
        let chain = CertificateDer::pem_file_iter(&self.certificate).and_then(Iterator::collect);
        let chain: Vec<CertificateDer<'static>> =
            chain.map_err(|error| format!("{}: {error}", self.certificate.display()))?;
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| format!("{}: {error}", self.key.display()))?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let config = config.map_err(|error| format!("{}: {error}", self.certificate.display()))?;
        Ok(ServerTls(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Takes connections until the end is called; then those that are open are cut.
pub async fn accept(
    listener: TcpListener,
    tls: Option<ServerTls>,
    bounds: ConnectionBounds,
    routes: Router,
    end: CancellationToken,
) {
    let seats = Arc::new(Semaphore::new(bounds.most));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = end.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        // Whoever finds no seat is sent away at once rather than kept waiting.
        let Ok((stream, _)) = accepted else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else { continue };
        let _ = stream.set_nodelay(true);
        let (routes, tls) = (routes.clone(), tls.clone());
        connections.spawn(async move {
            let stream = Patient::new(stream, bounds.stalled);
            match tls {
                Some(ServerTls(tls)) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(bounds.head, tls.accept(stream)).await {
                        serve(stream, bounds, routes).await;
                    }
                }
                None => serve(stream, bounds, routes).await,
            }
            drop(seat);
        });
    }
    connections.shutdown().await;
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, bounds: ConnectionBounds, routes: Router) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(64 * 1024).max_headers(64);
    // A client that breaks off has said so.
    let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).await;
}

/// A stream whose reader must not stand still for long once something waits to be written.
struct Patient<S> {
    stream: S,
    most: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S, most: Duration) -> Self {
        Self { stream, most, stalled: None }
    }

    fn timed<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let most = self.most;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + most)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.timed(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.timed(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.timed(cx, polled)
    }
}
