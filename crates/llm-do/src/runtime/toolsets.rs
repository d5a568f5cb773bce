//! From declared toolsets to live ones.

use std::path::PathBuf;
use std::sync::Arc;

use super::Runtime;
use super::dynamic::DynamicAgents;
use crate::project::{AgentSpec, Program, ToolsetUse, Typing};
use crate::tools::Toolset;
use crate::tools::agent::AgentTool;
use crate::tools::approval::{Rule, Rules};
use crate::tools::filesystem::Filesystem;
use crate::tools::function::OneTool;
use crate::tools::plane::OpenToolset;
use crate::tools::protected::Protected;
use crate::tools::shell::{Part, Shell, Surroundings, fence};
use crate::tools::source::{Registered, ShellConfig, ToolsetSource};
use crate::tools::variant::VariantToolset;

/// The live toolsets of one call, and the names of those that cannot be made yet.
pub struct Opened {
    pub toolsets: Vec<OpenToolset>,
    pub missing: Vec<String>,
    /// What the user should know of them; said once in a session.
    pub notices: Vec<String>,
}

pub fn open(runtime: &Runtime, agent: &Arc<AgentSpec>) -> Result<Opened, String> {
    let mut opened = Opened { toolsets: Vec::new(), missing: Vec::new(), notices: Vec::new() };
    let mut shells: Vec<String> = Vec::new();
    for used in agent.tools.iter().chain(&agent.toolsets) {
        if let Some((tool, _)) = shell_part(used) {
            // All of one name are one tool, where the first of them stands.
            if !shells.contains(&tool) {
                open_shell(runtime, agent, &tool, &mut opened)?;
                shells.push(tool);
            }
            continue;
        }
        match live(runtime, agent, &used.source)? {
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

/// A shell, or a variant of one, and the name of its tool.
fn shell_part(used: &ToolsetUse) -> Option<(String, Part)> {
    let (tool, config, mut rules) = shell_of(&used.source)?;
    rules.extend(used.rules.get(&tool));
    Some((tool, Part { name: used.name.clone(), config: config.clone(), rules }))
}

fn shell_of(source: &ToolsetSource) -> Option<(String, &ShellConfig, Vec<Rule>)> {
    match source {
        ToolsetSource::Shell(config) => Some(("shell".to_owned(), config, Vec::new())),
        ToolsetSource::Variant(variant) => {
            let (tool, config, mut rules) = shell_of(&variant.of)?;
            rules.extend(variant.approval.get(&tool));
            Some((format!("{}{tool}", variant.prefix), config, rules))
        }
        ToolsetSource::Filesystem(_)
        | ToolsetSource::Mcp(_)
        | ToolsetSource::DynamicAgents
        | ToolsetSource::Agent(_)
        | ToolsetSource::Python(_)
        | ToolsetSource::Registered(_)
        | ToolsetSource::Open => None,
    }
}

fn open_shell(runtime: &Runtime, agent: &AgentSpec, tool: &str, opened: &mut Opened) -> Result<(), String> {
    let shells = agent.toolsets.iter().filter_map(shell_part).filter(|(name, _)| name == tool);
    let parts: Vec<Part> = shells.map(|(_, part)| part).collect();
    let directory = std::env::current_dir().map_err(|error| format!("there is no working directory: {error}"))?;
    let fence = runtime.fence.get_or_init(|| fence::offered(runtime.config.fencing)).clone();
    if let Err(reason) = &fence {
        let text = format!("commands run without a fence: {reason}; configured shells ask where they would allow");
        opened.notices.push(text);
    }
    let surroundings = Surroundings {
        directory: &directory,
        project_root: &runtime.program.root,
        fence,
        protected: Protected::new(project_files(&runtime.program)),
    };
    let name = parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(" + ");
    let definition = format!("{:?}", parts.iter().map(|part| &part.config).collect::<Vec<_>>());
    let shell = Shell::open(tool, parts, surroundings)?;
    opened.toolsets.push(OpenToolset { name, definition, toolset: Box::new(shell), rules: Rules::new() });
    Ok(())
}

/// What linking reads.
fn project_files(program: &Program) -> Vec<PathBuf> {
    let agents = program.agents.values().map(|agent| agent.file.clone());
    let others = [PathBuf::from("project.json"), program.generated_agents_dir.clone()];
    agents.chain(others).map(|file| program.root.join(file)).collect()
}

fn live(runtime: &Runtime, agent: &Arc<AgentSpec>, source: &ToolsetSource) -> Result<Option<Box<dyn Toolset>>, String> {
    Ok(match source {
        ToolsetSource::Filesystem(config) => Some(Box::new(Filesystem::open(config, &runtime.program.root)?)),
        ToolsetSource::Agent(name) => {
            let callee = runtime.program.agent(name).map_err(|error| error.to_string())?;
            Some(Box::new(agent_tool(&runtime.program, &callee)))
        }
        ToolsetSource::DynamicAgents => {
            Some(Box::new(DynamicAgents { program: Arc::clone(&runtime.program), creator: Arc::clone(agent) }))
        }
        ToolsetSource::Registered(registered) => registered_toolset(runtime, registered),
        ToolsetSource::Variant(variant) => live(runtime, agent, &variant.of)?
            .map(|of| Box::new(VariantToolset { variant: Arc::clone(variant), of }) as Box<dyn Toolset>),
        // Shells are opened together.
        ToolsetSource::Shell(_) | ToolsetSource::Mcp(_) | ToolsetSource::Python(_) | ToolsetSource::Open => None,
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
pub fn agent_tool(program: &Program, callee: &AgentSpec) -> AgentTool {
    let policy = &program.policy;
    let exception = policy.agent_approval_overrides.get(&callee.name).copied().unwrap_or_default();
    AgentTool {
        name: callee.name.clone(),
        description: callee.description.clone(),
        parameters: match &callee.input {
            Typing::Schema(schema) => Some(schema.clone()),
            Typing::Untyped | Typing::Python(_) => None,
        },
        calls_ask: exception.calls_require_approval.unwrap_or(policy.agent_calls_require_approval),
        attachments_ask: exception.attachments_require_approval.unwrap_or(policy.agent_attachments_require_approval),
        project_root: program.root.clone(),
    }
}
