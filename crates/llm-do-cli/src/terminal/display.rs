//! What a person or a program sees of a run while it goes on.

use std::time::Instant;

use llm_do::Event;
use llm_do::events::{LoggedMessage, MessageLog};

use crate::args::RunFormat;
use crate::terminal::render::{OutputPiece, Renderer, View};
use crate::terminal::status::Status;
use crate::terminal::style::Style;
use crate::{console, json};

pub struct Display {
    pub view: View,
    format: RunFormat,
    renderer: Renderer,
    status: Status,
    started: Instant,
    /// Whether the status line stands on the terminal now.
    drawn: bool,
}

/// Back to the start of the line, and nothing on it.
const CLEAR: &str = "\r\u{1b}[K";

impl Display {
    pub fn new(view: View, format: RunFormat) -> Self {
        let (renderer, status) = (Renderer::new(view), Status::default());
        Self { view, format, renderer, status, started: Instant::now(), drawn: false }
    }

    /// The clock of the status line begins anew.
    pub fn restart(&mut self) {
        self.started = Instant::now();
    }

    /// Shows events together: one call of the system for a burst of deltas.
    pub fn show(&mut self, events: impl Iterator<Item = Event>) {
        let columns = if self.view.live { console::columns() } else { None };
        let (mut lines, mut pieces) = (String::new(), Vec::new());
        for event in events {
            if self.format == RunFormat::StreamJson {
                lines.push_str(&json::event(&event));
            }
            self.status.note(&event);
            self.renderer.render(&event, columns, &mut pieces);
        }
        if !lines.is_empty() {
            // A stdout that cannot be written is told of at the end.
            let _ = console::print(&lines);
        }
        // What was cleared for the sake of a line comes back below it at once: nothing flickers.
        if self.write(pieces) && !self.renderer.is_within_line() {
            self.tick();
        }
    }

    /// Draws the status line anew, if nothing else stands on its line.
    pub fn tick(&mut self) {
        if self.renderer.is_within_line() {
            return;
        }
        let columns = console::columns().unwrap_or(80).saturating_sub(1);
        let line = self.status.line(self.started.elapsed(), columns);
        // One write, so that no half of it is ever seen.
        console::complain(&format!("\r{}\u{1b}[K", self.view.stderr.paint(Style::Dim, &line)));
        self.drawn = true;
    }

    /// Leaves the terminal to other code or another program, at the start of an empty line.
    pub fn step_back(&mut self) {
        let mut pieces = Vec::new();
        self.renderer.end_lines(&mut pieces);
        pieces.push(OutputPiece::Err(String::new()));
        let _ = self.write(pieces);
    }

    /// Writes the pieces, and gives whether the status line was in the way.
    fn write(&mut self, pieces: Vec<OutputPiece>) -> bool {
        if pieces.is_empty() {
            return false;
        }
        let was_drawn = std::mem::take(&mut self.drawn);
        if was_drawn {
            console::complain(CLEAR);
        }
        let (mut out, mut err) = (String::new(), String::new());
        for piece in pieces {
            // Stdout and stderr may be one terminal: the order of what is written is the order of what happened.
            match piece {
                OutputPiece::Out(text) => {
                    flush_err(&mut err);
                    out.push_str(&text);
                }
                OutputPiece::Err(text) => {
                    flush_out(&mut out);
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
