//! Files: only beneath the root, whole or not at all.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::session::Run;
use crate::support::Sandbox;
use crate::{project, run};

/// A project whose agent has the root `inside/`.
fn rooted() -> Sandbox {
    let sandbox = project(&[("main", "toolsets: [inside]")], "");
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "toolsets": {"inside": {"filesystem": {"root": "inside", "mode": "rw"}}}}"#,
    );
    sandbox.file("inside/a.txt", "alpha\n").file("outside.txt", "secret of the outside");
    symlink("../outside.txt", sandbox.path().join("inside/link.txt")).unwrap();
    symlink("..", sandbox.path().join("inside/up")).unwrap();
    symlink("a.txt", sandbox.path().join("inside/inner.txt")).unwrap();
    sandbox
}

/// What one call of a tool gives.
fn called(sandbox: &Sandbox, call: &str) -> String {
    sandbox.file("script.yaml", &format!("- {{ round: 1, call: {call} }}\n- say: \"{{{{ result }}}}\"\n"));
    run(sandbox, &["--approve-all"]).answer()
}

#[test]
fn nothing_outside_the_root_is_read_or_written() {
    let sandbox = rooted();
    let absolute = sandbox.path().join("outside.txt").display().to_string();
    let paths = ["../outside.txt", "link.txt", "up/outside.txt", "a/../../outside.txt", "~/outside.txt", &absolute];
    for path in paths {
        for call in [
            format!("{{ read_file: {{ path: '{path}' }} }}"),
            format!("{{ write_file: {{ path: '{path}', content: changed }} }}"),
            format!("{{ edit_file: {{ path: '{path}', old: secret, new: changed }} }}"),
        ] {
            let answer = called(&sandbox, &call);
            assert!(answer.starts_with("error: "), "{call}: {answer}");
            assert!(!answer.contains("secret of the outside"), "{call}: {answer}");
        }
    }
    assert_eq!(fs::read_to_string(sandbox.path().join("outside.txt")).unwrap(), "secret of the outside");
    for path in ["..", "up", "/"] {
        let listed = called(&sandbox, &format!("{{ list_files: {{ path: '{path}' }} }}"));
        assert!(listed.starts_with("error: "), "{path}: {listed}");
    }
    let listed = called(&sandbox, "{ list_files: {} }");
    assert!(listed.lines().any(|line| line == "a.txt") && !listed.contains("outside"), "{listed}");
    let inner = called(&sandbox, "{ read_file: { path: inner.txt } }");
    assert!(inner.contains("alpha"), "a link that stays inside is fine: {inner}");
}

#[test]
fn files_are_read_in_parts_and_binaries_are_named() {
    let sandbox = rooted();
    let part = called(&sandbox, "{ read_file: { path: a.txt, max_chars: 2, offset: 1 } }");
    assert_eq!(part, "{\"content\":\"lp\",\"truncated\":true,\"total_chars\":6,\"offset\":1,\"chars_read\":2}\n");
    fs::write(sandbox.path().join("inside/blob"), b"\xff\xfe\0").unwrap();
    let answer = called(&sandbox, "{ read_file: { path: blob } }");
    assert!(answer.starts_with("error: `blob` ") && answer.contains("binary"), "{answer}");
    let answer = called(&sandbox, "{ read_file: { path: . } }");
    assert!(answer.starts_with("error: "), "{answer}");
}

#[test]
fn a_write_replaces_the_file_at_once_and_keeps_its_mode() {
    let sandbox = rooted();
    let path = sandbox.path().join("inside/a.txt");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    // Whoever holds the old file keeps the old content: nothing is ever written into it.
    fs::hard_link(&path, sandbox.path().join("old")).unwrap();
    let answer = called(&sandbox, "{ write_file: { path: a.txt, content: 'beta ünïcode' } }");
    assert_eq!(answer, "wrote 12 characters to a.txt\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "beta ünïcode");
    assert_eq!(fs::read_to_string(sandbox.path().join("old")).unwrap(), "alpha\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    called(&sandbox, "{ write_file: { path: new/deep/b.txt, content: b } }");
    assert_eq!(fs::read_to_string(sandbox.path().join("inside/new/deep/b.txt")).unwrap(), "b");
    let left: Vec<_> =
        fs::read_dir(sandbox.path().join("inside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "no temporary file stays: {left:?}");
}

#[test]
fn an_edit_must_mean_one_place() {
    let sandbox = rooted();
    sandbox.file("inside/b.txt", "one two one\n");
    for old in ["one", "three", ""] {
        let answer = called(&sandbox, &format!("{{ edit_file: {{ path: b.txt, old: '{old}', new: x }} }}"));
        assert!(answer.starts_with("error: "), "{old}: {answer}");
    }
    assert_eq!(fs::read_to_string(sandbox.path().join("inside/b.txt")).unwrap(), "one two one\n");
    called(&sandbox, "{ edit_file: { path: b.txt, old: one, new: x, replace_all: true } }");
    assert_eq!(fs::read_to_string(sandbox.path().join("inside/b.txt")).unwrap(), "x two x\n");
}

#[test]
fn a_root_that_is_only_read_offers_no_writing() {
    let sandbox = project(&[("main", "toolsets: [filesystem_cwd_ro]")], "");
    let answer = called(&sandbox, "{ write_file: { path: x, content: x } }");
    assert_eq!(answer, "error: there is no tool `write_file`; tools: list_files, read_file, search_files\n");
}

#[test]
fn the_working_directory_is_not_the_project() {
    let script = "- { round: 1, call: { read_file: { path: where.txt } } }\n- say: \"{{ result }}\"\n";
    let sandbox = Sandbox::new();
    sandbox.file("project/where.txt", "there").file("where.txt", "here").file("script.yaml", script);
    for (toolset, place) in [("filesystem_cwd_ro", "here"), ("filesystem_project_ro", "there")] {
        sandbox.file("project/main.worker", &format!("---\nname: main\ntoolsets: [{toolset}]\n---\nx\n"));
        let answer = Run::new(&sandbox, &["project", "hi", "-m", "scripted:script.yaml"]).answer();
        assert!(answer.contains(&format!("\"content\":\"{place}\"")), "{toolset}: {answer}");
    }
}

/// Whoever read a file without its keys cannot write the marks back over them.
#[test]
fn a_key_in_a_file_is_not_shown_and_not_written_over() {
    const KEY: &str = "sk-live-0123456789abcdef";
    let run = |calls: &str| {
        let script = format!("{calls}- say: \"{{{{ result }}}}\"\n");
        let main = "toolsets: [filesystem_cwd]\napproval: { write_file: allow, edit_file: allow }";
        let sandbox = project(&[("main", main)], &script);
        sandbox.file("settings.txt", &format!("name = a\ntoken = {KEY}\n"));
        sandbox.file("doc.txt", "a log with [redacted] in it\n");
        let arguments = ["run", ".", "hi", "-q", "-m", "scripted:script.yaml"];
        let ended = sandbox.run_in(&arguments, &[("OPENAI_API_KEY", KEY)]);
        let file = |name: &str| std::fs::read_to_string(sandbox.path().join(name)).unwrap();
        (ended.stdout, file("settings.txt"), file("doc.txt"))
    };
    let kept = format!("name = a\ntoken = {KEY}\n");
    let (said, file, _) = run("- { round: 1, call: { read_file: { path: settings.txt } } }\n");
    assert!(said.contains("token = [redacted]") && !said.contains(KEY), "{said}");
    assert_eq!(file, kept);
    let (said, file, _) =
        run("- { round: 1, call: { edit_file: { path: settings.txt, old: 'token = [redacted]', new: x } } }\n");
    assert!(said.contains("stands for a key that is not shown; give the text around it"), "{said}");
    assert_eq!(file, kept);
    let (said, file, _) = run(
        "- { round: 1, call: { write_file: { path: settings.txt, content: \"name = b\\ntoken = [redacted]\\n\" } } }\n",
    );
    assert!(said.contains("is not written in its place"), "{said}");
    assert_eq!(file, kept);
    let (_, file, doc) =
        run("- { round: 1, call: { edit_file: { path: settings.txt, old: 'name = a', new: 'name = b' } } }\n\
         - { round: 2, call: { edit_file: { path: doc.txt, old: 'a log with', new: 'one with' } } }\n");
    assert_eq!(file, kept.replace("name = a", "name = b"), "what lies around a key can be edited");
    assert_eq!(doc, "one with [redacted] in it\n", "and so can a file that has the mark");
}
