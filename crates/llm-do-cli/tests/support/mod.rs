//! Runs the program as a person would: in a directory of its own, with nothing of ours in its environment.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// Far more than any of these runs needs; a program that hangs must not hang the tests.
const DEADLINE: Duration = Duration::from_mins(2);

/// A directory that is working directory and home, gone with the test.
pub struct Sandbox(TempDir);

#[derive(Debug, PartialEq)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.run_in(arguments, &[])
    }

    /// The same, with ids of runs as they are.
    pub fn run_raw(&self, arguments: &[&str]) -> Ended {
        wait_for_all(self.command(arguments, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    pub fn run_in(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        wait(self.command(arguments, variables).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// The projects of a sandbox are its user's own: they are trusted, unless the variable is taken away again.
    pub fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llm-do"));
        command.args(arguments).env_clear().env("HOME", self.path()).env("LLM_DO_TRUST", "1");
        command.envs(variables.iter().copied());
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// `llm-do …` as somebody who is not root, with a program of their own to run: ours may lie where they cannot go.
    pub fn unprivileged(&self, arguments: &[&str]) -> Command {
        const NOBODY: u32 = 65534;
        let program = self.path().join("llm-do");
        // Copied by another process: one that writes a program and starts others meanwhile may find it busy.
        let copied = Command::new("cp").arg("-f").arg(env!("CARGO_BIN_EXE_llm-do")).arg(&program).status().unwrap();
        assert!(copied.success());
        for path in [self.path(), &program] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("LLM_DO_TRUST", "1").current_dir(self.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Only root can become somebody else; anybody else is one already.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Where runs are kept.
    pub fn state(&self) -> PathBuf {
        self.path().join(".local/state/llm-do")
    }

    /// Of somebody who has run something before, and knows where runs are kept.
    pub fn told(self) -> Self {
        fs::create_dir_all(self.state()).unwrap();
        fs::set_permissions(self.state(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(self.state().join("told"), "").unwrap();
        self
    }

    /// The ids of the runs that are kept, the oldest first.
    pub fn runs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.state().join("runs")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut ids: Vec<String> = names.filter(|name| is_run_id(name)).collect();
        ids.sort();
        ids
    }

    /// Every file beneath the directory and what it holds; what is kept of runs is left out.
    pub fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut waiting = vec![self.path().to_owned()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path == self.state() {
                    continue;
                }
                if path.is_dir() {
                    waiting.push(path);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    files.insert(path.strip_prefix(self.path()).unwrap().to_owned(), text);
                }
            }
        }
        files
    }
}

/// Starts a program whose output is piped, and waits for its end. The closing summary, which has a time in it, is left
/// out of what is compared; [`wait_for_all`] keeps it.
pub fn wait(command: &mut Command) -> Ended {
    let ended = wait_for_all(command);
    let stderr: String = ended.stderr.split_inclusive('\n').filter(|line| !is_summary(line)).collect();
    Ended { stderr: without_run_ids(&stderr), ..ended }
}

/// What stands between blanks and marks.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// Each id of a run as `RUN`: no two runs have the same.
pub fn without_run_ids(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some(word) = rest.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).next() {
        let name = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        plain.push_str(if is_run_id(name) { "RUN" } else { name });
        plain.push_str(&word[name.len()..]);
        rest = &rest[word.len()..];
    }
    plain
}

/// Sixteen digits of Crockford's base 32, of which the first are a time in this century.
pub fn is_run_id(word: &str) -> bool {
    let is_digit =
        |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'h' | b'j' | b'k' | b'm' | b'n' | b'p'..=b't' | b'v'..=b'z');
    word.len() == 16 && word.starts_with('0') && word.bytes().all(is_digit)
}

/// `0.1 s · 1 request · 12 tokens in, 3 out · $0.0001 · 1 from the cache · 06gy3k9x7wqe4t2m`, of which the last is there if the run is kept.
pub fn is_summary(line: &str) -> bool {
    let parts: Vec<&str> = line.trim_end().split(" · ").collect();
    let is_cut = |requests: &str| requests.ends_with(" cancelled");
    if let [time, requests, _] | [time, requests, _, _] = parts.as_slice()
        && is_cut(requests)
    {
        return time.ends_with(" s");
    }
    matches!(parts.as_slice(), [time, requests, tokens, _, rest @ ..] if rest.len() <= 2 && time.ends_with(" s")
        && requests.contains(" request")
        && tokens.contains(" tokens in, "))
}

pub fn wait_for_all(command: &mut Command) -> Ended {
    let mut child = loop {
        match command.spawn() {
            // A copy of the program is still held open by a child that another test started while it was written.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => thread::yield_now(),
            started => break started.unwrap(),
        }
    };
    let stdout = read_all(child.stdout.take().unwrap());
    let stderr = read_all(child.stderr.take().unwrap());
    let (Ok(stdout), Ok(stderr)) = (stdout.recv_timeout(DEADLINE), stderr.recv_timeout(DEADLINE)) else {
        child.kill().unwrap();
        panic!("{command:?} does not end");
    };
    Ended { code: child.wait().unwrap().code(), stdout, stderr }
}

/// The exit code of a program that must end by itself.
#[track_caller]
pub fn wait_for_end(child: &mut Child) -> Option<i32> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let deadline = Timespec { tv_sec: DEADLINE.as_secs().cast_signed(), tv_nsec: 0 };
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&deadline)).unwrap() == 0 {
        child.kill().unwrap();
        panic!("it does not end");
    }
    child.wait().unwrap().code()
}

fn read_all(mut stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}
