//! Which run is meant: by its id, by the beginning of it, as the last one, and by words that mean none.

use std::fs;
use std::process::{Command, Stdio};

use fake_llm::{FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};

use crate::session::{KEY, Run};
use crate::support::{Sandbox, wait};
use crate::{MODEL, WRITTEN, journal, question, writer};

/// A run that waits, and its question.
fn waits(sandbox: &Sandbox, project: &str) -> (String, String) {
    let said = Run::new(sandbox, &[&[project, "hi"], &MODEL[..]].concat()).failure(4);
    let id = question(&said);
    let hint = format!("hint: `llm-do resume RUN --approve {id}` allows it and goes on; `--refuse {id}` refuses it\n");
    assert!(said.ends_with(&hint), "{said}");
    (sandbox.runs().pop().unwrap(), id)
}

#[test]
fn a_run_goes_on_by_its_id_and_by_a_beginning_of_it() {
    for length in [16, 15, 12] {
        let sandbox = writer();
        let (run, id) = waits(&sandbox, ".");
        let resumed = Run::of(&sandbox, &["resume", &run[..length], "--approve", &id]).ended();
        assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), WRITTEN), "{length}: {}", resumed.stderr);
        assert_eq!(sandbox.runs(), std::slice::from_ref(&run), "it is the same run");
        fs::remove_file(sandbox.path().join("out.txt")).unwrap();
        let again = Run::of(&sandbox, &["resume", &run[..length]]).answer();
        assert_eq!(again, WRITTEN, "a finished run tells its answer again");
        assert!(!sandbox.path().join("out.txt").exists(), "and does nothing");
    }
}

#[test]
fn the_last_run_is_that_of_the_project_if_the_directory_is_one() {
    let sandbox = writer();
    for project in ["a", "b"] {
        for file in ["main.worker", "script.yaml"] {
            sandbox.file(&format!("{project}/{file}"), &fs::read_to_string(sandbox.path().join(file)).unwrap());
        }
    }
    let started = |project: &str| {
        let mut command = sandbox.command(&[&["run", ".", "hi"], &MODEL[..]].concat(), &[]);
        let command = command.current_dir(sandbox.path().join(project));
        assert_eq!(wait(command.stdout(Stdio::piped()).stderr(Stdio::piped())).code, Some(4));
    };
    started("a");
    started("b");
    fs::create_dir(sandbox.path().join("nowhere")).unwrap();
    let runs = sandbox.runs();
    for (directory, run) in [("a", &runs[0]), ("b", &runs[1]), ("nowhere", &runs[1])] {
        let mut command = sandbox.command(&["resume", "--last", "--show"], &[]);
        let command = command.current_dir(sandbox.path().join(directory));
        let shown = wait(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert!(shown.stdout.starts_with(&format!("run {run} of . in ")), "{directory}: {shown:?}");
    }
}

#[test]
fn where_no_run_is_kept_it_is_said_how_to_begin_one() {
    let hint = "hint: `llm-do run PROJECT PROMPT` begins one; `llm-do runs --all` lists those of all projects\n";
    let said = Run::of(&Sandbox::new(), &["resume", "--last"]).failure(2);
    assert_eq!(said, format!("error: no run is kept\n{hint}"));
    let said = Run::of(&writer(), &["resume", "--last"]).failure(2);
    assert_eq!(said, format!("error: no run of this project is kept\n{hint}"));
}

/// The list is a cache: the last run is found by what is there.
#[test]
fn the_last_run_is_found_though_the_list_is_gone_or_damaged() {
    let sandbox = writer();
    waits(&sandbox, ".");
    let (run, _) = waits(&sandbox, ".");
    let index = sandbox.state().join("runs/index");
    let whole = fs::read(&index).unwrap();
    for damaged in [
        None,
        Some(&[][..]),
        Some(&whole[..40]),
        Some(b"{\"index\":9,\"bytes\":0,\"behind\":false}\n"),
        Some(b"junk\n"),
    ] {
        match damaged {
            None => fs::remove_file(&index).unwrap(),
            Some(bytes) => fs::write(&index, bytes).unwrap(),
        }
        let shown = Run::of(&sandbox, &["resume", "--last", "--show"]).answer();
        assert!(shown.starts_with(&format!("run {run} of . in ")), "{damaged:?}: {shown}");
    }
}

#[test]
fn words_that_mean_no_run_are_told_apart() {
    let sandbox = writer();
    for id in ["06gy3k9x7wqe4t2m", "06gy3k9x7wqe4t2n"] {
        fs::create_dir_all(sandbox.state().join("runs").join(id)).unwrap();
    }
    let hint = "hint: `llm-do runs` lists the runs that are kept\n";
    for (typed, said) in [
        ("06gy3zzzzz", format!("error: there is no run `06gy3zzzzz`, and no such file\n{hint}")),
        ("no.journal", format!("error: there is no run `no.journal`, and no such file\n{hint}")),
        ("\u{1b}[2J", format!("error: there is no run `\\u{{1b}}[2J`, and no such file\n{hint}")),
        ("06gy3", format!("error: `06gy3` is too short: the beginning of an id has at least 6 characters\n{hint}")),
        (
            "06gy3k",
            "error: `06gy3k` is the beginning of 2 ids\nhint: type more of it: 06gy3k9x7wqe4t2n, 06gy3k9x7wqe4t2m\n"
                .into(),
        ),
    ] {
        for flags in [&[][..], &["--show"]] {
            let ended = sandbox.run_raw(&[&["resume", typed], flags].concat());
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), said.as_str()), "{typed}");
        }
    }
}

#[test]
fn a_word_that_names_a_run_means_the_run_and_a_path_the_file() {
    let sandbox = writer();
    let (run, _) = waits(&sandbox, ".");
    sandbox.file(&run, "my notes\n").file("06gy3", "my notes\n");
    assert!(Run::of(&sandbox, &["resume", &run, "--show"]).answer().starts_with(&format!("run {run} of ")));
    for file in [format!("./{run}"), "06gy3".to_owned()] {
        let said = Run::of(&sandbox, &["resume", &file, "--show"]).failure(2);
        assert!(said.contains("is not a journal"), "{said}");
    }
}

/// Refused, whichever byte it is, and left as it is.
#[test]
fn a_record_that_was_changed_is_not_gone_on_with() {
    let sandbox = writer();
    let (run, id) = waits(&sandbox, ".");
    let whole = fs::read(journal(&sandbox, &run)).unwrap();
    // The last line would only be torn, and count as never written.
    let end = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
    for at in (0..end).step_by(end / 30) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(journal(&sandbox, &run), &changed).unwrap();
        let ended = Run::of(&sandbox, &["resume", &run, "--approve", &id]).ended();
        let is_told = matches!(
            (ended.code, ended.stderr.lines().next().unwrap_or_default()),
            (Some(4), said) if said.contains("was not written by you on this machine")
        ) || matches!(ended.code, Some(2)) && ended.stderr.starts_with("error: ");
        assert!(is_told && ended.stdout.is_empty(), "byte {at}: {ended:?}");
        assert!(!sandbox.path().join("out.txt").exists(), "byte {at}");
        assert_eq!(fs::read(journal(&sandbox, &run)).unwrap(), changed, "byte {at}");
    }
    fs::write(journal(&sandbox, &run), &whole).unwrap();
    assert_eq!(Run::of(&sandbox, &["resume", &run, "--approve", &id]).ended().stdout, WRITTEN);
}

#[test]
fn a_run_that_another_process_runs_is_left_to_it() {
    let (sandbox, gate) = (Sandbox::new(), StallGate::new());
    sandbox.file("main.worker", "---\nname: main\nmodel: anthropic:m\n---\nx\n");
    let script = FakeScript::new().otherwise(FakeReply::text("at last"));
    let fake = FakeLlm::start(script.fault(On::Every, InjectedFault::StallBeforeHead(gate.clone())));
    let variables = [("ANTHROPIC_BASE_URL", fake.anthropic_url()), ("ANTHROPIC_API_KEY", KEY.to_owned())];
    let mut command: Command = sandbox.command(&["run", "main.worker", "hi"], &[]);
    let child = command.envs(variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    gate.wait_until_reached(1);
    let run = sandbox.runs().pop().unwrap();
    let said = Run::of(&sandbox, &["resume", &run]).asking(&fake).failure(2);
    let hint = "hint: wait until it ends, or look at it with `llm-do resume RUN --show`\n";
    assert!(said.contains("is in use by another process") && said.ends_with(hint), "{said}");
    let shown = Run::of(&sandbox, &["resume", &run, "--show"]).answer();
    assert!(shown.contains("\nnot finished\n"), "{shown}");
    gate.release();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"at last\n".as_slice()));
    assert_eq!(fake.requests().len(), 1);
    assert_eq!(Run::of(&sandbox, &["resume", &run]).answer(), "at last\n");
}

/// Its own flags hold when it goes on, in its own directory.
#[test]
fn a_run_goes_on_from_anywhere_as_it_was_begun() {
    let sandbox = writer();
    sandbox.file("elsewhere/x", "");
    let (run, id) = waits(&sandbox, ".");
    let mut command = sandbox.command(&["resume", &run, "--approve", &id], &[]);
    let command = command.current_dir(sandbox.path().join("elsewhere"));
    let ended = wait(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), WRITTEN), "{}", ended.stderr);
    assert!(sandbox.path().join("out.txt").exists());
}
