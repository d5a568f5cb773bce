//! A child process from its start to its end: no shell, no input, a fixed environment, bounded time, output and
//! resources, and nothing left of it or of what it started.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::oneshot;

use super::fence::{Bounds, Fence};

/// What is started, and under which bounds.
#[derive(Debug)]
pub struct Launch {
    /// Absolute.
    pub program: PathBuf,
    /// As which the program knows itself.
    pub name: String,
    pub arguments: Vec<String>,
    /// All of it.
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    pub timeout: Duration,
    pub overflow: Overflow,
    pub limits: Vec<Limit>,
    /// `None`: without a fence.
    pub bounds: Option<Bounds>,
}

/// What becomes of a command that says more than is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// It only reads: nothing is lost by ending it.
    End,
    /// It works: it goes on, unheard.
    Discard,
}

/// A resource and how much of it a process may have.
pub type Limit = (rustix::process::Resource, u64);

/// How a command ended and what it said.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub ended: Ended,
    /// Not everything that it said was kept.
    pub truncated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Killed(i32),
    TimedOut,
    SaidTooMuch,
}

/// So much is kept of each stream.
pub const MOST_STDOUT: usize = 40_000;
pub const MOST_STDERR: usize = 10_000;
/// By this variable a process is recognised that left its group, where no fence keeps it there.
pub const MARK: &str = "LLM_DO_COMMAND";

/// Runs a command. Dropping the future ends it at once, with all that it started.
pub async fn run(launch: Launch, supervisors: &Supervisors) -> Result<Finished, String> {
    let supervisor = supervisors.take(launch.bounds.as_ref())?;
    let leash = Arc::new(Leash { group: supervisor.group, state: Mutex::new(State::NotStarted) });
    let _ends_it = EndWhenDropped(Arc::clone(&leash));
    let (reply, finished) = oneshot::channel();
    let gone = || "the thread of the commands has ended".to_owned();
    supervisor.orders.send(Order { launch, leash, reply }).map_err(|_| gone())?;
    let finished = finished.await.map_err(|_| gone())??;
    supervisors.give_back(supervisor);
    Ok(finished)
}

/// Threads that start a toolset's commands, one command at a time each. To put a fence on a thread costs as much as to
/// start a command, and it stays there; so a thread is kept for the next command within the same bounds.
#[derive(Debug)]
pub struct Supervisors {
    holder: Option<PathBuf>,
    free: Mutex<Vec<Supervisor>>,
}

#[derive(Debug)]
struct Supervisor {
    bounds: Option<Bounds>,
    group: Pid,
    /// The thread ends when this is dropped.
    orders: mpsc::Sender<Order>,
}

struct Order {
    launch: Launch,
    leash: Arc<Leash>,
    reply: oneshot::Sender<Result<Finished, String>>,
}

impl Supervisors {
    /// `holder` is a program that does nothing: processes of it hold the groups of commands.
    pub fn new(holder: Option<PathBuf>) -> Self {
        Self { holder, free: Mutex::default() }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Supervisor>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bounds: Option<&Bounds>) -> Result<Supervisor, String> {
        let mut free = self.free();
        free.retain(|supervisor| is_held(supervisor.group));
        match free.iter().position(|supervisor| supervisor.bounds.as_ref() == bounds) {
            Some(at) => Ok(free.swap_remove(at)),
            None => Supervisor::start(self.holder.as_ref().ok_or("the program `true` is not there")?, bounds),
        }
    }

    fn give_back(&self, supervisor: Supervisor) {
        self.free().push(supervisor);
    }
}

impl Supervisor {
    fn start(holder: &PathBuf, bounds: Option<&Bounds>) -> Result<Self, String> {
        let held = Group::new(holder)?;
        let group = held.id;
        let fence = bounds.map(|bounds| Fence::new(bounds, group)).transpose()?;
        let (orders, inbox) = mpsc::channel::<Order>();
        let thread = std::thread::Builder::new().name("commands".to_owned());
        let started = thread.spawn(move || {
            let _held = held;
            let fenced = fence.map_or(Ok(()), Fence::restrict_thread);
            for Order { launch, leash, reply } in inbox {
                let finished = fenced.clone().and_then(|()| supervise(&launch, &leash));
                // Nobody waits for it if the call was dropped.
                let _ = reply.send(finished);
            }
        });
        started.map_err(|error| format!("no thread for commands: {error}"))?;
        Ok(Self { bounds: bounds.cloned(), group, orders })
    }
}

/// A process group for commands. It is held by a process that has ended and was not waited for: it is there before the
/// command and after it, so that a fence can name the one group that commands may be in.
#[derive(Debug)]
struct Group {
    id: Pid,
    holder: Child,
}

/// An embedding program that waits for all children may have taken the holder away.
fn is_held(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group).is_ok()
}

impl Group {
    fn new(holder: &PathBuf) -> Result<Self, String> {
        let mut command = Command::new(holder);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let holder = command.spawn().map_err(|error| format!("no process group: {error}"))?;
        let id = pid_of(&holder);
        Ok(Self { id, holder })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.holder.wait();
    }
}

fn pid_of(child: &Child) -> Pid {
    let id = i32::try_from(child.id()).unwrap_or(i32::MAX);
    Pid::from_raw(id).expect("a child has a process id")
}

/// What ends a command from outside.
struct Leash {
    group: Pid,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotStarted,
    Running,
    /// Its group may belong to another command by now.
    Over,
}

impl Leash {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct EndWhenDropped(Arc<Leash>);

impl Drop for EndWhenDropped {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if *state == State::Running {
            let _ = kill_process_group(self.0.group, Signal::KILL);
        }
        *state = State::Over;
    }
}

fn supervise(launch: &Launch, leash: &Leash) -> Result<Finished, String> {
    let mut child = start(launch, leash)?;
    for (resource, amount) in &launch.limits {
        limit(&child, *resource, *amount);
    }
    let watched = watch(launch, &mut child);
    // Before the child is waited for: as long as nobody did, its id is nobody else's.
    let _ = kill_process_group(leash.group, Signal::KILL);
    let (mut heard, ended) = match watched {
        Ok(watched) => watched,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            *leash.state() = State::Over;
            return Err(format!("the command was lost: {error}"));
        }
    };
    let status = child.wait().map_err(|error| format!("the command was lost: {error}"))?;
    *leash.state() = State::Over;
    if launch.bounds.is_none() {
        end_strays(launch);
    }
    heard.drain();
    Ok(heard.finished(ended.unwrap_or_else(|| how_it_ended(status))))
}

fn start(launch: &Launch, leash: &Leash) -> Result<Child, String> {
    let mut command = Command::new(&launch.program);
    command.arg0(&launch.name).args(&launch.arguments).current_dir(&launch.directory);
    command.env_clear().envs(launch.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(leash.group.as_raw_nonzero().get());
    let mut state = leash.state();
    if *state == State::Over {
        return Err("cancelled".to_owned());
    }
    let child = command.spawn().map_err(|error| format!("{} cannot be started: {error}", launch.program.display()))?;
    *state = State::Running;
    Ok(child)
}

#[cfg(target_os = "linux")]
fn limit(child: &Child, resource: rustix::process::Resource, amount: u64) {
    let limit = rustix::process::Rlimit { current: Some(amount), maximum: Some(amount) };
    // One that is already stricter, or a child that is already gone.
    let _ = rustix::process::prlimit(Some(pid_of(child)), resource, limit);
}

#[cfg(not(target_os = "linux"))]
fn limit(_: &Child, _: rustix::process::Resource, _: u64) {}

/// Listens until the child ends, its time is up, or it has said too much; the latter two are the answer.
fn watch(launch: &Launch, child: &mut Child) -> io::Result<(Heard, Option<Ended>)> {
    let deadline = Instant::now() + launch.timeout;
    let end = descriptor_of(child)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut heard = Heard {
        stdout: Stream::new(stdout.map(OwnedFd::from), MOST_STDOUT)?,
        stderr: Stream::new(stderr.map(OwnedFd::from), MOST_STDERR)?,
    };
    loop {
        let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
            return Ok((heard, Some(Ended::TimedOut)));
        };
        let mut waiting: Vec<PollFd<'_>> = end.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let open = [&heard.stdout, &heard.stderr].into_iter().filter_map(|stream| stream.pipe.as_ref());
        waiting.extend(open.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let left = if end.is_some() { left } else { left.min(BETWEEN_LOOKS) };
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut waiting, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // First whether it has ended, then what it said: nothing can come after that.
        let has_ended = has_ended(child)?;
        heard.read();
        if heard.overflowed() && launch.overflow == Overflow::End {
            return Ok((heard, Some(Ended::SaidTooMuch)));
        }
        if has_ended {
            return Ok((heard, None));
        }
    }
}

/// Where there is no descriptor that tells of the end of a process, it is looked for so often.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

#[cfg(target_os = "linux")]
fn descriptor_of(child: &Child) -> io::Result<Option<OwnedFd>> {
    Ok(Some(rustix::process::pidfd_open(pid_of(child), rustix::process::PidfdFlags::empty())?))
}

#[cfg(not(target_os = "linux"))]
fn descriptor_of(_: &Child) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Without waiting for it: its id, and its group's, must stay its own.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    Ok(waitid(WaitId::Pid(pid_of(child)), options)?.is_some())
}

struct Heard {
    stdout: Stream,
    stderr: Stream,
}

impl Heard {
    fn read(&mut self) {
        self.stdout.read();
        self.stderr.read();
    }

    /// What was still on its way.
    fn drain(&mut self) {
        self.read();
    }

    fn overflowed(&self) -> bool {
        self.stdout.overflowed
    }

    fn finished(self, ended: Ended) -> Finished {
        let truncated = self.stdout.overflowed || self.stderr.overflowed;
        Finished { stdout: self.stdout.kept, stderr: self.stderr.kept, ended, truncated }
    }
}

/// One end of a pipe, and the beginning of what came out of it.
struct Stream {
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
    most: usize,
    overflowed: bool,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>, most: usize) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            let flags = rustix::fs::fcntl_getfl(pipe)?;
            rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Self { pipe, kept: Vec::new(), most, overflowed: false })
    }

    /// Everything that is there now, but never more than a pipe holds: others want to be heard too.
    fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        for _ in 0..64 {
            let Some(pipe) = &self.pipe else { return };
            match rustix::io::read(pipe.as_fd(), &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let room = self.most - self.kept.len();
                    self.kept.extend_from_slice(&buffer[..count.min(room)]);
                    self.overflowed |= count > room;
                    if self.overflowed && count > room {
                        // The caller decides whether to go on listening.
                        return;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }
}

fn how_it_ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Killed(signal.unwrap_or(0)),
    }
}

/// Ends what left the group. Only where there is no fence to keep it in: processes are recognised by a variable that
/// they inherited, which one that wants to hide can remove.
fn end_strays(launch: &Launch) {
    const MOST_ROUNDS: usize = 20;
    let Some(mark) =
        launch.environment.iter().find(|(name, _)| name == MARK).map(|(name, value)| format!("{name}={value}"))
    else {
        return;
    };
    for _ in 0..MOST_ROUNDS {
        let strays = marked(mark.as_bytes());
        if strays.is_empty() {
            return;
        }
        for stray in strays {
            let _ = rustix::process::kill_process(stray, Signal::KILL);
        }
    }
}

fn marked(mark: &[u8]) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_marked = |pid: &Pid| {
        let mut environment = Vec::new();
        let file = std::fs::File::open(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let read = file.and_then(|file| file.take(1 << 20).read_to_end(&mut environment));
        read.is_ok() && environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(Pid::from_raw).filter(is_marked).collect()
}
