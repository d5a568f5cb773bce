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
    for command in ["run", "chat", "check", "new", "models", "schema", "completions"] {
        assert!(top.contains(&format!("\n  {command} ")), "{top}");
        let help = said(&[command, "--help"]);
        assert!(help.contains(&format!("llm-do {command}")), "{help}");
        assert!(command == "schema" || help.contains("Examples:"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    assert!(said(&["-h"]).contains("130 interrupted, 143 terminated"));
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
