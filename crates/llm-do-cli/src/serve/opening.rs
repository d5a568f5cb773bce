//! From the parameters of `open` to a call that can be opened: what `run` does with its flags, without a terminal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::event::Hearing;
use llm_do::message::RawJson;
use llm_do::model::exchange::Secret;
use llm_do::model::name::ModelName;
use llm_do::model::provider::provider;
use llm_do::project::create::WorkerDefaults;
use llm_do::project::trust::{Agreement, SurveyedProject, TrustedProject};
use llm_do::project::{
    AllowWorkers, ApprovalMode, DoubtfulRule, Entry, EntryFunction, Fallback, Program, Project, ToolsetUse,
};
use llm_do::questions::QuestionBroker;
use llm_do::runtime::{OutsideCaller, Runtime, RuntimeConfig};
use llm_do::syntax::names;
use llm_do::tools::approval::Approvals;
use llm_do::tools::function::FunctionEntry;
use llm_do::tools::python::PythonEndpoint;
use llm_do::tools::rpc::{Connection, Fault};
use llm_do_launch::session::{SessionParts, TurnReport};

use super::calls::{Caller, Calls};
use super::offer;
use super::order::Order;
use super::protocol::{
    CallerParam, Definition, ErrorData, OfAgent, Offered, Open, PolicyReport, RuleReport, ToolRule, Wanted,
};
use super::questions::{Client, Trouble};
use super::scope::Prepared;
use crate::args::{ConductArgs, RunArgs};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::plan::{self, RunPlan};
use crate::trust::{self, Answerers};
use crate::{console, run};
use llm_do_launch::config::{Config, Kind, ProviderConfig};
use llm_do_launch::state::State;
use llm_do_launch::trust::Standing;
use llm_do_launch::{fencing, tools};

/// A call to be opened, and what its client is told of it.
pub struct Ready {
    pub prepared: Prepared,
    pub agent: String,
    pub model: Option<String>,
    pub run: String,
}

pub async fn prepare(
    mut open: Open,
    scope: u64,
    client: &Connection,
    calls: &Arc<Calls>,
    environment: &Environment,
) -> Result<Ready, Fault> {
    open.limits.check()?;
    let offered = Offered {
        tools: std::mem::take(&mut open.tools),
        toolsets: std::mem::take(&mut open.toolsets),
        inputs: std::mem::take(&mut open.inputs),
    };
    offer::check(&offered)?;
    let (order, waiting) = Order::new();
    let caller = Caller { scope, client: client.clone(), calls: Arc::clone(calls), order };

    let mut config = Config::load(environment.config_file().as_deref()).map_err(Failure::from)?;
    add_providers(&mut config, std::mem::take(&mut open.providers), environment)?;
    let plan = planned(&open, environment, &config)?;
    let surveyed = surveyed(&open, &offered, &caller, &plan)?;
    let function = open.entry.as_ref().and_then(|entry| offer::entry(entry, &caller));
    let outside = open.caller.as_ref().map(|caller| allowed(caller, &surveyed.linked().program)).transpose()?;
    let trusted = settle_trust(&open, surveyed, environment, &config)?;
    fencing::open_declared(&trusted, &plan.fence).map_err(Failure::from)?;
    let compiled = State::of(environment, &config, console::notes())
        .map_err(Failure::from)?
        .compiled(trusted.project())
        .map_err(Failure::from)?;
    let trusted = run::with_python(trusted, &plan, compiled).await?;
    let has_servers = !trusted.project().servers().is_empty();
    let creation_defaults = WorkerDefaults::from(open.creation_defaults);
    let program = trusted.into_program().adapted(|program| {
        let program = ruled(entered(program, function), &open.tool_rules)?;
        with_creation_defaults(program, &creation_defaults)
    })?;
    let (program, models) = tools::cast(program, plan.tools, environment, &config, None).map_err(Failure::from)?;
    let (trouble, questions) = (Trouble::default(), QuestionBroker::new());
    let asking = Client {
        scope,
        connection: client.clone(),
        descriptions: descriptions(open.tool_rules),
        trouble: trouble.clone(),
    };
    let runtime_config = RuntimeConfig {
        approvals: match open.approval_mode.map_or(program.policy.approval_mode, ApprovalMode::from) {
            ApprovalMode::ApproveAll => Approvals::approve_all(),
            ApprovalMode::RejectAll => Approvals::reject_all(),
            ApprovalMode::Prompt => Approvals::ask(questions.0.clone()),
        },
        limits: open.limits.over(&program.policy.limits),
        unknown_prices: open.limits.unknown_prices(),
        creation_defaults,
        ..run::runtime_config(&plan, &program.policy, &questions.0)
    };
    let created =
        run::created_store(&program, &State::of(environment, &config, console::notes()).map_err(Failure::from)?)?;
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
    let (report, pace) = (TurnReport::Whole, None);
    let parts = SessionParts { runtime, events, questions, caller: outside, report, pace };
    let prepared = Prepared { parts, waiting, wanted: open.events, asking, trouble };
    Ok(Ready { prepared, agent, model, run })
}

/// Endpoints that the client brings, beside those of the configuration; they speak the Chat Completions of `OpenAI`.
fn add_providers(
    config: &mut Config,
    given: BTreeMap<String, PythonEndpoint>,
    environment: &Environment,
) -> Result<(), Failure> {
    for (name, PythonEndpoint { base_url, api_key }) in given {
        if provider(&name).is_some() || config.providers.contains_key(&name) {
            return Err(Failure::usage(format!("`providers.{name}` is a provider that there is already")));
        }
        let api_key = api_key.map(|key| {
            environment.redactor.learn(key.trim());
            Secret::new(key.trim())
        });
        let (kind, api_key_env, api_key_cmd) = (Kind::OpenAiChat, None, None);
        config.providers.insert(name, ProviderConfig { kind, base_url, api_key_env, api_key_cmd, api_key });
    }
    Ok(())
}

/// A project of files, or of values; with what the client offers to it.
fn surveyed(open: &Open, offered: &Offered, caller: &Caller, plan: &RunPlan) -> Result<SurveyedProject, Failure> {
    if !open.is_of_values() {
        let undefinable = offered.toolsets.iter().find(|(_, toolset)| toolset.definition().is_some());
        if let Some((name, _)) = undefinable {
            return Err(Failure::usage(format!(
                "`toolsets.{name}` is a definition: those of a project are in its manifest"
            )));
        }
        if open.runtime.is_some() {
            return Err(Failure::usage("`runtime` is for `agents`: that of a project is in its manifest"));
        }
        return run::survey_with(plan, |project| offer::offered(project, offered, caller));
    }
    if !plan.project.is_dir() {
        return Err(Failure::usage(format!("the project root `{}` is no directory", plan.project.display())));
    }
    let definitions = offered.toolsets.iter().filter_map(|(name, toolset)| Some((name, toolset.definition()?)));
    let definitions: BTreeMap<&String, &RawJson> = definitions.collect();
    let entry = open.entry.as_ref();
    let mut manifest = serde_json::json!({"version": 1, "entry": {}, "toolsets": definitions});
    if let Some(runtime) = &open.runtime {
        manifest["runtime"] = runtime.to().unwrap_or_default();
    }
    let mut project = Project::of_manifest(&plan.project, &manifest.to_string());
    for (index, agent) in open.agents.iter().flatten().enumerate() {
        project = project.agent(&format!("agents[{index}].worker"), agent);
    }
    project = offer::offered(project.read_references(), offered, caller);
    if let Some(entry) = entry.and_then(|entry| offer::entry(entry, caller)) {
        project = project.entry(entry);
    }
    let mistaken = |report| Failure::Project { report, colour: plan.colour };
    project.surveyed(&plan.models, plan.entry.as_deref()).map_err(mistaken)
}

/// A function of the client is where the run starts, whatever the project's files say.
fn entered(mut program: Program, function: Option<FunctionEntry>) -> Program {
    if let Some(function) = function {
        program.entry = Entry::Function(EntryFunction::Registered(function.name().to_owned()));
        program.registry.entry = Some(Arc::new(function));
    }
    program
}

/// An agent as its file defines it; nothing of the project runs.
pub fn definition(asked: &OfAgent, environment: &Environment) -> Result<Definition, Fault> {
    let config = Config::load(environment.config_file().as_deref()).map_err(Failure::from)?;
    let args =
        RunArgs { project: asked.project.clone(), agent: asked.agent.clone(), no_stdin: true, ..RunArgs::default() };
    let mut plan = plan::run(args, environment, &config)?;
    // A model is not needed to read a file.
    plan.models.unasked = Some(ModelName { provider: "ollama".into(), model: "none".into() });
    let program = run::survey(&plan)?.into_linked().program;
    let (name, _) = entry(&program);
    let agents = || program.agents.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let unknown = || Failure::usage(format!("`{name}` is no agent")).hint(format!("agents: {}", agents()));
    let agent = program.agents.get(&name).ok_or_else(unknown)?;
    let names = |uses: &[ToolsetUse]| uses.iter().map(|used| used.name.clone()).collect();
    let rules = agent.tools.iter().chain(&agent.toolsets).flat_map(|used| used.rules.iter());
    let policy = &agent.attachment_policy;
    Ok(Definition {
        name: agent.name.clone(),
        description: agent.description.clone(),
        instructions: agent.instructions.clone(),
        model: Some(agent.model.to_string()).filter(|model| model != "ollama:none"),
        tools: names(&agent.tools),
        toolsets: names(&agent.toolsets),
        allow_workers: agent.allow_workers.as_ref().map(|allowed| match allowed {
            AllowWorkers::Any => vec!["*".to_owned()],
            AllowWorkers::Only(names) => names.clone(),
        }),
        attachment_policy: PolicyReport {
            max_attachments: policy.max_attachments,
            max_total_bytes: policy.max_total_bytes,
            allowed_suffixes: policy.allowed_suffixes.clone(),
            denied_suffixes: policy.denied_suffixes.clone(),
        },
        tool_rules: rules.map(|(tool, rule)| (tool.clone(), RuleReport::from(*rule))).collect(),
        path: agent.file.clone(),
    })
}

/// As if it had been typed.
fn planned(open: &Open, environment: &Environment, config: &Config) -> Result<RunPlan, Failure> {
    let agent = open.agent.clone().or_else(|| open.entry.as_ref().and_then(|entry| entry.agent.clone()));
    let project = match (&open.project, !open.is_of_values()) {
        (Some(project), _) => project.clone(),
        (None, false) => PathBuf::from("."),
        (None, true) => return Err(Failure::usage("`open` needs a `project`, or `agents`")),
    };
    let args = RunArgs {
        project,
        agent,
        conduct: ConductArgs { max_depth: open.max_depth, headless: true, ..ConductArgs::default() },
        python: open.python.clone(),
        no_stdin: true,
        ..RunArgs::default()
    };
    let mut plan = plan::run(args, environment, config)?;
    let named = |parameter: &str, model: &str| {
        ModelName::parse(model).map_err(|error| {
            Failure::usage(format!("`{parameter}`: {error}"))
                .hint("write `provider:model`, for example `anthropic:claude-haiku-4-5`")
        })
    };
    for (agent, model) in &open.models {
        plan.models.overrides.insert(agent.clone(), named("models", model)?);
    }
    if let Some(model) = &open.model {
        // Whoever gives it to every call need not know which agents have one of their own.
        plan.models.program = Some(named("model", model)?);
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
        Some(AllowWorkers::Only(allowed)) if !allowed.contains(&callee) => {
            let words = format!("`{agent}` may not call `{callee}`");
            let has = names::listed(allowed.iter().map(String::as_str)).unwrap_or_else(|| "nobody".to_owned());
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
    if open.is_of_values() {
        // What a program gives as values is its own.
        return surveyed.trusted(Agreement::Everything).map_err(|_| trust::untrusted().into());
    }
    let state = State::of(environment, config, console::notes()).map_err(Failure::from)?;
    let answerers = Answerers { once: open.trust.consent(environment)?, ..Answerers::default() };
    let Standing { items, digest, is_given } = trust::standing(&surveyed, &answerers, &state)?;
    if is_given {
        return Ok(trust::settle(surveyed, open.project.as_deref().unwrap_or(Path::new(".")), &answerers, &state)?);
    }
    let hint = format!("`trust: \"{digest}\"` agrees to exactly this list, `trust: true` to what it is now");
    let failure = trust::untrusted().hint(hint);
    Err(ErrorData { untrusted: items, digest: Some(digest), ..ErrorData::of(&failure) }.fault(&failure))
}

/// Rules of a program for the tools of all agents. A name that can be no tool is a mistake: a rule that rules nothing
/// would be taken for a protection. Those of a controller are another matter: it guards functions of the program too.
fn ruled(mut program: Program, rules: &BTreeMap<String, ToolRule>) -> Result<Program, Failure> {
    let mut known: Vec<String> = Vec::new();
    let mut unused: Vec<&String> = rules.iter().filter(|(_, rule)| !rule.optional).map(|(name, _)| name).collect();
    // Which toolsets of which agents may have a tool of this name.
    let mut doubtful: BTreeMap<&String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (name, agent) in &mut program.agents {
        let agent = Arc::make_mut(agent);
        for used in agent.tools.iter_mut().chain(&mut agent.toolsets) {
            let declared = used.source.declared_tools();
            for (key, rule) in rules {
                let Some(tool) = tool_of(key, &used.name) else { continue };
                match &declared {
                    Some(tools) if tools.iter().any(|declared| declared.name == tool) => {
                        unused.retain(|name| *name != key);
                    }
                    Some(_) => continue,
                    None => {
                        let agents = doubtful.entry(key).or_default();
                        agents.entry(name.clone()).or_default().push(used.name.clone());
                    }
                }
                used.rules.insert(tool.to_owned(), rule.rule());
            }
            known.extend(declared.iter().flat_map(|tools| tools.iter()).map(|tool| tool.name.to_string()));
        }
    }
    for key in unused {
        match doubtful.remove(key) {
            None => {
                let failure = Failure::usage(format!("`tool_rules` names `{key}`, which is no tool of this project"));
                return Err(failure.hint(names::instead(key, "tools", known.iter().map(String::as_str))));
            }
            Some(agents) => doubt(&mut program, key, agents),
        }
    }
    Ok(program)
}

/// The tool that a key means in a toolset: `tool`, or `toolset.tool`.
fn tool_of<'k>(key: &'k str, toolset: &str) -> Option<&'k str> {
    match key.split_once('.') {
        Some((named, tool)) => (named == toolset).then_some(tool),
        None => Some(key),
    }
}

/// Only when its toolsets are opened can anybody tell whether the tool is there. Of several agents any may have it.
fn doubt(program: &mut Program, key: &str, agents: BTreeMap<String, Vec<String>>) {
    let mut agents = agents.into_iter();
    let (Some((name, toolsets)), None) = (agents.next(), agents.next()) else { return };
    if let Some(agent) = program.agents.get_mut(&name) {
        let tool = key.rsplit('.').next().unwrap_or(key).to_owned();
        let rule = DoubtfulRule { place: "`tool_rules`".to_owned(), tool, toolsets };
        Arc::make_mut(agent).doubtful_rules.push(rule);
    }
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
