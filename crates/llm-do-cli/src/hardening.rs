//! What others on the machine can see of this process: nothing of its memory, its environment and its files.
//!
//! Keys are in the environment and in memory. Code of a project that runs with the user's rights, such as a Python tool or
//! an MCP server, could read them from `/proc` otherwise. What is started gets its own state with `exec`.

use rustix::process::{Resource, Rlimit, setrlimit};

/// What llm-do starts itself as, to keep commands: it maps its user, for which its entries in `/proc` must be its own, and
/// has no keys.
const KEEPER: &str = "__keep";

/// First thing in `main`. Where the system does not know such a thing, everything else goes on.
pub fn harden() {
    if std::env::args_os().nth(1).is_some_and(|word| word == KEEPER) {
        return;
    }
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}
