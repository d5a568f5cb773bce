//! Conversations that are longer than the window of their model: what is left out, what can be recalled, and what comes back
//! in another process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fake_llm::{
    FakeCall, FakeLlm, FakeProviderError, FakeReply, FakeScript, FakeUsage, InjectedFault, On, SeenMessage, SeenPart,
    SeenRequest,
};
use llm_do::journal::Journal;
use llm_do::journal::file::{FileJournal, Matching, OpenJournal};
use llm_do::journal::mac::StateKey;
use llm_do::model::name::ModelChoices;
use llm_do::runtime::record::PriorSpending;
use llm_do::runtime::{EntryCall, Models, RunError, Runtime, RuntimeConfig};
use llm_do::tools::approval::{Approvals, Rule};
use llm_do::tools::function::Tool;
use serde_json::json;

use super::kept::exchange;
use super::support::{Files, text};

const WINDOW: u64 = 8_192;
const ANSWER: u64 = 1_024;
const FACT: &str = "The gate of the harbour opens with 7341.";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Named {
    name: String,
}

/// Two thousand characters, and in the third of them a fact that is nowhere else.
async fn look(named: Named) -> Result<String, String> {
    let fact = if named.name == "3" { FACT } else { "" };
    Ok(format!("{fact}\n{}", "lorem ipsum dolor sit amet\n".repeat(75)))
}

fn said(seen: &SeenRequest) -> String {
    let part = |part: &SeenPart| match part {
        SeenPart::Text(text) | SeenPart::Result { text, .. } => format!("{text}\n"),
        SeenPart::Call { name, arguments, .. } => format!("{name} {arguments}\n"),
        SeenPart::Thinking { .. } | SeenPart::RedactedThinking { .. } | SeenPart::Other(_) => String::new(),
    };
    seen.messages.iter().flat_map(|message| &message.parts).map(part).collect()
}

fn tokens(seen: &SeenRequest) -> u64 {
    let tools: usize = seen.tools.iter().map(|tool| format!("{tool:?}").len()).sum();
    (said(seen).len() + seen.system.len() + tools) as u64 / 4
}

/// A model with a small window: what does not fit is counted, and not forgiven.
struct SmallModel {
    refusals: AtomicU64,
    largest: AtomicU64,
}

impl SmallModel {
    fn answer(&self, seen: &SeenRequest) -> FakeReply {
        let size = tokens(seen);
        self.largest.fetch_max(size, Ordering::SeqCst);
        if size + ANSWER > WINDOW {
            self.refusals.fetch_add(1, Ordering::SeqCst);
        }
        Self::reply(seen).with_usage(FakeUsage::new(size, 60))
    }

    fn reply(seen: &SeenRequest) -> FakeReply {
        if !seen.offers("look") {
            return FakeReply::text("They looked at many files, one after the other.");
        }
        let asked = seen.last_user_text();
        if !asked.contains("number of the harbour") {
            return match seen.last_result() {
                None => FakeReply::calls([FakeCall::new("look", json!({"name": asked.replace("look at ", "")}))]),
                Some(_) => FakeReply::text(&format!("I have looked: {asked}. {}", "Nothing new. ".repeat(15))),
            };
        }
        let result = seen.last_result().unwrap_or_default();
        if result.contains("7341") {
            return FakeReply::text("It is 7341.");
        }
        // The third look is the third result; a summary does not name it.
        let is_marked = said(seen).contains("look 3,");
        let read = seen.messages.iter().rev().flat_map(SeenMessage::calls).filter(|(_, name, _)| *name == "recall");
        let offset = read.count() as u64 * 4_000;
        let id = if is_marked { "r3" } else { "s" };
        FakeReply::calls([FakeCall::new("recall", json!({"id": id, "offset": offset, "max_chars": 4_000}))])
    }
}

fn played() -> (FakeLlm, Arc<SmallModel>) {
    played_with(|script| script)
}

fn played_with(change: impl FnOnce(FakeScript) -> FakeScript) -> (FakeLlm, Arc<SmallModel>) {
    let model = Arc::new(SmallModel { refusals: AtomicU64::new(0), largest: AtomicU64::new(0) });
    let player = Arc::clone(&model);
    let script = FakeScript::new().accept_foreign_history().answer(move |seen| Some(player.answer(seen)));
    (FakeLlm::start(change(script)), model)
}

fn files(context: &str) -> Files {
    let main = format!(
        "---\nname: main\nentry: true\nmodel: anthropic:some-model\ntools: [look]\nmodel_settings: {{max_tokens: {ANSWER}}}\n{context}\n---\nBe brief.\n"
    );
    Files::new(&[("main.worker", &main)])
}

fn runtime(files: &Files, fake: &FakeLlm, is_new: Option<bool>) -> Runtime {
    let project = files.project().tool(Tool::new(look).named("look").repeatable().verdict(Rule::Allow));
    let program = project.link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}"));
    let mut models = Models::default();
    models.insert("anthropic", Arc::new(exchange("anthropic", fake)));
    let runtime = Runtime::new(program, models, RuntimeConfig::new(Approvals::unattended()));
    let (path, key) = (files.path().join("run.journal"), StateKey::from_bytes([3; 32]));
    match is_new {
        None => runtime,
        Some(true) => {
            let engine: Arc<dyn Journal> = Arc::new(FileJournal::create(path, &"header", Some(&key)).unwrap());
            runtime.recorded_by(engine, PriorSpending::default())
        }
        Some(false) => {
            let open = OpenJournal::open(&path, Some(&key)).unwrap();
            let resumed = PriorSpending::from(open.contents());
            runtime.recorded_by(Arc::new(open.resume(Matching::Exact, None).unwrap()), resumed)
        }
    }
}

async fn look_at(call: &mut EntryCall<'_>, turns: std::ops::RangeInclusive<u64>) {
    for turn in turns {
        call.turn(format!("look at {turn}")).await.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
}

/// How many requests of the conversation begin with all that the one before it said, in hundredths.
fn extending(fake: &FakeLlm) -> usize {
    let requests = fake.requests();
    let seen: Vec<&SeenRequest> =
        requests.iter().map(|request| request.seen.as_ref().unwrap()).filter(|seen| seen.offers("look")).collect();
    let extends =
        |pair: &&[&SeenRequest]| pair[1].messages.starts_with(&pair[0].messages[..pair[0].messages.len() - 1]);
    seen.windows(2).filter(|pair| extends(pair)).count() * 100 / (seen.len() - 1)
}

const SMALL: &str = "context: {window: 8192}";

/// The long form asks for the fact after a twentieth of so many turns, two twentieths, and so on.
#[tokio::test]
async fn sixty_turns_pass_through_a_small_window_and_an_early_fact_is_recalled() {
    let turns = std::env::var("LLM_DO_ENDURANCE_TURNS").ok().and_then(|turns| turns.parse::<u64>().ok());
    let counts: Vec<u64> = turns.map_or_else(|| vec![60], |turns| (1..=20).map(|part| turns * part / 20).collect());
    for turns in &counts {
        pass_through_a_small_window(*turns).await;
    }
    println!("the fact of turn 3 was recalled {0} of {0} times", counts.len());
}

async fn pass_through_a_small_window(turns: u64) {
    let (fake, model) = played();
    let files = files(SMALL);
    let runtime = runtime(&files, &fake, None);
    let mut call = runtime.open_entry().await.unwrap();
    look_at(&mut call, 1..=turns).await;
    assert_eq!(text(call.turn("what is the number of the harbour?").await), "It is 7341.");
    assert_eq!(
        model.refusals.load(Ordering::SeqCst),
        0,
        "the largest had {} tokens",
        model.largest.load(Ordering::SeqCst)
    );
    assert_eq!(fake.violations(), []);
    let extending = extending(&fake);
    println!(
        "{turns} turns: 0 refusals, {extending} % of requests extend the last, largest {}",
        model.largest.load(Ordering::SeqCst)
    );
    assert!(extending >= 80, "{extending} % of requests extend the last one");
    let requests = fake.requests();
    assert!(
        turns < 60 || requests.iter().any(|request| !request.seen.as_ref().unwrap().offers("look")),
        "turns were summarised"
    );
    assert!(call.history().len() as u64 > 4 * turns, "the history is whole");
}

#[tokio::test]
async fn whoever_goes_on_sends_what_was_sent_and_a_turn_that_is_forgotten_takes_its_clearing_back() {
    let (fake, _) = played();
    let files = files(SMALL);
    let first = runtime(&files, &fake, Some(true));
    let mut call = first.open_entry().await.unwrap();
    look_at(&mut call, 1..=58).await;
    let history = call.history().to_vec();
    let other = self::files(SMALL);
    let journal = |files: &Files| files.path().join("run.journal");
    std::fs::copy(journal(&files), journal(&other)).unwrap();
    let last = |fake: &FakeLlm| said(fake.requests().iter().rev().nth(1).unwrap().seen.as_ref().unwrap());
    call.turn("look at 59").await.unwrap();
    let expected = last(&fake);
    assert!(expected.contains("[cleared: look ") && expected.contains("[Summary of "), "{expected}");

    let second = runtime(&other, &fake, Some(false));
    let mut call = second.open_entry().await.unwrap();
    assert_eq!((call.restore().unwrap().finished, call.history()), (58, &history[..]));
    call.turn("look at 59").await.unwrap();
    assert_eq!(last(&fake), expected, "as if the first process had gone on");
    // Forgotten back to the beginning, nothing is left out.
    while call.undo().await.unwrap().is_some() {}
    call.turn("look at 1").await.unwrap();
    let anew = said(fake.requests().last().unwrap().seen.as_ref().unwrap());
    assert!(anew.starts_with("look at 1\n") && !anew.contains("cleared") && !anew.contains("Summary"), "{anew}");
    assert_eq!(fake.violations(), []);
}

#[tokio::test]
async fn a_provider_that_refuses_earlier_is_asked_once_more_with_less() {
    let refusal = || {
        let message = "prompt is too long: 9000 tokens > 8192 maximum".to_owned();
        InjectedFault::Failure(FakeProviderError { status: 400, message, code: None, retry_after: None })
    };
    let (fake, _) = played_with(|script| script.fault(On::Request(25), refusal()));
    let files = files("");
    let first = runtime(&files, &fake, Some(true));
    let mut call = first.open_entry().await.unwrap();
    look_at(&mut call, 1..=13).await;
    let requests = fake.requests();
    let seen = |number: usize| requests[number].seen.as_ref().unwrap();
    let refused = tokens(seen(24));
    let again = requests[25..].iter().map(|request| request.seen.as_ref().unwrap()).find(|seen| seen.offers("recall"));
    assert!(tokens(again.unwrap()) <= refused * 4 / 5, "{refused} tokens were refused");
    let history = call.history().to_vec();
    drop(call);
    drop(first);
    let second = runtime(&files, &fake, Some(false));
    let mut call = second.open_entry().await.unwrap();
    assert_eq!((call.restore().unwrap().finished, call.history()), (13, &history[..]));
    call.turn("look at 14").await.unwrap();
    assert_eq!(fake.violations(), []);
    // One that cannot become shorter is told as it was refused.
    let (fake, _) = played_with(|script| script.fault(On::Every, refusal()));
    let short = runtime(&self::files(""), &fake, None).run("look at 1").await.unwrap_err();
    assert!(short.to_string().contains("prompt is too long"), "{short}");
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn one_message_that_is_too_long_is_told_with_the_numbers_and_not_sent() {
    let (fake, _) = played();
    let files = files(SMALL);
    let runtime = runtime(&files, &fake, None);
    let error = runtime.run("x".repeat(30_000)).await.unwrap_err();
    let RunError::ContextFull { size, window, .. } = &error else { panic!("{error}") };
    assert_eq!((*window, *size > 10_000), (7_168, true), "{error}");
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn below_the_thresholds_and_switched_off_nothing_is_left_out() {
    for context in ["context: {window: 1000000}", "context: off", ""] {
        let (fake, _) = played();
        let files = files(context);
        let runtime = runtime(&files, &fake, None);
        let mut call = runtime.open_entry().await.unwrap();
        look_at(&mut call, 1..=20).await;
        let requests = fake.requests();
        assert!(requests.iter().all(|request| !request.seen.as_ref().unwrap().offers("recall")), "{context}");
        assert_eq!(requests.len(), 40, "{context}");
    }
}

#[tokio::test]
async fn what_a_person_wants_left_out_is_summarised_by_the_model_for_it_and_stays_out() {
    let (fake, _) = played();
    let context = "context: {window: 100000, model: \"anthropic:small-model\"}";
    let (files, other) = (files(context), self::files(context));
    let first = runtime(&files, &fake, Some(true));
    let mut call = first.open_entry().await.unwrap();
    assert_eq!(call.compact(None).await.unwrap(), None, "nothing was said yet");
    look_at(&mut call, 1..=10).await;
    let (before, after) = call.compact(Some("the harbour".to_owned())).await.unwrap().unwrap();
    assert!(after < before / 2, "{before} became {after}");
    let requests = fake.requests();
    let asked = requests.last().unwrap().seen.as_ref().unwrap();
    assert_eq!(asked.model, "small-model");
    assert!(asked.system.ends_with("Keep above all what is about: the harbour"), "{}", asked.system);
    let journal = |files: &Files| files.path().join("run.journal");
    std::fs::copy(journal(&files), journal(&other)).unwrap();
    let last = |fake: &FakeLlm| said(fake.requests().iter().rev().nth(1).unwrap().seen.as_ref().unwrap());
    call.turn("look at 11").await.unwrap();
    let expected = last(&fake);
    assert!(expected.contains("[Summary of ") && expected.contains("They looked at many files"), "{expected}");

    let second = runtime(&other, &fake, Some(false));
    let mut call = second.open_entry().await.unwrap();
    assert_eq!(call.restore().unwrap().finished, 10);
    call.turn("look at 11").await.unwrap();
    assert_eq!(last(&fake), expected, "as if the first process had gone on");
    // It stood behind the tenth turn, and goes with it.
    call.undo().await.unwrap().unwrap();
    call.turn("look at 12").await.unwrap();
    assert!(last(&fake).contains("[Summary of "));
    for _ in 0..2 {
        call.undo().await.unwrap().unwrap();
    }
    call.turn("look at 13").await.unwrap();
    assert!(!last(&fake).contains("[Summary of "));
    assert_eq!(fake.violations(), []);
}
