//! Makes the one executor that a command has.

use llm_do::process;
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

pub fn executor() -> Result<Runtime, Failure> {
    // Room is looked for first, because the builder panics where no more files can be opened.
    let built = process::room().and_then(|()| Builder::new_current_thread().enable_all().build());
    built.map_err(|error| {
        Failure::failed(format!("cannot start: {error}")).hint("`ulimit -n` says how many files may be open")
    })
}
