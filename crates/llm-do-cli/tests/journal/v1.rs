//! Journals of the time before lines were signed, as programs of then wrote them: a finished run of two agents, one that
//! waits at a question, one that was killed in a tool. They are a stranger's, and can be gone on with once somebody agreed.

use std::path::Path;
use std::process::Stdio;

use super::support::{Ended, wait_for_all};
use super::*;

const FOREIGN: &str = "was not written by you on this machine (line 1)";

/// The project as it was then, and its journal, which says where it lies.
fn old(project: &str, name: &str) -> Sandbox {
    let (sandbox, here) = (Sandbox::new(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal/v1"));
    copy(&here.join(project), sandbox.path());
    let text = fs::read_to_string(here.join(format!("{name}.journal"))).unwrap();
    let directory = sandbox.path().canonicalize().unwrap().to_string_lossy().into_owned();
    sandbox.file(JOURNAL, &text.replace(&format!("/home/ann/{project}"), &directory));
    sandbox
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn resume_old<'a>(sandbox: &'a Sandbox, flags: &[&'a str]) -> Run<'a> {
    Run::of(sandbox, &[&["resume", JOURNAL], flags].concat())
}

/// The end of a run that goes on, with what it took.
fn resumed(sandbox: &Sandbox, flags: &[&str]) -> Ended {
    let mut command = sandbox.command(&[&["resume", JOURNAL], flags].concat(), &[]);
    wait_for_all(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// As it is, it is refused, and it stays as it is.
#[track_caller]
fn is_refused(sandbox: &Sandbox) {
    let before = fs::read(journal(sandbox)).unwrap();
    let refused = resume_old(sandbox, &[]).failure(4);
    assert!(refused.contains(FOREIGN), "{refused}");
    assert_eq!(fs::read(journal(sandbox)).unwrap(), before);
}

const ARTICLE: &str =
    "The article is in drafts/harbour.md. It rests on two facts of notes/harbour.md, which `reader` found.
The note stays as it was: a rule of this agent blocks `edit_file`.\n";

#[test]
fn a_finished_run_of_two_agents_gives_its_answer_again() {
    let sandbox = old("tour", "finished");
    is_refused(&sandbox);
    let shown = resume_old(&sandbox, &["--show", "--foreign"]).answer();
    assert!(shown.contains("\nfinished\n"), "{shown}");
    let ended = resumed(&sandbox, &["--foreign", "--trust"]);
    assert!(ended.code == Some(0) && ended.stdout.ends_with(ARTICLE), "{ended:?}");
    assert!(ended.stderr.contains("7 requests · 4625 tokens in, 365 out"), "what it took is known: {}", ended.stderr);
    assert!(!sandbox.path().join("drafts").exists(), "nothing is done again");
}

#[test]
fn a_run_that_waits_is_asked_anew_and_goes_on_from_its_replies() {
    let sandbox = old("tour", "waits");
    is_refused(&sandbox);
    let waits = resume_old(&sandbox, &["--foreign", "--trust"]).failure(4);
    assert!(waits.contains("waiting for approval (") && waits.contains("editor › write_file"), "{waits}");
    assert!(!sandbox.path().join("drafts").exists());
    let adopted = records(&sandbox);
    assert_eq!((adopted[0]["v"].as_u64(), adopted[0]["mac"].is_string()), (Some(2), true), "it is ours from now on");
    let refused = adopted.iter().find(|line| line["k"] == "editor/t0/m1/c0").unwrap();
    assert_eq!(refused["res"]["value"]["gave"]["refused"], "refused: blocked by a rule of the agent");
    let id = waits.split("waiting for approval (").nth(1).unwrap().split(')').next().unwrap();
    let ended = resumed(&sandbox, &["--approve", id]);
    assert!(ended.code == Some(0) && ended.stdout.ends_with(ARTICLE), "{ended:?}");
    assert!(ended.stderr.contains("7 requests · 4625 tokens in, 365 out"), "{}", ended.stderr);
    assert!(fs::read_to_string(sandbox.path().join("drafts/harbour.md")).unwrap().contains("60 tonnes"));
}

#[test]
fn a_run_that_was_killed_in_a_tool_does_not_run_it_again() {
    let sandbox = old("bell", "killed");
    is_refused(&sandbox);
    let shown = resume_old(&sandbox, &["--show", "--foreign"]).answer();
    assert!(shown.contains("sleep 600"), "{shown}");
    let ended = resumed(&sandbox, &["--foreign", "--trust"]);
    let said = "It rang: error: interrupted: it may or may not have happened\n";
    assert!(ended.code == Some(0) && ended.stdout.ends_with(said), "{ended:?}");
}

/// Whatever stands in such a file, it is read or refused with its line.
#[test]
fn an_old_journal_with_any_line_changed_is_read_or_refused() {
    let sandbox = old("tour", "waits");
    let whole = fs::read_to_string(journal(&sandbox)).unwrap();
    let changes: [fn(&str) -> String; 4] = [
        |line| line.replace("\"value\":", "\"worth\":"),
        |line| line.replace("\"req\":\"", "\"req\":\"äöüäöüäöüäöüäöüä€"),
        |line| line.replace("\"arguments\":{\"object\":", "\"arguments\":{\"thing\":"),
        |line| line.replace("\"told\":{", "\"told\":{\"events\":[{\"type\":7},null],\"x\":"),
    ];
    for change in changes {
        let lines: Vec<String> = whole.lines().map(|line| format!("{}\n", change(line))).collect();
        let text = lines.concat();
        fs::write(journal(&sandbox), text).unwrap();
        let ended = resume_old(&sandbox, &["--show", "--foreign"]).ended();
        assert!(matches!(ended.code, Some(0 | 2)) && !ended.stderr.contains("panicked"), "{ended:?}");
    }
}
