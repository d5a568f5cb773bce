//! Where keys come from, as a run sees it.
#![allow(clippy::unwrap_used, reason = "the whole file is a test, its helpers included")]

mod support;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use support::Sandbox;

fn authorizations(fake: &FakeLlm) -> Vec<Option<String>> {
    fake.requests().iter().map(|request| request.headers.get("authorization").map(str::to_owned)).collect()
}

fn provider(name: &str, fake: &FakeLlm, script: &str) -> String {
    let address = fake.openai_url();
    format!(
        "[providers.{name}]\nkind = 'openai-chat'\nbase_url = '{address}'\napi_key_cmd = ['sh', '-c', '{script}']\n"
    )
}

/// A project of two agents with a provider each, of which one is asked.
fn two_agents(config: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file(".config/llm-do/config.toml", config);
    sandbox.file("main.worker", "---\nname: main\nmodel: acme:m\n---\nGreet.\n");
    sandbox.file("other.worker", "---\nname: other\nmodel: vault:m\n---\nNever asked.\n");
    sandbox
}

#[test]
fn a_command_for_a_key_runs_once_and_only_when_the_key_is_needed() {
    // The empty reply is asked for again: two requests with one key.
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("")).reply(FakeReply::text("Hello.")));
    let config = [
        provider("acme", &fake, "echo acme >> ran; echo hunter1; echo hunter2 >&2"),
        provider("vault", &fake, "echo vault >> ran; echo hunter3"),
    ];
    let sandbox = two_agents(&config.concat());
    let ended = sandbox.run(&["run", ".", "Hi"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Hello.\n"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hunter"), "{}", ended.stderr);
    assert_eq!(sandbox.tree()[std::path::Path::new("ran")], "acme\n");
    assert_eq!(authorizations(&fake), vec![Some("Bearer hunter1".to_owned()); 2]);
    fake.assert_finished();
}

#[test]
fn a_command_that_gives_no_key_is_the_providers_trouble() {
    let fake = FakeLlm::start(FakeScript::new());
    let config =
        [provider("acme", &fake, "echo hunter1; echo hunter2 >&2; exit 7"), provider("vault", &fake, "exit 8")];
    let ended = two_agents(&config.concat()).run(&["run", ".", "Hi"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    assert!(ended.stderr.contains("`api_key_cmd` of `acme` ended with exit status: 7"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hunter"), "{}", ended.stderr);
    assert_eq!(fake.stats().connections, 0);
}

#[test]
fn a_key_that_is_not_always_needed_is_sent_if_it_is_there() {
    for (key, expected) in [(None, None), (Some("hunter1"), Some("Bearer hunter1".to_owned()))] {
        let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Hello.")).accept_missing_key());
        let sandbox = Sandbox::new();
        sandbox.file("main.worker", "---\nname: main\nmodel: ollama:qwen3\n---\nGreet.\n");
        let address = fake.url();
        let variables: Vec<(&str, &str)> =
            [("OLLAMA_HOST", address.as_str())].into_iter().chain(key.map(|key| ("OLLAMA_API_KEY", key))).collect();
        let ended = sandbox.run_in(&["run", "main.worker", "Hi"], &variables);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Hello.\n"), "{}", ended.stderr);
        assert_eq!(authorizations(&fake), [expected]);
        let checked = sandbox.run_in(&["check", "main.worker"], &variables);
        assert!(!checked.stderr.contains("OLLAMA_API_KEY") && checked.code == Some(0), "{}", checked.stderr);
    }
}

#[test]
fn a_question_that_shows_a_key_is_written_down_without_it_and_can_be_answered_later() {
    const KEY: &str = "sk-live-0123456789abcdef";
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nx\n");
    sandbox.file("notes.txt", &format!("before\nkey {KEY}\n"));
    sandbox.file(
        "script.yaml",
        "- { round: 1, call: { write_file: { path: notes.txt, content: after } } }\n- say: done\n",
    );
    let key = [("OPENAI_API_KEY", KEY)];
    let words = ["main.worker", "hi", "-p", "-m", "scripted:script.yaml", "--journal", "run.journal", "--json"];
    let suspended = sandbox.run_in(&words, &key);
    assert_eq!(suspended.code, Some(4), "{}", suspended.stderr);
    let journal = std::fs::read_to_string(sandbox.path().join("run.journal")).unwrap();
    for (place, text) in [("stdout", &suspended.stdout), ("stderr", &suspended.stderr), ("journal", &journal)] {
        assert!(!text.contains(KEY), "{place}: {text}");
    }
    assert!(journal.contains("- key [redacted]"), "{journal}");
    let result: serde_json::Value = serde_json::from_str(suspended.stdout.lines().last().unwrap()).unwrap();
    let id = result["pending"][0]["id"].as_str().unwrap();
    let resumed = sandbox.run_in(&["resume", "run.journal", "-p", "--approve", &id[..12]], &key);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), "done\n"), "{}", resumed.stderr);
    assert_eq!(std::fs::read_to_string(sandbox.path().join("notes.txt")).unwrap(), "after");
}

#[test]
fn a_key_of_a_command_that_a_tool_returns_is_told_to_nobody() {
    const KEY: &str = "hunter-0123456789abcdef";
    let read = FakeCall::new("read_file", serde_json::json!({"path": "notes.txt"}));
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::calls([read])).reply(FakeReply::text("Read.")));
    let sandbox = two_agents(&provider("acme", &fake, &format!("echo {KEY}")));
    std::fs::remove_file(sandbox.path().join("other.worker")).unwrap();
    sandbox.file("main.worker", "---\nname: main\nmodel: acme:m\ntoolsets: [filesystem_cwd]\n---\nRead.\n");
    sandbox.file("notes.txt", &format!("the key is {KEY}, is it?\n"));
    let ended = sandbox.run(&["run", ".", "Hi", "-vv", "--json", "--journal", "run.journal"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    fake.assert_finished();
    assert_eq!(authorizations(&fake), vec![Some(format!("Bearer {KEY}")); 2]);
    let sent = fake.requests().last().unwrap().body.to_string();
    let journal = std::fs::read_to_string(sandbox.path().join("run.journal")).unwrap();
    for (place, text) in [("sent", &sent), ("stdout", &ended.stdout), ("journal", &journal)] {
        assert!(text.contains("the key is [redacted], is it?"), "{place}: {text}");
    }
    for (place, text) in [("sent", &sent), ("stdout", &ended.stdout), ("stderr", &ended.stderr), ("journal", &journal)]
    {
        assert!(!text.contains(KEY), "{place}: {text}");
    }
}
