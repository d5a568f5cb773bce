//! One project and one script through every door: `run`, `chat`, `serve` and the library.

use std::fs::File;
use std::io::Write as _;

use llm_do::event::Listen;
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::runtime::{Models, RunError, Runtime, RuntimeConfig};
use llm_do::tools::Ending;
use llm_do::tools::approval::{Answer, Approvals};
use llm_do::tools::plane::Refusals;
use serde_json::{Value, json};

use crate::client::Client;
use crate::support::{Sandbox, wait};
use crate::terminal::{Elsewhere, Terminal};

const MANIFEST: &str = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker", "counter.worker"],
    "runtime": {"return_permission_errors": true}}"#;

const MAIN: &str = "---
name: main
model: scripted:script.yaml
toolsets: [counter, filesystem_project]
approval: { edit_file: block }
---
You are main.
";

const COUNTER: &str = "---
name: counter
model: scripted:script.yaml
toolsets: [filesystem_project_ro]
schema_in: { type: object, properties: { topic: { type: string } }, required: [topic] }
schema_out: { type: object, properties: { words: { type: integer } }, required: [words] }
---
You count.
";

/// A typed call of another agent, which reads a file as it may; a call that a rule refuses, and one that asks.
const SCRIPT: &str = "\
- { agent: counter, round: 1, think: Hm., call: { read_file: { path: notes.md } } }
- { agent: counter, say: '{\"words\": 2}' }
- { agent: main, round: 1, say: Let me see., call: { counter: { topic: notes } }, usage: { input: 7, output: 3 } }
- { agent: main, round: 2, call: { edit_file: { path: notes.md, old: two, new: three } } }
- { agent: main, round: 3, call: { write_file: { path: out.md, content: x } } }
- { agent: main, say: 'Done: {{ result }}' }
";

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("project/project.json", MANIFEST).file("project/script.yaml", SCRIPT);
    sandbox.file("project/main.worker", MAIN).file("project/counter.worker", COUNTER);
    sandbox.file("project/notes.md", "one two\n");
    sandbox
}

/// Who decides about the call that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decider {
    ApproveAll,
    RejectAll,
    Yes,
    No,
    /// A person who ends the run at the question.
    End,
}

/// What came through a door.
#[derive(Debug, PartialEq)]
struct Passage {
    /// Without what differs from run to run.
    events: Vec<Value>,
    /// The answer, or why there is none.
    answer: Result<Value, String>,
    code: i64,
    is_written: bool,
}

impl Passage {
    fn new(sandbox: &Sandbox, events: Vec<Value>, answer: Result<Value, String>, code: i64) -> Self {
        let events = events.into_iter().map(lasting).collect();
        Self { events, answer, code, is_written: sandbox.path().join("project/out.md").exists() }
    }
}

/// An event without its ids and times.
fn lasting(mut event: Value) -> Value {
    for key in ["id", "duration_ms"] {
        event.as_object_mut().unwrap().remove(key);
    }
    event
}

/// Through `run` or `chat`, at a terminal if a person decides; the turn of a chat comes through a pipe.
fn program(command: &str, decider: Decider) -> Passage {
    let sandbox = project();
    let mut words = vec![command, "project", "--output-format", "stream-json"];
    if command == "run" {
        words.insert(2, "go");
    }
    match decider {
        Decider::ApproveAll => words.push("--approve-all"),
        Decider::RejectAll => words.push("--reject-all"),
        Decider::Yes | Decider::No | Decider::End => {}
    }
    let turns = || {
        let mut turns = tempfile::tempfile().unwrap();
        turns.write_all(b"go\n").unwrap();
        std::io::Seek::rewind(&mut turns).unwrap();
        turns
    };
    let mut program = sandbox.command(&words, &[]);
    let keys = match decider {
        Decider::ApproveAll | Decider::RejectAll => None,
        Decider::Yes => Some("y"),
        Decider::No => Some("n"),
        Decider::End => Some("q"),
    };
    let (code, stdout) = match keys {
        None => {
            if command == "chat" {
                program.stdin(turns());
            }
            let ended = wait(program.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
            (ended.code, ended.stdout)
        }
        Some(keys) => {
            let path = sandbox.path().join("stdout");
            let streams = Elsewhere {
                stdin: (command == "chat").then(|| turns().into()),
                stdout: Some(File::create(&path).unwrap().into()),
                stderr: None,
            };
            let terminal = Terminal::start_with(program, Terminal::ROWS, streams);
            terminal.answer(keys);
            if decider == Decider::No {
                terminal.expect("why?").press("\r");
            }
            let left = terminal.left();
            (left.code, std::fs::read_to_string(path).unwrap())
        }
    };
    let mut events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = events.pop().unwrap();
    assert_eq!((&result["type"], &result["exit_code"]), (&json!("result"), &json!(code)), "{result}");
    let answer = match result["error"]["message"].as_str() {
        None => Ok(result["output"].clone()),
        Some(message) => Err(message.to_owned()),
    };
    Passage::new(&sandbox, events, answer, code.unwrap().into())
}

/// Through `serve`, whose client is asked.
fn served(decider: Decider) -> Passage {
    let sandbox = project();
    let mut client = Client::start(&sandbox);
    let mode = match decider {
        Decider::ApproveAll => "approve_all",
        Decider::RejectAll => "reject_all",
        Decider::Yes | Decider::No | Decider::End => "prompt",
    };
    let open = json!({"project": "project", "events": "all", "approval_mode": mode, "trust": true});
    let scope = client.result("open", &open)["scope"].clone();
    let turn = client.ask("turn", &json!({"scope": scope, "input": "go"}));
    let decision = match decider {
        Decider::ApproveAll | Decider::RejectAll => None,
        Decider::Yes => Some(json!({"approved": true})),
        Decider::No => Some(json!({"approved": false})),
        Decider::End => Some(json!({"approved": false, "end_run": true})),
    };
    if let Some(decision) = decision {
        let question = client.question();
        client.decide(&question, &decision);
    }
    let turned = client.answer(turn);
    client.result("close", &json!({"scope": scope}));
    let messages = client.ends_well();
    let events = messages.iter().filter(|message| message["method"] == "event");
    let events = events.map(|message| message["params"]["event"].clone()).collect();
    let (answer, code) = match turned["error"]["message"].as_str() {
        None => (Ok(turned["result"]["output"].clone()), 0),
        Some(message) => (Err(message.to_owned()), turned["error"]["data"]["exit_code"].as_i64().unwrap()),
    };
    Passage::new(&sandbox, events, answer, code)
}

/// Through the library, as somebody else's program uses it.
fn embedded(decider: Decider) -> Passage {
    let sandbox = project();
    let project = Project::load(sandbox.path().join("project")).unwrap();
    let program = project.link(&ModelChoices::default()).unwrap();
    let person = |answer: Answer| Approvals::ask_with(move |_| std::future::ready(answer.clone()));
    let approvals = match decider {
        Decider::ApproveAll => Approvals::approve_all(),
        Decider::RejectAll => Approvals::reject_all(),
        Decider::Yes => person(Answer::Once),
        Decider::No => person(Answer::Refuse { reason: None }),
        Decider::End => person(Answer::EndRun),
    };
    let config = RuntimeConfig { refusals: Refusals::Return, ..RuntimeConfig::new(approvals) };
    let (runtime, mut listener) = Runtime::with_listener(program, Models::default(), config, Listen::Everything);
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = executor.block_on(async {
        let mut call = runtime.open_entry().await.unwrap();
        let answer = call.turn("go").await;
        call.close().await;
        answer
    });
    let events = std::iter::from_fn(|| listener.try_recv().ok());
    let events = events.map(|event| serde_json::to_value(event).unwrap()).collect();
    // What has no exit code has the error that the program makes one of.
    let code = match &answer {
        Ok(_) => 0,
        Err(RunError::Ended(Ending::Refused { .. } | Ending::EndedByPerson | Ending::NeedsApproval(_))) => 4,
        Err(error) => panic!("{error}"),
    };
    let answer = answer.map(|output| serde_json::from_str(output.to_json().get()).unwrap());
    Passage::new(&sandbox, events, answer.map_err(|error| error.to_string()), code)
}

/// What is compared is there: who did what, in this order.
fn check_told(decider: Decider, passage: &Passage) {
    let told = |event: &Value| match event["type"].as_str().unwrap() {
        kind @ ("call_started" | "call_finished") => Some(format!("{kind} {}", event["name"].as_str().unwrap())),
        kind @ ("tool_called" | "tool_returned" | "tool_refused" | "approval_asked") => {
            Some(format!("{kind} {} of {}", event["tool"].as_str().unwrap(), event["agent"].as_str().unwrap()))
        }
        "approval_answered" => Some(format!("answered {}", event["answer"].as_str().unwrap())),
        _ => None,
    };
    let told: Vec<String> = passage.events.iter().filter_map(told).collect();
    let mut expected = vec![
        "call_started main",
        "call_started counter",
        "tool_called read_file of counter",
        "tool_returned read_file of counter",
        "call_finished counter",
        "tool_refused edit_file of main",
    ];
    let written = ["tool_called write_file of main", "tool_returned write_file of main"];
    let asked = "approval_asked write_file of main";
    let refused = ["tool_refused write_file of main"];
    match decider {
        Decider::ApproveAll => expected.extend(["answered policy"].into_iter().chain(written)),
        Decider::RejectAll => expected.extend(refused),
        Decider::Yes => expected.extend([asked, "answered once"].into_iter().chain(written)),
        Decider::No => expected.extend([asked, "answered refused"].into_iter().chain(refused)),
        Decider::End => expected.extend([asked, "answered refused"]),
    }
    expected.push("call_finished main");
    assert_eq!(told, expected, "{decider:?}");
    assert_eq!(passage.is_written, matches!(decider, Decider::ApproveAll | Decider::Yes), "{decider:?}");
}

#[track_caller]
fn check_same(decider: Decider, code: i64, answer: Result<&str, &str>) {
    let first = program("run", decider);
    check_told(decider, &first);
    assert_eq!(first.code, code, "{decider:?}");
    let said = first.answer.as_ref().map(|answer| answer.as_str().unwrap()).map_err(String::as_str);
    assert_eq!(said, answer, "{decider:?}");
    for (door, other) in
        [("chat", program("chat", decider)), ("serve", served(decider)), ("the library", embedded(decider))]
    {
        for (index, (one, another)) in first.events.iter().zip(&other.events).enumerate() {
            assert_eq!(one, another, "{decider:?}, {door}: event {index}");
        }
        assert_eq!(first, other, "{decider:?}, {door}");
    }
}

#[test]
fn every_door_leads_to_the_same_run_if_the_mode_decides() {
    check_same(Decider::ApproveAll, 0, Ok("Done: wrote 1 characters to out.md"));
    let refused = "Done: error: refused: every question is answered with no in this run";
    check_same(Decider::RejectAll, 0, Ok(refused));
}

#[test]
fn every_door_leads_to_the_same_run_if_a_person_decides() {
    check_same(Decider::Yes, 0, Ok("Done: wrote 1 characters to out.md"));
    check_same(Decider::No, 0, Ok("Done: error: refused: the user refused it"));
    check_same(Decider::End, 4, Err("stopped: you answered q"));
}
