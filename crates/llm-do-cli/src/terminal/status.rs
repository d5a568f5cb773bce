//! The live line of a run: who is at work, on what, for how long, and what it took so far. Pure.

use std::time::Duration;

use llm_do::events::ProviderSilence;
use llm_do::messages::Usage;
use llm_do::{Event, EventKind};

use crate::terminal::style::{fit, width};
use crate::terminal::summary;

#[derive(Debug, Default)]
pub struct Status {
    /// Calls that are open, in the order in which they began.
    calls: Vec<Call>,
    model: String,
    /// A model thinks, as far as its provider tells that.
    is_thinking: bool,
    usage: Usage,
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
    /// As which call it tells of itself, if it is one of its own.
    calls_as: Option<u64>,
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
            EventKind::ToolCalled { id, tool, calls_as, .. } => {
                let (id, name, calls_as) = (id.clone(), tool.clone(), *calls_as);
                self.set_tool(event.call, Some(RunningTool { id, name, calls_as, progress: None }));
            }
            EventKind::ToolReturned { .. } => self.set_tool(event.call, None),
            EventKind::ToolProgressed { id, progress, total, message, .. } => {
                let shown = summary::progress(*progress, *total, message.as_deref());
                let running = self.calls.iter_mut().filter_map(|open| Some((open.id, open.tool.as_mut()?)));
                for (call, tool) in running {
                    if tool.id == *id && (call == event.call || tool.calls_as == Some(event.call)) {
                        tool.progress = Some(shown.clone());
                    }
                }
            }
            EventKind::ToolsetStarted { toolset } => self.starting.push(toolset.clone()),
            EventKind::ToolsetReady { toolset, .. } | EventKind::ToolsetFailed { toolset, .. } => {
                self.starting.retain(|starting| starting != toolset);
            }
            EventKind::RequestStarted { model, .. } => {
                self.model.clone_from(model);
                self.is_thinking = false;
            }
            EventKind::ThinkingDelta { .. } => self.is_thinking = true,
            EventKind::TextDelta { .. } | EventKind::TextComplete { .. } => self.is_thinking = false,
            EventKind::RequestFinished { usage, .. } | EventKind::RequestFailed { usage, .. } => {
                self.usage = self.usage.plus(usage);
                self.is_thinking = false;
            }
            EventKind::UserMessage { .. }
            | EventKind::ToolRefused { .. }
            | EventKind::ApprovalAsked { .. }
            | EventKind::ApprovalAnswered { .. }
            | EventKind::ServerToolUsed { .. }
            | EventKind::RetryScheduled { .. }
            | EventKind::ModelSwitched { .. }
            | EventKind::CacheHit { .. }
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

    /// The next picture of the line, in at most this many columns. Where there is too little room for all of it, what matters
    /// less is left out: whoever waits wants to know first whether anything happens, and then what it costs.
    pub fn line(&mut self, elapsed: Duration, silence: Option<ProviderSilence>, columns: usize) -> String {
        self.frame = (self.frame + 1) % SPINNER.len();
        let starting = match self.starting.as_slice() {
            [] => String::new(),
            names => format!("starting {}", names.join(", ")),
        };
        let time = format!("{}{} s", if self.is_thinking { "thinking " } else { "" }, elapsed.as_secs());
        let silence = silence.map_or_else(String::new, |ProviderSilence { lasted, limit }| {
            format!("nothing for {} s, gives up at {} s", lasted.as_secs(), limit.as_secs())
        });
        let has_asked = self.usage.requests > 0;
        let [cost, tokens] = if has_asked {
            [summary::cost(&self.usage), summary::short_tokens(&self.usage)]
        } else {
            Default::default()
        };
        // The number says what is left out first.
        let mut parts = vec![
            (0, self.path()),
            (0, starting),
            (4, self.model.clone()),
            (0, time),
            (1, silence),
            (3, tokens),
            (2, cost),
        ];
        parts.retain(|(_, part)| !part.is_empty());
        let spinner = SPINNER[self.frame];
        let drawn = |parts: &[(u8, String)]| {
            let shown: Vec<&str> = parts.iter().map(|(_, part)| part.as_str()).collect();
            format!("{spinner} {}", shown.join(" · "))
        };
        while width(&drawn(&parts)) > columns
            && let Some(least) = parts.iter().map(|(rank, _)| *rank).max().filter(|rank| *rank > 0)
        {
            parts.retain(|(rank, _)| *rank != least);
        }
        fit(&drawn(&parts), columns)
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
            status.line(Duration::from_secs(seconds), None, 200).split_off('⠋'.len_utf8() + 1)
        };
        let asked = EventKind::RequestStarted { model: "ollama:q".into(), longest_wait_ms: Some(120_000) };
        assert_eq!(line(&[started(1, "main", None), event(1, asked)], 3), "main · ollama:q · 3 s");
        let began = event(1, EventKind::TextDelta { text: "Yes".into() });
        assert_eq!(line(&[began], 3), "main · ollama:q · 3 s");
        let usage = Usage { requests: 1, input_tokens: 12, output_tokens: 3, cost_usd: Some(0.5), ..Usage::default() };
        let finish = Finish::Stop;
        let answered = event(1, EventKind::RequestFinished { model: "ollama:q".into(), duration_ms: 1, usage, finish });
        let called =
            EventKind::ToolCalled { id: "1".into(), tool: "read".into(), arguments: RawJson::of(&"x"), calls_as: None };
        let expected = "main › child › read · ollama:q · 4 s · 12 in, 3 out · $0.50";
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
        let silence = ProviderSilence { lasted: Duration::from_millis(8900), limit: Duration::from_mins(2) };
        let shown = status.line(Duration::from_secs(9), Some(silence), 200);
        assert!(shown.ends_with(" s · nothing for 8 s, gives up at 120 s · 12 in, 3 out · $0.50"), "{shown}");
        let mut narrow = |columns| status.line(Duration::from_secs(9), Some(silence), columns).split_off(4);
        for (columns, expected) in [
            (72, "main · 9 s · nothing for 8 s, gives up at 120 s · 12 in, 3 out · $0.50"),
            (71, "main · 9 s · nothing for 8 s, gives up at 120 s · $0.50"),
            (49, "main · 9 s · nothing for 8 s, gives up at 120 s"),
            (40, "main · 9 s"),
            (8, "main …"),
        ] {
            assert_eq!(narrow(columns), expected, "{columns}");
        }
    }
}
