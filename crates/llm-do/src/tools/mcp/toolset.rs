//! The tools of a server, as one call of an agent uses them.

use std::sync::Arc;

use serde_json::Value;

use super::{McpTool, Server, rounds};
use crate::BoxFuture;
use crate::escape::visible_start;
use crate::json_schema::{self, Direction};
use crate::message::{Content, RawJson};
use crate::tools::approval::{Judgement, PermittedCall, Question, Verdict};
use crate::tools::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};

/// Why a schema cannot be used may repeat all of it.
const LONGEST_REASON: usize = 500;
/// The model has seen it already, so that the beginning helps as much as all of it.
const LONGEST_SHOWN_SCHEMA: usize = 10_000;

/// Tools that a server runs.
pub(crate) struct McpTools {
    pub server: Arc<Server>,
    /// As the agent was told of them.
    pub tools: Vec<McpTool>,
}

impl McpTools {
    fn tool(&self, name: &str) -> Result<&McpTool, String> {
        let found = self.tools.iter().find(|tool| tool.name == name);
        found.ok_or_else(|| format!("the MCP server `{}` has no tool `{name}`", self.server.name))
    }

    /// Nothing that a server says of its tools lets a call pass: a person reads it, as the server's words.
    fn verdict(&self, tool: &McpTool) -> Verdict {
        let hints = match tool.hints.as_slice() {
            [] => String::new(),
            hints => format!("hints: it {}\n", hints.join(", ")),
        };
        let reason = format!("calls `{}` of the MCP server `{}`", tool.original, self.server.name);
        Verdict::Ask(Question::because(reason).quoting(format!("{hints}{}", tool.description)))
    }
}

/// Checks arguments. The schema is judged when the tool is called: a server may have many tools, and most are never
/// called.
async fn check(tool: &McpTool, arguments: &RawJson) -> Result<(), String> {
    let unusable = |error: json_schema::SchemaError| {
        let reason = visible_start(&error.to_string(), LONGEST_REASON).into_owned();
        format!("the schema that its server gives cannot be used: {reason}")
    };
    let schema = json_schema::sized(&tool.parameters, Direction::Input).map_err(unusable)?;
    let value: Value = arguments.to().map_err(|error| error.to_string())?;
    match json_schema::violation(&schema, &value).await {
        None => Ok(()),
        Some(violation) => {
            let schema = visible_start(tool.parameters.get(), LONGEST_SHOWN_SCHEMA);
            Err(format!("{violation}; the schema is {schema}"))
        }
    }
}

impl Toolset for McpTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &McpTool| ToolSpec {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            // What a call in rounds has done stands in their steps: it goes on where it was.
            kind: if tool.in_rounds { ToolKind::Code } else { ToolKind::Leaf },
            order: Order::Concurrent,
            repeat: if tool.in_rounds { Repeat::Repeatable } else { Repeat::Once },
        };
        self.tools.iter().map(spec).collect()
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            let tool = self.tool(tool)?;
            check(tool, arguments).await?;
            Ok(self.verdict(tool).into())
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            let tool = self.tool(call.tool()).map_err(ToolError::Failed)?;
            if tool.in_rounds {
                return rounds::call(&self.server, tool, &call, cx).await;
            }
            self.server.client(cx.events).await?.call(tool, &call, cx).await
        })
    }

    /// Closes nothing, because the server belongs to the run.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
