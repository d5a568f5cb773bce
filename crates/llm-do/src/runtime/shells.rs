//! The shells of an agent → its `shell` tools: all of one name are one tool.

use std::sync::Arc;

use super::Runtime;
use crate::event::{EventKind, Events};
use crate::project::{AgentSpec, ToolsetUse};
use crate::tools::Toolset;
use crate::tools::approval::{Rule, RulePlaces, Rules};
use crate::tools::fence::FenceKind;
use crate::tools::plane::{OpenToolset, Precedence};
use crate::tools::shell::{Shell, ShellPart, Surroundings};
use crate::tools::source::{ShellConfig, ToolsetSource};

/// The name of the tool of a shell, or of a variant of one; `None` for other toolsets.
pub(super) fn tool_of(used: &ToolsetUse) -> Option<String> {
    part(used).map(|(tool, _)| tool)
}

/// Opens all shells of an agent that have this name as one toolset.
pub(super) fn open(runtime: &Runtime, agent: &AgentSpec, tool: &str, events: &Events) -> Result<OpenToolset, String> {
    let shells = agent.toolsets.iter().filter_map(part).filter(|(name, _)| name == tool);
    opened(runtime, tool, shells.map(|(_, part)| part).collect(), events)
}

/// Opens one shell that no file names, such as one that Python configures.
pub(super) fn alone(
    runtime: &Runtime,
    name: &str,
    config: &ShellConfig,
    events: &Events,
) -> Result<Box<dyn Toolset>, String> {
    let part = ShellPart { name: name.to_owned(), config: config.clone(), variants: Vec::new(), worker: None };
    Ok(opened(runtime, "shell", vec![part], events)?.toolset)
}

fn opened(runtime: &Runtime, tool: &str, parts: Vec<ShellPart>, events: &Events) -> Result<OpenToolset, String> {
    let directory =
        runtime.config.directory.path().map_err(|error| format!("there is no working directory: {error}"))?;
    let fence = runtime.config.fence.fence();
    if let FenceKind::None { why: reason } = &fence.kind {
        let text = format!("commands run without a fence: {reason}; configured shells ask where they would allow");
        if runtime.is_news(&text) {
            events.send(|| EventKind::Notice { text });
        }
    }
    let surroundings = Surroundings {
        directory: &directory,
        project_root: &runtime.program.root,
        fence,
        protected: runtime.program.protected.clone(),
        programs: &runtime.program.programs,
        directories: &runtime.config.program_directories,
    };
    let name = parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(" + ");
    for reason in surroundings.left_out(&parts) {
        let text = format!("no programs are looked for in {reason}");
        if runtime.is_news(&text) {
            events.send(|| EventKind::Notice { text });
        }
    }
    let definition = Arc::new(parts.iter().map(|part| part.config.clone()).collect::<Vec<_>>());
    let shell = Shell::open(tool, parts, surroundings)?;
    let (rules, places, precedence) = (Rules::new(), RulePlaces::default(), Precedence::Equal);
    Ok(OpenToolset { name, definition, toolset: Box::new(shell), rules, places, precedence })
}

fn part(used: &ToolsetUse) -> Option<(String, ShellPart)> {
    let (tool, config, variants) = config_of(&used.source)?;
    let worker = used.rules.get(&tool).copied();
    Some((tool, ShellPart { name: used.name.clone(), config: config.clone(), variants, worker }))
}

fn config_of(source: &ToolsetSource) -> Option<(String, &ShellConfig, Vec<Rule>)> {
    match source {
        ToolsetSource::Shell(config) => Some(("shell".to_owned(), config, Vec::new())),
        ToolsetSource::Variant(variant) => {
            let (tool, config, mut rules) = config_of(&variant.of)?;
            rules.extend(variant.approval.get(&tool));
            Some((format!("{}{tool}", variant.prefix), config, rules))
        }
        ToolsetSource::Filesystem(_)
        | ToolsetSource::Mcp(_)
        | ToolsetSource::DynamicAgents(_)
        | ToolsetSource::AskUser
        | ToolsetSource::Skills(_)
        | ToolsetSource::Agent(_)
        | ToolsetSource::Map(_)
        | ToolsetSource::Python(_)
        | ToolsetSource::Registered(_)
        | ToolsetSource::Open => None,
    }
}
