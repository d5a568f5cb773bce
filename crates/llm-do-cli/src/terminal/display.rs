//! What a person or a program sees of a run while it goes on.

use std::time::{Duration, Instant};

use llm_do::events::{LoggedMessage, MessageLog, ProviderSilence};
use llm_do::{Event, EventKind, RawJson};
use llm_do_launch::partial::value_so_far;

use crate::args::RunFormat;
use crate::terminal::below::Below;
use crate::terminal::calls::{CallNumbering, ToldCalls};
use crate::terminal::clock::WorkClock;
use crate::terminal::markdown::MarkdownForm;
use crate::terminal::render::{OutputPiece, Renderer, Thoughts, View};
use crate::terminal::status::Status;
use crate::terminal::style::Style;
use crate::terminal::typing::TypedAhead;
use crate::{console, json};

pub struct Display {
    pub view: View,
    format: RunFormat,
    renderer: Renderer,
    status: Status,
    pub clock: WorkClock,
    /// The status line, and what is being typed.
    below: Below,
    /// Whether anything came since the status line moved last.
    has_news: bool,
    /// That nothing comes, if that is worth saying.
    silence: Option<ProviderSilence>,
    /// The typed answer as it comes, if it is printed.
    partial: Option<PartialAnswer>,
}

/// A typed answer that is still being written.
#[derive(Default)]
struct PartialAnswer {
    text: String,
    /// What was printed of it last, and when.
    printed: Option<(Instant, RawJson)>,
}

/// Ten times a second.
const PARTIAL_EVERY: Duration = Duration::from_millis(100);

impl PartialAnswer {
    fn note(&mut self, event: &Event) {
        if event.depth > 0 {
            return;
        }
        if let EventKind::TextDelta { text } = &event.kind {
            self.text.push_str(text);
        } else if matches!(event.kind, EventKind::RequestStarted { .. } | EventKind::TextComplete { .. }) {
            self.text.clear();
        }
    }

    /// What is new, if it is time for it.
    fn news(&mut self, now: Instant) -> Option<RawJson> {
        if self.printed.as_ref().is_some_and(|(at, _)| now.duration_since(*at) < PARTIAL_EVERY) {
            return None;
        }
        let value = value_so_far(&self.text)?;
        if self.printed.as_ref().is_some_and(|(_, printed)| *printed == value) {
            return None;
        }
        self.printed = Some((now, value.clone()));
        Some(value)
    }
}

/// Shorter silences are usual.
const LONG_SILENCE: Duration = Duration::from_secs(5);

impl Display {
    pub fn new(view: View, format: RunFormat) -> Self {
        let (renderer, status) = (Renderer::new(view), Status::default());
        Self {
            view,
            format,
            renderer,
            status,
            clock: WorkClock::from(Instant::now()),
            below: Below::default(),
            has_news: false,
            silence: None,
            partial: None,
        }
    }

    /// Also prints a typed answer as it comes.
    #[must_use]
    pub fn with_partial_answers(self) -> Self {
        Self { partial: Some(PartialAnswer::default()), ..self }
    }

    /// The clock of the status line begins anew.
    pub fn restart(&mut self) {
        self.clock.begin_turn(Instant::now());
        self.renderer.restart();
    }

    /// Calls have numbers from now on.
    pub fn number_calls(&mut self, numbering: CallNumbering) {
        self.renderer.number_calls(numbering);
    }

    /// What was told of calls.
    pub fn calls(&self) -> &ToldCalls {
        self.renderer.calls()
    }

    /// Shows the last result whole that was cut.
    pub fn show_cut(&mut self, typed: &TypedAhead) {
        let Some(text) = self.renderer.calls().last_cut() else { return };
        let mut pieces = Vec::new();
        self.renderer.end_lines(&mut pieces);
        pieces.push(OutputPiece::Err(text));
        self.write(pieces);
        self.tick(typed);
    }

    /// Shows what models think, or does not any more.
    pub fn toggle_thoughts(&mut self) -> Thoughts {
        self.view.thoughts = match self.view.thoughts {
            Thoughts::Hidden => Thoughts::Shown,
            Thoughts::Shown => Thoughts::Hidden,
        };
        self.renderer.set_thoughts(self.view.thoughts);
        self.view.thoughts
    }

    /// Shows events together: one call of the system for a burst of deltas.
    pub fn show(&mut self, events: impl Iterator<Item = Event>, typed: &mut TypedAhead) {
        (self.silence, self.has_news) = (None, true);
        let columns = if self.view.live { console::columns() } else { None };
        if self.view.answers == MarkdownForm::Styled {
            self.renderer.set_answer_columns(console::answer_columns());
        }
        let (mut lines, mut pieces) = (String::new(), Vec::new());
        for event in events {
            if self.format == RunFormat::StreamJson {
                lines.push_str(&json::event(&event));
            }
            if let Some(partial) = &mut self.partial {
                partial.note(&event);
                if let (EventKind::TextDelta { .. }, Some(output)) = (&event.kind, partial.news(Instant::now())) {
                    lines.push_str(&json::partial(&event, &output));
                }
            }
            self.status.note(&event);
            if let (0, EventKind::UserMessage { text }) = (event.depth, &event.kind) {
                typed.heard(text);
            }
            self.renderer.render(&event, columns, &mut pieces);
        }
        if !lines.is_empty() {
            // A stdout that cannot be written is told of at the end.
            let _ = console::print(&lines);
        }
        // What was cleared for the sake of a line comes back below it at once: nothing flickers.
        if self.write(pieces) {
            self.tick(typed);
        }
    }

    /// Takes down how long nothing has come of an answer.
    pub fn hear_silence(&mut self, silence: Option<ProviderSilence>) {
        self.silence = silence.filter(|silence| silence.lasted >= LONG_SILENCE);
    }

    /// Time goes by: what is held of an answer that has paused is shown, and the status line moves.
    pub fn pulse(&mut self, typed: &TypedAhead) {
        if !std::mem::take(&mut self.has_news) && self.view.live {
            let mut pieces = Vec::new();
            self.renderer.show_early(&mut pieces);
            self.write(pieces);
        }
        self.tick(typed);
    }

    /// Draws the status line anew, if nothing else stands on its line, and what is being typed below all else.
    pub fn tick(&mut self, typed: &TypedAhead) {
        if !self.view.live {
            return;
        }
        let all = console::columns().unwrap_or(80);
        let columns = all.saturating_sub(1);
        let typing = typed.rows(columns, self.view.stderr);
        let has_cursor = !typing.rows.is_empty();
        let mut rows = Vec::new();
        // Below words that have no end yet it stands only if there is something to say.
        if has_cursor || self.silence.is_some() || !self.renderer.is_within_line() {
            let line = self.status.line(self.clock.of_turn(Instant::now()), self.silence, columns);
            rows.push(self.view.stderr.paint(Style::Dim, &line));
        }
        rows.extend(typing.rows);
        // One write, so that no half of it is ever seen.
        console::complain(&self.below.drawn(&rows, has_cursor.then_some(typing.cursor), all));
    }

    /// The process was stopped and goes on: what stood on the terminal is gone.
    pub fn returned(&mut self, typed: &TypedAhead) {
        self.below.forget();
        self.tick(typed);
    }

    /// Leaves the terminal to other code or another program, at the start of an empty line.
    pub fn step_back(&mut self) {
        let mut pieces = Vec::new();
        self.renderer.end_lines(&mut pieces);
        pieces.push(OutputPiece::Err(String::new()));
        let _ = self.write(pieces);
    }

    /// Writes the pieces, and gives whether anything was in the way.
    fn write(&mut self, pieces: Vec<OutputPiece>) -> bool {
        if pieces.is_empty() {
            return false;
        }
        let was_drawn = self.below.is_drawn();
        console::complain(&self.below.erased());
        let (mut out, mut err) = (String::new(), String::new());
        for piece in pieces {
            // Stdout and stderr may be one terminal: the order of what is written is the order of what happened.
            match piece {
                OutputPiece::Out(text) => {
                    flush_err(&mut err);
                    if self.view.stdout_is_terminal {
                        self.below.written(&text);
                    }
                    out.push_str(&text);
                }
                OutputPiece::Err(text) => {
                    flush_out(&mut out);
                    self.below.written(&text);
                    err.push_str(&text);
                }
            }
        }
        flush_out(&mut out);
        flush_err(&mut err);
        was_drawn
    }
}

fn flush_out(text: &mut String) {
    if !text.is_empty() {
        let _ = console::print(text);
        text.clear();
    }
}

fn flush_err(text: &mut String) {
    if !text.is_empty() {
        console::complain(text);
        text.clear();
    }
}

/// Every message as a line of JSON on stderr, as soon as it was said.
pub struct MessageLines;

impl MessageLog for MessageLines {
    fn log(&self, message: &LoggedMessage<'_>) {
        console::complain(&json::line(message));
    }
}
