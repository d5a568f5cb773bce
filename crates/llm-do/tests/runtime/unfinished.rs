//! Replies that are not whole, as callers within a run meet them.

use llm_do::message::Finish;
use llm_do::runtime::{Output, RunError, RuntimeConfig};
use llm_do::tools::approval::Approvals;

use crate::support::{Files, runtime, text, worker};

fn config() -> RuntimeConfig {
    RuntimeConfig::new(Approvals::approve_all())
}

#[tokio::test]
async fn a_calling_agent_reads_an_error_and_not_half_an_answer() {
    let main = worker("main", "entry: true\ntoolsets: [child]");
    for (finish, said) in [
        (
            "length",
            "error: agent `child` was stopped: the answer of agent `child` was cut off: it reached the longest that is allowed; until then it said: Half",
        ),
        (
            "content_filter",
            "error: agent `child` failed: the model of agent `child` declined: the provider filtered the answer (the script says so)",
        ),
        (
            "error",
            "error: agent `child` failed: the answer of agent `child` is not whole: its provider ended it with `the script says so`",
        ),
    ] {
        let script = format!(
            "- {{agent: child, say: Half, finish: {finish}}}\n- {{agent: main, tool: child, say: '{{{{ result }}}}'}}\n- {{agent: main, call: {{child: {{input: x}}}}}}"
        );
        let files =
            Files::new(&[("main.worker", &main), ("child.worker", &worker("child", "")), ("script.yaml", &script)]);
        let outcome = runtime(&files.project(), config()).run("go").await.unwrap();
        assert_eq!(outcome.finish, Some(Finish::Stop));
        assert_eq!(text(Ok(outcome.output)), said);
    }
}

#[tokio::test]
async fn no_call_of_it_runs_whatever_a_rule_allows() {
    let main = worker("main", "entry: true\ntoolsets: [filesystem_cwd]");
    for finish in ["length", "context_window", "content_filter", "error"] {
        let script = format!("- {{call: {{write_file: {{path: out.txt, content: x}}}}, finish: {finish}}}");
        let files = Files::new(&[("main.worker", &main), ("script.yaml", &script)]);
        let runtime = runtime(&files.project(), config());
        let error = runtime.run("go").await.unwrap_err();
        assert!(matches!(error, RunError::Unfinished { .. }), "{error}");
        assert_eq!(serde_json::to_value(error.finish()).unwrap(), finish);
        assert!(!files.path().join("out.txt").exists());
        assert!(runtime.trace()[0].calls.is_empty(), "{finish}");
    }
}

#[tokio::test]
async fn a_typed_answer_that_was_cut_goes_back_to_the_model() {
    let schema = "entry: true\nschema_out: {type: object, properties: {n: {type: integer}}, required: [n]}";
    let main = worker("main", schema);
    let script = "
- {round: 1, say: '{\"n\": 1', finish: length}
- {heard: cut off, say: '{\"n\": 12}'}
";
    let files = Files::new(&[("main.worker", &main), ("script.yaml", script)]);
    let outcome = runtime(&files.project(), config()).run("go").await.unwrap();
    let Output::Value(value) = outcome.output else { panic!("a value") };
    assert_eq!((value.get(), outcome.usage.total.requests), ("{\"n\": 12}", 2));
    let files = Files::new(&[("main.worker", &main), ("script.yaml", "- {say: '{\"n\": 1', finish: length}")]);
    let error = runtime(&files.project(), config()).run("go").await.unwrap_err();
    assert_eq!(error.finish(), Some(Finish::Length), "{error}");
}
