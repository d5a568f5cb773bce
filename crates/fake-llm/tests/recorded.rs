//! The server refuses nothing that the real providers accepted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use std::path::{Path, PathBuf};

use client::{ANTHROPIC, CHAT, ask};
use fake_llm::{FakeLlm, Reply, Script};
use serde_json::Value;

/// Recorded traffic is no part of the repository: it lies beside it, or where the variable points.
fn recordings() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cassettes");
    let place = std::env::var_os("LLM_DO_CASSETTES").map_or(beside, PathBuf::from);
    place.is_dir().then_some(place)
}

/// The bodies that `host` answered with success, each with the name of its recording. Only the inventors of the
/// protocols count: their relatives are more lenient.
fn accepted_bodies(recordings: &Path, host: &str, path: &str) -> Vec<(String, Value)> {
    let files = std::fs::read_dir(recordings).unwrap().map(|entry| entry.unwrap().path());
    let texts = files.filter(|file| file.extension().is_some_and(|kind| kind == "json"));
    let exchanges = texts.flat_map(|file| {
        let recording: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let exchanges = recording["exchanges"].as_array().unwrap().clone();
        exchanges.into_iter().map(move |exchange| (file.display().to_string(), exchange))
    });
    exchanges
        .filter(|(_, exchange)| exchange["request"]["host"] == host && exchange["request"]["path"] == path)
        .filter(|(_, exchange)| exchange["response"]["status"] == 200)
        .map(|(file, exchange)| (file, exchange["request"]["body"].clone()))
        .collect()
}

#[test]
fn requests_that_providers_accepted_are_accepted() {
    let Some(recordings) = recordings() else {
        println!("skipped: no recorded traffic here; LLM_DO_CASSETTES says where it is");
        return;
    };
    for (host, path) in [("api.anthropic.com", ANTHROPIC), ("api.openai.com", CHAT)] {
        let bodies = accepted_bodies(&recordings, host, path);
        assert!(!bodies.is_empty(), "{path}");
        let fake = FakeLlm::start(Script::new().otherwise(Reply::text("x")).accept_foreign_history());
        for (file, body) in bodies {
            let response = ask(&fake, path, &body);
            assert_eq!(response.status, 200, "{file}: {}", String::from_utf8_lossy(&response.body()));
        }
    }
}
