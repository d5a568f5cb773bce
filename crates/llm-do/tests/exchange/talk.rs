//! How these tests talk: an exchange with a provider on loopback, one request at a time, and what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fake_llm::FakeLlm;
use llm_do::event::{EventKind, Events, Listen};
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::message::{Content, Message, RawJson, Reply, ToolResult};
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries, Secret};
use llm_do::model::meter::UnlimitedMeter;
use llm_do::model::name::ModelName;
use llm_do::model::protocol::{Decoder, Encoder, Protocol, Quirks};
use llm_do::model::provider::{Provider, provider};
use llm_do::model::{Conversation, Head, Model as _, ModelError, ModelSettings, ToolDeclaration};

pub const ANTHROPIC: &str = "anthropic";
pub const CHAT: &str = "openai-chat";

/// How answers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Stream,
    Document,
}

pub const FORMS: [Form; 2] = [Form::Stream, Form::Document];

pub const RETRIES: Retries = Retries {
    attempts: 2,
    first_wait: Duration::from_millis(1),
    longest_wait: Duration::from_millis(1),
    longest_asked_wait: Duration::from_mins(1),
    after_output: true,
};

pub fn settings(fake: &FakeLlm) -> HttpSettings {
    let extra_certificates = if fake.url().starts_with("https") { fake.ca_pem().into() } else { Vec::new() };
    HttpSettings { extra_certificates, ..HttpSettings::STANDARD }
}

/// Where the server speaks the protocol of the row: at the path that the row's own address has.
pub fn base_url(row: &Provider, fake: &FakeLlm) -> String {
    let (_, address) = row.base_url.split_once("://").unwrap_or_default();
    let path = address.find('/').map_or("", |start| &address[start..]);
    format!("{}{path}", fake.url())
}

pub fn endpoint(row: &Provider, fake: &FakeLlm) -> Endpoint {
    Endpoint {
        provider: row.name.to_owned(),
        protocol: row.protocol.protocol().unwrap(),
        quirks: row.quirks,
        base_url: base_url(row, fake),
        key: Key::Secret(Secret::new("secret")),
    }
}

pub fn exchange(name: &str, fake: &FakeLlm) -> Exchange {
    let endpoint = Arc::new(endpoint(provider(name).unwrap(), fake));
    Exchange { endpoint, http: HttpClient::new(settings(fake)).unwrap(), retries: RETRIES }
}

pub fn head(name: &str, form: Form) -> Head {
    let parameters = RawJson::parse(r#"{"type":"object","properties":{"path":{"type":"string"}}}"#).unwrap();
    Head {
        agent: "test".into(),
        model: ModelName { provider: name.to_owned(), model: "claude-sonnet-4-5".to_owned() },
        instructions: "Be brief.".to_owned(),
        tools: vec![ToolDeclaration { name: "read".into(), description: "Reads a file.".into(), parameters }],
        server_tools: Vec::new(),
        settings: ModelSettings::default(),
        output: None,
        may_call: true,
        stream: form == Form::Stream,
    }
}

/// What came of one request, and what was told of it.
pub struct Outcome {
    pub reply: Result<Reply, ModelError>,
    pub text: String,
    pub waits: Vec<u64>,
}

pub async fn ask(talk: &mut dyn Conversation, history: &[Message]) -> Outcome {
    let (events, mut listener) = Events::new(Listen::Everything);
    let reply = talk.reply(history, &mut UnlimitedMeter, &events).await;
    let mut outcome = Outcome { reply, text: String::new(), waits: Vec::new() };
    while let Ok(event) = listener.try_recv() {
        match event.kind {
            EventKind::TextDelta { text } => outcome.text.push_str(&text),
            EventKind::RetryScheduled { wait_ms, .. } => outcome.waits.push(wait_ms),
            EventKind::RequestStarted { .. } | EventKind::RequestFinished { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    outcome
}

/// Asks once, as a new conversation.
pub async fn ask_once(exchange: &Exchange, head: Head) -> Outcome {
    ask(exchange.open(head).as_mut(), &[Message::user("hi")]).await
}

pub fn consequence(error: &ModelError) -> &'static str {
    match error {
        ModelError::FixRequest(_) => "fix",
        ModelError::Authenticate(_) => "authenticate",
        ModelError::TimedOut(_) => "timed out",
        ModelError::Wait(_) => "wait",
        ModelError::Unreachable(_) => "unreachable",
        ModelError::ContextTooLong(_) => "too long",
        ModelError::Garbled(_) => "garbled",
        ModelError::GiveUp(_) => "give up",
    }
}

pub fn result(id: &str, text: &str) -> Message {
    Message::tool_results(vec![ToolResult {
        id: id.to_owned(),
        tool: "read".to_owned(),
        outcome: Ok(vec![Content::text(text)]),
    }])
}

/// A protocol whose bodies are counted while they are lent.
struct Counting {
    protocol: &'static dyn Protocol,
    lent: Arc<AtomicUsize>,
    /// Bodies that were still lent when the next message was to be appended, so that they had to be copied.
    copied: Arc<AtomicUsize>,
}

impl Protocol for Counting {
    fn encoder(&self, head: &Head, quirks: &Quirks) -> Box<dyn Encoder> {
        let (lent, copied) = (Arc::clone(&self.lent), Arc::clone(&self.copied));
        Box::new(CountingEncoder { encoder: self.protocol.encoder(head, quirks), lent, copied })
    }

    fn decoder(&self, head: &Head, quirks: &Quirks, turn: usize) -> Box<dyn Decoder> {
        self.protocol.decoder(head, quirks, turn)
    }

    fn path(&self, head: &Head, quirks: &Quirks) -> String {
        self.protocol.path(head, quirks)
    }

    fn headers(&self, head: &Head, quirks: &Quirks, key: Option<&str>) -> Vec<(&'static str, String)> {
        self.protocol.headers(head, quirks, key)
    }

    fn continues_answers(&self, head: &Head, quirks: &Quirks) -> bool {
        self.protocol.continues_answers(head, quirks)
    }

    fn fault(&self, status: u16, body: &[u8]) -> ModelError {
        self.protocol.fault(status, body)
    }
}

struct CountingEncoder {
    encoder: Box<dyn Encoder>,
    lent: Arc<AtomicUsize>,
    copied: Arc<AtomicUsize>,
}

impl Encoder for CountingEncoder {
    fn push(&mut self, message: &Message) {
        self.copied.fetch_add(self.lent.load(Ordering::SeqCst), Ordering::SeqCst);
        self.encoder.push(message);
    }

    fn messages(&self) -> usize {
        self.encoder.messages()
    }

    fn truncate(&mut self, messages: usize) {
        self.encoder.truncate(messages);
    }

    fn body(&mut self, longest_answer: Option<u64>) -> Bytes {
        self.lent.fetch_add(1, Ordering::SeqCst);
        Bytes::from_owner(Lent { body: self.encoder.body(longest_answer), lent: Arc::clone(&self.lent) })
    }
}

struct Lent {
    body: Bytes,
    lent: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An exchange that counts the bodies which had to be copied.
pub fn counted(exchange: Exchange) -> (Exchange, Arc<AtomicUsize>) {
    let (lent, copied) = (Arc::default(), Arc::default());
    let protocol = exchange.endpoint.protocol;
    let protocol = Box::leak(Box::new(Counting { protocol, lent, copied: Arc::clone(&copied) }));
    let endpoint = Arc::new(Endpoint { protocol, ..Endpoint::clone(&exchange.endpoint) });
    (Exchange { endpoint, ..exchange }, copied)
}
