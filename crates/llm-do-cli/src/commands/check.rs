//! `llm-do check`: a project as far as it can be known, without a run.

use llm_do::created::CreatedAgents;
use llm_do::diagnostics::Colour;
use llm_do::events::Events;
use llm_do::fence::FenceConfig;
use llm_do::providers::HttpSettings;
use llm_do::runs::{ChildEnvironment, McpHome};
use llm_do::toolsets::{McpConfig, McpOffer};
use llm_do::trust::TrustedProject;
use llm_do::{EventKind, Listen, Program, Project, Report, WorkingDirectory, toolsets};
use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do_launch::settings::Settings;
use llm_do_launch::{fencing, logins, providers};

use crate::args::CheckArgs;
use crate::commands::check_report::{self, CheckedTests, ProjectCheck, ShellGround};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::{Failure, USAGE};
use crate::plan::{self, CheckFormat, CheckPlan};
use crate::terminal::style::Styles;
use crate::{console, remedy, terminal::trust};

pub fn run(args: CheckArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.settings()?);
    let plan = plan::check(args, &environment, &settings)?;
    let view = CheckView::of(&plan);
    let checked = checked(plan, &settings).map_err(|failure| view.failure(failure))?;
    let checked = with_created(checked, &settings)?;
    let checked = view.judged(checked)?;
    view.show(&checked)?;
    let ended = usable(&checked.servers);
    // The process ends with this command: freeing thousands of agents piece by piece would only delay that.
    std::mem::forget(checked.linked.program.agents);
    ended
}

/// How the result is shown, and what of the launch that needs.
struct CheckView {
    project: PathBuf,
    format: CheckFormat,
    colour: Colour,
    styles: Styles,
    /// What was typed that decides how it runs.
    chosen: Vec<String>,
    fence: FenceConfig,
    directory: WorkingDirectory,
}

impl CheckView {
    fn of(plan: &CheckPlan) -> Self {
        let CheckPlan { launch, format, colour, styles, chosen, .. } = plan;
        let (project, fence, directory) = (launch.project.clone(), launch.fence.clone(), launch.directory.clone());
        Self { project, format: *format, colour: *colour, styles: *styles, chosen: chosen.clone(), fence, directory }
    }

    /// What was found beyond linking may be a mistake too.
    fn judged(&self, checked: ProjectCheck) -> Result<ProjectCheck, Failure> {
        if checked.inspected.iter().all(|report| report.error_count() == 0) {
            return Ok(checked);
        }
        let wrong = checked.inspected.into_iter().find(|report| report.error_count() > 0);
        let report = wrong.expect("one has errors").worded(remedy::WORDING);
        Err(self.failure(Failure::Project { report, colour: self.colour }))
    }

    /// A program that reads JSON gets the mistakes of the project as JSON.
    fn failure(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Project { report, .. } if self.format == CheckFormat::Json => {
                let printed = console::print(&check_report::json_errors(&self.project, &report));
                printed.err().unwrap_or(Failure::Said { code: USAGE })
            }
            failure => failure.coloured(self.colour),
        }
    }

    fn show(&self, checked: &ProjectCheck) -> Result<(), Failure> {
        let program = &checked.linked.program;
        let ground = || shell_ground(program, &self.fence, &self.directory);
        match self.format {
            CheckFormat::Text => {
                console::print(&check_report::text(&self.project, checked, ground().as_ref(), self.styles))?;
                let said: String = checked.reports().map(|report| report.render(self.colour)).collect();
                if !said.is_empty() {
                    // Below what is shown, and above how it ends.
                    console::settle();
                    console::complain(&said);
                    console::complain(&check_report::warnings_line(checked));
                    console::settle();
                }
                if usable(&checked.servers).is_err() {
                    return Ok(());
                }
                console::print(&check_report::ending(&self.project, &self.chosen, checked, self.styles))
            }
            CheckFormat::Json => console::print(&check_report::json(&self.project, checked, ground().as_ref())),
            CheckFormat::Dot => console::print(&check_report::dot(program)),
            CheckFormat::Svg => console::print(&llm_do_web::program_svg(program)),
        }
    }
}

/// The same with the agents that earlier runs created, and with notes in the words of this program.
fn with_created(mut checked: ProjectCheck, settings: &Settings) -> Result<ProjectCheck, Failure> {
    checked.linked.notes = checked.linked.notes.worded(remedy::WORDING);
    if !checked.linked.program.generated.is_empty() {
        let store = settings.state.created_so_far()?;
        let program = &mut checked.linked.program;
        program.created = Arc::new(CreatedAgents::of(&program.root, store.as_ref()));
        program.wording = remedy::WORDING;
    }
    Ok(checked)
}

fn usable(servers: &[check_report::ConnectedServer]) -> Result<(), Failure> {
    match servers.iter().filter(|server| server.offer.tools.is_err()).count() {
        0 => Ok(()),
        1 => Err(Failure::usage("an MCP server cannot be used")),
        several => Err(Failure::usage(format!("{several} MCP servers cannot be used"))),
    }
}

/// Links a project: with what its code and its servers offer, as far as it is trusted and the user wants to know.
fn checked(plan: CheckPlan, settings: &Arc<Settings>) -> Result<ProjectCheck, Failure> {
    let CheckPlan { launch, trust: answerers, connect, .. } = plan;
    let http = providers::http_settings(&settings.variables, &settings.config.http)?;
    let fence = launch.fence.clone();
    let surveyed = launch.survey(settings)?;
    let standing = surveyed.standing(&answerers.without_prompt())?;
    let access = logins::servers(surveyed.project(), settings);
    if !standing.is_given && answerers.flag.is_none() {
        if connect {
            return Err(Failure::usage("`--connect` starts nothing of a project that is not trusted")
                .hint("`llm-do check` lists what it can do, and `--trust` trusts it"));
        }
        let residents = check_report::residents(surveyed.project(), surveyed.program(), &fence);
        let (of_tests, tests) = tests(surveyed.project(), surveyed.program());
        let inspected = vec![inspect(surveyed.project(), surveyed.program(), settings, connect), of_tests];
        let linked = surveyed.into_surveyed().into_linked();
        return Ok(ProjectCheck { linked, trust: standing, servers: Vec::new(), access, residents, inspected, tests });
    }
    let executor = executor()?;
    executor.block_on(async {
        let trusted = trust::settle(surveyed, &answerers).await?;
        let residents = check_report::residents(trusted.project(), trusted.program(), &fence);
        // What a trusted project's Python files offer is linked too; they are imported, and nothing of them is called.
        let is_python_refused = residents.iter().any(check_report::CheckedResident::is_python_refused);
        let syntax =
            if is_python_refused || !trusted.starts_python() { None } else { Some(trusted.python_syntax().await) };
        let is_python = syntax.as_ref().is_none_or(|report| report.warning_count() == 0);
        let mut trusted = if is_python_refused || !is_python { trusted } else { trusted.start_python().await? };
        let mut servers = Vec::new();
        if connect {
            let children = llm_do_launch::children::environment(&settings.variables, &settings.config);
            let home = logins::home(settings);
            servers = connected(trusted.trusted_project(), &children, &http, &fence, &home).await;
            let offered =
                servers.iter().filter_map(|server| Some((server.offer.toolset.clone(), server.declared.clone()?)));
            trusted = trusted.offering(offered.collect())?;
        }
        let inspected = vec![inspect(trusted.project(), trusted.program(), settings, connect)];
        let (of_tests, tests) = tests(trusted.project(), trusted.program());
        let inspected = inspected.into_iter().chain(syntax).chain([of_tests]).collect();
        let linked = trusted.into_linked();
        Ok(ProjectCheck { linked, trust: standing, servers, access, residents, inspected, tests })
    })
}

/// What is wrong with its cases, and who has none.
fn tests(project: &Project, program: &Program) -> (Report, CheckedTests) {
    let (report, cases, untested) = project.inspect_tests(program);
    (report, CheckedTests { cases, untested })
}

/// What is looked at beyond linking. Servers that were started have told more than where their programs are.
fn inspect(project: &Project, program: &Program, settings: &Settings, is_connected: bool) -> Report {
    let path = settings.variables.get("PATH").unwrap_or_default();
    project.inspect(program, &settings.config.prices, &|name| is_connected || is_found(name, path, &project.root))
}

/// Whether a program can be started: by its path, or by its name in one of the directories of `PATH`.
fn is_found(name: &str, path: &str, root: &Path) -> bool {
    let is_program = |file: PathBuf| {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        is_program(root.join(name))
    } else {
        env::split_paths(path).any(|at| is_program(at.join(name)))
    }
}

/// Asks the servers of a project what they offer.
async fn connected(
    trusted: &TrustedProject,
    children: &ChildEnvironment,
    http: &HttpSettings,
    fence: &FenceConfig,
    home: &McpHome,
) -> Vec<check_report::ConnectedServer> {
    let (events, mut listener) = Events::new(Listen::Facts);
    let offers = toolsets::ask(trusted, children, http, fence, home, &events).await;
    while let Ok(event) = listener.try_recv() {
        if let EventKind::Notice { text } = event.kind {
            console::complain(&format!("note: {text}\n"));
        }
    }
    let server = |(config, offer): (&McpConfig, McpOffer)| check_report::ConnectedServer {
        reached: trust::reached(&config.server),
        declared: offer.declared(config),
        offer,
    };
    trusted.project().servers().into_iter().zip(offers).map(server).collect()
}

/// The kernel is asked only if an agent runs commands.
fn shell_ground(program: &Program, fence: &FenceConfig, directory: &WorkingDirectory) -> Option<ShellGround> {
    program.agents.values().find(|agent| fencing::shells(agent).next().is_some())?;
    Some(ShellGround { directory: directory.path().unwrap_or_default(), fence: fence.fence() })
}
