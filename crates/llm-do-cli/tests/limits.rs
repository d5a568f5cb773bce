//! Limits that ask, and limits at which a model finishes: from the outside, with a person at the terminal, without one, and from
//! elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/session.rs"]
mod session;
#[path = "support/mod.rs"]
mod support;
#[path = "support/terminal.rs"]
mod terminal;

use fake_llm::{
    At, FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, InjectedFault, On, ReceivedRequest, SeenRequest, StallGate,
};
use serde_json::{Value, json};
use session::{KEY, Run, of_type};
use support::{Ended, Sandbox};
use terminal::Terminal;

/// Looks around three times, then says so.
const ROUNDS: &str = "- { round: 1, call: { list_files: { path: \".\" } } }
- { round: 2, call: { list_files: { path: \".\" } } }
- { round: 3, call: { list_files: { path: \"..\" } } }
- say: done
";
const SCRIPTED: [&str; 5] = ["run", ".", "hi", "-m", "scripted:script.yaml"];

/// An agent with these keys that looks around by a script.
fn looker(keys: &str) -> Sandbox {
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", &format!("---\nname: main\ntoolsets: [filesystem_cwd]\n{keys}\n---\nLook.\n"));
    sandbox.file("script.yaml", ROUNDS);
    sandbox
}

fn scripted(sandbox: &Sandbox, more: &[&str]) -> Ended {
    sandbox.run(&[&SCRIPTED, more].concat())
}

/// The only open question.
#[track_caller]
fn question(sandbox: &Sandbox) -> Value {
    let open = questions(sandbox);
    assert_eq!(open.len(), 1, "{open:?}");
    open.into_iter().next().unwrap()
}

fn questions(sandbox: &Sandbox) -> Vec<Value> {
    let ended = sandbox.run(&["inbox", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn id(question: &Value) -> &str {
    question["question"].as_str().unwrap()
}

/// A run that is suspended at a question about a limit, with these words and arguments.
#[track_caller]
fn check_asked(ended: &Ended, sandbox: &Sandbox, reason: &str, arguments: &Value) -> Value {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{ended:?}");
    let question = question(sandbox);
    assert_eq!((question["tool"].as_str(), question["reason"].as_str()), (Some("raise_limit"), Some(reason)));
    assert_eq!(question["arguments"], *arguments);
    question
}

#[test]
fn a_limit_of_requests_waits_for_an_answer_and_the_answer_lasts() {
    let sandbox = looker("");
    let ended = scripted(&sandbox, &["--max-requests", "2", "--on-limit", "ask"]);
    let asked = json!({"limit": "max_requests", "of": "run", "used": 2, "allowed": 2, "needed": 1, "to": 4});
    let first = check_asked(&ended, &sandbox, "2 of 2 model requests used. Raise to 4?", &asked);
    // Nothing that is wrong changes anything.
    for (words, wrong) in [
        (["answer", id(&first), "to=abc"], "`to=abc` is no number"),
        (["answer", id(&first), "to=1"], "1 is less than the 2 that are used already"),
        (["answer", id(&first), "to=2"], "2 is not more than the 2 that are allowed already"),
        (["answer", id(&first), "to=2.5"], "cannot be raised to 2.5"),
        (["answer", id(&first), "usd=3"], "this question has no `usd`: it is answered by `to=…`"),
        (["answer", id(&first), "three"], "`three` is no `name=value`"),
        (["answer", "0123456789ab", "to=3"], "no question with the id `0123456789ab` is open"),
    ] {
        let ended = sandbox.run(&[&["inbox"][..], &words].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(wrong), "{words:?}: {}", ended.stderr);
        assert_eq!(questions(&sandbox).len(), 1, "{words:?}");
    }
    // Another process takes up the answer, and meets the limit again where it is now.
    let again = sandbox.run(&["inbox", "answer", id(&first), "to=3", "--go"]);
    let asked = json!({"limit": "max_requests", "of": "run", "used": 3, "allowed": 3, "needed": 1, "to": 6});
    let second = check_asked(&again, &sandbox, "3 of 3 model requests used. Raise to 6?", &asked);
    let gone = sandbox.run(&["inbox", "answer", id(&first), "to=9"]);
    assert_eq!(gone.code, Some(2), "{gone:?}");
    assert!(gone.stderr.contains("was answered already"), "{gone:?}");
    let done = sandbox.run(&["inbox", "approve", id(&second), "--go"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "done\n"), "{done:?}");
    assert!(questions(&sandbox).is_empty());
    // It is told again as it was.
    let run = sandbox.runs().pop().unwrap();
    let again = sandbox.run(&["resume", &run]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "done\n"), "{again:?}");
}

#[test]
fn flags_of_resume_raise_a_limit_and_no_question_is_left() {
    let sandbox = looker("");
    let suspended = scripted(&sandbox, &["--max-requests", "2", "--on-limit", "ask"]);
    assert_eq!(suspended.code, Some(4), "{suspended:?}");
    let run = sandbox.runs().pop().unwrap();
    // A limit that is as low as before asks the same again; a higher one is the new word about it.
    let same = sandbox.run(&["resume", &run]);
    assert_eq!((same.code, questions(&sandbox).len()), (Some(4), 1), "{same:?}");
    let higher = sandbox.run(&["resume", &run, "--max-requests", "3"]);
    assert_eq!(higher.code, Some(4), "{higher:?}");
    let left = question(&sandbox);
    assert_eq!(left["reason"], "3 of 3 model requests used. Raise to 6?");
    let done = sandbox.run(&["resume", &run, "--max-requests", "4"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "done\n"), "{done:?}");
    assert!(questions(&sandbox).is_empty());
}

#[test]
fn who_refuses_stops_the_run_as_the_limit_does() {
    let sandbox = looker("");
    let words = ["--max-requests", "2", "--on-limit", "ask"];
    assert_eq!(scripted(&sandbox, &words).code, Some(4));
    let refused = sandbox.run(&["inbox", "refuse", id(&question(&sandbox)), "--go"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(5), ""), "{refused:?}");
    assert!(refused.stderr.contains("the run reached its limit `max_requests`: 2 of 2"), "{refused:?}");
    // Every question is refused; every question is approved, but money and its like need a person; nobody can come back.
    for (more, code) in [(&["--reject-all"][..], 5), (&["--approve-all"], 4), (&["--ephemeral"], 5)] {
        let ended = scripted(&sandbox, &[&words, more].concat());
        assert_eq!(ended.code, Some(code), "{more:?}: {ended:?}");
    }
    assert_eq!(question(&sandbox)["tool"], "raise_limit");
    let stops = scripted(&sandbox, &["--max-requests", "2", "--on-limit", "stop"]);
    assert_eq!(stops.code, Some(5), "{stops:?}");
    let wrong = scripted(&sandbox, &["--on-limit", "wait"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[test]
fn a_limit_of_tool_calls_asks_before_any_of_them_runs() {
    let sandbox = looker("limits: { max_tool_calls: 1, on_limit: ask }");
    let ended = scripted(&sandbox, &[]);
    let asked = json!({"limit": "max_tool_calls", "of": "agent main", "used": 1, "allowed": 1, "needed": 1, "to": 2});
    let reason = "1 of 1 tool calls of agent `main` used; 1 more are asked for. Raise to 2?";
    let first = check_asked(&ended, &sandbox, reason, &asked);
    let done = sandbox.run(&["inbox", "answer", id(&first), "to=3", "--go"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "done\n"), "{done:?}");
}

#[test]
fn a_person_at_the_terminal_raises_it_or_does_not() {
    let sandbox = looker("");
    let words = [&SCRIPTED[..], &["--max-requests", "2", "--on-limit", "ask"]].concat();
    let start = || {
        let terminal = Terminal::start(sandbox.command(&words, &[]));
        terminal.expect("2 of 2 model requests used. Raise to 4?").expect("another figure");
        terminal
    };
    let yes = start();
    yes.answer("y");
    let left = yes.left();
    assert!(left.code == Some(0) && left.screen.contains("done"), "{}", left.screen);
    let own = start();
    own.answer("e")
        .expect_written("\rraise it to? \u{1b}[K", 1)
        .press("two\n")
        .expect("not raised: `two` is no number");
    own.expect_written("another figure", 2).answer("e").expect_written("\rraise it to? \u{1b}[K", 2).press("3\n");
    own.expect("3 of 3 model requests used. Raise to 6?").expect_written("another figure", 3);
    own.answer("y");
    let left = own.left();
    assert!(left.code == Some(0) && left.screen.contains("done"), "{}", left.screen);
    let no = start();
    no.answer("n");
    let left = no.left();
    assert!(left.code == Some(5) && left.screen.contains("reached its limit"), "{}", left.screen);
}

const PRICED: &str = "model: anthropic:claude-haiku-4-5\nmodel_settings: { max_tokens: 2000 }";

/// A provider whose every reply costs six cents of a hundredth, and which asks for a look before it answers.
fn provider() -> FakeLlm {
    let usage = FakeUsage::new(1000, 1000);
    let look = FakeReply::calls([FakeCall::new("list_files", json!({"path": "."}))]).with_usage(usage);
    let script = FakeScript::new().when(|seen: &SeenRequest| seen.messages.len() < 3, look);
    FakeLlm::start(script.otherwise(FakeReply::text("whole").with_usage(usage)))
}

#[test]
fn money_of_a_run_asks_in_dollars() {
    let fake = provider();
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", &format!("---\nname: main\n{PRICED}\ntoolsets: [filesystem_cwd]\n---\nLook.\n"));
    let run = |words: &[&str]| Run::of(&sandbox, words).asking(&fake).ended();
    let words = ["run", ".", "hi", "--max-cost-usd", "0.011", "--on-limit", "ask"];
    let ended = run(&words);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let question = question(&sandbox);
    let arguments = &question["arguments"];
    assert_eq!(
        (&arguments["used"], &arguments["allowed"], &arguments["to"]),
        (&json!(0.006), &json!(0.011), &json!(0.022))
    );
    let reason = question["reason"].as_str().unwrap();
    assert!(reason.starts_with("$0.0060 of $0.0110 used; the next request may cost $0.00"), "{reason}");
    let poor = run(&["inbox", "answer", id(&question), "usd=0.0111"]);
    assert_eq!(poor.code, Some(2), "{poor:?}");
    assert!(poor.stderr.contains("is too little: the next step takes up to $0.00"), "{poor:?}");
    let done = run(&["inbox", "answer", id(&question), "usd=$0.03", "--go"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "whole\n"), "{done:?}");
    assert_eq!(fake.requests().len(), 2);
}

#[test]
fn a_budget_is_raised_for_one_run_alone() {
    let fake = provider();
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", &format!("---\nname: main\n{PRICED}\ntoolsets: [filesystem_cwd]\n---\nLook.\n"));
    let config = "[[budget]]\nname = \"everyday\"\nusd = 0.011\nper = \"day\"\non_limit = \"ask\"\n";
    sandbox.file(".config/llm-do/config.toml", config);
    let run = |words: &[&str]| Run::of(&sandbox, words).asking(&fake).with("TZ", "UTC0").ended();
    assert_eq!(run(&["run", ".", "hi"]).code, Some(4));
    let asked = question(&sandbox);
    assert_eq!(asked["arguments"]["of"], "budget everyday");
    let reason = asked["reason"].as_str().unwrap();
    assert!(reason.starts_with("$0.0060 of $0.0110 of the budget `everyday` used; the next request may"), "{reason}");
    let done = run(&["inbox", "answer", id(&asked), "usd=0.02", "--go"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "whole\n"), "{done:?}");
    // Another run has the budget as it is.
    let other = run(&["run", ".", "hi"]);
    assert_eq!((other.code, fake.requests().len()), (Some(4), 2), "{other:?}");
    assert_eq!(question(&sandbox)["arguments"]["used"], json!(0.012));
    // What is said for the run counts where the budget says nothing.
    sandbox.file(".config/llm-do/config.toml", &config.replace("on_limit = \"ask\"\n", ""));
    assert_eq!(run(&["run", ".", "hi"]).code, Some(5));
    assert_eq!(run(&["run", ".", "hi", "--on-limit", "ask"]).code, Some(4));
    sandbox.file(".config/llm-do/config.toml", &config.replace("\"ask\"", "\"wait\""));
    let wrong = run(&["run", ".", "hi"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("expected one of `ask`, `stop`, `wrap_up`, found the text `wait`"), "{wrong:?}");
}

/// An agent that calls two others at once, each of which asks its model twice.
fn family(limits: &str, child: &str) -> Sandbox {
    let sandbox = Sandbox::new().told();
    let files = "\"entry\": { \"agent\": \"main\" }, \"worker_files\": [\"main.worker\", \"scout.worker\"]";
    let manifest = format!("{{ \"version\": 1, {files}, \"runtime\": {{ \"limits\": {limits} }} }}");
    sandbox.file("project.json", &manifest);
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [scout]\n---\nSend two.\n");
    sandbox.file("scout.worker", &format!("---\nname: scout\ntoolsets: [filesystem_cwd]\n{child}\n---\nLook.\n"));
    sandbox.file(
        "script.yaml",
        "- { agent: main, round: 1, call: [{ scout: { input: a } }, { scout: { input: b } }] }
- { agent: main, say: both }
- { agent: scout, round: 1, call: { list_files: { path: \".\" } } }
- { agent: scout, say: seen }
",
    );
    sandbox
}

#[test]
fn children_that_meet_one_limit_at_once_ask_one_question() {
    let sandbox = family("{\"max_requests\": 3, \"on_limit\": \"ask\"}", "");
    let ended = scripted(&sandbox, &[]);
    let asked = json!({"limit": "max_requests", "of": "run", "used": 3, "allowed": 3, "needed": 1, "to": 6});
    let first = check_asked(&ended, &sandbox, "3 of 3 model requests used. Raise to 6?", &asked);
    let done = sandbox.run(&["inbox", "approve", id(&first), "--go"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "both\n"), "{done:?}");
}

#[test]
fn an_agents_own_limit_asks_for_that_call_of_it() {
    let sandbox = family("{}", "limits: { max_requests: 1, on_limit: ask }");
    let ended = scripted(&sandbox, &[]);
    let asked = json!({"limit": "max_requests", "of": "agent scout", "used": 1, "allowed": 1, "needed": 1, "to": 2});
    let reason = "1 of 1 model requests of agent `scout` used. Raise to 2?";
    // Each call has a limit of its own, and so a question of its own.
    let open = questions(&sandbox);
    assert_eq!((ended.code, open.len()), (Some(4), 2), "{ended:?}");
    for question in &open {
        assert_eq!((&question["reason"], &question["arguments"]), (&json!(reason), &asked));
        assert_eq!(question["path"], json!(["main", "scout"]));
    }
    let first = sandbox.run(&["inbox", "approve", id(&open[0]), "--go"]);
    assert_eq!((first.code, id(&question(&sandbox))), (Some(4), id(&open[1])), "{first:?}");
    let refused = sandbox.run(&["inbox", "refuse", id(&open[1]), "--go"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(0), "both\n"), "{refused:?}");
    let shown = sandbox.run(&["runs", "show", &sandbox.runs().pop().unwrap(), "--messages"]);
    assert!(shown.stdout.contains("reached its limit `max_requests`: 1 of 1"), "{}", shown.stdout);
}

#[test]
fn programs_answer_it_too() {
    let sandbox = looker("");
    let words = ["--json", "--max-requests", "2", "--on-limit", "ask"];
    let (events, result) = Run::of(&sandbox, &[&SCRIPTED[..], &words].concat()).with("UNUSED", KEY).events();
    assert_eq!(result["pending"][0]["tool"], "raise_limit", "{result}");
    let asked = of_type(&events, "approval_asked");
    assert_eq!((asked.len(), asked[0]["tool"].as_str()), (1, Some("raise_limit")), "{asked:?}");
    assert!(of_type(&events, "limit_reached").is_empty(), "it is not the end");
}

/// Looks around for as long as it may, and finishes when it is told to.
const ENDLESS: &str = "- { heard: \"Finish now\", say: \"so far: {{ round }}\" }
- { call: { list_files: { path: \".\" } } }
";

#[test]
fn a_model_finishes_with_what_it_has_within_the_limit() {
    let sandbox = looker("");
    sandbox.file("script.yaml", ENDLESS);
    for (keys, flags, answer, requests) in [
        ("", &["--max-requests", "4", "--on-limit", "wrap_up"][..], "so far: 4\n", 4),
        ("limits: { max_requests: 2, on_limit: wrap_up }", &[], "so far: 2\n", 2),
        ("limits: { max_requests: 1, on_limit: wrap_up }", &[], "so far: 1\n", 1),
        ("limits: { max_tool_calls: 2, on_limit: wrap_up }", &[], "so far: 4\n", 4),
        ("limits: { max_tool_calls: 0 }", &["--on-limit", "wrap_up"], "so far: 2\n", 2),
    ] {
        sandbox.file("main.worker", &format!("---\nname: main\ntoolsets: [filesystem_cwd]\n{keys}\n---\nLook.\n"));
        let words = [&SCRIPTED[..], &["--journal", "run.journal", "--json"], flags].concat();
        let (events, result) = Run::of(&sandbox, &words).events();
        assert_eq!((&result["exit_code"], &result["output"]), (&json!(0), &json!(answer.trim())), "{keys}: {result}");
        assert_eq!(result["usage"]["total"]["requests"], requests, "{keys}: {result}");
        assert_eq!(of_type(&events, "limit_reached").len(), 1, "{keys}");
        let notes = of_type(&events, "notice");
        let said = |note: &&Value| note["text"].as_str().unwrap().contains("agent `main` finishes with what it has");
        assert!(notes.iter().any(said), "{notes:?}");
        // Its record tells the same again, and asks nobody.
        let replayed = sandbox.run(&[&SCRIPTED[..], &["--replay", "run.journal"], flags].concat());
        assert_eq!((replayed.code, replayed.stdout.as_str()), (Some(0), answer), "{keys}: {replayed:?}");
        std::fs::remove_file(sandbox.path().join("run.journal")).unwrap();
    }
    // One that will not finish is stopped.
    sandbox.file("script.yaml", "- { call: { list_files: { path: \".\" } } }\n");
    let stopped = scripted(&sandbox, &["--max-requests", "3", "--on-limit", "wrap_up"]);
    assert_eq!(stopped.code, Some(5), "{stopped:?}");
}

#[test]
fn a_child_that_meets_the_limit_of_the_run_leaves_the_last_word_to_the_entry() {
    let sandbox = family("{\"max_requests\": 4, \"on_limit\": \"wrap_up\"}", "");
    let rules =
        "- { agent: main, heard: \"Finish now\", say: finished }\n- { agent: main, call: { scout: { input: a } } }
- { agent: scout, call: { list_files: { path: \".\" } } }\n";
    sandbox.file("script.yaml", rules);
    let ended = scripted(&sandbox, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "finished\n"), "{ended:?}");
    assert_eq!(sandbox.run(&["runs", "--json"]).stdout.matches("\"requests\":4").count(), 1);
    // A limit of the child's own is its own to finish at.
    let sandbox = family("{}", "limits: { max_requests: 2, on_limit: wrap_up }");
    let rules = "- { agent: scout, heard: \"Finish now\", say: seen something }\n- { agent: main, tool: scout, say: \"{{ result }}\" }
- { agent: main, call: { scout: { input: a } } }\n- { agent: scout, call: { list_files: { path: \".\" } } }\n";
    sandbox.file("script.yaml", rules);
    let ended = scripted(&sandbox, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "seen something\n"), "{ended:?}");
}

/// A provider that asks for a look as long as it may, and takes what requests usually take.
fn endless() -> FakeLlm {
    let look = FakeReply::calls([FakeCall::new("list_files", json!({"path": "."}))]);
    let is_last = |seen: &SeenRequest| seen.last_user_text().contains("Finish now");
    let script = FakeScript::new().when(is_last, FakeReply::text("whole").with_usage(FakeUsage::new(3100, 900)));
    FakeLlm::start(script.otherwise(look.with_usage(FakeUsage::new(3000, 700))))
}

#[test]
fn the_price_of_the_last_request_is_kept_back_and_money_is_never_passed() {
    for model in ["anthropic:claude-haiku-4-5", "openai:gpt-5-mini", "google:gemini-2.5-flash"] {
        for (config, flags, most) in [
            ("", &["--max-cost-usd", "0.06", "--on-limit", "wrap_up"][..], 0.06),
            ("[[budget]]\nname = \"day\"\nusd = 0.05\nper = \"day\"\non_limit = \"wrap_up\"\n", &[], 0.05),
        ] {
            let fake = endless();
            let sandbox = Sandbox::new().told();
            let keys = format!("model: {model}\nmodel_settings: {{ max_tokens: 1500 }}\ntoolsets: [filesystem_cwd]");
            sandbox.file("main.worker", &format!("---\nname: main\n{keys}\n---\nLook.\n"));
            sandbox.file(".config/llm-do/config.toml", config);
            let words = [&["run", ".", "hi", "--json"][..], flags].concat();
            let (_, result) = Run::of(&sandbox, &words).asking(&fake).with("TZ", "UTC0").events();
            assert_eq!((&result["exit_code"], &result["output"]), (&json!(0), &json!("whole")), "{model}: {result}");
            let requests = fake.requests();
            assert!(requests.len() > 1, "{model}: it looks before");
            let forbids = |request: &ReceivedRequest| {
                let body = &request.body;
                body["tool_choice"] == json!("none")
                    || body["tool_choice"] == json!({"type": "none"})
                    || body["toolConfig"]["functionCallingConfig"]["mode"] == json!("NONE")
            };
            let forbidden: Vec<bool> = requests.iter().map(forbids).collect();
            assert_eq!(forbidden.iter().position(|last| *last), Some(requests.len() - 1), "{model}");
            let spent = result["usage"]["total"]["cost_usd"].as_f64().unwrap();
            assert!(spent <= most && spent > most / 2.0, "{model}: {spent} of {most}");
        }
    }
}

#[test]
fn a_run_that_is_killed_in_its_last_request_finishes_when_it_goes_on() {
    let gate = StallGate::default();
    let look = FakeReply::calls([FakeCall::new("list_files", json!({"path": "."}))]);
    let is_last = |seen: &SeenRequest| seen.last_user_text().contains("Finish now");
    let script = FakeScript::new().when(is_last, FakeReply::text("whole")).otherwise(look);
    let fake =
        FakeLlm::start(script.fault(On::Request(3), InjectedFault::Stall { at: At::Percent(0), gate: gate.clone() }));
    let sandbox = Sandbox::new().told();
    let keys = "model: anthropic:claude-haiku-4-5\ntoolsets: [filesystem_cwd]\nlimits: { max_tool_calls: 1, on_limit: wrap_up }";
    sandbox.file("main.worker", &format!("---\nname: main\n{keys}\n---\nLook.\n"));
    let url = fake.anthropic_url();
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)];
    let mut child = sandbox.command(&["run", ".", "hi"], &variables).spawn().unwrap();
    gate.wait_until_reached(1);
    child.kill().unwrap();
    child.wait().unwrap();
    let run = sandbox.runs().pop().unwrap();
    let resumed = Run::of(&sandbox, &["resume", &run]).asking(&fake).ended();
    assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), "whole\n"), "{resumed:?}");
    let bodies: Vec<String> = fake.requests().iter().skip(2).map(|request| request.body.to_string()).collect();
    assert!(bodies.len() == 2 && bodies[0] == bodies[1], "the same is asked again");
}
