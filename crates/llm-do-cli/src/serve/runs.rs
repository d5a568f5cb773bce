//! The runs that are kept, for programs: what `llm-do runs` does, as methods.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::ValueEnum as _;
use llm_do::rpc::RpcError;
use llm_do::store::index::IndexLine;
use llm_do::store::layout::RunId;
use llm_do::{ModelName, RawJson};
use llm_do_launch::kept_runs::{ForkChanges, ForkPlace, ForkedRun};
use serde::{Deserialize, Serialize};

use crate::args::{ListRunsArgs, ModelArgs, StateArg};
use crate::commands::runs::{self, CancelOutcome};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::{args, plan};

/// `runs.list`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// A path, or the name of a project's directory; absent: those of all projects.
    #[serde(default)]
    project: Option<PathBuf>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    label: Option<String>,
    /// A time such as `7d`.
    #[serde(default)]
    since: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Serialize)]
struct ListRunsResult {
    runs: Vec<IndexLine<'static>>,
}

pub fn list(asked: &ListRuns, environment: &Environment) -> Result<RawJson, RpcError> {
    let state = asked.state.as_deref().map(|word| StateArg::from_str(word, false)).transpose();
    let since = asked.since.as_deref().map(args::duration).transpose();
    let listing = ListRunsArgs {
        project: asked.project.clone(),
        state: state.map_err(|_| Failure::usage("`state` is running, waits, stopped, died, done or damaged"))?,
        label: asked.label.clone(),
        since: since.map_err(|error| Failure::usage(format!("`since`: {error}")))?,
        lines: asked.limit,
        all: asked.project.is_none(),
        json: true,
    };
    Ok(RawJson::of(&ListRunsResult { runs: runs::listed(&listing, &environment.settings()?)? }))
}

/// `runs.show`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowRun {
    run: String,
    /// Also all that was said.
    #[serde(default)]
    messages: bool,
}

pub fn show(asked: &ShowRun, environment: &Environment) -> Result<RawJson, RpcError> {
    Ok(runs::shown(&asked.run, asked.messages, &environment.settings()?)?)
}

/// `runs.fork`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkRun {
    run: String,
    /// The key of the first step that runs anew.
    #[serde(default)]
    at: Option<String>,
    /// The first turn that runs anew, counted from 1.
    #[serde(default)]
    turn: Option<u64>,
    /// What is said instead.
    #[serde(default)]
    prompt: Option<String>,
    /// Models instead of those in the files, by agent.
    #[serde(default)]
    models: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct ForkRunResult {
    run: RunId,
    at: String,
    /// What has to be said to go on with it; without it `finish` does.
    input: Option<String>,
}

pub fn fork(asked: ForkRun, environment: &Environment) -> Result<RawJson, RpcError> {
    let ForkRun { run, at, turn, prompt, models: chosen } = asked;
    let place = match (at, turn) {
        (Some(_), Some(_)) => return Err(Failure::usage("`at` and `turn` exclude each other").into()),
        (Some(key), None) => ForkPlace::Key(key),
        (None, Some(turn)) => ForkPlace::Turn(turn),
        (None, None) => ForkPlace::End,
    };
    let settings = environment.settings()?;
    let mut models = plan::models(&ModelArgs::default(), environment, &settings.config)?;
    for (agent, model) in chosen {
        let wrong = |error| Failure::usage(format!("`models`: {error}"));
        models.overrides.insert(agent, ModelName::parse(&model).map_err(wrong)?);
    }
    let ForkedRun { id, at, said, .. } = runs::forked(&run, ForkChanges { place, prompt, models }, &settings)?;
    Ok(RawJson::of(&ForkRunResult { run: id, at, input: said }))
}

/// `runs.cancel`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRun {
    run: String,
}

#[derive(Serialize)]
struct CancelRunResult {
    run: RunId,
    /// `asked`: the process that runs it ends its turn; `marked`: no process runs it; `stopped`: it was stopped before.
    outcome: &'static str,
}

pub fn cancel(asked: &CancelRun, environment: &Environment) -> Result<RawJson, RpcError> {
    let (run, outcome) = match runs::cancelled(&asked.run, &environment.settings()?)? {
        CancelOutcome::Asked(run) => (run, "asked"),
        CancelOutcome::Marked(run) => (run, "marked"),
        CancelOutcome::Stopped(run) => (run, "stopped"),
    };
    Ok(RawJson::of(&CancelRunResult { run, outcome }))
}
