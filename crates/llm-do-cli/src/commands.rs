//! Each command from its arguments to its effects.

mod cache;
mod check;
pub mod check_report;
mod costs;
mod doctor;
#[cfg(feature = "restate")]
mod engine_worker;
mod foreign;
pub mod inbox;
mod map;
mod mcp;
pub mod models;
mod new;
mod once;
mod policy;
pub mod resume;
pub mod runs;
mod serve;
mod web;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use llm_do::program::MANIFEST_NAME;
use llm_do::schema;

use crate::args::{self, COMMANDS, Command, NewArgs, RunArgs, SchemaFormat};
use crate::attend::RunStart;
#[cfg(feature = "restate")]
use crate::engine;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::{attend, complete, console, foreign_flags, harden, json, plan, report, test};

pub fn run(argv: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let argv: Vec<OsString> = argv.into_iter().collect();
    if let Some([command, words @ ..]) = argv.get(1..)
        && command == "__complete"
    {
        console::print(&complete::run(words))?;
        return Ok(ExitCode::SUCCESS);
    }
    let args = args::parse(argv.clone()).map_err(|error| unparsed(error, &argv))?;
    tell_of_project(&argv);
    match args.command {
        #[cfg(feature = "restate")]
        Command::Run(args) if engine::is_meant(&args.engine) => engine::run(*args),
        #[cfg(feature = "restate")]
        Command::Resume(args) if engine::is_meant(&args.engine) => engine::resume(&args),
        #[cfg(feature = "restate")]
        Command::EngineWorker(args) => engine_worker::run(&args),
        Command::Run(args) if args.continued.is_some() => resume::continue_chat(&args),
        Command::Run(args) => run_run(*args),
        Command::Chat => Err(Failure::usage("`chat` needs a project")),
        Command::Map(args) => map::run(*args),
        Command::Resume(args) => resume::run(&args),
        Command::Runs(args) => runs::run(args),
        Command::Costs(args) => costs::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Inbox(args) => inbox::run(args),
        Command::Policy(args) => policy::run(args),
        Command::Mcp(args) => mcp::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Web(args) => web::run(args),
        Command::Check(args) => check::run(args),
        Command::Test(args) => test::run(args),
        Command::Harden(args) => harden::run(&args),
        Command::Soften(args) => harden::soften::run(&args),
        Command::New(args) => run_new(args),
        Command::Models(args) => models::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Schema(args) => console::print(&run_schema(args.format)),
        Command::Completions(args) => console::print(complete::script(args.shell)),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// A project that has the name of the command which was typed is run by its path.
fn tell_of_project(argv: &[OsString]) {
    let Some(name) = argv.get(1).and_then(|word| word.to_str()).filter(|word| COMMANDS.contains(word)) else { return };
    let directory = Path::new(name);
    let is_worker = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|it| it == "worker");
    let has_workers = || std::fs::read_dir(directory).is_ok_and(|entries| entries.flatten().any(|it| is_worker(&it)));
    if directory.is_dir() && (directory.join(MANIFEST_NAME).is_file() || has_workers()) {
        console::complain(&format!("note: `{name}` is a command; `llm-do ./{name}` runs the project of that name\n"));
    }
}

/// A program that reads JSON also reads that there was nothing to run. Help is no failure.
fn unparsed(error: clap::Error, argv: &[OsString]) -> Failure {
    let is_mistake = error.use_stderr();
    let failure = Failure::Usage(foreign_flags::explained(error, &config_file()));
    if is_mistake { report::not_begun(failure, args::asked_format(argv)) } else { failure }
}

/// Where the user's configuration is.
fn config_file() -> String {
    Environment::read().config_file().map(|file| file.display().to_string()).unwrap_or_default()
}

fn run_new(args: NewArgs) -> Result<(), Failure> {
    let plan = plan::new(args)?;
    let wrote = new::write(&plan)?;
    new::trust(&plan, &Environment::read().settings()?.state)?;
    console::print(&wrote)
}

fn run_schema(format: SchemaFormat) -> String {
    let schema = match format {
        SchemaFormat::Project => schema::of_project(),
        SchemaFormat::Worker => schema::of_worker(),
        SchemaFormat::Test => schema::of_tests(),
        SchemaFormat::Config => schema::of_settings(),
        SchemaFormat::Events => llm_do::events::schema(),
    };
    json::lines(&schema)
}

/// A sentence in the place of a project is what to say, to a plain assistant. One word is not: it is more likely mistyped.
fn asking_assistant(mut args: RunArgs) -> RunArgs {
    let Some(text) = args.project.to_str() else { return args };
    let is_question = text.contains(char::is_whitespace) && !text.trim().is_empty() && !args.project.exists();
    if is_question && !args.chat && args.prompt.is_none() && args.input_json.is_none() && args.agent.is_none() {
        args.prompt = Some(text.to_owned());
        args.assistant = true;
    }
    args
}

/// `run` and `chat`.
fn run_run(args: RunArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let args = asking_assistant(args);
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
