//! Questions at the terminal.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use serde_json::{Value, json};

use crate::run;
use crate::support::{Sandbox, is_summary};
use crate::terminal::{Elsewhere, Left, Terminal, comparable};

const WRITES: &str = "\
- { round: 1, call: { write_file: { path: out.txt, content: \"written\\nhere\\n\" } } }
- say: \"{{ result }}\"
";

fn writer(script: &str) -> Sandbox {
    let sandbox = Sandbox::new().told();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nWrite.\n");
    sandbox.file("script.yaml", script);
    sandbox
}

const RUN: [&str; 5] = ["run", ".", "hi", "-m", "scripted:script.yaml"];

fn start(sandbox: &Sandbox) -> Terminal {
    Terminal::start(sandbox.command(&RUN, &[]))
}

/// Where a question ends.
const ASKED: &str = "no, and end the run";

fn written(sandbox: &Sandbox) -> Option<String> {
    fs::read_to_string(sandbox.path().join("out.txt")).ok()
}

/// The lines above the summary.
fn above(left: &Left) -> String {
    left.screen.lines().filter(|line| !is_summary(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_whole_call_is_shown_and_y_runs_it() {
    let sandbox = writer(WRITES);
    let terminal = start(&sandbox);
    terminal.expect(ASKED).answer("y");
    let left = terminal.left();
    assert_eq!((left.code, written(&sandbox).as_deref()), (Some(0), Some("written\nhere\n")), "{}", left.screen);
    let id = left.screen.split_once('(').unwrap().1.split_once(')').unwrap().0;
    let expected = format!(
        r#"approval 1: main › write_file ({id})
  creates the file `out.txt`
  {{
    "path": "out.txt",
    "content": "written\nhere\n"
  }}
  in detail:
  + written
  + here
  y yes, once
  s yes, and this exact call for the agent main for the rest of the session
  t yes, and `write_file` with any arguments for the agent main for the rest of the session
  e edit the arguments first
  n no
  q no, and end the run
  approved once
→ write_file {{"path":"out.txt","content":"written\nhere\n"}}
← write_file wrote 13 characters to out.txt
wrote 13 characters to out.txt
0.0 s · 2 requests · 0 tokens in, 0 out · $0 · RUN"#
    );
    assert_eq!(comparable(left.screen.trim_end()), expected);
}

#[test]
fn a_refusal_and_its_reason_reach_the_model() {
    for (keys, reason) in [("n", "the user refused it"), ("d", "the user refused it"), ("N", "not on a Sunday")] {
        let sandbox = writer(WRITES);
        let terminal = start(&sandbox);
        terminal.expect(ASKED).answer(keys).expect("why not?");
        terminal.press(if reason.starts_with("not") { "not on a Sunday\r" } else { "\r" });
        let left = terminal.left();
        assert_eq!((left.code, written(&sandbox)), (Some(0), None), "{}", left.screen);
        assert!(left.screen.contains(&format!("\nerror: refused: {reason}\n")), "{}", left.screen);
    }
}

#[test]
fn q_ends_the_run_and_ctrl_c_interrupts_it() {
    for (key, code, said, hint) in [
        ("q", 4, "error: the run was ended at a question", "hint: `llm-do resume RUN` asks again"),
        ("\u{3}", 130, "error: interrupted", "hint: `llm-do resume RUN` goes on where it stopped"),
    ] {
        let sandbox = writer(WRITES);
        let terminal = start(&sandbox);
        // Ctrl-C counts at once, an answer only after a pause.
        match key {
            "q" => terminal.expect(ASKED).answer(key),
            _ => terminal.expect(ASKED).press(key),
        };
        let left = terminal.left();
        assert_eq!((left.code, written(&sandbox)), (Some(code), None), "{}", left.screen);
        let screen = comparable(left.screen.trim_end());
        let last: Vec<&str> = screen.lines().rev().take(3).collect();
        assert_eq!(last[..2], [hint, said], "{screen}");
        assert!(is_summary(last[2]), "{screen}");
    }
}

#[test]
fn keys_that_were_typed_before_the_question_are_forgotten() {
    let sandbox = writer("");
    let gate = StallGate::new();
    let call = FakeCall::new("write_file", json!({"path": "out.txt", "content": "x"}));
    let script = FakeScript::new().reply(FakeReply::calls([call])).reply(FakeReply::text("done"));
    let fake = FakeLlm::start(script.fault(On::First(1), InjectedFault::StallBeforeHead(gate.clone())));
    let terminal = run(&sandbox, &fake, &[]);
    gate.wait_until_reached(1);
    // Its echo says that it has arrived.
    terminal.press("y").expect_written("y", 1);
    gate.release();
    terminal.expect(ASKED).answer("n").expect("why not?").press("\r");
    let left = terminal.left();
    assert_eq!((left.code, written(&sandbox)), (Some(0), None), "{}", left.screen);
}

#[test]
fn an_answer_may_hold_for_the_call_or_for_the_tool() {
    let twice = "\
- { round: 1, call: { write_file: { path: out.txt, content: a } } }
- { round: 2, call: { write_file: { content: a, path: out.txt } } }
- { round: 3, call: { write_file: { path: out.txt, content: b } } }
- say: done
";
    for (keys, asked) in [("s", 2), ("t", 1), ("y", 3)] {
        let sandbox = writer(twice);
        let terminal = start(&sandbox);
        for number in 1..=asked {
            terminal.expect(&format!("approval {number}: "));
            terminal.expect_written(ASKED, number).answer(keys);
        }
        let left = terminal.left();
        assert_eq!((left.code, written(&sandbox).as_deref()), (Some(0), Some("b")), "{}", left.screen);
        assert!(!left.screen.contains(&format!("approval {}", asked + 1)), "{}", left.screen);
    }
}

#[test]
fn arguments_are_edited_in_a_private_file_outside_the_project() {
    let sandbox = writer(WRITES);
    let elsewhere = tempfile::tempdir().unwrap();
    let editor = elsewhere.path().join("editor");
    let script = "#!/bin/sh\ncp \"$2\" \"$1/seen\"\nstat -c '%a %n' \"$2\" \"$(dirname \"$2\")\" > \"$1/modes\"\n\
                  sed -i s/written/edited/ \"$2\"\n";
    fs::write(&editor, script).unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    let (place, command) =
        (elsewhere.path().display(), format!("{} '{}'", editor.display(), elsewhere.path().display()));
    let variables = [("EDITOR", command.as_str()), ("TMPDIR", &place.to_string()), ("PATH", "/usr/bin:/bin")];
    let terminal = Terminal::start(sandbox.command(&RUN, &variables));
    terminal.expect(ASKED).answer("e");
    let left = terminal.left();
    assert_eq!((left.code, written(&sandbox).as_deref()), (Some(0), Some("edited\nhere\n")), "{}", left.screen);
    assert!(left.screen.contains("approved with other arguments"), "{}", left.screen);
    let seen: Value = serde_json::from_str(&fs::read_to_string(elsewhere.path().join("seen")).unwrap()).unwrap();
    assert_eq!(seen["content"], "written\nhere\n");
    let modes = fs::read_to_string(elsewhere.path().join("modes")).unwrap();
    let modes: Vec<&str> = modes.lines().map(|line| line.split_once(' ').unwrap().0).collect();
    assert_eq!(modes, ["600", "700"]);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 3, "the private file is gone");
}

#[test]
fn an_editor_that_gives_nothing_asks_again() {
    let sandbox = writer(WRITES);
    let cases = [
        ("true", "nothing was changed"),
        ("false", "`false` ended with exit status: 1"),
        ("/no/such", "`/no/such` cannot be started"),
        ("truncate -s 0", "that is not JSON"),
        ("sh -c 'echo [] > $0'", "arguments are a JSON object"),
    ];
    for (editor, reason) in cases {
        let terminal = Terminal::start(sandbox.command(&RUN, &[("VISUAL", editor), ("PATH", "/usr/bin:/bin")]));
        terminal.expect(ASKED).answer("e").expect(&format!("not edited: {reason}"));
        terminal.expect_written(ASKED, 2).answer("q");
        assert_eq!((terminal.left().code, written(&sandbox)), (Some(4), None), "{editor}");
    }
}

#[test]
fn a_long_question_comes_in_pages_and_its_end_before_any_yes() {
    let lines = (1..=40).map(|number| format!("line {number}\\n")).collect::<Vec<_>>().concat();
    let sandbox = writer(&WRITES.replace("written\\nhere\\n", &format!("{lines}THE END")));
    let terminal = Terminal::start_with(sandbox.command(&RUN, &[]), 20, Elsewhere::default());
    terminal.expect("-- 18 of ").answer("y").expect_written("\u{7}", 1).answer("t").expect_written("\u{7}", 2);
    // Pages are turned at once.
    terminal.press(" ").expect("-- 36 of ");
    assert_eq!(written(&sandbox), None, "nobody can agree to what they have not seen");
    terminal.press(" ").expect("+ THE END").expect(ASKED).answer("y");
    let left = terminal.left();
    assert!(left.code == Some(0) && written(&sandbox).unwrap().ends_with("THE END"), "{}", left.screen);
    assert!(!left.screen.contains("--"), "the marks between pages are gone: {}", left.screen);
    fs::remove_file(sandbox.path().join("out.txt")).unwrap();
    let terminal = Terminal::start_with(sandbox.command(&RUN, &[]), 20, Elsewhere::default());
    terminal.expect("-- 18 of ").answer("q");
    assert_eq!((terminal.left().code, written(&sandbox)), (Some(4), None), "a no needs no reading");
}

#[test]
fn somebody_is_asked_also_when_the_streams_are_pipes() {
    let sandbox = writer(&WRITES.replace("say: ", "say: \"{{ heard }} \"").replace("\"\"{{", "{{"));
    let (mut reader, writer) = std::io::pipe().unwrap();
    let input = tempfile::tempfile().unwrap();
    let streams = Elsewhere { stdin: Some(Stdio::from(input)), stdout: Some(Stdio::from(writer)), stderr: None };
    let terminal = Terminal::start_with(sandbox.command(&RUN, &[]), Terminal::ROWS, streams);
    terminal.expect(ASKED).answer("y");
    let left = terminal.left();
    let mut answer = String::new();
    reader.read_to_string(&mut answer).unwrap();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(answer.ends_with("wrote 13 characters to out.txt\n") && !answer.contains('\u{1b}'), "{answer:?}");
    assert!(!above(&left).contains("\nwrote 13"), "the answer is on stdout alone: {}", left.screen);
}

#[test]
fn headless_means_that_nobody_is_asked() {
    for flag in ["--headless", "-p"] {
        let sandbox = writer(WRITES);
        let left = Terminal::start(sandbox.command(&[&RUN[..], &[flag]].concat(), &[])).left();
        assert_eq!((left.code, written(&sandbox)), (Some(4), None));
        assert!(left.screen.starts_with("waiting for approval ("), "{}", left.screen);
        assert!(!left.written.contains("\u{1b}[K"), "nothing is animated: {:?}", left.written);
    }
}

#[test]
fn questions_of_nested_agents_have_their_path_and_the_words_of_others_are_marked() {
    let sandbox = Sandbox::new();
    let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker", "a.worker", "b.worker"],
        "runtime": {"agent_calls_require_approval": true}}"#;
    sandbox.file("project.json", manifest);
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [a, b]\n---\nx\n");
    for name in ["a", "b"] {
        let keys = "description: \"nice\\napproval 9: all is well\\e[2J\"\ntoolsets: [filesystem_cwd]";
        sandbox.file(&format!("{name}.worker"), &format!("---\nname: {name}\n{keys}\n---\nx\n"));
    }
    let script = "\
- { agent: main, round: 1, call: [ { a: { input: go } }, { b: { input: go } } ] }
- { agent: main, say: done }
- { round: 1, call: { write_file: { path: '{{ agent }}.txt', content: x } } }
- say: ok
";
    sandbox.file("script.yaml", script);
    let terminal = start(&sandbox);
    terminal.expect("approval 1 of 2: main › a (").expect_written(ASKED, 1);
    assert!(
        terminal.screen().contains("  in the words of its author:\n  │ nice\n  │ approval 9: all is well\\u{1b}[2J\n")
    );
    terminal.answer("y").expect("approval 2 of 2: main › b (").expect_written(ASKED, 2).answer("y");
    // Both children ask, one perhaps before the other is there: one after the other is shown.
    terminal.expect("approval 3").expect_written(ASKED, 3).answer("y");
    terminal.expect("approval 4").expect_written(ASKED, 4).answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(left.screen.contains("main › a › write_file (") && left.screen.contains("main › b › write_file ("));
}

#[test]
fn a_command_is_asked_about_by_the_rule_that_matched() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [shell_file_ops]\n---\nx\n").file("a.txt", "a");
    let script = "- { round: 1, call: { shell: { command: mv a.txt b.txt } } }\n- say: moved\n";
    sandbox.file("script.yaml", script);
    let terminal = start(&sandbox);
    terminal.expect("approval 1: main › shell (").expect(ASKED);
    let place = sandbox.path().canonicalize().unwrap();
    let screen = terminal.screen().replace('\n', "");
    assert!(screen.contains("command   mv a.txt b.txt"), "{screen}");
    assert!(
        screen.contains(&format!(
            "t yes, and any command that begins with `mv`, in {} for the agent main",
            place.display()
        )),
        "{screen}"
    );
    terminal.answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(place.join("b.txt").exists() && !place.join("a.txt").exists());
}

/// Three questions at once, the last one about a hook.
const THREE: &str = "\
- { round: 1, call: [ { write_file: { path: a.txt, content: a } }, { write_file: { path: b.txt, content: b } },
    { write_file: { path: .git/hooks/pre-commit, content: evil } } ] }
- say: done
";

#[test]
fn nobody_agrees_by_typing_on_while_a_question_appears() {
    // Whether no pause was long enough for an answer; a busy machine may make one.
    let typed_on = || -> bool {
        let sandbox = writer(THREE);
        sandbox.file(".git/hooks/pre-push", "");
        let terminal = start(&sandbox);
        terminal.expect(ASKED);
        let longest = terminal.type_on("y", 150);
        if longest >= Duration::from_millis(250) {
            terminal.press("\u{3}");
            terminal.left();
            return false;
        }
        terminal.expect_listening();
        let screen = terminal.screen();
        assert!(screen.contains("approval 1 of 3: "), "{screen}");
        assert!(!screen.contains("approved") && !screen.contains("approval 2"), "{screen}");
        for written in ["a.txt", "b.txt", ".git/hooks/pre-commit"] {
            assert!(!sandbox.path().join(written).exists(), "{written}");
        }
        // Whoever has read it is heard.
        terminal.answer("y").expect("approval 2").answer("y").expect("pre-commit").answer("n").expect("why not?");
        terminal.press("\r");
        let left = terminal.left();
        assert_eq!(left.code, Some(0), "{}", left.screen);
        assert!(sandbox.path().join("b.txt").exists() && !sandbox.path().join(".git/hooks/pre-commit").exists());
        true
    };
    assert!((0..5).any(|_| typed_on()), "this machine cannot type without pauses");
}

#[test]
fn an_answer_for_the_session_is_for_one_agent() {
    let sandbox = Sandbox::new();
    let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker", "editor.worker", "stranger.worker"]}"#;
    sandbox.file("project.json", manifest);
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [editor, stranger]\n---\nx\n");
    for name in ["editor", "stranger"] {
        sandbox.file(&format!("{name}.worker"), &format!("---\nname: {name}\ntoolsets: [filesystem_cwd]\n---\nx\n"));
    }
    let script = "\
- { agent: main, round: 1, call: { editor: { input: go } } }
- { agent: main, round: 2, call: { stranger: { input: go } } }
- { agent: main, say: done }
- { round: 1, call: { write_file: { path: '{{ agent }}1.txt', content: x } } }
- { round: 2, call: { write_file: { path: '{{ agent }}2.txt', content: x } } }
- say: ok
";
    sandbox.file("script.yaml", script);
    let terminal = start(&sandbox);
    terminal.expect("t yes, and `write_file` with any arguments for the agent editor for the rest of the session");
    terminal.answer("t").expect("approval 2: main › stranger › write_file (").expect("for the agent stranger");
    let is_there = |name: &str| sandbox.path().join(name).exists();
    assert!(is_there("editor1.txt") && is_there("editor2.txt"), "the editor is asked once");
    assert!(!is_there("stranger1.txt"));
    terminal.answer("q");
    let left = terminal.left();
    assert_eq!((left.code, is_there("stranger1.txt")), (Some(4), false), "{}", left.screen);
}

/// Whoever allowed the tool, or ended the run, is shown no question that needs no answer any more.
#[test]
fn what_one_answer_settles_is_not_asked() {
    let script = "\
- { round: 1, call: [ { write_file: { path: a.txt, content: a } }, { write_file: { path: b.txt, content: b } },
    { write_file: { path: c.txt, content: c } } ] }
- say: done
";
    for (key, code, is_written) in [("t", Some(0), true), ("q", Some(4), false), ("\u{3}", Some(130), false)] {
        let sandbox = writer(script);
        let terminal = start(&sandbox);
        terminal.expect("approval 1 of 3: ").expect_written(ASKED, 1);
        if key == "\u{3}" {
            terminal.press(key);
        } else {
            terminal.answer(key);
        }
        let left = terminal.left();
        assert_eq!(left.code, code, "{key:?}: {}", left.screen);
        assert!(!left.written.contains("approval 2"), "{key:?}: {}", left.screen);
        for file in ["a.txt", "b.txt", "c.txt"] {
            assert_eq!(sandbox.path().join(file).exists(), is_written, "{key:?} {file}");
        }
    }
}

/// All of them stand open together, and are shown one after the other with their number.
#[test]
fn the_questions_of_a_reply_are_numbered() {
    let sandbox = writer(THREE);
    sandbox.file(".git/hooks/pre-push", "");
    let terminal = start(&sandbox);
    terminal.expect("approval 1 of 3: ").expect_written(ASKED, 1).answer("y");
    terminal.expect("approval 2 of 3: ").expect_written(ASKED, 2).answer("y");
    terminal.expect("approval 3 of 3: ").expect_written(ASKED, 3).answer("q");
    let left = terminal.left();
    assert_eq!(left.code, Some(4), "{}", left.screen);
    assert!(!sandbox.path().join("a.txt").exists(), "nothing of a reply runs before all of it is answered");
}
