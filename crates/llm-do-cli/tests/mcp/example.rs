//! The example and the manifest of the documentation, as their readers run them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::servers;
use crate::session::Run;
use crate::support::Sandbox;
use crate::{calls, run};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn diary() -> Sandbox {
    let sandbox = Sandbox::new();
    for entry in std::fs::read_dir(repository().join("examples/mcp")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("examples/mcp/{}", path.file_name().unwrap().to_str().unwrap());
        sandbox.file(&name, &std::fs::read_to_string(&path).unwrap());
    }
    sandbox
}

fn said<'a>(sandbox: &'a Sandbox, words: &[&'a str]) -> Run<'a> {
    Run::of(sandbox, words).with("PATH", std::env::var("PATH").unwrap())
}

#[test]
fn the_commands_of_the_example_do_what_it_says() {
    let sandbox = diary();
    let readme = std::fs::read_to_string(repository().join("examples/mcp/README.md")).unwrap();
    let commands: Vec<Vec<String>> =
        readme.lines().filter_map(|line| line.strip_prefix("$ llm-do ")).map(|line| shell_words(line)).collect();
    let words: Vec<Vec<&str>> = commands.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
    let listed = said(&sandbox, &words[0]).answer();
    for line in [
        "    appointments      | The appointments of a day, by hour. (only reads)\n",
        "    clear_day         | Cancels all appointments of a day. (may destroy)\n",
        "      appointments      allow  (appointments)\n",
        "      make_appointment  ask  (appointments)\n",
    ] {
        assert!(listed.contains(line), "{listed}");
    }
    let answer = said(&sandbox, &words[1]).answer();
    assert_eq!(answer, "(scripted) Done: monday, 11:00, the harbour master\n");
    let careful: Vec<&str> = words[1].iter().copied().filter(|word| *word != "--approve-all").collect();
    let stopped = said(&sandbox, &careful).failure(4);
    assert!(stopped.contains("secretary › make_appointment"), "{stopped}");
    assert_eq!(commands.len(), 2);
}

/// Words, some of them in quotes.
fn shell_words(line: &str) -> Vec<String> {
    line.split('"')
        .enumerate()
        .flat_map(|(index, part)| {
            if index % 2 == 1 { vec![part.to_owned()] } else { part.split_whitespace().map(str::to_owned).collect() }
        })
        .collect()
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
