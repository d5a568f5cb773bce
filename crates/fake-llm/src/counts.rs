//! What the server counts while it works.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    pub connections: usize,
    pub requests: usize,
    /// Bytes on the wire, with TLS and HTTP.
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The most requests that were being answered at the same time.
    pub peak_concurrency: usize,
}

// Relaxed everywhere: these are figures, and nothing is synchronised by them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    in_flight: AtomicUsize,
    peak: AtomicUsize,
}

/// One request that is being answered.
pub(crate) struct InFlight(Arc<Counts>);

impl Counts {
    /// The number of the new connection, from 1.
    pub fn connected(&self) -> usize {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(now, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    pub fn stats(&self) -> Stats {
        Stats {
            connections: self.connections.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            peak_concurrency: self.peak.load(Ordering::Relaxed),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose bytes are counted below TLS, as they are on the wire.
pub(crate) struct CountedConnection {
    pub stream: TcpStream,
    pub counts: Arc<Counts>,
}

impl AsyncRead for CountedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        add(&self.counts.bytes_in, buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        add(&self.counts.bytes_out, written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn add(count: &AtomicU64, bytes: usize) {
    count.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}
