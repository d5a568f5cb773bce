//! Replies that are not whole: no caller takes one for an answer.

use fake_llm::{FakeCall, FakeFinish, FakeLlm, FakeReply, FakeScript, InjectedFault, On};
use serde_json::{Value, json};

use crate::MAIN;
use crate::session::{KEY, Run};
use crate::support::{Ended, Sandbox};

const MODELS: [&str; 4] = ["anthropic:claude-x", "openai:gpt-x", "openai-chat:gpt-x", "google:gemini-x"];

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", MAIN);
    sandbox
}

fn cut(text: &str) -> FakeReply {
    FakeReply::text(text).finishing(FakeFinish::Length)
}

/// How a run ends whose only reply is this one, and how often the model was asked.
fn ended(model: &str, reply: FakeReply) -> (Ended, usize) {
    let (sandbox, fake) = (project(), FakeLlm::start(FakeScript::new().otherwise(reply)));
    let ended = Run::new(&sandbox, &["main.worker", "hi", "-m", model]).asking(&fake).ended();
    assert_eq!(fake.violations(), [], "{model}");
    (ended, fake.requests().len())
}

#[test]
fn an_answer_that_was_cut_is_printed_marked_and_a_failure() {
    for model in MODELS {
        let (ended, asked) = ended(model, cut("Half an"));
        assert_eq!((ended.code, ended.stdout.as_str(), asked), (Some(1), "Half an\n[unfinished]\n", 1), "{model}");
        let expected = "error: the answer of agent `main` was cut off: it reached the longest that is allowed\n\
                        hint: `max_tokens` of `model_settings` allows longer answers, as far as the model does\n";
        assert_eq!(ended.stderr, expected, "{model}");
    }
}

#[test]
fn what_was_filtered_is_a_failure_also_if_something_was_said() {
    for (model, word) in MODELS.iter().zip(["refusal", "content_filter", "content_filter", "SAFETY"]) {
        let (ended, _) = ended(model, FakeReply::text("Half an").finishing(FakeFinish::Refusal));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "Half an\n[unfinished]\n"), "{model}");
        let said = format!("error: the model of agent `main` declined: the provider filtered the answer ({word})\n");
        assert_eq!(ended.stderr, said, "{model}");
    }
}

#[test]
fn an_end_that_nobody_knows_is_no_success() {
    for model in MODELS {
        let (ended, _) =
            ended(model, FakeReply::text("Half an").finishing(FakeFinish::Unheard("a_new_reason".to_owned())));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "Half an\n[unfinished]\n"), "{model}");
        let said = "error: the answer of agent `main` is not whole: its provider ended it with `a_new_reason`\n";
        assert_eq!(ended.stderr, said, "{model}");
    }
}

#[test]
fn a_full_context_window_is_said_to_be_one() {
    let reply = FakeReply::text("Half an").finishing(FakeFinish::Unheard("model_context_window_exceeded".to_owned()));
    let (ended, _) = ended("anthropic:claude-haiku-4-5", reply);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "Half an\n[unfinished]\n"));
    assert!(ended.stderr.contains("the context window of its model is full"), "{}", ended.stderr);
}

#[test]
fn no_call_of_a_reply_that_was_cut_runs() {
    let sandbox = project();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nx\n");
    for model in MODELS {
        let call = FakeCall::new("write_file", json!({"path": "out.txt", "content": "x"}));
        let reply = FakeReply::text("I write.").and_calls([call]).finishing(FakeFinish::Length);
        let fake = FakeLlm::start(FakeScript::new().otherwise(reply));
        let ended = Run::new(&sandbox, &["main.worker", "hi", "--approve-all", "-m", model]).asking(&fake).ended();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "I write.\n[unfinished]\n"), "{model}");
        assert!(!sandbox.path().join("out.txt").exists(), "{model}");
        assert_eq!(fake.requests().len(), 1, "{model}");
    }
}

#[test]
fn the_result_says_how_the_reply_ended() {
    for (reply, finish, output) in [
        (FakeReply::text("All of it"), "stop", "All of it"),
        (cut("Half"), "length", "Half"),
        (FakeReply::text("Half").finishing(FakeFinish::Refusal), "content_filter", "Half"),
    ] {
        let (sandbox, fake) = (project(), FakeLlm::start(FakeScript::new().otherwise(reply)));
        let (_, result) = Run::new(&sandbox, &["main.worker", "hi", "--json", "-m", MODELS[0]]).asking(&fake).events();
        assert_eq!((&result["finish"], &result["output"]), (&json!(finish), &json!(output)));
        assert_eq!(result["exit_code"], i32::from(finish != "stop"), "{finish}");
    }
}

/// The last message of the second request.
fn asked_with(fake: &FakeLlm) -> Value {
    let requests = fake.requests();
    requests[1].body["messages"].as_array().unwrap().last().unwrap().clone()
}

#[test]
fn where_the_protocol_allows_it_an_answer_is_gone_on_with() {
    let sandbox = project();
    let text = json!([{"type": "text", "text": "One, two,"}]);
    for (model, last) in [
        ("anthropic:claude-haiku-4-5", json!({"role": "assistant", "content": text})),
        ("groq:llama-x", json!({"role": "assistant", "content": "One, two, "})),
        ("mistral:mistral-x", json!({"role": "assistant", "content": "One, two, ", "prefix": true})),
    ] {
        let fake = FakeLlm::start(FakeScript::new().reply(cut("One, two, ")).reply(FakeReply::text("three.")));
        let run = |arguments: &[&'static str]| {
            Run::new(&sandbox, &[&["main.worker", "hi", "-m", model], arguments].concat())
                .asking(&fake)
                .with("GROQ_BASE_URL", fake.openai_url())
                .with("GROQ_API_KEY", KEY)
                .with("MISTRAL_BASE_URL", fake.openai_url())
                .with("MISTRAL_API_KEY", KEY)
        };
        let (_, result) = run(&["--json"]).events();
        assert_eq!((&result["output"], &result["finish"]), (&json!("One, two, three."), &json!("stop")), "{model}");
        assert_eq!(result["messages"].as_array().unwrap().len(), 2, "one question, one answer");
        assert_eq!(result["usage"]["total"]["requests"], 2);
        assert_eq!(asked_with(&fake), last, "{model}");
        assert_eq!(fake.violations(), [], "{model}");
    }
}

#[test]
fn an_answer_is_gone_on_with_once() {
    let (sandbox, fake) = (project(), FakeLlm::start(FakeScript::new().otherwise(cut("and on "))));
    let run = Run::new(&sandbox, &["main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"]).asking(&fake).ended();
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), "and on and on \n[unfinished]\n"));
    assert_eq!(fake.requests().len(), 2);
}

#[test]
fn what_was_said_is_not_lost_if_the_model_refuses_to_go_on() {
    let (sandbox, script) = (project(), FakeScript::new().otherwise(cut("Half an")));
    let fake = FakeLlm::start(script.fault(On::Request(2), InjectedFault::status(400)));
    let arguments = ["main.worker", "hi", "-m", "anthropic:claude-haiku-4-5", "--json"];
    let ended = Run::new(&sandbox, &arguments).asking(&fake).ended();
    let result: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((ended.code, &result["output"]), (Some(1), &json!("Half an")), "{ended:?}");
    assert_eq!((fake.requests().len(), &result["usage"]["total"]["requests"]), (2, &json!(2)), "{result}");
    assert!(ended.stderr.contains("the answer of agent `main` was cut off"), "the first reply counts: {ended:?}");
}

#[test]
fn a_run_that_was_gone_on_with_is_resumed_from_its_journal_as_it_was() {
    let sandbox = project();
    let fake = FakeLlm::start(FakeScript::new().reply(cut("One, ")).reply(FakeReply::text("two.")));
    let run = |arguments: &[&'static str]| Run::of(&sandbox, arguments).asking(&fake);
    let model = "anthropic:claude-haiku-4-5";
    assert_eq!(run(&["run", "main.worker", "hi", "-m", model, "--journal", "j"]).answer(), "One, two.\n");
    assert_eq!(run(&["resume", "j"]).ended().stdout, "One, two.\n");
    assert_eq!(run(&["run", "main.worker", "hi", "-m", model, "--replay", "j"]).ended().stdout, "One, two.\n");
    assert_eq!(fake.requests().len(), 2, "nothing was asked again");
}
