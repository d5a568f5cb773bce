//! The manifest of the documentation, as its readers run it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::servers;
use crate::support::Sandbox;
use crate::{calls, run};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_manifest_of_the_documentation_runs() {
    let document = std::fs::read_to_string(repository().join("docs/mcp.md")).unwrap();
    let block =
        |language: &str| document.split_once(&format!("```{language}\n")).unwrap().1.split_once("```").unwrap().0;
    let mut manifest: Value = serde_json::from_str(block("json")).unwrap();
    // As npm would start it, had it fetched it.
    assert_eq!(manifest["toolsets"]["everything"]["mcp"]["args"][1], "@modelcontextprotocol/server-everything");
    manifest["toolsets"]["everything"]["mcp"] = json!({"command": "node", "args": [servers::everything(), "stdio"]});
    let sandbox = Sandbox::new();
    sandbox.file("project.json", &manifest.to_string()).file("main.worker", block("yaml"));
    sandbox.file("script.yaml", &calls(&["{ my_get-sum: { a: 40, b: 2 } }"]));
    assert_eq!(run(&sandbox, &[]).answer(), "The sum of 40 and 2 is 42.\n");
}
