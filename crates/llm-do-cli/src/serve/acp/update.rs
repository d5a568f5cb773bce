//! What is told of a session to its client: events, and the messages of one that is loaded, as updates. Pure.

use llm_do::escape::visible;
use llm_do::events::ToolReturn;
use llm_do::messages::{Arguments, Reply, ReplyPart, ToolResult, Usage};
use llm_do::{Content, Event, EventKind, Message, RawJson};
use serde_json::{Value, json};

/// Longer results are shown by their beginning: the record has all of them.
const LONGEST_RESULT: usize = 8 * 1024;

/// What a session has used, as it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsedSoFar {
    pub cost_usd: f64,
}

/// What is told of an event, if anything is.
pub fn of_event(event: &Event, used: &mut UsedSoFar) -> Vec<Value> {
    let is_entry = event.depth == 0;
    match &event.kind {
        EventKind::TextDelta { text } if is_entry => vec![chunk("agent_message_chunk", text)],
        EventKind::ThinkingDelta { text } if is_entry => vec![chunk("agent_thought_chunk", text)],
        EventKind::Notice { text } => vec![chunk("agent_thought_chunk", &format!("{}\n", visible(text)))],
        EventKind::ToolCalled { id, tool, arguments, .. } => {
            let mut call = call_of(&call_id(event, id), &title(&event.agent, tool, arguments), tool);
            call["status"] = json!("in_progress");
            call["rawInput"] = arguments.to().unwrap_or_default();
            vec![call]
        }
        EventKind::ToolProgressed { id, message: Some(message), .. } => {
            vec![call_update(&call_id(event, id), "in_progress", Some(message))]
        }
        EventKind::ToolReturned { id, returned, .. } => {
            let (status, text) = match returned {
                ToolReturn::Result(text) => ("completed", text),
                ToolReturn::Error(text) => ("failed", text),
            };
            vec![call_update(&call_id(event, id), status, Some(text))]
        }
        EventKind::ToolRefused { id, tool, arguments, reason, .. } => {
            let none = RawJson::of(&json!({}));
            let id = call_id(event, id);
            let mut call = call_of(&id, &title(&event.agent, tool, arguments.as_ref().unwrap_or(&none)), tool);
            call["status"] = json!("failed");
            call["content"] = json!([text_content(reason)]);
            vec![call]
        }
        EventKind::RequestFinished { usage, .. } if is_entry => vec![usage_update(usage, used)],
        EventKind::RequestFinished { usage, .. } => {
            used.cost_usd += usage.cost_usd.unwrap_or_default();
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// A call is named by the call of the agent that makes it, too: ids of models need not differ between agents.
fn call_id(event: &Event, id: &str) -> String {
    format!("{}-{id}", event.call)
}

/// `editor › write_file a.md`
pub fn title(agent: &str, tool: &str, arguments: &RawJson) -> String {
    const LONGEST: usize = 80;
    let arguments = arguments.to::<serde_json::Map<String, Value>>().unwrap_or_default();
    let named =
        ["path", "command", "query", "url", "input", "question"].into_iter().find_map(|name| arguments.get(name));
    let argument = named.or_else(|| arguments.values().next()).and_then(Value::as_str).unwrap_or_default();
    let argument: String = argument.chars().take(LONGEST).collect();
    let gap = if argument.is_empty() { "" } else { " " };
    visible(&format!("{agent} › {tool}{gap}{argument}")).into_owned()
}

/// What a client shows a sign for.
fn kind(tool: &str) -> &'static str {
    match tool {
        "read_file" | "list_files" | "load_skill" => "read",
        "write_file" | "edit_file" => "edit",
        "delete_file" => "delete",
        "search_files" => "search",
        "shell" => "execute",
        _ => "other",
    }
}

fn call_of(id: &str, title: &str, tool: &str) -> Value {
    json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind(tool)})
}

fn call_update(id: &str, status: &str, text: Option<&str>) -> Value {
    let mut update = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status});
    if let Some(text) = text {
        update["content"] = json!([text_content(text)]);
    }
    update
}

pub fn text_content(text: &str) -> Value {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= LONGEST_RESULT).last();
    let shown = &text[..end.unwrap_or(0)];
    let more = if shown.len() < text.len() { "…" } else { "" };
    json!({"type": "content", "content": {"type": "text", "text": format!("{shown}{more}")}})
}

pub fn chunk(kind: &str, text: &str) -> Value {
    json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
}

fn usage_update(usage: &Usage, used: &mut UsedSoFar) -> Value {
    used.cost_usd += usage.cost_usd.unwrap_or_default();
    let tokens = usage.input_tokens + usage.output_tokens;
    json!({
        "sessionUpdate": "usage_update", "used": tokens, "size": tokens.max(usage.input_tokens),
        "cost": {"amount": used.cost_usd, "currency": "USD"},
    })
}

/// What was said so far, told again.
pub fn of_messages(agent: &str, messages: &[Message]) -> Vec<Value> {
    let mut updates = Vec::new();
    for message in messages {
        match message {
            Message::User(said) => {
                let texts = said.parts.iter().filter_map(|part| match part {
                    Content::Text { text } => Some(chunk("user_message_chunk", text)),
                    _ => None,
                });
                updates.extend(texts);
            }
            Message::Assistant(reply) => updates.extend(of_reply(agent, reply)),
            Message::Tool(results) => updates.extend(results.parts.iter().map(of_result)),
        }
    }
    updates
}

fn of_reply(agent: &str, reply: &Reply) -> Vec<Value> {
    let part = |part: &ReplyPart| match part {
        ReplyPart::Text(text) | ReplyPart::Refusal(text) => Some(chunk("agent_message_chunk", &text.text)),
        ReplyPart::ToolCall(call) => {
            let none = RawJson::of(&json!({}));
            let arguments = match &call.arguments {
                Arguments::Object(arguments) => arguments,
                Arguments::Malformed(_) => &none,
            };
            let mut told = call_of(&call.id, &title(agent, &call.tool, arguments), &call.tool);
            told["status"] = json!("pending");
            Some(told)
        }
        ReplyPart::Thinking(_) | ReplyPart::ServerTool(_) => None,
    };
    reply.parts.iter().filter_map(part).collect()
}

fn of_result(result: &ToolResult) -> Value {
    let (status, text) = match &result.outcome {
        Ok(parts) => ("completed", text_of(parts)),
        Err(error) => ("failed", error.clone()),
    };
    call_update(&result.id, status, Some(&text))
}

fn text_of(parts: &[Content]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Content::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
