//! Runs as OpenTelemetry has them: what a collector of our own is sent, of runs that end, wait, are killed and go on.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, its helpers too, and tells its counts"
)]

#[path = "../support/mod.rs"]
mod support;

mod collector;

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use collector::{Collector, SpanSeen, check_whole, spans_beneath, trace_tree};
use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, SeenMessage, SeenRequest};
use serde_json::{Value, json};
use support::{Ended, Sandbox};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn desk() -> Sandbox {
    let sandbox = Sandbox::new().told();
    sandbox
        .file("main.worker", "---\nname: main\ntoolsets: [helper, filesystem_cwd]\n---\nx\n")
        .file("helper.worker", "---\nname: helper\ndescription: helps\ntoolsets: [filesystem_cwd]\n---\nx\n")
        .file("note.txt", "a secret")
        .file(
            "script.yaml",
            "- agent: helper\n  round: 1\n  call: { read_file: { path: note.txt } }\n\
             - agent: helper\n  say: it says a secret\n\
             - round: 1\n  call: [ { helper: { input: look } }, { read_file: { path: gone.txt } } ]\n\
             - heard: write\n  say: done\n\
             - say: done\n",
        );
    sandbox
}

fn run(sandbox: &Sandbox, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let said = [&["run", ".", "-m", "scripted:script.yaml", "--output-format", "json", "-q"], arguments].concat();
    sandbox.run_in(&said, variables)
}

fn result(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn spans_stand_beneath_each_other_as_calls_do_and_tell_nothing_that_was_said() {
    let (collector, sandbox) = (Collector::start(), desk());
    let ended = run(&sandbox, &["a secret wish"], &[(ENDPOINT, &collector.url())]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let spans = collector.spans();
    check_whole(&spans);
    assert_eq!(spans_beneath(&spans, None), [trace_tree(&result(&ended)["trace"])]);
    assert_eq!(spans.iter().filter(|span| span.name == "chat script.yaml").count(), 4, "{spans:#?}");
    assert!(!format!("{spans:?}").contains("secret"), "{spans:#?}");
    let failed: Vec<&str> = spans.iter().filter(|span| span.has_failed).map(|span| span.name.as_str()).collect();
    assert_eq!(failed, ["execute_tool read_file"]);
    let received = collector.received.lock().unwrap();
    assert_eq!(received.resource["service.name"], "llm-do");
    assert_eq!(received.metrics.get("gen_ai.client.operation.duration"), Some(&1));
    assert!(received.headers.iter().all(|headers| headers["content-type"] == "application/x-protobuf"));
}

#[test]
fn content_comes_if_it_is_wanted() {
    let (collector, sandbox) = (Collector::start(), desk());
    let wanted = ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true");
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a-key-of-mine-0123");
    run(&sandbox, &["it is a-key-of-mine-0123"], &[(ENDPOINT, &collector.url()), wanted, headers]);
    let spans = collector.spans();
    check_whole(&spans);
    let all = format!("{spans:?}");
    assert!(all.contains("a secret") && all.contains("it is [redacted]") && !all.contains("a-key-of-mine"), "{all}");
    let chat = spans.iter().find(|span| span.name.starts_with("chat")).unwrap();
    assert!(chat.attributes.contains_key("gen_ai.output.messages"), "{chat:?}");
    let received = collector.received.lock().unwrap();
    assert!(received.headers.iter().all(|headers| headers["authorization"] == "Bearer a-key-of-mine-0123"));
}

#[test]
fn nothing_is_sent_where_nobody_asked_for_it() {
    let (collector, sandbox) = (Collector::start(), desk());
    let url = collector.url();
    for variables in [
        vec![],
        vec![(ENDPOINT, url.as_str()), ("OTEL_SDK_DISABLED", "true")],
        vec![(ENDPOINT, url.as_str()), ("OTEL_TRACES_SAMPLER", "always_off"), ("OTEL_METRICS_EXPORTER", "none")],
    ] {
        let ended = run(&sandbox, &["hi"], &variables);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{variables:?}");
    }
    let ended = run(&sandbox, &["hi"], &[(ENDPOINT, &url), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert_eq!((ended.code, ended.stderr.matches("note: ").count()), (Some(0), 0), "{}", ended.stderr);
    let spoken = sandbox.run_in(
        &["run", ".", "-m", "scripted:script.yaml", "hi"],
        &[(ENDPOINT, &url), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
    );
    let notes: Vec<&str> = spoken.stderr.lines().filter(|line| line.starts_with("note: OpenTelemetry")).collect();
    assert_eq!(notes.len(), 1, "{}", spoken.stderr);
    assert!(collector.received.lock().unwrap().headers.is_empty());
}

#[test]
fn a_collector_that_is_busy_is_asked_again_and_one_that_refuses_is_told_of_once() {
    let (busy, sandbox) = (Collector::refusing(&[503, 429]), desk());
    let only_spans = ("OTEL_METRICS_EXPORTER", "none");
    let ended = run(&sandbox, &["hi"], &[(ENDPOINT, &busy.url()), only_spans]);
    assert_eq!(ended.code, Some(0));
    check_whole(&busy.spans());

    let refusing = Collector::refusing(&[401, 401, 401]);
    let arguments = ["run", ".", "-m", "scripted:script.yaml", "hi"];
    let ended = sandbox.run_in(&arguments, &[(ENDPOINT, &refusing.url()), only_spans]);
    let told = format!("note: 8 spans were not delivered: {}/v1/traces answered with status 401\n", refusing.url());
    assert_eq!((ended.code, ended.stderr.matches(&told).count()), (Some(0), 1), "{}", ended.stderr);
}

#[test]
fn a_collector_that_hangs_costs_a_note_and_no_answer() {
    // It takes connections, and nothing that comes over them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let sandbox = desk();
    let began = Instant::now();
    let ended = sandbox.run_in(&["run", ".", "-m", "scripted:script.yaml", "hi"], &[(ENDPOINT, &url)]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("/v1/traces took longer than 2 seconds\n"), "{}", ended.stderr);
    assert!(began.elapsed() < Duration::from_mins(1));
}

#[test]
fn a_run_stands_beneath_whoever_wanted_it() {
    let (collector, sandbox) = (Collector::start(), desk());
    run(&sandbox, &["hi"], &[(ENDPOINT, &collector.url()), ("TRACEPARENT", PARENT)]);
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace == "4bf92f3577b34da6a3ce929d0e0e4736"), "{spans:#?}");
    let roots: Vec<&SpanSeen> =
        spans.iter().filter(|span| span.parent.as_deref() == Some("00f067aa0ba902b7")).collect();
    assert_eq!(roots.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["invoke_agent main"]);
}

#[test]
fn a_run_that_waits_and_goes_on_is_one_trace() {
    let (collector, sandbox) = (Collector::start(), desk());
    sandbox.file(
        "script.yaml",
        "- agent: helper\n  round: 1\n  call: { write_file: { path: new.txt, content: x } }\n\
         - agent: helper\n  say: written\n\
         - round: 1\n  call: [ { read_file: { path: note.txt } }, { helper: { input: write } } ]\n\
         - say: done\n",
    );
    let endpoint = (ENDPOINT, collector.url());
    let waits = run(&sandbox, &["--headless", "hi"], &[(endpoint.0, &endpoint.1)]);
    assert_eq!(waits.code, Some(4), "{waits:?}");
    let before = collector.spans();
    assert!(before.iter().all(|span| !span.name.starts_with("invoke_agent")), "they have not ended: {before:#?}");
    let arguments = ["resume", "--last", "--approve-all", "--output-format", "json", "-q"];
    let ended = sandbox.run_in(&arguments, &[(endpoint.0, &endpoint.1), ("TRACEPARENT", PARENT)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let spans = collector.spans();
    check_whole(&spans);
    assert_eq!(spans_beneath(&spans, None), [trace_tree(&result(&ended)["trace"])]);
    let root = spans.iter().find(|span| span.parent.is_none()).unwrap();
    assert_eq!(root.links, ["4bf92f3577b34da6a3ce929d0e0e4736"], "whoever goes on with it is linked");
    let first = before.iter().map(|span| span.start).min().unwrap();
    assert!(root.start <= first + 1_000_000, "it began with its first process, which is known to the millisecond");
    assert!(spans.iter().any(|span| span.events.iter().any(|event| event == "llm_do.answer")), "{spans:#?}");
}

/// A server that writes down what stands in the `_meta` of a call.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result, method = None, message["method"]
    if method == "initialize":
        info = {"name": "s", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        with open("traceparent", "w") as file:
            file.write(message["params"]["_meta"]["traceparent"])
        result = {"content": [{"type": "text", "text": "seen"}]}
    if "id" in message:
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"#;

const PYTHON: &str = r#"
from llm_do.runtime import CallContext

__all__ = ["tell"]

async def tell(ctx: CallContext) -> str:
    """Tells."""
    return ctx.traceparent or "none"
"#;

#[test]
fn servers_and_python_are_told_whose_span_they_work_for() {
    let (collector, sandbox) = (Collector::start(), Sandbox::new().told());
    let manifest = json!({
        "version": 1,
        "entry": {"agent": "main"},
        "worker_files": ["main.worker"],
        "python_files": ["tools.py"],
        "toolsets": {"hub": {"mcp": {"command": "python3", "args": ["server.py"]}}},
    });
    sandbox
        .file("project.json", &manifest.to_string())
        .file("server.py", SERVER)
        .file("tools.py", PYTHON)
        .file("main.worker", "---\nname: main\ntoolsets: [hub, tell]\n---\nx\n")
        .file("script.yaml", "- round: 1\n  call: [ { look: {} }, { tell: {} } ]\n- say: \"{{ result }}\"\n");
    let path = std::env::var("PATH").unwrap();
    let ended = run(&sandbox, &["--approve-all", "hi"], &[(ENDPOINT, &collector.url()), ("PATH", &path)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let spans = collector.spans();
    check_whole(&spans);
    let handed_to = |tool: &str| {
        let span = spans.iter().find(|span| span.name == format!("execute_tool {tool}")).unwrap();
        format!("00-{}-{}-01", span.trace, span.id)
    };
    let seen = std::fs::read_to_string(sandbox.path().join("traceparent")).unwrap();
    assert_eq!(seen, handed_to("look"));
    assert!(ended.stdout.contains(&handed_to("tell")), "{}", ended.stdout);
    let look = spans.iter().find(|span| span.name == "execute_tool look").unwrap();
    assert_eq!(look.attributes["mcp.method.name"], "tools/call");
}

/// Each request asks for one more file, until there are enough.
fn reply(seen: &SeenRequest) -> FakeReply {
    const FILES: usize = 6;
    let calls = seen.messages.iter().flat_map(SeenMessage::calls).count();
    if calls < FILES {
        let call = FakeCall::new("read_file", json!({"path": "note.txt"}));
        return FakeReply::calls([call.with_id(&format!("id_{calls}"))]);
    }
    FakeReply::text("done")
}

/// A run that is killed again and again, and gone on with.
#[test]
fn a_run_that_is_killed_and_goes_on_is_one_trace_without_orphans() {
    let fake = FakeLlm::start(FakeScript::new().answer(|seen| Some(reply(seen))).accept_foreign_history());
    let worker = "---\nname: main\nmodel: anthropic:m\ntoolsets: [filesystem_cwd]\n---\nx\n";
    let (mut deaths, mut runs, mut late) = (0, 0, 0);
    while deaths < 20 {
        let (collector, sandbox) = (Collector::start(), Sandbox::new().told());
        sandbox.file("main.worker", worker).file("note.txt", "note");
        let variables = [
            ("ANTHROPIC_BASE_URL", fake.anthropic_url()),
            ("ANTHROPIC_API_KEY", "k".to_owned()),
            (ENDPOINT, collector.url()),
            ("OTEL_BSP_SCHEDULE_DELAY", "1".to_owned()),
        ];
        let mut before;
        let ended = loop {
            before = collector.spans().len();
            let arguments: &[&str] =
                if sandbox.runs().is_empty() { &["run", "main.worker", "hi"] } else { &["resume", "--last"] };
            let mut command = sandbox.command(arguments, &[]);
            command.args(["--output-format", "json", "-q"]).envs(variables.clone());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            if fastrand::u32(..3) > 0 {
                std::thread::sleep(Duration::from_millis(fastrand::u64(10..150)));
                let _ = child.kill();
            }
            let output = child.wait_with_output().unwrap();
            match output.status.code() {
                // One that was killed before it had made its record left nothing to go on with.
                None | Some(2) => deaths += 1,
                code => break (code, String::from_utf8(output.stdout).unwrap()),
            }
        };
        runs += 1;
        assert_eq!(ended.0, Some(0), "{}", ended.1);
        let (spans, told) = (collector.spans(), serde_json::from_str::<Value>(&ended.1).unwrap());
        if spans.len() == before {
            // It was killed when it had its answer and before its last spans were sent: nothing is left to go on with.
            late += 1;
            continue;
        }
        let spans = once(spans);
        check_whole(&spans);
        assert_eq!(spans_beneath(&spans, None), [trace_tree(&told["trace"])]);
    }
    println!("{deaths} deaths of {runs} runs: one trace each, no orphans ({late} had their answers already)");
    assert!(late < runs, "some went on");
}

/// What was delivered in the moment before a process was killed is sent again, as it was: collectors know it by its id.
fn once(spans: Vec<SpanSeen>) -> Vec<SpanSeen> {
    let mut kept: Vec<SpanSeen> = Vec::new();
    for span in spans {
        match kept.iter().find(|known| known.id == span.id) {
            Some(known) => assert_eq!((&known.name, &known.parent), (&span.name, &span.parent)),
            None => kept.push(span),
        }
    }
    kept
}
