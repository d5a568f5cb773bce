//! Flags that cannot be meant together: refused when the words are read, whatever project stands behind them.

use std::process::Stdio;

use crate::hostile::HostileProject;
use crate::support::wait_for_all;
use crate::terminal::Terminal;

/// What is typed, and how the error begins.
const CONFLICTS: &[(&[&str], &str)] = &[
    (&["chat", "clone", "--replay", "x.journal"], "error: `--replay` cannot be used with `chat`\n"),
    (&["chat", "clone", "--once", "nightly"], "error: `--once` cannot be used with `chat`\n"),
    (
        &["chat", "clone", "--continue", "--label", "x"],
        "error: `--label` cannot be used with `--continue`: the chat has begun\n",
    ),
    (&["chat", "clone", "--dry-run"], "error: `--dry-run` cannot be used with `chat`\n"),
    (&["run", "clone", "--chat", "--replay", "x.journal"], "error: `--replay` cannot be used with `chat`\n"),
    (&["clone", "--continue"], "error: `--continue` is for `chat`; a run goes on with `llm-do resume ID`\n"),
    (&["run", "clone", "--force"], "error: the following required arguments were not provided:\n  --continue [<ID>]\n"),
    (
        &["run", "clone", "--ephemeral", "--durable"],
        "error: the argument '--ephemeral' cannot be used with '--durable'\n",
    ),
    (
        &["run", "clone", "--ephemeral", "--label", "x"],
        "error: the argument '--ephemeral' cannot be used with '--label <NAME>'\n",
    ),
    (
        &["run", "clone", "--ephemeral", "--once", "x"],
        "error: the argument '--ephemeral' cannot be used with '--once <KEY>'\n",
    ),
    (
        &["run", "clone", "--journal", "a.journal", "--ephemeral"],
        "error: the argument '--journal <FILE>' cannot be used with '--ephemeral'\n",
    ),
    (
        &["run", "clone", "--once", "x", "--replay", "a.journal"],
        "error: the argument '--once <KEY>' cannot be used with '--replay <FILE>'\n",
    ),
    (&["resume", "06gy3k", "--last"], "error: the argument '[RUN]' cannot be used with '--last'\n"),
    (
        &["run", "clone", "--journal", "a.journal", "--replay", "b.journal"],
        "error: the argument '--journal <FILE>' cannot be used with '--replay <FILE>'\n",
    ),
    (
        &["run", "clone", "--journal", "a.journal", "--dry-run"],
        "error: the argument '--journal <FILE>' cannot be used with '--dry-run'\n",
    ),
    (
        &["run", "clone", "--replay", "a.journal", "--dry-run"],
        "error: the argument '--replay <FILE>' cannot be used with '--dry-run'\n",
    ),
    (
        &["run", "clone", "--dry-run", "--timeout", "5"],
        "error: the argument '--dry-run' cannot be used with '--timeout <TIME>'\n",
    ),
    (
        &["run", "clone", "--dry-run", "-o", "answer.md"],
        "error: the argument '--dry-run' cannot be used with '--output <FILE>'\n",
    ),
    (
        &["run", "clone", "--approve-all", "--reject-all"],
        "error: the argument '--approve-all' cannot be used with '--reject-all'\n",
    ),
    (
        &["run", "clone", "--json", "--output-format", "json"],
        "error: the argument '--json' cannot be used with '--output-format <FORMAT>'\n",
    ),
    (&["run", "clone", "-q", "-v"], "error: the argument '--quiet' cannot be used with '--verbose...'\n"),
    (
        &["run", "clone", "hi", "--input-json", "{}"],
        "error: the argument '[PROMPT]' cannot be used with '--input-json <JSON>'\n",
    ),
    (&["run", "clone", "--foreign"], "error: the following required arguments were not provided:\n  --replay <FILE>\n"),
    (&["run", "clone", "-m", "a:b", "-m", "c:d"], "error: `--model` is given twice\n"),
    (&["run", "clone", "-m", "main=a:b", "-m", "main=c:d"], "error: `--model main=…` is given twice\n"),
    (&["run", "clone", "--max-cost-usd", "0"], "error: `--max-cost-usd` is not an amount\n"),
    (&["run", "clone", "--trust=yes"], "error: "),
    (
        &["run", "clone", "--trust", "0123456789abcdef0123456789abcdef"],
        "error: the digest of `--trust` stands behind `=`: `--trust=0123456789abcdef0123456789abcdef`\n",
    ),
    (&["check", "clone", "--json", "--dot"], "error: the argument '--json' cannot be used with '--dot'\n"),
    (
        &["resume", "x.journal", "--reason", "no"],
        "error: the following required arguments were not provided:\n  --refuse <ID>\n",
    ),
];

#[test]
fn conflicting_flags_fail_before_trust_python_and_stdin() {
    let project = HostileProject::new();
    let before = project.files();
    for (words, said) in CONFLICTS {
        let mut command = project.command(words);
        // Held open by us until it has ended: whoever reads it would wait.
        let (stdin, _held) = std::io::pipe().unwrap();
        let ended = wait_for_all(command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let is_json = words.iter().any(|word| word.contains("json") && !word.contains("input")) && words[0] == "run";
        assert_eq!((ended.code, ended.stdout.is_empty()), (Some(2), !is_json), "{words:?}: {ended:?}");
        assert!(ended.stderr.starts_with(said), "{words:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("With your rights"), "{words:?}: {}", ended.stderr);
        assert_eq!(project.files(), before, "{words:?}");
    }
    assert_eq!(project.fake.requests().len(), 0);
}

#[test]
fn nobody_at_a_terminal_is_asked_about_a_project_whose_flags_conflict() {
    let project = HostileProject::new();
    let before = project.files();
    for (words, said) in CONFLICTS.iter().take(6) {
        let left = Terminal::start(project.command(words)).left();
        assert_eq!((left.code, left.screen.trim_end()), (Some(2), said.trim_end()), "{words:?}");
    }
    assert_eq!(project.files(), before);
}
