//! A conversation with one server, from its first word to its last. Every wait has an end.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::era::{self, Era, EraVerdict};
use super::http::{self, McpSession};
use super::oauth::LoginNeeded;
use super::protocol::{self, ABILITIES, LONGEST_MESSAGE, Listing, MOST_PAGES, McpTool, Progress};
use super::question::{self, ElicitOutcome};
use super::result;
use super::rounds::RoundRequest;
use super::server::ServerSpec;
use super::wire::elicitation::{ElicitAction, ElicitParams, ElicitResult};
use super::wire::{ELICIT, InputResponses, MODERN, RequestMeta, Task, meta};
use crate::event::{EventKind, Events, OutputStream};
use crate::message::{Content, RawJson};
use crate::tools::approval::PermittedCall;
use crate::tools::fence::tenant::Tenant;
use crate::tools::plane::InDoubt;
use crate::tools::rpc::child::Child;
use crate::tools::rpc::output::ChildOutput;
use crate::tools::rpc::{Connection, IncomingMessage, RpcError, RpcRequest, code};
use crate::tools::shell::limited;
use crate::tools::{CallContext, Ending, LONGEST_CALL, ToolError};

/// How long a server may take to start and to list its tools, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call that tells how far it has come has its timeout restarted, but not for ever.
const MOST_TIMES: u32 = 20;
/// Remarks on one call that are told.
const MOST_REMARKS: usize = 1_000;

/// How long a program may leave the first question of the modern revision without an answer.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a task that is given up may take to hear of it.
const COURTESY: Duration = Duration::from_secs(2);
/// Questions of a server within one call.
const MOST_QUESTIONS: usize = 10;

/// Why a server gives nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum McpError {
    /// For this reason.
    Failed(String),
    /// Somebody has to log in first.
    Login(LoginNeeded),
}

impl std::fmt::Display for McpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(reason) => f.write_str(reason),
            Self::Login(needed) => needed.fmt(f),
        }
    }
}

impl From<String> for McpError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<McpError> for ToolError {
    fn from(error: McpError) -> Self {
        match error {
            McpError::Failed(reason) => Self::Failed(reason),
            McpError::Login(needed) => Self::Ends(needed.into()),
        }
    }
}

/// Why a conversation did not begin.
pub(super) enum BeginError {
    /// The program ended at the first question of the modern revision: of one that knows no such question.
    EndedAtOnce,
    /// It does not open a conversation as earlier revisions do.
    Declined(McpError),
    Failed(McpError),
}

impl<E: Into<McpError>> From<E> for BeginError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A live server. Dropped, a program of ours is killed with everything it started.
pub(crate) struct Client {
    name: String,
    /// For what is asked before a call.
    patience: Duration,
    /// For a call; zero is for ever.
    timeout: Duration,
    /// `None` once it is closed.
    live: Mutex<Option<Live>>,
    heard: Arc<McpListener>,
    next: AtomicU64,
    /// The tools as they were listed last.
    listed: tokio::sync::Mutex<ListedTools>,
    /// How it is spoken to; known once the conversation has begun.
    era: OnceLock<Era>,
}

struct ListedTools {
    tools: Arc<[McpTool]>,
    /// Until when they are what there is.
    until: Option<Instant>,
}

struct Live {
    connection: Connection,
    other: Other,
}

/// Who is at the other end.
enum Other {
    Child(Child),
    Service(Arc<McpSession>),
}

/// What a server says without being asked.
struct McpListener {
    output: ChildOutput,
    calls: Mutex<HashMap<u64, Arc<OpenCall>>>,
    /// Its tools are no longer those that were listed.
    changed: AtomicBool,
    /// What it printed where only messages belong.
    noise: Mutex<String>,
}

/// A call under way.
struct OpenCall {
    id: String,
    tool: String,
    events: Events,
    has_progressed: AtomicBool,
    remarks: AtomicUsize,
    /// What the server asks a person within it, and whether one is asked now.
    asks: mpsc::UnboundedSender<RpcRequest>,
    is_asking: AtomicBool,
}

impl Client {
    /// Starts the program, or gets ready to ask the service. What it says in no call is told to these.
    pub(crate) async fn connect(
        name: &str,
        launch: &ServerSpec,
        timeout: Option<Duration>,
        session: &Events,
    ) -> Result<Self, String> {
        let heard = Arc::new(McpListener {
            output: ChildOutput::of(format!("`{name}`")),
            calls: Mutex::default(),
            changed: AtomicBool::new(true),
            noise: Mutex::default(),
        });
        heard.output.attach(session.clone());
        let live = match launch {
            ServerSpec::Command { program, args, variables, directory, launcher } => {
                let mut command = limited::resident(launcher.as_deref(), program, Some(directory), variables);
                command.args(args);
                let live = spawned(command.into(), None, &heard).await;
                live.map_err(|error| {
                    let reason = match error.kind() {
                        std::io::ErrorKind::NotFound => "there is no such program".to_owned(),
                        _ => error.to_string(),
                    };
                    format!("the MCP server `{name}` cannot be started: `{}`: {reason}", program.display())
                })?
            }
            ServerSpec::Fenced(tenant) => {
                let live = spawned(tenant.command(), Some(tenant), &heard).await;
                live.map_err(|error| format!("the MCP server `{name}` cannot be started behind a fence: {error}"))?
            }
            ServerSpec::Url { url, headers, http, login } => {
                let (stream, session) = http::open(http.clone(), url.clone(), headers.clone(), login.clone());
                let (reader, writer) = tokio::io::split(stream);
                let left = async { "is no longer asked".to_owned() };
                let connection = speaking(reader, writer, &heard, left);
                Live { connection, other: Other::Service(session) }
            }
        };
        let listed = tokio::sync::Mutex::new(ListedTools { tools: Arc::from([]), until: None });
        let (live, next) = (Mutex::new(Some(live)), AtomicU64::new(1));
        let patience = timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(PATIENCE);
        let timeout = timeout.unwrap_or(LONGEST_CALL);
        Ok(Self { name: name.to_owned(), patience, timeout, live, heard, next, listed, era: OnceLock::new() })
    }

    /// Agrees on the protocol and lists the tools, all within its time. Gives how many there are.
    pub(super) async fn begin(&self, known: Option<Era>, events: &Events) -> Result<usize, BeginError> {
        let beginning = async {
            let has_tools = match known {
                Some(Era::WithInitialize) => self.initialized().await?,
                Some(Era::Modern) | None => self.found_out().await?,
            };
            if !has_tools {
                self.heard.changed.store(false, Ordering::Relaxed);
                return Ok(0);
            }
            Ok(self.tools(events).await?.len())
        };
        let begun = tokio::time::timeout(self.patience, beginning).await;
        begun.unwrap_or_else(|_| Err(self.too_slow("did not start", self.patience).into()))
    }

    /// Which revision it speaks; nothing before that is known.
    pub(super) fn era(&self) -> Option<Era> {
        self.era.get().copied()
    }

    fn is_modern(&self) -> bool {
        self.era.get() == Some(&Era::Modern)
    }

    /// Opens the conversation as earlier revisions do. Gives whether there are tools.
    async fn initialized(&self) -> Result<bool, BeginError> {
        let answer = self.asked("initialize", &protocol::hello()).await;
        let answer = answer.map_err(|error| match error {
            RpcError::Told { code: http::UNAUTHORIZED, .. } | RpcError::Gone(_) => BeginError::Failed(self.of(error)),
            RpcError::Told { .. } => BeginError::Declined(self.of(error)),
        })?;
        let hello = protocol::read_hello(&answer);
        let hello = hello.map_err(|reason| BeginError::Declined(self.about(&reason).into()))?;
        let _ = self.era.set(Era::WithInitialize);
        let connection = self.connection()?;
        if let Some(Live { other: Other::Service(session), .. }) = &*self.live() {
            session.agreed(hello.version);
        }
        connection.notify("notifications/initialized", &RawJson::of(&json!({})));
        Ok(hello.has_tools)
    }

    /// Asks which revisions it speaks, and opens the conversation accordingly. A program that does not answer is opened as
    /// earlier revisions are, and the first of both answers decides.
    async fn found_out(&self) -> Result<bool, BeginError> {
        let params = with_meta(json!({}));
        let mut discovery = std::pin::pin!(self.asked("server/discover", &params));
        let answer = if self.is_program() {
            match tokio::time::timeout(SILENCE, &mut discovery).await {
                Ok(answer) => answer,
                Err(_) => {
                    let mut initialized = std::pin::pin!(self.initialized());
                    tokio::select! {
                        biased;
                        has_tools = &mut initialized => return has_tools,
                        answer = &mut discovery => match era::verdict(answer.clone()) {
                            EraVerdict::Modern { .. } | EraVerdict::AskAgain => answer,
                            EraVerdict::WithInitialize | EraVerdict::Unknown(_) => return initialized.await,
                        }
                    }
                }
            }
        } else {
            discovery.await
        };
        let answer = match era::verdict(answer.clone()) {
            // Once, since a server that says so twice would be asked for ever.
            EraVerdict::AskAgain => self.asked("server/discover", &params).await,
            EraVerdict::Modern { .. } | EraVerdict::WithInitialize | EraVerdict::Unknown(_) => answer,
        };
        match era::verdict(answer.clone()) {
            EraVerdict::Modern { has_tools } => {
                let _ = self.era.set(Era::Modern);
                Ok(has_tools)
            }
            EraVerdict::WithInitialize => self.initialized().await,
            EraVerdict::Unknown(RpcError::Gone(_)) if self.is_program() => Err(BeginError::EndedAtOnce),
            EraVerdict::AskAgain => Err(self.about("takes no revision that it names itself").into()),
            EraVerdict::Unknown(error) => Err(self.of(error).into()),
        }
    }

    fn is_program(&self) -> bool {
        matches!(&*self.live(), Some(Live { other: Other::Child(_), .. }))
    }

    /// The tools as they are now: listed again if the server has said that they changed, or that its list is over.
    pub(crate) async fn tools(&self, events: &Events) -> Result<Arc<[McpTool]>, McpError> {
        let mut listed = self.listed.lock().await;
        let is_over = listed.until.is_some_and(|until| until <= Instant::now());
        if self.heard.changed.swap(false, Ordering::Relaxed) || is_over {
            let listing = tokio::time::timeout(self.patience, self.list()).await;
            match listing.unwrap_or_else(|_| Err(self.too_slow("did not list its tools", self.patience).into())) {
                Ok(listing) => {
                    if let Some(complaint) = listing.complaint() {
                        let text = format!("not all tools of the MCP server `{}` can be used: {complaint}", self.name);
                        events.send(|| EventKind::Notice { text });
                    }
                    listed.until = listing.lasts().map(|lasts| Instant::now() + lasts);
                    if let Some(Live { other: Other::Service(session), .. }) = &*self.live() {
                        session.repeats(listing.repeated);
                    }
                    listed.tools = Arc::from(listing.tools);
                }
                Err(reason) => {
                    self.heard.changed.store(true, Ordering::Relaxed);
                    return Err(reason);
                }
            }
        }
        Ok(Arc::clone(&listed.tools))
    }

    async fn list(&self) -> Result<Listing, McpError> {
        let mut listing = Listing::of(self.is_modern());
        let mut params = json!({});
        for _ in 0..MOST_PAGES {
            let page = self.ask("tools/list", params).await?;
            match listing.add(&page).map_err(|reason| self.about(&reason))? {
                None => return Ok(listing),
                Some(cursor) => params = json!({"cursor": cursor}),
            }
        }
        Err(self.about(&format!("lists its tools on more than {MOST_PAGES} pages")).into())
    }

    /// Whether a tool is still what the caller knows. If it is another one by now, nothing is called, because the approver has
    /// not agreed to that.
    async fn check_known(&self, tool: &McpTool, events: &Events) -> Result<(), McpError> {
        let known = self.tools(events).await?;
        match known.iter().find(|known| known.original == tool.original) {
            None => Err(self.about(&format!("no longer has the tool `{}`", tool.name)).into()),
            Some(known) if known != tool => Err(self
                .about(&format!(
                    "has changed what the tool `{}` is since the agent was told of it; nothing was called",
                    tool.name
                ))
                .into()),
            Some(_) => Ok(()),
        }
    }

    /// Calls a tool as the caller knows it, of a server of an earlier revision.
    pub(crate) async fn call(
        &self,
        tool: &McpTool,
        call: &PermittedCall,
        cx: &CallContext<'_>,
    ) -> Result<Vec<Content>, ToolError> {
        self.check_known(tool, cx.events).await?;
        let (open, token, mut asked) = self.opened(tool, call.id(), cx.events);
        let _under_way = self.heard.begin(token, Arc::clone(&open));
        let meta = meta_of(token, cx.traceparent_of_mcp(call, None).as_deref());
        let params = json!({"name": tool.original, "arguments": call.arguments(), "_meta": meta});
        let conversation = async {
            let mut asking = std::pin::pin!(self.ask("tools/call", params));
            for number in 0.. {
                tokio::select! {
                    biased;
                    answer = &mut asking => return Ok(answer?),
                    Some(request) = asked.recv() => {
                        open.is_asking.store(true, Ordering::Relaxed);
                        self.elicited(request, call, number, cx).await.map_err(ToolError::Ends)?;
                        open.is_asking.store(false, Ordering::Relaxed);
                    }
                }
            }
            unreachable!("a server is answered as often as it asks")
        };
        let timeout = cx.timeout.unwrap_or(self.timeout);
        let answer = within(timeout, &open, conversation).await;
        let answer = answer.unwrap_or_else(|| Err(ToolError::Failed(self.too_slow("did not answer", timeout))))?;
        result::read(&answer).map_err(ToolError::Failed)
    }

    /// Puts what a server asks within a call to the person. One who is not there, and cannot come back to the call, is said
    /// to have decided nothing.
    async fn elicited(
        &self,
        request: RpcRequest,
        call: &PermittedCall,
        number: usize,
        cx: &CallContext<'_>,
    ) -> Result<(), Ending> {
        let about =
            InDoubt { path: cx.path.to_vec(), tool: call.tool().to_owned(), arguments: call.arguments().clone() };
        let mut ended = None;
        let answering = request.serve(async |_, params| {
            let params = ElicitParams::read(&params).map_err(|why| RpcError::told(code::INVALID_PARAMS, why))?;
            let cancel = ElicitResult::of(ElicitAction::Cancel);
            if number >= MOST_QUESTIONS {
                return Ok(RawJson::of(&cancel));
            }
            match question::put(&self.name, &about, &params, (0, number), cx).await {
                Ok(ElicitOutcome::Answered(answer)) => Ok(RawJson::of(&answer)),
                Ok(ElicitOutcome::Nobody) => Ok(RawJson::of(&cancel)),
                Ok(ElicitOutcome::Unaskable(why)) => Err(RpcError::told(code::INVALID_PARAMS, why)),
                Err(ending) => {
                    ended = Some(ending);
                    Ok(RawJson::of(&cancel))
                }
            }
        });
        answering.await;
        ended.map_or(Ok(()), Err)
    }

    /// Sends a round of a call to a server of the modern revision.
    pub(super) async fn sent(
        &self,
        sent: &RoundRequest<'_>,
        events: &Events,
        timeout: Option<Duration>,
    ) -> Result<RawJson, McpError> {
        let RoundRequest { tool, call, state, answers, traceparent } = sent;
        self.check_known(tool, events).await?;
        let (open, token, _asked) = self.opened(tool, call.id(), events);
        let _under_way = self.heard.begin(token, Arc::clone(&open));
        let meta = meta_of(token, traceparent.as_deref());
        let mut params = json!({"name": tool.original, "arguments": call.arguments(), "_meta": meta});
        if !answers.is_empty() {
            params["inputResponses"] = json!(answers);
        }
        if let Some(state) = state {
            params["requestState"] = json!(state);
        }
        let timeout = timeout.unwrap_or(self.timeout);
        let answer = within(timeout, &open, self.ask("tools/call", params)).await;
        answer.unwrap_or_else(|| Err(self.too_slow("did not answer", timeout).into()))
    }

    fn opened(
        &self,
        tool: &McpTool,
        id: &str,
        events: &Events,
    ) -> (Arc<OpenCall>, u64, mpsc::UnboundedReceiver<RpcRequest>) {
        let (asks, asked) = mpsc::unbounded_channel();
        let open = OpenCall {
            id: id.to_owned(),
            tool: tool.name.clone(),
            events: events.clone(),
            has_progressed: AtomicBool::new(false),
            remarks: AtomicUsize::new(0),
            asks,
            is_asking: AtomicBool::new(false),
        };
        (Arc::new(open), self.next.fetch_add(1, Ordering::Relaxed), asked)
    }

    /// How far a task is.
    pub(super) async fn task(&self, id: &str) -> Result<Task, McpError> {
        let answer = self.in_time("tasks/get", json!({"taskId": id})).await?;
        Task::read(&answer).map_err(|reason| self.about(&format!("answered `tasks/get` with {reason}")).into())
    }

    /// Answers what a task asks.
    pub(super) async fn update_task(&self, id: &str, answers: &InputResponses) -> Result<(), McpError> {
        self.in_time("tasks/update", json!({"taskId": id, "inputResponses": answers})).await.map(drop)
    }

    /// Tells the server that nobody waits for a task any more.
    pub(super) async fn cancel_task(&self, id: &str) {
        let _ = tokio::time::timeout(COURTESY, self.ask("tasks/cancel", json!({"taskId": id}))).await;
    }

    /// The same, of a call that is given up right now.
    pub(super) fn cancel_task_later(&self, id: &str) {
        let Ok(connection) = self.connection() else { return };
        let params = with_meta(json!({"taskId": id}));
        tokio::spawn(async move {
            let _ = tokio::time::timeout(COURTESY, connection.request("tasks/cancel", &params)).await;
        });
    }

    async fn in_time(&self, method: &str, params: Value) -> Result<RawJson, McpError> {
        let answer = tokio::time::timeout(self.patience, self.ask(method, params)).await;
        answer.unwrap_or_else(|_| Err(self.too_slow(&format!("did not answer `{method}`"), self.patience).into()))
    }

    /// What a task says of itself, as progress of its call.
    pub(super) fn tell_status(&self, message: &str, cx: &CallContext<'_>) {
        let text = format!("`{}`: {}\n", self.name, protocol::remark(message));
        self.heard.output.say(Some(cx.events), OutputStream::Stderr, &text);
    }

    /// Lets the server end by itself, and sees to it that it does.
    pub(crate) async fn close(&self) {
        let Some(Live { connection, other }) = self.live().take() else { return };
        // A program hears that it is not spoken to any more when the last connection is dropped.
        drop(connection);
        match other {
            Other::Child(child) => child.finish().await,
            Other::Service(session) => session.end().await,
        }
        self.heard.output.detach();
    }

    /// Asks, with what the revision wants each request to say.
    async fn ask(&self, method: &str, params: Value) -> Result<RawJson, McpError> {
        let params = if self.is_modern() { with_meta(params) } else { RawJson::of(&params) };
        self.asked(method, &params).await.map_err(|error| self.of(error))
    }

    async fn asked(&self, method: &str, params: &RawJson) -> Result<RawJson, RpcError> {
        let connection = self.connection().map_err(RpcError::Gone)?;
        connection.request(method, params).await
    }

    /// An error of a server in our words.
    fn of(&self, fault: RpcError) -> McpError {
        match fault {
            RpcError::Told { code: http::UNAUTHORIZED, message, data } => {
                let project: Option<String> = data.and_then(|data| data.to().ok());
                let project = project.unwrap_or_else(|| ".".to_owned()).into();
                McpError::Login(LoginNeeded { server: self.name.clone(), at: message, project })
            }
            RpcError::Told { code: http::UNREACHED, message, .. } => {
                self.about(&format!("cannot be asked: {message}")).into()
            }
            RpcError::Told { message, .. } => self.about(&format!("says: {}", protocol::remark(&message))).into(),
            RpcError::Gone(reason) => self.about(&self.heard.with_noise(reason.trim_start_matches("it "))).into(),
        }
    }

    fn connection(&self) -> Result<Connection, String> {
        let live = self.live();
        let connection = live.as_ref().map(|live| live.connection.clone());
        connection.ok_or_else(|| self.about("was closed with the run"))
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn about(&self, fact: &str) -> String {
        format!("the MCP server `{}` {fact}", self.name)
    }

    fn too_slow(&self, what: &str, time: Duration) -> String {
        let last_words = match &*self.live() {
            Some(Live { other: Other::Child(child), .. }) => child.last_words(),
            Some(Live { other: Other::Service(_), .. }) | None => None,
        };
        let fact = format!("{what} within {} seconds (its `timeout_seconds`)", time.as_secs_f64());
        match last_words {
            Some(last) => self.about(&format!("{fact}; its last words:\n{last}")),
            None => self.about(&self.heard.with_noise(&fact)),
        }
    }
}

/// What stands beside a call: by what its progress is told, and for whose span the server works.
fn meta_of(token: u64, traceparent: Option<&str>) -> Value {
    let mut meta = json!({"progressToken": token});
    if let Some(traceparent) = traceparent {
        meta["traceparent"] = json!(traceparent);
    }
    meta
}

/// What a request of the modern revision says of itself.
fn with_meta(mut params: Value) -> RawJson {
    let said = RequestMeta { version: MODERN.to_owned(), client: ABILITIES };
    for (key, value) in said.entries() {
        params["_meta"][key] = value;
    }
    params["_meta"][meta::LOG_LEVEL] = json!("info");
    RawJson::of(&params)
}

/// What comes within a time, which begins anew as long as there is progress, and stands still while a person is asked.
async fn within<T>(time: Duration, open: &OpenCall, coming: impl Future<Output = T>) -> Option<T> {
    let mut coming = std::pin::pin!(coming);
    if time.is_zero() {
        return Some(coming.await);
    }
    let (mut deadline, mut times) = (Instant::now() + time, 0);
    loop {
        match tokio::time::timeout_at(deadline, &mut coming).await {
            Ok(answer) => return Some(answer),
            Err(_) if open.is_asking.load(Ordering::Relaxed) => deadline += time,
            Err(_) if times + 1 < MOST_TIMES && open.has_progressed.swap(false, Ordering::Relaxed) => {
                (deadline, times) = (deadline + time, times + 1);
            }
            Err(_) => return None,
        }
    }
}

async fn spawned(mut command: Command, tenant: Option<&Tenant>, heard: &Arc<McpListener>) -> std::io::Result<Live> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let said = {
        let heard = Arc::clone(heard);
        move |text: &str| heard.output.say(None, OutputStream::Stderr, text)
    };
    let (child, pipes) = Child::spawn(command, said)?;
    let (Some(mut stdin), Some(mut stdout)) = (pipes.stdin, pipes.stdout) else {
        return Err(std::io::Error::other("its pipes are lost"));
    };
    if let Some(tenant) = tenant {
        tenant.move_in(&mut stdin, &mut stdout).await.map_err(std::io::Error::other)?;
    }
    let connection = speaking(stdout, stdin, heard, child.why_ended());
    Ok(Live { connection, other: Other::Child(child) })
}

fn speaking(
    reader: impl tokio::io::AsyncRead + Send + Unpin + 'static,
    writer: impl tokio::io::AsyncWrite + Send + Unpin + 'static,
    heard: &Arc<McpListener>,
    why_ended: impl Future<Output = String> + Send + 'static,
) -> Connection {
    let heard = Arc::clone(heard);
    let take_back = |id: u64| ("notifications/cancelled", RawJson::of(&json!({"requestId": id})));
    let connection = Connection::open_within(
        LONGEST_MESSAGE as u64,
        reader,
        writer,
        take_back,
        move |incoming| heard.hear(incoming),
        why_ended,
    );
    connection.number_from(first_id());
    connection
}

/// The number of the first request: not that of another process, which may have asked the same before it was suspended, and
/// whose question this one answers. All that follow can be said exactly in JSON.
fn first_id() -> u64 {
    let mut bytes = [0; 4];
    match crate::system::random(&mut bytes) {
        Ok(()) => u64::from(u32::from_le_bytes(bytes)) << 16 | 1,
        Err(_) => 1,
    }
}

fn not_offered() -> RpcError {
    RpcError::told(code::METHOD_NOT_FOUND, "this is not offered")
}

impl McpListener {
    fn hear(&self, incoming: IncomingMessage) {
        match incoming {
            IncomingMessage::Request(request) if request.method == "ping" => request.answer(RawJson::of(&json!({}))),
            // Of several calls under way the first one is taken: nothing says which of them asks.
            IncomingMessage::Request(request) if request.method == ELICIT => {
                let call = self.calls().iter().min_by_key(|(token, _)| **token).map(|(_, call)| Arc::clone(call));
                // Without a call it is dropped, and answered with an error by that.
                if let Some(Err(mpsc::error::SendError(request))) = call.map(|call| call.asks.send(request)) {
                    request.refuse(not_offered());
                }
            }
            // Nothing else was offered to it: neither a model, nor directories.
            IncomingMessage::Request(request) => {
                request.refuse(not_offered());
            }
            IncomingMessage::Notification { method, params } => match method.as_str() {
                "notifications/progress" => drop(protocol::read_progress(&params).map(|said| self.progressed(said))),
                "notifications/tools/list_changed" => self.changed.store(true, Ordering::Relaxed),
                "notifications/message" => {
                    if let Some(text) = protocol::read_log(&params) {
                        self.output.say(None, OutputStream::Stderr, &text);
                    }
                }
                _ => {}
            },
            IncomingMessage::Noise(text) => {
                let mut noise = self.noise.lock().unwrap_or_else(PoisonError::into_inner);
                if noise.is_empty() {
                    noise.clone_from(&text);
                }
                drop(noise);
                self.output.say(None, OutputStream::Stdout, &text);
            }
        }
    }

    fn progressed(&self, said: Progress) {
        let Some(call) = self.calls().get(&said.token).cloned() else { return };
        call.has_progressed.store(true, Ordering::Relaxed);
        if call.remarks.fetch_add(1, Ordering::Relaxed) < MOST_REMARKS {
            let Progress { done: progress, total, message, .. } = said;
            let (id, tool) = (call.id.clone(), call.tool.clone());
            call.events.send(|| EventKind::ToolProgressed { id, tool, progress, total, message });
        }
    }

    /// A fact, and what the server printed where only messages belong.
    fn with_noise(&self, fact: &str) -> String {
        let noise = self.noise.lock().unwrap_or_else(PoisonError::into_inner);
        if noise.is_empty() {
            return fact.to_owned();
        }
        format!("{fact}; it printed what is no message: {}", protocol::remark(&noise))
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenCall>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, token: u64, call: Arc<OpenCall>) -> UnderWay<'_> {
        self.calls().insert(token, call);
        UnderWay { heard: self, token }
    }
}

struct UnderWay<'a> {
    heard: &'a McpListener,
    token: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.heard.calls().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> OpenCall {
        let (asks, _) = mpsc::unbounded_channel();
        let (has_progressed, is_asking) = (AtomicBool::new(false), AtomicBool::new(false));
        let (events, remarks) = (Events::unheard(), AtomicUsize::new(0));
        OpenCall { id: String::new(), tool: String::new(), events, has_progressed, remarks, asks, is_asking }
    }

    // The clock of this test stands still until all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn progress_buys_time_but_not_for_ever() {
        let moment = Duration::from_millis(2);
        let (still, progressing) = (open(), open());
        assert_eq!(within(moment, &still, std::future::pending::<()>()).await, None);
        // A server that says all the time that it goes on is believed only so often.
        let mut times = 0;
        let endless = async {
            loop {
                times += 1;
                progressing.has_progressed.store(true, Ordering::Relaxed);
                tokio::time::sleep(moment).await;
            }
        };
        assert_eq!(within(moment, &progressing, endless).await, None::<()>);
        assert!((MOST_TIMES..=MOST_TIMES + 1).contains(&times), "{times}");
        let mut waits = 3;
        let slow = async {
            while waits > 0 {
                waits -= 1;
                progressing.has_progressed.store(true, Ordering::Relaxed);
                tokio::time::sleep(moment * 2).await;
            }
        };
        assert_eq!(within(moment * 3, &progressing, slow).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_who_is_asked_may_think() {
        let call = open();
        call.is_asking.store(true, Ordering::Relaxed);
        let thinking = async {
            tokio::time::sleep(Duration::from_hours(5)).await;
            call.is_asking.store(false, Ordering::Relaxed);
        };
        assert_eq!(within(Duration::from_secs(10), &call, thinking).await, Some(()));
    }
}
