//! Keepers as their callers see them: started, told their bounds, spoken to, ended.

use std::io::{BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::message::{COMMAND, KeeperBounds, KeeperReply, read_message, write_message};
use crate::tools::shell::process::{ProcessResult, ProcessSpec};

/// Starts keepers.
#[derive(Debug)]
pub struct Keepers {
    program: PathBuf,
    /// The keeper whose start showed that there can be keepers. The first caller that needs one takes it.
    first: Mutex<Option<Keeper>>,
}

impl Keepers {
    /// Finds out whether there can be keepers by starting one.
    pub(crate) fn start(program: &Path) -> Result<Self, String> {
        let mut keeper = Keeper::spawn(program)?;
        keeper.begin()?;
        Ok(Self { program: program.to_owned(), first: Mutex::new(Some(keeper)) })
    }

    /// A keeper without bounds.
    pub(crate) fn take(&self) -> Result<Keeper, String> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.map_or_else(|| Keeper::spawn(&self.program), Ok)
    }
}

/// A process that runs commands in namespaces of its own. Dropped, it is ended with everything in them.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    has_begun: bool,
}

/// How long a keeper may take to come up. A program that is no keeper might never answer.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

impl Keeper {
    fn spawn(program: &Path) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.arg(COMMAND).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("the keeper does not start: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or("the keeper has no pipes")?;
        Ok(Self { child, input, output: BufReader::new(output), has_begun: false })
    }

    /// The process group of the keeper. Killing it ends everything that the keeper runs.
    pub(crate) fn group(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has a process id")
    }

    /// Waits until it has namespaces.
    fn begin(&mut self) -> Result<(), String> {
        if !self.has_begun {
            self.ready()?;
            self.has_begun = true;
        }
        Ok(())
    }

    /// Puts it within bounds, once and for all.
    pub(crate) fn enclose(&mut self, enclosure: &KeeperBounds) -> Result<(), String> {
        self.begin()?;
        write_message(&mut self.input, enclosure).map_err(lost)?;
        self.ready()
    }

    fn ready(&mut self) -> Result<(), String> {
        let output = self.output.get_ref().as_fd().try_clone_to_owned().map_err(lost)?;
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&PATIENCE)) {
            Ok(1..) | Err(rustix::io::Errno::INTR) => {}
            Ok(0) => return Err("the keeper says nothing".to_owned()),
            Err(error) => return Err(lost(error)),
        }
        match self.reply()? {
            KeeperReply::Ready => Ok(()),
            KeeperReply::Failed(reason) => Err(reason),
            KeeperReply::Finished { .. } => Err("the keeper says what nobody asked".to_owned()),
        }
    }

    fn reply(&mut self) -> Result<KeeperReply, String> {
        read_message(&mut self.output).map_err(lost)?.ok_or_else(|| "the keeper has ended".to_owned())
    }

    /// Runs a command to its end.
    pub(crate) fn run(&mut self, launch: &ProcessSpec) -> Result<ProcessResult, String> {
        write_message(&mut self.input, launch).map_err(lost)?;
        match self.reply()? {
            KeeperReply::Finished { ended, truncated, stdout, stderr } => {
                let (stdout, stderr) = (self.bytes(stdout)?, self.bytes(stderr)?);
                Ok(ProcessResult { stdout, stderr, ended, truncated })
            }
            KeeperReply::Failed(reason) => Err(reason),
            KeeperReply::Ready => Err("the keeper says what nobody asked".to_owned()),
        }
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; count];
        self.output.read_exact(&mut bytes).map_err(lost)?;
        Ok(bytes)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = kill_process_group(self.group(), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn lost(error: impl std::fmt::Display) -> String {
    format!("the keeper is lost: {error}")
}
