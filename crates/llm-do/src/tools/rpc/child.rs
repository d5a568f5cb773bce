//! A child process of ours: in a process group of its own, heard, and gone with everything it started when we are done.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use crate::descriptors;
use crate::escape::visible_lines;

/// How much of what a child said last is kept for the reader of the error that it died.
const LONGEST_TAIL: usize = 4 * 1024;
/// How long a child that stopped speaking may take to end before its last words are no longer waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a child may take to end by itself once it is not spoken to any more, and once more after it was asked to.
const PATIENCE: Duration = Duration::from_secs(1);

/// What children see of the environment, whichever toolset starts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChildEnvironment {
    /// Variables that are set whatever a project says.
    pub fixed: BTreeMap<String, String>,
    /// Variables that a project may choose from; no key of a provider is among them.
    pub offered: BTreeMap<String, String>,
}

impl ChildEnvironment {
    /// The fixed variables, and those of the named ones that are set.
    pub fn with<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, String> {
        let chosen = names.into_iter().filter_map(|name| Some((name.clone(), self.offered.get(name)?.clone())));
        self.fixed.clone().into_iter().chain(chosen).collect()
    }
}

/// A running child. Dropped, it is killed together with its descendants.
pub(crate) struct Child {
    group: Option<Pid>,
    life: watch::Receiver<Life>,
    tail: Arc<StderrTail>,
}

#[derive(Clone, Debug, PartialEq)]
enum Life {
    Running,
    Ended(String),
}

/// The ends of a child's pipes that its caller uses. A stream that the caller wired otherwise is absent.
pub(crate) struct Pipes {
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
}

impl Child {
    /// Starts a command whose stdin and stdout the caller has wired. `said` hears what it writes to stderr.
    pub(crate) fn spawn(mut command: Command, said: impl FnMut(&str) + Send + 'static) -> io::Result<(Self, Pipes)> {
        command.stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        descriptors::give_back(group);
        let pipes = Pipes { stdin: child.stdin.take(), stdout: child.stdout.take() };
        let (sender, life) = watch::channel(Life::Running);
        let tail = Arc::new(StderrTail::default());
        let kept = Arc::clone(&tail);
        let stderr = child.stderr.take();
        let listening = tokio::spawn(async move {
            if let Some(stderr) = stderr {
                listen(stderr, said, &kept).await;
            }
        });
        tokio::spawn(async move {
            let words = child.wait().await.map_or_else(|error| format!("is lost: {error}"), ended);
            // What it started must not outlive it; while its group has members no other gets its number.
            kill(group);
            // A process that left the group may hold the pipe open.
            let _ = tokio::time::timeout(LAST_WORDS / 2, listening).await;
            let _ = sender.send(Life::Ended(words));
        });
        Ok((Self { group, life, tail }, pipes))
    }

    /// Why a child that stopped speaking did so, with the last of what it said.
    pub(crate) fn why_ended(&self) -> impl Future<Output = String> + Send + 'static {
        let (mut life, tail) = (self.life.clone(), Arc::clone(&self.tail));
        async move {
            let ended = life.wait_for(|life| *life != Life::Running);
            let words = match tokio::time::timeout(LAST_WORDS, ended).await {
                Ok(Ok(life)) => match &*life {
                    Life::Ended(words) => words.clone(),
                    Life::Running => String::new(),
                },
                Ok(Err(_)) => "ended".to_owned(),
                Err(_) => "stopped answering".to_owned(),
            };
            match tail.words() {
                Some(last) => format!("{words}; its last words:\n{last}"),
                None => words,
            }
        }
    }
}

impl Child {
    /// Lets it end by itself, its stdin being closed; then asks it to; then ends it.
    pub(crate) async fn finish(mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            if self.has_ended_within(PATIENCE).await {
                return;
            }
            if let Some(group) = self.group {
                let _ = kill_process_group(group, signal);
            }
        }
        self.has_ended_within(PATIENCE).await;
    }

    async fn has_ended_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.life.wait_for(|life| *life != Life::Running)).await.is_ok()
    }

    /// Ends it at once, with everything it started.
    pub(crate) fn end(&self) {
        if *self.life.borrow() == Life::Running {
            kill(self.group);
        }
    }

    /// The last of what it said.
    pub(crate) fn last_words(&self) -> Option<String> {
        self.tail.words()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if *self.life.borrow() == Life::Running {
            kill(self.group);
        }
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // An error means that no process is left in it, which is what was wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        (None, None) => "ended".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        6 => " (abort)",
        9 => " (kill: out of memory, or somebody's decision)",
        11 => " (segmentation fault)",
        15 => " (terminate)",
        _ => "",
    }
}

/// The last of what a child said.
#[derive(Default)]
struct StderrTail(Mutex<VecDeque<u8>>);

impl StderrTail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&bytes[bytes.len().saturating_sub(LONGEST_TAIL)..]);
        let excess = kept.len().saturating_sub(LONGEST_TAIL);
        kept.drain(..excess);
    }

    fn words(&self) -> Option<String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned();
        (!text.is_empty()).then(|| visible_lines(&text))
    }
}

/// Hears a stream line by line; a line without an end is heard in pieces, so that it takes no memory.
pub(crate) async fn listen_to(stream: impl AsyncRead + Unpin, said: impl FnMut(&str)) {
    listen(stream, said, &StderrTail::default()).await;
}

async fn listen(mut stream: impl AsyncRead + Unpin, mut said: impl FnMut(&str), tail: &StderrTail) {
    const LONGEST_PIECE: usize = 8 * 1024;
    let mut piece = Vec::with_capacity(LONGEST_PIECE);
    let mut buffer = vec![0; LONGEST_PIECE];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        tail.push(&buffer[..read]);
        for part in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
            piece.extend_from_slice(part);
            if part.ends_with(b"\n") || piece.len() >= LONGEST_PIECE {
                said(&String::from_utf8_lossy(&piece));
                piece.clear();
            }
        }
    }
    if !piece.is_empty() {
        said(&String::from_utf8_lossy(&piece));
    }
}
