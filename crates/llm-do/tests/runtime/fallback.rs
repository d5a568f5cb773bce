//! Several models of one agent: the next one is asked where the provider of the one before has trouble, and only then.

use std::sync::Arc;
use std::time::Duration;

use fake_llm::{At, Cut, FakeLlm, FakeProviderError, FakeReply, FakeScript, InjectedFault, On};
use llm_do::event::{EventKind, Listen};
use llm_do::journal::Journal;
use llm_do::journal::file::{FileJournal, Matching, OpenJournal};
use llm_do::journal::mac::StateKey;
use llm_do::message::Message;
use llm_do::model::exchange::Retries;
use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::model::prices::{ModelPrice, Prices, Rate, Rates};
use llm_do::project::Limits;
use llm_do::runtime::record::PriorSpending;
use llm_do::runtime::{Models, RunError, Runtime, RuntimeConfig};
use llm_do::tools::approval::Approvals;

use super::kept::exchange;
use super::support::{Files, text};

const SECOND: &str = "- say: by the second\n";

fn config() -> RuntimeConfig {
    RuntimeConfig::new(Approvals::approve_all())
}

fn worker(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\nmodel: [scripted:first.yaml, scripted:second.yaml]\n{keys}\n---\nYou are {name}.\n")
}

fn files(first: &str) -> Files {
    let main = worker("main", "entry: true\ntoolsets: [child]");
    Files::new(&[
        ("main.worker", &main),
        ("child.worker", &worker("child", "")),
        ("first.yaml", first),
        ("second.yaml", SECOND),
    ])
}

fn runtime(files: &Files) -> Runtime {
    super::support::runtime(&files.project(), config())
}

/// Which models were asked in their turn, and from which to which one the agents went.
fn heard(events: impl IntoIterator<Item = EventKind>) -> (Vec<String>, Vec<String>) {
    let (mut asked, mut switched) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            EventKind::RequestStarted { model, .. } => asked.push(model),
            EventKind::ModelSwitched { from, to, .. } => switched.push(format!("{from} → {to}")),
            _ => {}
        }
    }
    (asked, switched)
}

#[tokio::test]
async fn the_next_model_is_asked_and_what_failed_rests_in_all_agents() {
    let files = files("- {fail: wait, say: overloaded}\n");
    let program = files.project().link(&ModelChoices::default()).unwrap();
    let (runtime, mut events) = Runtime::with_listener(program, Models::default(), config(), Listen::Everything);
    let mut call = runtime.open_entry().await.unwrap();
    assert_eq!(text(call.turn("hi").await), "by the second");
    assert_eq!(text(call.turn("again").await), "by the second");
    let models = call.history().iter().filter_map(|message| match message {
        Message::Assistant(reply) => Some(reply.model.clone()),
        Message::User(_) | Message::Tool(_) => None,
    });
    assert_eq!(models.collect::<Vec<_>>(), ["scripted:second.yaml", "scripted:second.yaml"]);
    call.close().await;
    let mut child = runtime.open("child").await.unwrap();
    assert_eq!(text(child.turn("hi").await), "by the second");
    child.close().await;
    drop(runtime);
    let mut kinds = Vec::new();
    while let Some(event) = events.recv().await {
        kinds.push(event.kind);
    }
    let (asked, switched) = heard(kinds);
    let (first, second) = ("scripted:first.yaml", "scripted:second.yaml");
    assert_eq!(asked, [first, second, second, second], "the first is asked once, also by the other agent");
    assert_eq!(switched, [format!("{first} → {second}"), format!("{first} → {second}")]);
}

#[tokio::test]
async fn a_mistake_of_ours_is_no_reason_to_ask_another_model() {
    for fail in ["fix_request", "authenticate", "context_too_long", "give_up"] {
        let files = files(&format!("- {{fail: {fail}, say: no}}\n"));
        let error = runtime(&files).run("hi").await.unwrap_err();
        assert!(matches!(error, RunError::Model { .. }), "{fail}: {error}");
    }
    let files = files("- {fail: wait, say: too busy}\n");
    std::fs::write(files.path().join("second.yaml"), "- {fail: authenticate, say: who are you}\n").unwrap();
    let error = runtime(&files).run("hi").await.unwrap_err().to_string();
    assert!(error.contains("who are you; before it scripted:first.yaml: "), "{error}");
    assert!(error.contains("too busy"), "{error}");
}

#[tokio::test]
async fn what_was_recorded_holds_for_whoever_goes_on() {
    let files = files("- {fail: wait, say: overloaded}\n");
    let (path, key) = (files.path().join("run.journal"), StateKey::from_bytes([3; 32]));
    let engine: Arc<dyn Journal> = Arc::new(FileJournal::create(path.clone(), &"header", Some(&key)).unwrap());
    let first = runtime(&files).recorded_by(engine, PriorSpending::default());
    let mut call = first.open_entry().await.unwrap();
    assert_eq!(text(call.turn("hi").await), "by the second");
    let said = call.history().to_vec();
    drop(call);
    drop(first);
    // Nobody could give this answer again.
    std::fs::write(files.path().join("second.yaml"), "- say: by somebody else\n").unwrap();
    let open = OpenJournal::open(&path, Some(&key)).unwrap();
    let resumed = PriorSpending::from(open.contents());
    let again = runtime(&files).recorded_by(Arc::new(open.resume(Matching::Exact, None).unwrap()), resumed);
    let mut call = again.open_entry().await.unwrap();
    assert_eq!((call.restore().unwrap().finished, call.history()), (1, &said[..]));
    assert_eq!(text(call.turn("and now?").await), "by somebody else");
    assert!(std::fs::read_to_string(&path).unwrap().contains("model_switched"));
}

/// Two providers on loopback, of which the first gives trouble.
async fn asked(fault: InjectedFault, limits: Limits, dear: u32) -> (Result<String, RunError>, FakeLlm, FakeLlm) {
    let first = FakeLlm::start(FakeScript::new().reply(FakeReply::text("by the first one")).fault(On::Every, fault));
    let second = FakeLlm::start(FakeScript::new().reply(FakeReply::text("by the second")));
    let main = "---\nname: main\nmodel: [anthropic:a, openai:b]\n---\nBe brief.\n";
    let files = Files::new(&[("main.worker", main)]);
    let program = files.project().link(&ModelChoices::default()).unwrap();
    let price = |dollars: u32| {
        let rate = |dollars: u32| Rate::from_dollars(f64::from(dollars)).unwrap();
        let (input, output) = (rate(dollars), rate(dollars));
        ModelPrice { rates: Rates { input, output, cache_read: input, cache_write: input }, tiers: Vec::new() }
    };
    let name = |text: &str| ModelName::parse(text).unwrap();
    let mut models = Models::new(Prices::new([(name("anthropic:a"), price(1)), (name("openai:b"), price(dear))]));
    for (provider, fake) in [("anthropic", &first), ("openai", &second)] {
        let wait = Duration::from_millis(1);
        let retries = Retries { attempts: 2, first_wait: wait, longest_wait: wait, ..Retries::STANDARD };
        let exchange = llm_do::model::exchange::Exchange { retries, ..exchange(provider, fake) };
        models.insert(provider, Arc::new(exchange));
    }
    let runtime = Runtime::new(program, models, RuntimeConfig { limits, ..config() });
    let said = runtime.run("hi").await.map(|outcome| outcome.output.into_text());
    (said, first, second)
}

#[tokio::test]
async fn another_is_asked_after_ones_retries_and_never_after_something_was_told() {
    let busy = || InjectedFault::Failure(FakeProviderError::new(529, "overloaded"));
    let (said, first, second) = asked(busy(), Limits::default(), 1).await;
    assert_eq!((said.unwrap().as_str(), first.requests().len(), second.requests().len()), ("by the second", 3, 1));
    let cut = InjectedFault::cut(At::Percent(70), Cut::Eof);
    let (said, first, second) = asked(cut, Limits::default(), 1).await;
    assert!(matches!(said, Err(RunError::Model { .. })), "{said:?}");
    assert_eq!((first.requests().len(), second.requests().len()), (3, 0));
    // A limit of requests counts those of all models.
    let two = Limits { max_requests: Some(2), ..Limits::default() };
    let (said, first, second) = asked(busy(), two, 1).await;
    assert!(matches!(said, Err(RunError::NotAskedAgain { .. })), "{said:?}");
    assert_eq!((first.requests().len(), second.requests().len()), (2, 0));
}

#[tokio::test]
async fn the_dearest_of_them_is_reserved() {
    let money = || Limits { max_cost_usd: Some(0.1), ..Limits::default() };
    let busy = || InjectedFault::Failure(FakeProviderError::new(400, "no"));
    for (dear, most) in [(1, 100_000), (50, 2_000)] {
        let (_, first, _) = asked(busy(), money(), dear).await;
        let requests = first.requests();
        let bound = requests[0].body["max_tokens"].as_u64().unwrap();
        assert!(bound <= most && bound > 1_000, "{dear}: {bound}");
        assert!(dear == 50 || bound > 10_000, "{dear}: {bound}");
    }
}
