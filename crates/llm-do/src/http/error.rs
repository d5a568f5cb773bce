//! Why there was no answer, or only a part of one: by cause, in words for the user.
//!
//! No error holds a header, a path or a query: keys travel in them.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use hyper::Uri;
use rustls::{CertificateError, InvalidMessage};

/// Why an exchange failed. `at` is `host:port`, or `the proxy host:port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("{reason}")]
    InvalidSetting { reason: String },
    #[error("the request cannot be sent: {reason}")]
    InvalidRequest { reason: String },
    #[error("the name `{host}` cannot be resolved: {reason}")]
    Resolve { host: String, reason: String },
    #[error("no connection to {at}: {reason}")]
    Connect { at: String, reason: String },
    #[error("no connection to {at} within {after:?}")]
    ConnectTimeout { at: String, after: Duration },
    #[error("no secure connection to {at}: {reason}")]
    Tls { at: String, reason: String },
    #[error("the proxy {proxy} does not connect to {at}: it answered with status {status}")]
    ProxyRefused { proxy: String, at: String, status: u16 },
    #[error("{at} does not take the request: nothing of it within {after:?}")]
    SendTimeout { at: String, after: Duration },
    #[error("no answer from {at} within {after:?}")]
    FirstByteTimeout { at: String, after: Duration },
    #[error("{at} fell silent for {after:?} in the middle of its answer")]
    IdleTimeout { at: String, after: Duration },
    #[error("{at} broke off {stage}: {reason}")]
    Cut { at: String, stage: ExchangeStage, reason: String },
    #[error("the answer of {at} is larger than {limit} bytes")]
    TooLarge { at: String, limit: u64 },
    #[error("the answer of {at} is not valid HTTP: {reason}")]
    Malformed { at: String, reason: String },
}

/// How far an exchange had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeStage {
    BeforeAnswer,
    InAnswer,
}

impl fmt::Display for ExchangeStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeAnswer => "before it answered",
            Self::InAnswer => "within its answer",
        })
    }
}

impl HttpError {
    /// Whether the same request may well succeed in a moment.
    pub fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::SendTimeout { .. }
            | Self::FirstByteTimeout { .. }
            | Self::IdleTimeout { .. }
            | Self::Cut { .. } => true,
            // A proxy says 5xx when it could not reach the host, and 4xx when it does not want to.
            Self::ProxyRefused { status, .. } => *status >= 500,
            Self::InvalidSetting { .. }
            | Self::InvalidRequest { .. }
            | Self::Tls { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => false,
        }
    }

    /// The connector's errors. Its own type has no public name, so the cause tells: only a failed system call has a
    /// code, and whatever else goes wrong before there is a connection is the resolver's.
    pub(super) fn of_tcp(error: &(dyn Error + 'static), url: &Uri, at: String) -> Self {
        let Some(cause) = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()) else {
            return Self::Connect { at, reason: root_of(error).to_string() };
        };
        if cause.raw_os_error().is_some() || cause.kind() == io::ErrorKind::TimedOut {
            return Self::Connect { at, reason: in_words(cause) };
        }
        let reason = in_words(cause);
        let reason = reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason).to_owned();
        Self::Resolve { host: url.host().unwrap_or_default().to_owned(), reason }
    }

    /// A failed TLS handshake: a fault of certificates or versions would be the same next time, a lost connection
    /// would not.
    pub(super) fn of_handshake(error: &io::Error, at: String) -> Self {
        match tls_error(error) {
            Some(error) => Self::Tls { at, reason: tls_in_words(error) },
            None => Self::Connect { at, reason: format!("lost during the TLS handshake: {}", in_words(error)) },
        }
    }

    /// What the client says when no response head came.
    pub(super) fn of_sending(error: &(dyn Error + 'static), url: &Uri) -> Self {
        let ours = causes(error).find_map(|cause| cause.downcast_ref::<Self>());
        ours.cloned().unwrap_or_else(|| Self::of_exchange(error, url, ExchangeStage::BeforeAnswer))
    }

    /// What happens on a connection that was once established.
    pub(super) fn of_exchange(error: &(dyn Error + 'static), url: &Uri, stage: ExchangeStage) -> Self {
        let at = host_and_port(url);
        if let Some(error) = causes(error).find_map(|cause| cause.downcast_ref::<hyper::Error>()) {
            if error.is_parse() {
                return Self::Malformed { at, reason: error.to_string() };
            }
            if error.is_user() {
                return Self::InvalidRequest { reason: root_of(error).to_string() };
            }
        }
        match causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()) {
            Some(error) => Self::of_io(error, at, stage),
            None => Self::Cut { at, stage, reason: root_of(error).to_string() },
        }
    }

    pub(super) fn of_io(error: &io::Error, at: String, stage: ExchangeStage) -> Self {
        match (tls_error(error), error.kind()) {
            (Some(error), _) => Self::Tls { at, reason: tls_in_words(error) },
            (None, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                Self::Malformed { at, reason: in_words(error) }
            }
            (None, io::ErrorKind::UnexpectedEof) => {
                Self::Cut { at, stage, reason: "the connection was closed too early".to_owned() }
            }
            (None, _) => Self::Cut { at, stage, reason: in_words(error) },
        }
    }
}

/// The part of an address that may be shown.
pub(super) fn host_and_port(url: &Uri) -> String {
    let default_port = if url.scheme_str() == Some("https") { 443 } else { 80 };
    format!("{}:{}", url.host().unwrap_or_default(), url.port_u16().unwrap_or(default_port))
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn root_of<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

/// `Connection refused (os error 111)` → `connection refused`.
fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn tls_in_words(error: &rustls::Error) -> String {
    use rustls::Error::{InvalidCertificate, InvalidMessage as NotTls};
    match error {
        // A bad signature is an authority that only has the name of a trusted one.
        InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is not signed by a trusted authority".to_owned()
        }
        InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        NotTls(InvalidMessage::InvalidContentType) => "it does not speak TLS".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let at = || "h:1".to_owned();
        let reason = || "r".to_owned();
        let after = Duration::from_secs(1);
        let refused = |status| HttpError::ProxyRefused { proxy: "p:1".to_owned(), at: at(), status };
        let cases = [
            (HttpError::InvalidSetting { reason: reason() }, false),
            (HttpError::InvalidRequest { reason: reason() }, false),
            (HttpError::Resolve { host: at(), reason: reason() }, true),
            (HttpError::Connect { at: at(), reason: reason() }, true),
            (HttpError::ConnectTimeout { at: at(), after }, true),
            (HttpError::Tls { at: at(), reason: reason() }, false),
            (refused(407), false),
            (refused(503), true),
            (HttpError::SendTimeout { at: at(), after }, true),
            (HttpError::FirstByteTimeout { at: at(), after }, true),
            (HttpError::IdleTimeout { at: at(), after }, true),
            (HttpError::Cut { at: at(), stage: ExchangeStage::BeforeAnswer, reason: reason() }, true),
            (HttpError::Cut { at: at(), stage: ExchangeStage::InAnswer, reason: reason() }, true),
            (HttpError::TooLarge { at: at(), limit: 1 }, false),
            (HttpError::Malformed { at: at(), reason: reason() }, false),
        ];
        for (error, expected) in cases {
            assert_eq!(error.is_worth_a_retry(), expected, "{error}");
        }
    }

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        let cases = [
            ("https://api.example/v1?key=sk-1", "api.example:443"),
            ("http://localhost:11434/v1", "localhost:11434"),
            ("http://user:pass@[::1]/", "[::1]:80"),
        ];
        for (url, expected) in cases {
            assert_eq!(host_and_port(&Uri::from_static(url)), expected);
        }
    }

    #[test]
    fn certificate_faults_are_told_in_words() {
        let cases = [
            (
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "no secure connection to h:443: its certificate is not signed by a trusted authority",
            ),
            (
                rustls::Error::InvalidCertificate(CertificateError::Expired),
                "no secure connection to h:443: its certificate has expired",
            ),
            (
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "no secure connection to h:443: it does not speak TLS",
            ),
        ];
        for (error, expected) in cases {
            let error = HttpError::of_handshake(&io::Error::new(io::ErrorKind::InvalidData, error), "h:443".to_owned());
            assert_eq!(error.to_string(), expected);
        }
        let lost = HttpError::of_handshake(&io::ErrorKind::ConnectionReset.into(), "h:443".to_owned());
        assert_eq!(lost.to_string(), "no connection to h:443: lost during the TLS handshake: connection reset");
        assert!(lost.is_worth_a_retry());
    }
}
