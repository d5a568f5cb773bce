//! `llm-do mcp`: the MCP servers of a project, and logging in to them.

use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use llm_do::escape::visible;
use llm_do::names;
use llm_do::toolsets::{LoginFailure, McpConfig, McpServer, OpenLogin, forget_login, open_login};
use llm_do_launch::launch::TrustedLaunch;
use llm_do_launch::logins::{self, ServerAccess};
use llm_do_launch::settings::Settings;
use llm_do_launch::{children, providers};
use std::sync::Arc;

use crate::args::{McpArgs, McpCommand, McpLoginArgs, McpLogoutArgs};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::terminal::trust;
use crate::{console, json, plan};

pub fn run(args: McpArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.settings()?);
    match args.command {
        None => list(args.project.unwrap_or_else(|| PathBuf::from(".")), args.json, &environment, &settings),
        Some(McpCommand::Login(args)) => log_in(args, &environment, &settings),
        Some(McpCommand::Logout(args)) => log_out(args, &environment, &settings),
    }
}

fn list(project: PathBuf, as_json: bool, environment: &Environment, settings: &Arc<Settings>) -> Result<(), Failure> {
    let surveyed = plan::look(project, environment, settings)?.survey(settings)?;
    let servers = logins::servers(surveyed.project(), settings);
    if as_json {
        return console::print(&servers.iter().map(|server| json::line(&server.json())).collect::<String>());
    }
    if servers.is_empty() {
        console::complain("this project has no MCP servers\n");
        return Ok(());
    }
    let width = servers.iter().map(|server| server.config.name.len()).max().unwrap_or(0);
    let row = |server: &ServerAccess| {
        let reached = trust::reached(&server.config.server);
        format!("{:<width$}  {}  {}\n", server.config.name, visible(&reached), visible(&server.words()))
    };
    console::print(&servers.iter().map(row).collect::<String>())?;
    if let Some(missing) = servers.iter().find(|server| server.is_missing()) {
        console::complain(&format!("`llm-do mcp login {}` logs in\n", missing.config.name));
    }
    Ok(())
}

/// The server of a project by its name.
fn named<'a>(servers: &[&'a McpConfig], name: &str) -> Result<&'a McpConfig, Failure> {
    servers.iter().find(|config| config.name == name).copied().ok_or_else(|| {
        let instead = names::instead(name, "MCP servers", servers.iter().map(|config| config.name.as_str()));
        Failure::usage(format!("there is no MCP server `{}`", visible(name))).hint(instead)
    })
}

fn log_in(args: McpLoginArgs, environment: &Environment, settings: &Arc<Settings>) -> Result<(), Failure> {
    let McpLoginArgs { server, project, no_browser, trust: typed } = args;
    let launch = plan::look(project, environment, settings)?;
    let answerers = plan::answerers(typed.as_deref(), environment)?;
    let surveyed = launch.survey(settings)?;
    executor()?.block_on(async {
        named(&surveyed.project().servers(), &server)?;
        let trusted = trust::settle(surveyed, &answerers).await?;
        let opened = opened(&trusted, &server, no_browser, settings).await?;
        let landed = if no_browser {
            console::complain(&format!("open {}\n", visible(opened.address())));
            console::complain("and give the address where you land: ");
            Some(typed_line()?)
        } else {
            let port = opened.port().unwrap_or_default();
            console::complain(&format!("open {} (waiting on 127.0.0.1:{port}, 5 min)\n", visible(opened.address())));
            browse(opened.address(), environment);
            None
        };
        opened.finish(landed).await.map_err(|failure| failed(&failure))?;
        console::complain(&format!("logged in to `{server}`\n"));
        Ok(())
    })
}

async fn opened(
    trusted: &TrustedLaunch,
    server: &str,
    no_browser: bool,
    settings: &Settings,
) -> Result<OpenLogin, Failure> {
    let project = trusted.trusted_project();
    let servers = trusted.project().servers();
    let config = servers.iter().find(|config| config.name == server);
    let config = config.ok_or_else(|| Failure::usage("the server is no longer there"))?;
    let http = providers::http_settings(&settings.variables, &settings.config.http)?;
    let children = children::environment(&settings.variables, &settings.config);
    open_login(project, config, (&children, &http), &logins::home(settings), !no_browser)
        .await
        .map_err(|failure| failed(&failure))
}

fn failed(failure: &LoginFailure) -> Failure {
    let words = failure.to_string();
    match failure {
        LoginFailure::Needless => Failure::usage(words).hint("`\"auth\": \"oauth\"` in its definition says so"),
        LoginFailure::Unusable(_) => Failure::provider(words),
        LoginFailure::Declined(_) => Failure::refused(words),
    }
}

fn typed_line() -> Result<String, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read {
        Ok(read) if read > 0 => Ok(line),
        Ok(_) | Err(_) => Err(Failure::refused("no address was given")),
    }
}

/// Opens a page in the user's browser, if there is one; they have its address in any case.
fn browse(address: &str, environment: &Environment) {
    let named = environment.get("BROWSER").filter(|words| !words.trim().is_empty());
    let words = named.unwrap_or(if cfg!(target_os = "macos") { "open" } else { "xdg-open" });
    let mut words = words.split_whitespace();
    let Some(program) = words.next() else { return };
    let mut command = Command::new(program);
    command.args(words).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        std::thread::spawn(move || child.wait());
    }
}

fn log_out(args: McpLogoutArgs, environment: &Environment, settings: &Arc<Settings>) -> Result<(), Failure> {
    let surveyed = plan::look(args.project, environment, settings)?.survey(settings)?;
    let servers = surveyed.project().servers();
    let McpServer::Url { url, .. } = &named(&servers, &args.server)?.server else {
        return Err(failed(&LoginFailure::Needless));
    };
    let had = match settings.state.directory() {
        Some(state) => executor()?.block_on(forget_login(state, url)).map_err(Failure::failed)?,
        None => false,
    };
    let words = if had { "logged out of" } else { "nobody had logged in to" };
    console::complain(&format!("{words} `{}`\n", visible(&args.server)));
    Ok(())
}
