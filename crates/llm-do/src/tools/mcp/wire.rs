//! The words of revision 2026-07-28, for whoever speaks it: this program as a client of servers, and as a server. Pure.
//!
//! There is no opening and no session: each request says in `_meta` which revision it speaks and what its client can do. A
//! server that wants something of a person answers with `input_required`, and is asked again with the answers.

pub mod elicitation;
pub mod header;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::message::RawJson;
use elicitation::{ElicitParams, ElicitResult};

/// The revision whose words these are.
pub const MODERN: &str = "2026-07-28";
/// The revisions before it, the newest first: they open with `initialize`.
pub const WITH_INITIALIZE: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The extension of long calls, as both sides name it among their `extensions`.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Keys of `_meta`.
pub mod meta {
    /// Of each request: the revision that it speaks.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Of each request: what its client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Of a request: who its client is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Of a request: what its client hears of the server's log; without it nothing.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Of a result: who the server is.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Of a message within `subscriptions/listen`: the id of that request.
    pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
}

/// Error codes of the revision, besides those of JSON-RPC.
pub mod code {
    /// Headers that say otherwise than the body: status 400.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client lacks a capability that the request takes: status 400.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The revision is not spoken; `data.supported` has those that are: status 400.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// What a client can do for servers, as its requests say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientAbilities {
    /// A person can be asked to fill in a form.
    pub forms: bool,
    /// A person can be asked to open an address.
    pub addresses: bool,
    /// Long calls may come back as tasks.
    pub tasks: bool,
}

impl ClientAbilities {
    /// As `clientCapabilities`.
    pub fn to_json(self) -> Value {
        let mut all = serde_json::Map::new();
        let modes = [("form", self.forms), ("url", self.addresses)];
        let modes: serde_json::Map<_, _> =
            modes.into_iter().filter(|(_, has)| *has).map(|(mode, _)| (mode.to_owned(), json!({}))).collect();
        if !modes.is_empty() {
            all.insert("elicitation".to_owned(), Value::Object(modes));
        }
        if self.tasks {
            all.insert("extensions".to_owned(), json!({TASKS: {}}));
        }
        Value::Object(all)
    }

    /// Of `clientCapabilities`. Elicitation without a mode means forms.
    pub fn read(capabilities: &Value) -> Self {
        let has = |value: &Value, key: &str| value.get(key).is_some_and(Value::is_object);
        let elicitation = capabilities.get("elicitation").filter(|value| value.is_object());
        let addresses = elicitation.is_some_and(|modes| has(modes, "url"));
        let forms = elicitation.is_some_and(|modes| has(modes, "form") || !addresses);
        Self { forms, addresses, tasks: capabilities.get("extensions").is_some_and(|all| has(all, TASKS)) }
    }
}

/// `_meta` of a request: what a server has to know of it, as there was no opening.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestMeta {
    /// The revision that it speaks.
    pub version: String,
    /// What its client can do.
    pub client: ClientAbilities,
}

impl RequestMeta {
    /// Of the parameters of a request. `None` if it is none of this revision; an error if it lacks what this revision
    /// wants.
    pub fn read(params: &RawJson) -> Option<Result<Self, String>> {
        #[derive(Deserialize)]
        struct WithMeta {
            #[serde(rename = "_meta")]
            meta: Option<BTreeMap<String, Value>>,
        }
        let meta = params.to::<WithMeta>().ok()?.meta?;
        let version = meta.get(meta::PROTOCOL_VERSION)?;
        let Some(version) = version.as_str().map(str::to_owned) else {
            return Some(Err(format!("`{}` is no text", meta::PROTOCOL_VERSION)));
        };
        let Some(capabilities) = meta.get(meta::CLIENT_CAPABILITIES).filter(|value| value.is_object()) else {
            return Some(Err(format!("`_meta` has no `{}`", meta::CLIENT_CAPABILITIES)));
        };
        Some(Ok(Self { version, client: ClientAbilities::read(capabilities) }))
    }

    /// The entries of `_meta` that say this.
    pub fn entries(&self) -> Vec<(&'static str, Value)> {
        let info = json!({"name": "llm-do", "version": env!("CARGO_PKG_VERSION")});
        vec![
            (meta::PROTOCOL_VERSION, json!(self.version)),
            (meta::CLIENT_CAPABILITIES, self.client.to_json()),
            (meta::CLIENT_INFO, info),
        ]
    }
}

/// What a server asks for within an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRequest {
    /// `elicitation/create`; any other is not offered here.
    pub method: String,
    /// Its parameters.
    #[serde(default = "nothing")]
    pub params: RawJson,
}

fn nothing() -> RawJson {
    RawJson::from_valid("{}".to_owned())
}

/// The method by which a person is asked.
pub const ELICIT: &str = "elicitation/create";

impl InputRequest {
    /// A question to a person.
    pub fn elicit(params: &ElicitParams) -> Self {
        Self { method: ELICIT.to_owned(), params: RawJson::of(params) }
    }
}

/// What a server asks for, by keys of its own.
pub type InputRequests = BTreeMap<String, InputRequest>;
/// What it is answered, by the same keys.
pub type InputResponses = BTreeMap<String, ElicitResult>;

/// A result by its `resultType`.
#[derive(Clone, Debug, PartialEq)]
pub enum ResultShape {
    /// It is what was asked for; a result without a type is that, too.
    Complete(RawJson),
    /// Somebody has to answer first.
    InputRequired(InputRequired),
    /// It takes long, and is asked for later.
    Task(Task),
}

/// A result that asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequired {
    /// What is asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub input_requests: InputRequests,
    /// The server's own, sent back as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It goes on.
    Working,
    /// It asks, with `inputRequests`.
    InputRequired,
    /// It has a `result`.
    Completed,
    /// It has an `error`.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// A call that takes long, as a result and as `tasks/get` tell of it.
#[allow(clippy::struct_field_names, reason = "the protocol names it so")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// By which it is asked for.
    pub task_id: String,
    /// How far it is.
    pub status: TaskStatus,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// When it began, as ISO 8601.
    #[serde(default)]
    pub created_at: String,
    /// When it last changed.
    #[serde(default)]
    pub last_updated_at: String,
    /// How long it is kept; nothing is for ever.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
    /// How often it should be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval_ms: Option<u64>,
    /// What it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub input_requests: InputRequests,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// Why it failed: an error of JSON-RPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RawJson>,
}

/// More questions than a person is asked at once.
pub const MOST_INPUT_REQUESTS: usize = 8;
/// A state that is sent back as it came, with each request.
const LONGEST_STATE: usize = 64 * 1024;
const LONGEST_TASK_ID: usize = 1_000;

impl ResultShape {
    /// Which one a result is. The error says why it is none.
    pub fn read(result: &RawJson) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct TypedResult {
            #[serde(default)]
            result_type: Option<String>,
        }
        let typed = result.to::<TypedResult>().ok().and_then(|typed| typed.result_type);
        let unreadable = |error: serde_json::Error| super::protocol::in_short(&error);
        match typed.as_deref() {
            None | Some("complete") => Ok(Self::Complete(result.clone())),
            Some("input_required") => {
                let asked: InputRequired = result.to().map_err(unreadable)?;
                asked.check()?;
                Ok(Self::InputRequired(asked))
            }
            Some("task") => {
                let task: Task = result.to().map_err(unreadable)?;
                task.check()?;
                Ok(Self::Task(task))
            }
            Some(other) => Err(format!("a result of the type `{}`", crate::escape::visible_start(other, 40))),
        }
    }

    /// The result as it is sent.
    pub fn to_json(&self) -> RawJson {
        let (kind, body) = match self {
            Self::Complete(result) => ("complete", result.to().unwrap_or_else(|_| json!({}))),
            Self::InputRequired(asked) => ("input_required", json!(asked)),
            Self::Task(task) => ("task", json!(task)),
        };
        let Value::Object(mut body) = body else { return RawJson::of(&json!({"resultType": kind})) };
        body.insert("resultType".to_owned(), json!(kind));
        RawJson::of(&body)
    }
}

impl InputRequired {
    fn check(&self) -> Result<(), String> {
        if self.input_requests.is_empty() && self.request_state.is_none() {
            return Err("it asks for input and says for none".to_owned());
        }
        if self.input_requests.len() > MOST_INPUT_REQUESTS {
            return Err(format!("it asks for more than {MOST_INPUT_REQUESTS} inputs at once"));
        }
        if self.request_state.as_ref().is_some_and(|state| state.len() > LONGEST_STATE) {
            return Err(format!("its `requestState` has more than {LONGEST_STATE} bytes"));
        }
        Ok(())
    }
}

impl Task {
    /// As `tasks/get` answers.
    pub fn read(result: &RawJson) -> Result<Self, String> {
        let task: Self = result.to().map_err(|error| super::protocol::in_short(&error))?;
        task.check()?;
        Ok(task)
    }

    fn check(&self) -> Result<(), String> {
        if self.task_id.is_empty() || self.task_id.len() > LONGEST_TASK_ID {
            return Err("its task has no usable id".to_owned());
        }
        if self.input_requests.len() > MOST_INPUT_REQUESTS {
            return Err(format!("its task asks for more than {MOST_INPUT_REQUESTS} inputs at once"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_can_do_is_read_as_it_was_said() {
        for bits in 0..8_u8 {
            let abilities = ClientAbilities { forms: bits & 1 > 0, addresses: bits & 2 > 0, tasks: bits & 4 > 0 };
            assert_eq!(ClientAbilities::read(&abilities.to_json()), abilities);
        }
        assert!(ClientAbilities::read(&json!({"elicitation": {}})).forms, "without a mode it means forms");
    }

    #[test]
    fn a_request_says_what_it_is() {
        let said = RequestMeta { version: MODERN.to_owned(), client: ClientAbilities::default() };
        let meta: BTreeMap<&str, Value> = said.entries().into_iter().collect();
        let params = RawJson::of(&json!({"_meta": meta, "name": "x"}));
        assert_eq!(RequestMeta::read(&params), Some(Ok(said)));
        assert_eq!(RequestMeta::read(&RawJson::of(&json!({"name": "x"}))), None);
        let lacking = RawJson::of(&json!({"_meta": {meta::PROTOCOL_VERSION: MODERN}}));
        assert!(RequestMeta::read(&lacking).unwrap().unwrap_err().contains("clientCapabilities"));
    }

    #[test]
    fn results_are_what_they_say() {
        let read = |value: Value| ResultShape::read(&RawJson::of(&value));
        let plain = json!({"content": []});
        assert_eq!(read(plain.clone()), Ok(ResultShape::Complete(RawJson::of(&plain))));
        let params =
            ElicitParams::Form { message: "Which?".into(), requested: RawJson::of(&json!({"type": "object"})) };
        let asked = InputRequired {
            input_requests: BTreeMap::from([("q".to_owned(), InputRequest::elicit(&params))]),
            request_state: Some("s".into()),
        };
        let shapes = [
            ResultShape::InputRequired(asked),
            ResultShape::Task(Task {
                task_id: "t".into(),
                status: TaskStatus::Working,
                status_message: None,
                created_at: "2026-07-28T00:00:00Z".into(),
                last_updated_at: "2026-07-28T00:00:00Z".into(),
                ttl_ms: None,
                poll_interval_ms: Some(5),
                input_requests: BTreeMap::new(),
                result: None,
                error: None,
            }),
        ];
        for shape in shapes {
            assert_eq!(ResultShape::read(&shape.to_json()), Ok(shape));
        }
        for wrong in [
            json!({"resultType": "input_required"}),
            json!({"resultType": "task", "taskId": "", "status": "working"}),
            json!({"resultType": "task", "taskId": "t", "status": "resting"}),
            json!({"resultType": "later\u{1b}"}),
        ] {
            assert!(read(wrong).is_err());
        }
    }
}
