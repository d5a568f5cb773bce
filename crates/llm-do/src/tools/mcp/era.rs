//! Which revision a server speaks: found out when it is spoken to for the first time, and remembered. Pure, but for the memory.

use std::path::PathBuf;

use serde::Deserialize;

use super::http::UNREACHED;
use super::wire::{self, MODERN};
use crate::beneath::{FileAccess, read_regular, replace_path};
use crate::journal::digest::digest;
use crate::message::RawJson;
use crate::tools::rpc::RpcError;

/// How servers are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Each request tells what it has to: no opening.
    Modern,
    /// The conversation is opened with `initialize`.
    WithInitialize,
}

/// What the answer to `server/discover` says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EraVerdict {
    /// It speaks the modern revision.
    Modern { has_tools: bool },
    /// It wants to be asked again in the revision that it names, which is the modern one.
    AskAgain,
    /// It does not know what it was asked: it is of an earlier revision.
    WithInitialize,
    /// It says nothing about that.
    Unknown(RpcError),
}

/// What an answer to `server/discover` says of its server.
pub(super) fn verdict(answer: Result<RawJson, RpcError>) -> EraVerdict {
    let error = match answer {
        Ok(answer) => return of_discovery(&answer),
        Err(error) => error,
    };
    match &error {
        RpcError::Told { code: wire::code::UNSUPPORTED_VERSION, data, .. } => {
            let speaks = data.as_ref().and_then(|data| data.to::<SupportedVersions>().ok()).unwrap_or_default();
            let modern = speaks.supported.iter().any(|version| version == MODERN);
            // A list that has neither is of a time to come: its own words say so.
            let earlier = speaks.supported.is_empty()
                || speaks.supported.iter().any(|version| wire::WITH_INITIALIZE.contains(&version.as_str()));
            match (modern, earlier) {
                (true, _) => EraVerdict::AskAgain,
                (false, true) => EraVerdict::WithInitialize,
                (false, false) => EraVerdict::Unknown(error),
            }
        }
        RpcError::Told { code: UNREACHED, data, .. } => {
            let status = data.as_ref().and_then(|data| data.to::<AnswerStatus>().ok()).map(|data| data.status);
            let is_told = status.is_some_and(|status| (400..500).contains(&status) && status != 401 && status != 403);
            if is_told { EraVerdict::WithInitialize } else { EraVerdict::Unknown(error) }
        }
        RpcError::Told { code: super::http::UNAUTHORIZED, .. } | RpcError::Gone(_) => EraVerdict::Unknown(error),
        RpcError::Told { .. } => EraVerdict::WithInitialize,
    }
}

#[derive(Default, Deserialize)]
struct SupportedVersions {
    supported: Vec<String>,
}

#[derive(Deserialize)]
struct AnswerStatus {
    status: u16,
}

fn of_discovery(answer: &RawJson) -> EraVerdict {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DiscoveryAnswer {
        supported_versions: Vec<String>,
        capabilities: ServerOffers,
    }
    #[derive(Deserialize)]
    struct ServerOffers {
        tools: Option<serde::de::IgnoredAny>,
    }
    match answer.to::<DiscoveryAnswer>() {
        Ok(found) if found.supported_versions.iter().any(|version| version == MODERN) => {
            EraVerdict::Modern { has_tools: found.capabilities.tools.is_some() }
        }
        Ok(_) | Err(_) => EraVerdict::WithInitialize,
    }
}

/// Where it is kept that a server is of an earlier revision, so that it is not asked each time.
#[derive(Clone, Debug, Default)]
pub(crate) struct EraMemory(Option<PathBuf>);

const REMEMBERED: &str = "initialize\n";

impl EraMemory {
    /// Of a server that is reached by these words, in a directory of the user's state.
    pub(crate) fn of<'a>(directory: Option<&PathBuf>, words: impl IntoIterator<Item = &'a str>) -> Self {
        Self(directory.map(|directory| directory.join("mcp").join(&digest(words)[..32])))
    }

    /// Whether it was of an earlier revision when it was last spoken to.
    pub(super) fn is_earlier(&self) -> bool {
        self.0.as_ref().and_then(|path| read_regular(path, 64).ok()).is_some_and(|text| text == REMEMBERED.as_bytes())
    }

    /// What cannot be kept is asked again the next time.
    pub(super) fn keep(&self, era: Era) {
        let Some(path) = &self.0 else { return };
        match (era, self.is_earlier()) {
            (Era::WithInitialize, false) => {
                let _ = path.parent().map(std::fs::create_dir_all);
                let _ = replace_path(path, REMEMBERED.as_bytes(), FileAccess::Private);
            }
            (Era::Modern, true) => drop(std::fs::remove_file(path)),
            (Era::WithInitialize, true) | (Era::Modern, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(code: i64, data: &Value) -> Result<RawJson, RpcError> {
        Err(RpcError::Told { code, message: String::new(), data: Some(RawJson::of(data)) })
    }

    #[test]
    fn an_answer_says_which_revision_is_spoken_or_nothing() {
        let found =
            |versions: Value| Ok(RawJson::of(&json!({"supportedVersions": versions, "capabilities": {"tools": {}}})));
        assert_eq!(verdict(found(json!([MODERN]))), EraVerdict::Modern { has_tools: true });
        let earlier = [
            found(json!(["2025-11-25"])),
            Ok(RawJson::of(&json!({}))),
            told(-32601, &json!(null)),
            told(-32022, &json!({"supported": ["2025-11-25"]})),
            told(-32022, &json!(null)),
            told(UNREACHED, &json!({"status": 404})),
        ];
        for answer in earlier {
            assert_eq!(verdict(answer.clone()), EraVerdict::WithInitialize, "{answer:?}");
        }
        assert_eq!(verdict(told(-32022, &json!({"supported": [MODERN]}))), EraVerdict::AskAgain);
        for nothing in [
            told(UNREACHED, &json!({"status": 401})),
            told(UNREACHED, &json!({"status": 502})),
            told(UNREACHED, &json!(null)),
            told(-32022, &json!({"supported": ["2031-01-01"]})),
            Err(RpcError::Gone("it ended".into())),
        ] {
            assert!(matches!(verdict(nothing.clone()), EraVerdict::Unknown(_)), "{nothing:?}");
        }
    }

    #[test]
    fn an_earlier_revision_is_remembered_until_it_is_spoken_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let memory = EraMemory::of(Some(&directory.path().to_owned()), ["server"]);
        assert!(!memory.is_earlier());
        memory.keep(Era::WithInitialize);
        assert!(memory.is_earlier() && !EraMemory::of(Some(&directory.path().to_owned()), ["other"]).is_earlier());
        memory.keep(Era::Modern);
        assert!(!memory.is_earlier() && !EraMemory::of(None, ["server"]).is_earlier());
    }
}
