//! Scopes that are kept: listed, gone on with after any end, and answered by others once their client is gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, SeenRequest};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::Client;
use crate::program::{command, printed};
use crate::session::KEY;
use crate::support::{Sandbox, wait_for_end};
use crate::{WRITER, sandbox};

const ECHO: &str = "- {say: '{{ heard }} is reply {{ round }}'}";

/// What the list says of a run.
#[track_caller]
fn listed(client: &mut Client, run: &Value) -> Value {
    let runs = client.result("runs.list", &json!({}))["runs"].clone();
    let line = runs.as_array().unwrap().iter().find(|line| line["id"] == *run).cloned();
    line.unwrap_or_else(|| panic!("{run} is not in {runs}"))
}

/// Opens a scope without events; the whole answer.
#[track_caller]
fn opened(client: &mut Client, more: &Value) -> Value {
    let mut params = json!({"events": "none"});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.result("open", &params)
}

fn cost_lines(sandbox: &Sandbox) -> Vec<Value> {
    let files = fs::read_dir(sandbox.state().join("costs")).into_iter().flatten().flatten();
    let text: String = files.map(|file| fs::read_to_string(file.path()).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_scope_is_kept_listed_and_gone_on_with_in_another_process() {
    let sandbox = sandbox("", ECHO);
    let mut client = Client::start(&sandbox);
    let first = opened(&mut client, &json!({"project": "main.worker", "label": "mine"}));
    assert_eq!(first["kept"], true);
    assert!(first.get("turns").is_none(), "nothing went before: {first}");
    assert_eq!(client.turn(1, "one"), "one is reply 1");
    assert_eq!(listed(&mut client, &first["run"])["state"], "running");
    client.result("close", &json!({"scope": 1}));
    let line = listed(&mut client, &first["run"]);
    assert_eq!((&line["state"], &line["kind"], &line["label"]), (&json!("done"), &json!("scope"), &json!("mine")));
    assert_eq!((&line["entry"], &line["turns"]), (&json!("main"), &json!(1)));
    client.ends_well();

    let mut client = Client::start(&sandbox);
    let again = opened(&mut client, &json!({"continue": first["run"], "project": "main.worker"}));
    assert_eq!((&again["run"], &again["turns"], &again["changed"]), (&first["run"], &json!(1), &json!([])));
    assert_eq!(
        (&again["unfinished"], &again["messages"][1]["parts"][0]["text"]),
        (&Value::Null, &json!("one is reply 1"))
    );
    let scope = again["scope"].as_u64().unwrap();
    assert_eq!(client.turn(scope, "two"), "two is reply 2");
    let error = client.error("open", &json!({"continue": first["run"]}));
    assert_eq!(error["data"]["kind"], "usage", "one process runs it: {error}");
    client.ends_well();
    // What ended well by the end of its client is done, and a chat goes on with it.
    let told = sandbox.run(&["runs", "--json", "--all"]);
    let line: Value = serde_json::from_str(told.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&line["state"], &line["turns"]), (&json!("done"), &json!(2)));
    let id = first["run"].as_str().unwrap();
    let chat = sandbox.run(&["chat", "main.worker", "three", "--continue", id, "--no-stdin"]);
    assert!(chat.stdout.contains("three is reply 3"), "{}{}", chat.stdout, chat.stderr);
}

#[test]
fn a_scope_that_shall_not_be_kept_leaves_only_its_costs() {
    let sandbox = sandbox("", ECHO);
    for (config, keep, is_kept) in [
        ("", Some(false), false),
        ("[runs]\nkeep = false\n", None, false),
        ("[runs]\nkeep = false\n", Some(true), true),
    ] {
        sandbox.file(".config/llm-do/config.toml", config);
        let mut client = Client::start(&sandbox);
        let opened = opened(&mut client, &json!({"project": "main.worker", "keep": keep}));
        assert_eq!(opened["kept"], is_kept);
        assert_eq!(client.turn(1, "x"), "x is reply 1");
        client.ends_well();
        let runs = fs::read_dir(sandbox.state().join("runs"))
            .map_or(0, |runs| runs.flatten().filter(|run| run.path().join("journal").is_file()).count());
        assert_eq!(runs, usize::from(is_kept));
    }
    assert_eq!(cost_lines(&sandbox).len(), 3, "each is counted");
}

#[test]
fn what_a_scope_costs_is_written_once_per_agent_and_model_whatever_goes_on_with_it() {
    let sandbox = sandbox("", ECHO);
    let mut client = Client::start(&sandbox);
    let run = opened(&mut client, &json!({"project": "main.worker"}))["run"].clone();
    client.turn(1, "one");
    client.ends_well();
    let mut client = Client::start(&sandbox);
    opened(&mut client, &json!({"continue": run}));
    client.turn(1, "two");
    client.ends_well();
    let lines: Vec<Value> = cost_lines(&sandbox).into_iter().filter(|line| line["run"] == run).collect();
    let last = lines.last().unwrap();
    assert_eq!((&last["agent"], &last["model"]), (&json!("main"), &json!("scripted:script.yaml")), "{last}");
    let told = sandbox.run(&["costs", "--by", "agent", "--json"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert_eq!(told.stdout.lines().count(), 1, "{}", told.stdout);
}

#[test]
fn the_scopes_of_a_server_keep_one_budget_together() {
    let said = FakeReply::text("yes").with_usage(FakeUsage::new(1000, 1000));
    let fake = FakeLlm::start(FakeScript::new().otherwise(said));
    let sandbox = Sandbox::new();
    let keys = "model: anthropic:claude-haiku-4-5\nmodel_settings: {max_tokens: 2000}";
    sandbox.file("main.worker", &format!("---\nname: main\n{keys}\n---\nx\n"));
    sandbox.file(".config/llm-do/config.toml", "[[budget]]\nname = \"everyday\"\nusd = 0.02\nper = \"month\"\n");
    let url = fake.anthropic_url();
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)];
    let mut client = Client::of(sandbox.command(&["serve", "--stdio"], &variables));
    for (scope, keep) in [(1, true), (2, false), (3, true)] {
        assert_eq!(client.open(&json!({"keep": keep})), scope);
    }
    let turns: Vec<u64> = (1..=3).map(|scope| client.ask("turn", &json!({"scope": scope, "input": "x"}))).collect();
    for turn in turns {
        let answer = client.answer(turn);
        assert_eq!(answer["result"]["output"], "yes", "{answer}");
    }
    let error = client.error("turn", &json!({"scope": 2, "input": "x"})).to_string();
    assert!(error.contains("the budget `everyday` is used up: $0.0180 of $0.0200 for this month"), "{error}");
    assert_eq!(fake.requests().len(), 3);
    client.ends_well();
    let holders = sandbox.state().join("budgets/everyday/holders");
    assert_eq!(fs::read_dir(holders).unwrap().count(), 0, "nobody holds anything any more");
}

#[test]
fn a_history_that_is_given_is_checked_and_is_the_beginning_of_the_record() {
    let sandbox = sandbox("", ECHO);
    let mut client = Client::start(&sandbox);
    client.open(&json!({"keep": false}));
    let history = client.result("turn", &json!({"scope": 1, "input": "zero"}))["messages"].clone();
    let bad = json!([history[0], {"role": "assistant", "parts": [
        {"type": "tool_call", "id": "a", "tool": "t", "arguments": {}}], "model": "a:b", "finish": "tool_calls", "usage": {}}]);
    let before = client.result("runs.list", &json!({}));
    for (wrong, words) in [
        (&bad, "the last reply has tool calls without results"),
        (&json!([history[1], {"role": "tool", "parts": []}]), "message 2"),
    ] {
        let error = client.error("open", &json!({"project": "main.worker", "message_history": wrong}));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words) || error["code"] == -32602, "{error}");
    }
    assert_eq!(client.result("runs.list", &json!({})), before, "nothing was begun");
    let opened = opened(&mut client, &json!({"project": "main.worker", "message_history": history}));
    let scope = opened["scope"].as_u64().unwrap();
    assert_eq!(client.turn(scope, "one"), "one is reply 2", "what was said before counts");
    client.ends_well();
    let mut client = Client::start(&sandbox);
    let again = client.result("open", &json!({"continue": opened["run"]}));
    assert_eq!(again["messages"].as_array().unwrap().len(), 4);
    assert_eq!(again["messages"][0], history[0]);
    assert_eq!(client.turn(1, "two"), "two is reply 3");
    let error = client.error("open", &json!({"continue": opened["run"], "message_history": history}));
    assert!(error["message"].as_str().unwrap().contains("exclude each other"), "{error}");
    client.ends_well();
}

#[test]
fn rules_of_a_program_bind_whoever_goes_on() {
    let sandbox = sandbox("toolsets: [filesystem_cwd]\napproval: { write_file: allow }", WRITER);
    let mut client = Client::start(&sandbox);
    let run = opened(&mut client, &json!({"project": "main.worker", "tool_rules": {"write_file": {"allowed": false}}}))
        ["run"]
        .clone();
    client.turn(1, "hello");
    client.ends_well();
    let id = run.as_str().unwrap();
    let chat = sandbox.run(&["chat", "main.worker", "write", "--continue", id, "--no-stdin"]);
    assert!(!sandbox.path().join("out.txt").exists(), "{}{}", chat.stdout, chat.stderr);
    let mut client = Client::start(&sandbox);
    opened(&mut client, &json!({"continue": run}));
    let _ = client.ask("turn", &json!({"scope": 1, "input": "write"}));
    client.result("close", &json!({"scope": 1}));
    assert!(!sandbox.path().join("out.txt").exists());
    // The program itself may say otherwise.
    opened(&mut client, &json!({"continue": run, "tool_rules": {"write_file": {}}}));
    assert_eq!(client.turn(2, "write"), "Result: wrote 2 characters to out.txt");
    client.ends_well();
}

#[test]
fn what_only_the_program_has_it_gives_again() {
    let sandbox = Sandbox::new();
    sandbox.file("script.yaml", "- {tool: count, say: 'There are {{ result }}'}\n- {call: {count: {text: a b}}}");
    let agent = "---\nname: main\nmodel: scripted:script.yaml\ntoolsets: [mine]\n---\nCount.";
    let tool = json!({"name": "count", "parameters": {"type": "object"}, "approval": "allow"});
    let values = json!({"agents": [agent], "toolsets": {"mine": {"tools": [tool]}}});
    let mut client = Client::start(&sandbox);
    let run = opened(&mut client, &values)["run"].clone();
    let count = |client: &mut Client, scope: u64| {
        let turn = client.ask("turn", &json!({"scope": scope, "input": "How many?"}));
        let asked = client.request("call_tool");
        client.send(json!({"id": asked["id"], "result": {"value": 2}}));
        assert_eq!(client.answer(turn)["result"]["output"], "There are 2");
    };
    count(&mut client, 1);
    client.result("close", &json!({"scope": 1}));
    let error = client.error("open", &json!({"continue": run}));
    assert!(
        error["message"].as_str().unwrap().ends_with("needs what its program gave it: `agents`, `toolsets.mine`"),
        "{error}"
    );
    let mut again = values.clone();
    again["continue"] = run.clone();
    let opened = opened(&mut client, &again);
    assert_eq!((&opened["turns"], &opened["changed"]), (&json!(1), &json!([])));
    count(&mut client, opened["scope"].as_u64().unwrap());
    client.ends_well();
    let resumed = sandbox.run(&["resume", run.as_str().unwrap()]);
    assert_eq!(resumed.code, Some(2));
    assert!(
        resumed.stderr.contains("belongs to a program") && resumed.stderr.contains("toolsets.mine"),
        "{}",
        resumed.stderr
    );
}

#[test]
fn a_function_of_the_client_takes_the_next_turn_where_it_goes_on() {
    let sandbox = Sandbox::new();
    let values = json!({"agents": [], "entry": {"function": "twice"}});
    let twice = |client: &mut Client, scope: u64, input: &str| {
        let turn = client.ask("turn", &json!({"scope": scope, "input": {"input": input}}));
        let asked = client.request("call_entry");
        let given = asked["params"]["input"]["input"].as_str().unwrap();
        client.send(json!({"id": asked["id"], "result": {"value": format!("{given}{given}")}}));
        assert_eq!(client.answer(turn)["result"]["output"], format!("{input}{input}"));
    };
    let mut client = Client::start(&sandbox);
    let run = opened(&mut client, &values)["run"].clone();
    twice(&mut client, 1, "a");
    twice(&mut client, 1, "b");
    client.ends_well();
    let mut client = Client::start(&sandbox);
    let mut again = values;
    again["continue"] = run.clone();
    opened(&mut client, &again);
    twice(&mut client, 1, "a");
    client.result("close", &json!({"scope": 1}));
    assert_eq!(listed(&mut client, &run)["turns"], 3, "none stands for another");
    client.ends_well();
}

/// A writer whose one question nobody has answered, in a store.
fn waiting_run() -> (Sandbox, Value, Value) {
    let sandbox = sandbox("toolsets: [filesystem_cwd]", WRITER);
    let mut client = Client::start(&sandbox);
    let run = opened(&mut client, &json!({"project": "main.worker"}))["run"].clone();
    let turn = client.ask("turn", &json!({"scope": 1, "input": "write"}));
    let question = client.question();
    client.send(json!({"id": question["id"], "error": {"code": -32601, "message": "nobody"}}));
    let error = client.answer(turn)["error"].clone();
    assert_eq!((&error["data"]["kind"], &error["data"]["run"]), (&json!("approval"), &run), "{error}");
    client.result("close", &json!({"scope": 1}));
    assert_eq!(listed(&mut client, &run)["state"], "waits");
    client.ends_well();
    let id = error["data"]["pending"][0]["id"].clone();
    (sandbox, run, id)
}

#[test]
fn a_turn_that_waits_is_finished_with_the_answers_that_are_given() {
    for (decision, answer) in [
        (json!({"approved": true}), "Result: wrote 2 characters to out.txt"),
        (json!({"approved": false, "note": "not now"}), "Result: error: refused: not now"),
        (
            json!({"approved": true, "arguments": {"path": "edited.txt", "content": "hello"}}),
            "wrote 5 characters to edited.txt",
        ),
    ] {
        let (sandbox, run, question) = waiting_run();
        let mut client = Client::start(&sandbox);
        for (answers, words) in [
            (json!({"0123456789ab": {"approved": true}}), "no call waits with the id"),
            (json!({question.as_str().unwrap(): {"approved": true, "remember": "call"}}), "approved once, or refused"),
        ] {
            let error = client.error("open", &json!({"continue": run, "answers": answers}));
            assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        }
        let short = &question.as_str().unwrap()[..12];
        let open = opened(&mut client, &json!({"continue": run, "answers": {short: decision}}));
        assert_eq!(open["unfinished"][0]["text"], "write");
        assert_eq!(open["pending"][0]["id"], question);
        let scope = &open["scope"];
        let output = client.result("turn", &json!({"scope": scope, "finish": true}))["output"].clone();
        assert!(output.as_str().unwrap().ends_with(answer), "{output}");
        let error = client.error("turn", &json!({"scope": scope, "finish": true}));
        assert_eq!(error["message"], "there is no turn to finish");
        assert_eq!(client.turn(scope.as_u64().unwrap(), "hello"), "You said hello");
        client.ends_well();
    }
}

#[test]
fn a_cut_turn_needs_force_if_the_project_has_changed_and_others_do_not() {
    let (sandbox, run, question) = waiting_run();
    let worker = fs::read_to_string(sandbox.path().join("main.worker")).unwrap();
    sandbox.file("main.worker", &worker.replace("You are main.", "You are another main."));
    let mut client = Client::start(&sandbox);
    let open = opened(&mut client, &json!({"continue": run}));
    assert_eq!(open["changed"], json!(["main.worker has changed"]));
    let error = client.error("turn", &json!({"scope": 1, "finish": true}));
    assert_eq!(error["data"]["hint"], "`force: true` beside `continue` goes on with the project as it is now");
    client.result("close", &json!({"scope": 1}));
    opened(
        &mut client,
        &json!({"continue": run, "force": true, "answers": {question.as_str().unwrap(): {"approved": true}}}),
    );
    assert_eq!(
        client.result("turn", &json!({"scope": 2, "finish": true}))["output"],
        "Result: wrote 2 characters to out.txt"
    );
    client.ends_well();
    // Without a word about it another turn goes on.
    let mut client = Client::start(&sandbox);
    opened(&mut client, &json!({"continue": run}));
    assert_eq!(client.turn(1, "hello"), "You said hello");
    client.ends_well();
}

#[test]
fn a_client_that_is_killed_leaves_its_questions_to_others_if_the_scope_is_kept() {
    for is_kept in [true, false] {
        let sandbox = sandbox("toolsets: [filesystem_cwd]", WRITER);
        let source = format!(
            r#"
import asyncio
from llm_do import start

async def never(tool, payload, reason):
    print("asked", flush=True)
    await asyncio.sleep(3600)

async def main():
    async with start("main.worker", approval_callback=never, keep={}) as scope:
        print(scope.run_id, flush=True)
        await scope.run_turn("write")

asyncio.run(main())
"#,
            if is_kept { "True" } else { "False" }
        );
        let mut program = command(&sandbox, &source).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = std::io::BufReader::new(program.stdout.take().unwrap());
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            std::io::BufRead::read_line(&mut said, line).unwrap();
        }
        let [run, asked] = lines;
        assert_eq!(asked, "asked\n");
        kill_process(Pid::from_child(&program), Signal::KILL).unwrap();
        wait_for_end(&mut program);
        wait_until_nobody_works_in(sandbox.path());
        let run = run.trim();
        let mut client = Client::start(&sandbox);
        if !is_kept {
            assert_eq!(client.result("runs.list", &json!({}))["runs"], json!([]));
            client.ends_well();
            continue;
        }
        let line = listed(&mut client, &json!(run));
        assert_eq!((&line["state"], &line["waits"]), (&json!("waits"), &json!("write_file")));
        let pending = client.result("runs.show", &json!({"run": run}))["waiting"].clone();
        client.ends_well();
        let question = &pending[0]["id"].as_str().unwrap()[..12];
        let resumed = sandbox.run(&["resume", run, "--approve", question]);
        assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), "Result: wrote 2 characters to out.txt\n"));
    }
}

/// Its server ends by itself when its client is gone.
#[track_caller]
fn wait_until_nobody_works_in(directory: &Path) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !crate::program::left_in(directory).is_empty() {
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::yield_now();
    }
}

#[test]
fn python_keeps_lists_continues_and_resumes() {
    let sandbox = sandbox("toolsets: [filesystem_cwd]", WRITER);
    let said = printed(
        &sandbox,
        r#"
import asyncio
from llm_do import ApprovalError, UsageError, list_runs, list_runs_async, resume_run, run_worker, start

first = run_worker("main.worker", input_data="hello", label="mine")
again = run_worker("main.worker", input_data="more", continue_run=first.run_id)
print(again.run_id == first.run_id, again.output)
with_history = run_worker("main.worker", input_data="x", message_history=first.messages, keep=False)
print(with_history.run_id in [run["id"] for run in list_runs()], [run["label"] for run in list_runs(label="mine")])
try:
    run_worker("main.worker", input_data="x", message_history=[{"role": "tool", "parts": []}])
except UsageError as error:
    print(error.message)
try:
    run_worker("main.worker", input_data="x", message_history=[object()])
except TypeError as error:
    print(error)
try:
    run_worker("main.worker", input_data="write")
except ApprovalError as error:
    waiting = error
print(len(waiting.pending), [run["waits"] for run in list_runs(state="waits")])
result = resume_run(waiting.run_id, approve=[waiting.pending[0]["id"]])
print(result.output, result.run_id == waiting.run_id)
try:
    run_worker("main.worker", input_data="other")
except ApprovalError as error:
    print(resume_run(error.run_id, refuse={error.pending[0]["id"]: "not now"}).output)

async def main():
    async with start("main.worker", continue_run=first.run_id) as scope:
        print(len(scope.messages), scope.changed, scope.is_kept)
    print(len(await list_runs_async("main.worker", limit=2)))

asyncio.run(main())
"#,
    );
    let expected = "True You said more\n\
        False ['mine']\n\
        `message_history` cannot be gone on with: message 1 has results of calls that nobody made\n\
        `message_history[0]` is of type object, which JSON has no form for: give text, numbers, lists or dicts\n\
        1 ['write_file']\n\
        Result: wrote 2 characters to out.txt True\n\
        Result: error: refused: not now\n\
        4 [] True\n\
        2\n";
    assert_eq!(said, expected);
}

#[test]
fn runs_are_cancelled_and_forked_by_programs() {
    let (sandbox, run, _) = waiting_run();
    let mut client = Client::start(&sandbox);
    assert_eq!(client.result("runs.cancel", &json!({"run": run})), json!({"run": run, "outcome": "marked"}));
    assert_eq!(listed(&mut client, &run)["state"], "stopped");
    assert_eq!(client.result("runs.cancel", &json!({"run": run}))["outcome"], "stopped");
    let error = client.error("runs.list", &json!({"state": "asleep"}));
    assert_eq!(error["data"]["kind"], "usage", "{error}");
    let fork = client.result("runs.fork", &json!({"run": run, "turn": 1}));
    assert_eq!(fork["input"], "write");
    let open = opened(&mut client, &json!({"continue": fork["run"]}));
    assert_eq!(open["turns"], 0);
    assert_eq!(client.turn(open["scope"].as_u64().unwrap(), "hello"), "You said hello");
    // One that this process runs: it hears it too.
    let scope = open["scope"].clone();
    let turn = client.ask("turn", &json!({"scope": scope, "input": "write"}));
    client.question();
    assert_eq!(client.result("runs.cancel", &json!({"run": fork["run"]}))["outcome"], "asked");
    let error = client.answer(turn)["error"].clone();
    assert_eq!(error["data"]["kind"], "cancelled", "{error}");
    client.ends_well();
}

#[test]
fn questions_are_listed_and_answered_by_another_program() {
    // Of a run that nobody runs.
    let (sandbox, run, question) = waiting_run();
    let mut client = Client::start(&sandbox);
    let listed = client.result("questions.list", &json!({"run": run}))["questions"].clone();
    assert_eq!((&listed[0]["digest"], &listed[0]["tool"]), (&question, &json!("write_file")));
    let short = &question.as_str().unwrap()[..12];
    for (wrong, words) in [
        (json!({"question": short, "approved": true, "note": "x"}), "`note` is for refusals"),
        (json!({"question": "0123456789ab", "approved": true}), "no question with the id"),
        (json!({"question": short, "approved": true, "arguments": {"path": 7}}), "`arguments`: "),
    ] {
        let error = client.error("questions.answer", &wrong);
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    let answered = client.result("questions.answer", &json!({"question": short, "approved": false, "note": "not now"}));
    assert_eq!(answered, json!({"run": run, "question": question, "running": false}));
    let error = client.error("questions.answer", &json!({"question": short, "approved": true}));
    assert!(error["message"].as_str().unwrap().contains("was answered already"), "{error}");
    opened(&mut client, &json!({"continue": run}));
    assert_eq!(
        client.result("turn", &json!({"scope": 1, "finish": true}))["output"],
        "Result: error: refused: not now"
    );
    // Of one that runs in another process, whose client is asked too.
    let turn = client.ask("turn", &json!({"scope": 1, "input": "other"}));
    let asked = client.question();
    let mut other = Client::start(&sandbox);
    let id = asked["params"]["id"].as_str().unwrap();
    // It is asked a moment before its line is in the record.
    let deadline = Instant::now() + Duration::from_mins(1);
    while other.result("questions.list", &json!({}))["questions"] == json!([]) {
        assert!(Instant::now() < deadline, "it is not listed");
    }
    let answered = other.result("questions.answer", &json!({"question": id, "approved": true}));
    assert_eq!(answered["running"], true);
    assert_eq!(client.answer(turn)["result"]["output"], "Result: wrote 2 characters to other.txt");
    assert_eq!(other.result("questions.list", &json!({}))["questions"], json!([]));
    other.ends_well();
    client.ends_well();
}

/// How many deaths a test of kills survives; `bench/` asks for more.
fn kills() -> usize {
    std::env::var("LLM_DO_SCOPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// Each turn edits once, which shows if it happens twice, and then says so.
fn editor(seen: &SeenRequest) -> FakeReply {
    let turn = seen.messages.iter().filter(|message| message.text().starts_with("turn ")).count();
    let edits = seen.results().count();
    if edits >= turn {
        return FakeReply::text(&format!("done with turn {turn}"));
    }
    let edit = json!({"path": "effects", "old": "END", "new": format!("turn {turn}\nEND")});
    FakeReply::calls([FakeCall::new("edit_file", edit).with_id(&format!("id_{turn}"))])
}

/// A scope of three turns, which is gone on with until all of them are answered.
struct Endured {
    sandbox: Sandbox,
    fake: FakeLlm,
    run: Option<String>,
    answers: BTreeMap<usize, String>,
    deaths: usize,
    in_doubt: bool,
}

impl Endured {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let keys = "toolsets: [filesystem_cwd]\napproval: { edit_file: allow }";
        let worker = format!("---\nname: main\nmodel: anthropic:claude-haiku-4-5\n{keys}\n---\nYou edit.\n");
        sandbox.file("project/main.worker", &worker).file("effects", "END");
        let fake = FakeLlm::start(FakeScript::new().answer(|seen| Some(editor(seen))).accept_foreign_history());
        Self { sandbox, fake, run: None, answers: BTreeMap::new(), deaths: 0, in_doubt: false }
    }

    /// One life of a server, killed after this time unless it has done everything before. Whether it has.
    fn live(&mut self, longest: Option<Duration>) -> bool {
        let url = self.fake.anthropic_url();
        let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)];
        let mut server = Life::start(&self.sandbox, &variables, longest);
        let is_done = self.turns(&mut server).is_some();
        self.deaths += usize::from(!is_done);
        server.ends(is_done);
        is_done
    }

    /// `None` where the server died.
    fn turns(&mut self, server: &mut Life) -> Option<()> {
        let open = match &self.run {
            None => json!({"project": "project", "events": "none"}),
            Some(run) => json!({"continue": run, "events": "none"}),
        };
        let opened = server.asked("open", &open)?;
        if let Some(run) = &self.run {
            assert_eq!(opened["run"], run.as_str());
            let turns = usize::try_from(opened["turns"].as_u64().unwrap()).unwrap();
            let known = self.answers.len();
            assert!(turns == known || turns == known + 1, "{turns} turns are recorded, {known} were answered");
            self.in_doubt |= !opened["in_doubt"].as_array().unwrap().is_empty();
            // One whose answer was recorded and not told is told now.
            if turns == known + 1 {
                let said = opened["messages"].as_array().unwrap().last().unwrap()["parts"][0]["text"].clone();
                self.answered(said.as_str().unwrap());
            }
        }
        self.run = Some(opened["run"].as_str().unwrap().to_owned());
        if !opened["unfinished"].is_null() {
            let turned = server.asked("turn", &json!({"scope": 1, "finish": true}))?;
            self.answered(turned["output"].as_str().unwrap());
        }
        while self.answers.len() < 3 {
            let input = format!("turn {}", self.answers.len() + 1);
            let turned = server.asked("turn", &json!({"scope": 1, "input": input}))?;
            self.answered(turned["output"].as_str().unwrap());
        }
        server.asked("close", &json!({"scope": 1})).map(drop)
    }

    fn answered(&mut self, output: &str) {
        let number = self.answers.len() + 1;
        assert_eq!(output, format!("done with turn {number}"));
        self.answers.insert(number, output.to_owned());
    }

    fn state(&self) -> String {
        let told = self.sandbox.run(&["runs", "--all", "--json"]);
        let line: Value = serde_json::from_str(told.stdout.lines().next().unwrap_or("{}")).unwrap();
        line["state"].as_str().unwrap_or("nothing").to_owned()
    }

    fn check(&self) {
        let effects = fs::read_to_string(self.sandbox.path().join("effects")).unwrap();
        for turn in 1..=3 {
            let count = effects.lines().filter(|line| *line == format!("turn {turn}")).count();
            assert!(count <= 1, "the effect of turn {turn} happened {count} times");
            assert!(count == 1 || self.in_doubt, "the effect of turn {turn} was lost, and nobody says so");
        }
        assert_eq!(self.answers.len(), 3);
        assert_eq!(self.state(), "done");
        // Only what was under way when a process died is asked again.
        let asked = self.fake.requests().len();
        assert!(asked <= 6 + self.deaths, "{asked} requests with {} deaths", self.deaths);
    }
}

/// A server that may be killed at any moment, and lines to and from it.
struct Life {
    child: std::process::Child,
    lines: std::io::BufReader<std::process::ChildStdout>,
    next: u64,
    killer: Option<std::thread::JoinHandle<()>>,
}

impl Life {
    fn start(sandbox: &Sandbox, variables: &[(&str, &str)], longest: Option<Duration>) -> Self {
        let mut command = sandbox.command(&["serve", "--stdio"], variables);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap());
        let pid = Pid::from_child(&child);
        // It is reaped only after this thread has ended, so that the number is its own until then.
        let killer = longest.map(|longest| {
            std::thread::spawn(move || {
                std::thread::sleep(longest);
                let _ = kill_process(pid, Signal::KILL);
            })
        });
        Self { child, lines, next: 0, killer }
    }

    /// The result; `None` if it died before.
    fn asked(&mut self, method: &str, params: &Value) -> Option<Value> {
        self.next += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        let stdin = self.child.stdin.as_mut().unwrap();
        std::io::Write::write_all(stdin, format!("{request}\n").as_bytes()).ok()?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.lines, &mut line).ok()?;
        let answer: Value = serde_json::from_str(line.strip_suffix('\n')?).unwrap();
        assert!(answer["error"].is_null(), "{method}: {answer}");
        Some(answer["result"].clone())
    }

    fn ends(mut self, is_done: bool) {
        drop(self.child.stdin.take());
        if let Some(killer) = self.killer.take() {
            killer.join().unwrap();
        }
        let status = self.child.wait().unwrap();
        assert!(is_done || status.code().is_none(), "it ended by itself: {status}");
    }
}

#[test]
fn a_server_that_is_killed_at_any_moment_loses_no_turn_and_does_nothing_twice() {
    let seed =
        std::env::var("LLM_DO_SCOPE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    let (mut random, wanted) = (fastrand::Rng::with_seed(seed), kills());
    println!("LLM_DO_SCOPE_SEED={seed}");
    let started = Instant::now();
    let mut whole = Endured::new();
    assert!(whole.live(None));
    whole.check();
    assert_eq!(whole.fake.requests().len(), 6);
    let (whole_time, mut deaths, mut in_doubt) = (started.elapsed(), 0, 0);
    while deaths < wanted {
        let mut endured = Endured::new();
        loop {
            let is_left = endured.deaths < 4;
            let longest = is_left.then(|| whole_time.mul_f64(random.f64()));
            if endured.live(longest) {
                break;
            }
            let state = endured.state();
            assert!(matches!(state.as_str(), "died" | "nothing" | "done"), "{state}");
        }
        endured.check();
        deaths += endured.deaths;
        in_doubt += usize::from(endured.in_doubt);
    }
    println!("{deaths} kills of scopes, {in_doubt} scopes with something in doubt");
}

#[test]
fn a_limit_that_asks_is_raised_by_a_client_or_by_a_program() {
    let rounds = "- { round: 1, call: { list_files: { path: \".\" } } }\n- say: seen\n";
    let sandbox = sandbox("toolsets: [filesystem_cwd]", rounds);
    let limits = json!({"max_requests": 1, "on_limit": "ask"});
    let mut client = Client::start(&sandbox);
    let run = opened(&mut client, &json!({"project": "main.worker", "limits": limits}))["run"].clone();
    let turn = client.ask("turn", &json!({"scope": 1, "input": "hi"}));
    let asked = client.question();
    assert_eq!(asked["params"]["reason"], "1 of 1 model requests used. Raise to 2?", "{asked}");
    client.send(json!({"id": asked["id"], "error": {"code": -32601, "message": "nobody"}}));
    let error = client.answer(turn)["error"].clone();
    assert_eq!(error["data"]["pending"][0]["tool"], "raise_limit", "{error}");
    // One who is there says how far.
    opened(&mut client, &json!({"project": "main.worker", "limits": limits, "keep": false}));
    let turn = client.ask("turn", &json!({"scope": 2, "input": "hi"}));
    let asked = client.question();
    client.decide(&asked, &json!({"approved": true, "values": {"to": 5}}));
    assert_eq!(client.answer(turn)["result"]["output"], "seen");
    client.ends_well();
    let mut client = Client::start(&sandbox);
    let asked = client.result("questions.list", &json!({}))["questions"][0].clone();
    let question = asked["question"].as_str().unwrap();
    for (wrong, why) in [
        (json!({"question": question, "approved": true, "values": {"usd": 3}}), "this question has no `usd`"),
        (json!({"question": question, "approved": true, "values": {"to": "x"}}), "`to=x` is no number"),
        (json!({"question": question, "approved": false, "values": {"to": 3}}), "`values` are for approvals"),
        (json!({"question": question, "approved": true, "arguments": {"to": 3}}), "no answer about a limit"),
    ] {
        let error = client.error("questions.answer", &wrong);
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
    let answered = json!({"question": question, "approved": true, "values": {"to": 2}});
    assert_eq!(client.result("questions.answer", &answered)["running"], false);
    opened(&mut client, &json!({"continue": run}));
    assert_eq!(client.result("turn", &json!({"scope": 1, "finish": true}))["output"], "seen");
    client.ends_well();
    let said = printed(
        &sandbox,
        r#"
from llm_do import ApprovalError, UsageError, resume_run, run_worker

asks = {"max_requests": 1, "on_limit": "ask"}
for approve in [lambda question: [question], lambda question: {question: {"to": 2}}]:
    try:
        run_worker("main.worker", input_data="hi", limits=asks)
    except ApprovalError as error:
        question, run = error.pending[0]["id"], error.run_id
    try:
        resume_run(run, approve={question: {"usd": 2}})
    except UsageError as error:
        print(error.message.split(": ", 1)[1])
    print(resume_run(run, approve=approve(question)).output)
"#,
    );
    let wrong = "this question has no `usd`: it is answered by `to=…`";
    assert_eq!(said, format!("{wrong}\nseen\n{wrong}\nseen\n"));
}
