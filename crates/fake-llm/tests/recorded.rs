//! The server refuses nothing that the real providers accepted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use std::path::{Path, PathBuf};

use client::{ANTHROPIC, CHAT, RESPONSES, ask};
use fake_llm::{FakeLlm, FakeReply, FakeScript};
use serde_json::Value;

/// Recorded traffic is no part of the repository: it lies beside it, or where the variable points.
fn recordings() -> Vec<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let beside = || ["cassettes", "cassettes-2"].map(|name| shared.join(name)).to_vec();
    let named = |folders: std::ffi::OsString| std::env::split_paths(&folders).collect();
    let places = std::env::var_os("LLM_DO_CASSETTES").map_or_else(beside, named);
    places.into_iter().filter(|place| place.is_dir()).collect()
}

/// The bodies that `host` answered with success, each with the name of its recording and its path. Only the inventors of
/// the protocols count: their relatives are more lenient.
fn accepted_bodies(recordings: &[PathBuf], host: &str, path_end: &str) -> Vec<(String, String, Value)> {
    let folders = recordings.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = folders.map(|entry| entry.unwrap().path());
    let texts = files.filter(|file| file.extension().is_some_and(|kind| kind == "json"));
    let exchanges = texts.flat_map(|file| {
        let recording: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let exchanges = recording["exchanges"].as_array().unwrap().clone();
        exchanges.into_iter().map(move |exchange| (file.display().to_string(), exchange))
    });
    let path = |exchange: &Value| exchange["request"]["path"].as_str().unwrap().to_owned();
    exchanges
        .filter(|(_, exchange)| exchange["request"]["host"] == host && path(exchange).ends_with(path_end))
        .filter(|(_, exchange)| exchange["response"]["status"] == 200)
        .map(|(file, exchange)| (file, path(&exchange), exchange["request"]["body"].clone()))
        .collect()
}

#[test]
fn requests_that_providers_accepted_are_accepted() {
    let recordings = recordings();
    if recordings.is_empty() {
        println!("skipped: no recorded traffic here; LLM_DO_CASSETTES says where it is");
        return;
    }
    let google = "generativelanguage.googleapis.com";
    for (host, path_end) in [
        ("api.anthropic.com", ANTHROPIC),
        ("api.openai.com", CHAT),
        ("api.openai.com", RESPONSES),
        (google, ":generateContent"),
        (google, ":streamGenerateContent"),
    ] {
        let bodies = accepted_bodies(&recordings, host, path_end);
        assert!(!bodies.is_empty(), "{path_end}");
        let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("x")).accept_foreign_history());
        for (file, path, body) in bodies {
            let query = if path.ends_with(":streamGenerateContent") { "?alt=sse" } else { "" };
            let response = ask(&fake, &format!("{path}{query}"), &body);
            assert_eq!(response.status, 200, "{file}: {}", String::from_utf8_lossy(&response.body()));
        }
    }
}
