//! From declared toolsets to live ones.

use std::sync::Arc;

use super::Runtime;
use crate::project::{AgentSpec, Program, Typing};
use crate::tools::Toolset;
use crate::tools::agent::AgentTool;
use crate::tools::approval::Rules;
use crate::tools::filesystem::Filesystem;
use crate::tools::function::OneTool;
use crate::tools::plane::OpenToolset;
use crate::tools::source::{Registered, ToolsetSource};
use crate::tools::variant::VariantToolset;

/// The live toolsets of one call, and the names of those that cannot be made yet.
pub struct Opened {
    pub toolsets: Vec<OpenToolset>,
    pub missing: Vec<String>,
}

pub fn open(runtime: &Runtime, agent: &AgentSpec) -> Result<Opened, String> {
    let mut opened = Opened { toolsets: Vec::new(), missing: Vec::new() };
    for used in agent.tools.iter().chain(&agent.toolsets) {
        match live(runtime, &used.source)? {
            Some(toolset) => opened.toolsets.push(OpenToolset {
                name: used.name.clone(),
                definition: format!("{:?}", used.source),
                toolset,
                rules: used.rules.clone(),
            }),
            None => opened.missing.push(used.name.clone()),
        }
    }
    Ok(opened)
}

fn live(runtime: &Runtime, source: &ToolsetSource) -> Result<Option<Box<dyn Toolset>>, String> {
    Ok(match source {
        ToolsetSource::Filesystem(config) => {
            let Program { root, protected, .. } = &runtime.program;
            Some(Box::new(Filesystem::open(config, root, protected)?))
        }
        ToolsetSource::Agent(name) => agent_tool(&runtime.program, name).map(|tool| Box::new(tool) as Box<dyn Toolset>),
        ToolsetSource::Registered(registered) => registered_toolset(runtime, registered),
        ToolsetSource::Variant(variant) => live(runtime, &variant.of)?
            .map(|of| Box::new(VariantToolset { variant: Arc::clone(variant), of }) as Box<dyn Toolset>),
        ToolsetSource::Shell(_)
        | ToolsetSource::Mcp(_)
        | ToolsetSource::DynamicAgents
        | ToolsetSource::Python(_)
        | ToolsetSource::Open => None,
    })
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
        definition: format!("{:?}", ToolsetSource::Registered(Registered::Tool(tool.declared()))),
        toolset: Box::new(OneTool(Arc::clone(tool))),
        rules: Rules::new(),
    });
    exported.collect()
}

/// An agent as its callers see it.
pub fn agent_tool(program: &Program, name: &str) -> Option<AgentTool> {
    let callee = program.agents.get(name)?;
    let policy = &program.policy;
    let exception = policy.agent_approval_overrides.get(name).copied().unwrap_or_default();
    Some(AgentTool {
        name: callee.name.clone(),
        description: callee.description.clone(),
        parameters: match &callee.input {
            Typing::Schema(schema) => Some(schema.clone()),
            Typing::Untyped | Typing::Python(_) => None,
        },
        calls_ask: exception.calls_require_approval.unwrap_or(policy.agent_calls_require_approval),
        attachments_ask: exception.attachments_require_approval.unwrap_or(policy.agent_attachments_require_approval),
        project_root: program.root.clone(),
    })
}
