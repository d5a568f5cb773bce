//! Whoever is told that a question waits.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Sandbox;
use crate::terminal::Terminal;
use crate::{RUN, questions, short, writer};

const DEADLINE: Duration = Duration::from_mins(2);

fn configured(sandbox: &Sandbox, notify: &str) {
    sandbox.file(".config/llm-do/config.toml", &format!("[notify]\n{notify}\n"));
}

/// The head and the body of one request.
fn received(stream: &mut TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// A server that answers every request like this, and tells what it was asked.
fn server(answer: &'static str) -> (String, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = received(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    (url, requests)
}

const OK: &str = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

#[test]
fn a_command_is_told_at_once_when_nobody_is_there() {
    let sandbox = writer(&["a.txt", "b.txt"]);
    let told = sandbox.path().join("told");
    configured(&sandbox, &format!("command = [\"sh\", \"-c\", \"cat >> '{}'\"]", told.display()));
    let ended = sandbox.run(&RUN);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let open = questions(&sandbox);
    let told = std::fs::read_to_string(told).unwrap();
    let mut objects: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    objects.sort_by_key(|object| object["arguments"]["path"].to_string());
    assert_eq!(objects.len(), 2, "{told}");
    for (object, file) in objects.iter().zip(["a.txt", "b.txt"]) {
        let question = open.iter().find(|open| open["digest"] == object["digest"]).unwrap();
        let run = question["run"].as_str().unwrap();
        assert_eq!(object["run"], run);
        assert_eq!(object["answer"], format!("llm-do inbox approve {run}/{}", short(question)));
        assert_eq!((&object["arguments"]["path"], &object["tool"]), (&file.into(), &"write_file".into()));
        assert_eq!((&object["path"][0], &object["project"]), (&"main".into(), &question["project"]));
        assert_eq!(object["question"], format!("creates {file}: 1 line added"));
    }
    let approve: Vec<&str> = objects[0]["answer"].as_str().unwrap().split(' ').skip(1).collect();
    assert_eq!(sandbox.run(&approve).code, Some(0), "the command that it names answers");
}

#[test]
fn an_address_is_told_with_its_headers_and_without_content_if_that_is_wanted() {
    let sandbox = writer(&["a.txt"]);
    let (url, requests) = server(OK);
    let headers = "headers = { authorization = { from_env = \"HOOK_TOKEN\" }, x-who = \"me\" }";
    configured(&sandbox, &format!("url = \"{url}\"\n{headers}\ncontent = false"));
    let ended = sandbox.run_in(&RUN, &[("HOOK_TOKEN", "Bearer token-0123456789")]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let (head, body) = requests.recv_timeout(DEADLINE).unwrap();
    assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
    for header in ["authorization: Bearer token-0123456789", "x-who: me", "content-type: application/json"] {
        assert!(head.contains(header), "{head}");
    }
    let body: Value = serde_json::from_str(&body).unwrap();
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["answer", "run", "tool"]);
}

#[test]
fn what_cannot_be_told_is_one_line_and_the_run_goes_on_as_it_would() {
    let moved = "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (url, requests) = server(moved);
    let redirect = format!("url = \"{url}\"");
    let header = format!("url = \"{url}\"\nheaders = {{ a = {{ from_env = \"UNSET\" }} }}");
    for (notify, reason) in [
        (redirect.as_str(), "the answer is 302"),
        (header.as_str(), "the variable UNSET is not set"),
        ("url = \"http://127.0.0.1:1/\"", "127.0.0.1:1"),
        ("command = [\"false\"]", "`false` ended with exit status: 1"),
        ("command = [\"/no/such/command\"]", "cannot be started"),
        ("command = [\"sleep\", \"600\"]", "it took longer than 5 seconds"),
    ] {
        let sandbox = writer(&["a.txt"]);
        configured(&sandbox, notify);
        let begun = Instant::now();
        let ended = sandbox.run(&RUN);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("nobody was notified")).collect();
        assert!(matches!(lines[..], [line] if line.contains(reason)), "{notify}: {}", ended.stderr);
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
    assert_eq!(requests.try_iter().count(), 1, "a redirect is not followed");
}

#[test]
fn a_question_at_a_terminal_is_told_after_ten_seconds_and_an_answered_one_never() {
    let sandbox = writer(&["a.txt", "b.txt"]);
    let (url, requests) = server(OK);
    configured(&sandbox, &format!("url = \"{url}\""));
    let terminal = Terminal::start(sandbox.command(&RUN, &[]));
    terminal.expect("approval 1 of 2");
    let begun = Instant::now();
    terminal.answer("y").expect("approval 2 of 2");
    let (_, body) = requests.recv_timeout(DEADLINE).unwrap();
    // The clock of the run began before ours.
    assert!(begun.elapsed() > Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["arguments"]["path"], "b.txt");
    terminal.answer("y");
    assert_eq!(terminal.left().code, Some(0));
    assert_eq!(requests.try_iter().count(), 0);
}

#[test]
fn a_mistake_in_the_configuration_is_named_before_anything_runs() {
    let sandbox = writer(&["a.txt"]);
    for (notify, fact) in [
        ("url = \"http://hooks.example/x\"", "only https goes to other machines"),
        ("command = [\"a\"]\nurl = \"https://a\"", "keep one of them"),
        ("", "needs a `command` or a `url`"),
    ] {
        configured(&sandbox, notify);
        let ended = sandbox.run(&RUN);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(fact), "{}", ended.stderr);
    }
}
