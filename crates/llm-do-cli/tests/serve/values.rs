//! Python programs that give agents, tools and entries as values.

use crate::program::{printed, printed_with_library};
use crate::support::Sandbox;

fn sandbox(script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("script.yaml", script);
    sandbox
}

#[test]
fn one_runtime_is_one_process_for_all_its_runs() {
    let sandbox = sandbox("- {tool: note, say: 'Noted: {{ result }}'}\n- {call: {note: {text: x}}}\n");
    let printed = printed(
        &sandbox,
        r#"
import asyncio, dataclasses, os
from llm_do import AgentSpec, ApprovalDecision, RunApprovalPolicy, Runtime, RuntimeConfig

def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return len(file.read().split())

asked, events = [], []
def note(text: str) -> str:
    return text
def callback(tool_name, payload, reason):
    asked.append(tool_name)
    return ApprovalDecision(approved=True, approve_for_session=True)

agent = AgentSpec(name="main", model="scripted:script.yaml", instructions="Note.", tools=[note])
runtime = Runtime(run_approval_policy=RunApprovalPolicy(approval_callback=callback), on_event=events.append, verbosity=1)
print(children(), runtime.config.max_depth, runtime.config.verbosity, isinstance(runtime.config, RuntimeConfig))
try:
    runtime.config.max_depth = 9
except dataclasses.FrozenInstanceError as error:
    print("frozen")

async def both():
    return await asyncio.gather(runtime.call_agent(agent, "one"), runtime.run_entry(agent, "two"))

first, (second, ctx) = asyncio.run(both())
print(first, second, children())
print(runtime.run(agent, "three")[0], children())
print(len(asked), {model: usage.requests for model, usage in runtime.usage.items()}, len(runtime.message_log))
print({event["type"] for event in events} >= {"call_started", "tool_called", "call_finished"})
print(os.listdir("."))
runtime.close()
print(children())
"#,
    );
    let mut lines: Vec<&str> = printed.lines().collect();
    let files = lines.remove(6);
    assert!(!files.contains("project.json"), "nothing is written: {files}");
    // Two questions at most: the second run may ask before the first one is answered.
    let asked = lines[4].split_once(' ').unwrap();
    assert!(["1", "2"].contains(&asked.0), "{printed}");
    lines[4] = asked.1;
    let expected =
        ["0 5 1 True", "frozen", "Noted: x Noted: x 1", "Noted: x 1", "{'scripted:script.yaml': 6} 12", "True", "0"];
    assert_eq!(lines, expected);
}

#[test]
fn toolsets_are_made_for_each_call_of_an_agent_that_is_a_value() {
    let sandbox = sandbox("- {tool: count, say: '{{ result }}'}\n- {call: {count: {}}}\n");
    let source = r#"
import asyncio
from pydantic_ai import FunctionToolset
from llm_do import AgentSpec, RunApprovalPolicy, Runtime, ToolsetSpec
from llm_do.runtime import CallContext

made = []
def build(ctx: CallContext):
    toolset = FunctionToolset()
    state = {"count": 0}
    made.append(ctx.agent)
    @toolset.tool_plain
    def count() -> int:
        state["count"] += 1
        return state["count"]
    toolset.cleanup = lambda: made.append("cleaned up")
    return toolset

spec = ToolsetSpec(factory=build)
agent = AgentSpec(name="main", model="scripted:script.yaml", instructions="Count.", toolsets=[spec])
print(agent.toolset_specs == (spec,))

async def main():
    runtime = Runtime(run_approval_policy=RunApprovalPolicy(mode="approve_all"))
    async with agent.start(runtime) as scope:
        print(made, await scope.run_turn("x"), await scope.run_turn("x"), scope.frame.active_toolsets)
    print(list(made), await runtime.call_agent(agent, "x"), made)

asyncio.run(main())
"#;
    let expected = "\
True
['main'] 1 2 ('toolset_1',)
['main', 'cleaned up'] 1 ['main', 'cleaned up', 'main', 'cleaned up']
";
    assert_eq!(printed_with_library(&sandbox, source), expected);
}

#[test]
fn a_context_has_a_registry_a_model_and_an_approval_function() {
    let sandbox = sandbox(
        "\
- {agent: boss, tool: helper, say: 'helper said {{ result }}'}
- {agent: boss, call: {helper: {input: hi}}}
- {agent: helper, say: 'own model'}
",
    );
    sandbox.file("other.yaml", "- {say: 'the context''s model'}\n");
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import ApprovalDecision, Context, LlmDoError, ToolEntry, WorkerEntry

def add(a: int, b: int = 1) -> int:
    return a + b

asked = []
def approval(tool_name, payload, reason):
    asked.append(tool_name)
    return ApprovalDecision(approved=payload.get("a") != 13, note="thirteen")

helper = WorkerEntry(name="helper", instructions="Help.", model="scripted:script.yaml")
plain = WorkerEntry(name="plain", instructions="Help.")
boss = WorkerEntry(name="boss", instructions="Ask.", model="scripted:script.yaml", tools=[helper, ToolEntry(tool=add, requires_approval=True)])
ctx = Context([boss, plain], model="scripted:other.yaml", approval=approval)
print(sorted(ctx.registry), ctx.model, ctx.depth, ctx.registry["add"].model, [entry.kind for entry in ctx.registry.values()])

async def main():
    print(await ctx.call("boss", "go"))
    print(await ctx.call("plain", "go"))
    print(await ctx.call("add", {"a": 1}))
    for name, given in (("add", {"a": 13}), ("add", {"b": "x"}), ("nobody", {})):
        try:
            await ctx.call(name, given)
        except (LlmDoError, KeyError) as error:
            print(type(error).__name__, str(error).splitlines()[0][:60])
    flat = Context.from_worker(boss, model="scripted:other.yaml", max_depth=1)
    print(await flat.call("boss", "go"))

asyncio.run(main())
print(asked, [(call.name, call.depth) for call in ctx.trace][:3])
"#,
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[0],
        "['add', 'boss', 'helper', 'plain'] scripted:other.yaml 0 None ['worker', 'worker', 'tool', 'worker']"
    );
    assert_eq!(lines[1..4], ["helper said own model", "the context's model", "2"]);
    assert_eq!(lines[4], "WorkerFailed refused: thirteen");
    assert!(lines[5].starts_with("WorkerFailed invalid arguments: "), "{printed}");
    assert!(lines[6].starts_with("KeyError"), "{printed}");
    assert!(lines[7].contains("max_depth"), "{printed}");
    assert!(lines[8].starts_with("['add', 'add'] [('boss', 0), ('helper', 1)"), "{printed}");
}

/// A nested worker is a tool with the fields of its own schema.
#[test]
fn a_nested_worker_is_called_with_its_own_fields() {
    let sandbox = sandbox(
        "\
- {agent: boss, tool: searcher, say: 'found {{ result }}'}
- {agent: boss, call: {searcher: {topic: ferns, limit: 3}}}
- {agent: searcher, say: '{{ heard }}'}
",
    );
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import Context, WorkerEntry

fields = {"type": "object", "properties": {"topic": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["topic"]}
searcher = WorkerEntry(name="searcher", instructions="Search.", schema_in=fields)
boss = WorkerEntry(name="boss", instructions="Ask.", tools=[searcher])
ctx = Context.from_worker(boss, model="scripted:script.yaml")
print("".join(asyncio.run(ctx.call("boss", "go")).split()))
print([(call.name, call.kind, call.depth, call.input_data) for call in ctx.trace][1])
"#,
    );
    let expected = "\
found{\"limit\":3,\"topic\":\"ferns\"}
('searcher', 'worker', 1, {'limit': 3, 'topic': 'ferns'})
";
    assert_eq!(printed, expected);
}

#[test]
fn an_input_is_a_text_a_list_with_files_or_a_dict() {
    let sandbox = sandbox("- {say: 'heard {{ heard }}'}\n");
    sandbox.file("main.worker", "---\nname: main\nmodel: scripted:script.yaml\n---\nx\n").file("notes.md", "the notes");
    let printed = printed(
        &sandbox,
        r#"
from llm_do import run_worker
from llm_do.runtime import Attachment

for given in ("a text", ["two", "texts", Attachment("notes.md")], {"input": "an input"}, {"topic": "ferns"}):
    result = run_worker("main.worker", "main", given)
    print(" ".join(result.output.split()), [part["type"] for part in result.messages[0]["parts"]])
"#,
    );
    let expected = "\
heard a text ['text']
heard two texts [notes.md] ['text', 'text', 'attachment']
heard an input ['text']
heard { \"topic\": \"ferns\" } ['text']
";
    assert_eq!(printed, expected);
}

#[test]
fn what_json_has_no_form_for_is_named_with_its_place() {
    let sandbox = sandbox("- {say: ok}\n");
    sandbox.file("main.worker", "---\nname: main\nmodel: scripted:script.yaml\n---\nx\n");
    let printed = printed(
        &sandbox,
        r#"
import datetime
from llm_do import run_worker

for given in ({"input": "x", "when": datetime.date(2026, 1, 2)}, {"rows": [1, {"a": {2}}]}, {"n": float("nan")}, object()):
    try:
        run_worker("main.worker", input_data=given)
    except TypeError as error:
        print(str(error).split(", which")[0].replace("at 0x", ""))
"#,
    );
    let expected = "\
`input_data.when` is of type date
`input_data.rows[1].a` is of type set
`input_data.n` is nan
`input_data` is of type object
";
    assert_eq!(printed, expected);
}

#[test]
fn a_tool_has_every_field_of_the_context() {
    let sandbox = sandbox("- {tool: look, say: '{{ result }}'}\n- {call: {look: {}}}\n");
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "python_files": ["tools.py"]}"#,
    );
    sandbox.file("main.worker", "---\nname: main\nmodel: scripted:script.yaml\ntools: [look]\n---\nx\n");
    sandbox.file(
        "tools.py",
        r#"
from llm_do import WorkerContext

def look(ctx: WorkerContext) -> str:
    fields = "registry sandbox_manager sandbox_toolset creation_defaults effective_model attachments message_callback custom_tools_path"
    return ", ".join(f"{name}: {type(getattr(ctx, name)).__name__}" for name in fields.split())

TOOLS = [look]
"#,
    );
    let printed = printed(
        &sandbox,
        r#"
import dataclasses
from llm_do import WorkerContext, approve_all_callback, run_worker
print(run_worker(".", input_data="x", approval_callback=approve_all_callback, trust=True).output)
print([field.name for field in dataclasses.fields(WorkerContext)][:10])
"#,
    );
    let expected = "\
registry: WorkerRegistry, sandbox_manager: Sandbox, sandbox_toolset: Sandbox, creation_defaults: WorkerCreationDefaults, \
effective_model: str, attachments: list, message_callback: NoneType, custom_tools_path: NoneType
['registry', 'worker', 'sandbox_manager', 'sandbox_toolset', 'creation_defaults', 'effective_model', \
'approval_controller', 'attachments', 'message_callback', 'custom_tools_path']
";
    assert_eq!(printed, expected);
}

#[test]
fn every_module_and_name_of_the_documents_is_importable() {
    let sandbox = Sandbox::new();
    let printed = printed(
        &sandbox,
        "\
from llm_do import ApprovalController, CallableEntry, Context, Runtime, RuntimeConfig, ToolEntry, WorkerEntry
from llm_do.approval import ApprovalController, ApprovalDecision
from llm_do.ctx import Context
from llm_do.entries import CallableEntry, ToolEntry, WorkerEntry
from llm_do.execution import default_agent_runner
from llm_do.models import register_model_factory
from llm_do.protocols import WorkerCreator, WorkerDelegator
from llm_do.providers import OpenAICompatibleProvider, register_model_factory, resolve_model
from llm_do.runtime import CallContext, RunApprovalPolicy, Runtime, call_worker, create_worker, run_worker
from llm_do.runtime.args import Attachment, PromptContent, PromptInput, get_display_text
from llm_do.runtime.call import CallConfig, CallFrame, CallScope
from llm_do.runtime.deps import CallContext, ToolsProxy
from llm_do.runtime.events import RuntimeEvent
from llm_do.runtime.shared import Runtime, RuntimeConfig
from llm_do.runtime.toolsets import ToolsetSpec
from llm_do.tools import ToolRegistry, register_tool
from llm_do.ui import RunConfig, run_ui
from llm_do.ui.adapter import adapt_event
from llm_do.ui.display import HeadlessDisplayBackend
print(get_display_text([PromptInput('a', [Attachment('b.pdf')]), {'input': 'c'}]).split('\\n'))
",
    );
    assert_eq!(printed, "['a', '[b.pdf]', 'c']\n");
}
