//! The runs that are kept and their questions, for programs: what `llm-do runs` and `llm-do inbox` do, as methods.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::ValueEnum as _;
use llm_do::escape::visible;
use llm_do::rpc::RpcError;
use llm_do::store::index::IndexLine;
use llm_do::store::layout::RunId;
use llm_do::{Answer, ModelName, RawJson};
use llm_do_launch::inbox::check_edited;
use llm_do_launch::kept_runs::{ForkChanges, ForkPlace, ForkedRun};
use llm_do_launch::stored_runs::CancelOutcome;
use serde::{Deserialize, Serialize};

use crate::args::{ListRunsArgs, ModelArgs, StateArg};
use crate::commands::inbox;
use crate::commands::runs;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::serve::protocol::AnswerValues;
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

/// `questions.list`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuestions {
    /// Only those of this run.
    #[serde(default)]
    run: Option<String>,
}

#[derive(Serialize)]
struct ListQuestionsResult {
    questions: Vec<serde_json::Value>,
    /// What could not be read.
    left_out: Vec<String>,
}

pub fn questions(asked: ListQuestions, environment: &Environment) -> Result<RawJson, RpcError> {
    let run = asked.run.map(|typed| runs::id_of(&typed, &environment.settings()?)).transpose()?;
    let mut inbox = inbox::opened(environment)?;
    let mut open = inbox.open().map_err(inbox::unfound)?;
    open.retain(|waiting| run.is_none_or(|run| waiting.run == run));
    let questions = open.iter().map(inbox::row).collect();
    Ok(RawJson::of(&ListQuestionsResult { questions, left_out: inbox.take_troubles() }))
}

/// `questions.answer`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuestion {
    /// Its id, the first 12 characters of it, or `RUN/ID`.
    question: String,
    approved: bool,
    /// Other arguments, which are judged again.
    #[serde(default)]
    arguments: Option<RawJson>,
    /// What a question that wants more than yes or no is answered with, by name.
    #[serde(default)]
    values: Option<AnswerValues>,
    /// What the model reads of a refusal.
    #[serde(default)]
    note: Option<String>,
}

#[derive(Serialize)]
struct AnswerQuestionResult {
    run: RunId,
    question: String,
    /// Whether a process runs it, which takes the answer at once.
    running: bool,
}

pub async fn answer(asked: AnswerQuestion, environment: &Environment) -> Result<RawJson, RpcError> {
    let AnswerQuestion { question, approved, arguments, values, note } = asked;
    let answer = match (approved, arguments, note) {
        (true, _, Some(_)) => return Err(Failure::usage("`note` is for refusals").into()),
        (true, None, None) => Answer::Once,
        (true, Some(arguments), None) => Answer::Edited(arguments),
        (false, Some(_), _) => return Err(Failure::usage("`arguments` are for approvals").into()),
        (false, None, reason) => Answer::Refuse { reason },
    };
    let mut inbox = inbox::opened(environment)?;
    let waiting = inbox::found(&mut inbox, &question)?;
    let answer = match (values, answer) {
        (None, answer) => answer,
        (Some(values), Answer::Once) => {
            let answer = waiting.question.answer_by_values(&values.typed());
            answer.map_err(|wrong| Failure::usage(visible(&wrong)).hint("nothing was answered"))?
        }
        (Some(_), _) => return Err(Failure::usage("`values` are for approvals, without `arguments`").into()),
    };
    let unfit = |wrong: String| Failure::usage(visible(&wrong)).hint("nothing was answered");
    waiting.question.check_answer(&answer).map_err(unfit)?;
    if let Answer::Edited(edited) = &answer {
        let wrong = |reason: String| Failure::usage(format!("`arguments`: {reason}")).hint("nothing was answered");
        check_edited(&waiting, edited).await.map_err(wrong)?;
    }
    inbox.answer(&waiting, &answer, &environment.user()).map_err(|error| inbox::unanswered(&waiting, error))?;
    let running = inbox.is_running(&waiting.run);
    Ok(RawJson::of(&AnswerQuestionResult { run: waiting.run, question: waiting.question.id, running }))
}
