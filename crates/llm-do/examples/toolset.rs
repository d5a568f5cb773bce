//! A toolset in Rust: tools that share state, a verdict for each call, and something to close. One instance is made for
//! each call of an agent. Needs no key:
//!
//!     cargo run -p llm-do --example toolset

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::{Mutex, PoisonError};

use llm_do::BoxFuture;
use llm_do::message::{Content, RawJson};
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::runtime::{Models, Runtime, RuntimeConfig};
use llm_do::tools::approval::{Approvals, PermittedCall, Question, Verdict};
use llm_do::tools::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};

/// A list of notes that lives as long as the call.
#[derive(Default)]
struct Notebook(Mutex<Vec<String>>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Note {
    text: String,
}

impl Toolset for Notebook {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: "note".to_owned(),
            description: "Keeps a note for the rest of this conversation".to_owned(),
            parameters: RawJson::of(&schemars::schema_for!(Note)),
            kind: ToolKind::Leaf,
            order: Order::Sequential,
            repeat: Repeat::Once,
        }]
    }

    /// Short notes are nobody's business.
    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Verdict, String>> {
        Box::pin(async move {
            let note: Note = arguments.to().map_err(|error| error.to_string())?;
            let is_short = note.text.len() <= 80;
            Ok(if is_short { Verdict::Allow } else { Verdict::Ask(Question::because("keeps a long note")) })
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            let note: Note = call.arguments().to().map_err(|error| ToolError::failed(error.to_string()))?;
            let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            notes.push(note.text);
            Ok(vec![Content::text(format!("{} notes", notes.len()))])
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let project = Project::new(".")
        .agent("main.worker", "---\nname: main\ntoolsets: [notebook]\n---\nNote what you hear.")
        .toolset("notebook", || Box::new(Notebook::default()));
    let script = "- { tool: note, say: '{{ result }}' }\n- { call: { note: { text: '{{ heard }}' } } }";
    let models = ModelChoices::scripted(script);
    let program = project.link(&models)?;
    let runtime = Runtime::new(program, Models::default(), RuntimeConfig::new(Approvals::unattended()));
    let mut scope = runtime.open("main").await?;
    let mut lines = Vec::new();
    for said in ["milk", "bread"] {
        lines.push(scope.turn(said).await?.into_text());
    }
    scope.close().await;
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}
