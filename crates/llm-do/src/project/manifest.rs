//! `project.json`: the manifest, read from its tree. Pure: every mistake is collected with its place.

pub(crate) mod shell;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::limit::{LIMITS, Limits};
use super::load::MANIFEST_NAME;
use super::trust::claims;
use crate::escape::visible_start;
use crate::message::RawJson;
use crate::syntax::claim::Bearing::{Covered, Inside, Item, Neutral};
use crate::syntax::claim::Claim;
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Diagnostics, FileId, Located, Severity, Sources, Span};
use crate::syntax::table::Repeats::{Allowed, Refused};
use crate::syntax::table::Shape::{
    AnyOf, AnyText, Bool, Constant, Count, Integer, JsonObject, List, Map, Name, Object, OneOf, Text, Variable,
};
use crate::syntax::table::{Fields, Reading, Shape, Table, is_name, is_variable, not_a_name, optional, required};
use crate::syntax::tree::{self, Node, NodeKind};
use crate::tools::Nesting;
use crate::tools::approval::{ApprovalMode, Rule};
use crate::tools::policy::{LastingRule, read_manifest_rules};
use crate::tools::python::stand_in::{AnswerMode, StandIn};
use crate::tools::source::{
    Access, AgentToolNames, AuthGrant, Base, Enclosure, FileRoot, FilesystemConfig, MapConfig, McpAuth, McpConfig,
    McpServer, Roots, SecretSource, Setting, ShellConfig, ToolsetSource, Variant,
};

/// The manifest as it was written, aliases resolved, names not yet.
#[derive(Clone, Debug)]
pub struct Manifest {
    pub file: FileId,
    pub entry: EntryKeys,
    pub worker_files: Vec<Located<String>>,
    pub python_files: Vec<Located<String>>,
    pub runtime: RuntimeKeys,
    pub allow_cli_input: bool,
    pub generated_agents_dir: Option<Located<String>>,
    /// The agents that other programs may call as tools; without any, the entry.
    pub export: Vec<Located<String>>,
    /// Files with cases, besides those that stand beside worker files.
    pub tests: Vec<Located<String>>,
    pub toolsets: Vec<(Located<String>, ToolsetDefinition)>,
    /// The toolsets as JSON.
    pub definitions: BTreeMap<String, String>,
    pub env: Vec<Located<String>>,
    /// Lasting rules about calls.
    pub rules: Vec<Arc<LastingRule>>,
    /// The agent that writes code in the place of another agent, if it is one of the project.
    pub author: Option<Located<String>>,
    /// What its keys ask of the user who runs the project.
    pub claims: Vec<Located<Claim>>,
    /// Keys that are there but could not be used. That was reported, and what follows from it is no further mistake.
    pub mistaken: Vec<&'static str>,
}

/// The keys of `entry`, as they are written; linking finds out what they name.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryKeys {
    pub span: Span,
    pub agent: Option<Located<String>>,
    pub function: Option<Located<String>>,
    pub input: Option<RawJson>,
    /// Something is wrong with it, and was reported: that it names no entry is no further mistake.
    pub is_mistaken: bool,
}

/// The keys of `runtime`, with the usual values where the manifest has none.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeKeys {
    pub approval_mode: ApprovalMode,
    pub max_depth: u64,
    pub max_call_depth: Option<u64>,
    pub return_permission_errors: bool,
    pub agent_calls_require_approval: bool,
    pub agent_attachments_require_approval: bool,
    pub agent_approval_overrides: Vec<(Located<String>, AgentApprovalOverride)>,
    pub limits: Limits,
    /// `None`: Python runs with the user's rights.
    pub python_fence: Option<Enclosure>,
}

impl Default for RuntimeKeys {
    fn default() -> Self {
        Self {
            approval_mode: ApprovalMode::Prompt,
            max_depth: 5,
            max_call_depth: None,
            return_permission_errors: false,
            agent_calls_require_approval: false,
            agent_attachments_require_approval: false,
            agent_approval_overrides: Vec::new(),
            limits: Limits::default(),
            python_fence: None,
        }
    }
}

/// What `agent_approval_overrides` says of one agent; `None` where the rule for all agents holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentApprovalOverride {
    pub calls_require_approval: Option<bool>,
    pub attachments_require_approval: Option<bool>,
}

/// A named toolset of the manifest; `use` still names another one.
#[derive(Clone, Debug)]
pub enum ToolsetDefinition {
    Filesystem(FilesystemConfig),
    /// With where the patterns of its rules stand.
    Shell(ShellConfig, Vec<Span>),
    Mcp(McpConfig, Vec<Located<String>>),
    DynamicAgents(AgentToolNames),
    /// An agent over the items of a list.
    Map(Located<Arc<MapConfig>>),
    Use {
        target: Located<String>,
        prefix: String,
        tools: Option<Vec<Located<String>>>,
        approval: Vec<(Located<String>, Rule)>,
        timeout: Option<Duration>,
    },
    /// Code in the place of the agent of the same name.
    StandIn(Located<StandIn>),
    /// Its mistakes were reported; it still is a name.
    Broken,
}

const PATHS: Shape = List { of: &Text, least: 0, repeats: Refused };
const ANY_INPUT: Shape =
    AnyOf(&[AnyText, List { of: &AnyOf(&[AnyText, JsonObject]), least: 1, repeats: Allowed }, JsonObject]);
pub(super) const POSITIVE: Shape = Shape::Number { min: 0.0, min_included: false, max: f64::INFINITY };
/// More than thirty years, and still a time that a clock can be asked for.
pub(super) const SECONDS: Shape = Shape::Number { min: 0.0, min_included: false, max: 1e9 };
/// The same, or for ever.
const SECONDS_OR_NONE: Shape = Shape::Number { min: 0.0, min_included: true, max: 1e9 };
const WORDS: Shape = AnyOf(&[Text, List { of: &Text, least: 1, repeats: Allowed }]);
const SUFFIXES: Shape = List { of: &Text, least: 1, repeats: Refused };

/// The keys of `project.json`.
pub(crate) const MANIFEST: Table = Table {
    what: "the manifest",
    keys: &[
        optional("$schema", AnyText, Neutral, "where editors find the schema of this file"),
        required("version", Constant(1), Neutral, "the version of this format"),
        required("entry", Object(&ENTRY), Inside, "where a run starts"),
        optional("worker_files", PATHS, Neutral, "worker files, relative to the manifest").or(&["agent_files"]),
        optional("python_files", PATHS, Item(claims::python_files), "Python files, relative to the manifest"),
        optional("runtime", Object(&RUNTIME), Inside, "policy of a run"),
        optional("allow_cli_input", Bool, Neutral, "whether the command line and stdin may give the input"),
        optional("generated_agents_dir", Text, Neutral, "where agents that are created at run time are kept"),
        optional(
            "rules",
            List { of: &JsonObject, least: 0, repeats: Allowed },
            Item(claims::lasting_rules),
            "lasting rules about calls, for everybody who runs the project",
        ),
        optional("toolsets", Map { of: &Object(&TOOLSET) }, Inside, "named, configured toolsets"),
        optional(
            "export",
            List { of: &Name, least: 1, repeats: Refused },
            Item(claims::export),
            "the agents that other programs may call as tools",
        ),
        optional("harden", Object(&HARDEN), Neutral, "how code is written in the place of an agent"),
        optional("tests", PATHS, Neutral, "further files with cases, relative to the manifest"),
        optional(
            "env",
            List { of: &Variable, least: 0, repeats: Refused },
            Item(claims::env),
            "variables passed on to Python and MCP children",
        ),
    ],
};

const HARDEN: Table = Table {
    what: "`harden`",
    keys: &[optional("author", Name, Neutral, "the agent of the project that writes the code")],
};

const ENTRY: Table = Table {
    what: "`entry`",
    keys: &[
        optional("agent", Name, Neutral, "the agent that a run starts with"),
        optional("function", Text, Neutral, "the Python function that a run starts with, `path.py:function`"),
        optional("input", ANY_INPUT, Neutral, "the input if none is given").or(&["args"]),
    ],
};

/// The deepest nesting of calls that a manifest may allow.
#[allow(clippy::cast_possible_wrap, reason = "a thousand")]
const MOST_CALLS: i64 = Nesting::MOST as i64;

const RUNTIME: Table = Table {
    what: "`runtime`",
    keys: &[
        optional(
            "approval_mode",
            OneOf(ApprovalMode::WORDS),
            Item(claims::approval_mode),
            "who answers the questions of a run",
        ),
        optional("max_depth", Integer { min: 1 }, Neutral, "how deep agents may call each other"),
        optional(
            "max_call_depth",
            Count { max: MOST_CALLS },
            Neutral,
            "how many calls may stand within each other, code included",
        ),
        optional(
            "return_permission_errors",
            Bool,
            Neutral,
            "a refusal becomes a tool result instead of ending the run",
        ),
        optional("agent_calls_require_approval", Bool, Neutral, "calls of agents ask")
            .or(&["worker_calls_require_approval"]),
        optional("agent_attachments_require_approval", Bool, Neutral, "attachments of calls ask")
            .or(&["worker_attachments_require_approval"]),
        optional("agent_approval_overrides", Map { of: &Object(&APPROVAL_OVERRIDE) }, Neutral, "exceptions by agent")
            .or(&["worker_approval_overrides"]),
        optional("limits", Object(&LIMITS), Neutral, "for the whole run"),
        optional("python_fence", Object(&FENCE), Covered, "Python runs behind a fence, or not at all"),
    ],
};

/// The keys of a fence around a program that lives as long as a run.
pub(crate) const FENCE: Table = Table {
    what: "a fence",
    keys: &[
        optional("read", PATHS, Covered, "what it reads besides itself: beneath the project, or absolute"),
        optional("write", PATHS, Covered, "directories that it writes: beneath the project, or absolute"),
        optional("network", Bool, Covered, "whether it may open sockets"),
    ],
};

const APPROVAL_OVERRIDE: Table = Table {
    what: "an approval override",
    keys: &[
        optional("calls_require_approval", Bool, Neutral, "calls of this agent ask"),
        optional("attachments_require_approval", Bool, Neutral, "attachments of calls of this agent ask"),
    ],
};

const TOOLSET: Table = Table {
    what: "a toolset",
    keys: &[
        optional("filesystem", Object(&FILESYSTEM), Inside, "files beneath one or several roots"),
        optional("shell", Object(&shell::SHELL), Inside, "commands"),
        optional("mcp", Object(&MCP), Item(claims::server), "an MCP server"),
        optional("dynamic_agents", Object(&DYNAMIC_AGENTS), Inside, "creates agents, and calls agents by name"),
        optional("map", Object(&MAP), Inside, "an agent over the items of a list, as a tool"),
        optional("use", Text, Covered, "a variant of another toolset"),
        optional("prefix", Name, Covered, "with `use`: put before each tool's name"),
        optional("tools", List { of: &Text, least: 1, repeats: Refused }, Covered, "with `use`: only these tools"),
        optional(
            "approval",
            AnyOf(&[OneOf(&["allow", "ask"]), Map { of: &OneOf(Rule::WORDS) }]),
            Item(claims::toolset_approval),
            "with `use`: rules for its tools; with `python`: whether its calls ask",
        ),
        optional(
            "python",
            Text,
            Item(claims::stand_in),
            "a function, `path.py:function`, that answers in the place of the agent of the same name",
        ),
        optional("mode", OneOf(AnswerMode::WORDS), Covered, "with `python`: who answers, the agent or the code"),
        optional(
            "timeout_seconds",
            SECONDS_OR_NONE,
            Neutral,
            "with `use`: for each call of code or of a server; 0 is for ever",
        ),
    ],
};

const DYNAMIC_AGENTS: Table = Table {
    what: "`dynamic_agents`",
    keys: &[optional("names", OneOf(AgentToolNames::WORDS), Neutral, "how its tools begin")],
};

/// So many items may come together if nothing is said, and so many at once.
const MOST_ITEMS: u64 = 1000;
const ITEMS_AT_ONCE: u64 = 8;

const MAP: Table = Table {
    what: "`map`",
    keys: &[
        required("agent", Name, Neutral, "the agent that is called once for each item"),
        optional("over", Name, Neutral, "a tool of the caller whose result is the list where the caller gives none"),
        optional("max_items", Count { max: 1_000_000 }, Neutral, "a longer list is an error; 1000 if it is not said"),
        optional("parallel", Count { max: 256 }, Neutral, "so many items at once; 8 if it is not said"),
    ],
};

const FILESYSTEM: Table = Table {
    what: "`filesystem`",
    keys: &[
        optional("root", Text, Item(claims::root), "a directory: beneath the project root, or absolute"),
        optional("mode", OneOf(&["ro", "rw"]), Covered, "read only, or read and write"),
        optional("suffixes", SUFFIXES, Covered, "only files with these endings"),
        optional("max_file_bytes", Integer { min: 1 }, Covered, "the largest file"),
        optional("roots", Map { of: &Object(&FILE_ROOT) }, Inside, "several roots by name"),
    ],
};

const FILE_ROOT: Table = Table {
    what: "a root",
    keys: &[
        required("root", Text, Item(claims::root), "a directory: beneath the project root, or absolute"),
        optional("mode", OneOf(&["ro", "rw"]), Covered, "read only, or read and write"),
        optional("suffixes", SUFFIXES, Covered, "only files with these endings"),
        optional("max_file_bytes", Integer { min: 1 }, Covered, "the largest file"),
    ],
};

const SETTINGS: Shape = Map { of: &AnyOf(&[AnyText, Object(&FROM_ENV)]) };

const MCP: Table = Table {
    what: "`mcp`",
    keys: &[
        optional("command", Text, Covered, "the program of a local server"),
        optional("args", List { of: &AnyText, least: 0, repeats: Allowed }, Covered, "its arguments"),
        optional("env", SETTINGS, Covered, "its environment besides the fixed one"),
        optional("url", Text, Covered, "the address of a remote server"),
        optional("headers", SETTINGS, Covered, "sent with each request"),
        optional("auth", AnyOf(&[OneOf(&["oauth"]), Object(&AUTH)]), Covered, "how one logs in to a remote server"),
        optional("timeout_seconds", SECONDS_OR_NONE, Neutral, "for start and each call; 0 is for ever, of calls"),
        optional("task_seconds", SECONDS, Neutral, "for a call that goes on as a task; 3600 if nothing is said"),
        optional("fence", Object(&FENCE), Covered, "a local server runs behind a fence, or not at all"),
    ],
};

const AUTH: Table = Table {
    what: "`auth`",
    keys: &[
        optional(
            "grant",
            OneOf(&["authorization_code", "client_credentials"]),
            Covered,
            "a person logs in, or the program does",
        ),
        optional("client_id", Text, Neutral, "the name of the program at the authorization server"),
        optional("client_secret", Object(&SECRET), Covered, "its secret there"),
        optional("assertion", Object(&SECRET), Covered, "a signed statement (a JWT) in the place of a secret"),
        optional("scopes", List { of: &AnyText, least: 1, repeats: Refused }, Neutral, "what is asked for"),
    ],
};

const SECRET: Table = Table {
    what: "a secret",
    keys: &[
        optional("from_env", Variable, Covered, "the variable that holds it"),
        optional("command", List { of: &AnyText, least: 1, repeats: Allowed }, Covered, "the command that prints it"),
    ],
};

const FROM_ENV: Table =
    Table { what: "a setting", keys: &[required("from_env", Variable, Covered, "the variable that holds the value")] };

/// Reads a manifest. `None` if it is no mapping at all; other mistakes are reported and their keys left out.
pub fn parse(file: FileId, text: &str, problems: &mut Diagnostics) -> Option<Manifest> {
    let (manifest, whole) = read(file, text, problems)?;
    if manifest.worker_files.is_empty() && manifest.python_files.is_empty() && !problems.has_errors() {
        let place = Span { end: whole.start + 1, ..whole };
        problems.push(
            Diagnostic::error(place, "the manifest lists no files")
                .hint("list worker files under `worker_files`, or Python files under `python_files`"),
        );
    }
    Some(manifest)
}

/// A manifest of a project that has no files: its agents are given as values.
pub(crate) fn of_values(file: FileId, text: &str, problems: &mut Diagnostics) -> Option<Manifest> {
    read(file, text, problems).map(|(manifest, _)| manifest)
}

fn read(file: FileId, text: &str, problems: &mut Diagnostics) -> Option<(Manifest, Span)> {
    let node = tree::parse_json(tree::Text::whole(file, text), problems)?;
    MANIFEST.check(&node, Reading::JSON, problems);
    if !matches!(node.kind, NodeKind::Map(_)) {
        return None;
    }
    let fields = MANIFEST.fields(&node);
    let manifest = Manifest {
        file,
        entry: entry(&fields, problems),
        worker_files: fields.texts("worker_files"),
        python_files: fields.texts("python_files"),
        runtime: fields.object("runtime").map(|fields| runtime(&fields)).unwrap_or_default(),
        allow_cli_input: fields.bool("allow_cli_input").unwrap_or(true),
        generated_agents_dir: fields.text("generated_agents_dir"),
        export: fields.texts("export"),
        tests: fields.texts("tests"),
        author: fields.object("harden").and_then(|fields| fields.text("author")),
        toolsets: toolsets(&fields, problems),
        definitions: fields.entries("toolsets").map(|(name, node)| (name.value.clone(), node.to_json())).collect(),
        env: fields.texts("env"),
        rules: fields
            .get("rules")
            .map(|node| read_manifest_rules(node, MANIFEST_NAME, text, problems))
            .unwrap_or_default(),
        claims: MANIFEST.claims(&node),
        mistaken: fields.mistaken(),
    };
    Some((manifest, node.span))
}

fn entry(fields: &Fields<'_>, problems: &mut Diagnostics) -> EntryKeys {
    let Some(entry) = fields.object("entry") else {
        return EntryKeys { span: fields.span, agent: None, function: None, input: None, is_mistaken: true };
    };
    let within = |place: &DiagnosticPlace| matches!(place, DiagnosticPlace::At(span) if entry.span.contains(*span));
    let keys = EntryKeys {
        span: fields.key_span("entry").unwrap_or(entry.span),
        agent: entry.text("agent"),
        function: entry.text("function"),
        input: entry.json("input"),
        is_mistaken: problems.iter().any(|problem| within(&problem.place)),
    };
    if let (Some(agent), Some(function)) = (&keys.agent, &keys.function) {
        problems.push(
            Diagnostic::error(function.span, "`entry` names both an agent and a function")
                .hint("keep one of them")
                .related(agent.span, "the agent"),
        );
    }
    keys
}

fn runtime(fields: &Fields<'_>) -> RuntimeKeys {
    let defaults = RuntimeKeys::default();
    let override_of = |node: &Node| {
        let fields = APPROVAL_OVERRIDE.fields(node);
        AgentApprovalOverride {
            calls_require_approval: fields.bool("calls_require_approval"),
            attachments_require_approval: fields.bool("attachments_require_approval"),
        }
    };
    RuntimeKeys {
        approval_mode: fields
            .text("approval_mode")
            .and_then(|word| ApprovalMode::parse(&word.value))
            .unwrap_or(defaults.approval_mode),
        max_depth: fields.count("max_depth").unwrap_or(defaults.max_depth),
        max_call_depth: fields.count("max_call_depth"),
        return_permission_errors: fields.bool("return_permission_errors").unwrap_or(false),
        agent_calls_require_approval: fields.bool("agent_calls_require_approval").unwrap_or(false),
        agent_attachments_require_approval: fields.bool("agent_attachments_require_approval").unwrap_or(false),
        agent_approval_overrides: fields
            .entries("agent_approval_overrides")
            .map(|(name, node)| (name.clone(), override_of(node)))
            .collect(),
        limits: fields.object("limits").map(|fields| Limits::read(&fields)).unwrap_or_default(),
        python_fence: fields.object("python_fence").map(|fields| enclosure(&fields)),
    }
}

/// Reads the keys of a fence; what is not written is not allowed.
pub(crate) fn enclosure(fields: &Fields<'_>) -> Enclosure {
    let paths = |key| fields.texts(key).into_iter().map(|path| path.value).collect();
    Enclosure { read: paths("read"), write: paths("write"), network: fields.bool("network").unwrap_or(false) }
}

fn toolsets(fields: &Fields<'_>, problems: &mut Diagnostics) -> Vec<(Located<String>, ToolsetDefinition)> {
    let mut toolsets = Vec::new();
    for (name, node) in fields.entries("toolsets") {
        check_name(name, problems);
        toolsets.push((name.clone(), definition(name, node, problems)));
    }
    toolsets
}

/// A toolset that is defined as in a manifest, elsewhere. The rules of its configuration make it a variant.
pub(crate) fn defined_toolset(name: &str, json: &str, rules: BTreeMap<String, Rule>) -> Result<Variant, String> {
    let of = toolset_definition(json)?;
    Ok(Variant { name: name.to_owned(), of, prefix: String::new(), tools: None, approval: rules, timeout: None })
}

fn toolset_definition(json: &str) -> Result<ToolsetSource, String> {
    let mut sources = Sources::default();
    let file = sources.add(PathBuf::from("the definition"), json.to_owned());
    let mut problems = Diagnostics::default();
    let node = tree::parse_json(tree::Text::whole(file, json), &mut problems);
    let name = Located { value: "of Python".to_owned(), span: Span { file, start: 0, end: 0 } };
    let definition = node.map(|node| {
        TOOLSET.check(&node, Reading::JSON, &mut problems);
        definition(&name, &node, &mut problems)
    });
    if let Some(problem) = problems.iter().find(|problem| problem.severity == Severity::Error) {
        return Err(problem.fact.clone());
    }
    match definition {
        Some(ToolsetDefinition::Filesystem(config)) => Ok(ToolsetSource::Filesystem(config)),
        Some(ToolsetDefinition::Shell(config, _)) => Ok(ToolsetSource::Shell(config)),
        Some(
            ToolsetDefinition::Mcp(..)
            | ToolsetDefinition::DynamicAgents(_)
            | ToolsetDefinition::Map(_)
            | ToolsetDefinition::StandIn(_)
            | ToolsetDefinition::Use { .. }
            | ToolsetDefinition::Broken,
        )
        | None => Err("it is neither a filesystem nor a shell".to_owned()),
    }
}

fn definition(name: &Located<String>, node: &Node, problems: &mut Diagnostics) -> ToolsetDefinition {
    if !matches!(node.kind, NodeKind::Map(_)) {
        return ToolsetDefinition::Broken;
    }
    let fields = TOOLSET.fields(node);
    let kinds: Vec<&str> = KINDS.iter().copied().filter(|kind| fields.is_written(kind)).collect();
    let [kind] = kinds.as_slice() else {
        let fact = match kinds.as_slice() {
            [] => format!("toolset `{}` does not say what it is", name.value),
            several => format!("toolset `{}` is several things at once: `{}`", name.value, several.join("`, `")),
        };
        problems.push(Diagnostic::error(name.span, fact).hint(format!("give one of `{}`", KINDS.join("`, `"))));
        return ToolsetDefinition::Broken;
    };
    for key in ["prefix", "tools", "approval", "timeout_seconds"] {
        let belongs = *kind == "use" || (*kind == "python" && key == "approval");
        if let Some(span) = fields.key_span(key).filter(|_| !belongs) {
            problems.push(
                Diagnostic::error(span, format!("`{key}` belongs to a toolset with `use`"))
                    .hint(format!("define another toolset: {{\"use\": \"{}\", \"{key}\": …}}", name.value)),
            );
        }
    }
    if let Some(span) = fields.key_span("mode").filter(|_| *kind != "python") {
        problems.push(Diagnostic::error(span, "`mode` belongs to a toolset with `python`"));
    }
    match *kind {
        "python" => stand_in(&fields, problems),
        "filesystem" => fields.object("filesystem").and_then(|fields| filesystem(&fields, problems)),
        "shell" => fields.object("shell").map(|fields| shell::read(&fields, problems)),
        "mcp" => fields.object("mcp").and_then(|fields| mcp(&name.value, &fields, problems)),
        "dynamic_agents" => fields.object("dynamic_agents").map(|fields| dynamic_agents(&fields)),
        "map" => fields.object("map").and_then(|fields| map(&name.value, &fields)),
        _ => variant(&fields),
    }
    .unwrap_or(ToolsetDefinition::Broken)
}

/// What a toolset of the manifest may be: exactly one of them.
const KINDS: &[&str] = &["filesystem", "shell", "mcp", "dynamic_agents", "map", "use", "python"];

fn stand_in(fields: &Fields<'_>, problems: &mut Diagnostics) -> Option<ToolsetDefinition> {
    if fields.get("approval").is_some_and(|node| matches!(node.kind, NodeKind::Map(_))) {
        let fact = "`approval` of a toolset with `python` is one word";
        let span = fields.key_span("approval").unwrap_or(fields.span);
        problems.push(Diagnostic::error(span, fact).hint("write `allow` or `ask`"));
        return None;
    }
    let python = fields.text("python")?;
    let Some((file, function)) = python
        .value
        .rsplit_once(':')
        .filter(|(file, name)| Path::new(file).extension().is_some_and(|ending| ending == "py") && is_variable(name))
    else {
        let fact = format!("`{}` does not name a function", visible_start(&python.value, 80));
        problems.push(Diagnostic::error(python.span, fact).hint("write `path.py:function`"));
        return None;
    };
    let stand_in = StandIn {
        // Without a word nothing changes for whoever calls the agent.
        mode: fields.text("mode").and_then(|word| AnswerMode::parse(&word.value)).unwrap_or(AnswerMode::Agent),
        file: PathBuf::from(file),
        function: function.to_owned(),
        approval: fields.text("approval").and_then(|word| Rule::parse(&word.value)),
    };
    Some(ToolsetDefinition::StandIn(Located { value: stand_in, span: python.span }))
}

fn dynamic_agents(fields: &Fields<'_>) -> ToolsetDefinition {
    let names = fields.text("names").and_then(|word| AgentToolNames::parse(&word.value));
    ToolsetDefinition::DynamicAgents(names.unwrap_or(AgentToolNames::Agent))
}

fn map(name: &str, fields: &Fields<'_>) -> Option<ToolsetDefinition> {
    let (agent, over) = (fields.text("agent")?, fields.text("over"));
    let config = MapConfig {
        name: name.to_owned(),
        agent: agent.value.clone(),
        over: over.map(|over| over.value),
        max_items: fields.count("max_items").unwrap_or(MOST_ITEMS),
        parallel: fields.count("parallel").unwrap_or(ITEMS_AT_ONCE),
    };
    Some(ToolsetDefinition::Map(Located { value: Arc::new(config), span: agent.span }))
}

fn variant(fields: &Fields<'_>) -> Option<ToolsetDefinition> {
    let rules = fields.entries("approval").filter_map(|(tool, node)| Some((tool.clone(), rule(node)?)));
    Some(ToolsetDefinition::Use {
        target: fields.text("use")?,
        prefix: fields.text("prefix").map(|prefix| prefix.value).unwrap_or_default(),
        tools: fields.get("tools").map(|_| fields.texts("tools")),
        approval: rules.collect(),
        timeout: seconds(fields),
    })
}

/// The rule that a text of a file names; `None` if it is no text or names none.
pub(crate) fn rule(node: &Node) -> Option<Rule> {
    match &node.kind {
        NodeKind::Text(word) => Rule::parse(word),
        _ => None,
    }
}

fn filesystem(fields: &Fields<'_>, problems: &mut Diagnostics) -> Option<ToolsetDefinition> {
    let single: Vec<&str> =
        ["root", "mode", "suffixes", "max_file_bytes"].into_iter().filter(|key| fields.is_written(key)).collect();
    let roots = match (fields.get("roots"), single.as_slice()) {
        (None, _) if fields.is_written("root") => Roots::One(file_root(fields)?),
        (None, _) if fields.is_written("roots") => return None,
        (None, _) => {
            problems.push(Diagnostic::error(fields.span, "`filesystem` has no `root`").hint("give `root`, or `roots`"));
            return None;
        }
        (Some(node), []) => Roots::Named(named_roots(fields, node, problems)),
        (Some(node), [key, ..]) => {
            let fact = format!("`roots` and `{key}` exclude each other");
            problems.push(Diagnostic::error(node.span, fact).hint(format!("put `{key}` into each root")));
            return None;
        }
    };
    Some(ToolsetDefinition::Filesystem(FilesystemConfig { roots }))
}

fn named_roots(fields: &Fields<'_>, node: &Node, problems: &mut Diagnostics) -> BTreeMap<String, FileRoot> {
    if matches!(&node.kind, NodeKind::Map(entries) if entries.is_empty()) {
        problems.push(Diagnostic::error(node.span, "`roots` is empty").hint("name at least one root"));
    }
    let mut roots = BTreeMap::new();
    for (name, node) in fields.entries("roots") {
        // A path starts with the name, so the name must be one part of a path.
        check_name(name, problems);
        roots.extend(file_root(&FILE_ROOT.fields(node)).map(|root| (name.value.clone(), root)));
    }
    roots
}

fn check_name(name: &Located<String>, problems: &mut Diagnostics) {
    if !is_name(&name.value) {
        problems.push(not_a_name(&name.value, name.span));
    }
}

fn file_root(fields: &Fields<'_>) -> Option<FileRoot> {
    let root = PathBuf::from(fields.text("root")?.value);
    Some(FileRoot {
        base: if root.is_absolute() { Base::Absolute(root) } else { Base::Project(root) },
        access: match fields.text("mode").as_ref().map(|mode| mode.value.as_str()) {
            Some("rw") => Access::ReadWrite,
            _ => Access::ReadOnly,
        },
        suffixes: fields.texts("suffixes").into_iter().map(|suffix| suffix.value.to_lowercase()).collect(),
        max_file_bytes: fields.count("max_file_bytes"),
    })
}

fn seconds(fields: &Fields<'_>) -> Option<Duration> {
    fields.number("timeout_seconds").map(Duration::from_secs_f64)
}

fn mcp(name: &str, fields: &Fields<'_>, problems: &mut Diagnostics) -> Option<ToolsetDefinition> {
    let (command, url) = (fields.text("command"), fields.text("url"));
    let mut from_env = Vec::new();
    let mut settings = |key| -> BTreeMap<String, Setting> {
        let entries =
            fields.entries(key).filter_map(|(name, node)| Some((name.value.clone(), setting(node, &mut from_env)?)));
        entries.collect()
    };
    let (env, headers) = (settings("env"), settings("headers"));
    let auth = auth(fields, &mut from_env, problems);
    for (name, _) in fields.entries("env").filter(|(name, _)| !is_variable(&name.value)) {
        let fact = format!("`{}` is not the name of an environment variable", visible_start(&name.value, 80));
        problems.push(Diagnostic::error(name.span, fact));
    }
    let foreign = |keys: [&'static str; 3]| keys.into_iter().find_map(|key| Some((key, fields.key_span(key)?)));
    let own = headers.keys().find(|name| name.eq_ignore_ascii_case("authorization"));
    if let (Some(_), Some(_), Some(span)) = (own, &auth, fields.key_span("auth")) {
        let fact = "`auth` stands beside a header `authorization`";
        problems.push(Diagnostic::error(span, fact).hint("keep one of them"));
    }
    let (server, misplaced, owner) = match (command, url) {
        (Some(command), None) => {
            let args = fields.texts("args").into_iter().map(|arg| arg.value).collect();
            let fence = fields.object("fence").map(|fields| enclosure(&fields));
            (
                McpServer::Command { command: command.value, args, env, fence },
                foreign(["headers", "auth", "auth"]),
                "url",
            )
        }
        (None, Some(url)) => {
            (McpServer::Url { url: url.value, headers, auth }, foreign(["args", "env", "fence"]), "command")
        }
        (Some(_), Some(url)) => {
            problems.push(Diagnostic::error(url.span, "`mcp` has both `command` and `url`").hint("keep one of them"));
            return None;
        }
        (None, None) if fields.is_written("command") || fields.is_written("url") => return None,
        (None, None) => {
            let hint = "give `command` for a local server, or `url` for a remote one";
            problems.push(Diagnostic::error(fields.span, "`mcp` has neither `command` nor `url`").hint(hint));
            return None;
        }
    };
    if let Some((key, span)) = misplaced {
        problems.push(Diagnostic::error(span, format!("`{key}` belongs to a server with `{owner}`")));
    }
    let timeout = seconds(fields);
    let task_time = fields.number("task_seconds").map(Duration::from_secs_f64);
    let config = McpConfig { name: name.to_owned(), server, timeout, task_time, tools: None };
    Some(ToolsetDefinition::Mcp(config, from_env))
}

fn auth(fields: &Fields<'_>, from_env: &mut Vec<Located<String>>, problems: &mut Diagnostics) -> Option<McpAuth> {
    let Some(within) = fields.object("auth") else {
        return fields.text("auth").map(|_| McpAuth::default());
    };
    let mut secret = |key| -> Option<SecretSource> {
        let place = within.object(key)?;
        let command: Vec<String> = place.texts("command").into_iter().map(|word| word.value).collect();
        match (place.text("from_env"), command.is_empty()) {
            (Some(variable), true) => {
                from_env.push(variable.clone());
                Some(SecretSource::FromEnv(variable.value))
            }
            (None, false) => Some(SecretSource::Command(command)),
            (Some(_), false) | (None, true) => {
                let fact = format!("`{key}` is either from the environment or from a command");
                problems.push(Diagnostic::error(place.span, fact).hint("give `from_env`, or `command`"));
                None
            }
        }
    };
    let (client_secret, assertion) = (secret("client_secret"), secret("assertion"));
    let grant = match within.text("grant").as_ref().map(|grant| grant.value.as_str()) {
        Some("client_credentials") => AuthGrant::ClientCredentials,
        Some(_) | None => AuthGrant::AuthorizationCode,
    };
    let client_id = within.text("client_id").map(|id| id.value);
    let scopes = within.texts("scopes").into_iter().map(|scope| scope.value).collect();
    let has_secret = within.is_written("client_secret") || within.is_written("assertion");
    if client_id.is_none() && (has_secret || grant == AuthGrant::ClientCredentials) {
        let hint = "the authorization server says which `client_id` belongs to it";
        problems.push(Diagnostic::error(within.span, "`auth` has no `client_id`").hint(hint));
    }
    Some(McpAuth { grant, client_id, client_secret, assertion, scopes })
}

fn setting(node: &Node, from_env: &mut Vec<Located<String>>) -> Option<Setting> {
    match &node.kind {
        NodeKind::Text(text) => Some(Setting::Text(text.clone())),
        _ => {
            let variable = FROM_ENV.fields(node).text("from_env")?;
            from_env.push(variable.clone());
            Some(Setting::FromEnv(variable.value))
        }
    }
}

#[cfg(test)]
mod tests;
