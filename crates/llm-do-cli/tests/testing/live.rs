//! Models that are asked: how often they pass, and a budget that holds.

use std::sync::atomic::{AtomicU64, Ordering};

use fake_llm::{FakeLlm, FakeReply, FakeScript, FakeUsage};
use serde_json::Value;

use crate::session::Run;
use crate::support::Sandbox;

const WORKER: &str = "---\nname: main\nmodel: anthropic:claude-haiku-4-5\nmodel_settings: {max_tokens: 1000}\n---\nx\n";
const CASES: &str = "cases:\n  - { name: knows, input: hi, expect: { output: { contains: right } } }\n";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", WORKER).file("main.test.yaml", CASES);
    sandbox
}

fn answers(count: usize, wrong_every: usize) -> FakeScript {
    (1..=count).fold(FakeScript::new(), |script, index| {
        let text = if index % wrong_every == 0 { "wrong" } else { "right" };
        script.reply(FakeReply::text(text).with_usage(FakeUsage::new(1000, 100)))
    })
}

#[test]
fn the_share_that_passes_is_told_with_its_interval() {
    let (sandbox, fake) = (sandbox(), FakeLlm::start(answers(10, 5)));
    let ended = Run::of(&sandbox, &["test", "main.worker", "--live", "-n", "10", "--json"]).asking(&fake).ended();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    let cell = &told["cases"][0];
    assert_eq!((&cell["passed"], &cell["total"]), (&8.into(), &10.into()));
    let (low, high) = (cell["low"].as_f64().unwrap(), cell["high"].as_f64().unwrap());
    assert!((0.49..0.491).contains(&low) && (0.943..0.944).contains(&high), "{cell}");
    assert!(cell["cost_usd"].as_f64().unwrap() > 0.0);
    assert_eq!(fake.requests().len(), 10);
}

#[test]
fn several_models_are_columns_and_run_at_once() {
    let (sandbox, fake) = (sandbox(), FakeLlm::start(answers(8, 100)));
    let models = "anthropic:claude-haiku-4-5,anthropic:claude-sonnet-4-5";
    let words = ["test", "main.worker", "--live", "-n", "4", "-m", models, "-j", "4"];
    let ended = Run::of(&sandbox, &words).asking(&fake).ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ended:?}");
    for (line, model) in lines.iter().zip(models.split(',')) {
        assert!(line.contains("4/4") && line.contains("51 to 100 %") && line.contains(model), "{line}");
    }
}

#[test]
fn the_budget_ends_it_and_is_never_exceeded() {
    for jobs in ["1", "4"] {
        // Each answer costs $0.0015.
        let fake = FakeLlm::start(answers(50, 100));
        let sandbox = sandbox();
        let words = ["test", "main.worker", "--live", "-n", "50", "--budget", "0.03", "-j", jobs];
        let ended = Run::of(&sandbox, &words).asking(&fake).ended();
        assert_eq!(ended.code, Some(5), "{ended:?}");
        assert!(ended.stderr.contains("the budget of $0.03 is used up"), "{ended:?}");
        let asked = fake.requests().len();
        assert!((1..50).contains(&asked), "{asked}");
        #[expect(clippy::cast_precision_loss, reason = "a few requests")]
        let spent = asked as f64 * 0.0015;
        assert!(spent <= 0.03, "{spent}");
    }
}

#[test]
fn a_replay_asks_nobody_whatever_keys_there_are() {
    let (sandbox, fake) = (sandbox(), FakeLlm::start(answers(1, 100)));
    let ended = Run::of(&sandbox, &["test", "main.worker", "--record"]).asking(&fake).ended();
    assert_eq!((ended.code, fake.requests().len()), (Some(0), 1), "{ended:?}");
    let ended = Run::of(&sandbox, &["test", "main.worker"]).asking(&fake).ended();
    assert_eq!((ended.code, fake.requests().len()), (Some(0), 1), "{ended:?}");
}

/// A number that looks like chance, the same in every run of the test.
fn chance(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A provider that answers wrong one time in five, by chance: 100 suites of 20 answers, whose intervals cover the truth in nearly
/// all, and none of which costs more than its budget.
#[test]
fn intervals_cover_the_truth_and_no_budget_is_exceeded() {
    const SUITES: u64 = 100;
    let asked = AtomicU64::new(0);
    let script = FakeScript::new().answer(move |_| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let is_wrong = chance(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1).is_multiple_of(5);
        let text = if is_wrong { "wrong" } else { "right" };
        Some(FakeReply::text(text).with_usage(FakeUsage::new(1000, 100)))
    });
    let (sandbox, fake) = (sandbox(), FakeLlm::start(script));
    let (mut covered, mut exceeded, mut passed, mut total) = (0, 0, 0, 0);
    for suite in 0..SUITES {
        // A request costs $0.0015: every tenth suite cannot afford all of its answers.
        let budget: f64 = if suite % 10 == 9 { 0.02 } else { 1.0 };
        let (shown, jobs) = (budget.to_string(), if budget < 1.0 { "1" } else { "4" });
        let arguments = ["test", "main.worker", "--live", "-n", "20", "-j", jobs, "--budget", &shown, "--json"];
        let before = fake.requests().len();
        let ended = Run::of(&sandbox, &arguments).asking(&fake).ended();
        let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
        let requests = u32::try_from(fake.requests().len() - before).unwrap();
        exceeded += u64::from(f64::from(requests) * 0.0015 > budget);
        let cell = &told["cases"][0];
        passed += cell["passed"].as_u64().unwrap();
        total += cell["total"].as_u64().unwrap();
        covered += u64::from((cell["low"].as_f64().unwrap()..=cell["high"].as_f64().unwrap()).contains(&0.8));
    }
    println!("{covered} of {SUITES} intervals cover the truth, {exceeded} budgets exceeded, {passed} of {total} right");
    assert!(covered >= 93, "{covered} of {SUITES} intervals cover the truth");
    assert_eq!(exceeded, 0);
}
