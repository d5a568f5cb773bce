//! Questions of suspended runs.

use std::fs;

use crate::support::Ended;
use crate::{RUN, check_refused, inbox, questions, short, state, store, suspend, writer};

#[test]
fn a_question_is_listed_shown_and_approved_and_its_run_goes_on() {
    let sandbox = writer(&["a.txt"]);
    let empty = inbox(&sandbox, &[]);
    assert_eq!((empty.code, empty.stdout.as_str(), empty.stderr.as_str()), (Some(0), "", "no question is open\n"));
    let run = suspend(&sandbox);
    let open = questions(&sandbox);
    let id = short(&open[0]);
    assert_eq!((open.len(), &open[0]["tool"], &open[0]["path"][0]), (1, &"write_file".into(), &"main".into()));
    let project = sandbox.path().file_name().unwrap().to_str().unwrap();
    let table = inbox(&sandbox, &[]).stdout;
    let [heading, line] = table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
    assert_eq!(heading, "QUESTION      RUN               ASKED       PROJECT       CALL");
    assert!(line.starts_with(&format!("{id}  {run}  ")) && line.contains(" s ago "), "{line}");
    assert!(line.contains(project) && line.ends_with("main › write_file") && line.chars().count() <= 80, "{line}");
    let shown = inbox(&sandbox, &["show", id]).stdout;
    let expected = format!("approval · main › write_file · {run}/{id}\ncreates a.txt: 1 line added\n   1 + new\n");
    assert_eq!(shown, expected);
    let Ended { code, stdout, stderr } = inbox(&sandbox, &["approve", id, "--go"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "wrote 4 characters to a.txt\n"), "{stderr}");
    let said = format!("{expected}approved: {run}/{id}\n").replace(&run, "RUN");
    assert!(stderr.starts_with(&said), "{stderr}");
    assert_eq!(fs::read_to_string(sandbox.path().join("a.txt")).unwrap(), "new\n");
    assert!(questions(&sandbox).is_empty());
    check_refused(&sandbox, &["refuse", id], "was answered already, by bob, ", "the first answer counts");
}

#[test]
fn a_refusal_and_its_reason_reach_the_model_when_the_run_goes_on() {
    let sandbox = writer(&["a.txt"]);
    let run = suspend(&sandbox);
    let id = short(&questions(&sandbox)[0]).to_owned();
    let refused = inbox(&sandbox, &["refuse", &format!("{}/{id}", &run[..12]), "--reason", "use the other one"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(0), ""), "{refused:?}");
    let hint = format!("refused: RUN/{id}\n`llm-do resume RUN` goes on with the run\n");
    assert!(refused.stderr.ends_with(&hint), "{}", refused.stderr);
    let late = sandbox.run(&["resume", &run, "--approve", &id]);
    assert_eq!(late.code, Some(2), "{late:?}");
    assert!(late.stderr.contains(&format!("`{id}` was answered already, by bob")), "{}", late.stderr);
    let resumed = sandbox.run(&["resume", &run]);
    assert_eq!((resumed.code, sandbox.path().join("a.txt").exists()), (Some(0), false), "{resumed:?}");
    assert!(resumed.stdout.contains("use the other one"), "{}", resumed.stdout);
}

#[test]
fn answers_come_in_any_order_and_the_rest_stays_open() {
    let sandbox = writer(&["a.txt", "b.txt", "c.txt"]);
    let run = suspend(&sandbox);
    let ids: Vec<String> = questions(&sandbox).iter().map(|open| short(open).to_owned()).collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(inbox(&sandbox, &["approve", &ids[2], &ids[0]]).code, Some(0));
    assert_eq!(questions(&sandbox).len(), 1);
    let resumed = sandbox.run(&["resume", &run]);
    assert_eq!(resumed.code, Some(4), "{resumed:?}");
    assert!(!sandbox.path().join("a.txt").exists(), "nothing of the reply runs before all are answered");
    assert_eq!(short(&questions(&sandbox)[0]), ids[1]);
    let ended = inbox(&sandbox, &["refuse", &ids[1], "--go"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let there = ["a.txt", "b.txt", "c.txt"].map(|file| sandbox.path().join(file).exists());
    assert_eq!(there, [true, false, true]);
}

#[test]
fn two_runs_that_wait_at_the_same_place_have_different_questions() {
    let sandbox = writer(&["a.txt"]);
    let runs = [suspend(&sandbox), suspend(&sandbox)];
    let open = questions(&sandbox);
    assert_eq!(open.len(), 2);
    assert_ne!(open[0]["digest"], open[1]["digest"]);
    assert_eq!(open.iter().map(|open| open["run"].as_str().unwrap()).collect::<Vec<_>>(), runs);
    let of_first = short(&open[0]);
    check_refused(&sandbox, &["approve", &format!("{}/{of_first}", runs[1])], "is open", "`llm-do inbox` lists");
    check_refused(&sandbox, &["approve", of_first, short(&open[1]), "--go"], "are of several", "llm-do resume");
    assert_eq!(inbox(&sandbox, &["approve", of_first]).code, Some(0));
    let left: Vec<String> = questions(&sandbox).iter().map(|open| open["run"].as_str().unwrap().to_owned()).collect();
    assert_eq!(left, runs[1..]);
}

#[test]
fn what_names_no_open_question_is_refused_and_changes_nothing() {
    let sandbox = writer(&["a.txt"]);
    let run = suspend(&sandbox);
    let id = short(&questions(&sandbox)[0]).to_owned();
    let none = "0123456789ab";
    for (word, fact, hint) in [
        (none, "no question with the id `0123456789ab` is open", "`llm-do inbox` lists"),
        (&id[..11], "is no id of a question", "12 digits"),
        ("", "is no id of a question", "12 digits"),
        ("../../etc/x", "there is no run", "`llm-do runs` lists"),
        ("zzzzzzzzzzzz", "is no id of a question", "12 digits"),
        ("a\u{1b}[2Jbcdefghijk", "a\\u{1b}[2Jb", "12 digits"),
        (&format!("{run}/{none}"), "is open", "`llm-do inbox` lists"),
        (&format!("06aaaaaaaa/{id}"), "there is no run `06aaaaaaaa`", "`llm-do runs` lists"),
        (&format!("06/{id}"), "too short", "`llm-do runs` lists"),
    ] {
        check_refused(&sandbox, &["approve", word], fact, hint);
        check_refused(&sandbox, &["show", word], fact, hint);
    }
    check_refused(&sandbox, &["approve", &id, none], "no question with the id", "lists");
    check_refused(
        &sandbox,
        &["approve", &id, &id, "--edit"],
        "`--edit` changes the arguments of one call",
        "one by one",
    );
    let usage = inbox(&sandbox, &["approve"]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
    assert_eq!(questions(&sandbox).len(), 1);
}

#[test]
fn a_wrong_answer_file_is_set_aside_and_the_right_one_counts() {
    let sandbox = writer(&["a.txt"]);
    let run = suspend(&sandbox);
    let open = questions(&sandbox);
    let answers = state(&sandbox).join("runs").join(&run).join("answers");
    fs::create_dir_all(&answers).unwrap();
    let place = answers.join(format!("{}.json", open[0]["digest"].as_str().unwrap()));
    let forged = "{\"answer\":\"approve\",\"at\":1,\"mac\":\"00000000000000000000000000000000\"}\n";
    fs::write(&place, forged).unwrap();
    assert_eq!(questions(&sandbox).len(), 1, "it stays open");
    let resumed = sandbox.run(&["resume", &run]);
    assert_eq!((resumed.code, sandbox.path().join("a.txt").exists()), (Some(4), false), "{resumed:?}");
    let refused = inbox(&sandbox, &["refuse", short(&open[0]), "--go"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("was set aside: ") && refused.stderr.contains(".json.bad-1"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(place.with_extension("json.bad-1")).unwrap(), forged);
    assert!(!sandbox.path().join("a.txt").exists());
}

#[test]
fn a_list_that_is_missing_or_another_ones_hides_no_question() {
    let sandbox = writer(&["a.txt"]);
    suspend(&sandbox);
    let index = store(&sandbox).layout().runs().join("index");
    for content in [None, Some(""), Some("{\"index\":99}\n"), Some("\u{0}\u{0}")] {
        match content {
            None => fs::remove_file(&index).unwrap(),
            Some(content) => fs::write(&index, content).unwrap(),
        }
        assert_eq!(questions(&sandbox).len(), 1, "{content:?}");
    }
}

#[test]
fn programs_are_told_of_every_question_also_if_nobody_can_be_asked() {
    let sandbox = writer(&["a.txt", "b.txt"]);
    let told = |flags: &[&str]| {
        let ended = sandbox.run(&[&RUN[..], &["--output-format", "stream-json"], flags].concat());
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let events = ended.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let mut asked: Vec<String> =
            events.filter(|event| event["type"] == "approval_asked").map(|event| event["id"].to_string()).collect();
        asked.sort();
        asked
    };
    let asked = told(&[]);
    let mut open: Vec<String> = questions(&sandbox).iter().map(|open| open["digest"].to_string()).collect();
    open.sort();
    assert_eq!(asked, open);
    assert_eq!(told(&["--ephemeral"]), Vec::<String>::new(), "a question of a run that is gone cannot be answered");
}
