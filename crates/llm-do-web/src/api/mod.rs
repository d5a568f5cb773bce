//! HTTP for programs, and for the page: the store and the runs of this process, as JSON. What is answered is the events' and the
//! records' own JSON.

mod chats;
mod costs;
pub mod openapi;
pub mod projects;
pub mod questions;
mod runs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use llm_do::approval::short_id;

pub use projects::schema as schema_of;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::guard::{Guard, GuardRefusal, HEADERS, KeyRequirement};
use crate::house::House;
use crate::{page, v1};

/// What every handler is given.
#[derive(Clone)]
pub struct WebState {
    pub house: Arc<House>,
    pub guard: Arc<Guard>,
}

/// What is sent with files may have so many bytes, as base64.
pub const LARGEST_BODY: usize = 32 << 20;
/// A body that comes more slowly than this is not waited for.
const LONGEST_BODY: Duration = Duration::from_secs(30);

/// All routes, behind the guard.
pub fn routes(served: &WebState) -> Router {
    Router::new()
        .route("/api/me", get(projects::me))
        .route("/api/runs", get(runs::list).post(runs::begin))
        .route("/api/runs/{id}", get(runs::show))
        .route("/api/runs/{id}/events", get(runs::events))
        .route("/api/runs/{id}/call", get(runs::call))
        .route("/api/runs/{id}/cancel", post(runs::cancel))
        .route("/api/runs/{id}/resume", post(runs::resume))
        .route("/api/runs/{id}/fork", post(runs::fork))
        .route("/api/runs/{id}/turns", post(chats::turn))
        .route("/api/runs/{id}/change", post(chats::change))
        .route("/api/runs/{id}/close", post(chats::close))
        .route("/api/runs/{id}/session", get(chats::session))
        .route("/api/runs/{id}/forget", post(chats::forget))
        .route("/api/questions", get(questions::list))
        .route("/api/questions/{id}", post(questions::answer))
        .route("/api/questions/{id}/try", post(questions::consider))
        .route("/api/questions/{id}/rule", post(questions::add_rule))
        .route("/api/projects", get(projects::list))
        .route("/api/projects/{name}/check", get(projects::check))
        .route("/api/costs", get(costs::show))
        .route("/api/openapi.json", get(async || Json(openapi::document())))
        .route("/v1/models", get(v1::models))
        .route("/v1/chat/completions", post(v1::complete))
        .fallback(page::file)
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this address knows no such method")
        })
        .layer(from_fn_with_state(served.clone(), guarded))
        .with_state(served.clone())
}

/// What a request must bring: said by its path and method alone, before anything else of it is looked at.
pub fn need(method: &Method, path: &str) -> KeyRequirement {
    let is_beneath = |room: &str| path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match *method {
        _ if is_beneath("/v1") => KeyRequirement::Ask,
        Method::GET | Method::HEAD if is_beneath("/api") => KeyRequirement::Look,
        Method::GET | Method::HEAD => KeyRequirement::Nothing,
        _ => KeyRequirement::All,
    }
}

async fn guarded(State(served): State<WebState>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let need = need(&parts.method, parts.uri.path());
    let is_v1 = parts.uri.path().starts_with("/v1");
    let mut response = match served.guard.check(&parts, need, Instant::now()) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refused(refusal, is_v1),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn refused(refusal: GuardRefusal, is_v1: bool) -> Response {
    let error = ApiError::new(refusal.status(), "refused", refusal.to_string());
    if is_v1 { v1::error(&error) } else { error.into_response() }
}

/// The JSON of a body, which is bounded in its length and its time.
pub async fn read<T: DeserializeOwned>(body: Body, most: usize) -> Result<T, ApiError> {
    let too_large =
        || ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("a body has at most {most} bytes"));
    let bytes = match tokio::time::timeout(LONGEST_BODY, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body took too long")),
    };
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(text).map_err(|error| ApiError::wrong(format!("the body: {error}")))
}

/// An answer, or why there is none.
pub type Answered<T = serde_json::Value> = Result<Json<T>, ApiError>;

/// Work that reads files, on a thread of its own: the server answers others meanwhile.
pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::failed("the server failed to answer"))
}

/// A value as JSON.
pub fn json(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Only the whole digest of a question is an answer's.
pub fn whole_digest(id: &str) -> Result<&str, ApiError> {
    let is_whole = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
    if is_whole {
        return Ok(id);
    }
    Err(ApiError::wrong(format!("`{}` is not the whole digest of a question", short_id(id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_needs_is_said_by_its_path_and_method() {
        for (method, path, expected) in [
            (Method::GET, "/", KeyRequirement::Nothing),
            (Method::GET, "/assets/page-0.js", KeyRequirement::Nothing),
            (Method::GET, "/api", KeyRequirement::Look),
            (Method::GET, "/api/runs/x/events", KeyRequirement::Look),
            (Method::HEAD, "/api/runs", KeyRequirement::Look),
            (Method::GET, "/apiary", KeyRequirement::Nothing),
            (Method::POST, "/api/runs", KeyRequirement::All),
            (Method::POST, "/", KeyRequirement::All),
            (Method::DELETE, "/api/runs", KeyRequirement::All),
            (Method::OPTIONS, "/api/runs", KeyRequirement::All),
            (Method::GET, "/v1/models", KeyRequirement::Ask),
            (Method::POST, "/v1/chat/completions", KeyRequirement::Ask),
            (Method::GET, "/v1/anything", KeyRequirement::Ask),
        ] {
            assert_eq!(need(&method, path), expected, "{method} {path}");
        }
    }
}
