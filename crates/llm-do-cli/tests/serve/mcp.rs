//! `llm-do serve --mcp`, from the outside: a client that knows the protocol and nothing of the program.

mod http;
mod kills;
mod questions;
mod tasks;
mod tools;

use serde_json::{Value, json};

use crate::client::Client;
use crate::support::Sandbox;

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Agents that write files, ask, answer and fail, each at a word.
const SCRIPT: &str = "\
- {agent: asker, tool: ask_user, say: 'The answer was {{ result }}'}
- {agent: asker, call: {ask_user: {question: 'Which city?', fields: [{name: city}, {name: far, type: yes_no, required: false}]}}}
- {tool: write_file, say: 'Result: {{ result }}'}
- {heard: twice, call: [{write_file: {path: one.txt, content: '1'}}, {write_file: {path: two.txt, content: '2'}}]}
- {heard: write, call: {write_file: {path: out.txt, content: hi}}}
- {heard: protected, call: {write_file: {path: main.worker, content: hi}}}
- {say: 'You said {{ heard }}'}
";

pub fn desk() -> Sandbox {
    let sandbox = Sandbox::new();
    let worker = |name: &str, keys: &str| {
        format!(
            "---\nname: {name}\ndescription: The agent {name}\nmodel: scripted:script.yaml\n{keys}---\nYou are {name}.\n"
        )
    };
    sandbox
        .file("desk/script.yaml", SCRIPT)
        .file("desk/main.worker", &worker("main", "toolsets: [filesystem_cwd]\n"))
        .file("desk/asker.worker", &worker("asker", "toolsets: [ask_user]\n"))
        .file("desk/reader.worker", &worker("reader", "toolsets: [filesystem_ro]\n"))
        .file(
            "desk/typed.worker",
            &worker("typed", "schema_in: {type: object, properties: {n: {type: integer}}, required: [n]}\n"),
        )
        .file(
            "desk/project.json",
            r#"{"version": 1, "entry": {"agent": "main"}, "export": ["typed", "main", "asker", "reader"],
                "worker_files": ["main.worker", "asker.worker", "reader.worker", "typed.worker"],
                "toolsets": {"filesystem_ro": {"filesystem": {"root": ".", "mode": "ro"}}}}"#,
        );
    sandbox
}

/// What a client of the newest revision says with each request.
pub fn meta(capabilities: &Value) -> Value {
    json!({VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: capabilities, "io.modelcontextprotocol/clientInfo": {"name": "test"}})
}

pub fn forms() -> Value {
    json!({"elicitation": {}})
}

/// A server on stdin and stdout.
pub struct Server {
    pub client: Client,
    capabilities: Value,
}

impl Server {
    pub fn start(sandbox: &Sandbox, capabilities: &Value, flags: &[&str]) -> Self {
        let words = [&["serve", "--mcp", "desk"], flags].concat();
        Self { client: Client::of(sandbox.command(&words, &[])), capabilities: capabilities.clone() }
    }

    pub fn params(&self, mut params: Value) -> Value {
        let mut meta = meta(&self.capabilities);
        if let Some(more) = params["_meta"].as_object() {
            meta.as_object_mut().unwrap().extend(more.clone());
        }
        params["_meta"] = meta;
        params
    }

    #[track_caller]
    pub fn result(&mut self, method: &str, params: Value) -> Value {
        let params = self.params(params);
        self.client.result(method, &params)
    }

    #[track_caller]
    pub fn error(&mut self, method: &str, params: Value) -> i64 {
        let params = self.params(params);
        self.client.error(method, &params)["code"].as_i64().unwrap()
    }

    #[track_caller]
    pub fn call(&mut self, tool: &str, input: &str) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": {"input": input}}))
    }

    /// The same call, with what came back for the first question of it.
    pub fn retry(tool: &str, input: &str, asked: &Value, response: &Value) -> Value {
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        json!({
            "name": tool, "arguments": {"input": input}, "requestState": asked["requestState"],
            "inputResponses": {key: response},
        })
    }

    #[track_caller]
    pub fn answer(&mut self, tool: &str, input: &str, asked: &Value, response: &Value) -> Value {
        self.result("tools/call", Self::retry(tool, input, asked, response))
    }
}

pub fn accept(content: &Value) -> Value {
    json!({"action": "accept", "content": content})
}

#[track_caller]
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// The state and the kind of the newest run.
pub fn newest(sandbox: &Sandbox) -> Value {
    let ended = sandbox.run(&["runs", "--json", "--all"]);
    serde_json::from_str(ended.stdout.lines().next().unwrap_or_else(|| panic!("{ended:?}"))).unwrap()
}
