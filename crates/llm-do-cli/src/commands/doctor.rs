//! `llm-do doctor`: what the program finds where it was started, and what of it is wrong. Nothing is sent unless it is asked for.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llm_do::WorkingDirectory;
use llm_do::escape::visible;
use llm_do::fence::{FenceConfig, FenceKind};
use llm_do::providers::HttpClient;
use llm_do_launch::config::Config;
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::python::PythonPlan;
use llm_do_launch::settings::Settings;
use llm_do_launch::{fencing, providers};
use serde::Serialize;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::commands::models;
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::{FAILED, Failure};
use crate::{console, json, plan, remedy};

/// What was looked at, what was found, and whether it is as it should be.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct DoctorFinding {
    subject: &'static str,
    state: FindingState,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FindingState {
    Ok,
    /// Something that a user may want to know: nothing is wrong.
    Note,
    Wrong,
}

impl DoctorFinding {
    fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        Self { subject, state: FindingState::Ok, found: found.into(), hint: None }
    }

    fn note(subject: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { state: FindingState::Note, hint: Some(hint.into()), ..Self::ok(subject, found) }
    }

    fn wrong(subject: &'static str, found: impl Into<String>, hint: Option<String>) -> Self {
        Self { state: FindingState::Wrong, hint, ..Self::ok(subject, found) }
    }

    fn failed(subject: &'static str, failure: &Failure) -> Self {
        let (fact, hint) = failure.words();
        Self::wrong(subject, fact, hint)
    }
}

pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let findings = findings(&environment, args.online);
    let is_wrong = findings.iter().any(|finding| finding.state == FindingState::Wrong);
    let shown = if args.json { json::lines(&json!({"ok": !is_wrong, "findings": findings})) } else { text(&findings) };
    console::print(&shown)?;
    if is_wrong { Err(Failure::Said { code: FAILED }) } else { Ok(()) }
}

fn text(findings: &[DoctorFinding]) -> String {
    let mut text = String::new();
    for DoctorFinding { subject, state, found, hint } in findings {
        let state = match state {
            FindingState::Ok => "ok",
            FindingState::Note => "note",
            FindingState::Wrong => "wrong",
        };
        let found = found.lines().map(visible).collect::<Vec<_>>().join("\n                 ");
        writeln!(text, "{state:<6}{subject:<9}  {found}").expect("a text takes all");
        if let Some(hint) = hint {
            writeln!(text, "                 {}", visible(hint)).expect("a text takes all");
        }
    }
    text
}

/// In the order in which a run needs them.
fn findings(environment: &Environment, online: bool) -> Vec<DoctorFinding> {
    let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let mut found = vec![DoctorFinding::ok("program", format!("llm-do {}, {program}", env!("CARGO_PKG_VERSION")))];
    let file = environment.config_file();
    let config = Config::load(file.as_deref());
    found.push(match (&file, &config) {
        (None, _) => DoctorFinding::note("config", "there is no place for it", "set `HOME` or `LLM_DO_HOME`"),
        (Some(file), Ok(_)) if file.exists() => DoctorFinding::ok("config", file.display().to_string()),
        (Some(file), Ok(_)) => {
            DoctorFinding::ok("config", format!("{}, not there: everything is as usual", file.display()))
        }
        (Some(_), Err(error)) => DoctorFinding::wrong("config", error.fact(), error.remedy().map(remedy::words)),
    });
    // With a configuration that cannot be read, all else is looked at as if there were none.
    let config = config.unwrap_or_default();
    found.push(keys(environment, &config));
    found.push(model(environment, &config));
    found.push(store(environment));
    found.push(fence(environment, &config));
    found.push(python(environment, &config));
    found.push(terminal(environment));
    if online {
        found.extend(reached(environment, &config));
    }
    found
}

fn keys(environment: &Environment, config: &Config) -> DoctorFinding {
    let set = models::keys_set(environment, config);
    if set.is_empty() {
        let hint = format!("set one such as ANTHROPIC_API_KEY, or run Ollama; without any: {}", remedy::DEMO);
        return DoctorFinding::note("keys", "none is set", hint);
    }
    DoctorFinding::ok("keys", set.join(", "))
}

fn model(environment: &Environment, config: &Config) -> DoctorFinding {
    let choices = plan::models(&crate::args::ModelArgs::default(), environment, config);
    match choices.map(|choices| choices.fallbacks.into_iter().next()) {
        Ok(Some(chosen)) => {
            let models = std::iter::once(&chosen.model).chain(&chosen.others).map(ToString::to_string);
            let models = models.collect::<Vec<_>>().join(", then ");
            DoctorFinding::ok("model", format!("{models} (from {})", chosen.label))
        }
        Ok(None) => {
            DoctorFinding::note("model", "none is chosen for agents that name none", "`llm-do models --use NAME`")
        }
        Err(failure) => DoctorFinding::failed("model", &failure),
    }
}

fn store(environment: &Environment) -> DoctorFinding {
    // Its own notes would say the same in other words.
    let settings = Settings::load(environment.variables.clone(), Arc::new(|_| {}));
    let state = match &settings {
        Ok(settings) => &settings.state,
        Err(error) => return DoctorFinding::wrong("store", format!("not looked at: {}", error.fact()), None),
    };
    let Some(directory) = state.directory() else {
        return DoctorFinding::note("store", "no run is kept: there is no place for it", "set `HOME` or `LLM_DO_HOME`");
    };
    let shown = directory.display();
    match state.runs_so_far() {
        Ok(None) => DoctorFinding::ok("store", format!("{shown}, no runs yet")),
        Ok(Some(store)) => match store.listed(&project_of) {
            Ok(text) => DoctorFinding::ok("store", format!("{shown}, {} runs", text.newest().count())),
            Err(error) => DoctorFinding::wrong("store", format!("{shown}: {error}"), None),
        },
        Err(error) => DoctorFinding::wrong("store", error.fact(), error.remedy().map(remedy::words)),
    }
}

fn fence(environment: &Environment, config: &Config) -> DoctorFinding {
    match fencing::config(None, &environment.variables, config, remedy::WORDING) {
        Err(error) => DoctorFinding::wrong("fence", error.fact(), error.remedy().map(remedy::words)),
        Ok(config) => {
            let fence = config.fence();
            match &fence.kind {
                FenceKind::Full { .. } => DoctorFinding::ok("fence", fence.words()),
                FenceKind::Thin { .. } | FenceKind::None { .. } => DoctorFinding::note(
                    "fence",
                    fence.words(),
                    "configured shells ask where they would allow; docs/shell.md says why",
                ),
            }
        }
    }
}

/// The interpreter that a project in this directory would get, and whether it starts.
fn python(environment: &Environment, config: &Config) -> DoctorFinding {
    const NEEDED: &str = "only projects with Python files need it";
    let plan = PythonPlan::of(None, &environment.variables, config);
    let python = plan.python(Path::new("."), None, &FenceConfig::default(), &WorkingDirectory::of_process());
    let program = python.program.display().to_string();
    let code = "import sys; print(sys.version.split()[0], sys.executable)";
    let mut command = Command::new(&python.program);
    command.args(["-I", "-S", "-c", code]).stdin(Stdio::null()).stderr(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => {
            DoctorFinding::ok("python", String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => DoctorFinding::note("python", format!("{program} ended with {}", output.status), NEEDED),
        Err(error) => DoctorFinding::note("python", format!("{program} cannot be started: {error}"), NEEDED),
    }
}

fn terminal(environment: &Environment) -> DoctorFinding {
    let term = environment.get("TERM").unwrap_or("none");
    if !environment.can_ask {
        return DoctorFinding::note(
            "terminal",
            format!("TERM is {term}"),
            "nobody can be asked here: questions end a run with 4",
        );
    }
    let columns = console::columns().map(|columns| format!(", {columns} columns")).unwrap_or_default();
    let colours = if environment.colours_stderr() { "colours" } else { "no colours" };
    DoctorFinding::ok("terminal", format!("{term}{columns}, {colours}"))
}

/// Whether the providers whose keys are set answer at all. No key is sent.
fn reached(environment: &Environment, config: &Config) -> Vec<DoctorFinding> {
    const LONGEST: Duration = Duration::from_secs(10);
    let client = providers::http_settings(&environment.variables, &config.http)
        .map_err(|error| error.fact())
        .and_then(|settings| HttpClient::new(settings).map_err(|error| error.to_string()));
    let (client, executor) = match (client, executor()) {
        (Ok(client), Ok(executor)) => (client, executor),
        (Err(error), _) => return vec![DoctorFinding::wrong("online", error, None)],
        (_, Err(failure)) => return vec![DoctorFinding::failed("online", &failure)],
    };
    let asked = |(name, address): (String, String)| {
        let started = Instant::now();
        let answered =
            executor.block_on(async { tokio::time::timeout(LONGEST, client.get(&address, 1024 * 1024)).await });
        let took = started.elapsed().as_secs_f64();
        match answered {
            Ok(Ok((status, _))) => {
                DoctorFinding::ok("online", format!("{name} answers ({status}) in {took:.1} s, without a key"))
            }
            // A longer answer is one all the same.
            Ok(Err(error)) if error.contains("is larger than") => {
                DoctorFinding::ok("online", format!("{name} answers"))
            }
            Ok(Err(error)) => DoctorFinding::wrong("online", format!("{name}: {error}"), None),
            Err(_) => DoctorFinding::wrong("online", format!("{name}: no answer within 10 seconds"), None),
        }
    };
    models::addresses(environment, config).into_iter().map(asked).collect()
}
