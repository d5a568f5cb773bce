//! Runs that begin here, and runs that go on here: each comes through the phases of the hall, as every front end's do.

use std::sync::Arc;

use axum::http::StatusCode;
use llm_do::records::{Matching, RunKind, outcome};
use llm_do::store::index::RunState;
use llm_do::store::layout::RunId;
use llm_do::trust::Fingerprint;
use llm_do::{Input, Limits, Listen, Message};
use llm_do_launch::error::LaunchError;
use llm_do_launch::keep::{KeepNeed, KeepPlan, RunSubject};
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::launch::{CacheUse, LinkedLaunch, ListenPlan, ReadyRun, Record};
use llm_do_launch::open_run::{OpenRun, RunPlace, is_chat, is_conversation};
use llm_do_launch::record::Author;
use llm_do_launch::session::{SessionLength, TurnReport};
use tokio::sync::oneshot;

use crate::error::ApiError;
use crate::house::{House, LaunchWishes, ServedProject};
use crate::own_runs::{OwnRun, TurnEnd};

/// A run that is to begin.
pub struct RunWish {
    pub kind: RunKind,
    pub wishes: LaunchWishes,
    /// What is said first; a chat may begin without.
    pub input: Option<Input>,
    pub history: Vec<Message>,
    pub label: Option<String>,
    pub once: Option<String>,
    /// Whether its questions are put to whoever looks; else they wait in its record.
    pub is_attended: bool,
}

/// A run that has begun, or the one that has its key.
pub enum BegunRun {
    New(Arc<OwnRun>, Option<oneshot::Receiver<TurnEnd>>),
    /// Another one has the key: the same was said to it.
    Known(RunId),
}

/// Links a project as a run of it would be; nothing is written.
pub async fn link(house: &House, project: &ServedProject, new: &RunWish) -> Result<LinkedLaunch, ApiError> {
    let mut launch = house.launch(project, new.wishes.clone())?;
    launch.policy.is_attended = new.is_attended;
    if is_chat(new.kind) {
        // In a chat the same words may be said again for another answer.
        launch.policy.cache = CacheUse::Unused;
    }
    let trusted = Box::pin(house.trusted(launch)).await.map_err(|error| house.error(error))?;
    let linked = Box::pin(trusted.link()).await.map_err(|error| house.error(error))?;
    linked.check_keys().map_err(|error| house.error(error))?;
    Ok(linked)
}

/// Begins a run of a linked project.
pub fn begin(house: &Arc<House>, linked: LinkedLaunch, new: RunWish) -> Result<BegunRun, ApiError> {
    if house.own.is_full() {
        return Err(too_many());
    }
    let RunWish { kind, input, history, label, once, .. } = new;
    let plan = KeepPlan {
        kind,
        label,
        durability: house.settings.config.runs.durability(),
        need: KeepNeed::Required,
        once,
        id: None,
    };
    // What is said to a conversation stands in its turns.
    let said = if is_conversation(kind) { None } else { input.clone() };
    let record = linked.kept(plan, said).map_err(|error| house.error(error))?;
    let header_once = match &record {
        Record::Keep(_, header) => header.once.clone(),
        Record::Ephemeral | Record::File(..) | Record::Known(_) | Record::Observed(..) => None,
    };
    match linked.ready(record, None) {
        Ok(ready) => {
            let run = start(house, ready, kind, history)?;
            let ended = input.map(|input| run.turn(Some(input))).transpose()?;
            Ok(BegunRun::New(run, ended))
        }
        Err(LaunchError::Taken(first)) => same_as(house, first, header_once.as_deref()).map(BegunRun::Known),
        Err(error) => Err(house.error(error)),
    }
}

/// One key is for one input.
fn same_as(house: &House, first: RunId, said: Option<&str>) -> Result<RunId, ApiError> {
    let contents = house.store.read_journal(&first).map_err(|error| ApiError::failed(error.to_string()))?;
    let header: llm_do_launch::record::RunHeader =
        contents.header.to().map_err(|error| ApiError::failed(error.to_string()))?;
    if header.once.as_deref() == said {
        return Ok(first);
    }
    Err(ApiError::conflict("taken", format!("the run `{first}` has this key and was told something else"))
        .with("run", first))
}

fn too_many() -> ApiError {
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "busy", "too many runs go on in this server")
        .hint("wait until one of them has ended")
}

fn start(house: &Arc<House>, ready: ReadyRun, kind: RunKind, history: Vec<Message>) -> Result<Arc<OwnRun>, ApiError> {
    let length = if is_chat(kind) { SessionLength::Conversation } else { SessionLength::OneTurn };
    let (session, updates) = ready.start(ListenPlan {
        hearing: Some(Listen::Everything),
        report: TurnReport::Answer,
        history,
        length,
        ..ListenPlan::default()
    });
    let id = RunId::parse(session.runtime.run_id()).ok_or_else(|| ApiError::failed("the run has no id"))?;
    let run = OwnRun::attend(&house.own, id, kind, session);
    let (follows, attended) = (Arc::clone(house), Arc::clone(&run));
    tokio::spawn(async move { attended.follow(&follows.own, updates).await });
    Ok(run)
}

/// How a run goes on.
#[derive(Clone, Debug, Default)]
pub struct GoOn {
    /// What is said next in a chat; without it what was cut off is finished.
    pub input: Option<Input>,
    pub limits: Limits,
    /// Whether it goes on though the project has changed.
    pub is_forced: bool,
}

/// Goes on with a run that no process runs.
pub async fn resume(
    house: &Arc<House>,
    id: &RunId,
    wanted: GoOn,
) -> Result<(Arc<OwnRun>, Option<oneshot::Receiver<TurnEnd>>), ApiError> {
    if house.own.is_full() {
        return Err(too_many());
    }
    let place = RunPlace::Store(house.store.clone(), *id);
    let open = OpenRun::open(place, Author::User, &house.settings).map_err(|error| house.error(error))?;
    if house.project_at(&project_of(open.contents())).is_none() {
        return Err(elsewhere(id));
    }
    let kind = open.contents().identity.kind;
    if !is_conversation(kind) && outcome(open.contents()).is_some() {
        return Err(ApiError::conflict("done", format!("the run `{id}` is done")));
    }
    if !open.header.flags.terms.given.is_empty() || matches!(kind, RunKind::Scope | RunKind::Map | RunKind::Other) {
        return Err(ApiError::conflict("of_a_program", format!("`{id}` belongs to a program, which goes on with it")));
    }
    let (linked, matching) = relinked(house, &open, &wanted, kind).await?;
    let input = if is_conversation(kind) { wanted.input } else { open.header.input.clone() };
    let (durability, subject) = (None, RunSubject::of(linked.program()));
    let record = open.resume(&linked.files, matching, durability, subject, &house.settings);
    let record = record.map_err(|error| house.error(error))?;
    let ready = linked.ready(Record::Known(record), None).map_err(|error| house.error(error))?;
    let run = start(house, ready, kind, Vec::new())?;
    if !is_conversation(kind) {
        let ended = run.turn(input)?;
        return Ok((run, Some(ended)));
    }
    let restored = run.open().await.map_err(|_| ApiError::failed("the run could not be opened"))?;
    let restored = restored.map_err(ApiError::failed)?;
    let ended = match (input, restored.unfinished) {
        (Some(input), _) => Some(run.turn(Some(input))?),
        (None, Some(_)) => Some(run.turn(None)?),
        (None, None) => None,
    };
    if ended.is_none() && !is_chat(kind) {
        run.close();
    }
    Ok((run, ended))
}

/// Its project as it is now.
async fn relinked(
    house: &House,
    open: &OpenRun,
    wanted: &GoOn,
    kind: RunKind,
) -> Result<(LinkedLaunch, Matching), ApiError> {
    let header = open.header.clone();
    let directory = header.working_directory().map_err(|error| house.error(error))?;
    let mut overrides = house.overrides.clone();
    overrides.policy.limits = wanted.limits.or(&overrides.policy.limits);
    overrides.policy.is_attended = true;
    let launch = header.flags.launch(header.project, directory, overrides).map_err(|error| house.error(error))?;
    let trusted = Box::pin(house.trusted(launch)).await.map_err(|error| house.error(error))?;
    // Finished turns of a chat stand as they were recorded: only a turn that was cut off is compared with the project.
    let is_forgiven = wanted.is_forced || (is_chat(kind) && wanted.input.is_some());
    let files = header.files;
    unchanged(&files, &trusted.project().fingerprint(), is_forgiven)?;
    let linked = Box::pin(trusted.link()).await.map_err(|error| house.error(error))?;
    let has_changed = unchanged(&files, &linked.files, is_forgiven)?;
    Ok((linked, if has_changed { Matching::ForgiveModels } else { Matching::Exact }))
}

/// Whether it has changed, where that is forgiven.
fn unchanged(files: &Fingerprint, now: &Fingerprint, is_forgiven: bool) -> Result<bool, ApiError> {
    let changes = files.changes(now);
    if changes.is_empty() || is_forgiven {
        return Ok(!changes.is_empty());
    }
    Err(ApiError::conflict("changed", "the project has changed since the run began")
        .hint("go on with it as it is now: `force`")
        .with("changes", changes))
}

/// A run of a project that this server was not started for.
pub fn elsewhere(id: &RunId) -> ApiError {
    ApiError::forbidden(format!("`{id}` is a run of a project that this server starts nothing in"))
        .hint(format!("type `llm-do resume {id}`"))
        .with("command", format!("llm-do resume {id}"))
}

/// Goes on with a run after an answer, if it may, nobody runs it and nothing else of it waits. What cannot go on here waits.
pub async fn go_on_after_answer(house: &Arc<House>, id: &RunId) -> Result<bool, ApiError> {
    let run = house.run(id.as_str())?;
    if run.line.state != RunState::Waits || house.project_at(&run.line.project).is_none() || house.is_read_only {
        return Ok(false);
    }
    let mut inbox = llm_do_launch::inbox::Inbox::of(house.store.clone());
    let open = inbox.open().map_err(|error| ApiError::failed(error.to_string()))?;
    if open.iter().any(|waiting| waiting.run == *id) {
        return Ok(false);
    }
    resume(house, id, GoOn::default()).await.map(|_| true)
}
