//! What must not happen, tried for its effect with every fence and without one, as whoever runs the tests and as somebody
//! else; and beside it what must.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::matrix::{Outcome, Place, Setting, User, Wall};

/// What others run, follow or take as settings, and what is secret.
const PROJECT: &[(&str, &str)] = &[
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/config", "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../shared.config\n"),
    (".git/hooks/sample", ""),
    ("tools/hooks/sample", ""),
    ("shared.config", "[user]\n"),
    ("linked/.git/HEAD", ""),
    ("linked/named", ""),
    ("linked/hooks-of-link/sample", ""),
    ("bare/HEAD", "ref: refs/heads/main\n"),
    ("bare/config", "[core]\n\tbare = true\n"),
    ("bare/hooks/sample", ""),
    ("bare/objects/x", ""),
    ("bare/refs/x", ""),
    ("workers/a.yaml", "name: a\n"),
    ("deep/er/.git/config", "[core]\n"),
    (".vscode/tasks.json", "{}"),
    (".claude/settings.json", "{}"),
    (".mcp.json", "{}"),
    ("AGENTS.md", "Be kind.\n"),
    ("pre-commit", "#!/bin/sh\n"),
    ("x", "name: evil\n"),
];

fn project(rules: &[&str], shell: &Value) -> Place {
    let place = Place::new(rules, shell);
    for (path, text) in PROJECT {
        place.file(&format!("inside/{path}"), text);
    }
    place.link("inside/linked/.git/hooks", "../hooks-of-link");
    place
}

/// What there is beneath a directory, but for scripts of the tests.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<String>> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let text = metadata.is_file().then(|| String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned());
        if !path.file_name().unwrap().to_string_lossy().starts_with("step") {
            files.insert(path, text);
        }
    }
    files
}

const PLANTS: &[&str] = &[
    "install -Dt.git/hooks pre-commit",
    "cp x workers/a.yaml",
    "cp x workers/new.yaml",
    "mv .git g",
    "mv ../inside ../r2",
    "echo x >> .git/config",
    "echo x > .git/hooks/pre-commit",
    "rm -rf .git",
    "echo x > tools/hooks/pre-commit",
    "mv tools t",
    "echo x >> shared.config",
    "echo x > linked/hooks-of-link/pre-commit",
    "mv linked/hooks-of-link linked/h",
    "echo x > bare/hooks/post-receive",
    "echo x >> bare/config",
    "mv bare b",
    "echo x > deep/er/.git/config",
    "mv deep d",
    "echo x > main.worker",
    "rm project.json",
    "echo x > .vscode/tasks.json",
    "echo x > .claude/settings.json",
    "ln -sf x .mcp.json",
    "echo x > AGENTS.md",
    "chmod 777 .git/config main.worker",
];

#[test]
fn commands_plant_nothing_that_others_run() {
    for setting in Setting::all() {
        let place = project(&["sh"], &json!({}));
        let before = tree(&place.path("inside"));
        let outcomes = place.scripts(setting, PLANTS);
        if setting.wall == Wall::Thin {
            // Whoever accepts it knows that; and so these would be planted if nothing kept them.
            assert!(place.read("inside/.git/hooks/pre-commit").is_none() && place.read("r2/notes.md").is_none());
            assert_eq!(place.read("inside/main.worker").as_deref(), Some("x\n"), "{outcomes:?}");
            continue;
        }
        for (plant, outcome) in PLANTS.iter().zip(&outcomes) {
            match outcome {
                Outcome::Ran { .. } => assert_eq!(setting.wall, Wall::Full, "{plant}: {outcome:?}"),
                Outcome::Stopped(_) => outcome.asks(),
            }
        }
        let after = tree(&place.path("inside"));
        for (path, text) in &before {
            assert_eq!(after.get(path), Some(text), "{setting:?} {}", path.display());
        }
        assert_eq!(after.len(), before.len(), "{setting:?} {:?}", after.keys());
    }
}

#[test]
fn what_is_nobodys_program_is_built_and_changed() {
    let build = "echo all: > Makefile && mkdir -p target/deep && echo x > target/deep/out && mv notes.md target \
                 && echo y > tools/new.txt && echo z > linked/new.txt && cat target/notes.md /tmp/t 2>/dev/null; true";
    for setting in Setting::all() {
        let place = project(&["sh"], &json!({}));
        let outcome = place.scripts(setting, &[build]).remove(0);
        if setting.allows() {
            assert_eq!(outcome.said(), "one\n", "{setting:?}");
            let all = ["Makefile", "target/deep/out", "tools/new.txt", "linked/new.txt"];
            assert!(all.iter().all(|path| place.path("inside").join(path).exists()), "{setting:?}");
        } else {
            outcome.asks();
        }
    }
}

fn repository(place: &Place) {
    for arguments in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "a"],
        &["config", "user.email", "a@b"],
        &["add", "notes.md"],
        &["commit", "-qm", "first"],
    ] {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(place.path("inside")).env("HOME", "/nonexistent");
        assert!(git.output().unwrap().status.success(), "{arguments:?}");
    }
}

const SETTINGS_OF_GIT: &[&str] = &[
    "config",
    "config.worktree",
    "hooks/pre-commit",
    "info/attributes",
    "objects/info/alternates",
    "commondir",
    "modules/m/config",
    "modules/m/config.worktree",
    "modules/m/hooks/post-checkout",
    "modules/plain/config",
    "modules/plain/hooks/post-checkout",
    "worktrees/w/config.worktree",
];

#[test]
fn git_writes_its_repository_and_neither_its_settings_nor_through_links() {
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        let place = Place::new(&["git"], &json!({}));
        repository(&place);
        for path in
            ["modules/m/HEAD", "modules/m/config", "modules/m/hooks/x", "modules/plain/HEAD", "worktrees/w/HEAD"]
        {
            place.file(&format!("inside/.git/{path}"), "x\n");
        }
        for path in ["attributes", "alternates", "config", "hooks/pre-commit", "info/attributes"] {
            place.file(&format!("outside/{path}"), "precious\n");
        }
        place.file("inside/notes.md", "two\n");
        let outside = place.path("outside").display().to_string();
        let mut scripts: Vec<String> = SETTINGS_OF_GIT
            .iter()
            .map(|path| format!("mkdir -p $(dirname .git/{path}); echo evil > .git/{path}"))
            .collect();
        // A directory on the way to a setting becomes a link: what it leads to is neither settings nor ours to remove.
        scripts.extend([
            format!("mv .git/info .git/i; ln -s {outside} .git/info"),
            format!("rm -rf .git/objects/info; ln -s {outside} .git/objects/info"),
            format!("mv .git/modules/plain .git/p; ln -s {outside} .git/modules/plain"),
            "rm -rf .git/info; mkdir later; ln -s ../later .git/info".to_owned(),
            "rm -rf .git/hooks; mv .git/hooks .git/h; mv .git g; rm -rf .git/modules/m".to_owned(),
            // What is closed is not seen by the search before the next command, which opens it again.
            "chmod 000 .git/modules/m .git/modules/plain .git/info .git/objects/info".to_owned(),
            "chmod 755 .git/modules/m .git/modules/plain .git/info .git/objects/info; for f in modules/m/config \
             modules/m/hooks/post-checkout modules/plain/config info/attributes objects/info/alternates; do \
             echo evil > .git/$f; done; chmod 000 .git/info .git/objects/info"
                .to_owned(),
            "chmod 755 .git/modules .git/worktrees; chmod 000 .git/modules .git/worktrees".to_owned(),
            "chmod 755 .git/modules .git/worktrees; echo evil > .git/modules/m/config".to_owned(),
        ]);
        let git = place.path("inside/.git");
        let settings = || SETTINGS_OF_GIT.iter().map(|path| fs::read(git.join(path)).ok()).collect::<Vec<_>>();
        let (before, elsewhere) = (settings(), tree(&place.path("outside")));
        let commands: Vec<String> = scripts
            .iter()
            .enumerate()
            .map(|(at, script)| {
                place.file(&format!("inside/step{at}.sh"), script);
                format!("git -c alias.x='!sh step{at}.sh' x")
            })
            .collect();
        let mut all = vec!["git commit -qam second"];
        all.extend(commands.iter().map(String::as_str));
        // Options of `git` that run another program ask, and somebody said yes.
        let outcomes = place.attempts_with(setting, &all, &["--approve-all"]);
        outcomes[0].said();
        for path in ["modules", "modules/m", "modules/plain", "worktrees", "info", "objects/info"] {
            let _ = fs::set_permissions(git.join(path), std::os::unix::fs::PermissionsExt::from_mode(0o755));
        }
        assert_eq!(settings(), before, "{setting:?} {outcomes:?}");
        assert_eq!(tree(&place.path("outside")), elsewhere, "{setting:?} {outcomes:?}");
        assert!(git.join("hooks").is_dir() && git.join("modules/m/config").exists(), "{setting:?}");
        for link in ["info", "objects/info", "modules/plain"] {
            let is_link = git.join(link).symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
            assert!(!is_link, "{setting:?} {link}");
        }
    }
}

/// Files that look like secrets, at any depth, also where everything else is kept read-only.
const SECRETS: &[&str] = &[
    ".env",
    "deep/er/.ENV.production",
    ".envrc",
    ".claude/.credentials.json",
    ".devcontainer/.env",
    ".cursor/token",
    ".vscode/secrets.json",
    ".ssh/id_rsa",
    "a/.aws/credentials",
    ".cargo/credentials.toml",
    ".terraform.d/x",
    "prod.tfstate",
    "prod.tfvars",
    "secrets.yaml",
    "service-account-1.json",
    "kubeconfig",
    ".boto",
    ".s3cfg",
    ".my.cnf",
    ".bash_history",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".composer/auth.json",
    ".m2/settings.xml",
    "p.kdbx",
    "p.ppk",
    ".password-store/x",
    "x.keyring",
    ".config/rclone/rclone.conf",
    ".databrickscfg",
    ".snowflake/x",
    ".openai_key",
    "token",
    "api_key.txt",
    ".fly/config.yml",
    ".config/hub",
    ".env~",
    "key.pem.bak",
    ".config/llm-do/config.toml",
];

const MEETING: &[&str] = &["cp -r . copy", "grep -r top-secret .", "find . -name .env -size 1"];

#[test]
fn secrets_are_hidden_and_what_is_named_asks() {
    let read_all = "find . -type f -print0 | xargs -0 cat; for f in $(find .); do cat $f; done; mv .env e; cat e; true";
    for setting in Setting::all() {
        let place = Place::new(&["sh", "cat", "cp", "grep", "find"], &json!({}));
        for path in SECRETS {
            place.file(&format!("inside/{path}"), "top-secret-value\n");
        }
        place.link("inside/innocent", ".env");
        let named = ["cat .env", "cat innocent", "cat .claude/.credentials.json"];
        for outcome in place.attempts(setting, &named) {
            outcome.asks();
        }
        // What is only met is hidden, or asks.
        for (command, outcome) in MEETING.iter().zip(place.attempts(setting, MEETING)) {
            match setting.wall {
                Wall::Full => assert!(!format!("{outcome:?}").contains("top-secret-value"), "{command} {outcome:?}"),
                Wall::Thin | Wall::ThinUnaccepted | Wall::None => outcome.asks(),
            }
        }
        let copied =
            tree(&place.path("inside")).into_iter().filter(|(path, _)| path.starts_with(place.path("inside/copy")));
        assert!(
            copied.into_iter().all(|(_, text)| !text.unwrap_or_default().contains("top-secret-value")),
            "{setting:?}"
        );
        let outcomes = place.scripts(setting, &[read_all, "cat innocent; cat token; echo done"]);
        match setting.wall {
            Wall::Full => {
                let Outcome::Ran { stdout, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
                let seen = stdout.matches("top-secret-value").count();
                assert_eq!(seen, 0, "{setting:?} {outcomes:?}");
                assert!(stdout.contains("one"), "{outcomes:?}");
                assert_eq!(outcomes[1].said(), "done\n");
            }
            Wall::Thin => assert!(format!("{outcomes:?}").contains("top-secret-value"), "nothing else keeps them"),
            Wall::ThinUnaccepted | Wall::None => outcomes.iter().for_each(Outcome::asks),
        }
    }
}

/// What programs of a user run or obey, in the home of whoever works there.
const AT_HOME: &[&str] = &[
    ".bash_logout",
    ".vimrc",
    ".tmux.conf",
    ".inputrc",
    ".config/fish/config.fish",
    ".config/autostart/x.desktop",
    ".config/git/config",
    ".local/bin/ls",
    ".unheard-of/rc",
    "bin/ls",
];

#[test]
fn a_home_is_worked_in_and_what_starts_with_its_user_stays_as_it_is() {
    let plant = AT_HOME.iter().map(|path| format!("echo planted >> {path}; ")).collect::<Vec<_>>().concat();
    let honest = "mkdir -p src && echo x > src/new && cat notes.md src/new && echo x > .brand-new";
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        let place = Place::new(&["sh"], &json!({}));
        for path in AT_HOME {
            place.file(&format!("inside/{path}"), "as it was\n");
        }
        place.file("inside/step0.sh", &format!("{plant} mv .config c; mv .local l; rm -rf bin; true"));
        place.file("inside/step1.sh", honest);
        let mut command = place.running(setting, &["sh step0.sh", "sh step1.sh"], &[]);
        let ended = crate::support::wait(command.env("HOME", place.path("inside")));
        for path in AT_HOME {
            assert_eq!(place.read(&format!("inside/{path}")).as_deref(), Some("as it was\n"), "{setting:?} {path}");
        }
        assert_eq!(place.read("inside/src/new").as_deref(), Some("x\n"), "{setting:?} {ended:?}");
        assert!(ended.stdout.contains(".brand-new was made"), "{setting:?} {ended:?}");
    }
}

/// What a project has that other programs obey, and what they only work in.
#[test]
fn settings_of_other_programs_stay_and_what_they_work_in_is_written() {
    let kept =
        [".cargo/config.toml", ".github/workflows/ci.yml", ".npmrc", ".codex/config.toml", ".exrc", "CLAUDE.local.md"];
    let worked_in = [".gradle/x", ".yarn/x", ".gitattributes", ".cache/x", ".pytest_cache/x", ".next/x"];
    let all = || kept.iter().chain(&worked_in);
    let script =
        all().map(|path| format!("echo changed > {path}; ")).chain(["true".to_owned()]).collect::<Vec<_>>().concat();
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        let place = Place::new(&["sh"], &json!({}));
        for path in all() {
            place.file(&format!("inside/{path}"), "as it was\n");
        }
        let outcomes = place.scripts(setting, &[&script]);
        let read = |path: &&str| place.read(&format!("inside/{path}")).unwrap();
        assert!(kept.iter().all(|path| read(path) == "as it was\n"), "{setting:?} {outcomes:?}");
        assert!(worked_in.iter().all(|path| read(path) == "changed\n"), "{setting:?} {outcomes:?}");
        // A branch has such files, too.
        let branches = Place::new(&["git"], &json!({}));
        repository(&branches);
        let outside = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(arguments).current_dir(branches.path("inside")).env("HOME", "/nonexistent");
            assert!(git.output().unwrap().status.success(), "{arguments:?}");
        };
        outside(&["checkout", "-q", "-b", "side"]);
        branches.file("inside/.github/workflows/ci.yml", "x\n");
        outside(&["add", ".github"]);
        outside(&["commit", "-qm", "side"]);
        let outcomes = branches.attempts(setting, &["git checkout -q main", "git checkout -q side"]);
        assert!(
            outcomes.iter().all(|outcome| matches!(outcome, Outcome::Ran { code: 0, .. })),
            "{setting:?} {outcomes:?}"
        );
    }
}

/// How a command closes what it may not touch, so that the search before the next one would not see it.
const CLOSINGS: &[&str] = &[
    "chmod 000 sub",
    "chmod 444 sub",
    "chmod 111 sub",
    "chmod 000 sub/deeper",
    "chmod 666 sub/deeper; chmod 000 sub",
    "mv bare/refs bare/r; mv bare/objects bare/o; mv bare/HEAD bare/h",
    "rm -f bare/HEAD; rm -rf bare/refs bare/objects",
];
const OPENING: &str = "chmod 755 sub sub/deeper; mv bare/r bare/refs; mv bare/o bare/objects; mv bare/h bare/HEAD; \
    for d in sub sub/deeper; do cat $d/.env; for f in .git/hooks/pre-commit main.worker new.worker; do \
    echo planted >> $d/$f; done; done; echo planted >> bare/config; echo planted > bare/hooks/post-receive; true";

#[test]
fn what_a_command_closed_is_kept_from_the_next() {
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        for closing in CLOSINGS {
            let place = project(&["sh"], &json!({}));
            for above in ["sub", "sub/deeper"] {
                place.file(&format!("inside/{above}/.env"), "top-secret-value\n");
                place.file(&format!("inside/{above}/main.worker"), "---\nname: x\n---\n");
                place.file(&format!("inside/{above}/.git/hooks/sample"), "");
            }
            let outcomes = place.scripts(setting, &[closing, OPENING]);
            assert!(!format!("{outcomes:?}").contains("top-secret-value"), "{setting:?} {closing}: {outcomes:?}");
            for directory in ["sub", "sub/deeper", "bare"] {
                let reopened = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                fs::set_permissions(place.path("inside").join(directory), reopened).unwrap();
            }
            let planted = ["sub/.git/hooks/pre-commit", "sub/main.worker", "sub/deeper/.git/hooks/pre-commit"];
            let planted =
                planted.into_iter().chain(["sub/deeper/main.worker", "bare/config", "bare/hooks/post-receive"]);
            for path in planted {
                let text = place.read(&format!("inside/{path}")).unwrap_or_default();
                assert!(!text.contains("planted"), "{setting:?} {closing} {path}: {outcomes:?}");
            }
        }
    }
}

/// Who agrees to one file has not agreed to those around it.
#[test]
fn what_somebody_agreed_to_opens_nothing_beside_it() {
    let go = "for f in \"$@\"; do cat $f; echo changed > $f; done; cat .ssh/id_rsa .env sub/.aws/credentials; \
              for f in .git/hooks/pre-commit .git/config .vscode/new.json .claude/settings.json \
              main.worker; do echo planted > $f; done; true";
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        let place = project(&["sh"], &json!({}));
        for path in [".ssh/id_rsa", ".env", "sub/.aws/credentials"] {
            place.file(&format!("inside/{path}"), "top-secret-value\n");
        }
        for path in [".ssh/config", ".git/description", "sub/.aws/config", ".vscode/tasks.json"] {
            place.file(&format!("inside/{path}"), "agreed\n");
        }
        place.file("inside/go.sh", go);
        let named = ".ssh/config .git/description sub/.aws/config .vscode/tasks.json .git/info/new .claude/new .ssh/new new.worker";
        fs::create_dir_all(place.path("inside/.git/info")).unwrap();
        let outcome = place.attempts_with(setting, &[&format!("sh go.sh {named}")], &["--approve-all"]).remove(0);
        assert_eq!(outcome.said(), "agreed\n".repeat(4), "{setting:?} {outcome:?}");
        for path in named.split(' ') {
            assert_eq!(place.read(&format!("inside/{path}")).as_deref(), Some("changed\n"), "{setting:?} {outcome:?}");
        }
        assert!(place.read("inside/.git/hooks/pre-commit").is_none(), "{setting:?} {outcome:?}");
        assert!(place.read("inside/.vscode/new.json").is_none(), "{setting:?} {outcome:?}");
        for path in [".claude/settings.json", "main.worker"] {
            assert!(
                !place.read(&format!("inside/{path}")).unwrap().contains("planted"),
                "{setting:?} {path} {outcome:?}"
            );
        }
        assert!(!place.read("inside/.git/config").unwrap().contains("planted"), "{setting:?} {outcome:?}");
    }
}

/// A directory to write may lie inside of what is kept, and something that is kept inside of that.
#[test]
fn directories_to_write_are_no_way_around_what_is_kept() {
    let go = "for f in .git/hooks/pre-commit sub/out/.git/hooks/pre-commit sub/out/main.worker sub/.vscode/out/tasks.json; do \
              echo planted > $f; done; echo x > sub/out/made; cat sub/out/made";
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        for access in ["rw", "ro"] {
            let write = json!([".git/hooks", "sub/out", "sub/.vscode/out"]);
            let place = project(&["sh"], &json!({"directory": access, "write": write}));
            for path in ["sub/out/.git/hooks/x", "sub/out/main.worker", "sub/.vscode/out/tasks.json"] {
                place.file(&format!("inside/{path}"), "as it was\n");
            }
            let outcome = place.scripts(setting, &[go]).remove(0);
            assert_eq!(outcome.said(), "x\n", "{setting:?} {access} {outcome:?}");
            let planted = [".git/hooks/pre-commit", "sub/out/.git/hooks/pre-commit", "sub/out/main.worker"];
            // By itself it is what somebody trusted the project with.
            for path in planted.into_iter().chain(["sub/.vscode/out/tasks.json"].into_iter().filter(|_| access == "rw"))
            {
                let text = place.read(&format!("inside/{path}")).unwrap_or_default();
                assert!(!text.contains("planted"), "{setting:?} {access} {path} {outcome:?}");
            }
        }
    }
}

#[test]
fn a_private_directory_is_removed_whatever_was_closed_in_it() {
    let leave = "mkdir -p $TMPDIR/a/b $TMPDIR/c; : > $TMPDIR/a/b/x; chmod 500 $TMPDIR/a/b; chmod 000 $TMPDIR/a $TMPDIR/c; \
                 echo $TMPDIR; grep -o '/tmp/llm-do-private-[0-9a-f]*' /proc/self/mountinfo | head -n 1";
    for setting in Setting::all().into_iter().filter(|setting| setting.allows()) {
        let place = Place::new(&["sh"], &json!({}));
        let outcome = place.scripts(setting, &[leave]).remove(0);
        let Outcome::Ran { stdout, .. } = &outcome else { panic!("{outcome:?}") };
        let private = stdout
            .lines()
            .find(|line| line.starts_with("/tmp/llm-do-private-"))
            .unwrap_or_else(|| panic!("{outcome:?}"));
        assert!(!Path::new(private).exists(), "{setting:?} {private}");
    }
}

/// Where llm-do looks for settings of `git`, a command may leave what never ends or never begins.
#[test]
fn what_a_command_left_in_place_of_a_file_holds_nobody_up() {
    let leave = "mkdir -p q/objects q/refs q/modules/m w e .q; mkfifo q/config q/HEAD q/modules/m/config w/.git .env .gitattributes; \
                 ln -s /dev/zero e/.git; ln -s . .q/.git; ln -s loop loop; mkdir -p r/objects r/refs; ln -s /dev/zero r/config; true";
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        let place = Place::new(&["sh", "git"], &json!({}));
        let outcomes = place.scripts(setting, &[leave, "echo second"]);
        assert_eq!(outcomes[1].said(), "second\n", "{setting:?}");
        let outcomes = place.attempts(setting, &["git status"]);
        assert!(matches!(outcomes[0], Outcome::Ran { .. }), "{setting:?} {outcomes:?}");
    }
}

#[test]
fn a_working_directory_that_a_command_closed_asks() {
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        let place = Place::new(&["sh"], &json!({}));
        place.file("inside/.env", "top-secret-value\n");
        let outcomes = place.scripts(setting, &["chmod 311 .", "chmod 755 .; cat .env"]);
        assert!(!format!("{outcomes:?}").contains("top-secret-value"), "{setting:?}: {outcomes:?}");
    }
}

/// Does something as soon as a file is there, and says so with another.
fn meanwhile<T>(place: &Place, deed: impl FnOnce() + Send, run: impl FnOnce() -> T) -> T {
    let (ready, done) = (place.path("inside/ready"), place.path("inside/done"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            while !ready.exists() {
                assert!(start.elapsed() < Duration::from_mins(1), "the command never began");
                std::thread::yield_now();
            }
            deed();
            fs::write(done, "").unwrap();
        });
        run()
    })
}

type Deed = fn(&Place);

/// What somebody does between two commands. Each alone: what one of them is noticed by must not stand in for the others.
const MEANWHILE: &[(&str, Deed)] = &[
    ("a secret is replaced", |place| replace(place, ".env")),
    ("a secret comes", |place| come(place, "inside/sub/new/.env", "top-secret-value\n")),
    ("a secret comes among others", |place| come(place, "inside/sub/.env", "top-secret-value\n")),
    ("a worker file is replaced", |place| replace(place, "main.worker")),
    ("a worker file comes", |place| come(place, "inside/sub/new/main.worker", "---\nname: new\n---\n")),
    ("a repository comes", |place| come(place, "inside/sub/new/.git/hooks/sample", "")),
    ("a directory is replaced", |place| {
        fs::rename(place.path("inside/deep"), place.path("inside/old")).unwrap();
        place.file("inside/deep/.git/hooks/sample", "");
    }),
];

fn come(place: &Place, path: &str, text: &str) {
    place.file(path, text);
}

/// As editors do: written beside it, then moved over it.
fn replace(place: &Place, path: &str) {
    let path = format!("inside/{path}");
    place.file("inside/saved", &place.read(&path).unwrap());
    fs::rename(place.path("inside/saved"), place.path(&path)).unwrap();
}

#[test]
fn what_came_or_was_replaced_since_the_last_command_is_kept_from_the_next() {
    let wait = "cat .env; : > ready; until [ -e done ]; do sleep 0.01; done; true";
    let look = "cat .env sub/.env sub/new/.env; for f in main.worker sub/new/main.worker; do echo planted >> $f; done; \
                for d in sub/new deep; do echo planted > $d/.git/hooks/pre-commit; done; echo looked";
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        for (what, happen) in MEANWHILE {
            let place = Place::new(&["sh"], &json!({}));
            place.file("inside/.env", "top-secret-value\n").file("inside/sub/x", "");
            place.file("inside/deep/.git/hooks/sample", "");
            let deed = || {
                happen(&place);
                open_to_all(&place.path("inside"));
            };
            let outcomes = meanwhile(&place, deed, || place.scripts(setting, &[wait, look]));
            assert!(outcomes[1].said().contains("looked"), "{setting:?} {what}: {outcomes:?}");
            assert!(!format!("{outcomes:?}").contains("top-secret-value"), "{setting:?} {what}: {outcomes:?}");
            let planted = |path: &str| place.read(path).is_some_and(|text| text.contains("planted"));
            assert!(!planted("inside/main.worker"), "{setting:?} {what}");
            assert!(!planted("inside/deep/.git/hooks/pre-commit"), "{setting:?} {what}");
            assert!(!planted("inside/sub/new/.git/hooks/pre-commit"), "{setting:?} {what}");
            assert!(*what != "a worker file comes" || !planted("inside/sub/new/main.worker"), "{setting:?} {what}");
        }
    }
}

/// Whoever made a file: only a fence keeps it from others.
fn open_to_all(path: &Path) {
    let metadata = path.symlink_metadata().unwrap();
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            open_to_all(&entry.unwrap().path());
        }
    }
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
}

const CONNECT: &str = r#"
import os, socket, subprocess, sys
def attempt(name, family, address):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as opened:
            opened.connect(address)
            opened.sendall(b"hello")
            print(name, "connected")
    except OSError as error:
        print(name, error.errno)
here, there, port = sys.argv[1:]
attempt("path inside", socket.AF_UNIX, "socket")
attempt("path outside", socket.AF_UNIX, here + "/socket")
attempt("abstract", socket.AF_UNIX, "\0" + there)
attempt("internet", socket.AF_INET, ("127.0.0.1", int(port)))
os.environ["SSH_AUTH_SOCK"] = "agent"
try:
    print("agent", subprocess.run(["ssh-add", "-l"], capture_output=True, text=True).returncode)
except OSError:
    print("agent", 2)
"#;

fn has_system_python() -> bool {
    Path::new("/usr/bin/python3").exists()
}

/// An agent for keys that listens at a path, if the machine has one; ended with the test.
struct KeyAgent(Option<std::process::Child>);

impl KeyAgent {
    fn start(socket: &Path) -> Self {
        let mut agent = Command::new("ssh-agent");
        agent.arg("-D").arg("-a").arg(socket).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = agent.spawn() else { return Self(None) };
        let start = Instant::now();
        while !socket.exists() && start.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        Self(Some(child))
    }
}

impl Drop for KeyAgent {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn nobody_came(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn the_network_is_no_way_to_local_services() {
    if !has_system_python() {
        return;
    }
    for setting in Setting::all().into_iter().filter(|setting| setting.allows()) {
        let place = Place::new(&["/usr/bin/python3"], &json!({"network": true}));
        let name = format!("llm-do-test-{}", fastrand::u64(..));
        let inside = UnixListener::bind(place.path("inside/socket")).unwrap();
        let outside = UnixListener::bind(place.path("outside/socket")).unwrap();
        let abstract_ = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let internet = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = internet.local_addr().unwrap().port();
        let _agent = KeyAgent::start(&place.path("inside/agent"));
        place.file("inside/connect.py", CONNECT);
        let command = format!("/usr/bin/python3 connect.py {} {name} {port}", place.path("outside").display());
        let outcome = place.attempts(setting, &[&command]).remove(0);
        let said = outcome.said();
        for refused in ["path inside 1\n", "path outside 1\n", "abstract 1\n", "agent 2\n", "internet connected\n"] {
            assert!(said.contains(refused), "{setting:?} {refused}: {outcome:?}");
        }
        assert!([&inside, &outside, &abstract_].into_iter().all(nobody_came), "{setting:?}");
        let mut text = String::new();
        internet.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello", "{setting:?}");
    }
}

/// Says the error of each call; shared with the tests of the filters themselves.
const CALLS: &str = include_str!("../../../llm-do/tests/shell/calls.py");

#[test]
fn calls_that_reach_around_a_fence_are_refused_to_everybody() {
    if !has_system_python() {
        return;
    }
    let (eperm, enosys) = (1, 38);
    for setting in Setting::all().into_iter().filter(|setting| setting.allows()) {
        let place = Place::new(&["/usr/bin/python3"], &json!({}));
        place.file("inside/calls.py", CALLS);
        let outcome = place.attempts(setting, &["/usr/bin/python3 calls.py"]).remove(0);
        let said: Value = serde_json::from_str(outcome.said()).unwrap();
        for (name, error) in said.as_object().unwrap() {
            let expected = match name.as_str() {
                "clone3" | "newer" | "far" | "other way in" => enosys,
                "inotify_add_watch" | "setsid" if setting.wall == Wall::Full => continue,
                "setxattrat" | "removexattrat" => continue,
                "thread" => 1,
                "fork" => 7,
                "spawn" => {
                    assert_eq!(error, "spawned", "{setting:?}");
                    continue;
                }
                _ => eperm,
            };
            assert_eq!(*error, expected, "{name} {setting:?}: {said}");
        }
    }
}

/// Whether a process with this argument is there.
fn is_there(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let has = |line: Vec<u8>| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes());
    processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok()).any(has)
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::yield_now();
    }
}

/// Ways out of a process group, a session and a namespace.
const SURVIVE: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
sleep = ["/bin/sleep", sys.argv[1]]
def child(leave):
    if os.fork() == 0:
        try:
            leave()
            for descriptor in range(3):
                os.close(descriptor)
        finally:
            os.execv(sleep[0], sleep)
def new_namespace():
    arguments = struct.pack("11Q", 0x20000000 | 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    buffer = ctypes.create_string_buffer(arguments)
    if libc.syscall(435, ctypes.addressof(buffer), len(arguments)) > 0:
        os._exit(0)
def twice():
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
for leave in (lambda: os.setpgid(0, 0), os.setsid, new_namespace, twice, lambda: os.setpgid(0, os.getppid())):
    child(leave)
"#;

#[test]
fn nothing_that_a_command_started_is_left_after_the_run() {
    if !has_system_python() {
        return;
    }
    for setting in Setting::all().into_iter().filter(|setting| setting.allows()) {
        let place = Place::new(&["/usr/bin/python3"], &json!({}));
        place.file("inside/survive.py", SURVIVE);
        let long = format!("1000.{}", fastrand::u64(..));
        place.attempts(setting, &[&format!("/usr/bin/python3 survive.py {long}")]);
        let start = Instant::now();
        while is_there(&long) {
            assert!(start.elapsed() < Duration::from_secs(5), "{setting:?}: it survived");
            std::thread::yield_now();
        }
    }
}

/// The processes that descend from one, whichever of its threads started them.
fn descendants(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> = children.flat_map(|line| numbers(&line)).collect();
    children.into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

fn numbers(line: &str) -> Vec<u32> {
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn neither_keeper_nor_command_outlives_a_program_that_is_killed() {
    for setting in Setting::all().into_iter().filter(|setting| setting.wall == Wall::Full) {
        let place = Place::new(&["sh"], &json!({}));
        let long = format!("1000.{}", fastrand::u64(..));
        place.file("inside/go.sh", &format!("setsid sleep {long} & sleep {long} & exec sleep {long}\n"));
        let mut child = place.running(setting, &["sh go.sh"], &[]).spawn().unwrap();
        until("it never began", || is_there(&long));
        let all = descendants(child.id());
        assert!(all.len() >= 3, "{all:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        let is_gone = |process: &u32| {
            let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        until("something survived", || !is_there(&long) && all.iter().all(is_gone));
    }
}

#[test]
fn a_directory_to_write_that_is_a_link_is_a_mistake_for_everybody() {
    for setting in Setting::all() {
        for target in ["home", "/"] {
            let place = Place::new(&["sh"], &json!({"write": ["cache"]}));
            let target = if target == "/" { PathBuf::from(target) } else { place.path(target) };
            place.link("inside/cache", &target);
            place.file("inside/go.sh", "echo x > cache/llm-do-made\n");
            let ended = place.ended(setting, &["sh go.sh"], &["--approve-all"]);
            assert_eq!(ended.code, Some(2), "{setting:?} {ended:?}");
            assert!(!target.join("llm-do-made").exists(), "{setting:?}");
        }
        let honest = Place::new(&["sh"], &json!({"write": ["cache"]}));
        honest.file("inside/cache/x", "").file("inside/go.sh", "echo x > cache/made; cat cache/made\n");
        let outcome = honest.attempts_with(setting, &["sh go.sh"], &["--approve-all"]).remove(0);
        assert_eq!(outcome.said(), "x\n", "{setting:?}");
    }
}

#[test]
fn a_directory_to_write_that_a_model_replaced_is_not_written() {
    for setting in Setting::all() {
        for user_says_yes in [false, true] {
            let place = Place::new(&["mv", "ln", "cp"], &json!({"write": ["build"]}));
            place.file("inside/build/x", "");
            place.file("inside/main.worker", "---\nname: main\ntoolsets: [mine, child]\n---\nYou are main.\n");
            place.file("inside/child.worker", "---\nname: child\ntoolsets: [mine]\n---\nYou are child.\n");
            let manifest = place.read("inside/project.json").unwrap();
            place.file(
                "inside/project.json",
                &manifest.replace("[\"main.worker\"]", "[\"main.worker\",\"child.worker\"]"),
            );
            let documents = place.path("home").display().to_string();
            let shell = |command: &str| json!([{"shell": {"command": command}}]);
            let rounds = json!([
                {"agent": "main", "round": 1, "call": shell("mv build old")},
                {"agent": "main", "round": 2, "call": shell(&format!("ln -s {documents} build"))},
                {"agent": "main", "round": 3, "call": [{"child": {"input": "go"}}]},
                {"agent": "child", "round": 1, "call": shell("cp notes.md build/planted")},
                {"say": "done"},
            ]);
            let flags: &[&str] = if user_says_yes { &["--approve-all"] } else { &[] };
            let mut command = place.running(setting, &[], flags);
            place.file("script.yaml", &rounds.to_string());
            let ended = crate::matrix::on(setting.kernel(), || crate::support::wait(&mut command));
            assert!(ended.stdout.lines().count() > 3, "{ended:?}");
            assert!(!place.path("home/planted").exists(), "{setting:?} {ended:?}");
        }
    }
}

/// Commands that a rule allows by their program and that ask for what their words lead to; and those that pass.
const ASKING: &[&str] = &[
    "grep -f.env -v x f",
    "sort -omain.worker f",
    "git show HEAD:.env",
    "git diff --no-index /dev/null -- .env",
    "tar -cf- @list",
    "install -Dtworkers/generated drafts/evil.yaml",
    "mkdir -pv made/deep",
    "mkdir -m755 -vp made/deep",
    "echo push --forc",
    "rmdir --parents empty",
    "rmdir -f empty",
    "cp f bare/config",
    "cp f bare/hooks/post-receive",
    "cp f tools/hooks/pre-commit",
];
const PASSING: &[&str] =
    &["wc -l notes.md", "git branch", "date", "mkdir -v made", "echo push origin", "rmdir -v empty"];

#[test]
fn words_ask_and_pass_alike_for_everybody() {
    let allow = |pattern: &str| json!({"pattern": pattern, "approval": "allow", "i_understand": true});
    let mut rules: Vec<Value> =
        ["grep", "sort", "git show", "git diff", "git branch", "cp", "tar", "install", "wc -l", "date"]
            .map(allow)
            .to_vec();
    rules.extend([
        json!({"pattern": "mkdir", "approval": "allow", "approval_required_if_args": ["-p"]}),
        json!({"pattern": "echo push", "approval": "allow", "approval_required_if_args": ["--force"]}),
        json!({"pattern": "rmdir", "approval": "allow", "allowed_args": ["-v"]}),
    ]);
    for setting in Setting::all() {
        let place = Place::new(&[], &json!({"rules": rules}));
        repository(&place);
        place.file("inside/.env", "TOKEN=x\n").file("inside/f", "x\n").file("inside/list", ".env\n");
        place.file("inside/drafts/evil.yaml", "name: evil\n");
        for path in ["bare/HEAD", "bare/objects/x", "bare/refs/x", "tools/hooks/pre-commit"] {
            place.file(&format!("inside/{path}"), "");
        }
        place.file("inside/.git/config", "[core]\n\thooksPath = tools/hooks\n");
        fs::create_dir(place.path("inside/empty")).unwrap();
        let before = tree(&place.path("inside"));
        for (command, outcome) in ASKING.iter().zip(place.attempts(setting, ASKING)) {
            assert!(
                matches!(&outcome, Outcome::Stopped(why) if why.contains("needs an approval")),
                "{command}: {outcome:?}"
            );
        }
        assert_eq!(tree(&place.path("inside")), before, "{setting:?}");
        for (command, outcome) in PASSING.iter().zip(place.attempts(setting, PASSING)) {
            let has_passed = matches!(outcome, Outcome::Ran { code: 0, .. });
            assert_eq!(has_passed, setting.allows(), "{setting:?} {command}: {outcome:?}");
        }
    }
}

#[test]
fn another_user_is_another() {
    let place = Place::new(&["sh"], &json!({}));
    let setting = Setting { user: User::Another, wall: Wall::None };
    let ended = place.ended(setting, &["sh -c id"], &["--approve-all"]);
    assert!(!ended.stdout.contains("uid=0("), "{ended:?}");
}
