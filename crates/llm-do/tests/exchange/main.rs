//! The driver of the wire formats against a provider on loopback that checks what it is sent and breaks as told.

#![allow(clippy::unwrap_used, reason = "the whole target is a test, its helpers included")]

mod foreign;
mod lenient;
mod proxy;
mod rows;
mod talk;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fake_llm::{
    At, Cut, FakeCall, FakeFinish as Ending, FakeLlm, FakeProviderError, FakeReply as Said, FakeScript, HttpVersion,
    InjectedFault, On, RetryAfter, StallGate, Transport,
};
use llm_do::BoxFuture;
use llm_do::event::{EventKind, Events, Listen};
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::message::{Arguments, Finish, Message, ToolResult};
use llm_do::model::Model as _;
use llm_do::model::exchange::{Endpoint, Exchange, Key, KeySource, LaterKey, Retries, Secret};
use llm_do::model::meter::UnlimitedMeter;
use llm_do::model::provider::provider;
use serde_json::json;

use talk::{
    ANTHROPIC, CHAT, FORMS, Form, RETRIES, ask, ask_once, consequence, counted, endpoint, exchange, head, result,
    settings,
};

#[tokio::test]
async fn a_conversation_is_one_connection_and_one_buffer_over_every_transport() {
    let transports = [
        (Transport::Plain, HttpVersion::Http1),
        (Transport::TlsHttp1, HttpVersion::Http1),
        (Transport::Tls, HttpVersion::Http2),
    ];
    for (transport, version) in transports {
        for (name, form) in [ANTHROPIC, CHAT].into_iter().flat_map(|name| FORMS.map(|form| (name, form))) {
            let call = FakeCall::new("read", json!({"path": "a.txt"})).with_id("call_1");
            let script =
                FakeScript::new().reply(Said::text("I look.").and_calls([call])).reply(Said::text("It says hello."));
            let fake = FakeLlm::start_on(transport, script);
            let (exchange, copied) = counted(exchange(name, &fake));
            let mut talk = exchange.open(head(name, form));
            let mut history = vec![Message::user("What does a.txt say?")];
            let first = ask(talk.as_mut(), &history).await.reply.unwrap();
            assert_eq!((first.text().as_str(), first.finish), ("I look.", Finish::ToolCalls));
            history.extend([Message::Assistant(first), result("call_1", "hello")]);
            let second = ask(talk.as_mut(), &history).await;
            assert_eq!((second.reply.unwrap().text(), second.text.as_str()), (second.text.clone(), "It says hello."));
            fake.assert_finished();
            let requests = fake.requests();
            assert!(requests.iter().all(|request| request.version == version), "{transport:?}");
            assert!(requests.iter().all(|request| request.connection == 1), "{transport:?} {name} {form:?}");
            assert_eq!(copied.load(Ordering::SeqCst), 0, "{transport:?} {name} {form:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_and_a_document_give_the_same_reply() {
    for name in [ANTHROPIC, CHAT] {
        let said = || Said::text("I look.").and_calls([FakeCall::new("read", json!({"path": "ä"})).with_id("call_1")]);
        let fake = FakeLlm::start(FakeScript::new().reply(said()).reply(said()));
        let exchange = exchange(name, &fake);
        let stream = ask_once(&exchange, head(name, Form::Stream)).await;
        let document = ask_once(&exchange, head(name, Form::Document)).await;
        assert_eq!(stream.reply.unwrap(), document.reply.unwrap());
        assert_eq!(stream.text, document.text);
        fake.assert_finished();
    }
}

#[tokio::test]
async fn without_a_key_nothing_is_sent() {
    let fake = FakeLlm::start(FakeScript::new());
    let key = Key::Missing { variables: vec!["ANTHROPIC_API_KEY".into(), "OTHER_KEY".into()] };
    let endpoint = Arc::new(Endpoint { key, ..endpoint(provider(ANTHROPIC).unwrap(), &fake) });
    let outcome = ask_once(&Exchange { endpoint, ..exchange(ANTHROPIC, &fake) }, head(ANTHROPIC, Form::Stream)).await;
    let error = outcome.reply.unwrap_err();
    assert_eq!(consequence(&error), "authenticate");
    assert!(error.to_string().contains("ANTHROPIC_API_KEY or OTHER_KEY"), "{error}");
    assert_eq!(fake.stats().connections, 0);
}

/// Fails at first, then has a key.
struct Store(AtomicUsize);

impl KeySource for Store {
    fn obtain(&self) -> BoxFuture<'_, Result<Secret, String>> {
        let asked = self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { if asked == 0 { Err("it is locked".to_owned()) } else { Ok(Secret::new("sk-late")) } })
    }
}

#[tokio::test]
async fn a_key_is_obtained_when_it_is_first_needed_and_once() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(Said::text("hello")));
    let key = Key::Later(LaterKey::new(Store(AtomicUsize::new(0))));
    let endpoint = Arc::new(Endpoint { key, ..endpoint(provider(CHAT).unwrap(), &fake) });
    let exchange = Exchange { endpoint, ..exchange(CHAT, &fake) };
    let locked = ask_once(&exchange, head(CHAT, Form::Stream)).await.reply.unwrap_err();
    assert_eq!((consequence(&locked), locked.fault().message.as_str()), ("authenticate", "it is locked"));
    assert_eq!(fake.stats().connections, 0);
    for _ in 0..2 {
        ask_once(&exchange.clone(), head(CHAT, Form::Stream)).await.reply.unwrap();
    }
    let sent: Vec<String> =
        fake.requests().iter().map(|request| request.headers.get("authorization").unwrap().to_owned()).collect();
    assert_eq!(sent, ["Bearer sk-late"; 2]);
}

#[tokio::test]
async fn a_key_that_no_header_can_hold_is_not_sent_and_not_shown() {
    let fake = FakeLlm::start(FakeScript::new());
    let key = Key::Secret(Secret::new("sk-1\n"));
    let endpoint = Arc::new(Endpoint { key, ..endpoint(provider(CHAT).unwrap(), &fake) });
    let outcome = ask_once(&Exchange { endpoint, ..exchange(CHAT, &fake) }, head(CHAT, Form::Stream)).await;
    let error = outcome.reply.unwrap_err();
    assert_eq!(consequence(&error), "authenticate");
    assert!(!error.to_string().contains("sk-1"), "{error}");
    assert_eq!(fake.stats().connections, 0);
}

#[tokio::test]
async fn an_address_that_is_none_is_said_to_be_the_trouble() {
    let fake = FakeLlm::start(FakeScript::new());
    for base_url in ["", "not an address", "ftp://127.0.0.1"] {
        let base_url = base_url.to_owned();
        let endpoint = Arc::new(Endpoint { base_url, ..endpoint(provider(CHAT).unwrap(), &fake) });
        let outcome = ask_once(&Exchange { endpoint, ..exchange(CHAT, &fake) }, head(CHAT, Form::Stream)).await;
        assert_eq!((consequence(&outcome.reply.unwrap_err()), outcome.waits.len()), ("fix", 0));
    }
}

#[tokio::test]
async fn what_will_not_get_better_is_not_tried_again() {
    let cases =
        [(400, "fix"), (401, "authenticate"), (403, "authenticate"), (404, "fix"), (413, "too long"), (422, "fix")];
    for (status, expected) in cases {
        for name in [ANTHROPIC, CHAT] {
            let fake = FakeLlm::start(
                FakeScript::new().reply(Said::text("x")).fault(On::Every, InjectedFault::status(status)),
            );
            let error = ask_once(&exchange(name, &fake), head(name, Form::Stream)).await.reply.unwrap_err();
            assert_eq!(consequence(&error), expected, "{status}");
            assert_eq!(error.fault().status, Some(status));
            assert_eq!(error.fault().request_id.as_deref(), Some("req_fake"));
            assert!(error.to_string().contains(&format!("the script wants status {status}")), "{error}");
            assert_eq!(fake.requests().len(), 1, "{status}");
        }
    }
}

#[tokio::test]
async fn what_may_get_better_is_tried_again_until_it_does_not() {
    for status in [408, 409, 429, 500, 502, 503, 529] {
        let script = || FakeScript::new().reply(Said::text("hello"));
        let fake = FakeLlm::start(script().fault(On::First(2), InjectedFault::status(status)));
        let outcome = ask_once(&exchange(ANTHROPIC, &fake), head(ANTHROPIC, Form::Stream)).await;
        assert_eq!((outcome.reply.unwrap().text().as_str(), outcome.waits.len()), ("hello", 2), "{status}");
        fake.assert_finished();

        let fake = FakeLlm::start(script().fault(On::Every, InjectedFault::status(status)));
        let outcome = ask_once(&exchange(ANTHROPIC, &fake), head(ANTHROPIC, Form::Stream)).await;
        let error = outcome.reply.unwrap_err();
        assert_eq!((consequence(&error), outcome.waits.len()), ("wait", 2), "{status}");
        assert_eq!((error.fault().status, fake.requests().len()), (Some(status), 3));
    }
}

#[tokio::test]
async fn the_provider_says_how_long_to_wait() {
    let cases = [
        (RetryAfter::Seconds(0), 0),
        (RetryAfter::Date(SystemTime::UNIX_EPOCH), 0),
        (RetryAfter::Raw("0.025".to_owned()), 25),
        (RetryAfter::Milliseconds(26), 26),
        (RetryAfter::Detail("0.027s".to_owned()), 27),
    ];
    for (when, expected) in cases {
        let failure = FakeProviderError::new(429, "slow down").retry_after(when);
        let fake = FakeLlm::start(
            FakeScript::new().reply(Said::text("hello")).fault(On::Request(1), InjectedFault::Failure(failure)),
        );
        let outcome = ask_once(&exchange("google", &fake), head("google", Form::Stream)).await;
        assert_eq!(
            (outcome.reply.unwrap().text().as_str(), outcome.waits.as_slice()),
            ("hello", [expected].as_slice())
        );
    }
}

#[tokio::test]
async fn a_provider_that_asks_for_too_long_a_wait_is_not_waited_for() {
    let later = SystemTime::now() + Duration::from_hours(2);
    for when in [RetryAfter::Seconds(3600), RetryAfter::Date(later)] {
        let failure = FakeProviderError::new(429, "slow down").retry_after(when);
        let fake =
            FakeLlm::start(FakeScript::new().reply(Said::text("x")).fault(On::Every, InjectedFault::Failure(failure)));
        let outcome = ask_once(&exchange(CHAT, &fake), head(CHAT, Form::Stream)).await;
        let error = outcome.reply.unwrap_err();
        assert_eq!((consequence(&error), outcome.waits.len(), fake.requests().len()), ("wait", 0, 1));
        assert!(error.to_string().contains("slow down (it asks to wait "), "{error}");
    }
}

/// A provider that asks one request to wait is asked by no other one before that; other providers are.
#[tokio::test]
async fn a_provider_that_asks_for_a_wait_is_left_alone_by_all_requests() {
    const WAIT: Duration = Duration::from_millis(300);
    let fault = || {
        let failure = FakeProviderError::new(429, "slow down").retry_after(RetryAfter::Milliseconds(300));
        InjectedFault::Failure(failure)
    };
    let fake = FakeLlm::start(FakeScript::new().otherwise(Said::text("hello")).fault(On::Request(1), fault()));
    let elsewhere = FakeLlm::start(FakeScript::new().otherwise(Said::text("hello")));
    let one = exchange(CHAT, &fake);
    let other = Exchange { endpoint: Arc::new(endpoint(provider(ANTHROPIC).unwrap(), &elsewhere)), ..one.clone() };
    let (events, mut listener) = Events::new(Listen::Everything);
    let began = Instant::now();
    let mut refused = one.open(head(CHAT, Form::Stream));
    let history = [Message::user("hi")];
    let mut meter = UnlimitedMeter;
    let first = refused.reply(&history, &mut meter, &events);
    let others = async {
        while !matches!(listener.recv().await.unwrap().kind, EventKind::RetryScheduled { .. }) {}
        ask_once(&other, head(ANTHROPIC, Form::Stream)).await.reply.unwrap();
        assert_eq!(fake.requests().len(), 1, "the others are asked meanwhile");
        for _ in 0..3 {
            ask_once(&one, head(CHAT, Form::Stream)).await.reply.unwrap();
            assert!(began.elapsed() >= WAIT, "{:?}", began.elapsed());
        }
    };
    let (first, ()) = tokio::join!(first, others);
    assert_eq!((first.unwrap().text().as_str(), fake.requests().len()), ("hello", 5));
}

#[tokio::test]
async fn what_the_provider_itself_could_not_read_is_asked_for_once_more() {
    let garbled = || Said::empty().finishing(Ending::Unheard("MALFORMED_FUNCTION_CALL".to_owned()));
    for form in FORMS {
        let fake = FakeLlm::start(FakeScript::new().reply(garbled()).reply(Said::text("hello")));
        let outcome = ask_once(&exchange("google", &fake), head("google", form)).await;
        assert_eq!((outcome.reply.unwrap().text().as_str(), outcome.waits.as_slice()), ("hello", [0].as_slice()));
        fake.assert_finished();

        let fake = FakeLlm::start(FakeScript::new().otherwise(garbled()));
        let error = ask_once(&exchange("google", &fake), head("google", form)).await.reply.unwrap_err();
        assert_eq!((consequence(&error), fake.requests().len()), ("garbled", 2), "{error}");
    }
    let failure = FakeProviderError::new(400, "no call").with_code("tool_use_failed");
    let fake = FakeLlm::start(
        FakeScript::new().reply(Said::text("hello")).fault(On::Request(1), InjectedFault::Failure(failure)),
    );
    let outcome = ask_once(&exchange("groq", &fake), head("groq", Form::Stream)).await;
    assert_eq!((outcome.reply.unwrap().text().as_str(), outcome.waits.len()), ("hello", 1));
}

#[tokio::test]
async fn answers_that_are_none_have_consequences() {
    use Form::{Document, Stream};
    let huge = || InjectedFault::HugeBody { bytes: 2 * 1024 * 1024 };
    let cases = [
        (InjectedFault::HtmlPage { status: 502 }, Stream, "hello", 2),
        (InjectedFault::HtmlPage { status: 502 }, Document, "hello", 2),
        (InjectedFault::HtmlPage { status: 200 }, Stream, "give up", 1),
        (InjectedFault::HtmlPage { status: 404 }, Stream, "fix", 1),
        (InjectedFault::ContentType("text/plain".into()), Stream, "hello", 1),
        (InjectedFault::ContentType("text/plain".into()), Document, "hello", 1),
        (InjectedFault::ContentType("text/event-stream".into()), Stream, "hello", 1),
        (InjectedFault::EmptyBody, Stream, "hello", 2),
        (InjectedFault::EmptyBody, Document, "hello", 2),
        (InjectedFault::MalformedJson, Stream, "hello", 2),
        (InjectedFault::MalformedJson, Document, "hello", 2),
        (InjectedFault::TruncatedUtf8, Stream, "hello", 2),
        (InjectedFault::TruncatedUtf8, Document, "hello", 2),
        (huge(), Stream, "give up", 1),
        (huge(), Document, "give up", 1),
        (InjectedFault::ErrorEvent { at: At::Percent(50) }, Stream, "hello", 2),
        (InjectedFault::ErrorEvent { at: At::Percent(50) }, Document, "hello", 2),
        (InjectedFault::cut(At::Percent(50), Cut::Eof), Stream, "hello", 2),
        (InjectedFault::cut(At::Percent(50), Cut::Reset), Stream, "hello", 2),
        (InjectedFault::cut(At::Percent(50), Cut::Clean), Stream, "hello", 2),
        (InjectedFault::cut(At::Percent(50), Cut::Eof), Document, "hello", 2),
        (InjectedFault::cut(At::Percent(0), Cut::Eof), Stream, "hello", 2),
        (InjectedFault::Comments, Stream, "hello", 1),
    ];
    for transport in [Transport::Plain, Transport::Tls] {
        for (fault, form, expected, requests) in &cases {
            for name in [ANTHROPIC, CHAT] {
                let case = format!("{transport:?} {fault:?} {form:?} {name}");
                let script = FakeScript::new().reply(Said::text("hello")).fault(On::Request(1), fault.clone());
                let fake = FakeLlm::start_on(transport, script);
                let http = HttpClient::new(HttpSettings { maximum_response: 1024 * 1024, ..settings(&fake) }).unwrap();
                let outcome = ask_once(&Exchange { http, ..exchange(name, &fake) }, head(name, *form)).await;
                match &outcome.reply {
                    Ok(reply) => {
                        assert_eq!(reply.text(), *expected, "{case}");
                        assert_eq!(outcome.text, *expected, "{case}");
                    }
                    Err(error) => assert_eq!(consequence(error), *expected, "{case}: {error}"),
                }
                assert_eq!(fake.requests().len(), *requests, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn errors_name_the_request_also_inside_of_an_answer() {
    for fault in [InjectedFault::MalformedJson, InjectedFault::ErrorEvent { at: At::Percent(50) }] {
        for (name, form) in [ANTHROPIC, CHAT].into_iter().flat_map(|name| FORMS.map(|form| (name, form))) {
            let fake = FakeLlm::start(FakeScript::new().reply(Said::text("hello")).fault(On::Every, fault.clone()));
            let retries = Retries { attempts: 0, ..RETRIES };
            let outcome = ask_once(&Exchange { retries, ..exchange(name, &fake) }, head(name, form)).await;
            let error = outcome.reply.unwrap_err();
            assert_eq!(error.fault().request_id.as_deref(), Some("req_fake"), "{fault:?} {name} {form:?}: {error}");
        }
    }
}

#[tokio::test]
async fn words_that_were_told_are_not_told_again() {
    let text = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.";
    for percent in (5..100).step_by(5) {
        let script = FakeScript::new().reply(Said::text(text).in_deltas(20));
        let fake = FakeLlm::start(script.fault(On::First(2), InjectedFault::cut(At::Percent(percent), Cut::Eof)));
        let outcome = ask_once(&exchange(CHAT, &fake), head(CHAT, Form::Stream)).await;
        assert_eq!(outcome.reply.unwrap().text(), text, "{percent}");
        assert_eq!(outcome.text, text, "{percent}");
    }
}

#[tokio::test]
async fn silence_in_an_answer_ends_it_and_it_is_asked_for_again() {
    for (transport, form) in [Transport::Plain, Transport::Tls].into_iter().flat_map(|it| FORMS.map(|form| (it, form)))
    {
        let gate = StallGate::new();
        let stall = InjectedFault::Stall { at: At::Percent(50), gate: gate.clone() };
        let fake =
            FakeLlm::start_on(transport, FakeScript::new().reply(Said::text("hello")).fault(On::Request(1), stall));
        let idle_timeout = Duration::from_millis(100);
        let http = HttpClient::new(HttpSettings { idle_timeout, ..settings(&fake) }).unwrap();
        let outcome = ask_once(&Exchange { http, ..exchange(ANTHROPIC, &fake) }, head(ANTHROPIC, form)).await;
        assert_eq!((outcome.reply.unwrap().text().as_str(), outcome.text.as_str()), ("hello", "hello"));
        gate.left(1).await;
    }
}

#[tokio::test]
async fn a_request_has_at_most_the_time_that_its_settings_give() {
    let gates = [StallGate::new(), StallGate::new()];
    let stalls = [
        InjectedFault::StallBeforeHead(gates[0].clone()),
        InjectedFault::Stall { at: At::Percent(50), gate: gates[1].clone() },
    ];
    for (gate, stall) in gates.into_iter().zip(stalls) {
        let fake = FakeLlm::start(FakeScript::new().reply(Said::text("hello")).fault(On::Every, stall));
        let mut head = head(CHAT, Form::Stream);
        head.settings.timeout = Some(Duration::from_millis(50));
        let outcome = ask_once(&exchange(CHAT, &fake), head).await;
        let error = outcome.reply.unwrap_err();
        assert_eq!((consequence(&error), fake.requests().len()), ("timed out", 2));
        assert!(error.to_string().contains("no complete answer within 0.05 seconds"), "{error}");
        gate.left(2).await;
    }
}

#[tokio::test]
async fn a_conversation_that_is_dropped_leaves_at_once_and_can_be_asked_again() {
    for (transport, at) in [Transport::Plain, Transport::Tls].into_iter().flat_map(|it| [0, 50].map(|at| (it, at))) {
        let gate = StallGate::new();
        let stall = InjectedFault::Stall { at: At::Percent(at), gate: gate.clone() };
        let fake =
            FakeLlm::start_on(transport, FakeScript::new().reply(Said::text("hello")).fault(On::Request(1), stall));
        let mut talk = exchange(ANTHROPIC, &fake).open(head(ANTHROPIC, Form::Stream));
        let history = [Message::user("hi")];
        tokio::select! {
            _ = ask(talk.as_mut(), &history) => panic!("the answer stands at a gate"),
            () = gate.reached(1) => {}
        }
        gate.left(1).await;
        assert_eq!(ask(talk.as_mut(), &history).await.reply.unwrap().text(), "hello");
        fake.assert_finished();
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_are_marked_and_can_be_answered() {
    for (name, form) in [ANTHROPIC, CHAT].into_iter().flat_map(|name| FORMS.map(|form| (name, form))) {
        if (name, form) == (ANTHROPIC, Form::Document) {
            continue; // a document of this protocol cannot hold them
        }
        let call = FakeCall::malformed("read", r#"{"path": "a"#).with_id("call_1");
        let script = FakeScript::new().reply(Said::calls([call])).reply(Said::text("Sorry."));
        let fake = FakeLlm::start(script.accept_foreign_history());
        let mut talk = exchange(name, &fake).open(head(name, form));
        let mut history = vec![Message::user("hi")];
        let reply = ask(talk.as_mut(), &history).await.reply.unwrap();
        let arguments: Vec<&Arguments> = reply.tool_calls().map(|call| &call.arguments).collect();
        assert_eq!(arguments, [&Arguments::Malformed(r#"{"path": "a"#.to_owned())], "{name} {form:?}");
        let outcome = Err("the arguments are not a JSON object".to_owned());
        let answer = ToolResult { id: "call_1".into(), tool: "read".into(), outcome };
        history.extend([Message::Assistant(reply), Message::tool_results(vec![answer])]);
        assert_eq!(ask(talk.as_mut(), &history).await.reply.unwrap().text(), "Sorry.");
        fake.assert_finished();
    }
}

#[tokio::test]
async fn a_history_that_was_rewound_is_sent_as_it_is_now() {
    for name in [ANTHROPIC, CHAT] {
        let script = FakeScript::new().reply(Said::text("one")).reply(Said::text("three"));
        let fake = FakeLlm::start(script.fault(On::Request(2), InjectedFault::status(400)).accept_foreign_history());
        let mut talk = exchange(name, &fake).open(head(name, Form::Stream));
        let mut history = vec![Message::user("first")];
        let reply = ask(talk.as_mut(), &history).await.reply.unwrap();
        history.extend([Message::Assistant(reply), Message::user("second")]);
        ask(talk.as_mut(), &history).await.reply.unwrap_err();
        // The failed turn is taken back, and another is as long.
        history.pop();
        talk.rewind(history.len());
        history.push(Message::user("third"));
        assert_eq!(ask(talk.as_mut(), &history).await.reply.unwrap().text(), "three");
        let said = |index: usize| {
            let seen = fake.requests()[index].seen.clone().unwrap();
            seen.messages.iter().map(fake_llm::SeenMessage::text).collect::<Vec<_>>()
        };
        assert_eq!(said(1), ["first", "one", "second"]);
        assert_eq!(said(2), ["first", "one", "third"]);
        fake.assert_finished();

        // Shorter than before, and other from its first message on.
        let fake = FakeLlm::start(FakeScript::new().otherwise(Said::text("yes")).accept_foreign_history());
        let mut talk = exchange(name, &fake).open(head(name, Form::Stream));
        ask(talk.as_mut(), &history).await.reply.unwrap();
        talk.rewind(0);
        ask(talk.as_mut(), &[Message::user("anew")]).await.reply.unwrap();
        let seen = fake.requests()[1].seen.clone().unwrap();
        assert_eq!(seen.messages.iter().map(fake_llm::SeenMessage::text).collect::<Vec<_>>(), ["anew"]);
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_worth_another_try() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let fake = FakeLlm::start(FakeScript::new());
    let base_url = format!("http://127.0.0.1:{port}");
    let endpoint = Arc::new(Endpoint { base_url, ..endpoint(provider(CHAT).unwrap(), &fake) });
    let outcome = ask_once(&Exchange { endpoint, ..exchange(CHAT, &fake) }, head(CHAT, Form::Stream)).await;
    assert_eq!((consequence(&outcome.reply.unwrap_err()), outcome.waits.len()), ("wait", 2));
}
