//! Files → [`Program`]. A project is loaded from files, every name in it is resolved, every mistake is reported at
//! once; only then something runs.

#[cfg(feature = "front-end")]
pub(crate) mod cases;
pub mod create;
pub mod created;
pub mod fingerprint;
#[doc(hidden)]
#[cfg(any(test, feature = "internals"))]
pub mod fuzz;
#[cfg(feature = "front-end")]
mod inspect;
#[cfg(test)]
mod key_rows;
mod limit;
pub mod link;
pub mod load;
pub mod manifest;
pub(crate) mod programs;
mod python;
#[cfg(feature = "front-end")]
pub mod reach;
#[cfg(feature = "front-end")]
pub mod schema;
#[cfg(feature = "front-end")]
pub(crate) mod settings;
mod skills;
pub mod trust;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::message::RawJson;
use crate::model::name::ModelName;
use crate::model::scripted::Script;
use crate::model::{ModelSettings, ServerTool};
use crate::remedy::Wording;
use crate::syntax::diagnostic::{Diagnostics, FileId, Sources};
pub use crate::tools::approval::ApprovalMode;
use crate::tools::approval::Rules;
use crate::tools::attachment::AttachmentScope;
use crate::tools::function::{FunctionEntry, InputRenderer, MadeToolset, Registry, Tool, ToolsetFactory};
use crate::tools::policy::LastingRule;
use crate::tools::protected::ProtectedFiles;
use crate::tools::python::stand_in::{AnswerMode, StandIn};
use crate::tools::source::{Enclosure, MapConfig, McpConfig, ToolsetSource};
use crate::tools::working_directory::WorkingDirectory;
use crate::tools::{DeclaredTool, Toolset};
use created::CreatedAgents;
use manifest::{AgentApprovalOverride, Manifest, ToolsetDefinition};
use programs::RuleProgram;
use worker::WorkerFile;

pub(crate) use limit::Limit;
pub use limit::{Limits, OnLimit};

/// A project as its files describe it, mistakes included: [`Project::link`] reports them with its own.
#[derive(Debug)]
pub struct Project {
    /// The directory that nothing in the project leaves.
    pub root: PathBuf,
    /// The root as it was typed, relative to the working directory.
    shown_root: PathBuf,
    /// The directory that it was loaded from.
    directory: WorkingDirectory,
    /// What the project was made from.
    pub layout: Layout,
    workers: Vec<LoadedWorker>,
    /// JSON Schemas and scripts that worker files refer to, by their path beneath the root.
    references: BTreeMap<PathBuf, FileId>,
    /// What was read of skills and `AGENTS.md` outside of it, once it was trusted.
    outside: skills::OutsideTexts,
    /// Names that files would have defined had they been readable: referring to them is no further mistake.
    broken: BTreeSet<String>,
    /// Agents created at run time, by name and file.
    pub generated: BTreeMap<String, PathBuf>,
    /// Its Python files, as far as they were looked at.
    pub code: Code,
    /// What MCP servers offer, by toolset, if they were asked.
    offered: BTreeMap<String, Vec<DeclaredTool>>,
    registry: Registry,
    /// Programs that rules of shells name, as they were when the project was loaded.
    pub programs: Vec<RuleProgram>,
    /// Its cases, where somebody tests it.
    #[cfg(feature = "front-end")]
    tests: Vec<crate::testing::TestFile>,
    /// What these ask of whoever tests it.
    test_claims: Vec<crate::syntax::diagnostic::Located<crate::syntax::claim::Claim>>,
    sources: Arc<Sources>,
    problems: Diagnostics,
}

/// How the project is laid out on disk.
#[derive(Debug)]
pub enum Layout {
    Manifest(Box<Manifest>),
    /// One worker file: it is the entry.
    SingleFile,
    /// A directory without a manifest.
    Directory,
    /// A manifest of which nothing could be read; why is among the problems.
    Unreadable,
}

/// A worker file and where it was.
#[derive(Clone, Debug)]
pub(crate) struct LoadedWorker {
    /// Beneath the project root.
    pub path: PathBuf,
    pub worker: WorkerFile,
    /// Whether code answers in its place, and the file rests under another name.
    pub rests: bool,
}

impl LoadedWorker {
    /// What paths in the file are relative to, beneath the project root.
    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

/// What is known of the project's Python files.
#[derive(Clone, Debug)]
pub enum Code {
    /// There are none.
    Absent,
    /// Not looked at: names that only they can define are open.
    Unread,
    /// They were imported, and this is what they define.
    Read(PythonOffer),
}

/// What Python files export.
#[derive(Clone, Debug, Default)]
pub struct PythonOffer {
    pub toolsets: Vec<crate::tools::source::PythonToolset>,
    pub tools: Vec<PythonFileTool>,
    /// Entry functions, by their files.
    pub entries: Vec<EntryFunction>,
    /// A file could not be imported: what it would have offered is not known.
    pub incomplete: bool,
    /// The classes that worker files refer to: their JSON Schemas, or what is wrong with them.
    pub classes: BTreeMap<String, Result<RawJson, String>>,
    /// Model providers.
    pub providers: BTreeSet<String>,
    /// Of the files that could not be imported.
    pub tracebacks: Vec<String>,
}

/// A tool that a Python file exports, and that file.
#[derive(Clone, Debug)]
pub struct PythonFileTool {
    pub file: PathBuf,
    pub tool: DeclaredTool,
}

/// The linked project: every name resolved, nothing running. Agents refer to each other by name, so it may have cycles.
#[derive(Clone, Debug)]
pub struct Program {
    /// The directory of the project.
    pub root: PathBuf,
    /// The root as it was typed, relative to the working directory: models are told of this one, so that a run that goes
    /// on in another process tells them the same.
    pub shown_root: PathBuf,
    /// Where a run starts.
    pub entry: Entry,
    /// Its agents, by name.
    pub agents: BTreeMap<String, Arc<AgentSpec>>,
    /// Those that other programs may call as tools; without any, the entry.
    pub exports: Vec<String>,
    /// What the manifest says about runs.
    pub policy: Policy,
    /// The input if the caller gives none.
    pub default_input: Option<RawJson>,
    /// Whether the person who starts a run may give another input than that.
    pub allow_cli_input: bool,
    /// Beneath the project root.
    pub generated_agents_dir: PathBuf,
    /// Files in that directory, by the names that they have for themselves. Which of them count, `created` knows.
    pub generated: BTreeMap<String, PathBuf>,
    /// Which agents were made here; the runtime puts in those of earlier runs.
    pub created: Arc<CreatedAgents>,
    /// What no tool changes without a question.
    pub protected: ProtectedFiles,
    /// Programs that rules of shells name by their paths, as they were when the project was loaded.
    pub programs: BTreeMap<String, crate::tools::shell::program::ShellProgram>,
    /// Variables that Python and MCP children see besides the fixed ones.
    pub env: Vec<String>,
    /// What Python may reach; `None`: whatever the user may.
    pub python_fence: Option<Enclosure>,
    /// Lasting rules of the manifest.
    pub rules: Vec<Arc<LastingRule>>,
    /// Agents over lists, for code that is no agent's.
    pub maps: Vec<Arc<MapConfig>>,
    /// Names that only Python files which were not looked at can define.
    pub open: Vec<String>,
    /// What the embedding program offers by name.
    pub registry: Registry,
    /// How advice about created agents is worded for the model or person who reads it; the runtime puts it in.
    pub wording: Wording,
    /// The user's choice of models for created agents that name none, in turn; empty if there can be none.
    pub fallbacks: Vec<Fallback>,
    /// Models that were chosen in place of those that files name, in words: whoever starts a run tells of them.
    pub replaced_models: Vec<String>,
    /// Agents for which no model was chosen. Such a program can be looked at; it is not to be run.
    pub without_model: Vec<String>,
}

impl Program {
    /// Every model that a call may ask: those of the agents, and the one for agents that are created later. Each with its
    /// script, if it follows one.
    pub(crate) fn models(&self) -> impl Iterator<Item = (&ModelName, Option<&Arc<Script>>)> {
        let agents = self.agents.values().map(|agent| (&agent.model, agent.script.as_ref()));
        let turns = self.agents.values().flat_map(|agent| &agent.fallbacks).chain(&self.fallbacks);
        let summarisers = self.agents.values().filter_map(|agent| agent.summariser.as_ref());
        let turns = turns.map(|fallback| (&fallback.model, fallback.script.as_ref()));
        agents.chain(turns).chain(summarisers.map(|model| (model, None)))
    }

    /// The models that a provider has to be asked for: all but those that follow a script.
    pub fn asked_models(&self) -> impl Iterator<Item = &ModelName> {
        self.models().filter(|(_, script)| script.is_none()).map(|(model, _)| model)
    }

    /// Whether code may answer in the place of an agent, or beside it.
    pub(crate) fn has_stand_ins(&self) -> bool {
        let stand_ins = self.agents.values().filter_map(|agent| agent.stand_in.as_ref());
        stand_ins.into_iter().any(|stand_in| stand_in.mode != AnswerMode::Agent)
    }

    /// Where files that inputs name are looked for.
    pub(crate) fn premises(&self) -> AttachmentScope<'_> {
        AttachmentScope { root: &self.root, protected: &self.protected }
    }
}

/// A model that is asked if it comes to that: for agents that are not known yet, or where the provider of another has trouble.
#[derive(Clone, Debug)]
pub struct Fallback {
    /// The model.
    pub model: ModelName,
    /// What it says, if it follows a script.
    pub script: Option<Arc<Script>>,
}

impl Project {
    /// Offers a tool in Rust to worker files, by its name under `tools`.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.registry.tools.insert(tool.name().to_owned(), Arc::new(tool));
        self
    }

    /// Offers a toolset in Rust, by its name under `toolsets`: one instance is made for each call.
    #[must_use]
    pub fn toolset(
        mut self,
        name: impl Into<String>,
        factory: impl Fn() -> Box<dyn Toolset> + Send + Sync + 'static,
    ) -> Self {
        let factory = move |_| -> crate::BoxFuture<'static, _> {
            let made = factory();
            Box::pin(async { Ok(MadeToolset::Live(made)) })
        };
        self.registry.toolsets.insert(name.into(), Arc::new(factory));
        self
    }

    /// Offers a toolset that is made elsewhere, which takes time and may fail.
    #[must_use]
    pub fn toolset_made_by(mut self, name: impl Into<String>, factory: ToolsetFactory) -> Self {
        self.registry.toolsets.insert(name.into(), factory);
        self
    }

    /// Tells the typed inputs of an agent in words of the embedding program's own.
    #[must_use]
    pub fn input_rendered_by(mut self, agent: impl Into<String>, renderer: InputRenderer) -> Self {
        self.registry.inputs.insert(agent.into(), renderer);
        self
    }

    /// The MCP servers that the manifest defines, used or not.
    pub fn servers(&self) -> Vec<&McpConfig> {
        let Layout::Manifest(manifest) = &self.layout else { return Vec::new() };
        let servers = manifest.toolsets.iter().filter_map(|(_, definition)| match definition {
            ToolsetDefinition::Mcp(config, _) => Some(config),
            ToolsetDefinition::Filesystem(_)
            | ToolsetDefinition::Shell(..)
            | ToolsetDefinition::DynamicAgents(_)
            | ToolsetDefinition::Map(_)
            | ToolsetDefinition::StandIn(_)
            | ToolsetDefinition::Use { .. }
            | ToolsetDefinition::Broken => None,
        });
        servers.collect()
    }

    /// The same project, of whose servers it is known what they offer: linking then checks names against it.
    #[must_use]
    pub(crate) fn offering(self, offered: BTreeMap<String, Vec<DeclaredTool>>) -> Self {
        Self { offered, ..self }
    }

    /// Starts runs in a function in Rust, unless the manifest or a worker file names another entry.
    #[must_use]
    pub fn entry(mut self, entry: FunctionEntry) -> Self {
        self.registry.entry = Some(Arc::new(entry));
        self
    }
}

/// Where a run starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// With this agent.
    Agent(String),
    /// Has no model and no toolsets.
    Function(EntryFunction),
    /// Only Python files which were not looked at can define it.
    Open,
}

/// A function that a run starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryFunction {
    /// A function of a Python file.
    Python {
        /// Beneath the project root.
        file: PathBuf,
        /// The name of the function.
        function: String,
    },
    /// That of the embedding program, by its name.
    Registered(String),
}

impl fmt::Display for EntryFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python { file, function } => write!(f, "{}:{function}", file.display()),
            Self::Registered(name) => f.write_str(name),
        }
    }
}

/// The manifest's policy of a run; flags win over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub approval_mode: ApprovalMode,
    pub max_depth: u64,
    pub max_call_depth: Option<u64>,
    pub return_permission_errors: bool,
    pub agent_calls_require_approval: bool,
    pub agent_attachments_require_approval: bool,
    pub agent_approval_overrides: BTreeMap<String, AgentApprovalOverride>,
    pub limits: Limits,
}

/// One agent, linked.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// Its name.
    pub name: String,
    /// Beneath the project root.
    pub file: PathBuf,
    /// What callers read.
    pub description: String,
    /// Its system prompt.
    pub instructions: String,
    /// The model that it asks.
    pub model: ModelName,
    /// The models that are asked in turn where the provider of the one before has trouble.
    pub fallbacks: Vec<Fallback>,
    /// The models that its file is compatible with, if it says so.
    pub compatible_models: Option<Vec<String>>,
    /// What a scripted model follows.
    pub script: Option<Arc<Script>>,
    /// What it takes.
    pub input: Typing,
    /// How a typed input becomes the user message.
    pub prompt: Option<String>,
    /// What it answers.
    pub output: Typing,
    /// Single functions, each as a toolset of one.
    pub tools: Vec<ToolsetUse>,
    /// Its toolsets, in the order of its file.
    pub toolsets: Vec<ToolsetUse>,
    /// Rules for tools of which it is not known yet whether they are there.
    pub doubtful_rules: Vec<DoubtfulRule>,
    /// `None`: a model may call the agents in `toolsets`, code may call any.
    pub allow_workers: Option<AllowWorkers>,
    /// The tools that its provider may run itself.
    pub server_tools: Vec<ServerTool>,
    /// Settings of its model.
    pub settings: ModelSettings,
    /// What each of its calls may spend.
    pub limits: Limits,
    /// What becomes of a conversation that grows towards the window of its model.
    pub context: ContextSettings,
    /// Whether its model is not asked again about what it was asked before.
    pub cached: bool,
    /// The model that summarises it; without it, its own.
    pub summariser: Option<ModelName>,
    /// Which files it takes.
    pub attachment_policy: AttachmentPolicy,
    /// Whether tools may never overwrite its file.
    pub locked: bool,
    /// The code that has its name.
    pub stand_in: Option<StandIn>,
}

impl AgentSpec {
    /// The models that it asks, in turn.
    pub fn models(&self) -> impl Iterator<Item = &ModelName> {
        std::iter::once(&self.model).chain(self.fallbacks.iter().map(|fallback| &fallback.model))
    }
}

/// What becomes of a conversation that grows towards the window of its model; what is `None` is as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContextSettings {
    /// Nothing is left out of requests.
    pub is_off: bool,
    /// How many tokens the model takes, with its answer.
    pub window: Option<u64>,
    /// From this share of the window on old results are cleared.
    pub clear_at: Option<f64>,
    /// From this share of the window on old turns are summarised.
    pub summarise_at: Option<f64>,
    /// The last so many tokens stay when turns are summarised.
    pub keep: Option<u64>,
}

/// Which agents an agent may call by name: any, or those that are listed.
#[derive(Clone, Debug, PartialEq)]
pub enum AllowWorkers {
    /// Every agent of the project.
    Any,
    /// These agents.
    Only(Vec<String>),
}

/// What an agent takes or gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Typing {
    /// Text; as input with attachments.
    Untyped,
    /// A JSON Schema.
    Schema(RawJson),
    /// A Pydantic model: Python judges its values.
    Python(PythonType),
}

/// A class of a Python file.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonType {
    /// The class, and where it is defined.
    pub class: worker::PythonClass,
    /// The name by which the interpreter knows it.
    pub reference: String,
    /// Its JSON Schema; absent if Python was not looked at.
    pub schema: Option<RawJson>,
}

impl Typing {
    /// The JSON Schema of its values, where there is one.
    pub(crate) fn schema(&self) -> Option<&RawJson> {
        match self {
            Self::Untyped => None,
            Self::Schema(schema) => Some(schema),
            Self::Python(class) => class.schema.as_ref(),
        }
    }
}

/// One toolset as one agent uses it. The rules live here, on the declaration, so that two agents can use the same
/// toolset under different rules.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolsetUse {
    /// Its name in the file.
    pub name: String,
    /// One for all agents that use it.
    pub source: Arc<ToolsetSource>,
    /// The rules of this agent for its tools.
    pub rules: Rules,
    /// Where those of these rules stand that are not in the agent's own file, by tool: in its creator's, or in a program.
    pub rule_places: BTreeMap<String, String>,
}

#[cfg(feature = "front-end")]
impl Program {
    /// Agents that are created name no model and need none: whoever sees the run answers for all of them.
    pub fn leave_model_open(&mut self) {
        if self.fallbacks.is_empty() {
            self.fallbacks.push(Fallback { model: ModelName::none(), script: None });
        }
    }
}

#[cfg(feature = "front-end")]
impl ToolsetUse {
    /// What the agent and the definitions around the toolset say about a tool, together.
    pub(crate) fn rule_for(&self, tool: &str) -> Option<crate::tools::approval::Rule> {
        crate::tools::approval::strictest([self.source.rule_for(tool), self.rules.get(tool).copied()])
    }
}

/// A rule for a tool that only toolsets with unknown tools can have. When they are opened, before anything runs, it
/// is found out whether one has it: a rule that ruled nothing would be taken for a protection.
#[derive(Clone, Debug, PartialEq)]
pub struct DoubtfulRule {
    /// Where it was written, for people.
    pub place: String,
    /// The tool that the rule is about.
    pub tool: String,
    /// The toolsets of the agent that may have the tool.
    pub toolsets: Vec<String>,
}

/// Which attachments an agent accepts. Empty lists of suffixes say nothing.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct AttachmentPolicy {
    /// The most files.
    pub max_attachments: u64,
    /// The most bytes of all files together.
    pub max_total_bytes: u64,
    /// The endings of names that are taken; empty takes all.
    pub allowed_suffixes: Vec<String>,
    /// The endings of names that are not taken.
    pub denied_suffixes: Vec<String>,
}

impl Default for AttachmentPolicy {
    fn default() -> Self {
        Self {
            max_attachments: 4,
            max_total_bytes: 10_000_000,
            allowed_suffixes: Vec::new(),
            denied_suffixes: Vec::new(),
        }
    }
}

/// `a/b` + `../c` = `a/c`; `None` if that leaves the root.
fn lexical_join(base: &Path, path: &Path) -> Option<PathBuf> {
    let mut joined = base.to_owned();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => joined.pop().then_some(())?,
            std::path::Component::CurDir => {}
            part => joined.push(part),
        }
    }
    Some(joined)
}
