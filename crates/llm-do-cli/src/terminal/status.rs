//! The live line of a run: who is at work, on what, for how long, and what it took so far. Pure.

use std::time::Duration;

use llm_do::messages::Usage;
use llm_do::{Event, EventKind};

use crate::terminal::style::fit;
use crate::terminal::summary;

#[derive(Debug, Default)]
pub struct Status {
    /// Calls that are open, in the order in which they began.
    calls: Vec<Call>,
    model: String,
    usage: Usage,
    /// In seconds: how long the answer to the latest request may take to begin. `None` once it has begun.
    longest_wait: Option<u64>,
    /// Servers that are being started.
    starting: Vec<String>,
    frame: usize,
}

#[derive(Debug)]
struct Call {
    id: u64,
    name: String,
    parent: Option<u64>,
    /// The tool that it called last, while it runs.
    tool: Option<RunningTool>,
}

#[derive(Debug)]
struct RunningTool {
    id: String,
    name: String,
    /// How far it has come.
    progress: Option<String>,
}

const SPINNER: [char; 8] = ['⠋', '⠙', '⠸', '⢰', '⣠', '⣄', '⡆', '⠇'];

impl Status {
    pub fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::CallStarted { name, parent, .. } => {
                self.calls.push(Call { id: event.call, name: name.clone(), parent: *parent, tool: None });
            }
            EventKind::CallFinished { .. } => self.calls.retain(|call| call.id != event.call),
            EventKind::ToolCalled { id, tool, .. } => {
                let (id, name) = (id.clone(), tool.clone());
                self.set_tool(event.call, Some(RunningTool { id, name, progress: None }));
            }
            EventKind::ToolReturned { .. } => self.set_tool(event.call, None),
            EventKind::ToolProgressed { id, progress, total, message, .. } => {
                let shown = summary::progress(*progress, *total, message.as_deref());
                let call = self.calls.iter_mut().find(|open| open.id == event.call);
                if let Some(tool) = call.and_then(|call| call.tool.as_mut()).filter(|tool| tool.id == *id) {
                    tool.progress = Some(shown);
                }
            }
            EventKind::ToolsetStarted { toolset } => self.starting.push(toolset.clone()),
            EventKind::ToolsetReady { toolset, .. } | EventKind::ToolsetFailed { toolset, .. } => {
                self.starting.retain(|starting| starting != toolset);
            }
            EventKind::RequestStarted { model, longest_wait_ms } => {
                self.model.clone_from(model);
                self.longest_wait = longest_wait_ms.map(|wait| wait.div_ceil(1000));
            }
            EventKind::RequestFinished { usage, .. } | EventKind::RequestFailed { usage, .. } => {
                self.longest_wait = None;
                self.usage = self.usage.plus(usage);
            }
            EventKind::TextDelta { .. } | EventKind::ThinkingDelta { .. } => self.longest_wait = None,
            EventKind::UserMessage { .. }
            | EventKind::TextComplete { .. }
            | EventKind::ToolRefused { .. }
            | EventKind::ApprovalAsked { .. }
            | EventKind::ApprovalAnswered { .. }
            | EventKind::ServerToolUsed { .. }
            | EventKind::RetryScheduled { .. }
            | EventKind::LimitApproached { .. }
            | EventKind::LimitReached { .. }
            | EventKind::ToolsetCloseFailed { .. }
            | EventKind::ProcessOutput { .. }
            | EventKind::Notice { .. }
            | EventKind::RunFailed { .. } => {}
        }
    }

    fn set_tool(&mut self, call: u64, tool: Option<RunningTool>) {
        if let Some(call) = self.calls.iter_mut().find(|open| open.id == call) {
            call.tool = tool;
        }
    }

    /// The next picture of the line, in at most this many columns.
    pub fn line(&mut self, elapsed: Duration, columns: usize) -> String {
        self.frame = (self.frame + 1) % SPINNER.len();
        let starting = match self.starting.as_slice() {
            [] => String::new(),
            names => format!("starting {}", names.join(", ")),
        };
        let mut parts = vec![self.path(), starting, self.model.clone(), format!("{} s", elapsed.as_secs())];
        if self.usage.requests > 0 {
            parts.extend([summary::tokens(&self.usage), summary::cost(&self.usage)]);
        }
        parts.extend(self.longest_wait.map(|wait| format!("waits {wait} s for an answer")));
        parts.retain(|part| !part.is_empty());
        fit(&format!("{} {}", SPINNER[self.frame], parts.join(" · ")), columns)
    }

    /// From the entry down to the call that began last.
    fn path(&self) -> String {
        let mut path = Vec::new();
        let mut next = self.calls.last();
        let tool = next.and_then(|call| call.tool.as_ref());
        path.extend(tool.and_then(|tool| tool.progress.as_deref()));
        path.extend(tool.map(|tool| tool.name.as_str()));
        while let Some(call) = next {
            path.push(call.name.as_str());
            next = call.parent.and_then(|parent| self.calls.iter().find(|open| open.id == parent));
        }
        path.reverse();
        path.join(" › ")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use llm_do::RawJson;
    use llm_do::events::{CallEnd, CallKind, ToolReturn};
    use llm_do::messages::Finish;

    use super::*;

    fn event(call: u64, kind: EventKind) -> Event {
        Event { agent: Arc::from("x"), depth: 0, call, kind, rank: 0 }
    }

    fn started(call: u64, name: &str, parent: Option<u64>) -> Event {
        let input = RawJson::of(&"hi");
        event(call, EventKind::CallStarted { name: name.to_owned(), kind: CallKind::Agent, input, parent })
    }

    #[test]
    fn the_line_follows_the_work() {
        let mut status = Status::default();
        let mut line = |events: &[Event], seconds: u64| {
            for event in events {
                status.note(event);
            }
            status.line(Duration::from_secs(seconds), 200).split_off('⠋'.len_utf8() + 1)
        };
        let asked = EventKind::RequestStarted { model: "ollama:q".into(), longest_wait_ms: Some(120_000) };
        let waiting = "main · ollama:q · 3 s · waits 120 s for an answer";
        assert_eq!(line(&[started(1, "main", None), event(1, asked)], 3), waiting);
        let began = event(1, EventKind::TextDelta { text: "Yes".into() });
        assert_eq!(line(&[began], 3), "main · ollama:q · 3 s");
        let usage = Usage { requests: 1, input_tokens: 12, output_tokens: 3, cost_usd: Some(0.5), ..Usage::default() };
        let finish = Finish::Stop;
        let answered = event(1, EventKind::RequestFinished { model: "ollama:q".into(), duration_ms: 1, usage, finish });
        let called =
            EventKind::ToolCalled { id: "1".into(), tool: "read".into(), arguments: RawJson::of(&"x"), calls_as: None };
        let expected = "main › child › read · ollama:q · 4 s · 12 tokens in, 3 out · $0.50";
        assert_eq!(line(&[answered, started(2, "child", Some(1)), event(2, called)], 4), expected);
        let returned = EventKind::ToolReturned {
            id: "1".into(),
            tool: "read".into(),
            returned: ToolReturn::Error("no".into()),
            duration_ms: 1,
        };
        let ended = EventKind::CallFinished {
            name: "child".into(),
            kind: CallKind::Agent,
            ended: CallEnd::Error("no".into()),
            duration_ms: 1,
            usage,
        };
        let shown = line(&[event(2, returned), event(2, ended)], 5);
        assert!(shown.starts_with("main · ollama:q · 5 s · "), "{shown}");
    }
}
