use std::process::Command;

use crate::world::{ALL, World, part};
use llm_do::tools::source::Grammar;

const HONEST: &str = include_str!("../../src/tools/shell/grammar/honest.txt");

/// Makes the working directory a repository with a history.
pub fn with_history(world: &World) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(world.inside()).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(command.output().unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "."]);
    for name in ["one", "two", "three", "four"] {
        git(&["commit", "-q", "--allow-empty", "-m", name]);
    }
    git(&["branch", "feature/x"]);
    git(&["tag", "v1.0"]);
    git(&["tag", "v1.0.0"]);
    git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
}

#[test]
fn honest_commands_run_without_a_question_and_mean_what_they_say() {
    assert!(HONEST.lines().count() >= 100);
    for fencing in ALL {
        let world = World::new(fencing);
        with_history(&world);
        let before = world.state();
        for command in HONEST.lines() {
            let ran = world.attempt(command).ran();
            let complaint = ran.stderr.to_lowercase();
            let odd =
                ["unrecognized", "invalid option", "unknown option", "usage:", "permission denied", "not permitted"];
            assert!(!odd.iter().any(|words| complaint.contains(words)), "{command}: {ran:?}");
            assert!((0..=2).contains(&ran.exit_code) || ran.exit_code == 128, "{command}: {ran:?}");
        }
        assert_eq!(world.state(), before);
    }
}

#[test]
fn every_flag_of_the_tables_is_one_that_the_programs_know() {
    let world = World::new(ALL[0]).with(vec![part("shell_readonly", Grammar::ReadOnly)]);
    let flags = [
        ("ls", "-aAbBcCdfFgGhiklmnNopqQrRsStuUvxX1"),
        ("cat", "-AbeEnstTuv"),
        ("wc", "-cmlLw"),
        ("grep", "-abcEFGHhIiLlnoqrsTvwxZz"),
        ("sort", "-bcdfghimMnrsuVzC"),
        ("uniq", "-cdDiuz"),
    ];
    for (command, letters) in flags {
        for letter in letters.chars().skip(1) {
            let pattern = if command == "grep" { "x " } else { "" };
            let ran = world.attempt(&format!("{command} -{letter} {pattern}a.txt")).ran();
            assert!(!ran.stderr.contains("invalid option"), "{command} -{letter}: {ran:?}");
        }
    }
    // Absolute paths beneath the working directory are paths like others.
    let absolute = world.inside().canonicalize().unwrap().join("a.txt");
    assert_eq!(world.attempt(&format!("cat '{}'", absolute.display())).ran().stdout, "alpha\nbeta\n");
}
