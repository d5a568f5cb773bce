//! Runs on a real engine: its server, workers that are killed, callers that have the key and callers that have not. What is done is
//! counted outside: each execution of a command makes a file of its own.

mod house;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use parts::is_wanted;

use house::{House, Project};

const ANSWER: &str = "(scripted) We refund the 34.50 for order 1042. The money is with you in three days.\n";

#[test]
fn a_run_waits_without_a_process_and_goes_on_where_it_is_answered() {
    if !is_wanted("engine") {
        return;
    }
    let house = House::new(Project::Refund);
    let mut worker = house.worker(0);
    let asked = house.run(&["refund", "-p", "The lamp of order 1042 arrived broken"]);
    assert_eq!(asked.code, 4, "{asked:?}");
    assert!(asked.stderr.contains("support › cashier › write_file"), "{asked:?}");
    let question = asked.after("waiting for approval (", ")");
    let run = asked.after("the run ", " waits");
    // Nobody runs it, and nobody is there who could.
    house::until("it sleeps", || house.state(&run) == "suspended");
    worker.kill();
    assert_eq!(house.files("refund/outbox"), Vec::<String>::new());
    let mut worker = house.worker(1);
    let listed = house.run(&["runs", "--all"]);
    assert!(listed.stdout.contains(&run) && listed.stdout.contains("waits: write_file"), "{listed:?}");
    let inbox = house.run(&["inbox"]);
    assert!(inbox.stdout.contains(&question), "{inbox:?}");
    let approved = house.run(&["inbox", "approve", &question]);
    assert_eq!(approved.code, 0, "{approved:?}");
    let followed = house.run(&["runs", "follow", &run]);
    assert_eq!(followed.code, 0, "{followed:?}");
    assert!(followed.stdout.contains(ANSWER.trim()), "{followed:?}");
    assert_eq!(house.files("refund/outbox"), ["1042.json"]);
    let shown = house.run(&["runs", "show", &run, "--json"]);
    assert!(shown.stdout.contains("\"state\":\"done\""), "{shown:?}");
    let late = house.run(&["inbox", "approve", &question]);
    assert_eq!(late.code, 2, "{late:?}");
    worker.end();
}

#[test]
fn whoever_has_not_the_key_starts_nothing_and_answers_nothing() {
    if !is_wanted("engine") {
        return;
    }
    let house = House::new(Project::Refund);
    let mut worker = house.worker(0);
    let said = "The lamp of order 1042 arrived broken";
    let other = "0c".repeat(32);
    let refused = house.run_as(&other, &["refund", "-p", said]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert_eq!(house.run_as("", &["refund", "-p", said]).code, 3);
    let asked = house.run(&["refund", "-p", said]);
    let (question, run) = (asked.after("waiting for approval (", ")"), asked.after("the run ", " waits"));
    assert_eq!(house.run_as(&other, &["inbox", "approve", &question]).code, 3);
    // Straight to the engine, as anybody on the machine can.
    let forged =
        r#"{"word":"{\"answer\":{\"question\":\"x\",\"file\":\"{}\"}}","mac":"00000000000000000000000000000000"}"#;
    assert_eq!(house.post(&format!("refund/{run}/say"), forged), 403);
    assert_eq!(house.post(&format!("refund/{run}/cancel"), forged), 403);
    assert_eq!(house.post("refund/0000000000000000/run", forged), 403);
    // Straight to the worker, with a journal of his own.
    for path in ["discover", "invoke/refund/run", "invoke/refund/say", "invoke/refund/lines"] {
        assert_eq!(house.post_to_worker(path), 401, "{path}");
    }
    assert_eq!(house.files("refund/outbox"), Vec::<String>::new());
    assert!(house.run(&["runs", "show", &run]).stdout.contains("waits"));
    worker.end();
}

#[test]
fn what_is_wrong_is_said_with_its_exit_code() {
    if !is_wanted("engine") {
        return;
    }
    let house = House::new(Project::Effects);
    let run = |args: &[&str]| house.run(args);
    let unserved = run(&["effects", "-p", "r1"]);
    assert_eq!(unserved.code, 2, "{unserved:?}");
    assert!(unserved.stderr.contains("no worker has registered"), "{unserved:?}");
    let nobody = house.run_on("restate://127.0.0.1:9", &["effects", "-p", "r1"]);
    assert_eq!(nobody.code, 3, "{nobody:?}");
    assert_eq!(house.run_on("http://x", &["runs"]).code, 2);
    let admin = house.run_on(&house.admin(), &["runs"]);
    assert_eq!(admin.code, 3, "{admin:?}");
    assert!(admin.stderr.contains("is no engine's ingress") && admin.stderr.contains("port 8080"), "{admin:?}");
    let mut worker = house.worker(0);
    assert_eq!(run(&["runs", "show", "000000"]).code, 2);
    fs::write(house.place().join("effects/note.txt"), "changed").unwrap();
    fs::write(house.place().join("effects/main.worker"), house::EFFECTS_WORKER.replace("Do", "Do now")).unwrap();
    let other = run(&["effects", "-p", "r1"]);
    assert_eq!(other.code, 2, "{other:?}");
    assert!(other.stderr.contains("another one than `effects` as it is deployed"), "{other:?}");
    worker.end();
}

#[test]
fn a_run_is_cancelled_from_another_process() {
    if !is_wanted("engine") {
        return;
    }
    let house = House::new(Project::Refund);
    let mut worker = house.worker(0);
    let asked = house.run(&["refund", "-p", "The lamp of order 1042 arrived broken"]);
    let run = asked.after("the run ", " waits");
    let cancelled = house.run(&["runs", "cancel", &run]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    house::until("it is over", || house.state(&run) == "completed");
    let followed = house.run(&["runs", "follow", &run]);
    assert_eq!(followed.code, 130, "{followed:?}");
    worker.end();
}

/// Each run has nine effects that must not run twice, all at once.
#[test]
fn nothing_is_lost_and_nothing_doubled_whatever_is_killed() {
    if !is_wanted("engine") {
        return;
    }
    let number = |name: &str, usual: usize| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(usual);
    let (runs, kills) = (number("LLM_DO_ENGINE_RUNS", 60), number("LLM_DO_ENGINE_KILLS", 40));
    let mut house = House::new(Project::Effects);
    let mut workers: Vec<_> = (0..3).map(|number| house.worker(number)).collect();
    let ids = house.start(runs);
    let mut of_server = 0;
    for kill in 0..kills {
        // Somewhere in the middle of what goes on.
        house::pause(Duration::from_millis(40 + (u64::try_from(kill).unwrap() * 97) % 260));
        if kill % 10 == 9 {
            house.kill_server();
            of_server += 1;
        } else {
            let which = kill % workers.len();
            if kill % 10 == 4 {
                workers[which].stop();
                house::pause(Duration::from_millis(2500));
                workers[which].go_on();
            } else {
                workers[which].kill();
                workers[which] = house.worker(which);
            }
        }
    }
    for run in &ids {
        let followed = house.run(&["runs", "follow", run]);
        assert_eq!(followed.code, 0, "{run}: {followed:?}");
    }
    let mut executions: BTreeMap<String, usize> = BTreeMap::new();
    for file in house.files("done") {
        let effect = file.split('.').next().unwrap().to_owned();
        *executions.entry(effect).or_default() += 1;
    }
    let doubled: Vec<_> = executions.iter().filter(|(_, count)| **count > 1).collect();
    assert!(doubled.is_empty(), "effects that ran twice: {doubled:?}");
    let interrupted = ids.iter().map(|run| house.interrupted(run)).sum::<usize>();
    assert!(executions.len() + interrupted >= runs * 9, "{} ran, {interrupted} were interrupted", executions.len());
    println!(
        "{runs} runs, {} effects, {interrupted} interrupted, {} kills of workers, {of_server} of the server",
        executions.len(),
        kills - of_server
    );
    workers.iter_mut().for_each(house::Worker::end);
}
