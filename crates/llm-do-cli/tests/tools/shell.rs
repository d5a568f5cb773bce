use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use super::{project, run};
use crate::session::{Run, of_type};
use crate::support::{Sandbox, wait};

/// An agent with these keys that runs one command and says what came back.
fn commands(keys: &str, commands: &[&str]) -> Sandbox {
    let calls: Vec<Value> = commands.iter().map(|command| json!({"shell": {"command": command}})).collect();
    let script = json!([{"round": 1, "call": calls}, {"say": "done"}]);
    let sandbox = project(&[("main", keys)], &script.to_string());
    sandbox.file("notes.md", "one\ntwo\n");
    sandbox
}

/// What the model read of each command of a run.
#[track_caller]
fn results(run: Run<'_>) -> Vec<Value> {
    let (_, result) = run.events();
    assert_eq!(result["exit_code"], 0, "{result}");
    read_results(&result)
}

fn read_results(result: &Value) -> Vec<Value> {
    let parts = result["messages"][2]["parts"].as_array().unwrap();
    let text = |part: &Value| part["content"][0]["text"].as_str().map(|text| serde_json::from_str(text).unwrap());
    parts.iter().map(|part| text(part).unwrap_or_else(|| part.clone())).collect()
}

#[test]
fn commands_run_in_the_working_directory() {
    let sandbox = commands("toolsets: [shell_readonly]", &["cat notes.md", "grep -c o notes.md", "wc -l nothing.md"]);
    let results = results(run(&sandbox, &["--json"]));
    assert_eq!(results[0], json!({"stdout": "one\ntwo\n", "stderr": "", "exit_code": 0, "truncated": false}));
    assert_eq!(results[1]["stdout"], "2\n");
    assert_eq!(results[2]["exit_code"], 1);
    assert!(results[2]["stderr"].as_str().unwrap().contains("nothing.md"), "{results:?}");
}

#[test]
fn a_command_that_does_not_fit_comes_back_to_the_model_and_runs_nothing() {
    let sandbox = commands(
        "toolsets: [shell_readonly]",
        &["rm notes.md", "sort -o notes.md script.yaml", "cat /etc/passwd", "ls | sh"],
    );
    let before = sandbox.tree();
    for flags in [&["--json"][..], &["--json", "--approve-all"]] {
        let (events, result) = run(&sandbox, flags).events();
        assert_eq!(result["exit_code"], 0, "{result}");
        assert_eq!(of_type(&events, "tool_called").len(), 0, "nothing was called");
        let messages = result["messages"].to_string();
        for reason in [
            "`rm` is not among the commands here",
            "`-o` is not among its known flags",
            "leads outside",
            "one command at a time",
        ] {
            assert!(messages.contains(reason), "{reason}: {messages}");
        }
        assert_eq!(sandbox.tree(), before);
    }
}

#[test]
fn neither_path_nor_environment_of_the_caller_reaches_a_command() {
    let sandbox =
        commands("toolsets: [shell_readonly]", &["cat notes.md", "git status", "git log -p", "sort notes.md"]);
    sandbox.file("planted/cat", "#!/bin/sh\necho > fired\n").file("evil", "#!/bin/sh\necho > fired\n");
    for program in ["planted/git", "planted/sort", "planted/true"] {
        sandbox.file(program, "#!/bin/sh\necho > fired\n");
    }
    for program in ["planted/cat", "planted/git", "planted/sort", "planted/true", "evil"] {
        fs::set_permissions(sandbox.path().join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for arguments in [
        &["init", "-q"][..],
        &["add", "notes.md"],
        &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ] {
        assert!(Command::new("git").args(arguments).current_dir(sandbox.path()).status().unwrap().success());
    }
    fs::write(sandbox.path().join("notes.md"), "changed\n").unwrap();
    let planted = format!("{}/planted:/usr/bin:/bin", sandbox.path().display());
    let evil = sandbox.path().join("evil").display().to_string();
    // What is kept of runs lies elsewhere: commands do not see it, and `git` would say so.
    let home = Sandbox::new();
    let mut hostile = run(&sandbox, &["--json"]).with("HOME", home.path().display().to_string());
    for variable in [
        "GIT_EDITOR",
        "GIT_SSH_COMMAND",
        "GIT_EXTERNAL_DIFF",
        "PAGER",
        "GIT_PAGER",
        "LESSOPEN",
        "BASH_ENV",
        "ENV",
        "GIT_ASKPASS",
        "GIT_PROXY_COMMAND",
        "LD_AUDIT",
        "LD_PRELOAD",
        "GIT_EXEC_PATH",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "RIPGREP_CONFIG_PATH",
    ] {
        hostile = hostile.with(variable, evil.clone());
    }
    let hostile = hostile
        .with("GREP_OPTIONS", "--color=always")
        .with("GIT_CONFIG_COUNT", "1")
        .with("GIT_CONFIG_KEY_0", "core.fsmonitor")
        .with("GIT_CONFIG_VALUE_0", evil.clone())
        .with("GIT_TRACE", sandbox.path().join("trace").display().to_string())
        .with("SECRET_TOKEN", "do-not-tell")
        .with("PATH", planted);
    let outputs = results(hostile);
    for (output, words) in outputs.iter().zip(["changed", "modified", "+one", "changed"]) {
        assert!(output["stdout"].as_str().unwrap().contains(words), "{outputs:?}");
        assert_eq!(output["stderr"], "", "not even the loader complains of what it was told to load");
    }
    assert!(!sandbox.path().join("fired").exists() && !sandbox.path().join("trace").exists());
}

#[test]
fn configured_shells_follow_their_rules() {
    let sandbox = commands("toolsets: [shell_readonly, mine]", &["mkdir new", "cat notes.md", "touch new/file"]);
    let toolsets = r#"{"mine": {"shell": {"rules": [
        {"pattern": "mkdir", "approval": "allow", "match": "mkdir x", "not_match": "rmdir x"},
        {"pattern": "touch", "approval": "allow", "approval_required_if_args": ["--date"]}]}}}"#;
    sandbox.file("project.json", &manifest(toolsets));
    let results = results(run(&sandbox, &["--json"]));
    assert_eq!(
        results.iter().map(|result| result["exit_code"].as_i64().unwrap()).collect::<Vec<_>>(),
        [0, 0, 0],
        "{results:?}"
    );
    assert!(sandbox.path().join("new/file").exists());
}

fn manifest(toolsets: &str) -> String {
    format!(
        r#"{{"version": 1, "entry": {{"agent": "main"}}, "worker_files": ["main.worker"], "toolsets": {toolsets}}}"#
    )
}

#[test]
fn what_asks_ends_the_run_before_anything_happens() {
    let sandbox = commands("toolsets: [shell_file_ops]", &["ls", "mv notes.md other.md"]);
    let before = sandbox.tree();
    let ended = run(&sandbox, &[]).ended();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("main › shell\nchanges files\ncommand   mv notes.md other.md\n"), "{}", ended.stderr);
    assert_eq!(sandbox.tree(), before);
    assert_eq!(run(&sandbox, &["--approve-all"]).ended().code, Some(0));
    assert!(sandbox.path().join("other.md").exists());
}

#[test]
fn a_rule_that_blocks_is_a_refusal() {
    let sandbox = commands("toolsets: [mine]", &["rm notes.md"]);
    sandbox.file(
        "project.json",
        &manifest(r#"{"mine": {"shell": {"rules": [{"pattern": "rm", "approval": "block"}], "default": "ask"}}}"#),
    );
    let said = run(&sandbox, &["--approve-all"]).failure(4);
    let expected = "error: `shell` of main was refused: `rm` is blocked by a rule\n\
                    hint: `llm-do resume RUN` judges it again\n";
    assert_eq!(said, expected);
}

#[test]
fn a_variant_of_a_shell_has_its_own_name_and_rules() {
    let script = r#"[{"round": 1, "call": [{"x_shell": {"command": "cat notes.md"}}]}, {"say": "{{ result }}"}]"#;
    let sandbox = project(&[("main", "toolsets: [x]")], script);
    sandbox.file("notes.md", "one\n");
    sandbox.file(
        "project.json",
        &manifest(r#"{"x": {"use": "shell_readonly", "prefix": "x_", "approval": {"shell": "ask"}}}"#),
    );
    let ended = run(&sandbox, &[]).ended();
    assert!(ended.code == Some(4) && ended.stderr.contains("main › x_shell"), "{ended:?}");
    assert!(run(&sandbox, &["--approve-all"]).ended().stdout.contains("one"));
}

#[test]
fn check_shows_where_commands_run_and_what_keeps_them_in() {
    let sandbox = commands("toolsets: [shell_readonly, shell_file_ops, mine]", &["ls"]);
    let toolsets = r#"{"mine": {"shell": {"rules": [{"pattern": "mkdir", "approval": "allow"}], "write": ["out"], "network": true}}}"#;
    sandbox.file("project.json", &manifest(toolsets));
    let ended = sandbox.run(&["check", ".", "-m", "scripted:script.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let directory = sandbox.path().canonicalize().unwrap();
    assert!(ended.stdout.contains(&format!("commands in {}\n", directory.display())), "{}", ended.stdout);
    let shells = "\
    shells
      shell_readonly  known flags, and paths beneath the working directory; writes nothing, no network
      shell_file_ops  known flags, and paths beneath the working directory; `mv` writes beneath the working directory, no network
      mine            1 rule; writes beneath the working directory and `out`, reaches the network
";
    assert!(ended.stdout.contains(shells), "{}", ended.stdout);
    let ended = sandbox.run(&["check", ".", "-m", "scripted:script.yaml", "--json"]);
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(shown["commands"]["directory"], directory.display().to_string());
    assert_eq!(shown["agents"][0]["shells"][2]["rules"][0]["pattern"], json!(["mkdir"]));
    let plain = project(&[("main", "")], "- say: x\n");
    assert!(!plain.run(&["check", ".", "-m", "scripted:script.yaml"]).stdout.contains("commands"));
}

#[test]
fn rules_that_allow_everything_and_examples_that_lie_are_mistakes() {
    let sandbox = commands("toolsets: [mine]", &["ls"]);
    let rules = [
        r#"{"pattern": "python3", "approval": "allow"}"#,
        r#"{"pattern": "git", "approval": "allow"}"#,
        r#"{"pattern": ["./tool"], "approval": "ask"}"#,
        r#"{"pattern": "ls", "approval": "allow", "match": ["cat x"], "not_match": ["ls -l"]}"#,
    ];
    sandbox
        .file("project.json", &manifest(&format!(r#"{{"mine": {{"shell": {{"rules": [{}]}}}}}}"#, rules.join(",\n"))));
    let said = sandbox.run(&["check", ".", "-m", "scripted:script.yaml"]);
    assert_eq!(said.code, Some(2));
    for (fact, place) in [
        ("the rule allows too much: `python3` runs any code", "project.json:1:"),
        ("the rule allows too much: `git` alone runs any code: name a subcommand", "project.json:2:13"),
        ("`./tool` is not the name of a program", "project.json:3:13"),
        ("the example `cat x` does not match its rule", "project.json:4:50"),
        ("the example `ls -l` matches the rule that it should not", "project.json:4:74"),
    ] {
        assert!(said.stderr.contains(&format!("error: {fact}\n --> {place}")), "{fact}: {}", said.stderr);
    }
    let understood =
        r#"{"mine": {"shell": {"rules": [{"pattern": "python3", "approval": "allow", "i_understand": true}]}}}"#;
    sandbox.file("project.json", &manifest(understood));
    assert_eq!(sandbox.run(&["check", ".", "-m", "scripted:script.yaml"]).code, Some(0));
}

#[test]
fn an_unprivileged_user_is_fenced_and_limited_too() {
    let sandbox = commands(
        "toolsets: [shell_readonly, mine]",
        &[
            "sh -c 'i=0; while [ $i -lt 9000 ]; do sleep 1000 & i=$((i+1)); done'",
            "sh -c 'cat /etc/hosts'",
            "sh -c 'echo x > made; cat made'",
            "cat notes.md",
        ],
    );
    sandbox.file(
        "project.json",
        &manifest(r#"{"mine": {"shell": {"rules": [{"pattern": "sh", "approval": "allow", "i_understand": true}]}}}"#),
    );
    let arguments = ["run", ".", "hi", "-m", "scripted:script.yaml", "--json", "--approve-all"];
    let mut command = sandbox.unprivileged(&arguments);
    // They write here.
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let ended = wait(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let results = read_results(&result);
    let (bomb, outside, inside, read) = (&results[0], &results[1], &results[2], &results[3]);
    assert_ne!(bomb["exit_code"], 0, "{bomb}");
    assert!(bomb["stderr"].as_str().unwrap().to_lowercase().contains("fork"), "{bomb}");
    if !ended.stderr.contains("without a fence") {
        assert_ne!(outside["exit_code"], 0, "{outside}");
    }
    assert_eq!((&inside["stdout"], &read["stdout"]), (&json!("x\n"), &json!("one\ntwo\n")));
}
