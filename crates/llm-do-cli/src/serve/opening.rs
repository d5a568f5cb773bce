//! From the parameters of `open` to a call that can be opened: what `run` does with its flags, without a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use llm_do::approval::ApprovalMode;
use llm_do::created::WorkerDefaults;
use llm_do::program::{AllowWorkers, Entry, EntryFunction, ToolsetUse};
use llm_do::providers::provider;
use llm_do::python::PythonEndpoint;
use llm_do::rpc::{Connection, RpcError};
use llm_do::runs::OutsideCaller;
use llm_do::{FunctionEntry, Limits, Listen, ModelName, Program, Project, RawJson, Secret, WorkingDirectory, names};
use llm_do_launch::config::{Config, ProviderConfig, ProviderKind};
use llm_do_launch::error::LaunchError;
use llm_do_launch::fencing;
use llm_do_launch::launch::{CacheUse, Launch, ListenPlan, PolicyOverrides, Resumption, SurveyedLaunch, TrustedLaunch};
use llm_do_launch::open_run::OpenRun;
use llm_do_launch::program_terms::{ProgramTerms, ToolRule};
use llm_do_launch::python::PythonPlan;
use llm_do_launch::record::{LaunchOverrides, LaunchRecord};
use llm_do_launch::session::{SessionLength, TurnReport};
use llm_do_launch::settings::Settings;
use llm_do_launch::trust::{Standing, TrustAnswers};

use super::calls::{ClientCaller, ClientCalls};
use super::keeping::{self, PriorScope, ScopeRecording};
use super::offer;
use super::order::EventBarrier;
use super::protocol::{
    CallerParam, ClientOffer, Definition, ErrorData, EventSelection, OfAgent, Open, PolicyReport, RuleReport,
};
use super::questions::{ClientApprover, Trouble};
use super::scope::PreparedScope;
use crate::args::ModelArgs;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::{plan, remedy};

/// A call to be opened, and what its client is told of it.
pub struct Ready {
    pub prepared: PreparedScope,
    pub agent: String,
    pub model: Option<String>,
    pub is_kept: bool,
}

pub async fn prepare(
    mut open: Open,
    scope: u64,
    client: &Connection,
    calls: &Arc<ClientCalls>,
    environment: &Environment,
) -> Result<Ready, RpcError> {
    open.limits.check()?;
    keeping::check(&open)?;
    let given = keeping::given(&open);
    let offered = ClientOffer {
        tools: std::mem::take(&mut open.tools),
        toolsets: std::mem::take(&mut open.toolsets),
        inputs: std::mem::take(&mut open.inputs),
    };
    offer::check(&offered)?;
    let (order, waiting) = EventBarrier::new();
    let caller = ClientCaller { scope, client: client.clone(), calls: Arc::clone(calls), order };

    let mut settings = environment.settings()?;
    add_providers(&mut settings.config, std::mem::take(&mut open.providers), environment)?;
    let settings = Arc::new(settings);
    let continued = keeping::continued(&open, &given, &settings)?;
    let launch = launch(&mut open, given, continued.as_ref(), environment, &settings)?;
    let rules = launch.terms.tool_rules.clone();
    let project = project(&open, &offered, &caller, &launch)?;
    let surveyed = launch.survey_project(project, &settings).map_err(Failure::from)?;
    let outside = open.caller.as_ref().map(|caller| allowed(caller, surveyed.program())).transpose()?;
    let function = open.entry.as_ref().and_then(|entry| offer::entry(entry, &caller));
    let trusted = Box::pin(settle_trust(&open, surveyed, environment)).await?;
    let linked = Box::pin(trusted.link()).await.map_err(Failure::from)?;
    let linked = linked.adapted(|program| Ok::<_, Failure>(entered(program, function)))?;
    let (agent, model) = entry(linked.program());
    let ScopeRecording { record, known, prior } = keeping::recording(&mut open, &linked, continued, &settings)?;
    let ready = linked.ready(record, known).map_err(Failure::from)?;
    let is_kept = matches!(ready.resumption(), Some(Resumption::Run(_)));
    let trouble = Trouble::default();
    let asking = ClientApprover {
        scope,
        connection: client.clone(),
        descriptions: descriptions(rules),
        trouble: trouble.clone(),
        is_kept,
        open: Arc::default(),
    };
    let hearing = match open.events {
        EventSelection::All => Listen::Everything,
        EventSelection::Facts | EventSelection::None => Listen::Facts,
    };
    let listen = ListenPlan {
        hearing: Some(hearing),
        report: TurnReport::Whole,
        caller: outside,
        answering: Some(remedy::answering),
        history: open.message_history,
        length: match &prior {
            Some(PriorScope { only_input: Some(_), .. }) => SessionLength::OneTurn,
            Some(_) | None => SessionLength::Conversation,
        },
        ..ListenPlan::default()
    };
    let prepared = PreparedScope { ready, listen, waiting, wanted: open.events, asking, trouble, prior };
    Ok(Ready { prepared, agent, model, is_kept })
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
        let (kind, api_key_env, api_key_cmd) = (ProviderKind::OpenAiChat, None, None);
        config.providers.insert(name, ProviderConfig { kind, base_url, api_key_env, api_key_cmd, api_key });
    }
    Ok(())
}

/// A project of files, or of values; with what the client offers to it.
fn project(open: &Open, offered: &ClientOffer, caller: &ClientCaller, launch: &Launch) -> Result<Project, Failure> {
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
        let project = Project::load_from(&launch.project, &launch.directory).map_err(LaunchError::Project)?;
        return Ok(offer::offered(project, offered, caller));
    }
    let root = launch.project_path();
    if !root.is_dir() {
        return Err(Failure::usage(format!("the project root `{}` is no directory", root.display())));
    }
    let definitions = offered.toolsets.iter().filter_map(|(name, toolset)| Some((name, toolset.definition()?)));
    let definitions: BTreeMap<&String, &RawJson> = definitions.collect();
    let entry = open.entry.as_ref();
    let mut manifest = serde_json::json!({"version": 1, "entry": {}, "toolsets": definitions});
    if let Some(runtime) = &open.runtime {
        manifest["runtime"] = runtime.to().unwrap_or_default();
    }
    let mut project = Project::of_manifest(root, &manifest.to_string());
    for (index, agent) in open.agents.iter().flatten().enumerate() {
        project = project.agent(&format!("agents[{index}].worker"), agent);
    }
    project = offer::offered(project.read_references(), offered, caller);
    if let Some(entry) = entry.and_then(|entry| offer::entry(entry, caller)) {
        project = project.entry(entry);
    }
    Ok(project)
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
pub fn definition(asked: &OfAgent, environment: &Environment) -> Result<Definition, RpcError> {
    let settings = Arc::new(environment.settings()?);
    let mut models = plan::models(&ModelArgs::default(), environment, &settings.config)?;
    // A model is not needed to read a file.
    models.unasked = Some(ModelName { provider: "ollama".into(), model: "none".into() });
    let launch = Launch { project: asked.project.clone(), entry: asked.agent.clone(), ..plan::launch(models) };
    let surveyed = launch.survey(&settings).map_err(Failure::from)?;
    let program = surveyed.program();
    let (name, _) = entry(program);
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

/// What the client decided; of a run that goes on its record says the rest.
fn launch(
    open: &mut Open,
    given: BTreeSet<String>,
    continued: Option<&OpenRun>,
    environment: &Environment,
    settings: &Settings,
) -> Result<Launch, Failure> {
    let (record, project, directory) = match (continued, &open.project, open.is_of_values()) {
        (Some(OpenRun { header, .. }), _, _) => {
            (header.flags.clone(), header.project.clone(), header.working_directory()?)
        }
        (None, None, false) => return Err(Failure::usage("`open` needs a `project`, or `agents`")),
        (None, project, _) => {
            let project = project.clone().unwrap_or_else(|| PathBuf::from("."));
            (LaunchRecord { agent: open.entered(), ..LaunchRecord::default() }, project, WorkingDirectory::of_process())
        }
    };
    let overrides = overrides(open, given, &directory, environment, settings)?;
    Ok(record.launch(project, directory, overrides)?)
}

/// What the client says counts before a record. What it names is relative to this process, and written here as it is reached
/// from the directory of the run.
fn overrides(
    open: &mut Open,
    given: BTreeSet<String>,
    directory: &WorkingDirectory,
    environment: &Environment,
    settings: &Settings,
) -> Result<LaunchOverrides, Failure> {
    let Settings { variables, config, .. } = settings;
    let mut models = plan::models(&ModelArgs::default(), environment, config)?;
    let named = |parameter: &str, model: &str| {
        let mut model = ModelName::parse(model).map_err(|error| {
            Failure::usage(format!("`{parameter}`: {error}"))
                .hint("write `provider:model`, for example `anthropic:claude-haiku-4-5`")
        })?;
        if open.continues.is_some() {
            plan::import_script(&mut model, directory)?;
        }
        Ok::<_, Failure>(model)
    };
    for (agent, model) in &open.models {
        models.overrides.insert(agent.clone(), named("models", model)?);
    }
    let model = open.model.as_deref().map(|model| named("model", model)).transpose()?;
    let python = open.python.as_ref().map(|python| match open.continues {
        Some(_) => directory.import(python),
        None => Ok(python.clone()),
    });
    let python = python.transpose().map_err(|error| Failure::usage(format!("`python` is not a path: {error}")))?;
    let created = WorkerDefaults::from(std::mem::take(&mut open.creation_defaults));
    Ok(LaunchOverrides {
        models,
        python: PythonPlan::of(python, variables, config),
        policy: PolicyOverrides {
            approval_mode: open.approval_mode.map(ApprovalMode::from),
            is_attended: true,
            max_depth: open.max_depth,
            limits: open.limits.over(&Limits::default()),
            unknown_prices: open.limits.unknown_prices(),
            stream: true,
            cache: CacheUse::Used,
        },
        fence: fencing::config(None, variables, config, remedy::WORDING)?,
        own_files: Vec::new(),
        terms: ProgramTerms {
            model: model.map(|model| model.to_string()),
            tool_rules: std::mem::take(&mut open.tool_rules),
            given,
            ..ProgramTerms::default()
        },
        created: Some(created).filter(|created| *created != WorkerDefaults::default()),
        trace_parent: variables.trace_parent(),
    })
}

/// The agent on whose behalf the client calls may call only those that its list names: the list that the client
/// gives, or else the one in the agent's file.
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
async fn settle_trust(
    open: &Open,
    surveyed: SurveyedLaunch,
    environment: &Environment,
) -> Result<TrustedLaunch, RpcError> {
    if open.is_of_values() {
        return Ok(surveyed.trust_as_own().map_err(Failure::from)?);
    }
    let answers = TrustAnswers { once: open.trust.consent(environment)?, ..TrustAnswers::default() };
    let Standing { items, digest, is_given } = surveyed.standing(&answers).map_err(Failure::from)?;
    if is_given {
        return Ok(surveyed.trust(&answers, |_, _| {}).await.map_err(Failure::from)?);
    }
    let hint = format!("`trust: \"{digest}\"` agrees to exactly this list, `trust: true` to what it is now");
    let failure = Failure::refused("the project is not trusted").hint(hint);
    Err(ErrorData { untrusted: items, digest: Some(digest), ..ErrorData::of(&failure) }.fault(&failure))
}

fn descriptions(rules: BTreeMap<String, ToolRule>) -> BTreeMap<String, String> {
    let tool = |key: String| key.rsplit('.').next().map(str::to_owned).unwrap_or(key);
    rules.into_iter().filter_map(|(key, rule)| Some((tool(key), rule.description?))).collect()
}
