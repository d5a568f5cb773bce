//! Runs that begin with what another one has recorded.

use super::*;
use llm_do::journal::file::{JournalSettings, NewRun};
use llm_do::journal::fork::{ForkError, forked};
use llm_do::journal::record::{JournalContents, JournalEntry, RunIdentity, RunKind, StepProgress};

/// All that is recorded of a step but where in the file it stands.
#[derive(Debug, PartialEq)]
struct Recorded<'a> {
    kind: StepKind,
    request: &'a str,
    result: Option<&'a str>,
    at: u64,
    by: Option<&'a str>,
    parts: Option<&'a str>,
    sent: Option<u64>,
    judged: Option<&'a str>,
}

fn recorded(record: &JournalEntry) -> Recorded<'_> {
    let result = match &record.known {
        StepProgress::Done(result) => Some(result.get()),
        StepProgress::Started(_) | StepProgress::Asked(_) => None,
    };
    Recorded {
        kind: record.kind,
        request: &record.request,
        result,
        at: record.at,
        by: record.by.as_deref(),
        parts: record.parts.as_deref(),
        sent: record.sent,
        judged: record.judged.as_ref().map(RawJson::get),
    }
}

fn settings() -> JournalSettings {
    JournalSettings { key: Some(key()), ..JournalSettings::default() }
}

fn identity(id: &str) -> RunIdentity {
    RunIdentity { id: Some(id.to_owned()), kind: RunKind::Run, ..RunIdentity::default() }
}

fn copied(desk: &Desk, run: NewRun) -> JournalContents {
    let _ = std::fs::remove_file(desk.journal());
    drop(FileJournal::begin(&desk.journal(), run, settings()).unwrap());
    file::read(&desk.journal(), Some(&key())).unwrap()
}

#[tokio::test]
async fn a_fork_at_any_key_of_a_nested_parallel_run_has_the_records_before_it_and_does_the_rest() {
    let desk = Desk::new(TEAM_SCRIPT, TEAM);
    let run = NewRun::of(identity("old"), &"header");
    let engine = Arc::new(FileJournal::begin(&desk.journal(), run, settings()).unwrap());
    desk.run((engine, PriorSpending::default())).await.said();
    let all = desk.effects();
    let old = file::read(&desk.journal(), Some(&key())).unwrap();
    let keys: Vec<String> = old.records().map(|(key, _)| key.to_owned()).collect();
    assert!(keys.len() > 20, "{keys:?}");
    assert!(old.records().filter(|(_, record)| record.judged.is_some()).count() >= 10);
    for at in &keys {
        let fork = forked(&old, at, identity("new")).unwrap();
        let origin = fork.identity.forked.clone().unwrap();
        let reply = at.split('/').nth(2).and_then(|name| name.strip_prefix('m')).and_then(|number| number.parse().ok());
        let expected = reply.map_or("main/t0".to_owned(), |reply: u64| format!("main/t0/m{reply}"));
        assert_eq!((origin.run.as_str(), &origin.at), ("old", &expected), "a call is forked with its reply");
        let new = copied(&desk, fork);
        assert_eq!((new.identity.id.as_deref(), new.parts.len()), (Some("new"), old.parts.len()));
        let number = |key: &str| key.split('/').nth(2)?.strip_prefix('m')?.parse::<u64>().ok();
        let is_before = |key: &str| match (reply, number(key)) {
            (Some(reply), Some(request)) => request < reply,
            // A message that nothing was built on is made anew.
            (Some(reply), None) => key == "main/t0/input" && reply > 0,
            (None, _) => false,
        };
        let before: Vec<_> = old.records().filter(|(key, _)| is_before(key)).collect();
        assert_eq!(new.records().count(), before.len(), "at {at}");
        for ((key, new), (old_key, old)) in new.records().zip(before) {
            assert_eq!((key, recorded(new)), (old_key, recorded(old)));
        }
        let ran = desk.run(desk.resume()).await;
        assert_eq!((ran.requests, ran.said()), (9, "main 3".to_owned()), "at {at}");
        let again = desk.effects();
        assert!(again.len() <= all.len() && (reply != Some(0) || again == all), "at {at}: {again:?}");
    }
    let unknown = forked(&old, "main/t7", identity("new")).unwrap_err();
    assert_eq!(unknown, ForkError::Unknown("main/t7".to_owned()));
}

#[tokio::test]
async fn questions_are_not_taken_over_and_answers_count_where_they_were_given() {
    let script = "- {round: 1, call: {charge: {amount: 1}}}\n- {round: 2, call: {charge: {amount: 1}}}\n- say: done";
    let desk = Desk::new(script, &[("main", "tools: [charge]")]);
    let (approvals, _) = person(Answer::Once);
    desk.run_with(desk.project(), RuntimeConfig::new(approvals), desk.create()).await.said();
    desk.effects();
    let old = file::read(&desk.journal(), Some(&key())).unwrap();
    let new = copied(&desk, forked(&old, "main/t0/m1/c0/ask", identity("new")).unwrap());
    assert!(new.records().all(|(_, record)| record.kind != StepKind::Ask));
    let waits = desk.run(desk.resume()).await;
    let Err(RunError::Ended(Ending::NeedsApproval(pending))) = &waits.outcome else { panic!("it asks") };
    assert_eq!((pending.len(), desk.effects()), (1, Vec::new()), "the first one has its result");
}
