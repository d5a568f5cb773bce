//! The recordings on disk.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Once;

use llm_do::model::protocol::Protocol;
use llm_do::model::provider::{PROVIDERS, ProtocolKind, Provider};
use serde_json::Value;

pub struct Cassette {
    pub name: String,
    pub content: Value,
}

/// One recorded response, with the request it answers and what is expected of it.
#[derive(Clone, Copy)]
pub struct Recorded<'a> {
    pub cassette: &'a str,
    /// Of the exchange in its cassette.
    pub index: usize,
    pub kind: ProtocolKind,
    pub provider: &'static Provider,
    pub request: &'a Value,
    pub response: &'a Value,
    pub expect: &'a Value,
    /// The answer broke off before its usage, with all of its words.
    pub is_without_usage: bool,
}

/// Where they are; the first has the server that plays all of them.
pub fn folders() -> Vec<PathBuf> {
    let beside = || {
        let shared = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
        vec![shared.join("cassettes"), shared.join("cassettes-2")]
    };
    let named = |folders: std::ffi::OsString| std::env::split_paths(&folders).collect();
    std::env::var_os("LLM_DO_CASSETTES").map_or_else(beside, named)
}

/// All of them; none, and a notice, where there is no such folder.
pub fn cassettes() -> Vec<Cassette> {
    let found: Vec<_> = folders().iter().filter_map(|folder| std::fs::read_dir(folder).ok()).collect();
    if found.is_empty() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            notice(&format!("no recorded traffic at {:?}: nothing is checked against it", folders()));
        });
        return Vec::new();
    }
    let mut paths: Vec<PathBuf> = found.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let read = |path: PathBuf| {
        let content: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        Cassette { name: content["name"].as_str().unwrap().to_owned(), content }
    };
    paths.into_iter().map(read).collect()
}

/// Said past the capture of the test harness, so that it is seen when all is well, too.
pub fn notice(text: &str) {
    std::io::stderr().write_all(format!("NOTICE: {text}\n").as_bytes()).unwrap();
}

impl Cassette {
    pub fn recorded(&self) -> impl Iterator<Item = Recorded<'_>> {
        self.content["expect"]["responses"].as_array().unwrap().iter().map(|expect| self.one(expect))
    }

    fn one<'a>(&'a self, expect: &'a Value) -> Recorded<'a> {
        let kind = match expect["protocol"].as_str().unwrap() {
            "anthropic" => ProtocolKind::Anthropic,
            "chat" => ProtocolKind::OpenAiChat,
            "responses" => ProtocolKind::OpenAiResponses,
            "gemini" => ProtocolKind::Gemini,
            unknown => panic!("unknown protocol {unknown}"),
        };
        let index = usize::try_from(expect["exchange"].as_u64().unwrap()).unwrap();
        let exchange = &self.content["exchanges"][index];
        let (request, response) = (&exchange["request"], &exchange["response"]);
        let provider = row(kind, request["host"].as_str().unwrap());
        Recorded { cassette: &self.name, index, kind, provider, request, response, expect, is_without_usage: false }
    }
}

/// The provider at this host: by its address, else by its name, else the first that speaks the protocol.
fn row(kind: ProtocolKind, host: &str) -> &'static Provider {
    let rows = || PROVIDERS.iter().filter(|row| row.protocol == kind);
    let by_address = rows().find(|row| row.base_url.contains(host));
    let by_name = || rows().find(|row| host.split('.').any(|label| label == row.name));
    by_address.or_else(by_name).or_else(|| rows().next()).unwrap()
}

impl Recorded<'_> {
    /// The translation, if it is built.
    pub fn protocol(&self) -> Option<&'static dyn Protocol> {
        self.kind.protocol()
    }

    pub fn place(&self) -> String {
        format!("{} {}", self.cassette, self.index)
    }
}
