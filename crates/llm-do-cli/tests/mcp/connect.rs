//! `llm-do check` with servers: it starts none, and with `--connect` those of a trusted project.

use serde_json::{Value, json};

use crate::servers;
use crate::session::Run;
use crate::{command, project};

#[test]
fn check_starts_nothing_unless_it_is_told_to_and_the_project_is_trusted() {
    let toolsets = json!({"desk": servers::ours_on_stdio()});
    let sandbox = project("toolsets: [desk]", &toolsets, "");
    let plain = Run::of(&sandbox, &["check", ".", "-m", "ollama:q"]).with("LLM_DO_TRUST", "").ended();
    assert!(plain.stdout.contains("\"log\"] with PASSED from SECRET, TOLD  "), "{}", plain.stdout);
    let said = Run::of(&sandbox, &["check", ".", "-m", "ollama:q", "--connect"]).with("LLM_DO_TRUST", "").failure(2);
    assert!(said.contains("`--connect` starts nothing of a project that is not trusted"), "{said}");
    let trusted = command(&sandbox, "check", &["-m", "ollama:q"]).ended();
    assert!(trusted.stdout.contains("*  unknown  (desk)"), "{}", trusted.stdout);
    assert!(!sandbox.path().join("log").exists(), "it was not started");
}

#[test]
fn connect_lists_what_servers_offer_and_what_each_agent_may_do_with_it() {
    let toolsets = json!({
        "desk": servers::ours_on_stdio(),
        "sums": {"use": "desk", "prefix": "d_", "tools": ["add"], "approval": {"add": "allow"}},
    });
    let sandbox = project("toolsets: [sums, filesystem_project_ro]", &toolsets, "");
    let text = command(&sandbox, "check", &["-m", "ollama:q", "--connect"]).with("SECRET", "s").answer();
    assert!(text.contains("servers\n  desk  "), "{text}");
    assert!(text.contains("    add           | Adds two numbers (only reads, destroys nothing)\n"), "{text}");
    assert!(text.contains("      d_add         allow  (sums)\n"), "{text}");
    let json = command(&sandbox, "check", &["-m", "ollama:q", "--connect", "--json"]).with("SECRET", "s").answer();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["servers"][0]["tools"][1]["original"], "show.all");
    assert_eq!(json["servers"][0]["tools"].as_array().unwrap().len(), 7);
    assert_eq!(json["agents"][0]["tools"][0]["verdict"], "allow");
    assert!(!std::fs::read_to_string(sandbox.path().join("log")).unwrap().contains("call"), "no tool was called");
}

#[test]
fn connect_finds_the_mistakes_that_only_a_server_can_show() {
    let toolsets = json!({
        "desk": servers::ours_on_stdio(),
        "sums": {"use": "desk", "tools": ["ad"]},
        "bad": {"mcp": {"command": "/nonexistent/server"}},
    });
    let sandbox = project("toolsets: [sums]", &toolsets, "");
    let said = command(&sandbox, "check", &["-m", "ollama:q", "--connect"]).with("SECRET", "s").failure(2);
    assert!(said.contains("`desk` has no tool `ad`") && said.contains("did you mean `add`?"), "{said}");
    let manifest = std::fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    sandbox.file("project.json", &manifest.replace("\"ad\"", "\"add\""));
    let ended = command(&sandbox, "check", &["-m", "ollama:q", "--connect"]).with("SECRET", "s").ended();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), "error: an MCP server cannot be used\n"));
    let json =
        command(&sandbox, "check", &["-m", "ollama:q", "--connect", "--json"]).with("SECRET", "s").ended().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let bad = json["servers"].as_array().unwrap().iter().find(|server| server["toolset"] == "bad").unwrap();
    assert_eq!((&json["ok"], &bad["tools"]), (&json!(false), &Value::Null));
    assert!(bad["error"].as_str().unwrap().ends_with("there is no such program"), "{bad}");
    let expected = "  bad  /nonexistent/server\n    | the MCP server `bad` cannot be started: `/nonexistent/server`: there is no such program\n";
    assert!(ended.stdout.contains(expected), "{}", ended.stdout);
}
