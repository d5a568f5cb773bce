//! Worker files: one agent each, as front matter and instructions or as plain YAML. Pure, in both directions.

use std::fmt::Write as _;
use std::path::Path;

use super::limit::LIMITS;
use super::manifest::rule;
use super::trust::claims;
use super::{AttachmentPolicy, ContextSettings, Limits};
use crate::escape::{deceives, visible_start};
use crate::message::RawJson;
use crate::model::{Effort, ModelSettings, ServerTool, ServerToolKind, Thinking};
use crate::remedy::Remedy;
use crate::syntax::claim::Bearing::{Covered, Item, Neutral};
use crate::syntax::claim::Claim;
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, FileId, Located, Span};
use crate::syntax::table::Repeats::{Allowed, Refused};
use crate::syntax::table::Shape::{
    AnyOf, AnyText, Bool, Integer, JsonObject, List, Map, Name, Number, Object, OneOf, Text,
};
use crate::syntax::table::{Fields, Reading, Shape, Table, optional, required, texts_of};
use crate::syntax::tree::{self, Node, NodeKind};
use crate::tools::approval::Rule;

/// An agent as its file describes it, names not yet resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerFile {
    pub name: Located<String>,
    pub description: Option<String>,
    /// The first is asked, and the next where the provider of the one before has trouble.
    pub models: Vec<Located<String>>,
    pub compatible_models: Option<Vec<Located<String>>>,
    pub entry: Option<Located<bool>>,
    pub schema_in: Option<SchemaSource>,
    pub prompt: Option<Located<String>>,
    pub schema_out: Option<SchemaSource>,
    pub tools: Vec<Located<String>>,
    pub toolsets: Vec<Located<String>>,
    /// Directories of skills, relative to the file or absolute.
    pub skills: Vec<Located<String>>,
    /// Whose `AGENTS.md` is added to the instructions.
    pub agents_md: Option<Located<AgentsMd>>,
    pub approval: Vec<(Located<String>, Rule)>,
    pub allow_workers: Option<Vec<Located<String>>>,
    pub server_side_tools: Vec<Located<ServerTool>>,
    pub model_settings: ModelSettings,
    pub limits: Limits,
    pub context: ContextSettings,
    /// Whether its model is not asked again about what it was asked before: `cache: content`.
    pub cached: bool,
    /// The model that summarises old turns.
    pub summariser: Option<Located<String>>,
    pub attachment_policy: AttachmentPolicy,
    pub locked: bool,
    pub instructions: String,
    /// What its keys ask of the user who runs it.
    pub claims: Vec<Located<Claim>>,
    /// Keys that are there but could not be used. That was reported, and what follows from it is no further mistake.
    pub mistaken: Vec<&'static str>,
}

/// A description that is not given is the start of the instructions.
const DESCRIPTION_FROM_INSTRUCTIONS: usize = 200;

impl WorkerFile {
    /// What callers read of the agent.
    pub(crate) fn described(&self) -> String {
        let given = self.description.clone().filter(|text| !text.trim().is_empty());
        given.unwrap_or_else(|| self.instructions.chars().take(DESCRIPTION_FROM_INSTRUCTIONS).collect())
    }

    /// Whether one of these keys was meant to be there.
    pub(crate) fn is_mistaken(&self, keys: &[&str]) -> bool {
        self.mistaken.iter().any(|key| keys.contains(key))
    }

    /// An agent with a name and instructions and nothing else.
    pub fn new(name: Located<String>, instructions: String) -> Self {
        Self {
            name,
            description: None,
            models: Vec::new(),
            compatible_models: None,
            entry: None,
            schema_in: None,
            prompt: None,
            schema_out: None,
            tools: Vec::new(),
            toolsets: Vec::new(),
            skills: Vec::new(),
            agents_md: None,
            approval: Vec::new(),
            allow_workers: None,
            server_side_tools: Vec::new(),
            model_settings: ModelSettings::default(),
            limits: Limits::default(),
            context: ContextSettings::default(),
            cached: false,
            summariser: None,
            attachment_policy: AttachmentPolicy::default(),
            locked: false,
            instructions,
            claims: Vec::new(),
            mistaken: Vec::new(),
        }
    }
}

/// Whose `AGENTS.md` is added to the instructions of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentsMd {
    Project,
    WorkingDirectory,
}

impl AgentsMd {
    /// The words for it in files.
    const WORDS: &'static [&'static str] = &["project", "cwd"];

    /// What exactly this word means; `None` if it is none of `WORDS`.
    fn parse(word: &str) -> Option<Self> {
        match word {
            "project" => Some(Self::Project),
            "cwd" => Some(Self::WorkingDirectory),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::WorkingDirectory => "cwd",
        }
    }
}

/// Where a typed input or output is described.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaSource {
    Inline(Located<RawJson>),
    /// A JSON Schema, relative to the worker file.
    File(Located<String>),
    Python(Located<PythonClass>),
}

/// A class of Python that a worker file names as the schema of an input or an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonClass {
    pub module: PythonModule,
    pub class: String,
}

/// Where a class of Python is: in a file, or in a module that is imported by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonModule {
    /// Relative to the worker file.
    File(String),
    /// A module that is found by its name.
    Importable(String),
}

const NAMES: Shape = List { of: &Name, least: 0, repeats: Refused };
const SUFFIXES: Shape = List { of: &Text, least: 0, repeats: Refused };
/// One model, or several in the order in which they are asked.
pub(super) const MODELS: Shape = AnyOf(&[Text, List { of: &Text, least: 1, repeats: Refused }]);
const DOMAINS: Shape = List { of: &Text, least: 1, repeats: Refused };

/// The keys of worker files.
pub(crate) const WORKER: Table = Table {
    what: "a worker file",
    keys: &[
        required("name", Name, Neutral, "the agent's name and its tool name"),
        optional("description", AnyText, Neutral, "what callers read; else the start of the instructions"),
        optional(
            "model",
            MODELS,
            Item(claims::model),
            "`provider:model`, or a list: the next is asked where the provider of the one before has trouble",
        ),
        optional(
            "compatible_models",
            List { of: &Text, least: 1, repeats: Refused },
            Neutral,
            "globs that the fallback model must match",
        ),
        optional("entry", Bool, Neutral, "whether a run starts here"),
        optional(
            "schema_in_ref",
            Text,
            Item(claims::schema),
            "typed input: `file.py:Class`, `module.Class` or `file.json`",
        )
        .or(&["input_model_ref"]),
        optional("schema_in", JsonObject, Neutral, "typed input: an inline JSON Schema"),
        optional("prompt", Text, Neutral, "a Jinja template that turns a typed input into the user message"),
        optional(
            "schema_out_ref",
            Text,
            Item(claims::schema),
            "typed output: `file.py:Class`, `module.Class` or `file.json`",
        )
        .or(&["output_schema_ref", "output_model_ref"]),
        optional("schema_out", JsonObject, Neutral, "typed output: an inline JSON Schema"),
        optional("tools", NAMES, Covered, "single exported functions, and agents"),
        optional(
            "toolsets",
            NAMES,
            Covered,
            "built-in, manifest and Python toolsets, agents, and single exported functions",
        ),
        optional(
            "skills",
            List { of: &Text, least: 1, repeats: Refused },
            Item(claims::skills),
            "directories of skills: each directory in one with a `SKILL.md`",
        ),
        optional(
            "agents_md",
            OneOf(AgentsMd::WORDS),
            Item(claims::agents_md),
            "adds the `AGENTS.md` of the project, or of the working directory",
        ),
        optional(
            "approval",
            Map { of: &OneOf(Rule::WORDS) },
            Item(claims::approval),
            "rules by tool, or by `toolset.tool`",
        ),
        optional(
            "allow_workers",
            List { of: &AnyOf(&[Text]), least: 0, repeats: Refused },
            Neutral,
            "the only agents it may call by name; `*` for any",
        ),
        optional(
            "server_side_tools",
            List { of: &Object(&SERVER_SIDE_TOOL), least: 0, repeats: Allowed },
            Item(claims::server_side_tools),
            "tools that the provider runs",
        ),
        optional("model_settings", Object(&MODEL_SETTINGS), Neutral, "settings of each model request"),
        optional("limits", Object(&LIMITS), Neutral, "for each call of this agent"),
        optional(
            "context",
            AnyOf(&[Object(&CONTEXT), OneOf(&["off"])]),
            Neutral,
            "what is left out of a conversation that fills the model's window; `off`: nothing",
        ),
        optional(
            "cache",
            OneOf(&["content"]),
            Neutral,
            "`content`: the model is not asked again about what it was asked before",
        ),
        optional("attachment_policy", Object(&ATTACHMENT_POLICY), Neutral, "which attachments it accepts"),
        optional("locked", Bool, Neutral, "whether tools may never overwrite this file"),
        optional("instructions", AnyText, Neutral, "in a YAML file: what the model is told"),
    ],
};

const CONTEXT: Table = Table {
    what: "`context`",
    keys: &[
        optional("window", Integer { min: 1 }, Neutral, "how many tokens the model takes, with its answer"),
        optional(
            "clear_at",
            Number { min: 0.0, min_included: false, max: 1.0 },
            Neutral,
            "the share of the window from which old results are cleared",
        ),
        optional(
            "summarise_at",
            Number { min: 0.0, min_included: false, max: 1.0 },
            Neutral,
            "the share of the window from which old turns are summarised",
        ),
        optional("keep", Integer { min: 1 }, Neutral, "the last so many tokens are never summarised"),
        optional("model", Text, Neutral, "`provider:model` that summarises; else the agent's own"),
    ],
};

const SERVER_SIDE_TOOL: Table = Table {
    what: "a server-side tool",
    keys: &[
        required(
            "tool_type",
            OneOf(&["web_search", "web_fetch", "code_execution", "image_generation"]),
            Covered,
            "which tool",
        ),
        optional("max_uses", Integer { min: 1 }, Covered, "of `web_search`: how often in one request"),
        optional("allowed_domains", DOMAINS, Covered, "of `web_search`: only these"),
        optional("blocked_domains", DOMAINS, Covered, "of `web_search`: never these"),
    ],
};

const EFFORTS: &[(&str, Effort)] = &[
    ("minimal", Effort::Minimal),
    ("low", Effort::Low),
    ("medium", Effort::Medium),
    ("high", Effort::High),
    ("xhigh", Effort::Xhigh),
    ("max", Effort::Max),
];

const MODEL_SETTINGS: Table = Table {
    what: "`model_settings`",
    keys: &[
        optional("temperature", Number { min: 0.0, min_included: true, max: 2.0 }, Neutral, "randomness"),
        optional("top_p", Number { min: 0.0, min_included: true, max: 1.0 }, Neutral, "nucleus sampling"),
        optional("max_tokens", Integer { min: 1 }, Neutral, "the longest reply"),
        optional(
            "stop",
            AnyOf(&[Text, List { of: &Text, least: 1, repeats: Refused }]),
            Neutral,
            "texts that end a reply",
        ),
        optional("seed", Integer { min: i64::MIN }, Neutral, "for repeatable sampling where offered"),
        optional("effort", OneOf(&["minimal", "low", "medium", "high", "xhigh", "max"]), Neutral, "how hard to think"),
        optional("thinking", AnyOf(&[Bool, Integer { min: 1 }]), Neutral, "on, off, or at most so many tokens"),
        optional("parallel_tool_calls", Bool, Neutral, "whether one reply may call several tools"),
        optional(
            "timeout_seconds",
            Number { min: 0.0, min_included: false, max: 86_400.0 },
            Neutral,
            "of one model request",
        ),
    ],
};

const ATTACHMENT_POLICY: Table = Table {
    what: "`attachment_policy`",
    keys: &[
        optional("max_attachments", Integer { min: 0 }, Neutral, "how many"),
        optional("max_total_bytes", Integer { min: 1 }, Neutral, "how large together"),
        optional("allowed_suffixes", SUFFIXES, Neutral, "only these endings"),
        optional("denied_suffixes", SUFFIXES, Neutral, "never these endings"),
    ],
};

/// How files with cases end, which stand beside worker files and are none.
pub(crate) const TEST_FILE_ENDING: &str = ".test.yaml";

/// How a worker file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.worker`, `.agent`: YAML between two lines `---`, then the instructions.
    FrontMatter,
    /// `.yaml`, `.yml`: the same keys plus `instructions`.
    Yaml,
}

impl Format {
    /// Markdown is a worker file where it is named as one: any directory has files that end so.
    pub(crate) fn of_markdown(path: &Path) -> Option<Self> {
        path.extension().is_some_and(|ending| ending == "md").then_some(Self::FrontMatter)
    }

    /// The format that the ending of a file's name says; `None` if no worker file is called so.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            _ if path.to_str().is_some_and(|path| path.ends_with(TEST_FILE_ENDING)) => None,
            "worker" | "agent" => Some(Self::FrontMatter),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }
}

/// Reads a worker file, whose agent would be called `stem` if it had no name. `None` if not even its name is known; other mistakes are reported and their keys left out.
pub fn parse(file: FileId, stem: &str, text: &str, format: Format, problems: &mut Diagnostics) -> Option<WorkerFile> {
    let whole = tree::Text::whole(file, text);
    if whole.text.trim().is_empty() {
        let problem = Diagnostic::error(Span { file, start: 0, end: 0 }, "the file is empty");
        problems.push(problem.hint(Remedy::NewWorkerFile { name: stem.to_owned() }));
        return None;
    }
    let (yaml, body) = match format {
        Format::Yaml => (whole, None),
        Format::FrontMatter => {
            let (yaml, body) = split_front_matter(whole, problems)?;
            (yaml, Some(body))
        }
    };
    let known = problems.has_errors();
    let Some(node) = tree::parse_yaml(yaml, problems) else {
        if !known && !problems.has_errors() {
            let start = Span { file, start: yaml.offset, end: yaml.offset };
            let problem = Diagnostic::error(start, "`name` is missing in a worker file");
            problems.push(problem.hint(format!("write `name: {stem}`")));
        }
        return None;
    };
    WORKER.check(&node, Reading::yaml(stem), problems);
    let worker = worker(&WORKER.fields(&node), body, problems)?;
    Some(WorkerFile { claims: WORKER.claims(&node), ..worker })
}

/// The value that stands at this place of a worker file, in either format.
pub(super) fn node_at(span: Span, text: &str) -> Option<Node> {
    let whole = tree::Text::whole(span.file, text);
    let mut silent = Diagnostics::default();
    let yaml = if whole.text.starts_with("---") { split_front_matter(whole, &mut silent)?.0 } else { whole };
    tree::parse_yaml(yaml, &mut silent)?.within(span).cloned()
}

/// The YAML between the first line `---` and the next, and the text behind it.
pub(super) fn split_front_matter<'a>(
    source: tree::Text<'a>,
    problems: &mut Diagnostics,
) -> Option<(tree::Text<'a>, &'a str)> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = source.text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let span = |start: usize, len: usize| Span {
        file: source.file,
        start: source.offset + start,
        end: source.offset + start + len,
    };
    if !is_fence(first) {
        problems.push(
            Diagnostic::error(span(0, first.trim_end().len()), "the file does not start with a line `---`")
                .hint("put the keys between two lines `---` at the very start, the instructions below"),
        );
        return None;
    }
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            let yaml = &source.text[first.len()..end];
            let body = &source.text[end + line.len()..];
            return Some((tree::Text { text: yaml, offset: source.offset + first.len(), ..source }, body));
        }
        end += line.len();
    }
    problems.push(
        Diagnostic::error(span(0, first.trim_end().len()), "the front matter has no end")
            .hint("put a line `---` after the keys"),
    );
    None
}

fn worker(fields: &Fields<'_>, body: Option<&str>, problems: &mut Diagnostics) -> Option<WorkerFile> {
    if let (Some(_), Some(span)) = (body, fields.key_span("instructions")) {
        problems.push(
            Diagnostic::error(span, "`instructions` belongs to a YAML worker file")
                .hint("write the instructions below the second line `---`"),
        );
    }
    let models = if fields.get("model").is_some() { fields.texts("model") } else { Vec::new() };
    let compatible_models = fields.get("compatible_models").map(|_| fields.texts("compatible_models"));
    if let (Some(model), Some(span)) = (models.first(), fields.key_span("compatible_models")) {
        problems.push(
            Diagnostic::error(span, "`model` and `compatible_models` exclude each other")
                .hint("remove `model` to let the fallback model be chosen")
                .related(model.span, "`model`"),
        );
    }
    let instructions = match body {
        Some(body) => body.trim().to_owned(),
        None => fields.text("instructions").map(|text| text.value.trim().to_owned()).unwrap_or_default(),
    };
    Some(WorkerFile {
        description: fields.text("description").map(|text| text.value),
        models,
        compatible_models,
        entry: fields.get("entry").and_then(|node| Some(Located { value: fields.bool("entry")?, span: node.span })),
        schema_in: schema_source(fields, "schema_in", "schema_in_ref", problems),
        prompt: fields.text("prompt"),
        schema_out: schema_source(fields, "schema_out", "schema_out_ref", problems),
        tools: fields.texts("tools"),
        toolsets: fields.texts("toolsets"),
        skills: if fields.get("skills").is_some() { fields.texts("skills") } else { Vec::new() },
        agents_md: fields
            .text("agents_md")
            .and_then(|word| Some(Located { value: AgentsMd::parse(&word.value)?, span: word.span })),
        approval: fields.entries("approval").filter_map(|(tool, node)| Some((tool.clone(), rule(node)?))).collect(),
        allow_workers: fields.get("allow_workers").map(|_| allow_workers(fields, problems)),
        server_side_tools: server_side_tools(fields, problems),
        model_settings: fields.object("model_settings").map(|fields| model_settings(&fields)).unwrap_or_default(),
        limits: fields.object("limits").map(|fields| Limits::read(&fields)).unwrap_or_default(),
        context: context(fields),
        cached: fields.text("cache").is_some(),
        summariser: fields.object("context").and_then(|fields| fields.text("model")),
        attachment_policy: fields
            .object("attachment_policy")
            .map(|fields| attachment_policy(&fields))
            .unwrap_or_default(),
        locked: fields.bool("locked").unwrap_or(false),
        mistaken: fields.mistaken(),
        ..WorkerFile::new(fields.text("name")?, instructions)
    })
}

fn allow_workers(fields: &Fields<'_>, problems: &mut Diagnostics) -> Vec<Located<String>> {
    let mut names = fields.texts("allow_workers");
    names.retain(|name| {
        let good = name.value == "*" || crate::syntax::table::is_name(&name.value);
        if !good {
            let fact = format!("`{}` is neither a name nor `*`", visible_start(&name.value, 80));
            problems.push(Diagnostic::error(name.span, fact));
        }
        good
    });
    names
}

fn schema_source(
    fields: &Fields<'_>,
    inline: &str,
    reference: &str,
    problems: &mut Diagnostics,
) -> Option<SchemaSource> {
    let span = |key: &str| fields.get(key).map(|node| node.span);
    if let (Some(inline_span), Some(reference_span)) = (fields.key_span(inline), fields.key_span(reference)) {
        problems.push(
            Diagnostic::error(
                reference_span.max(inline_span),
                format!("`{inline}` and `{reference}` exclude each other"),
            )
            .hint("keep one of them"),
        );
    }
    if let (Some(schema), Some(span)) = (fields.json(inline), span(inline)) {
        return Some(SchemaSource::Inline(Located { value: schema, span }));
    }
    let text = fields.text(reference)?;
    let source = parse_reference(&text);
    if source.is_none() {
        let fact = format!("`{}` does not name a schema", visible_start(&text.value, 80));
        problems.push(Diagnostic::error(text.span, fact).hint("write `file.json`, `file.py:Class` or `module.Class`"));
    }
    source
}

pub(super) fn parse_reference(text: &Located<String>) -> Option<SchemaSource> {
    let identifier = |word: &str| {
        !word.is_empty()
            && !word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if text.value.to_ascii_lowercase().ends_with(".json") {
        return Some(SchemaSource::File(text.clone()));
    }
    let (module, class) = match text.value.rsplit_once(':') {
        Some((file, class)) if Path::new(file).extension().is_some_and(|extension| extension == "py") => {
            (PythonModule::File(file.to_owned()), class)
        }
        Some(_) => return None,
        None => {
            let (module, class) = text.value.rsplit_once('.')?;
            module.split('.').all(identifier).then_some(())?;
            // A file was meant, of a kind that holds no schema or without its class.
            if ["py", "yaml", "yml", "toml", "txt", "md"].contains(&class) {
                return None;
            }
            (PythonModule::Importable(module.to_owned()), class)
        }
    };
    let class = identifier(class).then(|| class.to_owned())?;
    Some(SchemaSource::Python(Located { value: PythonClass { module, class }, span: text.span }))
}

fn server_side_tools(fields: &Fields<'_>, problems: &mut Diagnostics) -> Vec<Located<ServerTool>> {
    let Some(NodeKind::List(items)) = fields.get("server_side_tools").map(|node| &node.kind) else { return Vec::new() };
    let mut tools: Vec<Located<ServerTool>> = Vec::new();
    for item in items {
        let Some(tool) = server_side_tool(item, problems) else { continue };
        if tools.iter().any(|other| other.value.kind == tool.kind) {
            let fact = format!("`{}` appears twice in the list", tool.kind.name());
            problems.push(Diagnostic::error(item.span, fact));
        } else {
            tools.push(Located { value: tool, span: item.span });
        }
    }
    tools
}

fn server_side_tool(node: &Node, problems: &mut Diagnostics) -> Option<ServerTool> {
    let fields = SERVER_SIDE_TOOL.fields(node);
    let word = fields.text("tool_type")?.value;
    let kind = ServerToolKind::ALL.into_iter().find(|kind| kind.name() == word)?;
    let domains = |key| fields.texts(key).into_iter().map(|domain| domain.value).collect();
    for key in ["max_uses", "allowed_domains", "blocked_domains"] {
        if let Some(span) = fields.key_span(key).filter(|_| kind != ServerToolKind::WebSearch) {
            problems.push(Diagnostic::error(span, format!("`{key}` belongs to `web_search`, not to `{word}`")));
        }
    }
    if let (Some(_), Some(span)) = (fields.get("allowed_domains"), fields.key_span("blocked_domains")) {
        problems.push(Diagnostic::error(span, "`allowed_domains` and `blocked_domains` exclude each other"));
    }
    Some(ServerTool {
        kind,
        max_uses: fields.count("max_uses"),
        allowed_domains: domains("allowed_domains"),
        blocked_domains: domains("blocked_domains"),
    })
}

fn model_settings(fields: &Fields<'_>) -> ModelSettings {
    let effort =
        |word: Located<String>| EFFORTS.iter().find(|(name, _)| *name == word.value).map(|(_, effort)| *effort);
    let thinking = |node: &Node| match node.kind {
        NodeKind::Bool(true) => Some(Thinking::On),
        NodeKind::Bool(false) => Some(Thinking::Off),
        NodeKind::Integer(tokens) => u64::try_from(tokens).ok().map(Thinking::Budget),
        _ => None,
    };
    ModelSettings {
        temperature: fields.number("temperature"),
        top_p: fields.number("top_p"),
        max_tokens: fields.count("max_tokens"),
        stop: fields.get("stop").map(texts_of).unwrap_or_default().into_iter().map(|text| text.value).collect(),
        seed: fields.integer("seed"),
        effort: fields.text("effort").and_then(effort),
        thinking: fields.get("thinking").and_then(thinking),
        parallel_tool_calls: fields.bool("parallel_tool_calls"),
        timeout: fields.number("timeout_seconds").map(std::time::Duration::from_secs_f64),
    }
}

fn context(fields: &Fields<'_>) -> ContextSettings {
    match fields.object("context") {
        Some(fields) => ContextSettings {
            is_off: false,
            window: fields.count("window"),
            clear_at: fields.number("clear_at"),
            summarise_at: fields.number("summarise_at"),
            keep: fields.count("keep"),
        },
        None => ContextSettings { is_off: fields.get("context").is_some(), ..ContextSettings::default() },
    }
}

fn attachment_policy(fields: &Fields<'_>) -> AttachmentPolicy {
    let defaults = AttachmentPolicy::default();
    let suffixes = |key| fields.texts(key).into_iter().map(|suffix| suffix.value.to_lowercase()).collect();
    AttachmentPolicy {
        max_attachments: fields.count("max_attachments").unwrap_or(defaults.max_attachments),
        max_total_bytes: fields.count("max_total_bytes").unwrap_or(defaults.max_total_bytes),
        allowed_suffixes: suffixes("allowed_suffixes"),
        denied_suffixes: suffixes("denied_suffixes"),
    }
}

/// Writes a worker file that parses back to the same value. Defaults are left out.
pub(crate) fn render(worker: &WorkerFile, format: Format) -> String {
    let mut yaml = Yaml::default();
    yaml.text("name", &worker.name.value);
    yaml.some_text("description", worker.description.as_deref());
    match worker.models.as_slice() {
        [] | [_] => yaml.some_text("model", worker.models.first().map(|model| model.value.as_str())),
        several => yaml.list("model", several),
    }
    yaml.some_list("compatible_models", worker.compatible_models.as_deref());
    yaml.some("entry", worker.entry.as_ref().map(|entry| entry.value));
    yaml.schema("schema_in", worker.schema_in.as_ref());
    yaml.some_text("prompt", worker.prompt.as_ref().map(|prompt| prompt.value.as_str()));
    yaml.schema("schema_out", worker.schema_out.as_ref());
    yaml.list("tools", &worker.tools);
    yaml.list("toolsets", &worker.toolsets);
    yaml.list("skills", &worker.skills);
    yaml.some_text("agents_md", worker.agents_md.as_ref().map(|which| which.value.word()));
    yaml.approval(&worker.approval);
    yaml.some_list("allow_workers", worker.allow_workers.as_deref());
    yaml.server_side_tools(&worker.server_side_tools);
    yaml.model_settings(&worker.model_settings);
    yaml.limits(&worker.limits);
    yaml.some_text("cache", worker.cached.then_some("content"));
    yaml.context(&worker.context, worker.summariser.as_ref());
    yaml.attachment_policy(&worker.attachment_policy);
    yaml.some("locked", worker.locked.then_some(true));
    match format {
        Format::FrontMatter => format!("---\n{}---\n{}\n", yaml.0, worker.instructions),
        Format::Yaml => {
            yaml.text("instructions", &worker.instructions);
            yaml.0
        }
    }
}

/// Writes keys line by line; nested values in flow style, which is nearly JSON.
#[derive(Default)]
struct Yaml(String);

impl Yaml {
    fn line(&mut self, key: &str, value: &str) {
        writeln!(self.0, "{key}: {value}").expect("writing to a text cannot fail");
    }

    fn text(&mut self, key: &str, text: &str) {
        self.line(key, &quoted(text));
    }

    fn some_text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    fn some(&mut self, key: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.line(key, &value.to_string());
        }
    }

    fn list(&mut self, key: &str, items: &[Located<String>]) {
        if !items.is_empty() {
            self.some_list(key, Some(items));
        }
    }

    fn some_list(&mut self, key: &str, items: Option<&[Located<String>]>) {
        if let Some(items) = items {
            self.line(key, &flow_list(items.iter().map(|item| item.value.as_str())));
        }
    }

    fn schema(&mut self, key: &str, source: Option<&SchemaSource>) {
        match source {
            None => {}
            Some(SchemaSource::Inline(schema)) => self.line(key, &yaml_safe(schema.value.get())),
            Some(SchemaSource::File(path)) => self.text(&format!("{key}_ref"), &path.value),
            Some(SchemaSource::Python(class)) => {
                let PythonClass { module, class } = &class.value;
                let reference = match module {
                    PythonModule::File(file) => format!("{file}:{class}"),
                    PythonModule::Importable(module) => format!("{module}.{class}"),
                };
                self.text(&format!("{key}_ref"), &reference);
            }
        }
    }

    fn approval(&mut self, rules: &[(Located<String>, Rule)]) {
        if !rules.is_empty() {
            let rules = rules.iter().map(|(tool, rule)| (quoted(&tool.value), rule.word().to_owned()));
            self.line("approval", &flow_map(rules));
        }
    }

    fn server_side_tools(&mut self, tools: &[Located<ServerTool>]) {
        if tools.is_empty() {
            return;
        }
        let domains = |domains: &[String]| flow_list(domains.iter().map(String::as_str));
        let tools = tools.iter().map(|Located { value: tool, .. }| {
            let mut entries = vec![("tool_type".to_owned(), tool.kind.name().to_owned())];
            entries.extend(tool.max_uses.map(|uses| ("max_uses".to_owned(), uses.to_string())));
            for (key, list) in [("allowed_domains", &tool.allowed_domains), ("blocked_domains", &tool.blocked_domains)]
            {
                entries.extend((!list.is_empty()).then(|| (key.to_owned(), domains(list))));
            }
            flow_map(entries)
        });
        let tools: Vec<String> = tools.collect();
        self.line("server_side_tools", &format!("[{}]", tools.join(", ")));
    }

    fn model_settings(&mut self, settings: &ModelSettings) {
        let effort = |effort| EFFORTS.iter().find(|(_, known)| *known == effort).map(|(word, _)| (*word).to_owned());
        let thinking = |thinking| match thinking {
            Thinking::Off => "false".to_owned(),
            Thinking::On => "true".to_owned(),
            Thinking::Budget(tokens) => tokens.to_string(),
        };
        let stop = (!settings.stop.is_empty()).then(|| flow_list(settings.stop.iter().map(String::as_str)));
        self.block(
            "model_settings",
            [
                ("temperature", settings.temperature.map(|value| value.to_string())),
                ("top_p", settings.top_p.map(|value| value.to_string())),
                ("max_tokens", settings.max_tokens.map(|value| value.to_string())),
                ("stop", stop),
                ("seed", settings.seed.map(|value| value.to_string())),
                ("effort", settings.effort.and_then(effort)),
                ("thinking", settings.thinking.map(thinking)),
                ("parallel_tool_calls", settings.parallel_tool_calls.map(|value| value.to_string())),
                ("timeout_seconds", settings.timeout.map(|value| value.as_secs_f64().to_string())),
            ],
        );
    }

    fn limits(&mut self, limits: &Limits) {
        self.block("limits", limits.written());
    }

    fn context(&mut self, context: &ContextSettings, model: Option<&Located<String>>) {
        if context.is_off {
            return self.line("context", "off");
        }
        self.block(
            "context",
            [
                ("window", context.window.map(|value| value.to_string())),
                ("clear_at", context.clear_at.map(|value| value.to_string())),
                ("summarise_at", context.summarise_at.map(|value| value.to_string())),
                ("keep", context.keep.map(|value| value.to_string())),
                ("model", model.map(|model| quoted(&model.value))),
            ],
        );
    }

    fn attachment_policy(&mut self, policy: &AttachmentPolicy) {
        let defaults = AttachmentPolicy::default();
        let count = |value: u64, default: u64| (value != default).then(|| value.to_string());
        let suffixes = |list: &[String]| (!list.is_empty()).then(|| flow_list(list.iter().map(String::as_str)));
        self.block(
            "attachment_policy",
            [
                ("max_attachments", count(policy.max_attachments, defaults.max_attachments)),
                ("max_total_bytes", count(policy.max_total_bytes, defaults.max_total_bytes)),
                ("allowed_suffixes", suffixes(&policy.allowed_suffixes)),
                ("denied_suffixes", suffixes(&policy.denied_suffixes)),
            ],
        );
    }

    fn block<'k>(&mut self, key: &str, entries: impl IntoIterator<Item = (&'k str, Option<String>)>) {
        let given = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let given: Vec<(String, String)> = given.collect();
        if !given.is_empty() {
            self.line(key, &flow_map(given));
        }
    }
}

fn flow_list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", items.map(quoted).collect::<Vec<_>>().join(", "))
}

fn flow_map(entries: impl IntoIterator<Item = (String, String)>) -> String {
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", entries.join(", "))
}

/// A double-quoted YAML text; whatever a reader could not see or YAML would not take is escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if deceives(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                write!(quoted, "\\U{:08X}", u32::from(c)).expect("writing to a text cannot fail");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// JSON is YAML except for characters that YAML does not take raw; inside JSON they only occur in texts.
fn yaml_safe(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut safe, c| {
        if deceives(c) && !c.is_ascii_whitespace() || matches!(c, '\u{fffe}' | '\u{ffff}') {
            write!(safe, "\\U{:08X}", u32::from(c)).expect("writing to a text cannot fail");
        } else {
            safe.push(if c.is_ascii_whitespace() { ' ' } else { c });
        }
        safe
    })
}

#[cfg(test)]
mod tests;
