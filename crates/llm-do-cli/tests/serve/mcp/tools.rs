//! Agents as tools, in both revisions.

use serde_json::{Value, json};

use super::{Server, desk, forms, meta, newest, text};
use crate::client::Client;

#[test]
fn exports_are_tools_in_one_order_with_their_schemas_and_their_worst_case() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &json!({}), &[]);
    let discovered = server.result("server/discover", json!({}));
    assert_eq!(
        (&discovered["supportedVersions"], &discovered["resultType"]),
        (&json!(["2026-07-28"]), &json!("complete"))
    );
    assert_eq!(discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "llm-do");
    let listed = server.result("tools/list", json!({}));
    assert!(listed["ttlMs"].is_u64() && listed["cacheScope"] == "private", "{listed}");
    let tools = listed["tools"].as_array().unwrap();
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["asker", "main", "reader", "typed"]);
    assert_eq!(tools[1]["description"], "The agent main");
    assert_eq!(tools[1]["inputSchema"]["required"], json!(["input"]));
    assert_eq!(tools[1]["annotations"]["destructiveHint"], true, "it writes files");
    assert_eq!(tools[2]["annotations"]["readOnlyHint"], true, "it only reads");
    assert_eq!(tools[3]["inputSchema"]["properties"]["n"]["type"], "integer");
    server.client.ends_well();
}

#[test]
fn a_call_is_a_kept_run_and_its_failures_are_words_for_a_model() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &json!({}), &[]);
    let said = server.call("reader", "hello");
    assert_eq!(
        (text(&said), &said["isError"], &said["resultType"]),
        ("You said hello", &json!(false), &json!("complete"))
    );
    let run = newest(&sandbox);
    assert_eq!((&run["kind"], &run["state"], &run["entry"]), (&json!("mcp"), &json!("done"), &json!("reader")));
    assert_eq!(said["_meta"]["llm-do/run"], run["id"]);
    let wrong = server.result("tools/call", json!({"name": "typed", "arguments": {"n": "one"}}));
    assert_eq!(wrong["isError"], true);
    let unsaid = server.result("tools/call", json!({"name": "reader", "arguments": {"text": "x"}}));
    assert!(unsaid["isError"] == true && text(&unsaid).contains("`input` is missing"), "{unsaid}");
    for (params, code) in [
        (json!({"name": "nobody", "arguments": {"input": "x"}}), -32602),
        (json!({"name": "main", "arguments": []}), -32602),
        (json!({"arguments": {}}), -32602),
        (json!({"name": "main", "arguments": {}, "inputResponses": []}), -32602),
    ] {
        assert_eq!(server.error("tools/call", params.clone()), code, "{params}");
    }
    for method in ["initialize", "ping", "resources/list", "prompts/list", "logging/setLevel", "unknown"] {
        assert_eq!(server.error(method, json!({})), -32601, "{method}");
    }
    server.client.ends_well();
}

#[test]
fn one_key_is_one_run() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &json!({}), &[]);
    let once = |input: &str| json!({"name": "reader", "arguments": {"input": input}, "_meta": {"llm-do/once": "k"}});
    let first = server.result("tools/call", once("a"));
    let second = server.result("tools/call", once("a"));
    assert_eq!((text(&first), &first["_meta"]["llm-do/run"]), (text(&second), &second["_meta"]["llm-do/run"]));
    let other = server.result("tools/call", once("b"));
    assert!(other["isError"] == true && text(&other).contains("was told something else"), "{other}");
    assert_eq!(sandbox.runs().len(), 1);
    server.client.ends_well();
}

#[test]
fn how_far_a_call_has_come_is_told_where_it_is_wanted() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &json!({}), &[]);
    let params = json!({"name": "reader", "arguments": {"input": "x"}, "_meta": {"progressToken": "p"}});
    server.result("tools/call", params);
    let told: Vec<Value> = std::mem::take(&mut server.client.heard);
    assert!(told.iter().all(|told| told["method"] == "notifications/progress"), "{told:?}");
    assert_eq!(
        told[0]["params"],
        json!({"progressToken": "p", "progress": 1, "message": "reader asks scripted:script.yaml"})
    );
    server.call("reader", "x");
    server.client.ends_well();
}

#[test]
fn a_request_that_is_half_of_the_newest_revision_is_refused_and_one_of_another_is_told_which_there_are() {
    let sandbox = desk();
    let mut client = Client::of(sandbox.command(&["serve", "--mcp", "desk"], &[]));
    let half = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    assert_eq!(client.error("tools/list", &half)["code"], -32602);
    assert_eq!(client.error("server/discover", &json!({}))["code"], -32602);
    let mut other = meta(&forms());
    other["io.modelcontextprotocol/protocolVersion"] = "2030-01-01".into();
    let error = client.error("tools/list", &json!({"_meta": other}));
    assert_eq!((&error["code"], &error["data"]["supported"]), (&json!(-32022), &json!(["2026-07-28"])));
    client.line("no json");
    let complaint = client.next().unwrap();
    assert_eq!(complaint["error"]["code"], -32700);
    client.ends_well();
}

#[test]
fn a_client_with_a_handshake_is_served_as_before() {
    let sandbox = desk();
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let mut client = Client::of(sandbox.command(&["serve", "--mcp", "desk"], &[]));
        let hello =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
        let welcome = client.result("initialize", &hello);
        assert_eq!((&welcome["protocolVersion"], &welcome["serverInfo"]["name"]), (&json!(version), &json!("llm-do")));
        client.send(json!({"method": "notifications/initialized"}));
        assert_eq!(client.result("ping", &json!({})), json!({}));
        let listed = client.result("tools/list", &json!({}));
        assert!(listed["tools"].as_array().unwrap().len() == 4 && listed.get("resultType").is_none(), "{listed}");
        let said = client.result("tools/call", &json!({"name": "reader", "arguments": {"input": "hi"}}));
        assert_eq!((text(&said), said.get("resultType")), ("You said hi", None));
        client.ends_well();
    }
}

#[test]
fn a_project_that_cannot_be_served_is_refused_before_anything_is_said() {
    let sandbox = desk();
    let untrusted = sandbox.run_in(&["serve", "--mcp", "desk"], &[("LLM_DO_TRUST", "0000")]);
    assert_eq!(untrusted.code, Some(2), "{untrusted:?}");
    let mut command = sandbox.command(&["serve", "--mcp", "desk"], &[]);
    command.env_remove("LLM_DO_TRUST").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ended = crate::support::wait(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""));
    assert!(ended.stderr.contains("`main`, called as a tool by other programs"), "{}", ended.stderr);
    assert!(ended.stderr.contains("llm-do check desk --trust"), "{}", ended.stderr);
    for words in
        [&["serve", "--mcp", "nowhere"][..], &["serve"], &["serve", "--stdio", "--mcp"], &["serve", "--stdio", "desk"]]
    {
        let ended = sandbox.run(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{words:?}: {ended:?}");
    }
}
