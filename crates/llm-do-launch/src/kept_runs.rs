//! What can be done with runs that are kept besides going on with them: whose they are, forks of them, and bundles in which
//! they move from one machine to another.

use std::path::{Path, PathBuf};

use llm_do::records::{ForkError, JournalContents, RunIdentity, forked, input_text};
use llm_do::store::bundle::BundleError;
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::{FileJournal, Input, ModelChoices, RawJson};
use serde::Deserialize;

use crate::error::LaunchError;
use crate::keep::{KeepNeed, journal_settings};
use crate::record::{RunHeader, chosen_models, unusable};
use crate::settings::Settings;

/// The root of the project that a run is of, as the list of runs has it; empty if its header does not say it.
pub fn project_of(contents: &JournalContents) -> String {
    #[derive(Deserialize)]
    struct HeaderPlace {
        project: PathBuf,
        directory: PathBuf,
    }
    let Ok(HeaderPlace { project, directory }) = contents.header.to() else { return String::new() };
    root_of(&directory.join(project)).to_string_lossy().into_owned()
}

/// A project may be named by its directory or by one of its files, and may be gone by now.
fn root_of(path: &Path) -> PathBuf {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let is_file = path.is_file() || (!path.is_dir() && matches!(ending, Some("json" | "worker" | "agent")));
    let root = path.parent().filter(|_| is_file).unwrap_or(path);
    root.canonicalize().unwrap_or_else(|_| root.components().collect())
}

/// Where a fork begins to run by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkPlace {
    /// With the step at this key.
    Key(String),
    /// With this turn, counted from 1.
    Turn(u64),
    /// Behind all that was finished: the next turn of a conversation, or a run from its beginning.
    End,
}

/// What is different in a fork.
pub struct ForkChanges {
    pub place: ForkPlace,
    /// What is said instead.
    pub prompt: Option<String>,
    pub models: ModelChoices,
}

/// A run that was forked: it has its record and waits for somebody to go on with it.
#[derive(Debug)]
pub struct ForkedRun {
    pub id: RunId,
    /// The key of the first step that runs anew.
    pub at: String,
    /// What has to be said to go on with it, if it is a conversation that begins a turn.
    pub said: Option<String>,
    pub is_conversation: bool,
}

/// Makes a run of what another one has recorded, up to a place.
pub fn fork(
    store: &RunStore,
    contents: &JournalContents,
    changes: ForkChanges,
    settings: &Settings,
) -> Result<ForkedRun, LaunchError> {
    let ForkChanges { place, prompt, models } = changes;
    let mut header: RunHeader = contents.header.to().map_err(|error| {
        LaunchError::usage(format!("the record of the run does not say how it was started: {error}"))
    })?;
    let is_conversation = crate::open_run::is_conversation(contents.identity.kind);
    let at = key_of(contents, &place, is_conversation)?;
    let RunIdentity { label, kind, .. } = contents.identity.clone();
    let new = forked(contents, &at, RunIdentity { id: None, label, kind, forked: None });
    let mut new = new.map_err(|error| match error {
        ForkError::Unknown(_) => {
            LaunchError::usage(error.to_string()).hint("look at the run: each of its calls has a key")
        }
    })?;
    let turn = turn_begun_at(contents, &at);
    if prompt.is_some() && turn.is_none() {
        return Err(LaunchError::usage(format!("`{at}` stands within a turn, whose input is taken over"))
            .hint("name the turn itself to say something else"));
    }
    let said = match (turn, is_conversation) {
        (Some(turn), true) => Some(said_in(contents, turn, prompt.clone())?),
        (Some(_) | None, _) => None,
    };
    let id = store.create().map_err(|error| LaunchError::usage(format!("the run cannot be kept: {error}")))?;
    header.run = id.to_string();
    // The key of `--once` belongs to the other run.
    header.once = None;
    // Of the last turn that is taken over, whole or in part.
    let taken = turn.map_or_else(|| contents.turn_at(&at), |turn| turn.checked_sub(1));
    header.files = header.files_of(taken, contents);
    header.flags.models = models_of(&header.flags.models, &models)?;
    if let Some(prompt) = prompt.filter(|_| !is_conversation) {
        header.input = Some(Input::from(prompt.as_str()));
    }
    new.identity.id = Some(id.to_string());
    new.header = RawJson::of(&header);
    let written = journal_settings(settings, store, &id, settings.config.runs.durability(), KeepNeed::Required);
    let begun = FileJournal::begin(&store.layout().journal(&id), new, written).map(drop).map_err(unusable);
    if begun.is_err() {
        let _ = std::fs::remove_dir_all(store.layout().run(&id));
    }
    begun.map(|()| ForkedRun { id, at, said, is_conversation })
}

/// The key of the step that a fork begins with.
fn key_of(contents: &JournalContents, place: &ForkPlace, is_conversation: bool) -> Result<String, LaunchError> {
    let nothing = || LaunchError::usage("nothing is recorded of the run yet");
    let entry = contents.entry().ok_or_else(nothing)?;
    let turns = contents.turns();
    match place {
        ForkPlace::Key(key) => Ok(key.clone()),
        ForkPlace::Turn(number) => {
            let index = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
            let known = turns.get(index).filter(|_| *number > 0);
            known.map(|(turn, _)| format!("{entry}/t{turn}")).ok_or_else(|| {
                let count = turns.len();
                LaunchError::usage(format!("the run has no turn {number}")).hint(format!("it has {count}"))
            })
        }
        ForkPlace::End if is_conversation => {
            let next = turns.iter().rev().find(|(_, is_finished)| *is_finished).map_or(0, |(turn, _)| turn + 1);
            Ok(format!("{entry}/t{next}"))
        }
        ForkPlace::End => Ok(format!("{entry}/t0")),
    }
}

/// The turn that begins anew at this key; none if it stands within a turn whose input is taken over.
fn turn_begun_at(contents: &JournalContents, key: &str) -> Option<u64> {
    let mut parts = key.strip_prefix(contents.entry()?)?.split('/').skip(1);
    let turn = parts.next().map_or(Some(0), |name| name.strip_prefix('t')?.parse().ok())?;
    // Nothing was built on an input before the first request.
    let is_beginning = !matches!(parts.next(), Some(name) if name.starts_with('m') && name != "m0");
    is_beginning.then_some(turn)
}

/// What is said in a turn that begins anew: what the user says now, else what was said then.
fn said_in(contents: &JournalContents, turn: u64, prompt: Option<String>) -> Result<String, LaunchError> {
    if let Some(prompt) = prompt {
        return Ok(prompt);
    }
    let key = format!("{}/t{turn}/input", contents.entry().unwrap_or_default());
    let missing =
        || LaunchError::usage("nothing is said in the turn that the fork begins with").hint("say it behind the id");
    input_text(contents, &key).ok_or_else(missing)
}

/// The models of a record, with those that are chosen now.
fn models_of(words: &[String], anew: &ModelChoices) -> Result<Vec<String>, LaunchError> {
    let unreadable = |error| LaunchError::usage(format!("the models of the run: {error}"));
    Ok(chosen_models(words).map_err(unreadable)?.under(anew).words())
}

/// Whether a file is called a bundle rather than a journal.
pub fn is_bundle(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "bundle") && file.is_file()
}

/// Puts a run of another machine into the store, under its id. Nothing is changed if there is such a run already, or if the
/// bundle is not whole. Whose it is, is found out by whoever goes on with it.
pub fn unbundle(file: &Path, store: &RunStore) -> Result<RunId, LaunchError> {
    store.unbundle(file, &project_of).map_err(|error| {
        let fact = LaunchError::usage(error.to_string());
        match error {
            BundleError::Known(_) => fact.hint("go on with it by its id"),
            BundleError::Broken { .. } => fact.hint("nothing was kept of it; make it again where the run is"),
            BundleError::Io(_) => fact,
        }
    })
}
