//! Kills at any moment: nested and parallel agents, in the middle of a request, a tool, or a line of the journal.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, SeenRequest};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::session::KEY;
use crate::support::Sandbox;
use crate::{JOURNAL, journal, worker};

/// How many deaths all runs together survive at least.
const KILLS: usize = 60;
/// Requests of the whole run.
const REQUESTS: usize = 9;

/// Each edit adds a line of its own to a file: an edit that happened twice shows.
fn edit(file: &str, line: &str) -> FakeCall {
    call("edit_file", &json!({"path": file, "old": "END", "new": format!("{line}\nEND")}))
}

fn write(file: &str) -> FakeCall {
    call("write_file", &json!({"path": file, "content": "written\n"}))
}

/// A call whose id is the same each time.
fn call(tool: &str, arguments: &Value) -> FakeCall {
    let id: String = arguments.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    FakeCall::new(tool, arguments.clone()).with_id(&format!("id_{tool}_{id}"))
}

/// What every agent does, by what it has heard so far: the same however often it is asked.
fn team(seen: &SeenRequest) -> FakeReply {
    let heard = seen.results().count();
    if seen.system == "You are child." {
        let file = seen.messages[0].text();
        return match heard {
            0 => FakeReply::calls([edit(&file, "first"), write(&format!("{file}.copy"))]),
            2 => FakeReply::calls([edit(&file, "second")]),
            _ => FakeReply::text(&format!("done with {file}")),
        };
    }
    match heard {
        0 => FakeReply::calls([
            call("child", &json!({"input": "a"})),
            edit("main", "first"),
            call("child", &json!({"input": "b"})),
        ]),
        3 => FakeReply::calls([edit("main", "second"), call("read_file", &json!({"path": "constant"}))]),
        _ => FakeReply::text("all done"),
    }
}

struct Team {
    sandbox: Sandbox,
    fake: FakeLlm,
}

impl Team {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let keys = "toolsets: [filesystem_cwd]\napproval: { edit_file: allow, write_file: allow }";
        sandbox
            .file("project/main.worker", &worker("main", &format!("entry: true\n{}", keys.replace('[', "[child, "))));
        sandbox.file("project/child.worker", &worker("child", keys));
        for file in ["a", "b", "main"] {
            sandbox.file(file, "END");
        }
        sandbox.file("constant", "constant");
        Self {
            sandbox,
            fake: FakeLlm::start(FakeScript::new().answer(|seen| Some(team(seen))).accept_foreign_history()),
        }
    }

    /// Begins the run, or goes on with what is left of it.
    fn start(&self) -> Child {
        let has_begun = fs::read(journal(&self.sandbox)).is_ok_and(|bytes| bytes.contains(&b'\n'));
        let begin = ["run", "project", "go", "--journal", JOURNAL, "--json"];
        let go_on = ["resume", JOURNAL, "--json"];
        let arguments: &[&str] = if has_begun { &go_on } else { &begin };
        let variables = [("ANTHROPIC_BASE_URL", self.fake.anthropic_url()), ("ANTHROPIC_API_KEY", KEY.to_owned())];
        let mut command = self.sandbox.command(arguments, &[]);
        command.envs(variables).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Finished requests that the journal knows.
    fn recorded_requests(&self) -> usize {
        let text = fs::read(journal(&self.sandbox)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_done = |line: &&str| line.contains("\"kind\":\"model\",\"state\":\"done\"");
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter(is_done).count()
    }

    /// How often each line is in each file.
    fn effects(&self) -> BTreeMap<String, usize> {
        let mut effects = BTreeMap::new();
        for file in ["a", "b", "main"] {
            let text = fs::read_to_string(self.sandbox.path().join(file)).unwrap();
            for line in ["first", "second"] {
                effects.insert(format!("{file} {line}"), text.lines().filter(|other| *other == line).count());
            }
        }
        effects
    }
}

/// How a process dies.
enum Death {
    /// SIGKILL after this time.
    After(Duration),
    /// By a disk that takes no more, while it writes this byte of its journal.
    AtByte(u64),
    Natural,
}

/// What became of a process: its output if it ended by itself.
fn die(team: &Team, death: &Death) -> Option<(String, String)> {
    let mut child = team.start();
    match death {
        Death::After(time) => {
            std::thread::sleep(*time);
            let _ = child.kill();
        }
        Death::AtByte(byte) => {
            let pid = Pid::from_child(&child);
            for (resource, limit) in [(Resource::Core, 0), (Resource::Fsize, *byte)] {
                let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
                // It may have ended already.
                let _ = prlimit(Some(pid), resource, limit);
            }
        }
        Death::Natural => {}
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    match output.status.code() {
        Some(0) => Some((stdout, stderr)),
        Some(1 | 2) if stderr.contains("File too large") => None,
        Some(code) => panic!("it ended with {code}: {stderr}"),
        None => None,
    }
}

fn result(stdout: &str) -> Value {
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

/// A trace without times, and in one order.
fn timeless(trace: &Value) -> Value {
    let calls = trace["calls"].as_array().cloned().unwrap_or_default();
    let mut calls: Vec<Value> = calls.iter().map(timeless).collect();
    calls.sort_by_key(Value::to_string);
    json!([
        trace["name"],
        trace["depth"],
        trace["input"],
        trace["output"],
        trace["error"],
        trace["usage"]["requests"],
        calls
    ])
}

/// A run after all its deaths.
struct Survived {
    team: Team,
    result: Value,
    /// What `resume` said about it on the way.
    notes: String,
    deaths: usize,
    torn_lines: usize,
}

/// Kills a run several times, and goes on with it until it is done.
fn survive(whole_time: Duration) -> Survived {
    let (team, lives) = (Team::new(), fastrand::usize(1..7));
    let (mut notes, mut deaths, mut torn_lines) = (String::new(), 0, 0);
    let stdout = loop {
        let size = fs::metadata(journal(&team.sandbox)).map_or(0, |metadata| metadata.len());
        let death = match fastrand::u8(..3) {
            _ if deaths == lives => Death::Natural,
            0 => Death::After(whole_time.mul_f64(fastrand::f64())),
            _ => Death::AtByte(size.max(200) + fastrand::u64(1..6_000)),
        };
        let (asked, recorded) = (team.fake.requests().len(), team.recorded_requests());
        let ended = die(&team, &death);
        let (asked, recorded) = (team.fake.requests().len() - asked, team.recorded_requests() - recorded);
        assert!(asked <= recorded + 2, "only what was under way is asked again: {asked} for {recorded}");
        if let Some((stdout, stderr)) = ended {
            notes.push_str(&stderr);
            break stdout;
        }
        deaths += 1;
        let left = fs::read(journal(&team.sandbox)).unwrap_or_default();
        torn_lines += usize::from(left.last().is_some_and(|byte| *byte != b'\n'));
        notes.push_str(&team.sandbox.run(&["resume", JOURNAL, "--show"]).stdout);
    };
    Survived { team, result: result(&stdout), notes, deaths, torn_lines }
}

impl Survived {
    fn is_in_doubt(&self) -> bool {
        self.notes.contains("interrupted, it may or may not have happened: ")
    }

    /// Whatever happened on the way: nothing twice, nothing lost without a word, and the same answer.
    fn check(&self, expected: &Value) {
        assert_eq!(self.team.recorded_requests(), REQUESTS, "every request is there once");
        for (effect, count) in self.team.effects() {
            assert!(count <= 1, "{effect} happened {count} times");
            let line = effect.split(' ').nth(1).unwrap();
            let is_reported = self.is_in_doubt() && self.notes.contains(&format!("new   │ {line}\n      │ END\n"));
            assert!(count == 1 || is_reported, "{effect} was lost and nobody says so:\n{}", self.notes);
        }
        for file in ["a.copy", "b.copy"] {
            assert_eq!(fs::read_to_string(self.team.sandbox.path().join(file)).unwrap(), "written\n");
        }
        let same = ["output", "exit_code", "usage"];
        let compared = if self.is_in_doubt() { &same[..] } else { &[&same[..], &["messages"]].concat() };
        for key in compared {
            assert_eq!(self.result[key], expected[key], "{key}");
        }
        if !self.is_in_doubt() {
            assert_eq!(timeless(&self.result["trace"]), timeless(&expected["trace"]));
        }
    }
}

#[test]
fn a_run_that_is_killed_at_any_moment_is_resumed_and_does_nothing_twice() {
    let whole = Team::new();
    let started = Instant::now();
    let (stdout, _) = die(&whole, &Death::Natural).expect("nobody kills it");
    let (whole_time, expected) = (started.elapsed(), result(&stdout));
    assert_eq!((whole.fake.requests().len(), whole.recorded_requests()), (REQUESTS, REQUESTS));
    assert!(whole.effects().values().all(|count| *count == 1), "{:?}", whole.effects());

    let (mut deaths, mut torn_lines, mut in_doubt, mut undisturbed) = (0, 0, 0, 0);
    while deaths < KILLS || undisturbed == 0 {
        let survived = survive(whole_time);
        survived.check(&expected);
        deaths += survived.deaths;
        torn_lines += survived.torn_lines;
        *if survived.is_in_doubt() { &mut in_doubt } else { &mut undisturbed } += 1;
    }
    println!("{deaths} kills, {torn_lines} torn lines, {in_doubt} runs with something in doubt, {undisturbed} without");
    assert!(torn_lines > 0);
}
