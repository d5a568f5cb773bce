//! Another agent, seen as a tool. A leaf: it holds a name, not a tree of toolsets, so cycles are legal.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::approval::{PermittedCall, Question, Verdict};
use super::attachment::{self, Changed, Reach};
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
    /// Attachments are relative to it.
    pub project_root: PathBuf,
}

/// The input of an agent without a schema.
const UNTYPED: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"what to say to the agent"},"attachments":{"type":"array","items":{"type":"string"},"description":"paths of files in the project"}},"required":["input"],"additionalProperties":false}"#;

/// The same as a type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Untyped {
    #[serde(rename = "input")]
    _input: String,
    #[serde(default, rename = "attachments")]
    _attachments: Vec<String>,
}

impl AgentTool {
    /// Whether arguments are plainly what an agent without a schema takes. Nearly all are, and a validator of schemas,
    /// which says what is wrong with the others, costs a hundred times as much as all the rest of a call.
    fn takes(&self, arguments: &RawJson) -> bool {
        self.parameters.is_none() && arguments.to::<Untyped>().is_ok()
    }

    pub(super) async fn verdict(&self, arguments: &RawJson) -> Result<Verdict, String> {
        let value: Value = arguments.to().map_err(|error| error.to_string())?;
        // Code may also give a text or a list, which the agent itself fits to its schema.
        if value.is_object() && !self.takes(arguments) {
            let schema = self.parameters.as_ref().map_or(UNTYPED, |schema| schema.get());
            let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
            if let Some(violation) = crate::json_schema::violation(&schema, &value).await {
                return Err(format!("{violation}; the schema is {schema}"));
            }
        }
        if let Some(question) = attachment::question(&value, &self.project_root, &self.name) {
            return Ok(Verdict::AskAnyway(question));
        }
        let has_attachments = !attachment::named_in(&value).is_empty();
        let ask = |deed: &str| {
            let question = Question::because(format!("{deed} the agent `{}`", self.name)).quoting(&self.description);
            let bound_to = has_attachments.then(|| attachment::binding(&value, &self.project_root));
            Verdict::Ask(Question { bound_to, ..question })
        };
        Ok(match (self.calls_ask, self.attachments_ask && has_attachments) {
            (true, _) => ask("calls"),
            (false, true) => ask("sends files to"),
            (false, false) => Verdict::Allow,
        })
    }
}

/// How far the files that an agent is given reach: those that somebody was asked about are the ones that were shown.
pub fn reach(input: &RawJson, root: &Path, call: &PermittedCall) -> Result<Reach, ToolError> {
    let value: Value = input.to().map_err(|error| ToolError::Failed(error.to_string()))?;
    attachment::reach(&value, root, call.bound_to()).map_err(|Changed| ToolError::Changed)
}

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

    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Verdict, String>> {
        Box::pin(self.verdict(arguments))
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            let reach = reach(call.arguments(), &self.project_root, &call)?;
            cx.agents.call(&self.name, call.arguments(), reach, cx).await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
