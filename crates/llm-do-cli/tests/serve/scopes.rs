//! Scopes: many at once, many turns, what they start with, and on whose behalf.

use serde_json::{Value, json};

use crate::client::Client;
use crate::support::Sandbox;
use crate::{WRITER, python, sandbox};

#[test]
fn a_scope_keeps_what_was_said_and_tells_what_happened_before_its_answers() {
    let sandbox = sandbox("", "- {say: '{{ heard }} is reply {{ round }}'}");
    let mut client = Client::start(&sandbox);
    let opened = client.result("open", &json!({"project": "main.worker"}));
    assert_eq!((&opened["scope"], &opened["agent"]), (&json!(1), &json!("main")));
    assert_eq!(opened["model"], "scripted:script.yaml");
    for (input, output) in [("one", "one is reply 1"), ("two", "two is reply 2")] {
        let turned = client.result("turn", &json!({"scope": 1, "input": input}));
        assert_eq!(turned["output"], output);
        assert_eq!(turned["messages"].as_array().unwrap().len(), 2, "those of this turn");
        let events: Vec<Value> = client.heard.drain(..).map(|message| message["params"]["event"].clone()).collect();
        let told: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let whole = ["user_message", "request_started", "text_delta", "request_finished", "text_complete"];
        let told = if input == "one" { &told[1..] } else { &told };
        assert_eq!(told, whole, "all of it, before the answer");
    }
    let closed = client.result("close", &json!({"scope": 1}));
    assert_eq!(
        (&closed["trace"][0]["output"], &closed["usage"]["total"]["requests"]),
        (&json!("two is reply 2"), &json!(2))
    );
    assert_eq!(client.heard.pop().unwrap()["params"]["event"]["type"], "call_finished");
    client.ends_well();
}

#[test]
fn a_client_is_told_how_the_reply_ended() {
    let sandbox = sandbox("", "- {heard: cut, say: Half an, finish: length}\n- say: All of it");
    let mut client = Client::start(&sandbox);
    let scope = client.open(&json!({}));
    assert_eq!(client.result("turn", &json!({"scope": scope, "input": "x"}))["finish"], "stop");
    let error = client.error("turn", &json!({"scope": scope, "input": "cut"}));
    assert_eq!((&error["data"]["finish"], &error["data"]["partial"]), (&json!("length"), &json!("Half an")));
    assert_eq!((&error["data"]["kind"], &error["data"]["exit_code"]), (&json!("failed"), &json!(1)));
    client.ends_well();
}

#[test]
fn clients_hear_only_what_they_want() {
    let sandbox = sandbox("", "- say: hi");
    for (wanted, deltas, facts) in [("all", true, true), ("facts", false, true), ("none", false, false)] {
        let mut client = Client::start(&sandbox);
        let scope = client.open(&json!({"events": wanted}));
        client.turn(scope, "x");
        let heard = |kind: &str| client.heard.iter().any(|message| message["params"]["event"]["type"] == kind);
        assert_eq!((heard("text_delta"), heard("text_complete")), (deltas, facts), "{wanted}");
        client.ends_well();
    }
}

#[test]
fn scopes_do_not_wait_for_each_other_and_share_nothing() {
    let sandbox = sandbox("toolsets: [filesystem_cwd]", WRITER);
    let mut client = Client::start(&sandbox);
    let (first, second) = (client.open(&json!({})), client.open(&json!({})));
    let waiting = client.ask("turn", &json!({"scope": first, "input": "write"}));
    let question = client.question();
    // While the first one waits for an answer, the second takes turns; another turn of the first has to wait.
    assert_eq!(client.turn(second, "hello"), "You said hello");
    let error = client.error("turn", &json!({"scope": first, "input": "more"}));
    assert_eq!(error["message"], "a turn of this scope is under way");
    client.decide(&question, &json!({"approved": true, "remember": "tool"}));
    assert_eq!(client.answer(waiting)["result"]["output"], "Result: wrote 2 characters to out.txt");
    let asks = client.ask("turn", &json!({"scope": second, "input": "other"}));
    let question = client.question();
    assert_eq!(question["params"]["scope"], second, "an approval is for its own session");
    client.decide(&question, &json!({"approved": false, "end_run": true}));
    client.answer(asks);
    client.result("close", &json!({"scope": first}));
    assert_eq!(client.turn(second, "hello"), "You said hello");
    client.ends_well();
}

#[test]
fn inputs_are_what_the_command_line_takes() {
    let sandbox = sandbox(
        "schema_in: {type: object, required: [topic], properties: {topic: {type: string}}}\nprompt: 'About {{ topic }}'",
        "- {say: '{{ heard }}'}",
    );
    sandbox
        .file("plain.worker", "---\nname: plain\nmodel: scripted:script.yaml\n---\nx\n")
        .file("notes.md", "the notes");
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {"agent": "main", "input": {"topic": "rain"}}, "worker_files": ["main.worker", "plain.worker"]}"#,
    );
    let mut client = Client::start(&sandbox);
    let typed = client.open(&json!({"project": "."}));
    let plain = client.open(&json!({"project": ".", "worker": "plain"}));
    let data = "aGVsbG8=";
    for (scope, params, output) in [
        (typed, json!({}), "About rain"),
        (typed, json!({"input": {"topic": "tides"}}), "About tides"),
        (typed, json!({"input": "tides"}), "About tides"),
        (plain, json!({"input": "x", "attachments": ["notes.md"]}), "x"),
        (plain, json!({"input": {"input": "y", "attachments": ["notes.md"]}}), "y"),
        (plain, json!({"input": "z", "attachments": [{"name": "a.txt", "data": data}]}), "z"),
    ] {
        let mut all = params.clone();
        all["scope"] = json!(scope);
        let turned = client.result("turn", &all);
        assert!(turned["output"].as_str().unwrap().starts_with(output), "{params}: {turned}");
        let has_file = params.to_string().contains("attachments");
        assert_eq!(turned["messages"][0]["parts"].as_array().unwrap().len(), if has_file { 2 } else { 1 }, "{params}");
    }
    for (params, words) in [
        (json!({"input": "x", "attachments": ["none.md"]}), "does not exist"),
        (json!({"input": "x", "attachments": [{"name": "a.txt", "data": "?"}]}), "is not base64"),
        (json!({"input": "x", "attachments": [{"name": "a.bin", "data": "AAEC"}]}), "is neither text"),
    ] {
        let mut all = params.clone();
        all["scope"] = json!(plain);
        let error = client.error("turn", &all);
        assert_eq!(error["data"]["exit_code"], 2, "{params}: {error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{params}: {error}");
    }
    // What an input names outside the project is asked for; what the program attaches itself is not.
    let turn = client.ask("turn", &json!({"scope": plain, "input": {"input": "x", "attachments": ["/etc/hostname"]}}));
    let question = client.question();
    assert_eq!(question["params"]["tool"], "attach");
    client.decide(&question, &json!({"approved": false, "note": "no"}));
    assert_eq!(client.answer(turn)["error"]["data"]["kind"], "approval");
    client.ends_well();
}

#[test]
fn models_are_chosen_by_the_program_where_files_leave_them_open() {
    let sandbox = sandbox("", "- say: from the file");
    sandbox.file("open.worker", "---\nname: open\n---\nx\n").file("other.yaml", "- say: from the program");
    let mut client = Client::start(&sandbox);
    for (params, output) in [
        (json!({"project": "main.worker", "model": "scripted:other.yaml"}), "from the file"),
        (json!({"project": "main.worker", "models": {"main": "scripted:other.yaml"}}), "from the program"),
        (json!({"project": "open.worker", "model": "scripted:other.yaml"}), "from the program"),
    ] {
        let scope = client.open(&params);
        assert_eq!(client.turn(scope, "x"), output, "{params}");
    }
    let error = client.error("open", &json!({"project": "open.worker"}));
    assert!(error["message"].as_str().unwrap().contains("no model for agent `open`"), "{error}");
    client.ends_well();
}

/// Two agents; `main` may call only `friend`.
fn family() -> Sandbox {
    let sandbox = sandbox("allow_workers: [friend]", WRITER);
    for name in ["friend", "stranger"] {
        let keys = "model: scripted:script.yaml\ntoolsets: [filesystem_cwd]";
        sandbox.file(&format!("{name}.worker"), &format!("---\nname: {name}\n{keys}\n---\nx\n"));
    }
    sandbox
}

#[test]
fn a_call_for_another_agent_keeps_its_depth_and_its_list() {
    let sandbox = family();
    let mut client = Client::start(&sandbox);
    let open = |agent: &str, caller: Value| json!({"project": ".", "agent": agent, "events": "none", "caller": caller});
    for (agent, caller, words) in [
        ("stranger", json!({"agent": "main"}), "`main` may not call `stranger`"),
        ("friend", json!({"agent": "main", "allow_workers": []}), "`main` may not call `friend`"),
        ("friend", json!({"agent": "main", "depth": 4}), "that would be depth 5, and `max_depth` is 5"),
    ] {
        let error = client.error("open", &open(agent, caller.clone()));
        assert!(error["message"].as_str().unwrap().contains(words), "{agent} {caller}: {error}");
    }
    for (agent, caller) in [
        ("friend", json!({"agent": "main", "depth": 1})),
        ("stranger", json!({"agent": "main", "allow_workers": ["*"]})),
        ("stranger", json!({"agent": "elsewhere"})),
    ] {
        let scope = client.result("open", &open(agent, caller.clone()))["scope"].clone();
        let turn = client.ask("turn", &json!({"scope": scope, "input": "write"}));
        let question = client.question();
        assert_eq!(question["params"]["path"], json!([caller["agent"], agent]));
        client.decide(&question, &json!({"approved": true}));
        client.answer(turn);
        let closed = client.result("close", &json!({"scope": scope}));
        assert_eq!(closed["trace"][0]["depth"], caller["depth"].as_u64().unwrap_or(0) + 1);
    }
    client.ends_well();
}

#[test]
fn created_agents_are_written_with_defaults_and_can_be_started() {
    let sandbox = sandbox(
        "toolsets: [dynamic_agents, filesystem_cwd_ro]",
        "\
- {agent: main, round: 1, call: {agent_create: {name: made, instructions: Rhyme.}}}
- {agent: main, say: done}
- {say: 'I am {{ agent }}'}
",
    );
    sandbox.file("project.json", r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"]}"#);
    let mut client = Client::start(&sandbox);
    let spec = json!({"name": "poet", "instructions": "Rhyme.", "description": "Rhymes."});
    let defaults = json!({"toolsets": ["filesystem_cwd_ro"], "allow_workers": ["main"], "attachment_policy": {"max_attachments": 1}});
    let create = json!({"project": ".", "spec": spec, "defaults": defaults});
    assert_eq!(client.result("create", &create), json!({"path": "workers/generated/poet.yaml"}));
    let text = std::fs::read_to_string(sandbox.path().join("workers/generated/poet.yaml")).unwrap();
    let expected = "name: \"poet\"\ndescription: \"Rhymes.\"\ntoolsets: [\"filesystem_cwd_ro\"]\nallow_workers: [\"main\"]\n\
                    attachment_policy: {max_attachments: 1}\ninstructions: \"Rhyme.\"\n";
    assert_eq!(text, expected);
    assert_eq!(client.error("create", &create)["message"], "the agent `poet` exists; `force` replaces it");
    let mut forced = create.clone();
    forced["force"] = true.into();
    client.result("create", &forced);
    let scope = client.open(&json!({"project": ".", "agent": "poet", "model": "scripted:script.yaml"}));
    assert_eq!(client.turn(scope, "x"), "I am poet");
    let defaults = json!({"model": "ollama:qwen3", "toolsets": ["filesystem_cwd_ro", "shell_readonly"]});
    let scope = client.open(&json!({"project": ".", "approval_mode": "approve_all", "creation_defaults": defaults}));
    assert_eq!(client.turn(scope, "x"), "done");
    let text = std::fs::read_to_string(sandbox.path().join("workers/generated/made.yaml")).unwrap();
    assert!(text.contains("model: \"ollama:qwen3\"\ntoolsets: [\"filesystem_cwd_ro\"]\n"), "{text}");
    client.ends_well();
}

/// A project whose code leaves a trace when it is imported.
fn with_code() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("project.json", r#"{"version": 1, "entry": {}, "python_files": ["start.py"]}"#).file(
        "start.py",
        "from llm_do.runtime import EntrySpec\n\
         open('imported', 'w').close()\n\
         async def main(args, ctx):\n    return {'heard': args.input}\n\
         start = EntrySpec(name='start', main=main)\n",
    );
    sandbox
}

fn python_client(sandbox: &Sandbox) -> Client {
    let mut command = sandbox.command(&["serve", "--stdio"], &[]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("XDG_CACHE_HOME", python::cache());
    Client::of(command)
}

#[test]
fn a_project_with_code_is_opened_for_whoever_agrees_to_it() {
    let sandbox = with_code();
    let mut command = sandbox.command(&["serve", "--stdio"], &[("LLM_DO_TRUST", "")]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("XDG_CACHE_HOME", python::cache());
    let mut client = Client::of(command);
    let imported = sandbox.path().join("imported");
    let wrong = "0".repeat(32);
    let mut digest = Value::Null;
    for open in
        [json!({"project": "."}), json!({"project": ".", "trust": false}), json!({"project": ".", "trust": wrong})]
    {
        let error = client.error("open", &open);
        assert_eq!((&error["message"], &error["data"]["exit_code"]), (&json!("the project is not trusted"), &json!(4)));
        let items = &error["data"]["untrusted"];
        assert_eq!(
            (&items[0]["class"], &items[0]["words"], &items[0]["source"], &items[1]),
            (&json!("run"), &json!("start.py of this project"), &json!("Python"), &Value::Null)
        );
        digest = error["data"]["digest"].clone();
    }
    assert_eq!(client.error("open", &json!({"project": ".", "trust": "yes"}))["data"]["exit_code"], 2);
    assert!(!imported.exists(), "nothing of it has run");
    let opened = client.result("open", &json!({"project": ".", "trust": digest}));
    assert_eq!((&opened["agent"], &opened["model"]), (&json!("start.py:start"), &Value::Null));
    assert!(imported.exists());
    client.result("open", &json!({"project": ".", "trust": true}));
    client.error("open", &json!({"project": "."}));
    assert!(!sandbox.path().join(".local/state/llm-do/trust").exists(), "nothing is kept");
    let kept = sandbox.run_in(&["check", ".", "--trust"], &[("LLM_DO_TRUST", "")]);
    assert_eq!(kept.code, Some(0), "{}", kept.stderr);
    client.result("open", &json!({"project": ".", "trust": false}));
    client.ends_well();
}

#[test]
fn an_entry_function_takes_turns_too() {
    let sandbox = with_code();
    let mut client = python_client(&sandbox);
    let scope = client.result("open", &json!({"project": ".", "events": "none"}))["scope"].clone();
    for input in ["one", "two"] {
        let turned = client.result("turn", &json!({"scope": scope, "input": input}));
        assert_eq!((&turned["output"], &turned["messages"]), (&json!({"heard": input}), &json!([])));
        assert_eq!(turned["trace"].as_array().unwrap().len(), 1, "{turned}");
    }
    let closed = client.result("close", &json!({"scope": scope}));
    assert_eq!(closed["trace"].as_array().unwrap().len(), 2);
    client.ends_well();
}
