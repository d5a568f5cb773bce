//! What a fenced command may do, as plain data: the keeper reads it as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a fenced command may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// What may be read besides the system's programs and libraries.
    pub read: Vec<PathBuf>,
    /// Programs, and directories of them, besides the system's. They are never hidden.
    pub run: Vec<PathBuf>,
    pub write: Write,
    pub network: Network,
    /// What differs inside of these; only the full fence can keep it.
    pub shelter: Shelter,
}

/// What a fenced command may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Write {
    /// Not even the mode or the time of a file; and only the system's programs are executed.
    Nothing,
    /// Files beneath these, which may also be executed.
    Beneath(Vec<PathBuf>),
}

/// Whether a fenced command may use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    None,
    /// Whatever the user may reach.
    Open,
}

/// What differs inside of what may be read and written. Every path is absolute, without links, and exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shelter {
    /// These stay as they are, and where they are.
    pub read_only: Vec<PathBuf>,
    /// These are there, but cannot be looked at.
    pub hidden: Vec<PathBuf>,
    /// These stay where they are; what is in them may change.
    pub held: Vec<PathBuf>,
    /// Exceptions inside of what is read-only or hidden: the approver agreed to these and to nothing around them.
    pub open: Vec<PathBuf>,
    /// A directory that commands see as `/tmp`.
    pub private: Option<PathBuf>,
}

/// A program that lives behind a fence of its own, as its keeper is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tenancy {
    pub bounds: Bounds,
    /// Absolute, without links.
    pub program: PathBuf,
    /// The name by which the program knows itself (its argument zero).
    pub name: String,
    pub arguments: Vec<String>,
    /// The whole environment of the program.
    pub environment: BTreeMap<String, String>,
    /// Absolute, without links. Where the bounds do not show it, it is there, and empty.
    pub directory: PathBuf,
}

impl Bounds {
    /// Every path that the bounds name.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let Shelter { read_only, hidden, held, open, private } = &self.shelter;
        let named = self.read.iter().chain(&self.run).chain(self.written());
        named.chain(read_only).chain(hidden).chain(held).chain(open).chain(private)
    }

    /// The directories beneath which files may be written; none if nothing may be.
    pub(crate) fn written(&self) -> &[PathBuf] {
        match &self.write {
            Write::Nothing => &[],
            Write::Beneath(directories) => directories,
        }
    }
}
