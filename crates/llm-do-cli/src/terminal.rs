//! The terminal that controls the process: keys and lines of a person, whatever stdin and stdout are.

pub mod attention;
pub mod chat;
pub mod display;
pub mod editor;
pub mod line_editor;
pub mod markdown;
pub mod prompt;
pub mod render;
pub mod screen;
pub mod status;
pub mod style;
pub mod summary;
pub mod trust;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr,
};
use tokio::net::unix::pipe::Receiver;

use crate::console;
use crate::terminal::attention::{Attention, KeyTiming, QuestionStage};

pub struct Terminal {
    // Not a pipe, but read like one: the only door to the executor's readiness for a descriptor of any kind that needs
    // no unsafe code.
    input: Receiver,
    /// As we found it.
    before: Termios,
    _lease: Lease,
    between: Between,
    /// What was typed for the next line, and came while a question stood.
    draft: RefCell<Vec<u8>>,
}

/// How the terminal is between questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// As we found it.
    Before,
    /// Keys are kept as they are, unseen, for the next reader.
    Hushed,
}

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
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
        let lease = Lease::take(&before);
        let (input, draft) = (Receiver::from_owned_fd_unchecked(terminal)?, RefCell::default());
        Ok(Self { input, before, _lease: lease, between: Between::Before, draft })
    }

    /// From now on keys are neither shown nor edited until they are read, so that what is typed ahead does not
    /// stand in the middle of an answer, and Ctrl-D is still Ctrl-D. Ctrl-C stays a signal.
    pub fn hush(&mut self) {
        self.between = Between::Hushed;
        self.rest();
    }

    pub fn size(&self) -> TerminalSize {
        let size = rustix::termios::tcgetwinsize(&self.input).ok();
        let or = |number: Option<u16>, usual: usize| number.map_or(usual, usize::from).max(1);
        TerminalSize {
            rows: or(size.map(|size| size.ws_row).filter(|rows| *rows > 0), 24),
            columns: or(size.map(|size| size.ws_col).filter(|columns| *columns > 0), 80),
        }
    }

    /// Single keys, unseen. What was typed before this moment was not meant for the question.
    pub fn keys(&self) -> io::Result<TerminalKeys<'_>> {
        // Not together with the flush: that would wait until everything that was written is seen.
        tcsetattr(&self.input, OptionalActions::Now, &self.unseen())?;
        if self.between == Between::Before {
            tcflush(&self.input, QueueSelector::IFlush)?;
        }
        let keys = TerminalKeys { terminal: self, attention: None };
        keys.set_aside()?;
        Ok(keys)
    }

    /// What was typed while questions stood and was not meant for them.
    pub fn take_draft(&self) -> String {
        drafted(&self.draft.take())
    }

    /// A line as the terminal edits it; `None` at its end. A person who answers the question at once sees what they type.
    pub async fn line(&self, question: &str) -> io::Result<Option<String>> {
        let _seen = self.as_before();
        console::complain(question);
        console::told().await;
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

    /// As we found it, whichever part of us changed it, as long as the returned value lives.
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

    /// Only a chat has a next line.
    fn keep(&self, bytes: &[u8]) {
        /// A person does not type more while a question stands.
        const MOST: usize = 64 * 1024;
        let mut draft = self.draft.borrow_mut();
        if self.between == Between::Hushed && draft.len() + bytes.len() <= MOST {
            draft.extend_from_slice(bytes);
        }
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

/// While it lives the terminal gives single keys, none of them before the question could be read.
pub struct TerminalKeys<'a> {
    terminal: &'a Terminal,
    /// Of what was shown; before that no key counts.
    attention: Option<Attention>,
}

impl TerminalKeys<'_> {
    /// Shows a question, or a page of it. From its end on the time is counted.
    pub async fn show(&mut self, text: &str, stage: QuestionStage) {
        self.hide_sign();
        console::complain(text);
        console::told().await;
        self.attention = Some(Attention::from(stage, Instant::now()));
    }

    /// One key that counts. What comes as several at once was pasted, or is a key that means nothing here: it is none.
    /// What comes too early is for the next line of a chat, and for no other reader.
    pub async fn next(&mut self) -> io::Result<u8> {
        let Some(mut attention) = self.attention else { return Err(io::ErrorKind::InvalidInput.into()) };
        loop {
            let mut bytes = [0; 64];
            let read = tokio::select! {
                biased;
                read = self.terminal.read(&mut bytes) => read?,
                () = tokio::time::sleep_until(attention.settles_at().into()), if !attention.is_settled() => {
                    // What came meanwhile was typed before the person could know that the question listens.
                    match self.set_aside()? {
                        0 => attention.quiet(Instant::now()),
                        _ => drop(attention.key(Self::NONE, Instant::now())),
                    }
                    self.attention = Some(attention);
                    self.show_sign();
                    continue;
                }
            };
            let key = match &bytes[..read] {
                [] => return Err(io::ErrorKind::UnexpectedEof.into()),
                [key] | [key, b'\n' | b'\r'] => *key,
                _ => Self::NONE,
            };
            self.hide_sign();
            let taken = attention.key(key, Instant::now());
            self.attention = Some(attention);
            match taken {
                KeyTiming::Counts => return Ok(key),
                KeyTiming::TooEarly => self.terminal.keep(&bytes[..read]),
            }
        }
    }

    const NONE: u8 = 0;

    /// Reads all that waits to be read, without waiting for more.
    fn set_aside(&self) -> io::Result<usize> {
        let mut count = 0;
        loop {
            let mut bytes = [0; 512];
            // Not by the executor, which need not have heard yet that there is something.
            match rustix::io::read(&self.terminal.input, &mut bytes) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(count),
                Ok(read) => {
                    self.terminal.keep(&bytes[..read]);
                    count += read;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Says that keys count from now on.
    fn show_sign(&self) {
        match self.attention.filter(Attention::is_settled).map(|attention| attention.stage()) {
            Some(QuestionStage::Answer) => console::complain("\r? "),
            Some(QuestionStage::Page) => console::complain(" ? "),
            None => {}
        }
    }

    fn hide_sign(&self) {
        match self.attention.filter(Attention::is_settled).map(|attention| attention.stage()) {
            Some(QuestionStage::Answer) => console::complain("\r\u{1b}[K"),
            Some(QuestionStage::Page) => console::complain("\u{8}\u{8}\u{8}\u{1b}[K"),
            None => {}
        }
    }
}

impl Drop for TerminalKeys<'_> {
    fn drop(&mut self) {
        self.hide_sign();
        self.terminal.rest();
    }
}

/// Keys as the text that they would have made in an empty line. Whatever is no text is left out, so that nothing is sent or
/// ended by it: Enter begins a new line, which is still a draft.
fn drafted(bytes: &[u8]) -> String {
    let mut text = String::new();
    let typed = String::from_utf8_lossy(bytes);
    let mut keys = typed.chars();
    while let Some(key) = keys.next() {
        match key {
            '\u{1b}' => skip_sequence(&mut keys),
            '\u{7f}' | '\u{8}' => drop(text.pop()),
            '\u{15}' => text.truncate(text.rfind('\n').map_or(0, |end| end + 1)),
            '\r' | '\n' => text.push('\n'),
            key if key.is_control() || key == char::REPLACEMENT_CHARACTER => {}
            key => text.push(key),
        }
    }
    text.trim_matches('\n').to_owned()
}

/// The rest of a key that the terminal sends as several characters, such as an arrow: `ESC [ … letter`, `ESC O letter`.
fn skip_sequence(keys: &mut std::str::Chars<'_>) {
    match keys.clone().next() {
        Some('[') => {
            keys.next();
            for key in keys {
                if ('@'..='~').contains(&key) {
                    return;
                }
            }
        }
        Some('O') => drop((keys.next(), keys.next())),
        Some(_) | None => {}
    }
}

/// While it lives the terminal is as we found it.
pub struct AsBefore<'a>(&'a Terminal);

impl Drop for AsBefore<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// Only what was changed is put back: a process in the background must leave the terminal alone.
impl Drop for Terminal {
    fn drop(&mut self) {
        if self.between != Between::Before {
            self.restore();
        }
    }
}

/// The right to change the terminal. Where the last one ends, in whatever way, the terminal is as it was found.
pub struct Lease(());

/// What is known of a terminal that may have been changed.
struct TerminalState {
    before: Termios,
    leases: usize,
    /// A line is being typed: the editor has modes of its own, and marks around pastes.
    is_edited: bool,
}

impl Lease {
    /// For the line editor, which changes the terminal by itself.
    pub fn of_editor() -> io::Result<Self> {
        Ok(Self::take(&tcgetattr(open(OFlags::RDONLY)?)?))
    }

    fn take(before: &Termios) -> Self {
        let mut lent = lent();
        let first = || TerminalState { before: before.clone(), leases: 0, is_edited: false };
        lent.get_or_insert_with(first).leases += 1;
        Self(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let is_last = lent().as_mut().is_some_and(|lent| {
            lent.leases = lent.leases.saturating_sub(1);
            lent.leases == 0
        });
        if is_last {
            restore_lent();
        }
    }
}

/// Whether a line is being typed now.
pub fn edits(is_edited: bool) {
    if let Some(lent) = &mut *lent() {
        lent.is_edited = is_edited;
    }
}

fn lent() -> MutexGuard<'static, Option<TerminalState>> {
    static LENT: Mutex<Option<TerminalState>> = Mutex::new(None);
    LENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As it was found. A process in the background leaves it alone, and so does one that changed nothing.
pub fn restore_lent() {
    const NO_MARKS_AROUND_PASTES: &[u8] = b"\x1b[?2004l";
    let Some(TerminalState { before, is_edited, .. }) = lent().take() else { return };
    let Ok(terminal) = open(OFlags::RDWR | OFlags::NONBLOCK) else { return };
    if tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()) {
        let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
        if is_edited {
            let _ = rustix::io::write(&terminal, NO_MARKS_AROUND_PASTES);
        }
    }
}

fn open(flags: OFlags) -> io::Result<OwnedFd> {
    let terminal = rustix::fs::open("/dev/tty", flags | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    // It can be opened without being one's own: another's has no attributes for us.
    tcgetattr(terminal.as_fd())?;
    Ok(terminal)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::*;

    fn local_modes() -> LocalModes {
        tcgetattr(open(OFlags::RDONLY).unwrap()).unwrap().local_modes
    }

    #[test]
    #[ignore = "the next test starts it on a terminal of its own"]
    fn panics_at_a_question() {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        executor.block_on(async {
            let mut terminal = Terminal::open().unwrap();
            terminal.hush();
            let _keys = terminal.keys().unwrap();
            edits(true);
            assert!(!local_modes().contains(LocalModes::ECHO));
            panic!("in the middle of a question");
        });
    }

    #[test]
    fn a_panic_leaves_the_terminal_as_it_was() {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        let name = "terminal::tests::panics_at_a_question";
        let ourselves = pty_process::blocking::Command::new(std::env::current_exe().unwrap());
        let mut child = ourselves.args([name, "--exact", "--ignored", "--nocapture"]).spawn(pts).unwrap();
        let mut screen = File::from(OwnedFd::from(pty));
        let reading = std::thread::spawn({
            let mut screen = screen.try_clone().unwrap();
            move || {
                let mut said = Vec::new();
                // It ends with an error, as every terminal does whose programs have gone.
                let _ = screen.read_to_end(&mut said);
                String::from_utf8_lossy(&said).into_owned()
            }
        });
        assert!(!child.wait().unwrap().success());
        let modes = tcgetattr(&mut screen).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON));
        let said = reading.join().unwrap();
        assert!(said.contains("in the middle of a question") && said.contains("\u{1b}[?2004l"), "{said:?}");
    }

    #[test]
    fn a_draft_is_the_text_that_was_typed() {
        for (typed, expected) in [
            ("", ""),
            ("and thex\u{7f}n?", "and then?"),
            ("one\rtwo\r", "one\ntwo"),
            ("y\u{4}\u{1b}[A\u{1b}OB\u{1b}[200~pasted\u{1b}[201~", "ypasted"),
            ("wrong\u{15}right", "right"),
            ("smör", "smör"),
            ("\u{1b}", ""),
        ] {
            assert_eq!(drafted(typed.as_bytes()), expected, "{typed:?}");
        }
    }
}
