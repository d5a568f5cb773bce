//! The composition root: each command from its arguments to its effects.

use std::ffi::OsString;
use std::process::ExitCode;

use llm_do::project::{Project, schema};

use crate::args::{self, CheckArgs, Command, SchemaFormat};
use crate::config::Config;
use crate::environment::Environment;
use crate::failure::{Failure, USAGE};
use crate::plan::{self, CheckFormat};
use crate::{check, console, new};

pub fn run(argv: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let args = args::parse(argv).map_err(Failure::Usage)?;
    match args.command {
        Command::Check(args) => run_check(args),
        Command::New(args) => console::print(&new::write(&plan::new(args)?)?),
        Command::Schema(args) => console::print(&run_schema(args.format)),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn run_schema(format: SchemaFormat) -> String {
    let schema = match format {
        SchemaFormat::Project => schema::of_project(),
        SchemaFormat::Worker => schema::of_worker(),
    };
    format!("{schema:#}\n")
}

fn run_check(args: CheckArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let config = Config::load(environment.config_file().as_deref())?;
    let plan = plan::check(args, &environment, &config)?;
    let linked = Project::load(&plan.project).and_then(|project| project.survey(&plan.models, plan.entry.as_deref()));
    match (linked, plan.format) {
        (Ok(linked), CheckFormat::Text) => {
            console::print(&check::text(&plan.project, &linked))?;
            console::complain(&linked.notes.render(plan.colour));
            Ok(())
        }
        (Ok(linked), CheckFormat::Json) => console::print(&check::json(&plan.project, &linked)),
        (Ok(linked), CheckFormat::Dot) => console::print(&check::dot(&linked.program)),
        (Err(report), CheckFormat::Json) => {
            console::print(&check::json_errors(&plan.project, &report))?;
            Err(Failure::Said { code: USAGE })
        }
        (Err(report), CheckFormat::Text | CheckFormat::Dot) => Err(Failure::Project { report, colour: plan.colour }),
    }
}
