//! What is typed while a turn goes on: seen below all else, queued with Enter, said at once with Tab, kept as the next draft.

use fake_llm::{At, FakeCall, FakeLlm, FakeReply, FakeScript, InjectedFault, On, Role, SeenMessage, StallGate};
use serde_json::json;

use crate::support::Sandbox;
use crate::terminal::Terminal;
use crate::{command, sandbox};

const ARGUMENTS: [&str; 4] = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];
const HINT: &str = "Enter: after this turn · Tab: now · Ctrl-C: stop";

/// Answers `1: said`, and stalls in the middle of the answers to these requests.
fn echo(stalls: &[(usize, &StallGate)]) -> FakeLlm {
    let script = FakeScript::new().accept_foreign_history().answer(|seen| {
        let round = seen.messages.iter().filter(|message| message.role == Role::Assistant).count() + 1;
        Some(FakeReply::text(&format!("Number {round} answers: {}.", seen.last_user_text())).in_deltas(4))
    });
    let stall = |gate: &StallGate| InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    FakeLlm::start(
        stalls.iter().fold(script, |script, (request, gate)| script.fault(On::Request(*request), stall(gate))),
    )
}

/// Looks for files first, and stalls in the middle of the request with this number.
fn looking(gate: &StallGate, request: usize) -> FakeLlm {
    let look = || FakeReply::calls([FakeCall::new("list_files", json!({"pattern": "*"}))]);
    let script = FakeScript::new()
        .answer(move |seen| seen.last_result().is_none().then(look))
        .answer(|seen| Some(FakeReply::text(&format!("Looked, and heard {}.", seen.last_user_text())).in_deltas(4)))
        .fault(On::Request(request), InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() });
    FakeLlm::start(script)
}

fn chat(fake: &FakeLlm) -> (Sandbox, Terminal) {
    let sandbox = sandbox();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd_ro]\n---\nx\n");
    let chat = Terminal::start(command(&sandbox, fake, &ARGUMENTS));
    chat.expect("> ");
    (sandbox, chat)
}

/// What the user said in the last request, in order.
fn said(fake: &FakeLlm) -> Vec<String> {
    let requests = fake.requests();
    let seen = requests.last().unwrap().seen.as_ref().unwrap();
    seen.messages.iter().filter(|message| message.role == Role::User).map(SeenMessage::text).collect()
}

#[test]
fn lines_are_queued_and_an_unfinished_one_is_the_next_draft() {
    // Key by key, and as a paste without brackets.
    for keys in [&["second", "\r", "third", "\r", "four"][..], &["second\rthird\rfour"]] {
        let gate = StallGate::new();
        let fake = echo(&[(1, &gate)]);
        let (_sandbox, chat) = chat(&fake);
        chat.press("first\r").expect("Number 1");
        for keys in keys {
            chat.press(keys);
        }
        chat.expect("> second · after this turn\n> third · after this turn\n> four").expect(HINT);
        gate.release();
        chat.expect("> second\nNumber 2 answers: second.\n> third\nNumber 3 answers: third.\n> four");
        chat.press("th\r").expect("Number 4 answers: fourth.\n>").press("\u{4}");
        let left = chat.left();
        assert_eq!(left.code, Some(0), "{}", left.screen);
        assert!(!left.screen.contains("after this turn"), "nothing is left behind: {}", left.screen);
        assert_eq!(said(&fake), ["first", "second", "third", "fourth"]);
        assert_eq!(fake.violations(), []);
    }
}

#[test]
fn what_is_said_with_tab_is_heard_before_the_next_request() {
    let gate = StallGate::new();
    let fake = looking(&gate, 1);
    let (sandbox, chat) = chat(&fake);
    chat.press("look\r");
    gate.wait_until_reached(1);
    chat.press("be brief\t").expect("> be brief · now").press("and the").expect("> and the ");
    gate.release();
    chat.expect("\n> be brief\nLooked, and heard be brief.\n> and the").press("\u{15}\u{4}");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let requests = fake.requests();
    assert_eq!((requests.len(), said(&fake).last().unwrap().as_str()), (2, "be brief"));
    assert_eq!(fake.violations(), []);
    let again = Terminal::start(command(&sandbox, &fake, &["chat", "main.worker", "--continue"]));
    again.expect("heard be brief.\n>").press("more\r").expect("heard more.\n>").press("\u{4}");
    assert_eq!(again.left().code, Some(0));
    assert!(said(&fake).join("|").contains("be brief"), "{:?}", said(&fake));
}

#[test]
fn what_comes_too_late_for_a_turn_is_the_next_one_before_all_that_waits() {
    let gate = StallGate::new();
    let fake = echo(&[(1, &gate)]);
    let (_sandbox, chat) = chat(&fake);
    chat.press("first\r").expect("Number 1").press("later\r").press("sooner\t").expect("> sooner · now");
    gate.release();
    chat.expect("> sooner\nNumber 2 answers: sooner.\n> later\nNumber 3 answers: later.\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
    assert_eq!(said(&fake), ["first", "sooner", "later"]);
}

#[test]
fn after_a_stop_nothing_is_said_by_itself() {
    let gate = StallGate::new();
    let fake = echo(&[(1, &gate)]);
    let (_sandbox, chat) = chat(&fake);
    chat.press("first\r").expect("Number 1").press("second\r").press("thi").expect("> thi ").press("\u{3}");
    gate.wait_until_left(1);
    chat.expect("stopped: kept; /undo forgets it\n> second\nthi").press("rd\r").expect("answers: ").press("\u{4}");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(!left.screen.contains("^C"), "{}", left.screen);
    assert!(said(&fake).last().unwrap().ends_with("second\nthird"), "{:?}", said(&fake));
}

#[test]
fn a_draft_stands_below_an_open_line_and_leaves_no_trace() {
    for (rows, columns) in [(24, 80), (40, 120), (10, 30)] {
        let gates: Vec<StallGate> = (0..4).map(|_| StallGate::new()).collect();
        let stalls: Vec<(usize, &StallGate)> = gates.iter().enumerate().map(|(turn, gate)| (turn + 1, gate)).collect();
        let fake = echo(&stalls);
        let sandbox = sandbox();
        let command = command(&sandbox, &fake, &ARGUMENTS);
        let chat = Terminal::start_sized(command, (rows, columns), crate::terminal::Elsewhere::default());
        chat.expect("> ");
        for (turn, gate) in (1..).zip(&gates) {
            chat.press(&format!("turn {turn}\r")).expect(&format!("Number {turn}"));
            chat.press("draft").expect("> draft").press("\u{15}x").expect("> x").press("\u{7f}");
            gate.release();
            chat.expect(&format!("Number {turn} answers: turn {turn}.\n>"));
        }
        chat.press("\u{4}");
        let left = chat.left();
        let lines: Vec<&str> = left.screen.lines().map(str::trim_end).collect();
        let shown = lines.join("\n");
        assert!(shown.contains("> turn 4\nNumber 4 answers: turn 4.\n>\n"), "{shown}");
        assert!(!shown.contains("draft") && !shown.contains("> x"), "{shown}");
    }
}

#[test]
fn a_turn_that_was_killed_has_heard_what_it_had_heard() {
    let (gate, second) = (StallGate::new(), StallGate::new());
    let look = || FakeReply::calls([FakeCall::new("list_files", json!({"pattern": "*"}))]);
    let script = FakeScript::new()
        .answer(move |seen| seen.last_result().is_none().then(look))
        .answer(|seen| Some(FakeReply::text(&format!("Looked, and heard {}.", seen.last_user_text())).in_deltas(4)))
        .fault(On::Request(1), InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() })
        .fault(On::Request(2), InjectedFault::Stall { at: At::Percent(60), gate: second.clone() });
    let fake = FakeLlm::start(script);
    let (sandbox, chat) = chat(&fake);
    chat.press("look\r");
    gate.wait_until_reached(1);
    chat.press("be brief\t").expect("> be brief · now").press("never sent\r").expect("never sent · after");
    gate.release();
    second.wait_until_reached(1);
    chat.kill();
    second.release();
    let again = Terminal::start(command(&sandbox, &fake, &["chat", "main.worker", "--continue"]));
    again.expect("Finish it first?").answer("y").expect("Looked, and heard be brief.\n>").press("\u{4}");
    let left = again.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert_eq!(said(&fake).iter().filter(|said| said.contains("be brief")).count(), 1, "{:?}", said(&fake));
    assert_eq!(fake.violations(), []);
}
