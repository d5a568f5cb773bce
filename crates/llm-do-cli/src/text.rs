//! Reads stdin, with a remark to the user if nothing comes for a while. Its size is bounded.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use llm_do_launch::text::{bytes, text};

use crate::console;
use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(1);

/// All of stdin.
pub fn stdin() -> Result<String, Failure> {
    let (sender, receiver) = mpsc::channel();
    // A thread of its own: a pipe whose writer does nothing cannot be waited for otherwise. It ends with the process.
    std::thread::spawn(move || {
        let _ = sender.send(bytes(&mut io::stdin().lock()));
    });
    let read = match receiver.recv_timeout(PATIENCE) {
        Ok(read) => read,
        Err(RecvTimeoutError::Timeout) => {
            console::complain("reading stdin… (`--no-stdin` leaves it alone)\n");
            receiver.recv().map_err(|_| Failure::failed("stdin cannot be read"))?
        }
        Err(RecvTimeoutError::Disconnected) => return Err(Failure::failed("stdin cannot be read")),
    };
    Ok(text("stdin", read).map_err(|error| error.hint("attach other files with `-f`"))?)
}
