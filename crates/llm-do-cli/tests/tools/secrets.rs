//! What asks whatever a rule allows, from the outside: secrets that are read, files of the project that are written.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use crate::support::{Ended, Sandbox, wait};
use crate::{project, run};

const ALLOWED: &str = "toolsets: [filesystem_cwd]\napproval: {read_file: allow, write_file: allow, edit_file: allow}";

/// An agent that may use every file tool without a question, and makes one call.
fn calling(call: &str) -> Sandbox {
    project(&[("main", ALLOWED)], &format!("- {{ round: 1, call: {call} }}\n- say: \"{{{{ result }}}}\"\n"))
}

#[test]
fn a_secret_is_not_read_before_somebody_agrees() {
    for path in [".env", "keys/server.pem", "innocent.txt", "hard.txt", "./keys/../keys/server.pem"] {
        let sandbox = calling(&format!("{{ read_file: {{ path: '{path}' }} }}"));
        sandbox.file(".env", "canary").file("keys/server.pem", "canary");
        symlink(".env", sandbox.path().join("innocent.txt")).unwrap();
        fs::hard_link(sandbox.path().join("keys/server.pem"), sandbox.path().join("hard.txt")).unwrap();
        let is_refused_at_once = path.contains("..");
        let ended = run(&sandbox, &[]).ended();
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(if is_refused_at_once { 0 } else { 4 }), "{path}: {shown}");
        assert!(!shown.contains("canary"), "{path}: {shown}");
        if !is_refused_at_once {
            assert!(run(&sandbox, &["--approve-all"]).answer().contains("canary"), "{path}");
        }
    }
}

#[test]
fn files_of_the_project_are_not_written_before_somebody_agrees() {
    for path in [
        "main.worker",
        "other.worker",
        "project.json",
        "script.yaml",
        "workers/new.yaml",
        "workers/generated/new.yaml",
        ".git/hooks/pre-commit",
        ".env",
        ".llm-do/x",
        ".venv/bin/python",
        "hard.txt",
        "soft.txt",
        ".config/llm-do/config.toml",
    ] {
        let sandbox = calling(&format!("{{ write_file: {{ path: '{path}', content: planted }} }}"));
        fs::hard_link(sandbox.path().join("main.worker"), sandbox.path().join("hard.txt")).unwrap();
        symlink("main.worker", sandbox.path().join("soft.txt")).unwrap();
        let before = sandbox.tree();
        let ended = run(&sandbox, &[]).ended();
        assert_eq!(ended.code, Some(4), "{path}: {ended:?}");
        assert_eq!(sandbox.tree(), before, "{path}");
    }
    let sandbox = calling("{ write_file: { path: notes.txt, content: honest } }");
    assert_eq!(run(&sandbox, &[]).answer(), "wrote 6 characters to notes.txt\n", "others pass under the rule");
}

#[test]
fn the_files_of_the_run_are_not_written_before_somebody_agrees() {
    for (flag, path) in [("-o", "answer.txt"), ("-o", "deep/answer.txt"), ("--journal", "run.jsonl")] {
        let sandbox = calling(&format!("{{ write_file: {{ path: '{path}', content: planted }} }}"));
        sandbox.file("deep/notes", "");
        let ended = run(&sandbox, &[flag, path]).ended();
        assert_eq!(ended.code, Some(4), "{path}: {ended:?}");
        let written = fs::read_to_string(sandbox.path().join(path)).unwrap_or_default();
        assert_ne!(written, "planted", "{path}");
        let answer = run(&sandbox, &[]).answer();
        assert_eq!(answer, format!("wrote 7 characters to {path}\n"), "without the flag it is any file");
    }
}

#[test]
fn a_guess_at_a_secret_is_not_answered() {
    for guess in ["canary", "wrong"] {
        let sandbox = calling(&format!("{{ edit_file: {{ path: .env, old: '{guess}', new: x }} }}"));
        sandbox.file(".env", "canary");
        assert_eq!(run(&sandbox, &[]).ended().code, Some(4), "{guess}");
    }
}

/// Root may do anything: permissions are kept by somebody else.
fn as_nobody(sandbox: &Sandbox) -> Ended {
    const NOBODY: u32 = 65_534;
    let mut command = sandbox.command(&["run", ".", "hi", "-m", "scripted:script.yaml", "--approve-all"], &[]);
    if rustix::process::geteuid().is_root() {
        // The program itself may lie where only root looks.
        let program = sandbox.path().join("llm-do");
        fs::copy(env!("CARGO_BIN_EXE_llm-do"), &program).unwrap();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = std::process::Command::new(program);
        command.args(arguments).env_clear().env("LLM_DO_TRUST", "1");
        command.current_dir(sandbox.path()).stdin(Stdio::null());
        command.uid(NOBODY).gid(NOBODY);
        for path in [".", "main.worker", "script.yaml", "read_only.txt", "closed"] {
            chown(sandbox.path().join(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    wait(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn permissions_of_files_and_directories_are_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    for (call, reason) in [
        ("{ write_file: { path: read_only.txt, content: x } }", "`read_only.txt` is read-only: its permissions say so"),
        ("{ edit_file: { path: read_only.txt, old: kept, new: x } }", "is read-only"),
        ("{ read_file: { path: closed/file } }", "ermission denied"),
        ("{ write_file: { path: closed/new, content: x } }", "ermission denied"),
        ("{ list_files: { path: closed } }", "ermission denied"),
        ("{ read_file: { path: unreadable.txt } }", "ermission denied"),
        ("{ list_files: {} }", "[one directory cannot be read]"),
    ] {
        let sandbox = calling(call);
        sandbox.file("read_only.txt", "kept").file("closed/file", "kept").file("unreadable.txt", "kept");
        let mode = |path: &str, mode| {
            fs::set_permissions(sandbox.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("read_only.txt", 0o444);
        mode("closed", 0o000);
        mode("unreadable.txt", 0o000);
        let ended = as_nobody(&sandbox);
        mode("closed", 0o755);
        assert!(ended.stdout.contains(reason), "{call}: {ended:?}");
        for path in ["read_only.txt", "closed/file", "unreadable.txt"] {
            assert_eq!(fs::read_to_string(sandbox.path().join(path)).unwrap(), "kept", "{call}");
        }
        assert!(!sandbox.path().join("closed/new").exists());
    }
}
