//! Another agent, seen as a tool. It holds the agent's name and not its toolsets, so agents may call each other in
//! cycles.

use std::path::PathBuf;

use serde_json::Value;

use super::approval::{Judgement, PermittedCall, Question, Verdict};
use super::attachment::{self, AttachmentScope, ChangedAttachment, Reach};
use super::protected::ProtectedFiles;
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
    /// Whether the run's policy asks before calls of this agent.
    pub calls_ask: bool,
    pub attachments_ask: bool,
    /// Attachments are relative to it.
    pub project_root: PathBuf,
    pub protected: ProtectedFiles,
}

/// The input of an agent without a schema.
const UNTYPED: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"what to say to the agent"},"attachments":{"type":"array","items":{"type":"string"},"description":"paths of files in the project"}},"required":["input"],"additionalProperties":false}"#;

impl AgentTool {
    fn premises(&self) -> AttachmentScope<'_> {
        AttachmentScope { root: &self.project_root, protected: &self.protected }
    }

    /// Whether the agent itself says what its attachments are; else its caller may give files beside its input.
    pub(crate) fn has_own_attachments(&self) -> bool {
        let schema = self.parameters.as_ref().and_then(|schema| schema.to::<Value>().ok());
        schema.is_none_or(|schema| schema["properties"].get("attachments").is_some())
    }

    /// Separates an input from the files that are given beside it.
    pub(crate) fn apart(&self, mut input: Value) -> (Value, Vec<Value>) {
        let named = attachment::named_in(&input);
        let any_held = named.iter().any(|file| attachment::held(file).is_some());
        let is_typed_message = self.parameters.is_some() && input.is_array();
        if named.is_empty() || (self.has_own_attachments() && !any_held && !is_typed_message) {
            return (input, Vec::new());
        }
        let files = named.into_iter().cloned().collect();
        match &mut input {
            Value::Array(items) if is_typed_message => {
                let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                input = Value::String(texts.join("\n"));
            }
            Value::Object(fields) => drop(fields.remove("attachments")),
            Value::Array(items) => items.retain(Value::is_string),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        (input, files)
    }

    pub(super) async fn verdict(&self, arguments: &RawJson) -> Result<Verdict, String> {
        let value: Value = arguments.to().map_err(|error| error.to_string())?;
        // Code may also give a text or a list, which the agent itself fits to its schema.
        if let (Some(schema), true) = (&self.parameters, value.is_object()) {
            let schema: Value = schema.to().map_err(|error| error.to_string())?;
            let (value, _) = self.apart(value.clone());
            if let Some(violation) = crate::json_schema::violation(&schema, &value).await {
                return Err(format!("{violation}; the schema is {schema}"));
            }
        }
        if let Some(question) = attachment::question(&value, self.premises(), &self.name) {
            return Ok(Verdict::AskAnyway(question));
        }
        let has_attachments = !attachment::named_in(&value).is_empty();
        let ask = |deed: &str| {
            let question = Question::because(format!("{deed} the agent `{}`", self.name)).quoting(&self.description);
            let bound_to = has_attachments.then(|| attachment::binding(&value, self.premises()));
            Verdict::Ask(Question { bound_to, ..question })
        };
        Ok(match (self.calls_ask, self.attachments_ask && has_attachments) {
            (true, _) => ask("calls"),
            (false, true) => ask("sends files to"),
            (false, false) => Verdict::Allow,
        })
    }
}

/// How far the files that an agent is given reach: those that the approver was asked about are the ones that were
/// shown.
pub(crate) fn reach(input: &RawJson, premises: AttachmentScope<'_>, call: &PermittedCall) -> Result<Reach, ToolError> {
    let value: Value = input.to().map_err(|error| ToolError::Failed(error.to_string()))?;
    attachment::reach(&value, premises, call.bound_to()).map_err(|ChangedAttachment| ToolError::Changed)
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
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move { Ok(self.verdict(arguments).await?.into()) })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            let reach = reach(call.arguments(), self.premises(), &call)?;
            cx.agents.call(&self.name, call.arguments(), reach, cx).await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
