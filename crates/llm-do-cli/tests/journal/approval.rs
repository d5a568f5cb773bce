//! Runs that wait for somebody's answer.

use std::fs;
use std::process::Stdio;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use serde_json::json;

use crate::session::{KEY, Run};
use crate::support::{Sandbox, wait};
use crate::{begin, journal, records, resume, waiting_id, worker, writer};

#[test]
fn a_call_that_asks_suspends_the_run_and_an_approval_lets_it_go_on() {
    let (sandbox, fake) = writer();
    let said = begin(&sandbox, &fake, &[]).failure(4);
    let id = waiting_id(&sandbox, &fake);
    let expected = format!(
        "waiting for approval ({id}): main › write_file\ncreates a.txt: 1 line added\n   1 + new\n\
         error: approval is needed for `write_file` of main\n\
         hint: `llm-do resume run.journal --approve {id}` allows it and goes on; `--refuse {id}` refuses it\n"
    );
    assert_eq!(said, expected);
    assert!(!sandbox.path().join("a.txt").exists());

    let ended = resume(&sandbox, &fake, &["--approve", &id]).ended();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Result: wrote 4 characters to a.txt\n"));
    let call = "content  │ new\n         │\npath     │ a.txt\n";
    assert_eq!(ended.stderr, format!("approved ({id}): main › write_file\n{call}"), "what is approved is shown");
    assert_eq!(fs::read_to_string(sandbox.path().join("a.txt")).unwrap(), "new\n");
    assert_eq!(fake.requests().len(), 2, "no request was repeated");

    let again = resume(&sandbox, &fake, &[]).answer();
    assert_eq!((again.as_str(), fake.requests().len()), ("Result: wrote 4 characters to a.txt\n", 2));
    assert!(resume(&sandbox, &fake, &["--show"]).answer().ends_with("\nfinished\n"));
}

#[test]
fn a_refusal_with_a_reason_is_what_the_model_reads() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let id = waiting_id(&sandbox, &fake);
    let ended = resume(&sandbox, &fake, &["--refuse", &id, "--reason", "not today"]).ended();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Result: refused: not today\n"));
    assert!(!sandbox.path().join("a.txt").exists());
}

#[test]
fn the_result_of_a_suspended_run_says_what_waits_and_that_of_the_whole_run_counts_everything() {
    let (sandbox, fake) = writer();
    let (_, suspended) = begin(&sandbox, &fake, &["--json"]).events();
    let id = waiting_id(&sandbox, &fake);
    let arguments = json!({"path": "a.txt", "content": "new\n"});
    let (reason, preview) = ("creates a.txt: 1 line added", "   1 + new");
    let pending = json!([{
        "id": suspended["pending"][0]["id"], "path": ["main"], "tool": "write_file", "arguments": arguments,
        "reason": reason, "preview": preview, "shows": ["path", "content"], "edits": "content",
    }]);
    let whole_id = suspended["pending"][0]["id"].as_str().unwrap();
    assert!(whole_id.len() == 64 && whole_id.starts_with(&id), "programs get all of it: {whole_id}");
    assert_eq!((&suspended["exit_code"], &suspended["pending"]), (&json!(4), &pending));
    let (events, result) = resume(&sandbox, &fake, &["--json", "--approve", &id]).events();
    assert_eq!(result["run"], suspended["run"], "it is the same run");
    assert_eq!(result["usage"]["total"]["requests"], 2);
    assert_eq!(result["messages"].as_array().unwrap().len(), 4);
    assert_eq!(result["trace"]["calls"][0]["name"], "write_file");
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    let facts = ["call_started", "user_message", "request_started", "request_finished", "approval_asked"];
    assert_eq!(&types[..5], facts, "what had happened is told again");
    let (_, finished) = resume(&sandbox, &fake, &["--json"]).events();
    for key in ["output", "usage", "messages", "run", "exit_code"] {
        assert_eq!(finished[key], result[key], "{key}");
    }
}

#[test]
fn whoever_approved_and_when_is_recorded_and_no_key_ever() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).with("USER", "ann").failure(4);
    let id = waiting_id(&sandbox, &fake);
    resume(&sandbox, &fake, &["--approve", &id]).with("USER", "bob").ended();
    let records = records(&sandbox);
    let answered = records.iter().find(|line| line["kind"] == "ask" && line["state"] == "done").unwrap();
    assert_eq!((&records[0]["by"], &answered["by"]), (&json!("ann"), &json!("bob")));
    assert!(answered["at"].as_u64() >= records[0]["at"].as_u64());
    assert!(!fs::read_to_string(journal(&sandbox)).unwrap().contains(KEY));
}

#[test]
fn ids_that_nobody_waits_with_are_usage_errors() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let id = waiting_id(&sandbox, &fake);
    let before = fs::read(journal(&sandbox)).unwrap();
    let unknown = resume(&sandbox, &fake, &["--approve", "000000000000"]).failure(2);
    assert!(unknown.contains("no call waits with the id `000000000000`"), "{unknown}");
    assert!(unknown.contains(&id), "{unknown}");
    let twice = resume(&sandbox, &fake, &["--approve", &id, "--refuse", &id]).failure(2);
    assert!(twice.contains("is decided twice"), "{twice}");
    let reasons = resume(&sandbox, &fake, &["--refuse", &id, "--reason", "a", "--reason", "b"]).failure(2);
    assert!(reasons.contains("more `--reason` than `--refuse`"), "{reasons}");
    assert_eq!(fs::read(journal(&sandbox)).unwrap(), before, "a mistake changes nothing");
}

#[test]
fn an_approval_is_for_what_was_shown() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let id = waiting_id(&sandbox, &fake);
    sandbox.file("a.txt", "somebody else's\n");
    let said = resume(&sandbox, &fake, &["--approve", &id]).failure(4);
    assert!(said.contains(&format!("note: nothing asked for `{id}`")), "{said}");
    assert_eq!(fs::read_to_string(sandbox.path().join("a.txt")).unwrap(), "somebody else's\n");
    let other = waiting_id(&sandbox, &fake);
    assert_ne!(other, id);
    let shown = resume(&sandbox, &fake, &["--show"]).answer();
    assert!(shown.contains("changes a.txt: 1 line added, 1 removed\n   1 - somebody else's\n   1 + new\n"), "{shown}");
    assert_eq!(resume(&sandbox, &fake, &["--approve", &other]).ended().code, Some(0));
}

#[test]
fn a_changed_project_is_named_and_needs_force() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    sandbox.file("main.worker", &worker("main", "toolsets: [filesystem_cwd]\napproval: { write_file: block }"));
    let before = fs::read(journal(&sandbox)).unwrap();
    let changed = resume(&sandbox, &fake, &["--approve-all"]).failure(2);
    assert!(changed.contains("the project has changed since the run began: main.worker has changed"), "{changed}");
    assert!(changed.contains("--force"), "{changed}");
    assert_eq!(fs::read(journal(&sandbox)).unwrap(), before);
    let shown = resume(&sandbox, &fake, &["--show"]).answer();
    assert!(shown.ends_with("\nthe project has changed: main.worker has changed\n"), "{shown}");
    let id = waiting_id(&sandbox, &fake);
    let refused = resume(&sandbox, &fake, &["--approve", &id, "--force"]).failure(4);
    assert!(refused.contains("blocked by `write_file: block` in main.worker"), "today's policy decides: {refused}");
    assert!(!sandbox.path().join("a.txt").exists());
}

#[test]
fn a_run_goes_on_from_anywhere_with_another_model_and_its_own_flags() {
    let (sandbox, fake) = writer();
    sandbox.file("spare.worker", "---\nname: spare\n---\nYou are spare.\n");
    sandbox.file("main.worker", &worker("main", "entry: true\ntoolsets: [filesystem_cwd]"));
    sandbox.file("elsewhere/x", "");
    begin(&sandbox, &fake, &["-m", "openai:gpt"]).failure(4);
    let id = waiting_id(&sandbox, &fake);
    let path = journal(&sandbox);
    let elsewhere = |flags: &[&str]| {
        let mut command = sandbox.command(flags, &[]);
        command.current_dir(sandbox.path().join("elsewhere")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let waits = wait(&mut elsewhere(&["resume", "../run.journal", "-m", "main=openai:other"]));
    let absolute = std::path::absolute(sandbox.path().join("elsewhere/../run.journal")).unwrap();
    assert!(waits.stderr.contains(&format!("`llm-do resume {} --approve", absolute.display())), "{}", waits.stderr);
    let flags = ["resume", path.to_str().unwrap(), "--approve", &id, "-m", "main=openai:other"];
    let mut command = elsewhere(&flags);
    for (name, value) in [("OPENAI_BASE_URL", fake.openai_url()), ("OPENAI_API_KEY", KEY.to_owned())] {
        command.env(name, value);
    }
    let ended = wait(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.path().join("a.txt").exists(), "the working directory is the run's");
    let models: Vec<String> =
        fake.requests().iter().map(|request| request.seen.as_ref().unwrap().model.clone()).collect();
    assert_eq!(models, ["gpt", "other"]);
    let (_, result) = resume(&sandbox, &fake, &["--json"]).events();
    let by_model: Vec<&String> = result["usage"]["by_model"].as_object().unwrap().keys().collect();
    assert_eq!(by_model, ["openai:gpt", "openai:other"], "each request counts for the model that answered it");
}

#[test]
fn approve_all_is_not_taken_from_a_file_and_reject_all_is() {
    let two_writes = |seen: &fake_llm::SeenRequest| {
        let write = |path: &str| FakeReply::calls([FakeCall::new("write_file", json!({"path": path, "content": "x"}))]);
        Some(match seen.results().count() {
            0 => write("a.txt"),
            1 => FakeReply::calls([FakeCall::new("read_file", json!({"path": "gone.txt"}))]),
            2 => write("b.txt"),
            _ => FakeReply::text("done"),
        })
    };
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", &worker("main", "toolsets: [filesystem_cwd]"));
    let fake = FakeLlm::start(FakeScript::new().answer(two_writes));
    let limited = begin(&sandbox, &fake, &["--approve-all", "--max-requests", "2"]).ended();
    assert_eq!(limited.code, Some(5), "{limited:?}");
    assert!(
        limited.stderr.contains("`llm-do resume run.journal` goes on with a higher `--max-requests`"),
        "{}",
        limited.stderr
    );
    let asks = resume(&sandbox, &fake, &["--max-requests", "9"]).failure(4);
    assert!(asks.contains("b.txt"), "{asks}");
    assert_eq!(resume(&sandbox, &fake, &["--max-requests", "9", "--approve-all"]).answer(), "done\n");

    fs::remove_file(journal(&sandbox)).unwrap();
    let rejected = begin(&sandbox, &fake, &["--reject-all"]).failure(4);
    assert_eq!(resume(&sandbox, &fake, &[]).failure(4), rejected);
    assert_eq!(resume(&sandbox, &fake, &["--approve-all"]).answer(), "done\n");
}

#[test]
fn with_return_permission_errors_it_still_suspends() {
    let (sandbox, fake) = writer();
    let runtime = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "runtime": {"return_permission_errors": true}}"#;
    sandbox.file("project.json", runtime);
    let unjournaled = Run::new(&sandbox, &[".", "hi", "--ephemeral"]).asking(&fake).ended();
    assert!(unjournaled.stdout.contains("nobody is there to give it"), "{unjournaled:?}");
    assert_eq!(
        (unjournaled.code, unjournaled.stderr.as_str()),
        (Some(0), "1 call was refused: `write_file` of main\n")
    );
    begin(&sandbox, &fake, &[]).failure(4);
    let id = waiting_id(&sandbox, &fake);
    assert_eq!(resume(&sandbox, &fake, &["--approve", &id]).ended().code, Some(0));
}

#[test]
fn attachments_and_input_are_kept() {
    let (sandbox, fake) = writer();
    sandbox.file("notes.md", "# Notes\n");
    begin(&sandbox, &fake, &["-f", "notes.md"]).failure(4);
    fs::remove_file(sandbox.path().join("notes.md")).unwrap();
    let id = waiting_id(&sandbox, &fake);
    assert_eq!(resume(&sandbox, &fake, &["--approve", &id]).ended().code, Some(0));
    let requests = fake.requests();
    let first = requests[1].seen.as_ref().unwrap().messages[0].clone();
    assert_eq!(first, requests[0].seen.as_ref().unwrap().messages[0]);
    assert!(records(&sandbox)[0]["res"]["input"].to_string().contains("notes.md"));
}
