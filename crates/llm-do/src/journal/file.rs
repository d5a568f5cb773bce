//! A run in a file: every step's intent before, its result after, durable on disk before it counts.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;

use super::digest::digest;
use super::record::{self, Contents, Damage, Known, Line, OPENING, Record, RunLine, State, VERSION};
use super::writer::{Acknowledgement, Writer};
use super::{Journal, Step, StepKind, Stop};
use crate::BoxFuture;
use crate::message::RawJson;

/// Why a file cannot be a run's journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal {} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The file, or the directory of a new one.
    #[error("the journal {} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} is not a journal", .0.display())]
    NotAJournal(PathBuf),
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    #[error("the journal {} is in use by another process", .0.display())]
    InUse(PathBuf),
    #[error("the journal {} has version {version}, and this program reads version {VERSION}", .path.display())]
    Version { path: PathBuf, version: u64 },
    #[error("the journal {} is damaged at line {line}: {reason}", .path.display())]
    Damaged { path: PathBuf, line: usize, reason: String },
    #[error("the journal {}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Whether a recorded model request of other words still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    Exact,
    /// The project has changed and the user goes on: what a model was told may differ from what it would be told now.
    /// What tools did and people agreed to must not.
    ForgiveModels,
}

/// The engine over a file, or over what one said.
pub struct FileJournal {
    state: Mutex<Progress>,
    mode: Mode,
    matching: Matching,
    /// Who runs this.
    by: Option<String>,
}

enum Mode {
    Writes(Writer),
    /// Nothing is run and nothing is written.
    Replays,
}

struct Progress {
    /// What earlier processes recorded and this one has not used.
    records: HashMap<String, Record>,
    /// Steps of this process.
    taken: HashSet<String>,
    /// The journal cannot be written: nothing may run after that.
    failure: Option<Stop>,
}

/// A journal that was opened to go on with it: nobody else can meanwhile.
pub struct OpenJournal {
    path: PathBuf,
    file: File,
    contents: Contents,
    /// How much of the file counts.
    committed: u64,
}

impl OpenJournal {
    /// Takes the lock and reads everything. The file stays as it is until [`OpenJournal::resume`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let file = open_regular(path, OpenOptions::new().read(true).append(true))?;
        lock(&file, path)?;
        let bytes = all_of(&file, path)?;
        let committed = record::committed(&bytes);
        let contents = contents(&bytes[..committed], path)?;
        Ok(Self { path: path.to_owned(), file, contents, committed: committed as u64 })
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Goes on: a torn last line is dropped, since nothing that it tells of was acknowledged.
    pub fn resume(self, matching: Matching, by: Option<String>) -> Result<FileJournal, JournalError> {
        let Self { path, file, contents, committed } = self;
        let failed = |error| JournalError::Io { path: path.clone(), error };
        file.set_len(committed).map_err(failed)?;
        append_run_line(&file, &RunLine::resumed(now(), by.clone())).map_err(failed)?;
        let mode = Mode::Writes(Writer::start(file).map_err(failed)?);
        Ok(FileJournal::of(contents.into_unsettled(), mode, matching, by))
    }
}

impl FileJournal {
    /// A new journal: the file does not exist or is empty. `header` says what resuming needs to know.
    pub fn create(path: &Path, header: &impl Serialize, by: Option<String>) -> Result<Self, JournalError> {
        let failed = |error| JournalError::Io { path: path.to_owned(), error };
        let file = open_regular(path, OpenOptions::new().read(true).append(true).create(true).mode(0o600))?;
        lock(&file, path)?;
        let bytes = all_of(&file, path)?;
        // A header that was never finished is as good as none.
        let is_unfinished = !bytes.contains(&b'\n') && bytes.starts_with(OPENING.as_bytes());
        if !bytes.is_empty() && !is_unfinished {
            return Err(JournalError::NotEmpty(path.to_owned()));
        }
        file.set_len(0).map_err(failed)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        append_run_line(&file, &RunLine::header(RawJson::of(header), now(), by.clone())).map_err(failed)?;
        sync_directory_of(path);
        let mode = Mode::Writes(Writer::start(file).map_err(failed)?);
        Ok(Self::of(HashMap::new(), mode, Matching::Exact, by))
    }

    /// Answers every step from what a journal says: a step that it does not have is an error.
    pub fn replaying(contents: Contents) -> Self {
        Self::of(contents.into_all(), Mode::Replays, Matching::Exact, None)
    }

    fn of(records: HashMap<String, Record>, mode: Mode, matching: Matching, by: Option<String>) -> Self {
        let state = Progress { records, taken: HashSet::new(), failure: None };
        Self { state: Mutex::new(state), mode, matching, by }
    }

    // Its maps stay right whatever panicked elsewhere.
    fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the record says of a step. It is asked for once: a key that is used twice is a bug.
    fn find(&self, step: &Step, request: &str) -> Result<Option<Known>, Stop> {
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        assert!(state.taken.insert(step.key.clone()), "the key `{}` is used by two steps", step.key);
        let Some(record) = state.records.remove(&step.key) else { return Ok(None) };
        let forgiven = self.matching == Matching::ForgiveModels && step.kind == StepKind::Model;
        if record.kind != step.kind || (record.request != request && !forgiven) {
            return Err(Stop::Diverged { key: step.key.clone(), kind: step.kind });
        }
        Ok(Some(record.known))
    }

    async fn replayed(
        &self,
        step: Step,
        known: Option<Known>,
        effect: BoxFuture<'_, Result<RawJson, Stop>>,
    ) -> Result<RawJson, Stop> {
        match (step.kind, known) {
            // Its own steps are what is compared.
            (StepKind::Call, _) => effect.await,
            (
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide,
                Some(Known::Done(result)),
            ) => Ok(result),
            (
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide,
                None | Some(Known::Started(_) | Known::Asked(_)),
            ) => Err(Stop::Unrecorded { key: step.key, kind: step.kind }),
        }
    }

    async fn taken(
        &self,
        writer: &Writer,
        step: Step,
        request: String,
        known: Option<Known>,
        effect: BoxFuture<'_, Result<RawJson, Stop>>,
    ) -> Result<RawJson, Stop> {
        let lines = Lines { journal: self, writer, key: &step.key, kind: step.kind, request };
        match (known, &step.interrupted) {
            (Some(Known::Done(result)), _) => return Ok(result),
            (Some(Known::Started(_)), Some(interrupted)) => return lines.done(interrupted.clone()).await,
            (Some(Known::Asked(shown)), _) if shown == step.shown => {
                let answer = effect.await?;
                return lines.done(answer).await;
            }
            (None | Some(Known::Started(_) | Known::Asked(_)), _) => {}
        }
        if step.interrupted.is_some() {
            lines.append(State::Started, step.shown).durable_or(self).await?;
            let mut begun = Begun { lines: &lines, was_polled: false };
            let result = begun.polling(effect).await?;
            return lines.done(result).await;
        }
        if step.kind == StepKind::Ask {
            let asked = lines.append(State::Asked, step.shown);
            let answer = effect.await;
            return match answer {
                Ok(answer) => lines.done(answer).await,
                // Whoever answers later must find the question.
                Err(stop) => asked.durable_or(self).await.and(Err(stop)),
            };
        }
        let result = effect.await?;
        lines.done(result).await
    }
}

impl Journal for FileJournal {
    fn step<'a>(
        &'a self,
        step: Step,
        effect: BoxFuture<'a, Result<RawJson, Stop>>,
    ) -> BoxFuture<'a, Result<RawJson, Stop>> {
        Box::pin(async move {
            let request = digest([step.request.get()]);
            let known = self.find(&step, &request)?;
            match &self.mode {
                Mode::Replays => self.replayed(step, known, effect).await,
                Mode::Writes(writer) => self.taken(writer, step, request, known, effect).await,
            }
        })
    }
}

/// The lines of one step.
struct Lines<'a> {
    journal: &'a FileJournal,
    writer: &'a Writer,
    key: &'a str,
    kind: StepKind,
    request: String,
}

impl Lines<'_> {
    fn append(&self, state: State, res: Option<RawJson>) -> Acknowledgement {
        let by = self.journal.by.clone().filter(|_| self.kind == StepKind::Ask && state == State::Done);
        let (k, req) = (self.key.to_owned(), self.request.clone());
        self.writer.append(line_of(&Line { k, kind: self.kind, state, req, res, at: now(), by }))
    }

    async fn done(&self, result: RawJson) -> Result<RawJson, Stop> {
        let written = self.append(State::Done, Some(result.clone()));
        // Lines are written in order, so that what is built on a decision is never there without it.
        if self.kind != StepKind::Decide {
            written.durable_or(self.journal).await?;
        }
        Ok(result)
    }
}

impl Acknowledgement {
    async fn durable_or(self, journal: &FileJournal) -> Result<(), Stop> {
        self.durable().await.inspect_err(|failure| journal.state().failure = Some(failure.clone()))
    }
}

/// An effect whose start is recorded. Dropped before it began, that is recorded too: nobody has to wonder about it.
struct Begun<'a> {
    lines: &'a Lines<'a>,
    was_polled: bool,
}

impl Begun<'_> {
    async fn polling<T>(&mut self, effect: BoxFuture<'_, T>) -> T {
        self.was_polled = true;
        effect.await
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.was_polled {
            drop(self.lines.append(State::Undone, None));
        }
    }
}

/// What a journal says, without going on with it; another process may be writing it.
pub fn read(path: &Path) -> Result<Contents, JournalError> {
    let file = open_regular(path, OpenOptions::new().read(true))?;
    let bytes = all_of(&file, path)?;
    contents(&bytes[..record::committed(&bytes)], path)
}

fn contents(lines: &[u8], path: &Path) -> Result<Contents, JournalError> {
    let path = path.to_owned();
    Contents::read(lines).map_err(|damage| match damage {
        Damage::NotAJournal => JournalError::NotAJournal(path),
        Damage::Version(version) => JournalError::Version { path, version },
        Damage::Line { number, reason } => JournalError::Damaged { path, line: number, reason },
    })
}

/// Never through a symbolic link, never a device or a FIFO.
fn open_regular(path: &Path, options: &mut OpenOptions) -> Result<File, JournalError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => JournalError::Missing(path.to_owned()),
        _ => match Errno::from_io_error(&error) {
            Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => JournalError::NotRegular(path.to_owned()),
            _ => JournalError::Io { path: path.to_owned(), error },
        },
    };
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = options.custom_flags(flags).open(path).map_err(failed)?;
    let is_regular = file.metadata().map_err(failed)?.is_file();
    if is_regular { Ok(file) } else { Err(JournalError::NotRegular(path.to_owned())) }
}

/// Two processes that go on with one run would do everything twice.
fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => JournalError::InUse(path.to_owned()),
        std::fs::TryLockError::Error(error) => JournalError::Io { path: path.to_owned(), error },
    })
}

fn all_of(mut file: &File, path: &Path) -> Result<Vec<u8>, JournalError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| JournalError::Io { path: path.to_owned(), error })?;
    Ok(bytes)
}

fn append_run_line(mut file: &File, line: &RunLine) -> io::Result<()> {
    file.write_all(line_of(line).as_bytes())?;
    file.sync_data()
}

/// A file that nobody finds after a power cut is no journal. Some file systems cannot do it, and need not.
fn sync_directory_of(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}

fn line_of(line: &impl Serialize) -> String {
    format!("{}\n", RawJson::of(line).in_one_line().get())
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
