//! The one thread that writes: what has queued up is one write, and one `fdatasync` where it must be durable, then all of
//! it is acknowledged. It also signs, since only here is it known which line stands before which.

use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::Stop;
use super::blobs::Blobs;
use super::file::Durability;
use super::mac::{LineMac, SigningPurpose, StateKey, close};

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
        match (&self.key, json.strip_suffix(b"}")) {
            (Some(key), Some(signed)) => {
                self.last = key.next(SigningPurpose::Journal, self.last, signed);
                lines.extend_from_slice(signed);
                close(self.last, lines);
            }
            _ => lines.extend_from_slice(json),
        }
        lines.push(b'\n');
    }
}

/// Writes lines at the end of a file. Dropping it waits until all is written.
pub(super) struct Writer {
    /// Both are there until it is dropped.
    queue: Option<mpsc::Sender<QueuedLine>>,
    thread: Option<JoinHandle<()>>,
    spare: Arc<SpareRoom>,
}

/// Room for lines that was used before. Memory that one thread takes and another gives back costs both more than a line.
#[derive(Default)]
struct SpareRoom(Mutex<Vec<Vec<u8>>>);

impl SpareRoom {
    /// More lines are hardly ever under way at once, and longer ones are rare.
    const MOST: usize = 4;
    const LARGEST: usize = 16 * 1024;

    fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, mut line: Vec<u8>) {
        line.clear();
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < Self::MOST && line.capacity() <= Self::LARGEST {
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
}

/// A line on its way.
pub(super) struct Acknowledgement(Option<oneshot::Receiver<Result<(), String>>>);

impl Acknowledgement {
    /// Waits until the line is durable.
    pub(super) async fn durable(self) -> Result<(), Stop> {
        let gone = || Stop::Journal("its writer is gone".to_owned());
        let written = self.0.ok_or_else(gone)?;
        written.await.map_err(|_| gone())?.map_err(Stop::Journal)
    }
}

impl Writer {
    pub(super) fn start(target: WriterTarget, signer: Signer) -> std::io::Result<Self> {
        let (queue, queued) = mpsc::channel();
        let spare = Arc::new(SpareRoom::default());
        let returned = Arc::clone(&spare);
        let write = move || write(&target, signer, &queued, &returned);
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(write)?;
        Ok(Self { queue: Some(queue), thread: Some(thread), spare })
    }

    /// Room for a line, which comes back when it is written.
    pub(super) fn room(&self) -> Vec<u8> {
        self.spare.take()
    }

    /// Lines, which are JSON objects, are written in the order of these calls, each after the value that it names.
    pub(super) fn append(&self, line: Vec<u8>, value: Option<NamedValue>) -> Acknowledgement {
        let (written, acknowledged) = oneshot::channel();
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(QueuedLine { line, value, written }).is_ok());
        Acknowledgement(sent.then_some(acknowledged))
    }

    /// All lines until now are on the disk when this is acknowledged, whatever the durability of the others.
    pub(super) fn synced(&self) -> Acknowledgement {
        self.append(Vec::new(), None)
    }
}

/// The lock goes with the file, and the file with the thread: whoever drops the journal may open it again.
impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// After a failure nothing is written any more: a line after a torn one would be damage.
fn write(target: &WriterTarget, mut signer: Signer, queued: &mpsc::Receiver<QueuedLine>, spare: &SpareRoom) {
    let (mut failure, mut lines): (Option<String>, Vec<u8>) = (None, Vec::new());
    while let Ok(first) = queued.recv() {
        let mut batch: Vec<QueuedLine> = std::iter::once(first).chain(queued.try_iter()).collect();
        if failure.is_none() {
            let written = write_batch(target, &mut signer, &mut batch, &mut lines);
            failure = written.err().map(|error| format!("it cannot be written: {error}"));
        }
        for QueuedLine { written, line, .. } in batch {
            spare.give_back(line);
            // Who asked may have left.
            let _ = written.send(failure.clone().map_or(Ok(()), Err));
        }
    }
}

/// Writes what is queued; `lines` is where it is put together, the same room each time.
fn write_batch(
    target: &WriterTarget,
    signer: &mut Signer,
    batch: &mut [QueuedLine],
    lines: &mut Vec<u8>,
) -> std::io::Result<()> {
    let WriterTarget { file, durability, blobs } = target;
    lines.clear();
    let mut must_sync = *durability == Durability::Synced;
    for queued in batch {
        if let (Some(NamedValue { digest, json }), Some(blobs)) = (queued.value.take(), blobs) {
            blobs.keep(&digest, json.as_bytes(), *durability)?;
        }
        if queued.line.is_empty() {
            must_sync = true;
        } else {
            signer.append(&queued.line, lines);
        }
    }
    let mut file = file;
    file.write_all(lines)?;
    if must_sync { file.sync_data() } else { Ok(()) }
}
