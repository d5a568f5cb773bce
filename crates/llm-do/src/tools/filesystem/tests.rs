mod honest;
mod hostile;
mod races;
mod searching;

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::event::Events;
use crate::journal::Steps;
use crate::tools::approval::{Approvals, Candidate, Gate, GateOutcome, Rule};
use crate::tools::source::{Access, Base};

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn rooted(root: &Path, access: Access) -> Filesystem {
    let root = FileRoot { base: Base::Absolute(root.to_owned()), access, suffixes: Vec::new(), max_file_bytes: None };
    opened(root, &ProtectedFiles::default())
}

fn opened(root: FileRoot, protected: &ProtectedFiles) -> Filesystem {
    Filesystem::open(&FilesystemConfig { roots: Roots::One(root) }, &FileBases::of(Path::new("/nowhere")), protected)
        .unwrap()
}

fn json(arguments: &serde_json::Value) -> RawJson {
    RawJson::of(arguments)
}

/// What the toolset thinks of a call.
fn verdict(filesystem: &Filesystem, tool: &str, arguments: &serde_json::Value) -> Result<Verdict, String> {
    filesystem.verdict(tool, &json(arguments))
}

/// Through the gate, where every question is answered with yes; a rule allows what rules can allow.
fn permitted(filesystem: &Filesystem, tool: &str, arguments: &str) -> Result<PermittedCall, String> {
    passed(filesystem, tool, arguments, Approvals::approve_all()).map(|call| call.expect("everything is approved"))
}

/// Through the gate under a rule that allows; `None` if the approver would have to be asked.
fn passed(
    filesystem: &Filesystem,
    tool: &str,
    arguments: &str,
    approvals: Approvals,
) -> Result<Option<PermittedCall>, String> {
    let arguments = RawJson::parse(arguments).unwrap();
    let verdict = filesystem.verdict(tool, &arguments)?.under(Some(Rule::Allow));
    let gate = Gate::new(String::new(), approvals);
    let candidate = Candidate { tool, arguments: &arguments, toolset: &"", agent: "", path: &[], key: &String::new };
    let (steps, events) = (Steps::unrecorded(), Events::unheard());
    let passage = gate.pass(candidate, verdict.into(), |_| async { unreachable!("nobody edits") }, &steps, &events);
    match futures_util::FutureExt::now_or_never(passage).map(|passage| passage.map(|passage| passage.outcome)) {
        Some(Ok(GateOutcome::Permitted(permission))) => Ok(Some(permission.call("c1", tool, &arguments))),
        Some(Ok(GateOutcome::Waits(_))) => Ok(None),
        other => panic!("{other:?}"),
    }
}

/// Does what a call that was permitted says.
fn done(filesystem: &Filesystem, call: &PermittedCall) -> Result<String, ToolError> {
    filesystem.perform(call, &CancellationToken::new())
}

fn perform(filesystem: &Filesystem, tool: &str, arguments: &str) -> Result<String, String> {
    let call = permitted(filesystem, tool, arguments)?;
    done(filesystem, &call).map_err(|error| match error {
        ToolError::Failed(reason) => reason,
        other => panic!("{other:?}"),
    })
}

#[test]
fn files_are_read_written_edited_and_listed() {
    let directory = temporary();
    let files = rooted(directory.path(), Access::ReadWrite);
    assert_eq!(
        perform(&files, "write_file", r#"{"path":"a/b.md","content":"one two"}"#).unwrap(),
        "wrote 7 characters to a/b.md"
    );
    let read = perform(&files, "read_file", r#"{"path":"a/b.md","offset":4}"#).unwrap();
    assert_eq!(read, r#"{"content":"two","truncated":false,"total_chars":7,"offset":4,"chars_read":3}"#);
    perform(&files, "edit_file", r#"{"path":"a/b.md","old":"two","new":"three"}"#).unwrap();
    assert_eq!(std::fs::read_to_string(directory.path().join("a/b.md")).unwrap(), "one three");
    std::fs::write(directory.path().join("c.txt"), "x").unwrap();
    assert_eq!(perform(&files, "list_files", "{}").unwrap(), "a/b.md\nc.txt");
    assert_eq!(perform(&files, "list_files", r#"{"pattern":"*.txt"}"#).unwrap(), "c.txt");
    assert_eq!(perform(&files, "list_files", r#"{"path":"a"}"#).unwrap(), "a/b.md");
}

#[test]
fn a_whole_path_of_a_file_inside_is_inside() {
    let directory = temporary();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    std::fs::write(directory.path().join("sub/note.txt"), "a note").unwrap();
    let files = rooted(directory.path(), Access::ReadWrite);
    let whole = |path: &str| directory.path().join(path).display().to_string();
    let read = |path: &str| perform(&files, "read_file", &serde_json::json!({"path": path}).to_string());
    assert!(read(&whole("sub/note.txt")).unwrap().contains("a note"));
    assert_eq!(
        perform(&files, "list_files", &serde_json::json!({"path": whole("sub")}).to_string()).unwrap(),
        perform(&files, "list_files", r#"{"path":"sub"}"#).unwrap()
    );
    perform(&files, "write_file", &serde_json::json!({"path": whole("sub/new.txt"), "content": "x"}).to_string())
        .unwrap();
    assert_eq!(std::fs::read_to_string(whole("sub/new.txt")).unwrap(), "x");
    // What only begins like the root, or leads out of it again, is not inside.
    let beside = format!("{}-beside/note.txt", directory.path().display());
    for path in [beside, whole("../note.txt"), whole("sub/../../note.txt"), "/".to_owned()] {
        assert!(read(&path).is_err(), "{path}");
    }
}

#[test]
fn nothing_outside_is_reachable() {
    let outside = temporary();
    std::fs::write(outside.path().join("secret"), "s").unwrap();
    let directory = temporary();
    symlink(outside.path().join("secret"), directory.path().join("link")).unwrap();
    symlink(outside.path(), directory.path().join("door")).unwrap();
    let files = rooted(directory.path(), Access::ReadWrite);
    let absolute = outside.path().join("secret").display().to_string();
    for path in [
        "../secret",
        "a/../../secret",
        "link",
        "door/secret",
        "~/secret",
        "/proc/self/root/etc/passwd",
        &absolute,
        "a\\u0000b",
    ] {
        for (tool, rest) in
            [("read_file", ""), ("write_file", r#","content":"x""#), ("edit_file", r#","old":"s","new":"t""#)]
        {
            let arguments = format!(r#"{{"path":"{path}"{rest}}}"#);
            assert!(perform(&files, tool, &arguments).is_err(), "{tool} {path}");
        }
    }
    for pattern in ["../**/*", "/etc/*", "a/../../*", "[", "{a,b"] {
        assert!(perform(&files, "list_files", &format!(r#"{{"pattern":"{pattern}"}}"#)).is_err(), "{pattern}");
    }
    assert_eq!(perform(&files, "list_files", "{}").unwrap(), "[no files]");
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "s");
}

#[test]
fn a_write_keeps_the_mode_and_leaves_nothing_behind() {
    let directory = temporary();
    let path = directory.path().join("run.sh");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let files = rooted(directory.path(), Access::ReadWrite);
    perform(&files, "write_file", r#"{"path":"run.sh","content":"new"}"#).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn an_approval_is_for_what_was_shown() {
    let directory = temporary();
    let path = directory.path().join("a.txt");
    std::fs::write(&path, "old").unwrap();
    let files = rooted(directory.path(), Access::ReadWrite);
    let arguments = RawJson::parse(r#"{"path":"a.txt","content":"new"}"#).unwrap();
    let Verdict::Ask(question) = files.verdict("write_file", &arguments).unwrap() else { panic!("writes ask") };
    let preview = "   1 - old\n       (no line break at the end)\n   1 + new\n       (no line break at the end)";
    assert_eq!(question.preview.as_deref(), Some(preview));
    std::fs::write(&path, "changed meanwhile").unwrap();
    let Verdict::Ask(later) = files.verdict("write_file", &arguments).unwrap() else { panic!("writes ask") };
    assert_ne!(question.bound_to, later.bound_to);
}

#[test]
fn roots_have_modes_suffixes_and_names() {
    let directory = temporary();
    std::fs::create_dir(directory.path().join("in")).unwrap();
    std::fs::write(directory.path().join("in/a.md"), "hi").unwrap();
    let root = |base: &str, access, suffixes: &[&str]| FileRoot {
        base: Base::Project(base.into()),
        access,
        suffixes: suffixes.iter().map(|suffix| (*suffix).to_owned()).collect(),
        max_file_bytes: Some(10),
    };
    let roots = [
        ("input".to_owned(), root("in", Access::ReadOnly, &[])),
        ("output".to_owned(), root("out", Access::ReadWrite, &[".md"])),
    ];
    let config = FilesystemConfig { roots: Roots::Named(roots.into()) };
    let files = Filesystem::open(&config, &FileBases::of(directory.path()), &ProtectedFiles::default()).unwrap();
    assert_eq!(perform(&files, "list_files", "{}").unwrap(), "input/a.md");
    assert_eq!(perform(&files, "list_files", r#"{"path":"input"}"#).unwrap(), "input/a.md");
    assert_eq!(perform(&files, "list_files", r#"{"pattern":"input/*.txt"}"#).unwrap(), "[no files]");
    assert!(perform(&files, "read_file", r#"{"path":"input/a.md"}"#).unwrap().contains("hi"));
    let refused = [
        (r#"{"path":"input/b.md","content":"x"}"#, "can only be read; write to `output/…`"),
        (r#"{"path":"output/b.txt","content":"x"}"#, "allowed: .md"),
        (
            r#"{"path":"output/b.md","content":"more than ten bytes"}"#,
            "is larger than 10 bytes, and no more is allowed here",
        ),
        (r#"{"path":"b.md","content":"x"}"#, "paths start with `input/…` or `output/…`"),
    ];
    for (arguments, reason) in refused {
        let error = perform(&files, "write_file", arguments).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    assert!(!directory.path().join("out").exists(), "a root is made by the first write that is permitted");
    assert_eq!(perform(&files, "list_files", r#"{"path":"output"}"#).unwrap(), "[no files]");
    assert!(perform(&files, "read_file", r#"{"path":"output/b.md"}"#).unwrap_err().contains("does not exist"));
    assert!(matches!(
        verdict(&files, "write_file", &serde_json::json!({"path": "output/deep/b.md", "content": "x"})),
        Ok(Verdict::Ask(_))
    ));
    assert!(!directory.path().join("out").exists());
    perform(&files, "write_file", r#"{"path":"output/deep/b.md","content":"x"}"#).unwrap();
    assert_eq!(std::fs::read_to_string(directory.path().join("out/deep/b.md")).unwrap(), "x");
    assert_eq!(perform(&files, "list_files", "{}").unwrap(), "input/a.md\noutput/deep/b.md");
}

#[test]
fn models_are_told_where_they_are_and_what_they_may() {
    let directory = temporary();
    let root = FileRoot {
        base: Base::Absolute(directory.path().to_owned()),
        access: Access::ReadOnly,
        suffixes: vec![".md".into()],
        max_file_bytes: Some(9),
    };
    let files = opened(root, &ProtectedFiles::default());
    let described = files.specs().remove(0).description;
    let here = format!("Here: {}, read-only, only .md files, at most 9 bytes a file.", directory.path().display());
    assert!(described.starts_with("Reads a text file") && described.contains(&here), "{described}");
}

#[test]
fn arguments_that_do_not_fit_never_reach_the_tool() {
    let directory = temporary();
    let files = rooted(directory.path(), Access::ReadOnly);
    let cases = [
        (r#"{"pth":"a"}"#, "`pth` is unknown; did you mean `path`?"),
        ("{}", "`path` is missing"),
        (r#"{"path":"a","offset":-1}"#, "`offset`: expected at least 0, found -1"),
        (r#"{"path":"a","max_chars":"many"}"#, "`max_chars`: expected a whole number, found a text"),
    ];
    for (arguments, reason) in cases {
        let error = files.verdict("read_file", &RawJson::parse(arguments).unwrap()).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(files.specs().len(), 3);
}
