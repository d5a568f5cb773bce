//! Chats: turns of conversations that are kept, and what may be changed between them.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use llm_do::approval::SessionGrant;
use llm_do::events::UsageReport;
use llm_do::{ModelName, Runtime};
use llm_do_launch::open_run::is_chat;
use llm_do_launch::session::ConversationChange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::runs::{BegunResult, SentFile, found, input};
use super::{Answered, LARGEST_BODY, WebState, read};
use crate::begin::{self, GoOn};
use crate::error::ApiError;
use crate::house::{House, may_be_chosen};

/// What is said next.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SayTurn {
    /// A text, or the object that the agent takes. Without one a turn that was cut off is finished.
    #[serde(default)]
    pub input: Option<Value>,
    #[serde(default)]
    pub attachments: Vec<SentFile>,
}

/// A chat that nobody has open is opened here.
pub async fn turn(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered<BegunResult> {
    let SayTurn { input: said, attachments } = read(body, LARGEST_BODY).await?;
    let said = input(said, &attachments)?;
    let house = served.house;
    let id = found(&house, &id)?;
    match house.own.get(&id) {
        Some(run) if is_chat(run.kind) => drop(run.turn(said)?),
        Some(_) => return Err(ApiError::wrong("this is a run, which has one turn")),
        None if is_chat(house.run(id.as_str())?.line.kind) => {
            Box::pin(begin::resume(&house, &id, GoOn { input: said, ..GoOn::default() })).await?;
        }
        None => return Err(ApiError::wrong("this is a run, and no chat").hint("resume it")),
    }
    Ok(Json(BegunResult { run: id.to_string(), new: false }))
}

/// What may be wanted between two turns.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChangeChat {
    /// What was said, and the model that answers.
    Look {},
    /// Forget the last turn.
    Undo {},
    /// Another model goes on.
    Model { model: String },
    /// Old turns are summarised, and above all what is about `focus`.
    Compact { focus: Option<String> },
}

pub async fn change(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered {
    let wanted = match read(body, LARGEST_BODY).await? {
        ChangeChat::Look {} => ConversationChange::Look,
        ChangeChat::Undo {} => ConversationChange::Undo,
        ChangeChat::Compact { focus } => ConversationChange::Compact(focus),
        ChangeChat::Model { model } => {
            let model = ModelName::parse(&model).map_err(|error| ApiError::wrong(format!("`model`: {error}")))?;
            may_be_chosen(&model)?;
            ConversationChange::Model(model)
        }
    };
    let house = served.house;
    let id = found(&house, &id)?;
    let run = match house.own.get(&id) {
        Some(run) => run,
        None => Box::pin(begin::resume(&house, &id, GoOn::default())).await?.0,
    };
    let changed = run.change(wanted)?.await.map_err(|_| ApiError::conflict("over", "the chat has ended"))?;
    changed.map(Json).map_err(|words| ApiError::conflict("unchanged", words))
}

/// What holds as long as this process runs it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionView {
    /// What is not asked about again until it ends, in the order of their numbers.
    pub granted: Vec<GrantView>,
    /// Tokens and money of this process, by model and in all.
    #[schemars(with = "Value")]
    pub usage: UsageReport,
}

/// A tool that was allowed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GrantView {
    pub agent: String,
    pub tool: String,
    /// The arguments or the part of the tool that it is for; nothing if it is for all of it.
    pub only: Option<String>,
}

pub async fn session(State(served): State<WebState>, Path(id): Path<String>) -> Answered<SessionView> {
    let runtime = runtime(&served.house, &id)?;
    let granted = runtime.granted().into_iter();
    let granted = granted.map(|SessionGrant { agent, tool, only, .. }| GrantView { agent, tool, only }).collect();
    Ok(Json(SessionView { granted, usage: runtime.usage() }))
}

/// What is asked about again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetGrants {
    /// The number in the list, counted from 1; everything without one.
    #[serde(default)]
    pub number: Option<usize>,
}

pub async fn forget(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered {
    let ForgetGrants { number } = read(body, LARGEST_BODY).await?;
    let runtime = runtime(&served.house, &id)?;
    let granted = runtime.granted();
    let chosen: Vec<&SessionGrant> = match number {
        None => granted.iter().collect(),
        Some(number) => {
            let found = number.checked_sub(1).and_then(|at| granted.get(at));
            vec![found.ok_or_else(|| ApiError::missing(format!("there is no approval {number}")))?]
        }
    };
    for grant in &chosen {
        runtime.forget(grant);
    }
    Ok(Json(json!({"forgotten": chosen.len()})))
}

fn runtime(house: &House, id: &str) -> Result<Arc<Runtime>, ApiError> {
    let runtime = house.own.get(&found(house, id)?).and_then(|run| run.runtime());
    runtime.ok_or_else(|| ApiError::conflict("elsewhere", "this process does not run it"))
}

/// It takes no more turns here; it can be gone on with later, from anywhere.
pub async fn close(State(served): State<WebState>, Path(id): Path<String>) -> Answered {
    let id = found(&served.house, &id)?;
    let run = served.house.own.get(&id);
    run.as_ref().inspect(|run| run.close());
    Ok(Json(json!({"run": id, "closed": run.is_some()})))
}
