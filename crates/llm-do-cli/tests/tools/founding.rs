//! Statements of the founding documents that are about a run as a whole: `docs/seeds.md` names these tests.

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::json;

use crate::session::{KEY, Run, of_type};
use crate::{project, run};

/// Nothing is wrapped: what an agent's file says of its model reaches the model, with a gate around its tools or not.
#[test]
fn an_agent_keeps_its_settings_whatever_asks() {
    let main = "entry: true\nmodel_settings: {temperature: 0.25}\ntoolsets: [filesystem_cwd, child]";
    let child = "model_settings: {temperature: 0.75}\ntoolsets: [filesystem_cwd]";
    let sandbox = project(&[("main", main), ("child", child)], "");
    let writes = |path: &str| FakeCall::new("write_file", json!({"path": path, "content": "x"}));
    let fake = FakeLlm::start(
        FakeScript::new()
            .reply(FakeReply::calls([writes("a.txt")]))
            .reply(FakeReply::calls([FakeCall::new("child", json!({"input": "go"}))]))
            .reply(FakeReply::calls([writes("b.txt")]))
            .reply(FakeReply::text("Written."))
            .reply(FakeReply::text("Done.")),
    );
    let answer = Run::new(&sandbox, &[".", "hi", "-m", "openai-chat:m", "--approve-all"]).asking(&fake).answer();
    assert_eq!(answer, "Done.\n");
    fake.assert_finished();
    let temperatures: Vec<f64> =
        fake.requests().iter().map(|request| request.body["temperature"].as_f64().unwrap()).collect();
    assert_eq!(temperatures, [0.25, 0.25, 0.75, 0.75, 0.25]);
}

#[test]
fn a_child_has_the_toolsets_of_its_own_file_and_no_others() {
    let script = "\
- { agent: child, round: 1, call: { list_files: {} } }
- { agent: child, say: \"{{ result }}\" }
- { agent: main, round: 1, call: { child: { input: go } } }
- { agent: main, say: \"{{ result }}\" }
";
    let sandbox = project(&[("main", "entry: true\ntoolsets: [filesystem_cwd, child]"), ("child", "")], script);
    assert_eq!(
        run(&sandbox, &["--approve-all"]).answer(),
        "error: there is no tool `list_files`; there are no tools\n"
    );
}

#[test]
fn the_toolset_of_the_working_directory_writes_lists_and_reads() {
    let script = "\
- { round: 1, call: { write_file: { path: new.txt, content: what is new } } }
- { round: 2, call: [{ list_files: { pattern: '*.txt' } }, { read_file: { path: new.txt } }] }
- say: \"{{ result }}\"
";
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd]")], script);
    let answer = run(&sandbox, &["--approve-all"]).answer();
    assert!(answer.contains("new.txt") && answer.contains("what is new"), "{answer}");
}

#[test]
fn the_older_name_of_google_means_google() {
    let asked = |keys: &str, flags: &[&str]| {
        let sandbox = project(&[("main", keys)], "");
        let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Here.")));
        let answer = Run::new(&sandbox, &[&[".", "hi"], flags].concat()).asking(&fake).answer();
        fake.assert_finished();
        assert_eq!(fake.requests()[0].seen.as_ref().unwrap().model, "gemini-2.5-flash");
        answer
    };
    assert_eq!(asked("model: google-gla:gemini-2.5-flash", &[]), "Here.\n");
    assert_eq!(asked("compatible_models: ['google-gla:*']", &["-m", "google:gemini-2.5-flash"]), "Here.\n");
    assert_eq!(asked("compatible_models: ['google:*']", &["-m", "google-gla:gemini-2.5-flash"]), "Here.\n");
}

#[test]
fn the_models_of_a_project_of_google_cloud_are_asked_with_its_token() {
    let call = FakeReply::calls([FakeCall::new("read_file", json!({"path": "main.worker"}))]);
    for (keys, flags) in [
        ("model: google-vertex:gemini-2.5-flash", &[][..]),
        ("compatible_models: ['google-vertex:*']", &["-m", "google-vertex:gemini-2.5-flash"]),
    ] {
        let sandbox = project(&[("main", &format!("{keys}\ntoolsets: [filesystem_cwd_ro]"))], "");
        let fake = FakeLlm::start(FakeScript::new().reply(call.clone()).reply(FakeReply::text("Here.")));
        let arguments = [&[".", "hi", "--json"], flags].concat();
        let (_, result) = Run::new(&sandbox, &arguments).asking(&fake).events();
        assert_eq!(result["output"], "Here.");
        assert!(result["usage"]["total"]["cost_usd"].as_f64().unwrap() > 0.0, "its price is known: {result}");
        fake.assert_finished();
        for request in fake.requests() {
            let path = "/v1/projects/fake/locations/global/publishers/google/models/gemini-2.5-flash:\
                        streamGenerateContent?alt=sse";
            assert_eq!(request.path, path);
            let header = |name: &str| request.headers.get(name);
            assert_eq!(
                (header("authorization"), header("x-goog-api-key")),
                (Some(format!("Bearer {KEY}").as_str()), None)
            );
        }
    }
    let sandbox = project(&[("main", "model: google-vertex:gemini-2.5-flash")], "");
    let said = Run::new(&sandbox, &[".", "hi"]).with("GOOGLE_OAUTH_ACCESS_TOKEN", KEY).failure(3);
    assert!(said.contains("no address for `google-vertex`"), "{said}");
    assert!(said.contains("hint: set GOOGLE_VERTEX_BASE_URL or GOOGLE_CLOUD_PROJECT"), "{said}");
    let said = Run::new(&sandbox, &[".", "hi"]).with("GOOGLE_CLOUD_PROJECT", "mine").failure(3);
    assert!(said.contains("main uses google-vertex:gemini-2.5-flash, GOOGLE_OAUTH_ACCESS_TOKEN or"), "{said}");
    assert!(!Run::of(&sandbox, &["check", "."]).ended().stderr.contains("error"), "check needs neither");
}

#[test]
fn a_script_leaves_tools_of_providers_out_and_says_so_once() {
    let tools = "server_side_tools: [{tool_type: web_search}, {tool_type: code_execution}]";
    let sandbox = project(&[("main", tools)], "- say: hi\n");
    assert_eq!(run(&sandbox, &[]).answer(), "hi\n");
    let checked = Run::of(&sandbox, &["check", ".", "-m", "scripted:script.yaml"]).ended();
    let told = checked.stdout + &checked.stderr;
    assert_eq!(told.matches("a scripted model has no server-side tools: they are left out").count(), 1, "{told}");
}

#[test]
fn a_created_agent_gets_no_model_that_nobody_uses_and_the_hint_says_how() {
    let script = "\
- { round: 1, call: { agent_create: { name: poet, instructions: Rhyme., model: 'openai:gpt-5' } } }
- say: \"{{ result }}\"
";
    let sandbox = project(&[("main", "entry: true\ntoolsets: [dynamic_agents]")], script);
    let answer = run(&sandbox, &["--approve-all"]).answer();
    assert!(answer.contains("`-m openai:gpt-5`") && answer.contains("`compatible_models`"), "{answer}");
    assert!(!sandbox.path().join("agents").exists() && !sandbox.path().join("workers").exists());
}

#[test]
fn the_flag_of_the_older_terminal_is_hinted_at() {
    let said = Run::of(&project(&[("main", "")], ""), &["--tui", "."]).failure(2);
    assert!(said.contains("`llm-do chat PROJECT` talks to a project at the terminal"), "{said}");
}

/// What a provider runs itself asks nobody here, since nobody here could stop it: it is seen, and an item of trust.
#[test]
fn tools_of_the_provider_are_seen_and_not_asked_about() {
    let main = "entry: true\nmodel: anthropic:m\nserver_side_tools: [{tool_type: web_search}]";
    let sandbox = project(&[("main", main)], "");
    let used =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "cranes"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    let reply = || FakeReply::empty().and_native(used.clone()).and_native(found.clone()).and_text("There are cranes.");
    let fake = FakeLlm::start(FakeScript::new().reply(reply()));
    let words = [".", "hi", "--json", "--trust", "--reject-all"];
    let (events, result) = Run::new(&sandbox, &words).asking(&fake).events();
    fake.assert_finished();
    assert_eq!(result["output"], "There are cranes.");
    assert_eq!(of_type(&events, "approval_asked").len(), 0);
    let seen = of_type(&events, "server_tool_used");
    let [search] = seen.as_slice() else { panic!("told once: {seen:?}") };
    let told = (&search["tool"], &search["input"]["query"], &search["output"]);
    assert_eq!(told, (&json!("web_search"), &json!("cranes"), &json!([])));
}
