//! The founding snippets, pasted: each file of `examples/seeds` prints what its end says.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::documents::workplace;
use crate::program;
use crate::python::with_pydantic_ai;
use crate::support::wait_for_all;

/// What a file says that it prints.
fn expected(source: &str) -> Vec<&str> {
    let lines = source.split("# prints:\n").nth(1).unwrap_or_else(|| panic!("nothing is said of what is printed"));
    lines.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect()
}

#[track_caller]
fn prints_what_it_says(name: &str) {
    let sandbox = workplace();
    let path = format!("examples/seeds/{name}.py");
    let source = fs::read_to_string(sandbox.path().join(&path)).unwrap();
    let mut command = Command::new(with_pydantic_ai());
    let usual = program::python(&sandbox, &[]);
    command.args(["-W", "error", &path]).current_dir(sandbox.path()).env_clear();
    command.envs(usual.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let ended = wait_for_all(&mut command);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), expected(&source), "{name}");
    assert_eq!(program::left_in(sandbox.path()), [0; 0], "processes are left");
}

macro_rules! snippets {
    ($($name:ident: $file:literal),* $(,)?) => {
        const FILES: &[&str] = &[$($file),*];
        $(#[test]
        fn $name() {
            prints_what_it_says($file);
        })*
    };
}

snippets! {
    a_context_calls_a_worker_and_its_tool_and_keeps_trace_and_usage: "context",
    a_tool_calls_another_tool_through_its_context: "orchestrate",
    workers_are_run_by_the_runtime_api: "runtime_api",
    a_worker_is_started_and_takes_turns_in_one_scope: "turns",
    a_worker_is_created_by_the_runtime_api: "create",
    delegation_and_creation_are_enforced: "delegate",
    a_controller_has_the_rules_of_a_definition_and_may_guard_a_run: "controller",
    callbacks_decide_as_the_runtime_api_has_them: "callbacks",
    a_tool_that_is_not_async_reads_from_the_sandbox: "sandboxed",
    the_agent_of_the_architecture_page_runs_with_its_schema: "architecture",
    an_entry_and_an_agent_are_given_as_values: "values",
}

#[test]
fn every_snippet_is_run() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/seeds");
    let mut found: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".py").map(str::to_owned))
        .filter(|name| !["ctx", "entries"].contains(&name.as_str()))
        .collect();
    found.sort();
    let mut known = FILES.to_vec();
    known.sort_unstable();
    assert_eq!(found, known);
}
