//! llm-do inside another program: a project with a tool in Rust, one run, and a chat of two turns. Needs no key:
//!
//!     cargo run -p llm-do --example embed

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use llm_do::{Approvals, ModelChoices, Models, Project, Rule, Runtime, Tool};

/// Counts the words of a text
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct WordCount {
    text: String,
}

async fn word_count(arguments: WordCount) -> Result<usize, String> {
    Ok(arguments.text.split_whitespace().count())
}

pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let worker = "---\nname: main\nmodel: scripted:script.yaml\ntools: [word_count]\n---\nCount words.\n";
    let script = "- heard: count\n  call: { word_count: { text: '{{ heard }}' } }\n\
                  - tool: word_count\n  say: '{{ result }} words'\n\
                  - say: 'turn with reply {{ round }}'\n";
    std::fs::write(directory.path().join("main.worker"), worker)?;
    std::fs::write(directory.path().join("script.yaml"), script)?;

    let project = Project::load(directory.path())?.tool(Tool::new(word_count).verdict(Rule::Allow));
    let program = project.link(&ModelChoices::default())?;
    let runtime = Runtime::new(program, Models::default(), Approvals::unattended());

    let outcome = runtime.run("count these four words").await?;
    let requests = outcome.usage.total.requests;
    let mut lines = vec![format!("{}, after {requests} requests", outcome.output.into_text())];

    let mut call = runtime.open_entry().await?;
    for said in ["hello", "and again"] {
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
