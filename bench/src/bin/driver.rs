//! The same work as the bare client's, by the library.

use std::process::ExitCode;
use std::sync::Arc;

use bench::{MODEL, Mode, Task, Wire, question};
use llm_do::event::Events;
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::message::Message;
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries};
use llm_do::model::name::ModelName;
use llm_do::model::protocol::Quirks;
use llm_do::model::provider::ProtocolKind;
use llm_do::model::{Head, Model as _, ModelSettings};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<ExitCode, Failure> {
    let Some(task) = Task::parse(std::env::args().skip(1)) else { return Ok(ExitCode::from(2)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // In a task of its own, as the program does it.
    let held = runtime.block_on(async { tokio::spawn(hold(task.clone())).await })?;
    Ok(task.verdict(held?))
}

async fn hold(task: Task) -> Result<usize, Failure> {
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
    let exchange = Exchange { endpoint: Arc::new(endpoint), http, retries: Retries::STANDARD };
    let mut conversation = exchange.open(head(provider));
    let question = match task.mode {
        Mode::One | Mode::Stream(_) => "Hello".to_owned(),
        Mode::History(_) => question(),
    };
    let (events, mut history, mut text_length) = (Events::unheard(), Vec::new(), 0);
    for _ in 0..task.exchanges() {
        history.push(Message::user(question.clone()));
        let reply = conversation.reply(&history, &events).await?;
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
        stream: true,
    }
}
