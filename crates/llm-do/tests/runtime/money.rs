//! Limits on money and requests, against a provider on loopback that takes its time and writes a bill.

use std::sync::Arc;
use std::time::Duration;

use fake_llm::{
    At, Bill, Cut, FakeCall, FakeFinish, FakeLlm, FakePrices, FakeReply, FakeScript, FakeUsage, InjectedFault, On,
    SeenRequest, StallGate,
};
use llm_do::event::{EventKind, Listen, UsageReport};
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::journal::Journal;
use llm_do::journal::file::{self, FileJournal, Matching, OpenJournal};
use llm_do::journal::mac::StateKey;
use llm_do::message::{Attachment, Content};
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries, Secret};
use llm_do::model::name::ModelChoices;
use llm_do::model::prices::Money;
use llm_do::model::provider::provider;
use llm_do::project::Limits;
use llm_do::runtime::input::Input;
use llm_do::runtime::record::{self, PriorSpending};
use llm_do::runtime::{Models, RunError, Runtime, RuntimeConfig, UnknownPrices};
use llm_do::tools::Ending;
use llm_do::tools::approval::Approvals;
use serde_json::json;

use super::support::Files;

/// A dollar for a million tokens in, five for a million out; at most 64 000 of them: 32 cents for an answer.
const MODEL: &str = "anthropic:claude-haiku-4-5";
const PRICES: FakePrices = FakePrices { input: 1_000_000, output: 5_000_000 };

fn worker(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\nmodel: {MODEL}\n{keys}\n---\nYou are {name}.\n")
}

fn models(fake: &FakeLlm) -> Models {
    let row = provider("anthropic").unwrap();
    let wait = Duration::from_millis(1);
    let retries = Retries { attempts: 3, first_wait: wait, longest_wait: wait, ..Retries::STANDARD };
    let endpoint = Endpoint {
        provider: row.name.to_owned(),
        protocol: row.protocol.protocol().unwrap(),
        quirks: row.quirks,
        base_url: fake.anthropic_url(),
        key: Key::Secret(Secret::new("secret")),
    };
    let http = HttpClient::new(HttpSettings::STANDARD).unwrap();
    let mut models = Models::default();
    models.insert(row.name, Arc::new(Exchange { endpoint: Arc::new(endpoint), http, retries }));
    models
}

fn limited(limits: Limits) -> RuntimeConfig {
    RuntimeConfig { limits, ..RuntimeConfig::new(Approvals::unattended()) }
}

fn dollars(max_cost_usd: f64) -> Limits {
    Limits { max_cost_usd: Some(max_cost_usd), ..Limits::default() }
}

fn requests(max_requests: u64) -> Limits {
    Limits { max_requests: Some(max_requests), ..Limits::default() }
}

fn runtime(files: &Files, fake: &FakeLlm, config: RuntimeConfig) -> Runtime {
    let program = files.project().link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}"));
    Runtime::new(program, models(fake), config)
}

/// One agent, one question, and what came of it.
async fn asked(
    script: FakeScript,
    config: RuntimeConfig,
    keys: &str,
) -> (Result<String, RunError>, UsageReport, FakeLlm) {
    let fake = FakeLlm::start(script);
    let files = Files::new(&[("main.worker", &worker("main", keys))]);
    let runtime = runtime(&files, &fake, config);
    let said = runtime.run("hi").await.map(|outcome| outcome.output.into_text());
    let usage = runtime.usage();
    (said, usage, fake)
}

fn picture() -> Content {
    let mut data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    data.extend(800_u32.to_be_bytes().into_iter().chain(600_u32.to_be_bytes()));
    Content::Attachment(Attachment {
        name: "a.png".into(),
        path: None,
        media_type: "image/png".into(),
        data: data.into(),
    })
}

/// The entry calls 64 children at once, and then is done.
fn delegate(seen: &SeenRequest) -> Option<FakeReply> {
    if !seen.offers("child") {
        return None;
    }
    if seen.results().next().is_some() {
        return Some(FakeReply::text("Done."));
    }
    let calls = (0..64).map(|number| FakeCall::new("child", json!({"input": format!("港の話を聞かせて {number}")})));
    Some(FakeReply::calls(calls))
}

#[tokio::test]
async fn sixty_four_children_at_once_never_spend_more_than_the_run_may() {
    let (mut whole, mut stopped) = (0, 0);
    for seed in 0..100 {
        let bill = Bill::default();
        let script = FakeScript::new()
            .billed(PRICES, &bill, delegate)
            .priced(PRICES, 1_000 + 600 * (seed % 12), seed, &bill)
            .latency(Duration::from_millis(2), seed)
            .fault(On::Chance { percent: 8, seed }, InjectedFault::cut(At::Percent(90), Cut::Eof));
        let fake = FakeLlm::start(script);
        let (main, child) = (worker("main", "entry: true\ntoolsets: [child]"), worker("child", ""));
        let files = Files::new(&[("main.worker", &main), ("child.worker", &child)]);
        let runtime = runtime(&files, &fake, limited(dollars(1.0)));
        let given = vec![Content::text("Tell me of the harbour."), picture()];
        let ended = runtime.run(Input::Parts(given)).await;
        let counted = runtime.usage().total.cost_usd.unwrap();
        let billed = Money::from_picodollars(bill.picodollars()).usd();
        assert!(billed <= 1.0 && counted <= 1.0, "seed {seed}: billed {billed}, counted {counted}");
        assert!(counted >= billed, "seed {seed}: {billed} billed, and only {counted} counted");
        match ended {
            Ok(_) => whole += 1,
            Err(RunError::Ended(Ending::Limit { limit, used, allowed, needed, .. })) => {
                // Either the next request did not fit, or an answer was cut where the money ended.
                let is_spent = used + needed.unwrap_or(0.01) > allowed;
                assert!(limit == "max_cost_usd" && is_spent, "seed {seed}: {used} of {allowed}, {needed:?} needed");
                stopped += 1;
            }
            // Chance may cut all three sendings of one request.
            Err(RunError::Model { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(whole > 0 && stopped > 0, "{whole} and {stopped}: both happen");
}

#[tokio::test]
async fn the_longest_answer_is_sent_along_where_money_is_limited_and_lowered_to_what_there_is() {
    let longest = |fake: &FakeLlm| fake.requests()[0].seen.as_ref().unwrap().longest_answer.unwrap();
    let script = || FakeScript::new().otherwise(FakeReply::text("yes"));
    for (limits, keys, sent) in [
        (dollars(1.0), "", 64_000),
        (dollars(1.0), "model_settings: {max_tokens: 500}", 500),
        (Limits::default(), "", 32_000),
        (Limits::default(), "limits: {max_cost_usd: 1}", 64_000),
    ] {
        let (said, _, fake) = asked(script(), limited(limits), keys).await;
        assert_eq!((said.unwrap().as_str(), longest(&fake)), ("yes", sent), "{keys}");
    }
    let (_, _, fake) = asked(script(), limited(dollars(0.05)), "").await;
    assert!((9_900..10_000).contains(&longest(&fake)), "{}", longest(&fake));
    // There is not enough for an answer of any use: nothing is asked.
    let (ended, usage, fake) = asked(script(), limited(dollars(0.005)), "").await;
    let error = ended.unwrap_err();
    assert!(matches!(&error, RunError::Ended(Ending::Limit { limit, .. }) if limit == "max_cost_usd"), "{error}");
    assert!(error.to_string().contains("and the next request may cost $0.0051"), "{error}");
    assert_eq!((fake.requests().len(), usage.total.requests), (0, 0));
}

#[tokio::test]
async fn an_answer_that_is_cut_where_money_ends_is_stopped_by_the_limit_and_never_gone_on_with() {
    let cut = FakeReply::text("So far").with_usage(FakeUsage::new(10, 9_900)).finishing(FakeFinish::Length);
    let (ended, usage, fake) = asked(FakeScript::new().otherwise(cut), limited(dollars(0.05)), "").await;
    let error = ended.unwrap_err();
    assert!(matches!(&error, RunError::Ended(Ending::Limit { limit, .. }) if limit == "max_cost_usd"), "{error}");
    assert_eq!((error.partial(), fake.requests().len(), usage.total.requests), (Some("So far"), 1, 1));
}

#[tokio::test]
async fn every_sending_counts_and_none_is_made_that_a_limit_forbids() {
    let busy =
        |times| FakeScript::new().otherwise(FakeReply::text("yes")).fault(On::First(times), InjectedFault::status(529));
    let (said, usage, fake) = asked(busy(2), limited(requests(3)), "").await;
    assert_eq!((said.unwrap().as_str(), fake.requests().len()), ("yes", 3));
    let total = usage.total;
    assert_eq!((total.requests, total.unanswered, total.estimated), (3, 2, 0));
    assert_eq!((total.input_tokens, total.cost_usd), (10, Some(0.000_035)), "a refusal is not paid");
    for (config, keys) in [(limited(requests(2)), ""), (limited(Limits::default()), "limits: {max_requests: 2}")] {
        let (ended, usage, fake) = asked(busy(9), config, keys).await;
        let error = ended.unwrap_err();
        assert!(matches!(&error, RunError::NotAskedAgain { limit, .. } if limit == "max_requests"), "{error}");
        assert!(error.to_string().contains("status 529"), "the provider's own words: {error}");
        assert_eq!((fake.requests().len(), usage.total.requests), (2, 2), "{keys}");
    }
}

#[tokio::test]
async fn what_a_cut_stream_had_reported_counts_and_a_retry_has_to_fit_the_money() {
    let cut = InjectedFault::cut(At::Percent(80), Cut::Eof);
    let reply = || FakeReply::text(&"word".repeat(300)).with_usage(FakeUsage::new(1_000, 300));
    let (said, usage, _) =
        asked(FakeScript::new().otherwise(reply()).fault(On::Request(1), cut.clone()), limited(dollars(1.0)), "").await;
    assert!(said.is_ok());
    let total = usage.total;
    assert_eq!((total.requests, total.unanswered, total.estimated, total.input_tokens), (2, 1, 1, 2_000));
    assert!((550..800).contains(&total.output_tokens), "{total:?}");
    // The first one has taken so much that there is no room for an answer to a second.
    let (ended, usage, fake) =
        asked(FakeScript::new().otherwise(reply()).fault(On::Every, cut), limited(dollars(0.0064)), "").await;
    let error = ended.unwrap_err();
    assert!(matches!(&error, RunError::NotAskedAgain { limit, .. } if limit == "max_cost_usd"), "{error}");
    assert_eq!((fake.requests().len(), usage.total.requests), (1, 1));
}

#[tokio::test]
async fn what_was_heard_of_a_cut_stream_counts_for_no_more_tokens_than_it_may_have_had() {
    let cut = InjectedFault::cut(At::Percent(80), Cut::Eof);
    // Far more bytes than so many tokens usually have.
    let reply = FakeReply::text(&"word".repeat(3_000)).with_usage(FakeUsage::new(10, 1_050));
    for (limits, keys) in [(dollars(0.0064), ""), (Limits::default(), "model_settings: {max_tokens: 1060}")] {
        let script = FakeScript::new().otherwise(reply.clone()).fault(On::Every, cut.clone());
        let (ended, usage, fake) = asked(script, limited(limits), keys).await;
        let sent = fake.requests().len() as u64;
        assert!(ended.is_err() && usage.total.requests == sent, "{usage:?}");
        assert!((1_000 * sent..1_300 * sent).contains(&usage.total.output_tokens), "{usage:?}");
        assert!(usage.total.cost_usd.unwrap() <= 0.0064 * f64::from(u32::try_from(sent).unwrap()), "{usage:?}");
    }
}

#[tokio::test]
async fn an_interrupted_request_counts_for_what_may_have_been_paid() {
    for (at, config, output, estimated) in [
        (None, limited(dollars(1.0)), 64_000..64_001, 1),
        (None, limited(Limits::default()), 0..1, 1),
        (Some(At::Percent(60)), limited(dollars(1.0)), 1..200, 1),
    ] {
        let gate = StallGate::new();
        let fault = match at {
            None => InjectedFault::StallBeforeHead(gate.clone()),
            Some(at) => InjectedFault::Stall { at, gate: gate.clone() },
        };
        let fake =
            FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("Once upon a time")).fault(On::Every, fault));
        let files = Files::new(&[("main.worker", &worker("main", ""))]);
        let program = files.project().link(&ModelChoices::default()).unwrap();
        let (runtime, mut listener) = Runtime::with_listener(program, models(&fake), config, Listen::Everything);
        let mut scope = runtime.open("main").await.unwrap();
        let heard = async {
            gate.reached(1).await;
            // What has been sent is not yet what has been read.
            while at.is_some() && !matches!(listener.recv().await.unwrap().kind, EventKind::TextDelta { .. }) {}
        };
        let ended = scope.turn_until("hi", heard).await;
        assert!(matches!(ended, Err(RunError::Cancelled { .. })));
        scope.close().await;
        let total = runtime.usage().total;
        assert_eq!((total.requests, total.unanswered, total.estimated), (1, 1, estimated));
        assert!(total.input_tokens > 0 && output.contains(&total.output_tokens), "{total:?}");
        assert!(total.cost_usd.is_some_and(|cost| cost > 0.0), "{total:?}");
        let failed = std::iter::from_fn(|| listener.try_recv().ok()).find_map(|event| match event.kind {
            EventKind::RequestFailed { usage, error, .. } => Some((usage, error)),
            _ => None,
        });
        assert_eq!(failed, Some((total, "cancelled".to_owned())));
        assert_eq!(runtime.trace()[0].usage, total, "the trace agrees");
    }
}

#[tokio::test]
async fn what_was_never_sent_counts_for_nothing() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("yes")));
    let files = Files::new(&[("main.worker", &worker("main", ""))]);
    let runtime = runtime(&files, &fake, limited(dollars(1.0)));
    let _ = fake.stop();
    assert!(runtime.run("hi").await.is_err());
    assert_eq!(runtime.usage().total.requests, 0);
}

#[tokio::test]
async fn a_provider_that_reports_more_than_was_reserved_is_told_of() {
    let dear = FakeReply::text("yes").with_usage(FakeUsage::new(900_000, 5));
    let fake = FakeLlm::start(FakeScript::new().otherwise(dear));
    let files = Files::new(&[("main.worker", &worker("main", ""))]);
    let program = files.project().link(&ModelChoices::default()).unwrap();
    let config = limited(dollars(1.0));
    let (runtime, mut listener) = Runtime::with_listener(program, models(&fake), config, Listen::Facts);
    runtime.run("hi").await.unwrap();
    let notices: Vec<String> = std::iter::from_fn(|| listener.try_recv().ok())
        .filter_map(|event| match event.kind {
            EventKind::Notice { text } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(notices.len(), 1);
    assert!(notices[0].starts_with("the request cost $0.9000, which is more than the $0.3200"), "{notices:?}");
}

#[tokio::test]
async fn what_has_no_bound_is_not_asked_unless_that_is_allowed() {
    let script = || FakeScript::new().otherwise(FakeReply::text("yes"));
    let keys = "server_side_tools: [{tool_type: web_search}]";
    let (ended, _, fake) = asked(script(), limited(dollars(1.0)), keys).await;
    let error = ended.unwrap_err();
    assert!(matches!(&error, RunError::UnboundedTool { tool: "web_search", .. }), "{error}");
    assert!(fake.requests().is_empty());
    let allowed = RuntimeConfig { unknown_prices: UnknownPrices::Allowed, ..limited(dollars(1.0)) };
    let bounded = "server_side_tools: [{tool_type: web_search, max_uses: 3}]";
    for (config, keys) in [(allowed, keys), (limited(dollars(1.0)), bounded), (limited(Limits::default()), keys)] {
        let (said, ..) = asked(script(), config, keys).await;
        assert_eq!(said.unwrap(), "yes", "{keys}");
    }
}

/// One process fails, the next one comes to the end: what both sent is in the sums of the last, once.
#[tokio::test]
async fn what_earlier_processes_sent_in_vain_counts_in_the_run_that_goes_on() {
    let (main, child) = (worker("main", "entry: true\ntoolsets: [child]"), worker("child", ""));
    let files = Files::new(&[("main.worker", &main), ("child.worker", &child)]);
    let (journal, key) = (files.path().join("run.journal"), StateKey::from_bytes([3; 32]));
    let one_child = |seen: &SeenRequest| match (seen.offers("child"), seen.results().next()) {
        (true, None) => Some(FakeReply::calls([FakeCall::new("child", json!({"input": "a"}))])),
        (true, Some(_)) => Some(FakeReply::text("Done.")),
        (false, _) => Some(FakeReply::text("yes")),
    };
    let created: Arc<dyn Journal> = Arc::new(FileJournal::create(&journal, &"header", Some(&key)).unwrap());
    let mut engine = (created, PriorSpending::default());
    let resumed = || {
        let open = OpenJournal::open(&journal, Some(&key)).unwrap();
        let resumed = PriorSpending::from(open.contents());
        (Arc::new(open.resume(Matching::Exact, None).unwrap()) as Arc<dyn Journal>, resumed)
    };
    for (fault, sums, is_done) in [(On::First(9), (4, 4), false), (On::Chance { percent: 0, seed: 0 }, (7, 4), true)] {
        let fake = FakeLlm::start(FakeScript::new().answer(one_child).fault(fault, InjectedFault::status(529)));
        let runtime = runtime(&files, &fake, limited(requests(50))).identified("the run".into());
        let runtime = runtime.recorded_by(engine.0, engine.1);
        assert_eq!(runtime.run("go").await.is_ok(), is_done);
        let total = runtime.usage().total;
        assert_eq!((total.requests, total.unanswered), sums);
        drop(runtime);
        engine = resumed();
    }
    drop(engine);
    let outcome = record::outcome(&file::read(&journal, Some(&key)).unwrap()).unwrap();
    assert_eq!((outcome.usage.total.requests, outcome.usage.total.unanswered), (7, 4), "also from its journal alone");
}

/// A child that fails is a result for its caller: it is told with the call, and not once more.
#[tokio::test]
async fn what_a_call_tells_of_its_failures_is_not_counted_twice() {
    let (main, child) = (worker("main", "entry: true\ntoolsets: [child]"), worker("child", ""));
    let files = Files::new(&[("main.worker", &main), ("child.worker", &child)]);
    let (journal, key) = (files.path().join("run.journal"), StateKey::from_bytes([3; 32]));
    let answers = |seen: &SeenRequest| match (seen.offers("child"), seen.results().next()) {
        (true, None) => Some(FakeReply::calls([FakeCall::new("child", json!({"input": "a"}))])),
        (true, Some(_)) => Some(FakeReply::text("Done.")),
        (false, _) => Some(FakeReply::text("yes")),
    };
    let mut script = FakeScript::new().answer(answers);
    for request in 2..=5 {
        script = script.fault(On::Request(request), InjectedFault::status(529));
    }
    let fake = FakeLlm::start(script);
    let engine = Arc::new(FileJournal::create(&journal, &"header", Some(&key)).unwrap());
    let runtime = runtime(&files, &fake, limited(requests(50))).recorded_by(engine, PriorSpending::default());
    runtime.run("go").await.unwrap();
    assert_eq!((runtime.usage().total.requests, runtime.usage().total.unanswered), (6, 4));
    drop(runtime);
    let outcome = record::outcome(&file::read(&journal, Some(&key)).unwrap()).unwrap();
    assert_eq!((outcome.usage.total.requests, outcome.usage.total.unanswered), (6, 4));
}
