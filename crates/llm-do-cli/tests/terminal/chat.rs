//! Chats: typed at a terminal, and piped.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use fake_llm::{At, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use rustix::process::Signal;

use crate::session::Run;
use crate::support::{Ended, Sandbox, is_summary};
use crate::terminal::{Elsewhere, Terminal, comparable};
use crate::{command, sandbox};

const ECHO: &str = "\
- { heard: fail, fail: give_up }
- { heard: forbidden, fail: authenticate }
- say: \"{{ round }}: {{ heard }}\"
";

fn echo() -> Sandbox {
    let sandbox = sandbox();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nx\n").file("script.yaml", ECHO);
    sandbox
}

#[test]
fn a_chat_begins_with_who_answers_what_it_can_do_and_whether_it_is_kept() {
    let sandbox = echo();
    let left = |more: &[&str]| {
        let chat = start(&sandbox, more);
        chat.expect("> ").press("\u{4}");
        comparable(&chat.left().screen)
    };
    let ends = |kept: &str| format!("/help lists commands, Ctrl-D leaves, the chat is {kept}\n>");
    let shown = left(&["--approve-all", "--ephemeral"]);
    let header = "main.worker · main · scripted:script.yaml · 5 tools\n".to_owned();
    assert!(shown.contains(&(header + &ends("not kept"))), "{shown}");
    let shown = left(&["-q"]);
    assert!(shown.starts_with('>'), "{shown}");
}

const CHAT: [&str; 4] = ["chat", "main.worker", "-m", "scripted:script.yaml"];

fn start(sandbox: &Sandbox, more: &[&str]) -> Terminal {
    Terminal::start(sandbox.command(&[&CHAT[..], more].concat(), &[]))
}

/// The agent's instructions are no turn, its memory is: rounds count on.
#[test]
fn turns_share_one_memory_until_it_is_cleared() {
    let sandbox = echo();
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("hello\r").expect("1: hello\n>").press("again\r").expect("2: again\n>");
    chat.press("/clear\r").expect("conversation cleared\n>").press("anew\r").expect("1: anew\n>");
    chat.press("/usage\r").expect("in all: 0 tokens in, 0 out, $0\n>");
    chat.press("/tools\r").expect("write_file    ask\nedit_file     ask\n>");
    chat.press("/hlep\r").expect("there is no command /hlep; did you mean `/help`? commands: ");
    chat.press("/help\r").expect("sends a line as it is.\n>").press("/quit\r");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(is_summary(left.screen.trim_end().lines().last().unwrap()), "{}", left.screen);
    let history = sandbox.path().join(".config/llm-do/history");
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(history).unwrap().contains("hello\nagain\n/clear\n"));
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("\u{1b}[A\u{1b}[A\r").expect("> /help").expect("sends a line as it is.\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

#[test]
fn a_first_message_and_the_whole_screen() {
    let sandbox = echo();
    let chat = start(&sandbox, &["Good morning"]);
    chat.expect("1: Good morning\n>").press("two\u{1b}\rlines\r").expect("2: two\nlines\n>").press("\u{4}");
    let left = chat.left();
    let header = "main.worker · main · scripted:script.yaml · 5 tools, 2 ask · RUN\n\
                  /help lists commands, Ctrl-D leaves, the chat is kept\n";
    let expected =
        "1: Good morning\n> two\nlines\n2: two\nlines\n>\n0.0 s · 2 requests · 0 tokens in, 0 out · $0 · RUN";
    let screen: Vec<&str> = left.screen.trim_end().lines().map(str::trim_end).collect();
    assert_eq!(comparable(&screen.join("\n")), format!("{header}{expected}"));
}

/// As a terminal that does not mark pastes sends it.
#[test]
fn lines_that_come_together_are_said_one_after_the_other() {
    let sandbox = echo();
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("one\rtwo\rthree").expect("1: one\n> two\n2: two\n> three").press("!\r");
    chat.expect("3: three!\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

#[test]
fn a_line_goes_on_after_a_backslash() {
    let sandbox = echo();
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("one\\\rtwo\r").expect("1: one\ntwo\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

#[test]
fn ctrl_j_begins_a_new_line_and_ctrl_z_without_a_shell_stops_nothing() {
    let sandbox = echo();
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("two\nlines\r").expect("1: two\nlines\n>");
    chat.press("abd\u{1b}[D\u{1a}").expect("> abd\n> abd").press("c\r").expect("2: abcd\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

#[test]
fn ctrl_c_puts_the_line_into_the_history_and_twice_without_one_leaves() {
    let sandbox = echo();
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("half\u{3}").expect("(Ctrl-D or /exit ends the chat)\n>");
    chat.press("\u{1b}[A").expect("ends the chat)\n> half").press("\r").expect("1: half\n>");
    // One at a time: the editor forgets what it read together with the key that ended a line.
    let left = chat.left_after("\u{3}", "(Ctrl-C again, Ctrl-D or /exit ends the chat)");
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let shown = comparable(&left.screen);
    assert!(shown.contains("(Ctrl-C again, Ctrl-D or /exit ends the chat)"), "{shown}");
    assert!(shown.contains("`llm-do chat main.worker --continue RUN` goes on with it"), "{shown}");
}

#[test]
fn a_dumb_terminal_has_a_prompt_and_commands_and_ctrl_c_stops_only_the_turn() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let fake = slow(&gate);
    let mut command = command(&sandbox, &fake, &["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"]);
    command.env("TERM", "dumb");
    let chat = Terminal::start(command);
    chat.expect("the chat is kept\n> ").press("/help\n").expect("sends a line as it is.\n> ").press("hello\n");
    gate.wait_until_reached(1);
    chat.press("\u{3}");
    gate.wait_until_left(1);
    chat.expect("> hello\n^C\nstopped: kept; /undo forgets it\n> ")
        .press("again\n")
        .expect("Once upon a time\n> ")
        .press("half\u{3}");
    chat.expect("ends the chat)\n> ").press("/exit\n");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(!left.written.contains('\u{1b}'), "{:?}", left.written);
    let asked = fake.requests();
    assert_eq!(asked.len(), 2, "`/help` is a command");
}

#[test]
fn a_failed_turn_is_said_and_does_not_end_the_chat() {
    let sandbox = echo();
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("fail\r").expect("error: agent `main`: ").expect("the script says so\n> fail");
    // What was never answered is taken back into the line; Ctrl-U empties it.
    chat.press("\u{15}still here\r").expect("1: still here\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

#[test]
fn a_key_that_is_no_text_does_not_end_the_chat() {
    let sandbox = echo();
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press_bytes(b"caf\xff").expect("error: what was typed is not UTF-8 text\n>");
    chat.press("coffee\r").expect("1: coffee\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

#[test]
fn ctrl_c_cancels_the_turn_and_not_the_chat() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let fake = slow(&gate);
    let arguments = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];
    let chat = Terminal::start(command(&sandbox, &fake, &arguments));
    chat.expect("> ").press("tell\r").expect("Once").press("\u{3}");
    gate.wait_until_left(1);
    chat.expect("stopped: kept; /undo forgets it\n>")
        .press("half a li\u{3}")
        .expect("(Ctrl-D or /exit ends the chat)\n>");
    chat.press("something else\r").expect("Once upon a time\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
    let asked = fake.requests();
    let said = asked.last().unwrap().seen.as_ref().unwrap().clone();
    assert!(said.last_user_text().ends_with("something else"), "{said:?}");
    assert!(said.messages[1].text().starts_with("Once"), "what was said until then stays: {said:?}");
    assert_eq!(fake.violations(), []);
}

/// Answers `Once upon a time` to everything, and stalls in the middle of the first answer.
fn slow(gate: &StallGate) -> FakeLlm {
    let script = FakeScript::new().otherwise(FakeReply::text("Once upon a time").in_deltas(4));
    FakeLlm::start(script.fault(On::Request(1), InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() }))
}

#[test]
fn a_line_that_is_typed_during_a_turn_is_the_next_turn() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let fake = slow(&gate);
    let arguments = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];
    let chat = Terminal::start(command(&sandbox, &fake, &arguments));
    chat.expect("> ").press("tell\r").expect("Once").press("and thex\u{7f}n?\r");
    gate.release();
    chat.expect("> and then?\nOnce upon a time\n>").press("\u{4}");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let expected = "> tell\nOnce upon a time\n> and then?\nOnce upon a time\n>\n0.0 s · 2 requests";
    let screen: Vec<&str> = left.screen.lines().map(str::trim_end).collect();
    assert!(comparable(&screen[2..].join("\n")).starts_with(expected), "{}", left.screen);
    let asked = fake.requests();
    assert_eq!(asked.last().unwrap().seen.as_ref().unwrap().last_user_text(), "and then?");
}

#[test]
fn ctrl_d_during_a_turn_ends_the_chat_after_it() {
    let (sandbox, gate) = (sandbox(), StallGate::new());
    let fake = slow(&gate);
    let arguments = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];
    let chat = Terminal::start(command(&sandbox, &fake, &arguments));
    chat.expect("> ").press("tell\r").expect("Once").press("\u{4}");
    gate.release();
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(left.screen.contains("> tell\nOnce upon a time\n>"), "{}", left.screen);
}

#[test]
fn what_is_typed_behind_a_reason_is_a_draft() {
    let (sandbox, gate) = (echo(), StallGate::new());
    let call = fake_llm::FakeCall::new("write_file", serde_json::json!({"path": "out.txt", "content": "x"}));
    let script =
        FakeScript::new().reply(FakeReply::calls([call])).otherwise(FakeReply::text("Once upon a time").in_deltas(4));
    let fake =
        FakeLlm::start(script.fault(On::Request(2), InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() }));
    let arguments = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];
    let chat = Terminal::start(command(&sandbox, &fake, &arguments));
    chat.expect("> ").press("write\r").expect(" explain").answer("n").expect("why?");
    chat.press("not today").expect("not today").press("\r").expect("Once").press("draft").expect("> draft ");
    gate.release();
    chat.expect("Once upon a time\n> draft").press("\u{15}\u{4}");
    let left = chat.left();
    assert!(!left.screen.contains("draft"), "{}", left.screen);
}

#[test]
fn a_question_is_asked_between_the_lines() {
    let sandbox = echo();
    let script = "- { heard: write, call: { write_file: { path: out.txt, content: x } } }\n- say: \"{{ result }}\"\n";
    sandbox.file("script.yaml", script);
    let chat = start(&sandbox, &[]);
    chat.expect("> ").press("write\r").expect(" explain").answer("y").expect("wrote 1 characters to out.txt\n>");
    chat.press("write\r").expect("approval 2 · ").expect_written(" explain", 2).press("\u{3}");
    chat.expect("stopped: kept; /undo forgets it\n>").press("write\r").expect("approval 3 · ");
    chat.expect_written(" explain", 3)
        .answer("q")
        .expect("stopped: you answered q; kept; /undo forgets it\n>")
        .press("\u{4}");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "a turn was stopped, and not the chat: {}", left.screen);
}

#[test]
fn what_was_typed_before_a_question_is_no_answer_and_stands_in_the_next_line() {
    let (sandbox, gate) = (echo(), StallGate::new());
    let call = fake_llm::FakeCall::new("write_file", serde_json::json!({"path": "out.txt", "content": "x"}));
    let script = FakeScript::new().reply(FakeReply::calls([call])).otherwise(FakeReply::text("Once upon a time"));
    let fake = FakeLlm::start(script.fault(On::First(1), InjectedFault::StallBeforeHead(gate.clone())));
    let arguments = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];
    let chat = Terminal::start(command(&sandbox, &fake, &arguments));
    chat.expect("> ").press("write\r");
    gate.wait_until_reached(1);
    chat.press("y").press("es, anx\u{7f}d then");
    gate.release();
    chat.expect_listening();
    assert!(!sandbox.path().join("out.txt").exists());
    chat.answer("n").expect("why?").press("\r").expect("Once upon a time\n> yes, and then");
    chat.press("\r").expect("> yes, and then\nOnce upon a time\n>").press("\u{4}");
    let left = chat.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert_eq!(fake.requests().last().unwrap().seen.as_ref().unwrap().last_user_text(), "yes, and then");
}

#[test]
fn a_signal_ends_the_chat_and_leaves_the_terminal_as_it_was() {
    for (signal, code, said) in [
        (Signal::TERM, Some(143), "> half\nerror: terminated"),
        (Signal::HUP, Some(143), "> half\nerror: terminated"),
        (Signal::INT, Some(130), "> half\nerror: interrupted"),
        (Signal::QUIT, None, "> half"),
    ] {
        let sandbox = echo();
        let chat = start(&sandbox, &[]);
        chat.expect("> ").press("half").expect("> half").send(signal);
        let left = chat.left();
        assert_eq!(left.code, code, "{signal:?}: {}", left.screen);
        assert_eq!(left.signal, code.is_none().then_some(Signal::QUIT.as_raw()), "{signal:?}");
        assert!(left.screen.contains(said), "{signal:?}: {}", left.screen);
    }
}

#[test]
fn an_answer_to_a_pipe_is_the_answer_alone() {
    let sandbox = echo();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let streams = Elsewhere { stdout: Some(writer.into()), ..Elsewhere::default() };
    let command = sandbox.command(&CHAT, &[]);
    let chat = Terminal::start_with(command, Terminal::ROWS, streams);
    chat.expect("> ").press("hello\r");
    let mut answer = [0; 9];
    std::io::Read::read_exact(&mut reader, &mut answer).unwrap();
    assert_eq!(&answer, b"1: hello\n");
    chat.expect("> hello\n>").press("\u{4}");
    assert_eq!(chat.left().code, Some(0));
}

/// `llm-do chat` with something on its stdin.
fn piped(stdin: &str, flags: &[&str]) -> Ended {
    Run::of(&echo(), &[&CHAT[..], flags].concat()).hearing(stdin).ended()
}

#[test]
fn every_line_of_a_pipe_is_a_turn() {
    let answers = "1: one\n2: /help\n3: three\n";
    let ended = piped("one\n\n  \n/help\nthree", &[]);
    assert_eq!(ended, Ended { code: Some(0), stdout: answers.into(), stderr: String::new() });
    let ended = piped("two\n", &["one"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "1: one\n2: two\n"));
    assert_eq!(piped("", &[]), Ended { code: Some(0), stdout: String::new(), stderr: String::new() });
    let run = Run::of(&echo(), &["run", "--chat", "main.worker", "-m", "scripted:script.yaml"]).hearing("a\n").ended();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "1: a\n"));
}

#[test]
fn files_go_with_the_first_turn_whoever_says_it() {
    let sandbox = echo();
    sandbox.file("notes.md", "the notes");
    let run = |more: &[&'static str]| Run::of(&sandbox, &[&CHAT[..], &["-f", "notes.md"], more].concat());
    assert_eq!(run(&[]).hearing("one\ntwo\n").ended().stdout, "1: one\n[notes.md]\n2: two\n");
    assert_eq!(run(&["zero"]).hearing("one\n").ended().stdout, "1: zero\n[notes.md]\n2: one\n");
    sandbox.file("main.worker", "---\nname: main\nattachment_policy: {max_attachments: 0}\n---\nx\n");
    let ended = run(&[]).hearing("one\ntwo\n").ended();
    assert_eq!(ended.stdout, "1: two\n", "a turn that failed is over with all it had: {}", ended.stderr);
}

#[test]
fn the_exit_code_is_that_of_the_last_turn_that_failed() {
    let ended = piped("fail\nforbidden\nfine\n", &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), "1: fine\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("error: ").count(), 2, "{}", ended.stderr);
    assert_eq!(piped("forbidden\nfail\n", &[]).code, Some(1));
}

#[test]
fn a_chat_in_json_ends_with_one_result() {
    let (events, result) = Run::of(&echo(), &[&CHAT[..], &["--json"]].concat()).hearing("one\nfail\ntwo\n").events();
    assert_eq!((&result["output"], &result["exit_code"]), (&"2: two".into(), &1.into()));
    assert_eq!(result["messages"].as_array().unwrap().len(), 4, "the failed turn has left no trace");
    assert_eq!(events.iter().filter(|event| event["type"] == "call_started").count(), 1, "one call, many turns");
}

#[test]
fn a_chat_can_be_kept_in_a_file_of_ones_choice() {
    for flag in ["--journal", "--record"] {
        let sandbox = echo();
        let chat = Run::of(&sandbox, &[&CHAT[..], &[flag, "chat.journal"]].concat());
        assert_eq!(chat.hearing("hi\n").answer(), "1: hi\n");
        assert!(sandbox.path().join("chat.journal").exists());
        assert_eq!(sandbox.runs(), Vec::<String>::new(), "it is not in the store as well");
    }
}

/// The project is not even there, and nothing comes on stdin: what was typed cannot be meant, whatever else is true.
#[test]
fn what_a_chat_cannot_have_is_refused_before_anything_is_looked_at() {
    let sandbox = Sandbox::new();
    let refusal = |flag: &str| format!("error: `{flag}` cannot be used with `chat`\n");
    for words in [&["chat", "desk"][..], &["run", "--chat", "desk"], &["desk", "--chat", "-p"]] {
        for flag in [&["--replay", "x.journal"][..], &["--once", "nightly"], &["--dry-run"]] {
            let ended = sandbox.run(&[words, flag].concat());
            assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr), (Some(2), "", refusal(flag[0])));
        }
    }
    let ended = sandbox.run(&["chat", "desk", "--replay", "x.journal", "--output-format", "json"]);
    let result: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(ended.code, Some(2));
    assert_eq!(result["error"]["message"], "`--replay` cannot be used with `chat`", "{result}");
}
