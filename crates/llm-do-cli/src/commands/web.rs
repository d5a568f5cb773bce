//! `llm-do web`: a page on this machine, and HTTP for programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use llm_do::files::{FileAccess, replace_path};
use llm_do::{WorkingDirectory, process};
use llm_do_launch::open_run::project_at;
use llm_do_launch::record::LaunchOverrides;
use llm_do_launch::settings::Settings;
use llm_do_web::guard::{ConnectionBounds, KeyKind, TlsFiles};
use llm_do_web::{WebPlan, WebServer};
use tokio_util::sync::CancellationToken;

use crate::args::{ConductArgs, WebArgs};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::trust::{self, Answerers};
use crate::{console, plan, remedy};

pub fn run(args: WebArgs) -> Result<(), Failure> {
    let environment = Environment::read().on(&args.engine);
    let settings = Arc::new(environment.settings()?);
    let opens = !args.no_open && environment.stdout_is_terminal;
    let plan = planned(args, &environment, &settings)?;
    let executor = executor()?;
    let served = process::with_room(|| executor.block_on(serve(plan, opens, &environment)));
    executor.shutdown_background();
    served
}

fn planned(args: WebArgs, environment: &Environment, settings: &Arc<Settings>) -> Result<WebPlan, Failure> {
    let directory = WorkingDirectory::of_process();
    let mut overrides: LaunchOverrides = plan::overrides(&ConductArgs::default(), &directory, environment, settings)?;
    // Its questions are answered in the page.
    overrides.policy.is_attended = true;
    // What goes on here goes on for whoever asks, and not for whoever started the server.
    overrides.trace_parent = None;
    let here = || project_at(Path::new(".")).map(|_| PathBuf::from(".")).into_iter().collect();
    Ok(WebPlan {
        settings: Arc::clone(settings),
        overrides,
        // What begins here would not be at the engine.
        projects: match &environment.engine {
            Some(_) if !args.projects.is_empty() => {
                return Err(Failure::usage("the page starts no work at an engine").hint("leave the projects out"));
            }
            Some(_) => Vec::new(),
            None if args.projects.is_empty() => here(),
            None => args.projects,
        },
        consent: environment.consent()?,
        wording: remedy::WORDING,
        listen: args.listen,
        public_url: args.public_url,
        tls: args.tls_cert.zip(args.tls_key).map(|(certificate, key)| TlsFiles { certificate, key }),
        is_behind_proxy: args.behind_proxy,
        is_read_only: args.read_only,
        has_new_keys: args.new_keys,
        bounds: ConnectionBounds::default(),
    })
}

/// Serves until a signal comes.
async fn serve(plan: WebPlan, opens: bool, environment: &Environment) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    for project in &plan.projects {
        check_trust(project, &plan).await?;
    }
    let is_read_only = plan.is_read_only;
    let server = Box::pin(WebServer::open(plan)).await?;
    console::print(&format!("{}\n", server.url_with_key()))?;
    console::delivered()?;
    let (look, ask) = (server.key_file(KeyKind::Look), server.key_file(KeyKind::Ask));
    console::complain(&if is_read_only {
        format!("this server only shows, to whoever has the key in {}\n", look.display())
    } else {
        format!("other keys: {} (looks only), {} (for chat clients at /v1)\n", look.display(), ask.display())
    });
    if opens {
        open_browser(&server, environment);
    }
    let end = CancellationToken::new();
    let serving = server.run(end.clone());
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => Ok(()),
        signal = signals.next() => {
            end.cancel();
            tokio::select! {
                () = &mut serving => {}
                _ = signals.next() => {}
            }
            Err(signal.stops().failure())
        }
    }
}

/// Nobody is asked here: what is not trusted yet is shown, with the command that trusts it.
async fn check_trust(project: &Path, plan: &WebPlan) -> Result<(), Failure> {
    let launch = llm_do_launch::launch::Launch {
        project: project.to_owned(),
        fence: plan.overrides.fence.clone(),
        python: plan.overrides.python.clone(),
        ..plan::launch(plan.overrides.models.clone())
    };
    // Its mistakes are shown in the page.
    let Ok(surveyed) = launch.survey(&plan.settings) else { return Ok(()) };
    let answerers = Answerers { flag: None, once: plan.consent.clone(), person: false };
    let shown = project.display().to_string();
    let hint = || format!("`llm-do check {} --trust` trusts it as it is now", llm_do::escape::visible(&shown));
    trust::settle(surveyed, &answerers).await.map(drop).map_err(|failure| match failure.code() {
        4 => failure.hint(hint()),
        _ => failure,
    })
}

/// A browser is given a file of the user's own which leads to the page: others can read what programs are started with, and
/// would read the key there.
fn open_browser(server: &WebServer, environment: &Environment) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let has_screen = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|variable| environment.get(variable).is_some());
    if !has_screen {
        return;
    }
    let file = server.key_file(KeyKind::All).with_file_name("open.html");
    let page = format!(
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url={0}\"><a href=\"{0}\">llm-do</a>\n",
        server.url_with_key()
    );
    let written = replace_path(&file, page.as_bytes(), FileAccess::Private);
    let quiet =
        || Command::new(opener).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if written.is_err() || quiet().is_err() {
        console::complain("note: no browser can be opened here; open the address above in one\n");
    }
}
