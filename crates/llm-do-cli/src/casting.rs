//! Who takes part in a run, and with what: agents with the tools they get, and who answers for their models.

use std::sync::Arc;

use llm_do::project::trust::TrustedProgram;
use llm_do::project::{AgentSpec, Program};
use llm_do::runtime::Models;

use crate::config::Config;
use crate::dry_run::Rehearsed;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::plan::Tools;
use crate::providers;

/// In a rehearsal nobody answers.
pub fn cast(
    program: TrustedProgram,
    tools: Tools,
    environment: &Environment,
    config: &Config,
    rehearsed: Option<&Rehearsed>,
) -> Result<(TrustedProgram, Models), Failure> {
    let program = program.adapted(|program| match tools {
        Tools::Offered => Ok::<_, Failure>(program),
        Tools::Withheld => Ok(without_tools(program)),
    })?;
    match rehearsed {
        None => {
            let models = providers::connect(&program, environment, config)?;
            Ok((program, models))
        }
        Some(rehearsed) => {
            let program = program.adapted(|program| Ok::<_, Failure>(without_scripts(program)))?;
            let models = providers::rehearse(&program, environment, config, rehearsed)?;
            Ok((program, models))
        }
    }
}

/// A script would answer by itself: in a rehearsal its agents have a stand-in too.
fn without_scripts(program: Program) -> Program {
    every_agent(program, |agent| AgentSpec { script: None, ..agent })
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
