//! Servers on loopback that do exactly what a test tells them, wrong things included.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Uri};
use llm_do::http::{HttpClient, HttpError, HttpSettings, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Server {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Server {
    /// Serves each connection with `serve`, until the test's runtime ends.
    pub async fn start<F, S>(serve: F) -> Self
    where
        F: Fn(TcpStream) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { address, accepted }
    }

    /// Answers every request of every connection with the same bytes.
    pub async fn answering(answer: &'static [u8]) -> Self {
        Self::start(move |stream| answer_all(Wire(stream), answer)).await
    }

    /// Answers one request with these bytes, closes the connection, and so for each connection.
    pub async fn closing_after(answer: &'static [u8]) -> Self {
        Self::start(async move |stream| {
            let mut wire = Wire(stream);
            if wire.request().await.is_some() {
                wire.say(answer).await;
            }
        })
        .await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

pub async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>, answer: &[u8]) {
    while wire.request().await.is_some() {
        wire.say(answer).await;
    }
}

/// The server's end of a connection.
pub struct Wire<S>(pub S);

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Reads one request with its body; the head is returned. `None`: the client closed the connection.
    pub async fn request(&mut self) -> Option<String> {
        let head = self.head().await?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.ok()?;
        Some(head)
    }

    pub async fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.ok()?);
        }
        Some(String::from_utf8(head).unwrap())
    }

    pub async fn say(&mut self, bytes: &[u8]) {
        // A client that has gone away is the test's intention.
        let _ = self.0.write_all(bytes).await;
        let _ = self.0.flush().await;
    }

    /// Returns when the client has closed the connection.
    pub async fn closed(&mut self) {
        while self.0.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
    }
}

impl Wire<TcpStream> {
    pub fn reset(self) {
        self.0.set_zero_linger().unwrap();
    }
}

pub fn client(settings: HttpSettings) -> HttpClient {
    HttpClient::new(settings).unwrap()
}

pub fn standard_client() -> HttpClient {
    client(HttpSettings::STANDARD)
}

/// Soon enough to wait for in a test.
pub const SOON: Duration = Duration::from_millis(200);

pub fn post(url: &str, body: impl Into<Bytes>) -> Request {
    let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), HeaderValue::from_static("sk-secret"))]);
    Request { method: Method::POST, url: url.parse::<Uri>().unwrap(), headers, body: body.into() }
}

/// One whole exchange: what the body says, or the first error on the way.
pub async fn exchange(client: &HttpClient, url: &str) -> Result<Bytes, HttpError> {
    client.send(post(url, "hello")).await?.body.collect(u64::MAX).await
}

/// The error of one whole exchange, which also never shows the key.
pub async fn failure(client: &HttpClient, url: &str) -> HttpError {
    let error = exchange(client, url).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("sk-secret"));
    error
}

/// Bytes that somebody wants back.
pub struct Lent(pub Arc<Vec<u8>>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
