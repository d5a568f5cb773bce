//! The MCP servers of a session: each is started at most once, by the call that needs it first, and ends with the session.

#[cfg(feature = "front-end")]
pub mod login;
#[cfg(feature = "front-end")]
pub mod offer;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};

use super::RuntimeConfig;
use super::toolsets::ToolsetOpenError;
use crate::escape::visible_start;
use crate::event::Events;
use crate::http::{HttpClient, HttpSettings};
use crate::journal::{StepDescription, StepKind, Steps};
use crate::project::Program;
use crate::tools::fence::FenceConfig;
use crate::tools::fence::tenant::{Premises, Resident};
use crate::tools::mcp::oauth::{Login, LoginConfig};
use crate::tools::mcp::{EraMemory, McpTool, Server, ServerSpec};
use crate::tools::protected::ProtectedFiles;
use crate::tools::rpc::child::ChildEnvironment;
use crate::tools::source::{McpAuth, McpConfig, McpServer, Setting};

/// What is kept about servers from one run to the next, and what this program is called elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpHome {
    /// The user's state directory; without one nothing is kept.
    pub state: Option<PathBuf>,
    /// Where metadata of this program lie, for authorization servers that take their address as its name.
    pub client_metadata_url: Option<String>,
}

/// What is known of them before any is started.
pub(super) struct Servers {
    root: PathBuf,
    /// What the manifest passes on.
    env: Vec<String>,
    environment: ChildEnvironment,
    http: HttpSettings,
    fence: FenceConfig,
    home: McpHome,
    protected: ProtectedFiles,
    client: OnceLock<Result<HttpClient, String>>,
    events: Events,
    known: Mutex<HashMap<String, Arc<Server>>>,
}

impl Servers {
    pub(super) fn new(program: &Program, config: &RuntimeConfig, events: &Events) -> Self {
        Self::within(program, &config.children, &config.http, &config.fence, &config.mcp, events)
    }

    fn within(
        program: &Program,
        children: &ChildEnvironment,
        http: &HttpSettings,
        fence: &FenceConfig,
        home: &McpHome,
        events: &Events,
    ) -> Self {
        // A tool may think for as long as its own limit says.
        let http = HttpSettings { first_byte_timeout: Duration::MAX, idle_timeout: Duration::MAX, ..http.clone() };
        Self {
            root: program.root.clone(),
            env: program.env.clone(),
            environment: children.clone(),
            http,
            fence: fence.clone(),
            home: home.clone(),
            protected: program.protected.clone(),
            client: OnceLock::new(),
            events: events.clone(),
            known: Mutex::default(),
        }
    }

    /// The server of a toolset, started or not.
    pub(super) fn get(&self, config: &McpConfig) -> Arc<Server> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let server = known.entry(config.name.clone()).or_insert_with(|| {
            let times = (config.timeout, config.task_time);
            Arc::new(Server::new(&config.name, self.launch(config), times, self.memory(config), self.events.clone()))
        });
        Arc::clone(server)
    }

    /// What a server offers. It is recorded, so that a run that goes on starts the server when it is called, and one
    /// that is only replayed never.
    pub(super) async fn offered(
        &self,
        config: &McpConfig,
        steps: &Steps,
        events: &Events,
    ) -> Result<Vec<McpTool>, ToolsetOpenError> {
        let server = self.get(config);
        let description = || StepDescription::new(StepKind::Decide, &("offer", &config.name));
        steps
            .here(events)
            .step(description, |events| async move { server.tools(&events).await.map_err(ToolsetOpenError::from) })
            .await
    }

    /// All at the same time.
    pub(super) async fn close(&self) {
        let known: Vec<Arc<Server>> =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        join_all(known.iter().map(|server| server.close())).await;
    }

    fn launch(&self, config: &McpConfig) -> Result<ServerSpec, String> {
        match &config.server {
            McpServer::Command { command, args, env, fence } => {
                let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
                let mut variables = self.environment.with(&self.env);
                variables.extend(self.settings(env)?);
                let (program, args, directory) = (program(&root, command), args.clone(), root);
                let Some(enclosure) = fence else {
                    let launcher = self.fence.keeper.clone();
                    return Ok(ServerSpec::Command { program, args, variables, directory, launcher });
                };
                let code = scripts(&directory, std::iter::once(command).chain(&args));
                let (project, protected) = (directory.clone(), &self.protected);
                let premises = Premises { fence: &self.fence.fence(), project: &project, protected, enclosure };
                let resident = Resident { program, arguments: args, variables, directory, code, parts: Vec::new() };
                let tenant = premises.prepare(resident);
                Ok(ServerSpec::Fenced(tenant.map_err(|why| format!("is to run behind a fence, and cannot: {why}"))?))
            }
            McpServer::Url { url, headers, auth } => {
                let invalid = |_| format!("has an address that is none: `{}`", visible_start(url, 200));
                let login = auth.as_ref().map(|auth| self.login(url, auth)).transpose()?;
                let url: Uri = url.parse().map_err(invalid)?;
                let http =
                    self.client.get_or_init(|| HttpClient::new(self.http.clone()).map_err(|error| error.to_string()));
                let login = login.map(Login::new).transpose()?.map(Arc::new);
                Ok(ServerSpec::Url { url, headers: self.headers(headers)?, http: http.clone()?, login })
            }
        }
    }

    /// A server is who it is by the words that reach it.
    fn memory(&self, config: &McpConfig) -> EraMemory {
        let words = match &config.server {
            McpServer::Command { command, args, .. } => {
                let root = self.root.to_string_lossy().into_owned();
                [root, command.clone()].into_iter().chain(args.iter().cloned()).collect()
            }
            McpServer::Url { url, .. } => vec![url.clone()],
        };
        EraMemory::of(self.home.state.as_ref(), words.iter().map(String::as_str))
    }

    /// How one logs in to a server. A token goes to its own address only, which nobody else may read.
    pub(super) fn login(&self, url: &str, auth: &McpAuth) -> Result<LoginConfig, String> {
        crate::http::check_confidential(url).map_err(|why| format!("cannot be logged in to: {why}"))?;
        Ok(LoginConfig {
            url: url.to_owned(),
            auth: auth.clone(),
            state: self.home.state.clone(),
            client_metadata_url: self.home.client_metadata_url.clone(),
            variables: self.environment.offered.clone(),
            environment: self.environment.with(&self.env),
            directory: self.root.canonicalize().unwrap_or_else(|_| self.root.clone()),
            http: self.http.clone(),
            redactor: self.events.redactor().clone(),
        })
    }

    fn settings(&self, settings: &BTreeMap<String, Setting>) -> Result<BTreeMap<String, String>, String> {
        let value = |setting: &Setting| match setting {
            Setting::Text(text) => Ok(text.clone()),
            Setting::FromEnv(name) => {
                let value = self.environment.offered.get(name).cloned();
                // A header has other words before the secret.
                if let Some(value) = &value {
                    self.events.redactor().learn(value);
                    self.events.redactor().learn(value.split_whitespace().last().unwrap_or_default());
                }
                value.ok_or_else(|| format!("needs the environment variable `{name}`, which is not set"))
            }
        };
        settings.iter().map(|(name, setting)| Ok((name.clone(), value(setting)?))).collect()
    }

    fn headers(&self, settings: &BTreeMap<String, Setting>) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.settings(settings)? {
            // Its value may be a secret.
            let invalid = || format!("has a header that cannot be sent: `{}`", visible_start(&name, 80));
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            headers.insert(header, HeaderValue::from_str(&value).map_err(|_| invalid())?);
        }
        Ok(headers)
    }
}

/// A bare name is looked for on the path; anything else is relative to the project.
fn program(root: &Path, command: &str) -> PathBuf {
    if command.contains('/') { root.join(command) } else { PathBuf::from(command) }
}

/// The directories of what the words of a command name in the project: a script finds the rest of itself beside it.
fn scripts<'a>(root: &Path, words: impl Iterator<Item = &'a String>) -> Vec<PathBuf> {
    let file = |word: &String| root.join(word).canonicalize().ok().filter(|path| path.is_file());
    words.filter_map(file).filter_map(|file| file.parent().map(Path::to_owned)).collect()
}
