//! The only place that writes to stdout and stderr. A caller does not wait until its text is read: threads write, so
//! that a reader who does not read holds up neither the run nor the tasks that listen for signals and the clock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use llm_do::CancellationToken;
use llm_do_launch::settings::Notes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// Writes what a command says to stdout. A reader that left early (`| head`) is not an error here; a caller that must
/// not go on without a reader asks [`delivered`], or listens to [`StdoutReader::gone`].
pub fn print(text: &str) -> Result<(), Failure> {
    CONSOLE.say(ConsoleStream::Out, text);
    CONSOLE.trouble()
}

/// Writes everything else to stderr. If stderr cannot be written either, there is no other place for the text.
pub fn complain(text: &str) {
    CONSOLE.say(ConsoleStream::Err, text);
}

/// The same as a value, for code that has remarks and knows no console.
pub fn notes() -> Notes {
    Arc::new(complain)
}

/// Returns when everything that was said so far has been written.
pub async fn told() {
    for lane in CONSOLE.lanes() {
        let (sender, written) = oneshot::channel();
        lane.mark(move || {
            let _ = sender.send(());
        });
        // A thread that is gone writes nothing more.
        let _ = written.await;
    }
}

/// Waits until stdout has taken everything: a run has not succeeded if its reader could not read the end.
pub fn delivered() -> Result<(), Failure> {
    CONSOLE.wait(ConsoleStream::Out, Patience::Endless);
    CONSOLE.trouble()?;
    if *CONSOLE.loss() == Some(Loss::Unread) { Err(Failure::unread()) } else { Ok(()) }
}

/// Waits until both streams have taken everything, so that what is said next stands below it on a terminal.
pub fn settle() {
    CONSOLE.wait(ConsoleStream::Out, Patience::Endless);
    CONSOLE.wait(ConsoleStream::Err, Patience::Endless);
}

/// Says the last words of the process and gives its exit code. Readers are given the time that they need; if the
/// process was told to end, they are given time only as long as they go on reading.
pub fn leave(ended: Result<ExitCode, Failure>) -> ExitCode {
    let (code, patience) = match &ended {
        Ok(code) => (*code, Patience::Endless),
        Err(failure) => {
            failure.print();
            (ExitCode::from(failure.code()), if failure.is_stop() { Patience::LastWords } else { Patience::Endless })
        }
    };
    CONSOLE.wait(ConsoleStream::Out, patience);
    let code = match (ended, CONSOLE.trouble()) {
        (Ok(_), Err(failure)) => {
            failure.print();
            ExitCode::from(failure.code())
        }
        (Ok(_) | Err(_), _) => code,
    };
    CONSOLE.wait(ConsoleStream::Err, patience);
    code
}

/// Makes a run stand still as long as too much of what was said is not read. The code that listens for signals and
/// the clock does not stand still.
pub struct ConsolePace;

impl llm_do_launch::session::SessionPace for ConsolePace {
    fn holds(&self, waker: &Waker) -> bool {
        CONSOLE.holds(waker)
    }
}

/// From now on nothing stands still because of a slow reader: the process is to end.
pub fn hurry() {
    CONSOLE.pace().is_hurried = true;
    CONSOLE.wake();
}

/// Undoes [`hurry`]: something new begins, which stands still again if its output is not read.
pub fn take_time() {
    CONSOLE.pace().is_hurried = false;
}

/// How wide the terminal of stderr is now.
pub fn columns() -> Option<usize> {
    width_of(io::stderr())
}

/// How wide the terminal is that answers go to.
pub fn answer_columns() -> usize {
    answer_width().unwrap_or(80)
}

/// The same, if they go to a terminal.
pub fn answer_width() -> Option<usize> {
    width_of(io::stdout())
}

fn width_of(stream: impl AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Tells when the reader of stdout is gone, as far as that can be known: for a pipe or a socket.
pub struct StdoutReader(CancellationToken);

impl StdoutReader {
    pub fn of_stdout() -> Self {
        let is_heard = matches!(file_type(ConsoleStream::Out), Some(FileType::Fifo | FileType::Socket));
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = CancellationToken::new();
        if is_heard && has_gone(ConsoleStream::Out.descriptor(), Some(&now)) {
            gone.cancel();
        } else if is_heard {
            // The thread ends with the process. If it cannot be started, the loss of the reader shows when something
            // is written.
            let (thread, watched) = (std::thread::Builder::new().name("reader".to_owned()), gone.clone());
            let _ = thread.spawn(move || {
                if has_gone(ConsoleStream::Out.descriptor(), None) {
                    watched.cancel();
                }
            });
        }
        Self(gone)
    }

    /// Of a run that goes on without one: its answer goes elsewhere too.
    pub fn of_nobody() -> Self {
        Self(CancellationToken::new())
    }

    /// Returns when stdout has no reader any more.
    pub async fn gone(&self) {
        self.0.cancelled().await;
    }

    pub fn has_gone(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Whether a stream has no reader any more. Waits until that is so, or until the time is over.
fn has_gone(stream: BorrowedFd<'_>, time: Option<&Timespec>) -> bool {
    let mut polled = [PollFd::new(&stream, PollFlags::empty())];
    while poll(&mut polled, time) == Err(rustix::io::Errno::INTR) {}
    polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConsoleStream {
    Out,
    Err,
}

impl ConsoleStream {
    fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            Self::Out => rustix::stdio::stdout(),
            Self::Err => rustix::stdio::stderr(),
        }
    }
}

fn file_type(stream: ConsoleStream) -> Option<FileType> {
    fstat(stream.descriptor()).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
}

/// How long a reader is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    /// Only as long as the reader goes on reading.
    LastWords,
}

/// How long a reader may read nothing of the last words of a process that is to end.
pub const LAST_WORDS: Duration = Duration::from_secs(3);
/// Bytes that wait to be read before the work stands still.
const MOST_UNREAD: usize = 4 * 1024 * 1024;
/// So much is written at once: small enough that each write shows whether the reader still reads.
const PIECE: usize = 16 * 1024;

/// The state of stdout and stderr. It is one for the process, since the streams and the threads that write to them
/// are.
struct Console {
    lanes: OnceLock<Lanes>,
    pace: Mutex<ConsolePaceState>,
    /// Why stdout takes nothing more, if it was lost.
    loss: Mutex<Option<Loss>>,
    /// Bytes that wait to be written.
    unread: AtomicUsize,
    /// Bytes that were written since the process began.
    written: AtomicU64,
}

static CONSOLE: Console = Console {
    lanes: OnceLock::new(),
    pace: Mutex::new(ConsolePaceState { is_hurried: false, waiting: Vec::new() }),
    loss: Mutex::new(None),
    unread: AtomicUsize::new(0),
    written: AtomicU64::new(0),
};

struct ConsolePaceState {
    is_hurried: bool,
    waiting: Vec<Waker>,
}

/// Why stdout takes nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Loss {
    /// Its reader is gone.
    Unread,
    Broken(String),
}

/// The ways to both streams. If both are one terminal or one file they share one lane, so that what is said stays in
/// order.
struct Lanes {
    out: Lane,
    err: Option<Lane>,
}

/// Texts on their way to a stream, and the thread that writes them. If there is no thread, the caller writes.
struct Lane(Option<mpsc::Sender<ConsoleItem>>);

enum ConsoleItem {
    Text(ConsoleStream, String),
    /// To be called when everything before it was written.
    Mark(Box<dyn FnOnce() + Send>),
}

impl Console {
    fn say(&self, stream: ConsoleStream, text: &str) {
        if !text.is_empty() {
            self.unread.fetch_add(text.len(), Ordering::Relaxed);
            self.lane(stream).say(stream, text);
        }
    }

    fn both(&self) -> &Lanes {
        self.lanes.get_or_init(|| Lanes { out: Lane::start(), err: (!is_one_file()).then(Lane::start) })
    }

    fn lane(&self, stream: ConsoleStream) -> &Lane {
        let Lanes { out, err } = self.both();
        match stream {
            ConsoleStream::Out => out,
            ConsoleStream::Err => err.as_ref().unwrap_or(out),
        }
    }

    /// The lanes on which anything was said.
    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.get().into_iter().flat_map(|Lanes { out, err }| [Some(out), err.as_ref()]).flatten()
    }

    /// Writes all of a text, however long that takes.
    fn write(&self, stream: ConsoleStream, text: &str) {
        for piece in text.as_bytes().chunks(PIECE) {
            let is_lost = stream == ConsoleStream::Out && self.loss().is_some();
            if !is_lost
                && let Err(error) = write_all(stream.descriptor(), piece)
                && stream == ConsoleStream::Out
            {
                *self.loss() = Some(match error {
                    rustix::io::Errno::PIPE => Loss::Unread,
                    error => Loss::Broken(io::Error::from(error).to_string()),
                });
            }
            self.written.fetch_add(piece.len() as u64, Ordering::Relaxed);
            let before = self.unread.fetch_sub(piece.len(), Ordering::Relaxed);
            if before.saturating_sub(piece.len()) <= MOST_UNREAD / 2 {
                self.wake();
            }
        }
    }

    /// Waits until everything is written that was said on a stream.
    fn wait(&self, stream: ConsoleStream, patience: Patience) {
        if self.lanes.get().is_none() {
            return;
        }
        let (sender, written) = mpsc::channel();
        self.lane(stream).mark(move || {
            let _ = sender.send(());
        });
        let mut before = self.written.load(Ordering::Relaxed);
        while let Err(RecvTimeoutError::Timeout) = written.recv_timeout(LAST_WORDS) {
            let now = self.written.load(Ordering::Relaxed);
            if patience == Patience::LastWords && now == before {
                return;
            }
            before = now;
        }
    }

    /// Why stdout cannot be written, as far as that is known.
    fn trouble(&self) -> Result<(), Failure> {
        match &*self.loss() {
            Some(Loss::Broken(error)) => Err(Failure::failed(format!("the answer could not be written: {error}"))),
            Some(Loss::Unread) | None => Ok(()),
        }
    }

    /// Whether work stands still now; if so, it is woken later.
    fn holds(&self, waker: &Waker) -> bool {
        // Nearly always little is unread, and that is found out without a lock.
        if self.unread.load(Ordering::Relaxed) <= MOST_UNREAD {
            return false;
        }
        let mut pace = self.pace();
        let holds = !pace.is_hurried && self.unread.load(Ordering::Relaxed) > MOST_UNREAD;
        if holds && !pace.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
            pace.waiting.push(waker.clone());
        }
        holds
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut self.pace().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    // A panic elsewhere leaves the guarded value whole, so a poisoned lock is used on.
    fn pace(&self) -> MutexGuard<'_, ConsolePaceState> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loss(&self) -> MutexGuard<'_, Option<Loss>> {
        self.loss.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn start() -> Self {
        let (sender, said) = mpsc::channel();
        let thread = std::thread::Builder::new().name("console".to_owned());
        Self(thread.spawn(move || serve(&said)).ok().map(|_| sender))
    }

    fn say(&self, stream: ConsoleStream, text: &str) {
        match &self.0 {
            Some(lane) => drop(lane.send(ConsoleItem::Text(stream, text.to_owned()))),
            None => CONSOLE.write(stream, text),
        }
    }

    fn mark(&self, call: impl FnOnce() + Send + 'static) {
        match &self.0 {
            Some(lane) => drop(lane.send(ConsoleItem::Mark(Box::new(call)))),
            None => call(),
        }
    }
}

/// Writes the texts of a lane. Those that have come together for one stream are written together.
fn serve(lane: &mpsc::Receiver<ConsoleItem>) {
    let mut next = lane.recv().ok();
    while let Some(said) = next.take() {
        match said {
            ConsoleItem::Mark(call) => call(),
            ConsoleItem::Text(stream, mut text) => {
                next = lane.try_recv().ok();
                while let Some(ConsoleItem::Text(other, more)) = &next
                    && *other == stream
                    && text.len() < PIECE
                {
                    text.push_str(more);
                    next = lane.try_recv().ok();
                }
                CONSOLE.write(stream, &text);
            }
        }
        next = next.or_else(|| lane.recv().ok());
    }
}

/// Writes all bytes. A stream that was set not to block is waited for.
fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => drop(poll(&mut [PollFd::new(&stream, PollFlags::OUT)], None)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_one_file() -> bool {
    let [out, err] = [ConsoleStream::Out, ConsoleStream::Err].map(|stream| fstat(stream.descriptor()).ok());
    out.zip(err).is_some_and(|(out, err)| (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino))
}
