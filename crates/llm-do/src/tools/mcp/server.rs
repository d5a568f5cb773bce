//! A server of a run: declared, started once when an agent needs it, ended with the run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{HeaderMap, Uri};
use tokio::sync::OnceCell;

use super::client::{BeginError, Client, McpError};
use super::era::{Era, EraMemory};
use super::oauth::Login;
use super::protocol::McpTool;
use crate::event::{EventKind, Events};
use crate::http::HttpClient;
use crate::tools::fence::tenant::Tenant;

/// How a server is reached.
pub(crate) enum ServerSpec {
    /// A program that is started here, and the launcher that becomes it.
    Command {
        program: PathBuf,
        args: Vec<String>,
        variables: BTreeMap<String, String>,
        directory: PathBuf,
        launcher: Option<PathBuf>,
    },
    /// The same behind a fence.
    Fenced(Tenant),
    /// A service elsewhere.
    Url { url: Uri, headers: HeaderMap, http: HttpClient, login: Option<Arc<Login>> },
}

/// One server of a run.
pub(crate) struct Server {
    /// The name of its toolset.
    pub name: String,
    /// How it is reached, or why it cannot be.
    launch: Result<ServerSpec, String>,
    /// For its start, and for each call.
    timeout: Option<Duration>,
    /// For a call that goes on as a task.
    pub task_time: Option<Duration>,
    /// Whether it is of an earlier revision, as was found out before.
    memory: EraMemory,
    /// Hears what it says in no call.
    session: Events,
    /// Set by the first caller that needs it. What went wrong then is what every other caller is told, too.
    started: OnceCell<Result<Arc<Client>, McpError>>,
}

impl Server {
    pub(crate) fn new(
        name: impl Into<String>,
        launch: Result<ServerSpec, String>,
        (timeout, task_time): (Option<Duration>, Option<Duration>),
        memory: EraMemory,
        session: Events,
    ) -> Self {
        Self { name: name.into(), launch, timeout, task_time, memory, session, started: OnceCell::new() }
    }

    /// The live server: started now, unless it was before.
    pub(super) async fn client(&self, events: &Events) -> Result<Arc<Client>, McpError> {
        self.started.get_or_init(|| self.start(events)).await.clone()
    }

    /// Its tools as they are now.
    pub(crate) async fn tools(&self, events: &Events) -> Result<Vec<McpTool>, McpError> {
        Ok(self.client(events).await?.tools(events).await?.to_vec())
    }

    async fn start(&self, events: &Events) -> Result<Arc<Client>, McpError> {
        let began = Instant::now();
        let toolset = || self.name.clone();
        events.send(|| EventKind::ToolsetStarted { toolset: toolset() });
        let started = match &self.launch {
            Ok(launch) => self.begun(launch, events).await,
            Err(reason) => Err(McpError::Failed(format!("the MCP server `{}` {reason}", self.name))),
        };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &started {
            Ok((_, tools)) => {
                events.send(|| EventKind::ToolsetReady { toolset: toolset(), tools: *tools, duration_ms });
            }
            Err(error) => {
                let error = match error {
                    McpError::Failed(reason) => reason.clone(),
                    McpError::Login(needed) => needed.to_string(),
                };
                events.send(|| EventKind::ToolsetFailed { toolset: toolset(), error, duration_ms });
            }
        }
        started.map(|(client, _)| Arc::new(client))
    }

    /// A program that ends at the question of the modern revision is started once more, for those of the earlier ones.
    async fn begun(&self, launch: &ServerSpec, events: &Events) -> Result<(Client, usize), McpError> {
        let known = self.memory.is_earlier().then_some(Era::WithInitialize);
        let begun = match self.tried(launch, known, events).await {
            Err(BeginError::EndedAtOnce) => self.tried(launch, Some(Era::WithInitialize), events).await,
            // It has learned something since.
            Err(BeginError::Declined(_)) if known.is_some() => self.tried(launch, None, events).await,
            begun => begun,
        };
        let (client, tools) = begun.map_err(|error| match error {
            BeginError::Failed(error) | BeginError::Declined(error) => error,
            BeginError::EndedAtOnce => McpError::Failed(format!("the MCP server `{}` ended at once", self.name)),
        })?;
        if let Some(era) = client.era() {
            self.memory.keep(era);
        }
        Ok((client, tools))
    }

    async fn tried(
        &self,
        launch: &ServerSpec,
        known: Option<Era>,
        events: &Events,
    ) -> Result<(Client, usize), BeginError> {
        let client = Client::connect(&self.name, launch, self.timeout, &self.session).await?;
        let tools = client.begin(known, events).await?;
        Ok((client, tools))
    }

    /// Lets it end, and sees to it that it does.
    pub(crate) async fn close(&self) {
        if let Some(Ok(client)) = self.started.get() {
            client.close().await;
        }
    }
}
