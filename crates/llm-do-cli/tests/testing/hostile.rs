//! Cases and records of strangers.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::support::{Ended, Sandbox, wait};
use crate::{CASES, RECORD, recorded, test};

/// Without the trust that a sandbox has otherwise.
fn untrusting(sandbox: &Sandbox, arguments: &[&str]) -> Ended {
    let mut command = sandbox.command(arguments, &[]);
    wait(command.env_remove("LLM_DO_TRUST").stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn a_record_in_a_project_that_is_not_trusted_calls_nothing() {
    let sandbox = recorded();
    let ended = untrusting(&sandbox, &["test", "notes.worker"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{ended:?}");
    for words in ["allow", "write_file in its tests, where it asks", "notes.test.records lets its tests call"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    // A run neither shows nor needs it.
    let ran = untrusting(&sandbox, &["run", "notes.worker", "-p", "--no-tools", "-m", "scripted:script.yaml", "hi"]);
    assert!(!ran.stderr.contains("trust"), "{ran:?}");
}

#[test]
fn another_record_needs_trust_again_and_what_was_recorded_here_does_not() {
    let sandbox = recorded();
    assert_eq!(untrusting(&sandbox, &["test", "notes.worker", "--trust"]).code, Some(0));
    assert_eq!(untrusting(&sandbox, &["test", "notes.worker"]).code, Some(0));
    let path = sandbox.path().join(RECORD);
    let hostile = fs::read_to_string(&path).unwrap().replace("drafts/notes.md", "drafts/other.md");
    fs::write(&path, hostile).unwrap();
    assert_eq!(untrusting(&sandbox, &["test", "notes.worker"]).code, Some(4));
    fs::remove_file(&path).unwrap();
    let renew = ["test", "notes.worker", "--record", "-m", "scripted:script.yaml"];
    assert_eq!(untrusting(&sandbox, &renew).code, Some(0));
    assert_eq!(untrusting(&sandbox, &["test", "notes.worker"]).code, Some(0), "what it wrote is trusted");
}

#[test]
fn files_of_a_case_replace_nothing_that_would_need_trust() {
    let sandbox = recorded();
    let worker = "---\\nname: notes\\ntoolsets: [filesystem_project]\\napproval: { write_file: allow }\\n---\\nx\\n";
    let cases = CASES.replace("files: { changes", &format!("files: {{ notes.worker: \"{worker}\", changes"));
    sandbox.file("notes.test.yaml", &cases);
    let ended = test(&sandbox, &[]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("asks for more than was agreed to"), "{ended:?}");
}

#[test]
fn links_and_paths_lead_nowhere_else() {
    let sandbox = recorded();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), sandbox.path().join("out")).unwrap();
    sandbox.file("notes.test.yaml", &CASES.replace("files: { changes", "files: { out/x: y, changes"));
    // The link leads out, so it is not there: a directory of this name is made in the scratch project.
    let ended = test(&sandbox, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    for path in ["../x", "/tmp/x", "a/../../x"] {
        sandbox.file("notes.test.yaml", &CASES.replace("files: { changes", &format!("files: {{ {path}: y, changes")));
        assert_eq!(test(&sandbox, &[]).code, Some(2), "{path}");
    }
}

#[test]
fn a_record_that_is_none_is_said_and_nothing_runs() {
    let sandbox = recorded();
    let good = fs::read_to_string(sandbox.path().join(RECORD)).unwrap();
    for text in ["", "{}\n", "{\"v\":9}\n", &good[..good.len() / 2], "{\"v\":1}\n[]\n"] {
        sandbox.file(RECORD, text);
        let ended = test(&sandbox, &[]);
        assert_eq!(ended.code, Some(2), "{text}: {ended:?}");
        assert!(ended.stderr.contains("error: the record "), "{ended:?}");
    }
}

#[test]
fn a_large_project_names_the_key_that_chooses_from_it() {
    let sandbox = recorded();
    let large = fs::File::create(sandbox.path().join("large.bin")).unwrap();
    large.set_len(65 * 1024 * 1024).unwrap();
    let ended = test(&sandbox, &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("hint: `scratch`"), "{ended:?}");
    sandbox.file("notes.test.yaml", &format!("scratch: ['*.md', 'changes/**']\n{CASES}"));
    assert_eq!(test(&sandbox, &[]).code, Some(0));
}
