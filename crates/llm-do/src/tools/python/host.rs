//! The interpreter: started once, asked by many calls at the same time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::{
    EntryShape, Exports, Fenced, FoundClass, Python, PythonEndpoint, PythonTool, RenderedPart, Tracebacks, WantedClass,
    package,
};
use crate::event::{EventKind, Events, OutputStream};
use crate::message::{Content, RawJson};
use crate::tools::fence::tenant::{Premises, Resident, Tenant, is_script};
use crate::tools::rpc::child::{Child, listen_to};
use crate::tools::rpc::output::Output;
use crate::tools::rpc::{Connection, Fault, Incoming, Request, code};
use crate::tools::{CallContext, ToolError, callback};

/// The oldest Python that the package is written for.
const OLDEST: (u32, u32) = (3, 10);
/// How long code that was taken back may take to stop.
const STOPPING: Duration = Duration::from_secs(2);
/// How long a toolset may take to close before nobody waits for it.
const CLOSING: Duration = Duration::from_secs(10);

/// Why the interpreter could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("the Python interpreter `{program}` cannot be started: {reason}")]
    NotStarted { program: String, reason: String },
    #[error("`{program}` is Python {found}, and 3.10 or newer is needed")]
    TooOld { program: String, found: String },
    #[error("Python is to run behind a fence (`python_fence`), and cannot: {0}")]
    NotFenced(String),
    #[error("Python {0}")]
    Died(String),
}

impl StartError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotStarted { .. } | Self::TooOld { .. } => {
                "name one with `--python PATH`, or make one with `python3 -m venv .venv` in the project"
            }
            Self::NotFenced(_) => "`llm-do check` says which fence there is; without the key it runs with your rights",
            Self::Died(_) => "the files of the project are imported when it starts",
        }
    }
}

/// A live interpreter. Dropped, it is killed with everything it started.
pub struct PythonHost {
    connection: Connection,
    calls: Arc<Calls>,
    next: AtomicU64,
    /// The single tools, by name.
    pub tools: BTreeMap<String, PythonTool>,
    /// The model providers that files register.
    pub providers: BTreeSet<String>,
    /// Where they are, as far as somebody has asked.
    endpoints: Mutex<BTreeMap<String, PythonEndpoint>>,
    /// The classes that the answers of agents are instances of: by agent.
    answers: Mutex<HashMap<String, String>>,
    tracebacks: Tracebacks,
    /// Why we have ended it.
    ended_for: OnceLock<String>,
    child: Child,
    _tenant: Option<Tenant>,
}

/// The calls under way in the interpreter, and what it prints.
struct Calls {
    open: Mutex<HashMap<u64, OpenCall>>,
    output: Output,
}

struct OpenCall {
    requests: mpsc::UnboundedSender<Request>,
    events: Events,
}

impl PythonHost {
    /// Starts the interpreter and imports the files, each once.
    pub(crate) async fn start(
        python: &Python,
        root: &Path,
        files: &[PathBuf],
        fenced: Option<Fenced<'_>>,
    ) -> Result<(Self, Exports), StartError> {
        let tenant = fenced.map(|fenced| tenant(python, root, fenced)).transpose().map_err(StartError::NotFenced)?;
        let mut host = Self::spawn(python, tenant).await?;
        let params = RawJson::of(&json!({"root": root, "files": files}));
        let exports = match host.connection.request("import", &params).await {
            Ok(exports) => exports,
            Err(Fault::Gone(reason)) => return Err(not_begun(python, &reason)),
            Err(fault @ Fault::Told { .. }) => return Err(StartError::Died(format!("failed: {fault}"))),
        };
        let exports: Exports =
            exports.to().map_err(|error| StartError::Died(format!("said what nobody asked: {error}")))?;
        host.tools = exports.tools.iter().map(|tool| (tool.tool.name.clone(), tool.tool.clone())).collect();
        host.providers.clone_from(&exports.providers);
        Ok((host, exports))
    }

    async fn spawn(python: &Python, tenant: Option<Tenant>) -> Result<Self, StartError> {
        let program = python.program.display().to_string();
        let failed = |error: std::io::Error| {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "there is no such program".to_owned(),
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
        let calls = Arc::new(Calls { open: Mutex::default(), output: Output::of("Python") });
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
        // One that cannot take it has ended, and the first request says why.
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
        Ok(Self {
            connection,
            calls,
            next: AtomicU64::new(1),
            tools: BTreeMap::new(),
            providers: BTreeSet::new(),
            endpoints: Mutex::default(),
            answers: Mutex::default(),
            tracebacks: python.tracebacks,
            ended_for: OnceLock::new(),
            child,
            _tenant: tenant,
        })
    }

    /// From now on what code prints outside of calls is told to these; so is what it printed before.
    pub fn attach(&self, events: Events) {
        self.calls.output.attach(events);
    }

    /// Forgets who listened: the last sender of events must not live as long as the interpreter.
    pub fn detach(&self) {
        self.calls.output.detach();
    }

    /// Which agents answer code with an instance of a class.
    pub fn expect_answers(&self, answers: HashMap<String, String>) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    /// Asks where a model is, if its provider is one that a file registers.
    pub async fn find_endpoint(&self, provider: &str, model: &str) -> Result<(), String> {
        if !self.providers.contains(provider) {
            return Ok(());
        }
        let failed = |reason: String| format!("the factory of the provider `{provider}` failed: {reason}");
        let asked = json!({"provider": provider, "model": model});
        let found: PythonEndpoint = self.ask("endpoint", &asked).await.map_err(failed)?;
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        match endpoints.insert(provider.to_owned(), found.clone()) {
            Some(other) if other != found => {
                Err(failed(format!("its models are in two places, {} and {}", other.base_url, found.base_url)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Where the models of a provider are that somebody has asked for.
    pub fn endpoint(&self, provider: &str) -> Option<PythonEndpoint> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).get(provider).cloned()
    }

    /// Nothing is wanted by most projects. Then nothing is asked: the answer would have to wait for Python's event loop,
    /// which is still being imported, and which a run that calls no code never needs.
    pub async fn classes(&self, wanted: &[WantedClass]) -> Result<Vec<FoundClass>, String> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.ask("classes", &json!({"classes": wanted})).await
    }

    pub async fn entry_shape(&self, file: &Path, function: &str) -> Result<EntryShape, String> {
        self.ask("entry", &json!({"file": file, "function": function})).await
    }

    /// The message that an input class makes of a value, or what is wrong with the value.
    pub async fn render(&self, class: &str, value: Value) -> Result<Vec<RenderedPart>, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Rendered {
            Parts(Vec<RenderedPart>),
            Invalid(String),
        }
        match self.ask("render", &json!({"class": class, "value": value})).await? {
            Rendered::Parts(parts) => Ok(parts),
            Rendered::Invalid(violation) => Err(violation),
        }
    }

    /// An answer as its class sees it, or what is wrong with it.
    pub async fn validate(&self, class: &str, text: &str) -> Result<RawJson, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Validated {
            Value(RawJson),
            Invalid(String),
        }
        match self.ask("validate", &json!({"class": class, "text": text})).await? {
            Validated::Value(value) => Ok(value),
            Validated::Invalid(violation) => Err(violation),
        }
    }

    /// Runs an entry function.
    pub async fn enter(
        &self,
        file: &Path,
        function: &str,
        value: &RawJson,
        cx: &CallContext<'_>,
    ) -> Result<RawJson, ToolError> {
        #[derive(Deserialize)]
        struct Entered {
            value: RawJson,
        }
        let asked = Entering { file, function, value };
        let answer = self.within("enter", asked, Sight::Full, Duration::ZERO, cx).await?;
        let Entered { value } = read(&answer).map_err(ToolError::Failed)?;
        Ok(value)
    }

    pub(super) async fn ask<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, String> {
        let answer = self.connection.request(method, &RawJson::of(params)).await.map_err(|fault| {
            let events = self.calls.output.listener();
            self.tell_traceback(&fault, events.as_ref());
            self.words(&fault)
        })?;
        read(&answer)
    }

    /// Line by line, so that none of it can be taken for a line of ours.
    fn tell_traceback(&self, fault: &Fault, events: Option<&Events>) {
        #[derive(Deserialize)]
        struct Told {
            traceback: String,
        }
        let (Tracebacks::Whole, Fault::Told { data: Some(data), .. }, Some(events)) = (self.tracebacks, fault, events)
        else {
            return;
        };
        let told = data.to::<Told>().map(|told| told.traceback).unwrap_or_default();
        for line in told.lines() {
            events.send(|| EventKind::Notice { text: line.to_owned() });
        }
    }

    /// Closes an instance, within bounds: code that never returns must not hold the run.
    pub(super) async fn close(&self, instance: u64) -> Result<(), String> {
        let params = json!({"instance": instance});
        let closing = self.ask::<Value>("close", &params);
        match tokio::time::timeout(CLOSING, closing).await {
            Ok(closed) => closed.map(drop),
            Err(_) => Err(format!("it did not close within {} seconds", CLOSING.as_secs())),
        }
    }

    /// Whether the interpreter has ended: it is not started again.
    pub(super) fn is_gone(&self) -> bool {
        self.connection.ended().is_some()
    }

    /// Asks an instance to close without waiting for it.
    pub(super) fn abandon(&self, instance: u64) {
        self.connection.notify("close", &RawJson::of(&json!({"instance": instance})));
    }

    /// Asks for something inside a call of ours: whatever its code calls back comes through that call's context.
    pub(super) async fn within(
        &self,
        method: &str,
        asked: impl Serialize,
        sight: Sight,
        time: Duration,
        cx: &CallContext<'_>,
    ) -> Result<RawJson, ToolError> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, requests) = mpsc::unbounded_channel();
        let _open = self.calls.begin(call, OpenCall { requests: sender, events: cx.events.clone() });
        let params = RawJson::of(&Asked { asked, context: Seen::of(call, sight, cx) });
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
        let fact = format!("not done after {} seconds (`timeout_seconds` of its toolset)", time.as_secs_f64());
        let params = json!({"call": call});
        let stopping = tokio::time::timeout(STOPPING, self.ask::<bool>("has_stopped", &params));
        if let Ok(Ok(true)) = stopping.await {
            return fact;
        }
        let _ = self.ended_for.set("Python was ended, since a call of it did not stop".to_owned());
        self.child.end();
        format!("{fact}; it did not stop, so Python was ended")
    }

    fn words(&self, fault: &Fault) -> String {
        match (fault, self.ended_for.get()) {
            (Fault::Gone(_), Some(words)) => words.clone(),
            (Fault::Gone(_) | Fault::Told { .. }, _) => fault.to_string(),
        }
    }

    /// The answer of an agent may be an instance of a class.
    fn typed(&self, content: &[Content], agent: Option<&str>) -> RawJson {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match (content, agent.and_then(|agent| answers.get(agent))) {
            ([Content::Value { json }], Some(class)) => RawJson::of(&json!({"text": json, "class": class})),
            (content, _) => callback::value_of(content),
        }
    }
}

impl std::fmt::Debug for PythonHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PythonHost")
    }
}

const BOOTSTRAP: &str = include_str!("../../../python/bootstrap.py");

/// Isolated: neither variables nor the directory it is started in choose its modules.
const ARGUMENTS: [&str; 5] = ["-I", "-X", "utf8", "-c", BOOTSTRAP];

fn with_users_rights(python: &Python) -> Command {
    let mut command = Command::new(&python.program);
    command.args(ARGUMENTS).env_clear().envs(&python.environment.fixed);
    command
}

/// Python behind a fence is made of the project's own directory, which it imports from, and of what is installed for it.
fn tenant(python: &Python, project: &Path, fenced: Fenced<'_>) -> Result<Tenant, String> {
    let fence = python.fence.fence();
    let variables = python.environment.fixed.clone();
    let directory = std::env::current_dir().map_err(|error| format!("there is no working directory: {error}"))?;
    // Such as those of version managers.
    if is_script(&python.program, &directory, &variables) {
        let program = python.program.display();
        return Err(format!(
            "`{program}` is a script that looks for Python; name the interpreter with `--python PATH`"
        ));
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
    let Fenced { enclosure, protected } = fenced;
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

fn read<T: DeserializeOwned>(answer: &RawJson) -> Result<T, String> {
    answer.to().map_err(|error| format!("Python answered what nobody asked: {error}"))
}

/// How much of the call a function may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Where it is, not what was said.
    Place,
    Full,
}

#[derive(Serialize)]
struct Asked<'a, T> {
    #[serde(flatten)]
    asked: T,
    context: Seen<'a>,
}

#[derive(Serialize)]
struct Entering<'a> {
    file: &'a Path,
    function: &'a str,
    value: &'a RawJson,
}

/// The context of a call as Python sees it.
#[derive(Serialize)]
struct Seen<'a> {
    call: u64,
    agent: &'a str,
    depth: usize,
    path: &'a [String],
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    /// As text: it is parsed only where somebody looks at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Value>,
}

impl<'a> Seen<'a> {
    fn of(call: u64, sight: Sight, cx: &'a CallContext<'a>) -> Self {
        let full = sight == Sight::Full;
        Self {
            call,
            agent: cx.agent,
            depth: cx.depth,
            path: cx.path,
            model: cx.model,
            prompt: full.then(|| Content::shown(cx.input)),
            messages: full.then(|| serde_json::to_string(cx.messages).unwrap_or_default()),
            attachments: if full { callback::files(cx) } else { Vec::new() },
        }
    }
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, OpenCall>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, call: u64, open: OpenCall) -> Begun<'_> {
        self.open().insert(call, open);
        Begun { calls: self, call }
    }

    fn hear(&self, incoming: Incoming) {
        #[derive(Deserialize)]
        struct Routed {
            call: u64,
        }
        #[derive(Deserialize)]
        struct Printed {
            call: Option<u64>,
            stream: String,
            text: String,
        }
        match incoming {
            Incoming::Request(request) => {
                let call = request.params.to::<Routed>().ok().map(|routed| routed.call);
                let sender = call.and_then(|call| self.open().get(&call).map(|open| open.requests.clone()));
                match sender {
                    Some(sender) => drop(sender.send(request)),
                    None => {
                        request.refuse(Fault::told(code::FAILED, "the call is over: nothing can be called from it"));
                    }
                }
            }
            Incoming::Notification { method, params } if method == "output" => {
                if let Ok(Printed { call, stream, text }) = params.to() {
                    let stream = if stream == "stderr" { OutputStream::Stderr } else { OutputStream::Stdout };
                    self.say(call, stream, &text);
                }
            }
            // The channel is ours alone, so there is nothing else to hear.
            Incoming::Notification { .. } | Incoming::Noise(_) => {}
        }
    }

    fn say(&self, call: Option<u64>, stream: OutputStream, text: &str) {
        let events = call.and_then(|call| self.open().get(&call).map(|open| open.events.clone()));
        self.output.say(events.as_ref(), stream, text);
    }
}

struct Begun<'a> {
    calls: &'a Calls,
    call: u64,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.calls.open().remove(&self.call);
    }
}
