//! A project without files: two agents as texts, one of which calls the other as a tool. Needs no key:
//!
//!     cargo run -p llm-do --example agents

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use llm_do::{Approvals, ModelChoices, Models, Project, Runtime};

/// What the model says, since this example has none.
const SCRIPT: &str = "
- { agent: editor, say: 'BRIEF: {{ heard }}' }
- { tool: editor, say: 'The editor says: {{ result }}' }
- { call: { editor: { input: '{{ heard }}' } } }
";

pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let project = Project::new(".")
        .agent("main.worker", "---\nname: main\ntoolsets: [editor]\n---\nLet the editor shorten what you hear.")
        .agent("editor.worker", "---\nname: editor\ndescription: Shortens a text\n---\nShorten.");
    let models = ModelChoices::scripted(SCRIPT);
    let program = project.link(&models)?;
    let runtime = Runtime::new(program, Models::default(), Approvals::unattended());
    let outcome = runtime.run("a long story").await?;
    let root = &outcome.trace[0];
    let calls: Vec<&str> = root.calls.iter().map(|call| call.name.as_str()).collect();
    Ok(vec![outcome.output.into_text(), format!("{} called {}", root.name, calls.join(", "))])
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}
