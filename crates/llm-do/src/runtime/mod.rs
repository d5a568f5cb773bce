//! The imperative shell: a session that opens calls of agents and drives their turns.

#[cfg(feature = "front-end")]
pub(crate) mod answered;
#[cfg(feature = "front-end")]
pub mod call_tree;
mod context;
mod continuation;
mod dynamic;
mod entry;
mod function;
pub mod input;
#[cfg(feature = "front-end")]
pub mod judgements;
pub(crate) mod ledger;
#[cfg(feature = "front-end")]
pub mod map;
pub mod mcp;
pub(crate) mod output;
mod python;
pub mod record;
mod remedy;
mod repeats;
mod request;
mod scope;
mod shells;
mod toolsets;
pub(crate) mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::BoxFuture;
use crate::event::{
    AgentSpending, CallOutput, Event, Events, Listen, MessageLog, Recorder, Refusal, TraceCall, UsageReport,
};
use crate::http::{HttpClient, HttpError, HttpSettings};
use crate::journal::{Journal, Steps, Stop, run_id};
use crate::message::{Attachment, Content, Finish, Message, RawJson, UnfinishedReason, json_of};
use crate::model::exchange::{Endpoint, Exchange, Key, Retries};
use crate::model::fallback::FailedModels;
use crate::model::name::ModelName;
use crate::model::prices::{ModelPrice, Prices};
use crate::model::provider;
use crate::model::scripted::ScriptedModel;
use crate::model::{Model, ModelError, ServerTool};
use crate::project::create::{CreateError, WorkerDefaults};
use crate::project::created::{CreatedAgents, CreatedStore};
use crate::project::trust::TrustedProgram;
use crate::project::{AgentSpec, AllowWorkers, Entry, EntryFunction, Limit, Limits, Program, Typing};
use crate::redact::Redactor;
use crate::remedy::Wording;
use crate::replies::ReplyCaching;
use crate::spending::{Account, BoundedAmount, BudgetsInForce};
use crate::stack;
use crate::syntax::names;
use crate::telemetry::{RunTelemetry, TracedRecorder};
use crate::tools::agent::AgentTool;
use crate::tools::approval::{
    ApprovalMode, Approvals, Candidate, Gate, GateOutcome, PendingQuestion, Permission, Verdict,
};
use crate::tools::attachment::{self, AttachmentError, Reach};
use crate::tools::fence::FenceConfig;
use crate::tools::plane::{MOST_QUESTIONS, Refusals};
use crate::tools::protected::Covers;
use crate::tools::rpc::child::ChildEnvironment;
use crate::tools::working_directory::WorkingDirectory;
use crate::tools::{Agents, CallContext, Ending, Nesting, ToolError, shown_limit};
use function::FunctionTurns;
use input::{Input, InputError};
use ledger::Ledger;
use mcp::{McpHome, Servers};
use record::{PriorRaise, PriorSpending};
use request::KnownHeads;
use scope::Caller;
use totals::RunTotals;

pub use entry::EntryCall;
#[cfg(feature = "front-end")]
pub use scope::check_history;
pub use scope::{CallScope, OutsideCaller, RestoredTurns};
#[cfg(feature = "front-end")]
pub use scope::{Steering, UndoneTurn};

/// Who answers for which provider, and what that costs.
#[derive(Clone, Default)]
pub struct Models {
    by_provider: BTreeMap<String, Arc<dyn Model>>,
    prices: Prices,
    /// Whoever connects a provider that is first needed while a conversation goes on.
    connector: Option<ProviderConnector>,
    /// Providers that would refuse us: not asked where others stand in for them.
    without_key: BTreeSet<String>,
    /// Which had trouble a moment ago.
    failed: FailedModels,
}

/// Connects a provider by its name; an error says why it cannot be asked.
type ProviderConnector = Arc<dyn Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync>;

impl Models {
    /// No provider yet. The default knows only the prices of the table.
    pub fn new(prices: Prices) -> Self {
        Self { prices, ..Self::default() }
    }

    /// Lets this model answer for a provider, in place of any that did before.
    pub fn insert(&mut self, provider: impl Into<String>, model: Arc<dyn Model>) {
        self.by_provider.insert(provider.into(), model);
    }

    /// One provider of the table, asked where it usually is and with this key; prices are those of the table.
    pub fn connect(provider: &str, key: impl Into<Key>) -> Result<Self, ConnectError> {
        let row = provider::provider(provider)
            .ok_or_else(|| ConnectError::UnknownProvider { provider: provider.to_owned() })?;
        let endpoint = Endpoint::of(row, key.into()).ok_or(ConnectError::NoAddress { provider: row.name })?;
        let http = HttpClient::new(HttpSettings::STANDARD).map_err(ConnectError::Http)?;
        let mut models = Self::default();
        models.insert(row.name, Arc::new(Exchange { endpoint: Arc::new(endpoint), http, retries: Retries::STANDARD }));
        Ok(models)
    }

    /// Providers that are not there are connected by this when a conversation goes on with one of their models.
    #[cfg(feature = "front-end")]
    #[must_use]
    pub fn connected_by(
        self,
        connector: impl Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { connector: Some(Arc::new(connector)), ..self }
    }

    /// The keys of these providers are missing: agents that have other models do not ask them.
    #[cfg(feature = "front-end")]
    #[must_use]
    pub fn without_keys_of(self, providers: impl IntoIterator<Item = String>) -> Self {
        Self { without_key: providers.into_iter().collect(), ..self }
    }

    /// These know of each other's trouble, as those of one process do.
    #[cfg(feature = "front-end")]
    #[must_use]
    pub fn sharing(self, failed: FailedModels) -> Self {
        Self { failed, ..self }
    }

    fn is_without_key(&self, provider: &str) -> bool {
        self.without_key.contains(provider)
    }

    fn of(&self, agent: &AgentSpec) -> Result<Arc<dyn Model>, RunError> {
        let known = match &agent.script {
            Some(script) => Some(Arc::new(ScriptedModel(Arc::clone(script))) as Arc<dyn Model>),
            None => self.by_provider.get(&agent.model.provider).cloned(),
        };
        known.ok_or_else(|| missing(agent, None))
    }

    /// The same for a model that a person has chosen meanwhile.
    fn chosen(&self, agent: &AgentSpec) -> Result<Arc<dyn Model>, RunError> {
        match (self.of(agent), &self.connector) {
            (Err(_), Some(connect)) => connect(&agent.model.provider).map_err(|reason| missing(agent, Some(reason))),
            (known, _) => known,
        }
    }
}

fn missing(agent: &AgentSpec, reason: Option<String>) -> RunError {
    RunError::NoProvider { agent: agent.name.clone(), provider: agent.model.provider.clone(), reason }
}

/// Why a provider cannot be connected to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The table has no such provider.
    #[error("unknown provider `{provider}`")]
    UnknownProvider {
        /// The name of the provider.
        provider: String,
    },
    /// Its address depends on the account, or it cannot be asked.
    #[error("`{provider}` has no usual address")]
    NoAddress {
        /// The name of the provider.
        provider: &'static str,
    },
    /// The connections cannot be set up.
    #[error(transparent)]
    Http(HttpError),
}

/// Policy of a session; immutable.
#[derive(Clone)]
pub struct RuntimeConfig {
    /// Who answers questions: there is no safe default.
    pub approvals: Approvals,
    /// What becomes of a run in which a call is refused.
    pub refusals: Refusals,
    /// How deep agents may call each other.
    pub max_depth: u64,
    /// How many calls may stand within each other, agents and code alike; `None` goes by `max_depth`.
    pub max_call_depth: Option<u64>,
    /// Of the whole run; those of an agent's file are of each of its calls.
    pub limits: Limits,
    /// Whether what has no known price may be used though money is limited.
    pub unknown_prices: UnknownPrices,
    /// Budgets over several runs that this one has to keep.
    pub budgets: Option<BudgetsInForce>,
    /// Replies that count again, if they do.
    pub cache: Option<ReplyCaching>,
    /// Ask for streams, or for whole documents.
    pub stream: bool,
    /// Where the run works: the base of its shells, of `filesystem_cwd` and of relative `own_files`.
    pub directory: WorkingDirectory,
    /// What keeps commands in.
    pub fence: FenceConfig,
    /// What MCP servers see of the environment, besides what the manifest gives them.
    pub children: ChildEnvironment,
    /// How MCP servers elsewhere are reached; each has its own time limit.
    pub http: HttpSettings,
    /// What is kept about MCP servers from one run to the next.
    pub mcp: McpHome,
    /// Files and directories that the program itself reads or writes for this run, besides those of the project: no
    /// tool changes them without a question.
    pub own_files: Vec<PathBuf>,
    /// Directories of the program itself, of which no tool even reads anything without a question.
    pub private_directories: Vec<PathBuf>,
    /// Where the user wants programs of shells to be found by name, besides the directories of the system.
    pub program_directories: Vec<PathBuf>,
    /// What agents that are created in this run get where their creator is silent.
    pub creation_defaults: WorkerDefaults,
    /// Where it is kept which agents were created; without it they are callable in this run alone.
    pub created: Option<CreatedStore>,
    /// Keys that no model, journal or screen is told of.
    pub redactor: Redactor,
    /// How advice is worded that a model reads.
    pub wording: Wording,
}

/// What becomes of a limit on money where the price of something is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownPrices {
    /// Nothing is asked.
    Refused,
    /// The limit holds for what has a price.
    Allowed,
}

impl UnknownPrices {
    /// Allowed, or refused.
    pub fn when(allowed: bool) -> Self {
        if allowed { Self::Allowed } else { Self::Refused }
    }
}

impl RuntimeConfig {
    /// The usual settings with these approvals: no limits, five agents deep, and the first refusal ends the run.
    pub fn new(approvals: Approvals) -> Self {
        let (refusals, limits) = (Refusals::EndRun, Limits::default());
        Self {
            approvals,
            refusals,
            max_depth: 5,
            max_call_depth: None,
            limits,
            unknown_prices: UnknownPrices::Refused,
            budgets: None,
            cache: None,
            stream: true,
            directory: WorkingDirectory::of_process(),
            fence: FenceConfig::default(),
            children: ChildEnvironment::default(),
            http: HttpSettings::STANDARD,
            mcp: McpHome::default(),
            own_files: Vec::new(),
            private_directories: Vec::new(),
            program_directories: Vec::new(),
            creation_defaults: WorkerDefaults::default(),
            created: None,
            redactor: Redactor::default(),
            wording: Wording::default(),
        }
    }
}

/// The usual settings with these approvals.
impl From<Approvals> for RuntimeConfig {
    fn from(approvals: Approvals) -> Self {
        Self::new(approvals)
    }
}

impl RuntimeConfig {
    /// Room for code between the agents, and for code that calls code.
    fn nesting(&self) -> Nesting {
        let usual = self.max_depth.saturating_mul(2).saturating_add(64);
        Nesting::up_to(self.max_call_depth.unwrap_or(usual))
    }
}

/// One session: its policy, its gate, its usage and trace, and the models it talks to.
pub struct Runtime {
    program: Arc<Program>,
    models: Arc<Models>,
    config: Arc<RuntimeConfig>,
    gate: Arc<Gate>,
    session: Arc<RunTotals>,
    ledger: Arc<Ledger>,
    /// The account of the whole session.
    account: Account,
    steps: Steps,
    /// What earlier processes did in this run.
    resumed: PriorSpending,
    events: Events,
    telemetry: Option<Arc<RunTelemetry>>,
    /// Calls that were not made inside of the run.
    entered: AtomicU64,
    /// What was said once and for all.
    said: Mutex<BTreeSet<String>>,
    /// Made when the first of them is needed.
    servers: Arc<OnceLock<Box<Servers>>>,
    /// Files that code passes on.
    held: Mutex<BTreeMap<String, Attachment>>,
    /// What is the same for all calls of an agent.
    heads: Arc<KnownHeads>,
    /// Those that were looked up.
    prices: Arc<Mutex<BTreeMap<ModelName, Option<Arc<ModelPrice>>>>>,
    /// Held by whoever asks a person about a limit; what nobody was there to answer.
    asking: Arc<tokio::sync::Mutex<Vec<(BoundedAmount, PendingQuestion)>>>,
}

fn gate(run: String, config: &RuntimeConfig, program: &Program) -> Arc<Gate> {
    Arc::new(Gate::new(run, config.approvals.clone()).ruled(&program.rules, &program.root))
}

/// The same events, which are added up, and of which somebody may make spans.
fn heard(
    events: Events,
    session: &Arc<RunTotals>,
    config: &RuntimeConfig,
    telemetry: Option<&Arc<RunTelemetry>>,
) -> Events {
    let totals = Arc::clone(session) as Arc<dyn Recorder>;
    let events = events.redacted_by(config.redactor.clone());
    let Some(telemetry) = telemetry else { return events.recorded_by(totals) };
    let traced = TracedRecorder { telemetry: Arc::clone(telemetry), recorder: totals };
    let events = events.recorded_by(Arc::new(traced)).telling_steps();
    if telemetry.has_content() { events.logged_by(Arc::clone(telemetry) as Arc<dyn MessageLog>) } else { events }
}

/// What a run gave.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The answer.
    pub output: Output,
    /// How the reply ended that is the answer; none if a function gave it.
    pub finish: Option<Finish>,
    /// The entry's conversation; those of nested calls are events.
    pub messages: Vec<Message>,
    /// What it took, in total and by model.
    pub usage: UsageReport,
    /// The call of the entry, with all that it called.
    pub trace: Vec<Arc<TraceCall>>,
    /// Calls that a rule or a person refused.
    pub refused: Vec<Refusal>,
}

/// How the last reply of a conversation ended.
pub fn finish_of(messages: &[Message]) -> Option<Finish> {
    messages.iter().rev().find_map(|message| match message {
        Message::Assistant(reply) => Some(reply.finish),
        Message::User(_) | Message::Tool(_) => None,
    })
}

/// The answer: text, or a value that satisfies the agent's schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Text.
    Text(String),
    /// JSON.
    Value(RawJson),
}

/// Text as it is, a value as its JSON.
impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(text) => text,
            Self::Value(value) => value.get(),
        })
    }
}

impl Output {
    /// The output as JSON: text in quotes, a value as it is.
    pub fn to_json(&self) -> RawJson {
        match self {
            Self::Text(text) => RawJson::from_valid(json_of(text)),
            Self::Value(value) => value.clone(),
        }
    }

    /// As events tell it.
    fn told(&self) -> CallOutput {
        match self {
            Self::Text(text) => CallOutput::Text(text.clone()),
            Self::Value(value) => CallOutput::Json(value.clone()),
        }
    }

    /// As a caller gets it.
    fn into_content(self) -> Content {
        match self {
            Self::Text(text) => Content::Text { text },
            Self::Value(value) => Content::Value { json: value.get().to_owned() },
        }
    }

    /// The output as text: text as it is, a value as its JSON.
    pub fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Value(value) => value.get().to_owned(),
        }
    }
}

/// What ends a turn; the person who started the run reads it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// The agent was not given its input.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The model gave no reply.
    #[error("agent `{agent}`: {error}")]
    Model {
        /// The agent.
        agent: String,
        /// What happened.
        error: ModelError,
    },
    /// Asking again may have helped, but a limit forbade it.
    #[error("agent `{agent}`: {error}")]
    NotAskedAgain {
        /// The agent.
        agent: String,
        /// What happened.
        error: Box<ModelError>,
        /// The key of the limit, or `budget` and its name.
        limit: String,
    },
    /// The model said nothing, twice.
    #[error("agent `{agent}` gave an empty answer twice")]
    Empty {
        /// The agent.
        agent: String,
    },
    /// The reply that was to be the answer is not whole.
    #[error("{}", cut_short(agent, unfinished))]
    Unfinished {
        /// The agent.
        agent: String,
        /// Why it is not whole.
        unfinished: UnfinishedReason,
        /// What was said before.
        partial: String,
    },
    /// A call of an agent reached a limit of its worker file.
    #[error("agent `{agent}` reached its limit `{limit}`: {}", shown_limit(limit, (*.used, *.allowed), *.needed))]
    Limit {
        /// The agent.
        agent: String,
        /// The key of the limit.
        limit: String,
        /// How much was used.
        used: f64,
        /// How much is allowed.
        allowed: f64,
        /// How much the next request may take, if that is what is too much.
        needed: Option<f64>,
        /// What was said before.
        partial: String,
    },
    /// Money is limited, and what a request would cost is not known.
    #[error("`{limit}` needs the price of `{model}`, which nobody knows")]
    UnknownPrice {
        /// The key of the limit.
        limit: String,
        /// The model.
        model: String,
    },
    /// Money is limited, and a tool of the provider may be used without bound.
    #[error("`{limit}` needs to know how often agent `{agent}` may use `{tool}` in one request")]
    UnboundedTool {
        /// The key of the limit.
        limit: String,
        /// The agent.
        agent: String,
        /// The tool.
        tool: &'static str,
    },
    /// The agent does not get any further.
    #[error("agent `{agent}` called `{tool}` three times in a row with the same failure: {reason}")]
    RepeatedFailure {
        /// The agent.
        agent: String,
        /// The tool.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The answer does not fit the schema of the agent.
    #[error("the answer of agent `{agent}` violates its schema: {violation}")]
    Output {
        /// The agent.
        agent: String,
        /// What does not fit.
        violation: String,
    },
    /// The code that answers in the place of an agent gave no answer.
    #[error("the code of `{agent}` gave no answer: {reason}")]
    Code {
        /// The agent.
        agent: String,
        /// Why.
        reason: String,
    },
    /// There is no agent of that name that may be called.
    #[error("{reason}")]
    NoAgent {
        /// Why.
        reason: String,
    },
    /// Agents call each other deeper than is allowed.
    #[error("agent `{caller}` cannot call `{agent}`: that would be depth {depth}, and `max_depth` is {max_depth}")]
    TooDeep {
        /// The agent that calls.
        caller: String,
        /// The agent.
        agent: String,
        /// How deep it would stand.
        depth: usize,
        /// How deep agents may stand.
        max_depth: u64,
    },
    /// The program has connected no such provider.
    #[error("no model provider `{provider}` for agent `{agent}`{}", because(.reason.as_deref()))]
    NoProvider {
        /// The agent.
        agent: String,
        /// The name of the provider.
        provider: String,
        /// Why it cannot be connected.
        reason: Option<String>,
    },
    /// The file of the agent is not made for this model.
    #[error("`{model}` is not a model that agent `{agent}` is compatible with; compatible: {compatible}")]
    Incompatible {
        /// The agent.
        agent: String,
        /// The model.
        model: String,
        /// What its file says.
        compatible: String,
    },
    /// Calls stand within each other deeper than is allowed.
    #[error("{0}")]
    TooManyCalls(String),
    /// A toolset could not be made.
    #[error("a toolset of agent `{agent}`: {reason}")]
    Toolset {
        /// The agent.
        agent: String,
        /// Why.
        reason: String,
    },
    /// A rule is about a tool that its toolset turned out not to have.
    #[error("{place}: agent `{agent}` has no tool `{tool}`; {instead}")]
    IdleRule {
        /// The agent.
        agent: String,
        /// Where the rule stands.
        place: String,
        /// The tool.
        tool: String,
        /// What there is instead, in words.
        instead: String,
    },
    /// The function where the run starts gave an error.
    #[error("the entry function `{function}` failed: {reason}")]
    Function {
        /// The name of the function.
        function: String,
        /// Why.
        reason: String,
    },
    /// The program was linked without its Python files.
    #[error("the entry is defined in Python, which was not started")]
    NotStarted,
    /// The conversation is larger than what its model takes, and nothing more can be left out of it.
    #[error(
        "the conversation of agent `{agent}` has about {size} tokens, and its model takes {window}; nothing more can be left out"
    )]
    ContextFull {
        /// The agent.
        agent: String,
        /// How many tokens the next request would have.
        size: u64,
        /// How many it may have.
        window: u64,
    },
    /// A mistake of the program itself.
    #[error("llm-do itself failed: {words}")]
    Panicked {
        /// What it said.
        words: String,
    },
    /// By the caller that drives the turn.
    #[error("cancelled")]
    Cancelled {
        /// What was said before.
        partial: String,
    },
    /// At any depth.
    #[error(transparent)]
    Ended(#[from] Ending),
}

impl RunError {
    /// What was said before a limit or a person stopped it.
    pub fn partial(&self) -> Option<&str> {
        match self {
            Self::Unfinished { partial, .. }
            | Self::Limit { partial, .. }
            | Self::Cancelled { partial }
            | Self::Ended(Ending::Limit { partial, .. } | Ending::Budget { partial, .. }) => {
                Some(partial.as_str()).filter(|partial| !partial.is_empty())
            }
            Self::Input(_)
            | Self::Model { .. }
            | Self::NotAskedAgain { .. }
            | Self::Empty { .. }
            | Self::UnknownPrice { .. }
            | Self::UnboundedTool { .. }
            | Self::RepeatedFailure { .. }
            | Self::Output { .. }
            | Self::Code { .. }
            | Self::NoAgent { .. }
            | Self::TooDeep { .. }
            | Self::NoProvider { .. }
            | Self::Incompatible { .. }
            | Self::TooManyCalls(_)
            | Self::Toolset { .. }
            | Self::IdleRule { .. }
            | Self::Function { .. }
            | Self::NotStarted
            | Self::ContextFull { .. }
            | Self::Panicked { .. }
            | Self::Ended(_) => None,
        }
    }
}

impl RunError {
    /// How the last reply ended, if that is what went wrong.
    pub fn finish(&self) -> Option<Finish> {
        let Self::Unfinished { unfinished, .. } = self else { return None };
        Some(match unfinished {
            UnfinishedReason::Length => Finish::Length,
            UnfinishedReason::ContextWindow => Finish::ContextWindow,
            UnfinishedReason::Declined { .. } => Finish::ContentFilter,
            UnfinishedReason::Broken { .. } => Finish::Error,
        })
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn cut_short(agent: &str, unfinished: &UnfinishedReason) -> String {
    match unfinished {
        UnfinishedReason::Length => {
            format!("the answer of agent `{agent}` was cut off: it reached the longest that is allowed")
        }
        UnfinishedReason::ContextWindow => {
            format!("the answer of agent `{agent}` was cut off: the context window of its model is full")
        }
        UnfinishedReason::Declined { words } => format!("the model of agent `{agent}` declined: {words}"),
        UnfinishedReason::Broken { word } => {
            format!("the answer of agent `{agent}` is not whole: its provider ended it with `{word}`")
        }
    }
}

impl From<Stop> for RunError {
    fn from(stop: Stop) -> Self {
        Self::Ended(Ending::Journal(stop))
    }
}

impl Runtime {
    /// A runtime for a program that was trusted, without a listener. Nothing starts before the first call opens.
    pub fn new(program: TrustedProgram, models: Models, config: impl Into<RuntimeConfig>) -> Self {
        Self::with_events(program, models, config.into(), Events::unheard())
    }

    /// A session whose events are heard.
    pub fn with_listener(
        program: TrustedProgram,
        models: Models,
        config: impl Into<RuntimeConfig>,
        hearing: Listen,
    ) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, listener) = Events::new(hearing);
        (Self::with_events(program, models, config.into(), events), listener)
    }

    fn with_events(program: TrustedProgram, models: Models, config: RuntimeConfig, events: Events) -> Self {
        let mut program = program.into_inner();
        for path in &config.own_files {
            program.protected.add(config.directory.join(path), Covers::Tree, "is written or read by this run itself");
        }
        for path in &config.private_directories {
            program.protected.add(config.directory.join(path), Covers::Private, "belongs to llm-do itself");
        }
        program.wording = config.wording;
        program.created = Arc::new(CreatedAgents::of(&program.root, config.created.as_ref()));
        let session = Arc::new(RunTotals::default());
        let events = heard(events, &session, &config, None);
        let gate = gate(run_id::run_id(), &config, &program);
        let (steps, entered) = (Steps::unrecorded(), AtomicU64::new(0));
        let ledger = Arc::new(Ledger::before(config.budgets.clone()));
        let account = ledger.open(config.limits.clone(), None, 0);
        let (program, resumed) = (Arc::new(program), PriorSpending::default());
        let telemetry = None;
        let servers = Arc::default();
        let (said, prices, held) = (Mutex::default(), Arc::default(), Mutex::default());
        python::attach(&program, &events);
        Self {
            program,
            models: Arc::new(models),
            config: Arc::new(config),
            gate,
            session,
            ledger,
            account,
            steps,
            resumed,
            events,
            telemetry,
            entered,
            said,
            servers,
            held,
            heads: Arc::default(),
            prices,
            asking: Arc::default(),
        }
    }

    /// Ends what the session has started, and waits for it. A session that is dropped ends it without a word.
    pub async fn close(&self) {
        if let Some(servers) = self.servers.get() {
            servers.close().await;
        }
    }

    fn servers(&self) -> &Servers {
        self.servers.get_or_init(|| Box::new(Servers::new(&self.program, &self.config, &self.events)))
    }

    /// Looked up once for each model: a table of prices is long.
    fn price_of(&self, model: &ModelName) -> Option<Arc<ModelPrice>> {
        let mut prices = self.prices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(price) = prices.get(model) {
            return price.clone();
        }
        let price = self.models.prices.of(model).map(Arc::new);
        prices.insert(model.clone(), price.clone());
        price
    }

    /// Whether something is said for the first time in this session.
    fn is_news(&self, text: &str) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned())
    }

    /// What the run is called: time and chance, or as it was called when it began elsewhere.
    pub fn run_id(&self) -> &str {
        self.gate.run()
    }

    /// The same run under the id that it has; before any call is opened.
    #[must_use]
    pub fn identified(mut self, run: String) -> Self {
        self.gate = gate(run, &self.config, &self.program);
        self
    }

    /// Every effect goes through this engine from now on. What earlier processes spent counts.
    #[must_use]
    pub fn recorded_by(mut self, engine: Arc<dyn Journal>, mut resumed: PriorSpending) -> Self {
        self.steps = Steps::recorded_by(engine);
        if let Some(known) = &self.config.approvals.known {
            resumed.answered(self.gate.run(), known.as_ref());
        }
        self.ledger.carry_over(self.account, resumed.total());
        resumed.account_to(&self.session);
        self.resumed = resumed;
        self.raise_as_before(self.account);
        self
    }

    /// What people have decided about the limits of the run holds again.
    fn raise_as_before(&self, run: Account) {
        for (limit, PriorRaise { raise, is_refused }) in self.resumed.raised_for_all(run) {
            match self.ledger.allowed(&limit) {
                Some(allowed) if raise.is_from(allowed) && is_refused => self.ledger.refuse(&limit),
                Some(allowed) if raise.is_from(allowed) => self.ledger.raise(&limit, raise.to),
                Some(_) | None => {}
            }
        }
    }

    /// The same session, whose effects are recorded by a journal that has just begun; before any call is opened.
    #[must_use]
    pub fn with_journal(self, journal: impl Journal + 'static) -> Self {
        self.recorded_by(Arc::new(journal), PriorSpending::default())
    }

    /// The place of a call that is not made inside of the run; mostly there is one.
    fn steps_of_entry(&self, name: &str) -> Steps {
        match self.entered.fetch_add(1, Ordering::Relaxed) {
            0 => self.steps.at(format_args!("{name}")),
            number => self.steps.at(format_args!("{name}.{number}")),
        }
    }

    /// The same session, whose messages this log keeps; before any call is opened.
    #[must_use]
    #[cfg(feature = "front-end")]
    pub fn logged_by(self, log: Arc<dyn crate::event::MessageLog>) -> Self {
        Self { events: self.events.logged_by(log), ..self }
    }

    /// The same session, of which somebody makes spans; before any call is opened, and before any log is given.
    #[must_use]
    #[cfg(feature = "front-end")]
    pub fn traced_by(self, telemetry: Arc<RunTelemetry>) -> Self {
        let events = heard(self.events, &self.session, &self.config, Some(&telemetry));
        Self { events, telemetry: Some(telemetry), ..self }
    }

    /// The program that is run, with every name resolved.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// How long nothing has come of an answer that is waited for.
    #[cfg(feature = "front-end")]
    pub fn silence(&self) -> Option<crate::event::ProviderSilence> {
        self.events.silence().now()
    }

    /// What runs without a question until the session ends.
    #[cfg(feature = "front-end")]
    pub fn granted(&self) -> Vec<crate::tools::approval::SessionGrant> {
        self.gate.granted()
    }

    /// Asks again about what was granted for the session.
    #[cfg(feature = "front-end")]
    pub fn forget(&self, grant: &crate::tools::approval::SessionGrant) {
        self.gate.forget(grant);
    }

    /// The calls that were refused so far, in order.
    pub fn refused(&self) -> Vec<Refusal> {
        self.session.refused()
    }

    /// Tokens and money so far, by model and in total.
    pub fn usage(&self) -> UsageReport {
        self.session.usage()
    }

    /// What each agent used of each model so far.
    pub fn spending(&self) -> Vec<AgentSpending> {
        self.session.spending()
    }

    /// Who makes spans of the run, if anybody does.
    #[cfg(feature = "front-end")]
    pub fn telemetry(&self) -> Option<&RunTelemetry> {
        self.telemetry.as_deref()
    }

    /// The calls so far, as trees.
    pub fn trace(&self) -> Vec<Arc<TraceCall>> {
        self.session.trace()
    }

    /// Opens the entry, takes one turn, closes it.
    pub async fn run(&self, input: impl Into<Input>) -> Result<Outcome, RunError> {
        self.run_once(input.into()).await
    }

    /// Boxed, so that its code is made here and not by every crate that runs something.
    #[inline(never)]
    fn run_once(&self, input: Input) -> BoxFuture<'_, Result<Outcome, RunError>> {
        Box::pin(async move {
            self.check_prices()?;
            let call = self.events.new_call();
            let (output, messages) = match &self.program.entry {
                Entry::Agent(agent) => self.run_agent(agent, input, call).await?,
                Entry::Function(function) => {
                    let mut turns = FunctionTurns::default();
                    (Box::pin(self.run_entry(function, input, &mut turns, call)).await?, Vec::new())
                }
                Entry::Open => return Err(RunError::NotStarted),
            };
            let trace = self.session.trace_of(call).into_iter().collect();
            let refused = self.refused();
            Ok(Outcome { refused, output, finish: finish_of(&messages), messages, usage: self.usage(), trace })
        })
    }

    /// Runs an entry that is a function: one input → one answer, and nothing is kept for another.
    #[inline(never)]
    fn enter_function<'a>(
        &'a self,
        function: &'a EntryFunction,
        input: Input,
        turns: &'a mut FunctionTurns,
    ) -> BoxFuture<'a, Result<Output, RunError>> {
        Box::pin(self.run_entry(function, input, turns, self.events.new_call()))
    }

    async fn run_entry(
        &self,
        function: &EntryFunction,
        input: Input,
        turns: &mut FunctionTurns,
        call: u64,
    ) -> Result<Output, RunError> {
        let registry = &self.program.registry;
        match function {
            EntryFunction::Registered(_) => {
                let entry = registry.entry.as_ref().ok_or(RunError::NotStarted)?;
                self.run_function(entry, input, turns.next(self, entry), call).await
            }
            EntryFunction::Python { file, function } => {
                let host = registry.python.as_ref().ok_or(RunError::NotStarted)?;
                python::renew(&self.program, &self.events).await;
                let entry = python::entry(host, file, function).await?;
                self.run_function(&entry, input, turns.next(self, &entry), call).await
            }
        }
    }

    async fn run_agent(&self, agent: &str, input: Input, call: u64) -> Result<(Output, Vec<Message>), RunError> {
        let mut scope = self.open_for(agent, call, Caller::Nobody).await?;
        scope.keep_turns(scope::TurnKeeping::Never);
        let output = scope.turn(input).await;
        let messages = scope.finish().await;
        output.map(|output| (output, messages))
    }

    /// A limit on money can only be kept where every price is known, and how often it has to be paid.
    fn check_prices(&self) -> Result<(), RunError> {
        if self.config.unknown_prices == UnknownPrices::Allowed {
            return Ok(());
        }
        let budget = self.ledger.further_name();
        let of_run = self.config.limits.max_cost_usd.is_some() || budget.is_some();
        let named = || budget.clone().unwrap_or_else(|| Limit::Cost.key().to_owned());
        let limited = |agent: &AgentSpec| of_run || agent.limits.max_cost_usd.is_some();
        for agent in self.program.agents.values().filter(|agent| limited(agent) && agent.script.is_none()) {
            let offered = offered_server_tools(agent, &self.config.approvals);
            if let Some(tool) = offered.iter().find(|tool| tool.max_uses.is_none()) {
                let (limit, agent) = (named(), agent.name.clone());
                return Err(RunError::UnboundedTool { limit, agent, tool: tool.kind.name() });
            }
        }
        let agents = self.program.agents.values();
        let others = agents.clone().flat_map(|agent| agent.fallbacks.iter().map(|other| (other, limited(agent))));
        let others = others.chain(self.program.fallbacks.iter().map(|fallback| (fallback, of_run)));
        let others = others.map(|(other, limited)| (&other.model, &other.script, limited));
        for (model, script, limited) in agents.map(|agent| (&agent.model, &agent.script, limited(agent))).chain(others)
        {
            if limited && script.is_none() && self.price_of(model).is_none() {
                return Err(RunError::UnknownPrice { limit: named(), model: model.to_string() });
            }
        }
        Ok(())
    }

    /// An input from outside may name files that the approver must agree to, as a call of a model may.
    async fn permitted_reach(
        &self,
        input: &Input,
        path: &[String],
        steps: &Steps,
        events: &Events,
    ) -> Result<Reach, RunError> {
        let value = match input {
            Input::Object { value, .. } => value,
            Input::Text(_) | Input::Parts(_) => return Ok(Reach::Project),
        };
        for attempt in 0..MOST_QUESTIONS {
            // Boxed: hardly any input comes so far.
            let Some(permission) = Box::pin(self.permitted_files(value, path, attempt, steps, events)).await? else {
                return Ok(Reach::Project);
            };
            // Others than those that were shown are asked about again.
            if let Ok(reach) = attachment::reach(value, self.program.premises(), permission.bound_to()) {
                return Ok(reach);
            }
        }
        let (path, tool, reason) = (path.to_vec(), "attach".to_owned(), "its files keep changing".to_owned());
        Err(Ending::Refused { path, tool, reason }.into())
    }

    /// What the approver says about the files that an input names; `None` if there is nothing to ask.
    async fn permitted_files(
        &self,
        input: &serde_json::Value,
        path: &[String],
        attempt: usize,
        steps: &Steps,
        events: &Events,
    ) -> Result<Option<Permission>, RunError> {
        let callee = path.last().map_or("", String::as_str);
        let Some(question) = attachment::question(input, self.program.premises(), callee) else { return Ok(None) };
        let arguments = RawJson::of(&serde_json::json!({"paths": attachment::named_in(input)}));
        let place = if attempt == 0 { "attach".to_owned() } else { format!("attach.{attempt}") };
        let key = || format!("{}/{place}", steps.path());
        let candidate =
            Candidate { tool: "attach", arguments: &arguments, toolset: &callee, agent: callee, path, key: &key };
        let unchangeable = |_: RawJson| async { Err("another input is another run".to_owned()) };
        let steps = steps.at(format_args!("{place}"));
        let ruling = Verdict::AskAnyway(question).into();
        let passage = self.gate.pass(candidate, ruling, unchangeable, &steps, events).await?;
        match passage.outcome {
            GateOutcome::Permitted(permission) => Ok(Some(permission)),
            GateOutcome::Waits(pending) => Err(Ending::NeedsApproval(vec![pending]).into()),
            GateOutcome::Refused { reason, .. } => {
                Err(Ending::Refused { path: path.to_vec(), tool: "attach".to_owned(), reason }.into())
            }
            GateOutcome::EndRun => Err(Ending::EndedByPerson.into()),
        }
    }

    /// What code or a model gives to an agent: files that are not part of its input go beside it.
    fn handed_on(&self, agent: &str, value: serde_json::Value, reach: &Reach) -> Result<Input, InputError> {
        let (value, files) = match self.program.agent(agent) {
            Ok(spec) => toolsets::agent_tool(&self.program, &spec).apart(value),
            Err(_) => (value, Vec::new()),
        };
        let read = |file: &serde_json::Value| match attachment::held(file) {
            Some(key) => self.held(key).ok_or_else(|| AttachmentError::new(key, "was given to nobody")),
            None => attachment::read(file, self.program.premises(), reach),
        };
        let attachments = files.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Input::Object { value, attachments })
    }

    fn held(&self, key: &str) -> Option<Attachment> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Opens a call of an agent, for one turn or many: its toolsets are made here. Close it when it is done: a scope
    /// that is dropped asks its toolsets to close and does not wait for them.
    pub async fn open(&self, agent: &str) -> Result<CallScope<'_>, RunError> {
        self.check_prices()?;
        self.open_for(agent, self.events.new_call(), Caller::Nobody).await
    }

    /// What would become of a call of an agent's tool, and why. The agent's toolsets are opened for that; nothing is called.
    #[cfg(feature = "front-end")]
    pub async fn explain(
        &self,
        agent: &str,
        tool: &str,
        arguments: &RawJson,
    ) -> Result<crate::tools::policy::Explanation, RunError> {
        let scope = self.open(agent).await?;
        let explained = scope.explain(tool, arguments, self.config.approvals.mode).await;
        scope.finish().await;
        explained.map_err(|reason| RunError::NoAgent { reason })
    }

    /// Opens a call on behalf of an agent that runs elsewhere: one level deeper than it, and named after it.
    async fn open_for_outside(&self, agent: &str, caller: &OutsideCaller) -> Result<CallScope<'_>, RunError> {
        self.check_prices()?;
        self.open_for(agent, self.events.new_call(), Caller::Outside(caller)).await
    }

    #[inline(never)]
    fn open_for<'r: 'a, 'a>(
        &'r self,
        agent: &'a str,
        call: u64,
        caller: Caller<'a>,
    ) -> BoxFuture<'a, Result<CallScope<'r>, RunError>> {
        Box::pin(self.opened_for(agent, call, caller))
    }

    async fn opened_for(&self, agent: &str, call: u64, caller: Caller<'_>) -> Result<CallScope<'_>, RunError> {
        let unlinked = |error: CreateError| RunError::NoAgent { reason: error.to_string() };
        let spec = self.program.agent(agent).map_err(unlinked)?;
        let depth = caller.next_depth();
        if depth as u64 >= self.config.max_depth {
            return Err(RunError::TooDeep {
                caller: caller.name().to_owned(),
                agent: agent.to_owned(),
                depth,
                max_depth: self.config.max_depth,
            });
        }
        let above = caller.nesting().unwrap_or_else(|| self.config.nesting());
        let nesting = above.deeper(caller.name(), agent).map_err(RunError::TooManyCalls)?;
        let ((spec, model), several) = self.models.first_of(&spec)?;
        let mut scope = CallScope::open(self, spec, model.as_ref(), call, nesting, caller).await?;
        scope.ask_in_turn(several);
        Ok(scope)
    }
}

impl Agents for Runtime {
    fn tool(&self, agent: &str, caller: &CallContext<'_>) -> Result<AgentTool, String> {
        let spec = self.program.agent(caller.agent).ok();
        match spec.as_ref().and_then(|spec| spec.allow_workers.as_ref()) {
            Some(AllowWorkers::Only(names)) if !names.iter().any(|name| name == agent) => {
                let callable = names::instead(agent, "agents that it may call", names.iter().map(String::as_str));
                return Err(format!("`{}` may not call `{agent}`; {callable}", caller.agent));
            }
            None | Some(AllowWorkers::Any | AllowWorkers::Only(_)) => {}
        }
        let callee = self.program.agent(agent).map_err(|error| {
            let known = self.program.agents.keys().map(String::as_str);
            format!("{error}; {}", names::instead(agent, "agents", known))
        })?;
        Ok(toolsets::agent_tool(&self.program, &callee))
    }

    fn call<'a>(
        &'a self,
        agent: &'a str,
        input: &'a RawJson,
        reach: Reach,
        caller: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(stack::on_enough(Box::pin(async move {
            let value = input.to().map_err(|error| ToolError::Failed(error.to_string()))?;
            let failed = |error| failure_of(agent, error);
            let input = self.handed_on(agent, value, &reach).map_err(|error| failed(error.into()))?;
            let opening = self.open_for(agent, self.events.new_call(), Caller::Call(caller));
            let mut scope = opening.await.map_err(failed)?;
            let output = scope.called(input, reach).await;
            scope.close().await;
            output.map(|output| vec![output.into_content()]).map_err(failed)
        })))
    }

    fn hold(&self, file: &Attachment) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry(attachment::held_as(file)).or_insert_with(|| file.clone());
    }

    fn is_untyped(&self, agent: &str) -> bool {
        self.program.agent(agent).is_ok_and(|spec| spec.input == Typing::Untyped)
    }

    fn usage(&self) -> UsageReport {
        self.session.usage()
    }

    fn trace(&self) -> Vec<Arc<TraceCall>> {
        self.session.trace()
    }

    fn telemetry(&self) -> Option<&RunTelemetry> {
        self.telemetry.as_deref()
    }
}

/// The provider's own tools that an agent is given. They run outside the gate, so where every question is answered with
/// no they are not offered.
fn offered_server_tools<'a>(agent: &'a AgentSpec, approvals: &Approvals) -> &'a [ServerTool] {
    match approvals.mode {
        ApprovalMode::RejectAll => &[],
        ApprovalMode::ApproveAll | ApprovalMode::Prompt => &agent.server_tools,
    }
}

/// What the caller of an agent makes of its failure.
fn failure_of(agent: &str, error: RunError) -> ToolError {
    match error {
        RunError::Ended(ending) => ToolError::Ends(ending),
        // No model can get a key.
        RunError::Model { agent, error: error @ ModelError::Authenticate(_) } => {
            ToolError::Ends(Ending::Unauthenticated { agent, reason: error.to_string() })
        }
        RunError::Limit { ref partial, .. }
        | RunError::Unfinished {
            ref partial,
            unfinished: UnfinishedReason::Length | UnfinishedReason::ContextWindow,
            ..
        } if !partial.is_empty() => {
            ToolError::Failed(format!("agent `{agent}` was stopped: {error}; until then it said: {partial}"))
        }
        error => ToolError::Failed(format!("agent `{agent}` failed: {error}")),
    }
}
