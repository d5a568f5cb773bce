//! Prompts as executables: agents are text files, code and agents call each other by name in one call tree, and a
//! dangerous call waits until it is allowed.
//!
//! A project is loaded, linked and run. Linking resolves every name or reports every mistake; the runtime opens a call of
//! the entry and takes turns with it. The library reads no environment, no arguments and no configuration, and it prints
//! nothing.
//!
//! ```
//! use llm_do::{Approvals, ModelChoices, Models, Project, Runtime};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let project = Project::new(".").agent("main.worker", "---\nname: main\n---\nAnswer briefly.");
//! let program = project.link(&ModelChoices::scripted("- say: You said {{ heard }}."))?;
//! let runtime = Runtime::new(program, Models::default(), Approvals::unattended());
//! let outcome = runtime.run("hello").await?;
//! assert_eq!(outcome.output.to_string(), "You said hello.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/embedding.md` is the guide: tools, toolsets, code above agents, chats, questions, events, journals, limits, and
//! models, engines and front ends of your own.
//!
//! # Modules
//!
//! What most programs need stands at the root. The modules hold what goes with it:
//!
//! - [`approval`], [`questions`]: questions, and who answers them
//! - [`toolsets`]: tools and toolsets in Rust, and how built-in ones are configured
//! - [`events`], [`messages`]: what happens in a run, and what is said in it
//! - [`providers`], [`prices`]: models, their connections, and what they cost
//! - [`records`]: journals, and what they tell
//! - [`runs`], [`program`]: further choices of a run, and what agents are made of
//! - [`trust`], [`created`]: projects of others, and agents that are made at run time
//! - [`diagnostics`], [`remedy`], [`escape`]: mistakes, what can be done about them, and text that is safe to show
//! - [`fence`]: what the kernel keeps around commands
//!
//! # Features
//!
//! - `front-end`: what the hall is built on. Not stable for others; `llm-do-launch` switches it on. It adds `store` (runs that
//!   are kept), `reach` (what agents can do), `python`, `rpc`, `schema`, `names`, `files` and `process`, and further items of
//!   the modules above. A program that wants these starts from `llm-do-launch`.
//! - `engine`: what an engine of one's own is made with. It adds `conformance`, the tests that every [`Journal`] passes.
//! - `internals`: opens all modules to the tests, fuzz targets and benchmarks of this repository. Nothing that it opens is
//!   stable, and no other program should use it.

#![cfg_attr(not(feature = "internals"), deny(missing_docs))]
#![cfg_attr(feature = "internals", deny(unreachable_pub))]

// Here and below, `front-end` opens what only the hall and the front ends need that are built from it.
pub(crate) mod dormant;
pub mod escape;
pub(crate) mod glob;
pub(crate) mod judgement;
pub mod questions;
pub mod remedy;
pub(crate) mod replies;
pub(crate) mod spending;
#[cfg(feature = "front-end")]
pub mod store;
mod system;
#[cfg(feature = "front-end")]
pub mod telemetry;
#[cfg(not(feature = "front-end"))]
#[allow(dead_code, unused_imports, reason = "only front ends make one")]
mod telemetry;
mod underway;

// The rooms. What other programs use of them stands below. With the feature `internals` the tests, fuzz targets and
// benchmarks of this repository can look into them.
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
#[cfg(all(feature = "front-end", not(feature = "internals")))]
mod testing;
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
pub mod testing;
#[cfg(feature = "internals")]
pub mod tools;

pub use event::{Event, EventKind, Listen};
pub use journal::Journal;
pub use journal::file::FileJournal;
pub use message::{Content, Message, RawJson};
pub use model::Model;
pub use model::exchange::{Endpoint, Key, Secret};
pub use model::name::{ModelChoices, ModelName};
pub use project::{Limits, OnLimit, Program, Project};
pub use runtime::input::Input;
pub use runtime::{EntryCall, Models, Outcome, Output, RunError, Runtime, RuntimeConfig};
pub use syntax::diagnostic::Report;
pub use tokio_util::sync::CancellationToken;
pub use tools::approval::{Answer, ApprovalRequest, Approvals, Approver, Judgement, PermittedCall, Rule, Verdict};
pub use tools::function::{FunctionEntry, Tool};
pub use tools::working_directory::WorkingDirectory;
pub use tools::{CallContext, ToolError, ToolSpec, Toolset};

/// Questions and answers, beside [`Approvals`].
pub mod approval {
    pub use crate::tools::approval::{
        ApprovalMode, CallSubject, Coverage, FieldType, Form, FormField, KnownAnswers, Memory, PendingQuestion,
        Question, SessionCoverage, short_id,
    };

    #[cfg(feature = "front-end")]
    pub use crate::tools::approval::{
        AskedQuestion, CommandVerdict, DecidedBy, DeclaredVerdict, JudgementRecord, RAISE_LIMIT, SHORT_ID,
        SessionGrant, Trials, VerdictKind, canonical, check_edited_raise, key_of_call,
    };
}

/// What every [`Journal`] is held against: `docs/engines.md`.
#[cfg(feature = "engine")]
pub mod conformance {
    pub use crate::journal::conformance::{Desk, Nonconformity, check};
}

/// Agents that are made while a program runs.
pub mod created {
    pub use crate::project::create::{ExistingAgent, WorkerDefaults, WorkerSpec};
    pub use crate::project::created::CreatedStore;

    #[cfg(feature = "front-end")]
    pub use crate::project::created::CreatedAgents;
}

/// How mistakes in files are shown.
pub mod diagnostics {
    pub use crate::syntax::diagnostic::Colour;
}

/// What happens in a run, beside the [`Event`] itself.
pub mod events {
    pub use crate::event::{
        AgentSpending, ApprovalResult, CallEnd, CallKind, CallOutput, Events, Refusal, ToolReturn, TraceCall,
        UsageReport, schema,
    };

    #[cfg(feature = "front-end")]
    pub use crate::event::{LoggedMessage, MessageLog, ProviderSilence};
}

/// What the kernel keeps around commands and other programs.
pub mod fence {
    pub use crate::tools::fence::keep::kept;
    pub use crate::tools::fence::{Accept, Fence, FenceConfig, FenceKind, Fencing};

    #[cfg(feature = "front-end")]
    pub use crate::tools::{
        fence::private::{PrivateDirectory, TemporaryPlace},
        fence::tenant::FenceError,
        shell::fence_words,
    };
}

/// Files at paths where others may have put anything.
#[cfg(feature = "front-end")]
pub mod files {
    pub use crate::beneath::{FileAccess, check_path, create_path, read_regular, replace_path};
    pub use crate::glob::PathPattern;
}

/// What MCP says on the wire, for whoever serves it.
#[cfg(feature = "front-end")]
pub mod mcp {
    pub use crate::tools::mcp::wire;
}

/// Parts of a conversation, beside the [`Message`] itself.
pub mod messages {
    pub use crate::message::{
        Arguments, Attachment, Finish, Reply, ReplyPart, TextPart, ToolCall, ToolResult, UnfinishedReason, Usage,
    };
    pub use crate::tools::attachment::{AttachmentError, of_base64, read_named};
}

/// What to say where a name means nothing.
#[cfg(feature = "front-end")]
pub mod names {
    pub use crate::syntax::names::{instead, listed, nearest};
    pub use crate::syntax::table::is_name;
}

/// Lasting rules: what the user, the project and the organisation say about calls, in files.
pub mod policy {
    #[cfg(feature = "front-end")]
    pub use crate::tools::approval::{CallOutlook, JudgingStep};
    #[cfg(feature = "front-end")]
    pub use crate::tools::policy::{Explanation, LastingRules, RuleDraft, RuledCall, SpokenRule};
    pub use crate::tools::policy::{LastingRule, RuleFile, RuleSource, read_rules};
}

/// What tokens cost.
pub mod prices {
    pub use crate::model::prices::{ModelPrice, Prices, Rate, Rates};
}

/// What a process is allowed: open files, and room on its stack.
#[cfg(feature = "front-end")]
pub mod process {
    pub use crate::descriptors::{give_back, has_room_to_spare, raise, room};
    pub use crate::stack::with_room;
    pub use crate::system::{ProcessPlace, conceal, is_in_foreground, own_program, place_of, terminal};
}

/// What a linked program consists of.
pub mod program {
    pub use crate::project::{AllowWorkers, AttachmentPolicy};

    #[cfg(feature = "front-end")]
    pub use crate::project::{
        AgentSpec, Code, DoubtfulRule, Entry, EntryFunction, Fallback, PythonType, ToolsetUse, Typing, link::Survey,
        load::MANIFEST_NAME, worker::PythonModule,
    };
    #[cfg(feature = "front-end")]
    pub use crate::tools::python::stand_in::{AnswerMode, StandIn};
}

/// Providers of models: the table of those that are known, and how one is connected.
pub mod providers {
    pub use crate::http::{HttpClient, HttpSettings, ProxySettings};
    pub use crate::model::exchange::{Exchange, KeySource, LaterKey, Retries};
    pub use crate::model::meter::{Meter, RequestProgress, SendingRefusal};
    pub use crate::model::name::{CustomProvider, ModelFallback, ModelNameError};
    pub use crate::model::openai_chat::OpenAiChat;
    pub use crate::model::protocol::Quirks;
    pub use crate::model::provider::{PROVIDERS, ProtocolKind, Provider, provider};
    pub use crate::model::{Conversation, Fault, Head, ModelError, ModelSettings, ToolDeclaration};
    pub use crate::runtime::ConnectError;

    #[cfg(feature = "front-end")]
    pub use crate::{
        http::check_confidential,
        model::fallback::FailedModels,
        model::protocol::{Encoder, KeyForm},
        model::provider::VERTEX,
    };
}

/// Python files of a project.
#[cfg(feature = "front-end")]
pub mod python {
    pub use crate::tools::python::{CompiledStore, Python, PythonEndpoint, RenderedPart, Tracebacks};
}

/// Who calls whom in a program, and what an agent can do in the worst case.
#[cfg(feature = "front-end")]
pub mod reach {
    pub use crate::project::reach::{AgentNode, Graph, ReachableTool, Worst};
}

/// Journals: how one is written, read, signed and resumed.
pub mod records {
    pub use crate::journal::blobs::Blobs;
    pub use crate::journal::file::{
        Durability, JournalError, JournalSettings, Matching, NewRun, OpenJournal, WriteFailure, read, read_with,
    };
    pub use crate::journal::mac::StateKey;
    pub use crate::journal::record::{EndState, JournalContents, RunEnd, RunIdentity, RunKind};
    pub use crate::journal::{Prior, RecordedSteps, Step, StepAnswer, StepKind, Stop};
    pub use crate::runtime::record::{PriorSpending, outcome};

    #[cfg(feature = "engine")]
    pub use crate::journal::replica::Replica;

    #[cfg(feature = "front-end")]
    pub use crate::{
        journal::digest::digest,
        journal::file::{SharedParts, read_foreign},
        journal::fork::{ForkError, forked},
        journal::mac::{LineMac, SigningPurpose, sign, split},
        journal::record::{ForkOrigin, StepProgress, shown_time},
        journal::requests::{RecordedRequest, requests},
        journal::run_id::{is_run_id, run_id},
        runtime::answered::{AnsweredCall, answered_calls},
        runtime::call_tree::{CallAnswer, CallState, RecordedCall, calls, calls_of},
        runtime::judgements::{CallFate, JudgedCall, judged_calls},
        runtime::record::{conversation, input_text, turn_output},
    };
}

/// JSON-RPC between processes, and what code in another process may ask for.
#[cfg(feature = "front-end")]
pub mod rpc {
    pub use crate::tools::callback::{CallView, METHODS, Sight, value_of, while_serving};
    pub use crate::tools::rpc::{Connection, IncomingMessage, RpcError, RpcRequest, code};
}

/// Choices of a run, beside [`RuntimeConfig`].
pub mod runs {
    pub use crate::redact::Redactor;
    pub use crate::runtime::input::InputError;
    pub use crate::runtime::mcp::McpHome;
    pub use crate::runtime::{RestoredTurns, UnknownPrices};
    pub use crate::spending::BudgetsInForce;
    pub use crate::tools::rpc::child::ChildEnvironment;

    #[cfg(feature = "front-end")]
    pub use crate::{
        replies::ReplyCaching,
        runtime::map::ItemRecord,
        runtime::{OutsideCaller, Steering, UndoneTurn, check_history, finish_of},
        tools::working_directory::is_too_wide,
    };
}

/// JSON Schemas: of our own formats, and how large those of others may be.
#[cfg(feature = "front-end")]
pub mod schema {
    pub use crate::json_schema::{Direction, sized};
    pub use crate::project::schema::{of_project, of_settings, of_tests, of_worker};
    pub use crate::project::settings::settings_mistakes;
    pub use crate::syntax::tree::json_of_yaml;
}

/// Cases that agents are tested with, their records, and what they are judged by.
#[cfg(feature = "front-end")]
pub mod tests {
    pub use crate::project::cases::records_of;
    pub use crate::testing::{
        Answering, ApprovedTools, CallMade, CaseOutcome, Expectation, Fixture, Miss, PassRate, ProjectListing,
        ReplayPlan, ScratchError, ScratchProject, StaleStep, TestCase, TestFile, TestJournal, ToolAnswers,
    };
}

/// Toolsets and their tools, beside [`Toolset`] and [`Tool`].
pub mod toolsets {
    pub use crate::tools::function::{MadeToolset, Run, RunEntry, ToolsetContext};
    pub use crate::tools::plane::Refusals;
    pub use crate::tools::{Ending, Order, Repeat, ToolKind};

    #[cfg(feature = "front-end")]
    pub use crate::{
        runtime::mcp::login::{LoginFailure, OpenLogin, open_login},
        runtime::mcp::offer::{McpOffer, ask},
        tools::DeclaredTool,
        tools::function::fits,
        tools::mcp::oauth::{KeptLogin, forget_login, kept_logins},
        tools::plane::InDoubt,
        tools::source::{
            Access, AuthGrant, Base, Enclosure, FileRoot, FilesystemConfig, Grammar, McpAuth, McpConfig, McpServer,
            Roots, ShellConfig, ShellRule, ToolsetSource,
        },
    };
}

/// What a project asks of the person who runs it, and the phases from surveyed to trusted.
pub mod trust {
    pub use crate::project::trust::{
        Agreement, SurveyedProject, TrustDigest, TrustItem, TrustedProgram, TrustedProject, items,
    };

    #[cfg(feature = "front-end")]
    pub use crate::project::fingerprint::Fingerprint;
}

use std::{future::Future, pin::Pin};

/// A boxed future. The traits that other programs implement return one, so that they can be used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
