//! Texts that the user gives: stdin, with a word if nothing comes, and files. Bounded, whatever they are.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::console;
use crate::failure::Failure;

/// No prompt is longer.
const LONGEST: u64 = 64 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(1);

/// All of a file, or of a pipe; `name` is what it is called when it cannot be read.
pub fn file(name: &str, path: &Path) -> Result<String, Failure> {
    let read = File::open(path).and_then(|mut file| bytes(&mut file));
    text(name, read)
}

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
    text("stdin", read).map_err(|failure| failure.hint("attach other files with `-f`"))
}

/// One more than there may be, so that it is known.
fn bytes(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut bytes).map(|_| bytes)
}

fn text(name: &str, read: io::Result<Vec<u8>>) -> Result<String, Failure> {
    let bytes = read.map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Failure::usage(format!("{name} has more than 64 MiB")));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{name} is not UTF-8 text")))
}
