//! Messages: what is understood, and what is said of what is not.

use serde_json::{Value, json};

use crate::client::Client;
use crate::support::Sandbox;
use crate::{WRITER, sandbox};

#[test]
fn versions_are_compared_before_anything_else() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(&sandbox);
    let welcome = client.result("hello", &json!({"protocol": 1}));
    assert_eq!(welcome, json!({"protocol": 1, "version": env!("CARGO_PKG_VERSION")}));
    let error = client.error("hello", &json!({"protocol": 7}));
    assert_eq!(error["data"]["kind"], "usage");
    let words = error["message"].as_str().unwrap();
    assert!(words.ends_with("which speaks protocol 1, not 7"), "{words}");
    client.ends_well();
}

#[test]
fn what_is_no_message_is_answered_and_harms_nothing() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(&sandbox);
    for (line, code) in [
        ("garbage", -32700),
        ("{\"id\":1,\"method\":\"hello\"", -32700),
        ("\u{feff}{}", -32700),
        ("[]", -32600),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\"}]", -32600),
        ("17", -32600),
        ("{}", -32600),
        ("{\"method\":5,\"id\":1}", -32600),
    ] {
        client.line(line);
        let answer = client.next().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{line}");
    }
    // Answers that nobody waits for, notifications that nobody knows, empty lines: nothing to say.
    for line in [
        "",
        "  ",
        "{\"id\":99,\"result\":1}",
        "{\"method\":\"what\"}",
        "{\"method\":\"cancel\",\"params\":{\"scope\":3}}",
    ] {
        client.line(line);
    }
    assert_eq!(client.error("fly", &json!({}))["code"], -32601);
    assert_eq!(client.ends_well(), [Value::Null; 0]);
}

#[test]
fn damaged_messages_end_nothing() {
    let sandbox = sandbox("", WRITER);
    let mut client = Client::start(&sandbox);
    let messages = [
        r#"{"jsonrpc":"2.0","id":"m","method":"open","params":{"project":"main.worker","limits":{"max_requests":3}}}"#,
        r#"{"jsonrpc":"2.0","id":"n","method":"turn","params":{"scope":1,"input":"x","attachments":["a"]}}"#,
        r#"{"jsonrpc":"2.0","id":"o","method":"$/cancelRequest","params":{"id":1}}"#,
        r#"{"jsonrpc":"2.0","method":"cancel","params":{"scope":1}}"#,
    ];
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..2000 {
        let mut bytes = random.choice(messages).unwrap().as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[place] = random.choice(b"{}[]\",:0a\\").copied().unwrap(),
                1 => drop(bytes.remove(place)),
                _ => bytes.insert(place, random.u8(b' '..0x7f)),
            }
        }
        client.line(&String::from_utf8(bytes).unwrap());
    }
    let id = client.ask("hello", &json!({"protocol": 1}));
    assert_eq!(client.answer(id)["result"]["protocol"], 1);
    let (_, code, stderr) = client.left();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn parameters_that_do_not_fit_are_named() {
    let sandbox = sandbox("", WRITER);
    let mut client = Client::start(&sandbox);
    for (method, params, words) in [
        ("hello", json!({}), "the parameters of `hello`: missing field `protocol`"),
        ("open", json!({"projet": "."}), "the parameters of `open`: unknown field `projet`, expected one of `project`"),
        ("open", json!({"project": ".", "approval_mode": "yes"}), "unknown variant `yes`, expected one of `prompt`"),
        ("open", json!({"project": ".", "limits": {"max_requests": -1}}), "invalid value: integer `-1`"),
        ("open", json!({"project": ".", "tool_rules": {"x": {"alowed": true}}}), "unknown field `alowed`"),
        ("turn", json!({"scope": "one"}), "invalid type: string \"one\""),
        ("turn", json!(null), "the parameters of `turn`: invalid type: null"),
        ("create", json!({"project": ".", "spec": {"name": "a"}}), "missing field `instructions`"),
    ] {
        let error = client.error(method, &params);
        assert_eq!((&error["code"], &error["data"]["exit_code"]), (&json!(-32602), &json!(2)), "{method} {params}");
        let said = error["message"].as_str().unwrap();
        assert!(said.contains(words) && !said.contains(" at line "), "{method} {params}: {said}");
    }
    for (method, params, words) in [
        ("turn", json!({"scope": 5, "input": "x"}), "there is no open scope 5"),
        ("close", json!({"scope": 5}), "there is no open scope 5"),
        ("cancel", json!({"scope": 5}), "there is no open scope 5"),
        ("open", json!({"project": "main.worker", "model": "gpt"}), "`model`: "),
        ("open", json!({"project": "main.worker", "limits": {"max_cost_usd": 0}}), "`limits.max_cost_usd` is not"),
        ("open", json!({"project": "main.worker", "creation_defaults": {"model": "scripted:x"}}), "follow no script"),
    ] {
        let error = client.error(method, &params);
        assert_eq!((&error["data"]["kind"], &error["data"]["exit_code"]), (&json!("usage"), &json!(2)), "{error}");
        assert!(
            error["message"].as_str().unwrap().starts_with(words) || error["message"].as_str().unwrap().contains(words)
        );
    }
    client.ends_well();
}

#[test]
fn errors_have_the_kinds_and_codes_of_the_command_line() {
    let sandbox = sandbox("", "- {heard: fail, fail: give_up, say: broken}\n- {heard: long, say: 'a b c'}\n- say: ok");
    sandbox.file("broken.worker", "---\nname: broken\nmodel: ollama:q\ntolsets: [x]\n---\nx\n");
    sandbox.file("keyless.worker", "---\nname: keyless\nmodel: anthropic:claude-haiku-4-5\n---\nx\n");
    sandbox.file(
        "typed.worker",
        "---\nname: typed\nmodel: scripted:script.yaml\nschema_out: {type: object, required: [a]}\n---\nx\n",
    );
    let mut client = Client::start(&sandbox);
    let error = client.error("open", &json!({"project": "broken.worker"}));
    assert_eq!((&error["data"]["kind"], &error["data"]["exit_code"]), (&json!("project"), &json!(2)));
    assert!(error["message"].as_str().unwrap().contains("did you mean `toolsets`"), "{error}");
    let cases = [
        ("main.worker", "fail", json!({}), "failed", 1),
        ("keyless.worker", "x", json!({}), "provider", 3),
        ("typed.worker", "x", json!({}), "output", 6),
        ("main.worker", "x", json!({"limits": {"max_input_tokens": 1}}), "limit", 5),
    ];
    for (project, input, limits, kind, code) in cases {
        let mut params = json!({"project": project, "events": "none"});
        params.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let scope = client.result("open", &params)["scope"].clone();
        let error = client.error("turn", &json!({"scope": scope, "input": input}));
        assert_eq!((&error["data"]["kind"], &error["data"]["exit_code"]), (&json!(kind), &json!(code)), "{error}");
        assert!(error["data"]["usage"]["total"]["requests"].is_u64(), "{error}");
    }
    client.ends_well();
}

#[test]
fn a_large_value_passes() {
    let sandbox = sandbox("attachment_policy: {max_total_bytes: 100000000}", "- say: '{{ heard | length }}'");
    let mut client = Client::start(&sandbox);
    let scope = client.open(&json!({}));
    let large = "é".repeat(25_000_000);
    let turned = client.result("turn", &json!({"scope": scope, "input": large}));
    assert_eq!(turned["output"], "25000000");
    assert_eq!(turned["messages"][0]["parts"][0]["text"].as_str().map(str::len), Some(50_000_000));
    client.ends_well();
}
