//! What was typed. Nothing is decided here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Prompts as executables: agents are text files, and dangerous calls stop at a gate.
#[derive(Debug, Parser)]
#[command(name = "llm-do", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  llm-do new hello                  write a project to start from
  llm-do check hello                link it: every mistake at once, and what each agent can do
  llm-do check hello --json | jq    the same for programs
  llm-do schema worker              the JSON Schema of worker files, for editors

Exit codes: 0 success, 2 usage or project error.")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Link a project without running anything of it, and show what it can do
    #[command(visible_alias = "validate")]
    Check(CheckArgs),
    /// Write a project or a worker file to start from
    New(NewArgs),
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
}

/// Parsing only: help, version and usage errors come back as clap's own error.
pub fn parse(argv: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    Args::try_parse_from(argv)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        super::Args::command().debug_assert();
    }
}
