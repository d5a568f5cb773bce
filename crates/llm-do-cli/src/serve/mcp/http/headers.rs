//! What the headers of a request say of it again, so that those in between can route it: they must agree with the body. Pure.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use llm_do::rpc::RpcError;
use serde_json::{Value, json};

use crate::serve::mcp::protocol::{HEADERS, VERSION_KEY, told};

pub const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// A header that is there once and is text, without blanks around it.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let (only, None) = (all.next()?, all.next()) else { return None };
    only.to_str().ok().map(str::trim)
}

/// Which member of the parameters the name of a request is.
fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// A revision that the header names is the one that the body names, whether it is spoken here or not.
pub fn check_version(headers: &HeaderMap, params: &Value) -> Result<(), RpcError> {
    let version = params.get("_meta").and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str);
    match (text(headers, VERSION), version) {
        (Some(given), Some(meant)) => agree("MCP-Protocol-Version", Some(given), Some(meant)),
        (None, _) | (_, None) => Ok(()),
    }
}

/// Holds the headers of a request against its body.
pub fn check(headers: &HeaderMap, method: &str, params: &Value) -> Result<(), RpcError> {
    let version = params.get("_meta").and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str);
    agree("MCP-Protocol-Version", text(headers, VERSION), version)?;
    agree("Mcp-Method", text(headers, METHOD), Some(method))?;
    let Some(member) = named_by(method) else { return Ok(()) };
    let Some(name) = params.get(member).and_then(Value::as_str) else { return Ok(()) };
    let given = match text(headers, NAME).map(|text| (text, decoded(text))) {
        Some((_, Some(name))) => Some(name),
        Some((text, None)) => return Err(mismatch("Mcp-Name", &format!("`{text}` cannot be decoded"))),
        None => None,
    };
    agree("Mcp-Name", given.as_deref(), Some(name))
}

fn agree(header: &str, given: Option<&str>, meant: Option<&str>) -> Result<(), RpcError> {
    match given {
        None => Err(mismatch(header, "it is missing")),
        Some(_) if given == meant => Ok(()),
        Some(given) => {
            let meant = meant.unwrap_or_default();
            Err(mismatch(header, &format!("it says `{given}`, and the body says `{meant}`")))
        }
    }
}

fn mismatch(header: &str, what: &str) -> RpcError {
    told(HEADERS, format!("`{header}`: {}", llm_do::escape::visible(what)), &json!({"header": header}))
}

/// A name that is not plain ASCII is written as `=?base64?…?=`.
fn decoded(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(text.to_owned());
    };
    String::from_utf8(STANDARD.decode(inner).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn checked(headers: &[(&str, &str)], method: &str, params: &Value) -> Result<(), String> {
        let pairs = headers.iter().map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        });
        check(&pairs.collect(), method, params).map_err(|error| error.to_string())
    }

    #[test]
    fn headers_say_what_the_body_says() {
        let params = json!({"name": "grüß", "taskId": "t", "_meta": {VERSION_KEY: "2026-07-28"}});
        let version = (VERSION, "2026-07-28");
        let call = (METHOD, "tools/call");
        let name = (NAME, "=?base64?Z3LDvMOf?=");
        assert_eq!(checked(&[version, call, name], "tools/call", &params), Ok(()));
        assert_eq!(checked(&[version, (METHOD, " tools/list ")], "tools/list", &params), Ok(()));
        assert_eq!(checked(&[version, (METHOD, "tasks/get"), (NAME, "t")], "tasks/get", &params), Ok(()));
        for (headers, wrong) in [
            (vec![call, name], "MCP-Protocol-Version"),
            (vec![(VERSION, "2025-11-25"), call, name], "MCP-Protocol-Version"),
            (vec![version, name], "Mcp-Method"),
            (vec![version, (METHOD, "tools/list"), name], "Mcp-Method"),
            (vec![version, call], "Mcp-Name"),
            (vec![version, call, (NAME, "other")], "Mcp-Name"),
            (vec![version, call, (NAME, "=?base64?%?=")], "Mcp-Name"),
            (vec![version, version, call, name], "MCP-Protocol-Version"),
        ] {
            let refused = checked(&headers, "tools/call", &params).unwrap_err();
            assert!(refused.starts_with(&format!("`{wrong}`")), "{refused}");
        }
    }
}
