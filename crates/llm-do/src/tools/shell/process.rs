//! A child process from its start to its end: no shell, no input, a fixed environment, bounded time, output and
//! resources, and nothing left of it or of what it started.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};

use super::limited;
use crate::beneath::Identity;
use crate::system;
use crate::tools::fence::message::KeeperBounds;
use crate::tools::fence::thin::{Around, ThreadRestriction};
use crate::tools::fence::{Bounds, Fence, FenceKind, Write};

/// What is started, and under which bounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProcessSpec {
    /// Absolute.
    pub program: PathBuf,
    /// The name by which the program knows itself (its argument zero).
    pub name: String,
    pub arguments: Vec<String>,
    /// The whole environment of the program.
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    pub timeout: Duration,
    pub overflow: Overflow,
    /// A command that only reads may have less of the resources.
    pub may_write: bool,
    /// What keeps the command in. A keeper is not told of it, because it is within these bounds already.
    #[serde(skip)]
    pub within: Confinement,
}

/// What keeps a command in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Confinement {
    #[default]
    Nothing,
    Thin(Bounds),
    /// The bounds, and the identities of what they name. A keeper protects these files as they were when it was
    /// started, and no other file that has taken the place of one since.
    Full(Bounds, Vec<Option<Identity>>),
}

impl Confinement {
    /// These bounds, as far as the fence can keep them.
    pub(crate) fn new(bounds: Bounds, fence: &Fence) -> Self {
        match fence.kind {
            FenceKind::Full { .. } => {
                let identities = bounds.paths().map(|path| Identity::of_path(path).ok()).collect();
                Self::Full(bounds, identities)
            }
            FenceKind::Thin { .. } => Self::Thin(bounds),
            FenceKind::None { .. } => Self::Nothing,
        }
    }
}

/// What becomes of a command that says more than is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Overflow {
    /// It only reads: nothing is lost by ending it.
    End,
    /// It works: it goes on, unheard.
    Discard,
}

/// A resource and how much of it a process may have.
pub(crate) type ResourceLimit = (Resource, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Resource {
    Core,
    Descriptors,
    /// The program may have more, up to the limit of the process that starts it, if it asks for more.
    DescriptorsAtFirst,
    Data,
    Processes,
    FileSize,
    Memory,
    Seconds,
}

/// How a command ended and what it said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProcessResult {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub ended: ProcessEnd,
    /// Not everything that it said was kept.
    pub truncated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProcessEnd {
    Exited(i32),
    Killed(i32),
    TimedOut,
    SaidTooMuch,
}

/// So much is kept of each stream.
pub(crate) const MOST_STDOUT: usize = 40_000;
pub(crate) const MOST_STDERR: usize = 10_000;
/// By this variable a process is recognised that left its group, where no fence keeps it there.
pub(crate) const MARK: &str = "LLM_DO_COMMAND";

/// Runs a command. Dropping the future ends it at once, with all that it started.
pub(crate) async fn run(launch: ProcessSpec, supervisors: &Supervisors) -> Result<ProcessResult, String> {
    let gone = || "the thread of the commands has ended".to_owned();
    let _turn = supervisors.turns.acquire().await.map_err(|_| gone())?;
    let supervisor = supervisors.take(&launch.within)?;
    let leash = Arc::new(Leash { group: supervisor.group, state: Mutex::new(LeashState::NotStarted) });
    let _ends_it = EndWhenDropped(Arc::clone(&leash));
    let (reply, finished) = oneshot::channel();
    supervisor.orders.send(ProcessOrder { launch, leash, reply }).map_err(|_| gone())?;
    let finished = finished.await.map_err(|_| gone())??;
    supervisors.give_back(supervisor);
    Ok(finished)
}

/// So many commands run together, each with a thread or a keeper of its own, and so many of these are kept.
const MOST: usize = 8;

/// Threads that start a toolset's commands, one command at a time each, or have a keeper start them. To put a fence on
/// a thread costs as much as to start a command, and a keeper costs several; both stay within their bounds, so they are
/// kept for the next command within the same ones.
#[derive(Debug)]
pub(crate) struct Supervisors {
    holder: Option<PathBuf>,
    fence: Arc<Fence>,
    turns: Semaphore,
    free: Mutex<Vec<Supervisor>>,
}

#[derive(Debug)]
struct Supervisor {
    within: Confinement,
    /// The process group of the commands, or of their keeper.
    group: Pid,
    /// The thread ends when this is dropped.
    orders: mpsc::Sender<ProcessOrder>,
}

struct ProcessOrder {
    launch: ProcessSpec,
    leash: Arc<Leash>,
    reply: oneshot::Sender<Result<ProcessResult, String>>,
}

impl Supervisors {
    /// `holder` is a program that does nothing: processes of it hold the groups of commands.
    pub(crate) fn new(holder: Option<PathBuf>, fence: Arc<Fence>) -> Self {
        Self { holder, fence, turns: Semaphore::new(MOST), free: Mutex::default() }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Supervisor>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, within: &Confinement) -> Result<Supervisor, String> {
        let mut free = self.free();
        free.retain(|supervisor| is_held(supervisor.group));
        match free.iter().position(|supervisor| supervisor.within == *within) {
            Some(at) => Ok(free.remove(at)),
            None => self.start(within),
        }
    }

    fn start(&self, within: &Confinement) -> Result<Supervisor, String> {
        match (within, &self.fence.kind) {
            (Confinement::Full(bounds, _), FenceKind::Full { keepers, .. }) => {
                let mut keeper = keepers.take()?;
                let limits = limits(bounds.write != Write::Nothing);
                let enclosure = KeeperBounds { bounds: bounds.clone(), limits };
                let group = keeper.group();
                let mut enclosed = None;
                Supervisor::start(within, group, move |launch, leash| {
                    enclosed.get_or_insert_with(|| keeper.enclose(&enclosure)).clone()?;
                    leash.begin()?;
                    let finished = keeper.run(launch);
                    *leash.state() = LeashState::Over;
                    finished
                })
            }
            (Confinement::Full(..), _) => Err("there is no keeper".to_owned()),
            (Confinement::Thin(_) | Confinement::Nothing, _) => {
                let held = Group::new(self.holder.as_ref().ok_or("the program `true` is not there")?)?;
                let group = held.id;
                let ground = Ground::among_others(within, group, self.fence.keeper.clone())?;
                Supervisor::start(within, group, move |launch, leash| {
                    let _held = &held;
                    ground.supervised(launch, leash)
                })
            }
        }
    }

    /// Keeps a supervisor for the next command. Those that were not needed for longest are dropped first.
    fn give_back(&self, supervisor: Supervisor) {
        let mut free = self.free();
        free.push(supervisor);
        if free.len() > MOST {
            free.remove(0);
        }
    }
}

impl Supervisor {
    fn start(
        within: &Confinement,
        group: Pid,
        mut run: impl FnMut(&ProcessSpec, &Leash) -> Result<ProcessResult, String> + Send + 'static,
    ) -> Result<Self, String> {
        let (orders, inbox) = mpsc::channel::<ProcessOrder>();
        let thread = std::thread::Builder::new().name("commands".to_owned());
        let started = thread.spawn(move || {
            for ProcessOrder { launch, leash, reply } in inbox {
                // If the call was dropped, it does not wait for the reply.
                let _ = reply.send(run(&launch, &leash));
            }
        });
        started.map_err(|error| format!("no thread for commands: {error}"))?;
        Ok(Self { within: within.clone(), group, orders })
    }
}

/// Where commands are started, and how everything that one of them started is ended.
pub(crate) struct Ground {
    starter: Option<Starter>,
    end: KillScope,
    limits: LimitsFrom,
}

/// Who gives a command its limits.
enum LimitsFrom {
    /// The process that starts it: it has taken them itself, and whatever it starts inherits them.
    Parent,
    /// A program of ours, which takes them and then becomes the command.
    Launcher(PathBuf),
    /// The supervisor, where no launcher is known: it cannot set them in time, so they hold a moment after the start.
    Supervisor,
}

#[derive(Clone, Copy, Debug)]
enum KillScope {
    /// Among the user's other processes.
    Group(Pid),
    /// Whatever process there is besides this one, which is the first of its namespace.
    Everything,
}

impl Ground {
    fn among_others(within: &Confinement, group: Pid, launcher: Option<PathBuf>) -> Result<Self, String> {
        let starter = match within {
            Confinement::Thin(bounds) => Some(Starter::new(bounds, Around::Thread { group }, launcher.as_ref())?),
            Confinement::Nothing | Confinement::Full(..) => None,
        };
        let limits = launcher.map_or(LimitsFrom::Supervisor, LimitsFrom::Launcher);
        Ok(Self { starter, end: KillScope::Group(group), limits })
    }

    /// For process 1 of a namespace. It runs nothing but commands with these limits, so it takes them itself.
    pub(crate) fn kept(bounds: &Bounds, limits: &[ResourceLimit]) -> Result<Self, String> {
        let starter = Starter::new(bounds, Around::Keeper, None)?;
        for (resource, amount) in limits {
            limit(None, *resource, *amount);
        }
        Ok(Self { starter: Some(starter), end: KillScope::Everything, limits: LimitsFrom::Parent })
    }

    /// Runs a command to its end. From outside it ends only together with this process.
    pub(crate) fn supervise(&self, launch: &ProcessSpec) -> Result<ProcessResult, String> {
        let leash = Leash { group: rustix::process::getpid(), state: Mutex::new(LeashState::NotStarted) };
        self.supervised(launch, &leash)
    }

    fn supervised(&self, launch: &ProcessSpec, leash: &Leash) -> Result<ProcessResult, String> {
        let mut child = self.start(launch, leash)?;
        if matches!(self.limits, LimitsFrom::Supervisor) {
            for (resource, amount) in limits(launch.may_write) {
                limit(Some(pid_of(&child)), resource, amount);
            }
        }
        let watched = watch(launch, &mut child);
        // This is done before the child is waited for: until then no other process can get its id.
        self.end.now();
        let (mut heard, ended) = match watched {
            Ok(watched) => watched,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                *leash.state() = LeashState::Over;
                return Err(format!("the command was lost: {error}"));
            }
        };
        let status = child.wait().map_err(|error| format!("the command was lost: {error}"))?;
        *leash.state() = LeashState::Over;
        match self.end {
            KillScope::Group(_) if self.starter.is_none() => end_strays(launch),
            KillScope::Group(_) => {}
            KillScope::Everything => reap(),
        }
        heard.drain();
        Ok(heard.finished(ended.unwrap_or_else(|| how_it_ended(status))))
    }

    fn start(&self, launch: &ProcessSpec, leash: &Leash) -> Result<Child, String> {
        let mut command = match &self.limits {
            LimitsFrom::Launcher(launcher) => {
                let limits = limits(launch.may_write);
                let mut command = limited::command(launcher, &limits, &launch.program, &launch.name)?;
                command.args(&launch.arguments);
                command
            }
            LimitsFrom::Parent | LimitsFrom::Supervisor => {
                let mut command = Command::new(&launch.program);
                command.arg0(&launch.name).args(&launch.arguments);
                command
            }
        };
        command
            .current_dir(&launch.directory)
            .env_clear()
            .envs(launch.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(match self.end {
            KillScope::Group(group) => group.as_raw_nonzero().get(),
            KillScope::Everything => 0,
        });
        let mut state = leash.state();
        if *state == LeashState::Over {
            return Err(CANCELLED.to_owned());
        }
        let started = match &self.starter {
            Some(starter) => starter.start(command)?,
            None => command.spawn(),
        };
        let child = started.map_err(|error| format!("{} cannot be started: {error}", launch.program.display()))?;
        *state = LeashState::Running;
        Ok(child)
    }
}

const CANCELLED: &str = "cancelled";

/// A thread with a fence on it, which starts commands and does nothing else: the thread that supervises them may do
/// more than they.
struct Starter {
    commands: mpsc::Sender<Command>,
    started: Mutex<mpsc::Receiver<Result<io::Result<Child>, String>>>,
}

impl Starter {
    fn new(bounds: &Bounds, around: Around, launcher: Option<&PathBuf>) -> Result<Self, String> {
        let run = bounds.run.iter().chain(launcher).cloned().collect();
        let restriction = ThreadRestriction::new(&Bounds { run, ..bounds.clone() }, around)?;
        let (commands, inbox) = mpsc::channel::<Command>();
        let (sender, started) = mpsc::channel();
        let thread = std::thread::Builder::new().name("fenced".to_owned());
        let running = thread.spawn(move || {
            let restricted = restriction.restrict_thread();
            for mut command in inbox {
                let started = restricted.clone().map(|()| command.spawn());
                if sender.send(started).is_err() {
                    return;
                }
            }
        });
        running.map_err(|error| format!("no thread for commands: {error}"))?;
        Ok(Self { commands, started: Mutex::new(started) })
    }

    fn start(&self, command: Command) -> Result<io::Result<Child>, String> {
        let gone = || "the fenced thread has ended".to_owned();
        self.commands.send(command).map_err(|_| gone())?;
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.recv().map_err(|_| gone())?
    }
}

impl KillScope {
    fn now(self) {
        match self {
            Self::Group(group) => drop(kill_process_group(group, Signal::KILL)),
            Self::Everything => system::kill_all_others(),
        }
    }
}

/// Waits for those whose parents have ended.
fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::empty()) {}
}

/// A process group for commands. It is held by a process that has ended and was not waited for: it is there before the
/// command and after it, so that a fence can name the one group that commands may be in.
#[derive(Debug)]
struct Group {
    id: Pid,
    holder: Child,
}

/// Whether the group is still held: an embedding program that waits for all children may have taken the holder away.
fn is_held(group: Pid) -> bool {
    system::is_group(group)
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
    state: Mutex<LeashState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeashState {
    NotStarted,
    Running,
    /// Its group may belong to another command by now.
    Over,
}

impl Leash {
    fn state(&self) -> MutexGuard<'_, LeashState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Result<(), String> {
        let mut state = self.state();
        if *state == LeashState::Over {
            return Err(CANCELLED.to_owned());
        }
        *state = LeashState::Running;
        Ok(())
    }
}

struct EndWhenDropped(Arc<Leash>);

impl Drop for EndWhenDropped {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if *state == LeashState::Running {
            let _ = kill_process_group(self.0.group, Signal::KILL);
        }
        *state = LeashState::Over;
    }
}

const GIB: u64 = 1 << 30;
/// No command may take longer, whatever the model asks for.
pub(crate) const LONGEST: Duration = Duration::from_mins(5);

/// Bounds that the kernel keeps for each process, fence or none. A command is ended by the clock; the limit on the
/// processor's time, of which a process may use that of all processors at once, is for what is not watched any more.
pub(crate) fn limits(may_write: bool) -> Vec<ResourceLimit> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut limits = vec![
        (Resource::Core, 0),
        (Resource::Descriptors, 1024),
        (Resource::Data, 4 * GIB),
        // The limit counts all of the user's, and must leave room for those of others.
        (Resource::Processes, system::processes().unwrap_or(4096) + 1024),
        (Resource::Seconds, (LONGEST.as_secs() + 5) * processors),
    ];
    if may_write {
        limits.push((Resource::FileSize, 4 * GIB));
    } else {
        limits.extend([(Resource::FileSize, 0), (Resource::Memory, 16 * GIB)]);
    }
    limits
}

/// Sets a limit of a process, or of this one.
pub(crate) fn limit(process: Option<Pid>, resource: Resource, amount: u64) {
    use rustix::process::Resource as Kernel;
    let kernel = match resource {
        Resource::Core => Kernel::Core,
        Resource::Descriptors | Resource::DescriptorsAtFirst => Kernel::Nofile,
        Resource::Data => Kernel::Data,
        Resource::Processes => Kernel::Nproc,
        Resource::FileSize => Kernel::Fsize,
        Resource::Memory => Kernel::As,
        Resource::Seconds => Kernel::Cpu,
    };
    let maximum = match resource {
        Resource::DescriptorsAtFirst => rustix::process::getrlimit(kernel).maximum,
        _ => Some(amount),
    };
    let limit = rustix::process::Rlimit { current: Some(amount), maximum };
    // This fails for a limit that is already stricter, or a child that is already gone.
    let _ = system::set_limit(process, kernel, limit);
}

/// Listens until the child ends, its time is up, or it has said too much; the latter two are the answer.
fn watch(launch: &ProcessSpec, child: &mut Child) -> io::Result<(OutputPipes, Option<ProcessEnd>)> {
    let deadline = Instant::now() + launch.timeout;
    let end = system::end_of(pid_of(child))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut heard = OutputPipes {
        stdout: OutputPipe::new(stdout.map(OwnedFd::from), MOST_STDOUT)?,
        stderr: OutputPipe::new(stderr.map(OwnedFd::from), MOST_STDERR)?,
    };
    loop {
        let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
            return Ok((heard, Some(ProcessEnd::TimedOut)));
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
            return Ok((heard, Some(ProcessEnd::SaidTooMuch)));
        }
        if has_ended {
            return Ok((heard, None));
        }
    }
}

/// Where there is no descriptor that tells of the end of a process, it is looked for so often.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Whether the child has ended. It is not waited for, because its id, and its group's, must stay its own.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    Ok(waitid(WaitId::Pid(pid_of(child)), options)?.is_some())
}

struct OutputPipes {
    stdout: OutputPipe,
    stderr: OutputPipe,
}

impl OutputPipes {
    fn read(&mut self) {
        self.stdout.read();
        self.stderr.read();
    }

    /// Reads what was still on its way.
    fn drain(&mut self) {
        self.read();
    }

    fn overflowed(&self) -> bool {
        self.stdout.overflowed
    }

    fn finished(self, ended: ProcessEnd) -> ProcessResult {
        let truncated = self.stdout.overflowed || self.stderr.overflowed;
        ProcessResult { stdout: self.stdout.kept, stderr: self.stderr.kept, ended, truncated }
    }
}

/// One end of a pipe, and the beginning of what came out of it.
struct OutputPipe {
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
    most: usize,
    overflowed: bool,
}

impl OutputPipe {
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

fn how_it_ended(status: ExitStatus) -> ProcessEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnd::Exited(code),
        (None, signal) => ProcessEnd::Killed(signal.unwrap_or(0)),
    }
}

/// Ends what left the group. Only where there is no fence to keep it in: processes are recognised by a variable that
/// they inherited, which one that wants to hide can remove.
fn end_strays(launch: &ProcessSpec) {
    const MOST_ROUNDS: usize = 20;
    let Some(mark) =
        launch.environment.iter().find(|(name, _)| name == MARK).map(|(name, value)| format!("{name}={value}"))
    else {
        return;
    };
    for _ in 0..MOST_ROUNDS {
        let strays = system::processes_with(mark.as_bytes());
        if strays.is_empty() {
            return;
        }
        for stray in strays {
            let _ = rustix::process::kill_process(stray, Signal::KILL);
        }
    }
}
