//! Questions at the terminal.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use serde_json::json;

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
const ASKED: &str = " explain";

fn written(sandbox: &Sandbox) -> Option<String> {
    fs::read_to_string(sandbox.path().join("out.txt")).ok()
}

/// The lines above the summary.
fn above(left: &Left) -> String {
    left.screen.lines().filter(|line| !is_summary(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_time_of_a_run_leaves_out_waiting_for_the_person() {
    let sandbox = writer(WRITES);
    let began = Instant::now();
    let terminal = start(&sandbox);
    terminal.expect(ASKED);
    let asked = Instant::now();
    terminal.expect_listening();
    let waited = asked.elapsed();
    terminal.answer("y");
    let left = terminal.left();
    let most = began.elapsed().saturating_sub(waited).as_secs_f64();
    let summary = left.screen.lines().find(|line| is_summary(line)).unwrap();
    let told: f64 = summary.split_once(" s · ").unwrap().0.parse().unwrap();
    assert!(told <= most + 0.05, "{told} s of {most} s, without {waited:?}: {}", left.screen);
}

#[test]
fn the_whole_call_is_shown_and_y_runs_it() {
    let sandbox = writer(WRITES);
    let terminal = start(&sandbox);
    terminal.expect(ASKED).answer("y");
    let left = terminal.left();
    assert_eq!((left.code, written(&sandbox).as_deref()), (Some(0), Some("written\nhere\n")), "{}", left.screen);
    let id = left.screen.split(" · ").nth(2).unwrap().split('\n').next().unwrap();
    let expected = format!(
        "approval 1 · main › write_file · {id}
creates out.txt: 2 lines added
   1 + written
   2 + here
y yes  s this call  t this tool  a always  e edit  n no  q stop  ? explain
Allow? y
→ write_file out.txt
  │ wrote 13 characters to out.txt
wrote 13 characters to out.txt
0.0 s · 2 requests · 0 tokens in, 0 out · $0 · RUN"
    );
    assert_eq!(comparable(left.screen.trim_end()), expected);
}

#[test]
fn a_refusal_and_its_reason_reach_the_model() {
    for (keys, reason) in [("n", "the user refused it"), ("d", "the user refused it"), ("N", "not on a Sunday")] {
        let sandbox = writer(WRITES);
        let terminal = start(&sandbox);
        terminal.expect(ASKED).answer(keys).expect("why? (the model reads it)");
        terminal.press(if reason.starts_with("not") { "not on a Sunday\r" } else { "\r" });
        let left = terminal.left();
        assert_eq!((left.code, written(&sandbox)), (Some(0), None), "{}", left.screen);
        assert!(left.screen.contains(&format!("\nerror: refused: {reason}\n")), "{}", left.screen);
    }
}

#[test]
fn q_ends_the_run_and_ctrl_c_interrupts_it() {
    for (key, code, said, hint) in [
        ("q", 4, "error: stopped: you answered q", "hint: `llm-do resume RUN` asks again"),
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
    terminal.press("y");
    gate.release();
    terminal.expect(ASKED).answer("n").expect("why? (the model reads it)").press("\r");
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
            terminal.expect(&format!("approval {number} · "));
            terminal.expect_written(ASKED, number);
            if keys == "y" {
                terminal.answer(keys)
            } else {
                terminal.answer_twice(keys)
            };
        }
        let left = terminal.left();
        assert_eq!((left.code, written(&sandbox).as_deref()), (Some(0), Some("b")), "{}", left.screen);
        assert!(!left.screen.contains(&format!("approval {}", asked + 1)), "{}", left.screen);
    }
}

/// A program that is the editor: it sees what it is given, and changes it.
fn editor(directory: &std::path::Path, script: &str) -> String {
    let editor = directory.join("editor");
    fs::write(&editor, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{} '{}'", editor.display(), directory.display())
}

#[test]
fn the_text_itself_is_edited_in_a_private_file_outside_the_project() {
    let sandbox = writer(WRITES);
    let elsewhere = tempfile::tempdir().unwrap();
    let script = "cp \"$2\" \"$1/seen\"\nstat -c '%a %n' \"$2\" \"$(dirname \"$2\")\" > \"$1/modes\"\n\
                  sed -i s/written/edited/ \"$2\"\n";
    let (place, command) = (elsewhere.path().display().to_string(), editor(elsewhere.path(), script));
    let variables = [("EDITOR", command.as_str()), ("TMPDIR", &place), ("PATH", "/usr/bin:/bin")];
    let terminal = Terminal::start(sandbox.command(&RUN, &variables));
    terminal
        .expect(ASKED)
        .answer("e")
        .expect_written(ASKED, 1)
        .expect("   1 + edited\n   2 + here\ny yes  e edit  n no");
    assert_eq!(written(&sandbox), None, "nothing runs on saving");
    terminal.answer("s").expect("press y or n, ? explains").answer("y");
    let left = terminal.left();
    assert_eq!((left.code, written(&sandbox).as_deref()), (Some(0), Some("edited\nhere\n")), "{}", left.screen);
    assert_eq!(fs::read_to_string(elsewhere.path().join("seen")).unwrap(), "written\nhere\n");
    let modes = fs::read_to_string(elsewhere.path().join("modes")).unwrap();
    let (mode, file) = modes.lines().next().unwrap().split_once(' ').unwrap();
    assert!(mode == "600" && file.ends_with("/out.txt"), "{modes}");
    assert!(modes.lines().nth(1).unwrap().starts_with("700 "), "{modes}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 3, "the private file is gone");
}

#[test]
fn a_mistake_opens_the_editor_again_with_the_reason_on_top() {
    let sandbox = writer("- { round: 1, call: { list_files: { path: a } } }\n- say: \"{{ result }}\"\n");
    sandbox.file("b/found.txt", "");
    sandbox.file(
        "main.worker",
        "---\nname: main\ntoolsets: [filesystem_cwd]\napproval: { list_files: ask }\n---\nList.\n",
    );
    let elsewhere = tempfile::tempdir().unwrap();
    // First a key that there is not, then no YAML, then it is right.
    let script = "n=$(cat \"$1/n\" 2>/dev/null || echo 0)\ncp \"$2\" \"$1/seen$n\"\necho $((n+1)) > \"$1/n\"\n\
                  case $n in 0) sed -i s/path/pth/ \"$2\";; 1) sed -i 's/pth: .*/path: [b/' \"$2\";; \
                  *) sed -i 's/path: .*/path: b/' \"$2\";; esac\n";
    let command = editor(elsewhere.path(), script);
    let terminal = Terminal::start(sandbox.command(&RUN, &[("EDITOR", &command), ("PATH", "/usr/bin:/bin")]));
    terminal.expect("path  │ a\nbecause main.worker says `list_files: ask`").answer("e").expect("path  │ b\n");
    terminal.answer("y");
    let left = terminal.left();
    assert!(left.code == Some(0) && left.screen.contains("b/found.txt"), "{}", left.screen);
    assert!(!left.screen.contains("pth"), "the model reads nothing of it: {}", left.screen);
    let seen = |number: usize| fs::read_to_string(elsewhere.path().join(format!("seen{number}"))).unwrap();
    assert_eq!(seen(0), "path: \"a\"\n");
    assert!(
        seen(1).starts_with("# llm-do: ") && seen(1).contains("pth") && seen(1).ends_with("\npth: \"a\"\n"),
        "{}",
        seen(1)
    );
    assert!(seen(2).starts_with("# llm-do: line ") && seen(2).ends_with("\npath: [b\n"), "{}", seen(2));
}

#[test]
fn an_editor_that_gives_nothing_asks_again() {
    let sandbox = writer(WRITES);
    let cases = [
        ("true", "nothing was changed"),
        ("false", "not edited: `false` ended with exit status: 1"),
        ("/no/such", "not edited: `/no/such` cannot be started"),
    ];
    for (editor, reason) in cases {
        let terminal = Terminal::start(sandbox.command(&RUN, &[("VISUAL", editor), ("PATH", "/usr/bin:/bin")]));
        terminal.expect(ASKED).answer("e").expect(reason);
        terminal.expect_written("approval 1 · ", 2).answer("q");
        assert_eq!((terminal.left().code, written(&sandbox)), (Some(4), None), "{editor}");
    }
}

#[test]
fn a_long_question_comes_in_pages_and_its_end_before_any_yes() {
    let lines = (1..=40).map(|number| format!("line {number}\\n")).collect::<Vec<_>>().concat();
    let sandbox = writer(&WRITES.replace("written\\nhere\\n", &format!("{lines}THE END")));
    let terminal = Terminal::start_with(sandbox.command(&RUN, &[]), 20, Elsewhere::default());
    terminal.expect("lines 1–15 of 45  space more  b back  G all  n no  q stop");
    terminal.answer("y").expect("not yet: 30 lines were not shown, G shows them");
    terminal.answer("t").expect_written("not yet: 30 lines", 2);
    // Pages are turned at once.
    terminal.press(" ").expect("lines 16–30 of 45").press("b").expect_written("lines 1–15 of 45", 4);
    terminal.press(" ").expect_written("lines 16–30 of 45", 2);
    assert_eq!(written(&sandbox), None, "nobody can agree to what they have not seen");
    terminal.press(" ").expect("  41 + THE END").expect(ASKED).answer("y");
    let left = terminal.left();
    assert!(left.code == Some(0) && written(&sandbox).unwrap().ends_with("THE END"), "{}", left.screen);
    assert!(!left.screen.contains("space more"), "the marks between pages are gone: {}", left.screen);
    for (keys, code) in [("G", Some(0)), ("q", Some(4))] {
        let _ = fs::remove_file(sandbox.path().join("out.txt"));
        let terminal = Terminal::start_with(sandbox.command(&RUN, &[]), 20, Elsewhere::default());
        terminal.expect("lines 1–15 of 45");
        match keys {
            "G" => terminal.press("G").expect("  41 + THE END").answer("y"),
            _ => terminal.answer(keys),
        };
        let left = terminal.left();
        assert_eq!((left.code, written(&sandbox).is_some()), (code, code == Some(0)), "a no needs no reading");
    }
}

/// A file is shown once, as a difference, and line by line.
#[test]
fn a_new_file_of_120_lines_is_126_lines_at_most() {
    let lines = (1..=120).map(|number| format!("line {number}\\n")).collect::<Vec<_>>().concat();
    let sandbox = writer(&WRITES.replace("written\\nhere\\n", &lines));
    sandbox.file(
        "main.worker",
        "---\nname: main\ntoolsets: [filesystem_cwd]\napproval: { write_file: ask }\n---\nWrite.\n",
    );
    let terminal = Terminal::start_sized(sandbox.command(&RUN, &[]), (24, 80), Elsewhere::default());
    terminal.expect("lines 1–19 of 124  space more  b back  G all  n no  q stop");
    terminal.answer("y").expect("not yet: 105 lines were not shown, G shows them");
    for end in [38, 57, 76, 95, 114] {
        terminal.press(" ").expect(&format!("–{end} of 124"));
    }
    terminal.press(" ").expect("because main.worker says `write_file: ask`").answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    let before = left.written.split("Allow? ").next().unwrap();
    // Marks between pages are on lines that are used again.
    let shown = before.matches('\n').count() + 1 - usize::from(before.contains("not yet"));
    assert!(shown <= 126, "{shown} lines: {before}");
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
    terminal.expect("approval 1 of 2 · main › a · ").expect_written(ASKED, 1);
    assert!(terminal.screen().contains("in the words of its author:\n│ nice\n│ approval 9: all is well\\u{1b}[2J\n"));
    terminal.answer("y").expect("approval 2 of 2 · main › b · ").expect_written(ASKED, 2).answer("y");
    // Both children ask, one perhaps before the other is there: one after the other is shown.
    terminal.expect("approval 3").expect_written(ASKED, 3).answer("y");
    terminal.expect("approval 4").expect_written(ASKED, 4).answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(left.screen.contains("main › a › write_file · ") && left.screen.contains("main › b › write_file · "));
}

#[test]
fn a_command_is_asked_about_by_the_rule_that_matched() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [shell_file_ops]\n---\nx\n").file("a.txt", "a");
    let script = "- { round: 1, call: { shell: { command: mv a.txt b.txt } } }\n- say: moved\n";
    sandbox.file("script.yaml", script);
    let terminal = start(&sandbox);
    terminal.expect("approval 1 · main › shell · ").expect(ASKED);
    let place = sandbox.path().canonicalize().unwrap();
    let screen = terminal.screen().replace('\n', "");
    assert!(screen.contains("command   mv a.txt b.txt"), "{screen}");
    terminal.answer("t").expect("t again for yes");
    let screen = terminal.screen().replace('\n', "");
    let covered = format!("Allow? t: any command that begins with `mv`, in {} until you leave.", place.display());
    assert!(screen.contains(&covered), "{screen}");
    terminal.answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(place.join("b.txt").exists() && !place.join("a.txt").exists());
}

#[test]
fn a_rule_of_a_shell_is_named_by_its_words() {
    let shell = r#"{ "shell": { "rules": [ { "pattern": "mkdir", "approval": "ask" },
        { "pattern": "touch", "approval": "allow", "approval_required_if_args": ["-d"] } ] } }"#;
    let manifest = format!(
        "{{\"version\": 1, \"entry\": {{\"agent\": \"main\"}}, \"worker_files\": [\"main.worker\"], \"toolsets\": {{\"tidy\": {shell}}}}}"
    );
    for (command, says) in [
        ("mkdir a", "this shell says `mkdir: ask`\n"),
        ("touch -d now a", "the rule `touch` of this shell does not cover these arguments\n"),
    ] {
        let sandbox = Sandbox::new();
        sandbox.file("project.json", &manifest).file("main.worker", "---\nname: main\ntoolsets: [tidy]\n---\nx\n");
        let script = format!("- {{ round: 1, call: {{ shell: {{ command: {command} }} }} }}\n- say: done\n");
        sandbox.file("script.yaml", &script);
        let command = sandbox.command(&["run", ".", "go", "-m", "scripted:script.yaml"], &[]);
        let terminal = Terminal::start(command);
        terminal.expect("approval 1 · main › shell · ").expect(says).answer("n");
        terminal.expect("why? (the model reads it)").press("\r");
        assert_eq!(terminal.left().code, Some(0));
    }
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
        assert!(screen.contains("approval 1 of 3 · "), "{screen}");
        assert!(!screen.contains("approved") && !screen.contains("approval 2"), "{screen}");
        for written in ["a.txt", "b.txt", ".git/hooks/pre-commit"] {
            assert!(!sandbox.path().join(written).exists(), "{written}");
        }
        // Whoever has read it is heard.
        terminal
            .answer("y")
            .expect("approval 2")
            .answer("y")
            .expect("pre-commit")
            .answer("n")
            .expect("why? (the model reads it)");
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
    terminal.answer("?").expect("t  yes, and `write_file` with any arguments for the agent editor, until you leave");
    terminal
        .answer_twice("t")
        .expect("approval 2 · main › stranger › write_file · ")
        .answer("?")
        .expect("for the agent stranger");
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
        terminal.expect("approval 1 of 3 · ").expect_written(ASKED, 1);
        match key {
            "\u{3}" => terminal.press(key),
            "t" => terminal.answer_twice(key),
            key => terminal.answer(key),
        };
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
    terminal.expect("approval 1 of 3 · ").expect_written(ASKED, 1).answer("y");
    terminal.expect("approval 2 of 3 · ").expect_written(ASKED, 2).answer("y");
    terminal.expect("approval 3 of 3 · ").expect_written(ASKED, 3).answer("q");
    let left = terminal.left();
    assert_eq!(left.code, Some(4), "{}", left.screen);
    assert!(!sandbox.path().join("a.txt").exists(), "nothing of a reply runs before all of it is answered");
}

/// The rules that were kept.
fn rules(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.path().join(".local/state/llm-do/rules.toml")).unwrap_or_default()
}

const DRAFTS: &str = "\
- { round: 1, call: { write_file: { path: drafts/a.md, content: a } } }
- { round: 2, call: { write_file: { path: drafts/b.md, content: b } } }
- say: done
";

#[test]
fn always_shows_the_rule_and_its_widths_and_adds_it_when_pressed_again() {
    let sandbox = writer(DRAFTS);
    let place = sandbox.path().canonicalize().unwrap();
    let terminal = start(&sandbox);
    terminal.expect(ASKED).answer("a").expect("Allow? a: adds this rule to state/rules.toml\n");
    terminal.expect("\n   allow = \"write_file\"   agent = \"main\"   path = \"drafts/a.md\"\n");
    terminal.expect(&format!("\n   project = \"{}\"   expires = ", place.display()));
    terminal.expect("\n1 path = \"drafts/a.md\"  2 path = \"drafts/*.md\"  3 path = \"drafts/**\"\n");
    terminal.expect("\np project or all  x 30 days or never  e edit  a again: add and allow  Esc back\n");
    // Enter does nothing, and nothing is added by leaving.
    terminal.answer("\r").answer("\u{1b}").expect_written("approval 1 · ", 2);
    assert!(rules(&sandbox).is_empty() && !place.join("drafts").exists());
    terminal.answer("a").answer("2").expect_written("path = \"drafts/*.md\"\r\n", 1);
    terminal.answer("x").answer("p").answer("a");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(!left.written.contains("approval 2"), "it counts at once: {}", left.screen);
    assert!(place.join("drafts/a.md").exists() && place.join("drafts/b.md").exists());
    let rule = "[[rule]]\nallow = \"write_file\"\nagent = \"main\"\npath = \"drafts/*.md\"\n";
    assert!(rules(&sandbox).ends_with(rule), "{}", rules(&sandbox));
}

#[test]
fn a_rule_can_be_edited_before_it_is_added() {
    let sandbox = writer(DRAFTS);
    let elsewhere = tempfile::tempdir().unwrap();
    let script = "n=$(cat \"$1/n\" 2>/dev/null || echo 0)\ncp \"$2\" \"$1/seen$n\"\necho $((n+1)) > \"$1/n\"\n\
                  case $n in 0) sed -i s/allow/alow/ \"$2\";; *) sed -i 's/alow/allow/; s/a.md/*.md/' \"$2\";; esac\n";
    let command = editor(elsewhere.path(), script);
    let terminal = Terminal::start(sandbox.command(&RUN, &[("EDITOR", &command), ("PATH", "/usr/bin:/bin")]));
    terminal.expect(ASKED).answer("a").answer("e").expect("   path = \"drafts/*.md\"\n").answer("a");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(rules(&sandbox).contains("path = \"drafts/*.md\"\n"), "{}", rules(&sandbox));
    let seen = fs::read_to_string(elsewhere.path().join("seen1")).unwrap();
    assert!(seen.starts_with("# llm-do: ") && seen.contains("alow = \"write_file\""), "{seen}");
}

#[test]
fn no_key_is_the_default_and_wrong_ones_say_what_to_press() {
    let sandbox = writer(WRITES);
    let terminal = start(&sandbox);
    for (number, key) in ["\r", "\u{1b}", "\u{4}", "x", "\u{1b}[A", "ä"].into_iter().enumerate() {
        terminal.answer(key).expect_written("Allow? press y or n, ? explains", number + 1);
    }
    assert_eq!(written(&sandbox), None);
    // What was pressed once is forgotten when another key comes.
    terminal.answer("t").expect("Allow? t: `write_file` with any arguments until you leave. t again for yes");
    terminal.answer("s").expect("Allow? s: this exact call until you leave. s again for yes");
    terminal.answer("t").expect_written("t again for yes", 2);
    assert_eq!(written(&sandbox), None);
    terminal.answer("t");
    assert_eq!((terminal.left().code, written(&sandbox).is_some()), (Some(0), true));
}

#[test]
fn a_reason_can_be_edited_and_left() {
    let sandbox = writer(WRITES);
    let terminal = start(&sandbox);
    terminal.answer("n").expect("why? (the model reads it)").press("never").expect("why? (the model reads it) never");
    terminal.press("\u{1b}").expect_written("approval 1 · ", 2).answer("n").expect("why? (the model reads it)");
    terminal.press("no").expect("reads it) no").press("\u{1b}[D").press("\u{1b}[D").press("please ");
    terminal.expect("why? (the model reads it) please no").press("\r");
    let left = terminal.left();
    assert_eq!((left.code, written(&sandbox)), (Some(0), None), "{}", left.screen);
    assert!(left.screen.contains("\nerror: refused: please no\n"), "{}", left.screen);
}

#[test]
fn a_small_terminal_shows_a_question_whole() {
    let sandbox = writer(WRITES);
    let terminal = Terminal::start_sized(sandbox.command(&RUN, &[]), (10, 30), Elsewhere::default());
    terminal.expect("   2 + here\ny yes  s this call\nt this tool  a always  e edit\nn no  q stop  ? explain\nAllow? ");
    terminal.answer("y");
    assert_eq!((terminal.left().code, written(&sandbox).is_some()), (Some(0), true));
}
