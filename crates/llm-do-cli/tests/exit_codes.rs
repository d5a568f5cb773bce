//! Every exit code, and everything that is said with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/session.rs"]
mod session;
mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::process::Stdio;

use fake_llm::{At, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use rustix::process::{Pid, Signal, kill_process};
use session::KEY;
use support::{Ended, Sandbox, wait_for_all};
use terminal::comparable;

/// What a run of one agent with this script says, and how it ends.
fn ended(keys: &str, script: &str, flags: &[&str]) -> Ended {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", &format!("---\nname: main\n{keys}\n---\nx\n")).file("script.yaml", script);
    let arguments = [&["run", "main.worker", "hi", "-m", "scripted:script.yaml"], flags].concat();
    let ended = wait_for_all(sandbox.command(&arguments, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()));
    Ended { stderr: comparable(&ended.stderr), ..ended }
}

#[track_caller]
fn check(ended: &Ended, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(*ended, Ended { code: Some(code), stdout: stdout.to_owned(), stderr: stderr.to_owned() });
}

const SUMMARY: &str = "0.0 s · 1 request · 0 tokens in, 0 out · $0 · RUN";

#[test]
fn zero_is_success() {
    check(&ended("", "- say: done\n", &[]), 0, "done\n", SUMMARY);
}

#[test]
fn one_is_a_failure_of_the_agent_its_model_or_a_tool() {
    let said = "error: agent `main`: the provider's answer cannot be used: the script says so";
    check(&ended("", "- fail: give_up\n", &[]), 1, "", said);
}

#[test]
fn two_is_a_mistake_of_usage_or_of_the_project() {
    let said = "error: unknown key `modle` in a worker file
 --> main.worker:3:1
  |
3 | modle: x
  | ^^^^^
  |
  = hint: did you mean `model`? keys: agents_md, allow_workers, approval, attachment_policy, cache, compatible_models, context, description, entry, instructions, limits, locked, and 12 more

1 error";
    check(&ended("modle: x", "- say: never\n", &[]), 2, "", said);
    let said = "error: unexpected argument '--bogus' found\n\n  tip: to pass '--bogus' as a value, use '-- --bogus'\n\n\
                Usage: llm-do run --model <MODEL> <PROJECT> <PROMPT>\n\nFor more information, try '--help'.";
    check(&ended("", "- say: never\n", &["--bogus"]), 2, "", said);
}

#[test]
fn three_is_the_provider() {
    let said = "error: agent `main`: not authenticated: the script says so\n\
                hint: `llm-do models` lists what can be asked; `ollama` needs no key";
    check(&ended("", "- fail: authenticate\n", &[]), 3, "", said);
}

const WRITES: &str = "- call: { write_file: { path: out.txt, content: x } }\n";

#[test]
fn four_is_an_approval_that_is_needed_or_refused() {
    let files = "toolsets: [filesystem_cwd]";
    let waits = ended(files, WRITES, &[]);
    let id = waits.stderr.split_once('(').unwrap().1.split_once(')').unwrap().0.to_owned();
    let said = format!(
        "waiting for approval ({id}): main › write_file\n\
         creates out.txt: 1 line added\n   1 + x\n       (no line break at the end)\n{SUMMARY}\n\
         error: approval is needed for `write_file` of main\nhint: `llm-do resume RUN --approve {id}` allows it and goes on; `--refuse {id}` refuses it"
    );
    check(&waits, 4, "", &said);
    let said = format!(
        "{SUMMARY}\nerror: `write_file` of main was refused: every question is answered with no in this run\n\
         hint: `llm-do resume RUN` judges it again"
    );
    check(&ended(files, WRITES, &["--reject-all"]), 4, "", &said);
}

/// A refusal that the model reads does not end a run, but whoever started it hears of it.
#[test]
fn a_run_with_refused_calls_says_so_and_may_count_as_a_failure() {
    let run = |flags: &[&str]| {
        let sandbox = Sandbox::new();
        let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "runtime": {"return_permission_errors": true}}"#;
        let worker = "---\nname: main\ntoolsets: [filesystem_cwd]\napproval: {write_file: block}\n---\nx\n";
        let script = "- { round: 1, call: { write_file: { path: a, content: b } } }\n- say: done\n";
        sandbox.file("project.json", manifest).file("main.worker", worker).file("script.yaml", script);
        let arguments = [&["run", ".", "hi", "-m", "scripted:script.yaml"], flags].concat();
        let ended = wait_for_all(sandbox.command(&arguments, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()));
        Ended { stderr: comparable(&ended.stderr), ..ended }
    };
    let (summary, refused) = (SUMMARY.replace("1 request", "2 requests"), "1 call was refused: `write_file` of main");
    check(&run(&[]), 0, "done\n", &format!("{refused}\n{summary}"));
    check(&run(&["--fail-on-refusal"]), 4, "done\n", &format!("{summary}\nerror: {refused}"));
    let ended = run(&["--output-format", "json", "-q", "--fail-on-refusal"]);
    let result: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let listed = serde_json::json!([
        {"path": ["main"], "tool": "write_file", "reason": "blocked by `write_file: block` in main.worker"}
    ]);
    assert_eq!((&result["refused"], &result["output"], &result["exit_code"]), (&listed, &"done".into(), &4.into()));
}

#[test]
fn five_is_a_limit() {
    let said = format!(
        "{SUMMARY}\nerror: the run reached its limit `max_requests`: 1 of 1\n\
         hint: `llm-do resume RUN` goes on with a higher `--max-requests`"
    );
    let script = "- { say: So far., call: { list_files: {} } }\n";
    check(
        &ended("toolsets: [filesystem_cwd_ro]", script, &["--max-requests", "1"]),
        5,
        "So far.\n[unfinished]\n",
        &said,
    );
}

#[test]
fn six_is_an_answer_that_violates_its_schema() {
    let keys = "schema_out: { type: object, properties: { n: { type: integer } }, required: [n] }";
    let ended = ended(keys, "- say: '{}'\n", &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(6), ""));
    let said = "0.0 s · 4 requests · 0 tokens in, 0 out · $0 · RUN\n\
                error: the answer of agent `main` violates its schema: `n` is missing";
    assert_eq!(ended.stderr, said);
}

/// A run whose provider never comes to an end, and what is done to it.
fn stopped(flags: &[&str], signal: Option<Signal>) -> Ended {
    let (sandbox, gate) = (Sandbox::new(), StallGate::new());
    sandbox.file("main.worker", "---\nname: main\nmodel: anthropic:claude-haiku-4-5\n---\nx\n");
    let fault = InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("Once")).fault(On::Every, fault));
    let variables = [("ANTHROPIC_BASE_URL", fake.anthropic_url()), ("ANTHROPIC_API_KEY", KEY.to_owned())];
    let arguments = [&["run", "main.worker", "hi"], flags].concat();
    let mut command = sandbox.command(&arguments, &[]);
    let child = command.envs(variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    gate.wait_until_reached(1);
    if let Some(signal) = signal {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    gate.wait_until_left(1);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: comparable(&text(output.stderr)) }
}

/// Somebody stopped it: the provider has said what went in, and nobody knows what it would have charged for the rest.
const CANCELLED: &str = "0.0 s · 1 request cancelled · at least $0.0000 · RUN";

#[test]
fn beyond_a_hundred_somebody_else_ended_it() {
    let on = "`llm-do resume RUN` goes on where it stopped";
    let said = format!("{CANCELLED}\nerror: timed out after 0.3 s\nhint: `--timeout` allows more; {on}");
    check(&stopped(&["--timeout", "0.3"], None), 124, "On\n[unfinished]\n", &said);
    check(&stopped(&[], Some(Signal::INT)), 130, "", &format!("{CANCELLED}\nerror: interrupted\nhint: {on}"));
    check(&stopped(&[], Some(Signal::TERM)), 143, "", &format!("{CANCELLED}\nerror: terminated\nhint: {on}"));
}

/// What is not kept cannot be gone on with, and nothing is said of that.
#[test]
fn without_a_record_the_hints_are_those_of_a_run_that_is_over() {
    let (files, summary) = ("toolsets: [filesystem_cwd]", SUMMARY.trim_end_matches(" · RUN"));
    let waits = ended(files, WRITES, &["--ephemeral"]);
    let said = format!(
        "{summary}\nerror: approval is needed for `write_file` of main\n\
         hint: `--approve-all` answers every question with yes"
    );
    assert_eq!((waits.code, waits.stderr.ends_with(&said)), (Some(4), true), "{}", waits.stderr);
    let limited =
        ended("toolsets: [filesystem_cwd_ro]", "- call: { list_files: {} }\n", &["--ephemeral", "--max-requests=1"]);
    let said = format!(
        "{summary}\nerror: the run reached its limit `max_requests`: 1 of 1\n\
         hint: a flag or `runtime.limits` in the manifest allows more"
    );
    check(&limited, 5, "", &said);
    let cancelled = CANCELLED.trim_end_matches(" · RUN");
    check(&stopped(&["--ephemeral"], Some(Signal::INT)), 130, "", &format!("{cancelled}\nerror: interrupted"));
}
