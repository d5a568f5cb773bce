//! The imperative shell: a session that opens calls of agents and drives their turns.

pub mod input;
pub mod output;
mod scope;
pub mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::event::{Event, Events, Hearing};
use crate::message::{Message, RawJson};
use crate::model::prices::Prices;
use crate::model::scripted::Scripted;
use crate::model::{Model, ModelError};
use crate::project::{AgentSpec, Entry, Program};
use input::{Input, InputError};
use session::{Session, TraceCall, UsageReport};

pub use scope::{CallFrame, CallScope};

/// Who answers for which provider, and what that costs.
#[derive(Clone, Default)]
pub struct Models {
    by_provider: BTreeMap<String, Arc<dyn Model>>,
    prices: Prices,
}

impl Models {
    /// Nobody yet. The default knows only the prices of the table.
    pub fn new(prices: Prices) -> Self {
        Self { prices, ..Self::default() }
    }

    pub fn insert(&mut self, provider: impl Into<String>, model: Arc<dyn Model>) {
        self.by_provider.insert(provider.into(), model);
    }

    fn of(&self, agent: &AgentSpec) -> Option<Arc<dyn Model>> {
        match &agent.script {
            Some(script) => Some(Arc::new(Scripted(Arc::clone(script)))),
            None => self.by_provider.get(&agent.model.provider).cloned(),
        }
    }
}

/// Policy of a session; immutable.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Ask for streams, or for whole documents.
    pub stream: bool,
}

/// One session: its policy, its usage and trace, and the models it talks to.
pub struct Runtime {
    program: Program,
    models: Models,
    config: RuntimeConfig,
    session: Arc<Session>,
    events: Events,
    next_call: AtomicU64,
    /// Time and chance, in hex.
    pub run: String,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub output: Output,
    /// The entry's conversation; those of nested calls are events.
    pub messages: Vec<Message>,
    pub usage: UsageReport,
    pub trace: Vec<TraceCall>,
}

/// The answer: text, or a value that satisfies the agent's schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Text(String),
    Value(RawJson),
}

impl Output {
    pub fn to_json(&self) -> RawJson {
        match self {
            Self::Text(text) => RawJson::of(text),
            Self::Value(value) => value.clone(),
        }
    }
}

/// What ends a turn; the person who started the run reads it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("agent `{agent}`: {error}")]
    Model { agent: String, error: ModelError },
    #[error("agent `{agent}` gave an empty answer twice")]
    Empty { agent: String },
    #[error("the model of agent `{agent}` declined: {words}")]
    Declined { agent: String, words: String },
    #[error("agent `{agent}` made {made} model requests without coming to an answer")]
    TooManyRequests { agent: String, made: u64 },
    #[error("the answer of agent `{agent}` violates its schema: {violation}")]
    Output { agent: String, violation: String },
    #[error("there is no agent `{agent}`")]
    NoAgent { agent: String },
    #[error("no model provider `{provider}` for agent `{agent}`")]
    NoProvider { agent: String, provider: String },
    #[error("the entry is defined in Python, which was not started")]
    NotStarted,
}

impl Runtime {
    pub fn new(program: Program, models: Models, config: RuntimeConfig) -> Self {
        Self::with_events(program, models, config, Events::unheard())
    }

    /// A session whose events are heard.
    pub fn heard(
        program: Program,
        models: Models,
        config: RuntimeConfig,
        hearing: Hearing,
    ) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, listener) = Events::new(hearing);
        (Self::with_events(program, models, config, events), listener)
    }

    fn with_events(program: Program, models: Models, config: RuntimeConfig, events: Events) -> Self {
        let session = Arc::new(Session::default());
        let recorder = Arc::clone(&session);
        let events = events.recorded_by(recorder);
        Self { program, models, config, session, events, next_call: AtomicU64::new(1), run: run_id() }
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Tokens and money so far, by model and in total.
    pub fn usage(&self) -> UsageReport {
        self.session.usage()
    }

    /// The calls so far, as trees.
    pub fn trace(&self) -> Vec<TraceCall> {
        self.session.trace()
    }

    /// Opens the entry, takes one turn, closes it.
    pub async fn run(&self, input: impl Into<Input>) -> Result<Outcome, RunError> {
        let Entry::Agent(entry) = &self.program.entry else { return Err(RunError::NotStarted) };
        let mut scope = self.open(entry)?;
        let output = scope.turn(input).await;
        let messages = scope.frame.history.clone();
        scope.close(&output);
        output.map(|output| Outcome { output, messages, usage: self.usage(), trace: self.trace() })
    }

    /// Opens a call of an agent, for one turn or many.
    pub fn open(&self, agent: &str) -> Result<CallScope<'_>, RunError> {
        let spec = self.program.agents.get(agent).ok_or_else(|| RunError::NoAgent { agent: agent.to_owned() })?;
        let model = self
            .models
            .of(spec)
            .ok_or_else(|| RunError::NoProvider { agent: agent.to_owned(), provider: spec.model.provider.clone() })?;
        let call = self.next_call.fetch_add(1, Ordering::Relaxed);
        Ok(CallScope::open(self, Arc::clone(spec), model.as_ref(), call))
    }
}

/// Sortable by time, unlike any other run's.
fn run_id() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:011x}{:08x}", now.as_millis(), fastrand::u32(..))
}
