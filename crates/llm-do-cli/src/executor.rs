//! The one executor of a command.

use llm_do::process;
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

pub fn executor() -> Result<Runtime, Failure> {
    // It would panic where no more files can be opened.
    let built = process::room().and_then(|()| Builder::new_current_thread().enable_all().build());
    built.map_err(|error| {
        Failure::failed(format!("cannot start: {error}")).hint("`ulimit -n` says how many files may be open")
    })
}
