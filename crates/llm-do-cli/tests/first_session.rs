//! The session of `docs/first-session.md`, typed again: every command on a terminal, every answer as it is shown there.
//! `LLM_DO_WRITE_SESSION=1` writes down what is seen instead.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_llm::{At, Call, FakeLlm, Fault, Gate, On, Reply, Script, Seen, Usage};
use serde_json::json;
use support::Sandbox;
use terminal::{Terminal, timeless};

const HAIKU: &str = "Rain on the tin roof\ncounts what the evening forgot\nand begins again\n";

/// A provider that answers as the document says.
fn provider(gate: &Gate) -> FakeLlm {
    let words = |text: &str, tokens| Some(Reply::text(text).in_deltas(4).with_usage(Usage::new(tokens, 12)));
    let answer = move |seen: &Seen| {
        let asked = seen.last_user_text();
        match (asked.as_str(), seen.last_result()) {
            ("Write a haiku about rain to haiku.txt", None) => {
                let call = Call::new("write_file", json!({"content": HAIKU, "path": "haiku.txt"}));
                Some(Reply::calls([call]).with_usage(Usage::new(640, 58)))
            }
            (_, Some(result)) if result.contains("refused") => words("As you like: nothing was written.", 720),
            (_, Some(_)) => words("It is in **haiku.txt**.", 718),
            ("Who are you?", None) => words("I write *short* poems, `haiku` above all.", 612),
            ("And which is your favourite?", None) => words("The one about rain.", 655),
            ("Tell me a long story", None) => words("Once upon a time there was a list that did not end", 615),
            (asked, None) if asked.starts_with("How many lines?") => words("Three lines.", 641),
            (other, None) => panic!("nobody asks {other:?}"),
        }
    };
    let script = Script::new().answer(answer);
    // The story never comes to its end.
    let fault = Fault::Stall { at: At::Percent(60), gate: gate.clone() };
    FakeLlm::start(script.fault(On::Request(STORY), fault))
}

/// The how manieth request it is.
const STORY: usize = 11;

/// What is typed while a command runs: a text to wait for, then keys.
fn typed(command: &str, run: usize) -> &'static [(&'static str, &'static str)] {
    const ASKED: &str = "no, and end the run";
    match (command, run) {
        ("llm-do hello \"Write a haiku about rain to haiku.txt\"", 0) => {
            &[(ASKED, "n"), ("why not?", "not before dinner\r")]
        }
        ("llm-do hello \"Write a haiku about rain to haiku.txt\"", 1) => &[(ASKED, "y")],
        ("llm-do chat hello", _) => &[
            (">", "Who are you?\r"),
            ("above all.\n>", "And which is your favourite?\r"),
            ("about rain.\n>", "/usage\r"),
            ("$0.0014\n>", "\u{4}"),
        ],
        (story, _) if story.contains("long story") => &[("Once upon", "\u{3}")],
        _ => &[],
    }
}

/// A part of the document.
#[derive(Debug)]
enum Part {
    Words(String),
    File {
        path: String,
        text: String,
    },
    /// Each with what is shown beneath it.
    Commands(Vec<(String, String)>),
}

fn parts(document: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut fence: Option<(String, String)> = None;
    for line in document.split_inclusive('\n') {
        match (&mut fence, line.trim_end().strip_prefix("```")) {
            (None, Some(language)) => fence = Some((language.to_owned(), String::new())),
            (Some((_, text)), None) => text.push_str(line),
            (None, None) => match parts.last_mut() {
                Some(Part::Words(words)) => words.push_str(line),
                _ => parts.push(Part::Words(line.to_owned())),
            },
            (Some(_), Some(_)) => {
                let (language, text) = fence.take().unwrap();
                parts.push(match language.strip_prefix("text ") {
                    Some(path) => Part::File { path: path.to_owned(), text },
                    None => Part::Commands(commands(&text)),
                });
            }
        }
    }
    parts
}

fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.trim_end().to_owned(), String::new())),
            (None, Some((_, output))) => output.push_str(line),
            (None, None) => panic!("{line:?} is the output of nothing"),
        }
    }
    commands
}

/// Not every machine has it; what it would show is then taken for granted.
fn is_missing(command: &str) -> bool {
    command.contains("| jq ") && !["/usr/bin/jq", "/bin/jq"].iter().any(|path| Path::new(path).exists())
}

/// The screen of one command in a shell, with the command above it.
fn screen(sandbox: &Sandbox, fake: &FakeLlm, command: &str, run: usize) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_llm-do")).parent().unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).current_dir(sandbox.path()).env_clear().env("HOME", sandbox.path());
    shell.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
    shell.env("ANTHROPIC_BASE_URL", fake.anthropic_url()).env("ANTHROPIC_API_KEY", "sk-test-4711");
    let terminal = Terminal::start(shell);
    for (text, keys) in typed(command, run) {
        terminal.expect(text).press(keys);
    }
    let shown = terminal.left().screen;
    let lines: Vec<&str> = shown.trim_end().lines().map(str::trim_end).collect();
    format!("$ {command}\n{}\n", lines.join("\n"))
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/first-session.md")
}

#[test]
fn the_first_session_goes_as_it_is_written() {
    let (sandbox, gate) = (Sandbox::new(), Gate::new());
    let fake = provider(&gate);
    let written = fs::read_to_string(document()).unwrap();
    let mut runs: Vec<String> = Vec::new();
    let mut seen = String::new();
    for part in parts(&written) {
        match part {
            Part::Words(words) => seen.push_str(&words),
            Part::File { path, text } => {
                sandbox.file(&path, &text);
                seen.push_str(&format!("```text {path}\n{text}```\n"));
            }
            Part::Commands(commands) => {
                seen.push_str("```console\n");
                for (command, output) in commands {
                    let run = runs.iter().filter(|earlier| **earlier == command).count();
                    let shown = if is_missing(&command) {
                        format!("$ {command}\n{output}")
                    } else {
                        screen(&sandbox, &fake, &command, run)
                    };
                    seen.push_str(&shown);
                    runs.push(command);
                }
                seen.push_str("```\n");
            }
        }
    }
    if std::env::var_os("LLM_DO_WRITE_SESSION").is_some() {
        fs::write(document(), &seen).unwrap();
    }
    assert_eq!(timeless(&seen), timeless(&written), "\n{seen}");
    assert_eq!(fake.violations(), []);
    gate.wait_until_left(1);
}
