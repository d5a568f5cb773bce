//! What others on the machine can see of this process: nothing of its memory, its environment and its files.
//!
//! Keys are in the environment and in memory. Code of a project that runs with the user's rights, such as a Python tool or
//! an MCP server, could read them from `/proc` otherwise. What is started gets its own state with `exec`.

use rustix::process::{Resource, Rlimit, setrlimit};

/// First thing in `main`, but for a keeper of commands: that one maps its user, for which its entries in `/proc` must be its
/// own, and has no keys. Where the system does not know such a thing, everything else goes on.
pub fn harden() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}
