//! The symbolic side: what a call may do, who has to agree, and the one path that runs it.

pub(crate) mod agent;
pub mod approval;
pub(crate) mod ask_user;
pub mod attachment;
pub mod callback;
pub mod fence;
pub mod filesystem;
pub mod function;
#[doc(hidden)]
#[cfg(any(test, feature = "internals"))]
pub mod fuzz;
pub(crate) mod map;
pub(crate) mod mcp;
pub(crate) mod misfit;
pub mod plane;
pub mod policy;
pub mod protected;
pub mod python;
pub(crate) mod recall;
mod repository;
pub mod rpc;
pub(crate) mod secret;
pub mod shell;
pub(crate) mod skill;
pub mod source;
pub(crate) mod variant;
pub mod working_directory;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;
use crate::event::{ANSWER_NEEDED, APPROVAL_NEEDED, Events, TraceCall, UsageReport};
use crate::journal::call::CHANGED;
use crate::journal::digest::digest;
use crate::journal::{Steps, Stop};
use crate::message::{Attachment, Content, Message, RawJson};
use crate::telemetry::RunTelemetry;
use agent::AgentTool;
use approval::{DeclaredVerdict, Judgement, PendingQuestion, PermittedCall};
use attachment::Reach;

/// A live set of tools. One instance serves one call of an agent.
///
/// No default methods: a wrapper that forgets to forward one must not compile.
pub trait Toolset: Send + Sync {
    /// Every tool that it offers, with names that differ.
    fn specs(&self) -> Vec<ToolSpec>;

    /// Reads the arguments and says what the toolset thinks of the call, before rules, policy and people. An error is
    /// what the model reads of arguments that do not fit.
    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>>;

    /// Runs a call. It cannot be reached around the gate: only the gate makes a [`PermittedCall`].
    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>>;

    /// Ends what the toolset has started, when its call closes. An error is told as an event and changes no result.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>>;
}

/// A tool as its toolset declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name that the model calls it by.
    pub name: String,
    /// What the model reads about it.
    pub description: String,
    /// JSON Schema, key order kept.
    pub parameters: RawJson,
    /// What a call of it is.
    pub kind: ToolKind,
    /// Whether its calls may run at the same time as others.
    pub order: Order,
    /// Whether a call that may have happened may happen again.
    pub repeat: Repeat,
}

impl ToolSpec {
    /// A tool of this name whose arguments are an `A`: the schema is that of the type, the description its doc comment.
    /// Calls may run at the same time, and one that may have happened does not happen again.
    pub fn of<A: JsonSchema>(name: impl Into<String>) -> Self {
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<A>();
        let description = schema.get("description").and_then(|text| text.as_str()).unwrap_or_default().to_owned();
        Self {
            name: name.into(),
            description,
            parameters: RawJson::of(&schema),
            kind: ToolKind::Leaf,
            order: Order::Concurrent,
            repeat: Repeat::Once,
        }
    }
}

/// What a call of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolKind {
    /// Has `tool_*` events.
    Leaf,
    /// Has `tool_*` events, and may call tools and agents: what it calls are steps of its own.
    Code,
    /// Tells of itself with `call_*` events, and has steps of its own.
    Agent,
}

/// Whether calls of one reply may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// At any time.
    Concurrent,
    /// After the calls of sequential tools before it.
    Sequential,
}

/// Whether a call that may have happened may happen again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It never happens again.
    Once,
    /// Code that calls others runs again from its beginning, and what it called is answered from the record.
    Repeatable,
}

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ToolError {
    /// The model reads it and may recover.
    #[error("{0}")]
    Failed(String),
    /// What the approval was shown against has changed: it must be asked again.
    #[error("{CHANGED}")]
    Changed,
    /// The whole run ends.
    #[error(transparent)]
    Ends(Ending),
}

impl ToolError {
    /// An error that the model, or the code that called, is told in these words.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }
}

/// What ends a run from inside a tool, at any depth.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Ending {
    /// There was no approver for these calls, which wait for an answer.
    #[error("{}", shown_pending(.0))]
    NeedsApproval(Vec<PendingQuestion>),
    /// A rule or the approval mode refused a call.
    #[error("`{tool}` of {} was refused: {reason}", .path.join(" › "))]
    Refused {
        /// The agents and the code from the entry down.
        path: Vec<String>,
        /// The tool.
        tool: String,
        /// Why.
        reason: String,
    },
    /// A person ended it where a question was asked.
    #[error("stopped: you answered q")]
    EndedByPerson,
    /// The whole run reached a limit.
    #[error("the run reached its limit `{limit}`: {}", shown_limit(limit, (*.used, *.allowed), *.needed))]
    Limit {
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
    /// A budget over several runs has no money left for the next request.
    #[error("the budget `{budget}` is used up: {} of {} for this {per}{}", dollars(*.used), dollars(*.allowed), shown_price(*.needed))]
    Budget {
        /// What the user calls it.
        budget: String,
        /// Of what length its periods are: `day`, `week` or `month`.
        per: String,
        /// How many dollars were used in this period.
        used: f64,
        /// How many dollars are allowed in a period.
        allowed: f64,
        /// How many dollars the next request may cost, if that is what is too much.
        needed: Option<f64>,
        /// What was said before.
        partial: String,
    },
    /// A budget over several runs is in force, and its ledger cannot be kept.
    #[error("{reason}")]
    BudgetUnkept {
        /// Why.
        reason: String,
    },
    /// A model cannot recover from this.
    #[error("agent `{agent}`: {reason}")]
    Unauthenticated {
        /// The agent.
        agent: String,
        /// Why.
        reason: String,
    },
    /// A server takes requests only from those who have logged in, and nobody has.
    #[error("the MCP server `{server}` wants a login at {at}")]
    NeedsLogin {
        /// The name of its toolset.
        server: String,
        /// The authorization server.
        at: String,
        /// The directory of the project whose server it is.
        project: PathBuf,
    },
    /// The engine under the run gave no result.
    #[error(transparent)]
    Journal(#[from] Stop),
}

fn shown_pending(pending: &[PendingQuestion]) -> String {
    let calls = pending.iter().map(|call| format!("`{}` of {}", call.tool, call.path.join(" › ")));
    let needed = if pending.iter().any(|call| call.form.is_some()) { ANSWER_NEEDED } else { APPROVAL_NEEDED };
    format!("{needed}{}", calls.collect::<Vec<_>>().join(", "))
}

/// How much of a limit is used, and what the next request needs where that is more than what is left. Money is shown as money.
pub(crate) fn shown_limit(limit: &str, (used, allowed): (f64, f64), needed: Option<f64>) -> String {
    // As files, flags and events call it; the limits themselves are further up.
    if limit == "max_cost_usd" {
        return format!("{} of {}{}", dollars(used), dollars(allowed), shown_price(needed));
    }
    let needed = needed.map(|needed| format!(", and the next request may take {needed:.4}"));
    format!("{used} of {allowed}{}", needed.unwrap_or_default())
}

fn shown_price(needed: Option<f64>) -> String {
    needed.map(|needed| format!(", and the next request may cost {}", dollars(needed))).unwrap_or_default()
}

fn dollars(usd: f64) -> String {
    if usd == 0.0 {
        "$0".to_owned()
    } else if usd < 1.0 {
        format!("${usd:.4}")
    } else {
        format!("${usd:.2}")
    }
}

/// How long a call of code or of a server may take, if nothing else is said.
pub(crate) const LONGEST_CALL: Duration = Duration::from_mins(10);

/// What a running tool or entry function can see of its caller. It is passed and never stored, so that the runtime and its
/// toolsets do not own each other.
pub struct CallContext<'a> {
    pub(crate) agents: &'a dyn Agents,
    /// The agent, or the entry function, whose tools these are.
    pub(crate) agent: &'a str,
    /// The agents and the code from the entry down; the last one is the caller.
    pub(crate) path: &'a [String],
    /// How many agents stand above.
    pub(crate) depth: usize,
    /// How many calls stand above, of agents and of code alike.
    pub(crate) nesting: Nesting,
    /// The id of the caller's call.
    pub(crate) call: u64,
    /// `provider:model` of the caller; a function has none.
    pub(crate) model: Option<&'a str>,
    /// What the caller was given in this turn.
    pub(crate) input: &'a [Content],
    /// The caller's conversation so far.
    pub(crate) messages: &'a [Message],
    pub(crate) events: &'a Events,
    pub(crate) project_root: &'a Path,
    pub(crate) steps: Steps,
    /// The caller's account in the run's ledger.
    pub(crate) account: u64,
    /// The tools of the caller.
    pub(crate) plane: &'a plane::ToolPlane,
    pub(crate) cancellation: &'a CancellationToken,
    /// How long the call of code or of a server may take, if its toolset says so; zero is for ever.
    pub(crate) timeout: Option<Duration>,
}

impl CallContext<'static> {
    /// A context for unit tests of code that takes one: the caller is an agent `test` at the top of a run, with no model, no
    /// tools, no conversation and no input. Whatever the code calls through it fails and says so.
    pub fn for_test() -> Self {
        static PATH: LazyLock<[String; 1]> = LazyLock::new(|| ["test".to_owned()]);
        static EVENTS: LazyLock<Events> = LazyLock::new(Events::unheard);
        static PLANE: LazyLock<plane::ToolPlane> = LazyLock::new(plane::ToolPlane::empty);
        static CANCELLATION: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);
        Self {
            agents: &NoAgents,
            agent: "test",
            path: &*PATH,
            depth: 0,
            nesting: Nesting::up_to(Nesting::MOST),
            call: 1,
            model: None,
            input: &[],
            messages: &[],
            events: &EVENTS,
            project_root: Path::new("."),
            steps: Steps::unrecorded(),
            account: 0,
            plane: &PLANE,
            cancellation: &CANCELLATION,
            timeout: None,
        }
    }
}

/// The agents of a test: there are none.
struct NoAgents;

impl Agents for NoAgents {
    fn tool(&self, agent: &str, _: &CallContext<'_>) -> Result<AgentTool, String> {
        Err(format!("there is no agent `{agent}`: this is a context for tests"))
    }

    fn call<'a>(
        &'a self,
        agent: &'a str,
        _: &'a RawJson,
        _: Reach,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move { Err(self.tool(agent, cx).map_or_else(ToolError::Failed, |_| ToolError::Changed)) })
    }

    fn hold(&self, _: &Attachment) {}

    fn is_untyped(&self, _: &str) -> bool {
        true
    }

    fn usage(&self) -> UsageReport {
        UsageReport::default()
    }

    fn telemetry(&self) -> Option<&RunTelemetry> {
        None
    }

    fn trace(&self) -> Vec<Arc<TraceCall>> {
        Vec::new()
    }
}

impl CallContext<'_> {
    /// The agent, or the entry function, whose tools these are.
    pub fn agent(&self) -> &str {
        self.agent
    }

    /// The agents and the code from the entry down; the last one is the caller.
    pub fn path(&self) -> &[String] {
        self.path
    }

    /// How many agents stand above the caller.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// `provider:model` of the caller; a function has none.
    pub fn model(&self) -> Option<&str> {
        self.model
    }

    /// What the caller was given in this turn.
    pub fn input(&self) -> &[Content] {
        self.input
    }

    /// The caller's conversation so far.
    pub fn messages(&self) -> &[Message] {
        self.messages
    }

    /// The directory of the project.
    pub fn project_root(&self) -> &Path {
        self.project_root
    }

    /// Whether it is looked at what a call is about: the run is recorded, or lasting rules are in force.
    pub(crate) fn wants_subject(&self) -> bool {
        self.steps.is_recorded() || self.plane.has_rules()
    }

    /// Calls a tool of the caller, or an agent that it may call, by name: through the same gate, trace and limits as a
    /// call of its model.
    pub async fn call(&self, name: &str, input: &RawJson) -> Result<Vec<Content>, ToolError> {
        if self.plane.has(name) {
            return self.plane.call_by_name(name, input, self).await.inspect_err(|error| self.plane.raise(error));
        }
        self.call_agent(name, input).await
    }

    /// Calls an agent by name.
    pub async fn call_agent(&self, agent: &str, input: &RawJson) -> Result<Vec<Content>, ToolError> {
        let tool = self.agents.tool(agent, self).map_err(ToolError::Failed)?;
        self.plane.call_agent(tool, input, self).await.inspect_err(|error| self.plane.raise(error))
    }

    /// The names that [`CallContext::call`] takes besides agents.
    pub fn tools(&self) -> Vec<String> {
        self.plane.specs().into_iter().map(|spec| spec.name).collect()
    }

    /// Who calls: an agent, an entry function, or a tool in code.
    pub(crate) fn caller(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// The span of this call, as W3C Trace Context writes it, for whoever works for it elsewhere; nothing if the run is not
    /// traced.
    pub(crate) fn traceparent(&self) -> Option<String> {
        self.agents.telemetry()?.handed_on(self.call, None).map(|parent| parent.to_string())
    }

    /// The same of the call of a tool of an MCP server, which speaks this version if that is known.
    pub(crate) fn traceparent_of_mcp(&self, call: &PermittedCall, version: Option<&str>) -> Option<String> {
        self.agents.telemetry()?.handed_to_mcp(self.call, call.id(), version).map(|parent| parent.to_string())
    }

    /// The files that the caller was given in this turn.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.input.iter().filter_map(|part| match part {
            Content::Attachment(attachment) => Some(attachment),
            Content::Text { .. } | Content::Value { .. } => None,
        })
    }

    /// Tokens and money of the session so far.
    pub fn usage(&self) -> UsageReport {
        self.agents.usage()
    }

    /// The calls of the session so far.
    pub fn trace(&self) -> Vec<Arc<TraceCall>> {
        self.agents.trace()
    }

    /// For work that a call has started elsewhere, such as on a thread: tells that the call does not wait for it any
    /// more, since the turn was cancelled or is over. A call itself is simply dropped.
    pub fn cancelled(&self) -> CancellationToken {
        self.cancellation.clone()
    }
}

/// How many calls stand within each other, and how many may: code that calls itself must end somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nesting {
    calls: u64,
    allowed: u64,
}

impl Nesting {
    /// More calls than any honest program needs, and fewer than a process can bear.
    pub(crate) const MOST: u64 = 1_000;

    /// The nesting at the start, before anything was called.
    pub(crate) fn up_to(allowed: u64) -> Self {
        Self { calls: 0, allowed: allowed.min(Self::MOST) }
    }

    /// One call further in; an error says who cannot call whom.
    pub(crate) fn deeper(self, caller: &str, callee: &str) -> Result<Self, String> {
        if self.calls >= self.allowed {
            return Err(format!(
                "`{caller}` cannot call `{callee}`: {} calls stand within each other, and `max_call_depth` is {}",
                self.calls, self.allowed
            ));
        }
        Ok(Self { calls: self.calls + 1, ..self })
    }
}

/// What a toolset is: an approval for one is none for another.
pub trait ToolsetIdentity: Send + Sync {
    /// Equal for equal definitions, and for no others. Made only where an answer is looked up or kept.
    fn digest(&self) -> String;
}

/// A definition is what it says as JSON.
impl<T: Serialize + Send + Sync> ToolsetIdentity for T {
    fn digest(&self) -> String {
        digest([RawJson::of(self).get()])
    }
}

/// The runtime, as tools see it: lets `tools` stay below `runtime`.
pub trait Agents: Send + Sync {
    /// An agent as a tool of the caller's code; else why the caller may not call it by name.
    fn tool(&self, agent: &str, caller: &CallContext<'_>) -> Result<AgentTool, String>;

    /// Calls an agent with a JSON input, one level deeper than the caller.
    fn call<'a>(
        &'a self,
        agent: &'a str,
        input: &'a RawJson,
        reach: Reach,
        caller: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>>;

    /// Keeps a file for calls that code makes with it.
    fn hold(&self, file: &Attachment);

    /// Whether an agent takes whatever it is told.
    fn is_untyped(&self, agent: &str) -> bool;

    /// What the run has taken so far, in total and by model.
    fn usage(&self) -> UsageReport;

    /// The finished calls of the run, each with the calls it made, then every open call as far as it is.
    fn trace(&self) -> Vec<Arc<TraceCall>>;

    /// Who makes spans of the run, if anybody does.
    fn telemetry(&self) -> Option<&RunTelemetry>;
}

/// What a tool can do in the worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    ReadsFiles,
    WritesFiles,
    RunsCommands,
    ReachesNetwork,
    SpendsMoney,
    CreatesAgents,
}

impl Capability {
    /// Every capability, each once.
    pub(crate) const ALL: [Self; 6] = [
        Self::ReadsFiles,
        Self::WritesFiles,
        Self::RunsCommands,
        Self::ReachesNetwork,
        Self::SpendsMoney,
        Self::CreatesAgents,
    ];

    /// It in words for people, such as "reads files".
    #[cfg(feature = "front-end")]
    pub fn words(self) -> &'static str {
        match self {
            Self::ReadsFiles => "reads files",
            Self::WritesFiles => "writes files",
            Self::RunsCommands => "runs commands",
            Self::ReachesNetwork => "reaches the network",
            Self::SpendsMoney => "spends money",
            Self::CreatesAgents => "creates agents",
        }
    }
}

/// A set of capabilities, in the order of `Capability::ALL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u8);

impl Capabilities {
    /// The empty set.
    pub(crate) const NONE: Self = Self(0);
    /// Code that runs with the user's rights can do all of this.
    pub(crate) const OF_CODE: Self = Self::NONE
        .and(Capability::ReadsFiles)
        .and(Capability::WritesFiles)
        .and(Capability::RunsCommands)
        .and(Capability::ReachesNetwork);

    /// The set of this one capability.
    pub(crate) const fn of(capability: Capability) -> Self {
        Self::NONE.and(capability)
    }

    /// The same set with this capability.
    #[must_use]
    pub(crate) const fn and(self, capability: Capability) -> Self {
        Self(self.0 | 1 << capability as u8)
    }

    /// What is in either of the two sets.
    #[must_use]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this capability is in the set.
    pub(crate) const fn contains(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u8) != 0
    }

    /// The capabilities in the set, in the order of [`Capability::ALL`].
    pub(crate) fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |capability| self.contains(*capability))
    }
}

impl Serialize for Capabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// A tool as linking knows it, before any instance exists. Those that are always there are constants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeclaredTool {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What becomes of a call.
    pub verdict: DeclaredVerdict,
    /// What it can do.
    pub capabilities: Capabilities,
}
