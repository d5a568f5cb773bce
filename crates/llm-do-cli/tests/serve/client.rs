//! A client of its own: raw lines go in, raw lines come out.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::Sandbox;

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_mins(2);

pub struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next: u64,
    /// What came while something else was waited for.
    pub heard: Vec<Value>,
}

impl Client {
    pub fn start(sandbox: &Sandbox) -> Self {
        Self::of(sandbox.command(&["serve", "--stdio"], &[]))
    }

    pub fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let _ = sender.send(line.unwrap());
            }
        });
        Self { child, stdin, lines, next: 0, heard: Vec::new() }
    }

    pub fn line(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.line(&message.to_string());
    }

    /// Asks, without waiting; the number of the request.
    pub fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        self.send(json!({"id": self.next, "method": method, "params": params}));
        self.next
    }

    #[track_caller]
    pub fn next_line(&mut self) -> String {
        self.lines.recv_timeout(DEADLINE).unwrap()
    }

    /// The next message; `None` if there is none any more. Nothing but protocol is ever said on stdout.
    #[track_caller]
    pub fn next(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => {
                let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                assert_eq!(message["jsonrpc"], "2.0", "{line}");
                Some(message)
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("waited in vain; heard: {:?}", self.heard),
        }
    }

    /// Waits for an answer; everything else that comes is kept.
    #[track_caller]
    pub fn answer(&mut self, id: u64) -> Value {
        self.wait(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Waits for a request of the server.
    #[track_caller]
    pub fn question(&mut self) -> Value {
        self.wait(|message| message["method"] == "approve")
    }

    /// Waits for a message of this method.
    #[track_caller]
    pub fn request(&mut self, method: &str) -> Value {
        self.wait(|message| message["method"] == method)
    }

    #[track_caller]
    fn wait(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.heard.iter().position(&is_it) {
            return self.heard.remove(index);
        }
        loop {
            let message = self.next().unwrap_or_else(|| panic!("it ended; heard: {:?}", self.heard));
            if is_it(&message) {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub fn decide(&mut self, question: &Value, decision: &Value) {
        self.send(json!({"id": question["id"], "result": decision}));
    }

    #[track_caller]
    pub fn result(&mut self, method: &str, params: &Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.answer(id);
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    #[track_caller]
    pub fn error(&mut self, method: &str, params: &Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.answer(id);
        assert!(answer["error"].is_object(), "{answer}");
        answer["error"].clone()
    }

    /// Opens a scope without events.
    #[track_caller]
    pub fn open(&mut self, more: &Value) -> u64 {
        let mut params = json!({"project": "main.worker", "events": "none"});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.result("open", &params)["scope"].as_u64().unwrap()
    }

    #[track_caller]
    pub fn turn(&mut self, scope: u64, input: &str) -> Value {
        self.result("turn", &json!({"scope": scope, "input": input}))["output"].clone()
    }

    pub fn kill(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The rest of what it says, its exit code, and its stderr.
    #[track_caller]
    pub fn left(mut self) -> (Vec<Value>, Option<i32>, String) {
        self.stdin = None;
        let mut rest = std::mem::take(&mut self.heard);
        while let Some(message) = self.next() {
            rest.push(message);
        }
        let output = self.child.wait_with_output().unwrap();
        (rest, output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// It ended as it should, without a word beside the protocol.
    #[track_caller]
    pub fn ends_well(self) -> Vec<Value> {
        let (rest, code, stderr) = self.left();
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        rest
    }
}
