//! Limits hold over all items, and say when to end early.

use fake_llm::{FakeReply, FakeScript, FakeUsage, InjectedFault, On, SeenRequest};

use super::{Desk, WORKER, lines, said};

pub fn items(count: usize) -> String {
    (1..=count).map(|number| format!("item {number}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn a_limit_holds_over_all_items_and_a_higher_one_goes_on() {
    let desk = Desk::new();
    desk.sandbox.file("items.txt", &items(20));
    let ended =
        desk.run(&["map", "triage", "--over", "items.txt", "--max-requests", "6", "-o", "out.jsonl", "-j", "4"]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("6 of 20 items answered · 14 not begun or not finished\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("with a higher `--max-requests`"), "{}", ended.stderr);
    assert_eq!((lines(&desk.read("out.jsonl")).len(), desk.asked().len()), (6, 6));
    let again = desk.run(&["resume", &desk.id()]);
    assert_eq!((again.code, desk.asked().len()), (Some(5), 6), "what was spent counts: {}", again.stderr);
    let ended = desk.run(&["resume", &desk.id(), "--max-requests", "20"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(desk.asked().values().all(|count| *count == 1) && desk.asked().len() == 20);
    assert_eq!(lines(&desk.read("out.jsonl")).len(), 20);
}

#[test]
fn money_is_one_ledger_for_all_items() {
    let worker =
        "---\nname: triage\nmodel: anthropic:claude-haiku-4-5\nmodel_settings: { max_tokens: 1024 }\n---\nSort.\n";
    let desk = Desk::of(worker, |seen: &SeenRequest| {
        let usage = FakeUsage::new(10, 1000);
        FakeReply::text(&said(seen)).with_usage(usage)
    });
    desk.sandbox.file("items.txt", &items(40));
    // About $0.005 each.
    let ended =
        desk.run(&["map", "triage", "--over", "items.txt", "--max-cost-usd", "0.05", "-j", "16", "-o", "out.jsonl"]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    let listed = lines(&desk.sandbox.run_raw(&["runs", "--json"]).stdout);
    let cost = listed[0]["cost"].as_f64().unwrap();
    assert!(cost <= 0.05 && cost > 0.03, "{listed:?}");
    let told = desk.sandbox.run_raw(&["costs", "--json"]).stdout;
    assert!(told.contains(&format!("{cost}")), "{told}");
}

#[test]
fn it_ends_early_after_so_many_failures() {
    let reply = |seen: &SeenRequest| {
        if said(seen).ends_with('7') { FakeReply::refusal("I would rather not") } else { FakeReply::text("ok") }
    };
    for (flag, most) in [(&["--fail-fast"][..], 1), (&["--max-failures", "2"][..], 2)] {
        let desk = Desk::of(WORKER, reply);
        desk.sandbox.file("items.txt", &items(60));
        let arguments = [&["map", "triage", "--over", "items.txt", "-j", "1", "-o", "out.jsonl"], flag].concat();
        let ended = desk.run(&arguments);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert_eq!(lines(&desk.read("out.errors.jsonl")).len(), most);
        assert_eq!(desk.asked().len(), if most == 1 { 7 } else { 17 });
    }
}

/// What failed stays so, and does not end each process that goes on at the same place.
#[test]
fn what_goes_on_comes_past_the_failures_that_are_known() {
    let reply = |seen: &SeenRequest| {
        if said(seen).ends_with('3') { FakeReply::refusal("I would rather not") } else { FakeReply::text("ok") }
    };
    let desk = Desk::of(WORKER, reply);
    desk.sandbox.file("items.txt", &items(15));
    let answered = |desk: &Desk| lines(&desk.read("out.jsonl")).len();
    let begun = desk.run(&["map", "triage", "--over", "items.txt", "-j", "1", "-o", "out.jsonl", "--fail-fast"]);
    assert_eq!((begun.code, answered(&desk)), (Some(1), 2), "{}", begun.stderr);
    let next = desk.run(&["resume", &desk.id()]);
    assert_eq!((next.code, answered(&desk)), (Some(1), 11), "{}", next.stderr);
    let last = desk.run(&["resume", &desk.id()]);
    assert_eq!((last.code, answered(&desk)), (Some(1), 13), "{}", last.stderr);
    assert_eq!(lines(&desk.read("out.errors.jsonl")).len(), 2);
    assert!(desk.asked().values().all(|count| *count == 1) && desk.asked().len() == 15, "{:?}", desk.asked());
}

#[test]
fn a_key_that_is_refused_ends_all() {
    let script = FakeScript::new().otherwise(FakeReply::text("no")).fault(On::Every, InjectedFault::status(401));
    let desk = Desk::with(WORKER, script);
    desk.sandbox.file("items.txt", &items(50));
    let ended = desk.run(&["map", "triage", "--over", "items.txt", "-j", "2"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(desk.asked().len() <= 4, "{:?}", desk.asked());
}
