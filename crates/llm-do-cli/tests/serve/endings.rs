//! How it ends: turns that are cancelled, clients that leave, signals, and children that must not outlive it.

use std::process::Command;

use fake_llm::{FakeLlm, StallGate};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::session::KEY;
use crate::stalled;
use crate::support::Sandbox;

fn serving(sandbox: &Sandbox, fake: &FakeLlm) -> Command {
    let url = fake.anthropic_url();
    sandbox.command(&["serve", "--stdio"], &[("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)])
}

/// A client in the middle of a turn that does not end by itself.
fn in_a_turn(sandbox: &Sandbox, fake: &FakeLlm, gate: &StallGate) -> (Client, u64) {
    let mut client = Client::of(serving(sandbox, fake));
    let scope = client.open(&json!({"events": "facts"}));
    let turn = client.ask("turn", &json!({"scope": scope, "input": "a story"}));
    gate.wait_until_reached(1);
    (client, turn)
}

#[test]
fn a_turn_is_cancelled_in_any_of_three_ways_and_the_scope_goes_on() {
    for way in ["request", "notification", "taken back"] {
        let (sandbox, fake, gate) = stalled();
        let (mut client, turn) = in_a_turn(&sandbox, &fake, &gate);
        match way {
            "request" => {
                assert_eq!(client.result("cancel", &json!({"scope": 1})), json!({"cancelled": true}));
            }
            "notification" => client.send(json!({"method": "cancel", "params": {"scope": 1}})),
            _ => client.send(json!({"method": "$/cancelRequest", "params": {"id": turn}})),
        }
        gate.wait_until_left(1);
        let error = match client.heard.iter().find(|message| message["id"] == turn) {
            _ if way == "taken back" => Value::Null,
            Some(answer) => answer["error"].clone(),
            None => client.answer(turn)["error"].clone(),
        };
        if way != "taken back" {
            assert_eq!(
                (&error["data"]["kind"], &error["data"]["exit_code"]),
                (&json!("cancelled"), &json!(130)),
                "{error}"
            );
        }
        assert_eq!(client.turn(1, "another"), "Once upon a time, there was");
        assert_eq!(client.result("cancel", &json!({"scope": 1})), json!({"cancelled": false}), "nothing is under way");
        client.ends_well();
    }
}

#[test]
fn closing_ends_a_turn_that_goes_on() {
    let (sandbox, fake, gate) = stalled();
    let (mut client, turn) = in_a_turn(&sandbox, &fake, &gate);
    let close = client.ask("close", &json!({"scope": 1}));
    let error = client.answer(turn)["error"].clone();
    assert_eq!(error["data"]["kind"], "cancelled", "{error}");
    let closed = client.answer(close);
    assert_eq!(closed["result"]["trace"][0]["error"], "cancelled");
    gate.wait_until_left(1);
    client.ends_well();
}

#[test]
fn a_client_that_leaves_ends_its_turns_and_its_calls() {
    let (sandbox, fake, gate) = stalled();
    let (client, _) = in_a_turn(&sandbox, &fake, &gate);
    let rest = client.ends_well();
    gate.wait_until_left(1);
    let last = &rest.iter().rfind(|message| message["method"] == "event").unwrap()["params"]["event"];
    assert_eq!((&last["type"], &last["error"]), (&json!("call_finished"), &json!("cancelled")));
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_it() {
    let (sandbox, fake, gate) = stalled();
    let mut command = serving(&sandbox, &fake);
    let mut child = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    drop(child.stdout.take());
    let messages = "{\"id\":1,\"method\":\"open\",\"params\":{\"project\":\"main.worker\"}}\n\
                    {\"id\":2,\"method\":\"turn\",\"params\":{\"scope\":1,\"input\":\"x\"}}\n";
    std::io::Write::write_all(&mut stdin, messages.as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(141), "nobody could read the answers");
    gate.release();
}

#[test]
fn signals_answer_what_is_under_way_and_end_it_with_their_codes() {
    for (signal, code, kind, said) in
        [(Signal::TERM, 143, "terminated", "terminated"), (Signal::INT, 130, "cancelled", "interrupted")]
    {
        let (sandbox, fake, gate) = stalled();
        let (mut client, turn) = in_a_turn(&sandbox, &fake, &gate);
        client.kill(signal);
        let error = client.answer(turn)["error"].clone();
        assert_eq!((&error["message"], &error["data"]["kind"]), (&json!(said), &json!(kind)), "{error}");
        assert_eq!(error["data"]["exit_code"], code);
        gate.wait_until_left(1);
        let (_, ended, stderr) = client.left();
        assert_eq!((ended, stderr), (Some(code), format!("error: {said}\n")));
    }
}

#[test]
fn what_needs_no_waiting_is_answered_to_a_client_that_says_no_more() {
    let sandbox = Sandbox::new();
    for _ in 0..20 {
        let mut client = Client::start(&sandbox);
        client.ask("hello", &json!({"protocol": 1}));
        let rest = client.ends_well();
        assert_eq!(rest[0]["result"]["protocol"], 1, "{rest:?}");
    }
}

#[test]
fn without_the_flag_it_says_what_it_needs() {
    let ended = Sandbox::new().run(&["serve"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("--stdio"), "{}", ended.stderr);
}

#[test]
fn what_a_cancelled_turn_said_stays_and_the_error_says_so() {
    let (sandbox, fake, gate) = stalled();
    let (mut client, turn) = in_a_turn(&sandbox, &fake, &gate);
    assert_eq!(client.result("cancel", &json!({"scope": 1})), json!({"cancelled": true}));
    let error = match client.heard.iter().find(|message| message["id"] == turn) {
        Some(answer) => answer["error"].clone(),
        None => client.answer(turn)["error"].clone(),
    };
    assert_eq!((&error["data"]["kind"], &error["data"]["kept"]), (&json!("cancelled"), &json!(true)), "{error}");
    client.turn(1, "another");
    let requests = fake.requests();
    let asked = format!("{:?}", requests.last().unwrap().seen.as_ref().unwrap().messages);
    assert!(asked.contains("a story") && asked.contains("the user stopped it"), "{asked}");
    assert_eq!(fake.violations(), []);
    client.ends_well();
}
