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
//! # use llm_do::model::name::{ModelChoices, ModelName};
//! # use llm_do::tools::approval::{PermittedCall, Verdict};
//! # use llm_do::tools::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
//! use llm_do::project::Project;
//! use llm_do::runtime::{Models, Output, Runtime, RuntimeConfig};
//! use llm_do::tools::approval::Approvals;
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
//! # let models = ModelChoices {
//! #     flag: Some(ModelName::parse("scripted:script").unwrap()),
//! #     scripts: [("script".to_owned(), script.to_owned())].into(),
//! #     ..ModelChoices::default()
//! # };
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let project = Project::new(".")
//!     .agent("main.worker", "---\nname: main\ntoolsets: [counter, helper]\n---\nYou count.")
//!     .agent("helper.worker", "---\nname: helper\ntoolsets: [counter]\n---\nYou count for others.")
//!     .toolset("counter", || Box::new(Counter(AtomicUsize::new(0))));
//! let program = project.link(&models)?.program; // every name resolved, or every error
//! let runtime = Runtime::new(program, Models::default(), RuntimeConfig::new(Approvals::unattended()));
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

pub mod beneath;
pub mod descriptors;
pub mod escape;
pub mod event;
pub(crate) mod glob;
pub mod http;
pub mod journal;
pub mod json_schema;
pub(crate) mod judgement;
pub mod message;
pub mod model;
pub mod project;
pub mod questions;
pub mod redact;
pub mod runtime;
pub mod stack;
pub mod store;
pub mod syntax;
pub mod tools;
mod underway;

use std::{future::Future, pin::Pin};

pub use tokio_util::sync::CancellationToken;

/// The one boxed-future alias; only object-safe seams use it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the documents show is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
