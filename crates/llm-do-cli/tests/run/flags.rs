//! Flags that change what a run is: without sending, without tools, with more of its errors.

use fake_llm::{FakeLlm, FakeProviderError, FakeReply, FakeScript, InjectedFault, On};
use serde_json::{Value, json};

use crate::MAIN;
use crate::session::{KEY, Run, check_result};
use crate::support::Sandbox;

fn tooled() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd_ro]\n---\nBe brief.\n");
    sandbox
}

#[test]
fn a_dry_run_shows_the_first_request_and_sends_nothing() {
    let sandbox = tooled();
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("never")));
    let run = |model, flags: &[&'static str]| {
        let arguments = [&["main.worker", "hi", "--dry-run", "-m", model], flags].concat();
        Run::new(&sandbox, &arguments).asking(&fake).answer()
    };
    let text = run("anthropic:claude-haiku-4-5", &[]);
    let (head, body) = text.split_once("\n\n").unwrap();
    let expected = format!(
        "POST {}/v1/messages\nanthropic-version: 2023-06-01\ncontent-type: application/json\nx-api-key: (hidden)",
        fake.anthropic_url()
    );
    assert_eq!(head, expected);
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["model"], &body["tools"][0]["name"]), (&json!("claude-haiku-4-5"), &json!("read_file")));
    for model in ["openai:gpt-x", "openai-chat:gpt-x", "google:gemini-x"] {
        let text = run(model, &[]);
        assert!(text.starts_with("POST http://") && text.contains("(hidden)"), "{model}: {text}");
    }
    for flags in [&["--json"][..], &["--output-format", "json"]] {
        let result: Value = serde_json::from_str(&run("anthropic:claude-haiku-4-5", flags)).unwrap();
        check_result(&result);
        assert_eq!((&result["exit_code"], &result["output"]["body"]), (&json!(0), &body));
        assert_eq!(result["output"]["headers"]["x-api-key"], "(hidden)");
    }
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn a_dry_run_needs_no_key_and_works_with_a_script() {
    let sandbox = tooled();
    sandbox.file("script.yaml", "- say: never\n");
    let text = Run::new(&sandbox, &["main.worker", "hi", "--dry-run", "-m", "anthropic:claude-haiku-4-5"]).answer();
    assert!(text.contains("\nx-api-key: (missing)\n"), "{text}");
    let text = Run::new(&sandbox, &["main.worker", "hi", "--dry-run", "-m", "scripted:script.yaml"]).answer();
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&told["model"], &told["instructions"]), (&json!("scripted:script.yaml"), &json!("Be brief.")));
    assert_eq!(told["messages"][0]["parts"][0]["text"], "hi");
}

#[test]
fn without_tools_nothing_is_offered() {
    let sandbox = tooled();
    sandbox.file(
        "main.worker",
        "---\nname: main\ntoolsets: [filesystem_cwd, child]\nserver_side_tools: [ { tool_type: web_search } ]\n---\nx\n",
    );
    sandbox.file("child.worker", MAIN.replace("main", "child").as_str());
    let text = Run::new(&sandbox, &[".", "hi", "--dry-run", "--no-tools", "-m", "anthropic:claude-haiku-4-5"]).answer();
    let body: Value = serde_json::from_str(text.split_once("\n\n").unwrap().1).unwrap();
    assert!(body.get("tools").is_none_or(|tools| tools.as_array().unwrap().is_empty()), "{body}");
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd, child]\n---\nx\n");
    sandbox.file("script.yaml", "- { round: 1, call: { read_file: { path: x } } }\n- say: \"{{ result }}\"\n");
    let answer = Run::new(&sandbox, &[".", "hi", "--no-tools", "-m", "scripted:script.yaml"]).answer();
    assert_eq!(answer, "error: there is no tool `read_file`; there are no tools\n");
}

#[test]
fn debug_tells_all_that_is_known_of_an_error() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", MAIN);
    let fault = InjectedFault::Failure(FakeProviderError::new(404, "no such model"));
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("never")).fault(On::Every, fault));
    let said = |flags: &[&'static str]| {
        let arguments = [&["main.worker", "hi", "-m", "anthropic:claude-x"], flags].concat();
        Run::new(&sandbox, &arguments).asking(&fake).failure(3)
    };
    assert!(!said(&[]).contains("debug: "));
    let debug = said(&["--debug"]);
    assert!(debug.contains("\ndebug: Model { agent: \"main\", error: FixRequest(Fault {"), "{debug}");
    assert!(!debug.contains(KEY), "{debug}");
}

#[test]
fn usage_errors_are_json_for_whoever_reads_json() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["run", "x", "--json", "--bogus"][..],
        &["x", "--output-format", "json", "--max-requests", "none"],
        &["chat", "x", "--output-format=stream-json", "--approve-all", "--reject-all"],
    ] {
        let ended = Run::of(&sandbox, arguments).ended();
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let result: Value = serde_json::from_str(&ended.stdout).expect("one object");
        check_result(&result);
        let message = result["error"]["message"].as_str().unwrap();
        let first = format!("error: {}\n", message.lines().next().unwrap());
        assert!(ended.stderr.starts_with(&first), "{message}: {}", ended.stderr);
    }
    let ended = Run::of(&sandbox, &["run", "--json", "--help"]).ended();
    assert!(ended.code == Some(0) && ended.stdout.starts_with("Run a project once"), "{}", ended.stdout);
    assert_eq!(Run::of(&sandbox, &["run", "x", "--bogus"]).ended().stdout, "");
}
