//! One HTTP request as it arrived.

use bytes::Bytes;
use serde_json::Value;

use crate::seen::SeenRequest;

/// A request that was received whole.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Counted from 1 in the order of arrival.
    pub number: usize,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
    pub version: HttpVersion,
    pub method: String,
    /// With its query.
    pub path: String,
    pub headers: Headers,
    pub bytes: Bytes,
    /// `Null` when the bytes are no JSON.
    pub body: Value,
    /// None when the path belongs to no known protocol or the bytes are no JSON.
    pub seen: Option<SeenRequest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    Http1,
    Http2,
}

/// Names in lower case, in the order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

/// Something a provider would have refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The number of the request; 0 for bytes that were no request at all.
    pub request: usize,
    pub reason: String,
}

/// What the transports hand over.
pub(crate) struct TransportRequest {
    pub connection: usize,
    pub version: HttpVersion,
    pub method: String,
    pub path: String,
    pub headers: Headers,
    pub bytes: Bytes,
}

impl Headers {
    /// The first value under `name`, which is in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
