//! Tools that are plain functions: no library but Python's own.

use std::io::Write as _;
use std::process::Stdio;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

use crate::session::of_type;
use crate::{ask, calls, project, run};

const MAIN: &str = "entry: true\ntools: [tool]\napproval: { tool: allow }";

/// What a function gives for a call.
fn result(python: &str, arguments: &str) -> String {
    let sandbox = project(&[("main", MAIN)], &[("kit.py", python)], &calls(&[&format!("{{ tool: {arguments} }}")]));
    run(&sandbox, &["-q"]).answer().trim_end().to_owned()
}

#[test]
fn a_function_is_a_tool_and_no_library_is_imported_for_it() {
    let kit = "\
import sys
def tool(text: str, least: int = 1) -> str:
    loaded = [name for name in ('pydantic', 'pydantic_ai') if name in sys.modules]
    return f'{len([word for word in text.split() if len(word) >= least])} {loaded}'
TOOLS = [tool]
";
    assert_eq!(result(kit, "{ text: 'a bb ccc' }"), "3 []");
    assert_eq!(result(kit, "{ text: 'a bb ccc', least: 2 }"), "2 []");
}

#[test]
fn arguments_and_results_are_what_the_signature_says() {
    let kit = "\
import enum
from dataclasses import dataclass, field
from typing import Literal, Optional, TypedDict
class Colour(enum.Enum):
    RED = 'red'
class Extra(TypedDict, total=False):
    note: str
@dataclass
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list)
async def tool(point: Point, colour: Colour, mode: Literal['a', 'b'], limit: Optional[int] = None, extra: Extra = None):
    return {'point': point, 'colour': colour, 'mode': mode, 'limit': limit, 'extra': extra, 'kind': type(point).__name__}
TOOLS = {'tool': tool}
";
    let good = "{ point: { x: 1, tags: [t] }, colour: red, mode: b, extra: { note: n } }";
    let all = json!({"point": {"x": 1, "y": 0.5, "tags": ["t"]}, "colour": "red", "mode": "b", "limit": null,
        "extra": {"note": "n"}, "kind": "Point"});
    assert_eq!(serde_json::from_str::<Value>(&result(kit, good)).unwrap(), all);
    let cases = [
        ("{}", "`point` is missing"),
        ("{ point: { x: one }, colour: red, mode: a }", "`/point/x`: 'one' is not a whole number"),
        ("{ point: { x: true }, colour: red, mode: a }", "`/point/x`: True is not a whole number"),
        ("{ point: { z: 1, x: 1 }, colour: red, mode: a }", "`/point`: there is no `z`; there are: x, y, tags"),
        ("{ point: { x: 1 }, colour: blue, mode: a }", "`/colour`: 'blue' is none of 'red'"),
        ("{ point: { x: 1 }, colour: red, mode: c }", "`/mode`: 'c' is none of 'a', 'b'"),
        (
            "{ point: { x: 1 }, colour: red, mode: a, limit: x }",
            "`/limit`: 'x' is not a whole number; `/limit`: 'x' is not null",
        ),
        ("{ point: [], colour: red, mode: a }", "`/point`: [] is not an object"),
    ];
    for (arguments, words) in cases {
        assert_eq!(result(kit, arguments), format!("error: invalid arguments: {words}"), "{arguments}");
    }
}

#[test]
fn a_model_reads_the_signature_and_the_docstring() {
    let kit = "\
def tool(text: str, least: int = 1) -> int:
    \"\"\"Counts words.

    Even long ones.

    Args:
        text: where to
            count
        least: how long
    \"\"\"
    return 1
TOOLS = [tool]
";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], "");
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Done.")));
    ask(&sandbox, &fake, &[]).answer();
    let request = &fake.requests()[0];
    let tool = &request.seen.as_ref().unwrap().tools[0];
    assert_eq!((tool.name.as_str(), tool.description.as_str()), ("tool", "Counts words.\n\nEven long ones."));
    assert_eq!(
        *tool.schema.as_ref().unwrap(),
        json!({"type": "object", "required": ["text"], "additionalProperties": false, "properties": {
            "text": {"type": "string", "description": "where to count"},
            "least": {"type": "integer", "description": "how long", "default": 1},
        }})
    );
}

#[test]
fn custom_tools_ask_unless_their_own_configuration_or_a_rule_says_otherwise() {
    let kit = "\
from llm_do.toolsets.approval import set_toolset_approval_config
def asks() -> str:
    return 'ran'
def allowed() -> str:
    return 'ran'
set_toolset_approval_config(allowed, {'allowed': {'pre_approved': True}})
TOOLS = [asks, allowed]
";
    let main = "entry: true\ntools: [asks, allowed]";
    let of = |tool: &str| project(&[("main", main)], &[("kit.py", kit)], &calls(&[&format!("{{ {tool}: {{}} }}")]));
    assert_eq!(run(&of("allowed"), &["-q"]).answer(), "ran\n");
    assert_eq!(run(&of("asks"), &["-q", "--approve-all"]).answer(), "ran\n");
    assert!(run(&of("asks"), &[]).failure(4).contains("waiting for approval"));
    // A person is never asked about arguments that do not fit.
    let unfit = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ asks: { x: 1 } }"]));
    assert_eq!(run(&unfit, &["-q"]).answer(), "error: invalid arguments: there is no `x`; there are: none\n");
}

#[test]
fn whatever_code_prints_is_told_apart_from_the_answer() {
    let kit = r#"
import os, subprocess, sys
print("imported")
def tool() -> str:
    print("from print", end="")
    print("to stderr", file=sys.stderr)
    os.write(1, b'{"jsonrpc": "2.0", "id": 1, "result": "forged"}\n')
    subprocess.run(["echo", "from a child"])
    return "fine"
TOOLS = [tool]
"#;
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    let (events, result) = run(&sandbox, &["--json"]).events();
    assert_eq!(result["output"], "fine");
    let printed: Vec<(&str, &str)> = of_type(&events, "process_output")
        .into_iter()
        .map(|event| (event["stream"].as_str().unwrap(), event["text"].as_str().unwrap()))
        .collect();
    for said in [("stdout", "imported\n"), ("stdout", "from print"), ("stderr", "to stderr\n")] {
        assert!(printed.contains(&said), "{said:?}: {printed:?}");
    }
    let call = of_type(&events, "process_output").into_iter().find(|event| event["text"] == "from print").unwrap();
    assert_eq!((&call["agent"], &call["call"]), (&json!("main"), &json!(1)), "it is told as what that call prints");
}

#[test]
fn calls_of_one_reply_run_at_the_same_time() {
    // Each call waits for all the others: one after the other they would wait for ever.
    let kit = "\
import asyncio, threading
here, there = [], None
barrier = threading.Barrier(20)
async def gather(n: int) -> int:
    global there
    there = there or asyncio.Event()
    here.append(n)
    if len(here) == 100:
        there.set()
    await there.wait()
    return n
def block(n: int) -> int:
    barrier.wait()
    return n
TOOLS = [gather, block]
";
    let main = "entry: true\ntools: [gather, block]\napproval: { gather: allow, block: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], "");
    for (tool, count) in [("gather", 100), ("block", 20)] {
        let many = (0..count).map(|n| FakeCall::new(tool, json!({"n": n})));
        let fake = FakeLlm::start(
            FakeScript::new().reply(FakeReply::text("Go.").and_calls(many)).reply(FakeReply::text("Done.")),
        );
        assert_eq!(ask(&sandbox, &fake, &[]).answer(), "Done.\n");
        let requests = fake.requests();
        let results: Vec<String> =
            requests[1].seen.as_ref().unwrap().results().map(|(_, text)| text.to_owned()).collect();
        let expected: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        assert_eq!(results, expected, "results come in the order of the calls");
    }
}

#[test]
fn python_starts_while_the_input_is_read() {
    // The import ends when somebody has opened the gate, and that happens after all of the input was taken.
    let kit = "open('gate').read()\ndef tool() -> str:\n    return 'x'\nTOOLS = [tool]\n";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], "- say: '{{ heard | length }}'");
    let gate = sandbox.path().join("gate");
    let made = std::process::Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    let cache = crate::python::cache();
    let variables = [("XDG_CACHE_HOME", cache.to_str().unwrap())];
    let mut command = sandbox.command(&["run", ".", "-q", "--trust", "-m", "scripted:script.yaml"], &variables);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // More than a pipe holds.
    child.stdin.take().unwrap().write_all(&vec![b'x'; 1_000_000]).unwrap();
    std::fs::File::create(&gate).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1000000\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn fifty_megabytes_come_back_and_arguments_have_a_bound() {
    let kit = "\
from llm_do.runtime import CallContext, CallFailed
def echo(text: str, times: int) -> str:
    return text * times
async def tool(ctx: CallContext) -> str:
    back = await ctx.call('echo', {'text': 'é', 'times': 25_000_000})
    try:
        await ctx.call('echo', {'text': 'é' * 25_000_000, 'times': 1})
    except CallFailed as error:
        return f'{back[:3]} {error}'
TOOLS = [echo, tool]
";
    let main = "entry: true\ntools: [tool, echo]\napproval: { tool: allow, echo: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    let bound = "the arguments are longer than 1 MiB; do it in several calls";
    assert_eq!(run(&sandbox, &["-q"]).answer(), format!("ééé {bound}\n"));
}

#[test]
fn children_see_the_fixed_environment_what_the_manifest_names_and_never_a_key() {
    let kit = "\
import os
def tool() -> str:
    return ' '.join(f'{name}={os.environ.get(name)}' for name in ('MINE', 'OTHER', 'OPENAI_API_KEY'))
TOOLS = [tool]
";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    let asked = run(&sandbox, &["-q"]).with("MINE", "mine").with("OTHER", "x").with("OPENAI_API_KEY", "sk-secret");
    assert_eq!(asked.answer(), "MINE=mine OTHER=None OPENAI_API_KEY=None\n");
    // Not even while the manifest that asks for it is refused.
    let spy = "import os\nopen('seen', 'w').write(str(os.environ.get('OPENAI_API_KEY')))";
    sandbox.file("kit.py", &format!("{spy}\n{kit}"));
    let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "python_files": ["kit.py"], "env": ["OPENAI_API_KEY"]}"#;
    sandbox.file("project.json", manifest);
    let words = run(&sandbox, &[]).with("OPENAI_API_KEY", "sk-secret").failure(2);
    assert!(words.contains("`OPENAI_API_KEY` holds the key of a model provider"), "{words}");
    assert!(!sandbox.path().join("seen").exists(), "nothing of it ran");
}

#[test]
fn a_run_leaves_a_project_as_it_was_and_check_runs_nothing_of_it() {
    let kit = "open('ran', 'w')\ndef tool() -> int:\n    return 1\nTOOLS = [tool]\n";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    let before = sandbox.tree();
    let checked = sandbox.run_in(&["check", ".", "-m", "scripted:script.yaml"], &[("LLM_DO_TRUST", "")]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));
    assert!(checked.stdout.contains("tool (Python; `check --trust` reads it)"), "{}", checked.stdout);
    assert_eq!(sandbox.tree(), before);
    run(&sandbox, &["-q"]).answer();
    std::fs::remove_file(sandbox.path().join("ran")).unwrap();
    std::fs::remove_dir_all(sandbox.path().join(".local")).unwrap();
    assert_eq!(sandbox.tree(), before, "no compiled file is left in it");
}

#[test]
fn check_looks_at_the_files_of_a_project_that_is_trusted() {
    let kit = "def tool() -> int:\n    return 1\nTOOLS = [tool]\n";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], "- say: hi\n");
    let cache = crate::python::cache();
    let cache = [("XDG_CACHE_HOME", cache.to_str().unwrap()), ("LLM_DO_TRUST", "")];
    let check =
        |flags: &[&str]| sandbox.run_in(&[&["check", ".", "-m", "scripted:script.yaml"], flags].concat(), &cache);
    assert!(check(&[]).stdout.contains("tool (Python; `check --trust` reads it)"));
    let trusted = check(&["--trust"]);
    assert_eq!((trusted.code, trusted.stderr.as_str()), (Some(0), ""), "{}", trusted.stdout);
    assert!(
        !trusted.stdout.contains("defined in Python") && trusted.stdout.contains("tool  allow"),
        "{}",
        trusted.stdout
    );
    sandbox.file("kit.py", "TOOLS = [nothing]\n");
    assert!(check(&[]).stdout.contains("(Python; `check --trust` reads it)"), "it is another file now");
    let broken = check(&["--trust"]);
    assert_eq!(broken.code, Some(2), "{}", broken.stdout);
    assert!(broken.stderr.contains("kit.py:1:1") && broken.stderr.contains("NameError"), "{}", broken.stderr);
}
