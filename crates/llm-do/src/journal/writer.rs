//! The one thread that writes: what has queued up is one write and one `fdatasync`, then all of it is acknowledged.

use std::fs::File;
use std::io::Write as _;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::Stop;

/// Writes lines at the end of a file. Dropping it waits until all is written.
pub struct Writer {
    /// Both are there until it is dropped.
    queue: Option<mpsc::Sender<Queued>>,
    thread: Option<JoinHandle<()>>,
}

struct Queued {
    line: String,
    written: oneshot::Sender<Result<(), String>>,
}

/// A line on its way.
pub struct Acknowledgement(Option<oneshot::Receiver<Result<(), String>>>);

impl Acknowledgement {
    /// Waits until the line is durable.
    pub async fn durable(self) -> Result<(), Stop> {
        let gone = || Stop::Journal("its writer is gone".to_owned());
        let written = self.0.ok_or_else(gone)?;
        written.await.map_err(|_| gone())?.map_err(Stop::Journal)
    }
}

impl Writer {
    pub fn start(file: File) -> std::io::Result<Self> {
        let (queue, queued) = mpsc::channel();
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(move || write(&file, &queued))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Lines are written in the order of these calls.
    pub fn append(&self, line: String) -> Acknowledgement {
        let (written, acknowledged) = oneshot::channel();
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(Queued { line, written }).is_ok());
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
fn write(mut file: &File, queued: &mpsc::Receiver<Queued>) {
    let mut failure: Option<String> = None;
    while let Ok(first) = queued.recv() {
        let batch: Vec<Queued> = std::iter::once(first).chain(queued.try_iter()).collect();
        if failure.is_none() {
            let lines: String = batch.iter().map(|queued| queued.line.as_str()).collect();
            let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
            failure = written.err().map(|error| format!("it cannot be written: {error}"));
        }
        for Queued { written, .. } in batch {
            // Who asked may have left.
            let _ = written.send(failure.clone().map_or(Ok(()), Err));
        }
    }
}
