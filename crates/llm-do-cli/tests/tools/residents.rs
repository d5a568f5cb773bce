//! Python and local servers behind a fence that their project declares: what they cannot reach, what they can, and that
//! nothing of them is left, on each kernel, as root and as somebody else.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::matrix::{Kernel, User, on};
use crate::support::{Ended, Sandbox, wait};

/// Tries everything, and writes down what it could do.
const PROBE: &str = r#"
import json, os, socket, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ABOVE = os.path.dirname(HERE)

def attempt(deed):
    try:
        deed()
        return "did"
    except OSError:
        return "refused"

def write(path):
    with open(path, "w") as file:
        file.write("x")

def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass

HOLD = '''
import fcntl, os, sys, time
try:
    os.setsid()
except OSError:
    pass
file = open("out/lock", "w")
fcntl.flock(file, fcntl.LOCK_EX)
open("out/locked", "w").close()
time.sleep(600)
'''

def probe(port, wait):
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    report = {
        "secret": attempt(lambda: open(ABOVE + "/secret.txt").read()),
        "hidden": attempt(lambda: open(HERE + "/data/.env").read()),
        "hook": attempt(lambda: write(HERE + "/out/.git/hooks/pre-commit")),
        "agent": attempt(lambda: write(HERE + "/out/kept.worker")),
        "home": attempt(lambda: os.listdir(os.environ["HOME"])),
        "beside": attempt(lambda: write(HERE + "/beside.txt")),
        "above": attempt(lambda: write(ABOVE + "/above.txt")),
        "itself": attempt(lambda: write(HERE + "/probe.py.new")),
        "connect": attempt(lambda: connect(port)),
        "local": attempt(lambda: socket.socket(socket.AF_UNIX).close()),
        "read": attempt(lambda: open(HERE + "/data/in.txt").read()),
        "write": attempt(lambda: write(HERE + "/out/written.txt")),
        "temporary": attempt(lambda: tempfile.TemporaryFile().close()),
        "program": attempt(lambda: subprocess.run(["/bin/ls", "/usr"], check=True, **quiet)),
        "pair": attempt(lambda: socket.socketpair()),
        "variable": os.environ.get("MINE", "none"),
    }
    subprocess.Popen([sys.executable, "-c", HOLD], cwd=HERE, **quiet)
    while not os.path.exists(HERE + "/out/locked"):
        time.sleep(0.01)
    with open(HERE + "/out/report.part", "w") as file:
        json.dump(report, file)
    os.rename(HERE + "/out/report.part", HERE + "/out/report.json")
    while wait:
        time.sleep(1)
    return "done"
"#;

const TOOLS: &str = "
import os
from probe import probe as _probe
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'out', 'imported'), 'w').close()
def probe(port: int, wait: bool) -> str:
    return _probe(port, wait)
TOOLS = [probe]
";

const SERVER: &str = r#"
import json, sys
from probe import probe
SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}, "wait": {"type": "boolean"}}}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "probe", "inputSchema": SCHEMA}]}
    elif message.get("method") == "tools/call":
        result = {"content": [{"type": "text", "text": probe(**message["params"]["arguments"])}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Python,
    Server,
}

const ALL: [(Who, User); 4] =
    [(Who::Python, User::Ours), (Who::Python, User::Another), (Who::Server, User::Ours), (Who::Server, User::Another)];

/// A project in `proj`, and what is none of its business beside it.
struct Scene {
    sandbox: Sandbox,
    listener: TcpListener,
}

impl Scene {
    fn new(who: Who, fence: &Value, wait: bool) -> Self {
        let scene = Self { sandbox: Sandbox::new(), listener: TcpListener::bind("127.0.0.1:0").unwrap() };
        scene.listener.set_nonblocking(true).unwrap();
        let port = scene.listener.local_addr().unwrap().port();
        let script = json!([{"round": 1, "call": [{"probe": {"port": port, "wait": wait}}]}, {"say": "done"}]);
        let uses = if who == Who::Python { "tools: [probe]" } else { "toolsets: [hub]" };
        let worker = format!("---\nname: main\n{uses}\napproval: {{ probe: allow }}\n---\nYou probe.\n");
        for (path, text) in [
            ("secret.txt", "topsecret"),
            ("script.yaml", script.to_string().as_str()),
            ("proj/main.worker", worker.as_str()),
            ("proj/probe.py", PROBE),
            ("proj/tools.py", TOOLS),
            ("proj/server.py", SERVER),
            ("proj/data/in.txt", "hello"),
            ("proj/data/.env", "TOKEN=1"),
            ("proj/out/.keep", ""),
            ("proj/out/.git/hooks/sample", ""),
            ("proj/out/kept.worker", "---\nname: kept\n---\n"),
            ("of-us/notes.txt", "mine"),
            ("of-another/notes.txt", "mine"),
        ] {
            scene.sandbox.file(path, text);
        }
        scene.declare(who, fence);
        scene.open_to_all();
        scene
    }

    fn declare(&self, who: Who, fence: &Value) {
        let mut manifest = json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "env": ["MINE"]});
        match who {
            Who::Python => {
                manifest["python_files"] = json!(["tools.py"]);
                manifest["runtime"] = if fence.is_null() { json!({}) } else { json!({"python_fence": fence}) };
            }
            Who::Server => {
                let mut server = json!({"command": "python3", "args": ["server.py"]});
                if !fence.is_null() {
                    server["fence"] = fence.clone();
                }
                manifest["toolsets"] = json!({"hub": {"mcp": server}});
            }
        }
        self.sandbox.file("proj/project.json", &manifest.to_string());
    }

    /// Nothing but the fence is in the way.
    fn open_to_all(&self) {
        let deeper = ["proj/out/.git/hooks", "proj/out/kept.worker"];
        for path in ["", "proj", "proj/out", "proj/data", "of-us", "of-another"].iter().chain(&deeper) {
            fs::set_permissions(self.sandbox.path().join(path), fs::Permissions::from_mode(0o777)).unwrap();
        }
    }

    fn command(&self, user: User, flags: &[&str]) -> Command {
        let arguments = [&["run", "proj", "hi", "-m", "scripted:script.yaml", "-q", "--trust"], flags].concat();
        let mut command = match user {
            User::Ours => self.sandbox.command(&arguments, &[]),
            User::Another => self.sandbox.unprivileged(&arguments),
        };
        self.open_to_all();
        // Whoever looked first may have been somebody else.
        let _ = fs::remove_file(self.sandbox.path().join("proj/out/imported"));
        let home = if let User::Ours = user { "of-us" } else { "of-another" };
        command.env("HOME", self.sandbox.path().join(home)).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        // One that is killed leaves its private directory behind.
        command.env("TMPDIR", self.sandbox.path());
        command.env("MINE", "passed").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, user: User, kernel: Kernel, flags: &[&str]) -> Ended {
        on(kernel, || wait(&mut self.command(user, flags)))
    }

    fn has(&self, path: &str) -> bool {
        self.sandbox.path().join(path).exists()
    }

    fn report(&self) -> Value {
        let text = fs::read_to_string(self.sandbox.path().join("proj/out/report.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// What the program started holds a lock for as long as it lives.
    #[track_caller]
    fn check_gone(&self) {
        assert!(self.has("proj/out/locked"));
        let (sender, receiver) = mpsc::channel();
        let file = File::open(self.sandbox.path().join("proj/out/lock")).unwrap();
        std::thread::spawn(move || sender.send(file.lock().is_ok()));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(true), "something still runs");
    }

    fn fence(&self, kernel: Kernel, flags: &[&str]) -> String {
        let mut command =
            self.sandbox.command(&[&["check", "proj", "-m", "scripted:script.yaml"], flags].concat(), &[]);
        command.env("HOME", self.sandbox.path().join("of-us")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = on(kernel, || wait(&mut command));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let said = |line: &str| line.strip_prefix("python ").or(line.strip_prefix("server ")).map(str::to_owned);
        ended.stdout.lines().find_map(said).unwrap().trim().to_owned()
    }
}

fn reaching(network: bool) -> Value {
    json!({"read": ["data"], "write": ["out"], "network": network})
}

const REFUSED: [&str; 5] = ["secret", "home", "beside", "itself", "local"];
const HONEST: [&str; 5] = ["read", "write", "temporary", "program", "pair"];

#[track_caller]
fn check(scene: &Scene, ended: &Ended, network: bool, is_full: bool) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{ended:?}");
    let report = scene.report();
    for deed in REFUSED {
        assert_eq!(report[deed], "refused", "{deed}: {report}");
    }
    for deed in HONEST {
        assert_eq!(report[deed], "did", "{deed}: {report}");
    }
    assert_eq!(report["connect"], if network { "did" } else { "refused" }, "{report}");
    assert_eq!(scene.listener.accept().is_ok(), network);
    for deed in ["hidden", "hook", "agent"] {
        assert_eq!(report[deed], if is_full { "refused" } else { "did" }, "{deed}: {report}");
    }
    assert_eq!(report["variable"], "passed");
    for path in ["above.txt", "proj/beside.txt", "proj/probe.py.new"] {
        assert!(!scene.has(path), "{path}");
    }
    assert!(scene.has("proj/out/written.txt"));
    scene.check_gone();
}

#[test]
fn without_a_fence_a_program_has_the_rights_of_its_user() {
    for (who, user) in ALL {
        let scene = Scene::new(who, &Value::Null, false);
        let ended = scene.run(user, Kernel::AsItIs, &[]);
        assert_eq!(ended.code, Some(0), "{who:?} {ended:?}");
        let report = scene.report();
        for deed in REFUSED.iter().chain(&HONEST).chain(&["connect", "hidden", "hook", "agent"]) {
            assert_eq!(report[deed], "did", "{who:?} {deed}: {report}");
        }
        assert!(scene.fence(Kernel::WithoutLandlock, &[]).ends_with("runs with your rights"));
    }
}

#[test]
fn behind_the_best_fence_it_reaches_what_is_declared() {
    for (who, user) in ALL {
        for network in [false, true] {
            let scene = Scene::new(who, &reaching(network), false);
            let fence = scene.fence(Kernel::AsItIs, &["--fence", "thin"]);
            if fence.contains("is not started") {
                continue;
            }
            let ended = scene.run(user, Kernel::AsItIs, &["--fence", "thin"]);
            check(&scene, &ended, network, fence.contains("runs behind the full fence"));
        }
    }
}

#[test]
fn behind_the_thin_fence_only_if_somebody_accepts_it() {
    for (who, user) in ALL {
        let scene = Scene::new(who, &reaching(false), false);
        let accepted = scene.fence(Kernel::WithoutNamespaces, &["--fence", "thin"]);
        let refused = scene.run(user, Kernel::WithoutNamespaces, &[]);
        assert_eq!(refused.code, Some(4), "{who:?} {refused:?}");
        assert!(!scene.has("proj/out/report.json") && !scene.has("proj/out/imported"), "{who:?}");
        if accepted.contains("is not started") {
            continue;
        }
        assert!(accepted.contains("runs behind the thin fence: reads data; writes out; no network"), "{accepted}");
        assert!(refused.stderr.contains("is not started: only the thin fence can be had here"), "{refused:?}");
        assert!(refused.stderr.contains("hint: `--fence thin` or `LLM_DO_FENCE=thin` accepts it"), "{refused:?}");
        let ended = scene.run(user, Kernel::WithoutNamespaces, &["--fence", "thin"]);
        check(&scene, &ended, false, false);
    }
}

#[test]
fn where_there_is_no_fence_it_is_not_started() {
    for (who, user) in ALL {
        let scene = Scene::new(who, &reaching(false), false);
        let ended = scene.run(user, Kernel::WithoutLandlock, &["--fence", "thin"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{who:?} {ended:?}");
        assert!(ended.stderr.contains("is not started: there is no fence here"), "{ended:?}");
        assert!(!scene.has("proj/out/report.json") && !scene.has("proj/out/imported"), "{who:?}");
        let said = scene.fence(Kernel::WithoutLandlock, &[]);
        assert!(said.contains("is not started: there is no fence here: "), "{said}");
        assert!(!scene.has("proj/out/imported"), "check does not start it either");
    }
}

#[test]
fn nothing_outlives_a_program_that_is_killed() {
    for (who, user) in ALL {
        for kernel in [Kernel::AsItIs, Kernel::WithoutNamespaces] {
            let scene = Scene::new(who, &reaching(false), true);
            if scene.fence(kernel, &["--fence", "thin"]).contains("is not started") {
                continue;
            }
            let mut command = scene.command(user, &["--fence", "thin"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut running = on(kernel, || command.spawn().unwrap());
            let began = Instant::now();
            while !scene.has("proj/out/report.json") {
                assert!(began.elapsed() < Duration::from_mins(1) && running.try_wait().unwrap().is_none(), "{who:?}");
                std::thread::yield_now();
            }
            running.kill().unwrap();
            running.wait().unwrap();
            scene.check_gone();
        }
    }
}

/// Its private directory lies where the user wants temporary files. What somebody who was killed left there is removed by
/// the next one, once it is old, and not as long as it is used.
#[test]
fn what_is_left_of_one_that_was_killed_is_removed_by_the_next() {
    for (who, user) in ALL {
        let scene = Scene::new(who, &reaching(false), true);
        if scene.fence(Kernel::AsItIs, &["--fence", "thin"]).contains("is not started") {
            continue;
        }
        let own = scene.sandbox.path().join("temporary");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        let left = || fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let start = || {
            let _ = fs::remove_file(scene.sandbox.path().join("proj/out/report.json"));
            let mut command = scene.command(user, &["--fence", "thin"]);
            let mut running = command.env("TMPDIR", &own).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let began = Instant::now();
            while !scene.has("proj/out/report.json") {
                assert!(began.elapsed() < Duration::from_mins(1) && running.try_wait().unwrap().is_none(), "{who:?}");
                std::thread::yield_now();
            }
            running
        };
        let age = |path: &Path| {
            File::open(path).unwrap().set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
        };
        let mut running = start();
        let [first] = <[PathBuf; 1]>::try_from(left()).unwrap();
        age(&first);
        let mut other = start();
        assert_eq!(left().len(), 2, "{who:?}: one that is used stays");
        running.kill().unwrap();
        running.wait().unwrap();
        assert!(first.exists(), "{who:?}");
        age(&first);
        let mut next = start();
        assert!(!first.exists() && left().len() == 2, "{who:?} {:?}", left());
        for running in [&mut other, &mut next] {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }
}

#[test]
fn another_fence_is_another_trust() {
    for who in [Who::Python, Who::Server] {
        let scene = Scene::new(who, &reaching(false), false);
        if scene.fence(Kernel::AsItIs, &["--fence", "thin"]).contains("is not started") {
            continue;
        }
        let again = || {
            let mut command = scene.command(User::Ours, &["--fence", "thin"]);
            let kept: Vec<_> = command.get_args().filter(|word| *word != "--trust").map(ToOwned::to_owned).collect();
            let mut untrusted = Command::new(command.get_program());
            untrusted.args(kept).current_dir(scene.sandbox.path()).env_clear();
            untrusted.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            untrusted.env_remove("LLM_DO_TRUST").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command = untrusted;
            wait(&mut command)
        };
        assert_eq!(scene.run(User::Ours, Kernel::AsItIs, &["--fence", "thin"]).code, Some(0), "{who:?}");
        assert_eq!(again().code, Some(0), "{who:?}: the same is trusted");
        for wider in [json!({"read": ["data", "/"], "write": ["out"]}), reaching(true), Value::Null] {
            scene.declare(who, &wider);
            let ended = again();
            assert_eq!(ended.code, Some(4), "{who:?} {wider} {ended:?}");
            assert!(!scene.has("proj/out/imported"), "{who:?} {wider}");
        }
    }
}

#[test]
fn a_root_is_what_it_says() {
    for who in [Who::Python, Who::Server] {
        for (fence, fact) in [
            (json!({"read": ["leak"]}), "`leak` is a link to "),
            (json!({"write": ["leak"]}), "`leak` is a link to "),
            (json!({"write": ["../out"]}), "`../out` leads outside the project"),
            (json!({"reads": ["data"]}), "unknown key `reads` in a fence"),
            (json!({"read": ["/"]}), "`/` is too wide"),
            (json!({"write": ["/proc"]}), "`/proc` is too wide"),
        ] {
            let scene = Scene::new(who, &fence, false);
            symlink(scene.sandbox.path(), scene.sandbox.path().join("proj/leak")).unwrap();
            let ended = scene.run(User::Ours, Kernel::AsItIs, &["--fence", "thin"]);
            assert_eq!(ended.code, Some(2), "{who:?} {fence} {ended:?}");
            assert!(ended.stderr.contains(fact), "{fence} {ended:?}");
            assert!(!scene.has("proj/out/imported") && !scene.has("proj/out/report.json"), "{who:?} {fence}");
        }
    }
}
