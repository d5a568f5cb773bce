//! Answers with more calls than anybody meant, and calls with more than anybody reads.

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::json;

use crate::session::Run;
use crate::{SCRIPTED, sandbox};

const MODELS: [&str; 4] =
    ["anthropic:claude-haiku-4-5", "openai:gpt-5-mini", "openai-chat:gpt-5-mini", "google:gemini-2.5-flash"];

fn calls(count: usize) -> FakeReply {
    FakeReply::calls((0..count).map(|number| FakeCall::new("list_files", json!({"path": format!("d{number}")}))))
}

#[test]
fn an_answer_of_too_many_calls_is_asked_for_once_more_and_then_ends_the_run() {
    for model in MODELS {
        for more in [&[][..], &["--no-stream"][..]] {
            let fake = FakeLlm::start(FakeScript::new().otherwise(calls(200)));
            let sandbox = sandbox("toolsets: [filesystem_cwd]", "");
            let words = [&["main.worker", "hi", "-m", model][..], more].concat();
            let ended = Run::new(&sandbox, &words).asking(&fake).ended();
            assert_eq!(ended.code, Some(1), "{model}: {ended:?}");
            assert!(ended.stderr.contains("the answer has more than 128 tool calls"), "{model}: {ended:?}");
            assert_eq!(fake.requests().len(), 2, "{model}");
        }
    }
}

#[test]
fn many_calls_are_no_mistake() {
    for model in MODELS {
        let fake = FakeLlm::start(FakeScript::new().reply(calls(128)).otherwise(FakeReply::text("all of them")));
        let sandbox = sandbox("toolsets: [filesystem_cwd]", "");
        let (_, result) = Run::new(&sandbox, &["main.worker", "hi", "-m", model, "--json"]).asking(&fake).events();
        assert_eq!((&result["exit_code"], &result["output"]), (&json!(0), &json!("all of them")), "{model}");
        assert_eq!(result["messages"][2]["parts"].as_array().map(Vec::len), Some(128), "{model}");
    }
}

#[test]
fn a_model_reads_that_its_arguments_are_too_long() {
    let text = "x".repeat(1024 * 1024);
    let script = format!(
        "- {{ round: 1, call: [{{ write_file: {{ path: a.txt, content: {text} }} }}, {{ write_file: {{ path: b.txt, content: {} }} }}] }}\n- say: done",
        &text[..1000 * 1024],
    );
    let sandbox = sandbox("toolsets: [filesystem_cwd]", &script);
    let (events, result) = Run::new(&sandbox, &[&SCRIPTED[..], &["--approve-all", "--json"]].concat()).events();
    assert_eq!(result["exit_code"], 0, "{}", result["error"]);
    let results = &result["messages"][2]["parts"];
    let error = "the arguments are longer than 1 MiB; do it in several calls";
    assert_eq!(results[0]["error"], error);
    assert!(results[1]["error"].is_null());
    assert!(!sandbox.path().join("a.txt").exists() && sandbox.path().join("b.txt").exists());
    let refused = events.iter().find(|event| event["type"] == "tool_refused").unwrap();
    let beginning = refused["arguments_text"].as_str().unwrap();
    assert!(beginning.len() < 1_000 && refused["arguments"].is_null() && refused["reason"] == error, "{refused}");
}
