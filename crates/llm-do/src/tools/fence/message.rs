//! How keepers are spoken to: a message is its length, four bytes, and JSON.

use std::io;

use serde::{Deserialize, Serialize};

use super::Bounds;
use crate::tools::shell::process::{ProcessEnd, ResourceLimit};

/// The first argument of a program that is to be a keeper.
pub(crate) const COMMAND: &str = "__keep";

/// The longest message, in bytes.
const LONGEST: u32 = 64 << 20;

/// What a keeper is told first, once and for all.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeeperBounds {
    pub bounds: Bounds,
    /// The resource limits of each command.
    pub limits: Vec<ResourceLimit>,
}

/// What a keeper answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum KeeperReply {
    /// It has namespaces, and waits for bounds; then, that it is within them.
    Ready,
    /// The command has ended; so many bytes of its two streams follow.
    Finished {
        ended: ProcessEnd,
        truncated: bool,
        stdout: usize,
        stderr: usize,
    },
    Failed(String),
}

pub(crate) fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok([&length.to_le_bytes(), json.as_slice()].concat())
}

/// How many bytes follow the head of a message.
pub(crate) fn length(head: [u8; 4]) -> io::Result<u32> {
    let length = u32::from_le_bytes(head);
    if length > LONGEST { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

pub(crate) fn write_message(output: &mut impl io::Write, message: &impl Serialize) -> io::Result<()> {
    output.write_all(&framed(message)?)
}

/// The next message; `None` at the end. No byte behind it is read.
pub(crate) fn read_message<T: serde::de::DeserializeOwned>(input: &mut impl io::Read) -> io::Result<Option<T>> {
    use io::Read as _;
    let mut head = [0; 4];
    match input.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut json = Vec::new();
    input.take(length(head)?.into()).read_to_end(&mut json)?;
    Ok(Some(serde_json::from_slice(&json)?))
}
