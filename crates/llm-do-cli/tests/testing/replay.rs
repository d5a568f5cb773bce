//! Records answer, and say what has changed where they do not.

use std::fs;

use serde_json::Value;

use crate::support::Sandbox;
use crate::{CASES, NOTES, RECORD, SCRIPT, project, recorded, test};

#[test]
fn a_record_answers_without_a_key_and_nothing_is_written_into_the_project() {
    let sandbox = recorded();
    let before = sandbox.tree();
    let ended = test(&sandbox, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout, "ok         notes   finds what users notice\n\n1 passed\n");
    assert_eq!(ended.stderr, "");
    assert_eq!(sandbox.tree(), before, "what tools wrote is thrown away");
}

#[test]
fn a_record_has_a_line_per_answer_and_nothing_of_the_machine() {
    let sandbox = recorded();
    let text = fs::read_to_string(sandbox.path().join(RECORD)).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line.get(kind).is_some()).count();
    assert_eq!((of("reply"), of("gave"), of("input")), (3, 2, 1), "{text}");
    for word in [sandbox.path().to_str().unwrap(), "/tmp/", "\"mac\"", "approved", "HOME"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    // Written once more it is the same.
    fs::remove_file(sandbox.path().join(RECORD)).unwrap();
    assert_eq!(test(&sandbox, &["--record", "-m", "scripted:script.yaml"]).code, Some(0));
    assert_eq!(fs::read_to_string(sandbox.path().join(RECORD)).unwrap(), text);
}

#[test]
fn what_has_changed_since_a_record_was_made_is_named() {
    let cases = |from: &str, to: &str| CASES.replace(from, to);
    let worker = |from: &str, to: &str| NOTES.replace(from, to);
    for (file, text, changed) in [
        ("notes.worker", worker("Write release", "Write long release"), "instructions"),
        ("notes.worker", worker("[filesystem_project]", "[filesystem_project, shell_readonly]"), "tools"),
        ("notes.worker", worker("toolsets:", "schema_out: {type: string}\ntoolsets:"), "schema"),
        ("notes.worker", worker("toolsets:", "model_settings: {temperature: 0.5}\ntoolsets:"), "settings"),
        ("notes.test.yaml", cases("Notes for 2.0", "Notes for 3.0"), "input"),
        ("notes.test.yaml", cases("Index over ingredients", "Index over recipes"), "the result of read_file"),
    ] {
        let sandbox = recorded();
        sandbox.file(file, &text);
        let ended = test(&sandbox, &[]);
        assert_eq!(ended.code, Some(1), "{changed}: {ended:?}");
        let line = ended.stdout.lines().next().unwrap();
        assert!(line.starts_with("stale") && line.contains(changed), "{changed}: {ended:?}");
        assert!(ended.stderr.contains("llm-do test notes.worker --record"), "{ended:?}");
        let before = fs::read_to_string(sandbox.path().join(RECORD)).unwrap();
        assert!(!before.is_empty(), "a replay renews nothing");
    }
}

#[test]
fn a_stale_record_is_renewed_and_the_difference_is_shown() {
    let sandbox = recorded();
    sandbox.file("notes.worker", &NOTES.replace("Write release", "Write short release"));
    sandbox.file("script.yaml", &SCRIPT.replace("search: users", "search: cooks"));
    let ended = test(&sandbox, &["--record", "-m", "scripted:script.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("- notes/t0/m2  search: users"), "{ended:?}");
    assert!(ended.stdout.contains("+ notes/t0/m2  search: cooks"), "{ended:?}");
    assert_eq!(test(&sandbox, &[]).code, Some(0));
}

#[test]
fn each_expectation_that_is_not_met_is_told() {
    let sandbox = recorded();
    let expect = CASES
        .replace("contains: search,", "contains: finding,")
        .replace("approve: [write_file]", "approve: none")
        .replace("asks: [ write_file ]", "asks: [ edit_file ]");
    sandbox.file("notes.test.yaml", &expect);
    let ended = test(&sandbox, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    // The call was refused, which the model was not told when the record was made.
    assert!(ended.stdout.starts_with("stale"), "{ended:?}");
    let expect = CASES.replace("contains: search,", "contains: finding,").replace("requests: 3", "requests: 2");
    sandbox.file("notes.test.yaml", &expect.replace("never: [ shell ]", "never: [ read_file ]"));
    let ended = test(&sandbox, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for words in [
        "FAILED     notes   finds what users notice",
        "output: expected contains `finding`",
        "never: expected no call of read_file",
        "max: expected 2 requests",
        "0 passed, 1 failed",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn all_mistakes_of_a_file_with_cases_are_told_at_once_with_their_places() {
    let sandbox = project();
    let wrong = "agent: note
cases:
  - name: one
    imput: x
    expect:
      calls: [ read_fil ]
      output: { matches: '(' }
  - name: One
    files: { ../x: y }
    approve: always
";
    sandbox.file("notes.test.yaml", wrong);
    for command in ["test", "check"] {
        let ended = sandbox.run(&[command, "notes.worker"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let mut told =
            vec!["notes.test.yaml:1:8", "did you mean `notes`?", "unknown key `imput`", "did you mean `input`?"];
        told.extend(["is no pattern", "leads out of the scratch project", "its record would have the name"]);
        for words in told {
            assert!(ended.stderr.contains(words), "{command}: {words}: {}", ended.stderr);
        }
    }
    sandbox.file("notes.test.yaml", &CASES.replace("read_file: {", "read_fil: {"));
    let ended = sandbox.run(&["test", "notes.worker"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("there is no tool `read_fil`"), "{ended:?}");
}

#[test]
fn check_says_who_has_no_tests() {
    let sandbox = recorded();
    sandbox.file("other.worker", "---\nname: other\nentry: true\n---\nx\n");
    let ended = sandbox.run(&["check", ".", "-m", "scripted:script.yaml"]);
    assert!(ended.stdout.contains("tests    1 case; no tests: other\n"), "{ended:?}");
}

#[test]
fn programs_read_json_and_junit() {
    let sandbox = recorded();
    let ended = test(&sandbox, &["--json", "--junit", "out.xml"]);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&told["cases"][0]["verdict"], &told["cases"][0]["requests"]), (&"ok".into(), &3.into()));
    let xml = fs::read_to_string(sandbox.path().join("out.xml")).unwrap();
    assert!(xml.contains("<testcase classname=\"notes\" name=\"finds what users notice\""), "{xml}");
}

#[test]
fn only_cases_that_are_meant_are_run() {
    let sandbox = recorded();
    assert!(test(&sandbox, &["users"]).stdout.contains("1 passed"));
    let ended = test(&sandbox, &["cooks"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("no case of notes.worker has `cooks` in its name"), "{ended:?}");
    let empty = Sandbox::new();
    empty.file("notes.worker", NOTES);
    assert!(test(&empty, &[]).stderr.contains("notes.worker has no cases"));
}

#[test]
fn recorded_tools_answer_and_touch_nothing() {
    let sandbox = recorded();
    let cases = CASES.replace("    input:", "    tools: recorded\n    input:");
    let cases = cases.replace("files: { changes/101.md: \"Index over ingredients\" }", "files: {}");
    let cases = cases.replace("      files: { drafts/notes.md: { contains: ingredients } }\n", "");
    sandbox.file("notes.test.yaml", &cases);
    let ended = test(&sandbox, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_judge_answers_from_the_record_too() {
    let sandbox = project();
    let critic = "---\nname: critic\nschema_in: {type: object}\n---\nJudge.\n";
    let script = format!(
        "- {{ agent: critic, say: '{{\"score\": 0.7, \"why\": \"dry\"}}' }}\n{}",
        SCRIPT.replace("- { round", "- { agent: notes, round").replace("- say", "- agent: notes\n  say")
    );
    let judged = |at_least: &str| {
        format!("{CASES}    judge: {{ agent: critic, question: \"Is it for users?\", at_least: {at_least} }}\n")
    };
    sandbox.file("critic.worker", critic).file("script.yaml", &script).file("notes.test.yaml", &judged("0.6"));
    let manifest = r#"{"version": 1, "entry": {"agent": "notes"}, "worker_files": ["notes.worker", "critic.worker"]}"#;
    sandbox.file("project.json", manifest);
    let ended = sandbox.run(&["test", ".", "--record", "-m", "all=scripted:script.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(fs::read_to_string(sandbox.path().join(RECORD)).unwrap().contains("@judge/critic/t0/m0"));
    assert_eq!(sandbox.run(&["test"]).code, Some(0));
    sandbox.file("notes.test.yaml", &judged("0.8"));
    let ended = sandbox.run(&["test"]);
    assert!(
        ended.stdout.contains("judge: expected a score of at least 0.8") && ended.stdout.contains("0.7 (dry)"),
        "{ended:?}"
    );
}

/// `bench/endurance.sh` repeats it a thousand times.
#[test]
fn repeats_are_all_the_same() {
    let repeats = std::env::var("LLM_DO_TEST_REPEATS").ok().and_then(|count| count.parse().ok()).unwrap_or(5);
    let sandbox = recorded();
    let first = test(&sandbox, &["--json"]);
    let flaky = (1..repeats).filter(|_| test(&sandbox, &["--json"]).code != first.code).count();
    println!("{flaky} of {repeats} repeats were flaky");
    assert_eq!((first.code, flaky), (Some(0), 0));
}

/// The scratch project lies elsewhere: what is named where the user is stays where it is.
#[test]
fn an_interpreter_is_named_from_where_the_user_is() {
    let sandbox = Sandbox::new();
    sandbox
        .file("p/kit.py", "def count(text: str) -> int:\n    return len(text.split())\nTOOLS = [count]\n")
        .file("p/main.worker", "---\nname: main\ntools: [count]\napproval: { count: allow }\n---\nx\n")
        .file(
            "p/project.json",
            r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "python_files": ["kit.py"]}"#,
        )
        .file("p/main.test.yaml", "cases:\n  - name: counts\n    input: hi\n    expect: { output: { contains: \"3\" } }\n")
        .file("script.yaml", "- { round: 1, call: { count: { text: a b c } } }\n- say: \"{{ result }}\"\n")
        .file("bin/python", "#!/bin/sh\nexec python3 \"$@\"\n");
    let program = sandbox.path().join("bin/python");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for mode in [&["--record", "-m", "scripted:script.yaml"][..], &[]] {
        for python in ["bin/python", "./bin/python", "python3"] {
            let ended = sandbox.run(&[&["test", "p", "--trust", "--python", python], mode].concat());
            assert_eq!(ended.code, Some(0), "{python} {mode:?}: {ended:?}");
        }
    }
}
