//! Where nothing can be kept: one note, and the answer all the same; an error before anything runs if it must be kept.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Sandbox, wait};
use crate::{MODEL, desk};

const NOTE: &str = "note: this run is not kept: ";
const REQUIRED: &str = "error: the run cannot be kept: ";

/// An agent whose only effect is a file that is made when it runs.
fn marking() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nx\n");
    let script = "- { round: 1, call: { write_file: { path: ran, content: x } } }\n- say: done\n";
    sandbox.file("script.yaml", script);
    sandbox
}

const WORDS: [&str; 4] = ["run", "main.worker", "hi", "--approve-all"];

/// Runs in such a place: once as it is, once with `-q`, once as a run that must be kept.
#[track_caller]
fn check(sandbox: &Sandbox, place: impl Fn(&[&str]) -> Command, reason: &str) {
    let ran = sandbox.path().join("ran");
    let ended = |flags: &[&str]| {
        let _ = fs::remove_file(&ran);
        let mut command = place(&[&WORDS[..], &MODEL, flags].concat());
        let ended = wait(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        (ended.code, ended.stdout, ended.stderr, ran.exists())
    };
    let (code, stdout, stderr, has_run) = ended(&[]);
    assert_eq!((code, stdout.as_str(), has_run), (Some(0), "done\n", true), "{stderr}");
    assert!(stderr.starts_with(NOTE) && stderr.contains(reason) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(ended(&["-q"]), (Some(0), "done\n".to_owned(), String::new(), true));
    for flags in [&["--durable"][..], &["--once", "nightly"]] {
        let (code, stdout, stderr, has_run) = ended(flags);
        assert_eq!((code, stdout.as_str(), has_run), (Some(2), "", false), "{flags:?} {stderr}");
        assert!(stderr.starts_with(REQUIRED) && stderr.contains(reason) && stderr.contains("\nhint: "), "{stderr}");
    }
    let ephemeral = ended(&["--ephemeral"]);
    assert_eq!(ephemeral, (Some(0), "done\n".to_owned(), String::new(), true), "nothing was to be kept");
}

#[test]
fn without_a_home() {
    let sandbox = marking();
    let place = |words: &[&str]| {
        let mut command = sandbox.command(words, &[]);
        command.env_remove("HOME");
        command
    };
    check(&sandbox, place, "there is no home directory");
}

/// The sandbox, in which somebody else works whose home is this directory.
fn unprivileged(sandbox: &Sandbox, home: PathBuf) -> impl Fn(&[&str]) -> Command {
    let open = |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    move |words| {
        let mut command = sandbox.unprivileged(words);
        open(sandbox.path().to_owned(), 0o777);
        command.env("HOME", &home);
        command
    }
}

#[test]
fn in_a_home_that_cannot_be_written() {
    let sandbox = marking();
    let home = sandbox.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o555)).unwrap();
    check(&sandbox, unprivileged(&sandbox, home.clone()), "Permission denied");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
}

/// Even where everybody may write: whoever owns the directory could put in what they like.
#[test]
fn in_a_state_directory_of_somebody_else() {
    let sandbox = marking();
    let state = sandbox.path().join("home/.local/state/llm-do");
    fs::create_dir_all(&state).unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    // Nobody but root can give a directory away; a closed one is the next best.
    let (mode, reason) = if is_root { (0o777, "belongs to another user") } else { (0o500, "Permission denied") };
    fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
    check(&sandbox, unprivileged(&sandbox, sandbox.path().join("home")), reason);
    assert!(!state.join("runs").exists() && !state.join("costs").exists());
}

#[test]
fn where_a_file_lies_in_the_place_of_the_state() {
    let sandbox = marking();
    sandbox.file(".local/state/llm-do", "not a directory");
    check(&sandbox, |words| sandbox.command(words, &[]), "llm-do");
}

#[test]
fn in_a_directory_whose_name_is_not_text() {
    let sandbox = marking();
    let directory = sandbox.path().join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    fs::create_dir(&directory).unwrap();
    for file in ["main.worker", "script.yaml"] {
        fs::rename(sandbox.path().join(file), directory.join(file)).unwrap();
    }
    let ran = directory.join("ran");
    let ended = |flags: &[&str]| {
        let mut command = sandbox.command(&[&WORDS[..], &MODEL, flags].concat(), &[]);
        wait(command.current_dir(&directory).stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let required = ended(&["--durable"]);
    assert!(required.code == Some(2) && required.stderr.starts_with(REQUIRED) && !ran.exists(), "{required:?}");
    assert!(required.stderr.contains("a journal is UTF-8") && required.stderr.contains("\nhint: "), "{required:?}");
    let unkept = ended(&[]);
    assert_eq!((unkept.code, unkept.stdout.as_str(), ran.exists()), (Some(0), "done\n", true), "{}", unkept.stderr);
    assert!(unkept.stderr.starts_with(&format!("{NOTE}a journal is UTF-8")), "{}", unkept.stderr);
    assert_eq!((unkept.stderr.lines().count(), sandbox.runs().len()), (1, 0));
}

/// A chat says it once, also if it is cleared into several runs.
#[test]
fn a_chat_says_it_once() {
    let sandbox = desk();
    let mut command = sandbox.command(&[&["chat", "main.worker", "one"], &MODEL[..], &["--no-stdin"]].concat(), &[]);
    let ended = wait(command.env_remove("HOME").stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "1: one\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr, format!("{NOTE}there is no home directory\n"));
}

/// `llm-do …`, none of whose files may become larger than this.
fn with_little_room(sandbox: &Sandbox, kibibytes: u32, words: &[&str]) -> Command {
    let ours = sandbox.command(words, &[]);
    let mut command = Command::new("sh");
    // In units of 512 bytes.
    let limited = format!("ulimit -f {}; exec \"$0\" \"$@\"", kibibytes * 2);
    command.args(["-c", &limited]).arg(ours.get_program()).args(ours.get_args()).env_clear();
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("PATH", "/usr/bin:/bin");
    command.current_dir(sandbox.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// An agent that says a lot, again and again, before it answers.
fn talkative() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd_ro]\n---\nx\n");
    let words = "word ".repeat(2000);
    let round = |round: usize| format!("- {{ round: {round}, say: \"{words}\", call: {{ list_files: {{}} }} }}\n");
    sandbox.file("script.yaml", &format!("{}- say: done\n", (1..=6).map(round).collect::<String>()));
    sandbox
}

#[test]
fn a_disk_that_fills_up_is_said_once_and_the_run_goes_on() {
    let sandbox = talkative();
    let ended = wait(&mut with_little_room(&sandbox, 24, &["run", "main.worker", "hi", MODEL[0], MODEL[1]]));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{}", ended.stderr);
    let note = "note: this run is not kept any more, and cannot be resumed: ";
    let notes: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with(note)).collect();
    assert!(notes.len() == 1 && notes[0].contains("File too large"), "{}", ended.stderr);
}

#[test]
fn a_disk_that_fills_up_ends_what_must_be_durable() {
    let sandbox = talkative();
    let words = ["run", "main.worker", "hi", MODEL[0], MODEL[1], "--durable"];
    let ended = wait(&mut with_little_room(&sandbox, 24, &words));
    assert_eq!((ended.code, ended.stdout.contains("done")), (Some(1), false), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("error: ") && ended.stderr.contains("File too large"), "{}", ended.stderr);
    // What was written counts, and goes on where there is room again.
    let run = sandbox.runs().pop().unwrap();
    let resumed = sandbox.run(&["resume", &run]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), "done\n"), "{}", resumed.stderr);
}
