//! JSON that we print has no character that could deceive whoever looks at it, and says the same.

use serde_json::{Value, json};

use crate::client::Client;
use crate::session::Run;
use crate::support::Sandbox;
use crate::{SCRIPTED, sandbox};

const DECEPTIVE: &str = "a\u{9b}2J\u{202e}b\u{7f}\u{2066}\u{200b}\u{85}\u{feff}\u{e0041}c ünï";

fn talking(more: &str) -> Sandbox {
    sandbox(more, &format!("- say: {}\n", yaml(DECEPTIVE)))
}

/// Every character spelled out: as themselves some are no YAML.
fn yaml(text: &str) -> String {
    let spelled: Vec<String> = text.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect();
    format!("\"{}\"", spelled.concat())
}

#[track_caller]
fn check(printed: &str) {
    let odd = |c: char| c != '\n' && c.is_control() || "\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}".contains(c);
    assert!(!printed.is_empty() && !printed.contains(odd), "{printed:?}");
}

#[test]
fn results_events_and_messages_are_printed_with_escapes() {
    let sandbox = talking("");
    for flags in [&["--json"][..], &["--output-format", "json"], &["--output-format", "stream-json"], &["-vvv"]] {
        let ended = Run::new(&sandbox, &[&SCRIPTED[..], flags].concat()).ended();
        assert_eq!(ended.code, Some(0), "{flags:?}: {ended:?}");
        let is_messages = flags == ["-vvv"];
        let printed = if is_messages { &ended.stderr } else { &ended.stdout };
        check(printed);
        let values: Vec<Value> = printed
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let said = serde_json::to_string(DECEPTIVE).unwrap();
        assert!(values.iter().any(|value| value.to_string().contains(&said)), "the words are the same: {printed}");
        if !is_messages {
            assert_eq!(values.last().unwrap()["output"], DECEPTIVE);
        }
    }
}

#[test]
fn typed_answers_check_and_messages_of_serve_are_printed_with_escapes() {
    let answer = json!({"a": DECEPTIVE});
    let typed = sandbox("schema_out: {type: object}", &format!("- say: {}\n", yaml(&answer.to_string())));
    let printed = Run::new(&typed, &SCRIPTED).answer();
    check(&printed);
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), answer);

    let described = talking(&format!("description: {}", yaml(DECEPTIVE)));
    let checked = Run::of(&described, &["check", "main.worker", "-m", "ollama:q", "--json"]).answer();
    check(&checked);
    assert!(serde_json::from_str::<Value>(&checked).unwrap()["agents"].to_string().contains('c'));

    let mut client = Client::start(&described);
    let opening = client.ask("open", &json!({"project": "main.worker", "model": "scripted:script.yaml"}));
    check(&client.next_line());
    assert_eq!(opening, 1);
    let turn = client.ask("turn", &json!({"scope": 1, "input": "x"}));
    loop {
        let line = client.next_line();
        check(&line);
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == turn {
            assert_eq!(message["result"]["output"], DECEPTIVE);
            break;
        }
    }
    client.left();
}

#[test]
fn a_name_of_mixed_alphabets_is_marked_in_the_question() {
    let script = "- { round: 1, call: { write_file: { path: \"p\\u0430yment.md\", content: x } } }\n- say: done";
    let sandbox = sandbox("toolsets: [filesystem_cwd]", script);
    let ended = Run::new(&sandbox, &SCRIPTED).ended();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("p\\u{430}yment.md (mixed alphabets): 1 line added"), "{}", ended.stderr);
    assert!(!sandbox.path().join("p\u{430}yment.md").exists());
}
