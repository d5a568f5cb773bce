//! What is told of nested calls: every call once, and sums that agree.

use serde_json::{Value, json};

use crate::session::{Run, of_type};
use crate::{manifest, project, run};

const SCRIPT: &str = "\
- { agent: main, round: 1, call: [ { child: { input: one } }, { child: { input: two } }, { list_files: { pattern: '*.none' } } ], usage: { input: 1, output: 10 } }
- { agent: main, say: done, usage: { input: 2, output: 20 } }
- { agent: child, round: 1, call: { leaf: { input: deep } }, usage: { input: 100, output: 1000 } }
- { agent: child, say: back, usage: { input: 200, output: 2000 } }
- { agent: leaf, say: leaf, usage: { input: 10000, output: 100000 } }
";

fn nested() -> (Vec<Value>, Value) {
    let main = "entry: true\ntoolsets: [child, filesystem_cwd_ro]";
    let sandbox = project(&[("main", main), ("child", "toolsets: [leaf]"), ("leaf", "")], SCRIPT);
    run(&sandbox, &["--json"]).events()
}

/// Name, kind, depth and input of a call and of those beneath it.
fn shape(call: &Value) -> Value {
    let calls: Vec<Value> = call["calls"].as_array().unwrap().iter().map(shape).collect();
    json!([call["name"], call["kind"], call["depth"], call["input"], calls])
}

#[test]
fn the_trace_is_a_tree_in_which_no_call_comes_twice() {
    let (events, result) = nested();
    assert_eq!(result["output"], "done");
    let main = &result["trace"];
    let leaf = json!(["leaf", "agent", 2, {"input": "deep"}, []]);
    let expected = [
        json!(["child", "agent", 1, {"input": "one"}, [leaf]]),
        json!(["child", "agent", 1, {"input": "two"}, [leaf]]),
        json!(["list_files", "tool", 0, {"pattern": "*.none"}, []]),
    ];
    let calls: Vec<Value> = main["calls"].as_array().unwrap().iter().map(shape).collect();
    assert_eq!(calls, expected, "in the order of the reply, although the last one ends first");
    assert_eq!((&main["name"], &main["depth"], &main["input"]), (&json!("main"), &json!(0), &json!("hi")));
    let count = |kind: &str| of_type(&events, kind).len();
    assert_eq!((count("call_started"), count("call_finished")), (5, 5));
    assert_eq!((count("tool_called"), count("tool_returned")), (1, 1), "agents are no tools in the events");
}

#[test]
fn the_usage_of_a_call_is_its_own_and_that_of_its_calls() {
    let (_, result) = nested();
    let usage = |value: &Value| {
        let number = |key: &str| value["usage"][key].as_u64().unwrap();
        (number("requests"), number("input_tokens"), number("output_tokens"))
    };
    let main = &result["trace"];
    assert_eq!(usage(main), (8, 20_603, 206_030));
    for child in main["calls"].as_array().unwrap().iter().filter(|call| call["name"] == "child") {
        assert_eq!(usage(child), (3, 10_300, 103_000));
        assert_eq!(usage(&child["calls"][0]), (1, 10_000, 100_000));
    }
    assert_eq!(result["usage"]["total"], main["usage"]);
    assert_eq!(result["usage"]["by_model"], json!({"scripted:script.yaml": main["usage"]}));
}

#[test]
fn the_result_holds_the_conversation_of_the_entry_alone() {
    let (_, result) = nested();
    let roles: Vec<&Value> = result["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let results = result["messages"][2]["parts"].as_array().unwrap();
    let tools: Vec<&Value> = results.iter().map(|part| &part["tool"]).collect();
    assert_eq!(tools, ["child", "child", "list_files"]);
}

#[test]
fn what_failed_and_what_was_refused_is_in_the_trace() {
    let script = "\
- { agent: main, round: 1, call: [ { child: { input: go } }, { read_file: { path: gone } }, { write_file: { path: x, content: x } } ] }
- { agent: main, say: done }
- { agent: child, fail: give_up, say: broken }
";
    let sandbox = project(&[("main", "toolsets: [child, filesystem_cwd]"), ("child", "")], script);
    let workers = r#""main.worker", "child.worker""#;
    sandbox.file("project.json", &manifest(workers, r#""return_permission_errors": true"#));
    let (events, result) = run(&sandbox, &["--json", "--reject-all"]).events();
    let calls = result["trace"]["calls"].as_array().unwrap();
    let error = |name: &str| calls.iter().find(|call| call["name"] == name).unwrap()["error"].as_str().unwrap();
    assert_eq!(calls.len(), 3);
    assert!(error("child").contains("broken"));
    assert!(error("read_file").contains("does not exist"));
    assert!(error("write_file").contains("every question is answered with no"));
    assert_eq!(of_type(&events, "tool_refused")[0]["tool"], "write_file");
    assert_eq!(of_type(&events, "run_failed").len(), 0);
}

/// Sequential and parallel tools, agents, refusals and names that no tool has: whichever is decided, begins or ends first.
#[test]
fn the_calls_of_a_reply_stand_in_its_order_live_and_resumed() {
    let script = "\
- { agent: main, round: 1, call: [ { slow: { input: a } }, { list_files: {} }, { nothing: {} }, { write_file: { path: x, content: x } }, { slow: { input: b } }, { read_file: { path: gone } } ] }
- { agent: main, round: 2, call: [ { read_file: { path: gone } }, { slow: { input: c } } ] }
- { agent: main, say: done }
- { agent: slow, round: 1, call: [ { leaf: { input: deep } }, { list_files: {} } ] }
- { agent: slow, round: 2, call: { list_files: {} } }
- { agent: slow, say: back }
- { agent: leaf, say: leaf }
";
    let agents = [
        ("main", "entry: true\ntoolsets: [slow, filesystem_cwd]"),
        ("slow", "toolsets: [leaf, filesystem_cwd_ro]"),
        ("leaf", ""),
    ];
    let sandbox = project(&agents, script);
    let workers = r#""main.worker", "slow.worker", "leaf.worker""#;
    sandbox.file("project.json", &manifest(workers, r#""return_permission_errors": true"#));
    let names = |call: &Value| -> Vec<String> {
        call["calls"].as_array().unwrap().iter().map(|call| call["name"].as_str().unwrap().to_owned()).collect()
    };
    let check = |result: &Value| {
        let main = &result["trace"];
        let first = ["slow", "list_files", "nothing", "write_file", "slow", "read_file"];
        assert_eq!(names(main), [&first[..], &["read_file", "slow"]].concat());
        for slow in main["calls"].as_array().unwrap().iter().filter(|call| call["name"] == "slow") {
            assert_eq!(names(slow), ["leaf", "list_files", "list_files"]);
        }
    };
    let (_, live) = run(&sandbox, &["--json", "--reject-all", "--journal", "run.journal"]).events();
    check(&live);
    // Everything but the end of the run.
    let file = sandbox.path().join("run.journal");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    std::fs::write(&file, lines[..lines.len() - 2].concat()).unwrap();
    let (_, resumed) = Run::of(&sandbox, &["resume", "run.journal", "--json"]).events();
    check(&resumed);
}
