//! `llm-do web` as somebody starts it: what its flags mean, what it refuses before it serves anything, and how it ends. What it
//! serves is tested where the server is.
#![allow(clippy::unwrap_used, reason = "the whole file is a test, its helpers included")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::Sandbox;

/// A server that has said where it is.
struct Served {
    child: Child,
    /// With the key behind its `#`.
    address: String,
}

impl Served {
    fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let arguments = [&["web", "--no-open"], arguments].concat();
        let mut command = sandbox.command(&arguments, &[]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        if address.is_empty() {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("nothing is served: {why}");
        }
        Self { child, address: address.trim().to_owned() }
    }

    /// Where it listens, and the key.
    fn parts(&self) -> (&str, &str) {
        self.address.strip_prefix("http://").unwrap().split_once("/#k=").unwrap()
    }

    /// The status of a request with this key.
    fn status(&self, method: &str, path: &str, key: &str) -> u16 {
        let (host, _) = self.parts();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Its exit code after a signal, and what it complained of.
    fn ends(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        (self.child.wait().unwrap().code(), complaints)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("desk/main.worker", "---\nname: main\nmodel: scripted:script.yaml\n---\nAnswer.");
    sandbox.file("desk/script.yaml", "- say: Yes.\n");
    sandbox
}

#[test]
fn it_says_where_it_is_and_serves_whoever_has_the_key_until_a_signal() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sandbox = project();
        let served = Served::start(&sandbox, &["desk", "--listen", "127.0.0.1:0"]);
        let (_, key) = served.parts();
        let projects = served.status("GET", "/api/projects", key);
        assert_eq!((projects, served.status("GET", "/api/projects", &"0".repeat(64))), (200, 401));
        let (ended, complaints) = served.ends(signal);
        assert_eq!(ended, Some(code), "{complaints}");
        assert!(complaints.starts_with("other keys: ") && complaints.contains("web/look (looks only)"), "{complaints}");
    }
}

#[test]
fn without_an_address_it_takes_one_of_ten_ports() {
    let sandbox = project();
    // Somebody else may have some of them, and another one is taken then.
    let _taken = TcpListener::bind("127.0.0.1:7700");
    let served = Served::start(&sandbox, &[]);
    let port: u16 = served.parts().0.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
    assert!((7701..=7709).contains(&port), "{port}");
}

#[test]
fn one_that_only_shows_opens_with_its_key_alone() {
    let sandbox = project();
    let of = |name: &str| std::fs::read_to_string(sandbox.state().join("web").join(name)).unwrap().trim().to_owned();
    let served = Served::start(&sandbox, &["desk", "--listen", "127.0.0.1:0", "--read-only"]);
    let (_, key) = served.parts();
    assert_eq!(key, of("look"));
    assert_eq!((served.status("GET", "/api/runs", key), served.status("POST", "/api/runs", key)), (200, 403));
    assert_eq!(served.status("GET", "/v1/models", &of("ask")), 403);
    let (_, complaints) = served.ends(Signal::INT);
    assert!(complaints.starts_with("this server only shows") && !complaints.contains("/v1"), "{complaints}");
}

#[test]
fn new_keys_take_the_place_of_the_old_ones() {
    let sandbox = project();
    let old = Served::start(&sandbox, &["--listen", "127.0.0.1:0"]).parts().1.to_owned();
    let again = Served::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    assert_eq!(again.parts().1, old, "they stay as long as nobody wants others");
    let served = Served::start(&sandbox, &["--listen", "127.0.0.1:0", "--new-keys"]);
    let (_, new) = served.parts();
    assert_ne!(new, old);
    assert_eq!((served.status("GET", "/api/me", new), served.status("GET", "/api/me", &old)), (200, 401));
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_is() {
    let sandbox = project();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    sandbox.file("other/desk/main.worker", "---\nname: main\n---\nAnswer.");
    for (arguments, words) in [
        (&["--listen", &taken] as &[&str], "nobody can listen at"),
        (&["--listen", "0.0.0.0:0"], "is reached by others, and so must be named and confidential"),
        (&["--listen", "0.0.0.0:0", "--public-url", "https://box.example"], "must be named and confidential"),
        (&["--listen", "0.0.0.0:0", "--public-url", "http://box.example", "--behind-proxy"], "is not confidential"),
        (&["--public-url", "box.example", "--behind-proxy"], "is no address of a page"),
        (&["--behind-proxy"], "--public-url"),
        (&["--tls-cert", "cert.pem"], "--tls-key"),
        (&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], "the certificate cannot be used: cert.pem"),
        (&["nowhere"], "no such project: `nowhere`"),
        (&["desk", "other/desk"], "two projects are called `desk`"),
    ] {
        let ended = sandbox.run(&[&["web", "--no-open"], arguments].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn a_project_that_is_not_trusted_is_not_served() {
    let sandbox = project();
    let project =
        r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "python_files": ["tools.py"]}"#;
    sandbox.file("desk/project.json", project).file("desk/tools.py", "TOOLS = []\n");
    let arguments = ["web", "desk", "--no-open", "--listen", "127.0.0.1:0"];
    let untrusted = |arguments: &[&str]| {
        let mut command = sandbox.command(arguments, &[]);
        support::wait(command.env_remove("LLM_DO_TRUST").stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let ended = untrusted(&arguments);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("tools.py"), "{}", ended.stderr);
    assert!(ended.stderr.contains("`llm-do check desk --trust` trusts it as it is now"), "{}", ended.stderr);
    let trusted = untrusted(&["check", "desk", "--trust"]);
    assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
    let served = Served::start(&sandbox, &["desk", "--listen", "127.0.0.1:0"]);
    assert_eq!(served.status("GET", "/api/projects/desk/check", served.parts().1), 200);
}
