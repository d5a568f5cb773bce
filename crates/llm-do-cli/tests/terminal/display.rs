//! What is seen of a run on a terminal: the answer as it comes, the status line, short lines for calls.

use fake_llm::{At, FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, InjectedFault, On, StallGate};
use serde_json::json;

use crate::support::is_summary;
use crate::terminal::{Terminal, comparable};
use crate::{command, run, sandbox};

const ANSWER: &str = "# Rain\n\nIt is **wet** and `cold`.\n\n```sh\necho **\n```\nBye\u{1b}[2J.";

fn usage() -> FakeUsage {
    FakeUsage::new(1200, 34)
}

#[test]
fn an_answer_streams_in_light_markdown() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let reply = FakeReply::text(ANSWER).in_deltas(12).with_usage(usage());
    let fault = InjectedFault::Stall { at: At::Percent(50), gate: gate.clone() };
    let fake = FakeLlm::start(FakeScript::new().reply(reply).fault(On::Every, fault));
    let terminal = run(&sandbox, &fake, &[]);
    terminal.expect("# Rain");
    gate.wait_until_reached(1);
    assert!(!terminal.screen().contains("Bye"), "it is seen before it is complete: {}", terminal.screen());
    gate.release();
    let left = terminal.left();
    assert_eq!(left.code, Some(0));
    let expected = "# Rain\n\nIt is **wet** and `cold`.\n\n```sh\necho **\n```\nBye\\u{1b}[2J.\n\
                    0.0 s · 1 request · 1200 tokens in, 34 out · $0.0014 · RUN";
    assert_eq!(comparable(left.screen.trim_end()), expected);
    for styled in ["\u{1b}[1m# Rain\u{1b}[0m", "\u{1b}[1m**wet**\u{1b}[0m", "\u{1b}[36m`cold`\u{1b}[0m", "\necho **\r"]
    {
        assert!(left.written.contains(styled), "{styled:?} in {:?}", left.written);
    }
}

#[test]
fn a_status_line_is_there_while_one_waits_and_gone_afterwards() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd_ro]\n---\nx\n");
    let first = FakeReply::calls([FakeCall::new("list_files", json!({"pattern": "*.worker"}))]).with_usage(usage());
    let script = FakeScript::new().reply(first).reply(FakeReply::text("Two files.").with_usage(usage()));
    let fake = FakeLlm::start(script.fault(On::Request(2), InjectedFault::StallBeforeHead(gate.clone())));
    let terminal = run(&sandbox, &fake, &[]);
    gate.wait_until_reached(1);
    terminal.expect(" main · anthropic:claude-haiku-4-5 · 0 s · 1200 tokens in, 34 out · $0.0014");
    let screen = terminal.screen();
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines[..2], ["→ list_files {\"pattern\":\"*.worker\"}", "← list_files main.worker"], "{screen}");
    assert_eq!(lines.len(), 3, "one status line: {screen}");
    gate.release();
    let left = terminal.left();
    let lines: Vec<&str> = left.screen.trim_end().lines().collect();
    assert_eq!(lines[2], "Two files.", "{}", left.screen);
    assert!(lines.len() == 4 && is_summary(lines[3]), "{}", left.screen);
}

#[test]
fn without_colours_there_are_no_styles_and_on_a_dumb_terminal_no_control_codes_at_all() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let fake = FakeLlm::start(
        FakeScript::new()
            .otherwise(FakeReply::text(ANSWER))
            .fault(On::Request(1), InjectedFault::StallBeforeHead(gate.clone())),
    );
    let arguments = ["main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"];
    let mut colourless = command(&sandbox, &fake, &arguments);
    colourless.env("NO_COLOR", "1");
    let terminal = Terminal::start(colourless);
    terminal.expect(" main · anthropic:claude-haiku-4-5 · 0 s");
    gate.release();
    let left = terminal.left();
    assert!(!left.written.replace("\u{1b}[K", "").contains('\u{1b}'), "{:?}", left.written);
    let mut dumb = command(&sandbox, &fake, &arguments);
    dumb.env("TERM", "dumb");
    let left = Terminal::start(dumb).left();
    assert!(!left.written.contains('\u{1b}'), "{:?}", left.written);
    assert!(left.screen.starts_with("# Rain\n\nIt is **wet**"), "{}", left.screen);
}

#[test]
fn a_stream_of_json_is_not_mixed_with_a_status_line() {
    let sandbox = sandbox();
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Hi.")));
    let left = run(&sandbox, &fake, &["--json"]).left();
    assert!(!left.written.contains('\u{1b}') || !left.written.contains("\u{1b}[K"), "{:?}", left.written);
    assert_eq!(left.code, Some(0));
}

#[test]
fn quiet_is_the_answer_alone() {
    let sandbox = sandbox();
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Hi.")));
    let left = run(&sandbox, &fake, &["-q"]).left();
    assert_eq!((left.code, left.written.as_str()), (Some(0), "Hi.\r\n"));
}
