//! The composition root: each command from its arguments to its effects.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llm_do::descriptors;
use llm_do::event::{EventKind, Events, Hearing};
use llm_do::http::HttpSettings;
use llm_do::journal::record::Contents;
use llm_do::journal::run_id;
use llm_do::message::{Attachment, Content, RawJson};
use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::project::created::{CreatedAgents, CreatedStore};
use llm_do::project::fingerprint::Fingerprint;
use llm_do::project::trust::{Agreement, SurveyedProject, TrustedProgram, TrustedProject};
use llm_do::project::{ApprovalMode, Code, Entry, Policy, Program, Project, Typing, schema};
use llm_do::questions::{QuestionBroker, QuestionUpdates};
use llm_do::runtime::input::Input;
use llm_do::runtime::mcp::{self, Offer};
use llm_do::runtime::{Models, Runtime, RuntimeConfig};
use llm_do::stack;
use llm_do::tools::approval::Approvals;
use llm_do::tools::attachment::{self, AttachmentError};
use llm_do::tools::fence::FenceConfig;
use llm_do::tools::plane::Refusals;
use llm_do::tools::python::CompiledStore;
use llm_do::tools::source::McpConfig;
use llm_do_launch::session::{Pace, QuestionQueue, Session, SessionParts, TurnReport};
use llm_do_launch::{children, fencing, providers, tools};
use serde_json::Value;
use tokio::runtime::Runtime as Executor;

use crate::args::{self, CheckArgs, Command, ModelsArgs, NewArgs, OutputFormat, RunArgs, SchemaFormat};
use crate::asking::Asking;
use crate::chat::{Chat, ChatEnded};
use crate::check::{Checked, ShellGround};
use crate::console::{ConsolePace, Reader};
use crate::display::{Display, MessageLines};
use crate::editor::Editor;
use crate::environment::Environment;
use crate::failure::{Failure, USAGE, marked};
use crate::journal::{Flags, Header, Recorded, read};
use crate::models::Listing;
use crate::plan::{self, CheckFormat, InputPlan, JsonSource, Recording, RunPlan, Stdin, TalkPlan};
use crate::render::{Verbosity, View};
use crate::report::{self, Ended, OutputPlan};
use crate::signals::Signals;
use crate::style::Styles;
use crate::terminal::Terminal;
use crate::trust;
use crate::watch::{Attended, TurnEnded, Watch};
use crate::{answer_file, check, console, habits, json, new, resume, serve, text};
use llm_do_launch::config::Config;
use llm_do_launch::rehearsal::Rehearsed;
use llm_do_launch::state::State;

pub fn run(argv: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let argv: Vec<OsString> = argv.into_iter().collect();
    let args = args::parse(argv.clone()).map_err(|error| unparsed(error, &argv))?;
    match args.command {
        Command::Run(args) => run_run(*args),
        Command::Chat => Err(Failure::usage("`chat` needs a project")),
        Command::Resume(args) => resume::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => run_check(args),
        Command::New(args) => run_new(args),
        Command::Models(args) => run_models(&args),
        Command::Schema(args) => console::print(&run_schema(args.format)),
        Command::Completions(args) => console::print(&completions(args.shell)),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Whoever reads JSON also reads that there was nothing to run. Help is no failure.
fn unparsed(error: clap::Error, argv: &[OsString]) -> Failure {
    let is_mistake = error.use_stderr();
    let failure = Failure::Usage(habits::explained(error));
    if is_mistake { report::not_begun(failure, args::asked_format(argv)) } else { failure }
}

fn run_new(args: NewArgs) -> Result<(), Failure> {
    let plan = plan::new(args)?;
    let wrote = new::write(&plan)?;
    let environment = Environment::read();
    let config = Config::load(environment.config_file().as_deref())?;
    new::trust(&plan, &State::of(&environment, &config, console::notes())?)?;
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
        SchemaFormat::Events => llm_do::event::schema(),
    };
    json::lines(&schema)
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
    let http = providers::http_settings(&environment, &config.http)?;
    let state = State::of(&environment, &config, console::notes())?;
    let mut checked = match checked(&plan, &state, &http) {
        Ok(checked) => checked,
        Err(Failure::Project { report, .. }) if plan.format == CheckFormat::Json => {
            console::print(&check::json_errors(&plan.project, &report))?;
            return Err(Failure::Said { code: USAGE });
        }
        Err(failure) => return Err(failure),
    };
    if !checked.linked.program.generated.is_empty() {
        let store = state.created_so_far()?;
        let program = &mut checked.linked.program;
        program.created = Arc::new(CreatedAgents::of(&program.root, store.as_ref()));
    }
    let program = &checked.linked.program;
    match plan.format {
        CheckFormat::Text => {
            console::print(&check::text(&plan.project, &checked, shell_ground(program, &plan.fence).as_ref()))?;
            console::complain(&checked.linked.notes.render(plan.colour));
        }
        CheckFormat::Json => {
            console::print(&check::json(&plan.project, &checked, shell_ground(program, &plan.fence).as_ref()))?;
        }
        CheckFormat::Dot => console::print(&check::dot(program))?,
    }
    // The process ends with this command: nobody needs the memory of thousands of agents back, piece by piece.
    std::mem::forget(checked.linked.program.agents);
    match checked.servers.iter().filter(|server| server.offer.tools.is_err()).count() {
        0 => Ok(()),
        1 => Err(Failure::usage("an MCP server cannot be used")),
        several => Err(Failure::usage(format!("{several} MCP servers cannot be used"))),
    }
}

/// Links a project: with what its code and its servers offer, as far as it is trusted and somebody wants to know.
fn checked(plan: &plan::CheckPlan, state: &State, http: &HttpSettings) -> Result<Checked, Failure> {
    let mistaken = |report| Failure::Project { report, colour: plan.colour };
    let entry = plan.entry.as_deref();
    let project = Project::load(&plan.project).map_err(mistaken)?;
    let surveyed = project.surveyed(&plan.models, entry).map_err(mistaken)?;
    let trust = trust::standing(&surveyed, &plan.trust, state)?;
    if !trust.is_given && plan.trust.flag.is_none() {
        if plan.connect {
            return Err(Failure::usage("`--connect` starts nothing of a project that is not trusted")
                .hint("`llm-do check` lists what it can do, and `--trust` trusts it"));
        }
        let residents = check::residents(surveyed.project(), &surveyed.linked().program, &plan.fence);
        return Ok(Checked { linked: surveyed.into_linked(), trust, servers: Vec::new(), residents });
    }
    let mut trusted = trust::settle(surveyed, &plan.project, &plan.trust, state)?;
    let executor = executor()?;
    // What a trusted project's Python files offer is linked too; they are imported, and nothing of them is called.
    let residents = check::residents(trusted.project(), trusted.program(), &plan.fence);
    if !residents.iter().any(check::CheckedResident::is_python_refused) {
        let compiled = state.compiled(trusted.project())?;
        let python = plan.python.python(&trusted.project().root, compiled, &plan.fence);
        trusted = executor.block_on(trusted.start_python(&python)).map_err(mistaken)?;
    }
    if let Code::Read(_) = trusted.project().code {
        trusted = trusted.relinked(&plan.models, entry).map_err(mistaken)?;
    }
    let mut servers = Vec::new();
    if plan.connect {
        servers = executor.block_on(connected(&trusted, plan, http));
        let offered =
            servers.iter().filter_map(|server| Some((server.offer.toolset.clone(), server.declared.clone()?)));
        trusted = trusted.offering(offered.collect()).relinked(&plan.models, entry).map_err(mistaken)?;
    }
    Ok(Checked { linked: trusted.into_linked(), trust, servers, residents })
}

/// Asks the servers of a project what they offer.
async fn connected(
    trusted: &TrustedProject,
    plan: &plan::CheckPlan,
    http: &HttpSettings,
) -> Vec<check::ConnectedServer> {
    let (events, mut listener) = Events::new(Hearing::Facts);
    let offers = mcp::ask(trusted, &plan.children, http, &plan.fence, &events).await;
    while let Ok(event) = listener.try_recv() {
        if let EventKind::Notice { text } = event.kind {
            console::complain(&format!("note: {text}\n"));
        }
    }
    let server = |(config, offer): (&McpConfig, Offer)| check::ConnectedServer {
        reached: trust::reached(&config.server),
        declared: offer.declared(config),
        offer,
    };
    trusted.project().servers().into_iter().zip(offers).map(server).collect()
}

pub fn executor() -> Result<Executor, Failure> {
    // It would panic where no more files can be opened.
    let built = descriptors::room().and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build());
    built.map_err(|error| {
        Failure::failed(format!("cannot start: {error}")).hint("`ulimit -n` says how many files may be open")
    })
}

/// The kernel is asked only if somebody runs commands.
fn shell_ground(program: &Program, fence: &FenceConfig) -> Option<ShellGround> {
    program.agents.values().find(|agent| fencing::shells(agent).next().is_some())?;
    let directory = std::env::current_dir().unwrap_or_default();
    Some(ShellGround { directory, fence: fence.fence() })
}

/// Scripts that the user names outside the project, relative to the working directory.
pub fn read_scripts(models: &mut ModelChoices) -> Result<(), Failure> {
    let chosen = [&models.flag, &models.program, &models.environment, &models.config].into_iter().flatten();
    let named: Vec<ModelName> =
        chosen.chain(models.overrides.values()).filter(|model| model.provider == "scripted").cloned().collect();
    for ModelName { model: file, .. } in named {
        let text = text::file(&format!("the script `{file}`"), Path::new(&file))?;
        models.scripts.insert(file, text);
    }
    Ok(())
}

fn run_run(args: RunArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let format = plan::run_format(&args);
    match prepare(args, &environment, None) {
        Ok(prepared) => prepared.run(),
        Err(failure) => Err(report::not_begun(failure, format)),
    }
}

/// One turn, or many.
enum Talk {
    Once(Input),
    Chat(Chat),
}

/// A program, its input and its models: all that a run needs.
pub struct Prepared {
    program: TrustedProgram,
    models: Models,
    talk: Talk,
    pub config: RuntimeConfig,
    pub output: OutputPlan,
    /// Of the project as it is now.
    pub files: Fingerprint,
    pub recorded: Option<Recorded>,
    timeout: Option<Duration>,
    questions: (QuestionBroker, QuestionUpdates),
    editor: Option<Editor>,
    /// Where the first request is kept that is not sent.
    rehearsed: Option<Rehearsed>,
    /// What the children of the run, started before it, live on.
    executor: Arc<Executor>,
}

/// What is known of a run that goes on.
pub struct Before<'a> {
    pub input: Input,
    /// Whether it may go on with the files as they are now.
    pub compare: &'a dyn Fn(&Fingerprint) -> Result<(), Failure>,
}

/// Everything up to the first effect. An input that is known already is taken instead of the one that was typed.
pub fn prepare(args: RunArgs, environment: &Environment, before: Option<Before<'_>>) -> Result<Prepared, Failure> {
    let config = Config::load(environment.config_file().as_deref())?;
    let flags = Flags::of(&args);
    let mut plan = plan::run(args, environment, &config)?;
    read_scripts(&mut plan.models)?;
    plan.output.file.as_deref().map_or(Ok(()), answer_file::check)?;
    let surveyed = survey(&plan)?;
    // Whoever goes on with a run learns first what has changed since: nothing of the project has run yet.
    before.as_ref().map_or(Ok(()), |before| (before.compare)(&surveyed.project().fingerprint()))?;
    let state = State::of(environment, &config, console::notes())?;
    // A record that is not the user's is refused before anybody is asked about the project.
    let replayed = replayed(&plan, &state)?;
    let trusted = trust::settle(surveyed, &plan.project, &plan.trust, &state)?;
    fencing::open_declared(&trusted, &plan.fence)?;
    let known = before.map(|before| before.input);
    // What comes from a record comes whole: there are no pieces of it to show.
    let is_recorded = known.is_some() || replayed.is_some();
    let known = known.or_else(|| replayed.as_ref().and_then(|(header, _)| said_before(&plan, header)));
    let executor = executor()?;
    let compiled = state.compiled(trusted.project())?;
    let (trusted, talk) = match executor.block_on(begin(trusted, &plan, compiled, known)) {
        Ok(begun) => begun,
        Err(failure) => {
            // Whoever still reads stdin is not waited for.
            executor.shutdown_background();
            return Err(failure);
        }
    };
    let executor = Arc::new(executor);
    let files = trusted.project().fingerprint();
    plan.output.view.streamed &= answers_in_text(trusted.program()) && !is_recorded;
    let rehearsed = plan.dry_run.then(Rehearsed::default);
    let questions = QuestionBroker::new();
    let created = created_store(trusted.program(), &state)?;
    let runtime = runtime_config(&plan, &trusted.program().policy, &questions.0);
    let runtime = with_surroundings(runtime, environment, &config);
    let mut runtime = with_servers(runtime, !trusted.project().servers().is_empty(), environment, &config)?;
    let (program, models) = tools::cast(trusted.into_program(), plan.tools, environment, &config, rehearsed.as_ref())?;
    runtime.created = created;
    runtime.own_files = state.directory().map(Path::to_owned).into_iter().chain(plan.output.file.clone()).collect();
    let editor = plan.attended.then(|| Editor::of(environment, &program.root));
    let recorded = match (&plan.recording, replayed, &talk) {
        (Recording::Journal(_) | Recording::Replay(..), _, Talk::Chat(_)) => {
            return Err(Failure::usage("a chat cannot be journaled or replayed yet"));
        }
        (Recording::Journal(file), _, Talk::Once(input)) => {
            let header = header(&plan, flags, files.clone(), input.clone())?;
            Some(Recorded::begin(file, &header, environment.user(), state.key()?)?)
        }
        (Recording::Nothing | Recording::Replay(..), replayed, _) => {
            replayed.map(|(header, contents)| Recorded::replay(contents, header.run))
        }
    };
    let RunPlan { output, timeout, .. } = plan;
    Ok(Prepared {
        program,
        models,
        talk,
        config: runtime,
        output,
        files,
        recorded,
        timeout,
        questions,
        editor,
        rehearsed,
        executor,
    })
}

fn header(plan: &RunPlan, flags: Flags, files: Fingerprint, input: Input) -> Result<Header, Failure> {
    let directory = std::env::current_dir()
        .map_err(|error| Failure::failed(format!("the working directory is unknown: {error}")))?;
    let unspeakable = [&plan.project, &directory].into_iter().chain(&flags.python).find(|path| path.to_str().is_none());
    if let Some(path) = unspeakable {
        return Err(Failure::usage(format!("a journal is UTF-8, and the path {} is not", path.display()))
            .hint("run it from a place with another name, or without `--journal`"));
    }
    Ok(Header { run: run_id::run_id(), project: plan.project.clone(), directory, flags, files, input })
}

/// The journal that answers every step.
fn replayed(plan: &RunPlan, state: &State) -> Result<Option<(Header, Contents)>, Failure> {
    let Recording::Replay(file, author) = &plan.recording else { return Ok(None) };
    let contents = read(file, *author, state)?;
    Ok(Some((Header::of(&contents, file)?, contents)))
}

/// A replay takes the recorded input unless another one is given.
fn said_before(plan: &RunPlan, header: &Header) -> Option<Input> {
    match &plan.talk {
        TalkPlan::Once(InputPlan::Unspoken { .. }) if plan.files.is_empty() => Some(header.input.clone()),
        TalkPlan::Once(_) | TalkPlan::Chat { .. } => None,
    }
}

/// A typed answer is shown whole, as indented JSON.
fn answers_in_text(program: &Program) -> bool {
    match &program.entry {
        Entry::Agent(name) => program.agents.get(name).is_some_and(|agent| agent.output == Typing::Untyped),
        Entry::Function(_) | Entry::Open => false,
    }
}

/// Flags win over the manifest.
pub fn runtime_config(plan: &RunPlan, policy: &Policy, questions: &QuestionBroker) -> RuntimeConfig {
    let approvals = match plan.approval_mode.unwrap_or(policy.approval_mode) {
        ApprovalMode::ApproveAll => Approvals::approve_all(),
        ApprovalMode::RejectAll => Approvals::reject_all(),
        ApprovalMode::Prompt if plan.attended => Approvals::ask(questions.clone()),
        ApprovalMode::Prompt => Approvals::unattended(),
    };
    RuntimeConfig {
        refusals: if policy.return_permission_errors { Refusals::Return } else { Refusals::EndRun },
        max_depth: plan.max_depth.unwrap_or(policy.max_depth),
        max_call_depth: policy.max_call_depth,
        limits: plan.limits.or(&policy.limits),
        unknown_prices: plan.unknown_prices,
        stream: plan.stream,
        fence: plan.fence.clone(),
        ..RuntimeConfig::new(approvals)
    }
}

/// What tools must know of the user: which directories are ours, and where programs are found.
pub fn with_surroundings(runtime: RuntimeConfig, environment: &Environment, config: &Config) -> RuntimeConfig {
    let program_directories = config.shell.directories.iter().map(|path| environment.expand(path)).collect();
    let redactor = children::redactor(environment, config);
    RuntimeConfig { private_directories: environment.own_directories(), program_directories, redactor, ..runtime }
}

/// What the servers of a project see, and how they are reached; only if it has some.
pub fn with_servers(
    runtime: RuntimeConfig,
    has_servers: bool,
    environment: &Environment,
    config: &Config,
) -> Result<RuntimeConfig, Failure> {
    if !has_servers {
        return Ok(runtime);
    }
    let http = providers::http_settings(environment, &config.http)?;
    Ok(RuntimeConfig { children: children::environment(environment, config), http, ..runtime })
}

/// Where created agents are recorded; only if there can be some.
pub fn created_store(program: &Program, state: &State) -> Result<Option<CreatedStore>, Failure> {
    if program.has_created() { Ok(state.created()?) } else { Ok(None) }
}

/// Reads and links a project; nothing of it runs.
pub fn survey(plan: &RunPlan) -> Result<SurveyedProject, Failure> {
    survey_with(plan, |project| project)
}

/// The same, of a project to which somebody adds what its files do not have.
pub fn survey_with(plan: &RunPlan, add: impl FnOnce(Project) -> Project) -> Result<SurveyedProject, Failure> {
    if let Some(hint) = meant_command(&plan.project) {
        return Err(Failure::usage(format!("there is no project `{}`", plan.project.display())).hint(hint));
    }
    let mistaken = |report| Failure::Project { report, colour: plan.colour };
    let project = add(Project::load(&plan.project).map_err(mistaken)?);
    let project = match plan.entry.as_deref() {
        Some(entry) => project.with_created(entry),
        None => project,
    };
    project.surveyed(&plan.models, plan.entry.as_deref()).map_err(mistaken)
}

/// Starts the project's Python files, if it has any, and links it again with what they offer. Mistakes that need no code
/// to be found were reported before any code ran.
pub async fn with_python(
    trusted: TrustedProject,
    plan: &RunPlan,
    compiled: Option<CompiledStore>,
) -> Result<TrustedProject, Failure> {
    let mistaken = |report| Failure::Project { report, colour: plan.colour };
    if let Code::Absent = trusted.project().code {
        return Ok(trusted);
    }
    let python = plan.python.python(&trusted.project().root, compiled, &plan.fence);
    let trusted = trusted.start_python(&python).await.map_err(mistaken)?;
    let Code::Read(offer) = &trusted.project().code else { return Ok(trusted) };
    if plan.output.debug {
        offer.tracebacks.iter().for_each(|traceback| console::complain(&format!("{}\n", marked(traceback.trim_end()))));
    }
    let trusted = trusted.relinked(&plan.models, plan.entry.as_deref()).map_err(mistaken)?;
    trusted.program().find_endpoints().await.map_err(Failure::usage)?;
    Ok(trusted)
}

/// `llm-do chekc .` is read as a project to run, and `llm-do "What is rain?"` as well.
fn meant_command(project: &Path) -> Option<String> {
    habits::instead_of_command(project.to_str().filter(|_| !project.exists())?)
}

/// Starts Python and reads the input, both at once: either may have to be waited for.
async fn begin(
    trusted: TrustedProject,
    plan: &RunPlan,
    compiled: Option<CompiledStore>,
    known: Option<Input>,
) -> Result<(TrustedProject, Talk), Failure> {
    let reading = Reading {
        talk: plan.talk.clone(),
        files: plan.files.clone(),
        is_wanted: trusted.program().allow_cli_input,
        default: trusted.program().default_input.clone(),
    };
    match (known, &trusted.project().code) {
        (Some(input), _) => {
            let without_python =
                matches!(plan.recording, Recording::Replay(..)) && is_told_without_python(trusted.program());
            let trusted = match with_python(trusted, plan, compiled).await {
                // Every step is in the record: what Python would do was done.
                Err(failure) if without_python => {
                    if !matches!(plan.output.view.verbosity, Verbosity::Quiet | Verbosity::Messages) {
                        let reason = marked(&failure.words().0);
                        console::complain(&format!("note: replayed without Python: {reason}\n"));
                    }
                    // It was agreed to a moment ago.
                    survey(plan)?.trusted(Agreement::Everything).map_err(|_| trust::untrusted())?
                }
                started => started?,
            };
            Ok((trusted, Talk::Once(input)))
        }
        (None, Code::Unread) => {
            let reading = tokio::task::spawn_blocking(move || reading.talk());
            let trusted = with_python(trusted, plan, compiled).await?;
            let talk = reading.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
            Ok((trusted, talk))
        }
        // A thread would cost more than there is to wait for.
        (None, Code::Absent | Code::Read(_)) => {
            let trusted = with_python(trusted, plan, compiled).await?;
            Ok((trusted, reading.talk()?))
        }
    }
}

/// Whether a record can be followed without Python, which would have to understand an entry, an input or an answer of its.
fn is_told_without_python(program: &Program) -> bool {
    let is_typed = |typing: &Typing| matches!(typing, Typing::Python(_));
    matches!(program.entry, Entry::Agent(_))
        && !program.agents.values().any(|agent| is_typed(&agent.input) || is_typed(&agent.output))
}

/// What is needed to read the input: enough to do it elsewhere.
struct Reading {
    talk: TalkPlan,
    files: Vec<PathBuf>,
    /// Whether the project takes one from the command line.
    is_wanted: bool,
    /// The manifest's.
    default: Option<RawJson>,
}

impl Reading {
    fn talk(self) -> Result<Talk, Failure> {
        match &self.talk {
            TalkPlan::Once(input) => self.input(input).map(Talk::Once),
            TalkPlan::Chat { .. } if !self.is_wanted => Err(no_input_wanted()),
            TalkPlan::Chat { first, lines } => {
                let first = first.as_ref().map(|first| self.input(first)).transpose()?;
                let files = if first.is_some() { Vec::new() } else { self.files()? };
                Ok(Talk::Chat(Chat { first, files, lines: lines.clone() }))
            }
        }
    }

    /// Those of `-f`.
    fn files(&self) -> Result<Vec<Attachment>, Failure> {
        let wrong = |error: AttachmentError| Failure::usage(error.to_string());
        self.files.iter().map(|path| attachment::read_named(path).map_err(wrong)).collect()
    }

    fn input(&self, input: &InputPlan) -> Result<Input, Failure> {
        let attachments = self.files()?;
        let spoken = match input {
            InputPlan::Json(source) => Some(read_json(source)?),
            InputPlan::Prompt { text, stdin } => {
                let piped = read_stdin(*stdin)?;
                Some(Value::String(match piped {
                    Some(piped) => format!("{text}\n\n<stdin>\n{}\n</stdin>", piped.trim_end_matches(['\r', '\n'])),
                    None => text.clone(),
                }))
            }
            InputPlan::PromptOnStdin => Some(Value::String(without_last_newline(text::stdin()?))),
            InputPlan::Unspoken { stdin } => read_stdin(*stdin)?.map(without_last_newline).map(Value::String),
        };
        if spoken.is_some() && !self.is_wanted {
            return Err(no_input_wanted());
        }
        match (spoken, &self.default) {
            (Some(value), _) => Ok(Input::Object { value, attachments }),
            (None, Some(default)) => Ok(Input::Object { value: default.to().unwrap_or_default(), attachments }),
            (None, None) if attachments.is_empty() => {
                Err(Failure::usage("no input").hint("give a prompt, `--input-json`, or something on stdin"))
            }
            (None, None) => Ok(Input::Parts(attachments.into_iter().map(Content::Attachment).collect())),
        }
    }
}

fn no_input_wanted() -> Failure {
    Failure::usage("this project takes no input from the command line")
        .hint("`allow_cli_input` in its manifest says so; leave out the prompt, or give `--no-stdin`")
}

/// Programs end what they say with a newline, which nobody means to say.
fn without_last_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        text.truncate(text.len() - usize::from(text.ends_with('\r')));
    }
    text
}

fn read_stdin(plan: Stdin) -> Result<Option<String>, Failure> {
    match plan {
        Stdin::LeaveAlone => Ok(None),
        Stdin::Read => Ok(Some(text::stdin()?).filter(|text| !text.trim().is_empty())),
    }
}

fn read_json(source: &JsonSource) -> Result<Value, Failure> {
    let (name, text) = match source {
        JsonSource::Text(text) => ("`--input-json`".to_owned(), text.clone()),
        JsonSource::Stdin => ("stdin".to_owned(), text::stdin()?),
        JsonSource::File(path) => {
            let name = path.display().to_string();
            let text = text::file(&name, path)?;
            (name, text)
        }
    };
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name} is not JSON: {error}")))
}

impl Prepared {
    pub fn run(self) -> Result<(), Failure> {
        let (output, rehearsed) = (self.output.clone(), self.rehearsed.clone());
        let executor = Arc::clone(&self.executor);
        // Agents within agents are rarely deep; code within code may be, and asking for room costs a short run a twentieth.
        let has_code = self.program.registry.python.is_some();
        let attend = || executor.block_on(self.attend());
        let ended = if has_code { stack::with_room(attend) } else { attend() };
        // What a task still holds ends here: its processes, and the threads that wait for a disk or a terminal.
        if let Some(executor) = Arc::into_inner(executor) {
            executor.shutdown_background();
        }
        match (ended?, rehearsed.and_then(|rehearsed| rehearsed.request())) {
            ((ended, _), Some(request)) => ended.report_request(&output, &request),
            ((ended, None), None) => ended.report(&output),
            ((ended, Some(chat)), None) => ended.report_chat(&output, chat),
        }?;
        console::delivered()
    }

    async fn attend(self) -> Result<(Ended, Option<ChatEnded>), Failure> {
        let started = Instant::now();
        let OutputPlan { format, view, .. } = self.output.clone();
        let journal = self.recorded.as_ref().and_then(|recorded| recorded.file.clone());
        let mut config = self.config;
        config.own_files.extend(journal.clone());
        let (runtime, events) = Runtime::heard(self.program, self.models, config, hearing(format, view));
        let runtime = match view.verbosity {
            Verbosity::Messages => runtime.logged_by(Arc::new(MessageLines)),
            Verbosity::Quiet | Verbosity::Normal | Verbosity::Calls | Verbosity::Text => runtime,
        };
        let runtime = match self.recorded {
            Some(recorded) => recorded.drive(runtime),
            None => runtime,
        };
        let (signals, display) = (Signals::listen()?, Display::new(view, format));
        let asking = self.editor.map(|editor| asking(editor, view.stderr)).transpose()?;
        let (reader, waiting, timeout) = (Reader::of_stdout(), QuestionQueue::default(), self.timeout);
        let (questions, pace) = (self.questions, Some(Arc::new(ConsolePace) as Arc<dyn Pace>));
        let parts = SessionParts { runtime, events, questions, caller: None, report: TurnReport::Answer, pace };
        let (session, updates) = Session::start(parts);
        let mut watch = Watch { updates, signals, reader, display, waiting, asking, timeout };
        let runtime = Arc::clone(&session.runtime);
        let (turn, chat) = match self.talk {
            Talk::Once(input) => (watch.turn(&session, input).await, None),
            Talk::Chat(chat) => {
                let chat = chat.converse(&mut watch, &session, &self.output).await;
                watch.restore_terminal();
                (Attended::Ended(TurnEnded::default()), Some(chat?))
            }
        };
        let mut killed = None;
        let (turn, messages) = match turn {
            Attended::Killed(stopped) => (TurnEnded { stopped: Some(stopped), ..TurnEnded::default() }, Vec::new()),
            Attended::Ended(turn) => match watch.close(session).await {
                Attended::Ended(messages) => (turn, messages),
                Attended::Killed(stopped) => {
                    killed = Some(stopped);
                    (turn, Vec::new())
                }
            },
        };
        let answer = chat.as_ref().map_or(turn.answer.as_ref().ok(), |chat| chat.last.as_ref());
        let handed_over = match (answer, self.output.file) {
            (Some(answer), Some(file)) if answer_file::is_stream(&file) => {
                let text = report::answer(answer).into_owned();
                Some(match killed {
                    None => watch.hand_over(move || answer_file::write(&file, &text)).await,
                    Some(stopped) => Err(stopped.failure()),
                })
            }
            (Some(_) | None, _) => None,
        };
        Ok((Ended { messages, journal, handed_over, ..Ended::of(&runtime, turn, started.elapsed()) }, chat))
    }
}

/// What is shown nowhere is not even sent.
fn hearing(format: OutputFormat, view: View) -> Hearing {
    match format {
        OutputFormat::StreamJson => Hearing::Everything,
        OutputFormat::Text | OutputFormat::Json if view.hears_deltas() => Hearing::Everything,
        OutputFormat::Text | OutputFormat::Json if view.tells_calls() || view.live => Hearing::Facts,
        OutputFormat::Text | OutputFormat::Json => Hearing::Exceptions,
    }
}

fn asking(editor: Editor, styles: Styles) -> Result<Asking, Failure> {
    let terminal =
        Terminal::open().map_err(|error| Failure::failed(format!("the terminal cannot be opened: {error}")))?;
    Ok(Asking { terminal, editor, styles, count: 0 })
}
