//! A call of a tool, from its request to its result: a run that is begun or gone on with, followed until it has an answer, a
//! question, or has taken long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use llm_do::approval::{PendingQuestion, short_id};
use llm_do::questions::{AnswerError, OpenQuestion};
use llm_do::records::RunKind;
use llm_do::rpc::{RpcError, code};
use llm_do::store::answers::AnswerWriteError;
use llm_do::store::layout::RunId;
use llm_do::{Answer, BoxFuture, Output};
use llm_do_launch::inbox::{Inbox, InboxError, check_edited};
use llm_do_launch::stored_runs::now;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::form::{self, AnsweredForm, ClientAnswer};
use super::protocol::{self, McpClient, McpEra, ONCE_KEY, call_result, complete, invalid, typed};
use super::runs::{CallRuns, FoundRun, ToolRunEnd};
use super::state::{self, RequestState, STATE_LASTS};
use super::tools;
use crate::failure::Failure;
use crate::remedy;
use crate::serve::host::{CallChoices, NewCall};

/// How often a client may give back a form without an answer.
const MOST_TRIES: u32 = 3;
/// How long between two looks at a run of another process.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What a client is told to wait between two looks at a task, in milliseconds.
const POLL_EVERY: u64 = 1000;

/// What was decided about all calls of a server.
#[derive(Clone, Copy, Debug)]
pub struct CallRules {
    /// A call that takes longer becomes a task, if the client knows tasks.
    pub task_after: Duration,
    /// No question is put to a client.
    pub answers_here: bool,
}

/// Who asks, and through what.
pub struct McpCaller<'a> {
    pub client: McpClient,
    /// Only this one may come back with what it was given.
    pub principal: String,
    /// Whether its key may answer questions.
    pub may_answer: bool,
    pub wire: &'a dyn ClientWire,
}

/// What a client can be told, and asked, while a request of it goes on.
pub trait ClientWire: Send + Sync {
    fn tell(&self, method: &str, params: Value);
    /// Asks it something and waits. Only clients with a handshake are asked so.
    fn ask<'a>(&'a self, method: &'a str, params: Value) -> BoxFuture<'a, Result<Value, String>>;
}

/// How a run that was followed stands.
enum CallStanding {
    Ended(ToolRunEnd),
    /// Questions for the client.
    Asks(Vec<OpenQuestion>),
    /// Questions for somebody on this machine.
    WaitsHere(Vec<PendingQuestion>),
    /// It takes long.
    Late,
}

/// The calls of a server.
pub struct Calls {
    pub runs: Arc<CallRuns>,
    pub rules: CallRules,
}

/// What came back with a call.
#[derive(Default)]
struct ReturnedAnswers {
    /// How often the form came back without an answer.
    tries: u32,
    /// Answers to questions that no record has: whoever asked was killed before it could write them down, and asks them again.
    unheard: BTreeMap<String, Value>,
}

/// A call as the client wrote it.
struct McpCall<'a> {
    name: &'a str,
    arguments: Value,
    once: Option<String>,
    token: Option<Value>,
    state: Option<&'a str>,
    responses: Map<String, Value>,
}

impl<'a> McpCall<'a> {
    fn of(params: &'a Value) -> Result<Self, RpcError> {
        let name = params.get("name").and_then(Value::as_str).ok_or_else(|| invalid("`name` is missing"))?;
        let object = |key: &str| match params.get(key) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object.clone()),
            Some(_) => Err(invalid(format!("`{key}` is an object"))),
        };
        let meta = params.get("_meta");
        let once = match meta.and_then(|meta| meta.get(ONCE_KEY)) {
            None => None,
            Some(Value::String(key)) if !key.is_empty() => Some(key.clone()),
            Some(_) => return Err(invalid(format!("`_meta`: `{ONCE_KEY}` is a text"))),
        };
        let state = match params.get("requestState") {
            None | Some(Value::Null) => None,
            Some(Value::String(state)) => Some(state.as_str()),
            Some(_) => return Err(invalid("`requestState` is a text")),
        };
        let responses = object("inputResponses")?;
        let token = meta.and_then(|meta| meta.get("progressToken")).cloned();
        Ok(Self { name, arguments: Value::Object(object("arguments")?), once, token, state, responses })
    }
}

impl Calls {
    pub fn tools(&self, era: McpEra) -> Result<Value, RpcError> {
        let surveyed = self.runs.host.survey().map_err(|error| failed(&error.into()))?;
        Ok(protocol::listed(era, json!({"tools": tools::listed(surveyed.program(), era)})))
    }

    /// What `tools/call` is answered.
    pub async fn call(&self, params: &Value, caller: &McpCaller<'_>) -> Result<Value, RpcError> {
        let call = McpCall::of(params)?;
        let (found, returned) = match call.state {
            Some(text) => {
                let open = RequestState::open(text, &self.runs.host.key, now());
                let is_same = |state: &RequestState| {
                    state.tool == call.name
                        && state.arguments == state::digest_of(&call.arguments)
                        && state.principal == caller.principal
                };
                let state =
                    open.filter(is_same).ok_or_else(|| invalid("this `requestState` is not one of this call"))?;
                let run = RunId::parse(&state.run).ok_or_else(|| invalid("this `requestState` names no run"))?;
                match self.answered(&run, &state, &call, caller).await {
                    Ok(answered) => answered,
                    Err(result) => return Ok(complete(caller.client.era, result)),
                }
            }
            None => match self.begun(&call).await? {
                Ok(found) => (found, ReturnedAnswers::default()),
                Err(failure) => return Ok(complete(caller.client.era, words_result(&failure, None))),
            },
        };
        self.followed(found, &call, returned, caller).await
    }

    /// Begins a call. What is wrong with the tool's name is the client's mistake; all else is for its model.
    async fn begun(&self, call: &McpCall<'_>) -> Result<Result<FoundRun, Failure>, RpcError> {
        let surveyed = match self.runs.host.survey() {
            Ok(surveyed) => surveyed,
            Err(error) => return Ok(Err(error.into())),
        };
        let program = surveyed.program();
        let is_exported = tools::exported(program).iter().any(|name| name == call.name);
        let Some(agent) = program.agents.get(call.name).filter(|_| is_exported) else {
            return Err(invalid(format!("there is no tool `{}`", llm_do::escape::visible(call.name))));
        };
        let input = match tools::input(&agent.input, &call.arguments) {
            Ok(input) => input,
            Err(wrong) => return Ok(Err(Failure::usage(wrong))),
        };
        let (agent, once) = (Some(call.name.to_owned()), call.once.clone());
        Ok(Box::pin(self.runs.begin(NewCall {
            kind: RunKind::Mcp,
            agent,
            input: Some(input),
            once,
            choices: CallChoices::default(),
        }))
        .await)
    }

    /// Gives the answers that came back to the run, in whichever process it is, and finds it. How often nothing usable came is
    /// counted; in the end the question is left to people here.
    async fn answered(
        &self,
        run: &RunId,
        state: &RequestState,
        call: &McpCall<'_>,
        caller: &McpCaller<'_>,
    ) -> Result<(FoundRun, ReturnedAnswers), Value> {
        let by = caller.client.answers_as(&self.runs.host.user);
        let mut returned = ReturnedAnswers { tries: state.tries, unheard: BTreeMap::new() };
        for (key, response) in &call.responses {
            // Others are nobody's: a client may send more than it was asked for.
            let Some(question) = state.questions.iter().find(|question| short_id(question) == key) else { continue };
            match self.given(run, question, response, &by).await {
                ClientAnswer::Given(Answer::Later) => {
                    returned.unheard.insert(question.clone(), response.clone());
                }
                ClientAnswer::Given(_) => {}
                ClientAnswer::Open => {
                    return Err(waits_result(&self.pending(run, question), Some(run)));
                }
                ClientAnswer::Again(_) => returned.tries += 1,
            }
        }
        if returned.tries >= MOST_TRIES {
            let waiting = state.questions.iter().flat_map(|question| self.pending(run, question)).collect::<Vec<_>>();
            if !waiting.is_empty() {
                return Err(waits_result(&waiting, Some(run)));
            }
        }
        match Box::pin(self.runs.found(run)).await {
            Ok(found) => Ok((found, returned)),
            Err(failure) => Err(words_result(&failure, Some(run))),
        }
    }

    fn pending(&self, run: &RunId, question: &str) -> Vec<PendingQuestion> {
        self.runs.waiting(run).into_iter().filter(|pending| pending.id == question).collect()
    }

    /// Reads what came back for one question, and answers it if it is an answer. One that was answered before stays so.
    pub async fn given(&self, run: &RunId, question: &str, response: &Value, by: &str) -> ClientAnswer {
        let own = self.runs.get(run).and_then(|run| {
            let open = run.questions.open().into_iter().find(|open| open.id() == question)?;
            Some((run, open))
        });
        if let Some((run, OpenQuestion { request, .. })) = own {
            let by_values = |values: &[(String, String)]| request.answer_by_values(values);
            let asked = AnsweredForm { form: request.question.form.as_ref(), by_values: &by_values };
            let read = form::answer(&asked, response);
            let ClientAnswer::Given(answer) = &read else { return read };
            if let Answer::Edited(arguments) = answer
                && let Err(wrong) = request.with_arguments(arguments.clone()).await
            {
                return ClientAnswer::Again(wrong);
            }
            return match run.questions.answer(question, answer.clone(), by) {
                Ok(()) | Err(AnswerError::NotOpen | AnswerError::AlreadyAnswered { .. }) => read,
                Err(wrong) => ClientAnswer::Again(wrong.to_string()),
            };
        }
        self.given_elsewhere(run, question, response, by).await
    }

    /// The same of a question that another process asked, or one that is gone: the answer waits in the store for whoever goes on.
    async fn given_elsewhere(&self, run: &RunId, question: &str, response: &Value, by: &str) -> ClientAnswer {
        let mut inbox = Inbox::of(self.runs.host.store.clone());
        let waiting = match inbox.find(&format!("{run}/{question}")) {
            Ok(waiting) => waiting,
            // It was answered, or the run went on without it: then nothing is asked any more.
            Err(InboxError::Answered { .. } | InboxError::NotOpen(_)) => return ClientAnswer::Given(Answer::Later),
            Err(error) => return ClientAnswer::Again(error.to_string()),
        };
        let by_values = |values: &[(String, String)]| waiting.question.answer_by_values(values);
        let asked = AnsweredForm { form: waiting.question.form.as_ref(), by_values: &by_values };
        let read = form::answer(&asked, response);
        let ClientAnswer::Given(answer) = &read else { return read };
        if let Err(wrong) = waiting.question.check_answer(answer) {
            return ClientAnswer::Again(wrong);
        }
        if let Answer::Edited(arguments) = answer
            && let Err(wrong) = check_edited(&waiting, arguments).await
        {
            return ClientAnswer::Again(wrong);
        }
        match inbox.answer(&waiting, answer, by) {
            Ok(_) | Err(AnswerWriteError::AlreadyAnswered(_)) => read,
            Err(error) => ClientAnswer::Again(error.to_string()),
        }
    }

    /// Follows a run to what the client is told of it.
    async fn followed(
        &self,
        found: FoundRun,
        call: &McpCall<'_>,
        returned: ReturnedAnswers,
        caller: &McpCaller<'_>,
    ) -> Result<Value, RpcError> {
        let ReturnedAnswers { tries, mut unheard } = returned;
        let era = caller.client.era;
        let run = match &found {
            FoundRun::Own(run) => run.id,
            FoundRun::Elsewhere(id) | FoundRun::Ended(id, _) => *id,
        };
        Ok(match Box::pin(self.stands(found, call, &mut unheard, caller)).await {
            CallStanding::Ended(end) => complete(era, end_result(end, &run)),
            CallStanding::WaitsHere(waiting) if caller.client.has_tasks => {
                typed("task", self.task(&run, "working", Some(words_of_waiting(&waiting)), caller))
            }
            CallStanding::WaitsHere(waiting) => complete(era, waits_result(&waiting, Some(&run))),
            CallStanding::Late => typed("task", self.task(&run, "working", None, caller)),
            CallStanding::Asks(questions) => {
                let state = RequestState {
                    run: run.to_string(),
                    questions: questions.iter().map(|question| question.id().clone()).collect(),
                    tool: call.name.to_owned(),
                    arguments: state::digest_of(&call.arguments),
                    principal: caller.principal.clone(),
                    expires: now() + STATE_LASTS,
                    tries,
                };
                let sealed = state.sealed(&self.runs.host.key);
                typed("input_required", json!({"requestState": sealed, "inputRequests": input_requests(&questions)}))
            }
        })
    }

    async fn stands(
        &self,
        found: FoundRun,
        call: &McpCall<'_>,
        unheard: &mut BTreeMap<String, Value>,
        caller: &McpCaller<'_>,
    ) -> CallStanding {
        let late = caller.client.has_tasks.then(|| Instant::now() + self.rules.task_after);
        let (mut found, mut is_new) = (found, false);
        loop {
            found = match found {
                FoundRun::Ended(_, end) => return CallStanding::Ended(end),
                FoundRun::Elsewhere(id) => {
                    if late.is_some_and(|late| late <= Instant::now()) {
                        return CallStanding::Late;
                    }
                    sleep(LOOK_EVERY).await;
                    match Box::pin(self.runs.found(&id)).await {
                        Ok(found) => found,
                        Err(failure) => return CallStanding::Ended(ToolRunEnd::Failed(text_of(&failure))),
                    }
                }
                FoundRun::Own(run) => {
                    let mut follower = run.followed();
                    let standing = self.own_stands(&mut follower, late, call, unheard, caller).await;
                    follower.is_answered();
                    // It was just being left with its questions when this came: it goes on.
                    if let (CallStanding::Ended(ToolRunEnd::Waits(_)), false) = (&standing, is_new) {
                        is_new = true;
                        match Box::pin(self.runs.found(&run.id)).await {
                            Ok(again) => {
                                found = again;
                                continue;
                            }
                            Err(_) => return standing,
                        }
                    }
                    if matches!(standing, CallStanding::Late)
                        || (caller.client.has_tasks && !matches!(standing, CallStanding::Ended(_)))
                    {
                        run.becomes_task();
                    }
                    return standing;
                }
            };
        }
    }

    async fn own_stands(
        &self,
        follower: &mut super::runs::RunFollower,
        late: Option<Instant>,
        call: &McpCall<'_>,
        unheard: &mut BTreeMap<String, Value>,
        caller: &McpCaller<'_>,
    ) -> CallStanding {
        let mut tries = BTreeMap::<String, (u32, String)>::new();
        loop {
            for (number, words) in follower.news() {
                if let Some(token) = &call.token {
                    let params = json!({"progressToken": token, "progress": number, "message": *words});
                    caller.wire.tell("notifications/progress", params);
                }
            }
            if let Some(end) = follower.end() {
                return CallStanding::Ended(end);
            }
            let open = follower.run.questions.open();
            let heard = open.iter().find_map(|asked| unheard.remove_entry(asked.id()));
            if let Some((question, response)) = heard {
                let by = caller.client.answers_as(&self.runs.host.user);
                // What is no answer leaves it open, and it is put again.
                let _ = self.given(&follower.run.id, &question, &response, &by).await;
                continue;
            }
            if !open.is_empty() {
                let (for_client, here): (Vec<_>, Vec<_>) =
                    open.into_iter().partition(|asked| self.is_put_to(caller) && form::is_for_client(asked));
                match (caller.client.era, for_client.first()) {
                    (_, None) => {
                        return CallStanding::WaitsHere(here.iter().map(form::pending_of).collect());
                    }
                    (McpEra::Modern, Some(_)) => return CallStanding::Asks(for_client),
                    (McpEra::WithHandshake, Some(asked)) => {
                        if let Some(standing) = self.asked_within(follower, asked, &mut tries, caller).await {
                            return standing;
                        }
                        continue;
                    }
                }
            }
            tokio::select! {
                () = follower.changed() => {}
                () = until(late) => return CallStanding::Late,
            }
        }
    }

    fn is_put_to(&self, caller: &McpCaller<'_>) -> bool {
        caller.client.elicits && caller.may_answer && !self.rules.answers_here
    }

    /// Asks a client with a handshake within its call. Gives how the call stands if it is left open.
    async fn asked_within(
        &self,
        follower: &mut super::runs::RunFollower,
        asked: &OpenQuestion,
        tries: &mut BTreeMap<String, (u32, String)>,
        caller: &McpCaller<'_>,
    ) -> Option<CallStanding> {
        let id = asked.id().clone();
        let before = tries.get(&id).map(|(_, wrong)| wrong.clone());
        let asking = caller.wire.ask("elicitation/create", form::elicitation(asked, before.as_deref()));
        tokio::pin!(asking);
        let response = loop {
            tokio::select! {
                response = &mut asking => break response,
                () = follower.changed() => {
                    let is_open = follower.run.questions.open().iter().any(|open| *open.id() == id);
                    // Somebody else answered it, or the run has gone on.
                    if !is_open {
                        return None;
                    }
                }
            }
        };
        let run = follower.run.id;
        let given = match response {
            Ok(response) => self.given(&run, &id, &response, &caller.client.answers_as(&self.runs.host.user)).await,
            Err(_) => ClientAnswer::Open,
        };
        match given {
            ClientAnswer::Given(_) => None,
            ClientAnswer::Open => Some(CallStanding::WaitsHere(vec![form::pending_of(asked)])),
            ClientAnswer::Again(wrong) => {
                let (count, said) = tries.entry(id).or_default();
                (*count, *said) = (*count + 1, wrong);
                (*count >= MOST_TRIES).then(|| CallStanding::WaitsHere(vec![form::pending_of(asked)]))
            }
        }
    }
}

impl Calls {
    fn task(&self, run: &RunId, status: &str, message: Option<String>, caller: &McpCaller<'_>) -> Value {
        let begun = self.runs.host.store.read_journal(run).map_or_else(|_| now(), |contents| contents.begun_at);
        let mut task = json!({
            "taskId": state::task_id(&self.runs.host.key, run, &caller.principal),
            "status": status,
            "createdAt": protocol::timestamp(begun),
            "lastUpdatedAt": protocol::timestamp(now()),
            "ttlMs": null,
            "pollIntervalMs": POLL_EVERY,
        });
        if let Some(message) = message {
            task["statusMessage"] = json!(message);
        }
        task
    }

    fn task_run(&self, params: &Value, caller: &McpCaller<'_>) -> Result<RunId, RpcError> {
        if !caller.client.has_tasks {
            return Err(protocol::lacks_tasks());
        }
        let task = params.get("taskId").and_then(Value::as_str).ok_or_else(|| invalid("`taskId` is missing"))?;
        let run = state::run_of_task(&self.runs.host.key, task, &caller.principal);
        run.ok_or_else(|| invalid("there is no such task"))
    }

    /// What `tasks/get` is answered. A run that was left in the middle goes on with that.
    pub async fn task_get(&self, params: &Value, caller: &McpCaller<'_>) -> Result<Value, RpcError> {
        let run = self.task_run(params, caller)?;
        let told = |status: &str, message: Option<String>| self.task(&run, status, message, caller);
        let found = match Box::pin(self.runs.found(&run)).await {
            Ok(found) => found,
            Err(failure) => return Ok(typed("complete", told("working", Some(text_of(&failure))))),
        };
        let task = match found {
            FoundRun::Own(own) => {
                own.becomes_task();
                let open = own.questions.open();
                let (for_client, here): (Vec<_>, Vec<_>) =
                    open.into_iter().partition(|asked| self.is_put_to(caller) && form::is_for_client(asked));
                if for_client.is_empty() {
                    let here: Vec<_> = here.iter().map(form::pending_of).collect();
                    told("working", (!here.is_empty()).then(|| words_of_waiting(&here)))
                } else {
                    let mut task = told("input_required", None);
                    task["inputRequests"] = input_requests(&for_client);
                    task
                }
            }
            FoundRun::Elsewhere(_) => told("working", None),
            FoundRun::Ended(_, ToolRunEnd::Cancelled) => told("cancelled", None),
            FoundRun::Ended(_, end @ (ToolRunEnd::Answered(_) | ToolRunEnd::Failed(_))) => {
                let mut task = told("completed", None);
                // It is the result of a call, whose failures are words for a model.
                task["result"] = typed("complete", end_result(end, &run));
                task
            }
            FoundRun::Ended(_, ToolRunEnd::Waits(waiting)) => told("working", Some(words_of_waiting(&waiting))),
        };
        Ok(typed("complete", task))
    }

    /// What `tasks/update` is answered: answers to questions of a task.
    pub async fn task_update(&self, params: &Value, caller: &McpCaller<'_>) -> Result<Value, RpcError> {
        let run = self.task_run(params, caller)?;
        let responses = params.get("inputResponses").and_then(Value::as_object);
        let responses = responses.ok_or_else(|| invalid("`inputResponses` is an object"))?;
        let by = caller.client.answers_as(&self.runs.host.user);
        if !self.is_put_to(caller) {
            return Ok(typed("complete", json!({})));
        }
        // Only what is put to a client is answered by one: what always asks is not in this list.
        let _ = Box::pin(self.runs.found(&run)).await;
        let open = self.runs.get(&run).map(|run| run.questions.open()).unwrap_or_default();
        for asked in open.iter().filter(|asked| form::is_for_client(asked)) {
            if let Some(response) = responses.get(short_id(asked.id())) {
                // What is no answer leaves the question open, and `tasks/get` puts it again.
                let _ = self.given(&run, asked.id(), response, &by).await;
            }
        }
        Ok(typed("complete", json!({})))
    }

    /// What `tasks/cancel` is answered.
    pub fn task_cancel(&self, params: &Value, caller: &McpCaller<'_>) -> Result<Value, RpcError> {
        let run = self.task_run(params, caller)?;
        self.runs.cancel(&run);
        Ok(typed("complete", json!({})))
    }
}

async fn until(late: Option<Instant>) {
    match late {
        Some(late) => sleep_until(late).await,
        None => std::future::pending().await,
    }
}

fn input_requests(questions: &[OpenQuestion]) -> Value {
    let request = |asked: &OpenQuestion| {
        let request = json!({"method": "elicitation/create", "params": form::elicitation(asked, None)});
        (short_id(asked.id()).to_owned(), request)
    };
    Value::Object(questions.iter().map(request).collect())
}

/// Where somebody on this machine answers, and for whom.
fn words_of_waiting(waiting: &[PendingQuestion]) -> String {
    let commands: Vec<String> =
        waiting.iter().map(|asked| format!("`{} --go`", remedy::answering(asked, short_id(&asked.id)))).collect();
    let tools: Vec<String> =
        waiting.iter().map(|asked| format!("`{}`", llm_do::escape::visible(&asked.tool))).collect();
    format!("waits for a person on the machine that runs it ({}): {}", tools.join(", "), commands.join(", "))
}

fn waits_result(waiting: &[PendingQuestion], run: Option<&RunId>) -> Value {
    call_result(&words_of_waiting(waiting), None, true, run.map(RunId::as_str))
}

fn end_result(end: ToolRunEnd, run: &RunId) -> Value {
    let id = Some(run.as_str());
    match end {
        ToolRunEnd::Answered(Output::Text(text)) => call_result(&text, None, false, id),
        ToolRunEnd::Answered(Output::Value(value)) => call_result(value.get(), value.to().ok(), false, id),
        ToolRunEnd::Waits(waiting) => waits_result(&waiting, Some(run)),
        ToolRunEnd::Cancelled => call_result("the run was cancelled", None, true, id),
        ToolRunEnd::Failed(words) => call_result(&words, None, true, id),
    }
}

fn text_of(failure: &Failure) -> String {
    let (fact, hint) = failure.words();
    hint.map_or(fact.clone(), |hint| format!("{fact}\nhint: {hint}"))
}

fn words_result(failure: &Failure, run: Option<&RunId>) -> Value {
    call_result(&text_of(failure), None, true, run.map(RunId::as_str))
}

fn failed(failure: &Failure) -> RpcError {
    RpcError::told(code::FAILED, text_of(failure))
}
