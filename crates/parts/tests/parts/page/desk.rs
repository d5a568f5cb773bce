//! A place with projects and `llm-do web` at work in it, as a person has them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

use parts::{command, program};
use serde_json::Value;
use tempfile::TempDir;

use super::browser::{Browser, DEADLINE};

/// Where the projects are, and who serves them.
pub struct Desk {
    place: TempDir,
    variables: Vec<(String, String)>,
    served: Option<Served>,
    /// Where it listens, the same again after an end.
    listens: String,
}

struct Served {
    server: Child,
    /// With the key behind its `#`.
    address: String,
}

impl Desk {
    /// With the projects that nearly every test wants: one that asks before it writes, and one that only talks.
    pub fn new() -> Self {
        let desk = Self {
            place: TempDir::new().unwrap(),
            variables: Vec::new(),
            served: None,
            listens: "127.0.0.1:0".to_owned(),
        };
        desk.write("demo/main.worker", WRITER);
        desk.write("demo/script.yaml", SCRIPT);
        desk.write("demo/project.json", PROJECT);
        fs::create_dir(desk.path("demo/drafts")).unwrap();
        desk.write("plain/main.worker", "---\nname: main\nmodel: scripted:script.yaml\n---\nAnswer.");
        desk.write("plain/script.yaml", "- say: You said {{ heard }}.\n");
        desk
    }

    /// With variables for everything that is started.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.place.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// `llm-do …` here.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(program(), self.place.path());
        command.args(arguments).env("LLM_DO_TRUST", "1").env("USER", "ann");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// What it prints, however it ends, and its exit code.
    pub fn run(&self, arguments: &[&str]) -> (String, String, Option<i32>) {
        let ended = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&ended.stdout), text(&ended.stderr), ended.status.code())
    }

    /// Begins to serve; what was served before has ended.
    #[track_caller]
    pub fn serve(&mut self, projects: &[&str]) {
        self.kill();
        let arguments = [&["web"], projects, &["--no-open", "--listen", &self.listens]].concat();
        let mut server = self.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
        if address.is_empty() {
            let mut why = String::new();
            server.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("nothing is served: {why}");
        }
        // Nobody reads what it complains of: it must not wait for that.
        let mut complaints = server.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut complaints, &mut std::io::sink()));
        self.listens = address.split("/#").next().unwrap().replace("http://", "");
        self.served = Some(Served { server, address: address.trim().to_owned() });
    }

    /// As the power goes.
    pub fn kill(&mut self) {
        if let Some(mut served) = self.served.take() {
            served.server.kill().unwrap();
            served.server.wait().unwrap();
        }
    }

    /// The page's address with its key.
    pub fn address(&self) -> &str {
        &self.served.as_ref().unwrap().address
    }

    /// The same without the key.
    pub fn root(&self) -> &str {
        self.address().split("/#").next().unwrap()
    }

    pub fn key(&self, name: &str) -> String {
        self.read(&format!(".local/state/llm-do/web/{name}")).trim().to_owned()
    }

    /// A browser that has the page open.
    #[track_caller]
    pub fn browser(&self) -> Browser {
        let browser = Browser::start();
        browser.open(self.address());
        browser.there_is("nav a");
        browser
    }

    /// What `/api` answers.
    #[track_caller]
    pub fn api(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let host = self.root().strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let key = self.key("all");
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    /// Begins a run as a program does; gives its id.
    #[track_caller]
    pub fn begin(&self, asked: &Value) -> String {
        let (status, begun) = self.api("POST", "/api/runs", asked);
        assert_eq!(status, 201, "{begun}");
        begun["run"].as_str().unwrap().to_owned()
    }

    /// Waits until a run is in such a state, and gives what is shown of it.
    #[track_caller]
    pub fn until_run(&self, run: &str, state: &str) -> Value {
        until(&format!("{run} {state}"), || {
            let (_, shown) = self.api("GET", &format!("/api/runs/{run}"), &Value::Null);
            (shown["state"] == state).then_some(shown)
        })
    }

    /// Waits for the first open question.
    #[track_caller]
    pub fn question(&self) -> Value {
        until("a question", || self.api("GET", "/api/questions", &Value::Null).1["questions"].get(0).cloned())
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.kill();
    }
}

#[track_caller]
pub fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// A server of somebody else on this machine, with one page.
pub struct OtherSite {
    pub address: String,
    end: std::sync::Arc<std::sync::atomic::AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl OtherSite {
    pub fn serve(page: String) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ends = std::sync::Arc::clone(&end);
        let serving = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    line.clear();
                }
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    page.len()
                );
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(page.as_bytes()));
            }
        });
        Self { address: format!("http://{at}"), end, serving: Some(serving) }
    }
}

impl Drop for OtherSite {
    fn drop(&mut self) {
        self.end.store(true, std::sync::atomic::Ordering::SeqCst);
        let _ = TcpStream::connect(self.address.strip_prefix("http://").unwrap());
        let _ = self.serving.take().unwrap().join();
    }
}

/// Writes a text file beneath a place.
pub fn write(place: &Path, name: &str, text: &str) -> PathBuf {
    let path = place.join(name);
    fs::write(&path, text).unwrap();
    path
}

const WRITER: &str = "---
name: main
model: scripted:script.yaml
toolsets: [drafts]
approval:
  write_file: ask
---
Write a haiku.
";
const PROJECT: &str = r#"{
  "version": 1,
  "entry": {"agent": "main", "input": "Write a haiku"},
  "worker_files": ["main.worker"],
  "toolsets": {"drafts": {"filesystem": {"root": "drafts", "mode": "rw", "suffixes": [".md"]}}}
}
"#;
const SCRIPT: &str = "- tool: write_file
  heard: error
  say: \"Nothing was written: {{ result }}\"
- tool: write_file
  say: \"The haiku is in drafts/haiku.md.\"
- say: I write it into a file. You are asked first.
  call:
    write_file: {path: haiku.md, content: \"The new crane, asleep.\\n\"}
";
