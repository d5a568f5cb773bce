//! Many runs at once over real connections; calls that hang, and what is left when somebody gives up on them.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fake_llm::{Constant, FakeCall, FakeLlm, FakeReply};
use llm_do::BoxFuture;
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::message::{Content, RawJson};
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries};
use llm_do::model::name::ModelChoices;
use llm_do::model::protocol::Quirks;
use llm_do::model::provider::ProtocolKind;
use llm_do::project::Project;
use llm_do::runtime::{Models, RunError, Runtime, RuntimeConfig};
use llm_do::tools::approval::{Answer, ApprovalRequest, Approvals, Approver, Question, Rule, Verdict};
use llm_do::tools::function::Tool;
use tokio::task::JoinSet;

use crate::support::{Deed, Files, Log, OneTool, runtime, text, worker};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

async fn noop(_: Nothing) -> Result<String, String> {
    Ok("nothing happened".to_owned())
}

fn asking(fake: &FakeLlm) -> Models {
    let endpoint = Endpoint {
        provider: "anthropic".to_owned(),
        protocol: ProtocolKind::Anthropic.protocol().unwrap(),
        quirks: Quirks::NONE,
        base_url: fake.anthropic_url(),
        key: Key::Unneeded,
    };
    let http = HttpClient::new(HttpSettings::STANDARD).unwrap();
    let exchange = Exchange { endpoint: Arc::new(endpoint), http, retries: Retries::STANDARD };
    let mut models = Models::default();
    models.insert("anthropic", Arc::new(exchange));
    models
}

/// Both ends of every connection are in this process.
fn allow_many_connections() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
}

#[tokio::test]
async fn a_thousand_runs_at_once_over_http_all_come_to_their_end() {
    const RUNS: usize = 1_000;
    allow_many_connections();
    let step = FakeReply::text("let me see").and_calls([FakeCall::new("noop", serde_json::json!({}))]);
    // Nobody is answered before everybody has asked.
    let fake = FakeLlm::start(Constant::tool_loop(1, step, FakeReply::text("done")).together(RUNS));
    let project = Project::new(".")
        .agent("main.worker", "---\nname: main\nmodel: anthropic:claude-haiku-4-5\ntools: [noop]\n---\nYou do nothing.")
        .tool(Tool::new(noop).verdict(Rule::Allow));
    let program = project.link(&ModelChoices::default()).unwrap();
    let runtime = Arc::new(Runtime::new(program, asking(&fake), RuntimeConfig::new(Approvals::unattended())));
    let mut runs = JoinSet::new();
    for _ in 0..RUNS {
        let runtime = Arc::clone(&runtime);
        runs.spawn(async move { runtime.run("go").await });
    }
    while let Some(outcome) = runs.join_next().await {
        let outcome = outcome.unwrap().unwrap();
        assert_eq!((outcome.messages.len(), outcome.trace.len()), (4, 1), "its own and nobody else's");
        assert_eq!(text(Ok(outcome.output)), "done");
    }
    assert_eq!(runtime.usage().total.requests, 2 * RUNS as u64);
    assert_eq!(fake.stop().peak_concurrency, RUNS);
}

/// Lets a future run until it waits, and gives up on it.
async fn abandon<T: std::fmt::Debug>(future: impl Future<Output = T>) {
    let mut future = pin!(future);
    tokio::select! {
        biased;
        ended = &mut future => panic!("it was to hang, and gave {ended:?}"),
        () = tokio::task::yield_now() => {}
    }
}

/// A tool that does not return.
fn hanging() -> OneTool {
    OneTool { tool: "hang", verdict: Verdict::Allow, deed: Deed::Hangs, closing: Ok(()) }
}

#[tokio::test]
async fn a_child_that_hangs_ends_with_its_callers_turn_and_leaves_no_trace_in_its_history() {
    let main = worker("main", "entry: true\ntoolsets: [child]");
    let script = "
- {agent: child, call: {hang: {}}}
- {agent: main, heard: delegate, call: {child: {input: go}}}
- {agent: main, say: 'reply {{ round }}'}
";
    let child = worker("child", "toolsets: [hanging]");
    let files = Files::new(&[("main.worker", &main), ("child.worker", &child), ("script.yaml", script)]);
    let log = Log::default();
    let project = hanging().within(files.project(), "hanging", &log);
    let runtime = runtime(&project, RuntimeConfig::new(Approvals::unattended()));
    let mut scope = runtime.open("main").await.unwrap();
    assert_eq!(text(scope.turn("a").await), "reply 1");
    abandon(scope.turn("delegate")).await;
    // Nobody waits for the toolsets of what was dropped; they close when the executor comes to it.
    tokio::task::yield_now().await;
    let told = log.told(&["call", "close", "drop"]);
    assert_eq!(told, ["call hanging", "close hanging", "drop hanging"], "nothing of it goes on");
    let child = &runtime.trace()[0].calls[0];
    assert_eq!((child.name.as_str(), child.error.as_deref()), ("child", Some("cancelled")));
    assert_eq!(text(scope.turn("b").await), "reply 2");
    assert_eq!(scope.frame().history.len(), 4);
    scope.close().await;
}

/// Does not answer the first question.
struct Absent(AtomicUsize);

impl Approver for Absent {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Box::pin(pending()),
            _ => Box::pin(async { Answer::Once }),
        }
    }
}

#[tokio::test]
async fn a_question_that_is_given_up_on_blocks_neither_the_next_one_nor_the_scope() {
    let script = "- {heard: go, call: {hang: {}}}\n- {tool: hang, say: '{{ result }}'}\n- say: 'reply {{ round }}'";
    let main = worker("main", "toolsets: [asking]");
    let files = Files::new(&[("main.worker", &main), ("script.yaml", script)]);
    let log = Log::default();
    let verdict = Verdict::Ask(Question::because("it may hang"));
    let asking = OneTool { verdict, deed: Deed::Says("it did not"), ..hanging() };
    let project = asking.within(files.project(), "asking", &log);
    let runtime = runtime(&project, RuntimeConfig::new(Approvals::ask(Absent(AtomicUsize::new(0)))));
    let mut scope = runtime.open("main").await.unwrap();
    assert_eq!(text(scope.turn("a").await), "reply 1");
    abandon(scope.turn("go")).await;
    assert_eq!(text(scope.turn("go").await), "it did not", "asked again, and answered");
    assert_eq!(scope.frame().history.len(), 6);
    assert_eq!(log.told(&["close", "drop"]), [""; 0], "the toolset lives on");
    scope.close().await;
    assert_eq!(log.told(&["close", "drop"]), ["close asking", "drop asking"]);
}

#[tokio::test]
async fn an_agent_calls_itself_down_to_the_limit() {
    const DEPTH: u64 = 300;
    let script = "- {round: 1, call: {main: {input: deeper}}}\n- say: '{{ result }}'";
    let files = Files::new(&[("main.worker", &worker("main", "toolsets: [main]")), ("script.yaml", script)]);
    let config = RuntimeConfig { max_depth: DEPTH, ..RuntimeConfig::new(Approvals::unattended()) };
    let runtime = runtime(&files.project(), config);
    let said = text(runtime.run("go").await.map(|outcome| outcome.output));
    assert!(
        said.contains("agent `main` cannot call `main`: that would be depth 300, and `max_depth` is 300"),
        "{said}"
    );
    assert_eq!(runtime.usage().total.requests, 2 * DEPTH);
}

/// Without a limit this one would go on for longer than anybody lives.
#[tokio::test]
async fn agents_that_wait_for_nothing_let_others_in_between() {
    let script = "- call: [{main: {input: a}}, {main: {input: b}}, {main: {input: c}}]";
    let files = Files::new(&[("main.worker", &worker("main", "toolsets: [main]")), ("script.yaml", script)]);
    let config = RuntimeConfig { max_depth: 12, ..RuntimeConfig::new(Approvals::unattended()) };
    let runtime = runtime(&files.project(), config);
    let mut scope = runtime.open("main").await.unwrap();
    let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
    let cancelled = async { cancelled.await.unwrap() };
    let (ended, sent) = tokio::join!(scope.turn_until("go", cancelled), async { cancel.send(()) });
    assert!(matches!(ended, Err(RunError::Cancelled { .. })) && sent.is_ok(), "{ended:?}");
    assert!(runtime.usage().total.requests > 0);
    scope.close().await;
}

/// On a thread with the usual stack: a tool that calls itself for ever, agents between its calls or not, reads an error.
#[tokio::test]
async fn a_tool_calls_itself_down_to_the_limit_and_the_process_lives_on() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Left {
        left: u64,
    }
    for (max_call_depth, allowed) in [(None, 74), (Some(1000), 1000), (Some(1_000_000), 1000)] {
        let dig = Tool::with_context("dig", |Left { left }: Left, cx| {
            Box::pin(async move {
                let deeper = RawJson::parse(&format!("{{\"left\":{}}}", left - 1)).unwrap();
                let given = cx.call("dig", &deeper).await;
                Ok::<_, String>(match given {
                    Ok(content) => Content::shown(&content),
                    Err(error) => format!("{} {error}", 10_000 - left),
                })
            })
        });
        let script = "- {round: 1, call: {dig: {left: 10000}}}\n- say: '{{ result }}'";
        let files = Files::new(&[("main.worker", &worker("main", "tools: [dig]")), ("script.yaml", script)]);
        let config = RuntimeConfig { max_call_depth, ..RuntimeConfig::new(Approvals::unattended()) };
        let runtime = runtime(&files.project().tool(dig.verdict(Rule::Allow)), config);
        let said = text(runtime.run("go").await.map(|outcome| outcome.output));
        let expected = format!(
            "{} `dig` cannot call `dig`: {allowed} calls stand within each other, and `max_call_depth` is {allowed}",
            allowed - 1
        );
        assert_eq!(said, expected);
    }
}

/// Changes of one file, by one reply and by agents that run at the same time: none is lost.
#[tokio::test]
async fn changes_of_one_file_at_the_same_time_are_all_made() {
    let files = Files::new(&[
        ("project.json", r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker", "a.worker", "b.worker"]}"#),
        ("main.worker", &worker("main", "toolsets: [filesystem_project, a, b]")),
        ("a.worker", &worker("a", "toolsets: [filesystem_project]")),
        ("b.worker", &worker("b", "toolsets: [filesystem_project]")),
        ("script.yaml", "\
- {agent: a, round: 1, call: {edit_file: {path: f.md, old: ddd, new: DDD}}}
- {agent: b, round: 1, call: {edit_file: {path: f.md, old: eee, new: EEE}}}
- {agent: main, round: 1, call: [{edit_file: {path: f.md, old: aaa, new: AAA}}, {edit_file: {path: f.md, old: bbb, new: BBB}},
    {edit_file: {path: f.md, old: ccc, new: CCC}}, {write_file: {path: g.md, content: one}}, {write_file: {path: g.md, content: two}},
    {a: {input: go}}, {b: {input: go}}]}
- {say: done}
"),
    ]);
    for round in 0..20 {
        std::fs::write(files.path().join("f.md"), "aaa\nbbb\nccc\nddd\neee\n").unwrap();
        let runtime = runtime(&files.project(), RuntimeConfig::new(Approvals::approve_all()));
        assert_eq!(text(runtime.run("x").await.map(|outcome| outcome.output)), "done");
        let read = |name: &str| std::fs::read_to_string(files.path().join(name)).unwrap();
        assert_eq!((read("f.md"), read("g.md")), ("AAA\nBBB\nCCC\nDDD\nEEE\n".to_owned(), "two".to_owned()), "{round}");
    }
}
