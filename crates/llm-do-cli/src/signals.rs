//! What the system tells us while a run goes on. Signals have a thread of their own: the first one is handed to the
//! task that attends to the run, which ends in good order; after the second one the process ends soon, whatever it is
//! busy with.

use llm_do::process::place_of;
use llm_do_launch::keep::EndReason;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::signal::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::failure::{self, Failure};
use crate::terminal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// Another process, or the end of the terminal, wants this process to end.
    Terminate,
}

impl StopSignal {
    fn of(signal: i32) -> Self {
        if signal == SIGINT { Self::Interrupt } else { Self::Terminate }
    }

    fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => failure::INTERRUPTED,
            Self::Terminate => failure::TERMINATED,
        }
    }

    pub fn stops(self) -> StopReason {
        match self {
            Self::Interrupt => StopReason::Interrupted,
            Self::Terminate => StopReason::Terminated,
        }
    }
}

/// Who ended a turn before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A person, with Ctrl-C.
    Interrupted,
    /// The system.
    Terminated,
    /// The clock, after this time.
    TimedOut(Duration),
    /// The reader of the answers has gone.
    Unread,
    /// Another process, with `llm-do runs cancel`.
    Cancelled,
}

impl StopReason {
    pub fn failure(self) -> Failure {
        match self {
            Self::Interrupted => Failure::interrupted(),
            Self::Terminated => Failure::terminated(),
            Self::TimedOut(limit) => Failure::timed_out(limit),
            Self::Unread => Failure::unread(),
            Self::Cancelled => Failure::cancelled(),
        }
    }

    /// As the record of the run says it.
    pub fn end_reason(self) -> EndReason {
        match self {
            Self::Interrupted => EndReason::Interrupted,
            Self::Terminated => EndReason::Terminated,
            Self::TimedOut(_) => EndReason::TimedOut,
            Self::Unread => EndReason::Unread,
            Self::Cancelled => EndReason::Cancelled,
        }
    }
}

/// How long a second signal leaves for an end in good order.
const LAST_MOMENTS: Duration = Duration::from_millis(900);

/// The listening to signals. It is one for the process, since signals are.
struct Listening {
    listener: Mutex<Option<UnboundedSender<StopSignal>>>,
    /// Signals since the last call of `settle`.
    unsettled: AtomicUsize,
}

static LISTENING: Listening = Listening { listener: Mutex::new(None), unsettled: AtomicUsize::new(0) };

pub struct Signals {
    heard: UnboundedReceiver<StopSignal>,
    listening: &'static Listening,
}

impl Signals {
    /// From here on these signals no longer end the process by themselves, as long as the returned value lives.
    pub fn listen() -> Result<Self, Failure> {
        static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
        let started = STARTED.get_or_init(|| start().map_err(|error| error.to_string()));
        started.clone().map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
        let (listener, heard) = unbounded_channel();
        *LISTENING.listener() = Some(listener);
        Ok(Self { heard, listening: &LISTENING })
    }

    pub async fn next(&mut self) -> StopSignal {
        match self.heard.recv().await {
            Some(received) => received,
            // A later listener has replaced this one, which hears nothing more.
            None => std::future::pending().await,
        }
    }

    /// What was asked for so far has been done, and something else begins: the next signal is a first one.
    pub fn settle(&self) {
        self.listening.unsettled.store(0, Ordering::SeqCst);
    }
}

impl Listening {
    fn listener(&self) -> MutexGuard<'_, Option<UnboundedSender<StopSignal>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, received: StopSignal) {
        let before = self.unsettled.fetch_add(1, Ordering::SeqCst);
        let is_heard = self.listener().as_ref().is_some_and(|listener| listener.send(received).is_ok());
        if before > 0 {
            wait_until(Instant::now() + LAST_MOMENTS);
        }
        if before > 0 || !is_heard {
            end(received);
        }
    }
}

fn start() -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT])?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let hear = |signal| match signal {
        SIGQUIT => quit(),
        SIGTSTP => pause(),
        SIGCONT => {
            terminal::take_again();
            CONTINUED.went_on();
        }
        signal => LISTENING.hear(StopSignal::of(signal)),
    };
    thread.spawn(move || signals.forever().for_each(hear))?;
    Ok(())
}

/// Ctrl-\\ ends the program without a word, as it ends any other; only the terminal is restored before, since other
/// programs use it afterwards.
fn quit() {
    terminal::restore_lent();
    // It does not return.
    let _ = signal_hook::low_level::emulate_default_handler(SIGQUIT);
}

/// Ctrl-Z stops the process as it stops any other, after the terminal was given back. It goes on with the signal that says so.
fn pause() {
    if can_stop() {
        terminal::give_back();
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

/// Stops the process as Ctrl-Z does, and returns when it goes on. For a thread that has the terminal and has given it back.
pub fn stop_here() {
    if can_stop() {
        let before = CONTINUED.count();
        // All of the group, as the terminal would.
        if rustix::process::kill_current_process_group(rustix::process::Signal::TSTP).is_ok() {
            CONTINUED.wait_after(before);
        }
    }
}

/// Whether there is a shell that could let the process go on. As the system does with the signal, nothing is stopped that
/// nobody would ever wake, such as the only program of a container.
fn can_stop() -> bool {
    // A parent that lies outside this namespace cannot be asked.
    let Some(parent) = rustix::process::getppid() else { return false };
    let (Some(own), Some(parent)) = (place_of(None), place_of(Some(parent))) else { return false };
    // A script may stand between the two: then the shell has made a group of the script and what it starts.
    let is_job = own.group != own.session || parent.group != own.session;
    parent.session == own.session && is_job
}

/// How often the process went on after it was stopped.
struct GoingOn {
    count: Mutex<u64>,
    changed: Condvar,
}

static CONTINUED: GoingOn = GoingOn { count: Mutex::new(0), changed: Condvar::new() };

impl GoingOn {
    fn went_on(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_after(&self, before: u64) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(count, |count| *count == before));
    }
}

/// A sleep would begin again with each signal that comes meanwhile, and forget the time that its handling took.
fn wait_until(moment: Instant) {
    while let Some(left) = moment.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// Ends the process at once. Nothing is flushed, because that could wait for a reader that does not read.
fn end(received: StopSignal) -> ! {
    terminal::restore_lent();
    signal_hook::low_level::exit(i32::from(received.exit_code()))
}
