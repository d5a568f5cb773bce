//! What goes wrong in Python files, and what becomes of it.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::session::{Run, of_type};
use crate::support::Sandbox;
use crate::{calls, project, run, run_pydantic};

const MAIN: &str = "entry: true\ntools: [tool, other]\napproval: { tool: allow, other: allow }";

fn kit(body: &str) -> String {
    format!(
        "import ctypes, os, sys, time\ndef tool() -> str:\n    {body}\ndef other() -> str:\n    return 'fine'\nTOOLS = [tool, other]\n"
    )
}

#[test]
fn an_exception_is_an_error_with_its_type_its_message_and_the_users_own_frames() {
    let kit = "\
import json
def inner(text):
    return json.loads(text)
def tool() -> str:
    return inner('{')
def other() -> str:
    return 'fine'
TOOLS = [tool, other]
";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    let said = run(&sandbox, &["-q"]).answer();
    assert!(said.starts_with("error: JSONDecodeError: Expecting property name"), "{said}");
    assert!(said.ends_with("(kit.py:5 in tool › kit.py:3 in inner)\n"), "{said}");
    let cases = [
        ("sys.exit(3)", "error: SystemExit: 3 (kit.py:3 in tool)"),
        ("raise KeyboardInterrupt", "error: KeyboardInterrupt (kit.py:3 in tool)"),
        ("return object()", "error: TypeError: a value of type object has no JSON form"),
        ("return '\\ud800'", "?"),
    ];
    for (body, words) in cases {
        let sandbox = project(&[("main", MAIN)], &[("kit.py", &self::kit(body))], &calls(&["{ tool: {} }"]));
        assert_eq!(run(&sandbox, &["-q"]).answer(), format!("{words}\n"), "{body}");
    }
}

/// Neither what code gives nor what it asks may leave the other side waiting.
#[test]
fn numbers_that_are_no_json_have_names_in_results_and_are_errors_in_calls() {
    let kit = "\
from llm_do.runtime import CallContext
def tool():
    return {'rows': [1.5, float('nan'), float('-inf')]}
async def other(ctx: CallContext) -> str:
    return await ctx.call('tool', {'number': float('nan')})
TOOLS = [tool, other]
";
    for call in ["tool", "other"] {
        let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&[&format!("{{ {call}: {{}} }}")]));
        for said in [run(&sandbox, &["-q"]).answer(), run_pydantic(&sandbox, &["-q"]).answer()] {
            match call {
                "tool" => assert_eq!(said, "{\"rows\":[1.5,\"NaN\",\"-Infinity\"]}\n"),
                _ => assert!(said.starts_with("error: TypeError: the value is not JSON: "), "{said}"),
            }
        }
    }
}

#[test]
fn with_debug_the_whole_traceback_is_told_and_the_model_reads_no_more_of_it() {
    let kit = "\
import json
def tool() -> str:
    return json.loads('{')
def other() -> str:
    return 'fine'
TOOLS = [tool, other]
";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    let short = run(&sandbox, &[]).ended();
    assert!(!short.stderr.contains("Traceback"), "{}", short.stderr);
    let whole = run(&sandbox, &["--debug"]).ended();
    assert_eq!((whole.code, &whole.stdout), (Some(0), &short.stdout));
    for words in
        ["note: Traceback (most recent call last):", "json/decoder.py", "json.decoder.JSONDecodeError: Expecting"]
    {
        assert!(whole.stderr.contains(words), "{words}: {}", whole.stderr);
    }
    let sandbox = project(&[("main", MAIN)], &[("kit.py", "import json\njson.loads('{')\n")], "- say: hi\n");
    let short = run(&sandbox, &[]).failure(2);
    assert!(short.contains("kit.py:2:1") && !short.contains("decoder.py"), "{short}");
    let whole = run(&sandbox, &["--debug"]).failure(2);
    assert!(
        whole.contains("\n  |   File \"") && whole.contains("decoder.py") && whole.contains("kit.py:2:1"),
        "{whole}"
    );
}

#[test]
fn an_interpreter_that_dies_fails_this_call_and_every_later_one_but_not_the_run() {
    let cases = [
        (
            "sys.__stderr__.write('half a thought'); sys.__stderr__.flush(); os._exit(7)",
            "Python ended with exit code 7; its last words:\nhalf a thought",
        ),
        ("ctypes.string_at(0)", "Python was killed by signal 11 (segmentation fault)"),
        ("os.kill(os.getpid(), 9)", "Python was killed by signal 9 (kill: out of memory, or somebody's decision)"),
    ];
    for (body, reason) in cases {
        let sandbox = project(
            &[("main", MAIN)],
            &[("kit.py", &kit(body))],
            &calls(&["{ tool: {} }", "{ other: {} }", "{ other: {} }"]),
        );
        let (events, result) = run(&sandbox, &["--json"]).events();
        let errors: Vec<&str> =
            of_type(&events, "tool_returned").iter().map(|event| event["error"].as_str().unwrap()).collect();
        assert_eq!(errors, [reason, reason, reason], "{body}");
        assert_eq!(result["output"], format!("error: {reason}"), "the model reads it and ends as it likes");
    }
}

#[test]
fn a_tool_that_blocks_ends_with_its_run_and_leaves_nothing_behind() {
    // The sync one blocks a thread, the async one the whole loop, the last one is in another process.
    let bodies = [
        "def tool() -> str:\n    hold()\n    time.sleep(1000)\n    return ''",
        "async def tool() -> str:\n    hold()\n    time.sleep(1000)\n    return ''",
        "def tool() -> str:\n    hold()\n    subprocess.run(['sleep', '1000'])\n    return ''",
    ];
    for body in bodies {
        let kit = format!(
            "import fcntl, subprocess, time\ndef hold():\n    global file\n    file = open('held', 'w')\n    fcntl.flock(file, fcntl.LOCK_EX)\n{body}\nTOOLS = [tool]\n"
        );
        let main = "entry: true\ntools: [tool]\napproval: { tool: allow }";
        let sandbox = project(&[("main", main)], &[("kit.py", &kit)], &calls(&["{ tool: {} }"]));
        let ended = run(&sandbox, &["--timeout", "3s"]).ended();
        assert_eq!(ended.code, Some(124), "{}", ended.stderr);
        // Free again once the last process that has the file is gone.
        let held = File::open(sandbox.path().join("held")).unwrap_or_else(|_| panic!("it ran: {}", ended.stderr));
        held.lock().unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_imported_is_a_link_error_at_its_line() {
    let cases = [
        ("import os\n\nraise ValueError('not today')\n", "kit.py:3:1", "ValueError: not today"),
        ("def broken(:\n    pass\n", "kit.py:1:1", "SyntaxError: "),
        ("import nothing_like_this\n", "kit.py:1:1", "-m pip install 'nothing_like_this'"),
        ("import sys\nsys.exit(4)\n", "kit.py:2:1", "SystemExit: 4"),
        ("TOOLS = [1]\n", "kit.py", "1 in TOOLS has no name: write a dict"),
        ("TOOLS = {'a b': print}\n", "kit.py", "`a b` in TOOLS is called `print`: the key must be its name"),
        ("def f(x):\n    pass\nTOOLS = {'g': f}\n", "kit.py", "`g` in TOOLS is called `f`: the key must be its name"),
        ("TOOLSETS = {'t': 7}\n", "kit.py", "`t` in TOOLSETS is neither a toolset nor a factory of one"),
    ];
    for (kit, place, words) in cases {
        let main = "entry: true\ntools: [tool]";
        let sandbox = project(&[("main", main)], &[("kit.py", kit)], "- say: hi\n");
        let said = run(&sandbox, &[]).failure(2);
        assert!(said.contains(place) && said.contains(words), "{kit}: {said}");
        assert!(said.ends_with("1 error\n"), "what it would have defined is no further mistake: {said}");
    }
}

#[test]
fn every_file_is_imported_once_whatever_refers_to_it() {
    let files = [
        (
            "kit.py",
            "import shared, lib.deep\nfrom shared import NAME\ndef tool() -> str:\n    return NAME\nTOOLS = [tool]\n",
        ),
        ("shared.py", "print('shared')\nNAME = 'shared'\n"),
        ("lib/deep.py", "import shared\nprint('deep')\n"),
        ("lib/late.py", "import deep\nprint('late')\n"),
    ];
    let main = "entry: true\ntools: [tool]\napproval: { tool: allow }";
    let sandbox = project(&[("main", main)], &files, &calls(&["{ tool: {} }"]));
    let (events, result) = run(&sandbox, &["--json"]).events();
    assert_eq!(result["output"], "shared", "{result}");
    let mut printed: Vec<&str> =
        of_type(&events, "process_output").iter().map(|event| event["text"].as_str().unwrap()).collect();
    printed.sort_unstable();
    assert_eq!(printed, ["deep\n", "late\n", "shared\n"]);
}

#[test]
fn a_python_that_is_missing_or_too_old_is_named_with_what_to_do() {
    let sandbox = project(&[("main", MAIN)], &[("kit.py", &kit("return ''"))], "- say: hi\n");
    let said = run(&sandbox, &["--python", "./nowhere/python"]).failure(2);
    assert!(
        said.contains("the Python interpreter `./nowhere/python` cannot be started: there is no such program"),
        "{said}"
    );
    assert!(said.contains("--python PATH"), "{said}");
    sandbox.file("old", "#!/bin/sh\nprintf 'llm-do: too old: 3.8' >&2\nexit 1\n");
    let old = sandbox.path().join("old");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = run(&sandbox, &["--python", "./old"]).failure(2);
    assert!(said.contains("`./old` is Python 3.8, and 3.10 or newer is needed"), "{said}");
}

#[test]
fn what_needs_pydantic_ai_says_how_to_install_it() {
    let kit =
        "from pydantic_ai import RunContext\ndef tool(ctx: RunContext[None]) -> str:\n    return ''\nTOOLS = [tool]\n";
    let main = "entry: true\ntools: [tool]";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], "- say: hi\n");
    // An environment of its own has no library, whatever the machine has.
    let made = std::process::Command::new("python3")
        .args(["-m", "venv", "--without-pip", ".venv"])
        .current_dir(sandbox.path())
        .status();
    assert!(made.unwrap().success());
    let said = run(&sandbox, &[]).failure(2);
    assert!(said.contains("No module named 'pydantic_ai'") && said.contains("kit.py:1:1"), "{said}");
    assert!(said.contains(".venv/bin/python -m pip install 'pydantic-ai-slim==2.66.*'"), "{said}");
    sandbox.file("kit.py", "class Odd:\n    pass\ndef tool(odd: Odd) -> str:\n    return ''\nTOOLS = [tool]\n");
    let said = run(&sandbox, &[]).failure(2);
    assert!(said.contains("the tool `tool` needs PydanticAI, which is not installed"), "{said}");
    assert!(said.contains("-m pip install 'pydantic-ai-slim==2.66.*'"), "{said}");
}

#[test]
fn a_replay_needs_no_python() {
    let sandbox = project(&[("main", MAIN)], &[("kit.py", &kit("return 'from the tool'"))], &calls(&["{ tool: {} }"]));
    assert_eq!(run(&sandbox, &["-q", "--record", "journal"]).answer(), "from the tool\n");
    sandbox.file("kit.py", "raise ValueError('not here')\n");
    let cache = crate::python::cache().to_str().unwrap().to_owned();
    for flags in [&[][..], &["--python", "/nonexistent/python"]] {
        let replay = [&[".", "--trust", "-m", "scripted:script.yaml", "--replay", "journal"], flags].concat();
        let ended = Run::new(&sandbox, &replay)
            .with("XDG_CACHE_HOME", cache.clone())
            .with("LLM_DO_STATE_KEY", crate::python::KEY.repeat(32))
            .ended();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "from the tool\n"), "{}", ended.stderr);
        assert!(ended.stderr.starts_with("note: replayed without Python: "), "{}", ended.stderr);
    }
}

#[test]
fn model_retry_is_read_as_it_is() {
    let kit = "\
from pydantic_ai import ModelRetry, RunContext
def tool(ctx: RunContext[None]) -> str:
    raise ModelRetry('ask for less')
TOOLS = [tool]
";
    let main = "entry: true\ntools: [tool]\napproval: { tool: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    assert_eq!(run_pydantic(&sandbox, &["-q"]).answer(), "error: ask for less\n");
}

/// A project whose tool `quick` has little time, `slow` enough, and `other` what is usual.
fn timed(kit: &str, script: &str) -> Sandbox {
    let main = "entry: true\ntoolsets: [quick, child]\ntools: [other]\napproval: { tool: allow, other: allow }";
    let child = "toolsets: [patient]\napproval: { slow: allow }";
    let sandbox = project(&[("main", main), ("child", child)], &[("kit.py", kit)], script);
    let manifest = std::fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    let toolsets = r#"{"toolsets": {"quick": {"use": "tool", "timeout_seconds": 0.3},
        "patient": {"use": "slow", "timeout_seconds": 0}}, "#;
    sandbox.file("project.json", &manifest.replacen('{', toolsets, 1));
    sandbox
}

fn timed_kit(tool: &str) -> String {
    format!(
        "import asyncio, time\n{tool}\ndef other() -> str:\n    return 'fine'\n\
         def slow() -> str:\n    time.sleep(0.9)\n    return 'slow'\nTOOLS = [tool, other, slow]\n"
    )
}

#[test]
fn a_call_that_takes_too_long_is_taken_back_and_python_goes_on() {
    let kit = timed_kit("async def tool() -> str:\n    await asyncio.sleep(1000)\n    return 'never'");
    let both = calls(&["{ tool: {} }", "{ other: {} }"]);
    let (events, result) = run(&timed(&kit, &both), &["--json"]).events();
    let returned = of_type(&events, "tool_returned");
    assert_eq!(returned[0]["error"], "timed out after 0.3 s (`timeout_seconds` of its toolset)");
    assert_eq!((&returned[1]["result"], &result["exit_code"]), (&Value::from("fine"), &Value::from(0)));
}

#[test]
fn a_call_that_does_not_stop_is_ended_with_python() {
    let blocking = "def tool() -> str:\n    time.sleep(1000)\n    return 'never'";
    let unyielding = "async def tool() -> str:\n    time.sleep(1000)\n    return 'never'";
    let stubborn = "async def tool() -> str:\n    while True:\n        try:\n            await asyncio.sleep(1000)\n        \
                    except asyncio.CancelledError:\n            pass";
    for tool in [blocking, unyielding, stubborn] {
        let both = calls(&["{ tool: {} }", "{ other: {} }"]);
        let (events, result) = run(&timed(&timed_kit(tool), &both), &["--json"]).events();
        let returned = of_type(&events, "tool_returned");
        let ended = "timed out after 0.3 s (`timeout_seconds` of its toolset); it did not stop, so Python was ended";
        assert_eq!(returned[0]["error"], ended, "{tool}");
        assert_eq!(returned[1]["error"], "Python was ended, since a call of it did not stop", "{tool}");
        assert_eq!(result["exit_code"], 0, "the model reads it and goes on");
    }
}

#[test]
fn time_in_which_code_waits_for_what_it_has_called_does_not_count() {
    let tool = "from llm_do.runtime import CallContext\n\
                async def tool(ctx: CallContext) -> str:\n    return await ctx.call('child', {'input': 'go'})";
    let script = "\
- { agent: main, round: 1, call: { tool: {} } }
- { agent: main, say: \"{{ result }}\" }
- { agent: child, round: 1, call: { slow: {} } }
- { agent: child, say: \"{{ result }}\" }
";
    let sandbox = timed(&timed_kit(tool), script);
    assert_eq!(run(&sandbox, &["-q", "--approve-all"]).answer(), "slow\n");
}
