//! What was left for us: open descriptors, links where an answer goes, and directories that hold everything.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::session::Run;
use crate::support::{Sandbox, wait};
use crate::{SCRIPTED, sandbox};

#[test]
fn nobody_whom_we_start_gets_what_a_parent_left_open() {
    let server = r#"
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    else:
        try:
            found = os.pread(7, 100, 0).decode()
        except OSError as error:
            found = error.strerror
        result = {"content": [{"type": "text", "text": found}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;
    let sandbox = sandbox("toolsets: [hub]", "- { round: 1, call: { look: {} } }\n- say: \"{{ result }}\"");
    sandbox.file("server.py", server).file("secret", "the secret").file(
        "project.json",
        &json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "toolsets": {"hub": {"mcp": {"command": "python3", "args": ["server.py"]}}}})
        .to_string(),
    );
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" run . hi -m scripted:script.yaml --trust --approve-all 7<secret"]);
    command.arg(env!("CARGO_BIN_EXE_llm-do")).current_dir(sandbox.path()).env("HOME", sandbox.path());
    let ended = wait(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Bad file descriptor\n"), "{}", ended.stderr);
}

#[test]
fn an_answer_is_not_written_through_a_link() {
    let sandbox = sandbox("", "- say: the answer");
    sandbox.file(".bashrc", "mine\n");
    symlink(".bashrc", sandbox.path().join("summary.md")).unwrap();
    let run = |file: &'static str| Run::new(&sandbox, &[&SCRIPTED[..], &["-o", file]].concat());
    let said = run("summary.md").failure(2);
    assert!(said.contains("summary.md is a link to .bashrc"), "{said}");
    assert_eq!(fs::read_to_string(sandbox.path().join(".bashrc")).unwrap(), "mine\n");
    assert_eq!(run("plain.md").answer(), "the answer\n");
    assert_eq!(fs::read_to_string(sandbox.path().join("plain.md")).unwrap(), "the answer\n");
    assert_eq!(run("/dev/stdout").answer(), "the answer\nthe answer\n");
}

/// What a tool says that is called in a directory.
fn called_in(sandbox: &Sandbox, directory: &str, call: &str) -> String {
    sandbox.file("script.yaml", &format!("- {{ round: 1, call: {call} }}\n- say: \"{{{{ result }}}}\"\n"));
    let (worker, script) = (sandbox.path().join("main.worker"), sandbox.path().join("script.yaml"));
    let model = format!("scripted:{}", script.display());
    let mut command = sandbox.command(&["run", worker.to_str().unwrap(), "hi", "-m", &model, "--approve-all"], &[]);
    let ended = wait(command.current_dir(directory).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[test]
fn the_whole_system_is_no_working_directory_for_files() {
    let sandbox = sandbox("toolsets: [filesystem_cwd]", "");
    sandbox.file("note.txt", "a note");
    let read = |path: &str| format!("{{ read_file: {{ path: {path} }} }}");
    for (directory, path) in [("/", "proc/self/status"), ("/", "etc/hostname"), ("/proc", "version"), ("/dev", "zero")]
    {
        let answer = called_in(&sandbox, directory, &read(path));
        assert!(answer.contains("everything would lie beneath it"), "{directory}: {answer}");
        let listed = called_in(&sandbox, directory, "{ list_files: { pattern: '*' } }");
        assert!(listed.contains("everything would lie beneath it"), "{directory}: {listed}");
    }
    let written = called_in(&sandbox, "/", "{ write_file: { path: written-by-a-test, content: x } }");
    assert!(written.contains("everything would lie beneath it"), "{written}");
    assert!(!fs::exists("/written-by-a-test").unwrap());
    let here = sandbox.path().to_str().unwrap().to_owned();
    assert!(called_in(&sandbox, &here, &read("note.txt")).contains("a note"));
}
