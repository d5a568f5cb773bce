//! The one door to stdout and stderr.

use std::io::{self, Write};

use crate::failure::Failure;

/// What a command says goes to stdout; a reader that left early (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to stdout: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Everything else goes to stderr. If nobody can be told, there is nothing left to do.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// How wide the terminal of stderr is now.
pub fn columns() -> Option<usize> {
    rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
