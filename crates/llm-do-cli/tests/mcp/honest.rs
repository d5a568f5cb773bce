//! A server that does what it says, on stdio and over HTTP.

use std::path::Path;

use serde_json::json;

use crate::servers::{self, Listening};
use crate::session::Run;
use crate::support::Sandbox;
use crate::{calls, project, run};

fn log(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path().join("log")).unwrap_or_default()
}

fn desk(keys: &str, script: &str) -> Sandbox {
    project(&format!("toolsets: [desk]\n{keys}"), &json!({"desk": servers::ours_on_stdio()}), script)
}

fn answered(run: Run<'_>) -> String {
    run.with("SECRET", "s").answer()
}

#[test]
fn a_tool_of_a_server_is_called_and_its_result_read() {
    let sandbox = desk("approval: { add: allow }", &calls(&["{ add: { a: 2, b: 40 } }"]));
    assert_eq!(answered(run(&sandbox, &[])), "{\"sum\":42}\n");
    assert_eq!(log(&sandbox), "list \nlist 3\nlist 6\ncall add {\"a\":2,\"b\":40}\n");
}

#[test]
fn the_tools_of_all_pages_are_offered_with_their_schemas() {
    let sandbox = desk("", "- say: x");
    let request = run(&sandbox, &["--dry-run"]).with("SECRET", "s").ended().stdout;
    let request: serde_json::Value = serde_json::from_str(&request).unwrap();
    let names: Vec<&str> =
        request["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["add", "show_all", "fail", "surroundings", "steps", "wait", "change"]);
    assert_eq!(request["tools"][0]["description"], "Adds two numbers");
    assert_eq!(request["tools"][0]["parameters"]["properties"]["a"]["type"], "integer");
}

#[test]
fn its_tools_ask_and_hints_change_nothing() {
    let sandbox = desk("", &calls(&["{ add: { a: 1, b: 1 } }"]));
    let said = run(&sandbox, &[]).with("SECRET", "s").failure(4);
    assert!(said.contains("approval is needed for `add` of main"), "{said}");
    assert!(!log(&sandbox).contains("call"), "nothing is called without consent");
    let refused = run(&sandbox, &["--reject-all"]).with("SECRET", "s").failure(4);
    assert!(refused.contains("every question is answered with no"), "{refused}");
}

#[test]
fn arguments_that_do_not_fit_never_reach_the_server() {
    let sandbox = desk("", &calls(&["{ add: { a: one } }", "{ add: { c: 1 } }", "{ add: { a: 1 } }"]));
    let (events, result) = run(&sandbox, &["--json", "--approve-all"]).with("SECRET", "s").events();
    let refused: Vec<&str> = events.iter().filter_map(|event| event["reason"].as_str()).collect();
    assert!(refused[0].starts_with("invalid arguments: `/a`: \"one\" is not of type \"integer\""), "{refused:?}");
    assert!(refused[1].contains("'c' was unexpected"), "{refused:?}");
    assert_eq!(result["output"], "{\"sum\":1}");
    assert_eq!(log(&sandbox).matches("call").count(), 1);
}

#[test]
fn every_kind_of_content_comes_back_as_what_it_is() {
    let sandbox = desk("", &calls(&["{ show_all: {} }"]));
    let (events, result) =
        run(&sandbox, &["--json", "--approve-all", "--save-files", "came"]).with("SECRET", "s").events();
    let file = &result["files"][0];
    let path = Path::new(file["path"].as_str().unwrap());
    assert_eq!((&file["tool"], &file["media_type"]), (&json!("show_all"), &json!("image/png")));
    assert!(path.starts_with(sandbox.path().join("came")) || path.starts_with("came"), "{}", path.display());
    assert_eq!(std::fs::read(sandbox.path().join(path)).unwrap().len() as u64, file["bytes"].as_u64().unwrap());
    let content = &result["messages"][2]["parts"][0]["content"];
    assert_eq!(content[0], json!({"type": "text", "text": "a picture:"}));
    assert_eq!((&content[1]["type"], &content[1]["media_type"]), (&json!("attachment"), &json!("image/png")));
    assert_eq!(content[2]["text"], "<resource uri=\"note:///one\">\nwords of a note\n</resource>");
    assert_eq!(content[3]["text"], "[resource two at file:///two]");
    let starts: Vec<&str> = events.iter().filter_map(|event| event["toolset"].as_str()).collect();
    assert_eq!(starts, ["desk", "desk"], "started and ready");
}

#[test]
fn what_the_server_says_has_failed_the_model_may_recover_from() {
    let sandbox = desk("", &calls(&["{ fail: {} }", "{ add: { a: 1, b: 2 } }"]));
    let (events, result) = run(&sandbox, &["--json", "--approve-all"]).with("SECRET", "s").events();
    let error = events.iter().find_map(|event| event["error"].as_str());
    assert_eq!((error, &result["output"]), (Some("it did not work"), &json!("{\"sum\":3}")));
}

#[test]
fn it_sees_the_project_and_no_more_of_the_environment_than_it_is_given() {
    let sandbox = desk("", &calls(&["{ surroundings: {} }"]));
    let run = run(&sandbox, &["--approve-all", "-q"]).with("MINE", "m").with("OTHER", "o").with("SECRET", "s");
    let seen = run.with("OPENAI_API_KEY", "sk-1").answer();
    let mut lines = seen.lines();
    assert_eq!(Path::new(lines.next().unwrap()), sandbox.path().canonicalize().unwrap());
    let names: Vec<&str> = lines.filter_map(|line| line.split_once('=').map(|(name, _)| name)).collect();
    let mut names: Vec<&str> = names.into_iter().filter(|name| *name != "LC_CTYPE").collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "MINE", "PASSED", "PATH", "TOLD"]);
    assert!(seen.contains("PASSED=s") && seen.contains("TOLD=x"));
}

#[test]
fn how_far_a_call_has_come_is_told_as_it_goes() {
    let sandbox = desk("", &calls(&["{ steps: {} }"]));
    let (events, _) = run(&sandbox, &["--json", "--approve-all"]).with("SECRET", "s").events();
    let progress: Vec<_> = events.iter().filter(|event| event["type"] == "tool_progressed").collect();
    let words: Vec<_> = progress.iter().map(|event| (&event["progress"], &event["total"], &event["message"])).collect();
    assert_eq!(words, [(&json!(1.0), &json!(2.0), &json!("half way")), (&json!(2.0), &json!(2.0), &json!("there"))]);
    let called = events.iter().find(|event| event["type"] == "tool_called").unwrap();
    assert_eq!(progress[0]["id"], called["id"]);
    let shown = run(&sandbox, &["-v", "--approve-all"]).with("SECRET", "s").ended().stderr;
    assert!(shown.contains("… steps 1/2 half way\n"), "{shown}");
}

#[test]
fn tools_that_change_in_the_middle_are_not_called() {
    let script = calls(&["{ change: {} }", "{ add: { a: 1, b: 2 } }", "{ fail: {} }", "{ steps: {} }"]);
    let sandbox = desk("", &script);
    let (events, result) = run(&sandbox, &["--json", "--approve-all"]).with("SECRET", "s").events();
    let errors: Vec<&str> = events.iter().filter_map(|event| event["error"].as_str()).collect();
    let changed =
        "the MCP server `desk` has changed what the tool `add` is since the agent was told of it; nothing was called";
    assert_eq!(errors, [changed, "the MCP server `desk` no longer has the tool `fail`"]);
    assert_eq!(result["output"], "done", "what is as it was can be called");
    assert!(!log(&sandbox).contains("call add"));
}

#[test]
fn a_variant_chooses_renames_and_rules_its_tools() {
    let toolsets = json!({
        "desk": servers::ours_on_stdio(),
        "sums": {"use": "desk", "prefix": "desk_", "tools": ["add", "fail"], "approval": {"add": "allow", "fail": "block"}},
    });
    let sandbox = project("toolsets: [sums]", &toolsets, &calls(&["{ desk_add: { a: 1, b: 2 } }"]));
    assert_eq!(answered(run(&sandbox, &[])), "{\"sum\":3}\n");
    sandbox.file("script.yaml", &calls(&["{ desk_fail: {} }"]));
    let said = run(&sandbox, &["--approve-all"]).with("SECRET", "s").failure(4);
    assert!(said.contains("blocked by `desk_fail: block` in the definition of its toolset"), "{said}");
    let request = run(&sandbox, &["--dry-run"]).with("SECRET", "s").ended().stdout;
    assert_eq!(request.matches("\"parameters\"").count(), 2, "{request}");
}

#[test]
fn what_a_variant_names_must_be_there() {
    let variant = |keys: serde_json::Value| {
        let mut variant = json!({"use": "desk"});
        variant.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let toolsets = json!({"desk": servers::ours_on_stdio(), "mine": variant});
        let sandbox = project("toolsets: [mine]", &toolsets, "- say: x");
        run(&sandbox, &[]).with("SECRET", "s").failure(2)
    };
    let said = variant(json!({"approval": {"delte": "block"}}));
    assert!(said.contains("`mine` names a tool that is not there: `delte`; tools: "), "{said}");
    let said = variant(json!({"tools": ["ad"]}));
    assert!(said.contains("`mine` names a tool that is not there: `ad`; did you mean `add`? tools: "), "{said}");
    let said = variant(json!({"prefix": "x".repeat(60)}));
    assert!(said.contains("the prefix of `mine` makes a name that is none"), "{said}");
}

#[test]
fn two_tools_of_one_name_are_an_error_that_names_both_toolsets() {
    let toolsets = json!({"desk": servers::ours_on_stdio(), "other": servers::ours_on_stdio()});
    let sandbox = project("toolsets: [desk, other]", &toolsets, "- say: x");
    let said = run(&sandbox, &[]).with("SECRET", "s").failure(2);
    assert!(said.contains("`desk` and `other` both have a tool `add`"), "{said}");
}

#[test]
fn a_rule_for_a_tool_that_is_not_there_ends_the_run_before_it_begins() {
    let sandbox = desk("approval: { show_al: block, add: ask }", "- say: x");
    let ended = run(&sandbox, &[]).with("SECRET", "s").ended();
    let said = "error: main.worker:4:13: agent `main` has no tool `show_al`; did you mean `show_all`? tools: add, ";
    assert!(ended.code == Some(2) && ended.stderr.starts_with(said), "{ended:?}");
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_server_is_started_once_for_all_agents_and_only_if_somebody_uses_it() {
    let toolsets = json!({"desk": servers::ours_on_stdio(), "idle": {"mcp": {"command": "/nonexistent/server"}}});
    let script = "- { agent: main, round: 1, call: [{ child: { input: x } }, { child: { input: y } }] }\n\
                  - { agent: child, round: 1, call: { add: { a: 1, b: 1 } } }\n- say: done\n";
    let sandbox = project("toolsets: [desk, child]", &toolsets, script);
    sandbox.file("child.worker", "---\nname: child\ntoolsets: [desk]\n---\nx");
    let manifest = std::fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    sandbox.file("project.json", &manifest.replace("\"main.worker\"]", "\"main.worker\", \"child.worker\"]"));
    let (events, _) = run(&sandbox, &["--json", "--approve-all"]).with("SECRET", "s").events();
    assert_eq!(events.iter().filter(|event| event["type"] == "toolset_started").count(), 1);
    assert_eq!(log(&sandbox).matches("call add").count(), 2);
    let quiet = run(&sandbox, &["--no-tools"]).answer();
    assert_eq!(quiet, "done\n", "nobody needs its variable");
}

#[test]
fn a_variable_that_is_not_set_is_named() {
    let sandbox = desk("", "- say: x");
    let said = run(&sandbox, &[]).failure(2);
    let expected = "the MCP server `desk` needs the environment variable `SECRET`, which is not set";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_server_elsewhere_is_asked_over_http_without_a_session() {
    let sandbox = Sandbox::new();
    let log_file = sandbox.path().join("log");
    for mode in ["http", "documents"] {
        let _ = std::fs::remove_file(&log_file);
        let server = Listening::ours(mode, &log_file);
        let url = format!("http://127.0.0.1:{}/mcp", server.port);
        let toolsets = json!({"desk": {"mcp": {"url": url, "headers": {"x-key": {"from_env": "SECRET"}}}}});
        let script = calls(&["{ add: { a: 2, b: 40 } }", "{ steps: {} }", "{ fail: {} }", "{ show_all: {} }"]);
        let sandbox = project("toolsets: [desk]", &toolsets, &script);
        let (events, result) = run(&sandbox, &["--json", "--approve-all"]).with("SECRET", "s").events();
        assert_eq!(result["exit_code"], 0, "{result}");
        let results: Vec<&str> = events.iter().filter_map(|event| event["result"].as_str()).collect();
        assert_eq!(results[..2], ["{\"sum\":42}", "done"], "{mode}");
        let messages: Vec<&str> = events.iter().filter_map(|event| event["message"].as_str()).collect();
        assert_eq!(messages, ["half way", "there"], "{mode}");
        let log = std::fs::read_to_string(&log_file).unwrap();
        let requests = log.lines().filter(|line| line.contains("session"));
        assert!(requests.clone().all(|line| line == "POST no session, 2026-07-28, s"), "{log}");
        assert!(requests.count() >= 5, "{log}");
    }
}

#[test]
fn a_service_tells_of_its_changes_on_a_stream_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let server = Listening::ours("http", &directory.path().join("log"));
    let toolsets = json!({"desk": {"mcp": {"url": format!("http://127.0.0.1:{}/mcp", server.port)}}});
    // It is told beside the answers, so that a call or two may come before it.
    let script = "- { round: 1, call: { change: {} } }\n\
                  - { heard: has changed, say: \"{{ result }}\" }\n- { call: { add: { a: 1, b: 2 } } }\n";
    let sandbox = project("toolsets: [desk]\nlimits: { max_requests: 1000 }", &toolsets, script);
    let answer = run(&sandbox, &["--approve-all", "-q"]).answer();
    assert!(answer.contains("the MCP server `desk` has changed what the tool `add` is"), "{answer}");
}
