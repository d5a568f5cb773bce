//! Reading stdin, with a word if nothing comes.

use std::io::Read as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::console;
use crate::failure::Failure;

/// No prompt is longer.
const LONGEST: u64 = 64 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(1);

/// All of stdin as text.
pub fn read() -> Result<String, Failure> {
    let (sender, receiver) = mpsc::channel();
    // A thread of its own: a pipe whose writer does nothing cannot be waited for otherwise. It ends with the process.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes).map(|_| bytes);
        let _ = sender.send(read);
    });
    let read = match receiver.recv_timeout(PATIENCE) {
        Ok(read) => read,
        Err(RecvTimeoutError::Timeout) => {
            console::complain("reading stdin… (`--no-stdin` leaves it alone)\n");
            receiver.recv().map_err(|_| Failure::failed("stdin cannot be read"))?
        }
        Err(RecvTimeoutError::Disconnected) => return Err(Failure::failed("stdin cannot be read")),
    };
    let bytes = read.map_err(|error| Failure::usage(format!("stdin cannot be read: {error}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Failure::usage("stdin has more than 64 MiB").hint("attach a file with `-f`, or give less"));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage("stdin is not UTF-8 text").hint("attach other files with `-f`"))
}
