//! What `check` shows of a linked project: as text, as JSON, and as a graph. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use llm_do::escape::{is_deceptive, visible, visible_start};
use llm_do::project::link::Linked;
use llm_do::project::reach::{AgentTool, Worst};
use llm_do::project::worker::PythonModule;
use llm_do::project::{AgentSpec, ApprovalMode, Entry, Program, PythonType, Typing};
use llm_do::runtime::mcp::Offer;
use llm_do::syntax::diagnostic::Report;
use llm_do::tools::DeclaredTool;
use llm_do::tools::approval::{CommandVerdict, DeclaredVerdict, Rule};
use llm_do::tools::shell::fence_words;
use llm_do::tools::source::{
    Access, Base, FileRoot, FilesystemConfig, Grammar, Roots, ShellConfig, ShellRule, ToolsetSource,
};
use serde_json::{Value, json};

use crate::trust::Item;

/// What of the project needs trust, and whether it has it.
pub struct Trust {
    pub items: Vec<Item>,
    pub is_given: bool,
}

/// All that is shown of a project.
pub struct Checked {
    pub linked: Linked,
    pub trust: Trust,
    /// Empty if nobody wanted to know.
    pub servers: Vec<ConnectedServer>,
}

/// An MCP server that was asked what it offers.
pub struct ConnectedServer {
    /// Its command, or its address.
    pub reached: String,
    pub declared: Option<Vec<DeclaredTool>>,
    pub offer: Offer,
}

/// Where commands run and what keeps them in; asked for only if an agent has a shell.
pub struct ShellGround {
    pub directory: PathBuf,
    /// What the fence is made of, or why there is none.
    pub fence: Result<String, String>,
}

/// The shells of an agent, variants included.
pub fn shells(agent: &AgentSpec) -> impl Iterator<Item = (&str, &ShellConfig)> {
    agent.toolsets.iter().filter_map(|used| match used.source.origin() {
        ToolsetSource::Shell(config) => Some((used.name.as_str(), config)),
        _ => None,
    })
}

pub fn text(path: &Path, checked: &Checked, ground: Option<&ShellGround>) -> String {
    let Checked { linked: Linked { program, .. }, trust, servers } = checked;
    let mut out = String::new();
    let mut line = |label: &str, value: &str| writeln!(out, "{label:<9}{value}").expect("a text takes all");
    line("project", &visible(&path.display().to_string()));
    line("entry", &entry_words(&program.entry));
    match program.policy.approval_mode {
        ApprovalMode::Prompt => {}
        ApprovalMode::ApproveAll => line("approval", "approve_all: every question is answered with yes"),
        ApprovalMode::RejectAll => line("approval", "reject_all: every question is answered with no"),
    }
    if !program.open.is_empty() {
        let names = visible_list(&program.open, ", ");
        line("open", &format!("{names} (defined in Python, which check does not run)"));
    }
    if !program.generated.is_empty() {
        let names: Vec<&str> = program.generated.keys().map(String::as_str).collect();
        line("created", &format!("{} (at run time; reached by `agent_call`)", names.join(", ")));
    }
    if !trust.items.is_empty() {
        let state = if trust.is_given { "given for" } else { "needed for, and none of it was run or looked at here" };
        line("trust", state);
        trust.items.iter().for_each(|item| line("", &item.words()));
    }
    if let Some(ground) = ground {
        let directory = ground.directory.display().to_string();
        let fence = match &ground.fence {
            Ok(fence) => format!("behind a fence ({fence})"),
            Err(reason) => {
                format!("without a fence ({}): configured shells ask where they would allow", visible(reason))
            }
        };
        line("commands", &format!("in {}, {fence}", visible(&directory)));
    }
    if !servers.is_empty() {
        out.push_str("\nservers\n");
        for server in servers {
            server_text(&mut out, server);
        }
    }
    let worst = program.worst_cases();
    out.push_str("\nagents\n");
    for agent in program.agents.values() {
        agent_text(&mut out, program, agent, &worst[agent.name.as_str()]);
    }
    out.push_str("\ncalls\n");
    call_tree(&mut out, program);
    out
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
        Entry::Open => "defined in Python, which check does not run".to_owned(),
    }
}

fn agent_text(out: &mut String, program: &Program, agent: &AgentSpec, worst: &Worst) {
    let mut line = |indent: usize, text: &str| writeln!(out, "{:indent$}{text}", "").expect("a text takes all");
    let (model, file) = (agent.model.to_string(), agent.file.display().to_string());
    line(2, &format!("{}  {}  ({})", agent.name, visible(&model), visible(&file)));
    line(4, &format!("input   {}", typing_words(&agent.input, "text and attachments")));
    line(4, &format!("output  {}", typing_words(&agent.output, "text")));
    let tools = program.tools_of(agent);
    if !tools.is_empty() {
        line(4, "tools");
        let width = tools.iter().map(|tool| visible(&tool.name).chars().count()).max().unwrap_or(0);
        for tool in &tools {
            let from = if tool.agent.is_some() { "agent".to_owned() } else { tool.toolsets.join(" + ") };
            line(6, &format!("{:<width$}  {}  ({from})", visible(&tool.name), verdict_words(&tool.verdict)));
        }
    }
    let shells: Vec<_> = shells(agent).collect();
    if !shells.is_empty() {
        line(4, "shells");
        let width = shells.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, config) in shells {
            line(6, &format!("{name:<width$}  {}; {}", grammar_words(&config.grammar), fence_words(config)));
        }
    }
    for tool in &agent.server_tools {
        line(4, &format!("server  {}  (run by {}, outside the gate)", tool.kind.name(), agent.model.provider));
    }
    let files: Vec<_> = file_roots(agent).collect();
    if !files.is_empty() {
        line(4, "files");
    }
    for (toolset, name, root) in files {
        let name = if name.is_empty() { String::new() } else { format!(" {name}/") };
        line(6, &format!("{toolset}{name}  {}{}", visible(&base_words(&root.base)), visible(&root.bounds())));
    }
    if !worst.is_empty() {
        line(4, "in the worst case");
    }
    for (capability, way) in worst {
        let asks = if way.asks { "  (asks)" } else { "" };
        line(6, &format!("{:<20} {}{asks}", capability.words(), visible_list(&way.words(), " → ")));
    }
}

fn grammar_words(grammar: &Grammar) -> String {
    match grammar {
        Grammar::ReadOnly | Grammar::FileOps => "known flags, and paths beneath the working directory".to_owned(),
        Grammar::Rules { rules, .. } if rules.len() == 1 => "1 rule".to_owned(),
        Grammar::Rules { rules, .. } => format!("{} rules", rules.len()),
    }
}

fn shell_json((name, config): (&str, &ShellConfig)) -> Value {
    let (grammar, rules, default) = match &config.grammar {
        Grammar::ReadOnly => ("read_only", Vec::new(), Rule::Block),
        Grammar::FileOps => ("file_ops", Vec::new(), Rule::Block),
        Grammar::Rules { rules, default } => ("rules", rules.iter().map(rule_json).collect(), *default),
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
        "i_understand": rule.i_understand,
    })
}

fn ground_json(ground: &ShellGround) -> Value {
    json!({
        "directory": ground.directory.display().to_string(),
        "fence": ground.fence.as_ref().ok(),
        "no_fence": ground.fence.as_ref().err(),
    })
}

/// Where the files of an agent's toolsets are, variants included: toolset, name of the root, root.
fn file_roots(agent: &AgentSpec) -> impl Iterator<Item = (&str, &str, &FileRoot)> {
    agent.toolsets.iter().flat_map(|used| {
        let roots: Vec<(&str, &FileRoot)> = match used.source.origin() {
            ToolsetSource::Filesystem(FilesystemConfig { roots: Roots::One(root) }) => vec![("", root)],
            ToolsetSource::Filesystem(FilesystemConfig { roots: Roots::Named(roots) }) => {
                roots.iter().map(|(name, root)| (name.as_str(), root)).collect()
            }
            _ => Vec::new(),
        };
        roots.into_iter().map(|(name, root)| (used.name.as_str(), name, root))
    })
}

fn base_words(base: &Base) -> String {
    match base {
        Base::WorkingDirectory => "the working directory".to_owned(),
        Base::Project(path) if path == Path::new(".") => "the project".to_owned(),
        Base::Project(path) => format!("{} in the project", path.display()),
        Base::Absolute(path) => path.display().to_string(),
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

fn typing_words(typing: &Typing, untyped: &str) -> String {
    match typing {
        Typing::Untyped => untyped.to_owned(),
        Typing::Python(PythonType { class, .. }) => match &class.module {
            PythonModule::File(file) => format!("{}:{} (Python)", visible(file), class.class),
            PythonModule::Importable(module) => format!("{module}.{} (Python)", class.class),
        },
        Typing::Schema(schema) => fields_words(&schema.to().unwrap_or(Value::Null)),
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
        format!("{}{mark}: {}", visible(name), field["type"].as_str().unwrap_or("any"))
    };
    format!("{{{}}}", properties.iter().map(field).collect::<Vec<_>>().join(", "))
}

pub fn verdict_words(verdict: &DeclaredVerdict) -> String {
    match verdict {
        DeclaredVerdict::Allow => "allow".to_owned(),
        DeclaredVerdict::Ask => "ask".to_owned(),
        DeclaredVerdict::AlwaysAsk => "always ask".to_owned(),
        DeclaredVerdict::Block => "block".to_owned(),
        DeclaredVerdict::Unknown => "unknown".to_owned(),
        DeclaredVerdict::ByCommand(commands) => command_words(commands),
    }
}

/// Neighbours with one verdict together, in order: the first pattern that matches decides.
fn command_words(commands: &[CommandVerdict]) -> String {
    let mut groups: Vec<(Rule, Vec<String>)> = Vec::new();
    for command in commands {
        let pattern = if command.pattern == "*" { "any other".into() } else { visible(&command.pattern).into_owned() };
        match groups.last_mut() {
            Some((verdict, patterns)) if *verdict == command.verdict => patterns.push(pattern),
            _ => groups.push((command.verdict, vec![pattern])),
        }
    }
    let has_default = commands.iter().any(|command| command.pattern == "*");
    if !has_default {
        groups.push((Rule::Block, vec!["any other".to_owned()]));
    }
    let words = groups.iter().map(|(verdict, patterns)| format!("{} {}", verdict.word(), patterns.join(", ")));
    words.collect::<Vec<_>>().join("; ")
}

/// Every agent's calls are shown once; where it comes again its name stands alone.
fn call_tree(out: &mut String, program: &Program) {
    let callees = program.agents.values().map(|agent| (agent.name.as_str(), program.callees(agent))).collect();
    let mut tree = CallTree { program, callees, shown: HashSet::new(), out };
    if let Entry::Agent(entry) = &program.entry
        && let Some((entry, _)) = program.agents.get_key_value(entry)
    {
        tree.root(entry);
    }
    // What no call of the entry reaches: first what nobody calls, then what is left (cycles among themselves).
    let called: HashSet<&str> = tree.callees.values().flatten().copied().collect();
    for name in program.agents.keys().filter(|name| !called.contains(name.as_str())) {
        tree.root(name);
    }
    for name in program.agents.keys() {
        tree.root(name);
    }
}

struct CallTree<'a> {
    program: &'a Program,
    callees: HashMap<&'a str, Vec<&'a str>>,
    shown: HashSet<&'a str>,
    out: &'a mut String,
}

/// What is still to be drawn below a node; kept on a stack, since a chain of agents may be very long.
struct Branch<'a> {
    name: &'a str,
    callees: Vec<&'a str>,
    next: usize,
}

/// Deeper levels are not indented any further.
const DEEPEST_INDENT: usize = 24;

impl<'a> CallTree<'a> {
    fn root(&mut self, name: &'a str) {
        if !self.shown.insert(name) {
            return;
        }
        self.line("  ", name, "");
        let mut path = vec![self.branch(name)];
        let mut names_on_path = HashSet::from([name]);
        while let Some(branch) = path.last_mut() {
            let Some(&callee) = branch.callees.get(branch.next) else {
                names_on_path.remove(branch.name);
                path.pop();
                continue;
            };
            branch.next += 1;
            let prefix = prefix(&path);
            let on_path = names_on_path.contains(callee);
            let is_new = !on_path && self.shown.insert(callee);
            let has_calls = !self.callees[callee].is_empty();
            let mark = match (on_path, is_new, has_calls) {
                (true, ..) => "  ↺ cycle",
                (false, false, true) => "  (see above)",
                (false, ..) => "",
            };
            self.line(&prefix, callee, mark);
            if is_new {
                let branch = self.branch(callee);
                names_on_path.insert(callee);
                path.push(branch);
            }
        }
    }

    fn branch(&self, name: &'a str) -> Branch<'a> {
        Branch { name, callees: self.callees[name].clone(), next: 0 }
    }

    fn line(&mut self, prefix: &str, name: &str, mark: &str) {
        let any = if Program::calls_any(&self.program.agents[name]) { "  → any agent" } else { "" };
        writeln!(self.out, "{prefix}{name}{any}{mark}").expect("a text takes all");
    }
}

fn prefix(path: &[Branch<'_>]) -> String {
    let (last, above) = path.split_last().expect("a callee has a caller");
    let mut prefix = String::from("  ");
    let hidden = above.len().saturating_sub(DEEPEST_INDENT);
    if hidden > 0 {
        prefix.push_str("… ");
    }
    for branch in &above[hidden..] {
        prefix.push_str(if branch.next < branch.callees.len() { "│  " } else { "   " });
    }
    prefix.push_str(if last.next < last.callees.len() { "├─ " } else { "└─ " });
    prefix
}

pub fn json(path: &Path, checked: &Checked, ground: Option<&ShellGround>) -> String {
    let Checked { linked, trust, servers } = checked;
    let program = &linked.program;
    let worst = program.worst_cases();
    let agents: Vec<Value> =
        program.agents.values().map(|agent| agent_json(program, agent, &worst[agent.name.as_str()])).collect();
    let entry = match &program.entry {
        Entry::Agent(name) => json!({"agent": name}),
        Entry::Function(function) => json!({"function": function.to_string()}),
        Entry::Open => Value::Null,
    };
    let calls: BTreeMap<&str, Vec<&str>> =
        program.agents.values().map(|agent| (agent.name.as_str(), program.callees(agent))).collect();
    pretty(&json!({
        "ok": servers.iter().all(|server| server.offer.tools.is_ok()),
        "project": path.display().to_string(),
        "entry": entry,
        "approval_mode": program.policy.approval_mode,
        "commands": ground.map(ground_json),
        "agents": agents,
        "calls": calls,
        "cyclic": program.cyclic_agents(),
        "unreached": program.unreached_agents(),
        "open": program.open,
        "trust": {"given": trust.is_given, "items": trust.items},
        "servers": servers.iter().map(server_json).collect::<Vec<_>>(),
        "created": program.generated.keys().collect::<Vec<_>>(),
        "notes": linked.notes.json(),
        "errors": [],
    }))
}

pub fn json_errors(path: &Path, report: &Report) -> String {
    let diagnostics = serde_json::to_value(report.json()).unwrap_or_default();
    let (errors, notes): (Vec<Value>, Vec<Value>) =
        diagnostics.as_array().cloned().unwrap_or_default().into_iter().partition(|it| it["severity"] == "error");
    pretty(&json!({
        "ok": false,
        "project": path.display().to_string(),
        "errors": errors,
        "notes": notes,
        "error_count": report.error_count(),
        "omitted": report.omitted(),
    }))
}

/// Inside JSON any character can be written as an escape, and deceptive ones are: a terminal may be its reader.
fn pretty(value: &Value) -> String {
    let json = format!("{value:#}\n");
    // Nearly always; the rest is only looked at one by one.
    if json.bytes().all(|byte| matches!(byte, b'\n' | b' '..=b'~')) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_deceptive(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(text, "\\u{unit:04x}").expect("a text takes all");
            }
        } else {
            text.push(c);
        }
    }
    text
}

fn agent_json(program: &Program, agent: &AgentSpec, worst: &Worst) -> Value {
    let worst: BTreeMap<String, Value> = worst
        .iter()
        .map(|(capability, way)| (serde_word(capability), json!({"path": way.words(), "asks": way.asks})))
        .collect();
    json!({
        "name": agent.name,
        "file": agent.file.display().to_string(),
        "description": agent.description,
        "model": agent.model.to_string(),
        "input": typing_json(&agent.input),
        "output": typing_json(&agent.output),
        "tools": program.tools_of(agent).iter().map(tool_json).collect::<Vec<_>>(),
        "shells": shells(agent).map(shell_json).collect::<Vec<_>>(),
        "server_side_tools": agent.server_tools.iter().map(|tool| tool.kind.name()).collect::<Vec<_>>(),
        "files": file_roots(agent).map(root_json).collect::<Vec<_>>(),
        "calls_any_agent": Program::calls_any(agent),
        "limits": agent.limits,
        "worst_case": worst,
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

fn tool_json(tool: &AgentTool) -> Value {
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
        let model = visible(&agent.model.to_string()).replace('\\', "\\\\").replace('"', "\\\"");
        writeln!(out, "  \"{}\" [label=\"{}\\n{model}\"{style}];", agent.name, agent.name).expect("a text takes all");
    }
    for agent in program.agents.values() {
        for callee in program.callees(agent) {
            writeln!(out, "  \"{}\" -> \"{callee}\";", agent.name).expect("a text takes all");
        }
        if Program::calls_any(agent) {
            writeln!(out, "  \"{}\" -> \"any agent\" [style=dashed];", agent.name).expect("a text takes all");
        }
    }
    out.push_str("}\n");
    out
}
