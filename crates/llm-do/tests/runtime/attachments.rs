//! Files that inputs name: read inside the project, asked for outside it and where they look like secrets, whoever
//! names them.

use llm_do::message::{Content, Message};
use llm_do::runtime::input::Input;
use llm_do::runtime::{RunError, RuntimeConfig};
use llm_do::tools::Ending;
use llm_do::tools::approval::{Answer, Approvals, Memory};
use serde_json::json;

use super::support::{Files, person, runtime, text, worker};

/// `main` hands a file to `child`, which says what it was given.
fn delegating(path: &str, policy: &str) -> Files {
    let script = format!(
        "- {{agent: child, say: 'got {{{{ heard }}}}'}}\n\
         - {{round: 1, call: {{child: {{input: look, attachments: ['{path}']}}}}}}\n\
         - say: '{{{{ result }}}}'"
    );
    let manifest = json!({
        "version": 1,
        "entry": {"agent": "main"},
        "worker_files": ["main.worker", "child.worker"],
        "runtime": serde_json::from_str::<serde_json::Value>(policy).unwrap(),
    });
    Files::new(&[
        ("project.json", &manifest.to_string()),
        ("main.worker", &worker("main", "toolsets: [child]\napproval: {child: allow}")),
        ("child.worker", &worker("child", "")),
        ("script.yaml", &script),
        ("notes.md", "the notes"),
        (".env", "KEY=1"),
    ])
}

#[tokio::test]
async fn a_model_hands_on_files_of_the_project_without_a_question() {
    let files = delegating("notes.md", "{}");
    let outcome = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
    assert_eq!(text(Ok(outcome.output)), "got look\n[notes.md]");
}

#[tokio::test]
async fn secrets_and_files_outside_are_asked_for_whatever_a_rule_allows() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), "outside").unwrap();
    for path in [".env", outside.path().to_str().unwrap()] {
        let files = delegating(path, "{}");
        let waits = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap_err();
        let RunError::Ended(Ending::NeedsApproval(pending)) = waits else { panic!("{waits}") };
        assert_eq!((pending[0].path.join(" "), pending[0].tool.as_str()), ("main".to_owned(), "child"));

        let (approvals, asked) = person(Answer::Once);
        let outcome = runtime(&files.project(), RuntimeConfig::new(approvals)).run("x").await.unwrap();
        let said = text(Ok(outcome.output));
        assert!(said.starts_with("got look\n["), "{said}");
        let asked = asked.lock().unwrap().clone();
        assert_eq!((asked.len(), asked[0].memory), (1, Memory::CallOnly));
        assert!(asked[0].question.reason.starts_with("sends to the agent `child`"), "{:?}", asked[0].question);

        let (approvals, _) = person(Answer::Refuse { reason: Some("private".into()) });
        let outcome = runtime(&files.project(), RuntimeConfig::new(approvals)).run("x").await.unwrap();
        assert_eq!(text(Ok(outcome.output)), "error: refused: private");
    }
}

#[tokio::test]
async fn files_that_a_model_names_wrongly_come_back_to_it() {
    let files = delegating("missing.md", "{}");
    let outcome = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
    assert_eq!(text(Ok(outcome.output)), "error: agent `child` failed: the attachment `missing.md` does not exist");
}

/// The last one is missing: to know that, all before it would have been read.
#[tokio::test]
async fn no_more_files_are_read_than_may_be_sent() {
    for (count, policy, reason) in [
        (5, "{}", "`notes.md` is one too many: at most 4 are taken"),
        (3, "{max_total_bytes: 20}", "`notes.md` is too large: at most 20 bytes are taken in all"),
        (1, "{denied_suffixes: [.md]}", "`notes.md` has an ending that the agent does not take"),
    ] {
        let named = vec!["notes.md"; count].join("', '") + "', 'missing.md";
        for schema in ["", "schema_in: {type: object, properties: {input: {}, attachments: {type: array}}}"] {
            let files = delegating(&named, "{}");
            let child = worker("child", &format!("attachment_policy: {policy}\n{schema}"));
            std::fs::write(files.path().join("child.worker"), child).unwrap();
            let outcome =
                runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
            let expected = format!("error: agent `child` failed: the attachment {reason}");
            assert_eq!(text(Ok(outcome.output)), expected);
        }
    }
}

#[tokio::test]
async fn what_is_no_file_of_the_disk_is_none() {
    for (path, reason) in [
        ("https://example.com/a.png", "does not exist"),
        ("file:///etc/passwd", "does not exist"),
        ("big", "is larger than 64 MiB"),
        ("pipe", "is not a regular file"),
    ] {
        let files = delegating(path, "{}");
        std::fs::File::create(files.path().join("big")).unwrap().set_len(2 << 30).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, files.path().join("pipe"), 0o600.into()).unwrap();
        let outcome = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run("x").await.unwrap();
        let expected = format!("error: agent `child` failed: the attachment `{path}` {reason}");
        assert_eq!(text(Ok(outcome.output)), expected);
    }
}

#[tokio::test]
async fn handing_on_files_asks_where_the_policy_says_so_except_for_agents_it_excepts() {
    let general = r#"{"agent_attachments_require_approval": true}"#;
    let excepted = r#"{"agent_attachments_require_approval": true,
        "agent_approval_overrides": {"child": {"attachments_require_approval": false}}}"#;
    for (policy, questions) in [("{}", 0), (general, 1), (excepted, 0)] {
        let files = delegating("notes.md", policy);
        // The rule of the agent would allow it, so it is left out here.
        std::fs::write(files.path().join("main.worker"), worker("main", "toolsets: [child]")).unwrap();
        let (approvals, asked) = person(Answer::Once);
        runtime(&files.project(), RuntimeConfig::new(approvals)).run("x").await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), questions, "{policy}");
    }
}

#[tokio::test]
async fn the_input_of_a_run_may_not_name_what_nobody_agreed_to() {
    let files = Files::new(&[("main.worker", &worker("main", "")), ("script.yaml", "- say: ok"), (".env", "KEY=1")]);
    let input = || Input::Object { value: json!({"input": "x", "attachments": [".env"]}), attachments: Vec::new() };
    let waits = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run(input()).await.unwrap_err();
    let RunError::Ended(Ending::NeedsApproval(pending)) = waits else { panic!("{waits}") };
    assert_eq!((pending[0].tool.as_str(), pending[0].arguments.get()), ("attach", r#"{"paths":[".env"]}"#));
    let (approvals, _) = person(Answer::Once);
    let outcome = runtime(&files.project(), RuntimeConfig::new(approvals)).run(input()).await.unwrap();
    let Message::User(message) = &outcome.messages[0] else { panic!("{:?}", outcome.messages) };
    assert!(matches!(&message.parts[1], Content::Attachment(file) if file.name == ".env"), "{message:?}");
}

#[tokio::test]
async fn a_typed_input_with_a_field_for_attachments_takes_them_there() {
    let keys = "schema_in: {type: object, required: [title], properties: {title: {type: string}, \
                attachments: {type: array, items: {type: string}}}}\n\
                prompt: '{{ title }}: {{ attachments | join(\", \") }}'";
    let files = Files::new(&[
        ("main.worker", &worker("main", keys)),
        ("script.yaml", "- say: '{{ heard }}'"),
        ("notes.md", "the notes"),
        ("given.md", "given beside"),
    ]);
    let given = llm_do::tools::attachment::read_named(&files.path().join("given.md")).unwrap();
    let value = json!({"title": "Report", "attachments": ["notes.md"]});
    let input = Input::Object { value, attachments: vec![given] };
    let outcome = runtime(&files.project(), RuntimeConfig::new(Approvals::unattended())).run(input).await.unwrap();
    assert_eq!(text(Ok(outcome.output)), "Report: notes.md, given.md\n[notes.md]\n[given.md]");
}
