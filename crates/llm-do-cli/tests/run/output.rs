//! What comes out: only the answer on stdout, or JSON.

use std::process::Stdio;

use fake_llm::{FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

use crate::MAIN;
use crate::session::{KEY, Run, check_result, of_type};
use crate::support::{Ended, Sandbox, wait_for_all};

fn saying(script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", MAIN).file("script.yaml", script);
    sandbox
}

const SCRIPTED: [&str; 4] = ["main.worker", "hi", "-m", "scripted:script.yaml"];

#[test]
fn stdout_is_the_answer_and_ends_with_one_newline() {
    for (text, printed) in [("Hi.", "Hi.\n"), ("Hi.\\n", "Hi.\n"), ("a\\nb\\n\\n", "a\nb\n\n"), ("  x", "  x\n")] {
        let sandbox = saying(&format!("- {{ think: hm, say: \"{text}\" }}\n"));
        assert_eq!(Run::new(&sandbox, &SCRIPTED).answer(), printed);
    }
}

#[test]
fn a_run_leaves_nothing_behind_but_its_record() {
    let sandbox = saying("- say: Hi.\n");
    let before = sandbox.tree();
    Run::new(&sandbox, &SCRIPTED).answer();
    assert_eq!(sandbox.tree(), before);
    let [run] = sandbox.runs().try_into().unwrap();
    let names = |directory: &str| {
        let entries = std::fs::read_dir(sandbox.state().join(directory)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["costs", "key", "runs"]);
    assert_eq!(names(&format!("runs/{run}")), ["journal"]);
    assert_eq!(names("runs"), [run.as_str(), "index", "index.lock", "sweep"]);
}

#[test]
fn the_command_may_be_left_out() {
    let sandbox = saying("- say: Hi.\n");
    let ended = sandbox.run(&SCRIPTED);
    assert_eq!(ended, Ended { code: Some(0), stdout: "Hi.\n".into(), stderr: String::new() });
}

#[test]
fn a_stream_of_json_tells_of_everything_and_ends_with_the_result() {
    let sandbox = saying("");
    let usual = FakeReply::thinking("Let me see.", "sig").and_text("Hello there, you.").in_deltas(4);
    let fake = FakeLlm::start(FakeScript::new().reply(usual));
    let run = Run::new(&sandbox, &["main.worker", "hi", "--json", "-m", "anthropic:claude-haiku-4-5"]).asking(&fake);
    let (events, result) = run.events();
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup();
    let expected = [
        "call_started",
        "user_message",
        "request_started",
        "thinking_delta",
        "text_delta",
        "request_finished",
        "text_complete",
        "call_finished",
    ];
    assert_eq!(types, expected);
    for event in &events {
        assert_eq!(
            (&event["agent"], &event["depth"], &event["call"]),
            (&json!("main"), &json!(0), &json!(1)),
            "{event}"
        );
    }
    let joined = |name| of_type(&events, name).iter().map(|event| event["text"].as_str().unwrap()).collect::<String>();
    assert_eq!(
        (joined("thinking_delta").as_str(), joined("text_delta").as_str()),
        ("Let me see.", "Hello there, you.")
    );
    assert!(of_type(&events, "text_delta").len() > 1, "the pieces come one by one");
    let one = |name| of_type(&events, name)[0].clone();
    assert_eq!(one("user_message")["text"], "hi");
    assert_eq!(one("text_complete")["text"], "Hello there, you.");
    assert_eq!((&one("call_started")["input"], &one("call_started")["kind"]), (&json!("hi"), &json!("agent")));
    assert_eq!(one("request_started")["model"], "anthropic:claude-haiku-4-5");
    let finished = one("request_finished");
    assert_eq!(finished["finish"], "stop");
    assert!(finished["duration_ms"].is_u64() && finished["usage"]["cost_usd"].is_f64(), "{finished}");
    assert_eq!((&result["output"], &result["exit_code"]), (&json!("Hello there, you."), &json!(0)));
    assert_eq!((&result["error"], &result["pending"]), (&Value::Null, &json!([])));
    assert_eq!(one("call_finished")["usage"], result["usage"]["total"]);
    check_trace(&result);
    let messages = result["messages"].as_array().unwrap();
    assert_eq!(messages[0], json!({"role": "user", "parts": [{"type": "text", "text": "hi"}]}));
    assert_eq!((&messages[1]["role"], messages.len()), (&json!("assistant"), 2));
    assert!(result["run"].as_str().is_some_and(llm_do::journal::run_id::is_run_id));
}

fn check_trace(result: &Value) {
    let call = &result["trace"];
    let keys: Vec<&String> = call.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["calls", "depth", "duration_ms", "error", "input", "kind", "name", "output", "usage"]);
    let expected = json!({"name": "main", "kind": "agent", "depth": 0, "input": "hi", "error": null, "calls": []});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&call[key], value, "{key}");
    }
    assert_eq!((&call["output"], &call["usage"]), (&result["output"], &result["usage"]["total"]));
}

#[test]
fn one_object_of_json_is_the_result_alone() {
    let sandbox = saying("- say: Hi.\n");
    let ended = Run::new(&sandbox, &[&SCRIPTED[..], &["--output-format", "json"]].concat()).ended();
    assert_eq!((ended.code, ended.stderr.as_str(), ended.stdout.lines().count()), (Some(0), "", 1));
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    check_result(&result);
    assert_eq!(result["output"], "Hi.");
    assert_eq!(Run::new(&sandbox, &[&SCRIPTED[..], &["--output-format", "text"]].concat()).answer(), "Hi.\n");
    let (events, result) = Run::new(&sandbox, &[&SCRIPTED[..], &["--output-format", "stream-json"]].concat()).events();
    assert_eq!((events.is_empty(), &result["output"]), (false, &json!("Hi.")));
    let Ended { code, stderr: said, .. } =
        Run::new(&sandbox, &[&SCRIPTED[..], &["--output-format", "json", "--json"]].concat()).ended();
    assert_eq!(code, Some(2));
    assert!(said.starts_with("error: the argument '--output-format <FORMAT>' cannot be used with '--json'"), "{said}");
}

#[test]
fn whoever_reads_json_gets_a_result_of_every_failure() {
    let sandbox = saying("- { fail: wait, say: overloaded }\n");
    sandbox.file("broken.worker", "---\nname: broken\ntoolset: []\n---\nx\n");
    let check = |arguments: &[&'static str], code: i32, words: &str| {
        for format in ["json", "stream-json"] {
            let arguments = [arguments, &["--output-format", format]].concat();
            let (_, result) = Run::new(&sandbox, &arguments).events();
            assert_eq!(result["exit_code"], code, "{arguments:?}");
            let message = result["error"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{arguments:?}: {message}");
            assert_eq!(result["output"], Value::Null);
        }
    };
    check(&SCRIPTED, 3, "agent `main`: the provider is not available: overloaded");
    check(&["broken.worker", "hi", "-m", "ollama:x"], 2, "unknown key `toolset` in a worker file");
    check(&["main.worker", "hi", "-m", "anthropic:x"], 3, "ANTHROPIC_API_KEY is not set");
    check(&["main.worker", "-m", "scripted:script.yaml"], 2, "no input");
    check(&["main.worker", "hi", "-m", "claude"], 2, "`--model`: ");
    sandbox.file(".config/llm-do/config.toml", "modle = 1\n");
    check(&SCRIPTED, 2, "unknown key `modle` in the configuration");
}

#[test]
fn a_failed_run_still_tells_what_it_did_and_what_it_took() {
    let sandbox = saying("- { round: 1, call: { nothing: {} }, usage: { input: 7, output: 3 } }\n- fail: give_up\n");
    let (events, result) = Run::new(&sandbox, &[&SCRIPTED[..], &["--json"]].concat()).events();
    assert_eq!((&result["exit_code"], &result["usage"]["total"]["input_tokens"]), (&json!(1), &json!(7)));
    assert_eq!(result["trace"]["error"], result["error"]["message"]);
    let failed = of_type(&events, "run_failed");
    assert_eq!((failed.len(), &failed[0]["error"]), (1, &result["error"]["message"]));
    assert_eq!(of_type(&events, "call_finished")[0]["error"], result["error"]["message"]);
}

#[test]
fn what_a_model_says_reaches_stdout_as_it_is_and_json_as_json() {
    let sandbox = saying("- say: \"a\\e[31mb\\x07\\u202e\"\n");
    assert_eq!(Run::new(&sandbox, &SCRIPTED).answer(), "a\u{1b}[31mb\u{7}\u{202e}\n");
    let (events, result) = Run::new(&sandbox, &[&SCRIPTED[..], &["--json"]].concat()).events();
    assert_eq!(result["output"], "a\u{1b}[31mb\u{7}\u{202e}");
    assert!(!events.iter().any(|event| event.to_string().contains('\u{1b}')));
}

#[test]
fn no_key_is_in_the_json() {
    let sandbox = saying("");
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("ok")));
    // `events` looks for it in every byte of both streams.
    let (_, result) = Run::new(&sandbox, &["main.worker", "hi", "--json", "-m", "openai:gpt-x"]).asking(&fake).events();
    assert_eq!(fake.requests()[0].headers.get("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(result["output"], "ok");
}

#[test]
fn the_last_word_is_what_it_took_unless_only_errors_are_wanted() {
    let sandbox = saying("- { round: 1, call: { nothing: {} }, usage: { input: 1200, output: 30 } }\n- say: done\n");
    let said = |flags: &[&str]| {
        let arguments = [&["run"], &SCRIPTED[..], flags].concat();
        let ended = wait_for_all(sandbox.command(&arguments, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"));
        ended.stderr
    };
    for flags in [&[][..], &["--headless"]] {
        let summary = said(flags);
        let run = sandbox.runs().pop().unwrap();
        let expected = format!("2 requests · 1200 tokens in, 30 out · $0 · {run}\n");
        assert_eq!(summary.split_once(" s · ").unwrap().1, expected);
    }
    let summary = said(&["--ephemeral"]);
    assert_eq!(summary.split_once(" s · ").unwrap().1, "2 requests · 1200 tokens in, 30 out · $0\n");
    for flags in ["-q", "--quiet"] {
        assert_eq!(said(&[flags]), "");
    }
}

#[test]
fn the_answer_can_also_go_into_a_file() {
    let sandbox = saying("- say: Hi.\n");
    sandbox.file("out/answer.md", "old");
    let run = |file| Run::new(&sandbox, &[&SCRIPTED[..], &["-o", file]].concat());
    assert_eq!(run("out/answer.md").answer(), "Hi.\n");
    assert_eq!(sandbox.tree()[std::path::Path::new("out/answer.md")], "Hi.\n");
    assert_eq!(sandbox.tree().len(), 3, "nothing else is left: {:?}", sandbox.tree().keys());
    let said = run("nowhere/answer.md").failure(2);
    assert_eq!(said, "error: `-o`: there is no directory nowhere\n");
    sandbox.file("script.yaml", "- fail: give_up\n");
    run("out/answer.md").failure(1);
    assert_eq!(sandbox.tree()[std::path::Path::new("out/answer.md")], "Hi.\n", "a failure replaces nothing");
}

#[test]
fn an_answer_that_cannot_be_kept_is_printed_all_the_same() {
    let sandbox = saying("- say: Hi.\n");
    let run = |flags: &[&'static str]| Run::new(&sandbox, &[&SCRIPTED[..], &["-o", "/dev/full"], flags].concat());
    let message = "/dev/full cannot be written: No space left on device (os error 28)";
    let ended = run(&[]).ended();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "Hi.\n"));
    assert!(ended.stderr.ends_with(&format!("error: {message}\n")), "{}", ended.stderr);
    let (_, result) = run(&["--json"]).events();
    assert_eq!((&result["output"], &result["exit_code"]), (&"Hi.".into(), &1.into()));
    assert_eq!(result["error"]["message"], message);
    let chat = Run::of(&sandbox, &["chat", "main.worker", "-m", "scripted:script.yaml", "-o", "/dev/full", "--json"]);
    let (_, result) = chat.hearing("one\n").events();
    assert_eq!((&result["output"], &result["exit_code"]), (&"Hi.".into(), &1.into()));
}

const NESTED: &str = "\
- { agent: main, round: 1, say: Let me ask., call: { child: { input: go } } }
- { agent: main, say: \"It says {{ result }}\" }
- { round: 1, think: Hm., call: { list_files: { pattern: '*.yaml' } }, usage: { input: 7, output: 3 } }
- { say: found }
";

/// What is said on stderr, but for the summary.
fn said(flags: &[&str]) -> String {
    let sandbox = saying(NESTED);
    sandbox.file("main.worker", "---\nname: main\nentry: true\ntoolsets: [child]\n---\nx\n");
    sandbox.file("child.worker", "---\nname: child\ntoolsets: [filesystem_cwd_ro]\n---\nx\n");
    let ended = Run::new(&sandbox, &[&[".", "hi", "-m", "scripted:script.yaml"], flags].concat()).ended();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "It says found\n"), "{}", ended.stderr);
    ended.stderr
}

/// Durations differ from run to run.
fn timeless(text: &str) -> String {
    let line = |line: &str| match line.split_once(" 0.") {
        Some((start, rest)) => format!("{start} 0.0{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => line.to_owned(),
    };
    text.lines().map(|it| line(it) + "\n").collect()
}

#[test]
fn more_is_said_on_request() {
    assert_eq!(said(&[]), "");
    let calls = "\
· scripted:script.yaml 0.0 s, 0 tokens in, 0 out, $0
→ child {\"input\":\"go\"}
  · scripted:script.yaml 0.0 s, 7 tokens in, 3 out, $0
  → list_files {\"pattern\":\"*.yaml\"}
    │ script.yaml
  · scripted:script.yaml 0.0 s, 0 tokens in, 0 out, $0
← child go
  │ found
· scripted:script.yaml 0.0 s, 0 tokens in, 0 out, $0
";
    assert_eq!(timeless(&said(&["-v"])), calls);
    let text = timeless(&said(&["-vv"]));
    assert!(text.starts_with("main: Let me ask.\n· scripted"), "{text}");
    assert!(text.contains("  child thinks: Hm.\n") && text.contains("  child: found\n"), "{text}");
    assert!(text.ends_with("main: It says found\n· scripted:script.yaml 0.0 s, 0 tokens in, 0 out, $0\n"), "{text}");
}

#[test]
fn the_message_log_is_json_lines_only() {
    let log = said(&["-vvv"]);
    let messages: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let shown: Vec<Value> = messages
        .iter()
        .map(|message| json!([message["agent"], message["depth"], message["role"], message["parts"][0]["type"]]))
        .collect();
    let expected = json!([
        ["main", 0, "user", "text"],
        ["main", 0, "assistant", "text"],
        ["child", 1, "user", "text"],
        ["child", 1, "assistant", "thinking"],
        ["child", 1, "tool", "tool_result"],
        ["child", 1, "assistant", "text"],
        ["main", 0, "tool", "tool_result"],
        ["main", 0, "assistant", "text"],
    ]);
    assert_eq!(Value::from(shown), expected);
    assert!(messages.iter().all(|message| message["call"].is_u64()));
}
