//! `llm-do policy explain`: what becomes of a call, and who says what about it.

use std::path::Path;
use std::sync::Arc;

use llm_do::RawJson;
use llm_do::approval::short_id;
use llm_do::policy::{Explanation, LastingRules, RuledCall};
use llm_do_launch::launch::{Launch, Purpose, Record};
use llm_do_launch::policy::asked_questions;
use llm_do_launch::rehearsal::RehearsedRequest;
use llm_do_launch::rules;
use llm_do_launch::settings::Settings;

use super::shown;
use crate::args::{CheckArgs, PolicyExplainArgs};
use crate::commands::runs::NamedRun;
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::plan::{self, CheckPlan};
use crate::{console, json, terminal::trust};

pub fn run(args: PolicyExplainArgs, environment: &Environment, settings: Settings) -> Result<(), Failure> {
    let as_json = args.json;
    let explanation = match args.subject.split_once('/') {
        Some((run, question)) => of_question(run, question, &settings)?,
        None => of_call(args, environment, &Arc::new(settings))?,
    };
    console::print(&if as_json { json::line(&explanation) } else { shown::explanation(&explanation) })
}

/// By what was recorded when it was asked, under the rules of today.
fn of_question(run: &str, question: &str, settings: &Settings) -> Result<Explanation, Failure> {
    let named = NamedRun::find(run, settings)?;
    let contents = named.contents()?;
    let found = asked_questions(&contents, named.id().as_str(), question);
    let (question, judged) = match found.as_slice() {
        [one] => one,
        [] => {
            let fact = format!("the run `{}` has asked no question `{question}`", named.id());
            return Err(Failure::usage(fact).hint(format!("`llm-do runs show {}` shows what it has done", named.id())));
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|(question, _)| short_id(&question.id)).collect();
            return Err(Failure::usage("several questions begin so").hint(format!("type more: {}", ids.join(", "))));
        }
    };
    let project = Path::new(named.project());
    let in_force = LastingRules::in_force(rules::load(settings)?, project, Some(&rules::today()));
    let (path, arguments, subject) = (&question.path, Some(&question.arguments), judged.about.as_ref());
    let call = RuledCall { tool: &question.tool, path, arguments, subject };
    Ok(Explanation::again(judged, call, &in_force))
}

/// By what the toolset says now. Its project must be trusted: judging may start its code.
fn of_call(
    args: PolicyExplainArgs,
    environment: &Environment,
    settings: &Arc<Settings>,
) -> Result<Explanation, Failure> {
    let arguments: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&args.arguments).map_err(|error| {
            Failure::usage(format!("the arguments are not a JSON object: {error}"))
                .hint("such as '{\"path\": \"a.md\"}'")
        })?;
    let PolicyExplainArgs { subject: tool, agent, project, models, trust, .. } = args;
    let check = CheckArgs { project, models, trust, ..CheckArgs::default() };
    let CheckPlan { launch, trust: answerers, .. } = plan::check(check, environment, settings)?;
    let launch = Launch { purpose: Purpose::FirstRequest(RehearsedRequest::default()), ..launch };
    let surveyed = launch.survey(settings)?;
    executor()?.block_on(async {
        let trusted = trust::settle(surveyed, &answerers).await?;
        let ready = trusted.link().await?.ready(Record::Ephemeral, None)?;
        Ok(ready.explain(agent.as_deref(), &tool, &RawJson::of(&arguments)).await?)
    })
}
