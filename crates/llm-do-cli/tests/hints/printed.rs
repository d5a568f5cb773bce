//! Every command in the sources that is printed in a hint, and what comes of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::World;

/// As it stands in the sources; as it is typed, with a run of its own for `DONE`, `WAITS` (and its question `ASKED`, or one with
/// a form: `FORM`) and `CHAT`; what is seen then.
type Row = (&'static str, &'static str, &'static str);

const SAYS: &str = "-m scripted:script.yaml hi";

/// `…` is what is said to the desk.
const HINTED: &[Row] = &[
    ("llm-do --version", "llm-do --version", "llm-do 0."),
    ("llm-do . \"…\"", "cd desk; llm-do . -m scripted:../script.yaml hi", "done: hi"),
    ("llm-do ./{name}", "cp -r desk run; llm-do ./run …", "done: hi"),
    ("llm-do PROJECT \"…\"", "llm-do desk …", "done: hi"),
    ("llm-do chat --continue", "llm-do inbox; cd desk; true CHAT; cd ..; llm-do chat desk --continue", "1 turn so far"),
    ("llm-do chat --continue {id}", "llm-do chat --continue CHAT", "1 turn so far"),
    ("llm-do chat --continue {}", "llm-do chat --continue CHAT", "1 turn so far"),
    ("llm-do chat PROJECT", "echo hi | llm-do chat desk -m scripted:script.yaml", "done: hi"),
    ("llm-do chat PROJECT --continue", "true CHAT; llm-do chat desk --continue", "1 turn so far"),
    ("llm-do chat {} --continue {run}", "llm-do chat desk --continue CHAT", "1 turn so far"),
    ("llm-do check", "cd desk; llm-do check", "ok: 1 agent"),
    ("llm-do check --trust", "cd desk; llm-do check --trust", "ok: 1 agent"),
    ("llm-do check PROJECT", "llm-do check desk", "ok: 1 agent"),
    ("llm-do check PROJECT --dot", "llm-do check desk --dot", "digraph"),
    ("llm-do check PROJECT --trust", "llm-do check desk --trust", "ok: 1 agent"),
    ("llm-do check {shown}", "llm-do check desk", "ok: 1 agent"),
    ("llm-do check {} --trust", "llm-do check desk --trust", "ok: 1 agent"),
    ("llm-do costs", "llm-do desk …; llm-do costs", "total"),
    ("llm-do cache", "llm-do cache", "nothing is kept"),
    ("llm-do doctor", "llm-do doctor", "ok    program"),
    // Nobody is there whom it could ask.
    (
        "llm-do harden {name}{project}",
        "llm-do harden sorter sortable -m scripted:script.yaml || test $? = 4",
        "hardening asks three questions",
    ),
    (
        "llm-do harden {name}{project} --status",
        "llm-do harden sorter hardened --status -m scripted:script.yaml",
        "mode agent",
    ),
    ("llm-do hello", "llm-do new hello && llm-do hello …", "done: hi"),
    ("llm-do inbox", "true WAITS; llm-do inbox", "main › write_file"),
    ("llm-do inbox answer {name} {}", "llm-do inbox answer FORM version=2", "answered"),
    ("llm-do inbox answer {name} {} --go", "llm-do inbox answer FORM version=2 --go", "done: "),
    ("llm-do inbox approve {name}", "llm-do inbox approve ASKED", "approved"),
    ("llm-do inbox approve {short}", "llm-do inbox approve ASKED", "approved"),
    ("llm-do inbox show {name}", "llm-do inbox show ASKED", "creates out.txt"),
    ("llm-do map AGENT PROJECT", "llm-do map main desk --over items.txt -m scripted:script.yaml", "done: one"),
    (
        "llm-do map {name}{project} --over FILE",
        "llm-do map main desk --over items.txt -m scripted:script.yaml",
        "done: one",
    ),
    ("llm-do models", "llm-do models", "ollama"),
    ("llm-do models --use NAME", "llm-do models --use ollama:qwen3", "ollama:qwen3"),
    ("llm-do models --use {WITHOUT_KEY}", "llm-do models --use ollama:qwen3", "ollama:qwen3"),
    ("llm-do models --use {name}", "llm-do models --use ollama:qwen3", "ollama:qwen3"),
    ("llm-do models --use {provider}:{}", "llm-do models --use ollama:qwen3", "ollama:qwen3"),
    ("llm-do new --worker {name}", "llm-do new --worker helper && cat helper.worker", "name: helper"),
    ("llm-do new DIRECTORY", "llm-do new place && llm-do check place", "ok: 1 agent"),
    (
        "llm-do new demo --template demo && llm-do demo",
        "llm-do new demo --template demo && llm-do demo --approve-all",
        "haiku",
    ),
    ("llm-do new hello", "rm -rf hello; llm-do new hello && llm-do check hello", "ok: 1 agent"),
    ("llm-do new my-{name}", "llm-do new my-run && llm-do check my-run", "ok: 1 agent"),
    // Without a terminal it says which file it is.
    ("llm-do policy edit", "llm-do policy edit || test $? = 2", "rules.toml"),
    ("llm-do resume", "llm-do resume DONE", "done: hi"),
    ("llm-do resume --last", "true DONE; llm-do resume --last", "done: hi"),
    ("llm-do resume ID", "llm-do resume DONE", "done: hi"),
    ("llm-do resume RUN", "llm-do resume DONE", "done: hi"),
    ("llm-do resume RUN --show", "llm-do resume WAITS --show", "creates out.txt"),
    ("llm-do resume {id}", "llm-do resume DONE", "done: hi"),
    ("llm-do resume {id} --force", "llm-do resume DONE --force", "done: hi"),
    ("llm-do resume {id}{approve}", "llm-do resume WAITS --approve ASKED", "done: wrote"),
    (
        "llm-do resume {id}{refuse}",
        "rm -f out.txt; llm-do resume WAITS --refuse ASKED; ! test -e out.txt",
        "done: error: refused",
    ),
    ("llm-do resume {run}", "llm-do inbox approve ASKED && llm-do resume WAITS", "done: wrote"),
    ("llm-do resume {}", "llm-do desk … --journal j && llm-do resume j", "done: hi"),
    ("llm-do run", "llm-do run desk …", "done: hi"),
    ("llm-do run PROJECT", "llm-do run desk …", "done: hi"),
    (
        "llm-do run PROJECT --replay FILE",
        "rm -f j; llm-do desk … --journal j && llm-do run desk --replay j -m scripted:script.yaml",
        "done: hi",
    ),
    ("llm-do run PROJECT PROMPT", "llm-do run desk hi -m scripted:script.yaml", "done: hi"),
    ("llm-do run hello …", "llm-do new hello && llm-do run hello …", "done: hi"),
    ("llm-do runs", "true DONE; llm-do runs", "desk"),
    ("llm-do runs --all", "true DONE; llm-do runs --all", "desk"),
    ("llm-do runs cancel RUN", "llm-do runs cancel WAITS", ""),
    ("llm-do runs cancel {id}", "llm-do runs cancel WAITS", ""),
    ("llm-do runs follow RUN", "llm-do runs follow DONE", "done: hi"),
    ("llm-do runs follow {id}", "llm-do runs follow DONE", "done: hi"),
    ("llm-do runs fork RUN", "llm-do runs fork DONE", "is a fork of"),
    ("llm-do runs fork {id}", "llm-do runs fork DONE", "is a fork of"),
    ("llm-do runs fork {id} --turn {}", "llm-do runs fork CHAT --turn 1", "is a fork of"),
    ("llm-do runs rm {id} --force", "llm-do runs rm DONE --force", ""),
    ("llm-do runs show RUN", "llm-do runs show DONE", "to go on:"),
    ("llm-do runs show {id}", "llm-do runs show DONE", "to go on:"),
    ("llm-do runs show {}", "llm-do runs show DONE", "to go on:"),
    ("llm-do soften {name}{project}", "llm-do soften sorter hardened && test -e hardened/sorter.worker", "sorter"),
    (
        "llm-do test {} --add RUN",
        "rm -f desk/main.test.yaml; llm-do test desk --add DONE; cat desk/main.test.yaml",
        "input:",
    ),
    (
        "llm-do test {project} --record",
        "rm -rf desk/main.test.yaml desk/*.records; printf -- 'cases:\\n- name: greets\\n  input: hi\\n' > desk/main.test.yaml; \
         llm-do test desk --record -m scripted:script.yaml && llm-do test desk -m scripted:script.yaml",
        "1 passed",
    ),
    ("llm-do {name} …", "llm-do check desk --json", "\"agents\""),
    ("llm-do {}", "llm-do desk …", "done: hi"),
    ("llm-do {} -m all={model}", "llm-do fenced -m all=scripted:script.yaml hi", "done: hi"),
    ("llm-do {} -m {name}", "llm-do desk -m scripted:script.yaml hi", "done: hi"),
];

/// What begins like a command and is none: the line of `doctor` that says which program this is, and the line of written code
/// that says who wrote it.
const NONE: &[&str] = &[
    "llm-do {}, {program}",
    "llm-do harden",
    // These need a server that people log in to: tests/mcp/oauth.rs types them.
    "llm-do mcp login {server} {}",
    "llm-do mcp login {}",
    // These need an engine: crates/parts tries them.
    "llm-do engine-worker PROJECT --restate ADMIN_URL",
    "llm-do inbox approve {id} --on {url}",
    "llm-do runs --on {url}",
    "llm-do runs export RUN --format bundle",
    "llm-do runs follow {run}",
    "llm-do runs follow {run} --on {url}",
    "llm-do runs key",
    "llm-do runs show RUN --on {url}",
    "llm-do runs show {run} --on {url}",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The text of a file as it is compiled into the program: no tests, no comments, literals in one line.
fn compiled(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut lines = String::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        match line.strip_suffix('\\') {
            Some(begun) if lines.ends_with('\n') || lines.is_empty() => lines += begun,
            Some(begun) => lines += begun.trim_start(),
            None if lines.ends_with('\n') || lines.is_empty() => lines = lines + line + "\n",
            None => lines = lines + line.trim_start() + "\n",
        }
    }
    lines
}

/// What stands between a sign and the next one like it, and begins like a command of ours.
fn between<'a>(text: &'a str, sign: char, start: &'a str) -> impl Iterator<Item = &'a str> {
    let begun = text.match_indices(sign).map(|(at, _)| &text[at + 1..]);
    let meant = begun.filter_map(move |rest| rest.strip_prefix(start).map(|rest| (rest, start)));
    meant.filter_map(move |(rest, _)| Some(&rest[..rest.find(sign)?]))
}

#[test]
fn every_command_that_is_printed_has_a_row() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in ["llm-do", "llm-do-launch", "llm-do-cli", "llm-do-web"] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    let mut printed = BTreeSet::new();
    for file in &files {
        let text = compiled(file);
        printed.extend(between(&text, '`', "llm-do ").map(|rest| format!("llm-do {}", rest.replace("\\\"", "\""))));
        let is_library = file.starts_with(crates.join("llm-do"));
        if !is_library && !file.ends_with("args.rs") {
            for start in ["llm-do ", "next: llm-do "] {
                printed.extend(between(&text, '"', start).map(|rest| format!("llm-do {rest}")));
            }
        }
    }
    let printed: BTreeSet<String> = printed
        .into_iter()
        .map(|command| command.replace("\\n", "").trim_end_matches('\\').to_owned())
        .filter(|command| !NONE.contains(&command.as_str()) && command != "llm-do {next}")
        .collect();
    let rows: BTreeSet<String> = HINTED.iter().map(|(printed, ..)| (*printed).to_owned()).collect();
    let missing: Vec<&String> = printed.difference(&rows).collect();
    assert!(missing.is_empty(), "a hint prints what nobody tries: {missing:#?}");
    let gone: Vec<&String> = rows.difference(&printed).collect();
    assert!(gone.is_empty(), "nothing prints this any more: {gone:#?}");
}

#[test]
fn every_command_that_is_printed_does_what_its_hint_says() {
    let mut failed = String::new();
    for (printed, typed, words) in HINTED {
        let world = World::new();
        let line = world.filled(&typed.replace('…', SAYS));
        let ended = world.types(&line);
        if ended.code != Some(0) || !format!("{}{}", ended.stdout, ended.stderr).contains(words) {
            failed += &format!(
                "=== `{printed}`: no {words:?}\n$ {line}\n{}{}[{:?}]\n",
                ended.stdout, ended.stderr, ended.code
            );
        }
    }
    assert!(failed.is_empty(), "{failed}");
}
