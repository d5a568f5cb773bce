//! Toolsets: those of the library as they are, and ours configured in Python.

use crate::session::of_type;
use crate::{calls, project, run, run_pydantic};

/// A toolset with state that tells of its life.
const COUNTER: &str = "\
from pydantic_ai import FunctionToolset
from llm_do.runtime import ToolsetSpec
from llm_do.toolsets.approval import set_toolset_approval_config

class Counter(FunctionToolset):
    def __init__(self, name, step=1):
        super().__init__(id=name)
        self.name, self.value, self.step = name, 0, step
        self.add_function(self.bump, name=f'bump_{name}')

    def bump(self, by: int = 1) -> int:
        '''Counts.'''
        self.value += by * self.step
        return self.value

    async def __aenter__(self):
        print('enter', self.name)
        return self

    async def __aexit__(self, *args):
        print('exit', self.name)

    async def cleanup(self):
        print('cleanup', self.name, self.value)

def made(name, **more):
    counter = Counter(name, **more)
    return set_toolset_approval_config(counter, {f'bump_{name}': {'pre_approved': True}})
";

fn printed(events: &[serde_json::Value]) -> Vec<String> {
    of_type(events, "process_output").iter().map(|event| event["text"].as_str().unwrap().trim().to_owned()).collect()
}

#[test]
fn a_toolset_is_made_for_each_call_and_closed_in_reverse_order() {
    let kit = format!(
        "{COUNTER}
a = ToolsetSpec(factory=lambda: made('a'))
async def make_b(ctx):
    print('for', ctx.deps.agent, ctx.deps.depth, ctx.deps.model)
    return made('b', step=10)
TOOLSETS = {{'a': a, 'b': make_b}}
"
    );
    let script = "\
- { agent: main, round: 1, call: { bump_a: { by: 2 } } }
- { agent: main, round: 2, call: { bump_b: {}, bump_a: {} } }
- { agent: main, round: 3, call: { child: { input: go } } }
- { agent: child, round: 1, call: { bump_a: {} } }
- say: \"{{ result }}\"
";
    let workers = [("main", "entry: true\ntoolsets: [a, b, child]"), ("child", "toolsets: [a]")];
    let sandbox = project(&workers, &[("kit.py", &kit)], script);
    let (events, result) = run_pydantic(&sandbox, &["--json"]).events();
    let mut results: Vec<&str> =
        of_type(&events, "tool_returned").iter().map(|event| event["result"].as_str().unwrap()).collect();
    // Calls of one reply run together: either may be done first.
    results[1..3].sort_unstable();
    assert_eq!(results, ["2", "10", "3", "1"], "a child has an instance of its own: {result}");
    let life = [
        "enter a",
        "for main 0 scripted:script.yaml",
        "enter b",
        "enter a",
        "exit a",
        "cleanup a 1",
        "exit b",
        "cleanup b 10",
        "exit a",
        "cleanup a 3",
    ];
    assert_eq!(printed(&events), life);
}

/// Rules belong to an agent and a toolset together: one agent's do not reach another, whoever comes first.
#[test]
fn two_agents_use_one_python_toolset_under_different_rules() {
    let kit = "\
from pydantic_ai import FunctionToolset
kit = FunctionToolset()
@kit.tool_plain
def act() -> str:
    return 'acted'
";
    let script = "\
- { agent: main, round: 1, call: { free: { input: go } } }
- { agent: main, round: 2, call: { bound: { input: go } } }
- { agent: main, round: 3, call: { free: { input: go } } }
- { agent: main, say: 'and at last {{ result }}' }
- { round: 1, call: { act: {} } }
- say: \"{{ result }}\"
";
    let workers = [
        ("main", "entry: true\ntoolsets: [free, bound]"),
        ("free", "toolsets: [kit]\napproval: { act: allow }"),
        ("bound", "toolsets: [kit]\napproval: { act: block }"),
    ];
    let sandbox = project(&workers, &[("kit.py", kit)], script);
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {}, "worker_files": ["main.worker", "free.worker", "bound.worker"],
            "python_files": ["kit.py"], "runtime": {"return_permission_errors": true}}"#,
    );
    let (events, result) = run_pydantic(&sandbox, &["--json"]).events();
    assert_eq!(result["output"], "and at last acted", "{result}");
    let refused = of_type(&events, "tool_refused");
    assert_eq!(refused.len(), 1, "{events:?}");
    assert_eq!((&refused[0]["agent"], &refused[0]["tool"]), (&"bound".into(), &"act".into()));
}

#[test]
fn toolsets_of_a_module_and_tool_objects_are_found_by_their_names() {
    let kit = "\
from pydantic import BaseModel, Field
from pydantic_ai import FunctionToolset, Tool, ToolReturn, BinaryContent
from llm_do.toolsets.approval import set_toolset_approval_config

class Size(BaseModel):
    width: int = Field(gt=0)

def area(size: Size) -> dict:
    '''Area of a square.'''
    return {'area': size.width ** 2}

shapes = FunctionToolset([Tool(area, name='square', sequential=True)])
set_toolset_approval_config(shapes, {'square': {'pre_approved': True}})

def picture() -> ToolReturn:
    return ToolReturn(return_value='a dot', content=['seen'])

TOOLS = [Tool(picture, name='draw')]
";
    let main = "entry: true\ntools: [draw]\ntoolsets: [shapes]\napproval: { draw: allow }";
    let cases = [
        ("{ square: { size: { width: 3 } } }", "{\"area\":9}\n"),
        ("{ square: { size: { width: \"4\" } } }", "{\"area\":16}\n"),
        ("{ square: { size: { width: 0 } } }", "error: invalid arguments: `width`: Input should be greater than 0\n"),
        ("{ draw: {} }", "a dot\nseen\n"),
    ];
    for (call, answer) in cases {
        let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&[call]));
        assert_eq!(run_pydantic(&sandbox, &["-q"]).answer(), answer, "{call}");
    }
}

#[test]
fn a_toolset_decides_about_each_call_and_describes_it() {
    let kit = "\
from pydantic_ai import FunctionToolset
from pydantic_ai_blocking_approval import ApprovalResult
from llm_do.runtime import ToolsetSpec

class Vault(FunctionToolset):
    def __init__(self):
        super().__init__()
        self.add_function(self.take, name='take')
    def take(self, amount: int) -> str:
        return f'took {amount}'
    async def needs_approval(self, name, tool_args, ctx, config):
        if tool_args['amount'] > 100:
            return ApprovalResult.blocked('that is too much')
        return ApprovalResult.pre_approved() if tool_args['amount'] < 10 else ApprovalResult.needs_approval()
    def get_approval_description(self, name, tool_args, ctx):
        return f\"take {tool_args['amount']} coins\"
vault = ToolsetSpec(factory=Vault)
";
    let of = |amount: u32| {
        let script = calls(&[&format!("{{ take: {{ amount: {amount} }} }}")]);
        project(&[("main", "entry: true\ntoolsets: [vault]")], &[("kit.py", kit)], &script)
    };
    assert_eq!(run_pydantic(&of(5), &["-q"]).answer(), "took 5\n");
    assert_eq!(run_pydantic(&of(50), &["-q", "--approve-all"]).answer(), "took 50\n");
    assert!(run_pydantic(&of(50), &["-q"]).failure(4).contains("waiting for approval"));
    assert!(run_pydantic(&of(500), &["-q", "--approve-all"]).failure(4).contains("that is too much"));
}

#[test]
fn an_approval_toolset_is_asked_for_at_the_gate_instead_of_its_callback() {
    let kit = "\
from pydantic_ai import FunctionToolset
from pydantic_ai_blocking_approval import ApprovalResult, ApprovalToolset, needs_approval_from_config
from llm_do.runtime import ToolsetSpec

def never(request):
    raise RuntimeError('its own callback was called')

def look() -> str:
    return 'looked'
def send(to: str) -> str:
    return f'sent to {to}'

class Post(FunctionToolset):
    def needs_approval(self, name, tool_args, ctx, config):
        base = needs_approval_from_config(name, config)
        if name == 'send' and tool_args['to'] == 'everybody':
            return ApprovalResult.blocked('too many')
        return base

plain = ApprovalToolset(FunctionToolset([look, send]), never, config={'look': {'pre_approved': True}})
post = ToolsetSpec(factory=lambda: ApprovalToolset(Post([look, send]), never, config={'look': {'pre_approved': True}}))
TOOLSETS = {'plain': plain, 'post': post}
";
    for (toolset, call, flags, code, words) in [
        ("plain", "{ look: {} }", &[][..], 0, "looked"),
        ("plain", "{ send: { to: me } }", &[], 4, "waiting for approval"),
        ("plain", "{ send: { to: me } }", &["--approve-all"], 0, "sent to me"),
        ("post", "{ look: {} }", &[], 0, "looked"),
        ("post", "{ send: { to: me } }", &["--approve-all"], 0, "sent to me"),
        ("post", "{ send: { to: everybody } }", &["--approve-all"], 4, "too many"),
    ] {
        let main = format!("entry: true\ntoolsets: [{toolset}]");
        let sandbox = project(&[("main", &main)], &[("kit.py", kit)], &calls(&[call]));
        let ended = run_pydantic(&sandbox, &[&["-q"], flags].concat()).ended();
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(code), "{toolset} {call}: {said}");
        assert!(said.contains(words), "{toolset} {call}: {said}");
    }
}

#[test]
fn code_that_finds_out_that_it_needs_an_approval_is_asked_about_then() {
    let kit = "\
from pydantic_ai import ApprovalRequired, FunctionToolset, RunContext
from llm_do.toolsets.approval import set_toolset_approval_config
kit = FunctionToolset()
@kit.tool
def send(ctx: RunContext[None], to: str) -> str:
    if to != 'me' and not ctx.tool_call_approved:
        raise ApprovalRequired()
    return f'sent to {to}'
set_toolset_approval_config(kit, {'send': {'pre_approved': True}})
";
    let of = |to: &str| {
        let script = calls(&[&format!("{{ send: {{ to: {to} }} }}")]);
        project(&[("main", "entry: true\ntoolsets: [kit]")], &[("kit.py", kit)], &script)
    };
    assert_eq!(run_pydantic(&of("me"), &["-q"]).answer(), "sent to me\n");
    assert!(run_pydantic(&of("you"), &["-q"]).failure(4).contains("waiting for approval"));
    assert_eq!(run_pydantic(&of("you"), &["-q", "--approve-all"]).answer(), "sent to you\n");
}

#[test]
fn our_own_toolsets_are_configured_in_python_and_run_in_llm_do() {
    let kit = "\
from llm_do.runtime import ToolsetSpec
from llm_do.toolsets import FileSystemToolset, ReadOnlyFileSystemToolset
from llm_do.toolsets.approval import set_toolset_approval_config
notes = ReadOnlyFileSystemToolset('notes', suffixes=['.md'])
drafts = ToolsetSpec(factory=lambda: set_toolset_approval_config(FileSystemToolset('.'), {'write_file': {'pre_approved': True}}))
";
    let files = [("kit.py", kit), ("notes/a.md", "hello"), ("notes/b.txt", "no")];
    let cases = [
        ("notes", "{ read_file: { path: a.md } }", "\"content\":\"hello\""),
        ("notes", "{ read_file: { path: ../kit.py } }", "error: "),
        ("notes", "{ write_file: { path: a.md, content: x } }", "error: there is no tool `write_file`"),
        ("drafts", "{ write_file: { path: new.txt, content: x } }", "new.txt"),
    ];
    for (toolset, call, words) in cases {
        let sandbox = project(&[("main", &format!("entry: true\ntoolsets: [{toolset}]"))], &files, &calls(&[call]));
        let said = run(&sandbox, &["-q"]).answer();
        assert!(said.contains(words), "{toolset} {call}: {said}");
    }
}

#[test]
fn files_ask_as_their_configuration_in_python_says() {
    let kit = "\
from llm_do.toolsets import FileSystemToolset, ReadOnlyFileSystemToolset
usual = FileSystemToolset('data')
free = FileSystemToolset('data', write_approval=False)
careful = FileSystemToolset('data', read_approval=True)
looks = ReadOnlyFileSystemToolset(base_path='data', read_approval=True)
";
    let files = [("kit.py", kit), ("data/a.md", "hello")];
    let (read, write) = ("{ read_file: { path: a.md } }", "{ write_file: { path: b.md, content: x } }");
    for (toolset, call, code) in [
        ("usual", read, 0),
        ("usual", write, 4),
        ("free", read, 0),
        ("free", write, 0),
        ("careful", read, 4),
        ("careful", write, 4),
        ("looks", read, 4),
    ] {
        let sandbox = project(&[("main", &format!("entry: true\ntoolsets: [{toolset}]"))], &files, &calls(&[call]));
        let ended = run(&sandbox, &["-q"]).ended();
        assert_eq!(ended.code, Some(code), "{toolset} {call}: {}", ended.stderr);
    }
}

#[test]
fn commands_are_configured_in_python_and_run_in_llm_do() {
    let kit = "\
from llm_do.runtime import ToolsetSpec
from llm_do.toolsets import ShellToolset
rules = [
    {'pattern': 'cat', 'approval': 'allow'},
    {'pattern': 'ls', 'approval': 'ask'},
    {'pattern': 'mv', 'approval': 'block'},
]
sh = ToolsetSpec(factory=lambda: ShellToolset(rules))
asking = ShellToolset(rules, default='ask')
";
    let files = [("kit.py", kit), ("a.txt", "hello")];
    for (toolset, command, code, words) in [
        ("sh", "cat a.txt", 0, "\"stdout\":\"hello\""),
        ("sh", "ls", 4, "waiting for approval"),
        ("sh", "mv a.txt b.txt", 4, "was refused"),
        ("sh", "head a.txt", 0, "is not among the commands here"),
        ("sh", "cat a.txt; ls", 0, "error: "),
        ("asking", "head a.txt", 4, "waiting for approval"),
    ] {
        let call = format!("{{ shell: {{ command: '{command}' }} }}");
        let sandbox = project(&[("main", &format!("entry: true\ntoolsets: [{toolset}]"))], &files, &calls(&[&call]));
        let ended = run(&sandbox, &["-q"]).with("PATH", "/usr/bin:/bin").ended();
        let said = format!("{}{}", ended.stdout, ended.stderr);
        // Where the kernel has no fence, what rules allow asks.
        if said.contains("without a fence") {
            continue;
        }
        assert_eq!(ended.code, Some(code), "{toolset} {command}: {said}");
        assert!(said.contains(words), "{toolset} {command}: {said}");
    }
}

#[test]
fn binary_results_reach_the_model_as_files() {
    let kit = "\
from pydantic_ai import BinaryContent, ToolReturn
PIXEL = bytes.fromhex('89504e470d0a1a0a0000000d4948445200000001000000010806000000')
def picture() -> BinaryContent:
    return BinaryContent(data=PIXEL, media_type='image/png')
def album() -> list:
    return ['two of them', BinaryContent(data=PIXEL, media_type='image/png'), BinaryContent(data=b'%PDF-1.4', media_type='application/pdf')]
def noted() -> ToolReturn:
    return ToolReturn(return_value='a dot', content=['look:', BinaryContent(data=PIXEL, media_type='image/png')])
TOOLS = [picture, album, noted]
";
    let main = "entry: true\ntools: [picture, album, noted]\napproval: { picture: allow, album: allow, noted: allow }";
    for (tool, kinds) in [
        ("picture", &["image/png"][..]),
        ("album", &["text", "image/png", "application/pdf"]),
        ("noted", &["text", "text", "image/png"]),
    ] {
        let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&[&format!("{{ {tool}: {{}} }}")]));
        let (_, result) = run_pydantic(&sandbox, &["--json"]).events();
        let content = &result["messages"][2]["parts"][0]["content"];
        let found = content.as_array().unwrap_or_else(|| panic!("{result}")).iter();
        let found: Vec<&str> = found.map(|part| part["media_type"].as_str().unwrap_or("text")).collect();
        assert_eq!(found, kinds, "{tool}: {content}");
    }
}

#[test]
fn a_call_that_is_dropped_still_cleans_up() {
    let kit = format!(
        "{COUNTER}
import asyncio
class Stuck(Counter):
    async def bump(self) -> int:
        await asyncio.Event().wait()
def stuck():
    toolset = Stuck('stuck')
    return set_toolset_approval_config(toolset, {{'bump_stuck': {{'pre_approved': True}}}})
a = ToolsetSpec(factory=lambda: made('a'))
s = ToolsetSpec(factory=stuck)
"
    );
    let script = "\
- { agent: main, call: { child: { input: go } } }
- { agent: child, call: { bump_stuck: {} } }
";
    // The limit of the parent ends its turn, and with it the call of the child in the middle.
    let workers =
        [("main", "entry: true\ntoolsets: [a, child]\nlimits: {timeout_seconds: 2}"), ("child", "toolsets: [s]")];
    let sandbox = project(&workers, &[("kit.py", &kit)], script);
    let (events, result) = run_pydantic(&sandbox, &["--json"]).events();
    assert_eq!(result["exit_code"], 5, "{result}");
    let life = ["enter a", "enter stuck", "exit stuck", "cleanup stuck 0", "exit a", "cleanup a 0"];
    assert_eq!(printed(&events), life);
}

#[test]
fn a_toolset_that_cannot_be_opened_or_closed_is_named() {
    let kit = "\
from pydantic_ai import FunctionToolset
from llm_do.runtime import ToolsetSpec
def fails():
    raise RuntimeError('no connection')
class Sticky(FunctionToolset):
    def cleanup(self):
        raise RuntimeError('will not let go')
closed = ToolsetSpec(factory=fails)
wrong = ToolsetSpec(factory=lambda: 7)
sticky = ToolsetSpec(factory=Sticky)
";
    let of = |toolset: &str| {
        project(&[("main", &format!("entry: true\ntoolsets: [{toolset}]"))], &[("kit.py", kit)], "- say: hi\n")
    };
    let said = run_pydantic(&of("closed"), &[]).failure(2);
    assert!(
        said.contains("`closed` of kit.py cannot be opened: RuntimeError: no connection (kit.py:4 in fails)"),
        "{said}"
    );
    let said = run_pydantic(&of("wrong"), &[]).failure(2);
    assert!(said.contains("the factory gave 7, which is no toolset"), "{said}");
    let (events, result) = run_pydantic(&of("sticky"), &["--json"]).events();
    assert_eq!(result["output"], "hi");
    let failed = of_type(&events, "toolset_close_failed");
    assert!(failed[0]["error"].as_str().unwrap().contains("will not let go"), "{failed:?}");
}

/// A well: one toolset of the module, one that a factory makes, and one of ours.
const WELL: &str = "\
from pydantic_ai import FunctionToolset
from llm_do.runtime import ToolsetSpec
from llm_do.toolsets import FileSystemToolset
from llm_do.toolsets.approval import set_toolset_approval_config

def draw_water(litres: int) -> str:
    '''Draws water.'''
    print('drawn')
    return f'{litres} litres'

def look() -> str:
    '''Looks down.'''
    return 'deep'

well = set_toolset_approval_config(FunctionToolset([draw_water, look]), {'look': {'pre_approved': True}})
made = ToolsetSpec(factory=lambda: FunctionToolset([draw_water, look]))
notes = FileSystemToolset('.', write_approval=False)
";

#[test]
fn a_misspelled_rule_ends_the_run_before_it_begins() {
    let call = calls(&["{ draw_water: { litres: 3 } }"]);
    for (toolset, rule) in
        [("well", "draw_wter"), ("well", "well.draw_wter"), ("made", "draw_wter"), ("made", "made.draw_wter")]
    {
        let main = format!("entry: true\ntoolsets: [{toolset}]\napproval: {{ {rule}: block }}");
        let sandbox = project(&[("main", &main)], &[("kit.py", WELL)], &call);
        let ended = run_pydantic(&sandbox, &["--approve-all"]).ended();
        for words in
            ["agent `main` has no tool `", "did you mean `draw_water`? tools: draw_water, look", "main.worker:5:13"]
        {
            assert!(ended.code == Some(2) && ended.stderr.contains(words), "{toolset} {rule}: {ended:?}");
        }
        assert!(!ended.stderr.contains("drawn") && ended.stdout.is_empty(), "nothing ran: {ended:?}");
        let right = main.replace("wter", "water");
        let sandbox = project(&[("main", &right)], &[("kit.py", WELL)], &call);
        let ended = run_pydantic(&sandbox, &["--approve-all", "-q"]).ended();
        assert!(ended.code == Some(4) && !ended.stderr.contains("drawn"), "the rule holds: {ended:?}");
    }
    let variant = r#", "toolsets": { "mine": { "use": "well", "approval": { "draw_wter": "block" } } } }"#;
    let sandbox = project(&[("main", "entry: true\ntoolsets: [mine]")], &[("kit.py", WELL)], &call);
    let manifest = std::fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    sandbox.file("project.json", &format!("{}{variant}", manifest.trim_end().strip_suffix('}').unwrap()));
    let ended = run_pydantic(&sandbox, &["--approve-all"]).ended();
    let fact = "`well` has no tool `draw_wter`";
    assert!(ended.code == Some(2) && ended.stderr.contains(fact), "a variant of it: {ended:?}");
}

#[test]
fn check_shows_the_tools_of_a_module_with_their_verdicts() {
    let cache = crate::python::cache().to_str().unwrap().to_owned();
    let words = ["check", ".", "--trust", "-m", "ollama:q", "--python", crate::python::with_pydantic_ai()];
    let checked = |keys: &str| {
        let sandbox = project(&[("main", &format!("entry: true\n{keys}"))], &[("kit.py", WELL)], "- say: x");
        crate::session::Run::of(&sandbox, &words).with("XDG_CACHE_HOME", cache.clone()).answer()
    };
    let said = checked("toolsets: [well, notes]\napproval: { draw_water: block }");
    for line in [
        "draw_water    block  (well)",
        "look          allow  (well)",
        "read_file     allow  (notes)",
        "search_files  allow  (notes)",
        "write_file    allow  (notes)",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("unknown"), "{said}");
    let said = checked("toolsets: [made]");
    assert!(said.contains("*  unknown  (made)"), "what a factory makes is known when it is made: {said}");
}
