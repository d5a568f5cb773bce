//! With TLS on top, by a throw-away authority: trust, and the choice between HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use llm_do::http::{HttpClient, HttpError, HttpSettings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::HI;
use crate::server::{Lent, Server, Wire, client, exchange, failure, post, standard_client};

/// Signs certificates that nobody trusts unless told to.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn pem(&self) -> Vec<u8> {
        self.pem.clone().into_bytes()
    }

    fn acceptor(&self, name: &str, protocol: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    async fn serve<F, S>(&self, name: &str, protocol: &str, serve: F) -> Server
    where
        F: Fn(TlsStream<TcpStream>) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let acceptor = self.acceptor(name, protocol);
        let serve = Arc::new(serve);
        Server::start(move |stream| {
            let (acceptor, serve) = (acceptor.clone(), Arc::clone(&serve));
            async move {
                // A client that does not trust us hangs up.
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream).await;
                }
            }
        })
        .await
    }

    pub async fn serve_http1(&self, answer: &'static [u8], heads: Option<UnboundedSender<String>>) -> Server {
        self.serve("localhost", "http/1.1", move |stream| {
            let heads = heads.clone();
            async move {
                let mut wire = Wire(stream);
                while let Some(head) = wire.request().await {
                    if let Some(heads) = &heads {
                        heads.send(head).unwrap();
                    }
                    wire.say(answer).await;
                }
            }
        })
        .await
    }

    async fn serve_http2<F, B>(&self, answer: F) -> Server
    where
        F: Fn() -> B + Clone + Send + Sync + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        self.serve("localhost", "h2", move |stream| {
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    assert_eq!(request.version(), Version::HTTP_2);
                    assert_eq!(request.headers()["x-api-key"], "sk-secret");
                    request.into_body().collect().await.unwrap();
                    Ok::<_, Infallible>(Response::new(answer()))
                }
            });
            async move {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await
    }

    fn client(&self) -> HttpClient {
        client(HttpSettings { extra_certificates: self.pem(), ..HttpSettings::STANDARD })
    }
}

fn secure(server: &Server) -> String {
    format!("https://localhost:{}/v1", server.address.port())
}

fn hi() -> Full<Bytes> {
    Full::from("hi")
}

#[tokio::test]
async fn a_trusted_server_is_spoken_to_in_http1() {
    let authority = Authority::new();
    let (heads, mut seen) = mpsc::unbounded_channel();
    let server = authority.serve_http1(HI, Some(heads)).await;
    let client = authority.client();
    for _ in 0..3 {
        assert_eq!(exchange(&client, &secure(&server)).await.unwrap(), "hi");
        assert!(seen.recv().await.unwrap().starts_with("POST /v1 HTTP/1.1\r\n"));
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_server_that_offers_http2_is_spoken_to_in_it_over_one_connection() {
    let authority = Authority::new();
    let server = authority.serve_http2(hi).await;
    let client = authority.client();
    assert_eq!(exchange(&client, &secure(&server)).await.unwrap(), "hi");
    let url = secure(&server);
    let (first, second, third) =
        tokio::join!(exchange(&client, &url), exchange(&client, &url), exchange(&client, &url));
    assert_eq!((first.unwrap(), second.unwrap(), third.unwrap()), ("hi".into(), "hi".into(), "hi".into()));
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_not_trusted() {
    let server = Authority::new().serve_http1(HI, None).await;
    for client in [standard_client(), Authority::new().client()] {
        let error = failure(&client, &secure(&server)).await;
        let expected = format!(
            "no secure connection to localhost:{}: its certificate is not signed by a trusted authority",
            server.address.port()
        );
        assert_eq!(error.to_string(), expected);
        assert!(!error.is_worth_a_retry());
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_not_trusted() {
    let authority = Authority::new();
    let server = authority.serve("other.example", "http/1.1", async |_| {}).await;
    let error = failure(&authority.client(), &secure(&server)).await;
    assert!(matches!(error, HttpError::Tls { .. }) && error.to_string().contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn extra_certificates_that_are_none_are_told_when_they_are_needed() {
    let server = Server::answering(HI).await;
    let client = client(HttpSettings { extra_certificates: b"nonsense".to_vec(), ..HttpSettings::STANDARD });
    assert_eq!(exchange(&client, &server.url("/")).await.unwrap(), "hi");
    let error = failure(&client, &secure(&server)).await;
    assert_eq!(error.to_string(), "the extra certificates cannot be used: no PEM certificate in them");
}

#[tokio::test]
async fn a_connection_lost_during_the_handshake_may_be_tried_again() {
    let server = Server::start(async |stream| drop(stream)).await;
    let error = failure(&standard_client(), &secure(&server)).await;
    assert!(error.is_worth_a_retry(), "{error}");
    assert!(matches!(error, HttpError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn a_secure_answer_that_ends_too_early_is_cut() {
    let authority = Authority::new();
    let server = authority
        .serve("localhost", "http/1.1", async |stream| {
            let mut wire = Wire(stream);
            wire.request().await.unwrap();
            wire.say(b"HTTP/1.1 200 OK\r\n\r\nuntil the connection is cl").await;
        })
        .await;
    // Without a length only the connection's proper end tells a whole answer from a part: over TLS it is signed.
    let error = failure(&authority.client(), &secure(&server)).await;
    assert!(matches!(error, HttpError::Cut { .. }), "{error}");
}

#[tokio::test]
async fn a_lent_body_comes_back_over_tls_and_over_http2() {
    let authority = Authority::new();
    for server in [authority.serve_http1(HI, None).await, authority.serve_http2(hi).await] {
        let client = authority.client();
        let mut history = Arc::new(vec![b'x'; 1000]);
        for turn in 0..200 {
            let body = Bytes::from_owner(Lent(Arc::clone(&history)));
            let response = client.send(post(&secure(&server), body)).await.unwrap();
            assert_eq!(response.body.collect(2).await.unwrap(), "hi");
            let taken_back = Arc::get_mut(&mut history).unwrap_or_else(|| panic!("still lent after turn {turn}"));
            taken_back.extend_from_slice(&[b'y'; 100]);
        }
        Arc::get_mut(&mut history).unwrap().resize(2 * 1024 * 1024, b'z');
        let body = Bytes::from_owner(Lent(Arc::clone(&history)));
        let response = client.send(post(&secure(&server), body)).await.unwrap();
        assert_eq!(response.body.collect(2).await.unwrap(), "hi");
        assert!(Arc::get_mut(&mut history).is_some());
    }
}

#[tokio::test]
async fn a_dropped_http2_answer_ends_its_stream_and_keeps_the_connection() {
    let authority = Authority::new();
    let (dropping, mut dropped) = mpsc::unbounded_channel();
    let server = authority.serve_http2(move || Endless(dropping.clone())).await;
    let client = authority.client();
    for _ in 0..2 {
        let response = client.send(post(&secure(&server), "")).await.unwrap();
        drop(response);
        dropped.recv().await.unwrap();
    }
    assert_eq!(server.accepted(), 1);
}

/// A body that never ends and tells when nobody wants it any more.
struct Endless(UnboundedSender<()>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
