//! The same work as the bare client's, by the library: exchanges by its driver of wire formats, loops by its runtime.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use bench::{INSTRUCTIONS, MODEL, Mode, Task, Wire, notes, question, tell_percentile};
use llm_do::event::Events;
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::message::Message;
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries};
use llm_do::model::meter::UnlimitedMeter;
use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::model::protocol::Quirks;
use llm_do::model::provider::ProtocolKind;
use llm_do::model::{Head, Model as _, ModelSettings};
use llm_do::project::Project;
use llm_do::runtime::{Models, Runtime, RuntimeConfig};
use llm_do::tools::approval::{Approvals, Rule};
use llm_do::tools::function::Tool;
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<ExitCode, Failure> {
    let Some(task) = Task::parse(std::env::args().skip(1)) else { return Ok(ExitCode::from(2)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // In a task of its own, as the program does it.
    let held = runtime.block_on(async { tokio::spawn(hold(task.clone())).await })?;
    Ok(task.verdict(held?))
}

async fn hold(task: Task) -> Result<usize, Failure> {
    let exchange = exchange(&task)?;
    match &task.mode {
        Mode::One | Mode::Stream(_) => hold_history(&exchange, 1, &question(&task.mode)).await,
        Mode::History(turns) => hold_history(&exchange, *turns, &question(&task.mode)).await,
        Mode::Items(_) => Err("lists are worked through by the program".into()),
        Mode::Nested { second, third } => {
            let runtime = nested(exchange, &task, second, third)?;
            let outcome = runtime.run(question(&task.mode)).await?;
            Ok(outcome.output.into_text().len())
        }
        Mode::Loop { conversations, tool, .. } => {
            let runtime = Arc::new(runtime(exchange, tool, Answers::Streams)?);
            run(runtime, *conversations, question(&task.mode)).await
        }
        Mode::Documents(conversations) => {
            let runtime = Arc::new(runtime(exchange, &bench::Tool::Memory, Answers::Documents)?);
            run(runtime, *conversations, question(&task.mode)).await
        }
    }
}

fn exchange(task: &Task) -> Result<Exchange, Failure> {
    let (provider, kind) = match task.wire {
        Wire::Anthropic => ("anthropic", ProtocolKind::Anthropic),
        Wire::Chat => ("openai-chat", ProtocolKind::OpenAiChat),
    };
    let endpoint = Endpoint {
        provider: provider.to_owned(),
        protocol: kind.protocol().ok_or("no such protocol")?,
        quirks: Quirks::NONE,
        base_url: task.base_url.clone(),
        key: Key::Unneeded,
    };
    let http = HttpClient::new(HttpSettings::STANDARD)?;
    Ok(Exchange { endpoint: Arc::new(endpoint), http, retries: Retries::STANDARD })
}

async fn hold_history(exchange: &Exchange, turns: usize, question: &str) -> Result<usize, Failure> {
    let mut conversation = exchange.open(head(&exchange.endpoint.provider));
    let (events, mut history, mut text_length) = (Events::unheard(), Vec::new(), 0);
    for _ in 0..turns {
        history.push(Message::user(question));
        let reply = conversation.reply(&history, &mut UnlimitedMeter, &events).await?;
        text_length += reply.text().len();
        history.push(Message::Assistant(reply));
    }
    Ok(text_length)
}

fn head(provider: &str) -> Head {
    Head {
        agent: Arc::from("main"),
        model: ModelName { provider: provider.to_owned(), model: MODEL.to_owned() },
        instructions: String::new(),
        tools: Vec::new(),
        server_tools: Vec::new(),
        settings: ModelSettings::default(),
        output: None,
        may_call: true,
        stream: true,
    }
}

/// Reads a text file
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct ReadFile {
    #[serde(rename = "path")]
    _path: String,
}

async fn read_file(_: ReadFile) -> Result<String, Failure> {
    Ok(notes())
}

async fn read_slowly(_: ReadFile) -> Result<String, Failure> {
    tokio::time::sleep(bench::SLOWNESS).await;
    Ok(notes())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    Streams,
    Documents,
}

fn runtime(exchange: Exchange, tool: &bench::Tool, answers: Answers) -> Result<Runtime, Failure> {
    let (root, tools) = match tool {
        bench::Tool::Memory | bench::Tool::Slow => (Path::new("."), "tools: [read_file]"),
        bench::Tool::File(directory) => (directory.as_path(), "toolsets: [filesystem_project_ro]"),
    };
    let limits = "limits: {max_requests: 1000000}";
    let worker = format!("---\nname: main\nmodel: anthropic:{MODEL}\n{tools}\n{limits}\n---\n{INSTRUCTIONS}");
    let project = Project::new(root).agent("main.worker", &worker);
    let project = match tool {
        bench::Tool::Slow => project.tool(Tool::new(read_slowly).named(bench::TOOL).verdict(Rule::Allow)),
        bench::Tool::Memory | bench::Tool::File(_) => project.tool(Tool::new(read_file).verdict(Rule::Allow)),
    };
    let program = project.link(&ModelChoices::default()).map_err(|report| report.to_string())?;
    let mut models = Models::default();
    models.insert("anthropic", Arc::new(exchange));
    let config = RuntimeConfig { stream: answers == Answers::Streams, ..RuntimeConfig::new(Approvals::unattended()) };
    Ok(Runtime::new(program, models, config))
}

fn nested(first: Exchange, task: &Task, second: &str, third: &str) -> Result<Runtime, Failure> {
    let worker = |name: &str, provider: &str, keys: &str| {
        format!("---\nname: {name}\ndescription: Answers\nmodel: {provider}:{MODEL}\n{keys}---\n{INSTRUCTIONS}")
    };
    // These are the names of providers; the endpoints of the benchmark are put in their places.
    let project = Project::new(".")
        .agent("main.worker", &worker("main", "anthropic", "toolsets: [middle]\n"))
        .agent("middle.worker", &worker("middle", "openai", "toolsets: [leaf]\n"))
        .agent("leaf.worker", &worker("leaf", "ollama", ""));
    let program = project.link(&ModelChoices::default()).map_err(|report| report.to_string())?;
    let elsewhere = |base_url: &str| exchange(&Task { base_url: base_url.to_owned(), ..task.clone() });
    let mut models = Models::default();
    models.insert("anthropic", Arc::new(first));
    models.insert("openai", Arc::new(elsewhere(second)?));
    models.insert("ollama", Arc::new(elsewhere(third)?));
    Ok(Runtime::new(program, models, RuntimeConfig::new(Approvals::unattended())))
}

async fn run(runtime: Arc<Runtime>, conversations: usize, question: String) -> Result<usize, Failure> {
    let mut running = JoinSet::new();
    for _ in 0..conversations {
        let (runtime, question) = (Arc::clone(&runtime), question.clone());
        let started = Instant::now();
        running.spawn(async move {
            let outcome = runtime.run(question).await?;
            Ok::<_, Failure>((text_length(&outcome.messages), started.elapsed()))
        });
    }
    let (mut text_length, mut times) = (0, Vec::new());
    while let Some(held) = running.join_next().await {
        let (length, time) = held??;
        text_length += length;
        times.push(time);
    }
    tell_percentile(&mut times)?;
    Ok(text_length)
}

fn text_length(messages: &[Message]) -> usize {
    let replies = messages.iter().filter_map(|message| match message {
        Message::Assistant(reply) => Some(reply.text().len()),
        Message::User(_) | Message::Tool(_) => None,
    });
    replies.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_client_declares_the_same_tool() {
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<ReadFile>();
        assert_eq!(serde_json::to_string(&schema).ok().as_deref(), Some(include_str!("../tool.json").trim()));
        assert_eq!(Tool::new(read_file).description(), bench::TOOL_DESCRIPTION);
    }
}
