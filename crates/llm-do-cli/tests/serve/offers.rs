//! Agents, tools, toolsets and entries that a client gives as values: no project on disk, and its code is called back.

use serde_json::{Value, json};

use crate::client::Client;
use crate::support::Sandbox;

/// An agent as text that follows a script.
fn agent(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\nmodel: scripted:script.yaml\n{keys}\n---\nYou are {name}.\n")
}

fn sandbox(script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("script.yaml", script);
    sandbox
}

fn tool(name: &str, approval: &str) -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": false,
    });
    json!({"name": name, "description": "Counts words", "parameters": parameters, "approval": approval})
}

const COUNTS: &str = "\
- {tool: count, say: 'Result: {{ result }}'}
- {call: {count: {text: a b}}}
";

/// A client that has opened these values, and the number of their scope.
fn opened(sandbox: &Sandbox, params: &Value) -> (Client, u64) {
    let mut client = Client::start(sandbox);
    let mut all = json!({"events": "none"});
    all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    let scope = client.result("open", &all)["scope"].as_u64().unwrap();
    (client, scope)
}

fn counting(approval: &str) -> Value {
    json!({
        "agents": [agent("main", "toolsets: [mine]")],
        "toolsets": {"mine": {"tools": [tool("count", approval)]}},
        "entry": {"agent": "main"},
    })
}

#[test]
fn a_tool_of_the_client_is_called_inside_the_call_that_it_belongs_to() {
    let sandbox = sandbox(COUNTS);
    let (mut client, scope) = opened(&sandbox, &counting("allow"));
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let call = client.request("call_tool");
    let params = &call["params"];
    assert_eq!((&params["scope"], &params["call"]), (&json!(scope), &json!("c1")));
    assert_eq!((&params["tool"], &params["arguments"]), (&json!("count"), &json!({"text": "a b"})));
    assert_eq!((&params["context"]["agent"], &params["context"]["depth"]), (&json!("main"), &json!(0)));
    client.decide(&call, &json!({"value": 2}));
    let answer = client.answer(turn);
    assert_eq!(answer["result"]["output"], "Result: 2");
    assert_eq!(answer["result"]["trace"][0]["name"], "count");
    assert_eq!(sandbox.tree().len(), 1, "nothing is written, and nothing was needed but the script");
    client.ends_well();
}

#[test]
fn what_is_said_meanwhile_is_heard_before_the_next_request_or_handed_back() {
    let sandbox = sandbox(&format!("- {{heard: be brief, say: 'Two.'}}\n{COUNTS}"));
    let mut all = counting("allow");
    all["events"] = "facts".into();
    let (mut client, scope) = opened(&sandbox, &all);
    let say = |text: &str| json!({"scope": scope, "text": text});
    let error = client.error("say", &say("too early"));
    assert_eq!(error["message"], "no turn of this scope is under way", "{error}");
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let call = client.request("call_tool");
    assert_eq!(client.result("say", &say("be brief")), json!({}));
    client.decide(&call, &json!({"value": 2}));
    let answer = client.answer(turn)["result"].clone();
    assert_eq!((&answer["output"], &answer["unheard"]), (&json!("Two."), &Value::Null), "{answer}");
    let roles: Vec<&str> =
        answer["messages"].as_array().unwrap().iter().map(|said| said["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user", "assistant"]);
    let told = client.heard.iter().map(|message| &message["params"]["event"]);
    let heard: Vec<&Value> = told.filter(|event| event["type"] == "user_message").map(|event| &event["text"]).collect();
    assert_eq!(heard, ["go", "be brief"]);
    // A turn that is cancelled has heard nothing of what was said to it last.
    let turn = client.ask("turn", &json!({"scope": scope, "input": "again"}));
    client.request("call_tool");
    client.result("say", &say("never mind"));
    client.result("cancel", &json!({"scope": scope}));
    let error = client.answer(turn)["error"]["data"].clone();
    assert_eq!((&error["unheard"], &error["kept"]), (&json!(["never mind"]), &json!(true)), "{error}");
}

#[test]
fn its_tools_pass_the_same_gate() {
    for (decision, output) in [
        (json!({"approved": true}), "Result: 2"),
        (json!({"approved": false, "note": "not now"}), "Result: error: refused: not now"),
    ] {
        let sandbox = sandbox(COUNTS);
        let (mut client, scope) = opened(&sandbox, &counting("ask"));
        let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
        let question = client.question();
        assert_eq!(question["params"]["reason"], "runs the tool `count`, which is code of the program");
        assert!(client.heard.is_empty(), "nothing runs before the answer: {:?}", client.heard);
        client.decide(&question, &decision);
        if decision["approved"] == true {
            let call = client.request("call_tool");
            client.decide(&call, &json!({"value": 2}));
        }
        assert_eq!(client.answer(turn)["result"]["output"], output);
        client.ends_well();
    }
    let sandbox = sandbox(COUNTS);
    let (mut client, scope) = opened(&sandbox, &counting("block"));
    assert!(
        client.error("turn", &json!({"scope": scope, "input": "go"}))["message"].as_str().unwrap().contains("count")
    );
    client.ends_well();
}

#[test]
fn arguments_that_do_not_fit_reach_neither_a_person_nor_the_code() {
    let sandbox = sandbox("- {tool: count, say: '{{ result }}'}\n- {call: {count: {words: 1}}}\n");
    let (mut client, scope) = opened(&sandbox, &counting("ask"));
    let output = client.turn(scope, "go");
    assert!(output.as_str().unwrap().contains("invalid arguments"), "{output}");
    client.ends_well();
}

#[test]
fn code_of_the_client_calls_tools_and_agents_through_its_own_call() {
    let sandbox = sandbox(
        "- {agent: friend, say: 'I am friend, {{ heard }}'}\n- {tool: count, say: '{{ result }}'}\n- {call: {count: {text: x}}}\n",
    );
    let mut values = counting("allow");
    values["agents"] = json!([agent("main", "toolsets: [mine, filesystem_cwd_ro]"), agent("friend", "")]);
    let (mut client, scope) = opened(&sandbox, &values);
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let call = client.request("call_tool");
    let id = call["params"]["call"].clone();
    let names = client.result("tools", &json!({"call": id}));
    assert_eq!(names["value"], json!(["count", "read_file", "list_files", "search_files"]));
    let said = client.result("call_agent", &json!({"call": id, "agent": "friend", "input": "hello"}));
    assert_eq!(said["value"], "I am friend, hello");
    let read = client.result("call", &json!({"call": id, "name": "read_file", "input": {"path": "script.yaml"}}));
    assert!(read["value"].as_str().unwrap().contains("I am friend"), "{read}");
    let wrong = client.error("call", &json!({"call": id, "name": "nobody"}));
    assert!(wrong["message"].as_str().unwrap().contains("there is no agent `nobody`"), "{wrong}");
    assert_eq!(
        client.error("call", &json!({"name": "read_file"}))["message"],
        "`call` needs the `call` that it belongs to"
    );
    client.decide(&call, &json!({"value": ["done"]}));
    assert_eq!(client.answer(turn)["result"]["output"], "[\"done\"]");
    let over = client.error("call", &json!({"call": id, "name": "read_file", "input": {"path": "script.yaml"}}));
    assert_eq!(over["message"], "the call is over: nothing can be called from it");
    client.ends_well();
}

#[test]
fn what_ends_the_run_inside_of_a_call_ends_it_whatever_the_code_answers() {
    let sandbox = sandbox("- {call: {count: {text: x}}}\n");
    let mut values = counting("allow");
    values["agents"] = json!([agent("main", "toolsets: [mine, filesystem_cwd]")]);
    let (mut client, scope) = opened(&sandbox, &values);
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let call = client.request("call_tool");
    let write =
        json!({"call": call["params"]["call"], "name": "write_file", "input": {"path": "a.txt", "content": "x"}});
    let asked = client.ask("call", &write);
    let question = client.question();
    client.decide(&question, &json!({"approved": false, "end_run": true}));
    assert_eq!(client.answer(asked)["error"]["code"], -32002);
    client.decide(&call, &json!({"value": "never mind"}));
    assert_eq!(client.answer(turn)["error"]["data"]["kind"], "approval");
    assert!(!sandbox.path().join("a.txt").exists());
    client.ends_well();
}

#[test]
fn a_cancelled_turn_takes_back_what_its_client_works_on() {
    let sandbox = sandbox(COUNTS);
    let (mut client, scope) = opened(&sandbox, &counting("allow"));
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let call = client.request("call_tool");
    assert_eq!(client.result("cancel", &json!({"scope": scope}))["cancelled"], true);
    let taken_back = client.request("$/cancelRequest");
    assert_eq!(taken_back["params"]["id"], call["id"]);
    assert_eq!(client.answer(turn)["error"]["data"]["kind"], "cancelled");
    let again = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let call = client.request("call_tool");
    client.decide(&call, &json!({"value": 3}));
    assert_eq!(client.answer(again)["result"]["output"], "Result: 3");
    client.ends_well();
}

#[test]
fn calls_of_one_reply_run_together_unless_their_tool_says_otherwise() {
    let script = "- {tool: count, say: 'Result: {{ result }}'}\n- {call: [{count: {text: a}}, {count: {text: b}}]}\n";
    for sequential in [false, true] {
        let sandbox = sandbox(script);
        let mut values = counting("allow");
        values["toolsets"]["mine"]["tools"][0]["sequential"] = json!(sequential);
        let (mut client, scope) = opened(&sandbox, &values);
        let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
        let first = client.request("call_tool");
        if sequential {
            client.decide(&first, &json!({"value": 1}));
            let second = client.request("call_tool");
            client.decide(&second, &json!({"value": 2}));
        } else {
            // The second one comes while nobody has answered the first.
            let second = client.request("call_tool");
            client.decide(&second, &json!({"value": 2}));
            client.decide(&first, &json!({"value": 1}));
        }
        assert!(client.answer(turn)["result"]["output"].as_str().unwrap().starts_with("Result: "));
        client.ends_well();
    }
}

#[test]
fn a_toolset_is_made_for_each_call_and_closed_with_it() {
    let sandbox = sandbox(COUNTS);
    let mut values = counting("allow");
    values["toolsets"] = json!({"mine": {"made": true}});
    let mut client = Client::start(&sandbox);
    values["events"] = json!("none");
    let opening = client.ask("open", &values);
    let made = client.request("open_toolset");
    assert_eq!((&made["params"]["toolset"], &made["params"]["agent"]), (&json!("mine"), &json!("main")));
    client.decide(&made, &json!({"instance": 7, "tools": [tool("count", "judge")]}));
    let scope = client.answer(opening)["result"]["scope"].as_u64().unwrap();
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let judged = client.request("judge_tool");
    assert_eq!((&judged["params"]["instance"], &judged["params"]["tool"]), (&json!(7), &json!("count")));
    client.decide(&judged, &json!({"verdict": "allow"}));
    let call = client.request("call_tool");
    assert_eq!(call["params"]["instance"], 7);
    client.decide(&call, &json!({"content": [{"text": "two"}]}));
    assert_eq!(client.answer(turn)["result"]["output"], "Result: two");
    let closing = client.ask("close", &json!({"scope": scope}));
    let closed = client.request("close_toolset");
    assert_eq!(closed["params"]["instance"], 7);
    client.decide(&closed, &Value::Null);
    assert_eq!(client.answer(closing)["result"]["trace"][0]["name"], "main");
    client.ends_well();
}

#[test]
fn an_entry_of_the_client_calls_its_agents_and_has_no_model() {
    let sandbox = sandbox("- {say: 'I am {{ agent }}, {{ heard }}'}\n");
    let values = json!({
        "agents": [agent("friend", "")],
        "tools": [tool("count", "allow")],
        "entry": {"function": "start", "schema": {"type": "object"}},
    });
    let (mut client, scope) = opened(&sandbox, &values);
    let turn = client.ask("turn", &json!({"scope": scope, "input": {"topic": "rain"}}));
    let entered = client.request("call_entry");
    let params = &entered["params"];
    assert_eq!((&params["function"], &params["input"]), (&json!("start"), &json!({"topic": "rain"})));
    assert_eq!((&params["context"]["model"], &params["context"]["depth"]), (&Value::Null, &json!(0)));
    let counting = client.ask("call", &json!({"call": params["call"], "name": "count", "input": {"text": "x"}}));
    let call = client.request("call_tool");
    assert_eq!(call["params"]["tool"], "count");
    client.decide(&call, &json!({"value": "one"}));
    assert_eq!(client.answer(counting)["result"]["value"], "one");
    let said = client.result("call_agent", &json!({"call": params["call"], "agent": "friend", "input": "hello"}));
    client.decide(&entered, &json!({"value": said["value"]}));
    let answer = client.answer(turn);
    assert_eq!(answer["result"]["output"], "I am friend, hello");
    assert_eq!(answer["result"]["trace"][0]["kind"], "function");
    client.ends_well();
}

#[test]
fn the_client_tells_the_typed_inputs_of_its_agents() {
    let sandbox = sandbox("- {say: 'You said {{ heard }}'}\n");
    let keys = "schema_in: {type: object, properties: {topic: {type: string}}, required: [topic]}";
    let values = json!({"agents": [agent("main", keys)], "inputs": ["main"]});
    let (mut client, scope) = opened(&sandbox, &values);
    for (answer, output) in [
        (json!({"parts": [{"text": "All about rain"}]}), Ok("You said All about rain")),
        (json!({"invalid": "`topic`: rain is dull"}), Err("rain is dull")),
    ] {
        let turn = client.ask("turn", &json!({"scope": scope, "input": {"topic": "rain"}}));
        let asked = client.request("render_input");
        assert_eq!((&asked["params"]["agent"], &asked["params"]["value"]), (&json!("main"), &json!({"topic": "rain"})));
        client.decide(&asked, &answer);
        let said = client.answer(turn);
        match output {
            Ok(output) => assert_eq!(said["result"]["output"], output),
            Err(words) => assert!(said["error"]["message"].as_str().unwrap().contains(words), "{said}"),
        }
    }
    client.ends_well();
}

#[test]
fn toolsets_may_be_defined_as_a_manifest_does() {
    let sandbox = sandbox("- {tool: read_file, say: '{{ result }}'}\n- {call: {read_file: {path: notes/a.md}}}\n");
    sandbox.file("data/a.md", "from the sandbox");
    let roots = json!({"filesystem": {"roots": {"notes": {"root": "data", "mode": "ro"}}}});
    let values = json!({"agents": [agent("main", "toolsets: [files]")], "toolsets": {"files": roots}});
    let (mut client, scope) = opened(&sandbox, &values);
    let output = client.turn(scope, "go");
    assert!(output.as_str().unwrap().contains("from the sandbox"), "{output}");
    client.ends_well();
}

#[test]
fn tools_of_the_client_serve_the_agents_of_a_project_too() {
    let sandbox = crate::sandbox("toolsets: [mine]", COUNTS);
    let (mut client, scope) =
        opened(&sandbox, &json!({"project": "main.worker", "toolsets": {"mine": {"tools": [tool("count", "allow")]}}}));
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let call = client.request("call_tool");
    client.decide(&call, &json!({"value": 2}));
    assert_eq!(client.answer(turn)["result"]["output"], "Result: 2");
    client.ends_well();
}

#[test]
fn everything_that_led_to_a_question_is_told_before_it() {
    let sandbox = sandbox(COUNTS);
    let mut values = counting("ask");
    values["events"] = json!("all");
    let mut client = Client::start(&sandbox);
    let scope = client.result("open", &values)["scope"].clone();
    client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let question = client.question();
    let told =
        |client: &Client, kind: &str| client.heard.iter().any(|message| message["params"]["event"]["type"] == kind);
    assert!(told(&client, "user_message") && told(&client, "approval_asked"), "{:?}", client.heard);
    client.decide(&question, &json!({"approved": true}));
    let call = client.request("call_tool");
    assert!(told(&client, "tool_called"), "{:?}", client.heard);
    client.decide(&call, &json!({"value": 1}));
    client.left();
}

/// A script that an agent's text names is as much the client's own as the agent: nobody has to agree to it. One that a project
/// of files names answers for a model, and is on its list.
#[test]
fn a_script_of_an_agent_that_is_a_value_needs_no_trust() {
    let sandbox = sandbox("- say: from the script\n");
    let text = "---\nname: main\nmodel: scripted:script.yaml\n---\nx";
    sandbox.file("files/main.worker", text).file("files/script.yaml", "- say: from the file\n");
    sandbox
        .file("files/project.json", r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"]}"#);
    let mut client = Client::start(&sandbox);
    for (root, words) in [(Value::Null, "from the script"), (json!("files"), "from the file")] {
        let open = json!({"agents": [text], "project": root, "trust": false, "events": "none"});
        let scope = client.result("open", &open)["scope"].as_u64().unwrap();
        assert_eq!(client.turn(scope, "x"), words);
    }
    for (root, model, words) in [
        ("nowhere", "script.yaml", "the project root `nowhere` is no directory"),
        ("script.yaml", "script.yaml", "the project root `script.yaml` is no directory"),
        ("files", "other.yaml", "`other.yaml`: no such file"),
    ] {
        let agent = text.replace("script.yaml", model);
        let error = client.error("open", &json!({"agents": [agent], "project": root}));
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    let error = client.error("open", &json!({"project": "files", "trust": false}));
    assert_eq!(error["data"]["kind"], "approval", "{error}");
    assert!(error["data"]["untrusted"][0]["words"].as_str().unwrap().contains("script"), "{error}");
    client.ends_well();
}

#[test]
fn values_that_make_no_sense_are_refused_with_words() {
    let sandbox = sandbox(COUNTS);
    let mut client = Client::start(&sandbox);
    let twice = json!({"agents": [agent("main", "")], "tools": [tool("count", "ask"), tool("count", "ask")]});
    let definition = json!({"project": "script.yaml", "toolsets": {"files": {"filesystem": {"root": "."}}}});
    let unknown = json!({"agents": [agent("main", "toolsets: [mien]")], "toolsets": {"mine": {"tools": []}}});
    let broken = json!({"agents": ["---\nname: main\n"]});
    let wrong = json!({"agents": [agent("main", "")], "toolsets": {"mine": {"tools": [{"name": "x"}]}}});
    for (params, words) in [
        (json!({}), "`open` needs a `project`, or `agents`"),
        (twice, "`tools` has `count` twice"),
        (definition, "is a definition"),
        (unknown, "unknown toolset `mien`"),
        (broken, "agents[0].worker"),
        (wrong, "missing field `parameters`"),
        (json!({"agents": [agent("main", "")], "entry": {"agent": "nobody"}}), "there is no agent `nobody`"),
    ] {
        let error = client.error("open", &params);
        assert!(error["message"].as_str().unwrap().contains(words), "{words}: {error}");
    }
    let opened = client.result("open", &json!({"agents": [agent("main", "")], "scope": 40}));
    assert_eq!(opened["scope"], 40);
    let again = client.error("open", &json!({"agents": [agent("main", "")], "scope": 40}));
    assert_eq!(again["message"], "`scope`: 40 was given to another scope");
    client.left();
}
