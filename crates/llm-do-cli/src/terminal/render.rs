//! Events → what is shown of them. Pure: events in, pieces of text for both streams out.

use std::borrow::Cow;

use llm_do::escape::visible_lines;
use llm_do::events::{ApprovalResult, CallEnd, CallOutput, ToolReturn};
use llm_do::{Event, EventKind, RawJson};

use crate::terminal::markdown::Markdown;
use crate::terminal::style::{Style, Styles, fit, width};
use crate::terminal::summary;

/// How much is said on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors and questions.
    Quiet,
    /// Also the closing summary; on a terminal the status and calls as short lines.
    Normal,
    /// Calls and tools.
    Calls,
    /// Also text as it arrives.
    Text,
    /// The message log as JSON lines, and nothing else.
    Messages,
}

/// What is shown, decided before anything runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub verbosity: Verbosity,
    /// Whether a person watches stderr: then there is a status line, and calls have short lines.
    pub live: bool,
    /// Whether the answer goes to a terminal: then it is shown as it arrives.
    pub streamed: bool,
    pub stdout_is_terminal: bool,
    pub stdout: Styles,
    pub stderr: Styles,
}

impl View {
    /// Whether calls of tools and agents have their lines.
    pub fn tells_calls(self) -> bool {
        match self.verbosity {
            Verbosity::Quiet | Verbosity::Messages => false,
            Verbosity::Normal => self.live,
            Verbosity::Calls | Verbosity::Text => true,
        }
    }

    /// Whether remarks are made that are no part of an answer.
    pub fn tells_notes(self) -> bool {
        !matches!(self.verbosity, Verbosity::Quiet | Verbosity::Messages)
    }

    /// Whether pieces of streams are shown anywhere.
    pub fn hears_deltas(self) -> bool {
        self.streamed || self.verbosity == Verbosity::Text
    }
}

/// A piece of text and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputPiece {
    Out(String),
    Err(String),
}

pub struct Renderer {
    view: View,
    answer: Markdown,
    /// Words of calls below the entry, and thoughts, on stderr.
    aside: Markdown,
    /// Whose words stand on the open line of stderr.
    speaker: Option<(u64, Words)>,
    /// Whether the present reply was shown as it came.
    streamed_reply: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Said,
    Thought,
}

/// The width at which lines are cut if they go to no terminal.
const WIDEST: usize = 160;
const INDENT: usize = 2;

impl Renderer {
    pub fn new(view: View) -> Self {
        Self {
            view,
            answer: Markdown::new(view.stdout.coloured),
            aside: Markdown::new(false),
            speaker: None,
            streamed_reply: false,
        }
    }

    /// Whether a text stands on a line without end: nothing else may be written there.
    pub fn is_within_line(&self) -> bool {
        self.answer.is_within_line() || self.speaker.is_some()
    }

    pub fn render(&mut self, event: &Event, columns: Option<usize>, out: &mut Vec<OutputPiece>) {
        match &event.kind {
            EventKind::TextDelta { text } if event.depth == 0 && self.view.streamed => {
                self.end_aside(out);
                self.streamed_reply = true;
                out.push(OutputPiece::Out(self.answer.push(text)));
            }
            EventKind::TextDelta { text } => self.speak(event, Words::Said, text, out),
            EventKind::ThinkingDelta { text } => self.speak(event, Words::Thought, text, out),
            EventKind::TextComplete { text } if event.depth == 0 && self.view.streamed => {
                self.end_aside(out);
                if !self.streamed_reply {
                    out.push(OutputPiece::Out(self.answer.push(text)));
                }
                out.push(OutputPiece::Out(self.answer.finish()));
            }
            EventKind::TextComplete { .. } => self.end_aside(out),
            kind => {
                if let EventKind::RequestStarted { .. } = kind
                    && event.depth == 0
                {
                    self.streamed_reply = false;
                }
                if let Some(RenderedLine { depth, style, text }) = self.line(event) {
                    self.end_lines(out);
                    let indent = " ".repeat(INDENT * depth);
                    let columns = columns.map_or(WIDEST, |columns| columns.saturating_sub(1));
                    let text = fit(&text, columns.saturating_sub(width(&indent)).max(20));
                    out.push(OutputPiece::Err(format!("{indent}{}\n", self.view.stderr.paint(style, &text))));
                }
            }
        }
    }

    /// Ends whatever stands on an open line.
    pub fn end_lines(&mut self, out: &mut Vec<OutputPiece>) {
        self.end_aside(out);
        if self.answer.is_within_line() {
            out.push(OutputPiece::Out(self.answer.finish()));
        }
    }

    fn end_aside(&mut self, out: &mut Vec<OutputPiece>) {
        if self.speaker.take().is_some() {
            out.push(OutputPiece::Err(self.aside.finish()));
        }
    }

    fn speak(&mut self, event: &Event, words: Words, text: &str, out: &mut Vec<OutputPiece>) {
        if self.view.verbosity != Verbosity::Text {
            return;
        }
        if self.speaker != Some((event.call, words)) {
            self.end_lines(out);
            let verb = match words {
                Words::Said => "",
                Words::Thought => " thinks",
            };
            let start = format!("{}{}{verb}: ", " ".repeat(INDENT * event.depth), event.agent);
            out.push(OutputPiece::Err(self.view.stderr.paint(Style::Dim, &start)));
            self.speaker = Some((event.call, words));
        }
        out.push(OutputPiece::Err(self.aside.push(text)));
    }

    fn calls(&self, depth: usize, text: impl FnOnce() -> String) -> Option<RenderedLine> {
        self.view.tells_calls().then(|| RenderedLine { depth, style: Style::Dim, text: text() })
    }

    fn complaint(&self, depth: usize, text: impl FnOnce() -> String) -> Option<RenderedLine> {
        self.view.tells_calls().then(|| RenderedLine { depth, style: Style::Warning, text: text() })
    }

    fn note(&self, text: &str) -> Option<RenderedLine> {
        let text = format!("note: {text}");
        self.view.tells_notes().then_some(RenderedLine { depth: 0, style: Style::Warning, text })
    }

    /// The one line that most events are.
    fn line(&self, event: &Event) -> Option<RenderedLine> {
        let caller = event.depth.saturating_sub(1);
        let nested = event.depth > 0;
        match &event.kind {
            EventKind::CallStarted { name, input, .. } if nested => {
                self.calls(caller, || format!("→ {name} {}", input.get()))
            }
            EventKind::CallFinished { name, ended, duration_ms, .. } if nested => match ended {
                CallEnd::Output(output) => {
                    self.calls(caller, || format!("← {name} {}{}", brief(output), took(*duration_ms)))
                }
                CallEnd::Error(error) => self.complaint(caller, || format!("✗ {name}: {error}")),
            },
            EventKind::ToolCalled { tool, arguments, .. } => {
                self.calls(event.depth, || format!("→ {tool} {}", arguments.get()))
            }
            EventKind::ToolReturned { tool, returned, duration_ms, .. } => match returned {
                ToolReturn::Result(result) => {
                    self.calls(event.depth, || format!("← {tool} {result}{}", took(*duration_ms)))
                }
                ToolReturn::Error(error) => self.complaint(event.depth, || format!("✗ {tool}: {error}")),
            },
            EventKind::ToolProgressed { tool, progress, total, message, .. }
                if self.view.verbosity >= Verbosity::Calls =>
            {
                let shown = summary::progress(*progress, *total, message.as_deref());
                self.calls(event.depth, || format!("… {tool} {shown}"))
            }
            EventKind::ToolsetStarted { toolset } if self.view.verbosity >= Verbosity::Calls => {
                self.calls(event.depth, || format!("→ starting {toolset}"))
            }
            EventKind::ToolsetReady { toolset, tools, duration_ms } => {
                let tools = if *tools == 1 { "1 tool".to_owned() } else { format!("{tools} tools") };
                self.calls(event.depth, || format!("← {toolset} has {tools}{}", took(*duration_ms)))
            }
            EventKind::ToolsetFailed { toolset, error, .. } => {
                self.complaint(event.depth, || format!("✗ {toolset}: {error}"))
            }
            EventKind::ToolRefused { tool, reason, .. } => {
                self.complaint(event.depth, || format!("✗ {tool} was refused: {reason}"))
            }
            EventKind::ApprovalAnswered { tool, answer, .. } => {
                let by = unasked(*answer)?;
                self.calls(event.depth, || format!("✓ {tool} was approved: {by}"))
            }
            EventKind::ServerToolUsed { tool, input, .. } => {
                let input = input.as_ref().map_or("", RawJson::get);
                self.calls(event.depth, || format!("→ {tool} (run by the provider) {input}"))
            }
            // It is shown also where calls have no lines: a person who waits wants to know what for.
            EventKind::RetryScheduled { wait_ms, reason, .. } if self.view.tells_notes() => {
                let when = if *wait_ms == 0 { "at once".to_owned() } else { format!("in {}", milliseconds(*wait_ms)) };
                let text = format!("… asking again {when}: {reason}");
                Some(RenderedLine { depth: event.depth, style: Style::Warning, text })
            }
            // Who wants to be warned of a budget has asked for it.
            EventKind::LimitApproached { limit, used, allowed } if limit.starts_with("budget ") => {
                self.note(&format!("{limit}: {} of {} are spent", summary::money(*used), summary::money(*allowed)))
            }
            EventKind::LimitApproached { limit, used, allowed } if self.view.tells_calls() => {
                self.note(&approached(limit, *used, *allowed))
            }
            EventKind::Notice { text } => self.note(text),
            EventKind::ToolsetCloseFailed { toolset, error } => {
                self.note(&format!("the toolset `{toolset}` could not be closed: {error}"))
            }
            EventKind::RequestFinished { model, duration_ms, usage, .. }
                if matches!(self.view.verbosity, Verbosity::Calls | Verbosity::Text) =>
            {
                let (tokens, cost) = (summary::tokens(usage), summary::cost(usage));
                self.calls(event.depth, || format!("· {model} {}, {tokens}, {cost}", milliseconds(*duration_ms)))
            }
            EventKind::RequestFailed { model, usage, error, .. }
                if usage.requests > 0 && matches!(self.view.verbosity, Verbosity::Calls | Verbosity::Text) =>
            {
                let (tokens, cost) = (summary::tokens(usage), summary::cost(usage));
                self.calls(event.depth, || format!("· {model} gave no reply, {tokens}, {cost}: {error}"))
            }
            EventKind::ProcessOutput { text, .. } if self.view.verbosity >= Verbosity::Calls => {
                self.calls(event.depth, || format!("| {}", visible_lines(text.trim_end())))
            }
            EventKind::CallStarted { .. }
            | EventKind::CallFinished { .. }
            | EventKind::UserMessage { .. }
            | EventKind::TextDelta { .. }
            | EventKind::TextComplete { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::ApprovalAsked { .. }
            | EventKind::RequestStarted { .. }
            | EventKind::RequestFinished { .. }
            | EventKind::RetryScheduled { .. }
            | EventKind::RequestFailed { .. }
            | EventKind::ToolProgressed { .. }
            | EventKind::ToolsetStarted { .. }
            | EventKind::LimitApproached { .. }
            | EventKind::LimitReached { .. }
            | EventKind::ProcessOutput { .. }
            | EventKind::RunFailed { .. } => None,
        }
    }
}

/// Why no person was asked; `None` if one was, since that person has seen the answer.
fn unasked(answer: ApprovalResult) -> Option<&'static str> {
    match answer {
        ApprovalResult::Policy => Some("--approve-all is on"),
        ApprovalResult::Remembered => Some("you allowed it for this session"),
        ApprovalResult::Rule => Some("a lasting rule allows it"),
        ApprovalResult::Once
        | ApprovalResult::CallForSession
        | ApprovalResult::ToolForSession
        | ApprovalResult::Edited
        | ApprovalResult::Refused => None,
    }
}

struct RenderedLine {
    depth: usize,
    style: Style,
    text: String,
}

/// A text result by its words, anything else as JSON. (Text that another process told is JSON, too.)
fn brief(output: &CallOutput) -> Cow<'_, str> {
    match output {
        CallOutput::Text(text) => Cow::Borrowed(text),
        CallOutput::Json(json) => json.to().map_or(Cow::Borrowed(json.get()), Cow::Owned),
    }
}

/// How long a call took, if it was long enough that a person may have waited for it.
fn took(duration_ms: u64) -> String {
    if duration_ms < 1000 { String::new() } else { format!(" ({})", milliseconds(duration_ms)) }
}

fn milliseconds(duration: u64) -> String {
    summary::seconds(std::time::Duration::from_millis(duration))
}

/// How much of a limit is used up, in words.
fn approached(limit: &str, used: f64, allowed: f64) -> String {
    let share = if allowed > 0.0 { (100.0 * used / allowed).round() } else { 100.0 };
    match limit {
        "max_cost_usd" => format!("{share} % of the cost limit: ${used:.2} of ${allowed:.2}"),
        limit => format!("{share} % of `{limit}`: {used} of {allowed}"),
    }
}

#[cfg(test)]
mod tests;
