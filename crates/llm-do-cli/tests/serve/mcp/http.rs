//! The same by HTTP: who may come in, and what headers say.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{accept, desk, forms, meta, text};
use crate::support::{Sandbox, wait_for_end};

struct HttpServer {
    child: Child,
    address: String,
    all: String,
    ask: String,
}

struct Answer {
    status: u16,
    headers: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{} {}", self.status, self.body))
    }

    /// The messages of a stream.
    fn messages(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl HttpServer {
    fn start(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.command(&["serve", "--mcp", "desk", "--http", "127.0.0.1:0"], &[]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).unwrap().to_owned();
        let key =
            |name: &str| std::fs::read_to_string(sandbox.state().join("web").join(name)).unwrap().trim().to_owned();
        Self { child, address, all: key("all"), ask: key("ask") }
    }

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = if headers.iter().any(|(name, _)| *name == "Host") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        let head = format!(
            "{method} /mcp HTTP/1.1\r\n{host}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (headers, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = headers.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        Answer { status, headers: headers.to_owned(), body }
    }

    /// A request of the newest revision, with the headers that belong to it.
    fn ask(&self, key: &str, method: &str, mut params: Value, more: &[(&str, &str)]) -> Answer {
        let mut said = meta(&forms());
        if let Some(own) = params["_meta"].as_object() {
            said.as_object_mut().unwrap().extend(own.clone());
        }
        params["_meta"] = said;
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let key = format!("Bearer {key}");
        let mut headers =
            vec![("Authorization", key.as_str()), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        if !name.is_empty() {
            headers.push(("Mcp-Name", &name));
        }
        headers.retain(|(name, _)| !more.iter().any(|(other, _)| name == other));
        headers.extend(more.iter().filter(|(_, value)| !value.is_empty()));
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.send("POST", &headers, &body.to_string())
    }

    fn call(&self, key: &str, input: &str) -> Answer {
        self.ask(key, "tools/call", json!({"name": "main", "arguments": {"input": input}}), &[])
    }

    fn ends(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(wait_for_end(&mut self.child), Some(143));
    }
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&after[..length]);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    whole
}

#[test]
fn only_who_has_a_key_and_names_this_server_comes_in() {
    let sandbox = desk();
    let server = HttpServer::start(&sandbox);
    let look = std::fs::read_to_string(sandbox.state().join("web/look")).unwrap();
    let status = |more: &[(&str, &str)]| server.ask(&server.all, "tools/list", json!({}), more).status;
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&[("Authorization", "")]), 401);
    assert_eq!(status(&[("Authorization", "Bearer 00")]), 401);
    assert_eq!(status(&[("Authorization", &format!("Bearer {}", look.trim()))]), 403);
    assert_eq!(status(&[("Host", "evil.example")]), 421);
    assert_eq!(status(&[("Origin", "https://evil.example")]), 403);
    assert_eq!(status(&[("Origin", &format!("http://{}", server.address))]), 200);
    let key = format!("Bearer {}", server.all);
    assert_eq!(server.send("GET", &[("Authorization", &key)], "").status, 405);
    assert_eq!(server.send("POST", &[("Authorization", &key)], "no json").status, 400);
    assert_eq!(server.send("POST", &[("Authorization", &key)], "[]").status, 400);
    server.ends();
}

#[test]
fn headers_are_held_against_the_body_and_errors_are_those_of_http_too() {
    let sandbox = desk();
    let server = HttpServer::start(&sandbox);
    let asked = |method: &str, params: Value, more: &[(&str, &str)]| {
        let answer = server.ask(&server.all, method, params, more);
        let answered = answer.json();
        assert_eq!(answered["id"], 7);
        (answer.status, answered["error"]["code"].as_i64())
    };
    assert_eq!(asked("tools/list", json!({}), &[]), (200, None));
    assert_eq!(asked("tools/list", json!({}), &[("Mcp-Method", "tools/call")]), (400, Some(-32020)));
    assert_eq!(asked("tools/list", json!({}), &[("MCP-Protocol-Version", "2025-11-25")]), (400, Some(-32020)));
    assert_eq!(asked("tools/list", json!({}), &[("Mcp-Method", "")]), (400, Some(-32020)));
    let call = json!({"name": "reader", "arguments": {"input": "x"}});
    assert_eq!(asked("tools/call", call.clone(), &[]), (200, None));
    assert_eq!(asked("tools/call", call.clone(), &[("Mcp-Name", "main")]), (400, Some(-32020)));
    assert_eq!(asked("tools/call", call, &[("Mcp-Name", "=?base64?cmVhZGVy?=")]), (200, None));
    assert_eq!(asked("initialize", json!({}), &[]), (404, Some(-32601)));
    let half = json!({"_meta": {"io.modelcontextprotocol/clientCapabilities": null}});
    assert_eq!(asked("tools/list", half, &[]), (400, Some(-32602)));
    let key = format!("Bearer {}", server.all);
    let bare = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}).to_string();
    let headers =
        [("Authorization", key.as_str()), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
    let refused = server.send("POST", &headers, &bare);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!(-32602)));
    server.ends();
}

#[test]
fn the_key_for_calls_puts_no_question_to_its_client_and_each_key_has_its_own_calls() {
    let sandbox = desk();
    let server = HttpServer::start(&sandbox);
    let told = server.call(&server.ask, "write it").json();
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert!(text(&told["result"]).contains("llm-do inbox approve"), "{told}");
    let asked = server.call(&server.all, "write that").json()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let retry = super::Server::retry("main", "write that", &asked, &accept(&json!({"answer": "once"})));
    let other = server.ask(&server.ask, "tools/call", retry.clone(), &[]).json();
    assert_eq!(other["error"]["code"], -32602, "{other}");
    let done = server.ask(&server.all, "tools/call", retry, &[]).json();
    assert_eq!(done["result"]["isError"], false, "{done}");
    server.ends();
}

#[test]
fn progress_comes_in_a_stream_before_the_result() {
    let sandbox = desk();
    let server = HttpServer::start(&sandbox);
    let params = json!({"name": "reader", "arguments": {"input": "x"}, "_meta": {"progressToken": 5}});
    let answer = server.ask(&server.all, "tools/call", params, &[]);
    assert!(answer.headers.to_ascii_lowercase().contains("text/event-stream"), "{}", answer.headers);
    let messages = answer.messages();
    let (last, before) = messages.split_last().unwrap();
    assert!(!before.is_empty() && before.iter().all(|it| it["method"] == "notifications/progress"), "{messages:?}");
    assert_eq!((&last["id"], text(&last["result"])), (&json!(7), "You said x"));
    server.ends();
}

#[test]
fn a_client_with_a_handshake_has_a_session_which_is_its_own() {
    let sandbox = desk();
    let server = HttpServer::start(&sandbox);
    let key = format!("Bearer {}", server.all);
    let say = |session: Option<&str>, message: &Value| {
        let mut headers = vec![("Authorization", key.as_str())];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        server.send("POST", &headers, &message.to_string())
    };
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    let welcome = say(None, &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}));
    let session = welcome.headers.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    assert_eq!(welcome.json()["result"]["protocolVersion"], "2025-11-25");
    let ready = say(Some(&session), &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(ready.status, 202);
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "reader", "arguments": {"input": "x"}}});
    assert_eq!(text(&say(Some(&session), &call).json()["result"]), "You said x");
    assert_eq!(say(Some("0000"), &call).status, 404);
    let ask = format!("Bearer {}", server.ask);
    let stolen = server.send("POST", &[("Authorization", &ask), ("Mcp-Session-Id", &session)], &call.to_string());
    assert_eq!(stolen.status, 404, "it is the session of another key");
    let gone = server.send("DELETE", &[("Authorization", &key), ("Mcp-Session-Id", &session)], "");
    assert_eq!((gone.status, say(Some(&session), &call).status), (204, 404));
    server.ends();
}
