//! The words of MCP, in its revision of July 2026 and in those before it: who asks, what results and errors look like. Pure.

use llm_do::RawJson;
use llm_do::rpc::{RpcError, code};
use serde_json::{Map, Value, json};

/// The revision without a handshake: each request says who asks.
pub const MODERN: &str = "2026-07-28";
/// Those with one, the newest first.
const WITH_HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// Only one run has this key, as with `--once`.
pub const ONCE_KEY: &str = "llm-do/once";
/// Which run a result is of.
pub const RUN_KEY: &str = "llm-do/run";

/// What the headers say differs from the request, or a header is missing.
pub const HEADERS: i64 = -32020;
/// The client lacks what the request needs.
pub const CAPABILITY: i64 = -32021;
/// The revision is not spoken here.
pub const VERSION: i64 = -32022;

/// Long lists may be kept for so long, in milliseconds.
const LIST_LASTS: u64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpEra {
    Modern,
    WithHandshake,
}

/// Who asks, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpClient {
    pub era: McpEra,
    /// It shows forms to whoever drives it.
    pub elicits: bool,
    pub has_tasks: bool,
    /// As it calls itself.
    pub name: String,
}

impl McpClient {
    /// One that said nothing of itself.
    pub fn silent() -> Self {
        Self { era: McpEra::WithHandshake, elicits: false, has_tasks: false, name: String::new() }
    }

    /// What `initialize` says of it.
    pub fn introduced(params: &Value) -> Self {
        let name = name_of(params.get("clientInfo"));
        let capabilities = params.get("capabilities").unwrap_or(&Value::Null);
        Self { era: McpEra::WithHandshake, elicits: elicits(capabilities), has_tasks: false, name }
    }

    /// What a request says of it: nothing, if it is one of an older revision.
    pub fn of_request(params: &Value) -> Result<Option<Self>, RpcError> {
        let meta = params.get("_meta").and_then(Value::as_object);
        let said = |key: &str| meta.and_then(|meta| meta.get(key));
        if [VERSION_KEY, CAPABILITIES_KEY, CLIENT_KEY].iter().all(|key| said(key).is_none()) {
            return Ok(None);
        }
        let missing = |key: &str| RpcError::told(code::INVALID_PARAMS, format!("`_meta` lacks `{key}`"));
        let version = said(VERSION_KEY).and_then(Value::as_str).ok_or_else(|| missing(VERSION_KEY))?;
        let capabilities =
            said(CAPABILITIES_KEY).filter(|it| it.is_object()).ok_or_else(|| missing(CAPABILITIES_KEY))?;
        if version != MODERN {
            return Err(unspoken(version));
        }
        let has_tasks = capabilities.get("extensions").is_some_and(|it| it.get(TASKS).is_some());
        let name = name_of(said(CLIENT_KEY));
        Ok(Some(Self { era: McpEra::Modern, elicits: elicits(capabilities), has_tasks, name }))
    }

    /// As it is named where its answers are listed.
    pub fn answers_as(&self, user: &str) -> String {
        let name = if self.name.is_empty() { "a client" } else { &self.name };
        format!("{user}, by {name} over MCP")
    }
}

fn name_of(info: Option<&Value>) -> String {
    const LONGEST: usize = 60;
    let name = info.and_then(|info| info.get("name")).and_then(Value::as_str).unwrap_or_default();
    llm_do::escape::visible(name).chars().take(LONGEST).collect()
}

/// An empty object means forms, as it did before there was anything else.
fn elicits(capabilities: &Value) -> bool {
    let forms = capabilities.get("elicitation").and_then(Value::as_object);
    forms.is_some_and(|modes| modes.contains_key("form") || !modes.contains_key("url"))
}

/// The revision is not spoken here; this one is.
pub fn unspoken(requested: &str) -> RpcError {
    let shown = llm_do::escape::visible(requested);
    told(
        VERSION,
        format!("the revision `{shown}` is not spoken here"),
        &json!({"supported": [MODERN], "requested": requested}),
    )
}

pub fn told(code: i64, message: impl Into<String>, data: &Value) -> RpcError {
    RpcError::Told { code, message: message.into(), data: Some(RawJson::of(data)) }
}

pub fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::told(code::INVALID_PARAMS, message)
}

pub fn no_method(method: &str) -> RpcError {
    RpcError::told(code::METHOD_NOT_FOUND, format!("there is no method `{}`", llm_do::escape::visible(method)))
}

/// A client asks for what it did not say it can do.
pub fn lacks_tasks() -> RpcError {
    told(
        CAPABILITY,
        "this is for clients with the extension for tasks",
        &json!({"requiredCapabilities": {"extensions": {TASKS: {}}}}),
    )
}

fn server_info() -> Value {
    json!({"name": "llm-do", "version": env!("CARGO_PKG_VERSION")})
}

/// What `initialize` is answered: the revision that was asked for, or the newest that has a handshake.
pub fn initialized(params: &Value) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let version = WITH_HANDSHAKE.iter().find(|version| **version == asked).unwrap_or(&WITH_HANDSHAKE[0]);
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server_info()})
}

/// Whether a header names a revision that has a handshake.
pub fn has_handshake(version: &str) -> bool {
    WITH_HANDSHAKE.contains(&version)
}

/// What `server/discover` is answered.
pub fn discovered() -> Value {
    let capabilities = json!({"tools": {}, "extensions": {TASKS: {}}});
    listed(McpEra::Modern, json!({"supportedVersions": [MODERN], "capabilities": capabilities}))
}

/// A list that may be kept for a while.
pub fn listed(era: McpEra, result: Value) -> Value {
    match era {
        McpEra::Modern => with(complete(era, result), [("ttlMs", json!(LIST_LASTS)), ("cacheScope", json!("private"))]),
        McpEra::WithHandshake => result,
    }
}

/// A result, as each revision has it.
pub fn complete(era: McpEra, result: Value) -> Value {
    match era {
        McpEra::Modern => typed("complete", result),
        McpEra::WithHandshake => result,
    }
}

/// A result of the new revision, of this kind.
pub fn typed(kind: &str, result: Value) -> Value {
    let mut result = with(result, [("resultType", json!(kind))]);
    let meta = result.as_object_mut().map(|result| result.entry("_meta").or_insert_with(|| json!({})));
    if let Some(Value::Object(meta)) = meta {
        meta.insert(SERVER_KEY.to_owned(), server_info());
    }
    result
}

fn with<const COUNT: usize>(mut object: Value, members: [(&str, Value); COUNT]) -> Value {
    if let Value::Object(object) = &mut object {
        object.extend(members.map(|(name, value)| (name.to_owned(), value)));
    }
    object
}

/// The result of a call that came to an answer or failed: both are words for a model.
pub fn call_result(text: &str, structured: Option<Value>, is_error: bool, run: Option<&str>) -> Value {
    let mut result = Map::new();
    result.insert("content".to_owned(), json!([{"type": "text", "text": text}]));
    result.extend(structured.map(|value| ("structuredContent".to_owned(), value)));
    result.insert("isError".to_owned(), json!(is_error));
    result.extend(run.map(|run| ("_meta".to_owned(), json!({RUN_KEY: run}))));
    Value::Object(result)
}

/// A moment as the protocol writes it: `2026-07-28T12:00:00.000Z`.
pub fn timestamp(milliseconds: u64) -> String {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let of_years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_years + of_years / 4 - of_years / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = of_years + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(meta: &Value) -> Value {
        json!({"name": "x", "_meta": meta})
    }

    #[test]
    fn a_request_says_who_asks_or_is_one_of_an_older_revision() {
        assert_eq!(McpClient::of_request(&json!({})), Ok(None));
        assert_eq!(McpClient::of_request(&meta(&json!({"progressToken": 1}))), Ok(None));
        let whole = meta(&json!({
            VERSION_KEY: MODERN, CLIENT_KEY: {"name": "ide"},
            CAPABILITIES_KEY: {"elicitation": {}, "extensions": {TASKS: {}}},
        }));
        let client = McpClient { era: McpEra::Modern, elicits: true, has_tasks: true, name: "ide".to_owned() };
        assert_eq!(McpClient::of_request(&whole), Ok(Some(client)));
        for half in [json!({VERSION_KEY: MODERN}), json!({CAPABILITIES_KEY: {}}), json!({CLIENT_KEY: {"name": "x"}})] {
            let error = McpClient::of_request(&meta(&half)).unwrap_err();
            assert!(matches!(error, RpcError::Told { code: -32602, .. }), "{error:?}");
        }
        let other =
            McpClient::of_request(&meta(&json!({VERSION_KEY: "1900-01-01", CAPABILITIES_KEY: {}}))).unwrap_err();
        let RpcError::Told { code: VERSION, data: Some(data), .. } = other else { panic!("{other:?}") };
        assert_eq!(data.to::<Value>().unwrap(), json!({"supported": [MODERN], "requested": "1900-01-01"}));
    }

    #[test]
    fn forms_are_offered_by_an_empty_object_or_by_name() {
        for (capability, is_offered) in [
            (json!({"elicitation": {}}), true),
            (json!({"elicitation": {"form": {}}}), true),
            (json!({"elicitation": {"form": {}, "url": {}}}), true),
            (json!({"elicitation": {"url": {}}}), false),
            (json!({"elicitation": true}), false),
            (json!({}), false),
        ] {
            assert_eq!(elicits(&capability), is_offered, "{capability}");
        }
    }

    #[test]
    fn the_revision_is_the_one_that_was_asked_for_or_the_newest_with_a_handshake() {
        for (asked, given) in [
            ("2025-06-18", "2025-06-18"),
            ("2024-11-05", "2024-11-05"),
            ("2026-07-28", "2025-11-25"),
            ("x", "2025-11-25"),
        ] {
            assert_eq!(initialized(&json!({"protocolVersion": asked}))["protocolVersion"], given);
        }
    }

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (milliseconds, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_785_196_800_123, "2026-07-28T00:00:00.123Z"),
        ] {
            assert_eq!(timestamp(milliseconds), written);
        }
    }
}
