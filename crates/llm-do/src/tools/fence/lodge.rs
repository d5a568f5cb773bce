//! The keeper of one program that lives as long as a run. What it is told comes through the program's own stdin, and
//! its answer goes to the program's own stdout, before the program is there; from then on these streams are the
//! program's alone. It ends with the program, and with the process that listens to the program's stderr; everything
//! that the program started ends with it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    DumpableBehavior, Signal, WaitOptions, getpid, kill_process_group, set_dumpable_behavior, wait, waitpid,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};

use super::bounds::Tenancy;
use super::keep::{begin, hear, said, say, without_privileges};
use super::message::KeeperReply;
use super::mounts::FenceRoot;
use super::thin::{Around, ThreadRestriction};

/// Keeps a program as process 1 of namespaces of its own.
pub(crate) fn live() -> Result<ExitCode, String> {
    begin()?;
    let stage = FenceRoot::set()?;
    let Some(tenancy) = told()? else { return Ok(ExitCode::SUCCESS) };
    stage.enter(&tenancy.bounds, Some(&tenancy.directory))?;
    without_privileges()?;
    house(&tenancy, Around::Keeper)
}

/// Keeps a program among the user's other processes, as the first of a process group that nothing leaves.
pub(crate) fn live_among_others() -> Result<ExitCode, String> {
    let Some(tenancy) = told()? else { return Ok(ExitCode::SUCCESS) };
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("the keeper cannot begin: {error}"))?;
    house(&tenancy, Around::Thread { group: getpid() })
}

fn told() -> Result<Option<Tenancy>, String> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    hear(&mut File::from(input))
}

fn house(tenancy: &Tenancy, around: Around) -> Result<ExitCode, String> {
    let restriction = ThreadRestriction::new(&tenancy.bounds, around)?;
    fs::metadata(&tenancy.program).map_err(|error| cannot_start(tenancy, &error.to_string()))?;
    said(say(&KeeperReply::Ready, &[]))?;
    let child = match started(tenancy, restriction) {
        Ok(child) => child,
        Err(reason) => {
            // The other streams are the program's by now, and this one is read by people.
            let _ = writeln!(io::stderr(), "{reason}");
            return Ok(ExitCode::from(NOT_STARTED));
        }
    };
    leave_streams(&nothing()?)?;
    end_with_listener(around)?;
    Ok(outlast(&child, around))
}

/// The exit codes by which shells say the same.
const NOT_STARTED: u8 = 127;
const BY_SIGNAL: i32 = 128;

fn cannot_start(tenancy: &Tenancy, reason: &str) -> String {
    format!("{} cannot be started behind the fence: {reason}", tenancy.program.display())
}

/// Starts the program on a thread that is restricted, because the keeper itself may do more than the program.
fn started(tenancy: &Tenancy, restriction: ThreadRestriction) -> Result<Child, String> {
    let mut command = Command::new(&tenancy.program);
    command.arg0(&tenancy.name).args(&tenancy.arguments).current_dir(&tenancy.directory);
    command.env_clear().envs(&tenancy.environment);
    let starting = std::thread::spawn(move || {
        restriction.restrict_thread()?;
        command.spawn().map_err(|error| error.to_string())
    });
    let started = starting.join().unwrap_or_else(|_| Err("its thread has ended".to_owned()));
    started.map_err(|reason| cannot_start(tenancy, &reason))
}

/// Gives up the keeper's own stdin and stdout: the process that speaks with the program must see when the program
/// closes them.
pub(crate) fn leave_streams(nothing: &File) -> Result<(), String> {
    dup2_stdin(nothing).and_then(|()| dup2_stdout(nothing)).map_err(|error| format!("its streams stay: {error}"))
}

pub(crate) fn nothing() -> Result<File, String> {
    let opened = File::options().read(true).write(true).open("/dev/null");
    opened.map_err(|error| format!("no /dev/null: {error}"))
}

/// Ends this process when its stderr is a pipe without a reader: the process that started it has then ended, in
/// whatever way.
fn end_with_listener(around: Around) -> Result<(), String> {
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let watching = move || {
        while poll(&mut [PollFd::new(&stderr, PollFlags::empty())], None) == Err(rustix::io::Errno::INTR) {}
        if let Around::Thread { group } = around {
            let _ = kill_process_group(group, Signal::KILL);
        }
        std::process::exit(1);
    };
    std::thread::Builder::new().spawn(watching).map(drop).map_err(|error| format!("no thread: {error}"))
}

/// Waits for the program, and as process 1 also for all processes whose parents have ended.
fn outlast(child: &Child, around: Around) -> ExitCode {
    let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    loop {
        let ended = match around {
            Around::Keeper => wait(WaitOptions::empty()),
            Around::Thread { .. } => waitpid(id, WaitOptions::empty()),
        };
        match ended {
            Ok(Some((ended, status))) if Some(ended) == id => {
                let signal = || status.terminating_signal().map(|signal| BY_SIGNAL + signal);
                let code = status.exit_status().or_else(signal).and_then(|code| u8::try_from(code).ok());
                return code.map_or(ExitCode::FAILURE, ExitCode::from);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
