//! A login of a person: a page that they open, and what they bring back from it.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use sha2::{Digest as _, Sha256};

use super::callback::{CallbackListener, PORTS, redirect, with_state};
use super::discovery::{self, LoginPlaces};
use super::grant::{self, GrantError, OauthClient, TokenRequest, form};
use super::store::{LoginRecord, LoginStore};
use super::{Login, LoginConfig};

/// Why a login did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageError {
    /// The authorization server is not there, or not in order.
    Unreachable(String),
    /// It does what the standards forbid.
    Forbidden(String),
    /// The person said no, or nothing.
    Declined(String),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(reason) | Self::Forbidden(reason) | Self::Declined(reason) => f.write_str(reason),
        }
    }
}

/// How long a person may take.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// A page that a person opens to log in.
pub(crate) struct LoginPage {
    pub address: String,
    /// Where it comes back to.
    pub port: Option<u16>,
    found: LoginPlaces,
    client: OauthClient,
    scopes: Vec<String>,
    state: String,
    verifier: String,
    redirect: String,
    listener: Option<CallbackListener>,
    login: Login,
    before: Option<LoginRecord>,
}

/// How the person comes back.
pub(crate) enum Landing {
    /// The browser opens an address of this machine.
    Browser,
    /// They type the address where they landed.
    Typed(String),
}

impl LoginPage {
    /// Finds out where a person logs in, and as whom this program asks.
    pub(crate) async fn prepare(config: LoginConfig, listens: bool) -> Result<Self, PageError> {
        let (given_id, more) = (config.auth.client_id.clone(), config.auth.scopes.clone());
        let metadata_url = config.client_metadata_url.clone();
        let login = Login::new(config).map_err(PageError::Unreachable)?;
        let challenge = discovery::challenged(&login.http, &login.config.url).await?;
        let found = discovery::whole(&login.http, &login.config.url, &challenge).await?;
        let endpoint = found.authorization_endpoint.clone();
        let endpoint =
            endpoint.ok_or_else(|| PageError::Forbidden("its authorization server has no page".to_owned()))?;
        let before =
            login.store.read().filter(|before| before.issuer == found.issuer && before.resource == found.resource);
        let wanted: Vec<String> = match &before {
            Some(before) if !before.wanted.is_empty() => {
                before.asked_for.iter().chain(&before.wanted).cloned().collect()
            }
            Some(_) | None => Vec::new(),
        };
        let scopes = found.scopes(&more, &challenge, &wanted);
        let (listener, port) = if listens {
            let listener = CallbackListener::bind().await;
            let listener = listener.map_err(|error| {
                PageError::Unreachable(format!("nobody can come back to the ports {}–{}: {error}", PORTS[0], PORTS[2]))
            })?;
            let port = listener.port;
            (Some(listener), port)
        } else {
            (None, PORTS[0])
        };
        let client = match (given_id, metadata_url.filter(|_| found.takes_metadata_url), &before) {
            (Some(_), _, _) => login.own_client(&found).await.map_err(|_| secret_missing())?,
            (None, Some(url), _) => {
                OauthClient { id: url, secret: None, assertion: None, method: grant::AuthMethod::Nothing }
            }
            (None, None, Some(before)) => before.client.clone(),
            (None, None, None) => Self::registered(&login, &found, &scopes).await?,
        };
        let (state, verifier, redirect) = (unguessable()?, unguessable()?, redirect(port));
        let challenge = BASE64URL.encode(Sha256::digest(verifier.as_bytes()));
        let scope = scopes.join(" ");
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", client.id.as_str()),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("redirect_uri", &redirect),
            ("state", &state),
            ("resource", &found.resource),
        ];
        if !scopes.is_empty() {
            fields.push(("scope", &scope));
        }
        let joint = if endpoint.contains('?') { '&' } else { '?' };
        let address = format!("{endpoint}{joint}{}", form(fields));
        let port = listener.as_ref().map(|listener| listener.port);
        Ok(Self { address, port, found, client, scopes, state, verifier, redirect, listener, login, before })
    }

    async fn registered(login: &Login, found: &LoginPlaces, scopes: &[String]) -> Result<OauthClient, PageError> {
        let endpoint = found.registration_endpoint.as_ref().ok_or_else(|| {
            PageError::Forbidden(format!("`{}` registers nobody: `auth` needs a `client_id`", found.issuer))
        })?;
        let redirects: Vec<String> = PORTS.into_iter().map(redirect).collect();
        let method = found.registered_method();
        grant::registered(&login.http, endpoint, &redirects, method, scopes).await.map_err(of_grant)
    }

    /// Waits until the person is back, and keeps what they were given.
    pub(crate) async fn finish(self, landing: Landing) -> Result<(), PageError> {
        let said = match (landing, &self.listener) {
            (Landing::Typed(address), _) => {
                let query = address.trim().split_once('?').map(|(_, query)| query.split('#').next().unwrap_or(query));
                query
                    .and_then(|query| with_state(query, &self.state))
                    .ok_or_else(|| PageError::Declined("that is not the address where this login ends".to_owned()))?
            }
            (Landing::Browser, Some(listener)) => {
                let waiting = tokio::time::timeout(LONGEST_WAIT, listener.landed(&self.state)).await;
                let landed =
                    waiting.map_err(|_| PageError::Declined("nobody logged in within 5 minutes".to_owned()))?;
                landed.map_err(|error| PageError::Unreachable(format!("nobody can come back: {error}")))?
            }
            (Landing::Browser, None) => return Err(PageError::Declined("nobody waits for a browser".to_owned())),
        };
        let code = self.code(&said)?;
        let request = TokenRequest::Code {
            code: &code,
            verifier: &self.verifier,
            redirect: &self.redirect,
            resource: &self.found.resource,
        };
        let tokens = grant::tokens(&self.login.http, &self.found.token_endpoint, &self.client, &request).await;
        let tokens = tokens.map_err(of_grant)?;
        let is_given = self.login.config.auth.client_secret.is_some() || self.login.config.auth.assertion.is_some();
        let store: &LoginStore = &self.login.store;
        let locked = store.locked().await.map_err(PageError::Unreachable)?;
        let earlier = store.read();
        let record = LoginRecord {
            url: self.login.config.url.clone(),
            issuer: self.found.issuer,
            resource: self.found.resource,
            token_endpoint: self.found.token_endpoint,
            client: if is_given { self.client.kept() } else { self.client },
            tokens: Some(tokens),
            asked_for: self.scopes,
            wanted: Vec::new(),
            step_ups: self.before.map_or(0, |before| before.step_ups),
            generation: earlier.map_or(0, |earlier| earlier.generation) + 1,
        };
        store.write(&locked, &record).map_err(PageError::Unreachable)
    }

    /// What the authorization server gave, if it was this one.
    fn code(&self, said: &[(String, String)]) -> Result<String, PageError> {
        let value = |key: &str| said.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        // Before anything else of it is read: another one may have sent the browser here.
        match value("iss") {
            Some(issuer) if issuer != self.found.issuer => {
                let issuer = crate::escape::visible_start(issuer, 200);
                let why = format!("the login was asked of `{}`, and answered by `{issuer}`", self.found.issuer);
                return Err(PageError::Forbidden(why));
            }
            None if self.found.promises_issuer => {
                let why = format!("`{}` promises to say who it is, and did not", self.found.issuer);
                return Err(PageError::Forbidden(why));
            }
            Some(_) | None => {}
        }
        if let Some(error) = value("error") {
            let described = value("error_description").map(|text| format!(": {text}")).unwrap_or_default();
            let said = format!("{error}{described}");
            return Err(PageError::Declined(format!(
                "the login was declined: {}",
                crate::escape::visible_start(&said, 300)
            )));
        }
        let code = value("code").filter(|code| !code.is_empty()).map(str::to_owned);
        code.ok_or_else(|| PageError::Forbidden("the authorization server gave nothing".to_owned()))
    }
}

fn secret_missing() -> PageError {
    PageError::Declined("the secret of `auth` cannot be had".to_owned())
}

fn of_grant(error: GrantError) -> PageError {
    match error {
        GrantError::Refused { .. } | GrantError::Garbled => PageError::Forbidden(error.to_string()),
        GrantError::Unreachable(reason) => PageError::Unreachable(reason),
    }
}

/// 256 bits that nobody can guess.
fn unguessable() -> Result<String, PageError> {
    let mut bytes = [0; 32];
    crate::system::random(&mut bytes).map_err(|error| PageError::Unreachable(error.to_string()))?;
    Ok(BASE64URL.encode(bytes))
}
