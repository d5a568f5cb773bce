//! `llm-do engine-worker`: projects served to a durable engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use llm_do::escape::visible;
use llm_do::process;
use llm_do::{Project, WorkingDirectory};
use llm_do_launch::budgets;
use llm_do_launch::launch::Launch;
use llm_do_launch::providers::http_settings;
use llm_do_launch::settings::Settings;
use llm_do_restate::client;
use llm_do_restate::identity::IdentityKey;
use llm_do_restate::worker::{DeployedProject, EngineWorker, WorkerPlan};
use tokio_util::sync::CancellationToken;

use crate::args::{ConductArgs, EngineWorkerArgs};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::trust::{self, Answerers};
use crate::{console, engine, plan};

const OPEN: &str = "warning: this worker serves whoever reaches it, without the engine's signature (--insecure)\n";

pub fn run(args: &EngineWorkerArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.own_settings()?);
    let executor = executor()?;
    let served = process::with_room(|| executor.block_on(serve(args, &environment, &settings)));
    executor.shutdown_background();
    served
}

async fn serve(args: &EngineWorkerArgs, environment: &Environment, settings: &Arc<Settings>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let plan = Box::pin(planned(args, environment, settings)).await?;
    let projects: Vec<(String, String)> =
        plan.projects.iter().map(|project| (project.name.clone(), project.program.clone())).collect();
    if args.insecure {
        console::complain(OPEN);
    }
    let listen = args.listen;
    let worker = EngineWorker::open(plan).map_err(|error| {
        Failure::usage(format!("the worker cannot listen at {listen}: {error}"))
            .hint("choose another address: `--listen`")
    })?;
    let address = worker.address().map_err(|error| Failure::failed(error.to_string()))?;
    let drain = CancellationToken::new();
    let serving = tokio::spawn(worker.serve(drain.clone(), Duration::from_secs(args.drain)));
    let versions = match &args.admin {
        Some(admin) => {
            let own = args.public_url.clone().unwrap_or_else(|| format!("http://{address}"));
            let http = http_settings(&settings.variables, &settings.config.http)?;
            client::register(admin, &own, http).await.map_err(engine::failure)?.versions
        }
        None => Vec::new(),
    };
    for (name, program) in &projects {
        let version = versions.iter().find(|(served, _)| served == name);
        let registered = version.map(|(_, version)| format!(", registered as version {version}")).unwrap_or_default();
        let short: String = program.chars().take(8).collect();
        console::print(&format!("serving {name} (program {short}) at {address}{registered}\n"))?;
    }
    console::delivered()?;
    signals.next().await;
    console::complain("no new attempt begins here; those that go on may come to their end\n");
    drain.cancel();
    tokio::select! {
        _ = serving => {}
        again = signals.next() => return Err(again.stops().failure()),
    }
    if args.insecure {
        console::complain(OPEN);
    }
    Ok(())
}

async fn planned(
    args: &EngineWorkerArgs,
    environment: &Environment,
    settings: &Arc<Settings>,
) -> Result<WorkerPlan, Failure> {
    let key = engine::key(settings)?;
    let identity = args.identity_key.as_deref().map(|text| {
        IdentityKey::parse(text).ok_or_else(|| {
            Failure::usage("`--identity-key` is no public key of an engine")
                .hint("the engine prints it when it starts: `publickeyv1_…`")
        })
    });
    let directory = WorkingDirectory::of_process();
    let conduct = ConductArgs { models: args.models.clone(), ..ConductArgs::default() };
    let mut overrides = plan::overrides(&conduct, &directory, environment, settings)?;
    overrides.policy.is_attended = false;
    // Runs of this worker share what its user may spend.
    budgets::book(settings)?;
    let mut projects = Vec::new();
    for path in &args.projects {
        let launch = Launch {
            project: path.clone(),
            fence: overrides.fence.clone(),
            python: overrides.python.clone(),
            ..plan::launch(overrides.models.clone())
        };
        projects.push(Box::pin(served(path, launch, args.trust, environment, settings)).await?);
    }
    let names: std::collections::BTreeSet<&str> = projects.iter().map(|project| project.name.as_str()).collect();
    if names.len() < projects.len() {
        return Err(Failure::usage("two projects have the same name").hint("a project is called as its directory is"));
    }
    Ok(WorkerPlan {
        settings: Arc::clone(settings),
        overrides,
        projects,
        key,
        identity: identity.transpose()?,
        listen: args.listen,
        concurrency: usize::from(args.concurrency),
        blobs: args.blobs.clone(),
    })
}

/// A project that is trusted and has no mistakes; nobody is asked later.
async fn served(
    path: &Path,
    launch: Launch,
    is_trusted: bool,
    environment: &Environment,
    settings: &Arc<Settings>,
) -> Result<DeployedProject, Failure> {
    let shown = path.display().to_string();
    if !path.exists() {
        return Err(Failure::usage(format!("no such project: `{}`", visible(&shown))));
    }
    let name = engine::name_of(path)?;
    let directory = launch.directory.clone();
    let files = Project::load_from(path, &directory).map_err(llm_do_launch::error::LaunchError::Project)?.fingerprint();
    let surveyed = launch.survey(settings)?;
    let agreed = surveyed.trust_items();
    let flag = is_trusted.then_some(llm_do_launch::trust::Consent::Everything);
    let answerers = Answerers { flag, once: environment.consent()?, person: environment.can_ask };
    let trusted = trust::settle(surveyed, &answerers).await?;
    let linked = Box::pin(trusted.link()).await?;
    linked.check_keys()?;
    let program = engine::program_of(&files);
    Ok(DeployedProject { name, path: path.to_owned(), directory, agreed, files, program })
}
