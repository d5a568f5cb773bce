//! A fence that the kernel keeps around a command: what it may read, write, execute and reach, whatever the command and
//! all it starts try. It belongs to a thread and is inherited by what the thread starts, so a thread that does nothing
//! else puts it on itself, starts the command, and ends.

#[cfg(target_os = "linux")]
#[path = "fence/linux.rs"]
mod kernel;
#[cfg(not(target_os = "linux"))]
#[path = "fence/absent.rs"]
mod kernel;

use std::path::PathBuf;

pub use kernel::Fence;

/// Whether commands are fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fencing {
    /// Where the kernel offers it.
    #[default]
    WhereOffered,
    /// Never. Grammars must hold without it, and tests see to that.
    Off,
}

/// What a fenced command may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Besides the system's programs and libraries.
    pub read: Vec<PathBuf>,
    /// Programs elsewhere, and directories of such.
    pub run: Vec<PathBuf>,
    pub write: Write,
    pub network: Network,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Not even the mode or the time of a file; and only the system's programs are executed.
    Nothing,
    /// Files beneath these, which may also be executed.
    Beneath(Vec<PathBuf>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    None,
    /// Whatever the user may reach.
    Open,
}

/// What a fence is made of here, in words for people, or why there can be none. Found out by putting one on a thread
/// that then ends.
pub fn offered(fencing: Fencing) -> Result<String, String> {
    match fencing {
        Fencing::Off => Err("it is switched off".to_owned()),
        Fencing::WhereOffered => kernel::offered(),
    }
}
