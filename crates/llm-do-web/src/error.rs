//! Why a request is not answered as it was meant.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use llm_do::remedy::Wording;
use llm_do_launch::error::{FailureKind, LaunchError};
use llm_do_launch::stored_runs::StoredRunError;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A fact, what to do about it, and of which kind it is.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct ApiError {
    #[serde(skip)]
    pub status: u16,
    /// What is wrong.
    pub message: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// A word for programs.
    pub code: &'static str,
    /// What else is known, by name.
    #[serde(flatten, skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status: status.as_u16(), message: message.into(), hint: None, code, more: Map::new() }
    }

    /// What was sent cannot be used.
    pub fn wrong(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "wrong_request", message)
    }

    pub fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// It does not fit how things are now.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not_here", message)
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.more.insert(name.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Why something was not begun, in the words of this front end.
    pub fn of_launch(error: LaunchError, wording: Wording) -> Self {
        match error {
            LaunchError::Project(report) => {
                let report = report.worded(wording);
                let mistakes = serde_json::to_value(report.json()).unwrap_or_default();
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "project", report.to_string()).with("mistakes", mistakes)
            }
            LaunchError::Untrusted(_) => {
                Self::new(StatusCode::FORBIDDEN, "not_trusted", "the project asks for more than was agreed to")
                    .hint("look at it with `llm-do check`, and trust it there")
            }
            LaunchError::Taken(id) => Self::conflict("taken", format!("the run `{id}` has this key")),
            LaunchError::Failed { fact, remedy, kind } => {
                let (status, code) = match kind {
                    FailureKind::Usage => (StatusCode::BAD_REQUEST, "wrong_request"),
                    FailureKind::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
                    FailureKind::Provider => (StatusCode::BAD_GATEWAY, "provider"),
                    FailureKind::Approval => (StatusCode::FORBIDDEN, "refused"),
                };
                let hint = remedy.as_ref().map(|remedy| wording.of(remedy));
                Self { hint, ..Self::new(status, code, fact) }
            }
        }
    }

    /// Why nothing can be done with a run.
    pub fn of_run(error: StoredRunError, wording: Wording) -> Self {
        match error {
            StoredRunError::NotFound(error) => {
                let error = Self::of_launch(error, wording);
                Self { status: StatusCode::NOT_FOUND.as_u16(), code: "not_found", ..error }
            }
            StoredRunError::OnlyBeingMade(id) => {
                Self::conflict("being_made", format!("the run `{id}` is only being made"))
            }
            StoredRunError::Unlisted(error) => Self::failed(format!("the runs cannot be listed: {error}")),
            StoredRunError::Done(id) => Self::conflict("done", format!("the run `{id}` is done")),
            StoredRunError::Uncancelled(id, error) => Self::failed(format!("the run `{id}` cannot be ended: {error}")),
            StoredRunError::JustResumed(id) => Self::conflict("resumed", format!("the run `{id}` was just resumed")),
            StoredRunError::Damaged(id, error) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "damaged",
                format!("the run `{id}` cannot be read: {error}"),
            ),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status(), Json(json!({"error": self}))).into_response()
    }
}
