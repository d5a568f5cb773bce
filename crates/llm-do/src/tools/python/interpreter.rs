//! One running interpreter, which is asked by many calls at the same time.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::{Beginning, Exports, Python, PythonFence, Tracebacks, package};
use crate::event::{EventKind, Events, OutputStream};
use crate::message::{Content, RawJson};
use crate::remedy::Remedy;
use crate::tools::callback::{self, CallView, Sight};
use crate::tools::fence::tenant::{Premises, Resident, Tenant, is_script};
use crate::tools::rpc::child::{Child, listen_to};
use crate::tools::rpc::output::ChildOutput;
use crate::tools::rpc::{Connection, IncomingMessage, RpcError, RpcRequest, code};
use crate::tools::shell::limited;
use crate::tools::{CallContext, ToolError};

/// The oldest Python that the package is written for.
const OLDEST: (u32, u32) = (3, 10);
/// How long code that was taken back may take to stop.
const STOPPING: Duration = Duration::from_secs(2);
/// How long a toolset may take to close before the run stops waiting for it.
const CLOSING: Duration = Duration::from_secs(10);

/// Why the interpreter could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StartError {
    #[error("the Python interpreter `{program}` cannot be started: {reason}")]
    NotStarted { program: String, reason: String },
    #[error("`{program}` is Python {found}, and 3.10 or newer is needed")]
    TooOld { program: String, found: String },
    #[error("Python is to run behind a fence (`python_fence`), and cannot: {0}")]
    NotFenced(String),
    #[error("Python {0}")]
    Died(String),
}

/// What was looked for, and where.
fn not_found(python: &Python) -> String {
    match python.environment.fixed.get("PATH") {
        Some(path) if python.program.components().count() == 1 && !path.is_empty() => {
            format!("it is not in {}", path.split(':').collect::<Vec<_>>().join(", "))
        }
        _ => "there is no such program".to_owned(),
    }
}

impl StartError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Remedy {
        match self {
            Self::NotStarted { .. } | Self::TooOld { .. } => Remedy::ChoosePython,
            Self::NotFenced(_) => Remedy::FindFence,
            Self::Died(_) => "the files of the project are imported when it starts".into(),
        }
    }
}

/// A live interpreter. Dropped, it is killed with everything it started.
pub(crate) struct Interpreter {
    connection: Connection,
    calls: Arc<PythonCalls>,
    shared: Arc<PythonState>,
    next: AtomicU64,
    /// What is said instead of how it ended: why we have ended it, and why no other could take its place.
    ended_for: Mutex<Option<String>>,
    child: Child,
    _tenant: Option<Tenant>,
}

/// What an interpreter has in common with the one that takes its place.
pub(crate) struct PythonState {
    pub output: Arc<ChildOutput>,
    /// The classes that the answers of agents are instances of: by agent.
    pub answers: Mutex<HashMap<String, String>>,
    pub tracebacks: Tracebacks,
}

/// The calls under way in the interpreter, and what it prints.
struct PythonCalls {
    open: Mutex<HashMap<u64, OpenPythonCall>>,
    output: Arc<ChildOutput>,
}

struct OpenPythonCall {
    requests: mpsc::UnboundedSender<RpcRequest>,
    events: Events,
}

impl Interpreter {
    /// Starts it and imports the files, each once.
    pub(crate) async fn start(beginning: &Beginning, shared: Arc<PythonState>) -> Result<(Self, Exports), StartError> {
        let Beginning { python, root, files, fenced, memory, .. } = beginning;
        let tenant = fenced.as_ref().map(|fenced| tenant(python, root, fenced)).transpose();
        let interpreter = Self::spawn(python, tenant.map_err(StartError::NotFenced)?, shared).await?;
        let params = RawJson::of(&json!({"root": root, "files": files, "memory": memory}));
        let exports = match interpreter.connection.request("import", &params).await {
            Ok(exports) => exports,
            Err(RpcError::Gone(reason)) => return Err(not_begun(python, &reason)),
            Err(fault @ RpcError::Told { .. }) => return Err(StartError::Died(format!("failed: {fault}"))),
        };
        let exports = exports.to().map_err(|error| StartError::Died(format!("said what nobody asked: {error}")))?;
        Ok((interpreter, exports))
    }

    async fn spawn(python: &Python, tenant: Option<Tenant>, shared: Arc<PythonState>) -> Result<Self, StartError> {
        let program = python.program.display().to_string();
        let failed = |error: std::io::Error| {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => not_found(python),
                _ => error.to_string(),
            };
            StartError::NotStarted { program: program.clone(), reason }
        };
        let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
        let theirs = theirs.into_std().map_err(failed)?;
        theirs.set_nonblocking(false).map_err(failed)?;
        let mut command = match &tenant {
            Some(tenant) => tenant.command(),
            None => with_users_rights(python),
        };
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped());
        let calls = Arc::new(PythonCalls { open: Mutex::default(), output: Arc::clone(&shared.output) });
        let hears = |stream| {
            let calls = Arc::clone(&calls);
            move |text: &str| calls.say(None, stream, text)
        };
        let (child, pipes) = Child::spawn(command, hears(OutputStream::Stderr)).map_err(failed)?;
        if let Some(mut stdout) = pipes.stdout {
            if let Some(tenant) = &tenant {
                tenant.move_in(&mut ours, &mut stdout).await.map_err(StartError::NotFenced)?;
            }
            tokio::spawn(listen_to(stdout, hears(OutputStream::Stdout)));
        }
        // An interpreter that cannot take it has ended, and the first request says why.
        let _ = package::hand_over(&mut ours, python, tenant.is_some()).await;
        let (reader, writer) = ours.into_split();
        let heard = {
            let calls = Arc::clone(&calls);
            move |incoming| calls.hear(incoming)
        };
        let take_back = |id: u64| ("$/cancelRequest", RawJson::of(&json!({"id": id})));
        let ended = child.why_ended();
        let why_ended = async move { format!("Python {}", ended.await) };
        let connection = Connection::open(reader, writer, take_back, heard, why_ended);
        let (next, ended_for) = (AtomicU64::new(1), Mutex::default());
        Ok(Self { connection, calls, shared, next, ended_for, child, _tenant: tenant })
    }

    pub(crate) async fn ask<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, String> {
        let answer = self.connection.request(method, &RawJson::of(params)).await.map_err(|fault| {
            let events = self.shared.output.listener();
            self.tell_traceback(&fault, events.as_ref());
            self.words(&fault)
        })?;
        read(&answer)
    }

    /// Asks for something outside of all calls, so that its code can call nothing; if it takes longer, it ends with Python.
    pub(crate) async fn ask_within<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &Value,
        time: Duration,
    ) -> Result<T, String> {
        let Ok(answer) = tokio::time::timeout(time, self.ask(method, params)).await else {
            let words = format!("it took longer than {} s", time.as_secs());
            self.refuse(words.clone());
            self.child.end();
            return Err(words);
        };
        answer
    }

    /// Tells a traceback line by line, so that none of it can be taken for a line of ours.
    fn tell_traceback(&self, fault: &RpcError, events: Option<&Events>) {
        #[derive(Deserialize)]
        struct PythonTraceback {
            traceback: String,
        }
        let (Tracebacks::Whole, RpcError::Told { data: Some(data), .. }, Some(events)) =
            (self.shared.tracebacks, fault, events)
        else {
            return;
        };
        let told = data.to::<PythonTraceback>().map(|told| told.traceback).unwrap_or_default();
        for line in told.lines() {
            events.send(|| EventKind::Notice { text: line.to_owned() });
        }
    }

    /// Closes an instance, within bounds: code that never returns must not hold the run.
    pub(crate) async fn close(&self, instance: u64) -> Result<(), String> {
        let params = json!({"instance": instance});
        let closing = self.ask::<Value>("close", &params);
        match tokio::time::timeout(CLOSING, closing).await {
            Ok(closed) => closed.map(drop),
            Err(_) => Err(format!("it did not close within {} seconds", CLOSING.as_secs())),
        }
    }

    /// Whether it has ended, or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.ended_for().is_some() || self.connection.ended().is_some()
    }

    /// From now on every caller that asks it for something is told this.
    pub(crate) fn refuse(&self, words: String) {
        *self.ended_for() = Some(words);
    }

    fn ended_for(&self) -> MutexGuard<'_, Option<String>> {
        self.ended_for.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks an instance to close without waiting for it.
    pub(crate) fn abandon(&self, instance: u64) {
        self.connection.notify("close", &RawJson::of(&json!({"instance": instance})));
    }

    /// Asks for something inside a call of ours: whatever its code calls back comes through that call's context.
    pub(crate) async fn within(
        &self,
        method: &str,
        asked: impl Serialize,
        sight: Sight,
        time: Duration,
        cx: &CallContext<'_>,
    ) -> Result<RawJson, ToolError> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let seen = CallView::of(sight, cx, |messages| serde_json::to_string(messages).unwrap_or_default());
        let params = RawJson::of(&PythonRequest { asked, context: PythonCallContext { call, seen } });
        self.served(call, method, params, time, cx).await
    }

    /// The same for what was put into words already, whatever it was: this is not made anew for each kind of request.
    async fn served(
        &self,
        call: u64,
        method: &str,
        params: RawJson,
        time: Duration,
        cx: &CallContext<'_>,
    ) -> Result<RawJson, ToolError> {
        let (sender, requests) = mpsc::unbounded_channel();
        let _open = self.calls.begin(call, OpenPythonCall { requests: sender, events: cx.events.clone() });
        let answer = self.connection.request(method, &params);
        let given = |content: &[Content], agent: Option<&str>| self.typed(content, agent);
        let Some(answer) = callback::while_serving_within(time, answer, requests, cx, given).await else {
            return Err(ToolError::Failed(self.overdue(call, time).await));
        };
        answer.map_err(|fault| {
            self.tell_traceback(&fault, Some(cx.events));
            ToolError::Failed(self.words(&fault))
        })
    }

    /// A call that took too long was taken back. Code that does not stop for that is ended with its process.
    async fn overdue(&self, call: u64, time: Duration) -> String {
        let fact = format!("timed out after {} s (`timeout_seconds` of its toolset)", time.as_secs_f64());
        let params = json!({"call": call});
        let stopping = tokio::time::timeout(STOPPING, self.ask::<bool>("has_stopped", &params));
        if let Ok(Ok(true)) = stopping.await {
            return fact;
        }
        self.refuse("Python was ended, since a call of it did not stop".to_owned());
        self.child.end();
        format!("{fact}; it did not stop, so Python was ended")
    }

    fn words(&self, fault: &RpcError) -> String {
        match (fault, self.ended_for().as_ref()) {
            (RpcError::Gone(_), Some(words)) => words.clone(),
            (RpcError::Gone(_) | RpcError::Told { .. }, _) => fault.to_string(),
        }
    }

    /// The answer of an agent may be an instance of a class.
    fn typed(&self, content: &[Content], agent: Option<&str>) -> RawJson {
        let answers = self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match (content, agent.and_then(|agent| answers.get(agent))) {
            ([Content::Value { json }], Some(class)) => RawJson::of(&json!({"text": json, "class": class})),
            (content, _) => callback::value_of(content),
        }
    }
}

const BOOTSTRAP: &str = include_str!("../../../python/bootstrap.py");

/// The interpreter is isolated: neither variables nor the directory it is started in choose its modules.
const ARGUMENTS: [&str; 5] = ["-I", "-X", "utf8", "-c", BOOTSTRAP];

fn with_users_rights(python: &Python) -> Command {
    let launcher = python.fence.keeper.as_deref();
    let mut command =
        limited::resident(launcher, &python.program, python.directory.for_child(), &python.environment.fixed);
    command.args(ARGUMENTS);
    command.into()
}

/// Python behind a fence is made of the project's own directory, which it imports from, and of what is installed for
/// it.
fn tenant(python: &Python, project: &Path, fenced: &PythonFence) -> Result<Tenant, String> {
    let fence = python.fence.fence();
    let variables = python.environment.fixed.clone();
    let directory = python.directory.path().map_err(|error| format!("there is no working directory: {error}"))?;
    // The programs of version managers are such scripts.
    if is_script(&python.program, &directory, &variables) {
        let program = python.program.display();
        let remedy = python.fence.wording.of(&Remedy::NameInterpreter);
        return Err(format!("`{program}` is a script that looks for Python; {remedy}"));
    }
    let parts = variables.get("HOME").map(|home| installed_by_user(Path::new(home))).unwrap_or_default();
    let resident = Resident {
        program: python.program.clone(),
        arguments: ARGUMENTS.map(str::to_owned).to_vec(),
        variables,
        directory,
        code: vec![project.to_owned()],
        parts,
    };
    let PythonFence { enclosure, protected } = fenced;
    Premises { fence: &fence, project, protected, enclosure }.prepare(resident)
}

/// What a user installs for all projects.
fn installed_by_user(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.join(".local/lib")).into_iter().flatten().flatten();
    let is_python = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("python3");
    entries.filter(is_python).map(|entry| entry.path().join("site-packages")).collect()
}

fn not_begun(python: &Python, reason: &str) -> StartError {
    match reason.split_once("llm-do: too old: ") {
        Some((_, found)) => {
            debug_assert_eq!(OLDEST, (3, 10), "the bootstrap says the same");
            StartError::TooOld { program: python.program.display().to_string(), found: found.trim().to_owned() }
        }
        None => StartError::Died(reason.trim_start_matches("Python ").to_owned()),
    }
}

pub(crate) fn read<T: DeserializeOwned>(answer: &RawJson) -> Result<T, String> {
    answer.to().map_err(|error| format!("Python answered what nobody asked: {error}"))
}

#[derive(Serialize)]
struct PythonRequest<'a, T> {
    #[serde(flatten)]
    asked: T,
    context: PythonCallContext<'a>,
}

/// The context of a call as Python sees it: its messages as text, which is parsed only where code looks at it.
#[derive(Serialize)]
struct PythonCallContext<'a> {
    call: u64,
    #[serde(flatten)]
    seen: CallView<'a, String>,
}

impl PythonCalls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, OpenPythonCall>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, call: u64, open: OpenPythonCall) -> PythonCallGuard<'_> {
        self.open().insert(call, open);
        PythonCallGuard { calls: self, call }
    }

    fn hear(&self, incoming: IncomingMessage) {
        #[derive(Deserialize)]
        struct PythonCallReference {
            call: u64,
        }
        #[derive(Deserialize)]
        struct PythonOutput {
            call: Option<u64>,
            stream: String,
            text: String,
        }
        match incoming {
            IncomingMessage::Request(request) => {
                let call = request.params.to::<PythonCallReference>().ok().map(|routed| routed.call);
                let sender = call.and_then(|call| self.open().get(&call).map(|open| open.requests.clone()));
                match sender {
                    Some(sender) => drop(sender.send(request)),
                    None => {
                        request.refuse(RpcError::told(code::FAILED, "the call is over: nothing can be called from it"));
                    }
                }
            }
            IncomingMessage::Notification { method, params } if method == "output" => {
                if let Ok(PythonOutput { call, stream, text }) = params.to() {
                    let stream = if stream == "stderr" { OutputStream::Stderr } else { OutputStream::Stdout };
                    self.say(call, stream, &text);
                }
            }
            // The channel is ours alone, so there is nothing else to hear.
            IncomingMessage::Notification { .. } | IncomingMessage::Noise(_) => {}
        }
    }

    fn say(&self, call: Option<u64>, stream: OutputStream, text: &str) {
        let events = call.and_then(|call| self.open().get(&call).map(|open| open.events.clone()));
        self.output.say(events.as_ref(), stream, text);
    }
}

struct PythonCallGuard<'a> {
    calls: &'a PythonCalls,
    call: u64,
}

impl Drop for PythonCallGuard<'_> {
    fn drop(&mut self) {
        self.calls.open().remove(&self.call);
    }
}
