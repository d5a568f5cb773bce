//! Repositories that would run programs, and `git` that does not let them.

use std::path::Path;
use std::process::Command;

use crate::world::{ALL, Attempt, World};
use llm_do::tools::fence::Fencing;

fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(directory).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with two commits and a change that is not yet in one.
fn repository(fencing: Fencing) -> World {
    let world = World::new(fencing);
    let inside = world.inside();
    git(&inside, &["init", "-q", "-b", "main"]);
    git(&inside, &["add", "."]);
    git(&inside, &["commit", "-q", "-m", "first"]);
    world.file("inside/a.txt", "alpha\nbeta\nlater\n");
    git(&inside, &["commit", "-q", "-a", "-m", "second"]);
    world.file("inside/a.txt", "alpha\nbeta\nlater\nstill later\n");
    world
}

const READS: &[&str] = &[
    "git status",
    "git diff",
    "git log -p",
    "git show",
    "git diff HEAD~1",
    "git log --stat",
    "git status -s",
    "git log",
    "git show HEAD:a.txt",
    "git diff --stat",
    "git log --oneline -- a.txt",
];

/// Nothing planted has run, whether the command was stopped or not.
#[track_caller]
fn holds(world: &World) {
    for command in READS {
        if let Attempt::Ran(ran) = world.attempt(command) {
            assert!(!ran.stdout.contains("FIRED") && !ran.stderr.contains("FIRED"), "{command}: {ran:?}");
        }
        assert!(!world.path("outside/fired").exists(), "{command} ran what was planted");
        assert!(!world.path("outside/hooked").exists(), "{command} ran a hook");
    }
}

#[test]
fn a_plain_repository_is_read_without_a_question() {
    for fencing in ALL {
        let world = repository(fencing);
        let before = world.state();
        let diff = world.attempt("git diff").ran();
        assert!(diff.stdout.contains("+still later") && diff.exit_code == 0, "{diff:?}");
        assert!(world.attempt("git log --oneline").ran().stdout.contains("second"));
        assert!(world.attempt("git status --short").ran().stdout.contains(" M a.txt"));
        assert!(world.attempt("git show HEAD:a.txt").ran().stdout.contains("later"));
        assert_eq!(world.state(), before, "not even the index was touched");
    }
}

#[test]
fn overridden_settings_run_nothing_and_need_no_question() {
    for fencing in ALL {
        for (key, value) in [
            ("core.fsmonitor", "./evil"),
            ("core.pager", "./evil"),
            ("core.hooksPath", "hooks"),
            ("core.editor", "./evil"),
            ("core.sshCommand", "./evil"),
            ("diff.external", "./evil"),
            ("pager.log", "./evil"),
            ("alias.status", "!./evil"),
            ("alias.log", "!./evil"),
            ("log.showSignature", "true"),
        ] {
            let world = repository(fencing);
            world.program("inside/hooks/post-index-change", "hooked");
            git(&world.inside(), &["config", key, value]);
            holds(&world);
            assert!(world.attempt("git diff").ran().stdout.contains("+still later"), "{key}");
        }
    }
}

#[test]
fn drivers_and_other_settings_run_nothing_and_ask() {
    for fencing in ALL {
        for (attributes, key, value) in [
            ("*.txt diff=d", "diff.d.command", "./evil"),
            ("*.txt diff=d", "diff.d.textconv", "./evil"),
            ("*.txt filter=f", "filter.f.clean", "./evil"),
            ("*.txt filter=f", "filter.f.process", "./evil"),
            ("", "gpg.program", "./evil"),
            ("", "format.pretty", "format:%G?"),
            ("", "pretty.mine", "%G?"),
            ("", "core.worktree", "/"),
            ("", "core.attributesFile", "attributes"),
            ("", "include.path", "../other.config"),
            ("", "remote.origin.promisor", "true"),
            ("", "protocol.ext.allow", "always"),
            ("", "trace2.eventTarget", "/tmp/never"),
            ("", "status.submoduleSummary", "true"),
            ("", "core.alternateRefsCommand", "./evil"),
            ("", "mailmap.file", "/etc/passwd"),
        ] {
            let world = repository(fencing);
            world.file("inside/.gitattributes", attributes);
            git(&world.inside(), &["config", key, value]);
            // The stat of the file changes, so that its content is looked at.
            world.file("inside/a.txt", "alpha\nbeta\nlater\nother\n");
            holds(&world);
            world.attempt("git status").asks();
        }
    }
}

#[test]
fn configuration_that_is_hard_to_read_asks() {
    for text in [
        "[core] fsmonitor = ./evil\n",
        "[filter \"x\\\"y\"]\n\tclean = ./evil\n",
        "[core]\n\tbare = false \\\n[filter \"x\"]\n\tclean = ./evil\n",
        "[filter.x]\n\tclean = ./evil\n",
        "[include]\n\tpath = other\n",
        "[includeIf \"gitdir:/\"]\n\tpath = other\n",
    ] {
        let world = repository(Fencing::Off);
        let path = world.path("inside/.git/config");
        let plain = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{plain}{text}")).unwrap();
        holds(&world);
        world.attempt("git status").asks();
    }
}

#[test]
fn attributes_of_the_repository_itself_ask() {
    for fencing in ALL {
        let world = repository(fencing);
        world.file("inside/.git/info/attributes", "*.txt filter=f diff=d\n");
        world.file("inside/a.txt", "alpha\nother\n");
        holds(&world);
        world.attempt("git diff").asks();
    }
}

#[test]
fn histories_without_end_are_cut() {
    for fencing in ALL {
        let world = repository(fencing);
        world.file("inside/large.txt", &"0123456789abcdef\n".repeat(400_000));
        git(&world.inside(), &["add", "."]);
        git(&world.inside(), &["commit", "-q", "-m", "large"]);
        for command in ["git show", "git log -p -n 999999999", "git diff HEAD~1"] {
            let ran = world.attempt(command).ran();
            assert!(ran.truncated && ran.stdout.len() <= 60_000, "{command}: {}", ran.stdout.len());
        }
        assert_eq!(world.attempt("git log -n 999999999 --format='%(trailers:only)'").ran().exit_code, 0);
        assert!(world.attempt("git log -S 0123456789abcdef --oneline").ran().stdout.contains("large"));
    }
}

#[test]
fn hooks_of_the_repository_do_not_run() {
    for fencing in ALL {
        let world = repository(fencing);
        for hook in ["post-index-change", "fsmonitor-watchman", "pre-commit", "post-checkout"] {
            world.program(&format!("inside/.git/hooks/{hook}"), "hooked");
        }
        world.file("inside/a.txt", "alpha\nother\n");
        holds(&world);
        assert!(world.attempt("git status").ran().stdout.contains("a.txt"));
    }
}

#[test]
fn a_directory_that_is_a_bare_repository_is_none() {
    for fencing in ALL {
        let world = World::new(fencing);
        let inside = world.inside();
        git(&inside, &["init", "-q", "--bare", "-b", "main", "."]);
        git(&inside, &["config", "core.fsmonitor", "./evil"]);
        git(&inside, &["config", "core.bare", "false"]);
        git(&inside, &["config", "core.worktree", "."]);
        holds(&world);
        assert_ne!(world.attempt("git status").ran().exit_code, 0);
    }
}

#[test]
fn a_submodule_with_settings_of_its_own_is_left_alone() {
    for fencing in ALL {
        let world = repository(fencing);
        let module = world.inside().join("module");
        std::fs::create_dir(&module).unwrap();
        git(&module, &["init", "-q", "-b", "main"]);
        world.file("inside/module/m.txt", "m\n");
        git(&module, &["add", "."]);
        git(&module, &["commit", "-q", "-m", "module"]);
        world
            .file("inside/.gitmodules", "[submodule \"module\"]\n\tpath = module\n\turl = ./module\n\tignore = none\n");
        git(&world.inside(), &["add", ".gitmodules", "module"]);
        git(&module, &["config", "core.fsmonitor", "../evil"]);
        git(&module, &["config", "filter.f.clean", "../evil"]);
        world.file("inside/module/.gitattributes", "* filter=f\n");
        world.file("inside/module/m.txt", "changed\n");
        holds(&world);
        assert!(world.attempt("git status").ran().stdout.contains(".gitmodules"));
    }
}

#[test]
fn repositories_elsewhere_ask() {
    for fencing in ALL {
        let world = repository(fencing);
        std::fs::rename(world.path("inside/.git"), world.path("outside/moved")).unwrap();
        for (kind, content) in [("file", true), ("link", false)] {
            let _ = std::fs::remove_file(world.path("inside/.git"));
            if content {
                world.file("inside/.git", &format!("gitdir: {}\n", world.path("outside/moved").display()));
            } else {
                world.link("inside/.git", world.path("outside/moved"));
            }
            world.attempt("git status").asks();
            world.attempt("git log -p").asks();
            let _ = kind;
        }
        let above = World::new(fencing);
        git(above.inside().parent().unwrap(), &["init", "-q"]);
        above.attempt("git status").asks();
        assert_eq!(above.approved("git status -s").ran().exit_code, 0, "approved, it is read");
        let shared = repository(fencing);
        shared.file("inside/.git/objects/info/alternates", "/elsewhere\n");
        shared.attempt("git log").asks();
        let common = repository(fencing);
        common.file("inside/.git/commondir", "../../outside\n");
        common.attempt("git log").asks();
    }
}

#[test]
fn tracked_secrets_ask_before_they_are_shown() {
    for fencing in ALL {
        let world = repository(fencing);
        world.file("inside/conf/.env", "KEY=1\n");
        git(&world.inside(), &["add", "-f", "conf/.env"]);
        git(&world.inside(), &["commit", "-q", "-m", "oops"]);
        for command in
            ["git show", "git log -p", "git diff HEAD~1", "git show HEAD", "git diff -- conf", "git log -p '*.txt'"]
        {
            world.attempt(command).asks();
        }
        for command in [
            "git log",
            "git status",
            "git show --stat",
            "git diff --name-only HEAD~1",
            "git diff -- a.txt",
            "git log -p -- src",
        ] {
            let ran = world.attempt(command).ran();
            assert!(!ran.stdout.contains("KEY=1"), "{command}");
        }
        assert!(world.approved("git show HEAD:conf/.env").ran().stdout.contains("KEY=1"));
    }
}

#[test]
fn indexes_that_do_not_say_what_is_tracked_ask() {
    for fencing in ALL {
        for hidden in ["split", "missing"] {
            let world = repository(fencing);
            world.file("inside/conf/.env", "KEY=1\n");
            git(&world.inside(), &["add", "-f", "conf/.env"]);
            git(&world.inside(), &["commit", "-q", "-m", "oops"]);
            world.file("inside/conf/.env", "KEY=2\n");
            match hidden {
                "split" => git(&world.inside(), &["update-index", "--split-index"]),
                _ => std::fs::remove_file(world.path("inside/.git/index")).unwrap(),
            }
            for command in ["git diff", "git show", "git diff HEAD", "git log -p"] {
                world.attempt(command).asks();
            }
            assert!(!world.attempt("git diff --stat").ran().stdout.contains("KEY"), "{hidden}");
        }
    }
}

#[test]
fn other_object_formats_and_indexes_are_understood() {
    let world = World::new(Fencing::WhereOffered);
    let inside = world.inside();
    git(&inside, &["init", "-q", "-b", "main", "--object-format=sha256"]);
    git(&inside, &["add", "."]);
    git(&inside, &["commit", "-q", "-m", "first"]);
    assert_eq!(world.attempt("git log --stat").ran().exit_code, 0);
    assert_eq!(world.attempt("git show").ran().exit_code, 0);
    for version in ["2", "3", "4"] {
        let world = repository(Fencing::WhereOffered);
        world.file("inside/deep/er/.env", "x");
        git(&world.inside(), &["add", "-f", "-N", "deep/er/.env"]);
        git(&world.inside(), &["update-index", "--index-version", version]);
        world.attempt("git diff").asks();
        world.attempt("git diff -- src").ran();
    }
}

#[test]
fn a_promise_of_another_repository_is_not_fetched() {
    let world = repository(Fencing::Off);
    let inside = world.inside();
    git(&inside, &["config", "remote.evil.url", "ext::./evil %S"]);
    git(&inside, &["config", "remote.evil.promisor", "true"]);
    git(&inside, &["config", "extensions.partialClone", "evil"]);
    git(&inside, &["config", "protocol.ext.allow", "always"]);
    let missing = "git show 1111111111111111111111111111111111111111";
    world.attempt(missing).asks();
    world.approved(missing).ran();
    assert!(!world.path("outside/fired").exists(), "even approved, nothing is fetched");
}
