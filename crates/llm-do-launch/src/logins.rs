//! How one is let in to the MCP servers of a project: what their definitions say, and what is kept of logins.

use llm_do::Project;
use llm_do::runs::McpHome;
use llm_do::toolsets::{AuthGrant, KeptLogin, McpConfig, McpServer, kept_logins};
use serde_json::{Value, json};

use crate::settings::Settings;

/// What is kept about MCP servers from one run to the next, and what the user has said about this program.
pub fn home(settings: &Settings) -> McpHome {
    let state = settings.state.directory().map(std::path::Path::to_owned);
    McpHome { state, client_metadata_url: settings.config.mcp.client_metadata_url.clone() }
}

/// A server, and how one is let in there.
#[derive(Debug)]
pub struct ServerAccess {
    pub config: McpConfig,
    /// What is kept, if somebody has logged in.
    pub login: Option<KeptLogin>,
}

/// All servers of a project.
pub fn servers(project: &Project, settings: &Settings) -> Vec<ServerAccess> {
    let state = settings.state.directory();
    let kept = state.map(kept_logins).unwrap_or_default();
    let access = |config: &McpConfig| ServerAccess {
        login: kept.iter().find(|login| is_at(config, &login.url)).cloned(),
        config: config.clone(),
    };
    project.servers().into_iter().map(access).collect()
}

fn is_at(config: &McpConfig, address: &str) -> bool {
    matches!(&config.server, McpServer::Url { url, .. } if url == address)
}

impl ServerAccess {
    /// Whether a person still has to log in.
    pub fn is_missing(&self) -> bool {
        let McpServer::Url { auth: Some(auth), .. } = &self.config.server else { return false };
        auth.grant == AuthGrant::AuthorizationCode && !self.login.as_ref().is_some_and(|login| login.is_valid)
    }

    /// How one is let in, in words.
    pub fn words(&self) -> String {
        let McpServer::Url { headers, auth, .. } = &self.config.server else {
            return "started here".to_owned();
        };
        let Some(auth) = auth else {
            let named = headers.keys().find(|name| name.eq_ignore_ascii_case("authorization"));
            return named.map_or_else(|| "no login".to_owned(), |_| "a header of the project lets it in".to_owned());
        };
        let kept = match &self.login {
            Some(login) if login.is_valid => {
                let renewed = if login.is_renewed { ", renewed by itself" } else { "" };
                format!("logged in at {}{renewed}", login.issuer)
            }
            Some(login) => format!("the login at {} is over", login.issuer),
            None if auth.grant == AuthGrant::AuthorizationCode => "nobody has logged in".to_owned(),
            None => "not logged in yet".to_owned(),
        };
        format!("{}: {kept}", auth.words())
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let (url, auth) = match &self.config.server {
            McpServer::Url { url, auth, .. } => (Some(url), auth.as_ref()),
            McpServer::Command { .. } => (None, None),
        };
        let login = self.login.as_ref().map(|login| {
            json!({
                "issuer": login.issuer,
                "valid": login.is_valid,
                "ends_at": login.ends_at,
                "renewed": login.is_renewed,
                "scopes": login.scopes,
            })
        });
        json!({
            "server": self.config.name,
            "url": url,
            "auth": auth.map(|auth| auth.grant),
            "login": login,
        })
    }
}
