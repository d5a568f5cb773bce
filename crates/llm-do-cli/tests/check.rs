//! `llm-do check`, from the outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use std::fs::OpenOptions;
use std::process::Stdio;

use serde_json::Value;
use support::{Ended, Sandbox};

const GOOD: &str = "---\nname: main\nmodel: ollama:qwen3\n---\nDo it.\n";

const SIX_MISTAKES: [(&str, &str); 3] = [
    (
        "project.json",
        r#"{
  "version": 1,
  "entry": { "agent": "mian" },
  "worker_files": ["main.worker", "helper.worker"],
  "runtime": { "max_dept": 3 }
}
"#,
    ),
    (
        "main.worker",
        "\
---
name: main
model: antropic:claude-haiku-4-5
toolsets: [helper, shel_readonly]
---
Ask the helper.
",
    ),
    (
        "helper.worker",
        "\
---
name: helper
model: ollama:qwen3
toolsets: [filesystem_cwd]
approval: { write_fil: allow }
limits: { max_requests: many }
---
Help.
",
    ),
];

const SIX_ERRORS: &str = r#"error: there is no agent `mian` to start with
 --> project.json:3:23
  |
3 |   "entry": { "agent": "mian" },
  |                       ^^^^^^
  |
  = hint: did you mean `main`? agents: helper, main

error: unknown key `max_dept` in `runtime`
 --> project.json:5:16
  |
5 |   "runtime": { "max_dept": 3 }
  |                ^^^^^^^^^^
  |
  = hint: did you mean `max_depth`? keys: agent_approval_overrides, agent_attachments_require_approval, agent_calls_require_approval, approval_mode, limits, max_call_depth, max_depth, python_fence, return_permission_errors

error: unknown provider `antropic` in the model `antropic:claude-haiku-4-5`
 --> main.worker:3:8
  |
3 | model: antropic:claude-haiku-4-5
  |        ^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = hint: did you mean `anthropic:claude-haiku-4-5`? providers: anthropic, azure, cerebras, deepseek, fireworks, google, google-vertex, groq, huggingface, mistral, ollama, openai, and 5 more

error: agent `main` asks for an unknown toolset `shel_readonly`
 --> main.worker:4:20
  |
4 | toolsets: [helper, shel_readonly]
  |                    ^^^^^^^^^^^^^
  |
  = hint: did you mean `shell_readonly`? toolsets: ask_user, dynamic_agents, filesystem_cwd, filesystem_cwd_ro, filesystem_project, filesystem_project_ro, helper, main, shell_file_ops, shell_readonly

error: agent `helper` has no tool `write_fil`
 --> helper.worker:5:13
  |
5 | approval: { write_fil: allow }
  |             ^^^^^^^^^
  |
  = hint: did you mean `write_file`? tools: edit_file, list_files, read_file, search_files, write_file

error: expected a whole number of at least 1, found the text `many`
 --> helper.worker:6:25
  |
6 | limits: { max_requests: many }
  |                         ^^^^
  |
  = hint: write a number, such as `10`

6 errors
"#;

fn six_mistakes() -> Sandbox {
    let sandbox = Sandbox::new();
    for (path, text) in SIX_MISTAKES {
        sandbox.file(path, text);
    }
    sandbox
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn the_project_is_the_current_directory_unless_one_is_named() {
    let sandbox = Sandbox::new();
    let nothing = sandbox.run(&["check"]);
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("neither a manifest nor worker files in this directory"), "{}", nothing.stderr);
    sandbox.file("main.worker", GOOD);
    let (unnamed, named) = (sandbox.run(&["check"]), sandbox.run(&["check", "."]));
    assert_eq!((unnamed.code, unnamed.stdout), (Some(0), named.stdout));
    let unasked = sandbox.run(&["run", "--no-stdin"]);
    assert_eq!((unasked.code, unasked.stderr.lines().next()), (Some(2), Some("error: no input")));
}

#[test]
fn six_mistakes_in_three_files_are_six_located_errors_with_hints() {
    let expected = Ended { code: Some(2), stdout: String::new(), stderr: SIX_ERRORS.to_owned() };
    let sandbox = six_mistakes();
    let before = sandbox.tree();
    assert_eq!(sandbox.run(&["check", "."]), expected);
    assert_eq!(sandbox.run(&["validate", "."]), expected, "the same by its other name");
    assert_eq!(sandbox.run(&["check", ".", "--dot"]), expected, "a graph of nothing is no graph");
    assert_eq!(sandbox.tree(), before, "looking at a project changes nothing");
}

#[test]
fn the_same_mistakes_are_json_for_programs() {
    let ended = six_mistakes().run(&["check", ".", "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""));
    let json = json(&ended);
    assert_eq!((&json["ok"], &json["error_count"], &json["omitted"]), (&false.into(), &6.into(), &0.into()));
    for error in json["errors"].as_array().unwrap() {
        let place = format!(" --> {}:{}:{}", error["file"].as_str().unwrap(), error["line"], error["column"]);
        let shown = SIX_ERRORS.split("\n\n").find(|shown| shown.contains(&place)).unwrap();
        assert!(shown.contains(error["message"].as_str().unwrap()), "{error}");
        assert!(shown.contains(error["source"].as_str().unwrap()), "{error}");
        assert!(error["hint"].as_str().is_none_or(|hint| shown.contains(&format!("= hint: {hint}"))), "{error}");
    }
}

#[test]
fn a_misspelled_key_is_found_at_every_level() {
    let manifest = r#"{
  "version": 1,
  "wroker_files": ["main.worker"],
  "worker_files": ["main.worker"],
  "entry": {"agnet": "main"},
  "runtime": {
    "aproval_mode": "prompt",
    "limits": {"max_request": 1},
    "agent_approval_overrides": {"main": {"calls_require_aproval": true}}
  },
  "toolsets": {
    "a": {"filesystm": {}, "shell": {}},
    "b": {"filesystem": {"root": ".", "mod": "rw"}},
    "c": {"filesystem": {"roots": {"in": {"root": ".", "sufixes": [".md"]}}}},
    "d": {"shell": {"rule": [], "rules": [{"pattern": "ls", "approval": "ask", "matches": "ls"}]}},
    "e": {"mcp": {"command": "c", "arg": [], "env": {"A": {"from_env": "B", "fromenv": "C"}}}}
  }
}"#;
    let worker = "---
name: main
model: ollama:q
descripton: x
server_side_tools: [{tool_type: web_search, max_use: 1}]
model_settings: {temprature: 1}
limits: {max_request: 1}
attachment_policy: {max_attachment: 1}
---
";
    let sandbox = Sandbox::new();
    sandbox.file("project.json", manifest).file("main.worker", worker);
    let json = json(&sandbox.run(&["check", ".", "--json"]));
    let found: Vec<String> = json["errors"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|error| error["message"].as_str().unwrap().starts_with("unknown key"))
        .map(|error| {
            let (suggestion, list) = error["hint"].as_str().unwrap().split_once('?').unwrap();
            assert!(list.is_empty() || list.starts_with(" keys: "), "{error}");
            format!("{}:{} {suggestion}?", error["file"].as_str().unwrap(), error["line"])
        })
        .collect();
    let expected = [
        "project.json:3 did you mean `worker_files`?",
        "project.json:5 did you mean `agent`?",
        "project.json:7 did you mean `approval_mode`?",
        "project.json:8 did you mean `max_requests`?",
        "project.json:9 did you mean `calls_require_approval`?",
        "project.json:12 did you mean `filesystem`?",
        "project.json:13 did you mean `mode`?",
        "project.json:14 did you mean `suffixes`?",
        "project.json:15 did you mean `rules`?",
        "project.json:15 did you mean `match`?",
        "project.json:16 did you mean `args`?",
        "project.json:16 did you mean `from_env`?",
        "main.worker:4 did you mean `description`?",
        "main.worker:5 did you mean `max_uses`?",
        "main.worker:6 did you mean `temperature`?",
        "main.worker:7 did you mean `max_requests`?",
        "main.worker:8 did you mean `max_attachments`?",
    ];
    assert_eq!(found, expected);
}

/// Two agents that call each other, one of them with files and a question.
fn pair() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox
        .file("main.worker", "---\nname: main\nmodel: anthropic:claude\nentry: true\ntoolsets: [helper]\n---\nAsk.\n")
        .file(
            "helper.worker",
            "---\nname: helper\nmodel: ollama:qwen3\ntoolsets: [main, filesystem_cwd]\nschema_in: \
              {properties: {topic: {type: string}}, required: [topic]}\n---\nHelp.\n",
        );
    sandbox
}

#[test]
fn a_good_project_is_shown_on_stdout_and_what_is_worth_knowing_on_stderr() {
    let ended = pair().run(&["check", "."]);
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stdout, PAIR);
    assert_eq!(
        ended.stderr,
        "note: no key for `anthropic`, used by main\nhint: set `ANTHROPIC_API_KEY` before a run\n\n"
    );
    let with_key = pair().run_in(&["check", "."], &[("ANTHROPIC_API_KEY", "secret-key")]);
    assert_eq!((with_key.stdout.as_str(), with_key.stderr.as_str()), (PAIR, ""));
}

const PAIR: &str = "\
project  .
entry    main

agents
  helper  ollama:qwen3  (helper.worker)
    input   {topic: string}
    output  text
    tools
      main          allow  (agent)
      read_file     allow  (filesystem_cwd)
      list_files    allow  (filesystem_cwd)
      search_files  allow  (filesystem_cwd)
      write_file    ask  (filesystem_cwd)
      edit_file     ask  (filesystem_cwd)
    files
      filesystem_cwd  the working directory
    in the worst case
      reads files          helper → read_file
      writes files         helper → write_file  (asks)
      spends money         helper → main → anthropic:claude
  main  anthropic:claude  (main.worker)
    input   text and attachments
    output  text
    tools
      helper  allow  (agent)
    in the worst case
      reads files          main → helper → read_file
      writes files         main → helper → write_file  (asks)
      spends money         main → anthropic:claude

calls
  main
  └─ helper
     └─ main  ↺ cycle

ok: 2 agents, 7 tools, writes ask
next: llm-do . \"…\"
";

#[test]
fn a_good_project_as_json_and_as_a_graph() {
    let sandbox = pair();
    let ended = sandbox.run(&["check", ".", "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let json = json(&ended);
    assert_eq!(json["ok"], true);
    assert_eq!(json["entry"]["agent"], "main");
    assert_eq!(json["calls"]["main"][0], "helper");
    assert_eq!(json["cyclic"], serde_json::json!(["helper", "main"]));
    assert_eq!(json["agents"][0]["tools"][4]["verdict"], "ask");
    assert_eq!(json["agents"][1]["worst_case"]["writes_files"]["asks"], true);
    let ended = sandbox.run(&["check", ".", "--dot"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        ended.stdout,
        "digraph calls {\n  rankdir=LR;\n  node [shape=box];\n  \"helper\" [label=\"helper\\nollama:qwen3\"];\n  \
         \"main\" [label=\"main\\nanthropic:claude\" style=bold];\n  \"helper\" -> \"main\";\n  \"main\" -> \
         \"helper\";\n}\n"
    );
}

#[test]
fn every_layout_is_a_project() {
    let sandbox = Sandbox::new();
    sandbox
        .file("single/one.worker", GOOD)
        .file("plain/a.agent", GOOD)
        .file("tree/workers/main.yaml", "name: main\nmodel: ollama:q\n")
        .file("tree/workers/other/worker.yaml", "name: other\nmodel: ollama:q\n")
        .file("tree/workers/generated/made.yaml", "name: made\nmodel: ollama:q\n")
        .file("named/my.json", r#"{"version": 1, "entry": {"agent": "main"}, "agent_files": ["sub/x.worker"]}"#)
        .file("named/sub/x.worker", GOOD);
    for project in ["single/one.worker", "single", "plain", "tree", "named/my.json", "./plain/", "plain/../tree"] {
        let ended = sandbox.run(&["check", project]);
        assert_eq!(ended.code, Some(0), "{project}: {ended:?}");
    }
    let tree = json(&sandbox.run(&["check", "tree", "--json"]));
    assert_eq!(tree["agents"].as_array().unwrap().len(), 2);
    assert_eq!(tree["created"], serde_json::json!([{"name": "made", "counts": false}]), "nobody made it here");
}

#[test]
fn what_is_no_project_says_so() {
    let sandbox = Sandbox::new();
    sandbox.file("notes.txt", "hello").file("empty/readme.md", "");
    let cases = [
        ("gone", "no such file or directory"),
        ("notes.txt", "neither a manifest nor a worker file"),
        ("empty", "neither a manifest nor worker files in this directory"),
    ];
    for (project, fact) in cases {
        let ended = sandbox.run(&["check", project]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{project}");
        assert!(ended.stderr.starts_with(&format!("error: {fact}\n")), "{project}: {}", ended.stderr);
        assert!(ended.stderr.ends_with("1 error\n"), "{project}: {}", ended.stderr);
    }
}

#[test]
fn usage_errors_are_exit_2_and_on_stderr() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", GOOD);
    let cases: &[&[&str]] = &[
        &["check", ""],
        &["check", ".", "--jsno"],
        &["check", ".", "--json", "--dot"],
        &["check", ".", "-m", "claude"],
        &["check", ".", "-m", "ollama:a", "-m", "ollama:b"],
        &["check", ".", "-m", "main=ollama:a", "-m", "main=ollama:b"],
        &["check", ".", "-m", "nobody=ollama:a"],
        &["check", ".", "-m", "all=ollama:a", "-m", "all=ollama:b"],
        &["check", ".", "-a", "nobody"],
        &["check", ".", "x"],
        &["schema"],
        &["schema", "nothing"],
        &["new"],
        &["new", "x", "--template", "huge"],
        &["new", "--worker", "a b"],
        &["new", "--worker", "../x"],
        &["new", "x", "--worker", "y", "--template", "tools"],
        &[],
    ];
    for arguments in cases {
        let ended = sandbox.run(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?} {ended:?}");
        assert!(!ended.stderr.is_empty(), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["--version"], &["check", "--help"]] {
        let ended = sandbox.run(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_model_comes_from_the_flag_the_variable_or_the_configuration() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\n---\nDo it.\n");
    let model = |arguments: &[&str], variables: &[(&str, &str)]| {
        let arguments = [&["check", ".", "--json"], arguments].concat();
        json(&sandbox.run_in(&arguments, variables))["agents"][0]["model"].as_str().map(str::to_owned)
    };
    assert_eq!(model(&[], &[]), None);
    sandbox.file(
        ".config/llm-do/config.toml",
        "model = \"acme:configured\"\n[providers.acme]\nkind = \"openai-chat\"\n\
         base_url = \"http://localhost:1\"\n",
    );
    assert_eq!(model(&[], &[]).as_deref(), Some("acme:configured"));
    let variable = [("LLM_DO_MODEL", "ollama:variable")];
    assert_eq!(model(&[], &variable).as_deref(), Some("ollama:variable"));
    assert_eq!(model(&["-m", "ollama:flag"], &variable).as_deref(), Some("ollama:flag"));
    assert_eq!(model(&["-m", "main=ollama:one"], &variable).as_deref(), Some("ollama:one"));
    let wrong = sandbox.run_in(&["check", "."], &[("LLM_DO_MODEL", "cla\u{1b}ude")]);
    assert_eq!(wrong.code, Some(2));
    assert_eq!(wrong.stderr, "error: the variable `LLM_DO_MODEL`: `cla\\u{1b}ude` names no provider\n");
}

#[test]
fn mistakes_in_the_configuration_are_exit_2_and_name_the_file() {
    let cases = [
        ("modle = \"a:b\"", "unknown key `modle` in the configuration"),
        ("model = ", "not valid TOML: "),
        ("model = \"claude\"", "names no provider"),
        ("[providers.openai]\nkind = \"openai\"\nbase_url = \"x\"", "the name of a built-in provider"),
        ("[providers.a]\nkind = \"smtp\"\nbase_url = \"x\"", "expected one of `anthropic`, `openai`"),
        ("[http]\nretry = 1", "did you mean `retries`?"),
    ];
    for (text, fact) in cases {
        let sandbox = Sandbox::new();
        sandbox.file("main.worker", GOOD).file("home/config.toml", text);
        let home = sandbox.path().join("home");
        let ended = sandbox.run_in(&["check", "."], &[("LLM_DO_HOME", home.to_str().unwrap())]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{text}");
        assert!(ended.stderr.contains(fact) && ended.stderr.contains("config.toml"), "{text}: {}", ended.stderr);
        assert_eq!(sandbox.run(&["check", "."]).code, Some(0), "without that home there is no configuration");
    }
    // A configuration inside a project is never read.
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", GOOD).file("config.toml", "nonsense").file(".env", "LLM_DO_MODEL=nonsense");
    assert_eq!(sandbox.run(&["check", "."]).code, Some(0));
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let sandbox = pair();
    for arguments in [&["check", "."][..], &["check", ".", "--json"], &["schema", "project"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = sandbox.command(arguments, &[]).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let ended = ended.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {stderr}");
    }
    // A full disk is an error, and no panic either.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = sandbox.command(&["check", "."], &[]).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let ended = ended.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(stderr.lines().any(|line| line.starts_with("error: the answer could not be written: ")), "{stderr}");
}

#[test]
fn nothing_of_a_project_can_paint_over_the_terminal() {
    let sandbox = Sandbox::new();
    sandbox
        .file(
            "\u{1b}[2J\u{202e}.worker",
            "---\nname: main\nmodel: \"ollama:\u{202e}q\"\ntoolsets: [filesystem_cwd]\n---\n",
        )
        .file("\u{9b}1m/project.json", r#"{"version": 1, "entry": {"agent": "\u009b"}, "worker_files": ["\u202e"]}"#);
    let is_deceptive = |c: char| c != '\n' && llm_do::escape::is_deceptive(c);
    for project in [".", "\u{9b}1m", "\u{1b}[2J\u{202e}.worker", "\u{1b}gone"] {
        for format in [&[][..], &["--json"], &["--dot"]] {
            let ended = sandbox.run(&[&["check", project], format].concat());
            let shown = ended.stdout + &ended.stderr;
            assert!(!shown.contains(is_deceptive), "{project:?} {format:?}: {shown:?}");
        }
    }
}

#[test]
fn a_misspelled_key_of_the_entry_is_one_mistake() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\nmodel: ollama:x\n---\nx\n");
    for (entry, fact) in
        [(r#"{"agnet": "main"}"#, "unknown key `agnet` in `entry`"), (r#"{"agent": 7}"#, "expected a name")]
    {
        sandbox
            .file("project.json", &format!(r#"{{"version": 1, "entry": {entry}, "worker_files": ["main.worker"]}}"#));
        let ended = sandbox.run(&["check", "."]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains(fact) && ended.stderr.ends_with("\n1 error\n"), "{}", ended.stderr);
    }
}

#[test]
fn roots_are_shown_with_their_bounds() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\nmodel: ollama:qwen3\ntoolsets: [box, filesystem_cwd_ro]\n---\nx\n");
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "toolsets": {
            "desk": {"filesystem": {"roots": {"in": {"root": "data", "mode": "ro"},
                "out": {"root": "made", "mode": "rw", "suffixes": [".md"], "max_file_bytes": 9}}}},
            "box": {"use": "desk", "prefix": "box_"}}}"#,
    );
    sandbox.file("data/a.md", "");
    let Ended { code, stdout, stderr } = sandbox.run(&["check", "."]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let expected = "    files
      box in/  ./data, read-only
      box out/  ./made, only .md files, at most 9 bytes a file
      filesystem_cwd_ro  the working directory, read-only
";
    assert!(stdout.contains(expected), "{stdout}");
    let json: Value = serde_json::from_str(&sandbox.run(&["check", ".", "--json"]).stdout).unwrap();
    let root = &json["agents"][0]["files"][1];
    assert_eq!((&root["root"], &root["mode"]), (&Value::from("out"), &Value::from("rw")), "{root}");
    assert_eq!((&root["base"], &root["directory"]), (&Value::from("project"), &Value::from("made")), "{root}");
}

#[test]
fn a_directory_that_cannot_be_looked_into_is_not_taken_for_an_empty_one() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    sandbox.file("p/main.worker", GOOD).file("q/main.worker", GOOD).file("q/workers/other.yaml", "");
    let close = |mode| {
        for path in ["p", "q/workers"] {
            std::fs::set_permissions(sandbox.path().join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    close(0o311);
    for (project, place) in [("p", "p/"), ("q", "q/workers")] {
        let said = support::wait(&mut sandbox.unprivileged(&["check", project]));
        let expected = format!("error: cannot be read: Permission denied (os error 13)\n--> {place}\n");
        assert!(said.code == Some(2) && said.stderr.contains(&expected), "{said:?}");
        assert!(said.stderr.ends_with("\n1 error\n"), "{said:?}");
    }
    close(0o755);
}

#[test]
fn a_run_tells_programs_the_mistakes_of_a_project_apart() {
    let ended = six_mistakes().run(&["run", ".", "hi", "--output-format", "json"]);
    assert_eq!(ended.code, Some(2));
    let error = &json(&ended)["error"];
    let message = "there is no agent `mian` to start with; unknown key `max_dept` in `runtime`; unknown provider `antropic` in \
                   the model `antropic:claude-haiku-4-5`; 3 more";
    assert_eq!((error["message"].as_str(), &error["hint"]), (Some(message), &Value::Null));
    let place = &error["places"][4];
    assert_eq!((&place["file"], &place["line"], &place["column"]), (&"helper.worker".into(), &5.into(), &13.into()));
    assert_eq!(place["message"], "agent `helper` has no tool `write_fil`");
    assert!(place["hint"].as_str().unwrap().starts_with("did you mean `write_file`?"), "{place}");
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\nmodel: ollama:q\ntoolset: [x]\n---\nDo it.\n");
    let only = &json(&sandbox.run(&["run", ".", "hi", "--output-format", "json"]))["error"];
    assert_eq!(only["message"], "unknown key `toolset` in a worker file");
    assert!(only["hint"].as_str().unwrap().starts_with("did you mean `toolsets`?"), "{only}");
    assert_eq!(only["places"][0]["line"], 4);
}

#[test]
fn a_journal_is_never_written_over_something_else() {
    let sandbox = Sandbox::new();
    sandbox.file("p/main.worker", GOOD);
    let ended = sandbox.run(&["run", "p", "hi", "--journal", "p/main.worker"]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(ended.stderr, "error: p/main.worker is not a journal; choose a new name\n");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("p/main.worker")).unwrap(), GOOD);
}

#[test]
fn enums_are_shown_as_their_words() {
    let sandbox = Sandbox::new();
    let schema = "{properties: {level: {enum: [low, high]}, kind: {const: x}, size: {type: [integer, 'null']}}, required: [level]}";
    sandbox.file("main.worker", &format!("---\nname: main\nmodel: ollama:q\nschema_out: {schema}\n---\nDo it.\n"));
    let ended = sandbox.run(&["check", "."]);
    assert!(
        ended.stdout.contains("    output  {kind?: x, level: low | high, size?: integer | null}\n"),
        "{}",
        ended.stdout
    );
}

#[test]
fn settings_are_said_to_be_where_they_are() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", GOOD);
    for arguments in [&["config"][..], &["run", ".", "--config", "x"]] {
        let ended = sandbox.run(arguments);
        let file = sandbox.path().join(".config/llm-do/config.toml");
        let said = format!("settings are in {}, and docs/configuration.md describes them", file.display());
        assert!(ended.code == Some(2) && ended.stderr.contains(&said), "{arguments:?}: {}", ended.stderr);
    }
}
