//! Variants of toolsets: chosen, renamed and ruled over by the manifest.

use llm_do::runtime::{RunError, RuntimeConfig};
use llm_do::tools::Ending;
use llm_do::tools::approval::Approvals;
use serde_json::json;

use super::support::{Files, runtime, text, worker};

/// An agent that uses a chain of variants of the project's files.
fn files(script: &str) -> Files {
    let manifest = json!({
        "version": 1,
        "entry": {"agent": "main"},
        "worker_files": ["main.worker"],
        "toolsets": {
            "notes": {"use": "filesystem_project", "prefix": "notes_", "tools": ["read_file", "write_file"],
                      "approval": {"write_file": "allow"}},
            "careful": {"use": "notes", "prefix": "my_", "approval": {"notes_read_file": "block"}},
        },
    });
    Files::new(&[
        ("project.json", &manifest.to_string()),
        ("main.worker", &worker("main", "toolsets: [careful]")),
        ("script.yaml", script),
    ])
}

#[tokio::test]
async fn a_variant_offers_what_it_chooses_under_its_names_and_rules() {
    let script = "- {round: 1, call: {my_notes_write_file: {path: a.txt, content: hello}}}\n- say: '{{ result }}'";
    let project = files(script);
    let outcome = runtime(&project.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
    assert_eq!(text(Ok(outcome.output)), "wrote 5 characters to a.txt");
    assert_eq!(std::fs::read_to_string(project.path().join("a.txt")).unwrap(), "hello");

    let blocked = files("- call: {my_notes_read_file: {path: a.txt}}");
    let refused = runtime(&blocked.project(), RuntimeConfig::new(Approvals::approve_all())).run("x").await;
    assert!(matches!(refused, Err(RunError::Ended(Ending::Refused { .. }))), "{refused:?}");

    let unknown = files("- {round: 1, call: {list_files: {}}}\n- say: '{{ result }}'");
    let outcome = runtime(&unknown.project(), RuntimeConfig::new(Approvals::approve_all())).run("x").await.unwrap();
    let expected = "error: there is no tool `list_files`; tools: my_notes_read_file, my_notes_write_file";
    assert_eq!(text(Ok(outcome.output)), expected);
}
