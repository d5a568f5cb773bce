//! The program behind the fences that a kernel offers or refuses, as root and as somebody else.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::matrix::{KERNELS, Kernel, User, on};
use super::project;
use crate::support::{Ended, Sandbox, wait};

/// A project whose agent runs these commands with `sh`, which a rule allows.
fn with_sh(shell: &Value, commands: &[&str]) -> Sandbox {
    let calls: Vec<Value> = commands.iter().map(|command| json!({"shell": {"command": command}})).collect();
    let script = json!([{"round": 1, "call": calls}, {"say": "done"}]);
    let sandbox = project(&[("main", "toolsets: [shell_readonly, mine]")], &script.to_string());
    let mut mine = json!({"rules": [{"pattern": "sh", "approval": "allow", "i_understand": true}]});
    mine.as_object_mut().unwrap().extend(shell.as_object().unwrap().clone());
    let manifest = json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
        "toolsets": {"mine": {"shell": mine}}});
    sandbox.file("project.json", &manifest.to_string()).file("notes.md", "one\n");
    sandbox
}

fn run(sandbox: &Sandbox, user: User, kernel: Kernel, flags: &[&str], variables: &[(&str, &str)]) -> Ended {
    let arguments = [&["run", ".", "hi", "-m", "scripted:script.yaml", "--json", "--trust"], flags].concat();
    let mut command = match user {
        User::Ours => sandbox.command(&arguments, variables),
        User::Another => sandbox.unprivileged(&arguments),
    };
    if let User::Another = user {
        command.env("HOME", sandbox.path().join("of-another")).envs(variables.iter().copied());
        for directory in [sandbox.path().to_owned(), sandbox.path().join(".git"), sandbox.path().join(".git/hooks")] {
            let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o777));
        }
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    on(kernel, || wait(&mut command))
}

fn fence_of(sandbox: &Sandbox, kernel: Kernel, flags: &[&str]) -> String {
    let arguments = [&["check", ".", "-m", "scripted:script.yaml"], flags].concat();
    let mut command = sandbox.command(&arguments, &[]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = on(kernel, || wait(&mut command));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = ended.stdout.lines().find_map(|line| line.strip_prefix("fence")).unwrap_or_default();
    line.trim().to_owned()
}

#[test]
fn check_says_which_fence_there_is() {
    let sandbox = with_sh(&json!({}), &["sh -c true"]);
    let best = fence_of(&sandbox, Kernel::AsItIs, &[]);
    let is_known = best.starts_with("full (files, processes and IPC of its own; Landlock ABI ")
        || best.starts_with("thin (Landlock ABI ")
        || best.starts_with("none: ");
    assert!(is_known, "{best}");
    let without = fence_of(&sandbox, Kernel::WithoutNamespaces, &[]);
    if !without.starts_with("none: ") {
        assert!(without.contains("not full: no namespaces: "), "{without}");
        assert!(without.ends_with("; configured shells ask where they would allow, unless they write nothing"));
        let accepted = fence_of(&sandbox, Kernel::WithoutNamespaces, &["--fence", "thin"]);
        assert!(accepted.ends_with("; accepted"), "{accepted}");
    }
    let none = fence_of(&sandbox, Kernel::WithoutLandlock, &[]);
    assert!(none.starts_with("none: ") && none.ends_with("; configured shells ask where they would allow"), "{none}");
}

#[test]
fn hooks_are_not_planted_whatever_the_kernel_offers() {
    for user in [User::Ours, User::Another] {
        for kernel in KERNELS {
            let plant = "sh -c 'echo evil > .git/hooks/pre-commit; echo evil >> main.worker; mv .git g'";
            let sandbox = with_sh(&json!({}), &[plant]);
            sandbox.file(".git/HEAD", "ref: refs/heads/main\n").file(".git/hooks/sample", "");
            let worker = fs::read(sandbox.path().join("main.worker")).unwrap();
            let ended = run(&sandbox, user, kernel, &[], &[]);
            let is_full = fence_of(&sandbox, kernel, &[]).starts_with("full");
            assert_eq!(ended.code, Some(if is_full { 0 } else { 4 }), "{user:?} {kernel:?} {ended:?}");
            assert!(sandbox.path().join(".git/hooks/sample").exists(), "{user:?} {kernel:?}");
            assert!(!sandbox.path().join(".git/hooks/pre-commit").exists(), "{user:?} {kernel:?}");
            assert_eq!(fs::read(sandbox.path().join("main.worker")).unwrap(), worker, "{user:?} {kernel:?}");
        }
    }
}

#[test]
fn the_thin_fence_asks_unless_it_is_accepted() {
    let kernel = Kernel::WithoutNamespaces;
    let sandbox = with_sh(&json!({}), &["sh -c 'echo x > made'", "cat notes.md"]);
    if !fence_of(&sandbox, kernel, &[]).starts_with("thin") {
        return;
    }
    let asked = run(&sandbox, User::Ours, kernel, &[], &[]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    let words = "`.git` cannot be kept read-only here; `LLM_DO_FENCE=thin` accepts that";
    assert!(format!("{}{}", asked.stdout, asked.stderr).contains(words), "{asked:?}");
    assert!(!sandbox.path().join("made").exists());
    for (flags, variables) in [(&["--fence", "thin"][..], &[][..]), (&[], &[("LLM_DO_FENCE", "thin")])] {
        for user in [User::Ours, User::Another] {
            let _ = fs::remove_file(sandbox.path().join("made"));
            let ran = run(&sandbox, user, kernel, flags, variables);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(sandbox.path().join("made").exists());
        }
    }
    let _ = fs::remove_file(sandbox.path().join("made"));
    sandbox.file(".config/llm-do/config.toml", "[fence]\naccept = \"thin\"\n");
    assert_eq!(run(&sandbox, User::Ours, kernel, &[], &[]).code, Some(0));
    assert_eq!(run(&sandbox, User::Ours, kernel, &["--fence", "full"], &[]).code, Some(4), "the flag counts first");
    assert_eq!(run(&sandbox, User::Ours, kernel, &[], &[("LLM_DO_FENCE", "none")]).code, Some(2));
    let reading = with_sh(&json!({"directory": "ro"}), &["sh -c 'cat notes.md; echo x > made'"]);
    // What the program keeps for itself lies elsewhere: nothing secret is in reach.
    let home = Sandbox::new();
    let ran = run(&reading, User::Ours, kernel, &[], &[("LLM_DO_HOME", home.path().to_str().unwrap())]);
    assert!(ran.code == Some(0) && ran.stdout.contains("one"), "{ran:?}");
    assert!(!reading.path().join("made").exists());
}

#[test]
fn a_link_among_the_directories_to_write_is_a_mistake() {
    for target in ["home", "/"] {
        let sandbox = with_sh(&json!({"write": ["cache"]}), &["sh -c 'echo x > cache/made'"]);
        fs::create_dir(sandbox.path().join("home")).unwrap();
        symlink(target, sandbox.path().join("cache")).unwrap();
        let ended = run(&sandbox, User::Ours, Kernel::AsItIs, &["--approve-all"], &[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        assert!(shown.contains(&format!("`cache` is a link to {target}; name the directory itself")), "{shown}");
        assert!(!sandbox.path().join("home/made").exists());
    }
    let honest = with_sh(&json!({"write": ["cache"]}), &["sh -c 'echo x > cache/made'"]);
    fs::create_dir(honest.path().join("cache")).unwrap();
    assert_eq!(run(&honest, User::Ours, Kernel::AsItIs, &["--approve-all"], &[]).code, Some(0));
    assert!(honest.path().join("cache/made").exists());
}

/// Whether a process with this argument is there.
fn is_there(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let has = |line: Vec<u8>| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes());
    processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok()).any(has)
}

#[test]
fn nothing_is_left_when_the_program_is_killed() {
    let long = format!("1000.{}", std::process::id());
    let sandbox = with_sh(&json!({}), &[&format!("sh -c 'sleep {long} & exec sleep {long}'")]);
    if !fence_of(&sandbox, Kernel::AsItIs, &[]).starts_with("full") {
        return;
    }
    let arguments = ["run", ".", "hi", "-m", "scripted:script.yaml", "--json", "--trust"];
    let mut child = sandbox.command(&arguments, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !is_there(&long) {
        assert!(start.elapsed() < Duration::from_mins(1), "it never began");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    while is_there(&long) {
        assert!(start.elapsed() < Duration::from_secs(20), "it survived");
        std::thread::yield_now();
    }
}

#[test]
fn what_the_program_keeps_for_itself_is_hidden() {
    let look = "sh -c 'ls .config/llm-do .local/state/llm-do .cache/llm-do; cat .config/llm-do/config.toml; true'";
    let sandbox = with_sh(&json!({}), &[look]);
    sandbox.file(".config/llm-do/config.toml", "# a-secret-note\n");
    sandbox.file(".local/state/llm-do/key", "a-secret-note").file(".cache/llm-do/x", "");
    if !fence_of(&sandbox, Kernel::AsItIs, &[]).starts_with("full") {
        return;
    }
    let ran = run(&sandbox, User::Ours, Kernel::AsItIs, &[], &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stdout.contains("a-secret-note") && ran.stdout.contains("Permission denied"), "{ran:?}");
}
