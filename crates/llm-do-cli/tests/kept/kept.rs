//! What is kept of a run, and what of one that is not to be kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::session::Run;
use crate::support::{Sandbox, wait_for_all};
use crate::terminal::{Elsewhere, Terminal};
use crate::{MODEL, costs, desk, journal, listed, writer};

const HELLO: [&str; 2] = ["main.worker", "hello"];

#[test]
fn a_run_is_listed_from_its_beginning_with_its_label() {
    let sandbox = desk();
    let arguments = [&HELLO[..], &MODEL, &["--label", "nightly"]].concat();
    assert_eq!(Run::new(&sandbox, &arguments).answer(), "1: hello\n");
    let [run] = sandbox.runs().try_into().unwrap();
    let lines = listed(&sandbox, &run);
    let states: Vec<&str> = lines.iter().map(|line| line["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["running", "done"]);
    let project = sandbox.path().canonicalize().unwrap();
    for line in &lines {
        assert_eq!((&line["label"], &line["kind"], &line["entry"]), (&"nightly".into(), &"run".into(), &"main".into()));
        assert_eq!(line["project"], project.to_str().unwrap());
    }
    assert_eq!(lines[1]["requests"], 1);
    assert_eq!(fs::metadata(journal(&sandbox, &run)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(sandbox.state()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn each_run_costs_in_lines_of_its_own() {
    let sandbox = desk();
    for _ in 0..2 {
        Run::new(&sandbox, &[&HELLO[..], &MODEL].concat()).answer();
    }
    let costs = costs(&sandbox);
    let runs: Vec<&str> = costs.iter().map(|line| line["run"].as_str().unwrap()).collect();
    assert_eq!(runs, sandbox.runs());
    assert!(costs.iter().all(|line| line["model"] == "scripted:script.yaml" && line["agent"] == "main"), "{costs:?}");
}

#[test]
fn of_an_ephemeral_run_only_what_it_cost_is_left() {
    for (flags, config) in [(&["--ephemeral"][..], ""), (&[], "[runs]\nkeep = false\n")] {
        let sandbox = desk();
        sandbox.file(".config/llm-do/config.toml", config);
        let mut command = sandbox.command(&[&["run"], &HELLO[..], &MODEL, flags].concat(), &[]);
        let ended = wait_for_all(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "1: hello\n"), "{}", ended.stderr);
        assert!(ended.stderr.trim_end().ends_with(" · $0"), "its summary names no run: {}", ended.stderr);
        let left: Vec<_> = fs::read_dir(sandbox.state()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["costs"]);
        assert_eq!(costs(&sandbox).len(), 1);
    }
}

#[test]
fn what_must_be_durable_is_kept_whatever_the_configuration_says() {
    let sandbox = desk();
    sandbox.file(".config/llm-do/config.toml", "[runs]\nkeep = false\n");
    assert_eq!(Run::new(&sandbox, &[&HELLO[..], &MODEL, &["--durable"]].concat()).answer(), "1: hello\n");
    let [run] = sandbox.runs().try_into().unwrap();
    assert_eq!(Run::of(&sandbox, &["resume", &run]).answer(), "1: hello\n");
}

#[test]
fn a_result_in_json_names_its_run() {
    let sandbox = desk();
    let (_, result) = Run::new(&sandbox, &[&HELLO[..], &MODEL, &["--json"]].concat()).events();
    assert_eq!(result["run"], sandbox.runs()[0]);
}

const TOLD: &str = "(runs are kept in ";

/// The first run ever, on a terminal.
#[test]
fn a_person_is_told_once_where_runs_are_kept() {
    let sandbox = desk();
    let arguments = [&["run"], &HELLO[..], &MODEL].concat();
    let run = |flags: &[&str]| Terminal::start(sandbox.command(&[&arguments[..], flags].concat(), &[])).left().screen;
    Run::of(&sandbox, &arguments).answer();
    assert!(!run(&["-q"]).contains(TOLD) && !run(&["--ephemeral"]).contains(TOLD), "what is not said was not told");
    let piped = Elsewhere { stderr: Some(Stdio::piped()), ..Elsewhere::default() };
    Terminal::start_with(sandbox.command(&arguments, &[]), Terminal::ROWS, piped).left();
    let screen = run(&[]);
    let place = sandbox.state().join("runs").display().to_string();
    let last = format!("{TOLD}{place}: `llm-do runs` lists them, `--ephemeral` keeps one out)");
    // It may take more than one row.
    let rows = screen.trim_end().lines().collect::<Vec<_>>().join(" ");
    assert!(rows.ends_with(&last), "{screen}");
    assert!(screen.starts_with("1: hello\n"), "the answer comes first: {screen}");
    assert!(!run(&[]).contains(TOLD));
}

/// Whatever there is to say of a record, whoever wants errors alone does not read it.
#[test]
fn whoever_is_quiet_hears_nothing_of_records() {
    let quiet = |sandbox: &Sandbox, arguments: &[&str]| {
        let ended = Run::of(sandbox, &[arguments, &["-q"]].concat()).hearing("again\n").ended();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        ended.stdout
    };
    let sandbox = desk();
    let chat = [&["chat", "main.worker"], &MODEL[..]].concat();
    quiet(&sandbox, &chat);
    sandbox.file("main.worker", "---\nname: main\n---\ny\n");
    let continued = [&chat[..], &["--continue"]].concat();
    assert_eq!(quiet(&sandbox, &continued), "2: again\n");
    let mut homeless = sandbox.command(&[&["run"], &HELLO[..], &MODEL, &["-q"]].concat(), &[]);
    let ended = wait_for_all(homeless.env_remove("HOME").stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn what_a_run_waits_for_is_listed() {
    let sandbox = writer();
    Run::new(&sandbox, &[&HELLO[..], &MODEL].concat()).failure(4);
    let last = listed(&sandbox, &sandbox.runs()[0]).pop().unwrap();
    assert_eq!((&last["state"], &last["waits"]), (&"waits".into(), &"write_file".into()));
}
