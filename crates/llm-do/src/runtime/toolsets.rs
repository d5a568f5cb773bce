//! From declared toolsets to live ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::dynamic::DynamicAgents;
use super::{Runtime, shells};
use crate::escape::visible;
use crate::event::Events;
use crate::journal::{Steps, Stop};
use crate::message::RawJson;
use crate::project::{AgentSpec, Program, ToolsetUse, manifest};
use crate::syntax::names;
use crate::syntax::table::is_name;
use crate::tools::Ending;
use crate::tools::agent::AgentTool;
use crate::tools::approval::{Rule, RulePlaces, Rules, digest};
use crate::tools::ask_user::AskUserToolset;
use crate::tools::filesystem::{FileBases, Filesystem};
use crate::tools::function::{MadeToolset, OneTool, ToolsetContext};
use crate::tools::map::MapTool;
use crate::tools::mcp::{McpError, McpTools};
use crate::tools::plane::{self, OpenToolset, Precedence};
use crate::tools::python::{self, OpenPythonToolset as Made};
use crate::tools::skill::SkillToolset;
use crate::tools::source::{ExportKind, MapConfig, PythonToolset, RegisteredSource, ToolsetSource, Variant};
use crate::tools::variant::VariantToolset;
use crate::tools::{ToolSpec, Toolset};

/// The live toolsets of one call, and the names of those that cannot be made yet.
pub(super) struct CallToolsets {
    pub toolsets: Vec<OpenToolset>,
    pub missing: Vec<String>,
}

/// Why the toolsets of a call could not be opened.
pub(super) enum ToolsetOpenError {
    Toolset(String),
    /// A rule of the agent rules nothing.
    IdleRule {
        place: String,
        tool: String,
        instead: String,
    },
    /// By the engine that records the run.
    Stopped(Stop),
    /// It ends the run.
    Ended(Ending),
}

impl From<Stop> for ToolsetOpenError {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<McpError> for ToolsetOpenError {
    fn from(error: McpError) -> Self {
        match error {
            McpError::Failed(reason) => Self::Toolset(reason),
            McpError::Login(needed) => Self::Ended(needed.into()),
        }
    }
}

impl From<String> for ToolsetOpenError {
    fn from(reason: String) -> Self {
        Self::Toolset(reason)
    }
}

/// A toolset and its place in the agent's file.
type PlacedToolset = (usize, OpenToolset);

/// Opens every toolset of an agent, or none: if one cannot be opened, those that were are closed again. Servers start
/// while the rest is opened.
pub(super) async fn open(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    steps: &Steps,
    events: &Events,
) -> Result<CallToolsets, ToolsetOpenError> {
    let mut placed = Vec::with_capacity(agent.tools.len() + agent.toolsets.len());
    let mut missing = Vec::new();
    let others = open_others(runtime, agent, events, &mut placed, &mut missing);
    // Boxed: most agents use no server, and every call that waits holds its future.
    let (served, others) = if uses(agent).any(|(_, used)| is_served(used)) {
        Box::pin(async { tokio::join!(open_servers(runtime, agent, steps, events), others) }).await
    } else {
        (Vec::new(), others.await)
    };
    let mut failure = others.err().map(ToolsetOpenError::Toolset);
    for result in served {
        match result {
            Ok(toolset) => placed.push(toolset),
            Err(reason) => drop(failure.get_or_insert(reason)),
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    let toolsets: Vec<OpenToolset> = placed.into_iter().map(|(_, toolset)| toolset).collect();
    if let Some(failure) = failure {
        Box::pin(plane::close(toolsets, events)).await;
        return Err(failure);
    }
    if let Some(rule) = idle_rule(agent, &toolsets) {
        Box::pin(plane::close(toolsets, events)).await;
        return Err(rule);
    }
    Ok(CallToolsets { toolsets, missing })
}

fn uses(agent: &AgentSpec) -> impl Iterator<Item = (usize, &ToolsetUse)> {
    agent.tools.iter().chain(&agent.toolsets).enumerate()
}

/// Where the agent's rules for a toolset stand, if it has any.
fn rule_places(agent: &AgentSpec, used: &ToolsetUse) -> RulePlaces {
    RulePlaces {
        file: (!used.rules.is_empty()).then(|| agent.file.to_string_lossy().into_owned()),
        elsewhere: used.rule_places.clone(),
    }
}

fn is_served(used: &ToolsetUse) -> bool {
    matches!(used.source.origin(), ToolsetSource::Mcp(_))
}

/// All at the same time: none has to wait for another that is slow.
async fn open_servers(
    runtime: &Runtime,
    agent: &AgentSpec,
    steps: &Steps,
    events: &Events,
) -> Vec<Result<PlacedToolset, ToolsetOpenError>> {
    let servers = uses(agent).filter_map(|(place, used)| match used.source.origin() {
        ToolsetSource::Mcp(config) => Some((place, used, config)),
        _ => None,
    });
    let opening = servers.map(|(place, used, config)| async move {
        let steps = steps.at(format_args!("offer.{}", used.name));
        let tools = runtime.servers().offered(config, &steps, events).await?;
        // Who agreed to something agreed to it as it was described then.
        let definition = Arc::new((ToolsetSource::clone(&used.source), digest([RawJson::of(&tools).get()])));
        let toolset = Box::new(McpTools { server: runtime.servers().get(config), tools });
        let toolset = through_variants(&used.source, toolset)?;
        let (name, rules) = (used.name.clone(), used.rules.clone());
        let places = rule_places(agent, used);
        Ok((place, OpenToolset { name, definition, toolset, rules, places, precedence: Precedence::Equal }))
    });
    join_all(opening).await
}

async fn open_others(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    events: &Events,
    placed: &mut Vec<PlacedToolset>,
    missing: &mut Vec<String>,
) -> Result<(), String> {
    let mut shell_tools: Vec<String> = Vec::new();
    for (place, used) in uses(agent) {
        if is_served(used) {
            continue;
        }
        let toolset = match shells::tool_of(used) {
            // All of one name are one tool, where the first of them stands.
            Some(tool) if shell_tools.contains(&tool) => continue,
            Some(tool) => {
                let shell = shells::open(runtime, agent, &tool, events).map(Some);
                shell_tools.push(tool);
                shell
            }
            None => open_one(runtime, agent, used, events).await,
        };
        match toolset? {
            Some(toolset) => placed.push((place, toolset)),
            None => missing.push(used.name.clone()),
        }
    }
    Ok(())
}

/// A rule for a tool that turns out not to exist may be a rule for another one that was misspelled, which would run
/// without it.
fn idle_rule(agent: &AgentSpec, toolsets: &[OpenToolset]) -> Option<ToolsetOpenError> {
    let of = |name: &String| toolsets.iter().find(|open| open.name == *name);
    agent.doubtful_rules.iter().find_map(|rule| {
        // What was not opened may have had it.
        let owners = rule.toolsets.iter().map(of).collect::<Option<Vec<_>>>()?;
        let specs: Vec<ToolSpec> = owners.iter().flat_map(|open| open.toolset.specs()).collect();
        let instead = || names::instead(&rule.tool, "tools", specs.iter().map(|spec| spec.name.as_str()));
        let (place, tool) = (rule.place.clone(), rule.tool.clone());
        let is_there = specs.iter().any(|spec| spec.name == rule.tool);
        (!is_there).then(|| ToolsetOpenError::IdleRule { place, tool, instead: instead() })
    })
}

async fn open_one(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    used: &ToolsetUse,
    events: &Events,
) -> Result<Option<OpenToolset>, String> {
    let Some(LiveToolset { toolset, precedence }) = origin(runtime, agent, used.source.origin(), events).await? else {
        return Ok(None);
    };
    Ok(Some(OpenToolset {
        name: used.name.clone(),
        definition: Arc::<ToolsetSource>::clone(&used.source),
        toolset: through_variants(&used.source, toolset)?,
        rules: used.rules.clone(),
        places: rule_places(agent, used),
        precedence,
    }))
}

/// A toolset without the variants over it.
struct LiveToolset {
    toolset: Box<dyn Toolset>,
    precedence: Precedence,
}

impl<T: Toolset + 'static> From<T> for LiveToolset {
    fn from(toolset: T) -> Self {
        Self { toolset: Box::new(toolset), precedence: Precedence::Equal }
    }
}

impl LiveToolset {
    fn of(toolset: Box<dyn Toolset>) -> Self {
        Self { toolset, precedence: Precedence::Equal }
    }
}

async fn origin(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    source: &ToolsetSource,
    events: &Events,
) -> Result<Option<LiveToolset>, String> {
    Ok(match source {
        ToolsetSource::Filesystem(config) => {
            let Program { root, shown_root, protected, .. } = runtime.program.as_ref();
            let directory = runtime.config.directory.clone();
            let bases = FileBases { project: root, shown_project: shown_root, directory };
            let toolset = Box::new(Filesystem::open(config, &bases, protected)?);
            Some(LiveToolset { toolset, precedence: Precedence::SearchGivesWay })
        }
        ToolsetSource::Agent(name) => {
            let callee = runtime.program.agent(name).map_err(|error| error.to_string())?;
            Some(agent_tool(&runtime.program, &callee).into())
        }
        ToolsetSource::Map(config) => Some(map_tool(&runtime.program, config)?.into()),
        ToolsetSource::DynamicAgents(names) => {
            let (program, creator) = (Arc::clone(&runtime.program), Arc::clone(agent));
            let defaults = runtime.config.creation_defaults.clone();
            Some(DynamicAgents { program, creator, names: *names, defaults }.into())
        }
        ToolsetSource::AskUser => Some(AskUserToolset.into()),
        ToolsetSource::Skills(directories) => {
            let Program { root, protected, .. } = runtime.program.as_ref();
            Some(SkillToolset::new(directories, root, protected).into())
        }
        ToolsetSource::Registered(registered) => {
            Box::pin(registered_toolset(runtime, agent, registered, events)).await?
        }
        ToolsetSource::Python(toolset) => Box::pin(python_toolset(runtime, agent, toolset, events)).await?,
        // Those of files are opened together, before this; one of Python's is alone.
        ToolsetSource::Shell(config) => Some(LiveToolset::of(shells::alone(runtime, &agent.name, config, events)?)),
        // Servers are opened apart from the rest.
        ToolsetSource::Mcp(_) | ToolsetSource::Open | ToolsetSource::Variant(_) => None,
    })
}

/// A tool that is exported alone has no state; a toolset is made for this call, in the interpreter or, if it is one of
/// ours, here.
async fn python_toolset(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    toolset: &PythonToolset,
    events: &Events,
) -> Result<Option<LiveToolset>, String> {
    let Some(host) = &runtime.program.registry.python else { return Ok(None) };
    if toolset.exported == ExportKind::Tool {
        let tool = host.tools.get(&toolset.name).cloned();
        return Ok(tool.map(|tool| python::single(Arc::clone(host), tool).into()));
    }
    let failed =
        |reason: String| format!("`{}` of {} cannot be opened: {reason}", toolset.name, toolset.file.display());
    let opening = ToolsetContext { agent: agent.name.clone(), model: agent.model.to_string(), depth: events.depth() };
    match python::open(Arc::clone(host), toolset.name.clone(), opening).await.map_err(failed)? {
        Made::Tools(tools) => Ok(Some(LiveToolset::of(tools))),
        Made::BuiltIn(built_in) => {
            let rules = built_in.rules();
            defined(runtime, agent, &toolset.name, &built_in.definition, rules, events).await.map_err(failed)
        }
    }
}

/// One of our toolsets that code has configured. The rules of its configuration are a variant of it.
async fn defined(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    name: &str,
    definition: &RawJson,
    rules: BTreeMap<String, Rule>,
    events: &Events,
) -> Result<Option<LiveToolset>, String> {
    let variant = manifest::defined_toolset(name, definition.get(), rules)?;
    let live = Box::pin(origin(runtime, agent, &variant.of, events)).await?;
    Ok(live.map(|LiveToolset { toolset: of, precedence }| LiveToolset {
        toolset: Box::new(VariantToolset { variant: Arc::new(variant), of }),
        precedence,
    }))
}

/// The toolset as the variants over it show it. What they choose and rule is checked by linking where it is known then.
fn through_variants(source: &ToolsetSource, toolset: Box<dyn Toolset>) -> Result<Box<dyn Toolset>, String> {
    match source {
        ToolsetSource::Variant(variant) => {
            let of = through_variants(&variant.of, toolset)?;
            if variant.of.declared_tools().is_none() {
                check_variant(variant, &of.specs())?;
            }
            Ok(Box::new(VariantToolset { variant: Arc::clone(variant), of }))
        }
        ToolsetSource::Filesystem(_)
        | ToolsetSource::Shell(_)
        | ToolsetSource::Mcp(_)
        | ToolsetSource::DynamicAgents(_)
        | ToolsetSource::AskUser
        | ToolsetSource::Skills(_)
        | ToolsetSource::Agent(_)
        | ToolsetSource::Map(_)
        | ToolsetSource::Python(_)
        | ToolsetSource::Registered(_)
        | ToolsetSource::Open => Ok(toolset),
    }
}

fn check_variant(variant: &Variant, specs: &[ToolSpec]) -> Result<(), String> {
    let is_there = |tool: &&String| specs.iter().any(|spec| spec.name == **tool);
    let mut named = variant.tools.iter().flatten().chain(variant.approval.keys());
    if let Some(tool) = named.find(|tool| !is_there(tool)) {
        let instead = names::instead(tool, "tools", specs.iter().map(|spec| spec.name.as_str()));
        return Err(format!("`{}` names a tool that is not there: `{}`; {instead}", variant.name, visible(tool)));
    }
    // Providers take no other names, and would say so only in the middle of a run.
    let is_chosen = |spec: &&ToolSpec| variant.tools.as_ref().is_none_or(|chosen| chosen.contains(&spec.name));
    let mut prefixed = specs.iter().filter(is_chosen).map(|spec| format!("{}{}", variant.prefix, spec.name));
    match prefixed.find(|name| !is_name(name)) {
        Some(long) => Err(format!("the prefix of `{}` makes a name that is none: `{}`", variant.name, visible(&long))),
        None => Ok(()),
    }
}

async fn registered_toolset(
    runtime: &Runtime,
    agent: &Arc<AgentSpec>,
    registered: &RegisteredSource,
    events: &Events,
) -> Result<Option<LiveToolset>, String> {
    let registry = &runtime.program.registry;
    let name = match registered {
        RegisteredSource::Tool(tool) => {
            let tool = registry.tools.get(tool.name.as_ref());
            return Ok(tool.map(|tool| OneTool(Arc::clone(tool)).into()));
        }
        RegisteredSource::Toolset(name) => name,
    };
    let Some(factory) = registry.toolsets.get(name) else { return Ok(None) };
    let failed = |reason: String| format!("`{name}` cannot be opened: {reason}");
    let opening = ToolsetContext { agent: agent.name.clone(), model: agent.model.to_string(), depth: events.depth() };
    match factory(opening).await.map_err(failed)? {
        MadeToolset::Live(toolset) => Ok(Some(LiveToolset::of(toolset))),
        MadeToolset::Defined { definition, rules } => {
            defined(runtime, agent, name, &definition, rules, events).await.map_err(failed)
        }
    }
}

/// The single tools of the project, and its agents over lists, for code that is no agent's.
pub(super) fn exported(program: &Program) -> Vec<OpenToolset> {
    let exported = program.registry.tools.iter().map(|(name, tool)| OpenToolset {
        name: name.clone(),
        definition: Arc::new(ToolsetSource::Registered(RegisteredSource::Tool(tool.declared()))),
        toolset: Box::new(OneTool(Arc::clone(tool))),
        rules: Rules::new(),
        places: RulePlaces::default(),
        precedence: Precedence::Equal,
    });
    let python = program.registry.python.iter().flat_map(|host| host.tools.values().map(move |tool| (host, tool)));
    let python = python.map(|(host, tool)| OpenToolset {
        name: tool.name.clone(),
        definition: Arc::new(format!("Python({})", tool.name)),
        toolset: Box::new(python::single(Arc::clone(host), tool.clone())),
        rules: Rules::new(),
        places: RulePlaces::default(),
        precedence: Precedence::Equal,
    });
    // Whoever names an agent that there is not was told so when it was linked.
    let maps = program.maps.iter().filter_map(|config| {
        let (definition, tool) = (Arc::new(ToolsetSource::Map(Arc::clone(config))), map_tool(program, config).ok()?);
        let (rules, places, precedence) = (Rules::new(), RulePlaces::default(), Precedence::Equal);
        Some(OpenToolset { name: config.name.clone(), definition, toolset: Box::new(tool), rules, places, precedence })
    });
    exported.chain(python).chain(maps).collect()
}

/// An agent over the items of a list.
fn map_tool(program: &Program, config: &Arc<MapConfig>) -> Result<MapTool, String> {
    let callee = program.agent(&config.agent).map_err(|error| error.to_string())?;
    Ok(MapTool { config: Arc::clone(config), agent: agent_tool(program, &callee) })
}

/// An agent as its callers see it.
pub(super) fn agent_tool(program: &Program, callee: &AgentSpec) -> AgentTool {
    let policy = &program.policy;
    let exception = policy.agent_approval_overrides.get(&callee.name).copied().unwrap_or_default();
    // Code asks unless the project says that it does not.
    let stand_in = callee.stand_in.as_ref().filter(|stand_in| stand_in.mode.answers_by_code());
    let code_asks = stand_in.is_some_and(|stand_in| stand_in.approval != Some(Rule::Allow));
    AgentTool {
        name: callee.name.clone(),
        description: callee.description.clone(),
        parameters: callee.input.schema().cloned(),
        calls_ask: code_asks || exception.calls_require_approval.unwrap_or(policy.agent_calls_require_approval),
        attachments_ask: exception.attachments_require_approval.unwrap_or(policy.agent_attachments_require_approval),
        project_root: program.root.clone(),
        protected: program.protected.clone(),
    }
}
