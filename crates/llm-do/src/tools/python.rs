//! Tools in Python: one child interpreter that has imported the project's files, and the toolsets that live in it.
//!
//! The child is asked over a socket of its own, so that whatever user code prints never touches the channel. Code that
//! calls agents asks back: such a request is served inside the call that it belongs to, with that call's context.

mod compiled;
mod host;
mod interpreter;
mod package;
pub(crate) mod stand_in;
#[cfg(feature = "front-end")]
pub(crate) mod syntax;
mod toolset;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::approval::{DeclaredVerdict, Rule};
use super::fence::FenceConfig;
use super::protected::ProtectedFiles;
use super::rpc::child::ChildEnvironment;
use super::source::Enclosure;
use super::working_directory::WorkingDirectory;
use super::{Capabilities, DeclaredTool, Order, ToolKind};
use crate::message::RawJson;

pub use compiled::CompiledStore;
pub(crate) use host::PythonHost;
pub(crate) use toolset::{OpenPythonToolset, open, single};

/// How the interpreter of a project is started.
#[derive(Clone, Debug)]
pub struct Python {
    /// Its path, or its name alone, which is looked for on the `PATH` of its environment.
    pub program: PathBuf,
    /// What the interpreter sees of the environment.
    pub environment: ChildEnvironment,
    /// Where it works.
    pub directory: WorkingDirectory,
    /// Where the package `llm_do` is kept compiled between runs; without it each compiles what it needs of it.
    pub compiled: Option<CompiledStore>,
    /// Which tracebacks are told.
    pub tracebacks: Tracebacks,
    /// What a project may ask to be put behind.
    pub fence: FenceConfig,
}

/// What a project asks Python to be put behind.
#[derive(Clone, Debug)]
pub(crate) struct PythonFence {
    pub enclosure: Enclosure,
    /// What stays as it is, wherever it may write.
    pub protected: ProtectedFiles,
}

/// All that an interpreter of a project is started with, each time.
pub(crate) struct Beginning {
    pub python: Python,
    pub root: PathBuf,
    /// What is imported, beneath the root.
    pub files: Vec<PathBuf>,
    pub fenced: Option<PythonFence>,
    /// Whether what could be imported is still what the user agreed to.
    pub is_unchanged: Arc<dyn Fn() -> bool + Send + Sync>,
    /// So many bytes its code may take; `None`: what the user may.
    pub memory: Option<u64>,
}

/// What is told of an exception besides what the model reads of it, which names the project's own lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tracebacks {
    /// None.
    #[default]
    Nothing,
    /// All of it, as notices.
    Whole,
}

/// What the files of a project export.
#[derive(Debug, Deserialize)]
pub(crate) struct Exports {
    pub tools: Vec<ExportedTool>,
    pub toolsets: Vec<ExportedToolset>,
    pub agents: Vec<ExportedAgent>,
    pub entries: Vec<ExportedEntry>,
    /// Names of model providers.
    pub providers: BTreeSet<String>,
    pub problems: Vec<Problem>,
}

/// A tool that a Python file exports, and that file.
#[derive(Debug, Deserialize)]
pub(crate) struct ExportedTool {
    pub file: PathBuf,
    pub tool: PythonTool,
}

/// A tool as its code declares it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PythonTool {
    pub name: String,
    pub description: String,
    pub parameters: RawJson,
    pub verdict: PythonVerdict,
    /// Whether it may look at the conversation, which is then sent with each call.
    pub takes_context: bool,
    pub sequential: bool,
}

/// What a tool in Python declares about its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonVerdict {
    Allow,
    Ask,
    /// Its code decides about each call.
    Dynamic,
}

/// A toolset that a Python file exports, and that file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct ExportedToolset {
    pub name: String,
    pub file: PathBuf,
    /// The tools of a toolset of the module, which is the same for all calls; else they are known only within a call.
    pub tools: Option<Vec<KnownTool>>,
    /// Its definition, if it is one of our toolsets, configured in the module.
    pub built_in: Option<DefinedToolset>,
}

/// What is known of a tool before a call opens its toolset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct KnownTool {
    pub name: String,
    pub verdict: PythonVerdict,
}

/// One of our toolsets, configured in Python: a definition as in a manifest, and the rules of its approval config.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct DefinedToolset {
    pub definition: RawJson,
    #[serde(default)]
    approval: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    rules: BTreeMap<String, String>,
}

impl DefinedToolset {
    /// What its configuration says of its tools, in our words.
    pub(crate) fn rules(&self) -> BTreeMap<String, Rule> {
        let configured = self.rules.iter().filter_map(|(tool, word)| Some((tool.clone(), Rule::parse(word)?)));
        let allowed = self.approval.iter().filter(|(_, rule)| rule["pre_approved"] == true);
        configured.chain(allowed.map(|(tool, _)| (tool.clone(), Rule::Allow))).collect()
    }
}

/// An agent that is defined in Python: the keys of a worker file.
#[derive(Debug, Deserialize)]
pub(crate) struct ExportedAgent {
    pub file: PathBuf,
    pub keys: RawJson,
}

/// An entry function that a Python file exports, and that file.
#[derive(Debug, Deserialize)]
pub(crate) struct ExportedEntry {
    pub file: PathBuf,
    pub function: String,
}

/// Something that is wrong with a file.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    pub file: PathBuf,
    pub line: Option<usize>,
    pub fact: String,
    pub hint: Option<String>,
    /// All frames, for a reader who looks for the reason.
    pub traceback: String,
}

/// A class that a worker file refers to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WantedClass {
    pub reference: String,
    /// Beneath the project root.
    pub file: Option<PathBuf>,
    pub module: Option<String>,
    pub class: String,
    pub direction: &'static str,
}

/// What was found of a class: its JSON Schema, or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FoundClass {
    Schema(RawJson),
    Fact(String),
}

/// A piece of the message that an input class makes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenderedPart {
    /// Words.
    Text(String),
    /// A file, by its path.
    Attachment(String),
}

/// Where the models of a provider are that a file registers; it speaks the Chat Completions of `OpenAI`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct PythonEndpoint {
    /// Where the model is.
    pub base_url: String,
    /// Its key, if it needs one.
    pub api_key: Option<String>,
}

// Written by hand, so that the key is in no message.
impl fmt::Debug for PythonEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonEndpoint({})", self.base_url)
    }
}

/// What an entry function takes.
#[derive(Debug, Deserialize)]
pub(crate) struct EntryShape {
    pub name: String,
    pub schema: Option<RawJson>,
}

impl PythonVerdict {
    fn declared(self) -> DeclaredVerdict {
        match self {
            Self::Allow => DeclaredVerdict::Allow,
            Self::Ask => DeclaredVerdict::Ask,
            Self::Dynamic => DeclaredVerdict::Unknown,
        }
    }
}

impl KnownTool {
    /// The tool as linking needs it: its code can do all that the user can.
    pub(crate) fn declared(&self) -> DeclaredTool {
        let (name, verdict) = (self.name.clone().into(), self.verdict.declared());
        DeclaredTool { name, verdict, capabilities: Capabilities::OF_CODE }
    }
}

impl PythonTool {
    /// The tool as linking needs it: its code can do all that the user can.
    pub(crate) fn declared(&self) -> DeclaredTool {
        DeclaredTool {
            name: self.name.clone().into(),
            verdict: self.verdict.declared(),
            capabilities: Capabilities::OF_CODE,
        }
    }

    /// Code that sees its caller may also call tools and agents.
    fn kind(&self) -> ToolKind {
        if self.takes_context { ToolKind::Code } else { ToolKind::Leaf }
    }

    fn order(&self) -> Order {
        if self.sequential { Order::Sequential } else { Order::Concurrent }
    }
}
