//! A server of its own for each test, and a client that sends what it is told to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use llm_do::fence::FenceConfig;
use llm_do::remedy::Wording;
use llm_do::store::answers::StoredAnswer;
use llm_do::store::layout::{HexDigest, RunId};
use llm_do::{Answer, ModelChoices};
use llm_do_launch::launch::PolicyOverrides;
use llm_do_launch::program_terms::ProgramTerms;
use llm_do_launch::python::PythonPlan;
use llm_do_launch::record::LaunchOverrides;
use llm_do_launch::settings::{Settings, Variables};
use llm_do_launch::trust::Consent;
use llm_do_web::guard::{ConnectionBounds, KeyKind};
use llm_do_web::{WebPlan, WebServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Far more than any of this needs.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// A server with three projects, and the place that it works in.
pub struct House {
    place: TempDir,
    pub at: SocketAddr,
    bounds: ConnectionBounds,
    serving: Option<(CancellationToken, JoinHandle<()>)>,
}

const SCRIPT: &str = "- round: 1
  say: I write it into a file. You are asked first.
  call:
    write_file: {path: haiku.md, content: \"The new crane, asleep.\\n\"}
- tool: write_file
  heard: refused
  say: Nothing was written.
- tool: write_file
  say: The haiku is in drafts/haiku.md.
";

impl House {
    pub fn new() -> Self {
        Self::with(ConnectionBounds::default(), |_| {})
    }

    pub fn with(bounds: ConnectionBounds, change: impl FnOnce(&mut WebPlan)) -> Self {
        let place = TempDir::new().unwrap();
        let mut house = Self { place, at: ([127, 0, 0, 1], 1).into(), bounds, serving: None };
        house.write("demo/main.worker", "---\nname: main\nmodel: scripted:script.yaml\ntoolsets: [drafts]\napproval:\n  write_file: ask\n---\nWrite a haiku.");
        house.write("demo/script.yaml", SCRIPT);
        house.write(
            "demo/project.json",
            r#"{"version": 1, "entry": {"agent": "main", "input": "Write a haiku"}, "worker_files": ["main.worker"],
            "toolsets": {"drafts": {"filesystem": {"root": "drafts", "mode": "rw", "suffixes": [".md"]}}}}"#,
        );
        std::fs::create_dir(house.path("demo/drafts")).unwrap();
        house.write("plain/main.worker", "---\nname: main\nmodel: scripted:script.yaml\n---\nAnswer.");
        house.write("plain/script.yaml", "- say: You said {{ heard }}.\n");
        house.write(
            "typed/main.worker",
            "---\nname: main\nmodel: scripted:script.yaml\nschema_in: {type: object, properties: {place: {type: string}}, required: [place]}\nschema_out: {type: object, properties: {wind: {type: string}}, required: [wind]}\n---\nAnswer.",
        );
        house.write("typed/script.yaml", "- say: '{\"wind\": \"west\"}'\n");
        house.start(change);
        house
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.place.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    fn start(&mut self, change: impl FnOnce(&mut WebPlan)) {
        let mut plan = plan(self.place.path(), self.bounds);
        change(&mut plan);
        let (tell, told) = std::sync::mpsc::channel();
        let end = CancellationToken::new();
        let ends = end.clone();
        let thread = std::thread::spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            executor.block_on(async {
                let server = WebServer::open(plan).await.map_err(|error| error.fact()).unwrap();
                tell.send(server.url().to_owned()).unwrap();
                server.run(ends).await;
            });
            executor.shutdown_background();
        });
        let url = told.recv_timeout(DEADLINE).unwrap();
        self.at = url.rsplit_once("//").unwrap().1.parse().unwrap();
        self.serving = Some((end, thread));
    }

    /// Ends the server, and starts another one in its place.
    pub fn restart(&mut self, change: impl FnOnce(&mut WebPlan)) {
        self.stop();
        self.start(change);
    }

    fn stop(&mut self) {
        if let Some((end, thread)) = self.serving.take() {
            end.cancel();
            thread.join().unwrap();
        }
    }

    pub fn key(&self, kind: KeyKind) -> String {
        self.read(&format!("home/state/web/{}", kind.name())).trim().to_owned()
    }

    pub fn bearer(&self, kind: KeyKind) -> String {
        format!("Bearer {}", self.key(kind))
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Sends exactly this; a header that is given replaces ours.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = self.connect();
        self.write_request(&mut stream, method, path, headers, body);
        Reply::of(&read_to_end(&mut stream))
    }

    fn write_request(&self, stream: &mut TcpStream, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let host = self.at.to_string();
        let mut all: Vec<(&str, &str)> = vec![("connection", "close")];
        if !headers.iter().any(|(name, _)| *name == "host") {
            all.push(("host", &host));
        }
        all.extend(headers);
        let length = body.len().to_string();
        all.push(("content-length", &length));
        let head = all.iter().map(|(name, value)| [name, ": ", value, "\r\n"].concat()).collect::<Vec<_>>().concat();
        let _ = stream.write_all(format!("{method} {path} HTTP/1.1\r\n{head}\r\n{body}").as_bytes());
    }

    /// With the key for everything.
    pub fn all(&self, method: &str, path: &str, body: &Value) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, &[("authorization", &self.bearer(KeyKind::All))], &text)
    }

    pub fn begin(&self, asked: &Value) -> String {
        let begun = self.all("POST", "/api/runs", asked);
        assert_eq!(begun.status, 201, "{}", begun.body);
        begun.json()["run"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    #[expect(clippy::unused_self, reason = "it is said of a house, as all of these are")]
    pub fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(begun.elapsed() < DEADLINE, "it was not seen");
            std::thread::yield_now();
        }
    }

    /// The first question that is open.
    pub fn question(&self) -> Value {
        self.until(|| self.all("GET", "/api/questions", &Value::Null).json()["questions"].get(0).cloned())
    }

    pub fn answer_all(&self) {
        let question = self.question();
        let path = format!("/api/questions/{}", question["digest"].as_str().unwrap());
        assert_eq!(self.all("POST", &path, &json!({"answer": "once"})).status, 200);
    }

    /// A run, once nobody runs it.
    pub fn ended(&self, run: &str) -> Value {
        self.until(|| {
            let shown = self.all("GET", &format!("/api/runs/{run}"), &Value::Null).json();
            (shown["state"] != "running" && shown["own"] == false).then_some(shown)
        })
    }

    pub fn answer_elsewhere(&self, run: &str, digest: &str, by: &str) {
        assert!(self.try_answer_elsewhere(run, digest, by));
    }

    /// As another process does it.
    pub fn try_answer_elsewhere(&self, run: &str, digest: &str, by: &str) -> bool {
        let settings = settings(self.place.path(), &[]);
        let store = settings.state.runs().map_err(|error| error.fact()).unwrap().unwrap();
        let answer = StoredAnswer::of(&Answer::Once, by).unwrap();
        store.answers(&RunId::parse(run).unwrap()).write(&HexDigest::parse(digest).unwrap(), &answer).is_ok()
    }

    pub fn events(&self, run: &str, last: Option<&str>) -> Events {
        let mut stream = self.connect();
        let bearer = self.bearer(KeyKind::Look);
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(last.map(|last| ("last-event-id", last)));
        self.write_request(&mut stream, "GET", &format!("/api/runs/{run}/events"), &headers, "");
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        Events(lines)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Those of somebody at home in the place, with these variables too.
pub fn settings(place: &Path, more: &[(&str, &str)]) -> Settings {
    let home = place.join("home");
    let own = [("LLM_DO_HOME", home.to_str().unwrap()), ("USER", "ann")];
    let variables = Variables::of(own.into_iter().chain(more.iter().copied()));
    let mut settings = Settings::load(variables, Arc::new(|_| {})).map_err(|error| error.fact()).unwrap();
    settings.organisation_rules = place.join("none.toml");
    settings
}

fn plan(place: &Path, bounds: ConnectionBounds) -> WebPlan {
    let projects = ["demo", "plain", "typed"].map(|name| place.join(name));
    WebPlan {
        settings: Arc::new(settings(place, &[])),
        overrides: LaunchOverrides {
            models: ModelChoices::default(),
            python: PythonPlan::default(),
            policy: PolicyOverrides { is_attended: true, ..PolicyOverrides::default() },
            fence: FenceConfig::default(),
            own_files: Vec::new(),
            terms: ProgramTerms::default(),
            created: None,
            trace_parent: None,
        },
        projects: projects.to_vec(),
        consent: Some(Consent::Everything),
        wording: Wording::default(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        public_url: None,
        tls: None,
        is_behind_proxy: false,
        is_read_only: false,
        has_new_keys: false,
        bounds,
    }
}

/// Models of Anthropic's are played by this one.
pub fn ask(plan: &mut WebPlan, fake: &fake_llm::FakeLlm) {
    let place = plan.projects[0].parent().unwrap().to_owned();
    let url = fake.anthropic_url();
    plan.settings = Arc::new(settings(&place, &[("ANTHROPIC_BASE_URL", &url), ("ANTHROPIC_API_KEY", "k")]));
}

/// All that comes until the other side closes.
pub fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is cut off while something is written to it ends with an error.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Reply {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let is_chunked = headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
        Self { status, headers, body: if is_chunked { unchunked(body) } else { body.to_owned() } }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn error(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        text.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    text
}

/// WebServer-sent events, as they come.
pub struct Events(BufReader<TcpStream>);

impl Events {
    /// All frames until one of this name, with it.
    pub fn until(&mut self, name: &str) -> Vec<String> {
        let mut frames = Vec::new();
        let mut frame = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended before `{name}`: {frames:?}");
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() && frame.contains("data: ") {
                frames.push(std::mem::take(&mut frame));
                if frames.last().unwrap().contains(&format!("event: {name}\n")) {
                    return frames;
                }
            } else if ["id: ", "event: ", "data: "].iter().any(|start| line.starts_with(start)) {
                frame.push_str(line);
                frame.push('\n');
            }
        }
    }
}
