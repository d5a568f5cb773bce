//! The words of `llm-do serve`: what programs ask, and what they are answered. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use llm_do::approval::{ApprovalMode, Coverage, Form, Memory, PendingQuestion};
use llm_do::created::{WorkerDefaults, WorkerSpec};
use llm_do::events::{Refusal, TraceCall, UsageReport};
use llm_do::messages::Finish;
use llm_do::program::AttachmentPolicy;
use llm_do::python::PythonEndpoint;
use llm_do::rpc::{RpcError, code};
use llm_do::runs::UnknownPrices;
use llm_do::trust::{TrustDigest, TrustItem};
use llm_do::{Answer, ApprovalRequest, Event, Limits, Message, OnLimit, RawJson, Rule};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment::Environment;
use crate::failure::Failure;
use llm_do_launch::program_terms::ToolRule;
use llm_do_launch::saved_files::SavedFile;
use llm_do_launch::trust::Consent;

/// The version of the protocol. It changes when a client that knows the older one would be wrong.
pub const PROTOCOL: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub protocol: u32,
}

#[derive(Debug, Serialize)]
pub struct Welcome {
    pub protocol: u32,
    pub version: &'static str,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// A directory, a manifest or a worker file, relative to our working directory; with `agents` the directory that is
    /// their root.
    #[serde(default)]
    pub project: Option<PathBuf>,
    /// The scope's number, which the client may choose.
    #[serde(default)]
    pub scope: Option<u64>,
    /// Worker files as text: the project is made of these, not of files.
    #[serde(default)]
    pub agents: Option<Vec<String>>,
    /// Single tools of the client.
    #[serde(default)]
    pub tools: Vec<OfferedTool>,
    #[serde(default)]
    pub toolsets: BTreeMap<String, ToolsetParam>,
    #[serde(default)]
    pub entry: Option<EntryParam>,
    /// Agents whose typed inputs the client puts into words.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// The manifest's key, for `agents`.
    #[serde(default)]
    pub runtime: Option<RawJson>,
    #[serde(default, alias = "worker")]
    pub agent: Option<String>,
    /// The model of agents whose file names none.
    #[serde(default)]
    pub model: Option<String>,
    /// Endpoints of the client's own, by the name of the provider that they are.
    #[serde(default)]
    pub providers: BTreeMap<String, PythonEndpoint>,
    /// Models instead of those in the files, by agent.
    #[serde(default)]
    pub models: BTreeMap<String, String>,
    #[serde(default)]
    pub approval_mode: Option<Mode>,
    #[serde(default)]
    pub tool_rules: BTreeMap<String, ToolRule>,
    #[serde(default)]
    pub limits: LimitsParam,
    #[serde(default)]
    pub max_depth: Option<u64>,
    #[serde(default)]
    pub caller: Option<CallerParam>,
    #[serde(default)]
    pub creation_defaults: Defaults,
    #[serde(default)]
    pub events: EventSelection,
    #[serde(default)]
    pub trust: TrustParam,
    #[serde(default)]
    pub python: Option<PathBuf>,
    /// Whether the scope is kept; absent: what the configuration says.
    #[serde(default)]
    pub keep: Option<bool>,
    /// What the user calls it.
    #[serde(default)]
    pub label: Option<String>,
    /// Each step is on the disk before the next one.
    #[serde(default)]
    pub durable: bool,
    /// The run to go on with.
    #[serde(default, rename = "continue")]
    pub continues: Option<String>,
    /// A turn that was cut off may be finished with a project that has changed since.
    #[serde(default)]
    pub force: bool,
    /// Answers to questions that waited.
    #[serde(default)]
    pub answers: BTreeMap<String, Decision>,
    /// What was said elsewhere, which the conversation begins with.
    #[serde(default)]
    pub message_history: Vec<Message>,
}

impl Open {
    /// The agent that the scope starts with, if the client says it.
    pub fn entered(&self) -> Option<String> {
        self.agent.clone().or_else(|| self.entry.as_ref().and_then(|entry| entry.agent.clone()))
    }

    /// Whether the project is not on disk: the client gives its agents, or an entry that needs none.
    pub fn is_of_values(&self) -> bool {
        let has_function = self.entry.as_ref().is_some_and(|entry| entry.function.is_some());
        self.agents.as_ref().is_some_and(|agents| !agents.is_empty() || has_function)
    }
}

/// Whether a program agrees to what a project asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TrustParam {
    #[default]
    Unsaid,
    Said(bool),
    /// It agrees to exactly the list with this digest.
    List(String),
}

impl TrustParam {
    /// What the program agrees to. If it says nothing, `LLM_DO_TRUST` decides, which the user who started this
    /// process may have set.
    pub fn consent(&self, environment: &Environment) -> Result<Option<Consent>, Failure> {
        match self {
            Self::Unsaid => environment.consent(),
            Self::Said(false) => Ok(None),
            Self::Said(true) => Ok(Some(Consent::Everything)),
            Self::List(text) => match TrustDigest::parse(text) {
                Some(digest) => Ok(Some(Consent::List(digest))),
                None => Err(Failure::usage("`trust` is neither a boolean nor the 32 hex digits of a list")),
            },
        }
    }
}

/// What a client offers to the agents of a scope.
#[derive(Clone, Debug, Default)]
pub struct ClientOffer {
    pub tools: Vec<OfferedTool>,
    pub toolsets: BTreeMap<String, ToolsetParam>,
    pub inputs: Vec<String>,
}

/// A tool that runs in the client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedTool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// JSON Schema.
    pub parameters: RawJson,
    #[serde(default)]
    pub approval: Approval,
    /// After the calls of sequential tools before it, never beside them.
    #[serde(default)]
    pub sequential: bool,
    /// Whether it is told what was said, with each call.
    #[serde(default)]
    pub takes_context: bool,
}

/// Who decides about calls of a client's tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    Allow,
    #[default]
    Ask,
    Block,
    /// The client, about each call.
    Judge,
}

impl Approval {
    /// Of a single tool.
    pub fn rule(self) -> Rule {
        match self {
            Self::Allow => Rule::Allow,
            Self::Ask | Self::Judge => Rule::Ask,
            Self::Block => Rule::Block,
        }
    }
}

/// A toolset: tools of the client, something that the client makes for each call, or a definition as in a manifest.
#[derive(Clone, Debug)]
pub enum ToolsetParam {
    Tools(Vec<OfferedTool>),
    Made,
    Defined(RawJson),
}

impl<'de> Deserialize<'de> for ToolsetParam {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Tools {
            tools: Vec<OfferedTool>,
        }
        #[derive(Deserialize)]
        struct Shape {
            made: Option<bool>,
            tools: Option<serde::de::IgnoredAny>,
            r#use: Option<serde::de::IgnoredAny>,
        }
        let raw = RawJson::deserialize(deserializer)?;
        let wrong = |error: serde_json::Error| serde::de::Error::custom(format!("a toolset: {error}"));
        let shape: Shape = raw.to().map_err(wrong)?;
        match shape {
            Shape { made: Some(true), .. } => Ok(Self::Made),
            Shape { tools: Some(_), r#use: None, .. } => {
                raw.to().map(|Tools { tools }| Self::Tools(tools)).map_err(wrong)
            }
            Shape { .. } => Ok(Self::Defined(raw)),
        }
    }
}

impl ToolsetParam {
    pub fn definition(&self) -> Option<&RawJson> {
        match self {
            Self::Defined(definition) => Some(definition),
            Self::Tools(_) | Self::Made => None,
        }
    }
}

/// Where the run starts: an agent, or a function of the client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryParam {
    #[serde(default)]
    pub agent: Option<String>,
    #[serde(default)]
    pub function: Option<String>,
    /// JSON Schema of the function's input.
    #[serde(default)]
    pub schema: Option<RawJson>,
}

/// The approval modes, in the manifest's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Prompt,
    ApproveAll,
    RejectAll,
}

impl From<Mode> for ApprovalMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Prompt => Self::Prompt,
            Mode::ApproveAll => Self::ApproveAll,
            Mode::RejectAll => Self::RejectAll,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsParam {
    max_requests: Option<u64>,
    max_tool_calls: Option<u64>,
    max_input_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    max_cost_usd: Option<f64>,
    timeout_seconds: Option<f64>,
    on_limit: Option<OnLimit>,
    allow_unknown_prices: bool,
}

impl LimitsParam {
    pub fn unknown_prices(&self) -> UnknownPrices {
        UnknownPrices::when(self.allow_unknown_prices)
    }

    /// These limits, and the project's own where these say nothing.
    pub fn over(&self, limits: &Limits) -> Limits {
        let own = Limits {
            max_requests: self.max_requests,
            max_tool_calls: self.max_tool_calls,
            max_input_tokens: self.max_input_tokens,
            max_output_tokens: self.max_output_tokens,
            max_cost_usd: self.max_cost_usd,
            timeout_seconds: self.timeout_seconds,
            on_limit: self.on_limit,
        };
        own.or(limits)
    }

    /// Amounts and times are positive.
    pub fn check(&self) -> Result<(), Failure> {
        let amounts = [("max_cost_usd", self.max_cost_usd), ("timeout_seconds", self.timeout_seconds)];
        match amounts.into_iter().find(|(_, amount)| amount.is_some_and(|amount| amount.is_nan() || amount <= 0.0)) {
            Some((name, _)) => Err(Failure::usage(format!("`limits.{name}` is not more than 0"))),
            None => Ok(()),
        }
    }
}

/// The agent on whose behalf one is called.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerParam {
    #[serde(alias = "worker")]
    pub agent: String,
    #[serde(default)]
    pub depth: usize,
    /// Absent: what the file of that agent says.
    #[serde(default)]
    pub allow_workers: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    pub model: Option<String>,
    pub toolsets: Vec<String>,
    pub allow_workers: Option<Vec<String>>,
    pub attachment_policy: Option<PolicyParam>,
}

impl From<Defaults> for WorkerDefaults {
    fn from(defaults: Defaults) -> Self {
        let Defaults { model, toolsets, allow_workers, attachment_policy } = defaults;
        Self { model, toolsets, allow_workers, attachment_policy: attachment_policy.map(AttachmentPolicy::from) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyParam {
    max_attachments: Option<u64>,
    max_total_bytes: Option<u64>,
    allowed_suffixes: Vec<String>,
    denied_suffixes: Vec<String>,
}

impl From<PolicyParam> for AttachmentPolicy {
    fn from(param: PolicyParam) -> Self {
        let standard = Self::default();
        let lower = |suffixes: Vec<String>| suffixes.iter().map(|suffix| suffix.to_lowercase()).collect();
        Self {
            max_attachments: param.max_attachments.unwrap_or(standard.max_attachments),
            max_total_bytes: param.max_total_bytes.unwrap_or(standard.max_total_bytes),
            allowed_suffixes: lower(param.allowed_suffixes),
            denied_suffixes: lower(param.denied_suffixes),
        }
    }
}

/// Which events a client hears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventSelection {
    #[default]
    All,
    /// All but the pieces of streams.
    Facts,
    None,
}

#[derive(Debug, Serialize)]
pub struct OpenResult {
    pub scope: u64,
    pub agent: String,
    pub model: Option<String>,
    /// The id of its run.
    pub run: String,
    /// Whether the run is kept.
    pub kept: bool,
    #[serde(flatten)]
    pub continued: Option<ContinuedScope>,
}

/// What is told of a scope that goes on.
#[derive(Debug, Serialize)]
pub struct ContinuedScope {
    /// How many turns were finished.
    pub turns: usize,
    /// What was said so far.
    pub messages: Vec<Message>,
    /// What was said in a turn that was cut off.
    pub unfinished: Option<RawJson>,
    pub pending: Vec<PendingQuestion>,
    pub in_doubt: Vec<RawJson>,
    /// What has changed in the project since it began, in words.
    pub changed: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    pub scope: u64,
    /// Absent: the manifest's.
    #[serde(default)]
    pub input: Option<Value>,
    #[serde(default)]
    pub attachments: Vec<AttachmentParam>,
    /// The turn that was cut off goes on; nothing else is said.
    #[serde(default)]
    pub finish: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum AttachmentParam {
    /// Relative to our working directory.
    Path(PathBuf),
    Inline(Inline),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inline {
    pub name: String,
    /// Base64.
    pub data: String,
}

/// The answer of a turn.
#[derive(Debug, Serialize)]
pub struct ScopeTurnResult {
    pub output: RawJson,
    /// How the reply ended that is the answer; none if a function gave it.
    pub finish: Option<Finish>,
    /// What was said in this turn.
    pub messages: Vec<Message>,
    /// What `say` said too late for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unheard: Vec<String>,
    /// Of the scope so far.
    pub usage: UsageReport,
    /// The calls that were made in this turn.
    pub trace: Vec<TraceCall>,
    /// Those calls of the scope so far that a rule or a person refused.
    pub refused: Vec<Refusal>,
    /// Pictures and other files that came in this turn, if the scope is kept, and where they were written.
    pub files: Vec<SavedFile>,
}

/// Says something to the turn that goes on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Say {
    pub scope: u64,
    pub text: String,
}

/// `close` and `cancel`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfScope {
    pub scope: u64,
}

#[derive(Debug, Serialize)]
pub struct ScopeCloseResult {
    pub usage: UsageReport,
    pub trace: Vec<Arc<TraceCall>>,
}

#[derive(Debug, Serialize)]
pub struct CancelResult {
    /// Whether there was something to cancel.
    pub cancelled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Create {
    pub project: PathBuf,
    pub spec: Spec,
    #[serde(default)]
    pub defaults: Defaults,
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    name: String,
    instructions: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    tools: Vec<String>,
    #[serde(default)]
    toolsets: Vec<String>,
    #[serde(default)]
    allow_workers: Option<Vec<String>>,
    #[serde(default)]
    attachment_policy: Option<PolicyParam>,
}

impl From<Spec> for WorkerSpec {
    fn from(spec: Spec) -> Self {
        let Spec { name, instructions, description, model, tools, toolsets, allow_workers, attachment_policy } = spec;
        let attachment_policy = attachment_policy.map(AttachmentPolicy::from);
        Self {
            name,
            instructions,
            description,
            model,
            tools,
            toolsets,
            allow_workers,
            attachment_policy,
            ..Self::default()
        }
    }
}

#[derive(Debug, Serialize)]
pub struct CreateResult {
    /// Beneath the project root.
    pub path: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfAgent {
    pub project: PathBuf,
    #[serde(default, alias = "worker")]
    pub agent: Option<String>,
}

/// An agent as its file defines it.
#[derive(Debug, Serialize)]
pub struct Definition {
    pub name: String,
    pub description: String,
    pub instructions: String,
    pub model: Option<String>,
    pub tools: Vec<String>,
    pub toolsets: Vec<String>,
    pub allow_workers: Option<Vec<String>>,
    pub attachment_policy: PolicyReport,
    pub tool_rules: BTreeMap<String, RuleReport>,
    /// Beneath the project root.
    pub path: PathBuf,
}

#[derive(Debug, Serialize)]
pub struct PolicyReport {
    pub max_attachments: u64,
    pub max_total_bytes: u64,
    pub allowed_suffixes: Vec<String>,
    pub denied_suffixes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct RuleReport {
    pub allowed: bool,
    pub approval_required: bool,
}

impl From<Rule> for RuleReport {
    fn from(rule: Rule) -> Self {
        Self { allowed: rule != Rule::Block, approval_required: rule == Rule::Ask }
    }
}

/// The notification `event`.
#[derive(Debug, Serialize)]
pub struct EventNotification<'a> {
    pub scope: u64,
    pub event: &'a Event,
}

/// The request `approve`, ours to the client.
#[derive(Debug, Serialize)]
pub struct Approve<'a> {
    scope: u64,
    id: &'a str,
    path: &'a [String],
    tool: &'a str,
    arguments: &'a RawJson,
    reason: &'a str,
    preview: Option<&'a str>,
    /// What a foreign source, such as a server, says about the call; it must not be taken for our words.
    foreign: Option<&'a str>,
    /// What a person fills in: then `values` are the answer, in the words of whoever asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<&'a Form>,
    /// What the program's own rule says.
    description: Option<&'a str>,
    /// Which answers for the session are taken.
    remember: &'static [&'static str],
    covers: Option<Covers<'a>>,
}

/// What an answer for the session would cover.
#[derive(Debug, Serialize)]
struct Covers<'a> {
    call: &'a str,
    tool: &'a str,
}

impl<'a> Approve<'a> {
    pub fn of(scope: u64, request: &'a ApprovalRequest, description: Option<&'a str>) -> Self {
        let ApprovalRequest { id, path, tool, arguments, question, memory, .. } = request;
        Self {
            scope,
            id,
            path,
            tool,
            arguments,
            reason: &question.reason,
            preview: question.preview.as_deref(),
            foreign: question.foreign.as_deref(),
            form: question.form.as_ref(),
            description,
            remember: match memory {
                Memory::Nothing => &[],
                Memory::CallOnly => &["call"],
                Memory::CallOrTool => &["call", "tool"],
            },
            covers: question.covers.as_ref().map(|Coverage { call, tool }| Covers { call, tool }),
        }
    }
}

/// What a client answers to `approve`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    approved: bool,
    #[serde(default)]
    remember: Option<Remember>,
    /// Other arguments, which are judged again.
    #[serde(default)]
    arguments: Option<RawJson>,
    /// What a question that wants more than yes or no is answered with.
    #[serde(default)]
    values: Option<AnswerValues>,
    /// What the model reads of a refusal.
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    end_run: bool,
}

/// Values by their names, as a person would type them.
#[derive(Debug, Deserialize)]
pub struct AnswerValues(BTreeMap<String, serde_json::Value>);

impl AnswerValues {
    /// As a person would type them.
    pub fn typed(self) -> Vec<(String, String)> {
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            value => value.to_string(),
        };
        self.0.into_iter().map(|(name, value)| (name, text(value))).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Remember {
    Call,
    Tool,
}

impl Decision {
    /// An answer to a question about a call, or what is wrong with it: what contradicts itself allows nothing.
    pub fn answer_to(
        mut self,
        by_values: impl FnOnce(&[(String, String)]) -> Result<Answer, String>,
    ) -> Result<Answer, String> {
        let values = self.values.take();
        match (self.answer()?, values) {
            (answer, None) => Ok(answer),
            (Answer::Once, Some(values)) => by_values(&values.typed()),
            (_, Some(_)) => Err("values approve once, without other arguments".to_owned()),
        }
    }

    fn answer(self) -> Result<Answer, &'static str> {
        match self {
            Self { approved: true, end_run: true, .. } => Err("it approves and ends the run"),
            Self { approved: true, arguments: Some(_), remember: Some(_), .. } => {
                Err("other arguments are approved once, not for the session")
            }
            Self { approved: true, arguments: Some(arguments), .. }
                if arguments.get().trim_start().starts_with('{') =>
            {
                Ok(Answer::Edited(arguments))
            }
            Self { approved: true, arguments: Some(_), .. } => Err("arguments are a JSON object"),
            Self { approved: true, remember: Some(Remember::Call), .. } => Ok(Answer::CallForSession),
            Self { approved: true, remember: Some(Remember::Tool), .. } => Ok(Answer::ToolForSession),
            Self { approved: true, remember: None, .. } => Ok(Answer::Once),
            Self { approved: false, end_run: true, .. } => Ok(Answer::EndRun),
            Self { approved: false, note, .. } => Ok(Answer::Refuse { reason: note }),
        }
    }
}

/// What an error carries besides its words.
#[derive(Debug, Default, Serialize)]
pub struct ErrorData {
    pub kind: &'static str,
    pub exit_code: u8,
    pub hint: Option<String>,
    /// What was said before a limit or a cancellation stopped the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Whether what the turn said and did stays in the conversation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// For a turn: what `say` said too late for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unheard: Vec<String>,
    /// Why the reply is no whole answer, if that is what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// Questions that were not answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingQuestion>,
    /// For a turn: the usage of the scope so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageReport>,
    /// For a project that is not trusted: what it asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<TrustItem>,
    /// The digest of the whole list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<TrustDigest>,
    /// For a turn of a scope that is kept: its run, which can be gone on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl ErrorData {
    pub fn of(failure: &Failure) -> Self {
        let (_, hint) = failure.words();
        Self { kind: failure.kind(), exit_code: failure.code(), hint, ..Self::default() }
    }

    pub fn fault(self, failure: &Failure) -> RpcError {
        let (message, _) = failure.words();
        RpcError::Told { code: code::FAILED, message, data: Some(RawJson::of(&self)) }
    }
}

impl From<Failure> for RpcError {
    fn from(failure: Failure) -> Self {
        ErrorData::of(&failure).fault(&failure)
    }
}

/// Parameters that do not fit their method.
pub fn misfit(method: &str, error: &serde_json::Error) -> RpcError {
    // Every message is one line: a place in it says nothing.
    let words = error.to_string();
    let words = words.rsplit_once(" at line ").map_or(words.as_str(), |(words, _)| words);
    let data = ErrorData { kind: "usage", exit_code: crate::failure::USAGE, ..ErrorData::default() };
    RpcError::Told {
        code: code::INVALID_PARAMS,
        message: format!("the parameters of `{method}`: {words}"),
        data: Some(RawJson::of(&data)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_question_is_one_thing() {
        let answer =
            |text: &str| serde_json::from_str::<Decision>(text).map_err(|_| "misfit").and_then(Decision::answer);
        let reason = |text: &str| Some(text.to_owned());
        for (text, expected) in [
            (r#"{"approved": true}"#, Ok(Answer::Once)),
            (r#"{"approved": true, "remember": "call"}"#, Ok(Answer::CallForSession)),
            (r#"{"approved": true, "remember": "tool", "note": "fine"}"#, Ok(Answer::ToolForSession)),
            (r#"{"approved": true, "arguments": {"a":1}}"#, Ok(Answer::Edited(RawJson::parse(r#"{"a":1}"#).unwrap()))),
            (r#"{"approved": false}"#, Ok(Answer::Refuse { reason: None })),
            (r#"{"approved": false, "note": "no"}"#, Ok(Answer::Refuse { reason: reason("no") })),
            (r#"{"approved": false, "end_run": true}"#, Ok(Answer::EndRun)),
            (r#"{"approved": true, "end_run": true}"#, Err("it approves and ends the run")),
            (r#"{"approved": true, "arguments": [1]}"#, Err("arguments are a JSON object")),
            (
                r#"{"approved": true, "arguments": {}, "remember": "call"}"#,
                Err("other arguments are approved once, not for the session"),
            ),
            (r#"{"approved": "yes"}"#, Err("misfit")),
            (r#"{"approved": true, "rememeber": "call"}"#, Err("misfit")),
            ("{}", Err("misfit")),
        ] {
            assert_eq!(answer(text), expected, "{text}");
        }
    }
}
