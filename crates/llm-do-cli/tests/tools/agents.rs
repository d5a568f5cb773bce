//! Agents that call agents.

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

use crate::session::{Run, of_type};
use crate::{project, run};

const TYPED: &str = "\
description: Finds things
schema_in: { type: object, properties: { topic: { type: string } }, required: [topic], additionalProperties: false }
prompt: \"Find {{ topic }}\"";

#[test]
fn an_agent_is_a_tool_with_the_input_that_its_file_declares() {
    let main = "entry: true\ntoolsets: [reader, helper]";
    let sandbox = project(&[("main", main), ("reader", TYPED), ("helper", "")], "");
    for model in ["anthropic:m", "openai:m", "openai-chat:m", "google:m"] {
        let calls = [
            FakeCall::new("reader", json!({"topic": "the crane"})),
            FakeCall::new("helper", json!({"input": "Help me."})),
        ];
        let fake = FakeLlm::start(
            FakeScript::new()
                .when(|seen| seen.system == "You are reader.", FakeReply::text("It is in the harbour."))
                .when(|seen| seen.system == "You are helper.", FakeReply::text("Helped."))
                .reply(FakeReply::text("I look.").and_calls(calls))
                .reply(FakeReply::text("Done.")),
        );
        assert_eq!(Run::new(&sandbox, &[".", "hi", "-m", model]).asking(&fake).answer(), "Done.\n", "{model}");
        fake.assert_finished();
        let requests = fake.requests();
        let seen: Vec<_> = requests.iter().map(|request| request.seen.as_ref().unwrap()).collect();
        let offered = |name: &str| seen[0].tools.iter().find(|tool| tool.name == name).unwrap();
        let (reader, helper) = (offered("reader"), offered("helper"));
        assert_eq!((reader.description.as_str(), helper.description.as_str()), ("Finds things", "You are helper."));
        assert_eq!(reader.schema.as_ref().unwrap()["properties"]["topic"]["type"], "string", "{model}");
        assert_eq!(helper.schema.as_ref().unwrap()["required"], json!(["input"]), "{model}");
        let heard = |system: &str| seen.iter().find(|seen| seen.system == system).unwrap().last_user_text();
        assert_eq!(heard("You are reader."), "Find the crane", "{model}");
        assert_eq!(heard("You are helper."), "Help me.", "{model}");
        let results: Vec<&str> = seen[seen.len() - 1].results().map(|(_, text)| text).collect();
        assert_eq!(results, ["It is in the harbour.", "Helped."], "{model}: results come in the order of the calls");
    }
}

#[test]
fn a_typed_answer_of_a_child_is_json_for_its_parent() {
    let script = "\
- { agent: main, round: 1, call: { judge: { input: go } } }
- { agent: judge, say: '{\"score\": 7}' }
- say: \"{{ result }}\"
";
    let judge = "schema_out: { type: object, properties: { score: { type: integer } }, required: [score] }";
    let sandbox = project(&[("main", "entry: true\ntoolsets: [judge]"), ("judge", judge)], script);
    assert_eq!(run(&sandbox, &[]).answer(), "{\"score\": 7}\n");
}

#[test]
fn what_a_model_gets_wrong_comes_back_to_it() {
    let cases: [(&str, &[&str]); 9] = [
        ("{ nothing: {} }", &["there is no tool `nothing`; tools: child, list_files, read_file"]),
        ("{ child: {} }", &["invalid arguments: `topic` is missing; the schema is {"]),
        ("{ child: { topic: 7 } }", &["`/topic`: 7 is not of type \"string\""]),
        ("{ child: { topic: x, more: 1 } }", &["Additional properties are not allowed"]),
        ("{ read_file: {} }", &["invalid arguments: `path` is missing; the schema is {"]),
        (
            "{ read_file: { path: [a] } }",
            &["invalid arguments: `path`: expected a text, found a list; the schema is {"],
        ),
        (
            "{ read_file: { path: x, mode: w } }",
            &["invalid arguments: `mode` is unknown; arguments: max_chars, offset, path"],
        ),
        ("{ read_file: { path: gone.txt } }", &["`gone.txt` does not exist"]),
        ("{ list_files: { pattern: '[' } }", &["pattern"]),
    ];
    for (call, facts) in cases {
        let script = format!("- {{ agent: main, round: 1, call: {call} }}\n- say: \"{{{{ result }}}}\"\n");
        let main = "entry: true\ntoolsets: [child, filesystem_cwd_ro]";
        let sandbox = project(&[("main", main), ("child", TYPED)], &script);
        let answer = run(&sandbox, &[]).answer();
        assert!(answer.starts_with("error: "), "{call}: {answer}");
        for fact in facts {
            assert!(answer.contains(fact), "{call}: {answer}");
        }
    }
}

#[test]
fn arguments_that_are_no_json_are_never_dispatched() {
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd_ro]")], "");
    // Gemini sends objects only.
    for model in ["anthropic:m", "openai:m", "openai-chat:m"] {
        for (arguments, reason) in [
            ("{\"path\": ", "the arguments are not a JSON object"),
            (r#"{"path": "a.txt", "path": "b.txt"}"#, "the arguments have the key `path` twice"),
        ] {
            // What is sent back says what was wrong with it, so it is not what was served.
            let fake = FakeLlm::start(
                FakeScript::new()
                    .accept_foreign_history()
                    .reply(FakeReply::calls([FakeCall::malformed("read_file", arguments)]))
                    .answer(|seen| seen.last_result().map(FakeReply::text)),
            );
            let answer = Run::new(&sandbox, &[".", "hi", "-m", model]).asking(&fake).answer();
            assert!(answer.contains(reason), "{model}: {answer}");
            assert_eq!(fake.violations(), [], "{model}: the history is one that the provider takes");
        }
    }
}

#[test]
fn arguments_in_json_are_the_object_or_the_text_that_is_none() {
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd_ro]")], "");
    sandbox.file("a.txt", "alpha");
    let written = "{\"path\": ";
    let calls = [FakeCall::new("read_file", json!({"path": "a.txt"})), FakeCall::malformed("read_file", written)];
    let fake = FakeLlm::start(
        FakeScript::new().accept_foreign_history().reply(FakeReply::calls(calls)).reply(FakeReply::text("done")),
    );
    let journal = sandbox.path().join("run.journal").display().to_string();
    let flags = [".", "hi", "-m", "openai-chat:m", "--json", "--journal", &journal];
    let (events, result) = Run::new(&sandbox, &flags).asking(&fake).events();
    let parts = &result["messages"][1]["parts"];
    assert_eq!((&parts[0]["arguments"], &parts[0]["arguments_text"]), (&json!({"path": "a.txt"}), &Value::Null));
    assert!(parts[0].get("arguments_text").is_none(), "{}", parts[0]);
    assert_eq!((&parts[1]["arguments"], &parts[1]["arguments_text"]), (&Value::Null, &json!(written)));
    assert_eq!(of_type(&events, "tool_called")[0]["arguments"], json!({"path": "a.txt"}));
    let refused = of_type(&events, "tool_refused")[0];
    assert_eq!((&refused["arguments"], &refused["arguments_text"]), (&Value::Null, &json!(written)));
    // What a journal holds is read again as it was.
    let (again, replayed) =
        Run::new(&sandbox, &[".", "-m", "openai-chat:m", "--json", "--replay", &journal]).asking(&fake).events();
    assert_eq!(replayed["messages"], result["messages"], "{}", replayed["error"]);
    assert_eq!(of_type(&again, "tool_refused")[0]["arguments_text"], json!(written));
}

#[test]
fn the_same_failure_three_times_ends_the_call_of_that_agent() {
    let script = "\
- { agent: child, call: { nothing: { a: 1, b: 2 } } }
- { agent: main, round: 1, call: { child: { input: go } } }
- say: \"{{ result }}\"
";
    let sandbox = project(&[("main", "entry: true\ntoolsets: [child]"), ("child", "")], script);
    let failure = "agent `child` called `nothing` three times in a row with the same failure: \
                   there is no tool `nothing`; there are no tools\n";
    assert_eq!(run(&sandbox, &[]).answer(), format!("error: agent `child` failed: {failure}"));
    let (events, _) = run(&sandbox, &["--json"]).events();
    let requests = of_type(&events, "request_started");
    assert_eq!(requests.iter().filter(|event| event["agent"] == "child").count(), 3);
    // Of the entry it is a failure of the run.
    assert_eq!(run(&sandbox, &["-a", "child"]).failure(1), format!("error: {failure}"));
}

#[test]
fn other_calls_in_between_start_the_count_again() {
    let script = "\
- { round: 1, call: { nothing: {} } }
- { round: 2, call: { nothing: {} } }
- { round: 3, call: { list_files: {} } }
- { round: 4, call: { nothing: {} } }
- { round: 5, call: { nothing: {} } }
- say: recovered
";
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd_ro]")], script);
    assert_eq!(run(&sandbox, &[]).answer(), "recovered\n");
}

#[test]
fn a_child_that_fails_is_an_error_for_its_parent_and_not_the_end() {
    for (rule, words) in [
        ("{ agent: child, fail: wait, say: overloaded }", "agent `child`: the provider is not available: overloaded"),
        ("{ agent: child, fail: context_too_long, say: much }", "the conversation is too long for the model: much"),
        ("{ agent: child, heard: never, say: x }", "the script has no rule for agent `child`"),
        ("{ agent: child, call: { list_files: {} } }", "reached its limit `max_requests`"),
    ] {
        let rest = "- { agent: main, round: 1, call: { child: { input: go } } }\n\
                    - { agent: main, say: \"{{ result }}\" }\n";
        let child = "toolsets: [filesystem_cwd_ro]\nlimits: { max_requests: 2 }";
        let main = "entry: true\ntoolsets: [child]";
        let sandbox = project(&[("main", main), ("child", child)], &format!("- {rule}\n{rest}"));
        let answer = run(&sandbox, &[]).answer();
        assert!(answer.starts_with("error: agent `child` ") && answer.contains(words), "{rule}: {answer}");
    }
}

#[test]
fn agents_may_call_each_other_in_circles_down_to_the_limit() {
    let script = "\
- { agent: a, tool: b, say: \"{{ result }}\" }
- { agent: b, tool: a, say: \"{{ result }}\" }
- { agent: a, call: { b: { input: again } } }
- { agent: b, call: { a: { input: again } } }
";
    let sandbox = project(&[("a", "entry: true\ntoolsets: [b]"), ("b", "toolsets: [a]")], script);
    for (flags, caller, callee, depth) in
        [(&[][..], "a", "b", 5), (&["--max-depth", "2"], "b", "a", 2), (&["--max-depth", "1"], "a", "b", 1)]
    {
        let expected = format!(
            "error: agent `{callee}` failed: agent `{caller}` cannot call `{callee}`: \
             that would be depth {depth}, and `max_depth` is {depth}\n"
        );
        assert_eq!(run(&sandbox, flags).answer(), expected, "{flags:?}");
    }
    let itself = "- { tool: main, say: \"{{ result }}\" }\n- { call: { main: { input: again } } }\n";
    let sandbox = project(&[("main", "toolsets: [main]")], itself);
    let answer = run(&sandbox, &["--max-depth", "2"]).answer();
    assert!(answer.contains("agent `main` cannot call `main`: that would be depth 2"), "{answer}");
}

#[test]
fn the_entry_may_be_chosen() {
    let sandbox = project(&[("main", "entry: true"), ("other", "")], "- say: \"I am {{ agent }}.\"\n");
    assert_eq!(run(&sandbox, &[]).answer(), "I am main.\n");
    assert_eq!(run(&sandbox, &["--agent", "other"]).answer(), "I am other.\n");
    let said = run(&sandbox, &["-a", "nobody"]).failure(2);
    assert!(said.starts_with("error: there is no agent `nobody`"), "{said}");
}

#[test]
fn each_agent_may_have_another_provider() {
    let sandbox = project(&[("main", "entry: true\ntoolsets: [child]"), ("child", "model: openai-chat:small")], "");
    let call = || FakeReply::calls([FakeCall::new("child", json!({"input": "go"}))]);
    let fake = FakeLlm::start(
        FakeScript::new()
            .when(|seen| seen.model == "small", FakeReply::text("small talk"))
            .reply(call())
            .reply(FakeReply::text("Done.")),
    );
    let (_, result) = Run::new(&sandbox, &[".", "hi", "--json", "-m", "anthropic:large"]).asking(&fake).events();
    fake.assert_finished();
    let by_model = result["usage"]["by_model"].as_object().unwrap();
    let requests: Vec<(&str, u64)> =
        by_model.iter().map(|(model, usage)| (model.as_str(), usage["requests"].as_u64().unwrap())).collect();
    assert_eq!(requests, [("anthropic:large", 2), ("openai-chat:small", 1)]);
    // A key that only the child needs is missed before anybody is asked.
    let fake = FakeLlm::start(FakeScript::new());
    let said = Run::new(&sandbox, &[".", "hi", "-m", "anthropic:large"])
        .with("ANTHROPIC_BASE_URL", fake.anthropic_url())
        .with("ANTHROPIC_API_KEY", "k")
        .failure(3);
    assert_eq!(fake.requests().len(), 0);
    assert!(said.contains("child uses openai-chat:small, OPENAI_API_KEY is not set\n"), "{said}");
}
