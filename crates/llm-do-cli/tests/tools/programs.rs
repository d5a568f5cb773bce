//! Where the programs of rules come from: a project brings none of its own, and says so before anything runs.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::project;
use crate::session::Run;
use crate::support::{Ended, Sandbox, wait};

/// A clone in a home, whose shell has this rule or default and whose model calls these commands.
fn clone(shell: &serde_json::Value, commands: &[&str]) -> Sandbox {
    let sandbox = project(&[], "");
    sandbox.file("clone/helper/main.worker", "---\nname: main\ntoolsets: [sh]\n---\nYou help.\n");
    write(&sandbox, shell, commands);
    program(&sandbox, "clone/helper/tool.sh");
    sandbox
}

fn write(sandbox: &Sandbox, shell: &serde_json::Value, commands: &[&str]) {
    let calls: Vec<_> = commands.iter().map(|command| json!({"shell": {"command": command}})).collect();
    let rounds =
        if calls.is_empty() { json!([{"say": "done"}]) } else { json!([{"round": 1, "call": calls}, {"say": "done"}]) };
    sandbox.file("script.yaml", &rounds.to_string());
    let manifest = json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
        "toolsets": {"sh": {"shell": shell}}});
    sandbox.file("clone/helper/project.json", &manifest.to_string());
}

fn program(sandbox: &Sandbox, path: &str) {
    sandbox.file(path, "#!/bin/sh\n: > fired\n");
    fs::set_permissions(sandbox.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
}

fn allow(pattern: &str) -> serde_json::Value {
    json!({"rules": [{"pattern": [pattern], "approval": "allow"}]})
}

fn run<'a>(sandbox: &'a Sandbox, flags: &[&'a str]) -> Run<'a> {
    let trusting = ["clone/helper", "hi", "-m", "scripted:script.yaml", "--trust", "--approve-all"];
    Run::new(sandbox, &[&trusting, flags].concat())
}

fn has_fired(sandbox: &Sandbox) -> bool {
    sandbox.path().join("fired").exists()
}

#[test]
fn a_pattern_into_the_project_or_through_processes_is_a_mistake_whoever_trusts_it() {
    for (pattern, said) in [
        ("/proc/self/cwd/clone/helper/tool.sh", "processes"),
        ("HERE/clone/helper/tool.sh", "leads into"),
        ("HERE/clone/../clone/helper/tool.sh", "leads into"),
        ("HERE/link/tool.sh", "leads into"),
        ("HERE/elsewhere/tool.sh", "leads into"),
        ("/tmp/llm-do-no-such-tool", "temporary directory"),
    ] {
        let sandbox = clone(&allow("x"), &[]);
        let pattern = pattern.replace("HERE", sandbox.path().canonicalize().unwrap().to_str().unwrap());
        write(&sandbox, &allow(&pattern), &[&pattern]);
        std::os::unix::fs::symlink("clone/helper", sandbox.path().join("link")).unwrap();
        program(&sandbox, "elsewhere/tool.sh");
        let ended = run(&sandbox, &[]).ended();
        assert_eq!(ended.code, Some(2), "{pattern}: {ended:?}");
        assert!(
            ended.stderr.contains("no rule may name the program") && ended.stderr.contains(said),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("project.json:1:") && ended.stderr.contains("hint: "), "{}", ended.stderr);
        assert!(!has_fired(&sandbox), "{pattern}");
    }
}

#[test]
fn a_default_that_allows_is_a_mistake() {
    let sandbox = clone(&json!({"default": "allow"}), &["touch fired"]);
    let ended = run(&sandbox, &[]).ended();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("`default: allow` would allow every program"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: write a rule for each program"), "{}", ended.stderr);
    assert!(!has_fired(&sandbox));
}

#[test]
fn a_rule_that_allows_a_program_which_runs_anything_is_a_mistake() {
    for pattern in [
        "/lib64/ld-linux-x86-64.so.2",
        "perl5.36-x86_64-linux-gnu",
        "setarch",
        "x86_64",
        "prlimit",
        "choom",
        "rbash",
        "pdb3",
        "vim.basic",
        "split",
        "gcc",
        "c++",
        "git",
        "sqlite3",
        "dc",
        "ssh-agent",
        "dbus-run-session",
        "sg",
        "run-parts",
        "dpkg-architecture",
        "busybox.static",
        "git-shell",
    ] {
        let sandbox = clone(&allow(pattern), &[]);
        let ended = run(&sandbox, &[]).ended();
        assert_eq!(ended.code, Some(2), "{pattern}: {ended:?}");
        assert!(ended.stderr.contains("the rule allows too much"), "{pattern}: {}", ended.stderr);
    }
}

#[test]
fn a_program_of_the_system_is_found_by_its_path_as_by_its_name() {
    let Some(touch) = ["/usr/bin/touch", "/bin/touch"].into_iter().find(|path| Path::new(path).exists()) else {
        return;
    };
    let rules =
        json!({"rules": [{"pattern": [touch], "approval": "allow"}, {"pattern": "mkdir", "approval": "allow"}]});
    let sandbox = clone(&rules, &[&format!("{touch} fired"), "mkdir made"]);
    let ended = run(&sandbox, &[]).ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(has_fired(&sandbox) && sandbox.path().join("made").is_dir());
}

#[test]
fn directories_of_the_users_own_are_searched_unless_others_may_write_them() {
    // Only where all that lies above is nobody else's.
    let own = tempfile::Builder::new().prefix("own").tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let above = own.path().canonicalize().unwrap();
    let is_closed = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o022 == 0;
    if !above.ancestors().all(is_closed) {
        return;
    }
    let tool = above.join("mytool");
    fs::write(&tool, "#!/bin/sh\n: > fired\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let sandbox = clone(&allow("mytool"), &["mytool"]);
    sandbox.file("settings/config.toml", &format!("[shell]\ndirectories = [{:?}]\n", above.display().to_string()));
    let home = sandbox.path().join("settings").display().to_string();
    let ended = run(&sandbox, &[]).with("LLM_DO_HOME", home.clone()).ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(has_fired(&sandbox), "{ended:?}");
    fs::remove_file(sandbox.path().join("fired")).unwrap();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
    let ended = run(&sandbox, &[]).with("LLM_DO_HOME", home).ended();
    assert!(!has_fired(&sandbox));
    assert!(
        ended.stderr.contains("no programs are looked for in") && ended.stderr.contains("others may write"),
        "{ended:?}"
    );
}

#[test]
fn programs_of_an_installation_and_of_rustup_find_what_they_start() {
    let Some(own) = own_directory() else { return };
    let home = own.path().canonicalize().unwrap();
    // As rustup does it: `cargo` is a link to a program that looks for the real one in the user's home.
    tool(&home.join(".cargo/bin/rustup"), "#!/bin/sh\nexec $RUSTUP_HOME/toolchains/x/bin/cargo \"$@\"\n");
    std::os::unix::fs::symlink("rustup", home.join(".cargo/bin/cargo")).unwrap();
    tool(&home.join("elsewhere/toolchains/x/bin/cargo"), "#!/bin/sh\n[ $1 = fmt ] && : > fired\n");
    std::os::unix::fs::symlink("elsewhere", home.join(".rustup")).unwrap();
    tool(&home.join("opt/bin/mytool"), "#!/bin/sh\n. ${0%/*}/../lib/part.sh\n");
    tool(&home.join("opt/lib/part.sh"), ": > fired\n");
    fs::write(home.join(".cargo/credentials.toml"), "secret").unwrap();
    for (pattern, command) in [("cargo fmt", "cargo fmt --all"), ("mytool", "mytool")] {
        let sandbox = clone(&json!({"rules": [{"pattern": pattern, "approval": "allow"}]}), &[command]);
        sandbox.file("settings/config.toml", "[shell]\ndirectories = [\"~/.cargo/bin\", \"~/opt/bin\"]\n");
        let settings = sandbox.path().join("settings").display().to_string();
        let run = run(&sandbox, &[]).with("LLM_DO_HOME", settings).with("HOME", home.display().to_string());
        let ended = run.ended();
        assert!(ended.code == Some(0) && has_fired(&sandbox), "{command}: {ended:?}");
    }
}

#[test]
fn what_llm_do_keeps_for_itself_asks_to_be_read_and_written() {
    for file in ["settings/config.toml", "settings/state/key", "settings/cache/x.py"] {
        for call in [json!({"read_file": {"path": file}}), json!({"write_file": {"path": file, "content": "x"}})] {
            let script = json!([{"round": 1, "call": [call]}, {"say": "{{ result }}"}]);
            let keys = "toolsets: [filesystem_cwd]\napproval: {write_file: allow}";
            let sandbox = project(&[("main", keys)], &script.to_string());
            sandbox.file(file, "# kept\n");
            let home = sandbox.path().join("settings").display().to_string();
            let ended = super::run(&sandbox, &["--trust"]).with("LLM_DO_HOME", home).ended();
            assert_eq!(ended.code, Some(4), "{call}: {ended:?}");
            assert!(!ended.stdout.contains("kept"), "{ended:?}");
            assert_eq!(fs::read_to_string(sandbox.path().join(file)).unwrap(), "# kept\n");
        }
    }
}

#[test]
fn what_llm_do_keeps_for_itself_asks_to_be_attached() {
    for (file, asks) in [
        ("settings/config.toml", true),
        ("settings/state/runs/x", true),
        ("settings/cache/x.py", true),
        ("x.md", false),
    ] {
        let call = json!({"child": {"input": "x", "attachments": [file]}});
        let script = json!([{"agent": "main", "heard": "hi", "round": 1, "call": [call]}, {"say": "sent"}]);
        let sandbox = project(&[("main", "entry: true\ntools: [child]"), ("child", "")], &script.to_string());
        sandbox.file(file, "# kept\n");
        let home = sandbox.path().join("settings").display().to_string();
        let given = json!({"input": "x", "attachments": [file]}).to_string();
        let words = |how: &[&'static str]| [&[".", "-m", "scripted:script.yaml", "--trust"], how].concat();
        let by_model = words(&["hi"]);
        let by_input = [&words(&["--input-json"])[..], &[given.as_str()]].concat();
        for words in [by_model, by_input] {
            let ended = Run::new(&sandbox, &words).with("LLM_DO_HOME", home.clone()).ended();
            assert_eq!(ended.code, Some(if asks { 4 } else { 0 }), "{words:?}: {ended:?}");
            assert_eq!(ended.stderr.contains("belongs to llm-do itself"), asks, "{ended:?}");
            let agreed = [&words[..], &["--approve-all"]].concat();
            let ended = Run::new(&sandbox, &agreed).with("LLM_DO_HOME", home.clone()).ended();
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "sent\n"), "{ended:?}");
        }
    }
}

/// A directory of the user's own, which others may enter and not write; `None` where the tests lie elsewhere.
fn own_directory() -> Option<tempfile::TempDir> {
    let own = tempfile::Builder::new().prefix("own").tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let is_reached = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o027 == 0o005;
    own.path().canonicalize().unwrap().ancestors().all(is_reached).then_some(own)
}

fn tool(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_directory_of_temporary_files_is_one_wherever_it_lies() {
    let Some(own) = own_directory() else { return };
    let path = own.path().canonicalize().unwrap().join("deep/mytool");
    tool(&path, "#!/bin/sh\n: > fired\n");
    let pattern = path.to_str().unwrap();
    let sandbox = clone(&allow(pattern), &[pattern]);
    let ended = run(&sandbox, &[]).with("TMPDIR", own.path().display().to_string()).ended();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("it leads into a temporary directory"), "{ended:?}");
    assert!(!has_fired(&sandbox));
    let elsewhere = sandbox.path().display().to_string();
    let ended = run(&sandbox, &[]).with("TMPDIR", elsewhere).ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(has_fired(&sandbox), "{ended:?}");
}

/// A program in a home whose directories are closed to others, and who runs it.
struct Mine<'a> {
    sandbox: &'a Sandbox,
    home: &'a Path,
    tool: PathBuf,
}

impl Mine<'_> {
    /// Gives all of it to somebody who is not root.
    fn give(&self, script: &str) {
        tool(&self.tool, script);
        for path in self.tool.ancestors().take_while(|path| path.starts_with(self.home)) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
            }
        }
    }

    fn run(&self, flags: &[&str]) -> Ended {
        let words = ["run", "clone/helper", "hi", "-m", "scripted:script.yaml"];
        let mut command = self.sandbox.unprivileged(&[&words, flags].concat());
        // They write here.
        fs::set_permissions(self.sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
        wait(command.env("HOME", self.home).env("LLM_DO_TRUST", ""))
    }

    fn runs(&self, flags: &[&str]) {
        let ended = self.run(flags);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{flags:?}: {ended:?}");
        fs::remove_file(self.sandbox.path().join("fired")).unwrap();
    }

    /// Lists the program as something to run, and runs nothing. The digest to agree with.
    fn asks(&self, flags: &[&str]) -> String {
        let ended = self.run(flags);
        assert_eq!(ended.code, Some(4), "{flags:?}: {ended:?}");
        let listed = |line: &str| line.trim_start().starts_with("run ") && line.contains(self.tool.to_str().unwrap());
        assert!(ended.stderr.lines().any(listed), "{}", ended.stderr);
        assert!(!has_fired(self.sandbox), "{flags:?}");
        let (_, digest) = ended.stderr.split_once("--trust=").unwrap();
        digest.chars().take_while(char::is_ascii_hexdigit).collect()
    }
}

#[test]
fn a_program_in_directories_of_ones_own_is_agreed_to_as_it_is_now() {
    let Some(own) = own_directory() else { return };
    let home = own.path().canonicalize().unwrap().join("home");
    let path = home.join("bin/mytool");
    let sandbox = clone(&allow(path.to_str().unwrap()), &[path.to_str().unwrap()]);
    let mine = Mine { sandbox: &sandbox, home: &home, tool: path };
    let (first, second) = ("#!/bin/sh\n: > fired\n", "#!/bin/sh\n: > fired # !\n");
    mine.give(first);
    if rustix::process::geteuid().is_root() {
        // Root's own would be as good as the system's.
        assert_eq!(fs::metadata(&mine.tool).unwrap().uid(), 65_534);
    }
    let digest = mine.asks(&["--approve-all"]);
    mine.give(second);
    let other = mine.asks(&[&format!("--trust={digest}")]);
    assert_ne!(other, digest);
    mine.give(first);
    mine.runs(&[&format!("--trust={digest}")]);
    mine.runs(&[]);
    mine.give(second);
    mine.asks(&[]);
    mine.runs(&["--trust"]);
}

#[test]
fn a_program_of_the_users_own_runs_by_its_path_until_others_may_write_it() {
    let Some(own) = own_directory() else { return };
    let above = own.path().canonicalize().unwrap();
    let tool = above.join("mytool");
    self::tool(&tool, "#!/bin/sh\n: > fired\n");
    if rustix::process::geteuid().is_root() {
        for path in [&above, &tool] {
            std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
        }
    }
    let pattern = tool.to_str().unwrap();
    let sandbox = clone(&allow(pattern), &[pattern]);
    let arguments = ["run", "clone/helper", "hi", "-m", "scripted:script.yaml", "--trust", "--approve-all"];
    let ended = wait(&mut {
        let command = sandbox.unprivileged(&arguments);
        // They write here.
        fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
        command
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(has_fired(&sandbox), "{ended:?}");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o757)).unwrap();
    let ended = wait(&mut sandbox.unprivileged(&arguments));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("is a file that others may write"), "{}", ended.stderr);
}
