//! A model provider on loopback, for tests and benchmarks.
//!
//! It speaks the real wire formats over real HTTP, checks what it is sent as the providers do, and breaks in every
//! way that a network can. It shares no code with what it tests.
//!
//! ```
//! use fake_llm::{FakeCall, FakeLlm, InjectedFault, On, FakeReply, FakeScript};
//! use serde_json::json;
//!
//! let fake = FakeLlm::start(
//!     FakeScript::new()
//!         .reply(FakeReply::calls([FakeCall::new("read_file", json!({"path": "a.txt"}))]))
//!         .reply(FakeReply::text("It says hello."))
//!         .fault(On::Request(2), InjectedFault::status(529)),
//! );
//! let base = fake.anthropic_url(); // or fake.openai_url(), …: give it to the client
//! # assert!(base.starts_with("http://127.0.0.1:"));
//! // … run the client, then:
//! // fake.assert_finished();
//! // assert_eq!(fake.requests()[1].seen.as_ref().unwrap().last_result(), Some("hello"));
//! ```
//!
//! Reading order: `reply`, `seen` and `script` are the language of tests; `protocol` is one file for each wire
//! format; `scripted` plays a script; `answer` and `fault` say what goes over the wire; `http1` and `http2` send it.
//! `proxy` stands in between. `priced` counts and bills.

mod answer;
mod constant;
mod counts;
mod fault;
mod gate;
mod history;
mod http1;
mod http2;
mod priced;
mod protocol;
mod proxy;
mod reply;
mod request;
mod script;
mod scripted;
mod seen;
mod server;
mod tls;

use std::sync::Arc;

pub use answer::{At, Cut};
pub use constant::Constant;
pub use counts::Stats;
pub use fault::{FakeProviderError, InjectedFault, LineEnd, On, RetryAfter};
pub use gate::StallGate;
pub use priced::{Bill, FakePrices};
pub use protocol::Protocol;
pub use proxy::{FakeProxy, ProxyFault, ProxyScript};
pub use reply::{FakeCall, FakeFinish, FakeReply, FakeUsage};
pub use request::{Headers, HttpVersion, ReceivedRequest, Violation};
pub use script::FakeScript;
pub use seen::{Role, SeenMessage, SeenPart, SeenRequest, SeenTool, StreamMode};

use counts::Counts;
use server::{FakeServer, RunningServer};

/// A running server. It stops when it is dropped.
pub struct FakeLlm {
    server: Arc<FakeServer>,
    running: RunningServer,
    transport: Transport,
    ca_pem: Option<String>,
}

/// How clients reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// HTTP/1.1.
    Plain,
    /// HTTP/1.1 or HTTP/2, as the client wishes (ALPN), with a certificate for `localhost` and `127.0.0.1` that is
    /// signed by [`FakeLlm::ca_pem`].
    Tls,
    /// The same without HTTP/2.
    TlsHttp1,
}

/// What the server does: play a [`FakeScript`], or be [`Constant`].
pub struct Behaviour(server::ServerBehaviour);

impl From<FakeScript> for Behaviour {
    fn from(script: FakeScript) -> Self {
        Self(server::ServerBehaviour::Scripted(Arc::new(scripted::ScriptPlayer::new(script))))
    }
}

impl From<Constant> for Behaviour {
    fn from(constant: Constant) -> Self {
        Self(server::ServerBehaviour::Constant(constant::ConstantAnswers::new(&constant)))
    }
}

impl FakeLlm {
    /// Serves plain HTTP on a free port of loopback.
    pub fn start(behaviour: impl Into<Behaviour>) -> Self {
        Self::start_on(Transport::Plain, behaviour)
    }

    pub fn start_on(transport: Transport, behaviour: impl Into<Behaviour>) -> Self {
        let identity = match transport {
            Transport::Plain => None,
            Transport::Tls => Some(tls::TlsIdentity::generate(&[tls::HTTP2, tls::HTTP1])),
            Transport::TlsHttp1 => Some(tls::TlsIdentity::generate(&[tls::HTTP1])),
        };
        let server = Arc::new(FakeServer { behaviour: behaviour.into().0, counts: Arc::new(Counts::default()) });
        let acceptor = identity.as_ref().map(|identity| identity.acceptor.clone());
        let running = server.start(acceptor).expect("loopback has a free port, and there is room for a thread");
        Self { server, running, transport, ca_pem: identity.map(|identity| identity.ca_pem) }
    }

    /// `http://127.0.0.1:PORT`, or `https://…`.
    pub fn url(&self) -> String {
        let scheme = match self.transport {
            Transport::Plain => "http",
            Transport::Tls | Transport::TlsHttp1 => "https",
        };
        format!("{scheme}://{}", self.running.address)
    }

    /// The base to which clients add `/v1/messages`.
    pub fn anthropic_url(&self) -> String {
        self.url()
    }

    /// The base to which clients add `/chat/completions` or `/responses`.
    pub fn openai_url(&self) -> String {
        format!("{}/v1", self.url())
    }

    /// The base to which clients add `/v1beta/models/M:generateContent`.
    pub fn gemini_url(&self) -> String {
        self.url()
    }

    /// The base to which clients of Vertex AI add `/models/M:generateContent`.
    pub fn vertex_url(&self) -> String {
        format!("{}/v1/projects/fake/locations/global/publishers/google", self.url())
    }

    pub fn port(&self) -> u16 {
        self.running.address.port()
    }

    /// The certificate that clients must trust.
    ///
    /// # Panics
    /// When the server is one with [`Transport::Plain`].
    pub fn ca_pem(&self) -> &str {
        self.ca_pem.as_deref().expect("only a server with TLS has a certificate authority")
    }

    /// Everything received so far. A constant server remembers nothing.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        match &self.server.behaviour {
            server::ServerBehaviour::Scripted(scripted) => scripted.requests(),
            server::ServerBehaviour::Constant(_) => Vec::new(),
        }
    }

    /// Everything a provider would have refused so far.
    pub fn violations(&self) -> Vec<Violation> {
        match &self.server.behaviour {
            server::ServerBehaviour::Scripted(scripted) => scripted.violations(),
            server::ServerBehaviour::Constant(_) => Vec::new(),
        }
    }

    /// # Panics
    /// When a reply in order was never delivered, a rule never applied, or a provider would have refused a request.
    #[track_caller]
    pub fn assert_finished(&self) {
        let unfinished = match &self.server.behaviour {
            server::ServerBehaviour::Scripted(scripted) => scripted.unfinished(),
            server::ServerBehaviour::Constant(_) => Vec::new(),
        };
        assert!(unfinished.is_empty(), "the script was not played as written:\n  {}", unfinished.join("\n  "));
    }

    /// The counts so far. Bytes are counted as they pass, so the last ones may be missing while a client still reads.
    pub fn stats(&self) -> Stats {
        self.server.counts.stats()
    }

    /// Stops and returns the final counts.
    pub fn stop(self) -> Stats {
        drop(self.running);
        self.server.counts.stats()
    }
}
