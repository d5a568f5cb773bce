//! `llm-do serve --mcp`: the agents of a project as tools of MCP, on stdin and stdout or by HTTP. Each call is a run that is kept; its
//! questions are put to the client, or wait here.

mod call;
pub mod form;
mod http;
mod protocol;
mod runs;
mod state;
mod stdio;
mod tools;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use llm_do::process;
use llm_do::rpc::RpcError;
use serde_json::{Value, json};

use super::host::{Host, HostPlan};
use crate::executor::executor;
use crate::failure::Failure;
use call::{CallRules, Calls, McpCaller};
use protocol::{McpEra, no_method};
use runs::CallRuns;

/// A question that nobody answers for so long suspends its run.
const PATIENCE: Duration = Duration::from_mins(5);

/// What was decided about a server.
pub struct McpPlan {
    pub host: HostPlan,
    /// Where it listens; without it, on stdin and stdout.
    pub http: Option<SocketAddr>,
    pub answers_here: bool,
    pub task_after: Duration,
}

pub fn run(plan: McpPlan) -> Result<(), Failure> {
    let McpPlan { host, http, answers_here, task_after } = plan;
    let runs = CallRuns::of(Host::open(host)?, PATIENCE);
    let calls = Arc::new(Calls { runs, rules: CallRules { task_after, answers_here } });
    let executor = executor()?;
    let served = process::with_room(|| {
        executor.block_on(async {
            match http {
                Some(at) => Box::pin(http::serve(calls, at)).await,
                None => stdio::serve(calls).await,
            }
        })
    });
    // It is not waited for, since the thread that reads stdin may wait there for ever.
    executor.shutdown_background();
    served
}

/// What a request is answered, whichever way it came.
async fn answered(calls: &Calls, method: &str, params: &Value, caller: &McpCaller<'_>) -> Result<Value, RpcError> {
    match (caller.client.era, method) {
        (McpEra::Modern, "server/discover") => Ok(protocol::discovered()),
        (era, "tools/list") => calls.tools(era),
        (_, "tools/call") => Box::pin(calls.call(params, caller)).await,
        (McpEra::Modern, "tasks/get") => Box::pin(calls.task_get(params, caller)).await,
        (McpEra::Modern, "tasks/update") => Box::pin(calls.task_update(params, caller)).await,
        (McpEra::Modern, "tasks/cancel") => calls.task_cancel(params, caller),
        (McpEra::WithHandshake, "ping") => Ok(json!({})),
        (_, unknown) => Err(no_method(unknown)),
    }
}
