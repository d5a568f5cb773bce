//! Plays recordings through the real driver: each exchange is asked with the history that our own replies have made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use llm_do::event::{Event, EventKind, Events, Listen};
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::message::{Message, Reply, Usage};
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries, Secret};
use llm_do::model::meter::UnlimitedMeter;
use llm_do::model::name::ModelName;
use llm_do::model::protocol::Protocol;
use llm_do::model::{Conversation, Head, Model as _, ModelError};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::cassette::{Cassette, Recorded};
use crate::expectation::Told;
use crate::history::{history, traces};
use crate::replay::Replay;
use crate::request::{Asked, Turn};

/// What the server does to each answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing that takes any of it away.
    Harmless,
    /// The first answer to each exchange is replaced by a refusal that is worth another try.
    RefusedFirst,
    /// The first answer to each exchange does not come to its end. Each exchange is a recording of its own then, that
    /// starts over: how many tries it takes is not known, for a connection that was broken may be tried again.
    BrokenFirst,
}

impl Fault {
    fn retries(self) -> Retries {
        let attempts = match self {
            Self::Harmless => 0,
            Self::RefusedFirst => 1,
            Self::BrokenFirst => 9,
        };
        let wait = Duration::from_millis(1);
        // Recorded answers ask for as much as half a minute.
        Retries {
            attempts,
            first_wait: wait,
            longest_wait: wait,
            longest_asked_wait: Duration::ZERO,
            after_output: true,
        }
    }
}

pub struct Player {
    pub server: Arc<Replay>,
    pub idle_timeout: Duration,
    pub fault: Fault,
}

/// What was played and what was not.
#[derive(Default)]
pub struct Tally {
    /// By protocol.
    pub played: BTreeMap<String, usize>,
    pub not_built: BTreeMap<String, usize>,
    /// With the reason.
    pub inexpressible: BTreeMap<String, usize>,
    /// The exchanges that the server still has, by cassette.
    pub left: BTreeMap<String, usize>,
    /// What each request must contain, by cassette and exchange.
    pub traces: Vec<(String, usize, Vec<String>)>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        let add = |sum: &mut BTreeMap<String, usize>, part: BTreeMap<String, usize>| {
            for (name, count) in part {
                *sum.entry(name).or_default() += count;
            }
        };
        add(&mut self.played, other.played);
        add(&mut self.not_built, other.not_built);
        add(&mut self.inexpressible, other.inexpressible);
        add(&mut self.left, other.left);
        self.traces.extend(other.traces);
    }

    fn note(&mut self, reasons: BTreeSet<String>) {
        for reason in reasons {
            *self.inexpressible.entry(reason).or_default() += 1;
        }
    }
}

pub fn http(idle_timeout: Duration) -> HttpClient {
    let (first_byte_timeout, slow_first_byte_timeout) = (idle_timeout, idle_timeout);
    let settings = HttpSettings { first_byte_timeout, slow_first_byte_timeout, idle_timeout, ..HttpSettings::STANDARD };
    HttpClient::new(settings).unwrap()
}

/// The name of a recording that has one exchange only.
pub fn tape_of(cassette: &str, index: usize) -> String {
    format!("{cassette}~{index}")
}

impl Player {
    /// All cassettes, some of them side by side.
    pub async fn play_all(&self, cassettes: Vec<Cassette>) -> Tally {
        // The server has one thread for each connection, and a short queue for those that it has not accepted yet.
        let places = Arc::new(Semaphore::new(4));
        let mut playing = JoinSet::new();
        for cassette in cassettes {
            // Connections are not shared: one that the server closes after a broken answer is nobody else's fault.
            let player = Playing { http: http(self.idle_timeout), server: Arc::clone(&self.server), fault: self.fault };
            let places = Arc::clone(&places);
            playing.spawn(async move {
                let _place = places.acquire_owned().await.unwrap();
                player.play(&cassette).await
            });
        }
        let mut tally = Tally::default();
        while let Some(played) = playing.join_next().await {
            match played {
                Ok(played) => tally.add(played),
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            }
        }
        tally
    }
}

/// One cassette being played.
struct Playing {
    server: Arc<Replay>,
    http: HttpClient,
    fault: Fault,
}

impl Playing {
    async fn play(&self, cassette: &Cassette) -> Tally {
        let mut tally = Tally::default();
        let mut replies = Vec::new();
        let mut before: Vec<Message> = Vec::new();
        let mut line = None;
        let mut is_over = false;
        for recorded in cassette.recorded() {
            if is_over {
                *tally.left.entry(cassette.name.clone()).or_default() += 1;
                tally.note(BTreeSet::from(["an answer that is an error: nobody goes on from it".to_owned()]));
                continue;
            }
            if recorded.request["method"] != "POST" {
                *tally.left.entry(cassette.name.clone()).or_default() += 1;
                tally.note(BTreeSet::from(["a GET request: no state is left at the provider".to_owned()]));
                continue;
            }
            let Some(protocol) = recorded.protocol() else {
                *tally.left.entry(cassette.name.clone()).or_default() += 1;
                *tally.not_built.entry(recorded.expect["protocol"].as_str().unwrap().to_owned()).or_default() += 1;
                continue;
            };
            let (head, turns) = read(&recorded, &mut tally);
            let messages = history(&turns, &replies);
            tally.traces.push((cassette.name.clone(), recorded.index, traces(&messages)));
            let talk = self.connect(&mut line, &recorded, protocol, head);
            // A recorded client may have begun another conversation that starts the same.
            talk.rewind(before.iter().zip(&messages).take_while(|(old, new)| old == new).count());
            before.clone_from(&messages);
            let reply = self.exchange(talk, &recorded, &messages).await;
            is_over = reply.is_none() && recorded.expect["error"]["class"] == "model_output";
            replies.extend(reply);
            *tally.played.entry(recorded.expect["protocol"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        tally
    }

    /// Goes on with the conversation as long as what stays the same in one does; else opens the next.
    fn connect<'a>(
        &self,
        line: &'a mut Option<(String, Box<dyn Conversation>)>,
        recorded: &Recorded<'_>,
        protocol: &'static dyn Protocol,
        head: Head,
    ) -> &'a mut dyn Conversation {
        let base_url = self.base_url(recorded, protocol, &head);
        let identity = format!("{base_url} {head:?}");
        if line.as_ref().is_none_or(|(open, _)| *open != identity) {
            // Also where the row needs none: what runs locally may be hosted, too.
            let key = Key::Secret(Secret::new("secret"));
            let (provider, quirks) = (recorded.provider.name.to_owned(), recorded.provider.quirks);
            let endpoint = Arc::new(Endpoint { provider, protocol, quirks, base_url, key });
            let exchange = Exchange { endpoint, http: self.http.clone(), retries: self.fault.retries() };
            *line = Some((identity, exchange.open(head)));
        }
        line.as_mut().unwrap().1.as_mut()
    }

    /// The recorded path is what the protocol puts behind the base URL.
    fn base_url(&self, recorded: &Recorded<'_>, protocol: &dyn Protocol, head: &Head) -> String {
        let tape = match self.fault {
            Fault::Harmless | Fault::RefusedFirst => recorded.cassette.to_owned(),
            Fault::BrokenFirst => tape_of(recorded.cassette, recorded.index),
        };
        let path = protocol.path(head, &recorded.provider.quirks);
        let path = path.split('?').next().unwrap();
        let prefix = recorded.request["path"].as_str().unwrap().strip_suffix(path).unwrap_or_default();
        format!("{}{prefix}", self.server.address(&tape))
    }

    async fn exchange(
        &self,
        talk: &mut dyn Conversation,
        recorded: &Recorded<'_>,
        messages: &[Message],
    ) -> Option<Reply> {
        let mut recorded = *recorded;
        let (mut outcome, mut heard) = ask(talk, messages).await;
        match (self.fault, &outcome) {
            (Fault::Harmless, _) => assert_eq!(heard.retries, 0, "{}", recorded.place()),
            (Fault::RefusedFirst, _) => assert_eq!(heard.retries, 1, "{}", recorded.place()),
            (Fault::BrokenFirst, Ok(reply)) => recorded.is_without_usage = is_unknown(&reply.usage),
            // A refusal that breaks off is judged by its status; its words come with the next.
            (Fault::BrokenFirst, Err(error)) => {
                recorded.check_consequence(error);
                (outcome, heard) = ask(talk, messages).await;
            }
        }
        recorded.check(&outcome, &heard.told, messages.len());
        outcome.ok()
    }
}

/// Of an answer that broke off behind its last word.
fn is_unknown(usage: &Usage) -> bool {
    usage.input_tokens == 0 && usage.output_tokens == 0
}

/// What stays the same in the recorded conversation, and what was said in it.
fn read(recorded: &Recorded<'_>, tally: &mut Tally) -> (Head, Vec<Turn>) {
    let mut asked = Asked::read(recorded.kind, recorded.request);
    let offered = recorded.provider.server_tools;
    asked.server_tools.retain(|tool| {
        let known = offered.iter().any(|offered| offered.kind == tool.kind);
        if !known {
            asked.inexpressible.insert(format!("{}: the provider's row does not list it", tool.kind.name()));
        }
        known
    });
    tally.note(asked.inexpressible);
    let head = Head {
        agent: "player".into(),
        model: ModelName { provider: recorded.provider.name.to_owned(), model: asked.model },
        instructions: asked.instructions,
        tools: asked.tools,
        server_tools: asked.server_tools,
        settings: asked.settings,
        output: asked.output,
        may_call: true,
        stream: asked.stream,
    };
    (head, asked.turns)
}

/// What a listener got.
#[derive(Default)]
struct Heard {
    told: Told,
    retries: usize,
}

async fn ask(talk: &mut dyn Conversation, messages: &[Message]) -> (Result<Reply, ModelError>, Heard) {
    let (events, listener) = Events::new(Listen::Everything);
    let outcome = talk.reply(messages, &mut UnlimitedMeter, &events).await;
    (outcome, heard(listener))
}

fn heard(mut listener: UnboundedReceiver<Event>) -> Heard {
    let mut heard = Heard::default();
    while let Ok(event) = listener.try_recv() {
        match event.kind {
            EventKind::TextDelta { text } => heard.told.text.push_str(&text),
            EventKind::ThinkingDelta { text } => heard.told.thinking.push_str(&text),
            EventKind::ServerToolUsed { .. } => heard.told.server_tools += 1,
            EventKind::RetryScheduled { .. } => heard.retries += 1,
            EventKind::RequestStarted { .. } | EventKind::RequestFinished { .. } => {}
            other => panic!("a model does not tell {other:?}"),
        }
    }
    heard
}
