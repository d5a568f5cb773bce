//! Prompts as executables: agents are text files, code and agents call each other by name in one call tree, and
//! dangerous calls stop at a gate.
//!
//! # Embedding
//!
//! A project is loaded, linked and run; a chat is a scope of many turns. Here with a scripted model and a stateful toolset:
//! both history and toolset live as long as the call, and a nested call shares neither.
//!
//! ```
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//! # use llm_do::BoxFuture;
//! # use llm_do::message::{Content, RawJson};
//! # use llm_do::tools::approval::{PermittedCall, Verdict};
//! # use llm_do::tools::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
//! use llm_do::runtime::Output;
//! use llm_do::{Approvals, ModelChoices, Models, Project, Runtime};
//!
//! # struct Counter(AtomicUsize);
//! # impl Toolset for Counter {
//! #     fn specs(&self) -> Vec<ToolSpec> {
//! #         let parameters = RawJson::parse(r#"{"type":"object"}"#).unwrap();
//! #         let (kind, order, repeat) = (ToolKind::Leaf, Order::Sequential, Repeat::Once);
//! #         vec![ToolSpec { name: "count".into(), description: "counts".into(), parameters, kind, order, repeat }]
//! #     }
//! #     fn judge<'a>(&'a self, _: &'a str, _: &'a RawJson, _: &'a CallContext<'a>) -> BoxFuture<'a, Result<Verdict, String>> { Box::pin(async { Ok(Verdict::Allow) }) }
//! #     fn call<'a>(&'a self, _: PermittedCall, _: &'a CallContext<'a>) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
//! #         let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
//! #         Box::pin(async move { Ok(vec![Content::text(count.to_string())]) })
//! #     }
//! #     fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> { Box::pin(async { Ok(()) }) }
//! # }
//! # let script = "
//! # - {agent: helper, round: 1, call: {count: {}}}
//! # - {agent: helper, say: 'the helper counted to {{ result }}'}
//! # - {tool: helper, say: '{{ result }}'}
//! # - {tool: count, say: 'counted to {{ result }}, reply {{ round }}'}
//! # - {heard: helper, call: {helper: {input: count}}}
//! # - {call: {count: {}}}";
//! # let models = ModelChoices::scripted(script);
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let project = Project::new(".")
//!     .agent("main.worker", "---\nname: main\ntoolsets: [counter, helper]\n---\nYou count.")
//!     .agent("helper.worker", "---\nname: helper\ntoolsets: [counter]\n---\nYou count for others.")
//!     .toolset("counter", || Box::new(Counter(AtomicUsize::new(0))));
//! let program = project.link(&models)?; // every name resolved, or every error
//! let runtime = Runtime::new(program, Models::default(), Approvals::unattended());
//!
//! let outcome = runtime.run("count").await?; // outcome.output / .messages / .usage / .trace
//! assert_eq!(outcome.output, Output::Text("counted to 1, reply 2".into()));
//!
//! let mut scope = runtime.open("main").await?; // toolsets are created here
//! assert_eq!(scope.turn("hello").await?, Output::Text("counted to 1, reply 2".into()));
//! assert_eq!(scope.turn("and again").await?, Output::Text("counted to 2, reply 4".into()));
//! assert_eq!(scope.turn("ask the helper").await?, Output::Text("the helper counted to 1".into()));
//! scope.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Modules
//!
//! In reading order; each one uses only those above it:
//!
//! - [`escape`]: foreign text made harmless for display
//! - [`remedy`]: what can be done about a mistake, as data that each front end words
//! - [`beneath`]: regular files beneath a directory, by descriptor
//! - [`message`]: the conversation as values, and the one decision of the agent loop
//! - [`event`]: what happened, told to whoever listens
//! - [`json_schema`]: values against schemas that come from outside
//! - [`syntax`]: files that people write, as trees with places, and located mistakes
//! - [`http`]: the only way out to the network
//! - [`journal`]: the one door for effects
//! - [`store`]: runs that are kept: their places, their list, the answers to their questions, what they cost
//! - [`model`]: the neural side, one request → one reply
//! - [`tools`]: the symbolic side, what a call may do and who has to agree
//! - [`project`]: files → a linked program
//! - [`runtime`]: the imperative shell, which opens calls and drives their turns

pub mod escape;
pub(crate) mod glob;
pub(crate) mod judgement;
pub mod questions;
pub mod remedy;
pub mod store;
mod underway;

// The rooms. What others use of them stands below; tests, fuzz targets and benchmarks of this repository look into them.
#[cfg(not(feature = "internals"))]
mod beneath;
#[cfg(not(feature = "internals"))]
mod descriptors;
#[cfg(not(feature = "internals"))]
mod event;
#[cfg(not(feature = "internals"))]
mod http;
#[cfg(not(feature = "internals"))]
mod journal;
#[cfg(not(feature = "internals"))]
mod json_schema;
#[cfg(not(feature = "internals"))]
mod message;
#[cfg(not(feature = "internals"))]
mod model;
#[cfg(not(feature = "internals"))]
mod project;
#[cfg(not(feature = "internals"))]
mod redact;
#[cfg(not(feature = "internals"))]
mod runtime;
#[cfg(not(feature = "internals"))]
mod stack;
#[cfg(not(feature = "internals"))]
mod syntax;
#[cfg(not(feature = "internals"))]
mod tools;

#[cfg(feature = "internals")]
pub mod beneath;
#[cfg(feature = "internals")]
pub mod descriptors;
#[cfg(feature = "internals")]
pub mod event;
#[cfg(feature = "internals")]
pub mod http;
#[cfg(feature = "internals")]
pub mod journal;
#[cfg(feature = "internals")]
pub mod json_schema;
#[cfg(feature = "internals")]
pub mod message;
#[cfg(feature = "internals")]
pub mod model;
#[cfg(feature = "internals")]
pub mod project;
#[cfg(feature = "internals")]
pub mod redact;
#[cfg(feature = "internals")]
pub mod runtime;
#[cfg(feature = "internals")]
pub mod stack;
#[cfg(feature = "internals")]
pub mod syntax;
#[cfg(feature = "internals")]
pub mod tools;

pub use event::{Event, EventKind, Listen};
pub use journal::Journal;
pub use journal::file::FileJournal;
pub use message::{Content, Message, RawJson};
pub use model::Model;
pub use model::exchange::{Endpoint, Key, Secret};
pub use model::name::{ModelChoices, ModelName};
pub use project::{Limit, Limits, Program, Project};
pub use runtime::input::Input;
pub use runtime::{EntryCall, Models, Outcome, Output, RunError, Runtime, RuntimeConfig};
pub use syntax::diagnostic::Report;
pub use tokio_util::sync::CancellationToken;
pub use tools::approval::{Answer, ApprovalRequest, Approvals, Approver, PermittedCall, Rule, Verdict};
pub use tools::function::{FunctionEntry, Tool};
pub use tools::working_directory::WorkingDirectory;
pub use tools::{CallContext, ToolError, ToolSpec, Toolset};

/// Questions and answers, beside [`Approvals`].
pub mod approval {
    pub use crate::tools::approval::{
        ApprovalMode, AskedQuestion, CommandVerdict, Coverage, DeclaredVerdict, KnownAnswers, Memory, PendingQuestion,
        Question, SHORT_ID, SessionCoverage, canonical, key_of_call, short_id,
    };
}

/// Agents that are made while a program runs.
pub mod created {
    pub use crate::project::create::{ExistingAgent, WorkerDefaults, WorkerSpec};
    pub use crate::project::created::{CreatedAgents, CreatedStore};
}

/// How mistakes in files are shown.
pub mod diagnostics {
    pub use crate::syntax::diagnostic::Colour;
}

/// What happens in a run, beside the [`Event`] itself.
pub mod events {
    pub use crate::event::{
        ApprovalResult, CallEnd, CallKind, CallOutput, Events, LoggedMessage, MessageLog, Refusal, ToolReturn,
        TraceCall, UsageReport, schema,
    };
}

/// What the kernel keeps around commands and other programs.
pub mod fence {
    pub use crate::tools::fence::keep::kept;
    pub use crate::tools::fence::private::{PrivateDirectory, TemporaryPlace};
    pub use crate::tools::fence::tenant::FenceError;
    pub use crate::tools::fence::{Accept, Fence, FenceConfig, FenceKind, Fencing};
    pub use crate::tools::shell::fence_words;
}

/// Files at paths where others may have put anything.
pub mod files {
    pub use crate::beneath::{FileAccess, check_path, read_regular, replace_path};
}

/// Parts of a conversation, beside the [`Message`] itself.
pub mod messages {
    pub use crate::message::{Attachment, Finish, Reply, UnfinishedReason, Usage};
    pub use crate::tools::attachment::{AttachmentError, of_base64, read_named};
}

/// What to say where a name means nothing.
pub mod names {
    pub use crate::syntax::names::{instead, listed, nearest};
    pub use crate::syntax::table::is_name;
}

/// What tokens cost.
pub mod prices {
    pub use crate::model::prices::{ModelPrice, Prices, Rate, Rates, sum};
}

/// What a process is allowed: open files, and room on its stack.
pub mod process {
    pub use crate::descriptors::{give_back, raise, room};
    pub use crate::stack::with_room;
}

/// What a linked program consists of.
pub mod program {
    pub use crate::project::link::Survey;
    pub use crate::project::load::MANIFEST_NAME;
    pub use crate::project::worker::PythonModule;
    pub use crate::project::{
        AgentSpec, AllowWorkers, AttachmentPolicy, Code, DoubtfulRule, Entry, EntryFunction, Fallback, PythonType,
        ToolsetUse, Typing,
    };
}

/// Providers of models: the table of those that are known, and how one is connected.
pub mod providers {
    pub use crate::http::{HttpClient, HttpSettings, ProxySettings};
    pub use crate::model::exchange::{Exchange, KeySource, LaterKey, Retries};
    pub use crate::model::meter::{Meter, UnlimitedMeter};
    pub use crate::model::name::{CustomProvider, ModelFallback, ModelNameError};
    pub use crate::model::openai_chat::OpenAiChat;
    pub use crate::model::protocol::{Encoder, KeyForm, Quirks};
    pub use crate::model::provider::{PROVIDERS, ProtocolKind, Provider, VERTEX, provider};
    pub use crate::model::{Conversation, Fault, Head, ModelError};
}

/// Python files of a project.
pub mod python {
    pub use crate::tools::python::{CompiledStore, Python, PythonEndpoint, RenderedPart, Tracebacks, interpreter};
}

/// Who calls whom in a program, and what an agent can do in the worst case.
pub mod reach {
    pub use crate::project::reach::{AgentNode, Graph, ReachableTool, Worst};
}

/// Journals: how one is written, read, signed and resumed.
pub mod records {
    pub use crate::journal::StepKind;
    pub use crate::journal::digest::digest;
    pub use crate::journal::file::{JournalError, Matching, OpenJournal, read, read_foreign};
    pub use crate::journal::mac::{LineMac, SigningPurpose, StateKey, sign, split};
    pub use crate::journal::record::{JournalContents, StepProgress, shown_time};
    pub use crate::journal::run_id::{is_run_id, run_id};
    pub use crate::runtime::record::{PriorSpending, outcome};
}

/// JSON-RPC between processes, and what code in another process may ask for.
pub mod rpc {
    pub use crate::tools::callback::{CallView, METHODS, Sight, value_of, while_serving};
    pub use crate::tools::rpc::child::ChildEnvironment;
    pub use crate::tools::rpc::{Connection, IncomingMessage, RpcError, RpcRequest, code};
}

/// Choices of a run, beside [`RuntimeConfig`].
pub mod runs {
    pub use crate::redact::Redactor;
    pub use crate::runtime::{OutsideCaller, UnknownPrices, finish_of};
    pub use crate::tools::working_directory::is_too_wide;
}

/// JSON Schemas: of our own formats, and how large those of others may be.
pub mod schema {
    pub use crate::json_schema::{Direction, sized};
    pub use crate::project::schema::{of_project, of_worker};
}

/// Toolsets and their tools, beside [`Toolset`] and [`Tool`].
pub mod toolsets {
    pub use crate::runtime::mcp::{McpOffer, ask};
    pub use crate::tools::function::{MadeToolset, Run, RunEntry, ToolsetContext, fits};
    pub use crate::tools::plane::{InDoubt, Refusals};
    pub use crate::tools::source::{
        Access, Base, Enclosure, FileRoot, FilesystemConfig, Grammar, McpConfig, McpServer, Roots, ShellConfig,
        ShellRule, ToolsetSource,
    };
    pub use crate::tools::{DeclaredTool, Ending, Order, Repeat, ToolKind};
}

/// What a project asks of the person who runs it, and the phases from surveyed to trusted.
pub mod trust {
    pub use crate::project::fingerprint::Fingerprint;
    pub use crate::project::trust::{
        Agreement, SurveyedProject, TrustDigest, TrustItem, TrustedProgram, TrustedProject, items,
    };
}

use std::{future::Future, pin::Pin};

/// The one boxed-future alias; only object-safe seams use it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the documents show is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
