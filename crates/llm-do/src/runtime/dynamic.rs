//! `dynamic_agents`: an agent creates others and calls agents by name.
//!
//! What it creates is a file, and a call reads it again: so a created agent is the same in this run, in a resumed one and
//! in a later one.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::toolsets::agent_tool;
use crate::BoxFuture;
use crate::message::{Content, RawJson};
use crate::project::create::{Draft, ExistingAgent, WorkerDefaults, WorkerSpec};
use crate::project::{AgentSpec, AllowWorkers, Program};
use crate::syntax::names;
use crate::tools::agent::{AgentTool, reach};
use crate::tools::approval::{Judgement, PermittedCall, Question, Verdict, digest};
use crate::tools::misfit::parse;
use crate::tools::source::{AgentToolNames, ToolsetSource};
use crate::tools::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};

/// The live toolset of one call of one agent.
pub(super) struct DynamicAgents {
    pub program: Arc<Program>,
    /// Whose call it is: what it creates has no more than it.
    pub creator: Arc<AgentSpec>,
    pub names: AgentToolNames,
    pub defaults: WorkerDefaults,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentCreate {
    /// Letters, digits, `_` and `-`
    name: String,
    /// What the agent is told
    instructions: String,
    /// What callers read of it
    description: Option<String>,
    /// `provider:model`, one that the project uses
    model: Option<String>,
    /// Some of your own tools
    #[serde(default)]
    tools: Vec<String>,
    /// Some of your own toolsets
    #[serde(default)]
    toolsets: Vec<String>,
    /// Replace a created agent of the same name
    #[serde(default)]
    force: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentCall {
    /// The agent's name
    agent: String,
    /// What to say to it: a text, or an object if it takes one
    input: Value,
    /// Paths of files in the project
    #[serde(default)]
    attachments: Vec<String>,
}

impl AgentCall {
    fn callee_input(&self) -> RawJson {
        if self.attachments.is_empty() {
            return RawJson::of(&self.input);
        }
        RawJson::of(&match &self.input {
            Value::Object(fields) => {
                let mut fields = fields.clone();
                fields.insert("attachments".to_owned(), json!(self.attachments));
                Value::Object(fields)
            }
            other => json!({"input": other, "attachments": self.attachments}),
        })
    }
}

impl DynamicAgents {
    fn draft(&self, arguments: &RawJson) -> Result<(String, Draft), String> {
        let AgentCreate { name, instructions, description, model, tools, toolsets, force } = parse(arguments)?;
        let existing = if force { ExistingAgent::Replace } else { ExistingAgent::Keep };
        let spec = WorkerSpec { name, instructions, description, model, tools, toolsets, ..WorkerSpec::default() };
        let spec = self.with_defaults(spec);
        let draft = self.program.draft(&spec, &self.creator, existing).map_err(|error| error.to_string())?;
        Ok((spec.name, draft))
    }

    /// What the caller did not ask for is left out where the creator does not have it.
    fn with_defaults(&self, spec: WorkerSpec) -> WorkerSpec {
        let has = |name: &&String| self.creator.toolsets.iter().any(|used| used.name == **name);
        let toolsets = match spec.toolsets.as_slice() {
            [] => self.defaults.toolsets.iter().filter(has).cloned().collect(),
            _ => spec.toolsets,
        };
        let WorkerDefaults { model, allow_workers, .. } = self.defaults.clone();
        WorkerSpec { model: spec.model.or(model), toolsets, allow_workers, ..spec }
    }

    /// An agent that this one's model may call by name.
    fn callee(&self, name: &str) -> Result<AgentTool, String> {
        let is_allowed = match &self.creator.allow_workers {
            Some(AllowWorkers::Any) => true,
            Some(AllowWorkers::Only(names)) => names.iter().any(|allowed| allowed == name),
            None => self.is_own_tool(name) || self.program.is_created(name),
        };
        if !is_allowed {
            return Err(format!("`{}` may not call `{name}`; {}", self.creator.name, self.callable(name)));
        }
        let agent = self.program.agent(name).map_err(|error| format!("{error}; {}", self.callable(name)))?;
        Ok(agent_tool(&self.program, &agent))
    }

    fn is_own_tool(&self, name: &str) -> bool {
        let is_it = |source: &ToolsetSource| matches!(source.origin(), ToolsetSource::Agent(agent) if agent == name);
        self.creator.tools.iter().chain(&self.creator.toolsets).any(|used| is_it(&used.source))
    }

    /// Whom it may call instead of an agent that there is not, or that is not for it.
    fn callable(&self, instead_of: &str) -> String {
        let own = self.program.agents.keys().filter(|name| self.is_own_tool(name));
        let created = self.program.generated.keys().filter(|name| self.program.counts(name));
        let names: BTreeSet<&String> = match &self.creator.allow_workers {
            Some(AllowWorkers::Any) => self.program.agents.keys().chain(created).collect(),
            Some(AllowWorkers::Only(names)) => names.iter().collect(),
            None => own.chain(created).collect(),
        };
        if names.is_empty() {
            return "it may call: agents that it created".to_owned();
        }
        names::instead(instead_of, "agents that it may call", names.into_iter().map(String::as_str))
    }

    fn create(&self, call: &PermittedCall) -> Result<Vec<Content>, ToolError> {
        let (name, draft) = self.draft(call.arguments()).map_err(ToolError::Failed)?;
        if call.bound_to().is_some_and(|shown| shown != state_of(&draft)) {
            return Err(ToolError::Changed);
        }
        self.program.write(&draft).map_err(|error| ToolError::Failed(error.to_string()))?;
        let place = draft.path.display();
        let call = self.names.call();
        Ok(vec![Content::text(format!("created the agent `{name}` in {place}; `{call}` calls it"))])
    }
}

/// A digest of what the file is and would be.
fn state_of(draft: &Draft) -> String {
    match &draft.old {
        Some(old) => digest(["is", old, &draft.text]),
        None => digest(["is not", &draft.text]),
    }
}

fn spec<T: JsonSchema>(name: &str, description: &str, kind: ToolKind) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.trim().to_owned(),
        parameters: RawJson::of(&schemars::SchemaGenerator::default().into_root_schema_for::<T>()),
        kind,
        order: Order::Sequential,
        repeat: Repeat::Once,
    }
}

impl Toolset for DynamicAgents {
    fn specs(&self) -> Vec<ToolSpec> {
        let creating = include_str!("dynamic/create.md").replace("{call}", self.names.call());
        vec![
            spec::<AgentCreate>(self.names.create(), &creating, ToolKind::Leaf),
            spec::<AgentCall>(self.names.call(), include_str!("dynamic/call.md"), ToolKind::Agent),
        ]
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            if tool == self.names.call() {
                let call: AgentCall = parse(arguments)?;
                let callee = self.callee(&call.agent)?;
                return callee.judge(&callee.name, &call.callee_input(), cx).await;
            }
            let (name, draft) = self.draft(arguments)?;
            let verb = if draft.old.is_some() { "replaces" } else { "creates" };
            let question = Question {
                reason: format!("{verb} the agent `{name}` in {}", draft.path.display()),
                bound_to: Some(state_of(&draft)),
                preview: Some(draft.text),
                shows: ["name", "instructions", "description", "model", "tools", "toolsets"].map(str::to_owned).into(),
                edits: Some("instructions".to_owned()),
                ..Question::default()
            };
            Ok(Verdict::AlwaysAsk(question).into())
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            if call.tool() == self.names.create() {
                return self.create(&call);
            }
            let asked: AgentCall = parse(call.arguments()).map_err(ToolError::Failed)?;
            let input = asked.callee_input();
            let reach = reach(&input, self.program.premises(), &call)?;
            cx.agents.call(&asked.agent, &input, reach, cx).await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
