//! Runs: listed, shown, begun, ended, gone on with, forked.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use llm_do::messages::of_base64;
use llm_do::records::RunKind;
use llm_do::store::index::{IndexLine, RunState};
use llm_do::store::layout::RunId;
use llm_do::store::summary::RunSummary;
use llm_do::{Content, Input, Limits};
use llm_do_launch::kept_runs::{self, ForkChanges, ForkPlace, project_of};
use llm_do_launch::open_run::is_chat;
use llm_do_launch::session::ConversationChange;
use llm_do_launch::stored_runs::{CancelOutcome, ProjectFilter, RunFilter, ShownRun, owned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Answered, LARGEST_BODY, WebState, apart, read};
use crate::begin::{self, BegunRun, GoOn, RunWish};
use crate::error::ApiError;
use crate::house::{House, LaunchWishes, choose_models};
use crate::layout::timeline::Timeline;
use crate::stream;
use crate::told_call::{ToldCall, timed};

/// Which runs are wanted.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunQuery {
    /// The directory of a project, or its name.
    pub project: Option<String>,
    /// `running`, `waits`, `stopped`, `died`, `done` or `damaged`.
    pub state: Option<String>,
    pub label: Option<String>,
    /// The agent that it began with.
    pub agent: Option<String>,
    /// What stands in its id, project, agent, label or tool.
    pub text: Option<String>,
    /// Milliseconds since 1970.
    pub since: Option<u64>,
    /// At most so many; 200 if nothing is said.
    pub limit: Option<usize>,
}

/// A line of the list of runs.
#[derive(Serialize)]
struct ListedRun {
    #[serde(flatten)]
    line: IndexLine<'static>,
    /// Whether this process runs it: then all of it streams.
    own: bool,
}

const USUAL: usize = 200;

pub async fn list(State(served): State<WebState>, Query(wanted): Query<RunQuery>) -> Answered {
    let house = served.house;
    let own = house.own.ids();
    let runs = apart(move || listed(&house, &wanted)).await??;
    let runs: Vec<ListedRun> = runs.into_iter().map(|line| ListedRun { own: own.contains(&line.id), line }).collect();
    Ok(Json(json!({"runs": runs})))
}

fn listed(house: &House, wanted: &RunQuery) -> Result<Vec<IndexLine<'static>>, ApiError> {
    let state = wanted.state.as_deref().map(|word| serde_json::from_value::<RunState>(Value::from(word)));
    let state =
        state.transpose().map_err(|_| ApiError::wrong("`state` is running, waits, stopped, died, done or damaged"))?;
    let project = match wanted.project.as_deref() {
        None => ProjectFilter::Any,
        Some(root) if root.starts_with('/') => ProjectFilter::Root(root.to_owned()),
        Some(name) => ProjectFilter::Name(name.to_owned()),
    };
    // A run whose question is open waits, whoever runs it: its own process may only not have left it.
    let open = house.inbox().open().map_err(|error| ApiError::failed(error.to_string()))?;
    let asks: BTreeMap<RunId, String> = open.into_iter().map(|waiting| (waiting.run, waiting.question.tool)).collect();
    let filter = RunFilter { project, state: None, label: wanted.label.clone(), since: wanted.since.unwrap_or(0) };
    let unlisted = |error: std::io::Error| ApiError::failed(format!("the runs cannot be listed: {error}"));
    let text = house.store.listed(&project_of).map_err(unlisted)?;
    let sought = wanted.text.as_deref().unwrap_or_default().to_lowercase();
    let is_wanted = |line: &IndexLine<'_>| {
        let of_agent = wanted.agent.as_deref().is_none_or(|agent| line.entry == agent);
        let words = [line.id.as_str(), &line.project, &line.entry];
        let more = line.label.as_deref().into_iter().chain(line.waits.as_deref());
        of_agent
            && (sought.is_empty() || words.into_iter().chain(more).any(|word| word.to_lowercase().contains(&sought)))
    };
    let chosen = filter.chosen(&text, &house.store).map(|line| {
        let line = if line.state == RunState::Running { so_far(house, line) } else { line };
        match asks.get(&line.id) {
            Some(tool) => IndexLine { state: RunState::Waits, waits: Some(Cow::Owned(tool.clone())), ..line },
            None => line,
        }
    });
    let chosen = chosen.filter(is_wanted).filter(|line| state.is_none_or(|state| line.state == state));
    Ok(chosen.take(wanted.limit.unwrap_or(USUAL)).map(owned).collect())
}

/// A run that goes on, with what it has come to by now.
fn so_far<'a>(house: &House, line: IndexLine<'a>) -> IndexLine<'a> {
    let Some(known) = house.live.read(&house.store, &line.id) else { return line };
    let RunSummary { usage, turns, entry, .. } = &known.summary;
    let entry = if entry.is_empty() { line.entry } else { Cow::Owned(entry.clone()) };
    IndexLine { cost: usage.cost_usd, requests: usage.requests, turns: *turns, entry, ..line }
}

/// A file that comes as bytes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentFile {
    pub name: String,
    /// Its content as base64.
    pub data: String,
}

/// What a run may take; what is left out is as the project says.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentLimits {
    pub max_requests: Option<u64>,
    pub max_tool_calls: Option<u64>,
    pub max_input_tokens: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub max_cost_usd: Option<f64>,
    pub timeout_seconds: Option<f64>,
}

impl SentLimits {
    pub fn limits(self) -> Result<Limits, ApiError> {
        let Self { max_requests, max_tool_calls, max_input_tokens, max_output_tokens, max_cost_usd, timeout_seconds } =
            self;
        let amounts = [max_cost_usd, timeout_seconds];
        if amounts.into_iter().flatten().any(|amount| !(amount > 0.0 && amount.is_finite())) {
            return Err(ApiError::wrong("`limits`: an amount is more than 0"));
        }
        Ok(Limits {
            max_requests,
            max_tool_calls,
            max_input_tokens,
            max_output_tokens,
            max_cost_usd,
            timeout_seconds,
            ..Limits::default()
        })
    }
}

/// A run that is to begin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginRun {
    /// One of the projects of this server, by its name.
    pub project: String,
    /// Where it begins, if not where the project says.
    #[serde(default)]
    pub agent: Option<String>,
    /// A text, or the object that the agent takes; the project's own input without one.
    #[serde(default)]
    pub input: Option<Value>,
    #[serde(default)]
    pub attachments: Vec<SentFile>,
    /// `provider:model`, `AGENT=provider:model` or `all=provider:model`.
    #[serde(default)]
    pub model: Vec<String>,
    #[serde(default)]
    pub limits: SentLimits,
    #[serde(default)]
    pub label: Option<String>,
    /// Only one run of the project has this key.
    #[serde(default)]
    pub once: Option<String>,
    /// Whether it is a chat, which goes on until it is closed.
    #[serde(default)]
    pub chat: bool,
}

/// What was begun.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BegunResult {
    pub run: String,
    /// Whether it is new: another one may have its key.
    pub new: bool,
}

/// A name is shown in lists and stands in one line.
const LONGEST_NAME: usize = 200;

pub async fn begin(State(served): State<WebState>, body: Body) -> Result<Response, ApiError> {
    let asked: BeginRun = read(body, LARGEST_BODY).await?;
    let house = served.house;
    let is_name = |name: &String| !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control);
    if asked.label.iter().chain(&asked.once).any(|name| !is_name(name)) {
        return Err(ApiError::wrong("`label` and `once` are names of one line"));
    }
    if asked.chat && asked.once.is_some() {
        return Err(ApiError::wrong("`once` is for runs, not for chats"));
    }
    let project = house.project(&asked.project)?.clone();
    let wishes = LaunchWishes {
        agent: asked.agent,
        models: asked.model,
        limits: asked.limits.limits()?,
        ..LaunchWishes::default()
    };
    let kind = if asked.chat { RunKind::Chat } else { RunKind::Run };
    let mut new = RunWish {
        kind,
        wishes,
        input: None,
        history: Vec::new(),
        label: asked.label,
        once: asked.once,
        is_attended: true,
    };
    let linked = begin::link(&house, &project, &new).await?;
    let default = linked.program().default_input.as_ref().and_then(|input| input.to().ok());
    new.input = match (input(asked.input.or(default), &asked.attachments)?, asked.chat) {
        (None, false) => return Err(ApiError::wrong("no input").hint("give `input`, or `attachments`")),
        (input, _) => input,
    };
    let (run, is_new) = match begin::begin(&house, linked, new)? {
        BegunRun::New(run, _) => (run.id, true),
        BegunRun::Known(id) => (id, false),
    };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(BegunResult { run: run.to_string(), new: is_new })).into_response())
}

/// What is said: a text or an object, and files.
pub fn input(said: Option<Value>, files: &[SentFile]) -> Result<Option<Input>, ApiError> {
    let read = |file: &SentFile| of_base64(&file.name, &file.data).map_err(|error| ApiError::wrong(error.to_string()));
    let attachments = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(match (said, attachments.is_empty()) {
        (Some(Value::String(text)), true) => Some(Input::Text(text)),
        (Some(Value::String(text)), false) => {
            let files = attachments.into_iter().map(Content::Attachment);
            Some(Input::Parts([Content::text(text)].into_iter().chain(files).collect()))
        }
        (Some(value), _) => Some(Input::Object { value, attachments }),
        (None, true) => None,
        (None, false) => Some(Input::Parts(attachments.into_iter().map(Content::Attachment).collect())),
    })
}

/// How much of a run is wanted.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SingleRunQuery {
    /// Also all that was said.
    #[serde(default)]
    pub messages: bool,
}

/// All that is shown of a run.
#[derive(Serialize)]
struct RunView {
    #[serde(flatten)]
    shown: ShownRun,
    /// When each call began and ended, as a picture.
    timeline: Timeline,
    /// The answer of its last turn.
    answer: Option<Value>,
    /// Whether this process runs it.
    own: bool,
    /// Whether a turn of it goes on here.
    busy: bool,
    /// The project by whose name work can be started here, if it can.
    served_as: Option<String>,
    /// What can be typed to go on with it elsewhere.
    command: String,
}

pub async fn show(
    State(served): State<WebState>,
    Path(id): Path<String>,
    Query(wanted): Query<SingleRunQuery>,
) -> Answered {
    let house = served.house;
    // The record hears of a turn that was forgotten when the next one begins.
    let now = if wanted.messages { said_now(&house, &id).await } else { None };
    let view = apart(move || -> Result<Value, ApiError> {
        let run = house.run(&id)?;
        let contents = house.contents(run.id())?;
        let own = house.own.get(run.id());
        let served_as = house.project_at(&run.line.project).map(|project| project.name.clone());
        let command = match run.line.kind {
            RunKind::Chat | RunKind::Acp => format!("llm-do chat --continue {}", run.id()),
            RunKind::Run | RunKind::Mcp | RunKind::Scope | RunKind::V1 | RunKind::Map | RunKind::Other => {
                format!("llm-do resume {}", run.id())
            }
        };
        let last = contents.turns().last().map(|(number, _)| *number);
        let output = last.and_then(|number| llm_do::records::turn_output(&contents, number));
        let shown = run.shown(&contents, wanted.messages);
        let view = RunView {
            timeline: Timeline::of(&timed(&contents, &shown.calls)),
            answer: output.and_then(|output| output.to_json().to().ok()),
            own: own.is_some(),
            busy: own.is_some_and(|own| own.is_busy()),
            served_as,
            command,
            shown,
        };
        let mut view = super::json(&view);
        if let Some(messages) = now {
            view["messages"] = messages;
        }
        Ok(view)
    });
    Ok(Json(view.await??))
}

/// What was said in a chat of this process, as it would go on now.
async fn said_now(house: &House, id: &str) -> Option<Value> {
    let own = RunId::parse(id).and_then(|id| house.own.get(&id)).filter(|own| is_chat(own.kind))?;
    let mut seen = own.change(ConversationChange::Look).ok()?.await.ok()?.ok()?;
    Some(seen["messages"].take())
}

/// Which call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallQuery {
    /// Where it stands in the run.
    pub key: String,
}

pub async fn call(State(served): State<WebState>, Path(id): Path<String>, Query(wanted): Query<CallQuery>) -> Answered {
    let house = served.house;
    let told = apart(move || -> Result<Value, ApiError> {
        let run = house.run(&id)?;
        let contents = house.contents(run.id())?;
        let told = ToldCall::of(&contents, &wanted.key);
        told.map(|told| super::json(&told)).ok_or_else(|| ApiError::missing("the run has no such call"))
    });
    Ok(Json(told.await??))
}

pub async fn events(
    State(served): State<WebState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let id = found(&served.house, &id)?;
    Ok(stream::events(&served.house, id, &headers))
}

/// The run that is meant, which may be one of this process that no list has yet.
pub fn found(house: &House, typed: &str) -> Result<RunId, ApiError> {
    if let Some(id) = RunId::parse(typed).filter(|id| house.own.get(id).is_some()) {
        return Ok(id);
    }
    house.run(typed).map(|run| *run.id())
}

/// What became of a run that was to end.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CancelledResult {
    pub run: String,
    /// `asked`: the process that runs it ends its turn; `marked`: no process runs it; `stopped`: it was stopped before.
    pub outcome: &'static str,
}

pub async fn cancel(State(served): State<WebState>, Path(id): Path<String>) -> Answered<CancelledResult> {
    let house = served.house;
    let id = found(&house, &id)?;
    if house.own.get(&id).is_some_and(|own| own.stop()) {
        return Ok(Json(CancelledResult { run: id.to_string(), outcome: "asked" }));
    }
    let outcome = apart(move || {
        let run = house.run(id.as_str())?;
        run.cancel(&house.settings).map_err(|error| ApiError::of_run(error, house.wording))
    });
    let (run, outcome) = match outcome.await?? {
        CancelOutcome::Asked(run) => (run, "asked"),
        CancelOutcome::Marked(run) => (run, "marked"),
        CancelOutcome::Stopped(run) => (run, "stopped"),
    };
    Ok(Json(CancelledResult { run: run.to_string(), outcome }))
}

/// How a run goes on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeRun {
    /// Raised limits.
    #[serde(default)]
    pub limits: SentLimits,
    /// Go on though the project has changed.
    #[serde(default)]
    pub force: bool,
}

pub async fn resume(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered<BegunResult> {
    let ResumeRun { limits, force } = read(body, LARGEST_BODY).await?;
    let id = found(&served.house, &id)?;
    if served.house.own.get(&id).is_some() {
        return Err(ApiError::conflict("busy", "the run goes on already"));
    }
    let wanted = GoOn { limits: limits.limits()?, is_forced: force, input: None };
    let (run, _) = Box::pin(begin::resume(&served.house, &id, wanted)).await?;
    Ok(Json(BegunResult { run: run.id.to_string(), new: false }))
}

/// How a run is forked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentFork {
    /// The key of the first step that runs anew.
    #[serde(default)]
    pub at: Option<String>,
    /// The first turn that runs anew, counted from 1.
    #[serde(default)]
    pub turn: Option<u64>,
    /// What is said instead.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Other models.
    #[serde(default)]
    pub model: Vec<String>,
}

pub async fn fork(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered<BegunResult> {
    let SentFork { at, turn, prompt, model } = read(body, LARGEST_BODY).await?;
    let house = served.house;
    let run = house.run(&id)?;
    if house.project_at(&run.line.project).is_none() {
        return Err(begin::elsewhere(run.id()));
    }
    let place = match (at, turn) {
        (Some(_), Some(_)) => return Err(ApiError::wrong("`at` and `turn` exclude each other")),
        (Some(key), None) => ForkPlace::Key(key),
        (None, Some(turn)) => ForkPlace::Turn(turn),
        (None, None) => ForkPlace::End,
    };
    let mut models = house.overrides.models.clone();
    choose_models(&mut models, &model)?;
    let contents = house.contents(run.id())?;
    let changes = ForkChanges { place, prompt, models };
    let forked =
        kept_runs::fork(&house.store, &contents, changes, &house.settings).map_err(|error| house.error(error))?;
    let input = forked.said.filter(|_| forked.is_conversation).map(Input::Text);
    let wanted = GoOn { input, is_forced: true, limits: Limits::default() };
    let (run, _) = Box::pin(begin::resume(&house, &forked.id, wanted)).await?;
    Ok(Json(BegunResult { run: run.id.to_string(), new: true }))
}
