//! The open questions of all runs that are kept, and answers to them from outside: which there are, which of them a typed word
//! means, and the one answer that counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use llm_do::approval::{AskedQuestion, PendingQuestion, SHORT_ID, check_edited_raise, key_of_call, short_id};
use llm_do::records::{JournalContents, JournalError, RunKind, StepKind};
use llm_do::store::answers::{AnswerWriteError, StoredAnswer};
use llm_do::store::index::RunState;
use llm_do::store::items::ItemName;
use llm_do::store::layout::{HexDigest, RunId};
use llm_do::store::run::{FindError, RunStore};
use llm_do::{Answer, RawJson, toolsets};
use serde::Deserialize;

use crate::record::RunHeader;

/// A question of a run that nobody has answered.
#[derive(Clone, Debug)]
pub struct WaitingQuestion {
    pub run: RunId,
    /// The root of its project, as the list of runs or the run itself names it.
    pub project: String,
    /// When it was asked, in milliseconds since 1970.
    pub asked_at: u64,
    pub question: PendingQuestion,
    /// The schema of the arguments that an answer may change, if the record has it.
    schema: Option<RawJson>,
}

impl WaitingQuestion {
    /// What names it among the questions of all runs.
    pub fn name(&self) -> String {
        format!("{}/{}", self.run, short_id(&self.question.id))
    }
}

/// Why a word names no question that can be answered.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// It is too short, or has characters that no id has.
    #[error("`{0}` is no id of a question")]
    NotAnId(String),
    /// The run that it names is none, or several.
    #[error(transparent)]
    Run(#[from] FindError),
    /// No question is open that it names.
    #[error("no question with the id `{0}` is open")]
    NotOpen(String),
    /// Somebody answered it.
    #[error("the question `{id}` was answered already")]
    Answered { id: String, answer: Box<StoredAnswer> },
    /// Several open questions begin like it.
    #[error("`{typed}` is the id of {} open questions", .names.len())]
    Ambiguous {
        typed: String,
        /// Each with its run.
        names: Vec<String>,
    },
    /// The record of the run that it names cannot be read.
    #[error("{0}")]
    Unreadable(#[from] JournalError),
    #[error("the runs cannot be listed: {0}")]
    Io(#[from] io::Error),
}

/// The questions of a store. What was read of a run is read again when its record has grown.
#[derive(Debug)]
pub struct Inbox {
    store: RunStore,
    read: BTreeMap<RunId, ReadRun>,
    troubles: BTreeSet<String>,
}

/// What was read of a run, and how long its record was.
#[derive(Debug, Default)]
struct ReadRun {
    length: u64,
    /// The root of its project.
    project: String,
    asked: Vec<WaitingQuestion>,
    /// The same of its items, if it has some.
    items: Option<ReadItems>,
}

/// What was read of the items of a run.
#[derive(Debug, Default)]
struct ReadItems {
    /// What their requests were made of, which stands in the record of the run.
    parts: BTreeMap<String, RawJson>,
    /// Their questions, and how long each record was.
    asked: BTreeMap<ItemName, (u64, Vec<WaitingQuestion>)>,
}

impl Inbox {
    pub fn of(store: RunStore) -> Self {
        Self { store, read: BTreeMap::new(), troubles: BTreeSet::new() }
    }

    /// Whether a process runs it now, and so takes an answer at once.
    pub fn is_running(&self, run: &RunId) -> bool {
        self.store.is_running(run).unwrap_or(false)
    }

    /// The open questions of all runs that wait or run, the newest last.
    pub fn open(&mut self) -> Result<Vec<WaitingQuestion>, InboxError> {
        let listed = self.listed()?;
        self.read.retain(|run, _| listed.contains_key(run));
        let mut open = Vec::new();
        for (run, project) in listed {
            match self.of_run(&run, project) {
                Ok(questions) => open.extend(questions),
                // It was removed this moment.
                Err(JournalError::Missing(_)) => {}
                Err(error) => drop(self.troubles.insert(format!("the run {run} is left out: {error}"))),
            }
        }
        open.sort_by_key(|waiting| waiting.asked_at);
        Ok(open)
    }

    /// What could not be read since it was last asked for.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles).into_iter().collect()
    }

    /// The runs that may have open questions, with their projects.
    fn listed(&self) -> Result<BTreeMap<RunId, Option<String>>, InboxError> {
        let text = self.store.index().read()?;
        let is_open = |state: RunState| match state {
            RunState::Running | RunState::Waits => true,
            RunState::Stopped | RunState::Died | RunState::Done | RunState::Damaged => false,
        };
        let lines = text.newest().filter(|line| is_open(line.state));
        let mut listed: BTreeMap<RunId, Option<String>> =
            lines.map(|line| (line.id, Some(line.project.into_owned()))).collect();
        if text.is_behind() {
            // A run that the list does not have yet is looked at itself.
            listed.extend(text.missing(self.store.ids()?).into_iter().map(|run| (run, None)));
        }
        Ok(listed)
    }

    /// The open questions of one run.
    fn of_run(&mut self, run: &RunId, project: Option<String>) -> Result<Vec<WaitingQuestion>, JournalError> {
        let journal = self.store.layout().journal(run);
        let length = fs::metadata(&journal).map_or(0, |found| found.len());
        if self.read.get(run).is_none_or(|known| known.length != length) {
            let contents = self.store.read_journal(run)?;
            let project = project.unwrap_or_else(|| project_of(&contents));
            let asked = asked(&contents, *run, run.as_str(), &project);
            let items = (contents.identity.kind == RunKind::Map)
                .then(|| ReadItems { parts: contents.parts, asked: BTreeMap::new() });
            self.read.insert(*run, ReadRun { length, project, asked, items });
        }
        let Some(known) = self.read.get_mut(run) else { return Ok(Vec::new()) };
        let mut asked = known.asked.clone();
        if let Some(items) = &mut known.items {
            read_items(&self.store, run, &known.project, items);
            asked.extend(items.asked.values().flat_map(|(_, asked)| asked.iter().cloned()));
        }
        let answers = self.store.answers(run);
        let is_open = |waiting: &WaitingQuestion| {
            let answer = HexDigest::parse(&waiting.question.id).map(|id| answers.given(&id));
            !matches!(answer, Some(Ok(Some(_))))
        };
        Ok(asked.into_iter().filter(is_open).collect())
    }

    /// The one open question that a typed word means: the beginning of its id, or the beginning of a run's id, a slash and
    /// that.
    pub fn find(&mut self, typed: &str) -> Result<WaitingQuestion, InboxError> {
        let (run, id) = match typed.split_once('/') {
            Some((run, id)) => (Some(self.store.find(run)?), id),
            None => (None, typed),
        };
        let id = id.to_ascii_lowercase();
        let is_id = (SHORT_ID..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return Err(InboxError::NotAnId(typed.to_owned()));
        }
        let open = match &run {
            Some(run) => self.of_run(run, None)?,
            None => self.open()?,
        };
        let mut meant: Vec<WaitingQuestion> =
            open.into_iter().filter(|waiting| waiting.question.id.starts_with(&id)).collect();
        match (meant.len(), meant.pop()) {
            (1, Some(only)) => Ok(only),
            (_, Some(last)) => {
                meant.push(last);
                let names = meant.iter().map(WaitingQuestion::name).collect();
                Err(InboxError::Ambiguous { typed: typed.to_owned(), names })
            }
            (_, None) => Err(self.missing(typed, &id, run)),
        }
    }

    /// Whether it was answered, or is not there at all.
    fn missing(&self, typed: &str, id: &str, run: Option<RunId>) -> InboxError {
        let runs = run.map_or_else(|| self.store.ids().unwrap_or_default(), |run| vec![run]);
        let mut given = runs.iter().rev().flat_map(|run| self.given(run, id));
        match given.next() {
            Some(answer) => InboxError::Answered { id: typed.to_owned(), answer: Box::new(answer) },
            None => InboxError::NotOpen(typed.to_owned()),
        }
    }

    /// The answers of a run to questions that begin like this.
    fn given(&self, run: &RunId, id: &str) -> Vec<StoredAnswer> {
        let Ok(entries) = fs::read_dir(self.store.layout().answers(run)) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let digests = names.filter_map(|name| HexDigest::parse(name.strip_suffix(".json")?));
        let begins = digests.filter(|digest| digest.as_str().starts_with(id));
        begins.filter_map(|digest| self.store.answers(run).given(&digest).ok().flatten()).collect()
    }

    /// Answers a question, unless another process was first. Gives what lay in the place of the answer and was set aside.
    pub fn answer(
        &self,
        waiting: &WaitingQuestion,
        answer: &Answer,
        by: &str,
    ) -> Result<Vec<PathBuf>, AnswerWriteError> {
        let unusable = || AnswerWriteError::Io(io::Error::from(io::ErrorKind::InvalidInput));
        let id = HexDigest::parse(&waiting.question.id).ok_or_else(unusable)?;
        let answer = StoredAnswer::of(answer, by).ok_or_else(unusable)?;
        self.store.answers(&waiting.run).write(&id, &answer)
    }
}

/// Whether arguments that a person wrote are such as the tool takes, as far as the record says.
pub async fn check_edited(waiting: &WaitingQuestion, edited: &RawJson) -> Result<(), String> {
    check_edited_raise(&waiting.question.tool, &waiting.question.arguments, edited)?;
    let Some(schema) = waiting.schema.as_ref().and_then(|schema| schema.to::<serde_json::Value>().ok()) else {
        return Ok(());
    };
    toolsets::fits(&schema, edited).await
}

/// Reads the records of items that have grown. One that cannot be read now has no questions that could be answered.
fn read_items(store: &RunStore, run: &RunId, project: &str, ReadItems { parts, asked: known }: &mut ReadItems) {
    for name in store.item_names(run).unwrap_or_default() {
        let length = fs::metadata(store.layout().item(run, &name)).map_or(0, |found| found.len());
        if known.get(&name).is_some_and(|(before, _)| *before == length) {
            continue;
        }
        let questions = store.read_item(run, &name).map(|mut contents| {
            if contents.waiting().next().is_some() {
                contents.parts.extend(parts.clone());
            }
            asked(&contents, *run, &format!("{run}/{name}"), project)
        });
        known.insert(name, (length, questions.unwrap_or_default()));
    }
}

/// The root of the project that the header of a run names.
fn project_of(contents: &JournalContents) -> String {
    let of_header = |header: RunHeader| {
        let project = header.directory.join(header.project);
        project.canonicalize().unwrap_or(project).display().to_string()
    };
    contents.header.to().ok().map(of_header).unwrap_or_default()
}

/// The questions that the record of a run, or of one of its items, has open. What is read is what has the id.
fn asked(contents: &JournalContents, run: RunId, named: &str, project: &str) -> Vec<WaitingQuestion> {
    let times: BTreeMap<&str, u64> = contents.records().map(|(key, entry)| (key, entry.at)).collect();
    // A conversation that went on has left the questions of its earlier turns behind.
    let last = contents.records().filter_map(|(key, _)| turn_of(key)).max();
    let current = contents.waiting().filter(|(key, _)| turn_of(key) == last);
    let waiting = current.filter_map(|(key, shown)| Some((key, shown.to::<AskedQuestion>().ok()?)));
    let question = |(key, asked): (&str, AskedQuestion)| {
        let question = asked.pending(named, key_of_call(key));
        let schema = declared(contents, key, &question.tool);
        let asked_at = times.get(key).copied().unwrap_or(contents.begun_at);
        WaitingQuestion { run, project: project.to_owned(), asked_at, question, schema }
    };
    waiting.map(question).collect()
}

/// The number of the entry's turn that a step belongs to.
fn turn_of(key: &str) -> Option<u64> {
    key.split('/').nth(1)?.strip_prefix('t')?.parse().ok()
}

/// The schema that the model was told of the tool when it asked for the call.
fn declared(contents: &JournalContents, key: &str, tool: &str) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct Names {
        tools: String,
    }
    #[derive(Deserialize)]
    struct ToolRow {
        name: String,
        parameters: RawJson,
    }
    let is_above = |place: &str| key.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
    let requests = contents.records().filter(|(place, entry)| entry.kind == StepKind::Model && is_above(place));
    let (_, request) = requests.last()?;
    let names: Names = contents.parts.get(request.parts.as_ref()?)?.to().ok()?;
    let tools: Vec<ToolRow> = contents.parts.get(&names.tools)?.to().ok()?;
    tools.into_iter().find(|row| row.name == tool).map(|row| row.parameters)
}
