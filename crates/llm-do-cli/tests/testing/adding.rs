//! Kept runs that become cases.

use std::fs;

use crate::support::Sandbox;
use crate::{NOTES, SCRIPT, project};

fn ran(sandbox: &Sandbox) -> String {
    let run = ["run", "notes.worker", "-m", "scripted:script.yaml", "--approve-all", "Notes for 2.0"];
    let ended = sandbox.run(&run);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    sandbox.runs().pop().unwrap()
}

#[test]
fn a_kept_run_becomes_a_case_that_passes() {
    let sandbox = project();
    fs::remove_file(sandbox.path().join("notes.test.yaml")).unwrap();
    sandbox.file("changes/101.md", "Index over ingredients");
    let run = ran(&sandbox);
    let ended = sandbox.run(&["test", "notes.worker", "--add", &run]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "notes.test.yaml   Notes for 2.0\n"), "{ended:?}");
    let cases = fs::read_to_string(sandbox.path().join("notes.test.yaml")).unwrap();
    for words in
        [&format!("from: \"{run}\""), "input: \"Notes for 2.0\"", "\"read_file\": {\"path\":\"changes/101.md\"}"]
    {
        assert!(cases.contains(words), "{words}: {cases}");
    }
    assert!(cases.contains("approve: [\"write_file\"]"), "{cases}");
    let ended = sandbox.run(&["test", "notes.worker"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // A second one stands behind the first.
    let ended = sandbox.run(&["test", "notes.worker", "--add", &run, "--name", "again"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.run(&["test", "notes.worker"]).stdout.contains("2 passed"));
    sandbox.file("notes.worker", &NOTES.replace("release notes", "poems"));
    assert!(sandbox.run(&["test", "notes.worker"]).stdout.contains("0 passed, 2 stale"));
}

#[test]
fn what_looks_like_a_secret_is_not_written_into_a_case() {
    let sandbox = project();
    sandbox.file("changes/101.md", "Index");
    // In parts, so that no file of ours looks like it holds one.
    let secret = ["sk-ant-", "api03-", "Zx81kQ92mVb7"].concat();
    sandbox.file("script.yaml", &SCRIPT.replace("users find", &format!("{secret} finds")));
    let run = ran(&sandbox);
    let before = sandbox.tree();
    let ended = sandbox.run(&["test", "notes.worker", "--add", &run]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("looks like a secret") && !ended.stderr.contains(&secret), "{ended:?}");
    assert_eq!(sandbox.tree(), before);
}

#[test]
fn a_run_that_is_not_finished_is_no_case() {
    let sandbox = project();
    sandbox.file("changes/101.md", "Index");
    let ended = sandbox.run(&["run", "-p", "notes.worker", "-m", "scripted:script.yaml", "Notes for 2.0"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let run = sandbox.runs().pop().unwrap();
    let ended = sandbox.run(&["test", "notes.worker", "--add", &run]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("it is not finished"), "{ended:?}");
}
