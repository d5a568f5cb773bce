//! Where toolsets come from: plain data that can be printed and compared. A live instance is made of it when a call
//! opens.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::approval::{CommandVerdict, DeclaredVerdict, Rule};
use super::ask_user::ASK_USER;
use super::skill::LOAD_SKILL;
use super::{Capabilities, Capability, DeclaredTool};

/// A declared capability: what an agent means by a name in `toolsets`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum ToolsetSource {
    /// Files beneath roots.
    Filesystem(FilesystemConfig),
    /// Commands.
    Shell(ShellConfig),
    /// The tools of an MCP server.
    Mcp(McpConfig),
    /// Agents that are made at run time.
    DynamicAgents(AgentToolNames),
    /// Questions to the person.
    AskUser,
    /// Texts that are read when they are needed, in these directories.
    Skills(Vec<Base>),
    /// Another agent, by name: cycles are legal.
    Agent(String),
    /// Another agent, called once for each item of a list.
    Map(Arc<MapConfig>),
    /// A toolset that Python files define.
    Python(PythonToolset),
    /// A toolset or a single tool that the embedding program registered.
    Registered(RegisteredSource),
    /// A name that only Python files which were not looked at can define.
    Open,
    /// A variant of another toolset.
    Variant(Arc<Variant>),
}

/// Writes a path, which need not be UTF-8, so that two paths that differ stay different.
fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.as_os_str().as_encoded_bytes().escape_ascii())
}

/// Under which names `dynamic_agents` offers its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AgentToolNames {
    /// `agent_create` and `agent_call`.
    Agent,
    /// `worker_create` and `worker_call`, as older prompts say.
    Worker,
}

impl AgentToolNames {
    /// The words for it in files.
    pub(crate) const WORDS: &'static [&'static str] = &["agent", "worker"];

    /// The names that exactly this word means; `None` if it is none of [`AgentToolNames::WORDS`].
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "agent" => Some(Self::Agent),
            "worker" => Some(Self::Worker),
            _ => None,
        }
    }

    /// The name of the tool that creates an agent.
    pub(crate) const fn create(self) -> &'static str {
        match self {
            Self::Agent => "agent_create",
            Self::Worker => "worker_create",
        }
    }

    /// The name of the tool that calls an agent by name.
    pub(crate) const fn call(self) -> &'static str {
        match self {
            Self::Agent => "agent_call",
            Self::Worker => "worker_call",
        }
    }

    /// The other name of one of these tools: rules and code may use either.
    pub(crate) fn other_name(tool: &str) -> Option<&'static str> {
        let pairs = [(Self::Agent, Self::Worker), (Self::Worker, Self::Agent)];
        let other = |(names, others): &(Self, Self)| match tool {
            tool if tool == names.create() => Some(others.create()),
            tool if tool == names.call() => Some(others.call()),
            _ => None,
        };
        pairs.iter().find_map(other)
    }
}

/// A toolset for files, and where they lie.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FilesystemConfig {
    /// Where the files are.
    pub roots: Roots,
}

/// The directories beneath which files are read and written: one, or several with names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Roots {
    /// One root, whose files have plain paths.
    One(FileRoot),
    /// Paths start with the name of a root.
    Named(BTreeMap<String, FileRoot>),
}

impl Roots {
    /// Every root; those with names in the order of the names.
    pub(crate) fn all(&self) -> Box<dyn Iterator<Item = &FileRoot> + '_> {
        match self {
            Self::One(root) => Box::new(std::iter::once(root)),
            Self::Named(roots) => Box::new(roots.values()),
        }
    }
}

/// A directory, and what may be done with the files beneath it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileRoot {
    /// Where it is.
    pub base: Base,
    /// What may be done beneath it.
    pub access: Access,
    /// Only files with these endings; empty: any.
    pub suffixes: Vec<String>,
    /// The largest file that is read or written.
    pub max_file_bytes: Option<u64>,
}

impl FileRoot {
    /// What may be done there, for people and for models: empty, or starting with a comma.
    pub fn bounds(&self) -> String {
        let mut words = String::new();
        if self.access == Access::ReadOnly {
            words.push_str(", read-only");
        }
        if !self.suffixes.is_empty() {
            words.push_str(&format!(", only {} files", self.suffixes.join(" ")));
        }
        if let Some(limit) = self.max_file_bytes {
            words.push_str(&format!(", at most {limit} bytes a file"));
        }
        words
    }
}

/// Where a root lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Base {
    /// The working directory of the run.
    WorkingDirectory,
    /// Relative to the project root.
    Project(#[serde(serialize_with = "path")] PathBuf),
    /// Outside the project.
    Absolute(#[serde(serialize_with = "path")] PathBuf),
}

/// Whether files may only be read, or also be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Access {
    /// Files are read.
    ReadOnly,
    /// Files are read and written.
    ReadWrite,
}

/// A shell: which commands it runs, and what these may write and reach.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShellConfig {
    /// Which commands there are.
    pub grammar: Grammar,
    /// What may be done in the working directory.
    pub directory: Access,
    /// Directories that commands may write.
    pub write: Vec<String>,
    /// Whether commands reach the network.
    pub network: bool,
}

/// Which commands a shell runs, and who has to agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Grammar {
    /// A positive grammar of flags and operands for each command.
    ReadOnly,
    /// A few commands that work on files.
    FileOps,
    /// What rules say.
    Rules {
        /// The first rule that matches decides.
        rules: Vec<ShellRule>,
        /// For commands that no rule is about, if it was written: such commands are blocked unless a default says
        /// otherwise.
        default: Option<Rule>,
    },
}

/// What a configured shell does with commands that begin with certain words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShellRule {
    /// The leading words of the command.
    pub pattern: Vec<String>,
    /// What becomes of a command that matches.
    pub approval: Rule,
    /// Words that turn `allow` into `ask`.
    pub approval_required_if_args: Vec<String>,
    /// The options that `allow` covers: any other asks.
    pub allowed_args: Option<Vec<String>>,
    /// Examples of commands that it must match.
    pub matches: Vec<String>,
    /// Examples of commands that it must not match.
    pub not_matches: Vec<String>,
    /// The author of the rule knows that its program can run any other.
    pub i_understand: bool,
}

/// A server whose tools are a toolset, and how it is reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct McpConfig {
    /// The name of the toolset.
    pub name: String,
    /// How it is reached.
    pub server: McpServer,
    /// For its start and for each call; zero is for ever, and only of calls.
    pub timeout: Option<Duration>,
    /// For a call that goes on as a task, without the time that people take.
    pub task_time: Option<Duration>,
    /// What it offers, if it was asked.
    pub tools: Option<Vec<DeclaredTool>>,
}

/// How a server is reached: a command that is started here, or an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum McpServer {
    /// A program that is started.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that it is given.
        env: BTreeMap<String, Setting>,
        /// What keeps it in.
        fence: Option<Enclosure>,
    },
    /// A service elsewhere.
    Url {
        /// Its address.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, Setting>,
        /// How one logs in there, if one does.
        auth: Option<McpAuth>,
    },
}

/// How one logs in to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct McpAuth {
    /// Who logs in.
    pub grant: AuthGrant,
    /// The name of this program at the authorization server, where it was registered by hand.
    pub client_id: Option<String>,
    /// Its secret there.
    pub client_secret: Option<SecretSource>,
    /// A signed statement in the place of a secret.
    pub assertion: Option<SecretSource>,
    /// What is asked for, in the place of what the server wants.
    pub scopes: Vec<String>,
}

/// Who logs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthGrant {
    /// A person, once.
    #[default]
    AuthorizationCode,
    /// The program, by itself.
    ClientCredentials,
}

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// A variable of the environment.
    FromEnv(String),
    /// What a command prints.
    Command(Vec<String>),
}

impl McpAuth {
    /// How one logs in, in a few words.
    #[cfg(feature = "front-end")]
    pub fn words(&self) -> &'static str {
        match self.grant {
            AuthGrant::AuthorizationCode => "a person logs in",
            AuthGrant::ClientCredentials => "it logs in by itself",
        }
    }
}

/// What a program that lives behind a fence may reach besides what it is made of, as its project declares it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Enclosure {
    /// Relative to the project, or absolute.
    pub read: Vec<String>,
    /// Directories that it may write.
    pub write: Vec<String>,
    /// Whether it reaches the network.
    pub network: bool,
}

impl Enclosure {
    /// For people: "reads /srv/data; writes cache; no network".
    pub fn words(&self) -> String {
        let network = if self.network { "network" } else { "no network" }.to_owned();
        // A path may hold what reads like the next words, and is quoted then.
        let is_plain = |path: &str| path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@~".contains(&byte));
        let shown = |path: &String| if is_plain(path) { path.clone() } else { format!("{path:?}") };
        let named = |verb: &str, paths: &[String]| {
            let paths: Vec<String> = paths.iter().map(shown).collect();
            (!paths.is_empty()).then(|| format!("{verb} {}", paths.join(", ")))
        };
        let parts = [named("reads", &self.read), named("writes", &self.write), Some(network)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// A value of a server's environment or headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Setting {
    Text(String),
    FromEnv(String),
}

/// An agent over the items of a list: a tool of the name of the toolset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MapConfig {
    /// The name of the tool.
    pub name: String,
    /// Who is called for each item.
    pub agent: String,
    /// A tool of the caller whose result is the list where the caller gives none.
    pub over: Option<String>,
    /// A longer list is an error.
    pub max_items: u64,
    /// So many items at once.
    pub parallel: u64,
}

/// A tool or a toolset that a Python file exports, and what is known of it before a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PythonToolset {
    #[serde(serialize_with = "path")]
    pub file: PathBuf,
    pub name: String,
    pub exported: ExportKind,
    /// `None`: its factory needs a call.
    pub tools: Option<Vec<DeclaredTool>>,
}

/// As what Python files export it: tools and toolsets have names of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ExportKind {
    Tool,
    Toolset,
}

/// A tool or a toolset that the embedding program registered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum RegisteredSource {
    Tool(DeclaredTool),
    /// Its tools are known when it is made.
    Toolset(String),
}

/// A toolset made of another one: some of its tools, with names that begin with a prefix, and rules of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variant {
    pub name: String,
    pub of: ToolsetSource,
    pub prefix: String,
    /// Only these, by the names that the toolset gives them.
    pub tools: Option<Vec<String>>,
    pub approval: BTreeMap<String, Rule>,
    /// How long a call may take, of code or of a server; zero is for ever.
    pub timeout: Option<Duration>,
}

/// A toolset that is always there.
pub(crate) struct BuiltIn {
    pub name: &'static str,
    pub source: fn() -> ToolsetSource,
}

/// Every toolset that a project can name without defining it.
pub(crate) const BUILT_INS: &[BuiltIn] = &[
    BuiltIn { name: "filesystem_cwd", source: || filesystem(Base::WorkingDirectory, Access::ReadWrite) },
    BuiltIn { name: "filesystem_cwd_ro", source: || filesystem(Base::WorkingDirectory, Access::ReadOnly) },
    BuiltIn { name: "filesystem_project", source: || filesystem(project_root(), Access::ReadWrite) },
    BuiltIn { name: "filesystem_project_ro", source: || filesystem(project_root(), Access::ReadOnly) },
    BuiltIn { name: "shell_readonly", source: || shell(Grammar::ReadOnly) },
    BuiltIn { name: "shell_file_ops", source: || shell(Grammar::FileOps) },
    BuiltIn { name: "ask_user", source: || ToolsetSource::AskUser },
    BuiltIn { name: "dynamic_agents", source: || ToolsetSource::DynamicAgents(AgentToolNames::Agent) },
];

/// The built-in toolset of exactly this name; `None` if there is none.
pub(crate) fn built_in(name: &str) -> Option<ToolsetSource> {
    BUILT_INS.iter().find(|built_in| built_in.name == name).map(|built_in| (built_in.source)())
}

fn project_root() -> Base {
    Base::Project(PathBuf::from("."))
}

fn filesystem(base: Base, access: Access) -> ToolsetSource {
    let root = FileRoot { base, access, suffixes: Vec::new(), max_file_bytes: None };
    ToolsetSource::Filesystem(FilesystemConfig { roots: Roots::One(root) })
}

fn shell(grammar: Grammar) -> ToolsetSource {
    ToolsetSource::Shell(ShellConfig { grammar, directory: Access::ReadWrite, write: Vec::new(), network: false })
}

/// The commands of `shell_readonly`.
pub(crate) const READ_ONLY_COMMANDS: [&str; 13] = [
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "grep",
    "find",
    "sort",
    "uniq",
    "git status",
    "git log",
    "git diff",
    "git show",
];

impl ToolsetSource {
    /// The tools it will offer, or `None` if only its code or its server knows.
    pub fn declared_tools(&self) -> Option<Cow<'_, [DeclaredTool]>> {
        match self {
            Self::Filesystem(config) => Some(filesystem_tools(config).into()),
            Self::Shell(config) => Some(vec![shell_tool(config)].into()),
            Self::DynamicAgents(names) => Some(dynamic_agents_tools(*names).into()),
            Self::AskUser => Some(ASKING_TOOLS.into()),
            Self::Skills(_) => Some(SKILL_TOOLS.into()),
            Self::Agent(name) => Some(vec![agent_tool(name)].into()),
            Self::Map(config) => Some(vec![agent_tool(&config.name)].into()),
            Self::Python(toolset) => toolset.tools.as_deref().map(Cow::Borrowed),
            Self::Registered(RegisteredSource::Tool(tool)) => Some(std::slice::from_ref(tool).into()),
            Self::Mcp(config) => config.tools.as_deref().map(Cow::Borrowed),
            Self::Registered(RegisteredSource::Toolset(_)) | Self::Open => None,
            Self::Variant(variant) => variant.declared_tools().map(Cow::Owned),
        }
    }

    /// What it can do even where its tools are not known.
    #[cfg(feature = "front-end")]
    pub(crate) fn capabilities(&self) -> Capabilities {
        match self {
            // A server is a program with the user's rights, or a service elsewhere.
            Self::Mcp(McpConfig { server: McpServer::Command { .. }, .. })
            | Self::Python(_)
            | Self::Registered(_)
            | Self::Open => Capabilities::OF_CODE,
            Self::Mcp(McpConfig { server: McpServer::Url { .. }, .. }) => Capabilities::of(Capability::ReachesNetwork),
            Self::Variant(variant) => variant.of.capabilities(),
            Self::Filesystem(_)
            | Self::Shell(_)
            | Self::DynamicAgents(_)
            | Self::AskUser
            | Self::Skills(_)
            | Self::Agent(_)
            | Self::Map(_) => Capabilities::NONE,
        }
    }

    /// Whether its code may call agents by name.
    #[cfg(feature = "front-end")]
    pub(crate) fn is_code(&self) -> bool {
        match self {
            Self::Python(_) | Self::Registered(_) | Self::Open => true,
            Self::Variant(variant) => variant.of.is_code(),
            Self::Filesystem(_)
            | Self::Shell(_)
            | Self::Mcp(_)
            | Self::DynamicAgents(_)
            | Self::AskUser
            | Self::Skills(_)
            | Self::Agent(_)
            | Self::Map(_) => false,
        }
    }

    /// How many variants lie over the origin.
    pub(crate) fn variants(&self) -> usize {
        match self {
            Self::Variant(variant) => 1 + variant.of.variants(),
            Self::Filesystem(_)
            | Self::Shell(_)
            | Self::Mcp(_)
            | Self::DynamicAgents(_)
            | Self::AskUser
            | Self::Skills(_)
            | Self::Agent(_)
            | Self::Map(_)
            | Self::Python(_)
            | Self::Registered(_)
            | Self::Open => 0,
        }
    }

    /// The agent that a tool of it calls, if it is one.
    #[cfg(feature = "front-end")]
    pub(crate) fn callee(&self) -> Option<&str> {
        match self.origin() {
            Self::Agent(name) => Some(name),
            Self::Map(config) => Some(&config.agent),
            Self::Filesystem(_)
            | Self::Shell(_)
            | Self::Mcp(_)
            | Self::DynamicAgents(_)
            | Self::AskUser
            | Self::Skills(_)
            | Self::Python(_)
            | Self::Registered(_)
            | Self::Open
            | Self::Variant(_) => None,
        }
    }

    /// The source below all variants.
    pub fn origin(&self) -> &Self {
        match self {
            Self::Variant(variant) => variant.of.origin(),
            source => source,
        }
    }
}

#[cfg(feature = "front-end")]
impl ToolsetSource {
    /// What stands before the names that the toolset gives its tools.
    pub fn prefix(&self) -> String {
        match self {
            Self::Variant(variant) => format!("{}{}", variant.prefix, variant.of.prefix()),
            _ => String::new(),
        }
    }

    /// What definitions that choose some tools of a toolset say about this one.
    pub(crate) fn rule_for(&self, tool: &str) -> Option<Rule> {
        let Self::Variant(variant) = self else { return None };
        let original = tool.strip_prefix(variant.prefix.as_str()).unwrap_or(tool);
        super::approval::strictest([variant.rule(original), variant.of.rule_for(original)])
    }
}

impl Variant {
    /// What it says about a tool, by the name that the toolset gives it.
    pub(crate) fn rule(&self, tool: &str) -> Option<Rule> {
        let reading = || match self.of.origin() {
            ToolsetSource::Filesystem(_) => rule_of_reading(tool, &self.approval),
            _ => None,
        };
        self.approval.get(tool).copied().or_else(reading)
    }

    fn declared_tools(&self) -> Option<Vec<DeclaredTool>> {
        let tools = self.of.declared_tools()?;
        let chosen = tools
            .iter()
            .filter(|tool| self.tools.as_ref().is_none_or(|chosen| chosen.iter().any(|name| *name == tool.name)))
            .map(|tool| DeclaredTool {
                verdict: tool.verdict.clone().under(self.rule(&tool.name)),
                name: format!("{}{}", self.prefix, tool.name).into(),
                capabilities: tool.capabilities,
            });
        Some(chosen.collect())
    }
}

const fn declared(name: &'static str, verdict: DeclaredVerdict, capabilities: Capabilities) -> DeclaredTool {
    DeclaredTool { name: Cow::Borrowed(name), verdict, capabilities }
}

/// The tool that gives way to one of the project's own.
pub(crate) const SEARCH_FILES: &str = "search_files";

/// What rules that name the tool for reading, and not the one for searching, say of searching: it reads files as well, so
/// what tightens the one tightens the other.
pub(crate) fn rule_of_reading(tool: &str, rules: &BTreeMap<String, Rule>) -> Option<Rule> {
    rules.get(&reading_instead(tool)?).copied().filter(|rule| *rule > Rule::Allow)
}

/// The name of the tool for reading, beside one for searching.
pub(crate) fn reading_instead(tool: &str) -> Option<String> {
    tool.strip_suffix(SEARCH_FILES).map(|prefix| format!("{prefix}read_file"))
}

const READS: Capabilities = Capabilities::of(Capability::ReadsFiles);
const WRITES: Capabilities = Capabilities::of(Capability::WritesFiles);

const READING_TOOLS: &[DeclaredTool] = &[
    declared("read_file", DeclaredVerdict::Allow, READS),
    declared("list_files", DeclaredVerdict::Allow, READS),
    declared(SEARCH_FILES, DeclaredVerdict::Allow, READS),
];

const WRITING_TOOLS: &[DeclaredTool] = &[
    declared("read_file", DeclaredVerdict::Allow, READS),
    declared("list_files", DeclaredVerdict::Allow, READS),
    declared(SEARCH_FILES, DeclaredVerdict::Allow, READS),
    declared("write_file", DeclaredVerdict::Ask, WRITES),
    declared("edit_file", DeclaredVerdict::Ask, READS.union(WRITES)),
];

fn filesystem_tools(config: &FilesystemConfig) -> &'static [DeclaredTool] {
    let is_written = config.roots.all().any(|root| root.access == Access::ReadWrite);
    if is_written { WRITING_TOOLS } else { READING_TOOLS }
}

const fn dynamic_agents_declared(names: AgentToolNames) -> [DeclaredTool; 2] {
    [
        declared(names.create(), DeclaredVerdict::AlwaysAsk, Capabilities::of(Capability::CreatesAgents)),
        // It can pass attachments.
        declared(names.call(), DeclaredVerdict::Allow, READS),
    ]
}

const AGENT_TOOLS: &[DeclaredTool] = &dynamic_agents_declared(AgentToolNames::Agent);
const WORKER_TOOLS: &[DeclaredTool] = &dynamic_agents_declared(AgentToolNames::Worker);

fn dynamic_agents_tools(names: AgentToolNames) -> &'static [DeclaredTool] {
    match names {
        AgentToolNames::Agent => AGENT_TOOLS,
        AgentToolNames::Worker => WORKER_TOOLS,
    }
}

const ASKING_TOOLS: &[DeclaredTool] = &[declared(ASK_USER, DeclaredVerdict::AlwaysAsk, Capabilities::NONE)];

const SKILL_TOOLS: &[DeclaredTool] = &[declared(LOAD_SKILL, DeclaredVerdict::Allow, READS)];

fn agent_tool(name: &str) -> DeclaredTool {
    DeclaredTool { name: name.to_owned().into(), verdict: DeclaredVerdict::Allow, capabilities: Capabilities::NONE }
}

const fn judged(pattern: &'static str, verdict: Rule) -> CommandVerdict {
    CommandVerdict { pattern: Cow::Borrowed(pattern), verdict }
}

const FILE_OPS_VERDICTS: &[CommandVerdict] = &[judged("ls", Rule::Allow), judged("mv", Rule::Ask)];

static READ_ONLY_VERDICTS: LazyLock<Vec<CommandVerdict>> =
    LazyLock::new(|| READ_ONLY_COMMANDS.iter().map(|command| judged(command, Rule::Allow)).collect());

fn shell_tool(config: &ShellConfig) -> DeclaredTool {
    let commands: Cow<'static, [CommandVerdict]> = match &config.grammar {
        Grammar::ReadOnly => Cow::Borrowed(&READ_ONLY_VERDICTS),
        Grammar::FileOps => FILE_OPS_VERDICTS.into(),
        Grammar::Rules { rules, default } => {
            let pattern = |rule: &ShellRule| rule.pattern.join(" ").into();
            let rules = rules.iter().map(|rule| CommandVerdict { pattern: pattern(rule), verdict: rule.approval });
            rules.chain([judged("*", default.unwrap_or(Rule::Block))]).collect()
        }
    };
    let offline = match &config.grammar {
        Grammar::ReadOnly => READS,
        Grammar::FileOps => READS.union(WRITES),
        Grammar::Rules { .. } => READS.union(WRITES).and(Capability::RunsCommands),
    };
    let capabilities = if config.network { offline.and(Capability::ReachesNetwork) } else { offline };
    DeclaredTool { name: "shell".into(), verdict: DeclaredVerdict::ByCommand(commands), capabilities }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &ToolsetSource) -> Vec<String> {
        source.declared_tools().unwrap().iter().map(|tool| tool.name.to_string()).collect()
    }

    #[test]
    fn an_approval_is_for_one_definition_and_no_other() {
        use std::os::unix::ffi::OsStrExt as _;

        use super::super::ToolsetIdentity as _;

        let python = |file: &[u8]| {
            let file = PathBuf::from(std::ffi::OsStr::from_bytes(file));
            ToolsetSource::Python(PythonToolset { file, name: "t".into(), exported: ExportKind::Tool, tools: None })
        };
        let definitions = [
            filesystem(Base::WorkingDirectory, Access::ReadWrite),
            filesystem(Base::WorkingDirectory, Access::ReadOnly),
            filesystem(Base::Absolute("/a".into()), Access::ReadOnly),
            filesystem(Base::Project("/a".into()), Access::ReadOnly),
            shell(Grammar::ReadOnly),
            python(b"a\xff"),
            python(b"a\xfe"),
            ToolsetSource::Agent("a".into()),
        ];
        let digests: std::collections::BTreeSet<String> = definitions.iter().map(|it| it.clone().digest()).collect();
        assert_eq!(digests.len(), definitions.len());
        assert_eq!(definitions[0].digest(), Arc::new(definitions[0].clone()).digest(), "however it is held");
    }

    #[test]
    fn read_only_filesystems_have_no_tool_that_writes() {
        assert_eq!(names(&built_in("filesystem_cwd_ro").unwrap()), ["read_file", "list_files", "search_files"]);
        let writing = ["read_file", "list_files", "search_files", "write_file", "edit_file"];
        assert_eq!(names(&built_in("filesystem_project").unwrap()), writing);
    }

    #[test]
    fn what_tightens_reading_tightens_searching() {
        let verdict = |rules: &[(&str, Rule)], tool: &str| {
            let approval = rules.iter().map(|(tool, rule)| ((*tool).to_owned(), *rule)).collect();
            let of = built_in("filesystem_cwd").unwrap();
            let (name, prefix) = ("v".to_owned(), "n_".to_owned());
            let variant = Variant { name, of, prefix, tools: None, approval, timeout: None };
            let tools = ToolsetSource::Variant(Arc::new(variant)).declared_tools().unwrap().into_owned();
            tools.into_iter().find(|declared| declared.name == tool).unwrap().verdict
        };
        for (rules, expected) in [
            (&[][..], DeclaredVerdict::Allow),
            (&[("read_file", Rule::Allow)], DeclaredVerdict::Allow),
            (&[("read_file", Rule::Ask)], DeclaredVerdict::Ask),
            (&[("read_file", Rule::Block)], DeclaredVerdict::Block),
            (&[("read_file", Rule::Block), ("search_files", Rule::Ask)], DeclaredVerdict::Ask),
        ] {
            assert_eq!(verdict(rules, "n_search_files"), expected, "{rules:?}");
        }
        assert_eq!(verdict(&[("read_file", Rule::Ask)], "n_list_files"), DeclaredVerdict::Allow);
    }

    #[test]
    fn a_variant_chooses_renames_and_rules() {
        let variant = Variant {
            name: "notes".into(),
            of: built_in("filesystem_cwd").unwrap(),
            prefix: "notes_".into(),
            tools: Some(vec!["write_file".into()]),
            approval: BTreeMap::from([("write_file".into(), Rule::Allow)]),
            timeout: None,
        };
        let variant = ToolsetSource::Variant(Arc::new(variant));
        let tools = variant.declared_tools().unwrap();
        assert_eq!(*tools, [declared("notes_write_file", DeclaredVerdict::Allow, WRITES)]);
    }
}
