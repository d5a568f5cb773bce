//! What programs get wrong, and what their authors read of it: words of Python, not of a command line.

use std::fs;
use std::path::Path;

use crate::program::{command, printed};
use crate::support::{Sandbox, wait_for_all};

/// Runs what is wrong, and gives what each says: the class of the exception, and its words on one line.
fn said(sandbox: &Sandbox, wrong: &[&str]) -> Vec<String> {
    let attempts: Vec<String> = wrong.iter().map(|source| format!("lambda: {source}")).collect();
    let source = format!(
        r#"
import asyncio
from llm_do import *
from llm_do.runtime import *

def add(a: int, b: int = 1) -> int:
    return a + b

def fails(given, runtime):
    return 1 // 0

def agent(**more):
    return AgentSpec(**{{"name": "agent", "model": "scripted:script.yaml", "instructions": "x", **more}})

for attempt in ({},):
    try:
        print("no error:", attempt())
    except Exception as error:
        print(type(error).__name__, " ".join(str(error).split()))
"#,
        attempts.join(", ")
    );
    printed(sandbox, &source).lines().map(str::to_owned).collect()
}

#[test]
fn what_a_program_gets_wrong_is_said_in_its_own_words() {
    let sandbox = Sandbox::new();
    sandbox.file("script.yaml", "- {say: ok}\n").file("main.worker", "---\nname: main\n---\nx\n");
    sandbox.file("choosy.worker", "---\nname: choosy\ncompatible_models: ['openai:*']\n---\nx\n");
    let rows = [
        ("run_worker('main.worker', 'main', 'x', cli_model=3)", "TypeError 3 is no name of a model"),
        ("Runtime(model=3).run(AgentSpec('a', 'x'), 'x')", "TypeError 3 is no name of a model"),
        ("resolve_model(3)", "TypeError 3 is no name of a model"),
        (
            "run_worker('main.worker', 'main', 'x', cli_model='claude')",
            "UsageError `model`: `claude` names no provider hint: write `provider:model`",
        ),
        (
            "run_worker('main.worker', 'main', 'x', models={'main': 'claude'})",
            "UsageError `models`: `claude` names no provider hint: write `provider:model`",
        ),
        (
            "run_worker('main.worker', 'main', 'x', models={'other': 'scripted:script.yaml'})",
            "ProjectError error: `models={'other': '…'}` names no agent of the project",
        ),
        (
            "run_worker('choosy.worker', None, 'x', cli_model='scripted:script.yaml')",
            "ProjectError error: `scripted:script.yaml` from `cli_model` (a Runtime and a Context have `model=`) is not",
        ),
        (
            "run_worker('main.worker', 'main', 'x', cli_model='scripted:script.yaml', attachments='a.txt')",
            "TypeError `attachments` is a list: give ['a.txt']",
        ),
        (
            "run_worker('main.worker', 'main', 'x', cli_model='scripted:script.yaml', limits={'max_requests': 0})",
            "LimitReached the run reached its limit `max_requests`: 0 of 0 hint: `limits=` or `runtime.limits`",
        ),
        ("agent(toolsets='filesystem_cwd')", "TypeError `toolsets` of `agent` is a list: give ['filesystem_cwd']"),
        ("agent(tools='add')", "TypeError `tools` of `agent` is a list: give ['add']"),
        ("Runtime().run(agent(name='a b'), 'x')", "ValueError 'a b' is not a name for an agent: names have"),
        ("Runtime().run(agent(name=3), 'x')", "ValueError 3 is not a name for an agent: names have"),
        ("RuntimeConfig(max_depth=0)", "ValueError `max_depth` is 0, which is no number from 1 on"),
        ("asyncio.run(Context([ToolEntry(tool=add)]).call('add', {'a': 'x'}))", "WorkerFailed invalid arguments: "),
        (
            "Runtime().run(fails, 'x')",
            "WorkerFailed the entry function `fails` failed: ZeroDivisionError: integer division or modulo by zero",
        ),
        ("WorkerRegistry('main.worker').load_definition('other')", "ProjectError error: there is no agent `other`"),
    ];
    let sources: Vec<&str> = rows.iter().map(|(source, _)| *source).collect();
    let said = said(&sandbox, &sources);
    assert_eq!(said.len(), rows.len(), "{said:#?}");
    for (line, (source, words)) in said.iter().zip(rows) {
        assert!(line.starts_with(words) && !names_a_flag(line), "{source}\n{line}");
    }
}

/// What an entry function raises is the reason of what comes out of its run, with its own traceback.
#[test]
fn an_entry_that_raises_keeps_its_exception() {
    let sandbox = Sandbox::new();
    let printed = printed(
        &sandbox,
        r#"
import asyncio, traceback
from llm_do import Runtime, ToolEntry, Context, WorkerFailed

class Mine(Exception):
    pass

async def main(given, runtime):
    if str(given) == "fail":
        raise Mine("from my code")
    return "fine"

with Runtime() as runtime:
    try:
        runtime.run(main, "fail")
    except WorkerFailed as failed:
        cause = failed.__cause__
        print(repr(cause), traceback.extract_tb(cause.__traceback__)[-1].name)
    print(runtime.run(main, "go on")[0])
"#,
    );
    assert_eq!(printed, "Mine('from my code') main\nfine\n");
}

#[test]
fn a_definition_is_read_whatever_models_there_are() {
    let sandbox = Sandbox::new();
    sandbox.file("choosy.worker", "---\nname: choosy\ncompatible_models: ['openai:*']\n---\nx\n");
    sandbox.file("own.worker", "---\nname: own\nmodel: ollama:qwen3\n---\nx\n");
    let source = "\
from llm_do import WorkerRegistry
for name in ('choosy', 'own'):
    print(WorkerRegistry(f'{name}.worker').load_definition(name).model)
";
    for variable in [None, Some("anthropic:claude-haiku-4-5")] {
        let mut command = command(&sandbox, source);
        if let Some(model) = variable {
            command.env("LLM_DO_MODEL", model);
        }
        let ended = wait_for_all(&mut command);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("None\nollama:qwen3\n", ""), "{variable:?}");
    }
}

/// A result that JSON has no form for is an error, or what it can be; the other side never waits for it.
#[test]
fn values_that_are_no_json_leave_nobody_waiting() {
    let sandbox = Sandbox::new();
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import Context, ToolEntry, WorkerFailed
from llm_do.runtime import CallContext

def numbers() -> dict:
    return {"rows": [1.5, float("nan")], "most": float("inf")}
def circular() -> list:
    value = []
    value.append(value)
    return value
def deep() -> list:
    value = []
    for _ in range(100_000):
        value = [value]
    return value
def thing() -> object:
    return object()
def halves() -> str:
    return "\ud800x"
async def asks(ctx: CallContext) -> object:
    return await ctx.call("thing", {"number": float("nan")})

ctx = Context([ToolEntry(tool=tool) for tool in (numbers, circular, deep, thing, halves, asks)])
for name in ctx.registry:
    try:
        print(name, asyncio.run(ctx.call(name)))
    except WorkerFailed as failed:
        print(name, str(failed).partition(":")[0])
"#,
    );
    let expected = "\
numbers {'most': 'Infinity', 'rows': [1.5, 'NaN']}
circular ValueError
deep RecursionError
thing TypeError
halves ?x
asks TypeError
";
    assert_eq!(printed, expected);
}

/// Files of the program whose words reach only people at a terminal.
const OF_THE_TERMINAL: &[&str] = &[
    "answer_file.rs",
    "args.rs",
    "attend.rs",
    "chat.rs",
    "check.rs",
    "engine.rs",
    "engine_worker.rs",
    "export.rs",
    "foreign.rs",
    "foreign_flags.rs",
    "harden.rs",
    "first_model.rs",
    "inbox.rs",
    "map.rs",
    "models.rs",
    "once.rs",
    "plan.rs",
    "record.rs",
    "remove.rs",
    "resume.rs",
    "talk.rs",
    "text.rs",
    "trust.rs",
];
/// And such words in files that have others too.
const FOR_THE_TERMINAL: &[&str] = &[
    "`--connect` starts nothing of a project that is not trusted",
    "run it from a place with another name, or with `--ephemeral`",
    "`--input-json`",
    "`--foreign` reads it as a stranger's",
    "`-m`, `LLM_DO_MODEL` or `llm-do models --use NAME`",
];

fn names_a_flag(text: &str) -> bool {
    let is_long = |rest: &str| rest.starts_with(|first: char| first.is_ascii_lowercase());
    text.contains("`-m") || text.split("`--").skip(1).any(is_long)
}

/// The texts in a source file that name a flag.
fn flags_named(source: &str) -> Vec<String> {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let texts = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    texts.filter(|text| names_a_flag(text)).filter(|text| !FOR_THE_TERMINAL.contains(text)).map(str::to_owned).collect()
}

fn hints() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut waiting = vec![crates.join("llm-do/src"), crates.join("llm-do-launch/src"), crates.join("llm-do-cli/src")];
    let mut hints = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_left_out = name.starts_with("tests") || OF_THE_TERMINAL.contains(&name);
            match path.is_dir() {
                // What is said of commands is about the flags of others.
                true if !["map", "tests", "shell"].contains(&name) => waiting.push(path),
                false if path.extension().is_some_and(|extension| extension == "rs") && !is_left_out => {
                    let text = fs::read_to_string(&path).unwrap();
                    hints.extend(flags_named(text.split("#[cfg(test)]").next().unwrap()));
                }
                _ => {}
            }
        }
    }
    hints
}

#[test]
fn every_hint_at_a_flag_has_words_in_python() {
    let sandbox = Sandbox::new();
    let hints = hints();
    assert!(hints.len() > 10, "{hints:#?}");
    let source = format!(
        "import json\nfrom llm_do.errors import in_python\n\
         for hint in json.loads({:?}):\n    print(in_python(hint).replace('\\n', ' '))\n",
        serde_json::to_string(&hints).unwrap()
    );
    let printed = printed(&sandbox, &source);
    for (hint, words) in hints.iter().zip(printed.lines()) {
        assert!(!names_a_flag(words), "a Python program would read of a flag: {hint}\n{words}");
    }
    assert_eq!(printed.lines().count(), hints.len());
}
