//! `llm-do serve`: which protocol, and what holds for all that its clients begin.

use std::sync::Arc;

use llm_do::WorkingDirectory;
use llm_do_launch::settings::Settings;

use crate::args::{AnswersArg, ConductArgs, ServeArgs};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::serve::acp::{self, AcpPlan};
use crate::serve::mcp::{self, McpPlan};
use crate::serve::{self, HostPlan};
use crate::terminal::trust::{self, Answerers};
use crate::{console, plan};

pub fn run(args: ServeArgs) -> Result<(), Failure> {
    if args.stdio {
        return serve::run();
    }
    let environment = Environment::read();
    let settings = Arc::new(environment.settings()?);
    let (http, task_after) = (args.http, args.task_after);
    let answers_here = args.answers == Some(AnswersArg::Here);
    let is_acp = args.acp;
    let host = planned(args, &environment, &settings)?;
    if is_acp {
        return acp::run(AcpPlan { host, answers_here });
    }
    mcp::run(McpPlan { host, http, answers_here, task_after })
}

/// Everything that can be wrong with the project is said before anything is served.
fn planned(args: ServeArgs, environment: &Environment, settings: &Arc<Settings>) -> Result<HostPlan, Failure> {
    let ServeArgs { project, trust: flag, models, acp: is_acp, .. } = args;
    let conduct = ConductArgs { models, ..ConductArgs::default() };
    let overrides = plan::overrides(&conduct, &WorkingDirectory::of_process(), environment, settings)?;
    let launch = llm_do_launch::launch::Launch {
        project: project.clone(),
        fence: overrides.fence.clone(),
        python: overrides.python.clone(),
        ..plan::launch(overrides.models.clone())
    };
    let surveyed = launch.survey(settings)?;
    let consent = environment.consent()?;
    // An editor shows what a session says: there it is told what the project asks for.
    if is_acp && flag.is_none() {
        return Ok(HostPlan { settings: Arc::clone(settings), project, overrides, consent });
    }
    let answerers = Answerers { flag: trust::typed(flag.as_deref())?, once: consent.clone(), person: false };
    let shown = project.display().to_string();
    let settled = executor()?.block_on(trust::settle(surveyed, &answerers));
    settled.map(drop).map_err(|failure| match failure.code() {
        4 => failure.hint(format!("`llm-do check {} --trust` trusts it as it is now", llm_do::escape::visible(&shown))),
        _ => failure,
    })?;
    // What is said of it was for whoever started this, and is said before the first message.
    console::settle();
    Ok(HostPlan { settings: Arc::clone(settings), project, overrides, consent })
}
