//! Whatever the words: what runs without a question changes nothing but what was declared.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::honest::with_history;
use crate::world::{ALL, Attempt, World, is_offered, part, rule, rules};
use llm_do::tools::approval::Rule;
use llm_do::tools::fence::Fencing;
use llm_do::tools::source::Grammar;

const PROGRAMS: &[&str] = &[
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "grep",
    "find",
    "sort",
    "uniq",
    "git status",
    "git log",
    "git diff",
    "git show",
    "mv",
];

const WORDS: &[&str] = &[
    "a.txt",
    "b.txt",
    "in",
    "out",
    "src",
    ".",
    "..",
    "/",
    "-",
    "--",
    "-rf",
    "evil",
    "./evil",
    "HEAD",
    "x",
    "-o",
    "-O",
    "-f",
    "-n",
    "-r",
    "-c",
    "-u",
    "-t",
    "-k",
    "-e",
    "-i",
    "-l",
    "-1",
    "-3",
    "-z",
    "-C",
    "-p",
    "-s",
    "-oout",
    "-S",
    "-T",
    "-D",
    "--output=out",
    "--output",
    "--outp=out",
    "--compress-program=./evil",
    "--files0-from=in",
    "--follow",
    "-exec",
    "-execdir",
    "-ok",
    ";",
    "{}",
    "+",
    "-delete",
    "-fprint",
    "-fls",
    "-fprintf",
    "-name",
    "-type",
    "-newer",
    "-print",
    "-quit",
    "(",
    ")",
    "!",
    "--no-index",
    "--ext-diff",
    "--textconv",
    "--exec=./evil",
    "--upload-pack=./evil",
    "-G",
    "--format=%G?",
    "--pretty=%s",
    "--stat",
    "--include=*",
    "--color=always",
    "../outside/secret.txt",
    "/etc/passwd",
    "--work-tree=..",
    "--git-dir=../outside",
    "HEAD:a.txt",
    ":../x",
    "--random-source=in",
];

fn command() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        8 => prop::sample::select(WORDS).prop_map(str::to_owned),
        1 => "-[a-zA-Z]{1,4}",
        1 => "--[a-z-]{2,12}(=out)?",
    ];
    let words = prop::collection::vec(word, 0..6);
    (prop::sample::select(PROGRAMS), words).prop_map(|(program, words)| {
        let quoted = shlex::try_join(words.iter().map(String::as_str)).unwrap();
        format!("{program} {quoted}")
    })
}

#[test]
fn what_is_allowed_changes_nothing() {
    for fencing in ALL {
        let world = World::new(fencing)
            .with(vec![part("shell_readonly", Grammar::ReadOnly), part("shell_file_ops", Grammar::FileOps)]);
        with_history(&world);
        let before = world.state();
        let ran = RefCell::new(0);
        let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
        let result = runner.run(&command(), |command| {
            if let Attempt::Ran(seen) = world.attempt(&command) {
                *ran.borrow_mut() += 1;
                prop_assert!(
                    !seen.stdout.contains("the outside secret") && !seen.stdout.contains("FIRED"),
                    "{:?}",
                    seen
                );
            }
            prop_assert_eq!(&world.state(), &before);
            Ok(())
        });
        result.unwrap();
        assert!(*ran.borrow() > 20, "too few were allowed to say anything: {}", ran.borrow());
    }
}

/// Programs that change things, as a project may allow them.
const CHANGING: &[&str] =
    &["cp", "mv", "rm", "ln", "touch", "mkdir", "rmdir", "tee", "dd", "truncate", "install", "sh"];

/// What may be changed.
const INSIDE: &[&str] = &["a.txt", "b.txt", "in", "src", "new", "../declared/x", "-r", "-f"];

/// What may not, and ways to it. `OUTSIDE` stands for the absolute path of what is nobody's business.
const PLACES: &[&str] = &[
    "../outside/secret.txt",
    "../outside/new",
    "../outside",
    "..",
    "../inside-secret/s",
    "OUTSIDE/secret.txt",
    "OUTSIDE/evil",
    "OUTSIDE/made",
    "/etc/llm-do-test",
    "/tmp",
    "door/secret.txt",
    "door/new",
    "door",
    "file",
    "-s",
    "-t",
    "-a",
    "-p",
    "-c",
    "--size=0",
    "--target-directory=../outside",
    "of=../outside/dd",
    "if=a.txt",
    "of=OUTSIDE/secret.txt",
    "echo x > ../outside/written",
    "rm -rf ../outside ../inside-secret",
    "cd .. && touch here && mv outside gone",
    "cp a.txt door/planted; ln OUTSIDE/secret.txt hard; echo x >> hard",
    "ln -s ../outside l; rm -r l/; echo x > l/y",
    "exec 3> door/fd; mkdir ../outside/d; rmdir ../inside-secret",
];

/// The words of a command; a place may come as several words of a script.
fn changing() -> impl Strategy<Value = Vec<&'static str>> {
    let place = prop_oneof![prop::sample::select(INSIDE), prop::sample::select(PLACES)];
    let words = prop::collection::vec(place, 1..5);
    (prop::sample::select(CHANGING), words).prop_map(|(program, words)| {
        let start = if program == "sh" { vec!["sh", "-c"] } else { vec![program] };
        start.into_iter().chain(words).collect()
    })
}

/// Rules allow what they name, and the fence keeps it in: what lies outside stays, whoever is root.
#[test]
fn what_rules_allow_changes_nothing_but_what_was_declared() {
    if !is_offered() {
        return;
    }
    let shell = rules(CHANGING.iter().map(|program| rule(program, Rule::Allow)).collect());
    let (ran, changed) = (RefCell::new(0), RefCell::new(0));
    let mut runner = TestRunner::new(Config { cases: 250, failure_persistence: None, ..Config::default() });
    let result = runner.run(&changing(), |words| {
        let world = World::new(Fencing::WhereOffered);
        world.file("declared/kept", "x");
        world.link("inside/door", world.outside());
        world.link("inside/file", world.path("outside/secret.txt"));
        let outside = world.outside().display().to_string();
        let mut shell = shell.clone();
        shell.config.write = vec![world.path("declared").display().to_string()];
        let world = world.with(vec![shell]);
        let words: Vec<String> = words.iter().map(|word| word.replace("OUTSIDE", &outside)).collect();
        let command = shlex::try_join(words.iter().map(String::as_str)).unwrap();
        let (before, all) = (world.outer(), world.state());
        if let Attempt::Ran(seen) = world.attempt(&command) {
            *ran.borrow_mut() += 1;
            prop_assert!(!seen.stdout.contains("the outside secret"), "{:?}", seen);
        }
        *changed.borrow_mut() += usize::from(world.state() != all);
        prop_assert_eq!(world.outer(), before, "{}", command);
        Ok(())
    });
    result.unwrap();
    assert!(*ran.borrow() > 150 && *changed.borrow() > 10, "{} ran, {} changed", ran.borrow(), changed.borrow());
    assert!(!std::path::Path::new("/etc/llm-do-test").exists());
}
