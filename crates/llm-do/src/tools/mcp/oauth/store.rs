//! Logins as they are kept: a file for each server and authorization server, which only the user reads.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::grant::{OauthClient, Tokens};
use crate::beneath::{FileAccess, read_regular, replace_path};
use crate::journal::digest::digest;
use crate::tools::source::{AuthGrant, McpAuth};

const LARGEST_RECORD: u64 = 256 * 1024;

/// One login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoginRecord {
    /// The address of the server, as the project has it.
    pub url: String,
    pub issuer: String,
    /// What the server calls itself.
    pub resource: String,
    pub token_endpoint: String,
    pub client: OauthClient,
    #[serde(default)]
    pub tokens: Option<Tokens>,
    /// The scopes that were asked for.
    #[serde(default)]
    pub asked_for: Vec<String>,
    /// Those that the server wanted since.
    #[serde(default)]
    pub wanted: Vec<String>,
    /// How often it refused the scopes that it was given.
    #[serde(default)]
    pub step_ups: u32,
    /// Grows with each change of the tokens.
    #[serde(default)]
    pub generation: u64,
}

impl LoginRecord {
    pub(super) fn can_renew(&self, auth: &McpAuth) -> bool {
        auth.grant == AuthGrant::ClientCredentials
            || self.tokens.as_ref().is_some_and(|tokens| tokens.refresh.is_some())
    }

    /// What nobody may read.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let tokens = self.tokens.iter().flat_map(|tokens| [Some(&tokens.access), tokens.refresh.as_ref()]);
        tokens.chain([self.client.secret.as_ref()]).flatten().map(String::as_str)
    }
}

/// The logins at one server.
#[derive(Clone, Debug)]
pub(super) struct LoginStore {
    directory: Option<PathBuf>,
    url: String,
}

/// Nobody else changes these logins.
pub(super) struct LockedLogins(#[expect(dead_code, reason = "it is let go when it is dropped")] Option<File>);

impl LoginStore {
    pub(super) fn new(state: Option<&PathBuf>, url: &str) -> Self {
        Self { directory: state.map(|state| state.join("oauth")), url: url.to_owned() }
    }

    /// The login at this server, whichever authorization server let it in. `None` if there is none.
    pub(super) fn read(&self) -> Option<LoginRecord> {
        all(self.directory.as_ref()?).map(|(_, record)| record).find(|record| record.url == self.url)
    }

    /// Waits until nobody else holds it.
    pub(super) async fn locked(&self) -> Result<LockedLogins, String> {
        let Some(directory) = self.directory.clone() else { return Ok(LockedLogins(None)) };
        let name = format!("{}.lock", &digest([self.url.as_str()])[..32]);
        let locking = tokio::task::spawn_blocking(move || {
            made(&directory)?;
            let file = open_private(&directory.join(name))?;
            file.lock()?;
            Ok::<_, std::io::Error>(file)
        });
        let locked = locking.await.map_err(|error| error.to_string())?;
        locked.map(|file| LockedLogins(Some(file))).map_err(|error| format!("logins cannot be kept: {error}"))
    }

    /// Writes a login, whole or not at all. Those of other authorization servers for this server are over.
    pub(super) fn write(&self, _: &LockedLogins, record: &LoginRecord) -> Result<(), String> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let unkept = |error: std::io::Error| format!("the login cannot be kept: {error}");
        made(directory).map_err(unkept)?;
        let path = directory.join(format!("{}.json", digest([record.issuer.as_str(), record.resource.as_str()])));
        let text = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
        replace_path(&path, &text, FileAccess::Private).map_err(unkept)?;
        for (other, found) in all(directory) {
            if found.url == record.url && other != path {
                let _ = std::fs::remove_file(other);
            }
        }
        Ok(())
    }

    /// Changes a login under the lock; `None` if there is none.
    pub(super) async fn change(&self, change: impl FnOnce(&mut LoginRecord)) -> Result<Option<LoginRecord>, String> {
        let locked = self.locked().await?;
        let Some(mut record) = self.read() else { return Ok(None) };
        change(&mut record);
        self.write(&locked, &record)?;
        Ok(Some(record))
    }

    /// Forgets the logins at this server. Whether there were any.
    pub(super) async fn forget(&self) -> Result<bool, String> {
        let _locked = self.locked().await?;
        let Some(directory) = &self.directory else { return Ok(false) };
        let mut had = false;
        for (path, _) in all(directory).filter(|(_, record)| record.url == self.url) {
            std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            had = true;
        }
        Ok(had)
    }
}

/// All logins that are kept. What is none is passed over: whoever may write there may do anything.
fn all(directory: &Path) -> impl Iterator<Item = (PathBuf, LoginRecord)> + use<> {
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<PathBuf> = names.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
    names.sort();
    names.into_iter().filter_map(|path| {
        let record = serde_json::from_slice(&read_regular(&path, LARGEST_RECORD).ok()?).ok()?;
        Some((path, record))
    })
}

fn made(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn open_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// What is kept of logins, of all servers.
pub(super) fn kept(state: &Path) -> Vec<LoginRecord> {
    all(&state.join("oauth")).map(|(_, record)| record).collect()
}
