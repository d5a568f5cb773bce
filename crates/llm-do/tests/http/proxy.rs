//! By way of a proxy on loopback, plain and through a tunnel.

use llm_do::http::{HttpError, HttpSettings, ProxySettings};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::HI;
use crate::server::{SOON, Server, Wire, client, exchange, failure};
use crate::tls::Authority;

fn by_way_of(proxy: &Server, no_proxy: &[&str]) -> HttpSettings {
    let address = format!("http://us%40er:pass@{}", proxy.address);
    let no_proxy = no_proxy.iter().map(ToString::to_string).collect();
    let proxy = ProxySettings { http: Some(address.clone()), https: Some(address), no_proxy };
    HttpSettings { proxy, ..HttpSettings::STANDARD }
}

/// `us@er:pass`
const CREDENTIALS: &str = "Basic dXNAZXI6cGFzcw==";

#[tokio::test]
async fn a_plain_request_is_handed_to_the_proxy_with_its_whole_address() {
    let (heads, mut seen) = mpsc::unbounded_channel();
    let proxy = Server::start(move |stream| {
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
    let client = client(by_way_of(&proxy, &[]));
    for _ in 0..3 {
        assert_eq!(exchange(&client, "http://model.invalid:8080/v1?a=b").await.unwrap(), "hi");
        let head = seen.recv().await.unwrap();
        assert!(head.starts_with("POST http://model.invalid:8080/v1?a=b HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nhost: model.invalid:8080\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nproxy-authorization: {CREDENTIALS}\r\n")), "{head}");
    }
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_secure_request_goes_through_a_tunnel() {
    let authority = Authority::new();
    let (heads, mut seen) = mpsc::unbounded_channel();
    let server = authority.serve_http1(HI, Some(heads)).await;
    let (tunnels, mut asked) = mpsc::unbounded_channel();
    let target = server.address;
    let proxy = Server::start(move |stream| {
        let tunnels = tunnels.clone();
        async move {
            let mut wire = Wire(stream);
            tunnels.send(wire.request().await.unwrap()).unwrap();
            wire.say(b"HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n").await;
            let _ = copy_bidirectional(&mut wire.0, &mut TcpStream::connect(target).await.unwrap()).await;
        }
    })
    .await;
    let client = client(HttpSettings { extra_certificates: authority.pem(), ..by_way_of(&proxy, &[]) });
    for _ in 0..3 {
        assert_eq!(exchange(&client, "https://localhost/v1").await.unwrap(), "hi");
        let head = seen.recv().await.unwrap();
        assert!(head.starts_with("POST /v1 HTTP/1.1\r\n") && !head.contains("proxy-authorization"), "{head}");
    }
    assert_eq!(
        asked.recv().await.unwrap(),
        format!("CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\nProxy-Authorization: {CREDENTIALS}\r\n\r\n")
    );
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn exempt_hosts_are_reached_directly() {
    let authority = Authority::new();
    let secure = authority.serve_http1(HI, None).await;
    let plain = Server::answering(HI).await;
    let proxy = Server::answering(b"HTTP/1.1 500 Never\r\ncontent-length: 0\r\n\r\n").await;
    let settings = by_way_of(&proxy, &["127.0.0.0/8", "localhost"]);
    let client = client(HttpSettings { extra_certificates: authority.pem(), ..settings });
    assert_eq!(exchange(&client, &plain.url("/")).await.unwrap(), "hi");
    let url = format!("https://localhost:{}/", secure.address.port());
    assert_eq!(exchange(&client, &url).await.unwrap(), "hi");
    assert_eq!((plain.accepted(), secure.accepted(), proxy.accepted()), (1, 1, 0));
}

#[tokio::test]
async fn a_proxy_that_refuses_a_tunnel_is_told_with_its_status() {
    let cases: [(&[u8], &str, bool); 2] = [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 6\r\n\r\n<html>", "status 407", false),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "status 503", true),
    ];
    for (answer, status, worth_a_retry) in cases {
        let proxy = Server::answering(answer).await;
        let error = failure(&client(by_way_of(&proxy, &[])), "https://model.invalid/").await;
        let expected =
            format!("the proxy {} does not connect to model.invalid:443: it answered with {status}", proxy.address);
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.is_worth_a_retry(), worth_a_retry);
        assert!(!format!("{error:?}").contains("pass"), "{error:?}");
    }
}

#[tokio::test]
async fn a_proxy_that_misbehaves_is_told_as_the_proxy() {
    let cases: [(&[u8], &str); 3] = [
        (b"", "broke off before it answered: the connection was closed too early"),
        (b"HTTP/1.1 200 OK\r\n", "broke off before it answered: the connection was closed too early"),
        (b"220 mail.example ESMTP\r\n\r\n", "is not valid HTTP: it has no status"),
    ];
    for (answer, expected) in cases {
        let proxy = Server::closing_after(answer).await;
        let error = failure(&client(by_way_of(&proxy, &[])), "https://model.invalid/").await.to_string();
        assert!(error.contains(&format!("the proxy {} {expected}", proxy.address)), "{error}");
    }
    let endless = Server::start(async |stream| {
        let mut wire = Wire(stream);
        wire.request().await.unwrap();
        wire.say(&vec![b'x'; 1024 * 1024]).await;
    })
    .await;
    let error = failure(&client(by_way_of(&endless, &[])), "https://model.invalid/").await;
    assert!(matches!(error, HttpError::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn a_proxy_that_is_not_there_or_does_not_answer_is_no_connection() {
    let silent = Server::start(async |stream| Wire(stream).closed().await).await;
    let impatient = client(HttpSettings { connect_timeout: SOON, ..by_way_of(&silent, &[]) });
    let error = failure(&impatient, "https://model.invalid/").await;
    assert_eq!(error.to_string(), "no connection to model.invalid:443 within 200ms");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let proxy = ProxySettings { http: Some(address.to_string()), ..ProxySettings::NONE };
    let error = failure(&client(HttpSettings { proxy, ..HttpSettings::STANDARD }), "http://model.invalid/").await;
    assert_eq!(error.to_string(), format!("no connection to the proxy {address}: connection refused"));
}
