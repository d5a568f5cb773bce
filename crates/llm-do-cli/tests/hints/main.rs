//! Hints never lead nowhere: each command that a hint prints is run here, and does what the hint says; and each remedy has a row
//! that shows it where it is printed and does what it says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod printed;
mod remedies;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::{Ended, Sandbox};

/// What a shell is given: our program is on its path, and nothing of ours in its environment.
struct World(Sandbox);

const DESK: &str = "\
- { heard: write, call: { write_file: { path: out.txt, content: x } } }
- { heard: auth, fail: authenticate }
- { heard: busy, fail: wait, say: too many requests }
- { heard: ask, call: { ask_user: { question: Which?, fields: [{ name: version, type: text, required: true }] } } }
- { say: \"done: {{ heard }}\" }
";
const WORKER: &str = "---\nname: main\ntoolsets: [filesystem_cwd, ask_user]\nlimits: { max_requests: 9 }\n---\nx\n";
const SORTER: &str = "---\nname: sorter\nschema_in: {type: object, properties: {change: {type: string}}, required: [change]}\n\
    schema_out: {type: object, properties: {kind: {type: string}}, required: [kind]}\n---\nSort.\n";
const SORTABLE: &str = "{\"version\": 1, \"entry\": {\"agent\": \"sorter\"}, \"worker_files\": [\"sorter.worker\"]}";
const HARDENED: &str = "{\"version\": 1, \"entry\": {\"agent\": \"sorter\"}, \"worker_files\": [\"sorter.worker\"], \
    \"toolsets\": {\"sorter\": {\"python\": \"sorter.py:sorter\", \"mode\": \"agent\", \"approval\": \"allow\"}}}";
const CODE: &str = "def sorter(change: str) -> dict:\n    return {\"kind\": \"new\"}\n";
const CASE: &str = "cases:\n  - name: greets\n    input: hi\n    expect: { output: { contains: done } }\n";

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::new().told();
        for (path, text) in [
            ("desk/main.worker", WORKER),
            ("desk/main.test.yaml", CASE),
            ("script.yaml", DESK),
            ("fenced/main.worker", "---\nname: main\nmodel: anthropic:claude-haiku-4-5\n---\nx\n"),
            ("two/a.worker", "---\nname: a\n---\nx\n"),
            ("two/b.worker", "---\nname: b\n---\nx\n"),
            ("items.txt", "one\ntwo\n"),
            ("sortable/project.json", SORTABLE),
            ("sortable/sorter.worker", SORTER),
            ("hardened/project.json", HARDENED),
            ("hardened/sorter.worker", SORTER),
            ("hardened/sorter.py", CODE),
        ] {
            sandbox.file(path, text);
        }
        Self(sandbox)
    }

    fn types(&self, line: &str) -> Ended {
        let ours = Path::new(env!("CARGO_BIN_EXE_llm-do")).parent().unwrap();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line).env_clear().current_dir(self.0.path()).stdin(Stdio::null());
        shell
            .env("PATH", format!("{}:/usr/bin:/bin", ours.display()))
            .env("HOME", self.0.path())
            .env("LLM_DO_TRUST", "1");
        support::wait_for_all(shell.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Types it; what is told must have this in it.
    #[track_caller]
    fn told(&self, line: &str, code: i32, words: &str) -> String {
        let Ended { code: seen, stdout, stderr } = self.types(line);
        let said = format!("{stdout}{stderr}");
        assert!(
            seen == Some(code) && said.contains(words),
            "{line}\nends with {seen:?}, not {code} and {words:?}:\n{said}"
        );
        said
    }

    /// The newest run.
    fn newest(&self) -> String {
        self.0.runs().pop().unwrap()
    }

    /// A new run of each sort, for words such as `DONE` in what is typed.
    fn filled(&self, line: &str) -> String {
        let mut line = line.to_owned();
        let asked = |prompt: &str, code: i32| {
            let said = self.told(&format!("llm-do -p desk -m scripted:script.yaml '{prompt}'"), code, "");
            let id = said.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(id, _)| id.to_owned());
            (self.newest(), id.unwrap_or_default())
        };
        if line.contains("DONE") {
            line = line.replace("DONE", &asked("hi", 0).0);
        }
        if line.contains("WAITS") || line.contains("ASKED") {
            let (run, question) = asked("write", 4);
            line = line.replace("WAITS", &run).replace("ASKED", &question);
        }
        if line.contains("FORM") {
            line = line.replace("FORM", &asked("ask", 4).1);
        }
        if line.contains("CHAT") {
            self.told("echo hi | llm-do chat desk -m scripted:script.yaml", 0, "done: hi");
            line = line.replace("CHAT", &self.newest());
        }
        line
    }
}
