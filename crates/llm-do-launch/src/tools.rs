//! Who takes part in a run, and with what: agents with the tools they get, and who answers for their models.

use llm_do::program::{AgentSpec, Fallback};
use llm_do::trust::TrustedProgram;
use llm_do::{Models, Program, WorkingDirectory};
use std::sync::Arc;

use crate::config::Config;
use crate::error::LaunchError;
use crate::providers;
use crate::rehearsal::RehearsedRequest;
use crate::settings::Variables;

/// Whether agents get the tools that their files name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOffer {
    Offered,
    Withheld,
}

/// In a rehearsal no question is answered.
pub fn cast(
    program: TrustedProgram,
    tools: ToolOffer,
    environment: &Variables,
    config: &Config,
    directory: &WorkingDirectory,
    rehearsed: Option<&RehearsedRequest>,
) -> Result<(TrustedProgram, Models), LaunchError> {
    let program = program.adapted(|program| match tools {
        ToolOffer::Offered => Ok::<_, LaunchError>(program),
        ToolOffer::Withheld => Ok(without_tools(program)),
    })?;
    match rehearsed {
        None => {
            let models = providers::connect(&program, environment, config, directory)?;
            Ok((program, models))
        }
        Some(rehearsed) => {
            let program = program.adapted(|program| Ok::<_, LaunchError>(without_scripts(program)))?;
            let models = providers::rehearse(&program, environment, config, directory, rehearsed)?;
            Ok((program, models))
        }
    }
}

/// Nobody is asked: whoever sees the run answers for all models.
pub fn unasked(program: TrustedProgram, config: &Config) -> Result<(TrustedProgram, Models), LaunchError> {
    let program = program.adapted(|program| Ok::<_, LaunchError>(with_open_fallback(without_scripts(program))))?;
    let models = providers::unasked(&program, config);
    Ok((program, models))
}

/// Agents that are created have an open model, as those of files that name none.
fn with_open_fallback(mut program: Program) -> Program {
    program.leave_model_open();
    program
}

/// A script would answer by itself: in a rehearsal its agents have a stand-in too, and so have those that are created
/// later.
fn without_scripts(mut program: Program) -> Program {
    let unscripted = |fallbacks: Vec<Fallback>| {
        fallbacks.into_iter().map(|fallback| Fallback { script: None, ..fallback }).collect()
    };
    program.fallbacks = unscripted(program.fallbacks);
    every_agent(program, |agent| AgentSpec { script: None, fallbacks: unscripted(agent.fallbacks.clone()), ..agent })
}

/// `--no-tools`: agents that can only talk.
fn without_tools(program: Program) -> Program {
    every_agent(program, |agent| AgentSpec {
        tools: Vec::new(),
        toolsets: Vec::new(),
        doubtful_rules: Vec::new(),
        server_tools: Vec::new(),
        ..agent
    })
}

fn every_agent(mut program: Program, change: impl Fn(AgentSpec) -> AgentSpec) -> Program {
    for agent in program.agents.values_mut() {
        *agent = Arc::new(change(AgentSpec::clone(agent)));
    }
    program
}

#[cfg(test)]
mod tests {
    use llm_do::{ModelChoices, ModelName, Project};

    use super::*;

    /// A program whose agent has a model of its own, and creates agents that get the user's.
    fn creator(model: &str) -> TrustedProgram {
        let worker = "---\nname: main\nmodel: ollama:a\ntoolsets: [dynamic_agents]\n---\nYou create agents.";
        let models = ModelChoices {
            overrides: [("main".to_owned(), ModelName::parse("ollama:a").unwrap())].into(),
            required: Some(ModelName::parse(model).unwrap()),
            scripts: [("script".to_owned(), "- {say: hi}".to_owned())].into(),
            ..ModelChoices::default()
        };
        Project::new(".").agent("main.worker", worker).link(&models).unwrap()
    }

    #[test]
    fn whoever_answers_for_an_agent_that_is_created_later_takes_part_too() {
        assert!(providers::used(&creator("groq:b")).into_iter().eq(["groq", "ollama"]));
        assert!(providers::used(&creator("scripted:script")).into_iter().eq(["ollama"]), "a script answers by itself");
        let rehearsed =
            creator("scripted:script").adapted(|program| Ok::<_, LaunchError>(without_scripts(program))).unwrap();
        assert!(providers::used(&rehearsed).into_iter().eq(["ollama", "scripted"]), "but not in a rehearsal");
    }
}
