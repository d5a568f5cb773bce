//! Rules as people write them, and commands as they are meant: honest ones run unasked, and each has hostile twins that ask.

use crate::honest::with_history;
use crate::world::{ALL, Attempt, World, is_full, is_offered, rule, rules};
use llm_do::tools::approval::Rule;
use llm_do::tools::fence::Fencing;
use llm_do::tools::source::ShellRule;

const HONEST: &str = include_str!("honest_rules.txt");
const HOSTILE: &str = include_str!("hostile_rules.txt");

/// A rule that allows, and a command; `!` before a program that can run others, which the rule then says it understands.
fn row(line: &str) -> (ShellRule, &str) {
    let (pattern, command) = line.split_once(" | ").unwrap();
    let understood = pattern.strip_prefix("! ");
    let allowed = rule(understood.unwrap_or(pattern), Rule::Allow);
    (ShellRule { i_understand: understood.is_some(), ..allowed }, command)
}

/// A project in its own working directory: files that decide what it does, a history, and directories that are called like
/// subcommands.
fn world(fencing: Fencing) -> World {
    let world = World::new(fencing);
    world.file("inside/flow.yaml", "name: flow\n");
    for path in ["inside/test/x.txt", "inside/build/x.txt", "inside/package.json"] {
        world.file(path, "{}\n");
    }
    with_history(&world);
    world
}

#[test]
fn what_a_rule_allows_runs_unasked() {
    if !is_full(Fencing::WhereOffered) {
        return;
    }
    assert!(HONEST.lines().count() >= 60);
    let mut world = world(Fencing::WhereOffered);
    for line in HONEST.lines() {
        let (rule, command) = row(line);
        world = world.with(vec![rules(vec![rule])]);
        match world.attempt(command) {
            // Whether a program is installed is no matter of rules.
            Attempt::Ran(ran) => assert!(ran.exit_code == 127 || ran.exit_code >= 0, "{line}: {ran:?}"),
            Attempt::Stopped(reason) => panic!("{line}: {reason}"),
        }
    }
    // They did what they say.
    assert_eq!(std::fs::read_to_string(world.path("inside/b.txt")).unwrap(), "alpha\nbeta\n");
    assert!(world.path("inside/moved/src/main.rs").exists() && !world.path("inside/moved/deep").exists());
    assert!(world.path("inside/src/a.txt").exists() && world.path("inside/all.tar").exists());
    assert_eq!(std::fs::read_to_string(world.path("inside/flow.yaml")).unwrap(), "name: flow\n");
}

#[test]
fn what_only_looks_runs_unasked_whatever_keeps_it() {
    if !is_offered() {
        return;
    }
    for fencing in [Fencing::WhereOffered, Fencing::Thin] {
        let mut world = world(fencing);
        let before = world.state();
        for line in [
            "ls | ls .",
            "ls | ls -la .git",
            "cat | cat flow.yaml",
            "grep | grep -rn beta .",
            "git status | git status .",
            "git diff | git diff flow.yaml",
            "wc | wc -l flow.yaml",
        ] {
            let (rule, command) = row(line);
            world = world.with(vec![rules(vec![rule])]);
            match world.attempt(command) {
                Attempt::Ran(ran) => assert!((0..=1).contains(&ran.exit_code), "{line}: {ran:?}"),
                Attempt::Stopped(reason) => panic!("{fencing:?} {line}: {reason}"),
            }
        }
        let files = |state: &std::collections::BTreeMap<std::path::PathBuf, String>| {
            state.keys().filter(|path| !path.to_string_lossy().contains("/.git/")).cloned().collect::<Vec<_>>()
        };
        assert_eq!(files(&world.state()), files(&before));
    }
}

#[test]
fn their_hostile_twins_ask() {
    for fencing in ALL {
        let mut world = world(fencing);
        world.file("inside/.env", "TOKEN=hidden-value\n");
        world.file("inside/main.worker", "precious\n");
        world.file("inside/list", ".env\n");
        for name in ["evil.yaml", "evil.worker", "evil.py"] {
            world.file(&format!("outside/{name}"), "evil\n");
        }
        let before = world.state();
        for line in HOSTILE.lines() {
            let (rule, command) = row(line);
            world = world.with(vec![rules(vec![rule])]);
            match world.attempt(command) {
                Attempt::Stopped(reason) => assert!(reason.contains("needs an approval"), "{line}: {reason}"),
                Attempt::Ran(ran) => panic!("{fencing:?} {line}: {ran:?}"),
            }
            assert_eq!(world.state(), before, "{line}");
        }
    }
}

#[test]
fn moving_onto_an_existing_file_needs_no_more_than_its_rule() {
    if !is_offered() {
        return;
    }
    let mut file_operations = crate::world::part("shell_file_ops", llm_do::tools::source::Grammar::FileOps);
    file_operations.variants = vec![Rule::Allow];
    for fencing in [Fencing::WhereOffered, Fencing::Thin] {
        let world = world(fencing).with(vec![file_operations.clone()]);
        for command in ["mv a.txt b.txt", "mv b.txt src", "mv src/b.txt in", "mv src source"] {
            assert_eq!(world.attempt(command).ran().exit_code, 0, "{fencing:?} {command}");
        }
        assert_eq!(std::fs::read_to_string(world.path("inside/in")).unwrap(), "alpha\nbeta\n");
        for command in ["mv out flow.yaml", "mv flow.yaml out", "mv out new.worker", "mv out .git"] {
            world.attempt(command).asks();
        }
    }
}
