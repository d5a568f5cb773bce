//! By which names a server may be reached. A page of others can make a browser send requests here under a name of its own:
//! what is asked for under any other name than ours is not for us. Pure.

use std::net::SocketAddr;

use axum::http::Uri;

/// Where a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedAddress {
    /// As a person opens it, without a slash at its end.
    url: String,
    /// `name:port`, and without the port where it is the usual one.
    hosts: Vec<String>,
    /// `http` or `https`.
    scheme: &'static str,
}

/// Why a server cannot be reached like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("`{0}` is reached by others, and so must be named and confidential")]
    NotConfidential(SocketAddr),
    #[error("`{0}` is no address of a page: `https://NAME` or `https://NAME:PORT`")]
    NoUrl(String),
    #[error("`{0}` is not confidential")]
    Plain(String),
}

/// Who makes what is sent unreadable to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confidentiality {
    Nobody,
    Ourselves,
    Proxy,
}

impl ServedAddress {
    /// Of a server that listens here. Beyond this machine it must be named, and either this server or a proxy before it speaks
    /// TLS.
    pub fn of(
        listening: SocketAddr,
        public_url: Option<&str>,
        has_tls: bool,
        is_behind_proxy: bool,
    ) -> Result<Self, AddressError> {
        let confidentiality = match (has_tls, is_behind_proxy) {
            (true, _) => Confidentiality::Ourselves,
            (false, true) => Confidentiality::Proxy,
            (false, false) => Confidentiality::Nobody,
        };
        let is_loopback = listening.ip().is_loopback();
        match public_url {
            Some(url) => {
                let named = Self::public(url)?;
                if named.scheme == "https" && confidentiality == Confidentiality::Nobody {
                    return Err(AddressError::NotConfidential(listening));
                }
                if named.scheme == "http" && !is_loopback {
                    return Err(AddressError::Plain(url.to_owned()));
                }
                Ok(named)
            }
            None if is_loopback => Ok(Self::loopback(listening, has_tls)),
            None => Err(AddressError::NotConfidential(listening)),
        }
    }

    fn loopback(listening: SocketAddr, has_tls: bool) -> Self {
        let (port, scheme) = (listening.port(), if has_tls { "https" } else { "http" });
        let hosts = ["127.0.0.1", "[::1]", "localhost"].map(|name| format!("{name}:{port}"));
        Self { url: format!("{scheme}://{listening}"), hosts: hosts.to_vec(), scheme }
    }

    fn public(url: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError::NoUrl(url.to_owned());
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let (scheme, usual) = match uri.scheme_str() {
            Some("https") => ("https", 443),
            Some("http") => ("http", 80),
            _ => return Err(wrong()),
        };
        let authority = uri.authority().filter(|it| !it.as_str().contains('@') && !it.host().is_empty());
        let authority =
            authority.filter(|_| matches!(uri.path(), "" | "/") && uri.query().is_none()).ok_or_else(wrong)?;
        let host = authority.host().to_ascii_lowercase();
        let port = authority.port_u16().unwrap_or(usual);
        let mut hosts = vec![format!("{host}:{port}")];
        if port == usual {
            hosts.push(host);
        }
        Ok(Self { url: format!("{scheme}://{}", hosts.last().map_or("", String::as_str)), hosts, scheme })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether a request that names this host is for us.
    pub fn is_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
    }

    /// Whether it comes from our own page.
    pub fn is_origin(&self, origin: &str) -> bool {
        let rest = origin.strip_prefix(self.scheme).and_then(|rest| rest.strip_prefix("://"));
        rest.is_some_and(|host| self.is_host(host))
    }
}
