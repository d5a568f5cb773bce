//! Runs that go on while the user is in another directory than the one they were started in.

use std::fs;
use std::process::Stdio;

use fake_llm::{FakeLlm, FakeScript};

use crate::session::KEY;
use crate::support::{Ended, Sandbox, wait};
use crate::writes;

const MANIFEST: &str = r#"{"version": 1, "entry": {}, "worker_files": ["main.worker"],
    "toolsets": {"notes": {"filesystem": {"root": "notes", "mode": "rw"}}}}"#;
const SCRIPT: &str = "- { round: 1, call: { read_file: { path: a.txt } } }\n\
    - { round: 2, call: { write_file: { path: b.txt, content: new } } }\n\
    - say: \"by the first script: {{ result }}\"\n";

fn at(sandbox: &Sandbox, directory: &str, words: &[&str]) -> Ended {
    let mut command = sandbox.command(words, &[]);
    wait(command.current_dir(sandbox.path().join(directory)).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// A project `desk` in the directory `work`, whose run waits for an approval. All of its paths are relative.
fn waiting() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("elsewhere/x", "");
    sandbox.file("work/desk/project.json", MANIFEST);
    sandbox.file("work/desk/main.worker", "---\nname: main\nentry: true\ntoolsets: [notes]\n---\nYou write.\n");
    sandbox.file("work/desk/notes/a.txt", "old");
    sandbox.file("work/script.yaml", SCRIPT).file("work/extra.txt", "attached\n");
    let words = ["desk", "hi", "-m", "scripted:script.yaml", "-f", "extra.txt", "--journal", "run.journal"];
    let suspended = at(&sandbox, "work", &words);
    assert_eq!(suspended.code, Some(4), "{suspended:?}");
    assert!(suspended.stderr.contains("`llm-do resume run.journal --approve "), "{}", suspended.stderr);
    sandbox
}

/// A changed description would be paid for again, and would tell the model where the user's files are.
#[test]
fn the_model_is_told_the_same_of_its_tools() {
    let sandbox = Sandbox::new();
    sandbox.file("elsewhere/x", "").file("work/desk/project.json", MANIFEST).file("work/desk/notes/a.txt", "old");
    let keys = "name: main\nentry: true\nmodel: anthropic:m\ntoolsets: [notes]";
    sandbox.file("work/desk/main.worker", &format!("---\n{keys}\n---\nYou write.\n"));
    let fake = FakeLlm::start(FakeScript::new().answer(|seen| Some(writes(seen))));
    let run = |directory: &str, words: &[&str]| {
        let mut command =
            sandbox.command(words, &[("ANTHROPIC_BASE_URL", &fake.anthropic_url()), ("ANTHROPIC_API_KEY", KEY)]);
        wait(command.current_dir(sandbox.path().join(directory)).stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let suspended = run("work", &["desk", "hi", "--journal", "run.journal"]);
    assert_eq!(suspended.code, Some(4), "{suspended:?}");
    let ended = run("elsewhere", &["resume", "../work/run.journal", "--approve-all"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told: Vec<_> = fake.requests().iter().map(|request| request.seen.as_ref().unwrap().tools.clone()).collect();
    assert!(told[0].iter().any(|tool| tool.description.contains("desk/notes")), "{told:?}");
    assert_eq!((told.len(), &told[0]), (2, &told[1]));
}

fn id(sandbox: &Sandbox) -> String {
    let shown = at(sandbox, "elsewhere", &["resume", "../work/run.journal", "--show"]).stdout;
    let (_, rest) = shown.split_once("waiting for approval (").expect(&shown);
    rest.split(')').next().unwrap().to_owned()
}

#[test]
fn what_the_run_names_is_found_where_it_was_started_and_what_is_typed_now_where_the_user_is() {
    let sandbox = waiting();
    // What was attached is in the record; the script and the project are read again.
    fs::remove_file(sandbox.path().join("work/extra.txt")).unwrap();
    let words = ["resume", "../work/run.journal", "--approve", &id(&sandbox), "-o", "answer.txt"];
    let ended = at(&sandbox, "elsewhere", &words);
    let answer = "by the first script: wrote 3 characters to b.txt\n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), answer), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(sandbox.path().join("work/desk/notes/b.txt")).unwrap(), "new");
    assert_eq!(fs::read_to_string(sandbox.path().join("elsewhere/answer.txt")).unwrap(), answer);
    assert!(!sandbox.path().join("work/answer.txt").exists());
}

#[test]
fn a_script_that_is_typed_now_is_found_from_where_the_user_is() {
    let sandbox = waiting();
    sandbox.file("elsewhere/script.yaml", &SCRIPT.replace("first", "second"));
    let approve = id(&sandbox);
    let words = ["resume", "../work/run.journal", "--approve", &approve, "-m", "scripted:script.yaml"];
    let ended = at(&sandbox, "elsewhere", &words);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "by the second script: wrote 3 characters to b.txt\n");
}

#[test]
fn what_is_printed_elsewhere_is_absolute() {
    let sandbox = waiting();
    let work = sandbox.path().canonicalize().unwrap().join("work");
    let waits = at(&sandbox, "elsewhere", &["resume", "../work/run.journal"]);
    assert_eq!(waits.code, Some(4), "{waits:?}");
    let typed = std::path::absolute(sandbox.path().canonicalize().unwrap().join("elsewhere/../work/run.journal"));
    let hint = format!("`llm-do resume {} --approve ", typed.unwrap().display());
    assert!(waits.stderr.contains(&hint), "{}", waits.stderr);
    sandbox.file("work/desk/main.worker", "---\nname: main\nentry: true\nmodle: x\n---\nYou write.\n");
    let broken = at(&sandbox, "elsewhere", &["resume", "../work/run.journal"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    let worker = work.join("desk/main.worker");
    assert!(broken.stderr.contains(worker.to_str().unwrap()), "{}", broken.stderr);
    // Where the run was started they are as they were typed.
    let broken = at(&sandbox, "work", &["resume", "run.journal"]);
    assert!(broken.stderr.contains(" desk/main.worker:"), "{}", broken.stderr);
}

#[test]
fn a_directory_that_is_gone_is_named() {
    let sandbox = waiting();
    fs::rename(sandbox.path().join("work"), sandbox.path().join("moved")).unwrap();
    let ended = at(&sandbox, "elsewhere", &["resume", "../moved/run.journal"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let work = sandbox.path().canonicalize().unwrap().join("work");
    let fact = format!("error: the run's directory {} cannot be entered: No such file or directory", work.display());
    assert!(ended.stderr.starts_with(&fact), "{}", ended.stderr);
}
