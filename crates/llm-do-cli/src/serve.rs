//! `llm-do serve --stdio`: llm-do for other programs. JSON-RPC 2.0, one message per line, both ways.

pub mod acp;
mod calls;
mod host;
mod keeping;
pub mod mcp;
mod offer;
mod opening;
mod order;
mod protocol;
mod questions;
mod runs;
mod scope;

pub use host::HostPlan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use llm_do::created::{ExistingAgent, WorkerDefaults, WorkerSpec};
use llm_do::messages::AttachmentError;
use llm_do::rpc::{Connection, IncomingMessage, RpcError, RpcRequest, code};
use llm_do::{Content, Input, Project, RawJson, messages, process, rpc};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::console::{self, LAST_WORDS, StdoutReader};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::signals::{Signals, StopReason};
use calls::ClientCalls;
use llm_do_launch::config::Config;
use llm_do_launch::error::LaunchError;
use llm_do_launch::state::StateDirectory;
use protocol::{
    AttachmentParam, CancelResult, Create, CreateResult, Hello, Inline, OfScope, Open, OpenResult, PROTOCOL, Say, Turn,
    Welcome, misfit,
};
use scope::Scope;

/// Calls that may be open at once, so that a client that forgets to close them takes no more.
const MOST_SCOPES: usize = 1000;
/// How long requests may take to be answered once every scope is closed.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub fn run() -> Result<(), Failure> {
    let executor = executor()?;
    let ended = process::with_room(|| executor.block_on(attend(Environment::read())));
    // It is not waited for, since the thread that reads stdin may wait there for ever.
    executor.shutdown_background();
    ended
}

/// Serves until the client leaves or a signal comes; then every call is closed.
async fn attend(environment: Environment) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let (heard, mut incoming) = mpsc::unbounded_channel();
    let (present, mut gone) = oneshot::channel::<()>();
    let (answers, mut said) = tokio::io::duplex(64 * 1024);
    let writing = tokio::spawn(async move { tokio::io::copy(&mut said, &mut tokio::io::stdout()).await });
    let left = async move {
        drop(present);
        "the client left".to_owned()
    };
    let take_back = |id: u64| ("$/cancelRequest", RawJson::of(&serde_json::json!({"id": id})));
    let hear = move |message| drop(heard.send(message));
    let client = Connection::open(tokio::io::stdin(), answers, take_back, hear, left);
    let (scopes, numbers, calls) = (Mutex::default(), Mutex::default(), Arc::default());
    let seats = Arc::new(Semaphore::new(MOST_SCOPES));
    let desk = Arc::new(Desk { client, environment, scopes, seats, numbers, calls });
    let mut tasks = JoinSet::new();
    let reader = StdoutReader::of_stdout();
    let stopped = loop {
        tokio::select! {
            biased;
            signal = signals.next() => break Some(signal.stops()),
            () = reader.gone() => break Some(StopReason::Unread),
            Some(message) = incoming.recv() => desk.hear(message, &mut tasks),
            _ = &mut gone => break None,
            Some(_) = tasks.join_next() => {}
        }
    };
    let ending = async {
        desk.close_all(stopped).await;
        // The answers of turns that ended now; what is still being opened is not waited for.
        let _ = tokio::time::timeout(LAST_ANSWERS, async { while tasks.join_next().await.is_some() {} }).await;
        tasks.shutdown().await;
        drop(desk);
        // A client that does not read must not keep this process from ending.
        let _ = tokio::time::timeout(LAST_WORDS, writing).await;
    };
    tokio::select! {
        () = ending => {}
        _ = signals.next() => {}
    }
    match stopped {
        Some(stopped) => Err(stopped.failure()),
        None if reader.has_gone() => Err(StopReason::Unread.failure()),
        None => Ok(()),
    }
}

/// Where a client's messages arrive: its open calls, by number.
struct Desk {
    client: Connection,
    environment: Environment,
    scopes: Mutex<BTreeMap<u64, SeatedScope>>,
    /// One permit for each scope that is open, or is being opened.
    seats: Arc<Semaphore>,
    /// All numbers that scopes have had.
    numbers: Mutex<BTreeSet<u64>>,
    /// The calls that the client works on.
    calls: Arc<ClientCalls>,
}

/// An open scope, and its permit.
struct SeatedScope {
    scope: Scope,
    _seat: OwnedSemaphorePermit,
}

impl Desk {
    fn hear(self: &Arc<Self>, message: IncomingMessage, tasks: &mut JoinSet<()>) {
        match message {
            IncomingMessage::Request(request) if rpc::METHODS.contains(&request.method.as_str()) => {
                self.calls.route(request);
            }
            IncomingMessage::Request(request) => drop(tasks.spawn(Arc::clone(self).serve(request))),
            IncomingMessage::Notification { method, params } => {
                if let ("cancel", Ok(OfScope { scope })) = (method.as_str(), params.to()) {
                    self.cancel(scope);
                }
            }
            IncomingMessage::Noise(line) => {
                let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok();
                self.client.complain(if is_json {
                    RpcError::told(
                        code::INVALID_REQUEST,
                        "this is no request, notification or answer; batches are not taken",
                    )
                } else {
                    RpcError::told(code::PARSE, "this line is not JSON")
                });
            }
        }
    }

    async fn serve(self: Arc<Self>, request: RpcRequest) {
        // Boxed: opening a run is a large future, and what serves would hold it several times over.
        request.serve(|method, params| async move { Box::pin(self.answer(&method, &params)).await }).await;
    }

    async fn answer(&self, method: &str, params: &RawJson) -> Result<RawJson, RpcError> {
        match method {
            "hello" => hello(&read(method, params)?).map(|welcome| json(&welcome)),
            "open" => self.open(read(method, params)?).await.map(|opened| json(&opened)),
            "turn" => self.turn(read(method, params)?).await,
            "say" => {
                let Say { scope, text } = read(method, params)?;
                let said = self.scopes().get(&scope).ok_or_else(|| no_scope(scope))?.scope.say(text);
                Ok(json(&said.map(|()| BTreeMap::<String, String>::new())?))
            }
            "close" => self.close(read(method, params)?).await,
            "cancel" => {
                let OfScope { scope } = read(method, params)?;
                self.scopes().get(&scope).ok_or_else(|| no_scope(scope))?;
                Ok(json(&CancelResult { cancelled: self.cancel(scope) }))
            }
            "runs.list" => runs::list(&read(method, params)?, &self.environment),
            "runs.show" => runs::show(&read(method, params)?, &self.environment),
            "runs.fork" => runs::fork(read(method, params)?, &self.environment),
            "runs.cancel" => runs::cancel(&read(method, params)?, &self.environment),
            "questions.list" => runs::questions(read(method, params)?, &self.environment),
            "questions.answer" => runs::answer(read(method, params)?, &self.environment).await,
            "create" => create(read(method, params)?, &self.environment).map(|created| json(&created)),
            "definition" => opening::definition(&read(method, params)?, &self.environment).map(|told| json(&told)),
            unknown => Err(RpcError::told(
                code::METHOD_NOT_FOUND,
                format!(
                    "there is no method `{unknown}`; there are: hello, open, turn, say, close, cancel, create, definition, runs.list, \
                     runs.show, runs.fork, runs.cancel, questions.list, questions.answer, {}",
                    rpc::METHODS.join(", ")
                ),
            )),
        }
    }

    async fn open(&self, open: Open) -> Result<OpenResult, RpcError> {
        // Counted before anything is waited for: many may be opened at once.
        let busy = |_| RpcError::told(code::BUSY, format!("{MOST_SCOPES} scopes are open; close some"));
        let seat = Arc::clone(&self.seats).try_acquire_owned().map_err(busy)?;
        let number = self.number(open.scope)?;
        let ready = Box::pin(opening::prepare(open, number, &self.client, &self.calls, &self.environment)).await?;
        let (opened, continued) = Scope::open(number, ready.prepared, self.client.clone()).await?;
        let (agent, model, run, kept) = (ready.agent, ready.model, opened.run_id().to_owned(), ready.is_kept);
        self.scopes().insert(number, SeatedScope { scope: opened, _seat: seat });
        Ok(OpenResult { scope: number, agent, model, run, kept, continued })
    }

    /// A number for a scope: events of it may come before the answer that would tell one, so a client may choose it. None
    /// is given twice.
    fn number(&self, chosen: Option<u64>) -> Result<u64, Failure> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = chosen.unwrap_or_else(|| numbers.last().map_or(1, |last| last.saturating_add(1)));
        if numbers.insert(number) {
            Ok(number)
        } else {
            Err(Failure::usage(format!("`scope`: {number} was given to another scope")))
        }
    }

    async fn turn(&self, turn: Turn) -> Result<RawJson, RpcError> {
        let Turn { scope, input, attachments, finish } = turn;
        let answered = {
            let mut scopes = self.scopes();
            let open = &mut scopes.get_mut(&scope).ok_or_else(|| no_scope(scope))?.scope;
            if finish {
                if input.is_some() || !attachments.is_empty() {
                    return Err(Failure::usage(
                        "`finish` goes on with what was said: leave out `input` and `attachments`",
                    )
                    .into());
                }
                open.finish()?
            } else {
                let input = given(input, &attachments, open.default_input())?;
                open.turn(input)?
            }
        };
        let gone = || Failure::failed("the scope was closed").into();
        answered.await.unwrap_or_else(|_| Err(gone())).map(|turned| json(&turned))
    }

    async fn close(&self, OfScope { scope }: OfScope) -> Result<RawJson, RpcError> {
        let open = self.scopes().remove(&scope).ok_or_else(|| no_scope(scope))?;
        let closed = open.scope.close().await;
        closed.map(|closed| json(&closed)).ok_or_else(|| Failure::failed("the call ended before it was closed").into())
    }

    fn cancel(&self, scope: u64) -> bool {
        self.scopes().get_mut(&scope).is_some_and(|open| open.scope.cancel(None))
    }

    async fn close_all(&self, stopped: Option<StopReason>) {
        let open = std::mem::take(&mut *self.scopes());
        let closing: Vec<_> = open.into_values().map(|open| tokio::spawn(open.scope.abandon(stopped))).collect();
        for closed in closing {
            let _ = closed.await;
        }
    }

    // A panic elsewhere leaves the map as it was.
    fn scopes(&self) -> MutexGuard<'_, BTreeMap<u64, SeatedScope>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read<T: DeserializeOwned>(method: &str, params: &RawJson) -> Result<T, RpcError> {
    params.to().map_err(|error| misfit(method, &error))
}

fn json(value: &impl Serialize) -> RawJson {
    RawJson::of(value)
}

fn no_scope(scope: u64) -> RpcError {
    Failure::usage(format!("there is no open scope {scope}")).into()
}

fn hello(hello: &Hello) -> Result<Welcome, RpcError> {
    let version = env!("CARGO_PKG_VERSION");
    if hello.protocol == PROTOCOL {
        return Ok(Welcome { protocol: PROTOCOL, version });
    }
    Err(Failure::usage(format!("this is llm-do {version}, which speaks protocol {PROTOCOL}, not {}", hello.protocol))
        .hint("install a client and a program of the same version")
        .into())
}

fn create(create: Create, environment: &Environment) -> Result<CreateResult, RpcError> {
    let Create { project, spec, defaults, force } = create;
    let mistaken = |report| Failure::from(LaunchError::Project(report));
    let project = Project::load(&project).map_err(mistaken)?;
    let existing = if force { ExistingAgent::Replace } else { ExistingAgent::Keep };
    let config = Config::load(environment.config_file().as_deref()).map_err(Failure::from)?;
    let store = StateDirectory::of(environment, &config, console::notes())
        .and_then(|state| state.created())
        .map_err(Failure::from)?;
    let (spec, defaults) = (WorkerSpec::from(spec), WorkerDefaults::from(defaults));
    let created = project.create_worker(&spec, &defaults, existing, store.as_ref());
    let path = created.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(CreateResult { path })
}

/// What a turn is given. Files that a program names are like those that a person names with `-f`.
fn given(
    input: Option<serde_json::Value>,
    attachments: &[AttachmentParam],
    default: Option<&RawJson>,
) -> Result<Input, Failure> {
    let wrong = |error: AttachmentError| Failure::usage(error.to_string());
    let file = |param: &AttachmentParam| match param {
        AttachmentParam::Path(path) => messages::read_named(path).map_err(wrong),
        AttachmentParam::Inline(Inline { name, data }) => messages::of_base64(name, data).map_err(wrong),
    };
    let attachments = attachments.iter().map(file).collect::<Result<Vec<_>, _>>()?;
    match input.or_else(|| default.and_then(|default| default.to().ok())) {
        Some(value) => Ok(Input::Object { value, attachments }),
        None if attachments.is_empty() => Err(Failure::usage("no input").hint("give `input`, or `attachments`")),
        None => Ok(Input::Parts(attachments.into_iter().map(Content::Attachment).collect())),
    }
}
