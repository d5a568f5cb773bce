//! Replies that count again: what is asked again, and what is not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, SeenRequest};
use serde_json::{Value, json};

use crate::support::{Ended, Sandbox};
use crate::{Desk, lines, said};

const CACHED: &str = "---\nname: triage\nmodel: anthropic:claude-haiku-4-5\ncache: content\n---\nSort what comes.\n";
const READS: &str = "---\nname: triage\nmodel: anthropic:claude-haiku-4-5\ncache: content\ntoolsets: [filesystem_cwd_ro]\n---\nSort what comes.\n";

/// One that costs something.
fn costs(reply: FakeReply) -> FakeReply {
    reply.with_usage(FakeUsage::new(1000, 100))
}

/// Reads a file if it can, and says what it has read.
fn reads(seen: &SeenRequest) -> FakeReply {
    let read: Vec<String> = seen.results().map(|(_, result)| result.to_owned()).collect();
    costs(match read.as_slice() {
        [] if seen.tools.iter().any(|tool| tool.name == "read_file") => {
            FakeReply::calls([FakeCall::new("read_file", json!({"path": "a.md"}))])
        }
        read => FakeReply::text(&format!("{} {}", said(seen), read.concat())),
    })
}

fn ask(desk: &Desk, arguments: &[&str]) -> Ended {
    desk.run(&[&["run", "triage.worker"], arguments].concat())
}

/// How many requests this takes.
fn taken(desk: &Desk, run: impl FnOnce() -> Ended) -> usize {
    let before = desk.fake.requests().len();
    let ended = run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    desk.fake.requests().len() - before
}

#[test]
fn a_second_run_asks_nobody_and_says_what_that_saved() {
    let desk = Desk::of(READS, reads);
    desk.sandbox.file("a.md", "a plum");
    let first = ask(&desk, &["hi", "--json"]);
    let second = ask(&desk, &["hi", "--json"]);
    assert_eq!(desk.fake.requests().len(), 2, "two requests of one run: {}", second.stderr);
    let result = |ended: &Ended| -> Value { serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap() };
    let (first, second) = (result(&first), result(&second));
    assert_eq!(first["output"], second["output"]);
    assert!(first["usage"].get("saved").is_none());
    let usage = &second["usage"];
    assert_eq!((&usage["total"]["requests"], &usage["saved"]["requests"]), (&json!(0), &json!(2)));
    assert_eq!(usage["saved"]["cost_usd"], first["usage"]["total"]["cost_usd"]);
    let told = ask(&desk, &["hi", "--output-format", "stream-json"]).stdout;
    let kinds: Vec<String> = lines(&told).iter().filter_map(|line| Some(line["type"].as_str()?.to_owned())).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "cache_hit").count(), 2, "{kinds:?}");
    assert!(kinds.contains(&"tool_called".to_owned()), "its tools run");
    assert!(!kinds.contains(&"request_started".to_owned()), "{kinds:?}");
    // What a run costs is what it was asked for, and a run that is shown says where its answer is from.
    let costs = desk.run(&["costs", "--json"]).stdout;
    assert_eq!(lines(&costs)[0]["in"], json!(2000), "{costs}");
}

#[test]
fn what_was_read_has_to_be_what_it_was() {
    let desk = Desk::of(READS, reads);
    desk.sandbox.file("a.md", "a plum").file("b.md", "other");
    assert_eq!(taken(&desk, || ask(&desk, &["hi"])), 2);
    desk.sandbox.file("b.md", "what it has not read");
    assert_eq!(taken(&desk, || ask(&desk, &["hi"])), 0);
    desk.sandbox.file("a.md", "an apple");
    let ended = ask(&desk, &["hi", "--explain-cache"]);
    assert!(ended.stdout.contains("an apple"), "{}", ended.stdout);
    let why = "cache: `triage` is asked: the result of read_file has changed since the nearest request that is kept";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    assert_eq!(taken(&desk, || ask(&desk, &["hi"])), 0, "that is known now");
    desk.sandbox.file("a.md", "a plum");
    assert_eq!(taken(&desk, || ask(&desk, &["hi"])), 0, "and this still");
    fs::remove_file(desk.sandbox.path().join("a.md")).unwrap();
    assert_eq!(taken(&desk, || ask(&desk, &["hi"])), 1);
}

#[test]
fn each_of_twelve_edits_is_asked_about_and_its_undoing_is_not() {
    let desk = Desk::of(READS, reads);
    let worker = |from: &str, to: &str| {
        assert!(READS.contains(from), "{from}");
        READS.replace(from, to)
    };
    let first: [(&str, String); 4] = [
        ("triage.worker", READS.to_owned()),
        ("a.md", "a plum".to_owned()),
        ("note.txt", "attached".to_owned()),
        (
            "project.json",
            r#"{"version": 1, "entry": {"agent": "triage"}, "worker_files": ["triage.worker"]}"#.to_owned(),
        ),
    ];
    let restore = || {
        for (path, text) in &first {
            desk.sandbox.file(path, text);
        }
    };
    restore();
    let run = |more: &[&str]| desk.run(&[&["run", ".", "hi", "--file", "note.txt"], more].concat());
    assert_eq!(taken(&desk, || run(&[])), 2);
    let written: [(&str, String); 9] = [
        ("triage.worker", worker("Sort what comes.", "Sort what comes!")),
        ("triage.worker", worker("haiku-4-5", "sonnet-4-5")),
        ("triage.worker", worker("cache:", "model_settings: {temperature: 0.5}\ncache:")),
        ("triage.worker", worker("cache:", "model_settings: {max_tokens: 999}\ncache:")),
        ("triage.worker", worker("cache:", "schema_out: {type: object}\ncache:")),
        ("triage.worker", worker("filesystem_cwd_ro", "filesystem_project_ro")),
        ("triage.worker", worker("toolsets: [filesystem_cwd_ro]\n", "")),
        ("a.md", "a plum!".to_owned()),
        ("note.txt", "attached!".to_owned()),
    ];
    for round in 0..5 {
        for (path, text) in &written {
            // The schema wants what the provider does not say: it is asked often, and fails.
            let text = text
                .replace("Sort what comes", &format!("Sort what comes {round}"))
                .replace("a plum!", &format!("a plum {round}"))
                .replace("attached!", &format!("attached {round}"));
            desk.sandbox.file(path, &text);
            let before = desk.fake.requests().len();
            let _ = run(&[]);
            assert!(desk.fake.requests().len() > before, "{path}: {text}");
            restore();
            assert_eq!(taken(&desk, || run(&[])), 0, "{path}: {text}");
        }
        let other = format!("hi {round}");
        assert!(taken(&desk, || desk.run(&["run", ".", &other, "--file", "note.txt"])) > 0, "the input");
        let two_files = taken(&desk, || desk.run(&["run", ".", "hi", "--file", "note.txt", "--file", "a.md"]));
        assert_eq!(two_files > 0, round == 0, "one more file: {two_files}");
        assert!(taken(&desk, || run(&["--no-cache"])) == 2, "anew");
        assert_eq!(taken(&desk, || run(&[])), 0);
    }
    // The same names at another address are others.
    let other = FakeLlm::start(FakeScript::new().answer(|seen| Some(reads(seen))).accept_foreign_history());
    let url = other.anthropic_url();
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", "k")];
    let ended = desk.sandbox.run_in(&["run", ".", "hi", "--file", "note.txt"], &variables);
    assert_eq!((ended.code, other.requests().len()), (Some(0), 2), "{}", ended.stderr);
}

/// What comes to no answer is asked again.
#[test]
fn a_turn_that_failed_is_kept_nowhere() {
    let typed = CACHED
        .replace("cache:", "schema_out: {type: object, properties: {kind: {type: string}}, required: [kind]}\ncache:");
    let desk = Desk::of(&typed, |_| costs(FakeReply::text("{}")));
    let failed = |desk: &Desk| {
        let before = desk.fake.requests().len();
        assert_eq!(ask(desk, &["hi"]).code, Some(6));
        desk.fake.requests().len() - before
    };
    assert_eq!((failed(&desk), failed(&desk)), (4, 4));
}

#[test]
fn a_list_pays_for_what_is_new() {
    let desk = Desk::of(CACHED, |seen| costs(FakeReply::text(&format!("sorted {}", said(seen)))));
    let map = |file: &str| desk.run(&["map", "triage", "--over", file, "-j", "5"]);
    desk.sandbox.file("items.txt", "a\nb\nc\nd\n");
    assert_eq!(taken(&desk, || map("items.txt")), 4);
    let again = map("items.txt");
    assert_eq!((again.stderr.as_str(), desk.fake.requests().len()), ("4 of 4 items answered · 4 from the cache\n", 4));
    desk.sandbox.file("other.txt", "new\na\nb\nchanged\nd\n");
    let before = desk.fake.requests().len();
    let ended = map("other.txt");
    assert_eq!(ended.stderr, "5 of 5 items answered · 3 from the cache\n");
    assert_eq!(desk.fake.requests().len() - before, 2);
    let outputs: Vec<String> =
        lines(&ended.stdout).iter().filter_map(|line| Some(line["output"].as_str()?.to_owned())).collect();
    assert_eq!(outputs, ["sorted new", "sorted a", "sorted b", "sorted changed", "sorted d"]);
}

#[test]
fn each_item_that_is_asked_about_says_what_has_changed() {
    let desk = Desk::of(CACHED, |seen| costs(FakeReply::text(&format!("sorted {}", said(seen)))));
    desk.sandbox.file("items.txt", "a\nb\n");
    assert_eq!(desk.run(&["map", "triage", "--over", "items.txt"]).code, Some(0));
    desk.sandbox.file("items.txt", "a\nchanged\n");
    for (flags, expected) in [
        (&["--explain-cache"][..], "note: item 2: cache: `triage` is asked: the input has changed"),
        (&["--explain-cache", "-q"], ""),
        (&[], "2 of 2 items answered · 2 from the cache\n"),
    ] {
        let ended = desk.run(&[&["map", "triage", "--over", "items.txt"], flags].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.starts_with(expected), "{flags:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("item 1"), "{flags:?}: {}", ended.stderr);
    }
}

/// Three agents that code calls one after the other.
#[test]
fn editing_the_second_of_three_asks_it_and_the_third_again() {
    let kit = "\
from llm_do.runtime import CallContext, EntrySpec, PromptInput
async def main(args: PromptInput, ctx: CallContext):
    said = args.input
    for agent in ('one', 'two', 'three'):
        said = await ctx.call_agent(agent, said)
    return said
start = EntrySpec(name='start', main=main)
";
    let agent =
        |name: &str, words: &str| format!("---\nname: {name}\nmodel: anthropic:m\ncache: content\n---\n{words}\n");
    let sandbox = Sandbox::new().told();
    sandbox
        .file("kit.py", kit)
        .file("project.json", r#"{"version": 1, "entry": {"function": "kit.py:start"}, "worker_files": ["one.worker", "two.worker", "three.worker"], "python_files": ["kit.py"]}"#);
    for name in ["one", "two", "three"] {
        sandbox.file(&format!("{name}.worker"), &agent(name, name));
    }
    // What it says depends on what it is told to do.
    let reply = |seen: &SeenRequest| FakeReply::text(&format!("{} {}", said(seen), seen.system));
    let fake = FakeLlm::start(FakeScript::new().answer(move |seen| Some(reply(seen))).accept_foreign_history());
    let desk = Desk { sandbox, fake };
    let run = || desk.run(&["run", ".", "go", "--trust", "-q"]);
    let asked = |run: &dyn Fn() -> Ended| {
        let before = desk.fake.requests().len();
        let ended = run();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let seen = desk.fake.requests().into_iter().skip(before).filter_map(|request| request.seen);
        let asked: Vec<String> = seen.map(|seen| seen.system).collect();
        (ended.stdout, asked)
    };
    let (first, all) = asked(&run);
    assert_eq!((first.as_str(), all.len()), ("go one two three\n", 3));
    assert_eq!(asked(&run), (first, Vec::new()));
    desk.sandbox.file("two.worker", &agent("two", "second"));
    let (answer, again) = asked(&run);
    assert_eq!(answer, "go one second three\n");
    assert_eq!(again, ["second", "three"]);
}

#[test]
fn who_writes_asks_or_goes_out_is_always_asked() {
    let cases = [
        ("toolsets: [filesystem_cwd]\n", "write_file writes files"),
        ("toolsets: [ask_user]\n", "ask_user asks first"),
        ("toolsets: [filesystem_cwd_ro]\napproval: { read_file: ask }\n", "read_file asks first"),
        ("server_side_tools: [{tool_type: web_search}]\n", "web_search reaches the network"),
    ];
    for (keys, why) in cases {
        let desk = Desk::of(&CACHED.replace("cache:", &format!("{keys}cache:")), |_| FakeReply::text("yes"));
        let checked = desk.run(&["check", "triage.worker"]);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        let line = checked.stdout.lines().find(|line| line.contains("cache ")).unwrap_or_default();
        assert!(line.contains("not used: triage") && line.contains(why), "{keys}: {}", checked.stdout);
        for _ in 0..2 {
            let ended = ask(&desk, &["hi", "--explain-cache", "--trust"]);
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            assert!(ended.stderr.contains("cache: `triage` is always asked: "), "{}", ended.stderr);
        }
        assert_eq!(desk.fake.requests().len(), 2, "{keys}");
    }
    let desk = Desk::of(READS, reads);
    let checked = desk.run(&["check", "triage.worker", "--json"]);
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(checked["agents"][0]["cache"], json!({"not_used_because": null}));
    assert!(desk.run(&["check", "triage.worker"]).stdout.contains("    cache   replies count again\n"));
    // Through another agent, too.
    desk.sandbox
        .file("editor.worker", "---\nname: editor\nmodel: anthropic:m\ntoolsets: [filesystem_cwd]\n---\nEdit.\n")
        .file("triage.worker", &READS.replace("filesystem_cwd_ro", "editor"))
        .file(
            "project.json",
            r#"{"version": 1, "entry": {"agent": "triage"}, "worker_files": ["triage.worker", "editor.worker"]}"#,
        );
    let checked = desk.run(&["check", "."]).stdout;
    assert!(checked.contains("not used: triage → editor → write_file writes files"), "{checked}");
}

/// Where the replies are.
fn kept(sandbox: &Sandbox) -> Vec<PathBuf> {
    let all = sandbox.tree().into_keys().map(|path| sandbox.path().join(path));
    all.filter(|path| path.to_string_lossy().contains("/replies/")).filter(|path| path.is_file()).collect()
}

#[test]
fn what_is_kept_is_listed_and_forgotten() {
    let desk = Desk::of(CACHED, |seen| costs(FakeReply::text(&said(seen))));
    let none = desk.run(&["cache"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(none.stderr.contains("nothing is kept"), "{}", none.stderr);
    for input in ["a", "b", "a"] {
        assert_eq!(ask(&desk, &[input]).code, Some(0));
    }
    let files = kept(&desk.sandbox);
    assert!(files.len() >= 4, "{files:?}");
    assert!(files.iter().all(|file| file.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
    let listed = lines(&desk.run(&["cache", "--json"]).stdout);
    assert_eq!((&listed[0]["agent"], &listed[0]["replies"]), (&json!("triage"), &json!(2)));
    assert_eq!(listed[0]["saved"]["requests"], json!(1));
    let table = desk.run(&["cache"]).stdout;
    assert!(table.starts_with("PROJECT") && table.contains("triage        2"), "{table}");
    let unknown = desk.run(&["cache", "rm", "nobody"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("nothing is kept of an agent `nobody`"), "{}", unknown.stderr);
    let removed = desk.run(&["cache", "rm", "triage"]);
    assert_eq!((removed.code, removed.stderr.as_str()), (Some(0), "2 replies forgotten\n"));
    assert_eq!(taken(&desk, || ask(&desk, &["a"])), 1);
}

/// A reply that somebody else wrote there counts for nothing, and one in a chat is asked for.
#[test]
fn a_strangers_reply_and_a_chat_are_asked() {
    let desk = Desk::of(CACHED, |seen| costs(FakeReply::text(&said(seen))));
    assert_eq!(taken(&desk, || ask(&desk, &["a"])), 1);
    for file in kept(&desk.sandbox).iter().filter(|file| file.file_name().unwrap().len() == 64) {
        let forged = fs::read_to_string(file).unwrap().replace("\"a\"", "\"b\"");
        fs::write(file, forged).unwrap();
    }
    let ended = ask(&desk, &["a"]);
    assert_eq!((ended.stdout.as_str(), desk.fake.requests().len()), ("a\n", 2));
    let mut counts = BTreeMap::new();
    for arguments in [["chat", "triage.worker"], ["chat", "triage.worker"]] {
        let mut chat = desk.sandbox.command(&arguments, &[]);
        chat.envs(desk.variables());
        desk.sandbox.file("words.txt", "a\n");
        chat.stdin(fs::File::open(desk.sandbox.path().join("words.txt")).unwrap());
        let ended =
            crate::support::wait(chat.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        *counts.entry(desk.fake.requests().len()).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([(3, 1), (4, 1)]), "each chat asks");
}
