//! Logging in to servers elsewhere: who may use a server is decided by an authorization server that it names.
//!
//! A person logs in once, by `mcp login`; runs use what was kept then, and renew it. A program logs in by itself, with a secret
//! that it was given. Whatever a server says about where to log in is foreign: every document is small, comes soon, and is
//! believed only as far as the standards allow.

mod callback;
mod discovery;
mod grant;
mod page;
mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderValue, WWW_AUTHENTICATE};
use tokio::io::AsyncReadExt as _;

use crate::http::{HttpClient, HttpError, HttpSettings};
use crate::redact::Redactor;
use crate::tools::Ending;
use crate::tools::source::{AuthGrant, McpAuth, SecretSource};
use discovery::LoginPlaces;
use grant::{OauthClient, TokenRequest, Tokens};
pub(crate) use page::PageError;
#[cfg(feature = "front-end")]
pub(crate) use page::{Landing, LoginPage};
use store::{LoginRecord, LoginStore};

/// Nobody has logged in to a server, and somebody has to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server `{server}` wants a login at {at}")]
pub struct LoginNeeded {
    /// The name of its toolset.
    pub server: String,
    /// The authorization server.
    pub at: String,
    /// The directory of the project whose server it is.
    pub project: PathBuf,
}

impl From<LoginNeeded> for Ending {
    fn from(needed: LoginNeeded) -> Self {
        let LoginNeeded { server, at, project } = needed;
        Self::NeedsLogin { server, at, project }
    }
}

/// Why there is nothing to show to a server.
pub(super) enum LoginError {
    /// Somebody has to log in there, at a server of the project in this directory.
    Needed {
        at: String,
        project: PathBuf,
    },
    Failed(String),
}

/// How often a server may refuse a token for the scopes that it was made for.
const MOST_STEP_UPS: u32 = 2;
/// A token is renewed so long before its end.
const BEFORE_ITS_END: u64 = 30;
/// An authorization server answers within this time, with no more than that.
const PATIENCE: Duration = Duration::from_secs(10);
const LARGEST_DOCUMENT: u64 = 256 * 1024;

/// What a server says of a request that it does not take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// Where it says who lets people in.
    pub metadata: Option<String>,
    pub scopes: Vec<String>,
    pub error: Option<String>,
}

impl Challenge {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        all.find_map(discovery::bearer_challenge).unwrap_or_default()
    }

    /// Whether it is about what the token may do.
    pub(super) fn wants_more(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// What is needed to log in to a server: how, where things are kept, and what secrets are taken from.
#[derive(Clone)]
pub(crate) struct LoginConfig {
    /// The address of the server.
    pub url: String,
    pub auth: McpAuth,
    /// The user's state directory; without one nothing is kept.
    pub state: Option<PathBuf>,
    /// Where this program's own metadata lie, if the user has put them anywhere.
    pub client_metadata_url: Option<String>,
    /// Variables that a project may name.
    pub variables: BTreeMap<String, String>,
    /// What a command sees that gives a secret, and where it runs.
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    pub http: HttpSettings,
    pub redactor: Redactor,
}

/// The login of a run at one server.
pub(crate) struct Login {
    config: LoginConfig,
    http: HttpClient,
    store: LoginStore,
    /// As it was read or renewed last.
    known: Mutex<Option<LoginRecord>>,
}

impl Login {
    pub(crate) fn new(config: LoginConfig) -> Result<Self, String> {
        let http = discovery::client(&config.http, &config.url).map_err(|error| error.to_string())?;
        let store = LoginStore::new(config.state.as_ref(), &config.url);
        Ok(Self { config, http, store, known: Mutex::default() })
    }

    fn known(&self) -> Option<LoginRecord> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No text of this run has the secrets in it.
    fn keep(&self, record: LoginRecord) -> LoginRecord {
        record.secrets().for_each(|secret| self.config.redactor.learn(secret));
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
        record
    }

    /// What to show with a request; nothing if nobody has logged in.
    pub(super) async fn bearer(&self) -> Result<Option<HeaderValue>, LoginError> {
        let record = match self.known() {
            Some(record) => Some(record),
            None => self.store.read().map(|record| self.keep(record)),
        };
        let Some(record) = record else { return Ok(None) };
        let Some(tokens) = &record.tokens else { return Ok(None) };
        if tokens.ends_within(BEFORE_ITS_END) && record.can_renew(&self.config.auth) {
            return Ok(self.renewed(&record).await?.and_then(|record| header(&record)));
        }
        Ok(header(&record))
    }

    /// The server takes no request with this token. `Ok` if there is another one to try.
    pub(super) async fn unauthorized(
        &self,
        used: Option<&HeaderValue>,
        challenge: &Challenge,
        was_renewed: bool,
    ) -> Result<(), LoginError> {
        let record = self.store.read().map(|record| self.keep(record));
        // Another process has one that this one does not know yet.
        if record.as_ref().and_then(header).is_some_and(|header| Some(&header) != used) && !was_renewed {
            return Ok(());
        }
        if was_renewed {
            return Err(self.needed(challenge, None).await);
        }
        if self.config.auth.grant == AuthGrant::ClientCredentials {
            return self.obtained(record.as_ref(), challenge).await.map(drop);
        }
        match record.filter(|record| record.can_renew(&self.config.auth)) {
            Some(record) => match self.renewed(&record).await? {
                Some(_) => Ok(()),
                None => Err(self.needed(challenge, None).await),
            },
            None => Err(self.needed(challenge, None).await),
        }
    }

    /// The token is good for less than the server wants. A person has to agree to more, and is asked only so often.
    pub(super) async fn insufficient(&self, challenge: &Challenge) -> LoginError {
        let scopes = challenge.scopes.join(" ");
        let wanted = |record: &mut LoginRecord| {
            let is_covered = challenge.scopes.iter().all(|scope| record.asked_for.contains(scope));
            record.step_ups = if is_covered { record.step_ups + 1 } else { 0 };
            let more = challenge.scopes.iter().filter(|scope| !record.wanted.contains(scope)).cloned();
            let more: Vec<String> = more.collect();
            record.wanted.extend(more);
        };
        let changed = match self.store.change(wanted).await {
            Ok(Some(record)) => self.keep(record),
            Ok(None) => return self.needed(challenge, Some(&scopes)).await,
            Err(reason) => return LoginError::Failed(reason),
        };
        if self.config.auth.grant == AuthGrant::ClientCredentials || changed.step_ups >= MOST_STEP_UPS {
            let words = format!("it does not let this login do that: it wants the scopes `{scopes}`");
            return LoginError::Failed(crate::escape::visible_start(&words, 400).into_owned());
        }
        self.needed(challenge, Some(&scopes)).await
    }

    /// That somebody has to log in, and where, in the words of the server as far as they can be believed.
    async fn needed(&self, challenge: &Challenge, scopes: Option<&str>) -> LoginError {
        match discovery::resource(&self.http, &self.config.url, challenge).await {
            Ok(found) => {
                let with = scopes.map(|scopes| format!(" with the scopes `{scopes}`")).unwrap_or_default();
                let at = format!("{}{with}", found.issuer);
                let at = crate::escape::visible_start(&at, 500).into_owned();
                LoginError::Needed { at, project: self.config.directory.clone() }
            }
            Err(error) => LoginError::Failed(format!("it wants a login, and {error}")),
        }
    }

    /// A new token in the place of one that is over. `None` if the authorization server does not renew it any more.
    ///
    /// Of several processes one asks, while the others wait for what it was given.
    async fn renewed(&self, seen: &LoginRecord) -> Result<Option<LoginRecord>, LoginError> {
        if self.config.auth.grant == AuthGrant::ClientCredentials {
            return self.obtained(Some(seen), &Challenge::default()).await.map(Some);
        }
        let locked = self.store.locked().await.map_err(LoginError::Failed)?;
        let Some(mut record) = self.store.read() else { return Ok(None) };
        if record.generation != seen.generation {
            return Ok(Some(self.keep(record)).filter(|record| record.tokens.is_some()));
        }
        let Some(refresh) = record.tokens.as_ref().and_then(|tokens| tokens.refresh.clone()) else { return Ok(None) };
        let client = self.client_of(&record).await?;
        let request = TokenRequest::Refresh { token: &refresh, resource: &record.resource };
        match grant::tokens(&self.http, &record.token_endpoint, &client, &request).await {
            Ok(tokens) => {
                // One that is not given anew stays.
                let refresh = tokens.refresh.clone().or(Some(refresh));
                record.tokens = Some(Tokens { refresh, ..tokens });
                record.generation += 1;
            }
            Err(grant::GrantError::Refused { code, .. }) if code == "invalid_grant" => {
                record.tokens = None;
                record.generation += 1;
            }
            Err(error) => return Err(LoginError::Failed(format!("the login cannot be renewed: {error}"))),
        }
        self.store.write(&locked, &record).map_err(LoginError::Failed)?;
        drop(locked);
        Ok(Some(self.keep(record)).filter(|record| record.tokens.is_some()))
    }

    /// A token for this program itself.
    async fn obtained(&self, seen: Option<&LoginRecord>, challenge: &Challenge) -> Result<LoginRecord, LoginError> {
        let locked = self.store.locked().await.map_err(LoginError::Failed)?;
        let before = self.store.read();
        if let Some(before) = &before
            && seen.is_none_or(|seen| seen.generation != before.generation)
            && before.tokens.as_ref().is_some_and(|tokens| !tokens.ends_within(BEFORE_ITS_END))
        {
            return Ok(self.keep(before.clone()));
        }
        let failed = |error: PageError| LoginError::Failed(error.to_string());
        let found = discovery::whole(&self.http, &self.config.url, challenge).await.map_err(failed)?;
        let scopes = found.scopes(&self.config.auth.scopes, challenge, &[]);
        let client = self.own_client(&found).await?;
        let request = TokenRequest::ClientCredentials { scopes: &scopes, resource: &found.resource };
        let tokens = grant::tokens(&self.http, &found.token_endpoint, &client, &request).await;
        let tokens = tokens.map_err(|error| LoginError::Failed(format!("it cannot be logged in to: {error}")))?;
        let generation = before.map_or(0, |before| before.generation) + 1;
        let record = LoginRecord {
            url: self.config.url.clone(),
            issuer: found.issuer.clone(),
            resource: found.resource.clone(),
            token_endpoint: found.token_endpoint.clone(),
            client: client.kept(),
            tokens: Some(tokens),
            asked_for: scopes,
            wanted: Vec::new(),
            step_ups: 0,
            generation,
        };
        self.store.write(&locked, &record).map_err(LoginError::Failed)?;
        Ok(self.keep(record))
    }

    /// The client as it is registered there, with its secret.
    async fn client_of(&self, record: &LoginRecord) -> Result<OauthClient, LoginError> {
        let given = self.given_secrets().await?;
        Ok(OauthClient {
            secret: given.0.or_else(|| record.client.secret.clone()),
            assertion: given.1,
            ..record.client.clone()
        })
    }

    async fn own_client(&self, found: &LoginPlaces) -> Result<OauthClient, LoginError> {
        let (secret, assertion) = self.given_secrets().await?;
        let id = self.config.auth.client_id.clone();
        let id = id.ok_or_else(|| LoginError::Failed("`auth` has no `client_id`".to_owned()))?;
        let method = found.method(secret.is_some(), assertion.is_some());
        Ok(OauthClient { id, secret, assertion, method })
    }

    async fn given_secrets(&self) -> Result<(Option<String>, Option<String>), LoginError> {
        let McpAuth { client_secret, assertion, .. } = &self.config.auth;
        let mut given = [None, None];
        for (value, source) in given.iter_mut().zip([client_secret, assertion]) {
            if let Some(source) = source {
                *value = Some(self.config.secret(source).await.map_err(LoginError::Failed)?);
            }
        }
        let [secret, assertion] = given;
        Ok((secret, assertion))
    }
}

fn header(record: &LoginRecord) -> Option<HeaderValue> {
    let token = &record.tokens.as_ref()?.access;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// How long a command may take that gives a secret.
const LONGEST_COMMAND: Duration = Duration::from_secs(30);
const LARGEST_SECRET: u64 = 64 * 1024;

impl LoginConfig {
    /// A secret from where the project says that it is.
    async fn secret(&self, source: &SecretSource) -> Result<String, String> {
        let secret = match source {
            SecretSource::FromEnv(name) => {
                let value = self.variables.get(name).cloned();
                value.ok_or_else(|| format!("needs the environment variable `{name}`, which is not set"))?
            }
            SecretSource::Command(words) => self.printed(words).await?,
        };
        self.redactor.learn(&secret);
        Ok(secret)
    }

    /// What a command prints is the secret, or may hold it: nothing of it is shown, on neither stream.
    async fn printed(&self, words: &[String]) -> Result<String, String> {
        let Some((program, arguments)) = words.split_first() else { return Err("a command without words".to_owned()) };
        let shown = crate::escape::visible_start(program, 80).into_owned();
        let wrong = |why: &str| format!("`{shown}`, which gives a secret, {why}");
        let found = if program.contains('/') { self.directory.join(program) } else { PathBuf::from(program) };
        let mut command = tokio::process::Command::new(found);
        command.args(arguments).current_dir(&self.directory).env_clear().envs(&self.environment).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| wrong(&format!("cannot be started: {error}")))?;
        let stdout = child.stdout.take().ok_or_else(|| wrong("has no output"))?;
        let mut text = String::new();
        let reading = async {
            stdout.take(LARGEST_SECRET).read_to_string(&mut text).await?;
            child.wait().await
        };
        let ended = tokio::time::timeout(LONGEST_COMMAND, reading).await;
        let ended = ended.map_err(|_| wrong(&format!("takes longer than {} seconds", LONGEST_COMMAND.as_secs())))?;
        if !ended.map_err(|error| wrong(&format!("failed: {error}")))?.success() {
            return Err(wrong("failed"));
        }
        let secret = text.trim_end_matches(['\n', '\r']);
        if secret.is_empty() { Err(wrong("gives nothing")) } else { Ok(secret.to_owned()) }
    }
}

/// How a request to an authorization server failed, where nothing else is known.
fn unreachable(error: &HttpError) -> PageError {
    PageError::Unreachable(error.to_string())
}

/// A login that is kept, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLogin {
    /// The address of the server.
    pub url: String,
    /// Who let them in.
    pub issuer: String,
    /// Whether there is a token; without one the login is over.
    pub is_valid: bool,
    /// When its token ends, in seconds since 1970, if that was said.
    pub ends_at: Option<u64>,
    /// Whether it is renewed without a person.
    pub is_renewed: bool,
    /// What was asked for.
    pub scopes: Vec<String>,
}

/// All logins that are kept in a state directory.
pub fn kept_logins(state: &std::path::Path) -> Vec<KeptLogin> {
    let shown = |record: LoginRecord| KeptLogin {
        is_valid: record.tokens.is_some(),
        ends_at: record.tokens.as_ref().and_then(|tokens| tokens.ends_at),
        is_renewed: record.tokens.is_some_and(|tokens| tokens.refresh.is_some()),
        url: record.url,
        issuer: record.issuer,
        scopes: record.asked_for,
    };
    store::kept(state).into_iter().map(shown).collect()
}

/// Forgets the login at a server. Whether there was one.
pub async fn forget_login(state: &std::path::Path, url: &str) -> Result<bool, String> {
    LoginStore::new(Some(&state.to_owned()), url).forget().await
}
