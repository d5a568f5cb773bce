//! Schemas that unfold to more than anybody can judge are refused unrun, wherever they come from.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Client;
use crate::session::Run;
use crate::support::Sandbox;
use crate::{SCRIPTED, sandbox};

/// Less than three kilobytes, and a trillion parts.
fn bomb() -> Value {
    let mut definitions = json!({"n0": {"type": "object"}});
    for number in 1..40 {
        let below = json!({"$ref": format!("#/$defs/n{}", number - 1)});
        definitions[format!("n{number}")] = json!({"allOf": [below, below]});
    }
    json!({"type": "object", "$ref": "#/$defs/n39", "$defs": definitions})
}

/// An honest schema of the same words: definitions that refer to each other, and to themselves.
fn honest() -> Value {
    let tree = json!({"type": "object", "properties": {
        "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}, "name": {"$ref": "#/$defs/name"},
    }, "additionalProperties": false});
    json!({"type": "object", "allOf": [{"$ref": "#/$defs/tree"}],
        "$defs": {"tree": tree, "name": {"type": "string", "pattern": "^(?=[a-z])\\w+$"}}})
}

const REFUSED: &str = "a JSON Schema that unfolds to more than 100000 parts";

#[test]
fn a_bomb_of_a_worker_file_is_a_mistake_of_the_project() {
    for key in ["schema_in", "schema_out"] {
        let sandbox = sandbox(&format!("{key}: {}", bomb()), "- say: '{}'");
        for command in ["run", "check"] {
            let words: &[&str] = if command == "run" { &["--input-json", "{}", "--timeout", "3"] } else { &[] };
            let words = [&[command, "main.worker", "-m", "scripted:script.yaml"], words].concat();
            let (began, ended) = (Instant::now(), Run::of(&sandbox, &words).ended());
            assert_eq!(ended.code, Some(2), "{key}: {ended:?}");
            assert!(ended.stderr.contains(REFUSED) && ended.stderr.contains("main.worker:3:"), "{ended:?}");
            assert!(began.elapsed() < Duration::from_secs(30), "nothing was unfolded");
        }
    }
}

#[test]
fn honest_schemas_judge_as_before() {
    let sandbox = sandbox(
        &format!("schema_in: {}\nschema_out: {}", honest(), honest()),
        "- say: '{\"left\": {\"name\": \"leaf\"}}'",
    );
    let run = |input: &'static str| {
        Run::new(&sandbox, &["main.worker", "-m", "scripted:script.yaml", "--input-json", input]).ended()
    };
    let answered = run(r#"{"left": {"right": {"name": "deep"}}, "name": "root"}"#);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    let answer: Value = serde_json::from_str(&answered.stdout).unwrap();
    assert_eq!(answer, json!({"left": {"name": "leaf"}}));
    let wrong = run(r#"{"left": {"right": {"name": "7 dwarfs"}}}"#);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("`/left/right/name`"), "{wrong:?}");
}

/// A value can be a bomb for a schema that is none.
#[test]
fn a_value_that_would_be_judged_without_end_is_refused_unrun() {
    let forked = json!({"type": "object", "properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
    let sandbox = sandbox(&format!("schema_in: {forked}"), "- say: fine");
    let run = |depth: usize| {
        let input = format!("{}{{}}{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        Run::new(&sandbox, &["main.worker", "-m", "scripted:script.yaml", "--input-json", &input, "--timeout", "20"])
            .ended()
    };
    assert_eq!((run(8).code, run(8).stdout.as_str()), (Some(0), "fine\n"));
    let refused = run(100);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("held against the schema too often"), "{refused:?}");
}

#[test]
fn a_bomb_of_a_server_is_a_tool_that_cannot_be_used() {
    let server = r#"
import json, sys
bomb, honest = json.load(open("bomb.json")), json.load(open("honest.json"))
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "bomb", "inputSchema": bomb}, {"name": "honest", "inputSchema": honest}]}
    else:
        result = {"content": [{"type": "text", "text": "done"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;
    let script =
        "- { round: 1, call: [{ honest: { name: leaf } }, { honest: { name: '7' } }, { bomb: {} }] }\n- say: done";
    let sandbox = sandbox("toolsets: [hub]", script);
    sandbox.file("server.py", server).file("bomb.json", &bomb().to_string());
    sandbox.file("honest.json", &honest().to_string()).file(
        "project.json",
        &json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "toolsets": {"hub": {"mcp": {"command": "python3", "args": ["server.py"]}}}})
        .to_string(),
    );
    let words = [".", "hi", "-m", "scripted:script.yaml", "--trust", "--approve-all", "--json", "--timeout", "60"];
    let (events, result) = Run::new(&sandbox, &words).with("PATH", std::env::var("PATH").unwrap()).events();
    assert_eq!(result["exit_code"], 0, "{result}");
    let told: String = events.iter().filter(|event| event["type"] == "notice").map(Value::to_string).collect();
    assert!(told.contains(&format!("`bomb` are described by {REFUSED}")), "{events:?}");
    let results = &result["messages"][2]["parts"];
    assert_eq!(results[0]["content"][0]["text"], "done", "{results}");
    assert!(results[1]["error"].as_str().unwrap().contains("`/name`"), "{results}");
    assert!(results[2]["error"].as_str().unwrap().contains("there is no tool `bomb`"), "{results}");
}

#[test]
fn a_bomb_does_not_hold_the_other_scopes_of_a_server() {
    let sandbox = sandbox("", "- say: 'heard {{ heard }}'");
    let (bomb, forked) =
        (bomb(), json!({"type": "object", "properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}));
    let worker = |schema: &Value| format!("---\nname: main\nschema_in: {schema}\n---\nx\n");
    sandbox.file("bomb.worker", &worker(&bomb)).file("forked.worker", &worker(&forked));
    let mut client = Client::start(&sandbox);
    let models = json!({"model": "scripted:script.yaml"});
    let scope = client.open(&models);
    let opening = client.ask("open", &json!({"project": "bomb.worker", "model": "scripted:script.yaml"}));
    let forked = client.open(&json!({"project": "forked.worker", "model": "scripted:script.yaml"}));
    let deep = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
    let judged = client.ask("turn", &json!({"scope": forked, "input": deep}));
    assert_eq!(client.turn(scope, "one"), "heard one");
    let refused = client.answer(opening);
    assert!(refused["error"].to_string().contains(REFUSED), "{refused}");
    let refused = client.answer(judged);
    assert!(refused["error"].to_string().contains("too often"), "{refused}");
    assert_eq!(client.turn(scope, "two"), "heard two");
    client.ends_well();
}

#[test]
fn patterns_that_take_back_what_they_tried_are_bounded() {
    let schema = json!({"type": "object", "properties": {"a": {"items": {"pattern": "^(a|aa)+(?=b)\\1$"}}}});
    let sandbox = sandbox(&format!("schema_in: {schema}"), "- say: fine");
    let input = json!({"a": vec!["a".repeat(60); 50]}).to_string();
    let words = ["main.worker", "-m", "scripted:script.yaml", "--input-json", &input];
    let ended = Run::new(&sandbox, &words).ended();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let long = format!("schema_in: {{type: object, properties: {{a: {{pattern: '{}'}}}}}}", "x".repeat(4_097));
    let said = Run::new(&crate::sandbox(&long, "- say: x"), &SCRIPTED).failure(2);
    assert!(said.contains("a JSON Schema with a pattern of more than 4096 bytes"), "{said}");
}

#[test]
fn large_values_are_judged_elsewhere_and_larger_ones_not_at_all() {
    let sandbox = sandbox("schema_in: {type: object, properties: {a: {type: string}}}", "- say: fine");
    let run = |sandbox: &Sandbox, length: usize| {
        sandbox.file("in.json", &json!({"a": "x".repeat(length)}).to_string());
        Run::new(sandbox, &["main.worker", "-m", "scripted:script.yaml", "--input-json", "@in.json"]).ended()
    };
    assert_eq!(run(&sandbox, 100 * 1024).code, Some(0));
    let refused = run(&sandbox, 17 * 1024 * 1024);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("more than 16 MiB are not judged"), "{}", refused.stderr);
}

#[test]
fn a_template_that_says_too_much_is_an_error() {
    let typed = "schema_in: {type: object, properties: {n: {type: integer}}}\n";
    let run = |template: &str| {
        let sandbox = sandbox(&format!("{typed}prompt: '{template}'"), "- say: 'heard {{ heard }}'");
        let words = ["main.worker", "-m", "scripted:script.yaml", "--input-json", "{\"n\": 2}"];
        Run::new(&sandbox, &words).ended()
    };
    let refused = run("{% for i in range(9999) %}{{ \"x\" * 1000000 }}{% endfor %}");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let honest = run("{% for i in range(n) %}x{{ i }} {% endfor %}");
    assert_eq!((honest.code, honest.stdout.as_str()), (Some(0), "heard x0 x1 \n"), "{}", honest.stderr);
}
