//! Files of rules that cannot count, and how rules are edited.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Ended, wait};
use crate::terminal::Terminal;
use crate::{put_rules, rules_file, write, writer};

#[track_caller]
fn check_stopped(ended: &Ended, fact: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.contains(fact), "{}", ended.stderr);
}

#[test]
fn a_wrong_file_stops_everything_before_anything_runs() {
    let sandbox = writer();
    put_rules(&sandbox, "[[rule]]\nblok = \"write_file\"\n\n[[rule]]\nallow = \"f\"\nexpires = \"2026-02-31\"\n");
    let ended = write(&sandbox, "a.md");
    check_stopped(&ended, "is `block` meant?");
    assert!(ended.stderr.contains("rules.toml:6"), "every place is told: {}", ended.stderr);
    for words in [&["policy"][..], &["policy", "test"], &["policy", "replay"], &["check", "."]] {
        check_stopped(&sandbox.run(words), "rules.toml:2");
    }
    assert!(!sandbox.path().join(".local/state/llm-do/runs").exists(), "no run was begun");
}

#[test]
fn a_file_that_others_may_write_or_that_is_a_link_is_no_file_of_rules() {
    let sandbox = writer();
    put_rules(&sandbox, "[[rule]]\nblock = \"write_file\"\n");
    fs::set_permissions(rules_file(&sandbox), fs::Permissions::from_mode(0o622)).unwrap();
    check_stopped(&write(&sandbox, "a.md"), "others may write it");
    fs::remove_file(rules_file(&sandbox)).unwrap();
    sandbox.file("elsewhere.toml", "");
    std::os::unix::fs::symlink(sandbox.path().join("elsewhere.toml"), rules_file(&sandbox)).unwrap();
    check_stopped(&write(&sandbox, "a.md"), "it is no regular file");
}

/// Root may do anything, so this is somebody else.
#[test]
fn somebody_elses_file_is_no_file_of_rules_for_who_is_not_root() {
    const ANOTHER: u32 = 4321;
    let sandbox = writer();
    put_rules(&sandbox, "[[rule]]\nblock = \"write_file\"\n");
    let run = || {
        let mut command = sandbox.unprivileged(&["run", ".", "a.md", "-m", "scripted:script.yaml", "--ephemeral"]);
        wait(command.env("HOME", sandbox.path()))
    };
    let is_root = rustix::process::geteuid().is_root();
    for (mode, owner, fact) in [
        (0o644, Some(ANOTHER), "it belongs to another user"),
        (0o666, None, "others may write it"),
        (0o664, None, "others may write it"),
        (0o600, Some(ANOTHER), "it belongs to another user"),
    ] {
        fs::set_permissions(rules_file(&sandbox), fs::Permissions::from_mode(mode)).unwrap();
        // Only root can give a file away.
        if let Some(owner) = owner.filter(|_| is_root) {
            std::os::unix::fs::chown(rules_file(&sandbox), Some(owner), None).unwrap();
        } else if is_root {
            std::os::unix::fs::chown(rules_file(&sandbox), Some(0), None).unwrap();
        }
        if owner.is_none() || is_root {
            check_stopped(&run(), fact);
        }
    }
    assert!(!sandbox.path().join("a.md").exists());
}

#[test]
fn an_expired_rule_says_nothing_and_is_listed() {
    let sandbox = writer();
    put_rules(&sandbox, "[[rule]]\nallow = \"write_file\"\nexpires = 2020-01-01\n");
    assert_eq!(write(&sandbox, "a.md").code, Some(4));
    let listed = sandbox.run(&["policy"]);
    assert!(listed.stdout.contains("it has expired"), "{}", listed.stdout);
}

/// What is not a file of rules is not saved, and the old rules stay.
#[test]
fn edited_rules_are_read_before_they_are_saved() {
    let sandbox = writer();
    let good = "[[rule]]\nask = \"publish\"\n";
    put_rules(&sandbox, good);
    let editor = |text: &str| {
        sandbox.file("editor.sh", &format!("#!/bin/sh\nprintf '{text}' > \"$1\"\n"));
        fs::set_permissions(sandbox.path().join("editor.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let script = sandbox.path().join("editor.sh");
        let command = sandbox.command(&["policy", "edit"], &[("EDITOR", script.to_str().unwrap())]);
        Terminal::start(command).left()
    };
    let refused = editor("[[rule]]\\nask = 1\\n");
    assert_eq!(refused.code, Some(2), "{}", refused.screen);
    assert_eq!(fs::read_to_string(rules_file(&sandbox)).unwrap(), good);
    let saved = editor("[[rule]]\\nblock = \"publish\"\\n");
    assert_eq!(saved.code, Some(0), "{}", saved.screen);
    assert_eq!(fs::read_to_string(rules_file(&sandbox)).unwrap(), "[[rule]]\nblock = \"publish\"\n");
}
