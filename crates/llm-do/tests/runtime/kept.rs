//! Turns that were stopped or failed stay in the conversation, and what may be wanted between two turns: in all protocols, and
//! also when another process goes on.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use fake_llm::{At, Cut, FakeCall, FakeFinish, FakeLlm, FakeReply, FakeScript, InjectedFault, On, SeenPart, StallGate};
use llm_do::event::{Event, EventKind, Listen};
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::journal::Journal;
use llm_do::journal::file::{FileJournal, Matching, OpenJournal};
use llm_do::journal::mac::StateKey;
use llm_do::message::{Content, Message};
use llm_do::model::exchange::{Endpoint, Exchange, Key, Retries, Secret};
use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::model::provider::provider;
use llm_do::project::Project;
use llm_do::runtime::record::PriorSpending;
use llm_do::runtime::{EntryCall, Models, RunError, Runtime, RuntimeConfig, check_history};
use llm_do::tools::approval::{Approvals, Rule};
use llm_do::tools::function::Tool;
use serde_json::json;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::support::{Files, runtime as scripted, text, worker};

const PROTOCOLS: [&str; 4] = ["anthropic", "openai", "openai-chat", "google"];

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Named {
    name: String,
}

async fn note(named: Named) -> Result<String, String> {
    Ok(format!("noted {}", named.name))
}

/// Tells that it has begun, and never ends.
fn hanging(begun: &Arc<Notify>) -> Tool {
    let begun = Arc::clone(begun);
    let hang = move |_: Named| {
        begun.notify_one();
        pending::<Result<String, String>>()
    };
    Tool::new(hang).named("hang").verdict(Rule::Allow)
}

pub fn exchange(name: &str, fake: &FakeLlm) -> Exchange {
    let row = provider(name).unwrap();
    let base_url = match name {
        "anthropic" => fake.anthropic_url(),
        "google" => fake.gemini_url(),
        _ => fake.openai_url(),
    };
    let endpoint = Endpoint {
        provider: row.name.to_owned(),
        protocol: row.protocol.protocol().unwrap(),
        quirks: row.quirks,
        base_url,
        key: Key::Secret(Secret::new("secret")),
    };
    let wait = Duration::from_millis(1);
    let retries = Retries { attempts: 1, first_wait: wait, longest_wait: wait, ..Retries::STANDARD };
    Exchange { endpoint: Arc::new(endpoint), http: HttpClient::new(HttpSettings::STANDARD).unwrap(), retries }
}

fn files(name: &str) -> Files {
    let main = format!("---\nname: main\nentry: true\nmodel: {name}:some-model\ntools: [note, hang]\n---\nBe brief.\n");
    Files::new(&[("main.worker", &main)])
}

fn with_tools(project: Project, begun: &Arc<Notify>) -> Project {
    project.tool(Tool::new(note).named("note").verdict(Rule::Allow)).tool(hanging(begun))
}

fn runtime(files: &Files, name: &str, fake: &FakeLlm) -> Runtime {
    runtime_with(files, name, fake, &Arc::default()).0
}

fn runtime_with(files: &Files, name: &str, fake: &FakeLlm, begun: &Arc<Notify>) -> (Runtime, UnboundedReceiver<Event>) {
    let program =
        with_tools(files.project(), begun).link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}"));
    let mut models = Models::default();
    models.insert(name, Arc::new(exchange(name, fake)));
    Runtime::with_listener(program, models, RuntimeConfig::new(Approvals::unattended()), Listen::Everything)
}

/// A turn that is cancelled as soon as some words of its answer have come.
async fn stopped(call: &mut EntryCall<'_>, input: &str, heard: &mut UnboundedReceiver<Event>) -> RunError {
    let cancelled = CancellationToken::new();
    let stop = async {
        while let Some(event) = heard.recv().await {
            if matches!(event.kind, EventKind::TextDelta { .. }) {
                return cancelled.cancel();
            }
        }
    };
    let (answer, ()) = tokio::join!(call.turn_until(input, &cancelled), stop);
    answer.unwrap_err()
}

/// What the last request says, in order.
fn last_request(fake: &FakeLlm) -> Vec<String> {
    let requests = fake.requests();
    let seen = requests.last().unwrap().seen.as_ref().unwrap();
    let part = |part: &SeenPart| match part {
        SeenPart::Text(text) => format!("text {text}"),
        SeenPart::Call { name, arguments, .. } => format!("call {name} {arguments}"),
        SeenPart::Result { text, .. } => format!("result {text}"),
        other => format!("{other:?}"),
    };
    seen.messages.iter().flat_map(|message| message.parts.iter().map(part)).collect()
}

const TOLD: &str = "text [The turn before this message was interrupted: the user stopped it. What it had said and done until then stands above.]";

#[tokio::test]
async fn a_stopped_turn_stays_with_its_calls_and_its_words_in_every_protocol() {
    for name in PROTOCOLS {
        let gate = StallGate::new();
        let call = FakeCall::new("note", json!({"name": "a"}));
        let script = FakeScript::new()
            .reply(FakeReply::calls([call]))
            .reply(FakeReply::text("Once upon a time").in_deltas(4))
            .reply(FakeReply::text("I noted a."))
            .fault(On::Request(2), InjectedFault::Stall { at: At::Percent(45), gate: gate.clone() });
        let fake = FakeLlm::start(script);
        let files = files(name);
        let (runtime, mut heard) = runtime_with(&files, name, &fake, &Arc::default());
        let mut call = runtime.open_entry().await.unwrap();
        let error = stopped(&mut call, "note a", &mut heard).await;
        let partial = error.partial().unwrap().to_owned();
        assert!("Once upon a time".starts_with(&partial) && !partial.is_empty(), "{name}: {partial}");
        assert!(call.is_interrupted());
        check_history(call.history()).unwrap();
        // The answer that was not delivered stays the next one of the script.
        gate.release();
        call.turn("what did you do?").await.unwrap();
        let request = last_request(&fake);
        let expected = [
            "text note a",
            "call note {\"name\":\"a\"}",
            "result noted a",
            &format!("text {partial}"),
            TOLD,
            "text what did you do?",
        ];
        assert_eq!(request, expected, "{name}");
        assert_eq!(fake.violations(), [], "{name}");
        assert!(!call.is_interrupted());
    }
}

#[tokio::test]
async fn calls_without_a_result_say_what_became_of_them_in_every_protocol() {
    for name in PROTOCOLS {
        let calls = ["note", "hang"].map(|tool| FakeCall::new(tool, json!({"name": "a"})));
        let thinking = FakeReply::thinking("let me see", "sig").and_text("I do both.").and_calls(calls.clone());
        let first = if name == "anthropic" { thinking } else { FakeReply::text("I do both.").and_calls(calls) };
        let fake = FakeLlm::start(FakeScript::new().reply(first).reply(FakeReply::text("One of two.")));
        let files = files(name);
        let begun = Arc::default();
        let (runtime, _heard) = runtime_with(&files, name, &fake, &begun);
        let mut call = runtime.open_entry().await.unwrap();
        let cancelled = CancellationToken::new();
        let stop = async {
            begun.notified().await;
            cancelled.cancel();
        };
        let (answer, ()) = tokio::join!(call.turn_until("both", &cancelled), stop);
        assert!(matches!(answer, Err(RunError::Cancelled { .. })), "{name}");
        check_history(call.history()).unwrap();
        assert_eq!(text(call.turn("and?").await), "One of two.");
        let request = last_request(&fake);
        assert!(request.contains(&"result noted a".to_owned()), "{name}: {request:?}");
        let interrupted = request.iter().filter(|part| part.contains("interrupted: it may have happened")).count();
        assert_eq!(interrupted, 1, "{name}: {request:?}");
        assert_eq!(fake.violations(), [], "{name}");
    }
}

#[tokio::test]
async fn of_a_reply_that_was_cut_only_its_words_stay_in_every_protocol() {
    for name in PROTOCOLS {
        let calls = [FakeCall::new("note", json!({"name": "a"}))];
        let cut = FakeReply::text("I note").and_calls(calls).finishing(FakeFinish::Length);
        let fake = FakeLlm::start(FakeScript::new().reply(cut).reply(FakeReply::text("Yes.")));
        let files = files(name);
        let runtime = runtime(&files, name, &fake);
        let mut call = runtime.open_entry().await.unwrap();
        let error = call.turn("note a").await.unwrap_err();
        assert!(matches!(error, RunError::Unfinished { .. }), "{name}: {error}");
        assert_eq!(text(call.turn("go on").await), "Yes.");
        let request = last_request(&fake);
        assert_eq!((request[0].as_str(), request[1].as_str()), ("text note a", "text I note"), "{name}");
        assert!(request[2].contains("was interrupted: the answer of agent `main` was cut off"), "{name}: {request:?}");
        assert_eq!((request[3].as_str(), request.len()), ("text go on", 4), "{name}");
        assert_eq!(fake.violations(), [], "{name}");
    }
}

#[tokio::test]
async fn a_turn_that_was_never_answered_is_taken_back_and_one_that_was_half_answered_stays() {
    let name = "anthropic";
    let script = FakeScript::new()
        .otherwise(FakeReply::text("Once upon a time").in_deltas(4))
        .fault(On::Request(1), InjectedFault::status(529))
        .fault(On::Request(2), InjectedFault::status(529))
        .fault(On::Request(3), InjectedFault::Cut { at: At::Percent(70), how: Cut::Eof })
        .fault(On::Request(4), InjectedFault::Cut { at: At::Percent(70), how: Cut::Eof });
    let fake = FakeLlm::start(script);
    let files = files(name);
    let runtime = runtime(&files, name, &fake);
    let mut call = runtime.open_entry().await.unwrap();
    call.turn("one").await.unwrap_err();
    assert_eq!((call.history().len(), call.is_interrupted()), (0, false));
    call.turn("two").await.unwrap_err();
    assert_eq!((call.history().len(), call.is_interrupted()), (2, true));
    call.turn("three").await.unwrap();
    let request = last_request(&fake);
    assert_eq!(request[0], "text two");
    assert!(request[1].starts_with("text Once"), "{request:?}");
    assert!(request[2].contains("was interrupted: agent `main`: the provider is not available"), "{request:?}");
    assert_eq!(fake.violations(), []);
}

fn key() -> StateKey {
    StateKey::from_bytes([3; 32])
}

fn recorded(runtime: Runtime, files: &Files, is_new: bool) -> Runtime {
    let path = files.path().join("run.journal");
    if is_new {
        let engine: Arc<dyn Journal> = Arc::new(FileJournal::create(path, &"header", Some(&key())).unwrap());
        return runtime.recorded_by(engine, PriorSpending::default());
    }
    let open = OpenJournal::open(&path, Some(&key())).unwrap();
    let resumed = PriorSpending::from(open.contents());
    runtime.recorded_by(Arc::new(open.resume(Matching::Exact, None).unwrap()), resumed)
}

#[tokio::test]
async fn whoever_goes_on_finds_a_stopped_turn_as_it_was() {
    let (name, gate) = ("anthropic", StallGate::new());
    let call = FakeCall::new("note", json!({"name": "a"}));
    let script = FakeScript::new()
        .accept_foreign_history()
        .reply(FakeReply::calls([call]))
        .reply(FakeReply::text("Once upon a time").in_deltas(4))
        .otherwise(FakeReply::text("I noted a."))
        .fault(On::Request(2), InjectedFault::Stall { at: At::Percent(45), gate: gate.clone() });
    let fake = FakeLlm::start(script);
    let files = files(name);
    let (first, mut heard) = runtime_with(&files, name, &fake, &Arc::default());
    let first = recorded(first, &files, true);
    let mut call = first.open_entry().await.unwrap();
    stopped(&mut call, "note a", &mut heard).await;
    gate.release();
    let (history, usage) = (call.history().to_vec(), first.usage().total);
    assert_eq!((history.len(), usage.requests, usage.unanswered), (4, 2, 1));
    drop(call);
    drop(first);

    let second = recorded(runtime(&files, name, &fake), &files, false);
    let mut call = second.open_entry().await.unwrap();
    let restored = call.restore().unwrap();
    assert_eq!((restored.finished, restored.unfinished), (1, None));
    let last = restored.last.unwrap();
    assert_eq!(last.stopped.as_deref(), Some("the user stopped it"));
    assert!(last.output.to_string().starts_with("Once"), "{:?}", last.output);
    assert_eq!((call.history(), second.usage().total), (&history[..], usage));
    call.turn("what did you do?").await.unwrap();
    assert!(last_request(&fake).contains(&TOLD.to_owned()));
    let history = call.history().to_vec();
    drop(call);
    drop(second);

    let third = recorded(runtime(&files, name, &fake), &files, false);
    let mut call = third.open_entry().await.unwrap();
    assert_eq!(call.restore().unwrap().finished, 2);
    assert_eq!((call.history(), call.is_interrupted()), (&history[..], false));
    // Both are forgotten, also by those who come later; what the first one began with can be said again.
    call.undo().await.unwrap().unwrap();
    assert!(call.is_interrupted());
    let undone = call.undo().await.unwrap().unwrap();
    assert_eq!(undone.input(), [Content::text("note a")]);
    assert_eq!((call.undo().await.unwrap(), call.history().len()), (None, 0));
    call.turn("again").await.unwrap();
    assert_eq!(last_request(&fake), ["text again"]);
    let history = call.history().to_vec();
    drop(call);
    drop(third);

    let fourth = recorded(runtime(&files, name, &fake), &files, false);
    let mut call = fourth.open_entry().await.unwrap();
    assert_eq!((call.restore().unwrap().finished, call.history()), (1, &history[..]));
}

#[tokio::test]
async fn another_model_goes_on_also_for_those_who_come_later() {
    let script = FakeScript::new().accept_foreign_history().otherwise(FakeReply::text("hello"));
    let fake = FakeLlm::start(script);
    let files = files("anthropic");
    let connected = || {
        let program = with_tools(files.project(), &Arc::default()).link(&ModelChoices::default()).unwrap();
        let other = exchange("openai", &fake);
        let mut models = Models::default().connected_by(move |name| match name {
            "openai" => Ok(Arc::new(other.clone()) as Arc<dyn llm_do::model::Model>),
            name => Err(format!("there is no {name}")),
        });
        models.insert("anthropic", Arc::new(exchange("anthropic", &fake)));
        Runtime::new(program, models, RuntimeConfig::new(Approvals::unattended()))
    };
    let first = recorded(connected(), &files, true);
    let mut call = first.open_entry().await.unwrap();
    call.turn("one").await.unwrap();
    let wrong = call.change_model(ModelName::parse("acme:rocket").unwrap()).await.unwrap_err();
    assert_eq!(wrong.to_string(), "no model provider `acme` for agent `main`: there is no acme");
    call.change_model(ModelName::parse("openai:gpt-4o").unwrap()).await.unwrap();
    call.turn("two").await.unwrap();
    drop(call);
    drop(first);
    let second = recorded(connected(), &files, false);
    let mut call = second.open_entry().await.unwrap();
    assert_eq!(call.restore().unwrap().finished, 2);
    assert_eq!(call.model().unwrap().to_string(), "openai:gpt-4o");
    call.turn("three").await.unwrap();
    let models: Vec<String> =
        fake.requests().iter().map(|request| request.seen.as_ref().unwrap().model.clone()).collect();
    assert_eq!(models, ["some-model", "gpt-4o", "gpt-4o"]);
    assert_eq!(fake.violations(), []);
}

#[tokio::test]
async fn only_models_that_an_agent_is_compatible_with_go_on() {
    let main =
        worker("main", "entry: true").replace("model: scripted:script.yaml", "compatible_models: ['scripted:*']");
    let files = Files::new(&[("main.worker", &main), ("script.yaml", "- say: hi")]);
    let models = ModelChoices {
        required: Some(ModelName::parse("scripted:script.yaml").unwrap()),
        scripts: [("script.yaml".to_owned(), "- say: hi".to_owned())].into(),
        ..ModelChoices::default()
    };
    let program = files.project().link(&models).unwrap_or_else(|report| panic!("{report}"));
    let runtime = Runtime::new(program, Models::default(), RuntimeConfig::new(Approvals::unattended()));
    let mut call = runtime.open_entry().await.unwrap();
    let error = call.change_model(ModelName::parse("openai:gpt-4o").unwrap()).await.unwrap_err();
    let expected = "`openai:gpt-4o` is not a model that agent `main` is compatible with; compatible: scripted:*";
    assert_eq!(error.to_string(), expected);
    assert_eq!(text(call.turn("x").await), "hi");
}

#[tokio::test]
async fn the_only_turn_of_a_run_is_left_open_and_not_kept() {
    let script = "- {round: 1, call: {note: {name: a}}}\n- {fail: give_up}";
    let files = Files::new(&[("main.worker", &worker("main", "entry: true\ntools: [note]")), ("script.yaml", script)]);
    let first = recorded(
        scripted(&with_tools(files.project(), &Arc::default()), RuntimeConfig::new(Approvals::unattended())),
        &files,
        true,
    );
    first.run("go").await.unwrap_err();
    drop(first);
    let record = std::fs::read_to_string(files.path().join("run.journal")).unwrap();
    assert!(record.contains("main/t0/m0/c0") && !record.contains("\"k\":\"main/t0\""), "{record}");
    let kept = scripted(&with_tools(files.project(), &Arc::default()), RuntimeConfig::new(Approvals::unattended()));
    let mut call = kept.open_entry().await.unwrap();
    call.turn("go").await.unwrap_err();
    assert!(matches!(call.history(), [Message::User(_), Message::Assistant(_), Message::Tool(_)]));
}
