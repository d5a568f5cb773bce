//! What was typed. Nothing is decided here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

/// Prompts as executables: agents are text files, and dangerous calls stop at a gate.
#[derive(Debug, Parser)]
#[command(name = "llm-do", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  llm-do new hello                  write a project to start from
  llm-do check hello                link it: every mistake at once, and what each agent can do
  llm-do hello \"What is a monad?\"   run it (the same as `llm-do run hello …`)
  llm-do check hello --json | jq    the same for programs
  llm-do models haiku               what models cost, and whose key is at hand
  llm-do schema worker              the JSON Schema of worker files, for editors

Exit codes: 0 success, 1 agent or model failure, 2 usage or project error, 3 provider error,
4 approval needed or refused, 5 limit reached, 6 the answer violates its schema.")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a project once and print its answer
    Run(RunArgs),
    /// Link a project without running anything of it, and show what it can do
    #[command(visible_alias = "validate")]
    Check(CheckArgs),
    /// Write a project or a worker file to start from
    New(NewArgs),
    /// List providers, whether their keys are at hand, and known models with their prices
    Models(ModelsArgs),
    /// Print the JSON Schema of a file format, for editors
    Schema(SchemaArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do check .                    the project in this directory
  llm-do check main.worker          one worker file
  llm-do check . -m ollama:qwen3    with a model for agents that name none
  llm-do check . --dot | dot -Tsvg  the call graph as a picture

Exits with 0, or with 2 and every error with its place.")]
pub struct CheckArgs {
    /// A project directory, its `project.json`, or a worker file
    pub project: PathBuf,
    #[command(flatten)]
    pub models: ModelArgs,
    /// The agent to start with, instead of the project's entry
    #[arg(short, long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "dot")]
    pub json: bool,
    /// Print the call graph in Graphviz's language
    #[arg(long)]
    pub dot: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do run hello \"What is a monad?\"
  git diff | llm-do run reviewer \"Review this change\"    stdin is added to the prompt
  llm-do run hello -m ollama:qwen3 -f paper.pdf \"Summarise\"
  llm-do run hello --input-json '{\"topic\": \"rain\"}' --output-format json | jq .output

stdout carries only the answer, or JSON; everything else goes to stderr.")]
#[expect(clippy::struct_excessive_bools, reason = "flags as they were typed; the plan decides what they mean")]
pub struct RunArgs {
    /// A project directory, its `project.json`, or a worker file
    pub project: PathBuf,
    /// What to say to the entry; `-` reads it from stdin
    pub prompt: Option<String>,
    #[command(flatten)]
    pub models: ModelArgs,
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
    /// Print one event per line as JSON; the last one is the result
    #[arg(long, conflicts_with = "output_format")]
    pub json: bool,
    /// What to print on stdout
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub output_format: Option<OutputFormat>,
    /// Ask for whole answers instead of streams
    #[arg(long)]
    pub no_stream: bool,
    /// Answer every question with yes
    #[arg(long, alias = "yolo", conflicts_with = "reject_all")]
    pub approve_all: bool,
    /// Answer every question with no
    #[arg(long)]
    pub reject_all: bool,
    /// Stop at this many model requests in the whole run
    #[arg(long, alias = "max-turns", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_requests: Option<u64>,
    /// Stop before the run costs more
    #[arg(long, alias = "max-budget-usd", value_name = "USD")]
    pub max_cost_usd: Option<f64>,
    /// How deep agents may call each other
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_depth: Option<u64>,
    /// The Python that runs the project's Python files, instead of its `.venv`, the active environment or `python3`
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Give up after this time: seconds, or with a unit as in `90s`, `5m`, `1h`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Also write the answer to this file
    #[arg(short, long, value_name = "FILE", alias = "output-last-message")]
    pub output: Option<PathBuf>,
    /// Never ask, never animate
    #[arg(long, short = 'p', alias = "print")]
    pub headless: bool,
    /// Say more on stderr: calls (-v), text as it arrives (-vv), the messages as JSON lines (-vvv)
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Only errors and questions on stderr
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Errors with all that is known of them
    #[arg(long)]
    pub debug: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The answer
    Text,
    /// One object: the result
    Json,
    /// One event per line, the result last
    StreamJson,
}

#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// The model of agents whose file names none (`provider:model`), or of one agent (`AGENT=provider:model`)
    #[arg(short, long = "model", value_name = "MODEL")]
    pub models: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do new hello                     a project with one agent
  llm-do new notes --template tools    with files and commands
  llm-do new desk --template multi     agents that call each other
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
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  llm-do models                     everything
  llm-do models anthropic:          one provider and its models
  llm-do models haiku               models by a part of their names, and their providers
  llm-do models --json | jq '.providers[] | select(.key.state == \"present\").name'

Prices are US dollars per million tokens, as of the day this version was made; `[prices]` in
config.toml corrects them. Other models work too, their costs are unknown. `openai-chat` and `azure`
have the models of `openai`. Keys are never shown.")]
pub struct ModelsArgs {
    /// Only names that contain this, letters of any case
    pub filter: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct SchemaArgs {
    #[arg(value_enum)]
    pub format: SchemaFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaFormat {
    /// `project.json`
    Project,
    /// Worker files
    Worker,
    /// The lines of `llm-do run --json`, but the last
    Events,
}

/// A time in seconds, or with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    let seconds = number.trim().parse::<f64>().ok().map(|number| number * unit);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| "write seconds, or `90s`, `5m`, `1h`".to_owned())
}

/// Parsing only: help, version and usage errors come back as clap's own error.
pub fn parse(argv: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    Args::try_parse_from(with_run(argv.into_iter().collect()))
}

/// Names of commands; everything else in their place is a project to run.
pub const COMMANDS: &[&str] = &["run", "check", "validate", "new", "models", "schema"];

/// `llm-do PROJECT …` means `llm-do run PROJECT …`.
fn with_run(mut argv: Vec<OsString>) -> Vec<OsString> {
    const OWN_FLAGS: &[&str] = &["-h", "--help", "-V", "--version"];
    let is_command =
        |first: &OsString| first.to_str().is_some_and(|it| COMMANDS.contains(&it) || OWN_FLAGS.contains(&it));
    if argv.get(1).is_some_and(|first| !is_command(first)) {
        argv.insert(1, OsString::from("run"));
    }
    argv
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn a_project_in_the_place_of_a_command_is_run() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        let cases = [
            ("llm-do hello hi", "llm-do run hello hi"),
            ("llm-do --json hello", "llm-do run --json hello"),
            ("llm-do check hello", "llm-do check hello"),
            ("llm-do --version", "llm-do --version"),
            ("llm-do", "llm-do"),
        ];
        for (typed, meant) in cases {
            assert_eq!(with_run(words(typed)), words(meant));
        }
    }

    #[test]
    fn times_have_units() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs_f64());
        for (text, expected) in [("90", 90.0), ("1.5s", 1.5), ("5m", 300.0), ("2h", 7200.0), ("0.2", 0.2)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "m", "0", "-1", "1d", "inf", "NaN", "1e99h", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
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
        Args::command().debug_assert();
    }
}
