//! Events that were told once and are told again: what a recorded step said, heard by whoever listens to the run now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{CallOutput, Ended, Event, EventKind, Returned};
use crate::message::RawJson;

/// What was told during a step, and the call whose step it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub call: u64,
    #[serde(serialize_with = "with_ranks")]
    pub events: Vec<Event>,
}

impl Told {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

/// Whoever tells them again knows the order of calls.
fn with_ranks<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Ranked<'a> {
        #[serde(flatten)]
        event: &'a Event,
        rank: u64,
    }
    serializer.collect_seq(events.iter().map(|event| Ranked { event, rank: event.rank }))
}

/// Keeps every fact that passes, for itself and for those around it.
#[derive(Debug)]
pub(super) struct Ear {
    heard: Mutex<Vec<Event>>,
    around: Option<Arc<Ear>>,
}

impl Ear {
    pub fn within(around: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { heard: Mutex::default(), around })
    }

    pub fn hear(&self, event: &Event) {
        if is_passing(&event.kind) {
            return;
        }
        self.heard().push(event.clone());
        if let Some(around) = &self.around {
            around.hear(event);
        }
    }

    pub fn taken(&self) -> Vec<Event> {
        std::mem::take(&mut self.heard())
    }

    // A panic elsewhere leaves the list as it was.
    fn heard(&self) -> MutexGuard<'_, Vec<Event>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a process says as it comes is a delta: what it came to is in the result. And what was started in one process is
/// not started in another.
fn is_passing(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ProcessOutput { .. }
            | EventKind::ToolProgressed { .. }
            | EventKind::ToolsetStarted { .. }
            | EventKind::ToolsetReady { .. }
            | EventKind::ToolsetFailed { .. }
    )
}

// Raw JSON does not survive the buffer that a derived `Deserialize` of flattened and tagged types would use. So an event
// is read as an object of raw fields.

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Fields(BTreeMap::deserialize(deserializer)?);
        fields.event().map_err(D::Error::custom)
    }
}

struct Fields(BTreeMap<String, RawJson>);

impl Fields {
    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, serde_json::Error> {
        match self.0.remove(name) {
            Some(json) => json.to(),
            // An absent field is `null`, which only optional fields accept.
            None => serde_json::from_str("null").map_err(|_| serde_json::Error::custom(format!("`{name}` is missing"))),
        }
    }

    fn event(&mut self) -> Result<Event, serde_json::Error> {
        let (agent, depth, call): (String, _, _) = (self.take("agent")?, self.take("depth")?, self.take("call")?);
        let rank = self.take::<Option<u64>>("rank")?.unwrap_or_default();
        Ok(Event { agent: Arc::from(agent), depth, call, kind: self.kind()?, rank })
    }

    fn kind(&mut self) -> Result<EventKind, serde_json::Error> {
        let name: String = self.take("type")?;
        Ok(match name.as_str() {
            "call_started" | "call_finished" => self.of_call(&name)?,
            "tool_called" | "tool_returned" | "tool_progressed" | "tool_refused" | "server_tool_used" => {
                self.of_tool(&name)?
            }
            "approval_asked" | "approval_answered" => self.of_approval(&name)?,
            "request_started" | "request_finished" | "request_failed" | "retry_scheduled" => self.of_request(&name)?,
            "user_message" => EventKind::UserMessage { text: self.take("text")? },
            "text_delta" => EventKind::TextDelta { text: self.take("text")? },
            "text_complete" => EventKind::TextComplete { text: self.take("text")? },
            "thinking_delta" => EventKind::ThinkingDelta { text: self.take("text")? },
            "limit_approached" => {
                let (limit, used, allowed) = (self.take("limit")?, self.take("used")?, self.take("allowed")?);
                EventKind::LimitApproached { limit, used, allowed }
            }
            "limit_reached" => {
                let (limit, used, allowed) = (self.take("limit")?, self.take("used")?, self.take("allowed")?);
                EventKind::LimitReached { limit, used, allowed }
            }
            "toolset_started" | "toolset_ready" | "toolset_failed" | "toolset_close_failed" => {
                self.of_toolset(&name)?
            }
            "process_output" => EventKind::ProcessOutput { stream: self.take("stream")?, text: self.take("text")? },
            "notice" => EventKind::Notice { text: self.take("text")? },
            "run_failed" => EventKind::RunFailed { error: self.take("error")? },
            unknown => return Err(serde_json::Error::custom(format!("unknown event `{unknown}`"))),
        })
    }

    fn of_call(&mut self, name: &str) -> Result<EventKind, serde_json::Error> {
        let (callee, kind) = (self.take("name")?, self.take("kind")?);
        if name == "call_started" {
            let (input, parent) = (self.take("input")?, self.take("parent")?);
            return Ok(EventKind::CallStarted { name: callee, kind, input, parent });
        }
        let ended = match self.0.remove("output") {
            Some(output) => Ended::Output(CallOutput::Json(output)),
            None => Ended::Error(self.take("error")?),
        };
        let (duration_ms, usage) = (self.take("duration_ms")?, self.take("usage")?);
        Ok(EventKind::CallFinished { name: callee, kind, ended, duration_ms, usage })
    }

    fn of_tool(&mut self, name: &str) -> Result<EventKind, serde_json::Error> {
        let tool = self.take("tool")?;
        Ok(match name {
            "server_tool_used" => {
                EventKind::ServerToolUsed { tool, input: self.take("input")?, output: self.take("output")? }
            }
            "tool_called" => {
                let (id, arguments, calls_as) = (self.take("id")?, self.take("arguments")?, self.take("calls_as")?);
                EventKind::ToolCalled { id, tool, arguments, calls_as }
            }
            "tool_progressed" => {
                let (id, progress) = (self.take("id")?, self.take("progress")?);
                let (total, message) = (self.take("total")?, self.take("message")?);
                EventKind::ToolProgressed { id, tool, progress, total, message }
            }
            "tool_refused" => {
                let (id, arguments, reason) = (self.take("id")?, self.take("arguments")?, self.take("reason")?);
                let arguments_text = self.0.remove("arguments_text").map(|text| text.to()).transpose()?;
                let path = self.take::<Option<_>>("path")?.unwrap_or_default();
                let judged = self.take::<Option<_>>("judged")?.unwrap_or_default();
                EventKind::ToolRefused { id, path, tool, arguments, arguments_text, reason, judged }
            }
            _ => {
                let returned = match self.0.remove("result") {
                    Some(result) => Returned::Result(result.to()?),
                    None => Returned::Error(self.take("error")?),
                };
                let (id, duration_ms) = (self.take("id")?, self.take("duration_ms")?);
                EventKind::ToolReturned { id, tool, returned, duration_ms }
            }
        })
    }

    fn of_toolset(&mut self, name: &str) -> Result<EventKind, serde_json::Error> {
        let toolset = self.take("toolset")?;
        Ok(match name {
            "toolset_started" => EventKind::ToolsetStarted { toolset },
            "toolset_ready" => {
                let (tools, duration_ms) = (self.take("tools")?, self.take("duration_ms")?);
                EventKind::ToolsetReady { toolset, tools, duration_ms }
            }
            "toolset_failed" => {
                let (error, duration_ms) = (self.take("error")?, self.take("duration_ms")?);
                EventKind::ToolsetFailed { toolset, error, duration_ms }
            }
            _ => EventKind::ToolsetCloseFailed { toolset, error: self.take("error")? },
        })
    }

    fn of_approval(&mut self, name: &str) -> Result<EventKind, serde_json::Error> {
        let (id, path, tool) = (self.take("id")?, self.take("path")?, self.take("tool")?);
        Ok(if name == "approval_asked" {
            let (arguments, reason) = (self.take("arguments")?, self.take("reason")?);
            EventKind::ApprovalAsked { id, path, tool, arguments, reason }
        } else {
            let (answer, note) = (self.take("answer")?, self.take("note")?);
            EventKind::ApprovalAnswered { id, path, tool, answer, note }
        })
    }

    fn of_request(&mut self, name: &str) -> Result<EventKind, serde_json::Error> {
        let model = self.take("model")?;
        Ok(match name {
            "request_started" => EventKind::RequestStarted { model, longest_wait_ms: self.take("longest_wait_ms")? },
            "request_finished" => {
                let (duration_ms, usage) = (self.take("duration_ms")?, self.take("usage")?);
                EventKind::RequestFinished { model, duration_ms, usage, finish: self.take("finish")? }
            }
            "request_failed" => {
                let (duration_ms, usage) = (self.take("duration_ms")?, self.take("usage")?);
                EventKind::RequestFailed { model, duration_ms, usage, error: self.take("error")? }
            }
            _ => {
                let (attempt, wait_ms) = (self.take("attempt")?, self.take("wait_ms")?);
                EventKind::RetryScheduled { model, attempt, wait_ms, reason: self.take("reason")? }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answered, CallKind, Events, Hearing, OutputStream};
    use super::*;
    use crate::message::{Finish, Usage};

    /// One of each; the match below does not compile without a new one.
    fn all() -> Vec<EventKind> {
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
        let (answer, note) = (Answered::Edited, Some(text()));
        vec![
            EventKind::CallStarted { name: text(), kind, input: json(), parent: Some(1) },
            EventKind::CallStarted { name: text(), kind, input: json(), parent: None },
            call(Ended::Output(CallOutput::Json(json()))),
            call(Ended::Error(text())),
            EventKind::UserMessage { text: text() },
            EventKind::TextDelta { text: text() },
            EventKind::TextComplete { text: text() },
            EventKind::ThinkingDelta { text: text() },
            EventKind::ToolCalled { id: text(), tool: text(), arguments: json(), calls_as: None },
            EventKind::ToolCalled { id: text(), tool: text(), arguments: json(), calls_as: Some(7) },
            tool(Returned::Result(text())),
            tool(Returned::Error(text())),
            refused(Some(json()), None),
            refused(None, Some(text())),
            EventKind::ApprovalAsked { id: text(), path: path(), tool: text(), arguments: json(), reason: text() },
            EventKind::ApprovalAnswered { id: text(), path: path(), tool: text(), answer, note },
            EventKind::ServerToolUsed { tool: text(), input: Some(json()), output: None },
            EventKind::RequestStarted { model: text(), longest_wait_ms: Some(7) },
            EventKind::RequestFinished { model: text(), duration_ms: 3, usage, finish: Finish::Pause },
            EventKind::RequestFailed { model: text(), duration_ms: 3, usage, error: text() },
            EventKind::RetryScheduled { model: text(), attempt: 2, wait_ms: 500, reason: text() },
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

    #[test]
    fn every_event_survives_json() {
        for kind in all() {
            let event = Event { agent: Arc::from("main"), depth: 1, call: 7, kind, rank: 0 };
            let json = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event, "{json}");
        }
        for wrong in [r#"{"type":"notice"}"#, r#"{"type":"new","agent":"a","depth":0,"call":1}"#, "[]"] {
            assert!(serde_json::from_str::<Event>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_told_again_belongs_to_the_calls_of_this_run() {
        let (events, mut listener) = Events::new(Hearing::Facts);
        let caller = events.for_call(&Arc::from("main"), 0, events.new_call());
        let outer = caller.overheard();
        let inner = outer.overheard();
        let child = inner.for_call(&Arc::from("child"), 1, inner.new_call());
        let parent = Some(1);
        let (name, kind, input) = ("child".to_owned(), CallKind::Agent, RawJson::of(&"x"));
        child.send(|| EventKind::CallStarted { name, kind, input, parent });
        inner.send(|| EventKind::Notice { text: "n".into() });
        let told = inner.told();
        assert_eq!(told.events.iter().map(|event| event.call).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(outer.told().events, told.events, "who is around hears it too");

        let again = events.for_call(&Arc::from("main"), 0, 40);
        again.retell(told);
        let heard: Vec<Event> = std::iter::from_fn(|| listener.try_recv().ok()).skip(2).collect();
        assert_eq!(heard.iter().map(|event| event.call).collect::<Vec<_>>(), [3, 40]);
        assert!(matches!(heard[0].kind, EventKind::CallStarted { parent: Some(40), .. }));
    }
}
