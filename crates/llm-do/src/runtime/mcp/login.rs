//! Logins of a person at the servers of a project, for whoever lets them log in.

use std::fmt;

use super::{McpHome, Servers};
use crate::event::Events;
use crate::http::HttpSettings;
use crate::project::trust::TrustedProject;
use crate::tools::fence::FenceConfig;
use crate::tools::mcp::oauth::{Landing, LoginPage, PageError};
use crate::tools::rpc::child::ChildEnvironment;
use crate::tools::source::{McpConfig, McpServer};

/// Why a login did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// One does not log in to this server: its definition says nothing of it.
    Needless,
    /// The authorization server is not there, or does what the standards forbid.
    Unusable(String),
    /// The person declined, or did not come back.
    Declined(String),
}

impl fmt::Display for LoginFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needless => f.write_str("nobody logs in to it: its definition has no `auth`"),
            Self::Unusable(reason) | Self::Declined(reason) => f.write_str(reason),
        }
    }
}

impl From<PageError> for LoginFailure {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Unreachable(reason) | PageError::Forbidden(reason) => Self::Unusable(reason),
            PageError::Declined(reason) => Self::Declined(reason),
        }
    }
}

/// A login that has begun: a page to open, and somebody who waits for its end.
pub struct OpenLogin(LoginPage);

impl fmt::Debug for OpenLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenLogin").field("port", &self.0.port).finish_non_exhaustive()
    }
}

/// Finds out where one logs in to a server, and gets ready for whoever comes back from there: at a port of this machine if
/// `listens`.
pub async fn open_login(
    project: &TrustedProject,
    config: &McpConfig,
    (children, http): (&ChildEnvironment, &HttpSettings),
    home: &McpHome,
    listens: bool,
) -> Result<OpenLogin, LoginFailure> {
    let McpServer::Url { url, auth: Some(auth), .. } = &config.server else { return Err(LoginFailure::Needless) };
    let (fence, events) = (FenceConfig::default(), Events::unheard());
    let servers = Servers::within(project.program(), children, http, &fence, home, &events);
    let config = servers.login(url, auth).map_err(LoginFailure::Unusable)?;
    Ok(OpenLogin(LoginPage::prepare(config, listens).await?))
}

impl OpenLogin {
    /// The page that the person opens.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// The port of this machine that they come back to, if anybody listens there.
    pub fn port(&self) -> Option<u16> {
        self.0.port
    }

    /// Waits until they are back, or takes the address where they landed, and keeps the login.
    pub async fn finish(self, landed: Option<String>) -> Result<(), LoginFailure> {
        let landing = landed.map_or(Landing::Browser, Landing::Typed);
        Ok(self.0.finish(landing).await?)
    }
}
