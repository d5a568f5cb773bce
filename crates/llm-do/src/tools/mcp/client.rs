//! A conversation with one server, from its first word to its last. Every wait has an end.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use tokio::time::Instant;

use super::http::{self, McpSession};
use super::protocol::{self, LONGEST_MESSAGE, Listing, MOST_PAGES, McpTool, Progress};
use super::result;
use super::server::ServerSpec;
use crate::event::{EventKind, Events, OutputStream};
use crate::message::{Content, RawJson};
use crate::tools::LONGEST_CALL;
use crate::tools::fence::tenant::Tenant;
use crate::tools::rpc::child::Child;
use crate::tools::rpc::output::ChildOutput;
use crate::tools::rpc::{Connection, IncomingMessage, RpcError, code};
use crate::tools::shell::limited;

/// How long a server may take to start and to list its tools, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call that tells how far it has come has its timeout restarted, but not for ever.
const MOST_TIMES: u32 = 20;
/// Remarks on one call that are told.
const MOST_REMARKS: usize = 1_000;

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
    listed: tokio::sync::Mutex<Arc<[McpTool]>>,
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
            ServerSpec::Url { url, headers, http } => {
                let (stream, session) = http::open(http.clone(), url.clone(), headers.clone());
                let (reader, writer) = tokio::io::split(stream);
                let left = async { "is no longer asked".to_owned() };
                let connection = speaking(reader, writer, &heard, left);
                Live { connection, other: Other::Service(session) }
            }
        };
        let listed = tokio::sync::Mutex::new(Arc::from([]));
        let (live, next) = (Mutex::new(Some(live)), AtomicU64::new(1));
        let patience = timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(PATIENCE);
        let timeout = timeout.unwrap_or(LONGEST_CALL);
        Ok(Self { name: name.to_owned(), patience, timeout, live, heard, next, listed })
    }

    /// Agrees on the protocol and lists the tools, all within its time. Gives how many there are.
    pub(crate) async fn begin(&self, events: &Events) -> Result<usize, String> {
        let beginning = async {
            let answer = self.ask("initialize", &protocol::hello()).await?;
            let hello = protocol::read_hello(&answer).map_err(|reason| self.about(&reason))?;
            let connection = self.connection()?;
            if let Some(Live { other: Other::Service(session), .. }) = &*self.live() {
                session.agreed(hello.version);
            }
            connection.notify("notifications/initialized", &RawJson::of(&json!({})));
            if !hello.has_tools {
                self.heard.changed.store(false, Ordering::Relaxed);
            }
            Ok(self.tools(events).await?.len())
        };
        let begun = tokio::time::timeout(self.patience, beginning).await;
        begun.unwrap_or_else(|_| Err(self.too_slow("did not start", self.patience)))
    }

    /// The tools as they are now: listed again if the server has said that they changed.
    pub(crate) async fn tools(&self, events: &Events) -> Result<Arc<[McpTool]>, String> {
        let mut listed = self.listed.lock().await;
        if self.heard.changed.swap(false, Ordering::Relaxed) {
            let listing = tokio::time::timeout(self.patience, self.list()).await;
            match listing.unwrap_or_else(|_| Err(self.too_slow("did not list its tools", self.patience))) {
                Ok(listing) => {
                    if let Some(complaint) = listing.complaint() {
                        let text = format!("not all tools of the MCP server `{}` can be used: {complaint}", self.name);
                        events.send(|| EventKind::Notice { text });
                    }
                    *listed = Arc::from(listing.tools);
                }
                Err(reason) => {
                    self.heard.changed.store(true, Ordering::Relaxed);
                    return Err(reason);
                }
            }
        }
        Ok(Arc::clone(&listed))
    }

    async fn list(&self) -> Result<Listing, String> {
        let mut listing = Listing::default();
        let mut params = json!({});
        for _ in 0..MOST_PAGES {
            let page = self.ask("tools/list", &RawJson::of(&params)).await?;
            match listing.add(&page).map_err(|reason| self.about(&reason))? {
                None => return Ok(listing),
                Some(cursor) => params = json!({"cursor": cursor}),
            }
        }
        Err(self.about(&format!("lists its tools on more than {MOST_PAGES} pages")))
    }

    /// Calls a tool as the caller knows it. If it is another one by now, nothing is called, because the approver has
    /// not agreed to that.
    pub(crate) async fn call(
        &self,
        tool: &McpTool,
        id: &str,
        arguments: &RawJson,
        events: &Events,
        timeout: Option<Duration>,
    ) -> Result<Vec<Content>, String> {
        let known = self.tools(events).await?;
        match known.iter().find(|known| known.original == tool.original) {
            None => return Err(self.about(&format!("no longer has the tool `{}`", tool.name))),
            Some(known) if known != tool => {
                return Err(self.about(&format!(
                    "has changed what the tool `{}` is since the agent was told of it; nothing was called",
                    tool.name
                )));
            }
            Some(_) => {}
        }
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Arc::new(OpenCall {
            id: id.to_owned(),
            tool: tool.name.clone(),
            events: events.clone(),
            has_progressed: AtomicBool::new(false),
            remarks: AtomicUsize::new(0),
        });
        let _under_way = self.heard.begin(token, Arc::clone(&open));
        let meta = json!({"progressToken": token});
        let params = RawJson::of(&json!({"name": tool.original, "arguments": arguments, "_meta": meta}));
        let asking = self.ask("tools/call", &params);
        let timeout = timeout.unwrap_or(self.timeout);
        let answer = within(timeout, &open.has_progressed, asking).await;
        result::read(&answer.unwrap_or_else(|| Err(self.too_slow("did not answer", timeout)))?)
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

    async fn ask(&self, method: &str, params: &RawJson) -> Result<RawJson, String> {
        let answer = self.connection()?.request(method, params).await;
        answer.map_err(|fault| match fault {
            RpcError::Told { code: http::UNREACHED, message, .. } => self.about(&format!("cannot be asked: {message}")),
            RpcError::Told { message, .. } => self.about(&format!("says: {}", protocol::remark(&message))),
            RpcError::Gone(reason) => self.about(&self.heard.with_noise(reason.trim_start_matches("it "))),
        })
    }

    fn connection(&self) -> Result<Connection, String> {
        let live = self.live();
        let connection = live.as_ref().map(|live| live.connection.clone());
        connection.ok_or_else(|| self.about("was closed with the run"))
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn about(&self, fact: &str) -> String {
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

/// What comes within a time, which begins anew as long as there is progress.
async fn within<T>(time: Duration, has_progressed: &AtomicBool, coming: impl Future<Output = T>) -> Option<T> {
    let mut coming = std::pin::pin!(coming);
    if time.is_zero() {
        return Some(coming.await);
    }
    let mut deadline = Instant::now() + time;
    for _ in 0..MOST_TIMES {
        match tokio::time::timeout_at(deadline, &mut coming).await {
            Ok(answer) => return Some(answer),
            Err(_) if has_progressed.swap(false, Ordering::Relaxed) => deadline += time,
            Err(_) => break,
        }
    }
    None
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
    Connection::open_within(
        LONGEST_MESSAGE as u64,
        reader,
        writer,
        take_back,
        move |incoming| heard.hear(incoming),
        why_ended,
    )
}

impl McpListener {
    fn hear(&self, incoming: IncomingMessage) {
        match incoming {
            IncomingMessage::Request(request) if request.method == "ping" => request.answer(RawJson::of(&json!({}))),
            // Nothing was offered to it: neither a model, nor a person, nor directories.
            IncomingMessage::Request(request) => {
                request.refuse(RpcError::told(code::METHOD_NOT_FOUND, "this is not offered"));
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

    // The clock of this test stands still until all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn progress_buys_time_but_not_for_ever() {
        let moment = Duration::from_millis(2);
        let (still, progressing) = (AtomicBool::new(false), AtomicBool::new(true));
        assert_eq!(within(moment, &still, std::future::pending::<()>()).await, None);
        // A server that says all the time that it goes on is believed only so often.
        let mut times = 0;
        let endless = async {
            loop {
                times += 1;
                progressing.store(true, Ordering::Relaxed);
                tokio::time::sleep(moment).await;
            }
        };
        assert_eq!(within(moment, &progressing, endless).await, None::<()>);
        assert!((MOST_TIMES..=MOST_TIMES + 1).contains(&times), "{times}");
        let mut waits = 3;
        let slow = async {
            while waits > 0 {
                waits -= 1;
                progressing.store(true, Ordering::Relaxed);
                tokio::time::sleep(moment * 2).await;
            }
        };
        assert_eq!(within(moment * 3, &progressing, slow).await, Some(()));
    }
}
