//! Agents as the clients of `OpenAI` know models: `GET /v1/models` and `POST /v1/chat/completions`. Each request is a run of its own,
//! which is kept.

mod request;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use llm_do::approval::short_id;
use llm_do::program::{Entry, Typing};
use llm_do::records::RunKind;
use llm_do::store::layout::RunId;
use llm_do::{Input, Output};
use llm_do_launch::keep::EndReason;
use llm_do_launch::launch::LinkedLaunch;
use llm_do_launch::program_terms::ProgramTerms;
use llm_do_launch::stored_runs::now;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::api::{LARGEST_BODY, WebState, read};
use crate::begin::{self, BegunRun, RunWish};
use crate::error::ApiError;
use crate::house::{House, LaunchWishes, ServedProject};
use crate::own_runs::{OwnRun, TurnEnd};
use request::{ClientRequest, ClientTalk};

/// An error in the shape that these clients read.
pub fn error(error: &ApiError) -> Response {
    let status = error.status();
    let kind = match status.as_u16() {
        401 | 403 => "authentication_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    let message = match &error.hint {
        Some(hint) => format!("{}: {hint}", error.message),
        None => error.message.clone(),
    };
    let param = error.more.get("param").cloned().unwrap_or_default();
    (status, Json(json!({"error": {"message": message, "type": kind, "param": param, "code": error.code}})))
        .into_response()
}

/// The agents of all projects, as `project/agent`.
pub async fn models(State(served): State<WebState>) -> Response {
    let mut names = Vec::new();
    for project in served.house.projects.values() {
        let Ok(launch) = served.house.launch(project, LaunchWishes::default()) else { continue };
        let Ok(surveyed) = launch.survey(&served.house.settings) else { continue };
        names.extend(surveyed.program().agents.keys().map(|agent| format!("{}/{agent}", project.name)));
    }
    let models: Vec<Value> =
        names.iter().map(|name| json!({"id": name, "object": "model", "created": 0, "owned_by": "llm-do"})).collect();
    Json(json!({"object": "list", "data": models})).into_response()
}

/// One turn of an agent, behind the messages that the client gives.
pub async fn complete(State(served): State<WebState>, body: Body) -> Response {
    let asked: Value = match read(body, LARGEST_BODY).await {
        Ok(asked) => asked,
        Err(wrong) => return error(&wrong),
    };
    match Box::pin(begun(&served.house, &asked)).await {
        Ok(begun) if begun.is_streamed => streamed(&served.house, begun),
        Ok(begun) => whole(&served.house, begun).await,
        Err(wrong) => error(&wrong),
    }
}

/// A run that a client began.
struct ClientRun {
    run: Arc<OwnRun>,
    ended: oneshot::Receiver<TurnEnd>,
    model: String,
    ignored: Vec<String>,
    is_streamed: bool,
    wants_usage: bool,
    /// Whether pieces of its answer can be shown.
    is_text: bool,
}

fn wrong(param: &str, message: impl Into<String>) -> ApiError {
    ApiError::wrong(message).with("param", param)
}

async fn begun(house: &Arc<House>, asked: &Value) -> Result<ClientRun, ApiError> {
    let ClientRequest { model, talk, max_tokens, has_format, ignored, is_streamed, wants_usage } =
        ClientRequest::of(asked)?;
    let ClientTalk { said, client_words, history } = talk;
    let (project, agent) = meant(house, &model)?;
    let terms = ProgramTerms { client_words: client_words.clone(), max_tokens, ..ProgramTerms::default() };
    let wishes = LaunchWishes { agent: Some(agent.clone()), terms, ..LaunchWishes::default() };
    let mut new = RunWish {
        kind: RunKind::V1,
        wishes,
        input: None,
        history,
        label: None,
        once: None,
        // Nobody looks: a question waits in the record, and the client is told of it.
        is_attended: false,
    };
    let linked = begin::link(house, &project, &new).await.map_err(|error| known_agent(error, &model))?;
    new.input = Some(fitting(&linked, &agent, said, client_words.is_some(), has_format)?);
    let is_text = linked.answers_in_text();
    match begin::begin(house, linked, new)? {
        BegunRun::New(run, Some(ended)) => {
            Ok(ClientRun { run, ended, model, ignored, is_streamed, wants_usage, is_text })
        }
        BegunRun::New(..) | BegunRun::Known(_) => Err(ApiError::failed("the run did not begin")),
    }
}

fn meant(house: &House, model: &str) -> Result<(ServedProject, String), ApiError> {
    let parts = model.split_once('/').and_then(|(project, agent)| Some((house.project(project).ok()?.clone(), agent)));
    let (project, agent) = parts.ok_or_else(|| unknown(model))?;
    let launch = house.launch(&project, LaunchWishes::default())?;
    let surveyed = launch.survey(&house.settings).map_err(|error| house.error(error))?;
    let is_known = surveyed.program().agents.contains_key(agent);
    is_known.then(|| (project, agent.to_owned())).ok_or_else(|| unknown(model))
}

fn unknown(model: &str) -> ApiError {
    let shown = llm_do::escape::visible(model).into_owned();
    ApiError { code: "model_not_found", ..ApiError::missing(format!("the model `{shown}` does not exist")) }
        .hint("`/v1/models` lists those of this server, as `project/agent`")
        .with("param", "model")
}

fn known_agent(error: ApiError, model: &str) -> ApiError {
    if error.code == "not_found" { unknown(model) } else { error }
}

/// What is said to the agent, if it takes that.
fn fitting(
    linked: &LinkedLaunch,
    agent: &str,
    said: Input,
    has_client_words: bool,
    has_format: bool,
) -> Result<Input, ApiError> {
    let Entry::Agent(_) = &linked.program().entry else {
        return Err(ApiError::wrong("the project begins with a function"));
    };
    let Some(spec) = linked.program().agents.get(agent) else { return Err(unknown(agent)) };
    if has_client_words && spec.prompt.is_some() {
        return Err(wrong(
            "messages",
            "the agent makes its instructions of a template: leave out `system` and `developer`",
        ));
    }
    if has_format && spec.output == Typing::Untyped {
        return Err(wrong("response_format", "the agent answers in text"));
    }
    if spec.input == Typing::Untyped {
        return Ok(said);
    }
    let Input::Text(text) = said else {
        return Err(wrong("messages", format!("the agent takes JSON: {}", schema_words(&spec.input))));
    };
    let value = serde_json::from_str(&text).map_err(|error| {
        let schema = schema_words(&spec.input);
        wrong("messages", format!("the last message is not the JSON that the agent takes: {error}; {schema}"))
    })?;
    Ok(Input::Object { value, attachments: Vec::new() })
}

fn schema_words(typing: &Typing) -> String {
    format!("its schema is {}", crate::api::schema_of(typing))
}

/// A client that goes away ends its run, as one that is cut off from a provider does.
struct EndsWithClient(Option<Arc<OwnRun>>);

impl EndsWithClient {
    fn is_done(&mut self) {
        self.0 = None;
    }
}

impl Drop for EndsWithClient {
    fn drop(&mut self) {
        if let Some(run) = &self.0 {
            run.stop();
        }
    }
}

async fn whole(house: &House, begun: ClientRun) -> Response {
    let ClientRun { run, ended, model, ignored, .. } = begun;
    let mut watch = EndsWithClient(Some(Arc::clone(&run)));
    let end = ended.await;
    watch.is_done();
    let Ok(end) = end else { return error(&ApiError::failed("the run ended without a word")) };
    let (content, question) = match said(house, &run.id, &end) {
        Ok(said) => said,
        Err(wrong) => return with_headers(error(&wrong), &ignored, None),
    };
    let answer = json!({
        "id": run.id,
        "object": "chat.completion",
        "created": now() / 1000,
        "model": model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": content, "refusal": null},
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": usage(house, &run.id),
    });
    with_headers(Json(answer).into_response(), &ignored, question.as_deref())
}

/// The text of an answer, and the question that waits if one does.
fn said(house: &House, run: &RunId, end: &TurnEnd) -> Result<(String, Option<String>), ApiError> {
    match end {
        TurnEnd::Answered(Output::Text(text)) => Ok((text.clone(), None)),
        TurnEnd::Answered(Output::Value(value)) => Ok((value.get().to_owned(), None)),
        TurnEnd::Waits(questions) => {
            let waits = house.store.read_journal(run).ok();
            let waits =
                waits.map(|contents| llm_do_launch::stored_runs::waiting(&contents, run.as_str())).unwrap_or_default();
            let tools: Vec<String> =
                waits.iter().map(|asked| format!("`{}`", llm_do::escape::visible(&asked.tool))).collect();
            let id = questions.first().cloned().unwrap_or_default();
            let (tools, short) = (if tools.is_empty() { "a call".to_owned() } else { tools.join(", ") }, short_id(&id));
            let words = format!(
                "This waits until a person has agreed to {tools}. Answer the question {short} in the page of llm-do, or with \
                 `llm-do inbox approve {short}`; the run {run} then goes on, and its answer is read there."
            );
            Ok((words, Some(id)))
        }
        TurnEnd::Failed { reason, words } => Err(failed(*reason, words)),
    }
}

fn failed(reason: EndReason, words: &str) -> ApiError {
    match reason {
        EndReason::Limit => ApiError::new(StatusCode::BAD_REQUEST, "limit_reached", words),
        EndReason::Usage => ApiError::wrong(words),
        EndReason::Provider => ApiError::new(StatusCode::BAD_GATEWAY, "provider", words),
        EndReason::Answered
        | EndReason::Asked
        | EndReason::Interrupted
        | EndReason::Cancelled
        | EndReason::Terminated
        | EndReason::TimedOut
        | EndReason::Unread
        | EndReason::Refused
        | EndReason::Schema
        | EndReason::Failed => ApiError::failed(words),
    }
}

fn usage(house: &House, run: &RunId) -> Value {
    use llm_do::store::summary::{JournalUse, RunSummary};
    let summary = house.store.read_journal(run).map(|contents| RunSummary::of(&contents, JournalUse::Free).usage);
    let usage = summary.unwrap_or_default();
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    })
}

/// What was ignored, and which question waits.
fn with_headers(mut response: Response, ignored: &[String], question: Option<&str>) -> Response {
    let told = [
        ("x-llm-do-ignored", (!ignored.is_empty()).then(|| ignored.join(", "))),
        ("x-llm-do-question", question.map(str::to_owned)),
    ];
    for (name, value) in told {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// How far a stream has come.
struct Chunks {
    house: Arc<House>,
    run: Arc<OwnRun>,
    ended: oneshot::Receiver<TurnEnd>,
    watch: EndsWithClient,
    model: String,
    wants_usage: bool,
    is_text: bool,
    next: u64,
    has_said: bool,
    stage: Stage,
}

/// Where a piece of an answer stands.
#[derive(Clone, Copy)]
enum ChunkPlace<'a> {
    Within,
    /// It ends the answer, and names the question that waits if one does.
    Last(Option<&'a str>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Says,
    Over,
}

fn streamed(house: &Arc<House>, begun: ClientRun) -> Response {
    let ClientRun { run, ended, model, ignored, wants_usage, is_text, .. } = begun;
    let chunks = Chunks {
        house: Arc::clone(house),
        watch: EndsWithClient(Some(Arc::clone(&run))),
        run,
        ended,
        model,
        wants_usage,
        is_text,
        next: 0,
        has_said: false,
        stage: Stage::First,
    };
    with_headers(crate::stream::answer(stream(chunks)), &ignored, None)
}

fn stream(chunks: Chunks) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    unfold(chunks, async |mut chunks| match chunks.stage {
        Stage::First => {
            chunks.stage = Stage::Says;
            Some((Ok(chunks.chunk(&json!({"role": "assistant", "content": ""}), ChunkPlace::Within)), chunks))
        }
        Stage::Says => {
            let bytes = chunks.says().await;
            Some((Ok(bytes), chunks))
        }
        Stage::Over => None,
    })
}

impl Chunks {
    /// The next pieces of text, or the end.
    async fn says(&mut self) -> Bytes {
        let mut hears = self.run.hears();
        loop {
            hears.borrow_and_update();
            let lines = self.run.told_from(self.next);
            self.next = lines.last().map_or(self.next, |line| line.number + 1);
            let text: String = lines.iter().filter(|_| self.is_text).filter_map(|line| line.text.as_deref()).collect();
            if !text.is_empty() {
                self.has_said = true;
                return self.chunk(&json!({"content": text}), ChunkPlace::Within);
            }
            tokio::select! {
                biased;
                changed = hears.changed() => if changed.is_err() {
                    return self.end(None);
                },
                // What is told of the turn comes before its end.
                end = &mut self.ended => return self.end(end.ok()),
            }
        }
    }

    fn end(&mut self, end: Option<TurnEnd>) -> Bytes {
        self.stage = Stage::Over;
        self.watch.is_done();
        let told = match end {
            Some(end) => said(&self.house, &self.run.id, &end).map(|said| (said, matches!(end, TurnEnd::Answered(_)))),
            None => Err(ApiError::failed("the run ended without a word")),
        };
        let mut bytes = Vec::new();
        match told {
            Ok(((text, question), is_answer)) => {
                // An answer in text was said piece by piece.
                if !(is_answer && self.has_said) {
                    let gap = if self.has_said { "\n\n" } else { "" };
                    bytes.extend_from_slice(
                        &self.chunk(&json!({"content": format!("{gap}{text}")}), ChunkPlace::Within),
                    );
                }
                bytes.extend_from_slice(&self.chunk(&json!({}), ChunkPlace::Last(question.as_deref())));
                if self.wants_usage {
                    bytes.extend_from_slice(&self.last_usage());
                }
            }
            Err(error) => {
                let told = json!({"error": {"message": error.message, "type": "server_error", "code": error.code}});
                bytes.extend_from_slice(format!("data: {told}\n\n").as_bytes());
            }
        }
        bytes.extend_from_slice(b"data: [DONE]\n\n");
        Bytes::from(bytes)
    }

    /// A piece of the answer.
    fn chunk(&self, delta: &Value, place: ChunkPlace<'_>) -> Bytes {
        let (finish, question) = match place {
            ChunkPlace::Within => (None, None),
            ChunkPlace::Last(question) => (Some("stop"), question),
        };
        let mut chunk = json!({
            "id": self.run.id,
            "object": "chat.completion.chunk",
            "created": now() / 1000,
            "model": self.model,
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        });
        if let Some(question) = question {
            chunk["metadata"] = json!({"x-llm-do-question": question});
        }
        Bytes::from(format!("data: {chunk}\n\n"))
    }

    fn last_usage(&self) -> Bytes {
        let chunk = json!({
            "id": self.run.id,
            "object": "chat.completion.chunk",
            "created": now() / 1000,
            "model": self.model,
            "choices": [],
            "usage": usage(&self.house, &self.run.id),
        });
        Bytes::from(format!("data: {chunk}\n\n"))
    }
}
