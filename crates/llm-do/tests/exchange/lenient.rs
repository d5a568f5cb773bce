//! Answers of servers that are not quite right: what is complete is taken, what is broken is asked for once more, and
//! what does not come is not waited for.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake_llm::{FakeCall, FakeLlm, FakeProviderError, FakeReply as Said, FakeScript, InjectedFault, On, RetryAfter};
use flate2::Compression;
use flate2::write::GzEncoder;
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::message::{Content, Message, ToolResult};
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries};
use llm_do::model::provider::provider;
use llm_do::model::{Model as _, Thinking};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::talk::{ANTHROPIC, CHAT, FORMS, Form, RETRIES, ask, ask_once, consequence, exchange, head};

const CHAT_STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n\
                           data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
                           data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}\n\n\
                           data: [DONE]\n\n";
const CHAT_DOCUMENT: &str =
    r#"{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5}}"#;
const ANTHROPIC_STREAM: &str = "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":5}}}\n\n\
    event: content_block_start\ndata: {\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
    event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"text\":\"hello\"}}\n\n\
    event: content_block_stop\ndata: {\"index\":0}\n\n\
    event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n\
    event: message_stop\ndata: {}\n\n";

/// What a server does with one request.
#[derive(Clone)]
enum Deed {
    /// Says this, and closes the connection.
    Say(Vec<u8>),
    /// Says this, takes one more request, and closes the connection without a word.
    SayAndLeave(Vec<u8>),
    /// Says this, then the same piece again and again.
    Repeat(Vec<u8>, &'static [u8]),
}

/// A server whose every answer is written down; the last one is given again and again.
struct Canned {
    exchange: Exchange,
    asked: Arc<AtomicUsize>,
}

impl Canned {
    async fn start(name: &str, deeds: Vec<Deed>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, deeds.clone(), Arc::clone(&counted)));
            }
        });
        let row = provider(name).unwrap();
        let (protocol, quirks) = (row.protocol.protocol().unwrap(), row.quirks);
        let endpoint = Endpoint { provider: name.to_owned(), protocol, quirks, base_url, key: Key::Unneeded };
        let http = HttpClient::new(HttpSettings { content_timeout: SOON, ..HttpSettings::STANDARD }).unwrap();
        Self { exchange: Exchange { endpoint: Arc::new(endpoint), http, retries: RETRIES }, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

const SOON: Duration = Duration::from_millis(50);

/// Whoever leaves early ends it: then nothing can be written any more.
async fn serve(mut stream: TcpStream, deeds: Vec<Deed>, asked: Arc<AtomicUsize>) {
    read_request(&mut stream).await;
    let number = asked.fetch_add(1, Ordering::SeqCst);
    match deeds[number.min(deeds.len() - 1)].clone() {
        Deed::Say(bytes) => {
            let _ = stream.write_all(&bytes).await;
        }
        Deed::SayAndLeave(bytes) => {
            let _ = stream.write_all(&bytes).await;
            read_request(&mut stream).await;
        }
        Deed::Repeat(bytes, piece) => {
            let _ = stream.write_all(&bytes).await;
            while stream.write_all(piece).await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
        }
    }
}

fn answer(label: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{label}content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// A body that ends where the connection does.
fn open_ended(body: &[u8]) -> Vec<u8> {
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        format!("{:x}\r\n", body.len()).as_bytes(),
        body,
        b"\r\n",
    ]
    .concat()
}

fn gzipped(body: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn before<'a>(text: &'a str, last: &str) -> &'a [u8] {
    &text.as_bytes()[..text.rfind(last).unwrap()]
}

#[tokio::test]
async fn a_complete_answer_is_taken_however_it_is_labelled() {
    let (octets, events, gzip) = (
        "content-type: application/octet-stream\r\n",
        "content-type: text/event-stream\r\n",
        "content-encoding: gzip\r\n",
    );
    let without_reason = before(CHAT_STREAM, "data: {\"choices\":[],\"usage\"");
    let cases = [
        ("no label", CHAT, Form::Stream, answer("", CHAT_STREAM.as_bytes())),
        ("another label", CHAT, Form::Stream, answer(octets, CHAT_STREAM.as_bytes())),
        ("a page", ANTHROPIC, Form::Stream, answer("content-type: text/html\r\n", ANTHROPIC_STREAM.as_bytes())),
        ("a document for a stream", CHAT, Form::Stream, answer(events, CHAT_DOCUMENT.as_bytes())),
        (
            "a stream for a document",
            CHAT,
            Form::Document,
            answer("content-type: application/json\r\n", CHAT_STREAM.as_bytes()),
        ),
        ("gzip", CHAT, Form::Stream, answer(&format!("{events}{gzip}"), &gzipped(CHAT_STREAM))),
        ("gzip unsaid", ANTHROPIC, Form::Stream, answer(events, &gzipped(ANTHROPIC_STREAM))),
        ("gzip only said", CHAT, Form::Document, answer(gzip, CHAT_DOCUMENT.as_bytes())),
        ("no last event", ANTHROPIC, Form::Stream, answer(events, before(ANTHROPIC_STREAM, "event: message_stop"))),
        ("no last event", CHAT, Form::Stream, answer(events, before(CHAT_STREAM, "data: [DONE]"))),
        ("no usage", CHAT, Form::Stream, answer(events, without_reason)),
        ("cut behind the end", ANTHROPIC, Form::Stream, open_ended(before(ANTHROPIC_STREAM, "event: message_stop"))),
        ("cut behind the end", CHAT, Form::Stream, open_ended(without_reason)),
        ("tokens", CHAT, Form::Document, answer("", CHAT_DOCUMENT.replace(":5", ":7.5").as_bytes())),
        ("usage", CHAT, Form::Document, answer("", CHAT_DOCUMENT.replace("{\"prompt_tokens\":5}", "[7]").as_bytes())),
    ];
    for (what, name, form, bytes) in cases {
        let canned = Canned::start(name, vec![Deed::Say(bytes)]).await;
        let outcome = ask_once(&canned.exchange, head(name, form)).await;
        let reply = outcome.reply.unwrap_or_else(|error| panic!("{what} {name}: {error}"));
        assert_eq!(
            (reply.text().as_str(), outcome.text.as_str(), canned.asked()),
            ("hello", "hello", 1),
            "{what} {name}"
        );
        if what == "tokens" {
            assert_eq!(reply.usage.input_tokens, 8);
        }
    }
}

#[tokio::test]
async fn half_a_character_is_read_as_none() {
    for (escape, said) in
        [("\\ud83d", "\u{fffd}"), ("\\ude00", "\u{fffd}"), ("\\ud83d\\ude00", "\u{1f600}"), ("\\\\ud83d", "\\ud83d")]
    {
        let body = CHAT_STREAM.replace("hello", escape);
        let canned = Canned::start(CHAT, vec![Deed::Say(answer("", body.as_bytes()))]).await;
        let outcome = ask_once(&canned.exchange, head(CHAT, Form::Stream)).await;
        assert_eq!(outcome.reply.unwrap().text(), said, "{escape}");
        assert_eq!(canned.asked(), 1);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_asked_for_once_more() {
    let replaced = |old: &str, new: &[u8]| {
        let (start, end) = CHAT_STREAM.split_once(old).unwrap();
        [start.as_bytes(), new, end.as_bytes()].concat()
    };
    for body in [
        replaced("data: {\"choices\":[],", b"data: {\"choices\":[}],"),
        replaced("hello", b"h\xffllo"),
        replaced("\"delta\":{},", b"\"delta\":7,"),
        gzipped(CHAT_STREAM).iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 40)).collect(),
    ] {
        let (broken, good) = (Deed::Say(answer("", &body)), Deed::Say(answer("", CHAT_STREAM.as_bytes())));
        let canned = Canned::start(CHAT, vec![broken.clone(), good]).await;
        let outcome = ask_once(&canned.exchange, head(CHAT, Form::Stream)).await;
        assert_eq!((outcome.reply.unwrap().text().as_str(), canned.asked()), ("hello", 2));
        let canned = Canned::start(CHAT, vec![broken]).await;
        let error = ask_once(&canned.exchange, head(CHAT, Form::Stream)).await.reply.unwrap_err();
        assert_eq!((consequence(&error), canned.asked()), ("garbled", 2), "{error}");
    }
}

#[tokio::test]
async fn bytes_that_add_nothing_do_not_hold_a_run() {
    let start = || b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    let begun = || [&start()[..], before(ANTHROPIC_STREAM, "event: content_block_stop")].concat();
    let pings = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";
    let cases: [(&str, Form, Deed); 6] = [
        (ANTHROPIC, Form::Stream, Deed::Repeat(begun(), pings)),
        (ANTHROPIC, Form::Stream, Deed::Repeat(start(), b": ping\n\n")),
        (CHAT, Form::Stream, Deed::Repeat(start(), b"data: {\"choices\":[{\"delta\":{}}]}\n\n")),
        (CHAT, Form::Stream, Deed::Repeat([&start()[..], b"data: \""].concat(), b"x")),
        (CHAT, Form::Document, Deed::Repeat(start(), b"\n")),
        (CHAT, Form::Document, Deed::Repeat([&start()[..], b"{\"choices\":\""].concat(), b"x")),
    ];
    for (name, form, deed) in cases {
        let canned = Canned::start(name, vec![deed]).await;
        let outcome = ask_once(&canned.exchange, head(name, form)).await;
        let error = outcome.reply.unwrap_err();
        assert_eq!((consequence(&error), canned.asked()), ("timed out", 2), "{name} {form:?}: {error}");
        assert!(error.to_string().contains("may charge for it"), "{error}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_costs_no_wait() {
    let canned = Canned::start(CHAT, vec![Deed::SayAndLeave(answer("", CHAT_STREAM.as_bytes()))]).await;
    let retries = Retries { attempts: 0, ..RETRIES };
    let exchange = Exchange { retries, ..canned.exchange.clone() };
    for asked in 1..4 {
        let outcome = ask_once(&exchange, head(CHAT, Form::Stream)).await;
        assert_eq!((outcome.reply.unwrap().text().as_str(), canned.asked()), ("hello", asked));
        assert!(outcome.waits.is_empty());
    }
}

#[tokio::test]
async fn a_server_that_asks_for_no_wait_is_asked_no_sooner() {
    for when in [RetryAfter::Seconds(0), RetryAfter::Date(std::time::SystemTime::UNIX_EPOCH)] {
        let failure = InjectedFault::Failure(FakeProviderError::new(429, "slow down").retry_after(when));
        let fake = FakeLlm::start(FakeScript::new().reply(Said::text("hello")).fault(On::First(2), failure));
        let (first_wait, longest_wait) = (Duration::from_millis(20), Duration::from_millis(40));
        let retries = Retries { first_wait, longest_wait, ..RETRIES };
        let outcome = ask_once(&Exchange { retries, ..exchange(CHAT, &fake) }, head(CHAT, Form::Stream)).await;
        assert_eq!(outcome.reply.unwrap().text(), "hello");
        let floors: Vec<bool> = outcome.waits.iter().zip([10, 20]).map(|(wait, floor)| *wait >= floor).collect();
        assert_eq!(floors, [true, true], "{:?}", outcome.waits);
    }
}

#[tokio::test]
async fn calls_with_one_id_are_told_apart_in_every_protocol() {
    for (name, form) in
        [ANTHROPIC, CHAT, "openai", "google"].into_iter().flat_map(|name| FORMS.map(|form| (name, form)))
    {
        let twice = || [1, 2].map(|n| FakeCall::new("read", json!({"path": format!("{n}")})).with_id("same"));
        let script =
            FakeScript::new().reply(Said::calls(twice())).reply(Said::calls(twice())).reply(Said::text("done"));
        let fake = FakeLlm::start(script.accept_foreign_history());
        let mut talk = exchange(name, &fake).open(head(name, form));
        let (mut history, mut ids) = (vec![Message::user("hi")], Vec::new());
        for _ in 0..2 {
            let reply = ask(talk.as_mut(), &history).await.reply.unwrap();
            let calls: Vec<String> = reply.tool_calls().map(|call| call.id.clone()).collect();
            let result =
                |id: &String| ToolResult { id: id.clone(), tool: "read".into(), outcome: Ok(vec![Content::text("x")]) };
            let results = calls.iter().map(result).collect();
            ids.extend(calls);
            history.extend([Message::Assistant(reply), Message::tool_results(results)]);
        }
        assert_eq!(ask(talk.as_mut(), &history).await.reply.unwrap().text(), "done", "{name} {form:?}");
        let different: std::collections::HashSet<&String> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (4, 4), "{name} {form:?}: {ids:?}");
        assert_eq!(fake.violations(), [], "{name} {form:?}");
    }
}

#[tokio::test]
async fn documents_and_models_that_think_are_waited_for_longer() {
    let fake = FakeLlm::start(FakeScript::new());
    let wait = |form: Form, thinking: Option<Thinking>| {
        let mut head = head(ANTHROPIC, form);
        head.settings.thinking = thinking;
        exchange(ANTHROPIC, &fake).open(head).longest_wait().unwrap().as_secs()
    };
    assert_eq!(wait(Form::Stream, None), 120);
    assert_eq!(wait(Form::Stream, Some(Thinking::Off)), 120);
    assert_eq!(wait(Form::Stream, Some(Thinking::On)), 600);
    assert_eq!(wait(Form::Document, None), 600);
}

#[tokio::test]
async fn a_request_that_was_taken_and_not_answered_is_sent_twice_at_most() {
    for (form, thinking) in [(Form::Stream, None), (Form::Document, None), (Form::Stream, Some(Thinking::On))] {
        let gate = fake_llm::StallGate::new();
        let script =
            FakeScript::new().reply(Said::text("x")).fault(On::Every, InjectedFault::StallBeforeHead(gate.clone()));
        let fake = FakeLlm::start(script);
        let (first_byte_timeout, slow_first_byte_timeout) = (SOON, 2 * SOON);
        let settings = HttpSettings { first_byte_timeout, slow_first_byte_timeout, ..HttpSettings::STANDARD };
        let http = HttpClient::new(settings).unwrap();
        let mut head = head(ANTHROPIC, form);
        head.settings.thinking = thinking;
        let outcome = ask_once(&Exchange { http, ..exchange(ANTHROPIC, &fake) }, head).await;
        let error = outcome.reply.unwrap_err();
        assert_eq!((consequence(&error), fake.requests().len(), outcome.waits.len()), ("timed out", 2, 1));
        let within = if form == Form::Stream && thinking.is_none() { "within 50ms" } else { "within 100ms" };
        assert!(error.to_string().contains(within), "{error}");
        gate.left(2).await;
    }
}
