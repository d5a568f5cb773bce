//! The work with genai: it sends and reads, the loop is ours.

use std::process::ExitCode;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, join_all};
use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatRequest, ChatStreamEvent, Tool, ToolResponse};
use genai::resolver::{AuthData, Endpoint, ServiceTargetResolver};
use genai::{Client, ModelIden, ServiceTarget};
use peers::{
    Failure, Held, INSTRUCTIONS, MODEL, NESTED, QUESTION, TOOL, TOOL_DESCRIPTION, Work, input_schema, read_file, run,
    schema, task,
};

fn main() -> Result<ExitCode, Failure> {
    let (base_urls, work) = task()?;
    let clients: Arc<Vec<Client>> = Arc::new(base_urls.iter().map(|base_url| client(base_url)).collect());
    run(work, || hold(Arc::clone(&clients), work))
}

fn client(base_url: &str) -> Client {
    let endpoint = Endpoint::from_owned(format!("{base_url}/v1/"));
    let resolver = ServiceTargetResolver::from_resolver_fn(
        move |target: ServiceTarget| -> Result<ServiceTarget, genai::resolver::Error> {
            let model = ModelIden::new(AdapterKind::OpenAI, target.model.model_name);
            Ok(ServiceTarget { endpoint: endpoint.clone(), auth: AuthData::from_single("key"), model })
        },
    );
    Client::builder().with_service_target_resolver(resolver).build().expect("nothing in it can fail")
}

/// Calls of the first level are conversations of the next.
fn nested(clients: &[Client], level: usize) -> BoxFuture<'_, Result<Held, Failure>> {
    Box::pin(async move {
        let mut request = ChatRequest::new(vec![ChatMessage::user(QUESTION)]).with_system(INSTRUCTIONS);
        if let Some(name) = NESTED.get(level) {
            request = request.with_tools(vec![Tool::new(*name).with_description("Answers").with_schema(input_schema())]);
        }
        let mut calls = 0;
        loop {
            let reply = clients[level].exec_chat(MODEL, request.clone(), None).await?;
            let text = reply.first_text().unwrap_or_default().to_owned();
            let wanted = reply.into_tool_calls();
            let Some(call) = wanted.first() else { return Ok(Held { text, calls }) };
            calls += 1;
            let answer = ToolResponse::new(call.call_id.clone(), nested(clients, level + 1).await?.text);
            request = request.append_message(ChatMessage::assistant(text)).append_message(wanted).append_message(answer);
        }
    })
}

async fn hold(clients: Arc<Vec<Client>>, work: Work) -> Result<Held, Failure> {
    if let Work::Nested = work {
        return nested(&clients, 0).await;
    }
    let client = &clients[0];
    let mut request = ChatRequest::new(vec![ChatMessage::user(QUESTION)]).with_system(INSTRUCTIONS);
    if let Work::Stream(_) = work {
        return stream(client, request).await;
    }
    if let Work::Loop(_) | Work::Parallel(_) = work {
        let tool = Tool::new(TOOL).with_description(TOOL_DESCRIPTION).with_schema(schema());
        request = request.with_tools(vec![tool]);
    }
    let mut calls = 0;
    loop {
        let reply = client.exec_chat(MODEL, request.clone(), None).await?;
        let text = reply.first_text().unwrap_or_default().to_owned();
        let wanted = reply.into_tool_calls();
        if wanted.is_empty() {
            return Ok(Held { text, calls });
        }
        calls += wanted.len();
        let results = join_all(wanted.iter().map(|_| read_file(work))).await;
        let results = wanted.iter().zip(results).map(|(call, result)| ToolResponse::new(call.call_id.clone(), result));
        let results: Vec<ToolResponse> = results.collect();
        request = request.append_message(ChatMessage::assistant(text)).append_message(wanted);
        for result in results {
            request = request.append_message(result);
        }
    }
}

async fn stream(client: &Client, request: ChatRequest) -> Result<Held, Failure> {
    let mut events = client.exec_chat_stream(MODEL, request, None).await?.stream;
    let mut text = String::new();
    while let Some(event) = events.next().await {
        if let ChatStreamEvent::Chunk(chunk) = event? {
            text.push_str(&chunk.content);
        }
    }
    Ok(Held { text, calls: 0 })
}
