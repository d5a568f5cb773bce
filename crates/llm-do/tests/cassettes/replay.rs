//! The recordings' own server, as a child process.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use hyper::{HeaderMap, Method};
use llm_do::http::{HttpClient, Request};
use serde_json::Value;
use tempfile::TempDir;

use crate::cassette::{folders, notice};

pub struct Replay {
    child: Child,
    url: String,
    room: TempDir,
}

impl Replay {
    /// Plays the files in `recordings`; none, and a notice, where it cannot be run.
    pub fn start(recordings: &[PathBuf], options: &[&str]) -> Option<Self> {
        let program = folders()[0].join("replay.py");
        if !program.exists() {
            notice(&format!("no {}: nothing is played over HTTP", program.display()));
            return None;
        }
        let room = TempDir::new().unwrap();
        let spawned = Command::new("python3")
            .arg(program)
            .args(recordings)
            .arg("--log")
            .arg(room.path().join("sent.jsonl"))
            .args(options)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // it reports each client that leaves
            .spawn();
        let Ok(mut child) = spawned else {
            notice("no python3: nothing is played over HTTP");
            return None;
        };
        let stdout = child.stdout.take().unwrap();
        let mut replay = Self { child, url: String::new(), room };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line.trim().strip_prefix("listening on ").expect("the server tells its address").clone_into(&mut replay.url);
        Some(replay)
    }

    /// Where this cassette is played.
    pub fn address(&self, cassette: &str) -> String {
        let escape = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        format!("{}/_c/{}", self.url, cassette.bytes().map(escape).collect::<String>())
    }

    /// Progress and broken rules.
    pub async fn status(&self, http: &HttpClient) -> Value {
        let url = format!("{}/_replay/status", self.url).parse().unwrap();
        let request = Request { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() };
        let response = http.send(request).await.unwrap();
        serde_json::from_slice(&response.body.collect(u64::MAX).await.unwrap()).unwrap()
    }

    /// One entry for each request that came.
    pub fn log(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.room.path().join("sent.jsonl")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
