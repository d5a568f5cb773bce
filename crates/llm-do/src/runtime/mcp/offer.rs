//! What the servers of a project offer, asked all at once by a caller that wants to know no more than that.

use futures_util::future::join_all;

use super::{McpHome, Servers};
use crate::event::Events;
use crate::http::HttpSettings;
use crate::project::trust::TrustedProject;
use crate::tools::DeclaredTool;
use crate::tools::approval::DeclaredVerdict;
use crate::tools::fence::FenceConfig;
use crate::tools::mcp::McpTool;
use crate::tools::rpc::child::ChildEnvironment;
use crate::tools::source::{McpConfig, ToolsetSource};

/// What a server offers, or why it could not be asked.
#[derive(Debug)]
#[non_exhaustive]
pub struct McpOffer {
    /// The name of the server in the manifest.
    pub toolset: String,
    /// Its tools, or why it could not be asked.
    pub tools: Result<Vec<McpTool>, String>,
}

/// Asks the servers of a project what they offer, all at the same time, and ends them again. No tool is called.
pub async fn ask(
    project: &TrustedProject,
    children: &ChildEnvironment,
    http: &HttpSettings,
    fence: &FenceConfig,
    home: &McpHome,
    events: &Events,
) -> Vec<McpOffer> {
    let all = Servers::within(project.program(), children, http, fence, home, events);
    let servers = project.project().servers();
    let asking = servers.iter().map(|config| async {
        let tools = all.get(config).tools(events).await.map_err(|error| error.to_string());
        McpOffer { toolset: config.name.clone(), tools }
    });
    let offers = join_all(asking).await;
    all.close().await;
    offers
}

impl McpOffer {
    /// Its tools as linking takes them: they ask, whatever the server says of them.
    pub fn declared(&self, config: &McpConfig) -> Option<Vec<DeclaredTool>> {
        let capabilities = ToolsetSource::Mcp(config.clone()).capabilities();
        let tools = self.tools.as_ref().ok()?.iter().map(|tool| DeclaredTool {
            name: tool.name.clone().into(),
            verdict: DeclaredVerdict::Ask,
            capabilities,
        });
        Some(tools.collect())
    }
}
