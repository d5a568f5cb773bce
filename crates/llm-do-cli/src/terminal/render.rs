//! Events → what is shown of them. Pure: events in, pieces of text for both streams out.

use std::borrow::Cow;

use llm_do::escape::{visible, visible_lines};
use llm_do::events::{ApprovalResult, CallEnd, CallOutput, ToolReturn};
use llm_do::{Event, EventKind, RawJson};

use crate::terminal::calls::{CallNumbering, ResultLines, ToldCalls};
use crate::terminal::markdown::{Markdown, MarkdownForm};
use crate::terminal::style::{Style, Styles, fit, width, wrap_words};
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
    /// What becomes of the marks of an answer.
    pub answers: MarkdownForm,
    pub stderr: Styles,
    pub thoughts: Thoughts,
}

/// Whether a person sees what models think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoughts {
    Hidden,
    Shown,
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
        self.streamed || self.verbosity == Verbosity::Text || self.shows(Words::Thought)
    }

    /// Whether words beside the answer are shown.
    fn shows(self, words: Words) -> bool {
        match self.verbosity {
            Verbosity::Quiet | Verbosity::Messages => false,
            Verbosity::Text => true,
            Verbosity::Normal | Verbosity::Calls => {
                words == Words::Thought && self.live && self.thoughts == Thoughts::Shown
            }
        }
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
    /// Whether the turn has its input: what is said to it now was typed meanwhile, and stands nowhere yet.
    has_input: bool,
    calls: ToldCalls,
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
            answer: Markdown::new(view.answers, WIDEST),
            aside: Markdown::new(MarkdownForm::Source, WIDEST),
            speaker: None,
            streamed_reply: false,
            has_input: false,
            calls: ToldCalls::default(),
        }
    }

    /// Calls have numbers from now on, by which a person asks for what came of them.
    pub fn number_calls(&mut self, numbering: CallNumbering) {
        self.calls.numbering = numbering;
    }

    /// What was told of calls.
    pub fn calls(&self) -> &ToldCalls {
        &self.calls
    }

    /// Another turn begins.
    pub fn restart(&mut self) {
        self.has_input = false;
    }

    /// Thoughts are shown from now on, or not any more.
    pub fn set_thoughts(&mut self, thoughts: Thoughts) {
        self.view.thoughts = thoughts;
    }

    /// How wide the terminal is that answers go to.
    pub fn set_answer_columns(&mut self, columns: usize) {
        self.answer.set_columns(columns);
    }

    /// Whether a text stands on a line without end: nothing else may be written there.
    pub fn is_within_line(&self) -> bool {
        self.answer.is_within_line() || self.speaker.is_some()
    }

    /// Nothing follows for a while: what is held of the answer is shown as far as it can be.
    pub fn show_early(&mut self, out: &mut Vec<OutputPiece>) {
        let held = self.answer.show_early();
        if !held.is_empty() {
            out.push(OutputPiece::Out(held));
        }
    }

    pub fn render(&mut self, event: &Event, columns: Option<usize>, out: &mut Vec<OutputPiece>) {
        match &event.kind {
            EventKind::TextDelta { text } if event.depth == 0 && self.view.streamed => {
                self.end_aside(out);
                self.streamed_reply = true;
                let shown = self.answer.push(text);
                if !shown.is_empty() {
                    out.push(OutputPiece::Out(shown));
                }
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
            EventKind::UserMessage { text } if event.depth == 0 => {
                if std::mem::replace(&mut self.has_input, true) && self.view.tells_notes() {
                    self.end_lines(out);
                    out.push(OutputPiece::Err(quoted(text)));
                }
            }
            kind => {
                if let EventKind::RequestStarted { .. } = kind
                    && event.depth == 0
                {
                    self.streamed_reply = false;
                }
                for RenderedLine { depth, style, text } in self.lines(event) {
                    self.end_lines(out);
                    let indent = " ".repeat(INDENT * depth);
                    let columns = columns.map_or(WIDEST, |columns| columns.saturating_sub(1));
                    let room = columns.saturating_sub(width(&indent)).max(20);
                    // What went wrong is no use if its end is cut off.
                    let rows = if style == Style::Warning { in_rows(&text, room) } else { vec![fit(&text, room)] };
                    for row in rows {
                        out.push(OutputPiece::Err(format!("{indent}{}\n", self.view.stderr.paint(style, &row))));
                    }
                }
            }
        }
    }

    /// Ends whatever stands on an open line.
    pub fn end_lines(&mut self, out: &mut Vec<OutputPiece>) {
        self.end_aside(out);
        // Words may be held that nobody has seen.
        let held = self.answer.pause();
        if !held.is_empty() {
            out.push(OutputPiece::Out(held));
        }
    }

    fn end_aside(&mut self, out: &mut Vec<OutputPiece>) {
        if self.speaker.take().is_some() {
            out.push(OutputPiece::Err(self.aside.finish()));
        }
    }

    fn speak(&mut self, event: &Event, words: Words, text: &str, out: &mut Vec<OutputPiece>) {
        if !self.view.shows(words) {
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
        let shown = self.aside.push(text);
        out.push(OutputPiece::Err(match words {
            Words::Said => shown,
            Words::Thought => self.view.stderr.paint(Style::Dim, &shown),
        }));
    }

    fn told(&self, depth: usize, text: impl FnOnce() -> String) -> Option<RenderedLine> {
        self.view.tells_calls().then(|| RenderedLine { depth, style: Style::Dim, text: text() })
    }

    fn complaint(&self, depth: usize, text: impl FnOnce() -> String) -> Option<RenderedLine> {
        self.view.tells_calls().then(|| RenderedLine { depth, style: Style::Warning, text: text() })
    }

    fn note(&self, text: &str) -> Option<RenderedLine> {
        let text = format!("note: {text}");
        self.view.tells_notes().then_some(RenderedLine { depth: 0, style: Style::Warning, text })
    }

    /// What a request took, where each is told of.
    fn request(&self, event: &Event) -> Option<RenderedLine> {
        if !matches!(self.view.verbosity, Verbosity::Calls | Verbosity::Text) {
            return None;
        }
        match &event.kind {
            EventKind::CacheHit { model, saved } => {
                let cost = summary::cost(saved);
                self.told(event.depth, || format!("· {model} was not asked: known from the cache, {cost} saved"))
            }
            EventKind::RequestFinished { model, duration_ms, usage, .. } => {
                let (tokens, cost) = (summary::tokens(usage), summary::cost(usage));
                self.told(event.depth, || format!("· {model} {}, {tokens}, {cost}", milliseconds(*duration_ms)))
            }
            EventKind::RequestFailed { model, usage, error, .. } if usage.requests > 0 => {
                let (tokens, cost) = (summary::tokens(usage), summary::cost(usage));
                self.told(event.depth, || format!("· {model} gave no reply, {tokens}, {cost}: {error}"))
            }
            _ => None,
        }
    }

    /// What is said of an event, one line for most.
    fn lines(&mut self, event: &Event) -> Vec<RenderedLine> {
        let caller = event.depth.saturating_sub(1);
        match &event.kind {
            EventKind::CallStarted { name, input, .. } if event.depth > 0 => self.begun(caller, event, "", name, input),
            EventKind::ToolCalled { id, tool, arguments, .. } => self.begun(event.depth, event, id, tool, arguments),
            EventKind::CallFinished { name, ended, duration_ms, .. } if event.depth > 0 => match ended {
                CallEnd::Output(output) => self.ended(caller, event, "", name, Ok(&brief(output)), *duration_ms),
                CallEnd::Error(error) => self.ended(caller, event, "", name, Err(error), *duration_ms),
            },
            EventKind::ToolReturned { id, tool, returned, duration_ms } => {
                let result = match returned {
                    ToolReturn::Result(result) => Ok(result.as_str()),
                    ToolReturn::Error(error) => Err(error.as_str()),
                };
                self.ended(event.depth, event, id, tool, result, *duration_ms)
            }
            _ => {
                let line = self.line(event);
                if line.is_some() {
                    self.calls.interrupt();
                }
                line.into_iter().collect()
            }
        }
    }

    fn begun(&mut self, depth: usize, event: &Event, id: &str, tool: &str, arguments: &RawJson) -> Vec<RenderedLine> {
        let all = self.view.verbosity >= Verbosity::Calls;
        let text = self.calls.begin(event.call, id, tool, arguments, all);
        self.told(depth, || text).into_iter().collect()
    }

    fn ended(
        &mut self,
        depth: usize,
        event: &Event,
        id: &str,
        tool: &str,
        result: Result<&str, &str>,
        duration_ms: u64,
    ) -> Vec<RenderedLine> {
        match result {
            Ok(result) => {
                let ResultLines { heading, lines } = self.calls.end(event.call, id, tool, result, &took(duration_ms));
                heading.into_iter().chain(lines).filter_map(|line| self.told(depth, || line)).collect()
            }
            Err(error) => {
                let text = self.calls.fail(event.call, id, tool, error);
                self.complaint(depth, || text).into_iter().collect()
            }
        }
    }

    /// The one line that most events are.
    fn line(&self, event: &Event) -> Option<RenderedLine> {
        match &event.kind {
            EventKind::ToolProgressed { tool, progress, total, message, .. }
                if self.view.verbosity >= Verbosity::Calls =>
            {
                let shown = summary::progress(*progress, *total, message.as_deref());
                self.told(event.depth, || format!("… {tool} {shown}"))
            }
            EventKind::ToolsetStarted { toolset } if self.view.verbosity >= Verbosity::Calls => {
                self.told(event.depth, || format!("→ starting {toolset}"))
            }
            EventKind::ToolsetReady { toolset, tools, duration_ms } => {
                let tools = if *tools == 1 { "1 tool".to_owned() } else { format!("{tools} tools") };
                self.told(event.depth, || format!("← {toolset} has {tools}{}", took(*duration_ms)))
            }
            EventKind::ToolsetFailed { toolset, error, .. } => {
                self.complaint(event.depth, || format!("✗ {toolset}: {error}"))
            }
            EventKind::ToolRefused { tool, reason, .. } => {
                // What would fit is for the model to read.
                let reason = match reason.split_once("; the schema is {") {
                    Some((words, _)) if self.view.verbosity < Verbosity::Calls => words,
                    Some(_) | None => reason,
                };
                self.complaint(event.depth, || format!("✗ {tool} was refused: {reason}"))
            }
            EventKind::ApprovalAnswered { tool, answer, rule, .. } => {
                let by = unasked(*answer, rule.as_deref())?;
                self.told(event.depth, || format!("✓ {tool} was approved: {by}"))
            }
            EventKind::ServerToolUsed { tool, input, .. } => {
                let input = input.as_ref().map_or("", RawJson::get);
                self.told(event.depth, || format!("→ {tool} (run by the provider) {input}"))
            }
            // It is shown also where calls have no lines: a person who waits wants to know what for.
            EventKind::RetryScheduled { wait_ms, reason, .. } if self.view.tells_notes() => {
                let when = if *wait_ms == 0 { "at once".to_owned() } else { format!("in {}", milliseconds(*wait_ms)) };
                let text = format!("… asking again {when}: {reason}");
                Some(RenderedLine { depth: event.depth, style: Style::Warning, text })
            }
            EventKind::ModelSwitched { from, to, reason } => {
                self.note(&format!("{to} is asked instead of {from}: {reason}"))
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
            EventKind::CacheHit { .. } | EventKind::RequestFinished { .. } | EventKind::RequestFailed { .. } => {
                self.request(event)
            }
            EventKind::ProcessOutput { text, .. } if self.view.verbosity >= Verbosity::Calls => {
                self.told(event.depth, || format!("| {}", visible_lines(text.trim_end())))
            }
            EventKind::CallStarted { .. }
            | EventKind::CallFinished { .. }
            | EventKind::ToolCalled { .. }
            | EventKind::ToolReturned { .. }
            | EventKind::UserMessage { .. }
            | EventKind::TextDelta { .. }
            | EventKind::TextComplete { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::ApprovalAsked { .. }
            | EventKind::RequestStarted { .. }
            | EventKind::RetryScheduled { .. }
            | EventKind::ToolProgressed { .. }
            | EventKind::ToolsetStarted { .. }
            | EventKind::LimitApproached { .. }
            | EventKind::LimitReached { .. }
            | EventKind::ProcessOutput { .. }
            | EventKind::RunFailed { .. } => None,
        }
    }
}

/// What a person has said, as a prompt would show it.
pub fn quoted(text: &str) -> String {
    format!("> {}\n", visible_lines(text).trim_end().replace('\n', "\n> "))
}

/// Why no person was asked; `None` if one was, since that person has seen the answer.
fn unasked(answer: ApprovalResult, rule: Option<&str>) -> Option<String> {
    match answer {
        ApprovalResult::Policy => Some("--approve-all is on".to_owned()),
        ApprovalResult::Remembered => Some("you allowed it for this session".to_owned()),
        ApprovalResult::Rule => Some(match rule {
            Some(place) => format!("a lasting rule allows it ({place})"),
            None => "a lasting rule allows it".to_owned(),
        }),
        ApprovalResult::Once
        | ApprovalResult::CallForSession
        | ApprovalResult::ToolForSession
        | ApprovalResult::Edited
        | ApprovalResult::Values
        | ApprovalResult::Refused => None,
    }
}

/// A text in a few rows, which end between words.
fn in_rows(text: &str, columns: usize) -> Vec<String> {
    const MOST: usize = 6;
    let near: String = text.chars().take(MOST * columns).collect();
    let words: Vec<String> = visible(&near).split(' ').map(str::to_owned).collect();
    let mut rows = wrap_words(&words, " ", columns.saturating_sub(INDENT));
    let is_cut = rows.len() > MOST || near.len() < text.len();
    rows.truncate(MOST);
    rows.iter_mut().skip(1).for_each(|row| row.insert_str(0, "  "));
    if let Some(last) = rows.last_mut().filter(|_| is_cut) {
        *last = fit(&format!("{last} …"), columns);
    }
    rows
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
