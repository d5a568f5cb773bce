//! What was typed. Nothing is decided here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

/// Prompts as executables: agents are text files, and dangerous calls stop at a gate.
#[derive(Debug, Parser)]
#[command(name = "llm-do", version, max_term_width = 80, disable_help_subcommand = true)]
#[command(override_usage = "llm-do <PROJECT> [PROMPT] [OPTIONS]\n       llm-do <COMMAND>")]
#[command(after_help = "\
Examples:
  llm-do new hello                  write a project to start from
  llm-do check hello                every mistake at once, and what it can do
  llm-do hello \"What is a monad?\"   run it (the same as `llm-do run hello …`)
  llm-do chat hello                 talk to it, as `llm-do hello` does
  llm-do \"What is a monad?\"         no project: a plain assistant, no tools
  llm-do check hello --json | jq    for programs
  llm-do models haiku               what models cost, and which keys are set
  llm-do schema worker              the JSON Schema of worker files, for editors

Exit codes: 0 success, 1 agent or model failure, 2 usage or project error, 3
provider error, 4 approval needed or refused, 5 limit reached, 6 the answer
violates its schema, 124 --timeout, 130 interrupted, 141 nobody reads stdout
any more, 143 terminated.")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a project once and print its answer
    Run(Box<RunArgs>),
    /// Talk to a project: many turns, one memory
    // It is never parsed: `chat` is rewritten to `run --chat`, so that its flags are built once.
    Chat,
    /// Give each item of a list to an agent: lines, rows, files
    Map(Box<MapArgs>),
    /// Continue a run: after a crash, at a limit, or where it waits for an approval
    Resume(ResumeArgs),
    /// List the runs that are kept; show, follow, cancel, fork, export and remove them
    Runs(RunsArgs),
    /// Sum up what runs cost
    Costs(CostsArgs),
    /// Show which replies of models are kept and count again, and forget them
    Cache(CacheArgs),
    /// List the open questions of all runs, and answer them from here
    Inbox(InboxArgs),
    /// Show the lasting rules about calls; explain, try, suggest, test and edit them
    Policy(PolicyArgs),
    /// List the MCP servers of a project, and log in to them
    Mcp(McpArgs),
    /// Serve other programs: agents as tools of MCP, as the agent of an editor, or JSON-RPC
    Serve(ServeArgs),
    /// Serve a page on this machine: see runs, answer questions, start work; and HTTP for programs
    Web(WebArgs),
    /// Serve projects to a durable engine, which keeps their runs and takes them from one machine to the next
    #[cfg(feature = "restate")]
    EngineWorker(EngineWorkerArgs),
    /// Check a project without running it, and show what it can do
    #[command(visible_alias = "validate")]
    Check(CheckArgs),
    /// Test agents: cases in files, answered from records or by models
    Test(TestArgs),
    /// Let code answer in the place of an agent, written from its recorded answers and held against them
    Harden(Box<HardenArgs>),
    /// Make a hardened name an agent again, or write a first prompt for a function
    Soften(SoftenArgs),
    /// Write a project or a worker file to start from
    New(NewArgs),
    /// List providers, whether a key is set, and known models with their prices
    Models(ModelsArgs),
    /// Show what there is here: paths, configuration, keys, store, fence, Python, terminal
    Doctor(DoctorArgs),
    /// Print the JSON Schema of a file format, for editors
    Schema(SchemaArgs),
    /// Print a script that completes commands and flags in a shell
    Completions(CompletionsArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do serve --mcp desk           agents as tools, for what starts this
  llm-do serve --mcp desk --http    the same, by HTTP on this machine
  llm-do serve --acp desk           the agent of an editor, in its settings
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1}}' \\
  | llm-do serve --stdio

With --stdio one JSON-RPC 2.0 message per line: `open`, `turn`, `close` and
`cancel` come in, events go out as notifications, and `approve` is asked of the
client. The end of stdin closes everything. docs/serve.md describes that
protocol, and the Python package `llm_do` speaks it; docs/mcp.md and docs/acp.md
describe what clients of MCP and editors see.")]
#[command(group = clap::ArgGroup::new("protocol").required(true).args(["stdio", "mcp", "acp"]))]
pub struct ServeArgs {
    /// The project whose agents are served: its directory, or a file of it
    #[arg(value_name = "PROJECT", default_value = ".", hide_default_value = true, conflicts_with = "stdio")]
    pub project: PathBuf,
    /// Speak the protocol of llm-do on stdin and stdout
    #[arg(long)]
    pub stdio: bool,
    /// Speak MCP: the agents under `export` in the manifest are tools, else the entry is
    #[arg(long)]
    pub mcp: bool,
    /// Speak ACP, as the agent of an editor
    #[arg(long)]
    pub acp: bool,
    /// With --mcp: listen here instead of reading stdin [default: 127.0.0.1:7701]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7701", requires = "mcp")]
    pub http: Option<std::net::SocketAddr>,
    /// Put no question to clients: all of them are answered on this machine
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "stdio")]
    pub answers: Option<AnswersArg>,
    /// With --mcp: what takes longer becomes a task, for clients that know tasks
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s", conflicts_with_all = ["stdio", "acp"])]
    pub task_after: Duration,
    /// Trust the project as it is now, or exactly the list with this digest: its code, its servers, its loosened rules
    #[arg(
        long,
        value_name = "DIGEST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = NOW,
        conflicts_with = "stdio"
    )]
    pub trust: Option<String>,
    #[command(flatten)]
    pub models: ModelArgs,
}

/// Where questions are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AnswersArg {
    /// On this machine
    Here,
}

/// The engine that is spoken to, if it is not this machine's store.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct EngineArgs {
    /// Speak to the runs of a durable engine instead of those that are kept here, such as `restate://127.0.0.1:8080`
    #[arg(long = "on", value_name = "URL", global = true)]
    pub url: Option<String>,
}

#[cfg(feature = "restate")]
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  llm-do engine-worker refund --restate http://127.0.0.1:9070 \\
    --listen 127.0.0.1:9080 --identity-key publickeyv1_…

The engine is Restate, which you run yourself. LLM_DO_ENGINE_KEY is the key of
those who may start runs and answer them; `llm-do runs key` prints a new one.
A worker keeps nothing: many of them may serve one project, on many machines.
docs/machines.md says how all of it is set up.")]
pub struct EngineWorkerArgs {
    /// The projects that are served, each by the name of its directory
    #[arg(value_name = "PROJECT", required = true)]
    pub projects: Vec<PathBuf>,
    /// Where the engine reaches this worker
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9080")]
    pub listen: std::net::SocketAddr,
    /// The admin address of the engine, where this worker is registered; without one you do that
    #[arg(long = "restate", value_name = "URL")]
    pub admin: Option<String>,
    /// How the engine reaches this worker, if not by the address that it listens at
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// The public key of the engine, which signs its requests: it prints it when it starts
    #[arg(long, value_name = "KEY", required_unless_present = "insecure")]
    pub identity_key: Option<String>,
    /// How many runs go on at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,
    /// So many seconds running attempts have to come to their end when the worker is told to end
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub drain: u64,
    /// A directory that all workers share, for values that are too large for the engine
    #[arg(long, value_name = "DIRECTORY")]
    pub blobs: Option<PathBuf>,
    /// Serve whoever asks, also without the engine's signature: only to try it
    #[arg(long, conflicts_with = "identity_key")]
    pub insecure: bool,
    #[command(flatten)]
    pub models: ModelArgs,
    /// Trust the projects as they are now: their code, their servers, their loosened rules
    #[arg(long)]
    pub trust: bool,
}

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do web                        the project in this directory
  llm-do web desk refund            two projects
  llm-do web --read-only --no-open  only to look
  llm-do web --listen 0.0.0.0:7700 --public-url https://box.example:7700 \\
    --tls-cert box.pem --tls-key box.key

The page shows all runs that are kept and answers the questions of all; it
starts work in the projects that are named here. Each of them must be trusted.
docs/web.md describes the page, its keys, and the interface for programs.")]
#[expect(clippy::struct_excessive_bools, reason = "flags as they were typed")]
pub struct WebArgs {
    /// The projects in which the page may start work; without one the project in this directory, if there is one
    #[arg(value_name = "PROJECT")]
    pub projects: Vec<PathBuf>,
    /// Where to listen [default: 127.0.0.1:7700, or the next free port up to 7709]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<std::net::SocketAddr>,
    /// How the page is reached from other machines, such as `https://box.example:7700`
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// The certificate, with its chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A proxy before it speaks TLS
    #[arg(long, requires = "public_url", conflicts_with = "tls_cert")]
    pub behind_proxy: bool,
    /// Only show: nothing is started, answered or ended
    #[arg(long)]
    pub read_only: bool,
    /// Make the three keys anew: the old ones no longer open anything
    #[arg(long)]
    pub new_keys: bool,
    /// Do not open the browser
    #[arg(long)]
    pub no_open: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags as they were typed")]
#[command(after_help = "\
Examples:
  llm-do check .                    the project in this directory
  llm-do check main.worker          one worker file
  llm-do check . -m ollama:qwen3    with a model for agents that name none
  llm-do check . --svg > calls.svg  the call graph as a picture
  llm-do check . --connect          also what its MCP servers offer

Exits with 0, or with 2 and every error with its place.")]
pub struct CheckArgs {
    /// A project directory, its `project.json`, or a worker file
    #[arg(default_value = ".")]
    pub project: PathBuf,
    #[command(flatten)]
    pub models: ModelArgs,
    /// The agent to start with, instead of the project's entry
    #[arg(short, long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Trust the project as it is now, or exactly the list with this digest: its first run will not ask
    #[arg(long, value_name = "DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = NOW)]
    pub trust: Option<String>,
    /// Start the MCP servers of a trusted project and list their tools; none is called
    #[arg(long)]
    pub connect: bool,
    /// The Python that imports the files of a trusted project, instead of its `.venv`, the active environment or `python3`
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// With which fence around commands a rule that allows is enough
    #[arg(long, value_enum, value_name = "FENCE")]
    pub fence: Option<FenceArg>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "dot")]
    pub json: bool,
    /// Print the call graph in Graphviz's language
    #[arg(long)]
    pub dot: bool,
    /// Print the call graph as a picture
    #[arg(long, conflicts_with_all = ["json", "dot"])]
    pub svg: bool,
}

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do test                        every case of this project, no model asked
  llm-do test refund cashier         the cases with `cashier` in their names
  llm-do test . --record             asks models where a record is stale
  llm-do test . --live -n 5 -m anthropic:claude-haiku-4-5,openai:gpt-5-mini
  llm-do test . --add 06gy3k9x       a kept run becomes a case
  llm-do test . --trust --junit out.xml   where programs test

Exits with 0 if all pass, 1 if one fails or is stale, 2 if a file with cases is
wrong, 4 if the project is not trusted, 5 if the budget is used up.")]
pub struct TestArgs {
    /// A project directory, its `project.json`, or a worker file
    #[arg(default_value = ".")]
    pub project: PathBuf,
    /// Only cases with this in the name of their agent or their own
    pub pattern: Option<String>,
    /// Ask models, and show how often they pass
    #[arg(long, conflicts_with_all = ["record", "add"])]
    pub live: bool,
    /// Run each case so often
    #[arg(short = 'n', long, value_name = "N", requires = "live", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub times: Option<u64>,
    #[command(flatten)]
    pub models: ModelArgs,
    /// Stop before all of it costs more
    #[arg(long, value_name = "USD", requires = "live")]
    pub budget: Option<f64>,
    /// Run so many cases at once
    #[arg(short, long, value_name = "N", requires = "live", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub jobs: Option<u64>,
    /// Ask models once where there is no record, or a stale one, and write it
    #[arg(long, conflicts_with = "add")]
    pub record: bool,
    /// Make a case of a kept run: its id, or the beginning of it
    #[arg(long, value_name = "RUN")]
    pub add: Option<String>,
    /// What the new case is called
    #[arg(long, value_name = "NAME", requires = "add")]
    pub name: Option<String>,
    /// Trust the project and its tests as they are now, or exactly the list with this digest
    #[arg(long, value_name = "DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = NOW)]
    pub trust: Option<String>,
    /// The Python that runs the project's Python files, instead of its `.venv`, the active environment or `python3`
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// With which fence around commands a rule that allows is enough; any, since what is behind it is thrown away
    #[arg(long, value_enum, value_name = "FENCE")]
    pub fence: Option<FenceArg>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Also write the result to this file, as XML that programs for tests read
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do harden sorter                what it answered becomes code, in steps
  llm-do harden sorter --since 30d -m anthropic:claude-sonnet-4-5
  llm-do harden sorter --status       who answers, how often, how they agree
  llm-do harden sorter --mode shadow  the agent answers, the code is compared
  llm-do harden --author              the prompt of whoever writes the code

Asks what may be sent to which provider, whether the written code may run, and
whether to apply it; `n` leaves everything as it was. Without a terminal it ends
with 4 and sends nothing. The code runs behind a fence only.")]
pub struct HardenArgs {
    /// The agent
    #[arg(required_unless_present = "author")]
    pub name: Option<String>,
    /// A project directory, or its `project.json`
    #[arg(default_value = ".")]
    pub project: PathBuf,
    /// Only calls of runs of this time, such as `30d`
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "90d")]
    pub since: Duration,
    /// The model that writes the code, instead of the agent's own
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Show who answers, how often, how well code and agent agree, and what that saved
    #[arg(long, conflicts_with_all = ["mode", "author"])]
    pub status: bool,
    /// Change who answers: the agent, the agent with code beside it, code that may ask the agent, or code
    #[arg(long, value_enum, value_name = "MODE", conflicts_with = "author")]
    pub mode: Option<AnswerModeArg>,
    /// Print the worker file of whoever writes the code
    #[arg(long)]
    pub author: bool,
    /// Trust the project as it is now, or exactly the list with this digest
    #[arg(long, value_name = "DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = NOW)]
    pub trust: Option<String>,
    /// The Python that runs the code, instead of the project's `.venv`, the active environment or `python3`
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Which fence around the code is enough
    #[arg(long, value_enum, value_name = "FENCE")]
    pub fence: Option<FenceArg>,
}

/// Who answers where an agent and code have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnswerModeArg {
    /// The agent; the code rests
    Agent,
    /// The agent; the code runs beside it, and where they differ is counted
    Shadow,
    /// The code; where it is not sure the agent is asked
    Fallback,
    /// The code; the agent rests
    Code,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do soften sorter            the agent is back, every byte as it was
  llm-do soften area geometry     a first prompt for the function `area`")]
pub struct SoftenArgs {
    /// A hardened name, or a function that the project offers as a tool
    pub name: String,
    /// A project directory, or its `project.json`
    #[arg(default_value = ".")]
    pub project: PathBuf,
    /// Trust the project as it is now, or exactly the list with this digest
    #[arg(long, value_name = "DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = NOW)]
    pub trust: Option<String>,
    /// The Python that runs the project's Python files, instead of its `.venv`, the active environment or `python3`
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do run hello \"What is a monad?\"
  git diff | llm-do run reviewer \"Review this change\"  stdin is added to it
  llm-do run desk \"…\" --label nightly                  a name in `llm-do runs`
  llm-do run hello -m ollama:qwen3 -f paper.pdf \"Summarise\"
  llm-do run hello --input-json '{\"topic\": \"rain\"}' --output-format json
  llm-do run hello --dry-run \"Hi\"                      shows the request
  llm-do run hello --json --timeout 2m \"Hi\" > events   an event per line

stdout carries only the answer, or JSON; everything else goes to stderr. At a
terminal a call that needs approval is shown and asked; without one it ends the
run with exit code 4. Ctrl-C cancels.")]
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags as they were typed; the plan decides what they mean")]
pub struct RunArgs {
    /// A project directory, its `project.json`, or a worker file
    #[arg(default_value = ".")]
    pub project: PathBuf,
    /// What to say to the entry; `-` reads it from stdin
    pub prompt: Option<String>,
    /// Whether there is no project, and a plain assistant answers; never typed, but found out.
    #[arg(skip)]
    pub assistant: bool,
    /// The agent to start with, instead of the project's entry
    #[arg(short, long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The input as JSON: text, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON", conflicts_with = "prompt")]
    pub input_json: Option<String>,
    /// Attach a file: text, an image or a PDF (repeatable)
    #[arg(short, long = "file", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Do not read stdin
    #[arg(long)]
    pub no_stdin: bool,
    /// Offer no tools at all: agents can only talk
    #[arg(long)]
    pub no_tools: bool,
    /// Print the first request that would be sent, without sending it; the key is hidden
    #[arg(long, conflicts_with_all = ["timeout", "output"])]
    pub dry_run: bool,
    /// The Python that runs the project's Python files, instead of its `.venv`, the active environment or `python3`
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Many turns instead of one, as `llm-do chat` does
    #[arg(long)]
    pub chat: bool,
    /// Do not keep this run: it cannot be listed, resumed or continued later
    #[arg(long, conflicts_with_all = ["durable", "label", "once"])]
    pub ephemeral: bool,
    /// Have each step on the disk before the next one: the run survives a power cut
    #[arg(long)]
    pub durable: bool,
    /// A name for the run, which lists of runs show and can be filtered by
    #[arg(long, value_name = "NAME")]
    pub label: Option<String>,
    /// Run once for this key and project: a second start attaches to the first run, or tells its answer again
    #[arg(long, value_name = "KEY", conflicts_with_all = ["journal", "replay", "dry_run"])]
    pub once: Option<String>,
    /// Go on with a chat: the last one of the project, or the one with this id
    #[arg(short = 'c', long = "continue", value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    pub continued: Option<String>,
    /// Finish a turn of a continued chat although the project has changed
    #[arg(long, requires = "continued")]
    pub force: bool,
    /// Keep every step in this file instead of in the store, each on the disk before the next one
    #[arg(long, visible_alias = "record", value_name = "FILE", conflicts_with_all = ["replay", "dry_run", "ephemeral"])]
    pub journal: Option<PathBuf>,
    /// Answer every step from this journal: no model is asked, no tool runs
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub replay: Option<PathBuf>,
    /// Replay a journal of somebody else
    #[arg(long, requires = "replay")]
    pub foreign: bool,
    /// With --on: print the id of the run, and leave it to itself
    #[arg(long)]
    pub detach: bool,
    /// With --on: run what is deployed, although the project here is another one
    #[arg(long)]
    pub any_version: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub conduct: ConductArgs,
}

#[derive(Debug, Default, clap::Args)]
#[command(group = clap::ArgGroup::new("items").required(true).args(["over", "files"]))]
#[command(after_help = "\
Examples:
  llm-do map triage --over issues.jsonl -j 8 -o triaged.jsonl
  llm-do map triage . --over issues.csv --max-cost-usd 2 -o triaged.jsonl
  llm-do map captions --files 'photos/**/*.jpg' -o captions.jsonl
  git log --format=%s | llm-do map sorter --over - --as lines
  llm-do resume 06gy3k --max-cost-usd 4     goes on where a limit stopped it

One JSON line an item, in the order of the input: {\"item\":1,\"output\":…}. With
-o NAME.jsonl failures go to NAME.errors.jsonl, else to stderr. An item that
asks for an approval waits in `llm-do inbox`; the others go on. Exits with 5 if
a limit stopped it, else with 4 if items wait, else with 1 if any failed.")]
pub struct MapArgs {
    /// The agent that gets the items
    pub agent: String,
    /// A project directory, its `project.json`, or a worker file
    #[arg(default_value = ".")]
    pub project: PathBuf,
    /// The file of the items: JSON lines, CSV with a header, a JSON array, or lines of text; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub over: Option<PathBuf>,
    /// The files that are the items, each as an attachment: a pattern in quotes
    #[arg(long, value_name = "GLOB")]
    pub files: Option<String>,
    /// How the items are written, where the name of the file does not say it
    #[arg(long = "as", value_enum, value_name = "FORMAT", requires = "over")]
    pub format: Option<ItemFormatArg>,
    /// So many items at once
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub jobs: u64,
    /// Begin nothing more after this many failures
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_failures: Option<u64>,
    /// Begin nothing more after the first failure
    #[arg(long, conflicts_with = "max_failures")]
    pub fail_fast: bool,
    /// The Python that runs the project's Python files, instead of its `.venv`, the active environment or `python3`
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Do not keep this run: it cannot be listed or resumed later, and no item can wait
    #[arg(long, conflicts_with_all = ["durable", "label"])]
    pub ephemeral: bool,
    /// Have each step on the disk before the next one: the run survives a power cut
    #[arg(long)]
    pub durable: bool,
    /// A name for the run, which lists of runs show and can be filtered by
    #[arg(long, value_name = "NAME")]
    pub label: Option<String>,
    #[command(flatten)]
    pub conduct: ConductArgs,
}

/// How the items of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ItemFormatArg {
    /// A JSON value on each line
    Jsonl,
    /// Rows under a header; each is an object
    Csv,
    /// One array
    Json,
    /// Each line is a text
    Lines,
}

/// How a run goes, whether it begins or is resumed.
#[derive(Clone, Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags as they were typed; the plan decides what they mean")]
pub struct ConductArgs {
    #[command(flatten)]
    pub models: ModelArgs,
    /// Answer every question with yes
    #[arg(long, visible_alias = "yolo", conflicts_with = "reject_all")]
    pub approve_all: bool,
    /// Answer every question with no
    #[arg(long)]
    pub reject_all: bool,
    /// Never ask, no progress display
    #[arg(long, short = 'p', visible_alias = "print")]
    pub headless: bool,
    /// Trust the project as it is now, or exactly the list with this digest: its code, its servers, its loosened rules
    #[arg(long, value_name = "DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = NOW)]
    pub trust: Option<String>,
    /// With which fence around commands a rule that allows is enough
    #[arg(long, value_enum, value_name = "FENCE")]
    pub fence: Option<FenceArg>,
    /// Stop at this many model requests in the whole run
    #[arg(long, visible_alias = "max-turns", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_requests: Option<u64>,
    /// Stop before the whole run costs more
    #[arg(long, visible_alias = "max-budget-usd", value_name = "USD")]
    pub max_cost_usd: Option<f64>,
    /// What happens where a limit is reached that says nothing itself; `stop` unless this or the manifest says otherwise
    #[arg(long, value_enum, value_name = "WORD")]
    pub on_limit: Option<OnLimitArg>,
    /// Use what has no known price though money is limited: the limit holds for the rest
    #[arg(long)]
    pub allow_unknown_prices: bool,
    /// How deep agents may call each other
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_depth: Option<u64>,
    /// Ask models anew although their replies are known, for agents with `cache: content`; keep none of these replies
    #[arg(long)]
    pub no_cache: bool,
    /// Say of each request of such agents what has changed since the nearest one whose reply is kept
    #[arg(long, conflicts_with = "no_cache")]
    pub explain_cache: bool,
    /// Give up after this time: seconds, or with a unit as in `90s`, `5m`, `1h`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Ask for whole answers instead of streams
    #[arg(long)]
    pub no_stream: bool,
    /// Print the answer as it comes into pipes too; what was printed is not asked for again
    #[arg(long, conflicts_with = "no_stream")]
    pub stream: bool,
    /// Also write the answer to this file
    #[arg(short, long, value_name = "FILE", visible_alias = "output-last-message")]
    pub output: Option<PathBuf>,
    /// With `--json`: also print a typed answer as it comes, at most ten times a second and not validated
    #[arg(long)]
    pub partial: bool,
    /// Write pictures and files that replies and results bring into this directory, not beside the kept run
    #[arg(long, value_name = "DIR")]
    pub save_files: Option<PathBuf>,
    /// End with exit code 4 if a call was refused, though the run came to its end
    #[arg(long)]
    pub fail_on_refusal: bool,
    /// Print one event per line as JSON; the last one is the result
    #[arg(long, conflicts_with = "output_format")]
    pub json: bool,
    /// What to print on stdout
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub output_format: Option<RunFormat>,
    /// Say more on stderr: calls (-v), text as it arrives (-vv), the messages as JSON lines (-vvv)
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Only errors and questions on stderr
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Show full error details
    #[arg(long)]
    pub debug: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do resume 06gy3k                         the run whose id begins like this
  llm-do resume --last                         the last run of this project
  llm-do resume 06gy3k --show                  what waits or has changed
  llm-do resume 06gy3k --approve 3f2a91c04d7e  allow this call, and go on
  llm-do resume 06gy3k --refuse 3f2a91c04d7e --reason \"use the other account\"
  llm-do resume 06gy3k --max-requests 80       after a limit, with a higher one
  llm-do resume ./bug.journal --foreign        a journal of somebody else

The project, its input and the flags of the run are those it was started with;
flags given here win. `--approve-all` is not kept: it must be given again.")]
#[expect(clippy::struct_excessive_bools, reason = "flags as they were typed; the plan decides what they mean")]
pub struct ResumeArgs {
    /// The id of a run, six or more characters of its beginning, or the file that `--journal` wrote
    #[arg(value_name = "RUN", required_unless_present = "last")]
    pub run: Option<PathBuf>,
    /// The last run: of this project, if the directory is one
    #[arg(long, conflicts_with = "run")]
    pub last: bool,
    /// Allow the call that waits with this id (repeatable)
    #[arg(long, value_name = "ID")]
    pub approve: Vec<String>,
    /// Refuse the call that waits with this id (repeatable)
    #[arg(long, value_name = "ID")]
    pub refuse: Vec<String>,
    /// Answer the question that waits with this id: a value of its form, by its name (repeatable)
    #[arg(long, value_name = "ID.NAME=VALUE")]
    pub answer: Vec<String>,
    /// What the model reads about the refusal; the first one belongs to the first `--refuse`
    #[arg(long, value_name = "TEXT", requires = "refuse")]
    pub reason: Vec<String>,
    /// Only print what waits and what has changed
    #[arg(long)]
    pub show: bool,
    /// Go on although the project has changed
    #[arg(long)]
    pub force: bool,
    /// Read a journal of somebody else: what people answered there does not count
    #[arg(long)]
    pub foreign: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub conduct: ConductArgs,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  llm-do runs                      the last runs of this project, or of all
  llm-do runs --state waits --all  all that wait for an answer
  llm-do runs show 06gy3k          what was called in that run
  llm-do runs follow 06gy3k        what it does now, until it ends
  llm-do runs fork 06gy3k --at main/t0/m2 -m anthropic:claude-sonnet-4-5
  llm-do runs export 06gy3k --format bundle > run.bundle
  llm-do runs rm --older 90d

A run is named by its id, or by six or more characters of its beginning.")]
pub struct RunsArgs {
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub listing: ListRunsArgs,
}

#[derive(Debug, Default, clap::Args)]
pub struct ListRunsArgs {
    /// Only of this project: its path, or the name that the list shows
    #[arg(long, value_name = "PROJECT", conflicts_with = "all")]
    pub project: Option<PathBuf>,
    /// Only in this state
    #[arg(long, value_enum, value_name = "STATE")]
    pub state: Option<StateArg>,
    /// Only with this label
    #[arg(long, value_name = "NAME")]
    pub label: Option<String>,
    /// Only what changed in this time, such as `2h`, `7d`, `4w`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub since: Option<Duration>,
    /// So many at most (20 without `--all`)
    #[arg(short = 'n', long = "lines", value_name = "N")]
    pub lines: Option<usize>,
    /// All of all projects
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateArg {
    /// A process runs it
    Running,
    /// A question is open
    Waits,
    /// A limit, a timeout, a person or an error ended it
    Stopped,
    /// Its process ended without a word
    Died,
    /// It has its answer
    Done,
    /// Its record cannot be read
    Damaged,
}

#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Show what was called in a run, what is open, and how to go on
    Show(ShowRunArgs),
    /// Tell what a run in another process does until it ends, and end with its exit code
    Follow(NamedRunArgs),
    /// End the turn of a run in another process, as Ctrl-C does there
    Cancel(NamedRunArgs),
    /// Make a new run of what another one has recorded, up to a place
    Fork(Box<ForkRunArgs>),
    /// Print all that is kept of a run
    Export(ExportRunArgs),
    /// Remove runs that have ended
    Rm(RemoveRunsArgs),
    /// Print a new key for machines that shall sign for each other
    Key,
}

impl RunsCommand {
    /// The one run that it speaks of.
    pub fn named(&self) -> Option<&str> {
        match self {
            Self::Show(ShowRunArgs { named, .. })
            | Self::Follow(named)
            | Self::Cancel(named)
            | Self::Export(ExportRunArgs { named, .. }) => Some(&named.run),
            Self::Fork(_) | Self::Rm(_) | Self::Key => None,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct NamedRunArgs {
    /// Its id, or six or more characters of its beginning
    #[arg(value_name = "RUN")]
    pub run: String,
}

#[derive(Debug, clap::Args)]
pub struct ShowRunArgs {
    #[command(flatten)]
    pub named: NamedRunArgs,
    /// Also what was said
    #[arg(long)]
    pub messages: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the timeline of its calls as a picture
    #[arg(long, conflicts_with_all = ["json", "messages"])]
    pub svg: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What stands before the place is answered from the old record, the rest runs
now. Without a place a run begins anew and a chat goes on behind its last turn.
Files and the outside world are not rewound.")]
pub struct ForkRunArgs {
    #[command(flatten)]
    pub named: NamedRunArgs,
    /// What is said instead, where a turn begins
    pub prompt: Option<String>,
    /// The key of the first step that runs anew, as `llm-do runs show` tells it
    #[arg(long, value_name = "KEY", conflicts_with = "turn")]
    pub at: Option<String>,
    /// The first turn that runs anew, counted from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub turn: Option<u64>,
    #[command(flatten)]
    pub conduct: ConductArgs,
}

#[derive(Debug, clap::Args)]
pub struct ExportRunArgs {
    #[command(flatten)]
    pub named: NamedRunArgs,
    /// In which form
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ExportFormat::Jsonl)]
    pub format: ExportFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The lines of its record, with every value in its line
    Jsonl,
    /// What was said, to read
    Markdown,
    /// All of it as one page, to read without a server
    Html,
    /// What another machine can go on with: `llm-do resume FILE.bundle`
    Bundle,
}

#[derive(Debug, clap::Args)]
pub struct RemoveRunsArgs {
    /// Their ids, or six or more characters of their beginnings
    #[arg(value_name = "RUN", required_unless_present = "older")]
    pub runs: Vec<String>,
    /// All that have ended so long ago, such as `90d`
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "runs")]
    pub older: Option<Duration>,
    /// Also one that waits or runs
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do costs                             day by day
  llm-do costs --by model --since 30d
  llm-do costs --by project --json | jq

Runs that were removed, and those that were not kept, are counted too. What has
no known price is counted apart, in tokens. Budgets of config.toml are shown
with what is left of them.")]
pub struct CostsArgs {
    /// What to sum up by
    #[arg(long, value_enum, value_name = "GROUP", default_value_t = CostGroupArg::Day)]
    pub by: CostGroupArg,
    /// Only of this time, such as `30d`
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "90d")]
    pub since: Duration,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  llm-do cache                 which agents have replies that count again
  llm-do cache rm triage       ask anew what this agent was asked before
  llm-do run desk --explain-cache \"…\"    why a model is asked all the same

An agent whose file says `cache: content` is not asked again what it was asked
before, in no run of the project, as long as all that it is told and all that
it reads is what it was. The replies are in the cache directory.")]
pub struct CacheArgs {
    #[command(subcommand)]
    pub command: Option<CacheCommand>,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  llm-do mcp                   the MCP servers of this project, and their logins
  llm-do mcp login hub desk    log in to the server `hub` of the project `desk`
  llm-do mcp logout hub desk   forget that login

What a login gives is kept in the state directory, for you alone, and is renewed
without you as long as the authorization server allows it.")]
pub struct McpArgs {
    /// A project directory, its `project.json`, or a worker file
    pub project: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// Log in to a server, in a browser
    Login(McpLoginArgs),
    /// Forget the login at a server
    Logout(McpLogoutArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exits with 0; with 2 if there is no such server, with 3 if its authorization
server cannot be reached or does what the standards forbid, with 4 if the login
was declined.")]
pub struct McpLoginArgs {
    /// The name of the server in the project
    #[arg(value_name = "NAME")]
    pub server: String,
    /// A project directory, its `project.json`, or a worker file
    #[arg(default_value = ".")]
    pub project: PathBuf,
    /// Open no browser and listen nowhere: read the address where you land from stdin
    #[arg(long)]
    pub no_browser: bool,
    /// Trust the project as it is now, or exactly the list with this digest
    #[arg(long, value_name = "DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = NOW)]
    pub trust: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct McpLogoutArgs {
    /// The name of the server in the project
    #[arg(value_name = "NAME")]
    pub server: String,
    /// A project directory, its `project.json`, or a worker file
    #[arg(default_value = ".")]
    pub project: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Forget the replies of an agent, or all of them
    Rm {
        /// The agent, in whatever project
        agent: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CostGroupArg {
    Day,
    Project,
    /// The agent that asked the model
    Agent,
    Model,
    /// The agent or function that runs began with
    Entry,
}

impl ResumeArgs {
    /// Of a run that is named by its id, without any decision.
    pub fn of_run(id: &str, conduct: ConductArgs) -> Self {
        Self {
            run: Some(id.into()),
            last: false,
            approve: Vec::new(),
            refuse: Vec::new(),
            answer: Vec::new(),
            reason: Vec::new(),
            show: false,
            force: false,
            foreign: false,
            engine: EngineArgs::default(),
            conduct,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  llm-do inbox                                the open questions of all runs
  llm-do inbox show 48877392a3eb              all of one of them
  llm-do inbox approve 48877392a3eb --go      allow it, and go on
  llm-do inbox approve 06gy3k9x/48877392a3eb  where several runs ask it
  llm-do inbox refuse 48877392a3eb --reason \"use the other account\"

An answer counts once, whoever gives it first: here, at the terminal that asks,
or from another program. A run that still runs takes it at once; one that was
suspended takes it when it goes on.")]
pub struct InboxArgs {
    /// Go on listing new questions until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(subcommand)]
    pub command: Option<InboxCommand>,
}

#[derive(Debug, Subcommand)]
pub enum InboxCommand {
    /// Show all of a question
    Show(InboxShowArgs),
    /// Allow the calls that are asked about
    Approve(InboxApproveArgs),
    /// Answer a question that wants more than yes or no, such as how far to raise a limit
    Answer(InboxAnswerArgs),
    /// Refuse the call that is asked about
    Refuse(InboxRefuseArgs),
}

#[derive(Debug, clap::Args)]
pub struct InboxShowArgs {
    /// The first 12 digits of its id, or RUN/ID
    #[arg(value_name = "QUESTION")]
    pub question: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct InboxApproveArgs {
    /// The first 12 digits of its id, or RUN/ID
    #[arg(value_name = "QUESTION", required = true)]
    pub questions: Vec<String>,
    /// Change the arguments in $EDITOR first
    #[arg(long)]
    pub edit: bool,
    /// Go on with the run in this process, if it was suspended
    #[arg(long)]
    pub go: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do inbox answer 48877392a3eb usd=2 --go    raises a cost limit to $2.00
  llm-do inbox answer 48877392a3eb to=100        raises any other limit
  llm-do inbox answer 5d01c0ffee42 crane=blue    fills in a form of an agent")]
pub struct InboxAnswerArgs {
    /// The first 12 digits of its id, or RUN/ID
    #[arg(value_name = "QUESTION")]
    pub question: String,
    /// What it is answered with
    #[arg(value_name = "NAME=VALUE", required = true)]
    pub values: Vec<String>,
    /// Go on with the run in this process, if it was suspended
    #[arg(long)]
    pub go: bool,
}

#[derive(Debug, clap::Args)]
pub struct InboxRefuseArgs {
    /// The first 12 digits of its id, or RUN/ID
    #[arg(value_name = "QUESTION")]
    pub question: String,
    /// What the model reads about the refusal
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Go on with the run in this process, if it was suspended
    #[arg(long)]
    pub go: bool,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  llm-do policy                                the rules in force here
  llm-do policy explain write_file '{\"path\": \"a.md\", \"content\": \"x\"}'
  llm-do policy explain 06gy3k9x/48877392a3eb  why a run asked
  llm-do policy replay --rules new.toml        the last calls, judged again
  llm-do policy suggest                        rules for what you approve

Your rules are in `rules.toml` of the state directory; docs/approvals.md tells
how a call is judged.")]
pub struct PolicyArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Option<PolicyCommand>,
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Tell what becomes of a call, step by step, and who decides
    Explain(PolicyExplainArgs),
    /// Judge the recorded calls of kept runs again; exit code 1 if one that a person refused would now run
    Replay(PolicyReplayArgs),
    /// Suggest the smallest rules for what you approve, at least three times
    Suggest(PolicySuggestArgs),
    /// Read all files of rules, and hold each rule against its examples
    Test,
    /// Open your rules in $EDITOR; what is not a file of rules is not saved
    Edit,
}

#[derive(Debug, clap::Args)]
pub struct PolicyExplainArgs {
    /// A tool, or a question of a run as RUN/QUESTION
    #[arg(value_name = "TOOL|RUN/QUESTION")]
    pub subject: String,
    /// What the tool is called with
    #[arg(value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    /// The agent that calls, instead of the project's entry
    #[arg(short, long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The project
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub project: PathBuf,
    #[command(flatten)]
    pub models: ModelArgs,
    /// Trust the project as it is now, or exactly the list with this digest
    #[arg(long, value_name = "DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = NOW)]
    pub trust: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct PolicyReplayArgs {
    /// Rules to try instead of your own
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Only calls of runs of this time, such as `30d`
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "90d")]
    pub since: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct PolicySuggestArgs {
    /// Only calls of runs of this time, such as `30d`
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "90d")]
    pub since: Duration,
    /// Add all of them without asking
    #[arg(long)]
    pub yes: bool,
    /// Print one JSON object a line, and add nothing
    #[arg(long, conflicts_with = "yes")]
    pub json: bool,
}

/// With which fence around commands a rule that allows is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FenceArg {
    /// Files, processes and IPC of their own
    Full,
    /// Landlock and seccomp: what commands may write they may also plant hooks and agents in
    Thin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum OnLimitArg {
    /// Ask how far to raise it; without anybody to ask the run waits (exit code 4)
    Ask,
    /// End with exit code 5
    Stop,
    /// Ask the model once more, without tools, to finish with what it has
    WrapUp,
}

impl From<OnLimitArg> for llm_do::OnLimit {
    fn from(on_limit: OnLimitArg) -> Self {
        match on_limit {
            OnLimitArg::Ask => Self::Ask,
            OnLimitArg::Stop => Self::Stop,
            OnLimitArg::WrapUp => Self::WrapUp,
        }
    }
}

impl From<FenceArg> for llm_do_launch::fencing::FenceChoice {
    fn from(fence: FenceArg) -> Self {
        match fence {
            FenceArg::Full => Self::Full,
            FenceArg::Thin => Self::Thin,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    /// The answer
    Text,
    /// One object: the result
    Json,
    /// One event per line, the result last
    StreamJson,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct ModelArgs {
    /// The model of the entry and of agents whose file names none (`provider:model`), of one agent (`AGENT=provider:model`), or of
    /// every agent (`all=provider:model`)
    #[arg(short, long = "model", value_name = "MODEL")]
    pub models: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do new hello                     a project with one agent
  llm-do new notes --template tools    with files and commands
  llm-do new desk --template multi     agents that call each other
  llm-do new demo --template demo      runs without any key
  llm-do new --worker summarizer       one worker file in this directory")]
pub struct NewArgs {
    /// The directory to write to; it is made if it is not there
    #[arg(required_unless_present = "worker")]
    pub directory: Option<PathBuf>,
    /// What to write
    #[arg(long, value_enum, default_value_t = Template::Minimal, conflicts_with = "worker")]
    pub template: Template,
    /// Write one worker file of this name instead of a project
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// One agent
    Minimal,
    /// One agent with files and commands, and rules for them
    Tools,
    /// Agents that call each other, with typed input and output
    Multi,
    /// One agent that follows a script and asks before it writes: runs without any key
    Demo,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do models                     keys, and models whose key is set
  llm-do models --all               everything
  llm-do models --use ollama:qwen3  the model of agents that name none
  llm-do models anthropic:          one provider and its models
  llm-do models haiku               models by a part of their names
  llm-do models --json | jq '.providers[] | select(.key.state==\"present\").name'

Prices are US dollars per million tokens, as of the day this version was made;
`[prices]` in config.toml corrects them. Other models work too, their costs are
unknown. `openai-chat` and `azure` have the models of `openai`. Keys are never
shown.")]
pub struct ModelsArgs {
    /// Only names that contain this, letters of any case
    pub filter: Option<String>,
    /// Ask this model where nothing else says which: writes `model` into config.toml; given
    /// again, the next one is asked where the provider of the one before has trouble
    #[arg(long = "use", value_name = "MODEL", conflicts_with_all = ["filter", "json", "all"])]
    pub used: Vec<String>,
    /// List everything that is known, not only what a screen holds
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do doctor                     what is here, and what of it is wrong
  llm-do doctor --online            also whether providers can be reached
  llm-do doctor --json              the same for programs

Exits with 0 if nothing is wrong, else with 1. Nothing is sent without --online.")]
pub struct DoctorArgs {
    /// Also ask whether the providers whose keys are set can be reached
    #[arg(long)]
    pub online: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct SchemaArgs {
    /// Of which format
    #[arg(value_enum)]
    pub format: SchemaFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaFormat {
    /// `project.json`
    Project,
    /// Worker files
    Worker,
    /// `NAME.test.yaml`
    Test,
    /// `config.toml`
    Config,
    /// The lines of `llm-do run --json`, but the last
    Events,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(llm-do completions bash)     in ~/.bashrc
  llm-do completions bash > ~/.local/share/bash-completion/completions/llm-do
  llm-do completions zsh > ~/.zfunc/_llm-do
  llm-do completions fish > ~/.config/fish/completions/llm-do.fish")]
pub struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    pub shell: ShellArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

/// A time in seconds, or with a unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let unit = match text.chars().next_back() {
        Some('s') => Some(1.0),
        Some('m') => Some(60.0),
        Some('h') => Some(3600.0),
        Some('d') => Some(86_400.0),
        Some('w') => Some(604_800.0),
        Some(_) | None => None,
    };
    let number = if unit.is_some() { &text[..text.len() - 1] } else { text };
    let unit = unit.unwrap_or(1.0);
    let seconds = number.trim().parse::<f64>().ok().map(|number| number * unit);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write seconds, or `90s`, `5m`, `1h`, `7d`, `4w`".to_owned())
}

/// Parsing only: help, version and usage errors come back as clap's own error.
pub fn parse(argv: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let argv = with_help(argv.into_iter().collect());
    let is_chat = argv.get(1).is_some_and(|first| first == "chat");
    let meant = with_run(argv.clone());
    let args = match parse_run(&meant).or_else(|| parse_runs(&meant)) {
        Some(args) => args,
        None => match Args::try_parse_from(meant) {
            // A user who typed `chat` reads errors about `chat` and not about `run`.
            Err(_) if is_chat => {
                command().try_get_matches_from(argv).and_then(|matches| Args::from_arg_matches(&matches))?
            }
            parsed => parsed?,
        },
    };
    if let Command::Run(run) = &args.command {
        run.check_chat()?;
        run.check_trust()?;
    }
    Ok(args)
}

impl RunArgs {
    /// Refuses flags that a chat cannot have. The definition of the flags cannot say it: who types `chat` never typed the
    /// flag `--chat`, which it would name.
    fn check_chat(&self) -> Result<(), clap::Error> {
        let wrong = |fact: String| Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, fact));
        if self.continued.is_some() {
            if !self.chat {
                return wrong("`--continue` is for `chat`; a run goes on with `llm-do resume ID`\n".to_owned());
            }
            let begins = [
                ("--journal", self.journal.is_some()),
                ("--ephemeral", self.ephemeral),
                ("--label", self.label.is_some()),
                ("--agent", self.agent.is_some()),
            ];
            if let Some((flag, _)) = begins.into_iter().find(|(_, is_given)| *is_given) {
                return wrong(format!("`{flag}` cannot be used with `--continue`: the chat has begun\n"));
            }
        }
        let given = [("--replay", self.replay.is_some()), ("--dry-run", self.dry_run), ("--once", self.once.is_some())];
        match given.into_iter().find(|(_, is_given)| self.chat && *is_given) {
            None => Ok(()),
            Some((flag, _)) => wrong(format!("`{flag}` cannot be used with `chat`\n")),
        }
    }
}

impl RunArgs {
    /// A digest behind a blank would be read as the project or the prompt, and everything would be trusted.
    fn check_trust(&self) -> Result<(), clap::Error> {
        let is_digest = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let words = self.project.to_str().into_iter().chain(self.prompt.as_deref());
        match words.into_iter().find(|word| self.conduct.trust.as_deref() == Some(NOW) && is_digest(word)) {
            None => Ok(()),
            Some(digest) => {
                let fact = format!("the digest of `--trust` stands behind `=`: `--trust={digest}`\n");
                Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, fact))
            }
        }
    }
}

/// A run by itself: building the flags of all other commands would cost more than the rest of parsing. What is wrong, or
/// help, is left to the whole definition, which has better words for it.
fn parse_run(argv: &[OsString]) -> Option<Args> {
    let [_, command, words @ ..] = argv else { return None };
    if command != "run" {
        return None;
    }
    let args = plain_run(words).or_else(|| parse_alone::<RunArgs>("run", words))?;
    Some(Args { command: Command::Run(Box::new(args)) })
}

/// The flags of plain runs: they take nothing, and none of them excludes another.
const PLAIN_FLAGS: &[(&[&str], PlainFlag)] = &[
    (&["--chat"], |args| &mut args.chat),
    (&["--ephemeral"], |args| &mut args.ephemeral),
    (&["--no-stdin"], |args| &mut args.no_stdin),
    (&["-p", "--headless", "--print"], |args| &mut args.conduct.headless),
    (&["-q", "--quiet"], |args| &mut args.conduct.quiet),
    (&["--json"], |args| &mut args.conduct.json),
];

/// Where a flag is noted.
type PlainFlag = fn(&mut RunArgs) -> &mut bool;

/// A project, what is said to it, and nothing but plain flags and models besides, as most runs are begun: the table of all
/// flags, which costs more than a run needs for anything else, is not made for that. Whatever is not as plain as this, or wrong, is
/// left to that table, and so is every word that it could read in another way.
fn plain_run(words: &[OsString]) -> Option<RunArgs> {
    let (mut args, mut project) = (RunArgs::default(), None);
    let mut words = words.iter().map(|word| word.to_str().filter(|word| !word.is_empty()));
    while let Some(word) = words.next() {
        let word = word?;
        if matches!(word, "-m" | "--model") {
            args.conduct.models.models.push(words.next()?.filter(|model| !model.starts_with('-'))?.to_owned());
        } else if word.starts_with('-') {
            let (_, flag) = PLAIN_FLAGS.iter().find(|(names, _)| names.contains(&word))?;
            if std::mem::replace(flag(&mut args), true) {
                return None;
            }
        } else if project.is_none() {
            project = Some(PathBuf::from(word));
        } else if args.prompt.is_none() {
            args.prompt = Some(word.to_owned());
        } else {
            return None;
        }
    }
    Some(RunArgs { project: project.unwrap_or_else(|| PathBuf::from(".")), ..args })
}

/// A list of runs by itself, for the same reason: to read the list costs less than to define all flags.
fn parse_runs(argv: &[OsString]) -> Option<Args> {
    let [_, command, words @ ..] = argv else { return None };
    let is_list = words.first().is_none_or(|word| word.as_encoded_bytes().starts_with(b"-"));
    if command != "runs" || !is_list {
        return None;
    }
    let listing = parse_alone::<ListRunsArgs>("runs", words)?;
    Some(Args { command: Command::Runs(RunsArgs { command: None, engine: EngineArgs::default(), listing }) })
}

fn parse_alone<T: clap::Args + clap::FromArgMatches>(name: &'static str, words: &[OsString]) -> Option<T> {
    let mut command = T::augment_args(clap::Command::new(name).no_binary_name(true));
    let mut matches = command.try_get_matches_from_mut(words).ok()?;
    let args = T::from_arg_matches_mut(&mut matches).ok();
    // There is one command in a process: to give the memory of its table back, piece by piece, takes longer than to make it.
    std::mem::forget((command, matches));
    args
}

/// Whether the words ask for a run whose result is JSON: then its usage errors are JSON too.
pub fn asked_format(argv: &[OsString]) -> RunFormat {
    let is_run = argv.get(1).is_some_and(|first| match first.to_str() {
        Some("run" | "chat" | "map" | "resume") | None => true,
        Some(other) => !COMMANDS.contains(&other),
    });
    let words: Vec<&str> = argv.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let follows = |(flag, value): (&&str, &&str)| *flag == "--output-format" && value.ends_with("json");
    let is_json =
        words.iter().any(|word| matches!(*word, "--json" | "--output-format=json" | "--output-format=stream-json"))
            || words.iter().zip(words.iter().skip(1)).any(follows);
    if is_run && is_json { RunFormat::Json } else { RunFormat::Text }
}

/// All commands with all their flags, for help, completions and the manual.
pub fn command() -> clap::Command {
    let command = Args::command();
    let Some(run) = command.find_subcommand("run").cloned() else { return command };
    command.mut_subcommand("chat", |chat| {
        let about = chat.get_about().cloned().unwrap_or_default();
        run.name("chat").about(about).after_help(CHAT_HELP).mut_arg("chat", |flag| flag.hide(true))
    })
}

const CHAT_HELP: &str = "\
Examples:
  llm-do chat hello                       type; Enter sends, Ctrl-D ends
  llm-do chat hello \"Good morning\"       with a first message
  printf 'one\\ntwo\\n' | llm-do chat hello   every line of a pipe is a turn
  llm-do chat hello --continue            the last chat with it goes on

/help lists the commands of a chat. Ctrl-C cancels the turn, not the chat.";

/// What `--trust` means without a digest behind it.
pub const NOW: &str = "now";

/// Names of commands; everything else in their place is a project to run.
pub const COMMANDS: &[&str] = &[
    "run",
    "chat",
    "map",
    "resume",
    "runs",
    "costs",
    "cache",
    "inbox",
    "policy",
    "mcp",
    "serve",
    "web",
    #[cfg(feature = "restate")]
    "engine-worker",
    "check",
    "validate",
    "harden",
    "soften",
    "test",
    "new",
    "models",
    "doctor",
    "schema",
    "completions",
];

/// `llm-do help` means `llm-do --help`, and `llm-do help COMMAND` means `llm-do COMMAND --help`.
fn with_help(mut argv: Vec<OsString>) -> Vec<OsString> {
    if argv.get(1).is_some_and(|first| first == "help") {
        argv.remove(1);
        argv.truncate(2);
        argv.push(OsString::from("--help"));
    }
    argv
}

/// `llm-do PROJECT …` means `llm-do run PROJECT …`, and `llm-do chat …` means `llm-do run --chat …`.
fn with_run(mut argv: Vec<OsString>) -> Vec<OsString> {
    const OWN_FLAGS: &[&str] = &["-h", "--help", "-V", "--version"];
    let is_command =
        |first: &OsString| first.to_str().is_some_and(|it| COMMANDS.contains(&it) || OWN_FLAGS.contains(&it));
    match argv.get(1) {
        Some(first) if first == "chat" => {
            argv.splice(1..2, ["run", "--chat"].map(OsString::from));
        }
        Some(first) if !is_command(first) => argv.insert(1, OsString::from("run")),
        Some(_) | None => {}
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_in_the_place_of_a_command_is_run() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        let cases = [
            ("llm-do hello hi", "llm-do run hello hi"),
            ("llm-do --json hello", "llm-do run --json hello"),
            ("llm-do check hello", "llm-do check hello"),
            ("llm-do chat hello", "llm-do run --chat hello"),
            ("llm-do --version", "llm-do --version"),
            ("llm-do help", "llm-do --help"),
            ("llm-do help check", "llm-do check --help"),
            ("llm-do", "llm-do"),
        ];
        for (typed, meant) in cases {
            assert_eq!(with_run(with_help(words(typed))), words(meant));
        }
    }

    #[test]
    fn whoever_asks_for_json_is_known_by_their_words() {
        let cases = [
            ("llm-do run x --json --bogus", RunFormat::Json),
            ("llm-do x --output-format stream-json", RunFormat::Json),
            ("llm-do chat x --output-format=json", RunFormat::Json),
            ("llm-do x -- --json", RunFormat::Text),
            ("llm-do check x --json", RunFormat::Text),
            ("llm-do run x --output-format text", RunFormat::Text),
        ];
        for (line, format) in cases {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(asked_format(&words), format, "{line}");
        }
    }

    #[test]
    fn a_digest_behind_a_blank_is_no_trust_in_everything() {
        let digest = "9f31c0de2b7704a1c55e8d20f6b3917a";
        let parsed = |words: &str| parse(words.split_whitespace().map(Into::into)).map_err(|error| error.to_string());
        for words in [format!("llm-do . --trust {digest}"), format!("llm-do --trust {digest}")] {
            let said = parsed(&words).unwrap_err();
            assert!(said.contains(&format!("`--trust={digest}`")), "{said}");
        }
        for words in [format!("llm-do . --trust={digest}"), format!("llm-do . {digest}"), "llm-do . --trust hi".into()]
        {
            assert!(parsed(&words).is_ok(), "{words}");
        }
    }

    #[test]
    fn a_run_is_parsed_alone_as_it_is_among_the_others() {
        for line in [
            "llm-do run",
            "llm-do run hello hi",
            "llm-do run hello -m a:b -m main=c:d -f x -f y --json --timeout 5m -vv --yolo",
            "llm-do run --chat hello -p -q --max-turns 3 --max-budget-usd 0.5 -o out --record j --debug --trust",
            "llm-do run hello --input-json {} --output-format json --no-stream --no-stdin --reject-all -- ",
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let whole = Args::try_parse_from(&words).map(|args| format!("{args:?}"));
            assert_eq!(parse_run(&words).map(|args| format!("{args:?}")), whole.ok(), "{line}");
            assert!(parse_run(&words).is_some(), "{line}");
        }
        for line in ["llm-do runs", "llm-do runs --all --json -n 3", "llm-do runs --state waits --since 7d --project x"]
        {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let whole = Args::try_parse_from(&words).map(|args| format!("{args:?}"));
            assert_eq!(parse_runs(&words).map(|args| format!("{args:?}")), whole.ok(), "{line}");
            assert!(parse_runs(&words).is_some(), "{line}");
        }
        for line in ["llm-do runs show x", "llm-do runs --help", "llm-do runs --state x", "llm-do run x"] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert!(parse_runs(&words).is_none(), "{line}");
        }
        for line in ["llm-do run x --help", "llm-do run x --bogus", "llm-do check x", "llm-do"] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert!(parse_run(&words).is_none(), "{line}");
        }
    }

    #[test]
    fn a_plain_run_is_what_the_table_of_flags_makes_of_it() {
        use proptest::strategy::{Strategy as _, ValueTree as _};

        const WORDS: &[&str] = &[
            "hello",
            "hi there",
            "a=b",
            "",
            "-",
            "--",
            "-m",
            "--model",
            "-mx:y",
            "--model=x:y",
            "x:y",
            "--chat",
            "--ephemeral",
            "--no-stdin",
            "-p",
            "--headless",
            "--print",
            "-q",
            "--quiet",
            "--json",
            "-pq",
            "-v",
            "--trust",
            "--help",
            "-1",
            "--durable",
            "--once",
            "--force",
            "--bogus",
            "help",
            "run",
        ];
        let words = proptest::collection::vec(proptest::sample::select(WORDS), 0..6);
        let mut plain = 0;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..4000 {
            let words = words.new_tree(&mut runner).unwrap().current();
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            if let Some(args) = plain_run(&words) {
                plain += 1;
                let whole = parse_alone::<RunArgs>("run", &words).map(|args| format!("{args:?}"));
                assert_eq!(Some(format!("{args:?}")), whole, "{words:?}");
            }
        }
        assert!(plain > 200, "{plain}");
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        for line in
            ["hello hi", "hello hi --ephemeral", "--chat -q hello", "-m a:b --json -p hello -m c:d hi --no-stdin"]
        {
            assert!(plain_run(&words(line)).is_some(), "{line}");
        }
    }

    /// Compares a document with what the help says. `LLM_DO_WRITE_MANUAL=1 cargo test -p llm-do-cli manual` writes it.
    fn check_document(path: &str, text: &[u8]) {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(path);
        if std::env::var_os("LLM_DO_WRITE_MANUAL").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
        }
        let kept = std::fs::read(&file).unwrap_or_default();
        assert!(kept == text, "{} is not what `--help` says: write it anew", file.display());
    }

    #[test]
    fn the_manual_is_what_the_help_says() {
        let mut command = command();
        command.build();
        let mut written = subcommands(&command);
        written.push(command);
        for command in written {
            let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).unwrap();
            check_document(&format!("man/{name}.1"), &page);
        }
    }

    /// All commands, and behind each one those that it has itself.
    fn subcommands(command: &clap::Command) -> Vec<clap::Command> {
        let with_own =
            |inner: &clap::Command| std::iter::once(inner.clone()).chain(subcommands(inner)).collect::<Vec<_>>();
        command.get_subcommands().flat_map(with_own).collect()
    }

    /// The flags and arguments of one command as a table.
    fn reference(command: &clap::Command) -> String {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let name = command.get_bin_name().unwrap_or(command.get_name());
        let mut text = format!("\n## `{name}`\n\n{about}.\n");
        if command.get_name() == "chat" {
            return text + "Its arguments are those of `llm-do run`.\n";
        }
        let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
        if !aliases.is_empty() {
            text += &format!("Another name is {}.\n", aliases.join(", "));
        }
        let arguments: Vec<&clap::Arg> =
            command.get_arguments().filter(|argument| !argument.is_hide_set() && argument.get_id() != "help").collect();
        if arguments.is_empty() {
            return text;
        }
        text += "\n| | |\n| --- | --- |\n";
        for argument in arguments {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let words: Vec<String> = (argument.get_possible_values().iter())
                .filter(|_| argument.get_action().takes_values())
                .map(|value| format!("`{}`", value.get_name()))
                .collect();
            let parts: Vec<String> = [help, words.join(", ")].into_iter().filter(|part| !part.is_empty()).collect();
            text += &format!("| {} | {} |\n", spelled(argument), parts.join(": "));
        }
        text
    }

    /// Every way to write an argument.
    fn spelled(argument: &clap::Arg) -> String {
        let value = (argument.get_value_names().unwrap_or_default().iter())
            .map(|name| if argument.is_require_equals_set() { format!("[={name}]") } else { format!(" {name}") })
            .next();
        let value = value.filter(|_| argument.get_action().takes_values()).unwrap_or_default();
        if argument.is_positional() {
            return format!("`{}`", value.trim());
        }
        let short = argument.get_short().map(|short| format!("-{short}"));
        let long = argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default());
        let all = short.into_iter().chain(long.map(|long| format!("--{long}")));
        all.map(|spelling| format!("`{spelling}{value}`")).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn the_manual_of_all_commands_is_what_the_help_says() {
        const MARK: &str = "writes what follows -->\n";
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        let kept = std::fs::read_to_string(file).unwrap();
        let (by_hand, _) = kept.split_once(MARK).unwrap();
        let mut command = command();
        command.build();
        let tables: Vec<String> = subcommands(&command).iter().map(reference).collect();
        check_document("cli.md", format!("{by_hand}{MARK}{}", tables.concat()).as_bytes());
    }

    #[test]
    fn times_have_units() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs_f64());
        for (text, expected) in [
            ("90", 90.0),
            ("1.5s", 1.5),
            ("5m", 300.0),
            ("2h", 7200.0),
            ("7d", 604_800.0),
            ("2w", 1_209_600.0),
            ("0.2", 0.2),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "m", "0", "-1", "1y", "inf", "NaN", "1e99h", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    /// Words that are wrapped by hand would be wrapped again, in the middle of an example.
    #[test]
    fn what_follows_the_flags_fits_80_columns() {
        let mut command = command();
        command.build();
        for command in std::iter::once(&command).chain(&subcommands(&command)) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
        }
    }

    #[test]
    fn every_command_is_listed() {
        let commands = Args::command();
        let names = commands.get_subcommands().flat_map(|command| {
            std::iter::once(command.get_name().to_owned()).chain(command.get_all_aliases().map(str::to_owned))
        });
        let mut names: Vec<String> = names.collect();
        let mut listed: Vec<String> = COMMANDS.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        listed.sort();
        assert_eq!(names, listed);
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }
}
