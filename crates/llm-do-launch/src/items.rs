//! A run of many items: one agent over each of them, with a record of its own, within the limits of all together.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use llm_do::records::{
    EndState, JournalError, JournalSettings, Matching, NewRun, OpenJournal, RunIdentity, RunKind, turn_output,
};
use llm_do::runs::ItemRecord;
use llm_do::store::items::ItemName;
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::toolsets::Ending;
use llm_do::{CancellationToken, Event, EventKind, FileJournal, Input, Output, RunError, Runtime};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::error::LaunchError;
use crate::keep::{RunKeeper, WrittenItems};
use crate::launch::{ReadyRun, Resumption};
use crate::record::unusable;

/// What a run of many items needs to know when it goes on: its input is read again. Paths are relative to its directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapRecord {
    /// The file of the items; `-` is stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<PathBuf>,
    /// The pattern of the files that are the items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// How the file is written, where its name does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// How many items at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
    /// Where the results go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// After so many failures nothing more is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<u64>,
}

/// The runs of the items.
pub struct ItemRuns {
    /// The whole: its limits are those of all items.
    runtime: Runtime,
    run: String,
    resumption: Option<Resumption>,
    keeper: Option<Arc<RunKeeper>>,
    records: Option<ItemRecords>,
    /// Whether notices of items are wanted.
    tells_notices: bool,
}

/// Where the records of the items are, and how they are written.
struct ItemRecords {
    store: RunStore,
    id: RunId,
    settings: JournalSettings,
    matching: Matching,
}

/// What came of an item.
pub struct ItemAnswer {
    pub output: Output,
    /// Whether no model was asked, since all replies were known.
    pub is_cached: bool,
}

/// How a process has ended its work at an item.
pub struct ItemEnd {
    pub answer: Result<ItemAnswer, RunError>,
    /// What is worth a line, if that is wanted.
    pub notices: Vec<String>,
    /// Whether an earlier process has come to the same end: nobody was asked anything in this one.
    pub is_known: bool,
}

/// What is known of an item before anything is asked.
pub enum KnownItem {
    /// Nothing.
    New,
    /// It was begun: what it has done is not done again.
    Begun(Box<OpenJournal>),
    /// It has its answer.
    Answered(Output),
}

impl ReadyRun {
    /// A run of items instead of one of a session. `written` says how their records are written, if there are any.
    pub fn into_items(self, matching: Matching, written: &WrittenItems) -> Result<ItemRuns, LaunchError> {
        let resumption = self.resumption();
        let (runtime, keeper, run) = self.into_runtime();
        let place = keeper.as_ref().and_then(|keeper| Some((keeper.store()?.clone(), *keeper.id())));
        let records = place.map(|(store, id)| {
            let settings = written.settings(&store, &id, keeper.as_ref().and_then(|keeper| keeper.journal()));
            ItemRecords { store, id, settings, matching }
        });
        if let Some(ItemRecords { store, id, .. }) = &records {
            let directory = store.layout().items(id);
            std::fs::create_dir_all(&directory)
                .map_err(|error| LaunchError::failed(format!("{}: {error}", directory.display())))?;
        }
        Ok(ItemRuns { runtime, run, resumption, keeper, records, tells_notices: false })
    }
}

impl ItemRuns {
    /// The same; what is worth a line of an item is told with its end.
    #[must_use]
    pub fn telling_notices(self, tells_notices: bool) -> Self {
        Self { tells_notices, ..self }
    }

    /// What all items have taken so far.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What the run is called.
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// What it can be resumed by.
    pub fn resumption(&self) -> Option<&Resumption> {
        self.resumption.as_ref()
    }

    /// Whoever writes down how it ends.
    pub fn keeper(&self) -> Option<&RunKeeper> {
        self.keeper.as_deref()
    }

    /// What earlier processes spent counts, before anything is asked.
    pub fn carry_over(&self) -> Result<(), LaunchError> {
        let Some(ItemRecords { store, id, .. }) = &self.records else { return Ok(()) };
        let unlisted = |error| LaunchError::failed(format!("the items of the run cannot be listed: {error}"));
        for name in store.item_names(id).map_err(unlisted)? {
            match store.read_item(id, &name) {
                Ok(contents) => self.runtime.carry_over(&contents),
                // A process that was killed had not written its first line.
                Err(JournalError::NotAJournal(_)) => {}
                Err(error) => return Err(unusable(error)),
            }
        }
        Ok(())
    }

    /// What is known of an item.
    pub fn known(&self, name: &ItemName) -> Result<KnownItem, LaunchError> {
        let Some(ItemRecords { store, id, settings, .. }) = &self.records else { return Ok(KnownItem::New) };
        match OpenJournal::open_with(&store.layout().item(id, name), settings.clone()) {
            Ok(open) => Ok(match turn_output(open.contents(), 0) {
                Some(output) => KnownItem::Answered(output),
                None => KnownItem::Begun(Box::new(open)),
            }),
            Err(JournalError::Missing(_) | JournalError::NotAJournal(_)) => Ok(KnownItem::New),
            Err(error) => Err(unusable(error)),
        }
    }

    /// Asks about one item. It ends with [`RunError::Cancelled`] when the token is cancelled before its answer.
    pub async fn ask(
        &self,
        name: &ItemName,
        known: Option<OpenJournal>,
        input: Input,
        cancelled: &CancellationToken,
    ) -> ItemEnd {
        let was_begun = known.is_some();
        let (journal, record) = match self.record(name, known) {
            Ok(record) => record,
            Err(error) => return ItemEnd { answer: Err(error), notices: Vec::new(), is_known: false },
        };
        let (record, told) = if self.tells_notices {
            let (record, told) = record.telling();
            (record, Some(told))
        } else {
            (record, None)
        };
        let item = self.runtime.with_record(format!("{}/{name}", self.run), record);
        let answered = async {
            let mut entry = item.runtime().open_entry().await?;
            // What comes to no answer is left open in the record, where it can be gone on with.
            entry.keep_turns_while(Arc::new(AtomicBool::new(false)));
            let answer = entry.turn_until(input, cancelled).await;
            entry.close().await;
            answer
        };
        let answer = answered.await;
        if let (Some(journal), Err(error)) = (journal, &answer) {
            let ended = match error {
                RunError::Ended(Ending::NeedsApproval(_)) => Some(EndState::Waits),
                error if is_of_all(error) => None,
                _ => Some(EndState::Stopped),
            };
            if let Some(state) = ended {
                let _ = journal.end(state, &error.to_string()).await;
            }
        }
        let (is_cached, is_known) = (item.is_cached(), was_begun && !item.has_asked());
        drop(item);
        let notices = told.map(notices).unwrap_or_default();
        ItemEnd { answer: answer.map(|output| ItemAnswer { output, is_cached }), notices, is_known }
    }

    fn record(
        &self,
        name: &ItemName,
        known: Option<OpenJournal>,
    ) -> Result<(Option<Arc<FileJournal>>, ItemRecord), RunError> {
        let Some(ItemRecords { store, id, settings, matching }) = &self.records else {
            return Ok((None, ItemRecord::default()));
        };
        let unusable = |error: JournalError| RunError::from(llm_do::records::Stop::Journal(error.to_string()));
        match known {
            Some(open) => {
                let contents = open.contents().clone();
                let journal = Arc::new(open.resume(*matching, None).map_err(unusable)?);
                let record = ItemRecord::resumed(&journal, &contents);
                Ok((Some(journal), record))
            }
            None => {
                let named = Some(format!("{}/{name}", self.run));
                let identity = RunIdentity { id: named, kind: RunKind::Run, ..RunIdentity::default() };
                let path = store.layout().item(id, name);
                let begun = FileJournal::begin(&path, NewRun::of(identity, &()), settings.clone());
                let journal = Arc::new(begun.map_err(unusable)?);
                let record = ItemRecord::begun(&journal);
                Ok((Some(journal), record))
            }
        }
    }

    /// Writes down how it ended: what the last error was that says more than that items failed, if there is one. What the whole
    /// has started ends.
    pub async fn end(&self, last: Option<&RunError>) {
        if let Some(keeper) = &self.keeper {
            keeper.end(&self.runtime, last).await;
        }
        self.runtime.close().await;
        if let Some(telemetry) = self.runtime.telemetry() {
            telemetry.flush().await;
        }
    }
}

/// What was told of an item that somebody should read.
fn notices(mut told: mpsc::UnboundedReceiver<Event>) -> Vec<String> {
    let events = std::iter::from_fn(move || told.try_recv().ok());
    let text = |event: Event| match event.kind {
        EventKind::Notice { text } => Some(text),
        _ => None,
    };
    events.filter_map(text).collect()
}

/// Whether an error is about all items together, and says nothing of the one that it came from.
pub fn is_of_all(error: &RunError) -> bool {
    match error {
        RunError::Cancelled { .. }
        | RunError::UnknownPrice { .. }
        | RunError::UnboundedTool { .. }
        | RunError::NotStarted
        | RunError::NoProvider { .. }
        | RunError::IdleRule { .. } => true,
        RunError::Ended(ending) => matches!(
            ending,
            Ending::Limit { .. }
                | Ending::Budget { .. }
                | Ending::BudgetUnkept { .. }
                | Ending::Unauthenticated { .. }
                | Ending::NeedsLogin { .. }
                | Ending::Journal(_)
        ),
        RunError::Model { error, .. } => matches!(error, llm_do::providers::ModelError::Authenticate(_)),
        RunError::Input(_)
        | RunError::NotAskedAgain { .. }
        | RunError::Empty { .. }
        | RunError::Unfinished { .. }
        | RunError::Limit { .. }
        | RunError::RepeatedFailure { .. }
        | RunError::Output { .. }
        | RunError::Code { .. }
        | RunError::NoAgent { .. }
        | RunError::TooDeep { .. }
        | RunError::Incompatible { .. }
        | RunError::TooManyCalls(_)
        | RunError::Toolset { .. }
        | RunError::Function { .. }
        | RunError::ContextFull { .. }
        | RunError::Panicked { .. } => false,
    }
}
