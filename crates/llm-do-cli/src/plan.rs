//! What was decided: typed arguments and the environment → a plan. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use llm_do::{Limits, ModelChoices, ModelName};
use llm_do::approval::ApprovalMode;
use llm_do::created::WorkerDefaults;
use llm_do::diagnostics::Colour;
use llm_do::fence::FenceConfig;
use llm_do::names::is_name;
use llm_do::providers::{ModelFallback, PROVIDERS};
use llm_do::python::Tracebacks;
use llm_do::runs::UnknownPrices;
use llm_do_launch::config::Config;
use llm_do_launch::fencing::{self, FenceChoice};
use llm_do_launch::launch::{Launch, PolicyOverrides, Purpose};
use llm_do_launch::python::PythonPlan;
use llm_do_launch::record::{Author, LaunchRecord};
use llm_do_launch::rehearsal::RehearsedRequest;
use llm_do_launch::settings::Settings;
use llm_do_launch::tools::ToolOffer;

use crate::args::{CheckArgs, ConductArgs, ModelArgs, NewArgs, RunArgs, RunFormat, Template};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::remedy;
use crate::report::OutputPlan;
use crate::terminal::chat::LinesPlan;
use crate::terminal::render::{Verbosity, View};
use crate::terminal::style::Styles;
use crate::terminal::trust::{self, Answerers};

/// What `check` looks at, and how it shows it.
pub struct CheckPlan {
    pub launch: Launch,
    pub trust: Answerers,
    /// Ask the MCP servers what they offer.
    pub connect: bool,
    pub format: CheckFormat,
    pub colour: Colour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFormat {
    Text,
    Json,
    Dot,
}

pub fn check(args: CheckArgs, environment: &Environment, settings: &Settings) -> Result<CheckPlan, Failure> {
    let fence = args.fence.map(FenceChoice::from);
    Ok(CheckPlan {
        launch: Launch {
            project: args.project,
            entry: args.agent,
            python: PythonPlan::of(args.python, &settings.variables, &settings.config),
            fence: fencing::config(fence, &settings.variables, &settings.config, remedy::WORDING)?,
            ..launch(models(&args.models, environment, &settings.config)?)
        },
        trust: Answerers {
            flag: trust::typed(args.trust.as_deref())?,
            once: trust::of_variable(environment)?,
            person: false,
        },
        connect: args.connect,
        format: match (args.json, args.dot) {
            (true, _) => CheckFormat::Json,
            (false, true) => CheckFormat::Dot,
            (false, false) => CheckFormat::Text,
        },
        colour: if environment.colours_stderr() { Colour::Ansi } else { Colour::Plain },
    })
}

/// A run of the current directory about which nothing but its models was decided.
pub fn launch(models: ModelChoices) -> Launch {
    Launch {
        project: PathBuf::from("."),
        entry: None,
        python: PythonPlan::default(),
        models,
        tools: ToolOffer::Offered,
        policy: PolicyOverrides::default(),
        fence: FenceConfig::default(),
        created: WorkerDefaults::default(),
        own_files: Vec::new(),
        purpose: Purpose::Answer,
    }
}

/// What is run, and how it is attended to.
pub struct RunPlan {
    pub launch: Launch,
    pub conduct: Conduct,
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
    /// Of each turn.
    pub timeout: Option<Duration>,
    /// What a run that goes on later inherits.
    pub flags: LaunchRecord,
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
    /// Kept in a new file.
    Journal(PathBuf),
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
    let Settings { variables, config, .. } = settings;
    let (output, flags) = (output(&args, environment), recorded_flags(&args));
    let attended = environment.can_ask && !args.conduct.headless;
    let tracebacks = if args.conduct.debug { Tracebacks::Whole } else { Tracebacks::Nothing };
    let policy = PolicyOverrides {
        approval_mode: match (args.conduct.approve_all, args.conduct.reject_all) {
            (true, _) => Some(ApprovalMode::ApproveAll),
            (false, true) => Some(ApprovalMode::RejectAll),
            (false, false) => None,
        },
        is_attended: attended,
        max_depth: args.conduct.max_depth,
        limits: limits(&args.conduct)?,
        unknown_prices: UnknownPrices::when(args.conduct.allow_unknown_prices),
        stream: !args.conduct.no_stream,
    };
    let models = models(&args.conduct.models, environment, config)?;
    let conduct = Conduct {
        talk: talk(&args, environment),
        files: args.files,
        recording: match (args.journal, args.replay) {
            (Some(file), _) => Recording::Journal(file),
            (None, Some(file)) => Recording::Replay(file, Author::of(args.foreign)),
            (None, None) => Recording::Nothing,
        },
        attended,
        trust: Answerers {
            flag: trust::typed(args.conduct.trust.as_deref())?,
            once: trust::of_variable(environment)?,
            person: attended,
        },
        timeout: args.conduct.timeout,
        flags,
        colour: if environment.colours_stderr() { Colour::Ansi } else { Colour::Plain },
        output,
    };
    let launch = Launch {
        project: args.project,
        entry: args.agent,
        python: PythonPlan::of(args.python, variables, config).telling(tracebacks),
        tools: if args.no_tools { ToolOffer::Withheld } else { ToolOffer::Offered },
        policy,
        fence: fencing::config(args.conduct.fence.map(FenceChoice::from), variables, config, remedy::WORDING)?,
        own_files: conduct.output.file.clone().into_iter().collect(),
        purpose: if args.dry_run { Purpose::FirstRequest(RehearsedRequest::default()) } else { Purpose::Answer },
        ..launch(models)
    };
    Ok(RunPlan { launch, conduct })
}

/// The flags that a resumed run inherits.
fn recorded_flags(args: &RunArgs) -> LaunchRecord {
    let conduct = &args.conduct;
    LaunchRecord {
        models: conduct.models.models.clone(),
        agent: args.agent.clone(),
        no_stream: conduct.no_stream,
        reject_all: conduct.reject_all,
        no_tools: args.no_tools,
        max_requests: conduct.max_requests,
        max_cost_usd: conduct.max_cost_usd,
        allow_unknown_prices: conduct.allow_unknown_prices,
        max_depth: conduct.max_depth,
        python: args.python.clone(),
    }
}

fn limits(args: &ConductArgs) -> Result<Limits, Failure> {
    if args.max_cost_usd.is_some_and(|usd| usd.is_nan() || usd <= 0.0) {
        return Err(Failure::usage("`--max-cost-usd` is not an amount"));
    }
    Ok(Limits { max_requests: args.max_requests, max_cost_usd: args.max_cost_usd, ..Limits::default() })
}

/// What is shown where. Programs get no control codes, and no status line where a stream of JSON is shown already.
pub fn output(args: &RunArgs, environment: &Environment) -> OutputPlan {
    let format = run_format(args);
    let is_attended = !args.conduct.headless && !args.dry_run && !environment.is_dumb();
    let verbosity = match (args.conduct.quiet, args.conduct.verbose) {
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
        streamed: is_attended && environment.stdout_is_terminal && format == RunFormat::Text,
        stdout_is_terminal: environment.stdout_is_terminal,
        stdout: Styles { coloured: environment.colours_stdout() },
        stderr: Styles { coloured: environment.colours_stderr() },
    };
    let (file, debug) = (args.conduct.output.clone(), args.conduct.debug);
    OutputPlan { format, file, view, debug, fail_on_refusal: args.conduct.fail_on_refusal }
}

/// Known before anything else: whoever reads JSON also reads what is wrong with the rest.
pub fn output_format(args: &ConductArgs) -> RunFormat {
    if args.json { RunFormat::StreamJson } else { args.output_format.unwrap_or(RunFormat::Text) }
}

/// Nothing happens in a dry run that could be told.
pub fn run_format(args: &RunArgs) -> RunFormat {
    match output_format(&args.conduct) {
        RunFormat::StreamJson if args.dry_run => RunFormat::Json,
        format => format,
    }
}

fn talk(args: &RunArgs, environment: &Environment) -> TalkPlan {
    let (json, prompt) = (args.input_json.clone(), args.prompt.clone());
    if !args.chat {
        return TalkPlan::Once(input(json, prompt, args.no_stdin, environment));
    }
    let is_typed =
        environment.stdin_is_terminal && environment.can_ask && !args.conduct.headless && !environment.is_dumb();
    let lines = match (args.no_stdin, is_typed) {
        (false, true) => LinesPlan::Editor { home: environment.home() },
        (false, false) => LinesPlan::Stdin,
        (true, _) => LinesPlan::None,
    };
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

/// What the user chose on the command line, in the environment and in the configuration.
pub fn models(args: &ModelArgs, environment: &Environment, config: &Config) -> Result<ModelChoices, Failure> {
    let mut overrides = BTreeMap::new();
    let mut flag = None;
    for text in &args.models {
        match text.split_once('=').filter(|(agent, _)| is_name(agent)) {
            Some((agent, model)) => {
                if overrides.insert(agent.to_owned(), flag_model(model)?).is_some() {
                    return Err(Failure::usage(format!("`--model {agent}=…` is given twice")));
                }
            }
            None if flag.is_none() => flag = Some(flag_model(text)?),
            None => {
                return Err(
                    Failure::usage("`--model` is given twice").hint("`-m AGENT=provider:model` is for one agent")
                );
            }
        }
    }
    let in_environment =
        |text| ModelName::parse(text).map_err(|error| Failure::usage(format!("the variable `LLM_DO_MODEL`: {error}")));
    let fallback = |label: &'static str| move |model| ModelFallback { model, label: label.to_owned() };
    let from_environment = environment.get("LLM_DO_MODEL").map(in_environment).transpose()?;
    let from_environment = from_environment.map(fallback("`LLM_DO_MODEL`"));
    let from_config = config.model_name()?.map(fallback("the user's configuration"));
    Ok(ModelChoices {
        option: Some("--model".to_owned()),
        overrides,
        required: flag,
        unasked: None,
        fallbacks: from_environment.into_iter().chain(from_config).collect(),
        scripts: BTreeMap::new(),
        providers: config.custom_providers(),
        keys: keys(environment, config),
    })
}

fn flag_model(text: &str) -> Result<ModelName, Failure> {
    ModelName::parse(text).map_err(|error| {
        Failure::usage(format!("`--model`: {error}"))
            .hint("write `provider:model`, for example `anthropic:claude-haiku-4-5`")
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
