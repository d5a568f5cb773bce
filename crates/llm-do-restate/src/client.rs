//! What is asked of the engine over HTTP: runs are started, told something and read at its ingress; workers are registered at its
//! admin port.

use std::fmt;
use std::time::Duration;

use llm_do::providers::{HttpClient, HttpSettings};
use llm_do::records::StateKey;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::attempt::{LIST, LIST_KEY};
use crate::words::{Mail, SignedWord, Start};
use crate::worker::{EngineRow, LinesGiven, LinesWanted};

/// Why the engine did not do what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// It is no address of an engine.
    Address(String),
    /// Nobody is there.
    Unreachable { url: String, why: String },
    /// Nobody has registered this there.
    Unserved(String),
    /// Nobody has registered anything there.
    Unused,
    /// What is there is no ingress of an engine.
    NoIngress { url: String, status: u16 },
    /// The engine did not take a worker.
    Unregistered { url: String, why: String },
    /// No worker has answered in time.
    Silent(String),
    /// A worker refused it, with this status.
    Refused(u16, String),
    /// What runs have recorded was signed with another key.
    Key,
    /// What came is no answer to what was asked.
    Garbled(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) => write!(formatter, "`{text}` is no address of an engine"),
            Self::Unreachable { url, why } => write!(formatter, "there is no engine at {url}: {why}"),
            Self::Unserved(name) => write!(formatter, "no worker has registered `{name}` at the engine"),
            Self::Unused => formatter.write_str("no worker has registered at the engine"),
            Self::NoIngress { url, status } => write!(formatter, "{url} is no engine's ingress: it answers {status}"),
            Self::Unregistered { url, why } => write!(formatter, "the engine at {url} does not take the worker: {why}"),
            Self::Silent(name) => write!(formatter, "no worker that serves `{name}` answers"),
            Self::Key => formatter.write_str("the engine key is another one than that of the runs"),
            Self::Refused(_, why) => formatter.write_str(why),
            Self::Garbled(why) => write!(formatter, "the engine's answer cannot be read: {why}"),
        }
    }
}

impl std::error::Error for EngineError {}

/// An answer has at most so many bytes.
const LONGEST: u64 = 64 << 20;

/// The address that a user writes, `restate://HOST:PORT`, as the engine's ingress is asked: `restates://` with TLS.
pub fn address(text: &str) -> Result<String, EngineError> {
    let wrong = || EngineError::Address(text.to_owned());
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let scheme = match scheme {
        "restate" => "http",
        "restates" => "https",
        _ => return Err(wrong()),
    };
    let host = rest.trim_end_matches('/');
    let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
    if is_host { Ok(format!("{scheme}://{host}")) } else { Err(wrong()) }
}

/// The engine's ingress.
#[derive(Clone)]
pub struct EngineClient {
    http: HttpClient,
    base: String,
}

/// How a start was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartTaken {
    New,
    /// There is a run with this id, which may be somebody else's.
    Known,
}

/// What a worker says of a project.
#[derive(Clone, Debug, Deserialize)]
pub struct About {
    /// A digest of its files.
    pub program: String,
}

impl EngineClient {
    /// For an engine at this address. What a worker is asked may take this long.
    pub fn new(text: &str, patience: Duration, settings: HttpSettings) -> Result<Self, EngineError> {
        let base = address(text)?;
        let settings = HttpSettings { first_byte_timeout: patience, ..settings };
        let http = HttpClient::new(settings).map_err(|error| EngineError::Address(error.to_string()))?;
        Ok(Self { http, base })
    }

    async fn asked(&self, service: &str, path: &str, body: String) -> Result<Vec<u8>, EngineError> {
        let url = format!("{}/{path}", self.base);
        let (status, bytes) = self.http.post_json(&url, &[], body, LONGEST).await.map_err(|why| {
            // Whether somebody is there is another question than whether somebody answers.
            if why.contains("nothing came") || why.contains("timed out") || why.contains("no answer") {
                EngineError::Silent(service.to_owned())
            } else {
                EngineError::Unreachable { url: self.base.clone(), why }
            }
        })?;
        match status {
            200 | 202 => Ok(bytes),
            404 if is_unserved(&bytes) => Err(EngineError::Unserved(service.to_owned())),
            // The engine has asked workers again and again.
            500.. => Err(EngineError::Silent(service.to_owned())),
            status => match message(&bytes) {
                why if why.is_empty() => Err(EngineError::NoIngress { url: self.base.clone(), status }),
                why => Err(EngineError::Refused(status, why)),
            },
        }
    }

    async fn read<T: DeserializeOwned>(&self, service: &str, path: &str, body: String) -> Result<T, EngineError> {
        let bytes = self.asked(service, path, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| EngineError::Garbled(error.to_string()))
    }

    /// What is served under this name.
    pub async fn about(&self, project: &str) -> Result<About, EngineError> {
        self.read(project, &format!("{project}/about/about"), "{}".to_owned()).await
    }

    /// Starts a run.
    pub async fn start(
        &self,
        project: &str,
        run: &str,
        start: &Start,
        key: &StateKey,
    ) -> Result<StartTaken, EngineError> {
        #[derive(Deserialize)]
        struct SendStatus {
            status: String,
        }
        let signed = SignedWord::of(start, project, run, key);
        let body = json!(signed).to_string();
        let sent: SendStatus = self.read(project, &format!("{project}/{run}/run/send"), body).await?;
        Ok(if sent.status == "Accepted" { StartTaken::New } else { StartTaken::Known })
    }

    /// Puts a run onto the list before any worker has it. What workers said of it since stays.
    pub async fn put(&self, row: &EngineRow) -> Result<(), EngineError> {
        self.asked(LIST, &format!("{LIST}/{LIST_KEY}/put"), json!(row).to_string()).await.map(drop)
    }

    /// Says something to a run.
    pub async fn say(&self, project: &str, run: &str, word: &Mail, key: &StateKey) -> Result<(), EngineError> {
        let handler = if matches!(word, Mail::Cancel { .. }) { "cancel" } else { "say" };
        let body = json!(SignedWord::of(word, project, run, key)).to_string();
        match self.asked(project, &format!("{project}/{run}/{handler}"), body).await {
            // The engine has it, and tells the next worker.
            Ok(_) | Err(EngineError::Silent(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lines of a run.
    pub async fn lines(&self, project: &str, run: &str, from: u64) -> Result<LinesGiven, EngineError> {
        self.read(project, &format!("{project}/{run}/lines"), json!(LinesWanted { from }).to_string()).await
    }

    /// What a run ended with, if it has; an error is why it could not begin.
    pub async fn output(&self, project: &str, run: &str) -> Result<Option<Value>, EngineError> {
        let url = format!("{}/restate/workflow/{project}/{run}/output", self.base);
        let asked = self.http.get(&url, LONGEST).await;
        let (status, bytes) = asked.map_err(|why| EngineError::Unreachable { url: self.base.clone(), why })?;
        match status {
            200 => Ok(Some(serde_json::from_slice(&bytes).unwrap_or(Value::Null))),
            404 | 470 => Ok(None),
            status => Err(EngineError::Refused(status, message(&bytes))),
        }
    }

    /// All runs of all projects.
    pub async fn list(&self) -> Result<Vec<EngineRow>, EngineError> {
        self.read(LIST, &format!("{LIST}/{LIST_KEY}/list"), "{}".to_owned()).await
    }
}

fn message(bytes: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(bytes).ok();
    let text = parsed.as_ref().and_then(|value| value["message"].as_str()).map(str::to_owned);
    text.unwrap_or_else(|| String::from_utf8_lossy(bytes).chars().take(300).collect())
}

/// The engine itself does not know the service; a worker's 404 says something else.
fn is_unserved(bytes: &[u8]) -> bool {
    message(bytes).contains("not found")
}

/// How a worker was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Counted from 1, for each project: a new address is a new version.
    pub versions: Vec<(String, u64)>,
}

/// Tells an engine, at its admin port, that a worker listens at this address.
pub async fn register(admin: &str, worker: &str, settings: HttpSettings) -> Result<Registration, EngineError> {
    #[derive(Deserialize)]
    struct Deployment {
        services: Vec<Service>,
    }
    #[derive(Deserialize)]
    struct Service {
        name: String,
        revision: u64,
    }
    let http = HttpClient::new(settings).map_err(|error| EngineError::Address(error.to_string()))?;
    let admin = admin.trim_end_matches('/');
    let body = json!({"uri": worker}).to_string();
    let asked = http.post_json(&format!("{admin}/deployments"), &[], body, LONGEST).await;
    let unregistered = |why| EngineError::Unregistered { url: admin.to_owned(), why };
    let (status, bytes) = asked.map_err(unregistered)?;
    if !(200..300).contains(&status) {
        return Err(unregistered(message(&bytes)));
    }
    let deployment: Deployment =
        serde_json::from_slice(&bytes).map_err(|error| EngineError::Garbled(error.to_string()))?;
    let own = deployment.services.into_iter().filter(|service| service.name != LIST);
    Ok(Registration { versions: own.map(|service| (service.name, service.revision)).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_host() {
        assert_eq!(address("restate://127.0.0.1:8080"), Ok("http://127.0.0.1:8080".to_owned()));
        assert_eq!(address("restates://engine.example/"), Ok("https://engine.example".to_owned()));
        for wrong in ["", "127.0.0.1:8080", "http://127.0.0.1:8080", "restate://", "restate://a/b", "restate://u@h"] {
            assert_eq!(address(wrong), Err(EngineError::Address(wrong.to_owned())), "{wrong}");
        }
    }
}
