//! Calls that take long, for clients that know tasks.

use serde_json::{Value, json};

use super::{Server, TASKS, accept, desk, newest, text};

fn with_tasks(forms: bool) -> Value {
    let mut capabilities = json!({"extensions": {TASKS: {}}});
    if forms {
        capabilities["elicitation"] = json!({});
    }
    capabilities
}

/// Looks at a task until it is in this state.
#[track_caller]
fn until(server: &mut Server, task: &Value, status: &str) -> Value {
    for _ in 0..2000 {
        let found = server.result("tasks/get", json!({"taskId": task}));
        if found["status"] == status {
            return found;
        }
        assert!(found["status"] == "working" || found["status"] == "input_required", "{found}");
    }
    panic!("the task is never {status}")
}

#[test]
fn a_question_is_answered_through_a_task_and_the_task_outlives_its_server() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &with_tasks(false), &["--task-after", "0.001s"]);
    let begun = server.call("main", "write it");
    assert_eq!((&begun["resultType"], &begun["status"]), (&json!("task"), &json!("working")), "{begun}");
    assert!(begun["ttlMs"].is_null() && begun["createdAt"].as_str().unwrap().ends_with('Z'), "{begun}");
    let task = begun["taskId"].clone();
    server.client.ends_well();
    assert_eq!(newest(&sandbox)["state"], "waits");

    let mut server = Server::start(&sandbox, &with_tasks(true), &[]);
    let asked = until(&mut server, &task, "input_required");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let given = json!({"taskId": task, "inputResponses": {key: accept(&json!({"answer": "once"}))}});
    assert_eq!(server.result("tasks/update", given)["resultType"], "complete");
    let done = until(&mut server, &task, "completed");
    assert_eq!(done["result"]["isError"], false, "{done}");
    assert!(text(&done["result"]).starts_with("Result"), "{done}");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("out.txt")).unwrap(), "hi");
    server.client.ends_well();
}

#[test]
fn a_task_is_cancelled_as_a_run_is_and_nobody_else_has_it() {
    let sandbox = desk();
    let mut server = Server::start(&sandbox, &with_tasks(false), &[]);
    let begun = server.call("main", "write it");
    assert_eq!(begun["resultType"], "task", "{begun}");
    assert!(begun["statusMessage"].as_str().unwrap().contains("llm-do inbox approve"), "{begun}");
    let task = begun["taskId"].as_str().unwrap().to_owned();
    let forged = format!("{}{}", &task[..task.len() - 1], if task.ends_with('0') { '1' } else { '0' });
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        for name in [&forged, &task[..16].to_owned(), &String::new()] {
            let params = json!({"taskId": name, "inputResponses": {}});
            assert_eq!(server.error(method, params), -32602, "{method} {name}");
        }
    }
    server.result("tasks/cancel", json!({"taskId": task}));
    until(&mut server, &json!(task), "cancelled");
    assert!(!sandbox.path().join("out.txt").exists());
    server.client.ends_well();
    let mut server = Server::start(&sandbox, &json!({}), &[]);
    assert_eq!(
        server.error("tasks/get", json!({"taskId": task})),
        -32021,
        "the client did not say that it knows tasks"
    );
    server.client.ends_well();
}
