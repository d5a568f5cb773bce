//! One model request: reserved before, priced and settled after, all of it one effect.

use std::time::Instant;

use super::ledger::{Account, Cost, Ledger, Reached};
use crate::event::{EventKind, Events};
use crate::journal::Stop;
use crate::message::{Arguments, Content, Message, Reply, ReplyPart, Usage};
use crate::model::prices::ModelPrice;
use crate::model::{Conversation, ModelError};
use crate::project::AgentSpec;

/// Everything around a request but the conversation itself.
pub(super) struct Request<'a> {
    pub agent: &'a AgentSpec,
    /// `provider:model`.
    pub model: &'a str,
    /// What the model costs, if anybody knows.
    pub price: Option<&'a ModelPrice>,
    /// About how many bytes were said so far.
    pub heard: usize,
    pub ledger: &'a Ledger,
    pub account: Account,
    pub events: &'a Events,
}

/// Why there is no reply.
pub(super) enum Unanswered {
    Limit(Reached),
    Model(ModelError),
    Stopped(Stop),
}

impl From<Stop> for Unanswered {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl Request<'_> {
    /// Asks. The reply gets its price here and nowhere else, before anybody hears of it: so events, usage, trace and
    /// messages agree, also when they come from a record.
    pub async fn ask(&self, conversation: &mut dyn Conversation, history: &[Message]) -> Result<Reply, Unanswered> {
        let estimate = self.estimate();
        self.ledger.reserve(self.account, estimate).map_err(Unanswered::Limit)?;
        // Dropped with the future: what was reserved and never spent is given back.
        let mut reserved = Reserved { ledger: self.ledger, account: self.account, estimate, spent: None };
        let longest_wait = conversation.longest_wait();
        self.events.send(|| EventKind::RequestStarted {
            model: self.model.to_owned(),
            longest_wait_ms: longest_wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        });
        let started = Instant::now();
        let mut reply = conversation.reply(history, self.events).await.map_err(Unanswered::Model)?;
        // A model that says itself what it took knows better than a table.
        let priced = || self.price.map(|price| price.cost(&reply.usage));
        reply.usage.cost_usd = reply.usage.cost_usd.or_else(priced);
        reserved.spent = Some(Cost::of_reply(&reply.usage));
        tell_near(reserved.settle(), self.events);
        self.events.send(|| EventKind::RequestFinished {
            model: self.model.to_owned(),
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            usage: reply.usage,
            finish: reply.finish,
        });
        Ok(reply)
    }

    /// Before a request nobody knows what it takes: a token has about three bytes, and an answer is as long as it may be.
    fn estimate(&self) -> Cost {
        let input_tokens = (self.agent.instructions.len() + self.heard) as u64 / 3;
        let output_tokens = self.agent.settings.max_tokens.unwrap_or(0);
        let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        let usd = self.price.map_or(0.0, |price| price.cost(&usage));
        Cost { requests: 1, tool_calls: 0, input_tokens, output_tokens, usd }
    }
}

pub(super) fn tell_near(near: Vec<Reached>, events: &Events) {
    for Reached { limit, used, allowed, .. } in near {
        events.send(|| EventKind::LimitApproached { limit: limit.to_owned(), used, allowed });
    }
}

/// A reservation that settles itself, also when its request is dropped.
struct Reserved<'a> {
    ledger: &'a Ledger,
    account: Account,
    estimate: Cost,
    spent: Option<Cost>,
}

impl Reserved<'_> {
    fn settle(mut self) -> Vec<Reached> {
        let spent = self.spent.take().unwrap_or_default();
        let near = self.ledger.settle(self.account, self.estimate, spent);
        self.estimate = Cost::default();
        near
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.ledger.settle(self.account, self.estimate, self.spent.take().unwrap_or_default());
    }
}

/// About how many bytes a history is: every message is looked at once, however many requests follow it.
#[derive(Default)]
pub(super) struct Heard {
    messages: usize,
    bytes: usize,
}

impl Heard {
    pub fn bytes(&mut self, history: &[Message]) -> usize {
        self.bytes += history.iter().skip(self.messages).map(size).sum::<usize>();
        self.messages = history.len();
        self.bytes
    }
}

/// About how many bytes a message is.
fn size(message: &Message) -> usize {
    let content = |parts: &[Content]| -> usize {
        parts
            .iter()
            .map(|part| match part {
                Content::Text { text } | Content::Value { json: text } => text.len(),
                Content::Attachment(attachment) => attachment.data.len(),
            })
            .sum()
    };
    match message {
        Message::User(message) => content(&message.parts),
        Message::Tool(message) => message
            .parts
            .iter()
            .map(|result| match &result.outcome {
                Ok(parts) => content(parts),
                Err(error) => error.len(),
            })
            .sum(),
        Message::Assistant(reply) => reply
            .parts
            .iter()
            .map(|part| match part {
                ReplyPart::Text(part) | ReplyPart::Refusal(part) => part.text.len(),
                ReplyPart::Thinking(part) => part.text.len(),
                ReplyPart::ToolCall(call) => match &call.arguments {
                    Arguments::Object(arguments) => arguments.get().len(),
                    Arguments::Malformed(text) => text.len(),
                },
                ReplyPart::ServerTool(part) => part.output.as_ref().map_or(0, |output| output.get().len()),
            })
            .sum(),
    }
}
