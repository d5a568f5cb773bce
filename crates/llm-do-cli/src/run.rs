//! The composition root: each command from its arguments to its effects.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use llm_do::escape::{visible, visible_lines};
use llm_do::event::{Event, EventKind, Hearing};
use llm_do::message::{Content, RawJson};
use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::project::link::Linked;
use llm_do::project::{ApprovalMode, Limits, Policy, Program, Project, schema};
use llm_do::runtime::input::Input;
use llm_do::runtime::{Models, Outcome, Output, RunError, Runtime, RuntimeConfig};
use llm_do::syntax::diagnostic::nearest;
use llm_do::tools::Ending;
use llm_do::tools::approval::{Approvals, Pending};
use llm_do::tools::attachment::{self, AttachmentError};
use llm_do::tools::plane::Refusals;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::args::{self, COMMANDS, CheckArgs, Command, ModelsArgs, OutputFormat, RunArgs, SchemaFormat};
use crate::config::Config;
use crate::environment::Environment;
use crate::failure::{Failure, USAGE};
use crate::json::{self, ErrorJson, ResultJson};
use crate::models::Listing;
use crate::plan::{self, CheckFormat, InputPlan, JsonSource, RunPlan, Stdin};
use crate::{check, console, new, providers, stdin};

pub fn run(argv: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let args = args::parse(argv).map_err(Failure::Usage)?;
    match args.command {
        Command::Run(args) => run_run(args),
        Command::Check(args) => run_check(args),
        Command::New(args) => console::print(&new::write(&plan::new(args)?)?),
        Command::Models(args) => run_models(&args),
        Command::Schema(args) => console::print(&run_schema(args.format)),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn run_schema(format: SchemaFormat) -> String {
    let schema = match format {
        SchemaFormat::Project => schema::of_project(),
        SchemaFormat::Worker => schema::of_worker(),
        SchemaFormat::Events => llm_do::event::schema(),
    };
    format!("{schema:#}\n")
}

fn run_models(args: &ModelsArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let config = Config::load(environment.config_file().as_deref())?;
    let listing = Listing::of(&environment, &config).only(args.filter.as_deref().unwrap_or_default());
    if listing.is_empty() {
        console::complain("no provider and no model has such a name\n");
    }
    console::print(&if args.json { listing.json() } else { listing.text() })
}

fn run_check(args: CheckArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let config = Config::load(environment.config_file().as_deref())?;
    let mut plan = plan::check(args, &environment, &config)?;
    read_scripts(&mut plan.models)?;
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

/// Scripts that the user names outside the project, relative to the working directory.
fn read_scripts(models: &mut ModelChoices) -> Result<(), Failure> {
    let chosen = [&models.flag, &models.environment, &models.config].into_iter().flatten();
    let named: Vec<ModelName> =
        chosen.chain(models.overrides.values()).filter(|model| model.provider == "scripted").cloned().collect();
    for ModelName { model: file, .. } in named {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Failure::usage(format!("the script `{file}` cannot be read: {error}")))?;
        models.scripts.insert(file, text);
    }
    Ok(())
}

fn run_run(args: RunArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let output = plan::output_format(&args);
    match prepare(args, &environment) {
        Ok(prepared) => prepared.run(),
        Err(failure) => Err(not_begun(failure, output)),
    }
}

/// A program, its input and its models: all that a run needs.
struct Prepared {
    program: Program,
    models: Models,
    input: Input,
    config: RuntimeConfig,
    output: OutputFormat,
}

fn prepare(args: RunArgs, environment: &Environment) -> Result<Prepared, Failure> {
    let config = Config::load(environment.config_file().as_deref())?;
    let mut plan = plan::run(args, environment, &config)?;
    read_scripts(&mut plan.models)?;
    let Linked { program, .. } = link(&plan)?;
    let input = read_input(&plan, &program)?;
    let models = providers::connect(&program, environment, &config)?;
    let mut config = runtime_config(&plan, &program.policy);
    // What the user trusts and which commands give keys is decided there.
    config.own_files.extend(environment.config_file().and_then(|file| Some(file.parent()?.to_owned())));
    Ok(Prepared { program, models, input, config, output: plan.output })
}

/// Flags win over the manifest.
fn runtime_config(plan: &RunPlan, policy: &Policy) -> RuntimeConfig {
    let approvals = match plan.approval_mode.unwrap_or(policy.approval_mode) {
        ApprovalMode::ApproveAll => Approvals::ApproveAll,
        ApprovalMode::RejectAll => Approvals::RejectAll,
        ApprovalMode::Prompt => Approvals::Nobody,
    };
    RuntimeConfig {
        refusals: if policy.return_permission_errors { Refusals::Return } else { Refusals::EndRun },
        max_depth: plan.max_depth.unwrap_or(policy.max_depth),
        limits: Limits {
            max_requests: plan.max_requests.or(policy.limits.max_requests),
            max_cost_usd: plan.max_cost_usd.or(policy.limits.max_cost_usd),
            ..policy.limits.clone()
        },
        stream: plan.stream,
        ..RuntimeConfig::new(approvals)
    }
}

fn link(plan: &RunPlan) -> Result<Linked, Failure> {
    if let Some(command) = misspelled_command(&plan.project) {
        return Err(Failure::usage(format!("there is no project `{}`", plan.project.display()))
            .hint(format!("did you mean the command `{command}`?")));
    }
    let project = |report| Failure::Project { report, colour: plan.colour };
    let linked = Project::load(&plan.project)
        .and_then(|project| project.survey(&plan.models, plan.entry.as_deref()))
        .map_err(project)?;
    if let Some(name) = linked.program.open.first() {
        return Err(Failure::usage(format!("`{name}` is defined in Python, which cannot be run yet")));
    }
    Ok(linked)
}

/// `llm-do chekc .` is read as a project to run.
fn misspelled_command(project: &Path) -> Option<&'static str> {
    let name = project.to_str().filter(|_| !project.exists())?;
    nearest(name, COMMANDS.iter().copied())
}

fn read_input(plan: &RunPlan, program: &Program) -> Result<Input, Failure> {
    let wrong = |error: AttachmentError| Failure::usage(error.to_string());
    let attachments =
        plan.files.iter().map(|path| attachment::read_named(path).map_err(wrong)).collect::<Result<Vec<_>, _>>()?;
    let spoken = match &plan.input {
        InputPlan::Json(source) => Some(read_json(source)?),
        InputPlan::Prompt { text, stdin } => {
            let piped = read_stdin(*stdin)?;
            Some(Value::String(match piped {
                Some(piped) => format!("{text}\n\n<stdin>\n{}\n</stdin>", piped.trim_end_matches(['\r', '\n'])),
                None => text.clone(),
            }))
        }
        InputPlan::PromptOnStdin => Some(Value::String(stdin::read()?)),
        InputPlan::Unspoken { stdin } => read_stdin(*stdin)?.map(Value::String),
    };
    if spoken.is_some() && !program.allow_cli_input {
        return Err(Failure::usage("this project takes no input from the command line")
            .hint("`allow_cli_input` in its manifest says so; leave out the prompt, or give `--no-stdin`"));
    }
    match (spoken, &program.default_input) {
        (Some(value), _) => Ok(Input::Object { value, attachments }),
        (None, Some(default)) => Ok(Input::Object { value: default.to().unwrap_or_default(), attachments }),
        (None, None) if attachments.is_empty() => {
            Err(Failure::usage("no input").hint("give a prompt, `--input-json`, or something on stdin"))
        }
        (None, None) => Ok(Input::Parts(attachments.into_iter().map(Content::Attachment).collect())),
    }
}

fn read_stdin(plan: Stdin) -> Result<Option<String>, Failure> {
    match plan {
        Stdin::LeaveAlone => Ok(None),
        Stdin::Read => Ok(Some(stdin::read()?).filter(|text| !text.trim().is_empty())),
    }
}

fn read_json(source: &JsonSource) -> Result<Value, Failure> {
    let (name, text) = match source {
        JsonSource::Text(text) => ("`--input-json`".to_owned(), text.clone()),
        JsonSource::Stdin => ("stdin".to_owned(), stdin::read()?),
        JsonSource::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
            (path.display().to_string(), text)
        }
    };
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name} is not JSON: {error}")))
}

impl Prepared {
    fn run(self) -> Result<(), Failure> {
        let hearing = match self.output {
            OutputFormat::StreamJson => Hearing::Everything,
            OutputFormat::Text | OutputFormat::Json => Hearing::Facts,
        };
        let (runtime, listener) = Runtime::heard(self.program, self.models, self.config, hearing);
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
        let format = self.output;
        let input = self.input;
        // The listener ends when the runtime, and with it the last sender of events, is gone.
        let running = async move {
            let outcome = runtime.run(input).await;
            Ended { usage: runtime.usage(), trace: runtime.trace(), run: runtime.run.clone(), outcome }
        };
        // A task of its own: the future that blocks the thread would ask the system for news after each piece of a stream.
        let ended = executor.block_on(async {
            let running = tokio::spawn(running);
            listen(listener, format).await;
            running.await
        });
        let ended = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        ended.report(format)
    }
}

async fn listen(mut listener: UnboundedReceiver<Event>, format: OutputFormat) {
    const MOST_AT_ONCE: usize = 256;
    let mut events = Vec::new();
    // What has come together is written together: one call of the system for a burst of deltas.
    while listener.recv_many(&mut events, MOST_AT_ONCE).await > 0 {
        if format == OutputFormat::StreamJson {
            let lines: String = events.iter().map(json::event).collect();
            // A reader that left hears nothing more; the run goes on to its end.
            let _ = console::print(&lines);
        } else {
            events.iter().for_each(complain_of);
        }
        events.clear();
    }
}

fn complain_of(event: &Event) {
    if let EventKind::Notice { text } = &event.kind {
        console::complain(&format!("note: {}\n", visible(text)));
    }
}

struct Ended {
    outcome: Result<Outcome, RunError>,
    usage: llm_do::event::UsageReport,
    trace: Vec<llm_do::event::TraceCall>,
    run: String,
}

impl Ended {
    fn report(self, format: OutputFormat) -> Result<(), Failure> {
        let pending = match &self.outcome {
            Err(RunError::Ended(Ending::NeedsApproval(pending))) => pending.clone(),
            Ok(_) | Err(_) => Vec::new(),
        };
        console::complain(&pending_text(&pending));
        if format == OutputFormat::Text {
            if let Some(partial) = self.outcome.as_ref().err().and_then(RunError::partial) {
                console::print(&answer(Output::Text(partial.to_owned())))?;
            }
            let outcome = self.outcome?;
            return console::print(&answer(outcome.output));
        }
        let (output, messages, failure) = match self.outcome {
            Ok(outcome) => (Some(outcome.output.to_json()), outcome.messages, None),
            Err(error) => {
                (error.partial().map(|partial| RawJson::of(&partial)), Vec::new(), Some(Failure::from(error)))
            }
        };
        console::print(&json::line(&ResultJson {
            r#type: "result",
            output,
            exit_code: failure.as_ref().map_or(0, Failure::code),
            error: failure.as_ref().map(error_json),
            usage: self.usage,
            trace: self.trace,
            messages,
            pending,
            run: Some(self.run),
        }))?;
        failure.map_or(Ok(()), Err)
    }
}

/// What waits for somebody's answer, all of it, nothing cut.
fn pending_text(pending: &[Pending]) -> String {
    let call = |pending: &Pending| {
        let path = pending.path.join(" › ");
        let arguments = visible_lines(&json::indented(&pending.arguments));
        format!("waiting for approval ({}): {} › {}\n{arguments}\n", pending.id, visible(&path), visible(&pending.tool))
    };
    pending.iter().map(call).collect()
}

/// Text as it is, a typed answer as indented JSON.
fn answer(output: Output) -> String {
    let mut text = match output {
        Output::Text(text) => text,
        Output::Value(value) => json::indented(&value),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn error_json(failure: &Failure) -> ErrorJson {
    let (message, hint) = failure.words();
    ErrorJson { message, hint }
}

/// Whoever reads JSON gets a result even of a run that never began.
fn not_begun(failure: Failure, format: OutputFormat) -> Failure {
    if format != OutputFormat::Text {
        let result = ResultJson::not_begun(failure.code(), error_json(&failure));
        let _ = console::print(&json::line(&result));
    }
    failure
}
