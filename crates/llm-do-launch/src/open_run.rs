//! A run that goes on: found by its id or its file, held open, and made the record of a launch again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::WorkingDirectory;
use llm_do::program::MANIFEST_NAME;
use llm_do::records::{Durability, JournalContents, JournalSettings, Matching, OpenJournal, PriorSpending, RunKind};
use llm_do::remedy::Remedy;
use llm_do::store::desk::RunAnswers;
use llm_do::store::index::IndexLine;
use llm_do::store::layout::RunId;
use llm_do::store::run::{FindError, Removal, RunStore};
use llm_do::store::summary::inherited;
use llm_do::telemetry::TracePrior;
use llm_do::trust::Fingerprint;

use crate::error::LaunchError;
use crate::keep::{KeepNeed, RunKeeper, RunSubject, journal_settings};
use crate::kept_runs::{is_bundle, project_of, unbundle};
use crate::launch::Resumption;
use crate::record::{Author, ResumptionNote, RunHeader, RunRecord, TracedRecord, WrittenSpan, unusable};
use crate::settings::Settings;

/// Where the record of a run is.
#[derive(Clone, Debug)]
pub enum RunPlace {
    /// In the store, under this id.
    Store(RunStore, RunId),
    /// In a file that the user named.
    File(PathBuf),
}

/// A run that was named by a word.
#[derive(Clone, Debug)]
pub struct MeantRun {
    pub place: RunPlace,
    /// Where it was put just now, out of a bundle.
    unbundled: Option<(RunStore, RunId)>,
}

impl MeantRun {
    /// Nobody went on with it: what a bundle brought is taken out of the store again, as if it had not been named.
    pub fn withdraw(&self) {
        if let Some((store, id)) = &self.unbundled {
            let _ = store.remove(id, Removal::Forced);
        }
    }
}

impl From<RunPlace> for MeantRun {
    fn from(place: RunPlace) -> Self {
        Self { place, unbundled: None }
    }
}

impl RunPlace {
    /// What a word means: a run, if there is one with such an id, else a file.
    pub fn of(word: &Path, settings: &Settings) -> Result<MeantRun, LaunchError> {
        let store = settings.state.runs()?.ok();
        let Some((store, typed)) = store.zip(word.to_str()) else { return Ok(Self::File(word.to_owned()).into()) };
        match store.find(typed) {
            Ok(id) => Ok(Self::Store(store, id).into()),
            Err(FindError::Unknown(_) | FindError::TooShort(_)) if is_bundle(word) => {
                let id = unbundle(word, &store)?;
                Ok(MeantRun { place: Self::Store(store.clone(), id), unbundled: Some((store, id)) })
            }
            Err(FindError::Unknown(_) | FindError::TooShort(_)) if word.exists() => {
                Ok(Self::File(word.to_owned()).into())
            }
            Err(FindError::Unknown(typed)) => {
                Err(LaunchError::usage(format!("there is no run `{typed}`, and no such file")).hint(Remedy::ListRuns))
            }
            Err(error) => Err(not_found(&error)),
        }
    }

    /// The run with this id, or the one beginning with this word. No file is meant.
    pub fn in_store(typed: &str, settings: &Settings) -> Result<Self, LaunchError> {
        let store = settings.state.runs()?.map_err(|reason| no_store(&reason))?;
        let id = store.find(typed).map_err(|error| not_found(&error))?;
        Ok(Self::Store(store, id))
    }

    /// The newest run of the store that is wanted, among those of a project if one is given.
    pub fn last(project: Option<&Path>, wanted: LastRun, settings: &Settings) -> Result<Self, LaunchError> {
        let store = settings.state.runs()?.map_err(|reason| no_store(&reason))?;
        let unread = |error| LaunchError::failed(format!("the runs cannot be listed: {error}"));
        let text = store.listed(&project_of).map_err(unread)?;
        let is_wanted = |line: &IndexLine<'_>| wanted.includes(line.kind);
        let newest = match project.and_then(Path::to_str) {
            Some(project) => text.newest_of(project).filter(is_wanted).map(|line| line.id).max(),
            None => text.newest().filter(is_wanted).map(|line| line.id).max(),
        };
        newest.map(|id| Self::Store(store, id)).ok_or_else(|| wanted.missing(project))
    }

    /// The journal.
    pub fn file(&self) -> PathBuf {
        match self {
            Self::Store(store, id) => store.layout().journal(id),
            Self::File(file) => file.clone(),
        }
    }

    /// Where the answers to its questions are kept, if it is in the store.
    pub fn answers(&self) -> Option<RunAnswers> {
        match self {
            Self::Store(store, id) => Some(RunAnswers::of(store.clone(), *id)),
            Self::File(_) => None,
        }
    }

    /// How a person names it.
    pub fn resumption(&self) -> Resumption {
        match self {
            Self::Store(_, id) => Resumption::Run(id.to_string()),
            Self::File(file) => Resumption::File(file.clone()),
        }
    }

    /// What its record says, without going on with it.
    pub fn read(&self, author: Author, settings: &Settings) -> Result<JournalContents, LaunchError> {
        match (self, author) {
            (Self::Store(store, id), Author::User) => {
                let blobs = llm_do::records::Blobs::at(store.layout().blobs(id));
                llm_do::records::read_with(&self.file(), store.key(), Some(&blobs)).map_err(unusable)
            }
            (Self::Store(..) | Self::File(_), _) => crate::record::read(&self.file(), author, &settings.state),
        }
    }
}

/// Which of the runs that are kept is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRun {
    Any,
    Chat,
}

impl LastRun {
    fn includes(self, kind: RunKind) -> bool {
        self == Self::Any || is_chat(kind)
    }

    /// There is none yet, of this project or at all.
    fn missing(self, project: Option<&Path>) -> LaunchError {
        let whose = if project.is_some() { " of this project" } else { "" };
        match self {
            Self::Any => LaunchError::usage(format!("no run{whose} is kept")).hint(Remedy::BeginRun),
            Self::Chat => LaunchError::usage(format!("no chat{whose} is kept")).hint(Remedy::BeginChat),
        }
    }
}

fn no_store(reason: &str) -> LaunchError {
    LaunchError::usage(format!("no runs are kept: {reason}"))
}

fn not_found(error: &FindError) -> LaunchError {
    let failure = LaunchError::usage(error.to_string());
    match error {
        FindError::Ambiguous { candidates, .. } => {
            let shown: Vec<&str> = candidates.iter().take(12).map(RunId::as_str).collect();
            let more = candidates.len().saturating_sub(shown.len());
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            failure.hint(format!("type more of it: {}{more}", shown.join(", ")))
        }
        FindError::Unknown(_) | FindError::TooShort(_) => failure.hint(Remedy::ListRuns),
        FindError::Io(_) => failure,
    }
}

/// A run whose record is locked by this process.
pub struct OpenRun {
    journal: OpenJournal,
    pub header: RunHeader,
    place: RunPlace,
    author: Author,
}

impl OpenRun {
    /// Takes the lock and reads the record. A stranger's header is not believed before a person has agreed to it.
    pub fn open(place: RunPlace, author: Author, settings: &Settings) -> Result<Self, LaunchError> {
        let file = place.file();
        let written = match &place {
            RunPlace::Store(store, id) => {
                journal_settings(settings, store, id, settings.config.runs.durability(), KeepNeed::Wanted)
            }
            RunPlace::File(_) => {
                let (by, key) = (Some(settings.variables.user()), settings.state.key()?.cloned());
                JournalSettings { by, key, ..JournalSettings::default() }
            }
        };
        let journal = match author {
            Author::User => OpenJournal::open_with(&file, written),
            Author::Stranger => OpenJournal::open_foreign(&file, written),
        };
        let journal = journal.map_err(unusable)?;
        let mut header = RunHeader::of(journal.contents(), &file)?;
        if let RunPlace::Store(_, id) = &place {
            // Its directory is its name, whatever a stranger wrote.
            header.run = id.to_string();
        }
        Ok(Self { journal, header, place, author })
    }

    pub fn contents(&self) -> &JournalContents {
        self.journal.contents()
    }

    /// Whether a stranger wrote it, and it is written anew when it goes on.
    pub fn is_foreign(&self) -> bool {
        self.author == Author::Stranger
    }

    pub fn place(&self) -> &RunPlace {
        &self.place
    }

    /// The same, whose file is named as it is reached from the directory of the run: the run keeps tools away from it there.
    #[must_use]
    pub fn reached_from(mut self, directory: &WorkingDirectory) -> Self {
        if let RunPlace::File(file) = &self.place
            && let Ok(file) = directory.import(file)
        {
            self.place = RunPlace::File(file);
        }
        self
    }

    /// Whether it is a conversation: its finished turns are taken over, and one that was cut off can be finished.
    pub fn is_conversation(&self) -> bool {
        is_conversation(self.contents().identity.kind)
    }

    /// Goes on with it, with the project as these files have it: from here on its steps are written behind those that are
    /// there.
    pub fn resume(
        self,
        files: &Fingerprint,
        matching: Matching,
        durability: Option<Durability>,
        subject: RunSubject,
        settings: &Settings,
    ) -> Result<RunRecord, LaunchError> {
        let (restores, resumed) = (self.is_conversation(), PriorSpending::from(self.contents()));
        let inherited = inherited(self.contents());
        let prior = settings.telemetry().map(|_| TracePrior::from(self.contents()));
        let Self { journal, header, place, .. } = self;
        let (kind, label) = (journal.contents().identity.kind, journal.contents().identity.label.clone());
        let journal = journal.with_header(&header);
        let journal =
            if header.files == *files { journal } else { journal.with_note(&ResumptionNote { files: files.clone() }) };
        let journal = match durability {
            Some(durability) => journal.with_durability(durability),
            None => journal,
        };
        let engine = Arc::new(journal.resume(matching, None).map_err(unusable)?);
        let parent = header.trace.map(|WrittenSpan(parent)| parent);
        let traced = Box::new(TracedRecord { parent, prior, ..TracedRecord::begun(&engine) });
        let (file, run) = (Some(place.file()), header.run);
        let keeper = match place {
            RunPlace::Store(store, id) => {
                let keeper = RunKeeper::of_journal(settings, store, id, subject, Arc::clone(&engine), kind, label);
                Some(Arc::new(keeper.continued(&inherited)))
            }
            RunPlace::File(_) => {
                let keeper = RunKeeper::of_costs(settings, &run, subject);
                keeper.map(|keeper| keeper.continued(&inherited)).map(Arc::new)
            }
        };
        Ok(RunRecord { engine, resumed, run, file, keeper, restores, traced })
    }
}

/// The canonical root of the project in a directory, or at a path that can be run; `None` if there is none.
pub fn project_at(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    if path.is_file() {
        return path.parent().map(Path::to_owned);
    }
    let is_worker = |name: &str| [".worker", ".agent"].iter().any(|ending| name.ends_with(ending));
    let is_project = path.join(MANIFEST_NAME).is_file() || {
        let mut entries = std::fs::read_dir(&path).ok()?.flatten();
        entries.any(|entry| entry.file_name().to_str().is_some_and(is_worker))
    };
    is_project.then_some(path)
}

/// Whether runs of this kind have many turns.
pub fn is_conversation(kind: RunKind) -> bool {
    match kind {
        RunKind::Run | RunKind::Mcp | RunKind::Map => false,
        RunKind::Chat | RunKind::Acp | RunKind::Scope | RunKind::V1 | RunKind::Other => true,
    }
}

/// Whether a person talks with runs of this kind, here or in another program: any place where chats go on can go on with them.
pub fn is_chat(kind: RunKind) -> bool {
    match kind {
        RunKind::Chat | RunKind::Acp => true,
        RunKind::Run | RunKind::Mcp | RunKind::Map | RunKind::Scope | RunKind::V1 | RunKind::Other => false,
    }
}
