//! A run in one file, to read without a server: what its view shows, with nothing from outside. A policy in it allows its one
//! script and its one style, by their digests, and nothing else. Pure.

use std::fmt::Write as _;

use base64::Engine as _;
use llm_do::events::CallKind;
use llm_do::messages::{Arguments, ReplyPart};
use llm_do::records::{JournalContents, RecordedCall, conversation, shown_time};
use llm_do::{Content, Message};
use llm_do_launch::stored_runs::ShownRun;
use sha2::{Digest as _, Sha256};

use crate::layout::timeline::Timeline;
use crate::svg::{self, escaped};
use crate::told_call::timed;

const STYLE: &str = include_str!("../page/export.css");
const SCRIPT: &str = include_str!("../page/export.js");

/// Longer texts are cut: the record has them.
const LONGEST: usize = 200_000;

/// The file.
pub fn html(run: &ShownRun, contents: &JournalContents) -> String {
    let title = escaped(&format!("Run {} · {}", run.line.id, run.line.entry));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{}'; style-src '{}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        hash(SCRIPT),
        hash(STYLE),
    );
    facts(&mut out, run);
    out.push_str("<h2>Conversation</h2>\n");
    for message in &conversation(contents) {
        said(&mut out, message, &run.line.entry);
    }
    let timeline = Timeline::of(&timed(contents, &run.calls));
    if !timeline.rows.is_empty() {
        let _ = write!(out, "<h2>Timeline</h2>\n<div class=\"picture\">{}</div>\n", svg::timeline(&timeline));
    }
    out.push_str("<h2>Calls</h2>\n<p><input id=\"filter\" type=\"search\" aria-label=\"Filter calls\" placeholder=\"Filter calls\"></p>\n");
    run.calls.iter().for_each(|each| call(&mut out, each));
    let _ = write!(out, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

fn hash(text: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text.as_bytes())))
}

fn facts(out: &mut String, run: &ShownRun) {
    let cost = run.usage.cost_usd.map_or_else(|| "unknown".to_owned(), |usd| format!("${usd:.4}"));
    let by = run.begun_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let state = serde_json::to_value(run.line.state).ok();
    let rows = [
        ("State", state.as_ref().and_then(|state| state.as_str()).unwrap_or_default().to_owned()),
        ("Project", run.line.project.to_string()),
        ("Begun", format!("{}{by}", shown_time(run.begun))),
        ("Requests", run.usage.requests.to_string()),
        ("Tokens", format!("{} in, {} out", run.usage.input_tokens, run.usage.output_tokens)),
        ("Cost", cost),
    ];
    out.push_str("<dl>\n");
    for (name, value) in rows {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
    }
    out.push_str("</dl>\n");
}

fn text(out: &mut String, words: &str) {
    let bounded = words.char_indices().nth(LONGEST).map_or(words, |(at, _)| &words[..at]);
    out.push_str("<pre>");
    for line in bounded.split('\n') {
        out.push_str(&escaped(line));
        out.push('\n');
    }
    out.push_str(if bounded.len() < words.len() { "… the record has the rest</pre>\n" } else { "</pre>\n" });
}

fn said(out: &mut String, message: &Message, entry: &str) {
    let who = match message {
        Message::User(_) => "user".to_owned(),
        Message::Assistant(_) => entry.to_owned(),
        Message::Tool(_) => "results".to_owned(),
    };
    let _ = writeln!(out, "<section class=\"said\"><h3>{}</h3>", escaped(&who));
    match message {
        Message::User(said) => text(out, &Content::shown(&said.parts)),
        Message::Assistant(reply) => {
            for part in &reply.parts {
                match part {
                    ReplyPart::Text(part) | ReplyPart::Refusal(part) => text(out, &part.text),
                    ReplyPart::ToolCall(call) => {
                        let arguments = match &call.arguments {
                            Arguments::Object(json) => json.get(),
                            Arguments::Malformed(text) => text,
                        };
                        text(out, &format!("calls {} {arguments}", call.tool));
                    }
                    ReplyPart::Thinking(_) | ReplyPart::ServerTool(_) => {}
                }
            }
        }
        Message::Tool(results) => {
            for result in &results.parts {
                match &result.outcome {
                    Ok(content) => text(out, &Content::shown(content)),
                    Err(reason) => text(out, reason),
                }
            }
        }
    }
    out.push_str("</section>\n");
}

fn call(out: &mut String, call: &RecordedCall) {
    let state = serde_json::to_value(call.state).ok();
    let state = state.as_ref().and_then(|state| state.as_str()).unwrap_or_default().replace('_', " ");
    let kind = match call.kind {
        CallKind::Agent | CallKind::Function => "agent",
        CallKind::Tool | CallKind::ServerTool => "tool",
    };
    let took = call.duration_ms.map(|took| format!(" · {took} ms")).unwrap_or_default();
    let is_open = if call.calls.is_empty() { "" } else { " open" };
    let _ = writeln!(
        out,
        "<details class=\"call {kind}\"{is_open}><summary>{} <span>{}{}</span></summary>",
        escaped(&call.name),
        escaped(&state),
        took
    );
    if let Some(reason) = &call.reason {
        text(out, reason);
    }
    if let Some(input) = &call.input {
        text(out, input.get());
    }
    call.calls.iter().for_each(|below| self::call(out, below));
    out.push_str("</details>\n");
}
