//! MCP servers that the tests start, or let the program start.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::python;

/// The server on the official Rust library. Tests of the whole package have built it; a test alone has not.
pub fn ours() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_llm-do")).with_file_name("examples").join("mcp_server");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mcp_server.rs");
        let written = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
        if written(&program) < written(&source) {
            let mut cargo = Command::new(env!("CARGO"));
            // What Cargo tells the programs that it runs would make others be built anew.
            let is_told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
            for (name, _) in std::env::vars().filter(|(name, _)| is_told(name)) {
                cargo.env_remove(name);
            }
            cargo.args(["build", "--quiet", "--package", "llm-do-cli", "--example", "mcp_server"]);
            let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status();
            assert!(built.unwrap().success(), "the server of the tests cannot be built");
        }
        program.to_str().unwrap().to_owned()
    })
}

/// It as a toolset of a manifest. What it hears is in the file `log`, relative to the project.
pub fn ours_on_stdio() -> Value {
    json!({"mcp": {"command": ours(), "args": ["stdio", "log"], "env": {"TOLD": "x", "PASSED": {"from_env": "SECRET"}}}})
}

/// The version from npm that the tests are written against.
const EVERYTHING: &str = "2026.8.31";

/// The script of the server with one of everything, fetched from npm once.
pub fn everything() -> &'static str {
    static SCRIPT: OnceLock<String> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("npm-everything-{EVERYTHING}"));
        let package = "@modelcontextprotocol/server-everything";
        python::once(&directory, || {
            std::fs::create_dir_all(&directory).unwrap();
            let wanted = format!("{package}@{EVERYTHING}");
            let flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
            python::run(Command::new("npm").arg("install").args(flags).arg(&directory).arg(wanted));
        });
        let script = directory.join("node_modules").join(package).join("dist").join("index.js");
        script.to_str().unwrap().to_owned()
    })
}

/// A server that listens; it ends with the test.
pub struct Listening {
    child: Child,
    pub port: u16,
}

impl Listening {
    /// One that prints its port on the first line.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }

    /// That of npm, which must be told where to listen, and says on stderr that it does.
    pub fn everything() -> (Self, u16) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("node");
        command.arg(everything()).arg("streamableHttp").env("PORT", port.to_string());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = lines.any(|line| line.is_ok_and(|line| line.contains("listening")));
        assert!(listens, "it ended before it listened");
        // Whoever writes to a pipe that nobody reads dies.
        std::thread::spawn(move || lines.for_each(drop));
        (Self { child, port }, port)
    }

    pub fn ours(mode: &str, log: &PathBuf) -> Self {
        Self::start(Command::new(ours()).arg(mode).arg(log))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
