//! Systems for which there is no fence yet: each part of it in the shape that the others use.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::Pid;

use super::Bounds;
use super::message::KeeperBounds;
use crate::tools::shell::limited;
use crate::tools::shell::process::{ProcessResult, ProcessSpec};

const NONE: &str = "this system has none that is known here";
pub(crate) use super::message::COMMAND;
/// The roles of keepers that live with a program. No process is started in one of them on these systems.
pub(crate) const TENANT: &str = "tenant";
pub(crate) const THIN_TENANT: &str = "thin-tenant";

/// A restriction that cannot be made on these systems.
#[derive(Debug)]
pub(crate) enum ThreadRestriction {}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "in the shape of the thin fence, which reads it")]
pub(crate) enum Around {
    Thread { group: Pid },
    Keeper,
}

impl ThreadRestriction {
    pub(crate) fn new(_: &Bounds, _: Around) -> Result<Self, String> {
        Err(NONE.to_owned())
    }

    pub(crate) fn restrict_thread(self) -> Result<(), String> {
        match self {}
    }
}

pub(crate) fn offered() -> Result<String, String> {
    Err(NONE.to_owned())
}

/// Keepers, which cannot be started on these systems.
#[derive(Debug)]
pub enum Keepers {}

/// A keeper, which cannot be started on these systems.
#[derive(Debug)]
pub(crate) enum Keeper {}

impl Keepers {
    pub(crate) fn start(_: &Path) -> Result<Self, String> {
        Err(NONE.to_owned())
    }

    pub(crate) fn take(&self) -> Result<Keeper, String> {
        match *self {}
    }
}

impl Keeper {
    pub(crate) fn group(&self) -> Pid {
        match *self {}
    }

    pub(crate) fn enclose(&mut self, _: &KeeperBounds) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn run(&mut self, _: &ProcessSpec) -> Result<ProcessResult, String> {
        match *self {}
    }
}

/// Becomes a command that takes its limits first, which is all that is asked of a keeper on these systems.
pub fn kept(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let ended = match arguments.next() {
        Some(role) if role == limited::ROLE => limited::become_command(arguments),
        _ => Err(NONE.to_owned()),
    };
    Some(ended.unwrap_or(ExitCode::FAILURE))
}
