//! Runs from their records alone.

use std::fs;

use crate::session::Run;
use crate::{JOURNAL, begin, journal, worker, writer};

#[test]
fn a_replay_asks_no_model_runs_no_tool_and_gives_the_same_answer() {
    let (sandbox, fake) = writer();
    let answer = Run::new(&sandbox, &[".", "hi", "--record", JOURNAL, "--approve-all"]).asking(&fake).answer();
    let (requests, before) = (fake.requests().len(), fs::read(journal(&sandbox)).unwrap());
    fs::remove_file(sandbox.path().join("a.txt")).unwrap();
    for prompt in [&["hi"][..], &[]] {
        let flags = [&["."], prompt, &["--replay", JOURNAL]].concat();
        assert_eq!(Run::new(&sandbox, &flags).answer(), answer, "without a key, with the recorded input");
    }
    let (events, result) = Run::new(&sandbox, &[".", "--replay", JOURNAL, "--json"]).events();
    assert_eq!(result["usage"]["total"]["requests"], 2);
    assert!(events.iter().any(|event| event["type"] == "tool_returned"));
    assert_eq!((fake.requests().len(), fs::read(journal(&sandbox)).unwrap()), (requests, before));
    assert!(!sandbox.path().join("a.txt").exists());
}

#[test]
fn the_first_step_that_differs_is_named() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &["--approve-all"]).answer();
    let replay = |flags: &[&str]| Run::new(&sandbox, &[&[".", "--replay", JOURNAL], flags].concat()).failure(1);
    let other_input = replay(&["something else"]);
    assert_eq!(other_input, "error: the input differs from the recorded one (call `main/t0`)\n");
    sandbox.file("main.worker", &(worker("main", "toolsets: [filesystem_cwd]") + "Be brief.\n"));
    assert_eq!(replay(&[]), "error: the input differs from the recorded one (model request `main/t0/m0`)\n");
}

#[test]
fn a_record_that_ends_early_says_where() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let short = Run::new(&sandbox, &[".", "--replay", JOURNAL]).failure(1);
    assert_eq!(short, "error: the tool call `main/t0/m0/c0` is not in the record\n");
}
