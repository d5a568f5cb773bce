//! Each command from its arguments to its effects.

mod check;
pub mod check_report;
mod costs;
mod foreign;
pub mod inbox;
mod models;
mod new;
mod once;
mod policy;
pub mod resume;
pub mod runs;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use llm_do::schema;
use llm_do_launch::config::Config;

use crate::args::{self, Command, ModelsArgs, NewArgs, RunArgs, SchemaFormat};
use crate::attend::RunStart;
use crate::commands::models::ModelListing;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::{attend, console, foreign_flags, json, plan, report, serve};

pub fn run(argv: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let argv: Vec<OsString> = argv.into_iter().collect();
    let args = args::parse(argv.clone()).map_err(|error| unparsed(error, &argv))?;
    match args.command {
        Command::Run(args) if args.continued.is_some() => resume::continue_chat(&args),
        Command::Run(args) => run_run(*args),
        Command::Chat => Err(Failure::usage("`chat` needs a project")),
        Command::Resume(args) => resume::run(&args),
        Command::Runs(args) => runs::run(args),
        Command::Costs(args) => costs::run(&args),
        Command::Inbox(args) => inbox::run(args),
        Command::Policy(args) => policy::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(args),
        Command::New(args) => run_new(args),
        Command::Models(args) => run_models(&args),
        Command::Schema(args) => console::print(&run_schema(args.format)),
        Command::Completions(args) => console::print(&completions(args.shell)),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// A program that reads JSON also reads that there was nothing to run. Help is no failure.
fn unparsed(error: clap::Error, argv: &[OsString]) -> Failure {
    let is_mistake = error.use_stderr();
    let failure = Failure::Usage(foreign_flags::explained(error));
    if is_mistake { report::not_begun(failure, args::asked_format(argv)) } else { failure }
}

fn run_new(args: NewArgs) -> Result<(), Failure> {
    let plan = plan::new(args)?;
    let wrote = new::write(&plan)?;
    new::trust(&plan, &Environment::read().settings()?.state)?;
    console::print(&wrote)
}

fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "llm-do", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn run_schema(format: SchemaFormat) -> String {
    let schema = match format {
        SchemaFormat::Project => schema::of_project(),
        SchemaFormat::Worker => schema::of_worker(),
        SchemaFormat::Events => llm_do::events::schema(),
    };
    json::lines(&schema)
}

fn run_models(args: &ModelsArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let config = Config::load(environment.config_file().as_deref())?;
    let listing = ModelListing::of(&environment, &config).only(args.filter.as_deref().unwrap_or_default());
    if listing.is_empty() {
        console::complain("no provider and no model has such a name\n");
    }
    console::print(&if args.json { listing.json() } else { listing.text() })
}

/// `run` and `chat`.
fn run_run(args: RunArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let (format, conduct) = (plan::run_format(&args), args.conduct.clone());
    let begun = environment.settings_of_run(&conduct).map(Arc::new).and_then(|settings| {
        let plan = plan::run(args, &environment, &settings)?;
        attend::link(plan, &environment, &settings, None)?.begin()
    });
    match begun {
        Ok(RunStart::Ready(attendance)) => attendance.run(),
        Ok(RunStart::Taken(first, said)) => once::attach(&first, said.as_deref(), conduct),
        Err(failure) => Err(report::not_begun(failure, format)),
    }
}
