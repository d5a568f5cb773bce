//! One attempt of one invocation, as the engine's protocol has it. What the engine keeps of a run is one list of entries: lines of
//! its journal, words that were said to it, and what the list of runs was told. Each entry says which command follows it, so a
//! later attempt issues the same commands whatever the run above does.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::SyncSender;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use llm_do::records::Replica;
use restate_sdk_shared_core::{
    AwaitResponse, AwaitingOnPolicy, CoreVM, Error, NonEmptyValue, NotificationHandle, PayloadOptions, RetryPolicy,
    RunExitResult, State, Target, TerminalFailure, UnresolvedFuture, VM, VMOptions, Value,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// The object that lists the runs of all projects.
pub const LIST: &str = "llm-do.runs";
/// The key of its one instance.
pub const LIST_KEY: &str = "all";
/// Under this name and a number lines of a run's journal stand in its state.
const LINES: &str = "lines";
/// Under this name the state of a run says that it is over.
pub const OVER: &str = "over";
/// The engine refuses larger values, and would take the step that led to it again and again.
const LARGEST: usize = 16 << 20;

/// The attempt is over: the engine hung up, or was told why it cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptOver;

/// What an engine keeps of a run, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEntry {
    /// Lines of its journal.
    Lines(Vec<u8>),
    /// The next word that was said to it was heard.
    Heard,
    /// The list of runs is told this.
    Listed(Vec<u8>),
    /// It is over, with this result: nothing follows but that.
    Over(Vec<u8>),
}

impl EngineEntry {
    fn bytes(&self) -> Vec<u8> {
        let (tag, rest): (u8, &[u8]) = match self {
            Self::Lines(lines) => (b'L', lines),
            Self::Heard => (b'H', &[]),
            Self::Listed(row) => (b'I', row),
            Self::Over(result) => (b'O', result),
        };
        [&[tag], rest].concat()
    }

    /// Nothing of an entry that an earlier attempt began and did not bring to its end.
    fn read(bytes: &[u8]) -> Result<Option<Self>, Unreadable> {
        Ok(Some(match bytes.split_first() {
            None => return Ok(None),
            Some((b'L', lines)) => Self::Lines(lines.to_vec()),
            Some((b'H', [])) => Self::Heard,
            Some((b'I', row)) => Self::Listed(row.to_vec()),
            Some((b'O', result)) => Self::Over(result.to_vec()),
            Some(_) => return Err(Unreadable),
        }))
    }
}

/// An entry of another program, or of a newer one.
struct Unreadable;

/// Lines that wait until the engine has them.
pub struct Append {
    lines: Vec<u8>,
    kept: SyncSender<io::Result<()>>,
}

/// Hands lines from the thread that writes them to the attempt that brings them to the engine.
#[derive(Clone, Debug)]
pub struct EngineReplica(pub UnboundedSender<Append>);

impl std::fmt::Debug for Append {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Append")
    }
}

impl Replica for EngineReplica {
    fn keep(&self, lines: &[u8]) -> io::Result<()> {
        let gone = || io::Error::other("the engine has ended this attempt");
        if lines.len() > LARGEST {
            return Err(io::Error::other(
                "a result is larger than the engine takes; share a directory for large values",
            ));
        }
        let (kept, is_kept) = std::sync::mpsc::sync_channel(1);
        self.0.send(Append { lines: lines.to_vec(), kept }).map_err(|_| gone())?;
        is_kept.recv().map_err(|_| gone())?
    }
}

/// What an attempt is told.
#[derive(Debug)]
pub enum AttemptNews {
    /// Somebody said something to the run.
    Said(Bytes),
    /// The engine cancels it.
    Cancelled,
}

/// An entry on its way to the engine.
struct OnItsWay {
    handle: NotificationHandle,
    entry: EngineEntry,
    kept: Vec<SyncSender<io::Result<()>>>,
}

/// The protocol's state machine, and both streams.
pub struct EngineAttempt {
    vm: CoreVM,
    body: Incoming,
    out: UnboundedSender<Bytes>,
    /// How many entries there are.
    entries: u64,
    /// How many of them are lines.
    lines: u64,
    /// How many words were heard.
    heard: u64,
    /// Where the next word comes in; nothing while it is noted that one was heard.
    mail: Option<NotificationHandle>,
    waiting: VecDeque<(EngineEntry, Vec<SyncSender<io::Result<()>>>)>,
    on_its_way: Option<OnItsWay>,
    /// The engine cancels it, and nobody was told yet.
    is_cancelled: bool,
}

/// What was asked for.
pub struct InvocationInput {
    /// The key of the run, or of the list.
    pub key: String,
    pub input: Bytes,
    pub id: String,
}

impl EngineAttempt {
    /// The state machine for a request with these headers, or the status that refuses it.
    pub fn vm(headers: HeaderMap) -> Result<CoreVM, (u16, String)> {
        let options = VMOptions { awaiting_on_policy: AwaitingOnPolicy::DontSend, ..VMOptions::default() };
        CoreVM::new(headers, options).map_err(|error| (error.code(), error.to_string()))
    }

    /// Reads until it is known what was asked.
    pub async fn begin(
        mut vm: CoreVM,
        mut body: Incoming,
        out: UnboundedSender<Bytes>,
    ) -> Option<(Self, InvocationInput)> {
        while !vm.is_ready_to_execute().ok()? {
            match next(&mut body).await {
                Some(data) => vm.notify_input(data),
                None => vm.notify_input_closed(),
            }
        }
        let input = vm.sys_input().ok()?;
        let asked = InvocationInput { key: input.key, input: input.input, id: input.invocation_id };
        let (waiting, on_its_way) = (VecDeque::new(), None);
        Some((
            Self {
                vm,
                body,
                out,
                entries: 0,
                lines: 0,
                heard: 0,
                mail: None,
                waiting,
                on_its_way,
                is_cancelled: false,
            },
            asked,
        ))
    }

    /// Whether an earlier attempt has left something.
    pub fn is_replaying(&self) -> bool {
        self.vm.state() == State::Replaying
    }

    /// All that earlier attempts left, in order, with the words that were said. What an attempt began and did not bring to its
    /// end is void.
    pub async fn replayed(&mut self) -> Result<Vec<EarlierEntry>, AttemptOver> {
        let mut all = Vec::new();
        self.listen()?;
        while self.vm.state() == State::Replaying {
            let name = self.name();
            let handle = self.vm.sys_run(name).map_err(|error| self.stuck(&error))?.handle;
            let value = self.value(handle, Some(Bytes::new())).await?;
            self.entries += 1;
            let Ok(entry) = EngineEntry::read(&value) else {
                return Err(
                    self.fail(500, "the engine has entries of another program: a worker of that version goes on")
                );
            };
            let Some(entry) = entry else { continue };
            let mail = self.mail;
            self.follow(&entry)?;
            let replayed = match (entry, mail) {
                (EngineEntry::Heard, Some(mail)) => EarlierEntry::Said(self.value(mail, None).await?),
                (EngineEntry::Heard, None) => return Err(AttemptOver),
                (EngineEntry::Lines(lines), _) => EarlierEntry::Lines(lines),
                (EngineEntry::Listed(row), _) => EarlierEntry::Listed(row),
                (EngineEntry::Over(result), _) => {
                    // What follows is the end, which is told again.
                    all.push(EarlierEntry::Over(result));
                    return Ok(all);
                }
            };
            all.push(replayed);
        }
        Ok(all)
    }

    fn name(&self) -> String {
        format!("entry {}", self.entries)
    }

    /// The next word will come in here.
    fn listen(&mut self) -> Result<(), AttemptOver> {
        let promise = self.vm.sys_get_promise(format!("word {}", self.heard));
        self.mail = Some(promise.map_err(|error| self.stuck(&error))?);
        Ok(())
    }

    /// The command that follows an entry.
    fn follow(&mut self, entry: &EngineEntry) -> Result<(), AttemptOver> {
        let options = PayloadOptions::default();
        match entry {
            EngineEntry::Lines(lines) => {
                let key = format!("{LINES} {}", self.lines);
                self.lines += 1;
                let set = self.vm.sys_state_set(key, Bytes::from(lines.clone()), None, options);
                set.map_err(|error| self.stuck(&error))
            }
            EngineEntry::Heard => {
                self.heard += 1;
                self.listen()
            }
            EngineEntry::Listed(row) => self.tell_list(row.clone()),
            EngineEntry::Over(_) => self.set_state(OVER, Bytes::from_static(b"1")),
        }
    }

    /// Tells the list of runs something, of which nothing is heard.
    pub fn tell_list(&mut self, row: Vec<u8>) -> Result<(), AttemptOver> {
        let target = target(LIST, "put", LIST_KEY);
        let sent = self.vm.sys_send(target, Bytes::from(row), None, None, PayloadOptions::default());
        sent.map(drop).map_err(|error| self.stuck(&error))
    }

    /// Waits for one value and nothing else; a step that nobody finished gets this one.
    async fn value(&mut self, handle: NotificationHandle, unfinished: Option<Bytes>) -> Result<Bytes, AttemptOver> {
        loop {
            let answer = self.vm.do_await(UnresolvedFuture::Single(handle));
            self.flush()?;
            match answer {
                Ok(AwaitResponse::AnyCompleted) => {
                    let taken = self.vm.take_notification(handle).map_err(|error| self.stuck(&error))?;
                    return match taken {
                        Some(Value::Success(bytes)) => Ok(bytes),
                        Some(Value::Void) => Ok(Bytes::new()),
                        _ => Err(self.fail(500, "the engine answered what was not asked")),
                    };
                }
                Ok(AwaitResponse::ExecuteRun(handle)) => {
                    let value = RunExitResult::Success(unfinished.clone().unwrap_or_default());
                    let proposed = self.vm.propose_run_completion(handle, value, RetryPolicy::Infinite);
                    proposed.map_err(|error| self.stuck(&error))?;
                }
                Ok(AwaitResponse::WaitingExternalProgress { .. }) => match next(&mut self.body).await {
                    Some(data) => self.vm.notify_input(data),
                    None => self.vm.notify_input_closed(),
                },
                Ok(AwaitResponse::CancelSignalReceived) => self.is_cancelled = true,
                Ok(AwaitResponse::EphemeralNotificationReady(_)) => {}
                Err(error) => return Err(self.stuck(&error)),
            }
        }
    }

    /// Keeps an entry.
    pub fn put(&mut self, entry: EngineEntry) {
        self.waiting.push_back((entry, Vec::new()));
    }

    /// Lines of the run's journal, which are kept behind those before them.
    pub fn append(&mut self, append: Append) {
        let Append { lines, kept } = append;
        // What has come together is one entry.
        if let Some((EngineEntry::Lines(last), all)) = self.waiting.back_mut()
            && last.len() + lines.len() <= LARGEST
        {
            last.extend_from_slice(&lines);
            all.push(kept);
        } else {
            self.waiting.push_back((EngineEntry::Lines(lines), vec![kept]));
        }
    }

    /// Brings entries to the engine, and waits until something happens. Cancel-safe.
    pub async fn happened(&mut self) -> Result<AttemptNews, AttemptOver> {
        loop {
            if let Some(happened) = self.settle()? {
                return Ok(happened);
            }
            match next(&mut self.body).await {
                Some(data) => self.vm.notify_input(data),
                None => self.vm.notify_input_closed(),
            }
        }
    }

    /// Until all entries are kept; what is said meanwhile.
    pub async fn kept(&mut self) -> Result<Vec<AttemptNews>, AttemptOver> {
        let mut all = Vec::new();
        loop {
            while let Some(happened) = self.settle()? {
                all.push(happened);
            }
            if self.on_its_way.is_none() && self.waiting.is_empty() {
                return Ok(all);
            }
            match next(&mut self.body).await {
                Some(data) => self.vm.notify_input(data),
                None => self.vm.notify_input_closed(),
            }
        }
    }

    /// As far as it goes without the engine.
    fn settle(&mut self) -> Result<Option<AttemptNews>, AttemptOver> {
        loop {
            if std::mem::take(&mut self.is_cancelled) {
                return Ok(Some(AttemptNews::Cancelled));
            }
            if self.on_its_way.is_none()
                && let Some((entry, kept)) = self.waiting.pop_front()
            {
                let name = self.name();
                let handle = self.vm.sys_run(name).map_err(|error| self.stuck(&error))?.handle;
                self.on_its_way = Some(OnItsWay { handle, entry, kept });
            }
            let handles = self.on_its_way.iter().map(|entry| entry.handle).chain(self.mail);
            let all: Vec<UnresolvedFuture> = handles.map(UnresolvedFuture::Single).collect();
            if all.is_empty() {
                return Ok(None);
            }
            let answer = self.vm.do_await(UnresolvedFuture::FirstCompleted(all));
            self.flush()?;
            match answer {
                Ok(AwaitResponse::AnyCompleted) => {
                    if let Some(happened) = self.completed()? {
                        return Ok(Some(happened));
                    }
                }
                Ok(AwaitResponse::ExecuteRun(handle)) => {
                    let bytes = self.on_its_way.as_ref().map(|entry| entry.entry.bytes()).unwrap_or_default();
                    let value = RunExitResult::Success(Bytes::from(bytes));
                    let proposed = self.vm.propose_run_completion(handle, value, RetryPolicy::Infinite);
                    proposed.map_err(|error| self.stuck(&error))?;
                }
                Ok(AwaitResponse::WaitingExternalProgress { .. }) => return Ok(None),
                Ok(AwaitResponse::CancelSignalReceived) => self.is_cancelled = true,
                Ok(AwaitResponse::EphemeralNotificationReady(_)) => {}
                Err(error) => return Err(self.stuck(&error)),
            }
        }
    }

    /// The engine has kept an entry, or somebody has said something.
    fn completed(&mut self) -> Result<Option<AttemptNews>, AttemptOver> {
        if let Some(on_its_way) = self.on_its_way.take_if(|entry| self.vm.is_completed(entry.handle)) {
            let OnItsWay { handle, entry, kept } = on_its_way;
            let value = self.vm.take_notification(handle).map_err(|error| self.stuck(&error))?;
            if value != Some(Value::Success(Bytes::from(entry.bytes()))) {
                // Somebody else goes on with this run.
                return Err(AttemptOver);
            }
            self.entries += 1;
            self.follow(&entry)?;
            self.flush()?;
            // Who asked may have left.
            for kept in kept {
                drop(kept.send(Ok(())));
            }
            return Ok(None);
        }
        let Some(mail) = self.mail.take_if(|mail| self.vm.is_completed(*mail)) else { return Ok(None) };
        let value = self.vm.take_notification(mail).map_err(|error| self.stuck(&error))?;
        self.waiting.push_back((EngineEntry::Heard, Vec::new()));
        match value {
            Some(Value::Success(said)) => Ok(Some(AttemptNews::Said(said))),
            _ => Ok(None),
        }
    }

    /// Nothing is left to do before somebody says something: the engine wakes the run then, whichever worker there is.
    pub async fn sleep(mut self) {
        self.vm.notify_input_closed();
        let handles = self.mail.into_iter().map(UnresolvedFuture::Single).collect();
        let _ = self.vm.do_await(UnresolvedFuture::FirstCompleted(handles));
        let _ = self.flush();
        self.drained().await;
    }

    /// The invocation has this result.
    pub async fn end(mut self, result: Result<Bytes, (u16, String)>) {
        let value = match result {
            Ok(bytes) => NonEmptyValue::Success(bytes),
            Err((code, message)) => NonEmptyValue::Failure(TerminalFailure { code, message, metadata: Vec::new() }),
        };
        let _ = self.vm.sys_write_output(value, PayloadOptions::default()).and_then(|()| self.vm.sys_end());
        let _ = self.flush();
        self.drained().await;
    }

    /// This attempt cannot go on, and another one may: the engine tries again later.
    pub async fn give_up(mut self, code: u16, why: &str) {
        let _ = self.fail(code, why);
        self.drained().await;
    }

    fn fail(&mut self, code: u16, why: &str) -> AttemptOver {
        self.vm.notify_error(Error::new(code, why.to_owned()), None);
        let _ = self.flush();
        AttemptOver
    }

    /// Asleep, or in disagreement with the journal: the state machine has said so on the wire.
    fn stuck(&mut self, _error: &Error) -> AttemptOver {
        let _ = self.flush();
        AttemptOver
    }

    /// Does what a handler does with the state of its object, and gives the value.
    pub async fn state(&mut self, key: &str) -> Result<Option<Bytes>, AttemptOver> {
        let handle = self.vm.sys_state_get(key.to_owned(), None, PayloadOptions::default());
        let handle = handle.map_err(|error| self.stuck(&error))?;
        let value = self.value(handle, None).await?;
        Ok(Some(value).filter(|value| !value.is_empty()))
    }

    pub async fn state_keys(&mut self) -> Result<Vec<String>, AttemptOver> {
        let handle = self.vm.sys_state_get_keys(None).map_err(|error| self.stuck(&error))?;
        loop {
            let answer = self.vm.do_await(UnresolvedFuture::Single(handle));
            self.flush()?;
            match answer {
                Ok(AwaitResponse::AnyCompleted) => {
                    return match self.vm.take_notification(handle) {
                        Ok(Some(Value::StateKeys(keys))) => Ok(keys),
                        _ => Err(AttemptOver),
                    };
                }
                Ok(AwaitResponse::WaitingExternalProgress { .. }) => match next(&mut self.body).await {
                    Some(data) => self.vm.notify_input(data),
                    None => self.vm.notify_input_closed(),
                },
                Ok(_) => {}
                Err(error) => return Err(self.stuck(&error)),
            }
        }
    }

    pub fn set_state(&mut self, key: &str, value: Bytes) -> Result<(), AttemptOver> {
        let set = self.vm.sys_state_set(key.to_owned(), value, None, PayloadOptions::default());
        set.map_err(|error| self.stuck(&error))
    }

    pub fn clear_state(&mut self, key: &str) -> Result<(), AttemptOver> {
        self.vm.sys_state_clear(key.to_owned(), None).map_err(|error| self.stuck(&error))
    }

    /// The lines of a run that were kept under these numbers, as far as there are some; asked for all at once.
    pub async fn lines(&mut self, from: u64, most: u64) -> Result<Vec<Bytes>, AttemptOver> {
        let mut handles = Vec::new();
        for number in from..from + most {
            let handle = self.vm.sys_state_get(format!("{LINES} {number}"), None, PayloadOptions::default());
            handles.push(handle.map_err(|error| self.stuck(&error))?);
        }
        let mut all = Vec::new();
        for handle in handles {
            all.push(self.value(handle, None).await?);
        }
        Ok(all.into_iter().take_while(|lines| !lines.is_empty()).collect())
    }

    /// Whether a word was said to the run under this number.
    pub async fn word(&mut self, number: u64) -> Result<Option<Bytes>, AttemptOver> {
        let handle = self.vm.sys_peek_promise(format!("word {number}")).map_err(|error| self.stuck(&error))?;
        self.value(handle, None).await.map(|value| Some(value).filter(|value| !value.is_empty()))
    }

    /// Says a word to the run under this number, unless somebody was first.
    pub async fn say(&mut self, number: u64, word: Bytes) -> Result<bool, AttemptOver> {
        let options = PayloadOptions::default();
        let handle = self.vm.sys_complete_promise(format!("word {number}"), NonEmptyValue::Success(word), options);
        let handle = handle.map_err(|error| self.stuck(&error))?;
        loop {
            let answer = self.vm.do_await(UnresolvedFuture::Single(handle));
            self.flush()?;
            match answer {
                Ok(AwaitResponse::AnyCompleted) => {
                    return match self.vm.take_notification(handle) {
                        Ok(Some(Value::Failure(_))) => Ok(false),
                        Ok(Some(_)) => Ok(true),
                        _ => Err(AttemptOver),
                    };
                }
                Ok(AwaitResponse::WaitingExternalProgress { .. }) => match next(&mut self.body).await {
                    Some(data) => self.vm.notify_input(data),
                    None => self.vm.notify_input_closed(),
                },
                Ok(_) => {}
                Err(error) => return Err(self.stuck(&error)),
            }
        }
    }

    /// Cancels an invocation, by the engine's own signal.
    pub fn cancel(&mut self, id: &str) -> Result<(), AttemptOver> {
        self.vm.sys_cancel_invocation(id.to_owned()).map_err(|error| self.stuck(&error))
    }

    fn flush(&mut self) -> Result<(), AttemptOver> {
        let bytes = self.vm.take_output();
        if bytes.is_empty() { Ok(()) } else { self.out.send(bytes).map_err(|_| AttemptOver) }
    }

    /// The request has to end before the answer does.
    async fn drained(self) {
        let Self { mut body, out, .. } = self;
        while next(&mut body).await.is_some() {}
        drop(out);
    }
}

/// What earlier attempts left.
#[derive(Debug)]
pub enum EarlierEntry {
    Lines(Vec<u8>),
    Said(Bytes),
    Listed(Vec<u8>),
    Over(Vec<u8>),
}

fn target(service: &str, handler: &str, key: &str) -> Target {
    Target {
        service: service.to_owned(),
        handler: handler.to_owned(),
        key: Some(key.to_owned()),
        idempotency_key: None,
        scope: None,
        limit_key: None,
        headers: Vec::new(),
    }
}

/// The next piece of a body; nothing at its end, or if it broke off.
async fn next(body: &mut Incoming) -> Option<Bytes> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        if let Ok(data) = frame.ok()?.into_data() {
            return Some(data);
        }
    }
}

/// What is answered, piece by piece. The engine hung up when this is dropped: nobody works for nobody.
pub struct AnswerBody {
    pub pieces: UnboundedReceiver<Bytes>,
    pub task: tokio::task::AbortHandle,
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        self.pieces.poll_recv(context).map(|piece| piece.map(|bytes| Ok(hyper::body::Frame::data(bytes))))
    }
}
