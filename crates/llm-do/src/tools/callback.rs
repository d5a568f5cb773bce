//! What code in another process asks from inside a call of ours, be it a project's Python or a client's: one way for
//! all.

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::rpc::{RpcError, RpcRequest, code};
use super::{CallContext, ToolError, attachment};
use crate::message::{Attachment, Content, Message, RawJson};
use crate::underway::Underway;

/// The methods that belong to a call that is under way.
#[cfg(feature = "front-end")]
pub const METHODS: [&str; 6] = ["call", "call_agent", "is_untyped", "tools", "usage", "trace"];

/// Waits for an answer, and serves meanwhile what the code that works on it asks, with the context of its call.
/// `given` turns what an agent (by its name) or a tool gave into what the code is told.
#[cfg(feature = "front-end")]
pub async fn while_serving<T>(
    answer: impl Future<Output = T>,
    requests: mpsc::UnboundedReceiver<RpcRequest>,
    cx: &CallContext<'_>,
    given: impl Fn(&[Content], Option<&str>) -> RawJson,
) -> T {
    match while_serving_within(Duration::ZERO, answer, requests, cx, given).await {
        Some(answer) => answer,
        None => std::future::pending().await,
    }
}

/// The same within a time, which passes only while the code does not wait for what it has asked; zero is for ever.
/// `None` when it is over.
pub(crate) async fn while_serving_within<T>(
    time: Duration,
    answer: impl Future<Output = T>,
    mut requests: mpsc::UnboundedReceiver<RpcRequest>,
    cx: &CallContext<'_>,
    given: impl Fn(&[Content], Option<&str>) -> RawJson,
) -> Option<T> {
    let mut answer = std::pin::pin!(answer);
    let mut served = Underway::default();
    let given = &given;
    let serve = |request: RpcRequest| request.serve(|method, params| answered(method, params, cx, given));
    let mut left = time;
    loop {
        let (began, works) = (Instant::now(), served.is_empty());
        tokio::select! {
            answer = &mut answer => return Some(answer),
            Some(request) = requests.recv() => served.push(serve(request)),
            () = served.next() => {}
            () = tokio::time::sleep(left), if works && !time.is_zero() => return None,
        }
        if works {
            left = left.saturating_sub(began.elapsed());
        }
    }
}

async fn answered(
    method: String,
    params: RawJson,
    cx: &CallContext<'_>,
    given: &impl Fn(&[Content], Option<&str>) -> RawJson,
) -> Result<RawJson, RpcError> {
    #[derive(Deserialize)]
    struct ByName {
        #[serde(alias = "agent", default)]
        name: String,
        #[serde(default)]
        input: Option<RawJson>,
    }
    let malformed = |error: serde_json::Error| RpcError::told(code::INVALID_PARAMS, error.to_string());
    let ByName { name, input } = params.to().map_err(malformed)?;
    let input = input.unwrap_or_else(|| RawJson::of(&json!({})));
    let is_agent = method == "call_agent" || cx.plane.has_agent(&name) || !cx.plane.has(&name);
    let input = passed_on(input, is_agent, cx);
    let value = |value: Value| Ok(RawJson::of(&json!({"value": value})));
    let called = match method.as_str() {
        "call" => cx.call(&name, &input).await,
        "call_agent" => cx.call_agent(&name, &input).await,
        "is_untyped" => return value(json!(is_agent && cx.agents.is_untyped(&name))),
        "tools" => return value(json!(cx.tools())),
        "usage" => return value(json!(cx.usage())),
        "trace" => return value(json!(cx.trace())),
        unknown => return Err(RpcError::told(code::METHOD_NOT_FOUND, format!("there is no `{unknown}`"))),
    };
    let content = called.map_err(|error| match error {
        ToolError::Ends(ending) => RpcError::told(code::ENDS, ending.to_string()),
        error @ (ToolError::Failed(_) | ToolError::Changed) => RpcError::told(code::FAILED, error.to_string()),
    })?;
    Ok(given(&content, is_agent.then_some(&name)))
}

/// What a tool or an agent gave, as code gets it: text is text, a value a value.
pub fn value_of(content: &[Content]) -> RawJson {
    let value = match content {
        [Content::Value { json }] => serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.clone())),
        content => Value::String(Content::shown(content)),
    };
    RawJson::of(&json!({"value": value}))
}

/// How much of a call its code may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Where in the run the call is, but not what was said.
    Place,
    /// All that can be seen.
    Full,
}

/// A call as its code sees it, with the messages in whatever form is sent.
#[derive(Debug, Serialize)]
pub struct CallView<'a, M> {
    agent: &'a str,
    depth: usize,
    path: &'a [String],
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<M>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Value>,
    /// What its code hands on to whoever works for it, as W3C Trace Context writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

impl<'a, M> CallView<'a, M> {
    /// What code may see of this call. The messages are put into the form that is sent only if it may see them.
    pub fn of(sight: Sight, cx: &'a CallContext<'a>, messages: impl FnOnce(&'a [Message]) -> M) -> Self {
        let full = sight == Sight::Full;
        Self {
            agent: cx.agent,
            depth: cx.depth,
            path: cx.path,
            model: cx.model,
            prompt: full.then(|| Content::shown(cx.input)),
            messages: full.then(|| messages(cx.messages)),
            attachments: if full { files(cx) } else { Vec::new() },
            traceparent: cx.traceparent(),
        }
    }
}

/// The files that the caller was given, as its code is told of them: by their paths, or, if they have none, with all
/// that they hold.
fn files(cx: &CallContext<'_>) -> Vec<Value> {
    let file = |file: &Attachment| match &file.path {
        Some(path) => json!({"name": file.name, "media_type": file.media_type, "path": path}),
        None => json!(file),
    };
    cx.attachments().map(file).collect()
}

/// An input in which files that the caller was given itself have a name that agents know them by; other tools get their
/// paths.
fn passed_on(input: RawJson, is_agent: bool, cx: &CallContext<'_>) -> RawJson {
    if !input.get().contains("\"given\"") {
        return input;
    }
    let Ok(mut value) = input.to::<Value>() else { return input };
    let named = |file: &mut Value| {
        let number = file.get("given").and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
        let Some(given) = number.and_then(|number| cx.attachments().nth(number)) else { return };
        cx.agents.hold(given);
        let path = || given.path.as_ref().unwrap_or(&given.name).clone();
        *file = if is_agent { attachment::as_held(given) } else { Value::String(path()) };
    };
    match &mut value {
        Value::Object(fields) => {
            for field in fields.values_mut() {
                match field {
                    Value::Array(items) => items.iter_mut().for_each(named),
                    field => named(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().filter_map(|item| item.get_mut("attachment")).for_each(named),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    RawJson::of(&value)
}
