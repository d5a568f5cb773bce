//! A run in a file: every step's intent before, its result after, durable on disk before it counts.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;

use super::digest::digest;
use super::mac::{LineMac, StateKey};
use super::record::{
    self, Damage, JournalContents, JournalEntry, JournalLine, LineState, NumberedLine, OPENING, RunLine, StepProgress,
    VERSION,
};
use super::writer::{Acknowledgement, Signer, Writer};
use super::{Journal, Prior, Step, StepKind, Stop};
use crate::BoxFuture;
use crate::beneath::Beside;
use crate::message::RawJson;

/// Why a file cannot be a run's journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A new run needs a file without content.
    #[error("the journal {} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The file, or the directory of a new one.
    #[error("the journal {} does not exist", .0.display())]
    Missing(PathBuf),
    /// The file holds something else.
    #[error("{} is not a journal", .0.display())]
    NotAJournal(PathBuf),
    /// It is a directory, a pipe or a device.
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// Another process has locked it.
    #[error("the journal {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// Another version of this program wrote it.
    #[error("the journal {} has version {version}, and this program reads version {VERSION}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that wrote it.
        version: u64,
    },
    /// It was written by another program, on another machine, or changed since; counted from 1.
    #[error("{} was not written by you on this machine (line {line})", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1.
        line: usize,
    },
    /// A line cannot be read.
    #[error("the journal {} is damaged at line {line}: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1.
        line: usize,
        /// Why.
        reason: String,
    },
    /// The system refused to read or write it.
    #[error("the journal {}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
}

/// Whether a recorded model request of other words still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// No: the run stops where a request differs.
    Exact,
    /// The project has changed and the user goes on: what a model was told may differ from what it would be told now.
    /// What tools did and people agreed to must not.
    ForgiveModels,
}

/// The engine over a file, or over what one said.
pub struct FileJournal {
    state: Mutex<JournalProgress>,
    mode: Mode,
    matching: Matching,
    /// Who runs this.
    by: Option<String>,
}

enum Mode {
    Writes {
        writer: Writer,
        /// A stranger's file whose place ours has taken: still locked for whoever has it open.
        _replaced: Option<File>,
    },
    /// Nothing is run and nothing is written.
    Replays,
}

struct JournalProgress {
    /// What earlier processes recorded and this one has not used.
    records: HashMap<String, JournalEntry>,
    /// Steps of this process.
    taken: HashSet<String>,
    /// The journal cannot be written: nothing may run after that.
    failure: Option<Stop>,
}

/// A journal that was opened to go on with it: nobody else can meanwhile.
pub struct OpenJournal {
    path: PathBuf,
    file: File,
    contents: JournalContents,
    key: Option<StateKey>,
    origin: JournalOrigin,
}

/// Who wrote a journal.
enum JournalOrigin {
    /// We did: how much of the file counts, and how its last line is signed.
    Own { committed: u64, last: LineMac },
    /// A stranger did: what is kept of it.
    Stranger { header: RunLine, lines: Vec<NumberedLine> },
}

impl OpenJournal {
    /// Takes the lock and reads everything that was written with the key. The file stays as it is until
    /// [`OpenJournal::resume`].
    pub fn open(path: &Path, key: Option<&StateKey>) -> Result<Self, JournalError> {
        let (file, bytes) = locked(path)?;
        let committed = record::committed(&bytes);
        let read = JournalContents::read(&bytes[..committed], key);
        let (contents, last) = read.map_err(|damage| damaged(damage, path))?;
        let origin = JournalOrigin::Own { committed: committed as u64, last };
        Ok(Self { path: path.to_owned(), file, contents, key: key.cloned(), origin })
    }

    /// The same of a stranger's file. Going on with it writes what is kept of it anew, signed with the key: whoever does
    /// that has asked a person before.
    pub fn open_foreign(path: &Path, key: Option<&StateKey>) -> Result<Self, JournalError> {
        let (file, bytes) = locked(path)?;
        let lines = record::strangers_lines(&bytes[..record::committed(&bytes)]);
        let (header, lines) = lines.map_err(|damage| damaged(damage, path))?;
        let contents = JournalContents::of(header.clone(), lines.clone()).map_err(|damage| damaged(damage, path))?;
        let origin = JournalOrigin::Stranger { header, lines };
        Ok(Self { path: path.to_owned(), file, contents, key: key.cloned(), origin })
    }

    /// What the journal says, as it was read when it was opened.
    pub fn contents(&self) -> &JournalContents {
        &self.contents
    }

    /// What a stranger's header says, as it was understood: this is written anew.
    #[must_use]
    pub fn with_header(mut self, header: &impl Serialize) -> Self {
        if let JournalOrigin::Stranger { header: line, .. } = &mut self.origin {
            line.res = Some(RawJson::of(header));
        }
        self
    }

    /// Goes on: a torn last line is dropped, since nothing that it tells of was acknowledged.
    pub fn resume(self, matching: Matching, by: Option<String>) -> Result<FileJournal, JournalError> {
        let Self { path, file, contents, key, origin } = self;
        let failed = |error| JournalError::Io { path: path.clone(), error };
        let (file, signer, replaced, contents) = match origin {
            JournalOrigin::Own { committed, last } => {
                file.set_len(committed).map_err(failed)?;
                let mut signer = Signer::after(last, key);
                append(&file, &mut signer, [line_of(&RunLine::resumed(now(), by.clone()))]).map_err(failed)?;
                (file, signer, None, contents)
            }
            JournalOrigin::Stranger { header, lines } => {
                let header = RunLine { v: Some(VERSION), ..header };
                let adopted = RunLine::adopted(now(), by.clone());
                // A question that a stranger wrote down is not signed: it is asked anew.
                let kept = lines.iter().filter(|(_, line)| line.kind != StepKind::Ask);
                let lines = [line_of(&header)].into_iter().chain(kept.map(|(_, line)| line_of(line)));
                let (own, signer) = written_anew(&path, lines.chain([line_of(&adopted)]), key).map_err(failed)?;
                (own, signer, Some(file), contents.without_questions())
            }
        };
        let mode = Mode::Writes { writer: Writer::start(file, signer).map_err(failed)?, _replaced: replaced };
        Ok(FileJournal::of(contents.into_unsettled(), mode, matching, by))
    }
}

/// A file in the place of another, with these lines, signed and locked. Either all of it is there or nothing changed.
fn written_anew(path: &Path, lines: impl Iterator<Item = String>, key: Option<StateKey>) -> io::Result<(File, Signer)> {
    let beside = Beside::of_path(path, 0o600)?;
    // Nobody else knows the name.
    beside.file().try_lock().map_err(io::Error::from)?;
    let mut signer = Signer::after(LineMac::default(), key);
    append(beside.file(), &mut signer, lines)?;
    let file = beside.replace()?;
    sync_directory_of(path);
    Ok((file, signer))
}

impl FileJournal {
    /// A new journal: the file does not exist or is empty. `header` says what resuming needs to know. Without a key it
    /// counts as a stranger's later.
    pub fn create(
        path: impl AsRef<Path>,
        header: &impl Serialize,
        key: Option<&StateKey>,
    ) -> Result<Self, JournalError> {
        Self::create_by(path.as_ref(), header, None, key)
    }

    /// The same, with the name of the user who starts the run.
    pub fn create_by(
        path: &Path,
        header: &impl Serialize,
        by: Option<String>,
        key: Option<&StateKey>,
    ) -> Result<Self, JournalError> {
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
        let mut signer = Signer::after(LineMac::default(), key.cloned());
        let header = RunLine::header(RawJson::of(header), now(), by.clone());
        append(&file, &mut signer, [line_of(&header)]).map_err(failed)?;
        sync_directory_of(path);
        let mode = Mode::Writes { writer: Writer::start(file, signer).map_err(failed)?, _replaced: None };
        Ok(Self::of(HashMap::new(), mode, Matching::Exact, by))
    }

    /// Answers every step from what a journal says: a step that it does not have is an error.
    pub fn replaying(contents: JournalContents) -> Self {
        Self::of(contents.into_all(), Mode::Replays, Matching::Exact, None)
    }

    fn of(records: HashMap<String, JournalEntry>, mode: Mode, matching: Matching, by: Option<String>) -> Self {
        let state = JournalProgress { records, taken: HashSet::new(), failure: None };
        Self { state: Mutex::new(state), mode, matching, by }
    }

    // Its maps stay right whatever panicked elsewhere.
    fn state(&self) -> MutexGuard<'_, JournalProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the record says of a step. It is asked for once: a key that is used twice is a bug.
    fn find(&self, step: &Step, request: &str) -> Result<Option<StepProgress>, Stop> {
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        assert!(state.taken.insert(step.key.clone()), "the key `{}` is used by two steps", step.key);
        let Some(record) = state.records.remove(&step.key) else { return Ok(None) };
        if step.kind == StepKind::Ask && record.kind == StepKind::Ask && record.request != request {
            // Another question: an answer to that one is none to this.
            return Ok(None);
        }
        let forgiven = self.matching == Matching::ForgiveModels && step.kind == StepKind::Model;
        if record.kind != step.kind || (record.request != request && !forgiven) {
            return Err(Stop::Diverged { key: step.key.clone(), kind: step.kind });
        }
        Ok(Some(record.known))
    }

    async fn replayed(
        &self,
        step: Step,
        known: Option<StepProgress>,
        effect: BoxFuture<'_, Result<RawJson, Stop>>,
    ) -> Result<RawJson, Stop> {
        match (step.kind, known) {
            // Its own steps are what is compared.
            (StepKind::Call, _) => effect.await,
            (
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide,
                Some(StepProgress::Done(result)),
            ) => Ok(result),
            (
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide,
                None | Some(StepProgress::Started(_) | StepProgress::Asked(_)),
            ) => Err(Stop::Unrecorded { key: step.key, kind: step.kind }),
        }
    }

    async fn taken(
        &self,
        writer: &Writer,
        step: Step,
        request: String,
        known: Option<StepProgress>,
        effect: BoxFuture<'_, Result<RawJson, Stop>>,
    ) -> Result<RawJson, Stop> {
        let lines = StepLines { journal: self, writer, key: &step.key, kind: step.kind, request };
        match (known, &step.interrupted) {
            (Some(StepProgress::Done(result)), _) => return Ok(result),
            (Some(StepProgress::Started(_)), Some(interrupted)) => return lines.done(interrupted.clone()).await,
            (Some(StepProgress::Asked(shown)), _) if shown == step.shown => {
                let answer = effect.await?;
                return lines.done(answer).await;
            }
            (None | Some(StepProgress::Started(_) | StepProgress::Asked(_)), _) => {}
        }
        if step.interrupted.is_some() {
            lines.append(LineState::Started, step.shown).durable_or(self).await?;
            let mut begun = StartedEffect { lines: &lines, was_polled: false };
            let result = begun.polling(effect).await?;
            return lines.done(result).await;
        }
        if step.kind == StepKind::Ask {
            let asked = lines.append(LineState::Asked, step.shown);
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
                Mode::Writes { writer, .. } => self.taken(writer, step, request, known, effect).await,
            }
        })
    }

    fn lost(&self, key: &str, kind: StepKind, told: RawJson) {
        if let Mode::Writes { writer, .. } = &self.mode {
            let lines = StepLines { journal: self, writer, key, kind, request: String::new() };
            drop(lines.append(LineState::Lost, Some(told)));
        }
    }

    fn prior(&self, key: &str, kind: StepKind, request: &RawJson) -> Prior {
        let state = self.state();
        let record = state.records.get(key);
        if let Mode::Replays = self.mode {
            return Prior::Replayed(record.and_then(|record| match &record.known {
                StepProgress::Done(result) => Some(result.clone()),
                StepProgress::Started(_) | StepProgress::Asked(_) => None,
            }));
        }
        let Some(record) = record else { return Prior::Nothing };
        let is_same = || record.request == digest([request.get()]);
        match &record.known {
            StepProgress::Asked(_) => Prior::Nothing,
            StepProgress::Started(_) => Prior::Begun,
            StepProgress::Done(_) if kind == StepKind::Ask && !is_same() => Prior::Nothing,
            StepProgress::Done(_) => Prior::Done,
        }
    }
}

/// The lines of one step.
struct StepLines<'a> {
    journal: &'a FileJournal,
    writer: &'a Writer,
    key: &'a str,
    kind: StepKind,
    request: String,
}

impl StepLines<'_> {
    fn append(&self, state: LineState, res: Option<RawJson>) -> Acknowledgement {
        let by = self.journal.by.clone().filter(|_| self.kind == StepKind::Ask && state == LineState::Done);
        let (k, req) = (self.key.to_owned(), self.request.clone());
        self.writer.append(line_of(&JournalLine { k, kind: self.kind, state, req, res, at: now(), by }))
    }

    async fn done(&self, result: RawJson) -> Result<RawJson, Stop> {
        let written = self.append(LineState::Done, Some(result.clone()));
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
struct StartedEffect<'a> {
    lines: &'a StepLines<'a>,
    was_polled: bool,
}

impl StartedEffect<'_> {
    async fn polling<T>(&mut self, effect: BoxFuture<'_, T>) -> T {
        self.was_polled = true;
        effect.await
    }
}

impl Drop for StartedEffect<'_> {
    fn drop(&mut self) {
        if !self.was_polled {
            drop(self.lines.append(LineState::Undone, None));
        }
    }
}

/// What a journal that was written with the key says, without going on with it; another process may be writing it.
pub fn read(path: &Path, key: Option<&StateKey>) -> Result<JournalContents, JournalError> {
    let bytes = all_of(&open_regular(path, OpenOptions::new().read(true))?, path)?;
    let read = JournalContents::read(&bytes[..record::committed(&bytes)], key);
    read.map(|(contents, _)| contents).map_err(|damage| damaged(damage, path))
}

/// What a stranger's journal says, without what people answered there.
pub fn read_foreign(path: &Path) -> Result<JournalContents, JournalError> {
    let bytes = all_of(&open_regular(path, OpenOptions::new().read(true))?, path)?;
    let lines = record::strangers_lines(&bytes[..record::committed(&bytes)]);
    let contents = lines.and_then(|(header, lines)| JournalContents::of(header, lines));
    contents.map_err(|damage| damaged(damage, path))
}

fn damaged(damage: Damage, path: &Path) -> JournalError {
    let path = path.to_owned();
    match damage {
        Damage::NotAJournal => JournalError::NotAJournal(path),
        Damage::Foreign(line) => JournalError::Foreign { path, line },
        Damage::Version(version) => JournalError::Version { path, version },
        Damage::Line { number, reason } => JournalError::Damaged { path, line: number, reason },
    }
}

fn locked(path: &Path) -> Result<(File, Vec<u8>), JournalError> {
    let file = open_regular(path, OpenOptions::new().read(true).append(true))?;
    lock(&file, path)?;
    let bytes = all_of(&file, path)?;
    Ok((file, bytes))
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

/// Two processes that go on with one run would do everything twice. One that has just ended may have been about to start
/// another program, which holds the lock until it is that program.
fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(5);
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(JournalError::Io { path: path.to_owned(), error }),
        }
    }
}

fn all_of(mut file: &File, path: &Path) -> Result<Vec<u8>, JournalError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| JournalError::Io { path: path.to_owned(), error })?;
    Ok(bytes)
}

/// Lines from before the writer's time.
fn append(mut file: &File, signer: &mut Signer, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
    let mut signed = String::new();
    for line in lines {
        signer.append(line, &mut signed);
    }
    file.write_all(signed.as_bytes())?;
    file.sync_data()
}

/// A file that nobody finds after a power cut is no journal. Some file systems cannot do it, and need not.
fn sync_directory_of(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}

fn line_of(line: &impl Serialize) -> String {
    RawJson::of(line).in_one_line().get().to_owned()
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
