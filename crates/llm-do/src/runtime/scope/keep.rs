//! What stays of a turn that was stopped or failed. What it said and did is part of the conversation, so that whoever goes
//! on knows of it; every call has a result, and nothing is left that a provider would refuse.

#[cfg(feature = "front-end")]
use std::sync::Arc;
#[cfg(feature = "front-end")]
use std::sync::atomic::{AtomicBool, Ordering};

use super::CallScope;
use crate::escape::visible_start;
use crate::message::{Content, Finish, Message, Reply, ReplyPart, TextPart, ToolCall, Usage};
use crate::runtime::RunError;
use crate::runtime::record::TurnMessage;
use crate::tools::Ending;

/// Whether the conversation goes on behind a turn that came to no answer.
#[derive(Clone, Default)]
pub(in crate::runtime) enum TurnKeeping {
    /// What it came to stays.
    #[default]
    Always,
    /// The turn is all there is. It is left open in its record, where it can be gone on with.
    Never,
    /// As long as this says so: whoever goes leaves the turn open for those who come back.
    #[cfg(feature = "front-end")]
    While(Arc<AtomicBool>),
}

/// A turn that is over: what is needed to forget it.
#[derive(Debug)]
pub(super) struct PastTurn {
    /// How long the history was before it.
    pub start: usize,
    /// What its message told of the turn before.
    pub told: Option<String>,
}

/// The longest reason that a model reads.
const LONGEST_REASON: usize = 300;

impl CallScope<'_> {
    /// Whether the turn that has ended with this error stays. If so, the history has what it came to.
    pub(super) fn keep(&mut self, error: &RunError) -> bool {
        let keeps = match &self.keeping {
            TurnKeeping::Always => true,
            TurnKeeping::Never => false,
            #[cfg(feature = "front-end")]
            TurnKeeping::While(keeps) => keeps.load(Ordering::SeqCst),
        };
        let Some(start) = self.turn.as_ref().map(|turn| turn.start) else { return false };
        let heard = std::mem::take(&mut self.heard);
        let said = self.frame.history.get(start..).unwrap_or_default();
        let is_answered = !heard.trim().is_empty() || said.iter().any(|said| matches!(said, Message::Assistant(_)));
        if !keeps || said.is_empty() || !stays(error, is_answered) {
            return false;
        }
        self.name_sources(start);
        let length = self.frame.history.len();
        self.complete(heard);
        self.rewind(length - 1);
        self.interrupted = Some(reason(error));
        true
    }

    /// What an answer that is gone on with put into the history stands in no record.
    fn name_sources(&mut self, start: usize) {
        let count = self.frame.history.len() - start;
        if let Some(turn) = self.turn.as_mut().filter(|_| self.steps.is_recorded()) {
            turn.sources.resize(count, TurnMessage::Made);
        }
    }

    /// Every call gets a result, and what was heard of a reply becomes one.
    fn complete(&mut self, heard: String) {
        match self.frame.history.last() {
            Some(Message::Assistant(reply)) if reply.unfinished().is_some() => {
                let words = words_of(reply, &heard);
                self.frame.history.pop();
                if let Some(turn) = &mut self.turn {
                    turn.sources.pop();
                }
                self.push_reply(words);
            }
            Some(Message::Assistant(reply)) if reply.tool_calls().next().is_some() => {
                let calls: Vec<&ToolCall> = reply.tool_calls().collect();
                let results = self.plane().results(&calls);
                self.push(Message::tool_results(results), TurnMessage::Made);
            }
            Some(Message::Assistant(_)) => {}
            Some(Message::User(_) | Message::Tool(_)) | None => self.push_reply(vec![plain(heard)]),
        }
    }

    /// A reply that was cut. One without words would be refused by every provider.
    fn push_reply(&mut self, parts: Vec<ReplyPart>) {
        let is_blank = |part: &ReplyPart| match part {
            ReplyPart::Text(part) | ReplyPart::Refusal(part) => part.text.trim().is_empty(),
            ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) => true,
        };
        let parts: Vec<ReplyPart> = parts.into_iter().filter(|part| !is_blank(part)).collect();
        if parts.is_empty() {
            return;
        }
        let reply = Reply {
            parts,
            model: self.model.clone(),
            finish: Finish::Error,
            finish_reason: Some("interrupted".to_owned()),
            // What was asked is counted where it was asked.
            usage: Usage::default(),
        };
        self.push(Message::Assistant(reply), TurnMessage::Made);
    }

    /// The turn is over, and is part of the conversation.
    pub(super) fn end_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.past.push(PastTurn { start: turn.start, told: turn.told });
        }
    }

    /// What the next message tells the model of the turn before it.
    pub(super) fn interruption_note(&self) -> Option<Content> {
        let reason = self.interrupted.as_ref()?;
        Some(Content::of_interruption(reason))
    }
}

/// The words of a reply that was cut, with what was heard of its rest. Thoughts, calls that never ran and what only a whole
/// reply may have are left out.
fn words_of(reply: &Reply, heard: &str) -> Vec<ReplyPart> {
    let mut parts: Vec<ReplyPart> = reply
        .parts
        .iter()
        .filter_map(|part| match part {
            ReplyPart::Text(part) => Some(plain(part.text.clone())),
            ReplyPart::Refusal(part) => Some(ReplyPart::Refusal(TextPart { text: part.text.clone(), private: None })),
            ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) => None,
        })
        .collect();
    match parts.last_mut() {
        Some(ReplyPart::Text(last)) => last.text.push_str(heard),
        _ => parts.push(plain(heard.to_owned())),
    }
    parts
}

fn plain(text: String) -> ReplyPart {
    ReplyPart::Text(TextPart { text, private: None })
}

/// Whether a turn that ended so is part of the conversation. One that waits for a person goes on later. One that was stopped
/// stays; one that failed before there was any reply is taken back.
fn stays(error: &RunError, is_answered: bool) -> bool {
    match error {
        RunError::Ended(Ending::NeedsApproval(_) | Ending::Journal(_)) | RunError::Input(_) => false,
        RunError::Cancelled { .. } | RunError::Ended(Ending::EndedByPerson) => true,
        _ => is_answered,
    }
}

/// Why a turn ended, as the model reads it and a record keeps it.
fn reason(error: &RunError) -> String {
    match error {
        RunError::Cancelled { .. } | RunError::Ended(Ending::EndedByPerson) => "the user stopped it".to_owned(),
        error => visible_start(&error.to_string(), LONGEST_REASON).into_owned(),
    }
}
