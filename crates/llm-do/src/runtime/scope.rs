//! One call of one agent, possibly many turns.

use std::sync::Arc;
use std::time::Instant;

use super::input::Input;
use super::output;
use super::{Output, RunError, Runtime};
use crate::event::{CallKind, Ended, EventKind, Events};
use crate::message::{
    Arguments, Content, Message, RawJson, Reply, ReplyPart, Step, ToolCall, ToolResult, Usage, UserMessage, next_step,
};
use crate::model::{Conversation, Head, Model};
use crate::project::{AgentSpec, Typing};

/// Model requests of one call, unless the agent's limits say otherwise.
const MAX_REQUESTS: u64 = 50;
/// How often an answer that violates its schema is sent back.
const MOST_REPAIRS: usize = 3;

/// The state of one call: what a reset would throw away.
#[derive(Debug)]
pub struct CallFrame {
    pub depth: usize,
    pub history: Vec<Message>,
}

/// A call of an agent.
pub struct CallScope<'r> {
    runtime: &'r Runtime,
    agent: Arc<AgentSpec>,
    pub frame: CallFrame,
    conversation: Box<dyn Conversation>,
    events: Events,
    requests: u64,
    started: Instant,
}

impl<'r> CallScope<'r> {
    pub(super) fn open(runtime: &'r Runtime, agent: Arc<AgentSpec>, model: &dyn Model, call: u64) -> Self {
        let name: Arc<str> = Arc::from(agent.name.as_str());
        let events = runtime.events.for_call(&name, 0, call);
        let output = match &agent.output {
            Typing::Schema(schema) => Some(schema.clone()),
            Typing::Untyped | Typing::Python(_) => None,
        };
        let conversation = model.open(Head {
            agent: name,
            model: agent.model.clone(),
            instructions: agent.instructions.clone(),
            tools: Vec::new(),
            server_tools: agent.server_tools.clone(),
            settings: agent.settings.clone(),
            output,
            stream: runtime.config.stream,
        });
        let frame = CallFrame { depth: 0, history: Vec::new() };
        Self { runtime, agent, frame, conversation, events, requests: 0, started: Instant::now() }
    }

    /// One input → one answer. A failed turn leaves the history as it was.
    pub async fn turn(&mut self, input: impl Into<Input>) -> Result<Output, RunError> {
        let input = input.into();
        let first_turn = self.frame.history.is_empty();
        if first_turn {
            let (name, input) = (self.agent.name.clone(), input.to_json());
            self.events.send(|| EventKind::CallStarted { name, kind: CallKind::Agent, input });
            self.note_what_is_missing();
        }
        let parts = input.into_message(&self.agent, &self.runtime.program.root)?;
        let start = self.frame.history.len();
        self.events.send(|| EventKind::UserMessage { text: shown(&parts) });
        self.frame.history.push(Message::User(UserMessage { parts }));
        let output = self.finish_turn().await;
        if output.is_err() {
            self.frame.history.truncate(start);
        }
        output
    }

    fn note_what_is_missing(&self) {
        if !self.agent.toolsets.is_empty() || !self.agent.tools.is_empty() {
            let text = format!("the tools of agent `{}` are not offered to its model yet", self.agent.name);
            self.events.send(|| EventKind::Notice { text });
        }
    }

    async fn finish_turn(&mut self) -> Result<Output, RunError> {
        let mut repairs = 0;
        loop {
            let message = match next_step(&self.frame.history) {
                Step::AskModel => Message::Assistant(self.ask().await?),
                Step::RunTools(reply) => Message::tool_results(reply.tool_calls().map(no_such_tool).collect()),
                Step::Finish(reply) => match self.answer(reply) {
                    Ok(output) => return Ok(output),
                    Err(RunError::Output { violation, .. }) if repairs < MOST_REPAIRS => {
                        repairs += 1;
                        Message::user(output::repair_request(&violation))
                    }
                    Err(error) => return Err(error),
                },
            };
            self.frame.history.push(message);
        }
    }

    /// Asks the model once, and once more if it said nothing at all.
    async fn ask(&mut self) -> Result<Reply, RunError> {
        for _ in 0..2 {
            let allowed = self.agent.limits.max_requests.unwrap_or(MAX_REQUESTS);
            if self.requests >= allowed {
                return Err(RunError::TooManyRequests { agent: self.agent.name.clone(), made: self.requests });
            }
            self.requests += 1;
            let reply = self.request().await?;
            if !reply.is_empty() {
                return Ok(reply);
            }
        }
        Err(RunError::Empty { agent: self.agent.name.clone() })
    }

    /// One request. Its reply gets its price here and nowhere else, before anybody hears of it: so events, usage, trace
    /// and messages agree.
    async fn request(&mut self) -> Result<Reply, RunError> {
        let model = self.agent.model.to_string();
        self.events.send(|| EventKind::RequestStarted { model: model.clone() });
        let started = Instant::now();
        let reply = self.conversation.reply(&self.frame.history, &self.events).await;
        let mut reply = reply.map_err(|error| RunError::Model { agent: self.agent.name.clone(), error })?;
        // A model that says itself what it took knows better than a table.
        let priced = || self.runtime.models.prices.cost(&self.agent.model, &reply.usage);
        reply.usage.cost_usd = reply.usage.cost_usd.or_else(priced);
        self.events.send(|| EventKind::RequestFinished {
            model,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            usage: reply.usage,
            finish: reply.finish,
        });
        Ok(reply)
    }

    fn answer(&self, reply: &Reply) -> Result<Output, RunError> {
        let text = reply.text();
        let declined = reply.parts.iter().find_map(|part| match part {
            ReplyPart::Refusal(refusal) => Some(refusal.text.clone()),
            ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) => None,
        });
        if let (true, Some(words)) = (text.is_empty(), declined) {
            return Err(RunError::Declined { agent: self.agent.name.clone(), words });
        }
        let output = output::judge(&self.agent.output, &text)
            .map_err(|violation| RunError::Output { agent: self.agent.name.clone(), violation })?;
        self.events.send(|| EventKind::TextComplete { text });
        Ok(output)
    }

    /// Ends the call and tells how it ended.
    pub fn close(self, output: &Result<Output, RunError>) {
        let ended = match output {
            Ok(output) => Ended::Output(output.to_json()),
            Err(error) => Ended::Error(error.to_string()),
        };
        if let Err(error) = output {
            self.events.send(|| EventKind::RunFailed { error: error.to_string() });
        }
        let usage: Usage = self.runtime.usage().total;
        let duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let name = self.agent.name.clone();
        self.events.send(|| EventKind::CallFinished { name, kind: CallKind::Agent, ended, duration_ms, usage });
    }
}

fn no_such_tool(call: &ToolCall) -> ToolResult {
    let error = match &call.arguments {
        Arguments::Object(_) => format!("there is no tool `{}`; there are no tools at all", call.tool),
        Arguments::Malformed(_) => "the arguments are not a JSON object".to_owned(),
    };
    ToolResult { id: call.id.clone(), tool: call.tool.clone(), outcome: Err(error) }
}

/// The text of a message, for people.
fn shown(parts: &[Content]) -> String {
    let texts = parts.iter().map(|part| match part {
        Content::Text { text } => text.clone(),
        Content::Attachment(attachment) => format!("[{}]", attachment.name),
    });
    texts.collect::<Vec<_>>().join(" ")
}

impl Input {
    pub(super) fn to_json(&self) -> RawJson {
        match self {
            Self::Text(text) => RawJson::of(text),
            Self::Parts(parts) => RawJson::of(&shown(parts)),
            Self::Object { value, .. } => RawJson::of(value),
        }
    }
}
