//! Whatever the words: what runs without a question changes nothing.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::world::{Attempt, BOTH, World, part};
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
    for fencing in BOTH {
        let world = World::new(fencing)
            .with(vec![part("shell_readonly", Grammar::ReadOnly), part("shell_file_ops", Grammar::FileOps)]);
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
