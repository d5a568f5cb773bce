//! Code that calls code: how deep it may go, and what is seen of it.

use serde_json::{Value, json};

use crate::session::of_type;
use crate::{calls, project, run, run_pydantic};

/// Tools that call themselves as often as they are asked to, in either way.
const DIGGING: &str = "\
from llm_do.runtime import CallContext, CallFailed
async def dig(ctx: CallContext, left: int) -> str:
    try:
        return await (ctx.call('dig', {'left': left - 1}) if left % 2 else ctx.tools.dig(left=left - 1))
    except CallFailed as failed:
        return f'{10_000 - left} {failed}'
async def judged(ctx: CallContext) -> int:
    return 1 + await ctx.call('judged')
TOOLS = [dig, judged]
";

const DIGGER: &str = "entry: true\ntools: [dig, judged]\napproval: { dig: allow, judged: allow }";

fn with_runtime(sandbox: &crate::support::Sandbox, keys: &str) {
    sandbox.file(
        "project.json",
        &format!(
            r#"{{"version": 1, "entry": {{}}, "worker_files": ["main.worker"], "python_files": ["kit.py"], "runtime": {keys}}}"#
        ),
    );
}

#[test]
fn code_that_calls_itself_for_ever_reads_an_error() {
    let sandbox = project(&[("main", DIGGER)], &[("kit.py", DIGGING)], &calls(&["{ dig: { left: 10000 } }"]));
    for (keys, allowed) in [("{}", 74), (r#"{"max_depth": 10}"#, 84), (r#"{"max_call_depth": 7}"#, 7)] {
        with_runtime(&sandbox, keys);
        // The agent's own call is the first of them.
        let expected = format!(
            "{} `dig` cannot call `dig`: {allowed} calls stand within each other, and `max_call_depth` is {allowed}\n",
            allowed - 1
        );
        assert_eq!(run(&sandbox, &["-q"]).answer(), expected, "{keys}");
    }
    let sandbox = project(&[("main", DIGGER)], &[("kit.py", DIGGING)], &calls(&["{ judged: {} }"]));
    let said = run(&sandbox, &["-q"]).answer();
    assert!(said.contains("`judged` cannot call `judged`: 74 calls stand within each other"), "{said}");
    with_runtime(&sandbox, r#"{"max_call_depth": 1001}"#);
    let said = run(&sandbox, &["-q"]).failure(2);
    assert!(said.contains("max_call_depth") && said.contains("a whole number from 1 to 1000"), "{said}");
}

#[test]
fn a_toolset_that_calls_itself_while_it_judges_reads_an_error_too() {
    let kit = "\
from pydantic_ai import FunctionToolset, RunContext
from llm_do.runtime import CallContext
class Judging(FunctionToolset):
    async def needs_approval(self, name, tool_args, ctx, config):
        await ctx.deps.call('go')
        return False
def go() -> str:
    return 'gone'
kit = Judging([go])
";
    let sandbox = project(&[("main", "entry: true\ntoolsets: [kit]")], &[("kit.py", kit)], &calls(&["{ go: {} }"]));
    let said = run_pydantic(&sandbox, &["-q"]).failure(4);
    assert!(said.contains("calls stand within each other, and `max_call_depth` is 74"), "{said}");
}

/// A function that waits keeps its thread: more of them than any pool has must not wait for each other.
#[test]
fn functions_that_are_not_async_call_each_other_as_deep_as_others() {
    let plain = "\
from llm_do.runtime import CallContext, CallFailed
def dig(ctx: CallContext, left: int) -> str:
    try:
        return ctx.call_sync('dig', {'left': left - 1})
    except CallFailed as failed:
        return f'{10_000 - left} {failed}'
TOOLS = [dig]
";
    let main = "entry: true\ntools: [dig]\napproval: { dig: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", plain)], &calls(&["{ dig: { left: 10000 } }"]));
    with_runtime(&sandbox, r#"{"max_call_depth": 200}"#);
    let said = run(&sandbox, &["-q"]).answer();
    assert!(said.starts_with("199 `dig` cannot call `dig`: 200 calls stand within each other"), "{said}");
    // PydanticAI runs functions on threads of its own, unless it is told otherwise.
    let library = "\
from pydantic_ai import FunctionToolset, RunContext
from llm_do.runtime import CallContext, CallFailed
def dig(ctx: RunContext[CallContext], left: int) -> str:
    try:
        return ctx.deps.call_sync('dig', {'left': left - 1})
    except CallFailed as failed:
        return f'{10_000 - left} {failed}'
kit = FunctionToolset([dig])
";
    let main = "entry: true\ntoolsets: [kit]\napproval: { dig: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", library)], &calls(&["{ dig: { left: 10000 } }"]));
    let said = run_pydantic(&sandbox, &["-q"]).answer();
    assert!(said.starts_with("73 `dig` cannot call `dig`: 74 calls stand within each other"), "{said}");
}

#[test]
fn without_another_thread_a_call_fails_instead_of_waiting() {
    let kit = "\
import llm_do._host.threads as threads
threads._MOST = 20
from llm_do.runtime import CallContext, CallFailed
def dig(ctx: CallContext, left: int) -> str:
    try:
        return ctx.call_sync('dig', {'left': left - 1})
    except CallFailed as failed:
        return f'{100 - left} {failed}'
TOOLS = [dig]
";
    let main = "entry: true\ntools: [dig]\napproval: { dig: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ dig: { left: 100 } }"]));
    let said = run(&sandbox, &["-q"]).answer();
    let expected = "19 RuntimeError: 20 functions that are not async wait for what they have called: make them async\n";
    assert_eq!(said, expected);
}

#[test]
fn what_code_calls_stands_beneath_it_in_trace_events_and_questions() {
    let kit = "\
from llm_do.runtime import CallContext
async def sweep(ctx: CallContext, path: str) -> str:
    said = await ctx.call_agent('child', 'hi')
    await ctx.tools.write_file(path=path, content=said)
    return ' › '.join(ctx.path) + f' {ctx.agent}'
TOOLS = [sweep]
";
    let main = "entry: true\ntools: [sweep]\ntoolsets: [filesystem_project]\napproval: { sweep: allow }";
    let script = "\
- { agent: main, round: 1, call: { sweep: { path: a.txt } } }
- { agent: child, say: clean }
- say: \"{{ result }}\"
";
    let sandbox = project(&[("main", main), ("child", "")], &[("kit.py", kit)], script);
    let said = run(&sandbox, &["-q", "--ephemeral"]).failure(4);
    assert!(said.contains("main › sweep › write_file"), "{said}");
    let said = run(&sandbox, &["-q"]).failure(4);
    assert!(said.starts_with("error: `write_file` of main › sweep was refused: it needs an approval"), "{said}");
    let (events, result) = run(&sandbox, &["--json", "--approve-all"]).events();
    assert_eq!(result["output"], "main › sweep main");
    let sweep = &result["trace"]["calls"][0];
    assert_eq!((&sweep["name"], &sweep["kind"], &sweep["depth"]), (&json!("sweep"), &json!("tool"), &json!(0)));
    let names: Vec<(&Value, &Value, &Value)> = sweep["calls"].as_array().unwrap().iter().map(named).collect();
    assert_eq!(
        names,
        [(&json!("child"), &json!("agent"), &json!(2)), (&json!("write_file"), &json!("tool"), &json!(1))]
    );
    assert_eq!(result["trace"]["calls"].as_array().unwrap().len(), 1, "each call once");
    assert_eq!((&sweep["usage"]["requests"], &result["trace"]["usage"]["requests"]), (&json!(1), &json!(3)));
    let called =
        |tool: &str| of_type(&events, "tool_called").into_iter().find(|event| event["tool"] == tool).unwrap().clone();
    let code = &called("sweep")["calls_as"];
    let child = of_type(&events, "call_started").into_iter().find(|event| event["name"] == "child").unwrap();
    assert!(code.is_u64() && child["parent"] == *code, "{child}");
    let write = called("write_file");
    assert_eq!((&write["call"], &write["agent"], &write["calls_as"]), (code, &json!("sweep"), &Value::Null));
    let asked = of_type(&events, "approval_answered").into_iter().find(|event| event["tool"] == "write_file").unwrap();
    assert_eq!(asked["path"], json!(["main", "sweep"]));
}

fn named(call: &Value) -> (&Value, &Value, &Value) {
    (&call["name"], &call["kind"], &call["depth"])
}

#[test]
fn a_result_has_the_type_that_its_tool_or_agent_gave_it() {
    let kit = "\
from llm_do.runtime import CallContext
def give(what: str):
    return {'number': 3, 'half': 0.5, 'yes': True, 'nothing': None, 'list': [1], 'object': {'a': None},
            'text': 'plain', 'like': '[1, 2]', 'digits': '42', 'null': 'null'}[what]
async def collect(ctx: CallContext) -> str:
    names = ['number', 'half', 'yes', 'nothing', 'list', 'object', 'text', 'like', 'digits', 'null']
    given = [await ctx.call('give', {'what': name}) for name in names]
    said = [await ctx.call('child', 'hi'), await ctx.call_agent('child', 'hi'), await ctx.call('typed', 'hi')]
    return repr(given + said)
TOOLS = [give, collect]
";
    let main = "entry: true\ntools: [give, collect]\ntoolsets: [child]\napproval: { give: allow, collect: allow }";
    let typed = "schema_out: { type: object, properties: { n: { type: integer } } }";
    let script = "\
- { agent: main, round: 1, call: { collect: {} } }
- { agent: child, say: '{\"n\": 1}' }
- { agent: typed, say: '{\"n\": 1}' }
- say: \"{{ result }}\"
";
    let sandbox = project(&[("main", main), ("child", ""), ("typed", typed)], &[("kit.py", kit)], script);
    assert_eq!(
        run(&sandbox, &["-q"]).answer(),
        "[3, 0.5, True, None, [1], {'a': None}, 'plain', '[1, 2]', '42', 'null', '{\"n\": 1}', '{\"n\": 1}', {'n': 1}]\n"
    );
    // A model reads what it always read.
    for (what, read) in [("number", "3"), ("nothing", "null"), ("object", "{\"a\":null}"), ("text", "plain")] {
        let sandbox = project(
            &[("main", main), ("child", "")],
            &[("kit.py", kit)],
            &calls(&[&format!("{{ give: {{ what: {what} }} }}")]),
        );
        assert_eq!(run(&sandbox, &["-q"]).answer(), format!("{read}\n"));
    }
}

#[test]
fn a_journaled_run_tells_of_code_and_its_calls_once_more_in_one_tree() {
    let kit = "\
from llm_do.runtime import CallContext
async def outer(ctx: CallContext) -> int:
    return await ctx.call('inner') + 1
async def inner(ctx: CallContext) -> int:
    return 1
TOOLS = [outer, inner]
";
    let main = "entry: true\ntools: [outer, inner]\napproval: { outer: allow, inner: allow }";
    let script = calls(&["{ outer: {} }"]);
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &script);
    let (_, first) = run(&sandbox, &["--json", "--journal", "run.journal"]).events();
    let ended = crate::session::Run::of(&sandbox, &["resume", "run.journal", "--json"])
        .with("XDG_CACHE_HOME", crate::python::cache().to_str().unwrap())
        .with("LLM_DO_STATE_KEY", crate::python::KEY.repeat(32))
        .ended();
    let again: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let tree = |result: &Value| result["trace"]["calls"][0]["calls"][0]["name"].clone();
    assert_eq!((tree(&first), tree(&again)), (json!("inner"), json!("inner")), "{ended:?}");
}
