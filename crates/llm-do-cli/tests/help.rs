//! What the program says about itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use support::{Ended, Sandbox};

fn said(arguments: &[&str]) -> String {
    let Ended { code, stdout, stderr } = Sandbox::new().run(arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    stdout
}

#[test]
fn every_command_teaches_by_example() {
    let top = said(&["--help"]);
    for command in ["run", "chat", "resume", "check", "new", "models", "schema", "completions"] {
        assert!(top.contains(&format!("\n  {command} ")), "{top}");
        let help = said(&[command, "--help"]);
        assert!(help.contains(&format!("llm-do {command}")), "{help}");
        assert!(command == "schema" || help.contains("Examples:"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    let short = said(&["-h"]);
    for code in ["130 interrupted", "141 nobody reads stdout any more", "143 terminated"] {
        assert!(short.contains(code), "{code}: {short}");
    }
}

#[test]
fn help_on_chat_speaks_of_chat() {
    let help = said(&["chat", "--help"]);
    assert!(help.starts_with("Talk to a project: many turns, one memory\n\nUsage: llm-do chat "), "{help}");
    assert!(!help.contains("--chat"), "{help}");
    let Ended { code, stderr, .. } = Sandbox::new().run(&["chat", "x", "--bogus"]);
    assert!(code == Some(2) && stderr.contains("Usage: llm-do chat"), "{stderr}");
}

#[test]
fn help_is_also_a_command() {
    assert_eq!(said(&["help"]), said(&["--help"]));
    for command in ["run", "chat", "resume", "check"] {
        assert_eq!(said(&["help", command]), said(&[command, "--help"]));
    }
    assert!(said(&["help"]).contains("Usage: llm-do <PROJECT> [PROMPT] [OPTIONS]\n       llm-do <COMMAND>\n"));
}

#[test]
fn words_of_other_tools_are_answered_with_ours() {
    let mistaken = |arguments: &[&str]| {
        let Ended { code, stdout, stderr } = Sandbox::new().run(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        stderr
    };
    assert_eq!(
        mistaken(&["init", "x"]),
        "error: there is no project `init`\nhint: `llm-do new DIRECTORY` writes a project to start from\n"
    );
    assert_eq!(
        mistaken(&["chekc", "."]),
        "error: there is no project `chekc`\nhint: did you mean `check`? commands: chat, check, completions, \
         costs, inbox, models, new, policy, resume, run, runs, schema, and 2 more\n"
    );
    for arguments in [&["x", "--color=never"][..], &["run", "x", "--color", "never"]] {
        let said = mistaken(arguments);
        let expected = "error: unexpected argument '--color' found\n\n  \
                        tip: `NO_COLOR=1` in the environment turns colours off\n";
        assert!(said.starts_with(expected) && !said.contains("yolo"), "{said}");
    }
    for flag in ["--resume", "-r", "--session"] {
        let said = mistaken(&["x", flag]);
        assert!(
            said.contains("tip: every run is kept: `llm-do runs` lists them, `llm-do resume RUN` goes on"),
            "{said}"
        );
        assert!(said.contains("`llm-do chat --continue` with a chat\n"), "{said}");
    }
    assert!(mistaken(&["x", "--last"]).contains("tip: `llm-do resume --last` goes on with the last run"));
    assert!(mistaken(&["x", "--no-session"]).contains("tip: `--ephemeral` keeps nothing of a run"));
    let runs = "error: there is no project `sessions`\nhint: `llm-do runs` lists the runs that are kept\n";
    assert_eq!(mistaken(&["sessions"]), runs);
    // What there is here, though not for a run, is said in its own words.
    let said = "error: `--continue` is for `chat`; a run goes on with `llm-do resume ID`\n";
    assert_eq!((mistaken(&["x", "-c"]), mistaken(&["run", "x", "--continue"])), (said.to_owned(), said.to_owned()));
    for arguments in [&["x", "good", "morning"][..], &["chat", "x", "good", "morning"]] {
        let said = mistaken(arguments);
        assert!(said.contains("tip: a prompt of several words needs quotes\n\nUsage: llm-do "), "{said}");
    }
    assert!(!mistaken(&["check", "x", "y"]).contains("tip:"));
    assert!(mistaken(&["x", "--max-turn", "3"]).contains("'--max-turns'"), "what is near is still guessed");
}

#[test]
fn shells_complete_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&["completions", shell]);
        for word in ["chat", "check", "completions", "dry-run", "approve-all"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let Ended { code, stderr, .. } = Sandbox::new().run(&["completions", "tcsh"]);
    assert!(code == Some(2) && stderr.contains("[possible values: bash, "), "{stderr}");
}
