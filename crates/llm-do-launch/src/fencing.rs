//! Which fence is enough, what is never seen behind it, and who declares what about it.

use std::path::PathBuf;

use llm_do::escape::visible;
use llm_do::fence::{Accept, FenceConfig, FenceError};
use llm_do::program::{AgentSpec, AnswerMode};
use llm_do::remedy::Wording;
use llm_do::runs::is_too_wide;
use llm_do::toolsets::{Enclosure, McpConfig, McpServer, ShellConfig, ToolsetSource};
use llm_do::trust::TrustedProject;
use llm_do::{Program, Project};
use serde::Deserialize;

use crate::config::Config;
use crate::error::LaunchError;
use crate::settings::Variables;

/// Which fence the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceChoice {
    Full,
    Thin,
}

/// The shells of an agent, variants included.
pub fn shells(agent: &AgentSpec) -> impl Iterator<Item = (&str, &ShellConfig)> {
    agent.toolsets.iter().filter_map(|used| match used.source.origin() {
        ToolsetSource::Shell(config) => Some((used.name.as_str(), config)),
        _ => None,
    })
}

/// What the flag says, else the variable, else the configuration.
pub fn config(
    flag: Option<FenceChoice>,
    environment: &Variables,
    config: &Config,
    wording: Wording,
) -> Result<FenceConfig, LaunchError> {
    let variable = match environment.get("LLM_DO_FENCE") {
        None => None,
        Some("full") => Some(FenceChoice::Full),
        Some("thin") => Some(FenceChoice::Thin),
        Some(_) => return Err(LaunchError::usage("LLM_DO_FENCE is neither `full` nor `thin`")),
    };
    let accept = match flag.or(variable).or(config.fence.accept).unwrap_or(FenceChoice::Full) {
        FenceChoice::Full => Accept::Full,
        FenceChoice::Thin => Accept::Thin,
    };
    let own = [environment.home(), environment.state_directory(), environment.cache_directory()];
    let hidden = own.into_iter().flatten().collect();
    // Whatever becomes of the file, this program is what is started.
    let keeper = llm_do::process::own_program();
    let home = environment.get("HOME").map(PathBuf::from);
    let temporary = environment.get("TMPDIR").map(PathBuf::from);
    Ok(FenceConfig { accept, keeper, hidden, home, temporary, wording, ..FenceConfig::default() })
}

/// A program of a project that lives as long as a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentProgram {
    /// The toolset that a server is; `None`: Python.
    pub server: Option<String>,
    /// What it may reach; `None`: whatever the user may.
    pub enclosure: Option<Enclosure>,
}

/// Python, if the project has some, and its local servers.
pub fn residents(project: &Project, program: &Program) -> Vec<ResidentProgram> {
    let python = || ResidentProgram { server: None, enclosure: program.python_fence.clone() };
    let server = |config: &McpConfig| match &config.server {
        McpServer::Command { fence, .. } => {
            Some(ResidentProgram { server: Some(config.name.clone()), enclosure: fence.clone() })
        }
        McpServer::Url { .. } => None,
    };
    let servers = project.servers().into_iter().filter_map(server);
    project.needs_python().then(python).into_iter().chain(servers).collect()
}

impl ResidentProgram {
    /// Who it is, and the key that its fence is declared with.
    pub fn words(&self) -> (String, &'static str) {
        match &self.server {
            None => ("Python".to_owned(), "python_fence"),
            Some(name) => (format!("the MCP server `{name}`"), "fence"),
        }
    }
}

/// The names that code answers for, which is kept behind a fence wherever the project is.
fn answered_by_code(program: &Program) -> impl Iterator<Item = &str> {
    let is_code = |agent: &AgentSpec| {
        let mode = agent.stand_in.as_ref().map(|stand_in| stand_in.mode);
        matches!(mode, Some(AnswerMode::Fallback | AnswerMode::Code))
    };
    program.agents.values().filter(move |agent| is_code(agent)).map(|agent| agent.name.as_str())
}

/// Opens what shells and programs behind a fence declare, so that it is the same for all of them until the run ends, and
/// refuses what could not be kept there before any of it starts.
pub fn open_declared(trusted: &TrustedProject, fence: &FenceConfig) -> Result<(), LaunchError> {
    let program = trusted.program();
    let open = |key: &str, declared: &String| {
        let opened = fence.written.open(&program.root, declared);
        opened.map_err(|why| LaunchError::usage(format!("`{key}`: {why}")))
    };
    for (_, shell) in program.agents.values().flat_map(|agent| shells(agent)) {
        shell.write.iter().try_for_each(|declared| open("write", declared).map(drop))?;
    }
    if let Some(name) = answered_by_code(program).next() {
        fence.fence().houses().map_err(|FenceError { why, hint }| {
            LaunchError::refused(format!("the code of `{name}` runs behind a fence only, and is not run: {why}"))
                .hint(hint)
        })?;
    }
    for resident in residents(trusted.project(), program) {
        let Some(enclosure) = &resident.enclosure else { continue };
        let (who, key) = resident.words();
        for declared in enclosure.read.iter().chain(&enclosure.write) {
            if open(key, declared)?.as_deref().is_some_and(is_too_wide) {
                let hint = "name what is meant in it";
                return Err(LaunchError::usage(format!("`{key}`: `{}` is too wide", visible(declared))).hint(hint));
            }
        }
        fence.fence().houses().map_err(|FenceError { why, hint }| {
            LaunchError::refused(format!("{who} is to run behind a fence (`{key}`), and is not started: {why}"))
                .hint(hint)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_counts_before_the_variable_and_that_before_the_configuration() {
        let accepts = |flag, variable: &str, configured| {
            let mut file = Config::default();
            file.fence.accept = configured;
            config(flag, &Variables::of([("LLM_DO_FENCE", variable)]), &file, Wording::default())
                .map(|fence| fence.accept)
                .ok()
        };
        assert_eq!(accepts(None, "", None), Some(Accept::Full));
        assert_eq!(accepts(None, "", Some(FenceChoice::Thin)), Some(Accept::Thin));
        assert_eq!(accepts(None, "full", Some(FenceChoice::Thin)), Some(Accept::Full));
        assert_eq!(accepts(Some(FenceChoice::Thin), "full", None), Some(Accept::Thin));
        assert_eq!(accepts(None, "none", None), None);
    }

    #[test]
    fn what_is_our_own_is_hidden() {
        let fence = config(None, &Variables::of([("HOME", "/h")]), &Config::default(), Wording::default()).unwrap();
        let own = ["/h/.config/llm-do", "/h/.local/state/llm-do", "/h/.cache/llm-do"].map(PathBuf::from);
        assert_eq!(fence.hidden, own);
    }
}
