//! Every kind of event, written once: as listeners and front ends get it, with the JSON of its line and the schema of that,
//! and as a journal stores it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApprovalResult, CallEnd, CallKind, OutputStream, ToolReturn};
use crate::message::{Finish, RawJson, Usage};

/// Makes two enums of one. A line is a flat object with its `type` among its fields; raw JSON does not survive the buffer
/// in which such an object is read. So what is stored has the kind around its fields, and no field is flattened.
macro_rules! event_kinds {
    (
        $(#[$of_all:meta])*
        pub enum EventKind {
            $(
                $(#[doc = $of_kind:literal])*
                $kind:ident {
                    $(
                        $(#[doc = $of_field:literal])*
                        $(#[serde($($in_line:tt)*)])?
                        $field:ident: $type:ty,
                    )*
                },
            )*
        }
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
        #[serde(tag = "type", rename_all = "snake_case")]
        #[allow(missing_docs, reason = "a comment would change the schema of events; docs/events.md tells of them")]
        pub enum EventKind {
            $(
                $(#[doc = $of_kind])*
                $kind {
                    $(
                        $(#[doc = $of_field])*
                        $(#[serde($($in_line)*)])?
                        $field: $type,
                    )*
                },
            )*
        }

        #[derive(Serialize, Deserialize)]
        #[serde(remote = "EventKind", rename_all = "snake_case")]
        pub(super) enum StoredKind {
            $($kind { $($field: $type,)* },)*
        }
    };
}

event_kinds! {
    /// What happened. Every front end matches all variants, so that a new one cannot be overlooked.
    pub enum EventKind {
        CallStarted {
            name: String,
            kind: CallKind,
            input: RawJson,
            /// The call that made this one.
            parent: Option<u64>,
        },
        CallFinished {
            name: String,
            kind: CallKind,
            #[serde(flatten)]
            ended: CallEnd,
            duration_ms: u64,
            usage: Usage,
        },
        UserMessage {
            text: String,
        },
        TextDelta {
            text: String,
        },
        TextComplete {
            text: String,
        },
        ThinkingDelta {
            text: String,
        },
        ToolCalled {
            id: String,
            tool: String,
            arguments: RawJson,
            /// The `call` under which its code tells of what it calls; a tool that calls nothing has none.
            calls_as: Option<u64>,
        },
        ToolReturned {
            id: String,
            tool: String,
            #[serde(flatten)]
            returned: ToolReturn,
            duration_ms: u64,
        },
        /// How far a call has come, in its tool's own words.
        ToolProgressed {
            id: String,
            tool: String,
            progress: f64,
            total: Option<f64>,
            message: Option<String>,
        },
        ToolRefused {
            id: String,
            /// The agents and the code from the entry down.
            path: Vec<String>,
            tool: String,
            /// Unless they are no JSON object.
            arguments: Option<RawJson>,
            /// What the model wrote instead, or its beginning.
            #[serde(skip_serializing_if = "Option::is_none")]
            arguments_text: Option<String>,
            reason: String,
            /// Whether a rule or a person refused it; else it could not be used at all.
            judged: bool,
        },
        ApprovalAsked {
            id: String,
            path: Vec<String>,
            tool: String,
            arguments: RawJson,
            reason: String,
        },
        ApprovalAnswered {
            id: String,
            path: Vec<String>,
            tool: String,
            answer: ApprovalResult,
            note: Option<String>,
            /// Where the lasting rule stands that answered, if one did.
            rule: Option<String>,
        },
        ServerToolUsed {
            tool: String,
            input: Option<RawJson>,
            output: Option<RawJson>,
        },
        RequestStarted {
            model: String,
            /// How long the first byte of an answer is waited for; none where nothing is waited for.
            longest_wait_ms: Option<u64>,
        },
        RequestFinished {
            model: String,
            duration_ms: u64,
            usage: Usage,
            finish: Finish,
        },
        /// It gave no reply: refused, cut, or nobody waits for it any more. What it counts for is what was reported, or else
        /// an estimate; nothing if it was never sent.
        RequestFailed {
            model: String,
            duration_ms: u64,
            usage: Usage,
            error: String,
        },
        /// Nobody was asked: this was replied to the same request before, when it took what is saved.
        CacheHit {
            model: String,
            saved: Usage,
        },
        RetryScheduled {
            model: String,
            attempt: u32,
            wait_ms: u64,
            reason: String,
        },
        /// Another model of the agent is asked from here on.
        ModelSwitched {
            from: String,
            to: String,
            reason: String,
        },
        LimitApproached {
            limit: String,
            used: f64,
            allowed: f64,
        },
        LimitReached {
            limit: String,
            used: f64,
            allowed: f64,
        },
        /// A server is being started.
        ToolsetStarted {
            toolset: String,
        },
        ToolsetReady {
            toolset: String,
            tools: usize,
            duration_ms: u64,
        },
        /// It could not be started.
        ToolsetFailed {
            toolset: String,
            error: String,
            duration_ms: u64,
        },
        ToolsetCloseFailed {
            toolset: String,
            error: String,
        },
        ProcessOutput {
            stream: OutputStream,
            text: String,
        },
        Notice {
            text: String,
        },
        RunFailed {
            error: String,
        },
    }
}

#[cfg(test)]
pub mod samples {
    use super::*;
    use crate::event::CallOutput;

    /// One of each, and of each form that it may have.
    pub fn all() -> Vec<EventKind> {
        let text = || "t".to_owned();
        let json = || RawJson::parse(r#"{"b":[1],"a":null}"#).unwrap();
        let (kind, usage) = (CallKind::Agent, Usage { requests: 1, cost_usd: Some(0.25), ..Usage::default() });
        let call = |ended| EventKind::CallFinished { name: text(), kind, ended, duration_ms: 3, usage };
        let tool = |returned| EventKind::ToolReturned { id: text(), tool: text(), returned, duration_ms: 3 };
        let path = || vec![text(), text()];
        let refused = |arguments, arguments_text| EventKind::ToolRefused {
            id: text(),
            path: path(),
            tool: text(),
            arguments,
            arguments_text,
            reason: text(),
            judged: true,
        };
        let (answer, note) = (ApprovalResult::Edited, Some(text()));
        vec![
            EventKind::CallStarted { name: text(), kind, input: json(), parent: Some(1) },
            EventKind::CallStarted { name: text(), kind, input: json(), parent: None },
            call(CallEnd::Output(CallOutput::Json(json()))),
            call(CallEnd::Error(text())),
            EventKind::UserMessage { text: text() },
            EventKind::TextDelta { text: text() },
            EventKind::TextComplete { text: text() },
            EventKind::ThinkingDelta { text: text() },
            EventKind::ToolCalled { id: text(), tool: text(), arguments: json(), calls_as: None },
            EventKind::ToolCalled { id: text(), tool: text(), arguments: json(), calls_as: Some(7) },
            tool(ToolReturn::Result(text())),
            tool(ToolReturn::Error(text())),
            refused(Some(json()), None),
            refused(None, Some(text())),
            EventKind::ApprovalAsked { id: text(), path: path(), tool: text(), arguments: json(), reason: text() },
            EventKind::ApprovalAnswered { id: text(), path: path(), tool: text(), answer, note, rule: Some(text()) },
            EventKind::ServerToolUsed { tool: text(), input: Some(json()), output: None },
            EventKind::RequestStarted { model: text(), longest_wait_ms: Some(7) },
            EventKind::RequestFinished { model: text(), duration_ms: 3, usage, finish: Finish::Pause },
            EventKind::RequestFailed { model: text(), duration_ms: 3, usage, error: text() },
            EventKind::CacheHit { model: text(), saved: usage },
            EventKind::RetryScheduled { model: text(), attempt: 2, wait_ms: 500, reason: text() },
            EventKind::ModelSwitched { from: text(), to: text(), reason: text() },
            EventKind::LimitApproached { limit: text(), used: 1.5, allowed: 2.0 },
            EventKind::LimitReached { limit: text(), used: 2.0, allowed: 2.0 },
            EventKind::ToolProgressed { id: text(), tool: text(), progress: 0.5, total: None, message: Some(text()) },
            EventKind::ToolsetStarted { toolset: text() },
            EventKind::ToolsetReady { toolset: text(), tools: 3, duration_ms: 4 },
            EventKind::ToolsetFailed { toolset: text(), error: text(), duration_ms: 4 },
            EventKind::ToolsetCloseFailed { toolset: text(), error: text() },
            EventKind::ProcessOutput { stream: OutputStream::Stderr, text: text() },
            EventKind::Notice { text: text() },
            EventKind::RunFailed { error: text() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::event::{Event, schema};

    /// Programs read these lines: each of them is what it was when it was written down here.
    #[test]
    fn the_line_of_every_kind_is_as_it_was() {
        let event = |kind| Event { agent: Arc::from("main"), depth: 1, call: 7, kind, rank: 9 };
        let lines = samples::all().into_iter().map(|kind| serde_json::to_string(&event(kind)).unwrap());
        assert!(lines.eq(include_str!("kinds/lines.jsonl").lines()));
    }

    #[test]
    fn there_is_a_sample_of_every_kind() {
        let schema = schema();
        let kinds = schema["oneOf"].as_array().unwrap().iter();
        let kinds: BTreeSet<Option<&str>> = kinds.map(|kind| kind["properties"]["type"]["const"].as_str()).collect();
        let lines: Vec<Value> =
            include_str!("kinds/lines.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().map(|line| line["type"].as_str()).collect::<BTreeSet<_>>(), kinds);
    }
}
