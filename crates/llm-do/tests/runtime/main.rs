//! The runtime with scripted models: calls, turns, the gate, limits, tools in Rust, cancellation.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the whole file is a test, its helpers included, and tells its counts"
)]

mod attachments;
mod concurrency;
mod context;
mod dynamic;
mod entry;
mod fallback;
mod journal;
mod kept;
mod money;
mod protected;
mod python;
mod support;
mod unfinished;
mod variants;

use std::sync::Arc;

use llm_do::event::{ApprovalResult, EventKind, Listen};
use llm_do::message::{Message, RawJson};
use llm_do::model::name::ModelChoices;
use llm_do::project::Limits;
use llm_do::runtime::{Models, RunError, Runtime, RuntimeConfig};
use llm_do::tools::Ending;
use llm_do::tools::approval::{Answer, Approvals, Rule};
use llm_do::tools::function::Tool;
use llm_do::tools::plane::Refusals;

use support::{Files, Log, OneTool, person, runtime, text, worker};

#[tokio::test]
async fn a_chat_keeps_history_and_toolsets_and_a_nested_call_starts_fresh() {
    let main = worker("main", "entry: true\ntoolsets: [a, child]\napproval: {a_count: allow}");
    let child = worker("child", "toolsets: [a]\napproval: {a_count: allow}");
    let script = "
- {agent: child, round: 1, call: {a_count: {}}}
- {agent: child, say: 'child: {{ result }} in round {{ round }}'}
- {agent: main, tool: child, say: '{{ result }}'}
- {agent: main, tool: a_count, say: 'count {{ result }}'}
- {agent: main, heard: delegate, call: {child: {input: go}}}
- {agent: main, call: {a_count: {}}}
";
    let files = Files::new(&[("main.worker", &main), ("child.worker", &child), ("script.yaml", script)]);
    let log = Log::default();
    let project = OneTool::counting("a_count").within(files.project(), "a", &log);
    let runtime = runtime(&project, RuntimeConfig::new(Approvals::unattended()));
    let mut scope = runtime.open("main").await.unwrap();
    assert_eq!(text(scope.turn("one").await), "count 1");
    assert_eq!(text(scope.turn("two").await), "count 2", "the toolset lives as long as the call");
    assert_eq!(text(scope.turn("delegate").await), "child: 1 in round 2", "a nested call shares neither");
    assert_eq!(scope.frame().history.len(), 12);
    scope.close().await;
    assert_eq!(log.told(&["open", "close"]), ["open a", "open a", "close a", "close a"]);
}

#[tokio::test]
async fn toolsets_close_once_in_reverse_order_whatever_happens_and_closing_never_fails_the_run() {
    let main = worker("main", "toolsets: [a, b]");
    for (script, fails) in [("- say: hi", false), ("- {fail: give_up, say: broken}", true)] {
        let files = Files::new(&[("main.worker", &main), ("script.yaml", script)]);
        let log = Log::default();
        let project = OneTool::counting("a_count").within(files.project(), "a", &log);
        let project = OneTool::counting("b_count").within(project, "b", &log);
        let program = project.link(&ModelChoices::default()).unwrap();
        let config = RuntimeConfig::new(Approvals::unattended());
        let (runtime, mut listener) = Runtime::with_listener(program, Models::default(), config, Listen::Facts);
        assert_eq!(runtime.run("x").await.is_err(), fails);
        assert_eq!(log.told(&["open", "close"]), ["open a", "open b", "close b", "close a"]);
        drop(runtime);
        let mut failed = Vec::new();
        while let Some(event) = listener.recv().await {
            if let EventKind::ToolsetCloseFailed { toolset, .. } = event.kind {
                failed.push(toolset);
            }
        }
        assert_eq!(failed, ["b", "a"]);
    }
}

#[tokio::test]
async fn if_one_toolset_cannot_be_opened_the_others_are_closed_again() {
    let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
        "toolsets": {"attic": {"filesystem": {"root": "attic", "mode": "ro"}}}}"#;
    let main = worker("main", "toolsets: [a, attic]");
    let files = Files::new(&[("project.json", manifest), ("main.worker", &main), ("script.yaml", "- say: hi")]);
    let log = Log::default();
    let project = OneTool::counting("a_count").within(files.project(), "a", &log);
    let error = runtime(&project, RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap_err();
    assert!(matches!(error, RunError::Toolset { .. }), "{error}");
    assert_eq!(log.told(&["open", "close"]), ["open a", "close a"]);
}

#[tokio::test]
async fn a_failed_turn_leaves_the_history_as_it_was() {
    let script = "- {heard: fail, fail: give_up}\n- {say: 'reply {{ round }}'}";
    let files = Files::new(&[("main.worker", &worker("main", "")), ("script.yaml", script)]);
    let runtime = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended()));
    let mut scope = runtime.open("main").await.unwrap();
    assert_eq!(text(scope.turn("a").await), "reply 1");
    scope.turn("fail").await.unwrap_err();
    assert_eq!(scope.frame().history.len(), 2);
    assert_eq!(text(scope.turn("b").await), "reply 2");
    scope.close().await;
}

/// A chat goes on after a turn that failed, and each of its turns may fail as often as the first.
#[tokio::test]
async fn failures_are_counted_in_one_turn() {
    let script = "
- {heard: talk, say: done}
- {heard: go, call: {nothing: {}}}
- {heard: once, call: {nothing: {}}}
- {round: 2, call: {nothing: {}}}
- {round: 3, call: {nothing: {}}}
- say: recovered
";
    let files = Files::new(&[("main.worker", &worker("main", "")), ("script.yaml", script)]);
    let runtime = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended()));
    let mut scope = runtime.open("main").await.unwrap();
    assert!(matches!(scope.turn("go").await, Err(RunError::RepeatedFailure { .. })));
    for _ in 0..2 {
        assert_eq!(text(scope.turn("talk").await), "done");
    }
    assert_eq!(text(scope.turn("once").await), "recovered", "one failure is not three");
    scope.close().await;
}

#[tokio::test]
async fn a_long_chat_is_no_loop_and_a_limit_of_its_own_is_of_the_whole_call() {
    for (keys, turns) in [("", 60), ("limits: {max_requests: 7}", 7)] {
        let files = Files::new(&[("main.worker", &worker("main", keys)), ("script.yaml", "- say: '{{ round }}'")]);
        let runtime = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended()));
        let mut scope = runtime.open("main").await.unwrap();
        for turn in 1..=turns {
            assert_eq!(text(scope.turn("on").await), turn.to_string());
        }
        let ended = scope.turn("on").await;
        assert_eq!(ended.is_err(), !keys.is_empty(), "{ended:?}");
        scope.close().await;
    }
}

#[tokio::test]
async fn two_agents_use_one_toolset_under_different_rules() {
    let trusted = worker("trusted", "toolsets: [a]\napproval: {a_count: allow}");
    let careful = worker("careful", "toolsets: [a]");
    let blocked = worker("blocked", "toolsets: [a]\napproval: {a_count: block}");
    let script = "- {round: 1, call: {a_count: {}}}\n- {say: '{{ result }}'}";
    let files = [("trusted.worker", &trusted), ("careful.worker", &careful), ("blocked.worker", &blocked)];
    let mut files: Vec<(&str, &str)> = files.map(|(name, text)| (name, text.as_str())).to_vec();
    files.extend([("script.yaml", script), ("main.worker", "---\nname: main\nmodel: scripted:script.yaml\n---\nx")]);
    let files = Files::new(&files);
    let project = OneTool::counting("a_count").within(files.project(), "a", &Log::default());
    let (approvals, asked) = person(Answer::Refuse { reason: Some("no thanks".into()) });
    let runtime = runtime(&project, RuntimeConfig { refusals: Refusals::Return, ..RuntimeConfig::new(approvals) });
    let mut said = Vec::new();
    for agent in ["trusted", "careful", "blocked"] {
        let mut scope = runtime.open(agent).await.unwrap();
        said.push(text(scope.turn("go").await));
        scope.close().await;
    }
    assert_eq!(
        said,
        ["1", "error: refused: no thanks", "error: refused: blocked by `a_count: block` in blocked.worker"]
    );
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].path.as_slice(), asked[0].tool.as_str()), (&["careful".to_owned()][..], "a_count"));
}

#[tokio::test]
async fn an_approval_is_remembered_as_far_as_it_was_given() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Number {
        n: u64,
    }
    async fn count(number: Number) -> Result<u64, String> {
        Ok(number.n)
    }
    let script = "- {round: 1, call: [{count: {n: 1}}, {count: {n: 1}}, {count: {n: 2}}]}\n- {say: done}";
    let files = Files::new(&[("main.worker", &worker("main", "tools: [count]")), ("script.yaml", script)]);
    for (answer, questions) in [(Answer::Once, 3), (Answer::CallForSession, 2), (Answer::ToolForSession, 1)] {
        let (approvals, asked) = person(answer);
        let project = files.project().tool(Tool::new(count));
        let program = project.link(&ModelChoices::default()).unwrap();
        let config = RuntimeConfig::new(approvals);
        let (runtime, mut listener) = Runtime::with_listener(program, Models::default(), config, Listen::Facts);
        runtime.run("x").await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), questions);
        // What nobody was asked about again is told as well.
        let told = std::iter::from_fn(|| listener.try_recv().ok()).filter(|event| {
            matches!(&event.kind, EventKind::ApprovalAnswered { answer: ApprovalResult::Remembered, .. })
        });
        assert_eq!(told.count(), 3 - questions);
    }
}

#[tokio::test]
async fn edited_arguments_are_judged_again_and_the_model_is_told() {
    let script = "- {round: 1, call: {write_file: {path: a.txt, content: x}}}\n- {say: '{{ result }}'}";
    let files =
        Files::new(&[("main.worker", &worker("main", "toolsets: [filesystem_project]")), ("script.yaml", script)]);
    let edited = RawJson::parse(r#"{"path":"b.txt","content":"y"}"#).unwrap();
    let (approvals, _) = person(Answer::Edited(edited));
    let outcome = runtime(&files.project(), RuntimeConfig::new(approvals)).run("x").await.unwrap();
    assert!(!files.path().join("a.txt").exists());
    assert_eq!(std::fs::read_to_string(files.path().join("b.txt")).unwrap(), "y");
    assert!(text(Ok(outcome.output)).contains("the user changed the arguments to"));

    let (approvals, _) = person(Answer::Edited(RawJson::parse(r#"{"path":"../b.txt","content":"y"}"#).unwrap()));
    let outcome = runtime(&files.project(), RuntimeConfig::new(approvals)).run("x").await.unwrap();
    let said = text(Ok(outcome.output));
    assert!(said.starts_with("error: refused: `../b.txt` leads outside"), "a slip does not end the run: {said}");
    assert!(!files.path().parent().unwrap().join("b.txt").exists());
}

#[tokio::test]
async fn if_one_call_of_a_reply_must_wait_none_runs() {
    let keys = "toolsets: [filesystem_project]\napproval: {edit_file: allow}";
    let script = "- call: [{write_file: {path: a.txt, content: x}}, {edit_file: {path: b.txt, old: b, new: c}}]";
    let files = Files::new(&[("main.worker", &worker("main", keys)), ("script.yaml", script), ("b.txt", "b")]);
    let error = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap_err();
    let RunError::Ended(Ending::NeedsApproval(pending)) = error else { panic!("{error}") };
    assert_eq!((pending.len(), pending[0].tool.as_str()), (1, "write_file"));
    assert!(!files.path().join("a.txt").exists());
    assert_eq!(std::fs::read_to_string(files.path().join("b.txt")).unwrap(), "b");
}

#[tokio::test]
async fn cyclic_agents_stop_at_the_depth_limit_as_an_error_result() {
    let (a, b) = (worker("a", "entry: true\ntoolsets: [b]"), worker("b", "toolsets: [a]"));
    let script = "- {agent: a, round: 1, call: {b: {input: x}}}\n- {agent: b, round: 1, call: {a: {input: x}}}\n- say: '{{ result }}'";
    let files = Files::new(&[("a.worker", &a), ("b.worker", &b), ("script.yaml", script)]);
    let outcome = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
    let said = text(Ok(outcome.output));
    assert!(said.contains("agent `a` cannot call `b`: that would be depth 5, and `max_depth` is 5"), "{said}");
    let mut depth = 0;
    let mut call = &*outcome.trace[0];
    while let Some(inner) = call.calls.first() {
        depth += 1;
        assert_eq!(inner.depth, depth);
        call = inner;
    }
    assert_eq!(depth, 4);
    assert_eq!(outcome.trace[0].usage.requests, outcome.usage.total.requests);
}

#[tokio::test]
async fn what_a_model_gets_wrong_comes_back_to_it_and_the_same_failure_three_times_ends_the_call() {
    let cases = [
        (
            "- {round: 1, call: {nothing: {}}}\n- say: '{{ result }}'",
            "there is no tool `nothing`; tools: list_files, read_file",
        ),
        (
            "- {round: 1, call: {read_file: {pth: a}}}\n- say: '{{ result }}'",
            "invalid arguments: `pth` is unknown; did you mean `path`? arguments: max_chars, offset, path",
        ),
        ("- {round: 1, call: {read_file: {path: a}}}\n- say: '{{ result }}'", "`a` does not exist"),
    ];
    let main = worker("main", "toolsets: [filesystem_project_ro]");
    for (script, expected) in cases {
        let files = Files::new(&[("main.worker", &main), ("script.yaml", script)]);
        let outcome = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
        let said = text(Ok(outcome.output.clone()));
        assert!(said.contains(expected), "{said}");
        let told = outcome.trace[0].calls[0].error.clone();
        assert!(told.as_ref().is_some_and(|error| error.contains(expected)), "what it tried is told: {told:?}");
    }
    let files = Files::new(&[("main.worker", &main), ("script.yaml", "- call: {read_file: {path: a}}")]);
    let error = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap_err();
    assert!(matches!(error, RunError::RepeatedFailure { .. }), "{error}");
}

#[tokio::test]
async fn a_limit_of_the_run_is_shared_by_all_and_ends_it_with_what_was_said() {
    let main = worker("main", "entry: true\ntoolsets: [child]");
    let script = "
- {agent: child, say: yes}
- {agent: main, say: 'so far {{ round }}', call: [{child: {input: a}}, {child: {input: b}}]}
";
    let files = Files::new(&[("main.worker", &main), ("child.worker", &worker("child", "")), ("script.yaml", script)]);
    let limits = Limits { max_requests: Some(5), ..Limits::default() };
    let runtime = runtime(&files.project(), RuntimeConfig { limits, ..RuntimeConfig::new(Approvals::unattended()) });
    let error = runtime.run("x").await.unwrap_err();
    let RunError::Ended(Ending::Limit { limit, used, allowed, .. }) = &error else { panic!("{error}") };
    assert_eq!((limit.as_str(), *used, *allowed), ("max_requests", 5.0, 5.0));
    assert_eq!(runtime.usage().total.requests, 5, "never one more");
    assert!(error.partial().is_none_or(|said| said.starts_with("so far 1")), "{error:?}");
}

#[tokio::test]
async fn who_repeats_itself_is_told_once_and_nothing_fails() {
    let script = "
- {heard: third call in a row, call: {list_files: {}}}
- {round: 8, say: done}
- {call: {list_files: {}}}
";
    let main = worker("main", "toolsets: [filesystem_cwd_ro]");
    let files = Files::new(&[("main.worker", &main), ("script.yaml", script)]);
    let program = files.project().link(&ModelChoices::default()).unwrap();
    let config = RuntimeConfig::new(Approvals::unattended());
    let (runtime, mut listener) = Runtime::with_listener(program, Models::default(), config, Listen::Facts);
    let outcome = runtime.run("go").await.unwrap();
    assert_eq!(text(Ok(outcome.output)), "done");
    let told = outcome.messages.iter().filter(|message| match message {
        Message::Tool(results) => format!("{results:?}").contains("third call in a row"),
        Message::User(_) | Message::Assistant(_) => false,
    });
    assert_eq!(told.count(), 1);
    let notices: Vec<String> = std::iter::from_fn(|| listener.try_recv().ok())
        .filter_map(|event| match event.kind {
            EventKind::Notice { text } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(notices, ["agent `main` called `list_files` three times in a row, with the same result each time"]);
}

#[tokio::test]
async fn a_tool_in_rust_calls_agents_and_tools_through_the_same_gate() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let ask_child = Tool::with_context("ask_child", |_: Nothing, cx| {
        Box::pin(async move {
            let input = RawJson::parse(r#"{"input":"hello"}"#).unwrap();
            let said = cx.call_agent("child", &input).await.map_err(|error| format!("{error:?}"))?;
            let write = RawJson::parse(r#"{"path":"x.txt","content":"x"}"#).unwrap();
            let written = cx.call("write_file", &write).await;
            Ok::<_, String>(format!("{said:?} {} {:?}", cx.agent(), written.err()))
        })
    });
    let main = worker("main", "entry: true\ntools: [ask_child]\ntoolsets: [filesystem_project]");
    let script =
        "- {agent: child, say: 'heard {{ heard }}'}\n- {round: 1, call: {ask_child: {}}}\n- say: '{{ result }}'";
    let files = Files::new(&[("main.worker", &main), ("child.worker", &worker("child", "")), ("script.yaml", script)]);
    let project = files.project().tool(ask_child.verdict(Rule::Allow));
    let error = runtime(&project, RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap_err();
    let RunError::Ended(Ending::NeedsApproval(pending)) = &error else { panic!("{error}") };
    assert_eq!(pending[0].tool, "write_file", "code cannot catch what ends the run");
    assert!(!files.path().join("x.txt").exists());
}

#[tokio::test]
async fn a_tool_that_panics_fails_its_call_and_nothing_else() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    async fn broken(_: Nothing) -> Result<String, String> {
        panic!("oh no")
    }
    let script = "- {round: 1, call: {broken: {}}}\n- say: '{{ result }}'";
    let files = Files::new(&[("main.worker", &worker("main", "tools: [broken]")), ("script.yaml", script)]);
    let project = files.project().tool(Tool::new(broken).verdict(Rule::Allow));
    let outcome = runtime(&project, RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
    assert_eq!(text(Ok(outcome.output)), "error: the tool panicked: oh no");
}

#[tokio::test]
async fn a_cancelled_turn_leaves_history_and_toolsets_usable() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    async fn hang(_: Nothing) -> Result<String, String> {
        std::future::pending().await
    }
    let script = "- {heard: hang, call: {hang: {}}}\n- say: 'reply {{ round }}'";
    let files = Files::new(&[("main.worker", &worker("main", "tools: [hang]")), ("script.yaml", script)]);
    let project = files.project().tool(Tool::new(hang).verdict(Rule::Allow));
    let runtime = runtime(&project, RuntimeConfig::new(Approvals::unattended()));
    let mut scope = runtime.open("main").await.unwrap();
    assert_eq!(text(scope.turn("a").await), "reply 1");
    {
        let turn = scope.turn("hang");
        tokio::pin!(turn);
        tokio::select! {
            biased;
            _ = &mut turn => panic!("it hangs"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(text(scope.turn("b").await), "reply 2");
    let users = scope.frame().history.iter().filter(|message| matches!(message, Message::User(_))).count();
    assert_eq!(users, 2, "the cancelled turn left no trace");
    scope.close().await;
}

#[tokio::test]
async fn a_thousand_runs_at_once_do_not_meet() {
    let script = "- {round: 1, call: {list_files: {}}}\n- say: '{{ result }}'";
    let main = worker("main", "toolsets: [filesystem_project_ro]");
    let files = Files::new(&[("main.worker", &main), ("script.yaml", script)]);
    let runtime = Arc::new(runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())));
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let runtime = Arc::clone(&runtime);
        runs.spawn(async move { text(runtime.run("x").await.map(|outcome| outcome.output)) });
    }
    while let Some(said) = runs.join_next().await {
        assert_eq!(said.unwrap(), "main.worker\nscript.yaml");
    }
    assert_eq!(runtime.usage().total.requests, 2_000);
}
