//! What was decided: typed arguments and the environment → a plan. Pure.

use llm_do::approval::ApprovalMode;
use llm_do::created::WorkerDefaults;
use llm_do::diagnostics::Colour;
use llm_do::fence::FenceConfig;
use llm_do::names::is_name;
use llm_do::providers::{ModelFallback, PROVIDERS};
use llm_do::python::Tracebacks;
use llm_do::records::{Durability, RunKind};
use llm_do::runs::UnknownPrices;
use llm_do::{Limits, ModelChoices, ModelName, OnLimit, WorkingDirectory};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use llm_do_launch::config::Config;
use llm_do_launch::fencing::{self, FenceChoice};
use llm_do_launch::items::MapRecord;
use llm_do_launch::keep::{KeepNeed, KeepPlan};
use llm_do_launch::launch::{CacheUse, Launch, PolicyOverrides, Purpose};
use llm_do_launch::program_terms::ProgramTerms;
use llm_do_launch::python::PythonPlan;
use llm_do_launch::record::{Author, LaunchOverrides, ModelWords, ModelWordsError, chosen_models, is_amount};
use llm_do_launch::rehearsal::RehearsedRequest;
use llm_do_launch::settings::Settings;
use llm_do_launch::tools::ToolOffer;

use clap::ValueEnum as _;

use crate::args::{CheckArgs, ConductArgs, ItemFormatArg, MapArgs, ModelArgs, NewArgs, RunArgs, RunFormat, Template};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::remedy;
use crate::report::OutputPlan;
use crate::terminal::chat::LinesPlan;
use crate::terminal::markdown::MarkdownForm;
use crate::terminal::render::{Thoughts, Verbosity, View};
use crate::terminal::style::Styles;
use crate::terminal::trust::{self, Answerers};

/// What `check` looks at, and how it shows it.
pub struct CheckPlan {
    pub launch: Launch,
    pub trust: Answerers,
    /// Ask the MCP servers what they offer.
    pub connect: bool,
    pub format: CheckFormat,
    /// Of what is said about mistakes.
    pub colour: Colour,
    /// Of what is shown.
    pub styles: Styles,
    /// The words that chose models and the entry, which a run needs too.
    pub chosen: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFormat {
    Text,
    Json,
    Dot,
    Svg,
}

pub fn check(args: CheckArgs, environment: &Environment, settings: &Settings) -> Result<CheckPlan, Failure> {
    let fence = args.fence.map(FenceChoice::from);
    let typed =
        args.models.models.iter().map(|model| ("-m", model)).chain(args.agent.iter().map(|agent| ("-a", agent)));
    let chosen = typed.flat_map(|(flag, word)| [flag.to_owned(), word.clone()]).collect();
    Ok(CheckPlan {
        chosen,
        launch: Launch {
            project: args.project,
            entry: args.agent,
            python: PythonPlan::of(args.python, &settings.variables, &settings.config),
            fence: fencing::config(fence, &settings.variables, &settings.config, remedy::WORDING)?,
            ..launch(ModelChoices { may_be_open: true, ..models(&args.models, environment, &settings.config)? })
        },
        trust: Answerers { flag: trust::typed(args.trust.as_deref())?, once: environment.consent()?, person: false },
        connect: args.connect,
        format: match (args.json, args.dot, args.svg) {
            (true, ..) => CheckFormat::Json,
            (false, true, _) => CheckFormat::Dot,
            (false, false, true) => CheckFormat::Svg,
            (false, false, false) => CheckFormat::Text,
        },
        colour: if environment.colours_stderr() { Colour::Ansi } else { Colour::Plain },
        styles: Styles { coloured: environment.colours_stdout() },
    })
}

/// A project that is only looked at: whichever model its agents have.
pub fn look(project: PathBuf, environment: &Environment, settings: &Settings) -> Result<Launch, Failure> {
    let models = ModelChoices { may_be_open: true, ..models(&ModelArgs::default(), environment, &settings.config)? };
    Ok(Launch { project, ..launch(models) })
}

/// Who answers whether a project is trusted, for a command that runs nothing of it: flags and variables alone.
pub fn answerers(typed: Option<&str>, environment: &Environment) -> Result<Answerers, Failure> {
    Ok(Answerers { flag: trust::typed(typed)?, once: environment.consent()?, person: environment.can_ask })
}

/// A run of the process's directory about which nothing but its models was decided.
pub fn launch(models: ModelChoices) -> Launch {
    Launch {
        project: PathBuf::from("."),
        assistant: false,
        directory: WorkingDirectory::of_process(),
        entry: None,
        python: PythonPlan::default(),
        models,
        tools: ToolOffer::Offered,
        policy: PolicyOverrides::default(),
        fence: FenceConfig::default(),
        created: WorkerDefaults::default(),
        own_files: Vec::new(),
        purpose: Purpose::Answer,
        terms: ProgramTerms::default(),
        rules: Vec::new(),
        trace_parent: None,
    }
}

/// What is run, and how it is attended to.
pub struct RunPlan {
    pub launch: Launch,
    pub conduct: Conduct,
}

/// What is run over items, and how.
pub struct MapPlan {
    pub launch: Launch,
    pub conduct: Conduct,
    pub map: MapRecord,
    /// How it is kept, if it is.
    pub keep: Option<KeepPlan>,
}

/// How a run is spoken to, shown and ended.
pub struct Conduct {
    pub talk: TalkPlan,
    pub files: Vec<PathBuf>,
    pub output: OutputPlan,
    pub recording: Recording,
    /// Whether somebody can be asked.
    pub attended: bool,
    pub trust: Answerers,
    /// Whether it becomes a chat where nothing is said to it.
    pub may_chat: bool,
    /// Of each turn.
    pub timeout: Option<Duration>,
    pub colour: Colour,
}

/// One turn, or many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TalkPlan {
    Once(InputPlan),
    Chat { first: Option<InputPlan>, lines: LinesPlan },
}

/// What becomes of the steps of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recording {
    Nothing,
    /// Kept in the store.
    Keep(KeepPlan),
    /// Kept in a new file.
    Journal(PathBuf, RunKind),
    /// Answered from a file.
    Replay(PathBuf, Author),
}

/// Where the input comes from; nothing is read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputPlan {
    Json(JsonSource),
    Prompt {
        text: String,
        stdin: Stdin,
    },
    /// `-`: all of stdin, even if there is nothing in it.
    PromptOnStdin,
    /// Stdin if there is something in it, else the manifest's input.
    Unspoken {
        stdin: Stdin,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonSource {
    Text(String),
    File(PathBuf),
    Stdin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    Read,
    LeaveAlone,
}

pub fn run(args: RunArgs, environment: &Environment, settings: &Settings) -> Result<RunPlan, Failure> {
    if args.detach || args.any_version {
        return Err(
            Failure::usage("`--detach` and `--any-version` are for runs of an engine").hint("name one: `--on URL`")
        );
    }
    let output = if args.dry_run { dry_output(&args.conduct, environment) } else { output(&args.conduct, environment) };
    let LaunchOverrides { mut models, python, policy, fence, own_files, trace_parent, .. } =
        overrides(&args.conduct, &WorkingDirectory::of_process(), environment, settings)?;
    // Who can be asked chooses one; else there is more to say than that it is missing.
    models.may_be_open = true;
    let conduct = Conduct {
        talk: talk(&args, environment),
        recording: recording(&args, &settings.config),
        may_chat: !args.no_stdin && !args.dry_run && args.replay.is_none() && args.once.is_none(),
        files: args.files,
        output,
        ..unspoken(&args.conduct, &WorkingDirectory::of_process(), environment)?
    };
    let launch = Launch {
        project: args.project,
        assistant: args.assistant,
        entry: args.agent,
        python: python.naming(args.python),
        tools: if args.no_tools { ToolOffer::Withheld } else { ToolOffer::Offered },
        // In a chat the same words may be said again for another answer.
        policy: if args.chat { PolicyOverrides { cache: CacheUse::Unused, ..policy } } else { policy },
        fence,
        own_files,
        purpose: if args.dry_run { Purpose::FirstRequest(RehearsedRequest::default()) } else { Purpose::Answer },
        trace_parent,
        ..launch(models)
    };
    Ok(RunPlan { launch, conduct })
}

pub fn map(args: MapArgs, environment: &Environment, settings: &Settings) -> Result<MapPlan, Failure> {
    if args.conduct.json || args.conduct.output_format.is_some() || args.conduct.stream {
        return Err(Failure::usage("`map` prints one JSON line an item")
            .hint("leave out `--json`, `--output-format` and `--stream`; `-o FILE` writes the lines into a file"));
    }
    let directory = WorkingDirectory::of_process();
    let conduct = unspoken(&args.conduct, &directory, environment)?;
    let LaunchOverrides { mut models, python, policy, fence, trace_parent, .. } =
        overrides(&args.conduct, &directory, environment, settings)?;
    models.may_be_open = true;
    let is_kept = args.durable || (settings.config.runs.keep() && !args.ephemeral);
    let durability = if args.durable { Durability::Synced } else { settings.config.runs.durability() };
    let keep = is_kept.then(|| KeepPlan {
        kind: RunKind::Map,
        label: args.label.clone(),
        durability,
        need: if args.durable { KeepNeed::Required } else { KeepNeed::Wanted },
        once: None,
        id: None,
    });
    let word = |format: ItemFormatArg| format.to_possible_value().map(|value| value.get_name().to_owned());
    let map = MapRecord {
        over: args.over,
        files: args.files,
        format: args.format.and_then(word),
        jobs: Some(args.jobs),
        output: conduct.output.file.clone(),
        max_failures: if args.fail_fast { Some(1) } else { args.max_failures },
    };
    let launch = Launch {
        project: args.project,
        entry: Some(args.agent),
        python: python.naming(args.python),
        policy,
        fence,
        trace_parent,
        ..launch(models)
    };
    Ok(MapPlan { launch, conduct, map, keep })
}

/// What becomes of the steps of a run: it is kept, unless somebody decided otherwise.
fn recording(args: &RunArgs, config: &Config) -> Recording {
    let kind = if args.chat { RunKind::Chat } else { RunKind::Run };
    if let Some(file) = &args.journal {
        return Recording::Journal(file.clone(), kind);
    }
    if let Some(file) = &args.replay {
        return Recording::Replay(file.clone(), Author::of(args.foreign));
    }
    let is_required = args.durable || args.once.is_some();
    let is_kept = is_required || (config.runs.keep() && !args.ephemeral);
    if args.dry_run || !is_kept {
        return Recording::Nothing;
    }
    Recording::Keep(KeepPlan {
        kind,
        label: args.label.clone(),
        durability: if args.durable { Durability::Synced } else { config.runs.durability() },
        need: if is_required { KeepNeed::Required } else { KeepNeed::Wanted },
        once: args.once.clone(),
        id: None,
    })
}

/// What is typed about how a run goes, which counts before what a record of it says. It was typed where the process is,
/// and is written here as it is reached from the directory of the run.
pub fn overrides(
    args: &ConductArgs,
    directory: &WorkingDirectory,
    environment: &Environment,
    settings: &Settings,
) -> Result<LaunchOverrides, Failure> {
    let Settings { variables, config, .. } = settings;
    let tracebacks = if args.debug { Tracebacks::Whole } else { Tracebacks::Nothing };
    if !is_amount(args.max_cost_usd) {
        return Err(Failure::usage("`--max-cost-usd` is not an amount"));
    }
    let policy = PolicyOverrides {
        approval_mode: match (args.approve_all, args.reject_all) {
            (true, _) => Some(ApprovalMode::ApproveAll),
            (false, true) => Some(ApprovalMode::RejectAll),
            (false, false) => None,
        },
        is_attended: environment.can_ask && !args.headless,
        max_depth: args.max_depth,
        limits: Limits {
            max_requests: args.max_requests,
            max_cost_usd: args.max_cost_usd,
            on_limit: args.on_limit.map(OnLimit::from),
            ..Limits::default()
        },
        unknown_prices: UnknownPrices::when(args.allow_unknown_prices),
        stream: !args.no_stream,
        cache: match (args.no_cache, args.explain_cache) {
            (true, _) => CacheUse::Unused,
            (false, true) => CacheUse::Explained,
            (false, false) => CacheUse::Used,
        },
    };
    let mut models = models(&args.models, environment, config)?;
    for model in models.required.iter_mut().chain(&mut models.all).chain(models.overrides.values_mut()) {
        import_script(model, directory)?;
    }
    Ok(LaunchOverrides {
        models,
        python: PythonPlan::of(None, variables, config).telling(tracebacks),
        policy,
        fence: fencing::config(args.fence.map(FenceChoice::from), variables, config, remedy::WORDING)?,
        own_files: typed_output(args, directory)?.into_iter().collect(),
        terms: ProgramTerms::default(),
        created: None,
        trace_parent: variables.trace_parent(),
    })
}

/// Scripts that are named now are relative to where the user is, those of the run to where it was started.
pub fn import_script(model: &mut ModelName, directory: &WorkingDirectory) -> Result<(), Failure> {
    if model.provider == "scripted" {
        let script = directory
            .import(&model.model)
            .map_err(|error| Failure::usage(format!("the script `{}` cannot be found: {error}", model.model)))?;
        model.model = script.display().to_string();
    }
    Ok(())
}

/// The file of `-o`, as it is reached from the directory of the run.
fn typed_output(args: &ConductArgs, directory: &WorkingDirectory) -> Result<Option<PathBuf>, Failure> {
    let output = args.output.as_ref().map(|file| directory.import(file)).transpose();
    output.map_err(|error| Failure::usage(format!("`--output` is not a path: {error}")))
}

/// How a run goes that needs no further words: nothing is said to it, and what becomes of its steps is decided elsewhere.
pub fn unspoken(
    args: &ConductArgs,
    directory: &WorkingDirectory,
    environment: &Environment,
) -> Result<Conduct, Failure> {
    let attended = environment.can_ask && !args.headless;
    Ok(Conduct {
        talk: TalkPlan::Once(InputPlan::Unspoken { stdin: Stdin::LeaveAlone }),
        files: Vec::new(),
        recording: Recording::Nothing,
        attended,
        may_chat: false,
        trust: Answerers { flag: trust::typed(args.trust.as_deref())?, once: environment.consent()?, person: attended },
        timeout: args.timeout,
        colour: if environment.colours_stderr() { Colour::Ansi } else { Colour::Plain },
        output: OutputPlan { file: typed_output(args, directory)?, ..output(args, environment) },
    })
}

/// How a chat goes on: what is said to it is typed now.
pub fn chat(args: &RunArgs, directory: &WorkingDirectory, environment: &Environment) -> Result<Conduct, Failure> {
    let files = args.files.iter().map(|file| directory.import(file)).collect::<Result<_, _>>();
    let files = files.map_err(|error| Failure::usage(format!("`--file` is not a path: {error}")))?;
    Ok(Conduct { talk: talk(args, environment), files, ..unspoken(&args.conduct, directory, environment)? })
}

/// A dry run is over at once: nothing of it is animated.
fn dry_output(args: &ConductArgs, environment: &Environment) -> OutputPlan {
    let plan = output(args, environment);
    let view = View { live: false, streamed: false, ..plan.view };
    OutputPlan { format: dry_format(plan.format), view, ..plan }
}

/// What is shown where. Programs get no control codes, and no status line where a stream of JSON is shown already.
pub fn output(args: &ConductArgs, environment: &Environment) -> OutputPlan {
    let format = output_format(args);
    let is_attended = !args.headless && !environment.is_dumb();
    let verbosity = match (args.quiet, args.verbose) {
        (true, _) => Verbosity::Quiet,
        (false, 0) => Verbosity::Normal,
        (false, 1) => Verbosity::Calls,
        (false, 2) => Verbosity::Text,
        (false, _) => Verbosity::Messages,
    };
    let is_silent = matches!(verbosity, Verbosity::Quiet | Verbosity::Messages);
    let live = is_attended && environment.stderr_is_terminal && format != RunFormat::StreamJson && !is_silent;
    let view = View {
        verbosity,
        live,
        streamed: format == RunFormat::Text
            && if environment.stdout_is_terminal { is_attended } else { args.stream && !args.no_stream },
        stdout_is_terminal: environment.stdout_is_terminal,
        stdout: Styles { coloured: environment.colours_stdout() },
        answers: if environment.colours_stdout() { MarkdownForm::Styled } else { MarkdownForm::Source },
        stderr: Styles { coloured: environment.colours_stderr() },
        thoughts: Thoughts::Hidden,
    };
    OutputPlan {
        format,
        file: args.output.clone(),
        files: args.save_files.clone(),
        partial: args.partial,
        view,
        debug: args.debug,
        fail_on_refusal: args.fail_on_refusal,
    }
}

/// Known before anything else: whoever reads JSON also reads what is wrong with the rest.
pub fn output_format(args: &ConductArgs) -> RunFormat {
    if args.json { RunFormat::StreamJson } else { args.output_format.unwrap_or(RunFormat::Text) }
}

pub fn run_format(args: &RunArgs) -> RunFormat {
    let format = output_format(&args.conduct);
    if args.dry_run { dry_format(format) } else { format }
}

/// Nothing happens in a dry run that could be told.
fn dry_format(format: RunFormat) -> RunFormat {
    match format {
        RunFormat::StreamJson => RunFormat::Json,
        RunFormat::Text | RunFormat::Json => format,
    }
}

/// How the lines of a chat come.
fn lines(no_stdin: bool, attended: bool, environment: &Environment) -> LinesPlan {
    let is_typed = environment.stdin_is_terminal && attended;
    match (no_stdin, is_typed) {
        (false, true) if environment.is_dumb() => LinesPlan::Plain,
        (false, true) => LinesPlan::Editor { home: environment.home() },
        (false, false) => LinesPlan::Stdin,
        (true, _) => LinesPlan::None,
    }
}

impl Conduct {
    /// A run that nothing is said to becomes a chat, where a person is at the terminal who can say it.
    pub fn into_chat(self, environment: &Environment) -> Self {
        let is_silent = self.talk == TalkPlan::Once(InputPlan::Unspoken { stdin: Stdin::LeaveAlone });
        let is_person = self.attended && environment.stdin_is_terminal && self.output.format == RunFormat::Text;
        let recording = match self.recording {
            _ if !is_silent || !is_person || !self.files.is_empty() || !self.may_chat => return self,
            Recording::Keep(plan) => Recording::Keep(KeepPlan { kind: RunKind::Chat, ..plan }),
            Recording::Journal(file, _) => Recording::Journal(file, RunKind::Chat),
            recording @ (Recording::Nothing | Recording::Replay(..)) => recording,
        };
        let lines = lines(false, self.attended, environment);
        Self { talk: TalkPlan::Chat { first: None, lines }, recording, ..self }
    }
}

fn talk(args: &RunArgs, environment: &Environment) -> TalkPlan {
    let (json, prompt) = (args.input_json.clone(), args.prompt.clone());
    if !args.chat {
        return TalkPlan::Once(input(json, prompt, args.no_stdin, environment));
    }
    let lines = lines(args.no_stdin, environment.can_ask && !args.conduct.headless, environment);
    // Its lines are turns of their own: nothing of stdin is added to the first one.
    let first = (json.is_some() || prompt.is_some()).then(|| input(json, prompt, true, environment));
    TalkPlan::Chat { first, lines }
}

fn input(json: Option<String>, prompt: Option<String>, no_stdin: bool, environment: &Environment) -> InputPlan {
    let stdin = if no_stdin || !environment.stdin_is_readable { Stdin::LeaveAlone } else { Stdin::Read };
    match (json, prompt) {
        (Some(text), _) if text == "-" => InputPlan::Json(JsonSource::Stdin),
        (Some(text), _) => InputPlan::Json(match text.strip_prefix('@') {
            Some(path) => JsonSource::File(PathBuf::from(path)),
            None => JsonSource::Text(text),
        }),
        (None, Some(text)) if text == "-" => InputPlan::PromptOnStdin,
        (None, Some(text)) => InputPlan::Prompt { text, stdin },
        (None, None) => InputPlan::Unspoken { stdin },
    }
}

/// What is wrong with the words of `--model`.
fn wrong_models(error: ModelWordsError) -> Failure {
    match error {
        ModelWordsError::TwiceForAgent(agent) => Failure::usage(format!("`--model {agent}=…` is given twice")),
        ModelWordsError::Twice => Failure::usage("`--model` is given twice")
            .hint("`-m AGENT=provider:model` is for one agent, `-m all=provider:model` for every one"),
        ModelWordsError::NoModel(error) => Failure::usage(format!("`--model`: {error}"))
            .hint("write `provider:model`, for example `anthropic:claude-haiku-4-5`"),
    }
}

/// What the user chose on the command line, in the environment and in the configuration.
pub fn models(args: &ModelArgs, environment: &Environment, config: &Config) -> Result<ModelChoices, Failure> {
    let ModelWords { required, all, of_agents: overrides } = chosen_models(&args.models).map_err(wrong_models)?;
    let in_environment =
        |text| ModelName::parse(text).map_err(|error| Failure::usage(format!("the variable `LLM_DO_MODEL`: {error}")));
    let fallback = |label: &'static str| {
        move |mut models: Vec<ModelName>| {
            let others = models.split_off(models.len().min(1));
            models.pop().map(|model| ModelFallback { model, label: label.to_owned(), others })
        }
    };
    let from_environment = environment.get("LLM_DO_MODEL").map(in_environment).transpose()?;
    let from_environment = fallback("`LLM_DO_MODEL`")(from_environment.into_iter().collect());
    let from_config = fallback("the user's configuration")(config.model_names()?);
    Ok(ModelChoices {
        option: Some("--model".to_owned()),
        overrides,
        required,
        all,
        unasked: None,
        may_be_open: false,
        fallbacks: from_environment.into_iter().chain(from_config).collect(),
        scripts: BTreeMap::new(),
        providers: config.custom_providers(),
        keys: keys(environment, config),
    })
}

/// Providers whose key is at hand, or can be had by a command.
fn keys(environment: &Environment, config: &Config) -> BTreeSet<String> {
    let built_in = PROVIDERS
        .iter()
        .filter(|row| row.key_variables.iter().any(|variable| environment.get(variable).is_some()))
        .map(|row| row.name.to_owned());
    let custom = config.providers.iter().filter(|(_, custom)| {
        custom.api_key_cmd.is_some()
            || custom.api_key_env.as_ref().is_some_and(|variable| environment.get(variable).is_some())
    });
    built_in.chain(custom.map(|(name, _)| name.clone())).collect()
}

/// What `new` writes.
#[derive(Debug, PartialEq, Eq)]
pub enum NewPlan {
    Project { directory: PathBuf, template: Template },
    Worker { directory: PathBuf, name: String },
}

pub fn new(args: NewArgs) -> Result<NewPlan, Failure> {
    match (args.worker, args.directory) {
        (Some(name), directory) => {
            if !is_name(&name) {
                return Err(Failure::usage(format!("`{}` is not a name", llm_do::escape::visible(&name)))
                    .hint("names have 1 to 64 letters, digits, `_` or `-`"));
            }
            Ok(NewPlan::Worker { directory: directory.unwrap_or_default(), name })
        }
        (None, Some(directory)) => Ok(NewPlan::Project { directory, template: args.template }),
        (None, None) => Err(Failure::usage("give a directory, or `--worker NAME`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(models: &[&str]) -> Result<ModelChoices, Failure> {
        let args = ModelArgs { models: models.iter().map(|text| (*text).to_owned()).collect() };
        let environment = Environment::of([("LLM_DO_MODEL", "ollama:qwen3"), ("GROQ_API_KEY", "k")]);
        super::models(&args, &environment, &Config::default())
    }

    #[test]
    fn a_model_is_for_all_or_for_one_agent() {
        let models = choices(&["main=anthropic:a", "openai:b=c"]).unwrap();
        assert_eq!(models.overrides["main"].to_string(), "anthropic:a");
        assert_eq!(models.required.unwrap().to_string(), "openai:b=c");
        assert_eq!(models.fallbacks[0].model.to_string(), "ollama:qwen3");
        assert!(models.keys.contains("groq") && !models.keys.contains("openai"));
    }

    #[test]
    fn the_input_is_json_or_a_prompt_or_stdin() {
        let text = |text: &str| Some(text.to_owned());
        let piped = Environment { stdin_is_readable: true, ..Environment::default() };
        let terminal = Environment::default();
        let prompt = |stdin| InputPlan::Prompt { text: "hi".into(), stdin };
        let unspoken = |stdin| InputPlan::Unspoken { stdin };
        let cases = [
            (text("{}"), None, false, &piped, InputPlan::Json(JsonSource::Text("{}".into()))),
            (text("@a.json"), None, false, &piped, InputPlan::Json(JsonSource::File("a.json".into()))),
            (text("-"), None, false, &terminal, InputPlan::Json(JsonSource::Stdin)),
            (None, text("hi"), false, &piped, prompt(Stdin::Read)),
            (None, text("hi"), true, &piped, prompt(Stdin::LeaveAlone)),
            (None, text("hi"), false, &terminal, prompt(Stdin::LeaveAlone)),
            (None, text("-"), false, &terminal, InputPlan::PromptOnStdin),
            (None, None, false, &piped, unspoken(Stdin::Read)),
            (None, None, false, &terminal, unspoken(Stdin::LeaveAlone)),
        ];
        for (json, prompt, no_stdin, environment, plan) in cases {
            assert_eq!(input(json, prompt, no_stdin, environment), plan);
        }
    }

    #[test]
    fn a_model_that_is_none_is_a_usage_error() {
        for models in [&["claude"][..], &["a:b", "c:d"], &["main=x"], &["main=a:b", "main=a:c"]] {
            assert!(matches!(choices(models), Err(Failure::Failed { code: 2, .. })), "{models:?}");
        }
    }
}
