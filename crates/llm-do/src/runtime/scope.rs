//! One call of one agent, possibly many turns.

use std::sync::Arc;
use std::time::Instant;

use super::input::Input;
use super::output;
use super::toolsets::{self, Opened};
use super::{Output, RunError, Runtime};
use crate::event::{CallKind, Ended, EventKind, Events};
use crate::journal::{StepKind, Steps};
use crate::message::{Content, Message, RawJson, Reply, ReplyPart, Step, ToolCall, ToolResult, UserMessage, next_step};
use crate::model::{Conversation, Head, Model, ToolDeclaration};
use crate::project::{AgentSpec, Typing};
use crate::tools::CallContext;
use crate::tools::approval::{Approvals, canonical};
use crate::tools::plane::ToolPlane;

/// Model requests of one call, unless the agent's limits say otherwise.
const MAX_REQUESTS: u64 = 50;
/// How often an answer that violates its schema is sent back.
const MOST_REPAIRS: usize = 3;
/// The same call that fails so often in a row ends the agent's call.
const MOST_FAILURES: usize = 3;

/// Who opens a call.
#[derive(Clone, Copy)]
pub(super) enum Caller<'a> {
    Nobody,
    Agent(&'a CallContext<'a>),
}

impl Caller<'_> {
    pub fn next_depth(self) -> usize {
        match self {
            Self::Nobody => 0,
            Self::Agent(cx) => cx.depth + 1,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Nobody => "the entry",
            Self::Agent(cx) => cx.path.last().map_or("", String::as_str),
        }
    }
}

/// The state of one call: what a reset would throw away.
#[derive(Debug)]
pub struct CallFrame {
    pub depth: usize,
    /// The agents from the entry down to this one.
    pub path: Vec<String>,
    pub history: Vec<Message>,
}

/// A call of an agent. Owns its toolsets.
pub struct CallScope<'r> {
    runtime: &'r Runtime,
    agent: Arc<AgentSpec>,
    frame: CallFrame,
    conversation: Box<dyn Conversation>,
    plane: ToolPlane,
    events: Events,
    steps: Steps,
    call: u64,
    parent: Option<u64>,
    turns: u64,
    requests: u64,
    failures: Failures,
    started: Instant,
    ended: Option<Ended>,
}

impl<'r> CallScope<'r> {
    pub(super) fn open(
        runtime: &'r Runtime,
        agent: Arc<AgentSpec>,
        model: &dyn Model,
        call: u64,
        caller: Caller<'_>,
    ) -> Result<Self, RunError> {
        let wrong = |reason| RunError::Toolset { agent: agent.name.clone(), reason };
        let Opened { toolsets, missing } = toolsets::open(runtime, &agent).map_err(wrong)?;
        let plane = ToolPlane::new(toolsets, Arc::clone(&runtime.gate), runtime.config.refusals).map_err(wrong)?;
        let (mut path, steps, parent) = match caller {
            Caller::Nobody => (Vec::new(), runtime.steps.at(format_args!("{}", agent.name)), None),
            Caller::Agent(cx) => (cx.path.to_vec(), cx.steps.clone(), Some(cx.call)),
        };
        path.push(agent.name.clone());
        let depth = caller.next_depth();
        let events = runtime.events.for_call(&Arc::from(agent.name.as_str()), depth, call);
        for name in missing {
            let text = format!("the toolset `{name}` of agent `{}` cannot be offered yet", agent.name);
            events.send(|| EventKind::Notice { text });
        }
        let conversation = model.open(head(runtime, &agent, &plane));
        Ok(Self {
            runtime,
            agent,
            frame: CallFrame { depth, path, history: Vec::new() },
            conversation,
            plane,
            events,
            steps,
            call,
            parent,
            turns: 0,
            requests: 0,
            failures: Failures::default(),
            started: Instant::now(),
            ended: None,
        })
    }

    /// Where the call is and what was said in it.
    pub fn frame(&self) -> &CallFrame {
        &self.frame
    }

    /// One input → one answer. A failed turn leaves the history as it was.
    pub async fn turn(&mut self, input: impl Into<Input>) -> Result<Output, RunError> {
        let input = input.into();
        if self.turns == 0 {
            let (name, input, parent) = (self.agent.name.clone(), input.to_json(), self.parent);
            self.events.send(|| EventKind::CallStarted { name, kind: CallKind::Agent, input, parent });
        }
        let start = self.frame.history.len();
        let output = self.take_turn(input).await;
        self.turns += 1;
        self.ended = Some(match &output {
            Ok(output) => Ended::Output(output.to_json()),
            Err(error) => Ended::Error(error.to_string()),
        });
        if let Err(error) = &output {
            self.frame.history.truncate(start);
            self.conversation.rewind(start);
            if self.frame.depth == 0 {
                self.events.send(|| EventKind::RunFailed { error: error.to_string() });
            }
        }
        output
    }

    async fn take_turn(&mut self, input: Input) -> Result<Output, RunError> {
        let parts = input.into_message(&self.agent, &self.runtime.program.root)?;
        self.events.send(|| EventKind::UserMessage { text: shown(&parts) });
        self.frame.history.push(Message::User(UserMessage { parts }));
        let mut repairs = 0;
        loop {
            let message = match next_step(&self.frame.history) {
                Step::AskModel => Message::Assistant(self.ask().await?),
                Step::RunTools(reply) => {
                    let calls: Vec<&ToolCall> = reply.tool_calls().collect();
                    let results = self.plane.run(&calls, &self.context()).await?;
                    self.failures.note(&self.agent.name, &calls, &results)?;
                    Message::tool_results(results)
                }
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

    fn context(&self) -> CallContext<'_> {
        CallContext {
            agents: self.runtime,
            path: &self.frame.path,
            depth: self.frame.depth,
            call: self.call,
            events: &self.events,
            project_root: &self.runtime.program.root,
            steps: self.steps.at(format_args!("t{}/m{}", self.turns, self.requests)),
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
        let steps = self.steps.at(format_args!("t{}/m{}", self.turns, self.requests));
        let agent = &self.agent.name;
        let asked = self.conversation.reply(&self.frame.history, &self.events);
        let effect = async { asked.await.map_err(|error| RunError::Model { agent: agent.clone(), error }) };
        let mut reply = steps.run(StepKind::Model, &self.frame.history, None, effect).await?;
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

    /// Closes the toolsets, the last one first, and tells how the call ended.
    pub async fn close(self) {
        self.plane.close(&self.events).await;
        let Some(ended) = self.ended else { return };
        let usage = self.runtime.session.usage_of(self.call);
        let duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let name = self.agent.name.clone();
        self.events.send(|| EventKind::CallFinished { name, kind: CallKind::Agent, ended, duration_ms, usage });
    }
}

fn head(runtime: &Runtime, agent: &AgentSpec, plane: &ToolPlane) -> Head {
    let tools = plane.specs().into_iter().map(|spec| ToolDeclaration {
        name: spec.name,
        description: spec.description,
        parameters: spec.parameters,
    });
    // They run outside the gate, so where every question is answered with no they are not offered.
    let server_tools = match runtime.config.approvals {
        Approvals::RejectAll => Vec::new(),
        Approvals::ApproveAll | Approvals::Prompt(_) | Approvals::Nobody => agent.server_tools.clone(),
    };
    Head {
        agent: Arc::from(agent.name.as_str()),
        model: agent.model.clone(),
        instructions: agent.instructions.clone(),
        tools: tools.collect(),
        server_tools,
        settings: agent.settings.clone(),
        output: match &agent.output {
            Typing::Schema(schema) => Some(schema.clone()),
            Typing::Untyped | Typing::Python(_) => None,
        },
        stream: runtime.config.stream,
    }
}

/// How often the same call has failed in a row.
#[derive(Default)]
struct Failures {
    last: Option<(String, String)>,
    count: usize,
}

impl Failures {
    fn note(&mut self, agent: &str, calls: &[&ToolCall], results: &[ToolResult]) -> Result<(), RunError> {
        for (call, result) in calls.iter().zip(results) {
            let Err(reason) = &result.outcome else {
                *self = Self::default();
                continue;
            };
            let arguments = match &call.arguments {
                crate::message::Arguments::Object(arguments) => canonical(arguments),
                crate::message::Arguments::Malformed(text) => text.clone(),
            };
            let this = Some((call.tool.clone(), arguments));
            self.count = if self.last == this { self.count + 1 } else { 1 };
            self.last = this;
            if self.count >= MOST_FAILURES {
                let (agent, tool, reason) = (agent.to_owned(), call.tool.clone(), reason.clone());
                return Err(RunError::RepeatedFailure { agent, tool, reason });
            }
        }
        Ok(())
    }
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
