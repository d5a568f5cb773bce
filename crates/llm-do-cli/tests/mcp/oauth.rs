//! Logging in to servers, honest and hostile ones.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::servers::Listening;
use crate::support::{Ended, Sandbox, wait_for_end};
use crate::{calls, project};

const SERVER: &str = include_str!("authorization.py");
/// Opens a page as a browser does: it follows wherever it is sent.
const BROWSER: &str = "import sys, urllib.request\nurllib.request.urlopen(sys.argv[1]).read()\n";

/// There are three ports to come back to, so one login at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended(command: &mut Command) -> Ended {
    crate::support::wait(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

struct Place {
    sandbox: Sandbox,
    server: Listening,
}

impl Place {
    fn new(case: &str) -> Self {
        let sandbox = project("toolsets: [hub]\napproval: { echo: allow }", &json!({}), &calls(&["{ echo: {} }"]));
        sandbox.file("server.py", SERVER).file("browser.py", BROWSER);
        let path = sandbox.path();
        let mut command = Command::new("python3");
        let server = Listening::start(command.arg(path.join("server.py")).arg(case).arg(path.join("log")));
        let manifest = std::fs::read_to_string(path.join("project.json")).unwrap();
        let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
        let url = format!("http://127.0.0.1:{}/mcp", server.port);
        manifest["toolsets"] = json!({"hub": {"mcp": {"url": url, "auth": "oauth"}}});
        sandbox.file("project.json", &manifest.to_string());
        Self { sandbox, server }
    }

    fn command(&self, words: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap();
        let variables = [("PATH", path.as_str()), ("BROWSER", "python3 browser.py"), ("LLM_DO_TRUST", "1")];
        self.sandbox.command(words, &variables)
    }

    fn ran(&self, words: &[&str]) -> Ended {
        ended(&mut self.command(words))
    }

    fn login(&self) -> Ended {
        let _turn = turn();
        self.ran(&["mcp", "login", "hub", "."])
    }

    fn run(&self) -> Command {
        self.command(&["run", ".", "hi", "-m", "scripted:script.yaml"])
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.sandbox.path().join("log")).unwrap_or_default()
    }

    /// The logins that are kept, with the modes of their files.
    fn kept(&self) -> Vec<(Value, u32)> {
        let Ok(entries) = std::fs::read_dir(self.sandbox.state().join("oauth")) else { return Vec::new() };
        let files =
            entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "json"));
        let read = |path: std::path::PathBuf| {
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            (serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap(), mode)
        };
        files.map(read).collect()
    }

    /// No token that was given is good any more.
    fn expire(&self) {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.server.port)).unwrap();
        let body = r#"{"method":"expire"}"#;
        let head =
            format!("POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
}

#[test]
fn a_person_logs_in_once_and_runs_use_it() {
    let place = Place::new("good");
    let before = place.ran(&["run", ".", "hi", "-m", "scripted:script.yaml"]);
    assert_eq!(before.code, Some(4), "{}", before.stderr);
    let at = format!("error: the MCP server `hub` wants a login at http://127.0.0.1:{}\n", place.server.port);
    assert!(before.stderr.contains(&at), "{}", before.stderr);
    assert!(before.stderr.contains("llm-do mcp login hub"), "{}", before.stderr);
    let listed = place.ran(&["mcp", "."]);
    assert!(listed.stdout.contains("a person logs in: nobody has logged in"), "{}", listed.stdout);
    let login = place.login();
    assert_eq!((login.code, login.stdout.as_str()), (Some(0), ""), "{}", login.stderr);
    assert!(login.stderr.contains("(waiting on 127.0.0.1:1764"), "{}", login.stderr);
    // The run goes on that wanted it; what the server says of the token is not told.
    let id = place.sandbox.runs().pop().unwrap();
    let after = place.ran(&["resume", &id]);
    assert_eq!(after.code, Some(0), "{}", after.stderr);
    assert!(after.stdout.starts_with("you are ") && !after.stdout.contains("nobody-may-see"), "{}", after.stdout);
    let kept = place.kept();
    assert_eq!((kept.len(), kept[0].1), (1, 0o600));
    let journal = std::fs::read_dir(place.sandbox.state().join("runs").join(&id)).unwrap();
    for file in journal.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let text = std::fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("nobody-may-see"), "{}", file.display());
    }
    let checked = place.ran(&["check", "."]);
    assert!(
        checked.stdout.contains("login    `hub` a person logs in: logged in at http://127.0.0.1"),
        "{}",
        checked.stdout
    );
    let gone = place.ran(&["mcp", "logout", "hub", "."]);
    assert_eq!((gone.code, gone.stderr.as_str()), (Some(0), "logged out of `hub`\n"));
    assert_eq!(place.kept(), []);
    assert_eq!(place.ran(&["mcp", "login", "hob", "."]).code, Some(2));
}

#[test]
fn what_a_login_takes_is_what_trust_is_asked_for() {
    let auth = |auth: Value| json!({"hub": {"mcp": {"url": "https://hub.example.com/mcp", "auth": auth}}});
    let listed = |auth_keys: Value| {
        let sandbox = project("toolsets: [hub]", &auth(auth_keys), "- say: x");
        let mut command = sandbox.command(&["check", ".", "--json", "-m", "scripted:script.yaml"], &[]);
        let ended = ended(command.env_remove("LLM_DO_TRUST"));
        let checked: Value = serde_json::from_str(&ended.stdout).unwrap();
        let items = checked["trust"]["items"].as_array().unwrap().iter();
        let said: Vec<String> = items.map(Value::to_string).collect();
        (said.join("\n"), checked["trust"]["digest"].clone())
    };
    let (said, oauth) = listed(json!("oauth"));
    assert!(said.contains("https://hub.example.com/mcp, with your login there"), "{said}");
    let grant = |secret: Value| json!({"grant": "client_credentials", "client_id": "x", "client_secret": secret});
    let (said, variable) = listed(grant(json!({"from_env": "HUB_SECRET"})));
    assert!(
        said.contains("logged in to by itself") && said.contains("HUB_SECRET, sent to the authorization"),
        "{said}"
    );
    let (said, command) = listed(grant(json!({"command": ["pass", "show", "hub"]})));
    assert!(said.contains("\"run\"") && said.contains("pass") && said.contains("which prints a secret"), "{said}");
    let (_, other) = listed(grant(json!({"command": ["pass", "show", "all"]})));
    let digests = [oauth, variable, command, other];
    for (index, digest) in digests.iter().enumerate() {
        assert!(!digests[..index].contains(digest), "each is agreed to for itself");
    }
}

#[test]
fn without_a_browser_the_address_is_typed() {
    let place = Place::new("good");
    let mut child = place.command(&["mcp", "login", "hub", ".", "--no-browser"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stderr, mut said) = (child.stderr.take().unwrap(), Vec::new());
    while !String::from_utf8_lossy(&said).contains("where you land: ") {
        let mut some = [0; 4096];
        let read = stderr.read(&mut some).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&some[..read]);
    }
    let said = String::from_utf8(said).unwrap();
    let address = said.lines().next().unwrap().strip_prefix("open ").unwrap();
    // As a browser on another machine, which lands where nobody listens.
    let follow = "import sys, urllib.request, urllib.error\n\
        class Stay(urllib.request.HTTPRedirectHandler):\n    def redirect_request(self, *words): return None\n\
        try: urllib.request.build_opener(Stay).open(sys.argv[1])\n\
        except urllib.error.HTTPError as error: print(error.headers['location'])\n";
    let landed = Command::new("python3").args(["-c", follow, address]).output().unwrap();
    child.stdin.take().unwrap().write_all(&landed.stdout).unwrap();
    assert_eq!(wait_for_end(&mut child), Some(0));
    assert_eq!(place.kept().len(), 1);
    // Another state is another login.
    let mut other = place.command(&["mcp", "login", "hub", ".", "--no-browser"]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    other.stdin.take().unwrap().write_all(&landed.stdout).unwrap();
    assert_eq!(wait_for_end(&mut other), Some(4));
}

/// What each does wrong, and how the login ends: 3 for what is against the rules, 4 for what the person did not do.
const HOSTILE: &[(&str, i32)] = &[
    ("challenge_file", 3),
    ("resource_host", 3),
    ("resource_public", 3),
    ("resource_path", 3),
    ("resource_sibling", 3),
    ("resource_scheme", 3),
    ("resource_query", 3),
    ("resource_empty", 3),
    ("resource_huge", 3),
    ("resource_moved", 3),
    ("resource_broken", 3),
    ("resource_gone", 3),
    ("resource_words", 3),
    ("issuer_none", 3),
    ("issuer_plain", 3),
    ("issuer_script", 3),
    ("issuer_user", 3),
    ("issuer_file", 3),
    ("issuer_number", 3),
    ("issuer_huge", 3),
    ("issuer_moved", 3),
    ("issuer_gone", 3),
    ("issuer_words", 3),
    ("other_issuer", 3),
    ("other_slash", 3),
    ("other_case", 3),
    ("other_name", 3),
    ("pkce_plain", 3),
    ("pkce_none", 3),
    ("token_plain", 3),
    ("token_file", 3),
    ("page_script", 3),
    ("page_plain", 3),
    ("page_none", 3),
    ("register_plain", 3),
    ("register_none", 3),
    ("register_refused", 3),
    ("register_words", 3),
    ("register_nobody", 3),
    ("register_moved", 3),
    ("iss_wrong", 3),
    ("iss_slash", 3),
    ("iss_missing", 3),
    ("declined", 4),
    ("no_code", 3),
    ("empty_code", 3),
    ("token_mac", 3),
    ("token_line", 3),
    ("token_number", 3),
    ("token_huge", 3),
    ("token_moved", 3),
    ("token_refused", 3),
    ("token_words", 3),
];

#[test]
fn no_hostile_authorization_server_gets_anything_or_anybody_in() {
    for (case, code) in HOSTILE {
        let place = Place::new(case);
        let login = place.login();
        assert_eq!(login.code, Some(*code), "{case}: {}", login.stderr);
        assert!(login.stderr.contains("error: "), "{case}: {}", login.stderr);
        let log = place.log();
        assert!(!log.contains("evil"), "{case}: it was led astray:\n{log}");
        // What is wrong before the code is exchanged is seen before that.
        let is_late = case.starts_with("token_") && !["token_plain", "token_file"].contains(case);
        assert_eq!(log.contains("token authorization_code"), is_late, "{case}:\n{log}");
        assert_eq!(place.kept(), [], "{case}");
        assert!(!login.stderr.contains("nobody-may-see"), "{case}: {}", login.stderr);
    }
    assert!(HOSTILE.len() >= 40);
}

#[test]
fn of_twenty_processes_with_one_expired_token_one_renews_it() {
    let place = Place::new("good_slow");
    assert_eq!(place.login().code, Some(0));
    place.expire();
    let begin = |_| place.run().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let runs: Vec<_> = (0..20).map(begin).collect();
    for mut run in runs {
        let mut said = String::new();
        run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(wait_for_end(&mut run), Some(0), "{said}");
    }
    let log = place.log();
    assert_eq!(log.matches("token refresh_token").count(), 1, "{log}");
    assert_eq!(log.matches("token authorization_code").count(), 1, "{log}");
    assert_eq!(place.kept()[0].0["generation"], 2);
}

/// Killed after each request that the servers have heard, while a token is renewed.
#[test]
fn killed_while_it_renews_the_login_is_whole_and_the_next_run_is_let_in() {
    let place = Place::new("good_slow");
    assert_eq!(place.login().code, Some(0));
    for point in 0..20 {
        place.expire();
        let already = place.log().lines().count();
        let mut run = place.run().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while place.log().lines().count() < already + 1 + point % 5 && run.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_mins(1));
            std::thread::yield_now();
        }
        let _ = run.kill();
        let _ = run.wait();
        let kept = place.kept();
        assert_eq!((kept.len(), kept[0].1), (1, 0o600), "point {point}");
        let next = ended(&mut place.run());
        assert_eq!(next.code, Some(0), "point {point}: {}", next.stderr);
    }
}

#[test]
fn who_is_refused_a_renewal_logs_in_again_and_keeps_the_client() {
    let place = Place::new("good");
    assert_eq!(place.login().code, Some(0));
    let file = place.sandbox.state().join("oauth");
    let path = std::fs::read_dir(&file)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|it| it == "json"))
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("refresh-token", "another-token")).unwrap();
    place.expire();
    let run = ended(&mut place.run());
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    let kept = place.kept();
    assert_eq!((&kept[0].0["tokens"], &kept[0].0["client"]["id"]), (&Value::Null, &json!("client")));
    let registered = place.log().matches("POST /register").count();
    assert_eq!(place.login().code, Some(0));
    assert_eq!(place.log().matches("POST /register").count(), registered, "it is registered already");
    assert_eq!(ended(&mut place.run()).code, Some(0));
}
