//! Our examples ask less after what was always approved has become rules.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::Sandbox;

/// Examples that ask, and what they are told.
const EXAMPLES: &[(&str, &str)] = &[
    ("refund", "The lamp of order 1042 arrived broken"),
    ("publish", "Publish the crane, please"),
    ("specialists", "Say clause 4 plainly"),
];

/// Runs an example to its end, approving whatever it asks. Gives how often it asked.
fn questions(sandbox: &Sandbox, example: &str, prompt: &str) -> usize {
    let (project, script) = (format!("examples/{example}"), format!("scripted:examples/{example}/script.yaml"));
    let mut ended = sandbox.run(&["run", &project, "-m", &script, "--trust", prompt]);
    let mut asked = 0;
    while ended.code == Some(4) {
        let open = sandbox.run(&["inbox", "--json"]);
        let open: Vec<Value> = open.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!open.is_empty() && asked < 20, "{ended:?}");
        asked += open.len();
        let ids: Vec<&str> = open.iter().map(|question| question["digest"].as_str().unwrap()).collect();
        ended = sandbox.run(&[&["inbox", "approve"][..], &ids, &["--go"]].concat());
    }
    assert_eq!(ended.code, Some(0), "{example}: {ended:?}");
    asked
}

#[test]
fn after_suggestions_our_examples_ask_at_most_a_third_of_before() {
    let sandbox = Sandbox::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    assert!(Command::new("cp").arg("-r").arg(examples).arg(sandbox.path()).status().unwrap().success());
    let all = || EXAMPLES.iter().map(|(example, prompt)| questions(&sandbox, example, prompt)).sum::<usize>();
    let before: Vec<usize> = (0..3).map(|_| all()).collect();
    let before = before.into_iter().min().unwrap();
    assert!(before > 0);
    let suggested = sandbox.run(&["policy", "suggest", "--yes"]);
    assert_eq!(suggested.code, Some(0), "{suggested:?}");
    let after = all();
    assert!(after * 10 <= before * 3, "{after} of {before}: {}", suggested.stdout);
    let replay = sandbox.run(&["policy", "replay"]);
    assert_eq!(replay.code, Some(0), "{replay:?}");
}
