//! By way of a proxy, as behind a company's wall: every protocol, and every way a proxy can be in the way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fake_llm::{
    FakeCall, FakeLlm, FakeProxy, FakeReply as Said, FakeScript, HttpVersion, On, ProxyFault, ProxyScript, StallGate,
    Transport,
};
use llm_do::http::{HttpClient, HttpSettings, ProxySettings};
use llm_do::message::Message;
use llm_do::model::Model as _;
use llm_do::model::exchange::Exchange;
use serde_json::json;

use crate::talk::{CHAT, FORMS, Form, ask, ask_once, consequence, counted, exchange, head, result, settings};

/// One provider for each protocol.
const NAMES: [&str; 4] = ["anthropic", "openai", CHAT, "google"];

/// `user:s3cret`
const CREDENTIALS: &str = "Basic dXNlcjpzM2NyZXQ=";

fn by_way_of(proxy: &FakeProxy, fake: &FakeLlm, no_proxy: &[&str]) -> HttpSettings {
    let address = format!("http://user:s3cret@{}", proxy.address());
    let no_proxy = no_proxy.iter().map(ToString::to_string).collect();
    let proxy = ProxySettings { http: Some(address.clone()), https: Some(address), no_proxy };
    HttpSettings { proxy, ..settings(fake) }
}

fn proxied(name: &str, proxy: &FakeProxy, fake: &FakeLlm) -> Exchange {
    let http = HttpClient::new(by_way_of(proxy, fake, &[])).unwrap();
    Exchange { http, ..exchange(name, fake) }
}

/// Nothing that the provider got has to do with the proxy.
#[track_caller]
fn check_unseen(fake: &FakeLlm) {
    for request in fake.requests() {
        let headers = format!("{:?}", request.headers).to_lowercase();
        let secrets = ["proxy-", &CREDENTIALS.to_lowercase(), "s3cret"];
        assert!(secrets.iter().all(|secret| !headers.contains(secret)), "{headers}");
    }
}

#[tokio::test]
async fn a_conversation_is_one_tunnel_and_one_buffer() {
    for (transport, version) in [(Transport::Tls, HttpVersion::Http2), (Transport::TlsHttp1, HttpVersion::Http1)] {
        for (name, form) in NAMES.into_iter().flat_map(|name| FORMS.map(|form| (name, form))) {
            let case = format!("{transport:?} {name} {form:?}");
            let call = FakeCall::new("read", json!({"path": "a.txt"})).with_id("call_1");
            let script =
                FakeScript::new().reply(Said::text("I look.").and_calls([call])).reply(Said::text("It says hello."));
            let fake = FakeLlm::start_on(transport, script);
            let proxy = FakeProxy::start_with(ProxyScript::new().demand(CREDENTIALS));
            let (exchange, copied) = counted(proxied(name, &proxy, &fake));
            let mut talk = exchange.open(head(name, form));
            let mut history = vec![Message::user("What does a.txt say?")];
            let first = ask(talk.as_mut(), &history).await.reply.unwrap();
            let id = first.tool_calls().next().unwrap().id.clone();
            history.extend([Message::Assistant(first), result(&id, "hello")]);
            let second = ask(talk.as_mut(), &history).await;
            assert_eq!((second.reply.unwrap().text(), second.text.as_str()), (second.text.clone(), "It says hello."));
            fake.assert_finished();
            check_unseen(&fake);
            assert!(fake.requests().iter().all(|request| request.version == version), "{case}");
            assert_eq!(proxy.targets(), [format!("127.0.0.1:{}", fake.port())], "{case}");
            assert_eq!((proxy.tunnels(), proxy.requests(), fake.stats().connections), (1, 0, 1), "{case}");
            assert_eq!(copied.load(Ordering::SeqCst), 0, "the lent body came back in time: {case}");
        }
    }
}

#[tokio::test]
async fn a_plain_request_is_passed_on_without_the_credentials() {
    for (name, form) in NAMES.into_iter().flat_map(|name| FORMS.map(|form| (name, form))) {
        let fake = FakeLlm::start(FakeScript::new().reply(Said::text("hello")));
        let proxy = FakeProxy::start_with(ProxyScript::new().demand(CREDENTIALS));
        let outcome = ask_once(&proxied(name, &proxy, &fake), head(name, form)).await;
        assert_eq!(outcome.reply.unwrap().text(), "hello", "{name} {form:?}");
        fake.assert_finished();
        check_unseen(&fake);
        assert_eq!((proxy.tunnels(), proxy.requests()), (0, 1));
        assert!(proxy.targets()[0].starts_with(&fake.url()), "{:?}", proxy.targets());
        assert_eq!(proxy.headers()[0].get("proxy-authorization"), Some(CREDENTIALS));
    }
}

#[tokio::test]
async fn exempt_hosts_are_asked_directly() {
    for (transport, exempt) in [(Transport::Plain, "127.0.0.1"), (Transport::Tls, "127.0.0.0/8"), (Transport::Tls, "*")]
    {
        let fake = FakeLlm::start_on(transport, FakeScript::new().reply(Said::text("hello")));
        let proxy = FakeProxy::start();
        let http = HttpClient::new(by_way_of(&proxy, &fake, &[exempt])).unwrap();
        let outcome = ask_once(&Exchange { http, ..exchange(CHAT, &fake) }, head(CHAT, Form::Stream)).await;
        assert_eq!(outcome.reply.unwrap().text(), "hello", "{transport:?} {exempt}");
        check_unseen(&fake);
        assert_eq!(proxy.targets(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_refusal_of_the_proxy_is_told_with_its_status_and_without_the_password() {
    let cases = [
        (ProxyScript::new().demand("Basic other"), 407, "unreachable", 1),
        (ProxyScript::new().fault(On::Every, ProxyFault::Refuse { status: 403 }), 403, "unreachable", 1),
        (ProxyScript::new().fault(On::Every, ProxyFault::Refuse { status: 503 }), 503, "wait", 3),
    ];
    for (script, status, expected, tries) in cases {
        let fake = FakeLlm::start_on(Transport::Tls, FakeScript::new());
        let proxy = FakeProxy::start_with(script);
        let error = ask_once(&proxied(CHAT, &proxy, &fake), head(CHAT, Form::Stream)).await.reply.unwrap_err();
        let message = format!(
            "the proxy {} does not connect to 127.0.0.1:{}: it answered with status {status}",
            proxy.address(),
            fake.port()
        );
        assert_eq!((consequence(&error), error.fault().message.as_str()), (expected, message.as_str()));
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        assert_eq!((proxy.tunnels(), fake.stats().connections), (tries, 0));
    }
}

#[tokio::test]
async fn a_proxy_that_fails_once_is_asked_again() {
    let faults = [
        ProxyFault::Refuse { status: 502 },
        ProxyFault::HangUp,
        ProxyFault::Break { after: 0 },
        ProxyFault::Break { after: 100 },
        ProxyFault::Break { after: 2000 },
    ];
    for (transport, fault) in
        [Transport::Tls, Transport::Plain].into_iter().flat_map(|it| faults.clone().map(|fault| (it, fault)))
    {
        // Longer than what gets through before the proxy breaks.
        let text = "hello ".repeat(1000);
        let fake = FakeLlm::start_on(transport, FakeScript::new().otherwise(Said::text(&text)));
        let proxy = FakeProxy::start_with(ProxyScript::new().fault(On::Request(1), fault.clone()));
        let outcome = ask_once(&proxied(CHAT, &proxy, &fake), head(CHAT, Form::Stream)).await;
        let case = format!("{transport:?} {fault:?}");
        assert_eq!(outcome.reply.unwrap_or_else(|error| panic!("{case}: {error}")).text(), text, "{case}");
        assert_eq!((outcome.waits.len(), proxy.targets().len()), (1, 2), "{case}");
    }
}

#[tokio::test]
async fn a_proxy_that_says_nothing_is_no_connection() {
    let gate = StallGate::new();
    let fake = FakeLlm::start_on(Transport::Tls, FakeScript::new().reply(Said::text("hello")));
    let proxy = FakeProxy::start_with(ProxyScript::new().fault(On::Request(1), ProxyFault::Stall(gate.clone())));
    let connect_timeout = Duration::from_millis(200);
    let http = HttpClient::new(HttpSettings { connect_timeout, ..by_way_of(&proxy, &fake, &[]) }).unwrap();
    let outcome = ask_once(&Exchange { http, ..exchange(CHAT, &fake) }, head(CHAT, Form::Stream)).await;
    assert_eq!((outcome.reply.unwrap().text().as_str(), outcome.waits.len(), proxy.tunnels()), ("hello", 1, 2));
    gate.left(1).await;
}
