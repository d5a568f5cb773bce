//! The work with rig-core: it sends and reads, the loop is ours.

use std::process::ExitCode;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, join_all};
use peers::{
    Failure, Held, INSTRUCTIONS, MODEL, NESTED, QUESTION, TOOL, TOOL_DESCRIPTION, Work, input_schema, read_file, run,
    schema, task,
};
use rig_core::completion::message::{Message, ToolResult, ToolResultContent};
use rig_core::completion::{CompletionRequest, ToolDefinition};
use rig_core::providers::openai::{OpenAI, OpenAIConfig};
use rig_core::streaming::{Item, StreamEvent};

fn main() -> Result<ExitCode, Failure> {
    let (base_urls, work) = task()?;
    let at = |base_url: &String| OpenAIConfig::new("key").with_base_url(format!("{base_url}/v1")).client();
    let providers: Arc<Vec<OpenAI>> = Arc::new(base_urls.iter().map(at).collect());
    run(work, || hold(Arc::clone(&providers), work))
}

/// Calls of the first level are conversations of the next.
fn nested(providers: &[OpenAI], level: usize) -> BoxFuture<'_, Result<Held, Failure>> {
    Box::pin(async move {
        let model = providers[level].chat(MODEL);
        let mut request = CompletionRequest::new(QUESTION).preamble(INSTRUCTIONS);
        if let Some(name) = NESTED.get(level) {
            request = request.tool(ToolDefinition::new((*name).try_into()?, "Answers", input_schema()));
        }
        let mut calls = 0;
        loop {
            let reply = model.call(request.clone()).await?;
            let Some(call) = reply.tool_calls().next().cloned() else {
                return Ok(Held { text: reply.text(), calls });
            };
            calls += 1;
            let answer = nested(providers, level + 1).await?.text;
            request.chat_history.extend(reply.message());
            request.chat_history.push(Message::tool_result(call.id, call.function.name, answer));
        }
    })
}

async fn hold(providers: Arc<Vec<OpenAI>>, work: Work) -> Result<Held, Failure> {
    if let Work::Nested = work {
        return nested(&providers, 0).await;
    }
    let model = providers[0].chat(MODEL);
    let mut request = CompletionRequest::new(QUESTION).preamble(INSTRUCTIONS);
    if let Work::Stream(_) = work {
        let mut events = model.stream(request)?;
        let mut text = String::new();
        while let Some(event) = events.next().await {
            if let Item::Event(StreamEvent::Text { text: more, .. }) = event? {
                text.push_str(&more);
            }
        }
        return Ok(Held { text, calls: 0 });
    }
    if let Work::Loop(_) | Work::Parallel(_) = work {
        request = request.tool(ToolDefinition::new(TOOL.try_into()?, TOOL_DESCRIPTION, schema()));
    }
    let mut calls = 0;
    loop {
        let reply = model.call(request.clone()).await?;
        let wanted: Vec<_> = reply.tool_calls().cloned().collect();
        if wanted.is_empty() {
            return Ok(Held { text: reply.text(), calls });
        }
        calls += wanted.len();
        let results = join_all(wanted.iter().map(|_| read_file(work))).await;
        let results = wanted.into_iter().zip(results).map(|(call, result)| ToolResult {
            call: call.id,
            name: call.function.name,
            content: vec![ToolResultContent::text(result)],
            is_error: false,
        });
        request.chat_history.extend(reply.message());
        request.chat_history.push(Message::tool_results(results.collect()));
    }
}
