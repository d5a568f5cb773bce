//! A call of a server of the modern revision: it may ask for input and be sent again with it, or go on as a task that is asked
//! for. Each such round is a step, so that a run that goes on sends the next one and repeats none.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::McpTool;
use super::client::{Client, McpError};
use super::question::{self, ElicitOutcome};
use super::server::Server;
use super::wire::elicitation::{ElicitAction, ElicitParams, ElicitResult};
use super::wire::{
    ELICIT, InputRequest, InputRequests, InputRequired, InputResponses, MODERN, ResultShape, Task, TaskStatus,
};
use crate::event::Events;
use crate::journal::{StepDescription, StepKind, StepValue, Stop};
use crate::message::{Content, RawJson};
use crate::tools::approval::PermittedCall;
use crate::tools::plane::InDoubt;
use crate::tools::{CallContext, Ending, ToolError};

/// A server that asks more often wants something else.
const MOST_ROUNDS: usize = 10;
/// How often a task is asked for.
const SHORTEST_POLL: Duration = Duration::from_millis(200);
const LONGEST_POLL: Duration = Duration::from_secs(30);
const USUAL_POLL: Duration = Duration::from_secs(1);
/// How long a task may take, if nothing else is said.
const LONGEST_TASK: Duration = Duration::from_hours(1);
/// What a model reads of a request that may have been taken.
const INTERRUPTED: &str = "interrupted: it may have happened";

/// What a round came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Round {
    /// The result of the call.
    Complete(Vec<Content>),
    /// The call failed.
    Failed(String),
    /// Its server asks first.
    Asks(InputRequired),
    /// It goes on as a task.
    Task(Task),
}

impl StepValue for Round {
    fn settled(self) -> Self {
        let requests = |requests: InputRequests| -> InputRequests {
            let one = |(key, request): (String, InputRequest)| {
                (key, InputRequest { params: request.params.in_one_line(), ..request })
            };
            requests.into_iter().map(one).collect()
        };
        match self {
            Self::Asks(asked) => Self::Asks(InputRequired { input_requests: requests(asked.input_requests), ..asked }),
            Self::Task(task) => Self::Task(Task {
                input_requests: requests(task.input_requests),
                result: task.result.map(RawJson::in_one_line),
                error: task.error.map(RawJson::in_one_line),
                ..task
            }),
            Self::Complete(_) | Self::Failed(_) => self,
        }
    }
}

impl Round {
    fn of(answer: Result<ResultShape, String>) -> Self {
        match answer {
            Ok(ResultShape::Complete(result)) => match super::result::read(&result) {
                Ok(content) => Self::Complete(content),
                Err(reason) => Self::Failed(reason),
            },
            Ok(ResultShape::InputRequired(asked)) => Self::Asks(asked),
            Ok(ResultShape::Task(task)) => Self::Task(task),
            Err(reason) => Self::Failed(reason),
        }
    }
}

/// Why a round has no value.
enum NoRound {
    Stopped(Stop),
    Login(Ending),
}

impl From<Stop> for NoRound {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<NoRound> for ToolError {
    fn from(reason: NoRound) -> Self {
        match reason {
            NoRound::Stopped(stop) => Self::Ends(stop.into()),
            NoRound::Login(ending) => Self::Ends(ending),
        }
    }
}

/// What is sent next.
#[derive(Clone, Debug, Default)]
struct NextRound {
    /// Set once the call goes on as a task.
    task: Option<Task>,
    state: Option<String>,
    answers: InputResponses,
}

/// Calls a tool, in as many rounds as it takes.
pub(super) async fn call(
    server: &Server,
    tool: &McpTool,
    call: &PermittedCall,
    cx: &CallContext<'_>,
) -> Result<Vec<Content>, ToolError> {
    let mut next = NextRound::default();
    let mut left = server.task_time.unwrap_or(LONGEST_TASK);
    for number in 0..MOST_ROUNDS {
        let began = Instant::now();
        let round = taken(server, tool, call, (number, &next, left), cx).await?;
        if next.task.is_some() {
            left = left.saturating_sub(began.elapsed());
        }
        match round {
            Round::Complete(content) => return Ok(content),
            Round::Failed(reason) => return Err(ToolError::Failed(reason)),
            Round::Task(task) => next = NextRound { task: Some(task), ..NextRound::default() },
            Round::Asks(asked) => {
                next.answers = answered(&server.name, call, &asked.input_requests, number, cx).await?;
                next.state = asked.request_state;
            }
        }
    }
    let reason = format!("the MCP server `{}` asks for more than {MOST_ROUNDS} rounds in one call", server.name);
    Err(ToolError::Failed(reason))
}

/// Takes one round as a step. A request must not be sent twice; a task can be asked for as often as one likes.
async fn taken(
    server: &Server,
    tool: &McpTool,
    call: &PermittedCall,
    (number, next, left): (usize, &NextRound, Duration),
    cx: &CallContext<'_>,
) -> Result<Round, ToolError> {
    let steps = cx.steps.at(format_args!("r{number}"));
    let described = || {
        let described = StepDescription::new(StepKind::Tool, &("round", &next.answers));
        if next.task.is_some() {
            return described;
        }
        described.once(Round::Failed(INTERRUPTED.to_owned())).shown(&in_doubt(call, cx))
    };
    let telling = steps.telling(cx.events);
    let round = exchanged(server, tool, call, (next, left), &telling, cx);
    Ok(steps.run(described, &telling, round).await?)
}

/// Sends what is to be sent, or asks for the task.
async fn exchanged(
    server: &Server,
    tool: &McpTool,
    call: &PermittedCall,
    (next, left): (&NextRound, Duration),
    events: &Events,
    cx: &CallContext<'_>,
) -> Result<Round, NoRound> {
    let answer = async {
        let client = server.client(events).await?;
        match &next.task {
            Some(task) => followed(&client, task, &next.answers, left, cx).await,
            None => {
                let sent = RoundRequest {
                    tool,
                    call,
                    state: next.state.as_deref(),
                    answers: &next.answers,
                    traceparent: cx.traceparent_of_mcp(call, Some(MODERN)),
                };
                client.round(&sent, events, cx.timeout).await
            }
        }
    };
    let redactor = events.redactor();
    match answer.await {
        Ok(round) => Ok(round.redacted(|text| redactor.redacted(text))),
        Err(McpError::Login(needed)) => Err(NoRound::Login(needed.into())),
        Err(McpError::Failed(reason)) => Ok(Round::Failed(redactor.redacted(reason))),
    }
}

fn in_doubt(call: &PermittedCall, cx: &CallContext<'_>) -> InDoubt {
    // A call in rounds is a caller of its own, under the name that its agent knows.
    let (tool, path) = match cx.path.split_last() {
        Some((tool, path)) => (tool.clone(), path.to_vec()),
        None => (call.tool().to_owned(), Vec::new()),
    };
    InDoubt { path, tool, arguments: call.arguments().clone() }
}

impl Round {
    /// No key is written down.
    fn redacted(self, clean: impl Fn(String) -> String) -> Self {
        match self {
            Self::Complete(content) => {
                let part = |part| match part {
                    Content::Text { text } => Content::Text { text: clean(text) },
                    Content::Value { json } => Content::Value { json: clean(json) },
                    file @ Content::Attachment(_) => file,
                };
                Self::Complete(content.into_iter().map(part).collect())
            }
            Self::Failed(reason) => Self::Failed(clean(reason)),
            // What goes back to its server as it came.
            Self::Asks(_) | Self::Task(_) => self,
        }
    }
}

/// A request of a round.
pub(super) struct RoundRequest<'a> {
    pub tool: &'a McpTool,
    pub call: &'a PermittedCall,
    pub state: Option<&'a str>,
    pub answers: &'a InputResponses,
    /// The span of the call, if the run is traced.
    pub traceparent: Option<String>,
}

impl Client {
    async fn round(
        &self,
        sent: &RoundRequest<'_>,
        events: &Events,
        timeout: Option<Duration>,
    ) -> Result<Round, McpError> {
        let result = self.sent(sent, events, timeout).await?;
        Ok(Round::of(ResultShape::read(&result).map_err(|reason| self.about(&format!("answered with {reason}")))))
    }
}

/// Follows a task until it asks or ends.
async fn followed(
    client: &Client,
    task: &Task,
    answers: &InputResponses,
    left: Duration,
    cx: &CallContext<'_>,
) -> Result<Round, McpError> {
    if !answers.is_empty() {
        client.update_task(&task.task_id, answers).await?;
    }
    let mut cancelling = TaskGuard { client, id: &task.task_id, cx, is_over: false };
    let deadline = Instant::now() + left;
    let mut pause = task.poll_interval_ms;
    loop {
        let wait = pause.map_or(USUAL_POLL, Duration::from_millis).clamp(SHORTEST_POLL, LONGEST_POLL);
        if Instant::now() + wait > deadline {
            cancelling.is_over = true;
            client.cancel_task(&task.task_id).await;
            let fact = format!("did not finish the task of `{}` in its time (`task_seconds`)", cx.caller());
            return Ok(Round::Failed(client.about(&fact)));
        }
        tokio::time::sleep(wait).await;
        let now = client.task(&task.task_id).await?;
        let unanswered: InputRequests = now
            .input_requests
            .iter()
            .filter(|(key, _)| !answers.contains_key(*key))
            .map(|(k, r)| (k.clone(), r.clone()))
            .collect();
        let over = match now.status {
            TaskStatus::Working => None,
            // What was just answered may still stand there.
            TaskStatus::InputRequired if unanswered.is_empty() => None,
            TaskStatus::InputRequired => {
                Some(Round::Asks(InputRequired { input_requests: unanswered, request_state: None }))
            }
            TaskStatus::Completed => {
                let result = now.result.clone().unwrap_or_else(|| RawJson::from_valid("{}".to_owned()));
                Some(Round::of(Ok(ResultShape::Complete(result))))
            }
            TaskStatus::Failed => Some(Round::Failed(client.about(&format!("says: {}", failure(&now))))),
            TaskStatus::Cancelled => Some(Round::Failed(client.about("has cancelled the call"))),
        };
        if let Some(over) = over {
            cancelling.is_over = true;
            return Ok(over);
        }
        if let Some(message) = &now.status_message {
            client.tell_status(message, cx);
        }
        pause = now.poll_interval_ms.or(pause);
    }
}

/// The words of a task that failed.
fn failure(task: &Task) -> String {
    #[derive(Deserialize)]
    struct TaskFailure {
        message: String,
    }
    let said = task.error.as_ref().and_then(|error| error.to::<TaskFailure>().ok()).map(|error| error.message);
    super::protocol::remark(&said.or_else(|| task.status_message.clone()).unwrap_or_else(|| "it failed".to_owned()))
}

/// A person who ends a turn ends its tasks. A process that dies does not: whoever goes on asks for the same one.
struct TaskGuard<'a> {
    client: &'a Client,
    id: &'a str,
    cx: &'a CallContext<'a>,
    is_over: bool,
}

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.cx.cancellation.is_cancelled() {
            self.client.cancel_task_later(self.id);
        }
    }
}

/// Puts all that a server asks to a person. What waits, waits together.
async fn answered(
    server: &str,
    call: &PermittedCall,
    asked: &InputRequests,
    round: usize,
    cx: &CallContext<'_>,
) -> Result<InputResponses, ToolError> {
    let about = in_doubt(call, cx);
    let (mut answers, mut waiting) = (BTreeMap::new(), Vec::new());
    let wrong = |words: String| ToolError::Failed(format!("the MCP server `{server}` {words}"));
    for (number, (key, request)) in asked.iter().enumerate() {
        if request.method != ELICIT {
            let method = crate::escape::visible_start(&request.method, 80);
            return Err(wrong(format!("asks for `{method}`, which is not offered")));
        }
        let params = ElicitParams::read(&request.params).map_err(|reason| wrong(format!("asks for {reason}")))?;
        match question::put(server, &about, &params, (round, number), cx).await {
            Ok(ElicitOutcome::Answered(answer)) => drop(answers.insert(key.clone(), answer)),
            Ok(ElicitOutcome::Nobody) => {
                answers.insert(key.clone(), ElicitResult::of(ElicitAction::Cancel));
            }
            Ok(ElicitOutcome::Unaskable(reason)) => {
                return Err(wrong(format!("asks what can be put to nobody: {reason}")));
            }
            Err(Ending::NeedsApproval(pending)) => waiting.extend(pending),
            Err(ending) => return Err(ToolError::Ends(ending)),
        }
    }
    if waiting.is_empty() { Ok(answers) } else { Err(ToolError::Ends(Ending::NeedsApproval(waiting))) }
}
