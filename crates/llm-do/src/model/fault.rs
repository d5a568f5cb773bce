//! What a provider says went wrong → what to do about it. The shapes of error bodies differ by provider and by the
//! proxy in between, so all of them are read leniently, in one place.

use std::time::Duration;

use serde_json::Value;

use super::{Fault, ModelError};

/// For an answer with an error status.
pub(crate) fn of_answer(status: u16, body: &[u8]) -> ModelError {
    let mut said = FaultDetails::read(body);
    said.fault.status = Some(status);
    if said.fault.message.is_empty() {
        said.fault.message = excerpt(body).unwrap_or_else(|| "the provider gave no reason".to_owned());
    }
    said.consequence(Some(status))
}

/// For an error that a provider reports inside of an answer with a good status.
pub(crate) fn in_answer(error: &[u8]) -> ModelError {
    let mut said = FaultDetails::read(error);
    if said.fault.message.is_empty() {
        said.fault.message = excerpt(error).unwrap_or_else(|| "the provider reported an error".to_owned());
    }
    let status = said.status;
    said.consequence(status)
}

#[derive(Default)]
struct FaultDetails {
    fault: Fault,
    /// Type and code, whichever there are.
    kinds: Vec<String>,
    /// The status that the error itself names.
    status: Option<u16>,
}

impl FaultDetails {
    fn read(body: &[u8]) -> Self {
        let Ok(whole) = serde_json::from_slice::<Value>(body) else { return Self::default() };
        let whole = whole.get(0).unwrap_or(&whole);
        let error = match whole.get("error") {
            Some(error) if !error.is_null() => error,
            Some(_) | None => whole,
        };
        let field = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let mut kinds: Vec<String> =
            ["code", "type", "status"].iter().filter_map(|name| field(name)).map(str::to_owned).collect();
        let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
        kinds.extend(details.filter_map(|detail| detail.get("reason")?.as_str()).map(str::to_owned));
        let status = ["status_code", "code"].iter().find_map(|name| error.get(name)?.as_u64());
        let request_id = whole.get("request_id").and_then(Value::as_str).map(Box::from);
        let retry_after = retry_delay(error);
        let fault =
            Fault { message: message_of(error), status: None, kind: kinds.first().cloned(), request_id, retry_after };
        let status = status.and_then(|status| u16::try_from(status).ok()).filter(|status| (400..600).contains(status));
        Self { fault, kinds, status }
    }

    fn consequence(self, status: Option<u16>) -> ModelError {
        let is = |known: &[&str]| self.kinds.iter().any(|kind| known.contains(&kind.as_str()));
        let too_long = is(TOO_LONG_KINDS) || (status != Some(429) && speaks_of_length(&self.fault.message));
        if too_long {
            return ModelError::ContextTooLong(self.fault);
        }
        if is(&["insufficient_quota", "billing_error"]) {
            return ModelError::Authenticate(self.fault); // waiting does not fill an account
        }
        if is(&["API_KEY_INVALID"]) {
            return ModelError::Authenticate(self.fault); // which comes as a bad request
        }
        if is(&["tool_use_failed"]) {
            return ModelError::Garbled(self.fault); // the model wrote a call that the provider could not read
        }
        match status {
            Some(401..=403) => ModelError::Authenticate(self.fault),
            Some(413) => ModelError::ContextTooLong(self.fault),
            Some(408 | 409 | 425 | 429 | 500..) => ModelError::Wait(self.fault),
            Some(_) => ModelError::FixRequest(self.fault),
            None if is(REFUSED_KINDS) => ModelError::FixRequest(self.fault),
            None if is(&["authentication_error", "permission_error", "invalid_api_key"]) => {
                ModelError::Authenticate(self.fault)
            }
            // What breaks in the middle of an answer is the provider's trouble unless it says otherwise.
            None => ModelError::Wait(self.fault),
        }
    }
}

/// Google says it among the details: `{"@type": "…/google.rpc.RetryInfo", "retryDelay": "34.07s"}`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

fn message_of(error: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    };
    if let Value::String(message) = error {
        return message.clone();
    }
    let message = ["message", "detail"].iter().find_map(|name| error.get(name).and_then(text)).unwrap_or_default();
    // A router's own message says little; what it got from behind says more.
    match error.pointer("/metadata/raw").and_then(text) {
        Some(behind) => format!("{message}: {behind}"),
        None => message,
    }
}

/// Of errors without a status: what is wrong with the request.
const REFUSED_KINDS: &[&str] = &[
    "invalid_request_error",
    "not_found_error",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "invalid_prompt",
    "invalid_image",
    "invalid_image_format",
    "invalid_base64_image",
    "invalid_image_mode",
    "image_too_large",
    "image_too_small",
    "image_parse_error",
    "image_content_policy_violation",
    "image_file_too_large",
    "unsupported_image_media_type",
    "empty_image_file",
];

const TOO_LONG_KINDS: &[&str] =
    &["context_length_exceeded", "request_too_large", "exceed_context_size_error", "model_context_window_exceeded"];

/// Whether the message says that the conversation is too long: most providers say it in words only.
fn speaks_of_length(message: &str) -> bool {
    const PHRASES: &[&str] = &[
        "prompt is too long",
        "maximum context length",
        "maximum prompt length",
        "context length exceeded",
        "exceed context limit",
        "exceeds the context window",
        "exceeds the available context size",
        "reduce the length of the messages",
        "exceeds the maximum number of tokens allowed",
    ];
    let message = message.to_lowercase();
    PHRASES.iter().any(|phrase| message.contains(phrase))
}

/// The beginning of a body that is no JSON, for people.
fn excerpt(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&body[..body.len().min(2000)]);
    let text: String = text.trim().chars().take(500).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(message: &str, status: Option<u16>, kind: Option<&str>) -> Fault {
        Fault { message: message.into(), status, kind: kind.map(str::to_owned), ..Fault::default() }
    }

    #[test]
    fn error_answers_are_told_apart_by_what_to_do() {
        use ModelError::{Authenticate, ContextTooLong, FixRequest, Garbled, Wait};
        let cases: [(u16, &str, ModelError); 16] = [
            (
                400,
                r#"{"error":{"message":"bad role","type":"invalid_request_error","code":"unsupported_value"}}"#,
                FixRequest(fault("bad role", Some(400), Some("unsupported_value"))),
            ),
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"no"}}"#,
                Authenticate(fault("no", Some(401), Some("authentication_error"))),
            ),
            (
                402,
                r#"{"error":{"message":"Insufficient Balance"}}"#,
                Authenticate(fault("Insufficient Balance", Some(402), None)),
            ),
            (
                429,
                r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#,
                Authenticate(fault("pay", Some(429), Some("insufficient_quota"))),
            ),
            (
                429,
                r#"{"error":{"code":429,"message":"Provider returned error","metadata":{"raw":"try later"}}}"#,
                Wait(fault("Provider returned error: try later", Some(429), None)),
            ),
            (
                529,
                r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Wait(fault("Overloaded", Some(529), Some("overloaded_error"))),
            ),
            (503, "<html>gone</html>", Wait(fault("<html>gone</html>", Some(503), None))),
            (500, "", Wait(fault("the provider gave no reason", Some(500), None))),
            (404, r#"{"error":"model not found"}"#, FixRequest(fault("model not found", Some(404), None))),
            (422, r#"{"detail":[{"msg":"extra"}]}"#, FixRequest(fault(r#"[{"msg":"extra"}]"#, Some(422), None))),
            (
                400,
                r#"[{"error":{"code":400,"message":"no such field","status":"INVALID_ARGUMENT"}}]"#,
                FixRequest(fault("no such field", Some(400), Some("INVALID_ARGUMENT"))),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                Authenticate(fault("no", Some(400), Some("INVALID_ARGUMENT"))),
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens > 2 maximum"}}"#,
                ContextTooLong(fault(
                    "prompt is too long: 3 tokens > 2 maximum",
                    Some(400),
                    Some("invalid_request_error"),
                )),
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8","code":"context_length_exceeded"}}"#,
                ContextTooLong(fault(
                    "This model's maximum context length is 8",
                    Some(400),
                    Some("context_length_exceeded"),
                )),
            ),
            (413, r#"{"error":{"message":"too big"}}"#, ContextTooLong(fault("too big", Some(413), None))),
            (
                400,
                r#"{"error":{"message":"failed","type":"invalid_request_error","code":"tool_use_failed"}}"#,
                Garbled(fault("failed", Some(400), Some("tool_use_failed"))),
            ),
        ];
        for (status, body, expected) in cases {
            assert_eq!(of_answer(status, body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_wait_may_be_asked_for_among_the_details() {
        let cases = [
            (
                r#"[{"@type":"a"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]"#,
                Some(34.5),
            ),
            (r#"[{"retryDelay":"0s"}]"#, Some(0.0)),
            (r#"[{"retryDelay":"-1s"}]"#, None),
            (r#"[{"retryDelay":"1e300s"}]"#, None),
            (r#"[{"retryDelay":"soon"},{"retryDelay":7}]"#, None),
            (r#"{"retryDelay":"1s"}"#, None),
        ];
        for (details, seconds) in cases {
            let body = format!(r#"{{"error":{{"code":429,"status":"RESOURCE_EXHAUSTED","details":{details}}}}}"#);
            for error in [of_answer(429, body.as_bytes()), in_answer(body.as_bytes())] {
                assert!(matches!(error, ModelError::Wait(_)), "{error:?}");
                assert_eq!(error.fault().retry_after, seconds.map(Duration::from_secs_f64), "{details}");
            }
        }
    }

    #[test]
    fn errors_inside_of_an_answer_name_their_own_status_or_none() {
        let cases = [
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, "Wait"),
            (r#"{"error":{"code":400,"message":"Token limit reached"}}"#, "FixRequest"),
            (r#"{"error":{"code":502,"message":"bad gateway"}}"#, "Wait"),
            (r#"{"message":"m","type":"invalid_request_error","status_code":400}"#, "FixRequest"),
            (r#"{"error":{"type":"invalid_request_error","message":"m"}}"#, "FixRequest"),
            (r#"{"error":{"type":"authentication_error","message":"m"}}"#, "Authenticate"),
            (r#"{"code":"image_too_large","message":"m"}"#, "FixRequest"),
            (r#"{"type":"error","code":"rate_limit_exceeded","message":"m","param":null}"#, "Wait"),
            (r#""it broke""#, "Wait"),
            ("", "Wait"),
        ];
        for (body, expected) in cases {
            let error = format!("{:?}", in_answer(body.as_bytes()));
            assert!(error.starts_with(expected), "{body}: {error}");
        }
    }
}
