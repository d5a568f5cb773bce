//! The HTTP client against servers on loopback: what it sends, what it notices, what it says about it.

#![allow(clippy::unwrap_used, reason = "the exception for tests does not reach the servers that they share")]

mod proxy;
mod server;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::LOCATION;
use llm_do::http::{ExchangeStage, HttpError, HttpSettings};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use server::{Lent, SOON, Server, Wire, client, exchange, failure, post, standard_client};

const HI: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

#[tokio::test]
async fn a_request_arrives_as_it_was_given_and_its_connection_serves_the_next_ones() {
    let (heads, mut seen) = mpsc::unbounded_channel();
    let server = Server::start(move |stream| {
        let heads = heads.clone();
        async move {
            let mut wire = Wire(stream);
            while let Some(head) = wire.request().await {
                heads.send(head).unwrap();
                wire.say(HI).await;
            }
        }
    })
    .await;
    let client = standard_client();
    for _ in 0..20 {
        assert_eq!(exchange(&client, &server.url("/v1/messages?a=b")).await.unwrap(), "hi");
        let head = seen.recv().await.unwrap();
        assert_eq!(
            head,
            format!(
                "POST /v1/messages?a=b HTTP/1.1\r\nx-api-key: sk-secret\r\nhost: {}\r\ncontent-length: 5\r\n\r\n",
                server.address
            )
        );
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn chunks_are_there_as_soon_as_they_are_sent() {
    let (received, proceed) = oneshot::channel();
    let proceed = std::sync::Mutex::new(Some(proceed));
    let server = Server::start(move |stream| {
        let proceed = proceed.lock().unwrap().take().unwrap();
        async move {
            let mut wire = Wire(stream);
            wire.request().await.unwrap();
            wire.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
            proceed.await.unwrap();
            wire.say(b"6\r\nsecond\r\n0\r\ntrailer: ignored\r\n\r\n").await;
        }
    })
    .await;
    let unlimited = HttpSettings {
        connect_timeout: Duration::MAX,
        first_byte_timeout: Duration::MAX,
        idle_timeout: Duration::MAX,
        ..HttpSettings::STANDARD
    };
    let mut body = client(unlimited).send(post(&server.url("/"), "")).await.unwrap().body;
    assert_eq!(body.chunk().await.unwrap().unwrap(), "first");
    received.send(()).unwrap();
    assert_eq!(body.chunk().await.unwrap().unwrap(), "second");
    assert_eq!(body.chunk().await.unwrap(), None);
    assert_eq!(body.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_in_the_meantime_is_replaced() {
    let (closing, mut closed) = mpsc::unbounded_channel();
    let server = Server::start(move |stream| {
        let closing = closing.clone();
        async move {
            let mut wire = Wire(stream);
            wire.request().await.unwrap();
            wire.say(HI).await;
            drop(wire);
            closing.send(()).unwrap();
        }
    })
    .await;
    let client = standard_client();
    for count in 1..=3 {
        assert_eq!(exchange(&client, &server.url("/")).await.unwrap(), "hi");
        closed.recv().await.unwrap();
        assert_eq!(server.accepted(), count);
    }
}

#[tokio::test]
async fn every_status_is_an_answer_and_redirects_are_not_followed() {
    let server =
        Server::answering(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")
            .await;
    let response = standard_client().send(post(&server.url("/"), "")).await.unwrap();
    assert_eq!((response.status.as_u16(), &response.headers[LOCATION]), (307, &"/elsewhere".parse().unwrap()));
    assert_eq!(response.body.collect(0).await.unwrap(), "");

    let server = Server::answering(b"HTTP/1.1 529 Overloaded\r\ncontent-length: 4\r\n\r\nbusy").await;
    let response = standard_client().send(post(&server.url("/"), "")).await.unwrap();
    assert_eq!(response.status.as_u16(), 529);
    assert_eq!(response.body.collect(4).await.unwrap(), "busy");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let (closing, mut closed) = mpsc::unbounded_channel();
    let server = Server::start(move |stream| {
        let closing = closing.clone();
        async move {
            let mut wire = Wire(stream);
            wire.request().await.unwrap();
            wire.closed().await;
            closing.send(()).unwrap();
        }
    })
    .await;
    let client = client(HttpSettings { first_byte_timeout: SOON, ..HttpSettings::STANDARD });
    let error = failure(&client, &server.url("/")).await;
    assert_eq!(error.to_string(), format!("no answer from {} within 200ms", server.address));
    closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    let (closing, mut closed) = mpsc::unbounded_channel();
    let server = Server::start(move |stream| {
        let closing = closing.clone();
        async move {
            let mut wire = Wire(stream);
            wire.request().await.unwrap();
            wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart").await;
            wire.closed().await;
            closing.send(()).unwrap();
        }
    })
    .await;
    let client = client(HttpSettings { idle_timeout: SOON, ..HttpSettings::STANDARD });
    let mut body = client.send(post(&server.url("/"), "")).await.unwrap().body;
    assert_eq!(body.chunk().await.unwrap().unwrap(), "part");
    let error = body.chunk().await.unwrap_err();
    assert_eq!(error.to_string(), format!("{} fell silent for 200ms in the middle of its answer", server.address));
    drop(body);
    closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_wait_that_was_interrupted_loses_neither_bytes_nor_its_limit() {
    let (received, proceed) = oneshot::channel::<()>();
    let proceed = std::sync::Mutex::new(Some(proceed));
    let server = Server::start(move |stream| {
        let proceed = proceed.lock().unwrap().take().unwrap();
        async move {
            let mut wire = Wire(stream);
            wire.request().await.unwrap();
            wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").await;
            proceed.await.unwrap();
            wire.say(b"part").await;
            wire.closed().await;
        }
    })
    .await;
    let client = client(HttpSettings { idle_timeout: SOON, ..HttpSettings::STANDARD });
    let mut body = client.send(post(&server.url("/"), "")).await.unwrap().body;
    assert!(tokio::time::timeout(Duration::ZERO, body.chunk()).await.is_err());
    received.send(()).unwrap();
    assert_eq!(body.chunk().await.unwrap().unwrap(), "part");
    assert!(tokio::time::timeout(Duration::ZERO, body.chunk()).await.is_err());
    assert!(matches!(body.chunk().await, Err(HttpError::IdleTimeout { .. })));
}

#[tokio::test]
async fn a_body_that_ends_before_its_announced_end_is_cut() {
    let cases: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\npart",
    ];
    for answer in cases {
        let server = Server::closing_after(answer).await;
        let mut body = standard_client().send(post(&server.url("/"), "")).await.unwrap().body;
        assert_eq!(body.chunk().await.unwrap().unwrap(), "part");
        let error = body.chunk().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{} broke off within its answer: the connection was closed too early", server.address)
        );
        assert!(error.is_worth_a_retry());
        assert!(matches!(body.chunk().await, Ok(None)), "and then there is nothing more");
    }
}

#[tokio::test]
async fn a_reset_connection_is_told_apart_by_how_far_the_answer_had_come() {
    let (received, proceed) = oneshot::channel::<()>();
    let proceed = std::sync::Mutex::new(Some(proceed));
    let server = Server::start(move |stream| {
        let proceed = proceed.lock().unwrap().take().unwrap();
        async move {
            let mut wire = Wire(stream);
            wire.request().await.unwrap();
            wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart").await;
            proceed.await.unwrap();
            wire.reset();
        }
    })
    .await;
    let mut body = standard_client().send(post(&server.url("/"), "")).await.unwrap().body;
    assert_eq!(body.chunk().await.unwrap().unwrap(), "part");
    received.send(()).unwrap();
    let error = body.chunk().await.unwrap_err();
    let expected = format!("{} broke off within its answer: connection reset by peer", server.address);
    assert_eq!(error.to_string(), expected);

    let server = Server::start(async |stream| {
        let mut wire = Wire(stream);
        wire.request().await.unwrap();
        wire.reset();
    })
    .await;
    let error = failure(&standard_client(), &server.url("/")).await;
    let expected = format!("{} broke off before it answered: connection reset by peer", server.address);
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_server_that_closes_before_it_answers_is_cut_too() {
    for answer in [b"".as_slice(), b"HTTP/1.1 200 O", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"] {
        let server = Server::closing_after(answer).await;
        let error = failure(&standard_client(), &server.url("/")).await;
        assert!(matches!(error, HttpError::Cut { stage: ExchangeStage::BeforeAnswer, .. }), "{error}");
        assert!(error.is_worth_a_retry());
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_malformed() {
    let cases: [&[u8]; 7] = [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\x01\xff: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\x15\x03\x03\x00\x02\x02\x16, said a TLS server to a plain request\r\n\r\n",
    ];
    for answer in cases {
        let server = Server::closing_after(answer).await;
        let error = failure(&standard_client(), &server.url("/")).await;
        let expected = format!("the answer of {} is not valid HTTP: ", server.address);
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(!error.is_worth_a_retry());
    }
}

#[tokio::test]
async fn a_head_without_end_is_not_read_without_end() {
    let server = Server::start(async |stream| {
        let mut wire = Wire(stream);
        wire.request().await.unwrap();
        wire.say(b"HTTP/1.1 200 OK\r\nx: ").await;
        wire.say(&vec![b'x'; 8 * 1024 * 1024]).await;
    })
    .await;
    let error = failure(&standard_client(), &server.url("/")).await;
    assert!(matches!(error, HttpError::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn no_more_is_taken_than_was_allowed() {
    const TEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789";
    const TEN_CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n";
    for answer in [TEN, TEN_CHUNKED] {
        let server = Server::answering(answer).await;
        let url = server.url("/");
        let too_large = |limit| HttpError::TooLarge { at: server.address.to_string(), limit };
        let ask = async |maximum_response, limit| {
            let client = client(HttpSettings { maximum_response, ..HttpSettings::STANDARD });
            client.send(post(&url, "")).await?.body.collect(limit).await
        };
        assert_eq!(ask(10, 10).await.unwrap(), "0123456789");
        assert_eq!(ask(100, 9).await.unwrap_err(), too_large(9));
        assert_eq!(ask(9, 100).await.unwrap_err(), too_large(9));
        assert_eq!(ask(100, 0).await.unwrap_err(), too_large(0));
    }
}

#[tokio::test]
async fn a_dropped_exchange_closes_its_connection() {
    let (arriving, mut arrived) = mpsc::unbounded_channel();
    let (closing, mut closed) = mpsc::unbounded_channel();
    let server = Server::start(move |stream| {
        let (arriving, closing) = (arriving.clone(), closing.clone());
        async move {
            let mut wire = Wire(stream);
            let head = wire.request().await.unwrap();
            if head.starts_with("POST /body") {
                wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart").await;
            }
            arriving.send(()).unwrap();
            wire.closed().await;
            closing.send(()).unwrap();
        }
    })
    .await;
    let client = standard_client();

    let url = server.url("/head");
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.send(post(&url, "")).await }
    });
    arrived.recv().await.unwrap();
    waiting.abort();
    closed.recv().await.unwrap();

    let response = client.send(post(&server.url("/body"), "")).await.unwrap();
    drop(response);
    closed.recv().await.unwrap();

    let mut response = client.send(post(&server.url("/body"), "")).await.unwrap();
    response.body.chunk().await.unwrap();
    drop(response);
    closed.recv().await.unwrap();
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_client_that_is_dropped_closes_its_idle_connections() {
    let (closing, mut closed) = mpsc::unbounded_channel();
    let server = Server::start(move |stream| {
        let closing = closing.clone();
        async move {
            server::answer_all(Wire(stream), HI).await;
            closing.send(()).unwrap();
        }
    })
    .await;
    let client = standard_client();
    exchange(&client, &server.url("/")).await.unwrap();
    drop(client);
    closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_lent_body_comes_back_with_the_end_of_the_answer() {
    let server = Server::answering(HI).await;
    let client = standard_client();
    let mut history = Arc::new(vec![b'x'; 1000]);
    for turn in 0..200 {
        let body = Bytes::from_owner(Lent(Arc::clone(&history)));
        let response = client.send(post(&server.url("/"), body)).await.unwrap();
        assert_eq!(response.body.collect(2).await.unwrap(), "hi");
        let taken_back = Arc::get_mut(&mut history).unwrap_or_else(|| panic!("still lent after turn {turn}"));
        taken_back.extend_from_slice(&[b'y'; 100]);
    }
    Arc::get_mut(&mut history).unwrap().resize(2 * 1024 * 1024, b'z');
    for _ in 0..5 {
        let body = Bytes::from_owner(Lent(Arc::clone(&history)));
        let response = client.send(post(&server.url("/"), body)).await.unwrap();
        assert_eq!(response.body.collect(2).await.unwrap(), "hi");
        assert!(Arc::get_mut(&mut history).is_some());
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn an_answer_that_does_not_wait_for_the_whole_request_is_an_answer() {
    let server = Server::start(async |stream| {
        let mut wire = Wire(stream);
        wire.head().await.unwrap();
        wire.say(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo long").await;
        wire.closed().await;
    })
    .await;
    // More than any socket buffers.
    let response = standard_client().send(post(&server.url("/"), vec![0; 32 * 1024 * 1024])).await.unwrap();
    assert_eq!(response.status.as_u16(), 413);
    assert_eq!(response.body.collect(8).await.unwrap(), "too long");
}

#[tokio::test]
async fn nobody_listening_is_told_with_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = failure(&standard_client(), &format!("http://{address}/")).await;
    assert_eq!(error.to_string(), format!("no connection to {address}: connection refused"));
    assert!(error.is_worth_a_retry());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_told_apart() {
    // Refused by the resolver itself: a label has at most 63 letters.
    let host = "x".repeat(64) + ".invalid";
    let error = failure(&standard_client(), &format!("http://{host}/")).await;
    let expected = format!("the name `{host}` cannot be resolved: ");
    assert!(error.to_string().starts_with(&expected), "{error}");
}
