//! The server, workers and callers of one test, on ports of their own, in a directory that goes with it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parts::{command, parts, program, repository};
use tempfile::TempDir;

/// What a project of a test does.
#[derive(Clone, Copy)]
pub enum Project {
    /// The example that asks before it pays.
    Refund,
    /// Commands that must not run twice.
    Effects,
}

pub const EFFECTS_WORKER: &str = "---\nname: main\ntoolsets: [marks]\n---\nDo what is said.\n";

const EFFECTS_PROJECT: &str = r#"{
  "version": 1,
  "entry": { "agent": "main" },
  "worker_files": ["main.worker"],
  "toolsets": { "marks": { "shell": { "rules": [{ "pattern": "mktemp", "approval": "allow" }], "default": "block" } } }
}
"#;

/// One reply with nine calls, and an answer. A name says whose effect it is.
fn effects_script() -> String {
    let mut script = String::new();
    for run in 0..1000 {
        let call = |number: usize| format!("{{ shell: {{ command: \"mktemp done/r{run}-{number}.XXXXXX\" }} }}");
        let calls: Vec<String> = (0..9).map(call).collect();
        script.push_str(&format!("- heard: run {run} begins\n  call: [{}]\n", calls.join(", ")));
    }
    script.push_str("- say: It is done.\n");
    script
}

const KEY: &str = "7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a";
/// So long something may take that has to happen.
const PATIENCE: Duration = Duration::from_mins(2);

pub struct House {
    place: TempDir,
    server: Option<Child>,
    ports: Ports,
    identity: String,
    project: Project,
}

#[derive(Clone, Copy)]
struct Ports {
    ingress: u16,
    admin: u16,
    node: u16,
    worker: u16,
}

/// What a program printed, and how it ended.
#[derive(Debug)]
pub struct Printed {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Printed {
    /// What stands between two texts.
    pub fn after(&self, begin: &str, end: &str) -> String {
        let all = format!("{}{}", self.stdout, self.stderr);
        let found = all.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
        found.unwrap_or_else(|| panic!("`{begin}` in {self:?}")).0.to_owned()
    }
}

fn free_ports() -> Ports {
    let listeners: Vec<TcpListener> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let port = |at: usize| listeners[at].local_addr().unwrap().port();
    Ports { ingress: port(0), admin: port(1), node: port(2), worker: port(3) }
}

impl House {
    pub fn new(project: Project) -> Self {
        let place = TempDir::new().unwrap();
        let ports = free_ports();
        let root = place.path();
        match project {
            Project::Refund => copy(&repository().join("examples/refund"), &root.join("refund")),
            Project::Effects => {
                fs::create_dir(root.join("effects")).unwrap();
                fs::write(root.join("effects/main.worker"), EFFECTS_WORKER).unwrap();
                fs::write(root.join("effects/project.json"), EFFECTS_PROJECT).unwrap();
                fs::write(root.join("effects.yaml"), effects_script()).unwrap();
            }
        }
        fs::create_dir(root.join("done")).unwrap();
        write_identity(&root.join("id.pem"));
        let config = format!(
            "bind-ip = \"127.0.0.1\"\nbind-port = {}\nadvertised-host = \"127.0.0.1\"\nlisten-mode = \"tcp\"\n\
             default-num-partitions = 4\ndisable-telemetry = true\nrocksdb-total-memory-size = \"256 MiB\"\n\
             request-identity-private-key-pem-file = \"{}\"\n[admin]\nbind-port = {}\n[ingress]\nbind-port = {}\n\
             [worker.invoker]\nhttp2-keep-alive-interval = \"500ms\"\nhttp2-keep-alive-timeout = \"500ms\"\n\
             http2-streams-per-connection-limit = 8\n",
            ports.node,
            root.join("id.pem").display(),
            ports.admin,
            ports.ingress
        );
        fs::write(root.join("engine.toml"), config).unwrap();
        let mut house = Self { place, server: None, ports, identity: String::new(), project };
        house.start_server();
        house.identity = house.logged_identity();
        house
    }

    pub fn place(&self) -> &Path {
        self.place.path()
    }

    fn start_server(&mut self) {
        let kind = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
        let processor = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let server =
            parts().join(format!("npm/node_modules/@restatedev/restate-server-{kind}-{processor}/bin/restate-server"));
        let log = fs::File::options().append(true).create(true).open(self.place().join("engine.log")).unwrap();
        let started = Command::new(server)
            .args(["--no-logo", "--node-name", "one", "--config-file"])
            .arg(self.place().join("engine.toml"))
            .arg("--base-dir")
            .arg(self.place().join("engine"))
            .env("NO_COLOR", "1")
            .env("DO_NOT_TRACK", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.server = Some(started.unwrap());
        let (admin, ingress) = (self.ports.admin, self.ports.ingress);
        until("the server is there", || {
            get(admin, "/health").is_some_and(|it| it.0 == 200)
                && get(ingress, "/restate/health").is_some_and(|it| it.0 == 200)
        });
    }

    pub fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        self.start_server();
    }

    fn logged_identity(&self) -> String {
        let log = fs::read_to_string(self.place().join("engine.log")).unwrap();
        let at = log.find("publickeyv1_").unwrap_or_else(|| panic!("no identity in {log}"));
        log[at..].chars().take_while(|it| it.is_ascii_alphanumeric() || *it == '_').collect()
    }

    fn program(&self, url: Option<&str>, key: &str) -> Command {
        let mut command = command(program(), self.place());
        command.env("LLM_DO_HOME", self.place().join("home"));
        if !key.is_empty() {
            command.env("LLM_DO_ENGINE_KEY", key);
        }
        if let Some(url) = url {
            command.env("LLM_DO_ENGINE", url);
        }
        command
    }

    /// A worker beside others at one address. It has said that it serves.
    pub fn worker(&self, number: usize) -> Worker {
        let said = self.place().join(format!("worker-{number}.out"));
        let errors = self.place().join(format!("worker-{number}.err"));
        let errors = fs::File::options().append(true).create(true).open(errors).unwrap();
        let (project, script) = match self.project {
            Project::Refund => ("refund", "scripted:refund/script.yaml"),
            Project::Effects => ("effects", "scripted:effects.yaml"),
        };
        let listen = SocketAddr::from(([127, 0, 0, 1], self.ports.worker)).to_string();
        let mut command = self.program(None, KEY);
        // Nine commands of each run go on at once, and other tests want to go on as well.
        command
            .args(["engine-worker", project, "-m", script, "--trust", "--drain", "10", "--listen", &listen])
            .args(["--concurrency", "4"])
            .args(["--identity-key", &self.identity])
            .args(["--restate", &format!("http://127.0.0.1:{}", self.ports.admin)])
            .stdin(Stdio::null())
            .stdout(fs::File::create(&said).unwrap())
            .stderr(errors);
        let mut child = command.spawn().unwrap();
        until("a worker serves", || {
            if let Some(status) = child.try_wait().unwrap() {
                let errors = fs::read_to_string(self.place().join(format!("worker-{number}.err"))).unwrap();
                panic!("the worker ended: {status}\n{errors}");
            }
            fs::read_to_string(&said).is_ok_and(|text| text.contains("registered as version 1"))
        });
        Worker(child)
    }

    pub fn run(&self, args: &[&str]) -> Printed {
        self.run_as(KEY, args)
    }

    pub fn run_as(&self, key: &str, args: &[&str]) -> Printed {
        printed(self.program(Some(&format!("restate://127.0.0.1:{}", self.ports.ingress)), key).args(args))
    }

    pub fn run_on(&self, url: &str, args: &[&str]) -> Printed {
        printed(self.program(Some(url), KEY).args(args))
    }

    /// The engine's other port, as somebody names it who takes it for the first.
    pub fn admin(&self) -> String {
        format!("restate://127.0.0.1:{}", self.ports.admin)
    }

    /// Starts so many runs, and leaves them alone.
    pub fn start(&self, runs: usize) -> Vec<String> {
        let started: Vec<Child> = (0..runs)
            .map(|run| {
                let url = format!("restate://127.0.0.1:{}", self.ports.ingress);
                let mut command = self.program(Some(&url), KEY);
                command.args(["effects", "-p", "--detach", &format!("run {run} begins")]);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        started
            .into_iter()
            .map(|child| {
                let output = child.wait_with_output().unwrap();
                let text = String::from_utf8(output.stdout).unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                text.trim().to_owned()
            })
            .collect()
    }

    /// How many calls of a run may or may not have happened, as its record tells.
    pub fn interrupted(&self, run: &str) -> usize {
        let shown = self.run(&["runs", "export", run]);
        shown.stdout.matches("may or may not").count()
    }

    /// What the engine says of a run.
    pub fn state(&self, run: &str) -> String {
        let query = format!(
            "{{\"query\":\"select status from sys_invocation where target_service_key = '{run}' and target_handler_name = 'run'\"}}"
        );
        let answer = post(self.ports.admin, "/query", &query, true);
        let value: serde_json::Value = serde_json::from_str(&answer.1).unwrap_or_default();
        value["rows"][0]["status"].as_str().unwrap_or_default().to_owned()
    }

    pub fn post(&self, path: &str, body: &str) -> u16 {
        post(self.ports.ingress, &format!("/{path}"), body, false).0
    }

    /// As somebody does who is not the engine.
    pub fn post_to_worker(&self, path: &str) -> u16 {
        let url = format!("http://127.0.0.1:{}/{path}", self.ports.worker);
        let asked = Command::new("curl")
            .args(["--silent", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}", &url])
            .output()
            .unwrap();
        String::from_utf8(asked.stdout).unwrap().parse().unwrap()
    }

    pub fn files(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.place().join(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Waits for something that has to happen.
pub fn until(what: &str, mut has_happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !has_happened() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Time passes: what is killed next is killed in the middle of something.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A worker, which ends with the test.
pub struct Worker(Child);

impl Worker {
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// It stands still, as on a machine that sleeps.
    pub fn stop(&self) {
        self.signal("-STOP");
    }

    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    /// It is told to end, and ends well.
    pub fn end(&mut self) {
        self.signal("-TERM");
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn printed(command: &mut Command) -> Printed {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry: PathBuf = entry.unwrap().path();
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(entry, target).unwrap();
        }
    }
}

/// A private key as the engine reads it: Ed25519, PKCS 8, PEM.
fn write_identity(path: &Path) {
    use base64::Engine as _;
    let mut der = vec![0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    let mut seed = [0; 32];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut seed).unwrap();
    der.extend_from_slice(&seed);
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    fs::write(path, format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")).unwrap();
}

fn get(port: u16, path: &str) -> Option<(u16, String)> {
    asked(port, &format!("GET {path} HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n"))
}

fn post(port: u16, path: &str, body: &str, as_json: bool) -> (u16, String) {
    let accept = if as_json { "accept: application/json\r\n" } else { "" };
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n{accept}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    asked(port, &request).unwrap_or_default()
}

fn asked(port: u16, request: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let body = if head.to_ascii_lowercase().contains("chunked") { unchunked(body) } else { body.to_owned() };
    Some((head.split(' ').nth(1)?.parse().ok()?, body))
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
