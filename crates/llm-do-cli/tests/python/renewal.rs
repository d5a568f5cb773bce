//! The turn after one in which the interpreter has ended: another is started, with the files that were agreed to.

use serde_json::Value;

use crate::session::{Run, of_type};
use crate::support::Sandbox;
use crate::{project, python};

const RENEWED: &str = "Python had ended and was started again; what its code kept in memory is gone";
const CHANGED: &str = "Python had ended and was not started again: the project's Python files have changed; \
                       start the program again to use them";

/// Each turn names the tool that it calls.
const SCRIPT: &str = "\
- { tool: count, say: '{{ result }}' }
- { tool: stop, say: '{{ result }}' }
- { heard: both, call: [{ stop: {} }, { count: {} }] }
- { heard: stop, call: { stop: {} } }
- { call: { count: {} } }
";

/// `count` counts its calls, and `stop` does what is given.
fn kit(stop: &str) -> String {
    format!(
        "import asyncio, os, time\nnumber = 0\nprint('imported')\n\
         def count() -> str:\n    global number\n    number += 1\n    return f'count {{number}}'\n\
         def stop() -> str:\n    {stop}\n    return 'stopped'\nTOOLS = [count, stop]\n"
    )
}

fn counting(kit: &str) -> Sandbox {
    let main = "entry: true\ntoolsets: [quick]\ntools: [count]\napproval: { count: allow, stop: allow }";
    let sandbox = project(&[("main", main)], &[("kit.py", kit)], SCRIPT);
    let manifest = std::fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    let toolsets = r#"{"toolsets": {"quick": {"use": "stop", "timeout_seconds": 0.3}}, "#;
    sandbox.file("project.json", &manifest.replacen('{', toolsets, 1));
    sandbox
}

fn chat<'a>(sandbox: &'a Sandbox, turns: &'a str, flags: &[&'a str]) -> Run<'a> {
    let chat = ["chat", ".", "--trust", "-m", "scripted:script.yaml"];
    Run::of(sandbox, &[&chat[..], flags].concat())
        .with("XDG_CACHE_HOME", python::cache().to_str().unwrap().to_owned())
        .with("LLM_DO_STATE_KEY", python::KEY.repeat(32))
        .hearing(turns)
}

/// What each call came to, and what people were told.
fn told(run: Run<'_>) -> (Vec<String>, Vec<String>) {
    let ended = run.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_call = |event: &Value| match event["type"].as_str() {
        Some("tool_returned") => event["result"].as_str().or(event["error"].as_str()).map(str::to_owned),
        Some("call_finished") if event["name"] == "child" => Some(event["output"].to_string()),
        _ => None,
    };
    let results = events.iter().filter_map(of_call).collect();
    let notices = of_type(&events, "notice").iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect();
    (results, notices)
}

#[test]
fn the_next_turn_of_a_chat_starts_python_again() {
    let overdue = "timed out after 0.3 s (`timeout_seconds` of its toolset); it did not stop, so Python was ended";
    for (stop, reason, later) in [
        ("time.sleep(1000)", overdue, "Python was ended, since a call of it did not stop"),
        ("os._exit(7)", "Python ended with exit code 7", "Python ended with exit code 7"),
    ] {
        let sandbox = counting(&kit(stop));
        let turns = "count\ncount\nstop\ncount\ncount\n";
        let (results, notices) = told(chat(&sandbox, turns, &["--json"]));
        assert_eq!(results, ["count 1", "count 2", reason, "count 1", "count 2"], "{stop}");
        assert_eq!(notices, [RENEWED], "{stop}");
        // In the turn in which it has ended it stays so.
        std::fs::write(
            sandbox.path().join("script.yaml"),
            SCRIPT.replace("{ tool: stop, say: '{{ result }}' }", "{ tool: stop, call: { count: {} } }"),
        )
        .unwrap();
        let (results, notices) = told(chat(&sandbox, "stop\ncount\n", &["--json"]));
        assert_eq!(results, [reason, later, "count 1"], "{stop}");
        assert_eq!(notices, [RENEWED], "{stop}");
    }
}

#[test]
fn files_that_have_changed_are_not_imported_unasked() {
    // Whatever could be imported counts, listed or not.
    for change in ["open('kit.py', 'a').write('# more\\n')", "open('other.py', 'w').write('')"] {
        let sandbox = counting(&kit(&format!("{change}; os._exit(7)")));
        let (results, notices) = told(chat(&sandbox, "stop\ncount\n", &["--json"]));
        assert_eq!(results, ["Python ended with exit code 7", CHANGED], "{change}");
        assert_eq!(notices, [CHANGED], "{change}");
    }
}

#[test]
fn what_is_offered_must_be_what_was_offered_before() {
    // Behind `mark` the same files do something else.
    let cases = [
        ("TOOLS.append(print_more)", "its files now offer something else than before"),
        ("raise ValueError('not twice')", "kit.py: ValueError: not twice"),
    ];
    for (second, reason) in cases {
        let more = format!("def print_more() -> str:\n    return ''\nif os.path.exists('mark'):\n    {second}\n");
        let sandbox = counting(&(kit("open('mark', 'w'); os._exit(7)") + &more));
        let (results, notices) = told(chat(&sandbox, "stop\ncount\n", &["--json"]));
        assert_eq!(results[0], "Python ended with exit code 7");
        let words = "Python had ended and was not started again: ";
        assert!(results[1].starts_with(words) && results[1].ends_with(reason), "{second}: {results:?}");
        assert_eq!(notices, results[1..], "{second}");
    }
}

/// A toolset with state, which is lost with its interpreter, and a class that answers are instances of.
const STATEFUL: &str = "\
import os
from pydantic import BaseModel
from pydantic_ai import FunctionToolset

class Answer(BaseModel):
    number: int

class Counter(FunctionToolset):
    def __init__(self):
        super().__init__(id='counter')
        self.number = 0
        self.add_function(self.count)
        self.add_function(self.stop, name='late' if os.path.exists('mark') else 'stop')

    def count(self) -> str:
        self.number += 1
        return f'count {self.number}'

    def stop(self) -> str:
        STOP

async def make(ctx):
    return Counter()
TOOLSETS = {'counter': make}
";

#[test]
fn a_toolset_is_made_anew_for_the_call_that_goes_on() {
    let made_anew = "the toolset `counter` was made anew and has other tools than before";
    let workers = [
        ("main", "entry: true\ntoolsets: [counter, child]\napproval: { count: allow, stop: allow, child: allow }"),
        ("child", "schema_out_ref: kit.py:Answer"),
    ];
    let child = "- { agent: child, say: '{ \"number\": \"5\" }' }\n- { heard: child, call: { child: { input: x } } }\n\
                 - { tool: child, say: '{{ result }}' }\n";
    for (stop, last) in [("os._exit(7)", "count 1"), ("open('mark', 'w'); os._exit(7)", made_anew)] {
        let kit = STATEFUL.replace("STOP", stop);
        let sandbox = project(&workers, &[("kit.py", &kit)], &format!("{child}{SCRIPT}"));
        let flags = ["--json", "--python", python::with_pydantic_ai()];
        let (results, notices) = told(chat(&sandbox, "count\ncount\nstop\nchild\ncount\n", &flags));
        let all = ["count 1", "count 2", "Python ended with exit code 7", r#"{"number":5}"#, last];
        assert_eq!(results, all, "{stop}");
        assert_eq!(notices, [RENEWED], "{stop}");
    }
}
