//! Budgets over runs, from the outside: many processes on one budget, some of them killed, and a provider that writes a bill.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/session.rs"]
mod session;
#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fake_llm::{
    At, Bill, Cut, FakeCall, FakeLlm, FakePrices, FakeReply, FakeScript, FakeUsage, InjectedFault, On, SeenRequest,
    StallGate,
};
use serde_json::{Value, json};
use session::{KEY, Run};
use support::{Sandbox, wait};

/// A dollar for a million tokens in, five for a million out.
const PRICES: FakePrices = FakePrices { input: 1_000_000, output: 5_000_000 };
const WORKER: &str = "---\nname: main\nmodel: anthropic:claude-haiku-4-5\nmodel_settings: {max_tokens: 2000}\n---\nx\n";

fn desk(config: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", WORKER).file(".config/llm-do/config.toml", config);
    sandbox
}

fn everyday(usd: f64) -> String {
    format!("[[budget]]\nname = \"everyday\"\nusd = {usd}\nper = \"day\"\n")
}

fn start(sandbox: &Sandbox, fake: &FakeLlm, more: &[&str]) -> Child {
    let words = [&["run", "main.worker", "hi"][..], more].concat();
    let url = fake.anthropic_url();
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY), ("TZ", "UTC0")];
    let mut command: Command = sandbox.command(&words, &variables);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What `costs` says of the budget: what is spent, what is reserved, what is left.
fn standing(sandbox: &Sandbox) -> [f64; 3] {
    let told = Run::of(sandbox, &["costs", "--json"]).with("TZ", "UTC0").ended();
    assert_eq!(told.code, Some(0), "{told:?}");
    let lines: Vec<Value> = told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["budget"] == "everyday").unwrap();
    ["spent", "reserved", "left"].map(|key| line[key].as_f64().unwrap())
}

#[expect(clippy::cast_precision_loss, reason = "a few dollars")]
fn billed(bill: &Bill) -> f64 {
    bill.picodollars() as f64 / 1e12
}

#[test]
fn fifty_processes_on_one_budget_never_spend_more_though_some_are_killed() {
    let bill = Bill::default();
    let script = FakeScript::new().priced(PRICES, 2_500, 7, &bill).latency(Duration::from_millis(300), 7);
    let fake = FakeLlm::start(script);
    // Each may cost a cent, so that about a dozen can be asked at once, and not all of them come to their turn.
    let sandbox = desk(&everyday(0.12));
    let mut children: Vec<Child> =
        (0..50).map(|number| start(&sandbox, &fake, if number % 3 == 0 { &["--ephemeral"] } else { &[] })).collect();
    // As soon as the first ones are under way, every tenth is killed.
    let began = Instant::now();
    while fake.requests().len() < 5 {
        assert!(began.elapsed() < Duration::from_mins(1), "nobody asks");
        std::thread::yield_now();
    }
    for child in children.iter_mut().step_by(10) {
        child.kill().unwrap();
    }
    let (mut whole, mut stopped, mut killed) = (0, 0, 0);
    for child in children {
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        match ended.status.code() {
            Some(0) => whole += 1,
            // Money that others only hold stops nobody: what was spent and the shortest answer do not fit.
            Some(5) => {
                let (_, rest) =
                    said.split_once("the budget `everyday` is used up: $").unwrap_or_else(|| panic!("{said}"));
                assert!(rest.contains(" of $0.1200 for this day"), "{said}");
                let amount = |text: &str| text.get(..6).and_then(|amount| amount.parse::<f64>().ok()).unwrap();
                let needed = rest.split_once("the next request may cost $").map_or(0.0015, |(_, cost)| amount(cost));
                assert!(amount(rest) + needed > 0.1199, "{said}");
                stopped += 1;
            }
            None => killed += 1,
            code => panic!("{code:?}: {said}"),
        }
    }
    let [spent, reserved, left] = standing(&sandbox);
    assert!(billed(&bill) <= spent + 1e-9 && spent <= 0.12, "billed {}, counted {spent}", billed(&bill));
    assert!((reserved, (left - (0.12 - spent)).abs() < 1e-9) == (0.0, true), "{reserved} and {left}");
    assert!(whole > 5 && stopped > 5 && killed <= 5, "{whole} whole, {stopped} stopped, {killed} killed");
}

/// The entry calls 64 children at once, and then is done.
fn delegate(seen: &SeenRequest) -> Option<FakeReply> {
    if !seen.offers("child") {
        return None;
    }
    if seen.results().next().is_some() {
        return Some(FakeReply::text("Done."));
    }
    Some(FakeReply::calls((0..64).map(|number| FakeCall::new("child", json!({"input": number.to_string()})))))
}

#[test]
fn sixty_four_children_of_one_run_never_spend_more_than_a_budget_has() {
    let (mut whole, mut stopped) = (0, 0);
    for seed in 0..12 {
        let bill = Bill::default();
        let script = FakeScript::new().billed(PRICES, &bill, delegate).priced(PRICES, 2_500, seed, &bill);
        let script = script.latency(Duration::from_millis(5), seed);
        let cut = InjectedFault::cut(At::Percent(90), Cut::Eof);
        let fake = FakeLlm::start(script.fault(On::Chance { percent: 5, seed }, cut));
        // Each may cost a cent: in every third schedule there is enough for all of them.
        let usd = if seed % 3 == 0 { 2.0 } else { 0.12 };
        let sandbox = desk(&everyday(usd));
        let child = WORKER.replace("name: main", "name: child");
        sandbox.file("child.worker", &child);
        sandbox.file("main.worker", &WORKER.replace("name: main", "name: main\nentry: true\ntoolsets: [child]"));
        let ended = Run::of(&sandbox, &["run", ".", "hi"]).asking(&fake).with("TZ", "UTC0").ended();
        let [spent, reserved, _] = standing(&sandbox);
        assert!(
            billed(&bill) <= spent + 1e-9 && spent <= usd,
            "seed {seed}: {} billed, {spent} counted",
            billed(&bill)
        );
        assert_eq!(reserved.to_bits(), 0.0_f64.to_bits(), "seed {seed}: nothing is left open");
        match ended.code {
            Some(0) => whole += 1,
            Some(5) if usd < 1.0 => stopped += 1,
            // Chance may cut all sendings of one request.
            Some(3) => {}
            code => panic!("seed {seed}: {code:?} {}", ended.stderr),
        }
    }
    assert!(whole > 0 && stopped > 0, "{whole} whole, {stopped} stopped");
}

#[test]
fn what_a_killed_run_had_reserved_is_spent_and_what_waits_for_others_is_not_stopped() {
    let gate = StallGate::default();
    let said = FakeReply::text("yes").with_usage(FakeUsage::new(100, 100));
    let script = FakeScript::new()
        .otherwise(said)
        .fault(On::Request(1), InjectedFault::Stall { at: At::Percent(0), gate: gate.clone() });
    let fake = FakeLlm::start(script);
    // Room for one request at a time.
    let sandbox = desk(&everyday(0.015));
    let mut first = start(&sandbox, &fake, &[]);
    gate.wait_until_reached(1);
    let [spent, reserved, _] = standing(&sandbox);
    assert!(spent == 0.0 && reserved > 0.01, "{spent} and {reserved}");
    let second = start(&sandbox, &fake, &["--ephemeral"]);
    first.kill().unwrap();
    first.wait().unwrap();
    let second = second.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    // It went, if it fits beside all that the first one may have cost, or else it names the budget.
    let [spent, left_reserved, _] = standing(&sandbox);
    assert!(spent >= reserved && left_reserved == 0.0, "{spent} and {left_reserved}");
    assert_eq!(second.status.code(), Some(5), "{said}");
    assert!(
        said.contains(
            "the budget `everyday` is used up: $0.0100 of $0.0150 for this day, and the next request may cost $0.0051"
        ),
        "{said}"
    );
    assert!(said.contains("a new day"), "{said}");
}

#[test]
fn what_is_left_is_shown_and_a_warning_comes_once() {
    let said = FakeReply::text("yes").with_usage(FakeUsage::new(1000, 1000));
    let fake = FakeLlm::start(FakeScript::new().otherwise(said));
    let sandbox = desk(&(everyday(0.02) + "warn_at = 0.5\n"));
    let run = |more: &[&'static str]| {
        let words = [&["main.worker", "hi"][..], more].concat();
        Run::new(&sandbox, &words).asking(&fake).with("TZ", "UTC0").ended()
    };
    let first = run(&[]);
    assert_eq!((first.code, first.stderr.contains("budget everyday")), (Some(0), false), "{first:?}");
    let second = run(&["--ephemeral"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert_eq!(second.stderr.matches("budget everyday: $0.0120 of $0.0200 are spent").count(), 1, "{second:?}");
    let table = Run::of(&sandbox, &["costs"]).with("TZ", "UTC0").ended().stdout;
    assert!(table.contains("everyday") && table.contains("$0.0120") && table.contains("$0.0200 a day"), "{table}");
    let (events, result) =
        Run::new(&sandbox, &["main.worker", "hi", "--json"]).asking(&fake).with("TZ", "UTC0").events();
    assert_eq!(result["exit_code"], 0, "{result}");
    assert!(events.iter().any(|event| event["type"] == "limit_approached" && event["limit"] == "budget everyday"));
    let third = run(&[]);
    assert_eq!(third.code, Some(5), "{third:?}");
    // Elsewhere it is another day already: it has all of it.
    let elsewhere = Run::new(&sandbox, &["main.worker", "hi"]).asking(&fake).with("TZ", "XXX-24").ended();
    assert_eq!(elsewhere.code, Some(0), "{elsewhere:?}");
    // A free model needs no budget.
    sandbox.file("script.yaml", "- say: free\n");
    let free = Run::new(&sandbox, &["main.worker", "hi", "-m", "main=scripted:script.yaml"]).with("TZ", "UTC0").ended();
    assert_eq!((free.code, free.stdout.as_str()), (Some(0), "free\n"), "{free:?}");
}

#[test]
fn a_chat_keeps_it_turn_by_turn() {
    let said = FakeReply::text("yes").with_usage(FakeUsage::new(1000, 1000));
    let fake = FakeLlm::start(FakeScript::new().otherwise(said));
    let sandbox = desk(&everyday(0.02));
    let chat =
        Run::of(&sandbox, &["chat", "main.worker"]).asking(&fake).with("TZ", "UTC0").hearing("a\nb\nc\nd\n").ended();
    assert_eq!(chat.code, Some(5), "{chat:?}");
    assert_eq!(fake.requests().len(), 3, "{chat:?}");
    let [spent, reserved, _] = standing(&sandbox);
    assert_eq!((spent, reserved), (0.018, 0.0));
}

#[test]
fn a_budget_that_cannot_be_kept_forbids_the_run() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("yes")));
    let sandbox = desk(&everyday(1.0));
    let run = || Run::new(&sandbox, &["main.worker", "hi"]).asking(&fake).with("TZ", "UTC0");
    // Without a home there is no configuration either: only the state has no place.
    sandbox.file("blocked", "");
    let blocked = sandbox.path().join("blocked").display().to_string();
    let ended = run().with("XDG_STATE_HOME", blocked).ended();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("the budget `everyday` cannot be kept: "), "{ended:?}");
    assert_eq!(run().ended().code, Some(0));
    let directory = sandbox.state().join("budgets/everyday");
    let is_ledger = |name: &String| name.starts_with("20");
    let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let ledger = directory.join(names.filter(is_ledger).max().unwrap());
    let whole = fs::read_to_string(&ledger).unwrap();
    fs::write(&ledger, format!("{whole}what?\n")).unwrap();
    for ended in [run().ended(), Run::of(&sandbox, &["costs"]).with("TZ", "UTC0").ended()] {
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("line 4 is damaged: it is no line of a ledger"), "{ended:?}");
    }
    assert_eq!(fake.requests().len(), 1, "nothing was asked");
    // A project that no budget covers does not look at it.
    let elsewhere = everyday(1.0) + "project = \"/elsewhere\"\n";
    sandbox.file(".config/llm-do/config.toml", &elsewhere);
    assert_eq!(run().ended().code, Some(0));
    sandbox.file(".config/llm-do/config.toml", &everyday(-1.0));
    let ended = run().ended();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("expected a number from 0 to 1000000, found the number `-1`"), "{ended:?}");
    sandbox.file(".config/llm-do/config.toml", &everyday(1.0));
    sandbox.file("priceless.worker", "---\nname: main\nmodel: openai:nobody-knows\n---\nx\n");
    let ended = Run::new(&sandbox, &["priceless.worker", "hi"]).asking(&fake).with("TZ", "XXX-24").ended();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("`budget everyday` needs the price of `openai:nobody-knows`"), "{ended:?}");
}

/// Root may write everywhere, so this is somebody else.
#[test]
fn a_state_that_cannot_be_written_forbids_the_run_before_anything_is_asked() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("yes")));
    let sandbox = desk(&everyday(1.0));
    fs::create_dir_all(sandbox.path().join("state")).unwrap();
    fs::set_permissions(sandbox.path().join("state"), fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = sandbox.unprivileged(&["run", "main.worker", "hi", "--ephemeral"]);
    command.env("HOME", sandbox.path()).env("XDG_STATE_HOME", sandbox.path().join("state"));
    command.env("ANTHROPIC_BASE_URL", fake.anthropic_url()).env("ANTHROPIC_API_KEY", KEY);
    let ended = wait(&mut command);
    assert_eq!((ended.code, fake.requests().len()), (Some(2), 0), "{ended:?}");
    assert!(ended.stderr.contains("the budget `everyday` cannot be kept: "), "{ended:?}");
}
