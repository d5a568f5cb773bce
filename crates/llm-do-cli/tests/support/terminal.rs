//! The program on a terminal of its own: keys go in, a screen comes out. Nothing sleeps; whoever waits, waits for a text.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::cell::Cell;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pty_process::Size;
use rustix::process::{Pid, Signal};

/// Far more than anything here takes; a program that hangs must not hang the tests.
const DEADLINE: Duration = Duration::from_mins(3);

/// A program, and the terminal it runs on.
pub struct Terminal {
    child: Child,
    keyboard: File,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    reader: JoinHandle<()>,
    /// How much was written when the last question was answered.
    answered: Cell<usize>,
}

struct Seen {
    screen: vt100::Parser,
    /// Everything that was ever written.
    bytes: Vec<u8>,
    closed: bool,
}

/// Which of the three streams are something else than the terminal.
#[derive(Default)]
pub struct Elsewhere {
    pub stdin: Option<Stdio>,
    pub stdout: Option<Stdio>,
    pub stderr: Option<Stdio>,
}

/// How a program on a terminal ended.
#[derive(Debug)]
pub struct Left {
    pub code: Option<i32>,
    /// Which ended it, if it was one.
    pub signal: Option<i32>,
    /// What the screen shows at the end.
    pub screen: String,
    /// Everything that was written, control codes and all.
    pub written: String,
}

impl Terminal {
    pub const ROWS: u16 = 100;
    pub const COLUMNS: u16 = 100;

    pub fn start(command: Command) -> Self {
        Self::start_with(command, Self::ROWS, Elsewhere::default())
    }

    pub fn start_with(command: Command, rows: u16, elsewhere: Elsewhere) -> Self {
        Self::start_sized(command, (rows, Self::COLUMNS), elsewhere)
    }

    /// On a terminal of so many rows and columns.
    pub fn start_sized(mut command: Command, (rows, columns): (u16, u16), elsewhere: Elsewhere) -> Self {
        if command.get_envs().all(|(name, _)| name != "TERM") {
            command.env("TERM", "xterm-256color");
        }
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let mut command = pty_process::blocking::Command::from(command);
        // What the sandbox set for pipes is not meant here.
        command = command.stdin(pts_or(elsewhere.stdin, &pts));
        if let Some(stdout) = elsewhere.stdout {
            command = command.stdout(stdout);
        }
        if let Some(stderr) = elsewhere.stderr {
            command = command.stderr(stderr);
        }
        let child = command.spawn(pts).unwrap();
        let keyboard = File::from(OwnedFd::from(pty));
        let size = |number| NonZeroU16::new(number).unwrap();
        let screen = vt100::Parser::new(size(rows), size(columns), 0);
        let seen = Arc::new((Mutex::new(Seen { screen, bytes: Vec::new(), closed: false }), Condvar::new()));
        let reader = thread::spawn({
            let (mut output, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&seen));
            move || read(&mut output, &seen)
        });
        Self { child, keyboard, seen, reader, answered: Cell::new(0) }
    }

    /// Waits until the screen shows this text.
    #[track_caller]
    pub fn expect(&self, text: &str) -> &Self {
        self.wait(text, |seen| seen.screen.screen().contents().contains(text))
    }

    /// Waits until this was written `count` times, whether or not it is still on the screen.
    #[track_caller]
    pub fn expect_written(&self, text: &str, count: usize) -> &Self {
        self.wait(text, |seen| String::from_utf8_lossy(&seen.bytes).matches(text).count() >= count)
    }

    /// Waits until a prompt stands below all else, or this is on the screen. Whether it is the prompt.
    #[track_caller]
    pub fn expect_prompt_or(&self, text: &str) -> bool {
        let is_prompt = |screen: &str| screen.trim_end().ends_with("\n>");
        self.wait(text, |seen| {
            let screen = seen.screen.screen().contents();
            is_prompt(&screen) || screen.contains(text)
        });
        !self.screen().contains(text)
    }

    /// Waits until a prompt stands below this text and all else.
    #[track_caller]
    pub fn expect_prompt_below(&self, text: &str) -> &Self {
        let is_there =
            |screen: &str| screen.split_once(text).is_some_and(|(_, below)| below.trim_end().ends_with("\n>"));
        self.wait(text, |seen| is_there(&seen.screen.screen().contents()))
    }

    /// Waits until this much more was written, or nothing comes for a moment: any moment is meant.
    pub fn wait_for_more(&self, bytes: usize) -> &Self {
        const MOMENT: Duration = Duration::from_millis(50);
        let (mutex, changed) = &*self.seen;
        let mut seen = mutex.lock().unwrap();
        let wanted = seen.bytes.len() + bytes;
        while seen.bytes.len() < wanted && !seen.closed {
            let (now, waited) = changed.wait_timeout(seen, MOMENT).unwrap();
            seen = now;
            if waited.timed_out() {
                break;
            }
        }
        drop(seen);
        self
    }

    #[track_caller]
    fn wait(&self, text: &str, is_there: impl Fn(&Seen) -> bool) -> &Self {
        let (mutex, changed) = &*self.seen;
        let is_waited_for = |seen: &mut Seen| !is_there(seen) && !seen.closed;
        let (seen, _) = changed.wait_timeout_while(mutex.lock().unwrap(), DEADLINE, is_waited_for).unwrap();
        assert!(is_there(&seen), "waited in vain for {text:?}; the screen:\n{}", seen.screen.screen().contents());
        drop(seen);
        self
    }

    /// Presses a key when the next question takes keys, which it says with a sign such as `Allow?` on its last line.
    #[track_caller]
    pub fn answer(&self, keys: &str) -> &Self {
        self.expect_listening();
        self.answered.set(self.seen().bytes.len());
        self.press(keys)
    }

    /// Presses a key that counts when it is pressed again, and again.
    #[track_caller]
    pub fn answer_twice(&self, key: &str) -> &Self {
        self.answer(key).answer(key)
    }

    /// Waits until the next question takes keys.
    #[track_caller]
    pub fn expect_listening(&self) -> &Self {
        let before = self.answered.get();
        let listens = |seen: &Seen| {
            let written = &seen.bytes[before..];
            let is_page = written.ends_with(b"\x1b[K")
                && String::from_utf8_lossy(&written[written.len().saturating_sub(24)..]).contains("q stop");
            is_page || [&b"\r? "[..], b"\r ? ", b"Allow? ", b"Add? "].iter().any(|sign| written.ends_with(sign))
        };
        self.wait("a question that takes keys", listens)
    }

    /// Keys that come whatever is shown: a question takes them after a pause only, so answers go through `answer`.
    pub fn press(&self, keys: &str) -> &Self {
        self.press_bytes(keys.as_bytes())
    }

    /// Types on at the pace of the fastest typist. The longest pause between two keys, as far as we can tell.
    pub fn type_on(&self, key: &str, count: usize) -> Duration {
        let (mutex, changed) = &*self.seen;
        let (mut longest, mut before) = (Duration::ZERO, Instant::now());
        for _ in 0..count {
            self.press(key);
            longest = longest.max(before.elapsed());
            before = Instant::now();
            drop(changed.wait_timeout(mutex.lock().unwrap(), Duration::from_millis(5)).unwrap());
        }
        longest
    }

    pub fn press_bytes(&self, keys: &[u8]) -> &Self {
        (&self.keyboard).write_all(keys).unwrap();
        self
    }

    pub fn send(&self, signal: Signal) -> &Self {
        rustix::process::kill_process(self.pid(), signal).unwrap();
        self
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn screen(&self) -> String {
        self.seen().screen.screen().contents()
    }

    /// Reads the cells of the screen, with their colours.
    pub fn cells<T>(&self, read: impl FnOnce(&vt100::Screen) -> T) -> T {
        read(self.seen().screen.screen())
    }

    /// Whether the terminal echoes what is typed and hands it over line by line, as it was before.
    pub fn is_as_before(&self) -> bool {
        use rustix::termios::{InputModes, LocalModes, OutputModes};
        let modes = rustix::termios::tcgetattr(&self.keyboard).unwrap();
        modes.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
            && modes.output_modes.contains(OutputModes::OPOST)
            && modes.input_modes.contains(InputModes::ICRNL)
    }

    /// Kills the program, which can restore nothing, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.0.lock().unwrap()
    }

    /// Presses a key that counts when it is pressed twice in a short time, however slow the machine is: again each time a prompt
    /// stands below this text, until the program ends.
    #[track_caller]
    pub fn left_after(self, key: &str, text: &str) -> Left {
        while !self.seen().closed {
            let before = self.seen().bytes.len();
            self.press(key).wait(text, |seen| {
                let written = String::from_utf8_lossy(&seen.bytes[before..]);
                seen.closed || written.split_once(text).is_some_and(|(_, below)| below.contains("> "))
            });
        }
        self.left()
    }

    /// Waits for the end of the program. Whatever happened, the terminal is as it was.
    #[track_caller]
    pub fn left(mut self) -> Left {
        self.wait("the end", |seen| seen.closed);
        let status = self.child.wait().unwrap();
        assert!(self.is_as_before(), "the terminal was not restored");
        self.reader.join().unwrap();
        let seen = self.seen.0.lock().unwrap();
        assert!(!seen.screen.screen().bracketed_paste(), "pastes are still marked");
        let screen = seen.screen.screen().contents();
        Left {
            code: status.code(),
            signal: status.signal(),
            screen,
            written: String::from_utf8_lossy(&seen.bytes).into_owned(),
        }
    }
}

fn pts_or(stdin: Option<Stdio>, pts: &pty_process::blocking::Pts) -> Stdio {
    use std::os::fd::AsFd as _;
    stdin.unwrap_or_else(|| Stdio::from(pts.as_fd().try_clone_to_owned().unwrap()))
}

fn read(output: &mut File, seen: &(Mutex<Seen>, Condvar)) {
    let mut buffer = [0; 4096];
    loop {
        // A terminal without anybody on its other side is an error, not an end.
        let count = output.read(&mut buffer).unwrap_or(0);
        let mut guard = seen.0.lock().unwrap();
        guard.screen.process(&buffer[..count]);
        guard.bytes.extend_from_slice(&buffer[..count]);
        guard.closed = count == 0;
        seen.1.notify_all();
        if count == 0 {
            return;
        }
    }
}

/// Without what differs from run to run: times, and ids of runs.
pub fn comparable(text: &str) -> String {
    crate::support::without_run_ids(&timeless(text))
}

/// Times differ from run to run.
pub fn timeless(text: &str) -> String {
    let line = |line: &str| match line.split_once(" s · ") {
        Some((_, rest)) if rest.contains(" request") => format!("0.0 s · {rest}"),
        Some(_) | None => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
