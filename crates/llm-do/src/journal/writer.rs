//! The one thread that writes: what has queued up is one write and one `fdatasync`, then all of it is acknowledged. It
//! also signs, since only here is it known which line stands before which.

use std::fs::File;
use std::io::Write as _;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::Stop;
use super::mac::{LineMac, SigningPurpose, StateKey, sign};

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
    pub(super) fn append(&mut self, mut json: String, lines: &mut String) {
        if let (Some(key), Some(signed)) = (&self.key, json.strip_suffix('}')) {
            self.last = key.next(SigningPurpose::Journal, self.last, signed.as_bytes());
            sign(&mut json, self.last);
        }
        lines.push_str(&json);
        lines.push('\n');
    }
}

/// Writes lines at the end of a file. Dropping it waits until all is written.
pub(super) struct Writer {
    /// Both are there until it is dropped.
    queue: Option<mpsc::Sender<QueuedLine>>,
    thread: Option<JoinHandle<()>>,
}

struct QueuedLine {
    line: String,
    written: oneshot::Sender<Result<(), String>>,
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
    pub(super) fn start(file: File, signer: Signer) -> std::io::Result<Self> {
        let (queue, queued) = mpsc::channel();
        let write = move || write(&file, signer, &queued);
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(write)?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Lines, which are JSON objects, are written in the order of these calls.
    pub(super) fn append(&self, line: String) -> Acknowledgement {
        let (written, acknowledged) = oneshot::channel();
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(QueuedLine { line, written }).is_ok());
        Acknowledgement(sent.then_some(acknowledged))
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
fn write(mut file: &File, mut signer: Signer, queued: &mpsc::Receiver<QueuedLine>) {
    let mut failure: Option<String> = None;
    while let Ok(first) = queued.recv() {
        let mut batch: Vec<QueuedLine> = std::iter::once(first).chain(queued.try_iter()).collect();
        if failure.is_none() {
            let mut lines = String::new();
            for queued in &mut batch {
                signer.append(std::mem::take(&mut queued.line), &mut lines);
            }
            let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
            failure = written.err().map(|error| format!("it cannot be written: {error}"));
        }
        for QueuedLine { written, .. } in batch {
            // Who asked may have left.
            let _ = written.send(failure.clone().map_or(Ok(()), Err));
        }
    }
}
