//! The terminal that controls the process: keys and lines of a person, whatever stdin and stdout are.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::net::unix::pipe::Receiver;

pub struct Terminal {
    // Not a pipe, but read like one: the only door to the executor's readiness for a descriptor of any kind that needs
    // no unsafe code.
    input: Receiver,
    /// As we found it.
    before: Termios,
    between: Between,
}

/// How the terminal is between questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// As we found it.
    Before,
    /// Keys are kept as they are, unseen, for whoever reads next.
    Hushed,
}

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub rows: usize,
    pub columns: usize,
}

impl Terminal {
    /// Whether there is one.
    pub fn is_there() -> bool {
        open(OFlags::RDONLY).is_ok()
    }

    /// Inside the executor only: reading it never blocks a thread.
    pub fn open() -> io::Result<Self> {
        let terminal = open(OFlags::RDWR | OFlags::NONBLOCK)?;
        let before = tcgetattr(&terminal)?;
        Ok(Self { input: Receiver::from_owned_fd_unchecked(terminal)?, before, between: Between::Before })
    }

    /// From now on keys are neither shown nor edited until somebody reads them, so that what is typed ahead does not
    /// stand in the middle of an answer, and Ctrl-D is still Ctrl-D. Ctrl-C stays a signal.
    pub fn hush(&mut self) {
        self.between = Between::Hushed;
        self.rest();
    }

    pub fn size(&self) -> Size {
        let size = rustix::termios::tcgetwinsize(&self.input).ok();
        let or = |number: Option<u16>, usual: usize| number.map_or(usual, usize::from).max(1);
        Size {
            rows: or(size.map(|size| size.ws_row).filter(|rows| *rows > 0), 24),
            columns: or(size.map(|size| size.ws_col).filter(|columns| *columns > 0), 80),
        }
    }

    /// Single keys, unseen. What was typed before this moment is forgotten: it was not meant for the question.
    pub fn keys(&self) -> io::Result<Keys<'_>> {
        tcsetattr(&self.input, OptionalActions::Flush, &self.unseen())?;
        Ok(Keys(self))
    }

    /// A line as the terminal edits it; `None` at its end.
    pub async fn line(&self) -> io::Result<Option<String>> {
        let _seen = self.as_before();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\n") {
            let mut part = [0; 512];
            match self.read(&mut part).await? {
                0 => return Ok(None),
                count => bytes.extend_from_slice(&part[..count]),
            }
        }
        Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// For a program that takes over for a while.
    pub fn lend() -> io::Result<Stdio> {
        Ok(Stdio::from(open(OFlags::RDWR)?))
    }

    /// As we found it, whoever changed it, as long as the returned value lives.
    pub fn as_before(&self) -> AsBefore<'_> {
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.before);
        AsBefore(self)
    }

    /// As we found it, for good.
    pub fn restore(&mut self) {
        self.between = Between::Before;
        self.rest();
    }

    fn rest(&self) {
        let modes = match self.between {
            Between::Before => &self.before,
            Between::Hushed => &self.unseen(),
        };
        let _ = tcsetattr(&self.input, OptionalActions::Now, modes);
    }

    /// Single keys without an echo.
    fn unseen(&self) -> Termios {
        let mut modes = self.before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        modes
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.input.readable().await?;
            match self.input.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// While it lives the terminal gives single keys.
pub struct Keys<'a>(&'a Terminal);

impl Keys<'_> {
    /// One key. What comes as several at once was pasted, or is a key that means nothing here: it is none.
    pub async fn next(&self) -> io::Result<u8> {
        let mut bytes = [0; 64];
        match self.0.read(&mut bytes).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            1 => Ok(bytes[0]),
            2 if matches!(bytes[1], b'\n' | b'\r') => Ok(bytes[0]),
            _ => Ok(Self::NONE),
        }
    }

    const NONE: u8 = 0;
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// While it lives the terminal is as we found it.
pub struct AsBefore<'a>(&'a Terminal);

impl Drop for AsBefore<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// Only what was changed is put back: whoever runs in the background must leave the terminal alone.
impl Drop for Terminal {
    fn drop(&mut self) {
        if self.between != Between::Before {
            self.restore();
        }
    }
}

fn open(flags: OFlags) -> io::Result<OwnedFd> {
    let terminal = rustix::fs::open("/dev/tty", flags | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    // It can be opened without being one's own: somebody else's has no attributes for us.
    tcgetattr(terminal.as_fd())?;
    Ok(terminal)
}
