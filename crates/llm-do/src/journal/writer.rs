//! Writes the lines of a journal, and signs them, since only here is it known which line stands before which.
//!
//! A line that counts once it is written is written where it is made: the system takes it into memory in less time than it
//! takes to wake another thread and to be woken by it. Where lines must be on the disk, or on another machine, there is one thread
//! that writes: what has queued up is one write and one `fdatasync`, then all of it is acknowledged.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::Stop;
use super::blobs::Blobs;
use super::file::Durability;
use super::mac::{LineMac, SigningPurpose, StateKey, close};
use super::replica::Replica;

/// Ends each line with its mac.
pub(super) struct Signer {
    /// Without one nothing is signed, and the file counts as a stranger's later.
    key: Option<StateKey>,
    /// Of the line before.
    last: LineMac,
}

impl Signer {
    /// Goes on after a line with this mac.
    pub(super) fn after(last: LineMac, key: Option<StateKey>) -> Self {
        Self { key, last }
    }

    /// Appends a line, which is a JSON object, to others.
    pub(super) fn append(&mut self, json: &[u8], lines: &mut Vec<u8>) {
        let begin = lines.len();
        lines.extend_from_slice(json);
        self.end(begin, lines);
    }

    /// Ends the line that begins there, a JSON object without its newline.
    fn end(&mut self, begin: usize, lines: &mut Vec<u8>) {
        if let (Some(key), Some(b'}')) = (&self.key, lines.last()) {
            lines.pop();
            self.last = key.next(SigningPurpose::Journal, self.last, &lines[begin..]);
            close(self.last, lines);
        }
        lines.push(b'\n');
    }
}

/// Writes lines at the end of a file. Dropping it waits until all is written.
pub(super) struct Writer(WritingPlace);

enum WritingPlace {
    /// Where the line is made.
    AtOnce(Box<Mutex<LineFile>>),
    /// In a thread. All of it is there until the writer is dropped.
    Thread { queue: Option<mpsc::Sender<QueuedLine>>, thread: Option<JoinHandle<()>>, spare: Arc<SpareRoom> },
}

/// Room for lines that was used before. Memory that one thread takes and another gives back costs both more than a line.
#[derive(Default)]
struct SpareRoom(Mutex<Vec<Vec<u8>>>);

/// More room than this is given back: longer lines are rare.
const LARGEST_SPARE: usize = 16 * 1024;

impl SpareRoom {
    /// More lines are hardly ever under way at once.
    const MOST: usize = 4;

    fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, mut line: Vec<u8>) {
        line.clear();
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < Self::MOST && line.capacity() <= LARGEST_SPARE {
            spare.push(line);
        }
    }
}

struct QueuedLine {
    /// Empty if nothing is to be written, but all before it to be on the disk.
    line: Vec<u8>,
    /// A value that the line names: it is kept before the line is written.
    value: Option<NamedValue>,
    written: oneshot::Sender<Result<(), String>>,
}

/// A value that stands outside of the journal, and its digest.
pub(super) struct NamedValue {
    pub digest: String,
    pub json: String,
}

/// What a writer writes to, and how.
pub(super) struct WriterTarget {
    pub file: File,
    pub durability: Durability,
    /// Where values are kept that are not written into the file.
    pub blobs: Option<Blobs>,
    /// Where all lines must be, too.
    pub replica: Option<Arc<dyn Replica>>,
}

/// A line on its way.
pub(super) enum Acknowledgement {
    /// It is written, or it cannot be.
    Now(Result<(), String>),
    /// Another thread will say so; nothing if that thread is gone.
    Later(Option<oneshot::Receiver<Result<(), String>>>),
}

impl Acknowledgement {
    /// Waits until the line is durable.
    pub(super) async fn durable(self) -> Result<(), Stop> {
        let gone = || Stop::Journal("its writer is gone".to_owned());
        match self {
            Self::Now(written) => written.map_err(Stop::Journal),
            Self::Later(written) => written.ok_or_else(gone)?.await.map_err(|_| gone())?.map_err(Stop::Journal),
        }
    }
}

impl Writer {
    /// What was written before, and no replica has yet, goes there first.
    pub(super) fn start(target: WriterTarget, signer: Signer, begun: Vec<u8>) -> io::Result<Self> {
        let is_at_once = target.durability == Durability::Written && target.replica.is_none();
        let mut file = LineFile { target, signer, lines: Vec::new(), failure: None };
        if is_at_once {
            return Ok(Self(WritingPlace::AtOnce(Box::new(Mutex::new(file)))));
        }
        let (queue, queued) = mpsc::channel();
        let spare = Arc::new(SpareRoom::default());
        let returned = Arc::clone(&spare);
        let write = move || {
            file.begin(&begun);
            write(file, &queued, &returned);
        };
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(write)?;
        Ok(Self(WritingPlace::Thread { queue: Some(queue), thread: Some(thread), spare }))
    }

    /// Lines are written in the order of these calls, each after the value that it names. `write` appends the line to what
    /// it is given: a JSON object without a line break.
    pub(super) fn append(&self, value: Option<NamedValue>, write: impl FnOnce(&mut Vec<u8>)) -> Acknowledgement {
        match &self.0 {
            WritingPlace::AtOnce(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                Acknowledgement::Now(file.write(false, |file| file.add(value, write)))
            }
            WritingPlace::Thread { queue, spare, .. } => {
                let mut line = spare.take();
                write(&mut line);
                queued(queue.as_ref(), line, value)
            }
        }
    }

    /// All lines until now are on the disk when this is acknowledged, whatever the durability of the others.
    pub(super) fn synced(&self) -> Acknowledgement {
        let file = match &self.0 {
            WritingPlace::AtOnce(file) => file,
            WritingPlace::Thread { queue, .. } => return queued(queue.as_ref(), Vec::new(), None),
        };
        let handle = file.lock().unwrap_or_else(PoisonError::into_inner).target.file.try_clone();
        let (written, acknowledged) = oneshot::channel();
        // A disk takes its time, and others go on meanwhile.
        let sync = move || {
            let synced = handle.and_then(|file| file.sync_data());
            // Who asked may have left.
            let _ = written.send(synced.map_err(|error| unwritable(&error)));
        };
        match std::thread::Builder::new().name("journal".to_owned()).spawn(sync) {
            Ok(_) => Acknowledgement::Later(Some(acknowledged)),
            Err(error) => Acknowledgement::Now(Err(unwritable(&error))),
        }
    }
}

/// Gives a line to the thread that writes.
fn queued(queue: Option<&mpsc::Sender<QueuedLine>>, line: Vec<u8>, value: Option<NamedValue>) -> Acknowledgement {
    let (written, acknowledged) = oneshot::channel();
    let is_sent = queue.is_some_and(|queue| queue.send(QueuedLine { line, value, written }).is_ok());
    Acknowledgement::Later(is_sent.then_some(acknowledged))
}

fn unwritable(error: &io::Error) -> String {
    format!("it cannot be written: {error}")
}

/// The lock goes with the file, and the file with the thread: whoever drops the journal may open it again.
impl Drop for Writer {
    fn drop(&mut self) {
        if let WritingPlace::Thread { queue, thread, .. } = &mut self.0 {
            *queue = None;
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// The file at whose end lines are written.
struct LineFile {
    target: WriterTarget,
    signer: Signer,
    /// Where lines are put together, the same room each time.
    lines: Vec<u8>,
    /// After a failure nothing is written any more: a line after a torn one would be damage.
    failure: Option<String>,
}

impl LineFile {
    /// Gives the replica what was written before.
    fn begin(&mut self, begun: &[u8]) {
        let kept = self.target.replica.as_ref().map_or(Ok(()), |replica| replica.keep(begun));
        self.failure = kept.err().map(|error| format!("it cannot be kept: {error}"));
    }

    /// Writes what this adds.
    fn write(&mut self, must_sync: bool, add: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), String> {
        if self.failure.is_none() {
            self.lines.clear();
            let written = add(self).and_then(|()| self.flush(must_sync));
            self.failure = written.err().map(|error| unwritable(&error));
            if self.lines.capacity() > LARGEST_SPARE {
                self.lines = Vec::new();
            }
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Keeps the value that a line names, and puts the line behind those before it.
    fn add(&mut self, value: Option<NamedValue>, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        if let (Some(NamedValue { digest, json }), Some(blobs)) = (value, &self.target.blobs) {
            blobs.keep(&digest, json.as_bytes(), self.target.durability)?;
        }
        let begin = self.lines.len();
        write(&mut self.lines);
        self.signer.end(begin, &mut self.lines);
        Ok(())
    }

    fn flush(&mut self, must_sync: bool) -> io::Result<()> {
        let WriterTarget { file, durability, replica, .. } = &mut self.target;
        file.write_all(&self.lines)?;
        if must_sync || *durability == Durability::Synced {
            file.sync_data()?;
        }
        match replica {
            Some(replica) if !self.lines.is_empty() => replica.keep(&self.lines),
            Some(_) | None => Ok(()),
        }
    }
}

/// The thread that writes.
fn write(mut file: LineFile, queued: &mpsc::Receiver<QueuedLine>, spare: &SpareRoom) {
    while let Ok(first) = queued.recv() {
        let mut batch: Vec<QueuedLine> = std::iter::once(first).chain(queued.try_iter()).collect();
        let must_sync = batch.iter().any(|queued| queued.line.is_empty());
        let written = file.write(must_sync, |file| {
            let mut lines = batch.iter_mut().filter(|queued| !queued.line.is_empty());
            lines.try_for_each(|QueuedLine { line, value, .. }| {
                file.add(value.take(), |lines| lines.extend_from_slice(line))
            })
        });
        for QueuedLine { written: acknowledge, line, .. } in batch {
            spare.give_back(line);
            // Who asked may have left.
            let _ = acknowledge.send(written.clone());
        }
    }
}
