//! Entry functions in Rust: code above the agents, through the same gate, trace and limits.

use std::sync::{Arc, Mutex};

use llm_do::event::CallKind;
use llm_do::message::{Content, RawJson};
use llm_do::project::{Limits, Project};
use llm_do::runtime::input::Input;
use llm_do::runtime::{Output, RunError, RuntimeConfig};
use llm_do::tools::approval::{Answer, Approvals, Rule};
use llm_do::tools::function::{FunctionEntry, Tool};
use llm_do::tools::{Ending, ToolError};
use serde_json::json;

use super::support::{Files, person, runtime, text, worker};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Topic {
    topic: String,
}

/// Counts the letters of a text
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Letters {
    text: String,
}

async fn letters(arguments: Letters) -> Result<usize, String> {
    Ok(arguments.text.len())
}

fn expert(keys: &str) -> Files {
    Files::new(&[("expert.worker", &worker("expert", keys)), ("script.yaml", "- say: 'about {{ heard }}'")])
}

fn asking_the_expert() -> FunctionEntry {
    FunctionEntry::new("main", |topic: Topic, cx| {
        Box::pin(async move {
            let answer = cx.call_agent("expert", &RawJson::of(&topic.topic)).await?;
            let arguments = RawJson::of(&json!({"text": Content::shown(&answer)}));
            let count = cx.call("letters", &arguments).await?;
            Ok(format!("{} ({})", Content::shown(&answer), Content::shown(&count)))
        })
    })
}

fn project(files: &Files, verdict: Rule) -> Project {
    files.project().tool(Tool::new(letters).verdict(verdict)).entry(asking_the_expert())
}

#[tokio::test]
async fn an_entry_function_calls_agents_and_tools_by_name_in_one_tree() {
    let files = expert("");
    let runtime = runtime(&project(&files, Rule::Allow), RuntimeConfig::new(Approvals::unattended()));
    for input in [Input::from("cranes"), Input::Object { value: json!({"topic": "cranes"}), attachments: Vec::new() }] {
        let outcome = runtime.run(input).await.unwrap();
        assert_eq!(text(Ok(outcome.output)), "about cranes (12)", "a plain text fills the one field");
        let root = outcome.trace.last().unwrap();
        assert_eq!((root.name.as_str(), root.kind, root.depth), ("main", CallKind::Function, 0));
        let calls: Vec<_> = root.calls.iter().map(|call| (call.name.as_str(), call.kind, call.depth)).collect();
        assert_eq!(calls, [("expert", CallKind::Agent, 1), ("letters", CallKind::Tool, 0)]);
        assert_eq!(root.usage.requests, 1);
    }
    let wrong = Input::Object { value: json!({"tpic": "x"}), attachments: Vec::new() };
    let error = runtime.run(wrong).await.unwrap_err().to_string();
    assert!(error.contains("`topic` is missing"), "{error}");
}

#[tokio::test]
async fn its_calls_pass_the_gate_and_it_cannot_catch_what_ends_the_run() {
    let files = expert("");
    let waits = runtime(&project(&files, Rule::Ask), RuntimeConfig::new(Approvals::unattended())).run("x").await;
    let Err(RunError::Ended(Ending::NeedsApproval(pending))) = waits else { panic!("{waits:?}") };
    assert_eq!((pending[0].path.join(" "), pending[0].tool.as_str()), ("main".to_owned(), "letters"));

    let careless = FunctionEntry::new("main", |_: Topic, cx| {
        Box::pin(async move {
            let _ = cx.call("letters", &RawJson::of(&json!({"text": "x"}))).await;
            Ok("went on")
        })
    });
    let project = files.project().tool(Tool::new(letters)).entry(careless);
    let ended = runtime(&project, RuntimeConfig::new(Approvals::reject_all())).run("x").await;
    assert!(matches!(ended, Err(RunError::Ended(Ending::Refused { .. }))), "{ended:?}");
}

#[tokio::test]
async fn calls_of_agents_by_code_ask_where_the_policy_says_so() {
    let manifest = json!({
        "version": 1, "entry": {}, "worker_files": ["expert.worker"],
        "runtime": {"agent_calls_require_approval": true},
    });
    let files = expert("");
    std::fs::write(files.path().join("project.json"), manifest.to_string()).unwrap();
    let (approvals, asked) = person(Answer::Once);
    runtime(&project(&files, Rule::Allow), RuntimeConfig::new(approvals)).run("x").await.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!((asked.len(), asked[0].tool.as_str(), asked[0].path.join(" ")), (1, "expert", "main".to_owned()));
}

#[tokio::test]
async fn a_limit_stops_the_agents_of_a_function_too() {
    let files = expert("");
    let limits = Limits { max_requests: Some(0), ..Limits::default() };
    let config = RuntimeConfig { limits, ..RuntimeConfig::new(Approvals::unattended()) };
    let error = runtime(&project(&files, Rule::Allow), config).run("x").await.unwrap_err();
    assert!(matches!(error, RunError::Ended(Ending::Limit { .. })), "{error}");
}

#[tokio::test]
async fn a_function_that_fails_or_gives_a_value_says_so() {
    let files = expert("");
    let failing = FunctionEntry::new("main", |topic: Topic, _| {
        Box::pin(async move {
            if topic.topic == "none" {
                return Err(ToolError::failed("there is nothing to say"));
            }
            Ok(json!({"words": topic.topic.split(' ').count()}))
        })
    });
    let runtime = runtime(&files.project().entry(failing), RuntimeConfig::new(Approvals::unattended()));
    let outcome = runtime.run("two words").await.unwrap();
    assert_eq!(outcome.output, Output::Value(RawJson::parse(r#"{"words":2}"#).unwrap()));
    let error = runtime.run("none").await.unwrap_err().to_string();
    assert_eq!(error, "the entry function `main` failed: there is nothing to say");
}

#[tokio::test]
async fn two_entries_are_a_mistake_that_names_both() {
    let files = expert("entry: true");
    let report = project(&files, Rule::Allow).link(&llm_do::model::name::ModelChoices::default()).unwrap_err();
    assert!(report.to_string().contains("several entries: expert, main"), "{report}");
}

#[tokio::test]
async fn a_tool_sees_whose_call_it_is_and_what_has_happened_so_far() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let outlives = Arc::new(Mutex::new(None));
    let (log, kept) = (Arc::clone(&seen), Arc::clone(&outlives));
    let look = Tool::with_context("look", move |_: Nothing, cx| {
        let files: Vec<&str> = cx.attachments().map(|file| file.name.as_str()).collect();
        let (usage, trace) = (cx.usage(), cx.trace());
        log.lock().unwrap().push(format!(
            "{} {} {:?} {files:?} {} messages, {} requests, in `{}`, tools {:?}",
            cx.agent(),
            cx.depth(),
            cx.model(),
            cx.messages().len(),
            usage.total.requests,
            trace[0].name,
            cx.tools(),
        ));
        assert!(!cx.cancelled().is_cancelled());
        *kept.lock().unwrap() = Some(cx.cancelled());
        Box::pin(async move { Ok::<_, String>("seen") })
    });
    let script = "- {round: 1, call: {look: {}}}\n- say: done";
    let files = Files::new(&[
        ("main.worker", &worker("main", "tools: [look]")),
        ("script.yaml", script),
        ("notes.md", "the notes"),
    ]);
    let runtime =
        runtime(&files.project().tool(look.verdict(Rule::Allow)), RuntimeConfig::new(Approvals::unattended()));
    let value = json!({"input": "x", "attachments": ["notes.md"]});
    runtime.run(Input::Object { value, attachments: Vec::new() }).await.unwrap();
    let expected =
        r#"main 0 Some("scripted:script.yaml") ["notes.md"] 2 messages, 1 requests, in `main`, tools ["look"]"#;
    assert_eq!(*seen.lock().unwrap(), [expected]);
    let kept = outlives.lock().unwrap().take().unwrap();
    kept.cancelled().await;
    assert!(kept.is_cancelled(), "nobody waits once the turn is over");
}
