//! Which replies of other runs count in this one: whose file says so, and who reaches nothing that must be done anew.

use llm_do::program::AgentSpec;
use llm_do::reach::Graph;
use llm_do::runs::ReplyCaching;
use llm_do::{Program, WorkingDirectory};
use std::fmt::Write as _;
use std::path::Path;

use crate::error::LaunchError;
use crate::launch::CacheUse;
use crate::providers;
use crate::settings::Settings;

/// The agents of a program whose files want their replies to count again; with why those of an agent do not, if they do not.
pub fn wanted(program: &Program) -> Vec<(&AgentSpec, Option<String>)> {
    // Hardly any program has one.
    if !program.agents.values().any(|agent| agent.cached) {
        return Vec::new();
    }
    let graph = Graph::new(program);
    let worst = graph.worst_cases();
    let nodes = graph.nodes.iter().enumerate().filter(|(_, node)| node.agent.cached);
    nodes.map(|(place, node)| (node.agent, graph.why_asked_anew(place, &worst[place]))).collect()
}

/// The replies that count in a run of this program.
pub fn replies(
    settings: &Settings,
    program: &Program,
    cache: CacheUse,
    project: &Path,
    directory: &WorkingDirectory,
) -> Result<Option<ReplyCaching>, LaunchError> {
    let wanted = wanted(program);
    if cache == CacheUse::Unused || wanted.is_empty() {
        return Ok(None);
    }
    let explains = cache == CacheUse::Explained;
    if explains {
        for (agent, why) in &wanted {
            if let Some(why) = why {
                (settings.notes)(&format!("cache: `{}` is always asked: {why}\n", agent.name));
            }
        }
    }
    let agents = wanted.iter().filter(|(_, why)| why.is_none()).map(|(agent, _)| agent.name.clone());
    let agents: Vec<String> = agents.collect();
    let Some(store) = settings.state.replies(settings.config.cache.most())? else { return Ok(None) };
    let mut addresses = String::new();
    for name in providers::used(program) {
        let address = providers::address(name, program, settings, directory)?;
        let _ = writeln!(addresses, "{name} {address}");
    }
    Ok(Some(store.for_agents(agents, project, addresses, explains)))
}
