//! Who lets people in to a server: the server names an authorization server, which says where its doors are. What they say is
//! held against each other before anything is sent to either.

use hyper::header::{ACCEPT, HeaderValue};
use hyper::{HeaderMap, Method, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::grant::AuthMethod;
use super::{Challenge, LARGEST_DOCUMENT, PATIENCE, PageError, unreachable};
use crate::escape::visible_start;
use crate::http::{HttpClient, HttpError, HttpSettings, Request, check_confidential, is_private_host};

/// For requests about logging in: soon, small, and not from a public server to a private one.
pub(super) fn client(settings: &HttpSettings, server: &str) -> Result<HttpClient, HttpError> {
    let settings = HttpSettings {
        connect_timeout: PATIENCE,
        first_byte_timeout: PATIENCE,
        slow_first_byte_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        maximum_response: LARGEST_DOCUMENT,
        ..settings.clone()
    };
    if is_private_host(server) { HttpClient::new(settings) } else { HttpClient::among_public(settings) }
}

/// What the server itself says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundResource {
    pub issuer: String,
    pub resource: String,
    scopes: Vec<String>,
}

/// What both servers say, held against each other.
#[derive(Debug)]
pub(super) struct LoginPlaces {
    pub issuer: String,
    pub resource: String,
    pub authorization_endpoint: Option<String>,
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    /// Whether answers carry the issuer.
    pub promises_issuer: bool,
    /// Whether an address of metadata is a client's id.
    pub takes_metadata_url: bool,
    methods: Option<Vec<String>>,
    resource_scopes: Vec<String>,
    issuer_scopes: Vec<String>,
}

#[derive(Deserialize)]
struct ResourceDocument {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct IssuerDocument {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: String,
    registration_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
}

/// Reads `Bearer key="value", key=value`. `None` if it is another scheme.
pub(super) fn bearer_challenge(header: &str) -> Option<Challenge> {
    let scheme_end = header.find(' ').unwrap_or(header.len());
    if !header[..scheme_end].eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut challenge = Challenge::default();
    let mut rest = &header[scheme_end..];
    while let Some(equals) = rest.find('=') {
        let key = rest[..equals].trim_matches([' ', ',', '\t']).to_ascii_lowercase();
        rest = &rest[equals + 1..];
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = quoted.find('"').unwrap_or(quoted.len());
                (&quoted[..end], quoted.get(end + 1..).unwrap_or_default())
            }
            None => rest.split_at(rest.find(',').unwrap_or(rest.len())),
        };
        match key.as_str() {
            "resource_metadata" => challenge.metadata = Some(value.trim().to_owned()),
            "scope" => challenge.scopes = value.split_whitespace().map(str::to_owned).collect(),
            "error" => challenge.error = Some(value.trim().to_owned()),
            _ => {}
        }
        rest = after;
    }
    Some(challenge)
}

/// What a server says to somebody who has not logged in.
pub(super) async fn challenged(http: &HttpClient, server: &str) -> Result<Challenge, PageError> {
    use crate::tools::mcp::protocol::ABILITIES;
    use crate::tools::mcp::wire::{MODERN, RequestMeta, header};
    let meta = RequestMeta { version: MODERN.to_owned(), client: ABILITIES };
    let meta: serde_json::Map<String, serde_json::Value> =
        meta.entries().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let message =
        serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}});
    let mut headers = HeaderMap::new();
    let known = [
        (ACCEPT.as_str(), "application/json, text/event-stream"),
        ("content-type", "application/json"),
        (header::VERSION, MODERN),
        (header::METHOD, "server/discover"),
    ];
    for (name, value) in known {
        headers.insert(hyper::header::HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let body = bytes::Bytes::from(message.to_string());
    let request = Request { method: Method::POST, url: checked(server)?, headers, body };
    let answer = tokio::time::timeout(PATIENCE, http.send(request)).await;
    let late = || PageError::Unreachable(format!("`{}` is too slow", visible_start(server, 300)));
    let answer = answer.map_err(|_| late())?.map_err(|error| unreachable(&error))?;
    Ok(Challenge::of(&answer.headers))
}

/// An address that may be spoken to about logging in.
fn checked(url: &str) -> Result<Uri, PageError> {
    let shown = || visible_start(url, 300).into_owned();
    let parsed: Uri = url.parse().map_err(|_| PageError::Forbidden(format!("`{}` is no address", shown())))?;
    check_confidential(url).map_err(|why| PageError::Forbidden(format!("`{}`: {why}", shown())))?;
    Ok(parsed)
}

fn origin(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("https");
    format!("{scheme}://{}", url.authority().map_or("", hyper::http::uri::Authority::as_str))
}

fn path(url: &Uri) -> &str {
    url.path().trim_end_matches('/')
}

/// A document, if there is one at this address.
async fn document<T: DeserializeOwned>(http: &HttpClient, url: &str) -> Result<Option<T>, PageError> {
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    let request = Request { method: Method::GET, url: checked(url)?, headers, body: bytes::Bytes::new() };
    let fetching = async {
        let answer = http.send(request).await.map_err(|error| unreachable(&error))?;
        let status = answer.status;
        let body = answer.into_body().collect(LARGEST_DOCUMENT).await.map_err(|error| unreachable(&error))?;
        Ok((status, body))
    };
    let fetched = tokio::time::timeout(PATIENCE, fetching).await;
    let shown = visible_start(url, 300);
    let (status, body) = fetched.unwrap_or_else(|_| Err(PageError::Unreachable(format!("`{shown}` is too slow"))))?;
    if status.is_server_error() {
        return Err(PageError::Unreachable(format!("`{shown}` answered with status {}", status.as_u16())));
    }
    if !status.is_success() {
        return Ok(None);
    }
    let read = serde_json::from_slice(&body);
    read.map(Some).map_err(|error| {
        let why = visible_start(&error.to_string(), 200).into_owned();
        PageError::Forbidden(format!("`{shown}` is no document about logging in: {why}"))
    })
}

/// What the server says about itself. Without a word of it, it is its own authorization server, as it was before 2025-06-18.
pub(super) async fn resource(
    http: &HttpClient,
    server: &str,
    challenge: &Challenge,
) -> Result<FoundResource, PageError> {
    let url = checked(server)?;
    let origin = origin(&url);
    let named: Vec<String> = match &challenge.metadata {
        Some(named) => vec![named.clone()],
        None => {
            let root = format!("{origin}/.well-known/oauth-protected-resource");
            let inserted = format!("{root}{}", path(&url));
            if inserted == root { vec![root] } else { vec![inserted, root] }
        }
    };
    for place in named {
        let Some(found) = document::<ResourceDocument>(http, &place).await? else { continue };
        if !is_of(&found.resource, &url) {
            return Err(PageError::Forbidden(format!(
                "it says of itself that it is `{}`, and it is asked at `{}`",
                visible_start(&found.resource, 300),
                visible_start(server, 300)
            )));
        }
        let issuer = found.authorization_servers.into_iter().next();
        let issuer = issuer.ok_or_else(|| PageError::Forbidden("it names no authorization server".to_owned()))?;
        checked(&issuer)?;
        return Ok(FoundResource { issuer, resource: found.resource, scopes: found.scopes_supported });
    }
    if challenge.metadata.is_some() {
        return Err(PageError::Forbidden("what it says about logging in is not there".to_owned()));
    }
    Ok(FoundResource { issuer: origin, resource: server.to_owned(), scopes: Vec::new() })
}

/// Whether a server's name for itself is its address, or the beginning of it at a boundary.
fn is_of(resource: &str, server: &Uri) -> bool {
    let Ok(named) = resource.parse::<Uri>() else { return false };
    if !origin(&named).eq_ignore_ascii_case(&origin(server)) || named.query().is_some() {
        return false;
    }
    let (named, ours) = (path(&named), path(server));
    ours.strip_prefix(named).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where the metadata of an issuer can be: the path inserted, then appended.
fn places(issuer: &Uri) -> Vec<String> {
    let (origin, path) = (origin(issuer), path(issuer));
    let known = |kind: &str| format!("{origin}/.well-known/{kind}{path}");
    let mut all = vec![known("oauth-authorization-server"), known("openid-configuration")];
    if !path.is_empty() {
        all.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    all
}

/// What both say.
pub(super) async fn whole(http: &HttpClient, server: &str, challenge: &Challenge) -> Result<LoginPlaces, PageError> {
    let FoundResource { issuer, resource, scopes } = resource(http, server, challenge).await?;
    for place in places(&checked(&issuer)?) {
        let Some(found) = document::<IssuerDocument>(http, &place).await? else { continue };
        return judged(found, issuer, resource, scopes);
    }
    Err(PageError::Forbidden(format!("`{}` does not say how to log in", visible_start(&issuer, 300))))
}

fn judged(
    found: IssuerDocument,
    issuer: String,
    resource: String,
    resource_scopes: Vec<String>,
) -> Result<LoginPlaces, PageError> {
    // Byte by byte: two names that are almost the same are two servers.
    if found.issuer != issuer {
        return Err(PageError::Forbidden(format!(
            "`{}` says that it is `{}`",
            visible_start(&issuer, 300),
            visible_start(&found.issuer, 300)
        )));
    }
    let endpoints =
        [found.authorization_endpoint.as_ref(), Some(&found.token_endpoint), found.registration_endpoint.as_ref()];
    for endpoint in endpoints.into_iter().flatten() {
        checked(endpoint)?;
    }
    if found.authorization_endpoint.is_some() && !found.code_challenge_methods_supported.iter().any(|one| one == "S256")
    {
        let why = "does not list `S256`: what it gives could be used by whoever sees it";
        return Err(PageError::Forbidden(format!("`{}` {why}", visible_start(&issuer, 300))));
    }
    Ok(LoginPlaces {
        issuer,
        resource,
        authorization_endpoint: found.authorization_endpoint,
        token_endpoint: found.token_endpoint,
        registration_endpoint: found.registration_endpoint,
        promises_issuer: found.authorization_response_iss_parameter_supported,
        takes_metadata_url: found.client_id_metadata_document_supported,
        methods: found.token_endpoint_auth_methods_supported,
        resource_scopes,
        issuer_scopes: found.scopes_supported,
    })
}

/// What makes a login last.
const OFFLINE: &str = "offline_access";

impl LoginPlaces {
    /// Which scopes are asked for: the project's, else those of the challenge, else those that the server lists. What was
    /// granted before, and what the server wanted since, is asked for again.
    pub(super) fn scopes(&self, own: &[String], challenge: &Challenge, more: &[String]) -> Vec<String> {
        let first = [own, &challenge.scopes, &self.resource_scopes].into_iter().find(|list| !list.is_empty());
        let mut scopes: Vec<String> = first.unwrap_or_default().to_vec();
        scopes.extend(more.iter().cloned());
        // Where nothing is asked for, the authorization server gives what it likes.
        if !scopes.is_empty() && self.issuer_scopes.iter().any(|scope| scope == OFFLINE) {
            scopes.push(OFFLINE.to_owned());
        }
        let mut seen = std::collections::HashSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
        scopes
    }

    /// How a client shows that it is itself, of the ways that the authorization server takes.
    pub(super) fn method(&self, has_secret: bool, has_assertion: bool) -> AuthMethod {
        let takes = |word: &str| self.methods.as_ref().is_none_or(|all| all.iter().any(|one| one == word));
        if has_assertion {
            return AuthMethod::Assertion;
        }
        if !has_secret {
            return AuthMethod::Nothing;
        }
        if takes("client_secret_basic") { AuthMethod::Basic } else { AuthMethod::Post }
    }

    /// The way that a registration asks for: the one without a secret, if it is taken.
    pub(super) fn registered_method(&self) -> AuthMethod {
        let takes = |word: &str| self.methods.as_ref().is_none_or(|all| all.iter().any(|one| one == word));
        if takes("none") {
            return AuthMethod::Nothing;
        }
        if takes("client_secret_basic") { AuthMethod::Basic } else { AuthMethod::Post }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_servers_write_them() {
        let read = |header: &str| bearer_challenge(header);
        let whole = r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x/y?a=b", error_description="no, not that""#;
        let expected = Challenge {
            metadata: Some("https://x/y?a=b".into()),
            scopes: vec!["a".into(), "b".into()],
            error: Some("insufficient_scope".into()),
        };
        assert_eq!(read(whole), Some(expected));
        assert_eq!(read("bearer scope=a, error=invalid_token").unwrap().scopes, ["a"]);
        assert_eq!(read("Bearer"), Some(Challenge::default()));
        assert_eq!(read("Basic realm=\"x\""), None);
        for odd in ["Bearer =", "Bearer scope=\"", "Bearer a=\"b", "Bearer ,,,="] {
            assert!(read(odd).is_some());
        }
    }

    #[test]
    fn a_server_is_itself_or_a_part_of_what_it_says() {
        let server: Uri = "https://mcp.example.com/team/mcp".parse().unwrap();
        for own in [
            "https://mcp.example.com/team/mcp",
            "https://mcp.example.com/team/mcp/",
            "https://mcp.example.com/team",
            "https://mcp.example.com",
            "https://MCP.example.com/",
        ] {
            assert!(is_of(own, &server), "{own}");
        }
        for other in [
            "https://mcp.example.com/tea",
            "https://evil.example.com/team/mcp",
            "http://mcp.example.com/team/mcp",
            "https://mcp.example.com:444/team/mcp",
            "https://mcp.example.com/team/mcp/more",
            "https://mcp.example.com.evil/team/mcp",
            "not an address",
            "",
        ] {
            assert!(!is_of(other, &server), "{other}");
        }
    }

    #[test]
    fn metadata_are_looked_for_where_the_standards_say() {
        let all = |issuer: &str| places(&issuer.parse().unwrap());
        assert_eq!(
            all("https://a.example"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            all("https://a.example/t/"),
            [
                "https://a.example/.well-known/oauth-authorization-server/t",
                "https://a.example/.well-known/openid-configuration/t",
                "https://a.example/t/.well-known/openid-configuration",
            ]
        );
    }
}
