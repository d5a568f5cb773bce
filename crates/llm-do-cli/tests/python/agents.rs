//! Code that calls agents and tools, entries in Python, and agents that are defined there.

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::json;

use crate::session::of_type;
use crate::{ask, calls, project, run, run_pydantic};

#[test]
fn a_tool_calls_agents_and_tools_in_the_same_tree() {
    let kit = "\
import asyncio
from pydantic_ai import RunContext
from llm_do.runtime import CallContext
async def ask(ctx: RunContext[CallContext], topic: str) -> str:
    '''Asks around.'''
    deps = ctx.deps
    answers = await asyncio.gather(*(deps.call_agent('child', f'{topic} {n}') for n in range(3)))
    count = await deps.tools.count(text=' '.join(answers))
    seen = (deps.agent, deps.depth, deps.model, deps.prompt, len(deps.messages), deps.frame.config.depth)
    return f'{answers} {count!r} {seen} {sorted(await deps.tools.names())} {deps.project_root.is_absolute()}'
def count(text: str) -> dict:
    return {'words': len(text.split())}
TOOLS = [ask, count]
";
    let script = "\
- { agent: main, round: 1, call: { ask: { topic: rain } } }
- { agent: child, say: \"about {{ heard }}\" }
- say: \"{{ result }}\"
";
    let main = "entry: true\ntools: [ask, count]\napproval: { ask: allow, count: allow }";
    let sandbox = project(&[("main", main), ("child", "")], &[("kit.py", kit)], script);
    let (events, result) = run_pydantic(&sandbox, &["--json"]).events();
    let said = result["output"].as_str().unwrap();
    assert_eq!(
        said,
        "['about rain 0', 'about rain 1', 'about rain 2'] {'words': 9} \
         ('main', 0, 'scripted:script.yaml', 'hi', 2, 0) ['ask', 'count'] True"
    );
    let children: Vec<_> =
        of_type(&events, "call_started").into_iter().filter(|event| event["name"] == "child").collect();
    assert_eq!(children.len(), 3);
    let code = &of_type(&events, "tool_called")[0]["calls_as"];
    assert!(children.iter().all(|event| event["depth"] == 2 && event["parent"] == *code), "{children:?}");
}

#[test]
fn recursion_through_code_ends_at_the_depth_limit_and_refusals_end_the_run() {
    let kit = "\
from llm_do.runtime import CallContext, CallFailed
async def again(ctx: CallContext) -> str:
    try:
        return await ctx.call_agent('main', 'again')
    except CallFailed as failed:
        return f'caught: {failed}'
async def swallow(ctx: CallContext) -> str:
    try:
        return await ctx.call('guarded')
    except BaseException as error:
        return f'swallowed {type(error).__name__}'
def guarded() -> str:
    return 'never'
TOOLS = [again, swallow, guarded]
";
    let main = "entry: true\ntools: [again, swallow, guarded]\napproval: { again: allow, swallow: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ again: {} }"]));
    let said = run(&sandbox, &["-q", "--max-depth", "3"]).answer();
    assert!(said.contains("caught: ") && said.contains("`max_depth` is 3"), "{said}");
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ swallow: {} }"]));
    let said = run(&sandbox, &["-q", "--ephemeral"]).failure(4);
    assert!(said.contains("waiting for approval") && said.contains("main › swallow › guarded"), "{said}");
    // A record could not go on in the middle of a function.
    let expected = "error: `guarded` of main › swallow was refused: it needs an approval, nobody is there to give it, and \
                    the code that asks cannot be continued later\nhint: `llm-do resume RUN` judges it again\n";
    assert_eq!(run(&sandbox, &["-q"]).failure(4), expected);
}

#[test]
fn an_entry_function_calls_agents_and_has_no_model() {
    let kit = "\
from llm_do.runtime import CallContext, EntrySpec, PromptInput
async def main(args: PromptInput, ctx: CallContext):
    first = await ctx.call_agent('child', args.input)
    second = await ctx.call('shout', {'text': first})
    return {'first': first, 'second': second, 'model': ctx.model, 'depth': ctx.depth}
def shout(text: str) -> str:
    return text.upper()
start = EntrySpec(name='start', main=main)
TOOLS = [shout]
";
    let sandbox = project(&[("child", "")], &[("kit.py", kit)], "- say: \"heard {{ heard }}\"\n");
    let (events, result) = run(&sandbox, &["--json", "--approve-all"]).events();
    assert_eq!(result["output"], json!({"first": "heard hi", "second": "HEARD HI", "model": null, "depth": 0}));
    let started: Vec<_> =
        of_type(&events, "call_started").into_iter().map(|event| (&event["name"], &event["kind"])).collect();
    assert_eq!(started, [(&json!("start"), &json!("function")), (&json!("child"), &json!("agent"))]);
    // Tools that code calls by name pass the gate too.
    assert!(run(&sandbox, &["-q"]).failure(4).contains("start › shout"));
}

#[test]
fn a_manifest_names_its_entry_function() {
    let kit = "\
def main(args):
    return f'plain {args.input}'
def other():
    raise ValueError('no entry')
";
    let sandbox = project(&[("child", "")], &[("kit.py", kit)], "- say: hi\n");
    let manifest = |function: &str| {
        format!(
            r#"{{"version": 1, "entry": {{"function": "kit.py:{function}"}}, "worker_files": ["child.worker"], "python_files": ["kit.py"]}}"#
        )
    };
    sandbox.file("project.json", &manifest("main"));
    assert_eq!(run(&sandbox, &["-q"]).answer(), "plain hi\n");
    sandbox.file("project.json", &manifest("other"));
    let said = run(&sandbox, &["-q"]).failure(1);
    assert!(said.contains("the entry function `other` failed: ValueError: no entry (kit.py:4 in other)"), "{said}");
    sandbox.file("project.json", &manifest("gone"));
    let said = run(&sandbox, &["-q"]).failure(2);
    assert!(said.contains("kit.py has no function `gone`") && said.contains("project.json:1:"), "{said}");
}

/// The function is trusted with what it calls; what its agents do is asked about like everything.
#[test]
fn tools_of_an_agent_that_an_entry_function_calls_are_asked_about() {
    let kit = "\
from llm_do.runtime import EntrySpec
async def main(args, runtime):
    return await runtime.call_agent('child', args)
start = EntrySpec(name='start', main=main)
";
    let script = "\
- { round: 1, call: { write_file: { path: a.txt, content: x } } }
- say: \"{{ result }}\"
";
    let sandbox = project(&[("child", "toolsets: [filesystem_cwd]")], &[("kit.py", kit)], script);
    assert!(run(&sandbox, &["-q"]).failure(4).contains("start › child › write_file"));
    assert_eq!(run(&sandbox, &["-q", "--approve-all"]).answer(), "wrote 1 characters to a.txt\n");
    assert!(run(&sandbox, &["-q", "--reject-all"]).failure(4).contains("write_file"));
}

#[test]
fn agents_of_python_are_linked_like_those_of_files() {
    let kit = "\
from llm_do.runtime import AgentSpec
def tool() -> str:
    return 'ran'
TOOLS = [tool]
boss = AgentSpec(name='boss', instructions='You lead.', tools=[tool], toolsets=['child'], approval={'tool': 'allow'}, entry=True)
";
    let script = "\
- { agent: boss, round: 1, call: { tool: {}, child: { input: go } } }
- { agent: boss, say: \"{{ result }}\" }
- say: \"child\"
";
    let sandbox = project(&[("child", "")], &[("kit.py", kit)], script);
    assert_eq!(run(&sandbox, &["-q"]).answer(), "ran\nchild\n");
    sandbox.file("kit.py", &kit.replace("['child']", "['chidl']"));
    let said = run(&sandbox, &[]).failure(2);
    assert!(said.contains("agent `boss` asks for an unknown toolset `chidl`") && said.contains("kit.py"), "{said}");
}

/// A file is loaded into what `AgentSpec` is in Python: the model is asked the same, and the same happens.
#[test]
fn a_file_and_an_agent_spec_with_the_same_keys_are_the_same_agent() {
    let keys = "entry: true\ndescription: Reads\nmodel_settings: { temperature: 0.25, max_tokens: 900 }\n\
                toolsets: [filesystem_cwd]\napproval: { write_file: allow }";
    let spec = "from llm_do.runtime import AgentSpec\nmain = AgentSpec(name='main', instructions='You are main.', \
                description='Reads', model_settings={'temperature': 0.25, 'max_tokens': 900}, \
                toolsets=['filesystem_cwd'], approval={'write_file': 'allow'}, entry=True)\n";
    let of_file = project(&[("main", keys)], &[], "");
    let of_python = project(&[], &[("kit.py", spec)], "");
    let asked = |sandbox| {
        let script = FakeScript::new()
            .reply(FakeReply::calls([FakeCall::new("write_file", json!({"path": "a", "content": "x"}))]));
        let fake = FakeLlm::start(script.reply(FakeReply::text("Written.")));
        assert_eq!(ask(sandbox, &fake, &[]).answer(), "Written.\n");
        fake.assert_finished();
        fake.requests().into_iter().map(|request| request.body.clone()).collect::<Vec<_>>()
    };
    let (one, other) = (asked(&of_file), asked(&of_python));
    assert_eq!(one, other);
    assert_eq!((&one[0]["temperature"], &one[0]["max_tokens"]), (&json!(0.25), &json!(900)));
    assert!(one[1].to_string().contains("wrote 1 characters to a"), "its rules hold: {}", one[1]);
}

/// Names are resolved before the run, whatever they are names of: a built-in toolset, a variant of the manifest, an agent, a
/// function. One that is none of them is a mistake, and nothing runs.
#[test]
fn toolsets_of_all_kinds_are_resolved_and_there_is_one_entry() {
    let kit = "def count() -> str:\n    return 'counted'\nTOOLS = [count]\n";
    let main = "entry: true\ntoolsets: [filesystem_cwd_ro, quick, child]\napproval: { count: allow, child: allow }";
    let script = "\
- { agent: child, round: 1, call: { my_read_file: { path: notes/a.txt } } }
- { agent: child, heard: a note, say: \"read: a note\" }
- { agent: main, round: 1, call: [{ list_files: { path: notes } }, { count: {} }, { child: { input: go } }] }
- { agent: main, say: \"{{ result }}\" }
";
    let files = [("kit.py", kit), ("notes/a.txt", "a note")];
    let sandbox = project(&[("main", main), ("child", "toolsets: [notes]")], &files, script);
    let manifest = std::fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    let toolsets = r#"{"toolsets": {"quick": {"use": "count", "timeout_seconds": 5},
        "notes": {"use": "filesystem_project_ro", "tools": ["read_file"], "prefix": "my_"}}, "#;
    sandbox.file("project.json", &manifest.replacen('{', toolsets, 1));
    assert_eq!(run(&sandbox, &["-q"]).answer(), "notes/a.txt\ncounted\nread: a note\n");
    sandbox.file("child.worker", "---\nname: child\ntoolsets: [note]\n---\nx\n");
    let (events, ended) = (run(&sandbox, &["--json"]).ended(), run(&sandbox, &["-q"]).failure(2));
    assert!(ended.contains("unknown toolset `note`") && ended.contains("did you mean `notes`?"), "{ended}");
    assert!(!events.stdout.contains("call_started"), "{events:?}");
}

#[test]
fn there_is_exactly_one_entry_an_agent_or_a_function() {
    let entry = "from llm_do.runtime import EntrySpec\nasync def start(input, runtime):\n    return 'started'\n\
                 entry = EntrySpec(name='start', main=start)\n";
    let script = "- say: \"{{ agent }}\"\n";
    let said = |workers: &[(&str, &str)], files: &[(&str, &str)]| {
        let sandbox = project(workers, files, script);
        let ended = run(&sandbox, &["-q"]).ended();
        (ended.code, ended.stdout + &ended.stderr)
    };
    assert_eq!(said(&[("a", "entry: true"), ("b", "")], &[]), (Some(0), "a\n".to_owned()));
    assert_eq!(said(&[("a", ""), ("b", "")], &[("kit.py", entry)]), (Some(0), "started\n".to_owned()));
    for (workers, files, words) in [
        (&[("a", "entry: true"), ("b", "entry: true")][..], &[][..], "several entries: a, b"),
        (&[("a", "entry: true")], &[("kit.py", entry)], "several entries: a, kit.py:entry"),
        (&[("a", ""), ("b", "")], &[], "entry"),
    ] {
        let (code, said) = said(workers, files);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Worker files, Python and the words of a mistake know the same ones.
#[test]
fn there_is_one_list_of_built_in_toolsets() {
    let kit = "\
import os
from llm_do.runtime import EntrySpec
from llm_do.toolsets.builtins import build_builtin_toolsets
async def start(input, runtime):
    return ', '.join(sorted(build_builtin_toolsets(os.getcwd(), os.getcwd())))
entry = EntrySpec(name='start', main=start)
";
    let python = run(&project(&[("other", "")], &[("kit.py", kit)], "- say: x\n"), &["-q"]).answer();
    let mistaken = project(&[("main", "entry: true\ntoolsets: [nothing_like_it]")], &[], "- say: x\n");
    let said = run(&mistaken, &[]).failure(2);
    let listed = said.lines().find_map(|line| line.split_once("hint: toolsets: ")).unwrap().1;
    // The agent itself is one more that can be called.
    assert_eq!(listed.split(", ").filter(|name| *name != "main").collect::<Vec<_>>().join(", "), python.trim());
    for name in python.trim().split(", ") {
        let sandbox = project(&[("main", &format!("entry: true\ntoolsets: [{name}]"))], &[], "- say: opened\n");
        assert_eq!(run(&sandbox, &["-q"]).answer(), "opened\n", "{name}");
    }
}
