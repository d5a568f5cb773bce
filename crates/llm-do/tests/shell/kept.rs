//! What a command may not change or see inside of what it may: tried for its effect, with every fence.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{ALL, Attempt, World, is_full, rule, rules};
use llm_do::tools::approval::Rule;
use llm_do::tools::fence::{Accept, Fencing};
use llm_do::tools::source::Access;

/// A project with what others run, in which `bash` and others may do what they like.
fn project(fencing: Fencing) -> World {
    let programs = ["bash", "cat", "grep", "cp", "git"].map(|program| rule(program, Rule::Allow));
    let world = World::new(fencing).with(vec![rules(programs.to_vec())]);
    for (path, text) in [
        ("inside/project.json", "{}"),
        ("inside/main.worker", "---\nname: main\n---\n"),
        ("inside/workers/a.yaml", "name: a\n"),
        ("inside/AGENTS.md", "Be kind.\n"),
        ("inside/.vscode/tasks.json", "{}"),
        ("inside/.idea/workspace.xml", "<x/>"),
        ("inside/.mcp.json", "{}"),
        ("inside/deep/er/.git/config", "[core]\n"),
        ("inside/deep/notes.md", "notes\n"),
        ("inside/tools.py", "x = 1\n"),
        ("inside/package/__init__.py", ""),
        ("inside/__pycache__/tools.pyc", "compiled"),
        ("inside/.env", "TOKEN=top-secret-value\n"),
        ("inside/deep/server.pem", "top-secret-value\n"),
        ("inside/.ssh/id_rsa", "top-secret-value\n"),
        ("inside/Makefile", "all:\n\ttouch made\n"),
    ] {
        world.file(path, text);
    }
    world.link("inside/innocent", ".env");
    repository(&world.inside());
    world
}

fn repository(directory: &Path) {
    for arguments in [
        &["init", "-q"][..],
        &["config", "user.name", "a"],
        &["config", "user.email", "a@b"],
        &["add", "a.txt"],
        &["commit", "-qm", "first"],
    ] {
        let ran =
            Command::new("git").args(arguments).current_dir(directory).env("HOME", "/nonexistent").output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }
    fs::create_dir_all(directory.join(".git/hooks")).unwrap();
    fs::write(directory.join(".git/hooks/pre-push.sample"), "#!/bin/sh\n").unwrap();
}

/// A command whose words name no file but its own script.
fn script(world: &World, text: &str) -> Attempt {
    world.file("inside/go.sh", text);
    world.attempt("bash go.sh")
}

/// Everything there is. The time of a directory may change: names come and go in it while a command tries.
fn files(world: &World) -> BTreeMap<PathBuf, String> {
    let mut state = world.state();
    for shape in state.values_mut().filter(|shape| shape.starts_with("40")) {
        shape.truncate(5);
    }
    state
}

const PLANTS: &[&str] = &[
    "install -Dt.git/hooks a.txt",
    "echo x > .git/hooks/pre-commit",
    "cp a.txt .git/config",
    "echo x >> .git/info/attributes",
    "mv .git g",
    "rm -rf .git",
    "cp a.txt workers/a.yaml",
    "cp a.txt workers/b.yaml",
    "mv workers w",
    "echo x > main.worker",
    "rm project.json",
    "mv main.worker other",
    "echo x > .vscode/tasks.json",
    "echo x > .vscode/new.json",
    "rm -rf .idea",
    "ln -sf a.txt .mcp.json",
    "echo x > AGENTS.md",
    "mv deep d",
    "mv deep/er deep/x",
    "echo x > deep/er/.git/config",
    "mv ../inside ../r2",
    "chmod 777 .git/config",
    "touch -d yesterday .git/config",
    "echo x > tools.py",
    "echo x > package/new.py",
    "mv package p",
    "echo x > __pycache__/tools.pyc",
    "rm -rf __pycache__",
    "python3 -c 1 2>/dev/null; rm tools.py",
    "exec 3<> .git/config && echo x >&3",
];

#[test]
fn what_others_run_stays_as_it_is_and_where_it_is() {
    for fencing in ALL {
        let world = project(fencing).accepting(Accept::Full);
        let before = files(&world);
        for plant in PLANTS {
            world.file("inside/go.sh", plant);
            if is_full(fencing) {
                world.attempt("bash go.sh").ran();
            } else {
                world.attempt("bash go.sh").asks();
            }
            fs::remove_file(world.path("inside/go.sh")).unwrap();
            assert!(files(&world) == before, "{plant}");
        }
    }
}

#[test]
fn what_is_nobodys_program_is_built_as_ever() {
    if !is_full(Fencing::WhereOffered) {
        return;
    }
    let world = project(Fencing::WhereOffered).accepting(Accept::Full);
    let honest = "echo x > out.txt && mkdir -p target/deep && mv out.txt target/deep && echo all: > Makefile \
                  && echo x >> deep/notes.md && rm b.txt && mkdir src/new && mv src/main.rs src/new && echo y > src/new.py \
                  && echo t > /tmp/t && cat /tmp/t && cat .git/HEAD";
    let ran = script(&world, honest).ran();
    assert_eq!((ran.exit_code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(world.path("inside/target/deep/out.txt").exists() && world.path("inside/src/new/main.rs").exists());
}

#[test]
fn a_rule_for_git_writes_the_repository_but_not_its_settings() {
    if !is_full(Fencing::WhereOffered) {
        return;
    }
    let world = project(Fencing::WhereOffered).accepting(Accept::Full);
    for path in ["modules/m/HEAD", "modules/m/config", "modules/m/hooks/x", "modules/a/b/HEAD", "worktrees/w/commondir"]
    {
        world.file(&format!("inside/.git/{path}"), "x\n");
    }
    world.file("inside/a.txt", "changed\n");
    let git = world.inside().join(".git");
    let committed = world.attempt("git commit -qam second").ran();
    assert_eq!((committed.exit_code, committed.stderr.as_str()), (0, ""), "{committed:?}");
    let log = Command::new("git").args(["log", "--format=%s"]).current_dir(world.inside()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&log.stdout), "second\nfirst\n");
    let settings = [
        "config",
        "config.worktree",
        "hooks/pre-commit",
        "info/attributes",
        "objects/info/alternates",
        "modules/m/config",
        "modules/m/config.worktree",
        "modules/m/hooks/y",
        "modules/a/b/config",
        "worktrees/w/config.worktree",
        "worktrees/w/commondir",
        "commondir",
    ];
    let before: Vec<_> = settings.iter().map(|path| fs::read(git.join(path)).ok()).collect();
    // Options of `git` that run another program ask, and somebody said yes.
    let run = |script: &str| {
        world.file("inside/go.sh", script);
        world.approved("git -c alias.x='!sh go.sh' x").ran()
    };
    for (path, before) in settings.iter().zip(&before) {
        let ran = run(&format!("mkdir -p $(dirname .git/{path}); echo evil > .git/{path}"));
        assert_eq!(fs::read(git.join(path)).ok(), *before, "{path}: {ran:?}");
    }
    run("rm -rf .git/hooks; mv .git/hooks .git/h; mv .git g; rm -rf .git/modules");
    assert!(git.join("hooks/pre-push.sample").exists() && git.join("modules/m/config").exists());
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
    let ran = git.current_dir(directory).env("HOME", "/nonexistent").output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// A shell for `git` and `bash` whose working directory is yet to be made, beside a repository in `outside/main`.
fn beside_a_repository(fencing: Fencing) -> (World, PathBuf) {
    let programs = ["bash", "git"].map(|program| rule(program, Rule::Allow));
    let world = World::new(fencing).with(vec![rules(programs.to_vec())]);
    let main = world.path("outside/main");
    world.file("outside/main/a.txt", "first\n");
    repository(&main);
    fs::remove_dir_all(world.inside()).unwrap();
    (world, main)
}

#[test]
fn a_rule_for_git_writes_the_repository_of_its_worktree_or_module() {
    for fencing in [Fencing::WhereOffered, Fencing::Thin] {
        for is_module in [false, true] {
            let (world, main) = beside_a_repository(fencing);
            if !world.fence().is_there() {
                continue;
            }
            let inside = world.inside().display().to_string();
            let real = if is_module {
                let above = world.path("inside").parent().unwrap().to_owned();
                git(&above, &["init", "-q"]);
                git(&above, &["submodule", "--quiet", "add", &main.display().to_string(), "inside"]);
                above.join(".git/modules/inside")
            } else {
                git(&main, &["worktree", "add", "-q", "-b", "side", &inside]);
                main.join(".git")
            };
            git(&world.inside(), &["config", "user.name", "a"]);
            git(&world.inside(), &["config", "user.email", "a@b"]);
            let settings = fs::read_to_string(real.join("config")).unwrap();
            world.file("inside/a.txt", "second\n");
            let committed = world.attempt("git commit -qam second").ran();
            assert_eq!(committed.exit_code, 0, "{is_module} {committed:?}");
            assert_eq!(git(&world.inside(), &["log", "--format=%s"]), "second\nfirst\n");
            // No other command reaches it, and behind the full fence no setting is written.
            let plant = format!("echo x >> {0}/config; echo x > {0}/hooks/pre-commit", real.display());
            script(&world, &plant).ran();
            if is_full(fencing) {
                world.approved("git -c alias.x='!sh go.sh' x").ran();
            }
            assert_eq!(fs::read_to_string(real.join("config")).unwrap(), settings, "{is_module}");
            assert!(!real.join("hooks/pre-commit").exists(), "{is_module}");
        }
    }
}

#[test]
fn a_file_that_names_the_repository_of_somebody_else_opens_nothing() {
    for fencing in [Fencing::WhereOffered, Fencing::Thin] {
        let (world, main) = beside_a_repository(fencing);
        if !world.fence().is_there() {
            continue;
        }
        let elsewhere = world.path("outside/elsewhere").display().to_string();
        git(&main, &["worktree", "add", "-q", "-b", "side", &elsewhere]);
        // A copy of what a worktree has, which the repository does not know of.
        let copy = world.path("inside/own");
        world.file("inside/own/gitdir", &format!("{}\n", world.path("inside/.git").display()));
        world.file("inside/own/commondir", &format!("{}\n", main.join(".git").display()));
        world.file("inside/own/HEAD", "ref: refs/heads/side\n");
        for target in [main.join(".git"), main.join(".git/worktrees/elsewhere"), copy] {
            world.file("inside/.git", &format!("gitdir: {}\n", target.display()));
            world.file("inside/a.txt", "planted\n");
            let ran = world.attempt("git commit -qam planted").ran();
            assert_ne!(ran.exit_code, 0, "{} {ran:?}", target.display());
            assert!(ran.stderr.contains("is not reached from here"), "{} {ran:?}", target.display());
            assert_eq!(git(&main, &["log", "--all", "--format=%s"]), "first\n", "{}", target.display());
        }
    }
}

#[test]
fn secrets_are_hidden_unless_somebody_agreed_to_them() {
    for fencing in ALL {
        let world = project(fencing).accepting(Accept::Full);
        let secret = "top-secret-value";
        for command in [
            "cat .env deep/server.pem .ssh/id_rsa innocent",
            "cp -r . /tmp/copy; grep -r top /tmp/copy",
            "cat /proc/self/root/$PWD/.env; mv .env e; mv deep/server.pem x; ln .env l; cat e x l",
        ] {
            match script(&world, command) {
                Attempt::Ran(ran) => {
                    assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(secret), "{command}: {ran:?}");
                }
                Attempt::Stopped(reason) => {
                    assert!(!is_full(fencing) && reason.contains("needs an approval"), "{command}: {reason}");
                }
            }
        }
        world.attempt("cat .env").asks();
        assert!(world.approved("cat .env").ran().stdout.contains(secret));
        assert!(world.path("inside/.env").exists());
    }
}

#[test]
fn what_a_command_makes_that_others_would_run_is_told_or_removed() {
    if !is_full(Fencing::WhereOffered) {
        return;
    }
    let world = project(Fencing::WhereOffered).accepting(Accept::Full);
    let ran = script(&world, "mkdir .husky; echo x > new.worker").ran();
    assert!(ran.stderr.contains(".husky was made") && ran.stderr.contains("new.worker was made"), "{ran:?}");
    for (made, made_by) in [
        ("json.py", "echo x > json.py"),
        ("site.pth", "echo x > site.pth"),
        ("json", "mkdir json; touch json/__init__.py"),
        ("link.py", "ln -s a.txt link.py"),
    ] {
        let ran = script(&world, made_by).ran();
        assert!(ran.stderr.contains(&format!("{made} was removed")), "{ran:?}");
        assert!(world.inside().join(made).symlink_metadata().is_err(), "{made}");
    }
    // A link that stood for something protected, and work of `git` that somebody would go on with.
    fs::rename(world.path("inside/.git"), world.path("inside/real")).unwrap();
    world.link("inside/.git", "real");
    let ran = script(&world, "rm .git; mkdir .git").ran();
    assert!(ran.stderr.contains("/.git was made"), "{ran:?}");
    fs::remove_dir(world.path("inside/.git")).unwrap();
    fs::rename(world.path("inside/real"), world.path("inside/.git")).unwrap();
    world.file("inside/go.sh", "mkdir -p .git/rebase-merge; echo exec id > .git/rebase-merge/git-rebase-todo");
    let ran = world.approved("git -c alias.x='!sh go.sh' x").ran();
    assert!(ran.stderr.contains("git-rebase-todo was made"), "{ran:?}");
    // What was made is kept from the next one.
    script(&world, "echo first > other.worker").ran();
    script(&world, "echo second > other.worker").ran();
    assert_eq!(fs::read_to_string(world.path("inside/other.worker")).unwrap(), "first\n");
}

#[test]
fn a_secret_that_is_replaced_meanwhile_stays_hidden() {
    if !is_full(Fencing::WhereOffered) {
        return;
    }
    let world = project(Fencing::WhereOffered).accepting(Accept::Full);
    let session = world.session(llm_do::tools::approval::Approvals::unattended());
    world.file("inside/go.sh", "cat .env || true");
    assert_eq!(session.attempt("bash go.sh", 10).ran().stdout, "");
    world.file("inside/saved", "TOKEN=another\n");
    fs::rename(world.path("inside/saved"), world.path("inside/.env")).unwrap();
    assert_eq!(session.attempt("bash go.sh", 10).ran().stdout, "");
}

#[test]
fn what_was_approved_is_written() {
    let world = project(Fencing::WhereOffered).accepting(Accept::Full);
    assert_eq!(world.approved("cp a.txt main.worker").ran().exit_code, 0);
    assert_eq!(fs::read_to_string(world.path("inside/main.worker")).unwrap(), "alpha\nbeta\n");
    assert_ne!(world.approved("cp a.txt .git/config main.worker").ran().exit_code, 0);
}

#[test]
fn a_shell_that_writes_nothing_is_allowed_where_nothing_is_in_reach() {
    for fencing in [Fencing::WhereOffered, Fencing::Thin] {
        let mut shell = rules(vec![rule("bash", Rule::Allow)]);
        shell.config.directory = Access::ReadOnly;
        let world = World::new(fencing).accepting(Accept::Full).with(vec![shell]);
        if !world.fence().is_there() {
            continue;
        }
        let before = world.state();
        let ran = world.attempt("bash -c 'cat a.txt; echo t > $TMPDIR/t; cat $TMPDIR/t'").ran();
        assert_eq!((ran.stdout.as_str(), ran.exit_code), ("alpha\nbeta\nt\n", 0), "{ran:?}");
        for script in ["echo x > a.txt", "rm a.txt", "chmod 777 a.txt", "touch -d yesterday a.txt", "mkdir d"] {
            assert_ne!(world.attempt(&format!("bash -c '{script}'")).ran().exit_code, 0, "{script}");
            assert_eq!(world.state(), before, "{script}");
        }
        world.file("inside/.env", "x");
        if !is_full(fencing) {
            world.attempt("bash -c true").asks();
        }
    }
}

#[test]
fn directories_to_write_are_those_of_the_beginning() {
    for fencing in [Fencing::WhereOffered, Fencing::Thin] {
        let mut shell = rules(vec![rule("bash", Rule::Allow)]);
        shell.config.write = vec!["build".to_owned()];
        let world = World::new(fencing).with(vec![shell]);
        if !world.fence().is_there() {
            continue;
        }
        fs::create_dir(world.path("inside/build")).unwrap();
        let session = world.session(llm_do::tools::approval::Approvals::unattended());
        assert_eq!(session.attempt("bash -c 'echo x > build/x'", 10).ran().exit_code, 0);
        fs::rename(world.path("inside/build"), world.path("inside/old")).unwrap();
        world.link("inside/build", world.outside());
        let before = world.outer();
        let reason = session.attempt("bash -c 'echo x > build/evil'", 10).stopped();
        assert!(reason.contains("`build` is not the directory that it was when the run began"), "{reason}");
        assert_eq!(world.outer(), before);
    }
}

#[test]
fn a_tree_with_more_than_can_be_kept_asks() {
    if !is_full(Fencing::WhereOffered) {
        return;
    }
    let world = World::new(Fencing::WhereOffered).with(vec![rules(vec![rule("bash", Rule::Allow)])]);
    for number in 0..1100 {
        world.file(&format!("inside/keys/{number}.pem"), "top-secret-value");
    }
    world.attempt("bash -c true").asks();
    let ran = world.approved("bash -c 'cat keys/*'").ran();
    assert!(!ran.stdout.contains("top-secret-value"), "what is found is hidden all the same");
}

#[test]
fn a_working_directory_may_lie_anywhere() {
    if !is_full(Fencing::WhereOffered) {
        return;
    }
    // Beneath the private `/tmp`, beneath what is read-only otherwise, and with blanks and backslashes in its name.
    for above in ["/tmp", "/var/tmp", env!("CARGO_TARGET_TMPDIR")] {
        let Ok(directory) = tempfile::Builder::new().prefix("a b\\134c").tempdir_in(above) else { continue };
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let world = World::beneath(directory.path(), Fencing::WhereOffered);
        let world = world.with(vec![rules(vec![rule("bash", Rule::Allow)])]);
        let ran = world.attempt("bash -c 'pwd; echo x > new; cat new'").ran();
        let inside = world.inside().canonicalize().unwrap();
        assert_eq!(ran.stdout, format!("{}\nx\n", inside.display()), "{ran:?}");
        assert!(world.path("inside/new").exists());
    }
}
