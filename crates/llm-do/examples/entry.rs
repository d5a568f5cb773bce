//! An entry function: code that decides, and asks an agent only where words are needed. Callers do not notice which of
//! the two they started. Needs no key:
//!
//!     cargo run -p llm-do --example entry

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use llm_do::{
    Approvals, CallContext, Content, FunctionEntry, ModelChoices, Models, Project, RawJson, Runtime, ToolError,
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    /// How many crates were ordered
    crates: u32,
}

/// Small orders are confirmed by a rule, large ones in the words of an agent.
async fn confirm(order: Order, cx: &CallContext<'_>) -> Result<String, ToolError> {
    if order.crates <= 10 {
        return Ok(format!("{} crates are on their way.", order.crates));
    }
    let question = RawJson::of(&format!("A customer wants {} crates.", order.crates));
    let answer = cx.call_agent("sales", &question).await?;
    Ok(Content::shown(&answer))
}

pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let project = Project::new(".")
        .agent("sales.worker", "---\nname: sales\n---\nAnswer large orders politely.")
        .entry(FunctionEntry::new("confirm", |order: Order, cx| Box::pin(confirm(order, cx))));
    let models = ModelChoices::scripted("- say: 'We will call you. ({{ heard }})'");
    let program = project.link(&models)?;
    let runtime = Runtime::new(program, Models::default(), Approvals::unattended());
    let mut lines = Vec::new();
    for crates in [3, 400] {
        let outcome = runtime.run(serde_json::json!({"crates": crates})).await?;
        lines.push(outcome.output.into_text());
    }
    lines.push(format!("{} request to a model", runtime.usage().total.requests));
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}
