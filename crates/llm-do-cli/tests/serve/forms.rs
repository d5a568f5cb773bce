//! The forms in which programs of the Python llm-do are written, each as it was.

use fake_llm::{FakeLlm, FakeReply, FakeScript};

use crate::program::{command, printed, printed_with_library};
use crate::support::{Sandbox, wait_for_all};
use crate::terminal::Terminal;

fn sandbox(script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("script.yaml", script);
    sandbox
}

#[test]
fn a_program_without_a_project_wires_its_agents_by_hand() {
    let sandbox = sandbox(
        "\
- {agent: evaluate, say: 'judged {{ heard }}'}
- {agent: main, round: 1, call: [{list_files: {pattern: '*.pdf'}}, {evaluate: {input: it}}]}
- {agent: main, say: '{{ result }}'}
",
    );
    sandbox.file("deck.pdf", "%PDF-1.4");
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from pathlib import Path
from llm_do.models import resolve_model
from llm_do.runtime import AgentSpec, FunctionEntry, RunApprovalPolicy, Runtime
from llm_do.runtime.events import RuntimeEvent
from llm_do.toolsets.agent import agent_as_toolset
from llm_do.toolsets.builtins import build_builtin_toolsets
from llm_do.ui.adapter import adapt_event
from llm_do.ui.display import HeadlessDisplayBackend
import sys

ROOT = Path(__file__).parent.resolve()
MODEL = resolve_model("scripted:script.yaml")
backend = HeadlessDisplayBackend(stream=sys.stdout, verbosity=1)

def on_event(event: RuntimeEvent) -> None:
    backend.display(adapt_event(event))

builtins = build_builtin_toolsets(Path.cwd(), ROOT)
evaluator = AgentSpec(name="evaluator", model=MODEL, instructions="Judge.")
main_agent = AgentSpec(
    name="main", model=MODEL, instructions="Look.",
    toolsets=[builtins["filesystem_project"], agent_as_toolset(evaluator, tool_name="evaluate")],
)

async def main(input_data, runtime):
    print("given", input_data.prompt_messages())
    return await runtime.call_agent(main_agent, input_data)

async def run():
    runtime = Runtime(
        project_root=ROOT,
        run_approval_policy=RunApprovalPolicy(mode="approve_all", return_permission_errors=True),
        on_event=on_event,
        verbosity=1,
    )
    entry = FunctionEntry(name="pitch", fn=main)
    result, ctx = await runtime.run_entry(entry, {"input": ""})
    print(result)
    print(sorted((call.name, call.kind) for call in ctx.trace))
    runtime.close()

asyncio.run(run())
"#,
    );
    assert!(printed.starts_with("pitch starts") && printed.contains("given ['']\n"), "{printed}");
    assert!(printed.contains("    evaluate starts: {\"input\": \"it\"}\n"), "{printed}");
    assert!(printed.contains("judged it") && printed.contains("deck.pdf"), "{printed}");
    let last = printed.lines().last().unwrap();
    let tree = "[('evaluate', 'worker'), ('list_files', 'tool'), ('main', 'worker'), ('pitch', 'function')]";
    assert_eq!(last, tree, "{printed}");
}

#[test]
fn an_agent_is_given_a_file_of_the_project_by_its_whole_path_unasked() {
    let sandbox = sandbox("- {say: ok}\n");
    sandbox.file("decks/one.txt", "a deck");
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from pathlib import Path
from llm_do.runtime import AgentSpec, EntrySpec, Runtime

ROOT = Path(__file__).parent.resolve()
EVALUATOR = AgentSpec(name="evaluator", model="scripted:script.yaml", instructions="Judge.")

async def main(input_data, runtime):
    path = ROOT / "decks" / "one.txt"
    return await runtime.call_agent(EVALUATOR, {"input": "Judge it.", "attachments": [str(path)]})

async def run():
    async with Runtime(project_root=ROOT) as runtime:
        result, ctx = await runtime.run_entry(EntrySpec(name="main", main=main), {"input": ""})
        print(result, ctx.trace[1].name, str(ctx.trace[1].input_data["attachments"]).replace(str(ROOT), "ROOT"))

asyncio.run(run())
"#,
    );
    assert_eq!(printed, "ok evaluator ['ROOT/decks/one.txt']\n");
}

/// What was given to an entry, or to an agent whose tools are the client's, can be read and passed on, with a path or not.
#[test]
fn files_reach_tools_of_the_client_and_go_on_from_there() {
    let sandbox = sandbox(
        "\
- {agent: main, tool: look, say: '{{ result }}'}
- {agent: main, call: {look: {}}}
- {agent: reader, say: 'reader heard {{ heard }}'}
",
    );
    sandbox.file("notes.txt", "the notes");
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import AgentSpec, AttachmentPayload, RunApprovalPolicy, Runtime
from llm_do.runtime import CallContext

reader = AgentSpec(name="reader", model="scripted:script.yaml", instructions="Read.")

async def look(ctx: CallContext) -> str:
    files = ctx.attachments
    said = await ctx.call_agent("reader", {"input": "read", "attachments": files})
    return f"{[file.name for file in files]} {[file.read_text() for file in files]}: {said}"

main = AgentSpec(name="main", model="scripted:script.yaml", instructions="Look.", tools=[look], toolsets=[reader])

async def run():
    async with Runtime(run_approval_policy=RunApprovalPolicy(mode="approve_all")) as runtime:
        given = ["notes.txt", AttachmentPayload("memory.txt", b"from memory")]
        print((await runtime.run_entry(main, "x", attachments=given))[0])

asyncio.run(run())
"#,
    );
    let expected =
        "['notes.txt', 'memory.txt'] ['the notes', 'from memory']: reader heard read\n[notes.txt]\n[memory.txt]\n";
    assert_eq!(printed, expected);
}

#[test]
fn an_endpoint_that_a_program_registers_is_asked_by_llm_do() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("An answer.")));
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\n---\nx\n");
    let source = r#"
import asyncio, os
from llm_do import AgentSpec, LlmDoError, Runtime, run_worker
from llm_do.providers import OpenAICompatibleProvider, register_model_factory, resolve_model

def build(model_name: str):
    if model_name == "broken":
        return object()
    return OpenAICompatibleProvider(base_url=os.environ["ADDRESS"], api_key="acme-key-17", name="http-json")

register_model_factory("http-json", build)
agent = AgentSpec(name="main", model=resolve_model("http-json:rocket"), instructions="Answer.")
with Runtime() as runtime:
    print(runtime.run(agent, "x")[0])
print(run_worker("main.worker", input_data="x", cli_model="http-json:rocket").output)
try:
    resolve_model("http-json:broken")
except TypeError as error:
    print(error)
"#;
    let ended = wait_for_all(command(&sandbox, source).env("ADDRESS", fake.openai_url()));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[..2], ["An answer.", "An answer."], "{ended:?}");
    assert!(lines[2].contains("OpenAICompatibleProvider") && lines[2].contains("`scripted:FILE`"), "{ended:?}");
    let sent = format!("{:?}", fake.requests());
    assert!(fake.requests().len() == 2 && sent.contains("acme-key-17") && sent.contains("rocket"), "{sent}");
}

#[test]
fn a_model_object_is_no_model_and_the_error_says_what_is() {
    let sandbox = Sandbox::new();
    let printed = printed_with_library(
        &sandbox,
        r#"
import asyncio
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from llm_do import AgentSpec, Runtime, register_model_factory, resolve_model

for model in (TestModel(), FunctionModel(lambda messages, info: None)):
    try:
        Runtime().run(AgentSpec(name="main", model=model, instructions="x"), "x")
    except TypeError as error:
        print("OpenAICompatibleProvider" in str(error), "scripted:" in str(error))
register_model_factory("mine", lambda name: TestModel())
try:
    resolve_model("mine:x")
except TypeError as error:
    print("OpenAICompatibleProvider" in str(error), "scripted:" in str(error))
"#,
    );
    assert_eq!(printed, "True True\nTrue True\nTrue True\n");
}

#[test]
fn a_run_is_shown_by_its_ui() {
    let sandbox = sandbox("- {tool: note, say: 'Noted: {{ result }}'}\n- {call: {note: {text: x}}}\n");
    let source = r#"
import asyncio
from llm_do.runtime import AgentSpec
from llm_do.ui import RunConfig, run_ui

def note(text: str) -> str:
    return text

agent = AgentSpec(name="main", model="scripted:script.yaml", instructions="Note.", tools=[note])

async def main():
    config = RunConfig(entry=agent, project_root=".", approval_mode="approve_all", verbosity=1)
    outcome = await run_ui(input={"input": "x"}, config=config, mode="headless")
    print(outcome.result, outcome.exit_code)
    refused = RunConfig(entry=agent, project_root=".", approval_mode="reject_all", verbosity=0)
    outcome = await run_ui(input="x", config=refused, mode="headless")
    print(outcome.result, outcome.exit_code, type(outcome.error).__name__)

asyncio.run(main())
"#;
    let ended = wait_for_all(&mut command(&sandbox, source));
    assert_eq!(ended.stdout, "Noted: x 0\nNone 4 ApprovalError\n", "{ended:?}");
    assert!(
        ended.stderr.starts_with(
            "main starts: {\"input\": \"x\"}\nmain calls note {\"text\": \"x\"}\nnote → x\nmain is done\n"
        ),
        "{ended:?}"
    );
}

#[test]
fn errors_hint_at_what_is_written_in_python() {
    let sandbox = sandbox("- {call: {write_file: {path: a.txt, content: x}}}\n");
    sandbox.file("open.worker", "---\nname: open\n---\nx\n");
    sandbox.file("main.worker", "---\nname: main\nmodel: scripted:script.yaml\ntoolsets: [filesystem_cwd]\n---\nx\n");
    let printed = printed(
        &sandbox,
        r#"
from llm_do import LlmDoError, run_worker

for given in ({"registry": "open.worker", "input_data": "x"}, {"registry": "main.worker", "input_data": "x"}, {"registry": "main.worker"}):
    try:
        run_worker(**given)
    except LlmDoError as error:
        print(" ".join(str(error).split()))
"#,
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3, "{printed}");
    for (line, words) in lines.iter().zip([
        "`cli_model='provider:model'`",
        "`approval_callback=approve_all_callback`",
        "give `input_data`",
    ]) {
        assert!(line.contains(words) && !line.contains("`--") && !line.contains("`-m"), "{line}");
    }
}

/// A person at a real terminal is asked, in words that no tool can draw over.
#[test]
fn a_person_is_asked_at_the_terminal() {
    let script = "\
- {round: 1, call: {note: {text: \"x\\e[2Jy\"}}}
- {round: 2, call: {note: {text: \"x\\e[2Jy\"}}}
- {round: 3, call: {note: {text: z}}}
- {say: '{{ result }}'}
";
    let source = r#"
import asyncio
from llm_do.runtime import AgentSpec
from llm_do.ui import RunConfig, run_ui

said = []
def note(text: str) -> str:
    said.append(text)
    return f"noted {len(said)}"

agent = AgentSpec(name="main", model="scripted:script.yaml", instructions="Note.", tools=[note])
outcome = asyncio.run(run_ui(input="x", config=RunConfig(entry=agent, verbosity=0), mode="tui"))
print("the end:", outcome.result, outcome.exit_code, len(said))
"#;
    let sandbox = sandbox(script);
    for (second, end) in
        [("y\n", "the end: noted 3 0 3"), ("n\n", "the end: error: refused"), ("\n", "the end: error: refused")]
    {
        let terminal = Terminal::start(command(&sandbox, source));
        terminal.expect("questions are asked here; `llm-do chat` is the chat");
        terminal.expect_written("main: note {'text': 'x\\x1b[2Jy'}", 1);
        terminal.expect_written("run it? [y/a/n]", 1).press("a\n");
        // The same call is not asked about again, another one is.
        terminal.expect("main: note {'text': 'z'}").expect_written("run it? [y/a/n]", 2).press(second);
        terminal.expect(end);
        let left = terminal.left();
        assert_eq!(left.code, Some(0), "{}", left.screen);
        assert_eq!(left.written.matches("run it?").count(), 2, "{}", left.written);
        assert!(!left.written.contains("\u{1b}[2J"), "{}", left.written);
    }
}
