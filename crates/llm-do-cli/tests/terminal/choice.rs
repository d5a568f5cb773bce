//! A model is chosen at the terminal where nothing says which one is asked.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use fake_llm::{FakeLlm, FakeReply, FakeScript};

use crate::session::KEY;
use crate::support::Sandbox;
use crate::terminal::Terminal;

const WORKER: &str = "---\nname: main\n---\nAnswer.\n";

/// A server on this machine that says once which models it has.
fn listing(models: &str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = models.to_owned();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    (address, served)
}

#[test]
fn a_model_is_chosen_by_its_number_and_kept() {
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", WORKER);
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Chosen.")).reply(FakeReply::text("Again.")));
    let (address, served) = listing(r#"{"data": [{"id": "qwen3:8b"}, {"id": "bad name"}, {"id": "gemma"}]}"#);
    let (url, variables) =
        (fake.openai_url(), |host: &str| [("OPENAI_API_KEY", KEY.to_owned()), ("OLLAMA_HOST", host.to_owned())]);
    let start = |host: &str| {
        let mut command = sandbox.command(&["main.worker", "hi"], &[("OPENAI_BASE_URL", &url)]);
        command.envs(variables(host));
        Terminal::start(command)
    };
    let terminal = start(&address);
    terminal.expect("Which one? 1–3, Enter for none:").press("7\n");
    terminal.expect_written("Which one? 1–3, Enter for none:", 2).press("1\n");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let list = "main has no model yet. These can be asked now:\n   1  openai:gpt-5-mini  key in OPENAI_API_KEY\n   2  \
                ollama:qwen3:8b    on this machine\n   3  ollama:gemma       on this machine\n";
    assert!(left.screen.starts_with(list), "{}", left.screen);
    assert!(left.screen.contains("Chosen."), "{}", left.screen);
    assert!(served.join().unwrap().starts_with("GET /v1/models "));
    let config = std::fs::read_to_string(sandbox.path().join(".config/llm-do/config.toml")).unwrap();
    assert_eq!(config, "model = \"openai:gpt-5-mini\"\n");
    // The next run knows it, and looks for no server.
    let left = start("127.0.0.1:1").left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(left.screen.contains("Again.") && !left.screen.contains("Which one?"), "{}", left.screen);
}

#[test]
fn nothing_is_written_where_nothing_is_chosen() {
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", WORKER);
    let mut command = sandbox.command(&["main.worker", "hi"], &[("GROQ_API_KEY", KEY)]);
    command.env("OLLAMA_HOST", "127.0.0.1:1");
    let terminal = Terminal::start(command);
    terminal.expect("Which one? 1, Enter for none:").press("\n");
    let left = terminal.left();
    assert_eq!(left.code, Some(2), "{}", left.screen);
    assert!(left.screen.contains("hint: `llm-do models --use groq:"), "{}", left.screen);
    assert!(!sandbox.path().join(".config/llm-do/config.toml").exists());
    // Without anything that could be asked, nobody is asked which.
    let mut command = sandbox.command(&["main.worker", "hi"], &[]);
    command.env("OLLAMA_HOST", "127.0.0.1:1");
    let left = Terminal::start(command).left();
    assert_eq!(left.code, Some(2), "{}", left.screen);
    assert!(left.screen.contains("llm-do new demo --template demo && llm-do demo"), "{}", left.screen);
}

#[test]
fn a_project_that_nothing_is_said_to_is_talked_to() {
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", WORKER).file("s.yaml", "- say: 'You said {{ heard }}'\n");
    let terminal = Terminal::start(sandbox.command(&["main.worker", "-m", "scripted:s.yaml"], &[]));
    terminal.expect("> ").press("hello\r");
    terminal.expect("You said hello").press("\u{4}");
    assert_eq!(terminal.left().code, Some(0));
    // What is to be said is in the manifest, or has to be typed another way.
    let manifest =
        r#"{"version": 1, "entry": {"agent": "main", "input": "of the manifest"}, "worker_files": ["main.worker"]}"#;
    sandbox.file("project.json", manifest);
    let left = Terminal::start(sandbox.command(&[".", "-m", "scripted:s.yaml"], &[])).left();
    assert!(left.code == Some(0) && left.screen.contains("You said of the manifest"), "{}", left.screen);
    sandbox
        .file("typed.worker", "---\nname: typed\nschema_in: {type: object, properties: {a: {type: string}}}\n---\nx\n");
    for arguments in [&["typed.worker"][..], &["main.worker", "-p"], &["main.worker", "--no-stdin"]] {
        let left = Terminal::start(sandbox.command(&[arguments, &["-m", "scripted:s.yaml"]].concat(), &[])).left();
        assert!(left.code == Some(2) && left.screen.contains("error: no input"), "{arguments:?}: {}", left.screen);
    }
}
