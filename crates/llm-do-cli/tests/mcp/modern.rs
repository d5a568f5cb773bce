//! Servers of the revision 2026-07-28, and those that do not know it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::servers::Listening;
use crate::session::Run;
use crate::support::Sandbox;
use crate::{calls, project, run};

const SERVER: &str = include_str!("modern.py");

/// A project whose server is of this kind.
fn server(kind: &str, script: &str) -> Sandbox {
    let server = json!({"mcp": {"command": "python3", "args": ["server.py", "stdio", kind, "log"]}});
    let sandbox = project("toolsets: [hub]", &json!({"hub": server}), script);
    sandbox.file("server.py", SERVER);
    sandbox
}

/// The same over HTTP.
fn listening(script: &str) -> (Sandbox, Listening) {
    listening_as("modern", script)
}

fn listening_as(kind: &str, script: &str) -> (Sandbox, Listening) {
    let sandbox = project("toolsets: [hub]", &json!({}), script);
    sandbox.file("server.py", SERVER);
    let path = sandbox.path();
    let mut command = Command::new("python3");
    let server = Listening::start(command.arg(path.join("server.py")).args(["http", kind]).arg(path.join("log")));
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let manifest = std::fs::read_to_string(path.join("project.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
    manifest["toolsets"] = json!({"hub": {"mcp": {"url": url}}});
    sandbox.file("project.json", &manifest.to_string());
    (sandbox, server)
}

fn log(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path().join("log")).unwrap_or_default()
}

/// How a run ends that asks: its id, and what it asks.
fn asked(run: Run<'_>) -> (Value, Value) {
    let (_, result) = run.events();
    assert_eq!(result["exit_code"], 4, "{result}");
    (result["run"].clone(), result["pending"][0].clone())
}

fn resumed<'a>(sandbox: &'a Sandbox, journal: &'a str, words: &[&'a str]) -> Run<'a> {
    let path = std::env::var("PATH").unwrap();
    Run::of(sandbox, &[&["resume", journal, "--trust", "--json", "--approve-all"], words].concat()).with("PATH", path)
}

#[test]
fn a_tool_is_called_on_stdio_and_over_http_with_headers_that_say_what_the_body_says() {
    let script = calls(&["{ echo: { text: \"grüß dich\\n \" } }"]);
    let check = |sandbox: &Sandbox| {
        assert_eq!(run(sandbox, &["--approve-all"]).ended().stdout, "grüß dich\n \n");
        assert_eq!(log(sandbox), "server/discover\ntools/list\ncall echo null None\n");
    };
    check(&server("modern", &script));
    let (sandbox, _server) = listening(&script);
    check(&sandbox);
}

#[test]
fn a_tool_whose_headers_cannot_be_sent_is_left_out() {
    let sandbox = server("modern", "- say: x");
    let (events, _) = run(&sandbox, &["--json"]).events();
    let notice = events.iter().find_map(|event| event["text"].as_str()).unwrap();
    assert!(notice.contains("of `bad`, `x-mcp-header` of `n` is for texts"), "{notice}");
}

#[test]
fn servers_that_do_not_know_the_first_question_are_spoken_to_as_before() {
    for kind in ["exits", "silent"] {
        let sandbox = server(kind, &calls(&["{ echo: { text: x } }"]));
        assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "old\n", "{kind}");
        let heard = log(&sandbox);
        assert!(heard.starts_with("server/discover\ninitialize\n"), "{kind}: {heard}");
        // The next run knows it.
        std::fs::remove_file(sandbox.path().join("log")).unwrap();
        assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "old\n", "{kind}");
        assert!(log(&sandbox).starts_with("initialize\n"), "{kind}: {}", log(&sandbox));
    }
}

#[test]
fn an_earlier_server_has_a_session_and_a_stream_that_broke_off_is_gone_on_with() {
    let (sandbox, _server) = listening_as("earlier", &calls(&["{ echo: { text: x } }"]));
    assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "late\n");
    let expected = "POST server/discover None 2026-07-28\nPOST initialize None None\n\
        POST notifications/initialized s-1 2025-11-25\nPOST tools/list s-1 2025-11-25\n\
        POST tools/call s-1 2025-11-25\nGET 7 s-1\nGET 8 s-1\nDELETE s-1\n";
    assert_eq!(log(&sandbox), expected);
}

#[test]
fn what_a_server_asks_is_a_question_and_the_run_goes_on_with_the_answer() {
    let sandbox = server("modern", &calls(&["{ ask: {} }"]));
    let (_, question) = asked(run(&sandbox, &["--json", "--approve-all", "--journal", "j"]));
    assert_eq!(question["reason"], "the MCP server `hub` asks, in its own words:");
    assert_eq!(question["tool"], "ask");
    let expected = "Who is it?\nage: (at least 1; if left empty: 30)";
    assert_eq!(question["form"]["question"], expected);
    // What the server's schema does not take is asked again.
    let id = question["id"].as_str().unwrap();
    let first = format!("{id}.name=x");
    let (_, question) = asked(resumed(&sandbox, "j", &["--answer", &first]));
    let again = question["form"]["question"].as_str().unwrap();
    assert!(again.contains("the last answer does not do: "), "{again}");
    let answer = format!("{}.name=Ada", question["id"].as_str().unwrap());
    let (_, question) = asked(resumed(&sandbox, "j", &["--answer", &answer]));
    assert_eq!(question["form"]["question"], "Sure?");
    let answer = format!("{}.yes=yes", question["id"].as_str().unwrap());
    let (_, result) = resumed(&sandbox, "j", &["--answer", &answer]).events();
    let who = r#"{"action": "accept", "content": {"age": 30, "name": "Ada"}}"#;
    assert_eq!(result["output"], format!(r#"{who} {{"action": "accept", "content": {{"yes": true}}}}"#));
    // Each round was sent once, whatever process sent it.
    let sent: Vec<String> = log(&sandbox).lines().filter(|line| line.starts_with("call")).map(str::to_owned).collect();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert_eq!(sent[0], "call ask null None");
    assert_eq!(sent[1], format!(r#"call ask {{"who": {who}}} s1"#));
    // Told again without the server.
    let (_, replayed) = run(&sandbox, &["--replay", "j", "--approve-all", "--json"]).events();
    assert_eq!(replayed["output"], result["output"]);
}

#[test]
fn an_address_is_shown_whole_and_nothing_is_fetched() {
    let sandbox = server("modern", &calls(&["{ pay: {} }"]));
    let (_, question) = asked(run(&sandbox, &["--json", "--approve-all", "--journal", "j"]));
    let expected = "Pay first\nat pay.example.com\nopen https://pay.example.com/bill/1?x=y";
    assert_eq!(question["form"]["question"], expected);
    let answer = format!("{}.done=no", question["id"].as_str().unwrap());
    let (_, result) = resumed(&sandbox, "j", &["--answer", &answer]).events();
    assert_eq!(result["output"], "decline");
}

#[test]
fn a_server_that_asks_for_ever_or_for_something_else_fails_its_call() {
    for (tool, expected) in [
        ("endless", "asks for more than 10 rounds in one call"),
        ("sample", "asks for `sampling/createMessage`, which is not offered"),
    ] {
        let sandbox = server("modern", &calls(&[&format!("{{ {tool}: {{}} }}")]));
        let (_, result) = run(&sandbox, &["--json", "--approve-all"]).events();
        let said = result["output"].as_str().unwrap();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn an_earlier_server_hears_that_nobody_decided() {
    let sandbox = server("elicits", &calls(&["{ echo: { text: x } }"]));
    assert_eq!(run(&sandbox, &["--approve-all"]).answer(), "cancel\n");
    assert!(log(&sandbox).contains("answer {\"action\": \"cancel\"}"), "{}", log(&sandbox));
}

#[test]
fn a_task_is_asked_for_answered_and_finished_by_whichever_process_goes_on() {
    let (sandbox, _server) = listening(&calls(&["{ slow: {} }"]));
    let (_, question) = asked(run(&sandbox, &["--json", "--approve-all", "--journal", "j"]));
    let id = question["id"].as_str().unwrap();
    let (name, age) = (format!("{id}.name=Ada"), format!("{id}.age=3"));
    let (_, result) = resumed(&sandbox, "j", &["--answer", &name, "--answer", &age]).events();
    assert_eq!(result["output"], r#"{"action": "accept", "content": {"age": 3, "name": "Ada"}}"#);
    let heard = log(&sandbox);
    assert_eq!(heard.matches("call slow").count(), 1, "{heard}");
    assert_eq!(heard.matches("tasks/update slow-0").count(), 1, "{heard}");
}

#[test]
fn a_task_that_takes_too_long_is_cancelled() {
    let (sandbox, _server) = listening(&calls(&["{ stuck: {} }"]));
    let manifest = std::fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    sandbox.file("project.json", &manifest.replace("\"url\":", "\"task_seconds\":1,\"url\":"));
    let (_, result) = run(&sandbox, &["--json", "--approve-all"]).events();
    let said = result["output"].as_str().unwrap();
    assert!(said.contains("did not finish the task") && said.contains("`task_seconds`"), "{said}");
    assert!(log(&sandbox).ends_with("tasks/cancel stuck-0 null\n"), "{}", log(&sandbox));
}

/// Killed after each message that the server has heard: no request of a call is sent twice, and the run comes to its end or
/// says that it may have happened.
#[test]
fn killed_at_rounds_and_polls_nothing_is_sent_twice() {
    let (mut points, mut doubtful) = (0, 0);
    for tool in ["ask", "slow"] {
        for heard in 1..=10 {
            let (sandbox, _server) = listening(&calls(&[&format!("{{ {tool}: {{}} }}")]));
            let lines = || log(&sandbox).lines().count();
            let path = std::env::var("PATH").unwrap();
            let words = ["run", ".", "hi", "-m", "scripted:script.yaml", "--trust", "--approve-all", "--journal", "j"];
            let mut begun = sandbox.command(&words, &[("PATH", path.as_str())]);
            let mut child = begun.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let start = Instant::now();
            while lines() < heard && child.try_wait().unwrap().is_none() {
                assert!(start.elapsed() < Duration::from_mins(1));
                std::thread::yield_now();
            }
            let _ = child.kill();
            let _ = child.wait();
            points += 1;
            let mut output = None;
            for _ in 0..5 {
                let journal = sandbox.path().join("j");
                let run = if journal.exists() && journal.metadata().unwrap().len() > 0 {
                    resumed(&sandbox, "j", &[])
                } else {
                    run(&sandbox, &["--json", "--approve-all", "--journal", "j"])
                };
                let (_, result) = run.events();
                if result["exit_code"] != 4 {
                    output = Some(result["output"].as_str().unwrap_or_default().to_owned());
                    break;
                }
                let question = &result["pending"][0];
                let value = if question["form"]["fields"][0]["name"] == "yes" { "yes=yes" } else { "name=Ada" };
                let answer = format!("{}.{value}", question["id"].as_str().unwrap());
                let (_, result) = resumed(&sandbox, "j", &["--answer", &answer]).events();
                if result["exit_code"] == 0 {
                    output = Some(result["output"].as_str().unwrap().to_owned());
                    break;
                }
            }
            let output = output.expect("it comes to its end");
            doubtful += usize::from(output.contains("it may have happened"));
            assert!(output.contains("Ada") || output.contains("it may have happened"), "{output}");
            let heard = log(&sandbox);
            let mut sent: Vec<&str> = heard.lines().filter(|line| line.starts_with("call")).collect();
            let all = sent.len();
            sent.sort_unstable();
            sent.dedup();
            assert_eq!(sent.len(), all, "sent twice:\n{heard}");
        }
    }
    assert_eq!(points, 20);
    assert!(doubtful < points, "some of them finish");
}
