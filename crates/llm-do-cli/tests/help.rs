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
    for command in ["run", "chat", "resume", "check", "new", "models", "doctor", "schema", "completions"] {
        assert!(top.contains(&format!("\n  {command} ")), "{top}");
        let help = said(&[command, "--help"]);
        assert!(help.contains(&format!("llm-do {command}")), "{help}");
        assert!(command == "schema" || help.contains("Examples:"), "{help}");
    }
    let short = said(&["-h"]).replace('\n', " ");
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
        "error: no such project: `init`\nhint: `llm-do new DIRECTORY` writes a project to start from\n"
    );
    assert_eq!(
        mistaken(&["chekc", "."]),
        "error: no such project: `chekc`\nhint: did you mean `check`? commands: cache, chat, check, completions, \
         costs, doctor, engine-worker, harden, inbox, map, mcp, models, and 11 more\n"
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
    let runs = "error: no such project: `sessions`\nhint: `llm-do runs` lists the runs that are kept\n";
    assert_eq!(mistaken(&["sessions"]), runs);
    for arguments in [&["config"][..], &["x", "--config", "y"]] {
        let said = mistaken(arguments);
        assert!(said.contains("/config.toml, and docs/configuration.md describes them\n"), "{said}");
    }
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
        assert!(said(&["completions", shell]).contains(&format!("__complete {shell} ")), "{shell}");
    }
    let Ended { code, stderr, .. } = Sandbox::new().run(&["completions", "tcsh"]);
    assert!(code == Some(2) && stderr.contains("[possible values: bash, "), "{stderr}");
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let Some((_, commands)) = help.split_once("Commands:\n") else { return Vec::new() };
    let lines = commands.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_help_of_every_command_fits_80_columns() {
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    let mut seen = 0;
    while let Some(command) = waiting.pop() {
        for flag in ["--help", "-h"] {
            let words: Vec<&str> = command.iter().map(String::as_str).chain([flag]).collect();
            let help = said(&words);
            let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{words:?}: {long:#?}");
        }
        let help = said(&command.iter().map(String::as_str).chain(["--help"]).collect::<Vec<_>>());
        waiting.extend(listed(&help).into_iter().map(|name| [command.as_slice(), &[name]].concat()));
        seen += 1;
    }
    assert!(seen > 20, "only {seen} commands were found");
}
