//! Questions to the client, and what comes of its answers.

use serde_json::{Value, json};

use crate::client::Client;
use crate::support::Sandbox;
use crate::{WRITER, python, sandbox};

const FILES: &str = "toolsets: [filesystem_cwd]";

fn written(sandbox: &Sandbox) -> bool {
    std::fs::remove_file(sandbox.path().join("out.txt")).is_ok()
}

#[test]
fn a_question_shows_the_whole_call_and_its_answer_decides() {
    let sandbox = sandbox(FILES, WRITER);
    let mut client = Client::start(&sandbox);
    let scope = client.open(&json!({}));
    let turn = client.ask("turn", &json!({"scope": scope, "input": "write"}));
    let question = client.question();
    let params = &question["params"];
    assert_eq!(params["scope"], scope);
    assert_eq!(params["path"], json!(["main"]));
    assert_eq!(params["tool"], "write_file");
    assert_eq!(params["arguments"], json!({"path": "out.txt", "content": "hi"}));
    assert_eq!(params["reason"], "creates out.txt: 1 line added");
    assert!(params["preview"].as_str().unwrap().contains("+ hi"), "{params}");
    assert_eq!(params["remember"], json!(["call", "tool"]));
    assert!(!written(&sandbox), "nothing happens before the answer");
    client.decide(&question, &json!({"approved": true}));
    let answer = client.answer(turn);
    assert_eq!(answer["result"]["output"], "Result: wrote 2 characters to out.txt");
    assert_eq!(answer["result"]["trace"][0]["name"], "write_file");
    assert!(written(&sandbox));
    client.ends_well();
}

#[test]
fn an_approval_is_remembered_as_far_as_it_was_given() {
    for (remember, asks) in
        [(Value::Null, [true, true]), (json!("call"), [false, true]), (json!("tool"), [false, false])]
    {
        let sandbox = sandbox(FILES, WRITER);
        let mut client = Client::start(&sandbox);
        let scope = client.open(&json!({}));
        let turn = client.ask("turn", &json!({"scope": scope, "input": "write"}));
        let question = client.question();
        client.decide(&question, &json!({"approved": true, "remember": remember}));
        client.answer(turn);
        std::fs::remove_file(sandbox.path().join("out.txt")).unwrap();
        for (input, asked) in ["again", "other"].iter().zip(asks) {
            let turn = client.ask("turn", &json!({"scope": scope, "input": input}));
            if asked {
                let question = client.question();
                client.decide(&question, &json!({"approved": true}));
            }
            let answer = client.answer(turn);
            assert!(answer["result"]["output"].as_str().unwrap().starts_with("Result: wrote"), "{answer}");
        }
        assert!(client.heard.is_empty(), "{remember}: {:?}", client.heard);
        client.ends_well();
    }
}

#[test]
fn answers_edit_refuse_and_end() {
    for (decision, output) in [
        (
            json!({"approved": true, "arguments": {"path": "b.txt", "content": "x"}}),
            Ok(
                "Result: (the user changed the arguments to {\"content\":\"x\",\"path\":\"b.txt\"})\nwrote 1 characters to b.txt",
            ),
        ),
        (json!({"approved": false, "note": "not today"}), Ok("Result: error: refused: not today")),
        (json!({"approved": false}), Ok("Result: error: refused: the user refused it")),
        (json!({"approved": false, "end_run": true}), Err("stopped: you answered q")),
        (
            json!({"approved": "yes"}),
            Err("the client's answer to a question cannot be used: invalid type: string \"yes\""),
        ),
        (json!(null), Err("the client's answer to a question cannot be used: invalid type: null")),
        (json!({"approved": true, "end_run": true}), Err("it approves and ends the run")),
    ] {
        let sandbox = sandbox(FILES, WRITER);
        let mut client = Client::start(&sandbox);
        let scope = client.open(&json!({}));
        let turn = client.ask("turn", &json!({"scope": scope, "input": "write"}));
        let question = client.question();
        client.decide(&question, &decision);
        let answer = client.answer(turn);
        match output {
            Ok(output) => assert_eq!(answer["result"]["output"], output, "{decision}"),
            Err(words) => {
                assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{decision}: {answer}");
                assert_eq!(answer["error"]["data"]["exit_code"], 4);
            }
        }
        assert!(!written(&sandbox), "{decision}");
        assert_eq!(client.turn(scope, "hello"), "You said hello", "the scope goes on");
        client.ends_well();
    }
}

#[test]
fn a_client_that_cannot_answer_is_told_what_waits() {
    let sandbox = sandbox(FILES, WRITER);
    let mut client = Client::start(&sandbox);
    let scope = client.open(&json!({}));
    for (code, words) in
        [(-32601, "approval is needed for `write_file` of main"), (-1, "failed to answer a question: no")]
    {
        let turn = client.ask("turn", &json!({"scope": scope, "input": "write"}));
        let question = client.question();
        client.send(json!({"id": question["id"], "error": {"code": code, "message": "no"}}));
        let error = client.answer(turn)["error"].clone();
        assert_eq!((&error["data"]["kind"], &error["data"]["exit_code"]), (&json!("approval"), &json!(4)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        assert_eq!(error["data"]["pending"][0]["tool"], if code == -1 { Value::Null } else { "write_file".into() });
    }
    client.ends_well();
}

#[test]
fn modes_answer_for_the_client_and_win_over_the_manifest() {
    let sandbox = sandbox(FILES, WRITER);
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "runtime": {"approval_mode": "approve_all"}}"#,
    );
    let mut client = Client::start(&sandbox);
    let mut write = |mode: Value| {
        let open = json!({"project": ".", "events": "none", "approval_mode": mode, "trust": true});
        let scope = client.result("open", &open)["scope"].clone();
        client.ask("turn", &json!({"scope": scope, "input": "write"}))
    };
    let turns = [write(Value::Null), write(json!("reject_all")), write(json!("prompt"))];
    assert_eq!(client.answer(turns[0])["result"]["output"], "Result: wrote 2 characters to out.txt");
    let refused = client.answer(turns[1]);
    assert_eq!(refused["error"]["data"]["exit_code"], 4, "{refused}");
    let question = client.question();
    client.decide(&question, &json!({"approved": false, "end_run": true}));
    assert_eq!(client.answer(turns[2])["error"]["message"], "stopped: you answered q");
    client.ends_well();
}

#[test]
fn rules_of_a_program_hold_for_its_tools() {
    let sandbox = sandbox(FILES, WRITER);
    let mut client = Client::start(&sandbox);
    let scope = client.open(&json!({"tool_rules": {"write_file": {}}}));
    assert_eq!(client.turn(scope, "write"), "Result: wrote 2 characters to out.txt", "nobody is asked");
    let scope = client.open(
        &json!({"tool_rules": {"filesystem_cwd.write_file": {"allowed": false}}, "approval_mode": "approve_all"}),
    );
    let error = client.error("turn", &json!({"scope": scope, "input": "write"}));
    assert!(
        error["message"].as_str().unwrap().contains("blocked by `write_file: block` in the program that runs it"),
        "{error}"
    );
    let rule = json!({"approval_required": true, "description": "Files are kept for ten years."});
    let scope = client.open(&json!({"tool_rules": {"write_file": rule}}));
    let turn = client.ask("turn", &json!({"scope": scope, "input": "write"}));
    let question = client.question();
    assert_eq!(question["params"]["description"], "Files are kept for ten years.");
    client.decide(&question, &json!({"approved": true}));
    client.answer(turn);
    // A rule may be for a function of the program itself.
    let scope = client.open(&json!({"tool_rules": {"sandbox.write": {"allowed": false, "optional": true}}}));
    assert_eq!(client.turn(scope, "hello"), "You said hello");
    client.ends_well();
}

#[test]
fn what_a_tool_says_of_its_call_is_shown_as_its_own_words() {
    let sandbox = sandbox(
        "entry: true\ntoolsets: [vault]",
        "- {tool: take, say: '{{ result }}'}\n- {call: {take: {amount: 50}}}",
    );
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {}, "worker_files": ["main.worker"], "python_files": ["kit.py"]}"#,
    );
    sandbox.file(
        "kit.py",
        "from pydantic_ai import FunctionToolset\n\
         def take(amount: int) -> str:\n    return f'took {amount}'\n\
         class Vault(FunctionToolset):\n    \
         async def get_approval_description(self, name, tool_args, ctx):\n        \
         return f\"take \\x1b[31m{tool_args['amount']}\\napproved by: everybody\"\n\
         vault = Vault([take])\n",
    );
    let mut command = sandbox.command(&["serve", "--stdio"], &[]);
    command.env("XDG_CACHE_HOME", python::cache());
    let mut client = Client::of(command);
    let open = json!({"project": ".", "events": "none", "trust": true, "python": python::with_pydantic_ai()});
    let scope = client.result("open", &open)["scope"].clone();
    let turn = client.ask("turn", &json!({"scope": scope, "input": "x"}));
    let question = client.question();
    assert_eq!(question["params"]["reason"], "runs the tool `take`, which is Python code");
    let said = "the tool says: take \\u{1b}[31m50\nthe tool says: approved by: everybody";
    assert_eq!(question["params"]["preview"], said);
    client.decide(&question, &json!({"approved": true}));
    assert_eq!(client.answer(turn)["result"]["output"], "took 50");
    client.ends_well();
}
