//! Where something runs short: files that may be open, the size that they may have, homes that cannot be written. It is said
//! in words, and what can go on goes on.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use fake_llm::{FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

use crate::client::Client;
use crate::session::{KEY, Run};
use crate::support::{Ended, Sandbox, wait};
use crate::{SCRIPTED, sandbox};

/// `llm-do …` with a limit of the shell.
fn limited(sandbox: &Sandbox, limit: &str, arguments: &[&str]) -> Command {
    let ours = sandbox.command(arguments, &[]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]).arg(ours.get_program()).args(ours.get_args());
    command
        .env_clear()
        .envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/bin:/bin");
    command.current_dir(sandbox.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const WORKS: &str = "\
- { round: 1, call: [ { write_file: { path: out.txt, content: x } }, { list_files: {} }, { read_file: { path: script.yaml } } ] }
- say: \"{{ result }}\"
";

#[test]
fn however_few_files_may_be_open_it_is_said_in_words() {
    let mut whole = 0;
    for most in 5..=40 {
        let sandbox = sandbox("toolsets: [filesystem_cwd]", WORKS);
        let arguments = [&["run"], &SCRIPTED[..], &["--approve-all"]].concat();
        let Ended { code, stdout, stderr } = wait(&mut limited(&sandbox, &format!("-n {most}"), &arguments));
        assert!(matches!(code, Some(0..=2 | 127)), "{most}: {code:?} {stderr}");
        for words in ["panicked", "not supported"] {
            assert!(!stderr.contains(words) && !stdout.contains(words), "{most}: {stdout} {stderr}");
        }
        assert!(code == Some(0) || !stderr.is_empty(), "{most}");
        whole += usize::from(code == Some(0) && stdout.contains("wrote 1 character"));
    }
    assert!(whole > 10, "with some more it works");
}

#[test]
fn a_file_that_must_not_grow_is_an_error_like_any_other() {
    let sandbox = sandbox("toolsets: [filesystem_cwd]", "");
    let content = "x".repeat(4000);
    let script = format!(
        "- {{ round: 1, call: {{ write_file: {{ path: out.txt, content: {content} }} }} }}\n- say: \"{{{{ result }}}}\""
    );
    sandbox.file("script.yaml", &script);
    let arguments = [&["run"], &SCRIPTED[..], &["--approve-all"]].concat();
    let ended = wait(&mut limited(&sandbox, "-f 1", &arguments));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("out.txt`: File too large"), "{ended:?}");
    let left: Vec<String> =
        fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|name| name == "out.txt" || name.ends_with(".llm-do-tmp")), "{left:?}");
    let journaled = [&arguments[..], &["--journal", "run.journal"]].concat();
    let ended = wait(&mut limited(&sandbox, "-f 1", &journaled));
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    assert!(ended.stderr.contains("run.journal") && ended.stderr.contains("File too large"), "{ended:?}");
}

#[test]
fn a_pipe_where_a_file_of_the_user_belongs_is_said_so() {
    let sandbox = sandbox("", "- say: the answer");
    let home = sandbox.path().join(".config/llm-do");
    fs::create_dir_all(&home).unwrap();
    let make = |name: &str| rustix::fs::mkfifoat(rustix::fs::CWD, home.join(name), 0o600.into()).unwrap();
    make("config.toml");
    for arguments in [&["models"][..], &["check", "main.worker"], &[&["run"], &SCRIPTED[..]].concat()] {
        let said = Run::of(&sandbox, arguments).failure(2);
        assert!(said.contains("config.toml cannot be read: it is not a regular file"), "{arguments:?}: {said}");
    }
    fs::remove_file(home.join("config.toml")).unwrap();
    make("pipe");
    for (setting, flag) in [("[runs]\nkey_file", "--journal=j"), ("[http]\nca_file", "--quiet")] {
        let config = format!("{setting} = \"{}\"\n", home.join("pipe").display());
        fs::write(home.join("config.toml"), config).unwrap();
        let arguments = ["run", "main.worker", "hi", "-m", "ollama:q", flag];
        let said = Run::of(&sandbox, &arguments).failure(2);
        assert!(said.contains("it is not a regular file"), "{setting}: {said}");
    }
}

/// A project with a Python tool.
fn with_python() -> Sandbox {
    let sandbox = sandbox("tools: [limit]", "- { round: 1, call: { limit: {} } }\n- say: \"{{ result }}\"");
    let code = "import resource\n\ndef limit() -> str:\n    \"\"\"How many files may be open.\"\"\"\n    \
                return str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n\nTOOLS = [limit]\n";
    let manifest = json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
        "python_files": ["tools.py"]});
    sandbox.file("tools.py", code).file("project.json", &manifest.to_string());
    sandbox
}

const PYTHON: [&str; 6] = ["run", ".", "hi", "-m", "scripted:script.yaml", "--approve-all"];

#[test]
fn a_program_that_is_started_gets_the_limit_that_we_were_started_with() {
    let sandbox = with_python();
    let ended = wait(&mut limited(&sandbox, "-S -n 200", &PYTHON));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "200\n"), "{}", ended.stderr);
}

/// Each of these looks at its limits before it does anything else.
#[test]
fn the_limit_holds_before_the_first_instruction_of_python_and_of_servers() {
    const LOOKS: &str = "#!/bin/sh\necho $(ulimit -S -n) $(ulimit -H -n) >> looked.txt\n";
    let looked = |sandbox: &Sandbox| {
        let text = fs::read_to_string(sandbox.path().join("looked.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let sandbox = with_python();
    let interpreter = sandbox.path().join("interpreter");
    fs::write(&interpreter, format!("{LOOKS}exec python3 \"$@\"\n")).unwrap();
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = [&PYTHON[..], &["--python", interpreter.to_str().unwrap()]].concat();
    let mut command = limited(&sandbox, "-S -n 200; ulimit -H -n 3000", &arguments);
    let ended = wait(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "200\n"), "{}", ended.stderr);
    for _ in 1..10 {
        assert_eq!(wait(&mut command).code, Some(0));
    }
    assert_eq!(looked(&sandbox), vec!["200 3000"; 10]);
    let sandbox = sandbox_of_servers(40, LOOKS);
    let arguments = ["check", ".", "--trust", "--connect", "-m", "scripted:script.yaml"];
    let ended = wait(&mut limited(&sandbox, "-S -n 200; ulimit -H -n 3000", &arguments));
    // One that ends at once is started again, and spoken to as older ones are.
    assert_eq!(looked(&sandbox), vec!["200 3000"; 2 * 40], "{}", ended.stderr);
}

fn sandbox_of_servers(count: usize, code: &str) -> Sandbox {
    let names: Vec<String> = (0..count).map(|number| format!("hub_{number}")).collect();
    let sandbox = sandbox(&format!("toolsets: [{}]", names.join(", ")), "- say: done");
    let server = |name: &String| (name.clone(), json!({"mcp": {"command": "./server"}}));
    let toolsets: serde_json::Map<String, Value> = names.iter().map(server).collect();
    let manifest = json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
        "toolsets": toolsets});
    sandbox.file("server", code).file("project.json", &manifest.to_string());
    fs::set_permissions(sandbox.path().join("server"), fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
}

#[test]
fn without_a_home_that_can_be_written_python_runs_and_nothing_is_written_elsewhere() {
    let sandbox = with_python();
    let hex = "5c".repeat(32);
    // Neither a home nor a place of ours; with a key that needs none.
    for key in [None, Some(hex.as_str())] {
        let mut command = sandbox.command(&PYTHON, &[("PATH", "/usr/local/bin:/usr/bin:/bin")]);
        command.env_remove("HOME").envs(key.map(|key| ("LLM_DO_STATE_KEY", key)));
        let ended = wait(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let note = "note: this run is not kept: there is no home directory\n";
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), note), "{ended:?}");
        assert!(!fs::exists("/nonexistent").unwrap());
    }
    // Somebody whose home is not theirs. Root may write everywhere.
    let home = sandbox.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = sandbox.unprivileged(&PYTHON);
    command.env("HOME", &home).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let ended = wait(&mut command);
    let (note, unwritable) = ("note: this run is not kept: ", ": Permission denied (os error 13)\n");
    let is_said = ended.stderr.starts_with(note) && ended.stderr.ends_with(unwritable);
    assert!(ended.code == Some(0) && is_said && ended.stderr.lines().count() == 1, "{ended:?}");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
    // What would have to be kept is not, and that is said in the same words.
    let note = "note: nothing can be signed, so what is kept now counts as a stranger's later: ";
    let mut homeless =
        sandbox.command(&[&PYTHON[..], &["--journal", "a"]].concat(), &[("PATH", "/usr/local/bin:/usr/bin:/bin")]);
    let ended = wait(homeless.env_remove("HOME").stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(ended.code == Some(0) && ended.stderr.starts_with(note), "{ended:?}");
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = sandbox.unprivileged(&[&PYTHON[..], &["--journal", "b"]].concat());
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let ended = wait(command.env("HOME", &home).env("PATH", "/usr/local/bin:/usr/bin:/bin"));
    assert!(ended.code == Some(0) && ended.stderr.starts_with(note), "{ended:?}");
    assert_eq!(fs::metadata(&home).unwrap().mode() & 0o777, 0o555);
}

#[test]
fn scopes_are_counted_before_they_are_open() {
    const MOST: usize = 1000;
    let sandbox = sandbox("", "- say: the answer");
    let mut client = Client::start(&sandbox);
    let open = json!({"project": "main.worker", "model": "scripted:script.yaml", "events": "none"});
    let asked: Vec<u64> = (0..2 * MOST).map(|_| client.ask("open", &open)).collect();
    let answers: Vec<Value> = asked.iter().map(|_| client.next().unwrap()).collect();
    let opened = answers.iter().filter(|answer| answer["result"]["scope"].is_u64()).count();
    let busy = answers.iter().filter(|answer| answer["error"]["code"] == -32000).count();
    assert_eq!((opened, busy), (MOST, MOST));
    let scope = answers.iter().find_map(|answer| answer["result"]["scope"].as_u64()).unwrap();
    client.result("close", &json!({"scope": scope}));
    client.result("open", &open);
    client.left();
}

#[test]
fn requests_beyond_what_may_be_open_wait_for_others() {
    const TURNS: u64 = 150;
    let sandbox = sandbox("", "");
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("Hi.")));
    let mut command = limited(&sandbox, "-n 96", &["serve", "--stdio"]);
    command.env("ANTHROPIC_BASE_URL", fake.anthropic_url()).env("ANTHROPIC_API_KEY", KEY);
    let mut client = Client::of(command);
    let open = json!({"project": "main.worker", "model": "anthropic:claude-haiku-4-5", "events": "none"});
    let scopes: Vec<u64> = (0..TURNS).map(|_| client.result("open", &open)["scope"].as_u64().unwrap()).collect();
    let asked: Vec<u64> =
        scopes.iter().map(|scope| client.ask("turn", &json!({"scope": scope, "input": "x"}))).collect();
    for _ in asked {
        let answer = client.next().unwrap();
        assert_eq!(answer["result"]["output"], "Hi.", "{answer}");
    }
    client.left();
}
