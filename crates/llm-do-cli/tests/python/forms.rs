//! The forms in which projects of the Python llm-do are written, each as it was.

use crate::python::with_pydantic_ai;
use crate::session::Run;
use crate::support::Sandbox;
use crate::{calls, project, python, run, run_pydantic};

fn manifest(sandbox: &Sandbox, more: &str) {
    sandbox.file(
        "project.json",
        &format!(
            r#"{{"version": 1, "entry": {{}}, "worker_files": ["main.worker"], "python_files": ["kit.py"]{more}}}"#
        ),
    );
}

#[test]
fn a_tool_without_a_context_is_a_tool_of_a_toolset() {
    let kit = "\
from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset
from llm_do.runtime import CallContext
from llm_do.toolsets.approval import set_toolset_approval_config

greetings = FunctionToolset()

@greetings.tool
def greet(name: str) -> str:
    \"\"\"Greets.\"\"\"
    return f'Hello {name}'

@greetings.tool(name='bye')
def part(name: str) -> str:
    return f'Bye {name}'

@greetings.tool
async def relay(ctx: RunContext[CallContext], name: str) -> str:
    return await ctx.deps.call_agent('helper', {'input': name})

set_toolset_approval_config(greetings, {'greet': {'pre_approved': True}, 'bye': {'pre_approved': True}, 'relay': {'pre_approved': True}})
TOOLSETS = {'greetings': greetings}
";
    let script = "\
- { agent: helper, say: 'helped {{ heard }}' }
- { agent: main, round: 1, call: [{ greet: { name: Ann } }, { bye: { name: Bob } }, { relay: { name: Cid } }] }
- say: \"{{ result }}\"
";
    let main = "entry: true\ntoolsets: [greetings]";
    let sandbox = project(&[("main", main), ("helper", "")], &[("kit.py", kit)], script);
    assert_eq!(run_pydantic(&sandbox, &["-q"]).answer(), "Hello Ann\nBye Bob\nhelped Cid\n");
    // What needs no question is an item of trust.
    let listed = Run::of(&sandbox, &["check", ".", "-m", "scripted:script.yaml", "--python", with_pydantic_ai()])
        .with("XDG_CACHE_HOME", python::cache().to_str().unwrap())
        .ended();
    assert!(listed.stdout.contains("kit.py"), "{listed:?}");
}

#[test]
fn toolsets_are_made_by_specs_and_listed_by_name() {
    let kit = "\
from pydantic_ai.toolsets import FunctionToolset
from llm_do.runtime import CallContext
from llm_do.toolsets.loader import ToolsetSpec
from llm_do.toolsets.filesystem import FileSystemToolset

made = []
def build(ctx):
    toolset = FunctionToolset()
    made.append(ctx.deps.agent if hasattr(ctx, 'deps') else ctx.agent)
    @toolset.tool
    def first() -> str:
        return f'first of {made[-1]}'
    return toolset

def build_other():
    toolset = FunctionToolset()
    @toolset.tool
    def second() -> str:
        return 'second'
    return toolset

def third() -> str:
    return 'third'

TOOLS = [third]
TOOLSETS = {
    'one': ToolsetSpec(factory=build),
    'two': ToolsetSpec(factory=build_other),
    'files': ToolsetSpec(factory=lambda: FileSystemToolset(config={'base_path': '.', 'read_approval': False, 'write_approval': True})),
}
";
    let main = "entry: true\ntools: [third]\ntoolsets: [one, two, files]\napproval: { first: allow, second: allow, third: allow }";
    let script = calls(&["[{ first: {} }, { second: {} }, { third: {} }, { list_files: { pattern: '*.txt' } }]"]);
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &script);
    sandbox.file("there.txt", "x");
    let said = run_pydantic(&sandbox, &["-q"]).answer();
    assert!(said.starts_with("first of main\nsecond\nthird\n") && said.contains("there.txt"), "{said}");
    let wrong = kit.replace("'base_path'", "'base'");
    let sandbox = project(&[("main", main)], &[("kit.py", &wrong)], &script);
    let said = run_pydantic(&sandbox, &["-q"]).failure(2);
    assert!(said.contains("`config` of FileSystemToolset has `base`; there are: base_path"), "{said}");
}

#[test]
fn entries_and_their_inputs_are_written_in_either_words() {
    let common = "\
from llm_do.runtime import AgentArgs, EntrySpec, FunctionEntry, PromptContent
from llm_do.runtime.args import get_display_text

class Topic(AgentArgs):
    topic: str
    def prompt_messages(self) -> list[PromptContent]:
        return [f'About {self.topic}.']

async def start(input_data, runtime):
    said = await runtime.call_agent('main', input_data)
    return f'{get_display_text(input_data)} | {input_data.prompt_messages()} | {said}'
";
    for (entry, input) in [
        ("ENTRY = EntrySpec(name='start', main=start, schema_in=Topic)", r#"{"topic": "ferns"}"#),
        ("ENTRY = FunctionEntry(name='start', fn=start, input_model=Topic)", r#"{"topic": "ferns"}"#),
    ] {
        let kit = format!("{common}\n{entry}\n");
        let sandbox = project(&[("main", "")], &[("kit.py", &kit)], "- say: 'heard {{ heard }}'\n");
        let words =
            [".", "--trust", "-q", "-m", "scripted:script.yaml", "--python", with_pydantic_ai(), "--input-json", input];
        let said = Run::new(&sandbox, &words).with("XDG_CACHE_HOME", python::cache().to_str().unwrap()).answer();
        assert_eq!(said, "About ferns. | ['About ferns.'] | heard About ferns.\n", "{entry}");
    }
}

#[test]
fn agents_of_a_file_use_toolsets_by_their_built_in_names_and_each_other_under_another_name() {
    let kit = "\
import os
from pathlib import Path
from llm_do.project import build_host_toolsets
from llm_do.runtime import AgentSpec
from llm_do.toolsets.agent import agent_as_toolset
from llm_do.toolsets.builtins import build_builtin_toolsets

ROOT = Path(__file__).parent
reader = AgentSpec(name='reader', instructions='Read.', toolsets=[build_host_toolsets(Path.cwd(), ROOT)['filesystem_project']])
boss = AgentSpec(
    name='boss', instructions='Ask.', entry=True,
    toolsets=[build_builtin_toolsets(Path.cwd(), ROOT)['filesystem_project_ro'], agent_as_toolset(reader, tool_name='look')],
)
";
    let script = "\
- { agent: look, round: 1, call: { read_file: { path: there.txt } } }
- { agent: look, say: '{{ result }}' }
- { agent: boss, round: 1, call: [{ look: { input: please } }, { list_files: { pattern: '*.txt' } }] }
- say: \"{{ result }}\"
";
    let sandbox = project(&[], &[("kit.py", kit)], script);
    sandbox.file("there.txt", "what is there");
    let said = run(&sandbox, &["-q"]).answer();
    assert!(said.contains("what is there") && said.contains("there.txt"), "{said}");
    let elsewhere = kit.replace("ROOT = Path(__file__).parent", "ROOT = Path('/')");
    let sandbox = project(&[], &[("kit.py", &elsewhere)], script);
    let said = run(&sandbox, &["-q"]).failure(2);
    assert!(said.contains("was built for the project root /, and this one is"), "{said}");
}

#[test]
fn a_variable_that_is_not_named_is_hinted_at() {
    let kit = "\
import os
def search(query: str) -> str:
    return os.environ['SEARCH_KEY']
def other() -> str:
    return {}['SEARCH_KEY']
TOOLS = [search, other]
";
    let main = "entry: true\ntools: [search, other]\napproval: { search: allow, other: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ search: { query: x } }"]));
    let said = run(&sandbox, &["-q"]).with("SEARCH_KEY", "17").answer();
    let hint =
        "code of a project sees the variables that its manifest names, if they are set: \"env\": [\"SEARCH_KEY\"]";
    assert_eq!(said, format!("error: KeyError: 'SEARCH_KEY' (kit.py:3 in search); {hint}\n"));
    manifest(&sandbox, r#", "env": ["SEARCH_KEY"]"#);
    assert_eq!(run(&sandbox, &["-q"]).with("SEARCH_KEY", "17").answer(), "17\n");
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ other: {} }"]));
    assert_eq!(run(&sandbox, &["-q"]).answer(), "error: KeyError: 'SEARCH_KEY' (kit.py:5 in other)\n");
    let early = format!("import os\nKEY = os.environ['SEARCH_KEY']\n{kit}");
    let sandbox = project(&[("main", main)], &[("kit.py", &early)], "- say: x\n");
    let said = run(&sandbox, &["-q"]).with("SEARCH_KEY", "17").failure(2);
    assert!(said.contains(hint) && said.contains("kit.py:2"), "{said}");
}

#[test]
fn what_is_elsewhere_now_is_said_where_it_is_missed() {
    for (line, hint) in [
        ("from llm_do.ui.runner import run_ui", "its successor is llm_do.ui"),
        ("import llm_do.runtime.worker_file", "its successor is worker files, and llm_do.AgentSpec for values"),
        ("from llm_do.runtime.contracts import AgentSpec", "its successor is llm_do.runtime"),
        ("import llm_do.nowhere", "docs/coming-from-python.md says what became of it"),
        ("from llm_do.runtime import WorkerInput", "its successor is PromptInput of llm_do.runtime"),
        ("from llm_do import nothing_of_it", "docs/python-api.md lists every name that there is"),
    ] {
        let sandbox = project(&[("main", "entry: true")], &[("kit.py", line)], "- say: x\n");
        let said = run(&sandbox, &["-q"]).failure(2);
        assert!(said.contains(hint) && !said.contains("pip install"), "{line}: {said}");
    }
    let sandbox = project(&[("main", "entry: true")], &[("kit.py", "import some_library")], "- say: x\n");
    assert!(run(&sandbox, &["-q"]).failure(2).contains("-m pip install 'some_library'"));
    // What is there already is not to be installed.
    let sandbox = project(&[("main", "entry: true")], &[("kit.py", "import json.newer")], "- say: x\n");
    let said = run(&sandbox, &["-q"]).failure(2);
    assert!(said.contains("`json` is there, in a version that does not have it"), "{said}");
}

#[test]
fn an_old_library_is_named_with_its_version() {
    let needs = "llm-do needs PydanticAI 2.66 or newer, found 1.26: ";
    for (kit, main) in [
        ("from pydantic_ai import FunctionToolset\nkit = FunctionToolset()\n", "entry: true\ntoolsets: [kit]"),
        ("from pydantic_ai import Something\n", "entry: true"),
        // What it needs itself is there, but not as it was in its time.
        ("from pydantic_ai.messages import Something\n", "entry: true"),
        ("from pydantic_ai.tools import Tool\nTOOLS = [Tool()]\n", "entry: true\ntools: [old]"),
    ] {
        let sandbox = project(&[("main", main)], &[("kit.py", kit)], "- say: x\n");
        manifest(&sandbox, "");
        sandbox.file("pydantic_ai/__init__.py", "from pydantic_ai.toolsets import FunctionToolset\n");
        sandbox.file(
            "pydantic_ai/toolsets.py",
            "class AbstractToolset: pass\nclass FunctionToolset(AbstractToolset): pass\n",
        );
        sandbox.file("pydantic_ai/messages.py", "from json.older import Something\n");
        sandbox.file("pydantic_ai/tools.py", "class Tool:\n    name = 'old'\n");
        sandbox.file(
            "pydantic_ai_slim-1.26.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: pydantic-ai-slim\nVersion: 1.26.0\n",
        );
        let ended = run(&sandbox, &["-q"]).ended();
        assert!(ended.code != Some(0) && ended.stderr.contains(needs), "{kit}: {ended:?}");
    }
}
