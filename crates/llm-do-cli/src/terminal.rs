//! The terminal that controls the process: keys and lines of a person, whatever stdin and stdout are.

pub mod arguments;
pub mod attention;
pub mod below;
pub mod calls;
pub mod chat;
pub mod clock;
pub mod commands;
pub mod display;
pub mod editor;
pub mod form;
pub mod lasting;
pub mod line_editor;
pub mod markdown;
pub mod mentions;
pub mod prompt;
pub mod render;
pub mod screen;
pub mod status;
pub mod style;
pub mod summary;
pub mod trust;
pub mod typing;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use llm_do::process::is_in_foreground;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use crate::console;
use crate::draft::{self, DraftLine, DraftStep};
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
    /// When a person typed something, as far as is known.
    last_key: Cell<Instant>,
    returned: RefCell<watch::Receiver<u64>>,
}

/// How the terminal is between questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// As we found it.
    Before,
    /// Nothing that is typed is shown: it would stand in the middle of what is.
    Silent,
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
        let (last_key, returned) = (Cell::new(Instant::now()), RefCell::new(returns().subscribe()));
        Ok(Self { input, before, _lease: lease, between: Between::Before, draft, last_key, returned })
    }

    /// From now on keys are neither shown nor edited until they are read, so that what is typed ahead does not
    /// stand in the middle of an answer, and Ctrl-D is still Ctrl-D. Ctrl-C stays a signal.
    pub fn hush(&mut self) {
        self.between = Between::Hushed;
        self.rest();
    }

    /// From now on nothing that is typed is shown, not even Ctrl-C.
    pub fn silence(&mut self) {
        self.between = Between::Silent;
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

    /// Somebody has typed something now, which another reader has read.
    pub fn was_used(&self) {
        self.last_key.set(Instant::now());
    }

    /// Calls a person who may be looking elsewhere; dropped, the window has its title again.
    pub fn call_person(&self, has_title: bool) -> PersonCall<'_> {
        let call = attention::call(self.last_key.get(), Instant::now(), has_title);
        if let Some(call) = call {
            self.put(call);
        }
        PersonCall { terminal: self, has_title: call.is_some() && has_title }
    }

    /// Writes to the terminal itself, wherever the streams lead. What it does not take is lost.
    fn put(&self, text: &str) {
        let _ = rustix::io::write(&self.input, text.as_bytes());
    }

    /// Single keys, unseen. What was typed before this moment was not meant for the question.
    pub fn keys(&self) -> io::Result<TerminalKeys<'_>> {
        // Not together with the flush: that would wait until everything that was written is seen.
        self.set(&self.unseen())?;
        self.returned.borrow_mut().mark_unchanged();
        if self.between != Between::Hushed {
            tcflush(&self.input, QueueSelector::IFlush)?;
        }
        let keys = TerminalKeys { terminal: self, attention: None, sign: KeySign::default() };
        keys.set_aside()?;
        Ok(keys)
    }

    /// What was typed while questions stood and was not meant for them.
    pub fn take_draft(&self) -> String {
        drafted(&self.draft.take())
    }

    /// A line as the terminal edits it; `None` at its end.
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
        let _ = self.set(&self.before);
        lend_out(true);
        AsBefore(self)
    }

    /// As we found it, for good.
    pub fn restore(&mut self) {
        self.between = Between::Before;
        self.rest();
    }

    fn rest(&self) {
        let _ = match self.between {
            Between::Before => self.set(&self.before),
            Between::Silent => self.set(&self.unechoed()),
            Between::Hushed => self.set(&self.unseen()),
        };
    }

    /// Modes that are taken again when the process was stopped and goes on.
    fn set(&self, modes: &Termios) -> io::Result<()> {
        tcsetattr(&self.input, OptionalActions::Now, modes)?;
        if let Some(lent) = &mut *lent() {
            lent.modes = modes.clone();
        }
        Ok(())
    }

    /// Keys that are typed while nothing is asked. Cancel-safe.
    pub async fn typed(&self) -> io::Result<Vec<u8>> {
        let mut bytes = [0; 4096];
        match self.read(&mut bytes).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(bytes[..count].to_vec()),
        }
    }

    /// Returns when the process was stopped and goes on in the foreground. Cancel-safe.
    pub async fn returned(&self) {
        let mut returned = self.returned.borrow().clone();
        if returned.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.returned.borrow_mut().mark_unchanged();
    }

    /// Lines without an echo.
    fn unechoed(&self) -> Termios {
        let mut modes = self.before.clone();
        modes.local_modes.remove(LocalModes::ECHO);
        modes
    }

    /// Single keys without an echo. Enter stays Enter: to the line editor, which may read it later, a line feed is another key.
    fn unseen(&self) -> Termios {
        let mut modes = self.before.clone();
        modes.input_modes.remove(InputModes::ICRNL);
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
                read => {
                    self.was_used();
                    return read;
                }
            }
        }
    }
}

/// While it lives the terminal gives single keys, none of them before the question could be read.
pub struct TerminalKeys<'a> {
    terminal: &'a Terminal,
    /// Of what was shown; before that no key counts.
    attention: Option<Attention>,
    sign: KeySign,
}

/// What says that keys count, and what takes it away.
#[derive(Clone, Debug, Default)]
pub struct KeySign {
    shown: String,
    hidden: &'static str,
    stands: bool,
}

impl KeySign {
    /// It stands at the beginning of its line, which is empty when it is gone.
    pub fn of(shown: impl Into<String>) -> Self {
        Self { shown: shown.into(), hidden: "\r\u{1b}[K", stands: false }
    }
}

/// A key that counts, or that the process was stopped and goes on: what stood on the terminal is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    Key(u8),
    Returned,
}

impl TerminalKeys<'_> {
    /// Shows a question, or a page of it. From its end on the time is counted, and when keys count the sign is shown.
    pub async fn show(&mut self, text: &str, stage: QuestionStage, sign: KeySign) {
        self.hide_sign();
        console::complain(text);
        console::told().await;
        self.sign = sign;
        self.attention = Some(Attention::from(stage, Instant::now()));
    }

    /// Says what came of a key, behind the sign, which stays.
    pub fn say_behind_sign(&mut self, text: &str) {
        self.sign.stands = false;
        console::complain(text);
    }

    /// A line that a person types and edits; `None` if they leave it with Escape.
    pub async fn line(&mut self, question: &str, line: &mut DraftLine) -> io::Result<DraftOutcome> {
        self.hide_sign();
        let mut bytes = Vec::new();
        loop {
            let columns = self.terminal.size().columns.saturating_sub(style::width(question));
            let (shown, column) = line.shown(columns);
            let column = column + style::width(question);
            let back = if column == 0 { String::new() } else { format!("\u{1b}[{column}C") };
            console::complain(&format!("\r{question}{shown}\u{1b}[K\r{back}"));
            console::told().await;
            let mut part = [0; 512];
            let read = tokio::select! {
                biased;
                () = self.terminal.returned() => return Ok(DraftOutcome::Returned),
                read = self.terminal.read(&mut part) => read?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&part[..read]);
            for key in draft::keys(&mut bytes) {
                match line.press(key) {
                    DraftStep::Goes => {}
                    DraftStep::Done => {
                        console::complain(&format!("\r{question}{}\u{1b}[K\n", line.text()));
                        return Ok(DraftOutcome::Text(line.text().trim().to_owned()));
                    }
                    DraftStep::Left => {
                        console::complain("\r\u{1b}[K");
                        return Ok(DraftOutcome::Left);
                    }
                }
            }
        }
    }

    /// Waits until what is typed can be meant for what is shown; what comes before is for the next line of a chat. Whether the
    /// process was not stopped meanwhile.
    pub async fn settle(&mut self) -> io::Result<bool> {
        let Some(mut attention) = self.attention else { return Err(io::ErrorKind::InvalidInput.into()) };
        while !attention.is_settled() {
            let mut bytes = [0; 64];
            let read = tokio::select! {
                biased;
                () = self.terminal.returned() => return Ok(false),
                read = self.terminal.read(&mut bytes) => read?,
                () = tokio::time::sleep_until(attention.settles_at().into()) => {
                    match self.set_aside()? {
                        0 => attention.quiet(Instant::now()),
                        _ => drop(attention.key(Self::NONE, Instant::now())),
                    }
                    continue;
                }
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let _ = attention.key(Self::NONE, Instant::now());
            self.terminal.keep(&bytes[..read]);
        }
        Ok(true)
    }

    /// One key that counts. What comes as several at once was pasted, or is a key that means nothing here: it is none.
    /// What comes too early is for the next line of a chat, and for no other reader.
    pub async fn next(&mut self) -> io::Result<KeyPress> {
        let Some(mut attention) = self.attention else { return Err(io::ErrorKind::InvalidInput.into()) };
        loop {
            let mut bytes = [0; 64];
            let read = tokio::select! {
                biased;
                () = self.terminal.returned() => {
                    self.sign.stands = false;
                    return Ok(KeyPress::Returned);
                }
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
            let taken = attention.key(key, Instant::now());
            self.attention = Some(attention);
            match taken {
                KeyTiming::Counts => return Ok(KeyPress::Key(key)),
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
    fn show_sign(&mut self) {
        if self.attention.is_some_and(|attention| attention.is_settled()) && !self.sign.stands {
            self.sign.stands = true;
            console::complain(&self.sign.shown);
        }
    }

    /// Takes the sign away; it comes back when keys count again.
    pub fn hide_sign(&mut self) {
        if std::mem::take(&mut self.sign.stands) {
            console::complain(self.sign.hidden);
        }
    }
}

/// What came of a line that a person was to type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftOutcome {
    Text(String),
    /// They do not want to type it.
    Left,
    /// The process was stopped and goes on: what stood on the terminal is gone.
    Returned,
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

/// While it lives the terminal is as we found it, and its modes are another program's.
pub struct AsBefore<'a>(&'a Terminal);

impl Drop for AsBefore<'_> {
    fn drop(&mut self) {
        lend_out(false);
        self.0.rest();
    }
}

/// While it lives the window says that somebody is waited for.
pub struct PersonCall<'a> {
    terminal: &'a Terminal,
    has_title: bool,
}

impl Drop for PersonCall<'_> {
    fn drop(&mut self) {
        if self.has_title {
            self.terminal.put(attention::TITLE_BACK);
        }
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
    /// Another program uses the terminal, in whatever modes it wants.
    is_lent_out: bool,
    /// Those that we set last.
    modes: Termios,
}

impl Lease {
    /// For the line editor, which changes the terminal by itself.
    pub fn of_editor() -> io::Result<Self> {
        Ok(Self::take(&tcgetattr(open(OFlags::RDONLY)?)?))
    }

    fn take(before: &Termios) -> Self {
        let mut lent = lent();
        let first = || TerminalState {
            before: before.clone(),
            leases: 0,
            is_edited: false,
            is_lent_out: false,
            modes: before.clone(),
        };
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

fn lend_out(is_lent_out: bool) {
    if let Some(lent) = &mut *lent() {
        lent.is_lent_out = is_lent_out;
    }
}

/// Gives the terminal back before the process is stopped: the shell shows its prompt on it. What another program or the line
/// editor set they put back themselves.
pub fn give_back() {
    if let Some(TerminalState { before, is_edited: false, is_lent_out: false, .. }) = &*lent() {
        in_foreground(|terminal| {
            let _ = tcsetattr(terminal, OptionalActions::Now, before);
        });
    }
}

/// Takes the terminal again when the process goes on. In the background it is left alone until the process is stopped for
/// reading it and goes on in the foreground.
pub fn take_again() {
    let lent = lent();
    let Some(TerminalState { modes, is_edited: false, is_lent_out: false, .. }) = &*lent else { return };
    in_foreground(|terminal| {
        let _ = tcsetattr(terminal, OptionalActions::Now, modes);
        returns().send_modify(|count| *count += 1);
    });
}

fn in_foreground(act: impl FnOnce(&OwnedFd)) {
    let Ok(terminal) = open(OFlags::RDWR | OFlags::NONBLOCK) else { return };
    if is_in_foreground(&terminal) {
        act(&terminal);
    }
}

/// How often the process was stopped and went on.
fn returns() -> &'static watch::Sender<u64> {
    static RETURNS: OnceLock<watch::Sender<u64>> = OnceLock::new();
    RETURNS.get_or_init(|| watch::Sender::new(0))
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
    if is_in_foreground(&terminal) {
        let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
        if is_edited {
            let _ = rustix::io::write(&terminal, NO_MARKS_AROUND_PASTES);
        }
    }
}

fn open(flags: OFlags) -> io::Result<OwnedFd> {
    let terminal =
        rustix::fs::open(llm_do::process::terminal(), flags | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
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

    fn modes() -> Termios {
        tcgetattr(open(OFlags::RDONLY).unwrap()).unwrap()
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
            assert!(!modes().local_modes.contains(LocalModes::ECHO));
            assert!(!modes().input_modes.contains(InputModes::ICRNL), "Enter would be another key");
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
