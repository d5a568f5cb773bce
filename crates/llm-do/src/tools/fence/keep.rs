//! The keeper: this program, started again to be process 1 of namespaces of its own. It takes bounds, makes the files
//! that they describe its only ones, gives every privilege away, and runs commands one by one. It ends when the pipe
//! does through which it is spoken to, and everything in its namespaces with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, ExitCode};
use std::sync::mpsc;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::SigSet;
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    set_capabilities, set_no_new_privs,
};
use serde::de::DeserializeOwned;

use super::lodge;
use super::message::{KeeperBounds, KeeperReply, read_message, write_message};
use super::mounts::FenceRoot;
use crate::tools::shell::limited;
use crate::tools::shell::process::{Ground, ProcessResult, ProcessSpec};

pub(crate) use super::message::COMMAND;

const INIT: &str = "init";
/// The keeper of one program, which has to have namespaces first.
pub(crate) const TENANT: &str = "tenant";
const TENANT_INIT: &str = "tenant-init";
/// The same without namespaces.
pub(crate) const THIN_TENANT: &str = "thin-tenant";

/// Becomes a keeper if the arguments ask for one. It must be the first thing that a program does: namespaces are for
/// processes with one thread.
pub fn kept(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let ended = match arguments.next() {
        None => separate(INIT),
        Some(role) if role == INIT => live(),
        Some(role) if role == TENANT => separate_for_tenant(),
        Some(role) if role == TENANT_INIT => lodge::live(),
        Some(role) if role == THIN_TENANT => lodge::live_among_others(),
        Some(role) if role == limited::ROLE => limited::become_command(arguments),
        Some(_) => Err("it is started by `llm-do` alone".to_owned()),
    };
    Some(match ended {
        Ok(code) => code,
        Err(reason) => {
            // A session that does not listen any more needs no reason.
            let _ = say(&KeeperReply::Failed(reason), &[]);
            ExitCode::FAILURE
        }
    })
}

/// Keeps the signal away that asks a process group to end: it is for the program, and the keeper ends after the
/// program.
fn separate_for_tenant() -> Result<ExitCode, String> {
    let mut asked = SigSet::empty();
    asked.add(nix::sys::signal::Signal::SIGTERM);
    asked.thread_block().map_err(|error| format!("the keeper cannot begin: {}", error.desc()))?;
    separate(TENANT_INIT)
}

/// Leaves the namespaces of the user, and starts process 1 of the new ones.
fn separate(role: &str) -> Result<ExitCode, String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let own = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    unshare(own).map_err(|error| format!("no namespaces: {}", error.desc()))?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("no namespaces: {file}: {error}"))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))?;
    let mount = CapabilitySet::SYS_ADMIN;
    let present = capabilities(None).map_err(no_privileges)?;
    set_capabilities(None, CapabilitySets { inheritable: mount, ..present }).map_err(no_privileges)?;
    configure_capability_in_ambient_set(mount, true).map_err(no_privileges)?;
    let mut init = Command::new("/proc/self/exe");
    init.args([COMMAND, role]).env_clear();
    // Process 1 soon replaces the root for both processes, so `/dev/null` is opened before that.
    let nothing = lodge::nothing()?;
    let mut init = init.spawn().map_err(|error| format!("the keeper does not start: {error}"))?;
    lodge::leave_streams(&nothing)?;
    let status = init.wait().map_err(|error| format!("the keeper is lost: {error}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn no_privileges(error: rustix::io::Errno) -> String {
    format!("no privileges in its namespaces: {error}")
}

/// The first thing that process 1 does: it asks the kernel to end it together with the process that started it.
pub(crate) fn begin() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(lost)
}

fn lost(error: rustix::io::Errno) -> String {
    format!("the keeper cannot begin: {error}")
}

/// Gives up all privileges, and makes sure that what this process starts can neither look into it nor speak through its
/// pipes.
pub(crate) fn without_privileges() -> Result<(), String> {
    give_up_privileges().map_err(no_privileges)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(lost)
}

/// What process 1 does from its start to its end.
fn live() -> Result<ExitCode, String> {
    begin()?;
    let stage = FenceRoot::set()?;
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?);
    said(say(&KeeperReply::Ready, &[]))?;
    let Some(KeeperBounds { bounds, limits }) = hear(&mut input)? else { return Ok(ExitCode::SUCCESS) };
    stage.enter(&bounds, None)?;
    without_privileges()?;
    let ground = Ground::kept(&bounds, &limits)?;
    said(say(&KeeperReply::Ready, &[]))?;
    for launch in launches(input) {
        let finished = ground.supervise(&launch?);
        said(match finished {
            Ok(ProcessResult { stdout, stderr, ended, truncated }) => {
                let reply = KeeperReply::Finished { ended, truncated, stdout: stdout.len(), stderr: stderr.len() };
                say(&reply, &[&stdout, &stderr])
            }
            Err(reason) => say(&KeeperReply::Failed(reason), &[]),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives up all privileges for good: a program that is executed by root gets none back.
fn give_up_privileges() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// The commands that are to be run, one by one. The end of the pipe ends this process whatever it does, and so all
/// others.
fn launches(mut input: File) -> mpsc::Receiver<Result<ProcessSpec, String>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(Some(launch)) = hear(&mut input) {
            if sender.send(Ok(launch)).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    receiver
}

/// The same result with a reason in words, for a reply that did not arrive.
pub(crate) fn said(said: io::Result<()>) -> Result<(), String> {
    said.map_err(|error| format!("nobody listens: {error}"))
}

/// Writes one reply to stdout, and these bytes after it; an error means that the session has stopped listening.
pub(crate) fn say(reply: &KeeperReply, bytes: &[&[u8]]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    write_message(&mut output, reply)?;
    bytes.iter().try_for_each(|bytes| output.write_all(bytes))?;
    output.flush()
}

/// Reads one message; `None` means that the session has ended, an error that it said something unknown.
pub(crate) fn hear<T: DeserializeOwned>(input: &mut File) -> Result<Option<T>, String> {
    read_message(input).map_err(|error| format!("it is spoken to in words that it does not know: {error}"))
}
