//! A toolset in Rust: tools that share state, a verdict for each call, and something to close. One instance is made for
//! each call of an agent. Needs no key:
//!
//!     cargo run -p llm-do --example toolset

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::{Mutex, PoisonError};

use llm_do::approval::Question;
use llm_do::toolsets::Order;
use llm_do::{
    Approvals, BoxFuture, CallContext, Content, Judgement, ModelChoices, Models, PermittedCall, Project, RawJson,
    Runtime, ToolError, ToolSpec, Toolset, Verdict,
};

/// A list of notes that lives as long as the call.
#[derive(Default)]
struct Notebook(Mutex<Vec<String>>);

/// Keeps a note for the rest of this conversation
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Note {
    text: String,
}

impl Toolset for Notebook {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec { order: Order::Sequential, ..ToolSpec::of::<Note>("note") }]
    }

    /// Short notes need no question.
    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            let note: Note = arguments.to().map_err(|error| error.to_string())?;
            let is_short = note.text.len() <= 80;
            let verdict = if is_short { Verdict::Allow } else { Verdict::Ask(Question::because("keeps a long note")) };
            Ok(verdict.into())
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
    let runtime = Runtime::new(program, Models::default(), Approvals::unattended());
    let mut call = runtime.open_entry().await?;
    let mut lines = Vec::new();
    for said in ["milk", "bread"] {
        lines.push(call.turn(said).await?.into_text());
    }
    call.close().await;
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}
