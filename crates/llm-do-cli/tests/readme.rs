//! The commands that the README and the examples show do what is said of them. A command that this file does not know
//! fails it, so that none is shown without having been run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

#[path = "support/session.rs"]
mod session;

use std::fs;
use std::path::{Path, PathBuf};

use fake_llm::{FakeLlm, Reply, Script};
use session::Run;
use support::{Ended, Sandbox};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// A command of a document, and what is shown beneath it.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    output: String,
}

/// The commands of all fences `sh` and `console`, and of indented lines that start with the program's name.
fn shown(document: &str) -> Vec<Shown> {
    let mut commands: Vec<Shown> = Vec::new();
    let mut fence = None;
    for line in document.lines() {
        let command = match (fence, line.strip_prefix("```")) {
            (None, Some(language)) => {
                fence = Some(language);
                continue;
            }
            (Some(_), Some(_)) => {
                fence = None;
                continue;
            }
            (None, None) => line.strip_prefix("    ").filter(|line| line.starts_with("llm-do ")),
            (Some("sh"), None) => Some(line),
            (Some("console"), None) => line.strip_prefix("$ "),
            (Some(_), None) => None,
        };
        match (command, commands.last_mut()) {
            (Some(command), _) => commands.push(Shown { command: command.to_owned(), output: String::new() }),
            (None, Some(last)) if fence == Some("console") => last.output.extend([line, "\n"]),
            (None, _) => {}
        }
    }
    commands
}

/// The words of a command as a shell would see them, without its comment.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            (Some(_) | None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A copy of the examples, and what the README takes for granted beside them.
fn workplace() -> Sandbox {
    let sandbox = Sandbox::new();
    copy(&repository().join("examples"), &sandbox.path().join("examples"));
    sandbox.file("reviewer/main.worker", "---\nname: main\nmodel: anthropic:claude-haiku-4-5\n---\nReview.\n");
    sandbox.file("paper.pdf", "%PDF-1.4\n%%EOF\n");
    sandbox
}

/// Without what somebody's own runs have written there.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == "drafts" => {}
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Runs a command that starts our program, with every provider played by `fake`.
fn ran(sandbox: &Sandbox, fake: &FakeLlm, command: &str) -> Ended {
    let command = words(command);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let (stdin, arguments) = match words.as_slice() {
        ["git", "diff", "|", "llm-do", arguments @ ..] => (Some("- old\n+ new\n"), arguments),
        ["cargo", "run", "-q", "-p", "llm-do-cli", "--", arguments @ ..] | ["llm-do", arguments @ ..] => {
            (None, arguments)
        }
        other => panic!("nobody knows how to run {other:?}"),
    };
    let run = Run::of(sandbox, arguments).asking(fake).with("OLLAMA_HOST", fake.url());
    let run = if let Some(stdin) = stdin { run.hearing(stdin) } else { run };
    run.ended()
}

fn provider() -> FakeLlm {
    FakeLlm::start(Script::new().otherwise(Reply::text("An answer of the provider.")).accept_missing_key())
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    let (sandbox, fake) = (workplace(), provider());
    for Shown { command, output } in shown(&read("README.md")) {
        if command == "cargo test --workspace" {
            continue; // this test is a part of it
        }
        let is_mistaken = command == "llm-do check hello";
        let worker = sandbox.path().join("hello/main.worker");
        let before = is_mistaken.then(|| fs::read_to_string(&worker).unwrap());
        if let Some(text) = &before {
            let model = "model: anthropic:claude-haiku-4-5\n";
            fs::write(&worker, text.replace(model, &format!("{model}toolset: [shell_readonly]\n"))).unwrap();
        }
        let ended = ran(&sandbox, &fake, &command);
        assert_eq!(ended.code, Some(if is_mistaken { 2 } else { 0 }), "{command}: {ended:?}");
        if !output.is_empty() {
            assert_eq!(format!("{}{}", ended.stdout, ended.stderr), output, "{command}");
        }
        if let Some(text) = before {
            fs::write(&worker, text).unwrap();
        }
    }
    assert_eq!(fake.violations(), []);
    let heard: Vec<String> =
        fake.requests().iter().map(|request| request.seen.as_ref().unwrap().last_user_text()).collect();
    assert_eq!(heard, ["What is a monad?", "Review this\n\n<stdin>\n- old\n+ new\n</stdin>", "Summarise"]);
    let article = fs::read_to_string(sandbox.path().join("examples/desk/drafts/harbour.md")).unwrap();
    assert!(article.contains("60 tonnes"), "{article}");
}

#[test]
fn the_commands_of_the_examples_run() {
    for example in fs::read_dir(repository().join("examples")).unwrap() {
        let example = example.unwrap();
        if example.file_name() == "library" || example.file_name() == "steward" {
            continue; // they are run by the tests of Python and of programs
        }
        let (sandbox, fake) = (workplace(), provider());
        let readme = fs::read_to_string(example.path().join("README.md")).unwrap();
        let commands = shown(&readme);
        assert!(!commands.is_empty(), "{readme}");
        for Shown { command, .. } in commands {
            let ended = ran(&sandbox, &fake, &command);
            // Some kernels have no fence, which is said.
            let said = ended.stderr.lines().filter(|line| !line.starts_with("note: commands run without a fence"));
            assert_eq!((ended.code, said.collect::<Vec<_>>()), (Some(0), Vec::new()), "{command}");
            assert!(!ended.stdout.is_empty(), "{command}");
        }
        assert_eq!(fake.violations(), []);
    }
}

/// What differs from run to run and place to place.
fn masked(text: &str) -> String {
    let mask = |line: &str| match line.split(' ').next() {
        Some("run") => "run … of … in …".to_owned(),
        Some("begun") => "begun … by …".to_owned(),
        Some(_) | None => line.to_owned(),
    };
    text.lines().map(mask).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sessions_of_durable_runs_are_as_they_print() {
    let (sandbox, fake) = (workplace(), provider());
    let sessions = shown(&read("docs/durable-runs.md"));
    let codes = [4, 0, 0, 0, 1];
    assert_eq!(sessions.len(), codes.len());
    for (Shown { command, output }, code) in sessions.into_iter().zip(codes) {
        let ended = ran(&sandbox, &fake, &command);
        assert_eq!(ended.code, Some(code), "{command}: {ended:?}");
        assert_eq!(masked(&format!("{}{}", ended.stderr, ended.stdout)), masked(&output), "{command}");
    }
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn the_desk_stops_at_its_write_without_an_approval() {
    let (sandbox, fake) = (workplace(), provider());
    let [first, _] = &shown(&read("README.md"))[..2] else { panic!("two commands") };
    let ended = ran(&sandbox, &fake, &first.command.replace(" --approve-all", ""));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""));
    assert!(ended.stderr.contains("desk › editor › write_file\n"), "{}", ended.stderr);
    assert!(!sandbox.path().join("examples/desk/drafts/harbour.md").exists());
    let ended = ran(&sandbox, &fake, &first.command);
    let answer = "(scripted) Done: wrote 44 characters to harbour.md\n";
    assert_eq!(ended, Ended { code: Some(0), stdout: answer.into(), stderr: String::new() });
}

#[test]
fn commands_are_found_as_a_reader_finds_them() {
    let document = "x\n    llm-do a\n    other\n```sh\nllm-do b  # why\n```\n```console\n$ llm-do c\nout\n\nmore\n```\n```\n$ no\n```\n";
    let found = |command: &str, output: &str| Shown { command: command.into(), output: output.into() };
    assert_eq!(
        shown(document),
        [found("llm-do a", ""), found("llm-do b  # why", ""), found("llm-do c", "out\n\nmore\n")]
    );
    assert_eq!(words("a \"b c\"  'd' '' e#f # g"), ["a", "b c", "d", "", "e#f"]);
}
