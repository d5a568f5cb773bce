//! Servers as others write them: with the official library for Python, and one from npm.

use std::process::Command;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

use crate::servers::{self, Listening};
use crate::session::Run;
use crate::{calls, command, project, python, run};

const SERVER: &str = include_str!("python_server.py");

/// The results and errors of these calls of tools of a server, in order, and all events.
#[track_caller]
fn called(server: &Value, script: &[&str]) -> (Vec<String>, Vec<Value>) {
    let sandbox = project("toolsets: [desk]", &json!({"desk": {"mcp": server}}), &calls(script));
    sandbox.file("server.py", SERVER);
    let (events, result) = run(&sandbox, &["--json", "--approve-all"]).events();
    assert_eq!(result["exit_code"], 0, "{result}");
    let returned = events.iter().filter(|event| event["type"] == "tool_returned");
    let words = returned.map(|event| event["result"].as_str().or(event["error"].as_str()).unwrap().to_owned());
    (words.collect(), events)
}

fn messages(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["message"].as_str()).collect()
}

#[track_caller]
fn check_python(server: &Value) -> Vec<Value> {
    let script = ["{ add: { a: 2, b: 40 } }", "{ picture: {} }", "{ steps: {} }", "{ confirm: {} }", "{ fail: {} }"];
    let (results, events) = called(server, &script);
    assert_eq!(serde_json::from_str::<Value>(&results[0]).unwrap(), json!({"sum": 42}));
    assert!(results[1].starts_with("[image"), "a file: {}", results[1]);
    assert!(results[2].starts_with("done"), "{}", results[2]);
    // It asks as the revisions before did, and the newest one, which is spoken, has no such way.
    assert!(results[3].contains("no back-channel"), "{}", results[3]);
    assert!(results[4].contains("no such shelf"), "{}", results[4]);
    assert_eq!(messages(&events), ["half way"]);
    events
}

#[test]
fn a_server_in_python_is_spoken_to_over_stdio() {
    let events = check_python(&json!({"command": python::with_mcp(), "args": ["server.py", "stdio"]}));
    let words = |event: &Value| event["text"].as_str().is_some_and(|text| text == "info: a word on the way\n");
    assert!(events.iter().any(|event| event["type"] == "process_output" && words(event)), "its log is shown");
}

#[test]
fn a_server_in_python_is_spoken_to_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("server.py");
    std::fs::write(&file, SERVER).unwrap();
    let server = Listening::start(Command::new(python::with_mcp()).arg(&file).arg("http"));
    check_python(&json!({"url": format!("http://127.0.0.1:{}/mcp", server.port)}));
}

#[track_caller]
fn check_everything(server: &Value) {
    let script = [
        "{ echo: { message: hello } }",
        "{ get-sum: { a: 2, b: 40 } }",
        "{ get-tiny-image: {} }",
        "{ get-structured-content: { location: Chicago } }",
        "{ get-annotated-message: { messageType: success } }",
        "{ get-resource-links: { count: 2 } }",
        "{ get-resource-reference: { resourceType: Text, resourceId: 1 } }",
        "{ trigger-long-running-operation: { duration: 1, steps: 2 } }",
        "{ get-sum: { a: two, b: 40 } }",
    ];
    let (results, events) = called(server, &script);
    assert_eq!(results[..2], ["Echo: hello", "The sum of 2 and 40 is 42."]);
    assert!(results[2].contains("[image]"), "{}", results[2]);
    assert_eq!(results[3].matches("temperature").count(), 1, "said once: {}", results[3]);
    assert!(results[4].contains("success"), "{}", results[4]);
    assert_eq!(results[5].matches("\n[resource ").count(), 2, "{}", results[5]);
    assert!(results[6].contains("<resource uri=\"demo://"), "{}", results[6]);
    assert!(results[7].contains("Long running operation completed"), "{}", results[7]);
    assert_eq!(results.len(), 8, "arguments that do not fit never reach it");
    let progress = events.iter().filter(|event| event["type"] == "tool_progressed");
    assert_eq!(progress.map(|event| event["progress"].as_f64().unwrap()).collect::<Vec<_>>(), [1.0, 2.0]);
}

#[test]
fn the_server_from_npm_is_spoken_to_over_stdio() {
    check_everything(&json!({"command": "node", "args": [servers::everything(), "stdio"]}));
}

#[test]
fn the_server_from_npm_is_spoken_to_over_http() {
    let (server, port) = Listening::everything();
    check_everything(&json!({"url": format!("http://127.0.0.1:{port}/mcp")}));
    drop(server);
}

#[test]
fn its_tools_and_pictures_are_what_every_provider_takes() {
    let server = json!({"mcp": {"command": "node", "args": [servers::everything(), "stdio"]}});
    let sandbox = project("toolsets: [everything]", &json!({"everything": server}), "");
    let path = std::env::var("PATH").unwrap();
    for model in ["anthropic:claude-haiku-4-5", "openai:gpt-5", "openai-chat:gpt-5", "google:gemini-2.5-flash"] {
        let script = FakeScript::new()
            .reply(FakeReply::calls([
                FakeCall::new("get-tiny-image", json!({})),
                FakeCall::new("get-sum", json!({"a": 1, "b": 2})),
            ]))
            .reply(FakeReply::text("A logo, and 3."));
        let fake = FakeLlm::start(script);
        let words = ["run", ".", "Look", "--trust", "--approve-all", "-m", model];
        let answer = Run::of(&sandbox, &words).asking(&fake).with("PATH", path.as_str()).answer();
        assert_eq!(answer, "A logo, and 3.\n");
        assert_eq!(fake.violations(), [], "{model}");
        let body = fake.requests()[1].body.to_string();
        assert!(body.contains("The sum of 1 and 2 is 3.") && body.contains("iVBORw0KGgo"), "{model}: {body}");
    }
}

#[test]
fn the_server_from_npm_is_listed() {
    let server = json!({"mcp": {"command": "node", "args": [servers::everything(), "stdio"]}});
    let sandbox = project("toolsets: [everything]\napproval: { echo: allow }", &json!({"everything": server}), "");
    let text = command(&sandbox, "check", &["-m", "ollama:q", "--connect"]).ended().stdout;
    assert!(text.contains("      echo                            allow  (everything)\n"), "{text}");
    assert!(text.contains("      get-sum                         ask  (everything)\n"), "{text}");
}
