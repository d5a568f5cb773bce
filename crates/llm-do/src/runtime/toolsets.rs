//! From declared toolsets to live ones.

use std::sync::Arc;

use super::dynamic::DynamicAgents;
use super::{Runtime, shells};
use crate::event::Events;
use crate::project::{AgentSpec, Program, ToolsetUse, manifest};
use crate::tools::Toolset;
use crate::tools::agent::AgentTool;
use crate::tools::approval::Rules;
use crate::tools::filesystem::Filesystem;
use crate::tools::function::OneTool;
use crate::tools::plane::{self, OpenToolset};
use crate::tools::python::{self, Opened as Made};
use crate::tools::source::{Exported, PythonToolset, Registered, ToolsetSource, Variant};
use crate::tools::variant::VariantToolset;

/// The live toolsets of one call, and the names of those that cannot be made yet.
pub struct Opened {
    pub toolsets: Vec<OpenToolset>,
    pub missing: Vec<String>,
}

/// Opens every toolset of an agent, or none: if one cannot be opened, those before it are closed again.
pub async fn open(runtime: &Runtime, agent: &Arc<AgentSpec>, events: &Events) -> Result<Opened, String> {
    let toolsets = Vec::with_capacity(agent.tools.len() + agent.toolsets.len());
    let mut opened = Opened { toolsets, missing: Vec::new() };
    let mut shell_tools: Vec<String> = Vec::new();
    for used in agent.tools.iter().chain(&agent.toolsets) {
        let toolset = match shells::tool_of(used) {
            // All of one name are one tool, where the first of them stands.
            Some(tool) if shell_tools.contains(&tool) => continue,
            Some(tool) => {
                let shell = shells::open(runtime, agent, &tool, events).map(Some);
                shell_tools.push(tool);
                shell
            }
            None => open_one(runtime, agent, used, events).await,
        };
        match toolset {
            Ok(Some(toolset)) => opened.toolsets.push(toolset),
            Ok(None) => opened.missing.push(used.name.clone()),
            Err(reason) => {
                Box::pin(plane::close(opened.toolsets, events)).await;
                return Err(reason);
            }
        }
    }
    Ok(opened)
}

async fn open_one(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    used: &ToolsetUse,
    events: &Events,
) -> Result<Option<OpenToolset>, String> {
    let toolset = origin(runtime, agent, used.source.origin(), events).await?;
    Ok(toolset.map(|toolset| OpenToolset {
        name: used.name.clone(),
        definition: Arc::new(used.source.clone()),
        toolset: through_variants(&used.source, toolset),
        rules: used.rules.clone(),
    }))
}

async fn origin(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    source: &ToolsetSource,
    events: &Events,
) -> Result<Option<Box<dyn Toolset>>, String> {
    Ok(match source {
        ToolsetSource::Filesystem(config) => {
            let Program { root, protected, .. } = runtime.program.as_ref();
            Some(Box::new(Filesystem::open(config, root, protected)?))
        }
        ToolsetSource::Agent(name) => {
            let callee = runtime.program.agent(name).map_err(|error| error.to_string())?;
            Some(Box::new(agent_tool(&runtime.program, &callee)))
        }
        ToolsetSource::DynamicAgents => {
            let (program, creator) = (Arc::clone(&runtime.program), Arc::clone(agent));
            Some(Box::new(DynamicAgents { program, creator, defaults: runtime.config.creation_defaults.clone() }))
        }
        ToolsetSource::Registered(registered) => registered_toolset(runtime, registered),
        ToolsetSource::Python(toolset) => Box::pin(python_toolset(runtime, agent, toolset, events)).await?,
        // Those of files are opened together, before this; one of Python's is alone.
        ToolsetSource::Shell(config) => Some(shells::alone(runtime, &agent.name, config, events)?),
        ToolsetSource::Mcp(_) | ToolsetSource::Open | ToolsetSource::Variant(_) => None,
    })
}

/// A tool that is exported alone has no state; a toolset is made for this call, in the interpreter or, if it is one of
/// ours, here.
async fn python_toolset(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    toolset: &PythonToolset,
    events: &Events,
) -> Result<Option<Box<dyn Toolset>>, String> {
    let Some(host) = &runtime.program.registry.python else { return Ok(None) };
    if toolset.exported == Exported::Tool {
        let tool = host.tools.get(&toolset.name).cloned();
        return Ok(tool.map(|tool| Box::new(python::single(Arc::clone(host), tool)) as Box<dyn Toolset>));
    }
    let failed =
        |reason: String| format!("`{}` of {} cannot be opened: {reason}", toolset.name, toolset.file.display());
    let model = agent.model.to_string();
    let opening = python::open(Arc::clone(host), &toolset.name, &agent.name, &model, events.depth());
    let (definition, rules) = match opening.await.map_err(failed)? {
        Made::Tools(tools) => return Ok(Some(Box::new(tools))),
        Made::BuiltIn { definition, rules } => (definition, rules),
    };
    let source = manifest::toolset_definition(definition.get()).map_err(failed)?;
    let live = Box::pin(origin(runtime, agent, &source, events)).await.map_err(failed)?;
    // The rules that its configuration in Python has are a variant of it.
    let variant =
        Variant { name: toolset.name.clone(), of: source, prefix: String::new(), tools: None, approval: rules };
    Ok(live.map(|of| Box::new(VariantToolset { variant: Arc::new(variant), of }) as Box<dyn Toolset>))
}

/// The toolset as the variants over it show it.
fn through_variants(source: &ToolsetSource, toolset: Box<dyn Toolset>) -> Box<dyn Toolset> {
    match source {
        ToolsetSource::Variant(variant) => {
            let of = through_variants(&variant.of, toolset);
            Box::new(VariantToolset { variant: Arc::clone(variant), of })
        }
        ToolsetSource::Filesystem(_)
        | ToolsetSource::Shell(_)
        | ToolsetSource::Mcp(_)
        | ToolsetSource::DynamicAgents
        | ToolsetSource::Agent(_)
        | ToolsetSource::Python(_)
        | ToolsetSource::Registered(_)
        | ToolsetSource::Open => toolset,
    }
}

fn registered_toolset(runtime: &Runtime, registered: &Registered) -> Option<Box<dyn Toolset>> {
    let registry = &runtime.program.registry;
    match registered {
        Registered::Tool(tool) => {
            let tool = registry.tools.get(&tool.name)?;
            Some(Box::new(OneTool(Arc::clone(tool))))
        }
        Registered::Toolset(name) => registry.toolsets.get(name).map(|factory| factory()),
    }
}

/// The single tools of the project, for code that is no agent's.
pub fn exported(program: &Program) -> Vec<OpenToolset> {
    let exported = program.registry.tools.iter().map(|(name, tool)| OpenToolset {
        name: name.clone(),
        definition: Arc::new(ToolsetSource::Registered(Registered::Tool(tool.declared()))),
        toolset: Box::new(OneTool(Arc::clone(tool))),
        rules: Rules::new(),
    });
    let python = program.registry.python.iter().flat_map(|host| host.tools.values().map(move |tool| (host, tool)));
    let python = python.map(|(host, tool)| OpenToolset {
        name: tool.name.clone(),
        definition: Arc::new(format!("Python({})", tool.name)),
        toolset: Box::new(python::single(Arc::clone(host), tool.clone())),
        rules: Rules::new(),
    });
    exported.chain(python).collect()
}

/// An agent as its callers see it.
pub fn agent_tool(program: &Program, callee: &AgentSpec) -> AgentTool {
    let policy = &program.policy;
    let exception = policy.agent_approval_overrides.get(&callee.name).copied().unwrap_or_default();
    AgentTool {
        name: callee.name.clone(),
        description: callee.description.clone(),
        parameters: callee.input.schema().cloned(),
        calls_ask: exception.calls_require_approval.unwrap_or(policy.agent_calls_require_approval),
        attachments_ask: exception.attachments_require_approval.unwrap_or(policy.agent_attachments_require_approval),
        project_root: program.root.clone(),
    }
}
