//! Another agent, seen as a tool. A leaf: it holds a name, not a tree of toolsets, so cycles are legal.

use super::approval::{PermittedCall, Question, Verdict};
use super::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::message::{Content, RawJson};

/// What a caller knows of an agent.
#[derive(Clone, Debug)]
pub struct AgentTool {
    pub name: String,
    pub description: String,
    /// The JSON Schema of its input; without one it takes text and attachments.
    pub parameters: Option<RawJson>,
    /// The run's policy for calls of this agent.
    pub calls_ask: bool,
    pub attachments_ask: bool,
}

/// The input of an agent without a schema.
const UNTYPED: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"what to say to the agent"},"attachments":{"type":"array","items":{"type":"string"},"description":"paths of files in the project"}},"required":["input"],"additionalProperties":false}"#;

impl Toolset for AgentTool {
    fn specs(&self) -> Vec<ToolSpec> {
        let parameters = self.parameters.clone().unwrap_or_else(|| RawJson::from_valid(UNTYPED.to_owned()));
        vec![ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters,
            kind: ToolKind::Agent,
            order: Order::Concurrent,
            repeat: Repeat::Once,
        }]
    }

    fn judge(&self, _: &str, arguments: &RawJson) -> Result<Verdict, String> {
        let value: serde_json::Value = arguments.to().map_err(|error| error.to_string())?;
        let schema = self.parameters.as_ref().map_or(UNTYPED, |schema| schema.get());
        let schema: serde_json::Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
        if let Some(violation) = crate::json_schema::violation(&schema, &value) {
            return Err(format!("{violation}; the schema is {schema}"));
        }
        let has_attachments = value["attachments"].as_array().is_some_and(|list| !list.is_empty());
        let ask = |deed: &str| {
            Verdict::Ask(Question::because(format!("{deed} the agent `{}`", self.name)).quoting(&self.description))
        };
        Ok(match (self.calls_ask, self.attachments_ask && has_attachments) {
            (true, _) => ask("calls"),
            (false, true) => ask("sends files to"),
            (false, false) => Verdict::Allow,
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move { cx.agents.call(&self.name, call.arguments(), cx).await })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
