//! What is seen of a run on a terminal: the answer as it comes, the status line, short lines for calls.

use fake_llm::{At, FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, InjectedFault, On, StallGate};
use serde_json::json;

use crate::support::is_summary;
use crate::terminal::{Elsewhere, Terminal, comparable};
use crate::{command, run, sandbox};

const ANSWER: &str = "# Rain\n\nIt is **wet** and `cold`.\n\n```sh\necho **\n```\nBye\u{1b}[2J.";

fn usage() -> FakeUsage {
    FakeUsage::new(1200, 34)
}

#[test]
fn an_answer_streams_and_its_marks_become_style() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let reply = FakeReply::text(ANSWER).in_deltas(12).with_usage(usage());
    let fault = InjectedFault::Stall { at: At::Percent(50), gate: gate.clone() };
    let fake = FakeLlm::start(FakeScript::new().reply(reply).fault(On::Every, fault));
    let terminal = run(&sandbox, &fake, &[]);
    terminal.expect("Rain");
    gate.wait_until_reached(1);
    assert!(!terminal.screen().contains("Bye"), "it is seen before it is complete: {}", terminal.screen());
    gate.release();
    let left = terminal.left();
    assert_eq!(left.code, Some(0));
    let expected = "Rain\n\nIt is wet and cold.\n\n── sh\necho **\n──\nBye\\u{1b}[2J.\n\
                    0.0 s · 1 request · 1200 tokens in, 34 out · $0.0014 · RUN";
    assert_eq!(comparable(left.screen.trim_end()), expected);
    for styled in ["\u{1b}[1;4mRain\u{1b}[0m", "\u{1b}[1mwet\u{1b}[0m", "\u{1b}[36mcold\u{1b}[0m", "\necho **\r"] {
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
    terminal.expect(" main · anthropic:claude-haiku-4-5 · 0 s · 1200 in, 34 out · $0.0014");
    let screen = terminal.screen();
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines[..2], ["→ list_files *.worker", "  │ main.worker"], "{screen}");
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
fn an_answer_is_shown_as_its_source_where_the_configuration_says_so() {
    let sandbox = sandbox();
    sandbox.file(".config/llm-do/config.toml", "[terminal]\nmarkdown = \"plain\"\n");
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text(ANSWER).with_usage(usage())));
    let left = run(&sandbox, &fake, &[]).left();
    assert!(left.screen.starts_with("# Rain\n\nIt is **wet** and `cold`.\n\n```sh\n"), "{}", left.screen);
}

#[test]
fn long_lines_end_between_words_and_tables_are_columns_on_any_terminal() {
    let words = "The new crane was lifted into place on Tuesday and carries sixty tonnes of steel.";
    let answer = format!("- {words}\n\n| Name | Weight |\n|---|--:|\n| crane | 60 |\n\nDone.");
    for columns in [80, 120, 30] {
        let (sandbox, fake) =
            (sandbox(), FakeLlm::start(FakeScript::new().reply(FakeReply::text(&answer).in_deltas(9))));
        let run = command(&sandbox, &fake, &["main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"]);
        let left = Terminal::start_sized(run, (40, columns), Elsewhere::default()).left();
        let rows: Vec<&str> = left.screen.lines().collect();
        let table = rows.iter().position(|row| *row == "Name  │ Weight").unwrap_or_else(|| panic!("{}", left.screen));
        assert_eq!(rows[table + 1..table + 3], ["──────┼───────", "crane │     60"], "{}", left.screen);
        let item: Vec<&str> = rows[..table - 1].iter().map(|row| row.trim_start_matches(['•', ' '])).collect();
        assert_eq!(item.join(" "), words, "{}", left.screen);
        assert!(rows[1..table - 1].iter().all(|row| row.starts_with("  ")), "{}", left.screen);
    }
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

/// At 80 columns the status is as wide as the terminal. What ends the run leaves none of it, and no sign of the key.
#[test]
fn what_ends_a_run_leaves_neither_its_key_nor_half_a_status() {
    let name = "an_agent_with_a_long_name_that_fills_most_of_a_line";
    let (sandbox, gate) = (sandbox(), StallGate::new());
    sandbox.file("main.worker", &format!("---\nname: {name}\n---\nx\n"));
    let script = FakeScript::new().otherwise(FakeReply::text("Once"));
    let fake = FakeLlm::start(script.fault(On::Request(1), InjectedFault::StallBeforeHead(gate.clone())));
    let run = command(&sandbox, &fake, &["main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"]);
    let terminal = Terminal::start_sized(run, (24, 80), Elsewhere::default());
    gate.wait_until_reached(1);
    terminal.expect(name).press("typed\u{3}");
    gate.wait_until_left(1);
    let left = terminal.left();
    let shown = comparable(left.screen.trim_end());
    let expected = "0.0 s · 1 request cancelled · cost unknown · RUN\nerror: interrupted\n\
                    hint: `llm-do resume RUN` goes on where it stopped";
    assert_eq!((left.code, shown.replace("at least $0.0000", "cost unknown").as_str()), (Some(130), expected));
}

#[test]
fn a_long_silence_is_told_with_its_end_also_below_an_open_line() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let reply = FakeReply::text("Once upon a time there was").in_deltas(4);
    let fault = InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    let fake = FakeLlm::start(FakeScript::new().otherwise(reply).fault(On::Request(1), fault));
    let run = command(&sandbox, &fake, &["main.worker", "hi", "-m", "anthropic:claude-haiku-4-5"]);
    let terminal = Terminal::start(run);
    terminal.expect("Once").expect(" · nothing for 5 s, gives up at 60 s").expect("nothing for 6 s");
    assert_eq!(terminal.screen().lines().count(), 2, "{}", terminal.screen());
    gate.release();
    let left = terminal.left();
    assert!(left.screen.starts_with("Once upon a time there was\n"), "{}", left.screen);
    assert!(!left.screen.contains("nothing for"), "{}", left.screen);
}
