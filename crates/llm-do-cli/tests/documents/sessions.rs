//! Every document, typed again. `LLM_DO_WRITE_SESSION=1` writes down what is seen instead.

use std::collections::BTreeMap;
use std::fs;

use fake_llm::{At, FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, InjectedFault, On, SeenRequest, StallGate};
use serde_json::json;

use crate::document::{Part, Typed, parts, written};
use crate::place::{Place, Reader};
use crate::support::{is_run_id, words};
use crate::terminal::timeless;
use crate::{documents, read, repository};

const FIRST_SESSION: &str = "docs/first-session.md";

/// A text to wait for, and the keys to press then.
type Keys = &'static [(&'static str, &'static str)];

const ASKED: &str = " explain";
const YES: Keys = &[(ASKED, "y")];

/// What is sent, run and applied.
const HARDENED: Keys = &[("send the", "y"), ("run it behind", "y"), ("apply?", "y")];

/// What is typed while a command runs, for the first time, the second time, …
const TYPED: &[(&str, &[Keys])] = &[
    (
        "llm-do hello \"Write a haiku about rain to haiku.txt\"",
        &[&[(ASKED, "n"), ("why?", "not before dinner\r")], YES],
    ),
    (
        "llm-do chat hello",
        &[&[
            (">", "Who are you?\r"),
            ("above all.\n>", "And which is your favourite?\r"),
            ("about rain.\n>", "/cost\r"),
            ("$0.0014\n>", "\u{4}"),
        ]],
    ),
    ("llm-do hello \"Tell me a long story\"", &[&[("there", "\u{3}")]]),
    (
        "llm-do examples/publish -m scripted:examples/publish/script.yaml --trust \"Publish the crane\"",
        &[&[(ASKED, "n"), ("why?", "after the inspection\r")]],
    ),
    ("llm-do examples/publish -m scripted:examples/publish/script.yaml \"Publish the crane, please\"", &[YES]),
    ("llm-do examples/specialists -m scripted:examples/specialists/script.yaml \"Say clause 4 plainly\"", &[YES]),
    (
        "llm-do examples/bug-report -m scripted:examples/bug-report/script.yaml \"The export is broken\"",
        &[&[
            ("\nversion: ", "2.3.1\r"),
            ("\nhow_often: ", "3\r"),
            ("\nsince: ", "\r"),
            ("changes it) ", "\r"),
            (ASKED, "y"),
        ]],
    ),
    (
        "llm-do chat examples/tutor -m scripted:examples/tutor/script.yaml",
        &[&[
            (">", "hej\r"),
            ("bread?\n>", "brot\r"),
            ("butter?\n>", "smör\r"),
            ("once more?\n>", "I stop here\r"),
            ("again: bröd.\n>", "\u{4}"),
        ]],
    ),
    (
        "llm-do chat -q examples/tutor -m scripted:examples/tutor/script.yaml",
        &[&[(">", "/help\r"), ("as it is.\n>", "\u{4}")]],
    ),
    ("llm-do examples/mcp -m scripted:examples/mcp/script.yaml \"An hour with the harbour master on Monday\"", &[YES]),
    ("llm-do harden sorter examples/hardening/notes -m scripted:examples/hardening/notes/script.yaml", &[HARDENED]),
    ("llm-do release/5-approvals -m scripted:release/5-approvals/script.yaml \"Notes for 2.0\"", &[YES]),
];

fn keys(command: &str, run: usize) -> Keys {
    let typed = TYPED.iter().find(|(typed, _)| *typed == command);
    typed.and_then(|(_, runs)| runs.get(run)).copied().unwrap_or_default()
}

/// Commands that another test runs, or that are this test; `None` for those to be typed here.
fn typed_elsewhere(command: &str) -> Option<&'static str> {
    const ELSEWHERE: &[(&str, &str)] = &[
        ("cargo test --workspace", "this test is a part of it"),
        ("cargo install --path crates/llm-do-cli", "it builds the program that is tested"),
        ("cargo run -p llm-do --example ", "crates/llm-do/tests/examples.rs"),
        ("python3 -m venv ", "tests/python: with an environment that is kept"),
        (".venv/bin/pip install ", "tests/python: with an environment that is kept"),
        ("pip install ", "likewise"),
        ("python3 examples/seeds/", "tests/serve/seeds.rs: it needs the package"),
        ("python3 examples/steward/steward.py ", "tests/serve/documents.rs: it needs the package"),
        ("llm-do run . --input-json '{\"topic\": \"tides\"}' ", "tests/python/example.rs: it needs the libraries"),
        ("openssl genpkey ", ENGINE),
        ("RESTATE_BIND_IP=127.0.0.1 RESTATE_REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE=", ENGINE),
        ("export LLM_DO_ENGINE_KEY=", ENGINE),
        ("llm-do engine-worker refund ", ENGINE),
        ("llm-do refund --on ", ENGINE),
        ("llm-do inbox --on ", ENGINE),
        ("llm-do inbox approve 48877392a3eb --on ", ENGINE),
        ("llm-do runs follow 06gy3k9x7wqe4t2m --on ", ENGINE),
    ];
    const ENGINE: &str = "crates/parts/tests/parts/engine.rs: it needs the engine";
    ELSEWHERE.iter().find(|(start, _)| command.starts_with(start)).map(|(_, reason)| *reason)
}

/// Not every machine has it; what it would show is then taken for granted.
fn is_missing(command: &str) -> bool {
    command.contains("| jq ") && !["/usr/bin/jq", "/bin/jq"].iter().any(|path| fs::exists(path).unwrap())
}

/// What differs from run to run and place to place.
fn masked(text: &str) -> String {
    let mask = |line: &str| match line.split(' ').next() {
        Some("run") if line.contains(" of ") => "run … of … in …\n".to_owned(),
        Some("begun") => "begun … by …\n".to_owned(),
        Some("commands") if line.contains(" a fence") => "commands in …\n".to_owned(),
        Some(_) | None => format!("{line}\n"),
    };
    let text = steady(&text.lines().map(mask).map(|line| timed(&ageless(&line))).collect::<String>());
    ids(&text).iter().fold(text.clone(), |text, id| text.replace(id, "…"))
}

/// The ids of questions in a text, short or whole: each run has its own.
fn ids(text: &str) -> Vec<String> {
    let is_id = |word: &&str| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        [12, 64].contains(&word.len()) && word.bytes().all(is_digit) && word.bytes().any(|byte| byte.is_ascii_digit())
    };
    text.split(|letter: char| !letter.is_alphanumeric()).filter(is_id).map(str::to_owned).collect()
}

/// A row of a table with how long ago something was, which makes its columns wider or narrower.
fn ageless(line: &str) -> String {
    const HEADINGS: [&str; 2] = ["ID  ", "QUESTION  "];
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let is_age = |words: &[&str]| {
        matches!(words, [number, "s" | "min", "ago"] if number.parse::<u64>().is_ok())
            || matches!(words, [_, "just", "now"])
    };
    match words.windows(3).position(is_age) {
        // The word before `just now` is not part of it.
        Some(at) if words[at + 1] == "just" => drop(words.splice(at + 1..at + 3, ["…", "ago"])),
        Some(at) => drop(words.splice(at..at + 3, ["…", "ago"])),
        None if HEADINGS.iter().any(|heading| line.starts_with(heading)) => {}
        None => return line.to_owned(),
    }
    words.join(" ") + "\n"
}

/// Without times.
fn steady(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| timeless(&without_times(line)) + "\n").collect();
    lines.concat()
}

/// `0.1 s` in a table of calls.
fn timed(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for at in 1..words.len() {
        let is_time = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
        if words[at].trim_end() == "s" && is_time(&words[at - 1]) {
            "0.0".clone_into(&mut words[at - 1]);
        }
    }
    words.join(" ")
}

/// `· MODEL 0.0 s, 12 tokens in, …`, and `… (1.2 s)` where something took longer.
fn without_times(line: &str) -> String {
    let is_time = |word: &str| word.parse::<f64>().is_ok();
    if line.trim_start().starts_with("· ")
        && let Some((before, after)) = line.split_once(" s, ")
        && let Some((before, time)) = before.rsplit_once(' ')
        && is_time(time)
    {
        return format!("{before} 0.0 s, {after}");
    }
    match line.strip_suffix(" s)").and_then(|start| start.rsplit_once(" (")) {
        Some((before, time)) if is_time(time) => before.to_owned(),
        Some(_) | None => line.to_owned(),
    }
}

/// A session that goes on: what was typed so far, and how the last command ended.
struct Session<'a> {
    place: Place<'a>,
    commands: Vec<String>,
    code: i32,
    /// The ids of questions as they are written, and as they are now.
    questions: BTreeMap<String, String>,
    runs: RunNames,
}

/// The runs of a session in the order in which they are seen: each has the same id whenever a document is typed.
#[derive(Default)]
struct RunNames(Vec<String>);

/// As they are written.
const RUN_IDS: [&str; 9] = [
    "06gy3k9x7wqe4t2m",
    "06gy3m2c5ha8r0vz",
    "06gy3p7d1kt6n9bq",
    "06gy3qs40xj2w5ec",
    "06gy3t8m9pv31hfa",
    "06gy3wb62yd7kz0r",
    "06gy3ye5c8qg4tsn",
    "06gy40h17vmxj3b9",
    "06gy42k3yzpn7c5r",
];

impl RunNames {
    /// What is seen, as it is written.
    fn written(&mut self, seen: &str) -> String {
        for id in words(seen).filter(|word| is_run_id(word)) {
            if !self.0.iter().any(|known| known == id) {
                self.0.push(id.to_owned());
            }
        }
        self.0.iter().zip(RUN_IDS).fold(seen.to_owned(), |seen, (id, written)| seen.replace(id, written))
    }

    /// The runs of a command that is not typed here keep their ids.
    fn pass_over(&mut self, written: &str) {
        while RUN_IDS.get(self.0.len()).is_some_and(|id| written.contains(id)) {
            self.0.push("a run that was not typed".to_owned());
        }
    }

    /// What is typed, with the runs of today. Whoever types the beginning of an id means the whole.
    fn meant(&self, typed: &str) -> String {
        const SHORTEST: usize = 6;
        let is_beginning = |word: &&str| word.len() >= SHORTEST && RUN_IDS.iter().any(|id| id.starts_with(word));
        let beginnings: Vec<&str> = words(typed).filter(is_beginning).collect();
        beginnings.into_iter().fold(typed.to_owned(), |typed, word| {
            let run = self.0.iter().zip(RUN_IDS).find(|(_, id)| id.starts_with(word));
            let (run, _) = run.unwrap_or_else(|| panic!("no run `{word}` was seen before {typed:?}"));
            typed.replace(word, run)
        })
    }
}

impl Session<'_> {
    fn types(&mut self, command: &str) -> String {
        let run = self.commands.iter().filter(|earlier| *earlier == command).count();
        self.commands.push(command.to_owned());
        let meant = command.replacen("cargo run -p llm-do-cli -- ", "llm-do ", 1);
        let meant = self.questions.iter().fold(meant, |meant, (written, now)| meant.replace(written, now));
        let seen = self.place.types(&self.runs.meant(&meant), keys(command, run), self.code);
        self.code = seen.code;
        let written = self.runs.written(&seen.screen);
        assert!(self.runs.0.len() <= RUN_IDS.len(), "more runs than there are ids for them");
        written
    }

    /// The part as it goes now.
    fn goes(&mut self, part: Part) -> Part {
        match part {
            Part::Words(_) => part,
            Part::File { ref path, ref text, .. } => {
                self.place.sandbox.file(path, text);
                part
            }
            Part::Commands(ref commands) => {
                for command in commands.iter().filter(|command| typed_elsewhere(command).is_none()) {
                    let seen = self.types(command);
                    assert_eq!(self.code, 0, "{command}: {seen}");
                }
                part
            }
            Part::Console(typed) => Part::Console(self.console(typed)),
        }
    }

    fn console(&mut self, typed: Vec<Typed>) -> Vec<Typed> {
        let mut all = Vec::new();
        let count = typed.len();
        let is_asked: Vec<bool> = typed.iter().map(|typed| typed.command == "echo $?").collect();
        for (index, Typed { command, seen }) in typed.into_iter().enumerate() {
            if is_missing(&command) || typed_elsewhere(&command).is_some() {
                self.runs.pass_over(&seen);
                all.push(Typed { command, seen });
                continue;
            }
            let now = self.types(&command);
            self.questions.extend(ids(&seen).into_iter().zip(ids(&now)));
            // Readers see no exit code: whatever fails is followed by it.
            let is_told = index + 1 < count && is_asked[index + 1];
            assert!(
                self.code == 0 || is_told,
                "{command} ends with {}, and `echo $?` does not follow:\n{now}",
                self.code
            );
            let is_same = masked(&now) == masked(&seen);
            all.push(Typed { command, seen: if is_same { seen } else { steady(&now) } });
        }
        all
    }
}

#[track_caller]
fn goes_as_it_is_written(path: &str, provider: Option<&FakeLlm>, reader: Reader) {
    let document = read(path);
    let (place, runs) = (Place::new(provider, reader), RunNames::default());
    let mut session = Session { place, commands: Vec::new(), code: 0, questions: BTreeMap::new(), runs };
    let now: Vec<Part> = parts(&document).into_iter().map(|part| session.goes(part)).collect();
    let now = written(&now);
    if std::env::var_os("LLM_DO_WRITE_SESSION").is_some() {
        return fs::write(repository().join(path), &now).unwrap();
    }
    let differs = document.lines().zip(now.lines()).position(|(written, seen)| written != seen);
    let at = differs.unwrap_or(usize::min(document.lines().count(), now.lines().count()));
    let from = |text: &str| text.lines().skip(at).take(12).collect::<Vec<_>>().join("\n");
    assert!(now == document, "{path}:{}\n== is written:\n{}\n== is seen:\n{}", at + 1, from(&document), from(&now));
}

#[test]
fn the_documents_are_as_they_are_typed() {
    for path in documents("docs").iter().filter(|path| *path != FIRST_SESSION) {
        goes_as_it_is_written(path, None, Reader::User);
    }
}

#[test]
fn the_examples_are_as_they_are_typed() {
    for path in documents("examples").iter().filter(|path| path.ends_with("README.md")) {
        goes_as_it_is_written(path, None, Reader::User);
    }
}

#[test]
fn the_readme_is_as_it_is_typed() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("An answer of the provider.")));
    goes_as_it_is_written("README.md", Some(&fake), Reader::Newcomer);
    assert_eq!(fake.violations(), []);
}

const HAIKU: &str = "Rain on the tin roof\ncounts what the evening forgot\nand begins again\n";

/// A provider that answers as the first session says.
fn poet(gate: &StallGate) -> FakeLlm {
    let words = |text: &str, tokens| Some(FakeReply::text(text).in_deltas(4).with_usage(FakeUsage::new(tokens, 12)));
    let answer = move |seen: &SeenRequest| {
        let asked = seen.last_user_text();
        match (asked.as_str(), seen.last_result()) {
            ("Write a haiku about rain to haiku.txt", None) => {
                let call = FakeCall::new("write_file", json!({"content": HAIKU, "path": "haiku.txt"}));
                Some(FakeReply::calls([call]).with_usage(FakeUsage::new(640, 58)))
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
    // The story never comes to its end.
    let fault = InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    FakeLlm::start(FakeScript::new().answer(answer).fault(On::Request(STORY), fault))
}

/// The how manieth request it is.
const STORY: usize = 11;

#[test]
fn the_first_session_goes_as_it_is_written() {
    let gate = StallGate::new();
    let fake = poet(&gate);
    // That an interrupted run leaves its provider is tested with the signals; here it may leave before the stall.
    goes_as_it_is_written(FIRST_SESSION, Some(&fake), Reader::Newcomer);
    assert_eq!(fake.violations(), []);
}

#[test]
fn the_runs_of_a_session_are_told_apart_and_called_the_same_each_time() {
    let mut runs = RunNames::default();
    let [one, two] = ["06gz8r2k5mw0c7ta", "06gz8r2k6qe9x4vn"];
    let seen = runs.written(&format!("done · {one}\n{{\"run\":\"{two}\"}} {one}"));
    assert_eq!(seen, format!("done · {0}\n{{\"run\":\"{1}\"}} {0}", RUN_IDS[0], RUN_IDS[1]));
    assert_eq!(runs.meant("llm-do resume 06gy3m2c5 --show"), format!("llm-do resume {two} --show"));
    assert_eq!(runs.meant(&format!("llm-do resume {}", RUN_IDS[0])), format!("llm-do resume {one}"));
}

#[test]
fn times_and_places_are_not_compared() {
    for (seen, compared) in [
        ("  · a:b 1.2 s, 3 tokens in, 4 out, $0", "  · a:b 0.0 s, 3 tokens in, 4 out, $0"),
        ("← reader done (1.2 s)", "← reader done"),
        ("3.4 s · 1 request · 3 tokens in, 4 out · $0", "0.0 s · 1 request · 3 tokens in, 4 out · $0"),
        ("begun Mon by ann", "begun … by …"),
        ("a (b s)", "a (b s)"),
        ("approval 1 · main › write_file · 0123456789ab", "approval 1 · main › write_file · …"),
        ("0123456789abc and abcdefabcdef", "0123456789abc and abcdefabcdef"),
        ("06gy  just now  desk  done", "06gy … ago desk done"),
        ("06gy  12 s ago   desk  done", "06gy … ago desk done"),
        ("ID    WHEN      PROJECT", "ID WHEN PROJECT"),
        ("  read_file {}  done  1.2 s  main/t0", "  read_file {}  done  0.0 s  main/t0"),
    ] {
        assert_eq!(masked(seen).trim_end(), compared);
    }
}
