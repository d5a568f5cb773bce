use std::sync::Arc;

use llm_do::events::CallKind;
use llm_do::messages::Usage;

use super::*;

fn view(verbosity: Verbosity, live: bool, streamed: bool) -> View {
    let plain = Styles { coloured: false };
    View {
        verbosity,
        live,
        streamed,
        stdout_is_terminal: streamed,
        stdout: plain,
        answers: MarkdownForm::Source,
        stderr: plain,
        thoughts: Thoughts::Hidden,
    }
}

fn event(depth: usize, kind: EventKind) -> Event {
    Event { agent: Arc::from(if depth == 0 { "main" } else { "child" }), depth, call: depth as u64 + 1, kind, rank: 0 }
}

fn text(depth: usize, text: &str) -> Event {
    event(depth, EventKind::TextDelta { text: text.to_owned() })
}

/// A run in which the entry calls an agent that calls a tool.
fn story() -> Vec<Event> {
    let json = |text: &str| RawJson::parse(text).unwrap();
    let model = "ollama:q".to_owned();
    let (name, kind, usage) = ("child".to_owned(), CallKind::Agent, Usage::default());
    vec![
        event(0, EventKind::RequestStarted { model: model.clone(), longest_wait_ms: None }),
        text(0, "I will "),
        text(0, "ask."),
        event(
            1,
            EventKind::CallStarted { name: name.clone(), kind, input: json(r#"{"input":"go"}"#), parent: Some(1) },
        ),
        text(1, "On it"),
        event(
            1,
            EventKind::ToolCalled {
                id: "1".into(),
                tool: "read".into(),
                arguments: json(r#"{"path":"a\u001b"}"#),
                calls_as: None,
            },
        ),
        event(
            1,
            EventKind::ToolReturned {
                id: "1".into(),
                tool: "read".into(),
                returned: ToolReturn::Error("no \u{1b}[2J file".into()),
                duration_ms: 3,
            },
        ),
        event(1, EventKind::TextComplete { text: "x".into() }),
        event(
            1,
            EventKind::CallFinished {
                name,
                kind,
                ended: CallEnd::Output(CallOutput::Text("done".to_owned())),
                duration_ms: 2100,
                usage,
            },
        ),
        event(0, EventKind::Notice { text: "the answer begins again".into() }),
        event(0, EventKind::RequestStarted { model, longest_wait_ms: None }),
        text(0, "Here **it** is"),
        event(0, EventKind::TextComplete { text: "Here **it** is".into() }),
    ]
}

/// Everything in the order in which it is written; stdout is marked.
fn shown(view: View) -> String {
    let mut renderer = Renderer::new(view);
    let mut pieces = Vec::new();
    for event in &story() {
        renderer.render(event, Some(60), &mut pieces);
    }
    assert!(!renderer.is_within_line());
    let pieces = pieces.into_iter().map(|piece| match piece {
        OutputPiece::Out(text) => format!("<{text}>"),
        OutputPiece::Err(text) => text,
    });
    pieces.collect::<String>().replace("><", "")
}

#[test]
fn a_watched_run_shows_calls_and_the_answer_as_it_comes() {
    let expected = "<I will ask.\n>→ child go\n  → read a\\u{1b}\n  ✗ read a\\u{1b}: no \\u{1b}[2J file\n← child go (2.1 s)\n  │ done\nnote: the answer begins again\n<Here **it** is\n>";
    assert_eq!(shown(view(Verbosity::Normal, true, true)), expected);
}

#[test]
fn without_a_terminal_only_notes_are_said_unless_more_is_wanted() {
    let note = "note: the answer begins again\n";
    assert_eq!(shown(view(Verbosity::Normal, false, false)), note);
    assert_eq!(shown(view(Verbosity::Quiet, false, false)), "");
    assert_eq!(shown(view(Verbosity::Messages, false, false)), "");
    let calls = shown(view(Verbosity::Calls, false, false));
    assert!(calls.starts_with("→ child {\"input\":\"go\"}\n  → read "), "{calls}");
    let words = shown(view(Verbosity::Text, false, false));
    assert!(words.starts_with("main: I will ask.\n→ child {\"input\":\"go\"}\n  child: On it\n  → read"), "{words}");
    assert!(words.ends_with("main: Here **it** is\n"), "{words}");
}

#[test]
fn an_answer_that_came_in_one_piece_is_shown_whole() {
    let mut renderer = Renderer::new(view(Verbosity::Normal, false, true));
    let mut pieces = Vec::new();
    renderer.render(&event(0, EventKind::TextComplete { text: "whole".into() }), None, &mut pieces);
    assert_eq!(pieces, [OutputPiece::Out("whole".into()), OutputPiece::Out("\n".into())]);
}

#[test]
fn what_went_wrong_is_told_to_its_end() {
    let error =
        "invalid arguments: `new_text` is unknown; did you mean `new_string`? it takes path, old_string, new_string";
    let rows = in_rows(error, 60);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1], "  `new_string`? it takes path, old_string, new_string");
    assert!(in_rows(&"word ".repeat(1000), 60).iter().all(|row| width(row) <= 60));
    assert!(in_rows(&"x".repeat(1000), 60).last().unwrap().ends_with('…'));
}
