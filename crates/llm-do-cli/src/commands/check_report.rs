//! What `check` shows of a linked project: as text, as JSON, and as a graph. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::approval::{ApprovalMode, CommandVerdict, DeclaredVerdict};
use llm_do::escape::{visible, visible_start};
use llm_do::fence::{Accept, Fence, FenceConfig, FenceError, FenceKind, fence_words};
use llm_do::program::{AgentSpec, AnswerMode, Entry, PythonModule, PythonType, StandIn, Survey, Typing};
use llm_do::reach::{AgentNode, Graph, ReachableTool, Worst};
use llm_do::toolsets::{
    Access, Base, DeclaredTool, FileRoot, FilesystemConfig, Grammar, McpOffer, McpServer, Roots, ShellConfig,
    ShellRule, ToolsetSource,
};
use llm_do::{Program, Project, Report, Rule, names};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::COMMANDS;
use crate::terminal::style::{Style, Styles};
use crate::terminal::trust::screen;
use crate::{json, remedy};
use llm_do_launch::fencing::{self, ResidentProgram, shells};
use llm_do_launch::logins::ServerAccess;
use llm_do_launch::trust::Standing;

/// All that is shown of a project.
pub struct ProjectCheck {
    pub linked: Survey,
    pub trust: Standing,
    /// Empty if the user did not want to know.
    pub servers: Vec<ConnectedServer>,
    /// How one is let in to its servers.
    pub access: Vec<ServerAccess>,
    pub residents: Vec<CheckedResident>,
    /// What was found beyond linking.
    pub inspected: Vec<Report>,
    pub tests: CheckedTests,
}

/// What its agents are tested with.
pub struct CheckedTests {
    pub cases: usize,
    /// Agents without a case.
    pub untested: Vec<String>,
}

impl CheckedTests {
    /// Nothing where nobody tests.
    fn words(&self) -> Option<String> {
        let cases = if self.cases == 1 { "1 case".to_owned() } else { format!("{} cases", self.cases) };
        let untested = names::listed(self.untested.iter().map(String::as_str));
        let rest = untested.map(|names| format!("; no tests: {names}")).unwrap_or_default();
        (self.cases > 0).then(|| format!("{cases}{rest}"))
    }
}

impl ProjectCheck {
    /// All that is said about it: notes and warnings.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        std::iter::once(&self.linked.notes).chain(&self.inspected)
    }
}

/// A program that lives as long as a run, and what there is to keep it in if it asks for that.
pub struct CheckedResident {
    resident: ResidentProgram,
    /// The fence in a word, or why the program is not started.
    fence: Option<Result<&'static str, FenceError>>,
}

/// The kernel is asked only if something is to run behind a fence.
pub fn residents(project: &Project, program: &Program, fence: &FenceConfig) -> Vec<CheckedResident> {
    let found = || {
        let fence = fence.fence();
        fence.houses().map(|()| fence.name())
    };
    let checked = |resident: ResidentProgram| {
        let fence = resident.enclosure.as_ref().map(|_| found());
        CheckedResident { resident, fence }
    };
    fencing::residents(project, program).into_iter().map(checked).collect()
}

impl CheckedResident {
    pub fn is_python_refused(&self) -> bool {
        self.resident.server.is_none() && matches!(self.fence, Some(Err(_)))
    }

    fn words(&self) -> String {
        let name = self.resident.server.as_ref().map(|name| format!("`{name}` ")).unwrap_or_default();
        match (&self.fence, &self.resident.enclosure) {
            (Some(Ok(fence)), Some(enclosure)) => format!("{name}runs behind the {fence} fence: {}", enclosure.words()),
            (Some(Err(FenceError { why, hint })), _) => {
                format!("{name}is not started: {why}; {}", remedy::words(hint))
            }
            (Some(Ok(_)) | None, _) => format!("{name}runs with your rights"),
        }
    }

    fn json(&self) -> Value {
        let enclosure = self.resident.enclosure.as_ref();
        json!({
            "server": self.resident.server,
            "rights": if enclosure.is_some() { "fence" } else { "user" },
            "fence": enclosure.map(|it| json!({"read": it.read, "write": it.write, "network": it.network})),
            "kind": self.fence.as_ref().and_then(|fence| fence.as_ref().ok()),
            "not_started": self.fence.as_ref().and_then(|fence| fence.as_ref().err()).map(|unfenced| &unfenced.why),
        })
    }
}

/// An MCP server that was asked what it offers.
pub struct ConnectedServer {
    /// Its command, or its address.
    pub reached: String,
    pub declared: Option<Vec<DeclaredTool>>,
    pub offer: McpOffer,
}

/// Where commands run and what keeps them in; asked for only if an agent has a shell.
pub struct ShellGround {
    pub directory: PathBuf,
    pub fence: Arc<Fence>,
}

pub fn text(path: &Path, checked: &ProjectCheck, ground: Option<&ShellGround>, styles: Styles) -> String {
    let ProjectCheck { linked: Survey { program, .. }, trust, servers, access, residents, tests, .. } = checked;
    let mut out = String::new();
    let mut line = |label: &str, value: &str| {
        writeln!(out, "{label:<9}{value}").expect("a text takes all");
    };
    line("project", &visible(&path.display().to_string()));
    line("entry", &entry_words(&program.entry));
    match program.policy.approval_mode {
        ApprovalMode::Prompt => {}
        ApprovalMode::ApproveAll => line("approval", "approve_all: every question is answered with yes"),
        ApprovalMode::RejectAll => line("approval", "reject_all: every question is answered with no"),
    }
    if !program.open.is_empty() {
        let names = visible_list(&program.open, ", ");
        let why = if trust.is_given { "Python, which was not read" } else { "Python; `check --trust` reads it" };
        line("unresolved: ", &format!("{names} ({why})"));
    }
    let created = created(program);
    let names = |is_wanted: &dyn Fn(&CreatedAgent<'_>) -> bool| {
        let wanted: Vec<&str> = created.iter().filter(|agent| is_wanted(agent)).map(|agent| agent.name).collect();
        (!wanted.is_empty()).then(|| wanted.join(", "))
    };
    if let Some(made) = names(&|agent| agent.counts) {
        line("created", &format!("{made} (at run time; reached by `agent_call`)"));
    }
    if let Some(foreign) = names(&|agent| !agent.counts) {
        line("created", &format!("{foreign} (not made here, so not callable; list in `worker_files`)"));
    }
    for mistake in created.iter().filter_map(|agent| agent.mistake.as_ref()) {
        line("", &visible(mistake));
    }
    if !trust.items.is_empty() {
        let state = if trust.is_given { "given for" } else { "not given yet; these were not run or read:" };
        line("trust", state);
        for item in screen::lines(&trust.items) {
            line("", item.trim_start());
        }
        line("", &format!("digest {}", trust.digest));
    }
    if let Some(tests) = tests.words() {
        line("tests", &visible(&tests));
    }
    for resident in residents {
        let label = if resident.resident.server.is_some() { "server" } else { "python" };
        line(label, &visible(&resident.words()));
    }
    for server in access.iter().filter(|server| matches!(server.config.server, McpServer::Url { .. })) {
        line("login", &visible(&format!("`{}` {}", server.config.name, server.words())));
    }
    if let Some(ground) = ground {
        let directory = ground.directory.display().to_string();
        line("commands", &format!("in {}", visible(&directory)));
        line("fence", &visible(&fence_state(&ground.fence)));
    }
    if !servers.is_empty() {
        out.push_str("\nservers\n");
        for server in servers {
            server_text(&mut out, server);
        }
    }
    let graph = Graph::new(program);
    out.push_str("\nagents\n");
    for (place, worst) in graph.worst_cases().iter().enumerate() {
        agent_text(&mut out, &graph, place, worst, styles);
    }
    out.push_str("\ncalls\n");
    call_tree(&mut out, program, &graph);
    out
}

/// How many warnings there were, below them.
pub fn warnings_line(checked: &ProjectCheck) -> String {
    match checked.reports().map(Report::warning_count).sum::<usize>() {
        0 => String::new(),
        1 => "1 warning\n".to_owned(),
        several => format!("{several} warnings\n"),
    }
}

/// What it comes to, and what to do next.
pub fn ending(path: &Path, chosen: &[String], checked: &ProjectCheck, styles: Styles) -> String {
    let program = &checked.linked.program;
    let graph = Graph::new(program);
    let tools: BTreeSet<&str> = graph.nodes.iter().flat_map(|node| &node.tools).map(|tool| &*tool.name).collect();
    let writes = graph.worst_cases();
    let writes = writes.iter().flatten().filter(|(capability, _)| serde_word(capability) == "writes_files");
    let asks: Vec<bool> = writes.map(|(_, way)| way.asks).collect();
    let writes = match (asks.as_slice(), program.policy.approval_mode) {
        ([], _) => "writes nothing",
        (_, ApprovalMode::ApproveAll) => "writes without a question",
        (_, ApprovalMode::RejectAll) => "writes are refused",
        (asks, ApprovalMode::Prompt) if asks.contains(&false) => "writes without a question",
        (_, ApprovalMode::Prompt) => "writes ask",
    };
    let count = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let (ok, agents) = (styles.paint(Style::Added, "ok"), count(program.agents.len(), "agent"));
    let chosen = chosen.iter().flat_map(|word| [" ".to_owned(), quoted_word(word)]).collect::<String>();
    let next = if checked.trust.is_given {
        next(path, &chosen, program)
    } else {
        format!("check {}{chosen} --trust", quoted_word(&visible(&path.display().to_string())))
    };
    format!("\n{ok}: {agents}, {}, {writes}\nnext: llm-do {next}\n", count(tools.len(), "tool"))
}

/// A command that runs the project.
fn next(path: &Path, chosen: &str, program: &Program) -> String {
    let project = shell_word(path);
    if program.default_input.is_some() || !program.allow_cli_input {
        return format!("run {project}{chosen}");
    }
    let entry = match &program.entry {
        Entry::Agent(name) => program.agents.get(name),
        Entry::Function(_) | Entry::Open => None,
    };
    match entry.map(|entry| &entry.input) {
        Some(Typing::Schema(schema)) => {
            let input = example_of(&schema.to().unwrap_or(Value::Null));
            let is_one_text =
                matches!(&input, Value::Object(fields) if fields.len() == 1 && fields.values().all(|it| it == "…"));
            if is_one_text {
                format!("{project}{chosen} \"…\"")
            } else {
                format!("{project}{chosen} --input-json {}", quoted_word(&input.to_string()))
            }
        }
        Some(Typing::Untyped | Typing::Python(_)) | None => format!("{project}{chosen} \"…\""),
    }
}

/// The required fields of a schema, each with something of its type.
fn example_of(schema: &Value) -> Value {
    let field = |name: &str| match &schema["properties"][name] {
        field if field["enum"][0] != Value::Null => field["enum"][0].clone(),
        field => match field["type"].as_str() {
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => example_of(field),
            _ => json!("…"),
        },
    };
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Value::Object(required.map(|name| (name.to_owned(), field(name))).collect())
}

/// The project as a shell reads it, and as no command of this program.
fn shell_word(path: &Path) -> String {
    let text = visible(&path.display().to_string()).into_owned();
    if COMMANDS.contains(&text.as_str()) { format!("./{text}") } else { quoted_word(&text) }
}

fn quoted_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./@%+=:,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// The first line of what a server says of a tool is cut here.
const LONGEST_REMARK: usize = 80;

/// A server and what it says of its tools, marked as its words.
fn server_text(out: &mut String, ConnectedServer { reached, offer, .. }: &ConnectedServer) {
    let mut line = |indent: usize, text: &str| writeln!(out, "{:indent$}{text}", "").expect("a text takes all");
    line(2, &format!("{}  {}", offer.toolset, visible(reached)));
    let tools = match &offer.tools {
        Ok(tools) => tools,
        Err(reason) => return reason.lines().for_each(|reason| line(4, &format!("| {}", visible(reason)))),
    };
    if tools.is_empty() {
        line(4, "no tools");
    }
    let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    for tool in tools {
        let hints = if tool.hints.is_empty() { String::new() } else { format!(" ({})", tool.hints.join(", ")) };
        let remark = tool.description.lines().next().unwrap_or_default();
        line(4, &format!("{:<width$}  | {}{hints}", tool.name, visible_start(remark, LONGEST_REMARK)));
    }
}

fn server_json(ConnectedServer { reached, offer, .. }: &ConnectedServer) -> Value {
    json!({
        "toolset": offer.toolset,
        "reached": reached,
        "tools": offer.tools.as_ref().ok(),
        "error": offer.tools.as_ref().err(),
    })
}

/// Names of tools, models and Python files are foreign text.
fn visible_list(names: &[String], separator: &str) -> String {
    names.iter().map(|name| visible(name)).collect::<Vec<_>>().join(separator)
}

fn entry_words(entry: &Entry) -> String {
    match entry {
        Entry::Agent(name) => name.clone(),
        Entry::Function(function) => visible(&function.to_string()).into_owned(),
        Entry::Open => "unresolved (Python; `check --trust` reads it)".to_owned(),
    }
}

/// One line out of its parts. There are dozens for each agent, so they are not formatted but put together.
fn line(out: &mut String, parts: &[&str]) {
    out.extend(parts.iter().copied());
    out.push('\n');
}

/// Blanks that fill a column of this width.
fn blanks(text: &str, width: usize) -> Cow<'static, str> {
    const MOST: &str = "                                                                ";
    let missing = width.saturating_sub(text.chars().count());
    MOST.get(..missing).map_or_else(|| " ".repeat(missing).into(), Cow::Borrowed)
}

fn widest<'a>(texts: impl Iterator<Item = Cow<'a, str>>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn model_of(agent: &AgentSpec) -> Option<String> {
    (!agent.model.provider.is_empty()).then(|| agent.model.to_string())
}

fn model_words(agent: &AgentSpec) -> String {
    let models: Vec<String> = agent.models().map(ToString::to_string).collect();
    model_of(agent).map_or_else(|| "no model yet".to_owned(), |_| models.join(", then "))
}

/// Who answers, a prompt or code or both, and in which files they are.
fn answer_words(agent: &AgentSpec) -> (String, String) {
    let (model, file) = (model_words(agent), agent.file.to_string_lossy());
    let Some(stand_in) = &agent.stand_in else { return (model, file.into_owned()) };
    let code = format!("{}:{}", stand_in.file.display(), stand_in.function);
    match stand_in.mode {
        AnswerMode::Agent => (model, format!("{file}; the code rests: {code}")),
        AnswerMode::Shadow => (format!("{model}, and code in its shadow"), format!("{file}, {code}")),
        AnswerMode::Fallback => (format!("code, and {model} where it is not sure"), format!("{code}, {file}")),
        AnswerMode::Code => ("code".to_owned(), format!("{code}; the prompt rests: {file}")),
    }
}

fn agent_text(out: &mut String, graph: &Graph<'_>, place: usize, worst: &Worst<'_>, styles: Styles) {
    let AgentNode { agent, tools, .. } = &graph.nodes[place];
    let (answers, files) = answer_words(agent);
    line(out, &["  ", &agent.name, "  ", &visible(&answers), "  (", &visible(&files), ")"]);
    line(out, &["    input   ", &typing_words(&agent.input, "text and attachments")]);
    line(out, &["    output  ", &typing_words(&agent.output, "text")]);
    if agent.cached {
        let why = graph.why_asked_anew(place, worst);
        let words = why.map_or_else(|| "replies count again".to_owned(), |why| format!("not used: {why}"));
        line(out, &["    cache   ", &visible(&words)]);
    }
    tools_text(out, tools, styles);
    if shells(agent).next().is_some() {
        line(out, &["    shells"]);
        let width = widest(shells(agent).map(|(name, _)| name.into()));
        for (name, config) in shells(agent) {
            let (grammar, fence) = (grammar_words(&config.grammar), fence_words(config));
            line(out, &["      ", name, &blanks(name, width), "  ", &grammar, "; ", &fence]);
        }
    }
    for tool in &agent.server_tools {
        let (tool, provider) = (tool.kind.name(), &agent.model.provider);
        line(out, &["    server  ", tool, "  (run by ", provider, ", outside the gate)"]);
    }
    if file_roots(agent).next().is_some() {
        line(out, &["    files"]);
    }
    for (toolset, name, root) in file_roots(agent) {
        let (before, after) = if name.is_empty() { ("", "") } else { (" ", "/") };
        let (base, bounds) = (base_words(&root.base), root.bounds());
        line(out, &["      ", toolset, before, name, after, "  ", &visible(&base), &visible(&bounds)]);
    }
    if !worst.is_empty() {
        line(out, &["    in the worst case"]);
    }
    for (capability, way) in worst {
        let (capability, asks) = (capability.words(), if way.asks { "  (asks)" } else { "" });
        out.push_str("      ");
        out.push_str(capability);
        out.push_str(&blanks(capability, 20));
        for (place, word) in way.words().iter().enumerate() {
            out.push_str(if place == 0 { " " } else { " → " });
            out.push_str(&visible(word));
        }
        line(out, &[asks]);
    }
}

fn tools_text(out: &mut String, tools: &[ReachableTool<'_>], styles: Styles) {
    if !tools.is_empty() {
        line(out, &["    tools"]);
    }
    let width = widest(tools.iter().map(|tool| visible(&tool.name)));
    for tool in tools {
        let (name, verdict) = (visible(&tool.name), verdict_text(&tool.verdict, styles));
        let from = match (tool.agent, tool.toolsets.as_slice()) {
            (Some(agent), _) if agent != tool.name && tool.toolsets == [tool.name.as_ref()] => {
                format!("agent {} over a list", visible(agent)).into()
            }
            (Some(_), _) => "agent".into(),
            (None, [only]) => Cow::Borrowed(*only),
            (None, several) => several.join(" + ").into(),
        };
        line(out, &["      ", &name, &blanks(&name, width), "  ", &verdict, "  (", &from, ")"]);
    }
}

fn grammar_words(grammar: &Grammar) -> Cow<'static, str> {
    match grammar {
        Grammar::ReadOnly | Grammar::FileOps => "known flags, and paths beneath the working directory".into(),
        Grammar::Rules { rules, .. } if rules.len() == 1 => "1 rule".into(),
        Grammar::Rules { rules, .. } => format!("{} rules", rules.len()).into(),
    }
}

fn shell_json((name, config): (&str, &ShellConfig)) -> Value {
    let (grammar, rules, default) = match &config.grammar {
        Grammar::ReadOnly => ("read_only", Vec::new(), Rule::Block),
        Grammar::FileOps => ("file_ops", Vec::new(), Rule::Block),
        Grammar::Rules { rules, default } => {
            ("rules", rules.iter().map(rule_json).collect(), default.unwrap_or(Rule::Block))
        }
    };
    json!({
        "toolset": name,
        "grammar": grammar,
        "rules": rules,
        "default": default,
        "write": config.write,
        "network": config.network,
    })
}

fn rule_json(rule: &ShellRule) -> Value {
    json!({
        "pattern": rule.pattern,
        "approval": rule.approval,
        "approval_required_if_args": rule.approval_required_if_args,
        "allowed_args": rule.allowed_args,
        "i_understand": rule.i_understand,
    })
}

/// A file in the directory of agents that are created at run time.
#[derive(Serialize)]
struct CreatedAgent<'a> {
    name: &'a str,
    /// Whether it was made here, so that it can be called.
    counts: bool,
    /// Why a call of it would fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    mistake: Option<String>,
}

fn created(program: &Program) -> Vec<CreatedAgent<'_>> {
    let looked_at = program.generated.keys().map(|name| {
        let counts = program.counts(name);
        let mistake = program.agent(name).err().filter(|_| counts).map(|error| error.to_string());
        CreatedAgent { name, counts, mistake }
    });
    looked_at.collect()
}

/// What keeps commands in, and what follows from it.
fn fence_state(fence: &Fence) -> String {
    let asks = "configured shells ask where they would allow";
    match (&fence.kind, fence.accept) {
        (FenceKind::Full { .. }, _) => fence.words(),
        (FenceKind::Thin { .. }, Accept::Thin) => format!("{}; accepted", fence.words()),
        (FenceKind::Thin { .. }, Accept::Full) => format!("{}; {asks}, unless they write nothing", fence.words()),
        (FenceKind::None { .. }, _) => format!("{}; {asks}", fence.words()),
    }
}

fn ground_json(ground: &ShellGround) -> Value {
    json!({
        "directory": ground.directory.display().to_string(),
        "fence": ground.fence.is_there().then(|| ground.fence.words()),
        "no_fence": (!ground.fence.is_there()).then(|| ground.fence.words()),
    })
}

/// Where the files of an agent's toolsets are, variants included: toolset, name of the root, root.
fn file_roots(agent: &AgentSpec) -> impl Iterator<Item = (&str, &str, &FileRoot)> {
    agent.toolsets.iter().flat_map(|used| {
        let (one, named) = match used.source.origin() {
            ToolsetSource::Filesystem(FilesystemConfig { roots: Roots::One(root) }) => (Some(("", root)), None),
            ToolsetSource::Filesystem(FilesystemConfig { roots: Roots::Named(roots) }) => (None, Some(roots)),
            _ => (None, None),
        };
        let named = named.into_iter().flatten().map(|(name, root)| (name.as_str(), root));
        one.into_iter().chain(named).map(|(name, root)| (used.name.as_str(), name, root))
    })
}

fn base_words(base: &Base) -> Cow<'_, str> {
    match base {
        Base::WorkingDirectory => "the working directory".into(),
        Base::Project(path) if path == Path::new(".") => "the project".into(),
        Base::Project(path) => format!("./{}", path.display()).into(),
        Base::Absolute(path) => path.to_string_lossy(),
    }
}

/// What a root is relative to, and where it is from there.
fn base_parts(base: &Base) -> (&'static str, &Path) {
    match base {
        Base::WorkingDirectory => ("working_directory", Path::new(".")),
        Base::Project(path) => ("project", path),
        Base::Absolute(path) => ("absolute", path),
    }
}

fn root_json((toolset, name, root): (&str, &str, &FileRoot)) -> Value {
    let (base, directory) = base_parts(&root.base);
    json!({
        "toolset": toolset,
        "root": Some(name).filter(|name| !name.is_empty()),
        "base": base,
        "directory": directory.display().to_string(),
        "mode": match root.access {
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        },
        "suffixes": root.suffixes,
        "max_file_bytes": root.max_file_bytes,
    })
}

fn typing_words(typing: &Typing, untyped: &'static str) -> Cow<'static, str> {
    match typing {
        Typing::Untyped => untyped.into(),
        Typing::Python(PythonType { class, .. }) => match &class.module {
            PythonModule::File(file) => format!("{}:{} (Python)", visible(file), class.class).into(),
            PythonModule::Importable(module) => format!("{module}.{} (Python)", class.class).into(),
        },
        Typing::Schema(schema) => fields_words(&schema.to().unwrap_or(Value::Null)).into(),
    }
}

/// `{topic: string, limit?: integer}`.
fn fields_words(schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return schema["type"].as_str().unwrap_or("by its schema").to_owned();
    };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let field = |(name, field): (&String, &Value)| {
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        format!("{}{mark}: {}", visible(name), field_words(field))
    };
    format!("{{{}}}", properties.iter().map(field).collect::<Vec<_>>().join(", "))
}

/// What a field may be: `string`, `low | high`.
fn field_words(field: &Value) -> String {
    let word = |value: &Value| {
        value.as_str().map_or_else(|| visible(&value.to_string()).into_owned(), |text| visible(text).into_owned())
    };
    let joined = |values: &[Value]| values.iter().map(word).collect::<Vec<_>>().join(" | ");
    match (&field["enum"], &field["const"], &field["type"]) {
        (Value::Array(values), _, _) if !values.is_empty() => joined(values),
        (_, value, _) if !value.is_null() => word(value),
        (_, _, Value::Array(types)) => joined(types),
        (_, _, Value::String(word)) => visible(word).into_owned(),
        _ => "any".to_owned(),
    }
}

pub fn verdict_words(verdict: &DeclaredVerdict) -> Cow<'static, str> {
    verdict_text(verdict, Styles { coloured: false })
}

/// The same, in colours on a terminal.
fn verdict_text(verdict: &DeclaredVerdict, styles: Styles) -> Cow<'static, str> {
    let painted = |style: Style, word: &'static str| -> Cow<'static, str> {
        if styles.coloured { styles.paint(style, word).into() } else { word.into() }
    };
    match verdict {
        DeclaredVerdict::Allow => painted(Style::Added, "allow"),
        DeclaredVerdict::Ask => painted(Style::Warning, "ask"),
        DeclaredVerdict::AlwaysAsk => painted(Style::Warning, "always ask"),
        DeclaredVerdict::Block => painted(Style::Removed, "block"),
        DeclaredVerdict::Unknown => painted(Style::Dim, "unknown"),
        DeclaredVerdict::ByCommand(commands) => command_words(commands, styles).into(),
    }
}

fn rule_text(rule: Rule, styles: Styles) -> String {
    let style = match rule {
        Rule::Allow => Style::Added,
        Rule::Ask => Style::Warning,
        Rule::Block => Style::Removed,
    };
    styles.paint(style, rule.word())
}

/// Neighbours with one verdict together, in order: the first pattern that matches decides.
fn command_words(commands: &[CommandVerdict], styles: Styles) -> String {
    let mut words = String::with_capacity(16 * commands.len());
    let mut group = None;
    let mut add = |verdict: Rule, pattern: &str| {
        if group == Some(verdict) {
            words.push_str(", ");
        } else {
            words.push_str(if group.is_none() { "" } else { "; " });
            words.push_str(&rule_text(verdict, styles));
            words.push(' ');
        }
        group = Some(verdict);
        words.push_str(pattern);
    };
    let is_default = |command: &CommandVerdict| command.pattern == "*";
    for command in commands {
        add(command.verdict, &if is_default(command) { "any other".into() } else { visible(&command.pattern) });
    }
    if !commands.iter().any(is_default) {
        words.push_str(if words.is_empty() { "" } else { "; " });
        words.push_str(&rule_text(Rule::Block, styles));
        words.push_str(" any other");
    }
    words
}

/// Every agent's calls are shown once; where it comes again its name stands alone.
fn call_tree(out: &mut String, program: &Program, graph: &Graph<'_>) {
    let count = graph.nodes.len();
    let mut tree = CallTree { graph, shown: vec![false; count], is_on_path: vec![false; count], out };
    if let Entry::Agent(entry) = &program.entry
        && let Some(entry) = graph.place(entry)
    {
        tree.root(entry);
    }
    // What no call of the entry reaches: first what has no caller, then what is left (cycles among themselves).
    let mut is_called = vec![false; count];
    graph.nodes.iter().flat_map(|node| &node.callees).for_each(|callee| is_called[*callee] = true);
    (0..count).filter(|agent| !is_called[*agent]).for_each(|agent| tree.root(agent));
    (0..count).for_each(|agent| tree.root(agent));
}

struct CallTree<'a> {
    graph: &'a Graph<'a>,
    shown: Vec<bool>,
    is_on_path: Vec<bool>,
    out: &'a mut String,
}

/// What is still to be drawn below a node; kept on a stack, since a chain of agents may be very long.
struct Branch<'a> {
    agent: usize,
    callees: &'a [usize],
    next: usize,
}

/// Deeper levels are not indented any further.
const DEEPEST_INDENT: usize = 24;

impl<'a> CallTree<'a> {
    fn root(&mut self, agent: usize) {
        if std::mem::replace(&mut self.shown[agent], true) {
            return;
        }
        self.out.push_str("  ");
        self.agent(agent, "");
        let mut path = vec![self.branch(agent)];
        while let Some(branch) = path.last_mut() {
            let Some(&callee) = branch.callees.get(branch.next) else {
                self.is_on_path[branch.agent] = false;
                path.pop();
                continue;
            };
            branch.next += 1;
            push_prefix(self.out, &path);
            let is_new = !self.is_on_path[callee] && !std::mem::replace(&mut self.shown[callee], true);
            let has_calls = !self.graph.nodes[callee].callees.is_empty();
            let mark = match (self.is_on_path[callee], is_new, has_calls) {
                (true, ..) => "  ↺ cycle",
                (false, false, true) => "  (see above)",
                (false, ..) => "",
            };
            self.agent(callee, mark);
            if is_new {
                path.push(self.branch(callee));
            }
        }
    }

    fn branch(&mut self, agent: usize) -> Branch<'a> {
        self.is_on_path[agent] = true;
        Branch { agent, callees: &self.graph.nodes[agent].callees, next: 0 }
    }

    /// The rest of a line.
    fn agent(&mut self, agent: usize, mark: &str) {
        let AgentNode { agent, calls_any, .. } = &self.graph.nodes[agent];
        line(self.out, &[&agent.name, if *calls_any { "  → any agent" } else { "" }, mark]);
    }
}

fn push_prefix(out: &mut String, path: &[Branch<'_>]) {
    let (last, above) = path.split_last().expect("a callee has a caller");
    let is_last = |branch: &Branch<'_>| branch.next >= branch.callees.len();
    let hidden = above.len().saturating_sub(DEEPEST_INDENT);
    out.push_str(if hidden > 0 { "  … " } else { "  " });
    for branch in &above[hidden..] {
        out.push_str(if is_last(branch) { "   " } else { "│  " });
    }
    out.push_str(if is_last(last) { "└─ " } else { "├─ " });
}

pub fn json(path: &Path, checked: &ProjectCheck, ground: Option<&ShellGround>) -> String {
    let ProjectCheck { linked, trust, servers, access, residents, tests, .. } = checked;
    let program = &linked.program;
    let graph = Graph::new(program);
    let agents: Vec<Value> =
        graph.worst_cases().iter().enumerate().map(|(place, worst)| agent_json(&graph, place, worst)).collect();
    let entry = match &program.entry {
        Entry::Agent(name) => json!({"agent": name}),
        Entry::Function(function) => json!({"function": function.to_string()}),
        Entry::Open => Value::Null,
    };
    let calls: BTreeMap<&str, Vec<&str>> =
        graph.nodes.iter().map(|node| (node.agent.name.as_str(), callees(&graph, node).collect())).collect();
    json::lines(&json!({
        "ok": servers.iter().all(|server| server.offer.tools.is_ok()),
        "project": path.display().to_string(),
        "entry": entry,
        "approval_mode": program.policy.approval_mode,
        "commands": ground.map(ground_json),
        "agents": agents,
        "calls": calls,
        "cyclic": graph.cyclic(),
        "unreached": graph.unreached(),
        "open": program.open,
        "trust": {"given": trust.is_given, "digest": trust.digest, "items": trust.items},
        "programs": residents.iter().map(CheckedResident::json).collect::<Vec<_>>(),
        "servers": servers.iter().map(server_json).collect::<Vec<_>>(),
        "logins": access.iter().map(ServerAccess::json).collect::<Vec<_>>(),
        "created": created(program),
        "tests": {"cases": tests.cases, "untested": tests.untested},
        "notes": linked.notes.json(),
        "warnings": checked.inspected.iter().flat_map(Report::json).collect::<Vec<_>>(),
        "errors": [],
    }))
}

pub fn json_errors(path: &Path, report: &Report) -> String {
    let diagnostics = serde_json::to_value(report.json()).unwrap_or_default();
    let diagnostics = diagnostics.as_array().cloned().unwrap_or_default();
    let of = |severity: &str| -> Vec<&Value> { diagnostics.iter().filter(|it| it["severity"] == severity).collect() };
    json::lines(&json!({
        "ok": false,
        "project": path.display().to_string(),
        "errors": of("error"),
        "warnings": of("warning"),
        "notes": of("note"),
        "error_count": report.error_count(),
        "omitted": report.omitted(),
    }))
}

fn callees<'g>(graph: &'g Graph<'_>, caller: &'g AgentNode<'_>) -> impl Iterator<Item = &'g str> {
    caller.callees.iter().map(|callee| graph.nodes[*callee].agent.name.as_str())
}

fn agent_json(graph: &Graph<'_>, place: usize, worst: &Worst<'_>) -> Value {
    let AgentNode { agent, tools, calls_any, .. } = &graph.nodes[place];
    let cache = agent.cached.then(|| json!({"not_used_because": graph.why_asked_anew(place, worst)}));
    let worst: BTreeMap<String, Value> = worst
        .iter()
        .map(|(capability, way)| (serde_word(capability), json!({"path": way.words(), "asks": way.asks})))
        .collect();
    json!({
        "name": agent.name,
        "file": agent.file.display().to_string(),
        "description": agent.description,
        "model": model_of(agent),
        "answers": answer_word(agent),
        "code": agent.stand_in.as_ref().map(code_json),
        "fallback_models": agent.fallbacks.iter().map(|other| other.model.to_string()).collect::<Vec<_>>(),
        "input": typing_json(&agent.input),
        "output": typing_json(&agent.output),
        "tools": tools.iter().map(tool_json).collect::<Vec<_>>(),
        "shells": shells(agent).map(shell_json).collect::<Vec<_>>(),
        "server_side_tools": agent.server_tools.iter().map(|tool| tool.kind.name()).collect::<Vec<_>>(),
        "files": file_roots(agent).map(root_json).collect::<Vec<_>>(),
        "calls_any_agent": calls_any,
        "limits": agent.limits,
        "cache": cache,
        "worst_case": worst,
    })
}

/// Whether a prompt answers, code, or both.
fn answer_word(agent: &AgentSpec) -> &'static str {
    match agent.stand_in.as_ref().map(|stand_in| stand_in.mode) {
        None | Some(AnswerMode::Agent) => "prompt",
        Some(AnswerMode::Shadow | AnswerMode::Fallback) => "both",
        Some(AnswerMode::Code) => "code",
    }
}

fn code_json(stand_in: &StandIn) -> Value {
    json!({
        "file": stand_in.file.display().to_string(),
        "function": stand_in.function,
        "mode": stand_in.mode,
        "asks": stand_in.approval != Some(Rule::Allow),
    })
}

/// The word that an enum has in JSON.
fn serde_word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn typing_json(typing: &Typing) -> Value {
    match typing {
        Typing::Untyped => Value::Null,
        Typing::Schema(schema) => json!({"schema": schema}),
        Typing::Python(_) => json!({"python": typing_words(typing, "").trim_end_matches(" (Python)")}),
    }
}

fn tool_json(tool: &ReachableTool<'_>) -> Value {
    let (verdict, commands) = match &tool.verdict {
        DeclaredVerdict::ByCommand(commands) => ("by_command".to_owned(), json!(commands)),
        verdict => (serde_word(verdict), Value::Null),
    };
    json!({
        "name": tool.name,
        "toolsets": tool.toolsets,
        "verdict": verdict,
        "commands": commands,
        "agent": tool.agent,
        "capabilities": tool.capabilities,
    })
}

/// The call graph in Graphviz's language: agents as boxes, the entry bold, calls as arrows.
pub fn dot(program: &Program) -> String {
    let mut out = String::from("digraph calls {\n  rankdir=LR;\n  node [shape=box];\n");
    let entry = match &program.entry {
        Entry::Agent(name) => Some(name.as_str()),
        Entry::Function(_) | Entry::Open => None,
    };
    for agent in program.agents.values() {
        let style = if entry == Some(agent.name.as_str()) { " style=bold" } else { "" };
        // Names are letters, digits, `_` and `-`; models are foreign text.
        let model = visible(&model_words(agent)).replace('\\', "\\\\").replace('"', "\\\"");
        writeln!(out, "  \"{}\" [label=\"{}\\n{model}\"{style}];", agent.name, agent.name).expect("a text takes all");
    }
    let graph = Graph::new(program);
    for node in &graph.nodes {
        let caller = &node.agent.name;
        for callee in callees(&graph, node) {
            writeln!(out, "  \"{caller}\" -> \"{callee}\";").expect("a text takes all");
        }
        if node.calls_any {
            writeln!(out, "  \"{caller}\" -> \"any agent\" [style=dashed];").expect("a text takes all");
        }
    }
    out.push_str("}\n");
    out
}
