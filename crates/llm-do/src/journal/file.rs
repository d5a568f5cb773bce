//! A run in a file: every step's intent before, its result after, durable on disk before it counts.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;

use super::blobs::{Blobs, LARGEST_INLINE};
use super::digest::{of_bytes, short_digest};
use super::mac::{LineMac, StateKey};
use super::parts::RequestParts;
use super::record::{
    self, Damage, EndState, JournalContents, JournalEntry, JournalLine, LineState, LineText, OPENING, ParsedLines,
    RunEnd, RunIdentity, RunLine, StepProgress, VERSION,
};
use super::replica::Replica;
use super::writer::{Acknowledgement, NamedValue, Signer, Writer, WriterTarget};
use super::{Journal, Prior, RecordedSteps, Step, StepAnswer, StepKind, StepParts, Stop};
use crate::BoxFuture;
use crate::beneath::Beside;
use crate::message::RawJson;

/// Why a file cannot be a run's journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A new run needs a file without content.
    #[error("the journal {} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A new run needs a file without content, and this one holds something else than a run.
    #[error("{} is not a journal; choose a new name", .0.display())]
    OtherContent(PathBuf),
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

/// When a line counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is written: it survives the end of the process, however that comes, but not that of the machine. A run that
    /// is suspended at a question is on the disk all the same.
    Written,
    /// When it is on the disk.
    #[default]
    Synced,
}

/// What becomes of a run whose journal cannot be written any more, such as on a full disk.
#[derive(Clone, Default)]
pub enum WriteFailure {
    /// Nothing may run that is not recorded: it ends.
    #[default]
    EndsRun,
    /// It goes on, and nothing more of it is recorded. The reason is told once.
    Told(Arc<dyn Fn(&str) + Send + Sync>),
}

impl fmt::Debug for WriteFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::EndsRun => "EndsRun",
            Self::Told(_) => "Told",
        })
    }
}

/// How a journal is written and read.
#[derive(Clone, Debug, Default)]
pub struct JournalSettings {
    /// Who runs this.
    pub by: Option<String>,
    /// Who signs. Without a key it counts as a stranger's later.
    pub key: Option<StateKey>,
    /// When a line counts.
    pub durability: Durability,
    /// Where values are kept that are too large for a line; without it they are written into the file all the same.
    pub blobs: Option<Blobs>,
    /// Where what requests are made of is written down, if many journals share that: once for all.
    pub parts_in: Option<SharedParts>,
    /// What becomes of the run if it cannot be written any more. Where lines must be on the disk or in a second place, it ends:
    /// somebody else may go on with the run from there.
    pub failure: WriteFailure,
    /// A second place of its lines: none counts before it is there too.
    pub replica: Option<Arc<dyn Replica>>,
}

/// The journal in which what the requests of others are made of is written down.
#[derive(Clone)]
pub struct SharedParts(pub Arc<FileJournal>);

impl fmt::Debug for SharedParts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedParts")
    }
}

impl JournalSettings {
    fn target(&self, file: File) -> WriterTarget {
        let Self { durability, blobs, replica, .. } = self;
        WriterTarget { file, durability: *durability, blobs: blobs.clone(), replica: replica.clone() }
    }
}

/// What a journal begins with.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// What the run is.
    pub identity: RunIdentity,
    /// What resuming needs to know.
    pub header: RawJson,
    /// Records that are taken over from another run.
    pub copied: Vec<JournalLine>,
    /// What the requests among them were made of.
    pub parts: BTreeMap<String, RawJson>,
}

impl NewRun {
    /// A run that begins with nothing but its header.
    pub fn of(identity: RunIdentity, header: &impl Serialize) -> Self {
        Self { identity, header: RawJson::of(header), copied: Vec::new(), parts: BTreeMap::new() }
    }
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
    settings: JournalSettings,
    /// Whoever knows before a step is run that the turn is being ended.
    is_ending: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
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
    /// What earlier processes recorded.
    records: BTreeMap<String, JournalEntry>,
    /// Steps of this process.
    taken: HashSet<String>,
    /// The names of the parts that are written already.
    parts: HashSet<String>,
    /// How many turns of the entry were finished.
    turns: u64,
    /// The journal cannot be written: nothing may run after that, unless the run goes on unrecorded.
    failure: Option<Stop>,
}

/// A journal that was opened to go on with it: nobody else can meanwhile.
pub struct OpenJournal {
    path: PathBuf,
    file: File,
    contents: JournalContents,
    settings: JournalSettings,
    origin: JournalOrigin,
    note: Option<RawJson>,
}

/// Who wrote a journal.
enum JournalOrigin {
    /// We did: how much of the file counts, and how its last line is signed.
    Own { committed: u64, last: LineMac },
    /// A stranger did: what is kept of it.
    Stranger(Box<ParsedLines>),
}

impl OpenJournal {
    /// Takes the lock and reads everything that was written with the key. The file stays as it is until
    /// [`OpenJournal::resume`]. All values are in the file, and what is written is synced.
    pub fn open(path: &Path, key: Option<&StateKey>) -> Result<Self, JournalError> {
        Self::open_with(path, JournalSettings { key: key.cloned(), ..JournalSettings::default() })
    }

    /// The same with other settings.
    pub fn open_with(path: &Path, settings: JournalSettings) -> Result<Self, JournalError> {
        let (file, bytes) = locked(path)?;
        let committed = record::committed(&bytes);
        let values = |digest: &str| value_in(settings.blobs.as_ref(), digest);
        let read = JournalContents::read_with(&bytes[..committed], settings.key.as_ref(), &values);
        let (contents, last) = read.map_err(|damage| damaged(damage, path))?;
        let origin = JournalOrigin::Own { committed: committed as u64, last };
        Ok(Self { path: path.to_owned(), file, contents, settings, origin, note: None })
    }

    /// The same of a stranger's file. Going on with it writes what is kept of it anew, signed with the key: whoever does
    /// that has asked a person before.
    pub fn open_foreign(path: &Path, settings: JournalSettings) -> Result<Self, JournalError> {
        let (file, bytes) = locked(path)?;
        let values = |digest: &str| value_in(settings.blobs.as_ref(), digest);
        let lines = record::strangers_lines(&bytes[..record::committed(&bytes)], &values);
        let lines = lines.map_err(|damage| damaged(damage, path))?;
        let contents = JournalContents::of(lines.clone()).map_err(|damage| damaged(damage, path))?;
        let origin = JournalOrigin::Stranger(Box::new(lines));
        Ok(Self { path: path.to_owned(), file, contents, settings, origin, note: None })
    }

    /// What the journal says, as it was read when it was opened.
    pub fn contents(&self) -> &JournalContents {
        &self.contents
    }

    /// What a stranger's header says, as it was understood: this is written anew.
    #[must_use]
    #[cfg(feature = "front-end")]
    pub fn with_header(mut self, header: &impl Serialize) -> Self {
        if let JournalOrigin::Stranger(lines) = &mut self.origin {
            lines.header.res = Some(RawJson::of(header));
        }
        self
    }

    /// What is different from here on, for those who resume it later: [`JournalContents::note_before_turn`].
    #[must_use]
    pub fn with_note(mut self, note: &impl Serialize) -> Self {
        self.note = Some(RawJson::of(note));
        self
    }

    /// The same, whose lines count when this says so.
    #[must_use]
    #[cfg(feature = "front-end")]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// Says how the run is left, without going on with it. Of a stranger's journal nothing is said.
    #[cfg(feature = "front-end")]
    pub(crate) fn leave(self, state: EndState, reason: &str) -> Result<(), JournalError> {
        let Self { path, file, settings, origin, .. } = self;
        let JournalOrigin::Own { committed, last } = origin else { return Ok(()) };
        let failed = |error| JournalError::Io { path: path.clone(), error };
        file.set_len(committed).map_err(failed)?;
        let line = RunLine::ended(&RunEnd::new(state, reason), now(), settings.by);
        append(&file, &mut Signer::after(last, settings.key), [line_of(&line)]).map(drop).map_err(failed)
    }

    /// Goes on: a torn last line is dropped, since nothing that it tells of was acknowledged.
    pub fn resume(self, matching: Matching, by: Option<String>) -> Result<FileJournal, JournalError> {
        let Self { path, file, contents, settings, origin, note } = self;
        let settings = JournalSettings { by: by.or(settings.by), ..settings };
        let failed = |error| JournalError::Io { path: path.clone(), error };
        let (file, signer, replaced, contents, begun) = match origin {
            JournalOrigin::Own { committed, last } => {
                file.set_len(committed).map_err(failed)?;
                let mut signer = Signer::after(last, settings.key.clone());
                let mut line = RunLine::resumed(note, now(), settings.by.clone());
                keep_outside(&mut line.res, &mut line.blob, &settings).map_err(failed)?;
                // With a replica the file is only as good as that is.
                let durability = if settings.replica.is_some() { settings.durability } else { Durability::Synced };
                let begun = write_lines(&file, &mut signer, [line_of(&line)], durability).map_err(failed)?;
                (file, signer, None, contents, begun)
            }
            JournalOrigin::Stranger(lines) => {
                let lines = anew(*lines, note, &settings).map_err(failed)?;
                let (own, signer, begun) = written_anew(&path, lines, settings.key.clone()).map_err(failed)?;
                (own, signer, Some(file), contents.without_questions(), begun)
            }
        };
        let writer = Writer::start(settings.target(file), signer, begun).map_err(failed)?;
        let mode = Mode::Writes { writer, _replaced: replaced };
        Ok(FileJournal::of(contents, mode, matching, settings))
    }
}

/// What is kept of a stranger's file, as lines of ours.
fn anew(lines: ParsedLines, note: Option<RawJson>, settings: &JournalSettings) -> io::Result<Vec<Vec<u8>>> {
    // The header says already what earlier notes said.
    let ParsedLines { header, parts, steps, notes: _, delivered: _, ended: _, is_of_others: _ } = lines;
    let header = RunLine { v: Some(VERSION), ..header };
    // A question that a stranger wrote down is not signed: it is asked anew.
    let steps = steps.into_iter().map(|(_, line)| line).filter(|line| line.kind != StepKind::Ask).collect();
    let mut lines = beginning(header, parts, steps, settings)?;
    let mut adopted = RunLine::adopted(note, now(), settings.by.clone());
    keep_outside(&mut adopted.res, &mut adopted.blob, settings)?;
    lines.push(line_of(&adopted));
    Ok(lines)
}

/// The lines that a journal begins with. Values that are too large for them are kept before.
fn beginning(
    mut header: RunLine,
    parts: BTreeMap<String, RawJson>,
    steps: Vec<JournalLine>,
    settings: &JournalSettings,
) -> io::Result<Vec<Vec<u8>>> {
    keep_outside(&mut header.res, &mut header.blob, settings)?;
    let mut lines = vec![line_of(&header)];
    for (name, part) in parts {
        let mut line = RunLine::part(&name, part, now());
        keep_outside(&mut line.res, &mut line.blob, settings)?;
        lines.push(line_of(&line));
    }
    for mut line in steps {
        keep_outside(&mut line.res, &mut line.blob, settings)?;
        lines.push(step_line_of(&line.text()));
    }
    Ok(lines)
}

/// Keeps a value that is too large for its line, which then names it.
fn keep_outside(res: &mut Option<RawJson>, blob: &mut Option<String>, settings: &JournalSettings) -> io::Result<()> {
    *blob = None;
    match (outlined(res, blob, settings.blobs.as_ref()), &settings.blobs) {
        (Some(value), Some(blobs)) => blobs.keep(&value.digest, value.json.as_bytes(), settings.durability),
        (None | Some(_), _) => Ok(()),
    }
}

/// Takes a value that is too large out of its line, which then names it.
fn outlined(res: &mut Option<RawJson>, blob: &mut Option<String>, blobs: Option<&Blobs>) -> Option<NamedValue> {
    blobs?;
    let json = res.take_if(|res| res.get().len() > LARGEST_INLINE)?.in_one_line().get().to_owned();
    let digest = of_bytes(json.as_bytes());
    *blob = Some(digest.clone());
    Some(NamedValue { digest, json })
}

fn value_in(blobs: Option<&Blobs>, digest: &str) -> Result<Vec<u8>, String> {
    blobs.map_or_else(|| record::no_values(digest), |blobs| blobs.get(digest).map_err(|error| error.to_string()))
}

/// A file in the place of another, with these lines, signed and locked. Either all of it is there or nothing changed.
fn written_anew(path: &Path, lines: Vec<Vec<u8>>, key: Option<StateKey>) -> io::Result<(File, Signer, Vec<u8>)> {
    let beside = Beside::of_path(path, 0o600)?;
    // Nobody else knows the name.
    beside.file().try_lock().map_err(io::Error::from)?;
    let mut signer = Signer::after(LineMac::default(), key);
    let begun = append(beside.file(), &mut signer, lines)?;
    let file = beside.replace()?;
    sync_directory_of(path);
    Ok((file, signer, begun))
}

impl FileJournal {
    /// A new journal: the file does not exist or is empty. `header` says what resuming needs to know. Without a key it
    /// counts as a stranger's later. All values are in the file, and what is written is synced.
    pub fn create(
        path: impl AsRef<Path>,
        header: &impl Serialize,
        key: Option<&StateKey>,
    ) -> Result<Self, JournalError> {
        Self::create_by(path.as_ref(), header, None, key)
    }

    /// The same, with the name of the user who starts the run.
    pub(crate) fn create_by(
        path: &Path,
        header: &impl Serialize,
        by: Option<String>,
        key: Option<&StateKey>,
    ) -> Result<Self, JournalError> {
        let settings = JournalSettings { by, key: key.cloned(), ..JournalSettings::default() };
        Self::begin(path, NewRun::of(RunIdentity::default(), header), settings)
    }

    /// A new journal: the file does not exist or is empty.
    pub fn begin(path: &Path, run: NewRun, settings: JournalSettings) -> Result<Self, JournalError> {
        let failed = |error| JournalError::Io { path: path.to_owned(), error };
        let file = open_regular(path, OpenOptions::new().read(true).append(true).create(true).mode(0o600))?;
        lock(&file, path)?;
        let bytes = all_of(&file, path)?;
        // A header that was never finished is as good as none.
        let is_unfinished = !bytes.contains(&b'\n') && bytes.starts_with(OPENING.as_bytes());
        if !bytes.is_empty() && !is_unfinished {
            let is_journal = bytes.starts_with(b"{\"v\":");
            let path = path.to_owned();
            return Err(if is_journal { JournalError::NotEmpty(path) } else { JournalError::OtherContent(path) });
        }
        file.set_len(0).map_err(failed)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let mut signer = Signer::after(LineMac::default(), settings.key.clone());
        let NewRun { identity, header, copied, parts } = run;
        let header = RunLine::header(identity, header, now(), settings.by.clone());
        let steps = copied.iter().cloned().enumerate().collect();
        let (notes, ended) = (Vec::new(), None);
        let contents = {
            let (header, parts) = (header.clone(), parts.clone());
            let delivered = Vec::new();
            JournalContents::of(ParsedLines { header, parts, steps, notes, delivered, ended, is_of_others: false })
        };
        let contents = contents.map_err(|damage| damaged(damage, path))?;
        let lines = beginning(header, parts, copied, &settings).map_err(failed)?;
        let begun = write_lines(&file, &mut signer, lines, settings.durability).map_err(failed)?;
        if settings.durability == Durability::Synced {
            sync_directory_of(path);
        }
        let writer = Writer::start(settings.target(file), signer, begun).map_err(failed)?;
        let mode = Mode::Writes { writer, _replaced: None };
        Ok(Self::of(contents, mode, Matching::Exact, settings))
    }

    /// Answers every step from what a journal says: a step that it does not have is an error.
    pub fn replaying(contents: JournalContents) -> Self {
        Self::of(contents, Mode::Replays, Matching::Exact, JournalSettings::default())
    }

    /// Asks this before each request, tool and code that would be run and is not only read: if it says that the turn is
    /// being ended, nothing of the step is run any more. The first one counts.
    pub fn before_each_effect(&self, is_ending: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.is_ending.set(Box::new(is_ending));
    }

    fn of(contents: JournalContents, mode: Mode, matching: Matching, mut settings: JournalSettings) -> Self {
        if settings.durability == Durability::Synced || settings.replica.is_some() {
            settings.failure = WriteFailure::EndsRun;
        }
        let parts = contents.parts.keys().cloned().collect();
        let turns = contents.turns().iter().filter(|(_, is_finished)| *is_finished).count() as u64;
        let records = contents.into_records();
        // Room for the steps of a usual run.
        let taken = HashSet::with_capacity(64);
        let state = JournalProgress { records, taken, parts, turns, failure: None };
        Self { state: Mutex::new(state), mode, matching, settings, is_ending: OnceLock::new() }
    }

    /// Says how the run ended, as the last line; it is written when this returns, and on the disk if lines must be. A
    /// replay is no run.
    pub async fn end(&self, state: EndState, reason: &str) -> Result<(), Stop> {
        let Mode::Writes { writer, .. } = &self.mode else { return Ok(()) };
        let line = RunLine::ended(&RunEnd::new(state, reason), now(), self.settings.by.clone());
        writer.append(None, |json| write_line(json, &line)).durable_or(self).await
    }

    /// A collector has these spans: nobody who goes on with the run sends them again.
    pub(crate) fn note_delivered(&self, spans: &[String]) {
        if let Mode::Writes { writer, .. } = &self.mode {
            let mut line = RunLine::delivered(spans, now());
            let value = outlined(&mut line.res, &mut line.blob, self.settings.blobs.as_ref());
            // Whoever cannot be told so sends some of them twice.
            drop(writer.append(value, |json| write_line(json, &line)));
        }
    }

    /// How many turns of the entry were finished, in this process and in earlier ones.
    pub fn turns(&self) -> u64 {
        self.state().turns
    }

    // Its maps stay right whatever panicked elsewhere.
    fn state(&self) -> MutexGuard<'_, JournalProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the record says of a step. It is asked for once: a key that is used twice is a bug.
    fn find(&self, step: &Step, request: &str) -> Result<Option<StepProgress>, Stop> {
        let mut state = self.state();
        if let (Some(failure), WriteFailure::EndsRun) = (&state.failure, &self.settings.failure) {
            return Err(failure.clone());
        }
        assert!(state.taken.insert(step.key.clone()), "the key `{}` is used by two steps", step.key);
        let Some(record) = state.records.get(&step.key) else { return Ok(None) };
        if step.kind == StepKind::Ask && record.kind == StepKind::Ask && record.request != request {
            // Another question: an answer to that one is none to this.
            return Ok(None);
        }
        // A request without a digest is of a time when messages were written otherwise: it cannot be compared.
        let is_comparable = self.matching == Matching::Exact && !record.request.is_empty();
        let forgiven = step.kind == StepKind::Model && !is_comparable;
        if record.kind != step.kind || (record.request != request && !forgiven) {
            return Err(Stop::Diverged { key: step.key.clone(), kind: step.kind });
        }
        Ok(Some(record.known.clone()))
    }

    /// The name of what a request is made of, which is written down before it is first named.
    async fn named_parts(&self, StepParts { parts, sent }: &StepParts) -> Result<(String, u64), Stop> {
        match &self.settings.parts_in {
            None => drop(self.write_parts(parts)),
            // In another file no line that follows says that it stands there.
            Some(SharedParts(whole)) => {
                if let Some(written) = whole.write_parts(parts) {
                    written.durable_or(whole).await?;
                }
            }
        }
        Ok((parts.name().to_owned(), *sent))
    }

    /// Writes down what a request is made of, unless it stands there already. A line that follows in this file names it, and
    /// comes after it.
    fn write_parts(&self, parts: &RequestParts) -> Option<Acknowledgement> {
        let Mode::Writes { writer, .. } = &self.mode else { return None };
        // The list of the names is written last: where it stands, all that it names stands before it.
        let is_written = self.state().parts.contains(parts.name());
        let mut last = None;
        for (name, part) in parts.lines().filter(|_| !is_written) {
            if self.state().parts.insert(name.to_owned()) {
                let mut line = RunLine::part(name, part.clone(), now());
                let value = outlined(&mut line.res, &mut line.blob, self.settings.blobs.as_ref());
                last = Some(writer.append(value, |json| write_line(json, &line)));
            }
        }
        last
    }

    async fn replayed(
        &self,
        step: Step,
        known: Option<StepProgress>,
        effect: BoxFuture<'_, Result<RawJson, Stop>>,
    ) -> Result<StepAnswer, Stop> {
        match (step.kind, known) {
            // Its own steps are what is compared.
            (StepKind::Call, _) => effect.await.map(|_| StepAnswer::Ran),
            (
                StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide,
                Some(StepProgress::Done(result)),
            ) => Ok(StepAnswer::Recorded(result)),
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
    ) -> Result<StepAnswer, Stop> {
        let is_recorded = matches!(known, Some(StepProgress::Done(_)));
        if let (StepKind::Model | StepKind::Tool | StepKind::Code, false, Some(is_ending)) =
            (step.kind, is_recorded, self.is_ending.get())
            && is_ending()
        {
            // Whoever ends the turn drops this.
            std::future::pending::<()>().await;
        }
        let made_of = match &step.parts {
            Some(parts) => Some(self.named_parts(parts).await?),
            None => None,
        };
        let lines = StepLines { journal: self, writer, key: &step.key, kind: step.kind, request, made_of };
        match (known, &step.interrupted) {
            (Some(StepProgress::Done(result)), _) => return Ok(StepAnswer::Recorded(result)),
            (Some(StepProgress::Started(_)), Some(interrupted)) => {
                lines.done(interrupted.clone(), None).await?;
                return Ok(StepAnswer::Recorded(interrupted.clone()));
            }
            (Some(StepProgress::Asked(shown)), _) if shown == step.shown => {
                return match effect.await {
                    Ok(answer) => lines.ran(answer, None).await,
                    Err(stop) => Err(stop),
                };
            }
            (None | Some(StepProgress::Started(_) | StepProgress::Asked(_)), _) => {}
        }
        if step.interrupted.is_some() {
            let started = lines.append(LineState::Started, step.shown, step.judged.as_ref());
            // Who ends the turn while the line is on its way has begun nothing either.
            let mut begun = StartedEffect { lines: &lines, was_polled: false };
            started.durable_or(self).await?;
            let result = begun.polling(effect).await?;
            return lines.ran(result, None).await;
        }
        if step.kind == StepKind::Ask {
            // Not waited for: all questions of a reply are opened together.
            let asked = lines.append(LineState::Asked, step.shown, step.judged.as_ref());
            let answer = effect.await;
            return match answer {
                Ok(answer) => lines.ran(answer, None).await,
                // Whoever answers later must find the question, also after a power cut.
                Err(stop) => {
                    asked.durable_or(self).await?;
                    if self.settings.durability == Durability::Written {
                        writer.synced().durable_or(self).await?;
                    }
                    Err(stop)
                }
            };
        }
        let result = effect.await?;
        lines.ran(result, step.judged.as_ref()).await
    }
}

impl RecordedSteps for FileJournal {
    fn result(&self, key: &str) -> Option<RawJson> {
        match &self.state().records.get(key)?.known {
            StepProgress::Done(result) => Some(result.clone()),
            StepProgress::Started(_) | StepProgress::Asked(_) => None,
        }
    }

    fn keys_beneath(&self, key: &str) -> Vec<String> {
        record::beneath(&self.state().records, key).map(|(key, _)| key.to_owned()).collect()
    }

    fn has_past(&self) -> bool {
        matches!(self.mode, Mode::Replays) || !self.state().records.is_empty()
    }
}

impl Journal for FileJournal {
    fn step<'a>(
        &'a self,
        step: Step,
        effect: BoxFuture<'a, Result<RawJson, Stop>>,
    ) -> BoxFuture<'a, Result<StepAnswer, Stop>> {
        Box::pin(async move {
            let request = identified(&step.request);
            let known = self.find(&step, &request)?;
            let asked = (step.kind == StepKind::Model).then(|| step.key.clone());
            let answer = match &self.mode {
                Mode::Replays => self.replayed(step, known, effect).await,
                Mode::Writes { writer, .. } => self.taken(writer, step, request, known, effect).await,
            };
            // A request that gave no reply may be made again, in other words.
            if let (Err(_), Some(key)) = (&answer, asked) {
                self.state().taken.remove(&key);
            }
            answer
        })
    }

    fn lost(&self, key: &str, kind: StepKind, told: RawJson) {
        if let Mode::Writes { writer, .. } = &self.mode {
            let lines = StepLines { journal: self, writer, key, kind, request: String::new(), made_of: None };
            drop(lines.append(LineState::Lost, Some(told), None));
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
        let is_same = || record.request == identified(request);
        let asked = || record.shown.clone().map_or(Prior::Nothing, Prior::Asked);
        match &record.known {
            StepProgress::Asked(_) => asked(),
            StepProgress::Started(_) => Prior::Begun,
            StepProgress::Done(_) if kind == StepKind::Ask && !is_same() => asked(),
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
    /// The name of what a model request was made of, and how many messages it sent.
    made_of: Option<(String, u64)>,
}

impl StepLines<'_> {
    fn append(&self, state: LineState, mut res: Option<RawJson>, judged: Option<&RawJson>) -> Acknowledgement {
        let JournalSettings { by, blobs, .. } = &self.journal.settings;
        let by = by.as_deref().filter(|_| self.kind == StepKind::Ask && state == LineState::Done);
        let mut blob = None;
        let value = outlined(&mut res, &mut blob, blobs.as_ref());
        let (parts, sent) = self.made_of.as_ref().map(|(parts, sent)| (parts.as_str(), *sent)).unzip();
        let (k, kind, req) = (self.key, self.kind, &*self.request);
        let (res, blob) = (res.as_ref(), blob.as_deref());
        let line = LineText { k, kind, state, req, res, at: now(), by, parts, sent, judged, blob };
        self.writer.append(value, |json| write_step_line(json, &line))
    }

    async fn ran(&self, result: RawJson, judged: Option<&RawJson>) -> Result<StepAnswer, Stop> {
        self.done(result, judged).await.map(|()| StepAnswer::Ran)
    }

    async fn done(&self, result: RawJson, judged: Option<&RawJson>) -> Result<(), Stop> {
        let written = self.append(LineState::Done, Some(result), judged);
        if self.kind == StepKind::Call && memchr::memchr_iter(b'/', self.key.as_bytes()).count() == 1 {
            self.journal.state().turns += 1;
        }
        // A decision too is written before anything is built on it: what a person typed outlives a process that is killed
        // while the provider already reads it.
        written.durable_or(self.journal).await
    }
}

impl Acknowledgement {
    async fn durable_or(self, journal: &FileJournal) -> Result<(), Stop> {
        let Err(failure) = self.durable().await else { return Ok(()) };
        let before = journal.state().failure.replace(failure.clone());
        match &journal.settings.failure {
            WriteFailure::EndsRun => Err(failure),
            WriteFailure::Told(tell) => {
                if before.is_none() {
                    tell(&failure.to_string());
                }
                Ok(())
            }
        }
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
            drop(self.lines.append(LineState::Undone, None, None));
        }
    }
}

/// What a journal that was written with the key says, without going on with it; another process may be writing it. All
/// values are in the file.
pub fn read(path: &Path, key: Option<&StateKey>) -> Result<JournalContents, JournalError> {
    read_with(path, key, None)
}

/// The same of a journal whose large values are kept elsewhere.
pub fn read_with(path: &Path, key: Option<&StateKey>, blobs: Option<&Blobs>) -> Result<JournalContents, JournalError> {
    let bytes = all_of(&open_regular(path, OpenOptions::new().read(true))?, path)?;
    let values = |digest: &str| value_in(blobs, digest);
    let read = JournalContents::read_with(&bytes[..record::committed(&bytes)], key, &values);
    read.map(|(contents, _)| contents).map_err(|damage| damaged(damage, path))
}

/// What a stranger's journal says, without what people answered there. All values are in the file.
#[cfg(feature = "front-end")]
pub fn read_foreign(path: &Path) -> Result<JournalContents, JournalError> {
    read_foreign_with(path, None)
}

/// The same of a journal whose large values are kept elsewhere.
#[cfg(feature = "front-end")]
pub fn read_foreign_with(path: &Path, blobs: Option<&Blobs>) -> Result<JournalContents, JournalError> {
    let bytes = all_of(&open_regular(path, OpenOptions::new().read(true))?, path)?;
    let values = |digest: &str| value_in(blobs, digest);
    let lines = record::strangers_lines(&bytes[..record::committed(&bytes)], &values);
    lines.and_then(JournalContents::of).map_err(|damage| damaged(damage, path))
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
fn append(file: &File, signer: &mut Signer, lines: impl IntoIterator<Item = Vec<u8>>) -> io::Result<Vec<u8>> {
    write_lines(file, signer, lines, Durability::Synced)
}

fn write_lines(
    mut file: &File,
    signer: &mut Signer,
    lines: impl IntoIterator<Item = Vec<u8>>,
    durability: Durability,
) -> io::Result<Vec<u8>> {
    let mut signed = Vec::new();
    for line in lines {
        signer.append(&line, &mut signed);
    }
    file.write_all(&signed)?;
    if durability == Durability::Synced {
        file.sync_data()?;
    }
    Ok(signed)
}

/// What identifies a request, in half as many digits: nobody can choose a request so that it has the same ones.
pub(super) fn identified(request: &RawJson) -> String {
    short_digest([request.get()])
}

/// A file that nobody finds after a power cut is no journal. Some file systems cannot do it, and need not.
fn sync_directory_of(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}

fn line_of(line: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::new();
    write_line(&mut json, line);
    json
}

fn step_line_of(line: &LineText<'_>) -> Vec<u8> {
    let mut json = Vec::new();
    write_step_line(&mut json, line);
    json
}

/// Appends the JSON of a line to others.
fn write_line(lines: &mut Vec<u8>, line: &impl Serialize) {
    let begin = lines.len();
    serde_json::to_writer(&mut *lines, line).expect("plain values serialise");
    remove_breaks(&mut lines[begin..]);
}

/// The same of a line about a step.
fn write_step_line(lines: &mut Vec<u8>, line: &LineText<'_>) {
    let begin = lines.len();
    lines.reserve(line.size());
    line.write(lines);
    remove_breaks(&mut lines[begin..]);
}

/// Values of others may have line breaks, in JSON between tokens only.
fn remove_breaks(json: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &json[from..]) {
        json[from + at] = b' ';
        from += at + 1;
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
