//! From declared toolsets to live ones.

use std::path::PathBuf;
use std::sync::Arc;

use super::Runtime;
use crate::project::{AgentSpec, Program, ToolsetUse, Typing};
use crate::tools::Toolset;
use crate::tools::agent::AgentTool;
use crate::tools::approval::Rules;
use crate::tools::filesystem::Filesystem;
use crate::tools::function::OneTool;
use crate::tools::plane::OpenToolset;
use crate::tools::protected::Protected;
use crate::tools::shell::{Part, Shell, Surroundings};
use crate::tools::source::{Registered, ToolsetSource};

/// The live toolsets of one call, and the names of those that cannot be made yet.
pub struct Opened {
    pub toolsets: Vec<OpenToolset>,
    pub missing: Vec<String>,
    /// What the user should know of them; said once in a session.
    pub notices: Vec<String>,
}

pub fn open(runtime: &Runtime, agent: &AgentSpec) -> Result<Opened, String> {
    let mut opened = Opened { toolsets: Vec::new(), missing: Vec::new(), notices: Vec::new() };
    let mut shells = shells_of(agent).into_iter().peekable();
    let is_shell = |used: &ToolsetUse| matches!(used.source, ToolsetSource::Shell(_));
    for used in agent.tools.iter().chain(&agent.toolsets) {
        if is_shell(used) {
            // All of them are one tool, where the first of them stands.
            if shells.peek().is_some() {
                open_shell(runtime, shells.by_ref().collect(), &mut opened)?;
            }
            continue;
        }
        match live(runtime, used)? {
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

fn shells_of(agent: &AgentSpec) -> Vec<Part> {
    let shell = |used: &ToolsetUse| match &used.source {
        ToolsetSource::Shell(config) => {
            let (name, rule) = (used.name.clone(), used.rules.get("shell").copied());
            Some(Part { name, config: config.clone(), rule })
        }
        _ => None,
    };
    agent.toolsets.iter().filter_map(shell).collect()
}

fn open_shell(runtime: &Runtime, parts: Vec<Part>, opened: &mut Opened) -> Result<(), String> {
    let directory = std::env::current_dir().map_err(|error| format!("there is no working directory: {error}"))?;
    let surroundings = Surroundings {
        directory: &directory,
        project_root: &runtime.program.root,
        fencing: runtime.config.fencing,
        protected: Protected::new(project_files(&runtime.program)),
    };
    let name = parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(" + ");
    let definition = format!("{:?}", parts.iter().map(|part| &part.config).collect::<Vec<_>>());
    let shell = Shell::open(parts, surroundings)?;
    if let Err(reason) = shell.fence() {
        opened
            .notices
            .push(format!("commands run without a fence: {reason}; configured shells ask instead of allowing"));
    }
    opened.toolsets.push(OpenToolset { name, definition, toolset: Box::new(shell), rules: Rules::new() });
    Ok(())
}

/// What linking reads.
fn project_files(program: &Program) -> Vec<PathBuf> {
    let agents = program.agents.values().map(|agent| agent.file.clone());
    let others = [PathBuf::from("project.json"), program.generated_agents_dir.clone()];
    agents.chain(others).map(|file| program.root.join(file)).collect()
}

fn live(runtime: &Runtime, used: &ToolsetUse) -> Result<Option<Box<dyn Toolset>>, String> {
    Ok(match &used.source {
        ToolsetSource::Filesystem(config) => Some(Box::new(Filesystem::open(config, &runtime.program.root)?)),
        ToolsetSource::Agent(name) => agent_tool(runtime, name).map(|tool| Box::new(tool) as Box<dyn Toolset>),
        ToolsetSource::Registered(registered) => registered_toolset(runtime, registered),
        ToolsetSource::Shell(_)
        | ToolsetSource::Mcp(_)
        | ToolsetSource::DynamicAgents
        | ToolsetSource::Python(_)
        | ToolsetSource::Open
        | ToolsetSource::Variant(_) => None,
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

fn agent_tool(runtime: &Runtime, name: &str) -> Option<AgentTool> {
    let callee = runtime.program.agents.get(name)?;
    let policy = &runtime.program.policy;
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
    })
}
