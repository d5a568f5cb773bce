//! Who may come in: the address that a request names, the key that it brings, and how long it may take. Every server of the
//! program that people reach by HTTP stands behind this.

mod address;
mod connections;
mod keys;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

pub use address::{AddressError, ServedAddress};
pub use connections::{ConnectionBounds, ServerTls, TlsFiles, accept};
pub use keys::{KeyKind, Keys};

/// What a request must bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRequirement {
    /// Nothing: what is given holds nothing.
    Nothing,
    /// A key that may look.
    Look,
    /// A key that may ask agents.
    Ask,
    /// The key for everything.
    All,
}

impl KeyRequirement {
    /// Whether this key is enough.
    pub fn is_met_by(self, kind: KeyKind) -> bool {
        match (self, kind) {
            (Self::Nothing, _) | (_, KeyKind::All) | (Self::Look, KeyKind::Look) | (Self::Ask, KeyKind::Ask) => true,
            (Self::Look | Self::All, KeyKind::Ask) | (Self::Ask | Self::All, KeyKind::Look) => false,
        }
    }
}

/// Why a request is sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardRefusal {
    #[error("this server is not reached by that name")]
    OtherHost,
    #[error("no other page may ask this server")]
    OtherOrigin,
    #[error("a key is missing: `Authorization: Bearer …`")]
    NoKey,
    #[error("this is no key of this server")]
    WrongKey,
    #[error("too many wrong keys; wait a minute")]
    TooManyWrongKeys,
    #[error("this key may not do that")]
    NotEnough,
    #[error("this server only shows")]
    OnlyLooks,
}

impl GuardRefusal {
    pub fn status(self) -> StatusCode {
        match self {
            Self::OtherHost => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherOrigin | Self::NotEnough | Self::OnlyLooks => StatusCode::FORBIDDEN,
            Self::NoKey | Self::WrongKey => StatusCode::UNAUTHORIZED,
            Self::TooManyWrongKeys => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// So many wrong keys are answered in so long a time; a right one always is.
const MOST_WRONG_KEYS: usize = 10;
const WRONG_KEYS_LAST: Duration = Duration::from_mins(1);

/// Stands before every request.
#[derive(Debug)]
pub struct Guard {
    address: ServedAddress,
    keys: Keys,
    wrong: Mutex<VecDeque<Instant>>,
    is_read_only: bool,
}

impl Guard {
    pub fn new(address: ServedAddress, keys: Keys) -> Self {
        Self { address, keys, wrong: Mutex::default(), is_read_only: false }
    }

    /// The same, which takes no key but the one that looks.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    pub fn address(&self) -> &ServedAddress {
        &self.address
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Lets a request through, or says why not. Headers that proxies add are never read.
    pub fn check(&self, request: &Parts, need: KeyRequirement, now: Instant) -> Result<(), GuardRefusal> {
        self.check_address(request)?;
        if need == KeyRequirement::Nothing {
            return Ok(());
        }
        let given = bearer(&request.headers).ok_or(GuardRefusal::NoKey)?;
        match self.keys.kind_of(given) {
            Some(kind) if self.is_read_only && kind != KeyKind::Look => Err(GuardRefusal::OnlyLooks),
            Some(kind) if need.is_met_by(kind) => Ok(()),
            Some(_) => Err(GuardRefusal::NotEnough),
            None => Err(self.wrong_key(now)),
        }
    }

    fn check_address(&self, request: &Parts) -> Result<(), GuardRefusal> {
        let mut hosts = request.headers.get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default(),
            (Some(_), Some(_)) => "",
            (None, _) => request.uri.authority().map_or("", |authority| authority.as_str()),
        };
        // A request in absolute form names its host twice, and both must be ours.
        let is_named = request.uri.authority().is_none_or(|named| self.address.is_host(named.as_str()));
        if !self.address.is_host(host) || !is_named {
            return Err(GuardRefusal::OtherHost);
        }
        for origin in request.headers.get_all(header::ORIGIN) {
            if !origin.to_str().is_ok_and(|origin| self.address.is_origin(origin)) {
                return Err(GuardRefusal::OtherOrigin);
            }
        }
        Ok(())
    }

    fn wrong_key(&self, now: Instant) -> GuardRefusal {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        while wrong.front().is_some_and(|at| now.saturating_duration_since(*at) >= WRONG_KEYS_LAST) {
            wrong.pop_front();
        }
        if wrong.len() >= MOST_WRONG_KEYS {
            return GuardRefusal::TooManyWrongKeys;
        }
        wrong.push_back(now);
        GuardRefusal::WrongKey
    }
}

/// The key of a request: one header, of the one form.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (only, None) = (given.next()?, given.next()) else { return None };
    let (scheme, key) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// What every answer says: nothing of others is loaded, nothing is put into a frame, nothing is guessed or told onwards.
pub const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
             form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

#[cfg(test)]
mod tests;
