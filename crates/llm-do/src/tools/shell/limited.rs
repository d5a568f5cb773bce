//! The moment before a command: a program of ours that takes the command's limits and then becomes the command, so that they
//! hold before its first instruction. Nobody can set them from outside in time.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::process::{Launch, Limit, limit, limits};
use crate::tools::fence::keep::COMMAND;

/// The second argument of a program that is to become a command.
pub const ROLE: &str = "limited";
/// As shells say that a program cannot be started.
const NOT_STARTED: u8 = 127;

/// What is started in the place of a command.
pub fn command(launcher: &Path, launch: &Launch) -> Result<Command, String> {
    let limits = serde_json::to_string(&limits(launch.may_write))
        .map_err(|error| format!("its limits cannot be told: {error}"))?;
    let mut command = Command::new(launcher);
    command.args([COMMAND, ROLE, &limits]).arg(&launch.program).arg(&launch.name).args(&launch.arguments);
    Ok(command)
}

/// Takes the limits and becomes the command. It returns only if it cannot.
pub fn become_command(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, String> {
    let mut next = || arguments.next().ok_or("it is started by `llm-do` alone");
    let (limits, program, name) = (next()?, next()?, next()?);
    let limits = limits.to_str().and_then(|limits| serde_json::from_str::<Vec<Limit>>(limits).ok());
    for (resource, amount) in limits.ok_or("it is started by `llm-do` alone")? {
        limit(None, resource, amount);
    }
    let error = Command::new(&program).arg0(name).args(arguments).exec();
    // The streams are the command's.
    let _ = writeln!(std::io::stderr(), "{} cannot be started: {error}", Path::new(&program).display());
    Ok(ExitCode::from(NOT_STARTED))
}
