//! The runs of a durable engine, as commands see them: a store that follows it, and runs that begin and go on there.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use llm_do::RawJson;
use llm_do::approval::short_id;
use llm_do::escape::visible;
use llm_do::records::{self, RunKind, StateKey, run_id};
use llm_do::store::index::RunState;
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do_launch::launch::Launch;
use llm_do_launch::providers::http_settings;
use llm_do_launch::record::LaunchRecord;
use llm_do_launch::settings::Settings;
use llm_do_launch::state::{ENGINE_KEY_VARIABLE, StateDirectory};
use llm_do_launch::stored_runs::waiting;
use llm_do_restate::client::{EngineClient, EngineError, StartTaken};
use llm_do_restate::mirror::Mirror;
use llm_do_restate::words::{Mail, Start, WordLimits};
use llm_do_restate::worker::EngineRow;

use crate::args::{ConductArgs, EngineArgs, ResumeArgs, RunArgs};
use crate::commands::resume::Decisions;
use crate::commands::runs::{NamedRun, follow};
use crate::console;
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::plan::{self, RunPlan, TalkPlan};
use crate::report::{RunReport, not_begun, pending_text};
use crate::signals::{Signals, StopSignal};
use crate::talk::{InputReader, Talk};

/// So long an answer of a worker is waited for before that is said.
const PATIENCE: Duration = Duration::from_secs(5);

/// The store that follows the engine of this command, from when it is first looked at until the command ends.
static MIRROR: Mutex<Option<Mirror>> = Mutex::new(None);

/// What was written for the engine reaches it, however the command ended.
pub fn finished(ended: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    let mirror = MIRROR.lock().unwrap_or_else(PoisonError::into_inner).take();
    let told = mirror.map_or(Ok(()), |mirror| mirror.finish().map_err(failure));
    ended.and_then(|code| told.map(|()| code))
}

/// Whether a command speaks to the runs of an engine.
pub fn is_meant(args: &EngineArgs) -> bool {
    Environment::has_engine(args)
}

/// The key of those who may start runs and answer them.
pub fn key(settings: &Settings) -> Result<StateKey, Failure> {
    let missing = || {
        Failure::provider(format!("{ENGINE_KEY_VARIABLE} is not set")).hint(
            "it is the key of those who may start runs and answer them: 64 hex digits, the same as that of the workers",
        )
    };
    let text = settings.variables.get(ENGINE_KEY_VARIABLE).ok_or_else(missing)?;
    StateKey::from_hex(text).ok_or_else(|| {
        Failure::usage(format!("{ENGINE_KEY_VARIABLE} is no key"))
            .hint("a key has 64 hex digits: `llm-do runs key` prints one")
    })
}

/// What went wrong at an engine, and what can be done about it.
pub fn failure(error: EngineError) -> Failure {
    let text = visible(&error.to_string()).into_owned();
    match error {
        EngineError::Address(_) => Failure::usage(text).hint("write `restate://HOST:PORT`, or `restates://` with TLS"),
        EngineError::Unreachable { .. } => Failure::provider(text).hint("start it, or name another one with `--on`"),
        EngineError::NoIngress { .. } => {
            Failure::provider(text).hint("name its ingress, port 8080 unless it was told otherwise, with `--on`")
        }
        EngineError::Unregistered { .. } => Failure::provider(text).hint(
            "`--restate` names the engine's admin address, http://127.0.0.1:9070 unless it was told otherwise; \
             `--identity-key` is the engine's own public key",
        ),
        EngineError::Unserved(_) | EngineError::Unused => Failure::usage(text)
            .hint("`llm-do engine-worker PROJECT --restate ADMIN_URL` serves a project and registers it"),
        EngineError::Silent(_) => Failure::provider(text).hint("start a worker that serves it"),
        EngineError::Key | EngineError::Refused(403, _) => Failure::provider(text)
            .hint(format!("{ENGINE_KEY_VARIABLE} must be the same here and where the workers run")),
        EngineError::Refused(_, why) => Failure::usage(visible(&why).into_owned()),
        EngineError::Garbled(_) => Failure::failed(text),
    }
}

fn client(url: &str, settings: &Settings) -> Result<EngineClient, Failure> {
    let http = http_settings(&settings.variables, &settings.config.http)?;
    EngineClient::new(url, PATIENCE, http).map_err(failure)
}

/// Asks again as long as no worker answers, which is said once.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, EngineError>) -> Result<T, Failure> {
    let mut is_told = false;
    loop {
        match ask() {
            Err(error @ EngineError::Silent(_)) => {
                if !std::mem::replace(&mut is_told, true) {
                    console::complain(&format!("note: {error}; still waiting\n"));
                }
            }
            answer => return answer.map_err(failure),
        }
    }
}

/// The same user's settings, whose runs are those of the engine.
pub fn mirrored(url: &str, only: Option<&str>, settings: &Settings) -> Result<Settings, Failure> {
    let key = key(settings)?;
    let client = client(url, settings)?;
    let mut mirror = MIRROR.lock().unwrap_or_else(PoisonError::into_inner);
    if mirror.is_none() {
        *mirror = Some(patiently(|| Mirror::open(client.clone(), key.clone(), only.map(str::to_owned), settings))?);
    }
    let directory = mirror.as_ref().map(Mirror::state).unwrap_or_default();
    let state = StateDirectory::at(directory, key, &settings.variables, Arc::clone(&settings.notes));
    Ok(settings.with_state(state, None))
}

/// What a project is called at an engine: its directory.
pub fn name_of(project: &Path) -> Result<String, Failure> {
    let found = project.canonicalize().ok();
    let directory = found.as_deref().map(|path| if path.is_file() { path.parent().unwrap_or(path) } else { path });
    let name = directory.unwrap_or(project).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if is_name {
        return Ok(name.to_owned());
    }
    Err(Failure::usage(format!("`{}` is no name that an engine takes", visible(&project.display().to_string())))
        .hint("the name of a project's directory begins with a letter and has letters, digits, `-`, `_` and `.`"))
}

/// A digest of the files of a project: what a version is told by.
pub fn program_of(files: &llm_do::trust::Fingerprint) -> String {
    let whole = records::digest([RawJson::of(files).get()]);
    whole.chars().take(16).collect()
}

/// `run --on`: begins a run at the engine, and follows it.
pub fn run(args: RunArgs) -> Result<(), Failure> {
    let environment = &Environment::read().on(&args.engine);
    let url = &environment.engine.clone().unwrap_or_default();
    let (format, conduct, detaches) = (plan::run_format(&args), args.conduct.clone(), args.detach);
    let run = begun(args, url, environment).map_err(|failure| not_begun(failure, format))?;
    if detaches {
        return console::print(&format!("{run}\n"));
    }
    attend(&run, url, &conduct, environment)
}

fn begun(args: RunArgs, url: &str, environment: &Environment) -> Result<RunId, Failure> {
    let (any_version, detaches) = (args.any_version, args.detach);
    let args = RunArgs { any_version: false, detach: false, ..args };
    let settings = Arc::new(environment.own_settings()?);
    let key = key(&settings)?;
    check(&args)?;
    let name = name_of(&args.project)?;
    let label = args.label.clone();
    let RunPlan { launch, conduct } = plan::run(args, environment, &settings)?;
    let client = client(url, &settings)?;
    let executor = executor()?;
    let about = patiently(|| executor.block_on(client.about(&name)))?;
    let program = if any_version { None } else { same_program(&launch, &about.program, &name)? };
    let talk = match conduct.talk {
        TalkPlan::Once(input) => TalkPlan::Once(input),
        TalkPlan::Chat { .. } => return Err(unsupported("a chat")),
    };
    let Talk::Once(input) = InputReader::unseen(talk, conduct.files).talk()? else { return Err(unsupported("a chat")) };
    let flags = LaunchRecord::of(&launch);
    let run = started(&executor, &client, &key, &name, &|| Start {
        program: program.clone(),
        kind: RunKind::Run,
        flags: flags.clone(),
        input: Some(input.clone()),
        label: label.clone(),
        nonce: StateKey::new_hex().unwrap_or_default(),
        by: settings.variables.user(),
        at: now(),
    })?;
    if detaches {
        return Ok(run);
    }
    let environment = environment.clone().on_run(run.as_str());
    environment.settings()?;
    expect(run, name.clone());
    executor.block_on(appears(&run, &name, &client, &environment))?;
    executor.shutdown_background();
    Ok(run)
}

fn expect(run: RunId, project: String) {
    if let Some(mirror) = &*MIRROR.lock().unwrap_or_else(PoisonError::into_inner) {
        mirror.expect(run, project);
    }
}

/// Starts a run under a new name. One that is taken is somebody else's.
fn started(
    executor: &tokio::runtime::Runtime,
    client: &EngineClient,
    key: &StateKey,
    name: &str,
    start: &dyn Fn() -> Start,
) -> Result<RunId, Failure> {
    const MOST_ATTEMPTS: usize = 10;
    for _ in 0..MOST_ATTEMPTS {
        let Some(id) = RunId::parse(&run_id()) else { continue };
        let start = start();
        if patiently(|| executor.block_on(client.start(name, id.as_str(), &start, key)))? == StartTaken::New {
            // Whoever is told its name finds it, also before a worker has taken it up.
            let row = EngineRow::started(id.as_str(), name, start.at);
            patiently(|| executor.block_on(client.put(&row)))?;
            return Ok(id);
        }
    }
    Err(Failure::failed("the engine has runs under all names that were tried"))
}

/// What only makes sense where the project is.
fn check(args: &RunArgs) -> Result<(), Failure> {
    let wrong = [
        (args.chat || args.continued.is_some(), "a chat"),
        (args.dry_run, "`--dry-run`"),
        (args.journal.is_some() || args.replay.is_some(), "a journal of its own"),
        (args.once.is_some(), "`--once`"),
        (args.ephemeral, "`--ephemeral`"),
        (args.python.is_some(), "`--python`"),
        (args.conduct.approve_all, "`--approve-all`"),
    ];
    wrong.iter().find(|(is_wanted, _)| *is_wanted).map_or(Ok(()), |(_, what)| Err(unsupported(what)))
}

fn unsupported(what: &str) -> Failure {
    Failure::usage(format!("{what} is not possible at an engine"))
        .hint("leave it out, or run the project here: without `--on`")
}

/// The program that is here, if there is one: it must be the one that is deployed.
fn same_program(launch: &Launch, deployed: &str, name: &str) -> Result<Option<String>, Failure> {
    if !launch.project_path().exists() {
        return Ok(None);
    }
    let surveyed = llm_do::Project::load_from(&launch.project, &launch.directory);
    let files = surveyed.map_err(llm_do_launch::error::LaunchError::Project)?.fingerprint();
    let here = program_of(&files);
    if here == deployed {
        return Ok(Some(here));
    }
    let short = |digest: &str| digest.chars().take(8).collect::<String>();
    Err(Failure::usage(format!(
        "the project here is another one than `{name}` as it is deployed ({} here, {} there)",
        short(&here),
        short(deployed)
    ))
    .hint("deploy this one, or take what is deployed with `--any-version`"))
}

/// Until the engine has something of a run that was started.
async fn appears(run: &RunId, name: &str, client: &EngineClient, environment: &Environment) -> Result<(), Failure> {
    const LOOK: Duration = Duration::from_millis(50);
    let settings = environment.settings()?;
    let Some(store) = settings.state.runs_so_far()? else { return Ok(()) };
    let (began, mut is_told, mut signals) = (Instant::now(), false, Signals::listen()?);
    while store.read_journal(run).is_err() {
        if began.elapsed() > Duration::from_millis(500) {
            client.output(name, run.as_str()).await.map_err(failure)?;
        }
        if began.elapsed() > PATIENCE && !std::mem::replace(&mut is_told, true) {
            console::complain(&format!("note: no worker has taken up the run {run} yet; still waiting\n"));
        }
        tokio::select! {
            signal = signals.next() => return Err(signal.stops().failure()),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    Ok(())
}

/// Follows a run until it ends or waits for somebody, and reports that as if it had run here.
fn attend(run: &RunId, url: &str, conduct: &ConductArgs, environment: &Environment) -> Result<(), Failure> {
    let format = plan::output_format(conduct);
    let settings = environment.settings()?;
    let named = NamedRun::find(run.as_str(), &settings)?;
    let mut output = plan::output(conduct, environment);
    output.view.streamed = false;
    let executor = executor()?;
    let followed = executor.block_on(follow::until_it_ends(named.store(), run, &mut |_| Ok(())));
    let contents = match followed {
        Err(failure) if failure.code() == crate::failure::INTERRUPTED => {
            return Err(detached(&executor, named.store(), run, url, failure));
        }
        contents => contents?,
    };
    executor.shutdown_background();
    if let Some(outcome) = records::outcome(&contents) {
        return RunReport::recorded(outcome, run.to_string()).report(&output);
    }
    let pending = waiting(&contents, run.as_str());
    console::complain(&pending_text(&pending));
    let hint = match pending.first() {
        Some(first) => {
            let id = short_id(&first.id);
            format!("`llm-do inbox approve {id} --on {url}` allows it and the run goes on")
        }
        None => format!("`llm-do runs show {run} --on {url}` says more"),
    };
    follow::exit(run, &contents).map_err(|failure| not_begun(failure.hint(hint), format))
}

/// Ctrl-C leaves the run alone; a second one ends it.
fn detached(executor: &tokio::runtime::Runtime, store: &RunStore, run: &RunId, url: &str, failure: Failure) -> Failure {
    const AGAIN: Duration = Duration::from_secs(2);
    console::complain(&format!("the run goes on: `llm-do runs follow {run} --on {url}`; Ctrl-C again cancels it\n"));
    let again = executor.block_on(async {
        let mut signals = Signals::listen().ok()?;
        tokio::time::timeout(AGAIN, signals.next()).await.ok()
    });
    if again == Some(StopSignal::Interrupt) && store.request_cancel(run).is_ok() {
        return Failure::cancelled();
    }
    failure
}

/// `resume --on`: answers what was decided, and lets a run go on that was stopped.
pub fn resume(args: &ResumeArgs) -> Result<(), Failure> {
    let environment = &Environment::read().on(&args.engine);
    let url = &environment.engine.clone().unwrap_or_default();
    if args.show {
        return Err(unsupported("`--show`").hint(format!("`llm-do runs show RUN --on {url}` shows it")));
    }
    let Some(typed) = args.run.as_deref().and_then(Path::to_str) else {
        return Err(
            Failure::usage("which run of the engine is meant?").hint(format!("`llm-do runs --on {url}` lists them"))
        );
    };
    let environment = &environment.clone().on_run(typed);
    let settings = environment.settings()?;
    let found = crate::commands::runs::found(typed, &settings)?;
    let run = *found.id();
    let contents = NamedRun::find(run.as_str(), &settings)?.contents()?;
    let decisions = Decisions::of(args, &waiting(&contents, run.as_str()))?;
    let answers = llm_do::store::desk::RunAnswers::of(found.store.clone(), run);
    decisions.keep(&answers, &environment.user())?;
    if found.line.state == RunState::Stopped {
        let limits = WordLimits { requests: args.conduct.max_requests, usd: args.conduct.max_cost_usd };
        let (client, key) = (client(url, &settings)?, key(&settings)?);
        let executor = executor()?;
        let word = Mail::GoOn { limits, at: now() };
        let project = project_of(&run).unwrap_or_default();
        patiently(|| executor.block_on(client.say(&project, run.as_str(), &word, &key)))?;
        executor.block_on(is_taken_up(&found.store, &run));
    } else if found.line.state == RunState::Waits && decisions.answers(&waiting(&contents, run.as_str())) {
        let executor = executor()?;
        executor.block_on(is_taken_up(&found.store, &run));
    }
    attend(&run, url, &args.conduct, environment)
}

/// Looks for a run again as long as it was only started, and no worker has written a line of it.
pub fn once_begun<T, E>(typed: &str, mut find: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    const LOOK: Duration = Duration::from_millis(50);
    let (began, mut is_told) = (Instant::now(), false);
    loop {
        let awaits = MIRROR.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|it| it.awaits(typed));
        match find() {
            Err(_) if awaits => {}
            found => return found,
        }
        if began.elapsed() > PATIENCE && !std::mem::replace(&mut is_told, true) {
            console::complain(&format!("note: no worker has taken up the run {typed} yet; still waiting\n"));
        }
        std::thread::sleep(LOOK);
    }
}

fn project_of(run: &RunId) -> Option<String> {
    MIRROR.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|mirror| mirror.project(run))
}

/// Until a worker has it, or for a moment: it may have come to its end before anybody saw that.
async fn is_taken_up(store: &RunStore, run: &RunId) {
    let length = || std::fs::metadata(store.layout().journal(run)).map_or(0, |found| found.len());
    let (began, before) = (Instant::now(), length());
    while began.elapsed() < PATIENCE && length() == before {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
