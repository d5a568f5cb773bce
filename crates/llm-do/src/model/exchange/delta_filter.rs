//! What listeners have heard of a reply that is still coming. When a broken stream is asked for again, they do not hear
//! the same words twice.

use crate::event::{EventKind, Events, SilenceClock};
use crate::message::ServerToolPart;
use crate::model::protocol::Delta;

pub(crate) struct DeltaFilter<'a> {
    events: &'a Events,
    heard: bool,
    text: DeltaProgress,
    thinking: DeltaProgress,
    server_tools: usize,
    server_tools_now: usize,
    restarted: bool,
    /// How many bytes of text and thoughts the present attempt has brought.
    pub bytes: u64,
}

/// What was told of one kind, and how far the present attempt has come in it.
#[derive(Default)]
struct DeltaProgress {
    told: String,
    position: usize,
}

impl DeltaProgress {
    /// The part of a delta that is news, or `None` if the attempt says something else than the one before.
    fn news<'d>(&mut self, delta: &'d str) -> Option<&'d str> {
        let ahead = &self.told[self.position..];
        let common = delta.len().min(ahead.len());
        if !delta.as_bytes().starts_with(&ahead.as_bytes()[..common]) {
            return None;
        }
        self.position += common;
        let news = &delta[common..];
        self.told.push_str(news);
        self.position = self.position.max(if news.is_empty() { 0 } else { self.told.len() });
        Some(news)
    }

    /// Begins anew; what this attempt repeated so far is to be told once more.
    fn forget(&mut self) -> String {
        let repeated = self.told[..self.position].to_owned();
        self.told.clone_from(&repeated);
        repeated
    }
}

impl<'a> DeltaFilter<'a> {
    /// How long nothing has come, if somebody wants to know.
    pub(crate) fn silence(&self) -> Option<&'a SilenceClock> {
        self.events.watched_silence()
    }

    /// A reply of which nothing has come yet, told to these listeners.
    pub(crate) fn new(events: &'a Events) -> Self {
        Self {
            events,
            heard: events.hears_deltas(),
            text: DeltaProgress::default(),
            thinking: DeltaProgress::default(),
            server_tools: 0,
            server_tools_now: 0,
            restarted: false,
            bytes: 0,
        }
    }

    /// Whether listeners have heard some of the answer.
    pub(crate) fn has_told_text(&self) -> bool {
        self.heard && !self.text.told.is_empty()
    }

    /// The reply comes again from its start: what listeners have heard of it is not told twice.
    pub(crate) fn start_again(&mut self) {
        self.text.position = 0;
        self.thinking.position = 0;
        self.server_tools_now = 0;
        self.restarted = true;
        self.bytes = 0;
    }

    /// Takes the next piece of the reply and tells listeners what is new in it.
    pub(crate) fn tell(&mut self, delta: Delta<'_>) {
        if let Delta::Text(text) | Delta::Thinking(text) = delta {
            self.bytes += text.len() as u64;
        }
        match delta {
            Delta::Text(text) if self.heard => self.tell_text(text),
            Delta::Thinking(text) if self.heard => self.tell_thinking(text),
            Delta::Text(_) | Delta::Thinking(_) => {}
            // A fact, not a piece: the trace has it too.
            Delta::ServerTool(part) => self.tell_server_tool(part),
        }
    }

    fn tell_text(&mut self, delta: &str) {
        if !self.restarted {
            // The usual case: nothing to compare with, only to be remembered.
            self.text.told.push_str(delta);
            self.events.send_delta(|| EventKind::TextDelta { text: delta.to_owned() });
            return;
        }
        let news = match self.text.news(delta) {
            Some(news) => news.to_owned(),
            None => {
                self.events.send(|| EventKind::Notice { text: "the answer begins again, with other words".to_owned() });
                let repeated = self.text.forget();
                self.text.news(delta);
                repeated + delta
            }
        };
        if !news.is_empty() {
            self.events.send_delta(|| EventKind::TextDelta { text: news });
        }
    }

    fn tell_thinking(&mut self, delta: &str) {
        if !self.restarted {
            self.thinking.told.push_str(delta);
            self.events.send_delta(|| EventKind::ThinkingDelta { text: delta.to_owned() });
            return;
        }
        // Other thoughts are simply told on: they are no answer.
        let news = match self.thinking.news(delta) {
            Some(news) => news.to_owned(),
            None => {
                self.thinking.forget();
                self.thinking.news(delta);
                delta.to_owned()
            }
        };
        if !news.is_empty() {
            self.events.send_delta(|| EventKind::ThinkingDelta { text: news });
        }
    }

    fn tell_server_tool(&mut self, part: &ServerToolPart) {
        self.server_tools_now += 1;
        if self.server_tools_now <= self.server_tools {
            return;
        }
        self.server_tools = self.server_tools_now;
        let ServerToolPart { tool, input, output, .. } = part.clone();
        self.events.send(|| EventKind::ServerToolUsed { tool, input, output });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Listen;

    fn heard(attempts: &[&[&str]]) -> Vec<String> {
        let (events, mut listener) = Events::new(Listen::Everything);
        let mut told = DeltaFilter::new(&events);
        for (index, deltas) in attempts.iter().enumerate() {
            if index > 0 {
                told.start_again();
            }
            deltas.iter().for_each(|delta| told.tell(Delta::Text(delta)));
        }
        drop(told);
        drop(events);
        let mut heard = Vec::new();
        while let Some(event) = listener.blocking_recv() {
            heard.push(match event.kind {
                EventKind::TextDelta { text } => text,
                EventKind::Notice { .. } => "!".to_owned(),
                other => panic!("{other:?}"),
            });
        }
        heard
    }

    #[test]
    fn a_second_attempt_tells_only_what_is_new() {
        assert_eq!(heard(&[&["Hel", "lo"]]), ["Hel", "lo"]);
        assert_eq!(heard(&[&["Hel"], &["Hello", " you"]]), ["Hel", "lo", " you"]);
        assert_eq!(heard(&[&["Hello"], &["He"], &["H", "el", "lo!"]]), ["Hello", "!"]);
        assert_eq!(heard(&[&["ä"], &["äö"]]), ["ä", "ö"]);
    }

    #[test]
    fn an_attempt_with_other_words_is_told_from_its_start() {
        assert_eq!(heard(&[&["Hello"], &["Hel", "p me"]]), ["Hello", "!", "Help me"]);
        assert_eq!(heard(&[&["ä"], &["ö"]]), ["ä", "!", "ö"]);
    }
}
