//! The keeper: this program, started again to be process 1 of namespaces of its own. It takes bounds, makes the files
//! that they describe its only ones, gives every privilege away, and runs commands one by one. It ends when the pipe
//! does through which it is spoken to, and everything in its namespaces with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, ExitCode};
use std::sync::mpsc;

use nix::sched::{CloneFlags, unshare};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    set_capabilities, set_no_new_privs,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Bounds;
use super::mounts::Stage;
use super::thin::{Around, Restriction};
use crate::tools::shell::process::{Ended, Finished, Ground, Launch};

/// The first argument of a program that is to be a keeper.
pub const COMMAND: &str = "__keep";
const INIT: &str = "init";

/// What a keeper answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It has namespaces, and waits for bounds; then, that it is within them.
    Ready,
    /// The command has ended; so many bytes of its two streams follow.
    Finished {
        ended: Ended,
        truncated: bool,
        stdout: usize,
        stderr: usize,
    },
    Failed(String),
}

/// Becomes a keeper if the arguments ask for one. It must be the first thing that a program does: namespaces are for
/// processes with one thread.
pub fn kept(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let ended = match arguments.next() {
        None => separate(),
        Some(role) if role == INIT => live(),
        Some(_) => Err("it is started by `llm-do` alone".to_owned()),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Whoever does not listen any more needs no reason.
            let _ = say(&Reply::Failed(reason), &[]);
            ExitCode::FAILURE
        }
    })
}

/// Leaves the namespaces of the user, and starts process 1 of the new ones.
fn separate() -> Result<(), String> {
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
    init.args([COMMAND, INIT]).env_clear();
    let mut init = init.spawn().map_err(|error| format!("the keeper does not start: {error}"))?;
    init.wait().map(drop).map_err(|error| format!("the keeper is lost: {error}"))
}

fn no_privileges(error: rustix::io::Errno) -> String {
    format!("no privileges in its namespaces: {error}")
}

/// The life of process 1.
fn live() -> Result<(), String> {
    let lost = |error: rustix::io::Errno| format!("the keeper cannot begin: {error}");
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(lost)?;
    let stage = Stage::set()?;
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?);
    said(say(&Reply::Ready, &[]))?;
    let Some(bounds) = hear::<Bounds>(&mut input)? else { return Ok(()) };
    stage.enter(&bounds)?;
    give_up_privileges().map_err(no_privileges)?;
    // What it started cannot look into it, nor speak through its pipes.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(lost)?;
    let ground = Ground::kept(Restriction::new(&bounds, Around::Keeper)?)?;
    said(say(&Reply::Ready, &[]))?;
    for launch in launches(input) {
        let finished = ground.supervise(&launch?);
        said(match finished {
            Ok(Finished { stdout, stderr, ended, truncated }) => {
                let reply = Reply::Finished { ended, truncated, stdout: stdout.len(), stderr: stderr.len() };
                say(&reply, &[&stdout, &stderr])
            }
            Err(reason) => say(&Reply::Failed(reason), &[]),
        })?;
    }
    Ok(())
}

/// All of them, for good: a program that is executed by root gets none back.
fn give_up_privileges() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// What is to be run, one by one. The end of the pipe ends this process whatever it does, and so all others.
fn launches(mut input: File) -> mpsc::Receiver<Result<Launch, String>> {
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

fn said(said: io::Result<()>) -> Result<(), String> {
    said.map_err(|error| format!("nobody listens: {error}"))
}

fn say(reply: &Reply, bytes: &[&[u8]]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    write_message(&mut output, reply)?;
    bytes.iter().try_for_each(|bytes| output.write_all(bytes))?;
    output.flush()
}

fn hear<T: DeserializeOwned>(input: &mut File) -> Result<Option<T>, String> {
    read_message(input).map_err(|error| format!("it is spoken to in words that it does not know: {error}"))
}

/// A message is its length, four bytes, and JSON.
pub fn write_message(output: &mut impl io::Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    output.write_all(&[&length.to_le_bytes(), json.as_slice()].concat())
}

/// The next message; `None` at the end.
pub fn read_message<T: DeserializeOwned>(input: &mut impl io::Read) -> io::Result<Option<T>> {
    const LONGEST: u32 = 64 << 20;
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut json = Vec::new();
    input.take(length.into()).read_to_end(&mut json)?;
    Ok(Some(serde_json::from_slice(&json)?))
}
