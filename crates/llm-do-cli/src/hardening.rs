//! How this process stands towards the machine. Others see nothing of its memory, its environment and its files; it may open
//! as many files as the system allows; and a file that must not grow is an error like others, not the end.
//!
//! Keys are in the environment and in memory. Code of a project that runs with the user's rights, such as a Python tool or
//! an MCP server, could read them from `/proc` otherwise. What is started gets its own state with `exec`.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::consts::signal::SIGXFSZ;

/// Called first in `main`, except in a keeper, the process that starts commands behind a fence: a keeper maps its
/// user, for which it must own its entries in `/proc`, and it has no keys. Where the system does not offer one of
/// these protections, the program goes on without it.
pub fn harden() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    llm_do::process::raise();
    // A handler and not the wish to ignore it, which would be passed on to whatever is started.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let _ = llm_do::process::conceal();
}
