//! Python programs that run workers: the real interpreter, the real package, the real program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::python::{cache, with_pydantic_ai};
use crate::support::{Ended, Sandbox, wait_for_all};
use crate::{WRITER, sandbox};

pub fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm-do/python").canonicalize().unwrap()
}

/// A program, where every warning of Python is an error: a process or a pipe that is left to the collector is one.
pub fn command(sandbox: &Sandbox, source: &str) -> Command {
    sandbox.file("program.py", source);
    // Not in development mode, which complains of loops that are slow on a busy machine.
    python(sandbox, &["-W", "error", "program.py"])
}

/// An interpreter that finds the package and the program.
pub fn python(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(arguments).current_dir(sandbox.path()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", sandbox.path());
    command.env("XDG_CACHE_HOME", cache()).env("PYTHONPYCACHEPREFIX", cache().join("programs"));
    command.env("PYTHONPATH", package()).env("LLM_DO_BIN", env!("CARGO_BIN_EXE_llm-do"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a program prints that ends well; it leaves no process behind.
#[track_caller]
pub fn printed(sandbox: &Sandbox, source: &str) -> String {
    let Ended { code, stdout, stderr } = wait_for_all(&mut command(sandbox, source));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_eq!(left_in(sandbox.path()), [0; 0], "processes are left");
    stdout
}

/// The same with an interpreter that has the libraries.
#[track_caller]
pub fn printed_with_library(sandbox: &Sandbox, source: &str) -> String {
    let usual = command(sandbox, source);
    let mut command = Command::new(with_pydantic_ai());
    command.args(usual.get_args()).current_dir(sandbox.path()).env_clear();
    command.envs(usual.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ended { code, stdout, stderr } = wait_for_all(&mut command);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_eq!(left_in(sandbox.path()), [0; 0], "processes are left");
    stdout
}

/// The processes that work in this directory.
pub fn left_in(directory: &Path) -> Vec<u32> {
    let directory = directory.canonicalize().unwrap();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let numbers = entries.filter_map(number);
    numbers
        .filter(|number| std::fs::read_link(format!("/proc/{number}/cwd")).is_ok_and(|cwd| cwd == directory))
        .collect()
}

const FILES: &str = "toolsets: [filesystem_cwd]";

#[test]
fn a_worker_is_run_with_everything_that_the_signature_has() {
    let sandbox = sandbox(FILES, WRITER);
    sandbox.file("notes.md", "the notes");
    let printed = printed(
        &sandbox,
        r#"
from llm_do import ApprovalDecision, WorkerCreationDefaults, WorkerRegistry, run_worker

asked, events = [], []

def callback(tool_name, payload, reason):
    asked.append((tool_name, payload, reason, reason.preview, reason.path, reason.remember))
    return ApprovalDecision(approved=True, approve_for_session=True)

result = run_worker(
    registry=WorkerRegistry("main.worker"),
    worker="main",
    input_data={"input": "write"},
    attachments=["notes.md"],
    cli_model="openai:gpt-4",
    approval_callback=callback,
    message_callback=events.append,
    creation_defaults=WorkerCreationDefaults(default_model="openai:gpt-4"),
)
print(result.output)
print([message["role"] for message in result.messages], len(result.messages[0]["parts"]))
print(result.usage["total"]["requests"], list(result.usage["by_model"]))
print([(call["name"], [inner["name"] for inner in call["calls"]]) for call in result.trace])
print(asked)
print(events[0]["type"], events[-1]["type"], {"tool_called", "text_delta"} <= {event["type"] for event in events})
"#,
    );
    let expected = "\
Result: wrote 2 characters to out.txt
['user', 'assistant', 'tool', 'assistant'] 2
2 ['scripted:script.yaml']
[('main', ['write_file'])]
[('write_file', {'path': 'out.txt', 'content': 'hi'}, 'creates out.txt: 1 line added', '   1 + hi\\n       (no line break at the end)', ['main'], ['call', 'tool'])]
call_started call_finished True
";
    assert_eq!(printed, expected);
}

#[test]
fn async_programs_run_many_at_once_with_async_callbacks() {
    let sandbox = sandbox(FILES, WRITER);
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import ApprovalDecision, run_worker, run_worker_async

async def main():
    # Each question waits until every run has asked: only runs at the same time come to an end.
    barrier, waiting = asyncio.Event(), []

    async def callback(tool_name, payload, reason):
        waiting.append(tool_name)
        if len(waiting) == 3:
            barrier.set()
        await barrier.wait()
        return ApprovalDecision(approved=False, note="no")

    heard = []
    async def listen(event):
        await asyncio.sleep(0)
        heard.append(event["type"])

    runs = [run_worker_async("main.worker", None, "write", approval_callback=callback, message_callback=listen) for _ in range(3)]
    for result in await asyncio.gather(*runs):
        print(result.output)
    print(heard.count("call_finished"))
    # Without a loop of its own a call that waits still works.
    print(run_worker("main.worker", input_data="hello").output)

asyncio.run(main())
"#,
    );
    assert_eq!(printed, format!("{}3\nYou said hello\n", "Result: error: refused: no\n".repeat(3)));
}

#[test]
fn callbacks_decide_in_every_way() {
    let sandbox = sandbox(FILES, WRITER);
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import *

def run(callback, **more):
    try:
        return run_worker("main.worker", "main", "write", approval_callback=callback, **more).output
    except ApprovalError as error:
        assert isinstance(error, PermissionError) and (error.kind, error.exit_code) == ("approval", 4)
        return f"{error.message} {[call['tool'] for call in error.pending]}"

print(run(approve_all_callback))
print(run(strict_mode_callback))
print(run(lambda *_: strict_mode_callback(*_)))
print(run(None))
print(run(lambda *_: ApprovalDecision(approved=False, note="not today")))
print(run(lambda *_: ApprovalDecision(approved=True, arguments={"path": "b.txt", "content": "x"})).splitlines()[-1])
print(run(None, tool_rules={"write_file": {"allowed": True}}))
print(run(approve_all_callback, tool_rules={"write_file": ToolRule(allowed=False)}))

async def several():
    asked = []
    def once(tool_name, payload, reason):
        asked.append(payload["path"])
        return ApprovalDecision(approved=True, approve_for_session=True, for_tool=payload["path"] == "other.txt")
    async with start("main.worker", approval_callback=once) as scope:
        for input in ("write", "again", "other", "write"):
            await scope.run_turn(input)
    print(asked)
    # What a controller remembers holds for several runs, and its rules hold there too.
    asked.clear()
    controller = ApprovalController({"write_file": {"approval_required": True, "description": "ten years"}}, once)
    for _ in range(2):
        await run_worker_async("main.worker", None, "write", approval_callback=controller)
    print(asked)

asyncio.run(several())
"#,
    );
    let expected = "\
Result: wrote 2 characters to out.txt
`write_file` of main was refused: every question is answered with no in this run []
stopped: you answered q []
approval is needed for `write_file` of main ['write_file']
Result: error: refused: not today
wrote 1 characters to b.txt
Result: wrote 2 characters to out.txt
`write_file` of main was refused: blocked by `write_file: block` in the program that runs it []
['out.txt', 'other.txt']
['out.txt']
";
    assert_eq!(printed, expected);
}

#[test]
fn a_controller_runs_what_its_rules_allow() {
    let sandbox = Sandbox::new();
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import ApprovalController, ApprovalDecision, ApprovalError

asked = []
def callback(tool_name, payload, reason):
    asked.append((tool_name, reason))
    return ApprovalDecision(approved=payload != {"path": "no"}, approve_for_session=True, note="a note")

controller = ApprovalController(
    tool_rules={"free": {}, "kept": {"approval_required": True, "description": "it is kept"}, "never": {"allowed": False}},
    approval_callback=callback,
)

def attempt(tool_name, payload, controller=controller):
    try:
        return controller.maybe_run(tool_name=tool_name, payload=payload, func=lambda: "ran")
    except ApprovalError as error:
        return str(error)

print(attempt("free", {}), attempt("kept", {"path": "a"}), attempt("kept", {"path": "a"}), attempt("kept", {"path": "no"}))
print(attempt("never", {}), "|", attempt("unknown", {}), "|", attempt("free", {}, ApprovalController()))
print(asked)

async def later(tool_name, payload, reason):
    return ApprovalDecision(approved=True)

async def work():
    return "ran later"

patient = ApprovalController({"kept": {"approval_required": True}}, later)
print(asyncio.run(patient.maybe_run_async("kept", {}, work)))
for wrong in (lambda: patient.maybe_run("kept", {}, print), lambda: ApprovalController({}, lambda *_: True).maybe_run("x", {}, print)):
    try:
        wrong()
    except TypeError as error:
        print(error)
"#,
    );
    let expected = "\
ran ran ran `kept` was refused: a note
`never` is not allowed | ran | `free` was refused: nobody is there to ask
[('kept', 'it is kept'), ('kept', 'it is kept'), ('unknown', 'there is no rule for `unknown`')]
ran later
the approval callback is async: use maybe_run_async
an approval callback gives an ApprovalDecision, not True
";
    assert_eq!(printed, expected);
}

#[test]
fn workers_call_on_behalf_of_others_within_their_lists() {
    let sandbox = sandbox("allow_workers: [friend]", WRITER);
    for name in ["friend", "stranger"] {
        let keys = "model: scripted:script.yaml\ntoolsets: [filesystem_cwd]";
        sandbox.file(&format!("{name}.worker"), &format!("---\nname: {name}\n{keys}\n---\nx\n"));
    }
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import ApprovalController, ApprovalDecision, ApprovalError, LlmDoError, WorkerContext, WorkerRegistry, call_worker, call_worker_async

registry, paths = WorkerRegistry("."), []
def callback(tool_name, payload, reason):
    paths.append(reason.path)
    return ApprovalDecision(approved=True)

context = WorkerContext(registry, worker="main", depth=1, approval_controller=ApprovalController(approval_callback=callback))
result = call_worker(registry, "friend", "write", caller_context=context)
print(result.output, result.trace[0]["depth"], paths)
print(asyncio.run(call_worker_async(registry=registry, worker="friend", input_data="hi", caller_context=context)).output)
for worker, caller in (
    ("stranger", context),
    ("stranger", WorkerContext(registry, "main", allow_workers=["friend"])),
    ("friend", WorkerContext(registry, "main", depth=4)),
    ("friend", None),
):
    try:
        call_worker(registry, worker, "x", caller)
    except (LlmDoError, TypeError) as error:
        print(type(error).__name__, error)
"#,
    );
    let refused = "ApprovalError `main` may not call `stranger`\nhint: `allow_workers` says whom it may call: friend\n";
    let expected = format!(
        "Result: wrote 2 characters to out.txt 2 [['main', 'friend']]\nYou said hi\n{refused}{refused}\
         WorkerFailed agent `main` cannot call `friend`: that would be depth 5, and `max_depth` is 5\n\
         TypeError call_worker needs a caller_context: a tool's own context, or a WorkerContext\n"
    );
    assert_eq!(printed, expected);
}

#[test]
fn a_tool_calls_a_worker_in_its_own_run() {
    let sandbox = sandbox(
        "entry: true\ntools: [ask]\napproval: {ask: allow}",
        "\
- {agent: main, round: 1, call: {ask: {name: friend}}}
- {agent: main, round: 2, call: {ask: {name: nobody}}}
- {agent: main, say: '{{ result }}'}
- {say: 'I am {{ agent }}, {{ heard }}'}
",
    );
    sandbox.file("friend.worker", "---\nname: friend\nmodel: scripted:script.yaml\n---\nx\n");
    sandbox.file("notes.md", "the notes");
    let manifest =
        r#"{"version": 1, "entry": {}, "worker_files": ["main.worker", "friend.worker"], "python_files": ["kit.py"]}"#;
    sandbox.file("project.json", manifest).file(
        "kit.py",
        r#"
from llm_do import CallFailed, WorkerRegistry, call_worker, call_worker_async
from llm_do.runtime import CallContext

async def ask(ctx: CallContext, name: str) -> str:
    registry = WorkerRegistry(ctx.project_root)
    try:
        call_worker(registry, name, "x", ctx)
    except TypeError as error:
        print(error)
    result = await call_worker_async(registry, name, "hello", ctx, attachments=["notes.md"])
    print(result.output, result.usage["total"]["requests"])
    return result.output

TOOLS = [ask]
"#,
    );
    let printed = printed(
        &sandbox,
        r#"
from llm_do import run_worker
output = []
def listen(event):
    if event["type"] == "process_output":
        output.append(event["text"])
result = run_worker(".", message_callback=listen, trust=True)
print(result.output)
print([(call["name"], [inner["name"] for inner in call["calls"]]) for call in result.trace[0]["calls"]])
print("".join(output))
"#
        .replace("run_worker(\".\",", "run_worker(\".\", input_data=\"x\",")
        .as_str(),
    );
    assert!(printed.starts_with("error: CallFailed: there is no agent `nobody`; agents: friend, main"), "{printed}");
    assert!(printed.contains("[('ask', ['friend']), ('ask', [])]"), "the call is in the tree of the run: {printed}");
    assert!(printed.contains("within a run a call is awaited: use call_worker_async\nI am friend, hello"), "{printed}");
}

#[test]
fn workers_are_created_kept_and_run() {
    let sandbox = sandbox("", "- {say: 'I am {{ agent }}'}");
    sandbox.file("project.json", r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"]}"#);
    let printed = printed(
        &sandbox,
        r#"
from llm_do import AttachmentPolicy, UsageError, WorkerCreationDefaults, WorkerRegistry, WorkerSpec, create_worker, run_worker

registry = WorkerRegistry("project.json")
spec = WorkerSpec(name="new-worker", instructions="You are a helpful assistant.", description="A simple worker")
defaults = WorkerCreationDefaults(default_toolsets=["filesystem_cwd_ro"], default_attachment_policy=AttachmentPolicy(max_attachments=1))
definition = create_worker(registry=registry, spec=spec, defaults=defaults, force=False)
print(definition.name, definition.path, definition.toolsets, dict(definition.tool_rules))
print(definition.path.read_text())
try:
    create_worker(registry, spec, defaults)
except UsageError as error:
    print(error.kind, error)
print(create_worker(registry, WorkerSpec("new-worker", "Other.", model="ollama:qwen3"), force=True).model)
create_worker(registry, spec, defaults, force=True)
print(run_worker(registry, "new-worker", "hi", cli_model="scripted:script.yaml").output)
"#,
    );
    let expected = "\
new-worker workers/generated/new-worker.yaml ('filesystem_cwd_ro',) {}
name: \"new-worker\"
description: \"A simple worker\"
toolsets: [\"filesystem_cwd_ro\"]
attachment_policy: {max_attachments: 1}
instructions: \"You are a helpful assistant.\"

usage the agent `new-worker` exists; `force` replaces it
ollama:qwen3
I am new-worker
";
    assert_eq!(printed, expected);
}

#[test]
fn a_scope_takes_many_turns_and_is_closed_once() {
    let sandbox = sandbox(
        "attachment_policy: {max_attachments: 3}",
        "\
- {heard: fail, fail: give_up}
- {say: '{{ heard }} is reply {{ round }}'}
",
    );
    sandbox.file("notes.md", "the notes");
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import AttachmentPayload, UsageError, WorkerFailed, start
from llm_do.runtime import Attachment

async def main():
    async with start("main.worker", "main") as scope:
        print((await scope.run_turn("one")).output, scope.worker, scope.model)
        try:
            await scope.run_turn("fail")
        except WorkerFailed as error:
            print(error.kind, error.usage["total"]["requests"])
        files = ["notes.md", Attachment("notes.md"), AttachmentPayload("memory.txt", b"in memory")]
        turn = await scope.run_turn("two", attachments=files)
        print(turn.output.split()[0], len(turn.messages[0]["parts"]), len(scope.messages), turn.trace)
    await scope.close()
    print(len(scope.trace), scope.usage["total"]["requests"])
    try:
        await scope.run_turn("three")
    except UsageError as error:
        print(error)
    scope = await start("main.worker")
    print((await scope.run_turn(["four"])).output)
    await scope.close()

asyncio.run(main())
"#,
    );
    let expected = "\
one is reply 1 main scripted:script.yaml
failed 1
two 4 4 []
1 2
the scope is closed
four is reply 1
";
    assert_eq!(printed, expected);
}

#[test]
fn errors_are_classes_with_kinds_and_hints() {
    let script = "- {heard: fail, fail: give_up, say: broken}\n- {heard: cut, say: Half, finish: length}\n- say: ok";
    let sandbox = sandbox("", script);
    sandbox.file("broken.worker", "---\nname: broken\nmodel: ollama:q\ntolsets: [x]\n---\nx\n");
    sandbox.file("keyless.worker", "---\nname: keyless\nmodel: anthropic:claude-haiku-4-5\n---\nx\n");
    sandbox.file(
        "typed.worker",
        "---\nname: typed\nmodel: scripted:script.yaml\nschema_out: {type: object, required: [a]}\n---\nx\n",
    );
    let printed = printed(
        &sandbox,
        r#"
from llm_do import *

for registry, input, more in (
    ("main.worker", "fail", {}),
    ("main.worker", None, {}),
    ("nowhere", "x", {}),
    ("broken.worker", "x", {}),
    ("keyless.worker", "x", {}),
    ("typed.worker", "x", {}),
    ("main.worker", "cut", {}),
    ("main.worker", "x", {"limits": {"max_input_tokens": 1}}),
    ("main.worker", "x", {"limits": {"max_reqests": 1}}),
    ("main.worker", "x", {"tool_rules": {"write": {}}}),
):
    try:
        run_worker(registry, None, input, **more)
    except LlmDoError as error:
        print(type(error).__name__, error.kind, error.exit_code, error.hint is not None, error.finish)
"#,
    );
    let expected = "\
WorkerFailed failed 1 False None
UsageError usage 2 True None
ProjectError project 2 False None
ProjectError project 2 False None
ProviderError provider 3 True None
OutputInvalid output 6 False None
WorkerFailed failed 1 True length
LimitReached limit 5 True None
UsageError usage 2 False None
UsageError usage 2 True None
";
    assert_eq!(printed, expected);
}

#[test]
fn a_callback_that_raises_ends_the_run_with_its_own_exception() {
    let sandbox = sandbox(FILES, WRITER);
    let printed = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import ApprovalDecision, run_worker, start

class Mine(Exception):
    pass

def raises(*_):
    raise Mine("from a callback")

async def raises_later(*_):
    raise Mine("from an async callback")

for callback in (raises, raises_later):
    for name in ("approval_callback", "message_callback"):
        try:
            run_worker("main.worker", None, "write", **{name: callback})
        except Mine as error:
            print(name, error)
try:
    run_worker("main.worker", None, "write", approval_callback=lambda *_: "yes")
except TypeError as error:
    print(error)

async def goes_on():
    answers = [Mine("once"), ApprovalDecision(approved=True)]
    def callback(*_):
        answer = answers.pop(0)
        if isinstance(answer, Mine):
            raise answer
        return answer
    async with start("main.worker", approval_callback=callback) as scope:
        try:
            await scope.run_turn("write")
        except Mine as error:
            print(error)
        print((await scope.run_turn("write")).output)

asyncio.run(goes_on())
"#,
    );
    let expected = "\
approval_callback from a callback
message_callback from a callback
approval_callback from an async callback
message_callback from an async callback
an approval callback gives an ApprovalDecision, not 'yes'
once
Result: wrote 2 characters to out.txt
";
    assert_eq!(printed, expected);
}

#[test]
fn a_program_that_names_a_project_agrees_to_it_unless_it_says_otherwise() {
    let sandbox = Sandbox::new();
    sandbox.file("project.json", r#"{"version": 1, "entry": {}, "python_files": ["start.py"]}"#).file(
        "start.py",
        "from llm_do.runtime import EntrySpec\n\
         start = EntrySpec(name='start', main=lambda args, ctx: args.input.upper())\n",
    );
    let source = r#"
from llm_do import ApprovalError, WorkerRegistry, run_worker

for registry, trust in ((".", False), (WorkerRegistry(".", trust=False), None)):
    try:
        run_worker(registry, None, "hi", trust=trust)
    except ApprovalError as error:
        digest = error.digest
        print(error.message, [(item["class"], item["words"]) for item in error.untrusted], len(digest))
for registry, trust in ((".", None), (WorkerRegistry("."), None), (WorkerRegistry(".", trust=digest), None), (".", True)):
    print(run_worker(registry, None, "hi", trust=trust).output)
"#;
    let ended = wait_for_all(&mut command(&sandbox, source));
    assert_eq!(ended.stderr, "");
    let others = "('run', 'program.py of this project, if it is imported')";
    let refused = format!("the project is not trusted [('run', 'start.py of this project'), {others}] 32");
    assert_eq!(ended.stdout, format!("{refused}\n{refused}\nHI\nHI\nHI\nHI\n"));
    assert!(!sandbox.path().join(".local/state/llm-do/trust").exists(), "nothing is kept");
}

#[test]
fn importing_the_package_imports_nothing_that_is_not_used() {
    let sandbox = Sandbox::new();
    let source = "import sys, llm_do\n\
                  print([name for name in ('asyncio', 'subprocess', 'pydantic', 'pydantic_ai') if name in sys.modules])\n\
                  from llm_do import *\nimport llm_do.workers\n\
                  print([name for name in ('pydantic', 'pydantic_ai') if name in sys.modules])\n\
                  print(all(hasattr(llm_do, name) for name in llm_do.__all__), hasattr(llm_do, 'nothing'))\n";
    let ended = wait_for_all(&mut python(&sandbox, &["-c", source]));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("[]\n[]\nTrue False\n", ""));
}

#[test]
fn a_name_that_there_was_says_what_has_taken_its_place() {
    let sandbox = Sandbox::new();
    let source = r#"
import importlib.util, llm_do
for line in (
    "from llm_do import Worker",
    "from llm_do.runtime import WorkerInput",
    "from llm_do.toolsets import WorkerToolset",
    "from llm_do import registry",
    "import llm_do.registry",
    "from llm_do.runtime.contracts import AgentSpec",
    "llm_do.Worker",
    "llm_do.nothing",
    "from llm_do import nothing",
    "import llm_do.nothing",
):
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, str(error).partition(" (")[0])
from llm_do import project, runtime
print(hasattr(llm_do, "nothing"), getattr(llm_do.runtime, "nothing", 7), importlib.util.find_spec("llm_do.nothing"))
"#;
    let ended = wait_for_all(&mut python(&sandbox, &["-c", source]));
    let expected = "\
ImportError cannot import name 'Worker' from 'llm_do': its successor is AgentSpec of llm_do.runtime
ImportError cannot import name 'WorkerInput' from 'llm_do.runtime': its successor is PromptInput of llm_do.runtime
ImportError cannot import name 'WorkerToolset' from 'llm_do.toolsets': its successor is agent_as_toolset of llm_do.toolsets.agent
ImportError cannot import name 'registry' from 'llm_do': its successor is llm_do.workers
ModuleNotFoundError No module named 'llm_do.registry': its successor is llm_do.workers
ModuleNotFoundError No module named 'llm_do.runtime.contracts': its successor is llm_do.runtime
ImportError cannot import name 'Worker' from 'llm_do': its successor is AgentSpec of llm_do.runtime
AttributeError module 'llm_do' has no attribute 'nothing': docs/python-api.md lists every name that there is
ImportError cannot import name 'nothing' from 'llm_do'
ModuleNotFoundError No module named 'llm_do.nothing'
False 7 None
";
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), (expected, ""));
}
