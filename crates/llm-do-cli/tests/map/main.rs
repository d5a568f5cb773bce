//! `llm-do map`: an agent over the items of a list, as a person runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, its helpers too, and tells its counts"
)]

#[path = "../support/mod.rs"]
mod support;

mod asked;
mod cached;
mod kills;
mod limits;
mod tool;

use std::collections::BTreeMap;
use std::fs;

use fake_llm::{FakeLlm, FakeReply, FakeScript, Role, SeenMessage, SeenRequest};
use serde_json::{Value, json};
use support::{Ended, Sandbox};

pub(crate) const WORKER: &str = "---\nname: triage\nmodel: anthropic:m\n---\nSort what comes.\n";

/// What a user said last.
pub(crate) fn said(seen: &SeenRequest) -> String {
    let of_user = seen.messages.iter().filter(|message| message.role == Role::User);
    of_user.map(SeenMessage::text).next_back().unwrap_or_default()
}

/// A project with one agent, and a provider that says the item again.
pub(crate) struct Desk {
    pub(crate) sandbox: Sandbox,
    pub(crate) fake: FakeLlm,
}

impl Desk {
    pub(crate) fn of(worker: &str, reply: impl Fn(&SeenRequest) -> FakeReply + Send + Sync + 'static) -> Self {
        Self::with(worker, FakeScript::new().answer(move |seen| Some(reply(seen))).accept_foreign_history())
    }

    pub(crate) fn with(worker: &str, script: FakeScript) -> Self {
        let sandbox = Sandbox::new().told();
        sandbox.file("triage.worker", worker);
        Self { sandbox, fake: FakeLlm::start(script) }
    }

    pub(crate) fn new() -> Self {
        Self::of(WORKER, |seen| FakeReply::text(&format!("sorted {}", said(seen))))
    }

    pub(crate) fn variables(&self) -> [(&'static str, String); 2] {
        [("ANTHROPIC_BASE_URL", self.fake.anthropic_url()), ("ANTHROPIC_API_KEY", "k".to_owned())]
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        let variables = self.variables();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.sandbox.run_in(arguments, &variables)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.sandbox.path().join(path)).unwrap_or_default()
    }

    /// The id of the only run.
    pub(crate) fn id(&self) -> String {
        let runs = self.sandbox.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// How often each item was asked about.
    pub(crate) fn asked(&self) -> BTreeMap<String, usize> {
        let mut asked = BTreeMap::new();
        for seen in self.fake.requests().into_iter().filter_map(|request| request.seen) {
            *asked.entry(said(&seen)).or_default() += 1;
        }
        asked
    }
}

/// The lines of a file of results.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "whole lines: {text:?}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_line_is_a_call_and_results_keep_the_order() {
    let desk = Desk::new();
    desk.sandbox.file("items.txt", &limits::items(30));
    let ended = desk.run(&["map", "triage", "--over", "items.txt", "-j", "7"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "30 of 30 items answered\n"));
    let expected: Vec<Value> =
        (1..=30).map(|number| json!({"item": number, "output": format!("sorted item {number}")})).collect();
    assert_eq!(lines(&ended.stdout), expected);
    assert!(desk.asked().values().all(|count| *count == 1));
}

#[test]
fn items_come_in_every_form() {
    let typed = "---\nname: triage\nmodel: anthropic:m\nschema_in: { type: object, properties: { n: { type: integer } }, required: [n] }\n---\nx\n";
    let desk = Desk::of(typed, |seen| FakeReply::text(&said(seen).replace(char::is_whitespace, "")));
    desk.sandbox
        .file("a.csv", "n\n1\n2\n")
        .file("a.jsonl", "{\"n\":1}\n{\"n\":2}\n")
        .file("a.json", "[{\"n\":1},{\"n\":2}]");
    let mut outputs = Vec::new();
    for file in ["a.csv", "a.jsonl", "a.json"] {
        let ended = desk.run(&["map", "triage", "--over", file, "--ephemeral"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        outputs.push(ended.stdout);
    }
    assert!(outputs.iter().all(|output| *output == outputs[0]) && lines(&outputs[0]).len() == 2, "{outputs:?}");
    assert_eq!(desk.sandbox.runs(), Vec::<String>::new());
    let mut piped = desk.sandbox.command(&["map", "triage", "--over", "-", "--as", "csv"], &[]);
    piped.envs(desk.variables()).stdin(fs::File::open(desk.sandbox.path().join("a.csv")).unwrap());
    let ended = support::wait(piped.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    assert_eq!((ended.code, &ended.stdout), (Some(0), &outputs[0]), "{}", ended.stderr);
}

#[test]
fn files_are_attachments() {
    let desk = Desk::of(WORKER, |seen| FakeReply::text(if said(seen).contains("plum") { "plum" } else { "other" }));
    desk.sandbox
        .file("notes/b.md", "a plum")
        .file("notes/deep/a.md", "an apple")
        .file("notes/c.txt", "no")
        .file("notes/.hidden.md", "no");
    let ended = desk.run(&["map", "triage", "--files", "notes/**/*.md", "-o", "out.jsonl"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
    assert_eq!(
        lines(&desk.read("out.jsonl")),
        [json!({"item": 1, "output": "plum"}), json!({"item": 2, "output": "other"})]
    );
    let none = desk.run(&["map", "triage", "--files", "*.png"]);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("no file is called like `*.png`"), "{}", none.stderr);
}

#[test]
fn a_mistake_is_told_before_anything_is_asked() {
    let desk = Desk::new();
    desk.sandbox.file("bad.jsonl", "1\n{oops}\n").file("items", "x\n").file("ok.txt", "x\n");
    let cases: [(&[&str], &str); 7] = [
        (&["map", "triage", "--over", "bad.jsonl"], "bad.jsonl: line 2 is not JSON"),
        (&["map", "triage", "--over", "missing.txt"], "No such file"),
        (&["map", "triage", "--over", "items"], "how the items in items are written is not known"),
        (&["map", "triage"], "required arguments were not provided"),
        (&["map", "nobody", "--over", "ok.txt"], "nobody"),
        (&["map", "triage", "elsewhere", "--over", "ok.txt"], "no such project: `elsewhere`"),
        (&["map", "triage", "--over", "ok.txt", "--json"], "prints one JSON line an item"),
    ];
    for (arguments, expected) in cases {
        let ended = desk.run(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
    assert!(desk.asked().is_empty() && desk.sandbox.runs().is_empty());
}

/// Neither the results nor the failures are written over what is still to be read, by whatever name.
#[test]
fn results_do_not_take_the_place_of_items() {
    let desk = Desk::new();
    let items = "a\nb\n";
    for name in ["items.txt", "out.errors.jsonl", "d/one.md"] {
        desk.sandbox.file(name, items);
    }
    std::os::unix::fs::symlink("items.txt", desk.sandbox.path().join("link")).unwrap();
    let cases: [(&[&str], &str, &str); 5] = [
        (&["--over", "items.txt"], "items.txt", "items.txt holds the items"),
        (&["--over", "items.txt"], "d/../items.txt", "items.txt holds the items"),
        (&["--over", "link", "--as", "lines"], "items.txt", "items.txt holds the items"),
        (&["--over", "out.errors.jsonl", "--as", "lines"], "out.jsonl", "out.errors.jsonl holds the items"),
        (&["--files", "d/*.md"], "d/one.md", "one.md holds the items"),
    ];
    for (over, output, words) in cases {
        let ended = desk.run(&[&["map", "triage", "-o", output], over].concat());
        assert_eq!(ended.code, Some(2), "{over:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{over:?}: {}", ended.stderr);
    }
    for name in ["items.txt", "out.errors.jsonl", "d/one.md"] {
        assert_eq!(desk.read(name), items, "{name}");
    }
    assert!(desk.asked().is_empty() && desk.sandbox.runs().is_empty());
}

/// The file of failures has a name that nobody typed: what is there and is none is somebody's.
#[test]
fn a_file_beside_the_results_that_is_no_list_of_failures_stays() {
    let desk = Desk::new();
    desk.sandbox.file("items.txt", "a\n");
    for notes in ["my notes\n", "{\"item\":1}\n", "[]"] {
        desk.sandbox.file("out.errors.jsonl", notes);
        desk.sandbox.file("out.jsonl", "old\n");
        let ended = desk.run(&["map", "triage", "--over", "items.txt", "-o", "out.jsonl"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("out.errors.jsonl is there, and no list of failures"), "{}", ended.stderr);
        assert_eq!((desk.read("out.errors.jsonl").as_str(), desk.read("out.jsonl").as_str()), (notes, "old\n"));
    }
    let ended = desk.run(&["map", "triage", "--over", "items.txt", "-o", "-"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("`-` is no name for a file"), "{}", ended.stderr);
    assert!(desk.asked().is_empty());
}

/// Items that were counted and are gone when it comes to them are no success.
#[test]
fn a_list_that_becomes_shorter_meanwhile_is_told_of() {
    let sandbox = Sandbox::new().told();
    let path = sandbox.path().join("items.txt");
    // Longer than what is read ahead.
    let items: Vec<String> = (0..40).map(|number| format!("{number} {}\n", "x".repeat(40_000))).collect();
    sandbox.file("items.txt", &items.concat()).file("triage.worker", WORKER);
    let reply = move |_: &SeenRequest| {
        fs::write(&path, "").unwrap();
        Some(FakeReply::text("ok"))
    };
    let desk = Desk { sandbox, fake: FakeLlm::start(FakeScript::new().answer(reply).accept_foreign_history()) };
    let ended = desk.run(&["map", "triage", "--over", "items.txt", "-o", "out.jsonl", "-j", "1"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("were there no more when it came to them"), "{}", ended.stderr);
}

/// What the requests of all items are made of stands once, in the record of the run.
#[test]
fn the_record_of_an_item_has_its_own_lines_only() {
    let desk = Desk::new();
    desk.sandbox.file("items.txt", &limits::items(12));
    assert_eq!(desk.run(&["map", "triage", "--over", "items.txt"]).code, Some(0));
    desk.sandbox.file("items.txt", &limits::items(20));
    assert_eq!(desk.run(&["resume", &desk.id()]).code, Some(0));
    let run = desk.sandbox.state().join("runs").join(desk.id());
    let parts = |text: &str| text.lines().filter(|line| line.contains("\"kind\":\"part\"")).count();
    assert_eq!(parts(&fs::read_to_string(run.join("journal")).unwrap()), 4);
    let records: Vec<_> = fs::read_dir(run.join("items")).unwrap().flatten().collect();
    assert_eq!(records.len(), 20);
    for record in records {
        let text = fs::read_to_string(record.path()).unwrap();
        assert_eq!((parts(&text), text.lines().count()), (0, 4), "{text}");
    }
    let exported = desk.sandbox.run_raw(&["runs", "export", &desk.id()]).stdout;
    assert_eq!(parts(&exported), 4, "they stand before what names them: {exported}");
}

#[test]
fn failures_stand_in_a_file_of_their_own_and_the_others_go_on() {
    let typed = "---\nname: triage\nmodel: anthropic:m\nschema_out: { type: object, properties: { kind: { type: string } }, required: [kind] }\n---\nx\n";
    let reply = |seen: &SeenRequest| {
        let is_bad = seen.messages.iter().any(|message| message.text().contains("bad"));
        FakeReply::text(if is_bad { "{}" } else { "{\"kind\": \"bug\"}" })
    };
    let desk = Desk::of(typed, reply);
    desk.sandbox.file("items.txt", "good\nbad\nfine\n");
    let arguments = ["map", "triage", "--over", "items.txt", "-o", "out.jsonl"];
    let ended = desk.run(&arguments);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert_eq!(
        ended.stderr,
        "2 of 3 items answered · 1 failed\nerror: 1 of 3 items failed\n\
         hint: out.errors.jsonl says why; `llm-do resume RUN` takes them up again\n"
    );
    assert_eq!(
        lines(&desk.read("out.jsonl")),
        [json!({"item": 1, "output": {"kind": "bug"}}), json!({"item": 3, "output": {"kind": "bug"}})]
    );
    let failed = lines(&desk.read("out.errors.jsonl"));
    assert_eq!((&failed[0]["item"], &failed[0]["input"], failed.len()), (&json!(2), &json!("bad"), 1));
    assert!(failed[0]["error"].as_str().unwrap().contains("violates its schema"), "{failed:?}");
    let told = desk.run(&["map", "triage", "--over", "items.txt"]);
    assert!(told.stderr.starts_with("item 2 failed: the answer of agent `triage` violates"), "{}", told.stderr);
    desk.sandbox.file("items.txt", "good\n");
    assert_eq!(desk.run(&arguments).code, Some(0));
    assert_eq!(desk.read("out.errors.jsonl"), "", "the failures of another run are gone");
}

#[test]
fn what_goes_on_asks_only_what_is_new_or_changed() {
    let desk = Desk::new();
    desk.sandbox.file("items.txt", "a\nb\nb\nc\n");
    assert_eq!(desk.run(&["map", "triage", "--over", "items.txt", "-o", "out.jsonl"]).code, Some(0));
    let id = desk.id();
    desk.sandbox.file("items.txt", "new\na\nb\nb\nchanged\n");
    let ended = desk.run(&["resume", &id]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "5 of 5 items answered · 3 from the record\n"));
    let outputs: Vec<String> =
        lines(&desk.read("out.jsonl")).iter().map(|line| line["output"].as_str().unwrap().to_owned()).collect();
    assert_eq!(outputs, ["sorted new", "sorted a", "sorted b", "sorted b", "sorted changed"]);
    let expected = [("a", 1), ("b", 2), ("c", 1), ("changed", 1), ("new", 1)];
    assert_eq!(desk.asked(), expected.into_iter().map(|(item, count)| (item.to_owned(), count)).collect());
    let listed: Vec<Value> = lines(&desk.sandbox.run_raw(&["runs", "--json"]).stdout);
    assert_eq!(
        (&listed[0]["kind"], &listed[0]["state"], &listed[0]["requests"]),
        (&json!("map"), &json!("done"), &json!(6))
    );
    let shown = desk.sandbox.run(&["runs", "show", &id]);
    assert!(shown.stdout.contains("items     6 answered\n") && shown.stdout.contains("6 requests"), "{}", shown.stdout);
}
