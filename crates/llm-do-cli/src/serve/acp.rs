//! `llm-do serve --acp`: a project as the agent of an editor, by version 1 of ACP on stdin and stdout. A session is a kept chat of kind `acp`,
//! whose id is the run's: the terminal lists it and goes on with it.

mod protocol;
mod session;
mod update;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use llm_do::RawJson;
use llm_do::process;
use llm_do::records::{RunKind, conversation};
use llm_do::rpc::{Connection, IncomingMessage, RpcError, code};
use llm_do::store::layout::RunId;
use llm_do::store::run::Removal;
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::record::RunHeader;
use llm_do_launch::stored_runs::now;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::host::{Host, HostPlan};
use crate::console::{LAST_WORDS, StdoutReader};
use crate::executor::executor;
use crate::failure::Failure;
use crate::signals::{Signals, StopReason};
use protocol::{DEFAULT_MODEL, SessionChoices};
use session::{AcpSession, SessionPlace};

/// How long requests may take to be answered once every session is left.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// So many sessions are listed at once.
const MOST_LISTED: usize = 100;

/// What was decided about an agent for editors.
pub struct AcpPlan {
    pub host: HostPlan,
    pub answers_here: bool,
}

/// What all sessions share.
pub struct AcpHouse {
    pub host: Host,
    pub client: Connection,
    pub answers_here: bool,
    pub introduced: Mutex<AcpClient>,
}

/// What a client says that it can do.
#[derive(Clone, Debug, Default)]
pub struct AcpClient {
    pub elicits: bool,
    pub name: String,
}

struct AcpDesk {
    house: Arc<AcpHouse>,
    sessions: Mutex<BTreeMap<String, Arc<AcpSession>>>,
}

pub fn run(plan: AcpPlan) -> Result<(), Failure> {
    let AcpPlan { host, answers_here } = plan;
    let host = Host::open(host)?;
    let executor = executor()?;
    let served = process::with_room(|| executor.block_on(serve(host, answers_here)));
    // It is not waited for, since the thread that reads stdin may wait there for ever.
    executor.shutdown_background();
    served
}

fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::told(code::INVALID_PARAMS, message)
}

fn failed(failure: impl Into<Failure>) -> RpcError {
    let (fact, hint) = failure.into().words();
    RpcError::told(code::FAILED, hint.map_or(fact.clone(), |hint| format!("{fact}; {hint}")))
}

impl AcpDesk {
    async fn answer(&self, method: &str, params: &RawJson) -> Result<Value, RpcError> {
        let params: Value = params.to().map_err(|error| invalid(error.to_string()))?;
        match method {
            "initialize" => {
                let info = params.get("clientInfo").and_then(|info| info.get("name")).and_then(Value::as_str);
                let forms =
                    params.pointer("/clientCapabilities/elicitation/form").is_some_and(|forms| !forms.is_null());
                let name: String = llm_do::escape::visible(info.unwrap_or_default()).chars().take(60).collect();
                *lock(&self.house.introduced) = AcpClient { elicits: forms, name };
                Ok(protocol::initialized())
            }
            "session/new" => self.begin(&params),
            "session/load" => self.load(&params),
            "session/resume" => self.resume(&params),
            "session/list" => self.list(&params),
            "session/close" => self.close(&params).await,
            "session/delete" => self.delete(&params).await,
            "session/prompt" => self.session(&params)?.prompt(params.get("prompt").unwrap_or(&Value::Null)).await,
            "session/set_config_option" => self.configure(&params),
            unknown => {
                let shown = llm_do::escape::visible(unknown);
                Err(RpcError::told(code::METHOD_NOT_FOUND, format!("there is no method `{shown}`")))
            }
        }
    }

    /// A new session: the project is read, and nothing of it runs.
    fn begin(&self, params: &Value) -> Result<Value, RpcError> {
        let place =
            SessionPlace { directory: Some(directory(params)?), choices: SessionChoices::default(), is_begun: false };
        let id = RunId::new(now(), StateRandom::number());
        let session = AcpSession::of(Arc::clone(&self.house), id, place);
        let options = session.config_options().map_err(failed)?;
        self.sessions().insert(id.to_string(), session);
        Ok(json!({"sessionId": id, "configOptions": options}))
    }

    /// A session that was kept, told again.
    fn load(&self, params: &Value) -> Result<Value, RpcError> {
        let (session, contents) = self.kept(params)?;
        let agent = session.agent();
        for update in update::of_messages(&agent, &conversation(&contents)) {
            session.tell(&update);
        }
        let options = session.config_options().map_err(failed)?;
        Ok(json!({"configOptions": options}))
    }

    /// The same without what was said.
    fn resume(&self, params: &Value) -> Result<Value, RpcError> {
        let (session, _) = self.kept(params)?;
        let options = session.config_options().map_err(failed)?;
        Ok(json!({"configOptions": options}))
    }

    fn kept(&self, params: &Value) -> Result<(Arc<AcpSession>, llm_do::records::JournalContents), RpcError> {
        let host = &self.house.host;
        let id = Self::run_id(params)?;
        if !self.sessions().contains_key(id.as_str()) && host.store.is_running(&id).unwrap_or(false) {
            return Err(failed(Failure::usage(format!("the session `{id}` is open in another program"))));
        }
        let contents = host.store.read_journal(&id).map_err(|_| invalid(format!("there is no session `{id}`")))?;
        if contents.identity.kind != RunKind::Acp || project_of(&contents) != host.root() {
            return Err(invalid(format!("`{id}` is no session of this project")));
        }
        let header: RunHeader = contents.header.to().map_err(|error| failed(Failure::failed(error.to_string())))?;
        let model = header.flags.models.iter().find(|word| !word.contains('=')).cloned();
        let model =
            model.or_else(|| header.flags.models.iter().find_map(|word| word.strip_prefix("all=").map(str::to_owned)));
        let choices = SessionChoices { agent: header.flags.agent.clone(), model, rejects_all: header.flags.reject_all };
        let mut sessions = self.sessions();
        let session = sessions.entry(id.to_string()).or_insert_with(|| {
            let place = SessionPlace { directory: None, choices, is_begun: true };
            AcpSession::of(Arc::clone(&self.house), id, place)
        });
        Ok((Arc::clone(session), contents))
    }

    fn list(&self, params: &Value) -> Result<Value, RpcError> {
        let host = &self.house.host;
        let wanted = params.get("cwd").and_then(Value::as_str);
        let text = host.store.listed(&project_of).map_err(|error| failed(Failure::failed(error.to_string())))?;
        let lines = text.newest_of(host.root()).filter(|line| line.kind == RunKind::Acp);
        let mut sessions = Vec::new();
        for line in lines {
            let Ok(contents) = host.store.read_journal(&line.id) else { continue };
            let Ok(header) = contents.header.to::<RunHeader>() else { continue };
            let cwd = header.directory.display().to_string();
            if wanted.is_some_and(|wanted| header.directory != *wanted) {
                continue;
            }
            let first = conversation(&contents).into_iter().find_map(|message| first_words(&message));
            sessions.push(json!({"sessionId": line.id, "cwd": cwd, "title": first}));
            if sessions.len() == MOST_LISTED {
                break;
            }
        }
        Ok(json!({"sessions": sessions}))
    }

    async fn close(&self, params: &Value) -> Result<Value, RpcError> {
        let id = Self::run_id(params)?;
        let session = self.sessions().remove(id.as_str());
        if let Some(session) = session {
            session.leave().await;
        }
        Ok(json!({}))
    }

    async fn delete(&self, params: &Value) -> Result<Value, RpcError> {
        let id = Self::run_id(params)?;
        self.close(params).await?;
        let host = &self.house.host;
        let is_ours = host
            .store
            .read_journal(&id)
            .is_ok_and(|contents| contents.identity.kind == RunKind::Acp && project_of(&contents) == host.root());
        if is_ours {
            host.store.remove(&id, Removal::Careful).map_err(|error| failed(Failure::usage(error.to_string())))?;
        }
        Ok(json!({}))
    }

    fn configure(&self, params: &Value) -> Result<Value, RpcError> {
        let session = self.session(params)?;
        let name = params.get("configId").and_then(Value::as_str).unwrap_or_default();
        let value = params.get("value").and_then(Value::as_str).ok_or_else(|| invalid("`value` is a text"))?;
        session.configure(name, value, DEFAULT_MODEL)?;
        Ok(json!({"configOptions": session.config_options().map_err(failed)?}))
    }

    fn session(&self, params: &Value) -> Result<Arc<AcpSession>, RpcError> {
        let id = params.get("sessionId").and_then(Value::as_str).unwrap_or_default();
        let session = self.sessions().get(id).cloned();
        session.ok_or_else(|| invalid(format!("the session `{}` is not open", llm_do::escape::visible(id))))
    }

    fn run_id(params: &Value) -> Result<RunId, RpcError> {
        let id = params.get("sessionId").and_then(Value::as_str).unwrap_or_default();
        RunId::parse(id).ok_or_else(|| invalid(format!("there is no session `{}`", llm_do::escape::visible(id))))
    }

    fn hear(self: &Arc<Self>, message: IncomingMessage, tasks: &mut JoinSet<()>) {
        match message {
            IncomingMessage::Request(request) => {
                let desk = Arc::clone(self);
                tasks.spawn(async move {
                    let work = |method: String, params: RawJson| async move {
                        // Boxed: what works on a prompt is a large future.
                        Box::pin(desk.answer(&method, &params)).await.map(|result| RawJson::of(&result))
                    };
                    request.serve(work).await;
                });
            }
            IncomingMessage::Notification { method, params } => {
                if let ("session/cancel", Ok(params)) = (method.as_str(), params.to::<Value>())
                    && let Ok(session) = self.session(&params)
                {
                    session.cancel();
                }
            }
            IncomingMessage::Noise(line) => {
                let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok();
                let (code, words) = if is_json {
                    (code::INVALID_REQUEST, "this is no request, notification or answer; batches are not taken")
                } else {
                    (code::PARSE, "this line is not JSON")
                };
                self.house.client.complain(RpcError::told(code, words));
            }
        }
    }

    async fn leave(&self) {
        let all: Vec<Arc<AcpSession>> = std::mem::take(&mut *self.sessions()).into_values().collect();
        for session in all {
            session.leave().await;
        }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AcpSession>>> {
        lock(&self.sessions)
    }
}

/// What stands in the id of a run beside its time.
struct StateRandom;

impl StateRandom {
    fn number() -> u32 {
        let hex = llm_do::records::StateKey::new_hex().unwrap_or_default();
        hex.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
    }
}

fn directory(params: &Value) -> Result<PathBuf, RpcError> {
    let cwd = params.get("cwd").and_then(Value::as_str).ok_or_else(|| invalid("`cwd` is missing"))?;
    let path = PathBuf::from(cwd);
    if path.is_absolute() && path.is_dir() {
        Ok(path)
    } else {
        Err(invalid(format!("`cwd`: `{}` is no absolute path of a directory", llm_do::escape::visible(cwd))))
    }
}

/// The beginning of what a person said.
fn first_words(message: &llm_do::Message) -> Option<String> {
    const LONGEST: usize = 80;
    let llm_do::Message::User(said) = message else { return None };
    said.parts.iter().find_map(|part| match part {
        llm_do::Content::Text { text } => {
            let line = text.lines().find(|line| !line.trim().is_empty())?;
            Some(line.trim().chars().take(LONGEST).collect())
        }
        _ => None,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until the client leaves or a signal comes; then every session is left.
async fn serve(host: Host, answers_here: bool) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let (heard, mut incoming) = mpsc::unbounded_channel();
    let (present, mut gone) = oneshot::channel::<()>();
    let (answers, mut said) = tokio::io::duplex(64 * 1024);
    let writing = tokio::spawn(async move { tokio::io::copy(&mut said, &mut tokio::io::stdout()).await });
    let left = async move {
        drop(present);
        "the client left".to_owned()
    };
    let take_back = |id: u64| ("$/cancel_request", RawJson::of(&json!({"requestId": id})));
    let hear = move |message| drop(heard.send(message));
    let client = Connection::open(tokio::io::stdin(), answers, take_back, hear, left);
    let house = Arc::new(AcpHouse { host, client, answers_here, introduced: Mutex::default() });
    let desk = Arc::new(AcpDesk { house, sessions: Mutex::default() });
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
        desk.leave().await;
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
