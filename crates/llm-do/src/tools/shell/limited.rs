//! The moment before a command, or any other program: a program of ours that takes its limits and then becomes it, so
//! that they hold before its first instruction. A process outside could not set them in time.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::process::{Resource, ResourceLimit, limit};
use crate::descriptors;
use crate::tools::fence::keep::COMMAND;
use crate::tools::fence::tenant::can_be_run;

/// The second argument of a program that is to become a command.
pub(crate) const ROLE: &str = "limited";
/// As shells say that a program cannot be started.
const NOT_STARTED: u8 = 127;

/// What is started in the place of a program, without its arguments.
pub(crate) fn command(
    launcher: &Path,
    limits: &[ResourceLimit],
    program: &Path,
    name: impl AsRef<OsStr>,
) -> Result<Command, String> {
    let limits = serde_json::to_string(limits).map_err(|error| format!("its limits cannot be told: {error}"))?;
    let mut command = Command::new(launcher);
    command.args([COMMAND, ROLE, &limits]).arg(program).arg(name);
    Ok(command)
}

/// A program with the user's rights, in its directory and with all of its environment, but without its arguments. It
/// finds as many files open for it as the process that started us has allowed, and not as many as we have taken since.
pub(crate) fn resident(
    launcher: Option<&Path>,
    program: &Path,
    directory: Option<&Path>,
    variables: &BTreeMap<String, String>,
) -> Command {
    // A program that is not there is started directly, because only then the system itself says that it is missing.
    let is_there = || can_be_run(program, directory.unwrap_or(Path::new(".")), variables);
    let lowered = descriptors::before().zip(launcher).filter(|_| is_there()).and_then(|(before, launcher)| {
        command(launcher, &[(Resource::DescriptorsAtFirst, before)], program, program).ok()
    });
    let mut command = lowered.unwrap_or_else(|| Command::new(program));
    command.env_clear().envs(variables);
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command
}

/// Takes the limits and becomes the command. It returns only if it cannot.
pub(crate) fn become_command(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, String> {
    let mut next = || arguments.next().ok_or("it is started by `llm-do` alone");
    let (limits, program, name) = (next()?, next()?, next()?);
    let limits = limits.to_str().and_then(|limits| serde_json::from_str::<Vec<ResourceLimit>>(limits).ok());
    for (resource, amount) in limits.ok_or("it is started by `llm-do` alone")? {
        limit(None, resource, amount);
    }
    let error = Command::new(&program).arg0(name).args(arguments).exec();
    // The streams are the command's, so the reason is written where its errors are read.
    let _ = writeln!(std::io::stderr(), "{} cannot be started: {error}", Path::new(&program).display());
    Ok(ExitCode::from(NOT_STARTED))
}
