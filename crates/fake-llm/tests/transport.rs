//! Connections, TLS, HTTP/2, counts, and the constant server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use client::{ANTHROPIC, CHAT, End, RESPONSES, ask, body, connect, exchange, finish, read_until, request, say, stream};
use fake_llm::{
    At, Constant, Cut, FakeCall, FakeLlm, FakeReply, FakeScript, HttpVersion, InjectedFault, On, StallGate, Transport,
};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

#[test]
fn fifty_connections_are_answered_at_the_same_time() {
    let gate = StallGate::new();
    let script = FakeScript::new().otherwise(FakeReply::text("hello"));
    let fake = FakeLlm::start(script.fault(On::Every, InjectedFault::StallBeforeHead(gate.clone())));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..50)
            .map(|index| {
                scope.spawn({
                    let fake = &fake;
                    move || say(fake, if index % 2 == 0 { ANTHROPIC } else { CHAT }, "hi")
                })
            })
            .collect();
        gate.wait_until_reached(50);
        gate.release();
        for client in clients {
            assert_eq!(client.join().unwrap().status, 200);
        }
    });
    fake.assert_finished();
    let stats = fake.stop();
    assert_eq!((stats.connections, stats.requests, stats.peak_concurrency), (50, 50, 50));
}

#[test]
fn replies_in_order_are_each_served_once_to_parallel_clients() {
    let script = (0..50).fold(FakeScript::new(), |script, index| script.reply(FakeReply::text(&index.to_string())));
    let fake = FakeLlm::start(script);
    let mut texts: Vec<usize> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..50).map(|_| scope.spawn(|| say(&fake, ANTHROPIC, "hi").json())).collect();
        let documents = clients.into_iter().map(|client| client.join().unwrap());
        documents.map(|document| document["content"][0]["text"].as_str().unwrap().parse().unwrap()).collect()
    });
    texts.sort_unstable();
    assert_eq!(texts, (0..50).collect::<Vec<_>>());
    fake.assert_finished();
}

#[test]
fn a_connection_is_used_again_and_bytes_are_counted() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("hello")));
    let text = body(CHAT, "hi", true).to_string();
    let (first, second) = (request(CHAT, &text, false), request(CHAT, &text, true));
    let mut wire = connect(&fake);
    wire.write_all(first.as_bytes()).unwrap();
    let received = read_until(&mut wire, "0\r\n\r\n").len();
    let last = exchange(&mut wire, &second);
    assert_eq!(last.end, End::Complete);
    let requests = fake.requests();
    assert_eq!(
        requests.iter().map(|request| (request.number, request.connection)).collect::<Vec<_>>(),
        [(1, 1), (2, 1)]
    );
    let stats = fake.stop();
    assert_eq!((stats.connections, stats.requests, stats.peak_concurrency), (1, 2, 1));
    assert_eq!((stats.bytes_in, stats.bytes_out), ((first.len() + second.len()) as u64, 2 * received as u64));
}

#[test]
fn bytes_that_are_no_request_are_refused_and_recorded() {
    let fake = FakeLlm::start(FakeScript::new());
    assert_eq!(exchange(&mut connect(&fake), "hello\r\n\r\n").status, 400);
    assert_eq!(fake.violations()[0].reason, "not HTTP: no request line of HTTP/1.1");
}

/// A client that trusts this server and speaks these protocols.
fn tls_config(fake: &FakeLlm, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(fake.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

fn tls(fake: &FakeLlm, name: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(tls_config(fake, &[b"http/1.1"]), name).unwrap();
    StreamOwned::new(connection, connect(fake))
}

#[test]
fn tls_is_trusted_by_its_own_authority_under_both_names() {
    let fake = FakeLlm::start_on(Transport::Tls, FakeScript::new().otherwise(FakeReply::text("hello")));
    assert!(fake.url().starts_with("https://127.0.0.1:"));
    for name in ["127.0.0.1", "localhost"] {
        let text = body(ANTHROPIC, "hi", false).to_string();
        let response = exchange(&mut tls(&fake, name), &request(ANTHROPIC, &text, true));
        assert_eq!(response.json()["content"][0]["text"], "hello");
    }
    fake.assert_finished();
}

#[test]
fn another_authority_is_not_trusted() {
    let fake = FakeLlm::start_on(Transport::Tls, FakeScript::new());
    let other = FakeLlm::start_on(Transport::Tls, FakeScript::new());
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(tls_config(&other, &[]), name).unwrap();
    let mut wire = StreamOwned::new(connection, connect(&fake));
    assert!(wire.write_all(b"GET / HTTP/1.1\r\n\r\n").and_then(|()| wire.read_exact(&mut [0])).is_err());
}

#[test]
fn faults_work_under_tls() {
    for (how, end) in [(Cut::Reset, End::Reset), (Cut::Eof, End::Early), (Cut::Clean, End::Complete)] {
        let script = FakeScript::new()
            .reply(FakeReply::text("hello"))
            .fault(On::First(1), InjectedFault::cut(At::Percent(50), how));
        let fake = FakeLlm::start_on(Transport::Tls, script);
        let text = body(CHAT, "hi", true).to_string();
        assert_eq!(exchange(&mut tls(&fake, "localhost"), &request(CHAT, &text, true)).end, end, "{how:?}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// An HTTP/2 connection, agreed upon by ALPN.
async fn http2_connection(fake: &FakeLlm) -> http2::SendRequest<Full<Bytes>> {
    let socket = tokio::net::TcpStream::connect(("127.0.0.1", fake.port())).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(tls_config(fake, &[b"h2", b"http/1.1"]));
    let wire = connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap();
    assert_eq!(wire.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(wire)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn http2_request(text: &str, stream: bool) -> hyper::Request<Full<Bytes>> {
    hyper::Request::post(format!("https://localhost{ANTHROPIC}"))
        .header("content-type", "application/json")
        .header("x-api-key", "k")
        .header("anthropic-version", "2023-06-01")
        .body(Full::from(body(ANTHROPIC, text, stream).to_string()))
        .unwrap()
}

#[test]
fn http2_carries_many_answers_on_one_connection() {
    let gate = StallGate::new();
    let script = FakeScript::new().otherwise(FakeReply::text("hello"));
    let script = script.fault(On::Every, InjectedFault::Stall { at: At::Percent(50), gate: gate.clone() });
    let fake = FakeLlm::start_on(Transport::Tls, script);
    runtime().block_on(async {
        let sender = http2_connection(&fake).await;
        let asked = (0..20).map(|index| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let response = sender.send_request(http2_request("hi", index % 2 == 0)).await.unwrap();
                response.into_body().collect().await.unwrap().to_bytes()
            })
        });
        let asked: Vec<_> = asked.collect();
        gate.reached(20).await;
        gate.release();
        for answer in asked {
            assert!(String::from_utf8(answer.await.unwrap().to_vec()).unwrap().contains("end_turn"));
        }
    });
    fake.assert_finished();
    assert!(fake.requests().iter().all(|request| request.version == HttpVersion::Http2));
    let stats = fake.stop();
    assert_eq!((stats.connections, stats.requests, stats.peak_concurrency), (1, 20, 20));
}

#[test]
fn http2_cuts_one_stream_and_notices_who_leaves() {
    let total =
        stream(&FakeLlm::start(FakeScript::new().reply(FakeReply::text("hello"))), ANTHROPIC, "hi").body().len();
    let gate = StallGate::new();
    let script = FakeScript::new()
        .reply(FakeReply::text("hello"))
        .fault(On::Request(1), InjectedFault::cut(At::Percent(50), Cut::Reset))
        .fault(On::Request(2), InjectedFault::Stall { at: At::Percent(50), gate: gate.clone() })
        .fault(On::Request(3), InjectedFault::status(529));
    let fake = FakeLlm::start_on(Transport::Tls, script);
    runtime().block_on(async {
        let mut sender = http2_connection(&fake).await;
        let mut cut = sender.send_request(http2_request("hi", true)).await.unwrap().into_body();
        let mut received = 0;
        while let Ok(frame) = cut.frame().await.expect("a cut is no end") {
            received += frame.into_data().unwrap().len();
        }
        assert_eq!(received, total / 2);
        let stalled = sender.send_request(http2_request("hi", true)).await.unwrap();
        gate.reached(1).await;
        drop(stalled);
        gate.left(1).await;
        assert_eq!(sender.send_request(http2_request("hi", true)).await.unwrap().status(), 529);
        let whole = sender.send_request(http2_request("hi", true)).await.unwrap();
        assert!(whole.into_body().collect().await.is_ok());
    });
    fake.assert_finished();
}

#[test]
fn the_constant_server_answers_http2_as_well() {
    let fake = FakeLlm::start_on(Transport::Tls, Constant::reply(FakeReply::text("hello")));
    let bytes = runtime().block_on(async {
        let mut sender = http2_connection(&fake).await;
        let response = sender.send_request(http2_request("hi", false)).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    });
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["content"][0]["text"], "hello");
}

#[test]
fn the_constant_server_says_the_same_as_a_script() {
    let reply = FakeReply::thinking("hm", "sig").and_text("hello");
    let constant = FakeLlm::start(Constant::reply(reply.clone()));
    for path in [ANTHROPIC, CHAT, RESPONSES] {
        for wants_stream in [true, false] {
            let scripted = FakeLlm::start(FakeScript::new().reply(reply.clone()));
            let mut asked = body(path, "hi", wants_stream);
            asked["model"] = json!("fake");
            if path == CHAT && wants_stream {
                asked["stream_options"] = json!({"include_usage": true});
            }
            let (expected, got) = (ask(&scripted, path, &asked), ask(&constant, path, &asked));
            assert_eq!((&got.head, got.pieces), (&expected.head, expected.pieces));
        }
    }
    assert_eq!(say(&constant, "/else", "hi").status, 404);
    assert!(constant.requests().is_empty());
}

#[test]
fn a_constant_tool_loop_calls_and_then_speaks() {
    let step = FakeReply::calls([FakeCall::new("noop", json!({}))]).and_text("so");
    let fake = FakeLlm::start(Constant::tool_loop(3, step, FakeReply::text("done")));
    let mut asked = body(ANTHROPIC, "hi", false);
    for turn in 0..3 {
        let content = ask(&fake, ANTHROPIC, &asked).json()["content"].clone();
        assert_eq!(content[0]["id"], format!("call_loop_{turn:08}"));
        let result = json!({"type": "tool_result", "tool_use_id": content[0]["id"], "content": "ok"});
        let messages = asked["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": [result]}));
    }
    assert_eq!(ask(&fake, ANTHROPIC, &asked).json()["content"][0]["text"], "done");
    let chunks = stream(&fake, CHAT, "hi").text();
    assert!(chunks.contains("call_loop_00000000") && chunks.contains("tool_calls"), "{chunks}");
}

#[test]
fn a_constant_server_can_wait_until_everybody_has_asked() {
    let fake = FakeLlm::start(Constant::reply(FakeReply::text("now")).together(3));
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| assert_eq!(say(&fake, ANTHROPIC, "hi").json()["content"][0]["text"], "now"));
        }
    });
    assert_eq!(fake.stop().peak_concurrency, 3);
}

#[test]
fn the_program_serves_until_its_input_closes() {
    for mode in [&["--constant"][..], &[]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-llm"))
            .args(["--text", "ab", "--deltas", "3", "--stats"])
            .args(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap();
        let mut wire = TcpStream::connect(address).unwrap();
        wire.write_all(request(CHAT, &body(CHAT, "hi", false).to_string(), true).as_bytes()).unwrap();
        assert_eq!(finish(&mut wire).json()["choices"][0]["message"]["content"], "ababab");
        drop(child.stdin.take());
        let mut stats = String::new();
        output.read_to_string(&mut stats).unwrap();
        let stats: Value = serde_json::from_str(&stats).unwrap();
        assert_eq!((&stats["requests"], &stats["violations"]), (&json!(1), &json!([])));
        assert!(child.wait().unwrap().success());
    }
}
