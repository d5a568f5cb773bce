//! From the parameters of `open` to a call that can be opened: what `run` does with its flags, without a terminal.

use std::collections::BTreeMap;
use std::sync::Arc;

use llm_do::event::Hearing;
use llm_do::model::name::ModelName;
use llm_do::project::create::WorkerDefaults;
use llm_do::project::trust::{SurveyedProject, TrustedProject};
use llm_do::project::{AllowWorkers, ApprovalMode, Entry, Fallback, Program};
use llm_do::runtime::{OutsideCaller, Runtime, RuntimeConfig};
use llm_do::syntax::diagnostic::nearest;
use llm_do::tools::approval::Approvals;
use llm_do::tools::rpc::{Connection, Fault};
use tokio::sync::mpsc;

use super::protocol::{CallerParam, ErrorData, Open, ToolRule, Wanted};
use super::questions::{Client, Trouble};
use super::scope::Prepared;
use crate::args::{ConductArgs, ModelArgs, RunArgs};
use crate::config::Config;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::plan::{self, RunPlan};
use crate::state::State;
use crate::trust::{self, Answerers, Standing};
use crate::{casting, fencing, run};

/// A call to be opened, and what its client is told of it.
pub struct Ready {
    pub prepared: Prepared,
    pub agent: String,
    pub model: Option<String>,
    pub run: String,
}

pub async fn prepare(open: Open, scope: u64, client: &Connection, environment: &Environment) -> Result<Ready, Fault> {
    open.limits.check()?;
    let config = Config::load(environment.config_file().as_deref())?;
    let plan = planned(&open, environment, &config)?;
    let surveyed = run::survey(&plan)?;
    let caller = open.caller.as_ref().map(|caller| allowed(caller, &surveyed.linked().program)).transpose()?;
    let trusted = settle_trust(&open, surveyed, environment, &config)?;
    fencing::open_written(trusted.program(), &plan.fence)?;
    let trusted = run::with_python(trusted, &plan).await?;
    let has_servers = !trusted.project().servers().is_empty();
    let creation_defaults = WorkerDefaults::from(open.creation_defaults);
    let program = trusted
        .into_program()
        .adapted(|program| with_creation_defaults(ruled(program, &open.tool_rules), &creation_defaults))?;
    let (program, models) = casting::cast(program, plan.tools, environment, &config, None)?;
    let trouble = Trouble::default();
    let asking = Client {
        scope,
        connection: client.clone(),
        descriptions: descriptions(open.tool_rules),
        trouble: trouble.clone(),
    };
    let runtime_config = RuntimeConfig {
        approvals: match open.approval_mode.map_or(program.policy.approval_mode, ApprovalMode::from) {
            ApprovalMode::ApproveAll => Approvals::ApproveAll,
            ApprovalMode::RejectAll => Approvals::RejectAll,
            ApprovalMode::Prompt => Approvals::prompt(asking),
        },
        limits: open.limits.over(&program.policy.limits),
        creation_defaults,
        ..run::runtime_config(&plan, &program.policy, mpsc::unbounded_channel().0)
    };
    let created = run::created_store(&program, &State::of(environment, &config)?)?;
    let runtime_config = RuntimeConfig { created, ..runtime_config };
    let runtime_config = run::with_surroundings(runtime_config, environment, &config);
    let runtime_config = run::with_servers(runtime_config, has_servers, environment, &config)?;
    let (agent, model) = entry(&program);
    let hearing = match open.events {
        Wanted::All => Hearing::Everything,
        Wanted::Facts | Wanted::None => Hearing::Facts,
    };
    let (runtime, events) = Runtime::heard(program, models, runtime_config, hearing);
    let run = runtime.run_id().to_owned();
    let prepared = Prepared { runtime, events, wanted: open.events, caller, trouble };
    Ok(Ready { prepared, agent, model, run })
}

/// As if it had been typed.
fn planned(open: &Open, environment: &Environment, config: &Config) -> Result<RunPlan, Failure> {
    let of_one = open.models.iter().map(|(agent, model)| format!("{agent}={model}"));
    let args = RunArgs {
        project: open.project.clone(),
        agent: open.agent.clone(),
        conduct: ConductArgs {
            models: ModelArgs { models: of_one.collect() },
            max_depth: open.max_depth,
            headless: true,
            ..ConductArgs::default()
        },
        python: open.python.clone(),
        no_stdin: true,
        ..RunArgs::default()
    };
    let mut plan = plan::run(args, environment, config)?;
    if let Some(model) = &open.model {
        let wrong = |error| Failure::usage(format!("`model`: {error}"));
        // Whoever gives it to every call need not know which agents have one of their own.
        plan.models.environment = Some(ModelName::parse(model).map_err(wrong)?);
    }
    run::read_scripts(&mut plan.models)?;
    Ok(plan)
}

/// An agent elsewhere calls only whom its list names: the one it says it has, else the one in its file.
fn allowed(caller: &CallerParam, program: &Program) -> Result<OutsideCaller, Failure> {
    let CallerParam { agent, depth, allow_workers } = caller;
    let own = program.agents.get(agent).and_then(|agent| agent.allow_workers.clone());
    let is_any = |names: &[String]| names.iter().any(|name| name == "*");
    let list = allow_workers.clone();
    let list = list.map(|names| if is_any(&names) { AllowWorkers::Any } else { AllowWorkers::Only(names) });
    let callee = entry(program).0;
    match list.or(own) {
        Some(AllowWorkers::Only(names)) if !names.contains(&callee) => {
            let words = format!("`{agent}` may not call `{callee}`");
            let has = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
            Err(Failure::refused(words).hint(format!("`allow_workers` says whom it may call: {has}")))
        }
        None | Some(AllowWorkers::Any | AllowWorkers::Only(_)) => {
            Ok(OutsideCaller { agent: agent.clone(), depth: *depth })
        }
    }
}

/// The name and the model of what a call starts with.
fn entry(program: &Program) -> (String, Option<String>) {
    match &program.entry {
        Entry::Agent(agent) => (agent.clone(), program.agents.get(agent).map(|agent| agent.model.to_string())),
        Entry::Function(function) => (function.to_string(), None),
        Entry::Open => (String::new(), None),
    }
}

/// A program agrees for this call alone. Without its word, and unless the user has agreed before, nothing of the project
/// runs.
fn settle_trust(
    open: &Open,
    surveyed: SurveyedProject,
    environment: &Environment,
    config: &Config,
) -> Result<TrustedProject, Fault> {
    let state = State::of(environment, config)?;
    let answerers = Answerers { once: open.trust.consent(environment)?, ..Answerers::default() };
    let Standing { items, digest, is_given } = trust::standing(&surveyed, &answerers, &state)?;
    if is_given {
        return Ok(trust::settle(surveyed, &open.project, &answerers, &state)?);
    }
    let hint = format!("`trust: \"{digest}\"` agrees to exactly this list, `trust: true` to what it is now");
    let failure = trust::untrusted().hint(hint);
    Err(ErrorData { untrusted: items, digest: Some(digest), ..ErrorData::of(&failure) }.fault(&failure))
}

/// Rules of a program for the tools of all agents. A name that no agent has is one of the program's own functions, which
/// the same rules guard.
fn ruled(mut program: Program, rules: &BTreeMap<String, ToolRule>) -> Program {
    for agent in program.agents.values_mut() {
        let agent = Arc::make_mut(agent);
        for used in agent.tools.iter_mut().chain(&mut agent.toolsets) {
            let declared = used.source.declared_tools();
            for (key, rule) in rules {
                let tool = match key.split_once('.') {
                    Some((toolset, tool)) if toolset == used.name => tool,
                    Some(_) => continue,
                    None => key.as_str(),
                };
                if declared.as_ref().is_none_or(|tools| tools.iter().any(|declared| declared.name == tool)) {
                    used.rules.insert(tool.to_owned(), rule.rule());
                }
            }
        }
    }
    program
}

fn descriptions(rules: BTreeMap<String, ToolRule>) -> BTreeMap<String, String> {
    let tool = |key: String| key.rsplit('.').next().map(str::to_owned).unwrap_or(key);
    rules.into_iter().filter_map(|(key, rule)| Some((tool(key), rule.description?))).collect()
}

/// A model that created agents get by default is one that they may use.
fn with_creation_defaults(mut program: Program, defaults: &WorkerDefaults) -> Result<Program, Failure> {
    let Some(model) = &defaults.model else { return Ok(program) };
    let wrong = |reason: String| Failure::usage(format!("`creation_defaults.model`: {reason}"));
    let model = ModelName::parse(model).map_err(|error| wrong(error.to_string()))?;
    if model.provider == "scripted" {
        return Err(wrong("created agents follow no script of their own".to_owned()));
    }
    program.fallback = Some(Fallback { model, script: None });
    Ok(program)
}
