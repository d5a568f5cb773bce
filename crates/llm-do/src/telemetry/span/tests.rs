use std::sync::Arc;

use super::*;
use crate::event::{CallOutput, samples};
use crate::message::Reply;

/// A book of a run `r`, and a clock that goes on by a second with each event.
struct Desk {
    book: SpanBook,
    now: u64,
}

const SECOND: u64 = 1_000 * NANOS;

impl Desk {
    fn new(settings: BookSettings) -> Self {
        Self { book: SpanBook::new(BookSettings { run: "r".to_owned(), ..settings }), now: 0 }
    }

    fn recorded() -> Self {
        Self::new(BookSettings { is_recorded: true, ..BookSettings::default() })
    }

    fn hear(&mut self, call: u64, step: &str, kind: EventKind) {
        self.now += SECOND;
        let event = Event { agent: Arc::from("main"), depth: 0, call, kind, rank: 0 };
        self.book.hear(&event, Some(step).filter(|step| !step.is_empty()), self.now);
    }

    fn begins(&mut self, call: u64, step: &str, name: &str, parent: Option<u64>) {
        let (name, kind, input) = (name.to_owned(), CallKind::Agent, RawJson::of(&"hi"));
        self.hear(call, step, EventKind::CallStarted { name, kind, input, parent });
    }

    fn ends(&mut self, call: u64, step: &str, error: Option<&str>) {
        let ended = match error {
            None => CallEnd::Output(CallOutput::Text("done".to_owned())),
            Some(error) => CallEnd::Error(error.to_owned()),
        };
        let usage = Usage { requests: 1, cost_usd: Some(0.25), ..Usage::default() };
        let (name, kind) = ("main".to_owned(), CallKind::Agent);
        self.hear(call, step, EventKind::CallFinished { name, kind, ended, duration_ms: 2_000, usage });
    }

    fn asks(&mut self, call: u64, step: &str, error: Option<&str>) {
        let model = || "openai:gpt-x".to_owned();
        self.hear(call, step, EventKind::RequestStarted { model: model(), longest_wait_ms: None });
        let usage = Usage { requests: 1, input_tokens: 10, output_tokens: 5, reasoning_tokens: 2, ..Usage::default() };
        let (model, duration_ms) = (model(), 500);
        self.hear(
            call,
            step,
            match error {
                None => EventKind::RequestFinished { model, duration_ms, usage, finish: Finish::Stop },
                Some(error) => EventKind::RequestFailed { model, duration_ms, usage, error: error.to_owned() },
            },
        );
    }

    fn calls(&mut self, call: u64, step: &str, id: &str, calls_as: Option<u64>) {
        let (id, tool, arguments) = (id.to_owned(), "add".to_owned(), RawJson::of(&serde_json::json!({"a": "secret"})));
        self.hear(call, step, EventKind::ToolCalled { id, tool, arguments, calls_as });
    }

    fn returns(&mut self, call: u64, step: &str, id: &str, returned: ToolReturn) {
        let (id, tool) = (id.to_owned(), "add".to_owned());
        self.hear(call, step, EventKind::ToolReturned { id, tool, returned, duration_ms: 700 });
    }

    /// What has ended: names with those of their parents, by the names of the ids that are known.
    fn tree(&mut self, keys: &[&str]) -> Vec<String> {
        let named = |id: Option<SpanId>| {
            let key = keys.iter().find(|key| Some(SpanId::of("r", key)) == id);
            key.map_or_else(|| id.map_or("nothing".to_owned(), |id| id.to_string()), |key| (*key).to_owned())
        };
        let shown = |span: &TraceSpan| format!("{} at {} of {}", span.name, named(Some(span.id)), named(span.parent));
        self.book.take_ended().iter().map(shown).collect()
    }
}

fn value<'a>(span: &'a TraceSpan, name: &str) -> Option<&'a AttributeValue> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn ok() -> ToolReturn {
    ToolReturn::Result("secret".to_owned())
}

const KEYS: [&str; 6] =
    ["main", "main/t0/m0", "main/t0/m0/c0", "main/t0/m0/c1", "main/t0/m0/c1/x0", "main/t0/m0/c1/t0/m0"];

/// An agent that asks, calls a tool and code, which calls another tool and an agent.
fn whole(desk: &mut Desk) {
    desk.begins(1, "", "main", None);
    desk.asks(1, KEYS[1], None);
    desk.calls(1, KEYS[2], "c1", None);
    desk.returns(1, KEYS[2], "c1", ok());
    desk.calls(1, KEYS[3], "c2", Some(2));
    desk.calls(2, "main/t0/m0/c1/x1234.0/c0", "x0", None);
    desk.returns(2, "main/t0/m0/c1/x1234.0/c0", "x0", ToolReturn::Error("secret".to_owned()));
    desk.returns(1, KEYS[3], "c2", ok());
    desk.ends(1, "", None);
}

#[test]
fn spans_stand_beneath_each_other_as_calls_do() {
    let mut desk = Desk::recorded();
    whole(&mut desk);
    assert_eq!(
        desk.tree(&KEYS),
        [
            "chat gpt-x at main/t0/m0 of main",
            "execute_tool add at main/t0/m0/c0 of main",
            "execute_tool add at main/t0/m0/c1/x0 of main/t0/m0/c1",
            "execute_tool add at main/t0/m0/c1 of main",
            "invoke_agent main at main of nothing",
        ]
    );
}

#[test]
fn what_is_not_recorded_has_ids_that_differ_all_the_same() {
    let mut desk = Desk::new(BookSettings::default());
    for call in [1, 2] {
        desk.begins(call, "", "main", None);
        desk.asks(call, "", None);
        desk.asks(call, "", None);
        desk.calls(call, "", "c1", None);
        desk.returns(call, "", "c1", ok());
        desk.ends(call, "", None);
    }
    let spans = desk.book.take_ended();
    let ids: HashSet<SpanId> = spans.iter().map(|span| span.id).collect();
    assert_eq!((spans.len(), ids.len()), (8, 8));
}

#[test]
fn attributes_are_those_of_the_conventions_and_tell_nothing_that_was_said() {
    let mut desk = Desk::recorded();
    whole(&mut desk);
    let spans = desk.book.take_ended();
    assert!(!format!("{spans:?}").contains("secret"), "{spans:?}");
    let [chat, tool, failed, _, agent] = spans.as_slice() else { panic!("{spans:?}") };
    let (text, word) = (|text: &str| AttributeValue::Text(text.to_owned()), AttributeValue::Word);
    for (span, name, expected) in [
        (chat, "gen_ai.operation.name", Some(word("chat"))),
        (chat, "gen_ai.provider.name", Some(text("openai"))),
        (chat, "gen_ai.request.model", Some(text("gpt-x"))),
        (chat, "gen_ai.response.model", Some(text("gpt-x"))),
        (chat, "gen_ai.response.finish_reasons", Some(AttributeValue::Words(vec!["stop"]))),
        (chat, "gen_ai.usage.input_tokens", Some(AttributeValue::Number(10))),
        (chat, "gen_ai.usage.output_tokens", Some(AttributeValue::Number(5))),
        (chat, "gen_ai.usage.reasoning.output_tokens", Some(AttributeValue::Number(2))),
        (chat, "gen_ai.usage.cache_read.input_tokens", None),
        (chat, "gen_ai.conversation.id", Some(text("r"))),
        (tool, "gen_ai.operation.name", Some(word("execute_tool"))),
        (tool, "gen_ai.tool.name", Some(text("add"))),
        (tool, "gen_ai.tool.call.id", Some(text("c1"))),
        (tool, "gen_ai.tool.type", Some(word("function"))),
        (tool, "gen_ai.agent.name", Some(text("main"))),
        (tool, "error.type", None),
        (failed, "error.type", Some(text("tool_error"))),
        (agent, "gen_ai.operation.name", Some(word("invoke_agent"))),
        (agent, "gen_ai.agent.name", Some(text("main"))),
        (agent, "gen_ai.conversation.id", Some(text("r"))),
        (agent, "gen_ai.provider.name", Some(text("openai"))),
        (agent, "gen_ai.request.model", Some(text("gpt-x"))),
        (agent, "llm_do.cost_usd", Some(AttributeValue::Amount(0.25))),
    ] {
        assert_eq!(value(span, name), expected.as_ref(), "{name} of {}", span.name);
    }
    assert_eq!(
        (chat.kind, tool.kind, agent.kind),
        (TraceSpanKind::Client, TraceSpanKind::Internal, TraceSpanKind::Internal)
    );
    assert_eq!((chat.start, chat.end), (2 * SECOND, 3 * SECOND));
}

#[test]
fn content_is_there_only_if_it_is_wanted_and_without_keys() {
    let redactor = Redactor::of(["sk-0123456789ab"]);
    let mut desk = Desk::new(BookSettings { has_content: true, redactor, ..BookSettings::default() });
    desk.begins(1, "", "main", None);
    let said = Message::user("it is sk-0123456789ab");
    let log = |desk: &mut Desk, message: &Message| {
        desk.book.hear_message(&LoggedMessage { agent: "main", depth: 0, call: 1, message });
    };
    log(&mut desk, &said);
    desk.asks(1, "", None);
    assert_eq!(desk.book.take_ended(), [], "its reply comes a moment later");
    log(&mut desk, &Message::Assistant(Reply::answer(&"openai:gpt-x", "so be it")));
    let [chat] = <[TraceSpan; 1]>::try_from(desk.book.take_ended()).unwrap();
    desk.calls(1, "", "c1", None);
    desk.returns(1, "", "c1", ok());
    desk.ends(1, "", None);
    let [tool, agent] = <[TraceSpan; 2]>::try_from(desk.book.take_ended()).unwrap();
    for (span, name, part) in [
        (&chat, "gen_ai.input.messages", "it is [redacted]"),
        (&chat, "gen_ai.output.messages", "so be it"),
        (&tool, "gen_ai.tool.call.arguments", r#"{"a":"secret"}"#),
        (&tool, "gen_ai.tool.call.result", "secret"),
        (&agent, "gen_ai.input.messages", "hi"),
        (&agent, "gen_ai.output.messages", "done"),
    ] {
        let Some(AttributeValue::Text(text)) = value(span, name) else { panic!("no {name}") };
        assert!(text.contains(part), "{name}: {text}");
    }
}

#[test]
fn errors_are_named_by_few_words() {
    for (error, expected) in [
        ("the provider is not available: busy (status 429, rate_limit, request r)", "429"),
        ("not authenticated: no (status 401)", "401"),
        ("the provider did not answer in time, and may charge for it all the same: x", "timeout"),
        ("status 4", "_OTHER"),
        ("cancelled", "cancelled"),
        ("é", "_OTHER"),
    ] {
        assert_eq!(error_type(error), expected, "{error}");
    }
    let mut desk = Desk::recorded();
    desk.begins(1, "", "main", None);
    desk.asks(1, KEYS[1], Some("busy (status 503)"));
    desk.calls(1, KEYS[2], "c1", None);
    desk.ends(1, "", Some("agent `main`: busy"));
    let spans = desk.book.take_ended();
    let errors: Vec<_> = spans.iter().map(|span| (span.name.as_str(), value(span, "error.type"))).collect();
    let text = |text: &str| AttributeValue::Text(text.to_owned());
    assert_eq!(
        errors,
        [
            ("chat gpt-x", Some(&text("503"))),
            ("execute_tool add", Some(&text("cancelled"))),
            ("invoke_agent main", Some(&text("503"))),
        ]
    );
}

#[test]
fn questions_are_events_of_their_agent_and_one_that_waits_has_not_ended() {
    let asked = || EventKind::ApprovalAsked {
        id: "q".into(),
        path: vec![],
        tool: "add".into(),
        arguments: RawJson::of(&1),
        reason: "writes secret".into(),
    };
    let waits = "approval is needed for `add` of main";
    let mut desk = Desk::recorded();
    desk.begins(1, "", "main", None);
    desk.begins(2, KEYS[3], "child", Some(1));
    desk.hear(2, KEYS[5], asked());
    desk.ends(2, KEYS[3], Some(waits));
    desk.ends(1, "", Some(waits));
    assert_eq!(desk.book.take_ended(), [], "whoever answers goes on with them");

    let mut desk = Desk::new(BookSettings::default());
    desk.begins(1, "", "main", None);
    desk.hear(1, "", asked());
    let answer = ApprovalResult::Once;
    let (id, path, tool, note, rule) = ("q".into(), vec![], "add".into(), None, None);
    desk.hear(1, "", EventKind::ApprovalAnswered { id, path, tool, answer, note, rule });
    desk.ends(1, "", Some(waits));
    let [span] = <[TraceSpan; 1]>::try_from(desk.book.take_ended()).unwrap();
    assert_eq!(span.events.iter().map(|event| event.name).collect::<Vec<_>>(), ["llm_do.question", "llm_do.answer"]);
    assert_eq!(value(&span, "error.type"), Some(&AttributeValue::Text("waiting".to_owned())), "nobody can go on");
    assert!(!format!("{span:?}").contains("secret"));
}

/// What an earlier process did: the first request and the first tool, of which a collector has the request.
fn prior(delivered: &[&str]) -> TracePrior {
    let done = BTreeMap::from([(KEYS[1].to_owned(), 10_000), (KEYS[2].to_owned(), 20_000)]);
    let delivered = delivered.iter().map(|key| SpanId::of("r", key).to_string()).collect();
    TracePrior { begun_at: 5_000, seen: done.clone(), done, delivered }
}

fn resumed(delivered: &[&str]) -> Desk {
    let link = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let prior = Some(prior(delivered));
    let mut desk = Desk::new(BookSettings { is_recorded: true, prior, link, ..BookSettings::default() });
    desk.now = 100 * SECOND;
    desk
}

#[test]
fn a_run_that_goes_on_closes_what_was_open_and_sends_what_was_not_delivered() {
    let mut desk = resumed(&[KEYS[1]]);
    whole(&mut desk);
    let spans = desk.book.take_ended();
    let of = |key: &str| spans.iter().find(|span| span.id == SpanId::of("r", key));
    assert!(of(KEYS[1]).is_none(), "a collector has it");
    let tool = of(KEYS[2]).unwrap();
    assert_eq!((tool.start, tool.end), (19_300 * NANOS, 20 * SECOND), "as it was recorded");
    let root = of("main").unwrap();
    assert_eq!((root.start, root.parent, root.links.len()), (5 * SECOND, None, 1), "it began with the first process");
    assert!(root.end > 100 * SECOND);
}

#[test]
fn what_was_sent_as_ended_is_gone_on_with_beneath_it() {
    let mut desk = resumed(&["main", KEYS[3]]);
    whole(&mut desk);
    let spans = desk.book.take_ended();
    let root = spans.iter().find(|span| span.name == "invoke_agent main").unwrap();
    assert_eq!(root.parent, Some(SpanId::of("r", "main")));
    assert_ne!(root.id, SpanId::of("r", "main"));
    assert!(root.start > 100 * SECOND);
    let ids: HashSet<SpanId> = spans.iter().map(|span| span.id).collect();
    let delivered = [SpanId::of("r", "main"), SpanId::of("r", KEYS[3])];
    assert!(delivered.iter().all(|id| !ids.contains(id)), "no id is sent twice");
    let is_known =
        |span: &TraceSpan| span.parent.is_some_and(|parent| ids.contains(&parent) || delivered.contains(&parent));
    assert!(spans.iter().all(is_known), "{spans:?}");
}

#[test]
fn no_order_of_events_is_a_surprise() {
    let kinds = samples::all();
    let mut desk = Desk::recorded();
    for seed in 0..2_000_usize {
        let kind = kinds[(seed * 7 + seed / 3) % kinds.len()].clone();
        desk.hear(seed as u64 % 3, ["", "main/t0/m0", "main/t0/m0/c0"][seed % 3], kind);
    }
    let spans = desk.book.take_ended();
    let ids: HashSet<SpanId> = spans.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), spans.len());
    assert!(spans.iter().all(|span| span.end >= span.start));
}
