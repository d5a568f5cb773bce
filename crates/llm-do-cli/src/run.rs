//! The composition root: each command from its arguments to its effects.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llm_do::event::Hearing;
use llm_do::message::Content;
use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::project::link::Linked;
use llm_do::project::{ApprovalMode, Entry, Limits, Policy, Program, Project, Typing, schema};
use llm_do::runtime::input::Input;
use llm_do::runtime::{Models, RunError, Runtime, RuntimeConfig};
use llm_do::syntax::diagnostic::nearest;
use llm_do::tools::approval::Approvals;
use llm_do::tools::attachment::{self, AttachmentError};
use llm_do::tools::plane::Refusals;
use serde_json::Value;
use tokio::runtime::Runtime as Executor;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::args::{self, COMMANDS, CheckArgs, Command, ModelsArgs, OutputFormat, RunArgs, SchemaFormat};
use crate::asking::{Asking, Forwarding, Waiting};
use crate::config::Config;
use crate::display::{Display, MessageLines};
use crate::editor::Editor;
use crate::environment::Environment;
use crate::failure::{Failure, USAGE};
use crate::models::Listing;
use crate::plan::{self, CheckFormat, InputPlan, JsonSource, RunPlan, Stdin};
use crate::render::Verbosity;
use crate::report::{self, Ended, OutputPlan};
use crate::session::Session;
use crate::signals::Signals;
use crate::style::Styles;
use crate::terminal::Terminal;
use crate::watch::{Attended, TurnEnded, Watch};
use crate::{answer_file, check, console, new, providers, stdin};

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
    let format = plan::output_format(&args);
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    match prepare(args, &environment, &executor) {
        Ok(prepared) => prepared.run(executor),
        Err(failure) => Err(report::not_begun(failure, format)),
    }
}

/// A program, its input and its models: all that a run needs.
struct Prepared {
    program: Program,
    models: Models,
    input: Input,
    config: RuntimeConfig,
    output: OutputPlan,
    timeout: Option<Duration>,
    questions: UnboundedReceiver<Waiting>,
    editor: Option<Editor>,
}

fn prepare(args: RunArgs, environment: &Environment, executor: &Executor) -> Result<Prepared, Failure> {
    let config = Config::load(environment.config_file().as_deref())?;
    let mut plan = plan::run(args, environment, &config)?;
    read_scripts(&mut plan.models)?;
    plan.output.file.as_deref().map_or(Ok(()), answer_file::check)?;
    let Linked { program, .. } = link(&plan, executor)?;
    plan.output.view.streamed &= answers_in_text(&program);
    let input = read_input(&plan, &program)?;
    let models = providers::connect(&program, environment, &config)?;
    let (asked, questions) = mpsc::unbounded_channel();
    let config = runtime_config(&plan, &program.policy, asked);
    let editor = plan.attended.then(|| Editor::of(environment, &program.root));
    let RunPlan { output, timeout, .. } = plan;
    Ok(Prepared { program, models, input, config, output, timeout, questions, editor })
}

/// A typed answer is shown whole, as indented JSON.
fn answers_in_text(program: &Program) -> bool {
    match &program.entry {
        Entry::Agent(name) => program.agents.get(name).is_some_and(|agent| agent.output == Typing::Untyped),
        Entry::Function(_) | Entry::Open => false,
    }
}

/// Flags win over the manifest.
fn runtime_config(plan: &RunPlan, policy: &Policy, asked: UnboundedSender<Waiting>) -> RuntimeConfig {
    let approvals = match plan.approval_mode.unwrap_or(policy.approval_mode) {
        ApprovalMode::ApproveAll => Approvals::ApproveAll,
        ApprovalMode::RejectAll => Approvals::RejectAll,
        ApprovalMode::Prompt if plan.attended => Approvals::prompt(Forwarding(asked)),
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

fn link(plan: &RunPlan, executor: &Executor) -> Result<Linked, Failure> {
    if let Some(command) = misspelled_command(&plan.project) {
        return Err(Failure::usage(format!("there is no project `{}`", plan.project.display()))
            .hint(format!("did you mean the command `{command}`?")));
    }
    let project = |report| Failure::Project { report, colour: plan.colour };
    let loaded = Project::load(&plan.project).map_err(project)?;
    let python = plan.python.python(&loaded.root);
    let started = executor.block_on(loaded.start_python(&python)).map_err(project)?;
    started.survey(&plan.models, plan.entry.as_deref()).map_err(project)
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
    fn run(self, executor: Executor) -> Result<(), Failure> {
        let output = self.output.clone();
        let ended = executor.block_on(self.attend());
        // What a task still holds ends here: its processes, and the threads that wait for a disk or a terminal.
        executor.shutdown_background();
        ended?.report(&output)
    }

    async fn attend(self) -> Result<Ended, Failure> {
        let started = Instant::now();
        let OutputPlan { format, view, .. } = self.output;
        let hearing = match format {
            OutputFormat::StreamJson => Hearing::Everything,
            OutputFormat::Text | OutputFormat::Json if view.hears_deltas() => Hearing::Everything,
            OutputFormat::Text | OutputFormat::Json => Hearing::Facts,
        };
        let (runtime, events) = Runtime::heard(self.program, self.models, self.config, hearing);
        let runtime = match view.verbosity {
            Verbosity::Messages => runtime.logged_by(Arc::new(MessageLines)),
            Verbosity::Quiet | Verbosity::Normal | Verbosity::Calls | Verbosity::Text => runtime,
        };
        let (signals, display) = (Signals::listen()?, Display::new(view, format));
        let asking = self.editor.map(|editor| asking(editor, view.stderr)).transpose()?;
        let mut watch = Watch { events, signals, display, questions: self.questions, asking, timeout: self.timeout };
        let session = Session::start(runtime);
        let runtime = Arc::clone(&session.runtime);
        let killed = |stopped| (Err(RunError::Cancelled { partial: String::new() }), Some(stopped));
        let (answer, stopped) = match watch.turn(&session, self.input).await {
            Attended::Ended(TurnEnded { answer, stopped }) => (answer, stopped),
            Attended::Killed(stopped) => {
                let (answer, stopped) = killed(stopped);
                return Ok(Ended::of(&runtime, answer, stopped, started.elapsed()));
            }
        };
        let messages = match watch.close(session).await {
            Attended::Ended(messages) => messages,
            Attended::Killed(_) => Vec::new(),
        };
        Ok(Ended { messages, ..Ended::of(&runtime, answer, stopped, started.elapsed()) })
    }
}

fn asking(editor: Editor, styles: Styles) -> Result<Asking, Failure> {
    let terminal =
        Terminal::open().map_err(|error| Failure::failed(format!("the terminal cannot be opened: {error}")))?;
    Ok(Asking { terminal, editor, styles, count: 0 })
}
