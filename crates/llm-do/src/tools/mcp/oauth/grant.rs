//! What is asked of an authorization server, and what it gives: tokens, and a name for this program.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{LARGEST_DOCUMENT, PATIENCE};
use crate::escape::visible_start;
use crate::http::{HttpClient, Request};

/// How a client shows that it is itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AuthMethod {
    /// It has no secret.
    #[default]
    #[serde(rename = "none")]
    Nothing,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
    /// By a signed statement that it was given.
    #[serde(rename = "private_key_jwt")]
    Assertion,
}

/// This program, as an authorization server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OauthClient {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(skip)]
    pub assertion: Option<String>,
    #[serde(default)]
    pub method: AuthMethod,
}

impl OauthClient {
    /// As it is written down where its secret is given each time.
    pub(super) fn kept(&self) -> Self {
        Self { secret: None, assertion: None, ..self.clone() }
    }
}

/// What lets a program in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub access: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<String>,
    /// In seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<u64>,
}

/// Since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Tokens {
    pub(super) fn ends_within(&self, seconds_left: u64) -> bool {
        self.ends_at.is_some_and(|end| end <= seconds() + seconds_left)
    }
}

/// For what tokens are asked.
pub(super) enum TokenRequest<'a> {
    Code { code: &'a str, verifier: &'a str, redirect: &'a str, resource: &'a str },
    Refresh { token: &'a str, resource: &'a str },
    ClientCredentials { scopes: &'a [String], resource: &'a str },
}

/// Why there are none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GrantError {
    /// The authorization server says no, with a code of the standard.
    #[error("the authorization server says `{code}`{said}")]
    Refused { code: String, said: String },
    #[error("{0}")]
    Unreachable(String),
    #[error("the authorization server answers with something else")]
    Garbled,
}

impl TokenRequest<'_> {
    fn fields(&self) -> Vec<(&'static str, String)> {
        match *self {
            Self::Code { code, verifier, redirect, resource } => vec![
                ("grant_type", "authorization_code".to_owned()),
                ("code", code.to_owned()),
                ("code_verifier", verifier.to_owned()),
                ("redirect_uri", redirect.to_owned()),
                ("resource", resource.to_owned()),
            ],
            Self::Refresh { token, resource } => vec![
                ("grant_type", "refresh_token".to_owned()),
                ("refresh_token", token.to_owned()),
                ("resource", resource.to_owned()),
            ],
            Self::ClientCredentials { scopes, resource } => {
                let mut fields =
                    vec![("grant_type", "client_credentials".to_owned()), ("resource", resource.to_owned())];
                if !scopes.is_empty() {
                    fields.push(("scope", scopes.join(" ")));
                }
                fields
            }
        }
    }
}

/// `a=b&c=d`, as forms travel.
pub(super) fn form<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs = fields.into_iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Everything but what no address needs to escape.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The pairs of `a=b&c=d`; what is no text is left out.
pub(super) fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((unescaped(key)?, unescaped(value)?))
    };
    pairs.filter_map(read).collect()
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

/// Asks for tokens.
pub(super) async fn tokens(
    http: &HttpClient,
    endpoint: &str,
    client: &OauthClient,
    request: &TokenRequest<'_>,
) -> Result<Tokens, GrantError> {
    let mut fields = request.fields();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    match (client.method, &client.secret, &client.assertion) {
        (AuthMethod::Assertion, _, Some(assertion)) => {
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            fields.extend([("client_id", client.id.clone()), ("client_assertion_type", kind.to_owned())]);
            fields.push(("client_assertion", assertion.clone()));
        }
        (AuthMethod::Basic, Some(secret), _) => {
            let pair = BASE64.encode(format!("{}:{}", escaped(&client.id), escaped(secret)));
            let mut value = HeaderValue::from_str(&format!("Basic {pair}")).map_err(|_| GrantError::Garbled)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        (AuthMethod::Post, Some(secret), _) => {
            fields.extend([("client_id", client.id.clone()), ("client_secret", secret.clone())]);
        }
        (AuthMethod::Nothing | AuthMethod::Basic | AuthMethod::Post | AuthMethod::Assertion, _, _) => {
            fields.push(("client_id", client.id.clone()));
        }
    }
    let body = form(fields.iter().map(|(key, value)| (*key, value.as_str())));
    let (status, body) = posted(http, endpoint, headers, body).await?;
    read_tokens(status, &body)
}

fn read_tokens(status: StatusCode, body: &[u8]) -> Result<Tokens, GrantError> {
    #[derive(Deserialize)]
    struct TokenAnswer {
        access_token: String,
        token_type: String,
        expires_in: Option<serde_json::Value>,
        refresh_token: Option<String>,
    }
    if !status.is_success() {
        return Err(refusal(status, body));
    }
    let said: TokenAnswer = serde_json::from_slice(body).map_err(|_| GrantError::Garbled)?;
    let is_shown = |token: &str| !token.is_empty() && token.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    if !said.token_type.eq_ignore_ascii_case("bearer") || !is_shown(&said.access_token) {
        return Err(GrantError::Garbled);
    }
    // Some write a number as a text.
    let lasts = said.expires_in.and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    let ends_at = lasts.map(|lasts| seconds().saturating_add(lasts));
    Ok(Tokens { access: said.access_token, refresh: said.refresh_token, ends_at })
}

fn refusal(status: StatusCode, body: &[u8]) -> GrantError {
    #[derive(Deserialize)]
    struct ErrorAnswer {
        error: String,
        error_description: Option<String>,
    }
    match serde_json::from_slice::<ErrorAnswer>(body) {
        Ok(ErrorAnswer { error, error_description }) => {
            let said = error_description.map(|said| format!(": {}", visible_start(&said, 200))).unwrap_or_default();
            GrantError::Refused { code: visible_start(&error, 60).into_owned(), said }
        }
        Err(_) => GrantError::Unreachable(format!("the authorization server answered with status {}", status.as_u16())),
    }
}

async fn posted(
    http: &HttpClient,
    endpoint: &str,
    mut headers: HeaderMap,
    body: String,
) -> Result<(StatusCode, Bytes), GrantError> {
    crate::http::check_confidential(endpoint).map_err(GrantError::Unreachable)?;
    let url: Uri = endpoint.parse().map_err(|_| GrantError::Garbled)?;
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let request = Request { method: Method::POST, url, headers, body: Bytes::from(body) };
    let exchange = async {
        let answer = http.send(request).await.map_err(|error| GrantError::Unreachable(error.to_string()))?;
        let status = answer.status;
        let body = answer.into_body().collect(LARGEST_DOCUMENT).await;
        Ok((status, body.map_err(|error| GrantError::Unreachable(error.to_string()))?))
    };
    let answered = tokio::time::timeout(PATIENCE, exchange).await;
    answered.unwrap_or_else(|_| Err(GrantError::Unreachable("the authorization server is too slow".to_owned())))
}

/// Registers this program where it is not known yet.
pub(super) async fn registered(
    http: &HttpClient,
    endpoint: &str,
    redirects: &[String],
    method: AuthMethod,
    scopes: &[String],
) -> Result<OauthClient, GrantError> {
    #[derive(Deserialize)]
    struct RegistrationAnswer {
        client_id: String,
        client_secret: Option<String>,
        token_endpoint_auth_method: Option<AuthMethod>,
    }
    let mut wanted = json!({
        "client_name": "llm-do",
        "application_type": "native",
        "redirect_uris": redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    });
    if !scopes.is_empty() {
        wanted["scope"] = json!(scopes.join(" "));
    }
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let (status, body) = posted(http, endpoint, headers, wanted.to_string()).await?;
    if !status.is_success() {
        return Err(refusal(status, &body));
    }
    let said: RegistrationAnswer = serde_json::from_slice(&body).map_err(|_| GrantError::Garbled)?;
    let method = match (said.token_endpoint_auth_method, &said.client_secret) {
        (Some(AuthMethod::Assertion) | None, Some(_)) if method == AuthMethod::Nothing => AuthMethod::Basic,
        (Some(AuthMethod::Assertion) | None, _) => method,
        (Some(given), _) => given,
    };
    Ok(OauthClient { id: said.client_id, secret: said.client_secret, assertion: None, method })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_in_addresses_comes_back_as_it_was() {
        for text in ["", "a b", "ä&=%+/?#", "https://x/y?z=1"] {
            assert_eq!(pairs(&form([("k", text)])), [("k".to_owned(), text.to_owned())]);
        }
        assert_eq!(pairs("a=%zz&b=%f&c=%ff&d"), [("d".to_owned(), String::new())]);
    }

    #[test]
    fn only_tokens_that_can_be_shown_are_tokens() {
        let read = |body: &str| read_tokens(StatusCode::OK, body.as_bytes());
        let good = read(r#"{"access_token":"t","token_type":"bearer","expires_in":"60","refresh_token":"r"}"#).unwrap();
        assert!(good.ends_within(61) && !good.ends_within(10));
        assert_eq!((good.access.as_str(), good.refresh.as_deref()), ("t", Some("r")));
        for wrong in [
            r#"{"access_token":"t\r\nX: y","token_type":"bearer"}"#,
            r#"{"access_token":"","token_type":"bearer"}"#,
            r#"{"access_token":"t","token_type":"mac"}"#,
            r#"{"access_token":7,"token_type":"bearer"}"#,
            "[]",
            "",
        ] {
            assert_eq!(read(wrong), Err(GrantError::Garbled), "{wrong}");
        }
        let refused = read_tokens(StatusCode::BAD_REQUEST, br#"{"error":"invalid_grant"}"#);
        assert_eq!(refused, Err(GrantError::Refused { code: "invalid_grant".into(), said: String::new() }));
    }
}
