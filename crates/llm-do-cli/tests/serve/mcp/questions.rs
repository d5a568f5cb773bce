//! Questions of a call: put to the client where they may be, and answered by whoever is first.

use serde_json::{Value, json};

use super::{Server, accept, desk, forms, newest, text};
use crate::client::Client;
use crate::support::Sandbox;

fn written(sandbox: &Sandbox) -> Option<String> {
    std::fs::read_to_string(sandbox.path().join("out.txt")).ok()
}

#[test]
fn a_question_comes_as_a_form_and_its_answer_finishes_the_call_once() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &forms(), &[]);
    let asked = server.call("main", "write it");
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert!(asked["requestState"].as_str().unwrap().starts_with("1."), "{asked}");
    let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!((key.len(), &request["method"]), (12, &json!("elicitation/create")));
    let form = &request["params"];
    assert!(form["message"].as_str().unwrap().contains("out.txt"), "{form}");
    assert_eq!(form["requestedSchema"]["required"], json!(["answer"]));
    assert!(form["requestedSchema"]["properties"]["answer"].get("default").is_none(), "nothing is chosen beforehand");
    assert_eq!(written(&sandbox), None);
    let again = server.result(
        "tools/call",
        json!({"name": "main", "arguments": {"input": "write it"}, "requestState": asked["requestState"]}),
    );
    assert_eq!(again["resultType"], "input_required", "what was not answered is asked again: {again}");
    let done = server.answer("main", "write it", &asked, &accept(&json!({"answer": "once"})));
    assert_eq!((&done["resultType"], &done["isError"]), (&json!("complete"), &json!(false)), "{done}");
    assert_eq!(written(&sandbox).as_deref(), Some("hi"));
    std::fs::write(sandbox.path().join("out.txt"), "mine").unwrap();
    let twice = server.answer("main", "write it", &asked, &accept(&json!({"answer": "once"})));
    assert_eq!(text(&twice), text(&done), "a finished call gives its result again");
    assert_eq!(written(&sandbox).as_deref(), Some("mine"), "and does nothing twice");
    assert_eq!(sandbox.runs().len(), 1);
    server.client.ends_well();
}

#[test]
fn no_is_no_other_arguments_are_judged_again_and_what_is_no_answer_is_asked_thrice() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &forms(), &[]);
    for response in [json!({"action": "decline"}), accept(&json!({"answer": "no", "reason": "not there"}))] {
        let asked = server.call("main", "write it");
        let done = server.answer("main", "write it", &asked, &response);
        assert_eq!(done["resultType"], "complete", "{done}");
        assert_eq!(written(&sandbox), None, "{response}");
    }
    let asked = server.call("main", "write it");
    let edited = accept(&json!({"answer": "once", "arguments": r#"{"path": "else.txt", "content": "other"}"#}));
    let done = server.answer("main", "write it", &asked, &edited);
    assert_eq!(done["resultType"], "complete", "{done}");
    let other = std::fs::read_to_string(sandbox.path().join("else.txt")).unwrap();
    assert_eq!((other.as_str(), written(&sandbox)), ("other", None));
    let mut asked = server.call("main", "write it");
    for _ in 0..2 {
        asked = server.answer("main", "write it", &asked, &accept(&json!({"answer": "perhaps"})));
        assert_eq!(asked["resultType"], "input_required", "{asked}");
    }
    let given_up = server.answer("main", "write it", &asked, &accept(&json!({})));
    assert!(given_up["isError"] == true && text(&given_up).contains("llm-do inbox approve"), "{given_up}");
    let asked = server.call("main", "write it");
    let left_open = server.answer("main", "write it", &asked, &json!({"action": "cancel"}));
    assert!(left_open["isError"] == true && text(&left_open).contains("llm-do inbox approve"), "{left_open}");
    assert_eq!(written(&sandbox), None);
    server.client.ends_well();
}

#[test]
fn several_questions_come_together_and_what_an_agent_wants_to_know_is_a_form_too() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &forms(), &[]);
    let mut result = server.call("main", "twice");
    let mut rounds = 0;
    while result["resultType"] == "input_required" {
        let requests = result["inputRequests"].as_object().unwrap();
        let answers: serde_json::Map<String, Value> =
            requests.keys().map(|key| (key.clone(), accept(&json!({"answer": "once"})))).collect();
        let params = json!({
            "name": "main", "arguments": {"input": "twice"}, "requestState": result["requestState"],
            "inputResponses": answers,
        });
        result = server.result("tools/call", params);
        rounds += 1;
        assert!(rounds < 4, "{result}");
    }
    assert_eq!(result["isError"], false, "{result}");
    for (file, content) in [("one.txt", "1"), ("two.txt", "2")] {
        assert_eq!(std::fs::read_to_string(sandbox.path().join(file)).unwrap(), content);
    }
    let asked = server.call("asker", "hi");
    let form = asked["inputRequests"].as_object().unwrap().values().next().unwrap()["params"].clone();
    assert_eq!(form["message"], "Which city?");
    assert_eq!(form["requestedSchema"]["properties"]["far"]["type"], "boolean");
    assert_eq!(form["requestedSchema"]["required"], json!(["city"]));
    let missing = server.answer("asker", "hi", &asked, &accept(&json!({"far": true})));
    assert_eq!(missing["resultType"], "input_required", "{missing}");
    let done = server.answer("asker", "hi", &missing, &accept(&json!({"city": "Lyon", "far": false})));
    assert!(text(&done).contains("Lyon"), "{done}");
    server.client.ends_well();
}

#[test]
fn a_state_of_another_call_or_of_nobody_runs_nothing() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &forms(), &[]);
    let asked = server.call("main", "write it");
    let yes = accept(&json!({"answer": "once"}));
    let whole = Server::retry("main", "write it", &asked, &yes);
    let state = asked["requestState"].as_str().unwrap();
    let mut forged = vec![whole.clone(), whole.clone(), whole.clone(), whole.clone(), whole.clone()];
    forged[0]["arguments"]["input"] = "something else".into();
    forged[1]["name"] = "reader".into();
    forged[2]["requestState"] = "".into();
    let other = if state.ends_with('0') { "1" } else { "0" };
    forged[3]["requestState"] = format!("{}{other}", &state[..state.len() - 1]).into();
    forged[4]["requestState"] = state.replacen('e', "f", 1).into();
    for params in forged {
        assert_eq!(server.error("tools/call", params.clone()), -32602, "{params}");
    }
    assert_eq!((written(&sandbox), sandbox.runs().len()), (None, 1), "nothing began and nothing went on");
    // A whole other user has another key.
    let other = desk();
    let mut stranger = Server::start(&other, &forms(), &[]);
    assert_eq!(stranger.error("tools/call", whole), -32602);
    stranger.client.ends_well();
    server.client.ends_well();
}

#[test]
fn what_always_asks_is_never_put_to_a_client_and_neither_is_anything_where_answers_are_given_here() {
    let sandbox = desk();
    for (flags, input) in [(&[][..], "protected"), (&["--answers", "here"], "write it")] {
        for _ in 0..5 {
            let mut server = Server::start(&sandbox, &forms(), flags);
            let told = server.call("main", input);
            assert_eq!((&told["resultType"], &told["isError"]), (&json!("complete"), &json!(true)), "{told}");
            assert!(text(&told).contains("llm-do inbox approve") && text(&told).contains("--go"), "{told}");
            server.client.ends_well();
            assert_eq!(newest(&sandbox)["state"], "waits");
        }
    }
    // The last one was about a file that may be written: here it is.
    let open = sandbox.run(&["inbox", "--json"]);
    let question: Value = serde_json::from_str(open.stdout.lines().last().unwrap()).unwrap();
    let approved = sandbox.run(&["inbox", "approve", question["question"].as_str().unwrap(), "--go"]);
    assert!(approved.stdout.contains("Result"), "{approved:?}");
    assert_eq!(written(&sandbox).as_deref(), Some("hi"));
}

#[test]
fn an_older_client_is_asked_within_its_call_and_one_without_forms_reads_where_to_answer() {
    let sandbox = desk();
    let start = |capabilities: Value| {
        let mut client = Client::of(sandbox.command(&["serve", "--mcp", "desk"], &[]));
        client.result("initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": capabilities}));
        client
    };
    let call = json!({"name": "main", "arguments": {"input": "write it"}});
    let mut client = start(json!({"elicitation": {}}));
    let id = client.ask("tools/call", &call);
    let asked = client.request("elicitation/create");
    assert!(asked["params"]["message"].as_str().unwrap().contains("out.txt"), "{asked}");
    client.decide(&asked, &accept(&json!({"answer": "maybe"})));
    let again = client.request("elicitation/create");
    assert!(again["params"]["message"].as_str().unwrap().starts_with("`answer` is one of"), "{again}");
    client.decide(&again, &accept(&json!({"answer": "once"})));
    let done = client.answer(id)["result"].clone();
    assert_eq!(done["isError"], false, "{done}");
    assert_eq!(written(&sandbox).as_deref(), Some("hi"));
    client.ends_well();

    let mut client = start(json!({}));
    let told = client.result("tools/call", &json!({"name": "main", "arguments": {"input": "twice"}}));
    assert!(told["isError"] == true && text(&told).contains("llm-do inbox approve"), "{told}");
    client.ends_well();
}

#[test]
fn whoever_leaves_at_a_question_leaves_it_to_others() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &forms(), &[]);
    let asked = server.call("main", "write it");
    server.client.ends_well();
    assert_eq!(newest(&sandbox)["state"], "waits");
    let mut server = Server::start(&sandbox, &forms(), &[]);
    let done = server.answer("main", "write it", &asked, &accept(&json!({"answer": "once"})));
    assert_eq!(done["isError"], false, "any process of this user goes on with it: {done}");
    assert_eq!(written(&sandbox).as_deref(), Some("hi"));
    server.client.ends_well();
}
